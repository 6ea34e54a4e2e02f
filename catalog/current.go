package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Current reads. Writes and reads with locks first lock a key, a range or a value, and look then: what they see cannot change until
// the transaction ends. A lock of a transaction that commits ends when its commit is durable, so a snapshot of the durable mark
// that is taken with the lock in hand has it. A snapshot that is older still does if nothing that was locked has changed since.

// current gives the view of current reads.
func (tx *Tx) current(tt *txTable) *tableView {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tt.cur
}

// renew has current reads of a table see the newest durable commit.
func (tx *Tx) renew(tt *txTable) error {
	s, err := tx.c.newSnapshot()
	if err != nil {
		return err
	}
	v := s.view(tt.t, tt.def)
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if v == nil || tx.done {
		s.close()
		if tx.done {
			return fmt.Errorf("%w: the transaction is over", ErrClosed)
		}
		return fmt.Errorf("%w: table %s", ErrNotFound, tt.def)
	}
	tx.letGo(tt)
	tt.cur = v
	return nil
}

// letGo ends the view of current reads, unless it is that of plain ones; called with mu held.
func (tx *Tx) letGo(tt *txTable) {
	if tt.cur != tt.tableView {
		tt.cur.close()
		tt.cur.s.close()
		tt.cur = tt.tableView
		tt.forgetUnread()
	}
}

// moved tells whether a key, or values in the space of an index, may have changed after a sequence.
func (t *Table) moved(space int64, key []byte, since index.Seq) bool {
	return index.Seq(max(t.filesSeq.Load(), t.largeSeq.Load())) > since || t.c.keyChanges.maybe(t.id, space, key, since)
}

// fail ends the transaction if an error says that it is lost.
func (tx *Tx) fail(err error) error {
	if errors.Is(err, ErrConflict) {
		tx.Rollback()
	}
	return err
}

// lockTable takes the lock that says that rows of a table get locked.
func (tx *Tx) lockTable(ctx context.Context, tt *txTable, m lockMask) error {
	if tt.intent.covers(m) {
		return nil
	}
	first := tt.intent == 0
	if _, err := tx.c.rowLocks.lockPoint(ctx, &tx.locks, tt.t, spaceTable, nil, m, LockWaits); err != nil {
		return tx.fail(err)
	}
	tt.intent |= m
	if !first {
		return nil
	}
	if tt.t.dropped.Load() {
		return fmt.Errorf("%w: table %s", ErrNotFound, tt.def)
	}
	if tt.t.def.Load() != tt.def {
		return tx.fail(fmt.Errorf("%w: the definition of %s changed", ErrConflict, tt.def))
	}
	// Who locks keys or ranges renews the view if they have changed; rows without a key are searched for before that.
	if tt.def.hidden() && tt.behind(tx.current(tt)) {
		return tx.renew(tt)
	}
	return nil
}

// lockKey locks a key, there or not, or the values of an index; afterwards the view of current reads speaks for it.
func (tx *Tx) lockKey(ctx context.Context, tt *txTable, space int64, key []byte, m lockMask, w LockWait) (lockResult, error) {
	res, err := tx.c.rowLocks.lockPoint(ctx, &tx.locks, tt.t, space, key, m, w)
	if err != nil {
		return res, tx.fail(err)
	}
	if tt.t.moved(space, key, tx.current(tt).s.seq) {
		return res, tx.renew(tt)
	}
	return res, nil
}

// lockKeys locks a range of keys, or of an index's values.
func (tx *Tx) lockKeys(ctx context.Context, tt *txTable, space int64, b index.Bounds, m lockMask, w LockWait) error {
	if _, err := tx.c.rowLocks.lockRange(ctx, &tx.locks, tt.t, space, b, m, w); err != nil {
		return tx.fail(err)
	}
	if index.Seq(tt.t.lastSeq.Load()) > tx.current(tt).s.seq {
		return tx.renew(tt)
	}
	return nil
}

// lockState locks a record for a write and looks at its newest state.
func (tx *Tx) lockState(ctx context.Context, tt *txTable, ikey []byte) (*keyState, lockResult, error) {
	if st := tt.expected(ikey); st != nil {
		return st, lockResult{}, nil
	}
	res, err := tx.lockKey(ctx, tt, spaceRecord, ikey, lockX, LockWaits)
	if err != nil {
		return nil, res, err
	}
	st, err := tx.state(ctx, tt, ikey)
	return st, res, err
}

// lockOld is lockState for a row that the caller read before. One that was read without a lock may be out of date: what would be
// made of it would undo another transaction's change.
func (tx *Tx) lockOld(ctx context.Context, tt *txTable, ikey []byte, old storage.Row) (*keyState, error) {
	st, res, err := tx.lockState(ctx, tt, ikey)
	if err != nil || !res.fresh || st.own || tt.stale || tx.current(tt) == tt.tableView || !tt.t.moved(spaceRecord, ikey, tt.s.seq) {
		return st, err
	}
	before, err := tt.s.state(ctx, tt.tableView, ikey)
	if err != nil {
		return nil, err
	}
	if before.exists == st.exists {
		if !st.exists {
			return st, nil
		}
		if err := tx.load(ctx, tt, st); err != nil {
			return nil, err
		}
		same, err := sameRow(tt.def, st.row, old)
		if err != nil || same {
			return st, err
		}
	}
	return nil, tx.fail(fmt.Errorf("%w: a row of %s that was read without a lock", ErrConflict, tt.def))
}

func sameRow(d *tableDef, a, b storage.Row) (bool, error) {
	x, err := storage.EncodeRow(d.spec.Schema, a, nil)
	if err != nil {
		return false, err
	}
	y, err := storage.EncodeRow(d.spec.Schema, b, nil)
	return string(x) == string(y), err
}

// lockValues locks what a write changes of the secondary indexes: a UNIQUE value that goes or comes exclusively, so that nobody gets
// it before it is known whose it is; other values that come in a way that keeps those out who have locked the range.
func (tx *Tx) lockValues(ctx context.Context, tt *txTable, st *keyState, row storage.Row) error {
	if len(tt.def.indexes) == 0 {
		return nil
	}
	if err := tx.load(ctx, tt, st); err != nil {
		return err
	}
	var was storage.Row
	if st.exists {
		was = st.row
	}
	for i := range tt.def.indexes {
		x := &tt.def.indexes[i]
		var before, values []byte
		var err error
		if was != nil {
			if before, err = index.AppendKey(nil, x.cols, was); err != nil {
				return err
			}
		}
		if row != nil {
			if values, err = index.AppendKey(nil, x.cols, row); err != nil {
				return err
			}
		}
		if was != nil && row != nil && string(before) == string(values) {
			continue
		}
		if x.spec.Unique && was != nil && !index.HasNull(x.cols, was) {
			if _, err := tx.lockKey(ctx, tt, int64(x.no), before, lockX, LockWaits); err != nil {
				return err
			}
		}
		if row == nil {
			continue
		}
		m := lockIX
		if x.spec.Unique && !index.HasNull(x.cols, row) {
			m = lockX
		}
		if _, err := tx.lockKey(ctx, tt, int64(x.no), values, m, LockWaits); err != nil {
			return err
		}
	}
	return nil
}

// lockStaged locks the keys and values of the rows that large statements of the transaction have written into files: who has locked
// one of them, or looked for it with a lock, comes first.
func (tx *Tx) lockStaged(ctx context.Context, tt *txTable) error {
	d, runs := tt.def, tt.staged.runs
	// Reading sorts what came last; afterwards the runs do not change, and others may read them.
	none := func(_, _ []byte) bool { return false }
	for _, r := range runs {
		err := firstError(r.finish(ctx), r.keys.within(index.Bounds{}, none))
		for i := range d.indexes {
			err = firstError(err, r.eachHint(i, index.Bounds{}, none))
		}
		if err != nil {
			return err
		}
	}
	var failed error // guarded by the lock manager's critical section
	anyRun := func(f func(r *stagedRun) (bool, error)) bool {
		for _, r := range runs {
			ok, err := f(r)
			if err != nil || ok {
				failed = firstError(failed, err)
				return true // what cannot be read is not given away
			}
		}
		return false
	}
	bounds := func(low, high string, open bool) index.Bounds {
		b := index.Bounds{Low: []byte(low), High: []byte(high)}
		if open {
			b.High = nil
		}
		return b
	}
	keys := &lockSet{no: spaceRecord, lockHolder: lockHolder{mask: lockX}}
	keys.has = func(k string) bool {
		return anyRun(func(r *stagedRun) (bool, error) {
			_, ok, err := r.find([]byte(k))
			return ok, err
		})
	}
	keys.within = func(low, high string, open bool) bool {
		return anyRun(func(r *stagedRun) (ok bool, err error) {
			err = r.keys.within(bounds(low, high, open), func(_, _ []byte) bool {
				ok = true
				return false
			})
			return ok, err
		})
	}
	sets := []*lockSet{keys}
	for i := range d.indexes {
		x := &d.indexes[i]
		set := &lockSet{no: int64(x.no), lockHolder: lockHolder{mask: lockIX}}
		if x.spec.Unique {
			set.mask = lockX
		}
		set.has = func(k string) bool { return set.within(k, k+"\xff", false) }
		set.within = func(low, high string, open bool) bool {
			return anyRun(func(r *stagedRun) (ok bool, err error) {
				err = r.eachHint(i, bounds(low, high, open), func(_, _ []byte) bool {
					ok = true
					return false
				})
				return ok, err
			})
		}
		sets = append(sets, set)
	}
	if err := tx.c.rowLocks.lockSets(ctx, &tx.locks, tt.t, sets); err != nil {
		return tx.fail(err)
	}
	return failed
}

// LockTable locks a table for the transaction: exclusively, nobody else reads it with locks or writes it; shared, nobody else writes it.
func (tx *Tx) LockTable(ctx context.Context, t *Table, m LockMode, w LockWait) error {
	tt, err := tx.table(ctx, t)
	if err != nil || m == LockNone {
		return err
	}
	if _, err := tx.c.rowLocks.lockPoint(ctx, &tx.locks, t, spaceTable, nil, m.mask(), w); err != nil {
		return tx.fail(err)
	}
	if t.dropped.Load() {
		return fmt.Errorf("%w: table %s", ErrNotFound, tt.def)
	}
	if index.Seq(t.lastSeq.Load()) > tx.current(tt).s.seq {
		return tx.renew(tt)
	}
	return nil
}

// UnlockTables gives up the locks that LockTable took. In a transaction that has written they stay to its end, since they stand for
// the locks of its rows.
func (tx *Tx) UnlockTables() {
	if tx.ops == 0 {
		tx.c.rowLocks.unlockTables(&tx.locks)
	}
}

// StartStatement begins a statement: under ReadCommitted its plain reads see the newest durable commit.
// Scans of earlier statements go on with what they see.
func (tx *Tx) StartStatement() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return fmt.Errorf("%w: the transaction is over", ErrClosed)
	}
	if tx.o.Isolation != ReadCommitted || index.Seq(tx.c.durable.Load()) == tx.snap.seq {
		return nil
	}
	return tx.moveSnapshot()
}

// firstRead has plain reads see the newest durable commit when the first of them comes: what the transaction waited for to lock is
// seen by reads after it. It is called before each plain read.
func (tx *Tx) firstRead() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.read || tx.done {
		return nil
	}
	tx.read = true
	if tx.fixed || tx.o.Isolation == ReadCommitted || index.Seq(tx.c.durable.Load()) == tx.snap.seq {
		return nil
	}
	return tx.moveSnapshot()
}

// moveSnapshot has plain and current reads see the newest durable commit; called with mu held.
func (tx *Tx) moveSnapshot() error {
	s, err := tx.c.newSnapshot()
	if err != nil {
		return err
	}
	for id, tt := range tx.tabs {
		tx.letGo(tt)
		v := s.view(tt.t, tt.def)
		tt.close()
		if v == nil { // dropped: what asks for it fails
			delete(tx.tabs, id)
			continue
		}
		tt.tableView, tt.cur, tt.ahead, tt.stale = v, v, nil, false
	}
	tx.snap.close()
	tx.snap = s
	return nil
}
