package wire

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestFloatText(t *testing.T) {
	for _, tc := range []struct {
		f    float64
		bits int
		want string
	}{
		{0, 64, "0"},
		{1, 64, "1"},
		{-1.5, 64, "-1.5"},
		{9776837, 64, "9776837"},
		{1e14, 64, "100000000000000"},
		{999999999999999, 64, "999999999999999"},
		{1e15, 64, "1e15"},
		{1234567890123456, 64, "1.234567890123456e15"},
		{0.1, 64, "0.1"},
		{1e-5, 64, "0.00001"},
		{1e-15, 64, "0.000000000000001"},
		{1e-16, 64, "1e-16"},
		{-2.5e-20, 64, "-2.5e-20"},
		{math.MaxFloat64, 64, "1.7976931348623157e308"},
		{123456.789, 64, "123456.789"},
		{100, 64, "100"},
		{float64(float32(0.1)), 32, "0.1"},
		{16777216, 32, "16777200"},
		{float64(float32(3.14159274)), 32, "3.14159"},
		{1e20, 32, "1e20"},
		{float64(float32(1.5)), 32, "1.5"},
	} {
		require.Equal(t, tc.want, string(appendFloat(nil, tc.f, tc.bits)))
	}
}

func TestResultText(t *testing.T) {
	s := testServer(t, nil)
	for _, params := range []string{"", "interpolateParams=true"} {
		db := open(t, s, params)
		exec(t, db, "DROP TABLE IF EXISTS t")
		exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, d DOUBLE, f FLOAT, n DECIMAL(10,3), ti TIME(6), da DATE, dt DATETIME(3), y YEAR, b BIT(9), e ENUM('x','y'), st SET('p','q'), j JSON, bl BLOB, tx TEXT, c CHAR(5), u BIGINT UNSIGNED)")
		exec(t, db, `INSERT INTO t VALUES (1, 9776837.5, 1.5, 1.5, '-12:34:56.000007', '2024-02-29', '2024-01-02 03:04:05.678', 2024, 257, 'y', 'p,q', '{"a": 1}', x'00ff', 'text', 'ch', 18446744073709551615), (2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)`)
		want := "1\t9776837.5\t1.5\t1.500\t-12:34:56.000007\t2024-02-29\t2024-01-02 03:04:05.678\t2024\t\x01\x01\ty\tp,q\t{\"a\": 1}\t\x00\xff\ttext\tch\t18446744073709551615\n2" + strings.Repeat("\t\\N", 15)
		got := table(t, db, "SELECT * FROM t WHERE id > ? ORDER BY id", 0)
		require.Equal(t, want, strings.Replace(got, "9.7768375e+06", "9776837.5", 1)) // the driver prints numbers its own way
	}
	require.Equal(t, "9776837.5\t1e15\t1.5", dialRaw(t, s).text("SELECT d, 1e15, f FROM t WHERE id = 1"))
	db := open(t, s, "")
	// columns of numbers whose word NULL is the value
	rows, err := db.Query("EXPLAIN SELECT * FROM t")
	require.NoError(t, err)
	rows.Close()
}

func TestColumnOrigins(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "columnsWithAlias=true")
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
	rows, err := db.Query("SELECT x.id AS a, v, v+1 AS w FROM t AS x")
	require.NoError(t, err)
	defer rows.Close()
	cols, err := rows.Columns()
	require.NoError(t, err)
	require.Equal(t, []string{"x.a", "x.v", "w"}, cols)
}

// Drivers take autocommit and the open transaction from the status flags; PyMySQL skips SET autocommit=0 on them.
func TestStatusFlags(t *testing.T) {
	s := testServer(t, nil)
	c := dialRaw(t, s)
	require.EqualValues(t, 2, c.handshakeStatus)
	require.EqualValues(t, 2, c.query("SELECT 1").status)
	require.EqualValues(t, 2, c.query("CREATE TABLE t (id INT PRIMARY KEY)").status)
	require.EqualValues(t, 2|1, c.query("BEGIN").status)
	require.EqualValues(t, 2|1, c.query("INSERT INTO t VALUES (1)").status)
	require.EqualValues(t, 2, c.query("COMMIT").status)
	require.EqualValues(t, 0, c.query("SET autocommit = 0").status&2)
	require.EqualValues(t, 1, c.query("SELECT * FROM t").status)
	require.EqualValues(t, 0, c.query("ROLLBACK").status)
	require.EqualValues(t, 2, c.command([]byte{comResetConnection}).status)
	require.EqualValues(t, 2, c.query("SELECT 1").status)
	r := c.query("SELEC")
	require.EqualValues(t, 1064, r.errno)
	require.EqualValues(t, 2, c.query("SELECT 1").status)
	require.EqualValues(t, 2, c.query("SELECT CAST('12x' AS SIGNED)").status)
}

func TestBinaryTimes(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "parseTime=true")
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, dt DATETIME(6), ti TIME(6))")
	c := dialRaw(t, s)
	for i, us := range []uint32{6, 789, 600000, 123456} {
		id := byte(i + 1)
		r := c.execute("INSERT INTO t VALUES (?, ?, ?)", []byte{
			3, 0, 12, 0, 11, 0, // LONG, DATETIME, TIME
			id, 0, 0, 0,
			11, 0xe8, 0x07, 1, 2, 3, 4, 5, byte(us), byte(us >> 8), byte(us >> 16), 0,
			12, 1, 1, 0, 0, 0, 2, 3, 4, byte(us), byte(us >> 8), byte(us >> 16), 0,
		}, 3)
		require.Zero(t, r.errno, r.message)
		require.Equal(t, fmt.Sprintf("2024-01-02 03:04:05.%06d\t-26:03:04.%06d", us, us), c.text("SELECT dt, ti FROM t WHERE id = "+fmt.Sprint(id)))
	}
	want := time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)
	exec(t, db, "INSERT INTO t (id, dt) VALUES (?, ?)", 9, want)
	var got time.Time
	require.NoError(t, db.QueryRow("SELECT dt FROM t WHERE id = ?", 9).Scan(&got))
	require.True(t, want.Equal(got), got)
}

func bigTable(t testing.TB, db *sql.DB, rows int) {
	exec(t, db, "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(200))")
	for at := 0; at < rows; at += 1000 {
		var b strings.Builder
		b.WriteString("INSERT INTO big VALUES ")
		for i := range 1000 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d,'%s')", at+i, strings.Repeat("v", 100))
		}
		exec(t, db, b.String())
	}
}

// A result much larger than a batch leaves the heap as it was.
func TestBigResultMemory(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	bigTable(t, db, 1000)
	for _, prepared := range []bool{false, true} {
		runtime.GC()
		var before, peak runtime.MemStats
		runtime.ReadMemStats(&before)
		query, args := "SELECT a.id, CONCAT(a.v, b.v, a.v) FROM big a JOIN big b ON a.id < 400 AND b.id < 1000", []any{}
		if prepared {
			query, args = query+" WHERE a.id >= ?", []any{0}
		}
		rows, err := db.Query(query, args...) // 400,000 rows of 300 bytes: 120 MB
		require.NoError(t, err)
		n, most := 0, uint64(0)
		var id int
		var v sql.RawBytes
		for rows.Next() {
			require.NoError(t, rows.Scan(&id, &v))
			if n++; n%20000 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&peak)
				most = max(most, peak.HeapAlloc)
			}
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 400000, n)
		grown := int64(most) - int64(before.HeapAlloc)
		t.Logf("prepared %v: heap grew by %d KiB", prepared, grown>>10)
		require.Less(t, grown, int64(80<<20)) // a buffer of the whole result would take 120 MB and more; the collector's pace is the rest
	}
}

// A failure after the first rows reaches the client as itself, and the connection goes on.
func TestErrorAfterRows(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	bigTable(t, db, 2000)
	for _, args := range [][]any{nil, {0}} {
		query := "SELECT id, IF(id = 1999, (SELECT 1 UNION SELECT 2), v) FROM big"
		if args != nil {
			query += " WHERE id >= ?"
		}
		rows, err := db.Query(query, args...)
		require.NoError(t, err)
		n := 0
		for rows.Next() {
			n++
		}
		require.Greater(t, n, 100)
		var e *driver.MySQLError
		require.ErrorAs(t, rows.Err(), &e)
		require.EqualValues(t, 1242, e.Number)
		rows.Close()
		before := s.Metrics.ConnectionsTotal.Load()
		require.Equal(t, "1", table(t, db, "SELECT 1"))
		require.Equal(t, before, s.Metrics.ConnectionsTotal.Load(), "the connection was lost")
	}
}

func TestCursors(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	bigTable(t, db, 3000)
	c := dialRaw(t, s)
	require.Equal(t, 3000, c.fetchAll("SELECT id, v FROM big", 100))
	require.Equal(t, 0, c.fetchAll("SELECT id, v FROM big WHERE id < 0", 100))
	r := c.executeFlags("SELECT id, (SELECT 1 UNION SELECT 2) FROM big", nil, 0, 1)
	require.EqualValues(t, 1242, r.errno)
	require.EqualValues(t, 2, c.query("SELECT 1").status)
}

func TestCounters(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	exec(t, conn, "CREATE TABLE t (id INT PRIMARY KEY)")
	exec(t, conn, "INSERT INTO t VALUES (1),(2),(3)")
	require.Equal(t, "3", table(t, conn, "SELECT ROW_COUNT()"))
	require.Equal(t, "1\n2", table(t, conn, "SELECT * FROM t LIMIT 2"))
	require.Equal(t, "2", table(t, conn, "SELECT FOUND_ROWS()"))
	require.Equal(t, "-1", table(t, conn, "SELECT ROW_COUNT()"))
	before := table(t, conn, "SHOW SESSION STATUS LIKE 'Com_select'")
	table(t, conn, "SELECT 1")
	require.NotEqual(t, before, table(t, conn, "SHOW SESSION STATUS LIKE 'Com_select'"))
	require.Contains(t, table(t, conn, "SHOW PROCESSLIST"), "SHOW PROCESSLIST")
}

// An OK with an info text is whole for clients that check its length, also between other statements.
func TestInfoText(t *testing.T) {
	s := testServer(t, nil)
	c := dialRaw(t, s)
	r := c.query("PREPARE p FROM 'select ? + 1'")
	require.Equal(t, "Statement prepared", r.message)
	require.EqualValues(t, 2, r.status)
	multi := open(t, s, "multiStatements=true")
	exec(t, multi, "SELECT 1; PREPARE p FROM 'select 1'; EXECUTE p; DEALLOCATE PREPARE p")
}
