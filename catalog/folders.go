package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Folders of tables that are dropped or renamed. The hot tier's record decides: a note that is written with it, or before the
// folder is touched, says what is left to do if the process ends in between.
const (
	noteGone  = "gone/"  // and the folder: its table is dropped
	noteMoved = "moved/" // and the table's id: the folder that it is being moved to
)

func movedKey(id index.TableID) []byte { return metaKey(fmt.Sprintf("%s%d", noteMoved, id)) }

// vacate makes room for a table's folder. What a creation that was cut short or a dropped table left is removed; a table that
// the warehouse does not know, because another engine wrote it or the hot tier forgot it, is not.
func (c *Catalog) vacate(ctx context.Context, dir string) error {
	gone, err := c.meta(noteGone + dir)
	if err != nil {
		return err
	}
	if gone == "" {
		known, err := c.holdsTable(ctx, dir)
		if err != nil {
			return err
		}
		if known {
			return fmt.Errorf("%w: folder %s holds a Hudi table that this warehouse does not know; attach it with LOCATION, or move it away", ErrExists, c.path(dir))
		}
	}
	if err := c.store.Remove(ctx, dir+"/"); err != nil || gone == "" {
		return err
	}
	return c.db.Delete(metaKey(noteGone+dir), pebble.Sync)
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

// removeDropped ends what DROP TABLE left undone.
func (c *Catalog) removeDropped(ctx context.Context) error {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: metaKey(noteGone), UpperBound: metaKey(noteGone[:len(noteGone)-1] + "0")}) // '0' follows '/'
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		if err := c.removeFolder(ctx, string(it.Key()[1+len(noteGone):])); err != nil {
			return err
		}
	}
	return it.Error()
}

// removeFolder removes the folder of a dropped table. hoodie.properties goes first: a folder without it is no table.
func (c *Catalog) removeFolder(ctx context.Context, dir string) error {
	if err := c.store.Remove(ctx, join(dir, ".hoodie/hoodie.properties"), dir+"/"); err != nil {
		return err
	}
	return c.db.Delete(metaKey(noteGone+dir), pebble.Sync)
}

// moveFolder moves a table's folder, with a note that takes it back until the table's record says otherwise.
func (c *Catalog) moveFolder(t *Table, from, to, parent string) error {
	if err := c.db.Set(movedKey(t.id), []byte(to), pebble.Sync); err != nil {
		return err
	}
	if err := c.fs.Rename(c.path(from), c.path(to)); err != nil {
		return firstError(err, c.db.Delete(movedKey(t.id), pebble.Sync))
	}
	return c.syncFolder(parent)
}

// moveBack takes back the move of a table that was not renamed in the end.
func (c *Catalog) moveBack(ctx context.Context, r *tableRecord) error {
	to, err := c.meta(fmt.Sprintf("%s%d", noteMoved, r.ID))
	if err != nil || to == "" {
		return err
	}
	from := c.object(r.Dir)
	if _, err := timeline.ReadProperties(ctx, c.store, from); errors.Is(err, storage.ErrNotExist) {
		if err := c.fs.Rename(c.path(to), c.path(from)); err != nil {
			return err
		}
		if err := c.syncFolder(c.fs.PathDir(c.path(from))); err != nil {
			return err
		}
		p, err := timeline.ReadProperties(ctx, c.store, from)
		if err != nil {
			return err
		}
		if p[timeline.KeyName] != r.Name {
			p[timeline.KeyName] = r.Name
			if err := timeline.WriteProperties(ctx, c.store, from, p); err != nil {
				return err
			}
		}
	}
	return c.db.Delete(movedKey(r.ID), pebble.Sync)
}

// forgotten gives the folders of tables of ours that the hot tier does not know.
func (c *Catalog) forgotten(ctx context.Context, folders []tableFolder) (out []tableFolder, err error) {
	known := map[string]bool{}
	for _, t := range c.tablesByID() {
		known[t.def.Load().dir] = true
	}
	for _, f := range folders {
		if known[c.object(f.dir)] {
			continue
		}
		p, err := timeline.ReadProperties(ctx, c.store, c.object(f.dir))
		if errors.Is(err, storage.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("table %s.%s: %w", f.database, f.name, err)
		}
		if p[propTable] == "" {
			continue // another engine's
		}
		if holds, err := c.holdsTable(ctx, c.object(f.dir)); err != nil {
			return nil, err
		} else if holds {
			out = append(out, f)
		}
	}
	return out, nil
}
