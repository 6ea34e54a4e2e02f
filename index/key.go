package index

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/lakesql/lakesql/storage"
)

// Column says how a column's values stand in a key.
type Column struct {
	Field  int                   // position in the row
	Kind   storage.Kind          // physical kind
	Prefix int                   // characters (String) or bytes (Bytes) that count; 0: all
	Sort   func(s string) []byte // weight string of the column's collation; nil: bytes
}

const (
	tagNull  = 0x00
	tagValue = 0x01
)

// AppendKey appends the key of a row's columns.
func AppendKey(dst []byte, cols []Column, row storage.Row) ([]byte, error) {
	for i := range cols {
		var err error
		if dst, err = cols[i].Append(dst, row[cols[i].Field]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// HasNull tells whether one of the key's columns is NULL in the row.
func HasNull(cols []Column, row storage.Row) bool {
	for i := range cols {
		if row[cols[i].Field] == nil {
			return true
		}
	}
	return false
}

// Append appends one value: a tag, then bytes that sort as the values do and end by themselves.
func (c *Column) Append(dst []byte, v any) ([]byte, error) {
	if v == nil {
		return append(dst, tagNull), nil
	}
	dst = append(dst, tagValue)
	switch x := v.(type) {
	case bool:
		if x {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case int32:
		return binary.BigEndian.AppendUint64(dst, uint64(int64(x))^(1<<63)), nil
	case int64:
		return binary.BigEndian.AppendUint64(dst, uint64(x)^(1<<63)), nil
	case float32:
		return appendFloat(dst, float64(x)), nil
	case float64:
		return appendFloat(dst, x), nil
	case decimal128.Num:
		dst = binary.BigEndian.AppendUint64(dst, uint64(x.HighBits())^(1<<63))
		return binary.BigEndian.AppendUint64(dst, x.LowBits()), nil
	case string:
		if c.Prefix > 0 {
			x = firstRunes(x, c.Prefix)
		}
		if c.Sort != nil {
			return appendBytes(dst, c.Sort(x)), nil
		}
		return appendString(dst, x), nil
	case []byte:
		if c.Prefix > 0 && len(x) > c.Prefix {
			x = x[:c.Prefix]
		}
		return appendBytes(dst, x), nil
	}
	return nil, fmt.Errorf("index: a %T cannot stand in a key", v)
}

func firstRunes(s string, n int) string {
	for i := 0; i < len(s); {
		if n == 0 {
			return s[:i]
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
		n--
	}
	return s
}

func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		f = 0 // -0 equals 0
	}
	b := math.Float64bits(f)
	if b>>63 == 1 {
		b = ^b
	} else {
		b |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, b)
}

// appendBytes escapes 00 as 00 FF and ends with 00 01, so that a shorter value sorts first and none is a prefix of another.
func appendBytes(dst, b []byte) []byte {
	for _, x := range b {
		dst = append(dst, x)
		if x == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

// Bounds of encoded keys: at or above Low, below High. Nil is open.
type Bounds struct{ Low, High []byte }

// RangeBounds turns values of a key's first columns into bounds. A nil slice of values is open.
func RangeBounds(cols []Column, low, high storage.Row, lowOpen, highOpen bool) (Bounds, error) {
	var b Bounds
	var err error
	if low != nil {
		b.Low = []byte{}
		for i, v := range low {
			if b.Low, err = cols[i].Append(b.Low, v); err != nil {
				return b, err
			}
		}
		if lowOpen {
			b.Low = append(b.Low, 0xff)
		}
	}
	if high != nil {
		b.High = []byte{}
		for i, v := range high {
			if b.High, err = cols[i].Append(b.High, v); err != nil {
				return b, err
			}
		}
		if !highOpen {
			b.High = append(b.High, 0xff)
		}
	}
	return b, nil
}

// KeyText writes the values of a key, or of the bound of a range of keys, for people: as they stand in record keys, separated by
// commas. What it cannot read (of the kinds given) it writes in hexadecimal.
func KeyText(types []storage.Type, key []byte) string {
	var parts []string
	for i := 0; len(key) > 0; i++ {
		if i == len(types) {
			if len(key) > 1 || key[0] != 0xff { // else the end of a range: all that begin with the values before
				parts = append(parts, fmt.Sprintf("%x", key))
			}
			break
		}
		if key[0] == 0xff {
			break
		}
		v, n := keyValue(types[i].Kind, key)
		switch {
		case n == 0:
			parts, n = append(parts, fmt.Sprintf("%x", key)), len(key)
		case v == nil:
			parts = append(parts, "NULL")
		default:
			if b, ok := v.([]byte); ok {
				parts = append(parts, fmt.Sprintf("%x", b))
			} else {
				parts = append(parts, storage.KeyText(types[i], v))
			}
		}
		key = key[n:]
	}
	return strings.Join(parts, ",")
}

// keyValue reads the first value of a key and the number of bytes that it takes; 0: it is none of that kind.
func keyValue(k storage.Kind, key []byte) (any, int) {
	if key[0] == tagNull {
		return nil, 1
	}
	if key[0] != tagValue {
		return nil, 0
	}
	b := key[1:]
	number := func() (uint64, bool) {
		if len(b) < 8 {
			return 0, false
		}
		return binary.BigEndian.Uint64(b), true
	}
	switch k {
	case storage.Bool:
		if len(b) < 1 {
			return nil, 0
		}
		return b[0] == 1, 2
	case storage.Int32, storage.Date:
		n, ok := number()
		if !ok {
			return nil, 0
		}
		return int32(int64(n ^ 1<<63)), 9
	case storage.Int64, storage.Timestamp:
		n, ok := number()
		if !ok {
			return nil, 0
		}
		return int64(n ^ 1<<63), 9
	case storage.Float32, storage.Float64:
		n, ok := number()
		if !ok {
			return nil, 0
		}
		if n>>63 == 1 {
			n &^= 1 << 63
		} else {
			n = ^n
		}
		if k == storage.Float64 {
			return math.Float64frombits(n), 9
		}
		return float32(math.Float64frombits(n)), 9
	case storage.Decimal:
		if len(b) < 16 {
			return nil, 0
		}
		return decimal128.New(int64(binary.BigEndian.Uint64(b)^1<<63), binary.BigEndian.Uint64(b[8:])), 17
	case storage.String, storage.Bytes:
		var out []byte
		for i := 0; i+1 < len(b); i++ {
			if b[i] != 0 {
				out = append(out, b[i])
				continue
			}
			if b[i+1] == 1 {
				if k == storage.String {
					return string(out), i + 3
				}
				return append([]byte{}, out...), i + 3
			}
			out = append(out, 0)
			i++
		}
	}
	return nil, 0
}
