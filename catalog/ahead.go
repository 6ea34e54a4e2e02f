package catalog

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Looking ahead. One who writes many rows by key knows the keys before: to lock them together and to look them up in their order
// costs a fraction of what it costs one by one, and rows of one file are read together.

const (
	aheadBytesMax = 4 << 20 // of rows that are read ahead; the others are read when they are asked for
	aheadFirst    = 64      // rows of a file that are read before it is known how large they are
)

// Expect says that rows with the keys of these ones are to be inserted, and updated or deleted if they are there: it locks the keys
// and finds out about them what Insert, Update and Delete will ask. Rows that are there are read if read is set; if not, they are not
// welcome, and keys that others have locked are left out. What it found is kept until the next call, or to the end of the statement.
func (tx *Tx) Expect(ctx context.Context, t *Table, rows storage.Batch, from, to int, read bool) error {
	tt, err := tx.writable(ctx, t, nil)
	if err != nil {
		return err
	}
	tt.ahead = nil
	d := tt.def
	if d.hidden() || d.merge == storage.EventTime || tt.staged != nil || tx.current(tt).fresh {
		return nil
	}
	wait := LockNoWait // a row before may be refused
	if read {
		wait = LockWaits
	}
	ahead, err := tt.aheadKeys(rows, from, to)
	if err != nil {
		return err
	}
	keys, err := tx.c.rowLocks.lockPoints(ctx, &tx.locks, t, spaceRecord, ahead, lockX, wait)
	if err != nil {
		return tx.fail(err)
	}
	if len(keys) == 0 {
		return nil
	}
	if v := tx.current(tt); slices.ContainsFunc(keys, func(k []byte) bool { return t.moved(spaceRecord, k, v.s.seq) }) {
		if err := tx.renew(tt); err != nil { // all of them are locked: what it sees now of them stays so
			return err
		}
	}
	a := &aheadLook{tx: tx, tt: tt, v: tx.current(tt), keys: keys, states: make([]keyState, len(keys))}
	if err := a.find(); err != nil {
		return err
	}
	if read {
		if err := a.read(ctx); err != nil {
			return err
		}
	}
	return a.keep()
}

// aheadKeys gives the index keys of rows in order, each once, without those that the transaction has written. It ends at a row that
// has no key: Insert says what is wrong with it.
func (tt *txTable) aheadKeys(rows storage.Batch, from, to int) ([][]byte, error) {
	d := tt.def
	row := make(storage.Row, len(rows.Columns))
	keys := make([][]byte, 0, to-from)
	var buf []byte
	for i := from; i < to; i++ {
		for _, k := range d.keyCols {
			row[k.Field] = rows.Value(k.Field, i)
		}
		if index.HasNull(d.keyCols, row) {
			continue // it gets its number later, or is refused
		}
		n := len(buf)
		if d.spec.PerPartition {
			for _, f := range d.part {
				row[f] = rows.Value(f, i)
			}
			buf = appendText(buf, d.partitionPath(row))
		}
		var err error
		if buf, err = index.AppendKey(buf, d.keyCols, row); err != nil {
			break
		}
		k := buf[n:len(buf):len(buf)]
		if own, err := tt.ownWrite(textView(k)); err != nil {
			return nil, err
		} else if own == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}

// aheadLook looks keys up, in their order.
type aheadLook struct {
	tx     *Tx
	tt     *txTable
	v      *tableView
	keys   [][]byte
	states []keyState
	bytes  int64
}

// find asks the hot tier and the index of the files.
func (a *aheadLook) find() error {
	v, c, t := a.v, a.tx.c, a.tt.t
	if v.finder == nil && v.mayBeHot() {
		f, err := c.index.FindRecents(v.s.p, t.id)
		if err != nil {
			return err
		}
		v.finder = f
	}
	locs, err := c.index.Locations(v.s.p, t.id, index.Bounds{Low: a.keys[0]})
	if err != nil {
		return err
	}
	for i, k := range a.keys {
		st := &a.states[i]
		st.at, st.view = v.s.seq, v
		if err := v.s.findBy(v, v.finder, locs, k, st); err != nil {
			_ = locs.Close()
			return err
		}
		if st.packet != nil {
			a.bytes += int64(len(st.packet.row))
		}
	}
	return locs.Close()
}

// read reads the rows that stand in files, file group by file group.
func (a *aheadLook) read(ctx context.Context) error {
	var cold []int
	for i := range a.states {
		if st := &a.states[i]; st.exists && st.packet == nil {
			cold = append(cold, i)
		}
	}
	slices.SortFunc(cold, func(i, j int) int {
		x, y := &a.states[i].loc, &a.states[j].loc
		if x.Group != y.Group {
			return int(int64(x.Group) - int64(y.Group))
		}
		return int(x.Row - y.Row)
	})
	n := aheadFirst
	for len(cold) > 0 && a.bytes < aheadBytesMax {
		m := 1
		for m < len(cold) && m < n && a.states[cold[m]].loc.Group == a.states[cold[0]].loc.Group {
			m++
		}
		before := a.bytes
		if err := a.readSlice(ctx, cold[:m]); err != nil {
			return err
		}
		if each := (a.bytes - before) / int64(m); each > 0 {
			n = max(1, int(min((aheadBytesMax-a.bytes)/each, int64(len(a.keys)))))
		}
		cold = cold[m:]
	}
	return nil
}

// readSlice reads the rows of states in one file group.
func (a *aheadLook) readSlice(ctx context.Context, which []int) error {
	c, d, v := a.tx.c, a.tt.def, a.v
	part, id, err := c.index.Group(a.tt.t.id, a.states[which[0]].loc.Group)
	if err != nil {
		return err
	}
	fs, ok := v.cold.view.Slice(part, id, "", nil)
	if !ok {
		return fmt.Errorf("table %s: the index names file group %s in partition %q, which has no files", d, id, part)
	}
	names, hints := make([]string, len(which)), make([]int64, len(which))
	for n, i := range which {
		loc := &a.states[i].loc
		names[n], hints[n] = loc.Key, -1
		if fs.Base != nil && fs.Base.Instant == loc.Instant {
			hints[n] = loc.Row
		}
	}
	b, err := c.reader.LookupMany(ctx, d.dir, fs, d.scan(d.spec.Schema, v.cold.counts), names, hints)
	if err != nil {
		return err
	}
	if b.Rows != len(which) {
		return nil // one is missing: who asks for it hears so
	}
	width := len(b.Columns)
	values := make(storage.Row, width*len(which))
	for n, i := range which {
		row := b.Row(n, values[n*width:n*width:(n+1)*width])
		a.states[i].row = row
		a.bytes += rowBytes(row)
	}
	return nil
}

// rowBytes is about the size of a row.
func rowBytes(row storage.Row) int64 {
	n := int64(16 * len(row))
	for _, v := range row {
		switch v := v.(type) {
		case string:
			n += int64(len(v))
		case []byte:
			n += int64(len(v))
		}
	}
	return n
}

// keep notes the states as snapshot.state gives them.
func (a *aheadLook) keep() error {
	d := a.tt.def
	out := make(map[string]*keyState, len(a.keys))
	for i, k := range a.keys {
		st := &a.states[i]
		if st.exists && len(d.indexes) > 0 {
			var err error
			if st.packet != nil {
				if st.row, err = a.tt.row(st.packet); err != nil {
					return err
				}
				st.packet = nil
			}
			if st.row == nil {
				continue // its index values are not known
			}
			if st.was, err = storage.EncodeRow(d.spec.Schema, st.row, nil); err != nil {
				return fmt.Errorf("row of %s: %w", d, err)
			}
		}
		out[textView(k)] = st
	}
	a.tt.ahead = out
	return nil
}

// expected gives what Expect found out about a key, which is locked then; nil: nothing that holds still.
func (tt *txTable) expected(ikey []byte) *keyState {
	if len(tt.ahead) == 0 || tt.staged != nil {
		return nil
	}
	st := tt.ahead[string(ikey)]
	if st == nil {
		return nil
	}
	if _, own := tt.last[string(ikey)]; own {
		return nil
	}
	return st
}

// forgetUnread gives up what is known ahead of rows that would have to be read yet: the view that they were found in ends.
func (tt *txTable) forgetUnread() {
	for k, st := range tt.ahead {
		if st.exists && st.row == nil && st.packet == nil {
			delete(tt.ahead, k)
		}
	}
}
