package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
)

// txSpill holds the older writes of a transaction in a table, once they are too many for memory, in a database of its own:
//
//	'w' index key                → the writes of the key, oldest first
//	'd' record key, see dropKey  → numbers of writes that replace a row which the files or the journal have under it
//	'v' index no <4b> values key → length of the values: a write gave a row these values of a secondary index
//
// What is written to a key later stands behind what is there, so that nothing has to be read to write.
type txSpill struct {
	c     *Catalog
	dir   string // path of the database
	db    *pebble.DB
	made  int   // sorted tables
	minOp int32 // of the first write
	maxOp int32 // no write that stands has a larger number
	maxAt index.Seq
	bytes int64 // written
	// limits has, for the writes of each epoch, the number from which on they are undone. Numbers are given again after that, in the
	// next epoch.
	limits []int32
}

const (
	spillWrites = 'w'
	spillDrops  = 'd'
	spillValues = 'v'
)

// txMemoryBytes is how much of a transaction's writes in one table waits in memory, see txTable.bytes. Tests lower it.
var txMemoryBytes int64 = 48 << 20

// noMark is a mark behind every write.
const noMark = math.MaxInt32

// spill moves the writes that are in memory into the database; called with Tx.mu held.
func (tt *txTable) spill() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("spill the changes of %s: %w", tt.def, err)
		}
	}()
	c, s := tt.t.c, tt.spilled
	if err := c.diskRoom(2 * tt.bytes); err != nil {
		return err
	}
	if s == nil {
		s = &txSpill{c: c, dir: c.path(join(tt.def.dir, stagedFolder, newID())), minOp: tt.entries[0].op, limits: []int32{noMark}}
		if s.db, err = openSpill(c, s.dir, 16<<20); err != nil {
			return errors.Join(err, c.fs.RemoveAll(s.dir))
		}
		tt.spilled = s
	}
	keys := sortedKeys(tt.last)
	var buf []byte
	err = s.ingest(func(set func(key, value []byte) error) error {
		var chain []int32
		for _, k := range keys {
			chain = chain[:0]
			for n := tt.last[k]; n >= 0; n = tt.entries[n].prev {
				chain = append(chain, n)
			}
			buf = buf[:0]
			for _, n := range slices.Backward(chain) {
				buf = tt.entries[n].appendSpilled(buf, len(s.limits)-1)
			}
			if err := set(append([]byte{spillWrites}, k...), buf); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	drops, values := map[string]int32{}, map[string]int{} // of drops, the number of the first write and 1
	for i := range tt.entries {
		e := &tt.entries[i]
		p := e.decoded()
		if e.prev < 0 && e.had {
			if k := tt.def.dropKey(p.part, e.oldKey(&p)); drops[k] == 0 {
				drops[k] = e.op + 1
			}
		}
		s.maxOp, s.maxAt = max(s.maxOp, e.op), max(s.maxAt, e.at)
		if p.del || len(tt.def.indexes) == 0 {
			continue
		}
		row, err := tt.row(&p)
		if err != nil {
			return err
		}
		for i := range tt.def.indexes {
			x := &tt.def.indexes[i]
			v, err := index.AppendKey(spillValue(x.no), x.cols, row)
			if err != nil {
				return err
			}
			values[string(append(v, p.ikey...))] = len(v) - len(spillValue(x.no))
		}
	}
	err = s.ingest(func(set func(key, value []byte) error) error {
		for _, k := range slices.Sorted(maps.Keys(drops)) {
			buf = binary.AppendUvarint(buf[:0], uint64(len(s.limits)-1))
			buf = binary.AppendUvarint(buf, uint64(drops[k]-1))
			if err := set(append([]byte{spillDrops}, k...), buf); err != nil {
				return err
			}
		}
		for _, k := range slices.Sorted(maps.Keys(values)) {
			buf = binary.AppendUvarint(buf[:0], uint64(values[k]))
			if err := set([]byte(k), buf); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.metrics.SpilledTotal.Add(int64(len(tt.entries)))
	tt.account(-tt.bytes)
	tt.entries, tt.last, tt.ordered, tt.unique, tt.ahead, tt.mem = nil, map[string]int32{}, nil, nil, nil, arena{}
	return nil
}

func spillValue(no uint32) []byte { return binary.BigEndian.AppendUint32([]byte{spillValues}, no) }

// ingest adds merge operands, which come in the order of their keys.
func (s *txSpill) ingest(fill func(set func(key, value []byte) error) error) error {
	path := s.c.fs.PathJoin(s.dir, "spill-"+strconv.Itoa(s.made))
	s.made++
	w, err := s.c.newTable(path)
	if err != nil {
		return err
	}
	n := 0
	err = fill(func(key, value []byte) error {
		n++
		s.bytes += int64(len(key) + len(value))
		return w.Merge(key, value)
	})
	if err := firstError(err, w.Close()); err != nil {
		return err
	}
	if n == 0 {
		return s.c.fs.Remove(path)
	}
	return s.db.Ingest(ctxBackground, []string{path})
}

// close removes the database.
func (s *txSpill) close() error {
	if s == nil || s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return firstError(err, s.c.fs.RemoveAll(s.dir))
}

// appendSpilled encodes a write.
//
//	length <uvarint> | epoch, number <uvarint> | flags <1b> | journal sequence, place in the commit, file group, looked at <uvarint>
//	| packet length <uvarint> | packet | Avro of the row before
func (e *txEntry) appendSpilled(dst []byte, epoch int) []byte {
	var buf [64]byte
	b := binary.AppendUvarint(buf[:0], uint64(epoch))
	b = binary.AppendUvarint(b, uint64(e.op))
	var flags byte
	for i, f := range [...]bool{e.had, e.mine, e.hot, e.was != nil} {
		if f {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	for _, n := range [...]uint64{uint64(e.from.seq), uint64(e.from.ord), uint64(e.group), uint64(e.at), uint64(len(e.packet))} {
		b = binary.AppendUvarint(b, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b)+len(e.packet)+len(e.was)))
	return append(append(append(dst, b...), e.packet...), e.was...)
}

var errSpilled = errors.New("catalog: a spilled change is damaged")

// decodeSpilled decodes a write without its length; it points into b.
func decodeSpilled(b []byte) (e txEntry, epoch int, err error) {
	d := decoder{b: b}
	epoch = int(d.uvarint())
	e.op, e.prev = int32(d.uvarint()), -1
	if d.bad || len(d.b) == 0 {
		return e, 0, errSpilled
	}
	flags := d.b[0]
	d.b = d.b[1:]
	e.had, e.mine, e.hot = flags&1 != 0, flags&2 != 0, flags&4 != 0
	e.from = packetPlace{index.Seq(d.uvarint()), uint32(d.uvarint())}
	e.group, e.at = uint32(d.uvarint()), index.Seq(d.uvarint())
	e.packet = d.bytes()
	if d.bad || len(e.packet) == 0 {
		return e, 0, errSpilled
	}
	if flags&8 != 0 {
		e.was = d.b
	}
	return e, epoch, nil
}

// newest gives the last of the writes of a key that stands and came before a mark; it points into v.
func (s *txSpill) newest(v []byte, mark int32) (out *txEntry, err error) {
	d := decoder{b: v}
	for len(d.b) > 0 {
		b := d.bytes()
		if d.bad {
			return nil, errSpilled
		}
		e, epoch, err := decodeSpilled(b)
		if err != nil {
			return nil, err
		}
		if e.op < mark && e.op < s.limits[epoch] {
			out = &e
		}
	}
	return out, nil
}

// get gives the newest write of a key before a mark, nil if there is none.
func (s *txSpill) get(ikey string, mark int32) (*txEntry, error) {
	if s == nil {
		return nil, nil
	}
	v, closer, err := s.db.Get(append([]byte{spillWrites}, ikey...))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up a spilled change: %w", err)
	}
	e, err := s.newest(v, mark)
	if e != nil {
		e.packet, e.was = slices.Clone(e.packet), slices.Clone(e.was)
	}
	return e, firstError(err, closer.Close())
}

// dropped tells whether a write before a mark replaces the row that the files or the journal have under a record key.
func (s *txSpill) dropped(key string, mark int32) (bool, error) {
	v, closer, err := s.db.Get(append([]byte{spillDrops}, key...))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up a spilled change: %w", err)
	}
	found := false
	d := decoder{b: v}
	for len(d.b) > 0 {
		epoch, op := d.uvarint(), int32(d.uvarint())
		if d.bad || epoch >= uint64(len(s.limits)) {
			return false, firstError(errSpilled, closer.Close())
		}
		found = found || op < mark && op < s.limits[epoch]
	}
	return found, closer.Close()
}

// each calls f for the newest write of each key within bounds before a mark, ascending, until it answers false. The write is valid during the call.
func (s *txSpill) each(b index.Bounds, mark int32, f func(ikey string, e *txEntry) (bool, error)) error {
	return s.within(spillWrites, nil, b, func(k, v []byte) (bool, error) {
		e, err := s.newest(v, mark)
		if err != nil || e == nil {
			return true, err
		}
		return f(textView(k), e)
	})
}

// owners calls f for the index keys of rows that writes gave values of a secondary index within bounds, until it answers false.
func (s *txSpill) owners(no uint32, b index.Bounds, f func(ikey []byte) (bool, error)) error {
	if s == nil {
		return nil
	}
	return s.within(spillValues, spillValue(no)[1:], b, func(k, v []byte) (bool, error) {
		n, w := binary.Uvarint(v)
		if w <= 0 || n > uint64(len(k)) {
			return false, errSpilled
		}
		return f(k[n:])
	})
}

func (s *txSpill) within(kind byte, prefix []byte, b index.Bounds, f func(k, v []byte) (bool, error)) error {
	head := append([]byte{kind}, prefix...)
	o := &pebble.IterOptions{LowerBound: slices.Concat(head, b.Low), UpperBound: slices.Concat(head, b.High)}
	if b.High == nil {
		o.UpperBound = upperOf(head)
	}
	it, err := s.db.NewIter(o)
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := f(it.Key()[len(head):], v); err != nil || !more {
			return err
		}
	}
	return it.Error()
}

// upperOf gives the smallest key above all that begin with a prefix.
func upperOf(prefix []byte) []byte {
	out := bytes.Clone(prefix)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			return out[:i+1]
		}
	}
	return nil
}

// truncate undoes the writes from a mark on; gone: none is left.
func (s *txSpill) truncate(m Mark) (gone bool) {
	if s == nil || int(s.maxOp) < int(m) {
		return false
	}
	if int(s.minOp) >= int(m) {
		return true
	}
	for i := range s.limits {
		s.limits[i] = min(s.limits[i], int32(m))
	}
	s.limits = append(s.limits, noMark)
	s.maxOp = int32(m) - 1
	return false
}

// ownRows are a transaction's own newest writes of a table before a mark.
type ownRows struct {
	entries []txEntry
	last    map[string]int32 // by index key
	spilled *txSpill         // what is not in last
	mark    int32
}

// get gives the write of a key, nil if there is none.
func (o *ownRows) get(ikey string) (*txEntry, error) {
	if n, ok := o.last[ikey]; ok {
		return &o.entries[n], nil
	}
	return o.spilled.get(ikey, o.mark)
}

// each calls f for the writes in the order of their keys until it answers false. What is given is valid during the call.
func (o *ownRows) each(f func(ikey string, e *txEntry) (bool, error)) error {
	keys := sortedKeys(o.last)
	if o.spilled == nil {
		for _, k := range keys {
			if more, err := f(k, &o.entries[o.last[k]]); err != nil || !more {
				return err
			}
		}
		return nil
	}
	over := false
	err := o.spilled.each(index.Bounds{}, o.mark, func(ikey string, e *txEntry) (bool, error) {
		for len(keys) > 0 && keys[0] <= ikey {
			k := keys[0]
			keys = keys[1:]
			if k == ikey {
				e = &o.entries[o.last[k]]
				break
			}
			if more, err := f(k, &o.entries[o.last[k]]); err != nil || !more {
				over = true
				return false, err
			}
		}
		more, err := f(ikey, e)
		over = !more
		return more, err
	})
	for _, k := range keys {
		if err != nil || over {
			break
		}
		var more bool
		more, err = f(k, &o.entries[o.last[k]])
		over = !more
	}
	return err
}

// written gives the transaction's newest writes.
func (tt *txTable) written() *ownRows {
	return &ownRows{entries: tt.entries, last: tt.last, spilled: tt.spilled, mark: noMark}
}

// ownWrite gives the transaction's newest write of a key, nil if there is none.
func (tt *txTable) ownWrite(ikey string) (*txEntry, error) {
	if n, ok := tt.last[ikey]; ok {
		return &tt.entries[n], nil
	}
	return tt.spilled.get(ikey, noMark)
}

// ownBefore gives the transaction's newest write of a key that a read may see, nil: none; called with Tx.mu held.
func (tt *txTable) ownBefore(ikey string, o ScanOptions) (*txEntry, error) {
	mark := int32(noMark)
	if o.UseMark {
		mark = int32(o.Mark)
	}
	n, ok := tt.last[ikey]
	for ok && n >= 0 && tt.entries[n].op >= mark {
		n = tt.entries[n].prev
	}
	if ok && n >= 0 {
		e := tt.entries[n] // the list may move
		return &e, nil
	}
	return tt.spilled.get(ikey, mark)
}

// wrote tells whether the transaction changed rows of the table, beside those that it staged.
func (tt *txTable) wrote() bool { return len(tt.last) > 0 || tt.spilled != nil }
