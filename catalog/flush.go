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

// notAhead refuses to write to a table whose newest instant lies in the future: every instant of ours would have to lie behind it.
func (c *Catalog) notAhead(newest time.Time, tables []*Table) error {
	if ahead := newest.Sub(c.clock.wall()); ahead > maxAhead {
		for _, t := range tables {
			if t.newestInstant().Equal(newest) {
				return t.flushFailed(fmt.Errorf("%w: the newest instant of %s, %s, lies %s in the future: the time zone of its timeline or the clock is wrong",
					ErrReadOnly, t, c.cold(t.id).tl.Newest(), ahead.Truncate(time.Second)))
			}
		}
	}
	return nil
}

// maxAhead is how long a flush waits for the wall clock to pass the newest instant.
const maxAhead = 30 * time.Second

// trim gives up what the journal no longer has to hold of the table.
func (t *Table) trim(b *pebble.Batch, next *coldState) error {
	c := t.c
	before, keep := next.own, index.Seq(c.clock.Now().Add(-c.o.JournalWindow).UnixMicro())
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
	old := min(floor, index.Seq(c.clock.Now().Add(-c.o.JournalWindow).UnixMicro()))
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

// flushRow is one key of a flush.
type flushRow struct {
	ikey    string
	seq     index.Seq
	ord     uint32
	del     bool
	bytes   int32 // of an insert, as it stands in the journal
	revived bool  // a deleted record that its base file still has
	again   bool  // deleted and written again since the files' state
	cold    bool  // the files have a row of the key
	group   uint32
	oldKey  string // record key text of that row
	key     string // record key text of the new row, known when it is written

	from  *outFile // the group that deletes the cold row
	entry *txEntry // of a large statement: the row does not stand in the journal

	// where the row goes, filled while writing
	file *outFile
	row  int64
}

// outFile is a file that a flush writes.
type outFile struct {
	part   string
	id     storage.FileID
	name   string
	base   bool               // a base file, else a log file
	slice  *storage.FileSlice // the slice that it replaces or extends; nil: a new file group
	bucket int                // number of the file in the flush: part of the rows' sequence numbers

	inserts []*flushRow          // rows that are new in the group
	updates map[string]*flushRow // by record key in the file
	deletes map[string]*flushRow

	stat timeline.WriteStat
	no   uint32 // number of the group in the index
}

// flush is one instant in the making.
type flush struct {
	t       *Table
	d       *tableDef
	cold    *coldState
	at      time.Time
	instant storage.InstantTime
	cut     index.Seq
	intent  *intent
	dir     string // object name of the folder of the files; "": the table's

	rows  []*flushRow
	stale []staleRecent // older recent entries of the same keys
	files []*outFile

	packets *packetReader // while the files are written

	pending *timeline.Pending
	meta    *timeline.CommitMeta
	heart   *heartbeat // while the instant is in the making
}

type staleRecent struct {
	row *flushRow
	seq index.Seq
}

// plan reads which keys changed up to the cut and decides into which files they go. Nil: nothing to do.
func (t *Table) plan(ctx context.Context, at time.Time, cut index.Seq, reason string) (*flush, error) {
	d := t.def.Load()
	f := &flush{t: t, d: d, cold: t.c.cold(t.id), at: at, instant: timeline.FormatTime(at.In(d.zone)), cut: cut}
	pending, err := t.planned(ctx, f.cold)
	if err != nil {
		return nil, err
	}
	parts := map[string]*partPlan{}
	part := func(path string) *partPlan {
		p := parts[path]
		if p == nil {
			p = &partPlan{path: path, groups: map[storage.FileID]*outFile{}}
			parts[path] = p
		}
		return p
	}
	recents, err := t.c.index.Recents(t.c.db, t.id, index.Bounds{})
	if err != nil {
		return nil, err
	}
	defer recents.Close()
	locs, err := t.c.index.Locations(t.c.db, t.id, index.Bounds{})
	if err != nil {
		return nil, err
	}
	defer locs.Close()
	packets, err := newPacketReader(t.c.db, t.id)
	if err != nil {
		return nil, err
	}
	defer packets.close()

	var row *flushRow
	var slab []flushRow // rows come in few allocations: there may be very many
	var keys arena
	for ; recents.Valid(); recents.Next() {
		k, r, err := recents.Entry()
		if err != nil {
			return nil, err
		}
		if r.Seq > cut {
			continue
		}
		if row != nil && row.ikey == string(k) {
			f.stale = append(f.stale, staleRecent{row, r.Seq})
			row.again = row.again || r.Delete && !row.del
			continue
		}
		if len(slab) == cap(slab) {
			slab = make([]flushRow, 0, min(max(64, 2*cap(slab)), 4096))
		}
		slab = append(slab, flushRow{ikey: textView(keys.keep(k)), seq: r.Seq, ord: r.Ord, del: r.Delete})
		row = &slab[len(slab)-1]
		loc, ok, err := locs.Seek(k)
		if err != nil {
			return nil, err
		}
		if ok {
			row.cold, row.group, row.oldKey = true, loc.Group, loc.Key
		}
		f.rows = append(f.rows, row)
	}
	if err := recents.Error(); err != nil {
		return nil, err
	}
	if len(f.rows) == 0 {
		return nil, nil
	}
	for _, row := range f.rows {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		var p packetRow
		if !row.del {
			if p, err = packets.read(row.seq, row.ord); err != nil {
				return nil, err
			}
			row.again = row.again || p.again
		}
		if row.cold {
			path, id, err := t.c.index.Group(t.id, row.group)
			if err != nil {
				return nil, err
			}
			fs, ok := f.cold.view.Slice(path, id, "", nil)
			if !ok {
				return nil, fmt.Errorf("file group %s in partition %q, where the index has key %s, has no files", id, path, row.oldKey)
			}
			g := part(path).group(id, &fs)
			if err := waitsFor(g, pending); err != nil {
				return nil, err
			}
			// The row stays in its group if its key text and its partition do.
			stays := !row.del && p.part == path && p.key == row.oldKey
			if stays && !(row.again && d.merge == storage.EventTime) {
				g.updates[row.oldKey] = row
				continue
			}
			g.deletes[row.oldKey], row.from = row, g
			if stays {
				g.revive(row)
				continue
			}
			if row.del {
				continue
			}
		}
		if row.del {
			continue // came and went between two flushes
		}
		pp := part(p.part)
		if d.spec.MergeOnRead {
			// A base file that still has the key, deleted, takes it again: an engine that looks keys up in base files would find two places.
			dead, ok, err := t.c.index.FindDead(t.c.db, t.id, p.part, p.key)
			if err != nil {
				return nil, err
			}
			if ok {
				path, id, err := t.c.index.Group(t.id, dead.Group)
				if err != nil {
					return nil, err
				}
				if fs, ok := f.cold.view.Slice(path, id, "", nil); ok && path == p.part && fs.Base != nil && fs.Base.Instant == dead.Instant {
					g := pp.group(id, &fs)
					if err := waitsFor(g, pending); err != nil {
						return nil, err
					}
					row.revived = true
					if d.merge == storage.EventTime {
						g.revive(row)
					} else {
						g.updates[p.key] = row
					}
					continue
				}
			}
		}
		pp.inserts = append(pp.inserts, row)
		pp.bytes += int64(len(p.row))
		row.bytes = int32(len(p.row))
	}
	for _, path := range sortedKeys(parts) {
		f.place(parts[path], pending)
	}
	action := timeline.Commit
	if d.spec.MergeOnRead {
		action = timeline.DeltaCommit
	}
	f.intent = &intent{Instant: f.instant, Action: action, Cut: cut, Reason: reason, Bin: newID(), Files: map[string][]string{}}
	for _, o := range f.files {
		f.intent.Files[o.part] = append(f.intent.Files[o.part], o.name)
	}
	return f, nil
}

// partPlan is what a flush does in one partition.
type partPlan struct {
	path    string
	groups  map[storage.FileID]*outFile
	inserts []*flushRow
	bytes   int64 // of the inserts, as they stand in the journal
}

func (p *partPlan) group(id storage.FileID, fs *storage.FileSlice) *outFile {
	g := p.groups[id]
	if g == nil {
		g = &outFile{part: p.path, id: id, slice: fs, updates: map[string]*flushRow{}, deletes: map[string]*flushRow{}}
		p.groups[id] = g
	}
	return g
}

// revive has a group take again a row of an event-time table that was deleted in it, whose ordering value may lie below the one
// of the delete: a new base file forgets the delete.
func (o *outFile) revive(row *flushRow) {
	o.base = true
	o.inserts = append(o.inserts, row)
}

// planned gives the file groups for which a compaction or a clustering is pending, with its instant.
func (t *Table) planned(ctx context.Context, cold *coldState) (map[string]storage.InstantTime, error) {
	var out map[string]storage.InstantTime
	for _, in := range cold.tl.Pending() {
		if in.Action == timeline.ReplaceCommit {
			r, err := timeline.ReadRequestedReplace(ctx, t.c.store, t.def.Load().dir, in.Time)
			if err != nil {
				return nil, err
			}
			for _, fs := range r.Inputs() {
				if out == nil {
					out = map[string]storage.InstantTime{}
				}
				out[fs.Partition+"\x00"+string(fs.ID)] = in.Time
			}
			continue
		}
		if in.Action != timeline.Compaction {
			continue
		}
		plan, err := timeline.ReadCompactionPlan(ctx, t.c.store, t.def.Load().dir, in.Time)
		if err != nil {
			return nil, err
		}
		if plan.Operations == nil {
			continue
		}
		if out == nil {
			out = map[string]storage.InstantTime{}
		}
		for _, op := range *plan.Operations {
			var path, id string
			if op.Partition != nil {
				path = *op.Partition
			}
			if op.FileID != nil {
				id = *op.FileID
			}
			out[path+"\x00"+id] = in.Time
		}
	}
	return out, nil
}

// waitsFor refuses to write to a group that is to be compacted or clustered: not all readers of version 6 find a log written after the
// plan of a compaction, and a clustering would lose it.
func waitsFor(g *outFile, pending map[string]storage.InstantTime) error {
	if it, ok := pending[g.part+"\x00"+string(g.id)]; ok {
		return fmt.Errorf("%w: file group %s waits for the table service that was planned at %s: rows stay buffered until it is done", ErrBusy, g.id, it)
	}
	return nil
}

// A slice with this many log files gets a new base file instead of another one: every reader has to merge them. Tests lower it.
var maxLogs = 50

const (
	// A flush never rewrites more than this many times the bytes that it adds.
	rewriteFactor = 4
	// A base file of this size or more takes no further inserts; a new file group holds about as much.
	maxFileBytes = 120 << 20
	// Rows in the journal take about this many times the bytes that they take in a base file.
	journalFactor = 2
)

// place decides which files take a partition's changes: updates and deletes go to their groups (a log file on merge-on-read, a new
// base file on copy-on-write), inserts into a base file that is rewritten anyway, else into a small one, else into new groups.
func (f *flush) place(p *partPlan, pending map[string]storage.InstantTime) {
	mor := f.d.spec.MergeOnRead
	var target *outFile
	for _, id := range sortedKeys(p.groups) {
		g := p.groups[id]
		g.base = g.base || !mor || len(g.slice.Logs) >= maxLogs && g.slice.Base != nil
		f.addFile(g)
		if g.base && len(p.inserts) > 0 && g.slice.Base != nil && g.slice.Base.Size < maxFileBytes && (target == nil || g.slice.Base.Size < target.slice.Base.Size) {
			target = g
		}
	}
	if len(p.inserts) == 0 {
		return
	}
	if target == nil {
		for _, fs := range f.cold.view.PartitionSlices(p.path, "", nil) {
			if _, waits := pending[p.path+"\x00"+string(fs.ID)]; waits {
				continue
			}
			if fs.Base == nil || len(fs.Logs) > 0 || p.groups[fs.ID] != nil || fs.Base.Size > min(maxFileBytes, rewriteFactor*p.bytes/journalFactor) {
				continue
			}
			if target == nil || fs.Base.Size < target.slice.Base.Size {
				target = &outFile{part: p.path, id: fs.ID, slice: &fs, base: true}
			}
		}
		if target != nil {
			f.addFile(target)
		}
	}
	if target != nil {
		target.inserts = append(target.inserts, p.inserts...)
		return
	}
	var cur *outFile
	var size int64
	for _, r := range p.inserts {
		if cur == nil || size > maxFileBytes*journalFactor {
			cur = &outFile{part: p.path, id: storage.NewFileID(), base: true}
			f.addFile(cur)
			size = 0
		}
		cur.inserts = append(cur.inserts, r)
		size += int64(r.bytes)
	}
}

func (f *flush) addFile(o *outFile) {
	o.bucket = len(f.files)
	token := storage.NewToken(o.bucket)
	if o.base {
		o.name = storage.BaseFileName(o.id, token, f.instant)
	} else {
		version := 0
		for _, l := range o.slice.Logs {
			version = max(version, l.Version)
		}
		o.name = storage.LogFileName(o.id, o.slice.Begin, version+1, token)
	}
	f.files = append(f.files, o)
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
	next.addOwn(ownInstant{f.instant, f.cut, f.intent.Bytes, ownEffect(f.instant, f.cut, f.cold.view, f.cold.counts, f.intent.Files)})
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
	return f.t.swapSized(size, next, a, func(b *pebble.Batch) error {
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
			key := []byte(r.ikey)
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
