package sqlplan

import (
	"strconv"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/expression/function"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// The front end makes text of every time in one form: a DATE gets a time of day, a DATETIME(6) loses its trailing zeros. So
// a time that becomes text is made text by its own type before.

// textTakers are functions that read their arguments as text.
var textTakers = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(`concat concat_ws left right substring substr mid substring_index length char_length
		character_length octet_length bit_length lower lcase upper ucase trim ltrim rtrim lpad rpad replace insert reverse
		repeat instr locate position ascii hex quote md5 sha sha1 sha2 crc32 to_base64 find_in_set elt regexp_like
		regexp_replace regexp_substr regexp_instr strcmp group_concat`) {
		m[name] = true
	}
	return m
}()

// textTimes gives the positions of the children of an expression that are times and become text in it.
func textTimes(ctx *sql.Context, e sql.Expression) []int {
	from := 0
	switch e := e.(type) {
	case *expression.Convert:
		if !types.IsText(e.Type(ctx)) {
			return nil
		}
	case *expression.Like:
	case *function.If:
		from = 1 // the condition
		if !types.IsText(e.Type(ctx)) {
			return nil
		}
	case *function.IfNull, *function.Coalesce:
		if !types.IsText(e.Type(ctx)) {
			return nil
		}
	case sql.FunctionExpression:
		if !textTakers[strings.ToLower(e.FunctionName())] {
			return nil
		}
	default:
		return nil
	}
	var at []int
	for i, c := range e.Children() {
		if i >= from && c != nil && isClock(ctx, c) {
			at = append(at, i)
		}
	}
	return at
}

// isClock says whether an expression is a DATE, DATETIME or TIMESTAMP.
func isClock(ctx *sql.Context, e sql.Expression) bool {
	if _, ok := e.(*timeText); ok || !e.Resolved() {
		return false
	}
	t := e.Type(ctx)
	return t != nil && (types.IsDateType(t) || types.IsDatetimeType(t) || types.IsTimestampType(t))
}

// withTextTimes makes text of the children that textTimes names.
func withTextTimes(ctx *sql.Context, e sql.Expression, at []int) (sql.Expression, error) {
	children := append([]sql.Expression(nil), e.Children()...)
	for _, i := range at {
		children[i] = &timeText{expression.UnaryExpressionStub{Child: children[i]}}
	}
	return e.WithChildren(ctx, children...)
}

// timeText is the text of a time, as MySQL writes its type.
type timeText struct{ expression.UnaryExpressionStub }

var _ sql.CollationCoercible = (*timeText)(nil)

func (t *timeText) String() string             { return t.Child.String() }
func (t *timeText) Type(*sql.Context) sql.Type { return types.LongText }

// CollationCoercibility implements sql.CollationCoercible.
func (t *timeText) CollationCoercibility(ctx *sql.Context) (sql.CollationID, byte) {
	return ctx.GetCollation(), 4
}

// WithChildren implements sql.Expression.
func (t *timeText) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(t, len(children), 1)
	}
	return &timeText{expression.UnaryExpressionStub{Child: children[0]}}, nil
}

// Eval implements sql.Expression.
func (t *timeText) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := t.Child.Eval(ctx, row)
	x, ok := v.(time.Time)
	if err != nil || !ok {
		return v, err
	}
	typ := t.Child.Type(ctx)
	if types.IsDateType(typ) {
		if x.Equal(types.ZeroTime) {
			return types.ZeroDateStr, nil
		}
		return x.Format(time.DateOnly), nil
	}
	text := x.Format(time.DateTime)
	if x.Equal(types.ZeroTime) {
		text = types.ZeroDateStr + " 00:00:00"
	}
	if d, ok := typ.(sql.DatetimeType); ok && d.Precision() > 0 {
		micros := strconv.Itoa(1_000_000 + x.Nanosecond()/1000)[1:]
		text += "." + micros[:min(d.Precision(), len(micros))]
	}
	return text, nil
}
