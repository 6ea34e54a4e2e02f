package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

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
	adopted bool  // that row was adopted after this one
	lost    bool  // and wins over it in event time: it stays as it is
	group   uint32
	oldKey  string          // record key text of that row
	surplus []index.Surplus // further rows of the key, which go
	key     string          // record key text of the new row, known when it is written

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
			row.cold, row.group, row.oldKey, row.adopted = true, loc.Group, loc.Key, loc.Seq > r.Seq
		}
		f.rows = append(f.rows, row)
	}
	if err := recents.Error(); err != nil {
		return nil, err
	}
	if len(f.rows) == 0 {
		return nil, nil
	}
	f.packets = packets
	doubled := t.doubled.Load()
	if err := f.findLost(ctx); err != nil {
		return nil, err
	}
	for _, row := range f.rows {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if row.lost {
			continue
		}
		var p packetRow
		if !row.del {
			if p, err = packets.read(row.seq, row.ord); err != nil {
				return nil, err
			}
			row.again = row.again || p.again
		}
		if row.cold && doubled {
			if row.surplus, err = t.c.index.SurplusOf(t.c.db, t.id, []byte(row.ikey)); err != nil {
				return nil, err
			}
			for _, s := range row.surplus {
				path, id, err := t.c.index.Group(t.id, s.Group)
				if err != nil {
					return nil, err
				}
				fs, ok := f.cold.view.Slice(path, id, "", nil)
				if !ok {
					return nil, fmt.Errorf("file group %s in partition %q, where the index has a further row of key %s, has no files", id, path, s.Key)
				}
				g := part(path).group(id, &fs)
				if err := waitsFor(g, pending); err != nil {
					return nil, err
				}
				g.base = true // a log would speak for one of its rows only
				if s.Group != row.group || s.Key != row.oldKey {
					g.deletes[s.Key] = row
				}
			}
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

// findLost finds, in an event-time table, the rows that lie before one which was adopted after them.
func (f *flush) findLost(ctx context.Context) error {
	d, c := f.d, f.t.c
	if d.merge != storage.EventTime || d.ordering < 0 {
		return nil
	}
	groups := map[uint32][]*flushRow{}
	for _, r := range f.rows {
		if r.adopted && !r.del {
			groups[r.group] = append(groups[r.group], r)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	want, err := d.spec.Schema.Select(storage.ColRecordKey, d.spec.OrderingField)
	if err != nil {
		return err
	}
	for _, no := range slices.Sorted(maps.Keys(groups)) {
		path, id, err := c.index.Group(f.t.id, no)
		if err != nil {
			return err
		}
		fs, ok := f.cold.view.Slice(path, id, "", nil)
		if !ok {
			return fmt.Errorf("file group %s in partition %q, where the index has adopted rows, has no files", id, path)
		}
		rows := map[string]*flushRow{}
		for _, r := range groups[no] {
			rows[r.oldKey] = r
		}
		b, err := c.reader.LookupMany(ctx, d.dir, fs, d.scan(want, f.cold.counts), sortedKeys(rows), nil)
		if err != nil {
			return err
		}
		for i := range b.Rows {
			key, _ := b.Value(0, i).(string)
			r := rows[key]
			if r == nil {
				continue
			}
			_, row, err := f.load(r)
			if err != nil {
				return err
			}
			if r.lost = compareOrdering(b.Value(1, i), row[d.ordering]) > 0; r.lost {
				c.metrics.LateRowsTotal.Add(1)
			}
		}
	}
	return nil
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
		if in.Action == timeline.ReplaceCommit || in.Action == timeline.Clustering {
			r, err := timeline.ReadRequestedReplace(ctx, t.c.store, t.def.Load().dir, in)
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
		plan, err := timeline.ReadCompactionPlan(ctx, t.c.store, t.def.Load().dir, in)
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
	o.name = newFileName(o.base, o.id, o.slice, o.bucket, f.instant)
	f.files = append(f.files, o)
}

// newFileName gives the name of a group's file of an instant: its base file, or the log file behind those of its slice, which a base file does not need.
func newFileName(base bool, id storage.FileID, slice *storage.FileSlice, bucket int, instant storage.InstantTime) string {
	token := storage.NewToken(bucket)
	if base {
		return storage.BaseFileName(id, token, instant)
	}
	version := 0
	for _, l := range slice.Logs {
		version = max(version, l.Version)
	}
	return storage.LogFileName(id, slice.Begin, version+1, token)
}
