package hfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/klauspost/compress/gzip"
)

// Options say how a file is written. The zero value writes as Hudi does by default.
type Options struct {
	// Compression of the blocks; default GZ.
	Compression Compression
	// BlockBytes is the uncompressed size at which a data block is closed; default 64 KiB, as HBase and Hudi have it.
	BlockBytes int
	// IndexBytes is the uncompressed size at which a block of the index is closed, which gives an index of a file of many
	// blocks more levels; default 0: one level, which is what Hudi's own writer makes and all its readers take.
	IndexBytes int
}

// KeyMax is the longest key of an HFile in bytes.
const KeyMax = math.MaxInt16

// Writer writes one HFile. Keys must come in strictly rising order. After an error the file is of no use.
type Writer struct {
	out     io.Writer
	opts    Options
	offset  int64 // bytes written
	content int64 // uncompressed bytes of the blocks written, with headers
	cells   []byte
	first   []byte // first key of the data block being filled
	last    []byte
	buf     []byte // one encoded block
	z       *gzip.Writer
	index   []level // from the data up; index[0] names data blocks
	meta    map[string][]byte
	info    map[string][]byte
	before  map[string]int64 // offset of the last block of each kind
	trailer trailer
	keys    int64 // bytes of all cell keys
	values  int64
}

// level collects the entries of one level of the index.
type level struct {
	entries []indexEntry
	size    int // bytes of the block that the entries make
}

// NewWriter begins a file on out.
func NewWriter(out io.Writer, opts Options) *Writer {
	if opts.Compression == 0 {
		opts.Compression = GZ
	}
	if opts.BlockBytes == 0 {
		opts.BlockBytes = 64 << 10
	}
	return &Writer{
		out: out, opts: opts, index: make([]level, 1), meta: map[string][]byte{}, info: map[string][]byte{}, before: map[string]int64{},
		trailer: trailer{firstData: -1, lastData: -1, comparator: comparatorOfHudi, compression: opts.Compression},
	}
}

// Put appends an entry. Neither slice is kept.
func (w *Writer) Put(key, value []byte) error {
	switch {
	case len(key) > KeyMax:
		return fmt.Errorf("key of %d bytes: an HFile takes %d", len(key), KeyMax)
	case w.trailer.entries > 0 && bytes.Compare(key, w.last) <= 0:
		return fmt.Errorf("key %q does not come behind %q", key, w.last)
	case len(value) > math.MaxInt32-KeyMax-headerSize-64:
		return fmt.Errorf("value of %d bytes is too long for an HFile", len(value))
	}
	size := 8 + 2 + len(key) + len(keyTail) + len(value) + 1
	if len(w.cells) > 0 && len(w.cells)+size > w.opts.BlockBytes {
		if err := w.closeData(); err != nil {
			return err
		}
	}
	if len(w.cells) == 0 {
		w.first = append(w.first[:0], key...)
	}
	w.last = append(w.last[:0], key...)
	w.cells = binary.BigEndian.AppendUint32(w.cells, uint32(2+len(key)+len(keyTail)))
	w.cells = binary.BigEndian.AppendUint32(w.cells, uint32(len(value)))
	w.cells = appendCellKey(w.cells, key)
	w.cells = append(append(w.cells, value...), 0) // version 0
	w.trailer.entries++
	w.keys += int64(2 + len(key) + len(keyTail))
	w.values += int64(len(value))
	return nil
}

// Info adds an item to the file info.
func (w *Writer) Info(name string, value []byte) { w.info[name] = bytes.Clone(value) }

// Meta adds a meta block.
func (w *Writer) Meta(name string, content []byte) { w.meta[name] = bytes.Clone(content) }

// Close writes what is left of the file; it does not close the destination.
func (w *Writer) Close() error {
	if err := w.closeData(); err != nil {
		return err
	}
	// Meta blocks and inner blocks of the index stand in front of the part that is read when the file is opened.
	var metaIndex []byte
	for _, name := range slices.Sorted(maps.Keys(w.meta)) {
		offset, size, err := w.block(magicMeta, w.meta[name])
		if err != nil {
			return err
		}
		metaIndex = appendRootEntry(metaIndex, indexEntry{offset: offset, size: size}, []byte(name))
		w.trailer.metaEntries++
	}
	for i := 0; i+1 < len(w.index); i++ {
		if err := w.closeIndex(i); err != nil {
			return err
		}
	}
	top := w.index[len(w.index)-1]
	var root []byte
	for _, e := range top.entries {
		root = appendRootEntry(root, e, appendCellKey(nil, e.key))
	}
	w.trailer.rootEntries, w.trailer.levels = int64(len(top.entries)), int64(len(w.index))
	w.trailer.loadOffset = w.offset
	w.trailer.indexBytes += int64(len(root))
	for _, b := range [][]byte{root, metaIndex} {
		if _, _, err := w.block(magicRoot, b); err != nil {
			return err
		}
	}
	w.trailer.infoOffset = w.offset
	if _, _, err := w.block(magicInfo, w.fileInfo()); err != nil {
		return err
	}
	w.trailer.contentBytes = w.content + trailerSize
	return w.write(w.trailer.append(nil))
}

// fileInfo gives the content of the file info block.
func (w *Writer) fileInfo() []byte {
	average := func(sum int64) []byte {
		return binary.BigEndian.AppendUint32(nil, uint32(sum/max(w.trailer.entries, 1)))
	}
	w.info[infoAvgKey], w.info[infoAvgValue] = average(w.keys), average(w.values)
	w.info[infoCreated] = make([]byte, 8) // as Hudi: equal rows give an equal file
	w.info[infoMaxMVCC] = make([]byte, 8)
	w.info[infoKeyValue] = []byte{0, 0, 0, 1}
	if w.trailer.entries > 0 {
		w.info[infoLastKey] = appendCellKey(nil, w.last)
	}
	var m, pair []byte
	for _, name := range slices.Sorted(maps.Keys(w.info)) {
		pair = appendProtoBytes(appendProtoBytes(pair[:0], 1, []byte(name)), 2, w.info[name])
		m = appendProtoBytes(m, 1, pair)
	}
	return append(binary.AppendUvarint([]byte(magicProto), uint64(len(m))), m...)
}

func (w *Writer) closeData() error {
	if len(w.cells) == 0 {
		return nil
	}
	offset, size, err := w.block(magicData, w.cells)
	if err != nil {
		return err
	}
	w.cells = w.cells[:0]
	if w.trailer.firstData < 0 {
		w.trailer.firstData = offset
	}
	w.trailer.lastData = offset
	return w.addIndex(0, indexEntry{key: bytes.Clone(w.first), offset: offset, size: size})
}

// addIndex adds an entry to a level of the index. A level that is full becomes a block of which the level above has an
// entry; the highest level stays the root until then.
func (w *Writer) addIndex(i int, e indexEntry) error {
	l := &w.index[i]
	size := indexEntrySize + 4 + 2 + len(e.key) + len(keyTail)
	if w.opts.IndexBytes > 0 && len(l.entries) > 1 && l.size+size > w.opts.IndexBytes {
		if i+1 == len(w.index) {
			if len(w.index) == levelsMax {
				return errors.New("the index of the HFile has too many levels")
			}
			w.index = append(w.index, level{})
		}
		if err := w.closeIndex(i); err != nil {
			return err
		}
	}
	l = &w.index[i]
	l.entries = append(l.entries, e)
	l.size += size
	return nil
}

// closeIndex writes the entries of a level that is not the root as a block and names it in the level above.
func (w *Writer) closeIndex(i int) error {
	l := &w.index[i]
	if len(l.entries) == 0 {
		return nil
	}
	var cells []byte
	b := binary.BigEndian.AppendUint32(nil, uint32(len(l.entries)))
	for _, e := range l.entries {
		b = binary.BigEndian.AppendUint32(b, uint32(len(cells)))
		cells = appendCellKey(appendIndexEntry(cells, e), e.key)
	}
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(cells))), cells...)
	kind := magicLeaf
	if i > 0 {
		kind = magicIntermediate
	}
	w.trailer.indexBytes += int64(len(b))
	offset, size, err := w.block(kind, b)
	if err != nil {
		return err
	}
	key := l.entries[0].key
	l.entries, l.size = l.entries[:0], 0
	return w.addIndex(i+1, indexEntry{key: key, offset: offset, size: size})
}

func appendIndexEntry(dst []byte, e indexEntry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.offset))
	return binary.BigEndian.AppendUint32(dst, uint32(e.size))
}

func appendRootEntry(dst []byte, e indexEntry, key []byte) []byte {
	return append(appendVlong(appendIndexEntry(dst, e), int64(len(key))), key...)
}

// block writes a block and gives its place.
func (w *Writer) block(magic string, content []byte) (offset, size int64, err error) {
	w.buf = append(append(w.buf[:0], magic...), make([]byte, headerSize-magicSize)...)
	if w.opts.Compression == GZ {
		out := bytes.NewBuffer(w.buf)
		if w.z == nil {
			w.z = gzip.NewWriter(out)
		} else {
			w.z.Reset(out)
		}
		if _, err := w.z.Write(content); err != nil {
			return 0, 0, fmt.Errorf("compressing a block: %w", err)
		}
		if err := w.z.Close(); err != nil {
			return 0, 0, fmt.Errorf("compressing a block: %w", err)
		}
		w.buf = out.Bytes()
	} else {
		w.buf = append(w.buf, content...)
	}
	covered := len(w.buf)
	sums := (covered + checksumBytes - 1) / checksumBytes * 4
	if covered+sums > math.MaxInt32 || len(content) > math.MaxInt32 {
		return 0, 0, fmt.Errorf("a block of %d bytes is too large for an HFile", len(content))
	}
	previous, ok := w.before[magic]
	if !ok {
		previous = -1
	}
	h := w.buf[magicSize:]
	binary.BigEndian.PutUint32(h, uint32(covered+sums-headerSize))
	binary.BigEndian.PutUint32(h[4:], uint32(len(content)))
	binary.BigEndian.PutUint64(h[8:], uint64(previous))
	h[16] = checksumCRC32C
	binary.BigEndian.PutUint32(h[17:], checksumBytes)
	binary.BigEndian.PutUint32(h[21:], uint32(covered))
	for from := 0; from < covered; from += checksumBytes {
		w.buf = binary.BigEndian.AppendUint32(w.buf, crc32.Checksum(w.buf[from:min(from+checksumBytes, covered)], castagnoli))
	}
	offset, size = w.offset, int64(len(w.buf))
	w.before[magic] = offset
	w.content += int64(headerSize + len(content))
	return offset, size, w.write(w.buf)
}

func (w *Writer) write(b []byte) error {
	n, err := w.out.Write(b)
	w.offset += int64(n)
	if err != nil {
		return fmt.Errorf("writing an HFile: %w", err)
	}
	return nil
}
