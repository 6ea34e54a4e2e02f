package driver

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dolthub/vitess/go/mysql"
	"github.com/stretchr/testify/require"
)

func openDB(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(Name, name)
	require.NoError(t, err)
	return db
}

func exec(t *testing.T, db interface {
	Exec(string, ...any) (sql.Result, error)
}, query string, args ...any,
) sql.Result {
	t.Helper()
	r, err := db.Exec(query, args...)
	require.NoError(t, err, query)
	return r
}

func TestDriver(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	exec(t, db, "CREATE DATABASE d")
	second := openDB(t, dir+"?database=d") // shares the warehouse
	exec(t, second, `CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), at DATETIME(6), amount DECIMAL(10,2),
		raw VARBINARY(10), big BIGINT UNSIGNED, f DOUBLE, b BOOLEAN)`)

	at := time.Date(2026, 11, 30, 9, 0, 0, 123456000, time.UTC)
	r := exec(t, second, "INSERT INTO t (name, at, amount, raw, big, f, b) VALUES (?, ?, ?, ?, ?, ?, ?)",
		"one", at, "1.50", []byte{0, 255}, uint64(1<<63+5), 1.25, true)
	id, err := r.LastInsertId()
	require.NoError(t, err)
	require.EqualValues(t, 1, id)
	n, err := r.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)

	var name, amount, big string
	var got time.Time
	var raw []byte
	var f float64
	var b bool
	err = db.QueryRow("SELECT name, at, amount, raw, big, f, b FROM d.t WHERE id = ?", 1).Scan(&name, &got, &amount, &raw, &big, &f, &b)
	require.NoError(t, err)
	require.Equal(t, []any{"one", at, "1.50", []byte{0, 255}, "9223372036854775813", 1.25, true}, []any{name, got, amount, raw, big, f, b})

	var nothing sql.NullString
	require.NoError(t, db.QueryRow("SELECT ?", nil).Scan(&nothing))
	require.False(t, nothing.Valid)

	stmt, err := second.Prepare("SELECT COUNT(*) FROM t WHERE name = ? AND id < ?")
	require.NoError(t, err)
	var count int
	require.NoError(t, stmt.QueryRow("ONE", 10).Scan(&count))
	require.Equal(t, 1, count)
	_, err = stmt.Query("one")
	require.Error(t, err, "one parameter is missing")
	require.NoError(t, stmt.Close())

	_, err = second.Exec("INSERT INTO t (id) VALUES (1)")
	var e *mysql.SQLError
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, 1062, e.Num)
	require.Equal(t, "23000", e.State)
	_, err = second.Exec("SELEKT 1")
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, 1064, e.Num)
	_, err = second.Query("SELECT * FROM nowhere")
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, 1146, e.Num)

	require.NoError(t, db.Close())
	exec(t, second, "UPDATE t SET name = 'two'") // the warehouse is still open
	require.NoError(t, second.Close())

	third := openDB(t, dir+"?database=d")
	require.NoError(t, third.QueryRow("SELECT name FROM t").Scan(&name))
	require.Equal(t, "two", name)
	require.NoError(t, third.Close())
}

func TestTransactions(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	exec(t, db, "CREATE DATABASE d")
	require.NoError(t, db.Close())
	db = openDB(t, dir+"?database=d")
	defer db.Close()
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
	exec(t, db, "INSERT INTO t VALUES (1, 0)")

	tx, err := db.Begin()
	require.NoError(t, err)
	exec(t, tx, "UPDATE t SET n = 5")
	var n int
	require.NoError(t, db.QueryRow("SELECT n FROM t").Scan(&n))
	require.Zero(t, n, "not committed yet")
	require.NoError(t, tx.Rollback())

	// Two transactions on one row: the second waits for the first, and nothing is lost.
	a, err := db.Begin()
	require.NoError(t, err)
	b, err := db.Begin()
	require.NoError(t, err)
	exec(t, a, "UPDATE t SET n = n + 1")
	updated := make(chan error, 1)
	go func() {
		_, err := b.Exec("UPDATE t SET n = n + 1")
		updated <- err
	}()
	select {
	case err := <-updated:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, a.Commit())
	require.NoError(t, <-updated)
	require.NoError(t, b.Commit())
	require.NoError(t, db.QueryRow("SELECT n FROM t").Scan(&n))
	require.Equal(t, 2, n)

	// Two that want each other's row: one of them is given up.
	exec(t, db, "INSERT INTO t VALUES (2, 0)")
	a, err = db.Begin()
	require.NoError(t, err)
	b, err = db.Begin()
	require.NoError(t, err)
	exec(t, a, "UPDATE t SET n = n + 1 WHERE id = 1")
	exec(t, b, "UPDATE t SET n = n + 1 WHERE id = 2")
	go func() {
		_, err := a.Exec("UPDATE t SET n = n + 1 WHERE id = 2")
		updated <- err
	}()
	_, err = b.Exec("UPDATE t SET n = n + 1 WHERE id = 1")
	first := <-updated
	require.True(t, (err == nil) != (first == nil), "%v and %v", first, err)
	if err == nil {
		err = first
	}
	var e *mysql.SQLError
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, 1213, e.Num)
	require.Equal(t, "40001", e.State)
	_ = a.Rollback() // one of them is over
	_ = b.Rollback()

	ro, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = ro.Exec("UPDATE t SET n = 9")
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, 1792, e.Num)
	require.NoError(t, ro.Rollback())
	_, err = db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
	require.Error(t, err)
}

// Single statements that meet on one row run again by themselves: no update is lost and nobody sees 1213.
func TestReruns(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	exec(t, db, "CREATE DATABASE d")
	require.NoError(t, db.Close())
	db = openDB(t, dir+"?database=d")
	defer db.Close()
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
	exec(t, db, "INSERT INTO t VALUES (1, 0)")
	const workers, rounds = 8, 10
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				if _, err := db.Exec("UPDATE t SET n = n + 1 WHERE id = ?", 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var n int
	require.NoError(t, db.QueryRow("SELECT n FROM t").Scan(&n))
	require.Equal(t, workers*rounds, n)
}

func TestCancel(t *testing.T) {
	db := openDB(t, t.TempDir())
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := db.ExecContext(ctx, "SELECT SLEEP(20)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 5*time.Second)
	var one int
	require.NoError(t, db.QueryRow("SELECT 1").Scan(&one), "the pool goes on")
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "?database=d", "dir?unknown=1", "dir?loc=Nowhere/Land", "dir?commit_mode=maybe"} {
		_, err := sql.Open(Name, bad)
		require.Error(t, err, bad)
	}
	db := openDB(t, t.TempDir()+"?loc=Europe/Berlin")
	defer db.Close()
	var at time.Time
	summer := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	require.NoError(t, db.QueryRow("SELECT CAST(? AS DATETIME)", summer).Scan(&at))
	require.True(t, at.Equal(summer), "%s", at)
	require.Equal(t, 12, at.Hour())
}

// TestCounters: 8 connections add 10 times 1 to a row, by single statements and in transactions. Nothing is lost, and nobody
// sees an error.
func TestCounters(t *testing.T) {
	db := openDB(t, t.TempDir())
	defer db.Close()
	exec(t, db, "CREATE DATABASE d")
	exec(t, db, "CREATE TABLE d.t (id INT PRIMARY KEY, f INT)")
	exec(t, db, "INSERT INTO d.t VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
	ctx := context.Background()
	add := func(level sql.IsolationLevel, id int) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var f int
		if err := tx.QueryRow("SELECT f FROM d.t WHERE id = ? FOR UPDATE", id).Scan(&f); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE d.t SET f = ? WHERE id = ?", f+1, id); err != nil {
			return err
		}
		return tx.Commit()
	}
	errs := make(chan error, 8)
	for range 8 {
		go func() {
			for range 10 {
				if _, err := db.Exec("UPDATE d.t SET f = f + 1 WHERE id = 0"); err != nil {
					errs <- err
					return
				}
				for i, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelSerializable} {
					if err := add(level, i+1); err != nil {
						errs <- err
						return
					}
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	var low, high int
	require.NoError(t, db.QueryRow("SELECT MIN(f), MAX(f) FROM d.t").Scan(&low, &high))
	require.Equal(t, []int{80, 80}, []int{low, high})
}
