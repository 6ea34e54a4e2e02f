package catalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/lakesql/lakesql/index"
)

// Marks by which the state folder and the tables know that they belong together.
const (
	metaID = "id"
	// metaStopped holds the clock of the clean stop that the folder's last run ended with. The warehouse file has the same one; a
	// folder with another one, or none, is older than the tables, which have all rows then.
	metaStopped = "stopped"
	// metaRebuild stands while the folder is built anew from the tables: what a crash left of it says nothing.
	metaRebuild = "rebuild"
)

// openState opens the state folder, and tells whether it is new: there was none, or what there was is of no use. Nothing is left
// behind in the folder if the start is refused.
func (c *Catalog) openState(ctx context.Context, file *warehouseFile) (fresh bool, err error) {
	if free := c.measure(); free < diskLeast {
		return false, fmt.Errorf("%w: %s has %d MiB left, at least %d are needed to start", ErrDiskFull, c.dir, free>>20, diskLeast>>20)
	}
	clean := file != nil && file.Clean
	refuse := func() error {
		if clean || c.o.AcceptLostState {
			return nil
		}
		folders, err := c.tableFolders(ctx)
		if err != nil || len(folders) == 0 {
			return err
		}
		return c.lostState(ctx, folders)
	}
	if fresh = !c.hasState(); fresh {
		if err := refuse(); err != nil {
			return true, err
		}
	}
	err = c.openPebble()
	if err != nil && !fresh && pebble.IsCorruptionError(err) {
		if !c.o.AcceptLostState {
			return false, fmt.Errorf("%w: its journal is damaged, and commits behind the damage would be lost (%w); put back a copy of the folder, or start with --accept-lost-state to go on from the last instants", ErrLostState, err)
		}
		if err := c.moveState(err); err != nil {
			return false, err
		}
		fresh = true
		err = c.openPebble()
	}
	if err != nil {
		if fresh {
			c.removeState()
		}
		return fresh, err
	}
	if fresh {
		return true, nil
	}
	stopped, err := c.meta(metaStopped)
	if err == nil {
		var half string
		if half, err = c.meta(metaRebuild); err == nil && half == "" && (!clean || stopped == stopMark(file.Clock)) {
			return false, nil
		}
	}
	if err = firstError(err, c.db.Close()); err != nil {
		return false, err
	}
	c.log.Warn("the state folder is older than the tables, which were stopped cleanly, or half built: it is built anew", "folder", c.statePath())
	c.removeState()
	if err := refuse(); err != nil {
		return true, err
	}
	return true, c.openPebble()
}

// putStopped writes the mark of a clean stop, after which no time is shown any more.
func (c *Catalog) putStopped() error {
	b := c.db.NewBatch()
	defer b.Close()
	return firstError(b.Set(metaKey(metaStopped), []byte(stopMark(c.stopped)), nil),
		b.Set(metaKey(metaCeiling), appendUint(nil, uint64(c.stopped)), nil), c.commitBatch(b))
}

func stopMark(clock index.Seq) string { return strconv.FormatUint(uint64(clock), 10) }

func (c *Catalog) statePath() string { return c.fs.PathJoin(c.dir, stateFolder) }

// hasState tells whether there is a state folder with something in it.
func (c *Catalog) hasState() bool {
	names, err := c.fs.List(c.statePath())
	return err == nil && len(names) > 0
}

// removeState gives up a state folder that nothing was acknowledged in.
func (c *Catalog) removeState() {
	if err := c.fs.RemoveAll(c.statePath()); err != nil {
		c.log.Error("remove the state folder", "err", err)
	}
}

// moveState puts a damaged state folder aside.
func (c *Catalog) moveState(cause error) error {
	for n := 1; ; n++ {
		to := c.fs.PathJoin(c.dir, fmt.Sprintf("%s.damaged-%d", stateFolder, n))
		if _, err := c.fs.Stat(to); err == nil {
			continue
		}
		c.log.Error("the state folder is damaged and put aside", "folder", to, "err", cause)
		if err := c.fs.Rename(c.statePath(), to); err != nil {
			return fmt.Errorf("put the damaged state folder aside: %w", err)
		}
		return nil
	}
}

func (c *Catalog) openPebble() error {
	// Memory tables are taken out of the block cache's share: without room for them there would be no block cache left.
	cache := pebble.NewCache(c.o.CacheBytes/2 + 4*memTableBytes)
	defer cache.Unref()
	po := &pebble.Options{
		FS: walFS{orderedFS{c.fs}}, Cache: cache, Logger: pebbleLog{c.log}, MemTableSize: memTableBytes, MemTableStopWritesThreshold: memTablesMax,
		L0CompactionThreshold: 4, L0StopWritesThreshold: 24, FormatMajorVersion: pebble.FormatNewest,
		MaxOpenFiles:  stateFilesMax,
		EventListener: &pebble.EventListener{BackgroundError: (&seldom{every: 10 * time.Second, f: func(err error) { c.log.Error("state: work in the background", "err", err) }}).call},
	}
	po.Levels[0].FilterPolicy = bloom.FilterPolicy(10)
	po.Experimental.SpanPolicyFunc = keyspaces
	po.EnsureDefaults()
	db, err := pebble.Open(c.statePath(), po)
	if err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	c.db, c.pebble, c.index = db, po, index.New(db)
	return nil
}

// keyspaces has each sorted table of the state hold keys of one keyspace only. Else nearly every table spanned all of them, and
// compactions wrote the journal, whose new rows lie behind all older ones, over and over with what changes in the others.
func keyspaces(start []byte) (p pebble.SpanPolicy, end []byte, err error) {
	if len(start) > 0 && start[0] < 0xff {
		end = []byte{start[0] + 1}
	}
	return p, end, nil
}

// stateFilesMax is how many files of the state folder are open at most.
const stateFilesMax = 500

// seldom passes an error on at most once in a while: what fails in a loop fills no log.
type seldom struct {
	every time.Duration
	f     func(error)

	mu   sync.Mutex
	last time.Time // guarded by mu
}

func (s *seldom) call(err error) {
	s.mu.Lock()
	say := time.Since(s.last) >= s.every
	if say {
		s.last = time.Now()
	}
	s.mu.Unlock()
	if say {
		s.f(err)
	}
}

// commitBatch makes a batch durable. One that cannot be written stops all writing until the next start: what of it survives is not
// known, and pebble ends the process that goes on. It is not called with commitMu held.
func (c *Catalog) commitBatch(b *pebble.Batch) error {
	if b.Empty() {
		return nil
	}
	c.commitMu.Lock()
	err := c.applyLocked(b)
	c.commitMu.Unlock()
	if err != nil {
		return err
	}
	if err := b.SyncWait(); err != nil {
		err = fmt.Errorf("sync state: %w", err)
		c.fail(err)
		return err
	}
	return nil
}

// applyLocked applies a batch, whose sync is awaited by the caller; called with commitMu held.
func (c *Catalog) applyLocked(b *pebble.Batch) error {
	if c.failed != nil && !errors.Is(c.failed, ErrClosed) { // a stop has its own marks to write
		return c.failed
	}
	return c.db.ApplyNoSyncWait(b, pebble.Sync)
}

// syncLocked is syncJournal with commitMu held.
func (c *Catalog) syncLocked() error {
	b := c.db.NewBatch()
	defer b.Close()
	err := firstError(b.LogData(nil, nil), c.applyLocked(b))
	if err != nil {
		return err
	}
	if err := b.SyncWait(); err != nil {
		c.failed = fmt.Errorf("%w: sync state: %w", ErrStopped, err)
		return c.failed
	}
	return nil
}

// syncJournal makes everything that was applied durable.
func (c *Catalog) syncJournal() error {
	b := c.db.NewBatch()
	defer b.Close()
	return firstError(b.LogData(nil, nil), c.commitBatch(b))
}

// putEntry makes one entry durable.
func (c *Catalog) putEntry(key, value []byte) error {
	b := c.db.NewBatch()
	defer b.Close()
	return firstError(b.Set(key, value, nil), c.commitBatch(b))
}

// dropEntry takes one entry away for good.
func (c *Catalog) dropEntry(key []byte) error {
	b := c.db.NewBatch()
	defer b.Close()
	return firstError(b.Delete(key, nil), c.commitBatch(b))
}
