package catalog

import (
	"context"
	"fmt"
	"slices"
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
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		n := rows.Load()
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
