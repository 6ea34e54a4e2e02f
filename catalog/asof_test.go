package catalog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// pastTableModel is a table with its states at times that were remembered.
type pastTableModel struct {
	tab      *Table
	name     string
	rows     map[int32]storage.Row
	buffered map[int32]bool // keys that wait for a flush: what other engines write does not show
	past     []pastRowsModel
}

type pastRowsModel struct {
	at   time.Time
	rows map[int32]storage.Row
}

// pastWorld is a warehouse into whose tables another writer writes, too.
type pastWorld struct {
	t      *testing.T
	r      *rand.Rand
	c      *Catalog
	fs     vfs.FS
	o      Options
	skew   time.Duration // of the wall clock
	tables []*pastTableModel
	v      int64
	larges int64 // statements that went into files with their commit
	log    []string
}

func (w *pastWorld) note(f string, a ...any) { w.log = append(w.log, fmt.Sprintf(f, a...)) }

func newPastWorld(t *testing.T, seed uint64) *pastWorld {
	w := &pastWorld{t: t, r: rand.New(rand.NewPCG(seed, 5)), fs: vfs.NewCrashableMem()}
	w.o = Options{StageRows: 20, Now: func() time.Time { return time.Now().Add(w.skew) }}
	w.c = testOpen(t, w.fs, w.o)
	ctx := context.Background()
	require.NoError(t, w.c.CreateDatabase(ctx, "d", nil))
	for i := range 5 {
		m := &pastTableModel{name: fmt.Sprint("t", i), rows: map[int32]storage.Row{}, buffered: map[int32]bool{}}
		s := testSpec()
		s.MergeOnRead = i%2 == 1
		if i >= 3 {
			s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
		}
		if i == 4 {
			s.Ordering, s.OrderingField = storage.EventTime, "v"
		}
		var err error
		m.tab, err = w.c.CreateTable(ctx, "d", m.name, s)
		require.NoError(t, err)
		w.tables = append(w.tables, m)
	}
	return w
}

func (w *pastWorld) row(id int32) storage.Row {
	w.v++
	return storage.Row{id, fmt.Sprint("n", w.r.IntN(100)), w.v}
}

// commit changes some rows of some tables.
func (w *pastWorld) commit() {
	ctx := context.Background()
	tx, err := w.c.Begin(ctx)
	require.NoError(w.t, err)
	defer tx.Rollback()
	next := map[*pastTableModel]map[int32]storage.Row{}
	for range 1 + w.r.IntN(6) {
		m := w.tables[w.r.IntN(len(w.tables))]
		if next[m] == nil {
			next[m] = maps.Clone(m.rows)
		}
		id := int32(w.r.IntN(60))
		old, ok := next[m][id]
		row := w.row(id)
		switch {
		case !ok:
			require.NoError(w.t, tx.Insert(ctx, m.tab, row))
			next[m][id] = row
		case w.r.IntN(3) == 0:
			require.NoError(w.t, tx.Delete(ctx, m.tab, old))
			delete(next[m], id)
		default:
			require.NoError(w.t, tx.Update(ctx, m.tab, old, row))
			next[m][id] = row
		}
		w.note("%s: %v → %v", m.name, old, next[m][id])
	}
	require.NoError(w.t, tx.Commit(ctx))
	for m, rows := range next {
		for id := range int32(60) {
			if fmt.Sprint(rows[id]) != fmt.Sprint(m.rows[id]) {
				m.buffered[id] = true
			}
		}
		m.rows = rows
	}
}

// large changes very many rows of a table in one transaction: they go into files with the commit.
func (w *pastWorld) large(m *pastTableModel) {
	if w.behind() {
		return // refused then
	}
	ctx := context.Background()
	tx, err := w.c.Begin(ctx)
	require.NoError(w.t, err)
	defer tx.Rollback()
	next := maps.Clone(m.rows)
	kind := w.r.IntN(3)
	for id := range int32(60) {
		row := w.row(id)
		switch old, ok := next[id]; {
		case !ok && kind != 1:
			require.NoError(w.t, tx.Insert(ctx, m.tab, row))
			next[id] = row
		case ok && kind == 1 && w.r.IntN(2) == 0:
			require.NoError(w.t, tx.Delete(ctx, m.tab, old))
			delete(next, id)
		case ok && kind != 0:
			require.NoError(w.t, tx.Update(ctx, m.tab, old, row))
			next[id] = row
		}
	}
	w.note("%s: large statement %d", m.name, kind)
	before := w.c.Metrics().LargeTotal.Load()
	require.NoError(w.t, tx.Commit(ctx))
	w.larges += w.c.Metrics().LargeTotal.Load() - before
	for id := range int32(60) {
		if fmt.Sprint(next[id]) != fmt.Sprint(m.rows[id]) {
			m.buffered[id] = true // if it was not so large
		}
	}
	m.rows = next
	w.settled()
}

// behind tells whether the wall clock is behind commits, so that nothing is written to the tables.
func (w *pastWorld) behind() bool { return w.c.Clock().Now().Sub(w.o.Now()) > maxAhead }

// settled forgets which keys wait for a flush of tables where none does.
func (w *pastWorld) settled() {
	for _, m := range w.tables {
		if !m.tab.isBuffered() {
			clear(m.buffered)
		}
	}
}

// jump moves the wall clock by hours, or sets it right.
func (w *pastWorld) jump() {
	if w.skew = 0; w.r.IntN(3) > 0 {
		w.skew = time.Duration(w.r.IntN(10*3600)-5*3600) * time.Second
	}
	w.note("the clock is set by %s", w.skew)
}

// forward has the wall clock catch up with the commits.
func (w *pastWorld) forward() {
	if w.behind() {
		w.skew += w.c.Clock().Now().Sub(w.o.Now()) + time.Millisecond
	}
}

// crash ends the warehouse without a stop: what was not synced is lost.
func (w *pastWorld) crash() {
	w.note("crash")
	clone := w.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	w.forward()
	_ = w.c.Close(context.Background())
	w.fs = clone
	w.reopen(testOpen(w.t, w.fs, w.o))
	w.settled()
}

func (w *pastWorld) flush(m *pastTableModel) {
	w.note("flush %s", m.name)
	err := w.c.Flush(context.Background(), "test", m.tab)
	if w.behind() && m.tab.isBuffered() {
		require.ErrorIs(w.t, err, ErrReadOnly)
		return
	}
	require.NoError(w.t, err)
	for _, m := range w.tables {
		if !m.tab.isBuffered() {
			clear(m.buffered)
		}
	}
}

// foreign begins an instant of another writer.
func (w *pastWorld) foreign(m *pastTableModel, a timeline.Action) (*timeline.Pending, storage.InstantTime) {
	ctx := context.Background()
	tl, err := timeline.Load(ctx, w.c.store, m.tab.def.Load().dir)
	require.NoError(w.t, err)
	newest, err := timeline.ParseTime(tl.Newest(), time.UTC)
	if err != nil {
		newest = time.Time{}
	}
	w.c.commitMu.Lock()
	at, _ := w.c.clock.instant(newest)
	w.c.commitMu.Unlock()
	require.NoError(w.t, sleepUntil(ctx, w.o.Now, at))
	it := timeline.FormatTime(at)
	p, err := timeline.Begin(ctx, w.c.store, m.tab.def.Load().dir, a, it, nil)
	require.NoError(w.t, err)
	return p, it
}

// slices reads the table's newest slices as another engine would.
func (w *pastWorld) slices(m *pastTableModel) (*timeline.Timeline, []storage.FileSlice) {
	ctx := context.Background()
	d := m.tab.def.Load()
	tl, err := timeline.Load(ctx, w.c.store, d.dir)
	require.NoError(w.t, err)
	v, err := timeline.BuildView(ctx, w.c.store, d.dir, tl)
	require.NoError(w.t, err)
	return tl, v.Slices("", nil)
}

func (w *pastWorld) read(m *pastTableModel, tl *timeline.Timeline, fs storage.FileSlice) (rows []storage.Row) {
	d := m.tab.def.Load()
	for b, err := range w.c.reader.ReadSlice(context.Background(), d.dir, fs, d.scan(d.spec.Schema, tl.Counts)) {
		require.NoError(w.t, err)
		for i := range b.Rows {
			rows = append(rows, b.Row(i, nil))
		}
	}
	return rows
}

func (w *pastWorld) base(m *pastTableModel, it storage.InstantTime, id storage.FileID, rows []storage.Row) timeline.WriteStat {
	ctx := context.Background()
	d := m.tab.def.Load()
	require.NoError(w.t, timeline.EnsurePartition(ctx, w.c.store, d.dir, "", it))
	name := storage.BaseFileName(id, storage.NewToken(0), it)
	b, err := storage.CreateBase(ctx, w.c.store, d.object("", name), d.spec.Schema, storage.BaseOptions{})
	require.NoError(w.t, err)
	for i, row := range rows {
		require.NoError(w.t, b.Append(storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_0_%d", it, i), Key: fmt.Sprint(row[0])}, row))
	}
	size, err := b.Commit(ctx)
	require.NoError(w.t, err)
	return timeline.WriteStat{FileID: id, Path: name, NumWrites: int64(len(rows)), FileSize: size}
}

func (w *pastWorld) complete(m *pastTableModel, p *timeline.Pending, op string, stats []timeline.WriteStat, replaced []storage.FileID) {
	meta := &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{"": stats}, Operation: op, Compacted: op == timeline.OpCompact,
		Extra: map[string]string{timeline.ExtraSchema: m.tab.def.Load().spec.Schema.Avro(false)},
	}
	if replaced != nil {
		meta.Replaced = map[string][]storage.FileID{"": replaced}
	}
	require.NoError(w.t, p.Complete(context.Background(), meta))
}

// upsert has another writer change, add and delete rows. Rows of the table that wait here show all the same.
func (w *pastWorld) upsert(m *pastTableModel) {
	ctx := context.Background()
	d := m.tab.def.Load()
	tl, slicesNow := w.slices(m)
	action := timeline.Commit
	if d.spec.MergeOnRead {
		action = timeline.DeltaCommit
	}
	p, it := w.foreign(m, action)
	w.remember()
	next := maps.Clone(m.rows)
	var stats []timeline.WriteStat
	shows := func(row storage.Row) {
		if id := row[0].(int32); !m.buffered[id] {
			next[id] = row
		}
	}
	found := map[int32]bool{}
	for _, fs := range slicesNow {
		rows := w.read(m, tl, fs)
		var puts []storage.LogRecord
		changed := false
		for i, row := range rows {
			id := row[0].(int32)
			found[id] = true
			if w.r.IntN(3) > 0 || d.merge == storage.EventTime && m.buffered[id] {
				continue
			}
			changed = true
			rows[i] = w.row(id)
			shows(rows[i])
			puts = append(puts, storage.LogRecord{RowMeta: storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_1_%d", it, i), Key: fmt.Sprint(id)}, Row: rows[i]})
		}
		switch {
		case !changed:
		case d.spec.MergeOnRead:
			version := 0
			for _, l := range fs.Logs {
				version = max(version, l.Version)
			}
			name := storage.LogFileName(fs.ID, fs.Begin, version+1, storage.NewToken(7))
			st, err := storage.WriteLog(ctx, w.c.store, d.object("", name), it, d.spec.Schema, fs.ID, puts, nil)
			require.NoError(w.t, err)
			stats = append(stats, timeline.WriteStat{FileID: fs.ID, Path: name, PrevCommit: fs.Begin, FileSize: st.Bytes, Log: &timeline.LogStat{Version: version + 1, BaseFile: fs.Base.Name}})
		default:
			if len(rows) > 1 && w.r.IntN(2) == 0 { // one row goes
				id := rows[0][0].(int32)
				rows = rows[1:]
				if !m.buffered[id] {
					delete(next, id)
				}
			}
			st := w.base(m, it, fs.ID, rows)
			st.PrevCommit = fs.Begin
			stats = append(stats, st)
		}
	}
	var fresh []storage.Row
	for range w.r.IntN(3) {
		id := int32(60 + w.r.IntN(40)) // of its own
		if !found[id] && !slices.ContainsFunc(fresh, func(r storage.Row) bool { return r[0] == id }) {
			fresh = append(fresh, w.row(id))
			shows(fresh[len(fresh)-1])
		}
	}
	if len(fresh) > 0 {
		stats = append(stats, w.base(m, it, storage.NewFileID(), fresh))
	}
	w.complete(m, p, timeline.OpUpsert, stats, nil)
	w.note("%s: another writer's %s at %s", m.name, action, it)
	m.rows = next
	require.NoError(w.t, m.tab.adopt(ctx))
}

// compact has another writer merge slices, or put their rows into other groups.
func (w *pastWorld) compact(m *pastTableModel) {
	d := m.tab.def.Load()
	tl, list := w.slices(m)
	var stats []timeline.WriteStat
	var replaced []storage.FileID
	action, op := timeline.Compaction, timeline.OpCompact
	if !d.spec.MergeOnRead || w.r.IntN(2) == 0 {
		action, op = timeline.ReplaceCommit, timeline.OpCluster
	}
	var todo []storage.FileSlice
	for _, fs := range list {
		if action == timeline.ReplaceCommit || len(fs.Logs) > 0 {
			todo = append(todo, fs)
		}
	}
	if len(todo) == 0 {
		return
	}
	tlNow := tl
	p, it := w.foreign(m, action)
	for _, fs := range todo {
		rows := w.read(m, tlNow, fs)
		if action == timeline.ReplaceCommit {
			replaced = append(replaced, fs.ID)
			stats = append(stats, w.base(m, it, storage.NewFileID(), rows))
			continue
		}
		stats = append(stats, w.base(m, it, fs.ID, rows))
	}
	w.complete(m, p, op, stats, replaced)
	w.note("%s: another writer's %s at %s", m.name, op, it)
	require.NoError(w.t, m.tab.adopt(context.Background()))
}

// clean has another writer remove every file that the newest slices do not need.
func (w *pastWorld) clean(m *pastTableModel) {
	ctx := context.Background()
	d := m.tab.def.Load()
	tl, list := w.slices(m)
	done := tl.Completed()
	if len(done) == 0 {
		return
	}
	needed := map[string]bool{}
	for _, fs := range list {
		needed[fs.Base.Name] = true
		for _, l := range fs.Logs {
			needed[l.Name] = true
		}
	}
	var gone []string
	for f, err := range w.c.store.List(ctx, d.dir) {
		require.NoError(w.t, err)
		if _, ok := storage.ParseFileName(f.Name); ok && !needed[f.Name] {
			gone = append(gone, f.Name)
			require.NoError(w.t, w.c.store.Remove(ctx, d.object("", f.Name)))
		}
	}
	last := string(done[len(done)-1].Time)
	meta := timeline.CleanMeta{Start: last, EarliestToRetain: last, Partitions: map[string]timeline.CleanPartition{}}
	if w.r.IntN(2) == 0 { // else nobody says what went
		meta.Partitions[""] = timeline.CleanPartition{Deleted: gone}
	}
	b, err := meta.Encode()
	require.NoError(w.t, err)
	newest, err := timeline.ParseTime(tl.Newest(), time.UTC)
	require.NoError(w.t, err)
	w.c.commitMu.Lock()
	at, _ := w.c.clock.instant(newest)
	w.c.commitMu.Unlock()
	require.NoError(w.t, w.c.store.PutNew(ctx, join(d.dir, ".hoodie", string(timeline.FormatTime(at))+".clean"), b))
	w.note("%s: another writer cleans %d files", m.name, len(gone))
	require.NoError(w.t, m.tab.adopt(ctx))
}

func (w *pastWorld) reopen(c *Catalog) {
	w.c = c
	for _, m := range w.tables {
		tab, ok := c.Table("d", m.name)
		require.True(w.t, ok)
		m.tab = tab
	}
}

func (w *pastWorld) remember() {
	at := w.c.Clock().Now()
	for _, m := range w.tables {
		m.past = append(m.past, pastRowsModel{at, m.rows})
	}
}

// compare reads n random times.
func (w *pastWorld) compare(n int, what string) {
	ctx := context.Background()
	for range n {
		i := w.r.IntN(len(w.tables[0].past))
		at := w.tables[0].past[i].at
		s, err := w.c.AsOf(ctx, AsOf{Time: at})
		require.NoError(w.t, err)
		for _, m := range w.tables {
			var want, got []string
			for _, row := range m.past[i].rows {
				want = append(want, fmt.Sprint(row))
			}
			for b, err := range s.Scan(ctx, m.tab, ScanOptions{}) {
				require.NoError(w.t, err, "%s: %s as of %s", what, m.name, at)
				for i := range b.Rows {
					got = append(got, fmt.Sprint(b.Row(i, nil)))
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(want, got) {
				for _, l := range w.log {
					if strings.Contains(l, m.name) || !strings.HasPrefix(l, "t") {
						w.t.Log(l)
					}
				}
			}
			require.Equal(w.t, strings.Join(want, "\n"), strings.Join(got, "\n"), "%s: %s as of %s (time %d)", what, m.name, at.Format(asOfTestLayout), i)
		}
		s.Close()
	}
}

const asOfTestLayout = "15:04:05.000000"

// D11: whatever another writer, its compaction, clustering and cleaner do, and wherever the wall clock goes, the past is what a reader
// at each time saw, also after a restart and after a crash.
func TestPastExact(t *testing.T) {
	ctx := context.Background()
	defer func(n int) { maxLogs = n }(maxLogs)
	maxLogs = 3
	for seed := range envInt("SEEDS", 3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newPastWorld(t, uint64(seed+envInt("SEED", 0)))
			defer func() {
				if err := w.c.Close(ctx); !t.Failed() {
					require.NoError(t, err)
				}
			}()
			steps := envInt("STEPS", 150)
			jumps := seed%3 == 2
			for n := range steps {
				m := w.tables[w.r.IntN(len(w.tables))]
				switch w.r.IntN(16) {
				default:
					w.commit()
				case 0, 1:
					w.flush(m)
				case 2, 3, 4:
					// Files of another writer have the times of this machine's clock, whatever the warehouse's shows. Its instants follow those
					// of the table: it would wait for hours.
					switch {
					case w.c.Clock().Now().Sub(w.o.Now()) > time.Second:
						w.commit()
					case n%2 == 0:
						w.upsert(m)
					case n%4 == 1:
						w.compact(m)
					default:
						w.clean(m)
					}
				case 5:
					w.large(m)
				case 6:
					if jumps {
						w.jump()
					}
				case 7:
					if w.r.IntN(3) == 0 {
						w.crash()
					}
				case 8:
					if w.r.IntN(3) == 0 {
						w.note("reopen")
						w.forward()
						require.NoError(t, w.c.Close(ctx))
						for _, m := range w.tables {
							clear(m.buffered)
						}
						w.reopen(testOpen(t, w.fs, w.o))
					}
				}
				w.note("time %d", len(w.tables[0].past))
				w.remember()
				if n%25 == 24 {
					w.compare(15, fmt.Sprint("step ", n))
				}
			}
			w.compare(envInt("TIMES", 60), "at the end")
			require.Positive(t, w.larges)
			w.forward()
		})
	}
}
