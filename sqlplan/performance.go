package sqlplan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/information_schema"

	"github.com/lakesql/lakesql/catalog"
)

// performanceSchema is the name of a database that programs read when they connect, or when they look for locks. It has the
// variables and what transactions lock; nothing is measured in it.
const performanceSchema = "performance_schema"

var performanceDatabase = newVirtualDatabase(performanceSchema, []virtualTable{
	variableTable("session_variables", func(ctx *sql.Context) map[string]any { return ctx.GetAllSessionVariables() }),
	variableTable("global_variables", func(*sql.Context) map[string]any { return sql.SystemVariables.GetAllGlobalVariables() }),
	variableTable("session_status", func(ctx *sql.Context) map[string]any { return statusValues(ctx.Session.GetAllStatusVariables(ctx)) }),
	variableTable("global_status", func(ctx *sql.Context) map[string]any {
		out := map[string]any{}
		if s, ok := ctx.Session.(*Session); ok {
			for name, v := range s.engine.statusNumbers() {
				out[name] = v
			}
		}
		for name, v := range sql.StatusVariables.NewGlobalMap() {
			out[name] = v.Value()
		}
		return out
	}),
	{name: "data_locks", columns: dataLocksColumns, rows: dataLocksRows},
	{name: "data_lock_waits", columns: dataLockWaitsColumns, rows: dataLockWaitsRows},
})

func statusValues(all map[string]sql.StatusVarValue) map[string]any {
	out := make(map[string]any, len(all))
	for name, v := range all {
		out[name] = v.Value()
	}
	return out
}

// variableTable has a row for each variable.
func variableTable(name string, values func(*sql.Context) map[string]any) virtualTable {
	return virtualTable{
		name: name,
		columns: func() sql.Schema {
			return sql.Schema{{Name: "VARIABLE_NAME", Type: virtualText}, {Name: "VARIABLE_VALUE", Type: virtualText, Nullable: true}}
		},
		rows: func(ctx *sql.Context) ([]sql.Row, error) {
			var rows []sql.Row
			for name, v := range values(ctx) {
				rows = append(rows, sql.NewRow(name, variableText(v)))
			}
			sortRows(rows)
			return rows, nil
		},
	}
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

// engineName is what programs look for in these tables.
const engineName = "INNODB"

func dataLocksColumns() sql.Schema {
	return virtualColumns("ENGINE", "ENGINE_LOCK_ID", "ENGINE_TRANSACTION_ID:int", "THREAD_ID:int", "EVENT_ID:int", "OBJECT_SCHEMA",
		"OBJECT_NAME", "PARTITION_NAME", "SUBPARTITION_NAME", "INDEX_NAME", "OBJECT_INSTANCE_BEGIN:int", "LOCK_TYPE", "LOCK_MODE",
		"LOCK_STATUS", "LOCK_DATA")
}

// lockID names a lock; two requests of a transaction for the same thing have the same id.
func lockID(l catalog.LockInfo) string {
	return fmt.Sprintf("%d:%s.%s:%s:%s:%s", l.Tx, l.Database, l.Table, l.Index, l.Key, l.Mode)
}

func dataLocksRows(ctx *sql.Context) ([]sql.Row, error) {
	var rows []sql.Row
	for _, l := range sessionOf(ctx).engine.catalog.Locks() {
		var index, data any
		kind := l.Kind
		if kind != "TABLE" {
			kind, index, data = "RECORD", indexName(l.Index), l.Key
		}
		status := "GRANTED"
		if !l.Granted {
			status = "WAITING"
		}
		rows = append(rows, sql.NewRow(engineName, lockID(l), int64(l.Tx), int64(l.Connection), int64(0), l.Database, l.Table, nil, nil,
			index, int64(0), kind, l.Mode, status, data))
	}
	return rows, nil
}

func dataLockWaitsColumns() sql.Schema {
	return virtualColumns("ENGINE", "REQUESTING_ENGINE_LOCK_ID", "REQUESTING_ENGINE_TRANSACTION_ID:int", "REQUESTING_THREAD_ID:int",
		"REQUESTING_EVENT_ID:int", "REQUESTING_OBJECT_INSTANCE_BEGIN:int", "BLOCKING_ENGINE_LOCK_ID", "BLOCKING_ENGINE_TRANSACTION_ID:int",
		"BLOCKING_THREAD_ID:int", "BLOCKING_EVENT_ID:int", "BLOCKING_OBJECT_INSTANCE_BEGIN:int")
}

// dataLockWaitsRows pairs what is waited for with what is held of the same thing.
func dataLockWaitsRows(ctx *sql.Context) ([]sql.Row, error) {
	type thing struct{ db, table, index, kind, key string }
	of := func(l catalog.LockInfo) thing { return thing{l.Database, l.Table, l.Index, l.Kind, l.Key} }
	held := map[thing][]catalog.LockInfo{}
	var waits []catalog.LockInfo
	for _, l := range sessionOf(ctx).engine.catalog.Locks() {
		if l.Granted {
			held[of(l)] = append(held[of(l)], l)
		} else {
			waits = append(waits, l)
		}
	}
	var rows []sql.Row
	for _, w := range waits {
		for _, h := range held[of(w)] {
			if h.Tx == w.Tx || w.Mode == "S" && h.Mode == "S" {
				continue
			}
			rows = append(rows, sql.NewRow(engineName, lockID(w), int64(w.Tx), int64(w.Connection), int64(0), int64(0),
				lockID(h), int64(h.Tx), int64(h.Connection), int64(0), int64(0)))
		}
	}
	return rows, nil
}

// mendLiveTables gives the tables of information_schema that show what runs the rows that lakesql knows.
func mendLiveTables(db sql.Database) {
	mend := func(name string, rows func(*sql.Context, sql.Schema) ([]sql.Row, error)) {
		t, ok, err := db.GetTableInsensitive(sql.NewEmptyContext(), name)
		table, own := t.(*information_schema.InformationSchemaTable)
		if err != nil || !ok || !own {
			panic("sqlplan: information_schema has no " + name)
		}
		table.Reader = func(ctx *sql.Context, _ sql.Catalog) (sql.RowIter, error) {
			list, err := rows(ctx, table.TableSchema)
			return sql.RowsToRowIter(list...), err
		}
	}
	mend(information_schema.InnoDBTrxName, innodbTrxRows)
	mend(information_schema.ProcessListTableName, func(ctx *sql.Context, _ sql.Schema) ([]sql.Row, error) {
		rows := processRows(ctx)
		for _, row := range rows {
			row[0], row[5] = uint64(row[0].(int64)), int32(row[5].(int64))
		}
		return rows, nil
	})
}

// innodbTrxRows are the rows of information_schema.INNODB_TRX.
func innodbTrxRows(ctx *sql.Context, columns sql.Schema) ([]sql.Row, error) {
	loc, err := sessionZone(ctx)
	if err != nil {
		return nil, err
	}
	queries := map[uint32]string{}
	for _, p := range ctx.ProcessList.Processes() {
		queries[p.Connection] = p.Query
	}
	var rows []sql.Row
	for _, t := range sessionOf(ctx).engine.catalog.Transactions() {
		row := make(sql.Row, len(columns))
		for i, c := range columns {
			if !c.Nullable {
				row[i] = c.Type.Zero()
			}
			set := func(v any) {
				if conv, _, err := c.Type.Convert(ctx, v); err == nil {
					row[i] = conv
				}
			}
			switch c.Name {
			case "trx_id":
				set(strconv.FormatUint(t.ID, 10))
			case "trx_state":
				set("RUNNING")
				if !t.Waiting.IsZero() {
					set("LOCK WAIT")
				}
			case "trx_started":
				set(wallClock(t.Started, loc))
			case "trx_wait_started":
				if !t.Waiting.IsZero() {
					set(wallClock(t.Waiting, loc))
				}
			case "trx_weight":
				set(int64(t.Writes + t.Locks))
			case "trx_mysql_thread_id":
				set(int64(t.Connection))
			case "trx_query":
				if q := queries[t.Connection]; q != "" {
					set(q)
				}
			case "trx_rows_locked", "trx_lock_structs":
				set(int64(t.Locks))
			case "trx_rows_modified":
				set(int64(t.Writes))
			case "trx_isolation_level":
				set(t.Isolation.String())
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// wallClock is a time as the front end shows it: the session's wall clock under the name of UTC.
func wallClock(t time.Time, loc *time.Location) time.Time {
	t = t.In(loc)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond()/1000*1000, time.UTC)
}

// processRows are the rows of SHOW PROCESSLIST. The state of a statement that waits for a lock says so.
func processRows(ctx *sql.Context) []sql.Row {
	waits := sessionOf(ctx).engine.waits()
	var rows []sql.Row
	for _, p := range ctx.ProcessList.Processes() {
		var db, info, state any
		if p.Database != "" {
			db = p.Database
		}
		if p.Query != "" {
			info = p.Query
		}
		if p.Command == sql.ProcessCommandQuery {
			state = "executing" + progressText(p.Progress)
		}
		if w, ok := waits[p.Connection]; ok {
			state = w
		}
		rows = append(rows, sql.NewRow(int64(p.Connection), p.User, p.Host, db, string(p.Command), int64(p.Seconds()), state, info))
	}
	slices.SortFunc(rows, func(a, b sql.Row) int { return int(a[0].(int64) - b[0].(int64)) })
	return rows
}

// progressText says how far a statement has come with its tables.
func progressText(tables map[string]sql.TableProgress) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		p := tables[name]
		if p.Total < 0 {
			fmt.Fprintf(&b, "; %s: %d rows so far", name, p.Done)
		} else {
			fmt.Fprintf(&b, "; %s: %d of %d", name, p.Done, p.Total)
		}
	}
	return b.String()
}

// waits gives the states of the connections that wait for a lock.
func (e *Engine) waits() map[uint32]string {
	out := map[uint32]string{}
	for _, l := range e.catalog.Locks() {
		if !l.Granted {
			out[l.Connection] = stateRowLock
			if l.Kind == "TABLE" {
				out[l.Connection] = stateTableLock
			}
		}
	}
	e.waiting.Range(func(id, state any) bool {
		out[id.(uint32)] = state.(string)
		return true
	})
	return out
}
