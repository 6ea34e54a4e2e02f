package catalog

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// Some columns of a row are those of the whole row, wherever it stands: in files, with logs over them or not, in the hot tier, among
// the transaction's own writes in memory and on disk, and nowhere.
func TestGetColumns(t *testing.T) {
	for _, small := range []bool{false, true} {
		for _, mor := range []bool{false, true} {
			for _, event := range []bool{false, true} {
				t.Run(fmt.Sprintf("small=%v mor=%v event=%v", small, mor, event), func(t *testing.T) {
					if small {
						smallMemory(t)
					}
					ctx := context.Background()
					c := testOpen(t, vfs.NewMem(), Options{})
					tab := newTable(t, c, "t", func(s *TableSpec) {
						s.MergeOnRead = mor
						if event {
							s.Ordering, s.OrderingField = storage.EventTime, "v"
						}
					})
					const keys = 200
					some := NewColumns(tab.Spec().Schema, []int{2, 0})
					compare := func(tx *Tx) {
						t.Helper()
						for k := range int32(keys + 1) {
							for _, o := range []ScanOptions{{}, {Lock: LockShared}} {
								want, ok, err := tx.GetLock(ctx, tab, storage.Row{k}, o)
								require.NoError(t, err)
								got, found, err := tx.GetColumns(ctx, tab, storage.Row{k}, some, o)
								require.NoError(t, err)
								require.Equal(t, ok, found, "key %d", k)
								if ok {
									require.Equal(t, storage.Row{want[2], want[0]}, got, "key %d", k)
								}
							}
						}
					}
					change := func(tx *Tx, step int32, v int64) {
						for k := int32(0); k < keys; k += step {
							old, ok, err := tx.Get(ctx, tab, storage.Row{k})
							require.NoError(t, err)
							switch {
							case !ok:
								require.NoError(t, tx.Insert(ctx, tab, row(k, fmt.Sprint("n", k), v)))
							case k%5 == 0:
								require.NoError(t, tx.Delete(ctx, tab, old))
							default:
								require.NoError(t, tx.Update(ctx, tab, old, row(k, fmt.Sprint("m", k), v)))
							}
						}
					}
					inTx(t, c, func(tx *Tx) { change(tx, 1, 1) })
					flushAll(t, c)
					inTx(t, c, func(tx *Tx) { change(tx, 3, 2) })
					flushAll(t, c)
					inTx(t, c, func(tx *Tx) { change(tx, 7, 3) })
					inTx(t, c, compare)
					inTx(t, c, func(tx *Tx) {
						change(tx, 2, 4)
						compare(tx)
					})
					inTx(t, c, compare)
					inTx(t, c, func(tx *Tx) {
						_, _, err := tx.GetColumns(ctx, tab, storage.Row{int32(1)}, NewColumns(&storage.Schema{Fields: tab.Spec().Schema.Fields}, []int{0}), ScanOptions{})
						require.ErrorIs(t, err, ErrInvalid, "columns of another definition")
					})
					require.False(t, tab.KeysRepeat())
					tab.doubled.Store(true)
					inTx(t, c, func(tx *Tx) {
						_, _, err := tx.GetColumns(ctx, tab, storage.Row{int32(1)}, some, ScanOptions{})
						require.ErrorIs(t, err, ErrInvalid, "a key may have several rows")
					})
				})
			}
		}
	}
}
