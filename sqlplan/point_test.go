package sqlplan

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// answer runs a statement as the server does and gives everything that a client sees of it.
func (s *testSession) answer(query string) string {
	ctx := s.e.NewContext(context.Background(), sql.WithSession(s.session), sql.WithQuery(query))
	s.session.CommandBegin()
	defer s.session.CommandEnd()
	var b strings.Builder
	ok := func(ok types.OkResult) {
		fmt.Fprintf(&b, "affected %d, id %d, %v\n", ok.RowsAffected, ok.InsertID, ok.Info)
	}
	columns := func(sch sql.Schema) {
		for _, c := range sch {
			fmt.Fprintf(&b, "column %s of %s.%s: %s, null %v, key %v, auto %v\n", c.Name, c.DatabaseSource, c.Source, c.Type, c.Nullable, c.PrimaryKey, c.AutoIncrement)
		}
	}
	cells := func(sch sql.Schema, row sql.Row) error {
		for i, v := range row {
			text := "NULL"
			if v != nil {
				cell, err := sch[i].Type.SQL(ctx, nil, v)
				if err != nil {
					return err
				}
				text = cell.String()
			}
			fmt.Fprintf(&b, "%T %s | ", v, text)
		}
		b.WriteByte('\n')
		return nil
	}
	err := func() error {
		if sh := s.e.Short(ctx, query, false, nil); sh != nil {
			out, done, err := sh.Run(ctx)
			switch {
			case err != nil:
				return err
			case done && out.Columns == nil:
				ok(out.OK)
				return nil
			case done:
				columns(out.Columns.Schema)
				if out.Row == nil {
					return nil
				}
				return cells(out.Columns.Schema, out.Row)
			}
		}
		stmt, _, _, err := s.e.SQL().Parser.Parse(ctx, query, false)
		if err != nil {
			return err
		}
		flags := &sql.QueryFlags{}
		flags.Set(sql.QFlagDeferProjections)
		sch, iter, _, err := s.e.QueryWithBindings(ctx, query, stmt, nil, flags)
		if err != nil {
			return err
		}
		if !types.IsOkResultSchema(sch) {
			columns(sch)
		}
		for {
			row, err := iter.Next(ctx)
			if err == io.EOF {
				return iter.Close(ctx)
			}
			if err != nil {
				iter.Close(ctx)
				return err
			}
			if types.IsOkResult(row) {
				ok(row[0].(types.OkResult))
			} else if err := cells(sch, row); err != nil {
				return err
			}
		}
	}()
	if err != nil {
		e := sql.CastSQLError(mysqlError(err))
		fmt.Fprintf(&b, "error %d %s: %s\n", e.Num, e.State, e.Message)
	}
	for _, w := range s.session.Warnings() {
		fmt.Fprintf(&b, "%s %d %s\n", w.Level, w.Code, w.Message)
	}
	info := s.session.GetLastQueryInfo()
	fmt.Fprintf(&b, "rows %d, found %d, in transaction %v\n", info.RowCount.Load(), info.FoundRows.Load(), ctx.GetTransaction() != nil)
	return b.String()
}

// Statements by key have the same answers whether the planner plans them or not.
func TestPointPlans(t *testing.T) {
	planned, direct := newTestEngine(t).session(), newTestEngine(t).session()
	planned.e.planAll = true
	both := func(q string) {
		t.Helper()
		want, got := planned.answer(q), direct.answer(q)
		if want != got {
			t.Fatalf("%s\nplanned:\n%s\nby itself:\n%s", q, want, got)
		}
	}
	for _, q := range []string{
		"CREATE TABLE t (id INT PRIMARY KEY, n TINYINT, u BIGINT UNSIGNED, name VARCHAR(5), d DECIMAL(6,2), at DATETIME, e ENUM('a','b'), x DOUBLE NOT NULL DEFAULT 1, bits BIT(3), j JSON)",
		"CREATE TABLE s (name VARCHAR(10), k SMALLINT UNSIGNED, v INT, PRIMARY KEY (name, k))",
		"CREATE TABLE ev (id INT PRIMARY KEY, v INT, seq BIGINT) ENGINE_ATTRIBUTE='{\"ordering\":\"seq\"}'",
		"CREATE TABLE tr (id INT PRIMARY KEY, v INT, w INT)",
		"CREATE TABLE ch (id INT PRIMARY KEY, v INT CHECK (v < 10))",
		"CREATE TABLE ge (id INT PRIMARY KEY, v INT, g INT AS (v + 1) STORED, h INT AS (v + 2))",
		"CREATE TABLE up (id INT PRIMARY KEY, v INT, at TIMESTAMP(6) DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP(6))",
		"CREATE TABLE pa (id INT PRIMARY KEY)", "CREATE TABLE chi (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES pa (id))",
		"CREATE TABLE uq (id INT PRIMARY KEY, u INT, UNIQUE KEY (u))",
		"CREATE TABLE hid (id INT PRIMARY KEY, v INT INVISIBLE)",
		"CREATE VIEW vw AS SELECT * FROM t",
		"INSERT INTO t VALUES (1, 1, 1, 'one', 1.5, '2020-01-01', 'a', 1, 1, '{}'), (2, 127, 18446744073709551615, 'two', -1.25, NULL, 'b', 2.5, 7, '[1]')",
		"INSERT INTO s VALUES ('ab', 1, 1), ('AC', 2, 2)", "INSERT INTO ev VALUES (1, 1, 10)", "INSERT INTO tr VALUES (1, 1, 1)", "INSERT INTO ch VALUES (1, 1)",
		"INSERT INTO ge (id, v) VALUES (1, 1)", "INSERT INTO up VALUES (1, 1, '2020-01-01')", "INSERT INTO pa VALUES (1), (2)", "INSERT INTO chi VALUES (1, 1)",
		"INSERT INTO uq VALUES (1, 1), (2, 2)", "INSERT INTO hid (id, v) VALUES (1, 1)",
	} {
		both(q)
	}
	fixed := []string{
		"SELECT * FROM t WHERE id = 1", "SELECT name, n FROM t WHERE id = 2", "SELECT name AS a, name, NAME FROM t WHERE id = 2", "SELECT t.name FROM t WHERE t.id = 2",
		"SELECT t.name x FROM d.t WHERE t.id = 2", "SELECT n + 1 FROM t WHERE id = 1", "SELECT * FROM t WHERE id = '1'", "SELECT * FROM t WHERE id = 1.0", "SELECT * FROM t WHERE id = 99999999999",
		"SELECT * FROM t WHERE 2 = id", "SELECT * FROM t WHERE id = 1 AND n = 1", "SELECT * FROM t WHERE id = 1 AND id = 2", "SELECT * FROM t WHERE id = NULL", "SELECT * FROM t WHERE id = -1",
		"SELECT * FROM T WHERE ID = 1", "SELECT nope FROM t WHERE id = 1", "SELECT * FROM nope WHERE id = 1", "SELECT * FROM nodb.t WHERE id = 1", "SELECT DISTINCT name FROM t WHERE id = 1",
		"SELECT * FROM t WHERE id = 1 LIMIT 0", "SELECT * FROM t x WHERE id = 1", "SELECT * FROM vw WHERE id = 1", "SELECT * FROM hid WHERE id = 1", "SELECT v FROM hid WHERE id = 1",
		"SELECT * FROM ge WHERE id = 1", "SELECT _hoodie_record_key FROM t WHERE id = 1", "SELECT * FROM t AS OF NOW(6) WHERE id = 1", "SELECT * FROM t WHERE id = 1 FOR UPDATE",
		"SELECT * FROM s WHERE name = 'AB' AND k = 1", "SELECT * FROM s WHERE k = 2 AND name = 'ac '", "SELECT * FROM s WHERE k = -2 AND name = 'ac'", "SELECT v FROM s WHERE name = 'ab'",
		"SELECT FOUND_ROWS(), ROW_COUNT()",
		"UPDATE t SET n = 5 WHERE id = 1", "UPDATE t SET n = 5 WHERE id = 1", "UPDATE t SET n = n + 1 WHERE id = 2", "UPDATE t SET n = 300 WHERE id = 1", "UPDATE t SET u = u - 1 WHERE id = 1",
		"UPDATE t SET u = u - 5 WHERE id = 1", "UPDATE t SET u = u + 1 WHERE id = 2", "UPDATE t SET name = 'toolong' WHERE id = 1", "UPDATE t SET name = 7, d = 12345.678 WHERE id = 1",
		"UPDATE t SET d = 99999.5 WHERE id = 1", "UPDATE t SET at = '2021-02-03 04:05:06.7' WHERE id = 1", "UPDATE t SET at = 'x' WHERE id = 1", "UPDATE t SET e = 'b' WHERE id = 1", "UPDATE t SET e = 'z' WHERE id = 1",
		"UPDATE t SET e = 2 WHERE id = 1", "UPDATE t SET x = NULL WHERE id = 1", "UPDATE t SET x = 'abc' WHERE id = 1", "UPDATE t SET x = 3 WHERE id = 1", "UPDATE t SET bits = 5 WHERE id = 1", "UPDATE t SET bits = 9 WHERE id = 1",
		"UPDATE t SET j = '{\"a\":1}' WHERE id = 1", "UPDATE t SET j = '{' WHERE id = 1", "UPDATE t SET name = NULL, n = NULL WHERE id = 2", "UPDATE t SET n = n + 1 WHERE id = 2", "UPDATE t SET id = 7 WHERE id = 2",
		"UPDATE t SET n = 1, n = 2 WHERE id = 1", "UPDATE t SET nope = 1 WHERE id = 1", "UPDATE t SET n = 1 WHERE id = 99", "UPDATE IGNORE t SET n = 300 WHERE id = 1", "UPDATE t SET n = DEFAULT WHERE id = 1",
		"UPDATE t SET n = 7, u = n + 1 WHERE id = 1", "SELECT * FROM t",
		"UPDATE s SET v = 9 WHERE name = 'Ab' AND k = 1", "UPDATE s SET name = 'q' WHERE name = 'ab' AND k = 1", "SELECT * FROM s",
		"UPDATE ev SET v = 2, seq = 11 WHERE id = 1", "UPDATE ev SET v = 3, seq = 5 WHERE id = 1", "SELECT * FROM ev",
		"UPDATE ch SET v = 99 WHERE id = 1", "UPDATE ge SET v = 5 WHERE id = 1", "SELECT * FROM ge", "UPDATE up SET v = 2 WHERE id = 1", "SELECT v, at > '2020-02-02' FROM up",
		"DELETE FROM pa WHERE id = 1", "DELETE FROM pa WHERE id = 2", "UPDATE chi SET p = 7 WHERE id = 1", "UPDATE uq SET u = 2 WHERE id = 1", "UPDATE uq SET u = 3 WHERE id = 1", "SELECT * FROM uq",
		"DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 1", "SELECT ROW_COUNT()", "DELETE FROM t WHERE id = '2'", "SELECT COUNT(*) FROM t",
		"BEGIN", "INSERT INTO tr VALUES (2, 2, 2)", "UPDATE tr SET v = v + 5 WHERE id = 2", "SAVEPOINT a", "DELETE FROM tr WHERE id = 2", "SELECT * FROM tr WHERE id = 2", "ROLLBACK TO a", "SELECT * FROM tr WHERE id = 2", "ROLLBACK",
		"SELECT * FROM tr", "SET autocommit = 0", "UPDATE tr SET v = 8 WHERE id = 1", "SELECT * FROM tr WHERE id = 1", "ROLLBACK", "SET autocommit = 1", "SELECT * FROM tr WHERE id = 1",
		"START TRANSACTION READ ONLY", "UPDATE tr SET v = 8 WHERE id = 1", "SELECT * FROM tr WHERE id = 1", "COMMIT",
		"SET SESSION TRANSACTION READ ONLY", "UPDATE tr SET v = 8 WHERE id = 1", "SET SESSION TRANSACTION READ WRITE",
		"CREATE TRIGGER g BEFORE UPDATE ON tr FOR EACH ROW SET NEW.w = NEW.w + 100", "UPDATE tr SET v = 3 WHERE id = 1", "SELECT * FROM tr", "DROP TRIGGER g", "UPDATE tr SET v = 4 WHERE id = 1", "SELECT * FROM tr",
		"SET sql_mode = ''", "INSERT INTO t (id) VALUES (1)", "UPDATE t SET n = 300, name = 'toolong', e = 'z', x = 'q' WHERE id = 1", "SHOW WARNINGS", "SELECT * FROM t", "UPDATE t SET x = NULL WHERE id = 1", "SELECT * FROM t",
		"ALTER TABLE tr ADD COLUMN z INT DEFAULT 7", "SELECT * FROM tr WHERE id = 1", "UPDATE tr SET z = z + 1 WHERE id = 1", "SELECT z FROM tr WHERE id = 1",
		"CREATE TEMPORARY TABLE tr (id INT PRIMARY KEY, v INT)", "INSERT INTO tr VALUES (1, 77)", "SELECT * FROM tr WHERE id = 1", "DROP TEMPORARY TABLE tr", "SELECT v FROM tr WHERE id = 1",
		"FLUSH TABLES", "SELECT * FROM tr WHERE id = 1", "UPDATE tr SET v = v - 1 WHERE id = 1", "SELECT v FROM tr WHERE id = 1", "DROP TABLE tr", "SELECT v FROM tr WHERE id = 1",
	}
	fixed = append(fixed,
		"CREATE TABLE i (id INT PRIMARY KEY, v INT DEFAULT 5, u INT UNSIGNED NOT NULL DEFAULT 1, s VARCHAR(4), e ENUM('a','b') NOT NULL, at DATETIME DEFAULT CURRENT_TIMESTAMP, UNIQUE KEY (s))",
		"CREATE TABLE au (id INT AUTO_INCREMENT PRIMARY KEY, v INT, UNIQUE KEY (v))", "CREATE TABLE de (id INT PRIMARY KEY, v INT DEFAULT 5, d DECIMAL(6,2) DEFAULT 1.5, s VARCHAR(10) NOT NULL DEFAULT 'it''s')",
		"INSERT INTO i VALUES (1, 1, 1, 'a', 'a', '2020-01-01')", "INSERT INTO i VALUES (1, 1, 1, 'b', 'a', '2020-01-01')", "INSERT INTO i VALUES (2, 1, 1, 'A', 'a', '2020-01-01')", "INSERT INTO i VALUES (2, 1, -1, 'b', 'a', NULL)",
		"INSERT INTO i (id, s, e, at) VALUES (3, NULL, 'b', NULL), (4, 'x', 'b', NULL)", "INSERT INTO i (id, s, e, at) VALUES (5, NULL, 'b', NULL), (4, 'y', 'b', NULL)", "INSERT INTO i (id, e) VALUES (6, 'z')",
		"INSERT INTO i (id, s, e, at) VALUES (5, 'toolong', 'b', NULL)", "INSERT INTO i (id, e) VALUES (7, NULL)", "INSERT INTO i (ID, id, e) VALUES (7, 7, 'a')", "INSERT INTO i (id, nope) VALUES (7, 7)", "INSERT INTO i VALUES (7)",
		"INSERT INTO i (id, s, e, at) VALUES (1, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE v = v + 10, s = VALUES(s)", "INSERT INTO i (id, s, e, at) VALUES (1, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE s = VALUES(s)",
		"INSERT INTO i (id, v, s, e, at) VALUES (1, 7, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE v = v + VALUES(v), u = VALUES(u)", "INSERT INTO i (id, v, s, e, at) VALUES (1, 7, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE u = u - 100",
		"INSERT INTO i (id, v, s, e, at) VALUES (8, 7, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE v = NULL", "INSERT INTO i (id, v, s, e, at) VALUES (8, 7, 'n', 'b', NULL) ON DUPLICATE KEY UPDATE s = 'x'",
		"INSERT INTO i (id, v, s, e, at) VALUES (9, 7, 'q', 'b', NULL) ON DUPLICATE KEY UPDATE s = 'x'", "INSERT INTO i (id, v, s, e, at) VALUES (9, 7, 'q', 'b', NULL) ON DUPLICATE KEY UPDATE id = 11",
		"REPLACE INTO i (id, s, e, at) VALUES (1, 'zz', 'a', NULL)", "REPLACE INTO i (id, s, e, at) VALUES (20, 'r', 'a', NULL), (20, 's', 'a', NULL)", "INSERT IGNORE INTO i (id, s, e, at) VALUES (1, 'x', 'a', NULL)",
		"SELECT id, v, u, s, e FROM i ORDER BY id", "SELECT ROW_COUNT()", "INSERT INTO de (id) VALUES (1)", "INSERT INTO de VALUES (2, DEFAULT, DEFAULT, DEFAULT)", "INSERT INTO de (id, s) VALUES (3, 'a\\'b\\\\'), (4, 'c''d')", "SELECT * FROM de",
		"INSERT INTO au (v) VALUES (1)", "INSERT INTO au (v) VALUES (1)", "INSERT INTO au (v) VALUES (2), (3)", "SELECT LAST_INSERT_ID()", "INSERT INTO au VALUES (0, 4)", "INSERT INTO au VALUES (NULL, 5)", "INSERT INTO au VALUES (20, 6)",
		"INSERT INTO au VALUES (DEFAULT, 7)", "INSERT INTO au VALUES (-5, 8)", "INSERT INTO au VALUES (NULL, 11), (40, 12)", "INSERT INTO au (v) VALUES (13) ON DUPLICATE KEY UPDATE v = 14",
		"SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", "INSERT INTO au VALUES (0, 15)", "SET sql_mode = DEFAULT", "SELECT * FROM au ORDER BY id",
		"BEGIN", "INSERT INTO de (id) VALUES (50)", "INSERT INTO de (id) VALUES (50)", "INSERT INTO de (id) VALUES (51), (50)", "SELECT id FROM de WHERE id = 51", "SELECT id FROM de WHERE id = 50", "ROLLBACK", "SELECT id FROM de WHERE id = 50",
		"INSERT INTO ge (id, v) VALUES (9, 1)", "INSERT INTO ch VALUES (9, 99)", "INSERT INTO chi VALUES (9, 99)", "INSERT INTO ev VALUES (1, 1, 12)", "REPLACE INTO ev VALUES (1, 1, 5)", "INSERT INTO vw (id) VALUES (9)", "INSERT INTO nope VALUES (1)",
		"SET NAMES latin1", "INSERT INTO de (id) VALUES (60)", "SET NAMES utf8mb4", "SET sql_select_limit = 0", "SELECT id FROM de WHERE id = 60", "SET sql_select_limit = DEFAULT",
		"SET lakesql_direct_write = 0", "INSERT INTO de (id) VALUES (61)", "SET lakesql_direct_write = 1", "SELECT id /* c */ FROM de WHERE id = 60", "SELECT id FROM de WHERE id = 60;", "SELECT id FROM de WHERE id = -60", "SELECT id FROM de WHERE id = 60-0",
		"CREATE TABLE ct (id INT PRIMARY KEY, v INT, a DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, b TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), c DATETIME(6) NOT NULL DEFAULT NOW(6))",
		"SET time_zone = '+05:00'", "INSERT INTO ct (id, v) VALUES (1, 1)", "SELECT a = b, a > '2026-01-01', ABS(TIMESTAMPDIFF(SECOND, a, NOW())) < 60, ABS(TIMESTAMPDIFF(SECOND, b, NOW())) < 60, ABS(TIMESTAMPDIFF(SECOND, c, NOW())) < 60, MICROSECOND(a), MICROSECOND(b) % 1000 FROM ct",
		"SET time_zone = '+00:00'", "SELECT ABS(TIMESTAMPDIFF(HOUR, b, NOW())), ABS(TIMESTAMPDIFF(HOUR, a, NOW())) FROM ct", "INSERT INTO ct VALUES (2, 2, '2001-01-01', '2001-01-01', '2001-01-01')", "UPDATE ct SET v = 2 WHERE id = 2", "SELECT * FROM ct WHERE id = 2",
		"UPDATE ct SET v = 3 WHERE id = 2", "SELECT v, ABS(TIMESTAMPDIFF(SECOND, a, NOW())) < 60, ABS(TIMESTAMPDIFF(SECOND, b, NOW())) < 60, c FROM ct WHERE id = 2", "UPDATE ct SET v = 4, a = '2002-01-01' WHERE id = 2", "SELECT a FROM ct WHERE id = 2",
		"INSERT INTO ct (id, v, c) VALUES (2, 9, '2003-01-01') ON DUPLICATE KEY UPDATE v = VALUES(v)", "SELECT v, ABS(TIMESTAMPDIFF(SECOND, a, NOW())) < 60, c FROM ct WHERE v = 9", "REPLACE INTO ct (id, v, c) VALUES (2, 9, '2003-01-01')",
		"SHOW STATUS LIKE 'Com_insert'", "SHOW STATUS LIKE 'Com_update'", "SHOW STATUS LIKE 'Com_select'", "SHOW STATUS LIKE 'Com_delete'", "SHOW STATUS LIKE 'Questions'",
	)
	for _, q := range fixed {
		both(q)
	}
	if n := direct.e.shortsTotal.Load(); n < 70 {
		t.Fatalf("only %d statements went the short way", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	literals := []string{"0", "1", "-1", "5", "127", "128", "255", "256", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551615", "1.5", "1e3", "''", "'a'", "'7'", "'1.5x'", "'2020-02-30'", "'12:30'", "NULL", "TRUE"}
	both("SET sql_mode = DEFAULT")
	both("SELECT LAST_INSERT_ID(0)")
	both("CREATE TABLE r (k BIGINT UNSIGNED PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c BIGINT, d DECIMAL(5,1), e VARCHAR(3), f DATE, g TIME, h FLOAT, i YEAR, j SET('a','b'), l BLOB, m CHAR(2) NOT NULL DEFAULT 'x')")
	for range 1500 {
		lit := func() string { return literals[r.IntN(len(literals))] }
		col := func() string { return string("abcdefghijlm"[r.IntN(12)]) }
		q := ""
		switch r.IntN(8) {
		case 0:
			q = fmt.Sprintf("INSERT INTO r (k, %s) VALUES (%s, %s)", col(), lit(), lit())
		case 6:
			q = fmt.Sprintf("REPLACE INTO r (k, %s) VALUES (%s, %s)", col(), lit(), lit())
		case 7:
			c := col()
			q = fmt.Sprintf("INSERT INTO r (k, %s) VALUES (%s, %s), (%s, %s) ON DUPLICATE KEY UPDATE %s = %s, %s = %s + %s", c, lit(), lit(), lit(), lit(), col(), lit(), c, c, lit())
		case 1:
			q = fmt.Sprintf("DELETE FROM r WHERE k = %s", lit())
		case 2:
			q = fmt.Sprintf("SELECT k, %s FROM r WHERE k = %s", col(), lit())
		case 3:
			q = fmt.Sprintf("UPDATE r SET %s = %s + %s WHERE k = %s", col(), col(), lit(), lit())
		case 4:
			q = fmt.Sprintf("UPDATE r SET %s = %s - %s WHERE k = %s", col(), col(), lit(), lit())
		default:
			q = fmt.Sprintf("UPDATE r SET %s = %s WHERE k = %s", col(), lit(), lit())
		}
		both(q)
	}
	both("SELECT * FROM r ORDER BY k")
}

// BenchmarkPoint runs statements by key, planned and not, without the wire.
func BenchmarkPoint(b *testing.B) {
	for _, all := range []bool{true, false} {
		for _, q := range []string{"SELECT v FROM t WHERE id = %d", "UPDATE t SET v = v + 1 WHERE id = %d"} {
			b.Run(fmt.Sprintf("planner=%v/%s", all, strings.Fields(q)[0]), func(b *testing.B) {
				s := newTestEngine(b).session()
				s.e.planAll = all
				s.exec("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), v BIGINT)")
				for i := range 1000 {
					s.exec(fmt.Sprintf("INSERT INTO t VALUES (%d, 'name', 0)", i))
				}
				s.exec("FLUSH TABLES")
				i := 0
				for b.Loop() {
					i++
					s.answer(fmt.Sprintf(q, i%1000))
				}
			})
		}
	}
}
