package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// sharedTable is a table on disk with one row that waits.
func sharedTable(t *testing.T, o Options) (c *Catalog, tab *Table, root, lock string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "data")
	c, err := Open(context.Background(), root, o)
	require.NoError(t, err)
	tab = newTable(t, c, "t", nil)
	insertRows(t, c, tab, 0, 2)
	flushAll(t, c)
	insertRows(t, c, tab, 2, 3)
	return c, tab, root, filepath.Join(tab.Location(), ".hoodie", "lock")
}

// foreignInstant begins an instant as another engine would.
func foreignInstant(t *testing.T, c *Catalog, tab *Table) *timeline.Pending {
	t.Helper()
	p, err := timeline.Begin(context.Background(), c.store, tab.def.Load().dir, timeline.DeltaCommit, timeline.FormatTime(c.Clock().Now().Add(5*time.Millisecond)), nil)
	require.NoError(t, err)
	return p
}

// D12: the lock of another writer is respected, whatever it says of itself, named in the error, and never removed; rows stay and are read.
func TestForeignLock(t *testing.T) {
	ctx := context.Background()
	defer func(d time.Duration) { lockWait = d }(lockWait)
	lockWait = 200 * time.Millisecond
	for _, x := range []struct{ name, content, names string }{
		{"Hudi", `{"lockCreateTime":"2026-11-30 10:00:00.000","lockThreadName":"main","lockStacksInfo":"x"}`, `thread "main" of another engine since 2026-11-30 10:00:00.000`},
		{"empty", "", "a writer that does not say who it is"},
		{"text", "somebody", "somebody"},
		{"other warehouse", `{"lakesqlWarehouse":"other","lakesqlIncarnation":"7"}`, "lakesql warehouse other (run 7)"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, tab, root, lock := sharedTable(t, Options{})
			require.NoError(t, os.WriteFile(lock, []byte(x.content), 0o644))
			require.ErrorIs(t, c.Flush(ctx, "test"), ErrBusy)
			require.ErrorIs(t, c.Waiting()[0].Cause, ErrBusy)
			require.ErrorContains(t, c.Waiting()[0].Cause, x.names)
			require.Equal(t, "[0 n0 0] [1 n1 1] [2 n2 2]", scanAll(t, c, tab))
			c.reader.Close()
			c.watcher.close()
			c.clock.end()
			require.NoError(t, c.db.Close())
			c, err := Open(ctx, root, Options{}) // as after a crash: the lock is not ours
			require.NoError(t, err)
			b, err := os.ReadFile(lock)
			require.NoError(t, err)
			require.Equal(t, x.content, string(b))
			require.NoError(t, os.Remove(lock))
			flushAll(t, c)
			require.Empty(t, c.Waiting())
			require.NoFileExists(t, lock)
			require.NoError(t, c.Close(ctx))
		})
	}
}

// D12: the lock of an earlier run of the same warehouse is cleared at the start; one that is set while it runs, and nobody holds, with the
// next flush.
func TestOwnStaleLock(t *testing.T) {
	ctx := context.Background()
	c, _, root, lock := sharedTable(t, Options{})
	h := c.holder()
	h.Incarnation = "earlier"
	b, err := json.Marshal(h)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lock, b, 0o644))
	flushAll(t, c)
	require.NoFileExists(t, lock)
	require.NoError(t, c.Close(ctx))
	require.NoError(t, os.WriteFile(lock, b, 0o644))
	c, err = Open(ctx, root, Options{})
	require.NoError(t, err)
	require.NoFileExists(t, lock)
	require.NoError(t, c.Close(ctx))
}

// D12: a flush waits while another engine's writer lives, and goes on when it has completed, died, or taken too long.
func TestFlushWaits(t *testing.T) {
	ctx := context.Background()
	c, tab, _, _ := sharedTable(t, Options{SharedWait: 2 * time.Second})
	defer func() { require.NoError(t, c.Close(ctx)) }()
	dir := tab.def.Load().dir
	flush := func() error { return c.TryFlush(ctx, "test", tab) }

	p := foreignInstant(t, c, tab)
	require.NoError(t, timeline.Beat(ctx, c.store, dir, p.Time))
	require.ErrorIs(t, flush(), ErrBusy)
	require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{Operation: timeline.OpUpsert}))
	require.NoError(t, flush())

	insertRows(t, c, tab, 3, 4)
	p = foreignInstant(t, c, tab)
	require.NoError(t, timeline.Beat(ctx, c.store, dir, p.Time))
	require.ErrorIs(t, flush(), ErrBusy)
	beat := filepath.Join(tab.Location(), ".hoodie", ".heartbeat", string(p.Time))
	old := time.Now().Add(-3 * time.Minute)
	require.NoError(t, os.Chtimes(beat, old, old))
	require.NoError(t, flush(), "its writer is dead")

	insertRows(t, c, tab, 4, 5)
	require.NoError(t, timeline.Beat(ctx, c.store, dir, p.Time))
	require.ErrorIs(t, flush(), ErrBusy)
	began := time.Now()
	require.NoError(t, c.Flush(ctx, "test", tab))
	require.Greater(t, time.Since(began), time.Second)
	require.Empty(t, c.Waiting())
	require.NoError(t, p.Abort(ctx))
	require.NoError(t, timeline.EndBeat(ctx, c.store, dir, p.Time))
}

// D8, D12: the instant of a flush has a heartbeat and stands under the lock until it is completed; what another engine completes meanwhile,
// although it may not, makes the flush plan anew, and a lock that is gone is taken again.
func TestFlushOvertaken(t *testing.T) {
	ctx := context.Background()
	c, tab, _, lock := sharedTable(t, Options{})
	defer func() { require.NoError(t, c.Close(ctx)) }()
	folder := filepath.Join(tab.Location(), ".hoodie")
	inTx(t, c, func(tx *Tx) { // the same file group as the other engine's
		old, _, err := tx.Get(ctx, tab, storage.Row{int32(1)})
		require.NoError(t, err)
		require.NoError(t, tx.Update(ctx, tab, old, storage.Row{int32(1), "ours", int64(100)}))
	})
	times := 0
	beforeComplete = func(f *flush) {
		times++
		require.FileExists(t, lock)
		require.FileExists(t, filepath.Join(folder, ".heartbeat", string(f.instant)))
		require.FileExists(t, filepath.Join(folder, string(f.instant)+".deltacommit.inflight"))
		if times > 1 {
			return
		}
		require.NoError(t, os.Remove(lock))
		time.Sleep(2 * time.Millisecond) // an instant of its own
		fs := c.cold(tab.id).newest()[0]
		it := timeline.FormatTime(time.Now().UTC())
		p, err := timeline.Begin(ctx, c.store, tab.def.Load().dir, timeline.DeltaCommit, it, nil)
		require.NoError(t, err)
		name := storage.BaseFileName(fs.ID, storage.NewToken(7), it)
		w, err := storage.CreateBase(ctx, c.store, tab.def.Load().object("", name), tab.Spec().Schema, storage.BaseOptions{})
		require.NoError(t, err)
		for id := range int32(2) {
			require.NoError(t, w.Append(storage.RowMeta{CommitTime: it, SeqNo: "x", Key: []string{"0", "1"}[id]}, storage.Row{id, "theirs", int64(7)}))
		}
		size, err := w.Commit(ctx)
		require.NoError(t, err)
		require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{
			Stats: map[string][]timeline.WriteStat{"": {{FileID: fs.ID, Path: name, PrevCommit: fs.Begin, NumWrites: 2, WriteBytes: size, FileSize: size}}}, Operation: timeline.OpUpsert,
			Extra: map[string]string{timeline.ExtraSchema: tab.Spec().Schema.Avro(false)},
		}))
	}
	defer func() { beforeComplete = nil }()
	flushAll(t, c)
	require.Equal(t, 2, times)
	require.EqualValues(t, 1, c.Metrics().OvertakenTotal.Load())
	require.EqualValues(t, 1, c.Metrics().LocksLostTotal.Load())
	require.Equal(t, "[0 theirs 7] [1 ours 100] [2 n2 2]", scanAll(t, c, tab))
	require.NoFileExists(t, lock)
	list, err := os.ReadDir(filepath.Join(folder, ".heartbeat"))
	require.NoError(t, err)
	require.Empty(t, list)
	tl, err := timeline.Load(ctx, c.store, tab.def.Load().dir)
	require.NoError(t, err)
	require.Empty(t, tl.Pending())
}

// A table that names another lock provider is not locked, and one that names another folder is locked there.
func TestLockFolder(t *testing.T) {
	ctx := context.Background()
	root := filepath.Join(t.TempDir(), "data")
	c, err := Open(ctx, root, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(ctx)) }()
	elsewhere := t.TempDir()
	provider := "org.apache.hudi.client.transaction.lock."
	for name, x := range map[string]struct {
		options map[string]string
		lock    string
	}{
		"none":  {nil, ".hoodie/lock"},
		"file":  {map[string]string{timeline.KeyLockProvider: provider + "FileSystemBasedLockProvider"}, ".hoodie/lock"},
		"zk":    {map[string]string{timeline.KeyLockProvider: provider + "ZookeeperBasedLockProvider"}, ""},
		"local": {map[string]string{timeline.KeyLockProvider: provider + "InProcessLockProvider"}, ""},
		"path":  {map[string]string{timeline.KeyLockPath: "file:" + elsewhere}, filepath.Join(elsewhere, "lock")},
	} {
		tab := newTable(t, c, name, func(s *TableSpec) { s.Options = x.options })
		insertRows(t, c, tab, 0, 1)
		seen := ""
		beforeComplete = func(*flush) {
			for _, at := range []string{filepath.Join(tab.Location(), ".hoodie/lock"), filepath.Join(elsewhere, "lock")} {
				if _, err := os.Stat(at); err == nil {
					seen = at
				} else if !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
			}
		}
		flushAll(t, c)
		beforeComplete = nil
		want := x.lock
		if want != "" && !filepath.IsAbs(want) {
			want = filepath.Join(tab.Location(), want)
		}
		require.Equal(t, want, seen, name)
	}
}
