package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// Names of layout 2 are read and written alike, and every completed commit of the tables of versions 8 and 9 decodes.
func TestLayout2(t *testing.T) {
	ctx := context.Background()
	for _, name := range laterFixtures(t) {
		s := unpack(t, name)
		for _, file := range listing(t, s, name+"/.hoodie/timeline") {
			in, ok := parseInstant(file, Layout2)
			if !ok || in.Unnamed {
				t.Errorf("%s: %s is %v, %t", name, file, in, ok)
			}
			if got := in.FileName(in.State); got != "timeline/"+file {
				t.Errorf("%s: %s is written as %s", name, file, got)
			}
		}
		tl := must(Load(ctx, s, name))(t)
		if tl.Layout() != Layout2 || tl.Properties()[KeyLayoutVersion] != "2" {
			t.Errorf("%s: layout %d, properties %v", name, tl.Layout(), tl.Properties())
		}
		zone := tl.Properties().Timezone()
		for _, in := range tl.Completed() {
			m := must(ReadCommit(ctx, s, name, in))(t)
			if m.Operation == "" || m.Extra[ExtraSchema] == "" {
				t.Errorf("%s: %s is a %q with the schema %q", name, in, m.Operation, m.Extra[ExtraSchema])
			}
			for partition, stats := range m.Stats {
				for _, st := range stats {
					if f, ok := storage.ParseFileName(st.FileName()); !ok || f.ID != st.FileID || st.Partition != partition || st.FileSize == 0 || (st.Log != nil) != (f.Version > 0) {
						t.Errorf("%s: %s wrote %+v", name, in, st)
					}
				}
			}
			begin, err := ParseTime(in.Time, zone)
			end, err2 := in.End(zone)
			if err != nil || err2 != nil || end.Before(begin) {
				t.Errorf("%s: %s lasts from %s to %s, %v, %v", name, in, begin, end, err, err2)
			}
		}
		again := must(tl.Refresh(ctx, s, name))(t)
		if !slices.Equal(again.Instants, tl.Instants) {
			t.Errorf("%s: %v, then %v", name, tl.Instants, again.Instants)
		}
	}
	for name, want := range map[string]bool{
		"20260101000000000_20260101000000001.commit": true, "20260101000000000.commit": true, "20260101000000000.clustering.requested": true,
		"20260101000000000_.commit": false, "_20260101000000001.commit": false, "20260101000000000_2x.commit": false,
		"20260101000000000_20260101000000001.commit.requested": false, "20260101000000000_20260101000000001.inflight": false, "history": false,
	} {
		if in, ok := parseInstant(name, Layout2); ok != want {
			t.Errorf("%s: %v, %t", name, in, ok)
		}
	}
	if in, ok := parseInstant("20260101000000000_20260101000000001.commit", Layout1); ok {
		t.Errorf("layout 1 has no completion times in names: %v", in)
	}
}

// laterTable makes a table of layout 2 with these instants, each a pair of requested time and file name, and data files.
func laterTable(t *testing.T, instants, files []string) storage.Store {
	ctx := context.Background()
	s := memStore()
	p := Properties{KeyName: "t", KeyType: MergeOnRead, KeyVersion: "8", KeyLayoutVersion: "2", KeyTimezone: "UTC"}
	if err := WriteProperties(ctx, s, "t", p); err != nil {
		t.Fatal(err)
	}
	for _, n := range instants {
		var b []byte
		if in, _ := parseInstant(n, Layout2); in.State == Completed {
			b = (&CommitMeta{}).Encode() // as an upgraded instant has it
		}
		if in, _ := parseInstant(n, Layout2); in.Action == Compaction && in.State == Requested {
			id, path := "g-0", ""
			plan := &CompactionPlan{Operations: &[]CompactionOperation{{FileID: &id, Partition: &path}}}
			b = must(plan.Encode())(t)
		}
		if err := s.PutNew(ctx, "t/.hoodie/timeline/"+n, b); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range files {
		if err := s.PutNew(ctx, "t/"+n, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

const day = "20260101000000"

func instantName(from, to, action string) string {
	if to == "" {
		return day + from + "." + action
	}
	return day + from + "_" + day + to + "." + action
}

func logAt(at string) string  { return ".g-0_" + day + at + ".log.1_0-1-0" }
func baseAt(at string) string { return "g-0_0-1-0_" + day + at + ".parquet" }

// A log belongs to the slice that was the newest when its delta commit completed. // D15
func TestSlicesByCompletion(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		instants, files []string
		want            string // slices with the times that follow the day
		at              map[string]string
	}{
		"began before the compaction, ended after it was requested": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "130", "deltacommit"), instantName("120", "140", "commit")},
			files:    []string{baseAt("100"), logAt("110"), baseAt("120")},
			want:     "120: 120 [110]", at: map[string]string{"119": "100: 100 []", "120": "120: 120 [110]"},
		},
		"ended before the compaction was requested": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "115", "deltacommit"), instantName("120", "140", "commit")},
			files:    []string{baseAt("100"), logAt("110"), baseAt("120")},
			want:     "120: 120 []", at: map[string]string{"119": "100: 100 [110]", "105": "100: 100 []"},
		},
		"pending compaction": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "115", "deltacommit"), instantName("120", "", "compaction.requested"), instantName("116", "130", "deltacommit")},
			files:    []string{baseAt("100"), logAt("110"), logAt("116")},
			want:     "100: 100 [110 116]",
		},
		"failed delta commit": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "", "deltacommit.inflight"), instantName("111", "112", "deltacommit")},
			files:    []string{baseAt("100"), logAt("110"), logAt("111")},
			want:     "100: 100 [111]",
		},
		"failed base file takes no logs": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "", "deltacommit.inflight"), instantName("111", "112", "deltacommit")},
			files:    []string{baseAt("100"), baseAt("110"), logAt("111")},
			want:     "100: 100 [111]",
		},
		"logs alone": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "111", "deltacommit")},
			files:    []string{logAt("100"), logAt("110")},
			want:     "100: - [100 110]",
		},
		"logs alone, the first failed": {
			instants: []string{instantName("100", "", "deltacommit.inflight"), instantName("110", "111", "deltacommit")},
			files:    []string{logAt("100"), logAt("110")},
			want:     "110: - [110]",
		},
		"log before the first base file": {
			instants: []string{instantName("100", "101", "deltacommit"), instantName("110", "111", "deltacommit")},
			files:    []string{logAt("100"), baseAt("110")},
			want:     "110: 110 []",
		},
		"old name, with the instant of the base file": {
			instants: []string{instantName("100", "", "deltacommit"), instantName("110", "111", "deltacommit")},
			files:    []string{baseAt("100"), logAt("100"), logAt("110")},
			want:     "100: 100 [100 110]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := laterTable(t, c.instants, c.files)
			tl := must(Load(ctx, s, "t"))(t)
			v := must(BuildView(ctx, s, "t", tl))(t)
			show := func(v *View, at storage.InstantTime) string {
				var out []string
				for _, fs := range v.Slices(at, nil) {
					base, logs := "-", []string{}
					if fs.Base != nil {
						base = string(fs.Base.Instant[14:])
					}
					for _, l := range fs.Logs {
						logs = append(logs, string(l.Instant[14:]))
					}
					out = append(out, fmt.Sprintf("%s: %s %v", fs.Begin[14:], base, logs))
				}
				return strings.Join(out, "; ")
			}
			if got := show(v, ""); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			for at, want := range c.at {
				if got := show(v, storage.InstantTime(day+at)); got != want {
					t.Errorf("as of %s: %s, want %s", at, got, want)
				}
			}
			// A view that advances from the first instant on comes to the same.
			steps := laterTable(t, nil, nil)
			at := must(Load(ctx, steps, "t"))(t)
			grown := must(BuildView(ctx, steps, "t", at))(t)
			for _, n := range c.instants {
				in, _ := parseInstant(n, Layout2)
				m := &CommitMeta{Stats: map[string][]WriteStat{"": nil}}
				for _, f := range c.files {
					if strings.Contains(f, string(in.Time)) {
						m.Stats[""] = append(m.Stats[""], WriteStat{Path: f, FileID: "g-0", FileSize: 1})
					}
				}
				b := m.Encode()
				if in.State != Completed {
					if b = nil; in.Action == Compaction {
						b = content(t, s, "t/.hoodie/timeline/"+n)
					}
				}
				if err := steps.PutNew(ctx, "t/.hoodie/timeline/"+n, b); err != nil {
					t.Fatal(err)
				}
				at = must(at.Refresh(ctx, steps, "t"))(t)
				grown = must(grown.Advance(ctx, steps, "t", at))(t)
			}
			if got := show(grown, ""); got != c.want {
				t.Errorf("step by step: %s, want %s", got, c.want)
			}
		})
	}
}

// The completion times of archived delta commits come from the history, and are kept when an instant is archived later. // D11 D14
func TestHistory(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"v8_cow_archived", "v9_cow_archived"} {
		s := unpack(t, name)
		tl := must(Load(ctx, s, name))(t)
		commits, cleans := 0, 0
		var ends map[storage.InstantTime]storage.InstantTime
		for in, err := range Archived(ctx, s, name) {
			if err != nil {
				t.Fatal(err)
			}
			if in.State != Completed || in.Time >= tl.Start() && in.Action == Commit || len(in.Transition) != 17 || in.Transition < in.Time {
				t.Errorf("%s: %+v with a timeline from %s", name, in, tl.Start())
			}
			switch in.Action {
			case Commit:
				commits++
				m, err := parseCommitFile("archived", in.Meta)
				if err != nil || m.Operation == "" || !tl.Counts(in.Time) || in.Plan != nil {
					t.Errorf("%s: %s holds %v, %v", name, in.Time, m, err)
				}
				if ends == nil {
					ends = map[storage.InstantTime]storage.InstantTime{in.Time: "", "20200101000000000": "unknown"}
				}
			case Clean:
				cleans++
				if in.Meta == nil || in.Plan == nil {
					t.Errorf("%s: clean %s without its files", name, in.Time)
				}
			}
		}
		if commits == 0 || cleans == 0 {
			t.Errorf("%s: %d commits, %d cleans", name, commits, cleans)
		}
		if err := archivedEnds(ctx, s, name, ends); err != nil {
			t.Fatal(err)
		}
		for it, end := range ends {
			if it < "2026" && end != "unknown" || it > "2026" && (len(end) != 17 || end < it) {
				t.Errorf("%s: %s ended %s", name, it, end)
			}
		}
		// The manifest that the version names is read; a lost version means the newest one.
		folder := name + "/.hoodie/timeline/history/"
		want := must(historyFiles(ctx, s, name))(t)
		if err := s.Remove(ctx, folder+historyVersionFile); err != nil {
			t.Fatal(err)
		}
		if got := must(historyFiles(ctx, s, name))(t); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v without a version, %v with it", name, got, want)
		}
		if err := s.Replace(ctx, folder+historyVersionFile, []byte("1")); err != nil {
			t.Fatal(err)
		}
		if got := must(historyFiles(ctx, s, name))(t); len(got) >= len(want) {
			t.Errorf("%s: %v of the first manifest", name, got)
		}
	}
	if got := must(historyFiles(ctx, memStore(), "t"))(t); got != nil {
		t.Errorf("a table without history: %v", got)
	}
}

// An upgrade leaves completed files without completion times: their modification time stands for it. While it goes on, the table is refused.
func TestUpgradedTimeline(t *testing.T) {
	ctx := context.Background()
	s := laterTable(t, []string{instantName("100", "", "commit"), instantName("110", "112", "commit")}, nil)
	tl := must(Load(ctx, s, "t"))(t)
	done := tl.Completed()
	if len(done) != 2 || !done[0].Unnamed || done[1].Unnamed || len(done[0].Completed) != 17 {
		t.Fatalf("%+v", done)
	}
	if at, err := done[0].End(time.UTC); err != nil || time.Since(at) > time.Hour {
		t.Errorf("completed %s, %v", at, err)
	}
	for _, in := range done {
		must(ReadCommit(ctx, s, "t", in))(t)
	}
	if err := WriteProperties(ctx, s, "t", Properties{KeyName: "t", KeyVersion: "6", KeyLayoutVersion: "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(ctx, s, "t"); !errors.Is(err, storage.ErrUnsupported) {
		t.Errorf("half upgraded: %v", err)
	}
	if err := WriteProperties(ctx, s, "t", Properties{KeyName: "t", KeyVersion: "8", KeyLayoutVersion: "3"}); err != nil {
		t.Fatal(err)
	}
	if _, err := tl.Refresh(ctx, s, "t"); !errors.Is(err, storage.ErrUnsupported) || !strings.Contains(err.Error(), "=3") {
		t.Errorf("an unknown layout: %v", err)
	}
}

func FuzzCommitContainer(f *testing.F) {
	for _, name := range []string{"v8_mor_logs", "v9_cow_clustering", "v9_cow_cdc", "v8_cow_cdc"} {
		if !slices.Contains(laterFixtures(f), name) {
			continue
		}
		s := unpack(f, name)
		for _, file := range listing(f, s, name+"/.hoodie/timeline") {
			if in, ok := parseInstant(file, Layout2); ok && in.State == Completed && in.Action.writes() {
				f.Add(content(f, s, name+"/.hoodie/timeline/"+file))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseCommitFile("x", b)
		var damage *storage.CorruptError
		if err != nil {
			if !errors.As(err, &damage) {
				t.Fatal(err)
			}
			return
		}
		m.Encode()
		m.Change("20260101000000000")
	})
}

func FuzzHistoryManifest(f *testing.F) {
	s := unpack(f, "v8_cow_archived")
	f.Add(content(f, s, "v8_cow_archived/.hoodie/timeline/history/manifest_3"))
	f.Add([]byte(`{"files":[{"fileName":"1_2_x.parquet"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var damage *storage.CorruptError
		if _, err := parseManifest("m", "f", b); err != nil && !errors.As(err, &damage) {
			t.Fatal(err)
		}
	})
}

func FuzzHistoryFile(f *testing.F) {
	s := unpack(f, "v8_cow_archived")
	const folder = "v8_cow_archived/.hoodie/timeline/history/"
	for _, file := range listing(f, s, folder) {
		if strings.HasSuffix(file, ".parquet") {
			f.Add(content(f, s, folder+file))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx := context.Background()
		s := memStore()
		if err := s.PutNew(ctx, "h", b); err != nil {
			t.Fatal(err)
		}
		for _, err := range readHistory(ctx, s, "h", true) {
			if err != nil {
				return
			}
		}
	})
}
