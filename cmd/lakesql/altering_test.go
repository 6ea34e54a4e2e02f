package main

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStatementsBesideAlter changes the columns of tables over and over while others write to them: no statement fails for that, and no
// value gets into another column.
func TestStatementsBesideAlter(t *testing.T) {
	p := startProcess(t, t.TempDir(), "")
	db := p.open(t, "interpolateParams=true")
	mustExec(t, db, "CREATE DATABASE a")
	mustExec(t, db, "CREATE TABLE a.q (id INT PRIMARY KEY, v INT)")
	mustExec(t, db, "CREATE TABLE a.sw (id INT PRIMARY KEY, a INT, b INT, k INT)")
	until := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	loop := func(f func(n int, c *sql.DB) error) {
		wg.Go(func() {
			for n := 1; time.Now().Before(until); n++ {
				if err := f(n, db); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	exec := func(c *sql.DB, q string, args ...any) error {
		_, err := c.Exec(fmt.Sprintf(q, args...))
		if err != nil {
			err = fmt.Errorf("%s: %w", fmt.Sprintf(q, args...), err)
		}
		return err
	}
	loop(func(n int, c *sql.DB) error {
		if err := exec(c, "ALTER TABLE a.q ADD COLUMN n%d INT", n); err != nil {
			return err
		}
		return exec(c, "ALTER TABLE a.q DROP COLUMN n%d", n)
	})
	loop(func(n int, c *sql.DB) error {
		if err := exec(c, "ALTER TABLE a.sw MODIFY a INT AFTER b"); err != nil {
			return err
		}
		return exec(c, "ALTER TABLE a.sw MODIFY a INT AFTER id")
	})
	var inserted int
	loop(func(n int, c *sql.DB) error {
		inserted = n
		return exec(c, "INSERT INTO a.q (id, v) VALUES (%d, 1)", n)
	})
	loop(func(n int, c *sql.DB) error { return exec(c, "UPDATE a.q SET v = v + 1 WHERE id = %d", n) })
	loop(func(n int, c *sql.DB) error {
		var rows int
		return c.QueryRow("SELECT COUNT(*) FROM a.q WHERE v > 0").Scan(&rows)
	})
	loop(func(n int, c *sql.DB) error {
		return exec(c, "REPLACE INTO a.sw (id, a, b, k) VALUES (%d, 1, 2, 0)", n)
	})
	loop(func(n int, c *sql.DB) error {
		return exec(c, "INSERT INTO a.sw (id, a, b, k) SELECT id + 1000000, a, b, 1 FROM a.sw WHERE k = 0 AND id = %d ON DUPLICATE KEY UPDATE k = k + 1", n)
	})
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	var rows, swapped int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM a.q").Scan(&rows))
	require.Equal(t, inserted, rows)
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM a.sw WHERE NOT (a = 1 AND b = 2)").Scan(&swapped))
	require.Zero(t, swapped, "values in the wrong column")
	p.stop(t)
}
