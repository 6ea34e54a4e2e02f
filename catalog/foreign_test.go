package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// otherWriter writes instants to a table as another engine does, by the files alone.
type otherWriter struct {
	t   *testing.T
	c   *Catalog
	tab *Table
}

func (w *otherWriter) begin(a timeline.Action) (*timeline.Pending, storage.InstantTime) {
	ctx := context.Background()
	tl, err := timeline.Load(ctx, w.c.store, w.tab.def.Load().dir)
	require.NoError(w.t, err)
	newest, err := timeline.ParseTime(tl.Newest(), time.UTC)
	if err != nil {
		newest = time.Time{}
	}
	w.c.commitMu.Lock()
	at, _ := w.c.clock.instant(newest)
	w.c.commitMu.Unlock()
	require.NoError(w.t, sleepUntil(ctx, w.c.clock.wall, at))
	it := timeline.FormatTime(at)
	p, err := timeline.Begin(ctx, w.c.store, w.tab.def.Load().dir, a, it, nil)
	require.NoError(w.t, err)
	return p, it
}

func (w *otherWriter) slices() (*timeline.Timeline, []storage.FileSlice) {
	ctx := context.Background()
	dir := w.tab.def.Load().dir
	tl, err := timeline.Load(ctx, w.c.store, dir)
	require.NoError(w.t, err)
	v, err := timeline.BuildView(ctx, w.c.store, dir, tl)
	require.NoError(w.t, err)
	return tl, v.Slices("", nil)
}

// files gives the rows of the files.
func (w *otherWriter) files() string {
	d := w.tab.def.Load()
	tl, list := w.slices()
	var out []string
	for _, fs := range list {
		for b, err := range w.c.reader.ReadSlice(context.Background(), d.dir, fs, d.scan(d.spec.Schema, tl.Counts)) {
			require.NoError(w.t, err)
			for i := range b.Rows {
				out = append(out, fmt.Sprint(b.Row(i, nil)))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// base writes the rows of a slice, merged, and then puts, each in place of the row of its key; gone rows are left out.
func (w *otherWriter) base(it storage.InstantTime, part string, id storage.FileID, from *storage.FileSlice, tl *timeline.Timeline, puts map[string]storage.Row, gone map[string]bool) timeline.WriteStat {
	ctx := context.Background()
	d := w.tab.def.Load()
	require.NoError(w.t, timeline.EnsurePartition(ctx, w.c.store, d.dir, part, it))
	name := storage.BaseFileName(id, storage.NewToken(0), it)
	b, err := storage.CreateBase(ctx, w.c.store, d.object(part, name), d.spec.Schema, storage.BaseOptions{})
	require.NoError(w.t, err)
	st := timeline.WriteStat{FileID: id, Partition: part, Path: join(part, name)}
	if from != nil {
		want, err := d.spec.Schema.Select(append(slices.Clone(storage.MetaColumns), fieldNames(d.spec.Schema)...)...)
		require.NoError(w.t, err)
		for x, err := range w.c.reader.ReadSlice(ctx, d.dir, *from, d.scan(want, tl.Counts)) {
			require.NoError(w.t, err)
			for i := range x.Rows {
				k := d.recordKey(x.Row(i, nil)[len(storage.MetaColumns):])
				if _, ok := puts[k]; !ok && !gone[k] {
					require.NoError(w.t, b.AppendMerged(x, i))
				}
			}
		}
		st.PrevCommit = from.Begin
	}
	for i, k := range sortedKeys(puts) {
		require.NoError(w.t, b.Append(storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_0_%d", it, i), Key: k, Partition: part}, puts[k]))
	}
	st.NumWrites = b.Rows()
	st.FileSize, err = b.Commit(ctx)
	require.NoError(w.t, err)
	return st
}

func (w *otherWriter) complete(p *timeline.Pending, op string, stats []timeline.WriteStat, replaced map[string][]storage.FileID) {
	meta := &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: op, Compacted: op == timeline.OpCompact, Replaced: replaced,
		Extra: map[string]string{timeline.ExtraSchema: w.tab.def.Load().spec.Schema.Avro(false)},
	}
	for _, st := range stats {
		meta.Stats[st.Partition] = append(meta.Stats[st.Partition], st)
	}
	require.NoError(w.t, p.Complete(context.Background(), meta))
}

// write changes rows: puts by record key, and deletes. In an event-time table a put or a row with the larger ordering value stays. A put with
// another partition than the row's moves it.
func (w *otherWriter) write(puts map[string]storage.Row, dels []string) {
	ctx := context.Background()
	d := w.tab.def.Load()
	tl, list := w.slices()
	action := timeline.Commit
	if d.spec.MergeOnRead {
		action = timeline.DeltaCommit
	}
	p, it := w.begin(action)
	var stats []timeline.WriteStat
	rest := map[string]storage.Row{}
	for k, row := range puts {
		rest[k] = row
	}
	for i := range list {
		fs := &list[i]
		here, gone := map[string]storage.Row{}, map[string]bool{}
		var log []storage.LogRecord
		var del []storage.LogDelete
		for b, err := range w.c.reader.ReadSlice(ctx, d.dir, *fs, d.scan(d.spec.Schema, tl.Counts)) {
			require.NoError(w.t, err)
			for i := range b.Rows {
				old := b.Row(i, nil)
				k := d.recordKey(old)
				row, ok := rest[k]
				switch {
				case ok && d.partitionPath(row) == fs.Partition:
					delete(rest, k)
					log = append(log, storage.LogRecord{RowMeta: storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_1_%d", it, len(log)), Key: k, Partition: fs.Partition}, Row: row})
					if d.merge != storage.EventTime || compareOrdering(row[d.ordering], old[d.ordering]) >= 0 {
						here[k] = row
					}
				case ok || slices.Contains(dels, k):
					gone[k] = true
					x := storage.LogDelete{Key: k, Partition: fs.Partition}
					if d.merge == storage.EventTime {
						x.Ordering, x.OrderingType = old[d.ordering], d.spec.Schema.Fields[d.ordering].Type
					}
					del = append(del, x)
				}
			}
		}
		if !d.spec.MergeOnRead {
			stats = append(stats, w.base(it, fs.Partition, fs.ID, fs, tl, here, gone))
			continue
		}
		if len(log) == 0 && len(del) == 0 {
			continue
		}
		version := 1
		for _, l := range fs.Logs {
			version = max(version, l.Version+1)
		}
		name := storage.LogFileName(fs.ID, fs.Begin, version, storage.NewToken(7))
		st, err := storage.WriteLog(ctx, w.c.store, d.object(fs.Partition, name), it, d.spec.Schema, fs.ID, log, del)
		require.NoError(w.t, err)
		stats = append(stats, timeline.WriteStat{
			FileID: fs.ID, Partition: fs.Partition, Path: join(fs.Partition, name), PrevCommit: fs.Begin, FileSize: st.Bytes,
			Log: &timeline.LogStat{Version: version, BaseFile: fs.Base.Name},
		})
	}
	fresh := map[string]map[string]storage.Row{}
	for k, row := range rest {
		part := d.partitionPath(row)
		if fresh[part] == nil {
			fresh[part] = map[string]storage.Row{}
		}
		fresh[part][k] = row
	}
	for _, part := range sortedKeys(fresh) {
		stats = append(stats, w.base(it, part, storage.NewFileID(), nil, nil, fresh[part], nil))
	}
	w.complete(p, timeline.OpUpsert, stats, nil)
}

// rewrite compacts every slice, or clusters it into a new group.
func (w *otherWriter) rewrite(cluster bool) {
	tl, list := w.slices()
	action, op := timeline.Compaction, timeline.OpCompact
	var replaced map[string][]storage.FileID
	if cluster {
		action, op, replaced = timeline.ReplaceCommit, timeline.OpCluster, map[string][]storage.FileID{}
	}
	p, it := w.begin(action)
	var stats []timeline.WriteStat
	for i := range list {
		fs := &list[i]
		id := fs.ID
		if cluster {
			id = storage.NewFileID()
			replaced[fs.Partition] = append(replaced[fs.Partition], fs.ID)
		}
		stats = append(stats, w.base(it, fs.Partition, id, fs, tl, nil, nil))
	}
	w.complete(p, op, stats, replaced)
}

// ruleCase is one key: what the files have of it, what waits, and what another engine does.
type ruleCase struct {
	files   storage.Row // nil: no such key
	waits   ruleOps
	foreign ruleForeign
	then    ruleOps // commits after what the other engine did
}

type ruleOps struct {
	name string
	txs  [][]ruleOp
}

// ruleOp is one statement: the row that is to be there, nil to delete the key.
type ruleOp = storage.Row

type ruleForeign struct {
	name string
	row  storage.Row // nil: see del
	del  bool
}

func (rc *ruleCase) String() string {
	return fmt.Sprintf("files %v, waits %s, foreign %s, then %s", rc.files, rc.waits.name, rc.foreign.name, rc.then.name)
}

// want gives the row that the rule asks for before and after the commits that follow the foreign instant: docs/sharing.md, "Who wins".
func (rc *ruleCase) want(event bool) (before, after storage.Row, legal bool) {
	files, changed := rc.files, false
	switch f := rc.foreign; {
	case f.del:
		files, changed = nil, rc.files != nil
	case f.row != nil:
		if !event || files == nil || f.row[2].(int64) >= files[2].(int64) || f.row[1] != files[1] {
			files, changed = f.row, true
		}
	}
	hot, waits := storage.Row(nil), false
	state := rc.files
	apply := func(ops ruleOps) bool {
		for _, tx := range ops.txs {
			for _, op := range tx {
				if op == nil && state == nil || op != nil && state != nil && event && op[2].(int64) < state[2].(int64) {
					return false // nothing to delete, or refused as late
				}
				state, hot, waits = op, op, true
			}
		}
		return true
	}
	if !apply(rc.waits) {
		return nil, nil, false
	}
	state = files
	if waits && !(event && changed && hot != nil && files != nil && files[2].(int64) > hot[2].(int64)) {
		state = hot
	}
	before = state
	ok := apply(rc.then)
	return before, state, ok
}

func ruleCases(event bool) (out []*ruleCase) {
	row := func(part string, v int64) storage.Row { return storage.Row{int32(0), part, v} }
	one := func(ops ...ruleOp) [][]ruleOp { return [][]ruleOp{ops} }
	waits := []ruleOps{
		{"nothing", nil},
		{"200", one(row("a", 200))},
		{"150, 200", [][]ruleOp{{row("a", 150)}, {row("a", 200)}}},
		{"delete", one(nil)},
		{"delete + 50", one(nil, row("a", 50))},
		{"delete, 50", [][]ruleOp{{nil}, {row("a", 50)}}},
		{"delete + 50, 60", [][]ruleOp{{nil, row("a", 50)}, {row("a", 60)}}},
		{"delete, 50, delete, 40", [][]ruleOp{{nil}, {row("a", 50)}, {nil}, {row("a", 40)}}},
		{"40 + delete + 30", one(row("a", 40), nil, row("a", 30))},
		{"40, delete", [][]ruleOp{{row("a", 40)}, {nil}}},
		{"moved 200", one(row("b", 200))},
		{"delete + moved 50", one(nil, row("b", 50))},
		{"delete, moved 50", [][]ruleOp{{nil}, {row("b", 50)}}},
		{"moved 200, back 210", [][]ruleOp{{row("b", 200)}, {row("a", 210)}}},
	}
	foreign := []ruleForeign{
		{name: "nothing"},
		{name: "delete", del: true},
		{name: "10", row: row("a", 10)},
		{name: "50", row: row("a", 50)},
		{name: "120", row: row("a", 120)},
		{name: "200", row: row("a", 200)},
		{name: "1000", row: row("a", 1000)},
		{name: "moved 20", row: row("b", 20)},
		{name: "moved 1000", row: row("b", 1000)},
	}
	then := []ruleOps{
		{"nothing", nil}, {"2000", one(row("a", 2000))}, {"delete", one(nil)}, {"delete + 5", one(nil, row("a", 5))}, {"delete, moved 5", [][]ruleOp{{nil}, {row("b", 5)}}},
	}
	for _, files := range []storage.Row{nil, row("a", 100), row("b", 100)} {
		for _, w := range waits {
			for _, f := range foreign {
				for _, th := range then {
					rc := &ruleCase{files: files, waits: w, foreign: f, then: th}
					if _, _, ok := rc.want(event); ok {
						out = append(out, rc)
					}
				}
			}
		}
	}
	return out
}

// D8, D12, D18: for each state of a key in the files, what waits for it, and what another engine does to it, reads give the same row before
// the flush and after it, by scan, by key and from the files, and it is the row that the rule names. A compaction or a clustering changes
// nothing, nor does a crash right after the flush's instant has completed.
func TestForeignRule(t *testing.T) {
	for n := range 16 {
		mor, event, rewrite, crash := n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0
		t.Run(fmt.Sprintf("mor=%v event=%v rewrite=%v crash=%v", mor, event, rewrite, crash), func(t *testing.T) {
			ctx := context.Background()
			c := testOpen(t, vfs.NewMem(), Options{})
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead, s.Partition = mor, []string{"name"}
				if event {
					s.Ordering, s.OrderingField = storage.EventTime, "v"
				}
			})
			w := &otherWriter{t, c, tab}
			cases := ruleCases(event)
			require.Greater(t, len(cases), 500)
			of := func(id int, row storage.Row) storage.Row { return storage.Row{int32(id), row[1], row[2]} }
			state := make([]storage.Row, len(cases))
			run := func(ops func(rc *ruleCase) ruleOps) {
				for round := range 4 {
					inTx(t, c, func(tx *Tx) {
						for id, rc := range cases {
							if txs := ops(rc).txs; round < len(txs) {
								for _, op := range txs[round] {
									var err error
									switch {
									case op == nil:
										err = tx.Delete(ctx, tab, of(id, state[id]))
									case state[id] == nil:
										err = tx.Insert(ctx, tab, of(id, op))
									default:
										err = tx.Update(ctx, tab, of(id, state[id]), of(id, op))
									}
									require.NoError(t, err, "%s: %v", rc, op)
									state[id] = op
								}
							}
						}
					})
				}
			}
			var past []struct {
				at   time.Time
				rows string
			}
			remember := func() {
				past = append(past, struct {
					at   time.Time
					rows string
				}{c.Clock().Now(), strings.ReplaceAll(scanAll(t, c, tab), "] [", "]\n[")})
			}
			newer := map[int]storage.Row{}
			check := func(when string, want func(before, after storage.Row) storage.Row) {
				t.Helper()
				got := rowsOf(t, c, tab, "id", "name", "v")
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback()
				bad := 0
				for id, rc := range cases {
					before, after, _ := rc.want(event)
					state[id] = want(before, after)
					if row, ok := newer[id]; ok {
						state[id] = row
					}
					w := "none"
					if state[id] != nil {
						w = fmt.Sprint(of(id, state[id]))
					}
					text := func(row storage.Row, ok bool) string {
						if !ok {
							return "none"
						}
						return fmt.Sprint(row)
					}
					scanned, ok := got[int32(id)]
					byScan := text(scanned, ok)
					row, ok, err := tx.Get(ctx, tab, storage.Row{int32(id)})
					require.NoError(t, err)
					byKey := text(row, ok)
					var found storage.Row
					for b, err := range tx.Lookup(ctx, tab, "", []KeyRange{{Low: storage.Row{int32(id)}, High: storage.Row{int32(id)}}}, ScanOptions{}) {
						require.NoError(t, err)
						for i := range b.Rows {
							found = b.Row(i, nil)
						}
					}
					byLookup := text(found, found != nil)
					if byScan != w || byKey != w || byLookup != w {
						if bad++; bad < 10 {
							t.Errorf("%s: key %d (%s): want %s, scan %s, get %s, lookup %s", when, id, rc, w, byScan, byKey, byLookup)
						}
					}
				}
				if bad > 0 {
					t.Fatalf("%s: %d of %d keys are wrong", when, bad, len(cases))
				}
			}
			inTx(t, c, func(tx *Tx) {
				for id, rc := range cases {
					if rc.files != nil {
						require.NoError(t, tx.Insert(ctx, tab, of(id, rc.files)))
						state[id] = rc.files
					}
				}
				for i, part := range []string{"a", "b"} {
					require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(-1 - i), part, int64(0)}))
				}
			})
			flushAll(t, c)
			run(func(rc *ruleCase) ruleOps { return rc.waits })
			puts, dels := map[string]storage.Row{}, []string(nil)
			for id, rc := range cases {
				switch f := rc.foreign; {
				case f.row != nil:
					puts[fmt.Sprint(id)] = of(id, f.row)
				case f.del:
					dels = append(dels, fmt.Sprint(id))
				}
			}
			w.write(puts, dels)
			require.NoError(t, tab.adopt(ctx))
			first := func(before, _ storage.Row) storage.Row { return before }
			last := func(_, after storage.Row) storage.Row { return after }
			check("adopted", first)
			if rewrite {
				w.rewrite(mor && !crash)
				require.NoError(t, tab.adopt(ctx))
				check("rewritten", first)
			}
			remember()
			run(func(rc *ruleCase) ruleOps { return rc.then })
			check("written again", last)
			remember()
			if crash {
				cut := errors.New("cut short")
				beforeSettle = func(*flush) error {
					// Commits behind the cut stand above what the flush wrote, however low their ordering values are.
					inTx(t, c, func(tx *Tx) {
						for id := range cases {
							if id%3 == 0 && state[id] != nil {
								require.NoError(t, tx.Delete(ctx, tab, of(id, state[id])))
								newer[id] = storage.Row{int32(0), state[id][1], int64(1)}
								require.NoError(t, tx.Insert(ctx, tab, of(id, newer[id])))
							}
						}
					})
					return cut
				}
				defer func() { beforeSettle = nil }()
				require.ErrorIs(t, c.Flush(ctx, "test", tab), cut)
				beforeSettle = nil
				check("after a flush that did not settle", last)
				remember()
			}
			flushAll(t, c)
			require.False(t, tab.isBuffered())
			check("flushed", last)
			require.Equal(t, w.files(), scanAll(t, c, tab))
			for i, p := range past {
				s, err := c.AsOf(ctx, AsOf{Time: p.at})
				require.NoError(t, err)
				require.Equal(t, p.rows, strings.ReplaceAll(dump(t, s.Scan(ctx, tab, ScanOptions{})), "] [", "]\n["), "as of time %d before the flush", i)
				s.Close()
			}
		})
	}
}

// D12: rows of another engine that break a UNIQUE index are served, named by CHECK TABLE, and fail only the statements that touch them;
// AUTO_INCREMENT goes on above its largest value.
func TestForeignBreaksUnique(t *testing.T) {
	for _, mor := range []bool{false, true} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			ctx := context.Background()
			c := testOpen(t, vfs.NewMem(), Options{})
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead, s.AutoIncrement = mor, "id"
				s.Indexes = []IndexSpec{{Name: "u", Columns: []KeyColumn{{Column: "name"}}, Unique: true}}
			})
			row := func(id int32, name string) storage.Row { return storage.Row{id, name, int64(id)} }
			insert := func(r storage.Row) (err error) {
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback()
				if err := tx.Insert(ctx, tab, r); err != nil {
					return err
				}
				return tx.Commit(ctx)
			}
			update := func(old, r storage.Row) (err error) {
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback()
				if err := tx.Update(ctx, tab, old, r); err != nil {
					return err
				}
				return tx.Commit(ctx)
			}
			for id := range int32(3) {
				n, err := tab.NextAutoIncrement(ctx, 1)
				require.NoError(t, err)
				require.Equal(t, uint64(id+1), n)
				require.NoError(t, insert(row(id+1, fmt.Sprint("n", id+1))))
			}
			flushAll(t, c)
			require.NoError(t, insert(row(4, "n4")))
			w := &otherWriter{t, c, tab}
			w.write(map[string]storage.Row{"7": row(7, "n1"), "8": row(8, "n4"), "9": row(9, "n9")}, nil)
			require.NoError(t, tab.adopt(ctx))

			const all = "[1 n1 1] [2 n2 2] [3 n3 3] [4 n4 4] [7 n1 7] [8 n4 8] [9 n9 9]"
			named := func(want int) {
				t.Helper()
				list := problems(t, c, tab, CheckExtended)
				require.Len(t, list, want, "%v", list)
				for _, p := range list {
					require.Contains(t, p, "the UNIQUE value")
				}
			}
			require.Equal(t, all, scanAll(t, c, tab))
			named(2)
			n, err := tab.NextAutoIncrement(ctx, 1)
			require.NoError(t, err)
			require.Equal(t, uint64(10), n)
			require.NoError(t, insert(row(10, "n10")), "it touches none of them")
			require.NoError(t, update(row(1, "n1"), storage.Row{int32(1), "n1", int64(100)}), "the value that two rows have stays as it is")
			require.NoError(t, update(storage.Row{int32(1), "n1", int64(100)}, row(1, "n1")))
			named(2)
			require.NoError(t, update(row(2, "n2"), row(2, "n2b")))
			for _, name := range []string{"n1", "n4", "n9"} {
				var dup *DuplicateKeyError
				require.ErrorAs(t, insert(row(11, name)), &dup)
				require.ErrorAs(t, update(row(3, "n3"), row(3, name)), &dup)
			}
			flushAll(t, c)
			require.Equal(t, "[1 n1 1] [10 n10 10] [2 n2b 2] [3 n3 3] [4 n4 4] [7 n1 7] [8 n4 8] [9 n9 9]", scanAll(t, c, tab))
			named(2)
			require.NoError(t, update(row(8, "n4"), row(8, "n8")))
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Delete(ctx, tab, row(7, "n1"))) })
			named(0)
			require.NoError(t, update(row(1, "n1"), row(1, "n7")))
			n, err = tab.NextAutoIncrement(ctx, 1)
			require.NoError(t, err)
			require.Equal(t, uint64(11), n)
			require.NoError(t, insert(row(11, "n1")))
			flushAll(t, c)
			named(0)
		})
	}
}
