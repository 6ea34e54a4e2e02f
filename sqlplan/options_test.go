package sqlplan

import (
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/sql/types"
)

// D15: both forms of table options, in SHOW CREATE TABLE and in ALTER TABLE.
func TestTableOptions(t *testing.T) {
	s := newTestEngine(t).session()
	show := func(table string) string {
		t.Helper()
		return s.table("SHOW CREATE TABLE " + table)
	}
	s.exec(`CREATE TABLE a (id INT PRIMARY KEY, dt DATE, ts INT NOT NULL) ENGINE_ATTRIBUTE='{"type":"cow","partition":["DT"],"ordering":["ts"],"bin.max_age":"5s"}'`,
		"CREATE TABLE b (id INT, dt DATE, ts INT NOT NULL) USING hudi PARTITIONED BY (dt) TBLPROPERTIES (type='cow', primaryKey='id', preCombineField='ts')")
	for _, name := range []string{"a", "b"} {
		got := show(name)
		for _, part := range []string{"PRIMARY KEY (`id`)", `"type":"cow"`, `"partition":["dt"]`, `"ordering":["ts"]`, "/*!99999 ENGINE_ATTRIBUTE='"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s lacks %s", got, part)
			}
		}
	}
	s.exec("INSERT INTO a VALUES (1, '2026-01-01', 5)", "FLUSH TABLES")
	s.want("SELECT _hoodie_partition_path FROM a", "dt=2026-01-01")
	// What SHOW CREATE TABLE prints makes an equal table.
	text := strings.SplitN(show("a"), "|", 2)[1]
	s.exec(strings.Replace(text, "`a`", "`a2`", 1))
	if got, want := show("a2"), strings.ReplaceAll(show("a"), "`a`", "`a2`"); strings.SplitN(got, "|", 2)[1] != strings.SplitN(want, "|", 2)[1] {
		t.Errorf("%s\nwant %s", got, want)
	}
	s.exec("CREATE TABLE a3 LIKE a")
	if !strings.Contains(show("a3"), `"ordering":["ts"]`) {
		t.Error(show("a3"))
	}
	s.exec(`ALTER TABLE a ENGINE_ATTRIBUTE='{"bin.max_age":"10s"}'`)
	if !strings.Contains(show("a"), `"bin.max_age":"10s"`) {
		t.Error(show("a"))
	}
	s.want("SELECT * FROM a", "1|2026-01-01|5")
	s.fails(`CREATE TABLE x (id INT PRIMARY KEY) ENGINE_ATTRIBUTE='{"colour":"red"}'`, "colour")
	s.fails(`CREATE TABLE x (id INT PRIMARY KEY, b INT) ENGINE_ATTRIBUTE='{"key":["b"]}'`, "contradicts the PRIMARY KEY")
	s.fails(`CREATE TABLE x (id INT PRIMARY KEY) ENGINE_ATTRIBUTE='{"partition":["dt"]}'`, "dt")
	s.fails(`CREATE TABLE x (id INT) ENGINE_ATTRIBUTE='{"merge_mode":"event_time"}'`, "event_time")
	s.fails(`CREATE TABLE x (id INT PRIMARY KEY) ENGINE_ATTRIBUTE='{"global":false}'`, "global")
	s.fails(`ALTER TABLE a ENGINE_ATTRIBUTE='{"key":["ts"]}'`, "contradicts")
	s.fails("CREATE TABLE x (id INT PRIMARY KEY) PARTITION BY HASH(id)", "partition")
}

// D14: in an event-time table late upserts are ignored and counted, a late update is an error.
func TestEventTime(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec(`CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10), ts INT) ENGINE_ATTRIBUTE='{"ordering":["ts"]}'`, "INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 10)")
	for _, flushed := range []bool{false, true} {
		if flushed {
			s.exec("FLUSH TABLES")
		}
		for _, q := range []string{
			"INSERT INTO t VALUES (1, 'late', 9), (2, 'late', 8) ON DUPLICATE KEY UPDATE v = VALUES(v), ts = VALUES(ts)",
			"REPLACE INTO t VALUES (1, 'late', 9), (2, 'late', 8)",
		} {
			_, rows, err := s.run(q)
			if err != nil || len(rows) != 1 || types.GetOkResult(rows[0]).RowsAffected != 0 {
				t.Fatal(q, rows, err)
			}
			s.want("SHOW WARNINGS", "Warning|3819|2 rows were ignored: the table holds newer versions of them")
		}
		s.want("SELECT * FROM t WHERE id = 1", "1|a|10")
		s.fails("UPDATE t SET ts = 9 WHERE id = 1", "3819")
		s.fails("INSERT INTO t VALUES (3, 'x', NULL)", "1048")
		s.want("SELECT * FROM t ORDER BY id", "1|a|10", "2|b|10")
	}
	s.exec("REPLACE INTO t VALUES (1, 'same', 10)")
	s.want("SELECT * FROM t WHERE id = 1", "1|same|10")
	s.exec("INSERT INTO t VALUES (1, 'new', 11) ON DUPLICATE KEY UPDATE v = VALUES(v), ts = VALUES(ts)")
	s.want("SELECT * FROM t WHERE id = 1", "1|new|11")
	s.exec("DELETE FROM t WHERE id = 1")
	s.want("SELECT COUNT(*) FROM t", "1")
}

func TestTemporaryTables(t *testing.T) {
	e := newTestEngine(t)
	s, other := e.session(), e.session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v VARCHAR(5), KEY (v))",
		"INSERT INTO t VALUES (7, 'x'), (8, 'y')", "UPDATE t SET v = 'z' WHERE id = 8")
	s.want("SELECT * FROM t ORDER BY id", "7|x", "8|z")
	s.want("SELECT id FROM t WHERE v = 'Z'", "8")
	other.want("SELECT * FROM t", "1")
	s.exec("BEGIN", "DELETE FROM t", "ROLLBACK")
	s.want("SELECT COUNT(*) FROM t", "2")
	s.exec("DROP TEMPORARY TABLE t")
	s.want("SELECT * FROM t", "1")
	s.exec("CREATE TEMPORARY TABLE u AS SELECT * FROM t")
	s.want("SELECT * FROM u", "1")
	other.fails("SELECT * FROM u", "1146")
	s.want("SHOW TABLES", "t")
	s.session.SessionEnd()
	s.fails("SELECT * FROM u", "1146")
}

// A read-optimised query sees what base files hold.
func TestHudiQuery(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5))", "INSERT INTO t VALUES (1, 'a')")
	s.want("SELECT COUNT(*) FROM hudi_query('t', 'read_optimized') q", "0")
	s.want("SELECT * FROM hudi_query('t', 'snapshot') q", "1|a")
	s.exec("FLUSH TABLES", "UPDATE t SET v = 'b'", "FLUSH TABLES")
	s.want("SELECT * FROM hudi_query('d.t', 'read_optimized') q", "1|a")
	s.want("SELECT * FROM hudi_query('t', 'snapshot') q WHERE q.id = 1", "1|b")
	s.fails("SELECT * FROM hudi_query('t', 'other') q", "neither")
	s.fails("SELECT * FROM hudi_query('nowhere', 'snapshot') q", "1146")
}

// Incremental reads give the rows that instants of a range wrote, after a flush of what waits.
func TestHudiTableChanges(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5)) ENGINE_ATTRIBUTE='{\"type\":\"mor\"}'", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')", "FLUSH TABLES")
	last := func() string { return strings.TrimSpace(s.table("SELECT MAX(_hoodie_commit_time) FROM t")) }
	first := last()
	s.exec("UPDATE t SET v = 'x' WHERE id = 2", "DELETE FROM t WHERE id = 3")
	s.want("SELECT * FROM hudi_table_changes('t', 'latest_state', '"+first+"') c", "2|x")
	second := last()
	s.exec("INSERT INTO t VALUES (4, 'd')")
	s.want("SELECT c.v FROM hudi_table_changes('d.t', 'LATEST_STATE', '"+second+"') c", "d")
	s.want("SELECT * FROM hudi_table_changes('t', 'latest_state', '"+first+"', '"+second+"') c", "2|x")
	s.want("SELECT id FROM hudi_table_changes('t', 'latest_state', 'earliest', '"+first+"') c ORDER BY id", "1", "2", "3")
	s.want("SELECT COUNT(*) FROM hudi_table_changes('t', 'latest_state', '0') c", "3")
	s.want("SELECT c.id, t.v FROM hudi_table_changes('t', 'latest_state', '"+first+"') c JOIN t ON t.id = c.id ORDER BY 1", "2|x", "4|d")
	s.want("SELECT _hoodie_commit_time = '"+second+"' FROM hudi_table_changes('t', 'latest_state', '"+first+"', '"+second+"') c", "1")
	s.fails("SELECT * FROM hudi_table_changes('t', 'cdc', '0') c", "1235")
	s.fails("SELECT * FROM hudi_table_changes('t', 'other', '0') c", "latest_state")
	s.fails("SELECT * FROM hudi_table_changes('t', 'latest_state', 'yesterday') c", "yesterday")
	s.fails("SELECT * FROM hudi_table_changes('t', 'latest_state') c", "3 to 4")
}
