package hfile

import (
	"encoding/binary"
	"errors"
	"sort"
)

// indexEntry points at a block: a data block, or a block of the next level of the index.
type indexEntry struct {
	key    []byte // not above the first key of the block and above the last one before it; of a meta block its name
	offset int64
	size   int64
}

// indexEntrySize is the size of an entry without its key.
const indexEntrySize = 12

func parseIndexEntry(b []byte) indexEntry {
	return indexEntry{offset: int64(binary.BigEndian.Uint64(b)), size: int64(int32(binary.BigEndian.Uint32(b[8:])))}
}

// parseRoot reads the n entries of a root block: offset <8b> | size <4b> | length of the key <vlong> | key. Only in an index
// of several levels something follows them, its middle key, which is not needed.
func parseRoot(b []byte, n int64, meta, several bool) ([]indexEntry, error) {
	if n > int64(len(b)/(indexEntrySize+1)) {
		return nil, errShort
	}
	out := make([]indexEntry, 0, n)
	for range n {
		if len(b) < indexEntrySize {
			return nil, errShort
		}
		e := parseIndexEntry(b)
		size, rest, err := vlong(b[indexEntrySize:])
		if err != nil {
			return nil, err
		}
		if size < 0 || size > int64(len(rest)) {
			return nil, errShort
		}
		e.key, b = rest[:size:size], rest[size:]
		if !meta {
			if e.key, err = rowOf(e.key); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	if len(b) > 0 && !several {
		return nil, errors.New("the index has more entries than the trailer says")
	}
	if meta {
		return out, nil
	}
	return out, checkIndex(out)
}

// parseLeaf reads the entries of a leaf or an intermediate block: count n <4b> | n + 1 offsets of entries <4b> each,
// relative to their end | entries: offset <8b> | size <4b> | key.
func parseLeaf(b []byte) ([]indexEntry, error) {
	if len(b) < 8 {
		return nil, errShort
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n > int64(len(b)-8)/4 {
		return nil, errShort
	}
	offsets, rest := b[4:8+4*n], b[8+4*n:]
	out := make([]indexEntry, 0, n)
	for i := range n {
		from := int64(binary.BigEndian.Uint32(offsets[4*i:]))
		to := int64(binary.BigEndian.Uint32(offsets[4*i+4:]))
		if to > int64(len(rest)) || from > to-indexEntrySize {
			return nil, errShort
		}
		e := parseIndexEntry(rest[from:])
		var err error
		if e.key, err = rowOf(rest[from+indexEntrySize : to]); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, checkIndex(out)
}

func checkIndex(entries []indexEntry) error {
	for i := 1; i < len(entries); i++ {
		if string(entries[i].key) < string(entries[i-1].key) || entries[i].offset <= entries[i-1].offset {
			return errors.New("entries of the index are out of order")
		}
	}
	return nil
}

// floor gives the place of the last entry whose key is at or before key, or else of the first one.
func floor(entries []indexEntry, key []byte) int {
	i := sort.Search(len(entries), func(i int) bool { return string(entries[i].key) > string(key) })
	return max(i-1, 0)
}
