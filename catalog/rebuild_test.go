package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// The state folder of a clean stop may go: index, counters and definitions are built anew from the tables, a million rows in seconds.
func TestRebuildState(t *testing.T) {
	ctx := context.Background()
	n := envInt("REBUILD_ROWS", 20_000)
	dir := t.TempDir()
	c, err := Open(ctx, dir, Options{FS: vfs.Default})
	require.NoError(t, err)
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	spec := testSpec()
	spec.Indexes = []IndexSpec{{Name: "x", Columns: []KeyColumn{{Column: "v"}}}}
	spec.AutoIncrement = "id"
	tab, err := c.CreateTable(ctx, "d", "t", spec)
	require.NoError(t, err)
	for at := 0; at < n; {
		inTx(t, c, func(tx *Tx) {
			for end := min(n, at+100_000); at < end; at++ {
				require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(at), fmt.Sprint("name of ", at), int64(at % 1000)}))
			}
		})
		require.NoError(t, c.Flush(ctx, "test"))
	}
	inTx(t, c, func(tx *Tx) {
		for i := range 100 {
			old := storage.Row{int32(i), fmt.Sprint("name of ", i), int64(i % 1000)}
			if i%2 == 0 {
				require.NoError(t, tx.Delete(ctx, tab, old))
			} else {
				require.NoError(t, tx.Update(ctx, tab, old, storage.Row{int32(i), "changed", int64(i)}))
			}
		}
	})
	require.NoError(t, c.Close(ctx))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "state")))

	began := time.Now()
	c, err = Open(ctx, dir, Options{FS: vfs.Default})
	require.NoError(t, err)
	took := time.Since(began)
	defer c.Close(ctx)
	t.Logf("%d rows: %s", n, took.Round(time.Millisecond))
	if n >= 1_000_000 {
		require.Less(t, took, 10*time.Second)
	}
	tab, _ = c.Table("d", "t")
	began = time.Now()
	require.Empty(t, problems(t, c, tab, CheckExtended))
	t.Logf("checked in %s", time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, n-50, tab.RowCount())
	next, err := tab.NextAutoIncrement(ctx, 1)
	require.NoError(t, err)
	require.EqualValues(t, max(n, 1), next)
}
