package driver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	gms "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// connection is a session of the warehouse. database/sql gives it to one goroutine at a time.
type connection struct {
	connector *connector
	warehouse *warehouse
	session   gms.Session
	inTx      bool
	before    progress  // when the running statement began
	own       bool      // the running statement has a transaction of its own, which ends with it
	rows      *rows     // the result that is being read
	owner     io.Closer // of a connection without a sql.DB
}

var (
	_ driver.Conn               = (*connection)(nil)
	_ driver.ConnBeginTx        = (*connection)(nil)
	_ driver.ConnPrepareContext = (*connection)(nil)
	_ driver.ExecerContext      = (*connection)(nil)
	_ driver.QueryerContext     = (*connection)(nil)
	_ driver.Pinger             = (*connection)(nil)
	_ driver.SessionResetter    = (*connection)(nil)
	_ driver.NamedValueChecker  = (*connection)(nil)
)

func newConnection(ctx context.Context, c *connector, w *warehouse) (*connection, error) {
	n := &connection{connector: c, warehouse: w}
	return n, n.start(ctx)
}

// start gives the connection a fresh session.
func (n *connection) start(ctx context.Context) error {
	s, err := n.warehouse.engine.NewSession(ctx, nil, "in process")
	if err != nil {
		return n.failed(ctx, err)
	}
	n.session, n.inTx = s, false
	settings := []string{}
	if n.connector.loc != time.UTC {
		settings = append(settings, "SET time_zone = '"+n.connector.loc.String()+"'")
	} else {
		settings = append(settings, "SET time_zone = '+00:00'")
	}
	if m := n.connector.commitMode; m != "" {
		settings = append(settings, "SET lakesql_commit_mode = '"+m+"'")
	}
	if db := n.connector.database; db != "" {
		settings = append(settings, "USE `"+strings.ReplaceAll(db, "`", "``")+"`")
	}
	for _, q := range settings {
		if _, err := n.ExecContext(ctx, q, nil); err != nil {
			return err
		}
	}
	return nil
}

// statementContext makes the context of one run of a statement.
func (n *connection) statementContext(ctx context.Context, query string) *gms.Context {
	return n.warehouse.engine.NewContext(ctx, gms.WithSession(n.session), gms.WithQuery(query), gms.WithProcessList(n.warehouse.engine.SQL().ProcessList))
}

// failed gives an error its MySQL number; the caller's own cancellation stays what it is.
func (n *connection) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return wire.MySQLError(dialect.ClientError(err))
}

// open runs a statement up to its first row. A panic of the front end is the statement's error: it must not end the program
// that embeds the warehouse.
func (n *connection) open(ctx context.Context, query string, args map[string]ast.Expr) (_ *gms.Context, _ gms.Schema, _ gms.RowIter, err error) {
	defer func() {
		if r := recover(); r != nil {
			gms.SessionCommandEnd(n.session)
			err = mysql.NewSQLError(erInternal, "HY000", "Internal error: %v", r)
		}
	}()
	if n.rows != nil {
		return nil, nil, nil, errors.New("lakesql: the connection still reads another result")
	}
	c := n.statementContext(ctx, query)
	if err := gms.SessionCommandBegin(n.session); err != nil {
		return nil, nil, nil, err
	}
	auto, err := plan.IsSessionAutocommit(c)
	n.own = err == nil && auto && c.GetTransaction() == nil && !c.GetIgnoreAutoCommit()
	n.before = n.progress()
	sch, iter, _, err := n.warehouse.engine.SQL().QueryWithBindings(c, query, nil, args, nil)
	if len(args) > 0 {
		// The front end keeps a statement with parameters under its text, and would take it for that of another session state.
		n.session.UnprepareQuery(query)
	}
	if err != nil {
		n.lose(c, err)
		gms.SessionCommandEnd(n.session)
		return nil, nil, nil, err
	}
	return c, sch, iter, nil
}

// lose ends the session's transaction if an error says that it is lost, as a deadlock does.
func (n *connection) lose(c *gms.Context, err error) {
	var e *mysql.SQLError
	if !errors.As(wire.MySQLError(err), &e) || e.Num != mysql.ERLockDeadlock {
		return
	}
	if s, ok := n.session.(gms.TransactionSession); ok && c.GetTransaction() != nil {
		_ = s.Rollback(c, c.GetTransaction()) // it has nothing to say: what is undone is gone
	}
	c.SetTransaction(nil)
	c.SetIgnoreAutoCommit(false)
}

// erInternal is MySQL's number for a fault of the server itself.
const erInternal = 1815

// rerunMax is how often a conflicting statement runs before its error is the caller's.
const rerunMax = 100

// progress is what a session has written and committed.
type progress struct {
	commits uint64
	written int
}

func (n *connection) progress() progress {
	s, ok := n.session.(*sqlplan.Session)
	if !ok {
		return progress{}
	}
	p := progress{commits: s.Commits()}
	if !n.own {
		p.written = s.Written()
	}
	return p
}

// again waits a moment before a statement that conflicted runs again; false means that it may not.
func (n *connection) again(ctx context.Context, try int, err error) bool {
	if sqlplan.Replans(err, n.own) {
		// A definition changed under the plan. Nothing of the statement stands; what it belongs to goes on.
		return try < rerunMax && n.progress() == n.before && ctx.Err() == nil
	}
	var e *mysql.SQLError
	if n.inTx || !n.own || try >= rerunMax || !errors.As(wire.MySQLError(err), &e) || e.Num != mysql.ERLockDeadlock {
		return false
	}
	wait := time.Duration(rand.Int64N(int64(min(try+1, 20)))) * 100 * time.Microsecond
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func (n *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	bound, err := bind(args, n.connector.loc)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		r, err := n.exec(ctx, query, bound)
		if err == nil {
			return r, nil
		}
		if !n.again(ctx, try, err) {
			return nil, n.failed(ctx, err)
		}
	}
}

func (n *connection) exec(ctx context.Context, query string, args map[string]ast.Expr) (result, error) {
	c, _, iter, err := n.open(ctx, query, args)
	if err != nil {
		return result{}, err
	}
	defer gms.SessionCommandEnd(n.session)
	var r result
	for {
		row, err := iter.Next(c)
		if err == io.EOF {
			break
		}
		if err != nil {
			iter.Close(c) // the error that matters is the one before
			n.lose(c, err)
			return result{}, err
		}
		if types.IsOkResult(row) {
			ok := types.GetOkResult(row)
			r.affected, r.id = int64(ok.RowsAffected), int64(ok.InsertID)
		}
	}
	err = iter.Close(c)
	if err != nil {
		n.lose(c, err)
	}
	return r, err
}

// result is what a statement that gives no rows did.
type result struct{ affected, id int64 }

func (r result) LastInsertId() (int64, error) { return r.id, nil }
func (r result) RowsAffected() (int64, error) { return r.affected, nil }

func (n *connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	bound, err := bind(args, n.connector.loc)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		r, err := n.query(ctx, query, bound)
		if err == nil {
			return r, nil
		}
		if !n.again(ctx, try, err) {
			return nil, n.failed(ctx, err)
		}
	}
}

func (n *connection) query(ctx context.Context, query string, args map[string]ast.Expr) (driver.Rows, error) {
	c, sch, iter, err := n.open(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r := &rows{conn: n, ctx: c, user: ctx, iter: iter, schema: sch}
	// The first row is read here, so that a statement which changes rows has run, or can run again.
	row, err := iter.Next(c)
	switch {
	case err == io.EOF || err == nil && types.IsOkResult(row):
		if types.IsOkResultSchema(sch) {
			r.schema = nil
		}
		err := iter.Close(c)
		if err != nil {
			n.lose(c, err)
		}
		gms.SessionCommandEnd(n.session)
		r.ended = true
		return r, err
	case err != nil:
		iter.Close(c)
		n.lose(c, err)
		gms.SessionCommandEnd(n.session)
		return nil, err
	}
	r.first = row
	n.rows = r
	return r, nil
}

func (n *connection) Prepare(query string) (driver.Stmt, error) {
	return n.PrepareContext(context.Background(), query)
}

func (n *connection) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := n.warehouse.engine.SQL().Parser.ParseSimple(query)
	if err != nil {
		return nil, n.failed(ctx, err)
	}
	return &statement{conn: n, query: query, params: countParams(stmt)}, nil
}

func (n *connection) Begin() (driver.Tx, error) {
	return n.BeginTx(context.Background(), driver.TxOptions{})
}

// isolationLevels are the levels of database/sql by MySQL's names; "" is the session's.
var isolationLevels = map[sql.IsolationLevel]string{
	sql.LevelDefault:         "",
	sql.LevelReadUncommitted: "READ UNCOMMITTED",
	sql.LevelReadCommitted:   "READ COMMITTED",
	sql.LevelWriteCommitted:  "READ COMMITTED",
	sql.LevelRepeatableRead:  "REPEATABLE READ",
	sql.LevelSnapshot:        "REPEATABLE READ",
	sql.LevelSerializable:    "SERIALIZABLE",
}

// BeginTx starts a transaction.
func (n *connection) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	level, ok := isolationLevels[sql.IsolationLevel(o.Isolation)]
	if !ok {
		return nil, fmt.Errorf("lakesql: isolation level %s is not supported", sql.IsolationLevel(o.Isolation))
	}
	if level != "" {
		if _, err := n.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL "+level, nil); err != nil {
			return nil, err
		}
	}
	query := "START TRANSACTION"
	if o.ReadOnly {
		query += " READ ONLY"
	}
	if _, err := n.ExecContext(ctx, query, nil); err != nil {
		return nil, err
	}
	n.inTx = true
	return &tx{n}, nil
}

// tx ends a transaction of its connection.
type tx struct{ conn *connection }

func (t *tx) Commit() error   { return t.end("COMMIT") }
func (t *tx) Rollback() error { return t.end("ROLLBACK") }

func (t *tx) end(query string) error {
	_, err := t.conn.ExecContext(context.Background(), query, nil)
	t.conn.inTx = false
	return err
}

func (n *connection) Ping(ctx context.Context) error { return ctx.Err() }

// ResetSession gives the next user of the connection a session without the last one's variables and temporary tables.
func (n *connection) ResetSession(ctx context.Context) error {
	n.end()
	return n.start(ctx)
}

// end ends the session.
func (n *connection) end() {
	if n.rows != nil {
		n.rows.Close() // what it would have given is lost anyway
	}
	gms.SessionEnd(n.session)
}

func (n *connection) Close() error {
	n.end()
	if n.owner != nil {
		return n.owner.Close()
	}
	return nil
}

// statement is a prepared statement.
type statement struct {
	conn   *connection
	query  string
	params int
}

var (
	_ driver.StmtExecContext  = (*statement)(nil)
	_ driver.StmtQueryContext = (*statement)(nil)
)

func (s *statement) Close() error  { return nil }
func (s *statement) NumInput() int { return s.params }

func (s *statement) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), named(args))
}

func (s *statement) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), named(args))
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

func named(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, v := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}
