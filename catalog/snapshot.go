package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// snapshot is one point of the warehouse: the hot tier at the durable mark, and the instants known at the same moment.
type snapshot struct {
	c     *Catalog
	p     *pebble.Snapshot
	seq   index.Seq // commits at or below are seen
	colds map[index.TableID]*coldState
	taken time.Time

	refs atomic.Int32 // scans that are under way keep the pebble snapshot open
	once sync.Once
}

func (c *Catalog) newSnapshot() (*snapshot, error) { return c.snapshotOf(false) }

// snapshotOf is newSnapshot; past says that it is not read as of its own time.
func (c *Catalog) snapshotOf(past bool) (*snapshot, error) {
	c.viewMu.RLock()
	defer c.viewMu.RUnlock()
	if c.closed {
		return nil, ErrClosed
	}
	s := &snapshot{c: c, seq: index.Seq(c.durable.Load()), taken: time.Now()}
	c.pins.add(s, s.seq)
	if !past {
		c.noteSnapshot(s.seq)
	}
	s.p = c.db.NewSnapshot()
	s.colds = *c.colds.Load()
	s.refs.Store(1)
	c.open.Add(1)
	return s, nil
}

func (s *snapshot) hold() { s.refs.Add(1) }

func (s *snapshot) release() {
	if s.refs.Add(-1) == 0 {
		_ = s.p.Close() // only a double close fails
		s.c.pins.remove(s)
		s.c.open.Done()
	}
}

func (s *snapshot) close() { s.once.Do(s.release) }

// get finds a row by its index key: the hot tier first, then the files.
func (s *snapshot) get(ctx context.Context, tt *tableView, ikey []byte) (row storage.Row, key, part string, ok bool, err error) {
	return s.getFrom(ctx, tt, ikey, &keyState{})
}

// getFrom is get that notes in st if the row stands in the journal.
func (s *snapshot) getFrom(ctx context.Context, tt *tableView, ikey []byte, st *keyState) (row storage.Row, key, part string, ok bool, err error) {
	d := tt.def
	rec, hot, err := s.c.index.LastRecent(s.p, tt.t.id, ikey, s.seq)
	if err != nil {
		return nil, "", "", false, err
	}
	loc, cold, err := s.c.index.Locate(s.p, tt.t.id, ikey)
	if err != nil {
		return nil, "", "", false, err
	}
	if hot {
		if rec.Delete {
			return nil, "", "", false, nil
		}
		p, err := readPacket(s.p, tt.t.id, rec.Seq, rec.Ord)
		if err != nil {
			return nil, "", "", false, err
		}
		if row, err = d.decodeRow(p.schema, p.row); err != nil {
			return nil, "", "", false, err
		}
		st.hot, st.from, st.again = true, packetPlace{rec.Seq, rec.Ord}, p.again
		if !cold || loc.Seq <= rec.Seq || d.merge != storage.EventTime || d.ordering < 0 {
			return row, p.key, p.part, true, nil
		}
		// Adopted after the buffered commit: in event time the larger ordering value wins.
		crow, ckey, cpart, ok, err := s.coldRow(ctx, tt, loc)
		if err != nil || !ok || compareOrdering(crow[d.ordering], row[d.ordering]) <= 0 {
			return row, p.key, p.part, true, err
		}
		st.hot, st.again, st.loc = false, false, loc
		return crow, ckey, cpart, true, nil
	}
	if !cold {
		return nil, "", "", false, nil
	}
	st.loc = loc
	return s.coldRow(ctx, tt, loc)
}

func (s *snapshot) coldRow(ctx context.Context, tt *tableView, loc index.Location) (row storage.Row, key, part string, ok bool, err error) {
	return s.coldColumns(ctx, tt, loc, tt.def.spec.Schema)
}

// coldColumns is coldRow of some columns.
func (s *snapshot) coldColumns(ctx context.Context, tt *tableView, loc index.Location, want *storage.Schema) (row storage.Row, key, part string, ok bool, err error) {
	part, id, err := s.c.index.Group(tt.t.id, loc.Group)
	if err != nil {
		return nil, "", "", false, err
	}
	fs, ok := tt.cold.view.Slice(part, id, "", nil)
	if !ok {
		return nil, "", "", false, fmt.Errorf("table %s: the index names file group %s in partition %q, which has no files", tt.def, id, part)
	}
	hint := int64(-1)
	if fs.Base != nil && fs.Base.Instant == loc.Instant {
		hint = loc.Row
	}
	row, ok, err = s.c.reader.LookupRow(ctx, tt.def.dir, fs, tt.def.scan(want, tt.cold.counts), loc.Key, hint)
	if err != nil || !ok {
		return nil, "", "", false, err
	}
	return row, loc.Key, part, true, nil
}

// scan is how the files of the table are read.
func (d *tableDef) scan(want *storage.Schema, counts func(storage.InstantTime) bool) storage.Scan {
	return storage.Scan{Schema: want, Table: d.spec.Schema, Counts: counts, Ordering: d.merge, OrderingField: d.spec.OrderingField, Rules: d.rules, History: d.history, Version: d.schemaVersion, Payload: d.payload, Torn: d.torn}
}

func (d *tableDef) decodeRow(version int, b []byte) (storage.Row, error) {
	if n := version - len(d.decoders); n >= 0 && n < len(d.laterSchemas) && d.laterSchemas[n] != nil {
		return d.laterSchemas[n].Decode(b, nil)
	}
	if version >= len(d.decoders) || d.decoders[version] == nil {
		return nil, fmt.Errorf("table %s: journal row of schema version %d cannot be read by version %d", d, version, len(d.decoders)-1)
	}
	return d.decoders[version].Decode(b, nil)
}

// rowSink turns rows of the table into batches of the wanted columns. Rows that no instant holds yet have no instant, sequence number or file.
type rowSink struct {
	def   *tableDef
	want  *storage.Schema
	b     *storage.Builder
	cols  []int
	yield func(storage.Batch, error) bool
	buf   storage.Row

	recs     [][]byte // rows of one schema version that wait for being decoded together
	version  int
	decoders map[int]*storage.RowDecoder // by schema version, to the wanted columns; nil: some of them are no table columns
}

const batchRows = 8192

func (k *rowSink) add(row storage.Row, key, part string) bool {
	if !k.flushRun() {
		return false
	}
	if k.cols == nil {
		k.cols = make([]int, len(k.want.Fields))
		for i, f := range k.want.Fields {
			k.cols[i] = k.def.spec.Schema.Index(f.Name)
		}
		k.buf = make(storage.Row, len(k.cols))
	}
	for i, c := range k.cols {
		switch {
		case c >= 0:
			k.buf[i] = row[c]
		case k.want.Fields[i].Name == storage.ColRecordKey:
			k.buf[i] = key
		case k.want.Fields[i].Name == storage.ColPartitionPath:
			k.buf[i] = part
		default:
			k.buf[i] = nil
		}
	}
	if err := k.b.Append(k.buf); err != nil {
		k.yield(storage.Batch{}, err)
		return false
	}
	if k.b.Len() >= batchRows {
		return k.yield(k.b.Batch(), nil)
	}
	return true
}

// addPacket adds the row of a packet.
func (k *rowSink) addPacket(p packetRow) bool {
	row, err := k.def.decodeRow(p.schema, p.row)
	if err != nil {
		k.yield(storage.Batch{}, err)
		return false
	}
	return k.add(row, p.key, p.part)
}

// addRun adds a row whose memory stays: rows of the table's own columns are decoded in batches.
func (k *rowSink) addRun(p packetRow) bool {
	if k.decoders == nil {
		for i := range k.want.Fields {
			if k.def.spec.Schema.Index(k.want.Fields[i].Name) < 0 {
				return k.addPacket(p)
			}
		}
		k.decoders = map[int]*storage.RowDecoder{}
	}
	if len(k.recs) > 0 && (p.schema != k.version || len(k.recs) >= batchRows) && !k.flushRun() {
		return false
	}
	k.recs, k.version = append(k.recs, p.row), p.schema
	return true
}

func (k *rowSink) flushRun() bool {
	if len(k.recs) == 0 {
		return true
	}
	if k.b.Len() > 0 && !k.yield(k.b.Batch(), nil) {
		return false
	}
	b, err := k.decodeRun()
	if err != nil {
		k.yield(storage.Batch{}, err)
		return false
	}
	k.recs = k.recs[:0]
	return k.yield(b, nil)
}

func (k *rowSink) decodeRun() (storage.Batch, error) {
	d := k.decoders[k.version]
	if d == nil {
		if k.version >= len(k.def.decoders) || k.def.decoders[k.version] == nil {
			_, err := k.def.decodeRow(k.version, nil)
			return storage.Batch{}, err
		}
		var err error
		if d, err = storage.NewRowDecoder(k.def.schemas[k.version], k.want); err != nil {
			return storage.Batch{}, err
		}
		k.decoders[k.version] = d
	}
	return d.DecodeBatch(k.recs)
}

func (k *rowSink) flush() bool {
	if !k.flushRun() {
		return false
	}
	if k.b.Len() > 0 {
		return k.yield(k.b.Batch(), nil)
	}
	return true
}

// wanted makes the schema of a scan's columns.
func (d *tableDef) wanted(columns []string) (*storage.Schema, error) {
	if columns == nil {
		return d.spec.Schema, nil
	}
	w, err := d.spec.Schema.Select(columns...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, d, err)
	}
	return w, nil
}

func failed(err error) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) { yield(storage.Batch{}, err) }
}

// held keeps the snapshot open while a scan runs, and ends the scan when the snapshot gets too old. A file that another engine removed
// behind it is ErrSnapshot if rows were given before.
func (s *snapshot) held(ctx context.Context, in iter.Seq2[storage.Batch, error]) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		s.hold()
		defer s.release()
		sent := false
		for b, err := range in {
			if cerr := ctx.Err(); cerr != nil {
				yield(storage.Batch{}, context.Cause(ctx))
				return
			}
			if err == nil {
				err = s.readable()
			} else if sent && errors.Is(err, storage.ErrNotExist) {
				err = fmt.Errorf("%w: %w", ErrSnapshot, err)
			}
			if err != nil {
				b = storage.Batch{}
			}
			sent = sent || b.Rows > 0
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// readable is ErrSnapshot once the snapshot is older than Options.SnapshotMax.
func (s *snapshot) readable() error {
	if age := time.Since(s.taken); age > s.c.o.SnapshotMax {
		return fmt.Errorf("%w: it is %s old, the limit is %s", ErrSnapshot, age.Truncate(time.Millisecond), s.c.o.SnapshotMax)
	}
	return nil
}

// again runs a scan again that found a file gone before it gave a row, since another engine's cleaner was there: on the state that the
// timeline has now. That is possible for a transaction that has read nothing else and written nothing.
func (tx *Tx) again(ctx context.Context, t *Table, o ScanOptions, first iter.Seq2[storage.Batch, error]) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		sent := false
		for b, err := range first {
			if err != nil && !sent && errors.Is(err, storage.ErrNotExist) && tx.alone(t) {
				t.folderTime.Store(0)
				if rerr := firstError(t.refresh(ctx), tx.moveOn()); rerr != nil {
					yield(storage.Batch{}, rerr)
					return
				}
				tt, terr := tx.table(ctx, t)
				if terr != nil {
					yield(storage.Batch{}, terr)
					return
				}
				for b, err := range tx.scan(ctx, tt, tt.tableView, o) {
					if !yield(b, err) || err != nil {
						return
					}
				}
				return
			}
			sent = sent || b.Rows > 0
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// alone tells whether the transaction has used no other table and written nothing.
func (tx *Tx) alone(t *Table) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return !tx.done && tx.ops == 0 && len(tx.order) == 1 && tx.order[0].t == t
}

// moveOn moves a transaction that has not written anything to the newest state.
func (tx *Tx) moveOn() error {
	s, err := tx.c.newSnapshot()
	if err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, tt := range tx.order {
		tx.letGo(tt)
		tt.close()
	}
	old := tx.snap
	tx.snap, tx.tabs, tx.order = s, map[index.TableID]*txTable{}, nil
	old.close()
	return nil
}

// Scan gives all rows of the table as the transaction sees it.
func (tx *Tx) Scan(ctx context.Context, t *Table, o ScanOptions) iter.Seq2[storage.Batch, error] {
	if asksMeta(o.Columns) && !o.ReadOptimized {
		if err := tx.settleMeta(ctx, t); err != nil {
			return failed(err)
		}
	}
	tt, err := tx.table(ctx, t)
	if err != nil {
		return failed(err)
	}
	if o.Lock != LockNone {
		return tx.lockScan(ctx, tt, o)
	}
	v, err := tx.plainView(tt, o)
	if err != nil {
		return failed(err)
	}
	return tx.again(ctx, t, o, tx.scan(ctx, tt, v, o))
}

// plainView gives what a read without locks sees.
func (tx *Tx) plainView(tt *txTable, o ScanOptions) (*tableView, error) {
	if !o.Current {
		if err := tx.firstRead(); err != nil {
			return nil, err
		}
		if tt.stale {
			return nil, fmt.Errorf("%w: %s, after the transaction's snapshot was taken", ErrChanged, tt.def)
		}
		return tt.tableView, nil
	}
	if tt.behind(tx.current(tt)) {
		if err := tx.renew(tt); err != nil {
			return nil, err
		}
	}
	return tx.current(tt), nil
}

func asksMeta(columns []string) bool {
	for _, c := range columns {
		switch c {
		case storage.ColCommitTime, storage.ColCommitSeqno, storage.ColFileName:
			return true
		}
	}
	return false
}

// settleMeta flushes a table whose meta columns are asked for, so that each row has its instant, and moves a transaction that
// has not written anything to the state after it.
func (tx *Tx) settleMeta(ctx context.Context, t *Table) error {
	if tx.ops > 0 || !t.isBuffered() {
		return nil
	}
	if err := tx.c.Flush(ctx, "a reader asks for meta columns", t); err != nil {
		return err
	}
	return tx.moveOn()
}

func (tx *Tx) scan(ctx context.Context, tt *txTable, v *tableView, o ScanOptions) iter.Seq2[storage.Batch, error] {
	want, err := tt.def.wanted(o.Columns)
	if err != nil {
		return failed(err)
	}
	hot, err := v.s.overlay(v)
	if err != nil {
		return failed(err)
	}
	st := &scanState{s: v.s, tt: v, want: want, slices: v.cold.newest(), counts: v.cold.counts, hot: hot, own: tx.own(tt, o), ro: o.ReadOptimized}
	if st.ro {
		st.hot, st.own = nil, ownRows{}
	} else if st.staged, err = tx.visible(ctx, tt, o); err != nil {
		return failed(err)
	}
	return v.s.held(ctx, st.run(ctx))
}

// own gives the transaction's newest write of each key that the scan may see. An entry does not change, and writes that follow
// go behind those that the scan has.
func (tx *Tx) own(tt *txTable, o ScanOptions) ownRows {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tt.wrote() {
		return ownRows{}
	}
	own := ownRows{entries: tt.entries, last: make(map[string]int32, len(tt.last)), spilled: tt.spilled, mark: int32(tx.ops)}
	if o.UseMark {
		own.mark = int32(o.Mark)
	}
	if tt.spilled != nil && own.mark <= tt.spilled.minOp {
		own.spilled = nil
	}
	for k, n := range tt.last {
		if o.UseMark {
			for n >= 0 && int(tt.entries[n].op) >= int(o.Mark) {
				n = tt.entries[n].prev
			}
			if n < 0 {
				continue
			}
		}
		own.last[k] = n
	}
	return own
}

// scanKeyed scans with the index key of each row; columns begin with record key and partition path.
func (tx *Tx) scanKeyed(ctx context.Context, tt *txTable, v *tableView, columns []string, f func(ikey string, row storage.Row) error) error {
	for b, err := range tx.scan(ctx, tt, v, ScanOptions{Columns: columns}) {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			row := b.Row(i, nil)
			key, _ := row[0].(string)
			part, _ := row[1].(string)
			var ikey []byte
			if tt.def.hidden() {
				ikey = tt.def.textKey(key, part)
			} else if ikey, err = tt.def.indexKey(row[2:], part); err != nil {
				return err
			}
			if err := f(string(ikey), row[2:]); err != nil {
				return err
			}
		}
	}
	return nil
}
