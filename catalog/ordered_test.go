package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// D2: starts are cut before each operation that lasts, and what was not synced is kept in part, names of files too, in any order: the
// warehouse opens, with all rows.
func TestCrashNames(t *testing.T) {
	ctx := context.Background()
	disk := newCloneFS()
	c := testOpen(t, disk, Options{})
	require.NoError(t, c.CreateDatabase(ctx, "d", nil))
	_, err := c.CreateTable(ctx, "d", "t", testSpec())
	require.NoError(t, err)
	for id := range int32(3) {
		require.NoError(t, ddlInsert("d.t", id).do(ctx, c))
		r := rand.New(rand.NewPCG(uint64(envInt("SEED", 1)), uint64(id)))
		var mu sync.Mutex
		var cuts []*vfs.MemFS
		var what []string
		fs := disk.CrashClone(vfs.CrashCloneCfg{})
		w := &everyWorld{foreign: &foreignInstants{}, fs: errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if durable(op) {
				mu.Lock()
				defer mu.Unlock()
				for range envInt("CUTS", 6) {
					cuts = append(cuts, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 10 + r.IntN(81), RNG: r}))
					what = append(what, fmt.Sprint(op))
				}
			}
			return nil
		}))}
		require.NoError(t, w.open(ctx))
		mu.Lock()
		list := cuts
		mu.Unlock()
		require.Greater(t, len(list), 10)
		require.NoError(t, w.die())
		require.NoError(t, inParallel(len(list), func(i int) error {
			k := &everyWorld{fs: list[i], foreign: &foreignInstants{}}
			if err := k.open(ctx); err != nil {
				return fmt.Errorf("%s: %w", what[i], err)
			}
			defer k.die()
			if got := scanAll(t, k.c, ddlTable(k.c, "d.t")); got != []string{"[0 x 0]", "[0 x 0] [1 x 1]", "[0 x 0] [1 x 1] [2 x 2]"}[id] {
				return fmt.Errorf("%w: %s: %s", errWrong, what[i], got)
			}
			return nil
		}))
	}
	require.NoError(t, c.Close(ctx))
}
