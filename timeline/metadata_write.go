package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// This file keeps partition "files" of the metadata table up to date where the table's properties ask for it. Each instant of the table
// writes a delta commit of its own time into the metadata table right before it completes, so that readers, who count what both
// timelines have completed, see the two at once. All of it happens under the table's lock: what is pending in the metadata table is dead.

// KeyMetadataEnable in a table's properties has lakesql maintain the metadata table. It is off by default: then a metadata table that
// another engine made is taken out of use by the next instant, since it would hide what that wrote.
const KeyMetadataEnable = "hoodie.metadata.enable"

// metadataGroup is the file group of partition "files".
const metadataGroup = storage.FileID("files-0000-0")

// metadataLogsMax is the number of logs at which they are compacted, Hudi's hoodie.metadata.compact.max.delta.commits. The data
// table's active timeline keeps more instants than that, as readers demand of those whose logs they read.
const metadataLogsMax = 10

const (
	metadataPayload   = "org.apache.hudi.metadata.HoodieMetadataPayload"
	metadataGenerator = "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator"
	metadataSolo      = "00000000000000" // instant of the metadata table of a table that has none yet
)

// metadataChange is what an instant does to the list of files: files by partition path and name, and partition paths.
type metadataChange struct {
	files      map[string]map[string]MetadataFile
	partitions map[string]bool // true: the path is gone
}

func (c *metadataChange) add(part, name string, f MetadataFile) {
	files := c.files[part]
	if files == nil {
		files = map[string]MetadataFile{}
		c.files[part] = files
	}
	if old, ok := files[name]; ok && !f.Deleted && !old.Deleted {
		f.Size = max(f.Size, old.Size)
	}
	files[name] = f
	if _, ok := c.partitions[part]; !ok {
		c.partitions[part] = false
	}
}

// changeOf reads what an instant does from the content of its completed file; false for an action of which it is not known here.
func changeOf(name string, in Instant, content []byte) (*metadataChange, bool, error) {
	c := &metadataChange{files: map[string]map[string]MetadataFile{}, partitions: map[string]bool{}}
	switch {
	case in.Action.writes():
		m, err := parseCommitFile(name, content)
		if err != nil {
			return nil, false, err
		}
		for part, stats := range m.Stats {
			c.partitions[part] = false
			for i := range stats {
				st := &stats[i]
				if size := max(st.FileSize, st.WriteBytes); st.Path != "" && size > 0 {
					c.add(part, st.FileName(), MetadataFile{Size: size})
				}
				for path, size := range st.CDC {
					c.add(part, lastPart(path), MetadataFile{Size: size})
				}
			}
		}
		return c, true, nil
	case in.Action == Clean:
		var m CleanMeta
		if err := cleanMetaFile.decode(name, content, &m); err != nil {
			return nil, false, err
		}
		for part, p := range m.Partitions {
			for _, path := range slices.Concat(p.Patterns, p.Deleted) {
				c.add(part, lastPart(path), MetadataFile{Deleted: true})
			}
			if p.Whole != nil && *p.Whole {
				c.partitions[part] = true
			}
		}
		return c, true, nil
	case in.Action == Rollback:
		var m RollbackMeta
		if err := rollbackMetaFile.decode(name, content, &m); err != nil {
			return nil, false, err
		}
		for part, p := range m.Partitions {
			for _, path := range p.Deleted {
				c.add(part, lastPart(path), MetadataFile{Deleted: true})
			}
			if p.RollbackLogs != nil {
				for path, size := range *p.RollbackLogs {
					c.add(part, lastPart(path), MetadataFile{Size: size})
				}
			}
		}
		return c, true, nil
	}
	return nil, false, nil
}

// entries gives the records of the change, by key.
func (c *metadataChange) entries(version, file string) []storage.HFileEntry {
	var out []storage.HFileEntry
	put := func(key string, typ MetadataType, files map[string]MetadataFile) {
		out = append(out, storage.HFileEntry{Key: []byte(key), Value: encodeFiles(version, typ, file, files)})
	}
	all := map[string]MetadataFile{}
	for part, gone := range c.partitions {
		all[metadataKey(part)] = MetadataFile{Deleted: gone}
	}
	put(metadataAllPartitions, MetadataPartitions, all)
	for part, files := range c.files {
		put(metadataKey(part), MetadataFiles, files)
	}
	slices.SortFunc(out, func(a, b storage.HFileEntry) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return out
}

// metadataKey gives the key of a partition path's record.
func metadataKey(part string) string { return cmp.Or(part, metadataNoPartition) }

// dropMetadata takes the metadata table of a table out of use and removes it.
func dropMetadata(ctx context.Context, s storage.Store, dir string, p Properties) error {
	if p[KeyMetadata] == "" && p[KeyMetadataInflight] == "" {
		return nil
	}
	p = maps.Clone(p)
	delete(p, KeyMetadata)
	delete(p, KeyMetadataInflight)
	if err := WriteProperties(ctx, s, dir, p); err != nil {
		return err
	}
	return s.Remove(ctx, metadataDir(dir)+"/")
}

// metadataWriter brings the metadata table up to an instant that is about to complete.
type metadataWriter struct {
	s       storage.Store
	dir     string // of the table
	meta    string // of the metadata table
	p       Properties
	version string
	in      Instant
	change  *metadataChange
}

// tellMetadata is called right before an instant of the table in folder dir completes with this content, under the table's lock.
func tellMetadata(ctx context.Context, s storage.Store, dir string, in Instant, content []byte) error {
	if !metadataActions(in.Action) {
		return nil
	}
	p, err := ReadProperties(ctx, s, dir)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	layout, err := p.Layout()
	if err != nil {
		return err
	}
	if !p.flag(KeyMetadataEnable) || layout != Layout1 {
		return dropMetadata(ctx, s, dir, p)
	}
	change, ok, err := changeOf(in.object(dir, Completed), in, content)
	if err != nil {
		return err
	}
	if !ok {
		return dropMetadata(ctx, s, dir, p) // the next instant makes it anew
	}
	w := &metadataWriter{s: s, dir: dir, meta: metadataDir(dir), p: p, version: p[KeyVersion], in: in, change: change}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("metadata table: %w", err)
	}
	return nil
}

func (w *metadataWriter) run(ctx context.Context) error {
	tl, err := Load(ctx, w.s, w.dir)
	if err != nil {
		return err
	}
	m, err := w.open(ctx, tl)
	if err != nil {
		return err
	}
	if m != nil {
		err = w.advance(ctx, m)
		var damaged *storage.CorruptError
		if !errors.As(err, &damaged) {
			return err
		}
	}
	if busy(tl, w.in) {
		// What other writers have in flight cannot be told from what is there.
		return dropMetadata(ctx, w.s, w.dir, w.p)
	}
	if err := w.create(ctx, tl); err != nil {
		return err
	}
	if m, err = w.reopen(ctx, tl); err != nil {
		return err
	}
	return w.advance(ctx, m)
}

// advance writes this instant into the metadata table, and compacts it first when it is time.
func (w *metadataWriter) advance(ctx context.Context, m *Metadata) error {
	m, err := w.clear(ctx, m)
	if err != nil {
		return err
	}
	slice, err := w.slice(ctx, m)
	if err != nil {
		return err
	}
	if len(slice.Logs) >= metadataLogsMax && m.settled() {
		if err := w.compact(ctx, m, slice); err != nil {
			return err
		}
		if m, err = w.reopen(ctx, m.data); err != nil {
			return err
		}
		if slice, err = w.slice(ctx, m); err != nil {
			return err
		}
	}
	if err := w.append(ctx, slice); err != nil {
		return err
	}
	return w.use(ctx)
}

// open gives the metadata table if it is fit to be continued; nil: it has to be made.
func (w *metadataWriter) open(ctx context.Context, tl *Timeline) (*Metadata, error) {
	if !w.p.MetadataInUse() {
		return nil, nil
	}
	m, err := OpenMetadata(ctx, w.s, w.dir, w.p, tl)
	var damaged *storage.CorruptError
	if errors.Is(err, storage.ErrNotExist) || errors.Is(err, storage.ErrUnsupported) || errors.As(err, &damaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if m.unknown() != "" {
		return nil, nil
	}
	for _, in := range m.tl.Pending() {
		if in.Action == Compaction || in.Action == LogCompaction {
			return nil, nil // cut short, and logs may have been written for it already
		}
	}
	if _, err := w.slice(ctx, m); err != nil {
		return nil, nil
	}
	return m, nil
}

// reopen gives the metadata table after a change of it.
func (w *metadataWriter) reopen(ctx context.Context, tl *Timeline) (*Metadata, error) {
	p := maps.Clone(w.p)
	p[KeyMetadata] = metadataFilesPartition
	return OpenMetadata(ctx, w.s, w.dir, p, tl)
}

// slice gives the newest slice of the list of files.
func (w *metadataWriter) slice(ctx context.Context, m *Metadata) (*storage.FileSlice, error) {
	groups, err := m.groups(ctx, metadataFilesPartition)
	if err != nil {
		return nil, err
	}
	if len(groups) != 1 || groups[0].ID != metadataGroup || groups[0].Base == nil {
		return nil, fmt.Errorf("%w: partition files of the metadata table is not one file group with a base file", storage.ErrUnsupported)
	}
	return &groups[0], nil
}

// busy tells whether instants other than one are under way whose files cannot be told from those that count.
func busy(tl *Timeline, but Instant) bool {
	for _, in := range tl.Pending() {
		if in.Time == but.Time && in.Action.completed() == but.Action.completed() {
			continue
		}
		switch in.Action {
		case Compaction, LogCompaction, ReplaceCommit, Indexing, Savepoint:
			// Base files name their instant.
		default:
			return true
		}
	}
	return false
}

// settled tells whether every log of the metadata table belongs to an instant that is not under way in the table.
func (m *Metadata) settled() bool {
	for _, in := range m.tl.Completed() {
		if m.data.pending[in.Time] {
			return false
		}
	}
	return true
}

// clear removes what dead writers left pending in the metadata table, and what an earlier attempt at this instant completed.
func (w *metadataWriter) clear(ctx context.Context, m *Metadata) (*Metadata, error) {
	changed := false
	for _, in := range m.tl.Instants {
		if in.State == Completed && in.Time != w.in.Time {
			continue
		}
		if err := removeMetadataInstant(ctx, w.s, w.meta, in); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return m, nil
	}
	return w.reopen(ctx, m.data)
}

// removeMetadataInstant removes an instant of the metadata table that nobody has seen, with the files it wrote.
func removeMetadataInstant(ctx context.Context, s storage.Store, dir string, in Instant) error {
	var names []string
	if in.State == Completed {
		c, err := ReadCommit(ctx, s, dir, in)
		if err != nil {
			return err
		}
		for _, stats := range c.Stats {
			for i := range stats {
				names = append(names, join(dir, stats[i].Path))
			}
		}
	}
	marks, err := Markers(ctx, s, dir, in.Time)
	if err != nil {
		return err
	}
	for _, mark := range marks {
		names = append(names, join(dir, mark.Partition, mark.File))
	}
	if err := s.Remove(ctx, names...); err != nil {
		return err
	}
	for _, state := range []State{Completed, Inflight, Requested} {
		if err := s.Remove(ctx, in.object(dir, state)); err != nil {
			return err
		}
	}
	return s.Remove(ctx, markerFolder(dir, in.Time)+"/")
}

// forgetMetadata takes an instant of the table that is undone before it completed out of the metadata table.
func forgetMetadata(ctx context.Context, s storage.Store, dir string, in Instant) error {
	p, err := ReadProperties(ctx, s, dir)
	if errors.Is(err, storage.ErrNotExist) || err == nil && (!p.MetadataInUse() || !p.flag(KeyMetadataEnable)) {
		return nil
	}
	if err != nil {
		return err
	}
	tl, err := Load(ctx, s, metadataDir(dir))
	if err != nil {
		return err
	}
	for _, known := range tl.Instants {
		if known.Time == in.Time {
			if err := removeMetadataInstant(ctx, s, metadataDir(dir), known); err != nil {
				return err
			}
		}
	}
	return nil
}

// use has readers take the list of files from the metadata table. Other partitions of it, which another engine made, are given up: they
// are not maintained.
func (w *metadataWriter) use(ctx context.Context) error {
	parts := metadataPartitions(w.p[KeyMetadata])
	if slices.Equal(parts, []string{metadataFilesPartition}) && w.p[KeyMetadataInflight] == "" {
		return nil
	}
	p := maps.Clone(w.p)
	p[KeyMetadata], p[KeyMetadataInflight] = metadataFilesPartition, ""
	if err := WriteProperties(ctx, w.s, w.dir, p); err != nil {
		return err
	}
	for _, part := range parts {
		if part != metadataFilesPartition {
			if err := w.s.Remove(ctx, join(w.meta, part)+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes the metadata table from the folders: one base file with all that counts but this instant's own files.
func (w *metadataWriter) create(ctx context.Context, tl *Timeline) error {
	if err := dropMetadata(ctx, w.s, w.dir, w.p); err != nil {
		return err
	}
	w.p = maps.Clone(w.p)
	delete(w.p, KeyMetadata)
	delete(w.p, KeyMetadataInflight)
	if err := w.s.Remove(ctx, w.meta+"/"); err != nil { // one that was never in use
		return err
	}
	v, err := BuildView(ctx, w.s, w.dir, tl)
	if err != nil {
		return err
	}
	all := &metadataChange{files: map[string]map[string]MetadataFile{}, partitions: map[string]bool{}}
	for _, part := range v.Partitions() {
		all.partitions[part] = false
	}
	for part, f := range v.Files() {
		_, own := w.change.files[part][f.Name]
		if own || f.Size == 0 || f.Version == 0 && !tl.Counts(f.Instant) {
			continue
		}
		all.add(part, f.Name, MetadataFile{Size: f.Size})
	}
	first := storage.InstantTime(metadataSolo)
	if done := tl.Completed(); len(done) > 0 {
		first = done[len(done)-1].Time
	}
	first += "010" // as Hudi 0.15 names it
	if err := w.s.PutNew(ctx, join(w.meta, metaFolder, propertiesFile), w.properties().format("Properties saved on "+now().UTC().Format(time.RFC3339Nano))); err != nil {
		return err
	}
	return w.instant(ctx, DeltaCommit, first, nil, func(p *Pending) (*CommitMeta, error) {
		stat, err := w.base(ctx, p, first, all.entries)
		if err != nil {
			return nil, err
		}
		stat.NumInserts = stat.NumWrites
		return w.commit(OpBulkInsert, stat), nil
	})
}

// properties gives those of the metadata table.
func (w *metadataWriter) properties() Properties {
	p := Properties{
		KeyName: w.p[KeyName] + "_metadata", KeyType: MergeOnRead, KeyVersion: w.version, KeyLayoutVersion: "1", KeyArchiveFolder: "archived",
		KeyRecordKeyFields: "key", KeyPopulateMeta: "false", KeyBaseFileFormat: "HFILE", KeyDropPartition: "false",
		KeyPayloadClass: metadataPayload, KeyKeyGenerator: metadataGenerator, KeyMergeStrategy: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
	}
	if zone := w.p[KeyTimezone]; zone != "" {
		p[KeyTimezone] = zone
	}
	p[KeyChecksum] = p.Checksum()
	return p
}

// instant runs an instant of the metadata table; write makes its files.
func (w *metadataWriter) instant(ctx context.Context, a Action, at storage.InstantTime, plan []byte, write func(*Pending) (*CommitMeta, error)) error {
	p, err := Begin(ctx, w.s, w.meta, a, at, plan)
	if err != nil {
		return err
	}
	p.Zone = w.p.Timezone()
	if err := EnsurePartition(ctx, w.s, w.meta, metadataFilesPartition, at); err != nil {
		return err
	}
	c, err := write(p)
	if err != nil {
		return err
	}
	return p.publish(ctx, c.Encode())
}

func (w *metadataWriter) commit(operation string, stat *WriteStat) *CommitMeta {
	return &CommitMeta{
		Stats: map[string][]WriteStat{metadataFilesPartition: {*stat}}, Operation: operation,
		Extra: map[string]string{ExtraSchema: metadataSchema(w.version, false)},
	}
}

// base writes a base file of the list of files.
func (w *metadataWriter) base(ctx context.Context, p *Pending, at storage.InstantTime, entries func(version, file string) []storage.HFileEntry) (*WriteStat, error) {
	stem, _ := strings.CutSuffix(storage.BaseFileName(metadataGroup, storage.NewToken(0), at), ".parquet")
	name := stem + hfileSuffix
	if err := p.Mark(ctx, metadataFilesPartition, name, MarkCreate); err != nil {
		return nil, err
	}
	list := entries(w.version, name)
	size, err := storage.WriteHFile(ctx, w.s, join(w.meta, metadataFilesPartition, name), metadataSchema(w.version, true), list)
	if err != nil {
		return nil, err
	}
	return &WriteStat{
		FileID: metadataGroup, Partition: metadataFilesPartition, Path: join(metadataFilesPartition, name),
		NumWrites: int64(len(list)), WriteBytes: size, FileSize: size,
	}, nil
}

// append writes the delta commit of this instant.
func (w *metadataWriter) append(ctx context.Context, fs *storage.FileSlice) error {
	return w.instant(ctx, DeltaCommit, w.in.Time, nil, func(p *Pending) (*CommitMeta, error) {
		version := 1
		var logs []string
		for _, l := range fs.Logs {
			version = max(version, l.Version+1)
			logs = append(logs, l.Name)
		}
		name := storage.LogFileName(metadataGroup, fs.Begin, version, storage.NewToken(0))
		if err := p.Mark(ctx, metadataFilesPartition, name, MarkAppend); err != nil {
			return nil, err
		}
		list := w.change.entries(w.version, "")
		size, err := storage.WriteHFileLog(ctx, w.s, join(w.meta, metadataFilesPartition, name), w.in.Time, metadataSchema(w.version, true), list)
		if err != nil {
			return nil, err
		}
		return w.commit("UPSERT_PREPPED", &WriteStat{
			FileID: metadataGroup, Partition: metadataFilesPartition, Path: join(metadataFilesPartition, name), PrevCommit: fs.Begin,
			NumWrites: int64(len(list)), NumUpdates: int64(len(list)), WriteBytes: size, FileSize: size,
			Log: &LogStat{Version: version, BaseFile: fs.Base.Name, Files: append(logs, name)},
		}), nil
	})
}

// compact writes what base file and logs say into a new base file, then removes what readers of the slice before the last may have needed,
// and the instants of that time. The list can be made anew from the folders at any time, so nothing of it is archived.
func (w *metadataWriter) compact(ctx context.Context, m *Metadata, fs *storage.FileSlice) error {
	all := &metadataChange{files: map[string]map[string]MetadataFile{}, partitions: map[string]bool{}}
	files, err := m.Files(ctx)
	if err != nil {
		return err
	}
	for part, sizes := range files {
		all.partitions[part] = false
		for name, size := range sizes {
			all.add(part, name, MetadataFile{Size: size})
		}
	}
	done := m.tl.Completed()
	at := done[len(done)-1].Time + "001" // as Hudi 0.15 names it
	var names []string
	var bytes int64
	for _, l := range fs.Logs {
		names = append(names, l.Name)
		bytes += l.Size
	}
	id, part, base, begin, two := string(metadataGroup), metadataFilesPartition, fs.Base.Name, string(fs.Begin), int32(2)
	plan, err := (&CompactionPlan{
		Operations: &[]CompactionOperation{{
			BaseInstant: &begin, DeltaFiles: &names, DataFile: &base, FileID: &id, Partition: &part,
			Metrics: &map[string]float64{"TOTAL_LOG_FILES": float64(len(names)), "TOTAL_LOG_FILES_SIZE": float64(bytes)},
		}},
		Extra: &map[string]string{}, Version: &two,
	}).Encode()
	if err != nil {
		return err
	}
	err = w.instant(ctx, Compaction, at, plan, func(p *Pending) (*CommitMeta, error) {
		stat, err := w.base(ctx, p, at, all.entries)
		if err != nil {
			return nil, err
		}
		stat.PrevCommit, stat.NumUpdates = fs.Begin, stat.NumWrites
		stat.LogFilesCompacted, stat.LogSizeCompacted = int64(len(names)), bytes
		c := w.commit(OpCompact, stat)
		c.Compacted = true
		return c, nil
	})
	if err != nil {
		return err
	}
	return w.clean(ctx, m, fs.Begin)
}

// clean removes the slices before the one that begins at keep, and the instants before it.
func (w *metadataWriter) clean(ctx context.Context, m *Metadata, keep storage.InstantTime) error {
	var names []string
	for info, err := range w.s.List(ctx, join(w.meta, metadataFilesPartition)) {
		if err != nil {
			return err
		}
		if f, ok := parseMetadataFile(info.Name); ok && f.Instant < keep {
			names = append(names, join(w.meta, metadataFilesPartition, f.Name))
		}
	}
	for _, in := range m.tl.Instants {
		if in.Time < keep && in.State == Completed {
			for _, state := range []State{Requested, Inflight, Completed} {
				if in.Action == Commit && state == Requested {
					names = append(names, Instant{Time: in.Time, Action: Compaction}.object(w.meta, Requested), Instant{Time: in.Time, Action: Compaction}.object(w.meta, Inflight))
				}
				names = append(names, in.object(w.meta, state))
			}
		}
	}
	return w.s.Remove(ctx, names...)
}
