package catalog

import (
	"slices"
	"sort"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// coldState is what a snapshot knows of a table's files: immutable. Every completed instant of its timeline counts: one that
// another engine completed becomes visible by a new state (see Table.adopt).
type coldState struct {
	tl   *timeline.Timeline
	view *timeline.View

	own     []ownInstant    // instants of ours with the commits that they hold, oldest first
	staged  []stagedInstant // instants of large statements, oldest first, as long as the journal's window reaches
	flushed index.Seq       // rows at or below stand in the files
	trimmed index.Seq       // the journal holds no rows at or below
}

type ownInstant struct {
	time  storage.InstantTime
	cut   index.Seq
	bytes int64 // of its rows in the journal
}

// stagedInstant is the instant of a large statement, whose files were begun before the statement was decided: nobody sees them as of a
// sequence below seq, although the instant's time is below it.
type stagedInstant struct {
	time storage.InstantTime
	seq  index.Seq
}

// counts tells whether an instant's files belong to the state.
func (s *coldState) counts(it storage.InstantTime) bool { return s.tl.Counts(it) }

// newest gives the file slices of the state.
func (s *coldState) newest() []storage.FileSlice { return s.view.Slices("", nil) }

// at gives the file slices as of an instant, and which instants count then. With seq above 0 large statements that were decided after it
// do not.
func (s *coldState) at(bound storage.InstantTime, seq index.Seq) ([]storage.FileSlice, func(storage.InstantTime) bool) {
	later := map[storage.InstantTime]bool{}
	for _, o := range slices.Backward(s.staged) {
		if seq == 0 || o.seq <= seq {
			break
		}
		later[o.time] = true
	}
	counts := func(it storage.InstantTime) bool { return it <= bound && s.counts(it) && !later[it] }
	return s.view.Slices(bound, counts), counts
}

// cutAt gives the last sequence that the instants of ours at or below bound hold.
func (s *coldState) cutAt(bound storage.InstantTime) index.Seq {
	n := sort.Search(len(s.own), func(i int) bool { return s.own[i].time > bound })
	if n == 0 {
		return 0
	}
	return s.own[n-1].cut
}

// foreignSince gives the instants of other engines at or below bound that came after the last instant of ours there.
func (s *coldState) foreignSince(bound storage.InstantTime) map[storage.InstantTime]bool {
	var last storage.InstantTime
	if n := sort.Search(len(s.own), func(i int) bool { return s.own[i].time > bound }); n > 0 {
		last = s.own[n-1].time
	}
	out := map[storage.InstantTime]bool{}
	for _, in := range slices.Backward(s.tl.Completed()) {
		if in.Time <= last {
			break
		}
		if in.Time <= bound {
			out[in.Time] = true
		}
	}
	for _, o := range s.staged {
		delete(out, o.time)
	}
	return out
}

// with gives the state after a new look at the timeline.
func (s *coldState) with(tl *timeline.Timeline, view *timeline.View) *coldState {
	return &coldState{tl: tl, view: view, own: s.own, staged: s.staged, flushed: s.flushed, trimmed: s.trimmed}
}

// addOwn notes an instant of ours.
func (s *coldState) addOwn(o ownInstant) {
	s.own = append(s.own, o) // states follow one another: no earlier one looks behind its end
	s.flushed = max(s.flushed, o.cut)
}

// trim gives up the journal's rows of instants that are older than keep, and of the oldest ones while there are more than limit bytes.
// It tells whether there are any.
func (s *coldState) trim(keep index.Seq, limit int64) bool {
	var total int64
	for i := len(s.own) - 1; i >= 0 && s.own[i].cut > s.trimmed; i-- {
		total += s.own[i].bytes
	}
	before, last := s.trimmed, -1
	for i, o := range s.own {
		if o.cut > s.trimmed {
			if o.cut >= keep && total <= limit {
				break
			}
			total -= o.bytes
			s.trimmed = o.cut
		}
		last = i
	}
	if last > 0 {
		s.own = s.own[last:] // the newest of them tells which instants of others came after it
	}
	return s.trimmed > before
}

// knownInstants splits the completed instants into a low mark, below which nothing is pending, and the ones above it.
func knownInstants(tl *timeline.Timeline) (low storage.InstantTime, above []storage.InstantTime) {
	pending := storage.InstantTime("~")
	for _, in := range tl.Pending() {
		pending = min(pending, in.Time)
	}
	for _, in := range tl.Completed() {
		switch {
		case in.Time < pending:
			low = max(low, in.Time)
		default:
			above = append(above, in.Time)
		}
	}
	return low, above
}
