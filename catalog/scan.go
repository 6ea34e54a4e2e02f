package catalog

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// overlay says which rows of the files are outdated by buffered ones. The buffered rows themselves are read from the journal.
type overlay struct {
	cold *coldState
	def  *tableDef
	seq  index.Seq // commits up to here are in it

	// drop has the record keys (see tableDef.dropKey) of rows in the files that a buffered commit changed, with the first such commit:
	// snapshots that are older see the row. It stands in several maps, each not much smaller than the next, so that commits extend it cheaply.
	drop []map[string]index.Seq
	// contested are index keys of buffered rows of an event-time table that are older than what was adopted for their keys.
	contested []string
}

// dropped tells whether a row of the files is outdated at a sequence.
func (o *overlay) dropped(key string, at index.Seq) bool {
	for _, m := range o.drop {
		if first, ok := m[key]; ok && first <= at {
			return true
		}
	}
	return false
}

func (o *overlay) empty() bool { return len(o.drop) == 0 }

// put adds a layer.
func (o *overlay) put(m map[string]index.Seq) {
	if len(m) == 0 {
		return
	}
	o.drop = append(o.drop[:len(o.drop):len(o.drop)], m)
	for n := len(o.drop); n > 1 && 2*len(o.drop[n-1]) >= len(o.drop[n-2]); n = len(o.drop) {
		both := make(map[string]index.Seq, len(o.drop[n-1])+len(o.drop[n-2]))
		for _, m := range []map[string]index.Seq{o.drop[n-1], o.drop[n-2]} { // the older map is last: its commits are the first
			for k, seq := range m {
				both[k] = seq
			}
		}
		o.drop = append(o.drop[:n-2:n-2], both)
	}
}

func (d *tableDef) dropKey(part, key string) string {
	if d.spec.PerPartition {
		return part + "\x00" + key
	}
	return key
}

// overlay gives the overlay of a table at the snapshot, nil if nothing of it is buffered.
func (s *snapshot) overlay(tt *tableView) (*overlay, error) {
	if index.Seq(tt.t.lastSeq.Load()) <= tt.cold.flushed {
		return nil, nil
	}
	if o := tt.overlay.Load(); o != nil {
		return o, nil
	}
	last := index.Seq(tt.t.lastSeq.Load())
	o := tt.t.overlay.Load()
	switch {
	case o == nil || o.cold != tt.cold || o.def != tt.def:
		o = &overlay{cold: tt.cold, def: tt.def, seq: s.seq}
		if err := s.buildOverlay(tt, o); err != nil {
			return nil, err
		}
	case o.seq < s.seq && o.seq < last:
		old := o
		o = &overlay{cold: tt.cold, def: tt.def, seq: s.seq, drop: old.drop, contested: old.contested}
		if err := s.extendOverlay(tt, o, old.seq); err != nil {
			return nil, err
		}
	}
	for {
		old := tt.t.overlay.Load()
		if old != nil && old.cold == o.cold && old.def == o.def && old.seq >= o.seq || tt.t.c.cold(tt.t.id) != o.cold {
			break
		}
		if tt.t.overlay.CompareAndSwap(old, o) {
			break
		}
	}
	tt.overlay.Store(o)
	return o, nil
}

// buildOverlay walks over the recent changes.
func (s *snapshot) buildOverlay(tt *tableView, o *overlay) error {
	x := s.c.index
	rec, err := x.Recents(s.p, tt.t.id, index.Bounds{})
	if err != nil {
		return err
	}
	defer rec.Close()
	locs, err := x.Locations(s.p, tt.t.id, index.Bounds{})
	if err != nil {
		return err
	}
	defer locs.Close()
	drop := map[string]index.Seq{}
	var key []byte
	var newest, first index.Seq
	done := func() error {
		if newest == 0 {
			return nil
		}
		loc, ok, err := locs.Seek(key)
		if err != nil || !ok {
			return err
		}
		return s.outdated(tt, o, drop, string(key), loc, first, newest)
	}
	for ; rec.Valid(); rec.Next() {
		k, r, err := rec.Entry()
		if err != nil {
			return err
		}
		if r.Seq > s.seq {
			continue
		}
		if newest > 0 && string(k) == string(key) {
			first = r.Seq
			continue
		}
		if err := done(); err != nil {
			return err
		}
		key, newest, first = append(key[:0], k...), r.Seq, r.Seq
	}
	if err := firstError(rec.Error(), done()); err != nil {
		return err
	}
	o.put(drop)
	return nil
}

// extendOverlay takes in the commits after a sequence.
func (s *snapshot) extendOverlay(tt *tableView, o *overlay, after index.Seq) error {
	drop := map[string]index.Seq{}
	err := eachPacket(s.p, tt.t.id, after, s.seq, func(seq index.Seq, _ uint32, p packetRow) error {
		loc, ok, err := s.c.index.Locate(s.p, tt.t.id, p.ikey)
		if err != nil || !ok {
			return err
		}
		return s.outdated(tt, o, drop, string(p.ikey), loc, seq, seq)
	})
	o.put(drop)
	return err
}

func (s *snapshot) outdated(tt *tableView, o *overlay, drop map[string]index.Seq, ikey string, loc index.Location, first, newest index.Seq) error {
	part := ""
	if tt.def.spec.PerPartition {
		var err error
		if part, _, err = s.c.index.Group(tt.t.id, loc.Group); err != nil {
			return err
		}
	}
	k := tt.def.dropKey(part, loc.Key)
	if old, ok := drop[k]; !ok || first < old {
		drop[k] = first
	}
	if tt.t.doubled.Load() {
		list, err := s.c.index.SurplusOf(s.p, tt.t.id, []byte(ikey))
		if err != nil {
			return err
		}
		for _, x := range list {
			part := ""
			if tt.def.spec.PerPartition {
				if part, _, err = s.c.index.Group(tt.t.id, x.Group); err != nil {
					return err
				}
			}
			if k := tt.def.dropKey(part, x.Key); drop[k] == 0 || first < drop[k] {
				drop[k] = first
			}
		}
	}
	if loc.Seq > newest && tt.def.merge == storage.EventTime && tt.def.ordering >= 0 {
		o.contested = append(o.contested[:len(o.contested):len(o.contested)], ikey)
	}
	return nil
}

// pastRows are the journal's rows of a time that is over, laid over the files of that time.
type pastRows struct {
	runs []*hotRun
	keys map[string]bool // record keys that the files show outdated; nil if there are no files
	undo *undo           // of later commits that slices hold; nil if they hold none
}

// scanState is a resolved scan of a table.
type scanState struct {
	s      *snapshot
	tt     *tableView
	want   *storage.Schema
	slices []storage.FileSlice
	counts func(storage.InstantTime) bool
	past   []pastSlice // instead of slices and counts, if the time is known to the commit
	hot    *overlay    // a scan of the present
	old    *pastRows   // a scan of the past: the index, which knows the present, does not speak for it
	own    ownRows
	staged []*stagedRun
	ro     bool
	within func(storage.InstantTime) bool // an incremental read: see storage.Scan.Within
	// foreign are the instants of other engines that a scan of the past sees and no earlier instant of ours merged, with the sequence
	// from which on they are seen, 0 if that is not known.
	foreign map[storage.InstantTime]index.Seq
}

// files gives the slices with what counts in them.
func (st *scanState) files() []pastSlice {
	if st.slices == nil {
		return st.past
	}
	out := make([]pastSlice, len(st.slices))
	for i, fs := range st.slices {
		out[i] = pastSlice{fs: fs, counts: st.counts}
	}
	return out
}

// run reads the files, leaving out what newer rows replace, then the newer rows.
func (st *scanState) run(ctx context.Context) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		d := st.tt.def
		own, err := st.ownDrops()
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		late, err := st.late(ctx)
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		outdated := func(string) bool { return false }
		switch {
		case st.old != nil:
			outdated = func(k string) bool { return st.old.keys[k] && !late[k] }
		case st.hot != nil && !st.hot.empty():
			outdated = func(k string) bool { return st.hot.dropped(k, st.s.seq) && !late[k] }
		}
		shown := map[string]bool{} // rows of st.old.undo.unsure
		for _, ps := range st.files() {
			fs := ps.fs
			sc := d.scan(st.want, ps.counts)
			sc.ReadOptimized, sc.Within = st.ro, st.within
			if st.old != nil || st.hot != nil && !st.hot.empty() || !own.empty() {
				part := fs.Partition
				sc.Drop = func(key string) bool {
					k := d.dropKey(part, key)
					if outdated(k) || own.has(k) {
						return true
					}
					if st.old != nil && st.old.undo != nil {
						return st.old.undo.drops(k, ps.at, shown)
					}
					return false
				}
			}
			for b, err := range st.s.c.reader.ReadSlice(ctx, d.dir, fs, sc) {
				if err := firstError(err, own.err); err != nil {
					yield(storage.Batch{}, err)
					return
				}
				if b.Rows > 0 && !yield(b, nil) {
					return
				}
			}
		}
		for _, fs := range stagedSlices(st.staged) {
			s := st.staged[0].s
			sc := d.scan(st.want, s.counts)
			if !own.empty() {
				part := fs.Partition
				sc.Drop = func(key string) bool { return own.has(d.dropKey(part, key)) }
			}
			for b, err := range st.s.c.reader.ReadSlice(ctx, s.dir, fs, sc) {
				if err := firstError(err, own.err); err != nil {
					yield(storage.Batch{}, err)
					return
				}
				if b.Rows > 0 && !yield(b, nil) {
					return
				}
			}
		}
		if st.ro {
			return
		}
		out := rowSink{def: d, want: st.want, b: storage.NewBuilder(st.want), yield: yield}
		ok := true
		switch {
		case st.old != nil:
			ok = st.runRows(st.old.all(shown), &out, late)
		case st.hot != nil:
			ok = st.hotRows(&out, late)
		}
		if !ok {
			return
		}
		err = firstError(own.err, st.own.each(func(_ string, e *txEntry) (bool, error) {
			ok = e.del() || out.addPacket(e.decoded())
			return ok, nil
		}))
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		if ok {
			out.flush()
		}
	}
}

// ownDrops says which rows of the files and of the hot tier the transaction's own writes replace.
type ownDrops struct {
	keys    map[string]bool // record keys, see dropKey
	spilled *txSpill
	mark    int32
	err     error // first failure of has
}

func (o *ownDrops) empty() bool { return len(o.keys) == 0 && o.spilled == nil }

func (o *ownDrops) has(key string) bool {
	if o.keys[key] || o.spilled == nil || o.err != nil {
		return o.keys[key]
	}
	var ok bool
	ok, o.err = o.spilled.dropped(key, o.mark)
	return ok
}

func (st *scanState) ownDrops() (*ownDrops, error) {
	own := &st.own
	out := &ownDrops{keys: map[string]bool{}, spilled: own.spilled, mark: own.mark}
	d := st.tt.def
	for _, n := range own.last {
		e := &own.entries[n]
		if e.had {
			p := e.decoded()
			out.keys[d.dropKey(p.part, e.oldKey(&p))] = true
		}
		if e.at > st.s.seq { // what the key has at the snapshot is not what was replaced
			if err := st.dropAt(e, out.keys); err != nil {
				return nil, err
			}
		}
	}
	if own.spilled == nil || own.spilled.maxAt <= st.s.seq {
		return out, nil
	}
	return out, own.spilled.each(index.Bounds{}, own.mark, func(_ string, e *txEntry) (bool, error) {
		if e.at > st.s.seq {
			return true, st.dropAt(e, out.keys)
		}
		return true, nil
	})
}

// dropAt adds the record key that the key of a write has in the files, if it is not the one of the row that the write replaces.
func (st *scanState) dropAt(e *txEntry, own map[string]bool) error {
	x, d := st.s.c.index, st.tt.def
	loc, ok, err := x.Locate(st.s.p, st.tt.t.id, e.ikey())
	if err != nil || !ok {
		return err
	}
	part, _, err := x.Group(st.tt.t.id, loc.Group)
	if err != nil {
		return err
	}
	k := d.dropKey(part, loc.Key)
	if p := e.decoded(); !e.had || k != d.dropKey(p.part, e.oldKey(&p)) {
		own[strings.Clone(k)] = true
	}
	return nil
}

// runRows gives the rows of runs that are left of the time of the scan.
func (st *scanState) runRows(runs []*hotRun, out *rowSink, late map[string]bool) bool {
	return eachRow(runs, func(r *hotRow) bool {
		if r.del() {
			return true
		}
		if mine, err := st.own.get(r.ikey); err != nil {
			out.yield(storage.Batch{}, err)
			return false
		} else if mine != nil {
			return true
		}
		p := r.decoded()
		if len(late) > 0 && late[st.tt.def.dropKey(p.part, p.key)] {
			return true
		}
		return out.addRun(p)
	})
}

// hotRows gives the buffered rows in the order of their keys.
func (st *scanState) hotRows(out *rowSink, late map[string]bool) bool {
	fail := func(err error) bool {
		out.yield(storage.Batch{}, err)
		return false
	}
	runs, ok, err := st.s.hotRuns(st.tt, st.tt.cold.flushed, st.s.seq, tableRunBytes)
	if err != nil {
		return fail(err)
	}
	if ok {
		return st.runRows(runs, out, late)
	}
	rec, err := st.s.c.index.Recents(st.s.p, st.tt.t.id, index.Bounds{})
	if err != nil {
		return fail(err)
	}
	defer rec.Close()
	packets, err := newPacketReader(st.s.p, st.tt.t.id)
	if err != nil {
		return fail(err)
	}
	defer packets.close()
	var key []byte
	seen := false
	for ; rec.Valid(); rec.Next() {
		k, r, err := rec.Entry()
		if err != nil {
			return fail(err)
		}
		if r.Seq > st.s.seq || seen && string(k) == string(key) {
			continue
		}
		key, seen = append(key[:0], k...), true
		if r.Delete {
			continue
		}
		if mine, err := st.own.get(string(k)); err != nil {
			return fail(err)
		} else if mine != nil {
			continue
		}
		p, err := packets.read(r.Seq, r.Ord)
		if err != nil {
			return fail(err)
		}
		if len(late) > 0 && late[st.tt.def.dropKey(p.part, p.key)] {
			continue
		}
		if !out.addPacket(p) {
			return false
		}
	}
	if err := rec.Error(); err != nil {
		return fail(err)
	}
	return true
}

// packetReader reads packet rows of a table, fast when they are asked for in the order in which they were written.
type packetReader struct {
	r     pebble.Reader
	it    *pebble.Iterator // nil after an error
	t     index.TableID
	reads int
}

func newPacketReader(r pebble.Reader, t index.TableID) (*packetReader, error) {
	p := &packetReader{r: r, t: t}
	return p, p.open()
}

func (r *packetReader) open() (err error) {
	r.close()
	r.it, err = r.r.NewIter(&pebble.IterOptions{LowerBound: packetKey(r.t, 0, 0), UpperBound: packetKey(r.t+1, 0, 0)})
	return err
}

// readsPerIter bounds the life of an iterator: it keeps the memory tables of its start, and the batches of large commits, from being freed.
const readsPerIter = 8192

// read gives a packet row; its bytes are valid until the next call.
func (r *packetReader) read(seq index.Seq, ord uint32) (packetRow, error) {
	if r.reads++; r.reads%readsPerIter == 0 || r.it == nil {
		if err := r.open(); err != nil {
			return packetRow{}, err
		}
	}
	k := packetKey(r.t, seq, ord)
	found := r.it.Valid() && r.it.Next() && string(r.it.Key()) == string(k)
	if !found {
		found = r.it.SeekGE(k) && string(r.it.Key()) == string(k)
	}
	if !found {
		return packetRow{}, firstError(r.it.Error(), fmt.Errorf("journal row %d/%d of table %d is missing", seq, ord, r.t))
	}
	v, err := r.it.ValueAndErr()
	if err != nil {
		return packetRow{}, err
	}
	return decodePacket(v)
}

func (r *packetReader) close() {
	if r.it != nil {
		_ = r.it.Close() // its errors were answered by read
		r.it = nil
	}
}

// late finds, in an event-time table, the buffered rows that lie before a row which was adopted after them.
func (st *scanState) late(ctx context.Context) (map[string]bool, error) {
	if d := st.tt.def; st.ro || d.merge != storage.EventTime || d.ordering < 0 {
		return nil, nil
	}
	switch {
	case st.old != nil:
		return st.latePast(ctx)
	case st.hot != nil && len(st.hot.contested) > 0:
		return st.lateNow(ctx)
	}
	return nil, nil
}

func (st *scanState) lateNow(ctx context.Context) (map[string]bool, error) {
	late := map[string]bool{}
	d, x := st.tt.def, st.s.c.index
	for _, ikey := range st.hot.contested {
		rec, ok, err := x.LastRecent(st.s.p, st.tt.t.id, []byte(ikey), st.s.seq)
		if err != nil {
			return nil, err
		}
		if !ok || rec.Delete {
			continue
		}
		loc, ok, err := x.Locate(st.s.p, st.tt.t.id, []byte(ikey))
		if err != nil {
			return nil, err
		}
		if !ok || loc.Seq <= rec.Seq {
			continue
		}
		p, err := readPacket(st.s.p, st.tt.t.id, rec.Seq, rec.Ord)
		if err != nil {
			return nil, err
		}
		row, err := d.decodeRow(p.schema, p.row)
		if err != nil {
			return nil, err
		}
		crow, ckey, cpart, ok, err := st.s.coldRow(ctx, st.tt, loc)
		if err != nil {
			return nil, err
		}
		if ok && compareOrdering(crow[d.ordering], row[d.ordering]) > 0 {
			late[d.dropKey(p.part, p.key)] = true
			late[d.dropKey(cpart, ckey)] = true
		}
	}
	return late, nil
}

// latePast is lateNow for a scan of the past. A row that an instant of ours holds lies before every buffered one, so only those of
// other engines may win.
func (st *scanState) latePast(ctx context.Context) (map[string]bool, error) {
	late := map[string]bool{}
	if len(st.foreign) == 0 {
		return late, nil
	}
	d := st.tt.def
	newest := map[string]*hotRow{}
	eachRow(st.old.all(nil), func(r *hotRow) bool {
		if p := r.decoded(); !p.del {
			newest[d.dropKey(p.part, p.key)] = r
		}
		return true
	})
	want, err := d.spec.Schema.Select(storage.ColRecordKey, storage.ColCommitTime, d.spec.OrderingField)
	if err != nil {
		return nil, err
	}
	for _, ps := range st.files() {
		fs := ps.fs
		for b, err := range st.s.c.reader.ReadSlice(ctx, d.dir, fs, d.scan(want, ps.counts)) {
			if err != nil {
				return nil, err
			}
			for i := range b.Rows {
				key, _ := b.Value(0, i).(string)
				k := d.dropKey(fs.Partition, key)
				r, ok := newest[k]
				if !ok {
					continue
				}
				it, _ := b.Value(1, i).(string)
				known, ok := st.foreign[storage.InstantTime(it)]
				if !ok || known > 0 && known <= r.seq {
					continue
				}
				h := r.decoded()
				if h.again && known == 0 {
					continue
				}
				row, err := d.decodeRow(h.schema, h.row)
				if err != nil {
					return nil, err
				}
				if compareOrdering(b.Value(2, i), row[d.ordering]) > 0 {
					late[k] = true
				}
			}
		}
	}
	return late, nil
}
