package catalog

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/timeline"
)

// An instant of another engine stirs its table alone, in a moment; a table where nothing happens is not looked at. // D12
func TestWatch(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of changes in folders")
	}
	ctx := context.Background()
	root := filepath.Join(t.TempDir(), "data")
	c, err := Open(ctx, root, Options{})
	require.NoError(t, err)
	idle, tab := newTable(t, c, "idle", nil), newTable(t, c, "t", nil)
	insertRows(t, c, tab, 0, 3)
	insertRows(t, c, idle, 0, 3)
	flushAll(t, c)
	for n := range 3 {
		require.Eventually(t, func() bool {
			require.NoError(t, c.Adopt(ctx))
			time.Sleep(30 * time.Millisecond) // the kernel tells in a moment what was done before
			return !c.Stirred() && !idle.stirred.Load() && !tab.stirred.Load()
		}, 5*time.Second, 50*time.Millisecond, "our own instants stir for a moment only")
		it := timeline.FormatTime(time.Now())
		p, err := timeline.Begin(ctx, c.store, tab.def.Load().dir, timeline.DeltaCommit, it, nil)
		require.NoError(t, err)
		require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{Operation: timeline.OpUpsert}))
		require.Eventually(t, c.Stirred, time.Second, time.Millisecond)
		require.False(t, idle.stirred.Load())
		c.looked.Store(time.Now().UnixNano())
		require.NoError(t, c.Adopt(ctx))
		require.True(t, c.cold(tab.id).tl.Counts(it), fmt.Sprint(n))
		require.NoError(t, c.Close(ctx))
		c, err = Open(ctx, root, Options{})
		require.NoError(t, err)
		idle, _ = c.Table("d", "idle")
		tab, _ = c.Table("d", "t")
	}
	require.NoError(t, c.Close(ctx))
}
