package sqlplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
)

// performanceSchema is the name of a database that programs read when they connect. It has the variables; nothing is
// measured in it.
const performanceSchema = "performance_schema"

// performanceDatabase is that database. It can only be read.
type performanceDatabase struct{}

var (
	_ sql.Database         = performanceDatabase{}
	_ sql.ReadOnlyDatabase = performanceDatabase{}
	_ sql.CollatedDatabase = performanceDatabase{}
)

// variableTables are its tables, with how each finds its names and values.
var variableTables = map[string]func(*sql.Context) map[string]any{
	"session_variables": func(ctx *sql.Context) map[string]any { return ctx.GetAllSessionVariables() },
	"global_variables":  func(*sql.Context) map[string]any { return sql.SystemVariables.GetAllGlobalVariables() },
	"session_status":    func(ctx *sql.Context) map[string]any { return statusValues(ctx.Session.GetAllStatusVariables(ctx)) },
	"global_status": func(*sql.Context) map[string]any {
		out := map[string]any{}
		for name, v := range sql.StatusVariables.NewGlobalMap() {
			out[name] = v.Value()
		}
		return out
	},
}

func statusValues(all map[string]sql.StatusVarValue) map[string]any {
	out := make(map[string]any, len(all))
	for name, v := range all {
		out[name] = v.Value()
	}
	return out
}

func (performanceDatabase) Name() string                              { return performanceSchema }
func (performanceDatabase) IsReadOnly() bool                          { return true }
func (performanceDatabase) GetCollation(*sql.Context) sql.CollationID { return DefaultCollation }
func (performanceDatabase) SetCollation(*sql.Context, sql.CollationID) error {
	return sql.ErrReadOnly.New()
}

func (performanceDatabase) GetTableNames(*sql.Context) ([]string, error) {
	var names []string
	for name := range variableTables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (performanceDatabase) GetTableInsensitive(_ *sql.Context, name string) (sql.Table, bool, error) {
	name = strings.ToLower(name)
	values, ok := variableTables[name]
	if !ok {
		return nil, false, nil
	}
	return &variableTable{name, values}, true, nil
}

// variableTable has a row for each variable.
type variableTable struct {
	name   string
	values func(*sql.Context) map[string]any
}

var _ sql.Table = (*variableTable)(nil)

func (t *variableTable) Name() string               { return t.name }
func (t *variableTable) String() string             { return t.name }
func (t *variableTable) Collation() sql.CollationID { return DefaultCollation }

// Schema implements sql.Table.
func (t *variableTable) Schema(*sql.Context) sql.Schema {
	text := types.MustCreateString(sqltypes.VarChar, 1024, DefaultCollation)
	return sql.Schema{
		{Name: "VARIABLE_NAME", Type: text, Source: t.name, DatabaseSource: performanceSchema},
		{Name: "VARIABLE_VALUE", Type: text, Nullable: true, Source: t.name, DatabaseSource: performanceSchema},
	}
}

// Partitions implements sql.Table.
func (t *variableTable) Partitions(*sql.Context) (sql.PartitionIter, error) {
	return onePartition(&partition{}), nil
}

// PartitionRows implements sql.Table.
func (t *variableTable) PartitionRows(ctx *sql.Context, _ sql.Partition) (sql.RowIter, error) {
	var rows []sql.Row
	for name, v := range t.values(ctx) {
		rows = append(rows, sql.NewRow(name, variableText(v)))
	}
	sortRows(rows)
	return sql.RowsToRowIter(rows...), nil
}

// variableText writes a value as SHOW VARIABLES does.
func variableText(v any) any {
	switch v := v.(type) {
	case nil:
		return ""
	case int8:
		switch v {
		case 0:
			return "OFF"
		case 1:
			return "ON"
		}
	case bool:
		if v {
			return "ON"
		}
		return "OFF"
	case float64:
		return floatText(v, 64)
	}
	return fmt.Sprint(v)
}

// With accounts the front end wraps every database in one that claims all kinds of objects, so it is asked for them.

var (
	_ sql.ViewDatabase            = performanceDatabase{}
	_ sql.TriggerDatabase         = performanceDatabase{}
	_ sql.StoredProcedureDatabase = performanceDatabase{}
	_ sql.EventDatabase           = performanceDatabase{}
)

func readOnly() error { return sql.ErrReadOnly.New() }

func (performanceDatabase) AllViews(*sql.Context) ([]sql.ViewDefinition, error) { return nil, nil }
func (performanceDatabase) GetViewDefinition(*sql.Context, string) (sql.ViewDefinition, bool, error) {
	return sql.ViewDefinition{}, false, nil
}

func (performanceDatabase) CreateView(*sql.Context, string, string, string) error { return readOnly() }

func (performanceDatabase) DropView(*sql.Context, string) error { return readOnly() }

func (performanceDatabase) GetTriggers(*sql.Context) ([]sql.TriggerDefinition, error) {
	return nil, nil
}

func (performanceDatabase) CreateTrigger(*sql.Context, sql.TriggerDefinition) error {
	return readOnly()
}
func (performanceDatabase) DropTrigger(*sql.Context, string) error { return readOnly() }

func (performanceDatabase) GetStoredProcedure(*sql.Context, string) (sql.StoredProcedureDetails, bool, error) {
	return sql.StoredProcedureDetails{}, false, nil
}

func (performanceDatabase) GetStoredProcedures(*sql.Context) ([]sql.StoredProcedureDetails, error) {
	return nil, nil
}

func (performanceDatabase) SaveStoredProcedure(*sql.Context, sql.StoredProcedureDetails) error {
	return readOnly()
}
func (performanceDatabase) DropStoredProcedure(*sql.Context, string) error { return readOnly() }

func (performanceDatabase) GetEvent(*sql.Context, string) (sql.EventDefinition, bool, error) {
	return sql.EventDefinition{}, false, nil
}

func (performanceDatabase) GetEvents(*sql.Context) ([]sql.EventDefinition, any, error) {
	return nil, nil, nil
}

func (performanceDatabase) SaveEvent(*sql.Context, sql.EventDefinition) (bool, error) {
	return false, readOnly()
}
func (performanceDatabase) DropEvent(*sql.Context, string) error { return readOnly() }
func (performanceDatabase) UpdateEvent(*sql.Context, string, sql.EventDefinition) (bool, error) {
	return false, readOnly()
}

func (performanceDatabase) UpdateLastExecuted(*sql.Context, string, time.Time) error {
	return readOnly()
}

func (performanceDatabase) NeedsToReloadEvents(*sql.Context, any) (bool, error) { return false, nil }
