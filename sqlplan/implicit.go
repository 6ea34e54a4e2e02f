package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// The front end binds a view by its CREATE VIEW statement, and takes any statement that reads one for a change of
// definitions, which commits the open transaction. So the session keeps which statement the client sent.

// noImplicitCommit is the id of a rule; those of the front end count up from 0.
const noImplicitCommit analyzer.RuleId = 1<<16 + iota

// note keeps what kind of statement runs; the first one parsed is the client's, later ones are those of views and of stored
// procedures. A command of a client, or whoever calls the engine without such commands, begins with nothing noted.
func (s *Session) note(stmt ast.Statement) {
	if _, indirect := stmt.(*ast.Execute); s.stmt.noted || indirect { // EXECUTE takes the prepared one next
		return
	}
	s.stmt.noted, s.stmt.noCommit, s.stmt.prepares = true, false, false
	switch stmt.(type) {
	case *ast.DDL, *ast.AlterTable, *ast.DBDDL, nil:
	case *ast.Prepare:
		s.stmt.prepares = true
	default:
		s.stmt.noCommit = true
	}
}

// keepTransaction is an analyzer rule that takes the mark of a change of definitions from a statement that is none.
func keepTransaction(ctx *sql.Context, _ *analyzer.Analyzer, n sql.Node, _ *plan.Scope, _ analyzer.RuleSelector, flags *sql.QueryFlags) (sql.Node, transform.TreeIdentity, error) {
	if s, ok := ctx.Session.(*Session); ok && s.stmt.noCommit {
		flags.Unset(sql.QFlagDDL)
	}
	return n, transform.SameTree, nil
}

// leavesOpen says that a commit which the front end asks for is none that the client asked for: PREPARE of a statement that
// reads a view, which no analyzer rule sees, inside of a transaction.
func (s *Session) leavesOpen(ctx *sql.Context) bool {
	if !s.stmt.prepares {
		return false
	}
	auto, err := plan.IsSessionAutocommit(ctx)
	return err == nil && (!auto || s.GetIgnoreAutoCommit())
}
