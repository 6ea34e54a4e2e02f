package catalog

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/timeline"
)

// CreateDraft makes the folder of a new table that nobody finds yet: the Change that names it makes it known, with the definition that
// it has then. DropDraft takes it back; after a crash nothing of it is left but a folder that is no table.
func (c *Catalog) CreateDraft(ctx context.Context, db, name string, spec TableSpec) (*Table, error) {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return nil, err
	}
	t, err := c.makeTable(ctx, db, name, spec)
	if err != nil {
		return nil, err
	}
	t.draft = true
	c.viewMu.Lock()
	c.setCold(t.id, &coldState{tl: &timeline.Timeline{}, view: &timeline.View{}, since: t.record.Created})
	c.viewMu.Unlock()
	c.mu.Lock()
	c.byID[t.id] = t
	c.mu.Unlock()
	return t, nil
}

// KeepDraft has a draft take rows, which go with it if no Change makes it known.
func (c *Catalog) KeepDraft(t *Table) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if !t.draft || t.record.Draft {
		return nil
	}
	b := c.db.NewBatch()
	defer b.Close()
	c.commitMu.Lock()
	t.record.Draft = true
	err := t.saveRecord(b, c.cold(t.id))
	c.commitMu.Unlock()
	return firstError(err, c.saveNext(b), b.Commit(pebble.Sync))
}

// DropDraft removes a table that no Change made known.
func (c *Catalog) DropDraft(ctx context.Context, t *Table) {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if !t.draft {
		return
	}
	c.forgetDraft(t)
	if t.record.Draft {
		if err := c.dropState(t.id); err != nil {
			c.log.Warn("remove a table that was not made; the next start does", "table", t.String(), "err", err)
			return
		}
	}
	if err := c.store.Remove(context.WithoutCancel(ctx), t.def.Load().dir+"/"); err != nil {
		c.log.Warn("remove the folder of a table that was not made; the next one of its name takes it", "folder", t.Location(), "err", err)
	}
}

// forgetDraft takes a draft out of memory.
func (c *Catalog) forgetDraft(t *Table) {
	t.close()
	c.mu.Lock()
	delete(c.byID, t.id)
	c.mu.Unlock()
	c.viewMu.Lock()
	c.setCold(t.id, nil)
	c.viewMu.Unlock()
}

// errDraft is what another creation of the same name meets.
func errDraft(db, name string) error {
	return fmt.Errorf("%w: table %s.%s is being made", ErrExists, db, name)
}
