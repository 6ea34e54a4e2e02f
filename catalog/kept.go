package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Slices that are replaced by rows which the journal does not hold are kept for its window: as hard links in
// .hoodie/lakesql/kept/<clock>/<partition path>/<file>, which other engines do not look at. They cost nothing until a cleaner removes the
// originals, which readers look for first.

const keptFolder = ".hoodie/lakesql/kept"

// keptFiles are the links of all tables.
type keptFiles struct {
	mu    sync.RWMutex
	files map[string]keptFile // by file name, which no two files of a warehouse share
	sets  []*keptSet          // oldest first
	bytes int64
}

type keptFile struct {
	t    *Table
	name string // below the table's folder
}

// keptSet is what was kept at one time of one table.
type keptSet struct {
	t     *Table
	at    index.Seq                   // clock when it was made
	files map[string]map[string]int64 // partition path, file name, size
	bytes int64
}

func (s *keptSet) folder() string { return fmt.Sprintf("%s/%020d", keptFolder, s.at) }

// add makes a set known.
func (k *keptFiles) add(s *keptSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files == nil {
		k.files = map[string]keptFile{}
	}
	for part, files := range s.files {
		for name, size := range files {
			k.files[name] = keptFile{s.t, join(s.folder(), part, name)}
			s.bytes += size
		}
	}
	k.bytes += s.bytes
	k.sets = append(k.sets, s)
	slices.SortStableFunc(k.sets, func(a, b *keptSet) int { return cmp(int64(a.at), int64(b.at)) })
}

// take gives up sets: those that stale names, and the oldest while there are more bytes than the limit. With forget it is a table's that is gone.
func (k *keptFiles) take(limit int64, stale func(*keptSet) bool) (gone []*keptSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.sets[:0:0]
	for _, s := range k.sets {
		if !stale(s) && k.bytes <= limit {
			left = append(left, s)
			continue
		}
		gone = append(gone, s)
		k.bytes -= s.bytes
		for part, files := range s.files {
			for name := range files {
				if k.files[name].name == join(s.folder(), part, name) {
					delete(k.files, name)
				}
			}
		}
	}
	k.sets = left
	return gone
}

// of gives the files that are kept of a table, by partition path.
func (k *keptFiles) of(t *Table) map[string]map[string]int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out map[string]map[string]int64
	for _, s := range k.sets {
		if s.t != t {
			continue
		}
		if out == nil {
			out = map[string]map[string]int64{}
		}
		for part, files := range s.files {
			if out[part] == nil {
				out[part] = map[string]int64{}
			}
			for name, size := range files {
				out[part][name] = size
			}
		}
	}
	return out
}

// find gives the object that stands for one that is gone.
func (k *keptFiles) find(object string) (string, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.files) == 0 {
		return "", false
	}
	at := len(object)
	for at > 0 && object[at-1] != '/' {
		at--
	}
	f, ok := k.files[object[at:]]
	if !ok {
		return "", false
	}
	return join(f.t.def.Load().dir, f.name), true
}

// pastStore opens what is kept in place of what is gone.
type pastStore struct {
	storage.Store
	kept *keptFiles
}

func (s pastStore) Open(ctx context.Context, name string) (storage.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if !errors.Is(err, storage.ErrNotExist) {
		return o, err
	}
	if kept, ok := s.kept.find(name); ok {
		if o, kerr := s.Store.Open(ctx, kept); kerr == nil {
			return o, nil
		}
	}
	return nil, err
}

// keepSlices links the files of slices that instants ended, as far as commits do not lead back to them. What cannot be linked, since it is gone already or the folder cannot be written, is not kept.
func (t *Table) keepSlices(prev *coldState, effects []*effect) {
	c, d := t.c, t.def.Load()
	s := &keptSet{t: t, at: c.clock.read(), files: map[string]map[string]int64{}}
	folders := map[string]bool{}
	lost := timeline.FormatTime(seqTime(t.lostAt()).In(d.zone)) // slices from before have columns that later ones lack
	for _, e := range effects {
		for _, g := range e.groups {
			if !g.Replaced || g.Before == "" {
				continue
			}
			if !e.barrier && !e.merges && g.Before >= lost && !t.hist.barred(groupKey{g.Partition, g.ID}, g.Before) {
				continue
			}
			fs, ok := prev.view.Slice(g.Partition, g.ID, "", nil)
			if !ok || fs.Begin != g.Before {
				continue
			}
			files := slices.Clone(fs.Logs)
			if fs.Base != nil {
				files = append(files, *fs.Base)
			}
			for _, f := range files {
				folder := c.path(join(d.dir, s.folder(), g.Partition))
				if !folders[folder] {
					folders[folder] = true
					if err := c.fs.MkdirAll(folder, 0o755); err != nil {
						c.log.Warn("the past of a table is not kept", "table", d.String(), "err", err)
						return
					}
				}
				if err := c.fs.Link(c.path(d.object(g.Partition, f.Name)), c.fs.PathJoin(folder, f.Name)); err != nil {
					c.log.Warn("a slice is not kept", "table", d.String(), "file", f.Name, "err", err)
					continue
				}
				if s.files[g.Partition] == nil {
					s.files[g.Partition] = map[string]int64{}
				}
				s.files[g.Partition][f.Name] = f.Size
			}
		}
	}
	if len(s.files) == 0 {
		return
	}
	// The folders may be new, up to that of the timeline.
	top := c.path(join(d.dir, ".hoodie"))
	synced := map[string]bool{}
	for folder := range folders {
		for ; !synced[folder] && len(folder) >= len(top); folder = c.fs.PathDir(folder) {
			synced[folder] = true
			if err := c.syncFolder(folder); err != nil {
				c.log.Warn("sync what is kept of the past", "table", d.String(), "err", err)
			}
		}
	}
	c.kept.add(s)
	c.metrics.KeptBytes.Store(c.kept.size())
}

func (k *keptFiles) size() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.bytes
}

// dropKept removes what is older than the journal's window or beyond the limit, and, with gone, all of a table.
func (c *Catalog) dropKept(ctx context.Context, t *Table, trimmed index.Seq, gone bool) {
	old := index.Seq(c.clock.Near().Add(-c.o.JournalWindow).UnixMicro())
	for _, s := range c.kept.take(c.o.KeptBytes, func(s *keptSet) bool { return s.at < old || s.t == t && (gone || s.at < trimmed) }) {
		if gone && s.t == t {
			continue // with the folder, or left behind with it
		}
		if err := c.store.Remove(ctx, join(s.t.def.Load().dir, s.folder())+"/"); err != nil {
			c.log.Warn("remove what was kept of the past", "table", s.t.String(), "err", err)
		}
	}
	c.metrics.KeptBytes.Store(c.kept.size())
}

// loadKept finds what an earlier run kept.
func (t *Table) loadKept(ctx context.Context) error {
	c, d := t.c, t.def.Load()
	for info, err := range c.store.List(ctx, join(d.dir, keptFolder)) {
		if errors.Is(err, storage.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := strconv.ParseUint(info.Name, 10, 64)
		if err != nil || !info.Dir {
			continue
		}
		s := &keptSet{t: t, at: index.Seq(at), files: map[string]map[string]int64{}}
		var walk func(part string) error
		walk = func(part string) error {
			for f, err := range c.store.List(ctx, join(d.dir, s.folder(), part)) {
				switch {
				case err != nil:
					return err
				case f.Dir:
					if err := walk(join(part, f.Name)); err != nil {
						return err
					}
				default:
					if s.files[part] == nil {
						s.files[part] = map[string]int64{}
					}
					s.files[part][f.Name] = f.Size
				}
			}
			return nil
		}
		if err := walk(""); err != nil {
			return err
		}
		if len(s.files) > 0 {
			c.kept.add(s)
		}
	}
	c.metrics.KeptBytes.Store(c.kept.size())
	return nil
}

// pastView is the view of a state with what is kept.
func (t *Table) pastView(cold *coldState) *timeline.View {
	files := t.c.kept.of(t)
	if len(files) == 0 {
		return cold.view
	}
	return cold.view.Apply(cold.tl, timeline.Change{Added: files})
}
