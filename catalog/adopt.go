package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// adoption is what instants that this warehouse did not settle itself mean for the index.
type adoption struct {
	view  *timeline.View
	all   bool // every location is found anew
	put   []adopted
	dead  []adopted // deleted records that base files still have
	purge bool      // base files were replaced that had deleted records
	drop  []string  // index keys
	hints []secondaryHint
	rows  int64 // change of the number of rows
	// doubled says that some rows have equal keys: writers that insert without looking leave them. With all, surplus tells which ones
	// stand elsewhere than at the location.
	doubled bool
	surplus []adopted
}

// noteDoubled looks for keys that come more than once: among the rows that are new, or with a location in a group that did not change.
// With all, the newest row of a key is at its location.
func (t *Table) noteDoubled(a *adoption, before map[string]string) error {
	seen := make(map[string]int, len(a.put))
	var gone map[int]bool
	for i := range a.put {
		key := a.put[i].ikey
		if first, ok := seen[key]; ok {
			a.doubled = true
			if !a.all {
				return nil
			}
			if gone == nil {
				gone = map[int]bool{}
			}
			last := i
			if a.put[first].time > a.put[i].time { // what waits contends with the newest of them
				first, last = i, first
			}
			gone[first] = true
			a.surplus = append(a.surplus, a.put[first])
			seen[key] = last
			continue
		}
		seen[key] = i
		if _, ok := before[key]; ok || a.all {
			continue
		}
		_, ok, err := t.c.index.Locate(t.c.db, t.id, []byte(key))
		if err != nil {
			return err
		}
		if a.doubled = ok; ok {
			return nil
		}
	}
	if gone != nil {
		left := a.put[:0:0]
		for i := range a.put {
			if !gone[i] {
				left = append(left, a.put[i])
			}
		}
		a.put = left
	}
	return nil
}

type adopted struct {
	ikey string
	part string
	id   storage.FileID
	key  string
	base storage.InstantTime // of dead ones
	time string              // instant that wrote the row, in event-time tables
	seq  index.Seq           // of a row that is no newer than its location says; 0: adopted now
}

type secondaryHint struct {
	no     uint32
	values []byte
	ikey   string
}

// adoptAll looks for instants of other engines in each table and makes them visible.
func (c *Catalog) adoptAll(ctx context.Context, tables []*Table) error {
	for _, t := range tables {
		if err := t.adopt(ctx); err != nil {
			return err
		}
	}
	return nil
}

// adopt makes completed instants of other engines visible: one batch with a sequence of its own changes the index and the known instants.
func (t *Table) adopt(ctx context.Context) error {
	t.slices.Lock()
	defer t.slices.Unlock()
	if t.dropped.Load() || t.broken != nil {
		return nil
	}
	return t.adoptLocked(ctx)
}

func (t *Table) adoptLocked(ctx context.Context) error {
	if t.intent != nil && t.intent.Decided {
		if err := t.finishDecided(ctx); err != nil {
			return err
		}
	}
	c, d := t.c, t.def.Load()
	cold := c.cold(t.id)
	stamp := c.folderTime(d)
	tl, err := cold.tl.Refresh(ctx, c.store, d.dir)
	if err != nil {
		return fmt.Errorf("table %s: %w", d, err)
	}
	if err := d.mayRead(tl); err != nil {
		return fmt.Errorf("table %s: %w", d, err)
	}
	a, err := t.changes(ctx, cold, tl, "")
	if err != nil {
		return fmt.Errorf("adopt instants of %s: %w", d, err)
	}
	if a == nil {
		if p := tl.Properties(); d.spec.Attached && p != nil && !maps.Equal(p, d.properties) {
			if err := t.evolved(ctx, tl); err != nil {
				return fmt.Errorf("adopt properties of %s: %w", d, err)
			}
		}
		t.noteFolder(stamp)
		return nil
	}
	if err := t.evolved(ctx, tl); err != nil {
		return fmt.Errorf("adopt instants of %s: %w", d, err)
	}
	if err := t.swap(cold.with(tl, a.view), a, nil); err != nil {
		return fmt.Errorf("adopt instants of %s: %w", d, err)
	}
	t.noteFolder(stamp)
	c.metrics.AdoptionsTotal.Add(1)
	return nil
}

// refresh adopts if the timeline folder changed since it was read last; file systems without folder times are looked at by flushes only.
func (t *Table) refresh(ctx context.Context) error {
	stamp := t.stamp()
	if stamp == t.folderTime.Load() {
		return nil
	}
	if !t.slices.TryLock() {
		return nil // a flush or another adoption reads the timeline at this moment
	}
	defer t.slices.Unlock()
	if t.dropped.Load() || t.broken != nil || stamp == 0 {
		return nil
	}
	return t.adoptLocked(ctx)
}

// folderTick is the grain of folder times: what changes within it may leave the time as it is.
const folderTick = 20 * time.Millisecond

// noteFolder remembers the folder time at which the timeline was read, unless it is too young to tell of the next change.
func (t *Table) noteFolder(stamp int64) {
	if time.Now().UnixNano()-stamp < int64(folderTick) {
		stamp = 0
	}
	t.folderTime.Store(stamp)
}

// stamp is folderTime of the table, for each transaction.
func (t *Table) stamp() int64 {
	if t.c.memory {
		return 0
	}
	d := t.def.Load()
	f := t.folder.Load()
	if f == nil || f.dir != d.dir || f.layout != d.layout {
		f = t.c.timelineFolder(d)
		t.folder.Store(f)
	}
	return t.c.stampOf(f)
}

// timelineFolder is where the timeline of a table stands whose folder is dir.
type timelineFolder struct {
	dir    string
	layout timeline.Layout
	paths  []string // .hoodie, and the folder of the instants where that is another
}

func (c *Catalog) timelineFolder(d *tableDef) *timelineFolder {
	f := &timelineFolder{d.dir, d.layout, []string{c.fs.PathJoin(c.path(d.dir), ".hoodie")}}
	if path := c.path(d.layout.Folder(d.dir)); path != f.paths[0] {
		f.paths = append(f.paths, path)
	}
	return f
}

// folderTime gives the modification time (ns) of a table's timeline folder; 0 where the file system keeps none.
func (c *Catalog) folderTime(d *tableDef) int64 {
	if c.memory {
		return 0
	}
	return c.stampOf(c.timelineFolder(d))
}

// stampOf gives the later time where a timeline stands in two folders.
func (c *Catalog) stampOf(f *timelineFolder) (at int64) {
	for _, path := range f.paths {
		at = max(at, c.pathTime(path))
	}
	return at
}

func (c *Catalog) pathTime(path string) int64 {
	st, err := c.fs.Stat(path)
	if err != nil {
		return 0
	}
	return st.ModTime().UnixNano()
}

// changes compares the table's files at two looks at its timeline; nil if nothing changed but our own instant.
func (t *Table) changes(ctx context.Context, cold *coldState, tl *timeline.Timeline, own storage.InstantTime) (*adoption, error) {
	if sameInstants(cold.tl, tl, own) {
		return nil, nil
	}
	d := t.def.Load()
	var view *timeline.View
	var err error
	if cold.view.Timeline() == nil { // nothing was ever read
		view, err = timeline.BuildView(ctx, t.c.store, d.dir, tl)
	} else {
		view, err = cold.view.Advance(ctx, t.c.store, d.dir, tl)
	}
	if err != nil {
		return nil, err
	}
	a := &adoption{view: view}
	type pair struct{ old, new *storage.FileSlice }
	pairs := map[string]*pair{}
	id := func(fs *storage.FileSlice) string { return fs.Partition + "\x00" + string(fs.ID) }
	olds, news := cold.newest(), view.Slices("", nil)
	for i := range olds {
		pairs[id(&olds[i])] = &pair{old: &olds[i]}
	}
	for i := range news {
		if p := pairs[id(&news[i])]; p != nil {
			p.new = &news[i]
		} else {
			pairs[id(&news[i])] = &pair{new: &news[i]}
		}
	}
	before := map[string]string{} // instants that wrote the rows
	for _, k := range sortedKeys(pairs) {
		p := pairs[k]
		if p.old != nil && p.new != nil && sameFiles(p.old, p.new) && sameCounts(p.new, cold.tl, tl) {
			continue
		}
		if p.old != nil && len(p.old.Logs) > 0 && (p.new == nil || p.new.Begin != p.old.Begin) {
			a.purge = true
		}
		if p.old != nil {
			err := t.readKeys(ctx, *p.old, cold.tl.Counts, false, func(k adopted, _ []secondaryHint) { before[k.ikey] = k.time })
			if err != nil {
				return nil, err
			}
		}
		if p.new != nil {
			err := t.readKeys(ctx, *p.new, tl.Counts, true, func(k adopted, hints []secondaryHint) {
				a.put = append(a.put, k)
				a.hints = append(a.hints, hints...)
			})
			if err == nil {
				err = t.readDead(ctx, *p.new, tl.Counts, a)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := t.noteDoubled(a, before); err != nil {
		return nil, err
	}
	if a.doubled || t.doubled.Load() {
		// Which of the rows of a key are left is seen by all of them.
		if a, err = t.reindex(ctx, tl); err != nil {
			return nil, err
		}
		return a, t.settled(a, cold.tl, own, 0)
	}
	a.rows = int64(len(a.put)) - int64(len(before))
	for i := range a.put {
		k := &a.put[i]
		switch it := storage.InstantTime(k.time); {
		case it == "":
		case before[k.ikey] == k.time:
			if err := t.keepSeq(k); err != nil {
				return nil, err
			}
		case cold.tl.Counts(it): // it is back, since what replaced it was undone
			k.seq = cold.knownFrom(it)
		}
	}
	for i := range a.put {
		delete(before, a.put[i].ikey)
	}
	for k := range before {
		a.drop = append(a.drop, k)
	}
	return a, nil
}

// keepSeq leaves a row as old as it was: in an event-time table it contends with the commits that wait only if another engine wrote it
// after them, not if its file was rewritten.
func (t *Table) keepSeq(k *adopted) error {
	loc, ok, err := t.c.index.Locate(t.c.db, t.id, []byte(k.ikey))
	if err == nil && ok && loc.Key == k.key {
		k.seq = loc.Seq
	}
	return err
}

// settled leaves the rows of a table that is indexed anew as old as they were, when an instant of ours has completed unnoticed; before
// are the instants that counted then.
func (t *Table) settled(a *adoption, before *timeline.Timeline, own storage.InstantTime, cut index.Seq) error {
	for i := range a.put {
		k := &a.put[i]
		switch it := storage.InstantTime(k.time); {
		case k.time == "":
		case it == own:
			k.seq = cut
		case before.Counts(it):
			if err := t.keepSeq(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// undone gives the table's files after an instant of ours was rolled back. The view is built anew, since the files that are gone may
// stand in the one before.
func (t *Table) undone(ctx context.Context, tl *timeline.Timeline) (*adoption, error) {
	c := t.c
	c.commitMu.Lock()
	r := t.record
	c.commitMu.Unlock()
	if stale, err := t.stale(ctx, &r, tl); err != nil {
		return nil, err
	} else if stale {
		return t.reindex(ctx, tl)
	}
	view, err := timeline.BuildView(ctx, c.store, t.def.Load().dir, tl)
	return &adoption{view: view}, err
}

// reindex finds every location of the table anew.
func (t *Table) reindex(ctx context.Context, tl *timeline.Timeline) (*adoption, error) {
	view, err := timeline.BuildView(ctx, t.c.store, t.def.Load().dir, tl)
	if err != nil {
		return nil, err
	}
	a := &adoption{view: view, all: true}
	for _, fs := range view.Slices("", nil) {
		err := t.readKeys(ctx, fs, tl.Counts, true, func(k adopted, hints []secondaryHint) {
			a.put = append(a.put, k)
			a.hints = append(a.hints, hints...)
		})
		if err == nil {
			err = t.readDead(ctx, fs, tl.Counts, a)
		}
		if err != nil {
			return nil, err
		}
	}
	a.rows = int64(len(a.put)) - t.rows.Load()
	return a, t.noteDoubled(a, nil)
}

// sameInstants tells whether two timelines differ in nothing but an instant of ours and what became older than the active timeline.
func sameInstants(a, b *timeline.Timeline, own storage.InstantTime) bool {
	strip := func(t *timeline.Timeline) []timeline.Instant {
		out := make([]timeline.Instant, 0, len(t.Instants))
		for _, in := range t.Instants {
			if in.Time != own {
				in.Completed = ""
				out = append(out, in)
			}
		}
		return out
	}
	return slices.Equal(strip(a), strip(b))
}

func sameFiles(a, b *storage.FileSlice) bool {
	if (a.Base == nil) != (b.Base == nil) || a.Base != nil && a.Base.Name != b.Base.Name {
		return false
	}
	return slices.EqualFunc(a.Logs, b.Logs, func(x, y storage.FileName) bool { return x.Name == y.Name && x.Size == y.Size })
}

// sameCounts tells whether the blocks of a slice's logs count alike at two looks: an instant that wrote into a log may complete later than its file appears.
func sameCounts(fs *storage.FileSlice, a, b *timeline.Timeline) bool {
	if len(fs.Logs) == 0 {
		return true
	}
	in := func(t *timeline.Timeline) []timeline.Instant {
		return slices.DeleteFunc(t.Completed(), func(x timeline.Instant) bool { return x.Time < fs.Begin })
	}
	return slices.EqualFunc(in(a), in(b), func(x, y timeline.Instant) bool { return x.Time == y.Time })
}

// readDead adds the records of a slice that its base file has and its logs delete. The last rows of a.put are those of the slice.
func (t *Table) readDead(ctx context.Context, fs storage.FileSlice, counts func(storage.InstantTime) bool, a *adoption) error {
	if fs.Base == nil || len(fs.Logs) == 0 || t.def.Load().readOnly != "" {
		return nil
	}
	live := map[string]bool{}
	for i := len(a.put) - 1; i >= 0 && a.put[i].id == fs.ID && a.put[i].part == fs.Partition; i-- {
		live[a.put[i].key] = true
	}
	base := fs
	base.Logs = nil
	return t.readKeys(ctx, base, counts, false, func(k adopted, _ []secondaryHint) {
		if !live[k.key] {
			k.base = fs.Base.Instant
			a.dead = append(a.dead, k)
		}
	})
}

// readKeys reads the index keys of a slice, with the values of the secondary indexes if asked for.
func (t *Table) readKeys(ctx context.Context, fs storage.FileSlice, counts func(storage.InstantTime) bool, hints bool, f func(adopted, []secondaryHint)) error {
	d := t.def.Load()
	cols := []string{storage.ColRecordKey, storage.ColCommitTime}
	need := map[int]int{} // position in the table → in the scan
	add := func(list []index.Column) {
		for _, k := range list {
			if _, ok := need[k.Field]; !ok {
				need[k.Field] = len(cols)
				cols = append(cols, d.spec.Schema.Fields[k.Field].Name)
			}
		}
	}
	add(d.keyCols)
	if hints {
		for i := range d.indexes {
			add(d.indexes[i].cols)
		}
	}
	want, err := d.spec.Schema.Select(cols...)
	if err != nil {
		return err
	}
	row := make(storage.Row, len(d.spec.Schema.Fields))
	contends := d.merge == storage.EventTime && d.ordering >= 0
	var at string // the last one: few instants write the rows of a slice
	for b, err := range t.c.reader.ReadSlice(ctx, d.dir, fs, d.scan(want, counts)) {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			key, _ := b.Value(0, i).(string)
			if contends {
				if it, _ := b.Value(1, i).(string); it != at {
					at = strings.Clone(it)
				}
			}
			for field, at := range need {
				row[field] = b.Value(at, i)
			}
			var ikey []byte
			if d.hidden() {
				ikey = d.textKey(key, fs.Partition)
			} else if ikey, err = d.indexKey(row, fs.Partition); err != nil {
				return err
			}
			var list []secondaryHint
			if hints {
				for n := range d.indexes {
					values, err := index.AppendKey(nil, d.indexes[n].cols, row)
					if err != nil {
						return err
					}
					list = append(list, secondaryHint{d.indexes[n].no, values, string(ikey)})
				}
			}
			f(adopted{ikey: string(ikey), part: fs.Partition, id: fs.ID, key: key, time: at}, list)
		}
	}
	return nil
}

// swap makes a new cold state known: the index changes and the state become visible to snapshots in one step.
func (t *Table) swap(next *coldState, a *adoption, own func(*pebble.Batch) error) error {
	return t.swapSized(0, next, a, own, nil)
}

// swapSized is swap with the size of the batch, and with something to add to it while no commit can come between.
func (t *Table) swapSized(size int, next *coldState, a *adoption, own, alone func(*pebble.Batch) error) error {
	c := t.c
	b := c.db.NewBatchWithSize(size)
	defer b.Close()
	if a != nil && a.all {
		if err := c.index.DropLocations(b, t.id); err != nil {
			return err
		}
	}
	last, _ := t.defs.last()
	if own != nil {
		if err := own(b); err != nil {
			return err
		}
	}
	prev := c.cold(t.id)
	var adopted []otherInstant
	if a != nil {
		var err error
		if adopted, err = t.adoptedInstants(context.Background(), prev, next); err != nil {
			return err
		}
	}
	var undone []storage.InstantTime
	if a != nil {
		undone = undoneInstants(prev, next)
	}
	t.keepReplaced(prev, next, adopted)
	if err := t.trim(b, next); err != nil {
		return err
	}
	c.viewMu.Lock()
	c.commitMu.Lock()
	var stamp index.Seq
	var grown int64
	seq, err := func() (index.Seq, error) {
		var seq index.Seq
		if a != nil && (len(a.put) > 0 || len(a.drop) > 0 || len(a.dead) > 0 || a.all) {
			seq = c.clock.next()
			grown = a.rows
			if err := t.applyAdoption(b, a, seq); err != nil {
				return 0, err
			}
		}
		if alone != nil {
			if err := alone(b); err != nil {
				return 0, err
			}
		}
		switch {
		case a != nil:
			t.record.Doubled = a.doubled || t.record.Doubled && !a.all
		case t.record.Doubled:
			n, err := c.index.Surpluses(c.db, t.id, 1)
			if err != nil {
				return 0, err
			}
			t.record.Doubled = n > 0
		}
		var err error
		if stamp, err = t.noteEffects(b, prev, next, adopted, undone, seq); err != nil {
			return 0, err
		}
		if err := t.saveRecordWith(b, next, grown); err != nil {
			return 0, err
		}
		if stamp > 0 {
			if err := t.defineAt(b, last.version, stamp); err != nil {
				return 0, err
			}
		}
		return seq, c.db.ApplyNoSyncWait(b, pebble.Sync)
	}()
	if err == nil {
		t.noteHistory(prev, next, adopted, undone)
		if len(undone) > 0 {
			t.undoneSeq.Store(uint64(stamp))
		}
		t.doubled.Store(t.record.Doubled)
		if seq > 0 {
			t.lastSeq.Store(uint64(seq))
			t.filesSeq.Store(uint64(seq))
			t.rows.Add(a.rows)
			t.auto.Lock()
			t.auto.saved = max(t.auto.saved, t.auto.next)
			t.auto.next = 0 // rows of others may have larger values
			t.auto.Unlock()
		}
		c.setCold(t.id, next)
	}
	c.commitMu.Unlock()
	c.viewMu.Unlock()
	if err != nil {
		return err
	}
	if err := b.SyncWait(); err != nil {
		c.fail(fmt.Errorf("sync index: %w", err))
		return err
	}
	// Also up to the cut of an instant of ours: a transaction that begins now must not be older than what the index forgot with it.
	c.advance(max(seq, stamp, next.flushed))
	c.dropKept(context.Background(), t, next.trimmed, false)
	return nil
}

func (t *Table) applyAdoption(b *pebble.Batch, a *adoption, seq index.Seq) error {
	c := t.c
	for _, k := range a.drop {
		if err := c.index.DropLocation(b, t.id, []byte(k)); err != nil {
			return err
		}
	}
	if len(a.drop) > 0 || a.all {
		t.forget(seq)
	}
	numbers := map[string]uint32{}
	for i := range a.put {
		k := &a.put[i]
		name := k.part + "\x00" + string(k.id)
		no, ok := numbers[name]
		if !ok {
			var err error
			if no, err = c.index.GroupNumber(b, t.id, k.part, k.id); err != nil {
				return err
			}
			numbers[name] = no
		}
		at := seq
		if k.seq > 0 {
			at = k.seq
		}
		if err := c.index.PutLocation(b, t.id, []byte(k.ikey), index.Location{Seq: at, Group: no, Row: -1, Key: k.key}); err != nil {
			return err
		}
	}
	for i := range a.surplus {
		k := &a.surplus[i]
		no, err := c.index.GroupNumber(b, t.id, k.part, k.id)
		if err != nil {
			return err
		}
		if err := c.index.PutSurplus(b, t.id, []byte(k.ikey), index.Surplus{Group: no, Key: k.key}); err != nil {
			return err
		}
	}
	if a.purge || a.all {
		err := c.index.PurgeDead(b, t.id, func(d index.Dead) bool {
			part, id, err := c.index.Group(t.id, d.Group)
			fs, ok := a.view.Slice(part, id, "", nil)
			return err == nil && ok && fs.Base != nil && fs.Base.Instant == d.Instant
		})
		if err != nil {
			return err
		}
	}
	for i := range a.dead {
		k := &a.dead[i]
		no, err := c.index.GroupNumber(b, t.id, k.part, k.id)
		if err != nil {
			return err
		}
		if err := c.index.PutDead(b, t.id, k.part, k.key, index.Dead{Group: no, Instant: k.base}); err != nil {
			return err
		}
	}
	for i := range a.hints {
		h := &a.hints[i]
		if err := c.index.PutSecondary(b, t.id, h.no, h.values, []byte(h.ikey)); err != nil {
			return err
		}
	}
	return nil
}
