package sqlplan

import (
	"fmt"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// rowChecks are the CHECK constraints of a table with VIRTUAL columns. The front end wraps such a table in a node by which
// it finds no constraints, and takes every row; so the editor asks here. Constraints of other tables it enforces itself.
// One rowChecks serves one editor: expressions may keep state.
type rowChecks struct {
	names []string
	exprs []sql.Expression
}

// newRowChecks prepares the enforced constraints for rows of sch. It gives nil when there is nothing for the editor to do.
func newRowChecks(ctx *sql.Context, db, table string, sch sql.Schema, checks []checkDefinition) (c *rowChecks, err error) {
	if !sch.HasVirtualColumns() {
		return nil, nil
	}
	c = &rowChecks{}
	// The builder resolves expressions over a table's columns as long as they belong to a column. HiddenSystem keeps it
	// from asking for more than that.
	with := sch.Copy()
	for _, check := range checks {
		if !check.Enforced {
			continue
		}
		c.names = append(c.names, check.Name)
		with = append(with, &sql.Column{
			Name: fmt.Sprintf("%s%d", sql.HiddenSystemColumnPrefix, len(c.names)), Type: types.Boolean, Nullable: true, HiddenSystem: true,
			Source: table, DatabaseSource: db, Generated: sql.NewUnresolvedColumnDefaultValue("(" + check.Expression + ")"),
		})
	}
	if len(c.names) == 0 {
		return nil, nil
	}
	// The front end's builder reports errors by panics.
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("table %s.%s: reading the checks: %v", db, table, r)
		}
	}()
	resolved := planbuilder.NewBuilderForColumnDefaultResolution(ctx, sql.EngineOverrides{}).ResolveSchemaDefaults(db, table, with)
	for _, col := range resolved[len(sch):] {
		e, _, err := transform.Expr(ctx, col.Generated.Expr, func(_ *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
			if f, ok := e.(*expression.GetField); ok {
				return f.WithIndex(sch.IndexOfColName(f.Name())), transform.NewTree, nil
			}
			return e, transform.SameTree, nil
		})
		if err != nil {
			return nil, fmt.Errorf("table %s.%s: reading the checks: %w", db, table, err)
		}
		c.exprs = append(c.exprs, e)
	}
	return c, nil
}

// check refuses a row, given with the values of its VIRTUAL columns, for which a constraint is false.
func (c *rowChecks) check(ctx *sql.Context, row sql.Row) error {
	if c == nil {
		return nil
	}
	for i, e := range c.exprs {
		ok, err := sql.EvaluateCondition(ctx, e, row)
		if err != nil {
			return err
		}
		if sql.IsFalse(ok) {
			return sql.ErrCheckConstraintViolated.New(c.names[i])
		}
	}
	return nil
}
