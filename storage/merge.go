package storage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

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
	orderList                    // list: several ordering fields
)

type orderValue struct {
	kind orderKind
	i    int64
	f    float64
	dec  decimal128.Num
	s    string
	list *[]orderValue
}

// compare orders two values of the ordering fields, NULL first.
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
	case orderList:
		for i := range min(len(*a.list), len(*b.list)) {
			if c := (*a.list)[i].compare(&(*b.list)[i]); c != 0 {
				return c
			}
		}
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

// orderOfRow reads the ordering value of a row from the columns of the ordering fields.
func orderOfRow(b Batch, columns []int, row int) orderValue {
	if len(columns) == 1 {
		return orderAt(b.Columns[columns[0]], row)
	}
	list := make([]orderValue, len(columns))
	for i, c := range columns {
		list[i] = orderAt(b.Columns[c], row)
	}
	return orderValue{kind: orderList, list: &list}
}

// orderOfDelete gives the value of a delete if its type is that of the ordering field. Another type compares with
// nothing; Hudi lets such a delete win. A timestamp stands in a delete as a long or as a timestamp, a date as an int or
// as a date.
func orderOfDelete(d *LogDelete, fields []Field) orderValue {
	values, several := d.Ordering.([]OrderingValue)
	if d.Ordering == nil || several != (len(fields) > 1) {
		return orderValue{}
	}
	if several {
		list := make([]orderValue, len(fields))
		if len(values) != len(fields) {
			return orderValue{}
		}
		for i, v := range values {
			one := LogDelete{Ordering: v.Value, OrderingType: v.Type}
			if list[i] = orderOfDelete(&one, fields[i:i+1]); list[i].kind == orderNone {
				return orderValue{}
			}
		}
		return orderValue{kind: orderList, list: &list}
	}
	field := fields[0].Type
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

// mergeSpec says how the versions of a record merge.
type mergeSpec struct {
	rules *MergeRules
	event bool    // the larger ordering value wins
	order []Field // ordering fields, also where they matter to deletes alone; nil: values are not compared
	// full has the columns of whole rows where rows are put together from the columns of several versions, else it is nil.
	full *Schema
	// always has every delete win: Hudi does so in a slice with partial updates.
	always bool
}

// merger builds mergedLogs.
type merger struct {
	mergeSpec
	m        *mergedLogs
	probes   []*probe
	decoders []*columnDecoder // by schema; where columns are combined
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
	orders  []orderValue // of the entries; nil unless ordering values are compared
	event   bool         // they decide between rows, too
	live    []int32      // entries that are no deletes
	bytes   int64        // memory held, without the columns
	// unbounded says that Scan.Within was passed over.
	unbounded bool
	// combined has the columns of the entries where rows are put together from several versions, else it is nil.
	combined *combinedRows

	cols columnCache
}

// probe reads from a record what merging needs.
type probe struct {
	p                              *program
	key, deleted, operation, order int32   // columns of p; -1: none
	orders                         []int32 // of several ordering fields; order is -1 then
	marked                         int32   // column of the field that marks deletes, -1: none
	marker                         string
}

func newProbe(parsed func() (*avroType, error), spec *mergeSpec) (*probe, error) {
	t, err := parsed()
	if err != nil {
		return nil, err
	}
	pr := &probe{key: 0, deleted: -1, operation: -1, order: -1, marked: -1, marker: spec.rules.DeleteMarker}
	want := &Schema{Fields: []Field{{Name: ColRecordKey, Type: Type{Kind: String}}}}
	add := func(f Field) int32 {
		if at := want.Index(f.Name); at >= 0 {
			return int32(at)
		}
		want.Fields = append(want.Fields, f)
		return int32(len(want.Fields) - 1)
	}
	if len(spec.order) == 1 {
		pr.order = add(spec.order[0])
	} else {
		for _, f := range spec.order {
			pr.orders = append(pr.orders, add(f))
		}
	}
	for _, f := range t.fields {
		inner, _ := f.typ.optional()
		switch {
		case f.name == colDeleted && inner.kind == avroBool:
			pr.deleted = add(Field{Name: f.name, Type: Type{Kind: Bool}})
		case f.name == colOperation && inner.kind == avroString:
			pr.operation = add(Field{Name: f.name, Type: Type{Kind: String}})
		case f.name != "" && f.name == spec.rules.DeleteField:
			if inner.kind != avroString {
				return nil, fmt.Errorf("%w: deletes marked by field %s, which is a %s", ErrUnsupported, f.name, inner.kind)
			}
			pr.marked = add(Field{Name: f.name, Type: Type{Kind: String}})
		}
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
	var list []orderValue
	if pr.orders != nil {
		list = make([]orderValue, len(pr.orders))
		for i := range list {
			list[i].kind = orderNull
		}
		order = orderValue{kind: orderList, list: &list}
	}
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
		case o.code == opString && (o.col == pr.key || o.col == pr.operation || o.col == pr.order || o.col == pr.marked):
			from, to := avroSpan(rec, i)
			if to < 0 {
				return key, false, order, errAvroShort
			}
			text := textOf(rec[from:to])
			if o.col == pr.key {
				key, found = text, true
			}
			if o.col == pr.order {
				order.kind, order.s = orderText, text
			}
			if o.col == pr.operation {
				deleted = deleted || text == "D" || text == "-U"
			}
			if o.col == pr.marked {
				deleted = deleted || text == pr.marker
			}
			pr.noteOrder(list, o.col, text)
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
			pr.noteOrder(list, o.col, x)
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

// noteOrder sets the value of one of several ordering fields.
func (pr *probe) noteOrder(list []orderValue, column int32, x any) {
	for i := range list {
		if pr.orders[i] == column {
			list[i] = orderOf(x)
		}
	}
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
	if slices.ContainsFunc(out, func(b *loadedBlock) bool { return b.Compacted != "" }) {
		return compacted(out)
	}
	return out
}

// compacted leaves out the blocks that a log compaction wrote again, and puts what it wrote into the place of the first of them.
func compacted(queue []*loadedBlock) []*loadedBlock {
	byInstant := map[InstantTime][]*loadedBlock{}
	var instants []InstantTime
	for _, b := range queue {
		if byInstant[b.Instant] == nil {
			instants = append(instants, b.Instant)
		}
		byInstant[b.Instant] = append(byInstant[b.Instant], b)
	}
	slices.Sort(instants)
	claims := map[InstantTime]InstantTime{} // an instant → the log compaction that stands for it
	for _, it := range slices.Backward(instants) {
		by, ok := claims[it]
		if !ok {
			by = it
		}
		for _, b := range byInstant[it] {
			for old := range strings.SplitSeq(b.Compacted, ",") {
				if old := InstantTime(strings.TrimSpace(old)); old != "" && old != by && claims[old] == "" {
					claims[old] = by
				}
			}
		}
	}
	var out []*loadedBlock
	done := map[InstantTime]bool{}
	for _, b := range queue {
		it := b.Instant
		if by, ok := claims[it]; ok {
			it = by
		}
		if !done[it] {
			done[it] = true
			out = append(out, byInstant[it]...)
		}
	}
	return out
}

// mergeLogs merges blocks oldest first.
func mergeLogs(ctx context.Context, blocks []*loadedBlock, types []func() (*avroType, error), spec mergeSpec) (*mergedLogs, error) {
	g := &merger{
		mergeSpec: spec,
		m: &mergedLogs{
			types: types, index: map[string]int32{}, event: spec.event,
			cols: columnCache{gate: make(chan struct{}, 1), done: map[column][]arrow.Array{}},
		},
		probes: make([]*probe, len(types)),
	}
	if spec.full != nil {
		g.m.combined = &combinedRows{schema: spec.full, rules: spec.rules}
		g.decoders = make([]*columnDecoder, len(types))
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
				if g.order != nil && !g.always {
					order = orderOfDelete(&dels[i], g.order)
				}
				g.put(logEntry{key: dels[i].Key, deleted: true}, order, false, nil)
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
	m.bytes += int64(len(m.orders)) * 72
	if m.combined != nil {
		m.bytes += m.combined.bytes
	}
	return m, nil
}

func (g *merger) data(b *loadedBlock) error {
	pr := g.probes[b.schema]
	if pr == nil {
		var err error
		if pr, err = newProbe(g.m.types[b.schema], &g.mergeSpec); err != nil {
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
		if deleted && g.orderless(&order) {
			order = orderValue{}
		}
		var row *versionRow
		if g.full != nil && !deleted {
			if row, err = g.decode(b, rec); err != nil {
				return err
			}
		}
		g.put(logEntry{rec: rec, key: key, schema: int32(b.schema), deleted: deleted}, order, true, row)
	}
	return nil
}

// orderless tells whether a delete that is a row carries no ordering value; Hudi takes the int 0 for that here too.
func (g *merger) orderless(order *orderValue) bool {
	switch {
	case g.always, order.kind == orderNull:
		return true
	case order.kind == orderList:
		return !slices.ContainsFunc(*order.list, func(o orderValue) bool { return o.kind != orderNull })
	}
	return order.kind == orderInt && order.i == 0 && g.order[0].Type.Kind == Int32
}

// put lays a newer version n over what the logs held of its key. row has its columns if they are combined.
func (g *merger) put(n logEntry, order orderValue, data bool, row *versionRow) {
	m := g.m
	at, ok := m.index[n.key]
	if !ok {
		m.index[n.key] = int32(len(m.entries))
		m.entries = append(m.entries, n)
		if g.order != nil {
			m.orders = append(m.orders, order)
		}
		if m.combined != nil {
			m.combined.add(row)
		}
		return
	}
	c := &m.entries[at]
	if g.order != nil {
		old := &m.orders[at]
		if c.deleted && old.kind == orderNone {
			if !data {
				return
			}
		} else if (g.event || !data) && order.kind != orderNone && old.compare(&order) > 0 {
			if m.combined != nil && !c.deleted && !n.deleted {
				m.combined.under(at, row)
			}
			return
		}
		*old = order
	}
	if m.combined != nil {
		m.combined.over(at, row, c.deleted)
	}
	m.entries[at] = n
}

// overBase tells whether the winner of the logs replaces a row of the base file with this ordering value.
func (m *mergedLogs) overBase(entry int32, base *orderValue) bool {
	if m.orders == nil || !m.event && !m.entries[entry].deleted {
		return true
	}
	o := &m.orders[entry]
	return o.kind == orderNone || base.compare(o) <= 0
}

// asksBase tells whether it depends on a row of the base file what becomes of an entry.
func (m *mergedLogs) asksBase(entry int32) bool {
	return m.orders != nil && m.orders[entry].kind != orderNone || m.combined != nil && !m.entries[entry].deleted
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
	if m.combined != nil {
		return m.combined.batch(entries, want)
	}
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
