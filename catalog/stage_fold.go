package catalog

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// folded is what of a transaction's small writes goes into its large instant: not through the journal, but into new base files and logs
// of the file groups where the rows stand, and into new file groups. What cannot go there stays with the journal, over the files.
type folded struct {
	files   []*outFile
	locs    *sorter // of the index
	hints   *sorter // of the secondary indexes, those of the writes that stay with the journal among them
	dead    []foldedDead
	deletes bool  // a key goes without a trace
	rows    int64 // change of the number of rows, less what the stage's runs add
}

// foldedDead is a record that a log deletes and its base file still has.
type foldedDead struct {
	part, key string
	index.Dead
}

// close gives up the sorters.
func (f *folded) close() error {
	var first error
	for _, s := range []*sorter{f.locs, f.hints} {
		if s != nil {
			first = firstError(first, s.close())
		}
	}
	return first
}

// foldable tells whether the writes of a table are so many that they go into files with the commit.
func (tt *txTable) foldable() bool {
	return tt.spilled != nil || len(tt.last) >= tt.t.c.o.StageRows && !tt.t.doubled.Load()
}

// unbuffer flushes a table before its large instant, so that every row that it changes stands in a file. Not ok: the changes cannot go
// into files now, but are few enough for the journal.
func (sc *stagedCommit) unbuffer(ctx context.Context, st *stagedTable) (ok bool, err error) {
	c := sc.c
	if !st.t.isBuffered() {
		return true, nil
	}
	if err := c.flushLocked(ctx, flushOrder{reason: "a large statement changes rows that wait", part: true}, []*Table{st.t}); err != nil {
		if ctx.Err() != nil || st.spilled != nil {
			return false, err
		}
		c.log.Warn("flush before a large statement; it goes through the journal", "table", st.t.String(), "err", err)
		return false, nil
	}
	return true, nil
}

// folding takes the writes of a table into files, in bounded memory: they come in the order of their keys, are sorted by file group and
// place, and the groups are written one after the other.
type folding struct {
	sc      *stagedCommit
	st      *stagedTable
	f       *flush
	pending map[string]storage.InstantTime // see Table.planned
	locs    *index.LocationIter
	groups  map[uint32]*foldedGroup
	changes *sorter
	next    *sortReader
	run     *stagedRun // of rows that are new in their groups; nil: there are none yet
	restMax int64      // bytes that may still go through the journal
}

// foldedGroup is a file group that has changes.
type foldedGroup struct {
	*outFile      // nil: its changes go through the journal
	placed   bool // the slice is a base file alone, whose rows the index can name by their numbers
	changes  int64
	gone     int64 // of them, rows that leave the group
}

const (
	foldStays  = 1 // the row gets another state in its group
	foldDelete = 2 // its key goes
)

// fold takes the transaction's small writes of a table into files of its stage. Called with the slice lock held, nothing of the keys
// waiting in the hot tier, and with the stage's instant final.
func (sc *stagedCommit) fold(ctx context.Context, st *stagedTable) (err error) {
	c, t, s := sc.c, st.t, st.staged
	o := &folding{sc: sc, st: st, groups: map[uint32]*foldedGroup{}, restMax: c.o.TxBytesMax / 8}
	cold := c.cold(t.id)
	if o.pending, err = t.planned(ctx, cold); err != nil {
		return err
	}
	if o.locs, err = c.index.Locations(c.db, t.id, index.Bounds{}); err != nil {
		return err
	}
	defer o.locs.Close()
	o.f = &flush{t: t, d: st.def, cold: cold, at: s.at, instant: s.instant, dir: s.dir, meta: st.meta}
	o.changes = newSorter(c, c.fs.PathJoin(c.path(s.dir), ".changes"))
	defer func() { err = firstError(err, o.changes.close()) }()
	n := 0
	err = st.written().each(func(_ string, e *txEntry) (bool, error) {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return true, o.take(ctx, e)
	})
	if err != nil {
		return err
	}
	if o.run != nil {
		if err := o.run.finish(ctx); err != nil {
			return err
		}
	}
	for _, r := range s.runs {
		for i, f := range r.files {
			if f.dead.n > 0 {
				if err := r.compact(ctx, i); err != nil {
					return err
				}
			}
		}
	}
	if o.next, err = o.changes.read(); err != nil {
		return err
	}
	for o.next.ok && err == nil {
		err = o.group(ctx, binary.BigEndian.Uint32(bytesView(o.next.cur.key)))
	}
	return firstError(err, o.next.close())
}

// take decides where a write goes. The write is valid during the call.
func (o *folding) take(ctx context.Context, e *txEntry) error {
	st, d, c := o.st, o.st.def, o.sc.c
	p := e.decoded()
	if !e.had && p.del {
		return nil
	}
	if err := o.sc.tx.checkConflicts([]change{{st.txTable, e}}); err != nil {
		return err
	}
	if err := o.sc.noteHints(st, e); err != nil {
		return err
	}
	if e.mine {
		return o.takeStaged(ctx, e, &p)
	}
	if p.again && d.merge == storage.EventTime {
		return o.toJournal(e)
	}
	loc, found, err := o.locs.Seek(p.ikey)
	if err != nil {
		return err
	}
	if found != e.had {
		return o.toJournal(e) // the decision finds out what happened
	}
	isDead := false
	if !p.del && d.spec.MergeOnRead {
		if _, isDead, err = c.index.FindDead(c.db, st.t.id, p.part, p.key); err != nil {
			return err
		}
	}
	if !found {
		if isDead {
			return o.toJournal(e)
		}
		return o.insert(ctx, &p)
	}
	g := o.groups[loc.Group]
	if g == nil {
		if g, err = o.newGroup(loc.Group); err != nil {
			return err
		}
		o.groups[loc.Group] = g
	}
	if g.outFile == nil {
		return o.toJournal(e)
	}
	stays := !p.del && p.part == g.part && p.key == loc.Key
	if isDead && !stays {
		return o.toJournal(e)
	}
	key := binary.BigEndian.AppendUint32(make([]byte, 0, 64), loc.Group)
	if g.placed && loc.Row >= 0 && loc.Instant == g.slice.Base.Instant {
		key = binary.BigEndian.AppendUint64(append(key, 1), uint64(loc.Row))
	} else {
		key = append(key, 0)
	}
	var flags byte
	var packet []byte
	switch {
	case stays:
		flags, packet = foldStays, e.packet
	case p.del:
		flags = foldDelete
	}
	g.changes++
	if !stays {
		g.gone++
		st.folded.rows-- // of a row that moves, the run counts what comes
	}
	value := append(binary.AppendUvarint([]byte{flags}, uint64(len(loc.Key))), loc.Key...)
	if err := o.changes.add(append(key, p.ikey...), append(value, packet...), false); err != nil {
		return err
	}
	if p.del {
		st.folded.deletes = true
	}
	if stays || p.del {
		return nil
	}
	return o.insert(ctx, &p)
}

func (o *folding) newGroup(no uint32) (*foldedGroup, error) {
	path, id, err := o.sc.c.index.Group(o.st.t.id, no)
	if err != nil {
		return nil, err
	}
	if _, waits := o.pending[path+"\x00"+string(id)]; waits {
		return &foldedGroup{}, nil
	}
	fs, ok := o.f.cold.view.Slice(path, id, "", nil)
	if !ok || fs.Base == nil {
		return &foldedGroup{}, nil
	}
	return &foldedGroup{outFile: &outFile{part: path, id: id, slice: &fs, no: no}, placed: len(fs.Logs) == 0}, nil
}

// insert puts a row into a new file group.
func (o *folding) insert(ctx context.Context, p *packetRow) error {
	s, st := o.st.staged, o.st
	if o.run == nil {
		o.run = s.begin(int32(o.sc.tx.ops), false)
		o.run.folded = true
		o.run.hints = nil // those of entries are written apart
		o.sc.tx.mu.Lock()
		s.runs = append(s.runs, o.run)
		o.sc.tx.ops++
		o.sc.tx.mu.Unlock()
	}
	row, err := st.row(p)
	if err != nil {
		return err
	}
	return o.run.put(ctx, row, strings.Clone(p.key), strings.Clone(p.part), p.ikey)
}

// takeStaged takes a write of a row that the transaction staged: if there are many of them, the row leaves its file for good.
func (o *folding) takeStaged(ctx context.Context, e *txEntry, p *packetRow) error {
	if o.st.mine < o.sc.c.o.StageRows {
		return o.toJournal(e)
	}
	r, at, ok, err := o.st.stagedRow(p.ikey)
	if err != nil || !ok || at.file < 0 {
		return firstError(err, fmt.Errorf("table %s: the staged row of a change is missing", o.st.def))
	}
	r.files[at.file].dead.add(at.row)
	r.rows--
	if err := r.keys.remove(p.ikey); err != nil || p.del {
		return err
	}
	return o.insert(ctx, p)
}

// toJournal leaves a write to the journal.
func (o *folding) toJournal(e *txEntry) error {
	if o.restMax -= e.bytes(); o.restMax < 0 {
		o.sc.c.metrics.FullTotal.Add(1)
		return fmt.Errorf("%w: they cannot go into files while %s has a pending plan of a table service or rows of the same statement; change fewer rows in one transaction",
			ErrTooMany, o.st.def)
	}
	own := *e
	own.packet, own.was = bytes.Clone(e.packet), bytes.Clone(e.was)
	o.sc.changes = append(o.sc.changes, change{o.st.txTable, &own})
	return nil
}

// noteHints sorts what a write changes of the secondary indexes.
func (sc *stagedCommit) noteHints(st *stagedTable, e *txEntry) error {
	if len(st.def.indexes) == 0 {
		return nil
	}
	p := e.decoded()
	var key, value []byte
	return st.hintChanges(e, &p, func(x *tableIndex, values []byte, del bool) error {
		key, value = index.AppendHint(key[:0], value[:0], st.t.id, x.no, values, p.ikey)
		if del {
			value = nil
		}
		return st.folded.hints.add(key, value, del)
	})
}

// foldChange is a change of a row in a file group; it points into what it was read from.
type foldChange struct {
	flags  byte
	ikey   string
	oldKey string
	packet []byte
}

func (o *folding) change() (ch foldChange, placed bool, row int64, err error) {
	k := o.next.cur.key[4:]
	if k[0] == 1 {
		placed, row, ch.ikey = true, int64(binary.BigEndian.Uint64(bytesView(k[1:]))), k[9:]
	} else {
		ch.ikey = k[1:]
	}
	return ch, placed, row, ch.decode(o.next.cur.value)
}

func (ch *foldChange) decode(v string) error {
	if len(v) == 0 {
		return errSpilled
	}
	ch.flags = v[0]
	d := decoder{b: bytesView(v[1:])}
	ch.oldKey = textView(d.bytes())
	ch.packet = d.b
	if d.bad {
		return errSpilled
	}
	return nil
}

// at tells whether the next change is one of a group.
func (o *folding) at(no uint32) bool {
	return o.next.ok && binary.BigEndian.Uint32(bytesView(o.next.cur.key)) == no
}

const (
	// logShare is the part of a base file's rows from which a change of a merge-on-read table gets a new base file instead of a log.
	logShare = 4
	// foldLogRows is the number of changes from which it does in any case: a log is made in memory.
	foldLogRows = 64 << 10
)

// group writes the changes of one file group: a log on merge-on-read if they are few beside its rows, else a new base file.
func (o *folding) group(ctx context.Context, no uint32) error {
	c, d, s, st := o.sc.c, o.st.def, o.st.staged, o.st
	g := o.groups[no]
	g.base = !d.spec.MergeOnRead || len(g.slice.Logs) >= maxLogs || g.changes > foldLogRows || int64(len(st.folded.dead))+g.gone > 2*foldLogRows
	if !g.base {
		n, err := c.reader.BaseRows(ctx, d.object(g.part, g.slice.Base.Name))
		if err != nil {
			return err
		}
		g.base = logShare*g.changes > n
	}
	g.bucket = s.files
	s.files++
	g.name = newFileName(g.base, g.id, g.slice, g.bucket, s.instant)
	var err error
	if g.base {
		err = o.rewrite(ctx, g)
	} else {
		err = o.writeLog(ctx, g)
	}
	st.folded.files = append(st.folded.files, g.outFile)
	return err
}
