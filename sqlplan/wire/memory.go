package wire

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/dolthub/vitess/go/mysql"
)

// The front end's sorts, joins and groupings take what memory they need. When the heap nears the server's limit, the statement that made it
// grow is ended with an error: better one statement than the process.

const (
	memoryTick = 50 * time.Millisecond
	// memoryPause is how long what an ended statement held may take to be freed before another one is ended.
	memoryPause = 2 * time.Second
	// Statements that are younger than this are let be: they cannot have taken much.
	memoryYouth = 20 * time.Millisecond
)

// run is a running statement.
type run struct {
	cancel func(cause error)
	began  time.Time
	heap   int64 // bytes when it began
	load   bool  // LOAD DATA, whose memory is bounded
}

// heapBytes gives the bytes of objects on the heap, those that are no longer used and not yet freed among them.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// guardMemory watches the heap until stop is closed.
func (s *Server) guardMemory(stop <-chan struct{}) {
	tick := time.NewTicker(memoryTick)
	defer tick.Stop()
	var ended time.Time
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			heap := heapBytes()
			s.Metrics.HeapBytes.Store(heap)
			if heap < s.o.MemoryLimit || now.Sub(ended) < memoryPause {
				continue
			}
			runtime.GC()
			if heap = heapBytes(); heap < s.o.MemoryLimit {
				continue
			}
			if s.endLargest(heap, now) {
				ended = time.Now()
			}
		}
	}
}

// endLargest ends the statement during which the heap grew fastest.
func (s *Server) endLargest(heap int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var worst *run
	var rate float64
	for _, r := range s.running {
		age := now.Sub(r.began)
		if age < memoryYouth || r.load {
			continue
		}
		if g := float64(heap-r.heap) / age.Seconds(); worst == nil || g > rate {
			worst, rate = r, g
		}
	}
	if worst == nil {
		return false
	}
	s.Metrics.MemoryEndedTotal.Add(1)
	s.log.Error("memory is short: a statement is ended", "heap", heap, "limit", s.o.MemoryLimit, "ran", now.Sub(worst.began))
	worst.cancel(outOfMemory(heap, s.o.MemoryLimit))
	return true
}

func outOfMemory(heap, limit int64) error {
	return mysql.NewSQLError(1041, "HY000", "%s", fmt.Sprintf("Out of memory; the server holds %d MiB, its limit is %d MiB: the statement was ended. Have it sort or join fewer rows, or raise --memory-limit", heap>>20, limit>>20))
}

// isLoad tells whether a statement's text begins as LOAD DATA does.
func isLoad(text string) bool {
	f := strings.Fields(text[:min(len(text), 64)])
	return len(f) > 0 && strings.EqualFold(f[0], "LOAD")
}

// Status gives the server's numbers by names for status variables.
func (s *Server) Status() map[string]int64 {
	m := &s.Metrics
	s.mu.Lock()
	conns := int64(len(s.conns))
	s.mu.Unlock()
	return map[string]int64{
		"connections": conns, "connections_limit": int64(s.o.MaxConnections), "connections_total": m.ConnectionsTotal.Load(),
		"statements": m.StatementsTotal.Load(), "statements_running": m.StatementsRunning.Load(), "statement_errors": m.ErrorsTotal.Load(),
		"statement_reruns": m.RerunsTotal.Load(), "statement_panics": m.PanicsTotal.Load(), "rows_sent": m.RowsSentTotal.Load(),
		"load_rows": m.LoadRowsTotal.Load(), "statements_ended_for_memory": m.MemoryEndedTotal.Load(),
		"heap_bytes": heapBytes(), "heap_bytes_limit": s.o.MemoryLimit, "goroutines": int64(runtime.NumGoroutine()),
	}
}
