package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

func benchOpen(b testing.TB) (*Catalog, *Table) {
	ctx := context.Background()
	c, err := Open(ctx, b.TempDir(), Options{FS: vfs.Default})
	require.NoError(b, err)
	require.NoError(b, c.CreateDatabase(ctx, "d", nil))
	s := testSpec()
	s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
	tab, err := c.CreateTable(ctx, "d", "t", s)
	require.NoError(b, err)
	return c, tab
}

var benchPad = strings.Repeat("lorem ipsum dolor ", 6)

func benchFill(b testing.TB, c *Catalog, tab *Table, from, to int32) {
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	require.NoError(b, err)
	for i := from; i < to; i++ {
		require.NoError(b, tx.Insert(ctx, tab, storage.Row{i, fmt.Sprint(benchPad, i), int64(i)}))
	}
	require.NoError(b, tx.Commit(ctx))
}

func benchUpdate(b testing.TB, c *Catalog, tab *Table, id int32, v int64) {
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	require.NoError(b, err)
	row, ok, err := tx.Get(ctx, tab, storage.Row{id})
	require.NoError(b, err)
	require.True(b, ok)
	require.NoError(b, tx.Update(ctx, tab, row, storage.Row{id, row[1], v}))
	require.NoError(b, tx.Commit(ctx))
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			c, tab := benchOpen(b)
			benchFill(b, c, tab, 0, 20000)
			b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(rand.Uint64(), 1))
				for pb.Next() {
					tx, err := c.Begin(context.Background())
					if err == nil {
						id := r.Int32N(20000)
						var row storage.Row
						row, _, err = tx.GetLock(context.Background(), tab, storage.Row{id}, ScanOptions{Lock: LockExclusive})
						if err == nil {
							err = tx.Update(context.Background(), tab, row, storage.Row{id, row[1], r.Int64()})
						}
						if err == nil {
							err = tx.Commit(context.Background())
						}
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			require.NoError(b, c.Close(context.Background()))
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, state := range []string{"hot", "cold", "cold with logs"} {
		b.Run(state, func(b *testing.B) {
			ctx := context.Background()
			c, tab := benchOpen(b)
			benchFill(b, c, tab, 0, 100000)
			if state != "hot" {
				require.NoError(b, c.Flush(ctx, "test"))
			}
			if state == "cold with logs" {
				for i := range int32(5) {
					for j := range int32(200) {
						benchUpdate(b, c, tab, i*20000+j*7, 5)
					}
					require.NoError(b, c.Flush(ctx, "test"))
				}
			}
			r := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				tx, err := c.Begin(ctx)
				require.NoError(b, err)
				_, ok, err := tx.Get(ctx, tab, storage.Row{r.Int32N(100000)})
				require.NoError(b, err)
				require.True(b, ok)
				tx.Rollback()
			}
			b.StopTimer()
			require.NoError(b, c.Close(ctx))
		})
	}
}

func BenchmarkScan(b *testing.B) {
	for _, state := range []string{"hot", "cold", "cold, 1000 rows hot", "one commit between"} {
		b.Run(state, func(b *testing.B) {
			ctx := context.Background()
			c, tab := benchOpen(b)
			benchFill(b, c, tab, 0, 100000)
			if state != "hot" {
				require.NoError(b, c.Flush(ctx, "test"))
			}
			if state == "cold, 1000 rows hot" {
				for j := range int32(1000) {
					benchUpdate(b, c, tab, j*7, 5)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				if state == "one commit between" {
					benchUpdate(b, c, tab, int32(n%100000), 5)
				}
				tx, err := c.Begin(ctx)
				require.NoError(b, err)
				rows := 0
				for batch, err := range tx.Scan(ctx, tab, ScanOptions{Columns: []string{"v"}}) {
					require.NoError(b, err)
					rows += batch.Rows
				}
				require.Equal(b, 100000, rows)
				tx.Rollback()
			}
			b.StopTimer()
			require.NoError(b, c.Close(ctx))
		})
	}
}

// peakRSS gives the largest resident size of the process so far, in MiB.
func peakRSS() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for the process itself
	return u.Maxrss >> 10
}

// TestBulk measures one large transaction: ROWS rows of 150 bytes, their flush, and the memory for both.
func TestBulk(t *testing.T) {
	n := envInt("ROWS", 20000)
	ctx := context.Background()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(450 << 20)) // the server sets one too
	c, tab := benchOpen(t)
	began := time.Now()
	benchFill(t, c, tab, 0, int32(n))
	filled := time.Since(began)
	rss := peakRSS()
	began = time.Now()
	require.NoError(t, c.Flush(ctx, "test"))
	t.Logf("%d rows: insert and commit %v, peak %d MiB; flush %v, peak %d MiB", n, filled, rss, time.Since(began), peakRSS())
	if n >= 600000 {
		require.Less(t, peakRSS(), int64(600))
	}
	require.NoError(t, c.Close(ctx))
}

// The cost of a commit and of a flush does not grow with the number of those before.
func TestCostOfHistory(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("LONG is not set")
	}
	ctx := context.Background()
	c, tab := benchOpen(t)
	benchFill(t, c, tab, 0, 20000)
	require.NoError(t, c.Flush(ctx, "test"))
	measure := func() (commit, flush, scan time.Duration) {
		began := time.Now()
		for i := range int32(200) {
			benchUpdate(t, c, tab, i, 5)
		}
		commit = time.Since(began) / 200
		began = time.Now()
		require.NoError(t, c.Flush(ctx, "test"))
		flush = time.Since(began)
		began = time.Now()
		for range 5 {
			tx, err := c.Begin(ctx)
			require.NoError(t, err)
			for _, err := range tx.Scan(ctx, tab, ScanOptions{Columns: []string{"v"}}) {
				require.NoError(t, err)
			}
			tx.Rollback()
		}
		return commit, flush, time.Since(began) / 5
	}
	for i := range 2000 {
		switch i {
		case 10, 100, 500, 1000, 1999:
			a, b, s := measure()
			t.Logf("after %d commits, a fifth of them flushed: commit %v, flush %v, scan %v", i, a, b, s)
		}
		benchUpdate(t, c, tab, int32(i%20000), 5)
		if i%5 == 0 {
			require.NoError(t, c.Flush(ctx, "test"))
		}
	}
	require.NoError(t, c.Close(ctx))
}
