package catalog

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// A folder is that of one table, by whatever path: two would each take the instants of the other for their own.
func TestAttachTwice(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	folder := unpackFixture(t, "v6_cow_plain", dir)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(folder, link))
	c, err := Open(ctx, filepath.Join(dir, "data"), Options{FS: vfs.Default})
	require.NoError(t, err)
	own := newTable(t, c, "own", nil)
	insertRows(t, c, own, 0, 1)
	flushAll(t, c)
	_, err = c.AttachTable(ctx, "d", "t", folder)
	require.NoError(t, err)
	for _, location := range []string{folder, folder + "/", link, own.Location()} {
		_, err := c.AttachTable(ctx, "d", "again", location)
		require.ErrorIs(t, err, ErrInvalid, location)
	}
	require.NoError(t, c.DropTable(ctx, "d", "own"))
	_, err = c.AttachTable(ctx, "d", "again", c.path(c.object(c.droppedDir(own.id))))
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, c.DropTable(ctx, "d", "t"))
	_, err = c.AttachTable(ctx, "d", "again", link)
	require.NoError(t, err)
	require.NoError(t, c.Close(ctx))
}

// What was committed to an attached table is in its files when it is dropped, alone or with its database.
func TestDropAttachedFlushes(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	folder := unpackInto(t, fs, "v6_cow_plain", "/hudi")
	c := testOpen(t, fs, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	insert := func(id int32) {
		tab, _ := c.Table("d", "t")
		inTx(t, c, func(tx *Tx) {
			require.NoError(t, tx.Insert(ctx, tab, storage.Row{id, "n", "oslo", 1.0, int64(1)}))
		})
	}
	rows := func() (n int) {
		tab, _ := c.Table("d", "t")
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		defer tx.Rollback()
		for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
			require.NoError(t, err)
			n += b.Rows
		}
		return n
	}
	_, err := c.AttachTable(ctx, "d", "t", folder)
	require.NoError(t, err)
	before := rows()
	insert(9001)
	require.NoError(t, c.DropTable(ctx, "d", "t"))
	_, err = c.AttachTable(ctx, "d", "t", folder)
	require.NoError(t, err)
	require.Equal(t, before+1, rows())
	insert(9002)
	require.NoError(t, c.DropDatabase(ctx, "d"))
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	_, err = c.AttachTable(ctx, "d", "t", folder)
	require.NoError(t, err)
	require.Equal(t, before+2, rows())
	require.NoError(t, c.Close(ctx))
}
