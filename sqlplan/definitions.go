package sqlplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// definition is everything that the engine derives from one version of a table. It is shared by all sessions.
type definition struct {
	version   uint64
	name      string // the table's name when this was made
	spec      *catalog.TableSpec
	table     *tableDefinition
	pk        sql.PrimaryKeySchema
	collation sql.CollationID
	codec     *rowCodec // of whole rows
	ordering  int       // column of event times, -1
	auto      int       // AUTO_INCREMENT column, -1
}

// definitionOf gives a table's definition, read once a version; the statement that changes it sees what it is to be.
func (e *Engine) definitionOf(ctx *sql.Context, t *catalog.Table) (*definition, error) {
	if p := sessionOf(ctx).stmt.change.of(t); p != nil {
		if p.def != nil && p.def.name == p.name {
			return p.def, nil
		}
		spec := t.Spec()
		if p.def != nil {
			spec = p.def.spec
		}
		if p.def != nil || p.name != t.Name() || p.db != t.Database() {
			return newDefinition(ctx, p.db, p.name, t.Version(), spec)
		}
	}
	version, name := t.Version(), t.Name()
	e.mu.Lock()
	d := e.definitions[t]
	e.mu.Unlock()
	if d != nil && d.version == version && d.name == name {
		return d, nil
	}
	d, err := newDefinition(ctx, t.Database(), name, version, t.Spec())
	if err != nil {
		return nil, mysqlError(fmt.Errorf("table %s.%s: %w", t.Database(), t.Name(), err))
	}
	e.mu.Lock()
	e.definitions[t] = d
	e.mu.Unlock()
	return d, nil
}

// newDefinition derives what the engine needs of a table from its specification.
func newDefinition(ctx *sql.Context, db, name string, version uint64, spec *catalog.TableSpec) (*definition, error) {
	d := &definition{version: version, name: name, spec: spec, ordering: -1, auto: -1}
	var err error
	if len(d.spec.Definition) == 0 {
		d.table, err = attachedDefinition(ctx, db, name, d.spec)
	} else {
		d.table, err = decodeTableDefinition(d.spec.Definition)
	}
	if err != nil {
		return nil, err
	}
	if d.pk, err = d.table.schema(ctx, db, name); err != nil {
		return nil, err
	}
	if d.collation, err = d.table.collation(); err != nil {
		return nil, err
	}
	if d.codec, err = newRowCodec(kept(d.table, d.pk.Schema), d.spec.Schema); err != nil {
		return nil, err
	}
	if d.spec.AutoIncrement != "" {
		d.auto = d.column(d.spec.AutoIncrement)
	}
	if d.spec.Ordering == storage.EventTime {
		d.ordering = d.column(d.spec.OrderingField)
	}
	return d, nil
}

// column gives the position of a column, -1 if there is none.
func (d *definition) column(name string) int {
	return slices.IndexFunc(d.pk.Schema, func(c *sql.Column) bool { return strings.EqualFold(c.Name, name) })
}

// forgetTable drops what is derived from a table that is gone.
func (e *Engine) forgetTable(t *catalog.Table) {
	e.mu.Lock()
	delete(e.definitions, t)
	e.references = nil
	e.mu.Unlock()
}

// attachedDefinition makes the MySQL definition of a table that another engine wrote.
func attachedDefinition(ctx *sql.Context, db, name string, spec *catalog.TableSpec) (*tableDefinition, error) {
	var sch sql.Schema
	key := make([]int, 0, len(spec.Key))
	for _, f := range spec.Schema.Fields {
		c := &sql.Column{Name: f.Name, Type: sqlType(f), Nullable: true, Source: name, DatabaseSource: db}
		if slices.ContainsFunc(spec.Key, func(k catalog.KeyColumn) bool { return k.Column == f.Name }) {
			c.Type, c.Nullable, c.PrimaryKey = sqlKeyType(f), false, true
		}
		sch = append(sch, c)
	}
	for _, k := range spec.Key {
		key = append(key, sch.IndexOfColName(k.Column))
	}
	return newTableDefinition(ctx, sql.NewPrimaryKeySchema(sch, key...), attachedCollation, "")
}

// keyColumns translates the columns of a key or an index for the catalog.
func keyColumns(sch sql.Schema, parts []keyPart) ([]catalog.KeyColumn, error) {
	out := make([]catalog.KeyColumn, len(parts))
	for i, p := range parts {
		n := slices.IndexFunc(sch, func(c *sql.Column) bool { return strings.EqualFold(c.Name, p.Column) })
		if n < 0 {
			return nil, sql.ErrKeyColumnDoesNotExist.New(p.Column)
		}
		collation, _, ok := keyCollation(sch[n].Type)
		if !ok {
			return nil, errKeyType(sch[n])
		}
		out[i] = catalog.KeyColumn{Column: sch[n].Name, Collation: collation, Prefix: p.Prefix}
	}
	return out, nil
}

// indexSpecs translates the secondary indexes for the catalog.
func indexSpecs(sch sql.Schema, list []indexDefinition) ([]catalog.IndexSpec, error) {
	out := make([]catalog.IndexSpec, len(list))
	for i, x := range list {
		cols, err := keyColumns(sch, x.Columns)
		if err != nil {
			return nil, err
		}
		out[i] = catalog.IndexSpec{Name: x.Name, Columns: cols, Unique: x.Unique}
	}
	return out, nil
}

// kept gives the schema with the VIRTUAL columns that an index needs as if they were STORED: the files keep them, so that the
// index can be built from the files.
func kept(def *tableDefinition, sch sql.Schema) sql.Schema {
	if !sch.HasVirtualColumns() {
		return sch
	}
	out := slices.Clone(sch)
	keep := func(parts []keyPart) {
		for _, p := range parts {
			if n := def.columnNumber(p.Column); n >= 0 && out[n].Virtual {
				c := *out[n]
				c.Virtual = false
				out[n] = &c
			}
		}
	}
	keep(def.PrimaryKey)
	for _, x := range def.Indexes {
		keep(x.Columns)
	}
	return out
}

// tableSchema gives the table schema of the files: a field for each column that is kept.
func tableSchema(sch sql.Schema) (*storage.Schema, error) {
	st := &storage.Schema{}
	for _, c := range sch {
		if c.Virtual {
			continue
		}
		if slices.ContainsFunc(storage.MetaColumns, func(m string) bool { return strings.EqualFold(m, c.Name) }) {
			return nil, errReservedColumn(c.Name)
		}
		t, err := storageType(c.Type)
		if err != nil {
			return nil, err
		}
		st.Fields = append(st.Fields, storage.Field{Name: c.Name, Type: t, Nullable: c.Nullable})
	}
	if len(st.Fields) == 0 {
		return nil, errNoColumns()
	}
	return st, nil
}
