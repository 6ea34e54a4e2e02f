package wire

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNothingLost: 8 connections add 10 times 1 to one row, each in another way that programs do it. Nothing is lost, and nobody
// sees an error.
func TestNothingLost(t *testing.T) {
	_, s := lockServer(t)
	setup := openDatabase(t, s, "")
	exec(t, setup, "CREATE DATABASE d")
	exec(t, setup, "CREATE TABLE d.t (id INT PRIMARY KEY, f INT, k INT, UNIQUE KEY (k))")
	exec(t, setup, "CREATE TABLE d.keyless (f INT)")
	exec(t, setup, "INSERT INTO d.keyless VALUES (0)")
	exec(t, setup, "CREATE PROCEDURE d.add_one(i INT) UPDATE d.t SET f = f + 1 WHERE id = i")
	exec(t, setup, "CREATE PROCEDURE d.add_locked(i INT) BEGIN DECLARE v INT; START TRANSACTION; SELECT f INTO v FROM d.t WHERE id = i FOR UPDATE; UPDATE d.t SET f = f + 1 WHERE id = i; COMMIT; END")

	inTransaction := func(isolation string, params string) func(context.Context, *sql.Conn, int) error {
		return func(ctx context.Context, c *sql.Conn, id int) error {
			if isolation != "" {
				if _, err := c.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL "+isolation); err != nil {
					return err
				}
			}
			if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
				return err
			}
			var f int
			if err := c.QueryRowContext(ctx, "SELECT f FROM t WHERE id = ? FOR UPDATE"+params, id).Scan(&f); err != nil {
				return err
			}
			if _, err := c.ExecContext(ctx, "UPDATE t SET f = ? WHERE id = ?", f+1, id); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "COMMIT")
			return err
		}
	}
	statement := func(query string) func(context.Context, *sql.Conn, int) error {
		return func(ctx context.Context, c *sql.Conn, id int) error {
			_, err := c.ExecContext(ctx, fmt.Sprintf(query, id))
			return err
		}
	}
	for id, way := range []struct {
		name, params string
		add          func(ctx context.Context, c *sql.Conn, id int) error
		read         string
	}{
		{name: "autocommit", add: statement("UPDATE t SET f = f + 1 WHERE id = %d")},
		{name: "scan", add: statement("UPDATE t SET f = f + 1 WHERE id + 0 = %d")},
		{name: "text in a transaction", params: "interpolateParams=true", add: inTransaction("", "")},
		{name: "prepared in a transaction", add: inTransaction("", "")},
		{name: "OF", add: inTransaction("", " OF t")},
		{name: "READ COMMITTED", add: inTransaction("READ COMMITTED", "")},
		{name: "SERIALIZABLE", add: inTransaction("SERIALIZABLE", "")},
		{name: "UPDATE in a transaction", params: "multiStatements=true", add: statement("BEGIN; UPDATE t SET f = f + 1 WHERE id = %d; COMMIT")},
		{name: "multi statements", params: "multiStatements=true", add: statement("SELECT 1; UPDATE t SET f = f + 1 WHERE id = %d; SELECT 2")},
		{name: "autocommit off", params: "autocommit=0", add: func(ctx context.Context, c *sql.Conn, id int) error {
			if _, err := c.ExecContext(ctx, "UPDATE t SET f = f + 1 WHERE id = ?", id); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "COMMIT")
			return err
		}},
		{name: "ON DUPLICATE KEY", add: statement("INSERT INTO t (id, f) VALUES (%d, 1) ON DUPLICATE KEY UPDATE f = f + 1")},
		{name: "ON DUPLICATE KEY of a UNIQUE key", add: func(ctx context.Context, c *sql.Conn, id int) error {
			_, err := c.ExecContext(ctx, "INSERT INTO t (id, f, k) SELECT MAX(id) + 1, 1, ? FROM (SELECT 1000 AS id) n ON DUPLICATE KEY UPDATE f = f + 1", id)
			return err
		}},
		{name: "CALL", add: statement("CALL add_one(%d)")},
		{name: "CALL with a transaction", add: statement("CALL add_locked(%d)")},
		{name: "EXECUTE", params: "multiStatements=true", add: statement("SET @id = %d; PREPARE p FROM 'UPDATE t SET f = f + 1 WHERE id = ?'; EXECUTE p USING @id")},
		{name: "GET_LOCK", add: func(ctx context.Context, c *sql.Conn, id int) error {
			if _, err := c.ExecContext(ctx, "DO GET_LOCK('counter', 60)"); err != nil {
				return err
			}
			var f int
			if err := c.QueryRowContext(ctx, "SELECT f FROM t WHERE id = ?", id).Scan(&f); err != nil {
				return err
			}
			if _, err := c.ExecContext(ctx, "UPDATE t SET f = ? WHERE id = ?", f+1, id); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "DO RELEASE_LOCK('counter')")
			return err
		}},
		{name: "LOCK TABLES", add: func(ctx context.Context, c *sql.Conn, id int) error {
			if _, err := c.ExecContext(ctx, "LOCK TABLES t WRITE"); err != nil {
				return err
			}
			var f int
			if err := c.QueryRowContext(ctx, "SELECT f FROM t WHERE id = ?", id).Scan(&f); err != nil {
				return err
			}
			if _, err := c.ExecContext(ctx, "UPDATE t SET f = ? WHERE id = ?", f+1, id); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "UNLOCK TABLES")
			return err
		}},
		{name: "no key", add: func(ctx context.Context, c *sql.Conn, id int) error {
			_, err := c.ExecContext(ctx, "UPDATE keyless SET f = f + 1")
			return err
		}, read: "SELECT f FROM d.keyless"},
	} {
		t.Run(way.name, func(t *testing.T) {
			if way.name != "ON DUPLICATE KEY" && way.name != "ON DUPLICATE KEY of a UNIQUE key" {
				exec(t, setup, fmt.Sprintf("INSERT INTO d.t (id, f) VALUES (%d, 0)", id))
			}
			db := openDatabase(t, s, "d?"+way.params)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			errs := make(chan error, 80)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					c, err := db.Conn(ctx)
					if err != nil {
						errs <- err
						return
					}
					defer c.Close()
					for range 10 {
						if err := way.add(ctx, c, id); err != nil {
							errs <- err
						}
					}
				})
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				t.Error(err)
			}
			read := way.read
			if read == "" {
				read = fmt.Sprintf("SELECT f FROM d.t WHERE IF(k IS NULL, id, k) = %d", id)
			}
			require.Equal(t, "80", table(t, setup, read))
		})
	}
}

// TestKilledWait: a statement that waits for a lock ends at once when it is killed or when its client goes away, and what it
// held is free then.
func TestKilledWait(t *testing.T) {
	c, s := lockServer(t)
	setup := openDatabase(t, s, "")
	exec(t, setup, "CREATE DATABASE d")
	exec(t, setup, "CREATE TABLE d.t (id INT PRIMARY KEY, f INT)")
	exec(t, setup, "INSERT INTO d.t VALUES (1, 0), (2, 0)")
	ctx := context.Background()
	db := openDatabase(t, s, "d")
	holder, err := db.Conn(ctx)
	require.NoError(t, err)
	defer holder.Close()
	exec(t, holder, "BEGIN")
	exec(t, holder, "UPDATE t SET f = 1 WHERE id = 1")

	for _, end := range []string{"KILL QUERY", "KILL CONNECTION", "cancel"} {
		t.Run(end, func(t *testing.T) {
			w, err := db.Conn(ctx)
			require.NoError(t, err)
			defer w.Close()
			var id uint32
			require.NoError(t, w.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id))
			exec(t, w, "BEGIN")
			exec(t, w, "UPDATE t SET f = f + 1 WHERE id = 2")
			sctx, cancel := context.WithCancel(ctx)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := w.ExecContext(sctx, "UPDATE t SET f = f + 1 WHERE id = 1")
				done <- err
			}()
			waits := func() bool {
				for _, l := range c.Locks() {
					if !l.Granted && l.Connection == id {
						return true
					}
				}
				return false
			}
			require.Eventually(t, waits, 5*time.Second, time.Millisecond)
			if end == "cancel" { // the driver closes the connection
				cancel()
			} else {
				exec(t, setup, fmt.Sprintf("%s %d", end, id))
			}
			select {
			case err := <-done:
				require.Error(t, err)
				if end == "KILL QUERY" {
					require.ErrorContains(t, err, "1317")
				}
			case <-time.After(5 * time.Second):
				t.Fatal("the statement waits still")
			}
			require.Eventually(t, func() bool { return !waits() }, 2*time.Second, time.Millisecond)
			if end == "KILL QUERY" { // the statement alone is gone
				exec(t, w, "COMMIT")
				require.Equal(t, "1", table(t, setup, "SELECT f FROM d.t WHERE id = 2"))
				return
			}
			other, err := db.Conn(ctx)
			require.NoError(t, err)
			defer other.Close()
			exec(t, other, "SET innodb_lock_wait_timeout = 5")
			exec(t, other, "UPDATE t SET f = 1 WHERE id = 2")
		})
	}
}
