package catalog

import (
	"sync"
	"time"

	"github.com/lakesql/lakesql/index"
)

// Clock is the hybrid clock of a warehouse: microseconds since 1970, strictly rising, near the wall clock, never below a
// time that it or an earlier run showed. A commit's sequence is its time on this clock.
//
// Commits carry their times into the journal, but a time can be shown without any. So that a crash forgets none, times are shown only up to a
// ceiling that is durable and lies a little ahead: a start after a crash goes on above it.
type Clock struct {
	wall func() time.Time
	// reserve makes a ceiling durable; nil: the clock keeps none. It changes with both locks held.
	reserve func(ceiling index.Seq) error

	renew    sync.Mutex // one reservation at a time; taken before mu and before Catalog.commitMu
	renewals sync.WaitGroup

	mu       sync.Mutex
	last     index.Seq     // guarded by mu: the largest time shown
	open     []index.Seq   // guarded by mu: sequences of commits that are not known to be durable, in order
	ceiling  index.Seq     // guarded by mu: no crash forgets the times up to here
	renewing bool          // guarded by mu: a reservation is under way, of which nobody waits for the end
	base     time.Time     // guarded by mu: a look at the machine's clock, with its monotonic one
	ahead    time.Duration // guarded by mu: of the wall clock, by the monotonic one
	steady   index.Seq     // guarded by mu: the wall clock has not been set since
}

// reserveAhead is how far ahead times are reserved: it takes a sync twice in so long a time at most, for which nobody waits but who asks first
// after a while, and the clock is so far ahead of the wall clock after a crash and a quick start. Tests lower it.
var reserveAhead = time.Second

// Now shows the time. No commit that was acknowledged before has a later time, and no commit after, not even after a crash, has this
// time or an earlier one.
func (k *Clock) Now() time.Time {
	k.mu.Lock()
	k.last = max(k.last, k.look())
	t, soon := k.last, k.last+index.Seq(reserveAhead.Microseconds()/2)
	durable := k.reserve == nil || t <= k.ceiling
	if durable && k.reserve != nil && soon > k.ceiling && !k.renewing {
		k.renewing = true
		k.renewals.Go(func() {
			k.extend(soon)
			k.mu.Lock()
			k.renewing = false
			k.mu.Unlock()
		})
	}
	k.mu.Unlock()
	if !durable {
		k.extend(t)
	}
	return seqTime(t)
}

// Near gives about the time, for ages and limits, and shows it to nobody.
func (k *Clock) Near() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return seqTime(max(k.last, k.look()))
}

// stamp is Now of a time that its caller makes durable.
func (k *Clock) stamp() index.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(k.last, k.look())
	return k.last
}

// extend moves the ceiling to a time or above. When that fails the time is shown all the same: nothing is committed any more until the next
// start.
func (k *Clock) extend(to index.Seq) {
	k.renew.Lock()
	defer k.renew.Unlock()
	k.mu.Lock()
	durable, up := k.reserve == nil || to <= k.ceiling, max(k.last+index.Seq(reserveAhead.Microseconds()), to)
	k.mu.Unlock()
	if durable || k.reserve(up) != nil {
		return
	}
	k.mu.Lock()
	k.ceiling = up
	k.mu.Unlock()
}

// end ends the reservations: what they are written to is closed.
func (k *Clock) end() {
	k.renew.Lock()
	k.mu.Lock()
	k.reserve = nil
	k.mu.Unlock()
	k.renew.Unlock()
	k.renewals.Wait()
}

// next gives the next commit's sequence.
func (k *Clock) next() index.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = max(k.last+1, k.look())
	k.open = append(k.open, k.last)
	return k.last
}

// raise lifts the clock to at least s.
func (k *Clock) raise(s index.Seq) {
	k.mu.Lock()
	k.last = max(k.last, s)
	k.mu.Unlock()
}

// read gives the largest time shown.
func (k *Clock) read() index.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// synced notes that the commits up to s are durable.
func (k *Clock) synced(s index.Seq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for n < len(k.open) && k.open[n] <= s {
		n++
	}
	k.open = append(k.open[:0], k.open[n:]...)
}

// syncing gives the largest sequence of a commit that is not known to be durable, if there is one at or below s.
func (k *Clock) syncing(s index.Seq) (last index.Seq, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.open) == 0 || k.open[0] > s {
		return 0, false
	}
	return k.open[len(k.open)-1], true
}

// instant draws the time of an instant, in whole milliseconds, after `above` and above every sequence shown; cut is the last
// sequence that lies before it, and every later one lies above it. It may be some milliseconds ahead of the wall clock: the caller waits.
func (k *Clock) instant(above time.Time) (at time.Time, cut index.Seq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cut = k.last
	ms := max(int64(k.last)/1000+1, int64(k.look())/1000, above.UnixMilli()+1)
	k.last = index.Seq(ms) * 1000
	return time.UnixMilli(ms).UTC(), cut
}

// clockStep is from when on a difference of clocks is none of reading them one after the other.
const clockStep = 100 * time.Millisecond

// look reads the wall clock, and notes if it was set; called with mu held.
func (k *Clock) look() index.Seq {
	w := k.wall()
	if k.base.IsZero() {
		k.base = time.Now()
		k.ahead = w.Round(0).Sub(k.base.Round(0))
	}
	t := index.Seq(max(0, w.UnixMicro()))
	ahead := w.Round(0).Sub(k.base.Round(0)) - time.Since(k.base)
	if d := ahead - k.ahead; d > clockStep || d < -clockStep {
		k.steady = max(k.last, t)
	}
	k.ahead = ahead
	return t
}

// vouches tells whether a time of the machine's clock, which files carry, means the same on this clock: the two agree, and neither was
// set since.
func (k *Clock) vouches(t time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.look()
	differ := time.Until(seqTime(now))
	return differ < clockStep && differ > -clockStep && seqTime(k.last).Sub(seqTime(now)) < clockStep && t.After(seqTime(k.steady))
}

func seqTime(s index.Seq) time.Time { return time.UnixMicro(int64(s)).UTC() }
