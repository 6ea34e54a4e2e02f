package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// create makes a table.
func (w *world) create(spec TableSpec) *modelTable {
	m := &modelTable{name: fmt.Sprint("table", w.made), rows: map[string]storage.Row{}}
	w.made++
	w.note("create %s", m.name)
	w.count("create")
	var err error
	m.tab, err = w.c.CreateTable(context.Background(), "d", m.name, spec)
	require.NoError(w.t, err)
	w.tables = append(w.tables, m)
	return m
}

// createSelect makes a table with the rows of another one.
func (w *world) createSelect(from *modelTable) {
	ctx := context.Background()
	m := &modelTable{name: fmt.Sprint("table", w.made), rows: maps.Clone(from.rows), keyless: from.keyless, grown: from.grown}
	w.made++
	w.note("create %s as select from %s", m.name, from.name)
	w.count("create select")
	spec := *from.tab.Spec()
	var err error
	m.tab, err = w.c.CreateDraft(ctx, "d", m.name, spec)
	require.NoError(w.t, err)
	require.NoError(w.t, w.c.KeepDraft(m.tab))
	tx, err := w.c.Begin(ctx)
	require.NoError(w.t, err)
	defer tx.Rollback()
	if w.r.IntN(2) == 0 {
		b, err := tx.BulkInsert(ctx, m.tab, DuplicateFail)
		require.NoError(w.t, err)
		rows := storage.NewBuilder(spec.Schema)
		for _, k := range sortedKeys(m.rows) {
			require.NoError(w.t, rows.Append(m.rows[k]))
		}
		require.NoError(w.t, b.Append(rows.Batch()))
		_, err = b.Finish()
		require.NoError(w.t, err)
	} else {
		for _, k := range sortedKeys(m.rows) {
			require.NoError(w.t, tx.Insert(ctx, m.tab, m.rows[k]))
		}
	}
	require.NoError(w.t, tx.Commit(ctx))
	_, ok := w.c.Table("d", m.name)
	require.False(w.t, ok)
	switch w.r.IntN(4) {
	case 0:
		w.note("it fails")
		w.c.DropDraft(ctx, m.tab)
		return
	case 1:
		w.note("it is cut short")
		w.crash()
		return
	}
	require.NoError(w.t, w.c.Change(ctx, Change{Tables: []TableChange{{Table: m.tab}}}))
	w.tables = append(w.tables, m)
}

// truncate empties a table.
func (w *world) truncate() {
	m := w.any()
	w.note("truncate %s", m.name)
	w.count("truncate")
	n, err := w.c.TruncateTable(context.Background(), m.tab)
	require.NoError(w.t, err)
	require.EqualValues(w.t, len(m.rows), n)
	m.rows = map[string]storage.Row{}
}

// overScan has a scan of the present go on over something.
func (w *world) overScan(f func()) {
	if w.r.IntN(3) > 0 {
		f()
		return
	}
	ctx := context.Background()
	w.count("open scan")
	s, err := w.c.AsOf(ctx, AsOf{Time: w.c.Clock().Now()})
	require.NoError(w.t, err)
	c := w.c
	type open struct {
		m    *modelTable
		rows map[string]storage.Row
		next func() (storage.Batch, error, bool)
		stop func()
		got  []storage.Batch
	}
	var scans []*open
	for _, m := range w.tables {
		o := &open{m: m, rows: m.rows}
		o.next, o.stop = iter.Pull2(s.Scan(ctx, m.tab, ScanOptions{}))
		defer o.stop()
		if b, err, ok := o.next(); ok {
			require.NoError(w.t, err)
			o.got = append(o.got, b)
		}
		scans = append(scans, o)
	}
	s.Close()
	f()
	if w.c != c {
		return // it was closed
	}
	for _, o := range scans {
		w.compareScan(o.m, o.rows, func(yield func(storage.Batch, error) bool) {
			for _, b := range o.got {
				if !yield(b, nil) {
					return
				}
			}
			for b, err, ok := o.next(); ok && yield(b, err); b, err, ok = o.next() {
			}
		}, "in a scan over a change of definitions")
	}
}

// tablesMax bounds the tables of the model.
const tablesMax = 9

// tablesStep makes, renames, drops or brings back tables.
func (w *world) tablesStep() {
	ctx := context.Background()
	m := w.any()
	name := func() string {
		w.made++
		return fmt.Sprint("table", w.made-1)
	}
	switch w.r.IntN(7) {
	case 0:
		if len(w.tables) < tablesMax {
			if specs := modelSpecs(w.r); w.r.IntN(2) == 0 {
				w.create(specs[w.r.IntN(len(specs))])
			} else {
				w.count("create like")
				w.create(*m.tab.Spec()).grown = m.grown
			}
		}
	case 1:
		if len(w.tables) < tablesMax {
			w.createSelect(m)
		}
	case 2: // several names, one after the other
		w.count("rename")
		var ch Change
		for _, i := range w.r.Perm(len(w.tables))[:1+w.r.IntN(3)] {
			m := w.tables[i]
			to := name()
			w.note("rename %s to %s", m.name, to)
			ch.Tables = append(ch.Tables, TableChange{Table: m.tab, Name: to})
			m.name = to
		}
		require.NoError(w.t, w.c.Change(ctx, ch))
	case 3: // in a circle
		w.count("swap")
		some := w.r.Perm(len(w.tables))[:2+w.r.IntN(2)]
		names := make([]string, len(some))
		var ch Change
		for i := range some {
			names[i] = w.tables[some[(i+1)%len(some)]].name
			ch.Tables = append(ch.Tables, TableChange{Table: w.tables[some[i]].tab, Name: names[i]})
		}
		for i, n := range some {
			w.note("rename %s to %s", w.tables[n].name, names[i])
			w.tables[n].name = names[i]
		}
		require.NoError(w.t, w.c.Change(ctx, ch))
	case 4:
		if len(w.tables) < 4 {
			return
		}
		w.count("drop")
		ch := Change{Tables: []TableChange{{Table: m.tab, Drop: true}}}
		w.note("drop %s", m.name)
		w.tables = slices.DeleteFunc(w.tables, func(o *modelTable) bool { return o == m })
		w.dropped = append(w.dropped, m)
		if w.r.IntN(2) == 0 { // another one takes its name
			o := w.any()
			w.note("rename %s to %s", o.name, m.name)
			ch.Tables = append(ch.Tables, TableChange{Table: o.tab, Name: m.name})
			o.name = m.name
		}
		require.NoError(w.t, w.c.Change(ctx, ch))
	case 5:
		w.undrop(name)
	case 6:
		if w.r.IntN(3) > 0 {
			return
		}
		w.count("drop database")
		w.note("drop and undrop the database")
		tables := w.tables
		w.tables = nil
		require.NoError(w.t, w.c.DropDatabase(ctx, "d"))
		if w.r.IntN(3) == 0 {
			w.crash()
		}
		require.NoError(w.t, w.c.UndropDatabase(ctx, "d"))
		w.tables = tables
		w.find()
	}
}

func (w *world) undrop(name func() string) {
	if len(w.dropped) == 0 || len(w.tables) >= tablesMax {
		return
	}
	w.count("undrop")
	ctx := context.Background()
	m := w.dropped[len(w.dropped)-1]
	w.dropped = w.dropped[:len(w.dropped)-1]
	as := ""
	if _, taken := w.c.Table("d", m.name); taken {
		_, err := w.c.Undrop(ctx, "d", m.name, "")
		require.ErrorIs(w.t, err, ErrExists)
		as = name()
	}
	w.note("undrop %s as %s", m.name, as)
	var err error
	m.tab, err = w.c.Undrop(ctx, "d", m.name, as)
	require.NoError(w.t, err)
	if as != "" {
		m.name = as
	}
	w.tables = append(w.tables, m)
}

// altering is a change of a table's definition on its way: several edits, with what they do to the rows.
type altering struct {
	w        *world
	m        *modelTable
	spec     TableSpec
	columns  []int                                    // old position of each column
	steps    []func(storage.Row) (storage.Row, error) // from the old row to the new one
	converts bool                                     // values change
	what     []string
}

var errModelNull = errors.New("a NULL where none may be")

func (w *world) altering(m *modelTable) *altering {
	a := &altering{w: w, m: m, spec: *m.tab.Spec()}
	s := *a.spec.Schema
	s.Fields = slices.Clone(s.Fields)
	a.spec.Schema = &s
	a.spec.Indexes = slices.Clone(a.spec.Indexes)
	a.columns = identity(len(s.Fields))
	return a
}

func (a *altering) note(f string, v ...any) { a.what = append(a.what, fmt.Sprintf(f, v...)) }

// row takes a row through the edits.
func (a *altering) row(r storage.Row) (storage.Row, error) {
	r = slices.Clone(r)
	var err error
	for _, f := range a.steps {
		if r, err = f(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// used tells whether key, partition path or ordering need a column.
func (a *altering) used(name string) bool {
	return slices.ContainsFunc(a.spec.Key, func(k KeyColumn) bool { return k.Column == name }) || slices.Contains(a.spec.Partition, name) || a.spec.OrderingField == name
}

// free picks a column that none of them needs, of one of the kinds; -1: there is none.
func (a *altering) free(kinds ...storage.Kind) int {
	var at []int
	for i, f := range a.spec.Schema.Fields {
		if i > 3 && !a.used(f.Name) && (len(kinds) == 0 || slices.Contains(kinds, f.Type.Kind)) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return -1
	}
	return at[a.w.r.IntN(len(at))]
}

func (a *altering) insert(at int, f storage.Field, v any, convert bool) {
	a.spec.Schema.Fields = slices.Insert(a.spec.Schema.Fields, at, f)
	a.columns = slices.Insert(a.columns, at, -1)
	a.converts = a.converts || convert
	a.steps = append(a.steps, func(r storage.Row) (storage.Row, error) { return slices.Insert(r, at, v), nil })
}

// convert gives the values of a column another form.
func (a *altering) convert(at int, f func(v any) (any, error)) {
	a.converts = true
	a.steps = append(a.steps, func(r storage.Row) (storage.Row, error) {
		v, err := f(r[at])
		r[at] = v
		return r, err
	})
}

// indexed gives the indexes without a column, and tells whether one has it.
func (a *altering) indexed(name string) (without []IndexSpec, has bool) {
	for _, x := range a.spec.Indexes {
		n := len(x.Columns)
		x.Columns = slices.DeleteFunc(slices.Clone(x.Columns), func(k KeyColumn) bool { return k.Column == name })
		has = has || len(x.Columns) < n
		if len(x.Columns) > 0 {
			without = append(without, x)
		}
	}
	return without, has
}

// edits are what an alteration is made of.
var edits = []func(a *altering){
	func(a *altering) { // a new column
		a.m.grown++
		at := 4 + a.w.r.IntN(len(a.spec.Schema.Fields)-3)
		f := storage.Field{Name: fmt.Sprint("c", a.m.grown), Type: storage.Type{Kind: storage.Int32}, Nullable: true}
		for _, name := range []string{"n", "raw", "flag"} { // one that was there before: it has none of its old values
			if a.spec.Schema.Index(name) < 0 && a.w.r.IntN(2) == 0 {
				f.Name = name
			}
		}
		a.note("add %s", f.Name)
		if a.w.r.IntN(3) == 0 {
			a.insert(at, f, int32(7), true)
		} else {
			a.insert(at, f, nil, false)
		}
	},
	func(a *altering) { // a column goes
		at := a.free()
		if at < 0 || len(a.spec.Schema.Fields) < 8 {
			return
		}
		name := a.spec.Schema.Fields[at].Name
		a.note("drop %s", name)
		a.spec.Indexes, _ = a.indexed(name)
		a.spec.Schema.Fields = slices.Delete(a.spec.Schema.Fields, at, at+1)
		a.columns = slices.Delete(a.columns, at, at+1)
		a.steps = append(a.steps, func(r storage.Row) (storage.Row, error) { return slices.Delete(r, at, at+1), nil })
	},
	func(a *altering) { // a wider type
		at := a.free(storage.Int32)
		if i := a.spec.Schema.Index("id"); a.w.r.IntN(4) == 0 && a.spec.Schema.Fields[i].Type.Kind == storage.Int32 {
			at = i
		}
		if at < 0 {
			return
		}
		a.note("widen %s", a.spec.Schema.Fields[at].Name)
		a.spec.Schema.Fields[at].Type.Kind = storage.Int64
		a.steps = append(a.steps, func(r storage.Row) (storage.Row, error) {
			if v, ok := r[at].(int32); ok {
				r[at] = int64(v)
			}
			return r, nil
		})
	},
	func(a *altering) { // another type: what was before is read as it was
		at := a.free(storage.Bytes, storage.Float64, storage.Int64, storage.Bool)
		if at < 0 {
			return
		}
		f := &a.spec.Schema.Fields[at]
		if _, has := a.indexed(f.Name); has && f.Type.Kind != storage.Int64 {
			return
		}
		a.note("retype %s", f.Name)
		f.Type = storage.Type{Kind: storage.String}
		a.convert(at, func(v any) (any, error) {
			if v == nil {
				return nil, nil
			}
			return fmt.Sprint(v), nil
		})
	},
	func(a *altering) { // other values of the same type
		at := a.free(storage.String)
		if at < 0 {
			return
		}
		a.note("upper %s", a.spec.Schema.Fields[at].Name)
		a.convert(at, func(v any) (any, error) {
			if s, ok := v.(string); ok {
				return strings.ToUpper(s), nil
			}
			return v, nil
		})
	},
	func(a *altering) { // NOT NULL comes or goes
		at := a.free()
		if at < 0 {
			return
		}
		f := &a.spec.Schema.Fields[at]
		f.Nullable = !f.Nullable
		a.note("nullable %s %v", f.Name, f.Nullable)
		if f.Nullable {
			return
		}
		fill := a.w.r.IntN(2) == 0
		zero := a.w.value(*f)
		a.convert(at, func(v any) (any, error) {
			switch {
			case v == nil && fill:
				return zero, nil
			case v == nil:
				return nil, errModelNull
			}
			return v, nil
		})
	},
	func(a *altering) { // a column gets another name
		at := a.free()
		if at < 0 {
			return
		}
		a.m.grown++
		f := &a.spec.Schema.Fields[at]
		to := fmt.Sprint("r", a.m.grown)
		if f.Name == "at" {
			return // the model knows it by its name
		}
		a.note("rename %s to %s", f.Name, to)
		for i := range a.spec.Indexes {
			x := &a.spec.Indexes[i]
			x.Columns = slices.Clone(x.Columns)
			for j := range x.Columns {
				if x.Columns[j].Column == f.Name {
					x.Columns[j].Column = to
				}
			}
		}
		f.Name = to
	},
	func(a *altering) { // a column moves
		from, to := a.free(), 4+a.w.r.IntN(len(a.spec.Schema.Fields)-4)
		if from < 0 {
			return
		}
		s := a.spec.Schema
		f := s.Fields[from]
		a.note("move %s to %d", f.Name, to)
		s.Fields = slices.Insert(slices.Delete(s.Fields, from, from+1), to, f)
		n := a.columns[from]
		a.columns = slices.Insert(slices.Delete(a.columns, from, from+1), to, n)
		a.steps = append(a.steps, func(r storage.Row) (storage.Row, error) {
			v := r[from]
			return slices.Insert(slices.Delete(r, from, from+1), to, v), nil
		})
	},
	func(a *altering) { // an index
		at := a.free(storage.Int32, storage.Int64, storage.Date, storage.Timestamp)
		if at < 0 {
			return
		}
		a.m.grown++
		x := IndexSpec{Name: fmt.Sprint("x", a.m.grown), Columns: []KeyColumn{{Column: a.spec.Schema.Fields[at].Name}}, Unique: a.w.r.IntN(2) == 0 && len(a.spec.Key) > 0}
		a.note("index %v", x)
		a.spec.Indexes = append(a.spec.Indexes, x)
	},
	func(a *altering) { // an index goes
		if n := len(a.spec.Indexes); n > 0 {
			i := a.w.r.IntN(n)
			a.note("drop index %s", a.spec.Indexes[i].Name)
			a.spec.Indexes = slices.Delete(a.spec.Indexes, i, i+1)
		}
	},
	func(a *altering) { // another primary key
		if a.spec.PerPartition {
			return
		}
		a.spec.Key = [][]KeyColumn{{{Column: "id"}}, {{Column: "code", Collation: "ci"}}, {{Column: "code", Collation: "ci"}, {Column: "id"}}}[a.w.r.IntN(3)]
		a.note("key %v", a.spec.Key)
	},
}

// allEdits and plainEdits are how many of edits an alteration may be made of.
var allEdits, plainEdits = len(edits), 4

// alter changes the definition of a table in several ways at once, and maybe its name.
func (w *world) alter(kinds int) {
	m := w.any()
	a := w.altering(m)
	for range 1 + w.r.IntN(4) {
		edits[w.r.IntN(kinds)](a)
	}
	ch := Change{Tables: []TableChange{{Table: m.tab, Spec: &a.spec, Columns: a.columns}}}
	if a.converts {
		ch.Tables[0].Convert = a.row
	}
	name := m.name
	if kinds == allEdits && w.r.IntN(5) == 0 {
		name = fmt.Sprint("table", w.made)
		w.made++
		ch.Tables[0].Name = name
		a.note("rename to %s", name)
	}
	// The rows that it must come to, or why it cannot.
	next := &modelTable{rows: map[string]storage.Row{}, keyless: m.keyless}
	null, dup := false, false
	for _, k := range sortedKeys(m.rows) {
		r, err := a.row(m.rows[k])
		if err != nil {
			null = true
			continue
		}
		if len(a.spec.Key) > 0 {
			k = modelKey(&a.spec, r)
		}
		_, exists := next.rows[k]
		dup = dup || exists || uniqueTakenOf(&a.spec, next.rows, r)
		next.rows[k] = r
	}
	var other *modelTable
	if o := w.any(); kinds == allEdits && o != m && w.r.IntN(6) == 0 { // another table in the same statement: all or nothing
		other = o
		ch.Tables = append(ch.Tables, TableChange{Table: o.tab, Name: fmt.Sprint("table", w.made)})
		w.made++
	}
	err := w.c.Change(context.Background(), ch)
	w.note("alter %s: %v -> %v", m.name, a.what, err)
	var duplicate *DuplicateKeyError
	switch {
	case null && dup:
		require.True(w.t, errors.Is(err, errModelNull) || errors.As(err, &duplicate), "%v", err)
	case null:
		require.ErrorIs(w.t, err, errModelNull)
	case dup:
		require.ErrorAs(w.t, err, &duplicate)
	default:
		require.NoError(w.t, err)
		w.count("alter")
		m.rows, m.name = next.rows, name
		if other != nil {
			other.name = ch.Tables[1].Name
		}
		return
	}
	w.count("refused alter")
	tx, err := w.c.Begin(context.Background())
	require.NoError(w.t, err)
	defer tx.Rollback()
	w.compareScan(m, m.rows, tx.Scan(context.Background(), m.tab, ScanOptions{}), "after an alteration that was refused")
	_, ok := w.c.Table("d", m.name)
	require.True(w.t, ok)
}
