package dialect

import (
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// EachStatement calls f for a statement and for those inside it: the bodies of stored programs, and what EXPLAIN explains.
func EachStatement(stmt ast.Statement, f func(ast.Statement)) {
	if stmt == nil {
		return
	}
	f(stmt)
	all := func(list ast.Statements) {
		for _, s := range list {
			EachStatement(s, f)
		}
	}
	switch n := stmt.(type) {
	case *ast.Explain:
		EachStatement(n.Statement, f)
	case *ast.DDL:
		switch {
		case n.TriggerSpec != nil:
			EachStatement(n.TriggerSpec.Body, f)
		case n.ProcedureSpec != nil:
			EachStatement(n.ProcedureSpec.Body, f)
		case n.EventSpec != nil:
			EachStatement(n.EventSpec.Body, f)
		}
	case *ast.BeginEndBlock:
		all(n.Statements)
	case *ast.IfStatement:
		for _, c := range n.Conditions {
			all(c.Statements)
		}
		all(n.Else)
	case *ast.CaseStatement:
		for _, c := range n.Cases {
			all(c.Statements)
		}
		all(n.Else)
	case *ast.Loop:
		all(n.Statements)
	case *ast.While:
		all(n.Statements)
	case *ast.Repeat:
		all(n.Statements)
	case *ast.Declare:
		if n.Handler != nil {
			EachStatement(n.Handler.Statement, f)
		}
	}
}

// patchVariables gives user variables in SET their @ back. The grammar takes it off, and the engine would look for a column of
// that name first: SET @a in a trigger would change NEW.a.
func patchVariables(n *ast.Set) {
	for _, e := range n.Exprs {
		if e.Scope == ast.SetScope_User && e.Name != nil && !strings.HasPrefix(e.Name.Name.String(), "@") {
			e.Name, e.Scope = ast.NewColName("@"+e.Name.Name.String()), ast.SetScope_None
		}
	}
}
