package catalog

import (
	"context"
	"fmt"

	"github.com/lakesql/lakesql/storage"
)

// Columns are some columns of a table, chosen once for many reads.
type Columns struct {
	of     *storage.Schema
	want   *storage.Schema
	fields []int
}

// NewColumns chooses columns of a table schema by their places in it.
func NewColumns(of *storage.Schema, fields []int) *Columns {
	c := &Columns{of: of, fields: fields, want: &storage.Schema{Name: of.Name, Namespace: of.Namespace, Fields: make([]storage.Field, len(fields))}}
	for i, f := range fields {
		c.want.Fields[i] = of.Fields[f]
	}
	return c
}

// KeysRepeat tells whether some rows of the table may have equal keys: another engine wrote them so. A look at a key finds one of them.
func (t *Table) KeysRepeat() bool { return t.doubled.Load() }

// from gives the columns of a whole row.
func (c *Columns) from(row storage.Row) storage.Row {
	out := make(storage.Row, len(c.fields))
	for i, f := range c.fields {
		out[i] = row[f]
	}
	return out
}

// GetColumns is GetLock of some columns. It has no notion of a statement's beginning: all writes of the transaction are seen.
// ErrInvalid: the columns were chosen under another definition of the table, the table has no key of its own, or rows with equal ones.
func (tx *Tx) GetColumns(ctx context.Context, t *Table, key storage.Row, c *Columns, o ScanOptions) (storage.Row, bool, error) {
	if o.Lock != LockNone {
		row, ok, err := tx.GetLock(ctx, t, key, o)
		if err == nil && ok {
			if len(row) != len(c.of.Fields) {
				return nil, false, fmt.Errorf("%w: the columns are of another definition", ErrInvalid)
			}
			row = c.from(row)
		}
		return row, ok, err
	}
	tt, err := tx.table(ctx, t)
	if err != nil {
		return nil, false, err
	}
	d := tt.def
	if d.hidden() || d.spec.PerPartition || t.KeysRepeat() || len(key) != len(d.keyCols) || d.spec.Schema != c.of {
		return nil, false, fmt.Errorf("%w: %s is not read by columns of a key", ErrInvalid, d)
	}
	var ikey []byte
	for i := range key {
		if ikey, err = d.keyCols[i].Append(ikey, key[i]); err != nil {
			return nil, false, err
		}
	}
	v, err := tx.plainView(tt, o)
	if err != nil {
		return nil, false, err
	}
	if err := v.s.readable(); err != nil {
		return nil, false, err
	}
	e, err := tt.ownWrite(textView(ikey))
	if err != nil {
		return nil, false, err
	}
	if e != nil {
		if e.del() {
			return nil, false, nil
		}
		p := e.decoded()
		row, err := tt.row(&p)
		if err != nil {
			return nil, false, err
		}
		return c.from(row), true, nil
	}
	if r, _, staged, err := tt.stagedRow(ikey); err != nil {
		return nil, false, err
	} else if staged {
		row, err := r.read(ctx, ikey)
		if err != nil {
			return nil, false, err
		}
		return c.from(row), true, nil
	}
	if v.fresh {
		return nil, false, nil
	}
	return v.columns(ctx, ikey, c)
}

// columns reads a row by its index key as others left it.
func (v *tableView) columns(ctx context.Context, ikey []byte, c *Columns) (storage.Row, bool, error) {
	s := v.s
	if v.def.merge == storage.EventTime { // of a buffered row and an adopted one the larger ordering value wins
		row, _, _, ok, err := s.get(ctx, v, ikey)
		if err != nil || !ok {
			return nil, false, err
		}
		return c.from(row), true, nil
	}
	if v.mayBeHot() {
		rec, hot, err := s.c.index.LastRecent(s.p, v.t.id, ikey, s.seq)
		if err != nil || hot && rec.Delete {
			return nil, false, err
		}
		if hot {
			p, err := readPacket(s.p, v.t.id, rec.Seq, rec.Ord)
			if err != nil {
				return nil, false, err
			}
			row, err := v.def.decodeRow(p.schema, p.row)
			if err != nil {
				return nil, false, err
			}
			return c.from(row), true, nil
		}
	}
	loc, cold, err := s.c.index.Locate(s.p, v.t.id, ikey)
	if err != nil || !cold {
		return nil, false, err
	}
	row, _, _, ok, err := s.coldColumns(ctx, v, loc, c.want)
	return row, ok, err
}
