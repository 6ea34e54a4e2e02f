package storage

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// readable tells whether a reader gives values of type from as values of type to: what Promotable allows, a decimal of
// other digits if each value fits, and types of one Go value that files write with or without an annotation.
func readable(from, to Type) bool {
	if from.Kind == to.Kind || Promotable(from, to) {
		return true
	}
	switch to.Kind {
	case Timestamp:
		return from.Kind == Int64
	case Date:
		return from.Kind == Int32
	case String:
		return from.Kind == Bytes || from.Kind == Bool || from.Kind == Nested
	case Bytes, Nested:
		return from.Kind == String
	case Int64, Int32:
		return from.Kind == Timestamp || from.Kind == Date
	}
	return false
}

// ConvertValue turns a value of one type into that of another to which the column was promoted (Promotable); NULL stays NULL.
// A decimal that does not fit the digits of its new type is an error.
func ConvertValue(from, to Type, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	in := vector{kind: from.Kind}
	if err := in.appendValue(v); err != nil {
		return nil, err
	}
	out, err := castVector(&in, from, to)
	if err != nil {
		return nil, err
	}
	return out.value(0), nil
}

// value gives a value in the Go type of the vector's kind.
func (v *vector) value(row int) any {
	if v.nulls > 0 && !getBit(v.valid, row) {
		return nil
	}
	switch v.kind {
	case Bool:
		return getBit(v.bits, row)
	case Int32, Date:
		return v.i32[row]
	case Int64, Timestamp:
		return v.i64[row]
	case Float32:
		return v.f32[row]
	case Float64:
		return v.f64[row]
	case Decimal:
		return v.dec[row]
	case Bytes:
		return v.data[v.textStart(row):v.ends[row]]
	default:
		return string(v.data[v.textStart(row):v.ends[row]])
	}
}

// castVector turns a vector into one of another type. It returns the vector itself if nothing changes.
func castVector(v *vector, from, to Type) (*vector, error) {
	out, err := castValues(v, from, to)
	if err == nil && out != v {
		out.valid, out.nulls = v.valid, v.nulls
	}
	return out, err
}

// castValues is castVector without regard to NULLs, whose places hold zero.
func castValues(v *vector, from, to Type) (*vector, error) {
	if !readable(from, to) {
		return nil, fmt.Errorf("%w: %s read as %s", ErrUnsupported, from, to)
	}
	if from.Kind == to.Kind && (from.Kind != Decimal || from.Scale == to.Scale && from.Precision <= to.Precision) {
		return v, nil
	}
	out := &vector{kind: to.Kind}
	switch to.Kind {
	case String:
		if from.Kind == Bytes || from.Kind == Nested {
			break
		}
		out.grow(v.n)
		for i := range v.n {
			text := ""
			if x := v.value(i); x != nil {
				text = KeyText(from, x)
			}
			if err := out.appendString(text); err != nil {
				return nil, err
			}
		}
		return out, nil
	case Int64:
		if from.Kind == Int32 || from.Kind == Date {
			out.i64 = make([]int64, v.n)
			for i, x := range v.i32 {
				out.i64[i] = int64(x)
			}
			out.n = v.n
			return out, nil
		}
	case Float32:
		out.f32 = make([]float32, v.n)
		for i := range out.f32 {
			if from.Kind == Int32 {
				out.f32[i] = float32(v.i32[i])
			} else {
				out.f32[i] = float32(v.i64[i])
			}
		}
		out.n = v.n
		return out, nil
	case Float64:
		out.f64 = make([]float64, v.n)
		for i := range out.f64 {
			switch from.Kind {
			case Int32:
				out.f64[i] = float64(v.i32[i])
			case Int64:
				out.f64[i] = float64(v.i64[i])
			default:
				out.f64[i] = float64(v.f32[i])
			}
		}
		out.n = v.n
		return out, nil
	case Decimal:
		out.dec = make([]decimal128.Num, v.n)
		for i := range out.dec {
			var x decimal128.Num
			scale := from.Scale
			switch from.Kind {
			case Int32:
				x, scale = decimal128.FromI64(int64(v.i32[i])), 0
			case Int64:
				x, scale = decimal128.FromI64(v.i64[i]), 0
			default:
				x = v.dec[i]
			}
			if scale != to.Scale {
				var err error
				if x, err = x.Rescale(int32(scale), int32(to.Scale)); err != nil {
					return nil, fmt.Errorf("decimal of scale %d read with scale %d: %w", scale, to.Scale, err)
				}
			}
			if !x.FitsInPrecision(int32(to.Precision)) {
				return nil, fmt.Errorf("decimal %s has more than %s digits", appendPlainDecimal(nil, x, to.Scale), strconv.Itoa(to.Precision))
			}
			out.dec[i] = x
		}
		out.n = v.n
		return out, nil
	case Int32:
		if from.Kind == Timestamp {
			return nil, fmt.Errorf("%w: %s read as %s", ErrUnsupported, from, to)
		}
	}
	// The values are the same, only the name of the kind differs.
	same := *v
	same.kind = to.Kind
	return &same, nil
}
