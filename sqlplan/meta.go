package sqlplan

import (
	"context"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

func (p *parser) metaColumns(ctx context.Context, stmt ast.Statement) (ast.Statement, error) {
	return stmt, nil
}
