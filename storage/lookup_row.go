package storage

import (
	"bytes"
	"context"
	"fmt"
)

// ReadRow is ReadRows of one row, without a batch.
func (f *BaseFile) ReadRow(ctx context.Context, want *Schema, row int64) (out Row, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if row < 0 || row >= f.Rows() {
		return nil, fmt.Errorf("read %s: row %d of %d", f.name, row, f.Rows())
	}
	defer f.corrupt(&err)
	out = make(Row, len(want.Fields))
	var v vector
	var one [1]int64
	for i := range want.Fields {
		col := f.columns[want.Fields[i].Name]
		if col == nil {
			continue // NULL
		}
		v.reset(col.typ.Kind)
		one[0] = row
		if err := f.pick(col, &v, one[:]); err != nil {
			return nil, columnError(col, err)
		}
		cast, err := castVector(&v, col.typ, want.Fields[i].Type)
		if err != nil {
			return nil, columnError(col, err)
		}
		x := cast.value(0)
		if b, ok := x.([]byte); ok {
			x = bytes.Clone(b) // the next column uses the memory
		}
		out[i] = x
	}
	return out, nil
}

// reset empties a vector for values of a kind. Its memory is used again.
func (v *vector) reset(kind Kind) {
	*v = vector{
		kind: kind, i32: v.i32[:0], i64: v.i64[:0], f32: v.f32[:0], f64: v.f64[:0], dec: v.dec[:0], bits: v.bits[:0], ends: v.ends[:0], data: v.data[:0],
	}
}

// LookupRow is Lookup of one row, without a batch; false: the key has none. It costs a fraction of it where the hint is right and
// no log knows the key.
func (r *Reader) LookupRow(ctx context.Context, dir string, fs FileSlice, sc Scan, key string, row int64) (Row, bool, error) {
	out, ok, err := r.hintedRow(ctx, dir, &fs, &sc, key, row)
	if err != nil || ok {
		return out, ok, err
	}
	b, err := r.Lookup(ctx, dir, fs, sc, key, row)
	if err != nil || b.Rows == 0 {
		return nil, false, err
	}
	return b.Row(0, nil), true, nil
}

// hintedRow reads a row where the hint says that it is; false: it is not there, or logs have a say in it.
func (r *Reader) hintedRow(ctx context.Context, dir string, fs *FileSlice, sc *Scan, key string, row int64) (Row, bool, error) {
	base := sc.base(fs)
	if base == nil || row < 0 || sc.Drop != nil {
		return nil, false, nil
	}
	if len(fs.Logs) > 0 {
		m, _, err := r.mergedLogs(ctx, dir, fs, sc)
		if err != nil || m != nil && (m.orders != nil || m.find(key) >= 0) {
			return nil, false, nil // Lookup words the error
		}
	}
	e, err := r.base(ctx, objectName(dir, fs.Partition, base.Name))
	if err != nil {
		return nil, false, nil
	}
	defer r.release(e)
	if row >= e.file.Rows() {
		return nil, false, nil
	}
	if is, err := e.file.keyAt(row, key); err != nil || !is {
		return nil, false, nil
	}
	out, err := e.file.ReadRow(ctx, sc.Schema, row)
	if err != nil {
		return nil, false, nil
	}
	return out, true, nil
}

// keyAt tells whether a row has a record key.
func (f *BaseFile) keyAt(row int64, key string) (is bool, err error) {
	col := f.columns[ColRecordKey]
	if col == nil || col.typ.Kind != String {
		return false, nil
	}
	defer f.corrupt(&err)
	v := vector{kind: String}
	one := [1]int64{row}
	if err := f.pick(col, &v, one[:]); err != nil {
		return false, err
	}
	return v.nulls == 0 && string(v.data) == key, nil
}
