package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// The front end's hashed IN compares texts byte by byte, whatever their collation. collatedIn is the same with the collation
// that MySQL would use.
type collatedIn struct {
	*expression.HashInTuple
	collation sql.CollationID
	values    map[uint64]struct{}
	hasNull   bool
}

// collateIn puts collatedIn in the place of hashed INs over texts of a collation other than a binary one.
func collateIn(ctx *sql.Context, n *plan.Filter) (sql.Node, bool, error) {
	e, same, err := transform.Expr(ctx, n.Expression, func(ctx *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
		in, ok := e.(*expression.HashInTuple)
		if !ok {
			return e, transform.SameTree, nil
		}
		c, err := newCollatedIn(ctx, in)
		if err != nil || c == nil {
			return e, transform.SameTree, err
		}
		return c, transform.NewTree, nil
	})
	if err != nil || same {
		return n, false, err
	}
	out, err := n.WithExpressions(ctx, e)
	return out, err == nil, err
}

func newCollatedIn(ctx *sql.Context, in *expression.HashInTuple) (*collatedIn, error) {
	if !types.IsTextOnly(in.Left().Type(ctx)) {
		return nil, nil
	}
	right, ok := in.Right().(expression.Tuple)
	if !ok {
		return nil, nil
	}
	collation, coercibility := sql.GetCoercibility(ctx, in.Left())
	c := &collatedIn{HashInTuple: in, values: map[uint64]struct{}{}}
	var texts []string
	for _, e := range right {
		if !types.IsTextOnly(e.Type(ctx)) && e.Type(ctx) != types.Null {
			return nil, nil
		}
		v, err := e.Eval(ctx, nil)
		if err != nil {
			return nil, err
		}
		if v == nil {
			c.hasNull = true
			continue
		}
		s, ok := v.(string)
		if !ok {
			return nil, nil
		}
		rc, rco := sql.GetCoercibility(ctx, e)
		collation, coercibility = sql.ResolveCoercibility(collation, coercibility, rc, rco)
		texts = append(texts, s)
	}
	if collation == sql.Collation_Unspecified || collation == sql.Collation_Default || collation == sql.Collation_binary {
		return nil, nil
	}
	c.collation = collation
	for _, s := range texts {
		h, err := collation.HashToUint(s)
		if err != nil {
			return nil, err
		}
		c.values[h] = struct{}{}
	}
	return c, nil
}

func (c *collatedIn) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := c.Left().Eval(ctx, row)
	if err != nil || v == nil {
		return nil, err
	}
	s, _, err := sql.Unwrap[string](ctx, v)
	if err != nil {
		return nil, err
	}
	h, err := c.collation.HashToUint(s)
	if err != nil {
		return nil, err
	}
	if _, ok := c.values[h]; ok {
		return true, nil
	}
	if c.hasNull {
		return nil, nil
	}
	return false, nil
}

func (c *collatedIn) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	e, err := c.HashInTuple.WithChildren(ctx, children...)
	if err != nil {
		return nil, err
	}
	in, ok := e.(*expression.HashInTuple)
	if !ok {
		return e, nil
	}
	n := *c
	n.HashInTuple = in
	return &n, nil
}
