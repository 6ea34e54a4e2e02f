package timeline

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lakesql/lakesql/storage"
)

// expectedFiles gives what Hudi's rows of a recorded read say in _hoodie_file_name: partition path and file name or file id.
func expectedFiles(t testing.TB, path string) map[[2]string]bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[[2]string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Partition string `json:"_hoodie_partition_path"`
			File      string `json:"_hoodie_file_name"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		out[[2]string{row.Partition, row.File}] = true
	}
	return out
}

// The slices of each table are those that Hudi's own reads took their rows from: now, and at every instant that it could travel to. // D15
func TestSlicesOfFixtures(t *testing.T) {
	ctx := context.Background()
	reads := 0
	for _, name := range slices.Concat(fixtures(t), laterFixtures(t)) {
		s := unpack(t, name)
		tl := must(Load(ctx, s, name))(t)
		v := must(BuildView(ctx, s, name, tl))(t)
		cow := must(ReadProperties(ctx, s, name))(t).TableType() == CopyOnWrite
		paths, err := filepath.Glob(filepath.Join(fixtureFolder, name+".expected", "*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			read := strings.TrimSuffix(filepath.Base(path), ".jsonl")
			at, travel := strings.CutPrefix(read, "asof_")
			var got []storage.FileSlice
			switch {
			case read == "snapshot", read == "read_optimized":
				got = v.Slices("", nil)
				if other := v.Slices("", tl.Counts); !reflect.DeepEqual(got, other) {
					t.Errorf("%s %s: %v are made once, %v anew", name, read, got, other)
				}
			case travel:
				got = v.Slices(storage.InstantTime(at), nil)
			default:
				continue
			}
			reads++
			bases, ids := map[[2]string]bool{}, map[[2]string]bool{}
			for _, fs := range got {
				ids[[2]string{fs.Partition, string(fs.ID)}] = true
				if fs.Base != nil {
					bases[[2]string{fs.Partition, fs.Base.Name}] = true
					if fs.Base.Size == 0 {
						t.Errorf("%s %s: no size of %v", name, read, fs.Base)
					}
				}
				one, ok := v.Slice(fs.Partition, fs.ID, storage.InstantTime(at), nil)
				if travel && (!ok || !reflect.DeepEqual(one, fs)) {
					t.Errorf("%s %s: one slice %v, among all %v", name, read, one, fs)
				}
			}
			want := expectedFiles(t, path)
			if cow && !maps.Equal(bases, want) {
				t.Errorf("%s %s: base files %v, Hudi read %v", name, read, bases, want)
			}
			for file := range want {
				if !bases[file] && !ids[file] {
					t.Errorf("%s %s: Hudi read %v, the slices are %v", name, read, file, got)
				}
			}
		}
	}
	if reads < 270 {
		t.Errorf("%d reads compared", reads)
	}
}

// short names the files of a slice by their instants and log numbers.
func short(fs storage.FileSlice) string {
	base := "-"
	if fs.Base != nil {
		base = string(fs.Base.Instant[11:])
	}
	out := fmt.Sprintf("%s %s:", fs.Begin[11:], base)
	for _, l := range fs.Logs {
		out += fmt.Sprintf(" %s.%d", l.Instant[11:], l.Version)
	}
	return out
}

func TestSlicesInDetail(t *testing.T) {
	ctx := context.Background()
	for name, want := range map[string][]string{
		// The log over the pending compaction joins the slice before it.
		"v6_mor_pending_compaction": {"359177 359177: 359177.1 411681.1"},
		"v6_mor_compacted":          {"323646 323646: 323646.1"},
		"v6_cow_inflight":           {"808815 808815:"}, // the file of the inflight commit is left out
		"v6_cow_rollback":           {"912185 912185:"},
		"v6_mor_rollback":           {"942287 942287: 942287.1 942287.2 942287.3 942287.4"},
		"v6_cow_clustering":         {"945812 945812:"}, // three groups are replaced
		"v6_cow_archived":           {"923047 923047:"},
		"v6_cow_cdc":                {"009958 009958:"}, // change logs are no part of a slice
	} {
		s := unpack(t, name)
		v := must(BuildView(ctx, s, name, must(Load(ctx, s, name))(t)))(t)
		var got []string
		for _, fs := range v.Slices("", nil) {
			got = append(got, strings.TrimSuffix(short(fs), " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	const hive = "v6_cow_composite_key"
	s := unpack(t, hive)
	v := must(BuildView(ctx, s, hive, must(Load(ctx, s, hive))(t)))(t)
	if got := v.Partitions(); len(got) != 6 || got[0] != "city=lima/day=2024-01-01" {
		t.Errorf("partitions %q", got)
	}
	if got := v.PartitionSlices("city=lima/day=2024-01-01", "", nil); len(got) != 1 {
		t.Errorf("slices of a partition %v", got)
	}
	if got := v.PartitionSlices("city=rome", "", nil); got != nil {
		t.Errorf("slices of no partition %v", got)
	}
}

// A view that follows a timeline instant by instant is the one that a listing gives at its end. // D15
func TestAdvance(t *testing.T) {
	ctx := context.Background()
	for _, name := range fixtures(t) {
		s := unpack(t, name)
		full := must(Load(ctx, s, name))(t)
		want := must(BuildView(ctx, s, name, full))(t)
		// Begin after the first instant, with the files it named.
		v := (&View{tl: &Timeline{}}).Apply(&Timeline{})
		for n := range full.Instants {
			tl := &Timeline{Instants: full.Instants[:n+1]}
			if err := tl.index(ctx, s, name, nil); err != nil {
				t.Fatal(err)
			}
			next, err := v.Advance(ctx, s, name, tl)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			v = next
		}
		got, all := v.Slices("", nil), want.Slices("", nil)
		switch name {
		case "v6_mor_rollback":
			// A listing finds the log of the failed instant too, which no metadata names; none of its blocks count.
			for i := range all {
				all[i].Logs = slices.DeleteFunc(slices.Clone(all[i].Logs), func(f storage.FileName) bool { return f.Version == 2 })
			}
		}
		if !reflect.DeepEqual(got, all) {
			t.Errorf("%s: followed %v, listed %v", name, got, all)
		}
	}
}

func TestApply(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	put(t, s, "t", "20260101000000001.commit", "20260101000000002.commit", "20260101000000003.replacecommit")
	tl := must(Load(ctx, s, "t"))(t)
	v := must(BuildView(ctx, s, "t", &Timeline{}))(t)
	file := func(id string, n int) string { return fmt.Sprintf("%s-0_0-0-0_2026010100000000%d.parquet", id, n) }
	v1 := v.Apply(tl, Change{At: "20260101000000001", Added: map[string]map[string]int64{"x": {file("a", 1): 10, file("b", 1): 20}, "y": {file("c", 1): 30}}})
	if got := v1.Slices("", nil); len(got) != 3 || got[0].Base.Size != 10 || got[2].Partition != "y" {
		t.Fatalf("first commit %v", got)
	}
	v2 := v1.Apply(tl, Change{At: "20260101000000002", Added: map[string]map[string]int64{"x": {file("a", 2): 11, ".b-0_20260101000000001.log.1_0-0-0": 5}}})
	if got := v2.Slices("", nil); len(got) != 3 || got[0].Base.Name != file("a", 2) || len(got[1].Logs) != 1 {
		t.Fatalf("second commit %v", got)
	}
	if v1.parts[1] != v2.parts[1] || len(v1.Slices("", nil)) != 3 || v1.Slices("", nil)[0].Base.Name != file("a", 1) {
		t.Error("the old view changed, or an untouched partition was copied")
	}
	if got := v2.Slices("20260101000000001", nil); got[0].Base.Name != file("a", 1) || len(got[1].Logs) != 1 {
		t.Errorf("travel %v", got)
	}
	v3 := v2.Apply(tl, Change{At: "20260101000000003", Replaced: map[string][]storage.FileID{"x": {"a-0"}}, Removed: map[string][]string{"y": {file("c", 1)}}})
	if got := v3.Slices("", nil); len(got) != 1 || got[0].ID != "b-0" {
		t.Errorf("replaced and removed %v", got)
	}
	if got := v3.Slices("20260101000000002", nil); len(got) != 2 {
		t.Errorf("before the replacement %v", got)
	}
	if _, ok := v3.Slice("x", "a-0", "", nil); ok {
		t.Error("the replaced group is visible")
	}
	n := 0
	for range v3.Files() {
		n++
	}
	if n != 4 {
		t.Errorf("%d files", n)
	}
}

// Logs over a pending compaction alone, and a compaction that ends without a file for a group.
func TestPendingCompaction(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	id, none := "a-0", ""
	plan := must((&CompactionPlan{Operations: &[]CompactionOperation{{FileID: &id, Partition: &none}}}).Encode())(t)
	put(t, s, "t", "20260101000000001.deltacommit")
	in := must(Request(ctx, s, "t", Compaction, "20260101000000002", plan))(t)
	put(t, s, "t", "20260101000000003.deltacommit")
	for _, n := range []string{".a-0_20260101000000001.log.1_0-0-0", ".a-0_20260101000000001.log.10_0-0-0", ".a-0_20260101000000001.log.2_0-0-0", ".a-0_20260101000000002.log.1_0-0-0"} {
		if err := s.PutNew(ctx, "t/"+n, []byte("log")); err != nil {
			t.Fatal(err)
		}
	}
	tl := must(Load(ctx, s, "t"))(t)
	v := must(BuildView(ctx, s, "t", tl))(t)
	got := v.Slices("", nil)
	if len(got) != 1 || short(got[0]) != "000001 -: 000001.1 000001.2 000001.10 000002.1" {
		t.Fatalf("pending: %v", got)
	}
	if got := v.Slices("20260101000000001", nil); len(got) != 1 || len(got[0].Logs) != 3 {
		t.Errorf("before the compaction: %v", got)
	}
	p := must(Start(ctx, s, "t", in))(t)
	const base = "a-0_0-0-0_20260101000000002.parquet"
	if err := s.PutNew(ctx, "t/"+base, []byte("base")); err != nil {
		t.Fatal(err)
	}
	if v := must(BuildView(ctx, s, "t", tl))(t); v.Slices("", nil)[0].Base != nil {
		t.Errorf("the base file of a running compaction counts: %v", v.Slices("", nil))
	}
	if err := p.Complete(ctx, &CommitMeta{Compacted: true, Operation: OpCompact, Stats: map[string][]WriteStat{"": {{FileID: "a-0", Path: base, FileSize: 4}}}}); err != nil {
		t.Fatal(err)
	}
	after := must(Load(ctx, s, "t"))(t)
	v = must(v.Advance(ctx, s, "t", after))(t)
	if got := v.Slices("", nil); len(got) != 1 || short(got[0]) != "000002 000002: 000002.1" || v.waiting != 0 {
		t.Errorf("compacted: %v", got)
	}
}
