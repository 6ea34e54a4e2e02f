package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// secondWriter are the options of a Spark job that writes to a table which a running lakesql writes to, as docs/sharing.md gives them.
var secondWriter = map[string]any{
	"hoodie.write.concurrency.mode":                       "OPTIMISTIC_CONCURRENCY_CONTROL",
	"hoodie.clean.failed.writes.policy":                   "LAZY",
	"hoodie.write.lock.provider":                          "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
	"hoodie.write.lock.client.num_retries":                "100",
	"hoodie.write.lock.client.wait_time_ms_between_retry": "100",
	"hoodie.write.num.retries.on.conflict.failures":       "5",
}

// D12, D27: Spark writes as an optimistic second writer while lakesql commits all the time and flushes every second: both get on, nothing
// is lost, and nothing stays behind.
func TestInteropSecondWriter(t *testing.T) {
	e := startEngines(t)
	for _, mor := range []bool{true, false} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			ctx := context.Background()
			c, err := Open(ctx, filepath.Join(t.TempDir(), "data"), Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead = mor })
			insertRows(t, c, tab, 0, 40)
			flushAll(t, c)
			model := map[int32]string{}
			for id := range int32(40) {
				model[id] = fmt.Sprint([]any{id, fmt.Sprint("n", id), int64(id)})
			}
			stop, done := make(chan struct{}), sync.WaitGroup{}
			commits, flushes, waited := 0, 0, 0
			done.Add(1)
			go func() {
				defer done.Done()
				r := rand.New(rand.NewPCG(1, 2))
				flushed := time.Now()
				for n := int64(1000); ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
					id := int32(r.IntN(40))
					tx, err := c.Begin(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					old, ok, err := tx.Get(ctx, tab, storage.Row{id})
					row := storage.Row{id, fmt.Sprint("n", id), n}
					if err == nil && !ok {
						err = fmt.Errorf("row %d is gone", id)
					}
					if err == nil {
						err = tx.Update(ctx, tab, old, row)
					}
					if err == nil {
						err = tx.Commit(ctx)
					}
					tx.Rollback()
					if errors.Is(err, ErrConflict) {
						continue // an adoption came between
					}
					if err != nil {
						t.Error(err)
						return
					}
					model[id] = fmt.Sprint([]any(row))
					commits++
					if time.Since(flushed) > time.Second {
						// As the runner of the bins does, it tries again soon.
						if err := c.TryFlush(ctx, "each second"); errors.Is(err, ErrBusy) {
							waited++
						} else if err != nil {
							t.Error(err)
							return
						} else {
							flushed = time.Now()
							flushes++
						}
					}
				}
			}()
			spark := map[int32]string{}
			for n := range envInt("ROUNDS", 5) {
				var rows []map[string]any
				op := "upsert"
				if n%3 == 2 {
					op = "delete"
				}
				for id := range int32(10) {
					id += 100 + int32(n%3)*5
					rows = append(rows, map[string]any{"id": id, "name": "spark", "v": n})
					if op == "delete" {
						delete(spark, id)
					} else {
						spark[id] = fmt.Sprint([]any{id, "spark", int64(n)})
					}
				}
				e.ask(t, map[string]any{"op": "write", "table": tab.Location(), "operation": op, "rows": rows, "options": secondWriter})
				time.Sleep(200 * time.Millisecond) // a writer that never stops leaves no room before the limit of waiting
			}
			close(stop)
			done.Wait()
			flushAll(t, c)
			var want []string
			for _, m := range []map[int32]string{model, spark} {
				for _, s := range m {
					want = append(want, s)
				}
			}
			sort.Strings(want)
			require.Equal(t, strings.Join(want, "\n"), strings.ReplaceAll(scanAll(t, c, tab), "] [", "]\n["))
			sameAsEngines(t, e, c, tab, 0, "after two writers")
			t.Logf("%d commits, %d flushes, %d waited for Spark, %d overtaken, %d locks lost", commits, flushes, waited,
				c.Metrics().OvertakenTotal.Load(), c.Metrics().LocksLostTotal.Load())
			require.Positive(t, flushes)
			tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
			require.NoError(t, err)
			for _, in := range tl.Pending() { // Spark's own that met a conflict are left to its cleaner
				m, err := timeline.Beating(ctx, c.store, tab.def.Load().dir, time.Now())
				require.NoError(t, err)
				require.False(t, m[in.Time], "%s has a heartbeat", in)
			}
			for info, err := range c.store.List(ctx, join(tab.def.Load().dir, ".hoodie")) {
				require.NoError(t, err)
				require.NotEqual(t, "lock", info.Name)
			}
		})
	}
}
