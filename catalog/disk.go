package catalog

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A full disk. Writes are refused before it is full: the journal's own work needs room, and a journal that cannot be written stops
// all writing until the next start. When another program takes the rest nevertheless, the ballast gives way: the write that met the
// full disk is tried again in its room, and new ones are refused until there is room for both.

// ballastFile lies in the data folder.
const ballastFile = "ballast"

const (
	// The state folder needs this much of the disk for its own work.
	diskReserve = 3 * memTableBytes
	// With less than this left, a warehouse is not opened: what a crash left could not be ended.
	diskLeast = memTableBytes / 2
	diskCheck = 250 * time.Millisecond

	// fullPause is how long each write that meets a full disk waits, so that what is tried again in a loop does not turn at full speed.
	fullPause = 20 * time.Millisecond
)

// diskState is what is known of the disk's room.
type diskState struct {
	at, free atomic.Int64 // when it was looked at, and what was left of it, in bytes
	full     atomic.Bool  // a write failed, or fell back on the ballast, and there was no room since

	mu      sync.Mutex
	ballast int64 // guarded by mu; bytes that the ballast holds now
	raw     vfs.FS
}

// onDiskFull runs while the write that met the full disk waits.
func (c *Catalog) onDiskFull() {
	c.metrics.DiskFullTotal.Add(1)
	c.disk.full.Store(true)
	c.disk.free.Store(0)
	c.disk.mu.Lock()
	held := c.disk.ballast
	c.disk.ballast = 0
	c.disk.mu.Unlock()
	if held > 0 {
		c.log.Error("the disk is full: the ballast gives way, writes are refused until there is room", "data", c.dir, "bytes", held)
		if err := c.disk.raw.Remove(c.disk.raw.PathJoin(c.dir, ballastFile)); err != nil {
			c.log.Error("remove the ballast", "err", err)
		}
		return
	}
	time.Sleep(fullPause)
}

// layBallast takes room on the disk that is given back when everything else is used up.
func (c *Catalog) layBallast() {
	n := c.o.BallastBytes
	if n <= 0 {
		return
	}
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	if c.disk.ballast > 0 {
		return
	}
	name := c.disk.raw.PathJoin(c.dir, ballastFile)
	f, err := c.disk.raw.Create(name, "lakesql-ballast")
	if err == nil {
		err = errors.Join(f.Preallocate(0, n), f.Sync(), f.Close())
	}
	if err != nil {
		_ = c.disk.raw.Remove(name) // it takes room for nothing
		c.log.Warn("there is no room for the ballast", "bytes", n, "err", err)
		return
	}
	c.disk.ballast = n
}

// measure looks at the room that is left, in bytes.
func (c *Catalog) measure() int64 {
	u, err := c.fs.GetDiskUsage(c.dir)
	if err != nil {
		return math.MaxInt64 // what cannot be measured does not limit
	}
	return int64(min(u.AvailBytes, math.MaxInt64))
}

// room refuses writes of n more bytes while the hot tier is at its limit, or the disk nearly full.
func (c *Catalog) room(n int64) error {
	if c.hotBytes.Load()+n > c.o.HotBytesMax {
		c.metrics.FullTotal.Add(1)
		return fmt.Errorf("%w: %d bytes wait for a flush, the limit is %d; try again when they are flushed", ErrFull, c.hotBytes.Load(), c.o.HotBytesMax)
	}
	return c.diskRoom(n)
}

// diskRoom refuses n more bytes while the disk is nearly full.
func (c *Catalog) diskRoom(n int64) error {
	now := time.Now().UnixNano()
	if at := c.disk.at.Load(); now-at > int64(diskCheck) && c.disk.at.CompareAndSwap(at, now) {
		free := c.measure()
		if c.disk.full.Load() && free > diskReserve+c.o.BallastBytes {
			c.layBallast()
			c.disk.full.Store(false)
			c.log.Info("there is room on the disk again", "data", c.dir, "bytes", free)
			free = c.measure()
		}
		c.disk.free.Store(free)
	}
	free, need := c.disk.free.Load(), diskReserve+n
	if c.disk.full.Load() {
		need += c.o.BallastBytes
	}
	if free < need {
		c.metrics.FullTotal.Add(1)
		return fmt.Errorf("%w: %s has %d MiB left, %d are needed; writes go on when there is room", ErrDiskFull, c.dir, free>>20, need>>20)
	}
	return nil
}
