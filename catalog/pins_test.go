package catalog

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Open snapshots are known before they see anything, and forgotten with their end; one past the limit ends with an error and no
// longer keeps files.
func TestPins(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{SnapshotMax: 50 * time.Millisecond})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	_, any := c.Pinned(tab)
	require.False(t, any)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	at, any := c.Pinned(tab)
	require.True(t, any)
	require.Equal(t, index.Seq(tab.lastSeq.Load()), at)
	n, _ := c.Snapshots()
	require.Equal(t, 1, n)
	_, ok, err := tx.Get(ctx, tab, storage.Row{int32(1)})
	require.NoError(t, err)
	require.True(t, ok)
	time.Sleep(60 * time.Millisecond)
	_, _, err = tx.Get(ctx, tab, storage.Row{int32(1)})
	require.ErrorIs(t, err, ErrSnapshot)
	_, any = c.Pinned(tab)
	require.False(t, any)
	tx.Rollback()
	n, _ = c.Snapshots()
	require.Zero(t, n)
	require.NoError(t, c.Close(ctx))
}

// Files that another engine's cleaner removes behind a scan: it is run again on the newer state if no row was given yet, else it ends
// with an error, never with fewer rows.
func TestFilesGone(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	s := testSpec()
	s.MergeOnRead = false
	tab, err := c.CreateTable(ctx, "d", "t", s)
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) {
		for i := range int32(10) {
			require.NoError(t, tx.Insert(ctx, tab, storage.Row{i, "a", int64(1)}))
		}
	})
	require.NoError(t, c.Flush(ctx, "test"))
	bases := func() (out []string) {
		list, err := fs.List("data/warehouse/d/t")
		require.NoError(t, err)
		for _, n := range list {
			if strings.HasSuffix(n, ".parquet") {
				out = append(out, n)
			}
		}
		return out
	}
	old := bases()
	require.Len(t, old, 1)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	scan := tx.Scan(ctx, tab, ScanOptions{})
	past, err := c.AsOf(ctx, AsOf{Time: c.Clock().Now()})
	require.NoError(t, err)
	before := past.Scan(ctx, tab, ScanOptions{})
	inTx(t, c, func(tx *Tx) {
		row := storage.Row{int32(3), "a", int64(1)}
		require.NoError(t, tx.Update(ctx, tab, row, storage.Row{int32(3), "b", int64(2)}))
	})
	require.NoError(t, c.Flush(ctx, "test"))
	require.NoError(t, fs.Remove("data/warehouse/d/t/"+old[0]))
	c.reader.Forget(c.object("d/t") + "/")
	rows := 0
	for b, err := range scan {
		require.NoError(t, err)
		rows += b.Rows
	}
	require.Equal(t, 10, rows)
	tx.Rollback()
	failed := error(nil)
	for _, err := range before {
		failed = err
	}
	require.ErrorIs(t, failed, storage.ErrNotExist)
	past.Close()
	require.NoError(t, c.Close(ctx))
}
