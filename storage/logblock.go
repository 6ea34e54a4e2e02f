package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// BlockType is the kind of a log block, in the format's numbers.
type BlockType int32

const (
	BlockCommand BlockType = iota // takes back the blocks of an instant (rollback)
	BlockDelete
	BlockCorrupt // never written: bytes that are no whole block
	BlockAvro
	BlockHFile
	BlockParquet
	BlockCDC
)

var blockTypeNames = [...]string{"command", "delete", "corrupt", "avro data", "hfile data", "parquet data", "cdc data"}

func (t BlockType) String() string {
	if t < 0 || int(t) >= len(blockTypeNames) {
		return fmt.Sprintf("type %d", int32(t))
	}
	return blockTypeNames[t]
}

// Layout of a block, all numbers big-endian:
// magic <6b> | size <8b>: bytes behind it | format version <4b> 1 | type <4b> | header map | content length <8b> | content |
// footer map | total <8b>: size + 6, the way back to the magic.
// A map is count <4b>, then key <4b> | length <4b> | text for each entry.
const (
	logMagic         = "#HUDI#"
	logFormatVersion = 1
	dataVersion      = 3 // of the content of avro data blocks
	deleteVersion    = 3 // of the content of delete blocks
	// blockSizeMin is the size of a block whose maps and content are empty.
	blockSizeMin = 4 + 4 + 4 + 8 + 4 + 8
)

// Keys of the header map.
const (
	headerInstant       = 0
	headerTarget        = 1
	headerSchema        = 2
	headerCommand       = 3
	headerCompactedTime = 4
	headerPartial       = 7

	commandRollback = "0"
)

// LogBlock is one block of a log file. Its content is read when it is asked for, which has to happen before the
// iteration that gave the block goes on.
type LogBlock struct {
	Type      BlockType
	Instant   InstantTime // the delta commit that wrote the block
	Target    InstantTime // BlockCommand: the instant whose blocks in front of this one are void
	Schema    string      // Avro schema of the records, with the meta columns
	Partial   bool        // the records hold changed columns only
	Compacted string      // instants whose blocks this block stands for, separated by commas
	Offset    int64       // bytes from the start of the file
	Size      int64       // bytes of the whole block

	name    string
	content func() ([]byte, error)
}

// Content gives the bytes of the block's content.
func (b *LogBlock) Content() ([]byte, error) {
	if b.content == nil {
		return nil, nil
	}
	return b.content()
}

// supported refuses blocks that may be in a log but cannot be merged.
func (b *LogBlock) supported() error {
	refuse := func(what string) error { return fmt.Errorf("%s: %w: %s", b.name, ErrUnsupported, what) }
	switch b.Type {
	case BlockCommand, BlockDelete, BlockCorrupt, BlockAvro, BlockHFile, BlockParquet, BlockCDC:
	default:
		return refuse("log block " + b.Type.String())
	}
	return nil
}

func (b *LogBlock) corrupt(err error) error {
	return &CorruptError{Name: b.name, Offset: b.Offset, Err: err}
}

// Records gives the Avro binary of each record of a data block or a CDC block, those of an HFile data block in the order of
// their keys; the bytes must not be changed.
func (b *LogBlock) Records() iter.Seq2[[]byte, error] {
	if b.Type == BlockHFile {
		return b.hfileRecords()
	}
	return func(yield func([]byte, error) bool) {
		if b.Type != BlockAvro && b.Type != BlockCDC {
			yield(nil, fmt.Errorf("%s: %w: records of a %s block", b.name, ErrUnsupported, b.Type))
			return
		}
		c, err := b.Content()
		if err != nil {
			yield(nil, err)
			return
		}
		if len(c) < 8 {
			yield(nil, b.corrupt(errAvroShort))
			return
		}
		if v := binary.BigEndian.Uint32(c); v < 1 || v > dataVersion {
			yield(nil, fmt.Errorf("%s: %w: data block of version %d", b.name, ErrUnsupported, v))
			return
		}
		n := binary.BigEndian.Uint32(c[4:])
		c = c[8:]
		for range n {
			if len(c) < 4 {
				yield(nil, b.corrupt(errAvroShort))
				return
			}
			size := int64(binary.BigEndian.Uint32(c))
			if size > int64(len(c)-4) {
				yield(nil, b.corrupt(errAvroShort))
				return
			}
			if !yield(c[4:4+size:4+size], nil) {
				return
			}
			c = c[4+size:]
		}
		if len(c) > 0 {
			yield(nil, b.corrupt(errors.New("bytes are left behind the last record")))
		}
	}
}

// Rows decodes the records of a data block or a CDC block into the columns wanted, which are found by name; the meta
// columns are columns of kind String. Each row is a new one.
func (b *LogBlock) Rows(want *Schema) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if err := b.supported(); err != nil {
			yield(nil, err)
			return
		}
		t, err := parseAvroType(b.Schema)
		if err != nil {
			yield(nil, b.corrupt(err))
			return
		}
		p, err := compileProgram(t, want)
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", b.name, err))
			return
		}
		for rec, err := range b.Records() {
			var row Row
			if err == nil {
				if row, err = p.row(rec, nil); err != nil {
					err = b.corrupt(err)
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// LogDelete says that a record is gone.
type LogDelete struct {
	Key       string
	Partition string
	// Ordering is the value of the ordering field that the delete carries, a []OrderingValue where the table has several; nil: none, the
	// delete always wins.
	Ordering     any
	OrderingType Type // type of Ordering
}

// OrderingValue is the value of one of several ordering fields.
type OrderingValue struct {
	Value any // nil: NULL
	Type  Type
}

// Branches of the union in which a delete carries its ordering value.
const (
	wrapNull = iota
	wrapBool
	wrapInt
	wrapLong
	wrapFloat
	wrapDouble
	wrapBytes
	wrapString
	wrapDate
	wrapDecimal
	wrapTimeMicros
	wrapTimestampMicros
	wrapArray

	wrapLocalDate = wrapArray // among several values

	wrapDecimalScale, wrapDecimalPrecision = 15, 30
)

// Deletes decodes a delete block.
func (b *LogBlock) Deletes() ([]LogDelete, error) {
	if err := b.supported(); err != nil {
		return nil, err
	}
	c, err := b.Content()
	if err != nil {
		return nil, err
	}
	if len(c) < 8 {
		return nil, b.corrupt(errAvroShort)
	}
	if v := binary.BigEndian.Uint32(c); v != deleteVersion {
		return nil, fmt.Errorf("%s: %w: delete block of version %d", b.name, ErrUnsupported, v)
	}
	if int64(binary.BigEndian.Uint32(c[4:])) != int64(len(c)-8) {
		return nil, b.corrupt(errors.New("length of the delete list is not the block's"))
	}
	dels, err := parseDeletes(c[8:])
	if errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	if err != nil {
		return nil, b.corrupt(err)
	}
	return dels, nil
}

// parseDeletes reads a HoodieDeleteRecordList.
func parseDeletes(b []byte) ([]LogDelete, error) {
	var out []LogDelete
	i := 0
	for {
		n, next, err := avroCount(b, i)
		if err != nil {
			return nil, err
		}
		i = next
		if n == 0 {
			break
		}
		for range n {
			var d LogDelete
			if d, i, err = parseDelete(b, i); err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	if i != len(b) {
		return nil, errors.New("bytes are left behind the last delete")
	}
	return out, nil
}

func parseDelete(b []byte, i int) (d LogDelete, next int, err error) {
	for _, s := range []*string{&d.Key, &d.Partition} {
		if i >= len(b) || b[i] != 0 && b[i] != 2 {
			return d, 0, errAvroUnion
		}
		i++
		if b[i-1] == 2 {
			from, to := avroSpan(b, i)
			if to < 0 {
				return d, 0, errAvroShort
			}
			*s, i = string(b[from:to]), to
		}
	}
	branch, i := avroVar(b, i)
	if i < 0 {
		return d, 0, errAvroShort
	}
	if branch == wrapNull {
		return d, i, nil
	}
	if branch == wrapArray {
		values, i, err := parseOrderingValues(b, i)
		if len(values) > 0 {
			d.Ordering = values
		}
		return d, i, err
	}
	w, ok := deleteWrappers[branch]
	if !ok {
		return d, 0, fmt.Errorf("ordering value of branch %d", branch)
	}
	if d.Ordering, i, err = w.read(b, i); err != nil {
		return d, 0, err
	}
	d.OrderingType = w.typ
	if branch == wrapInt && d.Ordering == int32(0) {
		// The value that says "no ordering value".
		d.Ordering, d.OrderingType = nil, Type{}
	}
	return d, i, nil
}

// parseOrderingValues reads the wrapper of several ordering values, whose union is that of a delete but for its last branch.
func parseOrderingValues(b []byte, i int) (values []OrderingValue, next int, err error) {
	branch, i := avroVar(b, i)
	switch {
	case i < 0:
		return nil, 0, errAvroShort
	case branch == 0:
		return nil, i, nil
	case branch != 1:
		return nil, 0, errAvroUnion
	}
	for {
		n, next, err := avroCount(b, i)
		if err != nil || n == 0 {
			return values, next, err
		}
		i = next
		for range n {
			var v OrderingValue
			branch, next := avroVar(b, i)
			if i = next; i < 0 {
				return nil, 0, errAvroShort
			}
			if branch != wrapNull {
				w, ok := deleteWrappers[branch]
				if branch == wrapLocalDate {
					w, ok = deleteWrappers[wrapDate], true
				}
				if !ok {
					return nil, 0, fmt.Errorf("ordering value of branch %d", branch)
				}
				if v.Value, i, err = w.read(b, i); err != nil {
					return nil, 0, err
				}
				v.Type = w.typ
			}
			values = append(values, v)
		}
	}
}

type deleteWrapper struct {
	kind    avroKind
	logical string
	typ     Type
}

// read decodes the value of a wrapper.
func (w *deleteWrapper) read(b []byte, i int) (any, int, error) {
	o := op{node: &avroType{kind: w.kind, logical: w.logical, precision: w.typ.Precision, scale: w.typ.Scale}}
	if err := o.resolve(w.typ); err != nil {
		return nil, 0, err
	}
	return o.value(b, i, "")
}

var deleteWrappers = map[int64]deleteWrapper{
	wrapBool:            {avroBool, "", Type{Kind: Bool}},
	wrapInt:             {avroInt, "", Type{Kind: Int32}},
	wrapLong:            {avroLong, "", Type{Kind: Int64}},
	wrapFloat:           {avroFloat, "", Type{Kind: Float32}},
	wrapDouble:          {avroDouble, "", Type{Kind: Float64}},
	wrapBytes:           {avroBytes, "", Type{Kind: Bytes}},
	wrapString:          {avroString, "", Type{Kind: String}},
	wrapDate:            {avroInt, "date", Type{Kind: Date}},
	wrapDecimal:         {avroBytes, "decimal", Type{Kind: Decimal, Precision: wrapDecimalPrecision, Scale: wrapDecimalScale}},
	wrapTimeMicros:      {avroLong, "", Type{Kind: Int64}},
	wrapTimestampMicros: {avroLong, "timestamp-micros", Type{Kind: Timestamp}},
}

// appendDelete appends a HoodieDeleteRecord.
func appendDelete(dst []byte, d *LogDelete) ([]byte, error) {
	for _, s := range []string{d.Key, d.Partition} {
		dst = append(appendVar(append(dst, 2), int64(len(s))), s...)
	}
	values, several := d.Ordering.([]OrderingValue)
	if !several {
		if d.Ordering == nil {
			return append(appendVar(dst, wrapInt), 0), nil
		}
		return appendOrdering(dst, d.Ordering, d.OrderingType)
	}
	dst = appendVar(dst, wrapArray)
	dst = append(dst, 2)
	dst = appendVar(dst, int64(len(values)))
	for _, v := range values {
		if v.Value == nil {
			dst = append(dst, wrapNull)
			continue
		}
		var err error
		if dst, err = appendOrdering(dst, v.Value, v.Type); err != nil {
			return dst, err
		}
	}
	if len(values) > 0 {
		dst = append(dst, 0)
	}
	return dst, nil
}

// appendOrdering appends a value in the wrapper of its type, behind the wrapper's branch.
func appendOrdering(dst []byte, v any, t Type) ([]byte, error) {
	bad := func() error { return fmt.Errorf("ordering value %T of type %s", v, t) }
	wrap := func(branch int64) { dst = appendVar(dst, branch) }
	switch x := v.(type) {
	case bool:
		wrap(wrapBool)
		return append(dst, boolByte(x)), nil
	case int32:
		if t.Kind == Date {
			wrap(wrapDate)
		} else {
			wrap(wrapInt)
		}
		return appendVar(dst, int64(x)), nil
	case int64:
		// Hudi takes the value as it stands in the Avro record: a timestamp is a long there.
		wrap(wrapLong)
		return appendVar(dst, x), nil
	case float32:
		wrap(wrapFloat)
		return op32(dst, x), nil
	case float64:
		wrap(wrapDouble)
		return op64(dst, x), nil
	case []byte:
		wrap(wrapBytes)
		return append(appendVar(dst, int64(len(x))), x...), nil
	case string:
		wrap(wrapString)
		return append(appendVar(dst, int64(len(x))), x...), nil
	case decimal128.Num:
		n, exact := rescaleDecimal(x, t.Scale, wrapDecimalScale)
		if !exact || t.Kind != Decimal {
			return dst, bad()
		}
		wrap(wrapDecimal)
		width := numWidth(n)
		dst, _ = appendDecimal(appendVar(dst, int64(width)), n, width)
		return dst, nil
	}
	return dst, bad()
}

// rescaleDecimal changes the number of digits after the point; exact is false if digits or the number itself got lost.
func rescaleDecimal(n decimal128.Num, from, to int) (_ decimal128.Num, exact bool) {
	x := n.BigInt()
	diff := to - from
	factor := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(diff, -diff))), nil)
	exact = true
	if diff >= 0 {
		x = new(big.Int).Mul(x, factor)
	} else {
		rest := new(big.Int)
		x, rest = new(big.Int).DivMod(x, factor, rest)
		exact = rest.Sign() == 0
	}
	if x.BitLen() > 127 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(x), exact
}
