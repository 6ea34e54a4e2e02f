package storage

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// fileColumn is a column of a base file.
type fileColumn struct {
	name     string
	typ      Type
	optional bool
	leafType
	leaf int         // index among the file's leaves, of a flat column
	node *nestedNode // not nil: the column has leaves below it
}

// leafType tells how the values of a leaf become values of a column type.
type leafType struct {
	kind  parquet.Kind
	width int // bytes of a fixed-length leaf
	conv  conversion
}

type conversion uint8

const (
	asIs        conversion = iota
	fromUint32             // to Int64
	fromUint64             // to Decimal(20,0)
	fromMillis             // to Timestamp
	fromNanos              // to Timestamp
	toDecimal              // from any physical type
	fromFloat16            // to Float32
	fromUUID               // to String
)

func newFileColumn(c *parquet.Column, record string) (*fileColumn, error) {
	f := &fileColumn{name: c.Name(), optional: c.Optional()}
	if c.Leaf() && !c.Repeated() {
		var err error
		f.typ, f.leafType, err = typeOfLeaf(c)
		f.leaf = c.Index()
		return f, err
	}
	n, err := newNestedNode(c, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	f.node = n
	f.typ = Type{Kind: Nested, Avro: n.avro(joinName(record, c.Name())).String()}
	return f, nil
}

// typeOfLeaf maps a parquet type to a column type.
func typeOfLeaf(c *parquet.Column) (Type, leafType, error) {
	pt := c.Type()
	l := leafType{kind: pt.Kind(), width: pt.Length()}
	var logical any
	if lt := pt.LogicalType(); lt != nil {
		logical = lt.Value
	}
	if d, ok := logical.(*format.DecimalType); ok {
		if d.Precision < 1 || d.Precision > 38 || d.Scale < 0 || d.Scale > d.Precision {
			return Type{}, l, fmt.Errorf("%w: decimal(%d,%d)", ErrUnsupported, d.Precision, d.Scale)
		}
		l.conv = toDecimal
		return Type{Kind: Decimal, Precision: int(d.Precision), Scale: int(d.Scale)}, l, nil
	}
	switch l.kind {
	case parquet.Boolean:
		return Type{Kind: Bool}, l, nil
	case parquet.Int32:
		switch lt := logical.(type) {
		case *format.DateType:
			return Type{Kind: Date}, l, nil
		case *format.IntType:
			if !lt.IsSigned && lt.BitWidth == 32 {
				l.conv = fromUint32
				return Type{Kind: Int64}, l, nil
			}
		}
		return Type{Kind: Int32}, l, nil
	case parquet.Int64:
		switch lt := logical.(type) {
		case *format.TimestampType:
			switch lt.Unit.Value.(type) {
			case *format.MilliSeconds:
				l.conv = fromMillis
			case *format.NanoSeconds:
				l.conv = fromNanos
			}
			return Type{Kind: Timestamp}, l, nil
		case *format.IntType:
			if !lt.IsSigned {
				l.conv = fromUint64
				return Type{Kind: Decimal, Precision: 20}, l, nil
			}
		}
		return Type{Kind: Int64}, l, nil
	case parquet.Int96:
		return Type{Kind: Timestamp}, l, nil
	case parquet.Float:
		return Type{Kind: Float32}, l, nil
	case parquet.Double:
		return Type{Kind: Float64}, l, nil
	case parquet.ByteArray:
		switch logical.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType:
			return Type{Kind: String}, l, nil
		}
		return Type{Kind: Bytes}, l, nil
	case parquet.FixedLenByteArray:
		switch logical.(type) {
		case *format.UUIDType:
			l.conv, l.width = fromUUID, 16
			return Type{Kind: String}, l, nil
		case *format.Float16Type:
			l.conv = fromFloat16
			return Type{Kind: Float32}, l, nil
		}
		return Type{Kind: Bytes}, l, nil
	}
	return Type{}, l, fmt.Errorf("%w: parquet type %s", ErrUnsupported, pt)
}

// decodedPage holds the rows of one page in memory of its own.
type decodedPage struct {
	n      int
	values *vector // of the column's type, without NULLs
	at     []int32 // place of each row in values, -1: NULL; nil: the row's own number
}

func (p *decodedPage) size() int {
	v := p.values
	return 64 + 4*len(p.at) + 4*(len(v.i32)+len(v.f32)+len(v.ends)) + 8*(len(v.i64)+len(v.f64)) + 16*len(v.dec) + len(v.bits) + len(v.data)
}

func (p *decodedPage) appendRow(v *vector, row int) error {
	if row < 0 || row >= p.n {
		return errors.New("a page has fewer rows than the offset index says")
	}
	at := row
	if p.at != nil {
		if at = int(p.at[row]); at < 0 {
			v.appendNull()
			return nil
		}
	}
	return v.appendAt(p.values, at)
}

// appendAt adds value number at of a vector of the same kind that has no NULLs.
func (v *vector) appendAt(from *vector, at int) error {
	switch v.kind {
	case Bool:
		v.appendBool(getBit(from.bits, at))
	case Int32, Date:
		v.appendI32(from.i32[at])
	case Int64, Timestamp:
		v.appendI64(from.i64[at])
	case Float32:
		v.appendF32(from.f32[at])
	case Float64:
		v.appendF64(from.f64[at])
	case Decimal:
		v.appendDec(from.dec[at])
	default:
		return v.appendText(from.data[from.textStart(at):from.ends[at]])
	}
	return nil
}

// flatReader reads a column that is a leaf itself.
type flatReader struct {
	col   *fileColumn
	pages parquet.Pages
	page  parquet.Page // nil: none open

	// The open page: rows from pos on are still to be read.
	rows, pos int
	defs      []byte  // one level a row, 1: there; nil: all are there
	codes     []int32 // of the rows that are there, if the page has a dictionary
	values    *vector // by code, or of the rows that are there; shares the page's memory
	at        int     // next code or value
	dict      *vector // of the row group
}

func (r *flatReader) close() {
	parquet.Release(r.page)
	r.page = nil
	r.pages.Close()
}

func (r *flatReader) seek(row int64) error {
	parquet.Release(r.page)
	r.page, r.rows, r.pos = nil, 0, 0
	return r.pages.SeekToRow(row)
}

func (r *flatReader) next() error {
	parquet.Release(r.page)
	r.page = nil
	p, err := r.pages.ReadPage()
	if err != nil {
		return err
	}
	r.page, r.pos, r.at = p, 0, 0
	r.rows = int(p.NumValues())
	r.defs, r.codes = nil, nil
	there := r.rows
	if r.col.optional {
		r.defs = p.DefinitionLevels()
		if len(r.defs) != r.rows {
			return fmt.Errorf("%d definition levels of %d values", len(r.defs), r.rows)
		}
		there = 0
		for _, d := range r.defs {
			there += int(d & 1)
		}
		if there == r.rows {
			r.defs = nil
		}
	}
	if d := p.Dictionary(); d != nil {
		if r.dict == nil {
			dp := d.Page()
			if r.dict, err = r.col.values(dp, int(dp.NumValues())); err != nil {
				return err
			}
		}
		data := p.Data()
		r.codes, r.values = data.Int32(), r.dict
		if len(r.codes) < there {
			return fmt.Errorf("%d dictionary codes for %d values", len(r.codes), there)
		}
		return nil
	}
	r.values, err = r.col.values(p, there)
	return err
}

func (r *flatReader) read(v *vector, n int) error {
	for n > 0 {
		if r.pos == r.rows {
			if err := r.next(); err != nil {
				return err
			}
			continue
		}
		k := min(n, r.rows-r.pos)
		if err := r.appendRun(v, k); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// decode reads n rows, all that a page holds, into memory of their own.
func (r *flatReader) decode(n int) (*decodedPage, error) {
	if n < 0 {
		return nil, errors.New("the offset index does not ascend")
	}
	p := &decodedPage{n: n, values: &vector{kind: r.col.typ.Kind}}
	if err := r.next(); err != nil {
		return nil, err
	}
	if r.rows == n && r.codes != nil {
		// The dictionary is decoded for this page alone; what the page does not use is left behind.
		p.at = make([]int32, n)
		used := make([]int32, r.values.n) // place of a code in p.values, plus 1
		for i := range n {
			p.at[i] = -1
			if r.defs != nil && r.defs[i] == 0 {
				continue
			}
			code := r.codes[r.at]
			r.at++
			if used[code] == 0 {
				used[code] = int32(p.values.n) + 1
				if err := p.values.appendAt(r.values, int(code)); err != nil {
					return nil, err
				}
			}
			p.at[i] = used[code] - 1
		}
		return p, nil
	}
	v := vector{kind: r.col.typ.Kind}
	v.grow(min(n, 1<<16))
	if err := r.read(&v, n); err != nil {
		return nil, err
	}
	if v.nulls > 0 {
		p.at = make([]int32, n)
		for i := range n {
			p.at[i] = int32(i)
			if !getBit(v.valid, i) {
				p.at[i] = -1
			}
		}
	}
	p.values = &v
	return p, nil
}

// appendRun adds the next k rows of the open page.
func (r *flatReader) appendRun(v *vector, k int) error {
	var defs []byte
	if r.defs != nil {
		defs = r.defs[r.pos : r.pos+k]
	}
	there := k
	for _, d := range defs {
		there -= int(d&1) ^ 1
	}
	r.pos += k
	from := r.at
	r.at += there
	var codes []int32
	if r.codes != nil {
		codes = r.codes[from:r.at]
	} else if r.at > r.values.n {
		return fmt.Errorf("a page holds %d values, not %d", r.values.n, r.at)
	}
	switch v.kind {
	case Int32, Date:
		v.i32 = appendRun(v.i32, r.values.i32, codes, from, defs, k)
	case Int64, Timestamp:
		v.i64 = appendRun(v.i64, r.values.i64, codes, from, defs, k)
	case Float32:
		v.f32 = appendRun(v.f32, r.values.f32, codes, from, defs, k)
	case Float64:
		v.f64 = appendRun(v.f64, r.values.f64, codes, from, defs, k)
	case Decimal:
		v.dec = appendRun(v.dec, r.values.dec, codes, from, defs, k)
	case Bool:
		for i := range k {
			if defs != nil && defs[i] == 0 {
				v.appendNull()
				continue
			}
			at := from
			if codes != nil {
				at = int(codes[0])
				codes = codes[1:]
			}
			v.appendBool(getBit(r.values.bits, at))
			from++
		}
		return nil
	default:
		if err := v.appendTexts(r.values, codes, from, defs, k); err != nil {
			return err
		}
	}
	v.markRun(defs, k)
	return nil
}

// appendRun adds k rows to dst: from values at from on, or by codes; rows whose level is 0 become zero.
func appendRun[T any](dst, values []T, codes []int32, from int, defs []byte, k int) []T {
	if defs == nil {
		if codes == nil {
			return append(dst, values[from:from+k]...)
		}
		n := len(dst)
		dst = growSlice(dst, k)[:n+k]
		out := dst[n:]
		for i, c := range codes[:k] {
			out[i] = values[c]
		}
		return dst
	}
	n := len(dst)
	dst = growSlice(dst, k)[:n+k]
	out := dst[n:]
	at := 0
	for i, d := range defs {
		if d == 0 {
			var zero T
			out[i] = zero
			continue
		}
		if codes != nil {
			out[i] = values[codes[at]]
		} else {
			out[i] = values[from+at]
		}
		at++
	}
	return dst
}

func (v *vector) appendTexts(values *vector, codes []int32, from int, defs []byte, k int) error {
	if defs == nil && codes == nil {
		start, end := values.textStart(from), values.textStart(from+k)
		shift := int64(len(v.data)) - int64(start)
		if int64(end)+shift > vectorDataMax {
			return errVectorFull
		}
		v.data = append(v.data, values.data[start:end]...)
		for _, e := range values.ends[from : from+k] {
			v.ends = append(v.ends, int32(int64(e)+shift))
		}
		return nil
	}
	at := 0
	data := v.data
	for i := range k {
		if defs == nil || defs[i] != 0 {
			x := from + at
			if codes != nil {
				x = int(codes[at])
			}
			at++
			data = append(data, values.data[values.textStart(x):values.ends[x]]...)
			if len(data) > vectorDataMax {
				return errVectorFull
			}
		}
		v.ends = append(v.ends, int32(len(data)))
	}
	v.data = data
	return nil
}

// markRun is mark for k rows.
func (v *vector) markRun(defs []byte, k int) {
	if defs == nil && v.valid == nil {
		v.n += k
		return
	}
	for i := range k {
		v.mark(defs == nil || defs[i] != 0)
	}
}

// values turns the n values of a page into a vector of the column's type, which shares the page's memory where it can.
func (l *fileColumn) values(p parquet.Page, n int) (*vector, error) {
	v := &vector{kind: l.typ.Kind, n: n}
	if l.kind == parquet.Boolean {
		return v, v.readBools(p, n)
	}
	data := p.Data()
	raw, offsets := data.Data()
	if l.kind == parquet.ByteArray {
		if len(offsets) < n+1 && n > 0 {
			return nil, fmt.Errorf("a page holds %d values, not %d", len(offsets)-1, n)
		}
		return v, l.byteArrays(v, raw, offsets, n)
	}
	width := l.width
	switch l.kind {
	case parquet.Int32, parquet.Float:
		width = 4
	case parquet.Int64, parquet.Double:
		width = 8
	case parquet.Int96:
		width = 12
	}
	if len(raw) < n*width {
		return nil, fmt.Errorf("a page holds %d bytes, not %d values of %d", len(raw), n, width)
	}
	raw = raw[:n*width]
	switch l.kind {
	case parquet.Int32:
		s := castSlice[int32](raw)
		switch l.conv {
		case fromUint32:
			v.i64 = mapSlice(s, func(x int32) int64 { return int64(uint32(x)) })
		case toDecimal:
			v.dec = mapSlice(s, func(x int32) decimal128.Num { return decimal128.FromI64(int64(x)) })
		default:
			v.i32 = s
		}
	case parquet.Int64:
		s := castSlice[int64](raw)
		switch l.conv {
		case fromUint64:
			v.dec = mapSlice(s, func(x int64) decimal128.Num { return decimal128.New(0, uint64(x)) })
		case toDecimal:
			v.dec = mapSlice(s, decimal128.FromI64)
		case fromMillis:
			v.i64 = mapSlice(s, millis.toMicros)
		case fromNanos:
			v.i64 = mapSlice(s, nanos.toMicros)
		default:
			v.i64 = s
		}
	case parquet.Int96:
		v.i64 = make([]int64, n)
		for i := range v.i64 {
			v.i64[i] = int96Micros(raw[12*i:])
		}
	case parquet.Float:
		v.f32 = castSlice[float32](raw)
	case parquet.Double:
		v.f64 = castSlice[float64](raw)
	case parquet.FixedLenByteArray:
		return v, l.fixed(v, raw, n)
	default:
		return nil, fmt.Errorf("%w: parquet type %s", ErrUnsupported, l.kind)
	}
	return v, nil
}

// readBools reads by value: a slice of a page of booleans does not tell where its first bit is.
func (v *vector) readBools(p parquet.Page, n int) error {
	v.n = 0
	var buf [256]parquet.Value
	r := p.Values()
	for v.n < n {
		k, err := r.ReadValues(buf[:])
		for _, x := range buf[:k] {
			if !x.IsNull() {
				v.appendBool(x.Boolean())
			}
		}
		if k == 0 || err != nil {
			break
		}
	}
	if v.n < n {
		return fmt.Errorf("a page holds %d values, not %d", v.n, n)
	}
	return nil
}

func (l *fileColumn) byteArrays(v *vector, raw []byte, offsets []uint32, n int) error {
	if l.conv == toDecimal {
		v.dec = make([]decimal128.Num, n)
		for i := range v.dec {
			var ok bool
			if v.dec[i], ok = readDecimal(raw[offsets[i]:offsets[i+1]]); !ok {
				return errWideDecimal
			}
		}
		return nil
	}
	if n == 0 {
		return nil
	}
	start := offsets[0]
	if uint64(offsets[n])-uint64(start) > vectorDataMax {
		return errVectorFull
	}
	v.data = raw[start:offsets[n]]
	v.ends = make([]int32, n)
	for i := range v.ends {
		v.ends[i] = int32(offsets[i+1] - start)
	}
	return nil
}

var errWideDecimal = errors.New("a decimal of more than 128 bits")

func (l *fileColumn) fixed(v *vector, raw []byte, n int) error {
	switch l.conv {
	case toDecimal:
		v.dec = make([]decimal128.Num, n)
		for i := range v.dec {
			var ok bool
			if v.dec[i], ok = readDecimal(raw[i*l.width : (i+1)*l.width]); !ok {
				return errWideDecimal
			}
		}
	case fromFloat16:
		v.f32 = make([]float32, n)
		for i := range v.f32 {
			v.f32[i] = float16(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case fromUUID:
		v.n = 0
		for i := range n {
			if err := v.appendString(uuidText(raw[16*i : 16*i+16])); err != nil {
				return err
			}
		}
	default:
		v.data = raw
		v.ends = make([]int32, n)
		for i := range v.ends {
			v.ends[i] = int32((i + 1) * l.width)
		}
	}
	return nil
}

// int96Micros reads the old form of timestamps: nanoseconds of the day, then the Julian day.
func int96Micros(b []byte) int64 {
	const julianEpoch = 2440588
	ns := int64(binary.LittleEndian.Uint64(b))
	day := int64(int32(binary.LittleEndian.Uint32(b[8:])))
	return (day-julianEpoch)*86400e6 + floorDiv(ns, 1000)
}

func float16(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 0:
		return float32(math.Copysign(float64(frac)*0x1p-24, float64(math.Float32frombits(sign|0x3f800000))))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

func uuidText(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func castSlice[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

func mapSlice[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, x := range in {
		out[i] = f(x)
	}
	return out
}

// indexOfText finds a text in a column of texts, -1 if it is not there.
func indexOfText(a arrow.Array, text string) int {
	if a, ok := a.(*array.String); ok {
		for i := range a.Len() {
			if a.Value(i) == text && !a.IsNull(i) {
				return i
			}
		}
	}
	return -1
}
