package catalog

import (
	"bytes"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/index"
)

// ownIndex orders the writes of a transaction in a table by their keys, or by their values of a secondary index, so that a lookup
// costs by what it finds and not by what the transaction wrote. It is made by the first lookup and follows the writes from then on:
// those since the last lookup are read one by one until they are enough for a run, and runs of like length are merged.
type ownIndex struct {
	runs []ownRun // each of the entries behind those of the one before, and less than half as long
	tail []ownValue
	seen int    // entries that runs and tail reflect
	mem  arena  // of the values of a secondary index
	buf  []byte // for encoding
	// bytes is what the index takes, counted with the transaction's writes; dead is the part that was undone.
	bytes, dead int64
}

// ownValue is the key or value that an entry gave a row.
type ownValue struct {
	value string
	entry int32
}

// ownRun has values in order, of equal values of one row the oldest.
type ownRun struct {
	values []ownValue
	last   int32 // newest entry
}

const (
	// ownTail is the number of writes that are looked through one by one.
	ownTail = 64
	// ownValueBytes is about what a value takes beside its text: itself, in runs that are merged.
	ownValueBytes = 48
)

// own gives the order of the transaction's writes by an index, nil: by key, with all writes in it. Called with Tx.mu held.
func (tt *txTable) own(x *tableIndex) (*ownIndex, error) {
	no := int64(spaceRecord)
	if x != nil {
		no = int64(x.no)
	}
	o := tt.ordered[no]
	if o == nil {
		o = &ownIndex{}
		if tt.ordered == nil {
			tt.ordered = map[int64]*ownIndex{}
		}
		tt.ordered[no] = o
	}
	before := o.bytes
	defer func() { tt.account(o.bytes - before) }()
	for ; o.seen < len(tt.entries); o.seen++ {
		e := &tt.entries[o.seen]
		var err error
		switch {
		case x == nil && e.prev < 0: // a key stands here once, by its first write
			o.add(textView(e.ikey()), int32(o.seen))
		case x != nil && !e.del():
			p := e.decoded()
			row, rerr := tt.row(&p)
			if rerr != nil {
				return nil, rerr
			}
			if o.buf, err = index.AppendKey(o.buf[:0], x.cols, row); err != nil {
				return nil, err
			}
			o.bytes += int64(len(o.buf))
			o.add(textView(o.mem.keep(o.buf)), int32(o.seen))
		}
		if len(o.tail) >= ownTail {
			o.settle(tt)
		}
	}
	return o, nil
}

func (o *ownIndex) add(value string, entry int32) {
	o.tail = append(o.tail, ownValue{value, entry})
	o.bytes += ownValueBytes
}

// order compares values, those of one row by age.
func (tt *txTable) order(a, b ownValue) int {
	if c := strings.Compare(a.value, b.value); c != 0 || a.entry == b.entry {
		return c
	}
	if c := bytes.Compare(tt.entries[a.entry].ikey(), tt.entries[b.entry].ikey()); c != 0 {
		return c
	}
	return int(a.entry - b.entry)
}

// settle makes a run of the tail.
func (o *ownIndex) settle(tt *txTable) {
	run := ownRun{slices.Clone(o.tail), o.tail[len(o.tail)-1].entry}
	o.tail = o.tail[:0]
	slices.SortFunc(run.values, tt.order)
	run.values = o.unique(tt, run.values)
	for n := len(o.runs); n > 0 && len(o.runs[n-1].values) <= 2*len(run.values); n-- {
		run.values = o.unique(tt, tt.merge(o.runs[n-1].values, run.values))
		o.runs = o.runs[:n-1]
	}
	o.runs = append(o.runs, run)
}

func (tt *txTable) merge(a, b []ownValue) []ownValue {
	out := make([]ownValue, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if tt.order(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// unique keeps of equal values of one row the oldest: it stands as long as any of them does.
func (o *ownIndex) unique(tt *txTable, values []ownValue) []ownValue {
	out := slices.CompactFunc(values, func(a, b ownValue) bool {
		return a.value == b.value && bytes.Equal(tt.entries[a.entry].ikey(), tt.entries[b.entry].ikey())
	})
	o.bytes -= int64(len(values)-len(out)) * ownValueBytes
	return out
}

// truncate forgets the entries from one on.
func (o *ownIndex) truncate(entries int) {
	if o.seen <= entries {
		return
	}
	o.seen = entries
	keep := func(values []ownValue) []ownValue {
		return slices.DeleteFunc(values, func(v ownValue) bool {
			if int(v.entry) < entries {
				return false
			}
			o.bytes -= ownValueBytes
			o.dead += int64(len(v.value))
			return true
		})
	}
	o.tail = keep(o.tail)
	for n := len(o.runs); n > 0 && int(o.runs[n-1].last) >= entries; n-- {
		r := &o.runs[n-1]
		r.last = int32(entries - 1)
		if r.values = keep(r.values); len(r.values) == 0 {
			o.runs = o.runs[:n-1]
		}
	}
	if o.dead > arenaChunk && o.dead > o.bytes/2 {
		*o = ownIndex{} // the next lookup makes it anew
	}
}

// within calls f for the index keys of the writes within bounds until it answers false; a key may come more than once.
func (o *ownIndex) within(tt *txTable, b index.Bounds, f func([]byte) bool) {
	low, high := string(b.Low), string(b.High)
	below := func(v string) bool { return b.High == nil || v < high }
	for _, r := range o.runs {
		n, _ := slices.BinarySearchFunc(r.values, low, func(v ownValue, low string) int { return strings.Compare(v.value, low) })
		for _, v := range r.values[n:] {
			if !below(v.value) {
				break
			}
			if !f(tt.entries[v.entry].ikey()) {
				return
			}
		}
	}
	for _, v := range o.tail {
		if v.value >= low && below(v.value) && !f(tt.entries[v.entry].ikey()) {
			return
		}
	}
}

// ownWithin adds the transaction's own rows within the bounds. Every state that they went through counts: a scan may be bound to an
// earlier one.
func (tx *Tx) ownWithin(tt *txTable, x *tableIndex, b index.Bounds, add func([]byte) bool) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if done, err := tt.spilledWithin(x, b, add); err != nil || done || len(tt.entries) == 0 {
		return err
	}
	o, err := tt.own(x)
	if err != nil {
		return err
	}
	o.within(tt, b, add)
	return nil
}
