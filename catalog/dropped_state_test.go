package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// goneState writes down what a warehouse has and, after it was brought back, what was dropped.
func goneState(t *testing.T, c *Catalog) string {
	ctx := context.Background()
	list, err := c.Dropped()
	require.NoError(t, err)
	var out strings.Builder
	for _, d := range list {
		fmt.Fprintf(&out, "%d %s.%s %s %s; ", d.ID, d.Database, d.Name, d.At, d.Until)
	}
	_, err = c.Undrop(ctx, "d", "t", "u")
	require.NoError(t, err)
	require.NoError(t, c.UndropDatabase(ctx, "e"))
	for _, tab := range c.tablesByID() {
		require.Empty(t, problems(t, c, tab, CheckExtended), tab)
	}
	tab := ddlTable(c, "f.a")
	require.NotNil(t, tab)
	require.True(t, tab.Spec().Attached)
	require.Equal(t, "[1 x 1]", scanAll(t, c, tab))
	require.NoError(t, c.DropTable(ctx, "f", "a")) // ddlState looks rows up by an index
	state, err := ddlState(c)
	require.NoError(t, err)
	out.WriteString(state)
	list, err = c.Dropped()
	require.NoError(t, err)
	require.Empty(t, list)
	return out.String()
}

// goneWarehouse makes a warehouse with a table that was dropped and made anew, a dropped database, and an attached table; rows of all wait.
func goneWarehouse(t *testing.T, fs vfs.FS, o Options) *Catalog {
	ctx := context.Background()
	c := testOpen(t, fs, o)
	insert := func(name string, ids ...int32) {
		for _, id := range ids {
			require.NoError(t, ddlInsert(name, id).do(ctx, c))
		}
	}
	create := func(db, name string) {
		s := testSpec()
		s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}, Unique: true}}
		_, err := c.CreateTable(ctx, db, name, s)
		require.NoError(t, err)
	}
	for _, db := range []string{"d", "e", "f"} {
		require.NoError(t, c.CreateDatabase(ctx, db, []byte(db)))
	}
	create("f", "b")
	insert("f.b", 1)
	require.NoError(t, c.Flush(ctx, "test"))
	ok, err := vfs.Clone(fs, fs, "data/warehouse/f/b", "data/elsewhere/b", vfs.CloneSync)
	require.NoError(t, err)
	require.True(t, ok)
	for _, dir := range []string{"data/elsewhere", "data"} {
		require.NoError(t, c.syncFolder(dir))
	}
	_, err = c.AttachTable(ctx, "f", "a", "elsewhere/b")
	require.NoError(t, err)
	create("d", "t")
	create("e", "t")
	require.NoError(t, c.PutObject(ctx, "trigger", "d", "tr", []byte("x")))
	insert("d.t", 1, 2)
	insert("e.t", 1)
	require.NoError(t, c.Flush(ctx, "test"))
	insert("d.t", 3)
	insert("e.t", 2)
	tab := ddlTable(c, "d.t")
	require.NoError(t, c.Change(ctx, Change{
		Tables: []TableChange{{Table: tab, Drop: true}}, Objects: []ObjectChange{{Kind: "trigger", Database: "d", Name: "tr", With: tab}},
	}))
	require.NoError(t, c.DropDatabase(ctx, "e"))
	create("d", "t")
	insert("d.t", 7)
	return c
}

// D13: what was dropped comes back with all its rows, also those that waited, when the state folder was removed after a clean stop; the
// start that builds the folder anew is cut before each of its operations, or fails at it, and the next one does what it did not.
func TestUndropRebuilt(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	c := goneWarehouse(t, fs, Options{})
	require.NoError(t, c.Close(ctx))
	clone := func(fs interface {
		CrashClone(vfs.CrashCloneCfg) *vfs.MemFS
	},
	) *vfs.MemFS {
		return fs.CrashClone(vfs.CrashCloneCfg{})
	}
	c = testOpen(t, clone(fs), Options{})
	want := goneState(t, c)
	require.NoError(t, c.Close(ctx))
	require.Contains(t, want, "[3 x 3]")
	require.Contains(t, want, "e e: t(id name v ) next 1: [1 x 1] [2 x 2]")
	require.NoError(t, fs.RemoveAll("data/state"))
	root, err := fs.OpenDir("data")
	require.NoError(t, err)
	require.NoError(t, errors.Join(root.Sync(), root.Close()))
	_, err = clone(fs).Stat("data/state")
	require.Error(t, err)

	var mu sync.Mutex
	ops := 0
	c = testOpen(t, errorfs.Wrap(clone(fs), errorfs.InjectorFunc(func(errorfs.Op) error {
		mu.Lock()
		ops++
		mu.Unlock()
		return nil
	})), Options{})
	mu.Lock()
	all := ops
	mu.Unlock()
	require.Equal(t, want, goneState(t, c))
	require.NoError(t, c.Close(ctx))
	stride := envInt("STEP", 23)
	n := 0
	for at := 1; at <= all; at += stride {
		for _, cut := range []bool{false, true} {
			disk, left := clone(fs), (*vfs.MemFS)(nil)
			n, ended := 0, false
			what := ""
			c, err := Open(ctx, "data", Options{FS: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if n++; n != at || ended {
					return nil
				}
				what = fmt.Sprintf("operation %d (%v %s), cut %t", at, op.Kind, op.Path, cut)
				if cut || fatal(op) {
					left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: at % 2 * 100, RNG: rand.New(rand.NewPCG(uint64(at), 1))})
					return nil
				}
				return errorfs.ErrInjected
			}))})
			mu.Lock()
			ended = true
			mu.Unlock()
			if err == nil {
				w := &everyWorld{c: c}
				require.NoError(t, w.die(), what)
			} else {
				require.ErrorIs(t, err, errorfs.ErrInjected, what)
			}
			if left == nil {
				left = disk.CrashClone(vfs.CrashCloneCfg{})
			}
			c, err = Open(ctx, "data", Options{FS: left})
			require.NoError(t, err, what)
			require.Equal(t, want, goneState(t, c), what)
			require.NoError(t, c.Close(ctx), what)
		}
		n++
	}
	t.Logf("%d operations, %d cut and failed", all, n)
}

// When the loss of the state folder is accepted, what was dropped comes back as its files have it, and no new table takes its place.
func TestUndropLostState(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	goneWarehouse(t, fs, Options{})
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, left.RemoveAll("data/state"))
	_, err := Open(ctx, "data", Options{FS: left})
	require.ErrorIs(t, err, ErrLostState)
	// Not even the warehouse file is as new as the folders.
	require.NoError(t, left.MkdirAll("data/warehouse/.dropped/moving-40/.hoodie", 0o755))
	c := testOpen(t, left, Options{AcceptLostState: true})
	_, err = left.Stat("data/warehouse/.dropped/moving-40")
	require.Error(t, err)
	s := testSpec()
	s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}}}
	next, err := c.CreateTable(ctx, "d", "x", s)
	require.NoError(t, err)
	require.Greater(t, int(next.id), 40)
	require.NoError(t, ddlInsert("d.x", 9).do(ctx, c))
	require.NoError(t, c.DropTable(ctx, "d", "x"))
	_, err = c.Undrop(ctx, "d", "x", "")
	require.NoError(t, err)
	require.Contains(t, scanAll(t, c, ddlTable(c, "d.x")), "[9 x 9]")
	require.NoError(t, c.DropTable(ctx, "d", "x"))
	_, err = c.Undrop(ctx, "d", "x", "")
	require.NoError(t, err)
	_, err = c.Undrop(ctx, "d", "t", "u")
	require.NoError(t, err)
	require.Equal(t, "[1 x 1] [2 x 2]", scanAll(t, c, ddlTable(c, "d.u")))
	require.NoError(t, c.UndropDatabase(ctx, "e"))
	require.Equal(t, "[1 x 1]", scanAll(t, c, ddlTable(c, "e.t")))
	require.NoError(t, c.Close(ctx))
}

// A stop that cannot write the rows of a dropped table says so, and the state folder is still needed.
func TestStopKeepsDropped(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	var mu sync.Mutex
	failing := false
	c := goneWarehouse(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if failing && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, droppedFolder) {
			return errorfs.ErrInjected
		}
		return nil
	})), Options{})
	mu.Lock()
	failing = true
	mu.Unlock()
	require.ErrorIs(t, c.Close(ctx), errorfs.ErrInjected)
	mu.Lock()
	failing = false
	mu.Unlock()
	lost := fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, lost.RemoveAll("data/state"))
	_, err := Open(ctx, "data", Options{FS: lost})
	require.ErrorIs(t, err, ErrLostState)
	c = testOpen(t, fs, Options{})
	require.Contains(t, goneState(t, c), "[3 x 3]")
	require.NoError(t, c.Close(ctx))
}

// Rows that waited when their table was dropped wait again when it is back, after a kill too, although all others were flushed meanwhile.
func TestUndropWaits(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	for _, name := range []string{"t", "u"} {
		_, err := c.CreateTable(ctx, "d", name, testSpec())
		require.NoError(t, err)
		require.NoError(t, ddlInsert("d."+name, 1).do(ctx, c))
	}
	require.NoError(t, c.DropTable(ctx, "d", "t"))
	require.NoError(t, ddlInsert("d.u", 2).do(ctx, c))
	require.NoError(t, c.Flush(ctx, "test"))
	_, err := c.Undrop(ctx, "d", "t", "")
	require.NoError(t, err)
	waiting := func(want int64) {
		t.Helper()
		var rows int64
		for _, w := range c.Waiting() {
			require.Equal(t, "t", w.Table.Name())
			rows += w.Rows
		}
		require.Equal(t, want, rows)
		require.Equal(t, "[1 x 1]", scanAll(t, c, ddlTable(c, "d.t")))
	}
	waiting(1)
	for range 2 { // kills
		left := fs.CrashClone(vfs.CrashCloneCfg{})
		c = testOpen(t, left, Options{})
		waiting(1)
		fs = &cloneFS{MemFS: left}
	}
	require.NoError(t, c.Close(ctx))
	require.NoError(t, fs.RemoveAll("data/state"))
	c = testOpen(t, fs, Options{})
	waiting(0)
	require.NoError(t, ddlInsert("d.t", 2).do(ctx, c))
	require.NoError(t, c.Flush(ctx, "test"))
	require.Empty(t, c.Waiting())
	require.NoError(t, c.Close(ctx))
}
