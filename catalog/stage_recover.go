package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// undoStaged removes what a large statement that was not decided left outside of its folder.
func (t *Table) undoStaged(ctx context.Context) error {
	c := t.c
	if err := c.removeFiles(ctx, t.def.Load(), t.intent.Files); err != nil {
		return err
	}
	if err := c.dropEntry(idKey(prefixIntent, t.id)); err != nil {
		return err
	}
	t.intent = nil
	return nil
}

// finishDecided completes the instant of a large statement that was decided: for this warehouse its rows are there already. It can be
// repeated. Called with the slice lock held.
func (t *Table) finishDecided(ctx context.Context) error {
	in := t.intent
	c, d := t.c, t.def.Load()
	cold := c.cold(t.id)
	tl, err := cold.tl.Refresh(ctx, c.store, d.dir)
	if err != nil {
		return err
	}
	found, ok := tl.Get(in.Instant)
	done := ok && found.State == timeline.Completed
	if done {
		m, err := timeline.ReadCommit(ctx, c.store, d.dir, found)
		if err != nil {
			return err
		}
		if m.Extra[extraBin] != in.Bin {
			return fmt.Errorf("%w: instant %s of %s is another writer's", timeline.ErrConflict, in.Instant, d)
		}
	} else if !ok {
		if done, err = c.archived(ctx, d, tl, in.Instant); err != nil {
			return err
		}
	}
	if !done {
		if err := t.publishStaged(ctx, in, found, ok); err != nil {
			return err
		}
		if tl, err = tl.Refresh(ctx, c.store, d.dir); err != nil {
			return err
		}
		if !tl.Counts(in.Instant) {
			return fmt.Errorf("%w: %s", timeline.ErrRolledBack, in.Instant)
		}
	} else if err := c.syncFolder(c.path(join(d.dir, ".hoodie"))); err != nil {
		return err
	}
	var a *adoption
	var view *timeline.View
	if cold.tl.Counts(in.Instant) {
		a, err = t.changes(ctx, cold, tl, in.Instant)
	} else { // found at the start
		a, err = t.undone(ctx, tl)
	}
	if err != nil {
		return err
	}
	if view = cold.view.Apply(tl); a != nil {
		view = a.view
	}
	err = t.swap(cold.with(tl, view), a, func(b *pebble.Batch) error {
		return b.Delete(idKey(prefixIntent, t.id), nil)
	})
	if err != nil {
		return err
	}
	t.intent = nil
	c.commitMu.Lock()
	t.unfinished = false
	c.commitMu.Unlock()
	// What is left of the folder is removed at the next start.
	c.reader.Forget(join(d.dir, in.Stage) + "/")
	if err := c.store.Remove(ctx, join(d.dir, in.Stage)+"/"); err != nil {
		c.log.Warn("remove staged files", "folder", join(d.dir, in.Stage), "err", err)
	}
	return nil
}

// publishStaged writes the instant to the timeline.
func (t *Table) publishStaged(ctx context.Context, in *intent, found timeline.Instant, pending bool) (err error) {
	c, d := t.c, t.def.Load()
	if err := timeline.Beat(ctx, c.store, d.dir, in.Instant); err != nil {
		return err
	}
	defer func() { err = firstError(err, timeline.EndBeat(ctx, c.store, d.dir, in.Instant)) }()
	var p *timeline.Pending
	if pending {
		p, err = timeline.Start(ctx, c.store, d.dir, found)
	} else {
		p, err = timeline.Begin(ctx, c.store, d.dir, in.Action, in.Instant, nil)
	}
	if err != nil {
		return err
	}
	p.Zone = d.zone
	for _, part := range sortedKeys(in.Files) {
		for _, name := range in.Files[part] {
			if err := p.Mark(ctx, part, name, t.markerOf(part, name, in.Instant)); err != nil {
				return err
			}
		}
	}
	// Another engine may have rolled back what looked dead to it.
	if pending || c.cold(t.id).tl == nil || !c.cold(t.id).tl.Counts(in.Instant) {
		if err := t.linkStaged(ctx, in); err != nil {
			return err
		}
	}
	if err := t.keep(ctx); err != nil {
		return err
	}
	if err := p.CompleteBytes(ctx, in.Meta); err != nil {
		return fmt.Errorf("complete %s: %w", in.Instant, err)
	}
	return nil
}

// markerOf says what a file of an instant is.
func (t *Table) markerOf(part, name string, it storage.InstantTime) timeline.MarkerKind {
	f, _ := storage.ParseFileName(name)
	if f.Version > 0 {
		return timeline.MarkAppend
	}
	before := func(o storage.InstantTime) bool { return o < it && t.c.cold(t.id).counts(o) }
	if _, ok := t.c.cold(t.id).view.Slice(part, f.ID, it, before); ok {
		return timeline.MarkMerge
	}
	return timeline.MarkCreate
}

// removeStaged removes the folders of transactions that were not decided before the last stop.
func (t *Table) removeStaged(ctx context.Context) error {
	d := t.def.Load()
	var names []string
	for info, err := range t.c.store.List(ctx, join(d.dir, stagedFolder)) {
		if errors.Is(err, storage.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if name := join(stagedFolder, info.Name); name != keptFolder { // what is kept of the past lies beside it
			names = append(names, join(d.dir, name)+"/")
		}
	}
	if len(names) == 0 {
		return nil
	}
	return t.c.store.Remove(ctx, names...)
}
