package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// CheckLevel says how much Check looks at. Each level includes those before it.
type CheckLevel uint8

const (
	CheckQuick    CheckLevel = iota // properties, timeline, presence, size and footer of files
	CheckMedium                     // the contents of files and journal, what was begun and not ended, what was left behind
	CheckExtended                   // every index entry and the row it is for, both ways
)

// Severity says what a Problem means for the table.
type Severity uint8

const (
	Damage  Severity = iota // rows are lost, wrong or not found by every reader
	Warning                 // nothing is lost, but something should be looked after
	Note                    // nothing has to be done
)

// Problem is one finding of Check.
type Problem struct {
	Severity Severity
	Object   string // file, or the part of the hot tier: "index", "journal"
	Offset   int64  // in the file, in bytes; -1 if unknown
	Key      string // record key, "" if it is not about one
	Text     string // what is wrong
	Advice   string // what to do, "" if there is nothing
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Object)
	if p.Offset >= 0 {
		fmt.Fprintf(&b, ", byte %d", p.Offset)
	}
	if p.Key != "" {
		fmt.Fprintf(&b, ", key %s", p.Key)
	}
	b.WriteString(": " + p.Text)
	if p.Advice != "" {
		b.WriteString("; " + p.Advice)
	}
	return b.String()
}

// What to do about damage.
const (
	adviceFile    = "restore the file from a copy of the folder, or write the rows anew"
	adviceRebuild = "stop the server cleanly, remove the state folder and start: the index is built anew from the files"
	advicePending = "if its writer is gone, roll it back with its engine's tools"
)

// problemsMax is how many problems of a kind are listed; the others are counted.
const problemsMax = 20

// pendingAge is how old an unfinished instant is when it is pointed out.
const pendingAge = time.Hour

// Check looks for damage in a table, as of its newest state. Each pair is a Problem, or at the end the error that stopped the check.
// progress, if it is not nil, is told how many of about how many steps are done; it must not block.
func (c *Catalog) Check(ctx context.Context, t *Table, level CheckLevel, progress func(done, total int64)) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		k := &checker{c: c, t: t, level: level, yield: yield, progress: progress, counts: map[string]int{}}
		err := k.run(ctx)
		if errors.Is(err, errCheckStopped) {
			return
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(Problem{}, fmt.Errorf("check %s: %w", t, err))
		}
	}
}

var errCheckStopped = errors.New("catalog: nobody wants more findings")

// checker is one run of Check.
type checker struct {
	c        *Catalog
	t        *Table
	d        *tableDef
	s        *snapshot
	tt       *tableView
	level    CheckLevel
	yield    func(Problem, error) bool
	progress func(done, total int64)
	counts   map[string]int // problems by kind
	order    []string       // kinds, as they came
	done     int64
	total    int64

	tl       *timeline.Timeline
	expected map[string]expectedFile // by object name: files that the newest slices need
	known    map[string]bool         // every file that an instant on the timeline names
	bad      map[string]bool         // files that were reported
}

// expectedFile is what the timeline says of a file.
type expectedFile struct {
	by   storage.InstantTime // instant that wrote it
	part string
	name storage.FileName
	size int64 // 0: unknown
	rows int64 // of a base file; -1: unknown
	sum  uint32
	sums bool // sum is known
}

// say reports a problem. kind groups problems that are listed in full only up to a number.
func (k *checker) say(kind string, p Problem) error {
	if k.counts[kind]++; k.counts[kind] == 1 {
		k.order = append(k.order, kind)
	}
	if k.counts[kind] > problemsMax {
		return nil
	}
	if !k.yield(p, nil) {
		return errCheckStopped
	}
	return nil
}

// rest tells of the problems that say has only counted.
func (k *checker) rest() error {
	for _, kind := range k.order {
		if n := k.counts[kind] - problemsMax; n > 0 && !k.yield(Problem{Severity: Note, Object: kind, Offset: -1, Text: fmt.Sprintf("%d more of this kind are not listed", n)}, nil) {
			return errCheckStopped
		}
	}
	return nil
}

func (k *checker) step(n int64) {
	k.done += n
	if k.progress != nil {
		k.progress(k.done, max(k.done, k.total))
	}
}

// file reports damage that reading a file met; other errors are given back.
func (k *checker) file(name string, err error) error {
	var damaged *storage.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &damaged):
		if k.bad[name] {
			return nil
		}
		k.bad[name] = true
		if damaged.Name != "" && damaged.Name != name && strings.HasPrefix(damaged.Name, k.d.dir) {
			k.bad[damaged.Name] = true
			name = damaged.Name
		}
		return k.say("damaged file", Problem{Object: k.short(name), Offset: damaged.Offset, Text: damaged.Err.Error(), Advice: adviceFile})
	case errors.Is(err, storage.ErrNotExist):
		return k.missing(name)
	case errors.Is(err, storage.ErrUnsupported):
		return k.say("unsupported", Problem{Severity: Warning, Object: k.short(name), Offset: -1, Text: err.Error()})
	}
	return err
}

// missing reports a file that is not there, unless a cleaner or a service of another engine took it while the check ran.
func (k *checker) missing(name string) error {
	if k.bad[name] {
		return nil
	}
	if err := k.readTimeline(context.Background()); err == nil && len(k.expected) > 0 {
		if _, ok := k.expected[name]; !ok && k.known[name] {
			return nil
		}
	}
	k.bad[name] = true
	return k.say("missing file", Problem{Object: k.short(name), Offset: -1, Text: "the file is missing", Advice: adviceFile})
}

// short gives the name of a file below the table's folder.
func (k *checker) short(name string) string {
	if rest, ok := strings.CutPrefix(name, k.d.dir+"/"); ok {
		return rest
	}
	return name
}

func (k *checker) run(ctx context.Context) error {
	c, t := k.c, k.t
	k.bad = map[string]bool{}
	if t.broken == nil {
		if err := t.refresh(ctx); err != nil {
			var damaged *storage.CorruptError
			if !errors.As(err, &damaged) {
				return err
			}
		}
	}
	s, err := c.newSnapshot()
	if err != nil {
		return err
	}
	defer s.close()
	k.s, k.d = s, t.def.Load()
	cold := s.colds[t.id]
	if t.dropped.Load() || cold == nil {
		return fmt.Errorf("%w: table %s", ErrNotFound, k.d)
	}
	k.tt = &tableView{s: s, t: t, def: k.d, cold: cold}
	if t.broken != nil {
		if err := k.say("broken", Problem{Object: k.d.String(), Offset: -1, Text: "the table could not be opened: " + t.broken.Error(), Advice: "mend what it names and start again; the table can be dropped meanwhile"}); err != nil {
			return err
		}
	}
	n := int64(len(cold.newest()))
	k.total = 3 + n
	if k.level >= CheckMedium {
		k.total += 2 + n
	}
	if k.level >= CheckExtended {
		k.total += 2 + n + int64(len(k.d.indexes))
	}
	steps := []func(context.Context) error{k.checkProperties, k.checkTimeline, k.checkFiles, k.checkMetadata}
	if k.level >= CheckMedium {
		steps = append(steps, k.checkContents, k.checkJournal, k.checkPending, k.checkLeftovers)
	}
	if k.level >= CheckExtended && t.broken == nil {
		steps = append(steps, k.checkIndex)
	}
	for _, f := range steps {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := f(ctx); err != nil {
			return err
		}
	}
	return k.rest()
}

// checkProperties reads hoodie.properties and compares it with what the hot tier knows.
func (k *checker) checkProperties(ctx context.Context) error {
	defer k.step(1)
	const name = ".hoodie/hoodie.properties"
	full := join(k.d.dir, name)
	p, err := timeline.ReadProperties(ctx, k.c.store, k.d.dir)
	if err != nil {
		return k.file(full, err)
	}
	if k.d.spec.Attached {
		return k.file(full, p.Supported())
	}
	if err := p.Writable(); err != nil {
		return k.file(full, err)
	}
	k.c.commitMu.Lock()
	r := k.t.record
	k.c.commitMu.Unlock()
	want, err := k.c.properties(&r, k.d.spec)
	if err != nil {
		return err
	}
	for _, key := range sortedKeys(want) {
		if want[key] != p[key] && k.t.def.Load() == k.d {
			return k.say("properties", Problem{Object: name, Offset: -1, Text: fmt.Sprintf("%s is not what the table was defined with", key), Advice: "undo the change of the file"})
		}
	}
	return nil
}

// readTimeline loads the timeline anew, and what its instants say of files.
func (k *checker) readTimeline(ctx context.Context) error {
	tl, err := timeline.Load(ctx, k.c.store, k.d.dir)
	if err != nil {
		return err
	}
	k.tl, k.expected, k.known = tl, map[string]expectedFile{}, map[string]bool{}
	newest := map[string]map[string]expectedFile{} // by file group: files of its newest slice
	for _, in := range tl.Completed() {
		m, err := timeline.ReadCommit(ctx, k.c.store, k.d.dir, in)
		if err != nil {
			return err
		}
		sums := sumsOf(m)
		for part, stats := range m.Stats {
			for i := range stats {
				st := &stats[i]
				f, ok := storage.ParseFileName(st.FileName())
				if !ok || f.CDC {
					continue
				}
				group, full := part+"\x00"+string(f.ID), k.d.object(part, f.Name)
				k.known[full] = true
				e := expectedFile{by: in.Time, part: part, name: f, size: st.FileSize, rows: -1}
				e.sum, e.sums = sums[f.Name]
				files := newest[group]
				if files == nil {
					files = map[string]expectedFile{}
					newest[group] = files
				}
				if f.Version == 0 {
					for n, old := range files { // a new base file: a new slice
						if old.name.Instant < f.Instant {
							delete(files, n)
						}
					}
					if m.Operation != timeline.OpCompact {
						e.rows = st.NumWrites
					}
				} else if old, ok := files[full]; ok && old.size > e.size {
					e = old // several instants may append to a log
				}
				files[full] = e
			}
		}
		for part, ids := range m.Replaced {
			for _, id := range ids {
				delete(newest, part+"\x00"+string(id))
			}
		}
	}
	for _, files := range newest {
		var base storage.InstantTime
		for _, e := range files {
			if e.name.Version == 0 {
				base = max(base, e.name.Instant)
			}
		}
		for full, e := range files {
			if e.name.Instant >= base {
				k.expected[full] = e
			}
		}
	}
	return nil
}

// checkTimeline reads every instant, and points out those that are unfinished for long.
func (k *checker) checkTimeline(ctx context.Context) error {
	defer k.step(1)
	if err := k.readTimeline(ctx); err != nil {
		return k.file(join(k.d.dir, ".hoodie"), err)
	}
	for _, in := range k.tl.Instants {
		if in.State != timeline.Completed {
			if err := k.checkUnfinished(ctx, in); err != nil {
				return err
			}
			continue
		}
		var err error
		switch in.Action {
		case timeline.Clean:
			_, err = timeline.EarliestRetained(ctx, k.c.store, k.d.dir, k.tl)
		case timeline.Savepoint:
			_, err = timeline.ReadSavepoint(ctx, k.c.store, k.d.dir, in)
		}
		if err := k.file(join(k.d.dir, ".hoodie", in.FileName(timeline.Completed)), err); err != nil {
			return err
		}
	}
	for _, o := range k.tt.cold.own {
		if !k.tl.Counts(o.time) {
			if err := k.say("undone", Problem{Severity: Warning, Object: ".hoodie", Offset: -1, Text: fmt.Sprintf("instant %s, which this server wrote, is gone from the timeline: another engine undid it", o.time)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUnfinished points out an instant that was begun long ago. It is never archived, and holds up other engines' services.
func (k *checker) checkUnfinished(ctx context.Context, in timeline.Instant) error {
	at, err := timeline.ParseTime(in.Time, k.d.zone)
	if err != nil {
		return nil
	}
	age := k.c.clock.Near().Sub(at)
	if age < pendingAge {
		return nil
	}
	return k.say("unfinished instant", Problem{
		Severity: Warning, Object: ".hoodie/" + in.FileName(in.State), Offset: -1,
		Text: fmt.Sprintf("%s %s is unfinished since %s", in.Action, in.Time, age.Truncate(time.Second)), Advice: advicePending,
	})
}

// checkFiles looks at each file that the table's newest state needs: is it there, has it its size, is its footer whole.
func (k *checker) checkFiles(ctx context.Context) error {
	have := map[string]storage.FileName{}
	for part, f := range k.tt.cold.view.Files() {
		have[k.d.object(part, f.Name)] = f
	}
	needed := map[string]storage.FileName{}
	for _, fs := range k.tt.cold.newest() {
		if fs.Base != nil {
			needed[k.d.object(fs.Partition, fs.Base.Name)] = *fs.Base
		} else if !k.d.spec.Attached {
			if err := k.say("missing file", Problem{Object: join(fs.Partition, string(fs.ID)), Offset: -1, Text: fmt.Sprintf("the base file of instant %s is missing under %d log files", fs.Begin, len(fs.Logs)), Advice: adviceFile}); err != nil {
				return err
			}
		}
		for _, l := range fs.Logs {
			needed[k.d.object(fs.Partition, l.Name)] = l
		}
	}
	for name, e := range k.expected {
		if _, ok := needed[name]; !ok && e.by <= k.tt.cold.tl.Newest() {
			needed[name] = e.name
		}
	}
	for _, name := range sortedKeys(needed) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := k.checkFile(ctx, name, needed[name]); err != nil {
			return err
		}
		k.step(1)
	}
	return nil
}

func (k *checker) checkFile(ctx context.Context, name string, f storage.FileName) error {
	o, err := k.c.store.Open(ctx, name)
	if err != nil {
		return k.file(name, err)
	}
	size := o.Size()
	o.Close()
	e, known := k.expected[name]
	if known && e.size > 0 && (size < e.size || f.Version == 0 && size != e.size) {
		k.bad[name] = true
		return k.say("wrong size", Problem{Object: k.short(name), Offset: min(size, e.size), Text: fmt.Sprintf("the file has %d bytes, instant %s wrote %d", size, e.by, e.size), Advice: adviceFile})
	}
	if f.Version != 0 {
		return nil
	}
	b, err := storage.OpenBase(ctx, k.c.store, name)
	if err != nil {
		return k.file(name, err)
	}
	defer b.Close()
	if known && e.rows >= 0 && b.Rows() != e.rows {
		return k.say("wrong rows", Problem{Object: k.short(name), Offset: -1, Text: fmt.Sprintf("the footer names %d rows, instant %s wrote %d", b.Rows(), e.by, e.rows), Advice: adviceFile})
	}
	for _, f := range k.d.spec.Schema.Fields {
		i := b.Schema().Index(f.Name)
		if i < 0 {
			continue // added later
		}
		if was := b.Schema().Fields[i].Type; was.Kind != f.Type.Kind && !storage.Promotable(was, f.Type) {
			return k.say("wrong type", Problem{Object: k.short(name), Offset: -1, Text: fmt.Sprintf("column %s is %s, which cannot be read as %s", f.Name, was, f.Type), Advice: adviceFile})
		}
	}
	return nil
}

// checkJournal decodes what the journal holds of the table, and compares it with the commits' records.
func (k *checker) checkJournal(ctx context.Context) error {
	defer k.step(1)
	floor, err := k.c.meta(metaFloor)
	if err != nil {
		return err
	}
	from := k.tt.cold.trimmed
	rows := map[index.Seq]uint64{} // of commits whose record is awaited
	damaged := func(seq index.Seq, key, text string) error {
		return k.say("journal", Problem{Object: fmt.Sprintf("journal, commit %d", seq), Offset: -1, Key: key, Text: text, Advice: "the rows of this commit have to be written again"})
	}
	steps := 0
	// A later change of the primary key gave the rows that it found other index keys, not those in the journal. The definition of a
	// commit's time is the present one from `same` on.
	same := k.t.keyedSince()
	err = eachRaw(k.s.p, k.t.id, from, k.s.seq, func(seq index.Seq, ord uint32, raw []byte) error {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rows[seq]++
		p, err := decodePacket(raw)
		if err != nil {
			return damaged(seq, "", fmt.Sprintf("row %d: %v", ord, err))
		}
		if p.schema < len(k.d.decoders) && k.d.decoders[p.schema] == nil {
			return nil
		}
		if p.before != nil {
			if _, err := k.d.decodeRow(p.schema, p.before); err != nil {
				return damaged(seq, p.key, fmt.Sprintf("the row before row %d: %v", ord, err))
			}
		}
		if p.del {
			return nil
		}
		row, err := k.d.decodeRow(p.schema, p.row)
		if err != nil {
			return damaged(seq, p.key, fmt.Sprintf("row %d: %v", ord, err))
		}
		if p.schema == len(k.d.schemas)-1 && !k.d.hidden() && seq >= same {
			if ikey, err := k.d.indexKey(row, p.part); err != nil || string(ikey) != string(p.ikey) {
				return damaged(seq, p.key, fmt.Sprintf("row %d has another key than its index key says", ord))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	it, err := k.s.p.NewIter(&pebble.IterOptions{LowerBound: journalKey(from + 1), UpperBound: journalKey(k.s.seq + 1)})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		seq := index.Seq(keyUint(it.Key()[1:]))
		rec, err := decodeCommit(v)
		if err != nil {
			if err := damaged(seq, "", err.Error()); err != nil {
				return err
			}
			continue
		}
		for _, ct := range rec.tables {
			if ct.id != k.t.id {
				continue
			}
			if n := rows[seq]; n != ct.rows {
				if err := damaged(seq, "", fmt.Sprintf("%d rows, the commit wrote %d", n, ct.rows)); err != nil {
					return err
				}
			}
			delete(rows, seq)
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	low, _ := uvarintOf(floor)
	for _, seq := range sortedSeqs(rows) {
		if seq > index.Seq(low) {
			if err := damaged(seq, "", fmt.Sprintf("%d rows without a record of their commit", rows[seq])); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPending points out a flush that was begun and not ended, and rows that cannot be flushed.
func (k *checker) checkPending(ctx context.Context) error {
	k.c.commitMu.Lock()
	cause, since, rows := k.t.buf.cause, k.t.buf.since, k.t.buf.rows
	k.c.commitMu.Unlock()
	if cause != nil {
		return k.say("flush", Problem{
			Severity: Warning, Object: k.d.String(), Offset: -1,
			Text: fmt.Sprintf("%d rows cannot be flushed since %s: %v", rows, time.Since(since).Truncate(time.Second), cause), Advice: "they are safe in the state folder; mend the cause",
		})
	}
	if !k.t.slices.TryLock() {
		return nil // a flush is under way
	}
	in := k.t.intent
	k.t.slices.Unlock()
	if in != nil {
		return k.say("flush", Problem{Severity: Warning, Object: "journal", Offset: -1, Text: fmt.Sprintf("the flush to instant %s was begun and not ended; the next flush ends it", in.Instant)})
	}
	return nil
}

func sortedSeqs[V any](m map[index.Seq]V) []index.Seq {
	out := make([]index.Seq, 0, len(m))
	for s := range m {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
