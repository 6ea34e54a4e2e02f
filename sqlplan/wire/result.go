package wire

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	"github.com/dolthub/vitess/go/vt/sqlparser"
)

// A batch of rows is sent when it has this many rows or bytes.
const (
	batchRows  = 512
	batchBytes = 256 << 10
)

// answer drains iter and sends what it yields: one OK, or columns and rows.
func (h *handler) answer(ctx *sql.Context, c *mysql.Conn, st *statement, schema sql.Schema, iter sql.RowIter) error {
	open := true
	defer func() {
		if open {
			closeFailed(ctx, iter)
		}
	}()
	done := func() error {
		open = false
		if err := iter.Close(ctx); err != nil {
			// Closing ends the statement's context, so only the error tells an interruption.
			if errors.Is(err, context.Canceled) {
				return interrupted(ctx, err)
			}
			return err
		}
		setStatus(ctx, c, st)
		return nil
	}

	ld, loads := st.ast.(*sqlparser.Load)
	if types.IsOkResultSchema(schema) || schema == nil || loads {
		r := &sqltypes.Result{}
		for {
			row, err := iter.Next(ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				return interrupted(ctx, err)
			}
			if types.IsOkResult(row) {
				r = okResult(row[0].(types.OkResult))
			}
		}
		if err := done(); err != nil {
			return err
		}
		if loads && r.Info == "" {
			r.Info = loadInfo(st.load, int64(r.RowsAffected), ld.IgnoreOrReplace == sqlparser.ReplaceStr, ctx.WarningCount())
		}
		if r.Info != "" {
			if len(r.Info) > 250 {
				r.Info = r.Info[:250]
			}
			return sendInfo(c, func() error { return st.send(r, st.more) })
		}
		return st.send(r, st.more)
	}

	fields := fieldsOf(ctx, schema, st.ast)
	w := &rowWriter{ctx: ctx, schema: schema, fields: fields, st: st, metrics: &h.s.Metrics}
	w.convert = converters(ctx, schema, st.binary)
	rows, values := valueRows(ctx, iter)
	var projs []sql.Expression
	if !values {
		iter, projs = server.GetDeferredProjections(iter)
	}
	w.projs = projs
	setStatus(ctx, c, st)
	for n := 0; ; n++ {
		if n&255 == 0 && ctx.Err() != nil {
			return interrupted(ctx, ctx.Err())
		}
		var err error
		if values {
			var row sql.ValueRow
			if row, err = rows.NextValueRow(ctx); err == nil {
				err = w.addValues(row)
			}
		} else {
			var row sql.Row
			if row, err = iter.Next(ctx); err == nil {
				if types.IsOkResult(row) { // a CALL or trigger body that ends in a write
					w.ok = okResult(row[0].(types.OkResult))
					continue
				}
				err = w.add(row)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return interrupted(ctx, err)
		}
		if w.full() {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if err := done(); err != nil {
		return err
	}
	if w.ok != nil && !st.started && len(w.rows) == 0 {
		return st.send(w.ok, st.more)
	}
	if len(w.rows) > 0 || !st.started {
		return w.flush()
	}
	return nil
}

// valueRows tells whether the whole iterator tree hands out encoded values.
func valueRows(ctx *sql.Context, iter sql.RowIter) (sql.ValueRowIter, bool) {
	v, ok := iter.(sql.ValueRowIter)
	return v, ok && v.IsValueRowIter(ctx)
}

// closeFailed closes the iterator of a statement that failed. Closing commits
// where a transaction is not marked as the client's own, which must not happen here.
func closeFailed(ctx *sql.Context, iter sql.RowIter) {
	clean := ctx.WithContext(context.WithoutCancel(ctx))
	own := !ctx.GetIgnoreAutoCommit()
	if own {
		ctx.SetIgnoreAutoCommit(true)
		defer ctx.SetIgnoreAutoCommit(false)
	}
	if err := iter.Close(clean); err != nil && !errors.Is(err, context.Canceled) {
		ctx.GetLogger().WithError(err).Debug("closing a failed statement")
	}
}

func okResult(r types.OkResult) *sqltypes.Result {
	out := &sqltypes.Result{RowsAffected: r.RowsAffected, InsertID: r.InsertID}
	if r.Info != nil {
		out.Info = r.Info.String()
	}
	return out
}

// rowWriter turns rows into packets' values, a batch at a time.
type rowWriter struct {
	ctx     *sql.Context
	schema  sql.Schema
	fields  []*querypb.Field
	projs   []sql.Expression // evaluated here rather than in the tree, if not nil
	convert []converter
	st      *statement
	metrics *Metrics

	rows  [][]sqltypes.Value
	cells []sqltypes.Value // rows are cut from it
	buf   []byte           // text of the cells
	spill int              // bytes of cells that are not in buf
	ok    *sqltypes.Result
}

func (w *rowWriter) row() []sqltypes.Value {
	n := len(w.schema)
	if len(w.cells)+n > cap(w.cells) {
		w.cells = make([]sqltypes.Value, 0, max(64*n, n))
	}
	k := len(w.cells)
	w.cells = w.cells[:k+n]
	return w.cells[k : k+n : k+n]
}

func (w *rowWriter) add(row sql.Row) error {
	out := w.row()
	for i := range w.schema {
		var v any
		if w.projs != nil {
			var err error
			if v, err = w.projs[i].Eval(w.ctx, row); err != nil {
				return err
			}
		} else {
			v = row[i]
		}
		if v == nil {
			out[i] = sqltypes.NULL
			continue
		}
		val, err := w.convert[i](w, v)
		if err != nil {
			return err
		}
		out[i] = val
	}
	w.rows = append(w.rows, out)
	return nil
}

func (w *rowWriter) addValues(row sql.ValueRow) error {
	vals, err := server.RowValueToSQLValues(w.ctx, w.schema, row, nil)
	if err != nil {
		return err
	}
	for _, v := range vals {
		w.spill += v.Len()
	}
	w.rows = append(w.rows, vals)
	return nil
}

func (w *rowWriter) full() bool {
	return len(w.rows) >= batchRows || len(w.buf)+w.spill >= batchBytes
}

// flush sends the batch. Text rows are copied into the connection's buffer
// before send returns, so their memory serves the next batch; binary rows may
// wait in an open cursor and keep theirs.
func (w *rowWriter) flush() error {
	w.metrics.RowsSentTotal.Add(int64(len(w.rows)))
	r := &sqltypes.Result{Fields: w.fields, Rows: w.rows, RowsAffected: uint64(len(w.rows))}
	if err := w.st.send(r, w.st.more); err != nil {
		return err
	}
	w.spill = 0
	if w.st.binary {
		w.rows, w.cells, w.buf = nil, nil, nil
		return nil
	}
	w.rows, w.buf = w.rows[:0], w.buf[:0]
	if w.cells != nil {
		w.cells = w.cells[:0]
	}
	if cap(w.buf) > 4*batchBytes {
		w.buf = nil
	}
	return nil
}

// fieldsOf describes result columns. ast, when known, tells which column stands behind an alias.
func fieldsOf(ctx *sql.Context, schema sql.Schema, ast sqlparser.Statement) []*querypb.Field {
	origin := originsOf(ast)
	results := ctx.GetCharacterSetResults()
	fields := make([]*querypb.Field, len(schema))
	for i, col := range schema {
		f := &querypb.Field{
			Name:         col.Name,
			Table:        col.Source,
			OrgTable:     col.Source,
			Database:     col.DatabaseSource,
			Type:         col.Type.Type(),
			Charset:      uint32(sql.Collation_Default.CharacterSet()),
			ColumnLength: col.Type.MaxTextResponseByteLength(ctx),
		}
		if col.Source != "" {
			f.OrgName = col.Name
		} else if o, ok := origin.columns[strings.ToLower(col.Name)]; ok {
			// An alias has no table in the engine's schema, but drivers ask for it.
			f.OrgName, f.Table, f.OrgTable = o.column, o.table, o.table
			f.Database = ctx.GetCurrentDatabase()
		}
		if t, ok := origin.tables[strings.ToLower(f.Table)]; ok && f.Table != "" {
			f.OrgTable = t
		}
		if t, ok := col.Type.(sql.TypeWithCollation); ok {
			f.Charset = uint32(t.Collation().CharacterSet())
		}
		if types.IsBinaryType(col.Type) || types.IsNumber(col.Type) || types.IsTime(col.Type) {
			f.Charset = uint32(sql.Collation_binary)
		} else if results != sql.CharacterSet_Unspecified {
			f.Charset = uint32(results)
		}
		var flags querypb.MySqlFlag
		if !col.Nullable {
			flags |= querypb.MySqlFlag_NOT_NULL_FLAG
		}
		if col.AutoIncrement {
			flags |= querypb.MySqlFlag_AUTO_INCREMENT_FLAG
		}
		if col.PrimaryKey {
			flags |= querypb.MySqlFlag_PRI_KEY_FLAG
		}
		if types.IsUnsigned(col.Type) {
			flags |= querypb.MySqlFlag_UNSIGNED_FLAG
		}
		if types.IsBinaryType(col.Type) {
			flags |= querypb.MySqlFlag_BINARY_FLAG
		}
		f.Flags = uint32(flags)
		switch t := col.Type.(type) {
		case sql.DecimalType:
			f.Decimals = uint32(t.Scale())
		case sql.DatetimeType:
			f.Decimals = uint32(t.Precision())
		default:
			switch {
			case types.IsFloat(col.Type):
				f.Decimals = 31 // as many as the value has
			case f.Type == querypb.Type_TIME:
				f.Decimals = 6
			}
		}
		fields[i] = f
	}
	return fields
}

// origins maps names of a SELECT to what they stand for.
type origins struct {
	columns map[string]origin // by alias
	tables  map[string]string // alias → table
	first   string            // the first table's name in the statement
	count   int               // tables in FROM
}

// origin is the column behind an alias.
type origin struct{ table, column string }

func originsOf(ast sqlparser.Statement) origins {
	o := origins{}
	sel, ok := ast.(*sqlparser.Select)
	if !ok {
		return o
	}
	for _, t := range sel.From {
		o.addTable(t)
	}
	for _, e := range sel.SelectExprs {
		a, ok := e.(*sqlparser.AliasedExpr)
		if !ok || a.As.IsEmpty() {
			continue
		}
		col, ok := a.Expr.(*sqlparser.ColName)
		if !ok {
			continue
		}
		from := origin{table: col.Qualifier.Name.String(), column: col.Name.String()}
		if from.table == "" && o.count == 1 {
			from.table = o.first
		}
		if from.table == "" {
			continue
		}
		if o.columns == nil {
			o.columns = map[string]origin{}
		}
		o.columns[a.As.Lowered()] = from
	}
	return o
}

func (o *origins) addTable(t sqlparser.TableExpr) {
	switch t := t.(type) {
	case *sqlparser.AliasedTableExpr:
		o.count++
		name, ok := t.Expr.(sqlparser.TableName)
		if o.count == 1 {
			o.first = t.As.String()
			if o.first == "" && ok {
				o.first = name.Name.String()
			}
		}
		if !ok || t.As.IsEmpty() {
			return
		}
		if o.tables == nil {
			o.tables = map[string]string{}
		}
		o.tables[strings.ToLower(t.As.String())] = name.Name.String()
	case *sqlparser.JoinTableExpr:
		o.addTable(t.LeftExpr)
		o.addTable(t.RightExpr)
	case *sqlparser.ParenTableExpr:
		for _, e := range t.Exprs {
			o.addTable(e)
		}
	}
}
