package sqlplan

import (
	"fmt"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// hudiQuery is the table function hudi_query('[database.]table', 'snapshot'|'read_optimized'): a table read as Hudi's query
// types say. A read-optimised query reads base files only.
type hudiQuery struct {
	engine *Engine
	db     sql.Database
	args   []sql.Expression
	table  *table
}

var (
	_ sql.TableFunction            = (*hudiQuery)(nil)
	_ sql.ExecSourceRel            = (*hudiQuery)(nil)
	_ sql.AuthorizationCheckerNode = (*hudiQuery)(nil)
)

func (f *hudiQuery) Name() string { return "hudi_query" }

func (f *hudiQuery) NewInstance(ctx *sql.Context, db sql.Database, args []sql.Expression) (sql.Node, error) {
	if len(args) != 2 {
		return nil, sql.ErrInvalidArgumentNumber.New(f.Name(), 2, len(args))
	}
	var texts [2]string
	for i, a := range args {
		if !a.Resolved() {
			return nil, sql.ErrInvalidArgument.New(f.Name())
		}
		v, err := a.Eval(ctx, nil)
		if err != nil {
			return nil, mysqlError(err)
		}
		s, _, err := types.LongText.Convert(ctx, v)
		if err != nil || s == nil {
			return nil, sql.ErrInvalidArgument.New(f.Name())
		}
		texts[i] = s.(string)
	}
	n := &hudiQuery{engine: f.engine, db: db, args: args}
	name, dbName := texts[0], ctx.GetCurrentDatabase()
	if d, t, ok := strings.Cut(name, "."); ok {
		dbName, name = d, t
	}
	if dbName == "" {
		return nil, sql.ErrNoDatabaseSelected.New()
	}
	p := provider{engine: f.engine}
	d, err := p.Database(ctx, strings.Trim(dbName, "`"))
	if err != nil {
		return nil, err
	}
	t, err := d.(*database).table(ctx, strings.Trim(name, "`"))
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, sql.ErrTableNotFound.New(name)
	}
	q := *t
	switch strings.ToLower(texts[1]) {
	case "snapshot":
	case "read_optimized":
		q.optimized = true
	default:
		return nil, sql.ErrInvalidArgumentDetails.New(f.Name(), fmt.Sprintf("'%s' is neither 'snapshot' nor 'read_optimized'", texts[1]))
	}
	n.table = &q
	n.db = d
	return n, nil
}

// CheckAuth asks for the right to read the table: the front end does not know that the function reads one.
func (f *hudiQuery) CheckAuth(ctx *sql.Context, checker sql.PrivilegedOperationChecker) bool {
	return checker.UserHasPrivileges(ctx, sql.NewPrivilegedOperation(
		sql.PrivilegeCheckSubject{Database: f.table.db.name, Table: f.table.Name()}, sql.PrivilegeType_Select))
}

func (f *hudiQuery) RowIter(ctx *sql.Context, row sql.Row) (sql.RowIter, error) {
	return f.table.scan(ctx, nil)
}

func (f *hudiQuery) Schema(*sql.Context) sql.Schema { return f.table.schema }
func (f *hudiQuery) Resolved() bool                 { return true }
func (f *hudiQuery) IsReadOnly() bool               { return true }
func (f *hudiQuery) Children() []sql.Node           { return nil }
func (f *hudiQuery) Expressions() []sql.Expression  { return f.args }
func (f *hudiQuery) Database() sql.Database         { return f.db }

func (f *hudiQuery) String() string {
	texts := make([]string, len(f.args))
	for i, a := range f.args {
		texts[i] = a.String()
	}
	return f.Name() + "(" + strings.Join(texts, ", ") + ")"
}

func (f *hudiQuery) WithDatabase(db sql.Database) (sql.Node, error) {
	n := *f
	n.db = db
	return &n, nil
}

func (f *hudiQuery) WithChildren(ctx *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(f, len(children), 0)
	}
	return f, nil
}

func (f *hudiQuery) WithExpressions(ctx *sql.Context, args ...sql.Expression) (sql.Node, error) {
	n := *f
	n.args = args
	return &n, nil
}
