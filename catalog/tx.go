package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Tx is a transaction over any tables of the warehouse. Reads without locks see the commits that were durable at the first of them, and
// the transaction's own writes; Commit makes all writes visible at once or none.
// A Tx is used by one goroutine at a time, but scans that it started may run beside each other.
type Tx struct {
	// Instant asks Commit to answer only when the changes stand in completed Hudi instants.
	Instant bool

	c     *Catalog
	o     TxOptions
	locks txLocks
	snap  *snapshot  // of plain reads
	mu    sync.Mutex // guards tables and order against scans that start while a write runs
	tabs  map[index.TableID]*txTable
	order []*txTable
	ops   int // number of writes so far: marks count them
	done  bool

	uses     []*Table // whose metadata locks it holds; guarded by mu
	internal bool     // it belongs to a change of definitions and takes none
	read     bool     // a plain read has fixed the snapshot; guarded by mu
	fixed    bool     // its snapshot does not move to its first read, see KeepSnapshot
}

// Mark names a state of a transaction's writes.
type Mark int

// txTable is a transaction's view of one table with its writes.
type txTable struct {
	*tableView            // for plain reads
	cur        *tableView // for writes and reads with locks: at least as new; guarded by Tx.mu

	entries []txEntry
	last    map[string]int32     // index key → its newest entry
	ordered map[int64]*ownIndex  // by the number of an index, or spaceRecord; guarded by Tx.mu
	unique  map[string][]string  // index number and values → index keys that got them in this transaction
	intent  lockMask             // how the table is locked for the sake of its rows
	mem     arena                // of the entries
	bytes   int64                // that the entries take, see Options.TxBytesMax
	spilled *txSpill             // older writes; guarded by Tx.mu
	mine    int                  // writes of rows that the transaction staged, those that were undone among them
	buf     []byte               // for encoding
	byValue map[string][]string  // keyless tables: encoded row → record keys, made by the first search of a statement
	valueAt int                  // writes of the transaction that byValue reflects
	ahead   map[string]*keyState // by index key, see Tx.Expect
	staged  *stage               // guarded by tx.mu: rows that large statements wrote into files
	valueOf *tableView           // what byValue was made of
	stale   bool                 // the snapshot of plain reads is older than the table's present shape
}

// tableView is a table at a snapshot, with what reads of it found out.
type tableView struct {
	s     *snapshot
	t     *Table
	def   *tableDef
	cold  *coldState
	fresh bool // the table has no row

	overlay atomic.Pointer[overlay] // see snapshot.overlay

	finder  *index.RecentFinder // of the statement's writes, see Tx.Idle
	seen    *keyState           // last key that was looked up
	seenKey []byte
}

// view gives a table at the snapshot, as the definition says; nil if the warehouse does not have it.
func (s *snapshot) view(t *Table, d *tableDef) *tableView {
	cold := s.colds[t.id]
	if cold == nil { // made after the snapshot: a statement that names it began later than the transaction
		if cold = s.c.cold(t.id); cold == nil {
			return nil
		}
	}
	return &tableView{s: s, t: t, def: d, cold: cold, fresh: t.lastSeq.Load() == 0 && len(cold.newest()) == 0}
}

// predates tells whether the snapshot shows the table from before a change after which it cannot be read under the present definition.
func (s *snapshot) predates(t *Table, v *tableView) bool {
	now := s.c.cold(t.id)
	if s.colds[t.id] == nil { // made after the snapshot
		return index.Seq(t.lastSeq.Load()) > s.seq || len(v.cold.newest()) > 0
	}
	return now != nil && now.shape != v.cold.shape
}

func newTx(c *Catalog, s *snapshot, o TxOptions) *Tx {
	tx := &Tx{c: c, o: o, snap: s, tabs: map[index.TableID]*txTable{}}
	tx.locks.tx = tx
	c.rowLocks.begin(&tx.locks, o)
	return tx
}

// table gives the transaction's view of a table.
func (tx *Tx) table(ctx context.Context, t *Table) (*txTable, error) {
	if t.broken != nil {
		return nil, t.broken
	}
	if err := tx.use(ctx, t); err != nil {
		return nil, err
	}
	if err := tx.look(ctx, t); err != nil {
		return nil, err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return nil, fmt.Errorf("%w: the transaction is over", ErrClosed)
	}
	if err := tx.snap.readable(); err != nil {
		return nil, err
	}
	if tt := tx.tabs[t.id]; tt != nil {
		return tt, nil
	}
	if t.dropped.Load() {
		return nil, fmt.Errorf("%w: table %s", ErrNotFound, t)
	}
	v := tx.snap.view(t, t.def.Load())
	if v == nil {
		return nil, fmt.Errorf("%w: table %s", ErrNotFound, t)
	}
	tt := &txTable{tableView: v, cur: v, last: map[string]int32{}}
	if tx.snap.predates(t, v) {
		tt.stale = true
		s, err := tx.c.newSnapshot()
		if err != nil {
			return nil, err
		}
		if tt.cur = s.view(t, v.def); tt.cur == nil {
			s.close()
			return nil, fmt.Errorf("%w: table %s", ErrNotFound, t)
		}
	}
	tx.tabs[t.id] = tt
	tx.order = append(tx.order, tt)
	return tt, nil
}

// look takes in what other engines wrote, when the transaction reads or writes its first table: its snapshot begins there.
func (tx *Tx) look(ctx context.Context, t *Table) error {
	tx.mu.Lock()
	first := len(tx.tabs) == 0 && !tx.done && !tx.fixed
	tx.mu.Unlock()
	if !first {
		return nil
	}
	before := tx.c.cold(t.id)
	if err := t.refresh(ctx); err != nil {
		return err
	}
	if tx.c.cold(t.id) == before {
		return nil
	}
	s, err := tx.c.newSnapshot()
	if err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.snap.close()
	tx.snap = s
	return nil
}

// Writes tells whether the transaction has written anything that still stands.
func (tx *Tx) Writes() bool { return tx.ops > 0 }

// Mark names the present state of the transaction's writes.
func (tx *Tx) Mark() Mark { return Mark(tx.ops) }

// RollbackTo undoes the writes since the mark.
func (tx *Tx) RollbackTo(m Mark) error {
	for _, tt := range tx.order {
		for n := len(tt.entries); n > 0 && int(tt.entries[n-1].op) >= int(m); n = len(tt.entries) {
			e := &tt.entries[n-1]
			if e.prev < 0 {
				delete(tt.last, textView(e.ikey()))
			} else {
				tt.last[textView(e.ikey())] = e.prev
			}
			tt.account(-e.bytes())
			tt.entries = tt.entries[:n-1]
		}
		tx.mu.Lock()
		for _, o := range tt.ordered {
			before := o.bytes
			o.truncate(len(tt.entries))
			tt.account(o.bytes - before) // of an index that was given up, all
		}
		tx.mu.Unlock()
		if len(tt.entries) == 0 {
			tt.mem, tt.entries = arena{}, nil
		}
		if tt.spilled.truncate(m) {
			tx.mu.Lock()
			tt.endSpill()
			tx.mu.Unlock()
		}
		tt.byValue = nil
		if tt.staged != nil {
			tx.mu.Lock()
			tt.staged.truncate(m)
			tx.mu.Unlock()
		}
	}
	tx.ops = min(tx.ops, int(m))
	return nil
}

// Get finds a row by the values of the key columns.
func (tx *Tx) Get(ctx context.Context, t *Table, key storage.Row) (storage.Row, bool, error) {
	return tx.GetLock(ctx, t, key, ScanOptions{})
}

// GetLock is Get with the lock that the options ask for, which holds for a key that is absent, too (but for ReadCommitted). A row
// that LockSkip leaves out is answered as absent.
func (tx *Tx) GetLock(ctx context.Context, t *Table, key storage.Row, o ScanOptions) (storage.Row, bool, error) {
	tt, err := tx.table(ctx, t)
	if err != nil {
		return nil, false, err
	}
	if tt.def.hidden() || tt.def.spec.PerPartition || len(key) != len(tt.def.keyCols) {
		return nil, false, fmt.Errorf("%w: %s has no key of %d columns in the whole table", ErrInvalid, tt.def, len(key))
	}
	var ikey []byte
	for i := range key {
		if ikey, err = tt.def.keyCols[i].Append(ikey, key[i]); err != nil {
			return nil, false, err
		}
	}
	var v *tableView
	var res lockResult
	if o.Lock == LockNone {
		if v, err = tx.plainView(tt, o); err != nil {
			return nil, false, err
		}
	} else {
		if err := tx.lockTable(ctx, tt, o.Lock.intent()); err != nil {
			return nil, false, err
		}
		if res, err = tx.lockKey(ctx, tt, spaceRecord, ikey, o.Lock.mask(), o.Wait); err != nil {
			if o.Wait == LockSkip && errors.Is(err, ErrLocked) {
				err = nil
			}
			return nil, false, err
		}
		v = tx.current(tt)
	}
	st, err := tx.stateAt(ctx, tt, v, ikey)
	if err != nil {
		return nil, false, err
	}
	if !st.exists {
		if res.fresh && tx.o.Isolation == ReadCommitted {
			tx.c.rowLocks.unlockPoint(&tx.locks, t, spaceRecord, ikey)
		}
		return nil, false, nil
	}
	if err := tx.load(ctx, tt, st); err != nil {
		return nil, false, err
	}
	return slices.Clone(st.row), true, nil
}

// Insert adds a row; *DuplicateKeyError if its key or a UNIQUE value is taken.
func (tx *Tx) Insert(ctx context.Context, t *Table, row storage.Row) error {
	tt, err := tx.writable(ctx, t, row)
	if err != nil {
		return err
	}
	d := tt.def
	part := d.partitionPath(row)
	var key string
	var ikey []byte
	if d.hidden() {
		key = tx.c.generateKey()
		ikey = d.textKey(key, part)
	} else {
		if index.HasNull(d.keyCols, row) {
			return fmt.Errorf("%w: a key column of %s is NULL", ErrInvalid, d)
		}
		key = d.recordKey(row)
		if ikey, err = d.indexKey(row, part); err != nil {
			return err
		}
	}
	st, _, err := tx.lockState(ctx, tt, ikey)
	if err != nil {
		return err
	}
	if st.exists {
		return tx.duplicate(ctx, tt, st, row)
	}
	if err := tx.lockValues(ctx, tt, st, row); err != nil {
		return err
	}
	if err := tx.checkUnique(ctx, tt, ikey, nil, nil, row); err != nil {
		return err
	}
	if err := tx.add(tt, write{ikey: ikey, row: row, key: key, part: part, again: st.own && st.had}.onto(st)); err != nil {
		return err
	}
	return tx.noteValue(tt, ikey, row)
}

// noteValue has later statements of the transaction find a row of a table without a key, if they have begun to look rows up by value.
func (tx *Tx) noteValue(tt *txTable, ikey []byte, row storage.Row) error {
	if tt.byValue == nil {
		return nil
	}
	b, err := storage.EncodeRow(tt.def.spec.Schema, row, nil)
	if err != nil {
		return err
	}
	tt.byValue[string(b)] = append(tt.byValue[string(b)], string(ikey))
	tt.valueAt = tx.ops
	return nil
}

// duplicate is the error of a row whose key is taken.
func (tx *Tx) duplicate(ctx context.Context, tt *txTable, st *keyState, row storage.Row) error {
	if err := tx.load(ctx, tt, st); err != nil {
		return err
	}
	return &DuplicateKeyError{Table: tt.def.String(), Key: project(row, tt.def.keyCols), Existing: slices.Clone(st.row)}
}

// Update replaces old by row, whose key may be another one.
func (tx *Tx) Update(ctx context.Context, t *Table, old, row storage.Row) error {
	tt, err := tx.writable(ctx, t, row)
	if err != nil {
		return err
	}
	d := tt.def
	if d.hidden() {
		return tx.updateByValue(ctx, tt, old, row)
	}
	if index.HasNull(d.keyCols, row) {
		return fmt.Errorf("%w: a key column of %s is NULL", ErrInvalid, d)
	}
	oldKey, err := d.indexKey(old, d.partitionPath(old))
	if err != nil {
		return err
	}
	part := d.partitionPath(row)
	ikey, err := d.indexKey(row, part)
	if err != nil {
		return err
	}
	was, err := tx.lockOld(ctx, tt, oldKey, old)
	if err != nil {
		return err
	}
	st := was
	if string(oldKey) != string(ikey) {
		if st, _, err = tx.lockState(ctx, tt, ikey); err != nil {
			return err
		}
		if st.exists {
			return tx.duplicate(ctx, tt, st, row)
		}
		if err := tx.lockValues(ctx, tt, was, row); err != nil {
			return err
		}
		if err := tx.checkUnique(ctx, tt, ikey, oldKey, was, row); err != nil {
			return err
		}
		if err := tt.image(was, old); err != nil {
			return err
		}
		if err := tx.remove(tt, oldKey, was); err != nil {
			return err
		}
		return tx.add(tt, write{ikey: ikey, row: row, key: d.recordKey(row), part: part, again: st.own && st.had}.onto(st))
	}
	if st.exists && d.merge == storage.EventTime && d.ordering >= 0 {
		if err := tx.load(ctx, tt, st); err != nil {
			return err
		}
		if compareOrdering(row[d.ordering], st.row[d.ordering]) < 0 {
			return &LateError{Table: d.String(), Field: d.spec.OrderingField, Stored: st.row[d.ordering], Given: row[d.ordering]}
		}
	}
	if err := tx.lockValues(ctx, tt, st, row); err != nil {
		return err
	}
	if err := tx.checkUnique(ctx, tt, ikey, ikey, st, row); err != nil {
		return err
	}
	if err := tt.image(st, old); err != nil {
		return err
	}
	return tx.add(tt, write{ikey: ikey, row: row, key: d.recordKey(row), part: part, again: st.again}.onto(st))
}

// Delete removes a row, found by its key, in a table without a key by value.
func (tx *Tx) Delete(ctx context.Context, t *Table, old storage.Row) error {
	tt, err := tx.writable(ctx, t, nil)
	if err != nil {
		return err
	}
	var ikey []byte
	if tt.def.hidden() {
		if ikey, err = tx.findByValue(ctx, tt, old); err != nil || ikey == nil {
			return err
		}
	} else if ikey, err = tt.def.indexKey(old, tt.def.partitionPath(old)); err != nil {
		return err
	}
	st, err := tx.lockOld(ctx, tt, ikey, old)
	if err != nil || !st.exists {
		return err
	}
	if err := tx.lockValues(ctx, tt, st, nil); err != nil {
		return err
	}
	if err := tt.image(st, old); err != nil {
		return err
	}
	return tx.remove(tt, ikey, st)
}

// writable checks that the table can be written and the row fits it; everything that could make a row unwritable later is found here.
func (tx *Tx) writable(ctx context.Context, t *Table, row storage.Row) (*txTable, error) {
	tt, err := tx.table(ctx, t)
	if err != nil {
		return nil, err
	}
	d := tt.def
	if d.readOnly != "" {
		return nil, fmt.Errorf("%w: %s: %s", ErrReadOnly, d, d.readOnly)
	}
	if err := tx.c.txRoom(); err != nil {
		return nil, err
	}
	if row == nil {
		return tt, tx.lockTable(ctx, tt, lockIX)
	}
	if len(row) != len(d.spec.Schema.Fields) {
		return nil, fmt.Errorf("%w: a row of %d values for the %d columns of %s", ErrInvalid, len(row), len(d.spec.Schema.Fields), d)
	}
	if d.merge == storage.EventTime && d.ordering >= 0 && row[d.ordering] == nil {
		return nil, fmt.Errorf("%w: ordering column %s of %s is NULL", ErrInvalid, d.spec.OrderingField, d)
	}
	if err := d.checkPath(row); err != nil {
		return nil, err
	}
	if err := tx.c.room(0); err != nil {
		return nil, err
	}
	return tt, tx.lockTable(ctx, tt, lockIX)
}

func project(row storage.Row, cols []index.Column) storage.Row {
	out := make(storage.Row, len(cols))
	for i, c := range cols {
		out[i] = row[c.Field]
	}
	return out
}

// checkUnique looks for another row that has a UNIQUE value of row; the rows of ikey and self do not count, nor do values that the row had
// before: another engine may have written them again.
func (tx *Tx) checkUnique(ctx context.Context, tt *txTable, ikey, self []byte, was *keyState, row storage.Row) error {
	for i := range tt.def.indexes {
		x := &tt.def.indexes[i]
		if !x.spec.Unique || index.HasNull(x.cols, row) {
			continue
		}
		values, err := index.AppendKey(nil, x.cols, row)
		if err != nil {
			return err
		}
		if was != nil && was.exists && was.row != nil {
			before, err := index.AppendKey(nil, x.cols, was.row)
			if err != nil {
				return err
			}
			if string(before) == string(values) {
				continue
			}
		}
		id := uniqueID(x.no, values)
		taken := func(k []byte) error {
			if string(k) == string(ikey) || self != nil && string(k) == string(self) {
				return nil
			}
			has := func() (*keyState, bool, error) {
				st, err := tx.state(ctx, tt, k)
				if err != nil || !st.exists {
					return st, false, err
				}
				if err := tx.load(ctx, tt, st); err != nil {
					return st, false, err
				}
				v, err := index.AppendKey(nil, x.cols, st.row)
				return st, string(v) == string(values), err
			}
			if _, ok, err := has(); err != nil || !ok {
				return err
			}
			// What the caller makes of the row, an update for one, is about its newest state.
			if _, err := tx.lockKey(ctx, tt, spaceRecord, k, lockX, LockWaits); err != nil {
				return err
			}
			st, ok, err := has()
			if err != nil || !ok {
				return err
			}
			return &DuplicateKeyError{Table: tt.def.String(), Index: x.spec.Name, Key: project(row, x.cols), Existing: slices.Clone(st.row)}
		}
		for _, k := range tt.unique[id] {
			if err := taken([]byte(k)); err != nil {
				return err
			}
		}
		if err := tt.spilledOwners(x.no, values, taken); err != nil {
			return err
		}
		if tt.staged != nil {
			for _, r := range tt.staged.runs {
				k, ok, err := r.owner(i, values)
				if err == nil && ok {
					err = taken(slices.Clone(k))
				}
				if err != nil {
					return err
				}
			}
		}
		if v := tx.current(tt); !v.fresh {
			var keys [][]byte
			err = tx.c.index.Secondary(v.s.p, tt.t.id, x.no, index.Bounds{Low: values, High: append(values[:len(values):len(values)], 0xff)}, func(k []byte) bool {
				keys = append(keys, append([]byte(nil), k...))
				return true
			})
			if err != nil {
				return err
			}
			for _, k := range keys {
				if err := taken(k); err != nil {
					return err
				}
			}
		}
		if tt.unique == nil {
			tt.unique = map[string][]string{}
		}
		tt.unique[id] = append(tt.unique[id], string(ikey))
	}
	return nil
}

// spilledOwners calls f for the index keys of rows that writes which do not wait in memory gave the values of an index.
func (tt *txTable) spilledOwners(no uint32, values []byte, f func(ikey []byte) error) error {
	b := index.Bounds{Low: values, High: append(values[:len(values):len(values)], 0xff)}
	return tt.spilled.owners(no, b, func(k []byte) (bool, error) { return true, f(bytes.Clone(k)) })
}

func uniqueID(no uint32, values []byte) string { return fmt.Sprintf("%d/%s", no, values) }

// findByValue finds a row of a table without a key and locks it; nil if there is none.
func (tx *Tx) findByValue(ctx context.Context, tt *txTable, old storage.Row) ([]byte, error) {
	b, err := storage.EncodeRow(tt.def.spec.Schema, old, nil)
	if err != nil {
		return nil, err
	}
	for {
		v := tx.current(tt)
		if tt.byValue == nil || tt.valueAt > tx.ops || tt.valueOf != v {
			if err := tx.indexValues(ctx, tt, v); err != nil {
				return nil, err
			}
		}
		tt.valueAt = tx.ops
		k, err := tx.takeValue(ctx, tt, string(b), LockNoWait) // one that nobody else has locked is as good as any
		if errors.Is(err, ErrLocked) {
			k, err = tx.takeValue(ctx, tt, string(b), LockWaits)
		}
		if err != nil || k != nil || tx.current(tt) == v {
			return k, err
		}
	}
}

// indexValues finds the record keys of all rows by their values.
func (tx *Tx) indexValues(ctx context.Context, tt *txTable, v *tableView) error {
	tt.byValue, tt.valueOf = map[string][]string{}, v
	cols := []string{storage.ColRecordKey, storage.ColPartitionPath}
	for _, f := range tt.def.spec.Schema.Fields {
		cols = append(cols, f.Name)
	}
	return tx.scanKeyed(ctx, tt, v, cols, func(ikey string, row storage.Row) error {
		b, err := storage.EncodeRow(tt.def.spec.Schema, row, nil)
		if err != nil {
			return err
		}
		tt.byValue[string(b)] = append(tt.byValue[string(b)], ikey)
		return nil
	})
}

// takeValue takes one of the keys that have a value, and locks it.
func (tx *Tx) takeValue(ctx context.Context, tt *txTable, value string, w LockWait) ([]byte, error) {
	var locked error
	for i := len(tt.byValue[value]) - 1; i >= 0; i-- {
		k := tt.byValue[value][i]
		e, err := tt.ownWrite(k)
		if err != nil {
			return nil, err
		}
		own := e != nil
		gone := own && e.del()
		if !gone {
			_, err := tx.lockKey(ctx, tt, spaceRecord, []byte(k), lockX, w)
			if w == LockNoWait && errors.Is(err, ErrLocked) {
				locked = err
				continue
			}
			if err != nil {
				return nil, err
			}
			if !own && tx.current(tt) != tt.valueOf {
				st, err := tx.state(ctx, tt, []byte(k))
				if err != nil {
					return nil, err
				}
				if gone = !st.exists; !gone {
					if err := tx.load(ctx, tt, st); err != nil {
						return nil, err
					}
					b, err := storage.EncodeRow(tt.def.spec.Schema, st.row, nil)
					if err != nil {
						return nil, err
					}
					gone = string(b) != value
				}
			}
		}
		tt.byValue[value] = slices.Delete(tt.byValue[value], i, i+1)
		if !gone {
			return []byte(k), nil
		}
	}
	return nil, locked
}

// updateByValue replaces a row of a table without a key. A row whose partition changes gets a new key, since its old one stays behind as a delete.
func (tx *Tx) updateByValue(ctx context.Context, tt *txTable, old, row storage.Row) error {
	ikey, err := tx.findByValue(ctx, tt, old)
	if err != nil || ikey == nil {
		return err
	}
	st, err := tx.state(ctx, tt, ikey)
	if err != nil || !st.exists {
		return err
	}
	if err := tx.lockValues(ctx, tt, st, row); err != nil {
		return err
	}
	if err := tx.checkUnique(ctx, tt, ikey, ikey, st, row); err != nil {
		return err
	}
	if err := tt.image(st, old); err != nil {
		return err
	}
	part := tt.def.partitionPath(row)
	if tt.def.spec.PerPartition && part != st.part {
		if err := tx.remove(tt, ikey, st); err != nil {
			return err
		}
		st = &keyState{key: tx.c.generateKey(), at: st.at}
		ikey = tt.def.textKey(st.key, part)
	}
	if err := tx.add(tt, write{ikey: ikey, row: row, key: st.key, part: part}.onto(st)); err != nil {
		return err
	}
	return tx.noteValue(tt, ikey, row)
}

// Rollback ends the transaction without a trace.
func (tx *Tx) Rollback() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return
	}
	tx.done = true
	for _, tt := range tx.order {
		tx.letGo(tt)
		tt.account(-tt.bytes)
		tt.close()
		tt.endSpill()
		if tt.staged != nil {
			tt.staged.discard()
			tt.staged = nil
		}
	}
	tx.snap.close()
	tx.unuse()
	tx.tabs, tx.order = nil, nil
	tx.c.rowLocks.end(&tx.locks)
}

func (tt *tableView) close() {
	if tt.finder != nil {
		_ = tt.finder.Close() // what went wrong was answered where it was used
		tt.finder = nil
	}
}

// Idle says that no statement of the transaction runs: what was open for one is closed.
func (tx *Tx) Idle() {
	for _, tt := range tx.order {
		tt.close()
		tt.cur.close()
		tt.ahead = nil
	}
}
