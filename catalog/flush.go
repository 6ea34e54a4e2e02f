package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Members of a commit's extraMetadata by which a warehouse knows its own instants.
const (
	extraWarehouse = "lakesql.warehouse"
	extraBin       = "lakesql.bin"
)

// intent is what a flush writes to the hot tier, synced, before anything of it stands on a timeline (JSON under 'i').
type intent struct {
	Instant storage.InstantTime `json:"instant"`
	Action  timeline.Action     `json:"action"`
	Cut     index.Seq           `json:"cut"`
	Bytes   int64               `json:"bytes,omitempty"` // of the rows in the journal
	Bin     string              `json:"bin"`
	Reason  string              `json:"reason"`
	Replace bool                `json:"replace,omitempty"` // all rows are replaced: the index is dropped with the settling
	Change  *decision           `json:"change,omitempty"`  // with Replace: what the completed instant decides
	Files   map[string][]string `json:"files"`             // names by partition path

	// Of a large statement, whose files are written already:
	Stage   string          `json:"stage,omitempty"`   // folder of the files below the table's
	Decided bool            `json:"decided,omitempty"` // it stands, with Cut as its sequence, and is to be completed
	Meta    json.RawMessage `json:"meta,omitempty"`    // commit metadata
}

// Flush writes the buffered rows of the tables (none named: of all) as Hudi instants; reason is shown to operators. Tables
// that one transaction wrote are flushed together: all files first, then the completions back to back.
//
// It waits while another engine is writing to one of them, up to Options.SharedWait.
func (c *Catalog) Flush(ctx context.Context, reason string, tables ...*Table) error {
	return c.flush(ctx, flushOrder{reason: reason, polite: true, wait: true}, tables)
}

// TryFlush is Flush that does not wait for other engines: the error wraps ErrBusy.
func (c *Catalog) TryFlush(ctx context.Context, reason string, tables ...*Table) error {
	return c.flush(ctx, flushOrder{reason: reason, polite: true}, tables)
}

// flushOrder says how to flush.
type flushOrder struct {
	reason string
	polite bool // not while another engine writes
	wait   bool // until it has ended
	part   bool // one table alone, although transactions tie it to others
}

func (c *Catalog) flush(ctx context.Context, o flushOrder, tables []*Table) error {
	if len(tables) == 0 {
		c.mu.RLock()
		for _, t := range c.byID {
			tables = append(tables, t)
		}
		c.mu.RUnlock()
		// One cut over all tables, if all can be flushed; else a table that cannot holds up only those that its transactions tie to it.
		now := o
		now.wait = false
		err := c.flushLinked(ctx, now, tables)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var first error
		var busy []*Table
		for _, t := range tables {
			if err := c.flushLinked(ctx, now, []*Table{t}); o.wait && errors.Is(err, ErrBusy) {
				busy = append(busy, t)
			} else {
				first = firstError(first, err)
			}
		}
		for _, t := range busy {
			first = firstError(first, c.flushLinked(ctx, o, []*Table{t}))
		}
		return first
	}
	return c.flushLinked(ctx, o, tables)
}

func (c *Catalog) flushLinked(ctx context.Context, o flushOrder, tables []*Table) error {
	first, tries := time.Now(), 0
	began := first
	for {
		err := c.flushGroup(ctx, o, c.linked(tables))
		var locked *timeline.LockedError
		switch {
		case errors.Is(err, errGroupGrew):
		case errors.Is(err, errOvertaken) && tries < overtakenMax:
			tries++
		case errors.As(err, &locked) && time.Since(began) < lockWait:
			// The slice locks are free meanwhile: what others complete becomes visible.
			if err := pause(ctx, lockPoll); err != nil {
				return err
			}
		case errors.Is(err, ErrBusy) && !errors.As(err, &locked) && o.wait && time.Since(first) < c.o.SharedWait+time.Minute:
			if err := pause(ctx, foreignPoll); err != nil {
				return err
			}
			began = time.Now() // of the waits for the lock
		default:
			return err
		}
	}
}

// errGroupGrew: a transaction tied another table to those of a flush before its cut.
var errGroupGrew = errors.New("catalog: the group of tables to flush grew")

// linked adds the tables that transactions tie to those given, in order of their ids.
func (c *Catalog) linked(tables []*Table) []*Table {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	seen := map[index.TableID]*Table{}
	var visit func(t *Table)
	visit = func(t *Table) {
		if seen[t.id] != nil {
			return
		}
		seen[t.id] = t
		for id := range t.buf.linked {
			if o := c.byID[id]; o != nil {
				visit(o)
			}
		}
	}
	for _, t := range tables {
		visit(t)
	}
	var out []*Table
	for _, t := range seen {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Table) int { return int(a.id) - int(b.id) })
	return out
}

func (c *Catalog) flushGroup(ctx context.Context, o flushOrder, tables []*Table) (err error) {
	for _, t := range tables {
		t.slices.Lock()
		defer t.slices.Unlock()
	}
	return c.flushLocked(ctx, o, tables)
}

// flushLocked flushes tables whose slice locks are held. It gives errGroupGrew if a transaction wrote one of them and another table, unless
// a part is asked for.
func (c *Catalog) flushLocked(ctx context.Context, o flushOrder, tables []*Table) (err error) {
	var todo []*Table
	above := time.UnixMilli(0)
	for _, t := range tables {
		if t.dropped.Load() || !t.isBuffered() {
			continue
		}
		if t.broken != nil {
			return t.flushFailed(t.broken)
		}
		release, err := t.tryHold(ctx)
		if err != nil {
			return t.flushFailed(err)
		}
		defer release()
		if err := t.resolveIntent(ctx); err != nil {
			return t.flushFailed(err)
		}
		if err := t.adoptLocked(ctx); err != nil {
			return t.flushFailed(err)
		}
		if d := t.def.Load(); d.readOnly != "" {
			return t.flushFailed(fmt.Errorf("%w: %s: %s", ErrReadOnly, d, d.readOnly))
		}
		if o.polite {
			if err := t.waitsForOthers(ctx); err != nil {
				return t.flushFailed(err)
			}
		}
		above = later(above, t.newestInstant())
		todo = append(todo, t)
	}
	if len(todo) == 0 {
		return nil
	}
	if err := c.notAhead(above, todo); err != nil {
		return err
	}
	at, cut, bufs, ok := c.cutOff(above, todo, !o.part)
	if !ok {
		return errGroupGrew
	}
	defer func() {
		if err != nil {
			c.restore(todo, bufs)
			for _, t := range todo {
				_ = t.flushFailed(err)
			}
		}
		c.commitMu.Lock()
		for _, t := range todo {
			t.flushing = time.Time{}
		}
		c.commitMu.Unlock()
	}()
	// One sync makes everything up to the cut durable: a flush never contains what is not.
	if err := c.syncJournal(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	if err := sleepUntil(ctx, c.clock.wall, at); err != nil {
		return err
	}
	var flushes []*flush
	batch := c.db.NewBatch()
	defer batch.Close()
	for i, t := range todo {
		f, err := t.plan(ctx, at, cut, o.reason)
		if err != nil {
			return fmt.Errorf("flush %s: %w", t, err)
		}
		if f == nil {
			continue
		}
		f.intent.Bytes = bufs[i].bytes
		b, err := json.Marshal(f.intent)
		if err != nil {
			return err
		}
		if err := batch.Set(idKey(prefixIntent, t.id), b, nil); err != nil {
			return err
		}
		flushes = append(flushes, f)
	}
	if err := c.commitBatch(batch); err != nil {
		return fmt.Errorf("write flush intent: %w", err)
	}
	for _, f := range flushes {
		f.t.intent = f.intent
	}
	defer func() {
		for _, f := range flushes {
			f.rest(ctx)
		}
	}()
	for _, f := range flushes {
		if err := f.write(ctx); err != nil {
			return fmt.Errorf("flush %s: %w", f.t, err)
		}
	}
	ctx = context.WithoutCancel(ctx) // the files are there: completing them is cheaper than undoing them
	for _, f := range flushes {
		if beforeComplete != nil {
			beforeComplete(f)
		}
		if err := f.overtaken(ctx); err != nil {
			return c.giveUp(ctx, flushes, fmt.Errorf("flush %s: %w", f.t, err))
		}
	}
	for _, f := range flushes {
		if err := f.complete(ctx); err != nil {
			return fmt.Errorf("flush %s: %w", f.t, err)
		}
	}
	for _, f := range flushes {
		if beforeSettle != nil {
			if err := beforeSettle(f); err != nil {
				return err
			}
		}
		if err := f.settle(ctx); err != nil {
			return fmt.Errorf("flush %s: %w", f.t, err)
		}
	}
	for _, b := range bufs {
		c.hotBytes.Add(-b.bytes)
	}
	c.trimHeaders()
	c.metrics.FlushesTotal.Add(int64(len(flushes)))
	return nil
}

// beforeComplete is a test's look at a flush whose files are written.
var beforeComplete func(*flush)

// beforeSettle is a test's look at a flush whose instant has completed; with an error the flush ends there.
var beforeSettle func(*flush) error

// giveUp undoes instants of which none is completed, so that their rows can be planned anew.
func (c *Catalog) giveUp(ctx context.Context, flushes []*flush, cause error) error {
	for _, f := range flushes {
		if err := f.pending.Abort(ctx); err != nil {
			return firstError(cause, err) // the intent stands: the next flush ends it
		}
	}
	return cause
}

// cutOff draws the instant of a flush: every commit up to the cut is in it, every later one lies above it.
func (c *Catalog) cutOff(above time.Time, tables []*Table, whole bool) (at time.Time, cut index.Seq, bufs []buffered, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	if whole {
		for _, t := range tables {
			for id := range t.buf.linked {
				// One that has nothing buffered was flushed with the rows that tie it, or emptied.
				if o := c.byID[id]; o != nil && o.buf.rows > 0 && !slices.Contains(tables, o) {
					return at, cut, nil, false
				}
			}
		}
	}
	at, cut = c.clock.instant(above)
	for _, t := range tables {
		bufs = append(bufs, t.buf)
		t.flushing, t.buf, t.drawn = t.buf.oldest, buffered{}, cut
	}
	return at, cut, bufs, true
}

// notAhead refuses to write to tables whose next instant would lie in the future: behind the newest one of theirs, or behind commits from
// before the wall clock went back. Their rows stay buffered until the wall clock is there.
func (c *Catalog) notAhead(newest time.Time, tables []*Table) error {
	wall := c.clock.wall()
	if ahead := newest.Sub(wall); ahead > maxAhead {
		for _, t := range tables {
			if t.newestInstant().Equal(newest) {
				return t.flushFailed(fmt.Errorf("%w: the newest instant of %s, %s, lies %s in the future: the time zone of its timeline or the clock is wrong",
					ErrReadOnly, t, c.cold(t.id).tl.Newest(), ahead.Truncate(time.Second)))
			}
		}
	}
	if ahead := seqTime(c.clock.read()).Sub(wall); ahead > maxAhead {
		err := fmt.Errorf("%w: commits lie %s in the future: the clock went back", ErrReadOnly, ahead.Truncate(time.Second))
		for _, t := range tables {
			_ = t.flushFailed(err) // tells the operator
		}
		return err
	}
	return nil
}

// maxAhead is how long a flush waits for the wall clock to pass the newest instant and the newest commit.
const maxAhead = 30 * time.Second

// trim gives up what the journal no longer has to hold of the table.
func (t *Table) trim(b *pebble.Batch, next *coldState) error {
	c := t.c
	before, keep := next.own, index.Seq(c.clock.Near().Add(-c.o.JournalWindow).UnixMicro())
	if !next.trim(keep, c.o.JournalBytes) {
		return nil
	}
	for _, o := range next.dropOthers(next.trimmed) {
		if err := b.Delete(effectKey(t.id, o.time), nil); err != nil {
			return err
		}
	}
	for _, o := range before[:len(before)-len(next.own)] {
		if err := b.Delete(ownKey(t.id, o.time), nil); err != nil {
			return err
		}
	}
	return b.DeleteRange(packetKey(t.id, 0, 0), packetKey(t.id, next.trimmed+1, 0), nil)
}

// trimHeaders notes up to where every commit is flushed, and drops the commit records that are older than the journal's window.
// What is lost of it in a crash is done by the next flush.
func (c *Catalog) trimHeaders() {
	tables := c.tablesByID()
	c.commitMu.Lock()
	floor := index.Seq(c.durable.Load())
	for _, t := range tables {
		for _, at := range []time.Time{t.buf.oldest, t.flushing} {
			if !at.IsZero() {
				floor = min(floor, index.Seq(at.UnixMicro())-1)
			}
		}
	}
	c.commitMu.Unlock()
	b := c.db.NewBatch()
	defer b.Close()
	old := min(floor, index.Seq(c.clock.Near().Add(-c.o.JournalWindow).UnixMicro()))
	err := firstError(b.Set(metaKey(metaFloor), appendUint(nil, uint64(floor)), nil), b.DeleteRange(journalKey(0), journalKey(old+1), nil), b.Commit(pebble.NoSync))
	if err != nil {
		c.log.Error("trim the journal", "err", err)
	}
}

// restore puts back what a failed flush took out of the bins.
func (c *Catalog) restore(tables []*Table, bufs []buffered) {
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	for i, t := range tables {
		b := &t.buf
		old := bufs[i]
		b.rows += old.rows
		b.bytes += old.bytes
		if !old.oldest.IsZero() {
			b.oldest = old.oldest
		}
		for id := range old.linked {
			b.link(id)
		}
		if !old.since.IsZero() {
			b.since = old.since
		}
	}
}

// flushFailed notes the cause of a failed flush on the table: its rows stay in the hot tier, visible.
func (t *Table) flushFailed(err error) error {
	t.c.commitMu.Lock()
	defer t.c.commitMu.Unlock()
	t.buf.cause, t.buf.tried = err, time.Now()
	if t.buf.since.IsZero() {
		t.buf.since = time.Now()
	}
	return err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func sleepUntil(ctx context.Context, now func() time.Time, at time.Time) error {
	for d := at.Sub(now()); d > 0; d = at.Sub(now()) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(d, 50*time.Millisecond)):
		}
	}
	return nil
}

// newestInstant gives the time behind which a new instant has to lie: that of the newest instant on the table's timeline, and the one at
// which the last of them completed. Files of a clock that is far ahead do not count for the latter.
func (t *Table) newestInstant() time.Time {
	tl := t.c.cold(t.id).tl
	at, err := timeline.ParseTime(tl.Newest(), t.def.Load().zone)
	if err != nil {
		at = time.UnixMilli(0)
	}
	if end := tl.LastEnd(); end.Sub(t.c.clock.wall()) <= maxAhead {
		at = later(at, end)
	}
	return at
}

// dropAsRange is the number of entries from which a range deletion is cheaper, also for the reads that pass it.
const dropAsRange = 512

// settle makes the instant known: one batch drops its rows from the hot tier's index and sets their locations.
func (f *flush) settle(ctx context.Context) error {
	c := f.t.c
	tl, err := f.cold.tl.Refresh(ctx, c.store, f.d.dir)
	if err != nil {
		return err
	}
	if !tl.Counts(f.instant) {
		return fmt.Errorf("%w: %s", timeline.ErrRolledBack, f.instant)
	}
	a, err := f.t.changes(ctx, f.cold, tl, f.instant)
	if err != nil {
		return err
	}
	var view *timeline.View
	if a == nil {
		view = f.cold.view.Apply(tl, f.meta.Change(f.instant))
	} else {
		view = a.view
	}
	next := f.cold.with(tl, view)
	surplus := 0
	mine := ownInstant{f.instant, f.cut, f.intent.Bytes, ownEffect(f.instant, f.cut, f.cold.view, f.cold.counts, f.intent.Files)}
	for _, r := range f.rows {
		if !r.lost {
			surplus += len(r.surplus)
		}
	}
	mine.barrier = surplus > 0 // the journal does not have the further rows of a key
	next.addOwn(mine)
	// If the table has nothing younger in the hot tier, one range is dropped instead of very many entries.
	idle := len(f.rows)+len(f.stale) >= dropAsRange && index.Seq(f.t.lastSeq.Load()) <= f.cut
	size := 4096
	for _, r := range f.rows {
		size += len(r.ikey) + len(r.key) + 64
		if !idle {
			size += len(r.ikey) + 24
		}
	}
	drop := func(b *pebble.Batch) error {
		for _, r := range f.rows {
			if err := c.index.DropRecent(b, f.t.id, []byte(r.ikey), r.seq); err != nil {
				return err
			}
		}
		for _, s := range f.stale {
			if err := c.index.DropRecent(b, f.t.id, []byte(s.row.ikey), s.seq); err != nil {
				return err
			}
		}
		return nil
	}
	alone := func(b *pebble.Batch) error {
		switch {
		case !idle:
			return nil
		case index.Seq(f.t.lastSeq.Load()) <= f.cut:
			return c.index.DropRecents(b, f.t.id)
		}
		return drop(b) // a commit came after all
	}
	err = f.t.swapSized(size, next, a, func(b *pebble.Batch) error {
		for _, o := range f.files {
			var err error
			if o.no, err = c.index.GroupNumber(b, f.t.id, o.part, o.id); err != nil {
				return err
			}
		}
		if !idle {
			if err := drop(b); err != nil {
				return err
			}
		}
		for _, r := range f.rows {
			if r.lost {
				continue
			}
			key := []byte(r.ikey)
			for _, s := range r.surplus {
				if err := c.index.DropSurplus(b, f.t.id, key, s); err != nil {
					return err
				}
			}
			if err := f.noteDead(b, r); err != nil {
				return err
			}
			if r.del || r.file == nil {
				f.t.forget(r.seq)
				if err := c.index.DropLocation(b, f.t.id, key); err != nil {
					return err
				}
				continue
			}
			l := index.Location{Seq: r.seq, Group: r.file.no, Row: -1, Key: r.key}
			if r.file.base {
				l.Instant, l.Row = f.instant, r.row
			}
			if err := c.index.PutLocation(b, f.t.id, key, l); err != nil {
				return err
			}
		}
		return f.t.closeIntent(b)
	}, alone)
	if err == nil {
		f.t.rows.Add(-int64(surplus))
	}
	return err
}

// noteDead keeps account of deleted records that base files still have.
func (f *flush) noteDead(b *pebble.Batch, r *flushRow) error {
	x, t := f.t.c.index, f.t
	if r.revived && r.file != nil {
		if err := x.DropDead(b, t.id, r.file.part, r.key); err != nil {
			return err
		}
	}
	if !f.d.spec.MergeOnRead || !r.cold || r.from == nil || r.from.base || r.from.slice.Base == nil {
		return nil
	}
	return x.PutDead(b, t.id, r.from.part, r.oldKey, index.Dead{Group: r.group, Instant: r.from.slice.Base.Instant})
}

// closeIntent removes the intent of an instant of ours that has become known.
func (t *Table) closeIntent(b *pebble.Batch) error {
	t.intent = nil
	return b.Delete(idKey(prefixIntent, t.id), nil)
}

// forget notes that the index keeps no trace of a delete: transactions that are older than it must not write its key.
func (t *Table) forget(seq index.Seq) {
	for {
		old := t.forgotten.Load()
		if old >= uint64(seq) || t.forgotten.CompareAndSwap(old, uint64(seq)) {
			return
		}
	}
}
