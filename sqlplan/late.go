package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
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
