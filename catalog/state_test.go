package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

func memRead(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	return b
}

func memWrite(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, "test")
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Sync(), f.Close()))
}

// newestLog names the newest log of the state folder.
func newestLog(t *testing.T, fs vfs.FS) string {
	names, err := fs.List("data/state")
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".log") })
	require.NotEmpty(t, names)
	return "data/state/" + slices.Max(names)
}

func insertOne(t *testing.T, c *Catalog, tab *Table, i int32) {
	t.Helper()
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(context.Background(), tab, storage.Row{i, "a", int64(1)})) })
}

// A start that is refused leaves nothing in the state folder: the next one is refused as well.
func TestRefusedStartLeavesNothing(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewCrashableMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	insertOne(t, c, tab, 1)
	require.NoError(t, c.Flush(ctx, "test"))
	insertOne(t, c, tab, 2)
	killed := fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, c.Close(ctx))
	require.NoError(t, killed.RemoveAll("data/state"))
	for range 2 {
		_, err := Open(ctx, "data", Options{FS: killed})
		require.ErrorIs(t, err, ErrLostState)
		require.ErrorContains(t, err, "d.t: last instant 20")
		_, err = killed.Stat("data/state")
		require.True(t, errors.Is(err, syscall.ENOENT) || vfsNotExist(err), "%v", err)
	}
	c = testOpen(t, killed, Options{AcceptLostState: true})
	tab, _ = c.Table("d", "t")
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	require.Empty(t, problems(t, c, tab, CheckExtended))
	require.NoError(t, c.Close(ctx))
}

func vfsNotExist(err error) bool { return err != nil && strings.Contains(err.Error(), "not exist") }

// After a clean stop the tables have everything: a state folder of an earlier time, or one that is half built, is built anew.
func TestOlderStateOfCleanStop(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	insertOne(t, c, tab, 1)
	require.NoError(t, c.Close(ctx))
	for _, n := range []string{"before", "half"} {
		ok, err := vfs.Clone(fs, fs, "data/state", n)
		require.NoError(t, err)
		require.True(t, ok)
	}
	c = testOpen(t, fs, Options{})
	tab, _ = c.Table("d", "t")
	insertOne(t, c, tab, 2)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	require.NoError(t, c.Close(ctx))
	db, err := pebble.Open("half", &pebble.Options{FS: fs})
	require.NoError(t, err)
	require.NoError(t, db.Set(metaKey(metaRebuild), []byte("1"), pebble.Sync))
	require.NoError(t, db.Close())
	for _, n := range []string{"before", "half"} {
		require.NoError(t, fs.RemoveAll("data/state"))
		_, err = vfs.Clone(fs, fs, n, "data/state")
		require.NoError(t, err)
		c = testOpen(t, fs, Options{})
		tab, _ = c.Table("d", "t")
		require.Equal(t, "[2 a 1]", scanAll(t, c, tab), n)
		require.Empty(t, problems(t, c, tab, CheckExtended))
		require.NoError(t, c.Close(ctx))
	}
}

// A journal that is damaged before its end is refused by name, not taken for one whose last write was torn; so is a state folder that
// does not know an instant of ours, because its journal was cut.
func TestDamagedJournal(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewCrashableMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	insertOne(t, c, tab, 0)
	require.NoError(t, c.Flush(ctx, "test"))
	before := len(memRead(t, fs, newestLog(t, fs)))
	for i := int32(1); i < 1500; i++ {
		insertOne(t, c, tab, i)
	}
	middle := len(memRead(t, fs, newestLog(t, fs)))
	require.Greater(t, middle, before+4096)
	require.NoError(t, c.Flush(ctx, "test"))
	insertOne(t, c, tab, 10_000)
	clone := func() *vfs.MemFS { return fs.CrashClone(vfs.CrashCloneCfg{}) }

	flipped := clone()
	b := memRead(t, flipped, newestLog(t, flipped))
	b[before+1000] ^= 0x40
	memWrite(t, flipped, newestLog(t, flipped), b)
	_, err = Open(ctx, "data", Options{FS: flipped})
	require.ErrorIs(t, err, ErrLostState)
	require.ErrorContains(t, err, "journal is damaged")
	c2 := testOpen(t, flipped, Options{AcceptLostState: true})
	tab2, _ := c2.Table("d", "t")
	require.EqualValues(t, 1500, tab2.RowCount())
	require.Empty(t, problems(t, c2, tab2, CheckExtended))
	_, err = flipped.Stat("data/state.damaged-1")
	require.NoError(t, err)
	require.NoError(t, c2.Close(ctx))

	cut := clone()
	memWrite(t, cut, newestLog(t, cut), memRead(t, cut, newestLog(t, cut))[:before+(middle-before)/2])
	_, err = Open(ctx, "data", Options{FS: cut})
	require.ErrorIs(t, err, ErrLostState)
	require.ErrorContains(t, err, "was written by this warehouse, and its state does not know it")

	torn := clone() // the last commit alone, as a crash would
	memWrite(t, torn, newestLog(t, torn), memRead(t, torn, newestLog(t, torn)))
	c3 := testOpen(t, torn, Options{})
	tab3, _ := c3.Table("d", "t")
	require.Equal(t, 1501, strings.Count(scanAll(t, c3, tab3), "["))
	require.NoError(t, c3.Close(ctx))
	require.NoError(t, c.Close(ctx))
}

// smallDisk is a file system with room for so many bytes; what is written beyond is refused as a full disk does.
type smallDisk struct {
	full atomic.Bool
	hits atomic.Int64
}

func (d *smallDisk) String() string { return "small disk" }

func (d *smallDisk) MaybeError(op errorfs.Op) error {
	if d.full.Load() {
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpFilePreallocate:
			d.hits.Add(1)
			return &vfsPathError{syscall.ENOSPC}
		}
	}
	return nil
}

type vfsPathError struct{ err error }

func (e *vfsPathError) Error() string { return "write: " + e.err.Error() }
func (e *vfsPathError) Unwrap() error { return e.err }

// A disk that is full where it was not expected: flushes and definitions fail with the cause, rows stay and are read, and everything goes
// on when there is room. A start on a full disk ends with an error.
func TestNoSpaceLeft(t *testing.T) {
	ctx := context.Background()
	mem := vfs.NewMem()
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10 << 30, TotalBytes: 20 << 30})
	disk := &smallDisk{}
	c := testOpen(t, errorfs.Wrap(mem, disk), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	for i := range int32(100) {
		insertOne(t, c, tab, i)
	}
	require.NoError(t, c.Flush(ctx, "test"))
	insertOne(t, c, tab, 100)
	want := scanAll(t, c, tab)

	disk.full.Store(true)
	c.disk.at.Store(time.Now().Add(time.Hour).UnixNano()) // the disk that is measured has room: nobody looks at it meanwhile
	before := treeOf(t, mem, "data/warehouse")
	err = c.Flush(ctx, "test")
	if err != nil { // the intent may not fit the journal's block
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	require.Error(t, c.CreateDatabase(ctx, "e", nil))
	_, err = c.CreateTable(ctx, "d", "u", testSpec())
	require.Error(t, err)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	err = tx.Insert(ctx, tab, storage.Row{int32(500), "a", int64(1)})
	require.ErrorIs(t, err, ErrDiskFull)
	tx.Rollback()
	require.Equal(t, want, scanAll(t, c, tab))
	require.Positive(t, disk.hits.Load())
	for _, name := range treeOf(t, mem, "data/warehouse") {
		require.NotContains(t, name, storage.TempPrefix, "left over; before there were %v", before)
	}

	disk.full.Store(false)
	c.disk.at.Store(0)
	if c.failed == nil {
		_, _, ok := c.Database("e")
		require.False(t, ok, "a database that could not be written is there")
		require.NoError(t, c.Flush(ctx, "test"))
		insertOne(t, c, tab, 101)
		require.NoError(t, c.CreateDatabase(ctx, "e", nil))
		require.Empty(t, problems(t, c, tab, CheckExtended))
	} else {
		t.Log("nothing is written until the next start:", c.failed)
		require.ErrorIs(t, c.failed, ErrStopped)
	}
	_ = c.Close(ctx)
	c = testOpen(t, mem, Options{})
	tab, _ = c.Table("d", "t")
	require.Contains(t, scanAll(t, c, tab), want[:len(want)-1])
	require.Contains(t, scanAll(t, c, tab), "[100 a 1]")
	require.Empty(t, problems(t, c, tab, CheckExtended))
	require.NoError(t, c.Close(ctx))

	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 20 << 30})
	_, err = Open(ctx, "data", Options{FS: mem})
	require.ErrorIs(t, err, ErrDiskFull)
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 10 << 30, TotalBytes: 20 << 30})
	disk.full.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := Open(ctx, "data", Options{FS: errorfs.Wrap(mem, disk)})
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, syscall.ENOSPC)
	case <-time.After(20 * time.Second):
		t.Fatal("a start on a full disk does not end")
	}
	disk.full.Store(false)
	c = testOpen(t, mem, Options{})
	require.NoError(t, c.Close(ctx))
}

func treeOf(t *testing.T, fs vfs.FS, dir string) (out []string) {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	slices.Sort(names)
	for _, n := range names {
		p := fs.PathJoin(dir, n)
		st, err := fs.Stat(p)
		require.NoError(t, err)
		if st.IsDir() {
			out = append(out, treeOf(t, fs, p)...)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// The hot tier has a limit: writes beyond it fail, reads and flushes go on, and after a flush there is room again.
func TestHotTierLimit(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{HotBytesMax: 20_000})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	rows := int32(0)
	for ; ; rows++ {
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		if err = tx.Insert(ctx, tab, storage.Row{rows, strings.Repeat("x", 100), int64(1)}); err == nil {
			err = tx.Commit(ctx)
		}
		tx.Rollback()
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			require.NotErrorIs(t, err, ErrDiskFull)
			break
		}
		require.Less(t, rows, int32(1000))
	}
	require.EqualValues(t, rows, tab.RowCount())
	require.Positive(t, c.Metrics().FullTotal.Load())
	require.NoError(t, c.Flush(ctx, "test"))
	require.Zero(t, c.hotBytes.Load())
	insertOne(t, c, tab, 9999)
	require.Equal(t, rows+1, int32(strings.Count(fmt.Sprint(scanAll(t, c, tab)), "[")))
	require.NoError(t, c.Close(ctx))
}

// Sorted tables of the state hold one keyspace each: what is added to the journal is not written again with what changes in the index.
func TestStateTablesByKeyspace(t *testing.T) {
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", nil)
	for i := range int32(20) {
		insertOne(t, c, tab, i)
	}
	require.NoError(t, c.db.Flush())
	require.NoError(t, c.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	tables, err := c.db.SSTables()
	require.NoError(t, err)
	spaces := map[byte]bool{}
	for _, level := range tables {
		for _, f := range level {
			low, high := f.Smallest.UserKey, f.Largest.UserKey
			require.True(t, low[0] == high[0] || f.Largest.IsExclusiveSentinel() && high[0] == low[0]+1, "%q to %q", low, high)
			spaces[low[0]] = true
		}
	}
	require.True(t, spaces[prefixPacket] && spaces[prefixJournal] && spaces['r'], "%v", spaces)
	require.NoError(t, c.Close(context.Background()))
}
