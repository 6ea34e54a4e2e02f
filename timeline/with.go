package timeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// With gives the timeline as if an instant that writes data had completed: one whose files are there, which was decided elsewhere,
// and whose completion follows.
func (t *Timeline) With(in Instant) *Timeline {
	in.State = Completed
	out := *t
	at, _ := slices.BinarySearchFunc(t.Instants, in, func(a, b Instant) int { return strings.Compare(string(a.Time), string(b.Time)) })
	out.Instants = slices.Insert(slices.Clone(t.Instants), at, in)
	out.completed = maps.Clone(t.completed)
	if out.completed == nil {
		out.completed = map[storage.InstantTime]storage.InstantTime{}
	}
	out.completed[in.Time] = in.Completed
	if out.start == "" || in.Time < out.start {
		out.start = in.Time
	}
	return &out
}
