package storage

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/gzip"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/uncompressed"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Footer keys of base files.
const (
	footerBloom     = "org.apache.hudi.bloomfilter"
	footerBloomType = "hoodie_bloom_filter_type_code"
	footerMinKey    = "hoodie_min_record_key"
	footerMaxKey    = "hoodie_max_record_key"
	footerSchema    = "parquet.avro.schema"
	footerModel     = "writer.model.name"
)

const (
	// rowGroupRows is the default of BaseOptions.RowGroupRows.
	rowGroupRows = 128 << 10
	// rowGroupBytesMax ends a row group of wide rows early: all its pages wait in memory. Bytes before encoding.
	rowGroupBytesMax = 128 << 20
	// pageBytes is small, since a lookup decodes one page of each column.
	pageBytes = 32 << 10
	// dictionaryBytesMax is where a column of many distinct values turns to plain pages.
	dictionaryBytesMax = 64 << 10
	// pendingRows is how many rows wait before they go to the column writers.
	pendingRows = 256
	// pendingBytesMax is how much copied text may wait with them.
	pendingBytesMax = 1 << 20

	// bloomMissRate is how often a footer's filter says yes wrongly.
	bloomMissRate = 1e-4
	// bloomKeyBytesMax is how much text of keys waits for Commit to size the filter. A file of more keys than fit gets a
	// filter sized by what the keys up to there foretell.
	bloomKeyBytesMax = 32 << 20
)

// Compression names the codec of a base file's pages.
type Compression uint8

const (
	Zstd Compression = iota // level 1
	Gzip
	Snappy
	Uncompressed
)

// The codecs keep pools of encoders, so they are shared.
var codecs = map[Compression]compress.Codec{
	Zstd: &zstd.Codec{Level: zstd.SpeedFastest}, Gzip: &gzip.Codec{}, Snappy: &snappy.Codec{}, Uncompressed: &uncompressed.Codec{},
}

// RowMeta are the meta columns of a new row. The file's name is added by the writer.
type RowMeta struct {
	CommitTime InstantTime // the instant that writes the row
	SeqNo      string      // unique within the instant
	Key        string      // record key
	Partition  string      // partition path, "" if none
}

// BaseOptions tunes CreateBase; the zero value is fine.
type BaseOptions struct {
	RowGroupRows int         // rows of a row group; default 131,072
	Compression  Compression // default Zstd
	ExpectedRows int         // rows to come, if known: sizes the bloom filter without keeping the keys; a guess is fine
}

// BaseWriter writes a base file row by row and keeps their order. It holds one row group in memory. Exactly one of Commit
// and Abort ends it; after an error of another method only Abort is left.
type BaseWriter struct {
	out      Writer
	name     string // object
	fileName string // its last part
	schema   *Schema
	pq       *parquet.Writer //lint:ignore SA1019 the row groups are written by columns: the typed writer needs a Go struct
	sink     baseSink
	columns  []baseColumn // the five meta columns, then the table's
	groups   [][]decimalBounds

	rows, groupRows int
	groupRowsMax    int
	groupBytes      int // raw bytes of the row group so far
	pending         int // rows in the columns' values
	pendingText     []byte
	ended           bool
	err             error // first failure: a row may stand in some columns only, so nothing can be committed after it

	keys           keySet
	minKey, maxKey string
}

// baseColumn is a column of a file under construction.
type baseColumn struct {
	field  Field
	leaf   leafFormat
	w      *parquet.ColumnWriter
	values []parquet.Value // pending
	bounds decimalBounds   // of the row group so far
}

// CreateBase starts a base file. name is the object's name with the partition path; its last part goes into the meta
// column _hoodie_file_name of every row. Nested columns cannot be written: ErrUnsupported.
func CreateBase(ctx context.Context, s Store, name string, schema *Schema, o BaseOptions) (*BaseWriter, error) {
	w := &BaseWriter{name: name, fileName: path.Base(name), schema: schema, groupRowsMax: o.RowGroupRows}
	if w.groupRowsMax <= 0 {
		w.groupRowsMax = rowGroupRows
	}
	codec, ok := codecs[o.Compression]
	if !ok {
		return nil, fmt.Errorf("create base file %s: %w: compression %d", name, ErrUnsupported, o.Compression)
	}
	w.keys.expect(o.ExpectedRows)
	for _, m := range MetaColumns {
		w.columns = append(w.columns, baseColumn{field: Field{Name: m, Type: Type{Kind: String}}})
	}
	for _, f := range schema.Fields {
		w.columns = append(w.columns, baseColumn{field: f})
	}
	root, err := w.messageType()
	if err != nil {
		return nil, fmt.Errorf("create base file %s: %w", name, err)
	}
	if w.out, err = s.Create(ctx, name); err != nil {
		return nil, err
	}
	config := parquet.DefaultWriterConfig()
	config.CreatedBy = "lakesql"
	config.Schema = parquet.NewSchema(schema.fullName(), root)
	config.Compression = codec
	config.PageBufferSize = pageBytes
	config.WriteBufferSize = 0 // baseSink buffers
	config.DataPageVersion = 1 // every reader of Hudi's takes version 1
	config.DataPageStatistics = false
	config.DictionaryMaxBytes = dictionaryBytesMax
	w.sink.out = bufio.NewWriterSize(w.out, 1<<20)
	w.pq = parquet.NewWriter(&w.sink, config)
	for i, cw := range w.pq.ColumnWriters() {
		w.columns[i].w = cw
		w.columns[i].values = make([]parquet.Value, 0, pendingRows)
	}
	return w, nil
}

// Append adds a new row; the values of the table's columns stand in the order of the schema.
func (w *BaseWriter) Append(m RowMeta, row Row) error {
	if w.err != nil {
		return w.err
	}
	if len(row) != len(w.schema.Fields) {
		return w.failed(fmt.Errorf("a row of %d values for %d columns", len(row), len(w.schema.Fields)))
	}
	for i, s := range [...]string{string(m.CommitTime), m.SeqNo, m.Key, m.Partition, w.fileName} {
		w.columns[i].text(s, &w.groupBytes)
	}
	for i, v := range row {
		if err := w.put(&w.columns[i+len(MetaColumns)], v); err != nil {
			return w.failed(err)
		}
	}
	return w.added(m.Key)
}

// AppendMerged copies a row of b, whose columns are the five meta columns and then the table's in the order of the
// schema. The meta columns are kept but for _hoodie_file_name, which becomes this file's.
func (w *BaseWriter) AppendMerged(b Batch, row int) error {
	if w.err != nil {
		return w.err
	}
	if len(b.Columns) != len(w.columns) {
		return w.failed(fmt.Errorf("a batch of %d columns for %d columns", len(b.Columns), len(w.columns)))
	}
	fileColumn := len(MetaColumns) - 1
	for i := range w.columns {
		c := &w.columns[i]
		if i == fileColumn {
			c.text(w.fileName, &w.groupBytes)
			continue
		}
		if err := w.copyValue(c, b, i, row); err != nil {
			return w.failed(err)
		}
	}
	var key string
	if a, ok := b.Columns[2].(*array.String); ok && !a.IsNull(row) {
		key = a.Value(row)
	}
	return w.added(key)
}

// copyValue is put for the common kinds without boxing the value.
func (w *BaseWriter) copyValue(c *baseColumn, b Batch, col, row int) error {
	a := b.Columns[col]
	if a.IsNull(row) {
		return w.put(c, nil)
	}
	switch a := a.(type) {
	case *array.String:
		if c.field.Type.Kind == String && c.leaf.plain {
			c.text(a.Value(row), &w.groupBytes)
			return nil
		}
	case *array.Int64:
		if c.field.Type.Kind == Int64 {
			c.values = append(c.values, parquet.Int64Value(a.Value(row)).Level(0, 1, 0))
			w.groupBytes += 8
			return nil
		}
	case *array.Timestamp:
		if c.field.Type.Kind == Timestamp {
			v := c.leaf.unit.fromMicros(int64(a.Value(row)))
			c.values = append(c.values, parquet.Int64Value(v).Level(0, 1, 0))
			w.groupBytes += 8
			return nil
		}
	case *array.Float64:
		if c.field.Type.Kind == Float64 {
			c.values = append(c.values, parquet.DoubleValue(a.Value(row)).Level(0, 1, 0))
			w.groupBytes += 8
			return nil
		}
	case *array.Int32:
		if c.field.Type.Kind == Int32 {
			c.values = append(c.values, parquet.Int32Value(a.Value(row)).Level(0, 1, 0))
			w.groupBytes += 4
			return nil
		}
	}
	return w.put(c, b.Value(col, row))
}

func (c *baseColumn) text(s string, bytes *int) {
	*bytes += len(s) + 4
	c.values = append(c.values, parquet.ByteArrayValue(bytesOf(s)).Level(0, 1, 0))
}

// put adds a value of a table column to the pending ones.
func (w *BaseWriter) put(c *baseColumn, v any) error {
	var p parquet.Value
	t := &c.field.Type
	ok := false
	switch v := v.(type) {
	case nil:
		// NULL in a column of any type; the definition level stays 0.
		w.groupBytes++
		c.values = append(c.values, parquet.Value{}.Level(0, 0, 0))
		return nil
	case string:
		if t.Kind == String {
			c.text(v, &w.groupBytes)
			return nil
		}
	case int64:
		switch t.Kind {
		case Int64:
			p, ok = parquet.Int64Value(v), true
		case Timestamp:
			p, ok = parquet.Int64Value(c.leaf.unit.fromMicros(v)), true
		}
		w.groupBytes += 8
	case int32:
		p, ok = parquet.Int32Value(v), t.Kind == Int32 || t.Kind == Date
		w.groupBytes += 4
	case float64:
		p, ok = parquet.DoubleValue(v), t.Kind == Float64
		w.groupBytes += 8
	case float32:
		p, ok = parquet.FloatValue(v), t.Kind == Float32
		w.groupBytes += 4
	case bool:
		p, ok = parquet.BooleanValue(v), t.Kind == Bool
		w.groupBytes++
	case []byte:
		if t.Kind == Bytes {
			// The bytes are the caller's, who may change them before they are written.
			w.groupBytes += len(v) + 4
			b := w.keep(v)
			if c.leaf.width > 0 {
				if len(v) != c.leaf.width {
					return fmt.Errorf("column %s: %d bytes in a column of %d", c.field.Name, len(v), c.leaf.width)
				}
				p, ok = parquet.FixedLenByteArrayValue(b), true
			} else {
				p, ok = parquet.ByteArrayValue(b), true
			}
		}
	case decimal128.Num:
		if t.Kind == Decimal {
			from := len(w.pendingText)
			out, fits := appendDecimal(w.pendingText, v, max(c.leaf.width, decimalWidth(t.Precision)))
			if !fits || !v.FitsInPrecision(int32(t.Precision)) {
				return fmt.Errorf("column %s: %s has more than %d digits", c.field.Name, appendPlainDecimal(nil, v, t.Scale), t.Precision)
			}
			w.pendingText = out
			w.groupBytes += 16
			c.bounds.add(v)
			if c.leaf.width > 0 {
				p, ok = parquet.FixedLenByteArrayValue(out[from:len(out):len(out)]), true
			} else {
				p, ok = parquet.ByteArrayValue(out[from:len(out):len(out)]), true
			}
		}
	}
	if !ok {
		return fmt.Errorf("column %s: %T is no value of type %s", c.field.Name, v, *t)
	}
	c.values = append(c.values, p.Level(0, 1, 0))
	return nil
}

// keep copies bytes into memory that lives until the pending rows are written. Appending may move the buffer; what was
// handed out before stays in the old one.
func (w *BaseWriter) keep(b []byte) []byte {
	from := len(w.pendingText)
	w.pendingText = append(w.pendingText, b...)
	return w.pendingText[from:len(w.pendingText):len(w.pendingText)]
}

func (w *BaseWriter) added(key string) error {
	if w.rows == 0 || compareJava(key, w.minKey) < 0 {
		w.minKey = strings.Clone(key)
	}
	if w.rows == 0 || compareJava(key, w.maxKey) > 0 {
		w.maxKey = strings.Clone(key)
	}
	w.keys.add(key)
	w.rows++
	w.groupRows++
	w.pending++
	if w.pending >= pendingRows || len(w.pendingText) >= pendingBytesMax {
		if err := w.flushPending(); err != nil {
			return err
		}
	}
	if w.groupRows >= w.groupRowsMax || w.groupBytes >= rowGroupBytesMax {
		return w.flushGroup()
	}
	return nil
}

func (w *BaseWriter) flushPending() error {
	if w.pending == 0 {
		return nil
	}
	for i := range w.columns {
		c := &w.columns[i]
		if len(c.values) > 0 {
			if _, err := c.w.WriteRowValues(c.values); err != nil {
				return w.failed(fmt.Errorf("column %s: %w", c.field.Name, err))
			}
			clear(c.values)
			c.values = c.values[:0]
		}
	}
	w.pending, w.pendingText = 0, w.pendingText[:0]
	return nil
}

func (w *BaseWriter) flushGroup() error {
	if err := w.flushPending(); err != nil {
		return err
	}
	if err := w.pq.Flush(); err != nil {
		return w.failed(err)
	}
	if w.groupRows > 0 {
		bounds := make([]decimalBounds, len(w.columns))
		for i := range w.columns {
			bounds[i], w.columns[i].bounds = w.columns[i].bounds, decimalBounds{}
		}
		w.groups = append(w.groups, bounds)
	}
	w.groupRows, w.groupBytes = 0, 0
	return nil
}

func (w *BaseWriter) failed(err error) error {
	err = fmt.Errorf("write base file %s: %w", w.name, err)
	if w.err == nil {
		w.err = err
	}
	return err
}

// Rows is the number of rows added.
func (w *BaseWriter) Rows() int64 { return int64(w.rows) }

// Bytes estimates the size of the file so far: what is written, and what waits in the row group before compression.
func (w *BaseWriter) Bytes() int64 { return w.pq.Size() }

// Commit writes the footer and publishes the file durably. It gives the file's size in bytes.
func (w *BaseWriter) Commit(ctx context.Context) (size int64, err error) {
	if w.ended {
		return 0, w.failed(errEnded)
	}
	if err := cmp.Or(w.err, ctx.Err()); err != nil {
		return 0, errors.Join(err, w.abort())
	}
	if err := w.finish(); err != nil {
		return 0, errors.Join(err, w.abort())
	}
	w.ended = true
	if err := w.out.Commit(); err != nil {
		return 0, w.failed(err)
	}
	return w.sink.written, nil
}

func (w *BaseWriter) finish() error {
	if err := w.flushGroup(); err != nil {
		return err
	}
	bloom := w.keys.bloom()
	w.pq.SetKeyValueMetadata(footerBloom, bloom.Encode())
	if code := bloom.TypeCode(); code != "" {
		w.pq.SetKeyValueMetadata(footerBloomType, code)
	}
	if w.rows > 0 {
		w.pq.SetKeyValueMetadata(footerMinKey, w.minKey)
		w.pq.SetKeyValueMetadata(footerMaxKey, w.maxKey)
	}
	w.pq.SetKeyValueMetadata(footerSchema, w.schema.Avro(true))
	w.pq.SetKeyValueMetadata(footerModel, "avro")
	w.sink.hold = true
	if err := w.pq.Close(); err != nil {
		return w.failed(err)
	}
	if err := w.sink.finish(w.columns, w.groups); err != nil {
		return w.failed(err)
	}
	return nil
}

// Sum gives the CRC-32C of the file that Commit has published.
func (w *BaseWriter) Sum() uint32 { return w.sink.sum }

// Abort drops the file and leaves nothing behind. It does nothing after Commit.
func (w *BaseWriter) Abort() { w.abort() }

func (w *BaseWriter) abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	return w.out.Abort()
}

// keySet gathers the keys of a file for its bloom filter, whose size depends on how many there are.
type keySet struct {
	filter *Bloom // once its size is settled
	text   []byte // the keys until then, one behind the other
	ends   []int32
}

func (k *keySet) expect(rows int) {
	if rows > 0 {
		k.filter = NewBloom(rows, bloomMissRate)
	}
}

func (k *keySet) add(key string) {
	if k.filter != nil {
		k.filter.Add(key)
		return
	}
	k.text = append(k.text, key...)
	k.ends = append(k.ends, int32(len(k.text)))
	if len(k.text)+4*len(k.ends) >= bloomKeyBytesMax {
		k.settle(4 * len(k.ends))
	}
}

func (k *keySet) settle(n int) {
	k.filter = NewBloom(n, bloomMissRate)
	all := textOf(k.text)
	from := int32(0)
	for _, end := range k.ends {
		k.filter.Add(all[from:end])
		from = end
	}
	k.text, k.ends = nil, nil
}

func (k *keySet) bloom() *Bloom {
	if k.filter == nil {
		k.settle(len(k.ends))
	}
	return k.filter
}
