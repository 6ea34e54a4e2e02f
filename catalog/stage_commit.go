package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// stagedTables gives the tables of which the transaction staged rows, or changes so many that they go into files, in the order of their ids.
func (tx *Tx) stagedTables() (out []*txTable, err error) {
	for _, tt := range sortedByID(tx.order) {
		if !tt.hasStaged() && !tt.foldable() {
			continue
		}
		if _, err := tx.stage(tt); err != nil {
			return nil, err
		}
		out = append(out, tt)
	}
	return out, nil
}

func (tt *txTable) hasStaged() bool { return tt.staged != nil && tt.staged.count() > 0 }

// stagedCommit is the decision of a transaction with staged rows.
type stagedCommit struct {
	c       *Catalog
	tx      *Tx
	changes []change // that go through the journal
	tables  []*stagedTable
	dir     string // path of the folder of sorted tables
	big     []sortedTable
	made    int
}

// stagedTable is one table of it.
type stagedTable struct {
	*txTable
	checked index.Seq // commits up to here are checked for conflicts
	meta    *timeline.CommitMeta
	view    *timeline.View
	tl      *timeline.Timeline
	cold    *coldState
	folded  folded
	effect  effect // of the instant; its sequence is drawn at the decision
}

// sortedTable is a file that the state's database takes in with the decision.
type sortedTable struct {
	path      string
	low, high []byte // first and last key
}

// commitStaged decides a transaction with staged rows: their files get their names in the partitions, then one ingest holds the index
// entries of the rows, the rows of small statements and the journal record. Only then do the instants begin, which completes them
// for other engines. Called with the ddl locks of the changed tables held.
func (c *Catalog) commitStaged(ctx context.Context, tx *Tx, changes []change, tables []*txTable) (err error) {
	sc := &stagedCommit{c: c, tx: tx, changes: changes}
	for _, tt := range tables {
		if err := tx.lockStaged(ctx, tt); err != nil {
			return err
		}
		sc.tables = append(sc.tables, &stagedTable{txTable: tt})
	}
	for _, st := range sc.tables {
		st.t.slices.Lock()
		defer st.t.slices.Unlock()
		release, err := st.t.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	sc.dir = c.path(sc.tables[0].staged.dir)
	defer sc.endSorts()
	decided := false
	defer func() {
		for _, st := range sc.tables {
			if in := st.t.intent; !decided && in != nil && !in.Decided {
				err = errors.Join(err, st.t.undoStaged(context.WithoutCancel(ctx)))
			}
		}
	}()
	for _, st := range sc.tables {
		if err := sc.prepare(ctx, st); err != nil {
			return fmt.Errorf("commit staged rows of %s: %w", st.def, err)
		}
	}
	if err := sc.writeIndex(); err != nil {
		return fmt.Errorf("write the index of staged rows: %w", err)
	}
	sc.endSorts() // their files stand in a folder that goes with the decision
	if err := sc.link(ctx); err != nil {
		return fmt.Errorf("link staged files: %w", err)
	}
	if err := sc.decide(ctx); err != nil {
		return err
	}
	decided = true
	c.rowLocks.end(&tx.locks)        // they name keys of the runs
	ctx = context.WithoutCancel(ctx) // what is left is ours to finish
	for _, st := range sc.tables {
		for _, r := range st.staged.runs {
			err = errors.Join(err, r.close())
		}
		st.txTable.staged = nil // its folder is the intent's
	}
	if err != nil {
		c.log.Warn("close the keys of a large statement", "err", err)
	}
	for _, st := range sc.tables {
		if err := st.t.finishDecided(ctx); err != nil {
			c.log.Error("complete a large statement; it is tried again", "table", st.t.String(), "err", err)
			_ = st.t.flushFailed(err) // tells the operator
		}
	}
	c.metrics.CommitsTotal.Add(1)
	c.metrics.LargeTotal.Add(1)
	c.wake()
	return nil
}

// endSorts gives up what was sorted.
func (sc *stagedCommit) endSorts() {
	for _, st := range sc.tables {
		if err := st.folded.close(); err != nil {
			sc.c.log.Warn("remove the sorted changes of a large statement", "err", err)
		}
	}
}

// prepare brings a table up to date and its staged files above every instant of it.
func (sc *stagedCommit) prepare(ctx context.Context, st *stagedTable) error {
	c, t, s := sc.c, st.t, st.staged
	if t.broken != nil {
		return t.broken
	}
	for _, r := range s.runs {
		if err := r.finish(ctx); err != nil {
			return err
		}
	}
	fold := false
	if st.wrote() {
		var err error
		if fold, err = sc.unbuffer(ctx, st); err != nil {
			return err
		}
	}
	if err := t.resolveIntent(ctx); err != nil {
		return err
	}
	if err := t.adoptLocked(ctx); err != nil {
		return err
	}
	switch d := t.def.Load(); {
	case d != st.def && d.readOnly != "":
		return fmt.Errorf("%w: %s: %s", ErrReadOnly, d, d.readOnly)
	case d != st.def:
		return fmt.Errorf("%w: the definition of %s changed", ErrConflict, st.def)
	}
	newest := t.newestInstant()
	if err := c.notAhead(newest, []*Table{t}); err != nil {
		return err
	}
	if !s.at.After(newest) {
		if err := s.redraw(ctx); err != nil {
			return err
		}
	}
	if err := sleepUntil(ctx, c.clock.wall, s.at); err != nil {
		return err
	}
	upTo := index.Seq(t.lastSeq.Load())
	if err := sc.conflicts(st, s.seq, upTo, false); err != nil {
		return err
	}
	st.checked = max(upTo, s.seq)
	d := st.def
	st.meta = &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: timeline.OpInsert,
		Extra: map[string]string{timeline.ExtraSchema: d.spec.Schema.Avro(false), extraWarehouse: c.id, extraBin: newID()},
	}
	st.folded.locs = newSorter(c, c.fs.PathJoin(c.path(s.dir), ".locations"))
	st.folded.hints = newSorter(c, c.fs.PathJoin(c.path(s.dir), ".hints"))
	if fold {
		if err := sc.fold(ctx, st); err != nil {
			return err
		}
	} else {
		n := len(sc.changes)
		sc.changes = st.changes(sc.changes)
		for _, ch := range sc.changes[n:] {
			if err := sc.noteHints(st, ch.e); err != nil {
				return err
			}
		}
	}
	action := timeline.Commit
	if d.spec.MergeOnRead {
		action = timeline.DeltaCommit
	}
	in := &intent{
		Instant: s.instant, Action: action, Reason: "a large statement", Bin: st.meta.Extra[extraBin], Files: map[string][]string{},
		Stage: s.dir[len(d.dir)+1:],
	}
	for _, f := range s.live() {
		in.Files[f.part] = append(in.Files[f.part], f.name)
		st.meta.Stats[f.part] = append(st.meta.Stats[f.part], timeline.WriteStat{
			FileID: f.id, Partition: f.part, Path: join(f.part, f.name), NumWrites: f.rows, NumInserts: f.rows, WriteBytes: f.size, FileSize: f.size,
		})
		noteSum(st.meta, f.name, f.sum)
	}
	for _, o := range st.folded.files {
		in.Files[o.part] = append(in.Files[o.part], o.name)
		st.meta.Stats[o.part] = append(st.meta.Stats[o.part], o.stat)
		st.meta.Operation = timeline.OpUpsert
	}
	in.Meta = st.meta.Encode()
	st.cold = c.cold(t.id)
	st.tl = st.cold.tl.With(timeline.Instant{Time: s.instant, Action: action})
	st.view = st.cold.view.Apply(st.tl, st.meta.Change(s.instant))
	st.effect = ownEffect(s.instant, 0, st.cold.view, st.cold.counts, in.Files)
	st.effect.barrier = true
	t.intent = in
	return nil
}

// live gives the files of the stage that have rows.
func (s *stage) live() (out []*stagedFile) {
	for _, r := range s.runs {
		for _, f := range r.files {
			if f.rows > 0 {
				out = append(out, f)
			}
		}
	}
	return out
}

// redraw writes the files again as those of a new instant: one has been completed that is newer than the stage's.
func (s *stage) redraw(ctx context.Context) error {
	c := s.c
	c.commitMu.Lock()
	s.at, _ = c.clock.instant(s.t.newestInstant())
	c.commitMu.Unlock()
	s.instant = timeline.FormatTime(s.at.In(s.d.zone))
	for _, f := range s.live() {
		old := *f
		if err := s.writer(ctx, f, int(f.rows)); err != nil {
			return err
		}
		var row storage.Row
		err := s.rows(ctx, &old, func(b storage.Batch, i int) error {
			row = b.Row(i, row)
			key, _ := row[slices.Index(storage.MetaColumns, storage.ColRecordKey)].(string)
			m := storage.RowMeta{CommitTime: s.instant, SeqNo: s.seqNo(f, f.w.Rows()), Key: key, Partition: f.part}
			return f.w.Append(m, row[len(storage.MetaColumns):])
		})
		if err != nil {
			f.w.Abort()
			*f = old
			return err
		}
		if err := f.commit(ctx); err != nil {
			return err
		}
		c.metrics.RedrawnTotal.Add(f.rows)
		if err := s.drop(&old); err != nil {
			return err
		}
	}
	return nil
}

var errFound = errors.New("catalog: found")

// conflicts looks for commits in (after, upTo] that changed a key or took a UNIQUE value of staged rows; folded: or a key of the small
// writes, which have been checked up to after one by one.
func (sc *stagedCommit) conflicts(st *stagedTable, after, upTo index.Seq, folded bool) error {
	t, c := st.t, sc.c
	runs := slices.DeleteFunc(slices.Clone(st.staged.runs), func(r *stagedRun) bool { return r.folded })
	folded = folded && st.wrote()
	if upTo <= after || len(runs) == 0 && !folded {
		return nil
	}
	conflict := func(key string) error {
		return fmt.Errorf("%w: key %s of %s", ErrConflict, key, st.def)
	}
	key := ""
	err := eachPacket(c.db, t.id, after, upTo, func(_ index.Seq, _ uint32, p packetRow) error {
		if folded {
			if own, err := st.ownWrite(textView(p.ikey)); err != nil || own != nil {
				key = p.key
				return firstError(err, errFound)
			}
		}
		for _, r := range runs {
			if _, ok, err := r.find(p.ikey); err != nil {
				return err
			} else if ok {
				key = p.key
				return errFound
			}
		}
		if p.del || len(st.def.indexes) == 0 {
			return nil
		}
		row, err := st.def.decodeRow(p.schema, p.row)
		if err != nil {
			return err
		}
		for i := range st.def.indexes {
			x := &st.def.indexes[i]
			if !x.spec.Unique || index.HasNull(x.cols, row) {
				continue
			}
			values, err := index.AppendKey(nil, x.cols, row)
			if err != nil {
				return err
			}
			for _, r := range runs {
				if _, ok, err := r.owner(i, values); err != nil {
					return err
				} else if ok {
					key = p.key
					return errFound
				}
			}
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return conflict(key)
	}
	if err != nil {
		return err
	}
	if c.cold(t.id).trimmed <= after && index.Seq(max(t.filesSeq.Load(), t.largeSeq.Load())) <= after {
		return nil
	}
	// What other engines and other large statements changed stands in the index alone.
	p, err := c.index.Probe(c.db, t.id)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, r := range runs {
		var inner error
		err := r.keys.within(index.Bounds{}, func(k, v []byte) bool {
			var ok bool
			if ok, inner = p.Traced(k); ok {
				inner = conflict(decodePlace(textView(v)).key)
			}
			return inner == nil
		})
		for i := range st.def.indexes {
			if x := &st.def.indexes[i]; x.spec.Unique && err == nil && inner == nil {
				err = r.eachHint(i, index.Bounds{}, func(values, ikey []byte) bool {
					var ok bool
					if ok, inner = p.Hinted(x.no, values); ok {
						inner = conflict(fmt.Sprintf("%x of index %s", values, x.spec.Name))
					}
					return inner == nil
				})
			}
		}
		if err := firstError(err, inner); err != nil {
			return err
		}
	}
	return nil
}

// batchOps gives what a batch changes, by key; the last change of a key counts.
func batchOps(b *pebble.Batch) ([]op, error) {
	last := map[string]op{}
	r := b.Reader()
	for {
		kind, k, v, ok, err := r.Next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		switch kind {
		case pebble.InternalKeyKindSet:
			last[string(k)] = op{string(k), string(v), false}
		case pebble.InternalKeyKindDelete:
			last[string(k)] = op{string(k), "", true}
		default:
			return nil, fmt.Errorf("catalog: a decision cannot hold a change of kind %v", kind)
		}
	}
	out := make([]op, 0, len(last))
	for _, k := range sortedKeys(last) {
		out = append(out, last[k])
	}
	return out, nil
}

// tableSink writes sorted keys into files.
type tableSink struct {
	sc  *stagedCommit
	w   *sstable.Writer
	cur sortedTable
}

func (k *tableSink) add(key, value []byte, del bool) (err error) {
	if k.w != nil && k.w.Raw().EstimatedSize() > tableBytes {
		if err := k.end(); err != nil {
			return err
		}
	}
	if k.w == nil {
		k.sc.made++
		k.cur = sortedTable{path: k.sc.c.fs.PathJoin(k.sc.dir, ".index-"+strconv.Itoa(k.sc.made)), low: slices.Clone(key)}
		if k.w, err = k.sc.c.newTable(k.cur.path); err != nil {
			return err
		}
	}
	k.cur.high = append(k.cur.high[:0], key...)
	if del {
		return k.w.Delete(key)
	}
	return k.w.Set(key, value)
}

// upTo writes the changes before a key (nil: all); one of the key itself takes its place.
func (k *tableSink) upTo(over *sortReader, key []byte) (same bool, err error) {
	for over.ok && !same && (key == nil || over.cur.key <= textView(key)) {
		o := &over.cur
		if err := k.add(bytesView(o.key), bytesView(o.value), o.del); err != nil {
			return false, err
		}
		same = key != nil && o.key == textView(key)
		if err := over.next(); err != nil {
			return false, err
		}
	}
	return same, nil
}

func (k *tableSink) end() error {
	if k.w == nil {
		return nil
	}
	err := k.w.Close()
	k.w = nil
	k.sc.big = append(k.sc.big, k.cur)
	return err
}

// tableBytes is about the size of a sorted table.
const tableBytes = 64 << 20

// writeIndex writes the locations and the secondary hints of the staged rows.
func (sc *stagedCommit) writeIndex() error {
	c := sc.c
	if err := c.fs.MkdirAll(sc.dir, 0o755); err != nil {
		return err
	}
	var key, value []byte
	for _, st := range sc.tables {
		sink := &tableSink{sc: sc}
		s := st.staged
		over, err := st.folded.locs.read()
		if err != nil {
			return err
		}
		var inner error
		put := func(r *stagedRun, k, v []byte) bool {
			p := decodePlace(textView(v))
			key, value = index.AppendStaged(key[:0], value[:0], st.t.id, k, s.no, r.files[p.file].group, p.row, p.key)
			if _, inner = sink.upTo(over, key); inner == nil {
				inner = sink.add(key, value, false)
			}
			return inner == nil
		}
		err = mergeKeys(s.runs, func(r *stagedRun) *keyTable { return r.keys }, put)
		if err == nil && inner == nil {
			_, inner = sink.upTo(over, nil)
		}
		if err := firstError(err, inner, over.close(), sink.end()); err != nil {
			return err
		}
	}
	for _, st := range sc.tables {
		if err := sc.writeHints(st); err != nil {
			return err
		}
	}
	return nil
}

// writeHints writes the secondary hints of a table's staged rows, with the changes that small statements make over them.
func (sc *stagedCommit) writeHints(st *stagedTable) error {
	if len(st.def.indexes) == 0 {
		return nil
	}
	over, err := st.folded.hints.read()
	if err != nil {
		return err
	}
	defer over.close()
	runs := slices.DeleteFunc(slices.Clone(st.staged.runs), func(r *stagedRun) bool { return r.folded })
	sink := &tableSink{sc: sc}
	var key, value []byte
	order := make([]int, len(st.def.indexes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(st.def.indexes[a].no) - int(st.def.indexes[b].no) })
	for _, n := range order {
		x := &st.def.indexes[n]
		var inner error
		put := func(_ *stagedRun, k, v []byte) bool {
			values, ikey, ok := splitHint(k, v)
			if !ok || x.spec.Unique && !ok {
				values, ikey = k, v
			}
			key, value = index.AppendHint(key[:0], value[:0], st.t.id, x.no, values, ikey)
			var same bool
			if same, inner = sink.upTo(over, key); inner == nil && !same {
				inner = sink.add(key, value, false)
			}
			return inner == nil
		}
		err := mergeKeys(runs, func(r *stagedRun) *keyTable { return r.hints[n] }, put)
		if err := firstError(err, inner); err != nil {
			return err
		}
	}
	_, err = sink.upTo(over, nil)
	return firstError(err, sink.end())
}

// mergeKeys calls f for the keys of a key table of each run, ascending, until it answers false. No key is in two runs.
func mergeKeys(runs []*stagedRun, table func(*stagedRun) *keyTable, f func(r *stagedRun, k, v []byte) bool) error {
	if len(runs) == 1 {
		return table(runs[0]).within(index.Bounds{}, func(k, v []byte) bool { return f(runs[0], k, v) })
	}
	type head struct {
		r    *stagedRun
		k, v []byte
		next func() ([]byte, []byte, bool)
	}
	var heads []head
	errs := make([]error, len(runs))
	for i, r := range runs {
		next, stop := iter.Pull2(func(yield func(k, v []byte) bool) { errs[i] = table(r).within(index.Bounds{}, yield) })
		defer stop()
		if k, v, ok := next(); ok {
			heads = append(heads, head{r, k, v, next})
		}
	}
	for len(heads) > 0 {
		n := 0
		for i := range heads {
			if bytes.Compare(heads[i].k, heads[n].k) < 0 {
				n = i
			}
		}
		h := &heads[n]
		if !f(h.r, h.k, h.v) {
			break
		}
		var ok bool
		if h.k, h.v, ok = h.next(); !ok {
			heads = slices.Delete(heads, n, n+1)
		}
	}
	return firstError(errs...)
}

// link makes the intents durable, then gives the staged files their names in the partitions: nothing on a timeline names them yet.
func (sc *stagedCommit) link(ctx context.Context) error {
	c := sc.c
	b := c.db.NewBatch()
	defer b.Close()
	for _, st := range sc.tables {
		v, err := json.Marshal(st.t.intent)
		if err != nil {
			return err
		}
		if err := b.Set(idKey(prefixIntent, st.t.id), v, nil); err != nil {
			return err
		}
	}
	if err := c.commitBatch(b); err != nil {
		return fmt.Errorf("write intents: %w", err)
	}
	for _, st := range sc.tables {
		if err := st.t.linkStaged(ctx, st.t.intent); err != nil {
			return err
		}
		st.t.keepSlices(st.cold, []*effect{&st.effect}) // no cleaner knows before the decision that they are replaced
	}
	return nil
}

// linkStaged gives the files of an intent their names; those that have them already are left.
func (t *Table) linkStaged(ctx context.Context, in *intent) error {
	c, d := t.c, t.def.Load()
	for _, part := range sortedKeys(in.Files) {
		if err := timeline.EnsurePartition(ctx, c.store, d.dir, part, in.Instant); err != nil {
			return err
		}
		for _, name := range in.Files[part] {
			if err := c.store.Link(ctx, join(d.dir, in.Stage, part, name), d.object(part, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decide is the critical section: it checks what was committed meanwhile, draws the sequence, and has the database take in everything
// in one atomic step. Snapshots are kept out, since the files become visible with it.
func (sc *stagedCommit) decide(ctx context.Context) error {
	c, tx := sc.c, sc.tx
	c.viewMu.Lock()
	defer c.viewMu.Unlock()
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	for _, st := range sc.tables {
		if st.t.doubled.Load() {
			return fmt.Errorf("%w: another engine wrote keys of %s several times", ErrConflict, st.def)
		}
		if err := sc.conflicts(st, st.checked, index.Seq(st.t.lastSeq.Load()), true); err != nil {
			return err
		}
	}
	if err := tx.checkConflicts(sc.changes); err != nil {
		return err
	}
	seq := c.clock.next()
	b := c.db.NewBatch()
	defer b.Close()
	rec, counts, grown, err := c.writeChanges(tx, b, seq, sc.changes)
	if err != nil {
		return err
	}
	nexts := make([]*coldState, len(sc.tables))
	for i, st := range sc.tables {
		t, s := st.t, st.staged
		own := counts[st.txTable]
		if own == nil {
			rec.tables = append(rec.tables, commitTable{id: t.id})
		}
		next := st.cold.with(st.tl, st.view)
		large := otherInstant{time: s.instant, known: seq, ours: true, effect: st.effect}
		large.seq = seq
		next.addOthers([]otherInstant{large})
		if t.buf.rows == 0 {
			// Nothing waits for a flush: all rows up to here stand in files.
			next.flushed = seq
			if own != nil {
				next.flushed--
			}
		}
		nexts[i] = next
		for _, o := range st.folded.dead {
			if err := c.index.PutDead(b, t.id, o.part, o.key, o.Dead); err != nil {
				return err
			}
		}
		if st.folded.deletes {
			t.forget(seq)
		}
		for _, f := range s.live() {
			if _, err := c.index.GroupNumber(b, t.id, f.part, f.id); err != nil {
				return err
			}
		}
		in := *t.intent
		in.Decided, in.Cut = true, seq
		v, err := json.Marshal(in)
		if err != nil {
			return err
		}
		t.lastSeq.Store(uint64(seq))
		t.largeSeq.Store(uint64(seq))
		err = firstError(
			c.index.Decide(b, t.id, s.no, index.Stage{Seq: seq, Instant: s.instant}),
			putEffect(b, t.id, &large),
			b.Set(idKey(prefixIntent, t.id), v, nil),
			t.saveRecordWith(b, next, s.count()+st.folded.rows+grown[t]))
		if err != nil {
			return err
		}
	}
	if err := b.Set(journalKey(seq), rec.encode(), nil); err != nil {
		return err
	}
	paths, err := sc.tablesOf(b)
	if err != nil {
		return fmt.Errorf("write decision: %w", err)
	}
	// What was committed before has to be durable with it: a snapshot at its sequence shows both.
	if err := c.syncLocked(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	if err := c.db.Ingest(ctxBackground, paths); err != nil {
		return fmt.Errorf("write decision: %w", err)
	}
	at := seqTime(seq)
	for i, st := range sc.tables {
		t := st.t
		t.intent.Decided, t.intent.Cut = true, seq
		t.unfinished = true
		large, _ := nexts[i].effectOf(st.staged.instant)
		t.hist.add(st.staged.instant, large, false)
		n := st.staged.count()
		t.rows.Add(n + st.folded.rows)
		c.metrics.StagedTotal.Add(n)
		c.setCold(t.id, nexts[i])
	}
	c.noteCommit(seq, at, counts, grown)
	c.advance(seq)
	return nil
}

// tablesOf writes the changes of a batch into sorted tables and gives the paths of all, in order.
func (sc *stagedCommit) tablesOf(b *pebble.Batch) ([]string, error) {
	ops, err := batchOps(b)
	if err != nil {
		return nil, err
	}
	big := sc.big
	slices.SortFunc(big, func(a, b sortedTable) int { return bytes.Compare(a.low, b.low) })
	sc.big = nil
	sink := &tableSink{sc: sc}
	n := 0
	for _, o := range ops {
		if sc.hinted(o.key) {
			continue // writeHints has it
		}
		for n < len(big) && string(big[n].low) < o.key {
			if string(big[n].high) >= o.key {
				return nil, fmt.Errorf("catalog: key %q of a decision lies within a sorted table", o.key)
			}
			if err := sink.end(); err != nil {
				return nil, err
			}
			n++
		}
		if err := sink.add(bytesView(o.key), bytesView(o.value), o.del); err != nil {
			return nil, err
		}
	}
	if err := sink.end(); err != nil {
		return nil, err
	}
	var paths []string
	for _, t := range append(sc.big, big...) {
		paths = append(paths, t.path)
	}
	return paths, nil
}

// hinted tells whether a key is a secondary hint of a table whose hints are written apart.
func (sc *stagedCommit) hinted(key string) bool {
	for _, st := range sc.tables {
		if len(st.def.indexes) > 0 && index.IsHint(key, st.t.id) {
			return true
		}
	}
	return false
}
