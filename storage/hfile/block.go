package hfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// inflateMax is how many times larger deflate can make its input.
const inflateMax = 1032

// block is one block of the file, checked and uncompressed.
type block struct {
	offset  int64 // bytes from the start of the file
	size    int64 // bytes on disk, with header and checksums
	content []byte
}

// corrupt gives an error about the byte of the file at an offset, or one about what the file uses.
func (r *Reader) corrupt(offset int64, err error) error {
	if errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return &CorruptError{Name: r.name, Offset: offset, Err: err}
}

// at reads bytes that the file must have.
func (r *Reader) at(offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	if k, err := r.src.ReadAt(b, offset); int64(k) < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading %s at byte %d: %w", r.name, offset, err)
	}
	return b, nil
}

// block reads the block at an offset, which must be one of the kinds wanted and end at or before byte end of the file.
// hint is the size that the index names, 0 if none does.
func (r *Reader) block(offset, hint, end int64, kinds ...string) (block, error) {
	if offset < 0 || offset > end-headerSize {
		return block{}, r.corrupt(max(offset, 0), errors.New("a block is said to begin here, outside of the file's blocks"))
	}
	if hint < 0 || hint > end-offset {
		return block{}, r.corrupt(offset, errors.New("the block is longer than the rest of the file's blocks"))
	}
	head, err := r.at(offset, max(headerSize, hint))
	if err != nil {
		return block{}, err
	}
	magic := string(head[:magicSize])
	known := false
	for _, k := range kinds {
		known = known || magic == k
	}
	if !known {
		if magic == "DATABLKE" {
			return block{}, r.corrupt(offset, fmt.Errorf("%w: encoded data blocks", ErrUnsupported))
		}
		return block{}, r.corrupt(offset, fmt.Errorf("no %s block begins here", kinds[0]))
	}
	stored := int64(int32(binary.BigEndian.Uint32(head[8:])))   // behind the header
	full := int64(int32(binary.BigEndian.Uint32(head[12:])))    // uncompressed
	covered := int64(int32(binary.BigEndian.Uint32(head[29:]))) // header and content
	size := headerSize + stored
	if stored < 0 || full < 0 || size > end-offset || covered < headerSize || covered > size {
		return block{}, r.corrupt(offset, errLength)
	}
	if hint != 0 && hint != size {
		return block{}, r.corrupt(offset, fmt.Errorf("the block has %d bytes, its index says %d", size, hint))
	}
	if int64(len(head)) < size {
		rest, err := r.at(offset+int64(len(head)), size-int64(len(head)))
		if err != nil {
			return block{}, err
		}
		head = append(head, rest...)
	}
	if err := checkSums(head, int(covered)); err != nil {
		return block{}, r.corrupt(offset, err)
	}
	b := block{offset: offset, size: size, content: head[headerSize:covered]}
	if r.trailer.compression == GZ {
		if b.content, err = inflate(b.content, int(full)); err != nil {
			return block{}, r.corrupt(offset, err)
		}
	} else if full != int64(len(b.content)) && full != stored {
		// The field counts the checksums or does not, as the writer's version has it.
		return block{}, r.corrupt(offset, errLength)
	}
	return b, nil
}

// checkSums compares the checksums of a block with its bytes.
func checkSums(b []byte, covered int) error {
	kind, each := b[24], int(int32(binary.BigEndian.Uint32(b[25:])))
	var table *crc32.Table
	switch kind {
	case checksumNone:
		return nil
	case checksumCRC32:
		table = crc32.IEEETable
	case checksumCRC32C:
		table = castagnoli
	default:
		return fmt.Errorf("checksums of type %d", kind)
	}
	sums := b[covered:]
	if each <= 0 || len(sums) != (covered+each-1)/each*4 {
		return errLength
	}
	for from := 0; from < covered; from += each {
		if crc32.Checksum(b[from:min(from+each, covered)], table) != binary.BigEndian.Uint32(sums) {
			return errors.New("the checksum of the block is not that of its bytes")
		}
		sums = sums[4:]
	}
	return nil
}

var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// inflate uncompresses a block whose content has size bytes.
func inflate(b []byte, size int) ([]byte, error) {
	if size == 0 && len(b) == 0 {
		return nil, nil
	}
	if size > len(b)*inflateMax {
		return nil, errors.New("the block is said to hold more than its bytes can")
	}
	z := inflaters.Get().(*gzip.Reader)
	defer inflaters.Put(z)
	if err := z.Reset(bytes.NewReader(b)); err != nil {
		return nil, fmt.Errorf("uncompressing: %w", err)
	}
	// A length that is wrong costs no more than a few times the bytes that are there.
	out := bytes.NewBuffer(make([]byte, 0, min(size, 8*len(b)+512)))
	if _, err := io.Copy(out, io.LimitReader(z, int64(size)+1)); err != nil {
		return nil, fmt.Errorf("uncompressing: %w", err)
	}
	if out.Len() != size {
		return nil, errLength
	}
	return out.Bytes(), nil
}
