package storage

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// This file writes nested Avro values as JSON text, the form in which list, map and record columns leave the package:
// records and maps are objects, decimals strings, dates "2006-01-02", timestamps "2006-01-02T15:04:05.000000Z",
// bytes base64, NaN and the infinities strings; ", " and ": " separate.

// appendText appends the value of type t at b[i] as JSON and gives the offset after it.
func (t *avroType) appendText(dst, b []byte, i, depth int) ([]byte, int, error) {
	if depth > avroDepthMax {
		return dst, 0, errAvroDepth
	}
	switch t.kind {
	case avroNull:
		return append(dst, "null"...), i, nil
	case avroUnion:
		br, next := avroVar(b, i)
		if next < 0 {
			return dst, 0, errAvroShort
		}
		if br < 0 || br >= int64(len(t.branches)) {
			return dst, 0, fmt.Errorf("avro union has no branch %d", br)
		}
		return t.branches[br].appendText(dst, b, next, depth+1)
	case avroRecord:
		dst = append(dst, '{')
		for n, f := range t.fields {
			if n > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendJSONString(dst, f.name), ": "...)
			var err error
			if dst, i, err = f.typ.appendText(dst, b, i, depth+1); err != nil {
				return dst, 0, err
			}
		}
		return append(dst, '}'), i, nil
	case avroArray, avroMap:
		return t.appendItems(dst, b, i, depth)
	}
	end, err := t.skip(b, i, depth)
	if err != nil {
		return dst, 0, err
	}
	return t.appendScalar(dst, b[i:end]), end, nil
}

func (t *avroType) appendItems(dst, b []byte, i, depth int) ([]byte, int, error) {
	open, shut := byte('['), byte(']')
	if t.kind == avroMap {
		open, shut = '{', '}'
	}
	dst = append(dst, open)
	first := true
	for {
		n, next, err := avroCount(b, i)
		if err != nil {
			return dst, 0, err
		}
		i = next
		if n == 0 {
			return append(dst, shut), i, nil
		}
		for range n {
			if !first {
				dst = append(dst, ", "...)
			}
			first = false
			if t.kind == avroMap {
				from, to := avroSpan(b, i)
				if to < 0 {
					return dst, 0, errAvroShort
				}
				dst = append(appendJSONString(dst, textOf(b[from:to])), ": "...)
				i = to
			}
			if dst, i, err = t.items.appendText(dst, b, i, depth+1); err != nil {
				return dst, 0, err
			}
		}
	}
}

// appendScalar appends a value that fills b exactly.
func (t *avroType) appendScalar(dst, b []byte) []byte {
	switch t.kind {
	case avroBool:
		return strconv.AppendBool(dst, b[0] != 0)
	case avroInt, avroLong:
		x, _ := avroVar(b, 0)
		switch t.logical {
		case "date":
			return appendJSONDate(dst, x)
		case "timestamp-millis", "local-timestamp-millis":
			return appendJSONTimestamp(dst, time.UnixMilli(x))
		case "timestamp-micros", "local-timestamp-micros":
			return appendJSONTimestamp(dst, time.UnixMicro(x))
		}
		return strconv.AppendInt(dst, x, 10)
	case avroFloat:
		return appendJSONFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case avroDouble:
		return appendJSONFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	case avroEnum:
		x, _ := avroVar(b, 0)
		if x < 0 || x >= int64(len(t.symbols)) {
			return append(dst, "null"...)
		}
		return appendJSONString(dst, t.symbols[x])
	case avroString:
		from, to := avroSpan(b, 0)
		return appendJSONString(dst, textOf(b[from:to]))
	}
	if t.kind == avroBytes {
		from, to := avroSpan(b, 0)
		b = b[from:to]
	}
	if t.logical == "decimal" {
		return appendJSONDecimal(dst, b, t.scale)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendJSONString quotes s; only what JSON demands is escaped, bytes that are no UTF-8 become U+FFFD.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c >= 0x20:
				dst = append(dst, c)
			case c == '\n':
				dst = append(dst, `\n`...)
			case c == '\r':
				dst = append(dst, `\r`...)
			case c == '\t':
				dst = append(dst, `\t`...)
			case c == '\b':
				dst = append(dst, `\b`...)
			case c == '\f':
				dst = append(dst, `\f`...)
			default:
				dst = append(dst, `\u00`...)
				dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return append(dst, '"')
}

func appendJSONFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, bits)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
	for _, c := range dst[from:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

func appendJSONDate(dst []byte, days int64) []byte {
	dst = append(dst, '"')
	dst = time.Unix(days*86400, 0).UTC().AppendFormat(dst, "2006-01-02")
	return append(dst, '"')
}

func appendJSONTimestamp(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
	return append(dst, '"')
}

// appendJSONDecimal takes the big-endian two's complement bytes of the unscaled value; one that is wider than any decimal
// column is null.
func appendJSONDecimal(dst, b []byte, scale int) []byte {
	n, ok := readDecimal(b)
	if !ok {
		return append(dst, "null"...)
	}
	return append(appendPlainDecimal(append(dst, '"'), n, scale), '"')
}

// readDecimal reads a big-endian two's complement number; false if it is wider than 128 bits.
func readDecimal(b []byte) (decimal128.Num, bool) {
	if len(b) == 0 {
		return decimal128.Num{}, true
	}
	fill := byte(0)
	if b[0] >= 0x80 {
		fill = 0xff
	}
	for len(b) > 16 {
		if b[0] != fill || (b[1] >= 0x80) != (fill == 0xff) {
			return decimal128.Num{}, false
		}
		b = b[1:]
	}
	hi, lo := int64(int8(fill)), uint64(int64(int8(fill)))
	for _, c := range b {
		hi = hi<<8 | int64(lo>>56)
		lo = lo<<8 | uint64(c)
	}
	return decimal128.New(hi, lo), true
}

// appendDecimal appends the last width bytes of a number; false if it does not fit in them.
func appendDecimal(dst []byte, n decimal128.Num, width int) ([]byte, bool) {
	var full [16]byte
	binary.BigEndian.PutUint64(full[:8], uint64(n.HighBits()))
	binary.BigEndian.PutUint64(full[8:], n.LowBits())
	fill := byte(0)
	if n.HighBits() < 0 {
		fill = 0xff
	}
	for w := width; w > 16; w-- {
		dst = append(dst, fill)
	}
	width = min(width, 16)
	cut := full[:16-width]
	for _, c := range cut {
		if c != fill {
			return dst, false
		}
	}
	if width == 0 || (full[16-width] >= 0x80) != (fill == 0xff) {
		return dst, false
	}
	return append(dst, full[16-width:]...), true
}

// numWidth gives the fewest bytes that hold n.
func numWidth(n decimal128.Num) int {
	x := n.BigInt()
	if x.Sign() < 0 {
		x = new(big.Int).Not(x)
	}
	return x.BitLen()/8 + 1
}
