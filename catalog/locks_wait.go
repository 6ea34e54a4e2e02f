package catalog

import (
	"fmt"
	"slices"
)

// heldAgainst tells whether a lock that another owner has is in a request's way; with f, it calls f for each such owner.
func (m *lockManager) heldAgainst(r *lockRequest, f func(*lockOwner)) bool {
	s, o := r.space, r.tx.owner
	found := false
	meet := func(h *lockHolder) bool {
		if h.tx == nil || h.tx.owner == o || !h.mask.excludes(r.mask) {
			return false
		}
		found = true
		if f != nil {
			f(h.tx.owner)
			return false
		}
		return true
	}
	each := func(p *lockPoint) bool {
		if meet(&p.one) {
			return false
		}
		for i := range p.more {
			if meet(&p.more[i]) {
				return false
			}
		}
		return true
	}
	if r.point {
		if p := s.points.get(r.low); p != nil {
			each(p)
		}
	} else {
		s.points.within(r.low, r.high, r.open, each)
	}
	if found && f == nil {
		return true
	}
	s.ranges.meeting(reach{low: r.low, high: r.high, open: r.open, point: r.point}, func(g *lockRange) bool {
		return !meet(&g.lockHolder)
	})
	if found && f == nil {
		return true
	}
	for _, set := range s.sets {
		if set.tx.owner == o || !set.mask.excludes(r.mask) || r.point && !set.has(r.low) || !r.point && !set.within(r.low, r.high, r.open) {
			continue
		}
		if meet(&set.lockHolder) {
			return true
		}
	}
	return found
}

// before gives the requests that stand before r and that it has to let pass. Those that another one of them waits for in any case may be left out.
func (r *lockRequest) before(f func(*lockRequest) bool) {
	w := r.space.last
	if r.queued {
		w = r.prev
	}
	for ; w != nil; w = w.prev {
		if w.tx.owner == r.tx.owner || !w.mask.excludes(r.mask) || !w.overlaps(r) || slices.Contains(r.passes, w) {
			continue
		}
		if !f(w) {
			return
		}
		if w.mask&lockX != 0 && len(w.passes) == 0 && (w.point == r.point && w.low == r.low && w.high == r.high && w.open == r.open) {
			return // whatever is in r's way is in its way, too
		}
	}
}

// free tells whether nothing is in a request's way.
func (m *lockManager) free(r *lockRequest) bool {
	if m.heldAgainst(r, nil) {
		return false
	}
	ok := true
	r.before(func(*lockRequest) bool {
		ok = false
		return false
	})
	return ok
}

// pass finds the earlier requests that wait for the owner of a new one: it does not wait for them.
func (m *lockManager) pass(r *lockRequest) {
	if r.space.first == nil || r.tx.unneeded() {
		return
	}
	c := circles{m: m, target: r.tx.owner}
	for w := r.space.first; w != nil; w = w.next {
		if w.tx.owner != r.tx.owner && w.mask.excludes(r.mask) && w.overlaps(r) && c.search(w) {
			r.passes = append(r.passes, w)
		}
	}
}

// unneeded tells that nobody can wait for a transaction: it has no locks but those by which it says that it locks rows of a table.
func (l *txLocks) unneeded() bool {
	if l.owner != &l.own || l.waits > 0 || l.ranges+len(l.sets) > 0 || len(l.points) > len(l.tables) {
		return false
	}
	for _, p := range l.points {
		if p.space.no != spaceTable || p.space.first != nil {
			return false
		}
	}
	return true
}

// enqueue begins a wait.
func (m *lockManager) enqueue(r *lockRequest) {
	m.lastNo++
	r.no, r.since, r.ready, r.queued = m.lastNo, m.now(), make(chan struct{}), true
	s := r.space
	if r.prev = s.last; r.prev != nil {
		r.prev.next = r
	} else {
		s.first = r
	}
	s.last = r
	r.tx.owner.waits = append(r.tx.owner.waits, r)
	r.tx.waits++
}

// dequeue ends a wait.
func (m *lockManager) dequeue(r *lockRequest) {
	s := r.space
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		s.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		s.last = r.prev
	}
	r.prev, r.next, r.queued, r.passes = nil, nil, false, nil
	o := r.tx.owner
	if i := slices.Index(o.waits, r); i >= 0 {
		o.waits = slices.Delete(o.waits, i, i+1)
	}
	r.tx.waits--
}

// settle grants what is free now, in order of arrival.
func (m *lockManager) settle(s *lockSpace) {
	if !s.dirty {
		return
	}
	s.dirty = false
	for r := s.first; r != nil; {
		next := r.next
		if m.free(r) {
			m.dequeue(r)
			m.grant(r)
			m.wake(r)
		}
		r = next
	}
}

func (m *lockManager) wake(r *lockRequest) {
	if m.changed != nil {
		m.changed(r.tx, false)
	}
	close(r.ready)
}

// waitedFor calls f for each owner that a request waits for.
func (m *lockManager) waitedFor(r *lockRequest, f func(*lockOwner)) {
	m.heldAgainst(r, f)
	r.before(func(w *lockRequest) bool {
		f(w.tx.owner)
		return true
	})
}

// circles looks for the ways by which requests wait for an owner.
type circles struct {
	m      *lockManager
	target *lockOwner
	seen   map[*lockOwner]bool // owners that were looked at: true if they wait for the target
	path   []*lockRequest      // by which the last one that was asked for does
}

// search tells whether a request waits for the target, maybe by way of others.
func (c *circles) search(r *lockRequest) bool {
	c.path = append(c.path, r)
	var next []*lockOwner
	found := false
	c.m.waitedFor(r, func(o *lockOwner) {
		found = found || o == c.target
		if !found && o != r.tx.owner {
			next = append(next, o)
		}
	})
	if found {
		return true
	}
	for _, o := range next {
		waits, seen := c.seen[o]
		if seen && !waits {
			continue
		}
		if c.seen == nil {
			c.seen = map[*lockOwner]bool{}
		}
		c.seen[o] = false
		for _, w := range o.waits {
			if c.search(w) {
				c.seen[o] = true
				return true
			}
		}
	}
	c.path = c.path[:len(c.path)-1]
	return false
}

// breakCircles ends the circles of waits that a new wait closes, by giving up the lightest request of each, of equal ones the new one.
func (m *lockManager) breakCircles(r *lockRequest) {
	for r.queued && !r.unneeded() {
		c := circles{m: m, target: r.tx.owner}
		if !c.search(r) {
			return
		}
		victim := r
		for _, w := range c.path {
			if w.tx.weight.Load() < victim.tx.weight.Load() {
				victim = w
			}
		}
		victim.err = fmt.Errorf("%w in %s", ErrDeadlock, victim.space.table.t)
		m.metrics.DeadlocksTotal.Add(1)
		m.dequeue(victim)
		victim.space.dirty = true
		m.wake(victim)
		m.settle(victim.space)
	}
}

// unneeded tells that nobody can wait for the transaction of a request that has just begun to wait.
func (r *lockRequest) unneeded() bool {
	l := r.tx
	if l.waits > 1 {
		return false
	}
	l.waits-- // its own
	defer func() { l.waits++ }()
	return r.space.no != spaceTable && l.unneeded()
}
