package catalog

import (
	"container/heap"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lakesql/lakesql/index"
)

// Scans of the hot tier, and of the past that only the journal has, need the newest row of each key among the commits of a span.
// What a span comes to never changes, so it is kept in runs: each holds the rows of adjacent commits by key, and a scan merges the
// runs up to its time and reads the few commits behind them.

// hotRow is the newest row that the commits of a run give a key, or its deletion.
type hotRow struct {
	ikey   string // points into packet
	packet []byte
	seq    index.Seq
}

func (r *hotRow) del() bool { return r.packet[0]&packetDelete != 0 }

func (r *hotRow) decoded() packetRow {
	p, err := viewPacket(r.packet)
	if err != nil {
		panic(err) // hotRuns has decoded it
	}
	return p
}

// hotRun is the outcome of commits up to a sequence, behind those of the run before it. It does not change.
type hotRun struct {
	to    index.Seq
	rows  []hotRow // by key
	moved []string // record keys, as dropKey makes them, that rows had which newer ones of the run replaced
	bytes int64
}

// hotChain is the runs of the commits after a sequence.
type hotChain struct {
	from  index.Seq
	runs  []*hotRun
	bytes int64
}

// hotCache keeps the chains of a table that were used last: that of the present, and that of the past before the last flush.
type hotCache struct {
	mu     sync.Mutex
	chains []hotChain // guarded by mu; the one that was used last is last
	bytes  int64      // guarded by mu
	over   index.Seq  // guarded by mu; the chain after the sequence before it is too long to be kept
}

const (
	runRows       = 16 << 10 // adjacent runs below this are made one
	chainsMax     = 2
	tableRunBytes = 40 << 20 // what is kept for one table; above it the journal is read by each scan
	allRunBytes   = 64 << 20 // what is kept for all
)

// take gives the runs after a sequence that end at or before another; whole: no further ones are kept.
func (h *hotCache) take(from, to index.Seq) (runs []*hotRun, whole, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.chains {
		if c := h.chains[i]; c.from == from {
			h.chains = append(append(h.chains[:i:i], h.chains[i+1:]...), c)
			n := len(c.runs)
			for n > 0 && c.runs[n-1].to > to {
				n--
			}
			return c.runs[:n:n], n == len(c.runs), false
		}
	}
	return nil, true, h.over == from+1
}

// put keeps a longer chain. It is dropped if another scan has made a longer one meanwhile. False: all tables together have no room for it.
func (h *hotCache) put(from index.Seq, runs []*hotRun, total *atomic.Int64) bool {
	next := hotChain{from: from, runs: runs}
	for _, r := range runs {
		next.bytes += r.bytes
	}
	if next.bytes > tableRunBytes {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if total.Load()-h.bytes+next.bytes > allRunBytes {
		return false
	}
	before := h.bytes
	for i := range h.chains {
		if h.chains[i].from == from {
			if last := h.chains[i].runs; len(last) > 0 && last[len(last)-1].to >= runs[len(runs)-1].to {
				return true
			}
			h.bytes -= h.chains[i].bytes
			h.chains = slices.Delete(slices.Clone(h.chains), i, i+1)
			break
		}
	}
	h.chains = append(h.chains, next)
	h.bytes += next.bytes
	for len(h.chains) > chainsMax || h.bytes > tableRunBytes {
		h.bytes -= h.chains[0].bytes
		h.chains = slices.Clone(h.chains[1:])
	}
	total.Add(h.bytes - before)
	return true
}

// clear gives up all.
func (h *hotCache) clear(total *atomic.Int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	total.Add(-h.bytes)
	h.chains, h.bytes = nil, 0
}

// hotRuns gives the runs of the commits in (from, to]. With a limit in bytes above 0 it gives up at it: ok is false then.
func (s *snapshot) hotRuns(tt *tableView, from, to index.Seq, limit int64) (runs []*hotRun, ok bool, err error) {
	t, c := tt.t, s.c
	runs, whole, over := t.runs.take(from, to)
	limited := limit > 0
	if limited && over {
		return nil, false, nil
	}
	last := from
	for _, r := range runs {
		last, limit = r.to, limit-r.bytes
	}
	if to <= last || index.Seq(t.lastSeq.Load()) <= last {
		return runs, true, nil
	}
	next := &hotRun{}
	var bytes int64
	var mem arena
	done := func(to index.Seq) {
		if len(next.rows) > 0 {
			next.to = to
			next.settle(tt.def)
			runs, next = append(runs, next), &hotRun{}
		}
	}
	err = eachRaw(s.p, t.id, last, to, func(seq index.Seq, _ uint32, raw []byte) error {
		if n := len(next.rows); n >= runRows && next.rows[n-1].seq != seq { // times between are read without what came after them
			done(next.rows[n-1].seq)
		}
		r := hotRow{packet: barePacket(&mem, raw), seq: seq}
		p, err := viewPacket(r.packet)
		if err != nil {
			return err
		}
		r.ikey = textView(p.ikey)
		next.rows = append(next.rows, r)
		next.bytes += int64(len(r.packet)) + 48
		if p.coldKey != "" {
			next.moved = append(next.moved, tt.def.dropKey(p.part, p.coldKey))
		}
		if bytes += int64(len(r.packet)) + 48; limited && bytes > limit {
			return errRunTooLarge
		}
		return nil
	})
	if errors.Is(err, errRunTooLarge) {
		t.runs.mu.Lock()
		t.runs.over = from + 1
		t.runs.mu.Unlock()
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	had := len(runs)
	if done(to); len(runs) == had {
		return runs, true, nil
	}
	if whole {
		for n := len(runs); n > 1 && len(runs[n-1].rows)+len(runs[n-2].rows) < runRows; n = len(runs) {
			runs = append(runs[:n-2:n-2], mergeRuns(tt.def, runs[n-2], runs[n-1]))
		}
		if !t.runs.put(from, runs, &c.runBytes) {
			for _, o := range c.tablesByID() { // this table is in use, others may not be
				if o != t {
					o.runs.clear(&c.runBytes)
				}
			}
			t.runs.put(from, runs, &c.runBytes)
		}
	}
	return runs, true, nil
}

var errRunTooLarge = errors.New("catalog: too many rows to keep")

// settle sorts the rows of a run, which come by commit, and keeps the newest of each key.
func (r *hotRun) settle(d *tableDef) {
	byKey := func(a, b hotRow) int { // a commit has one row of a key
		if c := strings.Compare(a.ikey, b.ikey); c != 0 {
			return c
		}
		return cmp(int64(a.seq), int64(b.seq))
	}
	if !slices.IsSortedFunc(r.rows, byKey) {
		slices.SortFunc(r.rows, byKey)
	}
	out := r.rows[:0]
	for i, row := range r.rows {
		if i+1 < len(r.rows) && r.rows[i+1].ikey == row.ikey {
			r.replaced(d, &r.rows[i+1], &row)
			continue
		}
		out = append(out, row)
	}
	clear(r.rows[len(out):])
	r.rows = out
}

// replaced notes the record key of a row whose successor has another one.
func (r *hotRun) replaced(d *tableDef, by, old *hotRow) {
	a, b := by.decoded(), old.decoded()
	if k := d.dropKey(b.part, b.key); k != d.dropKey(a.part, a.key) {
		r.moved = append(r.moved, k)
	}
}

func mergeRuns(d *tableDef, a, b *hotRun) *hotRun {
	out := &hotRun{to: b.to, rows: make([]hotRow, 0, len(a.rows)+len(b.rows)), moved: slices.Concat(a.moved, b.moved)}
	i, j := 0, 0
	for i < len(a.rows) || j < len(b.rows) {
		c := -1
		if i == len(a.rows) {
			c = 1
		} else if j < len(b.rows) {
			c = strings.Compare(a.rows[i].ikey, b.rows[j].ikey)
		}
		row := hotRow{}
		switch {
		case c < 0:
			row = a.rows[i]
			i++
		case c > 0:
			row = b.rows[j]
			j++
		default:
			row = b.rows[j]
			out.replaced(d, &row, &a.rows[i])
			i++
			j++
		}
		out.rows = append(out.rows, row)
		out.bytes += int64(len(row.packet)) + 48
	}
	return out
}

// runCursor is a place in a run; nth orders runs by age.
type runCursor struct {
	rows []hotRow
	nth  int
}

type runHeap []runCursor

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	if c := strings.Compare(h[i].rows[0].ikey, h[j].rows[0].ikey); c != 0 {
		return c < 0
	}
	return h[i].nth > h[j].nth
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(runCursor)) }
func (h *runHeap) Pop() any {
	n := len(*h)
	x := (*h)[n-1]
	*h = (*h)[:n-1]
	return x
}

// eachRow calls f for the newest row of each key, deletions too, in the order of the keys, until it answers false.
func eachRow(runs []*hotRun, f func(*hotRow) bool) bool {
	var h runHeap
	for i, r := range runs {
		if len(r.rows) > 0 {
			h = append(h, runCursor{r.rows, i})
		}
	}
	heap.Init(&h)
	last, seen := "", false
	for len(h) > 0 {
		c := &h[0]
		row := &c.rows[0]
		if !seen || row.ikey != last {
			last, seen = row.ikey, true
			if !f(row) {
				return false
			}
		}
		if c.rows = c.rows[1:]; len(c.rows) == 0 {
			heap.Pop(&h)
		} else if len(h) > 1 {
			heap.Fix(&h, 0)
		}
	}
	return true
}

// runKeys gives the record keys that rows of the runs have or had: what the files show of them is outdated.
func runKeys(d *tableDef, runs []*hotRun) map[string]bool {
	keys := map[string]bool{}
	for _, r := range runs {
		for i := range r.rows {
			p := r.rows[i].decoded()
			keys[d.dropKey(p.part, p.key)] = true
		}
		for _, k := range r.moved {
			keys[k] = true
		}
	}
	return keys
}
