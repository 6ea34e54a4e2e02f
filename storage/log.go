package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
)

func op32(dst []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
}

func op64(dst []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
}

// logGrowMax bounds the memory taken ahead of the records of a block.
const logGrowMax = 64 << 20

// logWholeMax is the size up to which a log file is read in one piece.
const logWholeMax = 8 << 20

// ReadLog gives the blocks of a log file in order. Bytes that are no whole block (a torn write) come as a block of type
// BlockCorrupt, as the format demands, and reading goes on at the next magic; a file that does not begin with a magic, or
// a whole block whose inner lengths disagree, is a *CorruptError. An empty file has no blocks.
func ReadLog(ctx context.Context, s Store, name string) iter.Seq2[LogBlock, error] {
	return func(yield func(LogBlock, error) bool) {
		o, err := s.Open(ctx, name)
		if err != nil {
			yield(LogBlock{}, fmt.Errorf("reading log %s: %w", name, err))
			return
		}
		defer o.Close()
		l, err := newLogScanner(name, o, o.Size())
		for err == nil {
			if err = ctx.Err(); err != nil {
				break
			}
			var b LogBlock
			if b, err = l.next(); err == nil && !yield(b, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(LogBlock{}, err)
		}
	}
}

// logScanner walks over the blocks of a log file.
type logScanner struct {
	name  string
	r     io.ReaderAt
	size  int64
	pos   int64
	whole []byte // the file, if it is small
}

func newLogScanner(name string, r io.ReaderAt, size int64) (*logScanner, error) {
	l := &logScanner{name: name, r: r, size: size}
	if size > 0 && size <= logWholeMax {
		var err error
		l.whole, err = l.at(0, size)
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// at reads bytes that the file must have.
func (l *logScanner) at(off, n int64) ([]byte, error) {
	if l.whole != nil {
		return l.whole[off : off+n : off+n], nil
	}
	b := make([]byte, n)
	if k, err := l.r.ReadAt(b, off); int64(k) < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading log %s: %w", l.name, err)
	}
	return b, nil
}

func (l *logScanner) corrupt(off int64, err error) error {
	return &CorruptError{Name: l.name, Offset: off, Err: err}
}

// next gives the next block, io.EOF behind the last one.
func (l *logScanner) next() (LogBlock, error) {
	start := l.pos
	rest := l.size - start
	if rest == 0 {
		return LogBlock{}, io.EOF
	}
	magic, err := l.at(start, min(rest, int64(len(logMagic))))
	if err != nil {
		return LogBlock{}, err
	}
	if string(magic) != logMagic {
		if rest >= int64(len(logMagic)) || start == 0 && !strings.HasPrefix(logMagic, string(magic)) {
			return LogBlock{}, l.corrupt(start, errors.New("no log block begins here"))
		}
		// A write that was torn within the magic.
		l.pos = l.size
		return LogBlock{Type: BlockCorrupt, Offset: start, Size: rest, name: l.name}, nil
	}
	size, ok, err := l.wholeBlock(start)
	if err != nil {
		return LogBlock{}, err
	}
	if !ok {
		end, err := l.findMagic(start + int64(len(logMagic)))
		if err != nil {
			return LogBlock{}, err
		}
		l.pos = end
		return LogBlock{Type: BlockCorrupt, Offset: start, Size: end - start, name: l.name}, nil
	}
	b, err := l.parse(start, size)
	if err != nil {
		return LogBlock{}, err
	}
	l.pos = start + 14 + size
	return b, nil
}

// wholeBlock tells whether the block at start is whole: its size leads to a trailer that says the same, and behind that
// is a magic or the end of the file.
func (l *logScanner) wholeBlock(start int64) (size int64, ok bool, err error) {
	body := start + 14
	if body > l.size {
		return 0, false, nil
	}
	b, err := l.at(start+6, 8)
	if err != nil {
		return 0, false, err
	}
	size = int64(binary.BigEndian.Uint64(b))
	if size < 8 || size > l.size-body {
		return 0, false, nil
	}
	if b, err = l.at(body+size-8, 8); err != nil {
		return 0, false, err
	}
	if int64(binary.BigEndian.Uint64(b)) != size+6 {
		return 0, false, nil
	}
	if l.size-(body+size) >= int64(len(logMagic)) {
		if b, err = l.at(body+size, int64(len(logMagic))); err != nil {
			return 0, false, err
		}
		if string(b) != logMagic {
			return 0, false, nil
		}
	}
	return size, true, nil
}

// findMagic gives the offset of the first magic at or behind from, or the end of the file.
func (l *logScanner) findMagic(from int64) (int64, error) {
	const window = 1 << 20
	for from < l.size {
		n := min(l.size-from, window)
		b, err := l.at(from, n)
		if err != nil {
			return 0, err
		}
		if i := strings.Index(textOf(b), logMagic); i >= 0 {
			return from + int64(i), nil
		}
		if from+n == l.size {
			break
		}
		from += n - int64(len(logMagic)-1) // a magic may lie across two windows
	}
	return l.size, nil
}

// parse reads the head of a whole block of which size bytes follow the size field.
func (l *logScanner) parse(start, size int64) (LogBlock, error) {
	b := LogBlock{Offset: start, Size: size + 14, name: l.name}
	short := func() (LogBlock, error) { return b, l.corrupt(start, errors.New("lengths within the block disagree")) }
	head, err := l.at(start+14, min(size-8, 64<<10))
	if err != nil {
		return b, err
	}
	if len(head) < 4 {
		return short()
	}
	if v := binary.BigEndian.Uint32(head); v != logFormatVersion {
		return b, fmt.Errorf("%s: %w: log format version %d", l.name, ErrUnsupported, v)
	}
	if size < blockSizeMin {
		return short()
	}
	b.Type = BlockType(binary.BigEndian.Uint32(head[4:]))
	n, fit, err := b.parseHeader(head[8:])
	if !fit && int64(len(head)) < size-8 {
		// A schema may be larger than the bytes at hand.
		if head, err = l.at(start+14, size-8); err != nil {
			return b, err
		}
		n, fit, err = b.parseHeader(head[8:])
	}
	if err != nil {
		return b, l.corrupt(start, err)
	}
	if !fit {
		return short()
	}
	at := 8 + int64(n)
	if at+8+4+8 > size {
		return short()
	}
	lb, err := l.at(start+14+at, 8)
	if err != nil {
		return b, err
	}
	length := int64(binary.BigEndian.Uint64(lb))
	if length < 0 || length > size-at-8-4-8 {
		return short()
	}
	from := start + 14 + at + 8
	footer, err := l.at(from+length, size-at-8-length-8)
	if err != nil {
		return b, err
	}
	if n, fit, err := new(LogBlock).parseHeader(footer); err != nil || !fit || n != len(footer) {
		return short()
	}
	b.content = func() ([]byte, error) { return l.at(from, length) }
	return b, nil
}

// parseHeader reads a header map from the front of h; fit is false if h ends before the map does.
func (b *LogBlock) parseHeader(h []byte) (n int, fit bool, err error) {
	if len(h) < 4 {
		return 0, false, nil
	}
	count := int32(binary.BigEndian.Uint32(h))
	if count < 0 {
		return 0, false, fmt.Errorf("header of %d entries", count)
	}
	n = 4
	for range count {
		if len(h)-n < 8 {
			return 0, false, nil
		}
		key, size := binary.BigEndian.Uint32(h[n:]), int32(binary.BigEndian.Uint32(h[n+4:]))
		if size < 0 {
			return 0, false, fmt.Errorf("header entry of %d bytes", size)
		}
		n += 8
		if int(size) > len(h)-n {
			return 0, false, nil
		}
		text := string(h[n : n+int(size)])
		n += int(size)
		switch key {
		case headerInstant:
			b.Instant = InstantTime(text)
		case headerTarget:
			b.Target = InstantTime(text)
		case headerSchema:
			b.Schema = text
		case headerCommand:
			if text != commandRollback {
				return 0, false, fmt.Errorf("command %q", text)
			}
		case headerCompactedTime:
			b.Compacted = text
		case headerPartial:
			b.Partial = strings.EqualFold(text, "true")
		}
	}
	return n, true, nil
}

// LogRecord is one row for a log.
type LogRecord struct {
	RowMeta
	Row Row // the table's columns
}

// LogStats says what WriteLog wrote.
type LogStats struct {
	Bytes  int64 // size of the file
	Blocks int
	Sum    uint32 // CRC-32C of the file
}

// WriteLog writes a log file of one instant: a data block of the rows, then a delete block, each only if it has
// something to hold. The rows are of the table's columns in schema. The file is durable on return; ErrExist if the name
// is taken.
func WriteLog(ctx context.Context, s Store, name string, instant InstantTime, schema *Schema, id FileID, puts []LogRecord, dels []LogDelete) (LogStats, error) {
	file, blocks, err := encodeLog(instant, schema, id, puts, dels)
	if err != nil {
		return LogStats{}, fmt.Errorf("writing log %s: %w", name, err)
	}
	st := LogStats{Bytes: int64(len(file)), Blocks: blocks, Sum: crc32.Checksum(file, castagnoli)} // the writer may change the buffer
	w, err := s.Create(ctx, name)
	if err != nil {
		return LogStats{}, fmt.Errorf("writing log %s: %w", name, err)
	}
	if _, err := w.Write(file); err != nil {
		return LogStats{}, fmt.Errorf("writing log %s: %w", name, errors.Join(err, w.Abort()))
	}
	if err := w.Commit(); err != nil {
		return LogStats{}, fmt.Errorf("writing log %s: %w", name, err)
	}
	return st, nil
}

func encodeLog(instant InstantTime, schema *Schema, id FileID, puts []LogRecord, dels []LogDelete) (file []byte, blocks int, err error) {
	text := schema.Avro(true)
	if len(puts) > 0 {
		enc, err := newRecordEncoder(text, schema)
		if err != nil {
			return nil, 0, err
		}
		w := beginBlock(file, BlockAvro, instant, text)
		w.u32(dataVersion)
		w.u32(uint32(len(puts)))
		for i := range puts {
			at := len(w.b)
			w.u32(0)
			if w.b, err = enc.record(w.b, &puts[i], string(id)); err != nil {
				return nil, 0, fmt.Errorf("record %q: %w", puts[i].Key, err)
			}
			n := len(w.b) - at - 4
			if n > math.MaxInt32 {
				return nil, 0, fmt.Errorf("record %q: %w: a record of %d bytes", puts[i].Key, ErrUnsupported, n)
			}
			binary.BigEndian.PutUint32(w.b[at:], uint32(n))
			if i == 0 {
				// The other records are likely of about this size.
				w.b = slices.Grow(w.b, min(len(puts)*(n+n/8+4), logGrowMax))
			}
		}
		file = w.end()
		blocks++
	}
	if len(dels) > 0 {
		w := beginBlock(file, BlockDelete, instant, text)
		w.u32(deleteVersion)
		at := len(w.b)
		w.u32(0)
		w.b = appendVar(w.b, int64(len(dels)))
		for i := range dels {
			if w.b, err = appendDelete(w.b, &dels[i]); err != nil {
				return nil, 0, fmt.Errorf("delete of %q: %w", dels[i].Key, err)
			}
		}
		w.b = append(w.b, 0)
		n := len(w.b) - at - 4
		if n > math.MaxInt32 {
			return nil, 0, fmt.Errorf("%w: a delete block of %d bytes", ErrUnsupported, n)
		}
		binary.BigEndian.PutUint32(w.b[at:], uint32(n))
		file = w.end()
		blocks++
	}
	return file, blocks, nil
}

// blockWriter appends one block to a file image.
type blockWriter struct {
	b              []byte
	start, content int
}

func beginBlock(file []byte, t BlockType, instant InstantTime, schema string) *blockWriter {
	w := &blockWriter{b: append(file, logMagic...), start: len(file)}
	w.u64(0)
	w.u32(logFormatVersion)
	w.u32(uint32(t))
	w.u32(2)
	w.entry(headerInstant, string(instant))
	w.entry(headerSchema, schema)
	w.u64(0)
	w.content = len(w.b)
	return w
}

func (w *blockWriter) u32(x uint32) { w.b = binary.BigEndian.AppendUint32(w.b, x) }
func (w *blockWriter) u64(x uint64) { w.b = binary.BigEndian.AppendUint64(w.b, x) }

func (w *blockWriter) entry(key uint32, text string) {
	w.u32(key)
	w.u32(uint32(len(text)))
	w.b = append(w.b, text...)
}

func (w *blockWriter) end() []byte {
	binary.BigEndian.PutUint64(w.b[w.content-8:], uint64(len(w.b)-w.content))
	w.u32(0) // footer map
	total := uint64(len(w.b) - w.start)
	w.u64(total)
	binary.BigEndian.PutUint64(w.b[w.start+6:], total-6)
	return w.b
}
