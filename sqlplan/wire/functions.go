package wire

import (
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression/function"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// FunctionSet holds functions that stand before the engine's built-in ones.
type FunctionSet map[string]sql.Function

// Function finds a function by its name in any case.
func (s FunctionSet) Function(name string) (sql.Function, bool) {
	f, ok := s[strings.ToLower(name)]
	return f, ok
}

// Functions are replacements of built-in functions that are wrong and those of
// MySQL's that are missing. version is what VERSION() answers.
func Functions(version string) FunctionSet {
	set := FunctionSet{}
	for _, f := range []sql.Function{
		sql.Function1{Name: "sum", Fn: func(_ *sql.Context, e sql.Expression) sql.Expression { return &Total{Child: e} }},
		sql.Function1{Name: "avg", Fn: func(_ *sql.Context, e sql.Expression) sql.Expression { return &Total{Child: e, Avg: true} }},
		sql.FunctionN{Name: "version", Fn: scalarOf("version", 0, 0, types.LongText, func(*sql.Context, []any) (any, error) { return version, nil })},
		sql.FunctionN{Name: "makedate", Fn: scalarOf("makedate", 2, 2, types.Date, makeDate)},
		sql.FunctionN{Name: "utc_date", Fn: scalarOf("utc_date", 0, 0, types.Date, func(ctx *sql.Context, _ []any) (any, error) {
			return ctx.QueryTime().UTC().Truncate(24 * time.Hour), nil
		})},
		sql.FunctionN{Name: "utc_time", Fn: scalarOf("utc_time", 0, 1, types.Time, utcTime)},
		sql.FunctionN{Name: "period_add", Fn: scalarOf("period_add", 2, 2, types.Int64, periodAdd)},
		sql.FunctionN{Name: "period_diff", Fn: scalarOf("period_diff", 2, 2, types.Int64, periodDiff)},
		sql.Function0{Name: "session_user", Fn: function.NewUser},
		sql.Function0{Name: "system_user", Fn: function.NewUser},
		sql.FunctionN{Name: "benchmark", Fn: newBenchmark},
		sql.FunctionN{Name: "str_to_date", Fn: newStrToDate},
	} {
		set[f.FunctionName()] = f
	}
	return set
}

// scalar is a function of values, NULL when one of them is.
type scalar struct {
	name string
	typ  sql.Type
	args []sql.Expression
	eval func(ctx *sql.Context, args []any) (any, error)
}

var (
	_ sql.FunctionExpression = (*scalar)(nil)
	_ sql.CollationCoercible = (*scalar)(nil)
)

func scalarOf(name string, low, high int, t sql.Type, eval func(*sql.Context, []any) (any, error)) sql.CreateFuncNArgs {
	return func(_ *sql.Context, args ...sql.Expression) (sql.Expression, error) {
		if len(args) < low || len(args) > high {
			return nil, sql.ErrInvalidArgumentNumber.New(name, low, len(args))
		}
		return &scalar{name, t, args, eval}, nil
	}
}

func (s *scalar) FunctionName() string         { return s.name }
func (s *scalar) Description() string          { return s.name }
func (s *scalar) Type(*sql.Context) sql.Type   { return s.typ }
func (s *scalar) IsNullable(*sql.Context) bool { return true }
func (s *scalar) Children() []sql.Expression   { return s.args }
func (s *scalar) CollationCoercibility(*sql.Context) (sql.CollationID, byte) {
	return sql.Collation_utf8mb3_general_ci, 3
}

func (s *scalar) Resolved() bool {
	for _, a := range s.args {
		if !a.Resolved() {
			return false
		}
	}
	return true
}

func (s *scalar) String() string {
	parts := make([]string, len(s.args))
	for i, a := range s.args {
		parts[i] = a.String()
	}
	return s.name + "(" + strings.Join(parts, ",") + ")"
}

func (s *scalar) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != len(s.args) {
		return nil, sql.ErrInvalidChildrenNumber.New(s, len(children), len(s.args))
	}
	n := *s
	n.args = children
	return &n, nil
}

func (s *scalar) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	vals := make([]any, len(s.args))
	for i, a := range s.args {
		v, err := a.Eval(ctx, row)
		if err != nil || v == nil {
			return nil, err
		}
		vals[i] = v
	}
	return s.eval(ctx, vals)
}

// integers converts arguments as MySQL does where a function wants integers.
func integers(ctx *sql.Context, args []any) ([]int64, error) {
	out := make([]int64, len(args))
	for i, a := range args {
		v, _, err := types.Int64.Convert(ctx, a)
		if err != nil && !sql.ErrTruncatedIncorrect.Is(err) {
			return nil, err
		}
		out[i], _ = v.(int64)
	}
	return out, nil
}

// twoDigitYear is MySQL's reading of years below 100.
func twoDigitYear(y int64) int64 {
	switch {
	case y < 70:
		return y + 2000
	case y < 100:
		return y + 1900
	}
	return y
}

func makeDate(ctx *sql.Context, args []any) (any, error) {
	n, err := integers(ctx, args)
	if err != nil {
		return nil, err
	}
	year, day := n[0], n[1]
	if year < 0 || year > 9999 || day <= 0 || day > 3652500 {
		return nil, nil
	}
	t := time.Date(int(twoDigitYear(year)), 1, int(day), 0, 0, 0, 0, time.UTC)
	if t.Year() > 9999 {
		return nil, nil
	}
	return t, nil
}

func utcTime(ctx *sql.Context, args []any) (any, error) {
	digits := int64(0)
	if len(args) == 1 {
		n, err := integers(ctx, args)
		if err != nil {
			return nil, err
		}
		if digits = n[0]; digits < 0 || digits > 6 {
			return nil, function.ErrTooHighPrecision.New(digits, "utc_time", 6)
		}
	}
	now := ctx.QueryTime().UTC()
	unit := time.Second
	for range digits {
		unit /= 10
	}
	of := now.Sub(now.Truncate(24 * time.Hour)).Truncate(unit)
	return types.Timespan(of.Microseconds()), nil
}

// months reads a period YYMM or YYYYMM.
func months(p int64) (int64, bool) {
	if p == 0 {
		return 0, true
	}
	y, m := twoDigitYear(p/100), p%100
	return y*12 + m - 1, p > 0 && m >= 1 && m <= 12
}

func periodAdd(ctx *sql.Context, args []any) (any, error) {
	n, err := integers(ctx, args)
	if err != nil {
		return nil, err
	}
	m, ok := months(n[0])
	if !ok {
		return nil, sql.ErrInvalidArgument.New("period_add")
	}
	if n[0] == 0 {
		return int64(0), nil
	}
	m += n[1]
	return m/12*100 + m%12 + 1, nil
}

func periodDiff(ctx *sql.Context, args []any) (any, error) {
	n, err := integers(ctx, args)
	if err != nil {
		return nil, err
	}
	a, okA := months(n[0])
	b, okB := months(n[1])
	if !okA || !okB {
		return nil, sql.ErrInvalidArgument.New("period_diff")
	}
	return a - b, nil
}

// benchmark evaluates an expression many times.
type benchmark struct{ scalar }

func newBenchmark(_ *sql.Context, args ...sql.Expression) (sql.Expression, error) {
	if len(args) != 2 {
		return nil, sql.ErrInvalidArgumentNumber.New("benchmark", 2, len(args))
	}
	return &benchmark{scalar{name: "benchmark", typ: types.Int64, args: args}}, nil
}

func (b *benchmark) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	return newBenchmark(ctx, children...)
}

func (b *benchmark) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := b.args[0].Eval(ctx, row)
	if err != nil || v == nil {
		return nil, err
	}
	n, err := integers(ctx, []any{v})
	if err != nil || n[0] < 0 {
		return nil, err
	}
	for i := range n[0] {
		if i&1023 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, err := b.args[1].Eval(ctx, row); err != nil {
			return nil, err
		}
	}
	return int64(0), nil
}

// strToDate is the built-in function, which fails on NULL and on what is not a string.
type strToDate struct{ *function.StrToDate }

func newStrToDate(ctx *sql.Context, args ...sql.Expression) (sql.Expression, error) {
	if len(args) != 2 {
		return nil, sql.ErrInvalidArgumentNumber.New("str_to_date", 2, len(args))
	}
	return &strToDate{function.NewStrToDate(ctx, args[0], args[1]).(*function.StrToDate)}, nil
}

func (s *strToDate) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	return newStrToDate(ctx, children...)
}

func (s *strToDate) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	lits := make([]sql.Expression, 2)
	for i, a := range s.Children() {
		v, err := a.Eval(ctx, row)
		if err != nil || v == nil {
			return nil, err
		}
		text, _, err := types.LongText.Convert(ctx, v)
		if err != nil {
			return nil, err
		}
		if text, err = sql.UnwrapAny(ctx, text); err != nil {
			return nil, err
		}
		lits[i] = literal{a, text}
	}
	return (&function.StrToDate{Date: lits[0], Format: lits[1]}).Eval(ctx, row)
}

// literal is an expression whose value is known.
type literal struct {
	sql.Expression
	v any
}

func (l literal) Eval(*sql.Context, sql.Row) (any, error) { return l.v, nil }
