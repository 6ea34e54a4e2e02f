package storage

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// untarTable unpacks a .tar.gz of a table below dir.
func untarTable(r io.Reader, dir string) error {
	zr, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
}

// fixtureTable unpacks a table that Hudi wrote.
func fixtureTable(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Open(filepath.Join("..", "testdata", "hudi", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := untarTable(file, dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func fixtureNames(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "testdata", "hudi", pattern+".tar.gz"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no fixtures")
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".tar.gz")
	}
	return files
}

// expectedValue turns a value into the form that the fixtures' JSON lines have.
func expectedValue(t Type, v any) any {
	switch x := v.(type) {
	case int32:
		if t.Kind == Date {
			return time.Unix(int64(x)*86400, 0).UTC().Format("2006-01-02")
		}
		return float64(x)
	case int64:
		if t.Kind == Timestamp {
			return time.UnixMicro(x).UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		return json.Number(fmt.Sprint(x))
	case float32:
		return expectedValue(t, float64(x))
	case float64:
		switch {
		case math.IsNaN(x):
			return "NaN"
		case math.IsInf(x, 1):
			return "Infinity"
		case math.IsInf(x, -1):
			return "-Infinity"
		}
	case []byte:
		return base64.StdEncoding.EncodeToString(x)
	case decimal128.Num:
		return string(appendPlainDecimal(nil, x, t.Scale))
	case string:
		if t.Kind == Nested {
			return json.RawMessage(x)
		}
	}
	return v
}

func canonical(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var x any
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(x); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// D16: the newest base file of each group of Hudi's copy-on-write tables holds what Hudi reads, and is named as ParseFileName expects.
func TestReadHudiBaseFiles(t *testing.T) {
	read, checked := 0, 0
	for _, name := range fixtureNames(t, "v6_*") {
		dir := fixtureTable(t, name)
		expected := map[string]string{}
		lines, err := os.ReadFile(filepath.Join("..", "testdata", "hudi", name+".expected", "snapshot.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(lines)) {
			var o map[string]any
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			expected[fmt.Sprint(o[ColFileName], "|", o[ColRecordKey])] = canonical(t, o)
		}
		s := NewLocal(vfs.Default, dir)
		filepath.WalkDir(dir, func(path string, d os.DirEntry, failed error) error {
			if failed != nil {
				return failed
			}
			if d.IsDir() && d.Name() == ".hoodie" {
				return filepath.SkipDir
			}
			if filepath.Ext(path) != ".parquet" {
				return nil
			}
			fn, ok := ParseFileName(filepath.Base(path))
			if !ok || fn.Version != 0 || BaseFileName(fn.ID, fn.Token, fn.Instant) != fn.Name {
				t.Errorf("%s is taken apart as %+v", path, fn)
			}
			rel, _ := filepath.Rel(dir, path)
			f := mustOpenBase(t, s, filepath.ToSlash(rel))
			want := withMeta(f.Schema())
			read++
			var at []int64
			scanned := scanRows(t, f, want)
			for i, r := range scanned {
				at = append(at, int64(i))
				o := map[string]any{}
				for c, v := range r {
					o[want.Fields[c].Name] = expectedValue(want.Fields[c].Type, v)
				}
				key := fmt.Sprint(o[ColFileName], "|", o[ColRecordKey])
				if want, ok := expected[key]; ok && strings.HasPrefix(name, "v6_cow") && !strings.Contains(name, "schema_on_read") {
					checked++
					if got := canonical(t, o); got != want {
						t.Errorf("%s: row is\n%s, want\n%s", name, got, want)
					}
				}
				if !f.MayHaveKey(r[2].(string)) {
					t.Errorf("%s: key %v is not in the filter", rel, r[2])
				}
			}
			b, err := f.ReadRows(bg, want, at)
			if err != nil {
				t.Errorf("%s: rows by number: %v", rel, err)
				return nil
			}
			for i := range b.Rows {
				if got := b.Row(i, nil); !sameRow(got, scanned[i]) {
					t.Errorf("%s: row %d by number is\n%v, want\n%v", rel, i, got, scanned[i])
				}
			}
			return nil
		})
	}
	if read < 40 || checked < 250 {
		t.Errorf("%d files read, %d rows checked", read, checked)
	}
}

// D17: Hudi's own filter answers for its keys, and is rebuilt bit by bit from them.
func TestHudiBloom(t *testing.T) {
	dir := fixtureTable(t, "v6_cow_plain")
	files, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if len(files) == 0 {
		t.Fatal("no base files")
	}
	for _, path := range files {
		f := mustOpenBase(t, NewLocal(vfs.Default, dir), filepath.Base(path))
		b := f.Bloom()
		if b == nil {
			t.Fatal("no filter")
		}
		text, _ := f.pq.Lookup(footerBloom)
		again := &Bloom{hashes: b.hashes, size: b.size, rows: [][]byte{make([]byte, len(b.rows[0]))}, perRow: b.perRow}
		low, high := "", ""
		for i, r := range scanRows(t, f, &Schema{Fields: []Field{{Name: ColRecordKey, Type: Type{Kind: String}}}}) {
			key := r[0].(string)
			again.Add(key)
			if i == 0 || compareJava(key, low) < 0 {
				low = key
			}
			if i == 0 || compareJava(key, high) > 0 {
				high = key
			}
			if !b.Has(key) {
				t.Errorf("key %q is missing", key)
			}
		}
		if low2, high2, _ := f.KeyRange(); low != low2 || high != high2 {
			t.Errorf("keys from %q to %q, footer says %q to %q", low, high, low2, high2)
		}
		// No key of this table was deleted before these files: the filter holds what the file does and nothing else.
		if strings.HasSuffix(path, "_20261130101052709.parquet") || strings.HasSuffix(path, "_20261130101120948.parquet") {
			if again.Encode() != text {
				t.Errorf("%s: the filter rebuilt differs", filepath.Base(path))
			}
		}
		if b.Has("no such key") && b.Has("nor this one") {
			t.Error("the filter says yes to everything")
		}
	}
}
