package timeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// maintained is a table whose metadata table is kept up to date, written without any other package.
type maintained struct {
	t     testing.TB
	s     storage.Store
	clock int
	files map[string]map[string]int64 // what counts
}

const maintainedDir = "t"

func newMaintained(t testing.TB, s storage.Store) *maintained {
	require.NoError(t, Create(context.Background(), s, maintainedDir, Properties{KeyName: "t", KeyType: MergeOnRead, KeyMetadataEnable: "true"}))
	return &maintained{t: t, s: s, files: map[string]map[string]int64{}}
}

func (m *maintained) tick() storage.InstantTime {
	m.clock++
	return storage.InstantTime(fmt.Sprintf("20260101%02d%02d%02d000", m.clock/3600, m.clock/60%60, m.clock%60))
}

// begin writes the files of a delta commit: a base file of a new group in each of the partition paths.
func (m *maintained) begin(parts ...string) (*Pending, *CommitMeta, map[string]map[string]int64, error) {
	ctx, at := context.Background(), m.tick()
	c := &CommitMeta{Stats: map[string][]WriteStat{}, Operation: OpUpsert, Extra: map[string]string{ExtraSchema: "{}"}}
	wrote := map[string]map[string]int64{}
	p, err := Begin(ctx, m.s, maintainedDir, DeltaCommit, at, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, part := range parts {
		id := storage.NewFileID()
		name := storage.BaseFileName(id, storage.NewToken(0), at)
		if err := EnsurePartition(ctx, m.s, maintainedDir, part, at); err != nil {
			return nil, nil, nil, err
		}
		if err := p.Mark(ctx, part, name, MarkCreate); err != nil {
			return nil, nil, nil, err
		}
		content := []byte(strings.Repeat("x", m.clock))
		if err := m.s.PutNew(ctx, join(maintainedDir, part, name), content); err != nil {
			return nil, nil, nil, err
		}
		c.Stats[part] = []WriteStat{{FileID: id, Partition: part, Path: join(part, name), NumWrites: 1, NumInserts: 1, WriteBytes: int64(len(content)), FileSize: int64(len(content))}}
		wrote[part] = map[string]int64{name: int64(len(content))}
	}
	return p, c, wrote, nil
}

func (m *maintained) commit(parts ...string) error {
	p, c, wrote, err := m.begin(parts...)
	if err != nil {
		return err
	}
	if err := p.Complete(context.Background(), c); err != nil {
		return err
	}
	for part, files := range wrote {
		if m.files[part] == nil {
			m.files[part] = map[string]int64{}
		}
		maps.Copy(m.files[part], files)
	}
	return nil
}

// clean removes one file.
func (m *maintained) clean(rnd *rand.Rand) error {
	ctx := context.Background()
	parts := slices.Sorted(maps.Keys(m.files))
	part := parts[rnd.IntN(len(parts))]
	names := slices.Sorted(maps.Keys(m.files[part]))
	if len(names) == 0 {
		return nil
	}
	name := names[rnd.IntN(len(names))]
	at := m.tick()
	plan, err := (&CleanPlan{LastCompleted: string(at), Policy: "KEEP_LATEST_COMMITS"}).Encode()
	require.NoError(m.t, err)
	p, err := Begin(ctx, m.s, maintainedDir, Clean, at, plan)
	if err != nil {
		return err
	}
	if err := m.s.Remove(ctx, join(maintainedDir, part, name)); err != nil {
		return err
	}
	b, err := (&CleanMeta{Start: string(at), EarliestToRetain: string(at), Partitions: map[string]CleanPartition{
		part: {Partition: part, Policy: "KEEP_LATEST_COMMITS", Patterns: []string{name}, Deleted: []string{name}, Failed: []string{}},
	}}).Encode()
	require.NoError(m.t, err)
	if err := p.CompleteBytes(ctx, b); err != nil {
		return err
	}
	delete(m.files[part], name)
	return nil
}

// check compares the metadata table with what counts.
func (m *maintained) check() {
	m.t.Helper()
	meta := openMetadata(m.t, m.s, maintainedDir)
	require.Empty(m.t, meta.Stale())
	got, err := meta.Files(context.Background())
	require.NoError(m.t, err)
	require.Equal(m.t, filled(m.files), filled(got))
}

// filled leaves the partition paths without files out.
func filled(files map[string]map[string]int64) map[string]map[string]int64 {
	files = maps.Clone(files)
	maps.DeleteFunc(files, func(_ string, names map[string]int64) bool { return len(names) == 0 })
	return files
}

// Whatever instants do, the metadata table lists the files that count, and is bounded.
func TestMaintainMetadata(t *testing.T) {
	ctx := context.Background()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := newMaintained(t, memStore())
	require.NoError(t, m.commit(""))
	p, err := ReadProperties(ctx, m.s, maintainedDir)
	require.NoError(t, err)
	require.Equal(t, "files", p[KeyMetadata])
	m.check()
	m = newMaintained(t, memStore())
	for i := range 80 {
		switch n := rnd.IntN(10); {
		case i == 0 || n < 5:
			require.NoError(t, m.commit([]string{"a", "b=1/c=2", "ü"}[:1+rnd.IntN(3)]...))
		case n < 7:
			require.NoError(t, m.clean(rnd))
		case n == 7: // undone by its own process
			p, c, _, err := m.begin("a")
			require.NoError(t, err)
			if rnd.IntN(2) == 0 { // after the metadata table was told
				require.NoError(t, tellMetadata(ctx, m.s, maintainedDir, p.Instant, c.Encode()))
			}
			require.NoError(t, p.Abort(ctx))
		default: // rolled back by another
			p, c, wrote, err := m.begin("a")
			require.NoError(t, err)
			if rnd.IntN(2) == 0 {
				require.NoError(t, tellMetadata(ctx, m.s, maintainedDir, p.Instant, c.Encode()))
			}
			files := map[string][]string{}
			for part, names := range wrote {
				files[part] = slices.Collect(maps.Keys(names))
			}
			require.NoError(t, RollBack(ctx, m.s, maintainedDir, p.Instant, m.tick(), files))
		}
		m.check()
	}
	// What readers need of the table's active timeline is less than archival leaves of it.
	meta := openMetadata(t, m.s, maintainedDir)
	needed, err := meta.Needed(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, needed)
	later := 0
	for _, in := range meta.data.Instants {
		if in.Time >= needed {
			later++
		}
	}
	require.LessOrEqual(t, later, metadataLogsMax+1)
	n := 0
	for _, err := range m.s.List(ctx, metadataDir(maintainedDir)+"/.hoodie") {
		require.NoError(t, err)
		n++
	}
	for _, err := range m.s.List(ctx, metadataDir(maintainedDir)+"/files") {
		require.NoError(t, err)
		n++
	}
	require.Less(t, n, 3*(2*metadataLogsMax+4)+2*metadataLogsMax+10)
}

// A metadata table that is stale, damaged, cut short or not wanted any more is made anew or removed, and other partitions of one that
// another engine made are given up.
func TestMetadataMadeAnew(t *testing.T) {
	ctx := context.Background()
	set := func(m *maintained, key, value string) {
		p, err := ReadProperties(ctx, m.s, maintainedDir)
		require.NoError(t, err)
		p[key] = value
		require.NoError(t, WriteProperties(ctx, m.s, maintainedDir, p))
	}
	for what, spoil := range map[string]func(m *maintained){
		"stale": func(m *maintained) {
			set(m, KeyMetadataEnable, "false")
			p, c, wrote, err := m.begin("a")
			require.NoError(t, err)
			require.NoError(t, p.publish(ctx, c.Encode()))
			maps.Copy(m.files["a"], wrote["a"])
			set(m, KeyMetadataEnable, "true")
			require.Contains(t, openMetadata(t, m.s, maintainedDir).Stale(), "it does not know deltacommit")
		},
		"damaged": func(m *maintained) {
			require.NoError(t, m.s.Replace(ctx, metadataDir(maintainedDir)+"/files/"+m.newest().Base.Name, []byte("x")))
			for range metadataLogsMax {
				if m.commit("a") != nil {
					return
				}
			}
		},
		"gone": func(m *maintained) {
			require.NoError(t, m.s.Remove(ctx, metadataDir(maintainedDir)+"/"))
		},
		"pending compaction": func(m *maintained) {
			_, err := Request(ctx, m.s, metadataDir(maintainedDir), Compaction, "20260101000001000001", nil)
			require.NoError(t, err)
		},
		"other partitions": func(m *maintained) {
			set(m, KeyMetadata, "column_stats,files")
			require.NoError(t, m.s.PutNew(ctx, metadataDir(maintainedDir)+"/column_stats/x", nil))
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMaintained(t, memStore())
			require.NoError(t, m.commit("a"))
			require.NoError(t, m.commit("a", "b"))
			spoil(m)
			require.NoError(t, m.commit("b"))
			m.check()
			p, err := ReadProperties(ctx, m.s, maintainedDir)
			require.NoError(t, err)
			require.Equal(t, "files", p[KeyMetadata])
			for info, err := range m.s.List(ctx, metadataDir(maintainedDir)) {
				require.NoError(t, err)
				require.Contains(t, []string{"files", ".hoodie"}, info.Name)
			}
			require.NoError(t, m.commit("a"))
			m.check()

			set(m, KeyMetadataEnable, "false")
			require.NoError(t, m.commit("a"))
			p, err = ReadProperties(ctx, m.s, maintainedDir)
			require.NoError(t, err)
			require.Empty(t, p[KeyMetadata])
			for range m.s.List(ctx, metadataDir(maintainedDir)) {
				t.Fatal("the metadata table is still there")
			}
		})
	}
}

func (m *maintained) newest() storage.FileSlice {
	groups, err := openMetadata(m.t, m.s, maintainedDir).groups(context.Background(), metadataFilesPartition)
	require.NoError(m.t, err)
	return groups[0]
}

// With a foreign instant in flight no metadata table is made; the first instant after it makes one.
func TestMetadataWaits(t *testing.T) {
	ctx := context.Background()
	m := newMaintained(t, memStore())
	p, c, wrote, err := m.begin("a")
	require.NoError(t, err)
	require.NoError(t, m.commit("b"))
	props, err := ReadProperties(ctx, m.s, maintainedDir)
	require.NoError(t, err)
	require.Empty(t, props[KeyMetadata])
	require.NoError(t, p.Complete(ctx, c))
	m.files["a"] = wrote["a"]
	require.NoError(t, m.commit("b"))
	m.check()
}

// D18: an instant fails at each of its file operations in turn, or the machine stops there. Afterwards the metadata table is complete as soon
// as the instant is completed or rolled back, and a reader never trusts one that is not.
func TestMetadataSurvivesFaults(t *testing.T) {
	ctx := context.Background()
	for _, before := range []int{0, 1, 3 + metadataLogsMax} { // the instant makes the metadata table, adds to it, compacts it
		start := vfs.NewCrashableMem()
		first := newMaintained(t, storage.NewLocal(start, "root"))
		for range before {
			require.NoError(t, first.commit("a", "b"))
		}
		p, c, wrote, err := first.begin("a")
		require.NoError(t, err)
		for fault := 0; ; fault++ {
			fs := start.CrashClone(vfs.CrashCloneCfg{})
			m := &maintained{t: t, s: storage.NewLocal(fs, "root"), clock: first.clock, files: map[string]map[string]int64{}}
			for part, files := range first.files {
				m.files[part] = maps.Clone(files)
			}
			boom := errors.New("injected")
			n := 0
			failing := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
					return nil
				}
				if n++; n > fault {
					return boom
				}
				return nil
			}))
			failed := *p
			failed.store = storage.NewLocal(failing, "root")
			err = failed.Complete(ctx, c)
			crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(fault)))})
			after := &maintained{t: t, s: storage.NewLocal(crashed, "root"), clock: m.clock, files: m.files}
			tl, loadErr := Load(ctx, after.s, maintainedDir)
			require.NoError(t, loadErr)
			in, ok := tl.Get(p.Time)
			require.True(t, ok, "%d before, fault %d", before, fault)
			if in.State == Completed {
				after.files["a"] = cmpMap(after.files["a"], wrote["a"])
			} else {
				// Until somebody rolls it back, its files do not count.
				props, err := ReadProperties(ctx, after.s, maintainedDir)
				require.NoError(t, err)
				if props.MetadataInUse() {
					if meta, err := OpenMetadata(ctx, after.s, maintainedDir, props, tl); err == nil && meta.Stale() == "" {
						got, err := meta.Files(ctx)
						require.NoError(t, err, "%d before, fault %d", before, fault)
						require.Equal(t, filled(after.files), filled(got), "%d before, fault %d", before, fault)
					}
				}
				files := map[string][]string{"a": slices.Collect(maps.Keys(wrote["a"]))}
				require.NoError(t, RollBack(ctx, after.s, maintainedDir, in, after.tick(), files), "%d before, fault %d", before, fault)
			}
			require.NoError(t, after.commit("b"), "%d before, fault %d", before, fault)
			after.check()
			if err == nil {
				require.Greater(t, fault, 5)
				break
			}
			require.ErrorIs(t, err, boom)
		}
	}
}

func cmpMap(a, b map[string]int64) map[string]int64 {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]int64{}
	}
	maps.Copy(out, b)
	return out
}
