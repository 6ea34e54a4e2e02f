package sqlplan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
)

// enumLabels converts an ENUM between the front end's index (1 is the first label, 0 MySQL's error value ”) and the label
// that stands in the table.
type enumLabels struct {
	typ    types.EnumType
	labels []string // by index, "" at 0
	byText map[string]uint16
}

func newEnumLabels(t types.EnumType) *enumLabels {
	e := &enumLabels{typ: t, labels: append([]string{""}, t.Values()...)}
	e.byText = make(map[string]uint16, len(e.labels))
	for i, label := range e.labels {
		e.byText[label] = uint16(i) // a label '' takes the place of the error value
	}
	return e
}

func (e *enumLabels) label(v any) (string, error) {
	i, ok := v.(uint16)
	if !ok {
		var err error
		if i, err = exact(e.typ, v, func(i uint16) uint16 { return i }); err != nil {
			return "", err
		}
	}
	if int(i) >= len(e.labels) {
		return "", types.ErrConvertingToEnum.New(i)
	}
	if i == 0 && e.byText[""] != 0 {
		// Both would be '' in the table.
		return "", mysql.NewSQLError(mysql.ERWarnDataTruncated, "01000", "Data truncated: the error value of %s cannot be told from its member ''", e.typ)
	}
	return e.labels[i], nil
}

func (e *enumLabels) index(s string) (any, error) {
	i, ok := e.byText[s]
	if !ok {
		return nil, types.ErrConvertingToEnum.New(s)
	}
	return i, nil
}

// setLabels converts a SET between the front end's bits and the members separated by commas, in the type's order.
type setLabels struct {
	typ    types.SetType
	byText map[string]uint64
	empty  uint64 // bit of the member '', 0 if there is none
}

// onlyEmptyMember is the text of a SET that holds the member ” alone. MySQL writes it like the empty set, but reads this
// form too.
const onlyEmptyMember = ","

func newSetLabels(t types.SetType) *setLabels {
	s := &setLabels{typ: t, byText: map[string]uint64{}}
	for i, member := range t.Values() {
		s.byText[member] = 1 << i
	}
	s.empty = s.byText[""]
	return s
}

func (s *setLabels) text(v any) (string, error) {
	b, ok := v.(uint64)
	if !ok {
		var err error
		if b, err = exact(s.typ, v, func(b uint64) uint64 { return b }); err != nil {
			return "", err
		}
	}
	if b == s.empty && b != 0 {
		return onlyEmptyMember, nil
	}
	return s.typ.BitsToString(b)
}

func (s *setLabels) bits(text string) (any, error) {
	if text == "" {
		return uint64(0), nil
	}
	if text == onlyEmptyMember && s.empty != 0 {
		return s.empty, nil
	}
	var b uint64
	for member := range strings.SplitSeq(text, ",") {
		bit, ok := s.byText[member]
		if !ok {
			return nil, sql.ErrInvalidSetValue.New(member)
		}
		b |= bit
	}
	return b, nil
}

// jsonDocument is a JSON value read from a table: its text, parsed when a function looks inside. Unlike the front end's own
// lazy document it keeps integers beyond 2^53 exact.
type jsonDocument struct {
	text  string
	parse func() (any, error)
}

var (
	_ types.JSONBytes = (*jsonDocument)(nil)
	_ fmt.Stringer    = (*jsonDocument)(nil)
)

func jsonValue(text string) *jsonDocument {
	return &jsonDocument{text: text, parse: sync.OnceValues(func() (any, error) { return parseJSON(text) })}
}

// Clone gives a document of its own.
func (d *jsonDocument) Clone(context.Context) sql.JSONWrapper { return jsonValue(d.text) }

// ToInterface gives the parsed value: nil, bool, float64, int64, uint64, string, []any or map[string]any.
func (d *jsonDocument) ToInterface(context.Context) (any, error) { return d.parse() }

// GetBytes gives the text as it stands in the table.
func (d *jsonDocument) GetBytes(context.Context) ([]byte, error) { return []byte(d.text), nil }

func (d *jsonDocument) String() string { return d.text }

func parseJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, sql.ErrInvalidJson.New(err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, sql.ErrInvalidJson.New("more than one value")
	}
	return plainNumbers(v)
}

// floatIntMax is the largest integer up to which every integer is a float64.
const floatIntMax = 1 << 53

// plainNumbers replaces numbers by the Go types that the front end's JSON functions know. Small integers become float64, as
// in documents that the front end parses itself.
func plainNumbers(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case []any:
		for i := range x {
			if x[i], err = plainNumbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = plainNumbers(x[k]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		s := x.String()
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			if n > floatIntMax || n < -floatIntMax {
				return n, nil
			}
			return float64(n), nil
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return n, nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(f, 0) {
			return nil, sql.ErrInvalidJson.New("number " + s + " is too large")
		}
		return f, nil
	}
	return v, nil
}

// jsonText gives the text of a JSON value as MySQL prints it. A document that came from a table keeps its text.
func jsonText(v any) (string, error) {
	switch x := v.(type) {
	case *jsonDocument:
		return x.text, nil
	case sql.JSONWrapper:
		if lazy, ok := x.(types.JSONBytes); ok {
			b, err := lazy.GetBytes(context.Background())
			if err != nil {
				return "", err
			}
			doc, err := parseJSON(string(bytes.TrimSpace(b)))
			if err != nil {
				return "", err
			}
			x = types.JSONDocument{Val: doc}
		}
		return types.JsonToMySqlString(context.Background(), x)
	}
	doc, _, err := types.JSON.Convert(context.Background(), v)
	if err != nil {
		return "", err
	}
	w, ok := doc.(sql.JSONWrapper)
	if !ok {
		return "", sql.ErrInvalidJson.New(fmt.Sprint(v))
	}
	return types.JsonToMySqlString(context.Background(), w)
}
