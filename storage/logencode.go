package storage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// recordEncoder writes rows as Avro records of a log block's schema.
type recordEncoder struct {
	ops  []encodeOp
	meta int // fields in front that are meta columns
}

type encodeOp struct {
	name         string
	col          int // column of the row
	kind         Kind
	scale        int // Decimal: of the column
	union        bool
	null, branch byte // first bytes of the union
	nullable     bool
	node         *avroType
}

// newRecordEncoder compiles the Avro schema text of a table schema with meta columns.
func newRecordEncoder(text string, s *Schema) (*recordEncoder, error) {
	t, err := parseAvroType(text)
	if err != nil {
		return nil, err
	}
	e := &recordEncoder{}
	for _, f := range t.fields {
		if isMetaColumn(f.name) {
			e.meta++
			continue
		}
		o := encodeOp{name: f.name, col: s.Index(f.name), node: f.typ}
		if o.col < 0 {
			return nil, fmt.Errorf("schema has no column %s", f.name)
		}
		typ := s.Fields[o.col].Type
		o.kind, o.scale = typ.Kind, typ.Scale
		if inner, null := f.typ.optional(); null >= 0 {
			o.node, o.union, o.nullable, o.null, o.branch = inner, true, true, byte(2*null), byte(2-2*null)
		} else if f.typ.kind == avroUnion && len(f.typ.branches) == 1 {
			o.node, o.union = f.typ.branches[0], true
		}
		e.ops = append(e.ops, o)
	}
	if e.meta != len(MetaColumns) {
		return nil, errors.New("schema lacks meta columns")
	}
	return e, nil
}

// record appends one record.
func (e *recordEncoder) record(dst []byte, r *LogRecord, file string) ([]byte, error) {
	if len(r.Row) != len(e.ops) {
		return dst, fmt.Errorf("%d values for %d columns", len(r.Row), len(e.ops))
	}
	for _, s := range [...]string{string(r.CommitTime), r.SeqNo, r.Key, r.Partition, file} {
		dst = append(appendVar(append(dst, 2), int64(len(s))), s...)
	}
	for i := range e.ops {
		o := &e.ops[i]
		v := r.Row[o.col]
		if v == nil {
			switch {
			case o.nullable:
				dst = append(dst, o.null)
			case o.node.kind == avroNull:
				if o.union {
					dst = append(dst, 0)
				}
			case o.node.kind == avroUnion && o.node.nullBranch() >= 0:
				dst = appendVar(dst, int64(o.node.nullBranch()))
			default:
				return dst, fmt.Errorf("column %s: NULL where the schema has none", o.name)
			}
			continue
		}
		if o.union {
			dst = append(dst, o.branch)
		}
		var err error
		if dst, err = o.value(dst, v); err != nil {
			return dst, fmt.Errorf("column %s: %w", o.name, err)
		}
	}
	return dst, nil
}

func (t *avroType) nullBranch() int {
	for i, b := range t.branches {
		if b.kind == avroNull {
			return i
		}
	}
	return -1
}

func (o *encodeOp) value(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case bool:
		if o.kind == Bool && o.node.kind == avroBool {
			return append(dst, boolByte(x)), nil
		}
	case int32:
		if (o.kind == Int32 || o.kind == Date) && (o.node.kind == avroInt || o.node.kind == avroLong) {
			return appendVar(dst, int64(x)), nil
		}
	case int64:
		if (o.kind != Int64 && o.kind != Timestamp) || o.node.kind != avroLong {
			break
		}
		if o.kind == Timestamp {
			switch o.node.logical {
			case "timestamp-millis", "local-timestamp-millis":
				x = floorDiv(x, 1000)
			case "timestamp-nanos", "local-timestamp-nanos":
				if x > math.MaxInt64/1000 || x < math.MinInt64/1000 {
					return dst, errors.New("timestamp is out of range")
				}
				x *= 1000
			}
		}
		return appendVar(dst, x), nil
	case float32:
		if o.kind == Float32 && o.node.kind == avroFloat {
			return op32(dst, x), nil
		}
	case float64:
		if o.kind == Float64 && o.node.kind == avroDouble {
			return op64(dst, x), nil
		}
	case string:
		if o.kind == Nested {
			return o.nested(dst, x)
		}
		if o.kind != String {
			break
		}
		switch o.node.kind {
		case avroString:
			return append(appendVar(dst, int64(len(x))), x...), nil
		case avroEnum:
			for i, s := range o.node.symbols {
				if s == x {
					return appendVar(dst, int64(i)), nil
				}
			}
			return dst, errAvroEnum
		}
	case []byte:
		if o.kind != Bytes {
			break
		}
		switch o.node.kind {
		case avroBytes:
			return append(appendVar(dst, int64(len(x))), x...), nil
		case avroFixed:
			if len(x) != o.node.size {
				return dst, fmt.Errorf("%d bytes for a fixed of %d", len(x), o.node.size)
			}
			return append(dst, x...), nil
		}
	case decimal128.Num:
		if o.kind == Decimal && o.node.logical == "decimal" {
			return o.node.decimal(dst, x, o.scale)
		}
	}
	return dst, fmt.Errorf("%T is no value for avro %s", v, o.node.kind)
}

func (t *avroType) decimal(dst []byte, n decimal128.Num, scale int) ([]byte, error) {
	if scale != t.scale {
		var exact bool
		if n, exact = rescaleDecimal(n, scale, t.scale); !exact {
			return dst, errAvroDecimal
		}
	}
	width := t.size
	if t.kind == avroBytes {
		width = numWidth(n)
		dst = appendVar(dst, int64(width))
	}
	dst, ok := appendDecimal(dst, n, width)
	if !ok {
		return dst, errors.New("decimal has too many digits")
	}
	return dst, nil
}

// nested writes the JSON text of a nested column, as reading gives it, as Avro again.
func (o *encodeOp) nested(dst []byte, text string) ([]byte, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return dst, fmt.Errorf("nested value: %w", err)
	}
	return o.node.appendJSON(dst, v, 0)
}

func (t *avroType) appendJSON(dst []byte, v any, depth int) ([]byte, error) {
	if depth > avroDepthMax {
		return dst, errAvroDepth
	}
	bad := func() ([]byte, error) { return dst, fmt.Errorf("nested value: %T is no avro %s", v, t.kind) }
	number := func(bits int) (int64, bool) {
		n, ok := v.(json.Number)
		x, err := strconv.ParseInt(string(n), 10, bits)
		return x, ok && err == nil
	}
	text, isText := v.(string)
	switch t.kind {
	case avroNull:
		if v == nil {
			return dst, nil
		}
	case avroUnion:
		for i, b := range t.branches {
			if (b.kind == avroNull) == (v == nil) {
				if out, err := b.appendJSON(appendVar(dst, int64(i)), v, depth+1); err == nil || len(t.branches) <= 2 {
					return out, err
				}
			}
		}
	case avroBool:
		if x, ok := v.(bool); ok {
			return append(dst, boolByte(x)), nil
		}
	case avroInt, avroLong:
		if isText {
			if x, ok := t.parseTime(text); ok {
				return appendVar(dst, x), nil
			}
		}
		bits := 64
		if t.kind == avroInt {
			bits = 32
		}
		if x, ok := number(bits); ok {
			return appendVar(dst, x), nil
		}
	case avroFloat, avroDouble:
		n, ok := v.(json.Number)
		if isText {
			n, ok = json.Number(text), text == "NaN" || text == "Infinity" || text == "-Infinity"
		}
		bits := 64
		if t.kind == avroFloat {
			bits = 32
		}
		f, err := strconv.ParseFloat(string(n), bits)
		if !ok || err != nil {
			return bad()
		}
		if bits == 32 {
			return op32(dst, float32(f)), nil
		}
		return op64(dst, f), nil
	case avroString:
		if isText {
			return append(appendVar(dst, int64(len(text))), text...), nil
		}
	case avroEnum:
		for i, s := range t.symbols {
			if isText && s == text {
				return appendVar(dst, int64(i)), nil
			}
		}
	case avroBytes, avroFixed:
		if !isText {
			return bad()
		}
		if t.logical == "decimal" {
			n, ok := parseJSONDecimal(text, t.scale)
			if !ok {
				return bad()
			}
			return t.decimal(dst, n, t.scale)
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || t.kind == avroFixed && len(raw) != t.size {
			return bad()
		}
		if t.kind == avroBytes {
			dst = appendVar(dst, int64(len(raw)))
		}
		return append(dst, raw...), nil
	case avroRecord:
		m, ok := v.(map[string]any)
		if !ok {
			return bad()
		}
		for _, f := range t.fields {
			var err error
			if dst, err = f.typ.appendJSON(dst, m[f.name], depth+1); err != nil {
				return dst, err
			}
		}
		return dst, nil
	case avroArray:
		list, ok := v.([]any)
		if !ok {
			return bad()
		}
		if len(list) > 0 {
			dst = appendVar(dst, int64(len(list)))
		}
		for _, x := range list {
			var err error
			if dst, err = t.items.appendJSON(dst, x, depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case avroMap:
		m, ok := v.(map[string]any)
		if !ok {
			return bad()
		}
		if len(m) > 0 {
			dst = appendVar(dst, int64(len(m)))
		}
		for _, key := range sortedKeys(m) {
			dst = append(appendVar(dst, int64(len(key))), key...)
			var err error
			if dst, err = t.items.appendJSON(dst, m[key], depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	}
	return bad()
}

func (t *avroType) parseTime(text string) (int64, bool) {
	layout := "2006-01-02T15:04:05.000000Z"
	if t.logical == "date" {
		layout = "2006-01-02"
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return 0, false
	}
	switch t.logical {
	case "date":
		return floorDiv(at.Unix(), 86400), true
	case "timestamp-millis", "local-timestamp-millis":
		return at.UnixMilli(), true
	case "timestamp-micros", "local-timestamp-micros":
		return at.UnixMicro(), true
	}
	return 0, false
}

// parseJSONDecimal reads what appendJSONDecimal writes.
func parseJSONDecimal(text string, scale int) (decimal128.Num, bool) {
	whole, digits, _ := strings.Cut(text, ".")
	if len(digits) > scale {
		return decimal128.Num{}, false
	}
	x, ok := new(big.Int).SetString(whole+digits+string(bytes.Repeat([]byte{'0'}, scale-len(digits))), 10)
	if !ok || x.BitLen() > 127 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(x), true
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
