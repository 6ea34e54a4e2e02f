package storage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func jsonValue(t testing.TB, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// The schemas in the commits of Hudi's tables come back equal, nested types and all.
func TestSchemaOfHudi(t *testing.T) {
	n := 0
	for _, name := range fixtureNames(t, "v6_*") {
		dir := fixtureTable(t, name)
		files, _ := filepath.Glob(filepath.Join(dir, ".hoodie", "*commit"))
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var meta struct {
				ExtraMetadata map[string]string `json:"extraMetadata"`
			}
			text := ""
			if json.Unmarshal(b, &meta) == nil {
				text = meta.ExtraMetadata["schema"]
			}
			if text == "" {
				continue
			}
			n++
			s, err := ParseAvro(text)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			withoutMeta := jsonValue(t, text).(map[string]any)
			withoutMeta["fields"] = slices.DeleteFunc(withoutMeta["fields"].([]any), func(f any) bool {
				return isHidden(f.(map[string]any)["name"].(string))
			})
			if got := jsonValue(t, s.Avro(false)); !reflect.DeepEqual(got, any(withoutMeta)) {
				t.Errorf("%s: schema is\n%s, want\n%s", filepath.Base(path), s.Avro(false), text)
			}
			again, err := ParseAvro(s.Avro(true))
			if err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("%s: read back as %+v, %v", filepath.Base(path), again, err)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d schemas", n)
	}
}

func TestSchemaMeta(t *testing.T) {
	fields := jsonValue(t, allKinds.Avro(true)).(map[string]any)["fields"].([]any)
	first := fields[0].(map[string]any)
	if first["name"] != ColCommitTime || first["doc"] != "" || first["default"] != nil || len(fields) != len(allKinds.Fields)+5 {
		t.Errorf("first of %d fields is %v", len(fields), first)
	}
}

func TestParseAvroForms(t *testing.T) {
	s, err := ParseAvro(`{"type":"record","name":"r","fields":[
		{"name":"a","type":"int"},
		{"name":"b","type":["string","null"],"default":""},
		{"name":"c","type":{"type":"record","name":"n","namespace":"q","fields":[{"name":"x","type":["null","q.n"]}]}},
		{"name":"d","type":["null","q.n"]},
		{"name":"e","type":["null","int","string"]},
		{"name":"f","type":{"type":"string","logicalType":"uuid"}},
		{"name":"g","type":"null"},
		{"name":"h","type":{"type":{"type":"long","logicalType":"timestamp-micros"}}},
		{"name":"i","type":{"type":"bytes","logicalType":"decimal","precision":5}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	record := `{"type":"record","name":"n","namespace":"q","fields":[{"name":"x","type":["null","q.n"]}]}`
	want := []Field{
		{"a", Type{Kind: Int32}, false},
		{"b", Type{Kind: String}, true},
		{"c", Type{Kind: Nested, Avro: record}, false},
		{"d", Type{Kind: Nested, Avro: record}, true},
		{"e", Type{Kind: Nested, Avro: `["null","int","string"]`}, true},
		{"f", Type{Kind: String, Avro: `{"type":"string","logicalType":"uuid"}`}, false},
		{"g", Type{Kind: String, Avro: `"null"`}, true},
		{"h", Type{Kind: Timestamp}, false},
		{"i", Type{Kind: Decimal, Precision: 5, Avro: `{"type":"bytes","logicalType":"decimal","precision":5,"scale":0}`}, false},
	}
	if !reflect.DeepEqual(s.Fields, want) {
		t.Errorf("fields are\n%+v, want\n%+v", s.Fields, want)
	}
	if again, err := ParseAvro(s.Avro(false)); err != nil || len(again.Fields) != len(want) {
		t.Errorf("read back: %v", err)
	}
	for _, bad := range []string{
		``, `1`, `"int"`, `[]`, `{"type":"record"}`, `{"type":"record","name":"r","fields":[{"name":"a","type":"nothing"}]}`,
		`{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}`, `{"type":"array","items":"int"}`,
		`{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":50}}]}`,
		strings.Repeat(`{"type":`, 1000), `{"type":"record","name":"r","fields":[]} x`,
	} {
		if _, err := ParseAvro(bad); err == nil {
			t.Errorf("%.60s was read", bad)
		}
	}
}

func FuzzParseAvro(f *testing.F) {
	f.Add(allKinds.Avro(true))
	f.Add(`{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"record","name":"n","fields":[{"name":"x","type":["null","n"]}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseAvro(text)
		if err != nil {
			return
		}
		if _, err := ParseAvro(s.Avro(true)); err != nil {
			t.Errorf("written as %s: %v", s.Avro(true), err)
		}
	})
}

func TestSelect(t *testing.T) {
	s, err := allKinds.Select("d9", ColRecordKey, "id")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Fields) != 3 || s.Fields[0].Type.Precision != 9 || s.Fields[1].Type.Kind != String || s.Index("id") != 2 || s.Index("ID") != -1 {
		t.Errorf("selected %+v", s)
	}
	if _, err := allKinds.Select("nothing"); err == nil {
		t.Error("a column that is not there was selected")
	}
}

func TestPromotable(t *testing.T) {
	d := func(p, s int) Type { return Type{Kind: Decimal, Precision: p, Scale: s} }
	k := func(k Kind) Type { return Type{Kind: k} }
	for _, c := range []struct {
		from, to Type
		want     bool
	}{
		{k(Int32), k(Int64), true},
		{k(Int64), k(Int32), false},
		{k(Int32), k(Float32), true},
		{k(Int64), k(Float64), true},
		{k(Float32), k(Float64), true},
		{k(Float64), k(Float32), false},
		{k(Date), k(String), true},
		{k(Float64), k(String), true},
		{k(String), k(Int32), false},
		{k(Bytes), k(String), false},
		{d(9, 2), d(10, 2), true},
		{d(9, 2), d(10, 4), false},
		{d(9, 2), d(11, 4), true},
		{d(9, 2), d(8, 2), false},
		{d(9, 2), k(String), true},
		{k(Int32), d(10, 0), true},
		{k(Int32), d(9, 0), false},
		{k(Timestamp), k(String), false},
		{k(String), k(String), true},
	} {
		if got := Promotable(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %v", c.from, c.to, got)
		}
	}
	if v, err := ConvertValue(d(9, 2), d(11, 4), baseNum(t, "1.25", 2)); err != nil || v != baseNum(t, "1.2500", 4) {
		t.Errorf("1.25 is %v: %v", v, err)
	}
	if v, err := ConvertValue(k(Int32), k(String), int32(7)); err != nil || v != "7" {
		t.Errorf("7 is %v: %v", v, err)
	}
	if v, err := ConvertValue(k(Int32), k(String), nil); err != nil || v != nil {
		t.Errorf("NULL is %v: %v", v, err)
	}
}

// D16: names carry file id and instant, and come apart into them again.
func TestFileNames(t *testing.T) {
	id, token := NewFileID(), NewToken(3)
	if token == NewToken(3) || id == NewFileID() || len(id) != 38 || !strings.HasPrefix(token, "3-") {
		t.Errorf("id %s, token %s", id, token)
	}
	for name, want := range map[string]FileName{
		BaseFileName(id, token, "20261130101208826"):            {ID: id, Token: token, Instant: "20261130101208826"},
		LogFileName(id, "20261130101208826", 12, token):         {ID: id, Token: token, Instant: "20261130101208826", Version: 12},
		"fg1_1-0-1_20240101000000.parquet":                      {ID: "fg1", Token: "1-0-1", Instant: "20240101000000"},
		".fg1_20240101000000.log.1":                             {ID: "fg1", Instant: "20240101000000", Version: 1},
		".00000001-e0_20240101000000000.log.2_0-17-22.cdc":      {ID: "00000001-e0", Instant: "20240101000000000", Version: 2, Token: "0-17-22", CDC: true},
		".f_with_underscores_20240101000000000.log.3_10-17-228": {ID: "f_with_underscores", Instant: "20240101000000000", Version: 3, Token: "10-17-228"},
	} {
		want.Name = name
		if got, ok := ParseFileName(name); !ok || got != want {
			t.Errorf("%s is %+v, %v", name, got, ok)
		}
	}
	for _, bad := range []string{
		"", ".", "x.parquet", "a_b_c.parquet", "fg_1_1-0-1_2024.parquet", "f_1-0-1_2024.parquet.crc", ".f_1-0-1_2024.parquet.crc",
		".f_2024.log.1_0-1-2.crc", "..f_2024.log.1_0-1-2.crc", ".f_2024.log.x_0-1-2", ".f_2024.log.0_0-1-2", ".f_2024.log.1_0-1", ".hoodie_partition_metadata",
		".commits_.archive.1_1-0-1", ".tmp-00", "f_1-0-1_2024.orc", "_1-0-1_2024.parquet", ".log.1_0-0-0",
	} {
		if got, ok := ParseFileName(bad); ok && !strings.HasPrefix(bad, "..f") {
			t.Errorf("%q is taken for %+v", bad, got)
		} else if ok {
			t.Errorf("%q: a checksum is taken for a log: %+v", bad, got)
		}
	}
}
