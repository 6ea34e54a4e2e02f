#!/usr/bin/env python3
"""Loads real data through the stock mariadb client and compares lakesql, Spark + Hudi and hudi-rs table by table.

  load_check.py [--size tiny|small] [--databases hr,sakila,tpch] [--engines spark,hudi-rs] [--port P --data DIR]

Databases: hr (made on the fly), sakila (from $LAKESQL_SUITES/samples/sakila; left out with a warning without it, an
error with CI=true) and tpch (made by bench/bench.py; tiny is scale 0.01, small 0.1). Each table is created, filled by LOAD DATA
LOCAL INFILE and flushed; then rows are counted and every column is summed up (CRC-32 of each value's text) in the source,
over the wire and, from the table's folder, by the engines; each is compared with the source. Prints a table of results; exit 1 if anything differs.
Without --port it starts bin/lakesql on a fresh folder. The engines come from testdata/oracle/setup.sh; with CI=true
they must be there.
"""
import argparse, gzip, json, os, re, subprocess, sys, tempfile, time

import lakesql_server

ROOT = lakesql_server.ROOT
sys.path[:0] = [os.path.join(ROOT, "testdata", "oracle"), os.path.join(ROOT, "bench"), os.path.join(ROOT, "testdata", "suites", "samples", "hr")]
sys.dont_write_bytecode = True
import oracle  # noqa: E402

CLIENTS = os.environ.get("LAKESQL_CLIENTS_CACHE") or os.path.expanduser("~/.cache/lakesql-clients")
IN_CI = os.environ.get("CI", "") == "true"
SF = {"tiny": 0.01, "small": 0.1}


class Wire:
    def __init__(self, port):
        self.port = port

    def client(self, sql, db=None):
        """Runs SQL in the mariadb command line client, as a user does."""
        argv = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "--local-infile=1", "--default-character-set=utf8mb4", "-N", "-B"]
        p = subprocess.run(argv + ([db] if db else []), input=sql, text=True, capture_output=True)
        if p.returncode:
            raise RuntimeError("mariadb: " + p.stderr.strip() + " | " + sql[:300])
        return p.stdout

    def checksums(self, db, table):
        import pymysql
        import pymysql.cursors
        c = pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=db, charset="utf8mb4", cursorclass=pymysql.cursors.SSCursor)
        try:
            k = c.cursor()
            k.execute("SET time_zone = '+00:00'")
            k.execute("SELECT * FROM `%s`" % table)
            names = [d[0] for d in k.description]
            rows, sums = 0, {n: [0, 0] for n in names}
            while True:
                part = k.fetchmany(10000)
                if not part:
                    break
                rows += len(part)
                for i, n in enumerate(names):
                    oracle.add_column(sums, n, [micros(r[i]) for r in part])
            k.close()
            return {"count": rows, "columns": sums}
        finally:
            c.close()


def micros(v):
    """TIME is stored as microseconds."""
    import datetime
    return v // datetime.timedelta(microseconds=1) if isinstance(v, datetime.timedelta) else v


class Engines:
    """One oracle process for all questions: starting Spark takes longer than a read."""

    def __init__(self):
        py = os.path.join(oracle.CACHE, "venv", "bin", "python")
        self.log = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([py, os.path.join(ROOT, "testdata", "oracle", "oracle.py"), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def checksums(self, engine, folder):
        self.p.stdin.write(json.dumps({"op": "checksum", "engine": engine, "table": folder}) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError("the oracle ended: " + self.log.read()[-2000:])
        return json.loads(line)

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def text(v):
    if v is None:
        return "\\N"
    return str(v).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\0", "\\0")


def untext(s):
    if s == "\\N":
        return None
    return re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}.get(m.group(1), m.group(1)), s, flags=re.S)


TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def summed(rows, sums):
    """Passes rows of text on and adds them up as the engines do, by position."""
    for r in rows:
        sums["count"] += 1
        for i, v in enumerate(r):
            if isinstance(v, str) and TIME.fullmatch(v):
                v += ".000000"
            oracle.add_column(sums["columns"], i, [v])
        yield r


def statements(path):
    for st in open(path, encoding="utf-8").read().split(";\n"):
        st = "\n".join(x for x in st.split("\n") if not x.startswith("--")).strip()
        if st:
            yield st


def load_hr(w, tmp):
    import gen
    data = gen.make(3000)
    return load_samples(w, tmp, "hr", os.path.join(ROOT, "testdata", "suites", "samples", "hr", "schema.sql"), data.__getitem__)


def load_sakila(w, tmp):
    folder = os.path.join(os.environ.get("LAKESQL_SUITES", ""), "samples", "sakila")

    def rows(t):
        with gzip.open(os.path.join(folder, "data", t + ".tsv.gz"), "rt", encoding="utf-8", newline="\n") as f:
            for line in f:
                yield [untext(x) for x in line.rstrip("\n").split("\t")]
    return load_samples(w, tmp, "sakila", os.path.join(folder, "schema.sql"), rows)


def load_samples(w, tmp, db, schema, rows):
    w.client("DROP DATABASE IF EXISTS {0}; CREATE DATABASE {0}".format(db))
    w.client(";\n".join(statements(schema)), db)
    loaded = {}
    for t in [st.split()[2] for st in statements(schema) if st.upper().startswith("CREATE TABLE")]:
        path, loaded[t] = os.path.join(tmp, "%s.%s.tsv" % (db, t)), {"count": 0, "columns": {}}
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            out.writelines("\t".join(map(text, r)) + "\n" for r in summed(rows(t), loaded[t]))
        w.client("SET time_zone = '+00:00'; LOAD DATA LOCAL INFILE '%s' INTO TABLE %s" % (path, t), db)
        os.remove(path)
    return loaded


def load_tpch(w, size):
    import engines
    data = os.path.join(CLIENTS, "tpch")
    folder = os.path.join(data, "tpch-%s" % SF[size])
    if not os.path.exists(os.path.join(folder, "tpch.json")):
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "bench.py"), "gen", "--data", data, "--size", size], check=True)
    w.client("DROP DATABASE IF EXISTS tpch; CREATE DATABASE tpch")
    loaded = {}
    for t, (columns, key, _) in engines.TPCH.items():
        path, loaded[t] = os.path.join(folder, t + ".tbl"), {"count": 0, "columns": {}}
        w.client("CREATE TABLE %s (%s, PRIMARY KEY (%s)); LOAD DATA LOCAL INFILE '%s' INTO TABLE %s FIELDS TERMINATED BY '|' LINES TERMINATED BY '\\n'"
                 % (t, columns, key, path, t), "tpch")
        with open(path, encoding="utf-8", newline="\n") as f:
            for _ in summed((line.rstrip("\n").split("|") for line in f), loaded[t]):
                pass
    return loaded


def compare(want, got):
    if not got.get("ok", True):
        return got["error"].replace("\n", " ")[:100]
    if got["count"] != want["count"]:
        return "%d rows" % got["count"]
    bad = sorted(n for n in set(want["columns"]) | set(got["columns"]) if want["columns"].get(n) != got["columns"].get(n))
    return "columns differ: " + ", ".join(bad) if bad else "equal"


def check(w, data, size, databases, engines):
    bad, lines = 0, []
    asked = Engines() if engines else None
    with tempfile.TemporaryDirectory(prefix="lakesql-load-") as tmp:
        for db in databases:
            if db == "sakila" and not os.path.isdir(os.path.join(os.environ.get("LAKESQL_SUITES", ""), "samples", "sakila")):
                print("sakila: NOT RUN: LAKESQL_SUITES has no samples/sakila", flush=True)
                bad += IN_CI
                continue
            t0 = time.monotonic()
            loaded = load_tpch(w, size) if db == "tpch" else {"hr": load_hr, "sakila": load_sakila}[db](w, tmp)
            w.client("FLUSH TABLES", db)
            print("%s: %d tables loaded in %.1f s" % (db, len(loaded), time.monotonic() - t0), flush=True)
            for t, source in loaded.items():
                have = w.checksums(db, t)
                want = {"count": source["count"], "columns": dict(zip(have["columns"], source["columns"].values()))}
                count = int(w.client("SELECT COUNT(*) FROM `%s`" % t, db))
                verdicts = [compare(want, have) if count == have["count"] else "COUNT(*) gives %d" % count]
                verdicts += [compare(want, asked.checksums(e, os.path.join(data, "warehouse", db, t))) for e in engines]
                bad += sum(v != "equal" for v in verdicts)
                lines.append(["%s.%s" % (db, t), str(want["count"]), str(len(want["columns"]))] + verdicts)
    if asked:
        asked.close()
    table([["table", "rows", "columns", "lakesql"] + engines] + lines)
    return bad


def table(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for n, r in enumerate(rows):
        print("| " + " | ".join(x.ljust(w) for x, w in zip(r, widths)) + " |")
        if n == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def main():
    lakesql_server.end_on_sigterm()
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--size", choices=SF, default="small")
    ap.add_argument("--databases", default="hr,sakila,tpch")
    ap.add_argument("--engines", default="spark,hudi-rs", help="empty for none")
    ap.add_argument("--port", type=int)
    ap.add_argument("--data")
    a = ap.parse_args()
    engines = [e for e in a.engines.split(",") if e]
    if engines and not os.path.exists(os.path.join(oracle.CACHE, "venv", "bin", "python")):
        print("NOT RUN in other engines: testdata/oracle/setup.sh has not installed them", flush=True)
        if IN_CI:
            sys.exit(1)
        engines = []
    if a.port:
        if not a.data:
            ap.error("--port needs --data, the server's data folder")
        bad = check(Wire(a.port), a.data, a.size, a.databases.split(","), engines)
    else:
        with tempfile.TemporaryDirectory(prefix="lakesql-load-server-") as tmp, lakesql_server.Server(os.path.join(tmp, "data")) as s:
            bad = check(Wire(s.port), s.data, a.size, a.databases.split(","), engines)
    print("load check: %s" % ("FAILED" if bad else "all equal"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
