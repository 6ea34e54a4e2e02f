package catalog

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// write makes the files of the instant, which stands requested and inflight on the timeline then.
func (f *flush) write(ctx context.Context) error {
	c, d := f.t.c, f.d
	err := f.begin(ctx)
	if err != nil {
		return err
	}
	f.meta = &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: timeline.OpUpsert,
		Extra: map[string]string{timeline.ExtraSchema: d.spec.Schema.Avro(false), extraWarehouse: c.id, extraBin: f.intent.Bin},
	}
	if f.packets, err = newPacketReader(c.db, f.t.id); err != nil {
		return err
	}
	defer f.packets.close()
	seen := map[string]bool{}
	for _, o := range f.files {
		if !seen[o.part] {
			seen[o.part] = true
			if err := timeline.EnsurePartition(ctx, c.store, d.dir, o.part, f.instant); err != nil {
				return err
			}
		}
		kind := timeline.MarkAppend
		switch {
		case o.base && o.slice == nil:
			kind = timeline.MarkCreate
		case o.base:
			kind = timeline.MarkMerge
		}
		if err := f.pending.Mark(ctx, o.part, o.name, kind); err != nil {
			return err
		}
		if o.base {
			err = f.writeBase(ctx, o)
		} else {
			err = f.writeLog(ctx, o)
		}
		if err != nil {
			return err
		}
		f.meta.Stats[o.part] = append(f.meta.Stats[o.part], o.stat)
	}
	return nil
}

// load reads a row of the flush from the journal.
func (f *flush) load(r *flushRow) (packetRow, storage.Row, error) {
	var p packetRow
	var err error
	if r.entry != nil {
		p = r.entry.decoded()
	} else if p, err = f.packets.read(r.seq, r.ord); err != nil {
		return p, nil, err
	}
	row, err := f.d.decodeRow(p.schema, p.row)
	return p, row, err
}

// object is where a file of the flush is written.
func (f *flush) object(o *outFile) string {
	if f.dir != "" {
		return join(f.dir, o.part, o.name)
	}
	return f.d.object(o.part, o.name)
}

func (f *flush) seqNo(o *outFile, n int64) string {
	b := make([]byte, 0, 32)
	b = append(append(b, f.instant...), '_')
	b = append(strconv.AppendInt(b, int64(o.bucket), 10), '_')
	return string(strconv.AppendInt(b, n, 10))
}

// writeBase writes a base file: the rows of the slice that it replaces with their changes, in their order, then the new rows.
func (f *flush) writeBase(ctx context.Context, o *outFile) (err error) {
	c, d := f.t.c, f.d
	expected := int64(len(o.inserts))
	o.stat = timeline.WriteStat{FileID: o.id, Partition: o.part, Path: join(o.part, o.name), NumInserts: int64(len(o.inserts))}
	if o.slice != nil {
		o.stat.PrevCommit = o.slice.Begin
		if o.slice.Base != nil {
			if n, err := c.reader.BaseRows(ctx, d.object(o.part, o.slice.Base.Name)); err == nil {
				expected += n
			}
		}
	}
	w, err := storage.CreateBase(ctx, c.store, f.object(o), d.spec.Schema, storage.BaseOptions{ExpectedRows: int(expected)})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	n := int64(0) // sequence number within the file
	put := func(r *flushRow) error {
		p, row, err := f.load(r)
		if err != nil {
			return err
		}
		r.file, r.row, r.key = o, w.Rows(), p.key
		n++
		return w.Append(storage.RowMeta{CommitTime: f.instant, SeqNo: f.seqNo(o, n-1), Key: p.key, Partition: p.part}, row)
	}
	if o.slice != nil {
		names := append(slices.Clone(storage.MetaColumns), fieldNames(d.spec.Schema)...)
		want, err := d.spec.Schema.Select(names...)
		if err != nil {
			return err
		}
		key := slices.Index(storage.MetaColumns, storage.ColRecordKey)
		for b, err := range c.reader.ReadSlice(ctx, d.dir, *o.slice, d.scan(want, f.cold.counts)) {
			if err != nil {
				return err
			}
			for i := range b.Rows {
				k, _ := b.Value(key, i).(string)
				if r := o.updates[k]; r != nil {
					if r.file != nil { // a further row of the key
						o.stat.NumDeletes++
						continue
					}
					if !f.late(r, b, i) {
						if err := put(r); err != nil {
							return err
						}
						o.stat.NumUpdates++
						continue
					}
					r.file, r.row, r.key = o, w.Rows(), k
				} else if o.deletes[k] != nil {
					o.stat.NumDeletes++
					continue
				}
				if err := w.AppendMerged(b, i); err != nil {
					return err
				}
			}
		}
	}
	for _, k := range sortedKeys(o.updates) {
		switch r := o.updates[k]; {
		case r.file != nil:
		case !r.revived:
			return fmt.Errorf("the index names key %s in file group %s, which does not have it", k, o.id)
		default: // a log of the slice deleted it
			if err := put(r); err != nil {
				return err
			}
			o.stat.NumInserts++
		}
	}
	for _, r := range o.inserts {
		if err := put(r); err != nil {
			return err
		}
	}
	o.stat.NumWrites = w.Rows()
	size, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	o.stat.WriteBytes, o.stat.FileSize = size, size
	noteSum(f.meta, o.name, w.Sum())
	return nil
}

// late tells whether the stored row of an event-time table is newer than the buffered one: it was adopted after that.
func (f *flush) late(r *flushRow, b storage.Batch, i int) bool {
	d := f.d
	if d.merge != storage.EventTime || d.ordering < 0 {
		return false
	}
	_, row, err := f.load(r)
	if err != nil {
		return false // put reads it again and reports the error
	}
	if compareOrdering(b.Value(len(storage.MetaColumns)+d.ordering, i), row[d.ordering]) > 0 {
		f.t.c.metrics.LateRowsTotal.Add(1)
		return true
	}
	return false
}

// writeLog appends a group's updates and deletes to its slice as one log file: a data block, then a delete block.
func (f *flush) writeLog(ctx context.Context, o *outFile) error {
	c, d := f.t.c, f.d
	var puts []storage.LogRecord
	var dels []storage.LogDelete
	var names []string
	for _, k := range sortedKeys(o.updates) {
		r := o.updates[k]
		p, row, err := f.load(r)
		if err != nil {
			return err
		}
		puts = append(puts, storage.LogRecord{RowMeta: storage.RowMeta{CommitTime: f.instant, SeqNo: f.seqNo(o, int64(len(puts))), Key: p.key, Partition: p.part}, Row: row})
		r.file, r.row, r.key = o, -1, p.key
	}
	for _, k := range sortedKeys(o.deletes) {
		dels = append(dels, storage.LogDelete{Key: k, Partition: o.part})
		names = append(names, k)
	}
	if len(dels) > 0 && d.merge == storage.EventTime && d.ordering >= 0 {
		// A delete carries the stored row's ordering value: on that form all readers agree.
		want, err := d.spec.Schema.Select(storage.ColRecordKey, d.spec.OrderingField)
		if err != nil {
			return err
		}
		hints := make([]int64, len(names))
		for i := range hints {
			hints[i] = -1
		}
		b, err := c.reader.LookupMany(ctx, d.dir, *o.slice, d.scan(want, f.cold.counts), names, hints)
		if err != nil {
			return err
		}
		values := map[string]any{}
		for i := range b.Rows {
			k, _ := b.Value(0, i).(string)
			values[k] = b.Value(1, i)
		}
		for i := range dels {
			dels[i].Ordering = values[dels[i].Key]
			dels[i].OrderingType = d.spec.Schema.Fields[d.ordering].Type
		}
	}
	st, err := storage.WriteLog(ctx, c.store, f.object(o), f.instant, d.spec.Schema, o.id, puts, dels)
	if err != nil {
		return err
	}
	noteSum(f.meta, o.name, st.Sum)
	base := ""
	if o.slice.Base != nil {
		base = o.slice.Base.Name
	}
	var logs []string
	for _, l := range o.slice.Logs {
		logs = append(logs, l.Name)
	}
	name, _ := storage.ParseFileName(o.name)
	o.stat = timeline.WriteStat{
		FileID: o.id, Partition: o.part, Path: join(o.part, o.name), PrevCommit: o.slice.Begin,
		NumWrites: int64(len(puts)), NumUpdates: int64(len(puts)), NumDeletes: int64(len(dels)),
		WriteBytes: st.Bytes, FileSize: st.Bytes, LogBlocks: int64(st.Blocks),
		Log: &timeline.LogStat{Version: name.Version, BaseFile: base, Files: append(logs, o.name)},
	}
	return nil
}

// complete publishes the instant to other engines. The decision was the journal's.
func (f *flush) complete(ctx context.Context) error {
	if err := f.pending.Complete(ctx, f.meta); err != nil {
		return fmt.Errorf("complete %s: %w", f.instant, err)
	}
	f.rest(ctx)
	return nil
}
