package sqlplan

import (
	"math"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// textCall is a function of text that the front end has for text of single bytes only: NULL when an argument is.
type textCall struct {
	name    string
	typ     sql.Type
	numbers []int // the arguments that are numbers
	args    []sql.Expression
	eval    func(c call) (any, error)
}

// call is the arguments of one evaluation, by their place.
type call struct {
	text   [4][]rune
	number [4]int64
	n      int
	folded bool // letters compare without case
}

var (
	_ sql.FunctionExpression = (*textCall)(nil)
	_ sql.CollationCoercible = (*textCall)(nil)
)

// textCallOf gives the maker of a function of text with low to high arguments.
func textCallOf(name string, typ sql.Type, low, high int, numbers []int, eval func(call) (any, error)) func(*sql.Context, ...sql.Expression) (sql.Expression, error) {
	return func(_ *sql.Context, args ...sql.Expression) (sql.Expression, error) {
		if len(args) < low || len(args) > high {
			return nil, sql.ErrInvalidArgumentNumber.New(name, low, len(args))
		}
		return &textCall{name, typ, numbers, args, eval}, nil
	}
}

func (t *textCall) FunctionName() string         { return t.name }
func (t *textCall) Description() string          { return t.name }
func (t *textCall) Type(*sql.Context) sql.Type   { return t.typ }
func (t *textCall) IsNullable(*sql.Context) bool { return true }
func (t *textCall) Children() []sql.Expression   { return t.args }

func (t *textCall) Resolved() bool {
	return !slices.ContainsFunc(t.args, func(a sql.Expression) bool { return !a.Resolved() })
}

func (t *textCall) String() string {
	texts := make([]string, len(t.args))
	for i, a := range t.args {
		texts[i] = a.String()
	}
	return t.name + "(" + strings.Join(texts, ",") + ")"
}

// CollationCoercibility is that of the arguments that are text.
func (t *textCall) CollationCoercibility(ctx *sql.Context) (collation sql.CollationID, coercibility byte) {
	collation, coercibility = sql.Collation_binary, 7
	for i, a := range t.args {
		if !slices.Contains(t.numbers, i) {
			c, k := sql.GetCoercibility(ctx, a)
			collation, coercibility = sql.ResolveCoercibility(collation, coercibility, c, k)
		}
	}
	return collation, coercibility
}

func (t *textCall) WithChildren(ctx *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != len(t.args) {
		return nil, sql.ErrInvalidChildrenNumber.New(t, len(children), len(t.args))
	}
	n := *t
	n.args = children
	return &n, nil
}

func (t *textCall) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	c := call{n: len(t.args)}
	for i, a := range t.args {
		v, err := a.Eval(ctx, row)
		if err != nil || v == nil {
			return nil, err
		}
		if slices.Contains(t.numbers, i) {
			n, _, err := types.ConvertOrTruncate(ctx, v, types.Int64)
			if err != nil {
				return nil, err
			}
			c.number[i], _ = n.(int64)
			continue
		}
		s, _, err := types.ConvertToCollatedString(ctx, v, a.Type(ctx))
		if err != nil {
			return nil, err
		}
		c.text[i] = []rune(s)
	}
	collation, _ := t.CollationCoercibility(ctx)
	c.folded = strings.HasSuffix(collation.Name(), "_ci")
	return t.eval(c)
}

// textMax is max_allowed_packet's default: longer results are NULL, as in MySQL.
const textMax = 64 << 20

func padLeft(c call) (any, error)  { return pad(c, true), nil }
func padRight(c call) (any, error) { return pad(c, false), nil }

func pad(c call, left bool) any {
	s, length, with := c.text[0], c.number[1], c.text[2]
	switch {
	case length < 0 || length > textMax:
		return nil
	case length <= int64(len(s)):
		return string(s[:length])
	case len(with) == 0:
		return ""
	}
	missing := int(length) - len(s)
	fill := slices.Repeat(with, missing/len(with)+1)[:missing]
	if left {
		return string(fill) + string(s)
	}
	return string(s) + string(fill)
}

// insertText is INSERT(text, position, length, new).
func insertText(c call) (any, error) {
	s, at, length, with := c.text[0], c.number[1], c.number[2], c.text[3]
	if at < 1 || at > int64(len(s)) {
		return string(s), nil
	}
	rest := int64(len(s)) - at + 1
	if length < 0 || length > rest {
		length = rest
	}
	return string(s[:at-1]) + string(with) + string(s[at-1+length:]), nil
}

// locate is LOCATE(part, text[, position]).
func locate(c call) (any, error) {
	at := int64(1)
	if c.n == 3 {
		at = c.number[2]
	}
	return position(c.text[0], c.text[1], at, c.folded), nil
}

// instr is INSTR(text, part).
func instr(c call) (any, error) { return position(c.text[1], c.text[0], 1, c.folded), nil }

func position(part, text []rune, at int64, folded bool) int32 {
	if at < 1 || at > int64(len(text))+1 {
		return 0
	}
	if folded {
		part, text = []rune(strings.ToLower(string(part))), []rune(strings.ToLower(string(text)))
	}
	for i := int(at) - 1; i+len(part) <= len(text); i++ {
		if slices.Equal(text[i:i+len(part)], part) {
			return int32(min(i+1, math.MaxInt32))
		}
	}
	return 0
}
