package catalog

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// Files of completed instants that were damaged are an error that names them, never missing rows, and only of their own table.
func TestDamagedFiles(t *testing.T) {
	ctx := context.Background()
	find := func(t *testing.T, dir, suffix string) string {
		var found string
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && strings.Contains(filepath.Base(path), suffix) && !strings.Contains(path, ".hoodie/") {
				found = path
			}
			return err
		}))
		require.NotEmpty(t, found)
		return found
	}
	for name, damage := range map[string]func(t *testing.T, folder string){
		"log cut off": func(t *testing.T, folder string) {
			f := find(t, folder, ".log.")
			st, err := os.Stat(f)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(f, st.Size()-20))
		},
		"base file gone": func(t *testing.T, folder string) { require.NoError(t, os.Remove(find(t, folder, ".parquet"))) },
		"properties cut off": func(t *testing.T, folder string) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, ".hoodie/hoodie.properties"), []byte("hoodie.table.na"), 0o644))
		},
		"upgraded": func(t *testing.T, folder string) {
			p := filepath.Join(folder, ".hoodie/hoodie.properties")
			b, err := os.ReadFile(p)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(p, []byte(strings.Replace(string(b), "hoodie.table.version=6", "hoodie.table.version=8", 1)), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c, err := Open(ctx, dir, Options{FS: vfs.Default})
			require.NoError(t, err)
			require.NoError(t, c.CreateDatabase(ctx, "d", nil))
			var tables []*Table
			for _, n := range []string{"bad", "good"} {
				tab, err := c.CreateTable(ctx, "d", n, testSpec())
				require.NoError(t, err)
				tables = append(tables, tab)
				inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "a", int64(1)})) })
			}
			require.NoError(t, c.Flush(ctx, "test"))
			for _, tab := range tables {
				inTx(t, c, func(tx *Tx) {
					require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(1), "a", int64(1)}, storage.Row{int32(1), "b", int64(2)}))
				})
			}
			folder := tables[0].Location()
			require.NoError(t, c.Close(ctx))
			damage(t, folder)

			c, err = Open(ctx, dir, Options{FS: vfs.Default})
			require.NoError(t, err)
			defer c.Close(ctx)
			bad, _ := c.Table("d", "bad")
			good, _ := c.Table("d", "good")
			require.Equal(t, "[1 b 2]", scanAll(t, c, good))
			tx, err := c.Begin(ctx)
			require.NoError(t, err)
			defer tx.Rollback()
			var failed error
			for _, err := range tx.Scan(ctx, bad, ScanOptions{}) {
				failed = err
			}
			require.Error(t, failed, "the scan shows something")
			require.NotErrorIs(t, failed, ErrNotFound)
			tx.Rollback()
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, good, storage.Row{int32(2), "c", int64(1)})) })
			require.NoError(t, c.Flush(ctx, "test"))
			require.NoError(t, c.DropTable(ctx, "d", "bad"))
		})
	}
}

// A table that cannot be attached for what one of its files says has an error that names it.
func TestDamagedForeign(t *testing.T) {
	ctx := context.Background()
	for name, old := range map[string]string{"20261130101135675.commit": `{\"type\":\"record\"`, "hoodie.properties": "hoodie.table.version=6"} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			dir := unpackInto(t, fs, "v6_cow_plain", "/hudi")
			changeText(t, fs, filepath.Join(dir, ".hoodie", name), func(text string) string {
				require.Contains(t, text, old)
				return strings.ReplaceAll(text, old, "{")
			})
			c := testOpen(t, fs, Options{})
			require.NoError(t, c.CreateDatabase(ctx, "d", nil))
			_, err := c.AttachTable(ctx, "d", "t", dir)
			require.ErrorContains(t, err, name)
			require.NoError(t, c.Close(ctx))
		})
	}
}

// changeText changes the text of a file.
func changeText(t *testing.T, fs vfs.FS, path string, change func(text string) string) {
	f, err := fs.Open(path)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	out, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = out.Write([]byte(change(string(b))))
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
