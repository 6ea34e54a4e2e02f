package sqlplan

import (
	"strings"
	"testing"
)

// With lakesql_commit_mode = instant a commit is a completed instant when it is acknowledged. D9
func TestCommitMode(t *testing.T) {
	e := newTestEngine(t)
	s := e.session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)")
	timeline := func() (n int) {
		tab, _ := e.catalog.Table("d", "t")
		names, err := e.fs.List(tab.Location() + "/.hoodie")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "commit") {
				n++
			}
		}
		return n
	}
	s.exec("INSERT INTO t VALUES (1)")
	if n := timeline(); n != 0 {
		t.Fatalf("%d instants of a buffered commit", n)
	}
	s.exec("SET lakesql_commit_mode = 'instant'", "INSERT INTO t VALUES (2)")
	if n := timeline(); n != 1 {
		t.Fatalf("%d instants of an instant commit", n)
	}
	s.want("SELECT @@lakesql_commit_mode", "instant")
	s.fails("SET lakesql_commit_mode = 'sometimes'", "")
	s.want("SELECT * FROM t ORDER BY id", "1", "2")
}

func TestInsertReturning(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT DEFAULT 7)")
	s.want("INSERT INTO t (v) VALUES (1), (DEFAULT) RETURNING id, v", "1|1", "2|7")
	s.want("SELECT COUNT(*) FROM t", "2")
	s.fails("INSERT INTO t VALUES (3, 3), (1, 1) RETURNING id", "1062")
	s.want("SELECT COUNT(*) FROM t", "2")
	s.exec("BEGIN")
	s.want("INSERT INTO t (v) VALUES (5) RETURNING v", "5")
	s.exec("ROLLBACK")
	s.want("SELECT COUNT(*) FROM t", "2")
}

// A statement reads the table that it changes as it was, whatever plan the front end chooses.
func TestOwnWrites(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v))", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
	s.exec("UPDATE t SET v = v + 1 WHERE v < 100")
	s.want("SELECT * FROM t ORDER BY id", "1|2", "2|3", "3|4")
	s.exec("INSERT INTO t SELECT id + 10, v FROM t")
	s.want("SELECT COUNT(*) FROM t", "6")
	s.exec("UPDATE t a JOIN t b ON a.id = b.id - 10 SET a.v = b.v * 10, b.v = 0")
	s.want("SELECT * FROM t ORDER BY id", "1|20", "2|30", "3|40", "11|0", "12|0", "13|0")
	s.exec("DELETE FROM t WHERE v IN (SELECT v FROM (SELECT v FROM t WHERE v = 0) q)")
	s.exec("UPDATE t SET id = id + 1 ORDER BY id DESC")
	s.want("SELECT * FROM t ORDER BY id", "2|20", "3|30", "4|40")
	s.exec("BEGIN", "UPDATE t SET v = 1", "SAVEPOINT a", "DELETE FROM t", "ROLLBACK TO a")
	s.want("SELECT SUM(v) FROM t", "3")
	s.fails("INSERT INTO t VALUES (9, 9), (2, 2)", "1062")
	s.want("SELECT COUNT(*) FROM t", "3")
	s.exec("INSERT IGNORE INTO t VALUES (9, 9), (2, 2), (10, 10)")
	s.want("SELECT COUNT(*) FROM t", "5")
	s.exec("COMMIT")
	s.want("SELECT COUNT(*) FROM t", "5")
}
