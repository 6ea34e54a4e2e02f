package timeline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// position is where an instant stands on the axis of incremental reads: its instant time in layout 1, its completion time in layout 2.
func (in Instant) position() storage.InstantTime {
	if in.Layout == Layout2 {
		return in.Completed
	}
	return in.Time
}

// Range is the part of a timeline that lies after From ("": the beginning) and up to To ("": the end): instant times in layout 1,
// completion times in layout 2.
type Range struct {
	From, To storage.InstantTime
}

func (r Range) holds(at storage.InstantTime) bool { return at > r.From && (r.To == "" || at <= r.To) }

// Between gives the completed commits, delta commits and replace commits in a range, oldest first. Archived says that instants of the
// range are not on the active timeline any more; times then has theirs, where the layout tells.
func (t *Timeline) Between(ctx context.Context, s storage.Store, dir string, r Range) (list []Instant, times []storage.InstantTime, archived bool, err error) {
	oldest := storage.InstantTime("")
	for _, in := range t.Completed() {
		if at := in.position(); oldest == "" || at < oldest {
			oldest = at
		}
		if r.holds(in.position()) {
			list = append(list, in)
		}
	}
	slices.SortStableFunc(list, func(a, b Instant) int { return strings.Compare(string(a.position()), string(b.position())) })
	if r.From >= oldest || oldest == "" {
		return list, nil, false, nil
	}
	for in, err := range Archived(ctx, s, dir) {
		if err != nil {
			return nil, nil, false, fmt.Errorf("finding instants of a range: %w", err)
		}
		at := in.Time
		if t.layout == Layout2 {
			at = in.Transition
		}
		if _, ok := t.completed[in.Time]; !ok && in.State == Completed && in.Action.writes() && r.holds(at) {
			times, archived = append(times, in.Time), true
		}
	}
	return list, times, archived, nil
}

// CountsAt tells which instants count for a reader at a point of the axis of incremental reads; "" is the present.
func (t *Timeline) CountsAt(at storage.InstantTime) func(storage.InstantTime) bool {
	if at == "" {
		return t.Counts
	}
	return func(it storage.InstantTime) bool {
		pos := it
		if end, ok := t.completed[it]; ok && t.layout == Layout2 {
			pos = end
		}
		return pos <= at && t.Counts(it)
	}
}
