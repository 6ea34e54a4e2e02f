package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// AsOf is a time to read at: a point in time, or an instant of the table's timeline as text (14 or 17 digits).
type AsOf struct {
	Time    time.Time
	Instant string
}

// Snapshot is the past of the warehouse at one time.
type Snapshot struct {
	s  *snapshot
	at AsOf
	c  *Catalog

	mu     sync.Mutex
	tables map[*Table]*pastTable // guarded by mu
}

// pastTable is what a time means for a table.
type pastTable struct {
	*tableView
	bound storage.InstantTime // instants at or before it count, if the time is not known to the commit
	seq   index.Seq
	named bool  // the state that other engines show as of bound, without what waited for a flush then
	past  *past // the time is known to the commit
}

// AsOf resolves a time once for all tables of a statement; Close releases it.
func (c *Catalog) AsOf(ctx context.Context, at AsOf) (*Snapshot, error) {
	if at.Instant != "" {
		if _, err := timeline.ParseTime(storage.InstantTime(at.Instant), time.UTC); err != nil {
			return nil, fmt.Errorf("%w: %q is no instant: %w", ErrInvalid, at.Instant, err)
		}
	}
	upTo := ^index.Seq(0)
	if at.Instant == "" {
		upTo = index.Seq(max(0, at.Time.UnixMicro()))
	}
	if upTo > c.clock.read() {
		c.clock.Now() // no commit comes before it any more
	}
	if err := c.settle(ctx, upTo); err != nil {
		return nil, err
	}
	c.noteSnapshot(min(upTo, c.clock.read()))
	s, err := c.snapshotOf(true)
	if err != nil {
		return nil, err
	}
	if at.Instant == "" {
		c.pins.lower(s, upTo)
	}
	return &Snapshot{s: s, at: at, c: c, tables: map[*Table]*pastTable{}}, nil
}

// settle waits until the commits up to a sequence are durable: who reads as of it would see those that are not only later.
func (c *Catalog) settle(ctx context.Context, upTo index.Seq) error {
	if _, ok := c.clock.syncing(upTo); !ok {
		return nil
	}
	c.viewMu.RLock()
	closed := c.closed
	if !closed {
		c.open.Add(1)
	}
	c.viewMu.RUnlock()
	if closed {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer c.open.Done()
		c.commitMu.Lock()
		last, _ := c.clock.syncing(upTo) // what was drawn is applied
		c.commitMu.Unlock()
		err := c.syncJournal()
		if err == nil {
			c.advance(last)
		}
		done <- err
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-done:
		return err
	}
}

// noteSnapshot notes that rows may have been read as of a sequence: what is adopted later is seen after it.
func (c *Catalog) noteSnapshot(seq index.Seq) {
	for {
		old := c.lastSnap.Load()
		if old >= uint64(seq) || c.lastSnap.CompareAndSwap(old, uint64(seq)) {
			return
		}
	}
}

// Close releases the snapshot; scans under way go on.
func (s *Snapshot) Close() { s.s.close() }

// resolve gives the instant bound and the sequence that the snapshot's time means for a table.
func (s *Snapshot) resolve(d *tableDef) (storage.InstantTime, index.Seq, time.Time) {
	if s.at.Instant != "" {
		it := storage.InstantTime(s.at.Instant)
		t, err := timeline.ParseTime(it, d.zone)
		if err != nil {
			t = time.UnixMilli(0)
		}
		if len(it) == 14 {
			t = t.Truncate(time.Second)
		}
		return it, index.Seq(max(0, t.UnixMicro())), t
	}
	return timeline.FormatTime(s.at.Time.Truncate(time.Millisecond).In(d.zone)), index.Seq(max(0, s.at.Time.UnixMicro())), s.at.Time
}

// Check answers whether the table can be read at the snapshot's time: nil or *TooEarlyError.
func (s *Snapshot) Check(ctx context.Context, t *Table) error {
	_, err := s.table(ctx, t)
	return err
}

// Definition gives the table's specification at the snapshot's time.
func (s *Snapshot) Definition(ctx context.Context, t *Table) (*TableSpec, error) {
	pt, err := s.table(ctx, t)
	if err != nil {
		return nil, err
	}
	return pt.def.spec, nil
}

func (s *Snapshot) table(ctx context.Context, t *Table) (*pastTable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pt := s.tables[t]; pt != nil {
		return pt, nil
	}
	if t.broken != nil {
		return nil, t.broken
	}
	if err := t.refresh(ctx); err != nil { // a cleaner may have been here
		return nil, err
	}
	pt, err := s.tableAt(ctx, t)
	if err == nil {
		s.tables[t] = pt
	}
	return pt, err
}

// tableAt finds out how the table is read. Its files are looked up in the newest state, which knows what its earlier ones knew.
func (s *Snapshot) tableAt(ctx context.Context, t *Table) (*pastTable, error) {
	d := t.def.Load()
	s.c.viewMu.RLock()
	cold := s.c.cold(t.id)
	s.c.viewMu.RUnlock()
	if cold == nil || t.dropped.Load() {
		return nil, fmt.Errorf("%w: table %s", ErrNotFound, d)
	}
	bound, seq, at := s.resolve(d)
	pt := &pastTable{tableView: &tableView{s: s.s, t: t, def: d, cold: cold}, bound: bound, seq: min(seq, s.s.seq)}
	if !d.spec.Attached && at.Before(seqTime(d.created)) {
		return nil, &TooEarlyError{Table: d.String(), At: at, Earliest: seqTime(max(d.created, d.past))}
	}
	if s.at.Instant != "" {
		_, pt.named = cold.tl.Get(bound)
	}
	exact := max(cold.since, cold.trimmed, d.past)
	if seq >= exact && !pt.named && cold.since > 0 {
		return pt, s.exactly(pt, seq)
	}
	// Before what is known to the commit, the instants tell.
	first, err := timeline.EarliestRetained(ctx, s.c.store, d.dir, cold.tl)
	if err != nil {
		return nil, err
	}
	if first == "" && d.spec.Attached {
		first = cold.tl.Start()
	}
	if e, ok := cold.effectOf(bound); ok && !e.barrier && pt.named && bound < first && e.seq >= exact { // gone, but the commits lead to it
		pt.seq = min(e.seq, s.s.seq)
		return pt, s.exactly(pt, pt.seq)
	}
	earliest := seqTime(max(d.created, d.past))
	if t, err := timeline.ParseTime(first, d.zone); err == nil && first != "" && t.After(earliest) {
		earliest = t
	}
	if bound < first || at.Before(earliest) && !d.spec.Attached {
		if e := seqTime(exact); exact > 0 && e.Before(earliest) {
			earliest = e
		}
		return nil, &TooEarlyError{Table: d.String(), At: at, Earliest: earliest}
	}
	if index.Seq(at.UnixMicro()) >= t.defs.first() {
		pt.def, err = t.definitionAt(seq)
	} else {
		pt.def, err = t.definitionOf(ctx, cold.tl, bound)
	}
	return pt, err
}

// exactly has a table read as it was at a sequence; asked is the time that was asked for, which may lie in the future.
func (s *Snapshot) exactly(pt *pastTable, asked index.Seq) (err error) {
	if pt.def, err = pt.t.definitionAt(asked); err != nil {
		return err
	}
	s.c.viewMu.RLock() // no instant becomes known meanwhile
	pt.cold = s.c.cold(pt.t.id)
	if pt.cold == nil {
		err = fmt.Errorf("%w: table %s", ErrNotFound, pt.def)
	} else {
		pt.past, err = pt.t.pastAt(pt.def, pt.cold, pt.seq)
	}
	s.c.viewMu.RUnlock()
	var early *TooEarlyError
	if !errors.As(err, &early) {
		return err
	}
	// Later times may lack other slices.
	for at := early.Earliest; ; at = early.Earliest {
		s.c.viewMu.RLock()
		_, err = pt.t.pastAt(pt.def, pt.cold, index.Seq(at.UnixMicro()))
		s.c.viewMu.RUnlock()
		var later *TooEarlyError
		if !errors.As(err, &later) || !later.Earliest.After(at) {
			return firstError(error(early))
		}
		early.Earliest = later.Earliest
	}
}

// Scan gives the rows of the table at the snapshot's time: within the journal's window exactly what a reader at that time saw; before it
// the instants at or before it. As of an instant that the timeline has by its name, it is what other engines read as of it.
func (s *Snapshot) Scan(ctx context.Context, t *Table, o ScanOptions) iter.Seq2[storage.Batch, error] {
	pt, err := s.table(ctx, t)
	if err != nil {
		return failed(err)
	}
	want, err := pt.def.wanted(o.Columns)
	if err != nil {
		return failed(err)
	}
	if pt.past != nil {
		st, err := s.s.pastScan(pt, want, o.ReadOptimized)
		if err != nil {
			return failed(err)
		}
		return s.s.held(ctx, st.run(ctx))
	}
	slices, counts := pt.cold.at(pt.bound)
	st := &scanState{s: s.s, tt: pt.tableView, want: want, slices: slices, counts: counts, ro: o.ReadOptimized, foreign: pt.cold.foreignSince(pt.bound)}
	return s.s.held(ctx, st.run(ctx))
}
