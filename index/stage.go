package index

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/storage"
)

// A large statement writes the locations of its rows, sorted, before it has a sequence or knows which instant its files end in. They
// name a stage instead, a number of the table, whose sequence and instant are written when the statement is decided:
//
//	location of a stage: 80 00 <2b, no sequence begins so> | stage, group, row number + 1 <uvarint> | record key
//	stage entry:         sequence <uvarint> | instant

// Stage is the decision of a large statement for one table.
type Stage struct {
	Seq     Seq
	Instant storage.InstantTime
}

// stages are those of a table, by number.
type stages struct {
	byNo map[uint32]Stage
	next uint32
}

func stageKey(t TableID, no uint32) []byte {
	return binary.BigEndian.AppendUint32(tableKey(prefixStage, t), no)
}

// tableStages loads the stages of a table; x.stageMu is held.
func (x *RecordIndex) tableStages(t TableID) (*stages, error) {
	if s := x.stages[t]; s != nil {
		return s, nil
	}
	s := &stages{byNo: map[uint32]Stage{}, next: 1}
	if err := walk(x.db, iterOptions(prefixStage, t, nil, Bounds{}), func(key, v []byte) (bool, error) {
		n, k := binary.Uvarint(v)
		if k <= 0 || len(key) != 9 {
			return false, fmt.Errorf("index: stage of table %d is damaged", t)
		}
		no := binary.BigEndian.Uint32(key[5:])
		s.byNo[no] = Stage{Seq(n), storage.InstantTime(v[k:])}
		s.next = max(s.next, no+1)
		return true, nil
	}); err != nil {
		return nil, err
	}
	x.stages[t] = s
	return s, nil
}

// NewStage gives a number for a large statement that is not decided yet.
func (x *RecordIndex) NewStage(t TableID) (uint32, error) {
	x.stageMu.Lock()
	defer x.stageMu.Unlock()
	s, err := x.tableStages(t)
	if err != nil {
		return 0, err
	}
	no := s.next
	s.next++
	return no, nil
}

// Decide writes the decision of a stage, and shows it to readers: call it before the batch is applied, with the locations of the
// stage in the same atomic step.
func (x *RecordIndex) Decide(b *pebble.Batch, t TableID, no uint32, st Stage) error {
	x.stageMu.Lock()
	defer x.stageMu.Unlock()
	s, err := x.tableStages(t)
	if err != nil {
		return err
	}
	s.byNo[no] = st
	return b.Set(stageKey(t, no), append(binary.AppendUvarint(nil, uint64(st.Seq)), st.Instant...), nil)
}

// AppendStaged appends the key and the value of a staged location.
func AppendStaged(key, value []byte, t TableID, ikey []byte, stage, group uint32, row int64, record string) (k, v []byte) {
	k = append(binary.BigEndian.AppendUint32(append(key, prefixLocation), uint32(t)), ikey...)
	v = binary.AppendUvarint(append(value, 0x80, 0), uint64(stage))
	v = binary.AppendUvarint(v, uint64(group))
	v = binary.AppendUvarint(v, uint64(row)+1)
	return k, append(v, record...)
}

// AppendHint appends the key and the value of a secondary hint.
func AppendHint(key, value []byte, t TableID, index uint32, values, ikey []byte) (k, v []byte) {
	k = binary.BigEndian.AppendUint32(append(key, prefixSecondary), uint32(t))
	k = binary.BigEndian.AppendUint32(k, index)
	k = append(append(k, values...), ikey...)
	return k, binary.AppendUvarint(value, uint64(len(values)))
}

var errStaged = errors.New("index: staged location is damaged")

// location decodes a location of a table.
func (x *RecordIndex) location(t TableID, v []byte) (Location, error) {
	if len(v) < 2 || v[0] != 0x80 || v[1] != 0 {
		return decodeLocation(v)
	}
	v = v[2:]
	var n [3]uint64
	for i := range n {
		var k int
		if n[i], k = binary.Uvarint(v); k <= 0 {
			return Location{}, errStaged
		}
		v = v[k:]
	}
	x.stageMu.RLock()
	s := x.stages[t]
	var st Stage
	ok := false
	if s != nil {
		st, ok = s.byNo[uint32(n[0])]
	}
	x.stageMu.RUnlock()
	if s == nil {
		x.stageMu.Lock()
		s, err := x.tableStages(t)
		if err == nil {
			st, ok = s.byNo[uint32(n[0])]
		}
		x.stageMu.Unlock()
		if err != nil {
			return Location{}, err
		}
	}
	if !ok {
		return Location{}, fmt.Errorf("index: table %d has no stage %d", t, n[0])
	}
	return Location{Seq: st.Seq, Group: uint32(n[1]), Instant: st.Instant, Row: int64(n[2]) - 1, Key: string(v)}, nil
}

// Prober finds keys of which the index has any trace, fast when most have none: it remembers the gap that it looked into last.
type Prober struct {
	its    []*pebble.Iterator
	prefix [][]byte
	gaps   []gap
	buf    []byte
}

// gap is a span of keys without an entry: at or above low, below high; without high up to the end.
type gap struct {
	low, high []byte
	known     bool
	open      bool // no entry above low
}

// Probe opens a prober of recent changes and locations, and of deleted records that base files still have.
func (x *RecordIndex) Probe(r pebble.Reader, t TableID) (*Prober, error) {
	p := &Prober{}
	for _, prefix := range []byte{prefixRecent, prefixLocation, prefixDead, prefixSecondary} {
		it, err := r.NewIter(iterOptions(prefix, t, nil, Bounds{}))
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		p.its, p.prefix, p.gaps = append(p.its, it), append(p.prefix, tableKey(prefix, t)), append(p.gaps, gap{})
	}
	return p, nil
}

// Traced tells whether a key has a recent change or a location.
func (p *Prober) Traced(ikey []byte) (bool, error) {
	found, err := p.find(0, ikey)
	if err != nil || found {
		return found, err
	}
	return p.find(1, ikey)
}

// Dead tells whether a base file has a deleted record of that partition and record key.
func (p *Prober) Dead(partition, key string) (bool, error) {
	p.buf = append(append(append(p.buf[:0], partition...), 0), key...)
	return p.find(2, p.buf)
}

// Hinted tells whether a secondary index has a hint for the values.
func (p *Prober) Hinted(index uint32, values []byte) (bool, error) {
	p.buf = append(binary.BigEndian.AppendUint32(p.buf[:0], index), values...)
	return p.find(3, p.buf)
}

// find tells whether a key begins with k.
func (p *Prober) find(n int, k []byte) (bool, error) {
	g := &p.gaps[n]
	if g.known && string(k) >= string(g.low) && (g.open || string(k) < string(g.high) && !hasPrefix(g.high, k)) {
		return false, nil
	}
	it, prefix := p.its[n], p.prefix[n]
	seek := append(append(make([]byte, 0, 96), prefix...), k...)
	if !it.SeekGE(seek) {
		g.known, g.open, g.low = true, true, append(g.low[:0], k...)
		return false, it.Error()
	}
	next := it.Key()[len(prefix):]
	if hasPrefix(next, k) {
		return true, nil
	}
	g.known, g.open = true, false
	g.low, g.high = append(g.low[:0], k...), append(g.high[:0], next...)
	return false, nil
}

func hasPrefix(b, p []byte) bool { return len(b) >= len(p) && string(b[:len(p)]) == string(p) }

// Close ends the prober.
func (p *Prober) Close() error {
	var first error
	for _, it := range p.its {
		if err := it.Close(); err != nil && first == nil {
			first = err
		}
	}
	p.its = nil
	return first
}

// IsHint tells whether a key of the database is a secondary hint of a table.
func IsHint(key string, t TableID) bool {
	return len(key) > 5 && key[:5] == string(tableKey(prefixSecondary, t))
}

// LocationKey gives the key of the database under which a location stands.
func LocationKey(t TableID, ikey []byte) []byte { return append(tableKey(prefixLocation, t), ikey...) }
