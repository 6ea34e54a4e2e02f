package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// Things that happen beside the sessions of a schedule.
const (
	eventFlush    = -1
	eventForeign  = -2 // another engine writes key 0, and the warehouse adopts it
	eventTruncate = -3
	eventIndex    = -4 // another index comes, or goes
)

var eventNames = map[int]string{eventFlush: "flush", eventForeign: "foreign instant", eventTruncate: "truncate", eventIndex: "index"}

// schedule says in which order the steps of sessions come. A turn of a session that waits is made up for at the end.
type schedule struct {
	iso   []Isolation
	have  [2]bool // rows that are there
	steps [][]step
	order []int // sessions and events
}

func (s *schedule) String() string {
	var order []string
	for _, n := range s.order {
		if name, event := eventNames[n]; event {
			order = append(order, name)
		} else {
			order = append(order, fmt.Sprint(n))
		}
	}
	return fmt.Sprintf("%v, rows %v, order %v: %v", s.iso, s.have, order, s.steps)
}

// isoBench runs schedules on a table.
type isoBench struct {
	t       *testing.T
	c       *Catalog
	tab     *Table
	foreign *otherWriter
	base    int32
	kick    chan struct{} // something has changed

	mu    sync.Mutex
	waits map[uint64]bool // guarded by mu: transactions that wait for locks

	runs, waited, deadlocks, duplicates, states int
}

// changeState is how far a change of definitions is.
type changeState uint8

const (
	changeNone changeState = iota
	changeRuns
	changeWaits
)

// isoRun is a schedule under way.
type isoRun struct {
	*isoBench
	s   *schedule
	txs []*Tx
	ddl chan error // a change of definitions under way

	out    [][]string  // guarded by isoBench.mu: what sessions answered
	busy   []bool      // guarded by isoBench.mu
	meta   []bool      // guarded by isoBench.mu: who waits for a change of definitions
	change changeState // guarded by isoBench.mu
}

func (b *isoBench) changed() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

func newIsoBench(t *testing.T) *isoBench {
	c, tab := lockWorld(t)
	b := &isoBench{t: t, c: c, tab: tab, foreign: &otherWriter{t, c, tab}, kick: make(chan struct{}, 1), waits: map[uint64]bool{}}
	c.rowLocks.changed = func(l *txLocks, w bool) {
		b.mu.Lock()
		b.waits[l.id] = w
		b.mu.Unlock()
		b.changed()
	}
	return b
}

func (b *isoBench) row(k, u, v int) storage.Row {
	return storage.Row{b.base + int32(k), b.name(u), b.value(v)}
}
func (b *isoBench) name(u int) string { return fmt.Sprintf("%d-%d", b.base, u) }
func (b *isoBench) value(v int) int64 { return int64(b.base)*1000 + int64(v) }

// exec runs a step.
func (r *isoRun) exec(n int, st step) (answer string) {
	ctx := WithWait(context.Background(), 30*time.Second, func(waits bool) {
		r.mu.Lock()
		r.meta[n] = waits
		r.mu.Unlock()
		r.changed()
	})
	tx := r.txs[n]
	err := tx.StartStatement()
	if err == nil {
		answer, err = r.do(ctx, tx, n, st)
	}
	switch {
	case errors.Is(err, ErrConflict):
		return "deadlock"
	case errors.As(err, new(*DuplicateKeyError)):
		return "duplicate"
	case err != nil:
		return err.Error()
	}
	return answer
}

func (r *isoRun) do(ctx context.Context, tx *Tx, n int, st step) (string, error) {
	o := ScanOptions{Lock: LockExclusive}
	switch st.kind {
	case stepCommit:
		return "", tx.Commit(ctx)
	case stepRollback:
		tx.Rollback()
		return "", nil
	case stepInsert:
		return "inserted", tx.Insert(ctx, r.tab, r.row(st.key, st.uniq, 5+n))
	case stepRead, stepReadAll, stepReadUnique, stepReadValues:
		o.Lock = LockNone
	case stepShare, stepShareAll, stepShareUnique, stepShareValues:
		o.Lock = LockShared
	}
	key := func(k int) storage.Row { return storage.Row{r.base + int32(k)} }
	index, in := "", KeyRange{Low: key(0), High: key(1)}
	switch st.kind {
	case stepRead: // as the list of one row
		in = KeyRange{Low: key(st.key), High: key(st.key)}
	case stepReadUnique, stepShareUnique, stepLockUnique:
		index, in = "u", KeyRange{Low: storage.Row{r.name(st.uniq)}, High: storage.Row{r.name(st.uniq)}}
	case stepReadValues, stepShareValues, stepLockValues:
		index, in = "by_v", KeyRange{Low: storage.Row{r.value(0)}, High: storage.Row{r.value(9)}}
	case stepShare, stepLock, stepAdd, stepSetUnique, stepDelete:
		old, ok, err := tx.GetLock(ctx, r.tab, key(st.key), o)
		if err != nil || !ok {
			return "none", err
		}
		row := slices.Clone(old)
		switch st.kind {
		case stepAdd:
			row[2] = old[2].(int64) + int64(10*(n+1))
			err = tx.Update(ctx, r.tab, old, row)
		case stepSetUnique:
			row[1] = r.name(st.uniq)
			err = tx.Update(ctx, r.tab, old, row)
		case stepDelete:
			err = tx.Delete(ctx, r.tab, old)
		}
		return strings.Join(strings.SplitN(r.text(old), "=", 2)[1:], ""), err
	}
	var out []string
	for b, err := range tx.Lookup(ctx, r.tab, index, []KeyRange{in}, o) {
		if err != nil {
			return "", err
		}
		for i := range b.Rows {
			row := b.Row(i, nil)
			var k, u, v int
			if _, err := fmt.Sscanf(r.text(row), "%d=%d/%d", &k, &u, &v); err != nil {
				return "", fmt.Errorf("row %v: %w", row, err)
			}
			if st.wanted(modelRow{u, v}) { // a lookup may give others, too
				out = append(out, r.text(row))
			}
		}
	}
	slices.Sort(out)
	return "rows " + strings.Join(out, " "), nil
}

func (r *isoRun) text(row storage.Row) string {
	return fmt.Sprintf("%d=%s/%d", row[0].(int32)-r.base, strings.TrimPrefix(row[1].(string), fmt.Sprintf("%d-", r.base)), row[2].(int64)-r.value(0))
}

func (r *isoRun) observation() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for n := range r.txs {
		waits, meta := r.busy[n] && r.waits[r.txs[n].ID()], r.busy[n] && r.meta[n]
		if r.busy[n] && !waits && !meta {
			return fmt.Sprintf("session %d is under way", n)
		}
		fmt.Fprintf(&b, "%q wait %v, for the table %v\n", r.out[n], waits, meta)
	}
	if r.change == changeRuns {
		return "the change is under way"
	}
	fmt.Fprintf(&b, "change waits %v", r.change == changeWaits)
	return b.String()
}

// agree waits until the sessions do what one of the states says, and gives the states that say so.
func (r *isoRun) agree(states []*isoModel, what string) []*isoModel {
	states = settle(states)
	r.states = max(r.states, len(states))
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		seen := r.observation()
		out := slices.DeleteFunc(slices.Clone(states), func(m *isoModel) bool { return m.observation() != seen })
		if len(out) > 0 {
			return out
		}
		select {
		case <-r.kick:
		case <-timeout.C:
			var all []string
			for _, m := range states {
				all = append(all, m.observation())
			}
			r.t.Fatalf("%s of %s\nseen:\n%s\n\nthe model:\n%s", what, r.s, seen, strings.Join(all, "\n\nor:\n"))
		}
	}
}

// run runs a schedule beside the model.
func (b *isoBench) run(s *schedule) {
	t, c := b.t, b.c
	ctx := context.Background()
	b.runs++
	b.base += 10
	first := &isoModel{rows: map[int]modelRow{}, passes: map[int][]int{}}
	inTx(t, c, func(tx *Tx) {
		for k := range 2 {
			if s.have[k] {
				first.rows[k] = modelRow{k, k}
				require.NoError(t, tx.Insert(ctx, b.tab, b.row(k, k, k)))
			}
		}
	})
	r := &isoRun{isoBench: b, s: s}
	for _, iso := range s.iso {
		r.txs = append(r.txs, lockBegin(t, c, iso))
		first.sessions = append(first.sessions, &modelSession{
			iso: iso, own: map[int]*modelRow{}, conflict: map[int]bool{}, was: map[int]map[int]bool{}, old: map[int]map[int]bool{},
		})
	}
	n := len(s.iso)
	r.out, r.busy, r.meta = make([][]string, n), make([]bool, n), make([]bool, n)
	states := []*isoModel{first}
	next := make([]int, n)
	turn := func(n int) bool {
		m := states[0] // all agree with what was seen
		if m.sessions[n].over || m.sessions[n].now != nil || next[n] == len(s.steps[n]) {
			return false
		}
		st := s.steps[n][next[n]]
		next[n]++
		if s.iso[n] == Serializable && st.kind <= stepReadValues {
			st.kind += stepShare - stepRead // as sqlplan has it
		}
		for _, m := range states {
			m.start(n, st)
		}
		r.mu.Lock()
		r.busy[n] = true
		r.mu.Unlock()
		go func() {
			answer := r.exec(n, st)
			r.mu.Lock()
			if r.busy[n] = false; answer != "" {
				r.out[n] = append(r.out[n], answer)
			}
			r.mu.Unlock()
			r.changed()
		}()
		states = r.agree(states, fmt.Sprintf("session %d, %s", n, st))
		if m := states[0].sessions[n]; m.waits != nil || m.meta {
			b.waited++
		}
		return true
	}
	event := func(e int) {
		switch e {
		case eventFlush:
			require.NoError(t, c.Flush(ctx, "test"))
		case eventForeign:
			require.NoError(t, c.Flush(ctx, "test", b.tab)) // what waits would win over it
			b.foreign.write(map[string]storage.Row{fmt.Sprint(b.base): b.row(0, 3, 7)}, nil)
			b.tab.slices.Lock()
			err := b.tab.adoptLocked(ctx)
			b.tab.slices.Unlock()
			require.NoError(t, err)
			for _, m := range states {
				m.foreign()
			}
		case eventTruncate, eventIndex:
			if r.ddl != nil {
				return // one at a time
			}
			r.ddl = make(chan error, 1)
			done := r.ddl
			is := func(s changeState) {
				r.mu.Lock()
				r.change = s
				r.mu.Unlock()
				r.changed()
			}
			is(changeRuns)
			for _, m := range states {
				m.ddl = eventNames[e]
			}
			go func() {
				dctx := WithWait(ctx, 30*time.Second, func(waits bool) {
					if is(changeRuns); waits {
						is(changeWaits)
					}
				})
				var err error
				if e == eventTruncate {
					_, err = c.TruncateTable(dctx, b.tab)
				} else {
					spec := *b.tab.def.Load().spec
					spec.Indexes = slices.Clone(spec.Indexes)
					if len(spec.Indexes) > 2 {
						spec.Indexes = spec.Indexes[:2]
					} else {
						spec.Indexes = append(spec.Indexes, IndexSpec{Name: "extra", Columns: []KeyColumn{{Column: "v"}, {Column: "id"}}})
					}
					err = c.AlterTable(dctx, b.tab, spec, []int{0, 1, 2}, nil)
				}
				done <- err
				is(changeNone)
			}()
		}
		states = r.agree(states, eventNames[e])
		b.reap(r)
	}
	for _, n := range s.order {
		if n < 0 {
			event(n)
		} else {
			turn(n)
		}
		b.reap(r)
	}
	for again := true; again; { // turns that a wait has cost
		again = false
		for n := range s.iso {
			again = turn(n) || again
			b.reap(r)
		}
	}
	left := map[int]modelRow{}
	inTx(t, c, func(tx *Tx) {
		for k := range 2 {
			x, ok, err := tx.Get(ctx, b.tab, storage.Row{b.base + int32(k)})
			require.NoError(t, err)
			if ok {
				var row modelRow
				_, err := fmt.Sscanf(r.text(x), "%d=%d/%d", &k, &row.uniq, &row.value)
				require.NoError(t, err)
				left[k] = row
			}
		}
	})
	states = slices.DeleteFunc(states, func(m *isoModel) bool { return !maps.Equal(m.rows, left) })
	require.NotEmpty(t, states, "%s\nleft: %v", s, left)
	require.Empty(t, c.Locks(), "%s", s)
	for n, m := range states[0].sessions {
		require.True(t, m.over, "session %d of %s", n, s)
		answers := strings.Join(m.out, ";")
		b.deadlocks += strings.Count(answers, "deadlock")
		b.duplicates += strings.Count(answers, "duplicate")
	}
}

// reap takes the answer of a change of definitions, if it has come.
func (b *isoBench) reap(r *isoRun) {
	if r.ddl == nil {
		return
	}
	select {
	case err := <-r.ddl:
		require.NoError(b.t, err)
		r.ddl = nil
	default:
	}
}

// orders gives all orders of the turns of sessions, of which each has so many.
func orders(turns ...int) (out [][]int) {
	var add func(at []int)
	add = func(at []int) {
		done := true
		for n := range turns {
			if turns[n] > 0 {
				done = false
				turns[n]--
				add(append(at, n))
				turns[n]++
			}
		}
		if done {
			out = append(out, slices.Clone(at))
		}
	}
	add(nil)
	return out
}

// Two sessions with any step each, and its commit, in every order and at every level.
func TestInterleavings(t *testing.T) {
	b := newIsoBench(t)
	steps, all := allSteps(), orders(2, 2)
	end := []step{{kind: stepCommit}}
	for i, x := range steps {
		for j, y := range steps[:i+1] {
			for _, order := range all {
				for iso := RepeatableRead; iso <= Serializable; iso++ {
					b.run(&schedule{[]Isolation{iso, iso}, [2]bool{true, (i+j)%2 == 0}, [][]step{append([]step{x}, end...), append([]step{y}, end...)}, order})
				}
			}
		}
	}
	b.log()
	require.Positive(t, b.waited)
	require.Positive(t, b.duplicates)
	require.Zero(t, b.c.Metrics().ConflictsTotal.Load())
}

// A session with any step and then any read, and another one that changes a row meanwhile, with each event at each place.
func TestInterleavedEvents(t *testing.T) {
	b := newIsoBench(t)
	steps := allSteps()
	all := envInt("EVENTS", 0) > 0
	turn := 0
	for _, x := range steps {
		for _, event := range []int{eventFlush, eventForeign, eventTruncate, eventIndex} {
			for at := range 4 {
				for iso := RepeatableRead; iso <= Serializable; iso++ {
					for _, y := range steps {
						if y.kind > stepReadValues {
							continue
						}
						if turn++; !all && turn%53 != 0 {
							continue
						}
						b.run(&schedule{
							[]Isolation{iso, ReadCommitted},
							[2]bool{true, turn%3 > 0},
							[][]step{{x, y, {kind: stepCommit}}, {{kind: stepAdd, key: turn % 2}, {kind: stepCommit}}},
							slices.Insert([]int{0, 0, 1, 1, 0}, at+turn%2, event),
						})
					}
				}
			}
		}
	}
	b.log()
	require.Positive(t, b.waited)
}

// Two to four sessions with two or three steps each, in any order, and events among them.
func TestInterleavedPrograms(t *testing.T) {
	b := newIsoBench(t)
	steps := allSteps()
	seed := uint64(envInt("SEED", 1))
	for p := range envInt("PROGRAMS", 600) {
		rnd := rand.New(rand.NewPCG(seed, uint64(p)))
		s := &schedule{have: [2]bool{rnd.IntN(3) > 0, rnd.IntN(3) > 0}}
		for n := range 2 + rnd.IntN(3) {
			s.iso = append(s.iso, Isolation(rnd.IntN(3)))
			var prog []step
			for range 2 + rnd.IntN(2) {
				prog = append(prog, steps[rnd.IntN(len(steps))])
			}
			end := step{kind: stepCommit}
			if rnd.IntN(6) == 0 {
				end.kind = stepRollback
			}
			s.steps = append(s.steps, append(prog, end))
			for range s.steps[n] {
				s.order = append(s.order, n)
			}
		}
		for range rnd.IntN(2) {
			events := []int{eventFlush, eventFlush, eventTruncate, eventIndex, eventForeign}
			s.order = append(s.order, events[rnd.IntN(len(events))])
		}
		rnd.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
		b.run(s)
		if t.Failed() {
			t.Fatalf("seed %d, program %d", seed, p)
		}
	}
	b.log()
	require.Positive(t, b.waited)
	require.Positive(t, b.deadlocks)
	require.Positive(t, b.duplicates)
}

func (b *isoBench) log() {
	b.t.Logf("%d schedules, %d waits, %d deadlocks, %d duplicates; at most %d states of the model", b.runs, b.waited, b.deadlocks, b.duplicates, b.states)
}
