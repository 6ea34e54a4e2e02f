package sqlplan

import (
	"fmt"
	"slices"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
)

// buildAssignments runs INSERT, REPLACE, LOAD DATA, UPDATE and a trigger's SET so that what they store is what was given: JSON
// texts keep their integers, of which the front end makes doubles, and numbers are not cut (see assignExactly). base is the
// engine's exec builder, which asks this function first for every node; nil means that there is nothing to do. (A rule of the
// analyzer would not be asked for simple statements: these have rules of their own that cannot be added to.)
func buildAssignments(ctx *sql.Context, base sql.NodeExecBuilder, n sql.Node, row sql.Row) (sql.RowIter, error) {
	same := transform.SameTree
	var err error
	switch x := n.(type) {
	case *plan.InsertInto:
		n, same, err = insertJSONExactly(ctx, x)
	case *plan.UpdateSource:
		n, same, err = assignmentsExactly(ctx, x, x.Ignore)
	case *plan.Set:
		n, same, err = assignmentsExactly(ctx, x, false)
	}
	if err != nil || same {
		return nil, err
	}
	return base.Build(ctx, n, row)
}

func assignmentsExactly(ctx *sql.Context, n sql.Node, ignore bool) (sql.Node, transform.TreeIdentity, error) {
	return transform.OneNodeExpressions(ctx, n, func(ctx *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
		return assignExactly(ctx, e, ignore)
	})
}

// assignExactly mends one assignment of UPDATE, ON DUPLICATE KEY UPDATE or a trigger's SET NEW.col. The front end's own cuts
// a number that is out of its column's range, or lets it wrap around, where its INSERT refuses it; see also exactJSON. With
// IGNORE the number is cut, with a warning.
func assignExactly(ctx *sql.Context, e sql.Expression, ignore bool) (sql.Expression, transform.TreeIdentity, error) {
	set, ok := e.(*expression.SetField)
	if !ok {
		return e, transform.SameTree, nil
	}
	field, ok := set.LeftChild.(*expression.GetField)
	if !ok {
		return e, transform.SameTree, nil
	}
	switch set.RightChild.(type) {
	case *exactJSON, *inRange, *neverNull:
		return e, transform.SameTree, nil
	}
	value := set.RightChild
	t := field.Type(ctx)
	switch {
	case types.IsJSON(t):
		value = newExactJSON(set.RightChild)
	case types.IsInteger(t) || types.IsFloat(t):
		value = newInRange(set.RightChild, field, ignore)
	case !ignore || field.IsNullable(ctx):
		return e, transform.SameTree, nil
	}
	if ignore && !field.IsNullable(ctx) {
		value = &neverNull{expression.UnaryExpressionStub{Child: value}, field}
	}
	return expression.NewSetField(field, value), transform.NewTree, nil
}

// neverNull is its child's value, and instead of NULL what the type of a NOT NULL column has for it, with a warning: so IGNORE has it.
type neverNull struct {
	expression.UnaryExpressionStub
	column *expression.GetField
}

var _ sql.Expression = (*neverNull)(nil)

func (e *neverNull) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := e.Child.Eval(ctx, row)
	if err != nil || v != nil {
		return v, err
	}
	ctx.Warn(mysql.ERBadNullError, "Column '%s' cannot be null", e.column.Name())
	return e.column.Type(ctx).Zero(), nil
}

func (e *neverNull) Type(ctx *sql.Context) sql.Type { return e.Child.Type(ctx) }

func (e *neverNull) IsNullable(*sql.Context) bool { return false }

func (e *neverNull) String() string { return e.Child.String() }

// DebugString shows the wrapper in plans.
func (e *neverNull) DebugString(ctx *sql.Context) string {
	return fmt.Sprintf("nevernull(%s)", sql.DebugString(ctx, e.Child))
}

func (e *neverNull) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(e, len(children), 1)
	}
	return &neverNull{expression.UnaryExpressionStub{Child: children[0]}, e.column}, nil
}

// inRange is its child's value as a column's number; one out of the column's range is an error.
type inRange struct {
	expression.UnaryExpressionStub
	column *expression.GetField
	ignore bool
}

var _ sql.Expression = (*inRange)(nil)

func newInRange(child sql.Expression, column *expression.GetField, ignore bool) *inRange {
	return &inRange{expression.UnaryExpressionStub{Child: child}, column, ignore}
}

func (e *inRange) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := e.Child.Eval(ctx, row)
	if err != nil || v == nil {
		return v, err
	}
	t := e.column.Type(ctx)
	convert := t.Convert
	if r, ok := t.(sql.RoundingNumberType); ok {
		convert = r.ConvertRound
	}
	n, in, err := convert(ctx, v)
	if err != nil {
		if sql.ErrTruncatedIncorrect.Is(err) {
			err = sql.ErrInvalidValue.New(v, t)
		}
		return nil, sql.NewWrappedTypeConversionError(v, e.column.Index(), err)
	}
	if in != sql.InRange {
		if e.ignore {
			ctx.Warn(mysql.ERWarnDataOutOfRange, "Out of range value for column '%s'", e.column.Name())
			if in == sql.Underflow && types.IsUnsigned(t) {
				return t.Zero(), nil
			}
			return n, nil
		}
		return nil, sql.NewWrappedTypeConversionError(v, e.column.Index(), sql.ErrValueOutOfRange.New(v, t))
	}
	return n, nil
}

func (e *inRange) Type(ctx *sql.Context) sql.Type { return e.column.Type(ctx) }

func (e *inRange) IsNullable(ctx *sql.Context) bool { return e.Child.IsNullable(ctx) }

func (e *inRange) String() string { return e.Child.String() }

// DebugString shows the wrapper in plans.
func (e *inRange) DebugString(ctx *sql.Context) string {
	return fmt.Sprintf("inrange(%s)", sql.DebugString(ctx, e.Child))
}

func (e *inRange) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(e, len(children), 1)
	}
	return newInRange(children[0], e.column, e.ignore), nil
}

// The front end leaves out an update whose new row its columns' types take for the old one. Texts are the same to their
// collation in other letter cases and with other accents: 'abc' would never become 'ABC'. Its nodes for UPDATE are
// therefore given the rows' schema with binary collations, in which they compare the two.

// updateExactly gives an UPDATE that compares old and new rows by their bytes; changed false: it does already.
func updateExactly(ctx *sql.Context, n sql.Node, joined bool) (out sql.Node, changed bool, err error) {
	children := n.Children()
	switch n := n.(type) {
	case *plan.UpdateSource:
		rows, changed, err := byBytes(ctx, n.Child, joined)
		if err != nil || !changed {
			return n, false, err
		}
		out, err = n.WithChildren(ctx, rows)
		return out, true, err
	case *plan.UpdateJoin:
		joined = true
	case *plan.TriggerExecutor: // its first child is the statement
	default:
		if len(children) != 1 {
			return n, false, nil
		}
	}
	child, changed, err := updateExactly(ctx, children[0], joined)
	if err != nil || !changed {
		return n, false, err
	}
	if fk, ok := n.(*plan.ForeignKeyHandler); ok { // counts the rows that changed by its own schema
		counted := *fk
		if counted.Sch, _, err = binarySchema(fk.Sch); err != nil {
			return n, false, err
		}
		n = &counted
	}
	children = slices.Clone(children)
	children[0] = child
	out, err = n.WithChildren(ctx, children...)
	return out, true, err
}

// byBytes gives the rows that an UPDATE changes a schema with binary collations; changed false: they have it.
func byBytes(ctx *sql.Context, rows sql.Node, joined bool) (out sql.Node, changed bool, err error) {
	if !joined {
		table, err := plan.GetUpdatable(rows)
		if err != nil {
			return rows, false, err
		}
		schema, changed, err := binarySchema(table.Schema(ctx))
		return &exactRows{table, rows, schema}, changed, err
	}
	// The front end tells the tables of a join apart by the schema alone.
	schema, changed, err := binarySchema(rows.Schema(ctx))
	if err != nil || !changed {
		return rows, false, err
	}
	columns := make([]sql.Expression, len(schema))
	for i, c := range schema {
		columns[i] = expression.NewGetFieldWithTable(i, 0, c.Type, c.DatabaseSource, c.Source, c.Name, c.Nullable)
	}
	return plan.NewProject(ctx, columns, rows), true, nil
}

// insertExactly does the same for ON DUPLICATE KEY UPDATE.
func insertExactly(ctx *sql.Context, n *plan.InsertInto) (out sql.Node, changed bool, err error) {
	to, ok := n.Destination.(*plan.InsertDestination)
	if !ok || !n.OnDupExprs.HasUpdates() {
		return n, false, nil
	}
	schema, changed, err := binarySchema(to.Schema(ctx))
	if err != nil || !changed {
		return n, false, err
	}
	out, err = n.WithChildren(ctx, plan.NewInsertDestination(schema, to.Child))
	return out, true, err
}

// binarySchema is a schema whose texts compare by their bytes; changed false: they do already.
func binarySchema(schema sql.Schema) (out sql.Schema, changed bool, err error) {
	out = schema
	for i, c := range schema {
		t, ok := c.Type.(sql.StringType)
		if !ok || !types.IsTextOnly(t) {
			continue
		}
		binary := t.CharacterSet().BinaryCollation()
		if t.Collation() == binary {
			continue
		}
		if !changed {
			out, changed = slices.Clone(schema), true
		}
		col := *c
		if col.Type, err = t.(sql.TypeWithCollation).WithNewCollation(binary); err != nil {
			return nil, false, err
		}
		out[i] = &col
	}
	return out, changed, nil
}

// exactRows are the rows that an UPDATE changes and, to the front end that looks for the table to change, that table. It is
// made when the statement runs.
type exactRows struct {
	sql.UpdatableTable
	rows   sql.Node
	schema sql.Schema
}

var (
	_ sql.Node           = (*exactRows)(nil)
	_ sql.UpdatableTable = (*exactRows)(nil)
)

func (r *exactRows) Schema(*sql.Context) sql.Schema { return r.schema }

func (r *exactRows) String() string       { return r.rows.String() }
func (r *exactRows) Resolved() bool       { return r.rows.Resolved() }
func (r *exactRows) IsReadOnly() bool     { return r.rows.IsReadOnly() }
func (r *exactRows) Children() []sql.Node { return []sql.Node{r.rows} }

func (r *exactRows) WithChildren(_ *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(r, len(children), 1)
	}
	n := *r
	n.rows = children[0]
	return &n, nil
}
