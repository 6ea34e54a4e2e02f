package catalog

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// What each instant did to the file groups is kept as long as the journal keeps its commits: a reader of the past finds out by it
// which slice of a group was the one then, although a cleaner may have taken it away since, and whether the commits in
// between lead from a later slice back to it.

// groupKey names a file group of a table.
type groupKey struct {
	partition string
	id        storage.FileID
}

// groupChange is one effect on a group.
type groupChange struct {
	seq     index.Seq
	by      storage.InstantTime // the instant that made it
	begin   storage.InstantTime // of the slice from then on, "" if there is none; as it was if the instant wrote a log file
	before  storage.InstantTime // of the slice until then
	ends    bool                // the slice before ended
	barrier bool
	until   index.Seq // the instant was undone then, and its files went; 0: it was not
}

// history has the changes of each file group in the window of the journal, in order of their sequences and instants: a large statement
// and the flush of what was committed with it may share a sequence.
type history struct {
	mu     sync.RWMutex
	groups map[groupKey][]groupChange
}

func (h *history) add(it storage.InstantTime, e *effect, ours bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups == nil {
		h.groups = map[groupKey][]groupChange{}
	}
	for _, g := range e.groups {
		ch := groupChange{seq: e.seq, by: it, begin: it, before: g.Before, ends: g.Replaced, barrier: e.barrier, until: e.until}
		if g.Hidden {
			ch.begin = ""
		} else if !g.Replaced {
			ch.begin = g.Before
		}
		k := groupKey{g.Partition, g.ID}
		if e.until == 0 || !ours { // else the journal has what the instant held
			h.insert(k, ch)
		}
		if e.until > 0 {
			h.insert(k, groupChange{seq: e.until, by: it, begin: g.Undone, before: g.Before, ends: true, barrier: true})
		}
	}
}

// insert adds a change of a group; called with mu held.
func (h *history) insert(k groupKey, ch groupChange) {
	list := h.groups[k]
	n := sort.Search(len(list), func(i int) bool { return list[i].seq > ch.seq || list[i].seq == ch.seq && list[i].by > ch.by })
	if n == len(list) {
		h.groups[k] = append(list, ch) // readers do not look behind the end that they saw
	} else {
		h.groups[k] = slices.Insert(slices.Clone(list), n, ch)
	}
}

// undo has an instant be seen until its effect says.
func (h *history) undo(it storage.InstantTime, e *effect, ours bool) {
	h.mu.Lock()
	for _, g := range e.groups {
		k := groupKey{g.Partition, g.ID}
		h.groups[k] = slices.DeleteFunc(slices.Clone(h.groups[k]), func(ch groupChange) bool { return ch.by == it })
	}
	h.mu.Unlock()
	h.add(it, e, ours)
}

// drop forgets effects at or below a sequence.
func (h *history) drop(e *effect, upTo index.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range e.groups {
		k := groupKey{g.Partition, g.ID}
		list := h.groups[k]
		for len(list) > 0 && list[0].seq <= upTo {
			list = list[1:]
		}
		if len(list) == 0 {
			delete(h.groups, k)
		} else {
			h.groups[k] = list
		}
	}
}

func (h *history) changes(k groupKey) []groupChange {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.groups[k]
}

// barred tells whether rows of a slice changed that the journal does not hold: only the slice itself tells what was before.
func (h *history) barred(k groupKey, begin storage.InstantTime) bool {
	return slices.ContainsFunc(h.changes(k), func(ch groupChange) bool { return ch.barrier && !ch.ends && ch.begin == begin })
}

// after gives the groups that changed after a sequence.
func (h *history) after(seq index.Seq) (out []groupKey) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for k, list := range h.groups {
		if len(list) > 0 && list[len(list)-1].seq > seq {
			out = append(out, k)
		}
	}
	return out
}

// beginAt gives the begin of the group's slice at a sequence, "" if there was none; known is false if no change tells of it.
func beginAt(list []groupChange, seq index.Seq) (begin storage.InstantTime, known bool) {
	n := sort.Search(len(list), func(i int) bool { return list[i].seq > seq })
	switch {
	case n > 0:
		return list[n-1].begin, true
	case n < len(list):
		return list[n].before, true
	}
	return "", false
}

// undoneAt tells whether a group had files, at a sequence, of an instant that was undone since: they are gone.
func undoneAt(list []groupChange, seq index.Seq) bool {
	return slices.ContainsFunc(list, func(ch groupChange) bool { return ch.seq <= seq && seq < ch.until })
}

// adoptedInstants gives the instants of other engines that a new state of the files has and the table's record does not know, with what they did.
// Their sequences are set when the state becomes known.
func (t *Table) adoptedInstants(ctx context.Context, prev, next *coldState) ([]otherInstant, error) {
	if prev.since == 0 || prev.tl == next.tl && len(next.tl.Instants) == 0 {
		return nil, nil
	}
	t.c.commitMu.Lock()
	low, list := t.record.Low, t.record.Known
	t.c.commitMu.Unlock()
	known := map[storage.InstantTime]bool{}
	for _, it := range list {
		known[it] = true
	}
	before := map[storage.InstantTime]bool{}
	for _, in := range prev.tl.Completed() {
		before[in.Time] = true
	}
	fresh := map[storage.InstantTime]bool{}
	var todo []timeline.Instant
	for _, in := range next.tl.Completed() {
		if before[in.Time] && (in.Time <= low || known[in.Time]) {
			continue
		}
		if _, ok := next.effectOf(in.Time); !ok {
			fresh[in.Time] = true
			todo = append(todo, in)
		}
	}
	if len(todo) == 0 {
		return nil, nil
	}
	view := prev.view
	if view.Timeline() == nil {
		view = next.view
	}
	counts := func(it storage.InstantTime) bool { return !fresh[it] && prev.counts(it) }
	begins := map[groupKey]storage.InstantTime{} // of the groups' slices before the next of the instants
	var out []otherInstant
	for _, in := range todo {
		m, err := timeline.ReadCommit(ctx, t.c.store, t.def.Load().dir, in)
		if err != nil {
			return nil, err
		}
		service := m.Operation == timeline.OpCompact || m.Operation == timeline.OpLogCompact
		o := otherInstant{time: in.Time, effect: effect{barrier: !service, merges: service}}
		begin := func(k groupKey) storage.InstantTime {
			if b, ok := begins[k]; ok {
				return b
			}
			fs, _ := view.Slice(k.partition, k.id, "", counts)
			return fs.Begin
		}
		for part, stats := range m.Stats {
			for i := range stats {
				st := &stats[i]
				name, ok := storage.ParseFileName(st.FileName())
				if !ok {
					continue
				}
				k := groupKey{part, name.ID}
				g := groupEffect{Partition: part, ID: name.ID, Before: begin(k)}
				if st.PrevCommit != "" && st.PrevCommit != in.Time && !service && prev.tl == next.tl {
					g.Before = st.PrevCommit // the files may be gone
				}
				g.Replaced = name.Version == 0 || g.Before == ""
				if g.Replaced {
					begins[k] = in.Time
				}
				o.groups = append(o.groups, g)
			}
		}
		for part, ids := range m.Replaced {
			for _, id := range ids {
				k := groupKey{part, id}
				o.groups = append(o.groups, groupEffect{Partition: part, ID: id, Before: begin(k), Replaced: true, Hidden: true})
				begins[k] = ""
			}
		}
		slices.SortFunc(o.groups, func(a, b groupEffect) int {
			return firstOrder(a.Partition, b.Partition, string(a.ID), string(b.ID))
		})
		out = append(out, o)
	}
	return out, nil
}

func firstOrder(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != pairs[i+1] {
			if pairs[i] < pairs[i+1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// ownEffect is what an instant of ours did to the groups of its files.
func ownEffect(it storage.InstantTime, cut index.Seq, view *timeline.View, counts func(storage.InstantTime) bool, files map[string][]string) effect {
	if view.Timeline() == nil {
		counts = func(storage.InstantTime) bool { return false }
	}
	e := effect{seq: cut}
	for _, part := range sortedKeys(files) {
		for _, n := range files[part] {
			name, ok := storage.ParseFileName(n)
			if !ok {
				continue
			}
			fs, _ := view.Slice(part, name.ID, "", func(x storage.InstantTime) bool { return x != it && counts(x) })
			e.groups = append(e.groups, groupEffect{Partition: part, ID: name.ID, Before: fs.Begin, Replaced: name.Version == 0 || fs.Begin == ""})
		}
	}
	return e
}

// hide adds the groups that a replacecommit hides.
func (e *effect) hide(replaced map[string][]storage.FileID, view *timeline.View, counts func(storage.InstantTime) bool) {
	for _, part := range sortedKeys(replaced) {
		for _, id := range replaced[part] {
			fs, _ := view.Slice(part, id, "", counts)
			e.groups = append(e.groups, groupEffect{Partition: part, ID: id, Before: fs.Begin, Replaced: true, Hidden: true})
		}
	}
}

// undoneInstants gives the instants that a state of the files had and a new one has no more, though they were not archived: they were rolled
// back, or the table was restored.
func undoneInstants(prev, next *coldState) (out []storage.InstantTime) {
	gone := func(it storage.InstantTime, e *effect) {
		if e.until == 0 && !next.tl.Counts(it) {
			out = append(out, it)
		}
	}
	if prev.tl == next.tl { // at a start
		for i := range prev.own {
			gone(prev.own[i].time, &prev.own[i].effect)
		}
		for i := range prev.others {
			if o := &prev.others[i]; !o.ours || !next.tl.IsPending(o.time) {
				gone(o.time, &o.effect)
			}
		}
		return out
	}
	for _, in := range prev.tl.Completed() {
		if e, ok := prev.effectOf(in.Time); ok {
			gone(in.Time, e)
		}
	}
	return out
}

// noteUndone has instants be seen up to a sequence only; called with commitMu held.
func (t *Table) noteUndone(b *pebble.Batch, next *coldState, undone []storage.InstantTime, seq index.Seq) error {
	next.own, next.others = slices.Clone(next.own), slices.Clone(next.others)
	for _, it := range undone {
		e, ok := next.effectOf(it)
		if !ok {
			continue
		}
		e.until, e.groups = seq, slices.Clone(e.groups)
		for i := range e.groups {
			g := &e.groups[i]
			fs, _ := next.view.Slice(g.Partition, g.ID, "", nil)
			g.Undone = fs.Begin
		}
		var err error
		if n := slices.IndexFunc(next.own, func(o ownInstant) bool { return o.time == it }); n >= 0 {
			var v []byte
			if v, err = next.own[n].encode(); err == nil {
				err = b.Set(ownKey(t.id, it), v, nil)
			}
		} else {
			n := slices.IndexFunc(next.others, func(o otherInstant) bool { return o.time == it })
			err = putEffect(b, t.id, &next.others[n])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteEffects sets the sequences of what a new state of the files has more than the one before, and writes it; called with commitMu held.
// An adopted instant is seen from its completion on, but not before the last commit or snapshot that did not see it; from its adoption on
// if the clocks leave open when it completed.
// seq is the sequence that the batch has, 0 if it needs none; the one that it has then is given.
func (t *Table) noteEffects(b *pebble.Batch, prev, next *coldState, adopted []otherInstant, undone []storage.InstantTime, seq index.Seq) (index.Seq, error) {
	c := t.c
	stamp := func() index.Seq {
		if seq == 0 {
			seq = c.clock.next()
		}
		return seq
	}
	if prev.since == 0 {
		next.since = stamp()
	}
	if n := len(next.own); next.hasNewOwn(prev) {
		o := &next.own[n-1]
		if o.seq == 0 {
			o.seq = stamp()
		}
		v, err := o.encode()
		if err != nil {
			return 0, err
		}
		if err := b.Set(ownKey(t.id, o.time), v, nil); err != nil {
			return 0, err
		}
	}
	if len(undone) > 0 {
		if err := t.noteUndone(b, next, undone, stamp()); err != nil {
			return 0, err
		}
	}
	if len(adopted) == 0 {
		return seq, nil
	}
	known := stamp()
	at := max(index.Seq(c.lastSnap.Load()), index.Seq(t.lastSeq.Load()), next.flushed) + 1
	for i := range adopted {
		o := &adopted[i]
		if in, ok := next.tl.Get(o.time); ok && !o.merges {
			done, err := in.End(t.def.Load().zone)
			if err != nil || !c.clock.vouches(done) {
				at = known
				break
			}
			at = max(at, index.Seq(done.Add(folderTick).UnixMicro())) // file systems keep times that coarse
		}
	}
	at = min(at, known)
	for i := range adopted {
		o := &adopted[i]
		o.known, o.seq = known, at
		if o.merges {
			o.seq = next.mergedBy(o.time, adopted[:i])
		}
		if err := putEffect(b, t.id, o); err != nil {
			return 0, err
		}
	}
	next.addOthers(adopted)
	return seq, nil
}

// mergedBy gives the sequence from which on a compaction shows what was shown before: it merges every instant before its own.
func (s *coldState) mergedBy(it storage.InstantTime, adopted []otherInstant) (seq index.Seq) {
	if n := sort.Search(len(s.own), func(i int) bool { return s.own[i].time >= it }); n > 0 {
		seq = s.own[n-1].seq
	}
	for _, list := range [][]otherInstant{s.others, adopted} {
		for _, o := range list {
			if o.time < it {
				seq = max(seq, o.seq)
			}
		}
	}
	return seq
}

// noteHistory takes the effects of a state that has become known into the table's history.
func (t *Table) noteHistory(prev, next *coldState, adopted []otherInstant, undone []storage.InstantTime) {
	if n := len(next.own); next.hasNewOwn(prev) {
		t.hist.add(next.own[n-1].time, &next.own[n-1].effect, true)
	}
	for i := range adopted {
		t.hist.add(adopted[i].time, &adopted[i].effect, false)
	}
	for _, it := range undone {
		if e, ok := next.effectOf(it); ok {
			ours := slices.ContainsFunc(next.own, func(o ownInstant) bool { return o.time == it })
			t.hist.undo(it, e, ours)
		}
	}
	for i := range prev.own {
		if len(next.own) == 0 || prev.own[i].time >= next.own[0].time {
			break
		}
		t.hist.drop(&prev.own[i].effect, next.trimmed)
	}
	for i := range prev.others {
		if prev.others[i].gone(next.trimmed) {
			t.hist.drop(&prev.others[i].effect, next.trimmed)
		}
	}
}

// hasNewOwn tells whether the state has an instant of ours more than the one before.
func (s *coldState) hasNewOwn(prev *coldState) bool {
	n, m := len(s.own), len(prev.own)
	return n > 0 && (m == 0 || prev.own[m-1].time < s.own[n-1].time)
}

// keepReplaced keeps the slices that a new state ends and that the commits after it do not lead back to.
func (t *Table) keepReplaced(prev, next *coldState, adopted []otherInstant) {
	var effects []*effect
	if next.hasNewOwn(prev) {
		effects = append(effects, &next.own[len(next.own)-1].effect)
	}
	for i := range adopted {
		effects = append(effects, &adopted[i].effect)
	}
	t.keepSlices(prev, effects)
}

// loadEffects reads what the hot tier has of the table's instants.
func (t *Table) loadEffects(cold *coldState) error {
	db := t.c.db
	read := func(prefix byte, f func(it storage.InstantTime, v []byte) error) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: idKey(prefix, t.id), UpperBound: idKey(prefix, t.id+1)})
		if err != nil {
			return err
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := f(storage.InstantTime(it.Key()[5:]), v); err != nil {
				return fmt.Errorf("instant %s: %w", it.Key()[5:], err)
			}
		}
		return it.Error()
	}
	err := read(prefixOwn, func(it storage.InstantTime, v []byte) error {
		o, err := decodeOwn(it, v)
		cold.own = append(cold.own, o)
		t.hist.add(it, &o.effect, true)
		return err
	})
	if err != nil {
		return err
	}
	return read(prefixEffect, func(it storage.InstantTime, v []byte) error {
		o, err := decodeOther(it, v)
		cold.others = append(cold.others, o)
		t.filesSeq.Store(max(t.filesSeq.Load(), uint64(o.known)))
		t.hist.add(it, &o.effect, false)
		return err
	})
}
