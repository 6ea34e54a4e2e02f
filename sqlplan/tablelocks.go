package sqlplan

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
)

// heldTables is what LOCK TABLES or FLUSH TABLES WITH READ LOCK locked. A transaction of its own holds the locks, so that they
// outlive those of the session's statements, which work under it (catalog.TxOptions.Holder).
type heldTables struct {
	tx     *catalog.Tx // nil: a change of definitions needed the tables; the next statement takes the locks again
	list   []toLock
	names  map[string]heldTable // by database and alias, in lower case
	all    bool                 // FLUSH TABLES WITH READ LOCK: everybody reads, nobody writes
	locked []*catalog.Table     // that no other session may read

	checked uint64 // the last statement that was compared with them, see Session.statements
}

// heldTable is what LOCK TABLES said of a name.
type heldTable struct {
	write bool
	view  bool
}

// Errors of statements under LOCK TABLES.
func errNotLocked(name string) error {
	return mysql.NewSQLError(1100, stateGeneral, "Table '%s' was not locked with LOCK TABLES", name)
}

func errReadLocked(name string) error {
	return mysql.NewSQLError(1099, stateGeneral, "Table '%s' was locked with a READ lock and can't be updated", name)
}

var errGlobalReadLock = mysql.NewSQLError(1223, stateGeneral, "Can't execute the query because you have a conflicting read lock")

// writeLocks are the tables that sessions have locked with WRITE. Plain reads take no locks below, so they wait here.
type writeLocks struct {
	count  atomic.Int32 // of tables
	mu     sync.Mutex
	tables map[*catalog.Table]writeLock // guarded by mu
}

type writeLock struct {
	session *Session
	free    chan struct{} // closed when the lock is given up
}

// wait waits until a table is not locked against the session.
func (w *writeLocks) wait(ctx *sql.Context, s *Session, t *catalog.Table) error {
	if w.count.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	l, locked := w.tables[t]
	w.mu.Unlock()
	if !locked || l.session == s {
		return nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, s.seconds(ctx, tableWaitVariable), errLockWait)
	defer cancel()
	s.engine.waiting.Store(s.ID(), stateTableLock)
	defer s.engine.waiting.Delete(s.ID())
	select {
	case <-l.free:
		return w.wait(ctx, s, t)
	case <-wait.Done():
		return mysqlError(context.Cause(wait))
	}
}

func (w *writeLocks) lock(s *Session, tables []*catalog.Table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables == nil {
		w.tables = map[*catalog.Table]writeLock{}
	}
	for _, t := range tables {
		w.tables[t] = writeLock{s, make(chan struct{})}
		w.count.Add(1)
	}
}

func (w *writeLocks) unlock(tables []*catalog.Table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tables {
		if l, ok := w.tables[t]; ok {
			close(l.free)
			delete(w.tables, t)
			w.count.Add(-1)
		}
	}
}

// toLock is a table that a statement locks, with the names that it has there.
type toLock struct {
	t     *catalog.Table
	key   string
	write bool
}

// States of SHOW PROCESSLIST.
const (
	stateTableLock = "Waiting for table metadata lock"
	stateUserLock  = "User lock"
	stateRowLock   = "Waiting for row lock"
)

// lockTables is LOCK TABLES.
func (s *Session) lockTables(ctx *sql.Context, n *plan.LockTables) error {
	held := &heldTables{names: map[string]heldTable{}}
	var list []toLock
	add := func(t *table, write bool) {
		if t.temporary {
			return // the session's own
		}
		key := strings.ToLower(t.db.name + "\x00" + t.Name())
		for i := range list {
			if list[i].key == key {
				list[i].write = list[i].write || write
				return
			}
		}
		list = append(list, toLock{t.t, key, write})
	}
	for _, l := range n.Locks {
		named, ok := l.Table.(sql.Nameable)
		if !ok {
			continue
		}
		db := ""
		view := true
		eachTable(l.Table, func(t *table) {
			add(t, l.Write)
			if db == "" {
				db = t.db.name
			}
		})
		switch l.Table.(type) {
		case *plan.ResolvedTable, *plan.TableAlias:
			view = false
		}
		key := strings.ToLower(named.Name())
		if _, twice := held.names[key]; twice {
			return sql.ErrDuplicateAliasOrTable.New(named.Name())
		}
		held.names[key] = heldTable{write: l.Write, view: view}
	}
	return s.hold(ctx, held, list)
}

// lockForFlush takes the locks of FLUSH TABLES WITH READ LOCK: of some tables, or of all.
func (s *Session) lockForFlush(ctx *sql.Context, names []ast.TableName) error {
	var list []toLock
	if len(names) > 0 {
		held := &heldTables{names: map[string]heldTable{}}
		for _, n := range names {
			t, err := s.engine.tableOf(ctx, n.DbQualifier.String(), n.Name.String())
			if err != nil {
				return err
			}
			if t == nil {
				return sql.ErrTableNotFound.New(n.Name.String())
			}
			list = append(list, toLock{t.t, strings.ToLower(t.db.name + "\x00" + t.Name()), false})
			held.names[strings.ToLower(t.Name())] = heldTable{}
		}
		return s.hold(ctx, held, list)
	}
	for _, db := range s.engine.catalog.Databases() {
		for _, name := range s.engine.catalog.TableNames(db) {
			if t, ok := s.engine.catalog.Table(db, name); ok { // else it was dropped meanwhile
				list = append(list, toLock{t, strings.ToLower(db + "\x00" + name), false})
			}
		}
	}
	return s.hold(ctx, &heldTables{all: true}, list)
}

// hold takes locks in one order, so that two sessions that lock the same tables do not wait for each other.
func (s *Session) hold(ctx *sql.Context, held *heldTables, list []toLock) error {
	if err := s.endTransaction(ctx); err != nil {
		return err
	}
	s.unhold()
	slices.SortFunc(list, func(a, b toLock) int { return strings.Compare(a.key, b.key) })
	held.list = list
	return s.holdAll(ctx, held)
}

// holdAll takes the locks of a list, or none.
func (s *Session) holdAll(ctx *sql.Context, held *heldTables) error {
	tx, err := s.engine.catalog.BeginTx(ctx, catalog.TxOptions{
		Isolation: catalog.ReadCommitted, LockTimeout: s.seconds(ctx, tableWaitVariable), Connection: s.ID(),
	})
	if err != nil {
		return mysqlError(err)
	}
	for _, l := range held.list {
		mode := catalog.LockShared
		if l.write {
			mode = catalog.LockExclusive
		}
		if err := tx.LockTable(ctx, l.t, mode, catalog.LockWaits); err != nil {
			tx.Rollback()
			return mysqlError(err)
		}
		if l.write {
			held.locked = append(held.locked, l.t)
		}
	}
	s.engine.writeLocks.lock(s, held.locked)
	held.tx, s.held = tx, held
	return nil
}

// unlockTables is UNLOCK TABLES. It commits, but only if tables were locked.
func (s *Session) unlockTables(ctx *sql.Context) error {
	if s.held == nil {
		return nil
	}
	if !s.held.all {
		if err := s.endTransaction(ctx); err != nil {
			return err
		}
	}
	s.unhold()
	return nil
}

// unhold gives up the locks of LOCK TABLES.
func (s *Session) unhold() {
	if s.held == nil {
		return
	}
	s.giveWay()
	s.held = nil
}

// giveWay gives the locks of LOCK TABLES up for a change of definitions, which has the tables for itself anyway.
func (s *Session) giveWay() {
	if s.held == nil || s.held.tx == nil {
		return
	}
	s.engine.writeLocks.unlock(s.held.locked)
	s.held.tx.Rollback()
	s.held.tx, s.held.locked = nil, nil
}

// holdAgain takes the locks that gave way again, of the tables that are still there.
func (s *Session) holdAgain(ctx *sql.Context) error {
	held := s.held
	held.list = slices.DeleteFunc(held.list, func(l toLock) bool {
		db, name, _ := strings.Cut(l.key, "\x00")
		t, ok := s.engine.catalog.Table(db, name)
		return !ok || t != l.t
	})
	err := s.holdAll(ctx, held)
	if err != nil {
		s.held = nil
	}
	return err
}

// endTransaction commits what is open, as MySQL does before some statements.
func (s *Session) endTransaction(ctx *sql.Context) error {
	tx := ctx.GetTransaction()
	if tx == nil {
		return nil
	}
	if err := s.CommitTransaction(ctx, tx); err != nil {
		return err
	}
	ctx.SetTransaction(nil)
	ctx.SetIgnoreAutoCommit(false)
	return nil
}

// eachTable calls f for the tables of ours in a plan, those of views among them.
func eachTable(n sql.Node, f func(*table)) {
	switch n := n.(type) {
	case *plan.ResolvedTable:
		if t := tableBehind(n.Table); t != nil {
			f(t)
		}
		return
	case *plan.IndexedTableAccess:
		if t := tableBehind(n.Table); t != nil {
			f(t)
		}
		return
	}
	for _, c := range n.Children() {
		eachTable(c, f)
	}
}

// checkHeld refuses a statement that LOCK TABLES does not cover. The first node that is run is the statement's.
func (s *Session) checkHeld(ctx *sql.Context, n sql.Node) error {
	if s.held.checked == s.statements {
		return nil
	}
	s.held.checked = s.statements
	if s.held.tx == nil {
		switch n.(type) {
		case *plan.UnlockTables, *plan.LockTables:
			return nil
		}
		if err := s.holdAgain(ctx); err != nil {
			return err
		}
	}
	return s.held.check(ctx, n)
}

// check refuses a statement that the locks of LOCK TABLES do not cover. What triggers and foreign keys use is covered.
func (h *heldTables) check(ctx *sql.Context, n sql.Node) error {
	c := heldCheck{h: h, marker: marker{ctx}}
	switch n := n.(type) {
	case *plan.LockTables, *plan.UnlockTables:
		return nil
	case *plan.CreateTable:
		switch {
		case n.Temporary():
		case h.all:
			return errGlobalReadLock
		default:
			return errNotLocked(n.Name())
		}
	}
	c.node(n, "", plan.IsDDLNode(n), nil)
	return c.err
}

// checkAliases refuses a statement that names a table by an alias that LOCK TABLES did not lock.
func (h *heldTables) checkAliases(stmt ast.Statement) error {
	var err error
	with := false                                    // a name may be one of WITH
	_ = ast.Walk(func(n ast.SQLNode) (bool, error) { // the visitor returns no error
		switch n := n.(type) {
		case *ast.Select:
			with = with || n.With != nil
		case *ast.SetOp:
			with = with || n.With != nil
		case *ast.Update:
			with = with || n.With != nil
		case *ast.Delete:
			with = with || n.With != nil
		case *ast.Insert:
			with = with || n.With != nil
		}
		t, ok := n.(*ast.AliasedTableExpr)
		if !ok || t == nil || t.As.IsEmpty() || err != nil {
			return err == nil, nil
		}
		if _, named := t.Expr.(ast.TableName); named && !h.all {
			if _, locked := h.names[strings.ToLower(t.As.String())]; !locked {
				err = errNotLocked(t.As.String())
			}
		}
		return true, nil
	}, stmt)
	if with {
		return nil
	}
	return err
}

// refused is a statement that cannot be bound.
type refused struct{ err error }

// WithResolvedChildren implements ast.Injectable.
func (r refused) WithResolvedChildren(context.Context, []any) (any, error) { return nil, r.err }

type heldCheck struct {
	marker
	h   *heldTables
	err error
}

func (c *heldCheck) node(n sql.Node, alias string, write bool, targets map[sql.TableId]bool) {
	if c.err != nil {
		return
	}
	switch n := n.(type) {
	case nil:
		return
	case *plan.TableAlias:
		c.node(n.Child, n.Name(), write, targets)
		return
	case *plan.ResolvedTable:
		c.table(tableBehind(n.Table), alias, write || targets[n.Id()])
		return
	case *plan.IndexedTableAccess:
		c.table(tableBehind(n.Table), alias, write || targets[n.Id()])
	case *plan.SubqueryAlias:
		if h, ok := c.h.names[strings.ToLower(n.Name())]; ok && h.view {
			return
		}
	case *plan.Update:
		targets = c.updated(n)
	case *plan.DeleteFrom:
		targets = map[sql.TableId]bool{}
		for _, t := range n.GetDeleteTargets() {
			c.target(t, targets)
		}
	case *plan.InsertInto:
		c.node(n.Destination, "", true, nil)
		c.node(n.Source, "", false, nil)
		c.subqueries(n)
		return
	case *plan.TriggerExecutor:
		c.node(n.Left(), alias, write, targets)
		return
	}
	for _, child := range n.Children() {
		c.node(child, alias, write, targets)
	}
	c.subqueries(n)
}

func (c *heldCheck) subqueries(n sql.Node) {
	eachSubquery(c.ctx, n, func(q *plan.Subquery) { c.node(q.Query, "", false, nil) })
}

func (c *heldCheck) table(t *table, alias string, write bool) {
	if t == nil || t.temporary {
		return
	}
	name := t.Name()
	if alias != "" {
		name = alias
	}
	if c.h.all {
		if write {
			c.err = errGlobalReadLock
		}
		return
	}
	held, ok := c.h.names[strings.ToLower(name)]
	if !ok { // the alias may be a derived table's, which the front end makes one of the table itself; see checkAliases
		name = t.Name()
		held, ok = c.h.names[strings.ToLower(name)]
	}
	switch {
	case !ok:
		c.err = errNotLocked(name)
	case write && !held.write:
		c.err = errReadLocked(name)
	}
}
