package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// What follows from a decision outside of the hot tier: folders, hoodie.properties, the warehouse file. A note that is written with
// the decision says what is to be done; doing it again does nothing.
const (
	noteGone  = "gone/"  // and the folder: it is removed
	noteSteps = "steps/" // and a number: folderSteps (JSON)
)

// movingPrefix stands before the id of a table whose folder is aside while tables change places.
const movingPrefix = "moving-"

// folderSteps are the steps that follow from one decision.
type folderSteps struct {
	Moves      []folderMove    `json:"moves,omitempty"`
	Park       bool            `json:"park,omitempty"`       // a table moves to where another one leaves: all go aside first
	Parked     bool            `json:"parked,omitempty"`     // they are aside
	Properties []index.TableID `json:"properties,omitempty"` // tables whose hoodie.properties are to say what their records say
	Remove     []string        `json:"remove,omitempty"`     // folders of tables that are gone for good
	Folders    []string        `json:"folders,omitempty"`    // folders of databases that are gone
	Warehouse  bool            `json:"warehouse,omitempty"`  // the warehouse file is to be written

	no      uint64 // of the note; 0: nothing to do
	failure error  // what writes end with while the moves wait, see unmoved
}

// folderMove is the move of a table's folder, by object names.
type folderMove struct {
	Table    index.TableID `json:"table"`
	From, To string
}

func stepsKey(no uint64) []byte { return metaKey(fmt.Sprintf("%s%016x", noteSteps, no)) }

// noteSteps adds the note of what is to be done to a batch.
func (c *Catalog) noteSteps(b *pebble.Batch, s *folderSteps) error {
	if len(s.Moves) == 0 && len(s.Properties) == 0 && len(s.Remove) == 0 && len(s.Folders) == 0 && !s.Warehouse {
		return nil
	}
	if s.no == 0 {
		s.no = uint64(c.clock.Near().UnixMicro())
		for s.no <= c.lastSteps {
			s.no = c.lastSteps + 1
		}
		c.lastSteps = s.no
	}
	v, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return b.Set(stepsKey(s.no), v, nil)
}

// moveFolders makes the moves of a decision.
func (c *Catalog) moveFolders(ctx context.Context, s *folderSteps) error {
	aside := func(m folderMove) string { return c.object(join(droppedFolder, movingPrefix+fmt.Sprint(m.Table))) }
	if s.Park && !s.Parked {
		for _, m := range s.Moves {
			if err := c.moveFolder(ctx, m.From, aside(m)); err != nil {
				return err
			}
		}
		parked := *s
		parked.Parked = true
		v, err := json.Marshal(&parked)
		if err = firstError(err, c.putEntry(stepsKey(s.no), v)); err != nil {
			return err
		}
		s.Parked = true
	}
	for _, m := range s.Moves {
		from := m.From
		if s.Park {
			from = aside(m)
		}
		if err := c.moveFolder(ctx, from, m.To); err != nil {
			return err
		}
	}
	return nil
}

// moveFolder moves a folder unless that was done.
func (c *Catalog) moveFolder(ctx context.Context, from, to string) error {
	has, err := c.store.HasFolder(from)
	if err != nil {
		return err
	}
	done, err := c.store.HasFolder(to)
	if err != nil {
		return err
	}
	switch {
	case has && done: // the crash came between the syncs of the two folders that the names stand in
		return c.store.Remove(ctx, from+"/")
	case has:
		c.moved.note(from, to, index.Seq(c.clock.read()))
		return c.store.Rename(ctx, from, to)
	case done: // maybe the move failed after the rename: both names are made durable
		err := c.syncFolder(c.path(path.Dir(from)))
		if errors.Is(err, fs.ErrNotExist) { // the database has gone since
			err = nil
		}
		return firstError(err, c.syncFolder(c.path(path.Dir(to))))
	}
	return fmt.Errorf("move folder %s: %w", c.path(from), storage.ErrNotExist)
}

// takeSteps does what follows from a decision after the moves, and forgets its note.
func (c *Catalog) takeSteps(ctx context.Context, s *folderSteps) error {
	if s.no == 0 {
		return nil
	}
	for _, id := range s.Properties {
		v, closer, err := c.db.Get(idKey(prefixTable, id))
		if errors.Is(err, pebble.ErrNotFound) {
			continue // dropped since
		}
		if err != nil {
			return err
		}
		var r tableRecord
		err = json.Unmarshal(v, &r)
		closer.Close()
		if err != nil {
			return fmt.Errorf("table record: %w", err)
		}
		if err := c.writeProperties(ctx, &r); err != nil {
			return fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
		}
	}
	if err := c.removeFolders(ctx, s); err != nil {
		return err
	}
	if s.Warehouse {
		if err := c.saveWarehouse(ctx, false); err != nil {
			return err
		}
	}
	return c.db.Delete(stepsKey(s.no), pebble.NoSync) // done again if that is lost
}

// removeFolders removes the folders of tables and databases that are gone for good.
func (c *Catalog) removeFolders(ctx context.Context, s *folderSteps) error {
	for _, dir := range s.Remove {
		// hoodie.properties goes first: a folder without it is no table.
		if err := c.store.Remove(ctx, join(dir, ".hoodie/hoodie.properties"), dir+"/"); err != nil {
			return err
		}
	}
	for _, dir := range s.Folders {
		if err := c.removeDatabaseFolder(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeDatabaseFolder removes the folder of a dropped database. Tables that the warehouse does not know, since another engine put
// them there, stay, and the folder with them.
func (c *Catalog) removeDatabaseFolder(ctx context.Context, dir string) error {
	keep := !strings.HasPrefix(dir, c.root+"/") // never the warehouse
	for info, err := range c.store.List(ctx, dir) {
		if err != nil {
			return err
		}
		if !info.Dir {
			continue
		}
		holds, err := c.holdsTable(ctx, join(dir, info.Name))
		if err != nil {
			return err
		}
		keep = keep || holds
		if !keep {
			if err := c.store.Remove(ctx, join(dir, info.Name)+"/"); err != nil {
				return err
			}
		}
	}
	if keep {
		return nil
	}
	return c.store.Remove(ctx, dir+"/")
}

// repeatSteps ends what follows from earlier decisions. At the start it makes the moves before the tables are opened.
func (c *Catalog) repeatSteps(ctx context.Context) error {
	if err := c.eachSteps(func(s *folderSteps) error { return c.moveFolders(ctx, s) }); err != nil {
		return err
	}
	if err := c.eachSteps(func(s *folderSteps) error { return c.takeSteps(ctx, s) }); err != nil {
		return err
	}
	c.stepsLeft = false
	return nil
}

func (c *Catalog) eachSteps(f func(*folderSteps) error) error {
	var list []*folderSteps
	err := c.eachNote(noteSteps, func(name string, v []byte) error {
		s := &folderSteps{}
		if err := json.Unmarshal(v, s); err != nil {
			return fmt.Errorf("note of a change of definitions: %w", err)
		}
		if _, err := fmt.Sscanf(name, "%x", &s.no); err != nil {
			return fmt.Errorf("note of a change of definitions: %w", err)
		}
		list = append(list, s)
		return nil
	})
	for _, s := range list {
		err = firstError(err, f(s))
	}
	return err
}

// eachNote calls f with the names, after the prefix, and values of the warehouse's notes, in order.
func (c *Catalog) eachNote(prefix string, f func(name string, v []byte) error) error {
	end := metaKey(prefix)
	end[len(end)-1]++
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: metaKey(prefix), UpperBound: end})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := f(string(it.Key()[1+len(prefix):]), v); err != nil {
			return err
		}
	}
	return it.Error()
}

// vacate makes room for a table's folder. What a creation that was cut short left is removed; a table that the warehouse does not
// know, because another engine wrote it or the hot tier forgot it, is not.
func (c *Catalog) vacate(ctx context.Context, dir string) error {
	known, err := c.holdsTable(ctx, dir)
	if err != nil {
		return err
	}
	if known {
		return fmt.Errorf("%w: folder %s holds a Hudi table that this warehouse does not know; attach it with LOCATION, or move it away", ErrExists, c.path(dir))
	}
	return c.store.Remove(ctx, dir+"/")
}

// isTable says whether a folder is a Hudi table, with or without instants.
func (c *Catalog) isTable(ctx context.Context, dir string) (bool, error) {
	f, err := c.store.Open(ctx, join(dir, ".hoodie/hoodie.properties"))
	if errors.Is(err, storage.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// holdsTable says whether a folder is a Hudi table with instants.
func (c *Catalog) holdsTable(ctx context.Context, dir string) (bool, error) {
	if _, err := timeline.ReadProperties(ctx, c.store, dir); errors.Is(err, storage.ErrNotExist) {
		return false, nil
	}
	tl, err := timeline.Load(ctx, c.store, dir)
	if err != nil {
		return true, nil // not ours to judge
	}
	_, any := tl.Last()
	return any, nil
}

// removeDropped ends removals of folders that were cut short.
func (c *Catalog) removeDropped(ctx context.Context) error {
	return c.eachNote(noteGone, func(dir string, _ []byte) error { return c.removeFolder(ctx, dir) })
}

// removeFolder removes the folder of a table that is gone for good. hoodie.properties goes first: a folder without it is no table.
func (c *Catalog) removeFolder(ctx context.Context, dir string) error {
	if err := c.store.Remove(ctx, join(dir, ".hoodie/hoodie.properties"), dir+"/"); err != nil {
		return err
	}
	return c.dropEntry(metaKey(noteGone + dir))
}

// forgotten gives the folders of tables of ours that the hot tier does not know. Those without an instant are left of a CREATE TABLE that
// was cut short, and removed.
func (c *Catalog) forgotten(ctx context.Context, folders []tableFolder) (out []tableFolder, err error) {
	known := map[string]bool{}
	for _, t := range c.tablesByID() {
		known[t.def.Load().dir] = true
	}
	for _, f := range folders {
		dir := c.object(f.dir)
		if known[dir] {
			continue
		}
		p, err := timeline.ReadProperties(ctx, c.store, dir)
		if errors.Is(err, storage.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("table %s.%s: %w", f.database, f.name, err)
		}
		if p[propTable] == "" {
			continue // another engine's
		}
		holds, err := c.holdsTable(ctx, dir)
		if err == nil && !holds {
			c.log.Warn("removed the folder of a table that was not made", "folder", c.path(dir))
			err = c.store.Remove(ctx, join(dir, ".hoodie/hoodie.properties"), dir+"/")
		}
		if err != nil {
			return nil, err
		}
		if holds {
			out = append(out, f)
		}
	}
	return out, c.removeHollow(ctx, known)
}

// removeHollow removes folders in the places of tables that hold no file but unfinished ones of ours: a CREATE TABLE was cut short before
// it wrote anything.
func (c *Catalog) removeHollow(ctx context.Context, known map[string]bool) error {
	list := func(dir string) []string {
		names, err := c.fs.List(c.path(dir))
		if err != nil {
			return nil // no folder, or gone
		}
		return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, storage.TempPrefix) })
	}
	for _, db := range list(c.root) {
		if strings.HasPrefix(db, ".") {
			continue
		}
		for _, name := range list(join(c.root, db)) {
			dir := join(c.root, db, name)
			if known[dir] || strings.HasPrefix(name, ".") {
				continue
			}
			if st, err := c.fs.Stat(c.path(dir)); err != nil || !st.IsDir() {
				continue
			}
			if in := list(dir); len(in) > 1 || len(in) == 1 && (in[0] != ".hoodie" || len(list(join(dir, ".hoodie"))) > 0) {
				continue
			}
			if err := c.store.Remove(ctx, dir+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// movedFolders remembers where folders went, so that what was opened by its old name before is still found: scans go on over a table
// that is renamed or dropped.
type movedFolders struct {
	mu   sync.Mutex
	list []movedFolder // guarded by mu, in order
}

type movedFolder struct {
	from, to string
	at       index.Seq // snapshots from then on do not know the old name
}

// movedMax bounds what is remembered.
const movedMax = 4096

func (m *movedFolders) note(from, to string, at index.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) >= movedMax {
		m.list = append(m.list[:0:0], m.list[len(m.list)/2:]...)
	}
	m.list = append(m.list, movedFolder{from + "/", to + "/", at})
}

// forget drops what no snapshot needs any more.
func (m *movedFolders) forget(oldest index.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for n < len(m.list) && m.list[n].at < oldest {
		n++
	}
	m.list = m.list[n:]
}

// places gives the names that an object may have now, in the order in which folders moved.
func (m *movedFolders) places(name string) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.list {
		rest, ok := strings.CutPrefix(name, m.list[i].from)
		if !ok {
			continue
		}
		at := m.list[i].to + rest
		out = append(out, at)
		for _, next := range m.list[i+1:] {
			if rest, ok := strings.CutPrefix(at, next.from); ok {
				at = next.to + rest
				out = append(out, at)
			}
		}
	}
	return out
}

// movedStore is the store that data files are read from.
type movedStore struct {
	*storage.Local
	moved *movedFolders
}

func (s movedStore) Open(ctx context.Context, name string) (storage.Object, error) {
	o, err := s.Local.Open(ctx, name)
	if !errors.Is(err, storage.ErrNotExist) {
		return o, err
	}
	for _, at := range s.moved.places(name) {
		if o, oerr := s.Local.Open(ctx, at); !errors.Is(oerr, storage.ErrNotExist) {
			return o, oerr
		}
	}
	return nil, err
}

func (c *Catalog) syncFolder(dir string) error {
	f, err := c.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return firstError(f.Sync(), f.Close())
}
