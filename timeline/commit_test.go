package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lakesql/lakesql/storage"
)

// Every JSON file that Hudi wrote is understood whole and written again with the same bytes, but for the order of
// partitions. // D12
func TestCommitMetaOfFixtures(t *testing.T) {
	ctx := context.Background()
	same := 0
	for _, name := range fixtures(t) {
		s := unpack(t, name)
		for _, file := range listing(t, s, name+"/.hoodie") {
			in, ok := parseInstant(file, Layout1)
			if !ok || !in.Action.writes() || in.State == Requested {
				continue
			}
			b := content(t, s, name+"/.hoodie/"+file)
			if len(b) == 0 {
				continue
			}
			m, err := ParseCommitMeta(b)
			if err != nil {
				t.Errorf("%s/%s: %v", name, file, err)
				continue
			}
			if m.Unknown != nil {
				t.Errorf("%s/%s: unknown members %v", name, file, m.Unknown)
			}
			var want, got any
			out := m.Encode()
			if err := errors.Join(json.Unmarshal(b, &want), json.Unmarshal(out, &got)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("%s/%s: written as\n%s", name, file, out)
			}
			if len(m.Stats) <= 1 && len(m.Extra) <= 1 {
				same++
				if !bytes.Equal(b, out) {
					t.Errorf("%s/%s: other bytes\n%s", name, file, out)
				}
			}
			for partition, stats := range m.Stats {
				for i := range stats {
					if stats[i].Unknown != nil || in.State == Completed && (stats[i].Partition != partition || stats[i].FileSize == 0) {
						t.Errorf("%s/%s: stat %+v", name, file, stats[i])
					}
				}
			}
		}
		tl := must(Load(ctx, s, name))(t)
		for _, in := range tl.Completed() {
			must(ReadCommit(ctx, s, name, in))(t)
		}
	}
	if same < 20 {
		t.Errorf("%d files compared byte by byte", same)
	}
}

func TestCommitMetaMembers(t *testing.T) {
	m := &CommitMeta{
		Stats: map[string][]WriteStat{"": {
			{FileID: "a-0", Path: "a-0_0-0-0_20260101000000000.parquet", NumWrites: 2, NumInserts: 2, WriteBytes: 10, FileSize: 10},
			{
				FileID: "b-0", Path: ".b-0_20260101000000000.log.1_0-0-0", PrevCommit: "20260101000000000", FileSize: 5,
				Log: &LogStat{Version: 1, BaseFile: "b-0_0-0-0_20260101000000000.parquet", Files: []string{".b-0_20260101000000000.log.1_0-0-0"}},
			},
		}},
		Extra:     map[string]string{ExtraSchema: `{"type":"record"}`, "lakesql.bin": "7", "lakesql.warehouse": "w"},
		Operation: OpUpsert,
		Unknown:   map[string]json.RawMessage{"x": json.RawMessage(`{"y":[1,{}]}`)},
	}
	b := m.Encode()
	for _, part := range []string{`"prevCommit" : "null"`, `"prevCommit" : "20260101000000000"`, `"lakesql.bin" : "7"`, `"tempPath" : null`, `"y" : [ 1, { } ]`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("no %s in\n%s", part, b)
		}
	}
	if again := must(ParseCommitMeta(b))(t); !reflect.DeepEqual(again, m) {
		t.Errorf("came back as %+v", again)
	}
	c := m.Change("20260101000000001")
	if len(c.Added[""]) != 2 || c.Added[""]["a-0_0-0-0_20260101000000000.parquet"] != 10 {
		t.Errorf("change %+v", c)
	}
}

func TestTableSchema(t *testing.T) {
	ctx := context.Background()
	const name = "v6_mor_compacted" // the newest commit but one is a compaction
	s := unpack(t, name)
	schema := must(TableSchema(ctx, s, name, must(Load(ctx, s, name))(t)))(t)
	if !strings.Contains(schema, `"name":"v6_mor_compacted_record"`) {
		t.Errorf("schema %q", schema)
	}
	const created = "v6_cow_savepoint"
	s = unpack(t, created)
	if schema := must(TableSchema(ctx, s, created, &Timeline{}))(t); !strings.Contains(schema, "t_v6_cow_savepoint_record") {
		t.Errorf("schema of the table's creation: %q", schema)
	}
	m := memStore()
	if err := Create(ctx, m, "t", Properties{KeyName: "t"}); err != nil {
		t.Fatal(err)
	}
	if schema := must(TableSchema(ctx, m, "t", must(Load(ctx, m, "t"))(t)))(t); schema != "" {
		t.Errorf("schema of nothing: %q", schema)
	}
}

func TestDamagedCommit(t *testing.T) {
	ctx := context.Background()
	const name = "v6_cow_plain"
	s := unpack(t, name)
	tl := must(Load(ctx, s, name))(t)
	last, _ := tl.Last()
	file := last.object(name, Completed)
	for _, b := range []string{"{", "null", `{"compacted":7}`, `{"partitionToWriteStats":{"":[7]}}`, ""} {
		if err := s.Replace(ctx, file, []byte(b)); err != nil {
			t.Fatal(err)
		}
		var damage *storage.CorruptError
		if _, err := ReadCommit(ctx, s, name, last); !errors.As(err, &damage) || damage.Name != file {
			t.Errorf("%q: %v", b, err)
		}
	}
	// The last of them is empty: Spark would show no rows, so the timeline is refused with the file's name.
	var damage *storage.CorruptError
	if _, err := Load(ctx, s, name); !errors.As(err, &damage) || damage.Name != file {
		t.Errorf("empty commit: %v", err)
	}
}

func FuzzCommitMeta(f *testing.F) {
	for _, name := range fixtures(f) {
		s := unpack(f, name)
		for _, file := range listing(f, s, name+"/.hoodie") {
			if in, ok := parseInstant(file, Layout1); ok && in.Action.writes() && in.State != Requested {
				f.Add(content(f, s, name+"/.hoodie/"+file))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseCommitMeta(b)
		if err != nil {
			return
		}
		out := m.Encode()
		again, err := ParseCommitMeta(out)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if twice := again.Encode(); !bytes.Equal(out, twice) {
			t.Fatalf("written as\n%s\nthen as\n%s", out, twice)
		}
	})
}
