package sqlplan

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"

	"github.com/lakesql/lakesql/storage"
)

// Texts that are exactly a value of a type, in its usual form, are read here without the trial of layouts and the boxing of
// the front end's conversions. Every other text is theirs to judge.

// exactWriter gives the function that adds texts to a column of a builder. It answers false, and adds nothing, for a text
// that the front end must convert; it is nil for types whose texts all are. binary texts are for character columns as well.
func exactWriter(c *columnCodec, dst storage.Column) func([]byte) bool {
	switch t := c.typ.(type) {
	case types.NumberTypeImpl_:
		return exactNumber(t, dst)
	case types.DecimalType_:
		precision, scale := int(t.Precision()), int(t.Scale())
		if dst.Kind() != storage.Decimal || c.field.Scale != scale {
			return nil
		}
		return func(b []byte) bool {
			n, ok := exactDecimal(b, precision, scale)
			if ok {
				dst.Decimal(decimal128.FromI64(n))
			}
			return ok
		}
	case types.StringType:
		return exactString(t, dst)
	case types.EnumType:
		labels := newEnumLabels(t)
		return func(b []byte) bool {
			i, ok := labels.byText[string(b)]
			return ok && i > 0 && dst.Text(b) == nil
		}
	case types.YearType_:
		if dst.Kind() != storage.Int32 {
			return nil
		}
		return func(b []byte) bool {
			if len(b) != 4 {
				return false
			}
			y := digits(b)
			if y < 1901 || y > 2155 {
				return false
			}
			dst.Int32(int32(y))
			return true
		}
	case sql.DatetimeType:
		return exactTime(c, t, dst)
	}
	return nil
}

func exactNumber(t types.NumberTypeImpl_, dst storage.Column) func([]byte) bool {
	switch t.Type() {
	case sqltypes.Float64:
		if dst.Kind() != storage.Float64 {
			return nil
		}
		return func(b []byte) bool {
			f, ok := exactFloat(b)
			if ok {
				dst.Float64(f)
			}
			return ok
		}
	case sqltypes.Float32:
		if dst.Kind() != storage.Float32 {
			return nil
		}
		return func(b []byte) bool {
			f, ok := exactFloat(b)
			if ok = ok && math.Abs(f) <= math.MaxFloat32; ok {
				dst.Float32(float32(f))
			}
			return ok
		}
	}
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch t.Type() {
	case sqltypes.Int64:
	case sqltypes.Uint64:
		low = 0
	default:
		if intBox(t) == nil {
			return nil
		}
		low, high = intLimits(t)
	}
	var add func(int64)
	switch dst.Kind() {
	case storage.Int32:
		add = func(n int64) { dst.Int32(int32(n)) }
	case storage.Int64:
		add = dst.Int64
	case storage.Decimal:
		add = func(n int64) { dst.Decimal(decimal128.FromI64(n)) }
	default:
		return nil
	}
	return func(b []byte) bool {
		n, ok := exactInt(b, low, high)
		if ok {
			add(n)
		}
		return ok
	}
}

func exactString(t types.StringType, dst storage.Column) func([]byte) bool {
	switch t.Type() {
	case sqltypes.VarBinary, sqltypes.Blob:
		most := t.MaxByteLength()
		if dst.Kind() != storage.Bytes {
			return nil
		}
		return func(b []byte) bool { return int64(len(b)) <= most && dst.Text(b) == nil }
	case sqltypes.VarChar, sqltypes.Char, sqltypes.Text:
	default:
		return nil
	}
	if t.CharacterSet() != sql.CharacterSet_utf8mb4 || dst.Kind() != storage.String {
		return nil
	}
	if t.Type() == sqltypes.Text {
		most := t.MaxByteLength()
		return func(b []byte) bool { return int64(len(b)) <= most && utf8.Valid(b) && dst.Text(b) == nil }
	}
	most := int(t.MaxCharacterLength())
	return func(b []byte) bool {
		if len(b) > most && (len(b) > 4*most || utf8.RuneCount(b) > most) {
			return false
		}
		return utf8.Valid(b) && dst.Text(b) == nil
	}
}

func exactTime(c *columnCodec, t sql.DatetimeType, dst storage.Column) func([]byte) bool {
	switch t.Type() {
	case sqltypes.Date:
		if dst.Kind() != storage.Date {
			return nil
		}
		return func(b []byte) bool {
			d, ok := exactDate(b)
			if ok {
				dst.Int32(d)
			}
			return ok
		}
	case sqltypes.Datetime, sqltypes.Timestamp:
	default:
		return nil
	}
	if dst.Kind() != storage.Timestamp {
		return nil
	}
	precision := t.Precision()
	if t.Type() == sqltypes.Datetime {
		return func(b []byte) bool {
			us, ok := exactDatetime(b, precision)
			if ok {
				dst.Int64(us)
			}
			return ok
		}
	}
	return func(b []byte) bool {
		us, ok := exactDatetime(b, precision)
		if !ok || us < stampMin || us > stampMax {
			return false
		}
		v, err := c.encode(time.UnixMicro(us).UTC()) // by the session's zone
		return err == nil && dst.Value(v) == nil
	}
}

// stampMin and stampMax are a day inside the limits of TIMESTAMP, in microseconds.
const (
	stampMin = 2 * secondsPerDay * 1_000_000
	stampMax = (math.MaxInt32 - 2*secondsPerDay) * 1_000_000
)

// exactInt reads a decimal integer of at most 18 digits.
func exactInt(b []byte, low, high int64) (int64, bool) {
	rest := b
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		rest = b[1:]
	}
	if len(rest) == 0 || len(rest) > 18 { // longer ones may overflow
		return 0, false
	}
	var n int64
	for _, c := range rest {
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

// exactDecimal reads a number whose digits all fit DECIMAL(precision, scale), as that many units of its last place.
func exactDecimal(b []byte, precision, scale int) (int64, bool) {
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
			return 0, false
		case point:
			frac++
		case n != 0 || c != '0':
			whole++
		}
		if whole+frac > 18 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(b) == 0 || (point && len(b) == 1) || frac > scale || whole > precision-scale || whole+scale > 18 {
		return 0, false
	}
	for ; frac < scale; frac++ {
		n *= 10
	}
	if neg {
		n = -n
	}
	return n, true
}

func exactFloat(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 40 {
		return 0, false
	}
	for _, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil
}

// digits reads a fixed run of digits; -1: something else is in it.
func digits(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

var daysInMonth = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// exactDate reads "YYYY-MM-DD", a date that exists and is none of MySQL's zero dates, as days since 1970-01-01.
func exactDate(b []byte) (int32, bool) {
	if len(b) != 10 || b[4] != '-' || b[7] != '-' {
		return 0, false
	}
	y, m, d := digits(b[:4]), digits(b[5:7]), digits(b[8:10])
	if y < 1 || m < 1 || m > 12 || d < 1 || d > daysInMonth[m] && !(m == 2 && d == 29 && leap(y)) {
		return 0, false
	}
	// Years begin in March here: the leap day is their last one.
	if m <= 2 {
		y, m = y-1, m+12
	}
	return int32(365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + d - 1 - 719468), true
}

func leap(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

// exactDatetime reads "YYYY-MM-DD hh:mm:ss[.f]" with no more than precision digits behind the point, as microseconds since 1970.
func exactDatetime(b []byte, precision int) (int64, bool) {
	if len(b) < 19 || (b[10] != ' ' && b[10] != 'T') || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	day, ok := exactDate(b[:10])
	if !ok {
		return 0, false
	}
	h, m, s := digits(b[11:13]), digits(b[14:16]), digits(b[17:19])
	if h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 59 {
		return 0, false
	}
	micros := 0
	if len(b) > 19 {
		frac := b[20:]
		if b[19] != '.' || len(frac) == 0 || len(frac) > min(precision, 6) {
			return 0, false
		}
		if micros = digits(frac); micros < 0 {
			return 0, false
		}
		for i := len(frac); i < 6; i++ {
			micros *= 10
		}
	}
	return (int64(day)*secondsPerDay+int64(h*3600+m*60+s))*1_000_000 + int64(micros), true
}

// ExactText gives the function that turns a text into the front end's value of a type; it answers false for texts that the
// front end must convert. It is nil for types whose texts all are.
func ExactText(t sql.Type) func([]byte) (any, bool) {
	switch t.Type() {
	case querypb.Type_INT8:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, math.MinInt8, math.MaxInt8)
			return int8(n), ok
		}
	case querypb.Type_INT16:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, math.MinInt16, math.MaxInt16)
			return int16(n), ok
		}
	case querypb.Type_INT24:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, -1<<23, 1<<23-1)
			return int32(n), ok
		}
	case querypb.Type_INT32:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, math.MinInt32, math.MaxInt32)
			return int32(n), ok
		}
	case querypb.Type_INT64:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, math.MinInt64, math.MaxInt64)
			return n, ok
		}
	case querypb.Type_UINT32:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, 0, math.MaxUint32)
			return uint32(n), ok
		}
	case querypb.Type_UINT64:
		return func(b []byte) (any, bool) {
			n, ok := exactInt(b, 0, math.MaxInt64)
			return uint64(n), ok
		}
	case querypb.Type_FLOAT64:
		return func(b []byte) (any, bool) {
			f, ok := exactFloat(b)
			return f, ok
		}
	case querypb.Type_DECIMAL:
		d, ok := t.(sql.DecimalType)
		if !ok {
			return nil
		}
		precision, scale := int(d.Precision()), int(d.Scale())
		return func(b []byte) (any, bool) {
			n, ok := exactDecimal(b, precision, scale)
			if !ok {
				return nil, false
			}
			return apd.New(n, int32(-scale)), true
		}
	case querypb.Type_DATE:
		return func(b []byte) (any, bool) {
			d, ok := exactDate(b)
			if !ok {
				return nil, false
			}
			return dateOf(d), true
		}
	case querypb.Type_DATETIME:
		dt, ok := t.(sql.DatetimeType)
		if !ok {
			return nil
		}
		precision := dt.Precision()
		return func(b []byte) (any, bool) {
			us, ok := exactDatetime(b, precision)
			if !ok {
				return nil, false
			}
			return time.UnixMicro(us).UTC(), true
		}
	}
	return nil
}
