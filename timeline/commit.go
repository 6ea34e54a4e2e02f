package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// Operations that commits name, as far as this package decides on them or lakesql writes them.
const (
	OpInsert               = "INSERT"
	OpUpsert               = "UPSERT"
	OpBulkInsert           = "BULK_INSERT"
	OpDelete               = "DELETE"
	OpInsertOverwrite      = "INSERT_OVERWRITE"
	OpInsertOverwriteTable = "INSERT_OVERWRITE_TABLE"
	OpDeletePartition      = "DELETE_PARTITION"
	OpCluster              = "CLUSTER"
	OpCompact              = "COMPACT"
	OpLogCompact           = "LOG_COMPACT"
	OpIndex                = "INDEX"
	OpAlterSchema          = "ALTER_SCHEMA"
)

// ExtraSchema is the member of CommitMeta.Extra that holds the table schema, in Avro, without meta columns.
const ExtraSchema = "schema"

// CommitMeta is what a commit, delta commit or replacecommit says of itself: JSON in layout 1, Avro in layout 2.
type CommitMeta struct {
	Stats     map[string][]WriteStat // by partition path, "" if the table has none
	Compacted bool                   // a compaction
	Extra     map[string]string      // extraMetadata: the schema, and what engines keep for themselves
	Operation string
	Replaced  map[string][]storage.FileID // replacecommit: the file groups that are hidden from here on, by partition path; nil: no such member
	Unknown   map[string]json.RawMessage  // members that this package does not know
}

// WriteStat says what a commit did with one file. Sizes are in bytes.
type WriteStat struct {
	FileID            storage.FileID
	Path              string              // below the table's folder; "" only in the workload profile of an inflight file
	CDC               map[string]int64    // change logs: path and size
	PrevCommit        storage.InstantTime // base instant of the slice that was updated; "" for a new file group
	NumWrites         int64               // rows in the new base file, or rows put into the log
	NumDeletes        int64
	NumUpdates        int64
	NumInserts        int64
	WriteBytes        int64 // bytes added
	WriteErrors       int64
	TempPath          string
	Partition         string
	LogRecords        int64 // compaction: what was read from logs
	LogFilesCompacted int64
	LogSizeCompacted  int64
	LogRecordsUpdated int64
	LogBlocks         int64
	CorruptLogBlocks  int64
	RollbackBlocks    int64
	FileSize          int64  // final length of the file
	MinEventTime      *int64 // milliseconds since 1970
	MaxEventTime      *int64
	Runtime           *RuntimeStats
	Log               *LogStat                   // nil: a base file
	Unknown           map[string]json.RawMessage // members that this package does not know
}

// RuntimeStats are durations in milliseconds.
type RuntimeStats struct {
	Scan, Upsert, Create int64
}

// LogStat is the part of a WriteStat that only log files have.
type LogStat struct {
	Version  int             // number in the file's name
	Offset   int64           // of the first block that the commit wrote into the file
	BaseFile string          // name of the slice's base file, "" if there is none
	Files    []string        // names of all log files of the slice, with this one
	Records  json.RawMessage // column statistics; nil writes Hudi's empty ones
}

// FileName gives the last part of Path, "" if there is none.
func (w *WriteStat) FileName() string { return lastPart(w.Path) }

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// noCommit is how Hudi writes that there is no previous commit: the text, not JSON's null.
const noCommit = "null"

const emptyRecordStats = `{"val":null}`

// object writes one JSON object member by member.
type object struct {
	b     []byte
	first bool
}

func (o *object) key(k string) {
	if !o.first {
		o.b = append(o.b, ',')
	}
	o.first = false
	o.b = append(appendText(o.b, k), ':')
}

func (o *object) raw(k string, v []byte)   { o.key(k); o.b = append(o.b, v...) }
func (o *object) text(k, v string)         { o.key(k); o.b = appendText(o.b, v) }
func (o *object) number(k string, v int64) { o.key(k); o.b = fmt.Appendf(o.b, "%d", v) }
func (o *object) boolean(k string, v bool) { o.key(k); o.b = fmt.Appendf(o.b, "%t", v) }
func (o *object) null(k string)            { o.raw(k, []byte("null")) }
func (o *object) textOrNull(k, v string) {
	if v == "" {
		o.null(k)
		return
	}
	o.text(k, v)
}

func (o *object) numberOrNull(k string, v *int64) {
	if v == nil {
		o.null(k)
		return
	}
	o.number(k, *v)
}

// sub writes a member that is an object.
func (o *object) sub(k string, f func()) {
	o.key(k)
	o.open()
	f()
	o.close()
}

func (o *object) open()  { o.b = append(o.b, '{'); o.first = true }
func (o *object) close() { o.b = append(o.b, '}'); o.first = false }

// rest writes members that were read and not understood.
func (o *object) rest(m map[string]json.RawMessage) {
	for _, k := range sortedKeys(m) {
		o.raw(k, m[k])
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// appendText writes a JSON string as Jackson does: nothing is escaped for HTML's sake.
func appendText(b []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	var w bytes.Buffer
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return append(b, bytes.TrimSuffix(w.Bytes(), []byte("\n"))...)
}

func appendTexts[S ~string](b []byte, list []S) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, string(s))
	}
	return append(b, ']')
}

// Encode gives the metadata as Hudi writes it, members in Hudi's order, partitions in name order.
func (m *CommitMeta) Encode() []byte {
	o := &object{}
	o.open()
	o.sub("partitionToWriteStats", func() {
		for _, partition := range sortedKeys(m.Stats) {
			o.key(partition)
			o.b = append(o.b, '[')
			for i := range m.Stats[partition] {
				if i > 0 {
					o.b = append(o.b, ',')
				}
				m.Stats[partition][i].encode(o)
			}
			o.b = append(o.b, ']')
		}
	})
	o.boolean("compacted", m.Compacted)
	o.sub("extraMetadata", func() {
		for _, k := range sortedKeys(m.Extra) {
			o.text(k, m.Extra[k])
		}
	})
	o.textOrNull("operationType", m.Operation)
	if m.Replaced != nil {
		o.sub("partitionToReplaceFileIds", func() {
			for _, partition := range sortedKeys(m.Replaced) {
				o.raw(partition, appendTexts(nil, m.Replaced[partition]))
			}
		})
	}
	o.rest(m.Unknown)
	o.close()
	return indentJackson(o.b)
}

func (w *WriteStat) encode(o *object) {
	o.open()
	o.text("fileId", string(w.FileID))
	o.textOrNull("path", w.Path)
	if w.CDC == nil {
		o.null("cdcStats")
	} else {
		o.sub("cdcStats", func() {
			for _, k := range sortedKeys(w.CDC) {
				o.number(k, w.CDC[k])
			}
		})
	}
	prev := string(w.PrevCommit)
	if prev == "" {
		prev = noCommit
	}
	o.text("prevCommit", prev)
	o.number("numWrites", w.NumWrites)
	o.number("numDeletes", w.NumDeletes)
	o.number("numUpdateWrites", w.NumUpdates)
	o.number("numInserts", w.NumInserts)
	o.number("totalWriteBytes", w.WriteBytes)
	o.number("totalWriteErrors", w.WriteErrors)
	o.textOrNull("tempPath", w.TempPath)
	if w.Path == "" && w.Partition == "" { // a line of the workload profile
		o.null("partitionPath")
	} else {
		o.text("partitionPath", w.Partition)
	}
	o.number("totalLogRecords", w.LogRecords)
	o.number("totalLogFilesCompacted", w.LogFilesCompacted)
	o.number("totalLogSizeCompacted", w.LogSizeCompacted)
	o.number("totalUpdatedRecordsCompacted", w.LogRecordsUpdated)
	o.number("totalLogBlocks", w.LogBlocks)
	o.number("totalCorruptLogBlock", w.CorruptLogBlocks)
	o.number("totalRollbackBlocks", w.RollbackBlocks)
	o.number("fileSizeInBytes", w.FileSize)
	o.numberOrNull("minEventTime", w.MinEventTime)
	o.numberOrNull("maxEventTime", w.MaxEventTime)
	if w.Runtime == nil {
		o.null("runtimeStats")
	} else {
		o.sub("runtimeStats", func() {
			o.number("totalScanTime", w.Runtime.Scan)
			o.number("totalUpsertTime", w.Runtime.Upsert)
			o.number("totalCreateTime", w.Runtime.Create)
		})
	}
	if l := w.Log; l != nil {
		o.number("logVersion", int64(l.Version))
		o.number("logOffset", l.Offset)
		o.text("baseFile", l.BaseFile)
		o.raw("logFiles", appendTexts(nil, l.Files))
		if l.Records == nil {
			o.raw("recordsStats", []byte(emptyRecordStats))
		} else {
			o.raw("recordsStats", l.Records)
		}
	}
	o.rest(w.Unknown)
	o.close()
}

// indentJackson lays compact JSON out as Jackson's default pretty printer does: objects over several lines, arrays on one.
func indentJackson(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/4)
	depth := 0
	var open []byte // brackets around the current position
	newline := func() {
		out = append(out, '\n')
		for range depth {
			out = append(out, ' ', ' ')
		}
	}
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			end := i + 1
			for b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			out = append(out, b[i:end+1]...)
			i = end
		case '{', '[':
			out = append(out, c)
			open = append(open, c)
			if b[i+1] == c+2 { // '}' and ']' come two after their openings
				out = append(out, ' ')
				break
			}
			if c == '[' {
				out = append(out, ' ')
				break
			}
			depth++
			newline()
		case '}', ']':
			empty := b[i-1] == c-2
			open = open[:len(open)-1]
			if !empty {
				if c == '}' {
					depth--
					newline()
				} else {
					out = append(out, ' ')
				}
			}
			out = append(out, c)
		case ',':
			out = append(out, c)
			if open[len(open)-1] == '{' {
				newline()
			} else {
				out = append(out, ' ')
			}
		case ':':
			out = append(out, " : "...)
		default:
			out = append(out, c)
		}
	}
	return out
}

// take moves a member out of an object into v; null and a missing one leave v as it is.
func take(m map[string]json.RawMessage, key string, v any) error {
	raw, ok := m[key]
	if !ok {
		return nil
	}
	delete(m, key)
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("member %q: %w", key, err)
	}
	return nil
}

// members reads an object; its values come out compact.
func members(b []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	for k, v := range m {
		var w bytes.Buffer
		if err := json.Compact(&w, v); err != nil {
			return nil, err
		}
		m[k] = w.Bytes()
	}
	return m, nil
}

// rest gives what take left, nil if nothing.
func restOf(m map[string]json.RawMessage) map[string]json.RawMessage {
	if len(m) == 0 {
		return nil
	}
	return m
}

// ParseCommitMeta reads the JSON of a commit, a delta commit or a replacecommit.
func ParseCommitMeta(b []byte) (*CommitMeta, error) {
	m, err := members(b)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, errors.New("null is no commit metadata")
	}
	out := &CommitMeta{}
	var stats map[string][]json.RawMessage
	err = errors.Join(
		take(m, "partitionToWriteStats", &stats),
		take(m, "compacted", &out.Compacted),
		take(m, "extraMetadata", &out.Extra),
		take(m, "operationType", &out.Operation),
		take(m, "partitionToReplaceFileIds", &out.Replaced),
	)
	if err != nil {
		return nil, err
	}
	out.Stats = make(map[string][]WriteStat, len(stats))
	for partition, list := range stats {
		parsed := make([]WriteStat, len(list))
		for i, raw := range list {
			if err := parsed[i].decode(raw); err != nil {
				return nil, fmt.Errorf("write stat %d of partition %q: %w", i, partition, err)
			}
		}
		out.Stats[partition] = parsed
	}
	out.Unknown = restOf(m)
	return out, nil
}

func (w *WriteStat) decode(b []byte) error {
	m, err := members(b)
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("is null")
	}
	var runtime map[string]json.RawMessage
	var prev string
	_, isLog := m["logVersion"]
	err = errors.Join(
		take(m, "fileId", &w.FileID), take(m, "path", &w.Path), take(m, "cdcStats", &w.CDC), take(m, "prevCommit", &prev),
		take(m, "numWrites", &w.NumWrites), take(m, "numDeletes", &w.NumDeletes), take(m, "numUpdateWrites", &w.NumUpdates),
		take(m, "numInserts", &w.NumInserts), take(m, "totalWriteBytes", &w.WriteBytes), take(m, "totalWriteErrors", &w.WriteErrors),
		take(m, "tempPath", &w.TempPath), take(m, "partitionPath", &w.Partition), take(m, "totalLogRecords", &w.LogRecords),
		take(m, "totalLogFilesCompacted", &w.LogFilesCompacted), take(m, "totalLogSizeCompacted", &w.LogSizeCompacted),
		take(m, "totalUpdatedRecordsCompacted", &w.LogRecordsUpdated), take(m, "totalLogBlocks", &w.LogBlocks),
		take(m, "totalCorruptLogBlock", &w.CorruptLogBlocks), take(m, "totalRollbackBlocks", &w.RollbackBlocks),
		take(m, "fileSizeInBytes", &w.FileSize), take(m, "minEventTime", &w.MinEventTime), take(m, "maxEventTime", &w.MaxEventTime),
		take(m, "runtimeStats", &runtime),
	)
	if prev != noCommit {
		w.PrevCommit = storage.InstantTime(prev)
	}
	if err == nil && runtime != nil {
		w.Runtime = &RuntimeStats{}
		err = errors.Join(
			take(runtime, "totalScanTime", &w.Runtime.Scan), take(runtime, "totalUpsertTime", &w.Runtime.Upsert),
			take(runtime, "totalCreateTime", &w.Runtime.Create),
		)
	}
	if err == nil && isLog {
		w.Log = &LogStat{}
		err = errors.Join(
			take(m, "logVersion", &w.Log.Version), take(m, "logOffset", &w.Log.Offset), take(m, "baseFile", &w.Log.BaseFile),
			take(m, "logFiles", &w.Log.Files),
		)
		if raw, ok := m["recordsStats"]; ok {
			delete(m, "recordsStats")
			if string(raw) != emptyRecordStats {
				w.Log.Records = raw
			}
		}
	}
	w.Unknown = restOf(m)
	return err
}

// ReadCommit reads the metadata of a completed commit, delta commit or replacecommit. A file that does not decode, even if it
// is empty, is a *storage.CorruptError.
func ReadCommit(ctx context.Context, s storage.Store, dir string, in Instant) (*CommitMeta, error) {
	var m *CommitMeta
	name := in.object(dir, Completed)
	err := settle(ctx, func() error {
		b, err := readObject(ctx, s, name)
		if err != nil {
			return err
		}
		m, err = parseCommitFile(name, b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", in, err)
	}
	return m, nil
}

// parseCommitFile reads a completed file of either layout: JSON, or an Avro container.
func parseCommitFile(name string, b []byte) (*CommitMeta, error) {
	if bytes.HasPrefix(b, []byte(containerMagic)) {
		return decodeCommit(name, b)
	}
	m, err := ParseCommitMeta(b)
	if err != nil {
		return nil, &storage.CorruptError{Name: name, Offset: -1, Err: err}
	}
	return m, nil
}

// keepsSchema says whether commits of an operation carry a schema that is none of the table's own changes.
func keepsSchema(operation string) bool {
	switch operation {
	case OpCompact, OpCluster, OpLogCompact, OpIndex:
		return true
	}
	return false
}

// TableSchema gives the table's schema in Avro: that of the newest commit that may change it, else the one the table was
// created with, else "". It may hold the meta columns, which some engines leave in.
func TableSchema(ctx context.Context, s storage.Store, dir string, tl *Timeline) (string, error) {
	schema, _, err := TableSchemaAt(ctx, s, dir, tl, "")
	return schema, err
}

// TableSchemaAt is TableSchema as of an instant ("": now), with the instant of the commit that tells it, "" if none does.
func TableSchemaAt(ctx context.Context, s storage.Store, dir string, tl *Timeline, at storage.InstantTime) (schema string, of storage.InstantTime, err error) {
	for _, in := range slices.Backward(tl.Instants) {
		if in.State != Completed || !in.Action.writes() || at != "" && in.Time > at {
			continue
		}
		m, err := ReadCommit(ctx, s, dir, in)
		if err != nil {
			return "", "", err
		}
		if schema := m.Extra[ExtraSchema]; schema != "" && !keepsSchema(m.Operation) {
			return schema, in.Time, nil
		}
	}
	p, err := ReadProperties(ctx, s, dir)
	if err != nil {
		return "", "", err
	}
	return p[KeyCreateSchema], "", nil
}
