package wire_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-sql-driver/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// startLimited starts a server with a limit of memory.
func startLimited(t *testing.T, limit int64) *sql.DB {
	t.Helper()
	ctx := context.Background()
	c, err := catalog.Open(ctx, "data", catalog.Options{FS: vfs.NewMem(), SortKey: sqlplan.SortKey})
	if err != nil {
		t.Fatal(err)
	}
	s, err := wire.New(ctx, wire.Options{Catalog: c, Listen: "127.0.0.1:0", DrainTime: time.Second, MapError: dialect.ClientError, MemoryLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/", s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		db.Close()
		if err := errors.Join(s.Shutdown(ctx), <-served, c.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A statement that takes the server's memory is ended with 1041; others go on, and so does the session.
func TestMemoryGuard(t *testing.T) {
	db := startLimited(t, 220<<20)
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, s TEXT)"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	for at := 0; at < 2000; at += 500 {
		b.Reset()
		b.WriteString("INSERT INTO d.t VALUES ")
		for i := at; i < at+500; i++ {
			if i > at {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "(%d, 'some text of row %d')", i, i)
		}
		if _, err := db.Exec(b.String()); err != nil {
			t.Fatal(err)
		}
	}
	other := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				other <- nil
				return
			default:
			}
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM d.t WHERE id < 10").Scan(&n); err != nil || n != 10 {
				other <- fmt.Errorf("%d rows: %w", n, err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	rows, err := db.Query("SELECT a.s, b.s, a.id * b.id AS n FROM d.t a JOIN d.t b ORDER BY n, a.s, b.s")
	if err == nil {
		for rows.Next() {
		}
		err = rows.Err()
		rows.Close()
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != 1041 || !strings.Contains(e.Message, "its limit is 220 MiB") {
		t.Errorf("a sort of four million rows: %v", err)
	}
	close(stop)
	if err := <-other; err != nil {
		t.Errorf("a small statement beside it: %v", err)
	}
	var name string
	var n int64
	if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'lakesql_statements_ended_for_memory'").Scan(&name, &n); err != nil || n != 1 {
		t.Errorf("ended: %d, %v", n, err)
	}
}

// SHOW GLOBAL STATUS LIKE 'lakesql%' names what is held and its bounds.
func TestStatus(t *testing.T) {
	db := startLimited(t, 0)
	got := map[string]int64{}
	rows, err := db.Query("SHOW GLOBAL STATUS LIKE 'lakesql%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		got[name] = n
	}
	for _, name := range []string{"hot_bytes", "hot_bytes_limit", "runs_bytes_limit", "reader_cache_bytes_limit", "state_cache_bytes", "row_locks", "connections", "heap_bytes", "snapshots", "journal_flushed_bytes"} {
		if _, ok := got["Lakesql_"+name]; !ok {
			t.Errorf("no Lakesql_%s", name)
		}
	}
	if got["Lakesql_connections"] != 1 || got["Lakesql_hot_bytes_limit"] != 1<<30 {
		t.Error(got)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM performance_schema.global_status WHERE variable_name LIKE 'Lakesql%'").Scan(&n); err != nil || n < len(got)-2 {
		t.Errorf("%d in performance_schema, %d in SHOW: %v", n, len(got), err)
	}
}
