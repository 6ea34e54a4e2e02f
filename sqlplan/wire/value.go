package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// converter writes one value, never nil, as the client reads it.
type converter func(w *rowWriter, v any) (sqltypes.Value, error)

// converters chooses one for each column. binary: the value is parsed again
// into the binary protocol, so it must keep every bit.
func converters(ctx *sql.Context, schema sql.Schema, binary bool) []converter {
	out := make([]converter, len(schema))
	for i, col := range schema {
		out[i] = converterOf(ctx, col.Type, binary)
	}
	return out
}

func converterOf(ctx *sql.Context, t sql.Type, binary bool) converter {
	typ := t.Type()
	general := func(w *rowWriter, v any) (sqltypes.Value, error) { return w.general(t, v) }
	switch typ {
	case querypb.Type_FLOAT32:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			f, ok := v.(float32)
			if !ok {
				return general(w, v)
			}
			if binary {
				return w.text(typ, strconv.AppendFloat(w.buf, float64(f), 'g', -1, 32)), nil
			}
			return w.text(typ, appendFloat(w.buf, float64(f), 32)), nil
		}
	case querypb.Type_FLOAT64:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			f, ok := v.(float64)
			if !ok {
				return general(w, v)
			}
			return w.text(typ, appendFloat(w.buf, f, 64)), nil
		}
	case querypb.Type_INT8, querypb.Type_INT16, querypb.Type_INT24, querypb.Type_INT32, querypb.Type_INT64,
		querypb.Type_UINT8, querypb.Type_UINT16, querypb.Type_UINT24, querypb.Type_UINT32, querypb.Type_UINT64:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			switch n := v.(type) {
			case int64:
				if sqltypes.IsSigned(typ) || n >= 0 {
					return w.text(typ, strconv.AppendInt(w.buf, n, 10)), nil
				}
			case int32:
				if sqltypes.IsSigned(typ) || n >= 0 {
					return w.text(typ, strconv.AppendInt(w.buf, int64(n), 10)), nil
				}
			case uint64:
				if sqltypes.IsUnsigned(typ) || n <= math.MaxInt64 {
					return w.text(typ, strconv.AppendUint(w.buf, n, 10)), nil
				}
				// The front end says BIGINT of a sum of BIGINT UNSIGNED and a signed number. Better a wrong type than a wrong value.
				return w.text(querypb.Type_UINT64, strconv.AppendUint(w.buf, n, 10)), nil
			case string:
				// EXPLAIN and SHOW of the front end write the word where they mean the value.
				if n == "NULL" {
					return sqltypes.NULL, nil
				}
			}
			return general(w, v)
		}
	case querypb.Type_TIME:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			// The front end knows no TIME without microseconds; most columns are such.
			if span, ok := v.(types.Timespan); ok {
				return w.text(typ, append(w.buf, span.String()...)), nil
			}
			return general(w, v)
		}
	case querypb.Type_DATE:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			// The type's own way writes years before 1000 with fewer digits.
			if x, ok := v.(time.Time); ok && x.Year() > 0 && x.Year() <= 9999 {
				return w.text(typ, x.AppendFormat(w.buf, time.DateOnly)), nil
			}
			out, err := general(w, v)
			if text := out.Raw(); err == nil && !out.IsNull() && len(text) < len(time.DateOnly) && len(text) > 0 && text[0] != '-' {
				return w.text(typ, append(append(w.buf, "0000"[:len(time.DateOnly)-len(text)]...), text...)), nil
			}
			return out, err
		}
	case querypb.Type_DATETIME, querypb.Type_TIMESTAMP:
		dt, ok := t.(sql.DatetimeType)
		if !ok {
			return general
		}
		precision := dt.Precision()
		unit := time.Second
		for range precision {
			unit /= 10
		}
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			// The type's own way rounds, and refuses a TIMESTAMP that its zone's clock shows beyond the type's range in UTC.
			if x, ok := v.(time.Time); ok && x.Year() > 0 && x.Year() <= 9999 && time.Duration(x.Nanosecond())%unit == 0 {
				return w.text(typ, appendDatetime(w.buf, x, precision)), nil
			}
			return general(w, v)
		}
	case querypb.Type_DECIMAL:
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			if d, ok := v.(*apd.Decimal); ok && d.Negative && d.IsZero() {
				v = new(apd.Decimal).Abs(d) // MySQL's decimals have no negative zero
			}
			return general(w, v)
		}
	case querypb.Type_VARCHAR, querypb.Type_TEXT, querypb.Type_CHAR:
		st, ok := t.(sql.StringType)
		if !ok {
			return general
		}
		// Other character sets are encoded by the type itself, and so is what is not a plain string.
		plain := st.CharacterSet() == sql.CharacterSet_utf8mb4 && charsetResultsPlain(ctx) && typ != querypb.Type_CHAR
		return func(w *rowWriter, v any) (sqltypes.Value, error) {
			if s, ok := v.(string); ok && plain {
				return w.text(typ, append(w.buf, s...)), nil
			}
			return general(w, v)
		}
	}
	return general
}

func charsetResultsPlain(ctx *sql.Context) bool {
	switch ctx.GetCharacterSetResults() {
	case sql.CharacterSet_Unspecified, sql.CharacterSet_utf8mb4, sql.CharacterSet_binary:
		return true
	}
	return false
}

// appendDatetime writes a time with so many digits behind the seconds.
func appendDatetime(b []byte, t time.Time, precision int) []byte {
	b = t.AppendFormat(b, time.DateTime)
	if precision == 0 {
		return b
	}
	b = append(b, '.')
	n := t.Nanosecond()
	for div := int(1e8); precision > 0; precision-- {
		b = append(b, byte('0'+n/div%10))
		div /= 10
	}
	return b
}

// text takes the bytes that were appended behind w.buf as a value.
func (w *rowWriter) text(typ querypb.Type, b []byte) sqltypes.Value {
	v := b[len(w.buf):len(b):len(b)]
	w.buf = b
	return sqltypes.MakeTrusted(typ, v)
}

func (w *rowWriter) general(t sql.Type, v any) (sqltypes.Value, error) {
	val, err := t.SQL(w.ctx, nil, v)
	if err == nil {
		w.spill += val.Len()
	}
	return val, err
}

// appendFloat writes a number as MySQL does: the shortest decimal text that
// reads back to it, with an exponent only below 1e-15 and from 1e15 on. A
// FLOAT shows six digits.
func appendFloat(b []byte, f float64, bits int) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strconv.AppendFloat(b, f, 'g', -1, bits)
	}
	if f == 0 {
		if math.Signbit(f) {
			b = append(b, '-')
		}
		return append(b, '0')
	}
	digits := -1
	if bits == 32 {
		digits = 5 // behind the first one
		if s := strconv.FormatFloat(f, 'e', -1, 32); len(s) < len("1.23456e+00") {
			digits = -1
		}
	}
	var tmp [32]byte
	e := strconv.AppendFloat(tmp[:0], f, 'e', digits, bits)
	// e is [-]d[.ddd]e±xx
	neg := e[0] == '-'
	if neg {
		e = e[1:]
		b = append(b, '-')
	}
	k := len(e) - 1
	for e[k] != 'e' {
		k--
	}
	exp, _ := strconv.Atoi(string(e[k+1:]))
	var sig [24]byte
	n := 0
	for _, ch := range e[:k] {
		if ch != '.' {
			sig[n] = ch
			n++
		}
	}
	for n > 1 && sig[n-1] == '0' {
		n--
	}
	point := exp + 1 // digits before the decimal point
	switch {
	case point < -14 || point > 15:
		b = append(b, sig[0])
		if n > 1 {
			b = append(b, '.')
			b = append(b, sig[1:n]...)
		}
		b = append(b, 'e')
		return strconv.AppendInt(b, int64(exp), 10)
	case point <= 0:
		b = append(b, '0', '.')
		for ; point < 0; point++ {
			b = append(b, '0')
		}
		return append(b, sig[:n]...)
	case n <= point:
		b = append(b, sig[:n]...)
		for ; n < point; n++ {
			b = append(b, '0')
		}
		return b
	default:
		b = append(b, sig[:point]...)
		b = append(b, '.')
		return append(b, sig[point:n]...)
	}
}
