package catalog

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sorter puts changes into the order of their keys in bounded memory: what is too much waits in files, each of them sorted. Of several
// changes of one key the last one counts.
type sorter struct {
	c    *Catalog
	path string // of its files, without their numbers

	list  []op
	mem   arena
	bytes int
	files []string
}

// op is a change of a key.
type op struct {
	key, value string
	del        bool
}

// sorterBytes is how much of a sorter waits in memory. Tests lower it.
var sorterBytes = 16 << 20

func newSorter(c *Catalog, path string) *sorter { return &sorter{c: c, path: path} }

func (s *sorter) add(key, value []byte, del bool) error {
	s.list = append(s.list, op{textView(s.mem.keep(key)), textView(s.mem.keep(value)), del})
	if s.bytes += len(key) + len(value) + 48; s.bytes >= sorterBytes {
		return s.spill()
	}
	return nil
}

// settle sorts what is in memory and keeps the last change of each key.
func (s *sorter) settle() {
	byKey := func(a, b op) int { return strings.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(s.list, byKey) {
		slices.SortStableFunc(s.list, byKey)
	}
	out := s.list[:0]
	for i := range s.list {
		if i+1 == len(s.list) || s.list[i+1].key != s.list[i].key {
			out = append(out, s.list[i])
		}
	}
	clear(s.list[len(out):])
	s.list = out
}

// spill writes what is in memory to a file.
//
//	key length <uvarint> | key | value length, shifted left by one, and whether the key goes <uvarint> | value
func (s *sorter) spill() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("spill changes: %w", err)
		}
	}()
	s.settle()
	path := s.path + "-" + strconv.Itoa(len(s.files))
	if err := s.c.fs.MkdirAll(s.c.fs.PathDir(path), 0o755); err != nil {
		return err
	}
	f, err := s.c.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	s.files = append(s.files, path)
	w := bufio.NewWriterSize(f, 256<<10)
	var head []byte
	for i := range s.list {
		o := &s.list[i]
		head = append(binary.AppendUvarint(head[:0], uint64(len(o.key))), o.key...)
		n := uint64(len(o.value)) << 1
		if o.del {
			n |= 1
		}
		if _, err := w.Write(binary.AppendUvarint(head, n)); err != nil {
			return firstError(err, f.Close())
		}
		if _, err := w.WriteString(o.value); err != nil {
			return firstError(err, f.Close())
		}
	}
	if err := firstError(w.Flush(), f.Close()); err != nil {
		return err
	}
	clear(s.list)
	s.list, s.mem, s.bytes = s.list[:0], arena{}, 0
	return nil
}

// read begins to read the changes in order; nothing is added afterwards.
func (s *sorter) read() (*sortReader, error) {
	s.settle()
	r := &sortReader{}
	for i, path := range s.files {
		f, err := s.c.fs.Open(path)
		if err != nil {
			return nil, firstError(fmt.Errorf("read spilled changes: %w", err), r.close())
		}
		run := &sortRun{nth: i, f: f, r: bufio.NewReaderSize(f, 64<<10)}
		r.open = append(r.open, run)
		if ok, err := run.next(); err != nil {
			return nil, firstError(err, r.close())
		} else if ok {
			r.heap = append(r.heap, run)
		}
	}
	if len(s.list) > 0 {
		run := &sortRun{nth: len(s.files), list: s.list}
		if ok, _ := run.next(); ok {
			r.heap = append(r.heap, run)
		}
	}
	heap.Init(&r.heap)
	return r, r.next()
}

// close removes the files.
func (s *sorter) close() error {
	var first error
	for _, path := range s.files {
		first = firstError(first, s.c.fs.Remove(path))
	}
	s.list, s.mem, s.files = nil, arena{}, nil
	return first
}

// sortReader stands at one change after the other.
type sortReader struct {
	cur  op // its texts are valid until the next call of next
	ok   bool
	heap sortHeap
	open []*sortRun
	last *sortRun // whose change cur is
}

// next goes to the next change; ok is false behind the last.
func (r *sortReader) next() error {
	for {
		if l := r.last; l != nil {
			r.last = nil
			more, err := l.next()
			if err != nil {
				r.ok = false
				return err
			}
			if more {
				heap.Push(&r.heap, l)
			}
		}
		if len(r.heap) == 0 {
			r.ok = false
			return nil
		}
		r.last, _ = heap.Pop(&r.heap).(*sortRun)
		// Of one key, the newest change stands last.
		if len(r.heap) == 0 || r.heap[0].cur.key != r.last.cur.key {
			r.cur, r.ok = r.last.cur, true
			return nil
		}
	}
}

func (r *sortReader) close() error {
	var first error
	for _, run := range r.open {
		first = firstError(first, run.f.Close())
	}
	r.open, r.heap, r.last, r.ok = nil, nil, nil, false
	return first
}

// sortRun is a file of a sorter, or what is in memory.
type sortRun struct {
	nth  int
	cur  op
	list []op
	f    vfs.File
	r    *bufio.Reader
	buf  []byte
}

func (r *sortRun) next() (bool, error) {
	if r.f == nil {
		if len(r.list) == 0 {
			return false, nil
		}
		r.cur, r.list = r.list[0], r.list[1:]
		return true, nil
	}
	k, err := binary.ReadUvarint(r.r)
	if err == io.EOF {
		return false, nil
	}
	fail := func(err error) (bool, error) { return false, fmt.Errorf("read spilled changes: %w", err) }
	if err != nil {
		return fail(err)
	}
	r.buf = slices.Grow(r.buf[:0], int(k))[:k]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return fail(err)
	}
	v, err := binary.ReadUvarint(r.r)
	if err != nil {
		return fail(err)
	}
	r.buf = slices.Grow(r.buf, int(v>>1))[:k+v>>1]
	if _, err := io.ReadFull(r.r, r.buf[k:]); err != nil {
		return fail(err)
	}
	r.cur = op{textView(r.buf[:k]), textView(r.buf[k:]), v&1 == 1}
	return true, nil
}

type sortHeap []*sortRun

func (h sortHeap) Len() int { return len(h) }
func (h sortHeap) Less(i, j int) bool {
	if c := strings.Compare(h[i].cur.key, h[j].cur.key); c != 0 {
		return c < 0
	}
	return h[i].nth < h[j].nth
}
func (h sortHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *sortHeap) Push(x any) {
	r, _ := x.(*sortRun)
	*h = append(*h, r)
}

func (h *sortHeap) Pop() any {
	n := len(*h)
	x := (*h)[n-1]
	*h = (*h)[:n-1]
	return x
}
