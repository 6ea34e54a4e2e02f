package catalog

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// logOverSecondBase gives a table with a base file, one that replaced it, and a log file over that, where the wall clock lies ahead of the file
// system's from the second base file on: the machine's clock for files ticks only every few milliseconds.
func logOverSecondBase(t *testing.T) (*Catalog, *Table, func() *Catalog) {
	t.Helper()
	ctx := context.Background()
	defer func(n int) { maxLogs = n }(maxLogs)
	maxLogs = 1
	var ahead atomic.Int64
	o := Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	root := filepath.Join(t.TempDir(), "data")
	c, err := Open(ctx, root, o)
	require.NoError(t, err)
	tab := newTable(t, c, "t", nil)
	insertRows(t, c, tab, 0, 3)
	flushAll(t, c)
	for i := range int64(3) {
		if i == 1 {
			ahead.Store(int64(time.Minute))
		}
		inTx(t, c, func(tx *Tx) {
			old, ok, err := tx.Get(ctx, tab, storage.Row{int32(1)})
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, tx.Update(ctx, tab, old, storage.Row{int32(1), "n1", 100 + i}))
		})
		flushAll(t, c)
	}
	slices := c.cold(tab.id).newest()
	require.Len(t, slices, 1)
	require.Len(t, slices[0].Logs, 1, "the test is about a log file over a base file that replaced another")
	return c, tab, func() *Catalog {
		require.NoError(t, c.Close(ctx))
		c, err := Open(ctx, root, o)
		require.NoError(t, err)
		return c
	}
}

// Readers of version 6 find the slice of a log file by the time at which the instant of its base file completed, for which they take the
// time of the completed file: that is never before the instant time, and a later instant is after it.
func TestCompletionTime(t *testing.T) {
	ctx := context.Background()
	c, tab, reopen := logOverSecondBase(t)
	check := func() {
		t.Helper()
		tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
		require.NoError(t, err)
		var last storage.InstantTime
		for _, in := range tl.Completed() {
			require.GreaterOrEqual(t, in.Completed, in.Time)
			require.Greater(t, in.Time, last)
			last = in.Completed
		}
	}
	check()
	tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
	require.NoError(t, err)
	in, _ := tl.Last()
	d := tab.def.Load()
	later := time.Now().Add(time.Minute + 100*time.Millisecond)
	require.NoError(t, os.Chtimes(c.fs.PathJoin(c.path(d.dir), ".hoodie", in.FileName(timeline.Completed)), later, later))
	c = reopen()
	defer func() { require.NoError(t, c.Close(ctx)) }()
	tab, _ = c.Table("d", "t")
	insertRows(t, c, tab, 10, 11)
	flushAll(t, c)
	check()
}

func TestInteropCompletionTime(t *testing.T) {
	e := startEngines(t)
	c, tab, _ := logOverSecondBase(t)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	sameAsEngines(t, e, c, tab, 0, "log over the second base file")
}
