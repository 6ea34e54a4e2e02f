package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// AlterTable gives a table another specification. columns[i] is the old position of new column i, or -1 for a new one;
// convert turns an old row (old schema order) into a new one and is nil when it is enough to move columns (new ones NULL).
// It is a change of metadata alone where Hudi's readers follow it (columns added with NULL, dropped, promoted, reordered;
// Definition, Options, Indexes), else all rows are rewritten by one replacecommit. Secondary indexes that are new are built.
func (c *Catalog) AlterTable(ctx context.Context, t *Table, spec TableSpec, columns []int, convert func(old storage.Row) (storage.Row, error)) error {
	return c.Change(ctx, Change{Tables: []TableChange{{Table: t, Spec: &spec, Columns: columns, Convert: convert}}})
}

// alter plans another specification of a table.
func (p *tablePlan) alter(ctx context.Context) error {
	t, c, old := p.t, p.t.c, p.old
	if old.spec.Attached {
		return fmt.Errorf("%w: the definition of %s belongs to the engine that wrote it", ErrReadOnly, old)
	}
	spec := *p.Spec
	s := *spec.Schema
	s.Name, s.Namespace = old.spec.Schema.Name, old.spec.Schema.Namespace
	spec.Schema = &s
	p.r.Def = *spec.define(&p.r.Def, p.r.Created)
	props, err := c.properties(&p.r, &spec)
	if err != nil {
		return err
	}
	if p.d, err = c.compile(&p.r, props); err != nil {
		return err
	}
	if t.draft {
		return nil
	}
	if p.Convert == nil && t.followed(old, p.d, p.Columns) {
		p.hints, err = t.buildIndexes(ctx, p.d)
		return err
	}
	p.rewrite = true
	return nil
}

// rows gives the rows of a table as they are to be.
func (p *tablePlan) rows(ctx context.Context) func(yield func(key, part string, row storage.Row) error) error {
	t, convert := p.t, p.Convert
	if convert == nil {
		convert = func(row storage.Row) (storage.Row, error) {
			return follow(p.old.spec.Schema, p.d.spec.Schema, p.Columns, row)
		}
	}
	return func(yield func(key, part string, row storage.Row) error) error {
		tx, err := t.c.beginInternal(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		cols := append([]string{storage.ColRecordKey, storage.ColPartitionPath}, fieldNames(p.old.spec.Schema)...)
		for b, err := range tx.Scan(ctx, t, ScanOptions{Columns: cols}) {
			if err != nil {
				return err
			}
			for i := range b.Rows {
				row := b.Row(i, nil)
				key, _ := row[0].(string)
				converted, err := convert(row[2:])
				if err != nil {
					return err
				}
				if err := yield(key, "", converted); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// follow gives a row of one schema the columns of another, whose types are the same or wider.
func follow(from, to *storage.Schema, columns []int, row storage.Row) (storage.Row, error) {
	out := make(storage.Row, len(columns))
	for i, n := range columns {
		if n < 0 {
			continue
		}
		out[i] = row[n]
		if was, is := from.Fields[n].Type, to.Fields[i].Type; was != is {
			if !storage.Promotable(was, is) {
				return nil, fmt.Errorf("%w: column %s of %s cannot become %s", ErrInvalid, to.Fields[i].Name, was, is)
			}
			var err error
			if out[i], err = storage.ConvertValue(was, is, row[n]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// followed tells whether readers follow the change by the schema alone.
func (t *Table) followed(old, d *tableDef, columns []int) bool {
	a, b := old.spec, d.spec
	if !slices.Equal(a.Key, b.Key) || !slices.Equal(a.Partition, b.Partition) || a.HiveStyle != b.HiveStyle || a.PerPartition != b.PerPartition ||
		a.MergeOnRead != b.MergeOnRead || a.Ordering != b.Ordering || a.OrderingField != b.OrderingField || len(columns) != len(b.Schema.Fields) {
		return false
	}
	for i, from := range columns {
		f := b.Schema.Fields[i]
		if from < 0 {
			// An older schema may have had a column of that name: its values would come back.
			for _, s := range old.schemas {
				if s != nil && s.Index(f.Name) >= 0 {
					return false
				}
			}
			continue
		}
		o := a.Schema.Fields[from]
		if o.Name != f.Name || o.Type != f.Type && !(b.widens(f.Name, o.Type.Kind, f.Type.Kind) && storage.Promotable(o.Type, f.Type)) {
			return false
		}
	}
	return true
}

// widens names the promotions that readers make by themselves and after which keys and record key texts are what they were.
func (s *TableSpec) widens(column string, from, to storage.Kind) bool {
	is := func(k KeyColumn) bool { return k.Column == column }
	switch {
	case from == storage.Int32 && to == storage.Int64:
		return true
	case from == storage.Float32 && to == storage.Float64: // its texts are others
		return !slices.ContainsFunc(s.Key, is) && !slices.Contains(s.Partition, column) && s.OrderingField != column &&
			!slices.ContainsFunc(s.Indexes, func(x IndexSpec) bool { return slices.ContainsFunc(x.Columns, is) })
	}
	return false
}

// SetIndexes replaces the secondary indexes; new ones are built from the data (*DuplicateKeyError for a UNIQUE one that cannot be).
func (c *Catalog) SetIndexes(ctx context.Context, t *Table, indexes []IndexSpec, sql []byte) error {
	spec := *t.Spec()
	spec.Indexes, spec.Definition = indexes, sql
	columns := make([]int, len(spec.Schema.Fields))
	for i := range columns {
		columns[i] = i
	}
	return c.AlterTable(ctx, t, spec, columns, nil)
}

// buildIndexes reads the values of the indexes that the table does not have yet; called with the table's ddl lock held, so that nothing commits.
func (t *Table) buildIndexes(ctx context.Context, d *tableDef) ([]secondaryHint, error) {
	old := t.def.Load()
	var fresh []tableIndex
	for _, x := range d.indexes {
		if !slices.ContainsFunc(old.indexes, func(o tableIndex) bool { return o.no == x.no }) {
			fresh = append(fresh, x)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	tx, err := t.c.beginInternal(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	tt, err := tx.table(ctx, t)
	if err != nil {
		return nil, err
	}
	var hints []secondaryHint
	unique := map[string]storage.Row{}
	cols := append([]string{storage.ColRecordKey, storage.ColPartitionPath}, fieldNames(old.spec.Schema)...)
	// Positions in the new schema; a metadata change keeps names.
	at := make([]int, len(d.spec.Schema.Fields))
	for i, f := range d.spec.Schema.Fields {
		at[i] = old.spec.Schema.Index(f.Name)
	}
	err = tx.scanKeyed(ctx, tt, tt.tableView, cols, func(ikey string, was storage.Row) error {
		row, err := follow(old.spec.Schema, d.spec.Schema, at, was)
		if err != nil {
			return err
		}
		return indexValues(fresh, d, row, unique, func(no uint32, values []byte) { hints = append(hints, secondaryHint{no, values, ikey}) })
	})
	return hints, err
}

// indexValues gives the index values of a row and refuses a second row with a UNIQUE value.
func indexValues(indexes []tableIndex, d *tableDef, row storage.Row, unique map[string]storage.Row, f func(no uint32, values []byte)) error {
	for i := range indexes {
		x := &indexes[i]
		values, err := index.AppendKey(nil, x.cols, row)
		if err != nil {
			return err
		}
		if x.spec.Unique && !index.HasNull(x.cols, row) {
			id := uniqueID(x.no, values)
			if other, taken := unique[id]; taken {
				return &DuplicateKeyError{Table: d.String(), Index: x.spec.Name, Key: project(row, x.cols), Existing: other}
			}
			unique[id] = append(storage.Row(nil), row...)
		}
		f(x.no, values)
	}
	return nil
}

func (c *Catalog) putHints(t *Table, hints []secondaryHint) error {
	b := c.db.NewBatch()
	defer func() { b.Close() }()
	for i := range hints {
		h := &hints[i]
		if err := c.index.PutSecondary(b, t.id, h.no, h.values, []byte(h.ikey)); err != nil {
			return err
		}
		if b.Len() > 4<<20 {
			if err := b.Commit(pebble.NoSync); err != nil {
				return err
			}
			b.Close()
			b = c.db.NewBatch()
		}
	}
	return c.commitBatch(b)
}

// TruncateTable removes all rows by one replacecommit and restarts AUTO_INCREMENT; rows is how many there were.
func (c *Catalog) TruncateTable(ctx context.Context, t *Table) (rows int64, err error) {
	release, err := lockDefinitions(ctx, []*Table{t})
	if err != nil {
		return 0, err
	}
	defer release()
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return 0, err
	}
	t.ddl.Lock()
	defer t.ddl.Unlock()
	t.slices.Lock()
	defer t.slices.Unlock()
	d := t.def.Load()
	if t.dropped.Load() {
		return 0, fmt.Errorf("%w: table %s", ErrNotFound, d)
	}
	if t.broken != nil {
		return 0, t.broken
	}
	if d.readOnly != "" {
		return 0, fmt.Errorf("%w: %s: %s", ErrReadOnly, d, d.readOnly)
	}
	rows = t.RowCount()
	c.commitMu.Lock()
	r := t.record
	c.commitMu.Unlock()
	dec := &decision{defs: map[index.TableID]*tableDef{t.id: d}}
	if d.spec.AutoIncrement != "" {
		if r.Def.AutoNext > 1 { // hoodie.properties, which outlive the state folder, say so too
			dec.Steps.Properties = append(dec.Steps.Properties, t.id)
		}
		r.Def.AutoNext = 0
		dec.Auto = map[index.TableID]uint64{t.id: 1}
	}
	dec.Records = []tableRecord{r}
	done, err := t.rewrite(ctx, d, dec, func(func(key, part string, row storage.Row) error) error { return nil })
	if !done && err == nil {
		err = c.decide(ctx, dec)
	}
	return rows, err
}

// rewrite replaces all rows of the table by one replacecommit under another definition, as a part of a decision; called with the ddl
// and slice locks held. The past stays: it reads the file groups that the replacecommit hides, under the definition of its time.
// Not done, and no error: nothing stands in files, so that the decision is all there is to do.
func (t *Table) rewrite(ctx context.Context, d *tableDef, dec *decision, rows func(yield func(key, part string, row storage.Row) error) error) (done bool, err error) {
	c := t.c
	release, err := t.hold(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	if err := c.flushLocked(ctx, flushOrder{reason: "the table is rewritten", part: true}, []*Table{t}); err != nil {
		return false, err
	}
	if err := t.adoptLocked(ctx); err != nil {
		return false, err
	}
	cold := c.cold(t.id)
	if len(cold.newest()) == 0 && len(cold.tl.Instants) == 0 {
		return false, nil // nothing stands in files: there is nothing to replace
	}
	if err := c.notAhead(t.newestInstant(), []*Table{t}); err != nil {
		return false, err
	}
	at, cut := c.drawInstant(t)
	here := *d
	here.dir = t.def.Load().dir // the folder moves later
	f := &flush{t: t, d: &here, cold: cold, at: at, instant: timeline.FormatTime(at.In(d.zone)), cut: cut}
	f.intent = &intent{
		Instant: f.instant, Action: timeline.ReplaceCommit, Cut: cut, Reason: "the table is rewritten", Bin: newID(), Replace: true, Change: dec,
		Files: map[string][]string{},
	}
	w := &rewriter{f: f, open: map[string]*rewriteFile{}, unique: map[string]storage.Row{}, keys: map[string]bool{}}
	defer w.abort()
	if err := w.intend(); err != nil {
		return false, err
	}
	defer f.rest(ctx)
	if err := f.begin(ctx); err != nil {
		return false, firstError(err, t.undoRewrite(ctx))
	}
	f.meta = &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: timeline.OpInsertOverwriteTable, Replaced: map[string][]storage.FileID{},
		Extra: map[string]string{timeline.ExtraSchema: d.spec.Schema.Avro(false), extraWarehouse: c.id, extraBin: f.intent.Bin},
	}
	err = rows(func(key, _ string, row storage.Row) error { return w.add(ctx, key, row) })
	if err == nil {
		err = w.close(ctx)
	}
	if err != nil {
		return false, firstError(err, t.undoRewrite(ctx))
	}
	for _, fs := range cold.newest() {
		f.meta.Replaced[fs.Partition] = append(f.meta.Replaced[fs.Partition], fs.ID)
	}
	ctx = context.WithoutCancel(ctx)
	if err := f.overtaken(ctx); err != nil {
		return false, firstError(fmt.Errorf("%w: %w", ErrConflict, err), t.undoRewrite(ctx))
	}
	if err := f.complete(ctx); err != nil {
		return false, firstError(err, t.undoRewrite(ctx))
	}
	if err := t.settleRewrite(ctx, f, w.done); err != nil {
		c.unsettled = t // the instant decided; the next change, flush or start settles it
		return true, err
	}
	return true, nil
}

// undoRewrite rolls back a rewrite that failed, or settles it if it was completed after all.
func (t *Table) undoRewrite(ctx context.Context) error {
	t.c.unsettled = t
	if err := t.resolveIntent(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	t.c.unsettled = nil
	return nil
}

// settleRewrite makes a completed rewrite known: index, definition and cold state.
func (t *Table) settleRewrite(ctx context.Context, f *flush, rows []rewritten) error {
	c := t.c
	tl, err := f.cold.tl.Refresh(ctx, c.store, f.d.dir)
	if err != nil {
		return err
	}
	next := f.cold.with(tl, f.cold.view.Apply(tl, f.meta.Change(f.instant)))
	next.shape++
	done := ownInstant{time: f.instant, cut: f.cut, effect: ownEffect(f.instant, 0, f.cold.view, f.cold.counts, f.intent.Files)}
	done.barrier = true
	done.hide(f.meta.Replaced, f.cold.view, nil)
	next.addOwn(done)
	t.rows.Store(int64(len(rows)))
	t.forget(f.cut)
	undo := func() {}
	err = t.swap(next, nil, func(b *pebble.Batch) error {
		var err error
		if undo, err = c.put(b, f.intent.Change); err != nil {
			return err
		}
		if err := c.index.DropKeys(b, t.id); err != nil {
			return err
		}
		numbers := map[string]uint32{}
		for i := range rows {
			r := &rows[i]
			no, ok := numbers[r.part+"\x00"+string(r.id)]
			if !ok {
				var err error
				if no, err = c.index.GroupNumber(b, t.id, r.part, r.id); err != nil {
					return err
				}
				numbers[r.part+"\x00"+string(r.id)] = no
			}
			l := index.Location{Seq: f.cut, Group: no, Instant: f.instant, Row: r.row, Key: r.key}
			if err := c.index.PutLocation(b, t.id, []byte(r.ikey), l); err != nil {
				return err
			}
			for _, h := range r.hints {
				if err := c.index.PutSecondary(b, t.id, h.no, h.values, []byte(r.ikey)); err != nil {
					return err
				}
			}
		}
		return t.closeIntent(b)
	})
	if err != nil {
		undo()
		return err
	}
	t.lastSeq.Store(uint64(max(index.Seq(t.lastSeq.Load()), f.cut)))
	t.foreign.Store(nil)
	return c.enforce(ctx, f.intent.Change)
}

// writeProperties makes hoodie.properties say what a record says.
func (c *Catalog) writeProperties(ctx context.Context, r *tableRecord) error {
	p, err := timeline.ReadProperties(ctx, c.store, c.object(r.Dir))
	if err != nil {
		return err
	}
	spec, _, err := r.Def.spec()
	if err != nil {
		return err
	}
	want, err := c.properties(r, spec)
	if err != nil {
		return err
	}
	for _, k := range []string{timeline.KeyRecordKeyFields, timeline.KeyPrecombineField} {
		delete(p, k)
	}
	var old definition
	if err := json.Unmarshal([]byte(p[propTable]), &old); err == nil {
		for k := range old.Options { // those that are gone
			delete(p, k)
		}
	}
	for k, v := range want {
		p[k] = v
	}
	return timeline.WriteProperties(ctx, c.store, c.object(r.Dir), p)
}

// rewriter spreads the rows of a rewrite over new file groups, one open file a partition.
type rewriter struct {
	f      *flush
	open   map[string]*rewriteFile
	done   []rewritten
	keys   map[string]bool
	unique map[string]storage.Row
}

type rewriteFile struct {
	out *outFile
	w   *storage.BaseWriter
}

type rewritten struct {
	ikey  string
	key   string
	part  string
	id    storage.FileID
	row   int64
	hints []secondaryHint
}

// intend makes the intent, with the files known so far, durable.
func (w *rewriter) intend() error {
	c := w.f.t.c
	b, err := json.Marshal(w.f.intent)
	if err != nil {
		return err
	}
	w.f.t.intent = w.f.intent
	return c.putEntry(idKey(prefixIntent, w.f.t.id), b)
}

func (w *rewriter) file(ctx context.Context, part string) (*rewriteFile, error) {
	if o := w.open[part]; o != nil {
		if o.w.Bytes() < maxFileBytes {
			return o, nil
		}
		if err := w.finish(ctx, o); err != nil {
			return nil, err
		}
	}
	f, c := w.f, w.f.t.c
	out := &outFile{part: part, id: storage.NewFileID(), base: true}
	f.addFile(out)
	f.intent.Files[part] = append(f.intent.Files[part], out.name)
	if err := w.intend(); err != nil {
		return nil, err
	}
	if err := timeline.EnsurePartition(ctx, c.store, f.d.dir, part, f.instant); err != nil {
		return nil, err
	}
	if err := f.pending.Mark(ctx, part, out.name, timeline.MarkCreate); err != nil {
		return nil, err
	}
	bw, err := storage.CreateBase(ctx, c.store, f.d.object(part, out.name), f.d.spec.Schema, storage.BaseOptions{})
	if err != nil {
		return nil, err
	}
	o := &rewriteFile{out, bw}
	w.open[part] = o
	return o, nil
}

func (w *rewriter) add(ctx context.Context, key string, row storage.Row) error {
	d := w.f.d
	if len(row) != len(d.spec.Schema.Fields) {
		return fmt.Errorf("%w: a row of %d values for the %d columns of %s", ErrInvalid, len(row), len(d.spec.Schema.Fields), d)
	}
	part := d.partitionPath(row)
	var ikey []byte
	var err error
	if d.hidden() {
		if !w.f.t.def.Load().hidden() {
			key = w.f.t.c.generateKey()
		}
		ikey = d.textKey(key, part)
	} else {
		if index.HasNull(d.keyCols, row) {
			return fmt.Errorf("%w: a key column of %s is NULL", ErrInvalid, d)
		}
		key = d.recordKey(row)
		if ikey, err = d.indexKey(row, part); err != nil {
			return err
		}
	}
	if w.keys[string(ikey)] {
		return &DuplicateKeyError{Table: d.String(), Key: project(row, d.keyCols), Existing: row}
	}
	w.keys[string(ikey)] = true
	o, err := w.file(ctx, part)
	if err != nil {
		return err
	}
	r := rewritten{ikey: string(ikey), key: key, part: part, id: o.out.id, row: o.w.Rows()}
	err = indexValues(d.indexes, d, row, w.unique, func(no uint32, values []byte) { r.hints = append(r.hints, secondaryHint{no: no, values: values}) })
	if err != nil {
		return err
	}
	w.done = append(w.done, r)
	return o.w.Append(storage.RowMeta{CommitTime: w.f.instant, SeqNo: w.f.seqNo(o.out, r.row), Key: key, Partition: part}, row)
}

func (w *rewriter) finish(ctx context.Context, o *rewriteFile) error {
	delete(w.open, o.out.part)
	n := o.w.Rows()
	size, err := o.w.Commit(ctx)
	if err != nil {
		return err
	}
	noteSum(w.f.meta, o.out.name, o.w.Sum())
	w.f.meta.Stats[o.out.part] = append(w.f.meta.Stats[o.out.part], timeline.WriteStat{
		FileID: o.out.id, Partition: o.out.part, Path: join(o.out.part, o.out.name), NumWrites: n, NumInserts: n, WriteBytes: size, FileSize: size,
	})
	return nil
}

func (w *rewriter) close(ctx context.Context) error {
	for _, part := range sortedKeys(w.open) {
		if err := w.finish(ctx, w.open[part]); err != nil {
			return err
		}
	}
	return nil
}

func (w *rewriter) abort() {
	for _, o := range w.open {
		o.w.Abort()
	}
}
