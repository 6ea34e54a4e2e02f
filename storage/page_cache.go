package storage

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// PageCache keeps decoded pages of base files for lookups, the least recently used of them going first. Its methods may be
// called from several goroutines.
type PageCache struct {
	shards [16]pageShard
	limit  int64 // bytes a shard may hold

	Hits, Misses atomic.Int64
}

type pageShard struct {
	mu    sync.Mutex
	pages map[pageKey]*list.Element // guarded by mu
	order list.List                 // of pageEntry, most recently used first; guarded by mu
	bytes int64                     // guarded by mu
}

type pageKey struct {
	file              uint64
	group, leaf, page int32
}

type pageEntry struct {
	key  pageKey
	page *decodedPage
	size int64
}

// defaultPageCache serves files that are given no other cache: lookups in the same file must not decode a page each.
var defaultPageCache = NewPageCache(64 << 20)

// NewPageCache gives a cache of about this many bytes.
func NewPageCache(bytes int64) *PageCache {
	c := &PageCache{}
	c.limit = bytes / int64(len(c.shards))
	for i := range c.shards {
		c.shards[i].pages = map[pageKey]*list.Element{}
	}
	return c
}

func (c *PageCache) shard(k pageKey) *pageShard {
	h := (k.file*31+uint64(k.group))*31 + uint64(k.leaf)*7 + uint64(k.page)
	return &c.shards[h*0x9e3779b97f4a7c15>>60]
}

func (c *PageCache) get(k pageKey) *decodedPage {
	if c == nil {
		return nil
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pages[k]
	if e == nil {
		c.Misses.Add(1)
		return nil
	}
	c.Hits.Add(1)
	s.order.MoveToFront(e)
	return e.Value.(*pageEntry).page
}

func (c *PageCache) put(k pageKey, p *decodedPage) {
	if c == nil {
		return
	}
	size := int64(p.size())
	if size > c.limit {
		return
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages[k] != nil {
		return
	}
	s.pages[k] = s.order.PushFront(&pageEntry{k, p, size})
	s.bytes += size
	for s.bytes > c.limit {
		last := s.order.Back()
		e := s.order.Remove(last).(*pageEntry)
		delete(s.pages, e.key)
		s.bytes -= e.size
	}
}
