package wire

import (
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
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
	schema sql.Schema
	ready  []func(any) bool // per column: is the value already what the column stores
	ignore bool
	begun  bool
	done   bool
	failed error
	line   int64
}

func newLoadInsert(ctx *sql.Context, ii *plan.InsertInto, rows sql.RowIter) (sql.RowIter, error) {
	t, err := plan.GetInsertable(ii.Destination)
	if err != nil {
		return nil, err
	}
	it := &loadInsert{rows: rows, table: t.Inserter(ctx), schema: ii.Destination.Schema(ctx), ignore: ii.Ignore}
	for _, col := range it.schema {
		it.ready = append(it.ready, readyTest(col.Type))
	}
	return it, nil
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
			it.line++
			if it.line%1024 == 0 {
				sql.SessionCommandSafepoint(ctx.Session)
			}
			err = it.insert(ctx, row)
		}
		switch {
		case err == nil:
			taken++
		case it.ignore && (sql.ErrPrimaryKeyViolation.Is(err) || sql.ErrUniqueKeyViolation.Is(err)):
			it.warn(ctx, err)
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
	if err := it.convert(ctx, row); err != nil {
		return err
	}
	return it.table.Insert(ctx, row)
}

// convert gives the row the columns' types. With IGNORE a bad value becomes the closest good one and a warning.
func (it *loadInsert) convert(ctx *sql.Context, row sql.Row) error {
	for i, col := range it.schema {
		v := row[i]
		if v == nil {
			if col.Nullable {
				continue
			}
			err := sql.ErrInsertIntoNonNullableProvidedNull.New(col.Name)
			if !it.ignore {
				return err
			}
			row[i] = col.Type.Zero()
			it.warn(ctx, err)
			continue
		}
		if it.ready[i](v) {
			continue
		}
		var out any
		var in sql.ConvertInRange
		var err error
		if t, ok := col.Type.(sql.RoundingNumberType); ok {
			out, in, err = t.ConvertRound(ctx, v)
		} else {
			out, in, err = col.Type.Convert(ctx, v)
		}
		if err == nil && in != sql.InRange {
			err = sql.ErrValueOutOfRange.New(v, col.Type)
		}
		if err == nil {
			row[i] = out
			continue
		}
		err = it.name(err, v, col)
		if !it.ignore || col.Type.Type() == querypb.Type_JSON {
			return err
		}
		row[i] = closest(v, out, col.Type)
		if e := MySQLError(err); e.Num == 1406 {
			err = mysql.NewSQLError(1265, "01000", "Data truncated for column '%s' at row %d", col.Name, it.line)
		}
		it.warn(ctx, err)
	}
	return nil
}

// name says in which column and row a value is wrong.
func (it *loadInsert) name(err error, v any, col *sql.Column) error {
	e := MySQLError(err)
	switch e.Num {
	case 1406:
		return mysql.NewSQLError(1406, "22001", "Data too long for column '%s' at row %d", col.Name, it.line)
	case 1264:
		return mysql.NewSQLError(1264, "22003", "Out of range value for column '%s' at row %d", col.Name, it.line)
	case 1265:
		return mysql.NewSQLError(1265, "01000", "Data truncated for column '%s' at row %d", col.Name, it.line)
	case 1292, 1366:
		if types.IsTime(col.Type) {
			return mysql.NewSQLError(1292, "22007", "Incorrect datetime value: '%v' for column '%s' at row %d", clipValue(v), col.Name, it.line)
		}
		return mysql.NewSQLError(1366, "HY000", "Incorrect %s value: '%v' for column '%s' at row %d", col.Type.String(), clipValue(v), col.Name, it.line)
	}
	return err
}

func clipValue(v any) any {
	if s, ok := v.(string); ok {
		return clip(s, 64)
	}
	return v
}

func (it *loadInsert) warn(ctx *sql.Context, err error) {
	warn(ctx, MySQLError(err))
}

// maxWarnings is max_error_count: a file may be bad in every row.
const maxWarnings = 1024

func warn(ctx *sql.Context, e *mysql.SQLError) {
	if ctx.WarningCount() < maxWarnings {
		ctx.Warn(e.Num, "%s", e.Message)
	}
}

// closest is the value that stands in for a bad one: a number clipped or read
// as far as it goes, a text cut to the column's length, else the type's zero.
func closest(v, out any, t sql.Type) any {
	if d, ok := t.(sql.DecimalType); ok && d.IsDecimalType() {
		return closestDecimal(v, d)
	}
	if sql.IsNumberType(t) {
		if out != nil {
			return out
		}
		return t.Zero()
	}
	st, ok := t.(sql.StringType)
	s, text := v.(string)
	if !ok || !text {
		return t.Zero()
	}
	if !utf8.ValidString(s) && !types.IsBinaryType(t) {
		for i := range s { // up to the first byte that is no text
			if r, n := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && n == 1 {
				s = s[:i]
				break
			}
		}
	}
	left := st.MaxCharacterLength()
	if types.IsBinaryType(t) {
		s = s[:min(int64(len(s)), st.MaxByteLength())]
		return []byte(s)
	}
	for i := range s {
		if left == 0 {
			return s[:i]
		}
		left--
	}
	return s
}

// closestDecimal is the largest or smallest value of a column for a number beyond it, and zero for what is no number.
func closestDecimal(v any, t sql.DecimalType) any {
	text, _ := v.(string)
	d, _, err := apd.NewFromString(strings.TrimSpace(text))
	if err != nil || d.Form != apd.Finite || d.IsZero() {
		return t.Zero()
	}
	most := new(apd.Decimal)
	_, _ = sql.DecimalCtx.Sub(most, t.ExclusiveUpperBound(), apd.New(1, -int32(t.Scale())))
	most.Negative = d.Negative
	return most
}

// readyTest is exact: what passes it, the column's own conversion would return unchanged.
func readyTest(t sql.Type) func(any) bool {
	switch t.Type() {
	case querypb.Type_INT8:
		return func(v any) bool { _, ok := v.(int8); return ok }
	case querypb.Type_INT16:
		return func(v any) bool { _, ok := v.(int16); return ok }
	case querypb.Type_INT32:
		return func(v any) bool { _, ok := v.(int32); return ok }
	case querypb.Type_INT64:
		return func(v any) bool { _, ok := v.(int64); return ok }
	case querypb.Type_UINT32:
		return func(v any) bool { _, ok := v.(uint32); return ok }
	case querypb.Type_UINT64:
		return func(v any) bool { _, ok := v.(uint64); return ok }
	case querypb.Type_FLOAT64:
		return func(v any) bool { _, ok := v.(float64); return ok }
	case querypb.Type_DATE:
		return func(v any) bool { // only exactConverter makes midnights of LOAD DATA's text
			x, ok := v.(time.Time)
			return ok && x.Hour()|x.Minute()|x.Second()|x.Nanosecond() == 0 && x.Year() > 0
		}
	case querypb.Type_DATETIME:
		dt, ok := t.(sql.DatetimeType)
		if !ok {
			break
		}
		unit := time.Second
		for range dt.Precision() {
			unit /= 10
		}
		return func(v any) bool {
			x, ok := v.(time.Time)
			return ok && time.Duration(x.Nanosecond())%unit == 0 && x.Year() > 0
		}
	case querypb.Type_DECIMAL:
		d, ok := t.(sql.DecimalType)
		if !ok {
			break
		}
		scale, digits := int32(d.Scale()), int64(d.Precision())
		return func(v any) bool {
			x, ok := v.(*apd.Decimal)
			return ok && x.Exponent == -scale && x.NumDigits() <= digits
		}
	case querypb.Type_VARCHAR, querypb.Type_CHAR:
		st, ok := t.(sql.StringType)
		if !ok || st.CharacterSet() != sql.CharacterSet_utf8mb4 {
			break
		}
		most := int(st.MaxCharacterLength())
		char := t.Type() == querypb.Type_CHAR
		return func(v any) bool {
			s, ok := v.(string)
			if !ok || len(s) > most {
				return false
			}
			return utf8.ValidString(s) && !(char && len(s) > 0 && s[len(s)-1] == ' ')
		}
	}
	return func(any) bool { return false }
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
