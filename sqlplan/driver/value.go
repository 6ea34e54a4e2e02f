package driver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
	gms "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// CheckNamedValue takes what database/sql takes, and unsigned integers of 64 bits.
func (n *connection) CheckNamedValue(v *driver.NamedValue) error {
	if v.Name != "" {
		return errors.New("lakesql: parameters have no names: write ?")
	}
	if u, ok := v.Value.(uint64); ok {
		v.Value = u
		return nil
	}
	if r := reflect.ValueOf(v.Value); r.IsValid() && r.Kind() == reflect.Uint64 {
		v.Value = r.Uint()
		return nil
	}
	out, err := driver.DefaultParameterConverter.ConvertValue(v.Value)
	v.Value = out
	return err
}

// bind makes the front end's values of the parameters: the first is v1. Times become wall time in the session's zone.
func bind(args []driver.NamedValue, loc *time.Location) (map[string]ast.Expr, error) {
	if len(args) == 0 {
		return nil, nil
	}
	out := make(map[string]ast.Expr, len(args))
	for _, a := range args {
		var lit *expression.Literal
		switch v := a.Value.(type) {
		case nil:
			lit = expression.NewLiteral(nil, types.Null)
		case int64:
			lit = expression.NewLiteral(v, types.Int64)
		case uint64:
			lit = expression.NewLiteral(v, types.Uint64)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("lakesql: parameter %d: %v is no value of DOUBLE", a.Ordinal, v)
			}
			lit = expression.NewLiteral(v, types.Float64)
		case bool:
			n := int8(0)
			if v {
				n = 1
			}
			lit = expression.NewLiteral(n, types.Int8)
		case []byte:
			if v == nil {
				lit = expression.NewLiteral(nil, types.Null)
			} else {
				lit = expression.NewLiteral(v, types.LongBlob)
			}
		case string:
			lit = expression.NewLiteral(v, types.LongText)
		case time.Time:
			w := v.In(loc)
			wall := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), time.UTC).Truncate(time.Microsecond)
			lit = expression.NewLiteral(wall, types.DatetimeMaxPrecision)
		default:
			return nil, fmt.Errorf("lakesql: parameter %d has type %T", a.Ordinal, v)
		}
		out[fmt.Sprintf("v%d", a.Ordinal)] = ast.InjectedExpr{Expression: injected{lit}, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}
	}
	return out, nil
}

// injected is a value in the place of a parameter.
type injected struct{ *expression.Literal }

// WithResolvedChildren implements ast.Injectable.
func (i injected) WithResolvedChildren(context.Context, []any) (any, error) { return i.Literal, nil }

// countParams counts the parameters of a parsed statement.
func countParams(stmt ast.Statement) int {
	seen := map[string]bool{}
	_ = ast.Walk(func(n ast.SQLNode) (bool, error) { // the function gives no error
		if v, ok := n.(*ast.SQLVal); ok && v != nil && v.Type == ast.ValArg {
			seen[string(v.Val)] = true
		}
		return true, nil
	}, stmt)
	if _, ok := stmt.(ast.InjectedStatement); ok && len(seen) == 0 {
		return -1 // database/sql then leaves the count to the statement
	}
	return len(seen)
}

// rows is a result.
type rows struct {
	conn   *connection
	ctx    *gms.Context
	user   context.Context
	iter   gms.RowIter
	schema gms.Schema
	first  gms.Row // read already
	ended  bool
}

var (
	_ driver.Rows                           = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
)

func (r *rows) Columns() []string {
	out := make([]string, len(r.schema))
	for i, c := range r.schema {
		out[i] = c.Name
	}
	return out
}

// ColumnTypeDatabaseTypeName gives MySQL's name of the type without length.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	name, _, _ := strings.Cut(strings.ToUpper(r.schema[i].Type.String()), "(")
	name, _, _ = strings.Cut(name, " CHARACTER SET")
	name, _, _ = strings.Cut(name, " COLLATE")
	return strings.TrimSpace(name)
}

func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) { return r.schema[i].Nullable, true }

func (r *rows) Next(dest []driver.Value) error {
	if r.ended {
		return io.EOF
	}
	row := r.first
	r.first = nil
	if row == nil {
		var err error
		row, err = r.iter.Next(r.ctx)
		if err == io.EOF {
			if err := r.Close(); err != nil {
				return err
			}
			return io.EOF
		}
		if err != nil {
			r.conn.lose(r.ctx, err)
			return r.conn.failed(r.user, err)
		}
	}
	for i, v := range row {
		var err error
		if dest[i], err = r.conn.value(r.ctx, r.schema[i].Type, v); err != nil {
			return r.conn.failed(r.user, err)
		}
	}
	return nil
}

// Close ends the statement; a commit that belongs to it happens here.
func (r *rows) Close() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.conn.rows = nil
	err := r.iter.Close(r.ctx)
	gms.SessionCommandEnd(r.conn.session)
	return r.conn.failed(r.user, err)
}

// value gives a value of the front end in one of database/sql's types: integers as int64 (uint64 above), FLOAT and DOUBLE
// as float64, dates and times of day in the connection's zone, BLOB, BINARY and BIT as bytes, all else as text.
func (n *connection) value(ctx *gms.Context, t gms.Type, v any) (driver.Value, error) {
	v, err := gms.UnwrapAny(ctx, v)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	case *apd.Decimal:
		return v.Text('f'), nil
	case time.Time:
		return time.Date(v.Year(), v.Month(), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), n.connector.loc), nil
	case []byte:
		return v, nil
	}
	if types.IsInteger(t) || t.Type() == sqltypes.Year {
		switch r := reflect.ValueOf(v); r.Kind() {
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			return r.Int(), nil
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			if u := r.Uint(); u <= math.MaxInt64 {
				return int64(u), nil
			}
			return fmt.Sprint(r.Uint()), nil
		}
	}
	sv, err := t.SQL(ctx, nil, v)
	if err != nil {
		return nil, err
	}
	if t.Type() == sqltypes.Bit || types.IsBinaryType(t) {
		return sv.Raw(), nil
	}
	return sv.ToString(), nil
}
