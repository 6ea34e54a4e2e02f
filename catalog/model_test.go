package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// The random model test: a warehouse beside what it must hold, kept in memory. model_rows_test.go makes tables and rows,
// model_tx_test.go transactions, model_ddl_test.go changes of definitions, model_foreign_test.go what other engines write,
// model_time_test.go restarts, crashes and jumps of the clock; model_compare_test.go compares.

// envInt reads the size of a long check.
func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return def
}

// modelTable is what a table must hold, kept in memory.
type modelTable struct {
	name    string
	tab     *Table
	rows    map[string]storage.Row // by key, in a form of the model's own
	past    []pastState
	keyless int // rows made so far, which names the rows of a table without a key
	grown   int // columns and indexes added so far
}

type pastState struct {
	at   time.Time
	rows map[string]storage.Row
}

// world is a warehouse with its model.
type world struct {
	t       *testing.T
	r       *rand.Rand
	c       *Catalog
	fs      vfs.FS
	o       Options
	tables  []*modelTable
	dropped []*modelTable // that can be brought back, the last one dropped last
	made    int           // names given to tables so far
	skew    time.Duration // of the wall clock
	jumps   bool          // the wall clock jumps; if not, other engines write
	log     []string
	did     map[string]int // what happened, for the report
}

func (w *world) note(f string, a ...any) { w.log = append(w.log, fmt.Sprintf(f, a...)) }

// count notes that something happened, so that a test that does not do it any more is seen.
func (w *world) count(what string) {
	if w.did == nil {
		w.did = map[string]int{}
	}
	w.did[what]++
}

// remember notes the state of all tables at a time that no commit shares.
func (w *world) remember() {
	at := w.c.Clock().Now()
	for _, m := range w.tables {
		m.past = append(m.past, pastState{at, m.rows})
	}
}

// any gives one of the tables.
func (w *world) any() *modelTable { return w.tables[w.r.IntN(len(w.tables))] }

// D2, D3, D8, D12: random transactions over tables of every form, with savepoints, large statements, flushes, restarts, crashes, jumps of
// the clock, changes of definitions, tables that are made, renamed, dropped and brought back, instants of other engines and conflicts,
// leave what a model in memory says, now and as of every time in the past. MODEL_TIME makes it go on with further seeds for that long.
func TestModel(t *testing.T) {
	seeds, first, steps := envInt("SEEDS", 3), envInt("SEED", 1), envInt("STEPS", 250)
	long, err := time.ParseDuration(os.Getenv("MODEL_TIME"))
	require.True(t, err == nil || os.Getenv("MODEL_TIME") == "", "MODEL_TIME is a duration")
	end := time.Now().Add(long)
	did, n := map[string]int{}, 0
	for seed := first; seed < first+seeds || time.Now().Before(end) && !t.Failed(); seed++ {
		n++
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { runModel(t, uint64(seed), steps, did) })
	}
	t.Logf("seeds %d to %d, %d steps each: %v", first, first+n-1, steps, did)
	if steps*n >= 600 && !t.Failed() {
		for _, what := range []string{
			"commit", "rollback", "savepoint", "load", "two at a time", "late", "flush", "reopen", "crash", "clock", "truncate", "alter", "refused alter", "rename", "swap",
			"drop", "undrop", "create", "create like", "create select", "foreign write", "foreign rewrite", "open scan",
		} {
			require.Positive(t, did[what], what)
		}
	}
}

func runModel(t *testing.T, seed uint64, steps int, did map[string]int) {
	ctx := context.Background()
	if seed%3 == 0 { // what large statements keep in memory goes to files of its own at once
		smallMemory(t)
	}
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewCrashableMem(), jumps: seed%4 == 3, did: did}
	w.o = Options{SortKey: foldKey, Now: func() time.Time { return time.Now().Add(w.skew) }, JournalWindow: 1000 * time.Hour, DropRetention: 1000 * time.Hour}
	if seed%2 == 0 { // what changes more than a few rows of a table goes into files at its commit
		w.o.StageRows = 2
	}
	w.c = testOpen(t, w.fs, w.o)
	require.NoError(t, w.c.CreateDatabase(ctx, "d", nil))
	for _, s := range modelSpecs(w.r) {
		w.create(s)
	}
	w.remember()
	defer func() {
		if t.Failed() {
			for _, m := range w.tables {
				s := m.tab.Spec()
				t.Logf("%s: mor %v key %v partition %v hive %v per partition %v event %v indexes %v", m.name, s.MergeOnRead, s.Key, s.Partition, s.HiveStyle, s.PerPartition, s.Ordering, s.Indexes)
			}
		}
		w.forward()
		require.NoError(t, w.c.Close(ctx))
	}()
	every := envInt("EVERY", 50)
	for n := 1; n <= steps; n++ {
		w.note("step %d", n)
		w.oneStep()
		w.remember()
		if n%every == 0 {
			w.compare()
		}
	}
	w.compare()
	if w.jumps {
		w.forward()
		w.flush() // Check names flushes that were refused
		require.NoError(t, w.c.Flush(ctx, "test"))
	}
	w.check()
}

// oneStep does one random thing.
func (w *world) oneStep() {
	switch w.r.IntN(18) {
	default:
		x := w.begin()
		w.run(x, 1+w.r.IntN(6))
		if w.r.IntN(6) == 0 {
			x.tx.Rollback()
			w.log = append(append(w.log, x.events...), "rolled back")
			w.count("rollback")
		} else {
			w.commit(x)
		}
	case 0, 1: // two at a time
		w.count("two at a time")
		a, b := w.begin(), w.begin()
		a.paired, b.paired = true, true
		w.run(a, 1+w.r.IntN(4))
		b.beside = a
		w.run(b, 1+w.r.IntN(4))
		w.commit(a)
		if w.r.IntN(3) == 0 {
			w.flush()
		}
		w.commit(b, a)
	case 2:
		w.late()
	case 3:
		w.flush()
	case 4:
		switch w.r.IntN(8) {
		case 0:
			w.reopen()
		case 1:
			w.crash()
		}
	case 5:
		if w.r.IntN(6) == 0 {
			w.truncate()
		}
	case 6, 7:
		if w.r.IntN(2) == 0 {
			w.overScan(func() { w.alter(allEdits) })
		}
	case 8:
		w.overScan(w.tablesStep)
	case 9, 10:
		switch {
		case w.jumps:
			w.jump()
		case w.r.IntN(2) == 0:
			w.foreign()
		}
	}
}

func (w *world) flush() {
	var some []*Table
	if w.r.IntN(2) == 0 {
		some = append(some, w.any().tab)
	}
	w.note("flush %v", some)
	w.count("flush")
	require.NoError(w.t, w.c.Flush(context.Background(), "test", some...))
}
