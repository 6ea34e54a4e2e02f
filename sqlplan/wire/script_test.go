package wire_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-sql-driver/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// TestScripts runs testdata/sql/<topic>/<case>.slt as clients would, each against a warehouse of its own in memory:
//
//	exec [session=NAME]    a statement; its result is the number of rows that it changed
//	query [session=NAME]   a statement with rows: one a line, tabs between columns, NULL for null
//	exec session=NAME blocks, query session=NAME blocks
//	                       a statement that has to wait for a lock: its result is "waits" when SHOW PROCESSLIST says that it does
//	await session=NAME     the result of the session's statement that waited
//	close session=NAME     ends the session's connection without a word
//	flush                  FLUSH TABLES
//	reopen                 stops the server and opens its folder again
//
// An error is a result too: its number, SQLSTATE and text.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/sql/*/*.slt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(filepath.Dir(f))+"/"+strings.TrimSuffix(filepath.Base(f), ".slt"), func(t *testing.T) {
			s := &scriptServer{t: t, fs: vfs.NewMem()}
			s.open()
			t.Cleanup(s.close)
			datadriven.RunTest(t, f, s.run)
		})
	}
}

type scriptServer struct {
	t        *testing.T
	fs       vfs.FS
	catalog  *catalog.Catalog
	server   *wire.Server
	served   chan error
	db       *sql.DB
	sessions map[string]*scriptSession
}

// scriptSession is a connection by its name.
type scriptSession struct {
	*sql.Conn
	id      uint32
	pending chan string // the result of the statement that waits; nil: none does
}

func (s *scriptServer) open() {
	ctx := context.Background()
	var err error
	if s.catalog, err = catalog.Open(ctx, "data", catalog.Options{FS: s.fs, SortKey: sqlplan.SortKey}); err != nil {
		s.t.Fatal(err)
	}
	s.server, err = wire.New(ctx, wire.Options{
		Catalog: s.catalog, Listen: "127.0.0.1:0", DrainTime: time.Second, MapError: dialect.ClientError,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.served = make(chan error, 1)
	go func() { s.served <- s.server.Serve() }()
	s.sessions = map[string]*scriptSession{}
	if s.db, err = sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/", s.server.Addr())); err != nil {
		s.t.Fatal(err)
	}
	s.db.SetMaxIdleConns(0)
}

func (s *scriptServer) close() {
	for _, c := range s.sessions {
		c.Close()
	}
	s.db.Close()
	if err := errors.Join(s.server.Shutdown(context.Background()), <-s.served, s.catalog.Close(context.Background())); err != nil {
		s.t.Error(err)
	}
}

// session gives a connection that uses database d.
func (s *scriptServer) session(d *datadriven.TestData) *scriptSession {
	name := "main"
	d.MaybeScanArgs(s.t, "session", &name)
	c := s.sessions[name]
	if c == nil {
		ctx := context.Background()
		conn, err := s.db.Conn(ctx)
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		c = &scriptSession{Conn: conn}
		if err := c.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&c.id); err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		for _, q := range []string{"CREATE DATABASE IF NOT EXISTS d", "USE d"} {
			if _, err := c.ExecContext(ctx, q); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
		}
		s.sessions[name] = c
	}
	return c
}

// statement runs one statement of a session and gives its result.
func (c *scriptSession) statement(ctx context.Context, cmd, text string) string {
	if cmd == "query" {
		out, err := rowsText(ctx, c.Conn, text)
		if err != nil {
			return errorText(err)
		}
		return out
	}
	r, err := c.ExecContext(ctx, text)
	if err != nil {
		return errorText(err)
	}
	switch n, _ := r.RowsAffected(); n {
	case 0:
		return "ok"
	case 1:
		return "1 row"
	default:
		return fmt.Sprintf("%d rows", n)
	}
}

// waitsForLock tells whether a connection waits for a lock.
func (s *scriptServer) waitsForLock(ctx context.Context, id uint32) bool {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ? AND (STATE LIKE '%lock')", id).Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n > 0
}

// block starts a statement that has to wait.
func (s *scriptServer) block(ctx context.Context, c *scriptSession, cmd, text string) string {
	c.pending = make(chan string, 1)
	go func(done chan<- string) { done <- c.statement(ctx, cmd, text) }(c.pending)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case out := <-c.pending:
			c.pending = nil
			return "does not wait: " + out
		default:
		}
		if s.waitsForLock(ctx, c.id) {
			return "waits"
		}
	}
	return "neither waits nor ends"
}

func (s *scriptServer) run(t *testing.T, d *datadriven.TestData) string {
	ctx := context.Background()
	switch d.Cmd {
	case "exec", "query":
		c := s.session(d)
		if c.pending != nil {
			d.Fatalf(t, "the session's last statement waits")
		}
		if d.HasArg("blocks") {
			return s.block(ctx, c, d.Cmd, d.Input)
		}
		return c.statement(ctx, d.Cmd, d.Input)
	case "await":
		c := s.session(d)
		select {
		case out := <-c.pending:
			c.pending = nil
			return out
		case <-time.After(10 * time.Second):
			return "waits still"
		}
	case "close":
		c := s.session(d)
		if err := c.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
			d.Fatalf(t, "%v", err)
		}
		name := ""
		d.ScanArgs(t, "session", &name)
		delete(s.sessions, name)
		return "ok"
	case "flush":
		if err := s.catalog.Flush(ctx, "test"); err != nil {
			return errorText(err)
		}
		return "ok"
	case "reopen":
		s.close()
		s.open()
		return "ok"
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

func errorText(err error) string {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return fmt.Sprintf("ERROR %d (%s): %s", e.Number, e.SQLState[:], e.Message)
	}
	return "ERROR: " + err.Error()
}

func rowsText(ctx context.Context, c *sql.Conn, query string) (string, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for rows.Next() {
		cells := make([]any, len(cols))
		for i := range cells {
			cells[i] = new(sql.RawBytes)
		}
		if err := rows.Scan(cells...); err != nil {
			return "", err
		}
		for i, c := range cells {
			if i > 0 {
				b.WriteByte('\t')
			}
			if v := *c.(*sql.RawBytes); v == nil {
				b.WriteString("NULL")
			} else {
				b.Write(v)
			}
		}
		b.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	if b.Len() == 0 {
		return "no rows", nil
	}
	return b.String(), nil
}
