package index

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// Surplus is another row of a key than that at its location: writers that insert without looking leave such ones.
type Surplus struct {
	Group uint32
	Key   string // record key text
}

// PutSurplus notes a further row of a key. A group that has several of them has one entry.
func (x *RecordIndex) PutSurplus(b *pebble.Batch, t TableID, key []byte, s Surplus) error {
	return b.Set(binary.BigEndian.AppendUint32(append(tableKey(prefixSurplus, t), key...), s.Group), []byte(s.Key), nil)
}

// DropSurplus forgets a further row of a key.
func (x *RecordIndex) DropSurplus(b *pebble.Batch, t TableID, key []byte, s Surplus) error {
	return b.Delete(binary.BigEndian.AppendUint32(append(tableKey(prefixSurplus, t), key...), s.Group), nil)
}

// SurplusOf gives the further rows of a key.
func (x *RecordIndex) SurplusOf(r pebble.Reader, t TableID, key []byte) (out []Surplus, err error) {
	low := append(tableKey(prefixSurplus, t), key...)
	n := len(low) + 4
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: PrefixEnd(low)})
	if err != nil {
		return nil, err
	}
	for it.First(); it.Valid(); it.Next() {
		if k := it.Key(); len(k) == n {
			out = append(out, Surplus{binary.BigEndian.Uint32(k[n-4:]), string(it.Value())})
		}
	}
	return out, it.Close()
}

// Surpluses counts the entries of further rows of a table.
func (x *RecordIndex) Surpluses(r pebble.Reader, t TableID, most int) (n int, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: tableKey(prefixSurplus, t), UpperBound: tableKey(prefixSurplus, t+1)})
	if err != nil {
		return 0, err
	}
	for it.First(); it.Valid() && n < most; it.Next() {
		n++
	}
	return n, it.Close()
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
