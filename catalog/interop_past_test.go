package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// sparkKeys is the first key of those that only Spark writes.
const sparkKeys = 100_000

// timeState is what one of the two writers made of a table's rows, and from when on: before `from` they are not there, at `by` they are.
type timeState struct {
	from, by index.Seq
	rows     map[int32]string
}

// timeTable is a table with its states in the order of time. The writers have keys of their own.
type timeTable struct {
	tab    *Table
	parted bool
	rows   map[int32]storage.Row // of lakesql
	spark  map[int32]storage.Row

	mu   sync.Mutex
	past map[string][]timeState // by writer; guarded by mu
}

func (m *timeTable) note(writer string, from, by index.Seq, rows map[int32]storage.Row) {
	s := timeState{from: from, by: by, rows: map[int32]string{}}
	for id, row := range rows {
		s.rows[id] = fmt.Sprint(row)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past[writer] = append(m.past[writer], s)
}

// at gives the states that a writer's rows may have had at a time: two while it was at work.
func (m *timeTable) at(writer string, seq index.Seq) (out []map[int32]string) {
	out = append(out, map[int32]string{})
	for _, s := range m.past[writer] {
		switch {
		case s.by <= seq:
			out = []map[int32]string{s.rows}
		case s.from <= seq:
			out = append(out, s.rows)
		}
	}
	return out
}

// timeWorld is a warehouse whose clients go on to commit while Spark writes.
type timeWorld struct {
	t      *testing.T
	e      *engines
	c      *Catalog
	tables []*timeTable
	v      int64
	sum    struct{ commits, large, flushes, instants, conflicts int }
}

func (w *timeWorld) row(m *timeTable, r *rand.Rand, id int32, v int64) storage.Row {
	name := fmt.Sprint("n", r.IntN(20))
	if m.parted {
		name = hotPart(id) // Spark finds a key in its partition
	}
	return storage.Row{id, name, v}
}

// commit changes rows of some tables in one transaction.
func (w *timeWorld) commit(r *rand.Rand) error {
	ctx := context.Background()
	tx, err := w.c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	next := map[*timeTable]map[int32]storage.Row{}
	for range 1 + r.IntN(5) {
		m := w.tables[r.IntN(len(w.tables))]
		if next[m] == nil {
			next[m] = maps.Clone(m.rows)
		}
		id := int32(r.IntN(80))
		old, ok := next[m][id]
		w.v++
		row := w.row(m, r, id, w.v)
		switch {
		case !ok:
			err = tx.Insert(ctx, m.tab, row)
			next[m][id] = row
		case r.IntN(3) == 0:
			err = tx.Delete(ctx, m.tab, old)
			delete(next[m], id)
		default:
			err = tx.Update(ctx, m.tab, old, row)
			next[m][id] = row
		}
		if err != nil {
			return err
		}
	}
	return w.end(tx, next)
}

// large adds many rows in one statement and changes a few others.
func (w *timeWorld) large(r *rand.Rand, m *timeTable, n int) error {
	ctx := context.Background()
	tx, err := w.c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	next := maps.Clone(m.rows)
	b := storage.NewBuilder(m.tab.Spec().Schema)
	from := int32(1000 * (1 + w.sum.large))
	for id := from; id < from+int32(n); id++ {
		w.v++
		next[id] = w.row(m, r, id, w.v)
		if err := b.Append(next[id]); err != nil {
			return err
		}
	}
	bulk, err := tx.BulkInsert(ctx, m.tab, DuplicateFail)
	if err != nil {
		return err
	}
	if err := bulk.Append(b.Batch()); err != nil {
		bulk.Abort()
		return err
	}
	if _, err := bulk.Finish(); err != nil {
		return err
	}
	for _, id := range []int32{from, from + 1, from - 999} { // staged ones of this statement and of the one before
		if old, ok := next[id]; ok {
			w.v++
			next[id] = w.row(m, r, id, w.v)
			if err := tx.Update(ctx, m.tab, old, next[id]); err != nil {
				return err
			}
		}
	}
	w.sum.large++
	return w.end(tx, map[*timeTable]map[int32]storage.Row{m: next})
}

func (w *timeWorld) end(tx *Tx, next map[*timeTable]map[int32]storage.Row) error {
	before := w.c.clock.read()
	if err := tx.Commit(context.Background()); err != nil {
		return err
	}
	shown := index.Seq(w.c.Clock().Now().UnixMicro())
	for m, rows := range next {
		m.rows = rows
		m.note("lakesql", before+1, shown, rows)
	}
	w.sum.commits++
	return nil
}

// beside runs a request of Spark's while commits go on.
func (w *timeWorld) beside(r *rand.Rand, do func()) {
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := w.commit(r); errors.Is(err, ErrConflict) {
				w.sum.conflicts++ // an adoption moved the rows
			} else if err != nil {
				done <- err
				return
			}
		}
	}()
	defer func() { require.NoError(w.t, <-done) }()
	defer close(stop)
	do()
}

// spark has Spark write rows. They show from the completion of the instant on, or from when this warehouse met it.
func (w *timeWorld) spark(m *timeTable, r *rand.Rand, op string) {
	next := maps.Clone(m.spark)
	var rows []map[string]any
	for range 6 {
		id := sparkKeys + int32(r.IntN(25))
		old, ok := next[id]
		row := w.row(m, r, id, 1<<40+int64(w.sum.instants*100+len(rows)))
		switch {
		case op == "upsert":
			next[id] = row
		case !ok:
			continue
		default:
			row[1] = old[1]
			delete(next, id)
		}
		rows = append(rows, map[string]any{"id": row[0], "name": row[1], "v": row[2]})
	}
	if len(rows) == 0 {
		return
	}
	ctx := context.Background()
	completed := func() []timeline.Instant {
		tl, err := timeline.Load(ctx, w.c.store, m.tab.def.Load().dir)
		require.NoError(w.t, err)
		return tl.Completed()
	}
	before := completed()
	w.e.ask(w.t, map[string]any{"op": "write", "table": m.tab.Location(), "operation": op, "rows": rows})
	var done time.Time // of the write; a compaction may follow it
	for _, in := range completed() {
		if !slices.Contains(before, in) && in.Action != timeline.Compaction && done.IsZero() {
			var err error
			done, err = timeline.ParseTime(in.Completed, time.UTC)
			require.NoError(w.t, err)
		}
	}
	require.NoError(w.t, m.tab.adopt(ctx))
	m.note("spark", index.Seq(done.UnixMicro()), index.Seq(w.c.Clock().Now().UnixMicro()), next)
	m.spark = next
	w.sum.instants++
}

func (w *timeWorld) sql(m *timeTable, q string) {
	w.e.ask(w.t, map[string]any{"op": "sql", "table": m.tab.Location(), "statements": []string{q}})
	require.NoError(w.t, m.tab.adopt(context.Background()))
	w.sum.instants++
}

// compare reads every table at a time and looks for the states that it may have had then.
func (w *timeWorld) compare(seq index.Seq) {
	ctx := context.Background()
	s, err := w.c.AsOf(ctx, AsOf{Time: seqTime(seq)})
	require.NoError(w.t, err)
	defer s.Close()
	for _, m := range w.tables {
		got := map[string][]string{}
		for b, err := range s.Scan(ctx, m.tab, ScanOptions{}) {
			require.NoError(w.t, err, "%s as of %s", m.tab, seqTime(seq))
			for i := range b.Rows {
				row := b.Row(i, nil)
				writer := "lakesql"
				if row[0].(int32) >= sparkKeys {
					writer = "spark"
				}
				got[writer] = append(got[writer], fmt.Sprint(row))
			}
		}
		for _, writer := range []string{"lakesql", "spark"} {
			slices.Sort(got[writer])
			var want []string
			for _, rows := range m.at(writer, seq) {
				text := strings.Join(slices.Sorted(maps.Values(rows)), "\n")
				if text == strings.Join(got[writer], "\n") {
					want = nil
					break
				}
				want = append(want, text)
			}
			if want != nil {
				require.Equal(w.t, want[len(want)-1], strings.Join(got[writer], "\n"), "%s as of %s: rows of %s, %d states are possible",
					m.tab, seqTime(seq), writer, len(want))
			}
		}
	}
}

// now compares what every table shows at present.
func (w *timeWorld) now(what string) {
	tx, err := w.c.Begin(context.Background())
	require.NoError(w.t, err)
	defer tx.Rollback()
	for _, m := range w.tables {
		want, got := map[int32]string{}, map[int32]string{}
		for _, rows := range []map[int32]storage.Row{m.rows, m.spark} {
			for id, row := range rows {
				want[id] = fmt.Sprint(row)
			}
		}
		for b, err := range tx.Scan(context.Background(), m.tab, ScanOptions{}) {
			require.NoError(w.t, err)
			for i := range b.Rows {
				row := b.Row(i, nil)
				got[row[0].(int32)] = fmt.Sprint(row)
			}
		}
		require.Equal(w.t, want, got, "%s now, %s", m.tab, what)
	}
}

// D8, D11, D12: at any time of the past every table is what its readers saw then, whatever clients committed and Spark wrote, merged,
// clustered and cleaned beside them; and what is kept of the past does not disturb the engines.
func TestInteropTime(t *testing.T) {
	e := startEngines(t)
	ctx := context.Background()
	defer func(n int) { maxLogs = n }(maxLogs)
	maxLogs = 3
	root := filepath.Join(t.TempDir(), "data")
	c, err := Open(ctx, root, Options{})
	require.NoError(t, err)
	w := &timeWorld{t: t, e: e, c: c}
	defer func() { require.NoError(t, w.c.Close(ctx)) }()
	r := rand.New(rand.NewPCG(uint64(envInt("SEED", 1)), 11))
	for i := range 5 {
		m := &timeTable{parted: i == 2 || i == 3, rows: map[int32]storage.Row{}, spark: map[int32]storage.Row{}, past: map[string][]timeState{}}
		m.tab = newTable(t, c, fmt.Sprint("t", i), func(s *TableSpec) {
			s.MergeOnRead = i%2 == 1
			if m.parted {
				s.Partition = []string{"name"}
			}
			if i == 4 {
				s.MergeOnRead, s.Ordering, s.OrderingField = true, storage.EventTime, "v"
			}
			if i == 0 {
				s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
			}
		})
		w.tables = append(w.tables, m)
	}
	first := index.Seq(c.Clock().Now().UnixMicro()) + 1
	for range 20 {
		require.NoError(t, w.commit(r))
	}
	require.NoError(t, c.Flush(ctx, "test"))
	rounds := envInt("ROUNDS", 2)
	for round := range rounds {
		for i, m := range w.tables {
			for range 10 {
				require.NoError(t, w.commit(r))
			}
			if i == round%len(w.tables) {
				require.NoError(t, w.large(r, m, 200))
			}
			if r.IntN(3) > 0 {
				require.NoError(t, c.Flush(ctx, "test", m.tab))
				w.sum.flushes++
				w.now(fmt.Sprintf("round %d, table %d flushed", round, i))
			}
			w.beside(r, func() {
				op := "upsert"
				if round%3 == 1 {
					op = "delete"
				}
				switch n := (round + i) % 4; {
				case n == 0 && round > 0 && m.tab.def.Load().spec.MergeOnRead:
					w.sql(m, "call run_compaction(op => 'scheduleAndExecute', table => '{t}', options => 'hoodie.compact.inline.max.delta.commits=1')")
				case n == 0 && round > 0:
					w.sql(m, "call run_clustering(op => 'scheduleAndExecute', table => '{t}')")
				case n == 1 && round > 0:
					w.sql(m, "call run_clean(table => '{t}', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)")
				default:
					w.spark(m, r, op)
				}
			})
			w.now(fmt.Sprintf("round %d, table %d", round, i))
		}
	}
	require.NoError(t, c.Flush(ctx, "test"))
	for _, m := range w.tables {
		w.sql(m, "call run_clean(table => '{t}', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)")
	}
	w.now("at the end")
	last := index.Seq(c.Clock().Now().UnixMicro())
	times := envInt("TIMES", 40)
	begun := time.Now()
	for n := range times {
		if n == times/2 { // half of them after a restart
			require.NoError(t, w.c.Close(ctx))
			w.c, err = Open(ctx, root, Options{})
			require.NoError(t, err)
			for i, m := range w.tables {
				m.tab, _ = w.c.Table("d", fmt.Sprint("t", i))
			}
		}
		w.compare(first + index.Seq(r.Uint64N(uint64(last-first))))
	}
	t.Logf("%d times in %s compared in %s: %d commits (%d refused beside adoptions), %d large statements, %d flushes, %d instants of Spark, %d bytes kept",
		times, seqTime(last).Sub(seqTime(first)).Round(time.Millisecond), time.Since(begun).Round(time.Millisecond), w.sum.commits, w.sum.conflicts,
		w.sum.large, w.sum.flushes, w.sum.instants, w.c.Metrics().KeptBytes.Load())
	require.Positive(t, w.c.Metrics().KeptBytes.Load(), "the engines are to meet what is kept of the past")
	for _, m := range w.tables {
		sameAsEngines(t, e, w.c, m.tab, 0, "at the end")
		w.spark(m, r, "upsert")
		sameAsEngines(t, e, w.c, m.tab, 0, "after an upsert over it")
	}
}
