package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// D9: what scans keep of the hot tier is never more than a way to the same rows: every time is read right, whatever was read before.
func TestRuns(t *testing.T) {
	ctx := context.Background()
	c := testOpen(t, vfs.NewMem(), Options{})
	require.NoError(t, c.CreateDatabase(ctx, "shop", nil))
	spec := testSpec()
	spec.Key = []KeyColumn{{Column: "name"}}
	tab, err := c.CreateTable(ctx, "shop", "orders", spec)
	require.NoError(t, err)

	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]storage.Row{}
	text := func() string {
		var out []string
		for _, row := range model {
			out = append(out, fmt.Sprint([]any(row)))
		}
		sort.Strings(out)
		return strings.Join(out, " ")
	}
	type past struct {
		at   time.Time
		want string
	}
	var times []past
	asOf := func(p past) {
		snap, err := c.AsOf(ctx, AsOf{Time: p.at})
		require.NoError(t, err)
		defer snap.Close()
		if got := dump(t, snap.Scan(ctx, tab, ScanOptions{})); got != p.want {
			t.Fatalf("as of %s: %d bytes of rows, want %d", p.at, len(got), len(p.want))
		}
	}
	for i := range 60 {
		rows := 1 + r.IntN(40)
		if i%7 == 0 {
			rows = 6000
		}
		inTx(t, c, func(tx *Tx) {
			for range rows {
				k := fmt.Sprintf("k%05d", r.IntN(20000))
				row := storage.Row{int32(i), k, r.Int64()}
				switch old := model[k]; {
				case old == nil:
					require.NoError(t, tx.Insert(ctx, tab, row))
				case r.IntN(4) == 0:
					require.NoError(t, tx.Delete(ctx, tab, old))
					delete(model, k)
					continue
				default:
					require.NoError(t, tx.Update(ctx, tab, old, row))
				}
				model[k] = row
			}
		})
		times = append(times, past{c.Clock().Now(), text()})
		if i == 40 {
			require.NoError(t, c.Flush(ctx, "test"))
		}
		if i%5 == 0 {
			require.True(t, scanAll(t, c, tab) == text(), "commit %d", i)
		}
		if i%3 == 0 {
			asOf(times[r.IntN(len(times))])
		}
	}
	for i := 0; i < len(times); i += 5 {
		asOf(times[i])
	}
	require.Positive(t, c.runBytes.Load())
	require.NoError(t, c.DropTable(ctx, "shop", "orders"))
	require.Zero(t, c.runBytes.Load())
	require.NoError(t, c.Close(ctx))
}

// A record key that a newer row of the same index key gave up is known to be outdated in the files.
func TestRunsMerge(t *testing.T) {
	d := &tableDef{spec: &TableSpec{}}
	run := func(to index.Seq, pairs ...string) *hotRun {
		out := &hotRun{to: to}
		for i := 0; i < len(pairs); i += 2 {
			p := packetRow{ikey: []byte(pairs[i]), key: pairs[i+1]}
			b := p.append(nil)
			out.rows = append(out.rows, hotRow{ikey: pairs[i], packet: b, seq: to})
		}
		out.settle(d)
		return out
	}
	a, b := run(1, "b", "B", "a", "A", "a", "a"), run(2, "a", "Á", "c", "C")
	require.Equal(t, []string{"A"}, a.moved)
	m := mergeRuns(d, a, b)
	require.Equal(t, index.Seq(2), m.to)
	var keys []string
	eachRow([]*hotRun{a, b}, func(r *hotRow) bool {
		p := r.decoded()
		keys = append(keys, p.key)
		return true
	})
	require.Equal(t, []string{"Á", "B", "C"}, keys)
	for _, runs := range [][]*hotRun{{a, b}, {m}} {
		require.Equal(t, map[string]bool{"A": true, "a": true, "Á": true, "B": true, "C": true}, runKeys(d, runs))
	}
}
