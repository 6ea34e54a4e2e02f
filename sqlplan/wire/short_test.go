package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
)

// packets gives an answer's packets as they came.
func (c *rawClient) packets(p []byte) []string {
	c.send(0, p)
	first := c.packet()
	all := []string{string(first)}
	if first[0] == 0 || first[0] == 0xff {
		return all
	}
	for ends := 0; ends < 2; {
		p := c.packet()
		all = append(all, string(p))
		if p[0] == 0xff {
			break
		}
		if isEOF(p) {
			ends++
		}
	}
	return all
}

func shortServer(t testing.TB) *Server {
	c, err := catalog.Open(t.Context(), t.TempDir(), catalog.Options{SortKey: sqlplan.SortKey})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(t.Context()) })
	return testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
}

// The packets of an answer are the same byte for byte whether a statement goes the short way or not, in both protocols.
func TestShortPackets(t *testing.T) {
	s := shortServer(t)
	setup := openDatabase(t, s, "")
	exec(t, setup, "CREATE DATABASE d")
	c := dialRaw(t, s)
	one := func(q string) []string { return c.packets(append([]byte{3}, q...)) }
	one("CREATE TABLE t (k BIGINT PRIMARY KEY, a TINYINT, b INT UNSIGNED NOT NULL, c VARCHAR(20), d DECIMAL(8,2), e DATETIME(3), f TIMESTAMP NULL, g DOUBLE, h FLOAT, i DATE, j YEAR, l VARBINARY(9), m CHAR(3), n TEXT, o ENUM('x','y'), u BIGINT UNSIGNED)")
	both := func(q string, send func() []string) {
		t.Helper()
		var got [2][]string
		for i := range got {
			one(fmt.Sprintf("SET lakesql_direct_write = %d", i))
			one("DELETE FROM t")
			one("INSERT INTO t VALUES (1, -1, 2, 'abc', 1.5, '2020-01-02 03:04:05.678', '2020-01-02 03:04:05', 1.25, 0.1, '2020-02-03', 2001, 'bin', 'ch', 'text', 'y', 18446744073709551615), (2, NULL, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
			send() // the shape is learned
			got[i] = send()
		}
		require.Equal(t, got[0], got[1], q)
	}
	texts := []string{
		"SELECT * FROM t WHERE k = 1", "SELECT * FROM t WHERE k = 2", "SELECT * FROM t WHERE k = 3", "SELECT c, k, c AS z, t.d dd FROM t WHERE k = 1", "SELECT u, f, m, n, o FROM d.t WHERE k = 1",
		"UPDATE t SET a = a + 1 WHERE k = 1", "UPDATE t SET a = a + 1000 WHERE k = 1", "UPDATE t SET c = 'abc' WHERE k = 1", "UPDATE t SET c = 'abc', g = 5, i = '2020-02-04' WHERE k = 9", "DELETE FROM t WHERE k = 1", "DELETE FROM t WHERE k = 5",
		"INSERT INTO t (k, b) VALUES (1, 2)", "REPLACE INTO t (k, b) VALUES (2, 2)", "INSERT INTO t (k, b) VALUES (1, 2) ON DUPLICATE KEY UPDATE b = b + VALUES(b), c = 'new'", "INSERT INTO t (k, b, e) VALUES (7, 2, '2020-13-01')",
	}
	for _, q := range texts {
		both(q, func() []string { return one(q) })
	}
	for _, q := range []string{"SELECT * FROM t WHERE k = ?", "SELECT c, u, f, e FROM t WHERE k = ?", "UPDATE t SET a = a - 1 WHERE k = ?", "DELETE FROM t WHERE k = ?", "REPLACE INTO t (k, b) VALUES (?, 3)"} {
		both(q, func() []string {
			id := c.prepare(q, 1)
			p := binary.LittleEndian.AppendUint32([]byte{comStmtExecute}, id)
			p = append(p, 0, 1, 0, 0, 0, 0, 1, 8, 0) // no cursor, one iteration, no NULL, new types: a signed 64-bit integer
			return c.packets(binary.LittleEndian.AppendUint64(p, 1))
		})
	}
	for _, names := range []string{"latin1", "binary"} {
		one("SET character_set_results = " + names)
		both(names, func() []string { return one("SELECT c, n FROM t WHERE k = 1") })
	}
	one("SET character_set_results = utf8mb4, lakesql_direct_write = 1")
	status := c.text("SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Lakesql_short_statements'")
	require.NotEqual(t, "0", strings.TrimSpace(status))
}

// A statement counts once, however often the server runs it, as INSERT whose rows the front end has to read after all.
func TestCountsOnce(t *testing.T) {
	s := shortServer(t)
	setup := openDatabase(t, s, "")
	exec(t, setup, "CREATE DATABASE d")
	c := dialRaw(t, s)
	c.query("CREATE TABLE t (k INT PRIMARY KEY, v TINYINT)")
	count := func(name string) int {
		var n int
		_, err := fmt.Sscan(strings.Split(c.text("SHOW STATUS LIKE '"+name+"'"), "\t")[1], &n)
		require.NoError(t, err)
		return n
	}
	for _, q := range []string{
		"INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)", "INSERT INTO t VALUES (6, 1), (7, '2 '), (8, 3), (9, 4.2)", "INSERT INTO t VALUES (10, 1), (11, 2), (12, 3), (13, 400)",
		"INSERT INTO t VALUES (1, 1)", "SELECT v FROM t WHERE k = 1", "UPDATE t SET v = 1000 WHERE k = 1", "UPDATE t SET v = 100 WHERE k = 1", "DELETE FROM t WHERE k = 1",
	} {
		kind := "Com_" + strings.ToLower(q[:6])
		questions, before := count("Questions"), count(kind)
		c.query(q)
		require.Equal(t, 1, count(kind)-before, q)
		require.Equal(t, 4, count("Questions")-questions, q) // the statement, and three that ask for counts
	}
}

// A prepared statement of many rows goes the short way, and so does one that updates what is there.
func TestShortManyRows(t *testing.T) {
	s := shortServer(t)
	exec(t, openDatabase(t, s, ""), "CREATE DATABASE d")
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (k INT PRIMARY KEY, v INT, s VARCHAR(10))")
	const rows = 300
	text := "INSERT INTO t VALUES (?,?,?)" + strings.Repeat(",(?,?,?)", rows-1)
	for _, q := range []string{text, text + " ON DUPLICATE KEY UPDATE v = v + VALUES(v)", "REPLACE" + text[6:]} {
		st, err := db.Prepare(q)
		require.NoError(t, err)
		var args []any
		for i := range rows {
			args = append(args, i*7, 1, fmt.Sprint(i))
		}
		before := s.Metrics.DirectTotal.Load()
		r, err := st.Exec(args...)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Metrics.DirectTotal.Load()-before, "the short way")
		n, err := r.RowsAffected()
		require.NoError(t, err)
		want := 2 * rows
		if q == text {
			want = rows
		}
		require.EqualValues(t, want, n)
		if q == text {
			exec(t, db, "FLUSH TABLES") // the rows stand in a file then
		}
		require.NoError(t, st.Close())
	}
	require.Equal(t, "300\t300", table(t, db, "SELECT COUNT(*), SUM(v) FROM t"))
	_, err := db.Exec("INSERT INTO t VALUES (1,1,''),(2,1,''),(3,1,''),(4,1,''),(5,1,''),(6,1,''),(8,1,''),(9,1,''),(7,1,'')")
	require.ErrorContains(t, err, "Duplicate entry '7' for key 't.PRIMARY'")
	require.Equal(t, "300", table(t, db, "SELECT COUNT(*) FROM t"))
}
