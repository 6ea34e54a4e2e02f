package wire

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// valueConverter gives values of LOAD DATA the types of their columns. With IGNORE a bad value becomes the closest good one
// and a warning.
type valueConverter struct {
	schema sql.Schema
	ready  []func(any) bool // per column: is the value already what the column stores
	ignore bool
	line   int64 // that the values are from
}

func newValueConverter(schema sql.Schema, ignore bool) valueConverter {
	c := valueConverter{schema: schema, ignore: ignore}
	for _, col := range schema {
		c.ready = append(c.ready, readyTest(col.Type))
	}
	return c
}

// value converts a value of column i.
func (c *valueConverter) value(ctx *sql.Context, i int, v any) (any, error) {
	switch {
	case v != nil:
		return c.convert(ctx, i, v)
	case c.schema[i].Nullable:
		return nil, nil
	}
	return c.notNull(ctx, i)
}

// notNull is the value that stands in for NULL in column i.
func (c *valueConverter) notNull(ctx *sql.Context, i int) (any, error) {
	col := c.schema[i]
	err := mysql.NewSQLError(1263, "22004", "Column set to default value; NULL supplied to NOT NULL column '%s' at row %d", col.Name, c.line)
	if !c.ignore {
		return nil, err
	}
	c.warn(ctx, err)
	return col.Type.Zero(), nil
}

func (c *valueConverter) convert(ctx *sql.Context, i int, v any) (any, error) {
	if c.ready[i](v) {
		return v, nil
	}
	col := c.schema[i]
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
		return out, nil
	}
	err = c.name(err, v, col)
	if !c.ignore || col.Type.Type() == querypb.Type_JSON {
		return nil, err
	}
	if e := MySQLError(err); e.Num == 1406 {
		err = mysql.NewSQLError(1265, "01000", "Data truncated for column '%s' at row %d", col.Name, c.line)
	}
	c.warn(ctx, err)
	return closest(v, out, col.Type), nil
}

// name says in which column and row a value is wrong.
func (c *valueConverter) name(err error, v any, col *sql.Column) error {
	e := MySQLError(err)
	switch e.Num {
	case 1406:
		return mysql.NewSQLError(1406, "22001", "Data too long for column '%s' at row %d", col.Name, c.line)
	case 1264:
		return mysql.NewSQLError(1264, "22003", "Out of range value for column '%s' at row %d", col.Name, c.line)
	case 1265:
		return mysql.NewSQLError(1265, "01000", "Data truncated for column '%s' at row %d", col.Name, c.line)
	case 1292, 1366:
		if types.IsTime(col.Type) {
			return mysql.NewSQLError(1292, "22007", "Incorrect datetime value: '%v' for column '%s' at row %d", clipValue(v), col.Name, c.line)
		}
		return mysql.NewSQLError(1366, "HY000", "Incorrect %s value: '%v' for column '%s' at row %d", col.Type.String(), clipValue(v), col.Name, c.line)
	}
	return err
}

func clipValue(v any) any {
	if s, ok := v.(string); ok {
		return clip(s, 64)
	}
	return v
}

func (c *valueConverter) warn(ctx *sql.Context, err error) {
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
		return func(v any) bool { // only exact texts make midnights of LOAD DATA's text
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
