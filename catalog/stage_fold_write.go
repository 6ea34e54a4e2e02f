package catalog

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// writeLog writes the changes of a group as a log, which is made in memory.
func (o *folding) writeLog(ctx context.Context, g *foldedGroup) error {
	st := o.st
	g.updates, g.deletes = map[string]*flushRow{}, map[string]*flushRow{}
	for o.at(g.no) {
		ch, _, _, err := o.change()
		if err != nil {
			return err
		}
		r := &flushRow{
			ikey: strings.Clone(ch.ikey), del: ch.flags&foldDelete != 0, cold: true, group: g.no, oldKey: strings.Clone(ch.oldKey), from: g.outFile,
		}
		if ch.flags&foldStays != 0 {
			r.entry = &txEntry{packet: bytes.Clone(ch.packet)}
			g.updates[r.oldKey] = r
		} else {
			g.deletes[r.oldKey] = r
		}
		if err := o.next.next(); err != nil {
			return err
		}
	}
	if err := o.f.writeLog(ctx, g.outFile); err != nil {
		return err
	}
	for _, r := range g.updates {
		if err := o.locate(bytesView(r.ikey), g.no, -1, r.key); err != nil {
			return err
		}
	}
	for _, r := range g.deletes {
		if r.del {
			if err := st.folded.locs.add(index.LocationKey(st.t.id, bytesView(r.ikey)), nil, true); err != nil {
				return err
			}
		}
		st.folded.dead = append(st.folded.dead, foldedDead{g.part, r.oldKey, index.Dead{Group: g.no, Instant: g.slice.Base.Instant}})
	}
	g.updates, g.deletes = nil, nil
	return nil
}

// locate notes where a row stands then.
func (o *folding) locate(ikey []byte, group uint32, row int64, key string) error {
	k, v := index.AppendStaged(nil, nil, o.st.t.id, ikey, o.st.staged.no, group, row, key)
	return o.st.folded.locs.add(k, v, false)
}

// rewrite writes a new base file of a group: the rows of its slice with their changes, in their order.
func (o *folding) rewrite(ctx context.Context, g *foldedGroup) (err error) {
	c, d, st, f := o.sc.c, o.st.def, o.st, o.f
	changes := foldedChanges{o: o, no: g.no, byKey: newKeyTable(c, c.fs.PathJoin(c.path(st.staged.dir), fmt.Sprintf(".group-%d", g.no)))}
	defer func() { err = firstError(err, changes.byKey.close()) }()
	if err := changes.gather(); err != nil {
		return err
	}
	g.stat = timeline.WriteStat{FileID: g.id, Partition: g.part, Path: join(g.part, g.name), PrevCommit: g.slice.Begin}
	expected, err := c.reader.BaseRows(ctx, d.object(g.part, g.slice.Base.Name))
	if err != nil {
		return err
	}
	w, err := storage.CreateBase(ctx, c.store, f.object(g.outFile), d.spec.Schema, storage.BaseOptions{ExpectedRows: int(expected)})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	want, err := d.spec.Schema.Select(append(slices.Clone(storage.MetaColumns), fieldNames(d.spec.Schema)...)...)
	if err != nil {
		return err
	}
	keyColumn := slices.Index(storage.MetaColumns, storage.ColRecordKey)
	var at, written int64
	for b, err := range c.reader.ReadSlice(ctx, d.dir, *g.slice, d.scan(want, f.cold.counts)) {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			key, _ := b.Value(keyColumn, i).(string)
			ch, ok, err := changes.of(at, key)
			if err != nil {
				return err
			}
			at++
			if !ok {
				if err := w.AppendMerged(b, i); err != nil {
					return err
				}
				continue
			}
			switch {
			case ch.flags&foldStays != 0:
				p, err := viewPacket(bytes.Clone(ch.packet))
				if err != nil {
					return err
				}
				row, err := st.row(&p)
				if err != nil {
					return err
				}
				if err := o.locate(bytesView(ch.ikey), g.no, w.Rows(), key); err != nil {
					return err
				}
				if d.merge == storage.EventTime && d.ordering >= 0 && compareOrdering(b.Value(len(storage.MetaColumns)+d.ordering, i), row[d.ordering]) > 0 {
					c.metrics.LateRowsTotal.Add(1) // it was adopted after the write
					err = w.AppendMerged(b, i)
				} else {
					g.stat.NumUpdates++
					err = w.Append(storage.RowMeta{CommitTime: f.instant, SeqNo: f.seqNo(g.outFile, written), Key: p.key, Partition: p.part}, row)
					written++
				}
				if err != nil {
					return err
				}
			default:
				g.stat.NumDeletes++
				if ch.flags&foldDelete != 0 {
					if err := st.folded.locs.add(index.LocationKey(st.t.id, bytesView(ch.ikey)), nil, true); err != nil {
						return err
					}
				}
			}
			if err := changes.done(); err != nil {
				return err
			}
		}
	}
	if changes.left > 0 || o.at(g.no) {
		return changes.missing()
	}
	g.stat.NumWrites = w.Rows()
	size, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	g.stat.WriteBytes, g.stat.FileSize = size, size
	noteSum(f.meta, g.name, w.Sum())
	return nil
}

// foldedChanges are the changes of a group: those whose places are known as they come, the others by record key.
type foldedChanges struct {
	o     *folding
	no    uint32
	byKey *keyTable
	left  int // in byKey that no row has had yet

	placed bool  // the next of the group has a place, and it is
	row    int64 // this
	next   foldChange
	took   bool // the change that of gave is next
}

// gather takes in the changes without a place.
func (g *foldedChanges) gather() error {
	var v []byte
	for g.o.at(g.no) {
		ch, placed, row, err := g.o.change()
		if err != nil {
			return err
		}
		if g.placed, g.row, g.next = placed, row, ch; placed {
			return nil
		}
		v = append(binary.AppendUvarint(v[:0], uint64(len(ch.ikey))), ch.ikey...)
		if err := g.byKey.set(bytesView(ch.oldKey), append(v, g.o.next.cur.value...)); err != nil {
			return err
		}
		g.left++
		if err := g.o.next.next(); err != nil {
			return err
		}
	}
	return nil
}

// of gives the change of a row, valid until done.
func (g *foldedChanges) of(row int64, key string) (foldChange, bool, error) {
	if g.placed && g.row == row {
		if g.next.oldKey != key {
			return foldChange{}, false, g.missing()
		}
		g.took = true
		return g.next, true, nil
	}
	if g.left == 0 {
		return foldChange{}, false, nil
	}
	v, ok, err := g.byKey.get(bytesView(key))
	if err != nil || !ok {
		return foldChange{}, false, err
	}
	d := decoder{b: bytesView(v)}
	ch := foldChange{ikey: textView(d.bytes())}
	if d.bad {
		return foldChange{}, false, errSpilled
	}
	g.took = false
	return ch, true, ch.decode(textView(d.b))
}

// done says that the change that of gave is written.
func (g *foldedChanges) done() error {
	if !g.took {
		g.left--
		return nil
	}
	if err := g.o.next.next(); err != nil {
		return err
	}
	if g.placed = g.o.at(g.no); !g.placed {
		return nil
	}
	var err error
	g.next, _, g.row, err = g.o.change()
	return err
}

// missing is the error for a change whose row is not there.
func (g *foldedChanges) missing() error {
	key := g.next.oldKey
	if !g.placed {
		key = fmt.Sprintf("%d keys", g.left)
	}
	return fmt.Errorf("the index names %q in file group %s, which does not have it", key, g.o.groups[g.no].id)
}
