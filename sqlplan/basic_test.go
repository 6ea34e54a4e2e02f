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
}

// D19: meta columns by name, and not in SELECT *.
func TestMetaColumns(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
	s.want("SELECT * FROM t ORDER BY id", "1|a", "2|b")
	s.want("SELECT t.*, _hoodie_record_key FROM t WHERE id = 2", "2|b|2")
	s.want("SELECT _HOODIE_record_key AS k FROM t ORDER BY _hoodie_record_key DESC", "2", "1")
	s.want("SELECT COUNT(*) FROM t WHERE _hoodie_commit_time > '2' AND _hoodie_file_name <> ''", "2")
	s.want("SELECT _hoodie_record_key, x FROM (SELECT v x, _hoodie_record_key FROM t) q ORDER BY 1", "1|a", "2|b")
	s.want("SELECT * FROM (SELECT v x, _hoodie_record_key FROM t) q ORDER BY 1", "a|1", "b|2")
	s.want("WITH c AS (SELECT _hoodie_record_key FROM t) SELECT _hoodie_record_key FROM c ORDER BY 1", "1", "2")
	s.exec("CREATE VIEW w AS SELECT v, _hoodie_record_key FROM t")
	s.want("SELECT _hoodie_record_key FROM w ORDER BY 1", "1", "2")
	s.want("SELECT * FROM w ORDER BY 1", "a|1", "b|2")
	s.exec("UPDATE t SET v = 'c' WHERE _hoodie_record_key = '2'", "DELETE FROM t WHERE _hoodie_record_key = '1'")
	s.want("SELECT * FROM t", "2|c")
	s.exec("PREPARE p FROM 'SELECT _hoodie_record_key FROM t WHERE id = ?'", "SET @i = 2")
	s.want("EXECUTE p USING @i", "2")
	s.exec("CREATE TABLE u AS SELECT v, _hoodie_record_key k FROM t")
	s.want("SELECT * FROM u", "c|2")
	s.exec("INSERT INTO u SELECT v, _hoodie_record_key FROM t")
	s.want("SELECT COUNT(*) FROM u", "2")
	s.fails("UPDATE t SET _hoodie_file_name = 'x'", "3105")
	s.fails("INSERT INTO t (id, _hoodie_record_key) VALUES (7, 'x')", "3105")
	s.fails("CREATE TABLE b (_hoodie_record_key INT)", "1166")
}

func TestCollation(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), u VARCHAR(20), UNIQUE KEY (u))", "INSERT INTO t VALUES (1, 'Ab', 'Ab')")
	s.want("SELECT id FROM t WHERE v = 'aB'", "1")
	s.want("SELECT id FROM t WHERE u = 'aB'", "1")
	s.want("SELECT id FROM t WHERE v LIKE 'aB'", "1")
	s.want("SELECT id FROM t WHERE v IN ('aB', 'x')", "1")
	s.want("SELECT id FROM t WHERE u IN ('aB', 'x')", "1")
	s.want("SELECT 'a' = 'A'", "1")
	s.fails("INSERT INTO t VALUES (2, 'x', 'AB')", "1062 duplicate unique key given: Duplicate entry 'Ab' for key 't.u'")
	s.want("SELECT @@collation_connection, @@collation_database", "utf8mb4_0900_ai_ci|utf8mb4_0900_ai_ci")
}
