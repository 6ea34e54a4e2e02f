package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// A change of a table waits for the transactions that use it, and new ones wait for the change; one that uses another table of the
// change goes on, so that the two do not wait for each other.
func TestChangeWaitsForTransactions(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	var tabs [2]*Table
	for i := range tabs {
		var err error
		tabs[i], err = c.CreateTable(ctx, "d", fmt.Sprint("t", i), testSpec())
		require.NoError(t, err)
	}
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Insert(ctx, tabs[0], storage.Row{int32(1), "a", int64(1)}))
	spec, columns := ddlWiden(tabs[0], "w")
	require.ErrorIs(t, c.AlterTable(WithWait(ctx, time.Millisecond, nil), tabs[0], *spec, columns, nil), ErrLockTimeout)

	done := make(chan error, 1)
	go func() {
		done <- c.Change(ctx, Change{Tables: []TableChange{{Table: tabs[0], Spec: spec, Columns: columns}, {Table: tabs[1], Name: "u"}}})
	}()
	require.Eventually(t, func() bool {
		tabs[0].meta.mu.Lock()
		defer tabs[0].meta.mu.Unlock()
		return tabs[0].meta.waiting > 0
	}, 10*time.Second, time.Millisecond)
	late := make(chan error, 1)
	go func() {
		tx, err := c.Begin(ctx)
		if err == nil {
			defer tx.Rollback()
			if err = tx.Insert(ctx, tabs[0], storage.Row{int32(2), "b", int64(1), int32(3)}); err == nil {
				err = tx.Commit(ctx)
			}
		}
		late <- err
	}()
	require.NoError(t, tx.Insert(ctx, tabs[1], storage.Row{int32(1), "a", int64(1)}))
	select {
	case err := <-done:
		t.Fatalf("the change did not wait: %v", err)
	case err := <-late:
		t.Fatalf("the transaction did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-done)
	require.NoError(t, <-late)
	require.Equal(t, "[1 a 1 <nil>] [2 b 1 3]", scanAll(t, c, tabs[0]))
	require.Equal(t, "u", tabs[1].Name())
	require.NoError(t, c.Close(ctx))
}

// Columns come and go, with and without a rewrite, and names change, beside writers, readers and flushes: each transaction meets one
// definition, and no row is lost.
func TestChangesBesideWriters(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	var over atomic.Bool
	var rows atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 16)
	run := func(f func(i int32) error) {
		all.Go(func() {
			for i := int32(0); !over.Load(); i++ {
				if err := f(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for w := range int32(2) {
		run(func(i int32) error {
			tx, err := c.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := tx.LockTable(ctx, tab, LockNone, LockWaits); err != nil {
				return err
			}
			row := make(storage.Row, len(tab.Spec().Schema.Fields))
			row[0], row[1], row[2] = i*2+w, "x", int64(i)
			if err := tx.Insert(ctx, tab, row); err != nil {
				return err
			}
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			rows.Add(1)
			return nil
		})
	}
	run(func(int32) error {
		n := rows.Load() // of before: the snapshot has them
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		// The definition is the one of the transaction from here on.
		if err := tx.LockTable(ctx, tab, LockNone, LockWaits); err != nil {
			return err
		}
		for range 2 {
			seen := int64(0)
			for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
				if err != nil {
					return err
				}
				seen += int64(b.Rows)
			}
			if seen < n {
				return fmt.Errorf("a scan shows %d rows of %d", seen, n)
			}
		}
		return nil
	})
	run(func(int32) error {
		time.Sleep(time.Millisecond)
		return c.Flush(ctx, "test")
	})
	for i := range 24 {
		spec, columns := ddlWiden(tab, fmt.Sprint("c", i))
		var convert func(storage.Row) (storage.Row, error)
		if i%3 == 0 {
			convert = func(row storage.Row) (storage.Row, error) { return append(slices.Clone(row), int32(i)), nil }
		}
		name := ""
		if i%4 == 1 {
			name = fmt.Sprint("t", i)
		}
		require.NoError(t, c.Change(ctx, Change{Tables: []TableChange{{Table: tab, Spec: spec, Columns: columns, Convert: convert, Name: name}}}))
		if i%5 == 4 {
			spec := *tab.Spec()
			s := *spec.Schema
			s.Fields = s.Fields[:3]
			spec.Schema = &s
			require.NoError(t, c.AlterTable(ctx, tab, spec, identity(3), nil))
		}
	}
	over.Store(true)
	all.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	n := 0
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
		require.NoError(t, err)
		n += b.Rows
	}
	tx.Rollback()
	require.EqualValues(t, rows.Load(), n)
	require.Positive(t, n)
	require.NoError(t, c.Close(ctx))
}

// A transaction whose snapshot was taken before a table was rewritten, emptied or got an index cannot read it as it was; what it
// writes, and what it reads with locks, is the newest state. Columns that come or go without a rewrite change nothing.
func TestSnapshotBeforeChange(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	other, err := c.CreateTable(ctx, "d", "other", testSpec())
	require.NoError(t, err)
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	read := func(tx *Tx, index string) (out []string, err error) {
		scan := tx.Scan(ctx, tab, ScanOptions{})
		if index != "" {
			scan = tx.Lookup(ctx, tab, index, []KeyRange{{}}, ScanOptions{})
		}
		for b, err := range scan {
			if err != nil {
				return nil, err
			}
			for i := range b.Rows {
				out = append(out, fmt.Sprint(b.Row(i, nil)))
			}
		}
		return out, nil
	}
	convert := func(row storage.Row) (storage.Row, error) { return append(slices.Clone(row), int32(7)), nil }
	for _, k := range []struct {
		name   string
		change func() error
		reads  bool
		index  string
	}{
		{"add a column", func() error {
			spec, columns := ddlWiden(tab, "a")
			return c.AlterTable(ctx, tab, *spec, columns, nil)
		}, true, ""},
		{"rewrite", func() error {
			spec, columns := ddlWiden(tab, "b")
			return c.AlterTable(ctx, tab, *spec, columns, convert)
		}, false, ""},
		{"index", func() error {
			return c.SetIndexes(ctx, tab, []IndexSpec{{Name: "i", Columns: []KeyColumn{{Column: "v"}}}}, nil)
		}, false, "i"},
		{"truncate", func() error { _, err := c.TruncateTable(ctx, tab); return err }, false, ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			inTx(t, c, func(tx *Tx) {
				row := make(storage.Row, len(tab.Spec().Schema.Fields))
				row[0], row[1], row[2] = int32(1), "x", int64(1)
				require.NoError(t, tx.Insert(ctx, tab, row))
			})
			old, err := c.Begin(ctx)
			require.NoError(t, err)
			_, _, err = old.Get(ctx, other, storage.Row{int32(1)})
			require.NoError(t, err)
			fixed, err := c.Begin(ctx)
			require.NoError(t, err)
			fixed.KeepSnapshot()
			unused, err := c.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, k.change())
			for _, tx := range []*Tx{old, fixed} {
				rows, err := read(tx, k.index)
				_, _, gerr := tx.Get(ctx, tab, storage.Row{int32(1)})
				if k.reads {
					require.NoError(t, err)
					require.NoError(t, gerr)
					require.Len(t, rows, 1)
				} else {
					require.ErrorIs(t, err, ErrChanged)
					require.ErrorIs(t, gerr, ErrChanged)
				}
			}
			want, err := read(unused, k.index)
			require.NoError(t, err)
			got := map[bool]string{true: "[]", false: scanAll(t, c, tab)}[len(want) == 0]
			require.Equal(t, got, fmt.Sprint(strings.Join(want, " ")+map[bool]string{true: "[]"}[len(want) == 0]))
			unused.Rollback()
			fixed.Rollback()
			row := make(storage.Row, len(tab.Spec().Schema.Fields))
			row[0], row[1], row[2] = int32(2), "y", int64(2)
			require.NoError(t, old.Insert(ctx, tab, row))
			_, found, err := old.GetLock(ctx, tab, storage.Row{int32(1)}, ScanOptions{Lock: LockShared})
			require.NoError(t, err)
			require.Equal(t, len(want) > 0, found)
			require.NoError(t, old.Commit(ctx))
			require.Contains(t, scanAll(t, c, tab), "[2 y 2")
			inTx(t, c, func(tx *Tx) {
				var rows []storage.Row
				for b, err := range tx.Scan(ctx, tab, ScanOptions{}) {
					require.NoError(t, err)
					for i := range b.Rows {
						rows = append(rows, b.Row(i, nil))
					}
				}
				for _, r := range rows {
					require.NoError(t, tx.Delete(ctx, tab, r))
				}
			})
		})
	}
	require.NoError(t, c.Close(ctx))
	require.Zero(t, c.pins.count())
}

// A transaction waits for a change that is under way as long as it is told, and says that it waits.
func TestTransactionWaitsForChange(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	release, err := lockDefinitions(ctx, []*Table{tab})
	require.NoError(t, err)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	var notes []bool
	wait := WithWait(ctx, time.Millisecond, func(waits bool) { notes = append(notes, waits) })
	require.ErrorIs(t, tx.LockTable(wait, tab, LockNone, LockWaits), ErrLockTimeout)
	require.Equal(t, []bool{true, false}, notes)
	require.False(t, tx.Uses(tab))
	require.EqualValues(t, 1, c.Metrics().TableWaitsTotal.Load())
	require.EqualValues(t, 1, c.Metrics().TableTimeoutsTotal.Load())
	release()
	require.NoError(t, tx.LockTable(wait, tab, LockNone, LockWaits))
	require.True(t, tx.Uses(tab))
	require.Len(t, notes, 2)
	tx.Rollback()
	require.NoError(t, c.Close(ctx))
}
