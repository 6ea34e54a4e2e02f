package timeline

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/lakesql/lakesql/storage"
)

// View groups the data files of a table into file groups and slices, as its timeline has them. It never changes.
type View struct {
	tl      *Timeline
	parts   []*partition // by path
	waiting int          // file groups in pending compactions
	once    sync.Once
	newest  []storage.FileSlice // made once
}

// partition holds the file groups of one partition path. It never changes.
type partition struct {
	path   string
	groups []*group // by id
}

// group is a file group. It never changes.
type group struct {
	id       storage.FileID
	files    []storage.FileName    // every data file, by name
	slices   []fileSlice           // newest first
	pending  []storage.InstantTime // compactions that were requested for it and not completed when the view was built
	replaced storage.InstantTime   // replacecommit that hides it, "" if there is none
	newest   storage.FileSlice     // the slice that counts now
	visible  bool                  // whether there is one
}

// fileSlice is what the names of files say of a slice, whether it counts or not.
type fileSlice struct {
	begin storage.InstantTime
	base  *storage.FileName
	logs  []storage.FileName
}

type groupKey struct {
	partition string
	id        storage.FileID
}

// BuildView lists the partitions and data files of the table in folder dir. Partitions are the folders with partition
// metadata, and what lies below them is not looked at; a table without any is one partition if files lie in its own folder.
func BuildView(ctx context.Context, s storage.Store, dir string, tl *Timeline) (*View, error) {
	v := &View{tl: tl}
	pending, replaced, err := groupStates(ctx, s, dir, tl)
	if err != nil {
		return nil, fmt.Errorf("building file view: %w", err)
	}
	add := func(path string, files []storage.FileName) {
		p := &partition{path: path}
		byGroup := map[storage.FileID][]storage.FileName{}
		for _, f := range files {
			byGroup[f.ID] = append(byGroup[f.ID], f)
		}
		for id, list := range byGroup {
			key := groupKey{path, id}
			p.groups = append(p.groups, newGroup(path, id, list, pending[key], replaced[key], tl.Counts))
			if len(pending[key]) > 0 {
				v.waiting++
			}
		}
		slices.SortFunc(p.groups, func(a, b *group) int { return strings.Compare(string(a.id), string(b.id)) })
		v.parts = append(v.parts, p)
	}
	var walk func(path string) error
	walk = func(path string) error {
		known := false
		var folders []string
		var files []storage.FileName
		for info, err := range s.List(ctx, join(dir, path)) {
			switch {
			case err != nil:
				return err
			case info.Dir:
				if !strings.HasPrefix(info.Name, ".") {
					folders = append(folders, info.Name)
				}
			case strings.HasPrefix(info.Name, partitionFile):
				known = true
			default:
				if f, ok := storage.ParseFileName(info.Name); ok {
					f.Size = info.Size
					files = append(files, f)
				}
			}
		}
		if known {
			add(path, files)
			return nil
		}
		for _, folder := range folders {
			if err := walk(join(path, folder)); err != nil {
				return err
			}
		}
		if path == "" && len(v.parts) == 0 && len(files) > 0 {
			add(path, files)
		}
		return nil
	}
	if err := walk(""); err != nil {
		return nil, fmt.Errorf("building file view: %w", err)
	}
	slices.SortFunc(v.parts, func(a, b *partition) int { return strings.Compare(a.path, b.path) })
	return v, nil
}

// groupStates reads which file groups pending compactions wait for, and which ones completed replacecommits hide.
func groupStates(ctx context.Context, s storage.Store, dir string, tl *Timeline) (pending map[groupKey][]storage.InstantTime, replaced map[groupKey]storage.InstantTime, err error) {
	pending, replaced = map[groupKey][]storage.InstantTime{}, map[groupKey]storage.InstantTime{}
	for _, in := range tl.Instants {
		switch {
		case in.Action == Compaction && in.State != Completed:
			plan, err := ReadCompactionPlan(ctx, s, dir, in.Time)
			if err != nil {
				return nil, nil, err
			}
			for key := range plan.groups() {
				pending[key] = append(pending[key], in.Time)
			}
		case in.Action == ReplaceCommit && in.State == Completed:
			m, err := ReadCommit(ctx, s, dir, in)
			if err != nil {
				return nil, nil, err
			}
			for path, ids := range m.Replaced {
				for _, id := range ids {
					if key := (groupKey{path, id}); replaced[key] == "" {
						replaced[key] = in.Time
					}
				}
			}
		}
	}
	return pending, replaced, nil
}

// groups gives the file groups of a compaction plan.
func (p *CompactionPlan) groups() iter.Seq[groupKey] {
	return func(yield func(groupKey) bool) {
		if p.Operations == nil {
			return
		}
		for _, op := range *p.Operations {
			var key groupKey
			if op.Partition != nil {
				key.partition = *op.Partition
			}
			if op.FileID != nil {
				key.id = storage.FileID(*op.FileID)
			}
			if !yield(key) {
				return
			}
		}
	}
}

// newGroup sorts the files of a group into slices; files belongs to the group from here on.
func newGroup(path string, id storage.FileID, files []storage.FileName, pending []storage.InstantTime, replaced storage.InstantTime, counts func(storage.InstantTime) bool) *group {
	g := &group{id: id, files: files, pending: pending, replaced: replaced}
	slices.SortFunc(g.files, compareNames)
	byBegin := map[storage.InstantTime]*fileSlice{}
	for i := range g.files {
		f := &g.files[i]
		if f.CDC {
			continue
		}
		fs := byBegin[f.Instant]
		if fs == nil {
			fs = &fileSlice{begin: f.Instant}
			byBegin[f.Instant] = fs
		}
		if f.Version == 0 {
			fs.base = f
		} else {
			fs.logs = append(fs.logs, *f)
		}
	}
	for _, fs := range byBegin {
		slices.SortFunc(fs.logs, compareLogs)
		g.slices = append(g.slices, *fs)
	}
	slices.SortFunc(g.slices, func(a, b fileSlice) int { return strings.Compare(string(b.begin), string(a.begin)) })
	g.newest, g.visible = g.at(path, "", counts)
	return g
}

func compareNames(a, b storage.FileName) int { return strings.Compare(a.Name, b.Name) }

// compareLogs is the order in which the logs of a slice are read: numbers by value, tokens as text.
func compareLogs(a, b storage.FileName) int {
	return cmp.Or(strings.Compare(string(a.Instant), string(b.Instant)), cmp.Compare(a.Version, b.Version), strings.Compare(a.Token, b.Token))
}

// at gives the slice of the group that counts at an instant, "" for now.
func (g *group) at(path string, at storage.InstantTime, counts func(storage.InstantTime) bool) (storage.FileSlice, bool) {
	if g.replaced != "" && (at == "" || g.replaced <= at) && counts(g.replaced) {
		return storage.FileSlice{}, false
	}
	out := storage.FileSlice{Partition: path, ID: g.id}
	var over []storage.FileName // logs of a slice that a pending compaction opened
	for _, fs := range g.slices {
		if at != "" && fs.begin > at {
			continue
		}
		if !counts(fs.begin) {
			// The logs over a pending compaction hold completed delta commits; its base file, if there is one, does not count.
			if slices.Contains(g.pending, fs.begin) {
				over = slices.Concat(fs.logs, over)
				out.Begin = fs.begin
			}
			continue
		}
		out.Begin, out.Base, out.Logs = fs.begin, fs.base, fs.logs
		if len(over) > 0 {
			out.Logs = slices.Concat(fs.logs, over)
		}
		return out, true
	}
	out.Logs = over
	return out, len(over) > 0
}

// Timeline gives the timeline that the view was built with.
func (v *View) Timeline() *Timeline { return v.tl }

// Partitions gives the partition paths in order, "" if the table has none.
func (v *View) Partitions() []string {
	out := make([]string, len(v.parts))
	for i, p := range v.parts {
		out[i] = p.path
	}
	return out
}

func (v *View) partition(path string) (int, bool) {
	return slices.BinarySearchFunc(v.parts, path, func(p *partition, path string) int { return strings.Compare(p.path, path) })
}

func (p *partition) group(id storage.FileID) (int, bool) {
	return slices.BinarySearchFunc(p.groups, id, func(g *group, id storage.FileID) int {
		return strings.Compare(string(g.id), string(id))
	})
}

// Slices gives the slice of each file group that counts at an instant ("": now), by partition path, then file group. counts says
// which instants count; nil stands for the view's own timeline. The slices of now with nil are made once: callers do not change them.
func (v *View) Slices(at storage.InstantTime, counts func(storage.InstantTime) bool) []storage.FileSlice {
	if at == "" && counts == nil {
		v.once.Do(func() {
			for _, p := range v.parts {
				v.newest = p.appendSlices(v.newest, at, counts)
			}
		})
		return v.newest
	}
	if counts == nil {
		counts = v.tl.Counts
	}
	var out []storage.FileSlice
	for _, p := range v.parts {
		out = p.appendSlices(out, at, counts)
	}
	return out
}

// PartitionSlices is Slices for one partition path.
func (v *View) PartitionSlices(path string, at storage.InstantTime, counts func(storage.InstantTime) bool) []storage.FileSlice {
	i, ok := v.partition(path)
	if !ok {
		return nil
	}
	if at != "" && counts == nil {
		counts = v.tl.Counts
	}
	return v.parts[i].appendSlices(nil, at, counts)
}

func (p *partition) appendSlices(out []storage.FileSlice, at storage.InstantTime, counts func(storage.InstantTime) bool) []storage.FileSlice {
	for _, g := range p.groups {
		fs, ok := g.newest, g.visible
		if at != "" || counts != nil {
			fs, ok = g.at(p.path, at, counts)
		}
		if ok {
			out = append(out, fs)
		}
	}
	return out
}

// Slice is Slices for one file group; false if it has no slice that counts.
func (v *View) Slice(path string, id storage.FileID, at storage.InstantTime, counts func(storage.InstantTime) bool) (storage.FileSlice, bool) {
	i, ok := v.partition(path)
	if !ok {
		return storage.FileSlice{}, false
	}
	j, ok := v.parts[i].group(id)
	if !ok {
		return storage.FileSlice{}, false
	}
	g := v.parts[i].groups[j]
	if at == "" && counts == nil {
		return g.newest, g.visible
	}
	if counts == nil {
		counts = v.tl.Counts
	}
	return g.at(path, at, counts)
}

// Files gives every data file with its partition path, whether it counts or not: old slices, change logs, and what
// failed writers left.
func (v *View) Files() iter.Seq2[string, storage.FileName] {
	return func(yield func(string, storage.FileName) bool) {
		for _, p := range v.parts {
			for _, g := range p.groups {
				for _, f := range g.files {
					if !yield(p.path, f) {
						return
					}
				}
			}
		}
	}
}
