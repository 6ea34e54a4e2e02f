package catalog

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// folded is what of a transaction's small writes goes into its large instant: not through the journal, but into new base files and logs
// of the file groups where the rows stand, and into new file groups. What cannot go there stays with the journal, over the files.
type folded struct {
	entries map[*txEntry]bool
	files   []*outFile
	locs    []op // of the index, by key
	dead    []foldedDead
	deletes bool  // a key goes without a trace
	rows    int64 // change of the number of rows, less what the stage's runs add
}

// foldedDead is a record that a log deletes and its base file still has.
type foldedDead struct {
	part, key string
	index.Dead
}

// foldable tells whether the writes of a table are so many that they go into files with the commit.
func (tt *txTable) foldable() bool { return len(tt.last) >= tt.t.c.o.StageRows }

// unbuffer flushes a table before its large instant, so that every row that it changes stands in a file.
func (sc *stagedCommit) unbuffer(ctx context.Context, st *stagedTable) (ok bool, err error) {
	c := sc.c
	if !slices.ContainsFunc(sc.changes, func(ch change) bool { return ch.tt == st.txTable }) {
		return false, nil
	}
	if !st.t.isBuffered() {
		return true, nil
	}
	if err := c.flushLocked(ctx, flushOrder{reason: "a large statement changes rows that wait", part: true}, []*Table{st.t}); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		c.log.Warn("flush before a large statement; it goes through the journal", "table", st.t.String(), "err", err)
		return false, nil
	}
	return true, nil
}

// fold writes the transaction's small writes of a table into files of its stage. Called with the slice lock held, nothing of the keys
// waiting in the hot tier, and with the stage's instant final.
func (sc *stagedCommit) fold(ctx context.Context, st *stagedTable) error {
	c, t, d, s := sc.c, st.t, st.def, st.staged
	cold := c.cold(t.id)
	pending, err := t.planned(ctx, cold)
	if err != nil {
		return err
	}
	locs, err := c.index.Locations(c.db, t.id, index.Bounds{})
	if err != nil {
		return err
	}
	defer locs.Close()
	var entries []*txEntry
	for i := range sc.changes {
		if sc.changes[i].tt == st.txTable {
			entries = append(entries, sc.changes[i].e)
		}
	}
	slices.SortFunc(entries, func(a, b *txEntry) int { return bytes.Compare(a.ikey(), b.ikey()) })
	f := &flush{t: t, d: d, cold: cold, at: s.at, instant: s.instant, dir: s.dir, meta: st.meta}
	st.folded = folded{entries: map[*txEntry]bool{}}
	groups := map[uint32]*outFile{}
	var order []uint32
	var inserts []*txEntry
	for n, e := range entries {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := e.decoded()
		if e.mine || p.again && d.merge == storage.EventTime {
			continue
		}
		loc, found, err := locs.Seek(p.ikey)
		if err != nil {
			return err
		}
		if found != e.had {
			continue // the decision finds out what happened
		}
		isDead := false
		if !p.del && d.spec.MergeOnRead {
			if _, isDead, err = c.index.FindDead(c.db, t.id, p.part, p.key); err != nil {
				return err
			}
		}
		if !found {
			if !p.del && !isDead {
				inserts = append(inserts, e)
			}
			continue
		}
		path, id, err := c.index.Group(t.id, loc.Group)
		if err != nil {
			return err
		}
		stays := !p.del && p.part == path && p.key == loc.Key
		if _, waits := pending[path+"\x00"+string(id)]; waits || isDead && !stays {
			continue
		}
		g := groups[loc.Group]
		if g == nil {
			fs, ok := cold.view.Slice(path, id, "", nil)
			if !ok || fs.Base == nil {
				continue
			}
			g = &outFile{part: path, id: id, slice: &fs, no: loc.Group, updates: map[string]*flushRow{}, deletes: map[string]*flushRow{}}
			groups[loc.Group], order = g, append(order, loc.Group)
		}
		row := &flushRow{ikey: textView(p.ikey), del: p.del, cold: true, group: loc.Group, oldKey: loc.Key, from: g, entry: e}
		st.folded.entries[e] = true
		if stays {
			g.updates[loc.Key] = row
			continue
		}
		g.deletes[loc.Key] = row
		if p.del {
			st.folded.rows--
			st.folded.deletes = true
			continue
		}
		st.folded.rows-- // the row that it leaves; the run counts the one that comes
		inserts = append(inserts, e)
	}
	for _, no := range order {
		if err := sc.foldGroup(ctx, st, f, groups[no]); err != nil {
			return err
		}
	}
	slices.SortFunc(st.folded.locs, func(a, b op) int { return bytes.Compare(bytesView(a.key), bytesView(b.key)) })
	if len(inserts) == 0 {
		return nil
	}
	run := s.begin(int32(sc.tx.ops), false)
	run.folded = true
	sc.tx.mu.Lock()
	s.runs = append(s.runs, run)
	sc.tx.ops++
	sc.tx.mu.Unlock()
	for _, e := range inserts {
		p := e.decoded()
		row, err := st.row(&p)
		if err != nil {
			return err
		}
		if err := run.put(ctx, row, p.key, p.part, p.ikey); err != nil {
			return err
		}
		st.folded.entries[e] = true
	}
	// The hints of entries are written apart.
	for i := range run.hints {
		if err := run.hints[i].close(); err != nil {
			return err
		}
		run.hints[i] = newKeyTable(c, run.hints[i].dir)
	}
	return run.finish(ctx)
}

// logShare is the part of a base file's rows from which a change of a merge-on-read table gets a new base file instead of a log.
const logShare = 4

// foldGroup writes the changes of one file group: a log on merge-on-read if they are few beside its rows, else a new base file.
func (sc *stagedCommit) foldGroup(ctx context.Context, st *stagedTable, f *flush, g *outFile) error {
	c, d, s := sc.c, st.def, st.staged
	g.base = !d.spec.MergeOnRead || len(g.slice.Logs) >= maxLogs
	if !g.base {
		n, err := c.reader.BaseRows(ctx, d.object(g.part, g.slice.Base.Name))
		if err != nil {
			return err
		}
		g.base = logShare*int64(len(g.updates)+len(g.deletes)) > n
	}
	g.bucket = s.files
	s.files++
	token := storage.NewToken(g.bucket)
	if g.base {
		g.name = storage.BaseFileName(g.id, token, s.instant)
	} else {
		version := 0
		for _, l := range g.slice.Logs {
			version = max(version, l.Version)
		}
		g.name = storage.LogFileName(g.id, g.slice.Begin, version+1, token)
	}
	var err error
	if g.base {
		err = f.writeBase(ctx, g)
	} else {
		err = f.writeLog(ctx, g)
	}
	if err != nil {
		return err
	}
	st.folded.files = append(st.folded.files, g)
	for _, r := range g.updates {
		if r.file == nil {
			return fmt.Errorf("the index names key %s in file group %s, which does not have it", r.oldKey, g.id)
		}
		row := int64(-1)
		if g.base {
			row = r.row
		}
		k, v := index.AppendStaged(nil, nil, st.t.id, bytesView(r.ikey), s.no, g.no, row, r.key)
		st.folded.locs = append(st.folded.locs, op{key: string(k), value: string(v)})
	}
	for _, r := range g.deletes {
		if r.del {
			st.folded.locs = append(st.folded.locs, op{key: string(index.LocationKey(st.t.id, bytesView(r.ikey))), del: true})
		}
		if !g.base {
			st.folded.dead = append(st.folded.dead, foldedDead{g.part, r.oldKey, index.Dead{Group: g.no, Instant: g.slice.Base.Instant}})
		}
	}
	return nil
}
