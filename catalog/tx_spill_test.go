package catalog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// smallMemory has large statements keep hardly anything in memory.
func smallMemory(t testing.TB) {
	tx, sorts, keys, rows := txMemoryBytes, sorterBytes, keyTableBytes, spillBytes
	txMemoryBytes, sorterBytes, keyTableBytes, spillBytes = 3000, 400, 300, 300
	t.Cleanup(func() { txMemoryBytes, sorterBytes, keyTableBytes, spillBytes = tx, sorts, keys, rows })
}

// A transaction whose writes do not fit in memory reads, rolls back to savepoints, finds duplicates and commits as any other: rows of
// files and of the hot tier, rows that it has loaded itself, in any order and several times each.
func TestSpilledWrites(t *testing.T) {
	smallMemory(t)
	for seed := range uint64(envInt("SPILL_SEEDS", 4)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { spilledWrites(t, seed) })
	}
}

func spilledWrites(t *testing.T, seed uint64) {
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(seed, 5))
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{StageRows: 4})
	tab := newTable(t, c, "t", func(s *TableSpec) {
		s.MergeOnRead = seed%2 == 0
		s.Indexes = []IndexSpec{{Name: "u", Columns: []KeyColumn{{Column: "name"}}, Unique: true}, {Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
		if seed%4 == 3 {
			s.Indexes = nil
		}
	})
	type values struct {
		name string
		v    int64
	}
	have := map[int32]values{}
	full := func(k int32, v values) storage.Row { return row(k, v.name, v.v) }
	const keys = 300
	for range 6 {
		if rnd.IntN(2) == 0 { // some rows that wait in the hot tier
			inTx(t, c, func(tx *Tx) {
				for range 3 {
					k := rnd.Int32N(keys)
					v := values{fmt.Sprint("hot", k, "-", rnd.IntN(1<<30)), rnd.Int64N(40)}
					if old, ok := have[k]; ok {
						require.NoError(t, tx.Update(ctx, tab, full(k, old), full(k, v)))
					} else {
						require.NoError(t, tx.Insert(ctx, tab, full(k, v)))
					}
					have[k] = v
				}
			})
		}
		before := maps.Clone(have)
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		type state struct {
			mark Mark
			rows map[int32]values
		}
		var states []state
		for range 300 {
			switch k := rnd.Int32N(keys); rnd.IntN(20) {
			default:
				v := values{fmt.Sprint(k, "-", rnd.IntN(3)), rnd.Int64N(40)}
				if old, ok := have[k]; ok {
					require.NoError(t, tx.Update(ctx, tab, full(k, old), full(k, v)))
				} else {
					require.NoError(t, tx.Insert(ctx, tab, full(k, v)))
				}
				have[k] = v
			case 0, 1, 2:
				if old, ok := have[k]; ok {
					require.NoError(t, tx.Delete(ctx, tab, full(k, old)))
					delete(have, k)
				}
			case 3: // the key changes
				to := rnd.Int32N(keys)
				if old, ok := have[k]; ok {
					if _, taken := have[to]; !taken {
						require.NoError(t, tx.Update(ctx, tab, full(k, old), full(to, values{fmt.Sprint("moved", to), old.v})))
						delete(have, k)
						have[to] = values{fmt.Sprint("moved", to), old.v}
					}
				}
			case 4: // keys and UNIQUE values that are taken
				if _, ok := have[k]; ok {
					var dup *DuplicateKeyError
					require.ErrorAs(t, tx.Insert(ctx, tab, row(k, "new", 1)), &dup)
					require.Equal(t, full(k, have[k]), dup.Existing)
					if tab.def.Load().indexes != nil {
						require.ErrorAs(t, tx.Insert(ctx, tab, row(keys+k, have[k].name, 1)), &dup)
						require.Equal(t, "u", dup.Index)
					}
				}
			case 5:
				if n := len(states) - 1; n >= 0 && rnd.IntN(2) == 0 {
					require.NoError(t, tx.RollbackTo(states[n].mark))
					have, states = states[n].rows, states[:n]
					break
				}
				states = append(states, state{tx.Mark(), maps.Clone(have)})
			case 6:
				b, err := tx.BulkInsert(ctx, tab, DuplicateReplace)
				require.NoError(t, err)
				build := storage.NewBuilder(tab.Spec().Schema)
				for range rnd.IntN(20) {
					k := rnd.Int32N(keys)
					v := values{fmt.Sprint("bulk", k), rnd.Int64N(40)}
					require.NoError(t, build.Append(full(k, v)))
					have[k] = v
				}
				require.NoError(t, b.Append(build.Batch()))
				_, err = b.Finish()
				require.NoError(t, err)
			}
			if rnd.IntN(15) > 0 {
				continue
			}
			o, rows := ScanOptions{}, have
			if len(states) > 0 && rnd.IntN(2) == 0 {
				s := states[rnd.IntN(len(states))]
				o.UseMark, o.Mark, rows = true, s.mark, s.rows
			}
			if rnd.IntN(3) == 0 {
				o.Lock = LockExclusive
			}
			read := tx.Scan(ctx, tab, o)
			in := func(int32, values) bool { return true }
			low := rnd.Int64N(40)
			switch n := rnd.IntN(3); {
			case n == 0:
				read = tx.Lookup(ctx, tab, "", []KeyRange{{Low: storage.Row{int32(low)}, High: storage.Row{int32(5 * low)}}}, o)
				in = func(k int32, _ values) bool { return int64(k) >= low && int64(k) <= 5*low }
			case n == 1 && tab.def.Load().indexes != nil:
				read = tx.Lookup(ctx, tab, "by_v", []KeyRange{{Low: storage.Row{low}, High: storage.Row{low + 3}}}, o)
				in = func(_ int32, v values) bool { return v.v >= low && v.v <= low+3 }
			}
			got, want := []string{}, []string{}
			for k, v := range rows {
				if in(k, v) {
					want = append(want, fmt.Sprint(full(k, v)))
				}
			}
			for b, err := range read {
				require.NoError(t, err)
				for i := range b.Rows { // a lookup may give others, too
					r := b.Row(i, nil)
					if k, v := r[0].(int32), (values{r[1].(string), r[2].(int64)}); in(k, v) {
						got = append(got, fmt.Sprint(r))
					}
				}
			}
			sort.Strings(got)
			sort.Strings(want)
			require.Equal(t, want, got)
		}
		if rnd.IntN(4) == 0 {
			tx.Rollback()
			have = before
		} else {
			require.NoError(t, tx.Commit(ctx))
		}
		want := map[any]storage.Row{}
		for k, v := range have {
			want[k] = full(k, v)
		}
		require.Equal(t, want, rowsOf(t, c, tab, "id", "name", "v"))
		for p, err := range c.Check(ctx, tab, CheckExtended, nil) {
			require.NoError(t, err)
			require.NotEqual(t, Damage, p.Severity, "%v", p)
		}
		require.Zero(t, c.Status()["transaction_bytes"])
	}
	require.Positive(t, c.Metrics().SpilledTotal.Load())
	require.Positive(t, c.Metrics().LargeTotal.Load())
	names, err := fs.List("data/warehouse/d/t/.hoodie/lakesql")
	require.NoError(t, err)
	require.Empty(t, slices.DeleteFunc(names, func(n string) bool { return join(stagedFolder, n) == keptFolder }), "what transactions spilled is removed with them")
	require.NoError(t, c.Close(ctx))
	c = testOpen(t, fs, Options{})
	tab, _ = c.Table("d", "t")
	require.Len(t, rowsOf(t, c, tab, "id"), len(have))
	require.NoError(t, c.Close(ctx))
}

// A sorter gives the last change of each key in the order of the keys, wherever they wait.
func TestSorter(t *testing.T) {
	c := testOpen(t, vfs.NewMem(), Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	smallMemory(t)
	for _, n := range []int{0, 1, 5, 500} {
		s := newSorter(c, "data/sort")
		want := map[string]string{}
		for i := range n {
			k, v := strconv.Itoa(rnd.IntN(200)), strconv.Itoa(i)
			del := rnd.IntN(5) == 0
			require.NoError(t, s.add([]byte(k), []byte(v), del))
			if want[k] = v; del {
				want[k] = "-" + v
			}
		}
		r, err := s.read()
		require.NoError(t, err)
		last := ""
		for r.ok {
			require.Less(t, last, r.cur.key)
			last = string([]byte(r.cur.key))
			v := r.cur.value
			if r.cur.del {
				v = "-" + v
			}
			require.Equal(t, want[last], v)
			delete(want, last)
			require.NoError(t, r.next())
		}
		require.Empty(t, want)
		require.NoError(t, firstError(r.close(), s.close()))
		names, err := c.fs.List("data")
		require.NoError(t, err)
		require.NotContains(t, names, "sort-0")
	}
	require.NoError(t, c.Close(context.Background()))
}

// The key of one write may begin with that of another: each is found alone.
func TestSpilledKeysThatBeginAlike(t *testing.T) {
	smallMemory(t)
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", func(s *TableSpec) { s.Key = []KeyColumn{{Column: "name"}} })
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	for i := range int32(100) {
		require.NoError(t, tx.Insert(ctx, tab, storage.Row{i, fmt.Sprintf("%0*d", i+1, 7), int64(i)}))
	}
	tt := tx.tabs[tab.id]
	require.NotNil(t, tt.spilled)
	for i := range int32(100) {
		got, ok, err := tx.Get(ctx, tab, storage.Row{fmt.Sprintf("%0*d", i+1, 7)})
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, i, got[0])
	}
	n := 0
	require.NoError(t, tt.spilled.each(index.Bounds{}, noMark, func(string, *txEntry) (bool, error) { n++; return n < 5, nil }))
	require.Equal(t, 5, n)
	require.NoError(t, tx.Commit(ctx))
	require.Len(t, rowsOf(t, c, tab, "name"), 100)
	require.NoError(t, c.Close(ctx))
}
