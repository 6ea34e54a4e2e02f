package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
)

// lakesqlDatabase shows what lakesql does at the moment.
var lakesqlDatabase = newVirtualDatabase("lakesql", []virtualTable{
	{name: "locks", columns: locksColumns, rows: locksRows},
	{name: "transactions", columns: transactionsColumns, rows: transactionsRows},
})

func locksColumns() sql.Schema {
	return virtualColumns("table_schema", "table_name", "record_key", "mode", "state", "transaction_id:int", "connection_id:int",
		"since:time", "index_name", "kind")
}

// locksRows are what transactions have locked or wait for. The key of a whole table is NULL.
func locksRows(ctx *sql.Context) ([]sql.Row, error) {
	loc, err := sessionZone(ctx)
	if err != nil {
		return nil, err
	}
	var rows []sql.Row
	for _, l := range sessionOf(ctx).engine.catalog.Locks() {
		var key, index any
		if l.Kind != "TABLE" {
			key, index = l.Key, indexName(l.Index)
		}
		state := "granted"
		if !l.Granted {
			state = "waiting"
		}
		rows = append(rows, sql.NewRow(l.Database, l.Table, key, l.Mode, state, int64(l.Tx), int64(l.Connection),
			wallClock(l.Since, loc), index, l.Kind))
	}
	return rows, nil
}

func transactionsColumns() sql.Schema {
	return virtualColumns("transaction_id:int", "connection_id:int", "isolation", "started:time", "rows_written:int", "locks_held:int",
		"waiting_since:time")
}

func transactionsRows(ctx *sql.Context) ([]sql.Row, error) {
	loc, err := sessionZone(ctx)
	if err != nil {
		return nil, err
	}
	var rows []sql.Row
	for _, t := range sessionOf(ctx).engine.catalog.Transactions() {
		var waiting any
		if !t.Waiting.IsZero() {
			waiting = wallClock(t.Waiting, loc)
		}
		rows = append(rows, sql.NewRow(int64(t.ID), int64(t.Connection), t.Isolation.String(), wallClock(t.Started, loc),
			int64(t.Writes), int64(t.Locks), waiting))
	}
	return rows, nil
}
