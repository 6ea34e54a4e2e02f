package catalog

import "math/rand/v2"

// lockRange is a locked range [low, high) of keys; open: it has no end.
type lockRange struct {
	low, high string
	open      bool
	no        uint64 // orders ranges that begin at one key
	lockHolder
}

func (r *lockRange) includes(low, high string, open bool) bool {
	return r.low <= low && (r.open || !open && high <= r.high)
}

// reach asks for ranges that have a key in common with [low, high).
type reach struct {
	low, high string
	open      bool // without an end
	point     bool // low alone
	touch     bool // those that end at low or begin at high, too
}

// begins tells whether a range that begins at a key begins early enough.
func (q *reach) begins(low string) bool {
	if q.point {
		return low <= q.low
	}
	return q.open || low < q.high || q.touch && low == q.high
}

// ends tells whether a range that ends before a key ends late enough.
func (q *reach) ends(high string, open bool) bool {
	return open || high > q.low || q.touch && high == q.low
}

// lockRanges are locked ranges in the order in which they begin: a treap, of which each node knows how far what is below it extends.
type lockRanges struct {
	root *rangeNode
	n    int
}

type rangeNode struct {
	r           *lockRange
	left, right *rangeNode
	heap        uint32 // above those of left and right
	high        string // where the last of the ranges from here down ends
	open        bool
}

func (r *lockRange) before(o *lockRange) bool {
	return r.low < o.low || r.low == o.low && r.no < o.no
}

// put adds a range that is not there.
func (s *lockRanges) put(r *lockRange) {
	s.n++
	s.root = s.root.put(&rangeNode{r: r, heap: rand.Uint32(), high: r.high, open: r.open})
}

// remove takes a range away.
func (s *lockRanges) remove(r *lockRange) {
	s.n--
	s.root = s.root.remove(r)
}

// meeting calls f for the ranges that are asked for, in order, until it answers false.
func (s *lockRanges) meeting(q reach, f func(*lockRange) bool) {
	if s.root != nil {
		s.root.meeting(&q, f)
	}
}

// each calls f for all ranges in order. It may not change them.
func (s *lockRanges) each(f func(*lockRange) bool) { s.meeting(reach{open: true}, f) }

// update finds out how far the ranges from here down extend.
func (n *rangeNode) update() {
	n.high, n.open = n.r.high, n.r.open
	for _, c := range [2]*rangeNode{n.left, n.right} {
		if c != nil {
			n.high, n.open = max(n.high, c.high), n.open || c.open
		}
	}
}

func (n *rangeNode) put(x *rangeNode) *rangeNode {
	switch {
	case n == nil:
		return x
	case x.heap > n.heap:
		x.left, x.right = n.split(x.r)
		x.update()
		return x
	case x.r.before(n.r):
		n.left = n.left.put(x)
	default:
		n.right = n.right.put(x)
	}
	n.update()
	return n
}

// split parts the nodes before a range from the others.
func (n *rangeNode) split(r *lockRange) (left, right *rangeNode) {
	if n == nil {
		return nil, nil
	}
	if n.r.before(r) {
		n.right, right = n.right.split(r)
		n.update()
		return n, right
	}
	left, n.left = n.left.split(r)
	n.update()
	return left, n
}

// joinRanges makes one of two, all nodes of the first before those of the second.
func joinRanges(a, b *rangeNode) *rangeNode {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.heap > b.heap:
		a.right = joinRanges(a.right, b)
		a.update()
		return a
	}
	b.left = joinRanges(a, b.left)
	b.update()
	return b
}

func (n *rangeNode) remove(r *lockRange) *rangeNode {
	switch {
	case n.r == r:
		return joinRanges(n.left, n.right)
	case r.before(n.r):
		n.left = n.left.remove(r)
	default:
		n.right = n.right.remove(r)
	}
	n.update()
	return n
}

func (n *rangeNode) meeting(q *reach, f func(*lockRange) bool) bool {
	if n == nil || !q.ends(n.high, n.open) {
		return true
	}
	if !n.left.meeting(q, f) {
		return false
	}
	if !q.begins(n.r.low) {
		return true
	}
	if q.ends(n.r.high, n.r.open) && !f(n.r) {
		return false
	}
	return n.right.meeting(q, f)
}

// covered tells whether the transaction has locked all of a range, or the point low, by a range of its own.
func (ts *txSpace) covered(want lockMask, low, high string, open, point bool) (ok bool) {
	if ts.all.covers(want) {
		return true
	}
	ts.some.meeting(reach{low: low, point: true}, func(r *lockRange) bool {
		ok = r.mask.covers(want) && (point || r.includes(low, high, open))
		return !ok
	})
	return ok
}

// grantRange notes a lock of a range. Ranges that a transaction has locked in one way become one where they meet, so that the ranges
// of one way have no key in common.
func (m *lockManager) grantRange(l *txLocks, ts *txSpace, low, high string, open bool, mask lockMask) {
	g := &lockRange{low: low, high: high, open: open, lockHolder: lockHolder{l, mask, m.now()}}
	var gone []*lockRange
	ts.some.meeting(reach{low: low, high: high, open: open, touch: true}, func(o *lockRange) bool {
		if o.mask == mask {
			g.low, g.high, g.open, g.since = min(g.low, o.low), max(g.high, o.high), g.open || o.open, min(g.since, o.since)
			gone = append(gone, o)
		}
		return true
	})
	ts.some.meeting(reach{low: g.low, high: g.high, open: g.open}, func(o *lockRange) bool {
		if o.mask != mask && mask.covers(o.mask) && g.includes(o.low, o.high, o.open) {
			gone = append(gone, o)
		}
		return true
	})
	for _, o := range gone {
		m.dropRange(l, ts, o)
	}
	if g.open {
		g.high = ""
	}
	m.lastRange++
	g.no = m.lastRange
	ts.some.put(g)
	ts.space.ranges.put(g)
	l.ranges++
	ts.any |= mask
	m.hold(1)
	if g.low == "" && g.open {
		ts.all |= mask
		return
	}
	m.many(l, ts)
}

// dropRange takes a range of a transaction away.
func (m *lockManager) dropRange(l *txLocks, ts *txSpace, r *lockRange) {
	ts.some.remove(r)
	ts.space.ranges.remove(r)
	l.ranges--
	m.hold(-1)
}
