package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

func rowBatch(t testing.TB, tab *Table, rows ...storage.Row) storage.Batch {
	b := storage.NewBuilder(tab.Spec().Schema)
	for _, r := range rows {
		require.NoError(t, b.Append(r))
	}
	return b.Batch()
}

// Many that add to the same rows after they have looked ahead lose nothing, be the rows in files or in the hot tier, and while
// flushes run.
func TestExpectBesideOthers(t *testing.T) {
	for _, isolation := range []Isolation{RepeatableRead, ReadCommitted} {
		for _, indexed := range []bool{false, true} {
			t.Run(fmt.Sprint(isolation, indexed), func(t *testing.T) { testExpectBesideOthers(t, isolation, indexed) })
		}
	}
}

func testExpectBesideOthers(t *testing.T, isolation Isolation, indexed bool) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	s := testSpec()
	if indexed {
		s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
	}
	tab, err := c.CreateTable(ctx, "d", "t", s)
	require.NoError(t, err)
	const keys, workers, rounds = 40, 6, 25
	inTx(t, c, func(tx *Tx) {
		for i := range int32(keys / 2) {
			require.NoError(t, tx.Insert(ctx, tab, row(i, "", 0)))
		}
	})
	require.NoError(t, c.Flush(ctx, "test"))
	var mu sync.Mutex
	want := map[int32]int64{}
	var wg sync.WaitGroup
	for g := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for n := range rounds {
				var rows []storage.Row
				for range 1 + r.IntN(20) {
					rows = append(rows, row(r.Int32N(keys), "", 1))
				}
				batch := rowBatch(t, tab, rows...)
				for {
					tx := lockBegin(t, c, isolation)
					err := func() error {
						if r.IntN(2) == 0 { // the snapshot of plain reads is older than what the rows become
							if _, _, err := tx.Get(ctx, tab, storage.Row{int32(0)}); err != nil {
								return err
							}
						}
						if err := tx.Expect(ctx, tab, batch, 0, batch.Rows, r.IntN(3) > 0); err != nil {
							return err
						}
						for _, x := range rows {
							err := tx.Insert(ctx, tab, x)
							var dup *DuplicateKeyError
							if errors.As(err, &dup) {
								err = tx.Update(ctx, tab, dup.Existing, row(x[0].(int32), "", dup.Existing[2].(int64)+1))
							}
							if err != nil {
								return err
							}
						}
						return tx.Commit(ctx)
					}()
					tx.Rollback()
					if errors.Is(err, ErrConflict) {
						continue
					}
					assertNoError(t, err)
					break
				}
				mu.Lock()
				for _, x := range rows {
					want[x[0].(int32)]++
				}
				mu.Unlock()
				if g == 0 && n%5 == 0 {
					assertNoError(t, c.Flush(ctx, "test"))
				}
			}
		})
	}
	wg.Wait()
	inTx(t, c, func(tx *Tx) {
		for i := range int32(keys) {
			x, ok, err := tx.Get(ctx, tab, storage.Row{i})
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want[i], x[2], "key %d", i)
		}
	})
	require.Empty(t, c.Locks())
	require.NoError(t, c.Close(ctx))
}

// Keys that are expected are locked, also those that are absent. Who only inserts does not wait for keys that another transaction has:
// a row before may be refused.
func TestExpectLocks(t *testing.T) {
	ctx := context.Background()
	c, tab := lockWorld(t)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, row(1, "a", 1))) })
	batch := rowBatch(t, tab, row(3, "c", 3), row(1, "x", 1), row(2, "b", 2))
	x, y := lockBegin(t, c, RepeatableRead), lockBegin(t, c, RepeatableRead)
	require.NoError(t, y.Insert(ctx, tab, row(2, "y", 1)))
	require.NoError(t, x.Expect(ctx, tab, batch, 0, 3, false))
	done := blocked(t, c, func() error { return x.Expect(ctx, tab, batch, 0, 3, true) })
	require.NoError(t, y.Commit(ctx))
	require.NoError(t, <-done)
	z, err := c.BeginTx(ctx, TxOptions{LockTimeout: time.Millisecond})
	require.NoError(t, err)
	for i := range int32(3) {
		_, _, err := z.GetLock(ctx, tab, storage.Row{i + 1}, ScanOptions{Lock: LockShared, Wait: LockNoWait})
		require.ErrorIs(t, err, ErrLocked)
	}
	z.Rollback()
	var dup *DuplicateKeyError
	require.ErrorAs(t, x.Insert(ctx, tab, row(2, "b", 2)), &dup)
	require.Equal(t, "y", dup.Existing[1], "of the one that committed meanwhile")
	mark := x.Mark()
	require.NoError(t, x.Delete(ctx, tab, dup.Existing))
	require.NoError(t, x.Insert(ctx, tab, row(2, "b", 2)))
	require.NoError(t, x.RollbackTo(mark))
	require.ErrorAs(t, x.Insert(ctx, tab, row(2, "b", 2)), &dup)
	require.Equal(t, "y", dup.Existing[1])
	require.NoError(t, x.Update(ctx, tab, dup.Existing, row(2, "z", 5)))
	require.NoError(t, x.Commit(ctx))
	require.Equal(t, "[1 a 1] [2 z 5]", scanAll(t, c, tab))
}
