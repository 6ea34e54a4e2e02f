// Package ingest decides which buffered commits go together into one Hudi instant, when, and why: NiFi's bins.
// It knows no file formats; the flush itself is the catalog's.
//
// A table has one open bin, so that every instant is a prefix of its commits. A bin is due when it is full (its minimum of
// bytes), when it reaches its maximum, or at its maximum age.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/lakesql/lakesql/catalog"
)

// Names of the table options that this package reads.
const (
	OptionMinBytes = "bin.min_bytes" // bytes from which a bin is full
	OptionMaxBytes = "bin.max_bytes" // bytes at which it is flushed at once
	OptionMaxAge   = "bin.max_age"   // a Go duration, such as "60s"
)

// Options of a Runner; the zero value works.
type Options struct {
	Tick     time.Duration // a run takes in what waits; default 100 ms
	Poll     time.Duration // instants of other engines are looked for; default 1 s
	MinBytes int64         // default 16 MiB
	MaxBytes int64         // default 128 MiB
	MaxAge   time.Duration // default 60 s
	Logger   *slog.Logger
}

// Runner flushes bins that are due, looks for instants of other engines, and removes dropped tables whose retention ended.
type Runner struct {
	c    *catalog.Catalog
	o    Options
	stop context.CancelFunc
	done sync.WaitGroup
}

// Start runs in the background until Stop.
func Start(c *catalog.Catalog, o Options) *Runner {
	if o.Tick == 0 {
		o.Tick = 100 * time.Millisecond
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.MinBytes == 0 {
		o.MinBytes = 16 << 20
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 128 << 20
	}
	if o.MaxAge == 0 {
		o.MaxAge = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Runner{c: c, o: o, stop: stop}
	r.done.Add(1)
	go r.run(ctx)
	return r
}

// Stop ends the runner and waits for the flush that is under way. What waits then is flushed by Catalog.Close.
func (r *Runner) Stop() {
	r.stop()
	r.done.Wait()
}

func (r *Runner) run(ctx context.Context) {
	defer r.done.Done()
	tick := time.NewTicker(r.o.Tick)
	defer tick.Stop()
	var polled, purged, moved time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.Run(ctx)
			if now.Sub(moved) >= moveEvery {
				moved = now
				if err := r.c.FinishMoves(catalog.WithWait(ctx, moveWait, nil)); err != nil && ctx.Err() == nil {
					r.o.Logger.Error("move table folders; it is tried again", "err", err)
				}
			}
			if now.Sub(polled) >= r.o.Poll || r.c.Stirred() {
				polled = now
				if err := r.c.Adopt(ctx); err != nil && ctx.Err() == nil {
					r.o.Logger.Error("look for instants of other engines", "err", err)
				}
			}
			if now.Sub(purged) >= purgeEvery {
				purged = now
				if err := r.c.PurgeDropped(ctx); err != nil && ctx.Err() == nil {
					r.o.Logger.Error("remove dropped tables whose retention ended", "err", err)
				}
			}
		}
	}
}

// moveEvery is how often moves of table folders that failed are tried again.
const moveEvery = time.Second

// moveWait is how long that waits for the transactions that use the tables.
const moveWait = 100 * time.Millisecond

// purgeEvery is how often dropped tables are looked at.
const purgeEvery = 10 * time.Second

// Run flushes every bin that is due.
func (r *Runner) Run(ctx context.Context) {
	now := r.c.Clock().Near()
	for _, w := range r.c.Waiting() {
		reason := r.due(w, now)
		if reason == "" {
			continue
		}
		took := time.Now()
		// A flush that was begun is not cut short by a stop: that would only repeat it.
		err := r.c.TryFlush(context.WithoutCancel(ctx), reason, w.Table)
		if errors.Is(err, catalog.ErrBusy) {
			r.o.Logger.Warn("flush waits", "table", w.Table.String(), "cause", err)
			continue
		}
		if err != nil {
			r.o.Logger.Error("flush", "table", w.Table.String(), "err", err)
			continue
		}
		r.o.Logger.Debug("flushed", "table", w.Table.String(), "rows", w.Rows, "bytes", w.Bytes, "reason", reason, "took", time.Since(took))
		if ctx.Err() != nil {
			return
		}
	}
}

// due says in words why a bin is to be flushed now, "" if it is not.
func (r *Runner) due(w catalog.Waiting, now time.Time) string {
	o := w.Table.Spec().Options
	if w.Cause != nil {
		// Back off: a tenth of the time that it has been failing, between one second and a minute after the last try.
		if wait := min(max(time.Since(w.Since)/10, time.Second), time.Minute); time.Since(w.Tried) < wait {
			return ""
		}
	}
	age := now.Sub(w.Oldest)
	switch {
	case w.Bytes >= bytesOption(o[OptionMaxBytes], r.o.MaxBytes):
		return fmt.Sprintf("the bin reached its maximum of bytes: %d", w.Bytes)
	case w.Bytes >= bytesOption(o[OptionMinBytes], r.o.MinBytes):
		return fmt.Sprintf("the bin is full: %d bytes", w.Bytes)
	case age >= ageOption(o[OptionMaxAge], r.o.MaxAge):
		return fmt.Sprintf("the bin reached its maximum age: %s", age.Truncate(time.Millisecond))
	}
	return ""
}

func bytesOption(s string, def int64) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 {
		return n
	}
	return def
}

func ageOption(s string, def time.Duration) time.Duration {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d
	}
	return def
}
