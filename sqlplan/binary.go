package sqlplan

import (
	"unicode/utf8"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression/function"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
)

// Functions that cut and join text work on bytes when one of their arguments is binary. The front end's know characters only:
// they refuse what is no UTF-8 or bend it. Here each byte stands for a character while they work.

// textFunctions makes the front end's functions of text, by name.
var textFunctions = map[string]func(*sql.Context, ...sql.Expression) (sql.Expression, error){
	"concat_ws":       function.NewConcatWithSeparator,
	"insert":          textCallOf("insert", types.LongText, 4, 4, []int{1, 2}, insertText),
	"instr":           textCallOf("instr", types.Int32, 2, 2, nil, instr),
	"left":            of2("left", function.NewLeft),
	"locate":          textCallOf("locate", types.Int32, 2, 3, []int{2}, locate),
	"lpad":            textCallOf("lpad", types.LongText, 3, 3, []int{1}, padLeft),
	"ltrim":           of1("ltrim", function.NewLeftTrim),
	"mid":             function.NewSubstring,
	"repeat":          of2("repeat", function.NewRepeat),
	"replace":         of3("replace", function.NewReplace),
	"reverse":         of1("reverse", function.NewReverse),
	"right":           of2("right", function.NewRight),
	"rpad":            textCallOf("rpad", types.LongText, 3, 3, []int{1}, padRight),
	"rtrim":           of1("rtrim", function.NewRightTrim),
	"substr":          function.NewSubstring,
	"substring":       function.NewSubstring,
	"substring_index": of3("substring_index", function.NewSubstringIndex),
}

// textFunction gives a function of text that knows bytes.
func textFunction(name string) (sql.Function, bool) {
	build, ok := textFunctions[name]
	if !ok {
		return nil, false
	}
	return sql.FunctionN{Name: name, Fn: func(ctx *sql.Context, args ...sql.Expression) (sql.Expression, error) {
		f, err := build(ctx, args...)
		if err != nil || !anyBinary(ctx, args) {
			return f, err
		}
		return newBytesCall(ctx, f)
	}}, true
}

func arguments(name string, want int, args []sql.Expression) error {
	if len(args) != want {
		return sql.ErrInvalidArgumentNumber.New(name, want, len(args))
	}
	return nil
}

func of1(name string, f func(*sql.Context, sql.Expression) sql.Expression) func(*sql.Context, ...sql.Expression) (sql.Expression, error) {
	return func(ctx *sql.Context, a ...sql.Expression) (sql.Expression, error) {
		if err := arguments(name, 1, a); err != nil {
			return nil, err
		}
		return f(ctx, a[0]), nil
	}
}

func of2(name string, f func(_ *sql.Context, a, b sql.Expression) sql.Expression) func(*sql.Context, ...sql.Expression) (sql.Expression, error) {
	return func(ctx *sql.Context, a ...sql.Expression) (sql.Expression, error) {
		if err := arguments(name, 2, a); err != nil {
			return nil, err
		}
		return f(ctx, a[0], a[1]), nil
	}
}

func of3(name string, f func(_ *sql.Context, a, b, c sql.Expression) sql.Expression) func(*sql.Context, ...sql.Expression) (sql.Expression, error) {
	return func(ctx *sql.Context, a ...sql.Expression) (sql.Expression, error) {
		if err := arguments(name, 3, a); err != nil {
			return nil, err
		}
		return f(ctx, a[0], a[1], a[2]), nil
	}
}

func anyBinary(ctx *sql.Context, args []sql.Expression) bool {
	for _, a := range args {
		if !a.Resolved() {
			continue
		}
		switch a.Type(ctx).Type() {
		case sqltypes.Binary, sqltypes.VarBinary, sqltypes.Blob:
			return true
		}
	}
	return false
}

// bytesCall is a function of text over bytes. Its child is the front end's function over byteText arguments.
type bytesCall struct {
	call sql.Expression
}

var (
	_ sql.Expression         = (*bytesCall)(nil)
	_ sql.CollationCoercible = (*bytesCall)(nil)
)

// newBytesCall gives a function of text whose arguments are bytes.
func newBytesCall(ctx *sql.Context, f sql.Expression) (sql.Expression, error) {
	args := f.Children()
	wrapped := make([]sql.Expression, len(args))
	for i, a := range args {
		wrapped[i] = a
		if a.Resolved() && types.IsText(a.Type(ctx)) {
			wrapped[i] = &byteText{a}
		}
	}
	call, err := f.WithChildren(ctx, wrapped...)
	if err != nil {
		return nil, err
	}
	return &bytesCall{call}, nil
}

func (b *bytesCall) Resolved() bool                   { return b.call.Resolved() }
func (b *bytesCall) String() string                   { return b.call.String() }
func (b *bytesCall) IsNullable(ctx *sql.Context) bool { return b.call.IsNullable(ctx) }
func (b *bytesCall) Children() []sql.Expression       { return []sql.Expression{b.call} }
func (b *bytesCall) isText(ctx *sql.Context) bool     { return types.IsText(b.call.Type(ctx)) }
func (b *bytesCall) CollationCoercibility(ctx *sql.Context) (sql.CollationID, byte) {
	return sql.Collation_binary, 4
}

func (b *bytesCall) Type(ctx *sql.Context) sql.Type {
	if b.isText(ctx) {
		return types.LongBlob
	}
	return b.call.Type(ctx)
}

func (b *bytesCall) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := b.call.Eval(ctx, row)
	if err != nil || v == nil || !b.isText(ctx) {
		return v, err
	}
	s, _, err := types.LongText.Convert(ctx, v)
	if err != nil {
		return nil, err
	}
	text := s.(string)
	out := make([]byte, 0, utf8.RuneCountInString(text))
	for _, r := range text {
		out = append(out, byte(r))
	}
	return out, nil
}

func (b *bytesCall) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(b, len(children), 1)
	}
	return &bytesCall{children[0]}, nil
}

// byteText is the text with a character for each byte of a value.
type byteText struct{ child sql.Expression }

var (
	_ sql.Expression         = (*byteText)(nil)
	_ sql.CollationCoercible = (*byteText)(nil)
)

func (b *byteText) Resolved() bool                   { return b.child.Resolved() }
func (b *byteText) String() string                   { return b.child.String() }
func (b *byteText) Type(*sql.Context) sql.Type       { return types.LongText }
func (b *byteText) IsNullable(ctx *sql.Context) bool { return b.child.IsNullable(ctx) }
func (b *byteText) Children() []sql.Expression       { return []sql.Expression{b.child} }
func (b *byteText) CollationCoercibility(ctx *sql.Context) (sql.CollationID, byte) {
	return sql.Collation_utf8mb4_bin, 4
}

func (b *byteText) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	v, err := b.child.Eval(ctx, row)
	if err != nil || v == nil {
		return v, err
	}
	if v, err = sql.UnwrapAny(ctx, v); err != nil {
		return nil, err
	}
	raw, ok := v.([]byte)
	if !ok {
		s, _, err := types.LongText.Convert(ctx, v)
		if err != nil || s == nil {
			return nil, err
		}
		raw = []byte(s.(string))
	}
	out := make([]byte, 0, len(raw)+8)
	for _, c := range raw {
		out = utf8.AppendRune(out, rune(c))
	}
	return string(out), nil
}

func (b *byteText) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 1 {
		return nil, sql.ErrInvalidChildrenNumber.New(b, len(children), 1)
	}
	return &byteText{children[0]}, nil
}
