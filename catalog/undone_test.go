package catalog

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// undo takes back a completed instant as another engine's rollback does, or with restore as a restore does, which leaves no trace of it.
func (w *otherWriter) undo(it storage.InstantTime, restore bool) {
	ctx := context.Background()
	d := w.tab.def.Load()
	tl, err := timeline.Load(ctx, w.c.store, d.dir)
	require.NoError(w.t, err)
	in, ok := tl.Get(it)
	require.True(w.t, ok)
	m, err := timeline.ReadCommit(ctx, w.c.store, d.dir, in)
	require.NoError(w.t, err)
	files := map[string][]string{}
	for part, stats := range m.Stats {
		for i := range stats {
			files[part] = append(files[part], stats[i].FileName())
		}
	}
	require.NoError(w.t, w.c.store.Remove(ctx, join(d.dir, ".hoodie", in.FileName(timeline.Completed))))
	in.State = timeline.Inflight
	newest, err := timeline.ParseTime(tl.Newest(), time.UTC)
	require.NoError(w.t, err)
	w.c.commitMu.Lock()
	at, _ := w.c.clock.instant(newest)
	w.c.commitMu.Unlock()
	back := timeline.FormatTime(at)
	require.NoError(w.t, timeline.RollBack(ctx, w.c.store, d.dir, in, back, files))
	if restore {
		for _, name := range []string{".rollback", ".rollback.inflight", ".rollback.requested"} {
			err := w.c.store.Remove(ctx, join(d.dir, ".hoodie", string(back)+name))
			require.True(w.t, err == nil || errors.Is(err, storage.ErrNotExist))
		}
		require.NoError(w.t, w.c.store.PutNew(ctx, join(d.dir, ".hoodie", string(back)+".restore"), nil))
	}
}

// newest gives the newest completed instant.
func (w *otherWriter) newest() storage.InstantTime {
	tl, _ := w.slices()
	in, ok := tl.Last()
	require.True(w.t, ok)
	return in.Time
}

// D8, D29: what another engine rolls back or restores is gone, and what waits here stays. As of a time at which it was seen, an instant of ours is
// still there, from the journal; one of another engine's is not, and the error names the time from which on the table is known again.
func TestUndoneInstants(t *testing.T) {
	for n := range 16 {
		mor, event, restore, down := n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0
		t.Run(fmt.Sprintf("mor=%v event=%v restore=%v down=%v", mor, event, restore, down), func(t *testing.T) {
			ctx := context.Background()
			fs := vfs.NewMem()
			c := testOpen(t, fs, Options{})
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead = mor
				if event {
					s.Ordering, s.OrderingField = storage.EventTime, "v"
				}
			})
			type state struct {
				at   time.Time
				rows string
				gone bool // it shows an instant of another engine that was undone
			}
			var past []state
			see := func(want string, gone bool) {
				t.Helper()
				require.Equal(t, want, scanAll(t, c, tab))
				past = append(past, state{c.Clock().Now(), want, gone})
			}
			check := func() {
				t.Helper()
				for i, p := range past {
					s, err := c.AsOf(ctx, AsOf{Time: p.at})
					require.NoError(t, err)
					got, err := dumpOrError(s.Scan(ctx, tab, ScanOptions{}))
					if !p.gone {
						require.NoError(t, err, "time %d", i)
						require.Equal(t, p.rows, got, "time %d", i)
					} else {
						var early *TooEarlyError
						require.ErrorAs(t, err, &early, "time %d", i)
						require.Greater(t, early.Earliest, p.at)
						for _, q := range past[i:] {
							if !q.gone {
								require.LessOrEqual(t, early.Earliest, q.at, "time %d", i)
								break
							}
						}
					}
					s.Close()
				}
			}
			reopen := func() {
				require.NoError(t, c.Close(ctx))
				c = testOpen(t, fs, Options{})
				tab, _ = c.Table("d", "t")
			}
			change := func(f func(tx *Tx) error) { inTx(t, c, func(tx *Tx) { require.NoError(t, f(tx)) }) }
			row := func(id int32, v int64) storage.Row { return storage.Row{id, "a", v} }
			change(func(tx *Tx) error {
				return firstError(tx.Insert(ctx, tab, row(1, 100)), tx.Insert(ctx, tab, row(2, 100)), tx.Insert(ctx, tab, row(3, 100)))
			})
			flushAll(t, c)
			see("[1 a 100] [2 a 100] [3 a 100]", false)
			// In event time this row wins over the one that it replaced, though its value is lower, but not over what is adopted later.
			change(func(tx *Tx) error {
				return firstError(tx.Delete(ctx, tab, row(1, 100)), tx.Insert(ctx, tab, row(1, 50)))
			})
			see("[1 a 50] [2 a 100] [3 a 100]", false)
			one := "[1 a 50]"
			if event {
				one = "[1 a 700]"
			}
			w := &otherWriter{t, c, tab}
			w.write(map[string]storage.Row{"1": row(1, 700), "2": row(2, 700), "9": row(9, 700)}, nil)
			theirs := w.newest()
			require.NoError(t, tab.adopt(ctx))
			see(one+" [2 a 700] [3 a 100] [9 a 700]", true)
			change(func(tx *Tx) error { return tx.Update(ctx, tab, row(3, 100), row(3, 200)) })
			see(one+" [2 a 700] [3 a 200] [9 a 700]", true)
			open, err := c.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, open.Update(ctx, tab, row(2, 700), row(2, 701)))
			w.undo(theirs, restore)
			require.NoError(t, tab.adopt(ctx))
			require.ErrorIs(t, open.Commit(ctx), ErrConflict, "it read what was undone")
			see("[1 a 50] [2 a 100] [3 a 200]", false)
			check()
			flushAll(t, c)
			see("[1 a 50] [2 a 100] [3 a 200]", false)
			check()
			reopen()
			check()

			// An instant of ours.
			change(func(tx *Tx) error {
				return firstError(tx.Update(ctx, tab, row(2, 100), row(2, 300)), tx.Delete(ctx, tab, row(3, 200)), tx.Insert(ctx, tab, row(4, 1)))
			})
			see("[1 a 50] [2 a 300] [4 a 1]", false)
			flushAll(t, c)
			see("[1 a 50] [2 a 300] [4 a 1]", false)
			w = &otherWriter{t, c, tab}
			ours := w.newest()
			change(func(tx *Tx) error { return tx.Insert(ctx, tab, row(5, 5)) })
			see("[1 a 50] [2 a 300] [4 a 1] [5 a 5]", false)
			if down {
				flushAll(t, c)
				// The stop flushes; what is undone then are both.
				last := w.newest()
				see("[1 a 50] [2 a 300] [4 a 1] [5 a 5]", false)
				require.NoError(t, c.Close(ctx))
				w.undo(last, restore)
				w.undo(ours, restore)
				c = testOpen(t, fs, Options{})
				tab, _ = c.Table("d", "t")
				w = &otherWriter{t, c, tab}
				see("[1 a 50] [2 a 100] [3 a 200]", false)
			} else {
				w.undo(ours, restore)
				require.NoError(t, tab.adopt(ctx))
				see("[1 a 50] [2 a 100] [3 a 200] [5 a 5]", false)
			}
			check()
			change(func(tx *Tx) error { return tx.Insert(ctx, tab, row(6, 6)) })
			flushAll(t, c)
			require.Equal(t, w.files(), scanAll(t, c, tab))
			check()
			reopen()
			check()
		})
	}
}

// dumpOrError is dump of a scan that may fail.
func dumpOrError(scan func(yield func(storage.Batch, error) bool)) (string, error) {
	var out []string
	for b, err := range scan {
		if err != nil {
			return "", err
		}
		for i := range b.Rows {
			out = append(out, fmt.Sprint([]any(b.Row(i, nil))))
		}
	}
	sort.Strings(out)
	return strings.Join(out, " "), nil
}
