package sqlplan

import (
	"slices"
	"strconv"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/expression/function/aggregation"
	"github.com/dolthub/go-mysql-server/sql/hash"
	"github.com/dolthub/go-mysql-server/sql/iters"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// The front end's DISTINCT, UNION and COUNT(DISTINCT …) tell texts apart by their bytes. MySQL does by their collation, as
// GROUP BY does in both.

// buildDistinct runs DISTINCT by the columns' collations.
func (b execBuilder) buildDistinct(ctx *sql.Context, n *plan.Distinct, row sql.Row) (sql.RowIter, error) {
	schema := collatedSchema(ctx, n.Child)
	if !hasText(schema) || len(n.Expressions()) > 0 {
		return nil, nil
	}
	rows, err := b.front.Build(ctx, n.Child, row)
	if err != nil {
		return nil, err
	}
	return iters.NewDistinctIter(ctx, rows, collatedRows(schema)), nil
}

// collatedSchema is the schema of rows with the collations by which MySQL would compare them: that of a UNION follows from
// both sides, of which a column's goes before a literal's.
func collatedSchema(ctx *sql.Context, n sql.Node) sql.Schema {
	schema := slices.Clone(n.Schema(ctx))
	for i, c := range schema {
		t, ok := c.Type.(sql.StringType)
		if !ok || !types.IsTextOnly(t) {
			continue
		}
		collation, _ := collationOf(ctx, n, i, false)
		if collation == t.Collation() || collation == sql.Collation_binary || collation == sql.Collation_Unspecified {
			continue
		}
		if own, err := t.(sql.TypeWithCollation).WithNewCollation(collation); err == nil {
			col := *c
			col.Type = own
			schema[i] = &col
		}
	}
	return schema
}

// collationOf is the collation of a node's column, with MySQL's rank of it. The front end casts the sides of a UNION to one
// type, which says nothing about their collations.
func collationOf(ctx *sql.Context, n sql.Node, i int, side bool) (sql.CollationID, byte) {
	switch n := n.(type) {
	case *plan.SetOp:
		left, l := collationOf(ctx, n.Left(), i, true)
		right, r := collationOf(ctx, n.Right(), i, true)
		return sql.ResolveCoercibility(left, l, right, r)
	case *plan.Distinct, *plan.Limit, *plan.Offset, *plan.Sort, *plan.TopN:
		return collationOf(ctx, n.Children()[0], i, side)
	case *plan.Project:
		e := n.Projections[i]
		if a, ok := e.(*expression.Alias); ok {
			e = a.Child
		}
		if cast, ok := e.(*expression.Convert); ok && side && types.IsTextOnly(cast.Child.Type(ctx)) {
			e = cast.Child
		}
		if g, ok := e.(*expression.GetField); ok && g.Index() < len(n.Child.Schema(ctx)) {
			switch n.Child.(type) {
			case *plan.SetOp, *plan.Project, *plan.Distinct:
				return collationOf(ctx, n.Child, g.Index(), side)
			}
		}
		return sql.GetCoercibility(ctx, e)
	}
	return n.Schema(ctx)[i].Type.CollationCoercibility(ctx)
}

func hasText(schema sql.Schema) bool {
	for _, c := range schema {
		if types.IsText(c.Type) {
			return true
		}
	}
	return false
}

// collatedRows hashes the rows of a schema. NULL is none of the texts.
type collatedRows sql.Schema

func (c collatedRows) HashOf(ctx *sql.Context, row sql.Row) (uint64, error) {
	nulls := make([]byte, len(row))
	for i, v := range row {
		nulls[i] = '1'
		if v == nil {
			nulls[i] = '0'
		}
	}
	return hash.HashOf(ctx, sql.Schema(c), append(row[:len(row):len(row)], string(nulls)))
}

// unionInParts gives a UNION as the nodes that it is made of; changed false: it is. The front end's node also takes OFFSET
// rows off before it sorts.
func unionInParts(ctx *sql.Context, n *plan.SetOp) (out sql.Node, changed bool) {
	if n.SetOpType != plan.UnionType {
		return n, false
	}
	distinct := n.Distinct && hasText(n.Schema(ctx))
	if !distinct && (n.Offset == nil || len(n.SortConditions) == 0) {
		return n, false
	}
	all := *n
	all.Limit, all.Offset, all.SortConditions = nil, nil, nil
	all.Distinct = n.Distinct && !distinct
	out = &all
	if distinct {
		out = plan.NewDistinct(out)
	}
	if len(n.SortConditions) > 0 {
		out = plan.NewSort(n.SortConditions, out)
	}
	if n.Offset != nil {
		out = plan.NewOffset(n.Offset, out)
	}
	if n.Limit != nil {
		out = plan.NewLimit(n.Limit, out)
	}
	return out, true
}

// countsTexts says whether a COUNT(DISTINCT …) counts texts as they are.
func countsTexts(ctx *sql.Context, n *aggregation.CountDistinct) bool {
	for _, e := range n.Children() {
		if _, done := e.(*distinctKey); !done && types.IsText(e.Type(ctx)) {
			return true
		}
	}
	return false
}

// countKeys counts distinct keys in the place of texts. (The front end also joins the values of several columns by commas,
// which takes 'a,' and 'b' for 'a' and ',b'.)
func countKeys(ctx *sql.Context, n *aggregation.CountDistinct) (sql.Expression, error) {
	keys := make([]sql.Expression, len(n.Children()))
	for i, e := range n.Children() {
		keys[i] = e
		if types.IsText(e.Type(ctx)) {
			keys[i] = newDistinctKey(e)
		}
	}
	out, err := n.WithChildren(ctx, keys...)
	if err != nil {
		return nil, err
	}
	return out.(sql.IdExpression).WithId(n.Id()), nil
}

// distinctKey is a number that equal texts have in common.
type distinctKey struct {
	expression.UnaryExpressionStub
}

var _ sql.Expression = (*distinctKey)(nil)

func newDistinctKey(child sql.Expression) *distinctKey {
	return &distinctKey{expression.UnaryExpressionStub{Child: child}}
}

func (k *distinctKey) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := k.Child.Eval(ctx, row)
	if err != nil || v == nil {
		return nil, err
	}
	collation := sql.Collation_binary
	t, ok := k.Child.Type(ctx).(sql.StringType)
	if ok {
		collation = t.Collation()
		if v, _, err = t.Convert(ctx, v); err != nil {
			return nil, err
		}
	}
	if v, err = sql.UnwrapAny(ctx, v); err != nil {
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
	h, err := collation.HashToUint(text)
	if err != nil {
		return nil, err
	}
	return strconv.FormatUint(h, 10), nil
}

func (k *distinctKey) Type(*sql.Context) sql.Type { return types.Text }

func (k *distinctKey) IsNullable(ctx *sql.Context) bool { return k.Child.IsNullable(ctx) }

func (k *distinctKey) String() string { return k.Child.String() }

func (k *distinctKey) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(k, len(children), 1)
	}
	return newDistinctKey(children[0]), nil
}
