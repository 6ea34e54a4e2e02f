package catalog

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/storage"
)

// partSpill holds rows of partitions that have no open file until their turn comes: rows that come in no order of their partitions
// must neither keep a writer for each open nor end in very many small files.
type partSpill struct {
	fs    vfs.FS
	path  string
	f     vfs.File
	size  int64
	parts map[string]*spillPart
	bytes int   // in memory
	rows  int64 // numbered
	dead  map[int64]bool
}

type spillPart struct {
	buf  []byte
	segs []spillSeg
}

type spillSeg struct {
	off int64
	len int
}

// spillBytes is how much of a spill waits in memory. Tests lower it.
var spillBytes = 16 << 20

// toSpill keeps a row for later.
//
//	number <uvarint> | record key <uvarint length, bytes> | index key <same> | index values <same> | row (Avro) <same>
func (r *stagedRun) toSpill(row storage.Row, key, part string, ikey []byte) error {
	s := r.spill
	if s == nil {
		s = &partSpill{fs: r.s.c.fs, path: r.keys.dir + "-rows", parts: map[string]*spillPart{}, dead: map[int64]bool{}}
		r.spill = s
	}
	b, err := storage.EncodeRow(r.s.d.spec.Schema, row, nil)
	if err != nil {
		return fmt.Errorf("row of %s: %w", r.s.d, err)
	}
	p := s.parts[part]
	if p == nil {
		p = &spillPart{}
		s.parts[part] = p
	}
	from := len(p.buf)
	p.buf = binary.AppendUvarint(p.buf, uint64(s.rows))
	for _, x := range [][]byte{bytesView(key), ikey, r.hint, b} {
		p.buf = append(binary.AppendUvarint(p.buf, uint64(len(x))), x...)
	}
	s.bytes += len(p.buf) - from
	at := place{file: -1, row: s.rows, key: key, hints: textView(r.hint)}
	s.rows++
	r.rows++
	r.buf = at.append(r.buf[:0])
	if err := r.keys.set(ikey, r.buf); err != nil {
		return err
	}
	if s.bytes < spillBytes {
		return nil
	}
	return s.flush()
}

// flush writes what is in memory to the file.
func (s *partSpill) flush() (err error) {
	if s.f == nil {
		if err := s.fs.MkdirAll(s.fs.PathDir(s.path), 0o755); err != nil {
			return err
		}
		if s.f, err = s.fs.OpenReadWrite(s.path, vfs.WriteCategoryUnspecified); err != nil {
			return err
		}
	}
	for _, part := range sortedKeys(s.parts) {
		p := s.parts[part]
		if len(p.buf) == 0 {
			continue
		}
		n := len(p.buf)
		if _, err := s.f.Write(p.buf); err != nil {
			return fmt.Errorf("spill rows: %w", err)
		}
		p.segs = append(p.segs, spillSeg{s.size, n})
		s.size += int64(n)
		p.buf = nil
	}
	s.bytes = 0
	return nil
}

// drain writes the rows of the spill into files, one partition after the other.
func (r *stagedRun) drain(ctx context.Context) error {
	s := r.spill
	if s == nil {
		return nil
	}
	d := r.s.d
	rows := func(part string, b []byte) error {
		dec := decoder{b: b}
		for len(dec.b) > 0 {
			n := int64(dec.uvarint())
			key, ikey, hint, enc := string(dec.bytes()), dec.bytes(), dec.bytes(), dec.bytes()
			if dec.bad {
				return fmt.Errorf("spilled rows of %s are damaged", d)
			}
			if s.dead[n] {
				continue
			}
			row, err := d.decodeRow(len(d.schemas)-1, enc)
			if err != nil {
				return err
			}
			r.rows-- // write counts it again
			r.hint = append(r.hint[:0], hint...)
			if err := r.write(ctx, row, key, part, ikey); err != nil {
				return err
			}
		}
		return nil
	}
	for _, part := range sortedKeys(s.parts) {
		p := s.parts[part]
		for _, seg := range p.segs {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			b := make([]byte, seg.len)
			if _, err := s.f.ReadAt(b, seg.off); err != nil && err != io.EOF {
				return fmt.Errorf("read spilled rows: %w", err)
			}
			if err := rows(part, b); err != nil {
				return err
			}
		}
		if err := rows(part, p.buf); err != nil {
			return err
		}
		if f := r.open[part]; f != nil {
			if err := r.closeFile(ctx, f); err != nil {
				return err
			}
		}
		delete(s.parts, part)
	}
	r.spill = nil
	return s.close()
}

func (s *partSpill) close() error {
	if s.f == nil {
		return nil
	}
	f := s.f
	s.f = nil
	return firstError(f.Close(), s.fs.Remove(s.path))
}
