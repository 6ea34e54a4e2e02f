package dialect

import (
	"context"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// snapshotMark stands in the characteristic of START TRANSACTION WITH CONSISTENT SNAPSHOT, which the grammar drops.
const snapshotMark = "with consistent snapshot"

func consistentSnapshot(characteristic string) string {
	return strings.TrimSpace(snapshotMark + " " + characteristic)
}

// ConsistentSnapshot says whether a transaction is to take its snapshot at its start, and whether it only reads.
func ConsistentSnapshot(n *ast.Begin) (snapshot, readOnly bool) {
	rest, snapshot := strings.CutPrefix(n.TransactionCharacteristic, snapshotMark)
	return snapshot, strings.EqualFold(strings.TrimSpace(rest), ast.TxReadOnly)
}

// nextScope is the scope of what SET TRANSACTION, and SET @@transaction_isolation, say about the next transaction alone. The
// engine would change the session.
const nextScope = ast.SetScope("next")

// NextTransaction says whether an assignment is about the next transaction alone.
func NextTransaction(e *ast.SetVarExpr) bool {
	return e.Scope == nextScope || e.Scope == ast.SetScope_None && e.Name != nil && strings.EqualFold(e.Name.Name.String(), "transaction")
}

// patchIsolation marks the variables that are set for the next transaction alone.
func patchIsolation(s *scanned, n *ast.Set) {
	for _, e := range n.Exprs {
		if e.Name == nil {
			continue
		}
		switch strings.ToLower(e.Name.Name.String()) {
		case "transaction_isolation", "tx_isolation", "transaction_read_only", "tx_read_only":
			// The grammar takes @@name for @@session.name.
			if e.Scope == ast.SetScope_Session && named(s, e.Name.Name.String()) {
				e.Scope = nextScope
			}
		}
	}
}

// named says whether the statement has a system variable without a scope.
func named(s *scanned, variable string) bool {
	for _, t := range tokens(s.statement(), s.ansi) {
		if t.Kind == Variable && strings.EqualFold(t.Text(s.text), "@@"+variable) {
			return true
		}
	}
	return false
}

// Chain is COMMIT AND CHAIN, or ROLLBACK AND CHAIN: another transaction of the same kind begins at once. The grammar drops the
// words; who runs the statement puts a plan of its own in its place.
type Chain struct{ Rollback bool }

// WithResolvedChildren implements ast.Injectable.
func (Chain) WithResolvedChildren(context.Context, []any) (any, error) {
	return nil, errUnsupported("AND CHAIN")
}

// patchEnd reads what the grammar drops of COMMIT and ROLLBACK.
func patchEnd(s *scanned, stmt ast.Statement) (ast.Statement, error) {
	if len(s.statement()) <= len("ROLLBACK WORK") {
		return stmt, nil
	}
	m := mender{text: s.statement(), ts: tokens(s.statement(), s.ansi), ansi: s.ansi}
	_, rollback := stmt.(*ast.Rollback)
	chained := false
	for i := range m.ts {
		switch {
		case m.is(i, "CHAIN") && !m.is(i-1, "NO"):
			chained = true
		case m.is(i, "RELEASE") && !m.is(i-1, "NO"):
			return nil, errUnsupported("%s RELEASE", m.upper(0))
		}
	}
	if !chained {
		return stmt, nil
	}
	return ast.InjectedStatement{Statement: Chain{rollback}, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}, nil
}
