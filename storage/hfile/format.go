package hfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrUnsupported is the cause of an error about a file that may be whole but uses what is not read here.
var ErrUnsupported = errors.New("not supported")

// CorruptError says that bytes of a file contradict the format.
type CorruptError struct {
	Name   string // the file, as it was given to Open
	Offset int64  // bytes from its start
	Err    error  // cause
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at byte %d: %v", e.Name, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Compression says how blocks are stored, in HBase's numbers.
type Compression int

const (
	GZ   Compression = 1
	None Compression = 2
)

func (c Compression) String() string {
	switch c {
	case GZ:
		return "GZ"
	case None:
		return "NONE"
	}
	return fmt.Sprintf("codec %d", int(c))
}

// Layout of a block, all numbers big-endian:
// magic <8b> | bytes on disk behind the header, with checksums <4b> | bytes of the content, uncompressed <4b> |
// offset of the previous block of the same kind <8b>, -1: none | type of the checksums <1b> | bytes a checksum covers <4b> |
// bytes on disk, with the header and without the checksums <4b> | content | checksums, 4 bytes each.
const (
	headerSize  = 33
	magicSize   = 8
	trailerSize = 4096
	// checksumBytes is what a checksum covers in the files that are written here.
	checksumBytes = 16 << 10

	magicData         = "DATABLK*"
	magicMeta         = "METABLKc"
	magicRoot         = "IDXROOT2"
	magicLeaf         = "IDXLEAF2"
	magicIntermediate = "IDXINTE2"
	magicInfo         = "FILEINF2"
	magicTrailer      = "TRABLK\"$"
	magicProto        = "PBUF"
)

// Types of checksums.
const (
	checksumNone   = 0
	checksumCRC32  = 1
	checksumCRC32C = 2
)

// Names in the file info.
const (
	infoLastKey      = "hfile.LASTKEY"
	infoAvgKey       = "hfile.AVG_KEY_LEN"
	infoAvgValue     = "hfile.AVG_VALUE_LEN"
	infoCreated      = "hfile.CREATE_TIME_TS"
	infoMaxTags      = "hfile.MAX_TAGS_LEN"
	infoMaxMVCC      = "MAX_MEMSTORE_TS_KEY"
	infoKeyValue     = "KEY_VALUE_VERSION"
	comparatorOfHudi = "org.apache.hudi.io.storage.HoodieHBaseKVComparator"
)

// keyTail is what follows the row in each cell key that Hudi writes: length of the column family 0 <1b>, time <8b> "latest",
// type <1b> put.
const keyTail = "\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"

var (
	errShort  = errors.New("an item ends behind its block")
	errLength = errors.New("lengths of the block disagree")
)

// appendCellKey appends the cell key of a row.
func appendCellKey(dst, row []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(row)))
	return append(append(dst, row...), keyTail...)
}

// rowOf gives the row of a cell key. Index entries may carry the key without its tail.
func rowOf(cell []byte) ([]byte, error) {
	if len(cell) < 2 {
		return nil, errShort
	}
	n := int(binary.BigEndian.Uint16(cell))
	if n > len(cell)-2 {
		return nil, errShort
	}
	return cell[2 : 2+n : 2+n], nil
}

// vlong reads a number in Hadoop's variable length and gives the bytes behind it.
func vlong(b []byte) (int64, []byte, error) {
	if len(b) == 0 {
		return 0, nil, errShort
	}
	first := int8(b[0])
	if first >= -112 {
		return int64(first), b[1:], nil
	}
	n, negative := int(-112-int(first)), false
	if first < -120 {
		n, negative = int(-120-int(first)), true
	}
	if n > len(b)-1 {
		return 0, nil, errShort
	}
	var v int64
	for _, x := range b[1 : 1+n] {
		v = v<<8 | int64(x)
	}
	if negative {
		v = ^v
	}
	return v, b[1+n:], nil
}

// appendVlong appends a number that is not negative in Hadoop's variable length.
func appendVlong(dst []byte, v int64) []byte {
	if v <= 127 {
		return append(dst, byte(v))
	}
	n := 0
	for rest := v; rest > 0; rest >>= 8 {
		n++
	}
	first := -112 - n
	dst = append(dst, byte(first))
	for i := n - 1; i >= 0; i-- {
		dst = append(dst, byte(v>>(8*i)))
	}
	return dst
}

// protoFields calls f for each field of a protobuf message: its number, and its value if it is a number or its bytes.
func protoFields(b []byte, f func(number uint64, value uint64, bytes []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errShort
		}
		b = b[n:]
		var value uint64
		var text []byte
		switch tag & 7 {
		case 0:
			if value, n = binary.Uvarint(b); n <= 0 {
				return errShort
			}
			b = b[n:]
		case 1, 5:
			n = 8
			if tag&7 == 5 {
				n = 4
			}
			if len(b) < n {
				return errShort
			}
			b = b[n:]
		case 2:
			if value, n = binary.Uvarint(b); n <= 0 || value > uint64(len(b)-n) {
				return errShort
			}
			text, b = b[n:n+int(value)], b[n+int(value):]
		default:
			return fmt.Errorf("field of wire type %d", tag&7)
		}
		if err := f(tag>>3, value, text); err != nil {
			return err
		}
	}
	return nil
}

func appendProtoNumber(dst []byte, number, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, number<<3), v)
}

func appendProtoBytes(dst []byte, number uint64, b []byte) []byte {
	dst = binary.AppendUvarint(dst, number<<3|2)
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
