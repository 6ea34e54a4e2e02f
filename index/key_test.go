package index

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// checkOrder compares the order of two keys of one column and of keys with a second column behind it with the order of the values.
func checkOrder(t *testing.T, c Column, a, b any, want int) {
	t.Helper()
	enc := func(v any, then any) []byte {
		k, err := c.Append(nil, v)
		require.NoError(t, err)
		k, err = (&Column{Kind: storage.String}).Append(k, then)
		require.NoError(t, err)
		return k
	}
	require.Equal(t, want, bytes.Compare(enc(a, "x"), enc(b, "x")), "%v and %v", a, b)
	if want != 0 {
		require.Equal(t, want, bytes.Compare(enc(a, "z\xff"), enc(b, "")), "%v and %v", a, b)
		require.Equal(t, want, bytes.Compare(enc(a, nil), enc(b, "z")), "%v and %v", a, b)
		require.False(t, bytes.HasPrefix(enc(a, "x"), enc(b, "x")))
	}
}

func FuzzKey(f *testing.F) {
	f.Add(int64(1), int64(-1), 1.5, math.Copysign(0, -1), "a", "a\x00", []byte{0}, []byte{0, 255})
	f.Add(int64(math.MinInt64), int64(255), math.Inf(1), math.Inf(-1), "", "\x00\x01", []byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, i, j int64, x, y float64, s, u string, p, q []byte) {
		checkOrder(t, Column{Kind: storage.Int64}, i, j, cmp.Compare(i, j))
		checkOrder(t, Column{Kind: storage.Int32}, int32(i), int32(j), cmp.Compare(int32(i), int32(j)))
		if !math.IsNaN(x) && !math.IsNaN(y) {
			checkOrder(t, Column{Kind: storage.Float64}, x, y, cmp.Compare(x, y))
			checkOrder(t, Column{Kind: storage.Float32}, float32(x), float32(y), cmp.Compare(float32(x), float32(y)))
		}
		checkOrder(t, Column{Kind: storage.String}, s, u, strings.Compare(s, u))
		checkOrder(t, Column{Kind: storage.Bytes}, p, q, bytes.Compare(p, q))
		fold := Column{Kind: storage.String, Sort: func(s string) []byte { return []byte(strings.ToLower(s)) }}
		checkOrder(t, fold, s, u, strings.Compare(strings.ToLower(s), strings.ToLower(u)))
		d, e := decimal128.New(i, uint64(j)), decimal128.New(j, uint64(i))
		checkOrder(t, Column{Kind: storage.Decimal}, d, e, d.Cmp(e))
		checkOrder(t, Column{Kind: storage.Int64}, nil, i, -1)
	})
}

// A prefix of a text counts in characters, of bytes in bytes.
func TestPrefix(t *testing.T) {
	checkOrder(t, Column{Kind: storage.String, Prefix: 2}, "üöa", "üöb", 0)
	checkOrder(t, Column{Kind: storage.String, Prefix: 3}, "üöa", "üöb", -1)
	checkOrder(t, Column{Kind: storage.Bytes, Prefix: 2}, []byte("abc"), []byte("abd"), 0)
}

// What is written is found again: recent entries up to a sequence, within closed and open bounds, locations, hints, deleted records.
func TestRecordIndex(t *testing.T) {
	db, err := pebble.Open("x", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	require.NoError(t, err)
	defer db.Close()
	x := New(db)
	b := db.NewBatch()
	cols := []Column{{Kind: storage.Int32}}
	key := func(i int32) []byte {
		k, err := AppendKey(nil, cols, storage.Row{i})
		require.NoError(t, err)
		return k
	}
	const seq = Seq(1_800_000_000_000_000) // as times are
	for i := range int32(10) {
		require.NoError(t, x.PutRecent(b, 7, key(i), Recent{Seq: seq, Ord: uint32(i)}))
		require.NoError(t, x.PutRecent(b, 7, key(i), Recent{Seq: seq + 5, Ord: uint32(i), Delete: i%2 == 0}))
		no, err := x.GroupNumber(b, 7, "p=1", storage.FileID("f"))
		require.NoError(t, err)
		require.NoError(t, x.PutLocation(b, 7, key(i), Location{Seq: seq, Group: no, Instant: "20260101000000000", Row: int64(i), Key: "k"}))
		require.NoError(t, x.PutSecondary(b, 7, 3, key(i%3), key(i)))
		require.NoError(t, x.PutRecent(b, 8, key(i), Recent{Seq: seq}))
	}
	require.NoError(t, x.PutDead(b, 7, "p", "k", Dead{Group: 5, Instant: "20260101000000000"}))
	require.NoError(t, b.Commit(pebble.NoSync))
	r, ok, err := x.LastRecent(db, 7, key(3), seq+4)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Recent{Seq: seq, Ord: 3}, r)
	r, ok, err = x.LastRecent(db, 7, key(4), seq+5)
	require.NoError(t, err)
	require.True(t, ok && r.Delete)
	_, ok, err = x.LastRecent(db, 7, key(4), seq-1)
	require.NoError(t, err)
	require.False(t, ok)
	count := func(low, high storage.Row, lowOpen, highOpen bool) (n int) {
		bounds, err := RangeBounds(cols, low, high, lowOpen, highOpen)
		require.NoError(t, err)
		it, err := x.Recents(db, 7, bounds)
		require.NoError(t, err)
		for ; it.Valid(); it.Next() {
			n++
		}
		require.NoError(t, it.Close())
		return n
	}
	require.Equal(t, 2, count(storage.Row{int32(4)}, storage.Row{int32(4)}, false, false))
	require.Equal(t, 8, count(storage.Row{int32(2)}, storage.Row{int32(5)}, false, false))
	require.Equal(t, 6, count(storage.Row{int32(2)}, storage.Row{int32(5)}, false, true))
	require.Equal(t, 20, count(nil, nil, false, false))
	l, ok, err := x.Locate(db, 7, key(9))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Location{Seq: seq, Instant: "20260101000000000", Row: 9, Key: "k"}, l)
	part, id, err := New(db).Group(7, l.Group)
	require.NoError(t, err)
	require.Equal(t, "p=1 f", part+" "+string(id))
	bounds, err := RangeBounds(cols, storage.Row{int32(1)}, storage.Row{int32(1)}, false, false)
	require.NoError(t, err)
	var hints [][]byte
	require.NoError(t, x.Secondary(db, 7, 3, bounds, func(k []byte) bool { hints = append(hints, append([]byte(nil), k...)); return true }))
	require.Equal(t, [][]byte{key(1), key(4), key(7)}, hints)
	d, ok, err := x.FindDead(db, 7, "p", "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 5, d.Group)
	b = db.NewBatch()
	require.NoError(t, x.DropTable(b, 7))
	require.NoError(t, b.Commit(pebble.NoSync))
	require.Equal(t, 0, count(nil, nil, false, false))
	_, ok, err = x.FindDead(db, 7, "p", "k")
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = x.LastRecent(db, 8, key(1), ^Seq(0))
	require.NoError(t, err)
	require.True(t, ok)
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { panic("pebble ends") }
