package sqlplan

import (
	"context"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/storage"
)

// Meta columns can be selected by name and are not in SELECT *. The front end has one kind of columns that a star leaves
// out: those whose name contains its own prefix. So the parser puts the prefix before the names of meta columns in a
// statement, and the tables of that statement offer columns of such names (see newTable). Other statements see tables
// without them.

// metaColumns marks the meta columns of tables in a statement. A column of that name that comes out of a subquery, a common
// table expression or a view is an ordinary one.
func (p *parser) metaColumns(ctx context.Context, stmt ast.Statement) (ast.Statement, error) {
	// The walk of the front end's tree does not go into these.
	switch s := stmt.(type) {
	case *ast.Explain:
		_, err := p.metaColumns(ctx, s.Statement)
		return stmt, err
	case *ast.DDL:
		if s.ViewSpec != nil && s.ViewSpec.ViewExpr != nil {
			if _, err := p.metaColumns(ctx, s.ViewSpec.ViewExpr); err != nil {
				return nil, err
			}
		}
		if s.OptSelect != nil && s.OptSelect.Select != nil {
			if err := p.markMeta(ctx, s.OptSelect.Select, s.Table.Name.String()); err != nil {
				return nil, err
			}
		}
		return stmt, nil
	case nil:
		return stmt, nil
	case *ast.Insert:
		return stmt, p.markMeta(ctx, s, s.Table.Name.String())
	}
	return stmt, p.markMeta(ctx, stmt, "")
}

// markMeta marks the meta columns of a statement that inserts into a table, "" if into none.
func (p *parser) markMeta(ctx context.Context, stmt ast.Statement, into string) error {
	if !namesMeta(stmt) {
		return nil
	}
	m := &metaMarker{engine: p.engine, into: strings.ToLower(into)}
	if c, ok := ctx.(*sql.Context); ok {
		m.ctx = c
	}
	if err := m.walk(stmt, nil); err != nil {
		return err
	}
	if m.found && m.ctx != nil {
		if m.into != "" && m.reads[m.into] {
			return errMetaSelf(m.into)
		}
		s := sessionOf(m.ctx)
		s.stmt.meta, s.stmt.into = true, m.into
	}
	return nil
}

// offersMeta says whether a table shows its meta columns to the running statement. The table of an INSERT does not, since
// the front end would ask for values of all its columns.
func (s *Session) offersMeta(table string) bool {
	return s.stmt.meta && !strings.EqualFold(s.stmt.into, table)
}

// namesMeta says whether a statement has a column of a meta column's name at all.
func namesMeta(stmt ast.Statement) bool {
	found := false
	look := func(n ast.SQLNode) (bool, error) {
		switch n := n.(type) {
		case *ast.ColName:
			if n != nil {
				_, ok := metaName(n.Name.String())
				found = found || ok
			}
		case *ast.Insert:
			if n != nil {
				found = found || slices.ContainsFunc(n.Columns, func(c ast.ColIdent) bool { _, ok := metaName(c.String()); return ok })
			}
		}
		return !found, nil
	}
	_ = ast.Walk(look, stmt) // look gives no error
	return found
}

// metaName gives the name of a meta column as tables spell it.
func metaName(name string) (string, bool) {
	if len(name) < 8 || !strings.EqualFold(name[:8], "_hoodie_") {
		return "", false
	}
	i := slices.IndexFunc(storage.MetaColumns, func(m string) bool { return strings.EqualFold(m, name) })
	if i < 0 {
		return "", false
	}
	return storage.MetaColumns[i], true
}

// metaMarker walks a statement.
type metaMarker struct {
	engine *Engine
	ctx    *sql.Context // nil: no session
	found  bool
	into   string          // the table of an INSERT, in lower case
	reads  map[string]bool // tables in FROM clauses, in lower case
}

// metaScope is the FROM clause that surrounds an expression.
type metaScope struct {
	up      *metaScope
	tables  map[string]bool // alias in lower case: true for a table, false for what is computed
	common  map[string]bool // names of common table expressions
	anyBase bool
}

func (s *metaScope) isCommon(name string) bool {
	for ; s != nil; s = s.up {
		if s.common[name] {
			return true
		}
	}
	return false
}

// base says whether a column belongs to a table.
func (s *metaScope) base(qualifier string) bool {
	for ; s != nil; s = s.up {
		if qualifier == "" {
			if len(s.tables) > 0 {
				return s.anyBase
			}
		} else if base, ok := s.tables[qualifier]; ok {
			return base
		}
	}
	return false
}

func (m *metaMarker) walk(node ast.SQLNode, scope *metaScope) error {
	return ast.Walk(func(n ast.SQLNode) (bool, error) { return m.visit(n, scope) }, node)
}

// below walks what stands in a statement, in the statement's own scope.
func (m *metaMarker) below(n ast.SQLNode, scope *metaScope) error {
	return ast.Walk(func(k ast.SQLNode) (bool, error) {
		if k == n {
			return true, nil
		}
		return m.visit(k, scope)
	}, n)
}

func (m *metaMarker) visit(n ast.SQLNode, scope *metaScope) (bool, error) {
	switch n := n.(type) {
	case *ast.Select:
		if n == nil {
			return false, nil
		}
		inner := m.scope(scope, n.With, n.From)
		for _, e := range n.SelectExprs {
			if a, ok := e.(*ast.AliasedExpr); ok && a.As.IsEmpty() {
				if c, ok := a.Expr.(*ast.ColName); ok {
					if name, ok := m.mark(c, inner); ok {
						a.As = ast.NewColIdent(name)
					}
				}
			}
		}
		return false, m.below(n, inner)
	case *ast.Update:
		if n == nil {
			return false, nil
		}
		for _, e := range n.Exprs {
			if name, ok := metaName(e.Name.Name.String()); ok {
				return false, errMetaWrite(name)
			}
		}
		inner := m.scope(scope, n.With, n.TableExprs)
		return false, m.below(n, inner)
	case *ast.Delete:
		if n == nil {
			return false, nil
		}
		inner := m.scope(scope, n.With, n.TableExprs)
		return false, m.below(n, inner)
	case *ast.Insert:
		if n == nil {
			return false, nil
		}
		for _, c := range n.Columns {
			if name, ok := metaName(c.String()); ok {
				return false, errMetaWrite(name)
			}
		}
	case *ast.ColName:
		if n != nil {
			m.mark(n, scope)
		}
	}
	return true, nil
}

// mark puts the prefix before a meta column of a table.
func (m *metaMarker) mark(c *ast.ColName, scope *metaScope) (string, bool) {
	name, ok := metaName(c.Name.String())
	if !ok || !scope.base(strings.ToLower(c.Qualifier.Name.String())) {
		return "", false
	}
	c.Name = ast.NewColIdent(metaPrefix + name)
	m.found = true
	return name, true
}

// scope makes the scope of a FROM clause.
func (m *metaMarker) scope(up *metaScope, with *ast.With, from ast.TableExprs) *metaScope {
	s := &metaScope{up: up, tables: map[string]bool{}}
	if with != nil {
		s.common = map[string]bool{}
		for _, c := range with.Ctes {
			if c.AliasedTableExpr != nil {
				s.common[strings.ToLower(c.As.String())] = true
			}
		}
	}
	for _, t := range from {
		m.addTable(s, t)
	}
	return s
}

func (m *metaMarker) addTable(s *metaScope, t ast.TableExpr) {
	switch t := t.(type) {
	case *ast.AliasedTableExpr:
		alias := strings.ToLower(t.As.String())
		name, ok := t.Expr.(ast.TableName)
		base := ok && !s.isCommon(strings.ToLower(name.Name.String())) && !m.isView(name)
		if base {
			if m.reads == nil {
				m.reads = map[string]bool{}
			}
			m.reads[strings.ToLower(name.Name.String())] = true
		}
		if ok && alias == "" {
			alias = strings.ToLower(name.Name.String())
		}
		s.tables[alias] = base
		s.anyBase = s.anyBase || base
	case *ast.JoinTableExpr:
		m.addTable(s, t.LeftExpr)
		m.addTable(s, t.RightExpr)
	case *ast.ParenTableExpr:
		for _, e := range t.Exprs {
			m.addTable(s, e)
		}
	case *ast.TableFuncExpr:
		alias := strings.ToLower(t.Alias.String())
		base := isTableFunction(t.Name)
		if alias == "" {
			alias = strings.ToLower(t.Name)
		}
		s.tables[alias] = base
		s.anyBase = s.anyBase || base
	}
}

// isView says whether a name in a FROM clause is one of a view.
func (m *metaMarker) isView(name ast.TableName) bool {
	db := name.DbQualifier.String()
	if db == "" && m.ctx != nil {
		db = m.ctx.GetCurrentDatabase()
	}
	want := strings.ToLower(name.Name.String())
	for _, o := range m.engine.catalog.Objects(kindView, db) {
		if o.Name == want {
			return true
		}
	}
	return false
}

// PrepareQuery keeps a parsed statement for EXECUTE, and whether it reads meta columns.
func (s *Session) PrepareQuery(query string, stmt ast.Statement) {
	delete(s.prepared, query)
	if s.stmt.meta {
		s.prepared[query] = ""
		if in, ok := stmt.(*ast.Insert); ok {
			s.prepared[query] = strings.ToLower(in.Table.Name.String())
		}
	}
	s.BaseSession.PrepareQuery(query, stmt)
}

func (s *Session) UnprepareQuery(query string) {
	delete(s.prepared, query)
	s.BaseSession.UnprepareQuery(query)
}

func (s *Session) GetPreparedQuery(query string) (ast.Statement, bool) {
	if into, ok := s.prepared[query]; ok {
		s.stmt.meta, s.stmt.into = true, into
	}
	stmt, ok := s.BaseSession.GetPreparedQuery(query)
	if ok {
		s.note(stmt)
	}
	return stmt, ok
}

// CacheQuery keeps a parsed statement by its text, as PrepareQuery does by its name.
func (s *Session) CacheQuery(query string, stmt ast.Statement) {
	if s.stmt.meta {
		return // seldom, and parsed again next time
	}
	s.BaseSession.CacheQuery(query, stmt)
}
