package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/storage"
)

// Seq is a commit's sequence: its time in microseconds.
type Seq uint64

// TableID names a table for good; it is never used again.
type TableID uint32

// Prefixes of the keyspaces that this package owns.
const (
	prefixRecent    = 'r'
	prefixLocation  = 'l'
	prefixSecondary = 's'
	prefixGroup     = 'g'
	prefixDead      = 'd'
	prefixStage     = 'q'
	prefixSurplus   = 'x'
)

// Recent is a change of a key whose row is still in the hot tier.
type Recent struct {
	Seq    Seq
	Ord    uint32 // place of the row within its commit and table
	Delete bool
}

// Location is where the record of a key lives in the table's files.
type Location struct {
	Seq     Seq                 // last change of the key: the commit's, or the adoption's of a foreign instant
	Group   uint32              // file group, see Groups
	Instant storage.InstantTime // base file that Row belongs to; "" if Row says nothing
	Row     int64               // row number in that base file
	Key     string              // record key text
}

// RecordIndex is the index of all tables of a warehouse. It is safe for concurrent use; writes join the caller's batch.
type RecordIndex struct {
	db *pebble.DB

	mu     sync.RWMutex
	groups map[TableID]*Groups // guarded by mu

	stageMu sync.RWMutex
	stages  map[TableID]*stages // guarded by stageMu
}

// New gives the index kept in db.
func New(db *pebble.DB) *RecordIndex {
	return &RecordIndex{db: db, groups: map[TableID]*Groups{}, stages: map[TableID]*stages{}}
}

func tableKey(prefix byte, t TableID) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 64), prefix), uint32(t))
}

// PrefixEnd gives the smallest key above all that begin with p; nil if there is none.
func PrefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			return append(append([]byte(nil), p[:i]...), p[i]+1)
		}
	}
	return nil
}

// PutRecent notes that a commit changed a key.
func (x *RecordIndex) PutRecent(b *pebble.Batch, t TableID, key []byte, r Recent) error {
	k := append(tableKey(prefixRecent, t), key...)
	k = binary.BigEndian.AppendUint64(k, ^uint64(r.Seq))
	var v [6]byte
	if r.Delete {
		v[0] = 1
	}
	n := 1 + binary.PutUvarint(v[1:], uint64(r.Ord))
	return b.Set(k, v[:n], nil)
}

// DropRecent removes a recent entry: its row is in the table's files now.
func (x *RecordIndex) DropRecent(b *pebble.Batch, t TableID, key []byte, seq Seq) error {
	k := append(tableKey(prefixRecent, t), key...)
	return b.Delete(binary.BigEndian.AppendUint64(k, ^uint64(seq)), nil)
}

// DropRecents removes all recent entries of a table: their rows are in its files now.
func (x *RecordIndex) DropRecents(b *pebble.Batch, t TableID) error {
	return b.DeleteRange(tableKey(prefixRecent, t), tableKey(prefixRecent, t+1), nil)
}

func decodeRecent(k, v []byte) (key []byte, r Recent, err error) {
	if len(k) < 13 || len(v) < 2 {
		return nil, r, errors.New("index: recent entry is damaged")
	}
	ord, n := binary.Uvarint(v[1:])
	if n <= 0 {
		return nil, r, errors.New("index: recent entry is damaged")
	}
	return k[5 : len(k)-8], Recent{Seq: Seq(^binary.BigEndian.Uint64(k[len(k)-8:])), Ord: uint32(ord), Delete: v[0] == 1}, nil
}

// PutLocation says where the record of a key lives.
func (x *RecordIndex) PutLocation(b *pebble.Batch, t TableID, key []byte, l Location) error {
	return b.Set(append(tableKey(prefixLocation, t), key...), appendLocation(nil, l), nil)
}

// DropLocation removes a key from the table's files.
func (x *RecordIndex) DropLocation(b *pebble.Batch, t TableID, key []byte) error {
	return b.Delete(append(tableKey(prefixLocation, t), key...), nil)
}

func appendLocation(dst []byte, l Location) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.Seq))
	dst = binary.AppendUvarint(dst, uint64(l.Group))
	if l.Instant == "" || l.Row < 0 {
		dst = append(dst, 0)
	} else {
		dst = binary.AppendUvarint(dst, uint64(l.Row)+1)
		dst = append(dst, byte(len(l.Instant)))
		dst = append(dst, l.Instant...)
	}
	return append(dst, l.Key...)
}

func decodeLocation(v []byte) (Location, error) {
	bad := errors.New("index: location is damaged")
	l := Location{Row: -1}
	n, k := binary.Uvarint(v)
	if k <= 0 {
		return l, bad
	}
	l.Seq, v = Seq(n), v[k:]
	if n, k = binary.Uvarint(v); k <= 0 {
		return l, bad
	}
	l.Group, v = uint32(n), v[k:]
	if n, k = binary.Uvarint(v); k <= 0 {
		return l, bad
	}
	v = v[k:]
	if n > 0 {
		if len(v) < 1 || len(v) < 1+int(v[0]) {
			return l, bad
		}
		l.Row = int64(n) - 1
		l.Instant = storage.InstantTime(v[1 : 1+v[0]])
		v = v[1+v[0]:]
	}
	l.Key = string(v)
	return l, nil
}

// Dead is a deleted record that its base file still has: only the logs over it say that it is gone.
type Dead struct {
	Group   uint32
	Instant storage.InstantTime // base file
}

func deadKey(t TableID, partition, key string) []byte {
	return append(append(append(tableKey(prefixDead, t), partition...), 0), key...)
}

// PutDead notes a deleted record, by its record key text.
func (x *RecordIndex) PutDead(b *pebble.Batch, t TableID, partition, key string, d Dead) error {
	return b.Set(deadKey(t, partition, key), append(binary.AppendUvarint(nil, uint64(d.Group)), d.Instant...), nil)
}

// DropDead forgets a deleted record.
func (x *RecordIndex) DropDead(b *pebble.Batch, t TableID, partition, key string) error {
	return b.Delete(deadKey(t, partition, key), nil)
}

// FindDead looks for a deleted record.
func (x *RecordIndex) FindDead(r pebble.Reader, t TableID, partition, key string) (Dead, bool, error) {
	v, closer, err := r.Get(deadKey(t, partition, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return Dead{}, false, nil
	}
	if err != nil {
		return Dead{}, false, err
	}
	defer closer.Close()
	n, k := binary.Uvarint(v)
	if k <= 0 {
		return Dead{}, false, errors.New("index: entry of a deleted record is damaged")
	}
	return Dead{uint32(n), storage.InstantTime(v[k:])}, true, nil
}

// PurgeDead forgets the deleted records that keep answers false for.
func (x *RecordIndex) PurgeDead(b *pebble.Batch, t TableID, keep func(Dead) bool) error {
	return walk(x.db, iterOptions(prefixDead, t, nil, Bounds{}), func(key, v []byte) (bool, error) {
		n, k := binary.Uvarint(v)
		if k > 0 && keep(Dead{uint32(n), storage.InstantTime(v[k:])}) {
			return true, nil
		}
		return true, b.Delete(append([]byte(nil), key...), nil)
	})
}

// PutSecondary adds the hint that a row with these index values has that key.
func (x *RecordIndex) PutSecondary(b *pebble.Batch, t TableID, index uint32, values, key []byte) error {
	return b.Set(secondaryKey(t, index, values, key), binary.AppendUvarint(nil, uint64(len(values))), nil)
}

// DropSecondary removes a hint.
func (x *RecordIndex) DropSecondary(b *pebble.Batch, t TableID, index uint32, values, key []byte) error {
	return b.Delete(secondaryKey(t, index, values, key), nil)
}

func secondaryKey(t TableID, index uint32, values, key []byte) []byte {
	k := binary.BigEndian.AppendUint32(tableKey(prefixSecondary, t), index)
	return append(append(k, values...), key...)
}

// DropTable removes everything about a table.
func (x *RecordIndex) DropTable(b *pebble.Batch, t TableID) error {
	for _, p := range []byte{prefixRecent, prefixLocation, prefixSecondary, prefixGroup, prefixDead, prefixStage, prefixSurplus} {
		if err := b.DeleteRange(tableKey(p, t), tableKey(p, t+1), nil); err != nil {
			return err
		}
	}
	x.mu.Lock()
	delete(x.groups, t)
	x.mu.Unlock()
	x.stageMu.Lock()
	delete(x.stages, t)
	x.stageMu.Unlock()
	return nil
}

// DropKeys removes the locations, recent entries and secondary keys of a table: all its rows are replaced.
func (x *RecordIndex) DropKeys(b *pebble.Batch, t TableID) error {
	for _, p := range []byte{prefixRecent, prefixLocation, prefixSecondary, prefixDead, prefixSurplus} {
		if err := b.DeleteRange(tableKey(p, t), tableKey(p, t+1), nil); err != nil {
			return err
		}
	}
	return nil
}

// DropLocations removes the locations of a table: they are found again from its files.
func (x *RecordIndex) DropLocations(b *pebble.Batch, t TableID) error {
	return firstError(b.DeleteRange(tableKey(prefixLocation, t), tableKey(prefixLocation, t+1), nil),
		b.DeleteRange(tableKey(prefixSurplus, t), tableKey(prefixSurplus, t+1), nil))
}

// DropIndex removes all keys of one secondary index.
func (x *RecordIndex) DropIndex(b *pebble.Batch, t TableID, index uint32) error {
	return b.DeleteRange(binary.BigEndian.AppendUint32(tableKey(prefixSecondary, t), index),
		binary.BigEndian.AppendUint32(tableKey(prefixSecondary, t), index+1), nil)
}

// LastRecent gives the newest change of a key at or below a sequence.
func (x *RecordIndex) LastRecent(r pebble.Reader, t TableID, key []byte, at Seq) (Recent, bool, error) {
	lower := append(tableKey(prefixRecent, t), key...)
	n := len(lower)
	upper := binary.BigEndian.AppendUint64(append(make([]byte, 0, n+9), lower...), ^uint64(0))
	lower = binary.BigEndian.AppendUint64(lower, ^uint64(at))
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: append(upper, 0)})
	if err != nil {
		return Recent{}, false, err
	}
	defer it.Close()
	if !it.First() {
		return Recent{}, false, it.Error()
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return Recent{}, false, err
	}
	_, rec, err := decodeRecent(it.Key(), v)
	return rec, err == nil, err
}

// Locate gives the location of a key.
func (x *RecordIndex) Locate(r pebble.Reader, t TableID, key []byte) (Location, bool, error) {
	v, closer, err := r.Get(append(tableKey(prefixLocation, t), key...))
	if errors.Is(err, pebble.ErrNotFound) {
		return Location{}, false, nil
	}
	if err != nil {
		return Location{}, false, err
	}
	defer closer.Close()
	l, err := x.location(t, v)
	return l, err == nil, err
}

// RecentFinder finds the newest changes of many keys of a table. It keeps its state of the index from being freed until Close.
type RecentFinder struct {
	it     *pebble.Iterator
	prefix int // bytes of buf before a key
	buf    []byte
}

// FindRecents opens a finder.
func (x *RecordIndex) FindRecents(r pebble.Reader, t TableID) (*RecentFinder, error) {
	f := &RecentFinder{buf: tableKey(prefixRecent, t)}
	f.prefix = len(f.buf)
	var err error
	f.it, err = r.NewIter(iterOptions(prefixRecent, t, nil, Bounds{}))
	return f, err
}

// Last is LastRecent.
func (f *RecentFinder) Last(key []byte, at Seq) (Recent, bool, error) {
	f.buf = append(f.buf[:f.prefix], key...)
	n := len(f.buf)
	f.buf = binary.BigEndian.AppendUint64(f.buf, ^uint64(at))
	if !f.it.SeekGE(f.buf) {
		return Recent{}, false, f.it.Error()
	}
	if k := f.it.Key(); len(k) != len(f.buf) || string(k[:n]) != string(f.buf[:n]) {
		return Recent{}, false, nil
	}
	v, err := f.it.ValueAndErr()
	if err != nil {
		return Recent{}, false, err
	}
	_, rec, err := decodeRecent(f.it.Key(), v)
	return rec, err == nil, err
}

// Close ends the finder.
func (f *RecentFinder) Close() error { return f.it.Close() }

// RecentIter walks the recent entries of a table in key order, the newest of a key first.
type RecentIter struct{ it *pebble.Iterator }

// Recents opens a walk over the recent entries of keys within bounds.
func (x *RecordIndex) Recents(r pebble.Reader, t TableID, b Bounds) (*RecentIter, error) {
	if n := len(b.High); n > 0 && b.High[n-1] == 0xff {
		// The inverted sequence behind a key begins with ff too: the bound has to lie above every entry of the key.
		b.High = append(b.High[:n:n], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	}
	it, err := r.NewIter(iterOptions(prefixRecent, t, nil, b))
	if err != nil {
		return nil, err
	}
	it.First()
	return &RecentIter{it}, nil
}

func iterOptions(prefix byte, t TableID, infix []byte, b Bounds) *pebble.IterOptions {
	o := &pebble.IterOptions{LowerBound: append(append(tableKey(prefix, t), infix...), b.Low...)}
	switch {
	case b.High != nil:
		o.UpperBound = append(append(tableKey(prefix, t), infix...), b.High...)
	case len(infix) > 0:
		o.UpperBound = append(append(tableKey(prefix, t), infix...), 0xff, 0xff)
		if n := binary.BigEndian.Uint32(infix); n != ^uint32(0) {
			o.UpperBound = binary.BigEndian.AppendUint32(tableKey(prefix, t), n+1)
		}
	default:
		o.UpperBound = tableKey(prefix, t+1)
	}
	return o
}

// Valid tells whether the walk stands on an entry; Next goes on.
func (i *RecentIter) Valid() bool { return i.it.Valid() }
func (i *RecentIter) Next() bool  { return i.it.Next() }

// Entry gives the key (valid until Next) and the change.
func (i *RecentIter) Entry() ([]byte, Recent, error) {
	v, err := i.it.ValueAndErr()
	if err != nil {
		return nil, Recent{}, err
	}
	return decodeRecent(i.it.Key(), v)
}

// Error gives what ended the walk early.
func (i *RecentIter) Error() error { return i.it.Error() }

// Close ends the walk with its error.
func (i *RecentIter) Close() error { return i.it.Close() }

// LocationIter walks the locations of a table in key order.
type LocationIter struct {
	x      *RecordIndex
	t      TableID
	it     *pebble.Iterator
	prefix []byte
	buf    []byte
}

// Locations opens a walk over the locations of keys within bounds.
func (x *RecordIndex) Locations(r pebble.Reader, t TableID, b Bounds) (*LocationIter, error) {
	it, err := r.NewIter(iterOptions(prefixLocation, t, nil, b))
	if err != nil {
		return nil, err
	}
	it.First()
	return &LocationIter{x: x, t: t, it: it, prefix: tableKey(prefixLocation, t)}, nil
}

// Seek gives the location of exactly that key; keys have to be asked for in ascending order to be fast.
func (i *LocationIter) Seek(key []byte) (Location, bool, error) {
	i.buf = append(append(i.buf[:0], i.prefix...), key...)
	if !i.it.SeekGE(i.buf) {
		return Location{}, false, i.it.Error()
	}
	if string(i.it.Key()) != string(i.buf) {
		return Location{}, false, nil
	}
	_, l, err := i.Entry()
	return l, err == nil, err
}

// Valid tells whether the walk stands on an entry; Next goes on.
func (i *LocationIter) Valid() bool { return i.it.Valid() }
func (i *LocationIter) Next() bool  { return i.it.Next() }

// Entry gives the key (valid until Next) and its location.
func (i *LocationIter) Entry() ([]byte, Location, error) {
	v, err := i.it.ValueAndErr()
	if err != nil {
		return nil, Location{}, err
	}
	l, err := i.x.location(i.t, v)
	return i.it.Key()[5:], l, err
}

// Close ends the walk with its error.
func (i *LocationIter) Close() error { return i.it.Close() }

// Secondary calls f for the record index key of each hint whose values lie within bounds, until f answers false.
func (x *RecordIndex) Secondary(r pebble.Reader, t TableID, index uint32, b Bounds, f func(key []byte) bool) error {
	return x.hints(r, t, index, b, func(_, key []byte) (bool, error) { return f(key), nil })
}

// Groups numbers the file groups of a table.
type Groups struct {
	mu     sync.RWMutex
	byName map[groupName]uint32
	byNo   map[uint32]groupName
	next   uint32
}

type groupName struct {
	partition string
	id        storage.FileID
}

func (x *RecordIndex) tableGroups(t TableID) (*Groups, error) {
	x.mu.RLock()
	g := x.groups[t]
	x.mu.RUnlock()
	if g != nil {
		return g, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if g = x.groups[t]; g != nil {
		return g, nil
	}
	g = &Groups{byName: map[groupName]uint32{}, byNo: map[uint32]groupName{}}
	if err := walk(x.db, iterOptions(prefixGroup, t, nil, Bounds{}), func(key, v []byte) (bool, error) {
		n, k := binary.Uvarint(v)
		if k <= 0 || len(key) != 9 || uint64(len(v)-k) < n {
			return false, fmt.Errorf("index: file group entry of table %d is damaged", t)
		}
		name := groupName{string(v[k : k+int(n)]), storage.FileID(v[k+int(n):])}
		no := binary.BigEndian.Uint32(key[5:])
		g.byName[name], g.byNo[no] = no, name
		g.next = max(g.next, no+1)
		return true, nil
	}); err != nil {
		return nil, err
	}
	x.groups[t] = g
	return g, nil
}

// GroupNumber gives the number of a file group, a new one if it has none. The batch gets the entry in any case, so
// that a number handed out for a batch that failed is written by the next one that uses it.
func (x *RecordIndex) GroupNumber(b *pebble.Batch, t TableID, partition string, id storage.FileID) (uint32, error) {
	g, err := x.tableGroups(t)
	if err != nil {
		return 0, err
	}
	name := groupName{partition, id}
	g.mu.Lock()
	defer g.mu.Unlock()
	no, ok := g.byName[name]
	if !ok {
		no = g.next
		g.byName[name], g.byNo[no] = no, name
		g.next++
	}
	k := binary.BigEndian.AppendUint32(tableKey(prefixGroup, t), no)
	v := binary.AppendUvarint(nil, uint64(len(partition)))
	v = append(append(v, partition...), id...)
	return no, b.Set(k, v, nil)
}

// Group gives the partition path and file id of a number.
func (x *RecordIndex) Group(t TableID, no uint32) (partition string, id storage.FileID, err error) {
	g, err := x.tableGroups(t)
	if err != nil {
		return "", "", err
	}
	g.mu.RLock()
	name, ok := g.byNo[no]
	g.mu.RUnlock()
	if !ok {
		return "", "", fmt.Errorf("index: table %d has no file group %d", t, no)
	}
	return name.partition, name.id, nil
}
