package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// faultFS has one operation fail while it is armed.
type faultFS struct {
	mu    sync.Mutex
	armed bool
	at    int // number of the operation
	ops   int
	what  string // the operation that failed
}

func (f *faultFS) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.armed || fatal(op) {
			return nil
		}
		if f.ops++; f.ops != f.at {
			return nil
		}
		f.what = fmt.Sprintf("%v %s", op.Kind, op.Path)
		return errorfs.ErrInjected
	}))
}

// during arms the failure while do runs.
func (f *faultFS) during(do func() error) error {
	f.arm(true)
	defer f.arm(false)
	return do()
}

func (f *faultFS) arm(on bool) {
	f.mu.Lock()
	f.armed = on
	f.mu.Unlock()
}

// everyFault is one failure: in a step, or, with read set, in reading everything before it.
type everyFault struct {
	disk    *vfs.MemFS // before the step; shared
	states  []string
	steps   []everyStep
	foreign *foreignInstants
	step    int
	read    bool
	at      int
	seed    uint64
}

func (k *everyFault) name() string {
	if k.read {
		return "reading before " + k.steps[k.step].name
	}
	return k.steps[k.step].name
}

// starts tells whether the step opens the warehouse.
func (k *everyFault) starts() bool {
	return !k.read && strings.Contains(k.name(), "stop")
}

// open opens a warehouse on a copy of the disk.
func (k *everyFault) open(ctx context.Context, f *faultFS) (*everyWorld, *vfs.MemFS, error) {
	disk := cloneOf(k.disk, k.seed)
	w := &everyWorld{foreign: k.foreign, fs: f.wrap(disk)}
	return w, disk, w.open(ctx)
}

// do runs what the failure is to meet.
func (k *everyFault) do(ctx context.Context, w *everyWorld) error {
	if !k.read {
		return k.steps[k.step].do(ctx, w)
	}
	state, err := everyState(w.c)
	if err == nil && state != k.states[k.step] {
		return fmt.Errorf("%w:\n%s\nwant\n%s", errWrong, state, k.states[k.step])
	}
	return err
}

// count gives the number of operations that may fail.
func (k *everyFault) count(ctx context.Context) (int, error) {
	f := &faultFS{}
	w, _, err := k.open(ctx, f)
	if err != nil {
		return 0, err
	}
	err = f.during(func() error { return k.do(ctx, w) })
	return f.ops, firstError(err, w.die())
}

// isRepeated tells a finding about what the next flush, change or start does anew.
func isRepeated(p Problem) bool {
	return strings.Contains(p.Text, "cannot be flushed since") || strings.Contains(p.Text, "was begun and not ended") ||
		strings.Contains(p.Text, "markers of an instant that is over") || strings.Contains(p.Text, "files of a large statement that nobody ended") || strings.Contains(p.Text, "is not what the table was defined with")
}

// check has the operation fail.
func (k *everyFault) check(ctx context.Context) (err error) {
	f := &faultFS{at: k.at}
	defer func() {
		if err != nil {
			err = fmt.Errorf("operation %d (%s) in %s: %w", k.at, f.what, k.name(), err)
		}
	}()
	w, disk, err := k.open(ctx, f)
	if err != nil {
		return err
	}
	failed := f.during(func() error { return k.do(ctx, w) })
	if os.Getenv("LAKESQL_TEST_LOG") != "" {
		fmt.Printf("operation %d (%s) in %s: %v\n", k.at, f.what, k.name(), failed)
	}
	if errors.Is(failed, errWrong) {
		return failed
	}
	r := rand.New(rand.NewPCG(k.seed, uint64(k.at)))
	again := failed != nil && (k.starts() || errors.Is(failed, ErrStopped))
	if again { // the next start has to do it
		w = &everyWorld{foreign: w.foreign, fs: cloneOf(disk, k.seed)}
		if err := w.open(ctx); err != nil {
			return fmt.Errorf("start after %w: %w", failed, err)
		}
	}
	if failed != nil && strings.HasPrefix(k.name(), "foreign") {
		if err := w.c.adoptAll(ctx, w.c.tablesByID()); err != nil {
			return err
		}
	}
	at := k.step
	state, err := everyState(w.c)
	if err != nil {
		return fmt.Errorf("after %v: %w", failed, err)
	}
	if !k.read && (failed == nil || state != k.states[at]) {
		at++
	}
	if state != k.states[at] {
		return fmt.Errorf("after %v: %w:\n%s\nwant\n%s\nor\n%s", failed, errWrong, state, k.states[k.step], k.states[at])
	}
	if err := w.check(ctx, isRepeated); err != nil {
		return fmt.Errorf("after %v: %w", failed, err)
	}
	// It is run again, or the workload goes on.
	for range 1 + r.IntN(2) {
		if at < len(k.steps) {
			err := k.steps[at].do(ctx, w)
			if failed != nil && at == k.step && errors.Is(err, ErrChanged) {
				err = nil // what failed was decided, and ended now
			}
			if err != nil {
				return fmt.Errorf("after %v, then %s: %w", failed, k.steps[at].name, err)
			}
			at++
		}
	}
	stop := r.IntN(2) == 0
	if stop {
		err = w.c.Close(ctx)
	} else {
		err = w.die()
	}
	if err != nil {
		return fmt.Errorf("after %v, stop: %w", failed, err)
	}
	if err := w.open(ctx); err != nil {
		return fmt.Errorf("after %v, next start: %w", failed, err)
	}
	state, err = everyState(w.c)
	if err == nil && state != k.states[at] {
		err = fmt.Errorf("%w:\n%s\nwant\n%s", errWrong, state, k.states[at])
	}
	if err = firstError(err, w.sound(ctx)); err == nil && stop {
		err = w.everyCold(ctx)
	}
	if err = firstError(err, w.die()); err != nil {
		return fmt.Errorf("after %v and the next start: %w", failed, err)
	}
	return nil
}

// D2, D8, D13: each operation on files, reads too, fails in turn under a workload of everything that writes, and under reads of everything.
// Who meets the failure gets an error or is right. Then the warehouse shows the state before the statement or after it, without a start
// unless it says that it is stopped; the statement can be run again, the workload goes on, and the next start finds all of it and nothing else.
func TestFaultEvery(t *testing.T) {
	ctx := context.Background()
	steps := everySteps()
	states := everyStates(t, steps)
	stride := envInt("STEP", 400) // every operation with STEP=1
	only := os.Getenv("ONLY")     // steps with this in their names
	disk := newCloneFS()
	w := &everyWorld{fs: disk, foreign: &foreignInstants{}}
	require.NoError(t, w.open(ctx))
	all, checked, next := 0, 0, stride
	var wrong []error
	for i, s := range steps {
		if strings.Contains(s.name, only) {
			for _, read := range []bool{true, false} {
				k := everyFault{disk: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), foreign: w.foreign, states: states, steps: steps, step: i, read: read, seed: uint64(envInt("SEED", 1))}
				n, err := k.count(ctx)
				require.NoError(t, err, k.name())
				var list []everyFault
				for ; next <= all+n; next += stride {
					k.at = next - all
					list = append(list, k)
				}
				all += n
				checked += len(list)
				errs := make([]error, len(list))
				_ = inParallel(len(list), func(i int) error {
					errs[i] = list[i].check(ctx)
					return nil
				})
				for _, err := range errs {
					if err != nil {
						wrong = append(wrong, err)
					}
				}
				require.Less(t, len(wrong), 20, "%v", errors.Join(wrong...))
			}
		}
		require.NoError(t, s.do(ctx, w), s.name)
	}
	require.NoError(t, w.c.Close(ctx))
	require.NoError(t, errors.Join(wrong...))
	t.Logf("%d operations, %d failed in turn", all, checked)
}
