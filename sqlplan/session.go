package sqlplan

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// Session is one client's state: its transaction over the warehouse and over its temporary tables, and what the running
// statement has open. A session runs one statement at a time.
type Session struct {
	*sql.BaseSession
	engine *Engine
	tx     *transaction
	stmt   statement
	temps  *temporaries // nil: no temporary table was made yet
	// nested says that a procedure runs inside of a statement that changes tables: a trigger has called it.
	nested bool
	// next is what SET TRANSACTION said; the next transaction that reads or writes a table takes it.
	next       characteristics
	held       *heldTables // nil: no LOCK TABLES is in force
	statements uint64      // that began so far, those of procedures among them
	commits    uint64      // see Commits
	// prepared has the prepared statements that read meta columns, with the table into which they insert ("" if none).
	prepared map[string]string

	counted  [len(countedVariables)]int // by the statement that runs, see Uncount
	settings *settings                  // nil: to be read, see short.go
	shape    shape                      // of the statement that is looked at

	zoneName string         // value of @@time_zone that zoneOf stands for
	zoneOf   *time.Location // nil: not looked up yet
}

// statement is what the running statement has open.
type statement struct {
	edits     map[*catalog.Table]*edit
	snapshots map[catalog.AsOf]*catalog.Snapshot
	meta      bool            // it names meta columns, so tables offer them
	into      string          // the table, in lower case, into which it inserts: that one does not
	truncates map[string]bool // tables that TRUNCATE TABLE names, in lower case
	change    *change         // what it changes of definitions, as long as that is not decided
	altered   bool            // it changed the definition of a table that it may go on to read
	late      uint64          // rows that an event-time table ignored
	noted     bool            // its kind is known
	noCommit  bool            // it is of a kind that leaves an open transaction open
	prepares  bool            // it is PREPARE
	leftOpen  bool            // the front end believes that it committed
	away      bool            // it is bound in a database that is not the session's: home is (see rename.go)
	home      string
	rescans   map[*table]*rescan
	bulk      *catalog.Table   // see editor.bulk
	wrapping  bool             // the iterator of an INSERT is being built and will be wrapped
	asked     *dialect.RowLock // of the reference to a table that is looked up next
	locks     bool             // it has a locking clause
	lent      *dialect.RowLock // of the view that is being bound
}

// edit is a table that the running statement changes. Reads of the statement do not see the changes.
type edit struct {
	mark catalog.Mark // state of the transaction before the first change
	open int          // editors that are open
	// inserting counts the open editors that add rows: an update beside one belongs to ON DUPLICATE KEY UPDATE.
	inserting int
}

var (
	_ sql.TransactionSession    = (*Session)(nil)
	_ sql.LifecycleAwareSession = (*Session)(nil)
	_ sql.Transaction           = (*transaction)(nil)
)

// transaction is a transaction of the front end. Those of the catalogs behind it begin when a table is first read or
// written, so that a snapshot is as young as it can be and SHOW or SET cost nothing.
type transaction struct {
	readOnly   bool
	txs        map[*catalog.Catalog]*catalog.Tx
	savepoints []savepoint
	done       bool

	leveled   bool // level is known
	level     catalog.Isolation
	statement uint64 // the last one that the transactions below know of, see Session.statements
}

// savepoint is a mark in each catalog's transaction that had begun.
type savepoint struct {
	name  string
	marks map[*catalog.Catalog]catalog.Mark
}

func (t *transaction) String() string   { return "lakesql transaction" }
func (t *transaction) IsReadOnly() bool { return t.readOnly }

// sessionOf gives the session of a context, which is always one of ours.
func sessionOf(ctx *sql.Context) *Session { return ctx.Session.(*Session) }

// NewSession makes the session of a connection; conn is nil for a session inside the process, which belongs to the
// engine's root user.
func (e *Engine) NewSession(ctx context.Context, conn *mysql.Conn, addr string) (sql.Session, error) {
	client := sql.Client{User: e.user, Address: "localhost"}
	var id uint32
	if conn != nil {
		id = conn.ConnectionID
		client = sql.Client{User: conn.User, Address: addr, Capabilities: conn.Capabilities}
		if u, ok := conn.UserData.(sql.MysqlConnectionUser); ok {
			client.User, client.Address = u.User, u.Host
		}
	} else {
		id = e.localIDs.Add(1)
	}
	return e.newSession(sql.NewBaseSessionWithClientServer(addr, client, id)), nil
}

func (e *Engine) newSession(base *sql.BaseSession) *Session {
	return &Session{BaseSession: base, engine: e, prepared: map[string]string{}}
}

// txOf gives the session's transaction over a catalog, and begins it if need be.
func (s *Session) txOf(ctx *sql.Context, c *catalog.Catalog) (*catalog.Tx, error) {
	if s.tx == nil || s.tx.done {
		// The front end reads some tables (SHOW TABLE STATUS, a view's check) outside of any transaction of its own.
		s.tx = &transaction{}
	}
	if err := s.startStatement(ctx); err != nil {
		return nil, err
	}
	if tx := s.tx.txs[c]; tx != nil {
		return tx, nil
	}
	tx, err := c.BeginTx(ctx, catalog.TxOptions{
		Isolation: s.isolation(ctx), LockTimeout: s.rowWait(ctx), Connection: s.ID(), Holder: s.holder(c),
	})
	if err != nil {
		return nil, mysqlError(err)
	}
	if s.tx.txs == nil {
		s.tx.txs = map[*catalog.Catalog]*catalog.Tx{}
	}
	s.tx.txs[c] = tx
	return tx, nil
}

// use gives the session's transaction for a table that a plan names. It waits for a change of the table's definition; afterwards the
// definition stays until the transaction ends. ErrReplan: it is another one than that of the plan.
func (s *Session) use(ctx *sql.Context, t *table) (*catalog.Tx, error) {
	tx, err := s.txOf(ctx, t.catalog)
	if err != nil || t.temporary || s.stmt.change.of(t.t) != nil {
		return tx, err
	}
	if !tx.Uses(t.t) {
		switch err := tx.LockTable(s.changeWait(ctx), t.t, catalog.LockNone, catalog.LockWaits); {
		case errors.Is(err, catalog.ErrNotFound):
			return nil, ErrReplan
		case err != nil:
			return nil, mysqlError(err)
		}
	}
	if s.stmt.altered {
		return tx, nil
	}
	if t.def.version != t.t.Version() || t.def.name != t.t.Name() || !strings.EqualFold(t.db.name, t.t.Database()) {
		return nil, ErrReplan
	}
	return tx, nil
}

// Written names the state of the session's writes: a statement that left it as it was can be run again in the same transaction.
func (s *Session) Written() (n int) {
	if s.tx != nil {
		for _, tx := range s.tx.txs {
			n += int(tx.Mark())
		}
	}
	return n
}

// holder gives the transaction that holds the session's locks of tables.
func (s *Session) holder(c *catalog.Catalog) *catalog.Tx {
	if s.held == nil || c != s.engine.catalog {
		return nil
	}
	return s.held.tx
}

// StartTransaction begins a transaction; the front end calls it before it binds a statement outside of one. The statements
// of a procedure are outside of one by the front end's account, but they belong to what CALL belongs to.
func (s *Session) StartTransaction(ctx *sql.Context, c sql.TransactionCharacteristic) (sql.Transaction, error) {
	if s.tx != nil && !s.tx.done {
		return s.tx, nil
	}
	s.closeSnapshots()
	s.tx = &transaction{readOnly: c == sql.ReadOnly || s.startsReadOnly(ctx)}
	return s.tx, nil
}

// SetTransaction is the front end's note of the transaction that statements belong to. It takes the note away after a commit,
// after an error, and while a procedure runs.
func (s *Session) SetTransaction(tx sql.Transaction) {
	if tx == nil && len(s.stmt.edits) > 0 {
		s.nested = true
	}
	if tx == nil && s.stmt.leftOpen {
		return
	}
	s.BaseSession.SetTransaction(tx)
}

// release undoes what is not committed.
func (s *Session) release() {
	if s.tx != nil {
		s.tx.rollback()
		s.tx = nil
	}
	s.endStatement()
}

func (t *transaction) rollback() {
	for _, tx := range t.txs {
		tx.Rollback()
	}
	t.txs, t.savepoints, t.done = nil, nil, true
}

// CommitTransaction makes the session's changes durable. Temporary tables are committed after the warehouse: they are
// the session's own, so nothing can refuse them.
func (s *Session) CommitTransaction(ctx *sql.Context, _ sql.Transaction) error {
	if s.leavesOpen(ctx) {
		s.stmt.leftOpen = true
		return nil
	}
	if s.nested && len(s.stmt.edits) > 0 {
		return nil // a procedure that a trigger calls: its changes are the statement's
	}
	err := mysqlError(s.commit(ctx))
	if err != nil {
		// The transaction is over, whatever the front end thinks, and autocommit is in force again.
		s.SetTransaction(nil)
		s.SetIgnoreAutoCommit(false)
	}
	return err
}

// Commits counts the commits of the session, also those of nothing. A statement after whose beginning there was one cannot be
// run again.
func (s *Session) Commits() uint64 { return s.commits }

func (s *Session) commit(ctx *sql.Context) error {
	s.endStatement()
	t := s.tx
	if t == nil {
		return nil
	}
	s.tx = nil
	defer t.rollback()
	if tx := t.txs[s.engine.catalog]; tx != nil && len(t.txs) == 1 {
		if tx.Writes() {
			tx.Instant = s.instantMode(ctx)
			if err := tx.Commit(ctx); err != nil {
				return err
			}
			delete(t.txs, s.engine.catalog)
		}
		s.commits++
		return nil
	}
	txs := slices.SortedFunc(maps.Keys(t.txs), func(a, b *catalog.Catalog) int {
		if a == s.engine.catalog {
			return -1
		}
		if b == s.engine.catalog {
			return 1
		}
		return 0
	})
	for _, c := range txs {
		tx := t.txs[c]
		if !tx.Writes() {
			continue
		}
		tx.Instant = c == s.engine.catalog && s.instantMode(ctx)
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		delete(t.txs, c)
	}
	s.commits++
	return nil
}

// Rollback undoes the transaction.
func (s *Session) Rollback(ctx *sql.Context, _ sql.Transaction) error {
	s.release()
	return nil
}

// CreateSavepoint marks the present state; a savepoint of that name is replaced.
func (s *Session) CreateSavepoint(ctx *sql.Context, _ sql.Transaction, name string) error {
	if s.tx == nil {
		return nil
	}
	if i := s.tx.savepoint(name); i >= 0 {
		s.tx.savepoints = slices.Delete(s.tx.savepoints, i, i+1)
	}
	sp := savepoint{name: name, marks: map[*catalog.Catalog]catalog.Mark{}}
	for c, tx := range s.tx.txs {
		sp.marks[c] = tx.Mark()
	}
	s.tx.savepoints = append(s.tx.savepoints, sp)
	return nil
}

func (t *transaction) savepoint(name string) int {
	return slices.IndexFunc(t.savepoints, func(s savepoint) bool { return strings.EqualFold(s.name, name) })
}

// RollbackToSavepoint goes back to the state of a savepoint, which stays.
func (s *Session) RollbackToSavepoint(ctx *sql.Context, _ sql.Transaction, name string) error {
	i := -1
	if s.tx != nil {
		i = s.tx.savepoint(name)
	}
	if i < 0 {
		return sql.ErrSavepointDoesNotExist.New(name)
	}
	for c, tx := range s.tx.txs {
		if err := tx.RollbackTo(s.tx.savepoints[i].marks[c]); err != nil { // begun later: the zero mark is its start
			return mysqlError(err)
		}
	}
	s.tx.savepoints = s.tx.savepoints[:i+1]
	return nil
}

// ReleaseSavepoint forgets a savepoint.
func (s *Session) ReleaseSavepoint(ctx *sql.Context, _ sql.Transaction, name string) error {
	i := -1
	if s.tx != nil {
		i = s.tx.savepoint(name)
	}
	if i < 0 {
		return sql.ErrSavepointDoesNotExist.New(name)
	}
	s.tx.savepoints = slices.Delete(s.tx.savepoints, i, i+1)
	return nil
}

// commitBeforeDDL commits what is open, as MySQL does before a statement that changes definitions.
func (s *Session) commitBeforeDDL(ctx *sql.Context) error {
	t := s.tx
	old := s.stmt
	if err := s.commit(ctx); err != nil {
		return mysqlError(err)
	}
	s.stmt.meta, s.stmt.into, s.stmt.truncates, s.stmt.altered, s.stmt.change = old.meta, old.into, old.truncates, old.altered, old.change
	s.stmt.noted, s.stmt.noCommit = old.noted, old.noCommit
	if t != nil {
		s.tx = &transaction{readOnly: t.readOnly}
	}
	s.giveWay()
	return nil
}

// countedVariables are the status variables that count statements.
var countedVariables = [...]string{"Questions", "Com_select", "Com_insert", "Com_update", "Com_delete"}

// IncrementStatusVariable is called by the front end for what a statement counts.
func (s *Session) IncrementStatusVariable(ctx *sql.Context, name string, n int) {
	for i := range countedVariables {
		if countedVariables[i] == name {
			s.counted[i] += n
			break
		}
	}
	s.BaseSession.IncrementStatusVariable(ctx, name, n)
}

// Uncount takes back what the command has counted, before it is run again: for the client it is one.
func (s *Session) Uncount(ctx *sql.Context) {
	for i, name := range countedVariables {
		if n := s.counted[i]; n != 0 {
			sql.IncrementStatusVariable(ctx, name, -n)
		}
	}
}

// CommandBegin, CommandEnd and SessionEnd are called by the wire server and the driver around each command.
func (s *Session) CommandBegin() error {
	s.CommandEnd()
	clear(s.counted[:])
	return nil
}

// CommandEnd undoes what the front end dropped without a commit, which it does after an error.
func (s *Session) CommandEnd() {
	if s.GetTransaction() == nil {
		s.release()
	}
	s.endStatement()
}

func (s *Session) SessionEnd() {
	s.release()
	s.unhold()
	s.engine.userLocks.releaseAll(s)
	if s.temps != nil {
		s.temps.close()
		s.temps = nil
	}
}

// endStatement closes what the statement has open.
func (s *Session) endStatement() {
	s.closeSnapshots()
	if s.tx != nil {
		for _, tx := range s.tx.txs {
			tx.Idle()
		}
	}
	s.goHome()
	s.stmt, s.nested = statement{}, false
}

func (s *Session) closeSnapshots() {
	for _, snap := range s.stmt.snapshots {
		snap.Close()
	}
	s.stmt.snapshots = nil
}

// editOf gives the edit of a table, nil if the statement does not change it.
func (s *Session) editOf(t *catalog.Table) *edit { return s.stmt.edits[t] }

// instantMode says whether commits are to be seen by other engines at once.
func (s *Session) instantMode(ctx *sql.Context) bool {
	v, err := s.GetSessionVariable(ctx, commitModeVariable)
	if err != nil {
		return false
	}
	text, _ := v.(string)
	return strings.EqualFold(text, "instant")
}
