package storage

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// ReaderOptions bounds what a Reader keeps.
type ReaderOptions struct {
	CacheBytes int64 // memory for logs of slices, raw, merged and decoded; default 128 MiB
	MaxOpen    int   // base files kept open; default 256
}

// ReaderMetrics counts what a Reader did.
type ReaderMetrics struct {
	BaseOpens    atomic.Int64 // base files opened
	BaseHits     atomic.Int64 // uses of one that was open
	LogFiles     atomic.Int64 // log files read
	LogBytes     atomic.Int64 // bytes of them
	LogBlocks    atomic.Int64 // blocks of them
	CorruptTails atomic.Int64 // torn writes at the end of a log file
	CorruptMids  atomic.Int64 // damaged blocks with whole blocks behind them
	Merges       atomic.Int64 // times that the logs of a slice were merged
	MergeHits    atomic.Int64 // times that a merge was at hand
	Evictions    atomic.Int64 // slices whose logs were dropped for room
	CacheBytes   atomic.Int64 // bytes that the logs take now
}

// Reader reads file slices. It caches opened base files and the merged logs of slices by name, which is right because
// neither changes once published; a log file that another writer appends to counts as another one by its size. It is
// safe for concurrent use.
type Reader struct {
	Metrics ReaderMetrics

	s Store
	o ReaderOptions

	mu     sync.Mutex
	closed bool
	bases  map[string]*openBase // by object name
	order  list.List            // of *openBase, newest use first
	logs   map[string]*logSet
	recent list.List // of *logSet, newest use first
	bytes  int64     // of all logSets
}

// NewReader gives a reader of objects of s.
func NewReader(s Store, o ReaderOptions) *Reader {
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = 256
	}
	return &Reader{s: s, o: o, bases: map[string]*openBase{}, logs: map[string]*logSet{}}
}

var errReaderClosed = errors.New("storage: reader is closed")

// openBase is an opened base file with the number of its users.
type openBase struct {
	name string
	gate chan struct{} // holds one token; who has it may open the file
	file *BaseFile     // set once, under gate

	// guarded by Reader.mu
	elem    *list.Element // nil once it is no longer in the cache
	users   int
	dropped bool
}

func (r *Reader) base(ctx context.Context, name string) (*openBase, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errReaderClosed
	}
	e := r.bases[name]
	if e == nil {
		e = &openBase{name: name, gate: make(chan struct{}, 1)}
		e.elem = r.order.PushFront(e)
		r.bases[name] = e
	} else {
		r.order.MoveToFront(e.elem)
	}
	e.users++
	for at := r.order.Back(); at != nil && r.order.Len() > r.o.MaxOpen; {
		old := at.Value.(*openBase)
		at = at.Prev()
		if old.users == 0 {
			r.dropBase(old)
		}
	}
	r.mu.Unlock()

	select {
	case e.gate <- struct{}{}:
	case <-ctx.Done():
		r.release(e)
		return nil, ctx.Err()
	}
	defer func() { <-e.gate }()
	if e.file != nil {
		r.Metrics.BaseHits.Add(1)
		return e, nil
	}
	f, err := OpenBase(ctx, r.s, name)
	if err != nil {
		r.mu.Lock()
		r.dropBase(e)
		r.mu.Unlock()
		r.release(e)
		return nil, err
	}
	r.Metrics.BaseOpens.Add(1)
	e.file = f
	return e, nil
}

// release ends a use.
func (r *Reader) release(e *openBase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.users--; e.users == 0 && e.dropped {
		e.shut()
	}
}

// dropBase takes a file out of the cache; r.mu is held.
func (r *Reader) dropBase(e *openBase) {
	if e.dropped {
		return
	}
	r.order.Remove(e.elem)
	delete(r.bases, e.name)
	e.dropped = true
	if e.users == 0 {
		e.shut()
	}
}

func (e *openBase) shut() {
	if e.file != nil {
		e.file.Close()
	}
}

// BaseRows gives the number of rows of a base file.
func (r *Reader) BaseRows(ctx context.Context, name string) (int64, error) {
	e, err := r.base(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("opening base file %s: %w", name, err)
	}
	defer r.release(e)
	return e.file.Rows(), nil
}

// logSet is the logs of one slice.
type logSet struct {
	key  string
	gate chan struct{} // holds one token; who has it may read and change what follows
	data *logData
	// merges of them, by the instants that counted and the ordering
	merged map[string]*mergedLogs

	// guarded by Reader.mu
	elem  *list.Element // nil once it is no longer in the cache
	bytes int64
}

// grow notes that a set takes more memory and makes room for it.
func (r *Reader) grow(l *logSet, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.elem == nil {
		return
	}
	l.bytes += n
	r.bytes += n
	for r.bytes > r.o.CacheBytes && r.recent.Len() > 0 {
		r.Metrics.Evictions.Add(1)
		r.dropLogs(r.recent.Back().Value.(*logSet))
	}
	r.Metrics.CacheBytes.Store(r.bytes)
}

// dropLogs takes a set out of the cache; who reads it goes on. r.mu is held.
func (r *Reader) dropLogs(l *logSet) {
	r.recent.Remove(l.elem)
	delete(r.logs, l.key)
	l.elem = nil
	r.bytes -= l.bytes
	r.Metrics.CacheBytes.Store(r.bytes)
}

// Forget drops what is cached of objects whose names begin with prefix.
func (r *Reader) Forget(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range r.bases {
		if strings.HasPrefix(name, prefix) {
			r.dropBase(e)
		}
	}
	for key, l := range r.logs {
		if strings.HasPrefix(key, prefix) {
			r.dropLogs(l)
		}
	}
}

// Close drops all. Reads that are under way finish; new ones fail.
func (r *Reader) Close() error {
	r.Forget("")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// objectName joins the parts of an object's name; empty ones are left out.
func objectName(parts ...string) string {
	var b []byte
	for _, p := range parts {
		if p == "" {
			continue
		}
		if len(b) > 0 {
			b = append(b, '/')
		}
		b = append(b, p...)
	}
	return string(b)
}

// mergedLogs gives the merged logs of a slice, nil if no block counts.
func (r *Reader) mergedLogs(ctx context.Context, dir string, fs *FileSlice, sc *Scan) (*mergedLogs, *logSet, error) {
	if sc.ReadOptimized {
		return nil, nil, nil
	}
	key := []byte(objectName(dir, fs.Partition) + "/")
	logs := 0
	for i := range fs.Logs {
		if f := &fs.Logs[i]; !f.CDC {
			key = append(key, f.Name...)
			key = strconv.AppendInt(append(key, 0), f.Size, 10)
			key = append(key, 0)
			logs++
		}
	}
	if logs == 0 {
		return nil, nil, nil
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, nil, errReaderClosed
	}
	l := r.logs[string(key)]
	if l == nil {
		l = &logSet{key: string(key), gate: make(chan struct{}, 1), merged: map[string]*mergedLogs{}}
		l.elem = r.recent.PushFront(l)
		r.logs[l.key] = l
	} else {
		r.recent.MoveToFront(l.elem)
	}
	r.mu.Unlock()

	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if l.data == nil {
		data, err := r.loadLogs(ctx, dir, fs, sc.Torn)
		if err != nil {
			r.mu.Lock()
			if l.elem != nil {
				r.dropLogs(l)
			}
			r.mu.Unlock()
			return nil, nil, err
		}
		l.data = data
		r.grow(l, data.bytes)
	}
	m, err := r.mergeSet(ctx, l, sc)
	return m, l, err
}

// mergeSet merges the blocks of a set that count; l.gate is held.
func (r *Reader) mergeSet(ctx context.Context, l *logSet, sc *Scan) (*mergedLogs, error) {
	spec := mergeSpec{rules: &sc.Rules, event: sc.Ordering == EventTime && sc.OrderingField != ""}
	if spec.event || sc.Rules.DeletesByTime {
		spec.order = sc.orderFields()
		if len(spec.order) == 0 {
			return nil, fmt.Errorf("the table schema has no ordering field %s", sc.OrderingField)
		}
	}
	var key []byte
	pick := func(within func(InstantTime) bool) []*loadedBlock {
		answers := map[InstantTime]bool{}
		key = key[:0]
		return l.data.queue(func(t InstantTime) bool {
			a, ok := answers[t]
			if !ok {
				a = (sc.Counts == nil || sc.Counts(t)) && (within == nil || within(t))
				answers[t] = a
			}
			key = append(key, boolByte(a))
			return a
		})
	}
	isPartial := func(b *loadedBlock) bool { return b.Partial }
	queue := pick(sc.Within)
	unbounded := sc.Within != nil && slices.ContainsFunc(queue, isPartial)
	if unbounded {
		queue = pick(nil)
		key = append(key, '*')
	}
	if len(queue) == 0 {
		return nil, nil
	}
	if sc.Payload != "" {
		return nil, fmt.Errorf("%w: merging log records by payload class %s", ErrUnsupported, sc.Payload)
	}
	for _, f := range spec.order {
		key = append(key, f.Name+" "+f.Type.String()+" "...)
	}
	spec.always = slices.ContainsFunc(queue, isPartial)
	if spec.always || sc.Rules.Combine != TakeWhole {
		if sc.Table == nil {
			return nil, errors.New("columns of several versions cannot be combined without the table's schema")
		}
		spec.full = fullSchema(sc.Table)
		key = append(append(key, 0), spec.full.Avro(false)...)
	}
	if sc.Rules.asks() {
		key = fmt.Appendf(append(key, 0), "%d %q %q %q", sc.Rules.Combine, sc.Rules.Unavailable, sc.Rules.DeleteField, sc.Rules.DeleteMarker)
	}
	if sc.History != nil {
		key = strconv.AppendInt(append(key, 0), sc.History.version(sc.Version).id, 10)
	}
	if m := l.merged[string(key)]; m != nil {
		r.Metrics.MergeHits.Add(1)
		return m, nil
	}
	r.Metrics.Merges.Add(1)
	renamed, types := sc.logTypes(queue, l.data.schemas)
	m, err := mergeLogs(ctx, renamed, types, spec)
	if err != nil {
		return nil, err
	}
	m.unbounded = unbounded
	l.merged[string(key)] = m
	r.grow(l, m.bytes)
	return m, nil
}

// loadLogs reads the logs of a slice into memory.
func (r *Reader) loadLogs(ctx context.Context, dir string, fs *FileSlice, torn func(context.Context, string, string, int64) error) (*logData, error) {
	d := &logData{}
	schemas := map[string]int{}
	for i := range fs.Logs {
		if fs.Logs[i].CDC {
			continue
		}
		r.Metrics.LogFiles.Add(1)
		tail := false
		for b, err := range ReadLog(ctx, r.s, objectName(dir, fs.Partition, fs.Logs[i].Name)) {
			if err != nil {
				return nil, err
			}
			if tail {
				r.Metrics.CorruptMids.Add(1)
			}
			if tail = b.Type == BlockCorrupt; tail && torn != nil {
				if err := torn(ctx, fs.Partition, fs.Logs[i].Name, b.Offset); err != nil {
					return nil, err
				}
			}
			r.Metrics.LogBlocks.Add(1)
			r.Metrics.LogBytes.Add(b.Size)
			lb := loadedBlock{LogBlock: b}
			switch b.Type {
			case BlockCorrupt, BlockCDC:
				continue
			case BlockAvro, BlockDelete, BlockHFile, BlockParquet:
				c, err := b.Content()
				if err == nil && b.supported() == nil {
					switch b.Type {
					case BlockParquet:
						c, err = lb.fromParquet(ctx, c)
					case BlockHFile:
						c, err = lb.fromHFile()
					}
				}
				if err != nil {
					return nil, err
				}
				lb.content = func() ([]byte, error) { return c, nil }
				d.bytes += int64(len(c))
			}
			if b.Type != BlockCommand {
				n, ok := schemas[lb.Schema]
				if !ok {
					n = len(d.schemas)
					schemas[lb.Schema] = n
					d.schemas = append(d.schemas, lb.Schema)
				}
				lb.schema = n
			}
			d.blocks = append(d.blocks, lb)
		}
		if tail {
			r.Metrics.CorruptTails.Add(1)
		}
	}
	return d, nil
}

// fromParquet turns a parquet data block into an avro data block, so that merging sees one kind. Nested columns become
// columns of their JSON text.
func (b *loadedBlock) fromParquet(ctx context.Context, content []byte) ([]byte, error) {
	f, err := OpenBase(ctx, bytesStore{b: content}, b.name)
	if err != nil {
		return nil, fmt.Errorf("parquet data block at byte %d: %w", b.Offset, err)
	}
	defer f.Close()
	table := f.Schema()
	s := &Schema{Name: table.Name, Namespace: table.Namespace}
	for _, name := range MetaColumns {
		s.Fields = append(s.Fields, Field{Name: name, Type: Type{Kind: String}, Nullable: true})
	}
	s.Fields = append(s.Fields, table.Fields...)
	plain := &Schema{Name: cmp.Or(table.Name, "record"), Namespace: table.Namespace}
	for _, fd := range s.Fields {
		t := Type{Kind: fd.Type.Kind, Precision: fd.Type.Precision, Scale: fd.Type.Scale}
		if t.Kind == Nested {
			t.Kind = String
		}
		plain.Fields = append(plain.Fields, Field{Name: fd.Name, Type: t, Nullable: true})
	}
	out := binary.BigEndian.AppendUint32(nil, dataVersion)
	out = binary.BigEndian.AppendUint32(out, uint32(f.Rows()))
	var row Row
	for batch, err := range f.Scan(ctx, s) {
		if err != nil {
			return nil, fmt.Errorf("parquet data block at byte %d: %w", b.Offset, err)
		}
		for i := range batch.Rows {
			row = batch.Row(i, row)
			at := len(out)
			out = append(out, 0, 0, 0, 0)
			if out, err = EncodeRow(plain, row, out); err != nil {
				return nil, err
			}
			binary.BigEndian.PutUint32(out[at:], uint32(len(out)-at-4))
		}
	}
	b.Type, b.Schema = BlockAvro, plain.Avro(false)
	return out, nil
}

// bytesStore has one object, under any name. It is only opened from.
type bytesStore struct {
	Store
	b []byte
}

func (s bytesStore) Open(context.Context, string) (Object, error) {
	return bytesObject{bytes.NewReader(s.b)}, nil
}

type bytesObject struct{ *bytes.Reader }

func (bytesObject) Close() error { return nil }
