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
	// ended has when the delta commits of its logs completed, also of those that were archived since; nil in layout 1, where the name of
	// a log says to which slice it belongs.
	ended   map[storage.InstantTime]storage.InstantTime
	newest  storage.FileSlice // the slice that counts now
	visible bool              // whether there is one
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
	type folder struct {
		path  string
		files []storage.FileName
	}
	var found []folder
	add := func(path string, files []storage.FileName) { found = append(found, folder{path, files}) }
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
		if path == "" && len(found) == 0 && len(files) > 0 {
			add(path, files)
		}
		return nil
	}
	if err := walk(""); err != nil {
		return nil, fmt.Errorf("building file view: %w", err)
	}
	var ended map[storage.InstantTime]storage.InstantTime
	if tl.layout == Layout2 {
		ended = map[storage.InstantTime]storage.InstantTime{}
		for _, f := range found {
			for _, file := range f.files {
				if _, ok := tl.completed[file.Instant]; !ok && file.Version > 0 && file.Instant < tl.start {
					ended[file.Instant] = file.Instant // what the history does not know any more
				}
			}
		}
		if err := archivedEnds(ctx, s, dir, ended); err != nil {
			return nil, fmt.Errorf("building file view: %w", err)
		}
	}
	for _, f := range found {
		p := &partition{path: f.path}
		byGroup := map[storage.FileID][]storage.FileName{}
		for _, file := range f.files {
			byGroup[file.ID] = append(byGroup[file.ID], file)
		}
		for id, list := range byGroup {
			key := groupKey{f.path, id}
			g := &group{id: id, files: list, pending: pending[key], replaced: replaced[key], ended: ended}
			p.groups = append(p.groups, g.build(f.path, tl))
			if len(pending[key]) > 0 {
				v.waiting++
			}
		}
		slices.SortFunc(p.groups, func(a, b *group) int { return strings.Compare(string(a.id), string(b.id)) })
		v.parts = append(v.parts, p)
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
			plan, err := ReadCompactionPlan(ctx, s, dir, in)
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

// build sorts the files of a new group into slices and gives it; the group is not changed any more.
func (g *group) build(path string, tl *Timeline) *group {
	slices.SortFunc(g.files, compareNames)
	byBegin := map[storage.InstantTime]*fileSlice{}
	slice := func(begin storage.InstantTime) *fileSlice {
		fs := byBegin[begin]
		if fs == nil {
			fs = &fileSlice{begin: begin}
			byBegin[begin] = fs
		}
		return fs
	}
	var logs []storage.FileName
	for i := range g.files {
		switch f := &g.files[i]; {
		case f.CDC:
		case f.Version == 0:
			slice(f.Instant).base = f
		default:
			logs = append(logs, *f)
		}
	}
	slices.SortFunc(logs, compareLogs)
	if tl.layout == Layout2 {
		g.sortByEnd(logs, slice, byBegin, tl)
	} else {
		for _, f := range logs {
			fs := slice(f.Instant)
			fs.logs = append(fs.logs, f)
		}
	}
	for _, fs := range byBegin {
		g.slices = append(g.slices, *fs)
	}
	slices.SortFunc(g.slices, func(a, b fileSlice) int { return strings.Compare(string(b.begin), string(a.begin)) })
	g.newest, g.visible = g.at(path, "", tl.Counts)
	return g
}

// sortByEnd puts the logs of layout 2, whose names have their own delta commit, into the slice that was the newest when the delta
// commit completed: a delta commit that began before a compaction and completed after it was requested lies over the compaction. Slices
// of instants that do not count take no part, but for those of pending compactions.
func (g *group) sortByEnd(logs []storage.FileName, slice func(storage.InstantTime) *fileSlice, known map[storage.InstantTime]*fileSlice, tl *Timeline) {
	begins := slices.Clone(g.pending)
	for begin := range known {
		if tl.Counts(begin) && !slices.Contains(begins, begin) {
			begins = append(begins, begin)
		}
	}
	slices.Sort(begins)
	ended := make(map[storage.InstantTime]storage.InstantTime, len(logs))
	var open []storage.FileName // logs of delta commits that do not count
	for _, f := range logs {
		if !tl.Counts(f.Instant) {
			open = append(open, f)
			continue
		}
		end, ok := tl.completed[f.Instant]
		if !ok {
			if end, ok = g.ended[f.Instant]; !ok {
				end = f.Instant
			}
		}
		ended[f.Instant] = end
		n := 0
		for n < len(begins) && begins[n] <= sameForm(end, f.Instant, begins[n]) {
			n++
		}
		begin := f.Instant
		if n > 0 {
			begin = begins[n-1]
		} else {
			begins = slices.Insert(begins, 0, begin)
		}
		fs := slice(begin)
		fs.logs = append(fs.logs, f)
	}
	for _, f := range open {
		begin := f.Instant
		if len(begins) > 0 {
			begin = begins[len(begins)-1]
		}
		fs := slice(begin)
		fs.logs = append(fs.logs, f)
		slices.SortFunc(fs.logs, compareLogs)
	}
	g.ended = ended
}

// sameForm gives the end of an instant if it is written as begin is, else the instant itself, as Hudi does for the times of old releases.
func sameForm(end, instant, begin storage.InstantTime) storage.InstantTime {
	if len(end) == len(begin) {
		return end
	}
	return instant
}

func compareNames(a, b storage.FileName) int { return strings.Compare(a.Name, b.Name) }

// compareLogs is the order in which the logs of a slice are read: numbers by value, tokens as text.
func compareLogs(a, b storage.FileName) int {
	return cmp.Or(strings.Compare(string(a.Instant), string(b.Instant)), cmp.Compare(a.Version, b.Version), strings.Compare(a.Token, b.Token))
}

// at gives the slice of the group that counts at an instant; "" is the present.
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
			// So do those over a compaction that a reader of the past does not see yet, where names do not bind them to it.
			if logs := g.counted(fs.logs, at, counts); len(logs) > 0 && (slices.Contains(g.pending, fs.begin) || g.ended != nil && at == "") {
				over = slices.Concat(logs, over)
				out.Begin = fs.begin
			}
			continue
		}
		logs := g.counted(fs.logs, at, counts)
		if fs.base == nil && len(logs) == 0 && len(fs.logs) > 0 {
			continue
		}
		out.Begin, out.Base, out.Logs = fs.begin, fs.base, logs
		if len(over) > 0 {
			out.Logs = slices.Concat(logs, over)
		}
		return out, true
	}
	out.Logs = over
	return out, len(over) > 0
}

// counted gives the logs of delta commits that count at an instant. In layout 1 the name of a log does not tell, and its blocks are looked at.
func (g *group) counted(logs []storage.FileName, at storage.InstantTime, counts func(storage.InstantTime) bool) []storage.FileName {
	dead := func(f storage.FileName) bool { return at != "" && f.Instant > at || !counts(f.Instant) }
	if g.ended == nil || !slices.ContainsFunc(logs, dead) {
		return logs
	}
	return slices.DeleteFunc(slices.Clone(logs), dead)
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
