package wire

import (
	"context"
	"io"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/sqlplan"
)

// typedLoad reads a file of LOAD DATA straight into the columns of the table. It serves tables without triggers and foreign
// keys, and statements without expressions in SET; the others go by rows (loadIter).
type typedLoad struct {
	tableRow
	src    *loadIter
	fields []typedField // by the fields of a line
	begun  bool
	done   bool
	failed error
}

// typedField is where a field of a line goes.
type typedField struct {
	variable string                // user variable instead of a column
	at       int                   // column of the table
	column   *sqlplan.LoaderColumn // nil: nowhere
	last     []byte                // value of the variable
	null     bool                  // it is NULL
	missing  sql.Expression        // default of a field that the line has not; nil: the type's zero, or NULL
}

// newTypedLoad gives nil if the statement has to go by rows.
func newTypedLoad(ctx *sql.Context, ii *plan.InsertInto, m *Metrics) (*typedLoad, error) {
	ld := loadOf(ii)
	if ld == nil || ii.HasAfterTrigger || len(ii.Returning) > 0 || ii.OnDupExprs.HasUpdates() || ld.SetExprs != nil || !sqlplan.DirectWrites(ctx) {
		return nil, nil
	}
	dest, ok := ii.Destination.(*plan.InsertDestination)
	if !ok {
		return nil, nil
	}
	if _, ok := dest.Child.(*plan.ResolvedTable); !ok { // foreign keys wrap the table
		return nil, nil
	}
	src, err := newLoadIter(ctx, ld, m)
	if err != nil {
		return nil, err
	}
	mode := sqlplan.DuplicatesFail
	switch {
	case ii.IsReplace:
		mode = sqlplan.DuplicatesReplace
	case ii.Ignore:
		mode = sqlplan.DuplicatesIgnore
	}
	dst, err := sqlplan.NewLoader(ctx, dest, mode)
	if err != nil || dst == nil {
		return nil, err
	}
	it := &typedLoad{tableRow: tableRow{dst: dst, conv: newValueConverter(dest.Sch, ii.Ignore)}, src: src}
	dst.OnDuplicate = func(err error) { it.conv.warn(ctx, err) }
	if !it.plan(ctx, dest.Sch, ii.Checks()) {
		return nil, dst.Abort(ctx, nil)
	}
	return it, nil
}

// loadOf gives the LOAD DATA that an insert takes its rows from, nil if it is another kind of insert.
func loadOf(ii *plan.InsertInto) *plan.LoadData {
	src := ii.Source
	if p, ok := src.(*plan.Project); ok {
		src = p.Child
	}
	ld, _ := src.(*plan.LoadData)
	return ld
}

// plan says for each field and column where values come from. It answers false if a column's expressions need the row path.
func (it *typedLoad) plan(ctx *sql.Context, schema sql.Schema, checks sql.CheckConstraints) bool {
	set := make([]bool, len(schema))
	need := map[int]bool{}
	for _, c := range it.src.columns[:min(it.src.listed, len(it.src.columns))] {
		f := typedField{variable: c.variable, at: c.destAt}
		if c.dest != nil {
			if set[c.destAt] || schema[c.destAt].Generated != nil {
				return false // named twice, or not to be set: the front end's matter
			}
			set[c.destAt] = true
			f.column = it.dst.Column(c.destAt)
			if d := c.dest.Default; d != nil && (c.dest.Nullable || c.dest.AutoIncrement) {
				var ok bool
				if f.missing, ok = overTable(ctx, d, schema, need); !ok {
					return false
				}
			}
		}
		it.fields = append(it.fields, f)
	}
	return it.complete(ctx, set, need, checks)
}

// Next loads everything and answers the one row of a write.
func (it *typedLoad) Next(ctx *sql.Context) (sql.Row, error) {
	if it.begun || it.done {
		return nil, io.EOF
	}
	it.begun = true
	counts, err := it.run(ctx)
	if err == nil {
		// The file must be read to its end before the client gets its answer.
		err = it.Close(ctx)
	}
	if err != nil {
		it.failed = err
		return nil, err
	}
	affected := uint64(counts.Added + counts.Replaced)
	it.src.state.counted, it.src.state.replaced = true, counts.Replaced
	ctx.GetLastQueryInfo().RowCount.Store(int64(affected))
	return sql.NewRow(types.OkResult{RowsAffected: affected, InsertID: it.dst.FirstID()}), nil
}

func (it *typedLoad) run(ctx *sql.Context) (sqlplan.LoadCounts, error) {
	var none sqlplan.LoadCounts
	src := it.src
	if err := src.open(ctx); err != nil {
		return none, err
	}
	for {
		if src.line&255 == 0 && ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		more, err := src.next(ctx)
		if err != nil {
			return none, err
		}
		if !more {
			break
		}
		it.conv.line++
		if it.conv.line%1024 == 0 {
			sql.SessionCommandSafepoint(ctx.Session)
		}
		keep, err := it.line(ctx)
		if err != nil {
			return none, it.dst.First(ctx, err)
		}
		if !keep {
			it.dst.UndoRow()
			continue
		}
		if err := it.dst.EndRow(ctx); err != nil {
			return none, err
		}
	}
	if err := it.setVariables(ctx); err != nil {
		return none, err
	}
	return it.dst.Finish(ctx)
}

// setVariables leaves the last line's fields in the user variables that the statement names.
func (it *typedLoad) setVariables(ctx *sql.Context) error {
	if it.conv.line == 0 {
		return nil
	}
	for i := range it.fields {
		f := &it.fields[i]
		if f.variable == "" {
			continue
		}
		var v any
		if !f.null {
			v = string(f.last)
		}
		if err := ctx.SetUserVariable(ctx, f.variable, v, types.LongText); err != nil {
			return err
		}
	}
	return nil
}

// line adds the values of a line. keep false: a constraint refuses the row, and IGNORE leaves it out.
func (it *typedLoad) line(ctx *sql.Context) (keep bool, err error) {
	short := false
	for i := range it.fields {
		f := &it.fields[i]
		b, null, ok := it.src.fields.field()
		if ok && !null && it.src.decode != nil {
			if b, err = it.src.decoded(b, i); err != nil {
				return false, err
			}
		}
		switch {
		case f.variable != "":
			f.last, f.null = append(f.last[:0], b...), null || !ok
		case f.column == nil:
		case !ok:
			if !short {
				short = true
				it.src.warnShort(ctx)
			}
			err = it.missing(ctx, f)
		case null:
			err = it.null(ctx, f.at, f.column)
		case f.column.Text(b):
		default:
			err = it.value(ctx, f.at, f.column, string(b))
		}
		if err != nil {
			return false, err
		}
	}
	return it.end(ctx)
}

// missing adds the value of a field that the line has not.
func (it *typedLoad) missing(ctx *sql.Context, f *typedField) error {
	col := it.conv.schema[f.at]
	switch {
	case !col.Nullable && !col.AutoIncrement:
		return it.value(ctx, f.at, f.column, col.Type.Zero())
	case f.missing != nil:
		if err := it.read(); err != nil {
			return err
		}
		v, err := f.missing.Eval(ctx, it.row)
		if err != nil {
			return err
		}
		return it.value(ctx, f.at, f.column, v)
	}
	return f.column.Null(ctx)
}

func (it *typedLoad) Close(ctx *sql.Context) error {
	if it.done {
		return nil
	}
	it.done = true
	err := it.dst.Abort(ctx, it.failed) // nothing after Finish
	if e := it.src.Close(ctx); err == nil {
		err = e
	}
	return err
}
