package catalog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// engines is a running `oracle.py serve`: Spark with Hudi, and hudi-rs, behind JSON lines.
type engines struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
	log *bytes.Buffer
}

var theEngines = sync.OnceValues(func() (*engines, error) {
	cache := os.Getenv("LAKESQL_ORACLE_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(home, ".cache", "lakesql-oracle")
	}
	e := &engines{log: &bytes.Buffer{}}
	cmd := exec.Command(filepath.Join(cache, "venv", "bin", "python"), "../testdata/oracle/oracle.py", "serve") // ends with this process
	cmd.Stderr = e.log
	var err error
	if e.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = bufio.NewReaderSize(out, 1<<20)
	return e, cmd.Start()
})

func startEngines(t *testing.T) *engines {
	t.Helper()
	if os.Getenv("LAKESQL_INTEROP") == "" {
		t.Skip("needs other engines: run `make interop`")
	}
	e, err := theEngines()
	require.NoError(t, err, "testdata/oracle/setup.sh has not installed the engines")
	return e
}

func (e *engines) ask(t *testing.T, request map[string]any) []map[string]any {
	t.Helper()
	rows, err := e.try(request)
	require.NoError(t, err, "%v", request["op"])
	return rows
}

// try is ask where the engine may refuse.
func (e *engines) try(request map[string]any) ([]map[string]any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if _, err = e.in.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("%w: %s", err, e.log)
	}
	line, err := e.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, e.log)
	}
	var a struct {
		OK    bool             `json:"ok"`
		Error string           `json:"error"`
		Rows  []map[string]any `json:"rows"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		return nil, err
	}
	if !a.OK {
		return nil, errors.New(a.Error)
	}
	for _, m := range a.Rows {
		normal(m)
	}
	return a.Rows, nil
}

func (e *engines) read(t *testing.T, engine string, tab *Table, more map[string]any) []map[string]any {
	r := map[string]any{"op": "read", "engine": engine, "table": tab.Location()}
	maps.Copy(r, more)
	return e.ask(t, r)
}

// sameAsEngines compares a table with what both engines read of it, now and as of its newest instants.
func sameAsEngines(t *testing.T, e *engines, c *Catalog, tab *Table, past int, what string) {
	t.Helper()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	ours, err := scanJSON(tx.Scan(ctx, tab, ScanOptions{}))
	require.NoError(t, err)
	if _, at := metas(t, c, tab); len(at) == 0 {
		require.Empty(t, ours)
		return
	}
	for _, engine := range []string{"hudi-rs", "spark"} {
		same(t, ours, e.read(t, engine, tab, nil), "%s: %s by %s", what, tab, engine)
	}
	_, at := metas(t, c, tab)
	for i := range min(past, len(at)) {
		in := at[len(at)-1-i]
		s, err := c.AsOf(ctx, AsOf{Instant: string(in.Time)})
		require.NoError(t, err)
		ours, err := scanJSON(s.Scan(ctx, tab, ScanOptions{}))
		s.Close()
		require.NoError(t, err)
		same(t, ours, e.read(t, "spark", tab, map[string]any{"as_of": string(in.Time)}), "%s: %s as of %s", what, tab, in.Time)
	}
}

// same compares rows; a column that one side does not have is NULL on the other.
func same(t *testing.T, ours, theirs []map[string]any, f string, a ...any) {
	t.Helper()
	list := func(rows []map[string]any) []string {
		out := []string{}
		for _, m := range rows {
			m = maps.Clone(m)
			maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
			b, err := json.Marshal(m)
			require.NoError(t, err)
			out = append(out, string(b))
		}
		sort.Strings(out)
		return out
	}
	x, y := list(ours), list(theirs)
	if slices.Equal(x, y) {
		return
	}
	var diff []string
	for _, l := range x {
		if !slices.Contains(y, l) {
			diff = append(diff, "- ours   "+l)
		}
	}
	for _, l := range y {
		if !slices.Contains(x, l) {
			diff = append(diff, "+ theirs "+l)
		}
	}
	require.Fail(t, "rows differ", "%s: %d and %d rows\n%s", fmt.Sprintf(f, a...), len(x), len(y), strings.Join(diff[:min(len(diff), 20)], "\n"))
}

// D1, D6, D10, D12, D18: tables of every form, written by random transactions, are read alike by Spark and hudi-rs, now and as of their instants.
// Odd seeds write through the files of large statements.
func TestInteropRead(t *testing.T) {
	e := startEngines(t)
	for seed := range envInt("SEEDS", 2) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			ctx := context.Background()
			w := &world{t: t, r: rand.New(rand.NewPCG(uint64(seed), 77)), fs: vfs.Default, o: Options{SortKey: foldKey}}
			if seed%2 == 1 { // what changes more than a few rows of a table goes into files at its commit
				w.o.StageRows = 2
			}
			var err error
			w.c, err = Open(ctx, filepath.Join(t.TempDir(), "data"), w.o)
			require.NoError(t, err)
			defer func() { require.NoError(t, w.c.Close(ctx)) }()
			require.NoError(t, w.c.CreateDatabase(ctx, "d", nil))
			for i, s := range modelSpecs(w.r) {
				m := &modelTable{name: fmt.Sprint("table", i), rows: map[string]storage.Row{}}
				m.tab, err = w.c.CreateTable(ctx, "d", m.name, s)
				require.NoError(t, err)
				w.tables = append(w.tables, m)
				t.Logf("%s: mor %v key %v partition %v hive %v per partition %v event %v", m.name, s.MergeOnRead, s.Key, s.Partition, s.HiveStyle, s.PerPartition, s.Ordering)
			}
			for round := range envInt("ROUNDS", 3) {
				for range 60 {
					x := w.begin()
					w.run(x, 1+w.r.IntN(6))
					w.commit(x)
					if w.r.IntN(10) == 0 {
						w.flush()
					}
				}
				if round > 0 {
					w.alter(plainEdits)
				}
				require.NoError(t, w.c.Flush(ctx, "test"))
				for _, m := range w.tables {
					past := 3
					if round > 0 {
						past = 0 // columns have changed: engines show those of the time
					}
					sameAsEngines(t, e, w.c, m.tab, past, fmt.Sprint("round ", round))
				}
			}
			if w.o.StageRows > 0 {
				m := w.c.Metrics()
				require.Greater(t, m.LargeTotal.Load(), int64(20))
				require.Greater(t, m.StagedTotal.Load(), int64(50))
			}
		})
	}
}

// D8, D12, D27: Spark and lakesql write to one table in turns; each sees what the other wrote, without a restart.
func TestInteropTurns(t *testing.T) {
	e := startEngines(t)
	rounds := envInt("ROUNDS", 20)
	defer func(n int) { maxLogs = n }(maxLogs)
	maxLogs = 4
	for n := range 8 {
		mor, part, event := n&1 > 0, n&2 > 0, n&4 > 0
		t.Run(fmt.Sprint("mor=", mor, " partition=", part, " event=", event), func(t *testing.T) {
			ctx := context.Background()
			c, err := Open(ctx, filepath.Join(t.TempDir(), "data"), Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead = mor
				if part {
					s.Partition = []string{"name"}
				}
				if event {
					s.Ordering, s.OrderingField = storage.EventTime, "v"
				}
			})
			r := rand.New(rand.NewPCG(uint64(n), 9))
			model := map[int32]storage.Row{}
			buffered := map[int32]bool{}
			clock := int64(1000)
			make1 := func(id int32) storage.Row {
				clock++
				name := fmt.Sprint("p", r.IntN(3))
				if part {
					name = fmt.Sprint("p", id%3) // Spark upserts a key within its partition
				}
				return storage.Row{id, name, clock}
			}
			check := func(what string) {
				t.Helper()
				var want []string
				for _, row := range model {
					want = append(want, fmt.Sprint(row))
				}
				sort.Strings(want)
				got := strings.ReplaceAll(scanAll(t, c, tab), "] [", "]\n[")
				require.Equal(t, strings.Join(want, "\n"), got, what)
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback()
				for id := range int32(40) {
					row, ok, err := tx.Get(ctx, tab, storage.Row{id})
					require.NoError(t, err)
					want, exists := model[id]
					require.Equal(t, exists, ok, "%s: key %d", what, id)
					if ok {
						require.Equal(t, want, row, what)
					}
				}
			}
			for round := range rounds {
				what := fmt.Sprint("round ", round)
				inTx(t, c, func(tx *Tx) {
					for range 6 {
						id := int32(r.IntN(40))
						old, ok := model[id]
						switch {
						case !ok:
							row := make1(id)
							require.NoError(t, tx.Insert(ctx, tab, row))
							model[id] = row
						case r.IntN(3) == 0:
							require.NoError(t, tx.Delete(ctx, tab, old))
							delete(model, id)
						default:
							row := make1(id)
							require.NoError(t, tx.Update(ctx, tab, old, row))
							model[id] = row
						}
						buffered[id] = true
					}
				})
				if round == 0 || r.IntN(2) == 0 {
					flushAll(t, c)
					clear(buffered)
				}
				check(what + " before Spark")
				var rows []map[string]any
				op := "upsert"
				if r.IntN(4) == 0 && len(model) > 8 {
					op = "delete"
				}
				for _, i := range r.Perm(40)[:5] {
					id := int32(i)
					old, ok := model[id]
					if op == "delete" && (!ok || event && buffered[id]) {
						continue
					}
					row := make1(id)
					if ok && event && op == "upsert" && r.IntN(3) == 0 {
						row[2] = old[2].(int64) - 500 // late
					}
					rows = append(rows, map[string]any{"id": row[0], "name": row[1], "v": row[2]})
					switch {
					case op == "delete":
						if !buffered[id] {
							delete(model, id)
						}
					case event && !ok && buffered[id]:
						rows = rows[:len(rows)-1] // deleted here and not flushed: who wins is open
					case event:
						if !ok || row[2].(int64) >= old[2].(int64) {
							model[id] = row
						}
					case !buffered[id]:
						model[id] = row
					}
				}
				if len(rows) > 0 {
					e.ask(t, map[string]any{"op": "write", "table": tab.Location(), "operation": op, "rows": rows})
				}
				check(what + " after Spark's " + op)
				if r.IntN(2) == 0 {
					inTx(t, c, func(tx *Tx) {
						for range 3 {
							id := int32(r.IntN(40))
							if old, ok := model[id]; ok {
								row := make1(id)
								require.NoError(t, tx.Update(ctx, tab, old, row), what)
								model[id] = row
							}
						}
					})
				}
				flushAll(t, c)
				clear(buffered)
				check(what + " after the flush")
				past := 0
				if round%5 == 4 {
					past = 3
				}
				sameAsEngines(t, e, c, tab, past, what)
			}
			tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
			require.NoError(t, err)
			require.Empty(t, tl.Pending())
		})
	}
}
