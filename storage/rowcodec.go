package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// EncodeRow appends a row as plain Avro binary: the columns of s in order, each a union of null and its type, whatever
// Nullable says, so that the bytes stay readable when only that changes. The types are those that Schema.Avro gives
// columns without a schema of their own; a nested column is its JSON text. An error names the column whose value is not
// of its kind; dst is then returned as it was.
func EncodeRow(s *Schema, row Row, dst []byte) ([]byte, error) {
	if len(row) != len(s.Fields) {
		return dst, fmt.Errorf("encoding a row: %d values for %d columns", len(row), len(s.Fields))
	}
	start := len(dst)
	for i := range row {
		v := row[i]
		if v == nil {
			dst = append(dst, 0)
			continue
		}
		t := &s.Fields[i].Type
		ok := false
		dst = append(dst, 2)
		switch x := v.(type) {
		case bool:
			if ok = t.Kind == Bool; ok {
				dst = append(dst, boolByte(x))
			}
		case int32:
			ok = t.Kind == Int32 || t.Kind == Date
			dst = appendVar(dst, int64(x))
		case int64:
			ok = t.Kind == Int64 || t.Kind == Timestamp
			dst = appendVar(dst, x)
		case float32:
			ok = t.Kind == Float32
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		case float64:
			ok = t.Kind == Float64
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
		case string:
			ok = t.Kind == String || t.Kind == Nested
			dst = append(appendVar(dst, int64(len(x))), x...)
		case []byte:
			ok = t.Kind == Bytes
			dst = append(appendVar(dst, int64(len(x))), x...)
		case decimal128.Num:
			if t.Kind == Decimal && t.Precision >= 1 && t.Precision <= 38 {
				dst, ok = appendDecimal(dst, x, decimalWidth(t.Precision))
			}
		}
		if !ok {
			return dst[:start], fmt.Errorf("encoding a row: column %s: %T is no value of type %s", s.Fields[i].Name, v, *t)
		}
	}
	return dst, nil
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendVar appends a zigzag number.
func appendVar(dst []byte, x int64) []byte {
	u := uint64(x<<1) ^ uint64(x>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// rowType is the Avro type of the rows that EncodeRow writes.
func rowType(s *Schema) (*avroType, error) {
	null := &avroType{kind: avroNull}
	r := &avroType{kind: avroRecord}
	for _, f := range s.Fields {
		t := &avroType{}
		switch f.Type.Kind {
		case Bool:
			t.kind = avroBool
		case Int32:
			t.kind = avroInt
		case Int64:
			t.kind = avroLong
		case Float32:
			t.kind = avroFloat
		case Float64:
			t.kind = avroDouble
		case String, Nested:
			t.kind = avroString
		case Bytes:
			t.kind = avroBytes
		case Date:
			t.kind, t.logical = avroInt, "date"
		case Timestamp:
			t.kind, t.logical = avroLong, "timestamp-micros"
		case Decimal:
			if f.Type.Precision < 1 || f.Type.Precision > 38 {
				return nil, fmt.Errorf("column %s: %w: %s", f.Name, ErrUnsupported, f.Type)
			}
			t.kind, t.logical = avroFixed, "decimal"
			t.precision, t.scale, t.size = f.Type.Precision, f.Type.Scale, decimalWidth(f.Type.Precision)
		default:
			return nil, fmt.Errorf("column %s: %w: %s", f.Name, ErrUnsupported, f.Type)
		}
		r.fields = append(r.fields, avroField{f.Name, &avroType{kind: avroUnion, branches: []*avroType{null, t}}})
	}
	return r, nil
}

// RowDecoder reads rows that EncodeRow wrote. It is safe for concurrent use.
type RowDecoder struct{ p *program }

// NewRowDecoder compiles the way from the schema that the rows were written with to the schema wanted: columns match by
// name, one that the writer lacks is NULL, one that the reader lacks is skipped, a promoted one is converted.
func NewRowDecoder(writer, reader *Schema) (*RowDecoder, error) {
	t, err := rowType(writer)
	if err != nil {
		return nil, fmt.Errorf("row decoder: %w", err)
	}
	p, err := compileProgram(t, reader)
	if err != nil {
		return nil, fmt.Errorf("row decoder: %w", err)
	}
	return &RowDecoder{p}, nil
}

// Decode reads one row, which fills b, into dst's memory if that is large enough. The row does not share memory with b.
func (d *RowDecoder) Decode(b []byte, dst Row) (Row, error) {
	return d.p.row(b, dst)
}

// DecodeBatch reads rows into one batch of the reader's schema without building Rows.
func (d *RowDecoder) DecodeBatch(rows [][]byte) (Batch, error) {
	return d.p.batch(rows)
}

type opCode uint8

const (
	opNull        opCode = iota // nothing is stored
	opBool                      // boolean → Bool
	opInt32                     // int → Int32, Date
	opInt64                     // int, long → Int64, Timestamp
	opMillis                    // long → Timestamp
	opNanos                     // long → Timestamp
	opVarFloat32                // int, long → Float32
	opVarFloat64                // int, long → Float64
	opFloat32                   // float → Float32
	opFloat32to64               // float → Float64
	opFloat64                   // double → Float64
	opString                    // string, bytes → String, Nested
	opBytes                     // string, bytes → Bytes
	opFixed                     // fixed → Bytes
	opEnum                      // enum → String
	opDecBytes                  // bytes → Decimal
	opDecFixed                  // fixed → Decimal
	opText                      // anything → Nested as JSON text
	opConvert                   // a scalar read as its own kind, then ConvertValue
	opSkipVar                   // int, long, enum
	opSkipFixed                 // a known number of bytes
	opSkipSpan                  // string, bytes
	opSkipNode                  // anything
)

// op handles one field of the writer's record.
type op struct {
	code   opCode
	null   int16 // first byte of the union with null when the value is NULL; -1: no union
	col    int32 // column of the reader, -1: none
	size   int32 // opFixed, opDecFixed, opSkipFixed: bytes
	branch byte  // first byte of the union when there is a value
	node   *avroType
	from   Type   // opConvert: the writer's type
	to     Type   // opConvert: the reader's type
	inner  opCode // opConvert: how to read that
}

// program turns records of one writer schema into rows of a wanted schema.
type program struct {
	want    *Schema
	ops     []op
	missing []int32 // columns that the writer lacks
	texts   int     // columns that are String or Bytes
	exact   bool    // the ops cover the whole record
}

var errAvroTail = errors.New("bytes are left behind the last column")

// compileProgram resolves a record type to a wanted schema.
func compileProgram(w *avroType, want *Schema) (*program, error) {
	if w.kind != avroRecord {
		return nil, fmt.Errorf("avro schema is a %s, not a record", w.kind)
	}
	p := &program{want: want, exact: true}
	index := make(map[string]int32, len(want.Fields))
	for i, f := range want.Fields {
		if _, ok := index[f.Name]; ok {
			return nil, fmt.Errorf("column %s is wanted twice", f.Name)
		}
		index[f.Name] = int32(i)
		if f.Type.Kind == String || f.Type.Kind == Bytes {
			p.texts++
		}
	}
	for _, f := range w.fields {
		o := op{col: -1, null: -1, node: f.typ}
		t, null := f.typ.optional()
		if null >= 0 {
			o.null, o.branch, o.node = int16(null)*2, byte(2-2*null), t
		}
		if col, ok := index[f.name]; ok {
			delete(index, f.name)
			o.col = col
			if err := o.resolve(want.Fields[col].Type); err != nil {
				return nil, fmt.Errorf("column %s: %w", f.name, err)
			}
			p.ops = append(p.ops, o)
			continue
		}
		o.code, o.size = o.node.skipOp()
		p.ops = append(p.ops, o)
	}
	for i, f := range want.Fields {
		if _, ok := index[f.Name]; ok {
			p.missing = append(p.missing, int32(i))
		}
	}
	return p, nil
}

// trim forgets the fields behind the last wanted one, for records whose length is known from outside.
func (p *program) trim() *program {
	n := len(p.ops)
	for n > 0 && p.ops[n-1].col < 0 {
		n--
	}
	if n < len(p.ops) {
		p.ops, p.exact = p.ops[:n], false
	}
	return p
}

func (t *avroType) skipOp() (opCode, int32) {
	switch t.kind {
	case avroNull:
		return opNull, 0
	case avroInt, avroLong, avroEnum:
		return opSkipVar, 0
	case avroBool:
		return opSkipFixed, 1
	case avroFloat:
		return opSkipFixed, 4
	case avroDouble:
		return opSkipFixed, 8
	case avroFixed:
		return opSkipFixed, int32(t.size)
	case avroString, avroBytes:
		return opSkipSpan, 0
	}
	return opSkipNode, 0
}

// resolve chooses how a value of o.node becomes one of type to.
func (o *op) resolve(to Type) error {
	t := o.node
	o.size = int32(t.size)
	if t.kind == avroNull {
		o.code = opNull
		return nil
	}
	code := func() opCode {
		switch to.Kind {
		case Nested:
			if t.kind == avroString {
				return opString
			}
			return opText
		case Bool:
			if t.kind == avroBool {
				return opBool
			}
		case Int32, Date:
			if t.kind == avroInt {
				return opInt32
			}
		case Int64:
			if t.kind == avroInt || t.kind == avroLong {
				return opInt64
			}
		case Timestamp:
			if t.kind != avroLong {
				break
			}
			switch t.logical {
			case "timestamp-millis", "local-timestamp-millis":
				return opMillis
			case "timestamp-nanos", "local-timestamp-nanos":
				return opNanos
			}
			return opInt64
		case Float32:
			switch t.kind {
			case avroInt, avroLong:
				return opVarFloat32
			case avroFloat:
				return opFloat32
			}
		case Float64:
			switch t.kind {
			case avroInt, avroLong:
				return opVarFloat64
			case avroFloat:
				return opFloat32to64
			case avroDouble:
				return opFloat64
			}
		case String:
			switch t.kind {
			case avroString:
				return opString
			case avroBytes:
				if t.logical != "decimal" {
					return opString
				}
			case avroEnum:
				return opEnum
			}
		case Bytes:
			switch t.kind {
			case avroString, avroBytes:
				return opBytes
			case avroFixed:
				return opFixed
			}
		case Decimal:
			if t.logical == "decimal" && t.scale == to.Scale && t.precision <= to.Precision {
				switch t.kind {
				case avroBytes:
					return opDecBytes
				case avroFixed:
					return opDecFixed
				}
			}
		}
		return opConvert
	}
	if o.code = code(); o.code != opConvert {
		return nil
	}
	from, ok := t.scalarType()
	if !ok || !readable(from, to) {
		return fmt.Errorf("%w: reading avro %s as %s", ErrUnsupported, t.kind, to)
	}
	inner := op{node: t}
	if err := inner.resolve(from); err != nil {
		return err
	}
	o.from, o.to, o.inner = from, to, inner.code
	return nil
}

// scalarType is the column type of a scalar.
func (t *avroType) scalarType() (Type, bool) {
	switch t.kind {
	case avroBool:
		return Type{Kind: Bool}, true
	case avroInt:
		if t.logical == "date" {
			return Type{Kind: Date}, true
		}
		return Type{Kind: Int32}, true
	case avroLong:
		switch t.logical {
		case "timestamp-millis", "timestamp-micros", "timestamp-nanos",
			"local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos":
			return Type{Kind: Timestamp}, true
		}
		return Type{Kind: Int64}, true
	case avroFloat:
		return Type{Kind: Float32}, true
	case avroDouble:
		return Type{Kind: Float64}, true
	case avroString, avroEnum:
		return Type{Kind: String}, true
	case avroBytes, avroFixed:
		if t.logical == "decimal" {
			return Type{Kind: Decimal, Precision: t.precision, Scale: t.scale}, t.precision >= 1 && t.precision <= 38
		}
		return Type{Kind: Bytes}, true
	}
	return Type{}, false
}

var errAvroUnion = errors.New("avro union of null has no such branch")

// present reads the union with null in front of a value.
func (o *op) present(b []byte, i int) (bool, int, error) {
	if o.null < 0 {
		return true, i, nil
	}
	if i >= len(b) {
		return false, 0, errAvroShort
	}
	switch b[i] {
	case o.branch:
		return true, i + 1, nil
	case byte(o.null):
		return false, i + 1, nil
	}
	return false, 0, errAvroUnion
}

// skip steps over a value of the op, behind the union.
func (o *op) skip(b []byte, i int) (int, error) {
	switch o.code {
	case opNull:
	case opSkipVar:
		_, i = avroVar(b, i)
	case opSkipFixed:
		i += int(o.size)
	case opSkipSpan:
		_, i = avroSpan(b, i)
	default:
		return o.node.skip(b, i, 0)
	}
	if i < 0 || i > len(b) {
		return 0, errAvroShort
	}
	return i, nil
}

// row decodes one record.
func (p *program) row(b []byte, dst Row) (Row, error) {
	n := len(p.want.Fields)
	if cap(dst) < n {
		dst = make(Row, n)
	}
	dst = dst[:n]
	// One copy of the record serves all its texts.
	var text string
	if p.texts > 0 {
		text = string(b)
	}
	i := 0
	for k := range p.ops {
		o := &p.ops[k]
		if o.null >= 0 {
			if i >= len(b) {
				return dst, p.failed(o, errAvroShort)
			}
			c := b[i]
			i++
			if c != o.branch {
				if c != byte(o.null) {
					return dst, p.failed(o, errAvroUnion)
				}
				if o.col >= 0 {
					dst[o.col] = nil
				}
				continue
			}
		}
		if o.col < 0 {
			var err error
			if i, err = o.skip(b, i); err != nil {
				return dst, p.failed(o, err)
			}
			continue
		}
		v, next, err := o.value(b, i, text)
		if err != nil {
			return dst, p.failed(o, err)
		}
		dst[o.col], i = v, next
	}
	if p.exact && i != len(b) {
		return dst, errAvroTail
	}
	for _, c := range p.missing {
		dst[c] = nil
	}
	return dst, nil
}

func (p *program) failed(o *op, err error) error {
	if o.col < 0 {
		return err
	}
	return fmt.Errorf("column %s: %w", p.want.Fields[o.col].Name, err)
}

var (
	errAvroInt     = errors.New("avro int is out of range")
	errAvroEnum    = errors.New("avro enum has no such symbol")
	errAvroDecimal = errors.New("decimal is wider than 38 digits")
)

// value decodes a value behind its union. text is a copy of b, or empty: then texts are copied one by one.
func (o *op) value(b []byte, i int, text string) (any, int, error) {
	code := o.code
	if code == opConvert {
		code, text = o.inner, ""
	}
	v, i, err := o.scalar(code, b, i, text)
	if err != nil || o.code != opConvert {
		return v, i, err
	}
	v, err = o.convert(v)
	return v, i, err
}

// convert promotes a value. Damaged bytes may give a decimal of any size, so decimals are checked here.
func (o *op) convert(v any) (any, error) {
	if o.to.Kind != Decimal {
		return ConvertValue(o.from, o.to, v)
	}
	var n decimal128.Num
	switch x := v.(type) {
	case decimal128.Num:
		n = x
	case int32:
		n = decimal128.FromI64(int64(x))
	case int64:
		n = decimal128.FromI64(x)
	}
	n, exact := rescaleDecimal(n, o.from.Scale, o.to.Scale)
	if !exact || !n.FitsInPrecision(int32(o.to.Precision)) {
		return nil, fmt.Errorf("a value of type %s does not fit %s", o.from, o.to)
	}
	return n, nil
}

func (o *op) scalar(code opCode, b []byte, i int, text string) (any, int, error) {
	switch code {
	case opNull:
		return nil, i, nil
	case opInt32, opInt64, opMillis, opNanos, opVarFloat32, opVarFloat64:
		x, i := avroVar(b, i)
		if i < 0 {
			return nil, 0, errAvroShort
		}
		switch code {
		case opInt64:
			return x, i, nil
		case opMillis:
			return x * 1000, i, nil
		case opNanos:
			return floorDiv(x, 1000), i, nil
		case opVarFloat32:
			return float32(x), i, nil
		case opVarFloat64:
			return float64(x), i, nil
		}
		if x != int64(int32(x)) {
			return nil, 0, errAvroInt
		}
		return int32(x), i, nil
	case opString, opBytes, opDecBytes:
		from, to := avroSpan(b, i)
		if to < 0 {
			return nil, 0, errAvroShort
		}
		switch code {
		case opString:
			if text != "" {
				return text[from:to], to, nil
			}
			return string(b[from:to]), to, nil
		case opBytes:
			return append(make([]byte, 0, to-from), b[from:to]...), to, nil
		}
		n, ok := readDecimal(b[from:to])
		if !ok {
			return nil, 0, errAvroDecimal
		}
		return n, to, nil
	case opBool:
		if i >= len(b) {
			return nil, 0, errAvroShort
		}
		return b[i] != 0, i + 1, nil
	case opFloat32, opFloat32to64:
		if len(b)-i < 4 {
			return nil, 0, errAvroShort
		}
		f := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		if code == opFloat32to64 {
			return float64(f), i + 4, nil
		}
		return f, i + 4, nil
	case opFloat64:
		if len(b)-i < 8 {
			return nil, 0, errAvroShort
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b[i:])), i + 8, nil
	case opFixed, opDecFixed:
		end := i + int(o.size)
		if end > len(b) {
			return nil, 0, errAvroShort
		}
		if code == opFixed {
			return append([]byte(nil), b[i:end]...), end, nil
		}
		n, ok := readDecimal(b[i:end])
		if !ok {
			return nil, 0, errAvroDecimal
		}
		return n, end, nil
	case opEnum:
		x, i := avroVar(b, i)
		if i < 0 {
			return nil, 0, errAvroShort
		}
		if x < 0 || x >= int64(len(o.node.symbols)) {
			return nil, 0, errAvroEnum
		}
		return o.node.symbols[x], i, nil
	}
	out, end, err := o.node.appendText(nil, b, i, 0)
	if err != nil {
		return nil, 0, err
	}
	return textOf(out), end, nil
}

// batch decodes records column by column.
func (p *program) batch(records [][]byte) (Batch, error) {
	vecs := make([]vector, len(p.want.Fields))
	for i := range vecs {
		vecs[i].kind = p.want.Fields[i].Type.Kind
		vecs[i].grow(len(records))
	}
	for _, b := range records {
		if err := p.appendTo(vecs, b); err != nil {
			return Batch{}, err
		}
	}
	return finishVectors(p.want, vecs, len(records)), nil
}

func finishVectors(s *Schema, vecs []vector, rows int) Batch {
	out := Batch{Schema: s, Columns: make([]arrow.Array, len(vecs)), Rows: rows}
	for i := range vecs {
		out.Columns[i] = vecs[i].array(s.Fields[i].Type)
	}
	return out
}

// appendTo decodes one record to the ends of the wanted columns. After an error the columns are of unequal length.
func (p *program) appendTo(vecs []vector, b []byte) error {
	i := 0
	for k := range p.ops {
		o := &p.ops[k]
		if o.null >= 0 {
			if i >= len(b) {
				return p.failed(o, errAvroShort)
			}
			c := b[i]
			i++
			if c != o.branch {
				if c != byte(o.null) {
					return p.failed(o, errAvroUnion)
				}
				if o.col >= 0 {
					vecs[o.col].appendNull()
				}
				continue
			}
		}
		var err error
		if o.col < 0 {
			i, err = o.skip(b, i)
		} else {
			i, err = o.appendTo(&vecs[o.col], b, i)
		}
		if err != nil {
			return p.failed(o, err)
		}
	}
	if p.exact && i != len(b) {
		return errAvroTail
	}
	for _, c := range p.missing {
		vecs[c].appendNull()
	}
	return nil
}

// appendTo decodes a value behind its union to the end of a column.
func (o *op) appendTo(v *vector, b []byte, i int) (int, error) {
	switch o.code {
	case opInt32:
		x, i := avroVar(b, i)
		if i < 0 {
			return 0, errAvroShort
		}
		if x != int64(int32(x)) {
			return 0, errAvroInt
		}
		v.appendI32(int32(x))
		return i, nil
	case opInt64:
		x, i := avroVar(b, i)
		if i < 0 {
			return 0, errAvroShort
		}
		v.appendI64(x)
		return i, nil
	case opString, opBytes:
		from, to := avroSpan(b, i)
		if to < 0 {
			return 0, errAvroShort
		}
		return to, v.appendText(b[from:to])
	case opFloat64:
		if len(b)-i < 8 {
			return 0, errAvroShort
		}
		v.appendF64(math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
		return i + 8, nil
	case opFloat32:
		if len(b)-i < 4 {
			return 0, errAvroShort
		}
		v.appendF32(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		return i + 4, nil
	case opBool:
		if i >= len(b) {
			return 0, errAvroShort
		}
		v.appendBool(b[i] != 0)
		return i + 1, nil
	case opDecFixed:
		end := i + int(o.size)
		if end > len(b) {
			return 0, errAvroShort
		}
		n, ok := readDecimal(b[i:end])
		if !ok {
			return 0, errAvroDecimal
		}
		v.appendDec(n)
		return end, nil
	case opText:
		data, end, err := o.node.appendText(v.data, b, i, 0)
		if err != nil {
			return 0, err
		}
		return end, v.closeText(data)
	}
	x, i, err := o.value(b, i, "")
	if err != nil {
		return 0, err
	}
	return i, v.appendValue(x)
}

func floorDiv(x, by int64) int64 {
	q := x / by
	if x%by < 0 {
		q--
	}
	return q
}
