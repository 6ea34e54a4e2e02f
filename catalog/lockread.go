package catalog

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/lakesql/lakesql/storage"
)

// Reads with locks. Under RepeatableRead and Serializable they lock the ranges of keys or values in which they look, and so what is
// not there, too. Under ReadCommitted, and where locked rows are left out, they lock the rows that they give, one by one.

// byRow tells whether rows are locked one by one.
func (tx *Tx) byRow(o ScanOptions) bool { return tx.o.Isolation == ReadCommitted || o.Wait == LockSkip }

// lockScan is a scan with locks.
func (tx *Tx) lockScan(ctx context.Context, tt *txTable, o ScanOptions) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		if err := tx.lockTable(ctx, tt, o.Lock.intent()); err != nil {
			yield(storage.Batch{}, err)
			return
		}
		if tx.byRow(o) {
			tx.lockScanned(ctx, tt, o, yield)
			return
		}
		if err := tx.lockKeys(ctx, tt, spaceRecord, keyBounds{}.Bounds, o.Lock.mask(), o.Wait); err != nil {
			yield(storage.Batch{}, err)
			return
		}
		tx.scan(ctx, tt, tx.current(tt), o)(yield)
	}
}

// lockLookup gives the rows whose keys, or values of an index, lie within bounds, with locks.
func (tx *Tx) lockLookup(ctx context.Context, tt *txTable, x *tableIndex, want *storage.Schema, bounds []keyBounds, o ScanOptions) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		bounds := slices.DeleteFunc(slices.Clone(bounds), func(b keyBounds) bool {
			return b.Low != nil && b.High != nil && bytes.Compare(b.Low, b.High) >= 0
		})
		err := tx.lockTable(ctx, tt, o.Lock.intent())
		if err == nil && !tx.byRow(o) {
			err = tx.lockBounds(ctx, tt, x, bounds, o)
		} else if err == nil && tt.behind(tx.current(tt)) {
			err = tx.renew(tt)
		}
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		keys, all, err := tx.keysWithin(tt, tx.current(tt), x, bounds)
		switch {
		case err != nil:
			yield(storage.Batch{}, err)
		case all && x == nil && !tx.byRow(o): // the ranges are locked; what else the scan gives is not asked for
			tx.scan(ctx, tt, tx.current(tt), o)(yield)
		case all:
			tx.lockScan(ctx, tt, o)(yield)
		case tx.byRow(o):
			slices.Sort(keys)
			out, err := newRowLocker(ctx, tx, tt, want, o, yield)
			if err != nil {
				yield(storage.Batch{}, err)
				return
			}
			for _, k := range keys {
				if !out.take(ctx, []byte(k), nil) {
					return
				}
			}
			out.sink.flush()
		default:
			if x != nil {
				slices.Sort(keys)
				for _, k := range keys {
					if _, err := tx.lockKey(ctx, tt, spaceRecord, []byte(k), o.Lock.mask(), o.Wait); err != nil {
						yield(storage.Batch{}, err)
						return
					}
				}
			}
			v := tx.current(tt)
			v.s.held(ctx, tx.rows(ctx, tt, v, want, keys, o))(yield)
		}
	}
}

// behind tells whether a table was changed after a view of it.
func (tt *txTable) behind(v *tableView) bool { return tt.t.lastSeq.Load() > uint64(v.s.seq) }

// lockBounds locks ranges of keys, or of the values of an index: of a whole key or UNIQUE value that one alone.
func (tx *Tx) lockBounds(ctx context.Context, tt *txTable, x *tableIndex, bounds []keyBounds, o ScanOptions) error {
	space := int64(spaceRecord)
	if x != nil {
		space = int64(x.no)
	}
	for _, b := range bounds {
		point := b.point
		if x != nil && x.spec.Unique && b.whole {
			point = len(b.High) == len(b.Low)+1 && bytes.HasPrefix(b.High, b.Low)
		}
		var err error
		if point {
			_, err = tx.lockKey(ctx, tt, space, b.Low, o.Lock.mask(), o.Wait)
		} else {
			err = tx.lockKeys(ctx, tt, space, b.Bounds, o.Lock.mask(), o.Wait)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lockScanned scans and locks each row that it gives.
func (tx *Tx) lockScanned(ctx context.Context, tt *txTable, o ScanOptions, yield func(storage.Batch, error) bool) {
	if tt.behind(tx.current(tt)) {
		if err := tx.renew(tt); err != nil {
			yield(storage.Batch{}, err)
			return
		}
	}
	d, v := tt.def, tx.current(tt)
	want, err := d.wanted(o.Columns)
	if err != nil {
		yield(storage.Batch{}, err)
		return
	}
	// The wanted columns, then what the index key is made of.
	cols := make([]string, 0, len(want.Fields)+len(d.keyCols)+2)
	for _, f := range want.Fields {
		cols = append(cols, f.Name)
	}
	column := func(name string) int {
		i := slices.Index(cols, name)
		if i < 0 {
			i = len(cols)
			cols = append(cols, name)
		}
		return i
	}
	keyAt, partAt := column(storage.ColRecordKey), column(storage.ColPartitionPath)
	at := make([]int, len(d.keyCols))
	for n, k := range d.keyCols {
		at[n] = column(d.spec.Schema.Fields[k.Field].Name)
	}
	out, err := newRowLocker(ctx, tx, tt, want, o, yield)
	if err != nil {
		yield(storage.Batch{}, err)
		return
	}
	full := make(storage.Row, len(d.spec.Schema.Fields))
	so := o
	so.Columns = cols
	for b, err := range tx.scan(ctx, tt, v, so) {
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		for i := range b.Rows {
			row := b.Row(i, nil)
			key, _ := row[keyAt].(string)
			part, _ := row[partAt].(string)
			var ikey []byte
			if d.hidden() {
				ikey = d.textKey(key, part)
			} else {
				for n, k := range d.keyCols {
					full[k.Field] = row[at[n]]
				}
				if ikey, err = d.indexKey(full, part); err != nil {
					yield(storage.Batch{}, err)
					return
				}
			}
			if !out.take(ctx, ikey, &readRow{row: row[:len(want.Fields)], at: v}) {
				return
			}
		}
	}
	out.sink.flush()
}

// rowLocker gives rows that it has locked. A caller may end after any of them: so that no more are locked than he takes, the first
// batch has one row, and all have where locked rows are left out.
type rowLocker struct {
	tx    *Tx
	tt    *txTable
	o     ScanOptions
	sink  rowSink
	runs  []*stagedRun // rows of large statements that the transaction sees
	limit int
	yield func(storage.Batch, error) bool
}

// readRow is a row that was read before it was locked.
type readRow struct {
	row storage.Row // the wanted columns
	at  *tableView
}

func newRowLocker(ctx context.Context, tx *Tx, tt *txTable, want *storage.Schema, o ScanOptions, yield func(storage.Batch, error) bool) (*rowLocker, error) {
	runs, err := tx.visible(ctx, tt, o)
	return &rowLocker{
		tx: tx, tt: tt, o: o, runs: runs, limit: 1, yield: yield,
		sink: rowSink{def: tt.def, want: want, b: storage.NewBuilder(want), yield: yield},
	}, err
}

// take locks a row and gives it if it is there still. False: the reading is over.
func (l *rowLocker) take(ctx context.Context, ikey []byte, read *readRow) bool {
	fail := func(err error) bool {
		l.yield(storage.Batch{}, err)
		return false
	}
	tx, tt := l.tx, l.tt
	res, err := tx.lockKey(ctx, tt, spaceRecord, ikey, l.o.Lock.mask(), l.o.Wait)
	if err != nil {
		if l.o.Wait == LockSkip && errors.Is(err, ErrLocked) {
			return true
		}
		return fail(err)
	}
	tx.mu.Lock()
	e, err := tt.ownBefore(textView(ikey), l.o)
	tx.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	var staged *stagedRun
	for _, r := range slices.Backward(l.runs) {
		if _, ok, err := r.find(ikey); err != nil {
			return fail(err)
		} else if ok && e == nil {
			staged = r
			break
		}
	}
	switch {
	case read != nil && (e != nil || staged != nil || tx.current(tt) == read.at || !tt.t.moved(spaceRecord, ikey, read.at.s.seq)):
		err = l.sink.b.Append(read.row)
	case e != nil:
		if !e.del() && !l.sink.addPacket(e.decoded()) {
			return false
		}
	case staged != nil:
		row, rerr := staged.read(ctx, ikey)
		if rerr != nil {
			return fail(rerr)
		}
		if !l.sink.add(row, tt.def.recordKey(row), tt.def.partitionPath(row)) {
			return false
		}
	default:
		v := tx.current(tt)
		var st *keyState
		if v.fresh {
			st = &keyState{}
		} else if st, err = v.s.state(ctx, v, ikey); err == nil && st.exists {
			err = tx.load(ctx, tt, st)
		}
		switch {
		case err != nil:
		case st.exists:
			if !l.sink.add(st.row, st.key, st.part) {
				return false
			}
		case res.fresh:
			tx.c.rowLocks.unlockPoint(&tx.locks, tt.t, spaceRecord, ikey)
		}
	}
	if err != nil {
		return fail(err)
	}
	if l.sink.b.Len() < l.limit {
		return true
	}
	if l.o.Wait != LockSkip {
		l.limit = min(2*l.limit, batchRows)
	}
	return l.yield(l.sink.b.Batch(), nil)
}
