package sqlplan

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// testEngine is an engine over a warehouse in memory.
type testEngine struct {
	*Engine
	t  testing.TB
	fs vfs.FS
}

func newTestEngine(t testing.TB) *testEngine {
	t.Helper()
	return openTestEngine(t, vfs.NewMem())
}

func openTestEngine(t testing.TB, fs vfs.FS) *testEngine {
	t.Helper()
	ctx := context.Background()
	c, err := catalog.Open(ctx, "data", catalog.Options{FS: fs, SortKey: SortKey})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(ctx, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &testEngine{Engine: e, t: t, fs: fs}
}

// testSession is one client of a testEngine.
type testSession struct {
	e       *testEngine
	session *Session
}

// session gives a client that uses database d, which is made if need be.
func (e *testEngine) session() *testSession {
	e.t.Helper()
	s, err := e.NewSession(context.Background(), nil, "test")
	if err != nil {
		e.t.Fatal(err)
	}
	ts := &testSession{e: e, session: s.(*Session)}
	ts.exec("CREATE DATABASE IF NOT EXISTS d")
	ts.exec("USE d")
	return ts
}

func (s *testSession) run(query string) (sql.Schema, []sql.Row, error) {
	ctx := s.e.NewContext(context.Background(), sql.WithSession(s.session), sql.WithQuery(query))
	s.session.CommandBegin()
	defer s.session.CommandEnd()
	sch, iter, _, err := s.e.SQL().Query(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	var rows []sql.Row
	for {
		r, err := iter.Next(ctx)
		if err == io.EOF {
			return sch, rows, iter.Close(ctx)
		}
		if err != nil {
			iter.Close(ctx)
			return nil, nil, err
		}
		rows = append(rows, r)
	}
}

// exec runs statements that must not fail.
func (s *testSession) exec(queries ...string) {
	s.e.t.Helper()
	for _, q := range queries {
		if _, _, err := s.run(q); err != nil {
			s.e.t.Fatalf("%s: %v", q, err)
		}
	}
}

// fails runs a statement that must fail, with that text in its error.
func (s *testSession) fails(query, text string) {
	s.e.t.Helper()
	_, _, err := s.run(query)
	if err == nil {
		s.e.t.Fatalf("%s: no error", query)
	}
	e := sql.CastSQLError(err)
	if got := fmt.Sprintf("%d %s", e.Num, err); !strings.Contains(got, text) {
		s.e.t.Fatalf("%s: error %q lacks %q", query, got, text)
	}
}

// table gives the result of a query as text: a line a row, values separated by a bar.
func (s *testSession) table(query string) string {
	s.e.t.Helper()
	sch, rows, err := s.run(query)
	if err != nil {
		s.e.t.Fatalf("%s: %v", query, err)
	}
	ctx := s.e.NewContext(context.Background(), sql.WithSession(s.session))
	var b strings.Builder
	for _, r := range rows {
		for i, v := range r {
			if i > 0 {
				b.WriteByte('|')
			}
			if v == nil {
				b.WriteString("NULL")
				continue
			}
			sv, err := sch[i].Type.SQL(ctx, nil, v)
			if err != nil {
				fmt.Fprint(&b, v)
				continue
			}
			b.WriteString(sv.ToString())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// want compares the result of a query with lines.
func (s *testSession) want(query string, lines ...string) {
	s.e.t.Helper()
	got := s.table(query)
	want := ""
	for _, l := range lines {
		want += l + "\n"
	}
	if got != want {
		s.e.t.Fatalf("%s:\n%swant:\n%s", query, got, want)
	}
}
