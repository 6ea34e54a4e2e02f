package wire

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/transform"

	"github.com/lakesql/lakesql/sqlplan"
)

// tableRow completes rows that a statement gives some columns of: by defaults and generated columns, and checks them.
type tableRow struct {
	dst    *sqlplan.Loader
	conv   valueConverter
	rest   []restColumn // columns that the statement does not give
	checks []*sql.CheckConstraint
	used   []int   // columns that constraints, defaults and generated columns read
	row    sql.Row // their values
}

// restColumn is a column that the statement does not give.
type restColumn struct {
	at     int
	column *sqlplan.LoaderColumn
	expr   sql.Expression // nil: NULL
	none   bool           // NOT NULL without a default
}

// complete says for the columns that are not set where their values come from. It answers false if an expression needs more
// than a row of the table. need has the columns that other expressions read.
func (r *tableRow) complete(ctx *sql.Context, set []bool, need map[int]bool, checks sql.CheckConstraints) bool {
	schema := r.conv.schema
	var generated []restColumn
	for i, col := range schema {
		if set[i] {
			continue
		}
		c := restColumn{at: i, column: r.dst.Column(i)}
		e := col.Default
		if e == nil {
			e = col.Generated
		}
		switch {
		case e != nil:
			var ok bool
			if c.expr, ok = overTable(ctx, e, schema, need); !ok {
				return false
			}
		case !col.Nullable && !col.AutoIncrement:
			c.none = true
		}
		if col.Generated != nil {
			generated = append(generated, c)
		} else {
			r.rest = append(r.rest, c)
		}
	}
	r.rest = append(r.rest, generated...) // they read the others
	for _, check := range checks {
		if !check.Enforced {
			continue
		}
		e, ok := overTable(ctx, check.Expr, schema, need)
		if !ok {
			return false
		}
		c := *check
		c.Expr = e
		r.checks = append(r.checks, &c)
	}
	for i := range schema {
		if need[i] {
			r.used = append(r.used, i)
		}
	}
	r.row = make(sql.Row, len(schema))
	return true
}

// overTable gives an expression over rows of the table, and notes the columns that it reads.
func overTable(ctx *sql.Context, e sql.Expression, schema sql.Schema, need map[int]bool) (sql.Expression, bool) {
	ok := true
	out, _, err := transform.Expr(ctx, e, func(_ *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
		switch f := e.(type) {
		case *expression.GetField:
			i := schema.IndexOfColName(f.Name())
			if i < 0 {
				ok = false
				return e, transform.SameTree, nil
			}
			need[i] = true
			return f.WithIndex(i), transform.NewTree, nil
		case *sql.UnresolvedColumnDefault:
			ok = false
		}
		return e, transform.SameTree, nil
	})
	return out, ok && err == nil
}

// end adds the values of the columns that the statement does not give and checks the row. keep false: a constraint refuses
// it, and IGNORE leaves it out.
func (r *tableRow) end(ctx *sql.Context) (keep bool, err error) {
	for i := range r.rest {
		c := &r.rest[i]
		switch {
		case c.none:
			err = r.noDefault(ctx, c)
		case c.expr == nil:
			err = r.null(ctx, c.at, c.column)
		default:
			if err = r.read(); err != nil {
				return false, err
			}
			var v any
			if v, err = c.expr.Eval(ctx, r.row); err == nil {
				err = r.value(ctx, c.at, c.column, v)
			}
		}
		if err != nil {
			return false, err
		}
	}
	if len(r.checks) == 0 {
		return true, nil
	}
	if err := r.read(); err != nil {
		return false, err
	}
	for _, c := range r.checks {
		v, err := sql.EvaluateCondition(ctx, c.Expr, r.row)
		if err != nil {
			return false, err
		}
		if sql.IsFalse(v) {
			err := sql.ErrCheckConstraintViolated.New(c.Name)
			if !r.conv.ignore {
				return false, err
			}
			r.conv.warn(ctx, err)
			return false, nil
		}
	}
	return true, nil
}

// read makes the row that expressions read, as far as its columns have their values.
func (r *tableRow) read() error {
	for _, i := range r.used {
		r.row[i] = nil
		if c := r.dst.Column(i); c.Filled() {
			v, err := c.Last()
			if err != nil {
				return err
			}
			r.row[i] = v
		}
	}
	return nil
}

func (r *tableRow) null(ctx *sql.Context, at int, c *sqlplan.LoaderColumn) error {
	if col := r.conv.schema[at]; col.Nullable || col.AutoIncrement {
		return c.Null(ctx)
	}
	v, err := r.conv.notNull(ctx, at)
	if err != nil {
		return err
	}
	return c.Value(ctx, v)
}

// noDefault adds the implicit default of a column that has none of its own.
func (r *tableRow) noDefault(ctx *sql.Context, c *restColumn) error {
	col := r.conv.schema[c.at]
	err := sql.ErrInsertIntoNonNullableDefaultNullColumn.New(col.Name)
	if !r.conv.ignore {
		return err
	}
	r.conv.warn(ctx, err)
	return c.column.Value(ctx, col.Type.Zero())
}

// value adds a value by the front end's conversion.
func (r *tableRow) value(ctx *sql.Context, at int, c *sqlplan.LoaderColumn, v any) error {
	if v == nil {
		return r.null(ctx, at, c)
	}
	v, err := r.conv.convert(ctx, at, v)
	if err != nil {
		return err
	}
	return c.Value(ctx, v)
}
