package dialect

import (
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// TestLocks parses statements and compares which tables get which locks, in the order in which they stand.
func TestLocks(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"SELECT * FROM t", ""},
		{"SELECT * FROM t FOR UPDATE", "t:X"},
		{"SELECT * FROM t LOCK IN SHARE MODE", "t:S"},
		{"SELECT * FROM t FOR SHARE", "t:S"},
		{"SELECT * FROM t AS x JOIN d.u ON x.a = u.a FOR UPDATE NOWAIT", "t:X nowait u:X nowait"},
		{"SELECT * FROM t x, u FOR UPDATE OF x SKIP LOCKED", "t:X skip"},
		{"SELECT * FROM t x, u y FOR UPDATE OF x FOR SHARE OF y NOWAIT", "t:X u:S nowait"},
		{"SELECT * FROM t, u FOR SHARE OF u", "u:S"},
		{"SELECT * FROM (SELECT * FROM t) d FOR UPDATE", ""},
		{"SELECT * FROM (SELECT * FROM t FOR SHARE SKIP LOCKED) d, u FOR UPDATE", "t:S skip u:X"},
		{"SELECT * FROM t WHERE a IN (SELECT a FROM u FOR UPDATE)", "u:X"},
		{"WITH c AS (SELECT * FROM t FOR SHARE) SELECT * FROM c, u FOR UPDATE", "t:S c:X u:X"},
		{"INSERT INTO t SELECT * FROM u FOR SHARE", "u:S"},
		{"CREATE TABLE t SELECT * FROM u FOR UPDATE", "u:X"},
		{"UPDATE t SET a = (SELECT a FROM u FOR UPDATE NOWAIT)", "u:X nowait"},
		{"(SELECT * FROM t FOR UPDATE) UNION (SELECT * FROM u)", "t:X"},
		{"SELECT * FROM t UNION SELECT * FROM u FOR UPDATE", "t:X u:X"},
		{"SELECT a INTO @x FROM t FOR SHARE NOWAIT", "t:S nowait"},
		{"EXPLAIN SELECT * FROM t FOR SHARE", "t:S"},
		{"SELECT * FROM t AS OF '2026-11-30' FOR UPDATE", ""},
		{"CREATE VIEW v AS SELECT * FROM t FOR UPDATE", ""},
		{"CREATE PROCEDURE p() BEGIN SELECT * FROM t FOR UPDATE; END", "t:X"},
		{"CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.a = (SELECT a FROM u FOR UPDATE)", "u:X"},
		{"CREATE PROCEDURE p() BEGIN SELECT * FROM t FOR SHARE; END", "t:S"},
	} {
		stmt, _, _, err := (&Parser{}).Parse(sql.NewEmptyContext(), c.query, false)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var got []string
		seen := map[*ast.AliasedTableExpr]bool{}
		visit := func(n ast.SQLNode) (bool, error) {
			if t, ok := n.(*ast.AliasedTableExpr); ok && t != nil && !seen[t] {
				seen[t] = true
				if l, ok := t.Auth.Extra.(*RowLock); ok {
					got = append(got, l.Table+":"+l.Mode.String()+[...]string{"", " nowait", " skip"}[l.Wait])
				}
			}
			return true, nil
		}
		EachStatement(stmt, func(stmt ast.Statement) {
			var n ast.SQLNode = stmt
			if d, ok := stmt.(*ast.DDL); ok {
				if d.OptSelect == nil {
					return
				}
				n = d.OptSelect.Select
			}
			if s, ok := n.(*ast.Select); ok && s.With != nil {
				_ = ast.Walk(visit, s.With)
			}
			_ = ast.Walk(visit, n)
		})
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: locks %q, want %q", c.query, text, c.want)
		}
	}
}
