package sqlplan

import (
	"errors"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// Which rows a statement locks is decided a reference to a table:
//
//   - a locking clause (FOR UPDATE and its like) locks what its query block reads of the table. The front end drops the clause;
//     it reaches the table by the authorization handler (see lockHandler);
//   - what UPDATE and DELETE change is read with exclusive locks, what else they read, and what INSERT … SELECT and CREATE
//     TABLE … SELECT read, with shared ones, but for READ COMMITTED (see lockRule);
//   - foreign keys are checked with shared locks on the parent; actions lock the children exclusively;
//   - under SERIALIZABLE plain reads lock shared inside of a transaction.

// reading says for what a statement reads a table.
type reading uint8

const (
	plainly    reading = iota // for a result
	asSource                  // for rows or conditions of a change of another table
	asTarget                  // for the rows that it changes
	asParent                  // for a foreign key check
	forActions                // for the actions of a foreign key
)

// lockFor gives the locks with which a table is read.
func (t *table) lockFor(ctx *sql.Context, s *Session, tx *catalog.Tx) (catalog.LockMode, catalog.LockWait) {
	if t.temporary || t.current {
		return catalog.LockNone, catalog.LockWaits // the session's own
	}
	if t.lock != nil {
		return t.lock.Mode, t.lock.Wait
	}
	switch t.reading {
	case asTarget, forActions:
		return catalog.LockExclusive, catalog.LockWaits
	case asParent:
		return catalog.LockShared, catalog.LockWaits
	case asSource:
		if tx.Isolation() != catalog.ReadCommitted {
			return catalog.LockShared, catalog.LockWaits
		}
	case plainly:
		if tx.Isolation() == catalog.Serializable && s.inTransaction(ctx) {
			return catalog.LockShared, catalog.LockWaits
		}
	}
	return catalog.LockNone, catalog.LockWaits
}

// lostTransaction says whether an error ended the whole transaction.
func lostTransaction(err error) bool { return errors.Is(err, catalog.ErrConflict) }

// lockHandler is the front end's authorization handler. The front end asks it about a reference to a table right before it
// looks the table up, and what the parser wrote into the reference comes along.
type lockHandler struct{ sql.AuthorizationHandler }

// HandleAuth implements sql.AuthorizationHandler.
func (h lockHandler) HandleAuth(ctx *sql.Context, state sql.AuthorizationQueryState, auth ast.AuthInformation) error {
	if s, ok := ctx.Session.(*Session); ok {
		s.stmt.asked, _ = auth.Extra.(*dialect.RowLock)
	}
	return h.AuthorizationHandler.HandleAuth(ctx, state, auth)
}

// takeLock gives the lock that was asked of the table that is looked up.
func (s *Session) takeLock(name string) *dialect.RowLock {
	l := s.stmt.asked
	if l == nil || !strings.EqualFold(l.Table, name) {
		return nil
	}
	s.stmt.asked, s.stmt.locks = nil, true
	return l
}

// lockView hands the lock that was asked of a view to the tables of its query: the front end parses the view's definition
// when it looks the view up.
func (s *Session) lockView(stmt ast.Statement) {
	d, ok := stmt.(*ast.DDL)
	if !ok || d.ViewSpec == nil || s.stmt.asked == nil {
		return
	}
	if s.takeLockOf(d) {
		dialect.LockQuery(d.ViewSpec.ViewExpr, s.stmt.lent)
	}
}

// takeLockOf takes the lock that was asked if the view is the one that is looked up.
func (s *Session) takeLockOf(d *ast.DDL) bool {
	s.stmt.lent = s.takeLock(d.ViewSpec.ViewName.Name.String())
	return s.stmt.lent != nil
}

// lockRuleID is the id of a rule; see noImplicitCommit.
const lockRuleID = noImplicitCommit + 1

// lockRule is the last analyzer rule: it tells the tables of a plan for what they are read. A subquery is analyzed before the
// statement that it stands in, whose turn comes last.
func lockRule(ctx *sql.Context, _ *analyzer.Analyzer, n sql.Node, _ *plan.Scope, _ analyzer.RuleSelector, _ *sql.QueryFlags) (sql.Node, transform.TreeIdentity, error) {
	switch n.(type) {
	case *plan.Project, *plan.Filter, *plan.Limit, *plan.Offset, *plan.Sort, *plan.TopN, *plan.GroupBy, *plan.Distinct, *plan.Having,
		*plan.ResolvedTable, *plan.IndexedTableAccess, *plan.JoinNode:
		return n, transform.SameTree, nil // a query: plain reads, but for what its clauses say
	}
	marker{ctx}.node(n, plainly, nil)
	return n, transform.SameTree, nil
}

// addLockRule puts the rule behind all others. Simple statements have batches of rules of their own, which end with those that
// the front end keeps for the whole process.
func addLockRule() {
	analyzer.OnceAfterAll = append(analyzer.OnceAfterAll[:len(analyzer.OnceAfterAll):len(analyzer.OnceAfterAll)],
		analyzer.Rule{Id: lockRuleID, Apply: lockRule})
}

// marker walks over a plan.
type marker struct{ ctx *sql.Context }

// node marks the tables below a node; targets are the ids of those that the statement changes.
func (m marker) node(n sql.Node, as reading, targets map[sql.TableId]bool) {
	switch n := n.(type) {
	case nil:
		return
	case *plan.ResolvedTable:
		m.table(n.Table, n.Id(), as, targets)
		return
	case *plan.IndexedTableAccess:
		m.table(n.Table, n.Id(), as, targets)
		m.table(n.UnderlyingTable(), n.Id(), as, targets)
		m.expressions(n, as)
		return
	case *plan.Update:
		as, targets = asSource, m.updated(n)
	case *plan.DeleteFrom:
		as, targets = asSource, map[sql.TableId]bool{}
		for _, t := range n.GetDeleteTargets() {
			m.target(t, targets)
		}
	case *plan.InsertInto:
		m.node(n.Destination, plainly, nil)
		m.node(n.Source, asSource, nil)
		m.expressions(n, asSource)
		return
	case *plan.TableCopier:
		m.node(n.Source, asSource, nil)
		return
	case *plan.CreateTable:
		if n.Select() != nil {
			m.node(n.Select(), asSource, nil)
		}
		return
	case *plan.TriggerExecutor:
		m.node(n.Left(), as, targets)
		m.node(n.Right(), plainly, nil) // statements of their own
		return
	case *plan.ForeignKeyHandler:
		m.foreignKeys(n.Editor, map[*plan.ForeignKeyEditor]bool{})
		m.node(n.OriginalNode, as, targets)
		return
	}
	for _, c := range n.Children() {
		m.node(c, as, targets)
	}
	m.expressions(n, as)
}

// expressions marks the tables of the subqueries in a node's expressions.
func (m marker) expressions(n sql.Node, as reading) {
	eachSubquery(m.ctx, n, func(q *plan.Subquery) { m.node(q.Query, as, nil) })
}

// eachSubquery calls f for the subqueries in a node's own expressions.
func eachSubquery(ctx *sql.Context, n sql.Node, f func(*plan.Subquery)) {
	e, ok := n.(sql.Expressioner)
	if !ok {
		return
	}
	for _, e := range e.Expressions() {
		if e == nil {
			continue
		}
		sql.Inspect(ctx, e, func(_ *sql.Context, e sql.Expression) bool {
			if q, ok := e.(*plan.Subquery); ok {
				f(q)
			}
			return true
		})
	}
}

// updated gives the ids of the tables that UPDATE changes.
func (m marker) updated(n *plan.Update) map[sql.TableId]bool {
	ids := map[sql.TableId]bool{}
	found := false
	transform.Inspect(n.Child, func(c sql.Node) bool {
		if j, ok := c.(*plan.UpdateJoin); ok {
			found = true
			for _, t := range j.UpdateTargets {
				m.target(t, ids)
			}
		}
		return !found
	})
	if !found { // one table
		m.ids(n.Child, ids)
	}
	return ids
}

// target collects the ids of a table that a statement changes by name; it is no child of the statement's plan.
func (m marker) target(n sql.Node, ids map[sql.TableId]bool) {
	if h, ok := n.(*plan.ForeignKeyHandler); ok {
		m.foreignKeys(h.Editor, map[*plan.ForeignKeyEditor]bool{})
	}
	m.ids(n, ids)
}

// ids collects the ids of the tables in a plan of one table.
func (m marker) ids(n sql.Node, ids map[sql.TableId]bool) {
	switch n := n.(type) {
	case *plan.TriggerExecutor:
		m.ids(n.Left(), ids)
		return
	case *plan.ForeignKeyHandler:
		m.ids(n.OriginalNode, ids)
		return
	case plan.TableIdNode:
		ids[n.Id()] = true
	}
	for _, c := range n.Children() {
		m.ids(c, ids)
	}
}

func (m marker) table(t sql.Table, id sql.TableId, as reading, targets map[sql.TableId]bool) {
	own := tableBehind(t)
	if own == nil {
		return
	}
	if targets[id] {
		as = asTarget
	}
	own.reading = as
}

// tableBehind gives the table behind the front end's wrappers, nil if it is none of ours.
func tableBehind(t sql.Table) *table {
	switch t := sql.GetUnderlyingTable(t).(type) {
	case *table:
		return t
	case *ownTable:
		return t.table
	case *indexedTable:
		return t.table
	}
	return nil
}

// foreignKeys tells the editors of foreign keys for what they look rows up.
func (m marker) foreignKeys(e *plan.ForeignKeyEditor, seen map[*plan.ForeignKeyEditor]bool) {
	if e == nil || seen[e] {
		return
	}
	seen[e] = true
	mark := func(mapper *plan.ForeignKeyRowMapper, as reading) {
		if mapper == nil {
			return
		}
		// One editor serves all foreign keys of a table.
		if own, ok := mapper.Updater.(*editor); ok && own.reading != forActions {
			own.reading = as
		}
	}
	for _, r := range e.References {
		mark(&r.RowMapper, asParent)
	}
	for _, a := range e.RefActions {
		as := asParent // it only looks whether there are rows
		for _, what := range []sql.ForeignKeyReferentialAction{a.ForeignKey.OnUpdate, a.ForeignKey.OnDelete} {
			switch what {
			case sql.ForeignKeyReferentialAction_Cascade, sql.ForeignKeyReferentialAction_SetNull, sql.ForeignKeyReferentialAction_SetDefault:
				as = forActions
			}
		}
		mark(a.RowMapper, as)
		m.foreignKeys(a.Editor, seen)
	}
}
