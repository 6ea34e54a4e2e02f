package timeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lakesql/lakesql/storage"
)

func TestParseInstant(t *testing.T) {
	for name, want := range map[string]Instant{
		"20261130101052709.commit.requested":        {Time: "20261130101052709", Action: Commit, State: Requested},
		"20261130101052709.inflight":                {Time: "20261130101052709", Action: Commit, State: Inflight},
		"20261130101052709.commit.inflight":         {Time: "20261130101052709", Action: Commit, State: Inflight},
		"20261130101052709.commit":                  {Time: "20261130101052709", Action: Commit, State: Completed},
		"20261130101052.deltacommit":                {Time: "20261130101052", Action: DeltaCommit, State: Completed},
		"20261130101052709.compaction.requested":    {Time: "20261130101052709", Action: Compaction, State: Requested},
		"20261130101052709.replacecommit.inflight":  {Time: "20261130101052709", Action: ReplaceCommit, State: Inflight},
		"20261130101052709.savepoint.inflight":      {Time: "20261130101052709", Action: Savepoint, State: Inflight},
		"20261130101052709.rollback":                {Time: "20261130101052709", Action: Rollback, State: Completed},
		"20261130101052709.clean.requested":         {Time: "20261130101052709", Action: Clean, State: Requested},
		"20261130101052709.logcompaction.requested": {Time: "20261130101052709", Action: LogCompaction, State: Requested},
	} {
		in, ok := parseInstant(name, Layout1)
		if !ok || in != want {
			t.Errorf("%s: %v, %v", name, in, ok)
		}
	}
	for _, name := range []string{
		"hoodie.properties", "20261130101052709", "20261130101052709.", ".20261130101052709.commit", "20261130101052709.lakesql",
		"20261130101052709.schemacommit", "20261130101052709.commit.tmp", "20261130101052709_20261130101052710.commit", "lakesql",
	} {
		if in, ok := parseInstant(name, Layout1); ok {
			t.Errorf("%s: %v", name, in)
		}
	}
}

func TestInstantTime(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 67_999_999, time.UTC)
	if got := FormatTime(at); got != "20260102030405067" {
		t.Errorf("formatted %s", got)
	}
	for it, want := range map[storage.InstantTime]time.Time{
		"20260102030405067":    at.Truncate(time.Millisecond),
		"20260102030405":       time.Date(2026, 1, 2, 3, 4, 5, 999_000_000, time.UTC),
		"20260102030405067010": at.Truncate(time.Millisecond),
	} {
		if got := must(ParseTime(it, time.UTC))(t); !got.Equal(want) {
			t.Errorf("%s: %v", it, got)
		}
	}
	for _, it := range []storage.InstantTime{"", "2026", "2026010203040506x", "20261302030405067"} {
		if got, err := ParseTime(it, time.UTC); err == nil {
			t.Errorf("%s: %v", it, got)
		}
	}
}

// The instants of the tables that Hudi wrote: actions, states, order, and what counts. // D11 D13 D14
func TestTimelineOfFixtures(t *testing.T) {
	ctx := context.Background()
	for name, want := range map[string]string{
		"v6_cow_plain":      "052709 commit completed, 120948 commit completed, 135675 commit completed",
		"v6_cow_inflight":   "808815 commit completed, 810012 commit inflight",
		"v6_cow_rollback":   "835736 commit completed, 912185 commit completed, 912473 rollback completed",
		"v6_cow_clustering": "930411 commit completed, 932002 commit completed, 933275 commit completed, 935094 replacecommit completed, 945812 commit completed",
		"v6_cow_savepoint": "822782 commit completed, 825975 commit completed, 825975 savepoint completed, 838325 commit completed, 841849 clean completed, " +
			"843283 commit completed, 847026 commit completed, 850810 clean completed",
		"v6_mor_compacted": "110486 deltacommit completed, 222773 deltacommit completed, 253859 commit completed, 301077 deltacommit completed, 310345 clean completed, " +
			"314496 deltacommit completed, 323646 commit completed, 327045 deltacommit completed, 332594 clean completed",
		"v6_mor_pending_compaction": "359177 deltacommit completed, 404521 deltacommit completed, 411681 compaction requested, 413508 deltacommit completed",
		"v6_mor_rollback":           "942287 deltacommit completed, 944937 deltacommit completed, 951447 deltacommit completed, 951532 rollback completed",
	} {
		tl := must(Load(ctx, unpack(t, name), name))(t)
		var got []string
		for _, in := range tl.Instants {
			got = append(got, string(in.Time[len(in.Time)-6:])+" "+string(in.Action)+" "+in.State.String())
			if (in.State == Completed) != (in.Completed != "") {
				t.Errorf("%s: %s completed at %q", name, in, in.Completed)
			}
			if in.Action.writes() && tl.Counts(in.Time) != (in.State == Completed) {
				t.Errorf("%s: %s counts: %t", name, in, tl.Counts(in.Time))
			}
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func put(t testing.TB, s storage.Store, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		var b []byte
		if in, ok := parseInstant(n, Layout1); ok && in.State == Completed && in.Action.writes() {
			b = (&CommitMeta{}).Encode()
		}
		if err := s.PutNew(context.Background(), dir+"/.hoodie/"+n, b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCounts(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	// 030 is kept by a savepoint, what lay between it and 050 was archived; 060 is pending.
	put(t, s, "t", "030.commit", "030.savepoint", "050.commit.requested", "050.inflight", "050.commit", "055.clean", "060.commit.requested", "060.inflight", "070.commit")
	tl := must(Load(ctx, s, "t"))(t)
	for it, want := range map[storage.InstantTime]bool{
		"010": true, "030": true, "040": true, "050": true, "051": false, "055": false, "060": false, "070": true, "080": false,
	} {
		if tl.Counts(it) != want {
			t.Errorf("%s counts: %t", it, !want)
		}
	}
	if tl.Start() != "050" || tl.Incomplete() != "060" || tl.Newest() != "070" {
		t.Errorf("start %s, incomplete %s, newest %s", tl.Start(), tl.Incomplete(), tl.Newest())
	}
	if len(tl.Pending()) != 1 || len(tl.Completed()) != 3 {
		t.Errorf("pending %v, completed %v", tl.Pending(), tl.Completed())
	}
	// A rollback before the start whose target lies there too: what it wrote does not count, even if a file was left.
	if err := RollBack(ctx, s, "t", Instant{Time: "020", Action: Commit}, "021", nil); err != nil {
		t.Fatal(err)
	}
	tl = must(tl.Refresh(ctx, s, "t"))(t)
	if tl.Counts("020") || !tl.Counts("010") {
		t.Errorf("020 was rolled back: %t, %t", tl.Counts("020"), tl.Counts("010"))
	}
	// An empty rollback or clean is what a crash leaves, and harmless.
	put(t, s, "t", "081.rollback", "082.clean")
	must(tl.Refresh(ctx, s, "t"))(t)
	if got, err := EarliestRetained(ctx, s, "t", tl); got != "" || err != nil {
		t.Errorf("earliest retained %q, %v", got, err)
	}
	empty := must(Load(ctx, s, "nothing"))(t)
	if _, ok := empty.Last(); ok || empty.Counts("010") || empty.Start() != "" {
		t.Errorf("empty timeline: %+v", empty)
	}
}

func TestEarliestRetained(t *testing.T) {
	ctx := context.Background()
	for name, want := range map[string]storage.InstantTime{
		"v6_cow_savepoint": "20261130101847026", "v6_cow_plain": "", "v6_mor_compacted": "20261130104327045", "v6_cow_archived": "20261130101923047",
	} {
		s := unpack(t, name)
		got := must(EarliestRetained(ctx, s, name, must(Load(ctx, s, name))(t)))(t)
		if got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// An instant goes requested, inflight, completed, and each step is refused where another one came in between. // D11 D14
func TestBeginComplete(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	if err := Create(ctx, s, "t", Properties{KeyName: "t"}); err != nil {
		t.Fatal(err)
	}
	states := func() []string {
		return slices.DeleteFunc(listing(t, s, "t/.hoodie"), func(n string) bool { return n == propertiesFile })
	}
	p := must(Begin(ctx, s, "t", Commit, "20260101000000000", nil))(t)
	if got := states(); !slices.Equal(got, []string{"20260101000000000.commit.requested", "20260101000000000.inflight"}) {
		t.Fatalf("begun: %v", got)
	}
	if _, err := Begin(ctx, s, "t", Commit, "20260101000000000", nil); !errors.Is(err, ErrConflict) {
		t.Fatalf("begun twice: %v", err)
	}
	const base = "a-0_0-0-0_20260101000000000.parquet"
	if err := errors.Join(EnsurePartition(ctx, s, "t", "x=1/y=2", p.Time), EnsurePartition(ctx, s, "t", "x=1/y=2", "later"), p.Mark(ctx, "x=1/y=2", base, MarkCreate)); err != nil {
		t.Fatal(err)
	}
	if b := string(content(t, s, "t/x=1/y=2/.hoodie_partition_metadata")); !strings.HasSuffix(b, "\ncommitTime=20260101000000000\npartitionDepth=2\n") {
		t.Errorf("partition metadata %q", b)
	}
	if got := must(MarkedFiles(ctx, s, "t", p.Time))(t); !slices.Equal(got["x=1/y=2"], []string{base}) {
		t.Errorf("marked %v", got)
	}
	meta := &CommitMeta{Extra: map[string]string{"lakesql.bin": "1"}, Operation: OpInsert}
	if err := p.Complete(ctx, meta); err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(ctx, meta); !errors.Is(err, ErrConflict) {
		t.Errorf("completed twice: %v", err)
	}
	if err := p.Abort(ctx); !errors.Is(err, ErrConflict) {
		t.Errorf("aborted after completion: %v", err)
	}
	if got := must(Markers(ctx, s, "t", p.Time))(t); got != nil {
		t.Errorf("markers stayed: %v", got)
	}
	tl := must(Load(ctx, s, "t"))(t)
	last, ok := tl.Last()
	if !ok || last.Time != p.Time || must(ReadCommit(ctx, s, "t", last))(t).Extra["lakesql.bin"] != "1" {
		t.Errorf("last %v", last)
	}

	// Somebody rolls the next one back before it completes.
	p = must(Begin(ctx, s, "t", DeltaCommit, "20260101000000001", nil))(t)
	if err := RollBack(ctx, s, "t", p.Instant, "20260101000000002", nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Complete(ctx, meta); !errors.Is(err, ErrRolledBack) {
		t.Errorf("completed after its rollback: %v", err)
	}

	// One that is given up leaves nothing.
	before := states()
	p = must(Begin(ctx, s, "t", ReplaceCommit, "20260101000000003", nil))(t)
	if r := must(ReadRequestedReplace(ctx, s, "t", p.Instant))(t); *r != (RequestedReplace{}) {
		t.Errorf("requested replacecommit %+v", r)
	}
	const left = "b-0_0-0-0_20260101000000003.parquet"
	if err := p.Mark(ctx, "", left, MarkCreate); err != nil {
		t.Fatal(err)
	}
	if err := s.PutNew(ctx, "t/"+left, []byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if got := states(); !slices.Equal(got, before) {
		t.Errorf("after abort: %v", got)
	}
	if got := listing(t, s, "t"); len(got) != 0 {
		t.Errorf("data files after abort: %v", got)
	}

	// A savepoint has no requested state.
	p = must(Begin(ctx, s, "t", Savepoint, "20260101000000000", nil))(t)
	b := must((&SavepointMeta{By: "me", Partitions: map[string]SavepointPartition{"": {Files: []string{base}}}}).Encode())(t)
	if err := p.CompleteBytes(ctx, b); err != nil {
		t.Fatal(err)
	}
	if m := must(ReadSavepoint(ctx, s, "t", p.Instant))(t); m.By != "me" || m.Partitions[""].Files[0] != base {
		t.Errorf("savepoint %+v", m)
	}

	// A compaction is requested first and started later; it completes as a commit.
	in := must(Request(ctx, s, "t", Compaction, "20260101000000004", must((&CompactionPlan{}).Encode())(t)))(t)
	if _, err := Request(ctx, s, "t", Compaction, "20260101000000004", nil); !errors.Is(err, ErrConflict) {
		t.Errorf("requested twice: %v", err)
	}
	p = must(Start(ctx, s, "t", in))(t)
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if tl = must(Load(ctx, s, "t"))(t); tl.Incomplete() != in.Time {
		t.Errorf("the plan of an aborted compaction is gone: %v", tl.Instants)
	}
	p = must(Start(ctx, s, "t", in))(t)
	if err := p.Complete(ctx, &CommitMeta{Compacted: true, Operation: OpCompact}); err != nil {
		t.Fatal(err)
	}
	tl = must(Load(ctx, s, "t"))(t)
	if got, ok := tl.Get(in.Time); !ok || got.Action != Commit || got.State != Completed {
		t.Errorf("completed compaction: %v", got)
	}
}
