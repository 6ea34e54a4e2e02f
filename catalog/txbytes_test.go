package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// Changes that wait in memory for commits have a bound over all transactions: a write above it fails, the transaction goes on, and
// what ends gives its room back.
func TestTransactionBytes(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{TxBytesMax: 64 << 10})
	tab := newTable(t, c, "t", nil)
	insertOne(t, c, tab, -1)
	fill := func(tx *Tx) (n int32) {
		for {
			err := tx.Insert(ctx, tab, storage.Row{n, strings.Repeat("x", 100), int64(1)})
			if err != nil {
				require.ErrorIs(t, err, ErrTooMany)
				return n
			}
			n++
			require.Less(t, n, int32(1000))
		}
	}
	a, err := c.Begin(ctx)
	require.NoError(t, err)
	mark := a.Mark()
	n := fill(a)
	require.Greater(t, n, int32(50))
	b, err := c.Begin(ctx)
	require.NoError(t, err)
	row, ok, err := b.Get(ctx, tab, storage.Row{int32(-1)})
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, b.Delete(ctx, tab, row), ErrTooMany)
	require.NoError(t, a.RollbackTo(mark))
	require.Zero(t, c.Status()["transaction_bytes"])
	require.NoError(t, b.Delete(ctx, tab, row))
	require.NoError(t, b.Commit(ctx))
	require.Positive(t, fill(a))
	require.NoError(t, a.Commit(ctx))
	require.Zero(t, c.Status()["transaction_bytes"])
	require.NoError(t, c.Close(ctx))
}
