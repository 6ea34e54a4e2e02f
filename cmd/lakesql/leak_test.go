package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	_ "github.com/lakesql/lakesql/sqlplan/driver"
)

var (
	goroutineID   = regexp.MustCompile(`^goroutine \d+[^\n]*\n`)
	goroutineArgs = regexp.MustCompile(`(?m)\([^()\n]*\)$| \+0x[0-9a-f]+$|0x[0-9a-f]+`)
)

// goroutines counts the goroutines by their stacks.
func goroutines() map[string]int {
	b := make([]byte, 1<<20)
	for n := runtime.Stack(b, true); ; n = runtime.Stack(b, true) {
		if n < len(b) {
			b = b[:n]
			break
		}
		b = make([]byte, 2*len(b))
	}
	out := map[string]int{}
	for _, g := range strings.Split(string(b), "\n\n") {
		out[goroutineArgs.ReplaceAllString(goroutineID.ReplaceAllString(g, ""), "")]++
	}
	return out
}

// openFiles lists what the process has open, by descriptor.
func openFiles(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no list of open files:", err)
	}
	var out []string
	for _, e := range list {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(name, "anon_inode:") && !strings.HasPrefix(name, "/proc/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// noLeaks waits until no more goroutines run and no more files are open than before.
func noLeaks(t *testing.T, before map[string]int, files []string) {
	t.Helper()
	var more []string
	for range 100 {
		more = more[:0]
		now := goroutines()
		for _, g := range slices.Sorted(maps.Keys(now)) {
			if n := now[g] - before[g]; n > 0 && !strings.Contains(g, "noLeaks") && !strings.Contains(g, "testing.") {
				more = append(more, fmt.Sprintf("%d more of\n%s", n, g))
			}
		}
		if len(more) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, m := range more {
		t.Error("goroutine left: " + m)
	}
	now := openFiles(t)
	for _, f := range files {
		if i := slices.Index(now, f); i >= 0 {
			now = slices.Delete(now, i, i+1)
		}
	}
	if len(now) > 0 {
		t.Errorf("files left open: %q", now)
	}
}

// Nothing is left of a server that has stopped, whatever its clients did: no goroutine, no open file, no temporary file, no staged
// folder, no marker; and the number of files that it has open while it works does not grow.
func TestNoLeaks(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	work := func() {
		svc, err := openService(ctx, serverConfig{Data: dir, Listen: "127.0.0.1:0", User: "root"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- svc.Serve() }()
		clients(t, svc.Addr().String())
		if err := svc.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-served, svc.Close(ctx)); err != nil {
			t.Error(err)
		}
	}
	work() // what is made once a process
	before, files := goroutines(), openFiles(t)
	for range 2 {
		work()
	}
	noLeaks(t, before, files)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch rel, _ := filepath.Rel(dir, path); {
		case err != nil:
			return err
		case strings.Contains(d.Name(), ".tmp-"), strings.Contains(rel, ".hoodie/.temp/"), strings.Contains(rel, ".hoodie/lakesql/") && !strings.Contains(rel, ".hoodie/lakesql/kept"),
			strings.Contains(rel, ".hoodie/.heartbeat/"), strings.HasSuffix(rel, ".hoodie/lock"):
			t.Error("left behind: " + rel)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// clients do what clients do, mistakes and broken connections among them.
func clients(t *testing.T, addr string) {
	t.Helper()
	mysql.SetLogger(quietLogger{})
	db, err := sql.Open("mysql", "root@tcp("+addr+")/")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := db.Exec(q, args...); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	exec("CREATE DATABASE IF NOT EXISTS d")
	exec("CREATE TABLE IF NOT EXISTS d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, s VARCHAR(100), KEY (v))")
	for range 20 {
		exec("INSERT INTO d.t (v, s) VALUES " + strings.Repeat("(1, 'some text'),", 99) + "(2, 'end')")
	}
	exec("FLUSH TABLES")
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(20+30*n)*time.Millisecond)
			defer cancel()
			rows, err := db.QueryContext(ctx, "SELECT a.s, b.s, SLEEP(0.001) FROM d.t a JOIN d.t b ORDER BY a.v + b.v")
			if err == nil { // cancelled while it runs
				for rows.Next() {
				}
				rows.Close()
			}
			if rows, err := db.Query("SELECT * FROM d.t"); err == nil { // given up in the middle
				rows.Next()
				rows.Close()
			}
			_, _ = db.Exec("INSERT INTO d.t (id) VALUES (1)")
			_, _ = db.Exec("SELEC 1")
			_, _ = db.Exec("UPDATE d.t SET v = 'x' WHERE id = ?", n)
			tx, err := db.Begin()
			if err != nil {
				return
			}
			_, _ = tx.Exec("UPDATE d.t SET v = v + 1 WHERE id = ?", 10+n)
			if n%2 == 0 {
				_ = tx.Commit()
				return
			}
			_ = tx.Rollback()
			c, err := db.Conn(context.Background()) // killed with a transaction and a cursor open
			if err != nil {
				return
			}
			defer c.Close()
			var id int
			_ = c.QueryRowContext(context.Background(), "SELECT CONNECTION_ID()").Scan(&id)
			_, _ = c.ExecContext(context.Background(), "BEGIN")
			_, _ = c.ExecContext(context.Background(), "DELETE FROM d.t WHERE id = ?", 50+n)
			_, _ = db.Exec(fmt.Sprint("KILL ", id))
		})
	}
	wg.Wait()
	exec("CHECK TABLE d.t EXTENDED")
	exec("CREATE TABLE d.u AS SELECT * FROM d.t")
	exec("DROP TABLE d.u")
}

type quietLogger struct{}

func (quietLogger) Print(...any) {}

// A warehouse that is opened in process leaves nothing either.
func TestNoLeaksOfDriver(t *testing.T) {
	dir := t.TempDir()
	work := func() {
		db, err := sql.Open("lakesql", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{
			"CREATE DATABASE IF NOT EXISTS d", "CREATE TABLE IF NOT EXISTS d.t (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(100))",
			"INSERT INTO d.t (s) VALUES ('a'), ('b')", "FLUSH TABLES", "INSERT INTO d.t (s) VALUES ('c')",
		} {
			if _, err := db.Exec(q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, _ = db.ExecContext(ctx, "SELECT SLEEP(5)")
		cancel()
		tx, err := db.Begin()
		if err == nil {
			_, _ = tx.Exec("DELETE FROM d.t")
			_ = tx.Rollback()
		}
		rows, err := db.Query("SELECT * FROM d.t")
		if err == nil {
			rows.Next()
			rows.Close()
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	work()
	before, files := goroutines(), openFiles(t)
	for range 3 {
		work()
	}
	noLeaks(t, before, files)
}
