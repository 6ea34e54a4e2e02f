package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// load reads tables and objects, checks that state and tables belong together, and finishes what was decided.
func (c *Catalog) load(ctx context.Context, file *warehouseFile, fresh bool) error {
	id, err := c.meta(metaID)
	if err != nil {
		return err
	}
	folders, err := c.tableFolders(ctx)
	if err != nil {
		return err
	}
	if err := c.loadClock(); err != nil {
		return err
	}
	c.objects = map[string]map[string][]Object{}
	lost, clean := id == "", file != nil && file.Clean && !file.Temps
	if file != nil {
		c.id, c.nextID = file.ID, file.NextTable
		c.clock.raise(file.Clock)
		for _, d := range file.Databases {
			c.databases[strings.ToLower(d.Name)] = &database{Name: d.Name, Body: d.Body, tables: map[string]*Table{}}
			for kind, list := range d.Objects {
				c.setObjects(kind, d.Name, list)
			}
		}
		if id != "" && id != file.ID {
			return fmt.Errorf("%w: state belongs to warehouse %s, the tables to %s", ErrLostState, id, file.ID)
		}
	}
	if lost && len(folders) > 0 && (file == nil || !file.Clean) && !c.o.AcceptLostState {
		return c.lostState(ctx, folders)
	}
	if c.id == "" {
		c.id = id // the first start ended before it wrote the file
	}
	if c.id == "" {
		c.id = newID()
	}
	if lost {
		b := c.db.NewBatch()
		defer b.Close()
		if err := firstError(b.Set(metaKey(metaID), []byte(c.id), nil), b.Set(metaKey(metaRebuild), []byte("1"), nil), c.commitBatch(b)); err != nil {
			return err
		}
	}
	if !lost {
		list, err := c.meta(metaDatabases)
		if err != nil {
			return err
		}
		next, err := c.meta(metaNext)
		if err != nil {
			return err
		}
		n, _ := binary.Uvarint([]byte(next))
		c.nextID = max(c.nextID, index.TableID(n))
		if list != "" { // decided, whatever the file says
			var saved []savedDatabase
			if err := json.Unmarshal([]byte(list), &saved); err != nil {
				return fmt.Errorf("list of databases: %w", err)
			}
			c.setDatabases(saved)
		}
	}
	err = c.eachSteps(func(s *folderSteps) error {
		if err := c.moveFolders(ctx, s); err != nil {
			return err
		}
		return c.removeFolders(ctx, s)
	})
	if err != nil {
		return err
	}
	if err := c.removeDropped(ctx); err != nil {
		return err
	}
	if folders, err = c.tableFolders(ctx); err != nil {
		return err
	}
	for _, f := range folders {
		if c.databases[strings.ToLower(f.database)] == nil {
			c.databases[strings.ToLower(f.database)] = &database{Name: f.database, tables: map[string]*Table{}}
		}
	}
	if err := c.loadTables(ctx); err != nil {
		return err
	}
	dropped, err := c.droppedTables()
	if err != nil {
		return err
	}
	for i := range dropped {
		c.clock.raise(index.Seq(dropped[i].At.UnixMicro())) // their instants and commits lie before it
	}
	if !lost {
		if folders, err = c.forgotten(ctx, folders); err != nil {
			return err
		}
		if len(folders) > 0 && !c.o.AcceptLostState {
			return c.lostState(ctx, folders)
		}
		file = nil // its attached tables are known
	}
	if lost {
		if err := c.keepIDs(ctx); err != nil {
			return err
		}
	}
	if lost || len(folders) > 0 {
		c.rebuilding = lost
		err := c.recoverTables(ctx, folders, file)
		if c.rebuilding = false; err != nil {
			return err
		}
	}
	if lost {
		if err := c.recoverDropped(ctx, file); err != nil {
			return err
		}
	}
	if err := c.loadJournal(); err != nil {
		return err
	}
	unfinished := false
	for _, t := range c.tablesByID() {
		unfinished = unfinished || t.intent != nil
		err := t.finish(ctx)
		if errors.Is(err, ErrBusy) {
			c.log.Error("an unfinished flush waits for the table's lock", "table", t.String(), "err", err)
		} else if err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
	}
	if err := c.repeatSteps(ctx); err != nil {
		return err
	}
	if !clean {
		if err := c.removeTemps(ctx); err != nil {
			return err
		}
	}
	if lost {
		if err := c.dropEntry(metaKey(metaRebuild)); err != nil {
			return err
		}
	}
	if err := c.saveWarehouse(ctx, false); err != nil {
		return err
	}
	if unfinished {
		// Other engines may see some tables of a transaction after it and others before it: one flush puts that right.
		if err := c.TryFlush(ctx, "an unfinished flush was found at the start"); err != nil {
			c.log.Error("flush after the start; it is tried again", "err", err)
		}
	}
	return nil
}

// finish ends what an earlier run left unfinished in the folder of a table that was opened.
func (t *Table) finish(ctx context.Context) error {
	if t.broken != nil {
		return nil
	}
	t.slices.Lock()
	defer t.slices.Unlock()
	return firstCall(ctx, t.clearLock, t.resolveIntent, t.clearEnded, t.removeStaged)
}

// firstCall calls one function after the other until one fails.
func firstCall(ctx context.Context, list ...func(context.Context) error) error {
	for _, f := range list {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) meta(name string) (string, error) {
	v, closer, err := c.db.Get(metaKey(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer closer.Close()
	return string(v), nil
}

// tableFolder is a Hudi table found in the warehouse.
type tableFolder struct{ database, name, dir string }

// tableFolders lists the tables by their folders: <database>/<table>/.hoodie.
func (c *Catalog) tableFolders(ctx context.Context) ([]tableFolder, error) {
	var out []tableFolder
	for db, err := range c.store.List(ctx, c.root) {
		if err != nil {
			return nil, err
		}
		if !db.Dir || strings.HasPrefix(db.Name, ".") {
			continue
		}
		for t, err := range c.store.List(ctx, join(c.root, db.Name)) {
			if err != nil {
				return nil, err
			}
			if !t.Dir || strings.HasPrefix(t.Name, ".") {
				continue
			}
			dir := join(db.Name, t.Name)
			f, err := c.store.Open(ctx, join(c.object(dir), ".hoodie/hoodie.properties"))
			if errors.Is(err, storage.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
			f.Close()
			out = append(out, tableFolder{unescapeName(db.Name), unescapeName(t.Name), dir})
		}
	}
	return out, nil
}

func (c *Catalog) lostState(ctx context.Context, folders []tableFolder) error {
	var b strings.Builder
	for _, f := range folders {
		last := "no instant"
		if tl, err := timeline.Load(ctx, c.store, c.object(f.dir)); err == nil {
			if in, ok := tl.Last(); ok {
				last = string(in.Time)
			}
		}
		fmt.Fprintf(&b, "; %s.%s: last instant %s", f.database, f.name, last)
	}
	return fmt.Errorf("%w, and commits that were not flushed are gone with it; start with --accept-lost-state to go on from the last instants%s", ErrLostState, b.String())
}

// loadTables opens the tables that the state folder knows.
func (c *Catalog) loadTables(ctx context.Context) error {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixTable}, UpperBound: []byte{prefixTable + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		var r tableRecord
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("table record: %w", err)
		}
		c.nextID = max(c.nextID, r.ID+1)
		if r.Draft {
			if err := c.dropState(r.ID); err != nil {
				return err
			}
			if err := c.store.Remove(ctx, c.object(r.Dir)+"/"); err != nil {
				return err
			}
			continue
		}
		t, err := c.openTable(ctx, &r)
		var damaged *storage.CorruptError
		if errors.As(err, &damaged) || errors.Is(err, storage.ErrUnsupported) {
			t, err = c.brokenTable(&r, err)
		}
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		c.byID[t.id] = t
		c.watch(t)
		d := c.databases[strings.ToLower(r.Database)]
		if d == nil {
			d = &database{Name: r.Database, tables: map[string]*Table{}}
			c.databases[strings.ToLower(r.Database)] = d
		}
		d.tables[strings.ToLower(r.Name)] = t
	}
	return it.Error()
}

// brokenTable makes a Table of which nothing but its definition can be used.
func (c *Catalog) brokenTable(r *tableRecord, cause error) (*Table, error) {
	d, err := c.compile(r, nil)
	if err != nil {
		return nil, cause
	}
	c.log.Error("table cannot be used", "table", d.String(), "err", cause)
	t := &Table{c: c, id: r.ID, record: *r, broken: cause}
	t.def.Store(d)
	t.rows.Store(r.Rows)
	t.lastSeq.Store(uint64(max(r.Flushed, r.Last)))
	c.setCold(r.ID, &coldState{tl: &timeline.Timeline{}, view: &timeline.View{}, flushed: r.Flushed, trimmed: r.Trimmed, since: r.Since})
	c.clock.raise(max(r.Flushed, r.Created, r.Dropped, r.Last))
	return t, nil
}

// checkTorn is an error if a completed instant wrote bytes of a log file at or behind an offset from which on the file is no whole block.
func (c *Catalog) checkTorn(ctx context.Context, dir, partition, file string, offset int64) error {
	tl, err := timeline.Load(ctx, c.store, dir)
	if err != nil {
		return err
	}
	for _, in := range tl.Completed() {
		m, err := timeline.ReadCommit(ctx, c.store, dir, in)
		if err != nil {
			return err
		}
		for _, st := range m.Stats[partition] {
			if st.FileName() == file && st.FileSize > offset {
				return &storage.CorruptError{Name: join(dir, partition, file), Offset: offset, Err: fmt.Errorf("instant %s wrote %d bytes, which are not all there", in.Time, st.FileSize)}
			}
		}
	}
	return nil
}

// checkBases refuses a table of ours that has log files over a base file that is gone: lakesql never writes logs alone.
func checkBases(d *tableDef, view *timeline.View) error {
	if d.spec.Attached {
		return nil
	}
	for _, fs := range view.Slices("", nil) {
		if fs.Base == nil {
			return &storage.CorruptError{Name: d.object(fs.Partition, string(fs.ID)), Offset: -1, Err: fmt.Errorf("the base file of instant %s is missing under %d log files", fs.Begin, len(fs.Logs))}
		}
	}
	return nil
}

// openTable makes a Table of its record and the timeline it finds. Nil: its folder is gone, and so is the table.
func (c *Catalog) openTable(ctx context.Context, r *tableRecord) (*Table, error) {
	return c.openFolder(ctx, r, nil)
}

// openFolder is openTable, also for one that is dropped.
func (c *Catalog) openFolder(ctx context.Context, r *tableRecord, gone *droppedTable) (*Table, error) {
	p, err := timeline.ReadProperties(ctx, c.store, c.object(r.Dir))
	if errors.Is(err, storage.ErrNotExist) {
		if !c.o.AcceptLostState {
			return nil, fmt.Errorf("table %s.%s: its folder %s is missing; put it back, or start with --accept-lost-state to drop the table", r.Database, r.Name, c.path(c.object(r.Dir)))
		}
		c.log.Error("table folder is missing, the table is dropped", "table", r.Database+"."+r.Name, "folder", c.path(c.object(r.Dir)))
		return nil, c.dropState(r.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
	}
	check := p.Writable // another engine may have upgraded it
	if r.Def.Attached {
		check = p.Supported
	}
	if err := check(); err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
	}
	d, err := c.compile(r, p)
	if err != nil {
		return nil, err
	}
	t := &Table{c: c, id: r.ID, record: *r, gone: gone}
	t.def.Store(d)
	t.doubled.Store(r.Doubled)
	t.rows.Store(r.Rows)
	t.forgotten.Store(uint64(r.Dropped))
	t.lastSeq.Store(uint64(max(r.Flushed, r.Last)))
	t.auto.saved = r.Def.AutoNext
	if v, closer, err := c.db.Get(idKey(prefixAuto, r.ID)); err == nil {
		n, _ := binary.Uvarint(v)
		t.auto.saved = max(t.auto.saved, n)
		closer.Close()
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return nil, err
	}
	if v, closer, err := c.db.Get(idKey(prefixIntent, r.ID)); err == nil {
		t.intent = &intent{}
		err = json.Unmarshal(v, t.intent)
		closer.Close()
		if err != nil {
			return nil, fmt.Errorf("flush intent of %s: %w", d, err)
		}
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return nil, err
	}
	if r.Unindexed {
		t.record.Unindexed = false
		if err := c.restoreIndex(ctx, t); err != nil {
			return nil, fmt.Errorf("table %s: %w", d, err)
		}
		return t, nil
	}
	stamp := c.folderTime(d)
	tl, err := timeline.Load(ctx, c.store, d.dir)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", d, err)
	}
	view, err := timeline.BuildView(ctx, c.store, d.dir, tl)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", d, err)
	}
	if err := checkBases(d, view); err != nil {
		return nil, fmt.Errorf("table %s: %w", d, err)
	}
	cold := &coldState{tl: tl, view: view, flushed: r.Flushed, trimmed: r.Trimmed, since: r.Since}
	if err := firstError(t.loadEffects(cold), t.loadDefinitions(), t.loadKept(ctx)); err != nil {
		return nil, fmt.Errorf("table %s: %w", d, err)
	}
	c.setCold(r.ID, cold)
	if at, err := timeline.ParseTime(tl.Newest(), d.zone); err == nil {
		c.clock.raise(index.Seq(at.UnixMicro()))
	}
	c.clock.raise(max(r.Flushed, r.Created, r.Dropped, r.Last))
	t.drawn = r.Flushed
	if t.intent != nil {
		c.clock.raise(t.intent.Cut)
		t.drawn = max(t.drawn, t.intent.Cut)
	}
	if err := t.evolved(ctx, tl); err != nil {
		return nil, fmt.Errorf("table %s: %w", d, err)
	}
	if t.intent == nil {
		if err := t.catchUp(ctx, r, tl); err != nil {
			return nil, fmt.Errorf("table %s: %w", d, err)
		}
	}
	if w := r.Waits; w != nil && w.Last > r.Flushed {
		c.commitMu.Lock()
		t.noteBuffered(w.Rows, w.Bytes, w.Oldest)
		c.commitMu.Unlock()
	}
	t.noteFolder(stamp)
	return t, nil
}

// catchUp brings the index up to instants that were completed while the warehouse was closed.
func (t *Table) catchUp(ctx context.Context, r *tableRecord, tl *timeline.Timeline) error {
	stale, err := t.stale(ctx, r, tl)
	if err != nil || !stale {
		return err
	}
	a, err := t.reindex(ctx, tl)
	if err != nil {
		return err
	}
	return t.swap(t.c.cold(t.id).with(tl, a.view), a, nil)
}

// stale tells whether the timeline holds instants that the table's record does not know, or lacks some that it knows.
func (t *Table) stale(ctx context.Context, r *tableRecord, tl *timeline.Timeline) (bool, error) {
	c := t.c
	known := map[storage.InstantTime]bool{}
	for _, it := range r.Known {
		known[it] = true
	}
	stale := false
	seen := map[storage.InstantTime]bool{}
	for _, in := range tl.Completed() {
		seen[in.Time] = true
		if in.Time <= r.Low || known[in.Time] {
			continue
		}
		stale = true
		m, err := timeline.ReadCommit(ctx, c.store, t.def.Load().dir, in)
		if err != nil {
			return false, err
		}
		if m.Extra[extraWarehouse] == c.id && !c.o.AcceptLostState {
			return false, fmt.Errorf("%w: instant %s was written by this warehouse, and its state does not know it", ErrLostState, in.Time)
		}
	}
	for _, it := range r.Known { // an instant that vanished without being archived was undone
		if !seen[it] && !tl.Counts(it) {
			stale = true
		}
	}
	cold := c.cold(t.id)
	return stale || len(undoneInstants(cold, cold.with(tl, cold.view))) > 0, nil
}

// waitsSince tells whether a commit of the table is counted among the rows that waited when it was dropped; called before the catalog is shared.
func (t *Table) waitsSince(seq index.Seq) bool {
	return t.record.Waits != nil && seq <= t.record.Waits.Last
}

// loadClock raises the clock above every time that an earlier run showed.
func (c *Catalog) loadClock() error {
	ceiling, err := c.meta(metaCeiling)
	if err != nil {
		return err
	}
	up, _ := binary.Uvarint([]byte(ceiling))
	c.clock.raise(index.Seq(up))
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: journalKey(0), UpperBound: []byte{prefixJournal + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	if it.Last() {
		c.clock.raise(index.Seq(binary.BigEndian.Uint64(it.Key()[1:])))
	}
	return it.Error()
}

// loadJournal finds out which commits are not flushed.
func (c *Catalog) loadJournal() error {
	floor, err := c.meta(metaFloor)
	if err != nil {
		return err
	}
	from, _ := binary.Uvarint([]byte(floor))
	c.clock.raise(index.Seq(from))
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: journalKey(index.Seq(from) + 1), UpperBound: []byte{prefixJournal + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	var last index.Seq
	young := map[*Table]bool{} // with commits that the number of rows in their records does not know
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		seq := index.Seq(binary.BigEndian.Uint64(it.Key()[1:]))
		last = max(last, seq)
		rec, err := decodeCommit(v)
		if err != nil {
			return err
		}
		var waiting []*Table
		for _, ct := range rec.tables {
			t := c.byID[ct.id]
			if t == nil {
				continue
			}
			t.lastSeq.Store(max(t.lastSeq.Load(), uint64(seq)))
			if seq > c.cold(t.id).flushed && ct.rows > 0 && !t.waitsSince(seq) {
				t.noteBuffered(int64(ct.rows), int64(ct.bytes), seqTime(seq))
				waiting = append(waiting, t)
			}
			if seq > t.record.Last && ct.rows > 0 {
				young[t] = true
			}
		}
		for _, t := range waiting {
			for _, o := range waiting {
				if o != t {
					t.buf.link(o.id)
				}
			}
		}
	}
	for t := range young {
		if err := t.countSince(last); err != nil {
			return err
		}
	}
	c.clock.raise(last)
	c.durable.Store(uint64(c.clock.read()))
	return it.Error()
}

// countSince brings the number of rows up to a sequence: the table's record has that of the last commit that it knows.
func (t *Table) countSince(last index.Seq) error {
	return eachRaw(t.c.db, t.id, t.record.Last, last, func(_ index.Seq, _ uint32, b []byte) error {
		if len(b) == 0 {
			return errJournal
		}
		switch {
		case b[0]&packetDelete != 0:
			t.rows.Add(-1)
		case b[0]&packetHad == 0 && b[0]&packetKnown != 0:
			t.rows.Add(1)
		}
		return nil
	})
}
