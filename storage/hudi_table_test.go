package storage

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

const hudiTables = "../testdata/hudi"

// hudiTable is a table that Hudi wrote, unpacked into memory, with what its timeline says.
type hudiTable struct {
	name      string
	store     *Local
	files     []string // object names
	completed map[InstantTime]*Schema
	props     map[string]string
}

func openHudiTable(t testing.TB, name string) *hudiTable {
	t.Helper()
	fs := vfs.NewMem()
	f := &hudiTable{name: name, store: NewLocal(fs, "root"), completed: map[InstantTime]*Schema{}, props: map[string]string{}}
	file, err := os.Open(filepath.Join(hudiTables, name+".tar.gz"))
	require.NoError(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	require.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		object := path.Clean(h.Name)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, f.store.PutNew(context.Background(), object, b))
		f.files = append(f.files, object)
		dir, last := path.Split(object)
		if dir != name+"/.hoodie/" {
			continue
		}
		instant, action, _ := strings.Cut(last, ".")
		switch {
		case last == "hoodie.properties":
			for _, line := range strings.Split(string(b), "\n") {
				if k, v, ok := strings.Cut(line, "="); ok {
					f.props[k] = v
				}
			}
		case action == "commit" || action == "deltacommit" || action == "replacecommit":
			var meta struct {
				ExtraMetadata struct{ Schema string }
			}
			require.NoError(t, json.Unmarshal(b, &meta))
			s, err := ParseAvro(meta.ExtraMetadata.Schema)
			require.NoError(t, err)
			f.completed[InstantTime(instant)] = s
		}
	}
	sort.Strings(f.files)
	return f
}

// newest is the last completed instant, not after bound if that is not empty.
func (f *hudiTable) newest(bound InstantTime) (last InstantTime) {
	for t := range f.completed {
		if (bound == "" || t <= bound) && t > last {
			last = t
		}
	}
	return last
}

func (f *hudiTable) scan(bound InstantTime) Scan {
	s := f.completed[f.newest(bound)]
	names := slices.Clone(MetaColumns)
	for _, fd := range s.Fields {
		names = append(names, fd.Name)
	}
	want, err := s.Select(names...)
	if err != nil {
		panic(err)
	}
	sc := Scan{Schema: want, Table: s, OrderingField: f.props["hoodie.table.precombine.field"]}
	sc.Counts = func(t InstantTime) bool { return f.completed[t] != nil && (bound == "" || t <= bound) }
	switch class := f.props["hoodie.compaction.payload.class"]; path.Ext(class) {
	case ".OverwriteWithLatestAvroPayload":
	case ".DefaultHoodieRecordPayload":
		sc.Ordering = EventTime
	default:
		sc.Payload = class
	}
	return sc
}

// slices groups the files as of bound: per group the newest slice, with the one before it if it has no base file.
func (f *hudiTable) slices(counts func(InstantTime) bool, bound InstantTime) []FileSlice {
	type group struct {
		partition string
		id        FileID
	}
	groups := map[group]map[InstantTime]*FileSlice{}
	for _, object := range f.files {
		dir, last := path.Split(strings.TrimPrefix(object, f.name+"/"))
		n, ok := ParseFileName(last)
		if !ok || strings.HasPrefix(dir, ".hoodie/") || n.CDC || bound != "" && n.Instant > bound {
			continue
		}
		if n.Version == 0 && !counts(n.Instant) {
			continue
		}
		g := group{strings.TrimSuffix(dir, "/"), n.ID}
		if groups[g] == nil {
			groups[g] = map[InstantTime]*FileSlice{}
		}
		s := groups[g][n.Instant]
		if s == nil {
			s = &FileSlice{Partition: g.partition, ID: n.ID, Begin: n.Instant}
			groups[g][n.Instant] = s
		}
		if n.Version == 0 {
			s.Base = &n
		} else {
			s.Logs = append(s.Logs, n)
		}
	}
	var out []FileSlice
	for _, byTime := range groups {
		var times []InstantTime
		for at := range byTime {
			times = append(times, at)
		}
		slices.Sort(times)
		s := *byTime[times[len(times)-1]]
		if s.Base == nil && len(times) > 1 {
			before := byTime[times[len(times)-2]]
			s.Base, s.Begin, s.Logs = before.Base, before.Begin, append(before.Logs, s.Logs...)
		}
		slices.SortFunc(s.Logs, func(a, b FileName) int {
			if a.Instant != b.Instant {
				return strings.Compare(string(a.Instant), string(b.Instant))
			}
			return a.Version - b.Version
		})
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b FileSlice) int { return strings.Compare(a.Partition+string(a.ID), b.Partition+string(b.ID)) })
	return out
}

// rowJSON gives a row in the form of the expected files, its members in name order.
func rowJSON(t testing.TB, s *Schema, row Row) string {
	t.Helper()
	m := map[string]any{}
	for i, v := range row {
		f := s.Fields[i]
		switch x := v.(type) {
		case int32:
			if v = json.Number(strconv.Itoa(int(x))); f.Type.Kind == Date {
				v = time.Unix(int64(x)*86400, 0).UTC().Format("2006-01-02")
			}
		case int64:
			if v = json.Number(strconv.FormatInt(x, 10)); f.Type.Kind == Timestamp {
				v = time.UnixMicro(x).UTC().Format("2006-01-02T15:04:05.000000Z")
			}
		case float32:
			v = json.RawMessage(appendJSONFloat(nil, float64(x), 64))
		case float64:
			v = json.RawMessage(appendJSONFloat(nil, x, 64))
		case []byte:
			v = base64.StdEncoding.EncodeToString(x)
		case decimal128.Num:
			v = string(appendPlainDecimal(nil, x, f.Type.Scale))
		case string:
			if f.Type.Kind == Nested {
				v = json.RawMessage(x)
			}
		}
		m[f.Name] = v
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return normalJSON(t, string(b))
}

// normalJSON writes numbers and the order of members one way.
func normalJSON(t testing.TB, line string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	var walk func(any) any
	walk = func(v any) any {
		switch x := v.(type) {
		case json.Number:
			if _, err := strconv.ParseInt(string(x), 10, 64); err == nil {
				return x
			}
			f, err := x.Float64()
			require.NoError(t, err)
			return json.RawMessage(appendJSONFloat(nil, f, 64))
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		}
		return v
	}
	b, err := json.Marshal(walk(v))
	require.NoError(t, err)
	return string(b)
}

// expected reads one of the files of rows that Hudi read; false if there is none.
func (f *hudiTable) expected(t testing.TB, read string) ([]string, bool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(hudiTables, f.name+".expected", read+".jsonl"))
	if os.IsNotExist(err) {
		return nil, false
	}
	require.NoError(t, err)
	out := []string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if line != "" {
			out = append(out, normalJSON(t, line))
		}
	}
	sort.Strings(out)
	return out, true
}

func (f *hudiTable) rows(t testing.TB, r *Reader, sc Scan, bound InstantTime) []string {
	t.Helper()
	out := []string{}
	for _, fs := range f.slices(sc.Counts, bound) {
		for b, err := range r.ReadSlice(context.Background(), f.name, fs, sc) {
			require.NoError(t, err)
			require.NotZero(t, b.Rows)
			for i := range b.Rows {
				out = append(out, rowJSON(t, sc.Schema, b.Row(i, nil)))
			}
		}
	}
	sort.Strings(out)
	return out
}
