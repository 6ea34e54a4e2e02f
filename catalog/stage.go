package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// ctxBackground is for what is never cut short.
var ctxBackground = context.Background()

// stagedFolder holds, below a table's folder, one folder a transaction with the files that it wrote before its commit.
const stagedFolder = ".hoodie/lakesql"

// stage is what a transaction wrote of one table into base files before its commit. Nobody else sees them. A row stands in a stage
// only if its key is new: all else that large statements change goes the way of small ones, over it.
type stage struct {
	c       *Catalog
	t       *Table
	d       *tableDef
	dir     string // object name of its folder
	at      time.Time
	instant storage.InstantTime // in the names and rows of the files; drawn anew at the decision if the table got a newer one
	seq     index.Seq           // the rows' keys were new at it
	no      uint32              // see index.RecordIndex.NewStage
	files   int                 // files begun: part of the rows' sequence numbers
	runs    []*stagedRun        // guarded by Tx.mu; oldest first
	runsSum int                 // runs begun
}

// stagedRun is the part of a stage that one statement wrote.
type stagedRun struct {
	s     *stage
	op    int32 // number of the statement's first write in the transaction
	rows  int64
	files []*stagedFile
	open  map[string]*stagedFile // being written, by partition path
	spill *partSpill             // rows of partitions that have no open file
	keys  *keyTable              // index key → place
	hints []*keyTable            // by secondary index: values → index key (UNIQUE, no NULL) or values and key → length of the values
	keep  bool                   // places name the index values too, so that a row can be taken back unread
	done  bool
	// folded: its rows are small writes of the transaction, with their own hints and their own check for conflicts.
	folded bool
	err    error // first failure: nothing of the run can be committed after it

	buf, hint []byte
}

// stagedFile is a base file of a run.
type stagedFile struct {
	part  string
	id    storage.FileID
	name  string
	group uint32 // its number in the index
	no    int    // its number in the stage
	at    int    // its position in the run
	w     *storage.BaseWriter
	rows  int64
	size  int64
	sum   uint32 // CRC-32C
	dead  rowSet // rows that were taken back or replaced
}

// place is where a row of a run stands.
type place struct {
	file  int // position in stagedRun.files, -1: in the spill
	row   int64
	key   string // record key
	hints string // index values, each with its length, if the run keeps them
}

const (
	stagedOpenMax = 4 // files of a run that are written at the same time; each holds a row group in memory
)

// rowSet is a set of rows of a file.
type rowSet struct {
	bits []uint64
	n    int64
}

func (s *rowSet) add(row int64) {
	i := int(row >> 6)
	if i >= len(s.bits) {
		s.bits = append(s.bits, make([]uint64, i+1-len(s.bits))...)
	}
	if !s.has(row) {
		s.bits[i] |= 1 << (row & 63)
		s.n++
	}
}

func (s *rowSet) has(row int64) bool {
	i := int(row >> 6)
	return i < len(s.bits) && s.bits[i]&(1<<(row&63)) != 0
}

func (p *place) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.file+1))
	dst = binary.AppendUvarint(dst, uint64(p.row))
	dst = binary.AppendUvarint(dst, uint64(len(p.key)))
	return append(append(dst, p.key...), p.hints...)
}

func decodePlace(v string) place {
	d := decoder{b: bytesView(v)}
	p := place{file: int(d.uvarint()) - 1, row: int64(d.uvarint())}
	p.key = textView(d.bytes())
	p.hints = textView(d.b)
	if d.bad {
		panic("catalog: a staged key is damaged") // made by this run in this process
	}
	return p
}

func bytesView(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stage gives the transaction's stage of a table.
func (tx *Tx) stage(tt *txTable) (*stage, error) {
	if tt.staged != nil {
		return tt.staged, nil
	}
	c, t := tx.c, tt.t
	no, err := c.index.NewStage(t.id)
	if err != nil {
		return nil, err
	}
	c.commitMu.Lock()
	at, _ := c.clock.instant(t.newestInstant())
	c.commitMu.Unlock()
	s := &stage{
		c: c, t: t, d: tt.def, dir: join(tt.def.dir, stagedFolder, newID()), at: at, instant: timeline.FormatTime(at.In(tt.def.zone)), no: no,
	}
	tx.mu.Lock()
	tt.staged = s
	tx.mu.Unlock()
	return s, nil
}

// begin starts a run.
func (s *stage) begin(op int32, keep bool) *stagedRun {
	s.runsSum++
	base := s.c.fs.PathJoin(s.c.path(s.dir), ".keys-"+strconv.Itoa(s.runsSum))
	r := &stagedRun{s: s, op: op, open: map[string]*stagedFile{}, keys: newKeyTable(s.c, base), keep: keep && len(s.d.indexes) > 0}
	for i := range s.d.indexes {
		r.hints = append(r.hints, newKeyTable(s.c, base+"-"+strconv.Itoa(i)))
	}
	return r
}

// put adds a row whose key the run does not have.
func (r *stagedRun) put(ctx context.Context, row storage.Row, key, part string, ikey []byte) error {
	r.hint = r.hint[:0]
	for i := range r.hints {
		x := &r.s.d.indexes[i]
		values, err := index.AppendKey(r.buf[:0], x.cols, row)
		if err != nil {
			return err
		}
		r.buf = values
		k, v := hintEntry(x, row, values, ikey)
		if err := r.hints[i].set(k, v); err != nil {
			return err
		}
		if r.keep {
			r.hint = append(binary.AppendUvarint(r.hint, uint64(len(values))), values...)
		}
	}
	return r.write(ctx, row, key, part, ikey)
}

// hintEntry is how index values stand in the key table of their index.
func hintEntry(x *tableIndex, row storage.Row, values, ikey []byte) (k, v []byte) {
	if x.spec.Unique && !index.HasNull(x.cols, row) {
		return values, ikey
	}
	return append(values[:len(values):len(values)], ikey...), binary.AppendUvarint(nil, uint64(len(values)))
}

// write puts a row into the file of its partition, or into the spill.
func (r *stagedRun) write(ctx context.Context, row storage.Row, key, part string, ikey []byte) error {
	f := r.open[part]
	if f == nil {
		if len(r.open) >= stagedOpenMax {
			return r.toSpill(row, key, part, ikey)
		}
		var err error
		if f, err = r.create(ctx, part); err != nil {
			return err
		}
	}
	n := f.w.Rows()
	if err := f.w.Append(storage.RowMeta{CommitTime: r.s.instant, SeqNo: r.s.seqNo(f, n), Key: key, Partition: part}, row); err != nil {
		return err
	}
	p := place{file: f.at, row: n, key: key, hints: textView(r.hint)}
	r.buf = p.append(r.buf[:0])
	if err := r.keys.set(ikey, r.buf); err != nil {
		return err
	}
	r.rows++
	if f.w.Rows()%1024 == 0 && f.w.Bytes() >= maxFileBytes {
		return r.closeFile(ctx, f)
	}
	return nil
}

func (s *stage) seqNo(f *stagedFile, n int64) string {
	b := make([]byte, 0, 32)
	b = append(append(b, s.instant...), '_')
	b = append(strconv.AppendInt(b, int64(f.no), 10), '_')
	return string(strconv.AppendInt(b, n, 10))
}

// create begins a file in a new file group.
func (r *stagedRun) create(ctx context.Context, part string) (*stagedFile, error) {
	s := r.s
	f := &stagedFile{part: part, id: storage.NewFileID(), no: s.files}
	s.files++
	b := s.c.db.NewBatch() // the entry of the group is written with the decision
	defer b.Close()
	var err error
	if f.group, err = s.c.index.GroupNumber(b, s.t.id, part, f.id); err != nil {
		return nil, err
	}
	if err := s.writer(ctx, f, 0); err != nil {
		return nil, err
	}
	f.at = len(r.files)
	r.files = append(r.files, f)
	r.open[part] = f
	return f, nil
}

func (s *stage) writer(ctx context.Context, f *stagedFile, rows int) (err error) {
	f.name = storage.BaseFileName(f.id, storage.NewToken(f.no), s.instant)
	f.w, err = storage.CreateBase(ctx, s.c.store, join(s.dir, f.part, f.name), s.d.spec.Schema, storage.BaseOptions{ExpectedRows: rows})
	return err
}

func (r *stagedRun) closeFile(ctx context.Context, f *stagedFile) error {
	if r.open[f.part] == f {
		delete(r.open, f.part)
	}
	return f.commit(ctx)
}

func (f *stagedFile) commit(ctx context.Context) (err error) {
	w := f.w
	f.rows = w.Rows()
	f.size, err = w.Commit(ctx)
	f.w, f.sum = nil, w.Sum()
	return err
}

// kill takes a row of the run back.
func (r *stagedRun) kill(ikey []byte, p place) error {
	rest := decoder{b: bytesView(p.hints)}
	for i := range r.hints {
		x := &r.s.d.indexes[i]
		values := rest.bytes()
		// A value with NULL stands with its key, which a UNIQUE one without does not.
		for _, k := range [][]byte{values, append(values[:len(values):len(values)], ikey...)} {
			v, ok, err := r.hints[i].get(k)
			if err != nil {
				return err
			}
			if ok && (len(k) > len(values) || x.spec.Unique && v == textView(ikey)) {
				if err := r.hints[i].remove(k); err != nil {
					return err
				}
			}
		}
	}
	r.rows--
	if p.file < 0 {
		r.spill.dead[p.row] = true
		return r.keys.remove(ikey)
	}
	r.files[p.file].dead.add(p.row)
	return r.keys.remove(ikey)
}

// cut makes every row of the run readable: files that are being written end here.
func (r *stagedRun) cut(ctx context.Context) (err error) {
	if r.done || r.err != nil {
		return r.err
	}
	defer func() { r.err = err }()
	for _, part := range sortedKeys(r.open) {
		if err := r.closeFile(ctx, r.open[part]); err != nil {
			return err
		}
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	for i, f := range r.files {
		if f.dead.n > 0 {
			if err := r.compact(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish ends the run.
func (r *stagedRun) finish(ctx context.Context) error {
	if r.done {
		return nil
	}
	if err := r.cut(ctx); err != nil {
		return err
	}
	r.done = true
	return nil
}

// compact writes a file again without the rows that were taken back.
func (r *stagedRun) compact(ctx context.Context, n int) error {
	f, d := r.files[n], r.s.d
	old := *f
	if f.dead.n == f.rows {
		f.rows, f.size, f.dead = 0, 0, rowSet{}
		return r.s.drop(&old)
	}
	if err := r.s.writer(ctx, f, int(f.rows-f.dead.n)); err != nil {
		return err
	}
	at := int64(0)
	err := r.s.rows(ctx, &old, func(b storage.Batch, i int) error {
		at++
		if old.dead.has(at - 1) {
			return nil
		}
		key, _ := b.Value(slices.Index(storage.MetaColumns, storage.ColRecordKey), i).(string)
		ikey, err := d.batchKey(b, i, key, f.part)
		if err != nil {
			return err
		}
		v, ok, err := r.keys.get(ikey)
		if err != nil || !ok {
			return firstError(err, fmt.Errorf("table %s: staged key %s is missing", d, key))
		}
		p := decodePlace(v)
		p.row = f.w.Rows()
		if err := r.keys.set(ikey, p.append(nil)); err != nil {
			return err
		}
		return f.w.AppendMerged(b, i)
	})
	if err != nil {
		f.w.Abort()
		*f = old
		return err
	}
	f.dead = rowSet{}
	if err := f.commit(ctx); err != nil {
		return err
	}
	return r.s.drop(&old)
}

// batchKey gives the index key of a row of a batch of all columns, the meta columns first.
func (d *tableDef) batchKey(b storage.Batch, i int, key, part string) ([]byte, error) {
	if d.hidden() {
		return d.textKey(key, part), nil
	}
	row := make(storage.Row, len(d.spec.Schema.Fields))
	for _, k := range d.keyCols {
		row[k.Field] = b.Value(len(storage.MetaColumns)+k.Field, i)
	}
	return d.indexKey(row, part)
}

// rows reads a file of the stage with all its columns.
func (s *stage) rows(ctx context.Context, f *stagedFile, do func(b storage.Batch, i int) error) error {
	want, err := s.d.spec.Schema.Select(append(slices.Clone(storage.MetaColumns), fieldNames(s.d.spec.Schema)...)...)
	if err != nil {
		return err
	}
	for b, err := range s.c.reader.ReadSlice(ctx, s.dir, s.slice(f), s.d.scan(want, s.counts)) {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			if err := do(b, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts: every file of a stage is whole.
func (s *stage) counts(storage.InstantTime) bool { return true }

// slice gives a file as readers of the stage's folder know it.
func (s *stage) slice(f *stagedFile) storage.FileSlice {
	n, _ := storage.ParseFileName(f.name)
	n.Size = f.size
	return storage.FileSlice{Partition: f.part, ID: f.id, Begin: n.Instant, Base: &n}
}

// drop removes a file of the stage.
func (s *stage) drop(f *stagedFile) error {
	name := join(s.dir, f.part, f.name)
	s.c.reader.Forget(name)
	return s.c.store.Remove(ctxBackground, name)
}

// read gives a row of the run by its key.
func (r *stagedRun) read(ctx context.Context, ikey []byte) (storage.Row, error) {
	p, ok, err := r.find(ikey)
	if err == nil && ok && (p.file < 0 || r.files[p.file].w != nil) {
		if err = r.cut(ctx); err == nil {
			p, ok, err = r.find(ikey)
		}
	}
	if err != nil {
		return nil, err
	}
	d := r.s.d
	if ok {
		b, err := r.s.c.reader.LookupMany(ctx, r.s.dir, r.s.slice(r.files[p.file]), d.scan(d.spec.Schema, r.s.counts), []string{p.key}, []int64{p.row})
		if err != nil {
			return nil, err
		}
		if b.Rows > 0 {
			return b.Row(0, nil), nil
		}
	}
	return nil, fmt.Errorf("table %s: a staged row is missing", d)
}

// find gives the place of a key in the run.
func (r *stagedRun) find(ikey []byte) (place, bool, error) {
	v, ok, err := r.keys.get(ikey)
	if err != nil || !ok {
		return place{}, false, err
	}
	return decodePlace(v), true, nil
}

// owner gives the key of the run's row that has a UNIQUE value.
func (r *stagedRun) owner(n int, values []byte) ([]byte, bool, error) {
	v, ok, err := r.hints[n].get(values)
	return bytesView(v), ok, err
}

// close ends the writers and key tables of the run.
func (r *stagedRun) close() error {
	var first error
	for _, f := range r.files {
		if f.w != nil {
			f.w.Abort()
			f.w = nil
		}
	}
	if r.spill != nil {
		first = r.spill.close()
	}
	for _, k := range append(r.hints, r.keys) {
		first = firstError(first, k.close())
	}
	return first
}

// discard removes the stage with its files. What cannot be removed now is when the warehouse is opened next.
func (s *stage) discard() {
	var first error
	for _, r := range s.runs {
		first = firstError(first, r.close())
	}
	s.runs = nil
	// The table may have been renamed meanwhile.
	dir := join(s.t.def.Load().dir, s.dir[len(s.d.dir):])
	s.c.reader.Forget(s.dir + "/")
	first = firstError(first, s.c.store.Remove(ctxBackground, dir+"/"))
	if first != nil && !errors.Is(first, storage.ErrNotExist) {
		s.c.log.Warn("remove staged files", "folder", dir, "err", first)
	}
}

// truncate removes the runs from a mark on.
func (s *stage) truncate(m Mark) {
	for n := len(s.runs); n > 0 && int(s.runs[n-1].op) >= int(m); n = len(s.runs) {
		r := s.runs[n-1]
		s.runs = s.runs[:n-1]
		err := r.close()
		for _, f := range r.files {
			if f.size > 0 {
				err = firstError(err, s.drop(f))
			}
		}
		if err != nil {
			s.c.log.Warn("remove staged files", "folder", s.dir, "err", err)
		}
	}
}

// rows counts the rows of the stage.
func (s *stage) count() (n int64) {
	for _, r := range s.runs {
		n += r.rows
	}
	return n
}

// stagedRow finds a row that the transaction staged.
func (tt *txTable) stagedRow(ikey []byte) (*stagedRun, place, bool, error) {
	if tt.staged == nil {
		return nil, place{}, false, nil
	}
	for _, r := range slices.Backward(tt.staged.runs) {
		if p, ok, err := r.find(ikey); err != nil || ok {
			return r, p, ok, err
		}
	}
	return nil, place{}, false, nil
}

// visible gives the runs of a table that a read of the transaction sees, every row of them in a file.
func (tx *Tx) visible(ctx context.Context, tt *txTable, o ScanOptions) ([]*stagedRun, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tt.staged == nil {
		return nil, nil
	}
	var out []*stagedRun
	for _, r := range tt.staged.runs {
		if o.UseMark && int(r.op) >= int(o.Mark) {
			continue
		}
		if err := r.cut(ctx); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// slices gives the files of runs.
func stagedSlices(runs []*stagedRun) (out []storage.FileSlice) {
	for _, r := range runs {
		for _, f := range r.files {
			if f.rows > 0 {
				out = append(out, r.s.slice(f))
			}
		}
	}
	return out
}
