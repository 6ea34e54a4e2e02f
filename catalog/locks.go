package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lakesql/lakesql/index"
)

// Locks of transactions. What is locked are the index keys of a table (there or not), values of its secondary indexes, ranges of
// both, and the table itself. A lock ends with its transaction. Plain reads of a snapshot take none.
//
// A request waits for the locks of others that are in its way, and for the requests in its way that came before it, so that a row
// that many want is had in turn. It does not wait for an earlier request that itself waits for the requester: that would be a circle
// for the sake of the order alone.

// lockMask is a set of ways to lock.
type lockMask uint8

const (
	lockIS lockMask = 1 << iota // on a table: rows are locked shared
	lockIX                      // on a table: rows are locked exclusively; on values of an index: a row with them is added
	lockS
	lockX
)

// against has, for each set of ways, those that do not go along with it.
var against = func() (out [16]lockMask) {
	one := map[lockMask]lockMask{lockIS: lockX, lockIX: lockS | lockX, lockS: lockIX | lockX, lockX: lockIS | lockIX | lockS | lockX}
	for m := range out {
		for way, bad := range one {
			if lockMask(m)&way != 0 {
				out[m] |= bad
			}
		}
	}
	return out
}()

func (m lockMask) excludes(o lockMask) bool { return against[m]&o != 0 }

// covers tells whether who has m needs nothing more for o.
func (m lockMask) covers(o lockMask) bool {
	switch {
	case m&lockX != 0:
		return true
	case m&lockS != 0:
		m |= lockIS
	case m&lockIX != 0:
		m |= lockIS
	}
	return o&^m == 0
}

func (m LockMode) mask() lockMask {
	if m == LockExclusive {
		return lockX
	}
	return lockS
}

// Spaces of a table in which keys are locked, beside the numbers of its secondary indexes.
const (
	spaceTable  = -2 // the table itself: its only key is ""
	spaceRecord = -1 // index keys
)

const (
	// lockEscalation is the number of keys in a space from which a transaction locks the whole space, if nobody else is in it.
	lockEscalation = 100_000
	// lockEscalationSoon is that number while all transactions together have more than lockCrowd locks.
	lockEscalationSoon = 10_000
	lockCrowd          = 1_000_000
	// locksMax is the number of locks of all transactions from which those that have locksFew get no more. A lock takes about 150 bytes.
	locksMax = 4_000_000
	locksFew = 1000
)

// lockManager keeps the locks of a warehouse. It is one critical section, so that circles of waits are seen as they arise.
type lockManager struct {
	metrics    *Metrics
	base       time.Time
	escalation int
	most       int // see locksMax

	mu     sync.Mutex
	tables map[index.TableID]*lockTable // guarded by mu; those in which something is locked or waited for, and some others
	first  *txLocks                     // guarded by mu; all transactions under way
	lastID uint64                       // guarded by mu
	lastNo uint64                       // guarded by mu; number of requests that waited
	// lastRange numbers ranges; guarded by mu.
	lastRange uint64
	held      int // guarded by mu; locks of all transactions

	// changed, if set before use, is called under mu with true when a transaction begins to wait and with false when its wait ends.
	changed func(tx *txLocks, waits bool)
}

// lockTable is a table with locks.
type lockTable struct {
	t      *Table
	spaces []*lockSpace
	users  int // transactions that locked something of it
}

// lockSpace has the locks of one kind of key.
type lockSpace struct {
	no     int64
	table  *lockTable
	points lockKeys
	ranges lockRanges
	sets   []*lockSet
	first  *lockRequest // who waits, in order of arrival
	last   *lockRequest
	dirty  bool // a lock has gone: somebody may have what he waits for
}

// lockPoint is a key that somebody has locked.
type lockPoint struct {
	key   string
	space *lockSpace
	one   lockHolder
	more  []lockHolder
}

// lockHolder is a transaction with the ways in which it has locked something.
type lockHolder struct {
	tx    *txLocks // nil: nobody
	mask  lockMask
	since int64 // since lockManager.base, in ns
}

// lockSet is a lock of very many keys, which somebody else keeps: those of the rows that a large statement has written into files.
type lockSet struct {
	no     int64 // of the space
	has    func(key string) bool
	within func(low, high string, open bool) bool // whether one is at or above low and below high
	lockHolder
}

// lockOwner is who does not exclude himself: a transaction, with the one that holds the locks of tables for it.
type lockOwner struct {
	waits []*lockRequest
}

// txLocks are the locks of a transaction.
type txLocks struct {
	id      uint64
	started time.Time
	o       TxOptions
	owner   *lockOwner
	own     lockOwner
	weight  atomic.Int64 // writes; the lightest of a circle of waits has to go
	waits   int          // guarded by lockManager.mu
	over    bool         // guarded by lockManager.mu

	points []*lockPoint    // guarded by lockManager.mu
	ranges int             // guarded by lockManager.mu
	sets   []*lockSet      // guarded by lockManager.mu
	tables []*txTableLocks // guarded by lockManager.mu
	prev   *txLocks        // guarded by lockManager.mu
	next   *txLocks        // guarded by lockManager.mu
	few    struct {        // the first of points and tables
		points [6]*lockPoint
		tables [2]*txTableLocks
		table  txTableLocks
	}

	tx *Tx // nil: locks for a change of definitions
}

// lockTablesIdle is the number of tables without any lock whose room is kept for the next.
const lockTablesIdle = 1024

// txTableLocks are the locks of a transaction in a table.
type txTableLocks struct {
	table  *lockTable
	intent lockMask // for rows
	whole  lockMask // by LockTable
	spaces []txSpace
	few    [3]txSpace // the first of spaces
}

type txSpace struct {
	space *lockSpace
	all   lockMask // how the whole space is locked
	any   lockMask // ways in which points and ranges are locked
	count int      // points
	next  int      // escalation is tried at that count of points and ranges
	some  lockRanges
}

// lockRequest is a wait.
type lockRequest struct {
	tx         *txLocks
	in         *txTableLocks
	space      *lockSpace
	low, high  string // a point is low alone
	open       bool
	point      bool
	mask       lockMask
	no         uint64
	since      int64
	passes     []*lockRequest // earlier requests that wait for this one's owner
	prev, next *lockRequest
	queued     bool
	err        error
	ready      chan struct{}
}

func (r *lockRequest) overlaps(o *lockRequest) bool {
	switch {
	case r.point && o.point:
		return r.low == o.low
	case r.point:
		return r.low >= o.low && (o.open || r.low < o.high)
	case o.point:
		return o.low >= r.low && (r.open || o.low < r.high)
	}
	return (r.open || o.low < r.high) && (o.open || r.low < o.high)
}

func newLockManager(m *Metrics) *lockManager {
	return &lockManager{metrics: m, base: time.Now(), escalation: lockEscalation, most: locksMax, tables: map[index.TableID]*lockTable{}}
}

func (m *lockManager) now() int64 { return int64(time.Since(m.base)) }

// begin registers a transaction.
func (m *lockManager) begin(l *txLocks, o TxOptions) {
	l.o, l.started, l.owner = o, time.Now(), &l.own
	if o.Holder != nil {
		l.owner = o.Holder.locks.owner
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastID++
	l.id = m.lastID
	if l.next = m.first; l.next != nil {
		l.next.prev = l
	}
	m.first = l
}

// in gives a transaction's locks in a table.
func (m *lockManager) in(l *txLocks, t *Table) *txTableLocks {
	for _, in := range l.tables {
		if in.table.t == t {
			return in
		}
	}
	lt := m.tables[t.id]
	if lt == nil {
		lt = &lockTable{t: t}
		m.tables[t.id] = lt
	}
	lt.users++
	in := &l.few.table
	if l.tables == nil {
		l.tables, l.points = l.few.tables[:0], l.few.points[:0]
	} else {
		in = &txTableLocks{}
	}
	in.table, in.spaces = lt, in.few[:0]
	l.tables = append(l.tables, in)
	return in
}

func (lt *lockTable) space(no int64) *lockSpace {
	for _, s := range lt.spaces {
		if s.no == no {
			return s
		}
	}
	s := &lockSpace{no: no, table: lt}
	lt.spaces = append(lt.spaces, s)
	return s
}

func (in *txTableLocks) space(no int64) *txSpace {
	for i := range in.spaces {
		if in.spaces[i].space.no == no {
			return &in.spaces[i]
		}
	}
	in.spaces = append(in.spaces, txSpace{space: in.table.space(no)})
	return &in.spaces[len(in.spaces)-1]
}

// lockResult says how a lock was had.
type lockResult struct {
	fresh  bool // the transaction had nothing on the key before
	waited bool
}

// lockPoint locks a key. ErrLocked, ErrLockTimeout, ErrDeadlock (the caller rolls the transaction back), or what ended ctx.
func (m *lockManager) lockPoint(ctx context.Context, l *txLocks, t *Table, no int64, key []byte, want lockMask, w LockWait) (lockResult, error) {
	m.mu.Lock()
	if l.over {
		m.mu.Unlock()
		return lockResult{}, fmt.Errorf("%w: the transaction is over", ErrClosed)
	}
	in := m.in(l, t)
	res, ok := m.tryPoint(l, in, no, textView(key), want)
	if ok {
		m.mu.Unlock()
		return res, nil
	}
	r := &lockRequest{tx: l, in: in, space: in.space(no).space, low: string(key), point: true, mask: want}
	waited, err := m.request(ctx, r, w)
	res.waited = waited
	return res, err
}

// lockSteps is the number of keys that lockPoints locks before it lets others in.
const lockSteps = 256

// lockPoints locks keys, each as lockPoint does, and gives those that it has locked: all of them, or with LockNoWait those that nobody
// else has. Keys in ascending order do not make circles of waits with those of others. It may change keys.
func (m *lockManager) lockPoints(ctx context.Context, l *txLocks, t *Table, no int64, keys [][]byte, want lockMask, w LockWait) ([][]byte, error) {
	had := keys[:0]
	for len(keys) > 0 {
		m.mu.Lock()
		if l.over {
			m.mu.Unlock()
			return nil, fmt.Errorf("%w: the transaction is over", ErrClosed)
		}
		in, n, ok := m.in(l, t), 0, true
		for n < min(len(keys), lockSteps) {
			if _, ok = m.tryPoint(l, in, no, textView(keys[n]), want); !ok {
				break
			}
			n++
		}
		m.mu.Unlock()
		if had, keys = append(had, keys[:n]...), keys[n:]; ok {
			continue
		}
		_, err := m.lockPoint(ctx, l, t, no, keys[0], want, w)
		if err == nil {
			had = append(had, keys[0])
		} else if w != LockNoWait || !errors.Is(err, ErrLocked) {
			return nil, err
		}
		keys = keys[1:]
	}
	return had, nil
}

// tryPoint locks a key unless somebody may be in the way; called with mu held.
func (m *lockManager) tryPoint(l *txLocks, in *txTableLocks, no int64, k string, want lockMask) (lockResult, bool) {
	if no != spaceTable && in.whole.covers(want) {
		return lockResult{}, true
	}
	ts := in.space(no)
	if ts.covered(want, k, "", false, true) {
		return lockResult{}, true
	}
	s := ts.space
	p := s.points.get(k)
	var mine *lockHolder
	if p != nil {
		if mine = p.holder(l); mine != nil && mine.mask.covers(want) {
			return lockResult{}, true
		}
	}
	res := lockResult{fresh: mine == nil}
	if m.refuses(l) && mine == nil {
		return res, false // request says so
	}
	if (p == nil || !p.excludes(l.owner, want)) && s.ranges.n == 0 && len(s.sets) == 0 && s.first == nil {
		m.grantPoint(l, in, ts, p, k, want)
		return res, true
	}
	return res, false
}

// lockRange locks a range of keys; high nil: up to the end.
func (m *lockManager) lockRange(ctx context.Context, l *txLocks, t *Table, no int64, b index.Bounds, want lockMask, w LockWait) (lockResult, error) {
	m.mu.Lock()
	if l.over {
		m.mu.Unlock()
		return lockResult{}, fmt.Errorf("%w: the transaction is over", ErrClosed)
	}
	in := m.in(l, t)
	if in.whole.covers(want) {
		m.mu.Unlock()
		return lockResult{}, nil
	}
	ts := in.space(no)
	low, high, open := string(b.Low), string(b.High), b.High == nil
	if ts.covered(want, low, high, open, false) {
		m.mu.Unlock()
		return lockResult{}, nil
	}
	r := &lockRequest{tx: l, in: in, space: ts.space, low: low, high: high, open: open, mask: want}
	waited, err := m.request(ctx, r, w)
	return lockResult{fresh: true, waited: waited}, err
}

// request grants a request at once, refuses it or waits. It is called with mu held and gives it up.
func (m *lockManager) request(ctx context.Context, r *lockRequest, w LockWait) (waited bool, err error) {
	l := r.tx
	if m.refuses(l) {
		m.metrics.LocksRefusedTotal.Add(1)
		held := m.held
		m.mu.Unlock()
		return false, fmt.Errorf("%w: %d, %d of them this transaction's", ErrTooManyLocks, held, len(l.points)+l.ranges)
	}
	m.pass(r)
	if m.free(r) {
		m.grant(r)
		m.mu.Unlock()
		return false, nil
	}
	if w != LockWaits {
		m.mu.Unlock()
		return false, fmt.Errorf("%w: %s", ErrLocked, r.space.table.t)
	}
	m.enqueue(r)
	m.metrics.LockWaitsTotal.Add(1)
	if m.changed != nil {
		m.changed(l, true)
	}
	if m.breakCircles(r); !r.queued {
		m.mu.Unlock()
		return true, r.err
	}
	m.mu.Unlock()
	began := time.Now()
	defer func() { m.metrics.LockWaitNanos.Add(int64(time.Since(began))) }()
	timer := time.NewTimer(l.o.LockTimeout)
	defer timer.Stop()
	select {
	case <-r.ready:
		return true, r.err
	case <-timer.C:
		err = fmt.Errorf("%w: %s", ErrLockTimeout, r.space.table.t)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.queued { // decided meanwhile
		if ctx.Err() != nil && r.err == nil {
			return true, err
		}
		return true, r.err
	}
	if ctx.Err() == nil {
		m.metrics.LockTimeoutsTotal.Add(1)
	}
	m.dequeue(r)
	if m.changed != nil {
		m.changed(l, false)
	}
	r.space.dirty = true
	m.settle(r.space)
	return true, err
}

// holder gives a transaction's part in a locked key.
func (p *lockPoint) holder(l *txLocks) *lockHolder {
	if p.one.tx == l {
		return &p.one
	}
	for i := range p.more {
		if p.more[i].tx == l {
			return &p.more[i]
		}
	}
	return nil
}

// excludes tells whether somebody but the owner has locked the key in a way that does not go along with mask.
func (p *lockPoint) excludes(o *lockOwner, mask lockMask) bool {
	if p.one.tx != nil && p.one.tx.owner != o && p.one.mask.excludes(mask) {
		return true
	}
	for i := range p.more {
		if p.more[i].tx.owner != o && p.more[i].mask.excludes(mask) {
			return true
		}
	}
	return false
}

func (p *lockPoint) add(l *txLocks, mask lockMask, now int64) {
	h := lockHolder{l, mask, now}
	if p.one.tx == nil {
		p.one = h
		return
	}
	p.more = append(p.more, h)
}

func (p *lockPoint) remove(l *txLocks) {
	last := len(p.more) - 1
	if p.one.tx == l {
		if p.one = (lockHolder{}); last >= 0 {
			p.one = p.more[last]
			p.more = p.more[:last]
		}
		return
	}
	for i := range p.more {
		if p.more[i].tx == l {
			p.more[i] = p.more[last]
			p.more[last] = lockHolder{}
			p.more = p.more[:last]
			return
		}
	}
}

// grantPoint notes a lock of a key; p is the key's entry or nil.
func (m *lockManager) grantPoint(l *txLocks, in *txTableLocks, ts *txSpace, p *lockPoint, key string, want lockMask) {
	ts.any |= want
	if ts.space.no == spaceTable {
		in.intent |= want & (lockIS | lockIX)
		in.whole |= want & (lockS | lockX)
	}
	if p != nil {
		if h := p.holder(l); h != nil {
			h.mask |= want
			return
		}
	} else {
		p = &lockPoint{key: strings.Clone(key), space: ts.space}
		ts.space.points.put(p)
	}
	p.add(l, want, m.now())
	l.points = append(l.points, p)
	m.hold(1)
	ts.count++
	m.many(l, ts)
}

// many tries to lock a whole space once a transaction has very many locks in it.
func (m *lockManager) many(l *txLocks, ts *txSpace) {
	n := ts.count + ts.some.n
	if n >= ts.next && (n >= m.escalation || m.held > lockCrowd && n >= lockEscalationSoon) {
		ts.next = n + n/4
		m.escalate(l, ts)
	}
}

// refuses tells whether a transaction gets no more locks, for the sake of the memory that all of them take.
func (m *lockManager) refuses(l *txLocks) bool {
	return m.held >= m.most && len(l.points)+l.ranges >= locksFew
}

func (m *lockManager) hold(n int) {
	m.held += n
	m.metrics.LocksHeld.Add(int64(n))
}

// grant notes what a request asked for.
func (m *lockManager) grant(r *lockRequest) {
	ts := r.in.space(r.space.no)
	if r.point {
		m.grantPoint(r.tx, r.in, ts, r.space.points.get(r.low), r.low, r.mask)
		return
	}
	m.grantRange(r.tx, ts, r.low, r.high, r.open, r.mask)
}

// escalate locks a whole space in place of the many keys and ranges that a transaction has locked in it, if nobody else is there.
func (m *lockManager) escalate(l *txLocks, ts *txSpace) {
	s := ts.space
	r := &lockRequest{tx: l, space: s, open: true, mask: ts.any}
	if s.no == spaceTable || s.first != nil || m.heldAgainst(r, nil) {
		return
	}
	m.grantRange(l, ts, "", "", true, ts.any)
	all := s.points.n == ts.count && alone(l, s)
	points := l.points[:0]
	for _, p := range l.points {
		if p.space != s {
			points = append(points, p)
			continue
		}
		if m.hold(-1); all {
			continue
		}
		if p.remove(l); p.one.tx == nil {
			s.points.remove(p.key)
		}
	}
	clear(l.points[len(points):])
	l.points = points
	if all {
		s.points = lockKeys{}
	}
	ts.count = 0
	m.metrics.LockEscalationsTotal.Add(1)
}

// unlockPoint gives up the lock of a key that a transaction took for a row that it does not need.
func (m *lockManager) unlockPoint(l *txLocks, t *Table, no int64, key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.over {
		return
	}
	ts := m.in(l, t).space(no)
	p := ts.space.points.get(textView(key))
	if p == nil || p.holder(l) == nil {
		return
	}
	for i := len(l.points) - 1; i >= 0; i-- {
		if l.points[i] == p {
			l.points = append(l.points[:i], l.points[i+1:]...)
			break
		}
	}
	ts.count--
	m.drop(l, p)
	m.settle(ts.space)
}

// drop takes a transaction's part in a locked key away.
func (m *lockManager) drop(l *txLocks, p *lockPoint) {
	p.remove(l)
	m.hold(-1)
	s := p.space
	s.dirty = s.dirty || s.first != nil
	if p.one.tx == nil {
		s.points.remove(p.key)
	}
}

// unlockTables gives up what LockTable took.
func (m *lockManager) unlockTables(l *txLocks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, in := range l.tables {
		if in.whole == 0 {
			continue
		}
		in.whole = 0
		s := in.table.space(spaceTable)
		p := s.points.get("")
		if p == nil {
			continue
		}
		h := p.holder(l)
		s.dirty = true
		if h.mask = in.intent; h.mask == 0 {
			for i, q := range l.points {
				if q == p {
					l.points = append(l.points[:i], l.points[i+1:]...)
					break
				}
			}
			in.space(spaceTable).count--
			m.drop(l, p)
		}
		m.settle(s)
	}
}

// lockSetMax is the number of keys and ranges that others have locked from which a set of keys is locked with its whole table.
const lockSetMax = 4096

// lockSets locks sets of keys, once nobody else has locked any of them.
func (m *lockManager) lockSets(ctx context.Context, l *txLocks, t *Table, sets []*lockSet) error {
	for {
		m.mu.Lock()
		if l.over {
			m.mu.Unlock()
			return fmt.Errorf("%w: the transaction is over", ErrClosed)
		}
		in := m.in(l, t)
		var r *lockRequest
		for _, set := range sets {
			s := in.space(set.no).space
			if s.points.n+s.ranges.n > lockSetMax {
				m.mu.Unlock()
				_, err := m.lockPoint(ctx, l, t, spaceTable, nil, lockX, LockWaits)
				return err
			}
			if r = s.inSetsWay(l, set); r != nil {
				r.in = in
				break
			}
		}
		if r != nil {
			if _, err := m.request(ctx, r, LockWaits); err != nil {
				return err
			}
			continue
		}
		for _, set := range sets {
			set.tx, set.since = l, m.now()
			s := in.space(set.no).space
			s.sets = append(s.sets, set)
			l.sets = append(l.sets, set)
			m.hold(1)
		}
		m.mu.Unlock()
		return nil
	}
}

// inSetsWay gives a request for what somebody else has locked of a set of keys; nil: nobody has. Two large statements with a key in
// common find out at their commit.
func (s *lockSpace) inSetsWay(l *txLocks, set *lockSet) (r *lockRequest) {
	s.points.within("", "", true, func(p *lockPoint) bool {
		if p.excludes(l.owner, set.mask) && set.has(p.key) {
			r = &lockRequest{tx: l, space: s, low: p.key, point: true, mask: set.mask}
		}
		return r == nil
	})
	s.ranges.each(func(g *lockRange) bool {
		if r == nil && g.tx.owner != l.owner && g.mask.excludes(set.mask) && set.within(g.low, g.high, g.open) {
			r = &lockRequest{tx: l, space: s, low: g.low, high: g.high, open: g.open, mask: set.mask}
		}
		return r == nil
	})
	return r
}

// releasePart is the number of locks that are released in one go.
const releasePart = 1024

// end releases all locks of a transaction.
func (m *lockManager) end(l *txLocks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	for i := len(l.owner.waits) - 1; i >= 0; i-- {
		if r := l.owner.waits[i]; r.tx == l { // of a scan that another goroutine runs
			m.dequeue(r)
			r.err = fmt.Errorf("%w: the transaction is over", ErrClosed)
			r.space.dirty = true
			m.wake(r)
		}
	}
	for _, in := range l.tables {
		for i := range in.spaces {
			ts := &in.spaces[i]
			// Keys that are all of this transaction go in one piece.
			if n := ts.count; n > releasePart && n == ts.space.points.n && alone(l, ts.space) {
				ts.space.points = lockKeys{}
				ts.space.dirty = ts.space.first != nil
				m.hold(-n)
				rest := l.points[:0]
				for _, p := range l.points {
					if p.space != ts.space {
						rest = append(rest, p)
					}
				}
				l.points = rest
			}
		}
	}
	for n := len(l.points); n > 0; n = len(l.points) {
		part := l.points[max(0, n-releasePart):]
		for _, p := range part {
			m.drop(l, p)
		}
		if l.points = l.points[:n-len(part)]; len(l.points) > 0 {
			m.settleAll(l)
			m.mu.Unlock() // others have their turn
			m.mu.Lock()
		}
	}
	for _, in := range l.tables {
		for i := range in.spaces {
			ts := &in.spaces[i]
			for n := 1; ts.some.root != nil; n++ {
				m.dropRange(l, ts, ts.some.root.r)
				if ts.space.dirty = ts.space.dirty || ts.space.first != nil; n%releasePart == 0 {
					m.settleAll(l)
					m.mu.Unlock()
					m.mu.Lock()
				}
			}
		}
	}
	for _, in := range l.tables {
		for _, s := range in.table.spaces {
			if n := len(s.sets); n > 0 {
				s.sets = slices.DeleteFunc(s.sets, func(o *lockSet) bool { return o.tx == l })
				s.dirty = s.dirty || len(s.sets) < n && s.first != nil
				m.hold(len(s.sets) - n)
			}
		}
	}
	m.settleAll(l)
	for _, in := range l.tables {
		if in.table.users--; in.table.users == 0 && (len(m.tables) > lockTablesIdle || in.table.t.dropped.Load()) {
			delete(m.tables, in.table.t.id)
		}
	}
	l.points, l.sets, l.tables = nil, nil, nil
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		m.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
}

// alone tells whether no key of a space is locked by another transaction, too.
func alone(l *txLocks, s *lockSpace) bool {
	ok := true
	s.points.within("", "", true, func(p *lockPoint) bool {
		ok = p.one.tx == l && len(p.more) == 0
		return ok
	})
	return ok
}

func (m *lockManager) settleAll(l *txLocks) {
	for _, in := range l.tables {
		for _, s := range in.table.spaces {
			m.settle(s)
		}
	}
}
