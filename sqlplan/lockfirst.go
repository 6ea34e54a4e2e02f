package sqlplan

import (
	"io"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/rowexec"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// A query of one table with a locking clause and a LIMIT, as programs take the next jobs of a queue by, shall lock the rows that
// it gives and no others: those that it reads to find them are for other workers. So the rows are found first, without locks,
// in their order; then one after another is locked, read again, and given if it is still what the query asks for.

// lockFirst runs such a query; nil means that it is another one.
func (b execBuilder) lockFirst(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	if !sessionOf(ctx).stmt.locks || len(row) > 0 {
		return nil, nil
	}
	f := &lockFirst{}
	var limit sql.Expression
	switch n := n.(type) {
	case *plan.Limit:
		limit = n.Limit
		if n.CalcFoundRows {
			return nil, nil
		}
	case *plan.TopN:
		limit = n.Limit
		if n.CalcFoundRows {
			return nil, nil
		}
	}
	var err error
	if f.left, err = count(ctx, limit); err != nil {
		return nil, err
	}
	find, width, ok, err := f.plan(ctx, n)
	if err != nil || !ok {
		return nil, err
	}
	f.width = width
	if f.found, err = b.front.Build(ctx, find, row); err != nil {
		return nil, err
	}
	return f, nil
}

// count evaluates LIMIT or OFFSET.
func count(ctx *sql.Context, e sql.Expression) (int64, error) {
	v, err := e.Eval(ctx, nil)
	if err != nil {
		return 0, err
	}
	n, _, err := types.Int64.Convert(ctx, v)
	if err != nil {
		return 0, err
	}
	i, _ := n.(int64)
	return i, nil
}

// lockFirst gives the rows of a query and locks them.
type lockFirst struct {
	found sql.RowIter
	width int   // columns of the result; behind them may stand columns of the primary key
	keys  []int // places of the primary key's columns in the rows that are found
	left  int64 // rows to give
	skip  int64 // rows to lock before

	table *table                                         // with its locks
	index *index                                         // the primary key
	above []func(*sql.Context, sql.Row) (sql.Row, error) // what the query makes of a row of the table; nil: it is not asked for
}

// plan gives the plan that finds the rows, with the primary key behind their columns.
func (f *lockFirst) plan(ctx *sql.Context, n sql.Node) (find sql.Node, width int, ok bool, err error) {
	below := func(child sql.Node) (sql.Node, int, bool, error) { return f.plan(ctx, child) }
	switch n := n.(type) {
	case *plan.Limit:
		return below(n.Child)
	case *plan.Offset:
		if f.skip, err = count(ctx, n.Offset); err != nil {
			return nil, 0, false, err
		}
		return below(n.Child)
	case *plan.TopN:
		if find, width, ok, err = below(n.Child); ok && err == nil {
			find = plan.NewSort(n.SortConditions, find)
		}
		return find, width, ok, err
	case *plan.Sort:
		if find, width, ok, err = below(n.Child); ok && err == nil {
			find = plan.NewSort(n.SortConditions, find)
		}
		return find, width, ok, err
	case *plan.Filter:
		if find, width, ok, err = below(n.Child); !ok || err != nil {
			return nil, 0, false, err
		}
		f.above = append(f.above, func(ctx *sql.Context, row sql.Row) (sql.Row, error) {
			v, err := sql.EvaluateCondition(ctx, n.Expression, row)
			if err != nil || !sql.IsTrue(v) {
				return nil, err
			}
			return row, nil
		})
		return plan.NewFilter(ctx, n.Expression, find), width, true, nil
	case *plan.Project:
		if find, _, ok, err = below(n.Child); !ok || err != nil {
			return nil, 0, false, err
		}
		exprs := append([]sql.Expression{}, n.Projections...)
		for i, c := range f.index.columns {
			exprs = append(exprs, expression.NewGetField(f.keys[i], c.Type, c.Name, false))
			f.keys[i] = len(exprs) - 1
		}
		f.above = append(f.above, func(ctx *sql.Context, row sql.Row) (sql.Row, error) {
			return rowexec.ProjectRow(ctx, exprs, row)
		})
		return plan.NewProject(ctx, exprs, find), len(n.Projections), true, nil
	case *plan.TableAlias:
		return below(n.Child)
	case *plan.ResolvedTable:
		return f.read(ctx, n, n.Table)
	case *plan.IndexedTableAccess:
		return f.read(ctx, n, n.Table)
	}
	return nil, 0, false, nil
}

// read takes the table that is locked. The plan's own object is changed to one that reads without locks, and the key.
func (f *lockFirst) read(ctx *sql.Context, n sql.Node, in sql.Table) (sql.Node, int, bool, error) {
	t := tableBehind(in)
	if t == nil || t.lock == nil || t.old != nil || t.temporary || len(t.def.table.PrimaryKey) == 0 || t.def.spec.PerPartition {
		return nil, 0, false, nil
	}
	for _, c := range t.whole {
		if c.Virtual {
			return nil, 0, false, nil // the front end puts a node of its own around the table
		}
	}
	f.index = t.newIndex(indexDefinition{Name: primaryIndex, Columns: t.def.table.PrimaryKey, Unique: true})
	if f.index.prefix != nil {
		return nil, 0, false, nil
	}
	width := len(t.schema)
	names := make([]string, 0, width+len(f.index.columns))
	for _, c := range t.schema {
		names = append(names, c.Name)
	}
	for _, c := range f.index.columns {
		at := t.schema.IndexOfColName(c.Name)
		if at < 0 {
			at = len(names)
			names = append(names, c.Name)
		}
		f.keys = append(f.keys, at)
	}
	p, err := t.project(names)
	if err != nil {
		return nil, 0, false, err
	}
	locked := *p
	f.table = &locked
	*t = *p
	t.lock, t.current = nil, true
	return n, width, true, nil
}

// Next implements sql.RowIter.
func (f *lockFirst) Next(ctx *sql.Context) (sql.Row, error) {
	for f.left > 0 {
		found, err := f.found.Next(ctx)
		if err != nil {
			return nil, err
		}
		row, err := f.lock(ctx, found)
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		f.left--
		return row[:f.width:f.width], nil
	}
	return nil, io.EOF
}

// lock locks a row that was found and gives what the query makes of it as it is now; nil: it is not asked for, or skipped.
func (f *lockFirst) lock(ctx *sql.Context, found sql.Row) (sql.Row, error) {
	r := make(sql.MySQLRange, len(f.index.columns))
	for i, c := range f.index.columns {
		r[i] = sql.ClosedRangeColumnExpr(found[f.keys[i]], found[f.keys[i]], c.Type)
	}
	x := &indexedTable{ownTable: &ownTable{f.table}}
	look, err := x.newLookup(ctx, sql.IndexLookup{Index: f.index, Ranges: sql.MySQLRangeCollection{r}, IsPointLookup: true})
	if err != nil {
		return nil, mysqlError(err)
	}
	rows, err := f.table.scan(ctx, look)
	if err != nil {
		return nil, err
	}
	defer rows.Close(ctx)
	row, err := rows.Next(ctx)
	if err == io.EOF {
		return nil, nil
	}
	for i := 0; err == nil && row != nil && i < len(f.above); i++ {
		row, err = f.above[i](ctx, row)
	}
	return row, err
}

// Close implements sql.RowIter.
func (f *lockFirst) Close(ctx *sql.Context) error { return f.found.Close(ctx) }
