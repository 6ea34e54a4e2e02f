package catalog

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

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
		if n := m.tab.RowCount(); n != int64(len(m.rows)) {
			w.dump(m)
			require.EqualValues(t, len(m.rows), n, "row count of %s", m.name)
		}
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

// check demands that Check finds nothing, before and after a flush.
func (w *world) check() {
	for range 2 {
		for _, m := range w.tables {
			for p, err := range w.c.Check(context.Background(), m.tab, CheckExtended, nil) {
				require.NoError(w.t, err)
				if p.Severity != Note {
					w.dump(m)
				}
				require.Equal(w.t, Note, p.Severity, "%s: %s", m.name, p)
				w.t.Log(p)
			}
		}
		require.NoError(w.t, w.c.Flush(context.Background(), "test"))
	}
}
