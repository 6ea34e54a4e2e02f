package catalog

import (
	"sync"
	"time"

	"github.com/lakesql/lakesql/index"
)

// Clock is the hybrid clock of a warehouse: microseconds since 1970, strictly rising, near the wall clock, never below a
// time that it or an earlier run showed. A commit's sequence is its time on this clock.
type Clock struct {
	wall func() time.Time

	mu   sync.Mutex
	last index.Seq // guarded by mu: the largest time shown
}

// Now shows the time. No commit that was acknowledged before has a later time, and no commit after has this time or an earlier one.
func (k *Clock) Now() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(k.last, index.Seq(k.wall().UnixMicro()))
	return seqTime(k.last)
}

// next gives the next commit's sequence.
func (k *Clock) next() index.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(k.last+1, index.Seq(k.wall().UnixMicro()))
	return k.last
}

// raise lifts the clock to at least s.
func (k *Clock) raise(s index.Seq) {
	k.mu.Lock()
	k.last = max(k.last, s)
	k.mu.Unlock()
}

func (k *Clock) read() index.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// instant draws the time of an instant, in whole milliseconds, after `above` and above every sequence shown; cut is the last
// sequence that lies before it, and every later one lies above it. It may be some milliseconds ahead of the wall clock: the caller waits.
func (k *Clock) instant(above time.Time) (at time.Time, cut index.Seq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cut = k.last
	ms := max(int64(k.last)/1000+1, k.wall().UnixMilli(), above.UnixMilli()+1)
	k.last = index.Seq(ms) * 1000
	return time.UnixMilli(ms).UTC(), cut
}

func seqTime(s index.Seq) time.Time { return time.UnixMicro(int64(s)).UTC() }
