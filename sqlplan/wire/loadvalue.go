package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// exactConverter turns text that is exactly a value of type t into that value,
// without the trial of layouts and the boxing of the general conversion. It is
// nil for types, and answers false for texts, that the general one must judge.
func exactConverter(t sql.Type) func([]byte) (any, bool) {
	switch t.Type() {
	case querypb.Type_INT8:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, math.MinInt8, math.MaxInt8)
			return int8(n), ok
		}
	case querypb.Type_INT16:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, math.MinInt16, math.MaxInt16)
			return int16(n), ok
		}
	case querypb.Type_INT24:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, -1<<23, 1<<23-1)
			return int32(n), ok
		}
	case querypb.Type_INT32:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, math.MinInt32, math.MaxInt32)
			return int32(n), ok
		}
	case querypb.Type_INT64:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, math.MinInt64, math.MaxInt64)
			return n, ok
		}
	case querypb.Type_UINT32:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, 0, math.MaxUint32)
			return uint32(n), ok
		}
	case querypb.Type_UINT64:
		return func(b []byte) (any, bool) {
			n, ok := parseInt(b, 0, math.MaxInt64)
			return uint64(n), ok
		}
	case querypb.Type_FLOAT64:
		return func(b []byte) (any, bool) {
			if len(b) == 0 || len(b) > 40 || !plainNumber(b) {
				return nil, false
			}
			f, err := strconv.ParseFloat(string(b), 64)
			return f, err == nil
		}
	case querypb.Type_DECIMAL:
		d, ok := t.(sql.DecimalType)
		if !ok {
			return nil
		}
		precision, scale := int(d.Precision()), int(d.Scale())
		return func(b []byte) (any, bool) { return parseDecimal(b, precision, scale) }
	case querypb.Type_DATE:
		return func(b []byte) (any, bool) {
			if len(b) != 10 {
				return nil, false
			}
			return parseDate(b)
		}
	case querypb.Type_DATETIME:
		dt, ok := t.(sql.DatetimeType)
		if !ok {
			return nil
		}
		precision := dt.Precision()
		return func(b []byte) (any, bool) { return parseDatetime(b, precision) }
	}
	return nil
}

func plainNumber(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return false
		}
	}
	return true
}

func parseInt(b []byte, low, high int64) (int64, bool) {
	digits := b
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 { // longer ones may overflow
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, n >= low && n <= high
}

// parseDecimal reads a number whose digits all fit the column.
func parseDecimal(b []byte, precision, scale int) (any, bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	var n int64
	whole, frac, point := 0, 0, false
	for _, c := range b {
		switch {
		case c == '.' && !point:
			point = true
			continue
		case c < '0' || c > '9':
			return nil, false
		case point:
			frac++
		case n != 0 || c != '0':
			whole++
		}
		n = n*10 + int64(c-'0')
	}
	if len(b) == 0 || (point && len(b) == 1) || frac > scale || whole > precision-scale || whole+scale > 18 {
		return nil, false
	}
	for ; frac < scale; frac++ {
		n *= 10
	}
	if neg {
		n = -n
	}
	return apd.New(n, int32(-scale)), true
}

// number reads a fixed run of digits; -1: something else is in it.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func parseDate(b []byte) (any, bool) {
	y, m, d := number(b[:4]), number(b[5:7]), number(b[8:10])
	if b[4] != '-' || b[7] != '-' || y < 1 || m < 1 || m > 12 || d < 1 || d > 31 {
		return nil, false
	}
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC)
	return t, t.Day() == d // else the day does not exist in the month
}

// parseDatetime reads "YYYY-MM-DD hh:mm:ss[.f]" with no more digits than the column keeps.
func parseDatetime(b []byte, precision int) (any, bool) {
	if len(b) < 19 || (b[10] != ' ' && b[10] != 'T') || b[13] != ':' || b[16] != ':' {
		return nil, false
	}
	v, ok := parseDate(b[:10])
	if !ok {
		return nil, false
	}
	h, m, s := number(b[11:13]), number(b[14:16]), number(b[17:19])
	if h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 59 {
		return nil, false
	}
	nanos := 0
	if len(b) > 19 {
		frac := b[20:]
		if b[19] != '.' || len(frac) == 0 || len(frac) > precision {
			return nil, false
		}
		if nanos = number(frac); nanos < 0 {
			return nil, false
		}
		for i := len(frac); i < 9; i++ {
			nanos *= 10
		}
	}
	day := v.(time.Time)
	return day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second + time.Duration(nanos)), true
}
