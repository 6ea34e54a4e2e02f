package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// tree gives every file below a table's folder with the checksum of its content.
func tree(t *testing.T, c *Catalog, tab *Table) map[string]uint32 {
	t.Helper()
	out := map[string]uint32{}
	var walk func(dir, rel string)
	walk = func(dir, rel string) {
		for info, err := range c.store.List(context.Background(), dir) {
			require.NoError(t, err)
			if info.Dir {
				walk(join(dir, info.Name), join(rel, info.Name))
				continue
			}
			b, err := c.readObject(context.Background(), join(dir, info.Name))
			require.NoError(t, err)
			out[join(rel, info.Name)] = crc32.ChecksumIEEE(b)
		}
	}
	walk(tab.def.Load().dir, "")
	return out
}

// rowsOf scans the columns named and gives the rows by their first value.
func rowsOf(t *testing.T, c *Catalog, tab *Table, cols ...string) map[any]storage.Row {
	t.Helper()
	tx, err := c.Begin(context.Background())
	require.NoError(t, err)
	defer tx.Rollback()
	out := map[any]storage.Row{}
	for b, err := range tx.Scan(context.Background(), tab, ScanOptions{Columns: cols}) {
		require.NoError(t, err)
		for i := range b.Rows {
			r := b.Row(i, nil)
			if _, twice := out[r[0]]; twice {
				t.Fatalf("%v comes twice", r[0])
			}
			out[r[0]] = r
		}
	}
	return out
}

func newTable(t *testing.T, c *Catalog, name string, change func(*TableSpec)) *Table {
	t.Helper()
	if _, _, ok := c.Database("d"); !ok {
		require.NoError(t, c.CreateDatabase(context.Background(), "d", nil))
	}
	s := testSpec()
	if change != nil {
		change(&s)
	}
	tab, err := c.CreateTable(context.Background(), "d", name, s)
	require.NoError(t, err)
	return tab
}

func insertRows(t *testing.T, c *Catalog, tab *Table, from, to int32) {
	t.Helper()
	inTx(t, c, func(tx *Tx) {
		for i := from; i < to; i++ {
			require.NoError(t, tx.Insert(context.Background(), tab, storage.Row{i, fmt.Sprint("n", i), int64(i)}))
		}
	})
}

func flushAll(t *testing.T, c *Catalog) {
	t.Helper()
	require.NoError(t, c.Flush(context.Background(), "test"))
}

// metas reads the metadata of every completed instant that wrote, oldest first.
func metas(t *testing.T, c *Catalog, tab *Table) (out []*timeline.CommitMeta, at []timeline.Instant) {
	t.Helper()
	d := tab.def.Load()
	tl, err := timeline.Load(context.Background(), c.store, d.dir)
	require.NoError(t, err)
	for _, in := range tl.Completed() {
		m, err := timeline.ReadCommit(context.Background(), c.store, d.dir, in)
		require.NoError(t, err)
		out, at = append(out, m), append(at, in)
	}
	return out, at
}

var (
	baseName    = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+_\d+-\d+-\d+_\d{17}\.parquet$`)
	logName     = regexp.MustCompile(`^\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+_\d{17}\.log\.\d+_\d+-\d+-\d+$`)
	instantName = regexp.MustCompile(`^\d{17}\.((deltacommit|replacecommit)(\.requested|\.inflight)?|commit|commit\.requested|inflight|rollback(\.requested|\.inflight)?)$`)
)

// D9, D14, D16, D19: names carry file id and instant, instants pass through all states, no file that stands is changed, no marker stays,
// and a record stays in the file group that it was first written to.
func TestFilesOfTable(t *testing.T) {
	for _, mor := range []bool{true, false} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			ctx := context.Background()
			c := testOpen(t, vfs.NewMem(), Options{})
			tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead, s.Partition = mor, []string{"name"} })
			before := map[string]uint32{}
			group := map[any]string{}
			for round := range int32(5) {
				insertRows(t, c, tab, round*10, round*10+10)
				if round > 0 {
					inTx(t, c, func(tx *Tx) {
						for i := (round - 1) * 10; i < round*10-3; i++ {
							require.NoError(t, tx.Update(ctx, tab, storage.Row{i, fmt.Sprint("n", i), int64(i)}, storage.Row{i, fmt.Sprint("n", i), int64(-i)}))
						}
						i := round*10 - 1
						require.NoError(t, tx.Delete(ctx, tab, storage.Row{i, fmt.Sprint("n", i), int64(i)}))
					})
				}
				flushAll(t, c)
				now := tree(t, c, tab)
				for name, sum := range before {
					if !strings.HasSuffix(name, "hoodie.properties") {
						require.Equal(t, sum, now[name], name)
					}
				}
				before = now
				for k, r := range rowsOf(t, c, tab, "id", storage.ColFileName) {
					id := r[1].(string)
					if f, ok := storage.ParseFileName(id); ok {
						id = string(f.ID)
					}
					if was, ok := group[k]; ok {
						require.Equal(t, was[:36], id[:36], "row %v", k)
					}
					group[k] = id
				}
			}
			states := map[string]int{}
			for name := range before {
				last := filepath.Base(name)
				dir := filepath.Dir(name)
				switch {
				case dir == ".hoodie":
					if last != "hoodie.properties" && last != "hoodie.properties.backup" {
						require.Regexp(t, instantName, last)
						states[last[:17]]++
					}
				case strings.HasPrefix(dir, ".hoodie/"):
					t.Fatalf("%s is left over", name)
				case strings.HasPrefix(last, ".hoodie_partition_metadata"):
				case last[0] == '.':
					require.Regexp(t, logName, last)
				default:
					require.Regexp(t, baseName, last)
				}
			}
			for it, n := range states {
				require.Equal(t, 3, n, it)
			}
			require.NoError(t, c.Close(ctx))
		})
	}
}

// D12, D17, D21, D27: a rewrite keeps what it does not change, with its commit time; the commit says what was written; the footer has bloom filter and key range.
func TestCopyOnWrite(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead = false })
	insertRows(t, c, tab, 0, 10)
	flushAll(t, c)
	first := rowsOf(t, c, tab, append([]string{"id"}, storage.MetaColumns...)...)
	inTx(t, c, func(tx *Tx) {
		require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(3), "n3", int64(3)}, storage.Row{int32(3), "x", int64(33)}))
		require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(4), "n4", int64(4)}))
		require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(50), "n50", int64(50)}))
	})
	flushAll(t, c)
	second := rowsOf(t, c, tab, append([]string{"id"}, storage.MetaColumns...)...)
	m, at := metas(t, c, tab)
	require.Len(t, m, 2)
	require.Len(t, second, 10)
	for k, r := range second {
		if k == int32(3) || k == int32(50) {
			require.EqualValues(t, at[1].Time, r[1])
			require.True(t, strings.HasPrefix(r[2].(string), string(at[1].Time)+"_0_"), r[2])
			continue
		}
		require.Equal(t, first[k][:4], r[:4], "commit time, sequence number and key of a row that was not touched")
		require.NotEqual(t, first[k][5], r[5], "file name")
	}
	require.Len(t, m[1].Stats[""], 1)
	st := m[1].Stats[""][0]
	require.EqualValues(t, 10, st.NumWrites)
	require.EqualValues(t, 1, st.NumUpdates)
	require.EqualValues(t, 1, st.NumDeletes)
	require.EqualValues(t, 1, st.NumInserts)
	require.Equal(t, at[0].Time, st.PrevCommit)
	require.Equal(t, m[0].Stats[""][0].FileID, st.FileID)
	b, err := c.readObject(ctx, tab.def.Load().object("", st.FileName()))
	require.NoError(t, err)
	require.EqualValues(t, len(b), st.FileSize)
	for _, key := range []string{"org.apache.hudi.bloomfilter", "hoodie_min_record_key", "hoodie_max_record_key", "parquet.avro.schema"} {
		require.True(t, strings.Contains(string(b), key), key)
	}
	require.Equal(t, c.id, m[1].Extra[extraWarehouse])
	require.NoError(t, c.Close(ctx))
}

// D8, D13, D14: whatever operation of a flush fails, the next one rolls it back, with a ROLLBACK instant and without its files, and writes the rows anew.
func TestRollbackOfFlush(t *testing.T) {
	ctx := context.Background()
	rollbacks := 0
	for n := int32(1); ; n++ {
		var ops atomic.Int32
		var armed atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() && strings.Contains(op.Path, "warehouse/") && ops.Add(1) == n {
				return errorfs.ErrInjected
			}
			return nil
		}))
		c := testOpen(t, fs, Options{})
		tab := newTable(t, c, "t", nil)
		insertRows(t, c, tab, 0, 5)
		flushAll(t, c)
		inTx(t, c, func(tx *Tx) {
			require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(4), "n4", int64(4)}))
			require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(9), "n9", int64(9)}))
		})
		want := "[0 n0 0] [1 n1 1] [2 n2 2] [3 n3 3] [9 n9 9]"
		armed.Store(true)
		err := c.Flush(ctx, "test")
		armed.Store(false)
		require.Equal(t, want, scanAll(t, c, tab), "operation %d", n)
		flushAll(t, c)
		require.Equal(t, want, scanAll(t, c, tab), "operation %d", n)
		tl, lerr := timeline.Load(ctx, c.store, tab.def.Load().dir)
		require.NoError(t, lerr)
		require.Empty(t, tl.Pending(), "operation %d", n)
		require.Len(t, tl.Completed(), 2, "operation %d", n)
		for _, in := range tl.Instants {
			if in.Action == timeline.Rollback {
				rollbacks++
			}
		}
		for name := range tree(t, c, tab) {
			if f, ok := storage.ParseFileName(filepath.Base(name)); ok && f.Version == 0 {
				require.True(t, tl.Counts(f.Instant), "operation %d left %s", n, name)
			}
		}
		require.NoError(t, c.Close(ctx))
		if err == nil && ops.Load() < n {
			break
		}
	}
	require.NotZero(t, rollbacks)
}

// D21: a flush never rewrites more than four times the bytes that it adds: inserts open new groups when the small ones are too large for them.
func TestRewriteFactor(t *testing.T) {
	c := testOpen(t, vfs.NewMem(), Options{})
	for _, mor := range []bool{true, false} {
		tab := newTable(t, c, fmt.Sprint("t", mor), func(s *TableSpec) { s.MergeOnRead = mor })
		at := int32(0)
		for _, n := range []int32{20000, 10, 2000, 2000, 2000, 50, 2000, 20000} {
			insertRows(t, c, tab, at, at+n)
			at += n
			flushAll(t, c)
		}
		m, _ := metas(t, c, tab)
		for i, one := range m {
			var kept, added int64
			for _, st := range one.Stats[""] {
				if st.PrevCommit != "" && st.PrevCommit != "null" {
					kept += st.NumWrites - st.NumInserts
				}
				added += st.NumInserts
			}
			require.LessOrEqual(t, kept, 4*added, "flush %d", i)
		}
		require.Less(t, len(tab.c.cold(tab.id).newest()), len(m), "small groups are filled up")
		require.Len(t, rowsOf(t, c, tab, "id"), int(at))
	}
	require.NoError(t, c.Close(context.Background()))
}

// D19: a key inserted again after its delete comes back to its file group, whose base file may still have it: Spark looks keys up there.
func TestInsertAfterDelete(t *testing.T) {
	ctx := context.Background()
	for _, event := range []bool{true, false} {
		for _, between := range []bool{true, false} {
			t.Run(fmt.Sprint("event=", event, " flushed=", between), func(t *testing.T) {
				c := testOpen(t, vfs.NewMem(), Options{})
				tab := newTable(t, c, "t", func(s *TableSpec) {
					if event {
						s.Ordering, s.OrderingField = storage.EventTime, "v"
					}
				})
				insertRows(t, c, tab, 100, 105)
				flushAll(t, c)
				inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(103), "n103", int64(103)})) })
				if between {
					flushAll(t, c)
				}
				inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(103), "again", int64(7)})) })
				require.Equal(t, "again", rowsOf(t, c, tab, "id", "name")[int32(103)][1])
				flushAll(t, c)
				require.Equal(t, "again", rowsOf(t, c, tab, "id", "name")[int32(103)][1])
				inTx(t, c, func(tx *Tx) {
					require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(103), "again", int64(7)}, storage.Row{int32(103), "more", int64(8)}))
				})
				flushAll(t, c)
				require.Equal(t, "more", rowsOf(t, c, tab, "id", "name")[int32(103)][1])
				// The files alone say the same.
				want, err := tab.Spec().Schema.Select("id", "name", "v")
				require.NoError(t, err)
				var got []string
				deletes := 0
				d, cold := tab.def.Load(), c.cold(tab.id)
				for _, fs := range cold.newest() {
					for b, err := range c.reader.ReadSlice(ctx, d.dir, fs, d.scan(want, cold.counts)) {
						require.NoError(t, err)
						for i := range b.Rows {
							if r := b.Row(i, nil); r[0] == int32(103) {
								got = append(got, fmt.Sprint(r))
							}
						}
					}
					for _, l := range fs.Logs {
						for block, err := range storage.ReadLog(ctx, c.store, d.object(fs.Partition, l.Name)) {
							require.NoError(t, err)
							if block.Type != storage.BlockDelete {
								continue
							}
							list, err := block.Deletes()
							require.NoError(t, err)
							deletes += len(list)
						}
					}
				}
				require.Equal(t, []string{"[103 more 8]"}, got)
				// In event time the group has a new base file, else the record came back in the logs, after its delete if that was flushed.
				want2 := 0
				if between && !event {
					want2 = 1
				}
				require.Equal(t, want2, deletes)
				require.Len(t, cold.newest(), 1)
				require.NoError(t, c.Close(ctx))
			})
		}
	}
}

// D13: a deleted key that comes back to its file group at the flush which gives the group a new base file is in that file: the slice
// that the file takes the place of does not show the key.
func TestInsertAfterDeleteIntoBase(t *testing.T) {
	ctx := context.Background()
	defer func(n int) { maxLogs = n }(maxLogs)
	maxLogs = 1
	for _, order := range []storage.Ordering{storage.CommitTime, storage.EventTime} {
		c := testOpen(t, vfs.NewMem(), Options{})
		tab := newTable(t, c, "t", func(s *TableSpec) {
			if s.Ordering = order; order == storage.EventTime {
				s.OrderingField = "v"
			}
		})
		insertRows(t, c, tab, 0, 3)
		flushAll(t, c)
		inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(1), "n1", int64(1)})) })
		flushAll(t, c)
		inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "again", int64(7)})) })
		flushAll(t, c)
		list := c.cold(tab.id).newest()
		require.Len(t, list, 1)
		require.Empty(t, list[0].Logs, "the test is about a new base file")
		require.Equal(t, "[0 n0 0] [1 again 7] [2 n2 2]", scanAll(t, c, tab))
		require.Empty(t, problems(t, c, tab, CheckExtended))
		require.NoError(t, c.Close(ctx))
	}
}

// D19: the delete of an event-time table carries the ordering value that is stored, in its column's type.
func TestDeleteOrdering(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", func(s *TableSpec) { s.Ordering, s.OrderingField = storage.EventTime, "v" })
	insertRows(t, c, tab, 100, 105)
	flushAll(t, c)
	inTx(t, c, func(tx *Tx) {
		require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(103), "n103", int64(103)}, storage.Row{int32(103), "n103", int64(777)}))
	})
	flushAll(t, c)
	inTx(t, c, func(tx *Tx) {
		require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(103), "n103", int64(777)}))
		require.NoError(t, tx.Delete(ctx, tab, storage.Row{int32(104), "n104", int64(104)}))
	})
	flushAll(t, c)
	got := map[string]any{}
	for _, l := range c.cold(tab.id).newest()[0].Logs {
		for block, err := range storage.ReadLog(ctx, c.store, tab.def.Load().object("", l.Name)) {
			require.NoError(t, err)
			if block.Type == storage.BlockDelete {
				list, err := block.Deletes()
				require.NoError(t, err)
				for _, del := range list {
					got[del.Key] = del.Ordering
				}
			}
		}
	}
	require.Equal(t, map[string]any{"103": int64(777), "104": int64(104)}, got)
	require.NoError(t, c.Close(ctx))
}

// A table with Hudi's metadata table loses it with the first write: it would hide what it does not know.
func TestMetadataTableGoes(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"v6_cow_metadata", "v6_mor_metadata"} {
		dir := unpackFixture(t, name, t.TempDir())
		c, err := Open(ctx, filepath.Join(t.TempDir(), "data"), Options{FS: vfs.Default})
		require.NoError(t, err)
		require.NoError(t, c.CreateDatabase(ctx, "d", nil))
		tab, err := c.AttachTable(ctx, "d", "t", dir)
		require.NoError(t, err)
		before := len(rowsOf(t, c, tab, "id"))
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		var row storage.Row
		for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
			require.NoError(t, err)
			row = b.Row(0, nil)
			break
		}
		require.NoError(t, tx.Delete(ctx, tab, row))
		require.NoError(t, tx.Commit(ctx))
		flushAll(t, c)
		require.Len(t, rowsOf(t, c, tab, "id"), before-1)
		p, err := timeline.ReadProperties(ctx, c.store, tab.def.Load().dir)
		require.NoError(t, err)
		require.Empty(t, p[timeline.KeyMetadata])
		require.Empty(t, p[timeline.KeyMetadataInflight])
		require.NoDirExists(t, filepath.Join(dir, ".hoodie", "metadata"))
		require.NoError(t, c.Close(ctx))
	}
}

// The number of log files over a base file is bounded, and so is what a reader merges.
func TestLogsAreBounded(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", nil)
	insertRows(t, c, tab, 0, 10)
	flushAll(t, c)
	for i := range int64(maxLogs) + 10 {
		inTx(t, c, func(tx *Tx) {
			require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(3), "", int64(0)}, storage.Row{int32(3), "x", i}))
		})
		flushAll(t, c)
	}
	slices := c.cold(tab.id).newest()
	require.Len(t, slices, 1)
	require.Len(t, slices[0].Logs, 9)
	require.Equal(t, storage.Row{int32(3), "x", int64(maxLogs) + 9}, rowsOf(t, c, tab, "id", "name", "v")[int32(3)])
	require.Len(t, rowsOf(t, c, tab, "id"), 10)
	require.NoError(t, c.Close(ctx))
}

// A key that only its spelling changes of keeps one row, with the new text as record key, for readers that compare texts too.
func TestRespelledKey(t *testing.T) {
	ctx := context.Background()
	for _, mor := range []bool{true, false} {
		c := testOpen(t, vfs.NewMem(), Options{SortKey: foldKey})
		tab := newTable(t, c, "t", func(s *TableSpec) {
			s.MergeOnRead, s.Key = mor, []KeyColumn{{Column: "name", Collation: "ci"}}
		})
		inTx(t, c, func(tx *Tx) {
			require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "Anna", int64(1)}))
			require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(2), "Bob", int64(2)}))
			var dup *DuplicateKeyError
			require.ErrorAs(t, tx.Insert(ctx, tab, storage.Row{int32(3), "ANNA", int64(3)}), &dup)
		})
		flushAll(t, c)
		inTx(t, c, func(tx *Tx) {
			require.NoError(t, tx.Update(ctx, tab, storage.Row{int32(1), "Anna", int64(1)}, storage.Row{int32(1), "ANNA", int64(9)}))
		})
		for range 2 {
			require.Equal(t, "[1 ANNA 9] [2 Bob 2]", scanAll(t, c, tab))
			flushAll(t, c)
		}
		require.Contains(t, rowsOf(t, c, tab, storage.ColRecordKey), "ANNA")
		require.Len(t, rowsOf(t, c, tab, storage.ColRecordKey), 2)
		require.NoError(t, c.Close(ctx))
	}
}

// D11: eight writers of one counter lose no update; conflicts are run again.
func TestCounter(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", nil)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "n", int64(0)})) })
	each := envInt("ROUNDS", 60)
	var wg sync.WaitGroup
	var stop atomic.Bool
	flusher := make(chan error, 1)
	go func() {
		var err error
		for !stop.Load() && err == nil {
			err = c.Flush(ctx, "test")
			time.Sleep(2 * time.Millisecond)
		}
		flusher <- err
	}()
	errs := make(chan error, 8)
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				for {
					err := func() error {
						tx, err := c.Begin(ctx)
						if err != nil {
							return err
						}
						defer tx.Rollback()
						row, ok, err := tx.Get(ctx, tab, storage.Row{int32(1)})
						if err != nil || !ok {
							return fmt.Errorf("get: %v %w", ok, err)
						}
						next := storage.Row{row[0], row[1], row[2].(int64) + 1}
						if err := tx.Update(ctx, tab, row, next); err != nil {
							return err
						}
						return tx.Commit(ctx)
					}()
					if errors.Is(err, ErrConflict) {
						continue
					}
					if err != nil {
						errs <- err
						return
					}
					break
				}
			}
		}()
	}
	wg.Wait()
	stop.Store(true)
	require.NoError(t, <-flusher)
	close(errs)
	require.NoError(t, <-errs)
	require.Equal(t, fmt.Sprintf("[1 n %d]", 8*each), scanAll(t, c, tab))
	m, at := metas(t, c, tab)
	for i := 1; i < len(at); i++ {
		require.Less(t, at[i-1].Time, at[i].Time)
	}
	require.NotEmpty(t, m)
	require.NoError(t, c.Close(ctx))
}

// The journal keeps a window of commits: inside it the past is exact, before it there are instants.
func TestJournalWindow(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var ahead atomic.Int64
	o := Options{JournalWindow: time.Hour, Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }}
	wait := func(d time.Duration) { ahead.Add(int64(d)) }
	var stop atomic.Bool
	go func() { // a wall clock for the flushes that wait for it
		for !stop.Load() {
			wait(time.Millisecond)
			time.Sleep(time.Millisecond)
		}
	}()
	defer stop.Store(true)
	c := testOpen(t, fs, o)
	tab := newTable(t, c, "t", nil)
	asOf := func(at time.Time) string {
		s, err := c.AsOf(ctx, AsOf{Time: at})
		require.NoError(t, err)
		defer s.Close()
		return dump(t, s.Scan(ctx, tab, ScanOptions{Columns: []string{"id"}}))
	}
	insertRows(t, c, tab, 1, 2)
	one := c.Clock().Now()
	wait(time.Second)
	insertRows(t, c, tab, 2, 3)
	two := c.Clock().Now()
	flushAll(t, c)
	require.Equal(t, "[1]", asOf(one))
	require.Equal(t, "[1] [2]", asOf(two))
	wait(2 * time.Hour)
	insertRows(t, c, tab, 3, 4)
	three := c.Clock().Now()
	wait(time.Second)
	insertRows(t, c, tab, 4, 5)
	flushAll(t, c)
	keys := func(prefix []byte) (n int) {
		it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: index.PrefixEnd(prefix)})
		require.NoError(t, err)
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			n++
		}
		return n
	}
	for range 2 {
		require.Equal(t, "", asOf(one), "before the first instant that is left of that time")
		require.Equal(t, "[1] [2] [3]", asOf(three))
		require.Equal(t, 2, keys([]byte{prefixPacket}))
		require.Equal(t, 2, keys([]byte{prefixJournal}))
		require.Equal(t, 2, keys([]byte{prefixOwn}))
		require.NoError(t, c.Close(ctx))
		c = testOpen(t, fs, o)
		tab, _ = c.Table("d", "t")
	}
	// A limit of bytes works like the window.
	require.NoError(t, c.Close(ctx))
	o.JournalBytes = 1
	c = testOpen(t, fs, o)
	tab, _ = c.Table("d", "t")
	insertRows(t, c, tab, 5, 6)
	flushAll(t, c)
	require.Equal(t, 0, keys([]byte{prefixPacket}))
	require.Equal(t, "[1] [2] [3] [4] [5]", asOf(c.Clock().Now()))
	require.NoError(t, c.Close(ctx))
}

// A value that no folder can be named by is refused before OK.
func TestPartitionPaths(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", func(s *TableSpec) { s.Partition = []string{"name"} })
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, tx.Insert(ctx, tab, storage.Row{int32(1), strings.Repeat("ü", 150), int64(1)}), ErrInvalid)
	for i, name := range []string{"..", ".", "", "a/../b", ".hidden", "\x00", "%2E", "x\ny", strings.Repeat("a", 190)} {
		require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(i), name, int64(i)}))
	}
	require.NoError(t, tx.Commit(ctx))
	flushAll(t, c)
	require.Len(t, rowsOf(t, c, tab, "id"), 9)
	for i, name := range []string{"..", ".", "", "a/../b", ".hidden", "\x00", "%2E"} {
		require.Equal(t, name, rowsOf(t, c, tab, "id", "name")[int32(i)][1])
	}
	require.NoError(t, c.Close(ctx))
}

// Another engine adds a column: a table of ours is only read until its definition has the column too; an attached one follows.
func TestForeignColumn(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", nil)
	insertRows(t, c, tab, 1, 3)
	flushAll(t, c)
	wider := *tab.Spec().Schema
	wider.Fields = append(append([]storage.Field(nil), wider.Fields...), storage.Field{Name: "extra", Type: storage.Type{Kind: storage.String}, Nullable: true})
	d := tab.def.Load()
	p, err := timeline.Begin(ctx, c.store, d.dir, timeline.DeltaCommit, timeline.FormatTime(c.Clock().Now().Add(10*time.Millisecond)), nil)
	require.NoError(t, err)
	require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: timeline.OpUpsert, Extra: map[string]string{timeline.ExtraSchema: wider.Avro(false)},
	}))
	require.NoError(t, tab.adopt(ctx))
	for range 2 {
		require.Equal(t, "[1 n1 1] [2 n2 2]", scanAll(t, c, tab))
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		err = tx.Insert(ctx, tab, storage.Row{int32(3), "n3", int64(3)})
		require.ErrorIs(t, err, ErrReadOnly)
		require.ErrorContains(t, err, "extra")
		tx.Rollback()
		fs := c.fs
		require.NoError(t, c.Close(ctx))
		c = testOpen(t, fs, Options{})
		tab, _ = c.Table("d", "t")
	}
	spec := *tab.Spec()
	spec.Schema = &wider
	require.NoError(t, c.AlterTable(ctx, tab, spec, []int{0, 1, 2, -1}, nil))
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(3), "n3", int64(3), "x"})) })
	flushAll(t, c)
	require.Equal(t, "[1 n1 1 <nil>] [2 n2 2 <nil>] [3 n3 3 x]", scanAll(t, c, tab))

	// Another warehouse follows.
	other, err := Open(ctx, "other", Options{FS: c.fs})
	require.NoError(t, err)
	require.NoError(t, other.CreateDatabase(ctx, "d", nil))
	two, err := other.AttachTable(ctx, "d", "two", tab.Location())
	require.NoError(t, err)
	wider.Fields = append(wider.Fields, storage.Field{Name: "more", Type: storage.Type{Kind: storage.Int32}, Nullable: true})
	d = two.def.Load()
	p, err = timeline.Begin(ctx, c.store, d.dir, timeline.DeltaCommit, timeline.FormatTime(c.Clock().Now().Add(10*time.Millisecond)), nil)
	require.NoError(t, err)
	require.NoError(t, p.Complete(ctx, &timeline.CommitMeta{
		Stats: map[string][]timeline.WriteStat{}, Operation: timeline.OpUpsert, Extra: map[string]string{timeline.ExtraSchema: wider.Avro(false)},
	}))
	version := two.Version()
	require.NoError(t, two.adopt(ctx))
	require.Greater(t, two.Version(), version)
	require.Equal(t, "[1 n1 1 <nil> <nil>] [2 n2 2 <nil> <nil>] [3 n3 3 x <nil>]", scanAll(t, other, two))
	require.NoError(t, other.Close(ctx))
	require.NoError(t, c.Close(ctx))
}

// What a cleaner took away is not read as if it had never been.
func TestCleanedPast(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead = false })
	var times []time.Time
	insertRows(t, c, tab, 0, 1)
	for i := range int64(4) {
		inTx(t, c, func(tx *Tx) {
			old, _, err := tx.Get(ctx, tab, storage.Row{int32(0)})
			require.NoError(t, err)
			require.NoError(t, tx.Update(ctx, tab, old, storage.Row{int32(0), "n", i}))
		})
		flushAll(t, c)
		times = append(times, c.Clock().Now())
	}
	d := tab.def.Load()
	_, at := metas(t, c, tab)
	m := timeline.CleanMeta{Start: string(at[2].Time), EarliestToRetain: string(at[2].Time), Partitions: map[string]timeline.CleanPartition{}}
	b, err := m.Encode()
	require.NoError(t, err)
	it := timeline.FormatTime(c.Clock().Now().Add(5 * time.Millisecond))
	require.NoError(t, c.store.PutNew(ctx, join(d.dir, ".hoodie", string(it)+".clean"), b))
	for name := range tree(t, c, tab) {
		if f, ok := storage.ParseFileName(filepath.Base(name)); ok && f.Instant < at[1].Time {
			require.NoError(t, c.store.Remove(ctx, join(d.dir, name)))
		}
	}
	require.NoError(t, tab.adopt(ctx))
	for i, time := range times { // the commits lead back from what is left
		s, err := c.AsOf(ctx, AsOf{Time: time})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("[0 n %d]", i), dump(t, s.Scan(ctx, tab, ScanOptions{})))
		s.Close()
	}
	// The state of an instant by its name is what other engines see of it.
	s, err := c.AsOf(ctx, AsOf{Instant: string(at[0].Time)})
	require.NoError(t, err)
	require.Equal(t, "[0 n 0]", dump(t, s.Scan(ctx, tab, ScanOptions{})))
	s.Close()
	// Without the journal nothing leads back.
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, storage.Row{int32(1), "m", int64(1)})) })
	c.o.JournalBytes = 1
	flushAll(t, c)
	s, err = c.AsOf(ctx, AsOf{Time: times[0]})
	require.NoError(t, err)
	var early *TooEarlyError
	require.ErrorAs(t, s.Check(ctx, tab), &early)
	s.Close()
	s, err = c.AsOf(ctx, AsOf{Time: times[2]})
	require.NoError(t, err)
	require.Equal(t, "[0 n 2]", dump(t, s.Scan(ctx, tab, ScanOptions{})))
	s.Close()
	require.NoError(t, c.Close(ctx))
}
