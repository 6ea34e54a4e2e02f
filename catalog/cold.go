package catalog

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// coldState is what a snapshot knows of a table's files: immutable. Every completed instant of its timeline counts: one that
// another engine completed becomes visible by a new state (see Table.adopt).
type coldState struct {
	tl   *timeline.Timeline
	view *timeline.View

	own     []ownInstant // instants of ours with the commits that they hold, oldest first
	others  []otherInstant
	flushed index.Seq // rows at or below stand in the files
	trimmed index.Seq // the journal holds no rows at or below
	since   index.Seq // own and others tell of every instant that was completed after it, as long as the journal does

	// shape counts the changes of definitions after which an older snapshot cannot be read under the new one: all rows were rewritten or
	// removed, or an index was built.
	shape uint64
}

// ownInstant is an instant of ours.
type ownInstant struct {
	time  storage.InstantTime
	cut   index.Seq // it holds every commit at or below
	bytes int64     // of its rows in the journal
	effect
}

// otherInstant is an instant that became visible by adoption, or one of ours that a large statement wrote.
type otherInstant struct {
	time  storage.InstantTime
	known index.Seq // when it was adopted or decided
	ours  bool
	effect
}

// effect is what an instant did to the file groups, and when.
type effect struct {
	// seq is the sequence from which on readers see the instant. A flush is seen from its cut on, since it changes nothing for them;
	// so is a compaction from the last instant on that it merges.
	seq index.Seq
	// until is the sequence from which on readers see the instant no more, since it was rolled back, or the table restored; 0: they still do.
	until index.Seq
	// barrier says that rows changed that the journal does not hold: what was before cannot be had from what is after.
	barrier bool
	merges  bool // a compaction
	groups  []groupEffect
}

// groupEffect is what an instant did to one file group.
type groupEffect struct {
	Partition string              `json:"p,omitempty"`
	ID        storage.FileID      `json:"g"`
	Before    storage.InstantTime `json:"b,omitempty"` // begin of the slice before; "": there was none
	Replaced  bool                `json:"r,omitempty"` // the slice before ended: the instant began one, or hid the group
	Hidden    bool                `json:"h,omitempty"`
	Undone    storage.InstantTime `json:"u,omitempty"` // begin of the slice after the instant was undone
}

// counts tells whether an instant's files belong to the state.
func (s *coldState) counts(it storage.InstantTime) bool { return s.tl.Counts(it) }

// newest gives the file slices of the state.
func (s *coldState) newest() []storage.FileSlice { return s.view.Slices("", nil) }

// at gives the file slices as of an instant, and which instants count then.
func (s *coldState) at(bound storage.InstantTime) ([]storage.FileSlice, func(storage.InstantTime) bool) {
	counts := func(it storage.InstantTime) bool { return it <= bound && s.counts(it) }
	return s.view.Slices(bound, counts), counts
}

// ownUpTo gives how many instants of ours readers at a sequence see. The last of them was not undone after it: what such a one held is
// had from the journal until then. From then on it counts again, since its rows are gone.
func (s *coldState) ownUpTo(seq index.Seq) int {
	n := sort.Search(len(s.own), func(i int) bool { return s.own[i].seq > seq })
	for n > 0 && s.own[n-1].until > seq {
		n--
	}
	return n
}

// cutAt gives the last sequence that the instants of ours hold which readers at a sequence see.
func (s *coldState) cutAt(seq index.Seq) index.Seq {
	if n := s.ownUpTo(seq); n > 0 {
		return s.own[n-1].cut
	}
	return 0
}

// unreadable gives the sequence from which on a table is known again, if at a sequence it held rows of an instant of ours that was undone
// since and that the journal has given up.
func (s *coldState) unreadable(seq index.Seq) (from index.Seq) {
	n := sort.Search(len(s.own), func(i int) bool { return s.own[i].seq > seq })
	for ; n > 0 && s.own[n-1].until > seq; n-- {
		if o := &s.own[n-1]; o.cut <= s.trimmed {
			from = max(from, o.until)
		}
	}
	return from
}

// knownFrom gives the sequence of an instant that a state had: a flush's cut, or when it was adopted. Older ones than those that are known
// lie before everything that waits.
func (s *coldState) knownFrom(it storage.InstantTime) index.Seq {
	if n := sort.Search(len(s.others), func(i int) bool { return s.others[i].time >= it }); n < len(s.others) && s.others[n].time == it {
		return s.others[n].known
	}
	if e, ok := s.effectOf(it); ok {
		return e.seq
	}
	return max(1, s.trimmed)
}

// effectOf gives what is known of an instant's effect.
func (s *coldState) effectOf(it storage.InstantTime) (*effect, bool) {
	if n := sort.Search(len(s.own), func(i int) bool { return s.own[i].time >= it }); n < len(s.own) && s.own[n].time == it {
		return &s.own[n].effect, true
	}
	if n := sort.Search(len(s.others), func(i int) bool { return s.others[i].time >= it }); n < len(s.others) && s.others[n].time == it {
		return &s.others[n].effect, true
	}
	return nil, false
}

// countsAt tells whether readers at a sequence see an instant.
func (s *coldState) countsAt(seq index.Seq) func(storage.InstantTime) bool {
	return func(it storage.InstantTime) bool {
		if e, ok := s.effectOf(it); ok {
			return e.seq <= seq && (e.until == 0 || seq < e.until)
		}
		return s.counts(it)
	}
}

// foreignAt gives the instants of other engines that readers at a sequence see and that came after the last instant of ours then,
// with the sequence from which on they are seen.
func (s *coldState) foreignAt(seq index.Seq) map[storage.InstantTime]index.Seq {
	var after index.Seq
	if n := s.ownUpTo(seq); n > 0 {
		after = s.own[n-1].seq
	}
	out := map[storage.InstantTime]index.Seq{}
	for _, o := range s.others {
		if !o.ours && o.seq > after && o.seq <= seq && (o.until == 0 || seq < o.until) {
			out[o.time] = o.seq
		}
	}
	return out
}

// foreignSince gives the instants of other engines at or below bound that came after the last instant of ours there, with the sequence
// from which on they are seen if it is known, else 0.
func (s *coldState) foreignSince(bound storage.InstantTime) map[storage.InstantTime]index.Seq {
	var last storage.InstantTime
	if n := sort.Search(len(s.own), func(i int) bool { return s.own[i].time > bound }); n > 0 {
		last = s.own[n-1].time
	}
	out := map[storage.InstantTime]index.Seq{}
	for _, in := range slices.Backward(s.tl.Completed()) {
		if in.Time <= last {
			break
		}
		if in.Time <= bound {
			out[in.Time] = 0
		}
	}
	for _, o := range s.others {
		if o.ours {
			delete(out, o.time)
		} else if _, ok := out[o.time]; ok {
			out[o.time] = o.seq
		}
	}
	return out
}

// with gives the state after a new look at the timeline.
func (s *coldState) with(tl *timeline.Timeline, view *timeline.View) *coldState {
	return &coldState{tl: tl, view: view, own: s.own, others: s.others, flushed: s.flushed, trimmed: s.trimmed, since: s.since, shape: s.shape}
}

// addOwn notes an instant of ours. One without seq is seen from the moment on at which the state becomes known.
func (s *coldState) addOwn(o ownInstant) {
	s.own = append(s.own, o) // states follow one another: no earlier one looks behind its end
	s.flushed = max(s.flushed, o.cut)
}

// addOthers notes adopted instants.
func (s *coldState) addOthers(list []otherInstant) {
	if len(list) == 0 {
		return
	}
	s.others = slices.Concat(s.others, list)
	slices.SortFunc(s.others, func(a, b otherInstant) int { return strings.Compare(string(a.time), string(b.time)) })
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
	for i := range max(0, last) { // for how long it was seen is asked for until then
		if s.own[i].until > s.trimmed {
			last = i
			break
		}
	}
	if last > 0 {
		s.own = s.own[last:] // the newest of them tells which instants of others came after it
	}
	return s.trimmed > before
}

// gone tells whether what an instant did is the same for all readers after a sequence.
func (o *otherInstant) gone(below index.Seq) bool { return max(o.known, o.until) <= below }

// dropOthers gives up adopted instants that readers of the journal's window all see.
func (s *coldState) dropOthers(below index.Seq) (gone []otherInstant) {
	if !slices.ContainsFunc(s.others, func(o otherInstant) bool { return o.gone(below) }) {
		return nil
	}
	var left []otherInstant
	for _, o := range s.others {
		if o.gone(below) {
			gone = append(gone, o)
		} else {
			left = append(left, o)
		}
	}
	s.others = left
	return gone
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

// savedEffect is an effect as the hot tier keeps it (JSON).
type savedEffect struct {
	Seq     index.Seq     `json:"seq"`
	Until   index.Seq     `json:"until,omitempty"`
	Known   index.Seq     `json:"known,omitempty"`
	Barrier bool          `json:"barrier,omitempty"`
	Merges  bool          `json:"merges,omitempty"`
	Ours    bool          `json:"ours,omitempty"`
	Groups  []groupEffect `json:"groups,omitempty"`
}

// encode gives the value of an instant of ours: cut <uvarint> | bytes <uvarint> | effect (JSON; earlier releases had none).
func (o *ownInstant) encode() ([]byte, error) {
	v := appendUint(appendUint(nil, uint64(o.cut)), uint64(o.bytes))
	e, err := json.Marshal(savedEffect{Seq: o.seq, Until: o.until, Barrier: o.barrier, Merges: o.merges, Groups: o.groups})
	return append(v, e...), err
}

func decodeOwn(it storage.InstantTime, v []byte) (ownInstant, error) {
	d := decoder{b: v}
	o := ownInstant{time: it, cut: index.Seq(d.uvarint()), bytes: int64(d.uvarint())}
	if d.bad {
		return o, errJournal
	}
	o.seq = o.cut
	if len(d.b) == 0 {
		return o, nil
	}
	var e savedEffect
	err := json.Unmarshal(d.b, &e)
	o.effect = effect{seq: e.Seq, until: e.Until, barrier: e.Barrier, merges: e.Merges, groups: e.Groups}
	return o, err
}

func putEffect(b *pebble.Batch, t index.TableID, o *otherInstant) error {
	v, err := json.Marshal(savedEffect{Seq: o.seq, Until: o.until, Known: o.known, Ours: o.ours, Barrier: o.barrier, Merges: o.merges, Groups: o.groups})
	if err != nil {
		return err
	}
	return b.Set(effectKey(t, o.time), v, nil)
}

func decodeOther(it storage.InstantTime, v []byte) (otherInstant, error) {
	var e savedEffect
	err := json.Unmarshal(v, &e)
	return otherInstant{time: it, known: e.Known, ours: e.Ours, effect: effect{seq: e.Seq, until: e.Until, barrier: e.Barrier, merges: e.Merges, groups: e.Groups}}, err
}

// effectKey is the key of an instant that was adopted.
func effectKey(t index.TableID, it storage.InstantTime) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{prefixEffect}, uint32(t)), it...)
}
