package sqlplan

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
)

// ModifyColumn changes name, type, default and place of a column, and converts the rows.
func (t *ownTable) ModifyColumn(ctx *sql.Context, name string, column *sql.Column, order *sql.ColumnOrder) error {
	def := t.def.table.clone()
	n := def.columnNumber(name)
	if n < 0 {
		return sql.ErrTableColumnNotFound.New(t.Name(), name)
	}
	was := t.def.pk.Schema[n]
	col := *column
	if !strings.EqualFold(name, col.Name) {
		if err := def.release(name, true); err != nil {
			return err
		}
	}
	if was.PrimaryKey {
		col.PrimaryKey, col.Nullable = true, false
	}
	c, err := newColumnDefinition(ctx, &col)
	if err != nil {
		return mysqlError(err)
	}
	rename(def, name, col.Name)
	from := slices.Delete(identity(len(def.Columns)), n, n+1)
	def.Columns = slices.Delete(def.Columns, n, n+1)
	at := place(def, order, n)
	if at < 0 {
		return sql.ErrTableColumnNotFound.New(t.Name(), order.AfterColumn)
	}
	def.Columns = slices.Insert(def.Columns, at, c)
	from = slices.Insert(from, at, n)
	values := map[int]newValue{}
	var free []int
	if v, err := t.converted(ctx, n, was, &col); err != nil {
		return mysqlError(err)
	} else if v != nil {
		values[at] = v
		if followed(was, &col) {
			free = append(free, at)
		}
	}
	return t.alterColumns(ctx, def, from, values, free...)
}

// rename gives a column of keys, indexes and foreign keys its new name.
func rename(def *tableDefinition, from, to string) {
	if from == to {
		return
	}
	parts := func(list []keyPart) []keyPart {
		list = slices.Clone(list)
		for i := range list {
			if strings.EqualFold(list[i].Column, from) {
				list[i].Column = to
			}
		}
		return list
	}
	def.PrimaryKey = parts(def.PrimaryKey)
	for i := range def.Indexes {
		def.Indexes[i].Columns = parts(def.Indexes[i].Columns)
	}
}

// converted says how the values of a changed column are made, nil if they stay as they are.
func (t *ownTable) converted(ctx *sql.Context, n int, was, col *sql.Column) (newValue, error) {
	if col.Virtual {
		return nil, nil
	}
	if col.Generated != nil && (was.Generated == nil || was.Virtual || was.Generated.String() != col.Generated.String()) {
		return t.fill(ctx, col)
	}
	if typeText(was.Type) == typeText(col.Type) && (col.Nullable || !was.Nullable) {
		return nil, nil
	}
	strict := sql.LoadSqlMode(ctx).Strict()
	return func(ctx *sql.Context, old sql.Row) (any, error) {
		return modified(ctx, old[n], was, col, strict, t.db.engine.plainText)
	}, nil
}

// followed tells whether every value that a column had is one that it may have, and stands in the files as it did or as readers
// widen it by themselves: then the rows stay as they are.
func followed(was, col *sql.Column) bool {
	if was.Nullable && !col.Nullable || col.Generated != nil || was.Virtual || col.Virtual {
		return false
	}
	switch to := col.Type.(type) {
	case types.NumberTypeImpl_:
		from, ok := was.Type.(types.NumberTypeImpl_)
		if !ok {
			return false
		}
		if to.Type() == sqltypes.Float64 && from.Type() == sqltypes.Float32 {
			return true
		}
		lo, hi, ok := integerBits(from)
		tolo, tohi, tok := integerBits(to)
		return ok && tok && lo <= tolo && hi <= tohi
	case types.DecimalType_:
		from, ok := was.Type.(types.DecimalType_)
		return ok && to.Scale() >= from.Scale() && to.Precision()-to.Scale() >= from.Precision()-from.Scale() &&
			(to.Precision() <= decimalDigitsMax) == (from.Precision() <= decimalDigitsMax)
	case types.EnumType: // kept by its labels, whatever their numbers
		from, ok := was.Type.(types.EnumType)
		return ok && !slices.ContainsFunc(from.Values(), func(l string) bool { return !slices.Contains(to.Values(), l) })
	case types.SetType: // kept by its labels, in their order
		from, ok := was.Type.(types.SetType)
		return ok && len(to.Values()) >= len(from.Values()) && slices.Equal(to.Values()[:len(from.Values())], from.Values())
	case types.StringType:
		from, ok := was.Type.(types.StringType)
		switch {
		case !ok || types.IsBinaryType(from) != types.IsBinaryType(to):
			return false
		case to.MaxCharacterLength() < from.MaxCharacterLength() || to.MaxByteLength() < from.MaxByteLength():
			return false
		case from.Type() != to.Type() && (to.Type() == sqltypes.Char || to.Type() == sqltypes.Binary):
			return false // what is padded or cut changes
		case to.Type() == sqltypes.Binary && to.Length() != from.Length():
			return false
		case types.IsBinaryType(to):
			return true
		}
		return holdsCharset(to.CharacterSet(), from.CharacterSet())
	case sql.DatetimeType:
		from, ok := was.Type.(sql.DatetimeType)
		return ok && from.Type() == to.Type() && to.Precision() >= from.Precision()
	}
	return false
}

// integerBits gives how many bits an integer type has for negative and for other values; ok false: it is none.
func integerBits(t types.NumberTypeImpl_) (low, high int, ok bool) {
	bits := map[string]int{"INT8": 8, "INT16": 16, "INT24": 24, "INT32": 32, "INT64": 64}
	name := t.Type().String()
	if n, signed := bits[name]; signed {
		return n - 1, n - 1, true
	}
	n, unsigned := bits[strings.TrimPrefix(name, "U")]
	return 0, n, unsigned
}

// holdsCharset tells whether a character set has all characters of another one.
func holdsCharset(to, from sql.CharacterSetID) bool {
	switch to {
	case from, sql.CharacterSet_utf8mb4, sql.CharacterSet_utf16, sql.CharacterSet_utf32:
		return true
	case sql.CharacterSet_utf8mb3:
		return from == sql.CharacterSet_ascii || from == sql.CharacterSet_latin1
	}
	return from == sql.CharacterSet_ascii && to != sql.CharacterSet_binary
}

// modified gives the value of a changed column. Strict sessions get an error for what does not fit, others a warning and what is left
// of it; plain: errors are the front end's.
func modified(ctx *sql.Context, v any, was, col *sql.Column, strict, plain bool) (any, error) {
	zero := func() (any, error) {
		out, _, err := col.Type.Convert(ctx, col.Type.Zero())
		return out, err
	}
	// misfit answers a value that does not fit: out is what is left of it.
	misfit := func(out any, code int, state, format string, args ...any) (any, error) {
		text := fmt.Sprintf(format, args...) + fmt.Sprintf(" for column '%s'", col.Name) // no row: MySQL counts them in the order of its clustered index
		switch {
		case strict && plain && code == erDataTruncated:
			return nil, types.ErrDataTruncatedForColumn.New(col.Name)
		case strict && plain && code == mysql.ERWarnDataOutOfRange:
			return nil, sql.ErrValueOutOfRange.New(v, col.Type)
		case strict:
			return nil, mysql.NewSQLError(code, state, "%s", text)
		}
		ctx.Warn(code, "%s", text)
		return out, nil
	}
	if v == nil {
		if col.Nullable {
			return nil, nil
		}
		if strict {
			return nil, mysql.NewSQLError(erInvalidUseOfNull, "22004", "Invalid use of NULL value")
		}
		out, err := zero()
		if err != nil {
			return nil, err
		}
		return misfit(out, erDataTruncated, stateTruncated, "Data truncated")
	}
	if from, ok := was.Type.(sql.EnumType); ok {
		if to, ok := col.Type.(sql.EnumType); ok {
			label, _ := from.At(int(v.(uint16)))
			if k := to.IndexOf(label); k >= 0 || v.(uint16) == 0 {
				return uint16(max(k, 0)), nil
			}
			return misfit(uint16(0), erDataTruncated, stateTruncated, "Data truncated")
		}
	}
	if from, ok := was.Type.(sql.SetType); ok {
		if to, ok := col.Type.(sql.SetType); ok {
			return modifiedSet(v.(uint64), from, to, misfit)
		}
	}
	out, in, err := types.TypeAwareConversion(ctx, v, was.Type, col.Type)
	if err == nil && in == sql.InRange {
		return out, nil
	}
	given, _, terr := types.LongText.Convert(ctx, v)
	if terr != nil {
		given = v
	}
	text := fmt.Sprint(given)
	if out == nil {
		if out, terr = zero(); terr != nil {
			return nil, terr
		}
	}
	switch to := col.Type.(type) {
	case types.StringType:
		if !sql.ErrInvalidType.Is(err) && utf8.ValidString(text) && !types.IsBinaryType(to) {
			left := []rune(text)
			if n := int(to.MaxCharacterLength()); len(left) > n {
				rest := strings.Trim(string(left[n:]), " ")
				if left = left[:n]; rest == "" {
					return string(left), nil // blanks alone
				}
				return misfit(string(left), erDataTruncated, stateTruncated, "Data truncated")
			}
		}
		if b, ok := v.([]byte); ok && types.IsBinaryType(to) && int64(len(b)) > to.MaxByteLength() {
			return misfit(b[:to.MaxByteLength()], erDataTruncated, stateTruncated, "Data truncated")
		}
	case sql.EnumType, sql.SetType:
		return misfit(out, erDataTruncated, stateTruncated, "Data truncated")
	case sql.DatetimeType:
		kind := "datetime"
		if types.IsDateType(to) {
			kind = "date"
		}
		return misfit(out, mysql.ERTruncatedWrongValue, "22007", "Incorrect %s value: '%s'", kind, text)
	case types.NumberTypeImpl_, types.DecimalType_:
		_, number := was.Type.(types.NumberTypeImpl_)
		if _, ok := was.Type.(types.DecimalType_); ok {
			number = true
		}
		if err == nil || number || sql.ErrValueOutOfRange.Is(err) {
			if out, err = nearest(ctx, v, col.Type, out); err != nil {
				return nil, err
			}
			return misfit(out, mysql.ERWarnDataOutOfRange, "22003", "Out of range value")
		}
		kind := "decimal"
		if n, ok := to.(types.NumberTypeImpl_); ok {
			if kind = "integer"; types.IsFloat(n) {
				kind = "double"
			}
		}
		return misfit(out, erWrongValueForField, stateGeneral, "Incorrect %s value: '%s'", kind, text)
	}
	if err == nil {
		err = sql.ErrValueOutOfRange.New(v, col.Type)
	}
	return nil, err
}

// nearest gives the value of a number type that is nearest to a number that it does not have.
func nearest(ctx *sql.Context, v any, t sql.Type, out any) (any, error) {
	f, _, err := types.Float64.Convert(ctx, v)
	if err != nil {
		return out, nil // it is a number, as far as the conversion got
	}
	switch t := t.(type) {
	case types.NumberTypeImpl_:
		low, high, ok := integerBits(t)
		if !ok {
			return out, nil
		}
		var limit any = uint64(1)<<high - 1
		if f.(float64) < 0 {
			if limit = int64(0); low > 0 {
				limit = int64(-1) << low
			}
		}
		out, _, err = t.Convert(ctx, limit)
	case types.DecimalType_:
		nines := strings.Repeat("9", int(t.Precision()))
		n := int(t.Precision()) - int(t.Scale())
		text := nines[:n] + "." + nines[n:]
		if f.(float64) < 0 {
			text = "-" + text
		}
		out, _, err = t.Convert(ctx, text)
	}
	return out, err
}

// modifiedSet gives a SET value with the labels of another type.
func modifiedSet(v uint64, from, to sql.SetType, misfit func(out any, code int, state, format string, args ...any) (any, error)) (any, error) {
	labels := to.Values()
	var out uint64
	lost := false
	for i, l := range from.Values() {
		if v&(1<<i) == 0 {
			continue
		}
		if k := slices.Index(labels, l); k >= 0 {
			out |= 1 << k
		} else {
			lost = true
		}
	}
	if lost {
		return misfit(out, erDataTruncated, stateTruncated, "Data truncated")
	}
	return out, nil
}

// Codes of MySQL's that ALTER TABLE gives for values that do not fit.
const (
	erInvalidUseOfNull   = 1138
	erDataTruncated      = 1265
	erWrongValueForField = 1366
	stateTruncated       = "01000"
)
