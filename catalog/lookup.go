package catalog

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// lookupMax is the number of rows from which a range is read by a scan: single rows cost a page each.
const lookupMax = 4096

// Lookup gives the rows whose key (index "") or secondary index lies in one of the ranges, and maybe others: the caller filters.
func (tx *Tx) Lookup(ctx context.Context, t *Table, name string, ranges []KeyRange, o ScanOptions) iter.Seq2[storage.Batch, error] {
	if asksMeta(o.Columns) {
		return tx.Scan(ctx, t, o)
	}
	tt, err := tx.table(ctx, t)
	if err != nil {
		return failed(err)
	}
	d := tt.def
	want, err := d.wanted(o.Columns)
	if err != nil {
		return failed(err)
	}
	cols := d.keyCols
	var x *tableIndex
	if name != "" {
		for i := range d.indexes {
			if d.indexes[i].spec.Name == name {
				x = &d.indexes[i]
			}
		}
		if x == nil {
			return failed(fmt.Errorf("%w: index %s of %s", ErrNotFound, name, d))
		}
		cols = x.cols
	} else if d.hidden() || d.spec.PerPartition || t.doubled.Load() {
		return tx.Scan(ctx, t, o) // the index is ordered by partition first, or by a key that is no column
	}
	var bounds []keyBounds
	for _, r := range ranges {
		b, err := index.RangeBounds(cols, r.Low, r.High, r.LowOpen, r.HighOpen)
		if err != nil {
			return failed(err)
		}
		point := x == nil && len(r.Low) == len(cols) && !r.LowOpen && !r.HighOpen && len(b.High) == len(b.Low)+1 && bytes.HasPrefix(b.High, b.Low)
		bounds = append(bounds, keyBounds{b, point, len(r.Low) == len(cols) && !slices.Contains(r.Low, any(nil))})
	}
	if o.Lock != LockNone {
		return tx.lockLookup(ctx, tt, x, want, bounds, o)
	}
	v, err := tx.plainView(tt, o)
	if err != nil {
		return failed(err)
	}
	keys, all, err := tx.keysWithin(tt, v, x, bounds)
	if err != nil {
		return failed(err)
	}
	if all {
		return tx.Scan(ctx, t, o)
	}
	return v.s.held(ctx, tx.rows(ctx, tt, v, want, keys, o))
}

// keyBounds are bounds of index keys.
type keyBounds struct {
	index.Bounds
	point bool // Low is a whole key, the only one within
	whole bool // Low has a value for each column
}

// keysWithin collects the index keys of rows whose values lie within the bounds; all: there are so many that a scan is cheaper.
func (tx *Tx) keysWithin(tt *txTable, v *tableView, x *tableIndex, bounds []keyBounds) (keys []string, all bool, err error) {
	seen := map[string]bool{}
	add := func(k []byte) bool {
		if !seen[string(k)] {
			seen[string(k)] = true
			keys = append(keys, string(k))
		}
		return len(keys) <= lookupMax
	}
	for _, b := range bounds {
		if b.Low != nil && b.High != nil && bytes.Compare(b.Low, b.High) >= 0 {
			continue
		}
		if b.point {
			if !add(b.Low) { // rows finds out whether there is such a key
				return nil, true, nil
			}
			continue
		}
		if !v.fresh {
			if x != nil {
				err = tx.c.index.Secondary(v.s.p, v.t.id, x.no, b.Bounds, add)
			} else {
				err = v.primaryWithin(b.Bounds, add)
			}
			if err != nil {
				return nil, false, err
			}
		}
		if err := tx.ownWithin(tt, x, b.Bounds, add); err != nil {
			return nil, false, err
		}
		if err := tx.stagedWithin(tt, x, b.Bounds, add); err != nil {
			return nil, false, err
		}
		if len(keys) > lookupMax {
			return nil, true, nil
		}
	}
	return keys, false, nil
}

func (v *tableView) primaryWithin(b index.Bounds, add func([]byte) bool) error {
	rec, err := v.s.c.index.Recents(v.s.p, v.t.id, b)
	if err != nil {
		return err
	}
	for ; rec.Valid(); rec.Next() {
		k, r, err := rec.Entry()
		if err != nil {
			rec.Close()
			return err
		}
		if r.Seq <= v.s.seq && !add(k) {
			break
		}
	}
	if err := rec.Close(); err != nil {
		return err
	}
	loc, err := v.s.c.index.Locations(v.s.p, v.t.id, b)
	if err != nil {
		return err
	}
	for ; loc.Valid(); loc.Next() {
		k, _, err := loc.Entry()
		if err != nil {
			loc.Close()
			return err
		}
		if !add(k) {
			break
		}
	}
	return loc.Close()
}

// spilledWithin is ownWithin for writes that do not wait in memory; done: it has enough.
func (tt *txTable) spilledWithin(x *tableIndex, b index.Bounds, add func([]byte) bool) (done bool, err error) {
	if tt.spilled == nil {
		return false, nil
	}
	if x == nil {
		err = tt.spilled.each(b, noMark, func(k string, _ *txEntry) (bool, error) {
			done = !add([]byte(k))
			return !done, nil
		})
		return done, err
	}
	err = tt.spilled.owners(x.no, b, func(k []byte) (bool, error) {
		done = !add(k)
		return !done, nil
	})
	return done, err
}

// rows gives the rows of index keys: those of the transaction and of the hot tier one by one, those of files slice by slice.
func (tx *Tx) rows(ctx context.Context, tt *txTable, v *tableView, want *storage.Schema, keys []string, o ScanOptions) iter.Seq2[storage.Batch, error] {
	return func(yield func(storage.Batch, error) bool) {
		out := rowSink{def: tt.def, want: want, b: storage.NewBuilder(want), yield: yield}
		type place struct {
			group uint32
			loc   index.Location
		}
		var cold []place
		sort.Strings(keys)
		tx.mu.Lock()
		own := map[string]*txEntry{}
		var err error
		for _, k := range keys {
			var e *txEntry
			if e, err = tt.ownBefore(k, o); err != nil {
				break
			}
			if e != nil {
				own[k] = e
			}
		}
		tx.mu.Unlock()
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		var finder *index.RecentFinder
		defer func() {
			if finder != nil {
				_ = finder.Close()
			}
		}()
		runs, err := tx.visible(ctx, tt, o)
		if err != nil {
			yield(storage.Batch{}, err)
			return
		}
		staged := map[*stagedFile][]stagedPlace{}
		if !v.fresh && v.mayBeHot() {
			if finder, err = tx.c.index.FindRecents(v.s.p, v.t.id); err != nil {
				yield(storage.Batch{}, err)
				return
			}
		}
		for _, k := range keys {
			if e := own[k]; e != nil {
				if !e.del() && !out.addPacket(e.decoded()) {
					return
				}
				continue
			}
			if at, ok, err := findStaged(runs, []byte(k)); err != nil {
				yield(storage.Batch{}, err)
				return
			} else if ok {
				staged[at.file] = append(staged[at.file], at)
				continue
			}
			if v.fresh {
				continue
			}
			var st keyState
			if err := v.s.find(v, finder, []byte(k), &st); err != nil {
				yield(storage.Batch{}, err)
				return
			}
			if st.packet != nil && tt.def.merge == storage.EventTime { // something newer may have been adopted
				row, key, part, ok, err := v.s.get(ctx, v, []byte(k))
				if err != nil {
					yield(storage.Batch{}, err)
					return
				}
				if ok && !out.add(row, key, part) {
					return
				}
				continue
			}
			switch {
			case !st.exists:
			case st.packet != nil:
				if !out.addPacket(*st.packet) {
					return
				}
			default:
				cold = append(cold, place{st.loc.Group, st.loc})
			}
		}
		if finder != nil {
			_ = finder.Close() // its errors were answered by find
			finder = nil
		}
		if !out.flush() || !tt.staged.lookUp(ctx, want, staged, yield) {
			return
		}
		sort.SliceStable(cold, func(i, j int) bool { return cold[i].group < cold[j].group })
		for i := 0; i < len(cold); {
			j := i
			for j < len(cold) && cold[j].group == cold[i].group {
				j++
			}
			part, id, err := tx.c.index.Group(tt.t.id, cold[i].group)
			if err != nil {
				yield(storage.Batch{}, err)
				return
			}
			fs, ok := v.cold.view.Slice(part, id, "", nil)
			if !ok {
				yield(storage.Batch{}, fmt.Errorf("table %s: the index names file group %s in partition %q, which has no files", tt.def, id, part))
				return
			}
			names := make([]string, 0, j-i)
			hints := make([]int64, 0, j-i)
			for _, p := range cold[i:j] {
				hint := int64(-1)
				if fs.Base != nil && fs.Base.Instant == p.loc.Instant {
					hint = p.loc.Row
				}
				names, hints = append(names, p.loc.Key), append(hints, hint)
			}
			b, err := tx.c.reader.LookupMany(ctx, tt.def.dir, fs, v.def.scan(want, v.cold.counts), names, hints)
			if err != nil {
				yield(storage.Batch{}, err)
				return
			}
			if b.Rows > 0 && !yield(b, nil) {
				return
			}
			i = j
		}
	}
}
