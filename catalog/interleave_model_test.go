package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A model of isolation that knows nothing of the lock manager. It has the rows of keys 0 and 1, each with a UNIQUE value and a value
// under another index, and says of each step of up to four sessions whether it waits, what it answers, and who is given up in a
// deadlock. Its levels are those of MySQL: REPEATABLE READ takes the snapshot of its plain reads at the first of them, READ COMMITTED
// one a statement; writes and locking reads see what is committed and lock it; SERIALIZABLE reads with shared locks.
//
// It is stricter than InnoDB, as docs/transactions.md has it: locks of absent keys and of ranges exclude one another. Under READ
// COMMITTED a range gives of the rows that its statement found those that are there still.
//
// Where several sessions may go on at once the model goes on in every order: it is a set of states, of which each observation leaves
// those that agree with it.

type stepKind uint8

const (
	stepRead        stepKind = iota // of a key
	stepReadAll                     // by a range of keys
	stepReadUnique                  // by the UNIQUE value
	stepReadValues                  // by the other index, of values below 10
	stepShare                       // as these, FOR SHARE
	stepShareAll                    //
	stepShareUnique                 //
	stepShareValues                 //
	stepLock                        // FOR UPDATE
	stepLockAll                     //
	stepLockUnique                  //
	stepLockValues                  //
	stepAdd                         // FOR UPDATE, adds to the value
	stepSetUnique                   // FOR UPDATE, gives another UNIQUE value
	stepDelete                      // FOR UPDATE
	stepInsert                      //
	stepCommit
	stepRollback
)

var stepNames = [...]string{
	"read", "read all", "read u", "read v", "share", "share all", "share u", "share v", "lock", "lock all", "lock u", "lock v",
	"add", "set u", "delete", "insert", "commit", "rollback",
}

// step is a step of a session. Keys are 0 and 1, UNIQUE values 0 to 2.
type step struct {
	kind      stepKind
	key, uniq int
}

func (s step) String() string { return fmt.Sprintf("%s(%d,%d)", stepNames[s.kind], s.key, s.uniq) }

// allSteps are the steps of a session but for its end.
func allSteps() (out []step) {
	for k := range 2 {
		for _, kind := range []stepKind{stepRead, stepShare, stepLock, stepAdd, stepDelete} {
			out = append(out, step{kind: kind, key: k})
		}
		for _, kind := range []stepKind{stepReadUnique, stepShareUnique, stepLockUnique} {
			out = append(out, step{kind: kind, uniq: k})
		}
		for u := range 3 {
			out = append(out, step{stepSetUnique, k, u}, step{stepInsert, k, u})
		}
	}
	for _, kind := range []stepKind{stepReadAll, stepReadValues, stepShareAll, stepShareValues, stepLockAll, stepLockValues} {
		out = append(out, step{kind: kind})
	}
	return out
}

type modelRow struct{ uniq, value int }

type modelMode uint8

const (
	modelShared modelMode = iota
	modelExclusive
	modelComes // a row with the value comes: goes along with its like
)

const (
	modelKeys = iota
	modelUnique
	modelValues
)

// modelLock is a lock of the keys or values from low to high.
type modelLock struct {
	space, low, high int
	mode             modelMode
}

func (l modelLock) against(o modelLock) bool {
	return l.space == o.space && l.low <= o.high && o.low <= l.high && (l.mode != o.mode || l.mode == modelExclusive)
}

func (l modelLock) covers(o modelLock) bool {
	return l.space == o.space && l.low <= o.low && o.high <= l.high && (l.mode == o.mode || l.mode == modelExclusive)
}

// modelSession is a session of the model.
type modelSession struct {
	iso      Isolation
	used     bool                 // the table
	snap     map[int]modelRow     // nil: no plain read yet
	own      map[int]*modelRow    // nil: deleted
	had      [2]bool              // whether there was a row before the session wrote it
	was      map[int]map[int]bool // UNIQUE values that a key has had in the session
	old      map[int]map[int]bool // other values, likewise
	locks    []modelLock
	writes   int
	conflict map[int]bool // keys that another engine changed after they were written; true: for certain

	now      *step // under way
	waits    *modelLock
	meta     bool             // it waits for a change of definitions
	found    []int            // keys in which a locking search looks
	given    map[int]modelRow // rows that it has read, one by one
	row      *modelRow        // that a statement on a key has read; nil: there is none
	looked   bool             // whether it has
	late     bool             // another engine wrote after that
	searched bool
	fresh    []modelLock // that the statement took
	thorough bool        // its searches find deleted keys, too
	unlucky  bool        // another engine's change of other keys counts, since it wrote their files anew
	over     bool
	out      []string // what its statements answered
}

type isoModel struct {
	rows     map[int]modelRow
	sessions []*modelSession
	queue    []int         // sessions that wait for locks, in order of arrival
	passes   map[int][]int // of those: whom of the earlier ones they do not wait for
	ddl      string        // a change of definitions that waits
	// hints are what key 0 was when another engine changed it: searches by these values lock its row, too.
	hints []modelRow
	// gone are keys that were deleted. Until a flush forgets them, READ COMMITTED looks for their rows in a range, with a lock.
	gone [2]bool
}

func (m *isoModel) clone() *isoModel {
	c := *m
	c.rows, c.queue, c.passes = maps.Clone(m.rows), slices.Clone(m.queue), maps.Clone(m.passes)
	c.sessions = nil
	for _, s := range m.sessions {
		x := *s
		x.own, x.locks, x.fresh, x.out, x.conflict = maps.Clone(s.own), slices.Clone(s.locks), slices.Clone(s.fresh), slices.Clone(s.out), maps.Clone(s.conflict)
		x.was, x.old = cloneSets(s.was), cloneSets(s.old)
		c.sessions = append(c.sessions, &x)
	}
	return &c
}

func cloneSets(in map[int]map[int]bool) map[int]map[int]bool {
	out := map[int]map[int]bool{}
	for k, v := range in {
		out[k] = maps.Clone(v)
	}
	return out
}

// text tells states apart.
func (m *isoModel) text() string {
	var b strings.Builder
	fmt.Fprint(&b, m.rows, m.queue, m.passes, m.ddl, m.hints, m.gone)
	for _, s := range m.sessions {
		own := map[int]string{}
		for k, v := range s.own {
			if own[k] = "gone"; v != nil {
				own[k] = fmt.Sprint(*v)
			}
		}
		fmt.Fprint(&b, "|", s.used, s.snap, own, s.locks, s.writes, s.conflict, s.had, s.meta, s.found, s.given, s.looked, s.late, s.row != nil, s.searched, s.over, s.unlucky, s.thorough, s.out, s.waits != nil, s.now != nil)
	}
	return b.String()
}

// observation is what can be seen from outside.
func (m *isoModel) observation() string {
	var b strings.Builder
	for _, s := range m.sessions {
		fmt.Fprintf(&b, "%q wait %v, for the table %v\n", s.out, s.waits != nil, s.meta)
	}
	fmt.Fprintf(&b, "change waits %v", m.ddl != "")
	return b.String()
}

// current gives what writes and locking reads of a session see of a key.
func (m *isoModel) current(n, k int) (modelRow, bool) { return m.sessions[n].see(k, m.rows) }

func (s *modelSession) see(k int, rows map[int]modelRow) (modelRow, bool) {
	if v, ok := s.own[k]; ok {
		if v == nil {
			return modelRow{}, false
		}
		return *v, true
	}
	v, ok := rows[k]
	return v, ok
}

// wanted tells whether a search asks for a row.
func (st step) wanted(r modelRow) bool {
	switch st.kind {
	case stepReadUnique, stepShareUnique, stepLockUnique:
		return r.uniq == st.uniq
	case stepReadValues, stepShareValues, stepLockValues:
		return r.value < 10
	}
	return true
}

// search gives the keys in which a locking search of an index looks: rows that are there, and all that the session has written.
func (m *isoModel) search(n int, st step) (out []int) {
	s := m.sessions[n]
	for k := range 2 {
		r, ok := m.rows[k]
		hit := ok && st.wanted(r)
		switch st.kind {
		case stepShareAll, stepLockAll:
			_, own := s.own[k]
			hit = ok || own || m.gone[k] && s.thorough
		case stepShareUnique, stepLockUnique:
			hit = hit || s.was[k][st.uniq]
		case stepShareValues, stepLockValues:
			for v := range s.old[k] {
				hit = hit || v < 10
			}
		}
		if k == 0 && st.kind != stepShareAll && st.kind != stepLockAll {
			hit = hit || slices.ContainsFunc(m.hints, st.wanted)
		}
		if hit {
			out = append(out, k)
		}
	}
	return out
}

func (s *modelSession) has(l modelLock) bool {
	return slices.ContainsFunc(s.locks, func(o modelLock) bool { return o.covers(l) })
}

// go runs the step of a session as far as it gets without a lock that it has not; nil: it is over.
func (m *isoModel) run(n int) *modelLock {
	s := m.sessions[n]
	st := *s.now
	need := func(space, low, high int, mode modelMode) *modelLock {
		if l := (modelLock{space, low, high, mode}); !s.has(l) {
			return &l
		}
		return nil
	}
	say := func(f string, a ...any) {
		s.out = append(s.out, fmt.Sprintf(f, a...))
		s.now, s.searched, s.found, s.given, s.fresh, s.looked, s.late, s.row = nil, false, nil, nil, nil, false, false, nil
	}
	list := func(keys []int, see func(k int) (modelRow, bool)) {
		var out []string
		for _, k := range keys {
			if r, ok := see(k); ok && st.wanted(r) {
				out = append(out, fmt.Sprintf("%d=%d/%d", k, r.uniq, r.value))
			}
		}
		say("rows %s", strings.Join(out, " "))
	}
	set := func(k int, r *modelRow) {
		if _, again := s.own[k]; !again {
			s.had[k] = st.kind != stepInsert
		}
		s.own[k] = r
		s.writes++
		if s.late {
			s.conflict[k] = s.conflict[k] || k == 0
		}
		if r != nil {
			if s.was[k] == nil {
				s.was[k], s.old[k] = map[int]bool{}, map[int]bool{}
			}
			s.was[k][r.uniq], s.old[k][r.value] = true, true
		}
	}
	mode := modelExclusive
	switch st.kind {
	case stepShare, stepShareAll, stepShareUnique, stepShareValues:
		mode = modelShared
	}
	// unique needs what a row with a UNIQUE value needs; taken: another row has it.
	unique := func(k, u int) (l *modelLock, taken bool) {
		for o := range 2 {
			if r, ok := m.current(n, o); ok && o != k && r.uniq == u {
				return need(modelKeys, o, o, modelExclusive), true
			}
		}
		return nil, false
	}
	look := func() (modelRow, bool) {
		if !s.looked {
			s.looked = true
			if r, ok := m.current(n, st.key); ok {
				s.row = &r
			}
		}
		if s.row == nil {
			return modelRow{}, false
		}
		return *s.row, true
	}
	switch st.kind {
	case stepRead, stepReadAll, stepReadUnique, stepReadValues:
		if s.snap == nil || s.iso == ReadCommitted {
			s.snap = maps.Clone(m.rows)
		}
		keys := []int{0, 1}
		if st.kind == stepRead {
			keys = keys[st.key : st.key+1]
		}
		list(keys, func(k int) (modelRow, bool) { return s.see(k, s.snap) })
	case stepShareAll, stepLockAll, stepShareUnique, stepLockUnique, stepShareValues, stepLockValues:
		if s.iso != ReadCommitted {
			var l *modelLock
			switch st.kind {
			case stepShareAll, stepLockAll:
				l = need(modelKeys, 0, 1, mode)
			case stepShareUnique, stepLockUnique:
				l = need(modelUnique, st.uniq, st.uniq, mode)
			default:
				l = need(modelValues, 0, 9, mode)
			}
			if l != nil {
				return l
			}
		}
		if !s.searched {
			s.searched, s.found = true, m.search(n, st)
		}
		for _, k := range s.found {
			if l := need(modelKeys, k, k, mode); l != nil {
				return l
			}
			if _, ok := s.given[k]; ok || s.iso != ReadCommitted {
				continue
			}
			r, ok := m.current(n, k)
			if !ok {
				m.unlock(s, modelLock{modelKeys, k, k, mode})
				s.found = slices.DeleteFunc(slices.Clone(s.found), func(o int) bool { return o == k })
				return m.run(n)
			}
			s.given = maps.Clone(s.given)
			if s.given == nil {
				s.given = map[int]modelRow{}
			}
			s.given[k] = r
		}
		if s.iso == ReadCommitted {
			list(s.found, func(k int) (modelRow, bool) { return s.given[k], true })
		} else {
			list(s.found, func(k int) (modelRow, bool) { return m.current(n, k) })
		}
	case stepShare, stepLock, stepAdd, stepSetUnique, stepDelete:
		if l := need(modelKeys, st.key, st.key, mode); l != nil {
			return l
		}
		r, ok := look()
		if !ok {
			if s.iso == ReadCommitted {
				m.unlock(s, modelLock{modelKeys, st.key, st.key, mode})
			}
			say("none")
			return nil
		}
		was := r
		switch st.kind {
		case stepAdd:
			r.value += 10 * (n + 1)
			if l := need(modelValues, r.value, r.value, modelComes); l != nil {
				return l
			}
			set(st.key, &r)
		case stepSetUnique:
			if r.uniq != st.uniq {
				for _, u := range []int{r.uniq, st.uniq} {
					if l := need(modelUnique, u, u, modelExclusive); l != nil {
						return l
					}
				}
			}
			if l, taken := unique(st.key, st.uniq); l != nil {
				return l
			} else if taken {
				say("duplicate")
				return nil
			}
			r.uniq = st.uniq
			set(st.key, &r)
		case stepDelete:
			if l := need(modelUnique, r.uniq, r.uniq, modelExclusive); l != nil {
				return l
			}
			set(st.key, nil)
		}
		say("%d/%d", was.uniq, was.value)
	case stepInsert:
		if l := need(modelKeys, st.key, st.key, modelExclusive); l != nil {
			return l
		}
		if _, ok := look(); ok {
			say("duplicate")
			return nil
		}
		r := modelRow{st.uniq, 5 + n}
		if l := need(modelUnique, r.uniq, r.uniq, modelExclusive); l != nil {
			return l
		}
		if l := need(modelValues, r.value, r.value, modelComes); l != nil {
			return l
		}
		if l, taken := unique(st.key, r.uniq); l != nil {
			return l
		} else if taken {
			say("duplicate")
			return nil
		}
		set(st.key, &r)
		say("inserted")
	case stepCommit:
		for k, certain := range s.conflict {
			if (certain || s.unlucky) && !s.undone(k) {
				m.lose(n)
				return nil
			}
		}
		for k, v := range s.own {
			if s.undone(k) {
				continue
			}
			_, was := m.rows[k]
			if delete(m.rows, k); v != nil {
				m.rows[k] = *v
			}
			m.gone[k] = v == nil && (was || m.gone[k])
		}
		m.end(n)
	case stepRollback:
		m.end(n)
	}
	return nil
}

// undone tells whether a session has inserted a row and deleted it: its commit says nothing of it.
func (s *modelSession) undone(k int) bool { return s.own[k] == nil && !s.had[k] }

// unlock gives up a lock that the statement took.
func (m *isoModel) unlock(s *modelSession, l modelLock) {
	if i := slices.Index(s.fresh, l); i >= 0 {
		s.fresh = slices.Delete(s.fresh, i, i+1)
		i = slices.Index(s.locks, l)
		s.locks = slices.Delete(s.locks, i, i+1)
		m.grant()
	}
}

// inWay gives the sessions that a request waits for.
func (m *isoModel) inWay(n int, l modelLock) (out []int) {
	for o, s := range m.sessions {
		if o != n && slices.ContainsFunc(s.locks, l.against) {
			out = append(out, o)
		}
	}
	for _, o := range m.queue {
		if o == n {
			break
		}
		if l.against(*m.sessions[o].waits) && !slices.Contains(m.passes[n], o) {
			out = append(out, o)
		}
	}
	return out
}

// circles gives the ways by which a waiting session waits for another, or for itself.
func (m *isoModel) circles(n, target int, path []int) (out [][]int) {
	if m.sessions[n].waits == nil || slices.Contains(path, n) {
		return nil
	}
	path = append(slices.Clone(path), n)
	for _, o := range m.inWay(n, *m.sessions[n].waits) {
		if o == target {
			out = append(out, path)
			continue
		}
		out = append(out, m.circles(o, target, path)...)
	}
	return out
}

// take has a session lock what it needs, or wait for it; if that closes a circle, each state is one in which somebody is given up.
func (m *isoModel) take(n int, l modelLock) []*isoModel {
	s := m.sessions[n]
	delete(m.passes, n)
	for _, o := range m.queue {
		if l.against(*m.sessions[o].waits) && len(m.circles(o, n, nil)) > 0 {
			m.passes[n] = append(m.passes[n], o)
		}
	}
	if len(m.inWay(n, l)) == 0 {
		s.locks, s.fresh = append(s.locks, l), append(s.fresh, l)
		return []*isoModel{m}
	}
	s.waits = &l
	m.queue = append(m.queue, n)
	return m.breakCircles(n)
}

func (m *isoModel) breakCircles(n int) (out []*isoModel) {
	if m.sessions[n].waits == nil {
		return []*isoModel{m}
	}
	circles := m.circles(n, n, nil)
	if len(circles) == 0 {
		return []*isoModel{m}
	}
	victims := map[int]bool{}
	for _, c := range circles {
		least := n
		for _, o := range c {
			if m.sessions[o].writes < m.sessions[least].writes {
				least = o
			}
		}
		for _, o := range c {
			if o == least || least != n && m.sessions[o].writes == m.sessions[least].writes {
				victims[o] = true
			}
		}
	}
	for v := range victims {
		c := m.clone()
		c.lose(v)
		out = append(out, c.breakCircles(n)...)
	}
	return out
}

// grant gives those who wait what is free now.
func (m *isoModel) grant() {
	for again := true; again; {
		again = false
		for _, n := range m.queue {
			if s := m.sessions[n]; len(m.inWay(n, *s.waits)) == 0 {
				s.locks, s.fresh = append(s.locks, *s.waits), append(s.fresh, *s.waits)
				m.leave(n)
				again = true
				break
			}
		}
	}
}

func (m *isoModel) leave(n int) {
	m.sessions[n].waits = nil
	m.queue = slices.DeleteFunc(slices.Clone(m.queue), func(o int) bool { return o == n })
	delete(m.passes, n)
}

func (m *isoModel) lose(n int) {
	m.sessions[n].out = append(m.sessions[n].out, "deadlock")
	m.end(n)
}

func (m *isoModel) end(n int) {
	s := m.sessions[n]
	m.leave(n)
	s.over, s.locks, s.fresh, s.now, s.own, s.used = true, nil, nil, nil, nil, false
	m.grant()
}

// settle gives the states in which nobody can go on.
func settle(in []*isoModel) (out []*isoModel) {
	seen := map[string]bool{}
	for len(in) > 0 {
		m := in[len(in)-1]
		in = in[:len(in)-1]
		if text := m.text(); seen[text] {
			continue
		} else {
			seen[text] = true
		}
		idle := true
		if m.ddl != "" && !slices.ContainsFunc(m.sessions, func(s *modelSession) bool { return s.used }) {
			if m.ddl == "truncate" {
				clear(m.rows)
				m.hints = nil
			}
			m.ddl = ""
			for _, s := range m.sessions {
				s.meta = false
			}
		}
		for n, s := range m.sessions {
			if s.now == nil || s.waits != nil || s.meta {
				continue
			}
			idle = false
			if all := s.now.kind == stepShareAll || s.now.kind == stepLockAll; all && s.iso == ReadCommitted && !s.searched && !s.thorough && (m.gone[0] || m.gone[1]) {
				c := m.clone()
				c.sessions[n].thorough = true
				in = append(in, c)
			}
			if s.now.kind == stepCommit && len(s.conflict) > 0 && !s.unlucky {
				c := m.clone()
				c.sessions[n].unlucky = true
				in = append(in, c)
			}
			c := m.clone()
			c.sessions[n].used = true
			if l := c.run(n); l != nil {
				in = append(in, c.take(n, *l)...)
			} else {
				in = append(in, c)
			}
		}
		if idle {
			out = append(out, m)
		}
	}
	return out
}

// start has a session begin a step.
func (m *isoModel) start(n int, st step) {
	s := m.sessions[n]
	s.now = &st
	s.meta = !s.used && m.ddl != "" && st.kind != stepCommit && st.kind != stepRollback
}

// foreign has another engine write key 0.
func (m *isoModel) foreign() {
	if was, ok := m.rows[0]; ok {
		m.hints = append(slices.Clone(m.hints), was)
	}
	m.rows[0] = modelRow{3, 7}
	for _, s := range m.sessions {
		s.late = s.looked
		for k := range s.own {
			s.conflict[k] = s.conflict[k] || k == 0
		}
	}
}
