package sqlplan

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"

	"github.com/lakesql/lakesql/storage"
)

// columnCodec converts the values of one column between the front end's Go type for its MySQL type and the Go type of its
// storage.Kind. The way is chosen once, when the codec is made. NULL is nil on both sides.
type columnCodec struct {
	name   string
	typ    sql.Type
	field  storage.Type
	encode func(v any) (any, error)                  // v is not nil
	decode func(v any) (any, error)                  // v is not nil
	read   func(a arrow.Array, row int) (any, error) // the value is not NULL
}

// toStorage converts a value of the column's MySQL type. A value of another Go type is converted by the type first, as long
// as that neither cuts nor clamps it.
func (c *columnCodec) toStorage(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out, err := c.encode(v)
	if err != nil {
		return nil, c.wrap(err)
	}
	return out, nil
}

// fromValue converts a value of a storage.Row. It fails when another writer left a value that the MySQL type does not have.
func (c *columnCodec) fromValue(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out, err := c.decode(v)
	if err != nil {
		return nil, c.wrap(err)
	}
	return out, nil
}

// fromBatch is fromValue for a cell of a batch. Text and bytes share the batch's memory.
func (c *columnCodec) fromBatch(b storage.Batch, col, row int) (any, error) {
	a := b.Columns[col]
	if a.IsNull(row) {
		return nil, nil
	}
	out, err := c.read(a, row)
	if err != nil {
		return nil, c.wrap(err)
	}
	return out, nil
}

// wrap names the column; errors that already are MySQL's own pass.
func (c *columnCodec) wrap(err error) error {
	if _, ok := err.(*mysql.SQLError); ok {
		return err
	}
	return fmt.Errorf("column %s: %w", c.name, err)
}

// newColumnCodec makes the codec between a column and its field. It fails when the field's type cannot hold the column's,
// which happens when another engine changed the table's schema.
func newColumnCodec(col *sql.Column, f storage.Field) (*columnCodec, error) {
	c := &columnCodec{name: col.Name, typ: col.Type, field: f.Type}
	if !c.build(f.Type) {
		return nil, mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
			"Column '%s' is %s here and %s in the table's files", col.Name, col.Type, kindName(f.Type))
	}
	return c, nil
}

func (c *columnCodec) build(f storage.Type) bool {
	switch t := c.typ.(type) {
	case types.NumberTypeImpl_:
		return c.buildNumber(t, f)
	case types.DecimalType_:
		switch f.Kind {
		case storage.Decimal:
			c.decimal(t, f)
			return true
		case storage.String:
			c.text(
				func(v any) (string, error) { return decimalText(v, t) },
				func(s string) (any, error) { return parseDecimal(s, t) })
			return true
		}
	case types.StringType:
		if types.IsBinaryType(t) {
			if f.Kind != storage.Bytes {
				return false
			}
			c.bytes(
				func(v any) ([]byte, error) { return toBytes(v, t) },
				func(b []byte) (any, error) { return b[:len(b):len(b)], nil })
			return true
		}
		switch f.Kind {
		case storage.String:
			c.text(
				func(v any) (string, error) { return toText(v, t) },
				func(s string) (any, error) { return s, nil })
			return true
		case storage.Decimal:
			c.decimalAsText(f)
			return true
		}
	case types.TimespanType_:
		if f.Kind != storage.Int64 {
			return false
		}
		c.encode = func(v any) (any, error) {
			ts, ok := v.(types.Timespan)
			if !ok {
				return exact(t, v, func(v types.Timespan) any { return int64(v) })
			}
			return int64(ts), nil
		}
		c.decode = func(v any) (any, error) { return timespan(v.(int64)) }
		c.read = func(a arrow.Array, i int) (any, error) { return timespan(a.(*array.Int64).Value(i)) }
		return true
	case types.YearType_:
		if f.Kind != storage.Int32 {
			return false
		}
		c.encode = func(v any) (any, error) {
			y, ok := v.(int16)
			if !ok {
				return exact(t, v, func(v int16) any { return int32(v) })
			}
			return int32(y), nil
		}
		c.decode = func(v any) (any, error) { return year(v.(int32)) }
		c.read = func(a arrow.Array, i int) (any, error) { return year(a.(*array.Int32).Value(i)) }
		return true
	case types.BitType_:
		return c.buildBit(t, f)
	case types.EnumType:
		if f.Kind != storage.String {
			return false
		}
		labels := newEnumLabels(t)
		c.text(labels.label, labels.index)
		return true
	case types.SetType:
		if f.Kind != storage.String {
			return false
		}
		labels := newSetLabels(t)
		c.text(labels.text, labels.bits)
		return true
	case types.JsonType:
		if f.Kind != storage.String && f.Kind != storage.Nested {
			return false
		}
		c.text(jsonText, func(s string) (any, error) { return jsonValue(s), nil })
		return true
	case types.VectorType:
		if f.Kind != storage.Bytes {
			return false
		}
		c.bytes(
			func(v any) ([]byte, error) {
				if b, ok := v.([]byte); ok {
					return b, nil
				}
				return exact(t, v, func(b []byte) []byte { return b })
			},
			func(b []byte) (any, error) { return b[:len(b):len(b)], nil })
		return true
	case sql.DatetimeType:
		return c.buildTime(t, f)
	}
	if types.IsGeometry(c.typ) && f.Kind == storage.Bytes {
		c.bytes(
			func(v any) ([]byte, error) {
				g, err := types.UnwrapGeometry(context.Background(), v)
				if err != nil {
					return nil, err
				}
				return g.Serialize(), nil
			},
			func(b []byte) (any, error) {
				g, _, err := types.GeometryType{}.Convert(context.Background(), b)
				return g, err
			})
		return true
	}
	return false
}

// text sets the three ways of a column that is kept as a string.
func (c *columnCodec) text(to func(any) (string, error), from func(string) (any, error)) {
	c.encode = func(v any) (any, error) {
		s, err := to(v)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	c.decode = func(v any) (any, error) { return from(v.(string)) }
	c.read = func(a arrow.Array, i int) (any, error) { return from(a.(*array.String).Value(i)) }
}

// bytes sets the three ways of a column that is kept as bytes.
func (c *columnCodec) bytes(to func(any) ([]byte, error), from func([]byte) (any, error)) {
	c.encode = func(v any) (any, error) {
		b, err := to(v)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	c.decode = func(v any) (any, error) { return from(v.([]byte)) }
	c.read = func(a arrow.Array, i int) (any, error) { return from(a.(*array.Binary).Value(i)) }
}

// exact converts a value that has not the Go type of its MySQL type, and refuses to change it on the way.
func exact[T, R any](t sql.Type, v any, f func(T) R) (R, error) {
	var none R
	out, in, err := t.Convert(context.Background(), v)
	if err != nil {
		return none, err
	}
	x, ok := out.(T)
	if !ok || in != sql.InRange {
		return none, sql.ErrValueOutOfRange.New(v, t)
	}
	return f(x), nil
}

// finite refuses what no number of the type is: the front end makes infinity of a text such as '1e309'.
func finite(t sql.Type, v any, x float64) error {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return sql.ErrValueOutOfRange.New(v, t)
	}
	return nil
}

func kindName(t storage.Type) string {
	switch t.Kind {
	case storage.Bool:
		return "boolean"
	case storage.Int32:
		return "int"
	case storage.Int64:
		return "long"
	case storage.Float32:
		return "float"
	case storage.Float64:
		return "double"
	case storage.String:
		return "string"
	case storage.Bytes:
		return "bytes"
	case storage.Date:
		return "date"
	case storage.Timestamp:
		return "timestamp"
	case storage.Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	}
	return "nested"
}

// Numbers.

func (c *columnCodec) buildNumber(t types.NumberTypeImpl_, f storage.Type) bool {
	switch t.Type() {
	case sqltypes.Float32:
		if f.Kind != storage.Float32 {
			return false
		}
		c.encode = func(v any) (any, error) {
			x, ok := v.(float32)
			if !ok {
				var err error
				if x, err = exact(t, v, func(x float32) float32 { return x }); err != nil {
					return nil, err
				}
			}
			return x, finite(t, v, float64(x))
		}
		c.decode = func(v any) (any, error) { return v.(float32), nil }
		c.read = func(a arrow.Array, i int) (any, error) { return a.(*array.Float32).Value(i), nil }
		return true
	case sqltypes.Float64:
		if f.Kind != storage.Float64 {
			return false
		}
		c.encode = func(v any) (any, error) {
			x, ok := v.(float64)
			if !ok {
				var err error
				if x, err = exact(t, v, func(x float64) float64 { return x }); err != nil {
					return nil, err
				}
			}
			return x, finite(t, v, x)
		}
		c.decode = func(v any) (any, error) { return v.(float64), nil }
		c.read = func(a arrow.Array, i int) (any, error) { return a.(*array.Float64).Value(i), nil }
		return true
	case sqltypes.Uint64:
		if f.Kind != storage.Decimal || f.Scale != 0 {
			return false
		}
		c.encode = func(v any) (any, error) {
			if x, ok := v.(uint64); ok {
				return decimal128.FromU64(x), nil
			}
			return exact(t, v, func(x uint64) any { return decimal128.FromU64(x) })
		}
		c.decode = func(v any) (any, error) { return unsignedOf(v.(decimal128.Num), t) }
		c.read = func(a arrow.Array, i int) (any, error) { return unsignedOf(a.(*array.Decimal128).Value(i), t) }
		return true
	case sqltypes.Int64:
		if f.Kind != storage.Int64 {
			return false
		}
		c.encode = func(v any) (any, error) {
			if x, ok := v.(int64); ok {
				return x, nil
			}
			return exact(t, v, func(x int64) any { return x })
		}
		c.decode = func(v any) (any, error) { return v.(int64), nil }
		c.read = func(a arrow.Array, i int) (any, error) { return a.(*array.Int64).Value(i), nil }
		return true
	}
	box := intBox(t)
	if box == nil {
		return false
	}
	switch f.Kind {
	case storage.Bool:
		// A boolean of an attached table is TINYINT(1); only 0 and 1 go back.
		c.encode = func(v any) (any, error) {
			n, err := intOf(v, t)
			if err != nil {
				return nil, err
			}
			if n != 0 && n != 1 {
				return nil, sql.ErrValueOutOfRange.New(v, "boolean")
			}
			return n == 1, nil
		}
		c.decode = func(v any) (any, error) { return box(boolInt(v.(bool))), nil }
		c.read = func(a arrow.Array, i int) (any, error) { return box(boolInt(a.(*array.Boolean).Value(i))), nil }
		return true
	case storage.Int32:
		c.encode = func(v any) (any, error) {
			n, err := intOf(v, t)
			if err != nil {
				return nil, err
			}
			if n < math.MinInt32 || n > math.MaxInt32 {
				return nil, sql.ErrValueOutOfRange.New(v, t)
			}
			return int32(n), nil
		}
	case storage.Int64:
		c.encode = func(v any) (any, error) {
			n, err := intOf(v, t)
			if err != nil {
				return nil, err
			}
			return n, nil
		}
	default:
		return false
	}
	lo, hi := intLimits(t)
	from := func(n int64) (any, error) {
		if n < lo || n > hi {
			return nil, sql.ErrValueOutOfRange.New(n, t)
		}
		return box(n), nil
	}
	if f.Kind == storage.Int32 {
		c.decode = func(v any) (any, error) { return from(int64(v.(int32))) }
		c.read = func(a arrow.Array, i int) (any, error) { return from(int64(a.(*array.Int32).Value(i))) }
		return true
	}
	c.decode = func(v any) (any, error) { return from(v.(int64)) }
	c.read = func(a arrow.Array, i int) (any, error) { return from(a.(*array.Int64).Value(i)) }
	return true
}

// intBox gives the Go type in which the front end holds an integer type of at most 32 bits.
func intBox(t types.NumberTypeImpl_) func(int64) any {
	switch t.Type() {
	case sqltypes.Int8:
		return func(n int64) any { return int8(n) }
	case sqltypes.Uint8:
		return func(n int64) any { return uint8(n) }
	case sqltypes.Int16:
		return func(n int64) any { return int16(n) }
	case sqltypes.Uint16:
		return func(n int64) any { return uint16(n) }
	case sqltypes.Int24, sqltypes.Int32:
		return func(n int64) any { return int32(n) }
	case sqltypes.Uint24, sqltypes.Uint32:
		return func(n int64) any { return uint32(n) }
	}
	return nil
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// intOf gives the number of a value of an integer type of at most 32 bits.
func intOf(v any, t types.NumberTypeImpl_) (int64, error) {
	var n int64
	switch x := v.(type) {
	case int8:
		n = int64(x)
	case int16:
		n = int64(x)
	case int32:
		n = int64(x)
	case int64:
		n = x
	case uint8:
		n = int64(x)
	case uint16:
		n = int64(x)
	case uint32:
		n = int64(x)
	case bool:
		n = boolInt(x)
	default:
		out, in, err := t.Convert(context.Background(), v)
		if err != nil {
			return 0, err
		}
		if in != sql.InRange {
			return 0, sql.ErrValueOutOfRange.New(v, t)
		}
		return intOf(out, t)
	}
	if lo, hi := intLimits(t); n < lo || n > hi {
		return 0, sql.ErrValueOutOfRange.New(v, t)
	}
	return n, nil
}

func unsignedOf(n decimal128.Num, t sql.Type) (any, error) {
	if n.HighBits() != 0 {
		return nil, sql.ErrValueOutOfRange.New(n.ToString(0), t)
	}
	return n.LowBits(), nil
}

func (c *columnCodec) buildBit(t types.BitType_, f storage.Type) bool {
	toBits := func(v any) (uint64, error) {
		if x, ok := v.(uint64); ok {
			return x, nil
		}
		return exact(t, v, func(x uint64) uint64 { return x })
	}
	fromBits := func(x uint64) (any, error) {
		if n := t.NumberOfBits(); n < 64 && x>>n != 0 {
			return nil, sql.ErrValueOutOfRange.New(x, t)
		}
		return x, nil
	}
	switch f.Kind {
	case storage.Int64:
		c.encode = func(v any) (any, error) {
			x, err := toBits(v)
			if err != nil {
				return nil, err
			}
			if x > math.MaxInt64 {
				return nil, sql.ErrValueOutOfRange.New(x, t)
			}
			return int64(x), nil
		}
		c.decode = func(v any) (any, error) { return fromBits(uint64(v.(int64))) }
		c.read = func(a arrow.Array, i int) (any, error) { return fromBits(uint64(a.(*array.Int64).Value(i))) }
		return true
	case storage.Bytes:
		// Eight bytes, the most significant first, so that they compare as the number does.
		c.bytes(
			func(v any) ([]byte, error) {
				x, err := toBits(v)
				if err != nil {
					return nil, err
				}
				return binary.BigEndian.AppendUint64(nil, x), nil
			},
			func(b []byte) (any, error) {
				if len(b) != 8 {
					return nil, sql.ErrValueOutOfRange.New(b, t)
				}
				return binary.BigEndian.Uint64(b), nil
			})
		return true
	}
	return false
}

// Decimals. The front end's value of a DECIMAL(p,s) column is a decimal of exactly s places.

func (c *columnCodec) decimal(t types.DecimalType_, f storage.Type) {
	c.encode = func(v any) (any, error) {
		d, err := scaled(v, t)
		if err != nil {
			return nil, err
		}
		n, ok := unscaled(d, f.Scale)
		if !ok {
			return nil, sql.ErrValueOutOfRange.New(d.Text('f'), t)
		}
		return n, nil
	}
	from := func(n decimal128.Num) (any, error) { return decimalOf(n, f.Scale), nil }
	if int(t.Scale()) != f.Scale || int(t.Precision()) < f.Precision {
		from = func(n decimal128.Num) (any, error) {
			return exact(t, decimalOf(n, f.Scale), func(d *apd.Decimal) any { return d })
		}
	}
	c.decode = func(v any) (any, error) { return from(v.(decimal128.Num)) }
	c.read = func(a arrow.Array, i int) (any, error) { return from(a.(*array.Decimal128).Value(i)) }
}

// decimalAsText shows a decimal of more than 30 places, which MySQL's DECIMAL does not have.
func (c *columnCodec) decimalAsText(f storage.Type) {
	c.encode = func(v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, sql.ErrInvalidType.New(v)
		}
		d, _, err := apd.NewFromString(strings.TrimSpace(s))
		if err != nil {
			return nil, sql.ErrValueOutOfRange.New(s, kindName(f))
		}
		n, ok := unscaled(d, f.Scale)
		if !ok || !n.FitsInPrecision(int32(f.Precision)) {
			return nil, sql.ErrValueOutOfRange.New(s, kindName(f))
		}
		return n, nil
	}
	c.decode = func(v any) (any, error) { return v.(decimal128.Num).ToString(int32(f.Scale)), nil }
	c.read = func(a arrow.Array, i int) (any, error) {
		return a.(*array.Decimal128).Value(i).ToString(int32(f.Scale)), nil
	}
}

// scaled gives the decimal of a value with the places of its type.
func scaled(v any, t types.DecimalType_) (*apd.Decimal, error) {
	if d, ok := v.(*apd.Decimal); ok && d.Form == apd.Finite && d.Exponent == -int32(t.Scale()) {
		return d, nil
	}
	out, in, err := t.Convert(context.Background(), v)
	if err != nil {
		return nil, err
	}
	d, ok := out.(*apd.Decimal)
	if !ok || in != sql.InRange || d.Form != apd.Finite {
		return nil, sql.ErrValueOutOfRange.New(v, t)
	}
	return d, nil
}

var bigTen = big.NewInt(10)

// unscaled gives d × 10^scale, false if it is no whole number or has more than 38 digits.
func unscaled(d *apd.Decimal, scale int) (decimal128.Num, bool) {
	if d.Form != apd.Finite {
		return decimal128.Num{}, false
	}
	shift := int64(d.Exponent) + int64(scale)
	if shift == 0 && d.Coeff.IsUint64() {
		n := decimal128.FromU64(d.Coeff.Uint64())
		if d.Negative {
			n = n.Negate()
		}
		return n, true
	}
	x := d.Coeff.MathBigInt()
	switch {
	case x.Sign() == 0:
		return decimal128.Num{}, true
	case shift > decimalDigitsMax || shift < -2*decimalDigitsMax-30:
		return decimal128.Num{}, false
	case shift > 0:
		x = new(big.Int).Mul(x, new(big.Int).Exp(bigTen, big.NewInt(shift), nil))
	case shift < 0:
		var rest big.Int
		x, _ = new(big.Int).QuoRem(x, new(big.Int).Exp(bigTen, big.NewInt(-shift), nil), &rest)
		if rest.Sign() != 0 {
			return decimal128.Num{}, false
		}
	}
	if x.BitLen() > 127 {
		return decimal128.Num{}, false
	}
	if d.Negative {
		x = new(big.Int).Neg(x)
	}
	n := decimal128.FromBigInt(x)
	return n, n.FitsInPrecision(decimalDigitsMax)
}

// decimalOf is the inverse of unscaled.
func decimalOf(n decimal128.Num, scale int) *apd.Decimal {
	d := &apd.Decimal{Exponent: -int32(scale)}
	if n.Sign() < 0 {
		d.Negative = true
		n = n.Negate()
	}
	if n.HighBits() == 0 {
		d.Coeff.SetUint64(n.LowBits())
	} else {
		d.Coeff.SetMathBigInt(n.BigInt())
	}
	return d
}

func decimalText(v any, t types.DecimalType_) (string, error) {
	d, err := scaled(v, t)
	if err != nil {
		return "", err
	}
	if d.IsZero() && d.Negative {
		d = new(apd.Decimal).Abs(d)
	}
	return d.Text('f'), nil
}

func parseDecimal(s string, t types.DecimalType_) (any, error) {
	d, _, err := apd.NewFromString(s)
	if err != nil || d.Form != apd.Finite {
		return nil, sql.ErrValueOutOfRange.New(s, t)
	}
	if d.Exponent == -int32(t.Scale()) {
		return d, nil
	}
	return exact(t, d, func(d *apd.Decimal) any { return d })
}

// Times. DATE is midnight UTC in the front end; DATETIME and TIMESTAMP are times in UTC whose clock shows the SQL value.
// The zero date has its own value there, in the year -1, which no other MySQL value has: it is kept like any other.

func (c *columnCodec) buildTime(t sql.DatetimeType, f storage.Type) bool {
	if types.IsDateType(t) {
		if f.Kind != storage.Date {
			return false
		}
		c.encode = func(v any) (any, error) {
			x, ok := v.(time.Time)
			if !ok {
				return exact(t, v, func(x time.Time) any { return daysOf(x) })
			}
			return daysOf(x), nil
		}
		c.decode = func(v any) (any, error) { return dateOf(v.(int32)), nil }
		c.read = func(a arrow.Array, i int) (any, error) { return dateOf(int32(a.(*array.Date32).Value(i))), nil }
		return true
	}
	if f.Kind != storage.Timestamp {
		return false
	}
	c.encode = func(v any) (any, error) {
		x, ok := v.(time.Time)
		if !ok {
			return exact(t, v, func(x time.Time) any { return x.UnixMicro() })
		}
		return x.UnixMicro(), nil
	}
	c.decode = func(v any) (any, error) { return time.UnixMicro(v.(int64)).UTC(), nil }
	c.read = func(a arrow.Array, i int) (any, error) {
		return time.UnixMicro(int64(a.(*array.Timestamp).Value(i))).UTC(), nil
	}
	return true
}

const secondsPerDay = 24 * 60 * 60

func daysOf(t time.Time) int32 {
	s := t.Unix()
	d := s / secondsPerDay
	if s%secondsPerDay < 0 {
		d--
	}
	return int32(d)
}

func dateOf(days int32) time.Time { return time.Unix(int64(days)*secondsPerDay, 0).UTC() }

// timeMax is the largest TIME, 838:59:59, in microseconds.
const timeMax = 3020399000000

func timespan(us int64) (any, error) {
	if us > timeMax || us < -timeMax {
		return nil, sql.ErrValueOutOfRange.New(us, types.Time)
	}
	return types.Timespan(us), nil
}

func year(y int32) (any, error) {
	if y != 0 && (y < 1901 || y > 2155) {
		return nil, sql.ErrValueOutOfRange.New(y, types.Year)
	}
	return int16(y), nil
}

// Text and bytes.

func toText(v any, t types.StringType) (string, error) {
	switch s := v.(type) {
	case string:
		return s, nil
	case sql.AnyWrapper:
		u, err := s.UnwrapAny(context.Background())
		if err != nil {
			return "", err
		}
		return toText(u, t)
	}
	return exact(t, v, func(s string) string { return s })
}

func toBytes(v any, t types.StringType) ([]byte, error) {
	switch b := v.(type) {
	case []byte:
		if b == nil {
			return []byte{}, nil
		}
		return b, nil
	case string:
		return []byte(b), nil
	case sql.AnyWrapper:
		u, err := b.UnwrapAny(context.Background())
		if err != nil {
			return nil, err
		}
		return toBytes(u, t)
	}
	return exact(t, v, func(b []byte) []byte { return b })
}
