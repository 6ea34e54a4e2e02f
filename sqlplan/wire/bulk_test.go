package wire

import (
	"database/sql"
	"fmt"
	"io"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// seedDigits makes table n with the numbers 0 to 63.
func seedDigits(t testing.TB, db *sql.DB) {
	var v []string
	for i := range 64 {
		v = append(v, fmt.Sprintf("(%d)", i))
	}
	exec(t, db, "CREATE TABLE n (i INT PRIMARY KEY)")
	exec(t, db, "INSERT INTO n VALUES "+strings.Join(v, ","))
}

// INSERT … SELECT and CREATE TABLE … SELECT of many rows: all or none of them, in a transaction too, and seen by what follows.
func TestInsertSelectMany(t *testing.T) {
	s := catalogServer(t)
	db := openDatabase(t, s, "a")
	db.SetMaxOpenConns(1)
	seedDigits(t, db)
	const rows = "SELECT a.i * 4096 + b.i * 64 + c.i AS id, CONCAT('v', a.i) AS v FROM n a, n b, n c WHERE a.i < 10"
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10) NOT NULL)")
	r := exec(t, db, "INSERT INTO t "+rows)
	n, _ := r.RowsAffected()
	require.EqualValues(t, 40960, n)
	sum := "SELECT COUNT(*), SUM(id), MIN(v), MAX(v) FROM t"
	want := "40960\t838840320\tv0\tv9"
	require.Equal(t, want, table(t, db, sum))
	require.Equal(t, "40959\tv9", table(t, db, "SELECT * FROM t WHERE id = 40959"))

	// A duplicate behind very many rows takes them all back.
	_, err := db.Exec("INSERT INTO t SELECT IF(id = 0, 99999, id + 50000) - IF(id = 40959, 90959, 0), v FROM t ORDER BY id")
	var e *driver.MySQLError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1062, e.Number)
	require.Equal(t, want, table(t, db, sum))
	_, err = db.Exec("INSERT INTO t SELECT id + 50000, IF(id = 40000, NULL, v) FROM t ORDER BY id")
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1048, e.Number)
	require.Equal(t, want, table(t, db, sum))

	// In a transaction, with a savepoint and small statements around it.
	exec(t, db, "BEGIN")
	exec(t, db, "INSERT INTO t VALUES (-1, 'x')")
	exec(t, db, "SAVEPOINT s")
	exec(t, db, "INSERT INTO t SELECT id + 100000, v FROM t WHERE id >= 0")
	exec(t, db, "UPDATE t SET v = 'y' WHERE id = 140959")
	require.Equal(t, "81921\ty", table(t, db, "SELECT COUNT(*), MAX(v) FROM t"))
	exec(t, db, "ROLLBACK TO s")
	require.Equal(t, "40961\tx", table(t, db, "SELECT COUNT(*), MAX(v) FROM t"))
	exec(t, db, "ROLLBACK")
	require.Equal(t, want, table(t, db, sum))

	r = exec(t, db, "CREATE TABLE u AS "+rows)
	n, _ = r.RowsAffected()
	require.EqualValues(t, 40960, n)
	require.Equal(t, want, table(t, db, strings.Replace(sum, " t", " u", 1)))

	// AUTO_INCREMENT goes on behind the last row.
	exec(t, db, "CREATE TABLE g (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10))")
	exec(t, db, "INSERT INTO g (v) SELECT v FROM t")
	require.Equal(t, "40960\t1\t40960", table(t, db, "SELECT COUNT(*), MIN(id), MAX(id) FROM g"))
	exec(t, db, "INSERT INTO g (v) VALUES ('next')")
	require.Equal(t, "40961", table(t, db, "SELECT MAX(id) FROM g"))

	// IGNORE, a trigger and ON DUPLICATE KEY look at each row.
	r = exec(t, db, "INSERT IGNORE INTO t SELECT id + 20000, v FROM t")
	n, _ = r.RowsAffected()
	require.EqualValues(t, 20000, n)
	exec(t, db, "CREATE TABLE log (c INT)")
	exec(t, db, "INSERT INTO log VALUES (0)")
	exec(t, db, "CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(10))")
	exec(t, db, "CREATE TRIGGER w1 BEFORE INSERT ON w FOR EACH ROW SET NEW.v = CONCAT(NEW.v, '!')")
	exec(t, db, "INSERT INTO w SELECT id, v FROM u")
	require.Equal(t, "40960\tv9!", table(t, db, "SELECT COUNT(*), MAX(v) FROM w"))
}

// LOAD DATA of very many rows, with duplicates in the file and in the table.
func TestLoadMany(t *testing.T) {
	s := catalogServer(t)
	db := openDatabase(t, s, "a?allowAllFiles=true")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10) NOT NULL, UNIQUE KEY u (v))")
	exec(t, db, "INSERT INTO t VALUES (7, 'old')")
	load := func(how string, line func(i int) string, rows int) (int64, error) {
		var b strings.Builder
		for i := range rows {
			b.WriteString(line(i))
		}
		driver.RegisterReaderHandler("f", func() io.Reader { return strings.NewReader(b.String()) })
		r, err := db.Exec("LOAD DATA LOCAL INFILE 'Reader::f' " + how)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	}
	line := func(i int) string { return fmt.Sprintf("%d\tv%d\n", i%30000, i%30000) }
	n, err := load("INTO TABLE t", line, 50000)
	require.NoError(t, err)
	require.EqualValues(t, 29999, n)
	require.Equal(t, "1024", table(t, db, "SHOW COUNT(*) WARNINGS"))
	require.Equal(t, "30000\told", table(t, db, "SELECT COUNT(*), (SELECT v FROM t WHERE id = 7) FROM t"))
	exec(t, db, "DELETE FROM t WHERE id > 1000")
	require.Equal(t, "1001", table(t, db, "SELECT COUNT(*) FROM t"))
	n, err = load("REPLACE INTO TABLE t", line, 40000)
	require.NoError(t, err)
	require.EqualValues(t, 40000+1001+10000, n)
	require.Equal(t, "30000\tv7", table(t, db, "SELECT COUNT(*), (SELECT v FROM t WHERE id = 7) FROM t"))

	// A UNIQUE value that two rows of the file have.
	exec(t, db, "CREATE TABLE x (id INT PRIMARY KEY, v VARCHAR(10) NOT NULL, UNIQUE KEY u (v))")
	n, err = load("INTO TABLE x", func(i int) string { return fmt.Sprintf("%d\tv%d\n", i, i/2) }, 40000)
	require.NoError(t, err)
	require.EqualValues(t, 20000, n)
	require.Equal(t, "20000\t0\t39998", table(t, db, "SELECT COUNT(*), MIN(id), MAX(id) FROM x"))

	// The transaction can be taken back.
	exec(t, db, "BEGIN")
	n, err = load("INTO TABLE x", func(i int) string { return fmt.Sprintf("%d\tw%d\n", i+100000, i) }, 40000)
	require.NoError(t, err)
	require.EqualValues(t, 40000, n)
	require.Equal(t, "60000", table(t, db, "SELECT COUNT(*) FROM x"))
	exec(t, db, "UPDATE x SET v = 'mine' WHERE id = 139999")
	require.Equal(t, "139999", table(t, db, "SELECT id FROM x WHERE v = 'mine'"))
	exec(t, db, "ROLLBACK")
	require.Equal(t, "20000", table(t, db, "SELECT COUNT(*) FROM x"))

	exec(t, db, "CREATE TABLE g (id INT AUTO_INCREMENT PRIMARY KEY, v INT DEFAULT 3)")
	n, err = load("INTO TABLE g (v)", func(i int) string { return fmt.Sprintf("%d\n", i) }, 40000)
	require.NoError(t, err)
	require.EqualValues(t, 40000, n)
	require.Equal(t, "1", table(t, db, "SELECT LAST_INSERT_ID()"))
	exec(t, db, "INSERT INTO g (v) VALUES (-1)")
	require.Equal(t, "40001\t40001", table(t, db, "SELECT COUNT(*), MAX(id) FROM g"))
}
