package storage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// This file merges the log blocks of a slice by record key, by the rules of Hudi 1.x, which it applies to tables of
// version 6 too: under commit time the last write wins; under event time the larger ordering value wins, the later write
// on equal values, and a delete without an ordering value wins over all that lies before it.

// Columns of the log records that merging looks at, beside the record key.
const (
	colDeleted   = "_hoodie_is_deleted"
	colOperation = "_hoodie_operation"
)

// ordering value of one version of a record.
type orderKind uint8

const (
	orderNone   orderKind = iota // a delete that carries no value, or one of a foreign type: it always wins
	orderNull                    // NULL sorts below all values
	orderInt                     // i
	orderFloat                   // f
	orderText                    // s
	orderNumber                  // dec
)

type orderValue struct {
	kind orderKind
	i    int64
	f    float64
	dec  decimal128.Num
	s    string
}

// compare orders two values of one ordering field, NULL first.
func (a *orderValue) compare(b *orderValue) int {
	if a.kind != b.kind {
		return cmp.Compare(a.kind, b.kind)
	}
	switch a.kind {
	case orderInt:
		return cmp.Compare(a.i, b.i)
	case orderFloat:
		return compareFloats(a.f, b.f)
	case orderText:
		return strings.Compare(a.s, b.s)
	case orderNumber:
		return a.dec.Cmp(b.dec)
	}
	return 0
}

// compareFloats orders as Java's Double.compareTo: -0.0 below 0.0, NaN above all.
func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case math.IsNaN(a) || math.IsNaN(b):
		return cmp.Compare(boolByte(math.IsNaN(a)), boolByte(math.IsNaN(b)))
	}
	return cmp.Compare(boolByte(!math.Signbit(a)), boolByte(!math.Signbit(b)))
}

// orderOf boxes no value of a row: x is of the ordering field's type.
func orderOf(x any) orderValue {
	switch x := x.(type) {
	case bool:
		return orderValue{kind: orderInt, i: int64(boolByte(x))}
	case int32:
		return orderValue{kind: orderInt, i: int64(x)}
	case int64:
		return orderValue{kind: orderInt, i: x}
	case float32:
		return orderValue{kind: orderFloat, f: float64(x)}
	case float64:
		return orderValue{kind: orderFloat, f: x}
	case string:
		return orderValue{kind: orderText, s: x}
	case []byte:
		return orderValue{kind: orderText, s: string(x)}
	case decimal128.Num:
		return orderValue{kind: orderNumber, dec: x}
	}
	return orderValue{kind: orderNull}
}

// orderAt reads an ordering value from a column.
func orderAt(a arrow.Array, row int) orderValue {
	if a.IsNull(row) {
		return orderValue{kind: orderNull}
	}
	switch a := a.(type) {
	case *array.Int64:
		return orderValue{kind: orderInt, i: a.Value(row)}
	case *array.Timestamp:
		return orderValue{kind: orderInt, i: int64(a.Value(row))}
	case *array.Int32:
		return orderValue{kind: orderInt, i: int64(a.Value(row))}
	case *array.String:
		return orderValue{kind: orderText, s: a.Value(row)}
	}
	return orderOf(Batch{Columns: []arrow.Array{a}}.Value(0, row))
}

// orderOfDelete gives the value of a delete if its type is that of the ordering field. Another type compares with
// nothing; Hudi lets such a delete win. A timestamp stands in a delete as a long or as a timestamp, a date as an int or
// as a date.
func orderOfDelete(d *LogDelete, field Type) orderValue {
	if d.Ordering == nil {
		return orderValue{}
	}
	from := d.OrderingType.Kind
	switch {
	case from == Decimal && field.Kind == Decimal:
		n, _ := rescaleDecimal(d.Ordering.(decimal128.Num), d.OrderingType.Scale, field.Scale)
		return orderValue{kind: orderNumber, dec: n}
	case from == field.Kind,
		from == Int64 && field.Kind == Timestamp,
		from == Int32 && field.Kind == Date:
		return orderOf(d.Ordering)
	}
	return orderValue{}
}

// logData is what the logs of a slice hold: their blocks in scan order.
type logData struct {
	blocks  []loadedBlock
	schemas []string
	bytes   int64
}

type loadedBlock struct {
	LogBlock
	schema int // number of the block's schema among those of the logs
}

// merger builds mergedLogs.
type merger struct {
	m      *mergedLogs
	event  bool // by event time
	field  string
	typ    Type // of the ordering field
	probes []*probe
}

// logEntry is the version of a record that won in the logs.
type logEntry struct {
	rec     []byte // Avro binary; nil: the record was deleted by a delete block
	key     string
	schema  int32
	slot    int32 // number among the entries that are no deletes, -1: a delete
	deleted bool
}

// mergedLogs is the outcome of merging logs among themselves. It does not change once built, except for the columns,
// which are decoded when they are first asked for.
type mergedLogs struct {
	types   []func() (*avroType, error) // Avro schemas of the records, parsed when first needed
	index   map[string]int32
	entries []logEntry
	orders  []orderValue // of the entries; nil unless merged by event time
	live    []int32      // entries that are no deletes
	bytes   int64        // memory held, without the columns

	cols columnCache
}

// probe reads from a record what merging needs.
type probe struct {
	p                              *program
	key, deleted, operation, order int32 // columns of p; -1: none
}

func newProbe(parsed func() (*avroType, error), event bool, field string, typ Type) (*probe, error) {
	t, err := parsed()
	if err != nil {
		return nil, err
	}
	pr := &probe{key: 0, deleted: -1, operation: -1, order: -1}
	want := &Schema{Fields: []Field{{Name: ColRecordKey, Type: Type{Kind: String}}}}
	for _, f := range t.fields {
		switch f.name {
		case colDeleted:
			if inner, _ := f.typ.optional(); inner.kind == avroBool {
				pr.deleted = int32(len(want.Fields))
				want.Fields = append(want.Fields, Field{Name: f.name, Type: Type{Kind: Bool}})
			}
		case colOperation:
			if inner, _ := f.typ.optional(); inner.kind == avroString {
				pr.operation = int32(len(want.Fields))
				want.Fields = append(want.Fields, Field{Name: f.name, Type: Type{Kind: String}})
			}
		}
	}
	if event {
		pr.order = int32(len(want.Fields))
		want.Fields = append(want.Fields, Field{Name: field, Type: typ})
	}
	if pr.p, err = compileProgram(t, want); err != nil {
		return nil, err
	}
	pr.p.trim()
	return pr, nil
}

// read walks over one record. The key shares rec's memory.
func (pr *probe) read(rec []byte) (key string, deleted bool, order orderValue, err error) {
	order.kind = orderNull
	i, found := 0, false
	for k := range pr.p.ops {
		o := &pr.p.ops[k]
		var there bool
		if there, i, err = o.present(rec, i); err != nil {
			return key, false, order, pr.p.failed(o, err)
		}
		if !there {
			continue
		}
		switch {
		case o.col < 0:
			i, err = o.skip(rec, i)
		case o.col == pr.order && o.code == opInt64:
			order.kind = orderInt
			if order.i, i = avroVar(rec, i); i < 0 {
				err = errAvroShort
			}
		case (o.col == pr.key || o.col == pr.operation || o.col == pr.order) && o.code == opString:
			from, to := avroSpan(rec, i)
			if to < 0 {
				return key, false, order, errAvroShort
			}
			text := textOf(rec[from:to])
			switch o.col {
			case pr.key:
				key, found = text, true
			case pr.order:
				order.kind, order.s = orderText, text
			default:
				deleted = deleted || text == "D" || text == "-U"
			}
			i = to
		default:
			var x any
			if x, i, err = o.value(rec, i, ""); err != nil {
				break
			}
			switch o.col {
			case pr.order:
				order = orderOf(x)
			case pr.deleted:
				deleted = deleted || x == true
			}
		}
		if err != nil {
			return key, false, order, pr.p.failed(o, err)
		}
	}
	if !found {
		return key, false, order, fmt.Errorf("%w: a log record without a record key (hoodie.populate.meta.fields=false)", ErrUnsupported)
	}
	return key, deleted, order, nil
}

// queue gives the blocks to merge: those of instants that count, less those that a later command block takes back.
func (d *logData) queue(counts func(InstantTime) bool) []*loadedBlock {
	var out []*loadedBlock
	for i := range d.blocks {
		b := &d.blocks[i]
		switch b.Type {
		case BlockCommand:
			kept := out[:0]
			for _, q := range out {
				if q.Instant != b.Target {
					kept = append(kept, q)
				}
			}
			out = kept
		case BlockCorrupt, BlockCDC:
		default:
			if counts(b.Instant) {
				out = append(out, b)
			}
		}
	}
	return out
}

// mergeLogs merges blocks oldest first.
func mergeLogs(ctx context.Context, blocks []*loadedBlock, schemas []string, event bool, field string, typ Type) (*mergedLogs, error) {
	g := &merger{
		m: &mergedLogs{
			types: make([]func() (*avroType, error), len(schemas)), index: map[string]int32{},
			cols: columnCache{gate: make(chan struct{}, 1), done: map[column][]arrow.Array{}},
		},
		event: event, field: field, typ: typ, probes: make([]*probe, len(schemas)),
	}
	for i, text := range schemas {
		g.m.types[i] = sync.OnceValues(func() (*avroType, error) { return parseAvroType(text) })
	}
	for _, b := range blocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := b.supported(); err != nil {
			return nil, err
		}
		if b.Type == BlockDelete {
			dels, err := b.Deletes()
			if err != nil {
				return nil, err
			}
			for i := range dels {
				var order orderValue
				if event {
					order = orderOfDelete(&dels[i], typ)
				}
				g.put(logEntry{key: dels[i].Key, deleted: true}, order, false)
			}
			continue
		}
		if err := g.data(b); err != nil {
			return nil, err
		}
	}
	m := g.m
	for i := range m.entries {
		e := &m.entries[i]
		e.slot = -1
		if !e.deleted {
			e.slot = int32(len(m.live))
			m.live = append(m.live, int32(i))
		}
	}
	// An entry, its place in the map, and its number among the live ones.
	m.bytes = int64(len(m.entries)) * (64 + 32 + 4)
	m.bytes += int64(len(m.orders)) * 64
	return m, nil
}

func (g *merger) data(b *loadedBlock) error {
	pr := g.probes[b.schema]
	if pr == nil {
		var err error
		if pr, err = newProbe(g.m.types[b.schema], g.event, g.field, g.typ); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		g.probes[b.schema] = pr
	}
	for rec, err := range b.Records() {
		if err != nil {
			return err
		}
		key, deleted, order, err := pr.read(rec)
		if err != nil {
			return b.corrupt(err)
		}
		if deleted && (order.kind == orderNull || order.kind == orderInt && order.i == 0 && g.typ.Kind == Int32) {
			// Hudi takes the int 0 for "no ordering value" here too.
			order.kind = orderNone
		}
		g.put(logEntry{rec: rec, key: key, schema: int32(b.schema), deleted: deleted}, order, true)
	}
	return nil
}

// put lays a newer version n over what the logs held of its key.
func (g *merger) put(n logEntry, order orderValue, data bool) {
	m := g.m
	at, ok := m.index[n.key]
	if !ok {
		m.index[n.key] = int32(len(m.entries))
		m.entries = append(m.entries, n)
		if g.event {
			m.orders = append(m.orders, order)
		}
		return
	}
	if g.event {
		c, old := &m.entries[at], &m.orders[at]
		if c.deleted && old.kind == orderNone {
			if !data {
				return
			}
		} else if order.kind != orderNone && old.compare(&order) > 0 {
			return
		}
		*old = order
	}
	m.entries[at] = n
}

// overBase tells whether the winner of the logs replaces a row of the base file with this ordering value.
func (m *mergedLogs) overBase(entry int32, base *orderValue) bool {
	if m.orders == nil {
		return true
	}
	o := &m.orders[entry]
	return o.kind == orderNone || base.compare(o) <= 0
}

// find gives the entry of a key, -1 if the logs have none.
func (m *mergedLogs) find(key string) int32 {
	if at, ok := m.index[key]; ok {
		return at
	}
	return -1
}

// rows decodes entries that are no deletes into one batch.
func (m *mergedLogs) rows(entries []int32, want *Schema) (Batch, error) {
	progs := make([]*program, len(m.types))
	vecs := make([]vector, len(want.Fields))
	for i := range vecs {
		vecs[i].kind = want.Fields[i].Type.Kind
		vecs[i].grow(len(entries))
	}
	for _, at := range entries {
		e := &m.entries[at]
		p := progs[e.schema]
		if p == nil {
			t, err := m.types[e.schema]()
			if err != nil {
				return Batch{}, err
			}
			if p, err = compileProgram(t, want); err != nil {
				return Batch{}, err
			}
			p.trim()
			progs[e.schema] = p
		}
		if err := p.appendTo(vecs, e.rec); err != nil {
			return Batch{}, fmt.Errorf("log record %q: %w", e.key, err)
		}
	}
	return finishVectors(want, vecs, len(entries)), nil
}

// column is a decoded column of all live entries, in chunks of BatchRows.
type column struct {
	name string
	typ  Type
}

type columnCache struct {
	gate chan struct{} // holds one token; who has it may read and change done
	done map[column][]arrow.Array
}

// batches gives the live entries as batches of the wanted columns, chunk by chunk, and the number of bytes by which
// decoding them made the cache grow.
func (m *mergedLogs) batches(ctx context.Context, want *Schema, grown func(int64)) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		cols, err := m.columns(ctx, want, grown)
		if err != nil {
			yield(Batch{}, err)
			return
		}
		for c := 0; c*BatchRows < len(m.live); c++ {
			b := Batch{Schema: want, Columns: make([]arrow.Array, len(cols)), Rows: min(BatchRows, len(m.live)-c*BatchRows)}
			for i := range cols {
				b.Columns[i] = cols[i][c]
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

func (m *mergedLogs) columns(ctx context.Context, want *Schema, grown func(int64)) ([][]arrow.Array, error) {
	select {
	case m.cols.gate <- struct{}{}:
		defer func() { <-m.cols.gate }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	missing := &Schema{}
	for _, f := range want.Fields {
		if m.cols.done[column{f.Name, f.Type}] == nil {
			missing.Fields = append(missing.Fields, f)
		}
	}
	if len(missing.Fields) > 0 {
		chunks := make([][]arrow.Array, len(missing.Fields))
		var size int64
		for from := 0; from < len(m.live); from += BatchRows {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			b, err := m.rows(m.live[from:min(from+BatchRows, len(m.live))], missing)
			if err != nil {
				return nil, err
			}
			for i, a := range b.Columns {
				chunks[i] = append(chunks[i], a)
				size += int64(a.Data().SizeInBytes())
			}
		}
		for i, f := range missing.Fields {
			if chunks[i] == nil {
				chunks[i] = []arrow.Array{}
			}
			m.cols.done[column{f.Name, f.Type}] = chunks[i]
		}
		grown(size)
	}
	out := make([][]arrow.Array, len(want.Fields))
	for i, f := range want.Fields {
		out[i] = m.cols.done[column{f.Name, f.Type}]
	}
	return out, nil
}
