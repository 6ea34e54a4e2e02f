package storage

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// KeyText gives a value as Hudi writes it into record keys and partition paths: Java's toString of it. A timestamp is its
// raw number in the unit of its Avro type. Bytes have no useful text in Java; here they are lower-case hex. NULL is "null".
func KeyText(t Type, v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int32:
		if t.Kind == Date {
			return string(appendJavaDate(nil, int64(v)))
		}
		return strconv.FormatInt(int64(v), 10)
	case int64:
		if t.Kind == Timestamp {
			v = timestampUnit(t).fromMicros(v)
		}
		return strconv.FormatInt(v, 10)
	case float32:
		return string(appendJavaFloat(nil, float64(v), 32))
	case float64:
		return string(appendJavaFloat(nil, v, 64))
	case []byte:
		return hex.EncodeToString(v)
	case decimal128.Num:
		return string(appendJavaDecimal(nil, v, t.Scale))
	}
	panic(fmt.Sprintf("storage: %T is no value of a row", v))
}

// timeUnit is the unit in which files hold a timestamp; rows hold microseconds.
type timeUnit uint8

const (
	micros timeUnit = iota
	millis
	nanos
)

// timestampUnit is the unit that a column's Avro type asks for.
func timestampUnit(t Type) timeUnit {
	switch {
	case t.Avro == "":
		return micros
	case strings.Contains(t.Avro, "timestamp-millis"):
		return millis
	case strings.Contains(t.Avro, "timestamp-nanos"):
		return nanos
	}
	return micros
}

// fromMicros rounds down.
func (u timeUnit) fromMicros(v int64) int64 {
	switch u {
	case millis:
		return floorDiv(v, 1000)
	case nanos:
		return v * 1000
	}
	return v
}

// toMicros rounds down.
func (u timeUnit) toMicros(v int64) int64 {
	switch u {
	case millis:
		return v * 1000
	case nanos:
		return floorDiv(v, 1000)
	}
	return v
}

// appendJavaDate writes days since 1970 as Java's LocalDate does: ISO, with a sign on years past 9999.
func appendJavaDate(dst []byte, days int64) []byte {
	y, m, d := time.Unix(days*86400, 0).UTC().Date()
	switch {
	case y < 0:
		dst = append(dst, '-')
		y = -y
	case y > 9999:
		dst = append(dst, '+')
	}
	dst = appendPadded(dst, y, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int(m), 2)
	dst = append(dst, '-')
	return appendPadded(dst, d, 2)
}

func appendPadded(dst []byte, v, width int) []byte {
	for p := pow10(width - 1); v < p && p > 1; p /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(v), 10)
}

func pow10(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}

// appendJavaFloat writes a number as Java's Float.toString and Double.toString do.
func appendJavaFloat(dst []byte, f float64, size int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		n := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, size)
		for _, c := range dst[n:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, ".0"...)
	}
	s := strconv.FormatFloat(f, 'e', -1, size)
	mantissa, exp, _ := strings.Cut(s, "e")
	dst = append(dst, mantissa...)
	if !strings.Contains(mantissa, ".") {
		dst = append(dst, ".0"...)
	}
	n, _ := strconv.Atoi(exp)
	return strconv.AppendInt(append(dst, 'E'), int64(n), 10)
}

// appendDigits writes the magnitude of a decimal's unscaled value and tells whether it is negative.
func appendDigits(dst []byte, v decimal128.Num) ([]byte, bool) {
	neg := v.Sign() < 0
	hi, lo := uint64(v.HighBits()), v.LowBits()
	if neg {
		var carry uint64
		lo, carry = bits.Add64(^lo, 1, 0)
		hi = ^hi + carry
	}
	if hi == 0 {
		return strconv.AppendUint(dst, lo, 10), neg
	}
	const e19 = 10_000_000_000_000_000_000
	q1, r1 := hi/e19, hi%e19
	q0, low := bits.Div64(r1, lo, e19)
	// The magnitude is (q1·2^64 + q0)·10^19 + low, and q1 at most 1.
	if q1 == 0 {
		dst = strconv.AppendUint(dst, q0, 10)
	} else {
		top, mid := bits.Div64(q1, q0, e19)
		dst = strconv.AppendUint(dst, top, 10)
		dst = appendPadded19(dst, mid)
	}
	return appendPadded19(dst, low), neg
}

func appendPadded19(dst []byte, v uint64) []byte {
	var b [20]byte
	s := strconv.AppendUint(b[:0], v, 10)
	for range 19 - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

// appendPlainDecimal writes a decimal in plain notation with all digits of its scale.
func appendPlainDecimal(dst []byte, v decimal128.Num, scale int) []byte {
	var b [48]byte
	digits, neg := appendDigits(b[:0], v)
	if neg {
		dst = append(dst, '-')
	}
	if scale <= 0 {
		dst = append(dst, digits...)
		if string(digits) != "0" {
			for range -scale {
				dst = append(dst, '0')
			}
		}
		return dst
	}
	if len(digits) <= scale {
		dst = append(dst, '0', '.')
		for range scale - len(digits) {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	return append(append(dst, '.'), digits[len(digits)-scale:]...)
}

// appendJavaDecimal writes a decimal as BigDecimal.toString does, which turns to an exponent for small numbers.
func appendJavaDecimal(dst []byte, v decimal128.Num, scale int) []byte {
	var b [48]byte
	digits, neg := appendDigits(b[:0], v)
	exp := len(digits) - 1 - scale
	if scale == 0 || scale > 0 && exp >= -6 {
		return appendPlainDecimal(dst, v, scale)
	}
	if neg {
		dst = append(dst, '-')
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	if exp == 0 {
		return dst
	}
	dst = append(dst, 'E')
	if exp > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(exp), 10)
}

// compareJava compares text as Java's String.compareTo does: by UTF-16 units. That differs from the order of bytes only
// between characters beyond the basic plane and those from U+E000 on.
func compareJava(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return len(a) - len(b)
	}
	if a[i] < 0x80 && b[i] < 0x80 {
		return int(a[i]) - int(b[i])
	}
	for i > 0 && !utf8.RuneStart(a[i]) {
		i--
	}
	ra, _ := utf8.DecodeRuneInString(a[i:])
	rb, _ := utf8.DecodeRuneInString(b[i:])
	if (ra > 0xffff) != (rb > 0xffff) {
		if ra > 0xffff && rb >= 0xe000 {
			return -1
		}
		if rb > 0xffff && ra >= 0xe000 {
			return 1
		}
	}
	if ra == rb { // text that is no UTF-8
		return strings.Compare(a, b)
	}
	return int(ra - rb)
}
