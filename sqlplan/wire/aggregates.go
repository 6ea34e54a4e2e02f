package wire

import (
	"fmt"
	"math"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/expression/function/aggregation"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// Total is SUM or AVG. Over integers and DECIMAL it is exact and has MySQL's
// result type; the front end's own adds floating-point numbers.
type Total struct {
	Child sql.Expression // may be a DistinctExpression
	Avg   bool

	window *sql.WindowDefinition
	id     sql.ColumnId
}

var (
	_ sql.FunctionExpression        = (*Total)(nil)
	_ sql.Aggregation               = (*Total)(nil)
	_ sql.WindowAdaptableExpression = (*Total)(nil)
	_ sql.CollationCoercible        = (*Total)(nil)
)

func (t *Total) FunctionName() string {
	if t.Avg {
		return "avg"
	}
	return "sum"
}

func (t *Total) Description() string {
	if t.Avg {
		return "returns the average value of expr in all rows."
	}
	return "returns the sum of expr in all rows"
}

func (t *Total) label() string {
	if t.Avg {
		return "AVG"
	}
	return "SUM"
}

func (t *Total) String() string {
	if t.window != nil {
		pr := sql.NewTreePrinter()
		_ = pr.WriteNode("%s", t.label())
		_ = pr.WriteChildren(t.window.String(), t.Child.String())
		return pr.String()
	}
	return t.label() + "(" + t.Child.String() + ")"
}

func (t *Total) DebugString(ctx *sql.Context) string {
	if t.window != nil {
		pr := sql.NewTreePrinter()
		_ = pr.WriteNode("%s", t.label())
		_ = pr.WriteChildren(sql.DebugString(ctx, t.window), sql.DebugString(ctx, t.Child))
		return pr.String()
	}
	return t.label() + "(" + sql.DebugString(ctx, t.Child) + ")"
}

func (t *Total) IsNullable(*sql.Context) bool { return true } // over no rows

func (t *Total) CollationCoercibility(*sql.Context) (sql.CollationID, byte) {
	return sql.Collation_binary, 5
}

func (t *Total) Eval(*sql.Context, sql.Row) (any, error) {
	return nil, aggregation.ErrEvalUnsupportedOnAggregation.New(t.FunctionName())
}

func (t *Total) Children() []sql.Expression {
	c := []sql.Expression{t.Child}
	if t.window != nil {
		c = append(c, t.window.ToExpressions()...)
	}
	return c
}

func (t *Total) Resolved() bool {
	for _, c := range t.Children() {
		if !c.Resolved() {
			return false
		}
	}
	return true
}

func (t *Total) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) < 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(t, len(children), 1)
	}
	n := *t
	n.Child = children[0]
	if len(children) > 1 && t.window != nil {
		w, err := t.window.FromExpressions(ctx, children[1:])
		if err != nil {
			return nil, err
		}
		n.window = w
	}
	return &n, nil
}

func (t *Total) Id() sql.ColumnId { return t.id }

func (t *Total) WithId(id sql.ColumnId) sql.IdExpression {
	n := *t
	n.id = id
	return &n
}

func (t *Total) Window() *sql.WindowDefinition { return t.window }

func (t *Total) WithWindow(_ *sql.Context, w *sql.WindowDefinition) sql.WindowAdaptableExpression {
	n := *t
	n.window = w
	return &n
}

// MySQL's rules for the result of SUM and AVG over exact numbers.
const (
	sumDigits      = 22 // SUM has this many more digits than its argument
	avgScale       = 4  // AVG has this many more decimals (div_precision_increment)
	decimalDigits  = 65
	decimalScale   = 30
	internalDigits = 65 // the front end's type of decimals whose scale it does not know
)

// exactType tells precision and scale of an exact numeric type.
func exactType(t sql.Type) (precision, scale int, ok bool) {
	if d, is := t.(sql.DecimalType); is && d.IsDecimalType() {
		return int(d.Precision()), int(d.Scale()), true
	}
	switch t.Type() {
	case querypb.Type_INT8, querypb.Type_UINT8:
		return 3, 0, true
	case querypb.Type_INT16, querypb.Type_UINT16:
		return 5, 0, true
	case querypb.Type_INT24, querypb.Type_UINT24:
		return 8, 0, true
	case querypb.Type_INT32, querypb.Type_UINT32:
		return 10, 0, true
	case querypb.Type_INT64:
		return 19, 0, true
	case querypb.Type_UINT64:
		return 20, 0, true
	case querypb.Type_YEAR:
		return 4, 0, true
	}
	return 0, 0, false
}

// scaleUnknown tells the front end's stand-in for "some decimal", whose values keep their own scale.
func scaleUnknown(precision, scale int) bool {
	return precision == internalDigits && scale == decimalScale
}

func (t *Total) Type(ctx *sql.Context) sql.Type {
	p, s, ok := exactType(t.Child.Type(ctx))
	if !ok {
		return types.Float64
	}
	if scaleUnknown(p, s) {
		return types.InternalDecimalType
	}
	if t.Avg {
		added := min(avgScale, decimalScale-s)
		p, s = p+added, s+added
	} else {
		p += sumDigits
	}
	d, err := types.CreateDecimalType(uint8(min(p, decimalDigits)), uint8(s))
	if err != nil {
		return types.InternalDecimalType
	}
	return d
}

// sum adds values of one column. The zero value is an empty sum.
type sum struct {
	n     int64
	small int64        // integers, while they fit
	big   *apd.Decimal // the rest of them, and decimals; nil: none
	float float64
}

func (s *sum) addInt(v int64) {
	r := s.small + v
	if (r > s.small) == (v > 0) || v == 0 {
		s.small = r
		return
	}
	s.addDecimal(apd.New(s.small, 0))
	s.small = v
}

func (s *sum) addDecimal(d *apd.Decimal) {
	if s.big == nil {
		s.big = new(apd.Decimal)
	}
	_, _ = sql.DecimalCtx.Add(s.big, s.big, d)
}

// add takes a value that is not NULL. exact tells which of the sums it belongs to.
func (s *sum) add(ctx *sql.Context, v any, exact bool) error {
	s.n++
	if !exact {
		f, _, err := types.Float64.Convert(ctx, v)
		if err != nil && !sql.ErrTruncatedIncorrect.Is(err) && f == nil {
			f = 0.0
		}
		if x, ok := f.(float64); ok {
			s.float += x
		}
		return nil
	}
	switch v := v.(type) {
	case int64:
		s.addInt(v)
	case int32:
		s.addInt(int64(v))
	case int16:
		s.addInt(int64(v))
	case int8:
		s.addInt(int64(v))
	case int:
		s.addInt(int64(v))
	case uint64:
		if v > math.MaxInt64 {
			s.addDecimal(types.DecimalFromUint64(v))
		} else {
			s.addInt(int64(v))
		}
	case uint32:
		s.addInt(int64(v))
	case uint16:
		s.addInt(int64(v))
	case uint8:
		s.addInt(int64(v))
	case bool:
		if v {
			s.addInt(1)
		}
	case *apd.Decimal:
		s.addDecimal(v)
	default:
		d, err := types.InternalDecimalType.ConvertToDecimal(v)
		if err != nil {
			return fmt.Errorf("adding %v: %w", v, err)
		}
		if d != nil {
			s.addDecimal(d)
		}
	}
	return nil
}

// total is the exact sum.
func (s *sum) total() *apd.Decimal {
	out := apd.New(s.small, 0)
	if s.big != nil {
		_, _ = sql.DecimalCtx.Add(out, out, s.big)
	}
	return out
}

// minus is the sum of what came after o.
func (s sum) minus(o sum) sum {
	d := sum{n: s.n - o.n, float: s.float - o.float}
	d.small = s.small - o.small
	overflow := (s.small >= 0) != (o.small >= 0) && (d.small >= 0) != (s.small >= 0)
	if overflow || s.big != nil || o.big != nil {
		t := s.total()
		_, _ = sql.DecimalCtx.Sub(t, t, o.total())
		d.small, d.big = 0, t
	}
	return d
}

// result is the value of SUM or AVG; NULL over no values.
func (t *Total) result(s sum, exact bool, out sql.Type) any {
	if s.n == 0 {
		return nil
	}
	if !exact {
		if t.Avg {
			return s.float / float64(s.n)
		}
		return s.float
	}
	d := s.total()
	scale := -d.Exponent
	if dt, ok := out.(sql.DecimalType); ok && !scaleUnknown(int(dt.Precision()), int(dt.Scale())) {
		scale = int32(dt.Scale())
	} else if t.Avg {
		scale = min(scale+avgScale, decimalScale)
	}
	c := sql.DecimalCtx.WithPrecision(200)
	if t.Avg {
		_, _ = c.Quo(d, d, apd.New(s.n, 0))
	}
	_, _ = c.Quantize(d, d, -scale)
	if d.IsZero() {
		d.Negative = false
	}
	return d
}

func (t *Total) NewBuffer(ctx *sql.Context) (sql.AggregationBuffer, error) {
	child, err := transform.Clone(ctx, t.Child)
	if err != nil {
		return nil, err
	}
	_, _, exact := exactType(child.Type(ctx))
	return &totalBuffer{t: t, child: child, exact: exact, out: t.Type(ctx)}, nil
}

type totalBuffer struct {
	t     *Total
	child sql.Expression
	exact bool
	out   sql.Type
	s     sum
}

func (b *totalBuffer) Update(ctx *sql.Context, row sql.Row) error {
	v, err := b.child.Eval(ctx, row)
	if err != nil || v == nil {
		return err
	}
	return b.s.add(ctx, v, b.exact)
}

func (b *totalBuffer) Eval(*sql.Context) (any, error) { return b.t.result(b.s, b.exact, b.out), nil }
func (b *totalBuffer) Dispose(ctx *sql.Context)       { expression.Dispose(ctx, b.child) }

func (t *Total) NewWindowFunction(ctx *sql.Context) (sql.WindowFunction, error) {
	child, err := transform.Clone(ctx, t.Child)
	if err != nil {
		return nil, err
	}
	framer, err := aggregation.NewSumAgg(child).WithWindow(ctx, t.window)
	if err != nil {
		return nil, err
	}
	_, _, exact := exactType(child.Type(ctx))
	return &totalWindow{WindowFunction: framer, t: t, child: child, exact: exact, out: t.Type(ctx)}, nil
}

// totalWindow computes frames from sums of everything before a row. The
// embedded function only says what the frames are.
type totalWindow struct {
	sql.WindowFunction
	t     *Total
	child sql.Expression
	exact bool
	out   sql.Type
	start int   // of the partition
	sums  []sum // sums[i]: of the partition's first i rows
}

func (w *totalWindow) StartPartition(ctx *sql.Context, in sql.WindowInterval, buf sql.WindowBuffer) error {
	expression.Dispose(ctx, w.child)
	w.start = in.Start
	w.sums = append(w.sums[:0], sum{})
	var s sum
	for _, row := range buf[in.Start:in.End] {
		v, err := w.child.Eval(ctx, row)
		if err != nil {
			return err
		}
		if v != nil {
			if s.big != nil {
				s.big = new(apd.Decimal).Set(s.big)
			}
			if err := s.add(ctx, v, w.exact); err != nil {
				return err
			}
		}
		w.sums = append(w.sums, s)
	}
	return nil
}

func (w *totalWindow) Compute(_ *sql.Context, in sql.WindowInterval, _ sql.WindowBuffer) (any, error) {
	if in.End <= in.Start {
		return nil, nil
	}
	from, to := in.Start-w.start, in.End-w.start
	return w.t.result(w.sums[to].minus(w.sums[from]), w.exact, w.out), nil
}

func (w *totalWindow) Dispose(ctx *sql.Context) {
	w.WindowFunction.Dispose(ctx)
	expression.Dispose(ctx, w.child)
}
