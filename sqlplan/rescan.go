package sqlplan

import (
	"context"
	"io"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// rescanRows is up to how many rows of a table a statement keeps that reads it whole again and again, as the inner side of a
// join without an index or a correlated subquery does.
const rescanRows = 1000

// rescan is what a statement knows of the whole scans of one reference to a table.
type rescan struct {
	tx    *catalog.Tx // nil: AS OF
	mark  catalog.Mark
	scans int
	rows  []sql.Row
	whole bool // rows are all there are
}

// rescan counts a whole scan of a table in a state.
func (s *Session) rescan(t *table, tx *catalog.Tx, mark catalog.Mark) *rescan {
	r := s.stmt.rescans[t]
	if r == nil {
		if s.stmt.rescans == nil {
			s.stmt.rescans = map[*table]*rescan{}
		}
		r = &rescan{}
		s.stmt.rescans[t] = r
	}
	if r.tx != tx || r.mark != mark {
		*r = rescan{tx: tx, mark: mark}
	}
	r.scans++
	return r
}

// keptRows gives rows that an earlier scan kept.
type keptRows struct{ rows []sql.Row }

func (k *keptRows) Next(*sql.Context) (sql.Row, error) {
	if len(k.rows) == 0 {
		return nil, io.EOF
	}
	row := k.rows[0]
	k.rows = k.rows[1:]
	return row, nil
}

func (k *keptRows) Close(*sql.Context) error { return nil }

// replay gives the rows again.
func (r *rescan) replay(ctx *sql.Context) (sql.RowIter, error) {
	if ctx.Err() != nil {
		return nil, mysqlError(context.Cause(ctx))
	}
	return &keptRows{r.rows}, nil
}

// keeper collects the rows of one scan for its rescan.
type keeper struct {
	to   *rescan
	rows []sql.Row
}

// add takes a row; false: there are too many.
func (k *keeper) add(row sql.Row) bool {
	if len(k.rows) >= rescanRows {
		return false
	}
	k.rows = append(k.rows, row)
	return true
}

func (k *keeper) done() { k.to.rows, k.to.whole = k.rows, true }
