package catalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// indexCheck compares the index with the rows of both tiers, each way: every row is found by its key, and every entry finds its row.
type indexCheck struct {
	*checker
	locs   *index.LocationIter
	recent *index.RecentFinder

	need   []int       // positions in the table of the columns that are read behind record key and partition path
	cols   []string    // what is read
	row    storage.Row // with the columns that are read
	auto   int         // position of the AUTO_INCREMENT column, -1
	most   uint64      // its largest value
	mostOf string      // the record that has it
	rows   int64       // rows in files
	found  int64       // of which the index says where they are
	hints  int64       // entries that each secondary index must have
}

func (k *checker) checkIndex(ctx context.Context) error {
	x := &indexCheck{checker: k, row: make(storage.Row, len(k.d.spec.Schema.Fields)), auto: -1}
	if name := k.d.spec.AutoIncrement; name != "" {
		x.auto = k.d.spec.Schema.Index(name)
	}
	x.columns()
	var err error
	if x.locs, err = k.c.index.Locations(k.s.p, k.t.id, index.Bounds{}); err != nil {
		return err
	}
	defer x.locs.Close()
	if x.recent, err = k.c.index.FindRecents(k.s.p, k.t.id); err != nil {
		return err
	}
	defer x.recent.Close()
	for _, fs := range k.tt.cold.newest() {
		if err := x.slice(ctx, fs); err != nil {
			return err
		}
		k.step(1)
	}
	for _, f := range []func(context.Context) error{x.entries, x.buffered, x.packets, x.dead, x.secondary, x.counter} {
		if err := f(ctx); err != nil {
			return err
		}
		k.step(1)
	}
	return nil
}

// columns chooses what has to be read of a row.
func (x *indexCheck) columns() {
	d := x.d
	x.cols = []string{storage.ColRecordKey, storage.ColPartitionPath}
	add := func(i int) {
		if i >= 0 && !slices.Contains(x.need, i) {
			x.need = append(x.need, i)
			x.cols = append(x.cols, d.spec.Schema.Fields[i].Name)
		}
	}
	for _, c := range d.keyCols {
		add(c.Field)
	}
	for _, i := range d.part {
		add(i)
	}
	for i := range d.indexes {
		for _, c := range d.indexes[i].cols {
			add(c.Field)
		}
	}
	add(x.auto)
}

func (x *indexCheck) wrong(kind, object, key, text string) error {
	return x.say(kind, Problem{Object: object, Offset: -1, Key: key, Text: text, Advice: adviceRebuild})
}

// group gives the number of a file group, for messages and comparison.
func (x *indexCheck) group(no uint32) string {
	part, id, err := x.c.index.Group(x.t.id, no)
	if err != nil {
		return fmt.Sprintf("number %d, which is unknown", no)
	}
	return join(part, string(id))
}

// slice looks each row of a slice up in the index.
func (x *indexCheck) slice(ctx context.Context, fs storage.FileSlice) error {
	want, err := x.d.spec.Schema.Select(x.cols...)
	if err != nil {
		return err
	}
	name := join(fs.Partition, string(fs.ID))
	live := liveRows{logs: map[string]bool{}}
	dead := x.d.spec.MergeOnRead && x.d.readOnly == "" && fs.Base != nil && len(fs.Logs) > 0
	for b, err := range x.c.reader.ReadPlaced(ctx, x.d.dir, fs, x.d.scan(want, x.tt.cold.counts)) {
		if err != nil {
			return x.file(x.fileOf(fs, err), err)
		}
		for i := range b.Rows {
			key, _ := b.Value(0, i).(string)
			for n, field := range x.need {
				x.row[field] = b.Value(n+2, i)
			}
			if dead {
				live.add(key, b.Places[i])
			}
			if err := x.coldRow(fs, name, key, b.Places[i]); err != nil {
				return err
			}
		}
	}
	if !dead {
		return nil
	}
	return x.deadOf(ctx, fs, &live)
}

// fileOf names the file that an error of reading a slice is about.
func (x *indexCheck) fileOf(fs storage.FileSlice, err error) string {
	var damaged *storage.CorruptError
	if errors.As(err, &damaged) && damaged.Name != "" {
		return damaged.Name
	}
	if fs.Base != nil {
		return x.d.object(fs.Partition, fs.Base.Name)
	}
	return x.d.object(fs.Partition, string(fs.ID))
}

// coldRow compares a row of the files with its index entries.
func (x *indexCheck) coldRow(fs storage.FileSlice, name, key string, place int64) error {
	x.rows++
	d := x.d
	var ikey []byte
	var err error
	if d.hidden() {
		ikey = d.textKey(key, fs.Partition)
	} else if ikey, err = d.indexKey(x.row, fs.Partition); err != nil {
		return err
	}
	if !d.spec.Attached {
		if !d.hidden() && d.recordKey(x.row) != key {
			return x.say("record key", Problem{Object: name, Offset: -1, Key: key, Text: fmt.Sprintf("the row's key columns say %s", d.recordKey(x.row)), Advice: "another engine wrote it with other key columns; write the row anew"})
		}
		if p := d.partitionPath(x.row); p != fs.Partition {
			return x.say("partition", Problem{Object: name, Offset: -1, Key: key, Text: fmt.Sprintf("the row belongs to partition %q", p), Advice: "write the row anew"})
		}
	}
	if x.auto >= 0 {
		if v, ok := positive(x.row[x.auto]); ok && v > x.most {
			x.most, x.mostOf = v, key
		}
	}
	loc, ok, err := x.locs.Seek(ikey)
	if err != nil {
		return x.wrong("index entry", "index", key, err.Error())
	}
	if !ok {
		return x.wrong("missing index entry", "index", key, fmt.Sprintf("the row in file group %s has no entry", name))
	}
	at := x.group(loc.Group)
	switch {
	case at != name || loc.Key != key:
		// Which of the two is true is seen by looking where the entry points to.
		if x.exists(loc) {
			list, err := x.c.index.SurplusOf(x.s.p, x.t.id, ikey)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(list, func(s index.Surplus) bool { return x.group(s.Group) == name && s.Key == key }) {
				return x.wrong("missing index entry", "index", key, fmt.Sprintf("the further row of the key in file group %s has no entry", name))
			}
			return x.say("several rows", Problem{Object: name, Offset: -1, Key: key, Text: fmt.Sprintf("the key has another row, in file group %s", at), Advice: "another engine wrote a key twice; an UPDATE of the key leaves one row, a DELETE none"})
		}
		return x.wrong("wrong index entry", "index", key, fmt.Sprintf("the entry names file group %s and record key %s, the row stands in %s", at, loc.Key, name))
	case place >= 0 && fs.Base != nil && loc.Row >= 0 && loc.Instant == fs.Base.Instant && loc.Row != place:
		return x.wrong("wrong index entry", "index", key, fmt.Sprintf("the entry names row %d of %s, the row is number %d", loc.Row, fs.Base.Name, place))
	}
	x.found++
	if hot, ok, err := x.recent.Last(ikey, ^index.Seq(0)); err != nil || ok && (hot.Seq > loc.Seq || d.merge != storage.EventTime) {
		return err // superseded: its hints may be gone
	}
	return x.hinted(ikey, key, x.row)
}

// exists tells whether a location finds a row.
func (x *indexCheck) exists(loc index.Location) bool {
	_, _, _, ok, err := x.s.coldRow(context.Background(), x.tt, loc)
	return err == nil && ok
}

// hinted checks that each secondary index leads to a row.
func (x *indexCheck) hinted(ikey []byte, key string, row storage.Row) error {
	x.hints++
	for i := range x.d.indexes {
		e := &x.d.indexes[i]
		values, err := index.AppendKey(nil, e.cols, row)
		if err != nil {
			return err
		}
		ok, err := x.c.index.HasSecondary(x.s.p, x.t.id, e.no, values, ikey)
		if err != nil {
			return err
		}
		if !ok {
			if err := x.wrong("missing entry of an index", "index "+e.spec.Name, key, "the row has no entry"); err != nil {
				return err
			}
		}
	}
	return nil
}

// entries checks that there are no more locations than rows; if there are, it finds those that lead nowhere.
func (x *indexCheck) entries(ctx context.Context) error {
	it, err := x.c.index.Locations(x.s.p, x.t.id, index.Bounds{})
	if err != nil {
		return err
	}
	defer it.Close()
	var n int64
	for ; it.Valid(); it.Next() {
		n++
	}
	if n == x.found {
		return nil
	}
	before := len(x.counts)
	if it, err = x.c.index.Locations(x.s.p, x.t.id, index.Bounds{}); err != nil {
		return err
	}
	defer it.Close()
	said := false
	for ; it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		_, loc, err := it.Entry()
		if err != nil {
			if err := x.wrong("index entry", "index", "", err.Error()); err != nil {
				return err
			}
			said = true
			continue
		}
		_, _, _, ok, err := x.s.coldRow(ctx, x.tt, loc)
		var damaged *storage.CorruptError
		if ok || err != nil && (errors.As(err, &damaged) || errors.Is(err, storage.ErrNotExist)) {
			continue // the file was reported
		}
		said = true
		if err := x.wrong("entry without a row", "index", loc.Key, fmt.Sprintf("file group %s has no row of it", x.group(loc.Group))); err != nil {
			return err
		}
	}
	if !said && before == 0 && x.rows > n {
		return x.say("several rows", Problem{Object: x.d.String(), Offset: -1, Text: fmt.Sprintf("%d rows in files for %d keys: a file group has several rows of a key", x.rows, n), Advice: "another engine wrote a key twice; an UPDATE of the key leaves one row, a DELETE none"})
	}
	return nil
}

// buffered checks that every recent entry has its row in the journal.
func (x *indexCheck) buffered(ctx context.Context) error {
	it, err := x.c.index.Recents(x.s.p, x.t.id, index.Bounds{})
	if err != nil {
		return err
	}
	defer it.Close()
	var last []byte
	for ; it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		ikey, r, err := it.Entry()
		if err != nil {
			if err := x.wrong("recent entry", "index", "", err.Error()); err != nil {
				return err
			}
			continue
		}
		if r.Seq > x.s.seq {
			continue // not durable yet
		}
		newest := last == nil || string(last) != string(ikey)
		last = append(last[:0], ikey...)
		p, err := readPacket(x.s.p, x.t.id, r.Seq, r.Ord)
		if errors.Is(err, pebble.ErrNotFound) {
			if err := x.wrong("recent entry", "index", "", fmt.Sprintf("an entry names row %d of commit %d, which the journal does not have", r.Ord, r.Seq)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			continue // the journal's check has told it
		}
		if string(p.ikey) != string(ikey) || p.del != r.Delete {
			if err := x.wrong("recent entry", "index", p.key, fmt.Sprintf("the entry for row %d of commit %d is another key's", r.Ord, r.Seq)); err != nil {
				return err
			}
			continue
		}
		if !newest || p.del {
			continue
		}
		row, err := x.d.decodeRow(p.schema, p.row)
		if err != nil {
			continue // the journal's check has told it
		}
		if x.auto >= 0 {
			if v, ok := positive(row[x.auto]); ok && v > x.most {
				x.most, x.mostOf = v, p.key
			}
		}
		if r, ok, err := x.recent.Last(ikey, ^index.Seq(0)); err != nil || ok && r.Seq > x.s.seq {
			if err != nil {
				return err
			}
			continue // changed again, not durable yet
		}
		if err := x.hinted(ikey, p.key, row); err != nil {
			return err
		}
	}
	return it.Error()
}

// packets checks that every row that waits for a flush has a recent entry.
func (x *indexCheck) packets(ctx context.Context) error {
	n := 0
	return eachRaw(x.s.p, x.t.id, x.tt.cold.flushed, x.s.seq, func(seq index.Seq, ord uint32, raw []byte) error {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := viewPacket(raw)
		if err != nil {
			return nil // the journal's check has told it
		}
		r, ok, err := x.recent.Last(p.ikey, seq)
		if err != nil {
			return x.wrong("recent entry", "index", p.key, err.Error())
		}
		if !ok || r.Seq != seq || r.Ord != ord {
			return x.wrong("missing recent entry", "index", p.key, fmt.Sprintf("row %d of commit %d, which waits for a flush, has no entry", ord, seq))
		}
		return nil
	})
}

// liveRows says which records of a slice are alive.
type liveRows struct {
	base []uint64        // by row number in the base file, one bit each
	logs map[string]bool // keys of rows that stand in logs
}

func (l *liveRows) add(key string, place int64) {
	if place < 0 {
		l.logs[key] = true
		return
	}
	for int64(len(l.base)) <= place>>6 {
		l.base = append(l.base, 0)
	}
	l.base[place>>6] |= 1 << (place & 63)
}

func (l *liveRows) has(key string, place int64) bool {
	return place>>6 < int64(len(l.base)) && l.base[place>>6]&(1<<(place&63)) != 0 || l.logs[key]
}

// deadOf checks that the deleted records that a base file still has are known: a key that comes back has to return to it.
func (x *indexCheck) deadOf(ctx context.Context, fs storage.FileSlice, live *liveRows) error {
	want, err := x.d.spec.Schema.Select(storage.ColRecordKey)
	if err != nil {
		return err
	}
	base := fs
	base.Logs = nil
	name := join(fs.Partition, string(fs.ID))
	place := int64(-1)
	for b, err := range x.c.reader.ReadSlice(ctx, x.d.dir, base, x.d.scan(want, x.tt.cold.counts)) {
		if err != nil {
			return x.file(x.fileOf(fs, err), err)
		}
		for i := range b.Rows {
			key, _ := b.Value(0, i).(string)
			if place++; live.has(key, place) {
				continue
			}
			d, ok, err := x.c.index.FindDead(x.s.p, x.t.id, fs.Partition, key)
			if err != nil {
				return err
			}
			if ok && x.group(d.Group) != name {
				continue // another group has it deleted, too
			}
			if !ok || d.Instant != fs.Base.Instant {
				if err := x.wrong("dead key", "index", key, fmt.Sprintf("file group %s has it deleted, which the index does not know", name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dead checks that the entries of deleted records do not contradict the rows.
func (x *indexCheck) dead(ctx context.Context) error {
	return x.c.index.Deads(x.s.p, x.t.id, func(part, key string, d index.Dead) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		at, id, err := x.c.index.Group(x.t.id, d.Group)
		if err != nil || at != part {
			return x.wrong("dead key", "index", key, fmt.Sprintf("the entry of a deleted record names file group %s", x.group(d.Group)))
		}
		fs, ok := x.tt.cold.view.Slice(at, id, "", nil)
		if !ok || fs.Base == nil || fs.Base.Instant != d.Instant {
			return nil // its base file was replaced: the entry says nothing any more
		}
		b, err := x.c.reader.Lookup(ctx, x.d.dir, fs, x.d.scan(x.d.spec.Schema, x.tt.cold.counts), key, -1)
		if err != nil {
			return x.file(x.fileOf(fs, err), err)
		}
		if b.Rows > 0 {
			return x.wrong("dead key", "index", key, fmt.Sprintf("the entry says that the record is deleted, file group %s has it", x.group(d.Group)))
		}
		return nil
	})
}

// secondary looks for entries of secondary indexes that lead to no row, and for UNIQUE values that several rows have.
func (x *indexCheck) secondary(ctx context.Context) error {
	for i := range x.d.indexes {
		if err := x.index(ctx, &x.d.indexes[i]); err != nil {
			return err
		}
		x.step(1)
	}
	return nil
}

func (x *indexCheck) index(ctx context.Context, e *tableIndex) error {
	var n int64
	var values []byte
	var keys [][]byte // that the index has for the values
	several := func() error {
		if !e.spec.Unique || len(keys) < 2 {
			return nil
		}
		return x.several(ctx, e, values, keys)
	}
	err := x.c.index.Hints(x.s.p, x.t.id, e.no, func(v, ikey []byte) error {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n > 1 && string(v) == string(values) {
			if e.spec.Unique && len(keys) < problemsMax {
				keys = append(keys, slices.Clone(ikey))
			}
			return nil
		}
		if err := several(); err != nil {
			return err
		}
		values, keys = append(values[:0], v...), append(keys[:0], slices.Clone(ikey))
		return nil
	})
	if err = firstError(err, several()); err != nil {
		return err
	}
	// Each row was found to have its entry: what there is beyond that leads nowhere.
	if stale := n - x.hints; stale > 0 {
		return x.say("stale entries", Problem{Severity: Note, Object: "index " + e.spec.Name, Offset: -1, Text: fmt.Sprintf("%d entries lead to no row; reads pass them over", stale)})
	}
	return nil
}

// several finds out whether more than one row has the values of a UNIQUE index.
func (x *indexCheck) several(ctx context.Context, e *tableIndex, values []byte, keys [][]byte) error {
	first, have := "", false
	for _, ikey := range keys {
		row, key, _, ok, err := x.s.get(ctx, x.tt, ikey)
		if err != nil || !ok {
			continue // an entry that leads nowhere, or a row whose file was reported
		}
		if index.HasNull(e.cols, row) {
			return nil
		}
		has, err := index.AppendKey(nil, e.cols, row)
		if err != nil {
			return err
		}
		if string(has) != string(values) {
			continue
		}
		if have {
			return x.say("several rows", Problem{Object: "index " + e.spec.Name, Offset: -1, Key: key, Text: fmt.Sprintf("the UNIQUE value %v is also that of key %s", []any(project(row, e.cols)), first), Advice: "delete or change one of the rows"})
		}
		first, have = key, true
	}
	return nil
}

// counter checks that the next AUTO_INCREMENT value lies above every value of the table.
func (x *indexCheck) counter(ctx context.Context) error {
	if x.auto < 0 {
		return nil
	}
	x.t.auto.Lock()
	next := x.t.auto.next
	x.t.auto.Unlock()
	if next != 0 && next <= x.most && x.most != math.MaxUint64 {
		return x.say("counter", Problem{Object: x.d.String(), Offset: -1, Key: x.mostOf, Text: fmt.Sprintf("the next AUTO_INCREMENT value is %d, a row has %d", next, x.most), Advice: fmt.Sprintf("ALTER TABLE … AUTO_INCREMENT = %d", x.most+1)})
	}
	return nil
}
