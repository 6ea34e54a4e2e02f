package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/expression/function"
	"github.com/dolthub/go-mysql-server/sql/expression/function/aggregation"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
)

// mendExpressions replaces in a node's own expressions what the front end would compute wrongly; changed false: nothing.
//   - It compares BIGINT UNSIGNED with BIGINT as doubles, which takes neighbours beyond 2^53 for equal.
//   - It lets sums of integers wrap around: see integerSum.
//   - It orders an ENUM and a text by the place among the members, where MySQL compares their texts.
//   - COUNT(DISTINCT …) of texts: see distinct.go.
//   - Times that become text: see timetext.go.
//   - SUBSTRING and TRIM of bytes: see textFunctions, to which the grammar gives these two no way.
func mendExpressions(ctx *sql.Context, n sql.Node) (out sql.Node, changed bool, err error) {
	switch n.(type) {
	case *plan.Filter, *plan.Having, *plan.Project, *plan.JoinNode, *plan.GroupBy, *plan.Window, *plan.Sort, *plan.TopN,
		*plan.UpdateSource, *plan.InsertInto, *plan.Values, *plan.Set, *plan.IfConditional:
	default:
		return n, false, nil
	}
	found := false
	for _, e := range n.(sql.Expressioner).Expressions() {
		sql.Inspect(ctx, e, func(ctx *sql.Context, e sql.Expression) bool {
			found = found || e != nil && bends(ctx, e)
			return !found
		})
	}
	if !found {
		return n, false, nil
	}
	out, same, err := transform.OneNodeExpressions(ctx, n, mendExpression)
	return out, err == nil && !bool(same), err
}

// bends says whether the front end would compute an expression wrongly.
func bends(ctx *sql.Context, e sql.Expression) bool {
	if !e.Resolved() {
		return false
	}
	if textTimes(ctx, e) != nil {
		return true
	}
	switch x := e.(type) {
	case *expression.GreaterThan, *expression.GreaterThanOrEqual, *expression.LessThan, *expression.LessThanOrEqual:
		c := x.(expression.Comparer)
		return mixed(ctx, c.Left(), c.Right()) || ordersMember(ctx, c.Left(), c.Right()) || ordersMember(ctx, c.Right(), c.Left())
	case expression.Comparer: // IN with a list is one too
		return mixed(ctx, x.Left(), x.Right())
	case *plan.InSubquery:
		return mixed(ctx, x.Left(), x.Right())
	case *expression.Between:
		return mixed(ctx, x.Val, x.Lower) || mixed(ctx, x.Val, x.Upper) || ordersMember(ctx, x.Val, x.Lower) || ordersMember(ctx, x.Val, x.Upper)
	case *expression.Case:
		if x.Expr == nil {
			return false
		}
		for _, b := range x.Branches {
			if mixed(ctx, x.Expr, b.Cond) {
				return true
			}
		}
	case *expression.Arithmetic:
		return ofIntegers(ctx, x)
	case *aggregation.CountDistinct:
		return countsTexts(ctx, x)
	case *function.Substring, *function.Trim:
		return anyBinary(ctx, x.Children())
	}
	return false
}

func mendExpression(ctx *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
	if !bends(ctx, e) {
		return e, transform.SameTree, nil
	}
	if at := textTimes(ctx, e); at != nil {
		text, err := withTextTimes(ctx, e, at)
		if err == nil {
			text, _, err = mendExpression(ctx, text)
		}
		return text, transform.NewTree, err
	}
	var out sql.Expression
	var err error
	switch x := e.(type) {
	case *expression.HashInTuple:
		out, err = expression.NewHashInTuple(ctx, exactInteger(ctx, x.Left()), exactInteger(ctx, x.Right()))
	case *expression.GreaterThan, *expression.GreaterThanOrEqual, *expression.LessThan, *expression.LessThanOrEqual:
		c := x.(expression.Comparer)
		l, r := exactInteger(ctx, c.Left()), exactInteger(ctx, c.Right())
		if ordersMember(ctx, l, r) {
			l = expression.NewConvert(l, expression.ConvertToChar)
		} else if ordersMember(ctx, r, l) {
			r = expression.NewConvert(r, expression.ConvertToChar)
		}
		out, err = c.WithChildren(ctx, l, r)
	case expression.Comparer:
		out, err = x.WithChildren(ctx, exactInteger(ctx, x.Left()), exactInteger(ctx, x.Right()))
	case *plan.InSubquery:
		out, err = x.WithChildren(ctx, exactInteger(ctx, x.Left()), x.Right())
	case *expression.Between:
		v := exactInteger(ctx, x.Val)
		if ordersMember(ctx, v, x.Lower) || ordersMember(ctx, v, x.Upper) {
			v = expression.NewConvert(v, expression.ConvertToChar)
		}
		out = expression.NewBetween(v, x.Lower, x.Upper)
	case *expression.Case:
		out = expression.NewCase(exactInteger(ctx, x.Expr), x.Branches, x.Else)
	case *expression.Arithmetic:
		out = newIntegerSum(ctx, x)
	case *aggregation.CountDistinct:
		out, err = countKeys(ctx, x)
	case *function.Substring, *function.Trim:
		out, err = newBytesCall(ctx, e)
	}
	return out, transform.NewTree, err
}

// ordersMember says whether an ENUM stands beside a text that is none.
func ordersMember(ctx *sql.Context, member, text sql.Expression) bool {
	return types.IsEnum(member.Type(ctx)) && types.IsTextOnly(text.Type(ctx))
}

// mixed says whether a comparison is between unsigned and signed integers of 64 bits, or such are among a tuple's.
func mixed(ctx *sql.Context, a, b sql.Expression) bool {
	if t, ok := a.(expression.Tuple); ok {
		u, ok := b.(expression.Tuple)
		if !ok {
			return false
		}
		if len(u) > 0 && len(t) > 0 {
			if _, rows := u[0].(expression.Tuple); rows { // (a, b) IN ((1, 2), …)
				for _, row := range u {
					if mixed(ctx, a, row) {
						return true
					}
				}
				return false
			}
		}
		for i := range min(len(t), len(u)) {
			if mixed(ctx, t[i], u[i]) {
				return true
			}
		}
		return false
	}
	if t, ok := b.(expression.Tuple); ok { // a IN (…)
		for _, e := range t {
			if mixed(ctx, a, e) {
				return true
			}
		}
		return false
	}
	x, y := a.Type(ctx).Type(), b.Type(ctx).Type()
	return x == sqltypes.Uint64 && y == sqltypes.Int64 || x == sqltypes.Int64 && y == sqltypes.Uint64
}

// exactType holds every integer of 64 bits.
var exactType = types.MustCreateDecimalType(20, 0)

// exactInteger gives integers of 64 bits, also those in a tuple, as decimals. One that a statement names becomes one here.
func exactInteger(ctx *sql.Context, e sql.Expression) sql.Expression {
	if t, ok := e.(expression.Tuple); ok {
		out := make(expression.Tuple, len(t))
		for i := range t {
			out[i] = exactInteger(ctx, t[i])
		}
		return out
	}
	switch e.Type(ctx).Type() {
	case sqltypes.Uint64, sqltypes.Int64:
	default:
		return e
	}
	c := expression.NewConvertWithLengthAndScale(e, expression.ConvertToDecimal, 20, 0)
	if _, ok := e.(*expression.Literal); ok {
		if v, err := c.Eval(ctx, nil); err == nil {
			return expression.NewLiteral(v, exactType)
		}
	}
	return c
}
