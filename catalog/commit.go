package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Commit decides: one synced pebble batch holds the rows of all tables, the journal record and the index entries. It returns
// when the batch is durable. ErrConflict: nothing was changed and the transaction may be run again.
func (tx *Tx) Commit(ctx context.Context) error {
	defer tx.Rollback()
	if tx.done {
		return fmt.Errorf("%w: the transaction is over", ErrClosed)
	}
	if tx.ops == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var changed []*Table
	for _, tt := range tx.order {
		if tt.wrote() || tt.hasStaged() {
			changed = append(changed, tt.t)
		}
	}
	if tx.Instant {
		// No other engine completes an instant between the check and ours.
		release, err := tx.c.holdAll(ctx, changed)
		if err != nil {
			return err
		}
		defer release()
		if err := tx.c.adoptAll(ctx, changed); err != nil {
			return err
		}
	}
	if err := tx.decide(ctx); err != nil {
		if errors.Is(err, ErrConflict) {
			tx.c.metrics.ConflictsTotal.Add(1)
		}
		return err
	}
	tx.c.rowLocks.end(&tx.locks) // the commit is durable
	if tx.Instant {
		// The decision stands whatever becomes of the flush, which goes on without the client.
		return tx.c.flush(context.WithoutCancel(ctx), flushOrder{reason: "commit mode instant"}, changed)
	}
	return nil
}

// change is the last state that a transaction gives a key.
type change struct {
	tt *txTable
	e  *txEntry
}

func (tx *Tx) decide(ctx context.Context) error {
	for _, tt := range sortedByID(tx.order) {
		if !tt.wrote() && !tt.hasStaged() {
			continue
		}
		tt.t.ddl.RLock()
		defer tt.t.ddl.RUnlock()
		if tt.t.dropped.Load() {
			return fmt.Errorf("%w: table %s", ErrNotFound, tt.def)
		}
		if tt.t.def.Load() != tt.def {
			return fmt.Errorf("%w: the definition of %s changed", ErrConflict, tt.def)
		}
	}
	staged, err := tx.stagedTables()
	if err != nil {
		return err
	}
	var changes []change
	var size, folds int64
	for _, tt := range tx.order {
		if slices.Contains(staged, tt) {
			folds += tt.bytes
			if tt.spilled != nil {
				folds += tt.spilled.bytes
			}
			continue
		}
		changes = tt.changes(changes)
	}
	for i := range changes {
		size += int64(len(changes[i].e.packet) + len(changes[i].e.was))
	}
	if err := tx.c.room(2 * size); err != nil {
		return err
	}
	if err := tx.c.diskRoom(2 * (size + folds)); err != nil {
		return err
	}
	if len(staged) > 0 {
		if err := tx.c.commitStaged(ctx, tx, changes, staged); err != nil {
			return err
		}
		var rest []*Table // what did not go into their instants
		for _, tt := range staged {
			if tt.t.isBuffered() {
				rest = append(rest, tt.t)
			}
		}
		if len(rest) > 0 {
			// Other engines do not wait for the bin's time to see the whole transaction.
			if err := tx.c.Flush(context.WithoutCancel(ctx), "the rest of a large transaction", rest...); err != nil {
				tx.c.log.Warn("flush the rest of a large transaction; it is tried again", "err", err)
			}
		}
		return nil
	}
	return tx.c.commit(tx, changes)
}

// changes adds what the transaction's writes of the table that are in memory come to.
func (tt *txTable) changes(out []change) []change {
	out = slices.Grow(out, len(tt.last))
	for i := range tt.entries {
		e := &tt.entries[i]
		if tt.last[textView(e.ikey())] == int32(i) && (e.had || !e.del()) {
			out = append(out, change{tt, e})
		}
	}
	return out
}

func sortedByID(in []*txTable) []*txTable {
	out := append([]*txTable(nil), in...)
	for i := 1; i < len(out); i++ {
		for j := i; j > 0 && out[j].t.id < out[j-1].t.id; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

// conflicts tells whether a key was changed after it was locked, which only who takes no locks can have done: another engine, or a
// change of the definition. Called with commitMu held.
func (tx *Tx) conflicts(ch *change) (bool, error) {
	t := ch.tt.t
	since := ch.e.at
	if index.Seq(t.undoneSeq.Load()) > since {
		return true, nil
	}
	if index.Seq(t.lastSeq.Load()) <= since {
		return false, nil
	}
	ikey := ch.e.ikey()
	if t.moved(spaceRecord, ikey, since) {
		if later, traced, err := tx.changedSince(t, ikey, since); err != nil || later {
			return later, err
		} else if !traced && index.Seq(t.filesSeq.Load()) > since && index.Seq(t.forgotten.Load()) > since {
			return true, nil // a delete that the index forgot may have been of this key
		}
	}
	if ch.e.del() || len(ch.tt.def.indexes) == 0 {
		return false, nil
	}
	p := ch.e.decoded()
	row, err := ch.tt.row(&p)
	if err != nil {
		return false, err
	}
	for i := range ch.tt.def.indexes {
		x := &ch.tt.def.indexes[i]
		if !x.spec.Unique || index.HasNull(x.cols, row) {
			continue
		}
		values, err := index.AppendKey(nil, x.cols, row)
		if err != nil {
			return false, err
		}
		if !t.moved(int64(x.no), values, since) {
			continue
		}
		found := false
		var inner error
		err = tx.c.index.Secondary(tx.c.db, t.id, x.no, index.Bounds{Low: values, High: append(values[:len(values):len(values)], 0xff)}, func(k []byte) bool {
			if string(k) == string(ikey) {
				return true
			}
			var own *txEntry
			if own, inner = ch.tt.ownWrite(string(k)); own != nil || inner != nil {
				return inner == nil // changed by this transaction, which checked it
			}
			found, _, inner = tx.changedSince(t, k, since)
			return !found && inner == nil
		})
		if err != nil || inner != nil {
			return false, firstError(err, inner)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// changedSince tells whether the newest state of a key is younger than a sequence, and whether the index knows the key.
func (tx *Tx) changedSince(t *Table, ikey []byte, since index.Seq) (later, traced bool, err error) {
	r, ok, err := tx.c.index.LastRecent(tx.c.db, t.id, ikey, ^index.Seq(0))
	if err != nil || ok {
		return ok && r.Seq > since, true, err
	}
	l, ok, err := tx.c.index.Locate(tx.c.db, t.id, ikey)
	return ok && l.Seq > since, ok, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// commit is the critical section: it checks conflicts, assigns the sequence and applies the batch; the sync is awaited outside.
func (c *Catalog) commit(tx *Tx, changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	size := 256
	for i := range changes {
		e := changes[i].e
		size += len(e.packet) + len(e.was) + len(e.ikey()) + 64 // the keys of both entries
	}
	b := c.db.NewBatchWithSize(size)
	c.commitMu.Lock()
	if c.failed != nil {
		err := c.failed
		c.commitMu.Unlock()
		b.Close()
		return err
	}
	if err := tx.checkConflicts(changes); err != nil {
		c.commitMu.Unlock()
		b.Close()
		var later *laterError
		if errors.As(err, &later) {
			c.awaitDurable(later.seq)
		}
		return err
	}
	seq := c.clock.next()
	rec, counts, grown, err := c.writeChanges(tx, b, seq, changes)
	err = firstError(err, b.Set(journalKey(seq), rec.encode(), nil))
	changes = nil
	for tt := range counts {
		tt.free() // the batch has it all
	}
	if err == nil {
		err = c.db.ApplyNoSyncWait(b, pebble.Sync)
	}
	if err != nil {
		c.commitMu.Unlock()
		b.Close()
		return fmt.Errorf("write journal: %w", err)
	}
	c.noteCommit(seq, seqTime(seq), counts, grown)
	c.commitMu.Unlock()

	if err := b.SyncWait(); err != nil {
		// The batch may or may not survive: nothing after it may be answered, so the warehouse stops writing until it is opened again.
		c.fail(fmt.Errorf("sync journal: %w", err))
		return fmt.Errorf("sync journal: %w", err)
	}
	b.Close()
	c.advance(seq)
	c.metrics.CommitsTotal.Add(1)
	c.wake()
	return nil
}

// laterError is a conflict with a commit.
type laterError struct {
	seq index.Seq
	err error
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// checkConflicts looks for commits that changed what the transaction changes; called with commitMu held.
func (tx *Tx) checkConflicts(changes []change) error {
	for i := range changes {
		conflict, err := tx.conflicts(&changes[i])
		if err == nil && conflict {
			err = fmt.Errorf("%w: key %s of %s", ErrConflict, changes[i].e.decoded().key, changes[i].tt.def)
			err = &laterError{index.Seq(changes[i].tt.t.lastSeq.Load()), err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeChanges puts the rows of a commit into a batch, with their index entries and the counters; called with commitMu held.
func (c *Catalog) writeChanges(tx *Tx, b *pebble.Batch, seq index.Seq, changes []change) (rec commitRecord, counts map[*txTable]*commitTable, grown map[*Table]int64, err error) {
	counts, grown = map[*txTable]*commitTable{}, map[*Table]int64{}
	for i := range changes {
		ch := &changes[i]
		ct := counts[ch.tt]
		if ct == nil {
			rec.tables = append(rec.tables, commitTable{id: ch.tt.t.id})
			ct = &commitTable{id: ch.tt.t.id}
			counts[ch.tt] = ct
		}
		ord := uint32(ct.rows)
		ct.rows++
		before, group, known, ferr := ch.e.before(ch.tt, ch.tt.t.drawn, ch.tt.cur.s.p, tx.snap.p, c.db)
		ct.bytes += uint64(len(ch.e.packet) + len(before))
		switch {
		case ch.e.del():
			grown[ch.tt.t]--
		case !ch.e.had:
			grown[ch.tt.t]++
		}
		err = firstError(err, ferr,
			setPacket(b, ch.tt.t.id, seq, ord, ch.e.packet, known, ch.e.had && !ch.e.mine, before, group),
			c.index.PutRecent(b, ch.tt.t.id, ch.e.ikey(), index.Recent{Seq: seq, Ord: ord, Delete: ch.e.del()}),
			c.putSecondary(b, ch.tt, ch.e, seq))
		c.keyChanges.note(ch.tt.t.id, spaceRecord, ch.e.ikey(), seq)
	}
	for i := range rec.tables {
		for tt, ct := range counts {
			if tt.t.id == rec.tables[i].id {
				rec.tables[i] = *ct
			}
		}
	}
	return rec, counts, grown, firstError(err, c.saveAuto(b, tx))
}

// noteCommit adds a commit that was applied to the tables' bins; called with commitMu held. grown is the change of the number of rows.
func (c *Catalog) noteCommit(seq index.Seq, at time.Time, counts map[*txTable]*commitTable, grown map[*Table]int64) {
	for tt, ct := range counts {
		tt.t.lastSeq.Store(uint64(seq))
		tt.t.noteBuffered(int64(ct.rows), int64(ct.bytes), at)
		for other := range counts {
			if other != tt {
				tt.t.link(other.t.id)
			}
		}
	}
	for t, n := range grown {
		t.rows.Add(n)
	}
}

// awaitDurable waits, for a second at most, until commits up to seq may be seen: a transaction that is run again before would
// meet the same conflict again.
func (c *Catalog) awaitDurable(seq index.Seq) {
	for end := time.Now().Add(time.Second); index.Seq(c.durable.Load()) < seq && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
}

// putSecondary adds the hints of a row's index values and takes away those of the row before: an older snapshot still sees them.
func (c *Catalog) putSecondary(b *pebble.Batch, tt *txTable, e *txEntry, seq index.Seq) error {
	if len(tt.def.indexes) == 0 {
		return nil
	}
	p := e.decoded()
	return tt.hintChanges(e, &p, func(x *tableIndex, values []byte, del bool) error {
		c.keyChanges.note(tt.t.id, int64(x.no), values, seq)
		if del {
			return c.index.DropSecondary(b, tt.t.id, x.no, values, p.ikey)
		}
		return c.index.PutSecondary(b, tt.t.id, x.no, values, p.ikey)
	})
}

// hintChanges calls f for the index values that a write takes from a row and gives it.
func (tt *txTable) hintChanges(e *txEntry, p *packetRow, f func(x *tableIndex, values []byte, del bool) error) error {
	d := tt.def
	var row, was storage.Row
	var err error
	if !p.del {
		if row, err = tt.row(p); err != nil {
			return err
		}
	}
	if e.was != nil {
		if was, err = d.decodeRow(len(d.schemas)-1, e.was); err != nil {
			return err
		}
	}
	for i := range d.indexes {
		x := &d.indexes[i]
		var values []byte
		if row != nil {
			if values, err = index.AppendKey(nil, x.cols, row); err != nil {
				return err
			}
		}
		if was != nil {
			before, err := index.AppendKey(nil, x.cols, was)
			if err != nil {
				return err
			}
			if row != nil && string(before) == string(values) {
				continue
			}
			if err := f(x, before, true); err != nil {
				return err
			}
		}
		if row != nil {
			if err := f(x, values, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// saveAuto writes the AUTO_INCREMENT counters that the transaction's tables reached.
func (c *Catalog) saveAuto(b *pebble.Batch, tx *Tx) error {
	for _, tt := range tx.order {
		if tt.def.spec.AutoIncrement == "" || !tt.wrote() && !tt.hasStaged() {
			continue
		}
		a := &tt.t.auto
		a.Lock()
		next, changed := a.next, a.next > a.saved
		if changed {
			a.saved = next
		}
		a.Unlock()
		if changed {
			if err := b.Set(idKey(prefixAuto, tt.t.id), appendUint(nil, next), nil); err != nil {
				return err
			}
		}
	}
	return nil
}
