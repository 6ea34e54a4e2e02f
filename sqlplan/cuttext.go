package sqlplan

import (
	"fmt"
	"unicode/utf8"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
)

// cutText is its child's value, cut to what a CHAR, VARCHAR, BINARY or VARBINARY column holds, with a warning: so INSERT IGNORE has it.
// The front end's own cuts within characters, and only what is a string.
type cutText struct {
	expression.UnaryExpressionStub
	name string // of the column
	typ  sql.StringType
}

var _ sql.Expression = (*cutText)(nil)

// newCutText gives nil for a column of another type.
func newCutText(child sql.Expression, column *sql.Column) sql.Expression {
	t, ok := column.Type.(sql.StringType)
	if !ok {
		return nil
	}
	switch t.Type() {
	case sqltypes.Char, sqltypes.VarChar, sqltypes.Binary, sqltypes.VarBinary:
		return &cutText{expression.UnaryExpressionStub{Child: child}, column.Name, t}
	}
	return nil
}

func (e *cutText) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := e.Child.Eval(ctx, row)
	if err != nil || v == nil {
		return v, err
	}
	if types.IsBinaryType(e.typ) {
		x, _, err := types.LongBlob.Convert(ctx, v)
		if b, ok := x.([]byte); ok && err == nil && int64(len(b)) > e.typ.MaxByteLength() {
			e.warn(ctx)
			return b[:e.typ.MaxByteLength()], nil
		}
		return v, nil
	}
	x, _, err := types.LongText.Convert(ctx, v)
	s, ok := x.(string)
	most := e.typ.MaxCharacterLength()
	if err != nil || !ok || int64(len(s)) <= most || !utf8.ValidString(s) || int64(utf8.RuneCountInString(s)) <= most {
		return v, nil
	}
	end := 0
	for ; most > 0; most-- {
		_, n := utf8.DecodeRuneInString(s[end:])
		end += n
	}
	e.warn(ctx)
	return s[:end], nil
}

func (e *cutText) warn(ctx *sql.Context) {
	code := erDataTruncated
	if sessionOf(ctx).engine.plainText {
		code = mysql.ERUnknownError
	}
	ctx.Warn(code, "Data truncated for column '%s'", e.name)
}

func (e *cutText) Type(ctx *sql.Context) sql.Type { return e.Child.Type(ctx) }

func (e *cutText) IsNullable(ctx *sql.Context) bool { return e.Child.IsNullable(ctx) }

func (e *cutText) String() string { return e.Child.String() }

// DebugString shows the wrapper in plans.
func (e *cutText) DebugString(ctx *sql.Context) string {
	return fmt.Sprintf("cuttext(%s)", sql.DebugString(ctx, e.Child))
}

func (e *cutText) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(e, len(children), 1)
	}
	return &cutText{expression.UnaryExpressionStub{Child: children[0]}, e.name, e.typ}, nil
}
