package wire

import (
	"io"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// loadsPlainTable tells inserts of LOAD DATA that need nothing of the front
// end's general insert: no triggers, checks, generated numbers or defaults.
func loadsPlainTable(ii *plan.InsertInto) bool {
	if ii.IsReplace || ii.HasAfterTrigger || len(ii.Returning) > 0 || len(ii.Checks()) > 0 ||
		ii.FirstGeneratedAutoIncRowIdx >= 0 || ii.DeferredDefaults.Len() > 0 || ii.OnDupExprs.HasUpdates() {
		return false
	}
	dest, ok := ii.Destination.(*plan.InsertDestination)
	if !ok {
		return false
	}
	if _, ok := dest.Child.(*plan.ResolvedTable); !ok { // foreign keys wrap the table
		return false
	}
	for _, col := range dest.Sch {
		if col.Generated != nil {
			return false
		}
	}
	src := ii.Source
	if p, ok := src.(*plan.Project); ok {
		src = p.Child
	}
	_, ok = src.(*plan.LoadData)
	return ok
}

// loadInsert inserts the rows of a file. It differs from the general insert in
// one thing: the statement begins once, not once a row, which IGNORE (and so
// LOCAL) would cost. A table that refuses a row has not taken any of it.
type loadInsert struct {
	rows   sql.RowIter
	table  sql.RowInserter
	conv   valueConverter
	begun  bool
	done   bool
	failed error
}

func newLoadInsert(ctx *sql.Context, ii *plan.InsertInto, rows sql.RowIter) (sql.RowIter, error) {
	t, err := plan.GetInsertable(ii.Destination)
	if err != nil {
		return nil, err
	}
	return &loadInsert{rows: rows, table: t.Inserter(ctx), conv: newValueConverter(ii.Destination.Schema(ctx), ii.Ignore)}, nil
}

// Next inserts everything and answers the one row of a write.
func (it *loadInsert) Next(ctx *sql.Context) (sql.Row, error) {
	if it.begun || it.done {
		return nil, io.EOF
	}
	it.begun = true
	it.table.StatementBegin(ctx)
	var taken uint64
	for {
		row, err := it.rows.Next(ctx)
		if err == io.EOF {
			break
		}
		if err == nil {
			it.conv.line++
			if it.conv.line%1024 == 0 {
				sql.SessionCommandSafepoint(ctx.Session)
			}
			err = it.insert(ctx, row)
		}
		switch {
		case err == nil:
			taken++
		case it.conv.ignore && (sql.ErrPrimaryKeyViolation.Is(err) || sql.ErrUniqueKeyViolation.Is(err)):
			it.conv.warn(ctx, err)
		default:
			it.failed = err
			return nil, err
		}
	}
	// The file must be read to its end before the client gets its answer.
	if err := it.Close(ctx); err != nil {
		return nil, err
	}
	ctx.GetLastQueryInfo().RowCount.Store(int64(taken))
	return sql.NewRow(types.OkResult{RowsAffected: taken}), nil
}

func (it *loadInsert) insert(ctx *sql.Context, row sql.Row) error {
	for i := range it.conv.schema {
		v, err := it.conv.value(ctx, i, row[i])
		if err != nil {
			return err
		}
		row[i] = v
	}
	return it.table.Insert(ctx, row)
}

func (it *loadInsert) Close(ctx *sql.Context) error {
	if it.done {
		return nil
	}
	it.done = true
	var err error
	if it.begun {
		if it.failed != nil {
			err = it.table.DiscardChanges(ctx, it.failed)
		} else {
			err = it.table.StatementComplete(ctx)
		}
	}
	if e := it.rows.Close(ctx); err == nil {
		err = e
	}
	if e := it.table.Close(ctx); err == nil {
		err = e
	}
	return err
}
