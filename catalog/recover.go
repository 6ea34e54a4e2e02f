package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// resolveIntent ends a flush that did not: what completed is settled, else it is rolled back and its rows are flushed anew.
func (t *Table) resolveIntent(ctx context.Context) error {
	in := t.intent
	if in == nil {
		return nil
	}
	release, err := t.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if in.Decided {
		return t.finishDecided(ctx)
	}
	c, d := t.c, t.def.Load()
	cold := c.cold(t.id)
	tl, err := cold.tl.Refresh(ctx, c.store, d.dir)
	if err != nil {
		return err
	}
	// A rollback of it that was cut short is ended first: it would stay pending for good.
	for _, p := range tl.Pending() {
		if p.Action != timeline.Rollback {
			continue
		}
		plan, err := timeline.ReadRollbackPlan(ctx, c.store, d.dir, p)
		if err != nil {
			return err
		}
		if plan.Target != nil && storage.InstantTime(plan.Target.Time) == in.Instant {
			if err := timeline.ResumeRollback(ctx, c.store, d.dir, p.Time); err != nil {
				return err
			}
			if tl, err = tl.Refresh(ctx, c.store, d.dir); err != nil {
				return err
			}
		}
	}
	if err := timeline.RemoveBeat(ctx, c.store, d.dir, in.Instant); err != nil {
		return err
	}
	completed := false
	if found, ok := tl.Get(in.Instant); ok {
		if found.State == timeline.Completed {
			m, err := timeline.ReadCommit(ctx, c.store, d.dir, found)
			if err != nil {
				return err
			}
			completed = m.Extra[extraWarehouse] == c.id && m.Extra[extraBin] == in.Bin
		}
		if !completed {
			if found.State == timeline.Completed {
				return fmt.Errorf("%w: instant %s of %s is another writer's", timeline.ErrConflict, in.Instant, d)
			}
			at, _ := c.drawInstant(t)
			if err := timeline.RollBack(ctx, c.store, d.dir, found, timeline.FormatTime(at.In(d.zone)), in.Files); err != nil {
				return err
			}
		}
	} else {
		if completed, err = c.archived(ctx, d, tl, in.Instant); err != nil {
			return err
		}
		if !completed {
			if err := c.removeFiles(ctx, d, in.Files); err != nil {
				return err
			}
		}
	}
	if !completed {
		c.log.Warn("rolled back an unfinished flush", "table", d.String(), "instant", in.Instant)
		if err := timeline.ClearEnded(ctx, c.store, d.dir, func(it storage.InstantTime) bool { return it == in.Instant }); err != nil {
			return err
		}
		// The files that are gone may stand in the view, which lists what lies in the folders.
		if tl, err = tl.Refresh(ctx, c.store, d.dir); err != nil {
			return err
		}
		a, err := t.undone(ctx, tl)
		if err != nil {
			return err
		}
		return t.swap(cold.with(tl, a.view), a, func(b *pebble.Batch) error {
			t.intent = nil
			return b.Delete(idKey(prefixIntent, t.id), nil)
		})
	}
	// Its name may be there without being durable: the sync that failed may be why it was not settled.
	if err := c.syncFolder(c.path(join(d.dir, ".hoodie"))); err != nil {
		return err
	}
	// The locations of its rows are found again from the files, as an adopted instant's are.
	a, err := t.reindex(ctx, tl)
	if err != nil {
		return err
	}
	if err := t.settled(a, cold.tl, in.Instant, in.Cut); err != nil {
		return err
	}
	next := cold.with(tl, a.view)
	done := ownInstant{in.Instant, in.Cut, in.Bytes, ownEffect(in.Instant, in.Cut, cold.view, func(it storage.InstantTime) bool { return it != in.Instant && tl.Counts(it) }, in.Files)}
	if in.Replace {
		done.seq, done.barrier = 0, true
		m, err := timeline.ReadCommit(ctx, c.store, d.dir, timeline.Instant{Time: in.Instant, Action: in.Action, State: timeline.Completed})
		if err != nil {
			return err
		}
		done.hide(m.Replaced, cold.view, func(it storage.InstantTime) bool { return it != in.Instant && tl.Counts(it) })
	}
	next.addOwn(done)
	undo := func() {}
	if in.Change != nil {
		if err := t.redefineTo(in.Change.record(t.id)); err != nil {
			return err
		}
		if a, err = t.reindex(ctx, tl); err != nil { // the keys may be others now
			return err
		}
	}
	err = t.swap(next, a, func(b *pebble.Batch) error {
		if in.Change != nil {
			var err error
			if undo, err = c.put(b, in.Change); err != nil {
				return err
			}
		}
		if in.Replace {
			t.forget(in.Cut)
			return firstError(c.index.DropKeys(b, t.id), t.closeIntent(b))
		}
		recents, err := c.index.Recents(c.db, t.id, index.Bounds{})
		if err != nil {
			return err
		}
		defer recents.Close()
		for ; recents.Valid(); recents.Next() {
			k, r, err := recents.Entry()
			if err != nil {
				return err
			}
			if r.Seq <= in.Cut {
				if err := c.index.DropRecent(b, t.id, k, r.Seq); err != nil {
					return err
				}
			}
		}
		t.forget(in.Cut)
		return t.closeIntent(b)
	})
	if err != nil {
		undo()
		return err
	}
	c.log.Info("finished a flush that was cut short", "table", d.String(), "instant", in.Instant)
	if in.Change != nil {
		return c.enforce(ctx, in.Change)
	}
	return nil
}

// archived tells whether an instant that is no longer on the active timeline completed before it was archived.
func (c *Catalog) archived(ctx context.Context, d *tableDef, tl *timeline.Timeline, it storage.InstantTime) (bool, error) {
	if it >= tl.Start() {
		return false, nil
	}
	for in, err := range timeline.Archived(ctx, c.store, d.dir) {
		if err != nil {
			return false, err
		}
		if in.Time == it && in.State == timeline.Completed && in.Action != timeline.Rollback && in.Action != timeline.Clean {
			return true, nil
		}
	}
	return false, nil
}

// redefineTo compiles a record's definition as the table's, as the rewrite that was cut short would have.
func (t *Table) redefineTo(r *tableRecord) error {
	if r == nil {
		return nil
	}
	spec, _, err := r.Def.spec()
	if err != nil {
		return err
	}
	p, err := t.c.properties(r, spec)
	if err != nil {
		return err
	}
	here := *r
	here.Dir, here.Database, here.Name = t.record.Dir, t.record.Database, t.record.Name // it is renamed later
	d, err := t.c.compile(&here, p)
	if err != nil {
		return err
	}
	t.setDef(d)
	return nil
}

// drawInstant draws an instant time above everything on the table's timeline, and waits until it is no longer ahead of the wall clock. A
// wall clock that went back by more than a flush waits for is not waited for: a start would take hours.
func (c *Catalog) drawInstant(t *Table) (time.Time, index.Seq) {
	c.commitMu.Lock()
	at, cut := c.clock.instant(t.newestInstant())
	c.commitMu.Unlock()
	if at.Sub(c.clock.wall()) <= maxAhead {
		_ = sleepUntil(context.Background(), c.clock.wall, at)
	}
	return at, cut
}

// removeFiles removes data files of an instant that never stood on the timeline.
func (c *Catalog) removeFiles(ctx context.Context, d *tableDef, files map[string][]string) error {
	var names []string
	for part, list := range files {
		for _, n := range list {
			names = append(names, d.object(part, n))
		}
	}
	err := c.store.Remove(ctx, names...)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	return err
}
