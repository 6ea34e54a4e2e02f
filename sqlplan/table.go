package sqlplan

import (
	"math"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// table is a table as one statement sees it: which columns, as of when, with or without the statement's own writes.
type table struct {
	db        *database
	catalog   *catalog.Catalog // the warehouse, or the one of temporary tables
	t         *catalog.Table
	def       *definition
	temporary bool

	whole      sql.Schema // all columns: the table's own, then the meta columns if the statement names some
	schema     sql.Schema // the columns that it gives, in order
	projection []string   // names as asked for; nil: all
	columns    []string   // names in the table's files, "" for VIRTUAL columns that are not kept
	old        *catalog.Snapshot
	optimized  bool            // base files only
	changes    *timeline.Range // the rows that instants in a range wrote; nil: all rows
	editing    bool            // for checks of the running statement: its writes are seen
	filled     bool            // ADD COLUMN has given the rows their values, which the front end is about to do again

	lock    *dialect.RowLock // of a locking clause; nil: none
	reading reading          // for what the statement reads it
	current bool             // its newest state is read, without locks
}

// ownTable is a table in its present state, which can be changed. table alone is what AS OF gives.
type ownTable struct{ *table }

var (
	_ sql.Table                 = (*table)(nil)
	_ sql.PrimaryKeyTable       = (*table)(nil)
	_ sql.ProjectedTable        = (*table)(nil)
	_ sql.StatisticsTable       = (*table)(nil)
	_ sql.CommentedTable        = (*table)(nil)
	_ sql.TemporaryTable        = (*table)(nil)
	_ sql.Databaseable          = (*table)(nil)
	_ sql.CheckTable            = (*table)(nil)
	_ sql.AutoIncrementGetter   = (*table)(nil)
	_ sql.IndexAddressableTable = (*ownTable)(nil)
	_ sql.ProjectedTable        = (*ownTable)(nil)
)

// metaPrefix stands before the names of meta columns in the schema that the front end sees. Columns whose name contains the
// front end's prefix are left out of SELECT *, and only those that begin with it may not be named.
const metaPrefix = "lakesql" + sql.HiddenSystemColumnPrefix

func newTable(ctx *sql.Context, db *database, c *catalog.Catalog, t *catalog.Table, temporary bool) (*table, error) {
	def, err := db.engine.definitionOf(ctx, t)
	if err != nil {
		return nil, err
	}
	return tableOf(ctx, db, c, t, def, temporary), nil
}

// tableOf makes a table under a definition.
func tableOf(ctx *sql.Context, db *database, c *catalog.Catalog, t *catalog.Table, def *definition, temporary bool) *table {
	out := &table{db: db, catalog: c, t: t, def: def, temporary: temporary, schema: def.pk.Schema}
	if temporary {
		// The catalog of temporary tables has a database a session.
		out.schema = out.schema.Copy()
		for _, col := range out.schema {
			col.DatabaseSource = db.name
		}
	}
	if sessionOf(ctx).offersMeta(def.name) {
		out.schema = slices.Clone(out.schema)
		for _, name := range storage.MetaColumns {
			out.schema = append(out.schema, &sql.Column{
				Name: metaPrefix + name, Type: attachedText, Nullable: true, HiddenSystem: true,
				Source: def.name, DatabaseSource: db.name,
			})
		}
	}
	out.whole = out.schema
	out.columns = out.fileColumns(out.schema)
	return out
}

// fileColumns gives the names of columns in the table's files, "" for those that are not kept.
func (t *table) fileColumns(sch sql.Schema) []string {
	out := make([]string, len(sch))
	for i, c := range sch {
		switch {
		case c.Virtual && fieldIndex(t.def.spec.Schema, c.Name) < 0:
		case isMeta(c.Name):
			out[i] = c.Name[len(metaPrefix):]
		default:
			out[i] = c.Name
		}
	}
	return out
}

func isMeta(name string) bool { return strings.HasPrefix(name, metaPrefix+"_hoodie_") }

// own is the table with everything that can change it.
func (t *table) own() sql.Table { return &ownTable{t} }

func (t *table) Name() string                   { return t.def.name }
func (t *table) String() string                 { return t.def.name }
func (t *table) Database() string               { return t.db.name }
func (t *table) Collation() sql.CollationID     { return t.def.collation }
func (t *table) Comment() string                { return t.def.table.Comment }
func (t *table) IsTemporary() bool              { return t.temporary }
func (t *table) Projections() []string          { return t.projection }
func (t *table) Schema(*sql.Context) sql.Schema { return t.schema }

// PrimaryKeySchema is of the whole table, whatever the projection.
func (t *table) PrimaryKeySchema(*sql.Context) sql.PrimaryKeySchema {
	return sql.PrimaryKeySchema{Schema: t.whole, PkOrdinals: t.def.pk.PkOrdinals}
}

func (t *table) WithProjections(ctx *sql.Context, names []string) (sql.Table, error) {
	return t.project(names)
}

func (t *ownTable) WithProjections(ctx *sql.Context, names []string) (sql.Table, error) {
	p, err := t.project(names)
	if err != nil {
		return nil, err
	}
	return p.own(), nil
}

// project gives the table with only these columns, in this order; nil: all.
func (t *table) project(names []string) (*table, error) {
	p := *t
	if names == nil {
		p.schema, p.projection = t.whole, nil
		p.columns = p.fileColumns(p.schema)
		return &p, nil
	}
	p.projection = names
	p.schema = make(sql.Schema, len(names))
	for i, n := range names {
		k := t.whole.IndexOfColName(n)
		if k < 0 {
			return nil, sql.ErrTableColumnNotFound.New(t.Name(), n)
		}
		p.schema[i] = t.whole[k]
	}
	p.columns = p.fileColumns(p.schema)
	return &p, nil
}

// DataLength is the bytes of the table's files and of its rows that wait for a flush.
func (t *table) DataLength(ctx *sql.Context) (uint64, error) {
	return uint64(max(t.t.DataBytes(), 0)), nil
}

// RowCount is an estimate: commits keep it, other engines' commits are added when they are seen.
func (t *table) RowCount(ctx *sql.Context) (uint64, bool, error) {
	return uint64(max(t.t.RowCount(), 0)), false, nil
}

// PeekNextAutoIncrementValue gives the next AUTO_INCREMENT value and leaves it there.
func (t *table) PeekNextAutoIncrementValue(ctx *sql.Context) (uint64, error) {
	v, err := t.t.PeekAutoIncrement(ctx)
	return t.lastNumber(ctx, v), mysqlError(err)
}

// lastNumber keeps an AUTO_INCREMENT value within its column's type: the largest one is given again and again, so that
// further rows are duplicates, as in MySQL.
func (t *table) lastNumber(ctx *sql.Context, v uint64) uint64 {
	i := t.def.column(t.def.spec.AutoIncrement)
	if i < 0 {
		return v
	}
	typ, ok := t.def.pk.Schema[i].Type.(types.NumberTypeImpl_)
	if !ok {
		return v
	}
	var last uint64 = math.MaxInt64
	switch typ.Type() {
	case sqltypes.Uint64:
		if last = math.MaxUint64; v == 0 {
			return last
		}
	case sqltypes.Float32, sqltypes.Float64, sqltypes.Int64:
	default:
		_, hi := intLimits(typ)
		last = uint64(hi)
	}
	return min(v, last)
}

func (t *table) GetChecks(ctx *sql.Context) ([]sql.CheckDefinition, error) {
	out := make([]sql.CheckDefinition, len(t.def.table.Checks))
	for i, c := range t.def.table.Checks {
		out[i] = c.sql()
	}
	return out, nil
}
