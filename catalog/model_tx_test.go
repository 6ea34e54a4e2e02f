package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// modelTx is a transaction beside its model.
type modelTx struct {
	tx     *Tx
	state  map[*modelTable]map[string]storage.Row
	wrote  map[string]bool // "table/key" and "table/index/value"
	marks  []Mark
	states []map[*modelTable]map[string]storage.Row
	sets   []map[string]bool
	events []string
	beside *modelTx // another transaction that is under way: its locks are in the way
	paired bool     // there is another one, here or there
	locked bool     // reads take locks
	small  bool     // no large statements
}

func (w *world) begin() *modelTx {
	tx, err := w.c.BeginTx(context.Background(), TxOptions{LockTimeout: time.Nanosecond, Isolation: Isolation(w.r.IntN(3))})
	require.NoError(w.t, err)
	x := &modelTx{tx: tx, state: map[*modelTable]map[string]storage.Row{}, wrote: map[string]bool{}}
	for _, m := range w.tables {
		x.state[m] = m.rows
	}
	return x
}

// change gives the rows of a table for writing.
func (x *modelTx) change(m *modelTable) map[string]storage.Row {
	x.state[m] = maps.Clone(x.state[m])
	return x.state[m]
}

func (x *modelTx) note(m *modelTable, key string, row storage.Row) {
	x.wrote[m.name+"/"+key] = true
	if row == nil {
		return
	}
	for _, u := range m.tab.Spec().Indexes {
		if u.Unique {
			if v := row[m.tab.Spec().Schema.Index(u.Columns[0].Column)]; v != nil {
				x.wrote[fmt.Sprintf("%s/%s/%v", m.name, u.Name, v)] = true
			}
		}
	}
}

// step makes one random write.
func (w *world) step(x *modelTx) {
	w.stepOn(x, w.any())
}

func (w *world) stepOn(x *modelTx, m *modelTable) {
	ctx := context.Background()
	rows := x.state[m]
	spec := m.tab.Spec()
	event := spec.Ordering == storage.EventTime
	if w.r.IntN(5) == 0 && !x.paired && !x.small { // large statements lock their rows at the commit, which may have to wait then
		w.bulk(x, m)
		return
	}
	mark := x.tx.Mark()
	// blocked: the other transaction has locked what the write needs; it has done nothing then.
	blocked := func(err error) bool {
		if x.beside == nil || !errors.Is(err, ErrLockTimeout) {
			return false
		}
		require.Equal(w.t, mark, x.tx.Mark())
		return true
	}
	switch n := w.r.IntN(10); {
	case n < 5: // insert
		row := w.row(m)
		key := m.key(row)
		_, exists := rows[key]
		taken := uniqueTaken(m, rows, row)
		if !x.paired && w.r.IntN(2) == 0 {
			w.expect(x, m, row)
		}
		err := x.tx.Insert(ctx, m.tab, row)
		x.event("insert %s %s -> %v", m.name, text(row), err)
		if blocked(err) {
			return
		}
		if exists || taken {
			var dup *DuplicateKeyError
			require.ErrorAs(w.t, err, &dup)
			require.Equal(w.t, exists, dup.Index == "")
			return
		}
		require.NoError(w.t, err)
		x.change(m)[key] = row
		x.note(m, key, row)
	case n < 8: // update
		key, old, ok := pick(w.r, rows)
		if !ok {
			return
		}
		row := append(storage.Row(nil), old...)
		for range 1 + w.r.IntN(3) {
			i := w.r.IntN(len(row))
			row[i] = w.value(spec.Schema.Fields[i])
		}
		nkey := key
		if len(spec.Key) > 0 {
			nkey = m.key(row)
		}
		_, exists := rows[nkey]
		ordAt := spec.Schema.Index("ord")
		late := event && nkey == key && row[ordAt].(int64) < old[ordAt].(int64)
		taken := uniqueTaken(m, rows, row, key)
		err := x.tx.Update(ctx, m.tab, old, row)
		x.event("update %s %s to %s -> %v", m.name, text(old), text(row), err)
		if blocked(err) {
			return
		}
		var dup *DuplicateKeyError
		var lateErr *LateError
		switch {
		case nkey != key && exists:
			require.ErrorAs(w.t, err, &dup)
			require.Equal(w.t, "", dup.Index)
			return
		case late:
			require.ErrorAs(w.t, err, &lateErr)
			return
		case taken:
			require.ErrorAs(w.t, err, &dup)
			return
		}
		require.NoError(w.t, err)
		st := x.change(m)
		if len(spec.Key) == 0 {
			// Which of equal rows is changed is open: any is.
			for k, r := range st {
				if text(r) == text(old) {
					key, nkey = k, k
					break
				}
			}
		}
		delete(st, key)
		st[nkey] = row
		x.note(m, key, nil)
		x.note(m, nkey, row)
	default:
		key, old, ok := pick(w.r, rows)
		if !ok {
			return
		}
		err := x.tx.Delete(ctx, m.tab, old)
		x.event("delete %s %s -> %v", m.name, text(old), err)
		if blocked(err) {
			return
		}
		require.NoError(w.t, err)
		delete(x.change(m), key)
		x.note(m, key, nil)
	}
}

// expect announces a row among others, some of which are there.
func (w *world) expect(x *modelTx, m *modelTable, row storage.Row) {
	b := storage.NewBuilder(m.tab.Spec().Schema)
	require.NoError(w.t, b.Append(row))
	for range w.r.IntN(12) {
		other := w.row(m)
		if _, old, ok := pick(w.r, x.state[m]); ok && w.r.IntN(2) == 0 {
			other = old
		}
		require.NoError(w.t, b.Append(other))
	}
	batch := b.Batch()
	require.NoError(w.t, x.tx.Expect(context.Background(), m.tab, batch, w.r.IntN(2), batch.Rows, w.r.IntN(3) > 0))
}

// bulk loads random rows, in batches.
func (w *world) bulk(x *modelTx, m *modelTable) {
	ctx := context.Background()
	mode := DuplicateMode(w.r.IntN(3))
	b, err := x.tx.BulkInsert(ctx, m.tab, mode)
	require.NoError(w.t, err)
	rows := maps.Clone(x.state[m])
	var want BulkResult
	var notes []func()
	fails := false
	builder := storage.NewBuilder(m.tab.Spec().Schema)
	for range 1 + w.r.IntN(12) {
		row := w.row(m)
		key := m.key(row)
		require.NoError(w.t, builder.Append(row))
		x.event("load %d %s %s", mode, m.name, text(row))
		if fails {
			continue
		}
		_, exists := rows[key]
		if exists || uniqueTaken(m, rows, row) {
			switch mode {
			case DuplicateFail:
				fails = true
				continue
			case DuplicateIgnore:
				want.Ignored++
				continue
			}
			if exists {
				delete(rows, key)
				want.Replaced++
			}
			for k := range rows {
				if uniqueTaken(m, map[string]storage.Row{k: rows[k]}, row) {
					delete(rows, k)
					notes = append(notes, func() { x.note(m, k, nil) })
					want.Replaced++
				}
			}
		}
		rows[key] = row
		want.Rows++
		notes = append(notes, func() { x.note(m, key, row) })
		if w.r.IntN(4) == 0 {
			err = firstError(err, b.Append(builder.Batch()))
		}
	}
	err = firstError(err, b.Append(builder.Batch()))
	if fails {
		var dup *DuplicateKeyError
		require.ErrorAs(w.t, err, &dup)
		b.Abort()
		x.event("load failed")
		return
	}
	require.NoError(w.t, err)
	if w.r.IntN(8) == 0 {
		b.Abort()
		x.event("load aborted")
		return
	}
	w.count("load")
	got, err := b.Finish()
	require.NoError(w.t, err)
	require.Equal(w.t, want, got)
	x.state[m] = rows
	for _, f := range notes {
		f()
	}
}

func (x *modelTx) event(f string, a ...any) { x.events = append(x.events, fmt.Sprintf(f, a...)) }

// mark sets a savepoint, back undoes to one.
func (x *modelTx) mark() {
	x.marks = append(x.marks, x.tx.Mark())
	x.states = append(x.states, maps.Clone(x.state))
	x.sets = append(x.sets, maps.Clone(x.wrote))
}

func (x *modelTx) back(t *testing.T) {
	n := len(x.marks) - 1
	require.NoError(t, x.tx.RollbackTo(x.marks[n]))
	x.state, x.wrote = x.states[n], x.sets[n]
	x.marks, x.states, x.sets = x.marks[:n], x.states[:n], x.sets[:n]
	x.event("back to savepoint")
}

func (w *world) run(x *modelTx, steps int) {
	for range steps {
		w.step(x)
		switch w.r.IntN(12) {
		case 0:
			x.mark()
		case 1:
			if len(x.marks) > 0 {
				x.back(w.t)
				w.count("savepoint")
			}
		case 2:
			m := w.any()
			o := ScanOptions{}
			if x.locked {
				o.Lock = LockMode(1 + w.r.IntN(2))
			}
			logged := w.log
			w.log = append(append(w.log, "of this transaction:"), x.events...)
			w.compareScan(m, x.state[m], x.tx.Scan(context.Background(), m.tab, o), "inside a transaction")
			w.log = logged
		}
	}
}

// commit ends a transaction; others are those that committed since it began.
func (w *world) commit(x *modelTx, others ...*modelTx) bool {
	err := x.tx.Commit(context.Background())
	w.count("commit")
	w.log = append(w.log, x.events...)
	w.log = append(w.log, fmt.Sprintf("commit -> %v", err))
	meet := false
	for _, o := range others {
		for k := range x.wrote {
			meet = meet || o.wrote[k]
		}
	}
	require.NoError(w.t, err)
	require.Empty(w.t, w.locksOf(x), "locks are left")
	require.False(w.t, meet, "a lock was not seen")
	for m, rows := range x.state {
		touched := false
		for k := range x.wrote {
			touched = touched || strings.HasPrefix(k, m.name+"/")
		}
		if !touched {
			continue
		}
		if len(others) > 0 {
			merged := maps.Clone(m.rows)
			for k := range x.wrote {
				key, ok := strings.CutPrefix(k, m.name+"/")
				if !ok {
					continue
				}
				if r, ok := rows[key]; ok {
					merged[key] = r
				} else {
					delete(merged, key)
				}
			}
			m.rows = merged
			continue
		}
		m.rows = rows
	}
	return true
}

func (w *world) locksOf(x *modelTx) (out []LockInfo) {
	for _, l := range w.c.Locks() {
		if l.Tx == x.tx.ID() {
			out = append(out, l)
		}
	}
	return out
}

// late has a transaction see another one's changes where it writes and reads with locks, and not where it reads its snapshot.
func (w *world) late() {
	ctx := context.Background()
	w.count("late")
	x := w.begin()
	old := map[*modelTable]map[string]storage.Row{}
	for _, m := range w.tables {
		old[m] = m.rows
		w.compareScan(m, m.rows, x.tx.Scan(ctx, m.tab, ScanOptions{}), "before the other one")
	}
	y := w.begin()
	w.run(y, 1+w.r.IntN(6))
	w.commit(y)
	if w.r.IntN(3) == 0 {
		w.flush()
	}
	for _, m := range w.tables {
		w.compareScan(m, old[m], x.tx.Scan(ctx, m.tab, ScanOptions{}), "in the snapshot")
		x.state[m] = m.rows
	}
	x.locked = true
	x.event("what follows is late")
	for range 1 + w.r.IntN(6) {
		w.stepLocked(x)
	}
	logged := w.log
	w.log = append(append(w.log, "of this transaction:"), x.events...)
	for _, m := range w.tables {
		if len(m.tab.Spec().Key) == 0 {
			continue // which of equal rows was changed is open
		}
		seen := maps.Clone(old[m])
		for k := range x.wrote {
			if key, ok := strings.CutPrefix(k, m.name+"/"); ok {
				delete(seen, key)
				if r, ok := x.state[m][key]; ok {
					seen[key] = r
				}
			}
		}
		w.compareScan(m, seen, x.tx.Scan(ctx, m.tab, ScanOptions{}), "in the snapshot, with own changes")
	}
	require.NoError(w.t, x.tx.StartStatement())
	for _, m := range w.tables {
		if x.tx.Isolation() == ReadCommitted {
			w.compareScan(m, x.state[m], x.tx.Scan(ctx, m.tab, ScanOptions{}), "in a new statement")
		}
		w.compareScan(m, x.state[m], x.tx.Scan(ctx, m.tab, ScanOptions{Lock: LockShared}), "with locks")
	}
	w.log = logged
	w.commit(x)
}

// stepLocked is step on rows that were read with locks.
func (w *world) stepLocked(x *modelTx) {
	m := w.any()
	w.compareScan(m, x.state[m], x.tx.Scan(context.Background(), m.tab, ScanOptions{Lock: LockExclusive}), "for update")
	w.stepOn(x, m)
}
