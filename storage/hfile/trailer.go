package hfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// trailer is the last block of a file. It has trailerSize bytes: magic <8b> | length of the message <uvarint> | protobuf
// message | zeros | minor version <1b> | major version <3b>.
type trailer struct {
	infoOffset    int64 // of the file info block
	loadOffset    int64 // of the first block that is read when the file is opened: the root of the index
	indexBytes    int64 // uncompressed bytes of the index
	contentBytes  int64 // uncompressed bytes of all blocks
	rootEntries   int64 // entries in the root of the data index
	metaEntries   int64 // entries in the meta index
	entries       int64 // keys in the file
	levels        int64 // of the data index; 1: its root points at data blocks
	firstData     int64 // offset of the first data block, -1: none
	lastData      int64
	comparator    string
	compression   Compression
	encryptionKey []byte
}

// Numbers of the fields of the trailer's message.
const (
	fieldInfoOffset = iota + 1
	fieldLoadOffset
	fieldIndexBytes
	fieldContentBytes
	fieldRootEntries
	fieldMetaEntries
	fieldEntries
	fieldLevels
	fieldFirstData
	fieldLastData
	fieldComparator
	fieldCompression
	fieldEncryptionKey
)

// levelsMax is far above what a file of any size needs.
const levelsMax = 16

// parseTrailer reads the trailer, which ends at byte size of the file.
func parseTrailer(b []byte, size int64) (trailer, error) {
	t := trailer{levels: 1, compression: None}
	if len(b) != trailerSize || string(b[:magicSize]) != magicTrailer {
		return t, errors.New("no trailer of an HFile at the end of the file")
	}
	if major := binary.BigEndian.Uint32(b[trailerSize-4:]) & 0xffffff; major != 3 {
		return t, fmt.Errorf("%w: HFile of version %d", ErrUnsupported, major)
	}
	rest := b[magicSize : trailerSize-4]
	n, k := binary.Uvarint(rest)
	if k <= 0 || n > uint64(len(rest)-k) {
		return t, errShort
	}
	numbers := map[uint64]*int64{
		fieldInfoOffset: &t.infoOffset, fieldLoadOffset: &t.loadOffset, fieldIndexBytes: &t.indexBytes,
		fieldContentBytes: &t.contentBytes, fieldRootEntries: &t.rootEntries, fieldMetaEntries: &t.metaEntries,
		fieldEntries: &t.entries, fieldLevels: &t.levels, fieldFirstData: &t.firstData, fieldLastData: &t.lastData,
	}
	err := protoFields(rest[k:k+int(n)], func(number, value uint64, text []byte) error {
		switch number {
		case fieldComparator:
			t.comparator = string(text)
		case fieldCompression:
			t.compression = Compression(min(value, math.MaxInt32))
		case fieldEncryptionKey:
			t.encryptionKey = text
		default:
			if p := numbers[number]; p != nil {
				*p = int64(value)
			}
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	if len(t.encryptionKey) > 0 {
		return t, fmt.Errorf("%w: encrypted HFile", ErrUnsupported)
	}
	if t.compression != None && t.compression != GZ {
		return t, fmt.Errorf("%w: HFile compressed by %s", ErrUnsupported, t.compression)
	}
	body := size - trailerSize
	if t.loadOffset < 0 || t.infoOffset < t.loadOffset || t.infoOffset > body-headerSize {
		return t, errors.New("blocks that the trailer names are not within the file")
	}
	if t.levels < 1 || t.levels > levelsMax || t.entries < 0 || t.rootEntries < 0 || t.metaEntries < 0 {
		return t, errors.New("counts of the trailer are out of range")
	}
	return t, nil
}

// append appends the whole trailer block.
func (t *trailer) append(dst []byte) []byte {
	start := len(dst)
	var m []byte
	for _, f := range []struct {
		number uint64
		value  int64
	}{
		{fieldInfoOffset, t.infoOffset},
		{fieldLoadOffset, t.loadOffset},
		{fieldIndexBytes, t.indexBytes},
		{fieldContentBytes, t.contentBytes},
		{fieldRootEntries, t.rootEntries},
		{fieldMetaEntries, t.metaEntries},
		{fieldEntries, t.entries},
		{fieldLevels, t.levels},
		{fieldFirstData, t.firstData},
		{fieldLastData, t.lastData},
	} {
		m = appendProtoNumber(m, f.number, uint64(f.value))
	}
	m = appendProtoBytes(m, fieldComparator, []byte(t.comparator))
	m = appendProtoNumber(m, fieldCompression, uint64(t.compression))
	dst = append(dst, magicTrailer...)
	dst = append(binary.AppendUvarint(dst, uint64(len(m))), m...)
	dst = append(dst, make([]byte, start+trailerSize-4-len(dst))...)
	// Minor version 3 says that blocks carry checksums.
	return binary.BigEndian.AppendUint32(dst, 3<<24|3)
}
