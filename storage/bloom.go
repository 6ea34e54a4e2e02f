package storage

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Hudi's bloom filters, in base files the footer value "org.apache.hudi.bloomfilter" (base64):
//
//	SIMPLE  := -1 <4b> | hashes <4b> | hash type <1b> | bits <4b> | ceil(bits/8) bytes
//	DYNAMIC := -1 <4b> | hashes <4b> | hash type <1b> | bits <4b> | keys a row <4b> | keys in the last row <4b> | rows <4b> | rows × SIMPLE
//
// Numbers are big-endian; bit i is bit i&7 of byte i>>3.
const (
	bloomVersion = -1
	bloomMurmur  = 1

	bloomSimple  = "SIMPLE"
	bloomDynamic = "DYNAMIC_V0"

	// bloomBitsMax bounds the filter of a large file; beyond it more keys mean more false answers, not more bytes.
	bloomBitsMax = 16 << 20
)

// Bloom is a set of record keys that may say yes wrongly and never no wrongly.
type Bloom struct {
	hashes int
	size   int      // bits of a row
	rows   [][]byte // SIMPLE: one
	perRow int      // DYNAMIC: keys a row takes, 0: SIMPLE
	inLast int      // DYNAMIC: keys in the last row
}

// NewBloom gives a SIMPLE filter for n keys that says yes wrongly with probability p. It takes no more than 2 MiB, so p
// gets worse beyond some 900,000 keys at p = 0.0001.
func NewBloom(n int, p float64) *Bloom {
	n = max(n, 1)
	size := math.Ceil(float64(n) * -math.Log(p) / (math.Ln2 * math.Ln2))
	size = max(8, min(size, bloomBitsMax))
	b := &Bloom{size: int(size), hashes: max(1, int(math.Ceil(math.Ln2*size/float64(n))))}
	b.rows = [][]byte{make([]byte, (b.size+7)/8)}
	return b
}

// Add puts a key into the set.
func (b *Bloom) Add(key string) {
	// A dynamic filter opens another row when the last one is full.
	if b.perRow > 0 {
		if b.inLast >= b.perRow {
			b.rows = append(b.rows, make([]byte, (b.size+7)/8))
			b.inLast = 0
		}
		b.inLast++
	}
	row := b.rows[len(b.rows)-1]
	h := uint32(0)
	for range b.hashes {
		h = murmurKey(key, h)
		setBit(row, b.bit(h))
	}
}

// Has tells whether a key may be in the set.
func (b *Bloom) Has(key string) bool {
rows:
	for _, row := range b.rows {
		h := uint32(0)
		for range b.hashes {
			h = murmurKey(key, h)
			if !getBit(row, b.bit(h)) {
				continue rows
			}
		}
		return true
	}
	return false
}

// bit is the absolute value of the truncated remainder of the hash as a signed number.
func (b *Bloom) bit(h uint32) int {
	r := int64(int32(h)) % int64(b.size)
	if r < 0 {
		r = -r
	}
	return int(r)
}

// murmurKey is Hudi's Murmur2: the last bytes of a key that fill no word are taken with their sign.
func murmurKey(key string, seed uint32) uint32 {
	const m = 0x5bd1e995
	h := seed ^ uint32(len(key))
	i := 0
	for ; i+4 <= len(key); i += 4 {
		k := uint32(key[i]) | uint32(key[i+1])<<8 | uint32(key[i+2])<<16 | uint32(key[i+3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
	}
	if rest := len(key) - i; rest > 0 {
		// Counted from the end of the key: the last byte is not shifted.
		end := len(key)
		if rest >= 3 {
			h ^= uint32(int32(int8(key[end-3]))) << 16
		}
		if rest >= 2 {
			h ^= uint32(int32(int8(key[end-2]))) << 8
		}
		h ^= uint32(int32(int8(key[end-1])))
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// Encode gives the filter as it stands in a footer.
func (b *Bloom) Encode() string {
	rowBytes := 13 + (b.size+7)/8
	out := make([]byte, 0, 25+len(b.rows)*rowBytes)
	if b.perRow > 0 {
		out = b.appendHead(out)
		out = binary.BigEndian.AppendUint32(out, uint32(b.perRow))
		out = binary.BigEndian.AppendUint32(out, uint32(b.inLast))
		out = binary.BigEndian.AppendUint32(out, uint32(len(b.rows)))
	}
	for _, row := range b.rows {
		out = append(b.appendHead(out), row...)
	}
	return base64.StdEncoding.EncodeToString(out)
}

func (b *Bloom) appendHead(out []byte) []byte {
	out = append(out, 0xff, 0xff, 0xff, 0xff)
	out = binary.BigEndian.AppendUint32(out, uint32(b.hashes))
	out = append(out, bloomMurmur)
	return binary.BigEndian.AppendUint32(out, uint32(b.size))
}

// TypeCode is the footer value "hoodie_bloom_filter_type_code" that goes with the filter, "" for none.
func (b *Bloom) TypeCode() string {
	if b.perRow > 0 {
		return bloomDynamic
	}
	return ""
}

var errBloom = errors.New("storage: damaged bloom filter")

// DecodeBloom reads a filter from a footer; typeCode is the footer's type code, "" if it has none. Filters of other
// hashes than Murmur2, and so those of Hudi before 0.5, are ErrUnsupported.
func DecodeBloom(s, typeCode string) (*Bloom, error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBloom, err)
	}
	b, raw, err := bloomHead(raw)
	if err != nil {
		return nil, err
	}
	rowBytes := (b.size + 7) / 8
	switch typeCode {
	case "", bloomSimple:
		if len(raw) < rowBytes {
			return nil, errBloom
		}
		b.rows = [][]byte{raw[:rowBytes]}
		return b, nil
	case bloomDynamic:
	default:
		return nil, fmt.Errorf("bloom filter of type %q: %w", typeCode, ErrUnsupported)
	}
	if len(raw) < 12 {
		return nil, errBloom
	}
	perRow, inLast, rows := int32(binary.BigEndian.Uint32(raw)), int32(binary.BigEndian.Uint32(raw[4:])), int32(binary.BigEndian.Uint32(raw[8:]))
	if perRow <= 0 || inLast < 0 || rows <= 0 {
		return nil, errBloom
	}
	b.perRow, b.inLast = int(perRow), int(inLast)
	raw = raw[12:]
	for range rows {
		row, rest, err := bloomHead(raw)
		if err != nil {
			return nil, err
		}
		if row.size != b.size || row.hashes != b.hashes || len(rest) < rowBytes {
			return nil, errBloom
		}
		b.rows = append(b.rows, rest[:rowBytes])
		raw = rest[rowBytes:]
	}
	return b, nil
}

func bloomHead(raw []byte) (*Bloom, []byte, error) {
	if len(raw) < 13 {
		return nil, nil, errBloom
	}
	if int32(binary.BigEndian.Uint32(raw)) != bloomVersion || raw[8] != bloomMurmur {
		return nil, nil, fmt.Errorf("bloom filter with Jenkins hashes: %w", ErrUnsupported)
	}
	hashes, size := int32(binary.BigEndian.Uint32(raw[4:])), int32(binary.BigEndian.Uint32(raw[9:]))
	if hashes <= 0 || hashes > 1000 || size <= 0 {
		return nil, nil, errBloom
	}
	return &Bloom{hashes: int(hashes), size: int(size)}, raw[13:], nil
}
