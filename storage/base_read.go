package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"
)

// BaseFile is an opened base file. Its methods may be called from several goroutines at once, except Close.
type BaseFile struct {
	name    string
	source  *baseSource
	pq      *parquet.File
	schema  *Schema
	columns map[string]*fileColumn
	starts  []int64 // first row of each row group, and the number of rows at the end
	id      uint64  // in the page cache
	cache   *PageCache

	closed    atomic.Bool
	bloomOnce sync.Once
	bloom     *Bloom // nil: none that can be read
}

var baseFileIDs atomic.Uint64

// baseSource tells errors of the store from damage that the parquet library reports.
type baseSource struct {
	obj    Object
	failed atomic.Pointer[error] // last error of the store
}

func (s *baseSource) ReadAt(b []byte, off int64) (int, error) {
	n, err := s.obj.ReadAt(b, off)
	if err != nil && err != io.EOF {
		s.failed.Store(&err)
	}
	return n, err
}

// OpenBase opens a base file and reads its footer. Damage is a *CorruptError.
func OpenBase(ctx context.Context, s Store, name string) (*BaseFile, error) {
	obj, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	f := &BaseFile{name: name, source: &baseSource{obj: obj}, id: baseFileIDs.Add(1), cache: defaultPageCache}
	if err := f.open(); err != nil {
		obj.Close()
		return nil, err
	}
	return f, nil
}

func (f *BaseFile) open() (err error) {
	defer f.corrupt(&err)
	size := f.source.obj.Size()
	// The library allocates what the footer's length says before it reads.
	var tail [8]byte
	if size < 12 {
		return errors.New("too short for a parquet file")
	}
	if _, err := f.source.ReadAt(tail[:], size-8); err != nil && err != io.EOF {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return errors.New("no parquet footer at the end")
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > size-12 {
		return fmt.Errorf("footer of %d bytes in a file of %d", n, size)
	}
	f.pq, err = parquet.OpenFile(f.source, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(32<<10))
	if err != nil {
		return err
	}
	f.starts = append(f.starts, 0)
	for i, g := range f.pq.RowGroups() {
		n := g.NumRows()
		if n < 0 || n > math.MaxInt64-f.starts[i] {
			return fmt.Errorf("row group %d has %d rows", i, n)
		}
		for _, c := range g.ColumnChunks() {
			if c, ok := c.(*parquet.FileColumnChunk); !ok || c.NumValues() < 0 {
				return fmt.Errorf("row group %d: damaged column chunk", i)
			}
		}
		f.starts = append(f.starts, f.starts[i]+n)
	}
	return f.readSchema()
}

// corrupt turns what the parquet library reports, and its panics, into a *CorruptError; errors of the store, of the context
// and of this package stay. It is deferred at each entry to the library.
func (f *BaseFile) corrupt(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("decoding: %v", p)
	}
	if *err == nil {
		return
	}
	var c *CorruptError
	if errors.As(*err, &c) || errors.Is(*err, ErrUnsupported) || errors.Is(*err, context.Canceled) || errors.Is(*err, context.DeadlineExceeded) {
		return
	}
	if failed := f.source.failed.Swap(nil); failed != nil {
		*err = fmt.Errorf("read %s: %w", f.name, *failed)
		return
	}
	*err = &CorruptError{Name: f.name, Offset: -1, Err: *err}
}

// readSchema describes the columns. Types come from the parquet types; the Avro schema of the footer, which files of
// Spark's own writer lack, adds what they do not tell.
func (f *BaseFile) readSchema() error {
	f.columns = map[string]*fileColumn{}
	f.schema = &Schema{}
	var avro *Schema
	if text, ok := f.pq.Lookup(footerSchema); ok {
		avro, _ = ParseAvro(text)
	}
	if avro != nil {
		f.schema.Name, f.schema.Namespace = avro.Name, avro.Namespace
	} else {
		f.schema.Namespace, f.schema.Name = cutName(f.pq.Root().Name())
	}
	for _, c := range f.pq.Root().Columns() {
		if f.columns[c.Name()] != nil {
			return fmt.Errorf("column %s occurs twice", c.Name())
		}
		col, err := newFileColumn(c, f.schema.fullName())
		if err != nil {
			return fmt.Errorf("column %s: %w", c.Name(), err)
		}
		f.columns[c.Name()] = col
		if isHidden(c.Name()) {
			continue
		}
		t := col.typ
		if avro != nil {
			if i := avro.Index(c.Name()); i >= 0 && avro.Fields[i].Type.Kind == t.Kind {
				t.Avro = avro.Fields[i].Type.Avro
			}
		}
		f.schema.Fields = append(f.schema.Fields, Field{Name: c.Name(), Type: t, Nullable: col.optional})
	}
	return nil
}

// Schema describes the table's own columns in the file.
func (f *BaseFile) Schema() *Schema { return f.schema }

// Rows is the number of rows in the file.
func (f *BaseFile) Rows() int64 { return f.starts[len(f.starts)-1] }

// Name is the object's name.
func (f *BaseFile) Name() string { return f.name }

// UsePages makes ReadRows keep decoded pages in c; nil: nowhere. Without it they go to a cache that all files share. It
// must be called before the file is read.
func (f *BaseFile) UsePages(c *PageCache) { f.cache = c }

// Close releases the file; closing it again does nothing. Batches stay valid.
func (f *BaseFile) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return f.source.obj.Close()
}

// KeyRange gives the least and the greatest record key in Java's order of strings; false if the footer does not tell.
func (f *BaseFile) KeyRange() (low, high string, ok bool) {
	low, ok1 := f.pq.Lookup(footerMinKey)
	high, ok2 := f.pq.Lookup(footerMaxKey)
	return low, high, ok1 && ok2
}

// Bloom gives the footer's filter of record keys, nil if it has none that this package reads. It must not be changed.
func (f *BaseFile) Bloom() *Bloom {
	f.bloomOnce.Do(func() {
		if text, ok := f.pq.Lookup(footerBloom); ok {
			code, _ := f.pq.Lookup(footerBloomType)
			f.bloom, _ = DecodeBloom(text, code) // a filter is an aid: without it every key may be there
		}
	})
	return f.bloom
}

// MayHaveKey tells by the footer alone whether a record key may be in the file.
func (f *BaseFile) MayHaveKey(key string) bool {
	if low, high, ok := f.KeyRange(); ok && (compareJava(key, low) < 0 || compareJava(key, high) > 0) {
		return false
	}
	b := f.Bloom()
	return b == nil || b.Has(key)
}

// FindKey gives the row number of a record key, -1 if the file has none. It reads the key column only, and only of row
// groups whose statistics allow the key.
func (f *BaseFile) FindKey(ctx context.Context, key string) (row int64, err error) {
	col := f.columns[ColRecordKey]
	if col == nil || col.node != nil || col.typ.Kind != String || !f.MayHaveKey(key) {
		return -1, nil
	}
	want := &Schema{Fields: []Field{{Name: ColRecordKey, Type: Type{Kind: String}, Nullable: true}}}
	for g := range f.pq.RowGroups() {
		if !f.groupMayHave(g, col.leaf, key) {
			continue
		}
		at := f.starts[g]
		for b, err := range f.scanGroup(ctx, want, g) {
			if err != nil {
				return -1, err
			}
			if i := indexOfText(b.Columns[0], key); i >= 0 {
				return at + int64(i), nil
			}
			at += int64(b.Rows)
		}
	}
	return -1, nil
}

// groupMayHave compares a text with a row group's bounds, which are in the order of bytes.
func (f *BaseFile) groupMayHave(group, leaf int, key string) bool {
	st := &f.pq.Metadata().RowGroups[group].Columns[leaf].MetaData.Statistics
	if len(st.MinValue) == 0 && len(st.MaxValue) == 0 {
		return true
	}
	return key >= string(st.MinValue) && key <= string(st.MaxValue)
}

// Scan reads the whole file in order, in batches of at most BatchRows rows. want's columns come in its order, meta columns
// by name; a column that the file lacks is NULL, one of an older type is converted. Damage is a *CorruptError.
func (f *BaseFile) Scan(ctx context.Context, want *Schema) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for g := range f.pq.RowGroups() {
			for b, err := range f.scanGroup(ctx, want, g) {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// batchReader reads one column of one row group in order.
type batchReader interface {
	// read appends the next n rows to v, whose kind is that of the file's column.
	read(v *vector, n int) error
	seek(row int64) error // within the row group
	close()
}

func (f *BaseFile) scanGroup(ctx context.Context, want *Schema, group int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		readers := make([]batchReader, len(want.Fields))
		defer func() {
			for _, r := range readers {
				if r != nil {
					r.close()
				}
			}
		}()
		left := f.starts[group+1] - f.starts[group]
		for left > 0 {
			if err := ctx.Err(); err != nil {
				yield(Batch{}, err)
				return
			}
			n := int(min(left, BatchRows))
			b, err := f.nextBatch(want, readers, group, n)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if !yield(b, nil) {
				return
			}
			left -= int64(n)
		}
	}
}

func (f *BaseFile) nextBatch(want *Schema, readers []batchReader, group, n int) (b Batch, err error) {
	defer f.corrupt(&err)
	b = Batch{Schema: want, Columns: make([]arrow.Array, len(want.Fields)), Rows: n}
	for i := range want.Fields {
		col := f.columns[want.Fields[i].Name]
		if col == nil {
			b.Columns[i] = nullArray(want.Fields[i].Type, n)
			continue
		}
		if readers[i] == nil {
			readers[i] = f.reader(col, group)
		}
		v := &vector{kind: col.typ.Kind}
		v.grow(n)
		if err := readers[i].read(v, n); err != nil {
			return Batch{}, columnError(col, err)
		}
		if b.Columns[i], err = finishColumn(v, col.typ, want.Fields[i].Type); err != nil {
			return Batch{}, columnError(col, err)
		}
	}
	return b, nil
}

func columnError(c *fileColumn, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("column %s: %w", c.name, err)
}

func finishColumn(v *vector, from, to Type) (arrow.Array, error) {
	v, err := castVector(v, from, to)
	if err != nil {
		return nil, err
	}
	return v.array(to), nil
}

func nullArray(t Type, n int) arrow.Array {
	v := vector{kind: t.Kind}
	v.appendNulls(n)
	return v.array(t)
}

func (f *BaseFile) reader(c *fileColumn, group int) batchReader {
	chunks := f.pq.RowGroups()[group].ColumnChunks()
	if c.node != nil {
		return newNestedReader(c, chunks)
	}
	return &flatReader{col: c, pages: chunks[c.leaf].Pages()}
}

// ReadRows reads single rows by their numbers in the file, which must ascend. Only the pages in which the rows stand are
// read; pages decoded are kept in the page cache.
func (f *BaseFile) ReadRows(ctx context.Context, want *Schema, rows []int64) (b Batch, err error) {
	if err := ctx.Err(); err != nil {
		return Batch{}, err
	}
	if len(rows) > 0 && (rows[0] < 0 || rows[len(rows)-1] >= f.Rows()) || !slices.IsSorted(rows) {
		return Batch{}, fmt.Errorf("read %s: rows %d of %d out of range or order", f.name, len(rows), f.Rows())
	}
	defer f.corrupt(&err)
	b = Batch{Schema: want, Columns: make([]arrow.Array, len(want.Fields)), Rows: len(rows)}
	for i := range want.Fields {
		col := f.columns[want.Fields[i].Name]
		if col == nil {
			b.Columns[i] = nullArray(want.Fields[i].Type, len(rows))
			continue
		}
		v := &vector{kind: col.typ.Kind}
		v.grow(len(rows))
		if err := f.pick(col, v, rows); err != nil {
			return Batch{}, columnError(col, err)
		}
		if b.Columns[i], err = finishColumn(v, col.typ, want.Fields[i].Type); err != nil {
			return Batch{}, columnError(col, err)
		}
	}
	return b, nil
}

// pick appends the rows of one column.
func (f *BaseFile) pick(c *fileColumn, v *vector, rows []int64) error {
	group := 0
	for len(rows) > 0 {
		for rows[0] >= f.starts[group+1] {
			group++
		}
		n := len(rows)
		if rows[n-1] >= f.starts[group+1] {
			n, _ = slices.BinarySearch(rows, f.starts[group+1])
		}
		var err error
		if c.node != nil {
			err = f.pickNested(c, v, group, rows[:n])
		} else {
			err = f.pickFlat(c, v, group, rows[:n])
		}
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (f *BaseFile) pickNested(c *fileColumn, v *vector, group int, rows []int64) error {
	r := f.reader(c, group)
	defer r.close()
	next := int64(-1)
	for _, row := range rows {
		if row != next {
			if err := r.seek(row - f.starts[group]); err != nil {
				return err
			}
		}
		if err := r.read(v, 1); err != nil {
			return err
		}
		next = row + 1
	}
	return nil
}

func (f *BaseFile) pickFlat(c *fileColumn, v *vector, group int, rows []int64) error {
	start := f.starts[group]
	chunk := f.pq.RowGroups()[group].ColumnChunks()[c.leaf]
	// The index is read on the first lookup of the chunk and kept by the library.
	index, err := chunk.OffsetIndex()
	if err != nil && !errors.Is(err, parquet.ErrMissingOffsetIndex) {
		return err
	}
	pages := 0
	if err == nil {
		pages = index.NumPages()
	}
	for i := 0; i < len(rows); {
		page, first, end := 0, int64(0), f.starts[group+1]-start
		if pages > 0 {
			row := rows[i] - start
			lo, hi := 0, pages
			for lo < hi {
				if m := (lo + hi) / 2; index.FirstRowIndex(m) <= row {
					lo = m + 1
				} else {
					hi = m
				}
			}
			if page = lo - 1; page < 0 {
				return errors.New("the offset index does not begin with row 0")
			}
			first = index.FirstRowIndex(page)
			if page+1 < pages {
				end = index.FirstRowIndex(page + 1)
			}
		}
		p, err := f.page(c, chunk, group, page, first, int(end-first))
		if err != nil {
			return err
		}
		for ; i < len(rows) && rows[i]-start < end; i++ {
			if err := p.appendRow(v, int(rows[i]-start-first)); err != nil {
				return err
			}
		}
	}
	return nil
}

// page gives rows first to first+n of a chunk decoded, from the cache if it is there.
func (f *BaseFile) page(c *fileColumn, chunk parquet.ColumnChunk, group, page int, first int64, n int) (*decodedPage, error) {
	key := pageKey{file: f.id, group: int32(group), leaf: int32(c.leaf), page: int32(page)}
	if p := f.cache.get(key); p != nil {
		return p, nil
	}
	r := &flatReader{col: c, pages: chunk.Pages()}
	defer r.close()
	if err := r.seek(first); err != nil {
		return nil, err
	}
	p, err := r.decode(n)
	if err != nil {
		return nil, err
	}
	f.cache.put(key, p)
	return p, nil
}
