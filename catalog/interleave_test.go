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

// Two transactions with two statements and an end each, in every order of their steps, beside a model of isolation that knows
// nothing of the lock manager: which step waits, what each one sees, who is given up in a deadlock, and what is left. Locks on absent
// keys and on ranges exclude one another, and under READ COMMITTED a range gives of the rows that its statement found those that are
// there still: both are stricter than, or beside, what InnoDB does.

type stepKind uint8

const (
	stepRead   stepKind = iota // of the snapshot
	stepShare                  // FOR SHARE
	stepUpdate                 // reads FOR UPDATE and adds to the value, if there is a row
	stepDelete                 // likewise
	stepInsert
	stepRange       // reads all keys
	stepRangeUpdate // reads all keys FOR UPDATE
	stepCommit
	stepRollback
)

// step is a step of a transaction; a key is 0 or 1.
type step struct {
	kind stepKind
	key  int
}

func (s step) String() string {
	return fmt.Sprintf("%s(%d)", [...]string{"read", "share", "update", "delete", "insert", "range", "range for update", "commit", "rollback"}[s.kind], s.key)
}

// modelLock is a lock of a key, or of both.
type modelLock struct {
	keys  [2]bool
	write bool
}

func (l modelLock) against(o modelLock) bool {
	return (l.write || o.write) && (l.keys[0] && o.keys[0] || l.keys[1] && o.keys[1])
}

// isoTx is a transaction of the model.
type isoTx struct {
	iso    Isolation
	snap   map[int]int
	own    map[int]*int // nil: deleted
	locks  []modelLock
	writes int
	waits  *step
	found  [2]bool // under READ COMMITTED: rows that the statement found
	over   bool
	out    []string // what its statements answered
}

type isoModel struct {
	rows map[int]int
	txs  [2]*isoTx
}

// needs gives the locks of a step.
func (x *isoTx) needs(s step) (out []modelLock) {
	one := modelLock{write: s.kind == stepUpdate || s.kind == stepDelete || s.kind == stepInsert || s.kind == stepRangeUpdate}
	switch s.kind {
	case stepRead, stepCommit, stepRollback:
		return nil
	case stepRange, stepRangeUpdate:
		if x.iso != ReadCommitted {
			one.keys = [2]bool{true, true}
			return []modelLock{one}
		}
		for k := range 2 { // the rows that were there when the statement began, in order
			if x.found[k] {
				l := one
				l.keys[k] = true
				out = append(out, l)
			}
		}
		return out
	}
	one.keys[s.key] = true
	return []modelLock{one}
}

// see gives what a transaction sees of a key in a state.
func (x *isoTx) see(k int, rows map[int]int) (int, bool) {
	if v, ok := x.own[k]; ok {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	v, ok := rows[k]
	return v, ok
}

// try runs a step as far as it gets; false: it waits.
func (m *isoModel) try(n int, s step) bool {
	x, o := m.txs[n], m.txs[1-n]
	if x.over {
		return true
	}
	if x.iso == ReadCommitted && x.waits == nil {
		x.snap = maps.Clone(m.rows)
		for k := range 2 {
			_, x.found[k] = x.see(k, m.rows)
		}
	}
	for _, l := range x.needs(s) {
		for _, held := range o.locks {
			if !l.against(held) {
				continue
			}
			x.waits = &s
			if o.waits == nil {
				return false
			}
			// A circle: the one with fewer writes goes, of equals the one that closed it.
			if o.writes < x.writes {
				m.lose(1 - n)
				return m.try(n, s)
			}
			m.lose(n)
			return true
		}
		if s.kind != stepShare && s.kind != stepUpdate && s.kind != stepDelete || x.iso != ReadCommitted || m.there(n, s.key) {
			x.locks = append(x.locks, l)
		}
	}
	x.waits = nil
	say := func(f string, a ...any) { x.out = append(x.out, fmt.Sprintf(f, a...)) }
	set := func(k int, v *int) {
		x.own[k] = v
		x.writes++
	}
	switch s.kind {
	case stepRead:
		v, ok := x.see(s.key, x.snap)
		say("%d %v", v, ok)
	case stepShare, stepUpdate, stepDelete:
		v, ok := x.see(s.key, m.rows)
		say("%d %v", v, ok)
		switch {
		case ok && s.kind == stepUpdate:
			v += 10 * (n + 1)
			set(s.key, &v)
		case ok && s.kind == stepDelete:
			set(s.key, nil)
		}
	case stepInsert:
		if _, ok := x.see(s.key, m.rows); ok {
			say("duplicate")
			break
		}
		v := 100 * (n + 1)
		set(s.key, &v)
		say("inserted")
	case stepRange, stepRangeUpdate:
		var seen []string
		for k := range 2 {
			if v, ok := x.see(k, m.rows); ok && (x.found[k] || x.iso != ReadCommitted) {
				seen = append(seen, fmt.Sprint(k, "=", v))
			}
		}
		say("range %s", strings.Join(seen, " "))
	case stepCommit:
		for k, v := range x.own {
			if delete(m.rows, k); v != nil {
				m.rows[k] = *v
			}
		}
		x.end()
	case stepRollback:
		x.end()
	}
	return true
}

func (m *isoModel) there(n, k int) bool {
	_, ok := m.txs[n].see(k, m.rows)
	return ok
}

func (m *isoModel) lose(n int) {
	x := m.txs[n]
	x.out = append(x.out, "deadlock")
	x.end()
}

func (x *isoTx) end() { x.over, x.locks, x.waits, x.own = true, nil, nil, nil }

// isoRun is a schedule on a warehouse.
type isoRun struct {
	t    testing.TB
	c    *Catalog
	tab  *Table
	base int32
	txs  [2]*Tx
	out  [2][]string
	done [2]chan string

	mu    *sync.Mutex
	waits map[uint64]bool // guarded by mu: who waits
}

func (r *isoRun) exec(n int, s step) string {
	ctx := context.Background()
	tx := r.txs[n]
	key := storage.Row{r.base + int32(s.key)}
	lock := ScanOptions{Lock: LockExclusive}
	if s.kind == stepShare || s.kind == stepRange {
		lock.Lock = LockShared
	}
	lost := func(err error) string {
		switch {
		case errors.Is(err, ErrDeadlock):
			return "deadlock"
		case errors.As(err, new(*DuplicateKeyError)):
			return "duplicate"
		}
		return err.Error()
	}
	if err := tx.StartStatement(); err != nil {
		return lost(err)
	}
	switch s.kind {
	case stepCommit:
		if err := tx.Commit(ctx); err != nil {
			return lost(err)
		}
		return ""
	case stepRollback:
		tx.Rollback()
		return ""
	case stepInsert:
		if err := tx.Insert(ctx, r.tab, row(key[0].(int32), fmt.Sprint(key[0]), int64(100*(n+1)))); err != nil {
			return lost(err)
		}
		return "inserted"
	case stepRange, stepRangeUpdate:
		got := map[int32]int64{}
		for b, err := range tx.Lookup(ctx, r.tab, "", []KeyRange{{Low: storage.Row{r.base}, High: storage.Row{r.base + 1}}}, lock) {
			if err != nil {
				return lost(err)
			}
			for i := range b.Rows {
				got[b.Value(0, i).(int32)-r.base] = b.Value(2, i).(int64)
			}
		}
		var seen []string
		for _, k := range slices.Sorted(maps.Keys(got)) {
			seen = append(seen, fmt.Sprint(k, "=", got[k]))
		}
		return "range " + strings.Join(seen, " ")
	}
	if s.kind == stepRead {
		lock = ScanOptions{}
	}
	old, ok, err := tx.GetLock(ctx, r.tab, key, lock)
	if err != nil {
		return lost(err)
	}
	v := int64(0)
	if ok {
		v = old[2].(int64)
		switch s.kind {
		case stepUpdate:
			err = tx.Update(ctx, r.tab, old, row(key[0].(int32), old[1].(string), v+int64(10*(n+1))))
		case stepDelete:
			err = tx.Delete(ctx, r.tab, old)
		}
		if err != nil {
			return lost(err)
		}
	}
	return fmt.Sprintf("%d %v", v, ok)
}

// take waits for the answer of a transaction's step.
func (r *isoRun) take(n int, what string) {
	select {
	case s := <-r.done[n]:
		r.done[n] = nil
		if s != "" {
			r.out[n] = append(r.out[n], s)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("%s: no answer", what)
	}
}

func (r *isoRun) waiting(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits[r.txs[n].ID()]
}

func TestInterleavings(t *testing.T) {
	c, tab := lockWorld(t)
	ctx := context.Background()
	var mu sync.Mutex
	waits := map[uint64]bool{}
	c.rowLocks.changed = func(l *txLocks, w bool) {
		mu.Lock()
		defer mu.Unlock()
		waits[l.id] = w
	}
	seed := uint64(envInt("SEED", 1))
	rnd := rand.New(rand.NewPCG(seed, 7))
	var orders [][]int
	var order func(a, b int, at []int)
	order = func(a, b int, at []int) {
		if a == 0 && b == 0 {
			orders = append(orders, slices.Clone(at))
		}
		if a > 0 {
			order(a-1, b, append(at, 0))
		}
		if b > 0 {
			order(a, b-1, append(at, 1))
		}
	}
	order(3, 3, nil)
	programs := envInt("PROGRAMS", 150)
	blockedSteps, deadlocks := 0, 0
	for p := range programs {
		var prog [2][]step
		var iso [2]Isolation
		var have [2]bool
		for n := range 2 {
			iso[n], have[n] = Isolation(rnd.IntN(3)), rnd.IntN(3) > 0
			for range 2 {
				prog[n] = append(prog[n], step{stepKind(rnd.IntN(int(stepCommit))), rnd.IntN(2)})
			}
			end := stepCommit
			if rnd.IntN(5) == 0 {
				end = stepRollback
			}
			prog[n] = append(prog[n], step{kind: end})
		}
		for o, at := range orders {
			what := fmt.Sprintf("seed %d program %d (%v %v, rows %v) order %v: %v and %v", seed, p, iso[0], iso[1], have, at, prog[0], prog[1])
			r := &isoRun{t: t, c: c, tab: tab, base: int32(10 * (p*len(orders) + o)), mu: &mu, waits: waits}
			m := &isoModel{rows: map[int]int{}}
			inTx(t, c, func(tx *Tx) {
				for k := range 2 {
					if have[k] {
						m.rows[k] = k
						require.NoError(t, tx.Insert(ctx, tab, row(r.base+int32(k), fmt.Sprint(r.base+int32(k)), int64(k))))
					}
				}
			})
			for n := range 2 {
				r.txs[n] = lockBegin(t, c, iso[n])
				m.txs[n] = &isoTx{iso: iso[n], snap: maps.Clone(m.rows), own: map[int]*int{}}
			}
			var next [2]int
			turn := func(n int) {
				x := m.txs[n]
				if x.over || x.waits != nil || next[n] == len(prog[n]) {
					return
				}
				s := prog[n][next[n]]
				next[n]++
				other := m.txs[1-n]
				waited := other.waits
				free := m.try(n, s)
				if waited != nil && other.waits != nil { // what has become free
					m.try(1-n, *other.waits)
				}
				done := make(chan string, 1)
				r.done[n] = done
				go func() { done <- r.exec(n, s) }()
				if free {
					r.take(n, what)
				} else {
					blockedSteps++
					require.Eventually(t, func() bool { return r.waiting(n) }, 20*time.Second, 10*time.Microsecond, what)
				}
				if waited != nil && other.waits == nil {
					r.take(1-n, what)
				}
				for i := range 2 {
					require.Equal(t, m.txs[i].waits != nil, r.waiting(i), what)
				}
				if rnd.IntN(100) == 0 {
					require.NoError(t, c.Flush(ctx, "test"))
				}
			}
			for _, n := range at {
				turn(n)
			}
			for range 3 { // turns that a wait has cost
				turn(0)
				turn(1)
			}
			left := map[int]int{}
			inTx(t, c, func(tx *Tx) {
				for k := range 2 {
					x, ok, err := tx.Get(ctx, tab, storage.Row{r.base + int32(k)})
					require.NoError(t, err)
					if ok {
						left[k] = int(x[2].(int64))
					}
				}
			})
			for n := range 2 {
				require.True(t, m.txs[n].over, what)
				require.Equal(t, m.txs[n].out, r.out[n], "transaction %d of %s", n, what)
				deadlocks += strings.Count(strings.Join(r.out[n], ";"), "deadlock")
			}
			require.Equal(t, m.rows, left, what)
			require.Empty(t, c.Locks(), what)
		}
	}
	t.Logf("%d schedules, %d waits, %d deadlocks", programs*len(orders), blockedSteps, deadlocks)
	require.Positive(t, blockedSteps)
	require.Positive(t, deadlocks)
	require.Zero(t, c.Metrics().ConflictsTotal.Load())
}
