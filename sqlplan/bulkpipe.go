package sqlplan

import (
	"sync/atomic"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// bulkPipe hands batches to a load of the catalog, which encodes and writes them in a goroutine of its own while the next
// ones are made. It holds at most pipeDepth batches that wait.
type bulkPipe struct {
	bulk *catalog.Bulk
	in   chan storage.Batch // nil: there is no goroutine
	done chan struct{}
	err  atomic.Pointer[error] // of Append; what comes after it is dropped
	over bool

	// of the goroutine, until done
	ignored []*catalog.DuplicateKeyError // the first rows that were left out
}

const (
	pipeDepth = 2
	// ignoredMax is as many rows as warnings are kept for.
	ignoredMax = 1024
)

// newBulkPipe begins. Without beside, everything is done by the caller of add: a transaction serves one goroutine at a time,
// and the statement may read.
func newBulkPipe(bulk *catalog.Bulk, beside bool) *bulkPipe {
	p := &bulkPipe{bulk: bulk}
	bulk.OnIgnored = func(dup *catalog.DuplicateKeyError) {
		if len(p.ignored) < ignoredMax {
			p.ignored = append(p.ignored, dup)
		}
	}
	if beside {
		p.in, p.done = make(chan storage.Batch, pipeDepth), make(chan struct{})
		go p.run()
	}
	return p
}

func (p *bulkPipe) run() {
	defer close(p.done)
	for batch := range p.in {
		if p.err.Load() != nil {
			continue
		}
		if err := p.bulk.Append(batch); err != nil {
			p.err.Store(&err)
		}
	}
}

// add waits until there is room. It gives the error of a batch before.
func (p *bulkPipe) add(b storage.Batch) error {
	if p.in == nil {
		return p.bulk.Append(b)
	}
	p.in <- b
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *bulkPipe) wait() {
	if p.in == nil {
		return
	}
	if !p.over {
		p.over = true
		close(p.in)
	}
	<-p.done
}

// finish waits for the batches and ends the load.
func (p *bulkPipe) finish() (catalog.BulkResult, error) {
	p.wait()
	if err := p.err.Load(); err != nil {
		return catalog.BulkResult{}, *err
	}
	return p.bulk.Finish()
}

// abort ends the load without a trace, if it is not over.
func (p *bulkPipe) abort() {
	p.wait()
	p.bulk.Abort()
}
