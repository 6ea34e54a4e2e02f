package sqlplan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// D10: the past by time, in joins, views and prepared statements, and two times of one table in one statement.
func TestAsOf(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
	now := func() string { return strings.TrimSpace(s.table("SELECT NOW(6)")) }
	created := now()
	s.exec("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
	first := now()
	s.exec("UPDATE t SET v = 'c' WHERE id = 1")
	second := now()
	s.exec("DELETE FROM t WHERE id = 2")
	for _, flushed := range []bool{false, true} {
		if flushed {
			s.exec("FLUSH TABLES")
		}
		s.want("SELECT * FROM t AS OF '" + created + "' ORDER BY id")
		s.want("SELECT * FROM t AS OF '"+first+"' ORDER BY id", "1|a", "2|b")
		s.want("SELECT * FROM t TIMESTAMP AS OF '"+second+"' ORDER BY id", "1|c", "2|b")
		s.want("SELECT * FROM t FOR SYSTEM_TIME AS OF '"+first+"' x WHERE x.id = 1", "1|a")
		s.want("SELECT * FROM t AS OF NOW(6)", "1|c")
		s.want(fmt.Sprintf("SELECT a.v, b.v FROM t AS OF '%s' a JOIN t AS OF '%s' b ON a.id = b.id ORDER BY a.id", first, second), "a|c", "b|b")
		s.want(fmt.Sprintf("SELECT b.v FROM t a JOIN t AS OF '%s' b ON a.id = b.id", first), "a")
		s.want(fmt.Sprintf("SELECT COUNT(*) FROM t AS OF '%s'", first), "2")
	}
	s.exec("CREATE VIEW w AS SELECT v FROM t")
	s.want("SELECT * FROM w AS OF '"+first+"' ORDER BY v", "a", "b")
	s.exec("PREPARE p FROM 'SELECT v FROM t AS OF ? ORDER BY id'", "SET @at = '"+first+"'")
	s.want("EXECUTE p USING @at", "a", "b")
	s.exec("SET time_zone = '+02:00'")
	s.want("SELECT COUNT(*) FROM t AS OF NOW(6)", "1")
	s.exec("SET time_zone = '+00:00'")
	s.fails("SELECT * FROM t AS OF '2001-01-01'", "1690")
	s.fails("SELECT * FROM t AS OF 'yesterday'", "Incorrect AS OF value")
	s.fails("UPDATE t AS OF '"+first+"' SET v = 'x'", "")
}

// A time lies after what was acknowledged before it and before what comes after. D11
func TestClock(t *testing.T) {
	s := newTestEngine(t).session()
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)")
	for i := range 50 {
		s.exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		at := strings.TrimSpace(s.table("SELECT NOW(6)"))
		s.exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", 1000+i))
		s.want("SELECT COUNT(*) FROM t AS OF '"+at+"'", fmt.Sprint(2*i+1))
	}
}

func TestReopen(t *testing.T) {
	fs := vfs.NewMem()
	t.Run("write", func(t *testing.T) {
		s := openTestEngine(t, fs).session()
		s.exec("CREATE TABLE p (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(10) DEFAULT 'x' COMMENT 'c', CHECK (id > 0), KEY k (v)) COMMENT 'hello'",
			"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY fk (p) REFERENCES p (id) ON DELETE CASCADE)",
			"INSERT INTO p (v) VALUES ('a'), (DEFAULT)", "INSERT INTO c VALUES (1, 1), (2, 2)",
			"CREATE VIEW w AS SELECT v FROM p", "CREATE TRIGGER g BEFORE INSERT ON p FOR EACH ROW SET NEW.v = UPPER(NEW.v)",
			"CREATE PROCEDURE q() SELECT COUNT(*) FROM p",
			"CREATE DATABASE e COLLATE utf8mb4_0900_bin", "CREATE USER u IDENTIFIED BY 'pw'", "GRANT SELECT ON d.* TO u")
	})
	t.Run("read", func(t *testing.T) {
		s := openTestEngine(t, fs).session()
		s.want("SELECT * FROM p ORDER BY id", "1|a", "2|x")
		s.want("SELECT * FROM w ORDER BY v", "a", "x")
		s.exec("INSERT INTO p (v) VALUES ('abc')")
		s.want("SELECT * FROM p WHERE v = 'ABC'", "3|ABC")
		s.want("CALL q()", "3")
		s.fails("INSERT INTO p VALUES (-1, 'x')", "Check constraint")
		s.fails("INSERT INTO c VALUES (3, 77)", "1452")
		s.exec("DELETE FROM p WHERE id = 1")
		s.want("SELECT * FROM c", "2|2")
		s.want("SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'e'", "utf8mb4_0900_bin")
		s.want("SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_NAME = 'p'", "hello")
		s.want("SELECT COUNT(*) FROM mysql.user WHERE User = 'u'", "1")
	})
}
