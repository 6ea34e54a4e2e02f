package catalog

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// A dropped table comes back with what was in its files and what was not, its index, its AUTO_INCREMENT counter and the objects that
// were dropped with it, also after the next start; a name that is taken is an error, and so is the end of the retention.
func TestUndrop(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	o := Options{Now: func() time.Time { now = now.Add(time.Millisecond); return now }, DropRetention: time.Hour}
	c := testOpen(t, fs, o)
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	spec := testSpec()
	spec.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}, Unique: true}}
	spec.AutoIncrement = "id"
	tab, err := c.CreateTable(ctx, "d", "t", spec)
	require.NoError(t, err)
	require.NoError(t, c.PutObject(ctx, "trigger", "d", "tr", []byte("x")))
	n, err := tab.NextAutoIncrement(ctx, 2)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
	require.NoError(t, c.Flush(ctx, "test"))
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(2), "b", int64(2)})) })
	drop := func() {
		tab, ok := c.Table("d", "t")
		require.True(t, ok)
		require.NoError(t, c.Change(ctx, Change{
			Tables: []TableChange{{Table: tab, Drop: true}}, Objects: []ObjectChange{{Kind: "trigger", Database: "d", Name: "tr", With: tab}},
		}))
		_, ok = c.Table("d", "t")
		require.False(t, ok)
		require.Empty(t, c.Objects("trigger", "d"))
	}
	check := func(name string) {
		tab, ok := c.Table("d", name)
		require.True(t, ok)
		require.Equal(t, "[1 a 1] [2 b 2]", scanAll(t, c, tab))
		require.Len(t, c.Objects("trigger", "d"), 1)
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		defer tx.Rollback()
		var dup *DuplicateKeyError
		require.ErrorAs(t, tx.Insert(ctx, tab, storage.Row{int32(9), "c", int64(2)}), &dup)
		require.Equal(t, "by_v", dup.Index)
		next, err := tab.PeekAutoIncrement(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 3, next)
	}
	drop()
	list, err := c.Dropped()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "t", list[0].Name)
	require.EqualValues(t, 2, list[0].Rows)
	require.Equal(t, time.Hour, list[0].Until.Sub(list[0].At))
	_, err = c.Undrop(ctx, "d", "t", "")
	require.NoError(t, err)
	check("t")

	// After a start, and a name that is taken.
	drop()
	require.NoError(t, c.Close(ctx))
	c = testOpen(t, fs, o)
	_, ok := c.Table("d", "t")
	require.False(t, ok)
	other, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	_, err = c.Undrop(ctx, "d", "t", "")
	require.ErrorIs(t, err, ErrExists)
	require.Equal(t, "", scanAll(t, c, other))
	_, err = c.Undrop(ctx, "d", "t", "u")
	require.NoError(t, err)
	check("u")
	require.NoError(t, c.DropTable(ctx, "d", "t"))
	require.NoError(t, c.RenameTable(ctx, "d", "u", "d", "t"))
	check("t")

	// With its database.
	require.NoError(t, c.DropDatabase(ctx, "d"))
	require.Empty(t, c.Databases())
	_, err = c.Undrop(ctx, "d", "t", "")
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, c.UndropDatabase(ctx, "D"))
	check("t")
	require.ErrorIs(t, c.UndropDatabase(ctx, "d"), ErrExists)

	// The retention ends. What an older snapshot may read stays until it is closed.
	drop()
	s, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, c.PurgeDropped(ctx))
	s.Rollback()
	now = now.Add(2 * time.Hour)
	_, err = c.Undrop(ctx, "d", "t", "")
	require.ErrorIs(t, err, ErrExpired)
	require.NoError(t, c.PurgeDropped(ctx))
	list, err = c.Dropped()
	require.NoError(t, err)
	require.Empty(t, list)
	folders, err := fs.List("data/warehouse/.dropped")
	require.NoError(t, err)
	require.Empty(t, folders)
	require.NoError(t, c.Close(ctx))
}

// A scan goes on over a table that is renamed and dropped meanwhile, and its files stay while it may need them.
func TestScanOverDrop(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{DropRetention: time.Nanosecond})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	for i := range int32(20) {
		inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{i, "a", int64(i)})) })
		if i%5 == 4 {
			require.NoError(t, c.Flush(ctx, "test"))
		}
	}
	s, err := c.AsOf(ctx, AsOf{Time: c.Clock().Now()})
	require.NoError(t, err)
	scan := s.Scan(ctx, tab, ScanOptions{})
	require.NoError(t, c.RenameTable(ctx, "d", "t", "d", "u"))
	again, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, again, storage.Row{int32(1), "new", int64(1)})) })
	require.NoError(t, c.Flush(ctx, "test"))
	require.NoError(t, c.DropTable(ctx, "d", "u"))
	time.Sleep(2 * time.Millisecond)
	require.NoError(t, c.PurgeDropped(ctx))
	rows := 0
	for b, err := range scan {
		require.NoError(t, err)
		rows += b.Rows
	}
	require.Equal(t, 20, rows)
	folders, err := fs.List("data/warehouse/.dropped")
	require.NoError(t, err)
	require.Len(t, folders, 1)
	s.Close()
	require.NoError(t, c.PurgeDropped(ctx))
	folders, err = fs.List("data/warehouse/.dropped")
	require.NoError(t, err)
	require.Empty(t, folders)
	require.NoError(t, c.Close(ctx))
}

// UNDROP DATABASE attaches again what was attached, where it lies, also after a start; a table whose folder has gone is left out.
func TestUndropAttached(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	c := testOpen(t, fs, Options{})
	tab := newTable(t, c, "t", nil)
	insertRows(t, c, tab, 0, 3)
	flushAll(t, c)
	rows := scanAll(t, c, tab)
	require.NoError(t, c.CreateDatabase(ctx, "e", nil))
	require.NoError(t, fs.MkdirAll("data/elsewhere", 0o755))
	_, err := vfs.Clone(fs, fs, "data/warehouse/d/t", "data/elsewhere/gone")
	require.NoError(t, err)
	_, err = vfs.Clone(fs, fs, "data/warehouse/d/t", "data/elsewhere/t")
	require.NoError(t, err)
	for _, name := range []string{"t", "gone"} {
		_, err = c.AttachTable(ctx, "e", name, "elsewhere/"+name)
		require.NoError(t, err)
	}
	require.NoError(t, c.DropDatabase(ctx, "e"))
	require.NoError(t, c.Close(ctx))
	require.NoError(t, fs.RemoveAll("data/elsewhere/gone"))
	c = testOpen(t, fs, Options{})
	require.NoError(t, c.UndropDatabase(ctx, "e"))
	for range 2 {
		require.Equal(t, []string{"t"}, c.TableNames("e"))
		tab, _ := c.Table("e", "t")
		require.True(t, tab.Spec().Attached)
		require.Equal(t, rows, scanAll(t, c, tab))
		require.NoError(t, c.Close(ctx))
		c = testOpen(t, fs, Options{})
	}
	require.NoError(t, c.Close(ctx))
}
