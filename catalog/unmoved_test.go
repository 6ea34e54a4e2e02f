package catalog

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// A change whose folders cannot be moved stops all writes, and reads go on; once they can be moved, without a restart, the tables are what
// the change made of them and writes go on. So after a rename, a swap, a drop, UNDROP and a stop.
func TestMovesLater(t *testing.T) {
	ctx := context.Background()
	for _, what := range []string{"rename", "swap", "drop", "undrop", "stop"} {
		t.Run(what, func(t *testing.T) {
			fs := vfs.NewMem()
			var broken atomic.Bool
			c := testOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && op.Kind == errorfs.OpRename && (strings.HasSuffix(op.Path, "/d/a") || strings.Contains(op.Path, ".dropped/")) {
					return errorfs.ErrInjected
				}
				return nil
			})), Options{})
			a, b := newTable(t, c, "a", nil), newTable(t, c, "b", nil)
			insertRows(t, c, a, 0, 5)
			flushAll(t, c)
			insertRows(t, c, a, 5, 7)
			insertRows(t, c, b, 0, 1)
			rowsA, rowsB := scanAll(t, c, a), scanAll(t, c, b)
			change := func() error { return c.RenameTable(ctx, "d", "a", "d", "z") }
			switch what {
			case "swap":
				change = func() error {
					return c.Change(ctx, Change{Tables: []TableChange{{Table: a, Name: "b"}, {Table: b, Name: "a"}}})
				}
			case "drop":
				change = func() error { return c.DropTable(ctx, "d", "a") }
			case "undrop":
				require.NoError(t, c.DropTable(ctx, "d", "a"))
				change = func() error { _, err := c.Undrop(ctx, "d", "a", "z"); return err }
			}
			broken.Store(true)
			require.ErrorIs(t, change(), errorfs.ErrInjected)
			require.Equal(t, rowsB, scanAll(t, c, b))
			tx, err := c.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, tx.Insert(ctx, b, storage.Row{int32(100), "x", int64(1)}))
			require.ErrorIs(t, tx.Commit(ctx), ErrStopped)
			require.ErrorIs(t, c.FinishMoves(ctx), errorfs.ErrInjected)
			require.ErrorIs(t, c.RenameTable(ctx, "d", "b", "d", "y"), errorfs.ErrInjected)
			require.ErrorIs(t, c.CreateDatabase(ctx, "more", nil), ErrStopped)
			broken.Store(false)
			if what == "stop" {
				require.NoError(t, c.Close(ctx))
				c = testOpen(t, fs, Options{})
			} else {
				require.NoError(t, c.FinishMoves(ctx))
			}
			names := map[string]string{"z": rowsA, "b": rowsB}
			switch what {
			case "swap":
				names = map[string]string{"b": rowsA, "a": rowsB}
			case "drop":
				names = map[string]string{"b": rowsB}
			}
			for range 2 {
				require.Len(t, c.TableNames("d"), len(names))
				for name, rows := range names {
					tab, ok := c.Table("d", name)
					require.True(t, ok, name)
					require.Equal(t, rows, scanAll(t, c, tab), name)
					insertRows(t, c, tab, 200, 201)
					names[name] = scanAll(t, c, tab)
				}
				require.NoError(t, c.Close(ctx))
				c = testOpen(t, fs, Options{})
				for name, rows := range names {
					tab, _ := c.Table("d", name)
					require.Equal(t, rows, scanAll(t, c, tab), name)
					inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(200), "n200", int64(200)})) })
					names[name] = scanAll(t, c, tab)
				}
			}
			if what == "drop" {
				tab, err := c.Undrop(ctx, "d", "a", "")
				require.NoError(t, err)
				require.Equal(t, rowsA, scanAll(t, c, tab))
			}
			require.NoError(t, c.Close(ctx))
		})
	}
}
