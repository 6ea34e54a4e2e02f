package sqlplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// tableFunction is a table function whose first argument names a table, [database.]table, and which gives rows of it.
type tableFunction struct {
	engine   *Engine
	name     string
	min, max int // arguments
	// open says by the other arguments how the table is read.
	open func(f *tableFunction, t *table, args []string) error

	db    sql.Database
	args  []sql.Expression
	table *table
}

var (
	_ sql.TableFunction            = (*tableFunction)(nil)
	_ sql.ExecSourceRel            = (*tableFunction)(nil)
	_ sql.AuthorizationCheckerNode = (*tableFunction)(nil)
)

// tableFunctions are hudi_query(table, 'snapshot'|'read_optimized'), which reads a table as Hudi's query types say, where a read-optimised
// query reads base files only; and hudi_table_changes(table, 'latest_state', start[, end]), which gives the rows that completed instants
// after start ('earliest': all) up to end wrote.
func tableFunctions(e *Engine) []sql.TableFunction {
	return []sql.TableFunction{
		&tableFunction{engine: e, name: "hudi_query", min: 2, max: 2, open: openQuery},
		&tableFunction{engine: e, name: "hudi_table_changes", min: 3, max: 4, open: openChanges},
	}
}

// isTableFunction tells whether a name is that of a function which gives rows of a table.
func isTableFunction(name string) bool {
	return slices.ContainsFunc(tableFunctions(nil), func(f sql.TableFunction) bool { return strings.EqualFold(f.Name(), name) })
}

func openQuery(f *tableFunction, t *table, args []string) error {
	switch strings.ToLower(args[0]) {
	case "snapshot":
	case "read_optimized":
		t.optimized = true
	default:
		return sql.ErrInvalidArgumentDetails.New(f.name, fmt.Sprintf("'%s' is neither 'snapshot' nor 'read_optimized'", args[0]))
	}
	return nil
}

func openChanges(f *tableFunction, t *table, args []string) error {
	switch strings.ToLower(args[0]) {
	case "latest_state":
	case "cdc":
		return mysqlError(fmt.Errorf("%w: %s in the format 'cdc'", storage.ErrUnsupported, f.name))
	default:
		return sql.ErrInvalidArgumentDetails.New(f.name, fmt.Sprintf("'%s' is neither 'latest_state' nor 'cdc'", args[0]))
	}
	t.changes = &timeline.Range{}
	for i, bound := range args[1:] {
		to := []*storage.InstantTime{&t.changes.From, &t.changes.To}[i]
		if i == 0 && (strings.EqualFold(bound, "earliest") || bound != "" && strings.Trim(bound, "0") == "") {
			continue
		}
		if _, err := timeline.ParseTime(storage.InstantTime(bound), time.UTC); err != nil {
			return sql.ErrInvalidArgumentDetails.New(f.name, fmt.Sprintf("'%s' is no instant of 17 or 14 digits", bound))
		}
		*to = storage.InstantTime(bound)
	}
	return nil
}

func (f *tableFunction) Name() string { return f.name }

func (f *tableFunction) NewInstance(ctx *sql.Context, db sql.Database, args []sql.Expression) (sql.Node, error) {
	if len(args) < f.min || len(args) > f.max {
		want := fmt.Sprint(f.min)
		if f.max > f.min {
			want = fmt.Sprintf("%d to %d", f.min, f.max)
		}
		return nil, sql.ErrInvalidArgumentNumber.New(f.name, want, len(args))
	}
	texts := make([]string, len(args))
	for i, a := range args {
		if !a.Resolved() {
			return nil, sql.ErrInvalidArgument.New(f.name)
		}
		v, err := a.Eval(ctx, nil)
		if err != nil {
			return nil, mysqlError(err)
		}
		s, _, err := types.LongText.Convert(ctx, v)
		if err != nil || s == nil {
			return nil, sql.ErrInvalidArgument.New(f.name)
		}
		texts[i] = s.(string)
	}
	n := *f
	n.db, n.args = db, args
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
	if err := f.open(f, &q, texts[1:]); err != nil {
		return nil, err
	}
	n.table, n.db = &q, d
	return &n, nil
}

// CheckAuth asks for the right to read the table: the front end does not know that the function reads one.
func (f *tableFunction) CheckAuth(ctx *sql.Context, checker sql.PrivilegedOperationChecker) bool {
	return checker.UserHasPrivileges(ctx, sql.NewPrivilegedOperation(
		sql.PrivilegeCheckSubject{Database: f.table.db.name, Table: f.table.Name()}, sql.PrivilegeType_Select))
}

func (f *tableFunction) RowIter(ctx *sql.Context, row sql.Row) (sql.RowIter, error) {
	return f.table.scan(ctx, nil)
}

func (f *tableFunction) Schema(*sql.Context) sql.Schema { return f.table.schema }
func (f *tableFunction) Resolved() bool                 { return true }
func (f *tableFunction) IsReadOnly() bool               { return true }
func (f *tableFunction) Children() []sql.Node           { return nil }
func (f *tableFunction) Expressions() []sql.Expression  { return f.args }
func (f *tableFunction) Database() sql.Database         { return f.db }

func (f *tableFunction) String() string {
	texts := make([]string, len(f.args))
	for i, a := range f.args {
		texts[i] = a.String()
	}
	return f.Name() + "(" + strings.Join(texts, ", ") + ")"
}

func (f *tableFunction) WithDatabase(db sql.Database) (sql.Node, error) {
	n := *f
	n.db = db
	return &n, nil
}

func (f *tableFunction) WithChildren(ctx *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(f, len(children), 0)
	}
	return f, nil
}

func (f *tableFunction) WithExpressions(ctx *sql.Context, args ...sql.Expression) (sql.Node, error) {
	n := *f
	n.args = args
	return &n, nil
}
