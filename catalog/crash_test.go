package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// crashLog is what a workload was told: a commit is begun before it is acknowledged.
type crashLog struct {
	mu    sync.Mutex
	acked int // commits 1 … acked are acknowledged, acked+1 may be under way
}

// crashTables make three tables that one transaction writes. Commit n sets the same value in a row of each, inserts a row n and deletes row n-5.
func crashTables(ctx context.Context, c *Catalog) error {
	if err := c.CreateDatabase(ctx, "d", nil); err != nil {
		return err
	}
	for i, name := range []string{"a", "b", "c"} {
		s := testSpec()
		s.MergeOnRead = i != 1
		if i == 2 {
			s.Partition = []string{"name"}
			s.Ordering, s.OrderingField = storage.EventTime, "v"
		}
		if _, err := c.CreateTable(ctx, "d", name, s); err != nil {
			return err
		}
	}
	return nil
}

// crashInsert adds the row of commit n; every third one is loaded, into files that are staged.
func crashInsert(ctx context.Context, tx *Tx, tab *Table, n int64, row storage.Row) error {
	if n%3 != 0 {
		return tx.Insert(ctx, tab, row)
	}
	b, err := tx.BulkInsert(ctx, tab, DuplicateFail)
	if err != nil {
		return err
	}
	defer b.Abort()
	rows := storage.NewBuilder(tab.Spec().Schema)
	if err := rows.Append(row); err != nil {
		return err
	}
	if err := b.Append(rows.Batch()); err != nil {
		return err
	}
	_, err = b.Finish()
	return err
}

// crashCommit makes commit n over all three tables.
func crashCommit(ctx context.Context, c *Catalog, n int64) error {
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, name := range []string{"a", "b", "c"} {
		tab, ok := c.Table("d", name)
		if !ok {
			return errors.New("table is gone")
		}
		width := len(tab.Spec().Schema.Fields)
		wide := func(r storage.Row) storage.Row {
			for len(r) < width {
				r = append(r, nil)
			}
			return r
		}
		counter, ok, err := tx.Get(ctx, tab, storage.Row{int32(0)})
		if err != nil {
			return err
		}
		if ok {
			if err := tx.Update(ctx, tab, counter, wide(storage.Row{int32(0), "n", n})); err != nil {
				return err
			}
		} else if err := tx.Insert(ctx, tab, wide(storage.Row{int32(0), "n", n})); err != nil {
			return err
		}
		if err := crashInsert(ctx, tx, tab, n, wide(storage.Row{int32(n), fmt.Sprint("p", n%3), n})); err != nil {
			return err
		}
		if n > 5 {
			old, ok, err := tx.Get(ctx, tab, storage.Row{int32(n - 5)})
			if err != nil {
				return err
			}
			if ok {
				if err := tx.Delete(ctx, tab, old); err != nil {
					return err
				}
			}
		}
	}
	return tx.Commit(ctx)
}

// crashState gives the rows of a table after commit n.
func crashState(n int64) []string {
	var out []string
	if n > 0 {
		out = append(out, fmt.Sprintf("0 n %d", n))
	}
	for i := max(1, n-4); i <= n; i++ {
		out = append(out, fmt.Sprintf("%d p%d %d", i, i%3, i))
	}
	sort.Strings(out)
	return out
}

// crashCheck reads the three tables: all show one and the same commit, which it gives.
func crashCheck(c *Catalog) (int64, error) {
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	n := int64(-1)
	for _, name := range []string{"a", "b", "c"} {
		tab, ok := c.Table("d", name)
		if !ok {
			return 0, fmt.Errorf("table %s is gone", name)
		}
		var got []string
		at := int64(0)
		for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
			if err != nil {
				return 0, err
			}
			for i := range b.Rows {
				r := b.Row(i, nil)
				if r[0] == int32(0) {
					at = r[2].(int64)
				}
				got = append(got, fmt.Sprintf("%v %v %v", r[0], r[1], r[2]))
			}
		}
		sort.Strings(got)
		if want := crashState(at); !slices.Equal(want, got) {
			return 0, fmt.Errorf("table %s: %s, want %s", name, strings.Join(got, ", "), strings.Join(want, ", "))
		}
		if n >= 0 && n != at {
			return 0, fmt.Errorf("table %s shows commit %d, another one %d", name, at, n)
		}
		n = at
		for i := max(0, at-6); i <= at; i++ {
			row, ok, err := tx.Get(ctx, tab, storage.Row{int32(i)})
			if err != nil {
				return 0, err
			}
			if want := at > 0 && (i == 0 || i > at-5); ok != want {
				return 0, fmt.Errorf("table %s after commit %d: key %d gives %v %v", name, at, i, row, ok)
			}
		}
	}
	return n, nil
}

// crashLeft looks for what a start should have removed: staged folders, and base files of no instant.
func crashLeft(c *Catalog) error {
	ctx := context.Background()
	for _, t := range c.tablesByID() {
		d, cold := t.def.Load(), c.cold(t.id)
		for in, err := range c.store.List(ctx, join(d.dir, stagedFolder)) {
			if err != nil {
				return err
			}
			if join(stagedFolder, in.Name) != keptFolder {
				return fmt.Errorf("table %s: %s is left in %s", d, in.Name, stagedFolder)
			}
		}
		view, err := timeline.BuildView(ctx, c.store, d.dir, cold.tl)
		if err != nil {
			return err
		}
		for part, f := range view.Files() {
			if f.Version == 0 && !cold.tl.Counts(f.Instant) {
				return fmt.Errorf("table %s: %s is left in partition %q", d, f.Name, part)
			}
		}
	}
	return nil
}

// crashWork commits and flushes until stop says so.
func crashWork(ctx context.Context, c *Catalog, l *crashLog, seed uint64, ddl bool, stop func() bool) error {
	r := rand.New(rand.NewPCG(seed, 2))
	l.mu.Lock()
	n := int64(l.acked)
	l.mu.Unlock()
	for !stop() {
		n++
		if err := crashCommit(ctx, c, n); err != nil {
			return fmt.Errorf("commit %d: %w", n, err)
		}
		l.mu.Lock()
		l.acked = int(n)
		l.mu.Unlock()
		switch r.IntN(6) {
		case 0:
			if err := c.Flush(ctx, "test"); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
		case 1:
			tab, _ := c.Table("d", []string{"a", "b", "c"}[r.IntN(3)])
			if err := c.Flush(ctx, "test", tab); err != nil {
				return fmt.Errorf("flush: %w", err)
			}
		case 2:
			if !ddl || r.IntN(4) > 0 {
				continue
			}
			// A rewrite under the same columns, or a column more.
			tab, _ := c.Table("d", []string{"a", "b", "c"}[r.IntN(3)])
			spec := *tab.Spec()
			s := *spec.Schema
			s.Fields = slices.Clone(s.Fields)
			spec.Schema = &s
			columns := []int{}
			for i := range s.Fields {
				columns = append(columns, i)
			}
			var convert func(storage.Row) (storage.Row, error)
			if r.IntN(2) == 0 {
				s.Fields = append(s.Fields, storage.Field{Name: fmt.Sprint("c", len(s.Fields)), Type: storage.Type{Kind: storage.Int32}, Nullable: true})
				columns = append(columns, -1)
			} else {
				convert = func(row storage.Row) (storage.Row, error) { return row, nil }
			}
			if err := c.AlterTable(ctx, tab, spec, columns, convert); err != nil {
				return fmt.Errorf("alter: %w", err)
			}
		}
	}
	return nil
}

// cloneFS is a crashable file system that can be cloned while others use it: MemFS.Link takes the lock against clones twice, and
// a clone that waits between the two would block both for ever.
type cloneFS struct {
	*vfs.MemFS
	mu sync.Mutex
}

func newCloneFS() *cloneFS { return &cloneFS{MemFS: vfs.NewCrashableMem()} }

func (f *cloneFS) Link(oldname, newname string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.MemFS.Link(oldname, newname)
}

func (f *cloneFS) CrashClone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.MemFS.CrashClone(cfg)
}

// D2, D3, D8, D13: whatever moment the machine dies at, every acknowledged commit is there, no other is partly, and all tables agree.
func TestCrash(t *testing.T) {
	ctx := context.Background()
	cases := envInt("CASES", 60)
	r := rand.New(rand.NewPCG(uint64(envInt("SEED", 1)), 3))
	for done := 0; done < cases; {
		fs := newCloneFS()
		o := Options{StageRows: []int{0, 2}[done/20%2]} // with 2, the changes of each commit go into files
		c := testOpen(t, fs, o)
		require.NoError(t, crashTables(ctx, c))
		l := &crashLog{}
		var over atomic.Bool
		finished := make(chan error, 1)
		seed := r.Uint64()
		go func() { finished <- crashWork(ctx, c, l, seed, true, over.Load) }()
		type clone struct {
			fs    *vfs.MemFS
			acked int
			rate  int
		}
		var clones []clone
		for len(clones) < 20 && done+len(clones) < cases {
			time.Sleep(time.Duration(r.IntN(12)) * time.Millisecond)
			l.mu.Lock()
			acked := l.acked
			l.mu.Unlock()
			rate := []int{0, 0, 30, 50, 100}[r.IntN(5)]
			clones = append(clones, clone{fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rate, RNG: rand.New(rand.NewPCG(r.Uint64(), 4))}), acked, rate})
		}
		over.Store(true)
		require.NoError(t, <-finished)
		require.NoError(t, c.Close(ctx))
		for i, k := range clones {
			what := fmt.Sprintf("clone %d of %d commits, %d%% unsynced", done+i, k.acked, k.rate)
			c := testOpen(t, k.fs, o)
			n, err := crashCheck(c)
			require.NoError(t, err, what)
			require.GreaterOrEqual(t, n, int64(k.acked), what)
			require.NoError(t, crashLeft(c), what)
			// Work goes on, and what it leaves is read alike by a warehouse that knows only the files.
			l := &crashLog{acked: int(n)}
			left := 8
			require.NoError(t, crashWork(ctx, c, l, r.Uint64(), false, func() bool { left--; return left < 0 }), what)
			require.NoError(t, c.Close(ctx), what)
			require.NoError(t, k.fs.RemoveAll("data/state"))
			c = testOpen(t, k.fs, Options{})
			m, err := crashCheck(c)
			require.NoError(t, err, what)
			require.Equal(t, n+8, m, what)
			require.NoError(t, c.Close(ctx), what)
		}
		done += len(clones)
	}
}

// D13: each operation on the tables' files fails in turn: what was acknowledged stays, and nothing wrong is read. (Of a failed sync
// in the state folder pebble makes the end of the process, which TestCrash covers.)
func TestFaults(t *testing.T) {
	ctx := context.Background()
	step := envInt("STEP", 23) // every operation with STEP=1
	for n := int32(envInt("FIRST", 0)); ; n += int32(step) {
		fs := vfs.NewCrashableMem()
		c := testOpen(t, fs, Options{})
		require.NoError(t, crashTables(ctx, c))
		require.NoError(t, crashCommit(ctx, c, 1))
		require.NoError(t, c.Flush(ctx, "test"))
		require.NoError(t, crashCommit(ctx, c, 2))
		require.NoError(t, c.Close(ctx))

		var ops atomic.Int32
		acked := faultRun(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, "warehouse/") && ops.Add(1) == n+1 {
				if os.Getenv("LAKESQL_TEST_LOG") != "" {
					t.Logf("fails: %v %s", op.Kind, op.Path)
				}
				return errorfs.ErrInjected
			}
			return nil
		})), n)
		// The machine restarts: on a disk that lost what was not synced, and on the same one.
		for _, k := range []vfs.FS{fs.CrashClone(vfs.CrashCloneCfg{}), fs} {
			c, err := Open(ctx, "data", Options{FS: k})
			require.NoError(t, err, "operation %d", n)
			m, err := crashCheck(c)
			require.NoError(t, err, "operation %d", n)
			require.GreaterOrEqual(t, m, acked, "operation %d", n)
			require.NoError(t, crashCommit(ctx, c, m+1), "operation %d", n)
			require.NoError(t, c.Close(ctx), "operation %d", n)
		}
		if ops.Load() <= n {
			t.Logf("%d operations", n)
			break
		}
	}
}

// faultRun works on a file system of which one operation fails; it gives the last commit that was acknowledged.
func faultRun(t *testing.T, fs vfs.FS, n int32) (acked int64) {
	ctx := context.Background()
	acked = 2
	c, err := Open(ctx, "data", Options{FS: fs, StageRows: []int{0, 2}[n%2]})
	if err != nil {
		return acked
	}
	defer func() { _ = c.Close(ctx) }() // the failure may be its own
	for range 3 {
		if err := crashCommit(ctx, c, acked+1); err == nil {
			acked++
		}
		if m, err := crashCheck(c); err == nil {
			require.GreaterOrEqual(t, m, acked, "operation %d", n)
			acked = max(acked, m)
		}
		_ = c.Flush(ctx, "test") // an error leaves the rows where they were
		if m, err := crashCheck(c); err == nil {
			require.GreaterOrEqual(t, m, acked, "operation %d", n)
		}
	}
	return acked
}

// D3: what is not synced yet is seen by nobody else, and the next commit of its key conflicts with it.
func TestUnsyncedIsInvisible(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	var slow atomic.Bool
	release := make(chan struct{})
	c := testOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileFlush:
			if slow.Load() && strings.HasSuffix(op.Path, ".log") && strings.Contains(op.Path, stateFolder) {
				<-release
			}
		}
		return nil
	})), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	rival, err := c.BeginTx(ctx, TxOptions{LockTimeout: time.Millisecond})
	require.NoError(t, err)
	_, _, err = rival.Get(ctx, tab, storage.Row{int32(1)})
	require.NoError(t, err)
	slow.Store(true)
	done := make(chan error, 1)
	before := tab.lastSeq.Load()
	go func() {
		tx, err := c.Begin(ctx)
		if err == nil {
			err = tx.Update(ctx, tab, storage.Row{int32(1), "a", int64(1)}, storage.Row{int32(1), "b", int64(2)})
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return tab.lastSeq.Load() != before }, 10*time.Second, time.Millisecond)
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	row, ok, err := tx.Get(ctx, tab, storage.Row{int32(1)})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "a", row[1])
	tx.Rollback()
	// The lock ends with the sync: nobody builds on what may be lost.
	err = rival.Update(ctx, tab, storage.Row{int32(1), "a", int64(1)}, storage.Row{int32(1), "c", int64(3)})
	require.ErrorIs(t, err, ErrLockTimeout)
	rival.Rollback()
	select {
	case err := <-done:
		t.Fatalf("answered before the sync: %v", err)
	default:
	}
	slow.Store(false)
	close(release)
	require.NoError(t, <-done)
	require.Equal(t, "[1 b 2]", scanAll(t, c, tab))
	require.NoError(t, c.Close(ctx))
}

// A disk that is nearly full refuses writes before the journal does, and takes them again later.
func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10 << 30, TotalBytes: 20 << 30})
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10 << 20, TotalBytes: 20 << 30})
	c.disk.at.Store(0)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, tx.Insert(ctx, tab, storage.Row{int32(2), "a", int64(1)}), ErrFull)
	tx.Rollback()
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10 << 30, TotalBytes: 20 << 30})
	c.disk.at.Store(0)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(2), "a", int64(1)})) })
	require.NoError(t, c.Close(ctx))
}
