package timeline

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/avro"

	"github.com/lakesql/lakesql/storage"
)

// split takes an Avro container that Hudi wrote apart: schema, record and sync marker.
func split(t testing.TB, b []byte) (schema string, body []byte, sync [16]byte) {
	t.Helper()
	at := bytes.Index(b, []byte(`{"type":"record"`))
	copy(sync[:], b[len(b)-16:])
	first := bytes.Index(b, sync[:])
	if at < 0 || first < 0 {
		t.Fatal("no container")
	}
	schema = string(b[at : first-1]) // a zero ends the header's map
	body = b[first+16 : len(b)-16]
	_, body = varint(body) // count
	_, body = varint(body) // length
	return schema, body, sync
}

func varint(b []byte) (int, []byte) {
	n := 0
	for i := 0; ; i++ {
		n |= int(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return n >> 1, b[i+1:]
		}
	}
}

// Each Avro file of the timeline decodes and encodes back to Hudi's own bytes: the schema in the header too. Maps of more than one entry
// are compared by value. // D12 D13
func TestAvroFilesOfFixtures(t *testing.T) {
	seen := map[string]int{}
	check := func(name, file string, b []byte, c *container, v, again any) {
		t.Helper()
		seen[c.record]++
		if err := c.decode(file, b, v); err != nil {
			t.Errorf("%s/%s: %v", name, file, err)
			return
		}
		schema, body, sync := split(t, b)
		c.load()
		if schema != c.text {
			t.Errorf("%s/%s: schema\n%s\nnot\n%s", name, file, schema, c.text)
		}
		if !bytes.Equal(c.wrap(body, sync), b) {
			t.Errorf("%s/%s: other container", name, file)
		}
		out, err := c.encode(v)
		if err != nil {
			t.Errorf("%s/%s: %v", name, file, err)
			return
		}
		_, mine, _ := split(t, out)
		if len(mine) != len(body) {
			t.Errorf("%s/%s: record of %d bytes, not %d:\n%q\n%q", name, file, len(mine), len(body), mine, body)
		}
		if c == rollbackPlanFile && !bytes.Equal(mine, body) {
			t.Errorf("%s/%s: other record\n%q\n%q", name, file, mine, body)
		}
		if err := c.decode(file, out, again); err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%s/%s: %+v came back as %+v, %v", name, file, v, again, err)
		}
	}
	for _, name := range fixtures(t) {
		s := unpack(t, name)
		for _, file := range listing(t, s, name+"/.hoodie") {
			in, ok := parseInstant(file, Layout1)
			b := content(t, s, name+"/.hoodie/"+file)
			if !ok || len(b) == 0 {
				continue
			}
			switch {
			case in.Action == Rollback && in.State == Requested:
				check(name, file, b, rollbackPlanFile, &RollbackPlan{}, &RollbackPlan{})
			case in.Action == Rollback:
				check(name, file, b, rollbackMetaFile, &RollbackMeta{}, &RollbackMeta{})
			case in.Action == Clean && in.State != Completed:
				check(name, file, b, cleanPlanFile, &CleanPlan{}, &CleanPlan{})
			case in.Action == Clean:
				check(name, file, b, cleanMetaFile, &CleanMeta{}, &CleanMeta{})
			case in.Action == Savepoint:
				check(name, file, b, savepointMetaFile, &SavepointMeta{}, &SavepointMeta{})
			case in.Action == Compaction:
				check(name, file, b, compactionPlanFile, &CompactionPlan{}, &CompactionPlan{})
			case in.Action == ReplaceCommit && in.State == Requested:
				check(name, file, b, requestedReplaceFile, &RequestedReplace{}, &RequestedReplace{})
			}
		}
	}
	if len(seen) != 7 {
		t.Errorf("kinds of files: %v", seen)
	}
}

func TestDamagedContainer(t *testing.T) {
	const name, file = "v6_cow_rollback", "20261130104912473.rollback.requested"
	b := content(t, unpack(t, name), name+"/.hoodie/"+file)
	for n := range b {
		var damage *storage.CorruptError
		if err := rollbackPlanFile.decode(file, b[:n], &RollbackPlan{}); !errors.As(err, &damage) || damage.Name != file {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for n := range b {
		c := bytes.Clone(b)
		c[n] ^= 0x55
		_ = rollbackPlanFile.decode(file, c, &RollbackPlan{}) // does not panic
	}
}

// pendingWrite begins a commit with one base file and one log file, marked and written.
func pendingWrite(t testing.TB, s storage.Store) *Pending {
	t.Helper()
	ctx := context.Background()
	p := must(Begin(ctx, s, "t", DeltaCommit, "20260101000000001", nil))(t)
	for file, kind := range map[string]MarkerKind{
		"a-0_0-0-0_20260101000000001.parquet": MarkCreate, ".b-0_20260101000000000.log.2_0-0-1": MarkAppend,
	} {
		if err := p.Mark(ctx, "x", file, kind); err != nil {
			t.Fatal(err)
		}
		if err := s.PutNew(ctx, "t/x/"+file, []byte("data")); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// A rollback deletes what the markers name and leaves a completed rollback that names the instant. // D13
func TestRollBack(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	p := pendingWrite(t, s)
	files := must(MarkedFiles(ctx, s, "t", p.Time))(t)
	if len(files["x"]) != 2 {
		t.Fatalf("marked %v", files)
	}
	if err := RollBack(ctx, s, "t", p.Instant, "20260101000000002", files); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, s, "t/x"); len(got) != 0 {
		t.Errorf("files stayed: %v", got)
	}
	if got := must(Markers(ctx, s, "t", p.Time))(t); got != nil {
		t.Errorf("markers stayed: %v", got)
	}
	m := must(ReadRollback(ctx, s, "t", Instant{Time: "20260101000000002", Action: Rollback}))(t)
	if m.FilesDeleted != 2 || m.Commits[0] != string(p.Time) || m.Instants[0].Action != "deltacommit" || len(m.Partitions["x"].Deleted) != 2 {
		t.Errorf("metadata %+v", m)
	}
	plan := must(ReadRollbackPlan(ctx, s, "t", Instant{Time: "20260101000000002", Action: Rollback}))(t)
	if plan.Target.Time != string(p.Time) || len(*plan.Requests) != 2 {
		t.Errorf("plan %+v", plan)
	}
	tl := must(Load(ctx, s, "t"))(t)
	if len(tl.Instants) != 1 || tl.Instants[0].Action != Rollback || tl.Instants[0].State != Completed {
		t.Errorf("timeline %v", tl.Instants)
	}
	other := Instant{Time: "20260101000000009", Action: Commit}
	if err := RollBack(ctx, s, "t", other, "20260101000000002", nil); !errors.Is(err, ErrConflict) {
		t.Errorf("rollback at the time of another one: %v", err)
	}
	// Twice is once.
	if err := ResumeRollback(ctx, s, "t", "20260101000000002"); err != nil {
		t.Error(err)
	}
}

func TestRollBackRefuses(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	p := pendingWrite(t, s)
	for name, want := range map[string]error{
		"a-0_0-0-0_20260101000000000.parquet": ErrConflict, // another instant's base file
		"something":                           storage.ErrUnsupported,
	} {
		if err := RollBack(ctx, s, "t", p.Instant, "20260101000000002", map[string][]string{"x": {name}}); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Complete(ctx, &CommitMeta{}); err != nil {
		t.Fatal(err)
	}
	stale := p.Instant
	stale.State = Inflight
	if err := RollBack(ctx, s, "t", stale, "20260101000000003", nil); !errors.Is(err, ErrConflict) {
		t.Errorf("rollback of a completed instant: %v", err)
	}
	if got := listing(t, s, "t/x"); len(got) != 2 {
		t.Errorf("files of the completed instant: %v", got)
	}
	// A plan that Hudi left, with blocks inside a shared log file.
	one := int32(1)
	b := must((&RollbackPlan{
		Target:   &InstantInfo{Time: "20260101000000005", Action: "deltacommit"},
		Requests: &[]RollbackRequest{{Partition: "x", Files: []string{}, LogBlocks: &map[string]int64{"/t/x/.b-0_1.log.1_0-0-0": 7}}}, Version: &one,
	}).Encode())(t)
	if err := s.PutNew(ctx, "t/.hoodie/20260101000000006.rollback.requested", b); err != nil {
		t.Fatal(err)
	}
	if err := ResumeRollback(ctx, s, "t", "20260101000000006"); !errors.Is(err, storage.ErrUnsupported) {
		t.Errorf("blocks of a shared log file: %v", err)
	}
}

// A pending compaction keeps its plan: later log files may lie over it.
func TestRollBackCompaction(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	in := must(Request(ctx, s, "t", Compaction, "20260101000000001", must((&CompactionPlan{}).Encode())(t)))(t)
	p := must(Start(ctx, s, "t", in))(t)
	if err := RollBack(ctx, s, "t", p.Instant, "20260101000000002", nil); err != nil {
		t.Fatal(err)
	}
	tl := must(Load(ctx, s, "t"))(t)
	if got, ok := tl.Get(in.Time); !ok || got.State != Requested || got.Action != Compaction {
		t.Errorf("compaction %v", tl.Instants)
	}
}

// Whatever a crash leaves of a rollback, ResumeRollback ends it: after any crash there is the instant, or a rollback to resume, or the
// completed rollback, and never a data file without one of the first two. // D14
func TestRollBackCrash(t *testing.T) {
	ctx := context.Background()
	for cut := 0; ; cut++ {
		fs := vfs.NewCrashableMem()
		inner := storage.NewLocal(fs, "warehouse")
		p := pendingWrite(t, inner)
		files := must(MarkedFiles(ctx, inner, "t", p.Time))(t)
		s := &cutStore{Store: inner, left: cut}
		err := RollBack(ctx, s, "t", p.Instant, "20260101000000002", files)
		if err == nil {
			if cut < 5 {
				t.Fatalf("only %d writes", cut)
			}
			return
		}
		after := storage.NewLocal(fs.CrashClone(vfs.CrashCloneCfg{}), "warehouse")
		tl := must(Load(ctx, after, "t"))(t)
		resume := false
		for _, in := range tl.Pending() {
			resume = resume || in.Action == Rollback
		}
		if resume {
			err = ResumeRollback(ctx, after, "t", "20260101000000002")
		} else {
			if len(tl.Pending()) != 1 {
				t.Fatalf("cut %d: %v", cut, tl.Instants)
			}
			err = RollBack(ctx, after, "t", tl.Pending()[0], "20260101000000002", must(MarkedFiles(ctx, after, "t", p.Time))(t))
		}
		if err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		tl = must(Load(ctx, after, "t"))(t)
		if len(tl.Instants) != 1 || tl.Instants[0].State != Completed || len(listing(t, after, "t/x")) != 0 {
			t.Fatalf("cut %d: %v, %v", cut, tl.Instants, listing(t, after, "t/x"))
		}
	}
}

// cutStore fails after a number of writes.
type cutStore struct {
	storage.Store
	left int
}

var errCut = errors.New("cut")

func (c *cutStore) write() error {
	if c.left--; c.left < 0 {
		return errCut
	}
	return nil
}

func (c *cutStore) PutNew(ctx context.Context, name string, b []byte) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Store.PutNew(ctx, name, b)
}

func (c *cutStore) PutNewAt(ctx context.Context, name string, b []byte, at time.Time) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Store.PutNewAt(ctx, name, b, at)
}

func (c *cutStore) PutBrief(ctx context.Context, name string, b []byte) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Store.PutBrief(ctx, name, b)
}

func (c *cutStore) Remove(ctx context.Context, names ...string) error {
	for _, n := range names {
		if err := c.write(); err != nil {
			return err
		}
		if err := c.Store.Remove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func TestMarkerLists(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	const folder = "t/.hoodie/.temp/20260101000000001/"
	for name, text := range map[string]string{
		"MARKERS.type": "TIMELINE_SERVER_BASED",
		"MARKERS0":     "x/a-0_0-0-0_20260101000000001.parquet.marker.CREATE\n",
		"MARKERS3":     "b-0_0-0-0_20260101000000001.parquet.marker.MERGE",
	} {
		if err := s.PutNew(ctx, folder+name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	files := must(MarkedFiles(ctx, s, "t", "20260101000000001"))(t)
	if len(files) != 2 || files["x"][0] != "a-0_0-0-0_20260101000000001.parquet" || !strings.HasPrefix(files[""][0], "b-0") {
		t.Errorf("%v", files)
	}
	if err := s.PutNew(ctx, folder+"c-0_0-0-0_20260101000000000.parquet.marker.APPEND", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := MarkedFiles(ctx, s, "t", "20260101000000001"); !errors.Is(err, storage.ErrUnsupported) {
		t.Errorf("append marker with the name of a base file: %v", err)
	}
}

// A newer release adds fields, an older one lacks some.
func TestContainerOfOtherWriters(t *testing.T) {
	wider := &container{record: "HoodieSavepointMetadata"}
	wider.once.Do(func() {
		b := must(schemaFiles.ReadFile("avsc/HoodieSavepointMetadata.avsc"))(t)
		wider.text = strings.Replace(string(b), `,{"name":"version","type":["int","null"],"default":1}`, `,{"name":"more","type":["null","long"],"default":null}`, 1)
		wider.schema = avro.MustParse(wider.text)
	})
	b := must(wider.encode(map[string]any{"savepointedBy": "x", "savepointedAt": int64(7), "comments": "c", "partitionMetadata": map[string]any{}, "more": int64(5)}))(t)
	var m SavepointMeta
	if err := savepointMetaFile.decode("f", b, &m); err != nil || m.By != "x" || m.At != 7 || m.Version == nil || *m.Version != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// Each write of a commit may be the last before a crash: afterwards the commit is there whole or pending. // D14
func TestCompleteCrash(t *testing.T) {
	ctx := context.Background()
	for cut := 0; ; cut++ {
		fs := vfs.NewCrashableMem()
		s := &cutStore{Store: storage.NewLocal(fs, "warehouse"), left: cut}
		p, err := Begin(ctx, s, "t", Commit, "20260101000000001", nil)
		if err == nil {
			err = p.Complete(ctx, &CommitMeta{Operation: OpInsert})
		}
		tl := must(Load(ctx, storage.NewLocal(fs.CrashClone(vfs.CrashCloneCfg{}), "warehouse"), "t"))(t)
		in, ok := tl.Get("20260101000000001")
		switch {
		case cut == 0:
			if ok || err == nil {
				t.Errorf("cut %d: %v, %v", cut, tl.Instants, err)
			}
		case !ok || in.State != State(min(cut, 3)-1) || tl.Counts(in.Time) != (err == nil):
			t.Errorf("cut %d: %v, %v", cut, tl.Instants, err)
		}
		if cut > 4 {
			return
		}
	}
}

func FuzzRollbackPlan(f *testing.F) {
	const name = "v6_cow_rollback"
	f.Add(content(f, unpack(f, name), name+"/.hoodie/20261130104912473.rollback.requested"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, again RollbackPlan
		if rollbackPlanFile.decode("f", b, &p) != nil {
			return
		}
		out, err := p.Encode()
		if err == nil {
			err = rollbackPlanFile.decode("f", out, &again)
		}
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v came back as %+v, %v", p, again, err)
		}
	})
}
