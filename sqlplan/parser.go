package sqlplan

import (
	"context"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// parser stands over the parser of package dialect and adds what needs a catalog: meta columns and FLUSH TABLES.
type parser struct {
	sql.Parser
	engine *Engine
}

func (p *parser) ParseSimple(query string) (ast.Statement, error) {
	stmt, err := p.Parser.ParseSimple(query)
	if err != nil {
		return nil, err
	}
	return p.patch(context.Background(), stmt)
}

func (p *parser) Parse(ctx *sql.Context, query string, multi bool) (ast.Statement, string, string, error) {
	stmt, text, rest, err := p.Parser.Parse(ctx, query, multi)
	if err == nil {
		stmt, err = p.patch(ctx, stmt)
	}
	return stmt, text, rest, err
}

func (p *parser) ParseWithOptions(ctx context.Context, query string, delimiter rune, multi bool, o ast.ParserOptions) (ast.Statement, string, string, error) {
	stmt, text, rest, err := p.Parser.ParseWithOptions(ctx, query, delimiter, multi, o)
	if err == nil {
		stmt, err = p.patch(ctx, stmt)
	}
	return stmt, text, rest, err
}

func (p *parser) ParseOneWithOptions(ctx context.Context, query string, o ast.ParserOptions) (ast.Statement, int, error) {
	stmt, n, err := p.Parser.ParseOneWithOptions(ctx, query, o)
	if err == nil {
		stmt, err = p.patch(ctx, stmt)
	}
	return stmt, n, err
}

func (p *parser) patch(ctx context.Context, stmt ast.Statement) (ast.Statement, error) {
	if c, ok := ctx.(*sql.Context); ok {
		sessionOf(c).note(stmt)
		sessionOf(c).lockView(stmt)
		if h := sessionOf(c).held; h != nil {
			if _, again := stmt.(*ast.LockTables); !again {
				if err := h.checkAliases(stmt); err != nil {
					return ast.InjectedStatement{Statement: refused{err}, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}, nil
				}
			}
		}
	}
	if next, err := p.nextOf(stmt); next != nil || err != nil {
		return next, err
	}
	if start := snapshotOf(stmt); start != nil {
		return start, nil
	}
	if next := chainOf(stmt); next != nil {
		return next, nil
	}
	if own := p.maintenanceOf(ctx, stmt); own != nil {
		return own, nil
	}
	if own := p.droppedOf(ctx, stmt); own != nil {
		return own, nil
	}
	if f, ok := stmt.(*ast.Flush); ok {
		name := strings.ToLower(f.Option.Name)
		if name == "table" || name == "tables" || strings.HasPrefix(name, "tables ") {
			return ast.InjectedStatement{Statement: flushStatement{p.engine.catalog, f.Option.ReadLock, f.Option.Tables}, Auth: f.Auth}, nil
		}
		return stmt, nil
	}
	if in, ok := stmt.(*ast.Insert); ok {
		p.ignoreGenerated(ctx, in)
	}
	if d, ok := stmt.(*ast.DDL); ok && d.Action == ast.TruncateStr {
		if c, ok := ctx.(*sql.Context); ok {
			sessionOf(c).truncate(d.Table.Name.String())
		}
	}
	if c, ok := ctx.(*sql.Context); ok {
		own, err := p.renamesOf(c, stmt)
		if err != nil || own != nil {
			return own, err
		}
		if own := p.clausesOf(stmt); own != nil {
			return own, nil
		}
		dialect.EachStatement(stmt, func(stmt ast.Statement) {
			switch n := stmt.(type) {
			case *ast.Insert:
				p.engine.nameColumn(c, n)
			case *ast.Delete:
				keepDelete(c, n)
			}
		})
	}
	return p.metaColumns(ctx, stmt)
}

// nameColumn makes INSERT INTO t () VALUES () name a column and its default: the front end computes the other defaults of a row
// only if the statement leaves out columns by name.
func (e *Engine) nameColumn(ctx *sql.Context, n *ast.Insert) {
	values, ok := n.Rows.(*ast.AliasedValues)
	if !ok || len(n.Columns) > 0 || slices.ContainsFunc(values.Values, func(row ast.ValTuple) bool { return len(row) > 0 }) {
		return
	}
	t, err := e.tableOf(ctx, n.Table.DbQualifier.String(), n.Table.Name.String())
	if err != nil || t == nil {
		return // the statement fails for that reason later
	}
	for _, col := range t.def.pk.Schema {
		if col.Generated == nil && (col.Nullable || col.Default != nil || col.AutoIncrement) {
			n.Columns = ast.Columns{ast.NewColIdent(col.Name)}
			for i := range values.Values {
				values.Values[i] = ast.ValTuple{&ast.Default{}}
			}
			return
		}
	}
}

// keepDelete keeps the front end from truncating a table of another database for a DELETE without WHERE: it looks for the triggers and
// foreign keys of the table in the session's database, and fails if there is none.
func keepDelete(ctx *sql.Context, n *ast.Delete) {
	if n.Where != nil || n.Limit != nil || len(n.OrderBy) > 0 || len(n.Targets) > 0 || len(n.TableExprs) != 1 {
		return
	}
	t, ok := n.TableExprs[0].(*ast.AliasedTableExpr)
	if !ok {
		return
	}
	if name, ok := t.Expr.(ast.TableName); ok && !name.DbQualifier.IsEmpty() && !strings.EqualFold(name.DbQualifier.String(), ctx.GetCurrentDatabase()) {
		n.Limit = &ast.Limit{Rowcount: ast.NewIntVal([]byte("9223372036854775807"))}
	}
}

// truncate notes that the statement truncates a table.
func (s *Session) truncate(name string) {
	if s.stmt.truncates == nil {
		s.stmt.truncates = map[string]bool{}
	}
	s.stmt.truncates[strings.ToLower(name)] = true
}

// flushStatement is FLUSH TABLES.
type flushStatement struct {
	c    *catalog.Catalog
	lock bool // WITH READ LOCK
	// tables are those that are locked; none: all. All are flushed, so that other engines see one cut.
	tables []ast.TableName
}

func (f flushStatement) WithResolvedChildren(context.Context, []any) (any, error) {
	return &flushTables{f}, nil
}

// flushTables writes what waits in the hot tier as Hudi instants, so that other engines see one cut over all tables.
type flushTables struct{ flushStatement }

var _ sql.ExecSourceRel = (*flushTables)(nil)

func (f *flushTables) Resolved() bool                 { return true }
func (f *flushTables) IsReadOnly() bool               { return true }
func (f *flushTables) String() string                 { return "FLUSH TABLES" }
func (f *flushTables) Schema(*sql.Context) sql.Schema { return types.OkResultSchema }
func (f *flushTables) Children() []sql.Node           { return nil }

func (f *flushTables) WithChildren(_ *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(f, len(children), 0)
	}
	return f, nil
}

func (f *flushTables) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	if f.lock { // before, so that the files hold what the client reads until it unlocks
		if err := sessionOf(ctx).lockForFlush(ctx, f.tables); err != nil {
			return nil, err
		}
	}
	if err := f.c.Flush(ctx, "FLUSH TABLES"); err != nil {
		return nil, mysqlError(err)
	}
	return sql.RowsToRowIter(sql.NewRow(types.NewOkResult(0))), nil
}
