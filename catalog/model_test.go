package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// envInt reads the size of a long check.
func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return def
}

// foldKey orders texts without regard to case.
func foldKey(_, s string) []byte { return []byte(strings.ToLower(s)) }

// modelTable is what a table must hold, kept in memory.
type modelTable struct {
	name    string
	tab     *Table
	rows    map[string]storage.Row // by key, in a form of the model's own
	past    []pastState
	keyless int // rows made so far, which names the rows of a table without a key
	grown   int // columns added so far
}

type pastState struct {
	at   time.Time
	rows map[string]storage.Row
}

// world is a warehouse with its model.
type world struct {
	t      *testing.T
	r      *rand.Rand
	c      *Catalog
	fs     vfs.FS
	o      Options
	tables []*modelTable
	log    []string
}

func modelSpecs(r *rand.Rand) []TableSpec {
	kinds := func() []storage.Field {
		return []storage.Field{
			{Name: "id", Type: storage.Type{Kind: storage.Int32}, Nullable: true},
			{Name: "code", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "part", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "ord", Type: storage.Type{Kind: storage.Int64}, Nullable: true},
			{Name: "flag", Type: storage.Type{Kind: storage.Bool}, Nullable: true},
			{Name: "n", Type: storage.Type{Kind: storage.Int64}, Nullable: true},
			{Name: "f", Type: storage.Type{Kind: storage.Float32}, Nullable: true},
			{Name: "g", Type: storage.Type{Kind: storage.Float64}, Nullable: true},
			{Name: "s", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "raw", Type: storage.Type{Kind: storage.Bytes}, Nullable: true},
			{Name: "day", Type: storage.Type{Kind: storage.Date}, Nullable: true},
			{Name: "at", Type: storage.Type{Kind: storage.Timestamp}, Nullable: true},
			{Name: "amount", Type: storage.Type{Kind: storage.Decimal, Precision: 20, Scale: 3}, Nullable: true},
		}
	}
	var out []TableSpec
	for i := range 6 {
		s := TableSpec{Schema: &storage.Schema{Fields: kinds()}, MergeOnRead: i%2 == 0}
		switch r.IntN(4) {
		case 0:
			s.Key = []KeyColumn{{Column: "id"}}
		case 1:
			s.Key = []KeyColumn{{Column: "code", Collation: "ci"}}
		case 2:
			s.Key = []KeyColumn{{Column: "code", Collation: "ci"}, {Column: "id"}}
		case 3:
			if i%3 != 2 {
				s.Key = []KeyColumn{{Column: "id"}, {Column: "day"}}
			}
		}
		switch r.IntN(3) {
		case 1:
			s.Partition, s.HiveStyle = []string{"part"}, r.IntN(2) == 0
		case 2:
			s.Partition, s.HiveStyle = []string{"part", "flag"}, r.IntN(2) == 0
		}
		if len(s.Partition) > 0 && r.IntN(3) == 0 {
			s.PerPartition = true
		}
		if r.IntN(2) == 0 && len(s.Key) > 0 {
			s.Ordering, s.OrderingField = storage.EventTime, "ord"
		}
		if r.IntN(2) == 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "by_n", Columns: []KeyColumn{{Column: "n"}}})
		}
		if r.IntN(2) == 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "by_s", Columns: []KeyColumn{{Column: "s", Collation: "ci"}, {Column: "f"}}})
		}
		if r.IntN(2) == 0 && len(s.Key) > 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "u_at", Columns: []KeyColumn{{Column: "at"}}, Unique: true})
		}
		out = append(out, s)
	}
	return out
}

// value makes a value of a column; texts and numbers are few, so that keys meet.
func (w *world) value(f storage.Field) any {
	r := w.r
	switch f.Name {
	case "id":
		return int32(r.IntN(30) - 5)
	case "code":
		return []string{"a", "A", "b", "B", "ä", "", "long text, with: a comma", "__null__", "ccc", "CCC", "d/e", "x%2C"}[r.IntN(12)]
	case "part":
		return []any{nil, "x", "X", "y z", "p/q", "a=b", "ü"}[r.IntN(7)]
	case "ord":
		return int64(r.IntN(1000))
	case "at":
		if r.IntN(3) == 0 {
			return nil
		}
		return int64(r.IntN(200)) * 1_000_003
	}
	keyed := f.Name == "day"
	if !keyed && r.IntN(6) == 0 {
		return nil
	}
	switch f.Type.Kind {
	case storage.Bool:
		return r.IntN(2) == 0
	case storage.Int32:
		return []int32{0, 1, -1, math.MaxInt32, math.MinInt32}[r.IntN(5)]
	case storage.Int64:
		return int64(r.IntN(20)) * []int64{1, -1, math.MaxInt64 / 40}[r.IntN(3)]
	case storage.Float32:
		return []float32{0, 1.5, -2.25, math.MaxFloat32, 1e-30}[r.IntN(5)]
	case storage.Float64:
		return []float64{0, 1.5, -2.25, math.MaxFloat64, 1e-300, r.Float64()}[r.IntN(6)]
	case storage.String:
		return []string{"", "Alpha", "alpha", "beta", "\x00zero", "日本", strings.Repeat("x", 300)}[r.IntN(7)]
	case storage.Bytes:
		return [][]byte{{}, {0}, {1, 2, 255}}[r.IntN(3)]
	case storage.Date:
		return int32(r.IntN(5) - 2)
	case storage.Decimal:
		return decimal128.FromI64(r.Int64N(1_000_000) - 500_000)
	}
	return nil
}

func (w *world) row(m *modelTable) storage.Row {
	s := m.tab.Spec().Schema
	row := make(storage.Row, len(s.Fields))
	for i, f := range s.Fields {
		row[i] = w.value(f)
	}
	return row
}

// key is the model's key of a row; rows without a key get a new one.
func (m *modelTable) key(row storage.Row) string {
	s := m.tab.Spec()
	if len(s.Key) == 0 {
		m.keyless++
		return fmt.Sprint("#", m.keyless)
	}
	var b strings.Builder
	if s.PerPartition {
		for _, p := range s.Partition {
			v := row[s.Schema.Index(p)]
			if v == nil {
				v = nullPartition
			}
			fmt.Fprintf(&b, "%v|", v)
		}
	}
	for _, k := range s.Key {
		v := row[s.Schema.Index(k.Column)]
		if t, ok := v.(string); ok && k.Collation != "" {
			v = strings.ToLower(t)
		}
		fmt.Fprintf(&b, "%v|", v)
	}
	return b.String()
}

func text(row storage.Row) string {
	var b strings.Builder
	for _, v := range row {
		if d, ok := v.(decimal128.Num); ok {
			v = d.ToString(0)
		}
		fmt.Fprintf(&b, "%T %v;", v, v)
	}
	return b.String()
}

func texts(rows map[string]storage.Row) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, text(r))
	}
	sort.Strings(out)
	return out
}

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

// uniqueTaken finds another row with the same value of the unique index.
func uniqueTaken(m *modelTable, rows map[string]storage.Row, row storage.Row, except ...string) bool {
	for _, x := range m.tab.Spec().Indexes {
		if !x.Unique {
			continue
		}
		i := m.tab.Spec().Schema.Index(x.Columns[0].Column)
		if row[i] == nil {
			continue
		}
		for k, r := range rows {
			if r[i] == row[i] && !slices.Contains(except, k) {
				return true
			}
		}
	}
	return false
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

func pick(r *rand.Rand, rows map[string]storage.Row) (string, storage.Row, bool) {
	if len(rows) == 0 {
		return "", nil, false
	}
	keys := slices.Sorted(maps.Keys(rows))
	k := keys[r.IntN(len(keys))]
	return k, rows[k], true
}

// step makes one random write.
func (w *world) step(x *modelTx) {
	w.stepOn(x, w.tables[w.r.IntN(len(w.tables))])
}

func (w *world) stepOn(x *modelTx, m *modelTable) {
	ctx := context.Background()
	rows := x.state[m]
	spec := m.tab.Spec()
	event := spec.Ordering == storage.EventTime
	if w.r.IntN(5) == 0 && !x.paired { // large statements lock their rows at the commit, which may have to wait then
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
			}
		case 2:
			m := w.tables[w.r.IntN(len(w.tables))]
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
	w.commit(x)
}

// stepLocked is step on rows that were read with locks.
func (w *world) stepLocked(x *modelTx) {
	m := w.tables[w.r.IntN(len(w.tables))]
	w.compareScan(m, x.state[m], x.tx.Scan(context.Background(), m.tab, ScanOptions{Lock: LockExclusive}), "for update")
	w.stepOn(x, m)
}

// remember notes the state of all tables at a time that no commit shares.
func (w *world) remember() {
	at := w.c.Clock().Now()
	for _, m := range w.tables {
		m.past = append(m.past, pastState{at, m.rows})
	}
}

func (w *world) compareScan(m *modelTable, want map[string]storage.Row, scan func(yield func(storage.Batch, error) bool), what string) {
	w.t.Helper()
	var got []string
	for b, err := range scan {
		require.NoError(w.t, err, "%s %s", m.name, what)
		for i := range b.Rows {
			got = append(got, text(b.Row(i, nil)))
		}
	}
	sort.Strings(got)
	if exp := texts(want); !slices.Equal(exp, got) {
		w.dump(m)
		require.Equal(w.t, strings.Join(exp, "\n"), strings.Join(got, "\n"), "%s %s", m.name, what)
	}
}

func (w *world) dump(m *modelTable) {
	log := w.log
	if len(log) > 60 {
		log = log[len(log)-60:]
	}
	for _, l := range log {
		if strings.Contains(l, m.name) || !strings.Contains(l, "table") {
			w.t.Log(l)
		}
	}
}

// compare checks every table: scan, single rows, ranges of each index, and the past.
func (w *world) compare() {
	ctx := context.Background()
	t := w.t
	tx, err := w.c.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	for _, m := range w.tables {
		spec := m.tab.Spec()
		w.compareScan(m, m.rows, tx.Scan(ctx, m.tab, ScanOptions{}), "now")
		require.EqualValues(t, len(m.rows), m.tab.RowCount(), "row count of %s", m.name)
		if len(spec.Key) > 0 && !spec.PerPartition {
			for range 10 {
				row := w.row(m)
				key := make(storage.Row, len(spec.Key))
				for i, k := range spec.Key {
					key[i] = row[spec.Schema.Index(k.Column)]
				}
				want, exists := m.rows[m.key(row)]
				got, ok, err := tx.Get(ctx, m.tab, key)
				require.NoError(t, err)
				require.Equal(t, exists, ok, "%s: key %v", m.name, key)
				if ok {
					require.Equal(t, text(want), text(got))
				}
			}
		}
		names := []string{""}
		for _, x := range spec.Indexes {
			names = append(names, x.Name)
		}
		for _, name := range names {
			w.compareRange(tx, m, name)
		}
		for range 5 {
			if len(m.past) == 0 {
				break
			}
			p := m.past[w.r.IntN(len(m.past))]
			s, err := w.c.AsOf(ctx, AsOf{Time: p.at})
			require.NoError(t, err)
			w.compareScan(m, p.rows, s.Scan(ctx, m.tab, ScanOptions{}), "as of "+p.at.String())
			s.Close()
		}
	}
}

func (w *world) compareRange(tx *Tx, m *modelTable, name string) {
	ctx := context.Background()
	spec := m.tab.Spec()
	cols := spec.Key
	if name != "" {
		x, _ := spec.Index(name)
		cols = x.Columns
	}
	if len(cols) == 0 {
		return
	}
	d := m.tab.def.Load()
	keyCols, err := w.c.keyColumns(spec.Schema, cols)
	require.NoError(w.t, err)
	n := 1 + w.r.IntN(len(cols))
	val := func() storage.Row {
		row := w.row(m)
		if _, r, ok := pick(w.r, m.rows); ok && w.r.IntN(2) == 0 {
			row = r
		}
		out := make(storage.Row, n)
		for i := range out {
			out[i] = row[keyCols[i].Field]
		}
		return out
	}
	enc := func(row storage.Row) []byte {
		var b []byte
		for i, v := range row {
			b, err = keyCols[i].Append(b, v)
			require.NoError(w.t, err)
		}
		return b
	}
	r := KeyRange{Low: val(), High: val(), LowOpen: w.r.IntN(3) == 0, HighOpen: w.r.IntN(3) == 0}
	if bytes.Compare(enc(r.Low), enc(r.High)) > 0 {
		r.Low, r.High = r.High, r.Low
	}
	switch w.r.IntN(5) {
	case 0:
		r.Low = nil
	case 1:
		r.High = nil
	case 2:
		r.High, r.LowOpen, r.HighOpen = r.Low, false, false
	}
	in := func(row storage.Row) bool {
		var b []byte
		for i := range n {
			b, err = keyCols[i].Append(b, row[keyCols[i].Field])
			require.NoError(w.t, err)
		}
		if r.Low != nil {
			if c := bytes.Compare(b, enc(r.Low)); c < 0 || c == 0 && r.LowOpen {
				return false
			}
		}
		if r.High != nil {
			if c := bytes.Compare(b, enc(r.High)); c > 0 || c == 0 && r.HighOpen {
				return false
			}
		}
		return true
	}
	want := map[string]storage.Row{}
	for k, row := range m.rows {
		if in(row) {
			want[k] = row
		}
	}
	var got []string
	for b, err := range tx.Lookup(ctx, m.tab, name, []KeyRange{r}, ScanOptions{}) {
		require.NoError(w.t, err)
		for i := range b.Rows {
			if row := b.Row(i, nil); in(row) {
				got = append(got, text(row))
			}
		}
	}
	sort.Strings(got)
	require.Equal(w.t, strings.Join(texts(want), "\n"), strings.Join(got, "\n"), "range %v of index %q of %s", r, name, d)
}

func (w *world) reopen() {
	w.log = append(w.log, "reopen")
	require.NoError(w.t, w.c.Close(context.Background()))
	w.c = testOpen(w.t, w.fs, w.o)
	w.find()
}

// find takes the tables of an opened warehouse.
func (w *world) find() {
	for _, m := range w.tables {
		tab, ok := w.c.Table("d", m.name)
		require.True(w.t, ok, m.name)
		m.tab = tab
	}
}

// truncate and alter change one table and its model.
func (w *world) truncate() {
	m := w.tables[w.r.IntN(len(w.tables))]
	w.log = append(w.log, "truncate "+m.name)
	n, err := w.c.TruncateTable(context.Background(), m.tab)
	require.NoError(w.t, err)
	require.EqualValues(w.t, len(m.rows), n)
	m.rows = map[string]storage.Row{}
}

func (w *world) alter() {
	ctx := context.Background()
	m := w.tables[w.r.IntN(len(w.tables))]
	spec := *m.tab.Spec()
	s := *spec.Schema
	spec.Schema = &s
	s.Fields = slices.Clone(s.Fields)
	columns := make([]int, len(s.Fields))
	for i := range columns {
		columns[i] = i
	}
	var convert func(storage.Row) (storage.Row, error)
	switch n := w.r.IntN(5); {
	case n < 2: // a new column, with or without a value for the rows that are there
		m.grown++
		at := 4 + w.r.IntN(len(s.Fields)-3)
		s.Fields = slices.Insert(s.Fields, at, storage.Field{Name: fmt.Sprint("c", m.grown), Type: storage.Type{Kind: storage.Int32}, Nullable: true})
		columns = slices.Insert(columns, at, -1)
		var v any
		if n == 1 {
			v = int32(7)
			convert = func(old storage.Row) (storage.Row, error) { return slices.Insert(slices.Clone(old), at, v), nil }
		}
		widen := func(rows map[string]storage.Row, v any) map[string]storage.Row {
			out := map[string]storage.Row{}
			for k, r := range rows {
				out[k] = slices.Insert(slices.Clone(r), at, v)
			}
			return out
		}
		defer func() {
			m.rows = widen(m.rows, v)
		}()
	case n == 2: // a column goes
		at := s.Index("flag")
		if at < 0 || slices.Contains(spec.Partition, "flag") {
			return
		}
		s.Fields = slices.Delete(s.Fields, at, at+1)
		columns = slices.Delete(columns, at, at+1)
		defer m.each(func(r storage.Row) storage.Row { return slices.Delete(slices.Clone(r), at, at+1) })
	case n == 3: // a column gets a wider type
		at := s.Index("id")
		if s.Fields[at].Type.Kind != storage.Int32 {
			return
		}
		for _, f := range s.Fields {
			if strings.HasPrefix(f.Name, "c") && f.Name != "code" {
				at = s.Index(f.Name)
			}
		}
		if s.Fields[at].Name == "id" || s.Fields[at].Type.Kind != storage.Int32 {
			return
		}
		s.Fields[at].Type.Kind = storage.Int64
		defer m.each(func(r storage.Row) storage.Row {
			r = slices.Clone(r)
			if v, ok := r[at].(int32); ok {
				r[at] = int64(v)
			}
			return r
		})
	case n == 4: // a column gets another type: what was before is read as it was
		at := s.Index("raw")
		if s.Fields[at].Type.Kind != storage.Bytes {
			return
		}
		s.Fields[at].Type.Kind = storage.Int32
		convert = func(old storage.Row) (storage.Row, error) {
			r := slices.Clone(old)
			if b, ok := r[at].([]byte); ok {
				r[at] = int32(len(b))
			}
			return r, nil
		}
		defer func() {
			m.each(func(r storage.Row) storage.Row { r, _ = convert(r); return r })
		}()
	}
	err := w.c.AlterTable(ctx, m.tab, spec, columns, convert)
	w.log = append(w.log, fmt.Sprintf("alter %s %v -> %v", m.name, fieldNames(&s), err))
	require.NoError(w.t, err)
}

func (m *modelTable) each(f func(storage.Row) storage.Row) {
	all := func(rows map[string]storage.Row) map[string]storage.Row {
		out := map[string]storage.Row{}
		for k, r := range rows {
			out[k] = f(r)
		}
		return out
	}
	m.rows = all(m.rows)
}

// D2, D3, D8, D12: random transactions over tables of every form, with flushes, restarts, changes of definitions and conflicts,
// leave what a model in memory says, now and as of every time in the past.
func TestModel(t *testing.T) {
	seeds := envInt("SEEDS", 6)
	first := envInt("SEED", 1)
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { runModel(t, uint64(seed), envInt("STEPS", 300)) })
	}
}

func runModel(t *testing.T, seed uint64, steps int) {
	ctx := context.Background()
	if seed%3 == 0 { // what large statements keep in memory goes to files of its own at once
		smallMemory(t)
	}
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewMem(), o: Options{SortKey: foldKey}}
	if seed%2 == 0 { // what changes more than a few rows of a table goes into files at its commit
		w.o.StageRows = 2
	}
	w.c = testOpen(t, w.fs, w.o)
	require.NoError(t, w.c.CreateDatabase(ctx, "d", nil))
	for i, s := range modelSpecs(w.r) {
		m := &modelTable{name: fmt.Sprint("table", i), rows: map[string]storage.Row{}}
		var err error
		m.tab, err = w.c.CreateTable(ctx, "d", m.name, s)
		require.NoError(t, err)
		w.tables = append(w.tables, m)
	}
	w.remember()
	defer func() {
		if t.Failed() {
			for _, m := range w.tables {
				s := m.tab.Spec()
				t.Logf("%s: mor %v key %v partition %v hive %v per partition %v event %v indexes %v", m.name, s.MergeOnRead, s.Key, s.Partition, s.HiveStyle, s.PerPartition, s.Ordering, s.Indexes)
			}
		}
		require.NoError(t, w.c.Close(ctx))
	}()
	for n := 1; n <= steps; n++ {
		switch w.r.IntN(14) {
		default:
			x := w.begin()
			w.run(x, 1+w.r.IntN(6))
			if w.r.IntN(6) == 0 {
				x.tx.Rollback()
				w.log = append(append(w.log, x.events...), "rolled back")
			} else {
				w.commit(x)
			}
		case 0, 1: // two at a time
			a, b := w.begin(), w.begin()
			a.paired, b.paired = true, true
			w.run(a, 1+w.r.IntN(4))
			b.beside = a
			w.run(b, 1+w.r.IntN(4))
			w.commit(a)
			if w.r.IntN(3) == 0 {
				w.flush()
			}
			w.commit(b, a)
		case 6:
			w.late()
		case 2:
			w.flush()
		case 3:
			if w.r.IntN(6) == 0 {
				w.reopen()
			}
		case 4:
			if w.r.IntN(8) == 0 {
				w.truncate()
			}
		case 5:
			if w.r.IntN(4) == 0 {
				w.alter()
			}
		}
		w.remember()
		if n%50 == 0 {
			w.compare()
		}
	}
	w.check()
}

// check demands that Check finds nothing, before and after a flush.
func (w *world) check() {
	for range 2 {
		for _, m := range w.tables {
			for p, err := range w.c.Check(context.Background(), m.tab, CheckExtended, nil) {
				require.NoError(w.t, err)
				if p.Severity == Damage {
					w.dump(m)
				}
				require.Equal(w.t, Note, p.Severity, "%s: %s", m.name, p)
				w.t.Log(p)
			}
		}
		require.NoError(w.t, w.c.Flush(context.Background(), "test"))
	}
}

func (w *world) flush() {
	var some []*Table
	if w.r.IntN(2) == 0 {
		some = append(some, w.tables[w.r.IntN(len(w.tables))].tab)
	}
	w.log = append(w.log, fmt.Sprint("flush ", some))
	require.NoError(w.t, w.c.Flush(context.Background(), "test", some...))
}
