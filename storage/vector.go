package storage

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// vector is one column while it is filled. The slice that the kind asks for grows; a NULL takes a place in it too.
type vector struct {
	kind  Kind
	n     int
	i32   []int32 // Int32, Date
	i64   []int64 // Int64, Timestamp
	f32   []float32
	f64   []float64
	dec   []decimal128.Num
	bits  []byte  // Bool, one bit a row
	ends  []int32 // String, Bytes, Nested: where each value ends in data
	data  []byte
	valid []byte // one bit a row, 0: NULL; nil while there is no NULL
	nulls int
}

// vectorDataMax is the most bytes of text a vector holds: Arrow's offsets are int32.
const vectorDataMax = math.MaxInt32

var errVectorFull = errors.New("storage: more than 2 GiB of text in one batch")

func (v *vector) grow(n int) {
	switch v.kind {
	case Int32, Date:
		v.i32 = growSlice(v.i32, n)
	case Int64, Timestamp:
		v.i64 = growSlice(v.i64, n)
	case Float32:
		v.f32 = growSlice(v.f32, n)
	case Float64:
		v.f64 = growSlice(v.f64, n)
	case Decimal:
		v.dec = growSlice(v.dec, n)
	case String, Bytes, Nested:
		v.ends = growSlice(v.ends, n)
	}
}

func growSlice[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return append(make([]T, 0, max(len(s)+n, 2*cap(s))), s...)
}

func setBit(b []byte, i int)      { b[i>>3] |= 1 << (i & 7) }
func getBit(b []byte, i int) bool { return b[i>>3]&(1<<(i&7)) != 0 }

// mark notes that row n is there (or NULL) and counts it.
func (v *vector) mark(valid bool) {
	if v.valid != nil || !valid {
		v.markSlow(valid)
	}
	v.n++
}

func (v *vector) markSlow(valid bool) {
	if v.valid == nil {
		v.valid = make([]byte, (v.n+8)/8, max(64, (v.n+8)/4))
		for i := range v.n / 8 {
			v.valid[i] = 0xff
		}
		for i := v.n &^ 7; i < v.n; i++ {
			setBit(v.valid, i)
		}
	}
	if v.n>>3 >= len(v.valid) {
		v.valid = append(v.valid, 0)
	}
	if valid {
		setBit(v.valid, v.n)
	} else {
		v.nulls++
	}
}

func (v *vector) appendNull() {
	switch v.kind {
	case Bool:
		v.room()
	case Int32, Date:
		v.i32 = append(v.i32, 0)
	case Int64, Timestamp:
		v.i64 = append(v.i64, 0)
	case Float32:
		v.f32 = append(v.f32, 0)
	case Float64:
		v.f64 = append(v.f64, 0)
	case Decimal:
		v.dec = append(v.dec, decimal128.Num{})
	default:
		v.ends = append(v.ends, int32(len(v.data)))
	}
	v.mark(false)
}

// appendNulls adds n NULLs.
func (v *vector) appendNulls(n int) {
	v.grow(n)
	for range n {
		v.appendNull()
	}
}

func (v *vector) room() {
	if v.n>>3 >= len(v.bits) {
		v.bits = append(v.bits, 0)
	}
}

func (v *vector) appendBool(b bool) {
	v.room()
	if b {
		setBit(v.bits, v.n)
	}
	v.mark(true)
}

func (v *vector) appendI32(x int32)           { v.i32 = append(v.i32, x); v.mark(true) }
func (v *vector) appendI64(x int64)           { v.i64 = append(v.i64, x); v.mark(true) }
func (v *vector) appendF32(x float32)         { v.f32 = append(v.f32, x); v.mark(true) }
func (v *vector) appendF64(x float64)         { v.f64 = append(v.f64, x); v.mark(true) }
func (v *vector) appendDec(x decimal128.Num)  { v.dec = append(v.dec, x); v.mark(true) }
func (v *vector) appendText(x []byte) error   { return v.closeText(append(v.data, x...)) }
func (v *vector) appendString(x string) error { return v.closeText(append(v.data, x...)) }

// closeText ends a value of text; data is the vector's own with the value behind it.
func (v *vector) closeText(data []byte) error {
	if len(data) > vectorDataMax {
		return errVectorFull
	}
	v.data = data
	v.ends = append(v.ends, int32(len(v.data)))
	v.mark(true)
	return nil
}

// appendValue adds a value of a Row.
func (v *vector) appendValue(x any) error {
	switch x := x.(type) {
	case nil:
		v.appendNull()
		return nil
	case bool:
		if v.kind == Bool {
			v.appendBool(x)
			return nil
		}
	case int32:
		if v.kind == Int32 || v.kind == Date {
			v.appendI32(x)
			return nil
		}
	case int64:
		if v.kind == Int64 || v.kind == Timestamp {
			v.appendI64(x)
			return nil
		}
	case float32:
		if v.kind == Float32 {
			v.appendF32(x)
			return nil
		}
	case float64:
		if v.kind == Float64 {
			v.appendF64(x)
			return nil
		}
	case string:
		if v.kind == String || v.kind == Nested {
			return v.appendString(x)
		}
	case []byte:
		if v.kind == Bytes {
			return v.appendText(x)
		}
	case decimal128.Num:
		if v.kind == Decimal {
			v.appendDec(x)
			return nil
		}
	}
	return fmt.Errorf("storage: %T is no value of type %s", x, Type{Kind: v.kind})
}

// appendFrom adds a value of an array of the same kind.
func (v *vector) appendFrom(a arrow.Array, row int) error {
	if a.IsNull(row) {
		v.appendNull()
		return nil
	}
	switch v.kind {
	case Bool:
		if a, ok := a.(*array.Boolean); ok {
			v.appendBool(a.Value(row))
			return nil
		}
	case Int32:
		if a, ok := a.(*array.Int32); ok {
			v.appendI32(a.Value(row))
			return nil
		}
	case Date:
		if a, ok := a.(*array.Date32); ok {
			v.appendI32(int32(a.Value(row)))
			return nil
		}
	case Int64:
		if a, ok := a.(*array.Int64); ok {
			v.appendI64(a.Value(row))
			return nil
		}
	case Timestamp:
		if a, ok := a.(*array.Timestamp); ok {
			v.appendI64(int64(a.Value(row)))
			return nil
		}
	case Float32:
		if a, ok := a.(*array.Float32); ok {
			v.appendF32(a.Value(row))
			return nil
		}
	case Float64:
		if a, ok := a.(*array.Float64); ok {
			v.appendF64(a.Value(row))
			return nil
		}
	case Decimal:
		if a, ok := a.(*array.Decimal128); ok {
			v.appendDec(a.Value(row))
			return nil
		}
	case String, Nested:
		if a, ok := a.(*array.String); ok {
			return v.appendString(a.Value(row))
		}
	case Bytes:
		if a, ok := a.(*array.Binary); ok {
			return v.appendText(a.Value(row))
		}
	}
	return fmt.Errorf("storage: a column of %s is no column of type %s", a.DataType(), Type{Kind: v.kind})
}

// truncate drops the rows from n on.
func (v *vector) truncate(n int) {
	if n >= v.n {
		return
	}
	switch v.kind {
	case Bool:
		v.bits = truncateBits(v.bits, n)
	case Int32, Date:
		v.i32 = v.i32[:n]
	case Int64, Timestamp:
		v.i64 = v.i64[:n]
	case Float32:
		v.f32 = v.f32[:n]
	case Float64:
		v.f64 = v.f64[:n]
	case Decimal:
		v.dec = v.dec[:n]
	default:
		v.ends = v.ends[:n]
		v.data = v.data[:v.textStart(n)]
	}
	if v.valid != nil {
		for i := n; i < v.n; i++ {
			if !getBit(v.valid, i) {
				v.nulls--
			}
		}
		v.valid = truncateBits(v.valid, n)
	}
	v.n = n
}

func truncateBits(b []byte, n int) []byte {
	b = b[:(n+7)/8]
	if n&7 != 0 {
		b[n>>3] &= 1<<(n&7) - 1
	}
	return b
}

func (v *vector) textStart(row int) int32 {
	if row == 0 {
		return 0
	}
	return v.ends[row-1]
}

var timestampType = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}

// arrowType is the Arrow type of a column.
func arrowType(t Type) arrow.DataType {
	switch t.Kind {
	case Bool:
		return arrow.FixedWidthTypes.Boolean
	case Int32:
		return arrow.PrimitiveTypes.Int32
	case Int64:
		return arrow.PrimitiveTypes.Int64
	case Float32:
		return arrow.PrimitiveTypes.Float32
	case Float64:
		return arrow.PrimitiveTypes.Float64
	case Bytes:
		return arrow.BinaryTypes.Binary
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Timestamp:
		return timestampType
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	default:
		return arrow.BinaryTypes.String
	}
}

// array hands the rows over as an Arrow array; the vector must not be used after it.
func (v *vector) array(t Type) arrow.Array {
	var valid *memory.Buffer
	if v.nulls > 0 {
		valid = memory.NewBufferBytes(v.valid)
	}
	var values []byte
	switch v.kind {
	case Bool:
		values = v.bits
	case Int32, Date:
		values = arrow.Int32Traits.CastToBytes(v.i32)
	case Int64, Timestamp:
		values = arrow.Int64Traits.CastToBytes(v.i64)
	case Float32:
		values = arrow.Float32Traits.CastToBytes(v.f32)
	case Float64:
		values = arrow.Float64Traits.CastToBytes(v.f64)
	case Decimal:
		values = arrow.Decimal128Traits.CastToBytes(v.dec)
	default:
		offsets := make([]int32, v.n+1)
		copy(offsets[1:], v.ends)
		return array.MakeFromData(array.NewData(arrowType(t), v.n, []*memory.Buffer{
			valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(v.data),
		}, nil, v.nulls, 0))
	}
	return array.MakeFromData(array.NewData(arrowType(t), v.n, []*memory.Buffer{valid, memory.NewBufferBytes(values)}, nil, v.nulls, 0))
}
