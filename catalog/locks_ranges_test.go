package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ordered ranges give what a search of all of them gives, and stay shallow.
func TestLockRangesInOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 5))
	var s lockRanges
	var all []*lockRange
	key := func() string { return fmt.Sprintf("%02d", rnd.IntN(60)) }
	for n := range 1500 {
		if len(all) > 0 && rnd.IntN(3) == 0 {
			i := rnd.IntN(len(all))
			s.remove(all[i])
			all = slices.Delete(all, i, i+1)
		} else {
			r := &lockRange{low: key(), high: key(), no: uint64(n)}
			if r.high <= r.low {
				r.high, r.open = "", true
			}
			s.put(r)
			all = append(all, r)
		}
		q := reach{low: key(), high: key()}
		switch rnd.IntN(4) {
		case 0:
			q.point = true
		case 1:
			q.open = true
		case 2:
			q.touch = true
		}
		want := map[*lockRange]bool{}
		for _, r := range all {
			begins := q.open || r.low < q.high || q.touch && r.low == q.high
			if q.point {
				begins = r.low <= q.low
			}
			if begins && (r.open || r.high > q.low || q.touch && r.high == q.low) {
				want[r] = true
			}
		}
		var last *lockRange
		s.meeting(q, func(r *lockRange) bool {
			require.True(t, want[r], "%+v is not in reach of %+v", r, q)
			delete(want, r)
			require.True(t, last == nil || last.before(r))
			last = r
			return true
		})
		require.Empty(t, want, "%+v", q)
		require.Equal(t, len(all), s.n)
	}

	s = lockRanges{}
	const n = 1 << 14
	for i := range n {
		s.put(&lockRange{low: fmt.Sprintf("%06d", i), high: fmt.Sprintf("%06d", i+1), no: uint64(i)})
	}
	var depth func(*rangeNode) int
	depth = func(n *rangeNode) int {
		if n == nil {
			return 0
		}
		return 1 + max(depth(n.left), depth(n.right))
	}
	require.Less(t, depth(s.root), 100, "of %d", n)
}

// Ranges of a transaction that meet are one lock.
func TestLockRangesOfOneMeet(t *testing.T) {
	b := newLockBench(t)
	x, y := b.tx(), b.tx()
	held := func(n int, text string) {
		t.Helper()
		require.Equal(t, n, b.m.held, text)
	}
	require.NoError(t, b.lockRange(x, "b", "c", lockS, LockNoWait))
	require.NoError(t, b.lockRange(x, "d", "e", lockS, LockNoWait))
	held(2, "apart")
	require.NoError(t, b.lockRange(x, "c", "d", lockS, LockNoWait))
	held(1, "the gap is closed")
	require.NoError(t, b.lockRange(x, "ba", "dz", lockS, LockNoWait))
	held(1, "within")
	require.NoError(t, b.lockRange(x, "cc", "f", lockX, LockNoWait))
	held(2, "in another way")
	require.NoError(t, b.lockRange(y, "b", "cc", lockS, LockNoWait))
	require.ErrorIs(t, b.lock(y, "b", lockX, LockNoWait), ErrLocked)
	require.ErrorIs(t, b.lock(y, "cc", lockS, LockNoWait), ErrLocked)
	require.ErrorIs(t, b.lock(y, "ez", lockS, LockNoWait), ErrLocked)
	require.NoError(t, b.lock(y, "f", lockX, LockNoWait))
	b.m.end(y)
	y = b.tx()
	require.NoError(t, b.lockRange(x, "a", "d", lockX, LockNoWait))
	held(1, "an exclusive lock of all that it had shared")
	require.NoError(t, b.lockRange(x, "x", "", lockX, LockNoWait))
	require.NoError(t, b.lockRange(x, "f", "x", lockX, LockNoWait))
	held(1, "up to the end")
	require.ErrorIs(t, b.lock(y, "zzz", lockS, LockNoWait), ErrLocked)
	require.NoError(t, b.lock(y, "0", lockX, LockNoWait))
	b.m.end(x)
	b.m.end(y)
	b.empty()
}

func BenchmarkLockRange(b *testing.B) {
	for _, n := range []int{10, 1000, 50_000} {
		b.Run(fmt.Sprint("ranges=", n), func(b *testing.B) {
			lb := newLockBench(b)
			b.ReportAllocs()
			for i := 0; i < b.N; {
				l := lb.tx()
				for k := range n {
					at := fmt.Sprintf("%08d", k*7919%n)
					_ = lb.lockRange(l, at, at+"0", lockX, LockWaits)
					i++
				}
				lb.m.end(l)
			}
		})
	}
}
