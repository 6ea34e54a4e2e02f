package catalog

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// A crash during RENAME leaves the table under one of both names, with the rows that are in its files and those that are not.
func TestRenameCrash(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	require.NoError(t, c.Flush(ctx, "test"))
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(2), "b", int64(1)})) })
	done := make(chan error)
	go func() {
		names := [2]string{"t", "u"}
		for i := range 40 {
			if err := c.RenameTable(ctx, "d", names[i%2], "d", names[(i+1)%2]); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	rnd := rand.New(rand.NewPCG(1, 2))
	var clones []*vfs.MemFS
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		case <-time.After(time.Duration(rnd.IntN(2000)) * time.Microsecond):
		}
		if len(clones) < 60 {
			clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * rnd.IntN(2), RNG: rnd}))
		}
	}
	require.NoError(t, c.Close(ctx))
	for i, clone := range clones {
		c := testOpen(t, clone, Options{})
		a, isA := c.Table("d", "t")
		b, isB := c.Table("d", "u")
		require.NotEqual(t, isA, isB, "clone %d", i)
		if isB {
			a = b
		}
		require.Equal(t, "[1 a 1] [2 b 1]", scanAll(t, c, a), "clone %d", i)
		require.NoError(t, c.Close(ctx))
	}
}

// A folder with rows is never removed but by DROP TABLE, which does not need to have ended.
func TestFoldersWithRowsStay(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	make1 := func(name string) {
		tab, err := c.CreateTable(ctx, "d", name, testSpec())
		require.NoError(t, err)
		inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
		require.NoError(t, c.Flush(ctx, "test"))
	}
	for _, name := range []string{"t", "u", "v"} {
		make1(name)
	}
	copyFolder := func(from, to string) {
		ok, err := vfs.Clone(fs, fs, "data/warehouse/d/"+from, "data/warehouse/d/"+to)
		require.NoError(t, err)
		require.True(t, ok)
	}

	// One that came from elsewhere.
	copyFolder("t", "x")
	_, err := c.CreateTable(ctx, "d", "x", testSpec())
	require.ErrorIs(t, err, ErrExists)
	require.ErrorContains(t, err, "does not know")
	require.ErrorIs(t, c.RenameTable(ctx, "d", "v", "d", "x"), ErrExists)
	v, _ := c.Table("d", "v")
	require.Equal(t, "[1 a 1]", scanAll(t, c, v))

	// DROP TABLE that ended after its decision: the folder stands under both names.
	u, _ := c.Table("d", "u")
	copyFolder("u", "y")
	require.NoError(t, c.DropTable(ctx, "d", "u"))
	copyFolder("y", "u")
	require.NoError(t, fs.RemoveAll("data/warehouse/d/y"))
	steps := &folderSteps{Moves: []folderMove{{u.id, c.object("d/u"), c.object(c.droppedDir(u.id))}}}
	b := c.db.NewBatch()
	require.NoError(t, c.noteSteps(b, steps))
	require.NoError(t, b.Commit(nil))
	require.NoError(t, fs.RemoveAll("data/warehouse/d/x"))
	require.NoError(t, c.Close(ctx))
	c = testOpen(t, fs, Options{})
	require.Equal(t, []string{"t", "v"}, names(c))
	_, err = fs.Stat("data/warehouse/d/u/.hoodie/hoodie.properties")
	require.Error(t, err)

	// The hot tier knows nothing of a table of ours.
	tab, _ := c.Table("d", "t")
	require.NoError(t, c.dropState(tab.id))
	require.NoError(t, c.Close(ctx))
	_, err = Open(ctx, "data", Options{FS: fs})
	require.ErrorIs(t, err, ErrLostState)
	require.ErrorContains(t, err, "d.t: last instant 2")
	c = testOpen(t, fs, Options{AcceptLostState: true})
	tab, ok := c.Table("d", "t")
	require.True(t, ok)
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	require.NoError(t, c.Close(ctx))

	// A folder is gone: its buffered rows are not given up.
	require.NoError(t, fs.Rename("data/warehouse/d/v", "data/warehouse/d/.v"))
	_, err = Open(ctx, "data", Options{FS: fs})
	require.ErrorContains(t, err, "put it back")
	require.NoError(t, fs.Rename("data/warehouse/d/.v", "data/warehouse/d/v"))
	c = testOpen(t, fs, Options{})
	require.Equal(t, []string{"t", "v"}, names(c))
	require.NoError(t, c.Close(ctx))
	require.NoError(t, fs.RemoveAll("data/warehouse/d/v"))
	c = testOpen(t, fs, Options{AcceptLostState: true})
	require.Equal(t, []string{"t"}, names(c))
	require.NoError(t, c.Close(ctx))
}

func names(c *Catalog) (out []string) {
	for _, name := range []string{"t", "u", "v", "x", "y"} {
		if _, ok := c.Table("d", name); ok {
			out = append(out, name)
		}
	}
	return out
}

// A table that another engine upgraded is not read as what it was.
func TestUpgradedTable(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	p, err := timeline.ReadProperties(ctx, c.store, tab.def.Load().dir)
	require.NoError(t, err)
	p[timeline.KeyVersion] = "9"
	require.NoError(t, timeline.WriteProperties(ctx, c.store, tab.def.Load().dir, p))
	require.NoError(t, c.Close(ctx))
	c = testOpen(t, fs, Options{})
	defer c.Close(ctx)
	tab, _ = c.Table("d", "t")
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	for _, err = range tx.Scan(ctx, tab, ScanOptions{}) {
	}
	require.ErrorIs(t, err, storage.ErrUnsupported)
	require.ErrorContains(t, err, "d.t: table version 9")
}
