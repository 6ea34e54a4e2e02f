package ingest

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

func testTable(t *testing.T, options map[string]string) (*catalog.Catalog, *catalog.Table) {
	t.Helper()
	ctx := context.Background()
	c, err := catalog.Open(ctx, "data", catalog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(ctx)) })
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", catalog.TableSpec{
		Schema: &storage.Schema{Fields: []storage.Field{
			{Name: "id", Type: storage.Type{Kind: storage.Int32}, Nullable: true},
			{Name: "v", Type: storage.Type{Kind: storage.String}, Nullable: true},
		}},
		Key: []catalog.KeyColumn{{Column: "id"}}, MergeOnRead: true, Options: options,
	})
	require.NoError(t, err)
	return c, tab
}

func insert(t *testing.T, c *catalog.Catalog, tab *catalog.Table, id int32, bytes int) {
	t.Helper()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Insert(ctx, tab, storage.Row{id, strings.Repeat("x", bytes)}))
	require.NoError(t, tx.Commit(ctx))
}

// A bin is due when it is full, at its maximum of bytes, or at its maximum age, and says so; else it waits.
func TestDue(t *testing.T) {
	now := time.Now()
	r := &Runner{o: Options{MinBytes: 100, MaxBytes: 1000, MaxAge: time.Minute}}
	_, plain := testTable(t, nil)
	_, own := testTable(t, map[string]string{OptionMinBytes: "10", OptionMaxBytes: "20", OptionMaxAge: "2s"})
	for _, x := range []struct {
		name   string
		w      catalog.Waiting
		reason string
	}{
		{"waits", catalog.Waiting{Table: plain, Bytes: 99, Oldest: now.Add(-59 * time.Second)}, ""},
		{"full", catalog.Waiting{Table: plain, Bytes: 100, Oldest: now}, "the bin is full: 100 bytes"},
		{"maximum", catalog.Waiting{Table: plain, Bytes: 1000, Oldest: now}, "the bin reached its maximum of bytes: 1000"},
		{"age", catalog.Waiting{Table: plain, Bytes: 1, Oldest: now.Add(-time.Minute)}, "the bin reached its maximum age: 1m0s"},
		{"own waits", catalog.Waiting{Table: own, Bytes: 9, Oldest: now.Add(-time.Second)}, ""},
		{"own full", catalog.Waiting{Table: own, Bytes: 10, Oldest: now}, "the bin is full: 10 bytes"},
		{"own maximum", catalog.Waiting{Table: own, Bytes: 20, Oldest: now}, "the bin reached its maximum of bytes: 20"},
		{"own age", catalog.Waiting{Table: own, Bytes: 1, Oldest: now.Add(-2 * time.Second)}, "the bin reached its maximum age: 2s"},
		{"failed just now", catalog.Waiting{Table: own, Bytes: 20, Cause: context.Canceled, Since: time.Now(), Tried: time.Now()}, ""},
		{
			"failed a while ago",
			catalog.Waiting{Table: own, Bytes: 20, Oldest: now, Cause: context.Canceled, Since: time.Now().Add(-5 * time.Second), Tried: time.Now().Add(-2 * time.Second)},
			"the bin reached its maximum of bytes: 20",
		},
	} {
		t.Run(x.name, func(t *testing.T) { require.Equal(t, x.reason, r.due(x.w, now)) })
	}
}

// A run flushes the bin that is due and leaves the one that is not.
func TestRun(t *testing.T) {
	c, tab := testTable(t, map[string]string{OptionMinBytes: "1000"})
	r := &Runner{c: c, o: Options{MinBytes: 1 << 20, MaxBytes: 1 << 30, MaxAge: time.Hour, Logger: slog.New(slog.DiscardHandler)}}
	insert(t, c, tab, 1, 10)
	r.Run(context.Background())
	require.Len(t, c.Waiting(), 1)
	insert(t, c, tab, 2, 2000)
	r.Run(context.Background())
	require.Empty(t, c.Waiting())
	require.EqualValues(t, 1, c.Metrics().FlushesTotal.Load())
}

// The background runner flushes by age, and Stop waits for it.
func TestStartStop(t *testing.T) {
	c, tab := testTable(t, map[string]string{OptionMaxAge: "20ms"})
	r := Start(c, Options{Tick: 5 * time.Millisecond})
	insert(t, c, tab, 1, 10)
	require.Eventually(t, func() bool { return len(c.Waiting()) == 0 }, 10*time.Second, 5*time.Millisecond)
	r.Stop()
	insert(t, c, tab, 2, 10)
	require.Len(t, c.Waiting(), 1)
}
