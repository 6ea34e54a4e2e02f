package sqlplan

import (
	"io"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"

	"github.com/lakesql/lakesql/catalog"
)

// returningRows runs an INSERT … RETURNING. The front end tells the editors of such a statement nothing of its beginning and
// of its end, so an error goes back to the beginning here.
type returningRows struct {
	sql.RowIter
	session *Session
	catalog *catalog.Catalog
	began   bool
	mark    catalog.Mark
}

var _ sql.MutableRowIter = (*returningRows)(nil)

func (r *returningRows) GetChildIter() sql.RowIter { return r.RowIter }

func (r *returningRows) WithChildIter(child sql.RowIter) sql.RowIter {
	n := *r
	n.RowIter = child
	return &n
}

func (r *returningRows) Next(ctx *sql.Context) (sql.Row, error) {
	tx, err := r.session.txOf(ctx, r.catalog)
	if err != nil {
		return nil, err
	}
	if !r.began {
		r.began, r.mark = true, tx.Mark()
	}
	row, err := r.RowIter.Next(ctx)
	if err != nil && err != io.EOF && tx.Mark() > r.mark {
		if rerr := tx.RollbackTo(r.mark); rerr != nil {
			err = mysqlError(rerr)
		}
	}
	return row, err
}

// insert wraps the iterator of an INSERT that needs more than the front end does; nil means that its own will do.
func (b execBuilder) insert(ctx *sql.Context, n *plan.InsertInto, row sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	// With a trigger after the row the front end keeps its own wrapper, and looks for it by its type.
	if s.stmt.wrapping || n.HasAfterTrigger {
		return nil, nil
	}
	t, err := plan.GetInsertable(n.Destination)
	if err != nil {
		return nil, nil // the front end says so itself
	}
	own, ok := sql.GetUnderlyingTable(t).(*ownTable)
	if !ok {
		return nil, nil
	}
	s.stmt.bulk = nil
	if insertsMany(n) {
		s.stmt.bulk = own.t
	}
	late := own.def.ordering >= 0 && (n.IsReplace || n.OnDupExprs.HasUpdates())
	if !late && len(n.Returning) == 0 {
		return nil, nil
	}
	// The front end asks its priority builder again while it builds.
	s.stmt.wrapping = true
	iter, err := b.front.Build(ctx, n, row)
	s.stmt.wrapping = false
	if err != nil {
		return nil, err
	}
	if late {
		iter = &lateRows{iter, s, n.IsReplace}
	}
	if len(n.Returning) > 0 {
		iter = &returningRows{RowIter: iter, session: s, catalog: own.catalog}
	}
	return iter, nil
}

// insertsMany tells INSERT … SELECT and CREATE TABLE … SELECT whose rows need nothing but to be added: no row may be refused,
// changed or looked at alone.
func insertsMany(n *plan.InsertInto) bool {
	if n.Ignore || n.IsReplace || n.LiteralValueSource || n.HasAfterTrigger || len(n.Returning) > 0 || n.OnDupExprs.HasUpdates() {
		return false
	}
	to := n.Destination
	if d, ok := to.(*plan.InsertDestination); ok {
		to = d.Child
	}
	if _, ok := to.(*plan.ResolvedTable); !ok { // foreign keys wrap the table
		return false
	}
	src := n.Source
	if p, ok := src.(*plan.Project); ok {
		src = p.Child
	}
	switch src.(type) {
	case *plan.Values, *plan.TriggerExecutor, *plan.LoadData:
		return false
	}
	return true
}
