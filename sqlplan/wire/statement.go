package wire

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	"github.com/dolthub/vitess/go/vt/sqlparser"
)

// statement is one statement on its way through the server.
type statement struct {
	text     string
	multi    bool               // text may hold further statements
	prepared *mysql.PrepareData // nil: text protocol
	binary   bool               // rows go out in the binary protocol
	cursor   bool               // after its first rows the connection is the command loop's, which fetches the others
	send     mysql.ResultSpoolFn

	ast     sqlparser.Statement // nil until parsed
	more    bool                // further statements follow
	started bool                // part of the answer has been handed to send
	touched bool                // something happened that cannot be taken back
	load    loadState           // of LOAD DATA and INSERT
	whole   bool                // the front end reads all rows of an INSERT
	short   bool                // it went the short way
	again   bool                // it is run again
}

// Causes with which a running statement is cancelled.
var (
	errTimeout = mysql.NewSQLError(3024, "HY000", "Query execution was interrupted, maximum statement execution time exceeded")
	errKilled  = mysql.NewSQLError(mysql.ERQueryInterrupted, "70100", "Query execution was interrupted")
	errGone    = errors.New("the client went away")
)

// run executes one statement and returns the text behind it. Its error is a *mysql.SQLError.
func (h *handler) run(ctx context.Context, c *mysql.Conn, st *statement) (rest string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, err := h.s.enter(st.text, cancel)
	if err != nil {
		return "", err
	}
	defer leave()
	w, _ := c.Conn.(*conn)
	st.cursor = w != nil && st.prepared != nil && w.opensCursor(st.prepared.StatementID)
	var watch *clientWatch
	if w != nil {
		watch = &w.watch
	} else {
		watch = &clientWatch{}
	}
	watch.begin(ctx, c, cancel)
	defer watch.stop()
	send := st.send
	st.send = func(r *sqltypes.Result, more bool) error {
		if !st.started {
			st.started = true
			if st.binary {
				// An open cursor hands the socket back to the command loop with the first batch.
				watch.stop()
			}
		}
		return send(r, more)
	}

	for attempt := 0; ; attempt++ {
		var again bool
		st.again = attempt > 0
		rest, again, err = h.attempt(ctx, c, st)
		if err == nil {
			return rest, nil
		}
		if v := st.load.values; v != nil && !v.final && ctx.Err() == nil {
			// Whatever was wrong with the statement, the front end says so after it has seen all of it.
			st.whole = true
			continue
		}
		if !again || attempt >= h.s.o.Reruns || ctx.Err() != nil {
			break
		}
		h.s.Metrics.RerunsTotal.Add(1)
		pause(ctx, attempt)
	}
	h.s.Metrics.ErrorsTotal.Add(1)
	e := mysqlError(h.s.o.MapError, err)
	if !st.started {
		if st.cursor {
			w.failed.Store(e) // the protocol layer has no place for it
		}
		return "", e
	}
	h.s.log.Debug("statement failed after its first rows", "connection", c.ConnectionID, "err", e)
	if !st.cursor && sendError(c, e) {
		return "", nil
	}
	return "", e
}

// pause waits a random time that grows with the attempts, so that statements in conflict part.
func pause(ctx context.Context, attempt int) {
	limit := min(50*time.Millisecond, 200*time.Microsecond<<min(attempt, 10))
	t := time.NewTimer(rand.N(limit) + 1)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// interrupted prefers the reason of a cancellation to the error it led to.
func interrupted(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case cause == context.Canceled: // none of ours: KILL
		return errKilled
	default:
		return cause
	}
}

// attempt executes the statement once. again: it failed in a way that another attempt may not.
func (h *handler) attempt(ctx context.Context, c *mysql.Conn, st *statement) (rest string, again bool, err error) {
	err = h.recovered(c, st.text, func() error {
		sqlCtx, err := h.sm.NewContextWithQuery(ctx, c, st.text)
		if err != nil {
			return err
		}
		sqlCtx, err = sqlCtx.ProcessList.BeginQuery(sqlCtx, st.text)
		if err != nil {
			return err
		}
		defer sqlCtx.ProcessList.EndQuery(sqlCtx)
		if u, ok := sqlCtx.Session.(interface{ Uncount(ctx *sql.Context) }); ok && st.again {
			u.Uncount(sqlCtx)
		}
		if err := sql.SessionCommandBegin(sqlCtx.Session); err != nil {
			return err
		}
		defer sql.SessionCommandEnd(sqlCtx.Session)
		own := ownsTransaction(sqlCtx)
		commits, written := commitsOf(sqlCtx.Session), writtenOf(sqlCtx.Session)
		failed := true
		defer func() { // also after a panic
			if failed && own {
				abandon(sqlCtx)
			}
			setStatus(sqlCtx, c, st)
		}()
		text := st.text
		st.ast, st.more = nil, false
		st.load.values = nil
		if st.short, err = h.answerShort(sqlCtx, c, st); st.short {
			if err != nil {
				again = h.lost(sqlCtx, st, own, commits, written, err)
				if !again {
					e := mysqlError(h.s.o.MapError, err)
					sqlCtx.Session.Warn(&sql.Warning{Level: "Error", Code: e.Num, Message: e.Message})
				}
				return err
			}
			failed = false
			return nil
		}
		inner, cancel := context.WithCancelCause(context.WithValue(sqlCtx.Context, loadStateKey{}, &st.load))
		defer cancel(nil)
		sqlCtx = sqlCtx.WithContext(inner)
		if st.prepared == nil && !st.whole {
			if v := valuesOf(sqlCtx, text); v != nil {
				st.load.values = v
				text = v.short()
			}
		}
		if st.prepared != nil {
			st.ast, _ = sqlCtx.GetPreparedQuery(preparedKey(text))
		} else {
			var first string
			st.ast, first, rest, err = h.e.Parser.Parse(sqlCtx, text, st.multi)
			if err != nil && !errors.Is(err, sqlparser.ErrEmpty) {
				return syntaxError(err)
			}
			if first != "" {
				text = first
			}
			st.more = rest != ""
		}
		stop := h.limitTime(sqlCtx, st, text, cancel)
		defer stop()
		err = h.execute(sqlCtx, c, st, text)
		if err != nil {
			again = h.lost(sqlCtx, st, own, commits, written, err)
			err = inContext(sqlCtx, st.ast, err)
			if v := st.load.values; v != nil && !v.final {
				return err
			}
			if !again { // SHOW WARNINGS names the error too
				e := mysqlError(h.s.o.MapError, err)
				sqlCtx.Session.Warn(&sql.Warning{Level: "Error", Code: e.Num, Message: e.Message})
			}
			return err
		}
		failed = false
		return nil
	})
	return rest, again, err
}

// lost ends the transaction that an error lost. again: the statement may be run again.
func (h *handler) lost(ctx *sql.Context, st *statement, own bool, commits uint64, written int, err error) (again bool) {
	if h.s.o.Replans(err, own) {
		if defines(st.ast) { // what was open before is committed, and nothing of the statement is done
			return !st.started && !st.touched
		}
		return !st.started && !st.touched && (st.short || replannable(st.ast, own)) && commitsOf(ctx.Session) == commits && (own || writtenOf(ctx.Session) == written)
	}
	if !h.conflict(err) {
		return false
	}
	if v := st.load.values; v != nil {
		v.final = true
	}
	again = own && !st.started && !st.touched && (st.short || rerunnable(st.ast)) && commitsOf(ctx.Session) == commits
	if !again {
		// As with a deadlock in MySQL, the whole transaction is lost.
		abandon(ctx)
	}
	return again
}

// conflict tells whether a statement failed because another changed its rows.
func (h *handler) conflict(err error) bool {
	err = sql.UnwrapError(err)
	var e *mysql.SQLError
	if errors.As(err, &e) {
		return e.Num == mysql.ERLockDeadlock
	}
	return h.s.o.Retryable(err) || isKind(sql.ErrLockDeadlock, err)
}

// commitsOf counts the commits of a session. A procedure may commit before it fails.
func commitsOf(s sql.Session) uint64 {
	if c, ok := s.(interface{ Commits() uint64 }); ok {
		return c.Commits()
	}
	return 0
}

// writtenOf names the state of a session's writes.
func writtenOf(s sql.Session) int {
	if w, ok := s.(interface{ Written() int }); ok {
		return w.Written()
	}
	return 0
}

// replannable tells statements that can be run again after a failure that left the session's writes as they were. Inside of a
// transaction the statements of a procedure that ran before the one that failed may have had other effects.
func replannable(ast sqlparser.Statement, own bool) bool {
	if _, calls := ast.(*sqlparser.Call); calls && !own {
		return false
	}
	return rerunnable(ast)
}

// defines tells statements that change definitions, all at once when they end.
func defines(ast sqlparser.Statement) bool {
	switch ast.(type) {
	case *sqlparser.AlterTable, *sqlparser.DDL:
		return true
	}
	return false
}

// rerunnable tells statements whose effect ends with their transaction.
func rerunnable(ast sqlparser.Statement) bool {
	switch ast.(type) {
	case sqlparser.SelectStatement, *sqlparser.Insert, *sqlparser.Update, *sqlparser.Delete, *sqlparser.Load, *sqlparser.Call, *sqlparser.Execute:
		return true
	}
	return false
}

// execute plans and runs one statement and sends its answer.
func (h *handler) execute(ctx *sql.Context, c *mysql.Conn, st *statement, text string) error {
	var binds map[string]sqlparser.Expr
	var err error
	if st.prepared != nil {
		if binds, err = bindingExprs(st.prepared.BindVars); err != nil {
			return err
		}
	}
	switch ast := st.ast.(type) {
	case *sqlparser.Load:
		if err := loadable(c, st, ast); err != nil {
			return err
		}
		st.touched = bool(ast.Local) // the client sends its file once
		st.load = loadState{listed: len(ast.Columns)}
		if w, ok := c.Conn.(*conn); ok {
			st.load.ended, st.load.hangUp = &w.ended, w.Close
		}
		for _, col := range ast.Columns {
			// Expressions of SET get their types before the first row is read.
			if name, ok := strings.CutPrefix(col.String(), "@"); ok {
				if err := ctx.SetUserVariable(ctx, name, nil, types.LongText); err != nil {
					return err
				}
			}
		}
	case *sqlparser.Kill:
		if err := h.killable(ast); err != nil {
			return err
		}
	}
	if err := showCounts(ctx, text); err != nil {
		return err
	}
	var collation string
	if collation, err = namesCollation(text); err != nil {
		return err
	}
	flags := &sql.QueryFlags{}
	flags.Set(sql.QFlagDeferProjections)
	schema, iter, _, err := h.s.o.Query(ctx, text, st.ast, binds, flags)
	if err != nil {
		return interrupted(ctx, err)
	}
	if v := st.load.values; v != nil && !v.read {
		// The front end has a plan without an insert of its own, and has not begun to run it.
		if err := iter.Close(ctx); err != nil {
			return err
		}
		return errNotPlain
	}
	if err := h.answer(ctx, c, st, schema, iter); err != nil {
		return err
	}
	if collation != "" { // known to exist; the client has its OK already
		if err := ctx.SetSessionVariable(ctx, "collation_connection", collation); err != nil {
			h.s.log.Error("setting the collation of SET NAMES", "collation", collation, "err", err)
		}
	}
	return nil
}

// loadable refuses LOAD DATA LOCAL where the protocol has no way to ask for the file.
func loadable(c *mysql.Conn, st *statement, ld *sqlparser.Load) error {
	if !bool(ld.Local) {
		return nil
	}
	if st.prepared != nil {
		return mysql.NewSQLError(1295, "HY000", "This command is not supported in the prepared statement protocol yet")
	}
	if w, ok := c.Conn.(*conn); ok && w.capabilities.Load()&mysql.CapabilityClientLocalFiles == 0 {
		return errLocalOff
	}
	return nil
}

// killable refuses KILL of a connection that does not exist.
func (h *handler) killable(k *sqlparser.Kill) error {
	v, ok := k.ConnID.(*sqlparser.SQLVal)
	if !ok {
		return nil
	}
	id := string(v.Val)
	for _, p := range h.e.ProcessList.Processes() {
		if strconv.FormatUint(uint64(p.Connection), 10) == id {
			return nil
		}
	}
	return mysql.NewSQLError(1094, "HY000", "Unknown thread id: %s", id)
}

func bindingExprs(vars map[string]*querypb.BindVariable) (map[string]sqlparser.Expr, error) {
	out := make(map[string]sqlparser.Expr, len(vars))
	for name, bv := range vars {
		if bv == nil { // COM_STMT_RESET leaves empty places
			continue
		}
		v, err := sqltypes.BindVariableToValue(bv)
		if err != nil {
			return nil, err
		}
		e, err := sqlparser.ExprFromValue(v)
		if err != nil {
			return nil, err
		}
		out[name] = e
	}
	return out, nil
}

// ownsTransaction tells whether a statement begun now gets a transaction of its own.
func ownsTransaction(ctx *sql.Context) bool {
	if ctx.GetIgnoreAutoCommit() || ctx.GetTransaction() != nil {
		return false
	}
	on, err := plan.IsSessionAutocommit(ctx)
	return err == nil && on
}

// abandon rolls the session's transaction back, if there is one.
func abandon(ctx *sql.Context) {
	tx := ctx.GetTransaction()
	if tx == nil {
		return
	}
	if ts, ok := ctx.Session.(sql.TransactionSession); ok {
		// The statement's own context may have been cancelled; the rollback is ours to finish.
		clean := ctx.WithContext(context.WithoutCancel(ctx))
		if err := ts.Rollback(clean, tx); err != nil {
			ctx.GetLogger().WithError(err).Error("rolling back a failed statement")
		}
	}
	ctx.SetTransaction(nil)
	ctx.SetIgnoreAutoCommit(false)
}

// setStatus puts the session's transaction state where the next packet takes its flags from.
func setStatus(ctx *sql.Context, c *mysql.Conn, st *statement) {
	if st.cursor && st.started {
		return
	}
	flags := c.StatusFlags &^ (mysql.ServerStatusAutocommit | mysql.ServerInTransaction)
	on, err := plan.IsSessionAutocommit(ctx)
	if err != nil || on {
		flags |= mysql.ServerStatusAutocommit
	}
	if ctx.GetTransaction() != nil && (ctx.GetIgnoreAutoCommit() || !on) {
		flags |= mysql.ServerInTransaction
	}
	if flags != c.StatusFlags {
		c.StatusFlags = flags
	}
}

// watchAfter is how long a statement runs before the server looks whether its client is still there.
const watchAfter = 100 * time.Millisecond

// clientWatch cancels a long statement whose client has gone. It is the connection's, so that a short statement costs a timer that is
// set and stopped again.
type clientWatch struct {
	mu     sync.Mutex
	timer  *time.Timer        // guarded by mu; nil: there was no statement yet
	ctx    context.Context    // of the statement that runs; guarded by mu; nil: none does
	cancel func(error)        // of that statement; guarded by mu
	end    context.CancelFunc // ends the watch; guarded by mu; nil: nobody watches
	done   chan struct{}      // closed when it has ended; guarded by mu
}

// begin has the client watched once a statement has run for watchAfter.
func (w *clientWatch) begin(ctx context.Context, c *mysql.Conn, cancel func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.cancel = ctx, cancel
	if w.timer == nil {
		w.timer = time.AfterFunc(watchAfter, func() { w.watch(c) })
	} else {
		w.timer.Reset(watchAfter)
	}
}

func (w *clientWatch) watch(c *mysql.Conn) {
	w.mu.Lock()
	if w.ctx == nil || w.done != nil {
		w.mu.Unlock()
		return
	}
	var ctx context.Context
	ctx, w.end = context.WithCancel(w.ctx)
	done, cancel := make(chan struct{}), w.cancel
	w.done = done
	w.mu.Unlock()
	defer close(done)
	err := c.WaitForClientActivity(ctx)
	if err != nil && !errors.Is(err, mysql.ErrClientWroteWhileBusy) {
		cancel(errGone)
	}
}

// stop ends the watch and may be called twice; after it the socket is the command loop's again.
func (w *clientWatch) stop() {
	w.mu.Lock()
	if w.ctx == nil {
		w.mu.Unlock()
		return
	}
	w.ctx, w.cancel = nil, nil
	w.timer.Stop()
	end, done := w.end, w.done
	w.end, w.done = nil, nil
	w.mu.Unlock()
	if done != nil {
		end()
		<-done
	}
}

// limitTime enforces MAX_EXECUTION_TIME, which MySQL applies to SELECT alone.
func (h *handler) limitTime(ctx *sql.Context, st *statement, text string, cancel func(error)) (stop func()) {
	if _, reads := st.ast.(sqlparser.SelectStatement); !reads {
		return func() {}
	}
	ms, ok := executionTimeHint(text)
	if !ok {
		v, err := ctx.GetSessionVariable(ctx, "max_execution_time")
		if err != nil {
			return func() {}
		}
		ms, _ = v.(int64)
	}
	if ms <= 0 {
		return func() {}
	}
	t := time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { cancel(errTimeout) })
	return func() { t.Stop() }
}

// returnsOK tells plans that are answered with an OK packet, though their schema before execution says otherwise.
func returnsOK(ctx *sql.Context, node sql.Node) bool {
	switch n := node.(type) {
	case *plan.InsertInto:
		return n.Returning == nil
	case *plan.Update, *plan.UpdateJoin, *plan.DeleteFrom:
		return true
	}
	return types.IsOkResultSchema(node.Schema(ctx))
}
