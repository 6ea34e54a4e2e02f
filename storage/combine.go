package storage

import (
	"fmt"
	"slices"
)

// This file puts rows together from the columns of several versions: partial updates, whose log blocks hold the changed columns alone
// (IS_PARTIAL), and tables whose merge rules keep a stored value where an update has none.

// Combine says which columns of a version that wins are its own.
type Combine uint8

// The ways to combine versions; log blocks of partial updates are combined under each of them.
const (
	TakeWhole       Combine = iota // all columns
	KeepDefaults                   // those that are not the column's default (NULL, if it has none)
	KeepUnavailable                // those that are not MergeRules.Unavailable
)

// MergeRules is what tables of other engines ask for beyond an ordering. The zero value asks for nothing.
type MergeRules struct {
	// OrderingFields are the columns that order versions, if they are several or matter to deletes alone; they compare one after the other.
	OrderingFields []string
	// DeletesByTime compares ordering values for deletes, though rows merge in the order in which they were written.
	DeletesByTime bool
	Combine       Combine
	Unavailable   string
	// DeleteField and DeleteMarker make deletes of the log records whose field has that text; "": none.
	DeleteField, DeleteMarker string
}

func (r *MergeRules) asks() bool {
	return r.Combine != TakeWhole || r.DeleteField != "" || r.Unavailable != ""
}

// orderFields gives the columns that order versions, with the types that the table has; nil if it lacks one.
func (sc *Scan) orderFields() []Field {
	names := sc.Rules.OrderingFields
	if len(names) == 0 && sc.OrderingField != "" {
		names = []string{sc.OrderingField}
	}
	var out []Field
	for _, name := range names {
		at := -1
		if sc.Table != nil {
			at = sc.Table.Index(name)
		}
		if at < 0 {
			return nil
		}
		out = append(out, sc.Table.Fields[at])
	}
	return out
}

// fullSchema gives the meta columns and the table's.
func fullSchema(table *Schema) *Schema {
	out := &Schema{Name: table.Name, Namespace: table.Namespace}
	for _, name := range MetaColumns {
		out.Fields = append(out.Fields, Field{Name: name, Type: Type{Kind: String}, Nullable: true})
	}
	out.Fields = append(out.Fields, table.Fields...)
	return out
}

// versionRow is one version of a record.
type versionRow struct {
	vals Row
	own  []uint64 // one bit a column: the version says what the column is; others keep what an older version says
}

func (r *versionRow) has(column int) bool { return r.own[column>>6]&(1<<(column&63)) != 0 }
func (r *versionRow) set(column int)      { r.own[column>>6] |= 1 << (column & 63) }

// lay gives the row of a version over an older one: the columns that it does not have come from there.
func (r *versionRow) lay(older *versionRow) *versionRow {
	out := &versionRow{vals: slices.Clone(r.vals), own: slices.Clone(r.own)}
	for i := range out.vals {
		if !r.has(i) {
			out.vals[i] = older.vals[i]
		}
	}
	for i := range out.own {
		out.own[i] |= older.own[i]
	}
	return out
}

// combinedRows are the rows of log entries, put together as far as the logs go.
type combinedRows struct {
	schema *Schema
	rules  *MergeRules
	rows   []*versionRow // by entry; nil: a delete
	bytes  int64
}

func (c *combinedRows) add(row *versionRow) {
	c.rows = append(c.rows, row)
	c.grow(row)
}

func (c *combinedRows) grow(row *versionRow) {
	if row == nil {
		return
	}
	c.bytes += int64(len(row.vals))*16 + 64
	for _, v := range row.vals {
		switch x := v.(type) {
		case string:
			c.bytes += int64(len(x)) + 16
		case []byte:
			c.bytes += int64(len(x)) + 24
		default:
			c.bytes += 8
		}
	}
}

// over lays a version that wins over that of an entry. What follows a delete knows nothing of what was before.
func (c *combinedRows) over(entry int32, row *versionRow, deleted bool) {
	old := c.rows[entry]
	switch {
	case row == nil || old == nil && !deleted:
	case deleted:
		for i := range row.own {
			row.own[i] = ^uint64(0)
		}
	default:
		row = row.lay(old)
	}
	c.rows[entry] = row
	c.grow(row)
}

// under fills what the version of an entry lacks from one that lost against it.
func (c *combinedRows) under(entry int32, row *versionRow) {
	c.rows[entry] = c.rows[entry].lay(row)
}

// columns finds the columns wanted among those of the rows; -1: there is none.
func (c *combinedRows) columns(want *Schema) []int {
	out := make([]int, len(want.Fields))
	for i, f := range want.Fields {
		if out[i] = c.schema.Index(f.Name); out[i] >= 0 && c.schema.Fields[out[i]].Type.Kind != f.Type.Kind {
			out[i] = -1
		}
	}
	return out
}

// batch gives the rows of entries for which the base file has none.
func (c *combinedRows) batch(entries []int32, want *Schema) (Batch, error) {
	columns := c.columns(want)
	out := NewBuilder(want)
	row := make(Row, len(want.Fields))
	for _, entry := range entries {
		for i, column := range columns {
			if row[i] = nil; column >= 0 {
				row[i] = c.rows[entry].vals[column]
			}
		}
		if err := out.Append(row); err != nil {
			return Batch{}, err
		}
	}
	return out.Batch(), nil
}

// mixedRow is a row of a base file that is put together with an entry of the logs.
type mixedRow struct {
	row, entry int32
	wins       bool // the entry, else the row
}

// mix gives the rows of entries that have older ones in a base file. The first columns of the batch are those wanted.
func (c *combinedRows) mix(list []mixedRow, want *Schema, base Batch) (Batch, error) {
	columns := c.columns(want)
	out := NewBuilder(want)
	row := make(Row, len(want.Fields))
	for _, m := range list {
		entry := c.rows[m.entry]
		for i, column := range columns {
			row[i] = base.Value(i, int(m.row))
			if column < 0 {
				continue
			}
			own := entry.has(column)
			if !m.wins {
				own = column >= len(MetaColumns) && !c.keeps(row[i])
			}
			if own {
				row[i] = entry.vals[column]
			}
		}
		if err := out.Append(row); err != nil {
			return Batch{}, err
		}
	}
	return out.Batch(), nil
}

// keeps tells whether a value of a whole row counts as one.
func (c *combinedRows) keeps(v any) bool {
	switch c.rules.Combine {
	case KeepDefaults:
		return v != nil
	case KeepUnavailable:
		return v != any(c.rules.Unavailable)
	}
	return true
}

// columnDecoder reads the records of one schema as versions.
type columnDecoder struct {
	p       *program
	present []uint64 // columns that the schema has
}

// decode reads a record as a version of its row.
func (g *merger) decode(b *loadedBlock, rec []byte) (*versionRow, error) {
	d := g.decoders[b.schema]
	c := g.m.combined
	if d == nil {
		t, err := g.m.types[b.schema]()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		if g.rules.Combine == KeepDefaults {
			if err := plainDefaults(b.Schema); err != nil {
				return nil, fmt.Errorf("%s: %w", b.name, err)
			}
		}
		d = &columnDecoder{present: make([]uint64, (len(c.schema.Fields)+63)/64)}
		if d.p, err = compileProgram(t, c.schema); err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		for i := range c.schema.Fields {
			d.present[i>>6] |= 1 << (i & 63)
		}
		for _, i := range d.p.missing {
			d.present[i>>6] &^= 1 << (i & 63)
		}
		g.decoders[b.schema] = d
	}
	vals, err := d.p.row(rec, nil)
	if err != nil {
		return nil, b.corrupt(err)
	}
	out := &versionRow{vals: vals, own: make([]uint64, len(d.present))}
	for i := range vals {
		there := !b.Partial || d.present[i>>6]&(1<<(i&63)) != 0
		if there && (i < len(MetaColumns) || c.keeps(vals[i])) {
			out.set(i)
		}
	}
	return out, nil
}

// plainDefaults refuses schemas with defaults other than NULL: an update that holds such a value would mean "as before".
func plainDefaults(schema string) error {
	n, err := parseSchemaNode(schema)
	if err != nil {
		return fmt.Errorf("parsing Avro schema: %w", err)
	}
	for _, f := range n.fields {
		if f.def != nil && string(f.def) != "null" {
			return fmt.Errorf("%w: merging by defaults, with %s for column %s", ErrUnsupported, f.def, f.name)
		}
	}
	return nil
}
