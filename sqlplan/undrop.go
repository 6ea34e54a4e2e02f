package sqlplan

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// dropRetentionVariable is the global variable that says for how many seconds dropped tables and databases can be brought back.
const dropRetentionVariable = "lakesql_drop_retention"

// dropRetentionMax is ten years in seconds.
const dropRetentionMax = 315_360_000

func dropRetentionOption() sql.SystemVariable {
	return &sql.MysqlSystemVariable{
		Name:    dropRetentionVariable,
		Scope:   sql.GetMysqlScope(sql.SystemVariableScope_Global),
		Dynamic: true,
		Type:    types.NewSystemIntType(dropRetentionVariable, 0, dropRetentionMax, false),
		Default: int64(24 * 60 * 60),
	}
}

// dropRetention gives the retention of what a statement drops in a catalog.
func (s *Session) dropRetention(ctx *sql.Context, c *catalog.Catalog) time.Duration {
	if c != s.engine.catalog {
		return 0
	}
	_, v, ok := sql.SystemVariables.GetGlobal(dropRetentionVariable)
	if n, isInt := v.(int64); ok && isInt && n > 0 {
		return time.Duration(n) * time.Second
	}
	return -1
}

// undrop is UNDROP TABLE or UNDROP DATABASE.
type undrop struct {
	statementNode
	engine       *Engine
	db, name, as string // name "": the database
}

// showDropped is SHOW DROPPED TABLES.
type showDropped struct {
	statementNode
	engine *Engine
	db     string // "": of all databases
}

// droppedOf reads these statements, which the parser of package dialect writes as calls; nil: stmt is another.
func (p *parser) droppedOf(ctx context.Context, stmt ast.Statement) ast.Statement {
	call, ok := stmt.(*ast.Call)
	if !ok {
		return nil
	}
	words := make([]string, 0, len(call.Params))
	for _, e := range call.Params {
		v, ok := e.(*ast.SQLVal)
		if !ok {
			return nil
		}
		words = append(words, string(v.Val))
	}
	current := ""
	if c, ok := ctx.(*sql.Context); ok {
		current = c.GetCurrentDatabase()
	}
	name := call.ProcName.Name.String()
	auth := ast.AuthInformation{AuthType: ast.AuthType_CREATE, TargetType: ast.AuthTargetType_DatabaseIdentifiers}
	switch {
	case name == dialect.UndropTable && len(words) == 3:
		u := &undrop{statementNode: "UNDROP TABLE", engine: p.engine, db: words[0], name: words[1], as: words[2]}
		if u.db == "" {
			u.db = current
		}
		auth.TargetNames = []string{u.db}
		return ast.InjectedStatement{Statement: u, Auth: auth}
	case name == dialect.UndropDatabase && len(words) == 1:
		auth.TargetNames = []string{words[0]}
		return ast.InjectedStatement{Statement: &undrop{statementNode: "UNDROP DATABASE", engine: p.engine, db: words[0]}, Auth: auth}
	case name == dialect.ShowDropped && len(words) == 1:
		return ast.InjectedStatement{
			Statement: &showDropped{statementNode: "SHOW DROPPED TABLES", engine: p.engine, db: words[0]},
			Auth:      ast.AuthInformation{AuthType: ast.AuthType_IGNORE},
		}
	}
	return nil
}

var (
	_ sql.ExecSourceRel = (*undrop)(nil)
	_ sql.ExecSourceRel = (*showDropped)(nil)
)

// WithResolvedChildren implements ast.Injectable.
func (u *undrop) WithResolvedChildren(context.Context, []any) (any, error)      { return u, nil }
func (s *showDropped) WithResolvedChildren(context.Context, []any) (any, error) { return s, nil }

func (u *undrop) IsReadOnly() bool                                              { return false }
func (u *undrop) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error)      { return u, nil }
func (s *showDropped) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error) { return s, nil }

// RowIter implements sql.ExecSourceRel.
func (u *undrop) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	if err := sessionOf(ctx).commitBeforeDDL(ctx); err != nil {
		return nil, err
	}
	c := u.engine.catalog
	defer u.engine.forgetReferences()
	if u.name == "" {
		err := c.UndropDatabase(ctx, u.db)
		switch {
		case errors.Is(err, catalog.ErrExists):
			if _, _, ok := c.Database(u.db); ok {
				return nil, sql.ErrDatabaseExists.New(u.db)
			}
		case errors.Is(err, catalog.ErrExpired):
			return nil, mysql.NewSQLError(mysql.ERBadDb, "42000", "Unknown database '%s': no dropped database of that name is kept (see SHOW DROPPED TABLES)", u.db)
		case err == nil:
			return okRows(1), nil
		}
		return nil, mysqlError(err)
	}
	if u.db == "" {
		return nil, sql.ErrNoDatabaseSelected.New()
	}
	as := u.as
	if as == "" {
		as = u.name
	}
	if o, err := u.engine.tableOf(ctx, u.db, as); err == nil && o != nil {
		return nil, sql.ErrTableAlreadyExists.New(as)
	}
	_, err := c.Undrop(ctx, u.db, u.name, u.as)
	switch {
	case errors.Is(err, catalog.ErrExists):
		return nil, sql.ErrTableAlreadyExists.New(as)
	case errors.Is(err, catalog.ErrNotFound):
		return nil, sql.ErrDatabaseNotFound.New(u.db)
	case errors.Is(err, catalog.ErrExpired):
		return nil, mysql.NewSQLError(mysql.ERNoSuchTable, "42S02", "Table '%s.%s' was not dropped, or it is not kept any more (see SHOW DROPPED TABLES)", u.db, u.name)
	case err != nil:
		return nil, mysqlError(err)
	}
	return okRows(0), nil
}

// Schema implements sql.Node.
func (s *showDropped) Schema(*sql.Context) sql.Schema {
	text := types.MustCreateString(sqltypes.VarChar, 64, sql.Collation_utf8mb4_0900_ai_ci)
	stamp := types.MustCreateDatetimeType(sqltypes.Datetime, 6)
	return sql.Schema{
		{Name: "Database", Type: text},
		{Name: "Table", Type: text},
		{Name: "Dropped_at", Type: stamp},
		{Name: "Kept_until", Type: stamp},
		{Name: "Rows", Type: types.Int64},
		{Name: "Bytes", Type: types.Int64},
	}
}

// RowIter implements sql.ExecSourceRel.
func (s *showDropped) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	list, err := s.engine.catalog.Dropped()
	if err != nil {
		return nil, mysqlError(err)
	}
	loc, err := sessionOf(ctx).zone(ctx)
	if err != nil {
		return nil, err
	}
	now := s.engine.catalog.Clock().Near()
	var rows []sql.Row
	for _, d := range list {
		if s.db != "" && !strings.EqualFold(s.db, d.Database) || !d.Until.After(now) {
			continue
		}
		rows = append(rows, sql.NewRow(d.Database, d.Name, clockOf(d.At, loc), clockOf(d.Until, loc), d.Rows, d.Bytes))
	}
	return sql.RowsToRowIter(rows...), nil
}
