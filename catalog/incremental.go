package catalog

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// CleanedError says that an incremental read needs files or instants that are not there any more.
type CleanedError struct {
	Table string
	What  string
}

func (e *CleanedError) Error() string {
	return fmt.Sprintf("catalog: changes of %s cannot be read: %s", e.Table, e.What)
}

// Changed gives the rows of a table that instants in a range wrote, their newest versions at the end of the range; rows that were deleted
// are not among them. As in Hudi, only what the range wrote is merged: a version shows that lost against one from before the range. It
// reads completed instants alone, after a flush of what waits; what a transaction has not committed is not seen. The bounds are instant
// times in tables of version 6 and completion times in those of versions 8 and 9, the first excluded. Where files of the range were
// cleaned, versions 8 and 9 give the rows of now that its instants wrote, as Hudi does; version 6 fails with *CleanedError.
func (tx *Tx) Changed(ctx context.Context, t *Table, r timeline.Range, columns []string) iter.Seq2[storage.Batch, error] {
	if err := tx.settleMeta(ctx, t); err != nil {
		return failed(err)
	}
	tt, err := tx.table(ctx, t)
	if err != nil {
		return failed(err)
	}
	v, err := tx.plainView(tt, ScanOptions{})
	if err != nil {
		return failed(err)
	}
	want, err := v.def.wanted(columns)
	if err != nil {
		return failed(err)
	}
	if r.From < "1" { // "0", "000": the beginning
		r.From = ""
	}
	p, err := v.changes(ctx, r)
	if err != nil {
		return failed(err)
	}
	at := want.Index(storage.ColCommitTime)
	all := want
	if at < 0 {
		at = len(want.Fields)
		all = &storage.Schema{Name: want.Name, Namespace: want.Namespace, Fields: slices.Concat(want.Fields, []storage.Field{{Name: storage.ColCommitTime, Type: storage.Type{Kind: storage.String}, Nullable: true}})}
	}
	st := &scanState{s: v.s, tt: v, want: all, slices: p.slices, counts: p.counts, within: p.within}
	return v.s.held(ctx, func(yield func(storage.Batch, error) bool) {
		for b, err := range st.run(ctx) {
			if err == nil {
				b, err = p.filter(b, at, want)
			}
			if err == nil && b.Rows == 0 {
				continue
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	})
}

// changePlan is how the rows that changed in a range are found.
type changePlan struct {
	slices []storage.FileSlice
	counts func(storage.InstantTime) bool
	within func(storage.InstantTime) bool // nil: rows are picked when all is merged
	times  map[string]bool                // instants that wrote rows
}

// filter leaves the rows of the instants; the column at holds their times.
func (p *changePlan) filter(b storage.Batch, at int, want *storage.Schema) (storage.Batch, error) {
	times, ok := b.Columns[at].(*array.String)
	if !ok {
		return b, fmt.Errorf("%w: rows without %s", storage.ErrUnsupported, storage.ColCommitTime)
	}
	rows := make([]int32, 0, b.Rows)
	for i := range b.Rows {
		if !times.IsNull(i) && p.times[times.Value(i)] {
			rows = append(rows, int32(i))
		}
	}
	b.Schema, b.Columns = want, b.Columns[:len(want.Fields)]
	if len(rows) < b.Rows {
		b = b.Take(rows)
	}
	return b, nil
}

// changes plans the read of a range.
func (v *tableView) changes(ctx context.Context, r timeline.Range) (*changePlan, error) {
	c, d, tl := v.t.c, v.def, v.cold.tl
	list, archived, gone, err := tl.Between(ctx, c.store, d.dir, r)
	if err != nil {
		return nil, fmt.Errorf("changes of %s: %w", d, err)
	}
	p := &changePlan{counts: tl.CountsAt(r.To), times: map[string]bool{}}
	files := map[groupKey][]storage.FileName{} // that instants of the range wrote
	for _, in := range list {
		p.times[string(in.Time)] = true
		m, err := timeline.ReadCommit(ctx, c.store, d.dir, in)
		if err != nil {
			return nil, fmt.Errorf("changes of %s: %w", d, err)
		}
		for part, stats := range m.Stats {
			for i := range stats {
				if name, ok := storage.ParseFileName(stats[i].FileName()); ok && !name.CDC {
					k := groupKey{part, name.ID}
					files[k] = append(files[k], name)
				}
			}
		}
	}
	fallsBack := tl.Layout() == timeline.Layout2
	lost := ""
	switch {
	case gone && fallsBack:
		lost = "its first instants were archived"
	case gone && r.From != "":
		return nil, &CleanedError{d.String(), fmt.Sprintf("instants after %s were archived", r.From)}
	default:
		lost = v.missing(files)
	}
	switch {
	case lost == "":
		p.within = func(it storage.InstantTime) bool { return p.times[string(it)] }
		for _, fs := range v.cold.view.Slices("", p.counts) {
			if _, ok := files[groupKey{fs.Partition, fs.ID}]; ok {
				p.slices = append(p.slices, fs)
			}
		}
	case fallsBack:
		p.slices, p.counts = v.cold.newest(), v.cold.counts
		for _, it := range archived {
			p.times[string(it)] = true
		}
	default:
		return nil, &CleanedError{d.String(), lost}
	}
	return p, nil
}

// missing names a file that is needed for the slices at the end of a range, and is not there; "" if all are. files are those that the range
// wrote, by group, in order.
func (v *tableView) missing(files map[groupKey][]storage.FileName) string {
	have := map[groupKey]map[string]bool{}
	for part, f := range v.cold.view.Files() {
		k := groupKey{part, f.ID}
		if files[k] == nil {
			continue
		}
		if have[k] == nil {
			have[k] = map[string]bool{}
		}
		have[k][f.Name] = true
	}
	for k, list := range files {
		last := -1 // the newest base file
		for i, f := range list {
			if f.Version == 0 {
				last = i
			}
		}
		for i, f := range list {
			// Logs that a newer base file holds are not needed; in layout 1 their names say so, in layout 2 their place.
			old := last >= 0 && i < last && (f.Version == 0 || v.cold.tl.Layout() == timeline.Layout2 || f.Instant < list[last].Instant)
			if !old && !have[k][f.Name] {
				return fmt.Sprintf("file %s is gone", join(k.partition, f.Name))
			}
		}
	}
	return ""
}
