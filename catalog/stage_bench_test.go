package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// lineItems is a table like TPC-H's, and batches of its rows, as a load gives them.
func lineItems() (TableSpec, func(from, n int) storage.Batch) {
	dec := storage.Type{Kind: storage.Decimal, Precision: 15, Scale: 2}
	text, date := storage.Type{Kind: storage.String}, storage.Type{Kind: storage.Date}
	var fields []storage.Field
	for _, f := range []struct {
		name string
		t    storage.Type
	}{
		{"l_orderkey", storage.Type{Kind: storage.Int64}},
		{"l_partkey", storage.Type{Kind: storage.Int64}},
		{"l_suppkey", storage.Type{Kind: storage.Int64}},
		{"l_linenumber", storage.Type{Kind: storage.Int32}},
		{"l_quantity", dec},
		{"l_extendedprice", dec},
		{"l_discount", dec},
		{"l_tax", dec},
		{"l_returnflag", text},
		{"l_linestatus", text},
		{"l_shipdate", date},
		{"l_commitdate", date},
		{"l_receiptdate", date},
		{"l_shipinstruct", text},
		{"l_shipmode", text},
		{"l_comment", text},
	} {
		fields = append(fields, storage.Field{Name: f.name, Type: f.t, Nullable: true})
	}
	spec := TableSpec{Schema: &storage.Schema{Fields: fields}, Key: []KeyColumn{{Column: "l_orderkey"}, {Column: "l_linenumber"}}, MergeOnRead: true}
	words := strings.Fields("furiously slyly express deposits sleep quickly regular accounts haggle carefully final ideas the bold requests among")
	return spec, func(from, n int) storage.Batch {
		b := storage.NewBuilder(spec.Schema)
		for i := from; i < from+n; i++ {
			h := uint64(i) * 0x9e3779b97f4a7c15
			pick := func(n uint64) int64 { h ^= h >> 29; h *= 0xbf58476d1ce4e5b9; return int64(h >> 16 % n) }
			var c strings.Builder
			for k := range 4 {
				if k > 0 {
					c.WriteByte(' ')
				}
				c.WriteString(words[uint64(pick(1<<40))%uint64(len(words))])
			}
			day := int32(8000 + uint64(pick(1<<40))%2500)
			q := int64(uint64(pick(1<<40))%50 + 1)
			row := storage.Row{
				int64(i/4 + 1), int64(uint64(pick(1<<40)) % 200000), int64(uint64(pick(1<<40)) % 10000), int32(i%4 + 1), decimal128.FromI64(q * 100),
				decimal128.FromI64(q * int64(90000+uint64(pick(1<<40))%100000)), decimal128.FromI64(int64(uint64(pick(1<<40)) % 11)), decimal128.FromI64(int64(uint64(pick(1<<40)) % 9)),
				[]string{"A", "N", "R"}[uint64(pick(1<<40))%3], []string{"O", "F"}[i&1], day, day + 30, day + 12,
				[]string{"DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"}[uint64(pick(1<<40))%4],
				[]string{"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"}[uint64(pick(1<<40))%7], c.String(),
			}
			if err := b.Append(row); err != nil {
				panic(err)
			}
		}
		return b.Batch()
	}
}

func folderBytes(dir string) (n int64) {
	_ = filepath.Walk(dir, func(_ string, st os.FileInfo, err error) error {
		if err == nil && !st.IsDir() {
			n += st.Size()
		}
		return nil
	})
	return n
}

// A load of LAKESQL_LOAD rows, to be looked at: memory, time and bytes.
func TestLoadByHand(t *testing.T) {
	rows := envInt("LAKESQL_LOAD", 0)
	if rows == 0 {
		t.Skip("LAKESQL_LOAD gives the number of rows")
	}
	ctx := context.Background()
	dir := t.TempDir()
	c, err := Open(ctx, dir, Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	spec, batch := lineItems()
	tab, err := c.CreateTable(ctx, "d", "lineitem", spec)
	require.NoError(t, err)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	b, err := tx.BulkInsert(ctx, tab, DuplicateFail)
	require.NoError(t, err)
	var peak uint64
	var took time.Duration
	for i := 0; i < rows; i += 8192 {
		one := batch(i, 8192)
		start := time.Now()
		require.NoError(t, b.Append(one))
		took += time.Since(start)
		if i/8192%32 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.Sys-m.HeapReleased)
		}
	}
	start := time.Now()
	_, err = b.Finish()
	require.NoError(t, err)
	finish := time.Since(start)
	start = time.Now()
	require.NoError(t, tx.Commit(ctx))
	t.Logf("%d rows: %v (%.0f rows/s), finish %v, commit %v, peak %d MiB", rows, took, float64(rows)/took.Seconds(), finish, time.Since(start), peak>>20)
	t.Logf("files %d MiB, state %d MiB: %.1f bytes a row", folderBytes(dir+"/warehouse")>>20, folderBytes(dir+"/state")>>20, float64(folderBytes(dir))/float64(rows))
	status, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(l, "VmHWM") {
			t.Log(l)
		}
	}
	require.NoError(t, c.Close(ctx))
	fmt.Println()
}

// An update of LAKESQL_UPDATE rows in one transaction, to be looked at: memory and time.
func TestUpdateByHand(t *testing.T) {
	rows := envInt("LAKESQL_UPDATE", 0)
	if rows == 0 {
		t.Skip("LAKESQL_UPDATE gives the number of rows")
	}
	ctx := context.Background()
	c, err := Open(ctx, t.TempDir(), Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	spec, batch := lineItems()
	tab, err := c.CreateTable(ctx, "d", "lineitem", spec)
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) {
		b, err := tx.BulkInsert(ctx, tab, DuplicateFail)
		require.NoError(t, err)
		for i := 0; i < rows; i += 8192 {
			require.NoError(t, b.Append(batch(i, min(8192, rows-i))))
		}
		_, err = b.Finish()
		require.NoError(t, err)
	})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	mark := tx.Mark()
	start := time.Now()
	for b, err := range tx.Scan(ctx, tab, ScanOptions{Mark: mark, UseMark: true}) {
		require.NoError(t, err)
		for i := range b.Rows {
			old := b.Row(i, nil)
			row := append(storage.Row(nil), old...)
			row[7] = decimal128.FromI64(5)
			require.NoError(t, tx.Update(ctx, tab, old, row))
		}
	}
	took := time.Since(start)
	waits := heap()
	t.Logf("%d rows: %v, %d bytes a row wait for the commit", rows, took, (waits-before)/uint64(rows))
	if path := os.Getenv("LAKESQL_HEAP"); path != "" {
		f, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, pprof.WriteHeapProfile(f))
		require.NoError(t, f.Close())
	}
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(50 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	start = time.Now()
	require.NoError(t, tx.Commit(ctx))
	took = time.Since(start)
	close(done)
	t.Logf("commit %v, heap up to %d MiB", took, <-peak>>20)
	require.NoError(t, c.Close(ctx))
}
