package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

func init() {
	reserveAhead = 5 * time.Millisecond // crash tests do not wait for the wall clock after each start
}

// A time that was shown, without any commit, stays before every later commit: also if the machine dies right then and its clock
// goes back by hours. What was read as of it is read again.
func TestClockCrash(t *testing.T) {
	ctx := context.Background()
	for _, back := range []time.Duration{0, time.Second, 5 * time.Hour} {
		t.Run(back.String(), func(t *testing.T) {
			var skew time.Duration
			o := Options{Now: func() time.Time { return time.Now().Add(skew) }}
			fs := vfs.NewCrashableMem()
			c := testOpen(t, fs, o)
			tab := newTable(t, c, "t", nil)
			insertRows(t, c, tab, 0, 1)
			var shown time.Time
			for range 50 { // over several reservations
				shown = c.Clock().Now()
				time.Sleep(time.Millisecond / 2)
			}
			read := func(c *Catalog) string {
				tab, _ := c.Table("d", "t")
				s, err := c.AsOf(ctx, AsOf{Time: shown})
				require.NoError(t, err)
				defer s.Close()
				return dump(t, s.Scan(ctx, tab, ScanOptions{}))
			}
			before := read(c)
			clone := fs.CrashClone(vfs.CrashCloneCfg{})
			require.NoError(t, c.Close(ctx))
			skew = -back
			c = testOpen(t, clone, o)
			tab, _ = c.Table("d", "t")
			insertRows(t, c, tab, 1, 2)
			require.Greater(t, tab.Updated(), shown)
			require.Less(t, tab.Updated().Sub(shown), time.Minute, "the clock is not carried far ahead")
			require.Equal(t, before, read(c))
			require.Equal(t, "[0 n0 0] [1 n1 1]", scanAll(t, c, tab))
			skew = 0
			require.NoError(t, c.Close(ctx))
		})
	}
}

// Files of other engines carry the machine's time, which means nothing if the warehouse's clock shows another one: their rows are seen from
// their adoption on, and every time that was shown before keeps what it showed.
func TestClockAdoption(t *testing.T) {
	ctx := context.Background()
	hours := []int{0, 3, -4, 0, 5, 1, -1, 0, 2}
	for _, mor := range []bool{false, true} {
		t.Run(fmt.Sprint("mor=", mor), func(t *testing.T) {
			var skew time.Duration
			c := testOpen(t, vfs.NewMem(), Options{Now: func() time.Time { return time.Now().Add(skew) }})
			tab := newTable(t, c, "t", func(s *TableSpec) { s.MergeOnRead = mor })
			insertRows(t, c, tab, 0, 3)
			flushAll(t, c)
			w := &otherWriter{t, c, tab}
			type state struct {
				at   time.Time
				rows string
			}
			var past []state
			rows := scanAll(t, c, tab)
			remember := func() { past = append(past, state{c.Clock().Now(), rows}) }
			remember()
			for n, h := range hours {
				skew = time.Duration(h) * time.Hour
				remember()
				if ahead := c.Clock().Now().Sub(time.Now().Add(skew)); ahead > time.Second {
					insertRows(t, c, tab, int32(10+n), int32(11+n)) // another engine's instant would be hours away
					rows = scanAll(t, c, tab)
				} else {
					w.write(map[string]storage.Row{fmt.Sprint(n % 3): {int32(n % 3), "theirs", int64(100 + n)}}, nil)
					if h != 0 {
						remember() // nobody has looked yet
					}
					require.NoError(t, tab.adopt(ctx))
					rows = scanAll(t, c, tab)
				}
				remember()
			}
			for i, p := range past {
				s, err := c.AsOf(ctx, AsOf{Time: p.at})
				require.NoError(t, err)
				require.Equal(t, p.rows, dump(t, s.Scan(ctx, tab, ScanOptions{})), "time %d", i)
				s.Close()
			}
			skew += c.Clock().Now().Sub(time.Now().Add(skew))
			require.NoError(t, c.Close(ctx))
		})
	}
}

// A start whose wall clock is far behind what it has to undo does not wait for it.
func TestStartWithClockBehind(t *testing.T) {
	ctx := context.Background()
	fs := newCloneFS()
	var begun atomic.Pointer[vfs.MemFS]
	c := testOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
		files, _ := fs.List("data/warehouse/d/t/.hoodie")
		if begun.Load() == nil && slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, ".inflight") }) {
			begun.Store(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}))
		}
		return nil
	})), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	tab, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	inTx(t, c, func(tx *Tx) { require.NoError(t, tx.Insert(ctx, tab, row(1, "a", 1))) })
	require.NoError(t, c.Flush(ctx, "test"))
	require.NoError(t, c.Close(ctx))
	clone := begun.Load()
	require.NotNil(t, clone)

	var behind atomic.Int64
	behind.Store(int64(3 * time.Hour))
	o := Options{FS: clone, Now: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		c, err = Open(limited, "data", o)
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-limited.Done():
		t.Fatal("the start waits for the clock")
	}
	tab, _ = c.Table("d", "t")
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	require.ErrorIs(t, c.Flush(ctx, "test"), ErrReadOnly)
	behind.Store(0)
	require.NoError(t, c.Flush(ctx, "test"))
	require.Equal(t, "[1 a 1]", scanAll(t, c, tab))
	require.NoError(t, c.Close(ctx))
}
