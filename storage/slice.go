package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Scan says what to read from file slices, and how versions of a record merge.
type Scan struct {
	Schema *Schema // columns wanted, in this order; meta columns by name
	Table  *Schema // the table's schema at the time of the read: it has the ordering field's type
	// Counts tells whether what an instant wrote is to be seen: it is completed, and within the bound of the read. nil: all.
	Counts        func(InstantTime) bool
	Ordering      Ordering
	OrderingField string // "": none, the last write wins
	Rules         MergeRules
	// History is the table's schema-on-read history, and Version the id of the one of its schemas whose names Schema and Table have.
	History *SchemaHistory
	Version int64
	// Within limits an incremental read to the log blocks and to the base file's rows of instants that it answers true for: what those
	// wrote is merged by itself, as Hudi does it. In a slice with partial updates, which are no rows by themselves, it is passed over. nil: all.
	Within func(InstantTime) bool
	// Payload is the table's payload class if that is none of the two built-in ones; slices with logs are then refused.
	Payload       string
	ReadOptimized bool // base files alone
	// Drop leaves out the rows whose record keys it answers true for; nil: none. It may be called more than once a key.
	Drop func(key string) bool
	// Torn is asked when a log file has bytes from offset on that are no whole block, which the log format has readers pass over:
	// an error if a completed instant wrote them, so that rows are missing. nil: they are passed over.
	Torn func(ctx context.Context, partition, file string, offset int64) error
}

// base is the slice's base file if it is to be seen.
func (sc *Scan) base(fs *FileSlice) *FileName {
	if fs.Base == nil || sc.Counts != nil && !sc.Counts(fs.Base.Instant) {
		return nil
	}
	return fs.Base
}

// with gives the wanted columns and behind them those of the named that are not among them, and where the named are.
func (sc *Scan) with(key bool, order []Field) (want *Schema, keyAt int, orderAt []int) {
	want, keyAt = sc.Schema, -1
	add := func(f Field) int {
		if at := want.Index(f.Name); at >= 0 && want.Fields[at].Type.Kind == f.Type.Kind {
			return at
		}
		n := len(want.Fields)
		want = &Schema{Name: want.Name, Namespace: want.Namespace, Fields: append(want.Fields[:n:n], f)}
		return n
	}
	if key {
		keyAt = add(keyField)
	}
	for _, f := range order {
		orderAt = append(orderAt, add(f))
	}
	return want, keyAt, orderAt
}

var (
	timeField      = Field{Name: ColCommitTime, Type: Type{Kind: String}, Nullable: true}
	keyField       = Field{Name: ColRecordKey, Type: Type{Kind: String}, Nullable: true}
	partitionField = Field{Name: ColPartitionPath, Type: Type{Kind: String}, Nullable: true}
)

// errStop ends a read whose caller wants no more.
var errStop = errors.New("stop")

// ReadSlice gives the rows of a slice in batches: those of the base file in its order without the ones that the logs
// replace or delete, then the rows of the logs. dir is the table's folder. Rows of one key come once.
func (r *Reader) ReadSlice(ctx context.Context, dir string, fs FileSlice, sc Scan) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		err := r.readSlice(ctx, dir, &fs, &sc, func(b Batch, _ *sliceRows) error {
			if !yield(b, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(Batch{}, fmt.Errorf("reading slice %s: %w", objectName(dir, fs.Partition, string(fs.ID)), err))
		}
	}
}

// sliceRows says where the rows of a batch stand: row i of it is row first+rows[i] of the base file, first+i if rows is
// nil, and in the logs if first is negative.
type sliceRows struct {
	first int64
	rows  []int32
}

func (r *Reader) readSlice(ctx context.Context, dir string, fs *FileSlice, sc *Scan, yield func(Batch, *sliceRows) error) error {
	m, set, err := r.mergedLogs(ctx, dir, fs, sc)
	if err != nil {
		return err
	}
	var kept []uint64 // entries of the logs that lost against the base file, one bit each
	if m != nil && (m.orders != nil || m.combined != nil) {
		kept = make([]uint64, (len(m.entries)+63)/64)
	}
	if base := sc.base(fs); base != nil {
		if err := r.readBase(ctx, objectName(dir, fs.Partition, base.Name), base.Instant, sc, m, kept, yield); err != nil {
			return err
		}
	}
	if m == nil {
		return nil
	}
	at := 0
	var buf []int32
	for b, err := range m.batches(ctx, sc.Schema, func(n int64) { r.grow(set, n) }) {
		if err != nil {
			return err
		}
		rows := buf[:0]
		for i, entry := range m.live[at : at+b.Rows] {
			if kept != nil && kept[entry>>6]&(1<<(entry&63)) != 0 {
				continue
			}
			if sc.Drop != nil && sc.Drop(m.entries[entry].key) {
				continue
			}
			rows = append(rows, int32(i))
		}
		at += b.Rows
		buf = rows
		if len(rows) == 0 {
			continue
		}
		if len(rows) < b.Rows {
			b = b.Take(rows)
		}
		if err := yield(b, &sliceRows{first: -1}); err != nil {
			return err
		}
	}
	return nil
}

// readBase gives the rows of a base file that neither the logs nor Drop override.
func (r *Reader) readBase(ctx context.Context, name string, it InstantTime, sc *Scan, m *mergedLogs, kept []uint64, yield func(Batch, *sliceRows) error) error {
	e, err := r.base(ctx, name)
	if err != nil {
		return err
	}
	defer r.release(e)
	var order []Field
	if m != nil && m.orders != nil {
		order = sc.orderFields()
	}
	want, keyAt, orderColumns := sc.with(m != nil || sc.Drop != nil, order)
	timeAt := -1
	if sc.Within != nil && (m == nil || !m.unbounded) {
		if timeAt = want.Index(ColCommitTime); timeAt < 0 {
			timeAt = len(want.Fields)
			want = &Schema{Name: want.Name, Namespace: want.Namespace, Fields: append(want.Fields[:timeAt:timeAt], timeField)}
		}
	}
	if len(want.Fields) == 0 {
		for from := int64(0); from < e.file.Rows(); from += BatchRows {
			n := min(BatchRows, e.file.Rows()-from)
			if err := yield(Batch{Schema: want, Rows: int(n)}, &sliceRows{first: from}); err != nil {
				return err
			}
		}
		return nil
	}
	var first int64
	var buf []int32
	var mixed []mixedRow
	for b, err := range e.file.Scan(ctx, sc.fileColumns(want, it)) {
		if err != nil {
			return err
		}
		where := sliceRows{first: first}
		first += int64(b.Rows)
		n := b.Rows
		if timeAt >= 0 {
			if b, err = rowsWithin(b, timeAt, sc.Within); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			n = b.Rows
		}
		if keyAt >= 0 {
			if buf, mixed, err = selectRows(buf[:0], mixed[:0], b, keyAt, orderColumns, sc, m, kept); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			n = len(buf)
		}
		if len(mixed) > 0 {
			out, err := m.combined.mix(mixed, sc.Schema, b)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := yield(out, &sliceRows{first: -1}); err != nil {
				return err
			}
		}
		if n == 0 {
			continue
		}
		out := Batch{Schema: sc.Schema, Columns: b.Columns[:len(sc.Schema.Fields)], Rows: b.Rows}
		if n < b.Rows {
			out, where.rows = out.Take(buf), buf
		}
		if err := yield(out, &where); err != nil {
			return err
		}
	}
	return nil
}

// rowsWithin leaves the rows of some instants.
func rowsWithin(b Batch, timeAt int, within func(InstantTime) bool) (Batch, error) {
	times, ok := b.Columns[timeAt].(*array.String)
	if !ok || times.NullN() > 0 {
		return b, errNoKeys
	}
	rows := make([]int32, 0, b.Rows)
	for i := range b.Rows {
		if within(InstantTime(times.Value(i))) {
			rows = append(rows, int32(i))
		}
	}
	if len(rows) == b.Rows {
		return b, nil
	}
	return b.Take(rows), nil
}

// selectRows appends the numbers of a batch's rows that stay, and the rows that are put together with what the logs have of them.
func selectRows(rows []int32, mixed []mixedRow, b Batch, keyAt int, orderColumns []int, sc *Scan, m *mergedLogs, kept []uint64) ([]int32, []mixedRow, error) {
	keys, ok := b.Columns[keyAt].(*array.String)
	if !ok || keys.NullN() > 0 {
		return rows, mixed, errNoKeys
	}
	for i := range b.Rows {
		key := keys.Value(i)
		if m != nil {
			if entry := m.find(key); entry >= 0 {
				if kept == nil {
					continue
				}
				wins := true
				if m.orders != nil {
					order := orderOfRow(b, orderColumns, i)
					wins = m.overBase(entry, &order)
				}
				if m.combined != nil && !m.entries[entry].deleted {
					kept[entry>>6] |= 1 << (entry & 63)
					if sc.Drop == nil || !sc.Drop(key) {
						mixed = append(mixed, mixedRow{int32(i), entry, wins})
					}
					continue
				}
				if wins {
					continue
				}
				kept[entry>>6] |= 1 << (entry & 63)
			}
		}
		if sc.Drop != nil && sc.Drop(key) {
			continue
		}
		rows = append(rows, int32(i))
	}
	return rows, mixed, nil
}

var errNoKeys = fmt.Errorf("%w: a base file without record keys (hoodie.populate.meta.fields=false)", ErrUnsupported)

// KeyBatch says where rows of a slice stand.
type KeyBatch struct {
	Keys       *array.String
	Partitions *array.String
	Ordering   arrow.Array // values of the ordering field; nil if the scan names none
	Rows       []int64     // row number in the base file, -1: the row stands in a log
}

// Keys gives the record keys of a slice's rows, as ReadSlice would give the rows; the scan's Schema is not looked at.
func (r *Reader) Keys(ctx context.Context, dir string, fs FileSlice, sc Scan) iter.Seq2[KeyBatch, error] {
	return func(yield func(KeyBatch, error) bool) {
		sc.Schema = &Schema{Fields: []Field{keyField, partitionField}}
		if sc.OrderingField != "" && sc.Table != nil && sc.Table.Index(sc.OrderingField) >= 0 {
			sc.Schema, _, _ = sc.with(false, []Field{sc.Table.Fields[sc.Table.Index(sc.OrderingField)]})
		}
		for b, err := range r.ReadPlaced(ctx, dir, fs, sc) {
			if err != nil {
				yield(KeyBatch{}, fmt.Errorf("keys of %w", err))
				return
			}
			k := KeyBatch{Keys: b.Columns[0].(*array.String), Partitions: b.Columns[1].(*array.String), Rows: b.Places}
			if len(b.Columns) > 2 {
				k.Ordering = b.Columns[2]
			}
			if !yield(k, nil) {
				return
			}
		}
	}
}

// PlacedBatch is a batch with the place of each row.
type PlacedBatch struct {
	Batch
	Places []int64 // row number in the base file, -1: the row stands in a log
}

// ReadPlaced is ReadSlice with the places of the rows.
func (r *Reader) ReadPlaced(ctx context.Context, dir string, fs FileSlice, sc Scan) iter.Seq2[PlacedBatch, error] {
	return func(yield func(PlacedBatch, error) bool) {
		err := r.readSlice(ctx, dir, &fs, &sc, func(b Batch, where *sliceRows) error {
			places := make([]int64, b.Rows)
			for i := range places {
				switch {
				case where.first < 0:
					places[i] = -1
				case where.rows != nil:
					places[i] = where.first + int64(where.rows[i])
				default:
					places[i] = where.first + int64(i)
				}
			}
			if !yield(PlacedBatch{b, places}, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(PlacedBatch{}, fmt.Errorf("slice %s: %w", objectName(dir, fs.Partition, string(fs.ID)), err))
		}
	}
}
