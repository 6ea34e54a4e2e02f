package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// SchemaHistory has the versions of a table's schema in which columns go by ids (schema-on-read): a column that was renamed keeps its
// id, and one that was dropped and added again under its name gets another.
type SchemaHistory struct {
	versions []schemaVersion // oldest first
}

type schemaVersion struct {
	id    int64 // the instant that made it, as a number; 0: the table's first schema
	ids   map[string]int
	names map[int]string
	types map[int]historyType
}

// historyType is a type in Hudi's own form: a name, or a nested type whose parts have ids.
type historyType struct {
	name   string // of a scalar; of a nested type its kind
	fields []historyField
}

type historyField struct {
	id   int
	name string
	typ  historyType
}

// UnmarshalJSON reads a type.
func (t *historyType) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &t.name) == nil {
		return nil
	}
	var o struct {
		Type    string `json:"type"`
		Fields  []historyField
		Element *historyType `json:"element"`
		EID     int          `json:"element_id"`
		Key     *historyType `json:"key"`
		KID     int          `json:"key_id"`
		Value   *historyType `json:"value"`
		VID     int          `json:"value_id"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	t.name, t.fields = o.Type, o.Fields
	for _, part := range []struct {
		name string
		id   int
		typ  *historyType
	}{{"element", o.EID, o.Element}, {"key", o.KID, o.Key}, {"value", o.VID, o.Value}} {
		if part.typ != nil {
			t.fields = append(t.fields, historyField{part.id, part.name, *part.typ})
		}
	}
	return nil
}

// UnmarshalJSON reads a column or a field of a nested one.
func (f *historyField) UnmarshalJSON(b []byte) error {
	var o struct {
		ID   int         `json:"id"`
		Name string      `json:"name"`
		Type historyType `json:"type"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*f = historyField{o.ID, o.Name, o.Type}
	return nil
}

// grewTo tells whether values of a type read by name as those of a later one: nothing inside was renamed or dropped.
func (t *historyType) grewTo(later *historyType) bool {
	if len(t.fields) == 0 {
		return true
	}
	names := map[string]bool{}
	for i := range t.fields {
		f := &t.fields[i]
		at := slices.IndexFunc(later.fields, func(o historyField) bool { return o.id == f.id })
		if at < 0 || later.fields[at].name != f.name || !f.typ.grewTo(&later.fields[at].typ) {
			return false
		}
		names[f.name] = true
	}
	return !slices.ContainsFunc(later.fields, func(o historyField) bool {
		return names[o.name] && !slices.ContainsFunc(t.fields, func(f historyField) bool { return f.id == o.id })
	})
}

// ParseSchemaHistory reads the content of a schemacommit. Changes inside of nested columns other than new fields are refused by the name
// of the column; the error wraps ErrUnsupported then.
func ParseSchemaHistory(b []byte) (*SchemaHistory, error) {
	var o struct {
		Schemas []struct {
			Version int64          `json:"version_id"`
			Fields  []historyField `json:"fields"`
		} `json:"schemas"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("schema history: %w", err)
	}
	if len(o.Schemas) == 0 {
		return nil, fmt.Errorf("schema history: no schema in it")
	}
	h := &SchemaHistory{}
	for _, s := range o.Schemas {
		v := schemaVersion{s.Version, map[string]int{}, map[int]string{}, map[int]historyType{}}
		for _, f := range s.Fields {
			if _, ok := v.ids[f.name]; ok || v.names[f.id] != "" || f.name == "" {
				return nil, fmt.Errorf("schema history: version %d names column %d %q twice", s.Version, f.id, f.name)
			}
			v.ids[f.name], v.names[f.id], v.types[f.id] = f.id, f.name, f.typ
		}
		h.versions = append(h.versions, v)
	}
	slices.SortStableFunc(h.versions, func(a, b schemaVersion) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return 0
	})
	for i := 1; i < len(h.versions); i++ {
		for id, old := range h.versions[i-1].types {
			if now, ok := h.versions[i].types[id]; ok && !old.grewTo(&now) {
				return nil, fmt.Errorf("%w: schema-on-read change inside column %s", ErrUnsupported, h.versions[i].names[id])
			}
		}
	}
	return h, nil
}

// at gives the version in which files of an instant were written.
func (h *SchemaHistory) at(it InstantTime) *schemaVersion {
	n, err := strconv.ParseInt(string(it), 10, 64)
	if err != nil {
		n = 0
	}
	return h.version(n)
}

// version gives the newest version at or below an id, the first one if there is none.
func (h *SchemaHistory) version(id int64) *schemaVersion {
	out := &h.versions[0]
	for i := range h.versions {
		if h.versions[i].id <= id {
			out = &h.versions[i]
		}
	}
	return out
}

// VersionAt gives the id of the version that an instant wrote in.
func (h *SchemaHistory) VersionAt(it InstantTime) int64 { return h.at(it).id }

// Newest gives the id of the newest version.
func (h *SchemaHistory) Newest() int64 { return h.versions[len(h.versions)-1].id }

// then gives the name that a column of a later (or earlier) version has in files of this one; false: they do not have it.
func (v *schemaVersion) then(query *schemaVersion, name string) (string, bool) {
	id, ok := query.ids[name]
	if !ok {
		return name, true // none of the history's, such as one that is not the table's
	}
	then, ok := v.names[id]
	return then, ok
}

// fileColumns gives the columns wanted under the names that they have in a base file of an instant.
func (sc *Scan) fileColumns(want *Schema, it InstantTime) *Schema {
	if sc.History == nil {
		return want
	}
	query, v := sc.History.version(sc.Version), sc.History.at(it)
	if query == v {
		return want
	}
	out := &Schema{Name: want.Name, Namespace: want.Namespace, Fields: slices.Clone(want.Fields)}
	for i := range out.Fields {
		then, ok := v.then(query, out.Fields[i].Name)
		if !ok {
			then = fmt.Sprintf("\x00%d", i) // no file has it
		}
		out.Fields[i].Name = then
	}
	return out
}

// logTypes gives the record types of blocks, with the names that the columns have in the scan's version. The blocks are those of the
// queue, numbered anew where instants of several versions wrote the same schema.
func (sc *Scan) logTypes(queue []*loadedBlock, schemas []string) ([]*loadedBlock, []func() (*avroType, error)) {
	types := make([]func() (*avroType, error), len(schemas))
	for i, text := range schemas {
		types[i] = sync.OnceValues(func() (*avroType, error) { return parseAvroType(text) })
	}
	if sc.History == nil {
		return queue, types
	}
	type source struct {
		schema  int
		version int64
	}
	query := sc.History.version(sc.Version)
	numbers := map[source]int{}
	out := make([]*loadedBlock, len(queue))
	for i, b := range queue {
		v := sc.History.at(b.Instant)
		if out[i] = b; v == query {
			continue
		}
		key := source{b.schema, v.id}
		n, ok := numbers[key]
		if !ok {
			n = len(types)
			numbers[key] = n
			written := types[b.schema]
			types = append(types, sync.OnceValues(func() (*avroType, error) {
				t, err := written()
				if err != nil {
					return nil, err
				}
				return t.renamed(query, v), nil
			}))
		}
		renamed := *b
		renamed.schema = n
		out[i] = &renamed
	}
	return out, types
}

// renamed gives a record type of version v with the names of version query; fields that it does not have any more get none.
func (t *avroType) renamed(query, v *schemaVersion) *avroType {
	out := *t
	out.fields = slices.Clone(t.fields)
	for i := range out.fields {
		f := &out.fields[i]
		if id, ok := v.ids[f.name]; ok {
			f.name = query.names[id]
		}
	}
	return &out
}
