package sqlplan

import (
	"math/big"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/vt/sqlparser"
)

// integerSum is +, - or * of two integers. The front end's wraps around beyond 64 bits, and cuts BIGINT UNSIGNED to BIGINT if
// the other side is signed. As in MySQL, the result is unsigned if one side is, and one out of range is an error.
type integerSum struct {
	*expression.Arithmetic
	unsigned bool
}

// ofIntegers says whether both sides are integers. An INTERVAL calls itself one.
func ofIntegers(ctx *sql.Context, a *expression.Arithmetic) bool {
	for _, e := range a.Children() {
		if _, interval := e.(expression.TimeDeltaExpression); interval {
			return false
		}
	}
	switch a.Op {
	case sqlparser.PlusStr, sqlparser.MinusStr, sqlparser.MultStr:
		return types.IsInteger(a.LeftChild.Type(ctx)) && types.IsInteger(a.RightChild.Type(ctx))
	}
	return false
}

func newIntegerSum(ctx *sql.Context, a *expression.Arithmetic) *integerSum {
	return &integerSum{a, types.IsUnsigned(a.LeftChild.Type(ctx)) || types.IsUnsigned(a.RightChild.Type(ctx))}
}

func (s *integerSum) Type(*sql.Context) sql.Type {
	if s.unsigned {
		return types.Uint64
	}
	return types.Int64
}

func (s *integerSum) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	l, err := s.LeftChild.Eval(ctx, row)
	if err != nil || l == nil {
		return nil, err
	}
	r, err := s.RightChild.Eval(ctx, row)
	if err != nil || r == nil {
		return nil, err
	}
	var x, y, n big.Int
	if !setInteger(ctx, &x, l) || !setInteger(ctx, &y, r) {
		return s.Arithmetic.Eval(ctx, row) // not an integer's value after all
	}
	switch s.Op {
	case sqlparser.PlusStr:
		n.Add(&x, &y)
	case sqlparser.MinusStr:
		n.Sub(&x, &y)
	default:
		n.Mul(&x, &y)
	}
	switch {
	case s.unsigned && n.IsUint64():
		return n.Uint64(), nil
	case !s.unsigned && n.IsInt64():
		return n.Int64(), nil
	}
	kind := "BIGINT"
	if s.unsigned {
		kind = "BIGINT UNSIGNED"
	}
	return nil, mysql.NewSQLError(erOutOfRange, "22003", "%s value is out of range in '%s'", kind, s.Arithmetic)
}

func setInteger(ctx *sql.Context, n *big.Int, v any) bool {
	switch v := v.(type) {
	case int64:
		n.SetInt64(v)
	case int32:
		n.SetInt64(int64(v))
	case uint64:
		n.SetUint64(v)
	case int8, int16, int, uint8, uint16, uint32, uint, bool:
		i, _, err := types.Int64.Convert(ctx, v)
		if err != nil {
			return false
		}
		n.SetInt64(i.(int64))
	default:
		return false
	}
	return true
}

func (s *integerSum) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	e, err := s.Arithmetic.WithChildren(ctx, children...)
	if err != nil {
		return nil, err
	}
	a := e.(*expression.Arithmetic)
	if !ofIntegers(ctx, a) {
		return a, nil
	}
	return newIntegerSum(ctx, a), nil
}
