package storage

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// BatchRows is the most rows that readers of this package put into one batch.
const BatchRows = 8192

// Value gives a value in the Go type that the column's kind names, nil if it is NULL. Text and bytes share the batch's memory.
func (b Batch) Value(col, row int) any {
	a := b.Columns[col]
	if a.IsNull(row) {
		return nil
	}
	switch a := a.(type) {
	case *array.Int64:
		return a.Value(row)
	case *array.String:
		return a.Value(row)
	case *array.Int32:
		return a.Value(row)
	case *array.Timestamp:
		return int64(a.Value(row))
	case *array.Decimal128:
		return a.Value(row)
	case *array.Float64:
		return a.Value(row)
	case *array.Date32:
		return int32(a.Value(row))
	case *array.Boolean:
		return a.Value(row)
	case *array.Float32:
		return a.Value(row)
	case *array.Binary:
		v := a.Value(row)
		return v[:len(v):len(v)]
	}
	panic(fmt.Sprintf("storage: a batch holds %s", a.DataType()))
}

// Row gives a row in dst's memory if that is large enough.
func (b Batch) Row(row int, dst Row) Row {
	if cap(dst) < len(b.Columns) {
		dst = make(Row, len(b.Columns))
	}
	dst = dst[:len(b.Columns)]
	for i := range dst {
		dst[i] = b.Value(i, row)
	}
	return dst
}

// Take gives the rows with these numbers, in their order.
func (b Batch) Take(rows []int32) Batch {
	out := Batch{Schema: b.Schema, Columns: make([]arrow.Array, len(b.Columns)), Rows: len(rows)}
	for i, a := range b.Columns {
		t := b.Schema.Fields[i].Type
		v := vector{kind: t.Kind}
		v.grow(len(rows))
		if t.Kind == String || t.Kind == Nested || t.Kind == Bytes {
			v.data = make([]byte, 0, textSize(a)*len(rows)/max(1, b.Rows))
		}
		for _, r := range rows {
			if err := v.appendFrom(a, int(r)); err != nil {
				panic(err) // a batch's columns have the types of its schema, and text only gets less
			}
		}
		out.Columns[i] = v.array(t)
	}
	return out
}

// textSize is the number of bytes in a column of text.
func textSize(a arrow.Array) int {
	switch a := a.(type) {
	case *array.String:
		if a.Len() > 0 {
			return len(a.ValueBytes())
		}
	case *array.Binary:
		if a.Len() > 0 {
			return len(a.ValueBytes())
		}
	}
	return 0
}

// Builder collects rows into a Batch.
type Builder struct {
	schema *Schema
	vecs   []vector
	rows   int
}

// NewBuilder gives a builder of batches of this schema.
func NewBuilder(s *Schema) *Builder {
	b := &Builder{schema: s, vecs: make([]vector, len(s.Fields))}
	b.reset()
	return b
}

// reset begins anew in other memory: the old belongs to a batch. Texts get as much room as the last ones took.
func (b *Builder) reset() {
	for i := range b.vecs {
		v := vector{kind: b.schema.Fields[i].Type.Kind}
		if n := len(b.vecs[i].data); n > 0 {
			v.data = make([]byte, 0, n+n/16)
		}
		v.grow(b.vecs[i].n)
		b.vecs[i] = v
	}
	b.rows = 0
}

// Append adds a row; the values are copied. On an error the builder is as before.
func (b *Builder) Append(row Row) error {
	if len(row) != len(b.vecs) {
		return fmt.Errorf("storage: a row of %d values for %d columns", len(row), len(b.vecs))
	}
	for i := range b.vecs {
		if err := b.vecs[i].appendValue(row[i]); err != nil {
			return b.undo(i, err)
		}
	}
	b.rows++
	return nil
}

// AppendFrom adds a row of a batch whose columns have the kinds of the builder's, in order.
func (b *Builder) AppendFrom(from Batch, row int) error {
	if len(from.Columns) != len(b.vecs) {
		return fmt.Errorf("storage: a batch of %d columns for %d columns", len(from.Columns), len(b.vecs))
	}
	for i := range b.vecs {
		if err := b.vecs[i].appendFrom(from.Columns[i], row); err != nil {
			return b.undo(i, err)
		}
	}
	b.rows++
	return nil
}

func (b *Builder) undo(column int, err error) error {
	for i := range b.vecs {
		b.vecs[i].truncate(b.rows)
	}
	return fmt.Errorf("column %s: %w", b.schema.Fields[column].Name, err)
}

// Len is the number of rows collected.
func (b *Builder) Len() int { return b.rows }

// Batch gives the rows collected and leaves the builder empty.
func (b *Builder) Batch() Batch {
	out := Batch{Schema: b.schema, Columns: make([]arrow.Array, len(b.vecs)), Rows: b.rows}
	for i := range b.vecs {
		out.Columns[i] = b.vecs[i].array(b.schema.Fields[i].Type)
	}
	b.reset()
	return out
}
