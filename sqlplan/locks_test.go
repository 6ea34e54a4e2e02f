package sqlplan

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
)

// readings lists the tables of a plan with what they are read for, sorted.
func readings(ctx *sql.Context, n sql.Node) string {
	var out []string
	note := func(t *table) {
		as := [...]string{"", ":source", ":target", ":parent", ":actions"}[t.reading]
		if t.lock != nil {
			as = ":" + t.lock.Mode.String()
		}
		out = append(out, t.Name()+as)
	}
	var walk func(sql.Node)
	var keys func(*plan.ForeignKeyEditor, map[*plan.ForeignKeyEditor]bool)
	keys = func(e *plan.ForeignKeyEditor, seen map[*plan.ForeignKeyEditor]bool) {
		if e == nil || seen[e] {
			return
		}
		seen[e] = true
		add := func(m *plan.ForeignKeyRowMapper) {
			ed := m.Updater.(*editor)
			t := *ed.table.table
			t.reading, t.lock = ed.reading, nil
			note(&t)
		}
		for _, r := range e.References {
			add(&r.RowMapper)
		}
		for _, a := range e.RefActions {
			add(a.RowMapper)
			keys(a.Editor, seen)
		}
	}
	walk = func(n sql.Node) {
		switch n := n.(type) {
		case *plan.ResolvedTable:
			if t := tableBehind(n.Table); t != nil {
				note(t)
			}
		case *plan.IndexedTableAccess:
			note(tableBehind(n.Table))
		case *plan.ForeignKeyHandler:
			keys(n.Editor, map[*plan.ForeignKeyEditor]bool{})
		case *plan.DeleteFrom:
			for _, t := range n.GetDeleteTargets() {
				if h, ok := t.(*plan.ForeignKeyHandler); ok {
					keys(h.Editor, map[*plan.ForeignKeyEditor]bool{})
				}
			}
		case *plan.UpdateJoin:
			for _, t := range n.UpdateTargets {
				if h, ok := t.(*plan.ForeignKeyHandler); ok {
					keys(h.Editor, map[*plan.ForeignKeyEditor]bool{})
				}
			}
		case *plan.InsertInto:
			if h, ok := n.Destination.(*plan.ForeignKeyHandler); ok {
				keys(h.Editor, map[*plan.ForeignKeyEditor]bool{})
			}
			walk(n.Source)
		}
		if e, ok := n.(sql.Expressioner); ok {
			for _, e := range e.Expressions() {
				sql.Inspect(ctx, e, func(_ *sql.Context, e sql.Expression) bool {
					if q, ok := e.(*plan.Subquery); ok {
						walk(q.Query)
					}
					return true
				})
			}
		}
		if _, insert := n.(*plan.InsertInto); insert {
			return
		}
		if _, access := n.(*plan.IndexedTableAccess); access {
			return
		}
		for _, c := range n.Children() {
			walk(c)
		}
	}
	walk(n)
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// TestReadings compares for what the tables of statements are read, which decides what is locked.
func TestReadings(t *testing.T) {
	s := newTestEngine(t).session()
	for _, q := range []string{
		"CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v))", "CREATE TABLE u (id INT PRIMARY KEY, v INT)", "CREATE TABLE w (id INT PRIMARY KEY, v INT)", "CREATE TABLE n (v INT)",
		"CREATE VIEW vt AS SELECT * FROM t", "CREATE VIEW vj AS SELECT t.id, u.v FROM t JOIN u ON t.id = u.id",
		"CREATE TABLE p (id INT PRIMARY KEY, v INT)", "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
		"CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))",
		"CREATE TABLE trg (id INT PRIMARY KEY, v INT)",
		"CREATE TRIGGER x AFTER INSERT ON trg FOR EACH ROW UPDATE u SET v = (SELECT MAX(v) FROM w) WHERE id = NEW.id",
		"INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1, 1)", "INSERT INTO w VALUES (1, 1)",
	} {
		s.exec(q)
	}
	for _, c := range []struct{ query, want string }{
		{"SELECT * FROM t, u WHERE t.id = u.id", "t u"},
		{"SELECT * FROM t JOIN u ON t.id = u.id FOR UPDATE", "t:X u:X"},
		{"SELECT * FROM t JOIN u ON t.id = u.id FOR SHARE OF u", "t u:S"},
		{"SELECT * FROM t WHERE id = 1 FOR UPDATE", "t:X"},
		{"SELECT * FROM t WHERE v = 1 FOR SHARE", "t:S"},
		{"SELECT * FROM vt FOR UPDATE", "t:X"},
		{"SELECT * FROM vj FOR SHARE", "t:S u:S"},
		{"SELECT * FROM vt WHERE id IN (SELECT id FROM u) FOR UPDATE", "t:X u"},
		{"SELECT * FROM (SELECT * FROM t) d FOR UPDATE", "t"},
		{"WITH c AS (SELECT * FROM t) SELECT * FROM c, u FOR UPDATE", "t u:X"},
		{"UPDATE t SET v = 2", "t:target"},
		{"UPDATE t SET v = 2 WHERE id = 1 OR v = 7", "t:target"},
		{"UPDATE t SET v = 2 WHERE v = 1", "t:target"},
		{"UPDATE t SET v = (SELECT MAX(v) FROM u)", "t:target u:source"},
		{"UPDATE t SET v = 2 WHERE id IN (SELECT id FROM u WHERE v > 0)", "t:target u:source"},
		{"UPDATE t SET v = 2 WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)", "t:target u:source"},
		{"UPDATE t JOIN u ON t.id = u.id SET t.v = u.v", "t:target u:source"},
		{"UPDATE t a JOIN t b ON a.id = b.v SET a.v = b.id", "t:source t:target"},
		{"UPDATE t JOIN u ON t.id = u.id SET t.v = 1, u.v = 2", "t:target u:target"},
		{"UPDATE n SET v = v + 1", "n:target"},
		{"DELETE FROM t WHERE v > 5", "t:target"},
		{"DELETE FROM t WHERE id IN (SELECT id FROM u)", "t:target u:source"},
		{"DELETE t FROM t JOIN u ON t.id = u.id", "t:target u:source"},
		{"DELETE t, u FROM t JOIN u ON t.id = u.id JOIN w ON w.id = u.id", "t:target u:target w:source"},
		{"INSERT INTO t SELECT id + 100, v FROM u", "u:source"},
		{"INSERT INTO t SELECT id + 100, v FROM u FOR UPDATE", "u:X"},
		{"INSERT INTO t VALUES (5, (SELECT MAX(v) FROM u)) ON DUPLICATE KEY UPDATE v = (SELECT MIN(v) FROM w)", "u:source w:source"},
		{"REPLACE INTO t SELECT * FROM vj", "t:source u:source"},
		{"INSERT INTO c VALUES (1, 1)", "p:parent"},
		{"UPDATE c SET p = 2 WHERE id = 1", "c:target p:parent"},
		{"DELETE FROM p WHERE id = 1", "c:actions p:target r:parent"},
		{"INSERT INTO trg VALUES (1, 1)", "u:target w:source"},
	} {
		ctx := s.e.NewContext(context.Background(), sql.WithSession(s.session), sql.WithQuery(c.query))
		s.session.CommandBegin()
		n, err := s.e.SQL().AnalyzeQuery(ctx, c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got := readings(ctx, n); got != c.want {
			t.Errorf("%s: %s, want %s\n%s", c.query, got, c.want, sql.DebugString(ctx, n))
		}
		s.session.CommandEnd()
	}
}
