#!/usr/bin/env python3
"""make suites: public and own cases against a running lakesql, through stock clients.

Starts bin/lakesql on a fresh folder for each part, runs the part, stops the server and checks that it stopped cleanly.
Parts (--only NAME,NAME):
  bugs       testdata/suites/bugs: cases from users' reports of such systems
  hr         testdata/suites/samples: a personnel database, made on the fly, with its queries
  sakila     the Sakila sample database with its queries                      } from $LAKESQL_SUITES, skipped with
  slt        the public sqllogictest cases (MAXREC: records a file)           } a warning without it, an error in CI
  load       load_check.py: samples and TPC-H, equal in lakesql, Spark + Hudi and hudi-rs (SF: tiny or small)
Environment: MAXREC (default 120; 0: all), SF (default tiny), LAKESQL_SUITES, CI.
"""
import argparse, os, subprocess, sys, tempfile, time

import lakesql_server

ROOT = lakesql_server.ROOT
SUITES = os.path.join(ROOT, "testdata", "suites")
MORE = os.environ.get("LAKESQL_SUITES", "")
MAXREC = os.environ.pop("MAXREC", "") or "120"  # the runner reads it too, for whatever it is given
IN_CI = os.environ.get("CI", "") == "true"


def run(server, argv, **env):
    e = {**os.environ, **env, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, argv[0], "127.0.0.1", str(server.port), "root", ""] + argv[1:], env=e).returncode == 0


def bugs(s):
    return run(s, [os.path.join(SUITES, "bugs", "run_cases.py")], CRASH_CMD=s.crash_command(),
               NOT_YET=os.path.join(SUITES, "bugs", "not_yet.txt"))


def hr(s):
    samples, slt = os.path.join(SUITES, "samples"), os.path.join(SUITES, "sqllogictest", "run_slt.py")
    return run(s, [os.path.join(samples, "load.py"), "hr"]) and run(s, [slt, os.path.join(samples, "hr", "queries.test")], USEDB="s_hr")


def sakila(s):
    slt = os.path.join(SUITES, "sqllogictest", "run_slt.py")
    return (run(s, [os.path.join(SUITES, "samples", "load.py"), "sakila"], SAMPLES=os.path.join(MORE, "samples"))
            and run(s, [slt, os.path.join(MORE, "samples", "sakila", "queries.test")], USEDB="s_sakila"))


def slt(s):
    env = {"MAXREC": MAXREC} if MAXREC != "0" else {}
    return run(s, [os.path.join(SUITES, "sqllogictest", "run_slt.py"), os.path.join(MORE, "sqllogictest", "cases")], **env)


def load(s):
    argv = [sys.executable, os.path.join(ROOT, "scripts", "load_check.py"), "--port", str(s.port), "--data", s.data, "--size", os.environ.get("SF") or "tiny"]
    return subprocess.run(argv).returncode == 0


PARTS = {"bugs": bugs, "hr": hr, "sakila": sakila, "slt": slt, "load": load}
OUTSIDE = {"sakila": "samples/sakila", "slt": "sqllogictest/cases"}  # below LAKESQL_SUITES


def main():
    lakesql_server.end_on_sigterm()
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only", default=",".join(PARTS))
    a = ap.parse_args()
    good = bad = skipped = 0
    for name in a.only.split(","):
        t0 = time.monotonic()
        if name in OUTSIDE and not (MORE and os.path.isdir(os.path.join(MORE, OUTSIDE[name]))):
            print("== %s: NOT RUN: no folder %s below LAKESQL_SUITES (%s)" % (name, OUTSIDE[name], MORE or "not set"), flush=True)
            bad, skipped = bad + IN_CI, skipped + (not IN_CI)
            continue
        print("== %s" % name, flush=True)
        ok = False
        with tempfile.TemporaryDirectory(prefix="lakesql-suites-") as tmp:
            s = lakesql_server.Server(os.path.join(tmp, "data"))
            try:
                s.start()
                ok = PARTS[name](s)
                if not s.stop():
                    ok = False
                    print("the server did not stop cleanly")
            except RuntimeError as e:
                print(e)
            finally:
                s.kill()
            if not ok:
                print("-- end of the server's log\n" + s.tail())
        good, bad = good + ok, bad + (not ok)
        print("== %s: %s, %.0f s" % (name, "passed" if ok else "FAILED", time.monotonic() - t0), flush=True)
    print("suites: %d passed, %d failed, %d skipped" % (good, bad, skipped), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
