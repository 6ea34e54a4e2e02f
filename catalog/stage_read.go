package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// stagedPlace is where a row stands in a staged file.
type stagedPlace struct {
	file *stagedFile
	key  string
	row  int64
}

// findStaged finds a row in runs that are readable.
func findStaged(runs []*stagedRun, ikey []byte) (stagedPlace, bool, error) {
	for _, r := range slices.Backward(runs) {
		p, ok, err := r.find(ikey)
		if err != nil {
			return stagedPlace{}, false, err
		}
		if ok {
			return stagedPlace{r.files[p.file], strings.Clone(p.key), p.row}, true, nil
		}
	}
	return stagedPlace{}, false, nil
}

// lookUp gives the rows at places, a file at a time; false: the reader has enough, or was told of an error.
func (s *stage) lookUp(ctx context.Context, want *storage.Schema, at map[*stagedFile][]stagedPlace, yield func(storage.Batch, error) bool) bool {
	files := make([]*stagedFile, 0, len(at))
	for f := range at {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *stagedFile) int { return a.no - b.no })
	for _, f := range files {
		var keys []string
		var rows []int64
		for _, p := range at[f] {
			keys, rows = append(keys, p.key), append(rows, p.row)
		}
		b, err := s.c.reader.LookupMany(ctx, s.dir, s.slice(f), s.d.scan(want, s.counts), keys, rows)
		if err != nil {
			yield(storage.Batch{}, err)
			return false
		}
		if b.Rows > 0 && !yield(b, nil) {
			return false
		}
	}
	return true
}

// stagedWithin adds the index keys of staged rows whose key, or whose values of a secondary index, lie within bounds.
func (tx *Tx) stagedWithin(tt *txTable, x *tableIndex, b index.Bounds, add func([]byte) bool) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tt.staged == nil {
		return nil
	}
	more := true
	for _, r := range tt.staged.runs {
		if !more {
			break
		}
		var err error
		if x == nil {
			err = r.keys.within(b, func(k, _ []byte) bool {
				more = add(k)
				return more
			})
		} else {
			n := slices.IndexFunc(tt.def.indexes, func(o tableIndex) bool { return o.no == x.no })
			err = r.eachHint(n, b, func(_, ikey []byte) bool {
				more = add(ikey)
				return more
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachHint calls f for the index values within bounds with the index key of their row, ascending.
func (r *stagedRun) eachHint(n int, b index.Bounds, f func(values, ikey []byte) bool) error {
	unique := r.s.d.indexes[n].spec.Unique
	return r.hints[n].within(b, func(k, v []byte) bool {
		if unique {
			// A key is the values alone unless one of them is NULL: then the value is the length of the values, else the index key.
			if values, ikey, ok := splitHint(k, v); ok {
				return f(values, ikey)
			}
			return f(k, v)
		}
		values, ikey, _ := splitHint(k, v)
		return f(values, ikey)
	})
}

// splitHint takes the key of a hint that names its row apart; false: the value is no length.
func splitHint(k, v []byte) (values, ikey []byte, ok bool) {
	d := decoder{b: v}
	n := d.uvarint()
	if d.bad || len(d.b) > 0 || n >= uint64(len(k)) {
		return nil, nil, false
	}
	return k[:n], k[n:], true
}
