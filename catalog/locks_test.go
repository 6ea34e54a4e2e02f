package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
)

// lockBench is a lock manager with transactions that stand for nothing.
type lockBench struct {
	t     testing.TB
	m     *lockManager
	tab   *Table
	waits chan *txLocks // who begins to wait
}

func newLockBench(t testing.TB) *lockBench {
	b := &lockBench{t: t, m: newLockManager(&Metrics{}), tab: &Table{id: 7}, waits: make(chan *txLocks, 1000)}
	b.tab.def.Store(&tableDef{database: "d", name: "t", spec: &TableSpec{}})
	b.m.changed = func(l *txLocks, waits bool) {
		if waits {
			b.waits <- l
		}
	}
	return b
}

func (b *lockBench) tx() *txLocks {
	l := &txLocks{}
	b.m.begin(l, TxOptions{LockTimeout: time.Minute})
	return l
}

func (b *lockBench) lock(l *txLocks, key string, m lockMask, w LockWait) error {
	_, err := b.m.lockPoint(context.Background(), l, b.tab, spaceRecord, []byte(key), m, w)
	return err
}

func (b *lockBench) lockRange(l *txLocks, low, high string, m lockMask, w LockWait) error {
	r := index.Bounds{Low: []byte(low), High: []byte(high)}
	if high == "" {
		r.High = nil
	}
	_, err := b.m.lockRange(context.Background(), l, b.tab, spaceRecord, r, m, w)
	return err
}

// later makes a request that has to wait, and returns once it does.
func (b *lockBench) later(l *txLocks, f func() error) chan error {
	done := make(chan error, 1)
	go func() {
		err := f()
		if errors.Is(err, ErrDeadlock) {
			b.m.end(l)
		}
		done <- err
	}()
	select {
	case w := <-b.waits:
		require.Same(b.t, l, w)
	case err := <-done:
		b.t.Fatalf("it did not wait: %v", err)
	}
	return done
}

// empty checks that nothing is left.
func (b *lockBench) empty() {
	b.t.Helper()
	for _, lt := range b.m.tables {
		require.Zero(b.t, lt.users)
		for _, s := range lt.spaces {
			require.Zero(b.t, s.points.n)
			require.Zero(b.t, s.ranges.n)
			require.Empty(b.t, s.sets)
			require.Nil(b.t, s.first)
		}
	}
	require.Nil(b.t, b.m.first)
	require.Zero(b.t, b.m.held)
	require.Zero(b.t, b.m.metrics.LocksHeld.Load())
}

func TestLockModes(t *testing.T) {
	all := []lockMask{lockIS, lockIX, lockS, lockX}
	together := map[[2]lockMask]bool{
		{lockIS, lockIS}: true, {lockIS, lockIX}: true, {lockIS, lockS}: true,
		{lockIX, lockIX}: true, {lockS, lockS}: true,
	}
	for _, p := range all {
		for _, q := range all {
			b := newLockBench(t)
			x, y := b.tx(), b.tx()
			require.NoError(t, b.lock(x, "k", p, LockNoWait))
			err := b.lock(y, "k", q, LockNoWait)
			if together[[2]lockMask{p, q}] || together[[2]lockMask{q, p}] {
				require.NoError(t, err, "%s beside %s", q, p)
			} else {
				require.ErrorIs(t, err, ErrLocked, "%s beside %s", q, p)
			}
			require.NoError(t, b.lock(x, "k", p, LockNoWait), "again")
			require.NoError(t, b.lock(y, "other", lockX, LockNoWait))
			b.m.end(x)
			require.NoError(t, b.lock(y, "k", q, LockNoWait))
			b.m.end(y)
			b.empty()
		}
	}
	require.True(t, lockX.covers(lockS) && lockX.covers(lockIX) && lockS.covers(lockIS) && lockIX.covers(lockIS))
	require.False(t, lockS.covers(lockX) || lockIX.covers(lockS) || lockS.covers(lockIX) || lockIS.covers(lockIX))
}

// A shared lock becomes an exclusive one when it is alone, before those that came later.
func TestLockUpgrade(t *testing.T) {
	b := newLockBench(t)
	x, y, z := b.tx(), b.tx(), b.tx()
	require.NoError(t, b.lock(x, "k", lockS, LockWaits))
	require.NoError(t, b.lock(x, "k", lockX, LockNoWait))
	b.m.end(x)
	x = b.tx()
	require.NoError(t, b.lock(x, "k", lockS, LockWaits))
	require.NoError(t, b.lock(y, "k", lockS, LockWaits))
	zDone := b.later(z, func() error { return b.lock(z, "k", lockX, LockWaits) })
	xDone := b.later(x, func() error { return b.lock(x, "k", lockX, LockWaits) })
	b.m.end(y)
	require.NoError(t, <-xDone, "its lock stands in the way of the one that came before")
	b.m.end(x)
	require.NoError(t, <-zDone)
	b.m.end(z)
	b.empty()
}

func TestLockRanges(t *testing.T) {
	b := newLockBench(t)
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lockRange(x, "c", "f", lockS, LockNoWait))
	for k, free := range map[string]bool{"b": true, "bzz": true, "c": false, "d": false, "ezz": false, "f": true, "g": true} {
		if err := b.lock(y, k, lockX, LockNoWait); free {
			require.NoError(t, err, k)
		} else {
			require.ErrorIs(t, err, ErrLocked, k)
			require.NoError(t, b.lock(y, k, lockS, LockNoWait), k)
		}
	}
	require.NoError(t, b.lockRange(y, "a", "c", lockX, LockNoWait))
	require.NoError(t, b.lockRange(y, "f", "", lockX, LockNoWait))
	require.NoError(t, b.lockRange(y, "e", "", lockS, LockNoWait))
	require.ErrorIs(t, b.lockRange(y, "e", "", lockX, LockNoWait), ErrLocked)
	require.ErrorIs(t, b.lockRange(x, "b", "d", lockS, LockNoWait), ErrLocked, "keys that y has locked")
	require.ErrorIs(t, b.lockRange(x, "", "", lockS, LockNoWait), ErrLocked)
	b.m.end(y)
	require.NoError(t, b.lockRange(x, "", "", lockX, LockNoWait))
	require.NoError(t, b.lock(x, "q", lockX, LockNoWait))
	require.Equal(t, 1, b.m.held, "what is in a range of one's own needs no lock of its own")
	z := b.tx()
	done := b.later(z, func() error { return b.lock(z, "m", lockS, LockWaits) })
	b.m.end(x)
	require.NoError(t, <-done)
	b.m.end(z)
	b.empty()
}

// A row that many want is had in turn, and readers do not starve a writer.
func TestLockFairness(t *testing.T) {
	b := newLockBench(t)
	first := b.tx()
	require.NoError(t, b.lock(first, "k", lockX, LockWaits))
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 50 {
		l := b.tx()
		wg.Add(1)
		go func() {
			defer wg.Done()
			assertNoError(t, b.lock(l, "k", lockX, LockWaits))
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			b.m.end(l)
		}()
		require.Same(t, l, <-b.waits)
	}
	b.m.end(first)
	wg.Wait()
	require.True(t, slices.IsSorted(order), "%v", order)
	b.empty()

	r, w, late := b.tx(), b.tx(), b.tx()
	require.NoError(t, b.lock(r, "k", lockS, LockWaits))
	wDone := b.later(w, func() error { return b.lock(w, "k", lockX, LockWaits) })
	require.ErrorIs(t, b.lock(late, "k", lockS, LockNoWait), ErrLocked, "a writer came before")
	lateDone := b.later(late, func() error { return b.lock(late, "k", lockS, LockWaits) })
	b.m.end(r)
	require.NoError(t, <-wDone)
	b.m.end(w)
	require.NoError(t, <-lateDone)
	b.m.end(late)
	b.empty()
}

func assertNoError(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

// A circle of waits is ended when it closes, at the cost of the transaction that wrote least; the others get their locks.
func TestLockDeadlock(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for lightest := range n {
			t.Run(fmt.Sprintf("%d, lightest %d", n, lightest), func(t *testing.T) {
				b := newLockBench(t)
				var txs []*txLocks
				for i := range n {
					l := b.tx()
					if i != lightest {
						l.weight.Store(5)
					}
					require.NoError(t, b.lock(l, fmt.Sprint(i), lockX, LockWaits))
					txs = append(txs, l)
				}
				var done []chan error
				for i, l := range txs {
					f := func() error { return b.lock(l, fmt.Sprint((i+1)%n), lockX, LockWaits) }
					done = append(done, b.later(l, f))
				}
				ended := map[int]bool{}
				for len(ended) < n { // the victim's end lets the one before it go on, and so forth
					for i := range n {
						select {
						case err := <-done[i]:
							ended[i] = true
							if i == lightest {
								require.ErrorIs(t, err, ErrDeadlock)
								require.ErrorIs(t, err, ErrConflict)
							} else {
								require.NoError(t, err)
								b.m.end(txs[i])
							}
						case <-time.After(time.Millisecond):
						}
					}
				}
				require.EqualValues(t, 1, b.m.metrics.DeadlocksTotal.Load())
				b.empty()
			})
		}
	}
}

// Two readers that both want to write cannot both go on.
func TestLockUpgradeDeadlock(t *testing.T) {
	b := newLockBench(t)
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lock(x, "k", lockS, LockWaits))
	require.NoError(t, b.lock(y, "k", lockS, LockWaits))
	xDone := b.later(x, func() error { return b.lock(x, "k", lockX, LockWaits) })
	yDone := b.later(y, func() error { return b.lock(y, "k", lockX, LockWaits) })
	require.ErrorIs(t, <-yDone, ErrDeadlock, "the one that closes the circle, of equals")
	require.NoError(t, <-xDone)
	b.m.end(x)
	b.empty()
}

// The order of requests is no reason for a circle: who has what an earlier one waits for does not wait for that one.
func TestLockOrderMakesNoCircle(t *testing.T) {
	b := newLockBench(t)
	x, y, z := b.tx(), b.tx(), b.tx()
	require.NoError(t, b.lock(x, "a", lockX, LockWaits))
	require.NoError(t, b.lock(y, "b", lockS, LockWaits))
	// z waits for y (at b) by way of a range that has a, too.
	zDone := b.later(z, func() error { return b.lockRange(z, "b", "d", lockX, LockWaits) })
	require.NoError(t, b.lock(y, "c", lockX, LockNoWait))
	yDone := b.later(y, func() error { return b.lock(y, "a", lockX, LockWaits) })
	require.NoError(t, b.lock(x, "e", lockX, LockNoWait))
	b.m.end(x)
	require.NoError(t, <-yDone)
	b.m.end(y)
	require.NoError(t, <-zDone)
	b.m.end(z)
	require.Zero(t, b.m.metrics.DeadlocksTotal.Load())
	b.empty()
}

func TestLockTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLockBench(t)
		x, y, z := b.tx(), b.tx(), b.tx()
		require.NoError(t, b.lock(x, "k", lockS, LockWaits))
		y.o.LockTimeout = 3 * time.Second
		began := time.Now()
		yDone := b.later(y, func() error { return b.lock(y, "k", lockX, LockWaits) })
		zDone := b.later(z, func() error { return b.lock(z, "k", lockS, LockWaits) })
		require.ErrorIs(t, <-yDone, ErrLockTimeout)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.NoError(t, <-zDone, "who waited behind it goes on")
		require.EqualValues(t, 1, b.m.metrics.LockTimeoutsTotal.Load())
		require.EqualValues(t, 2, b.m.metrics.LockWaitsTotal.Load())
		require.Equal(t, int64(6*time.Second), b.m.metrics.LockWaitNanos.Load())
		for _, l := range []*txLocks{x, y, z} {
			b.m.end(l)
		}
		b.empty()
	})
}

func TestLockCancelled(t *testing.T) {
	b := newLockBench(t)
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lock(x, "k", lockX, LockWaits))
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("the client is gone")
	done := b.later(y, func() error {
		_, err := b.m.lockPoint(ctx, y, b.tab, spaceRecord, []byte("k"), lockX, LockWaits)
		return err
	})
	cancel(gone)
	require.ErrorIs(t, <-done, gone)
	require.Zero(t, b.m.metrics.LockTimeoutsTotal.Load())
	// A transaction that is ended elsewhere does not wait any more.
	done = b.later(y, func() error { return b.lock(y, "k", lockX, LockWaits) })
	b.m.end(y)
	require.ErrorIs(t, <-done, ErrClosed)
	require.ErrorIs(t, b.lock(y, "k", lockX, LockWaits), ErrClosed)
	b.m.end(x)
	b.empty()
}

// Many locks of one transaction become one, if nobody else is there; otherwise later.
func TestLockEscalation(t *testing.T) {
	b := newLockBench(t)
	b.m.escalation = 100
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lock(y, "zz", lockX, LockNoWait))
	for i := range 120 {
		require.NoError(t, b.lock(x, fmt.Sprint("k", i), lockX, LockNoWait))
	}
	require.Equal(t, 121, b.m.held)
	b.m.end(y)
	for i := range 200 {
		require.NoError(t, b.lock(x, fmt.Sprint("m", i), lockX, LockNoWait))
	}
	require.Equal(t, 1, b.m.held)
	require.EqualValues(t, 1, b.m.metrics.LockEscalationsTotal.Load())
	z := b.tx()
	require.ErrorIs(t, b.lock(z, "any", lockS, LockNoWait), ErrLocked)
	b.m.end(x)
	require.NoError(t, b.lock(z, "any", lockS, LockNoWait))
	b.m.end(z)
	b.empty()

	// Shared locks beside others' shared locks, on the same keys among them.
	x, y = b.tx(), b.tx()
	for i := range 50 {
		require.NoError(t, b.lock(y, fmt.Sprint("k", i), lockS, LockNoWait))
	}
	for i := range 100 {
		require.NoError(t, b.lock(x, fmt.Sprint("k", i), lockS, LockNoWait))
	}
	require.Equal(t, 51, b.m.held)
	require.ErrorIs(t, b.lock(y, "other", lockX, LockNoWait), ErrLocked)
	b.m.end(x)
	require.NoError(t, b.lock(y, "k70", lockX, LockNoWait))
	z = b.tx()
	require.ErrorIs(t, b.lock(z, "k10", lockX, LockNoWait), ErrLocked)
	b.m.end(y)
	require.NoError(t, b.lock(z, "k10", lockX, LockNoWait))
	b.m.end(z)
	b.empty()

	// Ranges count, too, and where somebody is in the way of the whole they stay as they are.
	x, y = b.tx(), b.tx()
	require.NoError(t, b.lock(y, "zz", lockS, LockNoWait))
	for i := range 120 {
		require.NoError(t, b.lockRange(x, fmt.Sprintf("k%03d", i), fmt.Sprintf("k%03d5", i), lockX, LockNoWait))
	}
	require.Equal(t, 121, b.m.held)
	b.m.end(y)
	for i := range 30 {
		require.NoError(t, b.lockRange(x, fmt.Sprintf("m%03d", i), fmt.Sprintf("m%03d5", i), lockX, LockNoWait))
	}
	require.Equal(t, 1, b.m.held)
	require.EqualValues(t, 3, b.m.metrics.LockEscalationsTotal.Load())
	b.m.end(x)
	b.empty()
}

// While there are very many locks, transactions that have many of them get no more; the others go on.
func TestLocksHaveABound(t *testing.T) {
	b := newLockBench(t)
	b.m.most = 2000
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lock(y, "a", lockS, LockNoWait)) // in the way of a lock of all
	var err error
	n := 0
	for ; err == nil; n++ {
		if err = b.lock(x, fmt.Sprint("k", n), lockX, LockNoWait); err == nil {
			err = b.lockRange(x, fmt.Sprint("r", n), fmt.Sprint("r", n, "5"), lockX, LockNoWait)
		}
	}
	require.ErrorIs(t, err, ErrTooManyLocks)
	require.Equal(t, b.m.most, b.m.held)
	require.EqualValues(t, 1, b.m.metrics.LocksRefusedTotal.Load())
	require.NoError(t, b.lock(x, "k1", lockX, LockNoWait), "it has that already")
	require.NoError(t, b.lock(y, "b", lockX, LockNoWait))
	keys, err := b.m.lockPoints(context.Background(), x, b.tab, spaceRecord, [][]byte{[]byte("k2"), []byte("new")}, lockX, LockNoWait)
	require.ErrorIs(t, err, ErrTooManyLocks, "%v", keys)
	b.m.end(x)
	b.m.end(y)
	b.empty()
}

// The lock of a row that is not needed is given up, and what others have of it stays.
func TestUnlockPoint(t *testing.T) {
	b := newLockBench(t)
	x, y := b.tx(), b.tx()
	require.NoError(t, b.lock(x, "k", lockS, LockNoWait))
	require.NoError(t, b.lock(y, "k", lockS, LockNoWait))
	b.m.unlockPoint(x, b.tab, spaceRecord, []byte("k"))
	require.NoError(t, b.lock(y, "k", lockX, LockNoWait))
	done := b.later(x, func() error { return b.lock(x, "k", lockX, LockWaits) })
	b.m.unlockPoint(y, b.tab, spaceRecord, []byte("k"))
	require.NoError(t, <-done)
	b.m.end(x)
	b.m.end(y)
	b.empty()
}

// The set of keys is a sorted list of them.
func TestLockKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var k lockKeys
	have := map[string]bool{}
	for range 20_000 {
		key := fmt.Sprint(r.IntN(3000))
		switch {
		case !have[key] && r.IntN(5) > 0:
			k.put(&lockPoint{key: key})
			have[key] = true
		case r.IntN(3) == 0:
			k.remove(key)
			delete(have, key)
		}
		require.Equal(t, have[key], k.get(key) != nil)
		require.Equal(t, len(have), k.n)
		if r.IntN(500) == 0 {
			low, high := fmt.Sprint(r.IntN(3000)), fmt.Sprint(r.IntN(3000))
			open := r.IntN(3) == 0
			var want, got []string
			for h := range have {
				if h >= low && (open || h < high) {
					want = append(want, h)
				}
			}
			slices.Sort(want)
			k.within(low, high, open, func(p *lockPoint) bool {
				got = append(got, p.key)
				return true
			})
			require.Equal(t, want, got)
		}
	}
}

// Random transactions: no two are ever where only one may be, every wait ends, and nothing is left.
func TestLockRandom(t *testing.T) {
	b := newLockBench(t)
	b.m.changed = nil
	b.m.escalation = 20
	const keys = 30
	var readers, writers [keys]atomic.Int32
	var wg sync.WaitGroup
	var deadlocks atomic.Int32
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for range 400 {
				l := b.tx()
				has := map[int]lockMask{}
				for range 1 + r.IntN(8) {
					m := []lockMask{lockS, lockX}[r.IntN(2)]
					from, to := r.IntN(keys), 0
					key := func(i int) string { return fmt.Sprintf("%02d", i) }
					var err error
					if r.IntN(4) == 0 {
						to = from + 1 + r.IntN(5)
						err = b.lockRange(l, key(from), key(to), m, LockWaits)
					} else {
						to = from + 1
						err = b.lock(l, key(from), m, LockWaits)
					}
					if errors.Is(err, ErrDeadlock) {
						deadlocks.Add(1)
						break
					}
					runtime.Gosched() // others have their turn while it holds locks, on one processor, too
					if err != nil {
						t.Error(err)
						break
					}
					runtime.Gosched() // on one processor nobody would meet anybody
					for k := from; k < min(to, keys); k++ {
						if has[k]&m != 0 {
							continue
						}
						has[k] |= m
						if m == lockX {
							writers[k].Add(1)
						} else {
							readers[k].Add(1)
						}
						own := int32(0)
						if has[k]&lockS != 0 {
							own = 1
						}
						if n := writers[k].Load(); n > 1 || m == lockS && has[k]&lockX == 0 && n > 0 {
							t.Errorf("key %d: %d writers", k, n)
						}
						if m == lockX && readers[k].Load() > own {
							t.Errorf("key %d: a writer beside %d readers", k, readers[k].Load())
						}
					}
					runtime.Gosched() // transactions overlap, however few processors there are
				}
				for k, m := range has {
					if m&lockX != 0 {
						writers[k].Add(-1)
					}
					if m&lockS != 0 {
						readers[k].Add(-1)
					}
				}
				b.m.end(l)
			}
		}()
	}
	wg.Wait()
	b.empty()
	require.Zero(t, b.m.metrics.LockTimeoutsTotal.Load())
	require.Positive(t, deadlocks.Load())
}

func BenchmarkLock(b *testing.B) {
	for _, n := range []int{1, 10, 1000, 50_000} {
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) {
			lb := newLockBench(b)
			keys := make([][]byte, n)
			for i := range keys {
				keys[i], _ = (&index.Column{}).Append(nil, int64(i*7919%n))
			}
			b.ReportAllocs()
			for i := 0; i < b.N; {
				l := lb.tx()
				for _, k := range keys {
					_, _ = lb.m.lockPoint(context.Background(), l, lb.tab, spaceRecord, k, lockX, LockWaits)
					i++
				}
				lb.m.end(l)
			}
		})
	}
}
