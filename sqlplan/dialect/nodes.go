package dialect

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/types"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// AsOfUnbound is the time that a table is asked for while a statement with AS OF ? is prepared and
// the parameter has no value yet. Tables answer with their newest state; only its columns count.
const AsOfUnbound = "lakesql:unbound"

// asOfExpr makes any expression a time: the engine takes few forms, and none without a value.
type asOfExpr struct{}

// WithResolvedChildren implements ast.Injectable.
func (asOfExpr) WithResolvedChildren(_ context.Context, children []any) (any, error) {
	e, ok := children[0].(sql.Expression)
	if !ok {
		return nil, sql.ErrInvalidAsOfExpression.New(children[0])
	}
	if _, ok := e.(*expression.BindVar); ok {
		return expression.NewLiteral(AsOfUnbound, types.LongText), nil
	}
	return asOfText{e}, nil
}

// asOfText turns numbers into text: an instant such as 20261130090000000 is one in each form.
type asOfText struct{ sql.Expression }

// Eval implements sql.Expression.
func (e asOfText) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := e.Expression.Eval(ctx, row)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, string, time.Time:
		return v, nil
	case []byte:
		return string(v), nil
	case *apd.Decimal:
		return v.Text('f'), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	s, _, err := types.LongText.Convert(ctx, v)
	return s, err
}

// WithChildren implements sql.Expression.
func (e asOfText) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	inner, err := e.Expression.WithChildren(ctx, children...)
	return asOfText{inner}, err
}

// rowsNode is a statement with a fixed result.
type rowsNode struct {
	what   string
	schema sql.Schema
	rows   []sql.Row
}

var _ sql.ExecSourceRel = (*rowsNode)(nil)

func (n *rowsNode) Resolved() bool                 { return true }
func (n *rowsNode) IsReadOnly() bool               { return true }
func (n *rowsNode) String() string                 { return n.what }
func (n *rowsNode) Schema(*sql.Context) sql.Schema { return n.schema }
func (n *rowsNode) Children() []sql.Node           { return nil }
func (n *rowsNode) WithChildren(_ *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(n, len(children), 0)
	}
	return n, nil
}

func (n *rowsNode) RowIter(*sql.Context, sql.Row) (sql.RowIter, error) {
	return sql.RowsToRowIter(n.rows...), nil
}

// rowsStatement makes a rowsNode when a statement is bound.
type rowsStatement struct {
	what    string
	columns []string // name, or name:int
	fill    func(*sql.Context) []sql.Row
}

// WithResolvedChildren implements ast.Injectable.
func (r rowsStatement) WithResolvedChildren(ctx context.Context, _ []any) (any, error) {
	n := &rowsNode{what: r.what}
	for _, c := range r.columns {
		name, isInt := strings.CutSuffix(c, ":int")
		col := &sql.Column{Name: name, Type: types.LongText, Nullable: true}
		if isInt {
			col.Type, col.Nullable = types.Int64, false
		}
		n.schema = append(n.schema, col)
	}
	if sc, ok := ctx.(*sql.Context); ok && r.fill != nil {
		n.rows = r.fill(sc)
	}
	return n, nil
}

func injected(r rowsStatement) ast.Statement {
	return ast.InjectedStatement{Statement: r, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}
}

// diagnostics gives the session's warnings of a level, or all. They are read when the statement is
// bound: the engine forgets them before it runs one.
func diagnostics(ctx *sql.Context, level string) []*sql.Warning {
	var ws []*sql.Warning
	for _, w := range ctx.Warnings() {
		if level == "" || strings.EqualFold(w.Level, level) {
			ws = append(ws, w)
		}
	}
	return ws
}

func showErrors() ast.Statement {
	return injected(rowsStatement{
		what: "SHOW ERRORS", columns: []string{"Level", "Code:int", "Message"},
		fill: func(ctx *sql.Context) []sql.Row {
			var rows []sql.Row
			for _, w := range diagnostics(ctx, "Error") {
				rows = append(rows, sql.Row{w.Level, int64(w.Code), w.Message})
			}
			return rows
		},
	})
}

func showCount(column, level string) ast.Statement {
	return injected(rowsStatement{
		what: "SHOW COUNT", columns: []string{column + ":int"},
		fill: func(ctx *sql.Context) []sql.Row {
			return []sql.Row{{int64(len(diagnostics(ctx, level)))}}
		},
	})
}
