package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// A dropped table waits for its retention to end: its folder lies below .dropped, everything that the hot tier has of it stays
// under its id, and its record under another prefix. UNDROP puts the record back.

// droppedFolder holds the folders of dropped tables, by table id, below the warehouse.
const droppedFolder = ".dropped"

// noteDatabase stands before the name of a dropped database and the time of its drop.
const noteDatabase = "dropped/"

// droppedTable is what the hot tier keeps of a table that can be brought back (JSON under 'u').
type droppedTable struct {
	Record   tableRecord         `json:"record"`
	Folder   string              `json:"folder"` // as tableRecord.Dir
	At       time.Time           `json:"at"`
	Until    time.Time           `json:"until"`
	Bytes    int64               `json:"bytes"`
	Buffered savedBuffer         `json:"buffered"`
	Objects  map[string][]Object `json:"objects,omitempty"` // that came with it, by kind
	Whole    bool                `json:"whole,omitempty"`   // its database was dropped with it
}

// savedBuffer describes rows that waited for a flush.
type savedBuffer struct {
	Rows   int64     `json:"rows"`
	Bytes  int64     `json:"bytes"`
	Oldest time.Time `json:"oldest"`
	Last   index.Seq `json:"last,omitempty"` // in tableRecord.Waits: the last commit or adoption before the drop
}

// droppedDatabase is what the hot tier keeps of a database that can be brought back.
type droppedDatabase struct {
	Database savedDatabase   `json:"database"`
	Tables   []index.TableID `json:"tables,omitempty"`
	Attached []savedAttached `json:"attached,omitempty"`
	At       time.Time       `json:"at"`
	Until    time.Time       `json:"until"`
}

// Dropped is a table that was dropped and can be brought back.
type Dropped struct {
	ID             uint64
	Database, Name string
	At, Until      time.Time // when it was dropped; when it is removed for good
	Rows, Bytes    int64
}

func (c *Catalog) droppedDir(id index.TableID) string { return join(droppedFolder, fmt.Sprint(id)) }

// planDrop plans the end of a table.
func (c *Catalog) planDrop(p *tablePlan, ch *Change, dec *decision) error {
	retention := ch.Retention
	if retention == 0 {
		retention = c.o.DropRetention
	}
	t, d := p.t, p.old
	i := slices.IndexFunc(dec.Dropped, func(d droppedTable) bool { return d.Record.ID == t.id })
	if d.spec.Attached || retention < 0 {
		if i >= 0 {
			dec.Dropped = slices.Delete(dec.Dropped, i, i+1)
		}
		dec.Gone = append(dec.Gone, t.id)
		if d.spec.Attached {
			dec.Attached = true
			if dec.Database != nil && retention > 0 {
				c.commitMu.Lock()
				dir := t.record.Dir
				c.commitMu.Unlock()
				at := c.clock.Now()
				dec.Database.Attached = append(dec.Database.Attached, savedAttached{Name: d.name, Location: dir})
				dec.Database.At, dec.Database.Until = at, at.Add(retention)
			}
		} else {
			dec.Steps.Remove = append(dec.Steps.Remove, d.dir)
		}
		return nil
	}
	if i < 0 {
		i = len(dec.Dropped)
		dec.Dropped = append(dec.Dropped, droppedTable{})
	}
	at := seqTime(c.clock.stamp())
	x := &dec.Dropped[i]
	c.commitMu.Lock()
	x.Record = t.record
	c.commitMu.Unlock()
	x.Folder, x.At, x.Until, x.Bytes, x.Whole = c.droppedDir(t.id), at, at.Add(retention), t.DataBytes(), ch.DropDatabase != ""
	dec.Steps.Moves = append(dec.Steps.Moves, folderMove{t.id, d.dir, c.object(x.Folder)})
	if dec.Database != nil {
		dec.Database.Tables = append(dec.Database.Tables, t.id)
		dec.Database.At, dec.Database.Until = at, x.Until
	}
	return nil
}

// Dropped lists the tables that can be brought back, the last one dropped first.
func (c *Catalog) Dropped() ([]Dropped, error) {
	list, err := c.droppedTables()
	out := make([]Dropped, len(list))
	for i, d := range list {
		out[i] = Dropped{ID: uint64(d.Record.ID), Database: d.Record.Database, Name: d.Record.Name, At: d.At, Until: d.Until, Rows: d.Record.Rows, Bytes: d.Bytes}
	}
	return out, err
}

func (c *Catalog) droppedTables() (out []droppedTable, err error) {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDropped}, UpperBound: []byte{prefixDropped + 1}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		var d droppedTable
		if err := json.Unmarshal(v, &d); err != nil {
			return nil, fmt.Errorf("record of a dropped table: %w", err)
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b droppedTable) int { return b.At.Compare(a.At) })
	return out, it.Error()
}

// Undrop brings back the table of that name that was dropped last, under the name as. ErrExists: that name is taken; ErrExpired: what
// was dropped is not kept any more, or never was there.
func (c *Catalog) Undrop(ctx context.Context, db, name, as string) (*Table, error) {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return nil, err
	}
	list, err := c.droppedTables()
	if err != nil {
		return nil, err
	}
	now := c.clock.Near()
	for _, d := range list {
		if strings.EqualFold(d.Record.Database, db) && strings.EqualFold(d.Record.Name, name) && d.Until.After(now) {
			spelled, _, ok := c.Database(db)
			if !ok {
				return nil, fmt.Errorf("%w: database %s; bring it back with UNDROP DATABASE", ErrNotFound, db)
			}
			d.Record.Database = spelled
			if as != "" {
				d.Record.Name = as
			}
			tables, err := c.undrop(ctx, []droppedTable{d}, nil)
			if err != nil {
				return nil, err
			}
			return tables[0], nil
		}
	}
	return nil, fmt.Errorf("%w: no dropped table %s.%s is kept", ErrExpired, db, name)
}

// UndropDatabase brings back the database of that name that was dropped last, with its objects and the tables that it had then.
// Attached ones are attached again where they lie; one that is not there any more, or cannot be read, is left out.
func (c *Catalog) UndropDatabase(ctx context.Context, name string) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return err
	}
	if _, _, ok := c.Database(name); ok {
		return fmt.Errorf("%w: database %s", ErrExists, name)
	}
	now := c.clock.Near()
	var last *droppedDatabase
	err := c.eachNote(noteDatabase+strings.ToLower(name)+"/", func(_ string, v []byte) error {
		d := &droppedDatabase{}
		if err := json.Unmarshal(v, d); err != nil {
			return fmt.Errorf("record of a dropped database: %w", err)
		}
		if d.Until.After(now) && (last == nil || d.At.After(last.At)) {
			last = d
		}
		return nil
	})
	if err != nil {
		return err
	}
	if last == nil {
		return fmt.Errorf("%w: no dropped database %s is kept", ErrExpired, name)
	}
	list, err := c.droppedTables()
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(d droppedTable) bool { return !slices.Contains(last.Tables, d.Record.ID) || !d.Whole })
	if _, err = c.undrop(ctx, list, last); err != nil {
		return err
	}
	for _, a := range last.Attached {
		err := c.attachAgain(context.WithoutCancel(ctx), last.Database.Name, a)
		if err != nil {
			c.log.Error("an attached table does not come back with its database", "table", last.Database.Name+"."+a.Name, "location", a.Location, "err", err)
		}
	}
	return nil
}

func (c *Catalog) attachAgain(ctx context.Context, db string, a savedAttached) error {
	spelled, id, err := c.reserve(db, a.Name)
	if t := c.standsIn(a.Location); err == nil && t != nil {
		err = fmt.Errorf("%w: %s is the folder of table %s", ErrInvalid, a.Location, t)
	}
	if err == nil {
		_, err = c.attach(ctx, spelled, a.Name, a.Location, id)
	}
	return err
}

// undrop brings back tables, and with them the database that was dropped with them.
func (c *Catalog) undrop(ctx context.Context, list []droppedTable, db *droppedDatabase) (out []*Table, err error) {
	databases := c.savedDatabases()
	if db != nil {
		databases = append(databases, db.Database)
	}
	dec := &decision{Databases: databases, Steps: folderSteps{Warehouse: true}}
	b := c.db.NewBatch()
	defer b.Close()
	for i := range list {
		d := &list[i]
		r := &d.Record
		if _, ok := c.Table(r.Database, r.Name); ok {
			return nil, fmt.Errorf("%w: table %s.%s", ErrExists, r.Database, r.Name)
		}
		folder := c.object(d.Folder)
		if ok, err := c.store.HasFolder(folder); err != nil || !ok {
			return nil, firstError(err, fmt.Errorf("%w: the folder %s of dropped table %s.%s is gone", ErrExpired, c.path(folder), r.Database, r.Name))
		}
		if r.Waits = nil; d.Buffered.Rows > 0 {
			d.Buffered.Last = r.Last
			r.Waits = &d.Buffered
		}
		r.Dir, r.Version = join(escapeName(r.Database), escapeName(r.Name)), r.Version+1
		if err := c.vacate(ctx, c.object(r.Dir)); err != nil {
			return nil, err
		}
		dec.Steps.Moves = append(dec.Steps.Moves, folderMove{r.ID, folder, c.object(r.Dir)})
		dec.Steps.Properties = append(dec.Steps.Properties, r.ID)
		v, err := json.Marshal(r)
		if err = firstError(err, b.Set(idKey(prefixTable, r.ID), v, nil), b.Delete(idKey(prefixDropped, r.ID), nil)); err != nil {
			return nil, err
		}
		for kind, objects := range d.Objects {
			for j := range databases {
				s := &databases[j]
				if strings.EqualFold(s.Name, r.Database) {
					for _, o := range objects {
						if !slices.ContainsFunc(s.Objects[kind], func(k Object) bool { return strings.EqualFold(k.Name, o.Name) }) {
							s.Objects[kind] = append(slices.Clone(s.Objects[kind]), o)
						}
					}
				}
			}
		}
	}
	if db != nil {
		if err := b.Delete(db.key(), nil); err != nil {
			return nil, err
		}
	}
	if _, err = c.put(b, dec); err == nil {
		err = c.commitBatch(b)
	}
	if err != nil {
		return nil, fmt.Errorf("decide to bring back what was dropped: %w", err)
	}
	u := &unmoved{steps: &dec.Steps, then: func(ctx context.Context) error {
		if err := c.enforced(ctx, dec); err != nil {
			return err
		}
		out, err = c.openDropped(ctx, list)
		return err
	}}
	err = c.moveThen(context.WithoutCancel(ctx), u)
	return out, err
}

// openDropped opens tables that were brought back.
func (c *Catalog) openDropped(ctx context.Context, list []droppedTable) (out []*Table, err error) {
	for i := range list {
		d := &list[i]
		t, err := c.openTable(ctx, &d.Record)
		for wait := moveWait; err != nil && wait < 8*moveWait; wait *= 2 { // it is decided: a moment's failure must not leave it without the table
			c.log.Warn("open a table that was brought back; it is tried again", "table", d.Record.Database+"."+d.Record.Name, "err", err)
			time.Sleep(wait)
			t, err = c.openTable(ctx, &d.Record)
		}
		var damaged *storage.CorruptError
		if errors.As(err, &damaged) || errors.Is(err, storage.ErrUnsupported) {
			t, err = c.brokenTable(&d.Record, err)
		}
		if err == nil && t == nil {
			err = fmt.Errorf("%w: table %s.%s", ErrNotFound, d.Record.Database, d.Record.Name)
		}
		if err != nil {
			return nil, err
		}
		if err := t.finish(ctx); err != nil { // the next flush or start does it
			c.log.Error("end what was unfinished in a table that was brought back; it is repeated", "table", t.String(), "err", err)
		}
		c.mu.Lock()
		c.byID[t.id] = t
		c.watch(t)
		c.databases[strings.ToLower(d.Record.Database)].tables[strings.ToLower(d.Record.Name)] = t
		c.mu.Unlock()
		out = append(out, t)
	}
	return out, nil
}

// PurgeDropped removes for good what was dropped longer ago than its retention, unless a snapshot that is older still reads it.
func (c *Catalog) PurgeDropped(ctx context.Context) error {
	oldest, ok := c.pins.oldest(c.o.SnapshotMax)
	if !ok {
		oldest = index.Seq(c.durable.Load())
	}
	c.moved.forget(oldest)
	list, err := c.droppedTables()
	if err != nil || len(list) == 0 {
		return err
	}
	now := c.clock.Near()
	for i := range list {
		if list[i].Until.After(now) {
			continue
		}
		if err := c.purge(ctx, list[i].Record.ID, now); err != nil {
			return err
		}
	}
	var keys [][]byte
	err = c.eachNote(noteDatabase, func(name string, v []byte) error {
		var d droppedDatabase
		if err := json.Unmarshal(v, &d); err != nil {
			return fmt.Errorf("record of a dropped database: %w", err)
		}
		if !d.Until.After(now) {
			keys = append(keys, metaKey(noteDatabase+name))
		}
		return nil
	})
	for _, k := range keys {
		err = firstError(err, c.db.Delete(k, pebble.NoSync)) // done again if it is lost
	}
	return err
}

// purge removes one dropped table.
func (c *Catalog) purge(ctx context.Context, id index.TableID, now time.Time) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil { // they may move the folder
		return err
	}
	v, closer, err := c.db.Get(idKey(prefixDropped, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil // brought back meanwhile
	}
	if err != nil {
		return err
	}
	var d droppedTable
	err = json.Unmarshal(v, &d)
	closer.Close()
	if err != nil {
		return fmt.Errorf("record of a dropped table: %w", err)
	}
	if d.Until.After(now) || c.pinnedBefore(index.Seq(d.At.UnixMicro())) {
		return nil
	}
	b := c.db.NewBatch()
	defer b.Close()
	folder := c.object(d.Folder)
	err = firstError(c.deleteState(b, id), b.Delete(idKey(prefixDropped, id), nil), b.Set(metaKey(noteGone+folder), []byte{1}, nil))
	if err == nil {
		err = c.commitBatch(b)
	}
	if err != nil {
		return fmt.Errorf("remove dropped table %s.%s: %w", d.Record.Database, d.Record.Name, err)
	}
	return c.removeFolder(ctx, folder)
}

// deleteState removes everything that the hot tier has of a table.
func (c *Catalog) deleteState(b *pebble.Batch, id index.TableID) error {
	if err := c.index.DropTable(b, id); err != nil {
		return err
	}
	for _, p := range []byte{prefixTable, prefixPacket, prefixAuto, prefixIntent, prefixOwn, prefixEffect, prefixDefined} {
		if err := b.DeleteRange(idKey(p, id), idKey(p, id+1), nil); err != nil {
			return err
		}
	}
	return nil
}

// DropTable drops a table; it can be brought back for Options.DropRetention. The files of an attached one stay.
func (c *Catalog) DropTable(ctx context.Context, db, name string) error {
	t, ok := c.Table(db, name)
	if !ok {
		return fmt.Errorf("%w: table %s.%s", ErrNotFound, db, name)
	}
	return c.Change(ctx, Change{Tables: []TableChange{{Table: t, Drop: true}}})
}

// RenameTable gives a table another name or database; its folder moves with it.
func (c *Catalog) RenameTable(ctx context.Context, db, name, toDB, to string) error {
	t, ok := c.Table(db, name)
	if !ok {
		return fmt.Errorf("%w: table %s.%s", ErrNotFound, db, name)
	}
	return c.Change(ctx, Change{Tables: []TableChange{{Table: t, Database: toDB, Name: to}}})
}

// DropDatabase drops a database with all its tables and objects; attached tables keep their files.
func (c *Catalog) DropDatabase(ctx context.Context, name string) error {
	return c.Change(ctx, Change{DropDatabase: name})
}

// PutObject makes an object or replaces the one of that name.
func (c *Catalog) PutObject(ctx context.Context, kind, db, name string, body []byte) error {
	if body == nil {
		body = []byte{}
	}
	return c.Change(ctx, Change{Objects: []ObjectChange{{Kind: kind, Database: db, Name: name, Body: body}}})
}

// DropObject removes an object and tells whether there was one.
func (c *Catalog) DropObject(ctx context.Context, kind, db, name string) (bool, error) {
	if !slices.ContainsFunc(c.Objects(kind, db), func(o Object) bool { return strings.EqualFold(o.Name, name) }) {
		return false, nil
	}
	err := c.Change(ctx, Change{Objects: []ObjectChange{{Kind: kind, Database: db, Name: name}}})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
