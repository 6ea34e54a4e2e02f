package sqlplan

import (
	"fmt"
	"math"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"

	"github.com/lakesql/lakesql/storage"
)

// SQLSTATEs of the errors that this package makes itself.
const (
	stateNotSupported = "42000"
	stateBadValue     = "22007"
)

// decimalDigitsMax is the largest precision that Hudi's decimals hold. A wider DECIMAL is kept as text.
const decimalDigitsMax = 38

// storageType gives the type of the column in the table schema that holds every value of a MySQL type without loss.
// docs/types.md lists the mapping. A type that tables cannot hold is error 1235.
func storageType(t sql.Type) (storage.Type, error) {
	switch t := t.(type) {
	case types.NumberTypeImpl_:
		switch t.Type() {
		case sqltypes.Int8, sqltypes.Uint8, sqltypes.Int16, sqltypes.Uint16, sqltypes.Int24, sqltypes.Uint24, sqltypes.Int32:
			return storage.Type{Kind: storage.Int32}, nil
		case sqltypes.Uint32, sqltypes.Int64:
			return storage.Type{Kind: storage.Int64}, nil
		case sqltypes.Uint64:
			// Hudi has no unsigned long; 20 digits hold 2^64-1.
			return storage.Type{Kind: storage.Decimal, Precision: 20}, nil
		case sqltypes.Float32:
			return storage.Type{Kind: storage.Float32}, nil
		case sqltypes.Float64:
			return storage.Type{Kind: storage.Float64}, nil
		}
	case types.DecimalType_:
		if t.Precision() <= decimalDigitsMax {
			return storage.Type{Kind: storage.Decimal, Precision: int(t.Precision()), Scale: int(t.Scale())}, nil
		}
		return storage.Type{Kind: storage.String}, nil
	case types.StringType:
		if types.IsBinaryType(t) {
			return storage.Type{Kind: storage.Bytes}, nil
		}
		return storage.Type{Kind: storage.String}, nil
	case types.TimespanType_:
		return storage.Type{Kind: storage.Int64}, nil
	case types.YearType_:
		return storage.Type{Kind: storage.Int32}, nil
	case types.BitType_:
		if t.NumberOfBits() < 64 {
			return storage.Type{Kind: storage.Int64}, nil
		}
		return storage.Type{Kind: storage.Bytes}, nil
	case types.EnumType, types.SetType, types.JsonType:
		return storage.Type{Kind: storage.String}, nil
	case types.VectorType:
		return storage.Type{Kind: storage.Bytes}, nil
	case sql.DatetimeType:
		if types.IsDateType(t) {
			return storage.Type{Kind: storage.Date}, nil
		}
		return storage.Type{Kind: storage.Timestamp}, nil
	}
	if types.IsGeometry(t) {
		return storage.Type{Kind: storage.Bytes}, nil
	}
	return storage.Type{}, mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
		"This version of lakesql doesn't yet support columns of type %s", t)
}

// keyTextChars is the length of the VARCHAR that stands for a string column in the key of an attached table: the longest
// that MySQL's row limit of 65,535 bytes allows.
const keyTextChars = 16383

// attachedCollation is the collation of string columns of attached tables. Their writers tell texts apart byte by byte, so
// any other collation would make one row of two.
const attachedCollation = sql.Collation_utf8mb4_0900_bin

var (
	attachedText     = types.CreateLongText(attachedCollation)
	attachedKeyText  = types.MustCreateString(sqltypes.VarChar, keyTextChars, attachedCollation)
	attachedKeyBytes = types.MustCreateBinary(sqltypes.VarBinary, 65535)
)

// sqlType gives the MySQL type by which a column of an attached table is seen.
func sqlType(f storage.Field) sql.Type {
	switch f.Type.Kind {
	case storage.Bool:
		return types.Boolean
	case storage.Int32:
		return types.Int32
	case storage.Int64:
		return types.Int64
	case storage.Float32:
		return types.Float32
	case storage.Float64:
		return types.Float64
	case storage.Bytes:
		return types.LongBlob
	case storage.Date:
		return types.Date
	case storage.Timestamp:
		return types.DatetimeMaxPrecision
	case storage.Decimal:
		// MySQL's scale ends at 30, Hudi's at 38: a finer one is shown as text, which loses nothing.
		if f.Type.Scale <= types.DecimalTypeMaxScale {
			return types.MustCreateColumnDecimalType(uint8(f.Type.Precision), uint8(f.Type.Scale))
		}
		return attachedText
	case storage.Nested:
		return types.JSON
	}
	return attachedText
}

// sqlKeyType is sqlType for a column of the record key: key columns have a length in MySQL.
func sqlKeyType(f storage.Field) sql.Type {
	switch f.Type.Kind {
	case storage.String:
		return attachedKeyText
	case storage.Bytes:
		return attachedKeyBytes
	}
	return sqlType(f)
}

// typeText writes a type so that parseType reads back an equal one, whatever the collation of the table is.
func typeText(t sql.Type) string {
	switch t := t.(type) {
	case types.EnumType:
		return "enum(" + quoteList(t.Values()) + ")" + collationText(t.Collation())
	case types.SetType:
		return "set(" + quoteList(t.Values()) + ")" + collationText(t.Collation())
	case types.StringType:
		return t.StringWithTableCollation(sql.Collation_Unspecified)
	case sql.SpatialColumnType:
		text := t.(sql.Type).String()
		if srid, ok := t.GetSpatialTypeSRID(); ok {
			text += fmt.Sprintf(" SRID %d", srid)
		}
		return text
	}
	return t.String()
}

// parseType reads what typeText wrote.
func parseType(ctx *sql.Context, text string) (sql.Type, error) {
	t, err := planbuilder.ParseColumnTypeString(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("reading column type %q: %w", text, err)
	}
	return t, nil
}

func collationText(c sql.CollationID) string {
	if c == sql.Collation_Unspecified {
		return ""
	}
	return " CHARACTER SET " + c.CharacterSet().Name() + " COLLATE " + c.Name()
}

// quoteList writes string literals separated by commas. The front end's own text of ENUM and SET doubles quotes but leaves
// backslashes, which its parser then takes for escapes.
func quoteList(values []string) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoteText(v))
	}
	return b.String()
}

// quoteText writes a string literal.
func quoteText(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('\'')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\'':
			b.WriteString("''")
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\0`)
		case 0x1a:
			b.WriteString(`\Z`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// keyCollation gives the collation by which a column compares in keys and indexes ("" for values that compare as numbers or
// bytes), and whether the order of its keys is the order of the SQL type. Labels of ENUM and SET and DECIMAL of more than
// 38 digits are kept as text: equal values have equal keys, but only the type itself knows their order. Types that cannot
// stand in a key answer ok=false.
func keyCollation(t sql.Type) (collation string, ordered, ok bool) {
	switch t := t.(type) {
	case types.StringType:
		if types.IsBinaryType(t) {
			return "", true, true
		}
		return t.Collation().Name(), true, true
	case types.EnumType, types.SetType:
		return "", false, true
	case types.DecimalType_:
		return "", t.Precision() <= decimalDigitsMax, true
	case types.JsonType, types.VectorType:
		return "", false, false
	}
	if types.IsGeometry(t) {
		return "", false, false
	}
	return "", true, true
}

// intLimits gives the least and the largest value of an integer type of at most 32 bits.
func intLimits(t types.NumberTypeImpl_) (lo, hi int64) {
	switch t.Type() {
	case sqltypes.Int8:
		return math.MinInt8, math.MaxInt8
	case sqltypes.Uint8:
		return 0, math.MaxUint8
	case sqltypes.Int16:
		return math.MinInt16, math.MaxInt16
	case sqltypes.Uint16:
		return 0, math.MaxUint16
	case sqltypes.Int24:
		return -1 << 23, 1<<23 - 1
	case sqltypes.Uint24:
		return 0, 1<<24 - 1
	case sqltypes.Uint32:
		return 0, math.MaxUint32
	}
	return math.MinInt32, math.MaxInt32
}
