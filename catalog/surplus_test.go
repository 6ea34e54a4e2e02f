package catalog

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// insert writes rows into a new file group without looking for their keys, as a bulk_insert does; rows of equal keys stand in it together.
func (w *otherWriter) insert(part string, rows ...storage.Row) {
	ctx := context.Background()
	d := w.tab.def.Load()
	action := timeline.Commit
	if d.spec.MergeOnRead {
		action = timeline.DeltaCommit
	}
	p, it := w.begin(action)
	require.NoError(w.t, timeline.EnsurePartition(ctx, w.c.store, d.dir, part, it))
	id := storage.NewFileID()
	name := storage.BaseFileName(id, storage.NewToken(0), it)
	b, err := storage.CreateBase(ctx, w.c.store, d.object(part, name), d.spec.Schema, storage.BaseOptions{})
	require.NoError(w.t, err)
	for i, row := range rows {
		require.NoError(w.t, b.Append(storage.RowMeta{CommitTime: it, SeqNo: fmt.Sprintf("%s_0_%d", it, i), Key: fmt.Sprint(row[0]), Partition: part}, row))
	}
	st := timeline.WriteStat{FileID: id, Partition: part, Path: join(part, name), NumWrites: b.Rows()}
	st.FileSize, err = b.Commit(ctx)
	require.NoError(w.t, err)
	w.complete(p, timeline.OpBulkInsert, []timeline.WriteStat{st}, nil)
}

// D8, D20: a key that another engine wrote several times shows all its rows, which CHECK TABLE names; a change of the key leaves one row and a
// delete none, in every file group and after a restart, and the past keeps what it showed.
func TestSeveralRowsOfAKey(t *testing.T) {
	for n := range 8 {
		mor, event, attached := n&1 > 0, n&2 > 0, n&4 > 0
		t.Run(fmt.Sprintf("mor=%v event=%v attached=%v", mor, event, attached), func(t *testing.T) {
			ctx := context.Background()
			fs := vfs.NewMem()
			c := testOpen(t, fs, Options{})
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead = mor
				if event {
					s.Ordering, s.OrderingField = storage.EventTime, "v"
				}
			})
			row := func(id int32, v int64) storage.Row { return storage.Row{id, "a", v} }
			inTx(t, c, func(tx *Tx) {
				for id := range int32(6) {
					require.NoError(t, tx.Insert(ctx, tab, row(id, 10)))
				}
			})
			flushAll(t, c)
			if attached {
				at := filepath.Join("/", tab.Location())
				require.NoError(t, c.Close(ctx))
				var err error
				c, err = Open(ctx, "other", Options{FS: fs})
				require.NoError(t, err)
				require.NoError(t, c.CreateDatabase(ctx, "d", nil))
				tab, err = c.AttachTable(ctx, "d", "t", at)
				require.NoError(t, err)
			}
			w := &otherWriter{t, c, tab}
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Update(ctx, tab, row(5, 10), row(5, 11))) }) // waits
			w.insert("", row(1, 20), row(2, 20), row(3, 20), row(5, 20), row(7, 20))
			w.insert("", row(1, 21), row(8, 1), row(8, 2), row(9, 1), row(9, 2)) // also twice in one group
			require.NoError(t, tab.adopt(ctx))
			type state struct {
				at   time.Time
				rows string
			}
			var past []state
			see := func(want string) {
				t.Helper()
				require.Equal(t, want, scanAll(t, c, tab))
				past = append(past, state{c.Clock().Now(), want})
				for i, p := range past {
					s, err := c.AsOf(ctx, AsOf{Time: p.at})
					require.NoError(t, err)
					require.Equal(t, p.rows, dump(t, s.Scan(ctx, tab, ScanOptions{})), "time %d", i)
					s.Close()
				}
			}
			five := "[5 a 11]"
			if event {
				five = "[5 a 10] [5 a 20]" // what waits is late
			}
			rest := " [3 a 10] [3 a 20] [4 a 10] " + five + " [7 a 20] "
			see("[0 a 10] [1 a 10] [1 a 20] [1 a 21] [2 a 10] [2 a 20]" + rest + "[8 a 1] [8 a 2] [9 a 1] [9 a 2]")
			require.NotEmpty(t, problems(t, c, tab, CheckExtended))
			inTx(t, c, func(tx *Tx) {
				require.NoError(t, tx.Update(ctx, tab, row(1, 21), row(1, 30)))
				require.NoError(t, tx.Delete(ctx, tab, row(2, 20)))
				require.NoError(t, tx.Delete(ctx, tab, row(8, 2)))
				require.NoError(t, tx.Update(ctx, tab, row(9, 2), row(9, 3)))
			})
			want := "[0 a 10] [1 a 30]" + rest + "[9 a 3]"
			see(want)
			flushAll(t, c)
			require.False(t, tab.isBuffered())
			see(want)
			require.Equal(t, w.files(), scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Update(ctx, tab, row(3, 20), row(3, 31))) })
			flushAll(t, c)
			want = "[0 a 10] [1 a 30] [3 a 31] [4 a 10] " + five + " [7 a 20] [9 a 3]"
			see(want)
			require.Equal(t, w.files(), scanAll(t, c, tab))
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Update(ctx, tab, row(5, 20), row(5, 32))) })
			flushAll(t, c)
			want = "[0 a 10] [1 a 30] [3 a 31] [4 a 10] [5 a 32] [7 a 20] [9 a 3]"
			see(want)
			require.EqualValues(t, 7, tab.RowCount())
			require.Empty(t, problems(t, c, tab, CheckExtended))
			inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, row(10, 1))) })
			flushAll(t, c)
			require.False(t, tab.doubled.Load(), "all keys have one row again")
			require.Equal(t, w.files(), scanAll(t, c, tab))
			require.NoError(t, c.Close(ctx))
		})
	}
}
