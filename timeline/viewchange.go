package timeline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// Change is what an instant does to the data files of a table.
type Change struct {
	At       storage.InstantTime
	Added    map[string]map[string]int64 // partition path, file name, size in bytes
	Removed  map[string][]string         // partition path, file names
	Replaced map[string][]storage.FileID // file groups that are hidden from At on, by partition path
	// Waiting are the file groups of a compaction that was requested at At, by partition path.
	Waiting map[string][]storage.FileID
}

// Change gives what a completed instant with this metadata did to the files.
func (m *CommitMeta) Change(at storage.InstantTime) Change {
	c := Change{At: at, Added: map[string]map[string]int64{}, Replaced: m.Replaced}
	for partition, stats := range m.Stats {
		files := c.Added[partition]
		if files == nil {
			files = map[string]int64{}
			c.Added[partition] = files
		}
		for i := range stats {
			if stats[i].Path != "" {
				files[stats[i].FileName()] = stats[i].FileSize
			}
			for path, size := range stats[i].CDC {
				files[lastPart(path)] = size
			}
		}
	}
	return c
}

// edit is what changes in one file group.
type edit struct {
	added    []storage.FileName
	removed  []string
	pending  storage.InstantTime
	replaced storage.InstantTime
}

// Apply gives the view after changes, with the timeline after them. Its cost is that of the groups that change and of the pointers
// in their partitions; all else is shared with v. Files that are no data files are left out.
func (v *View) Apply(tl *Timeline, changes ...Change) *View {
	edits := map[string]map[storage.FileID]*edit{}
	touch := func(partition string, id storage.FileID) *edit {
		p := edits[partition]
		if p == nil {
			p = map[storage.FileID]*edit{}
			edits[partition] = p
		}
		if p[id] == nil {
			p[id] = &edit{}
		}
		return p[id]
	}
	for _, c := range changes {
		for partition, files := range c.Added {
			for name, size := range files {
				if f, ok := storage.ParseFileName(name); ok {
					f.Size = size
					e := touch(partition, f.ID)
					e.added = append(e.added, f)
				}
			}
		}
		for partition, names := range c.Removed {
			for _, name := range names {
				if f, ok := storage.ParseFileName(name); ok {
					e := touch(partition, f.ID)
					e.removed = append(e.removed, name)
				}
			}
		}
		for partition, ids := range c.Replaced {
			for _, id := range ids {
				touch(partition, id).replaced = c.At
			}
		}
		for partition, ids := range c.Waiting {
			for _, id := range ids {
				touch(partition, id).pending = c.At
			}
		}
	}
	out := &View{tl: tl, parts: slices.Clone(v.parts)}
	if v.waiting > 0 {
		// What lies over a pending compaction stands or falls with the compaction, whose commit need not name every group.
		for _, p := range v.parts {
			for _, g := range p.groups {
				if len(g.pending) > 0 {
					touch(p.path, g.id)
				}
			}
		}
	}
	for path, byGroup := range edits {
		old := &partition{path: path}
		i, ok := out.partition(path)
		if ok {
			old = out.parts[i]
		}
		p := old.edit(byGroup, tl)
		switch {
		case ok:
			out.parts[i] = p
		case len(p.groups) > 0:
			out.parts = slices.Insert(out.parts, i, p)
		}
		for _, g := range p.groups {
			if len(g.pending) > 0 {
				out.waiting++
			}
		}
	}
	return out
}

func (p *partition) edit(edits map[storage.FileID]*edit, tl *Timeline) *partition {
	out := &partition{path: p.path, groups: make([]*group, 0, len(p.groups)+len(edits))}
	fresh := map[storage.FileID]*edit{}
	for id, e := range edits {
		fresh[id] = e
	}
	for _, g := range p.groups {
		if e, ok := edits[g.id]; ok {
			delete(fresh, g.id)
			if g = g.edit(p.path, e, tl); g == nil {
				continue
			}
		}
		out.groups = append(out.groups, g)
	}
	added := len(out.groups)
	for id, e := range fresh {
		if g := (&group{id: id}).edit(p.path, e, tl); g != nil {
			out.groups = append(out.groups, g)
		}
	}
	if len(out.groups) > added {
		slices.SortFunc(out.groups, func(a, b *group) int { return strings.Compare(string(a.id), string(b.id)) })
	}
	return out
}

// edit gives the group after an edit, nil if no file is left.
func (g *group) edit(path string, e *edit, tl *Timeline) *group {
	gone := map[string]bool{}
	for _, name := range e.removed {
		gone[name] = true
	}
	for _, f := range e.added {
		gone[f.Name] = true // a file that is known already gets its new size
	}
	files := make([]storage.FileName, 0, len(g.files)+len(e.added))
	for _, f := range g.files {
		if !gone[f.Name] {
			files = append(files, f)
		}
	}
	for _, f := range e.added {
		if !slices.Contains(e.removed, f.Name) {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil
	}
	var pending []storage.InstantTime
	for _, it := range g.pending {
		if tl.pending[it] {
			pending = append(pending, it)
		}
	}
	if e.pending != "" && tl.pending[e.pending] && !slices.Contains(pending, e.pending) {
		pending = append(pending, e.pending)
	}
	replaced := g.replaced
	if replaced == "" {
		replaced = e.replaced
	}
	slices.SortFunc(files, compareNames)
	files = slices.CompactFunc(files, func(a, b storage.FileName) bool { return a.Name == b.Name })
	return (&group{id: g.id, files: files, pending: pending, replaced: replaced, ended: g.ended}).build(path, tl)
}

// Advance gives the view at a later timeline: it reads what the instants between the two did, not the folders. Where a pending
// compaction vanished, or the metadata does not tell, it builds the view anew.
func (v *View) Advance(ctx context.Context, s storage.Store, dir string, tl *Timeline) (*View, error) {
	if v.tl.layout != tl.layout {
		return BuildView(ctx, s, dir, tl)
	}
	before := map[instantKey]Instant{}
	for _, in := range v.tl.Instants {
		before[instantKey{in.Time, in.Action.completed()}] = in
	}
	var changes []Change
	for _, in := range tl.Instants {
		key := instantKey{in.Time, in.Action.completed()}
		old, known := before[key]
		delete(before, key)
		if known && (old.State == in.State || in.State != Completed) {
			continue
		}
		c, ok, err := instantChange(ctx, s, dir, in)
		if err != nil {
			return nil, fmt.Errorf("advancing file view: %w", err)
		}
		if !ok {
			return BuildView(ctx, s, dir, tl)
		}
		changes = append(changes, c)
	}
	for _, in := range before {
		// Archival takes completed instants away; a pending compaction that is gone gave its groups free.
		if in.State != Completed && in.Action == Compaction {
			return BuildView(ctx, s, dir, tl)
		}
	}
	return v.Apply(tl, changes...), nil
}

// instantChange reads what a new or newly completed instant did to the files; false if its metadata does not tell.
func instantChange(ctx context.Context, s storage.Store, dir string, in Instant) (Change, bool, error) {
	c := Change{At: in.Time}
	switch {
	case in.Action == Compaction && in.State != Completed:
		plan, err := ReadCompactionPlan(ctx, s, dir, in)
		if err != nil {
			return c, false, err
		}
		c.Waiting = map[string][]storage.FileID{}
		for key := range plan.groups() {
			c.Waiting[key.partition] = append(c.Waiting[key.partition], key.id)
		}
	case in.State != Completed:
	case in.Action.writes():
		m, err := ReadCommit(ctx, s, dir, in)
		if err != nil {
			return c, false, err
		}
		c = m.Change(in.Time)
	case in.Action == Clean:
		name := in.object(dir, Completed)
		b, err := readObject(ctx, s, name)
		if err != nil || len(b) == 0 {
			return c, false, err
		}
		var m CleanMeta
		if err := cleanMetaFile.decode(name, b, &m); err != nil {
			return c, false, err
		}
		c.Removed = map[string][]string{}
		for _, p := range m.Partitions {
			for _, path := range p.Deleted {
				c.Removed[p.Partition] = append(c.Removed[p.Partition], lastPart(path))
			}
		}
	case in.Action == Rollback:
		name := in.object(dir, Completed)
		b, err := readObject(ctx, s, name)
		if err != nil || len(b) == 0 {
			return c, false, err
		}
		var m RollbackMeta
		if err := rollbackMetaFile.decode(name, b, &m); err != nil {
			return c, false, err
		}
		c.Removed, c.Added = map[string][]string{}, map[string]map[string]int64{}
		for _, p := range m.Partitions {
			for _, path := range p.Deleted {
				c.Removed[p.Partition] = append(c.Removed[p.Partition], lastPart(path))
			}
			if p.RollbackLogs == nil {
				continue
			}
			c.Added[p.Partition] = map[string]int64{}
			for path, size := range *p.RollbackLogs {
				c.Added[p.Partition][lastPart(path)] = size
			}
		}
	case in.Action == Restore:
		return c, false, nil
	}
	return c, true, nil
}
