package catalog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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
