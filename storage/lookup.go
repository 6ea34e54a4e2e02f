package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// Lookup gives the row of a record key as a batch of one row, of none if the slice has no such row. row is the row's
// number in the base file if the caller knows it, else -1; it is a hint that is checked against the key.
func (r *Reader) Lookup(ctx context.Context, dir string, fs FileSlice, sc Scan, key string, row int64) (Batch, error) {
	return r.LookupMany(ctx, dir, fs, sc, []string{key}, []int64{row})
}

// LookupMany gives the rows of record keys, in the order of the keys; a key without a row gives none. rows holds a hint
// for each key as in Lookup, or is nil.
func (r *Reader) LookupMany(ctx context.Context, dir string, fs FileSlice, sc Scan, keys []string, rows []int64) (Batch, error) {
	b, err := r.lookup(ctx, dir, &fs, &sc, keys, rows)
	if err != nil {
		return Batch{}, fmt.Errorf("looking up keys in slice %s: %w", objectName(dir, fs.Partition, string(fs.ID)), err)
	}
	return b, nil
}

func (r *Reader) lookup(ctx context.Context, dir string, fs *FileSlice, sc *Scan, keys []string, rows []int64) (Batch, error) {
	m, _, err := r.mergedLogs(ctx, dir, fs, sc)
	if err != nil {
		return Batch{}, err
	}
	entries := make([]int32, len(keys)) // the entry of each key in the logs, -1: none
	var ask []int                       // keys that the base file may have a say in
	for i, key := range keys {
		entries[i] = -1
		if sc.Drop != nil && sc.Drop(key) {
			continue
		}
		if m != nil {
			entries[i] = m.find(key)
		}
		if at := entries[i]; at < 0 || m.asksBase(at) {
			ask = append(ask, i)
		}
	}
	found := baseRows{at: map[string]int{}}
	var order []Field
	if m != nil && m.orders != nil {
		order = sc.orderFields()
	}
	if base := sc.base(fs); base != nil && len(ask) > 0 {
		if found, err = r.findBase(ctx, objectName(dir, fs.Partition, base.Name), base.Instant, sc, order, keys, rows, ask); err != nil {
			return Batch{}, err
		}
	}
	var live []int32 // entries whose rows are wanted
	var mixed []mixedRow
	place := make([]int, len(keys))
	for i, key := range keys {
		place[i] = -1
		if sc.Drop != nil && sc.Drop(key) {
			entries[i] = -1
			continue
		}
		at, inBase := found.at[key]
		if e := entries[i]; e >= 0 {
			if inBase {
				wins := true
				if len(found.order) > 0 {
					value := orderOfRow(found.batch, found.order, at)
					wins = m.overBase(e, &value)
				}
				if m.combined != nil && !m.entries[e].deleted {
					place[i] = len(mixed)
					mixed = append(mixed, mixedRow{int32(at), e, wins})
					entries[i] = entryMixed
					continue
				}
				inBase = !wins
			}
			if !inBase {
				if m.entries[e].deleted {
					entries[i] = -1
					continue
				}
				place[i] = len(live)
				live = append(live, e)
				continue
			}
			entries[i] = -1
		}
		if inBase {
			place[i] = at
		}
	}
	var logs Batch
	if len(live) > 0 {
		if logs, err = m.rows(live, sc.Schema); err != nil {
			return Batch{}, err
		}
	}
	fromBase := Batch{Schema: sc.Schema, Rows: found.batch.Rows}
	if len(found.at) > 0 {
		fromBase.Columns = found.batch.Columns[:len(sc.Schema.Fields)]
	}
	var both Batch
	if len(mixed) > 0 {
		if both, err = m.combined.mix(mixed, sc.Schema, found.batch); err != nil {
			return Batch{}, err
		}
	}
	if len(live)+len(mixed) == 0 && inOrder(place, found.batch.Rows) {
		return fromBase, nil
	}
	out := NewBuilder(sc.Schema)
	for i := range keys {
		if place[i] < 0 {
			continue
		}
		from := fromBase
		switch {
		case entries[i] >= 0:
			from = logs
		case entries[i] == entryMixed:
			from = both
		}
		if err := out.AppendFrom(from, place[i]); err != nil {
			return Batch{}, err
		}
	}
	return out.Batch(), nil
}

// entryMixed stands for an entry whose row is put together with that of the base file.
const entryMixed = -2

// inOrder tells whether the places that are not -1 are those of n rows, one after the other.
func inOrder(place []int, n int) bool {
	next := 0
	for _, p := range place {
		if p >= 0 {
			if p != next {
				return false
			}
			next++
		}
	}
	return next == n && n > 0
}

// baseRows is rows of a base file with the places of their keys in the batch.
type baseRows struct {
	batch Batch
	order []int // columns of the ordering fields; nil: not read
	at    map[string]int
}

// findBase reads the rows of the keys with the numbers in ask from a base file.
func (r *Reader) findBase(ctx context.Context, name string, it InstantTime, sc *Scan, order []Field, keys []string, rows []int64, ask []int) (baseRows, error) {
	out := baseRows{at: map[string]int{}}
	e, err := r.base(ctx, name)
	if err != nil {
		return out, err
	}
	defer r.release(e)
	want, keyAt, orderAt := sc.with(true, order)
	out.order = orderAt

	wanted := make(map[string]bool, len(ask))
	var numbers []int64
	for _, i := range ask {
		wanted[keys[i]] = true
		if rows != nil && rows[i] >= 0 && rows[i] < e.file.Rows() {
			numbers = append(numbers, rows[i])
		}
	}
	read := func(numbers []int64) (Batch, error) {
		slices.Sort(numbers)
		b, err := e.file.ReadRows(ctx, sc.fileColumns(want, it), slices.Compact(numbers))
		if err != nil {
			return b, err
		}
		texts, ok := b.Columns[keyAt].(*array.String)
		if !ok || texts.NullN() > 0 {
			return b, errNoKeys
		}
		for i := range b.Rows {
			if key := texts.Value(i); wanted[key] {
				out.at[key] = i
				delete(wanted, key)
			}
		}
		return b, nil
	}
	var hinted Batch
	if len(numbers) > 0 {
		if hinted, err = read(numbers); err != nil {
			return out, err
		}
		if out.batch = hinted; len(wanted) == 0 {
			return out, nil
		}
	}
	// No hint, or a wrong one: the key column has to be searched.
	numbers, err = searchKeys(ctx, e.file, wanted)
	if err != nil || len(numbers) == 0 {
		return out, err
	}
	hits := out.at
	out.at = map[string]int{}
	searched, err := read(numbers)
	if err != nil {
		return out, err
	}
	if len(hits) == 0 {
		out.batch = searched
		return out, nil
	}
	all := NewBuilder(want)
	for _, b := range []Batch{hinted, searched} {
		for i := range b.Rows {
			if err := all.AppendFrom(b, i); err != nil {
				return out, err
			}
		}
	}
	for key := range out.at {
		out.at[key] += hinted.Rows
	}
	for key, i := range hits {
		out.at[key] = i
	}
	out.batch = all.Batch()
	return out, nil
}

// keysOneByOne is the number of keys up to which each is searched for by itself.
const keysOneByOne = 8

// searchKeys gives the row numbers of keys in a base file.
func searchKeys(ctx context.Context, f *BaseFile, keys map[string]bool) ([]int64, error) {
	if f.columns[ColRecordKey] == nil {
		return nil, errNoKeys
	}
	var numbers []int64
	likely := make(map[string]bool, len(keys))
	for key := range keys {
		if f.MayHaveKey(key) {
			likely[key] = true
		}
	}
	if len(likely) <= keysOneByOne {
		for key := range likely {
			n, err := f.FindKey(ctx, key)
			if err != nil {
				return nil, err
			}
			if n >= 0 {
				numbers = append(numbers, n)
			}
		}
		return numbers, nil
	}
	var first int64
	for b, err := range f.Scan(ctx, &Schema{Fields: []Field{keyField}}) {
		if err != nil {
			return nil, err
		}
		texts, ok := b.Columns[0].(*array.String)
		if !ok || texts.NullN() > 0 {
			return nil, errNoKeys
		}
		for i := range b.Rows {
			if likely[texts.Value(i)] {
				if numbers = append(numbers, first+int64(i)); len(numbers) == len(likely) {
					return numbers, nil
				}
			}
		}
		first += int64(b.Rows)
	}
	return numbers, nil
}
