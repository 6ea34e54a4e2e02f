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

// lockWorld opens a warehouse with a table of (id, s, v), UNIQUE (s), index (v).
func lockWorld(t *testing.T) (*Catalog, *Table) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	s := testSpec()
	name := s.Schema.Fields[1].Name
	s.Indexes = []IndexSpec{{Name: "u", Columns: []KeyColumn{{Column: name}}, Unique: true}, {Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
	tab, err := c.CreateTable(ctx, "d", "t", s)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Empty(t, c.Locks())
		require.Empty(t, c.Transactions())
		require.Zero(t, c.Metrics().LocksHeld.Load())
		require.NoError(t, c.Close(ctx))
	})
	return c, tab
}

func lockBegin(t testing.TB, c *Catalog, i Isolation) *Tx {
	tx, err := c.BeginTx(context.Background(), TxOptions{Isolation: i, LockTimeout: 20 * time.Second})
	require.NoError(t, err)
	return tx
}

// waiting waits until n transactions wait for locks.
func waiting(t testing.TB, c *Catalog, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		k := 0
		for _, x := range c.Transactions() {
			if !x.Waiting.IsZero() {
				k++
			}
		}
		return k == n
	}, 20*time.Second, 100*time.Microsecond)
}

func row(id int32, s string, v int64) storage.Row { return storage.Row{id, s, v} }

// A hot row makes writers wait, not fail: no increment is lost and none conflicts.
func TestHotCounter(t *testing.T) {
	ctx := context.Background()
	for _, iso := range []Isolation{RepeatableRead, ReadCommitted, Serializable} {
		t.Run(iso.String(), func(t *testing.T) {
			c, tab := lockWorld(t)
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, row(1, "n", 0))) })
			const workers, each = 8, 200
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range each {
						tx := lockBegin(t, c, iso)
						r, ok, err := tx.GetLock(ctx, tab, storage.Row{int32(1)}, ScanOptions{Lock: LockExclusive})
						if err == nil && !ok {
							err = errors.New("the row is gone")
						}
						if err == nil {
							err = tx.Update(ctx, tab, r, row(1, "n", r[2].(int64)+1))
						}
						if err == nil {
							err = tx.Commit(ctx)
						}
						tx.Rollback()
						assertNoError(t, err)
					}
				})
			}
			for range 5 {
				require.NoError(t, c.Flush(ctx, "test"))
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
			require.Equal(t, fmt.Sprintf("[1 n %d]", workers*each), scanAll(t, c, tab))
			require.Zero(t, c.Metrics().ConflictsTotal.Load())
			require.Zero(t, c.Metrics().DeadlocksTotal.Load())
		})
	}
}

// Money moves between accounts; deadlocks are run again, the sum stays.
func TestBank(t *testing.T) {
	ctx := context.Background()
	c, tab := lockWorld(t)
	const accounts = 6
	inTx(t, c, func(tx *Tx) {
		for i := range int32(accounts) {
			require.NoError(t, tx.Insert(ctx, tab, row(i, fmt.Sprint(i), 100)))
		}
	})
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for range 60 {
				from, to := r.Int32N(accounts), r.Int32N(accounts)
				if from == to {
					continue
				}
				for {
					tx := lockBegin(t, c, RepeatableRead)
					err := func() error {
						for id, by := range map[int32]int64{from: -1, to: 1} {
							x, _, err := tx.GetLock(ctx, tab, storage.Row{id}, ScanOptions{Lock: LockExclusive})
							if err == nil {
								err = tx.Update(ctx, tab, x, row(id, x[1].(string), x[2].(int64)+by))
							}
							if err != nil {
								return err
							}
						}
						return tx.Commit(ctx)
					}()
					tx.Rollback()
					if errors.Is(err, ErrDeadlock) {
						continue
					}
					assertNoError(t, err)
					break
				}
			}
		})
	}
	sum := func(tx *Tx, o ScanOptions) (n int64) {
		for b, err := range tx.Scan(ctx, tab, o) {
			if err != nil {
				return -1
			}
			for i := range b.Rows {
				n += b.Value(2, i).(int64)
			}
		}
		return n
	}
	for i := range 20 {
		tx := lockBegin(t, c, RepeatableRead)
		require.EqualValues(t, 100*accounts, sum(tx, ScanOptions{}))
		if i%4 == 0 {
			if n := sum(tx, ScanOptions{Lock: LockShared}); n != -1 { // else a deadlock
				require.EqualValues(t, 100*accounts, n)
			}
		}
		tx.Rollback()
	}
	wg.Wait()
	inTx(t, c, func(tx *Tx) { require.EqualValues(t, 100*accounts, sum(tx, ScanOptions{})) })
}

// blocked runs a call that has to wait, and gives its outcome.
func blocked(t *testing.T, c *Catalog, f func() error) chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	waiting(t, c, 1)
	return done
}

// A range that was read with locks stays as it is: by key, by a secondary index, by a UNIQUE value that is absent.
func TestNoPhantoms(t *testing.T) {
	ctx := context.Background()
	for name, read := range map[string]func(tx *Tx, tab *Table) []any{
		"scan": func(tx *Tx, tab *Table) []any { return ids(t, tx.Scan(ctx, tab, ScanOptions{Lock: LockShared})) },
		"key range": func(tx *Tx, tab *Table) []any {
			return ids(t, tx.Lookup(ctx, tab, "", []KeyRange{{Low: storage.Row{int32(2)}, High: storage.Row{int32(8)}}}, ScanOptions{Lock: LockShared}))
		},
		"absent key": func(tx *Tx, tab *Table) []any {
			_, ok, err := tx.GetLock(ctx, tab, storage.Row{int32(5)}, ScanOptions{Lock: LockShared})
			require.NoError(t, err)
			require.False(t, ok)
			return nil
		},
		"index": func(tx *Tx, tab *Table) []any {
			return ids(t, tx.Lookup(ctx, tab, "by_v", []KeyRange{{Low: storage.Row{int64(50)}, High: storage.Row{int64(50)}}}, ScanOptions{Lock: LockShared}))
		},
		"unique": func(tx *Tx, tab *Table) []any {
			return ids(t, tx.Lookup(ctx, tab, "u", []KeyRange{{Low: storage.Row{"e"}, High: storage.Row{"e"}}}, ScanOptions{Lock: LockShared}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, tab := lockWorld(t)
			inTx(t, c, func(tx *Tx) {
				require.NoError(t, tx.Insert(ctx, tab, row(1, "a", 10)))
				require.NoError(t, tx.Insert(ctx, tab, row(9, "i", 90)))
			})
			x, y := lockBegin(t, c, RepeatableRead), lockBegin(t, c, RepeatableRead)
			before := read(x, tab)
			done := blocked(t, c, func() error { return y.Insert(ctx, tab, row(5, "e", 50)) })
			require.Equal(t, before, read(x, tab))
			require.NoError(t, x.Commit(ctx))
			require.NoError(t, <-done)
			// The other way round: what is not committed is waited for.
			z := lockBegin(t, c, RepeatableRead)
			seen := make(chan bool, 1)
			blocked(t, c, func() error {
				var err error
				n := 0
				if name == "absent key" {
					var ok bool
					if _, ok, err = z.GetLock(ctx, tab, storage.Row{int32(5)}, ScanOptions{Lock: LockShared}); ok {
						n = 1
					}
				} else {
					for _, id := range read(z, tab) {
						if id == int32(5) {
							n++
						}
					}
				}
				seen <- n == 1
				return err
			})
			require.NoError(t, y.Commit(ctx))
			require.True(t, <-seen)
			z.Rollback()
		})
	}
}

func ids(t *testing.T, rows func(yield func(storage.Batch, error) bool)) (out []any) {
	for b, err := range rows {
		require.NoError(t, err)
		for i := range b.Rows {
			out = append(out, b.Value(0, i))
		}
	}
	return out
}

// Of two that insert one key, or one UNIQUE value, the second waits: it is a duplicate if the first commits, else not.
func TestInsertRace(t *testing.T) {
	ctx := context.Background()
	for _, second := range []storage.Row{row(1, "b", 2), row(2, "a", 2)} {
		for _, commits := range []bool{true, false} {
			c, tab := lockWorld(t)
			x, y := lockBegin(t, c, RepeatableRead), lockBegin(t, c, RepeatableRead)
			require.NoError(t, x.Insert(ctx, tab, row(1, "a", 1)))
			done := blocked(t, c, func() error { return y.Insert(ctx, tab, second) })
			if commits {
				require.NoError(t, x.Commit(ctx))
				var dup *DuplicateKeyError
				require.ErrorAs(t, <-done, &dup)
				require.Equal(t, "a", dup.Existing[1])
			} else {
				x.Rollback()
				require.NoError(t, <-done)
			}
			require.NoError(t, y.Commit(ctx))
		}
	}
}

// Plain reads of a snapshot do not see what was committed since; under READ COMMITTED the next statement does. Writes always do.
func TestSnapshotsAndCurrentReads(t *testing.T) {
	ctx := context.Background()
	c, tab := lockWorld(t)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, row(1, "a", 1))) })
	rr, rc := lockBegin(t, c, RepeatableRead), lockBegin(t, c, ReadCommitted)
	get := func(tx *Tx, o ScanOptions) int64 {
		r, ok, err := tx.GetLock(ctx, tab, storage.Row{int32(1)}, o)
		require.NoError(t, err)
		require.True(t, ok)
		return r[2].(int64)
	}
	for _, tx := range []*Tx{rr, rc} {
		require.EqualValues(t, 1, get(tx, ScanOptions{}))
	}
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Update(ctx, tab, row(1, "a", 1), row(1, "a", 2))) })
	require.NoError(t, c.Flush(ctx, "test"))
	for _, tx := range []*Tx{rr, rc} {
		require.NoError(t, tx.StartStatement())
	}
	require.EqualValues(t, 1, get(rr, ScanOptions{}))
	require.EqualValues(t, 2, get(rc, ScanOptions{}))
	require.EqualValues(t, 2, get(rr, ScanOptions{Lock: LockShared}))
	require.EqualValues(t, 2, get(rc, ScanOptions{Lock: LockShared}))
	require.EqualValues(t, 1, get(rr, ScanOptions{}), "still")
	rc.Rollback()
	require.NoError(t, rr.Update(ctx, tab, row(1, "a", 2), row(1, "a", 3)))
	require.EqualValues(t, 3, get(rr, ScanOptions{}))
	require.NoError(t, rr.Commit(ctx))
	// A row that was read from the snapshot, without a lock, and is another one now, is not overwritten.
	old := lockBegin(t, c, RepeatableRead)
	require.EqualValues(t, 3, get(old, ScanOptions{}))
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Update(ctx, tab, row(1, "a", 3), row(1, "a", 4))) })
	require.ErrorIs(t, old.Update(ctx, tab, row(1, "a", 3), row(1, "a", 5)), ErrConflict)
	require.Equal(t, "[1 a 4]", scanAll(t, c, tab))
}

// NOWAIT fails at once, SKIP LOCKED leaves locked rows out, and takes no more rows than its reader does.
func TestNoWaitAndSkip(t *testing.T) {
	ctx := context.Background()
	c, tab := lockWorld(t)
	inTx(t, c, func(tx *Tx) {
		for i := range int32(6) {
			require.NoError(t, tx.Insert(ctx, tab, row(i, fmt.Sprint(i), int64(i))))
		}
	})
	var taken []int32
	var txs []*Tx
	for range 3 { // each takes the first row that is free, as from a queue
		tx := lockBegin(t, c, RepeatableRead)
		txs = append(txs, tx)
		for b, err := range tx.Scan(ctx, tab, ScanOptions{Lock: LockExclusive, Wait: LockSkip}) {
			require.NoError(t, err)
			taken = append(taken, b.Value(0, 0).(int32))
			break
		}
	}
	require.Equal(t, []int32{0, 1, 2}, taken)
	y := lockBegin(t, c, ReadCommitted)
	require.Equal(t, []any{int32(3), int32(4), int32(5)}, ids(t, y.Scan(ctx, tab, ScanOptions{Lock: LockShared, Wait: LockSkip})))
	_, _, err := y.GetLock(ctx, tab, storage.Row{int32(1)}, ScanOptions{Lock: LockShared, Wait: LockNoWait})
	require.ErrorIs(t, err, ErrLocked)
	_, ok, err := y.GetLock(ctx, tab, storage.Row{int32(1)}, ScanOptions{Lock: LockShared, Wait: LockSkip})
	require.NoError(t, err)
	require.False(t, ok)
	y.Rollback()
	for _, tx := range txs {
		tx.Rollback()
	}
}

// A table that is locked keeps writers out; who has written to it keeps locks of the table out.
func TestTableLocks(t *testing.T) {
	ctx := context.Background()
	c, tab := lockWorld(t)
	holder := lockBegin(t, c, RepeatableRead)
	require.NoError(t, holder.LockTable(ctx, tab, LockExclusive, LockWaits))
	own, err := c.BeginTx(ctx, TxOptions{Holder: holder})
	require.NoError(t, err)
	require.NoError(t, own.Insert(ctx, tab, row(1, "a", 1)))
	require.NoError(t, own.Commit(ctx))
	other := lockBegin(t, c, RepeatableRead)
	done := blocked(t, c, func() error { return other.Insert(ctx, tab, row(2, "b", 2)) })
	holder.UnlockTables()
	require.NoError(t, <-done)
	require.ErrorIs(t, holder.LockTable(ctx, tab, LockShared, LockNoWait), ErrLocked)
	holder.Rollback()
	require.NoError(t, other.Commit(ctx))
	require.Equal(t, 2, len(ids(t, func(yield func(storage.Batch, error) bool) {
		inTx(t, c, func(tx *Tx) { tx.Scan(ctx, tab, ScanOptions{})(yield) })
	})))
}
