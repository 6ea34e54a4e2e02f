package catalog

import (
	"sync"
	"time"

	"github.com/lakesql/lakesql/index"
)

// pins are the snapshots that are open: what they read is not removed. A snapshot is registered before its view of the hot tier is
// taken, so that nothing that it sees can go in between.
type pins struct {
	mu   sync.Mutex
	open map[*snapshot]pin // guarded by mu
}

type pin struct {
	seq   index.Seq // the oldest commit that it may read as of
	since time.Time
}

// add registers a snapshot that reads as of a sequence.
func (p *pins) add(s *snapshot, seq index.Seq) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[*snapshot]pin{}
	}
	p.open[s] = pin{seq, time.Now()}
}

// lower has a snapshot read further back.
func (p *pins) lower(s *snapshot, seq index.Seq) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.open[s]; ok && seq < k.seq {
		k.seq = seq
		p.open[s] = k
	}
}

func (p *pins) remove(s *snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
}

// oldest gives the oldest sequence that an open snapshot reads as of. Those past the limit do not count: they read nothing any more.
func (p *pins) oldest(limit time.Duration) (seq index.Seq, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.open {
		if (!ok || k.seq < seq) && time.Since(k.since) <= limit {
			seq, ok = k.seq, true
		}
	}
	return seq, ok
}

// Pinned gives the oldest sequence as of which an open snapshot may read a table: files that are needed to read it as of then or
// later are not to be removed. False: no snapshot is open. Every snapshot may come to read every table.
func (c *Catalog) Pinned(*Table) (index.Seq, bool) { return c.pins.oldest(c.o.SnapshotMax) }

// pinnedBefore tells whether a snapshot that is open reads as of an earlier sequence.
func (c *Catalog) pinnedBefore(seq index.Seq) bool {
	oldest, ok := c.pins.oldest(c.o.SnapshotMax)
	return ok && oldest < seq
}

// Snapshots gives the number of open snapshots and the age of the oldest one.
func (c *Catalog) Snapshots() (n int, oldest time.Duration) {
	c.pins.mu.Lock()
	defer c.pins.mu.Unlock()
	for _, k := range c.pins.open {
		oldest = max(oldest, time.Since(k.since))
	}
	return len(c.pins.open), oldest
}
