package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// lateRows runs an INSERT or REPLACE into an event-time table: rows that the table ignored, because it holds a newer version,
// do not count as affected, and a warning at the end counts them.
type lateRows struct {
	sql.RowIter
	session *Session
	replace bool
}

var _ sql.MutableRowIter = (*lateRows)(nil)

// insertByTime wraps the iterator of an INSERT into an event-time table; nil means that the front end's own will do.
func (b execBuilder) insertByTime(ctx *sql.Context, n *plan.InsertInto, row sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	if s.stmt.byTime || !n.IsReplace && !n.OnDupExprs.HasUpdates() {
		return nil, nil
	}
	rt, ok := n.Destination.(*plan.InsertDestination)
	if !ok {
		return nil, nil
	}
	t, err := plan.GetInsertable(rt)
	if err != nil {
		return nil, nil // the front end says so itself
	}
	own, ok := sql.GetUnderlyingTable(t).(*ownTable)
	if !ok || own.def.ordering < 0 {
		return nil, nil
	}
	// The front end asks its priority builder again while it builds.
	s.stmt.byTime = true
	iter, err := b.front.Build(ctx, n, row)
	s.stmt.byTime = false
	if err != nil {
		return nil, err
	}
	return &lateRows{iter, s, n.IsReplace}, nil
}

// GetChildIter and WithChildIter let the front end put its count of affected rows below.
func (l *lateRows) GetChildIter() sql.RowIter { return l.RowIter }

func (l *lateRows) WithChildIter(child sql.RowIter) sql.RowIter {
	return &lateRows{child, l.session, l.replace}
}

func (l *lateRows) Next(ctx *sql.Context) (sql.Row, error) {
	row, err := l.RowIter.Next(ctx)
	n := l.session.stmt.late
	if err != nil || n == 0 || !types.IsOkResult(row) {
		return row, err
	}
	l.session.stmt.late = 0
	ctx.Warn(erCheckViolated, "%d rows were ignored: the table holds newer versions of them", n)
	if !l.replace {
		return row, nil // ON DUPLICATE KEY counts rows that changed
	}
	// REPLACE has counted each as one row deleted and one inserted.
	ok := types.GetOkResult(row)
	ok.RowsAffected -= min(ok.RowsAffected, 2*n)
	ctx.GetLastQueryInfo().RowCount.Store(int64(ok.RowsAffected))
	return sql.NewRow(ok), nil
}
