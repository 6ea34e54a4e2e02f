package sqlplan

import (
	"fmt"
	"slices"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// insertJSONExactly mends the JSON texts that an INSERT gives, and its assignments.
func insertJSONExactly(ctx *sql.Context, n *plan.InsertInto) (sql.Node, transform.TreeIdentity, error) {
	var out sql.Node = n
	source, same, err := givenJSONExactly(ctx, n.Source, n.Destination.Schema(ctx), n.Ignore)
	if err != nil {
		return nil, transform.SameTree, err
	}
	if !same {
		out = n.WithSource(source)
	}
	// The assignments of ON DUPLICATE KEY UPDATE.
	out, also, err := assignmentsExactly(ctx, out, n.Ignore)
	return out, same && also, err
}

// givenJSONExactly wraps the values that a statement gives for the JSON columns of sch and, with IGNORE, for its columns of texts.
func givenJSONExactly(ctx *sql.Context, source sql.Node, sch sql.Schema, ignore bool) (sql.Node, transform.TreeIdentity, error) {
	switch s := source.(type) {
	case *plan.TriggerExecutor:
		rows, same, err := givenJSONExactly(ctx, s.Left(), sch, ignore)
		if err != nil || same {
			return source, transform.SameTree, err
		}
		out, err := s.WithChildren(ctx, rows, s.Right())
		return out, transform.NewTree, err
	case *plan.Project:
		if len(s.Projections) != len(sch) {
			return source, transform.SameTree, nil
		}
		exprs, same := slices.Clone(s.Projections), transform.SameTree
		for i, col := range sch {
			if _, given := exprs[i].(*expression.GetField); !given {
				continue
			}
			if types.IsJSON(col.Type) {
				exprs[i], same = newExactJSON(exprs[i]), transform.NewTree
			} else if cut := newCutText(exprs[i], col); ignore && cut != nil {
				exprs[i], same = cut, transform.NewTree
			}
		}
		if same {
			return source, same, nil
		}
		out, err := s.WithExpressions(ctx, exprs...)
		return out, same, err
	}
	return source, transform.SameTree, nil
}

// exactJSON is its child's value, parsed if it is the text of a JSON value. Anything else passes: the column's type says
// what is wrong with it.
type exactJSON struct {
	expression.UnaryExpressionStub
}

var _ sql.Expression = (*exactJSON)(nil)

func newExactJSON(child sql.Expression) *exactJSON {
	return &exactJSON{expression.UnaryExpressionStub{Child: child}}
}

func (e *exactJSON) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := e.Child.Eval(ctx, row)
	if err != nil {
		return nil, err
	}
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return v, nil
	}
	doc, err := parseJSON(text)
	if err != nil {
		return v, nil
	}
	return types.JSONDocument{Val: doc}, nil
}

// Type is the child's: the value is converted to JSON by the one who stores it.
func (e *exactJSON) Type(ctx *sql.Context) sql.Type { return e.Child.Type(ctx) }

func (e *exactJSON) IsNullable(ctx *sql.Context) bool { return e.Child.IsNullable(ctx) }

func (e *exactJSON) String() string { return e.Child.String() }

// DebugString shows the wrapper in plans.
func (e *exactJSON) DebugString(ctx *sql.Context) string {
	return fmt.Sprintf("exactjson(%s)", sql.DebugString(ctx, e.Child))
}

func (e *exactJSON) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(e, len(children), 1)
	}
	return newExactJSON(children[0]), nil
}
