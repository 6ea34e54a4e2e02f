package sqlplan

import (
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/storage"
)

// rowCodec converts whole rows between a MySQL schema and a table schema. Columns are matched by name.
// VIRTUAL generated columns are not kept: they are NULL in decoded rows, and the front end computes them above.
type rowCodec struct {
	width  int // columns of the MySQL schema
	cols   []rowColumn
	byName map[string]*columnCodec
}

type rowColumn struct {
	column int // in the MySQL schema
	field  int // in the table schema
	meta   bool
	codec  *columnCodec
}

// newRowCodec makes the codec between sch and st. Every column of sch except VIRTUAL and meta columns must have its field;
// fields of st without a column are left alone.
func newRowCodec(sch sql.Schema, st *storage.Schema) (*rowCodec, error) {
	return (*rowCodec)(nil).over(sch, st)
}

// over makes the codec between another choice of the table's columns and fields. It takes the columns that r has from there,
// so that a scan of a few columns costs little to start.
func (r *rowCodec) over(sch sql.Schema, st *storage.Schema) (*rowCodec, error) {
	known := map[string]*columnCodec{}
	if r != nil {
		known = r.byName
	}
	out := &rowCodec{width: len(sch), cols: make([]rowColumn, 0, len(sch)), byName: make(map[string]*columnCodec, len(sch))}
	for i, col := range sch {
		if col.Virtual {
			continue
		}
		meta := slices.Contains(storage.MetaColumns, col.Name)
		f := fieldIndex(st, col.Name)
		if f < 0 {
			if meta {
				continue
			}
			return nil, mysql.NewSQLError(mysql.ERBadFieldError, "42S22", "Column '%s' is missing in the files of table '%s'", col.Name, col.Source)
		}
		codec := known[col.Name]
		if codec == nil || codec.field != st.Fields[f].Type || !codec.typ.Equals(col.Type) {
			var err error
			if codec, err = newColumnCodec(col, st.Fields[f]); err != nil {
				return nil, err
			}
		}
		out.cols = append(out.cols, rowColumn{column: i, field: f, meta: meta, codec: codec})
		out.byName[col.Name] = codec
	}
	return out, nil
}

// fieldIndex finds a field by name: exactly, or as MySQL compares column names.
func fieldIndex(st *storage.Schema, name string) int {
	if i := st.Index(name); i >= 0 {
		return i
	}
	return slices.IndexFunc(st.Fields, func(f storage.Field) bool { return strings.EqualFold(f.Name, name) })
}

// encode fills dst, which has a place for each field, from a row of the MySQL schema. Meta columns are not written.
func (r *rowCodec) encode(row sql.Row, dst storage.Row) error {
	for i := range r.cols {
		c := &r.cols[i]
		if c.meta {
			continue
		}
		v, err := c.codec.toStorage(row[c.column])
		if err != nil {
			return err
		}
		dst[c.field] = v
	}
	return nil
}

// decode gives row i of a batch whose schema is the codec's table schema, in a row of its own.
func (r *rowCodec) decode(b storage.Batch, i int) (sql.Row, error) {
	row := make(sql.Row, r.width)
	return row, r.decodeInto(b, i, row)
}

// decodeInto is decode into a row of the caller's, whose VIRTUAL columns it leaves alone.
func (r *rowCodec) decodeInto(b storage.Batch, i int, row sql.Row) error {
	for k := range r.cols {
		c := &r.cols[k]
		v, err := c.codec.fromBatch(b, c.field, i)
		if err != nil {
			return err
		}
		row[c.column] = v
	}
	return nil
}

// decodeRow gives the MySQL row of a row of the table schema.
func (r *rowCodec) decodeRow(src storage.Row) (sql.Row, error) {
	row := make(sql.Row, r.width)
	for k := range r.cols {
		c := &r.cols[k]
		v, err := c.codec.fromValue(src[c.field])
		if err != nil {
			return nil, err
		}
		row[c.column] = v
	}
	return row, nil
}
