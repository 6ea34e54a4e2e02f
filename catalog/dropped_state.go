package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// What was dropped can be brought back also when the state folder went after a clean stop: the stop writes to their folders what waits of
// dropped tables, and the warehouse file says what they were.

// droppedDatabases lists the databases that can be brought back, by name and time.
func (c *Catalog) droppedDatabases() (out []droppedDatabase, err error) {
	err = c.eachNote(noteDatabase, func(_ string, v []byte) error {
		var d droppedDatabase
		if err := json.Unmarshal(v, &d); err != nil {
			return fmt.Errorf("record of a dropped database: %w", err)
		}
		out = append(out, d)
		return nil
	})
	return out, err
}

func (d *droppedDatabase) key() []byte {
	return metaKey(noteDatabase + strings.ToLower(d.Database.Name) + fmt.Sprintf("/%d", d.At.UnixMicro()))
}

// outlive gives what of a dropped table holds without the state folder.
func (d droppedTable) outlive() droppedTable {
	r := &d.Record
	d.Record = tableRecord{ID: r.ID, Database: r.Database, Name: r.Name, Dir: r.Dir, Version: r.Version, Created: r.Created, Rows: r.Rows, Def: r.Def, Unindexed: true}
	d.Buffered = savedBuffer{}
	return d
}

// flushDropped writes to their files what waits of dropped tables.
func (c *Catalog) flushDropped(ctx context.Context) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	list, err := c.droppedTables()
	if err != nil {
		return err
	}
	var first error
	for i := range list {
		d := &list[i]
		_, closer, err := c.db.Get(idKey(prefixIntent, d.Record.ID))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			if d.Buffered.Rows == 0 {
				continue
			}
		case err != nil:
			return err
		default:
			closer.Close()
		}
		if d.Until.After(c.clock.Now()) {
			if err := c.flushDroppedTable(ctx, d); err != nil {
				first = firstError(first, fmt.Errorf("flush dropped table %s.%s: %w", d.Record.Database, d.Record.Name, err))
			}
		}
	}
	return first
}

func (c *Catalog) flushDroppedTable(ctx context.Context, d *droppedTable) error {
	at := d.Record
	if at.Dir = d.Folder; d.Buffered.Rows > 0 {
		w := d.Buffered
		at.Waits, w.Last = &w, at.Last
	}
	t, err := c.openFolder(ctx, &at, d)
	if err != nil || t == nil {
		return firstError(err, storage.ErrNotExist)
	}
	defer func() {
		t.close()
		c.viewMu.Lock()
		c.setCold(t.id, nil)
		c.viewMu.Unlock()
	}()
	if err = t.finish(ctx); err == nil {
		err = c.flushLinked(ctx, flushOrder{reason: "stop"}, []*Table{t})
	}
	if err != nil {
		return err
	}
	d.Buffered = savedBuffer{}
	v, err := json.Marshal(d)
	return firstError(err, c.putEntry(idKey(prefixDropped, d.Record.ID), v))
}

// saveGone is saveRecord for a dropped table whose rows are being written.
func (t *Table) saveGone(b *pebble.Batch) error {
	dir := t.gone.Record.Dir
	t.gone.Record = t.record
	t.gone.Record.Dir, t.gone.Record.Waits = dir, nil
	v, err := json.Marshal(t.gone)
	if err != nil {
		return err
	}
	return b.Set(idKey(prefixDropped, t.id), v, nil)
}

// keepIDs has no new table get the id of one that waits to be brought back, or of a folder that was put aside, whatever the warehouse file knows.
func (c *Catalog) keepIDs(ctx context.Context) error {
	for info, err := range c.store.List(ctx, c.object(droppedFolder)) {
		if errors.Is(err, storage.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if id, err := strconv.ParseUint(strings.TrimPrefix(info.Name, movingPrefix), 10, 32); err == nil {
			c.nextID = max(c.nextID, index.TableID(id)+1)
		}
	}
	return nil
}

// recoverDropped takes in what can be brought back, when the state folder is gone.
func (c *Catalog) recoverDropped(ctx context.Context, file *warehouseFile) error {
	b := c.db.NewBatch()
	defer b.Close()
	var known []string
	if file != nil {
		for i := range file.DroppedDatabases {
			v, err := json.Marshal(&file.DroppedDatabases[i])
			if err = firstError(err, b.Set(file.DroppedDatabases[i].key(), v, nil)); err != nil {
				return err
			}
		}
		for i := range file.Dropped {
			d := &file.Dropped[i]
			folder := c.object(d.Folder)
			has, err := c.isTable(ctx, folder)
			if err != nil {
				return fmt.Errorf("dropped table %s.%s: %w", d.Record.Database, d.Record.Name, err)
			}
			if !has {
				continue // it was brought back or removed since
			}
			known = append(known, folder)
			v, err := json.Marshal(d)
			if err = firstError(err, b.Set(idKey(prefixDropped, d.Record.ID), v, nil)); err != nil {
				return err
			}
		}
	}
	if err := c.commitBatch(b); err != nil {
		return err
	}
	for info, err := range c.store.List(ctx, c.object(droppedFolder)) {
		if errors.Is(err, storage.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		folder := c.object(join(droppedFolder, info.Name))
		if slices.Contains(known, folder) {
			continue
		}
		holds, err := c.holdsTable(ctx, folder)
		if err != nil {
			return err
		}
		if holds {
			c.log.Error("the folder of a table that was dropped or moved is left; nothing else of it is known, attach it with LOCATION or remove it", "folder", c.path(folder))
			continue
		}
		if err := c.store.Remove(ctx, join(folder, ".hoodie/hoodie.properties"), folder+"/"); err != nil {
			return err
		}
	}
	return nil
}
