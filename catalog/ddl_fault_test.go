package catalog

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// D8, D13: each operation on the files of the warehouse fails in turn, under a workload of definitions. The statement that met the
// failure gives an error or not, and the warehouse shows the state before it or after it; if it is the one before, the statement is
// run again, and the rest of the workload goes on without a restart. The next start finds the same, and CHECK TABLE finds nothing.
func TestDDLFaults(t *testing.T) {
	ctx := context.Background()
	steps := ddlSteps()
	dry := testOpen(t, vfs.NewMem(), Options{})
	states := []string{""}
	for _, s := range steps {
		require.NoError(t, s.do(ctx, dry), s.name)
		state, err := ddlState(dry)
		require.NoError(t, err, s.name)
		states = append(states, state)
	}
	require.NoError(t, dry.Close(ctx))
	step := envInt("STEP", 37) // every operation with STEP=1
	runs, failed, again := 0, 0, 0
	for n := int64(envInt("FIRST", 0)); ; n += int64(step) {
		runs++
		fs := vfs.NewMem()
		var ops atomic.Int64
		var armed atomic.Bool
		what := "nothing"
		c := testOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() && strings.Contains(op.Path, "warehouse/") && ops.Add(1) == n+1 {
				what = fmt.Sprint(op)
				return errorfs.ErrInjected
			}
			return nil
		})), Options{})
		for i := 0; i < len(steps); i++ {
			s := steps[i]
			armed.Store(true)
			err := s.do(ctx, c)
			armed.Store(false)
			if os.Getenv("LAKESQL_TEST_LOG") != "" && err != nil {
				t.Logf("%d: %s in %s: %v", n, what, s.name, err)
			}
			state, serr := ddlState(c)
			require.NoError(t, serr, "operation %d, %s, in %s: %v", n, what, s.name, err)
			if err == nil {
				require.Equal(t, states[i+1], state, "operation %d, %s, in %s", n, what, s.name)
				continue
			}
			failed++
			require.NotErrorIs(t, err, ErrStopped, "operation %d, %s, in %s", n, what, s.name)
			if state != states[i+1] || states[i] == states[i+1] {
				require.Equal(t, states[i], state, "operation %d, %s, in %s: %v", n, what, s.name, err)
				again++
				i--
				require.Less(t, again, runs*3, "operation %d, %s, in %s: %v", n, what, s.name, err)
			}
		}
		for _, db := range c.Databases() {
			for _, name := range c.TableNames(db) {
				tab, _ := c.Table(db, name)
				for p, err := range c.Check(ctx, tab, CheckExtended, nil) {
					require.NoError(t, err, "operation %d, %s", n, what)
					t.Fatalf("operation %d, %s: %s: %v", n, what, tab, p)
				}
			}
		}
		require.NoError(t, c.Close(ctx), "operation %d, %s", n, what)
		c, err := Open(ctx, "data", Options{FS: fs})
		require.NoError(t, err, "operation %d, %s", n, what)
		state, err := ddlState(c)
		require.NoError(t, err, "operation %d, %s", n, what)
		require.Equal(t, states[len(steps)], state, "operation %d, %s", n, what)
		require.NoError(t, c.Close(ctx))
		if ops.Load() <= n {
			break
		}
	}
	t.Logf("%d runs, %d statements failed, %d were run again", runs, failed, again)
}
