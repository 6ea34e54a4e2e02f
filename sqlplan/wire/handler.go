package wire

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	"github.com/dolthub/vitess/go/vt/sqlparser"
)

// handler answers the protocol's commands. The embedded one is the front end's
// own: what is not overridden here goes through it.
type handler struct {
	mysql.Handler
	s  *Server
	e  *sqle.Engine
	sm *server.SessionManager
}

func (h *handler) NewConnection(c *mysql.Conn) {
	// Drivers trust this flag and leave out SET autocommit: without it their
	// transactions would commit statement by statement.
	c.StatusFlags |= mysql.ServerStatusAutocommit
	h.s.Metrics.ConnectionsTotal.Add(1)
	h.s.Metrics.ConnectionsOpen.Add(1)
	h.s.mu.Lock()
	h.s.conns[c.ConnectionID] = c
	stopping := h.s.stopping
	h.s.mu.Unlock()
	h.Handler.NewConnection(c)
	if stopping {
		c.Close()
	}
}

func (h *handler) ConnectionClosed(c *mysql.Conn) {
	defer func() {
		h.s.mu.Lock()
		delete(h.s.conns, c.ConnectionID)
		h.s.mu.Unlock()
		h.s.Metrics.ConnectionsOpen.Add(-1)
	}()
	h.rollbackOpen(c)
	h.Handler.ConnectionClosed(c)
}

// rollbackOpen ends the transaction that a client left open when it went away.
func (h *handler) rollbackOpen(c *mysql.Conn) {
	_ = h.guard(c, "close", func() error {
		if c.UserData == nil { // never logged in: there is no session
			return nil
		}
		ctx, err := h.sm.NewContextWithQuery(context.Background(), c, "")
		if err != nil {
			return err
		}
		abandon(ctx)
		return nil
	})
}

func (h *handler) ConnectionAuthenticated(c *mysql.Conn) error {
	return h.guard(c, "connect", func() error { return h.Handler.ConnectionAuthenticated(c) })
}

func (h *handler) ComInitDB(c *mysql.Conn, schema string) error {
	return h.guard(c, "USE "+schema, func() error { return h.Handler.ComInitDB(c, schema) })
}

func (h *handler) ComQuery(ctx context.Context, c *mysql.Conn, query string, callback mysql.ResultSpoolFn) error {
	_, err := h.run(ctx, c, &statement{text: query, send: callback})
	return err
}

func (h *handler) ComMultiQuery(ctx context.Context, c *mysql.Conn, query string, callback mysql.ResultSpoolFn) (string, error) {
	return h.run(ctx, c, &statement{text: query, multi: true, send: callback})
}

func (h *handler) ComPrepare(ctx context.Context, c *mysql.Conn, query string, prepare *mysql.PrepareData) (fields []*querypb.Field, err error) {
	err = h.guard(c, query, func() (err error) {
		fields, err = h.prepare(ctx, c, query, prepare)
		return err
	})
	if err != nil {
		// The protocol layer keeps a statement that failed to prepare; nobody will close it.
		delete(c.PrepareData, prepare.StatementID)
	}
	return fields, err
}

func (h *handler) ComStmtExecute(ctx context.Context, c *mysql.Conn, prepare *mysql.PrepareData, callback func(*sqltypes.Result) error) error {
	mendParameters(prepare)
	_, err := h.run(ctx, c, &statement{
		text: prepare.PrepareStmt, prepared: prepare, binary: true,
		send: func(r *sqltypes.Result, _ bool) error { return callback(r) },
	})
	return err
}

func (h *handler) ComResetConnection(c *mysql.Conn) error {
	h.rollbackOpen(c)
	err := h.guard(c, "reset connection", func() error { return h.Handler.ComResetConnection(c) })
	c.StatusFlags = mysql.ServerStatusAutocommit
	if w, ok := c.Conn.(*conn); ok { // the new session has no prepared statements
		w.forget(func(string) {})
		w.texts, w.uses = nil, nil
		if below, ok := w.Conn.(interface{ ChangedDatabase() (string, bool) }); ok && err == nil {
			if db, changed := below.ChangedDatabase(); changed {
				err = h.guard(c, "change user", func() error { return h.sm.SetDB(context.Background(), c, db) })
			}
		}
	}
	return err
}

func (h *handler) ParserOptionsForConnection(c *mysql.Conn) (opts sqlparser.ParserOptions, err error) {
	err = h.guard(c, "prepare", func() (err error) {
		opts, err = h.Handler.ParserOptionsForConnection(c)
		return err
	})
	return opts, err
}

// guard runs f and turns what goes wrong, panics included, into an error with a
// MySQL number. A panic that reached the protocol layer would cost the client
// its connection.
func (h *handler) guard(c *mysql.Conn, what string, f func() error) error {
	err := h.recovered(c, what, f)
	if err == nil {
		return nil
	}
	h.s.Metrics.ErrorsTotal.Add(1)
	return mysqlError(h.s.o.MapError, err)
}

// recovered runs f and turns a panic into an error.
func (h *handler) recovered(c *mysql.Conn, what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			h.s.Metrics.PanicsTotal.Add(1)
			h.s.log.Error("panic in a statement", "connection", c.ConnectionID, "statement", clip(what, 1000), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = panicError(r)
		}
	}()
	return f()
}

func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// prepare plans a statement for its result columns and keeps its parsed form in the session.
func (h *handler) prepare(ctx context.Context, c *mysql.Conn, query string, prepare *mysql.PrepareData) ([]*querypb.Field, error) {
	sqlCtx, err := h.sm.NewContextWithQuery(ctx, c, query)
	if err != nil {
		return nil, err
	}
	sqlCtx, err = sqlCtx.ProcessList.BeginOperation(sqlCtx)
	if err != nil {
		return nil, err
	}
	defer sqlCtx.ProcessList.EndOperation(sqlCtx)
	if err := sql.SessionCommandBegin(sqlCtx.Session); err != nil {
		return nil, err
	}
	defer sql.SessionCommandEnd(sqlCtx.Session)
	own := ownsTransaction(sqlCtx)
	// Planning reads tables inside a transaction; left open it would be the
	// snapshot of the next statement.
	defer func() {
		if own {
			abandon(sqlCtx)
		}
	}()
	w, _ := c.Conn.(*conn)
	if w != nil {
		// The session keeps parsed statements by their text and nobody else takes them out.
		w.forget(sqlCtx.Session.UnprepareQuery)
	}
	node, err := h.e.PrepareQuery(sqlCtx, query)
	if err != nil {
		ast, _, _, _ := h.e.Parser.Parse(sqlCtx, query, false) // its error would be the one at hand
		return nil, inContext(sqlCtx, ast, err)
	}
	if w != nil {
		w.remember(prepare.StatementID, preparedKey(query))
	}
	if returnsOK(sqlCtx, node) {
		return nil, nil
	}
	return fieldsOf(sqlCtx, node.Schema(sqlCtx), nil), nil
}

// preparedKey is the text under which the engine keeps a prepared statement.
func preparedKey(query string) string { return sql.RemoveSpaceAndDelimiter(query, ';') }
