package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

func testSpec() TableSpec {
	return TableSpec{
		Schema: &storage.Schema{Fields: []storage.Field{
			{Name: "id", Type: storage.Type{Kind: storage.Int32}, Nullable: true},
			{Name: "name", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "v", Type: storage.Type{Kind: storage.Int64}, Nullable: true},
		}},
		Key: []KeyColumn{{Column: "id"}}, HiveStyle: true, MergeOnRead: true,
	}
}

func testOpen(t *testing.T, fs vfs.FS, o Options) *Catalog {
	t.Helper()
	o.FS = fs
	if os.Getenv("LAKESQL_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	c, err := Open(context.Background(), "data", o)
	require.NoError(t, err)
	return c
}

func dump(t *testing.T, scan func(yield func(storage.Batch, error) bool)) string {
	t.Helper()
	var out []string
	for b, err := range scan {
		require.NoError(t, err)
		for i := range b.Rows {
			out = append(out, fmt.Sprint([]any(b.Row(i, nil))))
		}
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

func scanAll(t *testing.T, c *Catalog, tab *Table) string {
	t.Helper()
	tx, err := c.Begin(context.Background())
	require.NoError(t, err)
	defer tx.Rollback()
	return dump(t, tx.Scan(context.Background(), tab, ScanOptions{}))
}

func inTx(t *testing.T, c *Catalog, f func(tx *Tx)) {
	t.Helper()
	tx, err := c.Begin(context.Background())
	require.NoError(t, err)
	f(tx)
	require.NoError(t, tx.Commit(context.Background()))
}

// D2, D3, D8: rows change in both tiers, survive flushes and a restart, and the past stays readable.
func TestCommitFlushReopen(t *testing.T) {
	for _, mor := range []bool{true, false} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			ctx := context.Background()
			fs := vfs.NewMem()
			c := testOpen(t, fs, Options{})
			require.NoError(t, c.CreateDatabase(ctx, "shop", nil))
			spec := testSpec()
			spec.MergeOnRead = mor
			tab, err := c.CreateTable(ctx, "shop", "orders", spec)
			require.NoError(t, err)
			require.Equal(t, "", scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) {
				for i := range int32(5) {
					require.NoError(t, tx.Insert(ctx, tab, storage.Row{i, fmt.Sprint("n", i), int64(i) * 10}))
				}
			})
			first := c.Clock().Now()
			want := "[0 n0 0] [1 n1 10] [2 n2 20] [3 n3 30] [4 n4 40]"
			require.Equal(t, want, scanAll(t, c, tab))
			require.NoError(t, c.Flush(ctx, "test"))
			require.Equal(t, want, scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) {
				old, ok, err := tx.Get(ctx, tab, storage.Row{int32(3)})
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, storage.Row{int32(3), "n3", int64(30)}, old)
				require.NoError(t, tx.Update(ctx, tab, old, storage.Row{int32(3), "x", int64(31)}))
				require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(0), "n0", int64(0)}))
				require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(9), "n9", int64(90)}))
				var dup *DuplicateKeyError
				require.ErrorAs(t, tx.Insert(ctx, tab, storage.Row{int32(1), "again", int64(1)}), &dup)
				require.Equal(t, storage.Row{int32(1), "n1", int64(10)}, dup.Existing)
			})
			second := "[1 n1 10] [2 n2 20] [3 x 31] [4 n4 40] [9 n9 90]"
			require.Equal(t, second, scanAll(t, c, tab))
			require.NoError(t, c.Flush(ctx, "test"))
			require.Equal(t, second, scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) {
				require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(0), "back", int64(1)}))
			})
			third := "[0 back 1] " + second
			require.Equal(t, third, scanAll(t, c, tab))
			s, err := c.AsOf(ctx, AsOf{Time: first})
			require.NoError(t, err)
			require.Equal(t, want, dump(t, s.Scan(ctx, tab, ScanOptions{})))
			s.Close()
			s, err = c.AsOf(ctx, AsOf{Time: tab.Created().Add(-time.Second)})
			require.NoError(t, err)
			var early *TooEarlyError
			require.ErrorAs(t, s.Check(ctx, tab), &early)
			s.Close()
			require.NoError(t, c.Close(ctx))

			c = testOpen(t, fs, Options{})
			tab, ok := c.Table("SHOP", "Orders")
			require.True(t, ok)
			require.Equal(t, third, scanAll(t, c, tab))
			s, err = c.AsOf(ctx, AsOf{Time: first})
			require.NoError(t, err)
			require.Equal(t, want, dump(t, s.Scan(ctx, tab, ScanOptions{})))
			s.Close()
			require.NoError(t, c.Close(ctx))

			// Without the state folder nothing is lost after a clean stop.
			require.NoError(t, fs.RemoveAll("data/state"))
			c = testOpen(t, fs, Options{})
			tab, ok = c.Table("shop", "orders")
			require.True(t, ok)
			require.Equal(t, third, scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) {
				require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(0), "back", int64(1)}, storage.Row{int32(0), "z", int64(2)}))
			})
			require.Equal(t, "[0 z 2] "+second, scanAll(t, c, tab))
			require.NoError(t, c.Flush(ctx, "test"))
			require.Equal(t, "[0 z 2] "+second, scanAll(t, c, tab))
			_, err = c.TruncateTable(ctx, tab)
			require.NoError(t, err)
			require.Equal(t, "", scanAll(t, c, tab))
			require.NoError(t, c.Close(ctx))
		})
	}
}

// A stop that was no clean one leaves the state folder indispensable.
func TestLostState(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewCrashableMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	clone := fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, c.Close(ctx))
	c = testOpen(t, clone, Options{})
	tab, _ = c.Table("d", "t")
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	clone2 := clone.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, c.Close(ctx))
	require.NoError(t, clone2.RemoveAll("data/state"))
	_, err = Open(ctx, "data", Options{FS: clone2})
	require.ErrorIs(t, err, ErrLostState)
	require.ErrorContains(t, err, "d.t")
	c = testOpen(t, clone2, Options{AcceptLostState: true})
	tab, _ = c.Table("d", "t")
	require.Equal(t, "", scanAll(t, c, tab))
	require.NoError(t, c.Close(ctx))
}
