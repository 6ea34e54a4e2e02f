package timeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// metadataDir is the folder of a table's metadata table, which is a merge-on-read table with HFiles as base files.
func metadataDir(dir string) string { return join(dir, metaFolder, "metadata") }

// The partition of the metadata table that lists the files of the table.
const metadataFilesPartition = "files"

const hfileSuffix = ".hfile"

// Metadata is the metadata table of a table at one moment.
type Metadata struct {
	store storage.Store
	table string    // folder of the table
	dir   string    // folder of the metadata table
	data  *Timeline // of the table
	tl    *Timeline // of the metadata table
	parts []string
}

// MetadataInUse tells whether the table's properties say that readers take the list of files from the metadata table.
func (p Properties) MetadataInUse() bool {
	return slices.Contains(metadataPartitions(p[KeyMetadata]), metadataFilesPartition)
}

func metadataPartitions(list string) []string {
	out := strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
	slices.Sort(out)
	return out
}

// OpenMetadata opens the metadata table of the table in folder dir, whose properties and timeline are p and data. An error wraps
// storage.ErrNotExist if the table has none in use.
func OpenMetadata(ctx context.Context, s storage.Store, dir string, p Properties, data *Timeline) (*Metadata, error) {
	m := &Metadata{store: s, table: dir, dir: metadataDir(dir), data: data, parts: metadataPartitions(p[KeyMetadata])}
	if len(m.parts) == 0 {
		return nil, fmt.Errorf("opening metadata table: no partition of it is in use: %w", storage.ErrNotExist)
	}
	ok, err := exists(ctx, s, join(m.dir, metaFolder, propertiesFile))
	if err == nil && !ok {
		err = storage.ErrNotExist
	}
	if err == nil {
		m.tl, err = Load(ctx, s, m.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening metadata table: %w", err)
	}
	return m, nil
}

// Partitions gives the partitions of the metadata table that are in use, such as "files" and "column_stats", in order.
func (m *Metadata) Partitions() []string { return m.parts }

// Timeline gives the timeline of the metadata table.
func (m *Metadata) Timeline() *Timeline { return m.tl }

// metadataActions are the actions that have a delta commit of their time in the metadata table.
func metadataActions(a Action) bool { return a.writes() || a == Clean || a == Rollback || a == Restore }

// Stale says why the metadata table may not be trusted: an instant of the table that it does not know, or a rollback under way. It is
// "" if the metadata table is complete.
func (m *Metadata) Stale() string {
	if !slices.Contains(m.parts, metadataFilesPartition) {
		return "its partition files is not in use"
	}
	for _, in := range m.data.Pending() {
		if in.Action == Rollback || in.Action == Restore {
			return fmt.Sprintf("%s %s is not finished", in.Action, in.Time)
		}
	}
	return m.unknown()
}

// unknown names a completed instant of the table that the metadata table does not know; "": there is none.
func (m *Metadata) unknown() string {
	known := map[storage.InstantTime]bool{}
	var first Instant
	for _, in := range m.tl.Completed() {
		known[in.Time] = true
		if len(known) == 1 {
			first = in
		}
	}
	if len(known) == 0 {
		return "it has no completed instant"
	}
	for _, in := range m.data.Instants {
		// What is older than its first instant was listed when it was made, or has been archived there. In layout 1 the first instant is
		// named after the last one of the table.
		listed := in.Time <= first.Time || m.tl.layout == Layout2 && strings.HasPrefix(string(first.Time), metadataSolo) && in.Completed < first.Completed
		if in.State == Completed && metadataActions(in.Action) && !listed && !known[in.Time] {
			return fmt.Sprintf("it does not know %s %s", in.Action, in.Time)
		}
	}
	return ""
}

// Needed gives the first instant of the table of which the list of files has a log that is not compacted; "" if there is none. Readers take such
// a log only while the table's active timeline has its instant: archival stops before it.
func (m *Metadata) Needed(ctx context.Context) (storage.InstantTime, error) {
	groups, err := m.groups(ctx, metadataFilesPartition)
	if err != nil {
		return "", fmt.Errorf("reading metadata table: %w", err)
	}
	first := storage.InstantTime("")
	for i := range groups {
		for _, l := range groups[i].Logs {
			for b, err := range storage.ReadLog(ctx, m.store, join(m.dir, metadataFilesPartition, l.Name)) {
				if err != nil {
					return "", fmt.Errorf("reading metadata table: %w", err)
				}
				if b.Instant != "" && !strings.HasPrefix(string(b.Instant), metadataSolo) && (first == "" || b.Instant < first) {
					first = b.Instant
				}
			}
		}
	}
	return first, nil
}

// counts tells whether what an instant wrote into the metadata table is to be seen. An instant of the metadata table completes before
// the table's instant of the same time does.
func (m *Metadata) counts(it storage.InstantTime) bool { return m.tl.Counts(it) && !m.data.pending[it] }

// groups gives the newest slices of the file groups of a partition, as far as they count.
func (m *Metadata) groups(ctx context.Context, partition string) ([]storage.FileSlice, error) {
	pending, _, err := groupStates(ctx, m.store, m.dir, m.tl)
	if err != nil {
		return nil, err
	}
	files := map[storage.FileID][]storage.FileName{}
	for info, err := range m.store.List(ctx, join(m.dir, partition)) {
		if err != nil {
			return nil, err
		}
		if f, ok := parseMetadataFile(info.Name); ok && !info.Dir {
			f.Size = info.Size
			files[f.ID] = append(files[f.ID], f)
		}
	}
	var out []storage.FileSlice
	for _, id := range slices.Sorted(maps.Keys(files)) {
		g := (&group{id: id, files: files[id], pending: pending[groupKey{partition, id}]}).build(partition, m.tl)
		if fs, ok := g.at(partition, "", m.counts); ok {
			out = append(out, fs)
		}
	}
	return out, nil
}

// parseMetadataFile takes the name of a base file or a log file of a metadata table apart.
func parseMetadataFile(name string) (storage.FileName, bool) {
	stem, base := strings.CutSuffix(name, hfileSuffix)
	if !base {
		f, ok := storage.ParseFileName(name)
		return f, ok && f.Version > 0
	}
	f, ok := storage.ParseFileName(stem + ".parquet")
	f.Name = name
	return f, ok && f.Version == 0
}

// Records gives the records of a partition, file group by file group, in each by key.
func (m *Metadata) Records(ctx context.Context, partition string) iter.Seq2[*MetadataRecord, error] {
	return func(yield func(*MetadataRecord, error) bool) {
		groups, err := m.groups(ctx, partition)
		for i := 0; err == nil && i < len(groups); i++ {
			var more bool
			more, err = m.slice(ctx, &groups[i], yield)
			if err == nil && !more {
				return
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("reading partition %s of the metadata table: %w", partition, err))
		}
	}
}

// slice gives the records of a slice; false: nobody wants more. The records of its logs are held in memory.
func (m *Metadata) slice(ctx context.Context, fs *storage.FileSlice, yield func(*MetadataRecord, error) bool) (more bool, err error) {
	var d metadataDecoder
	newer := map[string]*MetadataRecord{} // nil: deleted
	for i := range fs.Logs {
		if err := m.log(ctx, fs, fs.Logs[i].Name, &d, newer); err != nil {
			return false, err
		}
	}
	keys := slices.Sorted(maps.Keys(newer))
	give := func(r *MetadataRecord) bool { return r == nil || r.gone() || yield(r, nil) }
	if fs.Base != nil {
		h, err := storage.OpenHFile(ctx, m.store, join(m.dir, fs.Partition, fs.Base.Name))
		if err != nil {
			return false, err
		}
		defer h.Close()
		schema, ok := h.Info("schema")
		if !ok {
			return false, &storage.CorruptError{Name: join(m.dir, fs.Partition, fs.Base.Name), Offset: -1, Err: errors.New("its file info has no schema")}
		}
		for e, err := range h.All() {
			if err != nil {
				return false, err
			}
			for len(keys) > 0 && keys[0] < string(e.Key) {
				if !give(newer[keys[0]]) {
					return false, nil
				}
				keys = keys[1:]
			}
			var r *MetadataRecord
			if n, ok := newer[string(e.Key)]; !ok || n != nil {
				if r, err = d.decode(string(schema), e.Value); err != nil {
					return false, &storage.CorruptError{Name: join(m.dir, fs.Partition, fs.Base.Name), Offset: -1, Err: fmt.Errorf("key %q: %w", e.Key, err)}
				}
				r.Key = string(e.Key)
				if n != nil {
					r = n.over(r)
				}
			}
			if len(keys) > 0 && keys[0] == string(e.Key) {
				keys = keys[1:]
			}
			if !give(r) {
				return false, nil
			}
		}
	}
	for _, k := range keys {
		if !give(newer[k]) {
			return false, nil
		}
	}
	return true, nil
}

// log lays the records of a log file over those of the logs before it.
func (m *Metadata) log(ctx context.Context, fs *storage.FileSlice, file string, d *metadataDecoder, newer map[string]*MetadataRecord) error {
	name := join(m.dir, fs.Partition, file)
	for b, err := range storage.ReadLog(ctx, m.store, name) {
		if err != nil {
			return err
		}
		switch b.Type {
		case storage.BlockCorrupt:
			continue
		case storage.BlockCommand:
			// Hudi writes the block of a rolled back instant into a file of that instant, so what is taken back would stand in front.
			return fmt.Errorf("%s: %w: rollback block in a metadata table", name, storage.ErrUnsupported)
		case storage.BlockDelete:
			dels, err := b.Deletes()
			if err != nil {
				return err
			}
			if m.counts(b.Instant) {
				for _, del := range dels {
					newer[del.Key] = nil
				}
			}
		case storage.BlockHFile:
			if !m.counts(b.Instant) {
				continue
			}
			for rec, err := range b.Records() {
				if err != nil {
					return err
				}
				r, err := d.decode(b.Schema, rec)
				if err != nil {
					return &storage.CorruptError{Name: name, Offset: b.Offset, Err: err}
				}
				newer[r.Key] = r.over(newer[r.Key])
			}
		default:
			return fmt.Errorf("%s: %w: %s block in a metadata table", name, storage.ErrUnsupported, b.Type)
		}
	}
	return nil
}

// Files gives the files of the table as the metadata table lists them: their sizes in bytes by partition path and name. It does not
// ask whether it is complete; Stale does.
func (m *Metadata) Files(ctx context.Context) (map[string]map[string]int64, error) {
	out, listed := map[string]map[string]int64{}, map[string]bool{}
	for r, err := range m.Records(ctx, metadataFilesPartition) {
		if err != nil {
			return nil, err
		}
		if r.Files == nil {
			continue
		}
		if r.Key == metadataAllPartitions {
			for path, f := range *r.Files {
				if !f.Deleted {
					listed[path] = true
				}
			}
			continue
		}
		sizes := map[string]int64{}
		for name, f := range *r.Files {
			if !f.Deleted {
				sizes[name] = f.Size
			}
		}
		out[r.Key] = sizes
	}
	named := map[string]map[string]int64{}
	for path := range listed {
		sizes := out[path]
		if sizes == nil {
			sizes = map[string]int64{}
		}
		if path == metadataNoPartition {
			path = ""
		}
		named[path] = sizes
	}
	return named, nil
}
