package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// durable tells whether an operation may change what a crash leaves.
func durable(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpRename, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll,
		errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpMkdirAll:
		return true
	}
	return false
}

// everyCut is the disk of a machine that died.
type everyCut struct {
	fs   *vfs.MemFS
	done int // steps that were acknowledged
	seed uint64
	what string
}

// everyStates runs the workload once: the state before each step, and after the last one.
func everyStates(t *testing.T, steps []everyStep) []string {
	ctx := context.Background()
	w := &everyWorld{fs: vfs.NewMem(), foreign: &foreignInstants{}}
	require.NoError(t, w.open(ctx))
	states := []string{""}
	for _, s := range steps {
		require.NoError(t, s.do(ctx, w), s.name)
		state, err := everyState(w.c)
		require.NoError(t, err, s.name)
		states = append(states, state)
	}
	require.NoError(t, w.c.Close(ctx))
	return states
}

// inParallel calls f with each number below n, on all processors, and gives the first error.
func inParallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	work := make(chan int)
	errs := make([]error, n)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range work {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return firstError(errs...)
}

// D2, D3, D8, D13: a workload of everything that writes is cut before each operation after which a crash may leave something else. Each
// time the warehouse opens and shows the state before the statement that was under way or after it, in all tables; nothing is left
// behind, CHECK TABLE finds nothing, what was decided by the start lasts, and the rest of the workload goes on from there.
func TestCrashEvery(t *testing.T) {
	ctx := context.Background()
	smallMemory(t) // large statements spill, too
	steps := everySteps()
	states := everyStates(t, steps)
	require.Contains(t, states[len(states)-1], "cow(id name v w): 1/p1/1024/24 ")
	stride := envInt("STEP", 100) // every operation with STEP=1
	only := os.Getenv("ONLY")     // in steps with this in their names
	fs := newCloneFS()
	foreign := &foreignInstants{}
	var mu sync.Mutex
	var cuts []everyCut
	done, ops, checked := 0, 0, 0
	r := rand.New(rand.NewPCG(uint64(envInt("SEED", 1)), 5))
	w := &everyWorld{foreign: foreign, fs: errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !durable(op) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if ops++; ops%stride != 0 || !strings.Contains(steps[min(done, len(steps)-1)].name, only) {
			return nil
		}
		for _, rate := range []int{0, 20 + r.IntN(81)} {
			cuts = append(cuts, everyCut{
				fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rate, RNG: r}), done, r.Uint64(), fmt.Sprintf("operation %d (%v %s), %d%% of what is not synced kept", ops, op.Kind, op.Path, rate),
			})
		}
		return nil
	}))}
	require.NoError(t, w.open(ctx))
	for i, s := range steps {
		require.NoError(t, s.do(ctx, w), s.name)
		mu.Lock()
		done = i + 1
		list := cuts
		cuts = nil
		mu.Unlock()
		require.NoError(t, inParallel(len(list), func(i int) error {
			k := list[i]
			name := "after the last step"
			if k.done < len(steps) {
				name = "in " + steps[k.done].name
			}
			if err := k.check(ctx, steps, states, foreign); err != nil {
				return fmt.Errorf("%s, %s: %w", k.what, name, err)
			}
			return nil
		}))
		checked += len(list)
		state, err := everyState(w.c)
		require.NoError(t, err)
		require.Equal(t, states[i+1], state, s.name)
		require.NoError(t, w.sound(ctx), s.name)
	}
	require.NoError(t, w.c.Close(ctx))
	t.Logf("%d operations, %d cuts", ops, checked)
}

// clone copies a disk as it is.
func cloneOf(fs *vfs.MemFS, seed uint64) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 1))})
}

// check opens the warehouse on the disk, in whole, cut again, and with an operation that fails.
func (k everyCut) check(ctx context.Context, steps []everyStep, states []string, foreign *foreignInstants) error {
	r := rand.New(rand.NewPCG(k.seed, 6))
	disk := cloneOf(k.fs, k.seed)
	w := &everyWorld{fs: k.fs, foreign: foreign}
	var mu sync.Mutex
	ops := 0
	w.fs = errorfs.Wrap(k.fs, errorfs.InjectorFunc(func(errorfs.Op) error {
		mu.Lock()
		ops++
		mu.Unlock()
		return nil
	}))
	if err := w.open(ctx); err != nil {
		return err
	}
	mu.Lock()
	opening := ops
	mu.Unlock()
	got, err := everyState(w.c)
	if err != nil {
		return err
	}
	at := k.done
	if got != states[at] {
		if at++; at == len(states) || states[at] != got {
			return fmt.Errorf("%w:\n%s\nwant\n%s\nor\n%s", errWrong, got, states[k.done], states[min(at, len(states)-1)])
		}
	}
	if err := w.sound(ctx); err != nil {
		return err
	}
	same := func(what string, fs vfs.FS) error {
		o := &everyWorld{fs: fs, foreign: foreign}
		if err := o.open(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		state, err := everyState(o.c)
		switch {
		case err != nil:
		case state != got && (what == "a second start" || state != states[k.done] && state != states[min(k.done+1, len(states)-1)]):
			err = fmt.Errorf("%w:\n%s\nwant\n%s", errWrong, state, got)
		default:
			err = o.everyLeft(ctx)
		}
		if err = errors.Join(err, o.die()); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if err := same("a second start", k.fs.CrashClone(vfs.CrashCloneCfg{})); err != nil {
		return err
	}
	// The start is cut, or fails at some operation, and the next one does what it did not.
	n, cut, left := r.IntN(opening), r.IntN(2) == 0, (*vfs.MemFS)(nil)
	o := &everyWorld{foreign: foreign, fs: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if n--; n != 0 {
			return nil
		}
		if cut || fatal(op) {
			left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * r.IntN(3), RNG: r})
			return nil
		}
		return errorfs.ErrInjected
	}))}
	if err := o.open(ctx); err == nil {
		if err := o.die(); err != nil {
			return fmt.Errorf("end of another start: %w", err)
		}
	} else if !errors.Is(err, errorfs.ErrInjected) {
		return fmt.Errorf("a start with a failure: %w", err)
	}
	if left == nil {
		left = disk.CrashClone(vfs.CrashCloneCfg{})
	}
	if err := same("a start after one that was cut or failed", left); err != nil {
		return err
	}
	// The next statements work, and a stop leaves in the files what was shown.
	for range 2 {
		if at < len(steps) {
			if err := steps[at].do(ctx, w); err != nil {
				return fmt.Errorf("then %s: %w", steps[at].name, err)
			}
			at++
		}
	}
	if err := w.c.Close(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if r.IntN(4) == 0 {
		if err := k.fs.RemoveAll("data/state"); err != nil {
			return err
		}
	}
	w.fs = k.fs
	if err := w.open(ctx); err != nil {
		return fmt.Errorf("start after the stop: %w", err)
	}
	state, err := everyState(w.c)
	if err == nil && state != states[at] {
		err = fmt.Errorf("%w:\n%s\nwant\n%s", errWrong, state, states[at])
	}
	if err = firstError(err, w.sound(ctx), w.everyCold(ctx)); err != nil {
		return fmt.Errorf("after the stop: %w", err)
	}
	// Where the stop flushed what waited, another writer's rows would win.
	if at < len(steps) && !strings.HasPrefix(steps[at].name, "foreign") {
		if err := steps[at].do(ctx, w); err != nil {
			return fmt.Errorf("after the stop, %s: %w", steps[at].name, err)
		}
		state, err := everyState(w.c)
		if err == nil && state != states[at+1] {
			err = fmt.Errorf("%w:\n%s\nwant\n%s", errWrong, state, states[at+1])
		}
		if err = firstError(err, w.everyLeft(ctx)); err != nil {
			return fmt.Errorf("after the stop and %s: %w", steps[at].name, err)
		}
	}
	return w.die()
}

// sound has every check look at all tables, and for what is left behind.
func (w *everyWorld) sound(ctx context.Context) error {
	if err := w.check(ctx, func(Problem) bool { return false }); err != nil {
		return err
	}
	return w.everyLeft(ctx)
}

// check has every check look at all tables.
func (w *everyWorld) check(ctx context.Context, passes func(Problem) bool) error {
	for _, t := range w.c.tablesByID() {
		for p, err := range w.c.Check(ctx, t, CheckExtended, nil) {
			if err != nil {
				return err
			}
			// The values of rows that another engine replaced are not known: their entries stay, and lead nowhere.
			if p.Severity == Note && strings.HasPrefix(p.Object, "index ") || passes(p) {
				continue
			}
			return fmt.Errorf("table %s: %s", t, p)
		}
	}
	return nil
}

// fatal tells whether the failure of an operation ends the process: pebble does not go on when its log or manifest cannot be written.
func fatal(op errorfs.Op) bool {
	return strings.Contains(op.Path, stateFolder) && !strings.HasSuffix(op.Path, ".sst")
}

// D3: while the journal's sync does not return, a commit is not answered, and neither a snapshot, a read of the newest time, another
// session, a flush nor another engine shows its rows; a crash then loses nothing that was acknowledged.
func TestCrashSlowSync(t *testing.T) {
	ctx := context.Background()
	for _, large := range []bool{false, true} {
		t.Run(fmt.Sprintf("large=%t", large), func(t *testing.T) {
			disk := newCloneFS()
			var slow atomic.Bool
			var reached sync.Once
			blocked, release := make(chan struct{}), make(chan struct{})
			w := &everyWorld{foreign: &foreignInstants{}, fs: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileFlush:
					if slow.Load() && strings.HasSuffix(op.Path, ".log") && strings.Contains(op.Path, stateFolder) {
						reached.Do(func() { close(blocked) })
						<-release
					}
				}
				return nil
			}))}
			require.NoError(t, w.open(ctx))
			for _, s := range everySteps()[:7] { // the tables, with rows in files
				require.NoError(t, s.do(ctx, w), s.name)
			}
			require.NoError(t, everyCommit("", func(tx everyTx) error { return firstError(tx.put("cow", 3, 7), tx.put("mor", 3, 7)) }).do(ctx, w))
			before, err := everyState(w.c)
			require.NoError(t, err)
			mor := ddlTable(w.c, "d.mor")
			inFiles, err := w.files(ctx, mor)
			require.NoError(t, err)

			began := w.c.Clock().Now()
			slow.Store(true)
			ids := []int32{50}
			if large {
				ids = span(50, 60)
			}
			done, flushed := make(chan error, 1), make(chan error, 1)
			go func() {
				done <- everyCommit("", func(tx everyTx) error { return firstError(tx.put("cow", 9, ids...), tx.put("mor", 9, ids...)) }).do(ctx, w)
			}()
			<-blocked
			go func() { flushed <- w.c.Flush(ctx, "test") }() // it may wait, and may not show more than was synced
			now := seqTime(w.c.clock.stamp())                 // a time that is shown is made durable, which waits for the disk, too
			for range 20 {
				state, err := everyState(w.c)
				require.NoError(t, err)
				require.Equal(t, before, state)
				// Who reads as of before the commit does not wait for it, who reads as of now does: it may be earlier than that.
				s, err := w.c.AsOf(ctx, AsOf{Time: began})
				require.NoError(t, err)
				require.NotContains(t, dump(t, s.Scan(ctx, mor, ScanOptions{})), "50009")
				s.Close()
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				if s, err := w.c.AsOf(short, AsOf{Time: now}); err == nil {
					require.NotContains(t, dump(t, s.Scan(ctx, mor, ScanOptions{})), "50009")
					s.Close()
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				cancel()
				theirs, err := w.files(ctx, mor)
				require.NoError(t, err)
				require.NotContains(t, strings.Join(theirs, " "), "/50009")
				require.Subset(t, append(theirs, "7/p1/7003"), inFiles)
				// A read with a lock waits for who has the row.
				tx, err := w.c.BeginTx(ctx, TxOptions{LockTimeout: time.Millisecond})
				require.NoError(t, err)
				_, _, err = tx.GetLock(ctx, mor, storage.Row{int32(50)}, ScanOptions{Lock: LockShared})
				require.ErrorIs(t, err, ErrLockTimeout)
				tx.Rollback()
				select {
				case err := <-done:
					t.Fatalf("answered before the sync: %v", err)
				default:
				}
				time.Sleep(time.Millisecond)
			}
			for rate := range 5 { // the machine dies now
				k := &everyWorld{foreign: w.foreign, fs: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * rate, RNG: rand.New(rand.NewPCG(uint64(rate), 7))})}
				require.NoError(t, k.open(ctx))
				state, err := everyState(k.c)
				require.NoError(t, err)
				if rate == 0 {
					require.Equal(t, before, state)
				}
				require.NotEqual(t, strings.Contains(state, "50/p2/50009"), state == before, "a commit is half there: %s", state)
				require.NoError(t, k.sound(ctx))
				require.NoError(t, k.die())
			}
			slow.Store(false)
			close(release)
			require.NoError(t, <-done)
			require.NoError(t, <-flushed)
			after, err := everyState(w.c)
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(after, "50/p2/50009"))
			require.NoError(t, w.c.Close(ctx))
		})
	}
}
