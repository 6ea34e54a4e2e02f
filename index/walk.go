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
	return x.hints(r, t, index, Bounds{}, func(values, key []byte) (bool, error) { return true, f(values, key) })
}

// hints calls f for each hint of an index within bounds, until f answers false.
func (x *RecordIndex) hints(r pebble.Reader, t TableID, index uint32, b Bounds, f func(values, key []byte) (bool, error)) error {
	return walk(r, iterOptions(prefixSecondary, t, binary.BigEndian.AppendUint32(nil, index), b), func(k, v []byte) (bool, error) {
		n, w := binary.Uvarint(v)
		if w <= 0 || uint64(len(k)) < 9+n {
			return false, fmt.Errorf("index: secondary entry of table %d is damaged", t)
		}
		return f(k[9:9+n], k[9+n:])
	})
}

// Deads calls f for each deleted record that a base file still has, until f gives an error.
func (x *RecordIndex) Deads(r pebble.Reader, t TableID, f func(partition, key string, d Dead) error) error {
	return walk(r, iterOptions(prefixDead, t, nil, Bounds{}), func(k, v []byte) (bool, error) {
		n, w := binary.Uvarint(v)
		part, key, ok := bytes.Cut(k[5:], []byte{0})
		if w <= 0 || !ok {
			return false, fmt.Errorf("index: entry of a deleted record of table %d is damaged", t)
		}
		return true, f(string(part), string(key), Dead{uint32(n), storage.InstantTime(v[w:])})
	})
}

// walk calls f for each entry within the options' bounds, until f answers false or gives an error. The slices are valid during the call.
func walk(r pebble.Reader, o *pebble.IterOptions, f func(key, value []byte) (bool, error)) error {
	it, err := r.NewIter(o)
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := f(it.Key(), v); err != nil || !more {
			return err
		}
	}
	return it.Error()
}
