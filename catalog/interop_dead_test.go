package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// D8, D12: an instant that lakesql left in flight when it died is removed by Spark's lazy cleaner once its heartbeat has expired, and not before; its
// rows are flushed anew after the start, none lost and none doubled.
func TestInteropDeadInstant(t *testing.T) {
	e := startEngines(t)
	for _, mor := range []bool{false, true} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			ctx := context.Background()
			root := filepath.Join(t.TempDir(), "data")
			c, err := Open(ctx, root, Options{})
			require.NoError(t, err)
			tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead = mor })
			insertRows(t, c, tab, 0, 6)
			flushAll(t, c)
			inTx(t, c, func(tx *Tx) {
				require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(1), "n1", int64(1)}, storage.Row{int32(1), "n1", int64(100)}))
				require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(2), "n2", int64(2)}))
				require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(10), "n10", int64(10)}))
			})
			var dead storage.InstantTime
			var files []string
			died := make(chan struct{})
			beforeComplete = func(f *flush) {
				dead = f.instant
				for part, names := range f.intent.Files {
					for _, n := range names {
						files = append(files, filepath.Join(tab.Location(), part, n))
					}
				}
				f.heart.stop()
				<-f.heart.done
				f.heart = nil // the file of the heartbeat stays
				runtime.Goexit()
			}
			go func() {
				defer close(died)
				_ = c.Flush(ctx, "test", tab)
			}()
			<-died
			beforeComplete = nil
			require.NotEmpty(t, files)
			c.watcher.close()
			c.reader.Close()
			c.clock.end()
			require.NoError(t, c.db.Close())
			state := func() (pending bool) {
				tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
				require.NoError(t, err)
				in, ok := tl.Get(dead)
				return ok && in.State != timeline.Completed
			}
			write := func(id int32) {
				o := map[string]any{"hoodie.clean.automatic": "true"}
				for k, v := range secondWriter {
					o[k] = v
				}
				e.ask(t, map[string]any{"op": "write", "table": tab.Location(), "operation": "upsert", "options": o, "rows": []map[string]any{{"id": id, "name": "spark", "v": id}}})
			}
			write(20)
			require.True(t, state(), "its heartbeat says that it lives")
			for _, f := range files {
				require.FileExists(t, f)
			}
			old := time.Now().Add(-time.Hour)
			require.NoError(t, os.Chtimes(filepath.Join(tab.Location(), ".hoodie", ".heartbeat", string(dead)), old, old))
			write(21)
			require.False(t, state(), "the cleaner removes what is dead")
			for _, f := range files {
				// Of a log its rollback block says that it does not count.
				if n, ok := storage.ParseFileName(filepath.Base(f)); ok && n.Version == 0 {
					require.NoFileExists(t, f)
				}
			}
			c, err = Open(ctx, root, Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab, _ = c.Table("d", "t")
			const rows = "[0 n0 0] [1 n1 100] [10 n10 10] [20 spark 20] [21 spark 21] [3 n3 3] [4 n4 4] [5 n5 5]"
			require.Equal(t, rows, scanAll(t, c, tab))
			flushAll(t, c)
			require.Equal(t, rows, scanAll(t, c, tab))
			sameAsEngines(t, e, c, tab, 0, "after the flush")
			write(22)
			require.Equal(t, "[0 n0 0] [1 n1 100] [10 n10 10] [20 spark 20] [21 spark 21] [22 spark 22] [3 n3 3] [4 n4 4] [5 n5 5]", scanAll(t, c, tab))
			sameAsEngines(t, e, c, tab, 0, "after one more write")
		})
	}
}
