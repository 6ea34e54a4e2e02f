package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// foreignSchema gives the table's schema with its instant if the newest instant is another engine's, nil if it is ours.
func (t *Table) foreignSchema(ctx context.Context, tl *timeline.Timeline) (*storage.Schema, storage.InstantTime, error) {
	c, d := t.c, t.def.Load()
	for _, in := range slices.Backward(tl.Completed()) {
		m, err := timeline.ReadCommit(ctx, c.store, d.dir, in)
		if err != nil {
			return nil, "", err
		}
		if m.Extra[extraWarehouse] == c.id {
			return nil, "", nil
		}
		if m.Extra[timeline.ExtraSchema] == "" || m.Operation == timeline.OpCompact || m.Operation == timeline.OpCluster {
			continue // a service, which changes no schema
		}
		s, err := storage.ParseAvro(m.Extra[timeline.ExtraSchema])
		if err != nil {
			return nil, "", fmt.Errorf("schema in %s: %w", schemaFile(tl, in.Time), err)
		}
		return s, in.Time, nil
	}
	return nil, "", nil
}

// evolved looks whether another engine changed the schema. An attached table follows; a table of ours, whose definition is SQL's, is
// only read until ALTER TABLE brings its definition up to that: what is written without the new columns would empty them.
func (t *Table) evolved(ctx context.Context, tl *timeline.Timeline) error {
	s, of, err := t.foreignSchema(ctx, tl)
	if err != nil {
		return err
	}
	t.foreign.Store(s)
	d := t.def.Load()
	if !d.spec.Attached {
		t.setDef(d)
		return nil
	}
	p := tl.Properties()
	if p == nil {
		p = d.properties
	}
	if s == nil {
		s = d.spec.Schema
	}
	c := t.c
	h, err := timeline.SchemaHistory(ctx, c.store, d.dir)
	if err != nil {
		return err
	}
	version := d.schemaVersion
	if h != nil && of != "" {
		version = h.VersionAt(of)
	}
	same := (h == nil) == (d.history == nil) && (h == nil || h.Newest() == d.history.Newest()) && version == d.schemaVersion
	if same && slices.Equal(s.Fields, d.spec.Schema.Fields) && maps.Equal(p, d.properties) {
		return nil
	}
	spec := *d.spec
	spec.Schema = s
	c.commitMu.Lock()
	r := t.record
	c.commitMu.Unlock()
	r.Def = *spec.define(&r.Def, r.Created)
	r.Def.SchemaVersion = version
	r.Version++
	next, err := c.compile(&r, p)
	if err != nil {
		return err
	}
	next.setHistory(h)
	c.commitMu.Lock()
	t.record = r // saved with the adoption
	c.commitMu.Unlock()
	t.setDef(next)
	return nil
}

// setDef makes a definition the table's, read only if another engine's schema has what it does not.
func (t *Table) setDef(d *tableDef) {
	s := t.foreign.Load()
	why := ""
	if s != nil && !d.spec.Attached {
		why = d.lacks(s)
	}
	if d.behind != "" || why != "" {
		n := *d
		if n.readOnly == n.behind {
			n.readOnly = why
		}
		n.behind = why
		if n.behind != d.behind {
			d = &n
		}
	}
	if t.def.Load() != d {
		t.def.Store(d)
	}
}

// lacks says what a schema has that the definition never had; "" if nothing.
func (d *tableDef) lacks(s *storage.Schema) string {
	for _, f := range s.Fields {
		known := false
		for _, old := range d.schemas {
			known = known || old != nil && old.Index(f.Name) >= 0
		}
		if !known {
			return fmt.Sprintf("another engine added column %s, which its definition lacks", f.Name)
		}
		if i := d.spec.Schema.Index(f.Name); i >= 0 {
			if ours := d.spec.Schema.Fields[i].Type; ours.Kind != f.Type.Kind && storage.Promotable(ours, f.Type) {
				return fmt.Sprintf("another engine gave column %s a wider type, which its definition lacks", f.Name)
			}
		}
	}
	return ""
}
