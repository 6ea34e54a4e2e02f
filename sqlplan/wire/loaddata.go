package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/sqlplan"
)

// installLoadData makes e read files of LOAD DATA with this package's reader.
// The front end's own leaves doubled quotes doubled and reads empty numbers as NULL.
func installLoadData(e *sqle.Engine, m *Metrics) {
	b := e.Analyzer.ExecBuilder
	b.PriorityBuilder = loadBuilder{next: b.PriorityBuilder, all: b, metrics: m}
}

type loadBuilder struct {
	next    sql.NodeExecBuilder // nil: none
	all     sql.NodeExecBuilder // for children
	metrics *Metrics
}

func (b loadBuilder) Build(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	switch n := n.(type) {
	case *plan.LoadData:
		return newLoadIter(ctx, n, b.metrics)
	case *plan.InsertInto:
		if st, _ := ctx.Value(loadStateKey{}).(*loadState); st != nil && st.values != nil && !st.values.final {
			it, err := newValuesInsert(ctx, n, st.values)
			if it == nil && err == nil {
				err = errNotPlain
			}
			if err != nil {
				return nil, err
			}
			b.metrics.DirectTotal.Add(1)
			return it, nil
		}
		if it, err := newTypedLoad(ctx, n, b.metrics); err != nil {
			return nil, err
		} else if it != nil {
			b.metrics.DirectTotal.Add(1)
			return it, nil
		}
		if loadsPlainTable(n) {
			rows, err := b.all.Build(ctx, n.Source, row)
			if err != nil {
				return nil, err
			}
			return newLoadInsert(ctx, n, rows)
		}
	}
	if b.next != nil {
		return b.next.Build(ctx, n, row)
	}
	return nil, nil
}

// loadState is what the statement and its iterator tell each other, through the context.
type loadState struct {
	values *valuesList // of an INSERT that the front end has without its rows; nil: it has them

	listed  int          // columns and variables in the statement's list; 0: no list
	ended   *atomic.Bool // the connection is over; nil: nobody knows
	hangUp  func() error // ends the connection; nil: it cannot be
	records int64        // lines read
	// counted: replaced is exact; else it is guessed from the affected rows.
	counted  bool
	replaced int64
}

type loadStateKey struct{}

// loadIter hands out a file's rows, their fields in the order of the statement's column list.
type loadIter struct {
	ld      *plan.LoadData
	metrics *Metrics
	state   *loadState
	columns []loadColumn // one for each field of a line
	listed  int          // columns that take a field; those behind are set by SET alone
	width   int          // columns of a row
	decode  func([]byte) ([]byte, bool)
	file    io.ReadCloser
	fields  *fieldReader
	line    int64
	// stopWatch ends the goroutine that wakes the reader of a file when the statement is cancelled.
	stopWatch func()

	texts  sql.Row // the fields as text in the table's order, for expressions of SET
	filled []bool
}

// loadColumn is where a field goes.
type loadColumn struct {
	at       int                      // place in the row; -1: nowhere
	variable string                   // user variable instead
	dest     *sql.Column              // nil: nowhere
	destAt   int                      // its place in the table
	set      sql.Expression           // SET col = … replaces the field
	convert  func([]byte) (any, bool) // exact text to the column's value; false: the insert converts
}

func newLoadIter(ctx *sql.Context, ld *plan.LoadData, m *Metrics) (*loadIter, error) {
	if ld.LinesTerminatedBy == "" && ld.FieldsTerminatedBy == "" {
		return nil, mysql.NewSQLError(1235, "42000", "This version of lakesql doesn't yet support 'LOAD DATA of fixed-width fields'")
	}
	it := &loadIter{ld: ld, metrics: m, width: len(ld.DestSch)}
	it.state, _ = ctx.Value(loadStateKey{}).(*loadState)
	if it.state == nil {
		it.state = &loadState{}
	}
	it.listed = it.state.listed
	if it.listed == 0 {
		it.listed = it.width
	}
	if ld.Charset != "" {
		cs, err := sql.ParseCharacterSet(ld.Charset)
		if err != nil {
			return nil, err
		}
		switch cs {
		case sql.CharacterSet_utf8mb4, sql.CharacterSet_utf8mb3, sql.CharacterSet_binary, sql.CharacterSet_ascii:
		default:
			enc := cs.Encoder()
			if enc == nil {
				return nil, sql.ErrCharSetNotYetImplementedTemp.New(ld.Charset)
			}
			it.decode = enc.Decode
		}
	}
	names := ld.ColNames
	if len(names) == 0 {
		for _, col := range ld.DestSch {
			names = append(names, col.Name)
		}
	}
	place := 0
	name := 0
	for i, uv := range ld.UserVars {
		c := loadColumn{at: -1}
		switch {
		case uv != nil:
			set, ok := uv.(*expression.SetField)
			if !ok {
				return nil, fmt.Errorf("LOAD DATA: unexpected target %s of field %d", uv, i+1)
			}
			v, ok := set.LeftChild.(*expression.UserVar)
			if !ok {
				return nil, fmt.Errorf("LOAD DATA: unexpected target %s of field %d", set.LeftChild, i+1)
			}
			c.variable = v.Name
		case place < it.width:
			c.at = place
			place++
			if name < len(names) {
				dest := ld.DestSch.IndexOfColName(names[name])
				name++
				if dest >= 0 {
					c.dest, c.destAt = ld.DestSch[dest], dest
					c.convert = sqlplan.ExactText(c.dest.Type)
					if ld.SetExprs != nil {
						c.set = ld.SetExprs[dest]
					}
				}
			}
		}
		it.columns = append(it.columns, c)
	}
	if ld.SetExprs != nil {
		it.texts = make(sql.Row, it.width)
	}
	it.filled = make([]bool, it.width)
	return it, nil
}

// open asks for the file at the first row only: a statement that fails before
// must not leave a client sending one.
func (it *loadIter) open(ctx *sql.Context) error {
	var err error
	if it.ld.Local {
		_, on, ok := sql.SystemVariables.GetGlobal("local_infile")
		if v, err := sql.ConvertToBool(ctx, on); !ok || err != nil || !v {
			return errLocalOff
		}
		it.file, err = ctx.LoadInfile(it.ld.File)
	} else {
		it.file, err = openServerFile(it.ld.File)
	}
	if err != nil {
		return err
	}
	f := format{
		fieldEnd: it.ld.FieldsTerminatedBy, lineStart: it.ld.LinesStartingBy, lineEnd: it.ld.LinesTerminatedBy,
		hasEnclosed: it.ld.FieldsEnclosedBy != "", hasEscape: it.ld.FieldsEscapedBy != "",
	}
	if f.hasEnclosed {
		f.enclosed = it.ld.FieldsEnclosedBy[0]
	}
	if f.hasEscape {
		f.escape = it.ld.FieldsEscapedBy[0]
	}
	if v, err := ctx.GetSessionVariable(ctx, "max_allowed_packet"); err == nil {
		if n, _, err := types.Int64.Convert(ctx, v); err == nil {
			f.fieldMax = int(n.(int64))
		}
	}
	it.stopWatch = it.watch(ctx)
	it.fields = newFieldReader(it.file, f)
	for n := it.ld.IgnoreNum; n > 0; n-- {
		it.line++
		if more, _ := it.fields.nextLine(); !more {
			break
		}
	}
	return nil
}

var errLocalOff = mysql.NewSQLError(3948, "42000", "Loading local data is disabled; this must be enabled on both the client and server sides")

// openServerFile opens a file below secure_file_priv.
func openServerFile(name string) (io.ReadCloser, error) {
	_, v, _ := sql.SystemVariables.GetGlobal("secure_file_priv")
	dir, _ := v.(string)
	if dir != "" {
		inside := false
		if dir != "NULL" {
			if real, err := filepath.EvalSymlinks(name); err == nil {
				if root, err := filepath.EvalSymlinks(dir); err == nil {
					rel, err := filepath.Rel(root, real)
					inside = err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
				}
			} else {
				return nil, mysql.NewSQLError(29, "HY000", "File '%s' not found", name)
			}
		}
		if !inside {
			return nil, mysql.NewSQLError(1290, "HY000", "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement")
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, mysql.NewSQLError(29, "HY000", "File '%s' not found", name)
	}
	return f, nil
}

func (it *loadIter) Next(ctx *sql.Context) (sql.Row, error) {
	if it.fields == nil {
		if err := it.open(ctx); err != nil {
			return nil, err
		}
	}
	if it.line&255 == 0 && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if more, err := it.next(ctx); err != nil {
		return nil, err
	} else if !more {
		return nil, io.EOF
	}
	return it.row(ctx)
}

// next goes to the next line; false: there is none.
func (it *loadIter) next(ctx *sql.Context) (bool, error) {
	more, truncated := it.fields.nextLine()
	if truncated && it.line > it.ld.IgnoreNum {
		warn(ctx, mysql.NewSQLError(1262, "01000", "Row %d was truncated; it contained more data than there were input columns", it.line-it.ld.IgnoreNum))
	}
	if !more {
		if it.fields.err == errFieldTooLong {
			return false, errFieldTooLong
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if it.fields.err != nil {
			return false, fmt.Errorf("reading the file of LOAD DATA: %w", it.fields.err)
		}
		if it.ld.Local && it.state.ended != nil && it.state.ended.Load() {
			return false, errGone // the protocol layer takes the end of the connection for that of the file
		}
		return false, nil
	}
	it.line++
	it.state.records++
	it.metrics.LoadRowsTotal.Add(1)
	return true, nil
}

// decoded gives the text of field i in UTF-8.
func (it *loadIter) decoded(b []byte, i int) ([]byte, error) {
	d, valid := it.decode(b)
	if !valid {
		return nil, mysql.NewSQLError(1366, "HY000", "Invalid %s character string in field %d of row %d", it.ld.Charset, i+1, it.line-it.ld.IgnoreNum)
	}
	return d, nil
}

func (it *loadIter) warnShort(ctx *sql.Context) {
	warn(ctx, mysql.NewSQLError(1261, "01000", "Row %d doesn't contain data for all columns", it.line-it.ld.IgnoreNum))
}

func (it *loadIter) row(ctx *sql.Context) (sql.Row, error) {
	row := make(sql.Row, it.width)
	clear(it.filled)
	clear(it.texts)
	short := false
	for i := range it.columns[:min(it.listed, len(it.columns))] {
		c := &it.columns[i]
		b, null, ok := it.fields.field()
		if ok && it.decode != nil && !null {
			var err error
			if b, err = it.decoded(b, i); err != nil {
				return nil, err
			}
		}
		if c.variable != "" {
			var v any
			if ok && !null {
				v = string(b)
			}
			if err := ctx.SetUserVariable(ctx, c.variable, v, types.LongText); err != nil {
				return nil, err
			}
			continue
		}
		if !ok {
			short = short || c.set == nil
			continue
		}
		it.filled[c.at] = true
		if null {
			continue
		}
		if it.texts != nil {
			it.texts[c.destAt] = string(b)
		}
		if c.convert != nil {
			if v, exact := c.convert(b); exact {
				row[c.at] = v
				continue
			}
		}
		row[c.at] = string(b)
	}
	if short {
		it.warnShort(ctx)
	}
	for i := range it.columns {
		c := &it.columns[i]
		if c.at < 0 || c.dest == nil {
			continue
		}
		switch {
		case c.set != nil:
			v, err := c.set.Eval(ctx, it.texts)
			if err != nil {
				return nil, err
			}
			row[c.at] = v
		case it.filled[c.at]:
		case !c.dest.Nullable && !c.dest.AutoIncrement:
			// A line too short leaves the type's zero value, not the default.
			row[c.at] = c.dest.Type.Zero()
		case c.dest.Default != nil:
			v, err := c.dest.Default.Eval(ctx, it.inTableOrder(row))
			if err != nil {
				return nil, err
			}
			row[c.at] = v
		}
	}
	return row, nil
}

// inTableOrder is the row for default expressions, which name columns by their place in the table.
func (it *loadIter) inTableOrder(row sql.Row) sql.Row {
	out := make(sql.Row, it.width)
	for _, c := range it.columns {
		if c.at >= 0 && c.dest != nil {
			out[c.destAt] = row[c.at]
		}
	}
	return out
}

// loadInfo is the text that clients show after LOAD DATA.
func loadInfo(st loadState, affected int64, replace bool, warnings uint16) string {
	skipped, deleted := st.records-affected, int64(0)
	switch {
	case st.counted:
		deleted = st.replaced
		skipped = st.records - (affected - deleted)
	case replace:
		skipped, deleted = 0, max(affected-st.records, 0)
	}
	return fmt.Sprintf("Records: %d  Deleted: %d  Skipped: %d  Warnings: %d", st.records, deleted, max(skipped, 0), warnings)
}

// dropMax is how long the rest of a client's file is read after the statement was cancelled. A client that is not at its end by
// then is hung up on.
const dropMax = 5 * time.Second

// watch closes the file when the statement is cancelled: a client that sends nothing does not hold it up. What the client sends
// after that is dropped.
func (it *loadIter) watch(ctx *sql.Context) (stop func()) {
	file, done := it.file, make(chan struct{})
	hangUp := it.state.hangUp
	unwatch := context.AfterFunc(ctx, func() {
		defer close(done)
		if hangUp != nil {
			t := time.AfterFunc(dropMax, func() { _ = hangUp() })
			defer t.Stop()
		}
		_ = file.Close() // Close is asked again, and answers then
	})
	return func() {
		if !unwatch() {
			<-done
		}
	}
}

func (it *loadIter) Close(*sql.Context) error {
	if it.file == nil {
		return nil
	}
	err := it.file.Close()
	it.stopWatch()
	it.file = nil
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
