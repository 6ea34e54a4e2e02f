package dialect

import (
	"fmt"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// rollup rewrites a SELECT with GROUP BY … WITH ROLLUP into a union of one SELECT for each length
// of the list of groups, from all groups to none:
//
//	SELECT c1 AS a, c2 AS total FROM (
//	  SELECT a c1, SUM(b) c2, 0 r1, a g1 FROM t GROUP BY a UNION ALL
//	  SELECT NULL,  SUM(b),   1,    NULL FROM t HAVING COUNT(*) > 0) q ORDER BY r1, g1
//
// It is done for a plain SELECT at the top of the statement; nil, nil leaves any other to fail.
func (m *mender) rollup() (ast.Statement, error) {
	at := -1
	for i := range m.ts {
		if m.is(i, "WITH") && m.is(i+1, "ROLLUP") {
			if at >= 0 {
				return nil, nil
			}
			at = i
		}
	}
	if at < 0 || !m.is(0, "SELECT") && !m.is(0, "WITH") {
		return nil, nil
	}
	b := blanks{text: m.text}
	b.blank(m.ts[at].Pos, m.ts[at+1].End)
	m.text = b.String()
	m.numbered()
	r := rollup{m: m}
	return r.statement()
}

type rollup struct {
	m       *mender
	names   []string // the result's columns
	columns []string // the text of their expressions
	groups  int
}

// plain parses the statement without ROLLUP; each call gives a tree of its own.
func (r *rollup) plain() (*ast.Select, error) {
	stmt, err := r.m.parse(r.m.text)
	if err != nil {
		return nil, err
	}
	s, ok := stmt.(*ast.Select)
	if !ok || len(s.GroupBy) == 0 || s.Into != nil || len(s.Window) > 0 || s.QueryOpts.Distinct {
		return nil, nil
	}
	return s, nil
}

func (r *rollup) statement() (ast.Statement, error) {
	s, err := r.plain()
	if s == nil || err != nil {
		return nil, err
	}
	r.groups = len(s.GroupBy)
	for _, e := range s.SelectExprs {
		a, ok := e.(*ast.AliasedExpr)
		if !ok {
			return nil, nil // SELECT *
		}
		text := ast.String(a.Expr)
		n := a.As.String()
		if n == "" {
			if c, ok := a.Expr.(*ast.ColName); ok {
				n = c.Name.String()
			} else if n = a.InputExpression; n == "" {
				n = text
			}
		}
		r.names, r.columns = append(r.names, n), append(r.columns, text)
	}
	outer := &ast.Select{With: s.With, Limit: s.Limit, Lock: s.Lock}
	for _, o := range s.OrderBy {
		c := r.orderColumn(o.Expr)
		if c == "" {
			return nil, nil
		}
		outer.OrderBy = append(outer.OrderBy, &ast.Order{Expr: column(c), Direction: o.Direction})
	}
	if len(s.OrderBy) == 0 {
		for g := range r.groups {
			outer.OrderBy = append(outer.OrderBy,
				&ast.Order{Expr: column(fmt.Sprintf("r%d", g+1)), Direction: ast.AscScr},
				&ast.Order{Expr: column(fmt.Sprintf("g%d", g+1)), Direction: ast.AscScr})
		}
	}
	var union ast.SelectStatement
	for kept := r.groups; kept >= 0; kept-- {
		branch, err := r.branch(kept)
		if branch == nil || err != nil {
			return nil, err
		}
		if union == nil {
			union = branch
		} else {
			union = &ast.SetOp{Type: ast.UnionAllStr, Left: union, Right: branch}
		}
	}
	outer.From = ast.TableExprs{&ast.AliasedTableExpr{
		Expr: &ast.Subquery{Select: union}, As: ast.NewTableIdent("__lakesql_rollup"),
		Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE},
	}}
	for i, n := range r.names {
		outer.SelectExprs = append(outer.SelectExprs, &ast.AliasedExpr{Expr: column(fmt.Sprintf("c%d", i+1)), As: ast.NewColIdent(n)})
	}
	return outer, nil
}

func column(name string) *ast.ColName { return &ast.ColName{Name: ast.NewColIdent(name)} }

// orderColumn gives the column of the union for an entry of ORDER BY, "" if it is none.
func (r *rollup) orderColumn(e ast.Expr) string {
	if v, ok := e.(*ast.SQLVal); ok && v.Type == ast.IntVal {
		for i := range r.names {
			if string(v.Val) == fmt.Sprint(i+1) {
				return fmt.Sprintf("c%d", i+1)
			}
		}
		return ""
	}
	text := ast.String(e)
	for i, n := range r.names {
		if strings.EqualFold(strings.Trim(text, "`"), n) || text == r.columns[i] {
			return fmt.Sprintf("c%d", i+1)
		}
	}
	return ""
}

// branch is the SELECT that keeps the first groups and sums over the others.
func (r *rollup) branch(kept int) (*ast.Select, error) {
	s, err := r.plain()
	if s == nil || err != nil {
		return nil, err
	}
	groups := make([]ast.Expr, r.groups) // as expressions over the tables
	for i, g := range s.GroupBy {
		groups[i] = r.resolve(s, g)
		if groups[i] == nil {
			return nil, nil
		}
	}
	dropped := map[string]bool{}
	for _, g := range groups[kept:] {
		dropped[ast.String(g)] = true
	}
	grouping := map[string]bool{}
	for i, g := range groups {
		grouping[ast.String(g)] = i >= kept
	}
	var out ast.SelectExprs
	for i, e := range s.SelectExprs {
		a := e.(*ast.AliasedExpr) // plain's were checked
		out = append(out, &ast.AliasedExpr{Expr: superAggregate(a.Expr, dropped, grouping), As: ast.NewColIdent(fmt.Sprintf("c%d", i+1))})
	}
	for i, g := range groups {
		flag := "0"
		var value ast.Expr = g
		if i >= kept {
			flag, value = "1", &ast.NullVal{}
		}
		out = append(out,
			&ast.AliasedExpr{Expr: ast.NewIntVal([]byte(flag)), As: ast.NewColIdent(fmt.Sprintf("r%d", i+1))},
			&ast.AliasedExpr{Expr: value, As: ast.NewColIdent(fmt.Sprintf("g%d", i+1))})
	}
	if s.Having != nil {
		aliases := map[string]ast.Expr{}
		for _, e := range s.SelectExprs {
			if a := e.(*ast.AliasedExpr); !a.As.IsEmpty() {
				aliases[a.As.Lowered()] = a.Expr
			}
		}
		s.Having.Expr = superAggregate(unalias(s.Having.Expr, aliases), dropped, grouping)
	}
	if kept == 0 {
		// Over no rows there is no sum of all.
		some := &ast.ComparisonExpr{
			Operator: ast.GreaterThanStr, Right: ast.NewIntVal([]byte("0")),
			Left: &ast.FuncExpr{Name: ast.NewColIdent("count"), Exprs: ast.SelectExprs{&ast.StarExpr{}}},
		}
		if s.Having == nil {
			s.Having = ast.NewWhere(ast.HavingStr, some)
		} else {
			s.Having.Expr = &ast.AndExpr{Left: some, Right: &ast.ParenExpr{Expr: s.Having.Expr}}
		}
	}
	s.SelectExprs, s.GroupBy = out, nil
	for _, g := range groups[:kept] {
		s.GroupBy = append(s.GroupBy, g)
	}
	s.With, s.OrderBy, s.Limit, s.Lock = nil, nil, nil, nil
	return s, nil
}

// resolve gives the expression that an entry of GROUP BY stands for: a column's number, the name
// of a column of the result, or itself.
func (r *rollup) resolve(s *ast.Select, g ast.Expr) ast.Expr {
	switch g := g.(type) {
	case *ast.SQLVal:
		for i, e := range s.SelectExprs {
			if g.Type == ast.IntVal && string(g.Val) == fmt.Sprint(i+1) {
				return e.(*ast.AliasedExpr).Expr
			}
		}
		return nil
	case *ast.ColName:
		if g.Qualifier.IsEmpty() {
			for _, e := range s.SelectExprs {
				if a := e.(*ast.AliasedExpr); a.As.EqualString(g.Name.String()) {
					return a.Expr
				}
			}
		}
	}
	return g
}

// unalias puts the expressions of the result's columns in place of their names.
func unalias(e ast.Expr, aliases map[string]ast.Expr) ast.Expr {
	return substitute(e, func(x ast.Expr) ast.Expr {
		if c, ok := x.(*ast.ColName); ok && c.Qualifier.IsEmpty() {
			return aliases[c.Name.Lowered()]
		}
		return nil
	}, false)
}

// superAggregate makes an expression that of a row over several groups: what was grouped by is
// NULL there, but not inside of aggregate functions, and GROUPING() says so.
func superAggregate(e ast.Expr, dropped, grouping map[string]bool) ast.Expr {
	return substitute(e, func(x ast.Expr) ast.Expr {
		if f, ok := x.(*ast.FuncExpr); ok && f.Name.Lowered() == "grouping" && len(f.Exprs) == 1 {
			if a, ok := f.Exprs[0].(*ast.AliasedExpr); ok {
				if over, known := grouping[ast.String(a.Expr)]; known && over {
					return ast.NewIntVal([]byte("1"))
				} else if known {
					return ast.NewIntVal([]byte("0"))
				}
			}
		}
		if dropped[ast.String(x)] {
			return &ast.NullVal{}
		}
		return nil
	}, true)
}

// substitute replaces parts of an expression, outermost first; with stop it leaves aggregate
// functions and subqueries as they are.
func substitute(root ast.Expr, by func(ast.Expr) ast.Expr, stop bool) ast.Expr {
	if to := by(root); to != nil {
		return to
	}
	type change struct{ from, to ast.Expr }
	var changes []change
	_ = ast.Walk(func(n ast.SQLNode) (bool, error) { // the visitor returns no error
		switch n := n.(type) {
		case *ast.Subquery:
			return false, nil
		case *ast.GroupConcatExpr:
			return !stop, nil
		case ast.Expr:
			if to := by(n); to != nil {
				changes = append(changes, change{n, to})
				return false, nil
			}
			if f, ok := n.(*ast.FuncExpr); ok && stop && f.IsAggregate() {
				return false, nil
			}
		}
		return true, nil
	}, root)
	for _, c := range changes {
		root = ast.ReplaceExpr(root, c.from, c.to)
	}
	return root
}
