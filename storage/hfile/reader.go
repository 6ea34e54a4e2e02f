package hfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
)

// Entry is one key with its value. The bytes must not be changed.
type Entry struct {
	Key   []byte
	Value []byte
}

// Reader reads one HFile.
type Reader struct {
	name    string
	src     io.ReaderAt
	trailer trailer
	body    int64 // offset of the trailer: blocks end here
	root    []indexEntry
	meta    []indexEntry
	info    map[string][]byte
	version bool // cells end with a version (MVCC)
}

// Open reads the trailer, the root of the index and the file info of a file of size bytes. name stands in errors. src must
// stay open as long as the Reader is used.
func Open(name string, src io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{name: name, src: src, body: size - trailerSize}
	if r.body < 0 {
		return nil, r.corrupt(0, fmt.Errorf("%d bytes are too few for an HFile", size))
	}
	b, err := r.at(r.body, trailerSize)
	if err != nil {
		return nil, err
	}
	if r.trailer, err = parseTrailer(b, size); err != nil {
		return nil, r.corrupt(r.body, err)
	}
	next := r.trailer.loadOffset
	index, err := r.block(next, 0, r.body, magicRoot)
	if err != nil {
		return nil, err
	}
	if r.root, err = parseRoot(index.content, r.trailer.rootEntries, false, r.trailer.levels > 1); err != nil {
		return nil, r.corrupt(next, err)
	}
	next += index.size
	if index, err = r.block(next, 0, r.body, magicRoot); err != nil {
		return nil, err
	}
	if r.meta, err = parseRoot(index.content, r.trailer.metaEntries, true, false); err != nil {
		return nil, r.corrupt(next, err)
	}
	info, err := r.block(r.trailer.infoOffset, 0, r.body, magicInfo)
	if err != nil {
		return nil, err
	}
	if r.info, err = parseInfo(info.content); err == nil {
		err = r.checkInfo()
	}
	if err != nil {
		return nil, r.corrupt(info.offset, err)
	}
	return r, nil
}

// parseInfo reads the file info: magic <4b> | length <uvarint> | protobuf message of pairs.
func parseInfo(b []byte) (map[string][]byte, error) {
	if !bytes.HasPrefix(b, []byte(magicProto)) {
		return nil, fmt.Errorf("%w: file info that is no protobuf message", ErrUnsupported)
	}
	b = b[len(magicProto):]
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, errShort
	}
	out := map[string][]byte{}
	err := protoFields(b[k:k+int(n)], func(number, _ uint64, pair []byte) error {
		if number != 1 {
			return nil
		}
		var key, value []byte
		if err := protoFields(pair, func(number, _ uint64, text []byte) error {
			switch number {
			case 1:
				key = text
			case 2:
				value = text
			}
			return nil
		}); err != nil {
			return err
		}
		out[string(key)] = value
		return nil
	})
	return out, err
}

func (r *Reader) checkInfo() error {
	if v, ok := r.info[infoMaxTags]; ok && len(bytes.Trim(v, "\x00")) > 0 {
		return fmt.Errorf("%w: cells with tags", ErrUnsupported)
	}
	// Hudi's own writer leaves the version's presence out of the file info in some releases and writes it always.
	r.version = true
	if v, ok := r.info[infoKeyValue]; ok {
		r.version = len(v) == 4 && binary.BigEndian.Uint32(v) == 1
	}
	return nil
}

// Len gives the number of entries.
func (r *Reader) Len() int64 { return r.trailer.entries }

// Compression tells how the blocks are stored.
func (r *Reader) Compression() Compression { return r.trailer.compression }

// IndexLevels gives the number of levels of the block index.
func (r *Reader) IndexLevels() int { return int(r.trailer.levels) }

// Info gives an item of the file info, such as "schema", "minRecordKey" or "maxRecordKey" in files that Hudi wrote.
func (r *Reader) Info(name string) (value []byte, ok bool) {
	value, ok = r.info[name]
	return value, ok
}

// InfoNames gives the names of the file info's items in order.
func (r *Reader) InfoNames() []string { return slices.Sorted(maps.Keys(r.info)) }

// Meta gives the content of a meta block, such as "bloomFilter"; ok is false if there is none of that name.
func (r *Reader) Meta(name string) (content []byte, ok bool, err error) {
	for _, e := range r.meta {
		if string(e.key) == name {
			b, err := r.block(e.offset, e.size, r.trailer.loadOffset, magicMeta)
			return b.content, err == nil, err
		}
	}
	return nil, false, nil
}

// MetaNames gives the names of the meta blocks.
func (r *Reader) MetaNames() []string {
	var out []string
	for _, e := range r.meta {
		out = append(out, string(e.key))
	}
	return out
}

// Get gives the value of a key.
func (r *Reader) Get(key []byte) (value []byte, ok bool, err error) {
	for e, err := range r.From(key) {
		if err != nil {
			return nil, false, err
		}
		if bytes.Equal(e.Key, key) {
			return e.Value, true, nil
		}
		break
	}
	return nil, false, nil
}

// All gives every entry in key order.
func (r *Reader) All() iter.Seq2[Entry, error] { return r.From(nil) }

// Prefix gives the entries whose keys begin with prefix, in key order.
func (r *Reader) Prefix(prefix []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range r.From(prefix) {
			if err == nil && !bytes.HasPrefix(e.Key, prefix) {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// From gives the entries whose keys are at or behind key, in key order.
func (r *Reader) From(key []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := walk{r: r, from: key, yield: yield}
		if err := w.level(r.root, int(r.trailer.levels)); err != nil {
			yield(Entry{}, err)
		}
	}
}

// walk is one pass over the index and the data blocks that it names.
type walk struct {
	r       *Reader
	from    []byte
	yield   func(Entry, error) bool
	stopped bool
	last    []byte // key of the last entry seen
	seen    int64
	ends    [levelsMax + 1]int64 // end of the last block read in each level; 0: data
}

// block reads the next block of a level. Blocks of one level follow one another in the file, which bounds what a damaged
// index can cost.
func (w *walk) block(e indexEntry, level int, kinds ...string) (block, error) {
	if e.offset < w.ends[level] {
		return block{}, w.r.corrupt(e.offset, errors.New("blocks that the index names overlap"))
	}
	b, err := w.r.block(e.offset, e.size, w.r.trailer.loadOffset, kinds...)
	w.ends[level] = b.offset + b.size
	return b, err
}

// level walks over the blocks that entries name, which stand levels-1 levels above the data.
func (w *walk) level(entries []indexEntry, levels int) error {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries[floor(entries, w.from):] {
		if w.stopped {
			return nil
		}
		if levels == 1 {
			if err := w.data(e); err != nil {
				return err
			}
			continue
		}
		b, err := w.block(e, levels-1, magicLeaf, magicIntermediate)
		if err != nil {
			return err
		}
		below, err := parseLeaf(b.content)
		if err != nil {
			return w.r.corrupt(b.offset, err)
		}
		if err := w.level(below, levels-1); err != nil {
			return err
		}
	}
	return nil
}

// data walks over the cells of a data block: length of the key <4b> | length of the value <4b> | cell key | value |
// version <vlong>.
func (w *walk) data(e indexEntry) error {
	blk, err := w.block(e, 0, magicData)
	if err != nil {
		return err
	}
	first := true
	for b := blk.content; len(b) > 0; {
		// Where in the block depends on its compression: the offset of the block has to do.
		bad := func(err error) error { return w.r.corrupt(blk.offset, err) }
		if len(b) < 8 {
			return bad(errShort)
		}
		k, v := int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
		b = b[8:]
		if k > int64(len(b)) || v > int64(len(b))-k {
			return bad(errShort)
		}
		row, err := rowOf(b[:k])
		if err != nil {
			return bad(err)
		}
		value := b[k : k+v : k+v]
		b = b[k+v:]
		if w.r.version {
			if _, b, err = vlong(b); err != nil {
				return bad(err)
			}
		}
		if w.seen > 0 && string(row) < string(w.last) || first && string(row) < string(e.key) {
			return bad(errors.New("keys are out of order"))
		}
		w.last, first = row, false
		w.seen++
		if string(row) >= string(w.from) && !w.yield(Entry{Key: row, Value: value}, nil) {
			w.stopped = true
			return nil
		}
	}
	return nil
}

// Check reads the whole file: each block with its checksums, the order of keys, and their number and last key as trailer
// and file info have them.
func (r *Reader) Check() error {
	w := walk{r: r, yield: func(Entry, error) bool { return true }}
	if err := w.level(r.root, int(r.trailer.levels)); err != nil {
		return err
	}
	if w.seen != r.trailer.entries {
		return r.corrupt(r.body, fmt.Errorf("the file has %d entries, its trailer says %d", w.seen, r.trailer.entries))
	}
	if last, ok := r.info[infoLastKey]; ok && w.seen > 0 {
		row, err := rowOf(last)
		if err == nil && !bytes.Equal(row, w.last) {
			err = errors.New("the last key is not that of the file info")
		}
		if err != nil {
			return r.corrupt(r.trailer.infoOffset, err)
		}
	}
	for _, name := range r.MetaNames() {
		if _, _, err := r.Meta(name); err != nil {
			return err
		}
	}
	return nil
}
