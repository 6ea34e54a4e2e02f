package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// everyWorld is a warehouse under the workload of TestCrashEvery, with what another writer of its tables began.
type everyWorld struct {
	fs      vfs.FS
	c       *Catalog
	foreign *foreignInstants
}

// foreignInstants are those of the other writer: what it leaves is not ours to remove.
type foreignInstants struct {
	mu  sync.Mutex
	all map[storage.InstantTime]bool // guarded by mu
}

func (f *foreignInstants) has(it storage.InstantTime) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[it]
}

// foreignToken stands in the names of its logs.
const foreignToken = 777777

func (f *foreignInstants) add(it storage.InstantTime) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[storage.InstantTime]bool{}
	}
	f.all[it] = true
}

// everyStage is the number of rows from which a statement of the workload is a large one.
const everyStage = 8

func (w *everyWorld) open(ctx context.Context) (err error) {
	w.c, err = Open(ctx, "data", Options{FS: w.fs, StageRows: everyStage})
	return err
}

// die closes the files of a warehouse, as its end without a stop does.
func (w *everyWorld) die() error {
	w.c.watcher.close()
	w.c.reader.Close()
	w.c.clock.end()
	return w.c.db.Close()
}

// everyStep is one step of the workload.
type everyStep struct {
	name string
	do   func(ctx context.Context, w *everyWorld) error
}

func everyRow(id int32, v int64) storage.Row {
	return storage.Row{id, fmt.Sprint("p", id%3), int64(id)*1000 + v}
}

// everyTx is a transaction with short forms of writes.
type everyTx struct {
	ctx context.Context
	w   *everyWorld
	*Tx
}

func everyCommit(name string, f func(tx everyTx) error) everyStep {
	return everyStep{name, func(ctx context.Context, w *everyWorld) error {
		tx, err := w.c.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(everyTx{ctx, w, tx}); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}}
}

// put inserts the rows of ids, or updates them.
func (tx everyTx) put(table string, v int64, ids ...int32) error {
	tab := ddlTable(tx.w.c, "d."+table)
	for _, id := range ids {
		old, ok, err := tx.Get(tx.ctx, tab, storage.Row{id})
		if err != nil {
			return err
		}
		row := everyRow(id, v)
		for len(row) < len(tab.Spec().Schema.Fields) {
			row = append(row, int32(v))
		}
		if ok {
			err = tx.Update(tx.ctx, tab, old, row)
		} else {
			err = tx.Insert(tx.ctx, tab, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (tx everyTx) del(table string, ids ...int32) error {
	tab := ddlTable(tx.w.c, "d."+table)
	for _, id := range ids {
		old, ok, err := tx.Get(tx.ctx, tab, storage.Row{id})
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("row %d of %s is gone", id, table)
		}
		if err := tx.Delete(tx.ctx, tab, old); err != nil {
			return err
		}
	}
	return nil
}

func (tx everyTx) load(table string, mode DuplicateMode, v int64, ids ...int32) error {
	tab := ddlTable(tx.w.c, "d."+table)
	b, err := tx.BulkInsert(tx.ctx, tab, mode)
	if err != nil {
		return err
	}
	defer b.Abort()
	rows := storage.NewBuilder(tab.Spec().Schema)
	for _, id := range ids {
		row := everyRow(id, v)
		for len(row) < len(tab.Spec().Schema.Fields) {
			row = append(row, nil)
		}
		if err := rows.Append(row); err != nil {
			return err
		}
	}
	if err := b.Append(rows.Batch()); err != nil {
		return err
	}
	_, err = b.Finish()
	return err
}

func span(from, to int32) (out []int32) {
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

// foreignWrite has another warehouse write an instant to a table: upserts of the rows in files that change gives anew (nil: the row goes,
// in copy-on-write tables), and fresh rows in a new file group; or, as a clustering, all rows in new file groups.
func (w *everyWorld) foreignWrite(ctx context.Context, table string, cluster bool, change func(storage.Row) (storage.Row, bool), fresh ...storage.Row) error {
	c, t := w.c, ddlTable(w.c, "d."+table)
	d := t.def.Load()
	tl, err := timeline.Load(ctx, c.store, d.dir)
	if err != nil {
		return err
	}
	view, err := timeline.BuildView(ctx, c.store, d.dir, tl)
	if err != nil {
		return err
	}
	newest, err := timeline.ParseTime(tl.Newest(), time.UTC)
	if err != nil {
		newest = time.Time{}
	}
	c.commitMu.Lock()
	at, _ := c.clock.instant(newest)
	c.commitMu.Unlock()
	if err := sleepUntil(ctx, time.Now, at); err != nil {
		return err
	}
	it := timeline.FormatTime(at)
	w.foreign.add(it)
	action, op := timeline.Commit, timeline.OpUpsert
	switch {
	case cluster:
		action, op = timeline.ReplaceCommit, timeline.OpCluster
	case d.spec.MergeOnRead:
		action = timeline.DeltaCommit
	}
	p, err := timeline.Begin(ctx, c.store, d.dir, action, it, nil)
	if err != nil {
		return err
	}
	meta := &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: op, Extra: map[string]string{timeline.ExtraSchema: d.spec.Schema.Avro(false)},
	}
	base := func(part string, id storage.FileID, prev storage.InstantTime, rows []storage.Row) error {
		if err := timeline.EnsurePartition(ctx, c.store, d.dir, part, it); err != nil {
			return err
		}
		name := storage.BaseFileName(id, storage.NewToken(0), it)
		b, err := storage.CreateBase(ctx, c.store, d.object(part, name), d.spec.Schema, storage.BaseOptions{})
		if err != nil {
			return err
		}
		for i, row := range rows {
			if err := b.Append(storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_0_%d", it, i), Key: d.recordKey(row), Partition: part}, row); err != nil {
				b.Abort()
				return err
			}
		}
		size, err := b.Commit(ctx)
		meta.Stats[part] = append(meta.Stats[part], timeline.WriteStat{FileID: id, Partition: part, Path: join(part, name), PrevCommit: prev, NumWrites: int64(len(rows)), FileSize: size})
		return err
	}
	for _, fs := range view.Slices("", nil) {
		rows, err := w.slice(ctx, t, tl, fs)
		if err != nil {
			return err
		}
		var left []storage.Row
		var puts []storage.LogRecord
		for i, row := range rows {
			next, ok := row, false
			if change != nil {
				next, ok = change(row)
			}
			if next != nil {
				left = append(left, next)
			}
			if ok {
				puts = append(puts, storage.LogRecord{RowMeta: storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_1_%d", it, i), Key: d.recordKey(row), Partition: fs.Partition}, Row: next})
			}
		}
		switch {
		case cluster:
			if meta.Replaced == nil {
				meta.Replaced = map[string][]storage.FileID{}
			}
			meta.Replaced[fs.Partition] = append(meta.Replaced[fs.Partition], fs.ID)
			err = base(fs.Partition, storage.NewFileID(), "", left)
		case len(puts) == 0:
		case d.spec.MergeOnRead:
			version := 0
			for _, l := range fs.Logs {
				version = max(version, l.Version)
			}
			name := storage.LogFileName(fs.ID, fs.Begin, version+1, storage.NewToken(foreignToken))
			var st storage.LogStats
			st, err = storage.WriteLog(ctx, c.store, d.object(fs.Partition, name), it, d.spec.Schema, fs.ID, puts, nil)
			meta.Stats[fs.Partition] = append(meta.Stats[fs.Partition], timeline.WriteStat{
				FileID: fs.ID, Partition: fs.Partition, Path: join(fs.Partition, name), PrevCommit: fs.Begin, FileSize: st.Bytes, Log: &timeline.LogStat{Version: version + 1, BaseFile: fs.Base.Name},
			})
		default:
			err = base(fs.Partition, fs.ID, fs.Begin, left)
		}
		if err != nil {
			return err
		}
	}
	parts := map[string][]storage.Row{}
	for _, row := range fresh {
		parts[d.partitionPath(row)] = append(parts[d.partitionPath(row)], row)
	}
	for _, part := range sortedKeys(parts) {
		if err := base(part, storage.NewFileID(), "", parts[part]); err != nil {
			return err
		}
	}
	if err := p.Complete(ctx, meta); err != nil {
		return err
	}
	return t.adopt(ctx)
}

// slice reads a file slice.
func (w *everyWorld) slice(ctx context.Context, t *Table, tl *timeline.Timeline, fs storage.FileSlice) (rows []storage.Row, err error) {
	d := t.def.Load()
	for b, err := range w.c.reader.ReadSlice(ctx, d.dir, fs, d.scan(d.spec.Schema, tl.Counts)) {
		if err != nil {
			return nil, err
		}
		for i := range b.Rows {
			rows = append(rows, b.Row(i, nil))
		}
	}
	return rows, nil
}

// everySteps is a workload in which each kind of change meets rows in files and rows that wait.
func everySteps() []everyStep {
	create := func(name string, change func(*TableSpec)) everyStep {
		return everyStep{"create " + name, func(ctx context.Context, w *everyWorld) error {
			s := testSpec()
			s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}, Unique: true}}
			change(&s)
			_, err := w.c.CreateTable(ctx, "d", name, s)
			return err
		}}
	}
	flush := func(names ...string) everyStep {
		return everyStep{"flush " + strings.Join(names, " "), func(ctx context.Context, w *everyWorld) error {
			var tables []*Table
			for _, n := range names {
				tables = append(tables, ddlTable(w.c, "d."+n))
			}
			return w.c.Flush(ctx, "test", tables...)
		}}
	}
	change := func(name string, f func(c *Catalog) Change) everyStep {
		return everyStep{name, func(ctx context.Context, w *everyWorld) error { return w.c.Change(ctx, f(w.c)) }}
	}
	foreign := func(name, table string, cluster bool, change func(storage.Row) (storage.Row, bool), fresh ...storage.Row) everyStep {
		return everyStep{name, func(ctx context.Context, w *everyWorld) error {
			return w.foreignWrite(ctx, table, cluster, change, fresh...)
		}}
	}
	all := func(tx everyTx, v int64, ids ...int32) error {
		return firstError(tx.put("cow", v, ids...), tx.put("mor", v, ids...), tx.put("evt", v, ids...))
	}
	return []everyStep{
		{"create database", func(ctx context.Context, w *everyWorld) error { return w.c.CreateDatabase(ctx, "d", []byte("1")) }},
		create("cow", func(s *TableSpec) { s.MergeOnRead = false }),
		create("mor", func(s *TableSpec) {}),
		create("evt", func(s *TableSpec) {
			s.Partition, s.Ordering, s.OrderingField, s.Indexes = []string{"name"}, storage.EventTime, "v", nil
		}),
		everyCommit("insert into all", func(tx everyTx) error { return all(tx, 1, 1, 2, 3) }),
		everyCommit("change in all", func(tx everyTx) error {
			return firstError(all(tx, 2, 1, 4), tx.del("cow", 2), tx.del("mor", 2), tx.del("evt", 2))
		}),
		flush(),
		everyCommit("insert again", func(tx everyTx) error { return all(tx, 3, 2, 3, 5) }),
		everyCommit("load into one, insert into the others", func(tx everyTx) error {
			return firstError(tx.load("mor", DuplicateFail, 4, span(100, 115)...), tx.put("cow", 4, 6), tx.put("evt", 4, 6))
		}),
		everyCommit("load into two", func(tx everyTx) error {
			return firstError(tx.load("cow", DuplicateFail, 5, span(100, 112)...), tx.load("evt", DuplicateReplace, 5, span(96, 110)...), tx.put("mor", 5, 6))
		}),
		everyCommit("change over the load", func(tx everyTx) error { return all(tx, 6, 100, 101) }),
		flush("mor"),
		everyCommit("many updates in two, one in the other", func(tx everyTx) error {
			return firstError(tx.put("mor", 7, span(100, 109)...), tx.put("evt", 7, span(96, 105)...), tx.put("cow", 7, 3))
		}),
		everyCommit("many deletes", func(tx everyTx) error {
			return firstError(tx.del("cow", span(102, 111)...), tx.put("cow", 8, 200), tx.del("evt", 97))
		}),
		everyCommit("load that replaces", func(tx everyTx) error { return tx.load("cow", DuplicateReplace, 9, span(95, 106)...) }),
		flush(),
		foreign("foreign commit", "cow", false, func(row storage.Row) (storage.Row, bool) {
			switch row[0] {
			case int32(4):
				return nil, true
			case int32(5):
				return everyRow(5, 10), true
			}
			return row, false
		}, everyRow(300, 10)),
		everyCommit("change beside a foreign writer", func(tx everyTx) error { return all(tx, 11, 1, 5) }),
		foreign("foreign deltacommit over rows that wait", "mor", false, func(row storage.Row) (storage.Row, bool) {
			if id := row[0].(int32); id == 5 || id == 6 {
				return everyRow(id, 12), true
			}
			return row, false
		}, everyRow(301, 12)),
		foreign("foreign event-time rows", "evt", false, func(row storage.Row) (storage.Row, bool) {
			id := row[0].(int32)
			switch id {
			case 5: // older than what waits
				return everyRow(id, 10), true
			case 1, 6:
				return everyRow(id, 13), true
			}
			return row, false
		}, everyRow(302, 13)),
		everyCommit("change over foreign rows", func(tx everyTx) error {
			return firstError(tx.put("cow", 14, 300), tx.put("mor", 14, 301, 6), tx.put("evt", 14, 302, 6))
		}),
		{"an end without a stop", func(ctx context.Context, w *everyWorld) error { return firstError(w.die(), w.open(ctx)) }},
		flush("evt", "mor"),
		foreign("foreign clustering", "mor", true, nil),
		everyCommit("change over a clustering", func(tx everyTx) error { return firstError(tx.put("mor", 15, 1, 107), tx.del("mor", 108)) }),
		{"instant mode", func(ctx context.Context, w *everyWorld) error {
			return everyCommit("", func(tx everyTx) error {
				tx.Instant = true
				return all(tx, 16, 1, 400)
			}).do(ctx, w)
		}},
		everyCommit("insert before alterations", func(tx everyTx) error { return all(tx, 17, 401, 402) }),
		change("add a column", func(c *Catalog) Change {
			t := ddlTable(c, "d.mor")
			spec, columns := ddlWiden(t, "w")
			return Change{Tables: []TableChange{{Table: t, Spec: spec, Columns: columns, Base: t.Version()}}}
		}),
		everyCommit("insert into what was altered", func(tx everyTx) error { return all(tx, 18, 403) }),
		change("rewrite", func(c *Catalog) Change {
			t := ddlTable(c, "d.cow")
			spec, columns := ddlWiden(t, "z")
			convert := func(old storage.Row) (storage.Row, error) { return append(slices.Clone(old), int32(7)), nil }
			return Change{Tables: []TableChange{{Table: t, Spec: spec, Columns: columns, Convert: convert, Base: t.Version()}}}
		}),
		everyCommit("insert into what was rewritten", func(tx everyTx) error { return all(tx, 19, 1, 404) }),
		change("swap", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.cow"), Name: "mor"}, {Table: ddlTable(c, "d.mor"), Name: "cow"}}}
		}),
		everyCommit("change after the swap", func(tx everyTx) error { return all(tx, 20, 1, 405) }),
		change("drop", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.cow"), Drop: true}}}
		}),
		{"undrop", func(ctx context.Context, w *everyWorld) error { _, err := w.c.Undrop(ctx, "d", "cow", ""); return err }},
		everyCommit("change after the return", func(tx everyTx) error { return all(tx, 21, 405) }),
		{"truncate", func(ctx context.Context, w *everyWorld) error {
			_, err := w.c.TruncateTable(ctx, ddlTable(w.c, "d.evt"))
			return err
		}},
		everyCommit("load after the truncation", func(tx everyTx) error {
			return firstError(tx.load("evt", DuplicateFail, 22, span(1, 12)...), tx.put("cow", 22, 1), tx.put("mor", 22, 1))
		}),
		{"the state's tables are written", func(_ context.Context, w *everyWorld) error { return w.c.db.Flush() }},
		everyCommit("change before the stop", func(tx everyTx) error { return all(tx, 23, 1, 2) }),
		{"stop and start", func(ctx context.Context, w *everyWorld) error { return firstError(w.c.Close(ctx), w.open(ctx)) }},
		everyCommit("change after the start", func(tx everyTx) error { return firstError(all(tx, 24, 1), tx.del("cow", 2)) }),
		change("drop for a moment", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.mor"), Drop: true}}, Retention: time.Nanosecond}
		}),
		{"purge", func(ctx context.Context, w *everyWorld) error {
			time.Sleep(time.Millisecond)
			return w.c.PurgeDropped(ctx)
		}},
	}
}

// everyState writes down everything that a warehouse shows, and checks that each row is found by key and by index.
func everyState(c *Catalog) (string, error) {
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	var out strings.Builder
	for _, db := range c.Databases() {
		_, body, _ := c.Database(db)
		fmt.Fprintf(&out, "%s %s:", db, body)
		for _, name := range c.TableNames(db) {
			t, _ := c.Table(db, name)
			var rows []string
			for b, err := range tx.Scan(ctx, t, ScanOptions{}) {
				if err != nil {
					return "", fmt.Errorf("%s.%s: %w", db, name, err)
				}
				for i := range b.Rows {
					row := b.Row(i, nil)
					rows = append(rows, everyText(row))
					if got, ok, err := tx.Get(ctx, t, row[:1]); err != nil || !ok || fmt.Sprint(got) != fmt.Sprint(row) {
						return "", fmt.Errorf("%s.%s: key %v gives %v %v, a scan %v %w", db, name, row[0], got, ok, row, orWrong(err))
					}
					if len(t.Spec().Indexes) == 0 {
						continue
					}
					found := 0
					for lb, err := range tx.Lookup(ctx, t, "by_v", []KeyRange{{Low: row[2:3], High: row[2:3]}}, ScanOptions{}) {
						if err != nil {
							return "", err
						}
						found += lb.Rows
					}
					if found != 1 {
						return "", fmt.Errorf("%w: %s.%s: the index has %d rows of %v", errWrong, db, name, found, row)
					}
				}
			}
			sort.Strings(rows)
			fmt.Fprintf(&out, "\n  %s(%s): %s", name, strings.Join(fieldNames(t.Spec().Schema), " "), strings.Join(rows, " "))
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

// errWrong is a wrong answer, which no failure of the disk excuses.
var errWrong = errors.New("wrong answer")

func orWrong(err error) error {
	if err == nil {
		return errWrong
	}
	return err
}

func everyText(row storage.Row) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]any(row)), " ", "/"), "[]")
}

// everyCold compares what another engine reads with what the warehouse shows, after everything was flushed.
func (w *everyWorld) everyCold(ctx context.Context) error {
	tx, err := w.c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, t := range w.c.tablesByID() {
		var ours []string
		for b, err := range tx.Scan(ctx, t, ScanOptions{}) {
			if err != nil {
				return err
			}
			for i := range b.Rows {
				ours = append(ours, everyText(b.Row(i, nil)))
			}
		}
		theirs, err := w.files(ctx, t)
		if err != nil {
			return err
		}
		sort.Strings(ours)
		if !slices.Equal(ours, theirs) {
			return fmt.Errorf("%w: table %s in files: %s, here: %s", errWrong, t, strings.Join(theirs, " "), strings.Join(ours, " "))
		}
	}
	return nil
}

// files reads the rows of a table as another engine does, sorted.
func (w *everyWorld) files(ctx context.Context, t *Table) (out []string, err error) {
	d := t.def.Load()
	tl, err := timeline.Load(ctx, w.c.store, d.dir)
	if err != nil {
		return nil, err
	}
	view, err := timeline.BuildView(ctx, w.c.store, d.dir, tl)
	if err != nil {
		return nil, err
	}
	for _, fs := range view.Slices("", nil) {
		rows, err := w.slice(ctx, t, tl, fs)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			out = append(out, everyText(row))
		}
	}
	sort.Strings(out)
	return out, nil
}

// everyLeft looks for what nobody will remove: in the tables' folders, beside them and in the hot tier. Only a foreign writer's are left alone.
func (w *everyWorld) everyLeft(ctx context.Context) error {
	c := w.c
	known := map[string]bool{} // files of tables that instants name, and those of the other writer
	keep := map[string]bool{}  // folders of tables, present and dropped
	ids := map[uint32]bool{}
	for _, t := range c.tablesByID() {
		d := t.def.Load()
		keep[d.dir] = true
		ids[uint32(t.id)] = true
		if t.intent != nil {
			return fmt.Errorf("table %s: the intent of instant %s is left", d, t.intent.Instant)
		}
		k := &checker{c: c, t: t, d: d}
		if err := k.readTimeline(ctx); err != nil {
			return err
		}
		for name := range k.known {
			known[name] = true
		}
		for _, in := range k.tl.Pending() {
			if !w.foreign.has(in.Time) {
				return fmt.Errorf("table %s: instant %s of ours is left", d, in)
			}
		}
	}
	dropped, err := c.droppedTables()
	if err != nil {
		return err
	}
	for _, d := range dropped {
		keep[c.object(c.droppedDir(d.Record.ID))] = true
		ids[uint32(d.Record.ID)] = true
	}
	it, err := c.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		k := it.Key()
		switch k[0] {
		case prefixMeta:
			if name := string(k[1:]); strings.HasPrefix(name, noteSteps) || strings.HasPrefix(name, noteGone) || name == metaRebuild {
				return fmt.Errorf("the note %q is left", name)
			}
		case prefixJournal:
		case prefixIntent:
			return fmt.Errorf("an intent is left: %x", k)
		default:
			if id := uint32(k[1])<<24 | uint32(k[2])<<16 | uint32(k[3])<<8 | uint32(k[4]); !ids[id] {
				return fmt.Errorf("entry %q belongs to table %d, which there is not", k, id)
			}
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return w.walk(c.root, "", keep, known)
}

// walk looks at the files below a folder; table is the folder of the table that it belongs to.
func (w *everyWorld) walk(dir, table string, keep, known map[string]bool) error {
	names, err := w.fs.List(w.c.path(dir))
	if err != nil {
		return err
	}
	for _, n := range names {
		full := join(dir, n)
		st, err := w.fs.Stat(w.c.path(full))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		left := func() error { return fmt.Errorf("%s is left", full) }
		rel := strings.TrimPrefix(full, table+"/")
		switch {
		case strings.HasPrefix(n, storage.TempPrefix) || strings.HasSuffix(n, ".tmp"):
			return left()
		case table == "": // databases, and what belongs to none
			switch depth := strings.Count(full, "/") - strings.Count(w.c.root, "/"); {
			case keep[full]:
				if err := w.walk(full, full, keep, known); err != nil {
					return err
				}
			case depth == 1 && st.IsDir() && n != objectsFolder:
				if err := w.walk(full, "", keep, known); err != nil {
					return err
				}
			case depth > 1:
				return left()
			}
		case strings.HasPrefix(rel, ".hoodie"):
			in := storage.InstantTime(n)
			switch folder := strings.TrimSuffix(strings.TrimSuffix(rel, n), "/"); {
			case rel == ".hoodie/lock" && strings.Contains(table, droppedFolder): // goes when the table comes back
			case rel == ".hoodie/lock", rel == ".hoodie/hoodie.properties.backup":
				return left()
			case folder == stagedFolder && rel != keptFolder, folder == ".hoodie/.heartbeat" && !w.foreign.has(in), folder == ".hoodie/.temp" && !w.foreign.has(in):
				return left()
			case st.IsDir() && rel != keptFolder:
				if err := w.walk(full, table, keep, known); err != nil {
					return err
				}
			}
		case st.IsDir():
			if err := w.walk(full, table, keep, known); err != nil {
				return err
			}
		default:
			if f, ok := storage.ParseFileName(n); ok && !known[full] && !w.foreignFile(full, f) && !strings.Contains(table, droppedFolder) {
				return left()
			}
		}
	}
	return nil
}

// foreignFile tells whether the other writer wrote a file: it names its instant, or is a log of one of its own tokens.
func (w *everyWorld) foreignFile(name string, f storage.FileName) bool {
	return w.foreign.has(f.Instant) || f.Version > 0 && strings.Contains(name, fmt.Sprintf("_%d-", foreignToken))
}
