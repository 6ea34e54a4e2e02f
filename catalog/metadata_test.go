package catalog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// attachedFixture attaches a table that Hudi wrote.
func attachedFixture(t testing.TB, name string) (*Catalog, *Table, string) {
	t.Helper()
	ctx := context.Background()
	dir := unpackFixture(t, name, t.TempDir())
	c, err := Open(ctx, filepath.Join(t.TempDir(), "data"), Options{FS: vfs.Default})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(ctx)) })
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.AttachTable(ctx, "d", "t", dir)
	require.NoError(t, err)
	return c, tab, dir
}

// metadataFindings gives what Check says of the metadata table.
func metadataFindings(t testing.TB, c *Catalog, tab *Table) (out []string) {
	t.Helper()
	for p, err := range c.Check(context.Background(), tab, CheckQuick, nil) {
		require.NoError(t, err)
		if strings.HasPrefix(p.Object, ".hoodie/metadata") {
			out = append(out, p.String())
		}
	}
	return out
}

// A stale metadata table, and one that hides files or names files that are gone, is named by CHECK TABLE.
func TestCheckMetadataTable(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		for _, name := range []string{"v6_cow_metadata", "v6_mor_metadata", "v8_cow_metadata", "v8_mor_metadata", "v9_cow_metadata", "v9_mor_metadata"} {
			c, tab, _ := attachedFixture(t, name)
			require.Empty(t, metadataFindings(t, c, tab))
		}
	})
	t.Run("stale", func(t *testing.T) {
		c, tab, dir := attachedFixture(t, "v6_cow_metadata")
		meta := filepath.Join(dir, ".hoodie", "metadata", ".hoodie")
		for _, state := range []string{"", ".inflight", ".requested"} {
			require.NoError(t, os.Remove(filepath.Join(meta, "20261130105127104.deltacommit"+state)))
		}
		found := metadataFindings(t, c, tab)
		require.Len(t, found, 1)
		require.Contains(t, found[0], "stale metadata table: it does not know commit 20261130105127104")
	})
	t.Run("hides a file", func(t *testing.T) {
		c, tab, dir := attachedFixture(t, "v6_cow_metadata")
		require.NoError(t, os.Remove(filepath.Join(dir, ".hoodie", "metadata", "files", ".files-0000-0_00000000000000010.log.4_3-425-412")))
		found := metadataFindings(t, c, tab)
		require.Len(t, found, 1)
		require.Contains(t, found[0], "does not list oslo/")
	})
	t.Run("names a file that is gone", func(t *testing.T) {
		c, tab, dir := attachedFixture(t, "v6_cow_metadata")
		old, err := filepath.Glob(filepath.Join(dir, "lima", "*_20261130105046380.parquet"))
		require.NoError(t, err)
		require.Len(t, old, 1)
		require.NoError(t, os.Remove(old[0]))
		found := metadataFindings(t, c, tab)
		require.Len(t, found, 1)
		require.Contains(t, found[0], "which is not there")
	})
	t.Run("damaged", func(t *testing.T) {
		c, tab, dir := attachedFixture(t, "v6_cow_metadata")
		name := filepath.Join(dir, ".hoodie", "metadata", "files", "files-0000-0_0-315-268_00000000000000010.hfile")
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		b[60] ^= 4
		require.NoError(t, os.WriteFile(name, b, 0o644))
		found := metadataFindings(t, c, tab)
		require.Len(t, found, 1)
		require.Contains(t, found[0], "hfile, byte 0: the checksum of the block")
	})
}

// With hoodie.metadata.enable the metadata table follows flushes, large statements, DDL and restarts; without it, it goes.
func TestMetadataTableKept(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	o := Options{StageRows: 8}
	c := testOpen(t, fs, o)
	tab := newTable(t, c, "t", func(s *TableSpec) {
		s.Partition = []string{"name"}
		s.Options = map[string]string{timeline.KeyMetadataEnable: "true"}
	})
	listed := func(c *Catalog, tab *Table) int {
		t.Helper()
		require.Empty(t, metadataFindings(t, c, tab))
		dir := tab.def.Load().dir
		p, err := timeline.ReadProperties(ctx, c.store, dir)
		require.NoError(t, err)
		require.True(t, p.MetadataInUse())
		tl, err := timeline.Load(ctx, c.store, dir)
		require.NoError(t, err)
		m, err := timeline.OpenMetadata(ctx, c.store, dir, p, tl)
		require.NoError(t, err)
		files, err := m.Files(ctx)
		require.NoError(t, err)
		n := 0
		for _, names := range files {
			n += len(names)
		}
		return n
	}
	write := func(c *Catalog, tab *Table, from, to int32) {
		inTx(t, c, func(tx *Tx) {
			for id := from; id < to; id++ {
				require.NoError(t, tx.Insert(ctx, tab, storage.Row{id, "p", int64(id)}))
			}
		})
		flushAll(t, c)
	}
	write(c, tab, 0, 3)
	require.Equal(t, 1, listed(c, tab))
	write(c, tab, 10, 30) // a large statement
	require.Greater(t, listed(c, tab), 1)
	inTx(t, c, func(tx *Tx) {
		require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(1), "p", int64(1)}, storage.Row{int32(1), "p", int64(7)}))
	})
	flushAll(t, c)
	before := listed(c, tab)
	require.NoError(t, c.Close(ctx))

	c = testOpen(t, fs, o)
	tab, ok := c.Table("d", "t")
	require.True(t, ok)
	write(c, tab, 40, 42)
	require.Greater(t, listed(c, tab), before)

	spec := *tab.Spec()
	spec.Options = nil
	require.NoError(t, c.AlterTable(ctx, tab, spec, []int{0, 1, 2}, nil))
	write(c, tab, 50, 51)
	p, err := timeline.ReadProperties(ctx, c.store, tab.def.Load().dir)
	require.NoError(t, err)
	require.Empty(t, p[timeline.KeyMetadata])
	require.NoError(t, c.Close(ctx))
}
