package sqlplan

import "testing"

func TestSlice(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), n BIGINT DEFAULT 5, KEY k (name))",
		"INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)",
		"INSERT INTO t (id, name) VALUES (3, 'three')")
	s.want("SELECT * FROM t ORDER BY id", "1|one|1", "2|two|2", "3|three|5")
	s.want("SELECT name FROM t WHERE id = 2", "two")
	s.want("SELECT id FROM t WHERE name = 'THREE'", "3")
	s.exec("UPDATE t SET n = n + 10 WHERE id < 3", "DELETE FROM t WHERE id = 2")
	s.want("SELECT * FROM t ORDER BY id", "1|one|11", "3|three|5")
	s.fails("INSERT INTO t VALUES (1, 'x', 0)", "1062")
	s.exec("BEGIN", "INSERT INTO t VALUES (9, 'nine', 9)")
	s.want("SELECT COUNT(*) FROM t", "3")
	s.exec("ROLLBACK")
	s.want("SELECT COUNT(*) FROM t", "2")
	s.exec("FLUSH TABLES")
	s.want("SELECT * FROM t ORDER BY id", "1|one|11", "3|three|5")
	s.want("SELECT t.*, _hoodie_record_key FROM t WHERE id = 3", "3|three|5|3")
}
