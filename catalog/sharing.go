package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Tables are shared with other engines under Hudi's own rules: an instant is drawn, written and completed under the table's lock file, its
// heartbeat says that its writer lives, and its markers say what there is to remove if it dies.

// ErrBusy: another engine holds the table's lock, or writes to the table with a live heartbeat. The rows stay buffered.
var ErrBusy = errors.New("catalog: another engine is writing to the table")

// errOvertaken: another engine completed an instant while a flush was writing; the flush is planned again.
var errOvertaken = errors.New("catalog: another engine completed an instant meanwhile")

// lockWait is how long the table's lock is waited for. Tests lower it.
var lockWait = 10 * time.Second

const (
	lockPoll     = 10 * time.Millisecond
	foreignPoll  = 200 * time.Millisecond
	overtakenMax = 20 // tries of one flush
)

// sharedLocks are the lock files that this catalog holds, by folder: tables may have one in common.
type sharedLocks struct {
	mu   sync.Mutex
	held map[string]*sharedLock // guarded by mu
}

type sharedLock struct {
	file  *timeline.Lock
	claim string
	users int // guarded by sharedLocks.mu
}

// take takes the lock of a folder without waiting, once more if it is held here. The error wraps ErrBusy if somebody else has it.
func (c *Catalog) take(ctx context.Context, folder string) (l *sharedLock, release func(), err error) {
	c.locks.mu.Lock()
	defer c.locks.mu.Unlock()
	if l = c.locks.held[folder]; l == nil {
		h := c.holder()
		file, err := timeline.TryLock(ctx, c.store, folder, h)
		var locked *timeline.LockedError
		if errors.As(err, &locked) && c.forsaken(locked.Holder) {
			if err = c.store.RemoveBrief(ctx, locked.Name); err == nil {
				file, err = timeline.TryLock(ctx, c.store, folder, h)
			}
		}
		if err != nil {
			if errors.As(err, &locked) {
				err = fmt.Errorf("%w: %w", ErrBusy, err)
			}
			return nil, nil, err
		}
		l = &sharedLock{file: file, claim: h.Claim}
		c.locks.held[folder] = l
	}
	l.users++
	return l, func() {
		c.locks.mu.Lock()
		defer c.locks.mu.Unlock()
		if l.users--; l.users > 0 {
			return
		}
		delete(c.locks.held, folder)
		if err := l.file.Release(context.WithoutCancel(ctx)); err != nil {
			c.log.Error("release a table's lock", "folder", folder, "err", err)
		}
	}, nil
}

// forsaken tells whether a lock was taken by this warehouse, which does not hold it any more: by an earlier run, of which no two live at a
// time, in a folder that was out of the way at the start; or by this one, before the folder was moved. Called with locks.mu held.
func (c *Catalog) forsaken(h timeline.LockHolder) bool {
	if h.Warehouse != c.id {
		return false
	}
	for _, l := range c.locks.held {
		if l.claim == h.Claim {
			return false
		}
	}
	return true
}

// tryHold takes the table's lock against other engines without waiting; called with the slice lock held. Whoever holds it already holds it
// once more. The error wraps ErrBusy if somebody else has it.
func (t *Table) tryHold(ctx context.Context) (release func(), err error) {
	folder := t.def.Load().lockFolder
	if t.lock != nil || folder == "" {
		return func() {}, nil
	}
	l, giveUp, err := t.c.take(ctx, folder)
	if err != nil {
		return nil, err
	}
	t.lock = l.file
	return func() {
		t.lock = nil
		giveUp()
	}, nil
}

// hold is tryHold that waits.
func (t *Table) hold(ctx context.Context) (func(), error) {
	return waitForLock(ctx, func() (func(), error) { return t.tryHold(ctx) })
}

// holdAll takes the locks of tables whose slice locks are not held; what is done with them meanwhile holds them once more.
func (c *Catalog) holdAll(ctx context.Context, tables []*Table) (func(), error) {
	var all []func()
	release := func() {
		for _, f := range all {
			f()
		}
	}
	for _, t := range tables {
		folder := t.def.Load().lockFolder
		if folder == "" {
			continue
		}
		f, err := waitForLock(ctx, func() (func(), error) {
			_, f, err := c.take(ctx, folder)
			return f, err
		})
		if err != nil {
			release()
			return nil, err
		}
		all = append(all, f)
	}
	return release, nil
}

func waitForLock(ctx context.Context, try func() (func(), error)) (func(), error) {
	for until := time.Now().Add(lockWait); ; {
		release, err := try()
		if err == nil || !errors.Is(err, ErrBusy) || time.Now().After(until) {
			return release, err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

func (c *Catalog) holder() timeline.LockHolder {
	return timeline.LockHolder{
		Since: c.o.Now().Format("2006-01-02 15:04:05.000"), Thread: "lakesql", Warehouse: c.id, Incarnation: c.session, Claim: newID(),
	}
}

// keep makes sure that the lock is still ours before an instant completes.
func (t *Table) keep(ctx context.Context) error {
	if t.lock == nil {
		return nil
	}
	for until := time.Now().Add(lockWait); ; {
		lost, err := t.lock.Keep(ctx)
		if err == nil {
			if lost {
				t.c.metrics.LocksLostTotal.Add(1)
			}
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
}

// clearLock removes the lock that an earlier run of this warehouse left when it died: no two run at a time on one data folder.
func (t *Table) clearLock(ctx context.Context) error {
	folder := t.def.Load().lockFolder
	if folder == "" {
		return nil
	}
	found, err := timeline.ClearLock(ctx, t.c.store, folder, t.c.holder())
	if found {
		t.c.log.Warn("removed the table lock that an earlier run left behind", "table", t.String())
	}
	return err
}

// clearEnded removes the heartbeats and markers of instants that an earlier run completed: nobody else would.
func (t *Table) clearEnded(ctx context.Context) error {
	tl := t.c.cold(t.id).tl
	return timeline.ClearEnded(ctx, t.c.store, t.def.Load().dir, func(it storage.InstantTime) bool {
		in, ok := tl.Get(it)
		return ok && in.State == timeline.Completed
	})
}

// waitsForOthers refuses a flush while another engine writes to the table: an optimistic writer would find our instant when it is done, and
// have to begin anew. It gives in after a while, and when the hot tier fills up.
func (t *Table) waitsForOthers(ctx context.Context) error {
	c, d := t.c, t.def.Load()
	pending := c.cold(t.id).tl.Pending()
	if len(pending) == 0 {
		t.waits = time.Time{}
		return nil
	}
	alive, err := timeline.Beating(ctx, c.store, d.dir, time.Now())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pending, func(in timeline.Instant) bool { return alive[in.Time] })
	if i < 0 {
		t.waits = time.Time{}
		return nil
	}
	now := time.Now()
	if t.waits.IsZero() {
		t.waits = now
	}
	if now.Sub(t.waits) > c.o.SharedWait || c.hotBytes.Load() > c.o.HotBytesMax/2 {
		return nil
	}
	return fmt.Errorf("%w: %s of %s has a live heartbeat", ErrBusy, pending[i], d)
}

// overtaken looks, under the lock, whether another engine wrote since the flush was planned: then its files may replace others than those
// that are in use.
func (f *flush) overtaken(ctx context.Context) error {
	if err := f.t.keep(ctx); err != nil {
		return err
	}
	tl, err := f.cold.tl.Refresh(ctx, f.t.c.store, f.d.dir)
	if err != nil {
		return err
	}
	if !sameWrites(f.cold.tl, tl, f.instant) {
		f.t.c.metrics.OvertakenTotal.Add(1)
		return errOvertaken
	}
	return nil
}

// sameWrites tells whether two looks at a timeline show the same completed instants and the same plans of services, apart from one of ours.
func sameWrites(a, b *timeline.Timeline, own storage.InstantTime) bool {
	list := func(tl *timeline.Timeline) []timeline.Instant {
		out := tl.Completed()
		for _, in := range tl.Pending() {
			if in.Action == timeline.Compaction || in.Action == timeline.LogCompaction || in.Action == timeline.ReplaceCommit {
				out = append(out, timeline.Instant{Time: in.Time, Action: in.Action})
			}
		}
		out = slices.DeleteFunc(out, func(in timeline.Instant) bool {
			return in.Time == own || in.State == timeline.Completed && in.Time < b.Start()
		})
		for i := range out {
			out[i].Completed = ""
		}
		return out
	}
	return slices.Equal(list(a), list(b))
}

// heartbeat touches the heartbeat of an instant until it is stopped.
type heartbeat struct {
	stop context.CancelFunc
	done chan struct{}
}

// beat starts the heartbeat of an instant that is about to be requested.
func (f *flush) beat(ctx context.Context) error {
	c := f.t.c
	if err := timeline.Beat(ctx, c.store, f.d.dir, f.instant); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &heartbeat{stop, make(chan struct{})}
	f.heart = h
	go func() {
		defer close(h.done)
		tick := time.NewTicker(timeline.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := timeline.Beat(ctx, c.store, f.d.dir, f.instant); err != nil && ctx.Err() == nil {
					c.log.Error("heartbeat", "table", f.t.String(), "instant", f.instant, "err", err)
				}
			}
		}
	}()
	return nil
}

// rest ends the heartbeat and removes it.
func (f *flush) rest(ctx context.Context) {
	if f.heart == nil {
		return
	}
	f.heart.stop()
	<-f.heart.done
	f.heart = nil
	if err := timeline.EndBeat(context.WithoutCancel(ctx), f.t.c.store, f.d.dir, f.instant); err != nil {
		f.t.c.log.Error("end the heartbeat", "table", f.t.String(), "instant", f.instant, "err", err)
	}
}

// begin requests the instant of a flush and starts it.
func (f *flush) begin(ctx context.Context) error {
	if err := f.beat(ctx); err != nil {
		return err
	}
	var err error
	if f.pending, err = timeline.Begin(ctx, f.t.c.store, f.d.dir, f.intent.Action, f.instant, nil); err != nil {
		return err
	}
	f.pending.Zone = f.d.zone
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
