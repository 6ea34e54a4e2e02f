package catalog

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// What a transaction finds of its own writes by key and by index is what a search of all of them gives, also after parts were undone
// and in the state of an earlier statement; and each lookup looks at few writes besides those that it finds.
func TestOwnWritesByIndex(t *testing.T) {
	c, tab := lockWorld(t)
	ctx := context.Background()
	for seed := range uint64(envInt("OWN_SEEDS", 3)) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		tx := lockBegin(t, c, RepeatableRead)
		have := map[int32]int64{}
		type state struct {
			mark Mark
			rows map[int32]int64
		}
		var states []state
		for range 1500 {
			switch k := rnd.Int32N(400); rnd.IntN(12) {
			default:
				v := int64(rnd.IntN(50))
				if old, ok := have[k]; ok {
					require.NoError(t, tx.Update(ctx, tab, row(k, fmt.Sprint(k), old), row(k, fmt.Sprint(k), v)))
				} else {
					require.NoError(t, tx.Insert(ctx, tab, row(k, fmt.Sprint(k), v)))
				}
				have[k] = v
			case 0, 1:
				if old, ok := have[k]; ok {
					require.NoError(t, tx.Delete(ctx, tab, row(k, fmt.Sprint(k), old)))
					delete(have, k)
				}
			case 2:
				if n := len(states) - 1; n >= 0 && rnd.IntN(4) == 0 {
					require.NoError(t, tx.RollbackTo(states[n].mark))
					have, states = states[n].rows, states[:n]
					break
				}
				copied := map[int32]int64{}
				for k, v := range have {
					copied[k] = v
				}
				states = append(states, state{tx.Mark(), copied})
			}
			if rnd.IntN(3) > 0 {
				continue
			}
			low, span := int64(rnd.IntN(50)), int64(rnd.IntN(10))
			o, rows := ScanOptions{}, have
			if len(states) > 0 && rnd.IntN(2) == 0 {
				s := states[rnd.IntN(len(states))]
				o.UseMark, o.Mark, rows = true, s.mark, s.rows
			}
			name, want := "by_v", []int32{}
			r := KeyRange{Low: storage.Row{low}, High: storage.Row{low + span}}
			if rnd.IntN(2) == 0 {
				name, low, span = "", 8*low, 8*span
				r = KeyRange{Low: storage.Row{int32(low)}, High: storage.Row{int32(low + span)}}
			}
			for k, v := range rows {
				if n := map[string]int64{"": int64(k), "by_v": v}[name]; n >= low && n <= low+span {
					want = append(want, k)
				}
			}
			got := []int32{}
			for b, err := range tx.Lookup(ctx, tab, name, []KeyRange{r}, o) {
				require.NoError(t, err)
				for i := range b.Rows { // a lookup may give others, too
					k, v := b.Value(0, i).(int32), b.Value(2, i).(int64)
					require.Equal(t, rows[k], v)
					if n := map[string]int64{"": int64(k), "by_v": v}[name]; n >= low && n <= low+span {
						got = append(got, k)
					}
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			require.Equal(t, want, got, "seed %d: %s %d +%d %v", seed, name, low, span, o.UseMark)
		}
		tx.Rollback()
		require.Zero(t, c.txBytes.Load())
	}
}

// Looking up every own row by an index, one by one and with a write after each, costs about the same for each.
func TestOwnWritesLookedUpOneByOne(t *testing.T) {
	c, tab := lockWorld(t)
	ctx := context.Background()
	tx := lockBegin(t, c, RepeatableRead)
	defer tx.Rollback()
	n := int32(envInt("OWN_ROWS", 5000))
	for k := range n {
		require.NoError(t, tx.Insert(ctx, tab, row(k, fmt.Sprint(k), int64(k))))
	}
	x := &tab.def.Load().indexes[1]
	require.Equal(t, "by_v", x.spec.Name)
	for k := range n {
		require.NoError(t, tx.Update(ctx, tab, row(k, fmt.Sprint(k), int64(k)), row(k, fmt.Sprint(k), int64(k+n))))
		b, err := index.RangeBounds(x.cols, storage.Row{int64(k + n)}, storage.Row{int64(k + n)}, false, false)
		require.NoError(t, err)
		tt := tx.tabs[tab.id]
		found := 0
		require.NoError(t, tx.ownWithin(tt, x, b, func([]byte) bool { found++; return true }))
		require.Equal(t, 1, found)
		o := tt.ordered[int64(x.no)]
		require.Less(t, len(o.tail), ownTail, "writes that every lookup reads")
		require.LessOrEqual(t, len(o.runs), bits.Len32(uint32(2*n)), "runs that every lookup searches")
	}
}
