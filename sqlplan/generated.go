package sqlplan

import (
	"context"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// ignoreGenerated takes the values that INSERT … VALUES gives for generated columns out of it where the session is not
// strict: dumps of MariaDB have them, and MariaDB computes the columns itself then. A strict session gets MySQL's error.
func (p *parser) ignoreGenerated(ctx context.Context, n *ast.Insert) {
	c, ok := ctx.(*sql.Context)
	if !ok || sql.LoadSqlMode(c).Strict() {
		return
	}
	var rows ast.Values
	switch v := n.Rows.(type) {
	case ast.Values:
		rows = v
	case *ast.AliasedValues:
		rows = v.Values
	default:
		return
	}
	t, err := p.engine.tableOf(c, n.Table.DbQualifier.String(), n.Table.Name.String())
	if err != nil || t == nil {
		return
	}
	sch := t.def.pk.Schema
	generated := func(name string) bool {
		return slices.ContainsFunc(sch, func(c *sql.Column) bool { return c.Generated != nil && strings.EqualFold(c.Name, name) })
	}
	var at []int
	if len(n.Columns) == 0 {
		for i, col := range sch {
			if col.Generated != nil {
				at = append(at, i)
			}
		}
	}
	for i, col := range n.Columns {
		if generated(col.String()) {
			at = append(at, i)
		}
	}
	for _, row := range rows {
		for _, i := range at {
			if i < len(row) {
				row[i] = &ast.Default{}
			}
		}
	}
}
