package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// txEntry is one write of a transaction, encoded as it will stand in the journal: a transaction may have very many of them.
// The chain of entries of a key goes back by prev. An entry does not change.
type txEntry struct {
	op     int32  // number of the write in the transaction
	prev   int32  // entry of the same key before, -1
	packet []byte // packetRow
	was    []byte // Avro of the row at the snapshot; may be nil if hot is set
	had    bool   // the key had a row at the snapshot, or one that the transaction staged
	mine   bool   // that row is a staged one
	hot    bool   // it stood in the journal, at from
	from   packetPlace
	group  uint32    // number of the file group that it stood in, else
	at     index.Seq // when the key was looked at with its lock in hand: everything before that speaks of the snapshot means the state then
}

// packetPlace is where a packet row stands in the journal of its table.
type packetPlace struct {
	seq index.Seq
	ord uint32
}

func (e *txEntry) del() bool { return e.packet[0]&packetDelete != 0 }

// ikey gives the index key.
func (e *txEntry) ikey() []byte { return packetKeyOf(e.packet) }

// decoded gives the entry's parts.
func (e *txEntry) decoded() packetRow {
	p, err := viewPacket(e.packet)
	if err != nil {
		panic(err) // add has encoded it
	}
	return p
}

// oldKey gives the record key text of the row that was there at the snapshot; "" if there was none.
func (e *txEntry) oldKey(p *packetRow) string {
	switch {
	case !e.had:
		return ""
	case e.packet[0]&packetColdKey != 0:
		return p.coldKey
	}
	return p.key
}

// write is a write before it is encoded.
type write struct {
	ikey   []byte
	row    storage.Row // nil: a delete
	key    string      // record key text
	part   string
	had    bool // the key had a row at the snapshot
	oldKey string
	was    []byte
	mine   bool
	hot    bool
	from   packetPlace
	group  uint32
	at     index.Seq
	again  bool // the key had been deleted
}

// onto has a write replace what a transaction sees of its key.
func (w write) onto(st *keyState) write {
	w.had, w.oldKey, w.was, w.mine, w.hot, w.from, w.group, w.at = st.had, st.oldKey, st.was, st.mine, st.hot, st.from, st.loc.Group, st.at
	return w
}

// add encodes a write and notes it.
func (tx *Tx) add(tt *txTable, w write) error {
	p := packetRow{del: w.row == nil, again: w.again, schema: len(tt.def.schemas) - 1, ikey: w.ikey, key: w.key, part: w.part}
	if w.had && w.oldKey != w.key {
		p.coldKey = w.oldKey
	}
	buf := p.append(tt.buf[:0])
	if w.row != nil {
		var err error
		if buf, err = storage.EncodeRow(tt.def.spec.Schema, w.row, buf); err != nil {
			return fmt.Errorf("row of %s: %w", tt.def, err)
		}
	}
	tt.buf = buf
	e := txEntry{
		op: int32(tx.ops), prev: -1, packet: tt.mem.keep(buf), had: w.had, mine: w.mine, hot: w.hot, from: w.from, group: w.group, at: w.at,
	}
	if w.was != nil {
		e.was = tt.mem.keep(w.was)
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tt.account(e.bytes())
	tx.ops++
	tx.locks.weight.Store(int64(tx.ops))
	key := textView(e.ikey())
	if n, ok := tt.last[key]; ok {
		e.prev = n
	}
	tt.last[key] = int32(len(tt.entries))
	tt.entries = append(tt.entries, e)
	if e.mine {
		tt.mine++
	}
	if tt.bytes >= txMemoryBytes && !tt.t.doubled.Load() {
		return tt.spill()
	}
	return nil
}

func (tx *Tx) remove(tt *txTable, ikey []byte, st *keyState) error {
	return tx.add(tt, write{ikey: ikey, key: st.key, part: st.part}.onto(st))
}

// image notes the row that a key has at the snapshot, which the journal keeps beside the one that replaces it.
func (tt *txTable) image(st *keyState, row storage.Row) (err error) {
	if st.had && !st.own && st.was == nil && !st.hot && !st.mine {
		if st.was, err = storage.EncodeRow(tt.def.spec.Schema, row, nil); err != nil {
			err = fmt.Errorf("row of %s: %w", tt.def, err)
		}
	}
	return err
}

// before gives the row before a commit as the journal keeps it, nil if a packet row after `since` has it already. Not known: the
// journal has given it up.
func (e *txEntry) before(tt *txTable, since index.Seq, journals ...pebble.Reader) (row []byte, group uint32, known bool, err error) {
	switch {
	case !e.had || e.mine || e.hot && e.from.seq > since:
		return nil, noGroup, true, nil
	case e.was != nil && e.hot:
		return e.was, noGroup, true, nil
	case e.was != nil:
		return e.was, e.group, true, nil
	case !e.hot:
		return nil, noGroup, false, nil
	}
	var p packetRow
	for _, r := range journals {
		if p, err = readPacket(r, tt.t.id, e.from.seq, e.from.ord); !errors.Is(err, pebble.ErrNotFound) {
			break
		}
	}
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, noGroup, false, nil
	case err != nil || p.schema == len(tt.def.schemas)-1:
		return p.row, noGroup, true, err
	}
	decoded, err := tt.row(&p)
	if err != nil {
		return nil, noGroup, false, err
	}
	row, err = storage.EncodeRow(tt.def.spec.Schema, decoded, nil)
	return row, noGroup, true, err
}

// row decodes the row of an entry or of the hot tier.
func (tt *tableView) row(p *packetRow) (storage.Row, error) { return tt.def.decodeRow(p.schema, p.row) }

// free gives up the writes once they stand in a batch.
func (tt *txTable) free() {
	tt.entries, tt.last, tt.ordered, tt.unique, tt.byValue, tt.mem, tt.buf = nil, nil, nil, nil, nil, arena{}, nil
	tt.account(-tt.bytes)
}

// endSpill gives up the writes that do not wait in memory.
func (tt *txTable) endSpill() {
	if err := tt.spilled.close(); err != nil {
		tt.t.c.log.Warn("remove the spilled changes of a transaction", "table", tt.t.String(), "err", err)
	}
	tt.spilled = nil
}

// entryBytes is about what an entry takes beside its texts: itself, in a list that grows, and its place in txTable.last.
const entryBytes = 280

func (e *txEntry) bytes() int64 { return int64(len(e.packet) + len(e.was) + entryBytes) }

func (tt *txTable) account(n int64) {
	tt.bytes += n
	tt.t.c.txBytes.Add(n)
}

// txRoom refuses a write when the changes that wait for commits take too much memory.
func (c *Catalog) txRoom() error {
	if n := c.txBytes.Load(); n >= c.o.TxBytesMax {
		c.metrics.FullTotal.Add(1)
		return fmt.Errorf("%w: %d MiB, the limit is %d MiB; change fewer rows in one transaction", ErrTooMany, n>>20, c.o.TxBytesMax>>20)
	}
	return nil
}

// arena keeps many small byte slices in few allocations.
type arena struct{ chunk []byte }

const arenaChunk = 1 << 20

func (a *arena) keep(b []byte) []byte {
	if cap(a.chunk)-len(a.chunk) < len(b) {
		a.chunk = make([]byte, 0, max(len(b), min(2*cap(a.chunk), arenaChunk)))
	}
	n := len(a.chunk)
	a.chunk = append(a.chunk, b...)
	return a.chunk[n:len(a.chunk):len(a.chunk)]
}

// textView is the text of bytes that do not change any more, without a copy.
func textView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// keyState is what a transaction sees of a key.
type keyState struct {
	exists bool
	key    string // record key text of the row
	part   string
	own    bool   // the transaction wrote it
	had    bool   // a row at the snapshot
	oldKey string // its record key text
	was    []byte // Avro of that row, in tables with secondary indexes, and once image has it
	mine   bool   // that row is one that the transaction staged
	hot    bool   // that row stands in the journal, at from
	from   packetPlace
	again  bool      // that row was written after its key had been deleted, in one commit: what replaces it has to say so, too
	at     index.Seq // of the snapshot

	view   *tableView     // where it was looked up
	row    storage.Row    // see load
	packet *packetRow     // the row as it stands in the transaction or in the hot tier
	loc    index.Location // where it stands in the files, if it does
	staged *stagedRun     // whose row it is
	ikey   []byte         // of a staged row
}

// state looks a key up for a write: the transaction's own writes, then the hot tier, then the index of the files. The row is read by load only.
func (tx *Tx) state(ctx context.Context, tt *txTable, ikey []byte) (*keyState, error) {
	return tx.stateAt(ctx, tt, tx.current(tt), ikey)
}

// stateAt is state with the view of what others wrote.
func (tx *Tx) stateAt(ctx context.Context, tt *txTable, v *tableView, ikey []byte) (*keyState, error) {
	e, err := tt.ownWrite(textView(ikey))
	if err != nil {
		return nil, err
	}
	if e != nil {
		p := e.decoded()
		return &keyState{
			exists: !p.del, key: p.key, part: p.part, own: true, had: e.had, oldKey: e.oldKey(&p), was: e.was, mine: e.mine, hot: e.hot, from: e.from,
			again: p.again, at: e.at, loc: index.Location{Group: e.group}, packet: &p,
		}, nil
	}
	if r, p, ok, err := tt.stagedRow(ikey); err != nil || ok {
		if err != nil {
			return nil, err
		}
		st := &keyState{exists: true, key: p.key, part: "", had: true, mine: true, oldKey: p.key, at: v.s.seq, staged: r, ikey: slices.Clone(ikey)}
		return st, tx.loadStaged(ctx, tt, st, p)
	}
	if v.fresh {
		return &keyState{at: v.s.seq}, nil
	}
	if v.seen != nil && string(v.seenKey) == string(ikey) {
		return v.seen, nil // a row that is refused as a duplicate is often updated then
	}
	st, err := v.s.state(ctx, v, ikey)
	if err == nil {
		v.seen, v.seenKey = st, append(v.seenKey[:0], ikey...)
	}
	return st, err
}

// state looks a key up at the snapshot, by the transaction that tt belongs to.
func (s *snapshot) state(ctx context.Context, tt *tableView, ikey []byte) (*keyState, error) {
	st := &keyState{at: s.seq, view: tt}
	d := tt.def
	if len(d.indexes) > 0 || d.merge == storage.EventTime {
		row, key, part, ok, err := s.getFrom(ctx, tt, ikey, st)
		if err != nil || !ok {
			return st, err
		}
		st.exists, st.had, st.row, st.key, st.oldKey, st.part = true, true, row, key, key, part
		if len(d.indexes) > 0 {
			if st.was, err = storage.EncodeRow(d.spec.Schema, row, nil); err != nil {
				return st, fmt.Errorf("row of %s: %w", d, err)
			}
		}
		return st, nil
	}
	if tt.finder == nil && tt.mayBeHot() {
		f, err := s.c.index.FindRecents(s.p, tt.t.id)
		if err != nil {
			return st, err
		}
		tt.finder = f
	}
	return st, s.find(tt, tt.finder, ikey, st)
}

// loadStaged fills in what the state of a staged row has besides its key.
func (tx *Tx) loadStaged(ctx context.Context, tt *txTable, st *keyState, p place) (err error) {
	if p.file >= 0 {
		st.part = st.staged.files[p.file].part
	} else if len(tt.def.part) > 0 {
		if err := tx.load(ctx, tt, st); err != nil {
			return err
		}
		st.part = tt.def.partitionPath(st.row)
	}
	if len(tt.def.indexes) == 0 {
		return nil
	}
	if err := tx.load(ctx, tt, st); err != nil {
		return err
	}
	if st.was, err = storage.EncodeRow(tt.def.spec.Schema, st.row, nil); err != nil {
		return fmt.Errorf("row of %s: %w", tt.def, err)
	}
	return nil
}

// load reads the row of a key that exists.
func (tx *Tx) load(ctx context.Context, tt *txTable, st *keyState) (err error) {
	switch {
	case st.row != nil || !st.exists:
		return nil
	case st.packet != nil:
		st.row, err = tt.row(st.packet)
		return err
	}
	if st.staged != nil {
		st.row, err = st.staged.read(ctx, st.ikey)
		return err
	}
	row, _, _, ok, err := st.view.s.coldRow(ctx, st.view, st.loc)
	if err == nil && !ok {
		err = fmt.Errorf("table %s: the index names key %s, which the files do not have", tt.def, st.key)
	}
	st.row = row
	return err
}

// mayBeHot tells whether the hot tier can hold anything that the files of tt do not.
func (tt *tableView) mayBeHot() bool { return index.Seq(tt.t.lastSeq.Load()) > tt.cold.flushed }

// find looks a key up in the hot tier and in the index of the files, by the rule that the newest write wins. With f nil the hot tier is not asked.
func (s *snapshot) find(tt *tableView, f *index.RecentFinder, ikey []byte, st *keyState) error {
	return s.findBy(tt, f, nil, ikey, st)
}

// findBy is find by a walk over the locations, which keys that rise make fast; nil: there is none.
func (s *snapshot) findBy(tt *tableView, f *index.RecentFinder, locs *index.LocationIter, ikey []byte, st *keyState) error {
	if f != nil {
		rec, hot, err := f.Last(ikey, s.seq)
		if err != nil || hot && rec.Delete {
			return err
		}
		if hot {
			p, err := readPacket(s.p, tt.t.id, rec.Seq, rec.Ord)
			if err != nil {
				return err
			}
			st.exists, st.had, st.key, st.oldKey, st.part, st.packet = true, true, p.key, p.key, p.part, &p
			st.hot, st.from, st.again = true, packetPlace{rec.Seq, rec.Ord}, p.again
			return nil
		}
	}
	var loc index.Location
	var cold bool
	var err error
	if locs != nil {
		loc, cold, err = locs.Seek(ikey)
	} else {
		loc, cold, err = s.c.index.Locate(s.p, tt.t.id, ikey)
	}
	if err != nil || !cold {
		return err
	}
	part, _, err := s.c.index.Group(tt.t.id, loc.Group)
	if err != nil {
		return err
	}
	st.exists, st.had, st.key, st.oldKey, st.part, st.loc = true, true, loc.Key, loc.Key, part, loc
	return nil
}
