package catalog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// problems checks a table and gives what was found, one text each with its severity in front.
func problems(t *testing.T, c *Catalog, tab *Table, level CheckLevel) []string {
	t.Helper()
	var out []string
	for p, err := range c.Check(context.Background(), tab, level, nil) {
		require.NoError(t, err)
		out = append(out, []string{"damage ", "warning ", "note "}[p.Severity]+p.String())
	}
	return out
}

// checkedTable makes a warehouse on disk with one table: rows in base files, changed and deleted ones in logs, and buffered ones.
func checkedTable(t *testing.T) (dir string, c *Catalog, tab *Table) {
	ctx := context.Background()
	dir = t.TempDir()
	c, err := Open(ctx, dir, Options{FS: vfs.Default})
	require.NoError(t, err)
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	spec := testSpec()
	spec.AutoIncrement = "id"
	spec.Indexes = []IndexSpec{{Name: "u", Columns: []KeyColumn{{Column: "name"}}, Unique: true}, {Name: "x", Columns: []KeyColumn{{Column: "v"}}}}
	tab, err = c.CreateTable(ctx, "d", "t", spec)
	require.NoError(t, err)
	row := func(i int32, v int64) storage.Row {
		return storage.Row{i, strings.Repeat("name ", 20) + string('a'+i%26) + string('a'+i/26), v}
	}
	inTx(t, c, func(tx *Tx) {
		for i := range int32(100) {
			require.NoError(t, tx.Insert(ctx, tab, row(i, int64(i))))
		}
	})
	require.NoError(t, c.Flush(ctx, "test"))
	inTx(t, c, func(tx *Tx) {
		for i := range int32(10) {
			require.NoError(t, tx.Update(ctx, tab, row(i, int64(i)), row(i, int64(-i))))
		}
		for i := int32(10); i < 15; i++ {
			require.NoError(t, tx.Delete(ctx, tab, row(i, int64(i))))
		}
	})
	require.NoError(t, c.Flush(ctx, "test"))
	inTx(t, c, func(tx *Tx) {
		require.NoError(t, tx.Insert(ctx, tab, row(200, 1)))
		require.NoError(t, tx.Update(ctx, tab, row(50, 50), row(50, 5)))
		require.NoError(t, tx.Delete(ctx, tab, row(60, 60)))
	})
	require.Empty(t, problems(t, c, tab, CheckExtended))
	return dir, c, tab
}

func fileLike(t *testing.T, folder, part string) string {
	t.Helper()
	found := ""
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path)+"$", part) && !strings.HasSuffix(path, ".crc") {
			found = path
		}
		return err
	}))
	require.NotEmpty(t, found, part)
	return found
}

// Every kind of damage to files and journal is named at the level that looks there, and by those above it; the ones below find nothing.
func TestCheckFindsDamage(t *testing.T) {
	ctx := context.Background()
	flip := func(t *testing.T, name string, at func(b []byte) int) {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		b[at(b)] ^= 0x10
		require.NoError(t, os.WriteFile(name, b, 0o644))
	}
	set := func(t *testing.T, c *Catalog, k, v []byte) { require.NoError(t, c.db.Set(k, v, pebble.Sync)) }
	first := func(t *testing.T, c *Catalog, prefix []byte) (k, v []byte) {
		it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: index.PrefixEnd(prefix)})
		require.NoError(t, err)
		defer it.Close()
		require.True(t, it.Last(), "no key")
		return slices.Clone(it.Key()), slices.Clone(it.Value())
	}
	table := func(p byte, tab *Table) []byte { return idKey(p, tab.id) }
	key := func(t *testing.T, tab *Table, id int32) []byte {
		k, err := tab.KeyOf("", storage.Row{id})
		require.NoError(t, err)
		return k
	}
	for _, x := range []struct {
		name   string
		level  CheckLevel
		damage func(t *testing.T, c *Catalog, tab *Table, folder string)
		want   []string // each in some problem of the level
	}{
		{"base file removed", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			require.NoError(t, os.Remove(fileLike(t, folder, ".parquet")))
		}, []string{"damage ", ".parquet: the file is missing; restore"}},
		{"log removed", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			require.NoError(t, os.Remove(fileLike(t, folder, ".log.")))
		}, []string{"damage .", ": the file is missing"}},
		{"log cut", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			require.NoError(t, os.Truncate(fileLike(t, folder, ".log."), 100))
		}, []string{"byte 100: the file has 100 bytes, instant"}},
		{"footer", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			flip(t, fileLike(t, folder, ".parquet"), func(b []byte) int { return len(b) - 2 })
		}, []string{"no parquet footer at the end"}},
		{"commit file", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			flip(t, fileLike(t, folder, ".deltacommit$"), func(b []byte) int { return bytes.IndexByte(b, '{') })
		}, []string{"damage .hoodie/", ".deltacommit: invalid character"}},
		{"properties", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			name := filepath.Join(folder, ".hoodie/hoodie.properties")
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(name, bytes.Replace(b, []byte("MERGE_ON_READ"), []byte("COPY_ON_WRITE"), 1), 0o644))
		}, []string{"damage .hoodie/hoodie.properties: hoodie.table.type is not what the table was defined with"}},
		{"old inflight instant", CheckQuick, func(t *testing.T, c *Catalog, tab *Table, folder string) { // A18
			require.NoError(t, os.WriteFile(filepath.Join(folder, ".hoodie/20260101000000000.deltacommit.inflight"), nil, 0o644))
		}, []string{"warning .hoodie/20260101000000000.deltacommit.inflight: deltacommit 20260101000000000 is unfinished since"}},
		{"bit in a page", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			flip(t, fileLike(t, folder, ".parquet"), func(b []byte) int { return 200 })
		}, []string{"its CRC-32C is", ".parquet", "damage "}},
		{"bit in a log's row", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			flip(t, fileLike(t, folder, ".log."), func(b []byte) int { return bytes.LastIndex(b, []byte("name name")) })
		}, []string{"its CRC-32C is", ".log."}},
		{"journal row", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			k, v := first(t, c, table(prefixPacket, tab))
			set(t, c, k, v[:3])
		}, []string{"damage journal, commit "}},
		{"journal row gone", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			k, _ := first(t, c, table(prefixPacket, tab))
			require.NoError(t, c.db.Delete(k, pebble.Sync))
		}, []string{"2 rows, the commit wrote 3"}},
		{"commit record gone", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			k, _ := first(t, c, []byte{prefixJournal})
			require.NoError(t, c.db.Delete(k, pebble.Sync))
		}, []string{"3 rows without a record of their commit"}},
		{"file of a failed writer", CheckMedium, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			b, err := os.ReadFile(fileLike(t, folder, ".parquet"))
			require.NoError(t, err)
			at, err := timeline.ParseTime(c.cold(tab.id).tl.Start(), time.UTC)
			require.NoError(t, err)
			name := storage.BaseFileName("3f2f4f7e-7b5c-4d8e-9f6a-000000000001-0", "0-0-0", timeline.FormatTime(at.Add(time.Millisecond)))
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), b, 0o644))
			old := filepath.Join(folder, ".hoodie/.tmp-left")
			require.NoError(t, os.WriteFile(old, nil, 0o644))
			require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-5*time.Hour)))
			// The folder is listed when the table is opened.
			require.NoError(t, c.Close(ctx))
		}, []string{"warning 3f2f4f7e", ", which is not on the timeline: a writer that failed left it", "note .hoodie/.tmp-left: a temporary file"}},
		{"location missing", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			b := c.db.NewBatch()
			require.NoError(t, c.index.DropLocation(b, tab.id, key(t, tab, 70)))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 70: the row in file group ", "has no entry; stop the server cleanly, remove the state folder and start"}},
		{"location of another group", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			b := c.db.NewBatch()
			no, err := c.index.GroupNumber(b, tab.id, "", "elsewhere-0")
			require.NoError(t, err)
			require.NoError(t, c.index.PutLocation(b, tab.id, key(t, tab, 70), index.Location{Group: no, Row: -1, Key: "70"}))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 70: the entry names file group elsewhere-0 and record key 70, the row stands in"}},
		{"location of another row", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			loc, ok, err := c.index.Locate(c.db, tab.id, key(t, tab, 70))
			require.NoError(t, err)
			require.True(t, ok)
			loc.Row++
			b := c.db.NewBatch()
			require.NoError(t, c.index.PutLocation(b, tab.id, key(t, tab, 70), loc))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 70: the entry names row 71 of"}},
		{"location without a row", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			b := c.db.NewBatch()
			require.NoError(t, c.index.PutLocation(b, tab.id, key(t, tab, 700), index.Location{Group: 0, Row: -1, Key: "700"}))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 700: file group ", "has no row of it"}},
		{"recent entry missing", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			r, ok, err := c.index.LastRecent(c.db, tab.id, key(t, tab, 200), ^index.Seq(0))
			require.NoError(t, err)
			require.True(t, ok)
			b := c.db.NewBatch()
			require.NoError(t, c.index.DropRecent(b, tab.id, key(t, tab, 200), r.Seq))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 200: row 0 of commit ", "which waits for a flush, has no entry"}},
		{"recent entry of no row", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			r, _, err := c.index.LastRecent(c.db, tab.id, key(t, tab, 200), ^index.Seq(0))
			require.NoError(t, err)
			b := c.db.NewBatch()
			require.NoError(t, c.index.PutRecent(b, tab.id, key(t, tab, 201), index.Recent{Seq: r.Seq, Ord: 77}))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index: an entry names row 77 of commit"}},
		{"hint missing", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			v, err := tab.KeyOf("x", storage.Row{int64(70)})
			require.NoError(t, err)
			b := c.db.NewBatch()
			require.NoError(t, c.index.DropSecondary(b, tab.id, tab.def.Load().indexes[1].no, v, key(t, tab, 70)))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index x, key 70: the row has no entry"}},
		{"hint too many", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			v, err := tab.KeyOf("x", storage.Row{int64(7000)})
			require.NoError(t, err)
			b := c.db.NewBatch()
			require.NoError(t, c.index.PutSecondary(b, tab.id, tab.def.Load().indexes[1].no, v, key(t, tab, 70)))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"note index x: 1 entries lead to no row"}},
		{"dead key missing", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			b := c.db.NewBatch()
			require.NoError(t, c.index.DropDead(b, tab.id, "", "12"))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 12: file group ", "has it deleted, which the index does not know"}},
		{"dead key that lives", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			d, ok, err := c.index.FindDead(c.db, tab.id, "", "12")
			require.NoError(t, err)
			require.True(t, ok)
			b := c.db.NewBatch()
			require.NoError(t, c.index.PutDead(b, tab.id, "", "70", d))
			require.NoError(t, b.Commit(pebble.Sync))
		}, []string{"damage index, key 70: the entry says that the record is deleted"}},
		{"counter", CheckExtended, func(t *testing.T, c *Catalog, tab *Table, folder string) {
			tab.auto.Lock()
			tab.auto.next = 5
			tab.auto.Unlock()
		}, []string{"damage d.t, key 200: the next AUTO_INCREMENT value is 5, a row has 200; ALTER TABLE … AUTO_INCREMENT = 201"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir, c, tab := checkedTable(t)
			x.damage(t, c, tab, tab.Location())
			if c.closed {
				var err error
				c, err = Open(ctx, dir, Options{FS: vfs.Default})
				require.NoError(t, err)
				tab, _ = c.Table("d", "t")
			}
			defer c.Close(ctx)
			for level := range x.level {
				require.Empty(t, problems(t, c, tab, level), "level %d", level)
			}
			for level := x.level; level <= CheckExtended; level++ {
				all := strings.Join(problems(t, c, tab, level), "\n")
				for _, w := range x.want {
					require.Contains(t, all, w, "level %d", level)
				}
			}
		})
	}
}

// A row that another engine wrote twice, and one with the UNIQUE value of another, are named.
func TestCheckForeignRows(t *testing.T) {
	ctx := context.Background()
	_, c, tab := checkedTable(t)
	defer c.Close(ctx)
	require.NoError(t, c.Flush(ctx, "test"))
	rows := []storage.Row{{int32(70), "twice", int64(1)}, {int32(900), strings.Repeat("name ", 20) + "ac", int64(2)}}
	foreignInsert(t, c, tab, rows...)
	require.NoError(t, c.Adopt(ctx))
	tab.folderTime.Store(0)
	all := strings.Join(problems(t, c, tab, CheckExtended), "\n")
	require.Contains(t, all, "key 70: the key has another row, in file group ")
	require.Contains(t, all, "index u, key ")
	require.Contains(t, all, "is also that of key ")
}

// foreignInsert writes rows into a new file group of a table, as an engine that does not look for their keys.
func foreignInsert(t *testing.T, c *Catalog, tab *Table, rows ...storage.Row) {
	ctx := context.Background()
	d := tab.def.Load()
	it := timeline.FormatTime(c.Clock().Now().Add(10 * time.Millisecond).UTC())
	p, err := timeline.Begin(ctx, c.store, d.dir, timeline.DeltaCommit, it, nil)
	require.NoError(t, err)
	id := storage.NewFileID()
	name := storage.BaseFileName(id, "0-0-0", it)
	w, err := storage.CreateBase(ctx, c.store, d.object("", name), d.spec.Schema, storage.BaseOptions{})
	require.NoError(t, err)
	for i, row := range rows {
		require.NoError(t, w.Append(storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprint(it, "_0_", i), Key: d.recordKey(row)}, row))
	}
	size, err := w.Commit(ctx)
	require.NoError(t, err)
	st := timeline.WriteStat{FileID: id, Path: name, NumWrites: int64(len(rows)), NumInserts: int64(len(rows)), WriteBytes: size, FileSize: size}
	require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{"": {st}}, Operation: timeline.OpInsert, Extra: map[string]string{timeline.ExtraSchema: d.spec.Schema.Avro(false)},
	}))
}

// A check ends when its context does, and when nobody wants more.
func TestCheckStops(t *testing.T) {
	_, c, tab := checkedTable(t)
	defer c.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var last error
	for _, err := range c.Check(ctx, tab, CheckExtended, nil) {
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
	b := c.db.NewBatch()
	require.NoError(t, c.index.DropLocations(b, tab.id))
	require.NoError(t, b.Commit(pebble.Sync))
	n := 0
	for p, err := range c.Check(context.Background(), tab, CheckExtended, nil) {
		require.NoError(t, err)
		n++
		if n == 3 {
			break
		}
		_ = p
	}
	require.Equal(t, 3, n)
	var told, all int64
	list := 0
	for range c.Check(context.Background(), tab, CheckExtended, func(done, total int64) { told, all = done, total }) {
		list++
	}
	require.Less(t, list, 4*problemsMax, "problems of a kind are counted from some number on")
	require.Equal(t, all, told)
	require.Positive(t, all)
}
