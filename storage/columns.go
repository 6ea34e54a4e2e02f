package storage

import "github.com/apache/arrow-go/v18/arrow/decimal128"

// Column is one column of a Builder, to which values are added without the interfaces of Append. A row is whole when each
// column has got one value; EndRow then counts it and UndoRow drops it instead. Which method fits is the column's Kind's matter: the caller
// asks for it once.
type Column struct{ v *vector }

// Column gives column i of the schema. It stays valid after Batch.
func (b *Builder) Column(i int) Column { return Column{&b.vecs[i]} }

// EndRow counts the row whose values have been added to all columns.
func (b *Builder) EndRow() { b.rows++ }

// UndoRow drops the values that were added since the last row.
func (b *Builder) UndoRow() {
	for i := range b.vecs {
		b.vecs[i].truncate(b.rows)
	}
}

// Bytes is the memory of the values collected.
func (b *Builder) Bytes() int64 {
	var n int64
	for i := range b.vecs {
		n += b.vecs[i].bytes()
	}
	return n
}

func (v *vector) bytes() int64 {
	return int64(4*len(v.i32) + 8*len(v.i64) + 4*len(v.f32) + 8*len(v.f64) + 16*len(v.dec) + len(v.bits) + 4*len(v.ends) + len(v.data) + len(v.valid))
}

// Kind is the kind of the column.
func (c Column) Kind() Kind { return c.v.kind }

// Len is the number of values collected.
func (c Column) Len() int { return c.v.n }

// Null adds NULL.
func (c Column) Null() { c.v.appendNull() }

// Int32 adds a value of Int32 or Date (days since 1970-01-01).
func (c Column) Int32(x int32) { c.v.appendI32(x) }

// Int64 adds a value of Int64 or Timestamp (microseconds since 1970-01-01 UTC).
func (c Column) Int64(x int64) { c.v.appendI64(x) }

// Float32 adds a value of Float32.
func (c Column) Float32(x float32) { c.v.appendF32(x) }

// Float64 adds a value of Float64.
func (c Column) Float64(x float64) { c.v.appendF64(x) }

// Decimal adds an unscaled value of Decimal.
func (c Column) Decimal(x decimal128.Num) { c.v.appendDec(x) }

// Text adds a copy of a value of String, Nested or Bytes. It fails past 2 GiB in one batch.
func (c Column) Text(x []byte) error { return c.v.appendText(x) }

// String is Text for a string.
func (c Column) String(x string) error { return c.v.appendString(x) }

// Value adds a value as it stands in a Row; nil is NULL.
func (c Column) Value(x any) error { return c.v.appendValue(x) }

// Last gives the value that was added last, in the Go types of a Row. Text and bytes share the builder's memory.
func (c Column) Last() any {
	v := c.v
	i := v.n - 1
	if v.valid != nil && !getBit(v.valid, i) {
		return nil
	}
	switch v.kind {
	case Bool:
		return getBit(v.bits, i)
	case Int32, Date:
		return v.i32[i]
	case Int64, Timestamp:
		return v.i64[i]
	case Float32:
		return v.f32[i]
	case Float64:
		return v.f64[i]
	case Decimal:
		return v.dec[i]
	}
	b := v.data[v.textStart(i):]
	if v.kind == Bytes {
		return b[:len(b):len(b)]
	}
	return string(b)
}
