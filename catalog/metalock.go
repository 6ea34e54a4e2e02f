package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// metaLock keeps the definition of a table from changing while transactions use the table, as MySQL's metadata locks do: a transaction
// holds it shared from its first read or write of the table to its end, a change of definitions exclusively.
//
// A change takes the locks of all its tables at once, so that it never holds one while it waits. New transactions queue behind a change
// that waits; those that use some table already do not, since the change may be waiting for them.
type metaLock struct {
	mu      sync.Mutex
	users   int           // transactions
	held    bool          // by a change
	waiting int           // changes
	free    chan struct{} // closed when one of these changes; nil: nobody waits for that
}

// changed tells those who wait; called with mu held.
func (m *metaLock) changed() {
	if m.free != nil {
		close(m.free)
		m.free = nil
	}
}

// wait gives the channel that is closed by the next change; called with mu held.
func (m *metaLock) wait() chan struct{} {
	if m.free == nil {
		m.free = make(chan struct{})
	}
	return m.free
}

// enter takes the lock for a transaction, and tells whether it had to wait; begins is asked how when it has to.
func (m *metaLock) enter(ctx context.Context, queue bool, begins func() changeWait) (waited bool, err error) {
	var timer *time.Timer
	var how changeWait
	defer func() {
		if waited && how.note != nil {
			how.note(false)
		}
	}()
	for {
		m.mu.Lock()
		if !m.held && (m.waiting == 0 || !queue) {
			m.users++
			m.mu.Unlock()
			return waited, nil
		}
		free := m.wait()
		m.mu.Unlock()
		if timer == nil {
			how = begins()
			timer = time.NewTimer(how.limit)
			defer timer.Stop()
			if how.note != nil {
				how.note(true)
			}
		}
		waited = true
		select {
		case <-free:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-timer.C:
			return true, fmt.Errorf("%w: the table's definition is being changed", ErrLockTimeout)
		}
	}
}

func (m *metaLock) leave() {
	m.mu.Lock()
	m.users--
	m.changed()
	m.mu.Unlock()
}

type waitKey struct{}

// changeWait is how changes of definitions wait.
type changeWait struct {
	limit time.Duration
	note  func(waits bool)
}

// WithWait says how long changes of definitions wait for the transactions that use their tables, and transactions for changes;
// ErrLockTimeout after that. Note, if it is not nil, is told when they begin and end to wait. Without it changes wait for
// LockTimeoutDefault, and transactions for a year.
func WithWait(ctx context.Context, limit time.Duration, note func(waits bool)) context.Context {
	return context.WithValue(ctx, waitKey{}, changeWait{limit, note})
}

// lockDefinitions waits until no transaction uses the tables, and keeps new ones from using them until release is called.
func lockDefinitions(ctx context.Context, tables []*Table) (release func(), err error) {
	tables = slices.Clone(tables)
	slices.SortFunc(tables, func(a, b *Table) int { return int(a.id) - int(b.id) })
	tables = slices.Compact(tables)
	how, ok := ctx.Value(waitKey{}).(changeWait)
	if !ok {
		how.limit = LockTimeoutDefault
	}
	each := func(f func(*metaLock)) {
		for _, t := range tables {
			t.meta.mu.Lock()
			f(&t.meta)
			t.meta.mu.Unlock()
		}
	}
	each(func(m *metaLock) { m.waiting++ })
	defer each(func(m *metaLock) {
		m.waiting--
		m.changed()
	})
	timer := time.NewTimer(how.limit)
	defer timer.Stop()
	waits := false
	defer func() {
		if waits && how.note != nil {
			how.note(false)
		}
	}()
	for {
		var busy *Table
		var free chan struct{}
		for _, t := range tables {
			t.meta.mu.Lock()
		}
		for _, t := range tables {
			if t.meta.users > 0 || t.meta.held {
				busy, free = t, t.meta.wait()
				break
			}
		}
		for _, t := range tables {
			t.meta.held = t.meta.held || busy == nil
			t.meta.mu.Unlock()
		}
		if busy == nil {
			return func() {
				each(func(m *metaLock) {
					m.held = false
					m.changed()
				})
			}, nil
		}
		if !waits {
			tables[0].c.metrics.TableWaitsTotal.Add(1)
			if how.note != nil {
				how.note(true)
			}
		}
		waits = true
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			busy.c.metrics.TableTimeoutsTotal.Add(1)
			return nil, fmt.Errorf("%w: transactions use %s", ErrLockTimeout, busy)
		}
	}
}

// use takes the metadata lock of a table for the transaction, if it has it not yet.
func (tx *Tx) use(ctx context.Context, t *Table) error {
	tx.mu.Lock()
	first := len(tx.uses) == 0
	if tx.done || tx.internal || slices.Contains(tx.uses, t) {
		tx.mu.Unlock()
		return nil
	}
	tx.mu.Unlock()
	waited, err := t.meta.enter(ctx, first, func() changeWait {
		tx.c.metrics.TableWaitsTotal.Add(1)
		if how, ok := ctx.Value(waitKey{}).(changeWait); ok {
			return how
		}
		return changeWait{limit: tableWait}
	})
	if errors.Is(err, ErrLockTimeout) {
		tx.c.metrics.TableTimeoutsTotal.Add(1)
	}
	if err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done || slices.Contains(tx.uses, t) {
		t.meta.leave()
		return nil
	}
	tx.uses = append(tx.uses, t)
	if (waited || tx.snap.reshaped(t)) && len(tx.tabs) == 0 && !tx.fixed {
		s, err := tx.c.newSnapshot()
		if err != nil {
			return err
		}
		tx.snap.close()
		tx.snap = s
	}
	return nil
}

// reshaped tells whether the table has another shape than in the snapshot.
func (s *snapshot) reshaped(t *Table) bool {
	was, now := s.colds[t.id], s.c.cold(t.id)
	return was == nil || now != nil && now.shape != was.shape
}

// Uses tells whether the transaction has used the table, so that its definition stays until the transaction ends.
func (tx *Tx) Uses(t *Table) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return slices.Contains(tx.uses, t)
}

// KeepSnapshot has plain reads see the snapshot that was taken at the beginning, also if the first of them comes later.
func (tx *Tx) KeepSnapshot() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.fixed = true
}

// tableWait is how long a transaction waits for a change of definitions that is under way: MySQL's default, a year.
const tableWait = 365 * 24 * time.Hour

// unuse gives up the metadata locks; called with mu held.
func (tx *Tx) unuse() {
	for _, t := range tx.uses {
		t.meta.leave()
	}
	tx.uses = nil
}

// beginInternal starts a transaction of a change of definitions itself, which has the tables for itself.
func (c *Catalog) beginInternal(ctx context.Context) (*Tx, error) {
	tx, err := c.Begin(ctx)
	if err == nil {
		tx.internal = true
	}
	return tx, err
}
