package catalog

import (
	"fmt"
	"slices"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// pastSlice is a slice that a reader of the past reads: that of its time, or a later one from which it undoes the commits in between.
type pastSlice struct {
	fs     storage.FileSlice
	at     index.Seq // the slice shows the commits that the instants hold which readers at this sequence see
	counts func(storage.InstantTime) bool
}

// past is how the state of a table at a sequence is computed: its slices, the commits in (base, seq] that lie over them, and those in
// (seq, upTo] that have to be undone in later slices.
type past struct {
	slices []pastSlice
	groups map[groupKey]index.Seq // of slices that are later than seq
	base   index.Seq
	upTo   index.Seq
}

// pastAt finds the slices for a sequence. *TooEarlyError: for some group there is none.
func (t *Table) pastAt(d *tableDef, cold *coldState, seq index.Seq) (*past, error) {
	view := t.pastView(cold)
	p := &past{base: max(cold.cutAt(seq), cold.trimmed), upTo: seq, groups: map[groupKey]index.Seq{}}
	missing := cold.unreadable(seq) // the time from which on all is known again
	for _, k := range groupsOf(view, &t.hist, seq) {
		s, ok, next := t.pastSlice(d, cold, view, k, seq)
		switch {
		case next > 0:
			missing = max(missing, next)
		case ok:
			p.slices = append(p.slices, s)
			if s.at > seq {
				p.upTo = max(p.upTo, s.at)
				p.groups[k] = s.at
			}
		}
	}
	if missing > 0 {
		return nil, &TooEarlyError{Table: d.String(), At: seqTime(seq), Earliest: seqTime(missing)}
	}
	return p, nil
}

// groupsOf lists the file groups that may have had a slice at a sequence.
func groupsOf(view *timeline.View, h *history, seq index.Seq) []groupKey {
	seen := map[groupKey]bool{}
	for part, f := range view.Files() {
		seen[groupKey{part, f.ID}] = true
	}
	for _, k := range h.after(seq) {
		seen[k] = true
	}
	out := make([]groupKey, 0, len(seen))
	for k := range seen {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b groupKey) int { return firstOrder(a.partition, b.partition, string(a.id), string(b.id)) })
	return out
}

// pastSlice finds the slice of a group for a sequence: that of the time if it is still there, else the first one after it from which
// commits alone lead back. Not ok: the group had none. missing is when the group can be read again, if it cannot.
func (t *Table) pastSlice(d *tableDef, cold *coldState, view *timeline.View, k groupKey, seq index.Seq) (s pastSlice, ok bool, missing index.Seq) {
	list := t.hist.changes(k)
	try := func(at index.Seq) (found, none bool) {
		if undoneAt(list, at) {
			return false, false
		}
		begin, known := beginAt(list, at)
		if !known {
			fs, visible := cold.view.Slice(k.partition, k.id, "", nil)
			if !visible {
				return false, true
			}
			begin = fs.Begin
		}
		if begin == "" {
			return false, true
		}
		counts := cold.countsAt(at)
		fs, visible := view.Slice(k.partition, k.id, "", counts)
		if !visible || fs.Begin != begin || !t.c.stands(d, cold, &fs) {
			return false, false
		}
		s = pastSlice{fs, at, counts}
		return true, false
	}
	found, none := try(seq)
	if found || none {
		return s, found, 0
	}
	end := d.until
	for _, ch := range list {
		if ch.seq <= seq {
			continue
		}
		if ch.barrier || end > 0 && ch.seq >= end {
			return s, false, ch.seq
		}
		if found, none := try(ch.seq); found {
			return s, true, 0
		} else if none {
			break
		}
	}
	return s, false, index.Seq(t.lastSeq.Load()) + 1
}

// stands tells whether the files of a slice can be read. Those of the newest slices are not looked for.
func (c *Catalog) stands(d *tableDef, cold *coldState, fs *storage.FileSlice) bool {
	if now, ok := cold.view.Slice(fs.Partition, fs.ID, "", nil); ok && now.Begin == fs.Begin {
		return true
	}
	files := fs.Logs
	if fs.Base != nil {
		files = append(files[:len(files):len(files)], *fs.Base)
	}
	for _, f := range files {
		name := d.object(fs.Partition, f.Name)
		if _, err := c.fs.Stat(c.path(name)); err == nil {
			continue
		}
		kept, ok := c.kept.find(name)
		if !ok {
			return false
		}
		if _, err := c.fs.Stat(c.path(kept)); err != nil {
			return false
		}
	}
	return true
}

// undo makes the rows that commits in (p.seq, p.upTo] replaced: a run of packet rows as they were before, to be laid over those of the runs before.
type undo struct {
	run     *hotRun
	dropped map[string]index.Seq // record keys as dropKey makes them → the first commit after the time; later slices do not show them
	unsure  map[string]string    // record key → index key of rows whose file group then is not known: they count if no slice shows them
}

// undone reads the commits after a sequence.
func (s *snapshot) undone(tt *tableView, p *past, seq index.Seq) (*undo, error) {
	u := &undo{run: &hotRun{to: p.upTo}, dropped: map[string]index.Seq{}, unsure: map[string]string{}}
	d := tt.def
	seen := map[string]bool{}
	var mem arena
	drop := func(key string, at index.Seq) {
		if _, ok := u.dropped[key]; !ok {
			u.dropped[key] = at
		}
	}
	err := eachPacket(s.p, tt.t.id, seq, p.upTo, func(at index.Seq, ord uint32, r packetRow) error {
		drop(d.dropKey(r.part, r.key), at)
		if r.coldKey != "" {
			drop(d.dropKey(r.part, r.coldKey), at)
		}
		if seen[string(r.ikey)] {
			return nil
		}
		seen[string(r.ikey)] = true
		switch {
		case !r.known:
			return fmt.Errorf("%w: commit %d of %s is of a release that kept no rows before", errNoWayBack, at, d)
		case !r.had || r.before == nil:
			return nil
		}
		row, err := d.decodeRow(r.schema, r.before)
		if err != nil {
			return err
		}
		back := packetRow{schema: len(d.schemas) - 1, again: true, ikey: r.ikey, key: r.key, part: r.part}
		if back.schema != r.schema {
			if r.before, err = storage.EncodeRow(d.spec.Schema, row, nil); err != nil {
				return err
			}
		}
		if r.coldKey != "" {
			back.key = r.coldKey
		}
		if !d.spec.PerPartition {
			back.part = d.partitionPath(row)
		}
		if r.group != noGroup {
			part, id, err := s.c.index.Group(tt.t.id, r.group)
			if err != nil {
				return err
			}
			if p.groups[groupKey{part, id}] < at {
				return nil // the group's slice shows the row, or did not have it
			}
			back.part = part
		} else {
			u.unsure[d.dropKey(back.part, back.key)] = string(r.ikey)
		}
		raw := mem.keep(append(back.append(nil), r.before...))
		u.run.rows = append(u.run.rows, hotRow{ikey: textView(packetKeyOf(raw)), packet: raw, seq: at})
		return nil
	})
	if err != nil {
		return nil, err
	}
	u.run.settle(d)
	return u, nil
}

var errNoWayBack = fmt.Errorf("%w: the journal does not tell what was before", ErrInvalid)

// pastScan is a scan of a table at a sequence.
func (s *snapshot) pastScan(pt *pastTable, want *storage.Schema, ro bool) (*scanState, error) {
	p, seq := pt.past, pt.seq
	st := &scanState{s: s, tt: pt.tableView, want: want, past: p.slices, ro: ro, foreign: pt.cold.foreignAt(seq)}
	if ro || seq <= p.base && p.upTo == seq {
		return st, nil
	}
	runs, _, err := s.hotRuns(pt.tableView, p.base, seq, 0)
	if err != nil {
		return nil, err
	}
	var u *undo
	if p.upTo > seq {
		if u, err = s.undone(pt.tableView, p, seq); err != nil {
			return nil, err
		}
	}
	if len(runs) > 0 || u != nil {
		st.old = &pastRows{runs: runs, undo: u}
		if len(p.slices) > 0 {
			st.old.keys = runKeys(pt.def, runs)
		}
	}
	return st, nil
}

// drops tells whether a slice that is as of a sequence shows a row otherwise than it was; shown notes rows that it shows as they were.
func (u *undo) drops(key string, at index.Seq, shown map[string]bool) bool {
	if first, ok := u.dropped[key]; ok && first <= at {
		return true
	}
	if ikey, ok := u.unsure[key]; ok {
		shown[ikey] = true
	}
	return false
}

// all gives the runs with the one that undoes; rows that slices have shown are left out.
func (o *pastRows) all(shown map[string]bool) []*hotRun {
	if o.undo == nil {
		return o.runs
	}
	run := o.undo.run
	if len(shown) > 0 {
		run = &hotRun{to: run.to, rows: slices.DeleteFunc(slices.Clone(run.rows), func(r hotRow) bool { return shown[r.ikey] })}
	}
	return append(o.runs[:len(o.runs):len(o.runs)], run)
}
