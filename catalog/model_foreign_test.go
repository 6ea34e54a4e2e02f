package catalog

import (
	"context"
	"maps"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// foreign has another engine write an instant to a table: rows, or a compaction or a clustering of what there is.
func (w *world) foreign() {
	ctx := context.Background()
	m := w.any()
	o := &otherWriter{w.t, w.c, m.tab}
	spec, d := m.tab.Spec(), m.tab.def.Load()
	if len(spec.Key) == 0 || spec.PerPartition || w.r.IntN(3) == 0 {
		cluster := w.r.IntN(2) == 0 || !spec.MergeOnRead
		if _, list := o.slices(); len(list) == 0 {
			return
		}
		w.note("another engine rewrites %s, cluster %v", m.name, cluster)
		w.count("foreign rewrite")
		o.rewrite(cluster)
		require.NoError(w.t, m.tab.adopt(ctx))
		return
	}
	// Who wins against rows that wait is TestForeignRule's.
	w.note("flush %s", m.name)
	require.NoError(w.t, w.c.Flush(ctx, "test", m.tab))
	next := maps.Clone(m.rows)
	puts := map[string]storage.Row{}
	var dels []string
	for range 1 + w.r.IntN(5) {
		row := w.row(m)
		var old storage.Row
		key, known, ok := pick(w.r, m.rows)
		switch {
		case ok && w.r.IntN(3) == 0: // a row goes
			if _, put := puts[d.recordKey(known)]; !put {
				dels = append(dels, d.recordKey(known))
				delete(next, key)
			}
			continue
		case ok && w.r.IntN(2) == 0: // a row changes
			old = known
			for _, k := range spec.Key {
				i := spec.Schema.Index(k.Column)
				row[i] = old[i]
			}
			for _, p := range spec.Partition { // Spark's upserts stay in the partition, unless its index is a global one
				i := spec.Schema.Index(p)
				row[i] = old[i]
			}
		default:
			key = m.key(row)
			if m.rows[key] != nil {
				continue
			}
		}
		if next[key] == nil && old != nil || puts[d.recordKey(row)] != nil || next[key] != nil && old == nil || uniqueTaken(m, next, row, key) || d.checkPath(row) != nil {
			continue
		}
		puts[d.recordKey(row)] = row
		if old == nil || d.merge != storage.EventTime || compareOrdering(row[d.ordering], old[d.ordering]) >= 0 {
			next[key] = row
		}
	}
	if len(puts)+len(dels) == 0 {
		return
	}
	for _, k := range sortedKeys(puts) {
		w.note("another engine puts %s %s", m.name, text(puts[k]))
	}
	w.note("another engine deletes %v of %s", dels, m.name)
	w.count("foreign write")
	o.write(puts, dels)
	require.NoError(w.t, m.tab.adopt(ctx))
	m.rows = next
}
