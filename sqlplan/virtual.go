package sqlplan

import (
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
)

// virtualDatabase is a database whose tables show the state of the server. It can only be read.
type virtualDatabase struct {
	name   string
	tables map[string]virtualTable // by lower-case name
}

var (
	_ sql.Database         = (*virtualDatabase)(nil)
	_ sql.ReadOnlyDatabase = (*virtualDatabase)(nil)
	_ sql.CollatedDatabase = (*virtualDatabase)(nil)
)

// virtualTable is one of its tables; rows are made when they are read.
type virtualTable struct {
	name    string
	columns func() sql.Schema
	rows    func(*sql.Context) ([]sql.Row, error)
}

// virtualText is the type of their columns of text.
var virtualText = types.MustCreateString(sqltypes.VarChar, 1024, DefaultCollation)

// virtualColumns makes columns from names; the type of a name follows it, text without: name:int, name:time.
func virtualColumns(names ...string) sql.Schema {
	var out sql.Schema
	for _, n := range names {
		name, kind, _ := strings.Cut(n, ":")
		c := &sql.Column{Name: name, Type: virtualText, Nullable: true}
		switch kind {
		case "int":
			c.Type = types.Int64
		case "time":
			c.Type = types.MustCreateDatetimeType(sqltypes.Datetime, 6)
		}
		out = append(out, c)
	}
	return out
}

func newVirtualDatabase(name string, tables []virtualTable) *virtualDatabase {
	d := &virtualDatabase{name: name, tables: map[string]virtualTable{}}
	for _, t := range tables {
		d.tables[strings.ToLower(t.name)] = t
	}
	return d
}

// virtualDatabases are those that every server has.
var virtualDatabases = []*virtualDatabase{lakesqlDatabase, performanceDatabase}

// virtualDatabaseOf finds one of them, nil if there is none of that name.
func (e *Engine) virtualDatabaseOf(name string) *virtualDatabase {
	if e.plainText {
		return nil
	}
	for _, d := range virtualDatabases {
		if strings.EqualFold(d.name, name) {
			return d
		}
	}
	return nil
}

func (d *virtualDatabase) Name() string                              { return d.name }
func (d *virtualDatabase) IsReadOnly() bool                          { return true }
func (d *virtualDatabase) GetCollation(*sql.Context) sql.CollationID { return DefaultCollation }
func (d *virtualDatabase) SetCollation(*sql.Context, sql.CollationID) error {
	return sql.ErrReadOnly.New()
}

// GetTableNames implements sql.Database.
func (d *virtualDatabase) GetTableNames(*sql.Context) ([]string, error) {
	var names []string
	for _, t := range d.tables {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names, nil
}

// GetTableInsensitive implements sql.Database.
func (d *virtualDatabase) GetTableInsensitive(_ *sql.Context, name string) (sql.Table, bool, error) {
	t, ok := d.tables[strings.ToLower(name)]
	if !ok {
		return nil, false, nil
	}
	out := &virtualTableOf{virtualTable: t, schema: t.columns()}
	for _, c := range out.schema {
		c.Source, c.DatabaseSource = t.name, d.name
	}
	return out, true, nil
}

// virtualTableOf is a table as a statement sees it.
type virtualTableOf struct {
	virtualTable
	schema sql.Schema
}

var _ sql.Table = (*virtualTableOf)(nil)

func (t *virtualTableOf) Name() string                   { return t.name }
func (t *virtualTableOf) String() string                 { return t.name }
func (t *virtualTableOf) Collation() sql.CollationID     { return DefaultCollation }
func (t *virtualTableOf) Schema(*sql.Context) sql.Schema { return t.schema }

// Partitions implements sql.Table.
func (t *virtualTableOf) Partitions(*sql.Context) (sql.PartitionIter, error) {
	return onePartition(&partition{}), nil
}

// PartitionRows implements sql.Table.
func (t *virtualTableOf) PartitionRows(ctx *sql.Context, _ sql.Partition) (sql.RowIter, error) {
	rows, err := t.rows(ctx)
	if err != nil {
		return nil, mysqlError(err)
	}
	return sql.RowsToRowIter(rows...), nil
}

// With accounts the front end wraps every database in one that claims all kinds of objects, so it is asked for them.

var (
	_ sql.ViewDatabase            = (*virtualDatabase)(nil)
	_ sql.TriggerDatabase         = (*virtualDatabase)(nil)
	_ sql.StoredProcedureDatabase = (*virtualDatabase)(nil)
	_ sql.EventDatabase           = (*virtualDatabase)(nil)
)

func readOnly() error { return sql.ErrReadOnly.New() }

func (*virtualDatabase) AllViews(*sql.Context) ([]sql.ViewDefinition, error) { return nil, nil }
func (*virtualDatabase) GetViewDefinition(*sql.Context, string) (sql.ViewDefinition, bool, error) {
	return sql.ViewDefinition{}, false, nil
}

func (*virtualDatabase) CreateView(*sql.Context, string, string, string) error { return readOnly() }

func (*virtualDatabase) DropView(*sql.Context, string) error { return readOnly() }

func (*virtualDatabase) GetTriggers(*sql.Context) ([]sql.TriggerDefinition, error) {
	return nil, nil
}

func (*virtualDatabase) CreateTrigger(*sql.Context, sql.TriggerDefinition) error {
	return readOnly()
}
func (*virtualDatabase) DropTrigger(*sql.Context, string) error { return readOnly() }

func (*virtualDatabase) GetStoredProcedure(*sql.Context, string) (sql.StoredProcedureDetails, bool, error) {
	return sql.StoredProcedureDetails{}, false, nil
}

func (*virtualDatabase) GetStoredProcedures(*sql.Context) ([]sql.StoredProcedureDetails, error) {
	return nil, nil
}

func (*virtualDatabase) SaveStoredProcedure(*sql.Context, sql.StoredProcedureDetails) error {
	return readOnly()
}
func (*virtualDatabase) DropStoredProcedure(*sql.Context, string) error { return readOnly() }

func (*virtualDatabase) GetEvent(*sql.Context, string) (sql.EventDefinition, bool, error) {
	return sql.EventDefinition{}, false, nil
}

func (*virtualDatabase) GetEvents(*sql.Context) ([]sql.EventDefinition, any, error) {
	return nil, nil, nil
}

func (*virtualDatabase) SaveEvent(*sql.Context, sql.EventDefinition) (bool, error) {
	return false, readOnly()
}
func (*virtualDatabase) DropEvent(*sql.Context, string) error { return readOnly() }
func (*virtualDatabase) UpdateEvent(*sql.Context, string, sql.EventDefinition) (bool, error) {
	return false, readOnly()
}

func (*virtualDatabase) UpdateLastExecuted(*sql.Context, string, time.Time) error {
	return readOnly()
}

func (*virtualDatabase) NeedsToReloadEvents(*sql.Context, any) (bool, error) { return false, nil }
