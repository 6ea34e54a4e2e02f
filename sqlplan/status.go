package sqlplan

import (
	"io"
	"sort"
	"strconv"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
)

// statusPrefix stands before the names of lakesql's own status variables.
const statusPrefix = "Lakesql_"

// statusNumbers gives the numbers of the catalog, by the names of status variables. Statements that know of more add them here.
func (e *Engine) statusNumbers() map[string]int64 {
	out := map[string]int64{}
	for name, v := range e.catalog.Status() {
		out[statusPrefix+name] = v
	}
	e.shorts.mu.RLock()
	out[statusPrefix+"short_shapes"] = int64(len(e.shorts.forms))
	e.shorts.mu.RUnlock()
	out[statusPrefix+"short_shapes_limit"] = shortFormsMax
	out[statusPrefix+"short_statements"] = e.shortsTotal.Load()
	e.mu.Lock()
	more := e.moreStatus
	e.mu.Unlock()
	for _, f := range more {
		for name, v := range f() {
			out[statusPrefix+name] = v
		}
	}
	return out
}

// AddStatus has SHOW STATUS give what f counts, under names that begin with Lakesql_.
func (e *Engine) AddStatus(f func() map[string]int64) {
	e.mu.Lock()
	e.moreStatus = append(e.moreStatus, f)
	e.mu.Unlock()
}

// showStatus adds lakesql's own variables to those of the front end.
func showStatus(ctx *sql.Context, n *plan.ShowStatus) (sql.RowIter, error) {
	s, ok := ctx.Session.(*Session)
	if !ok {
		return nil, nil
	}
	front, err := n.RowIter(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer front.Close(ctx)
	var rows []sql.Row
	for {
		row, err := front.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for name, v := range s.engine.statusNumbers() {
		rows = append(rows, sql.NewRow(name, strconv.FormatInt(v, 10)))
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i][0].(string) < rows[j][0].(string) })
	return sql.RowsToRowIter(rows...), nil
}
