package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/storage"
)

// Walks over whole keyspaces of a table, for those who compare the index with the rows.

// HasSecondary tells whether there is a hint that a row with these index values has that key.
func (x *RecordIndex) HasSecondary(r pebble.Reader, t TableID, index uint32, values, key []byte) (bool, error) {
	v, closer, err := r.Get(secondaryKey(t, index, values, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	n, k := binary.Uvarint(v)
	return k > 0 && n == uint64(len(values)), nil
}

// Hints calls f for each hint of an index, in the order of the values, until f gives an error. The slices are valid during the call.
func (x *RecordIndex) Hints(r pebble.Reader, t TableID, index uint32, f func(values, key []byte) error) error {
	it, err := r.NewIter(iterOptions(prefixSecondary, t, binary.BigEndian.AppendUint32(nil, index), Bounds{}))
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		n, w := binary.Uvarint(v)
		k := it.Key()
		if w <= 0 || uint64(len(k)) < 9+n {
			return fmt.Errorf("index: secondary entry of table %d is damaged", t)
		}
		if err := f(k[9:9+n], k[9+n:]); err != nil {
			return err
		}
	}
	return it.Error()
}

// Deads calls f for each deleted record that a base file still has, until f gives an error.
func (x *RecordIndex) Deads(r pebble.Reader, t TableID, f func(partition, key string, d Dead) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: tableKey(prefixDead, t), UpperBound: tableKey(prefixDead, t+1)})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		n, k := binary.Uvarint(v)
		part, key, ok := bytes.Cut(it.Key()[5:], []byte{0})
		if k <= 0 || !ok {
			return fmt.Errorf("index: entry of a deleted record of table %d is damaged", t)
		}
		if err := f(string(part), string(key), Dead{uint32(n), storage.InstantTime(v[k:])}); err != nil {
			return err
		}
	}
	return it.Error()
}
