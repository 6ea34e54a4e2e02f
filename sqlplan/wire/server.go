package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // named time zones work without files of the host

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/mysql_db"
	"github.com/dolthub/vitess/go/mysql"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	"github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
)

// protocolVersion is the MySQL release whose behaviour clients are told to expect.
const protocolVersion = "8.0.44"

// Options says what a Server serves and where. Catalog is required, or Engine and NewSession in its place.
type Options struct {
	Catalog    *catalog.Catalog // stays the caller's to close, after Shutdown
	Engine     *sqle.Engine
	NewSession server.SessionBuilder
	NewContext sql.ContextFactory // default sql.NewContext

	Listen   string // host:port; default 127.0.0.1:3306
	Socket   string // path of a unix socket beside it; default none
	User     string // the account with all rights; default root
	Password string // its password; empty is accepted on loopback addresses only
	DataDir  string // the data folder: secure_file_priv is "files" below it; default: server-side files are refused
	Version  string // lakesql's own version; default "dev"

	MaxConnections int           // default 500; the value of max_connections at the start
	Reruns         int           // how often a conflicting statement is run again, some seconds in all; default 200
	DrainTime      time.Duration // how long Shutdown waits before it cancels running statements; default 5s
	MemoryLimit    int64         // bytes on the heap at which the statement that takes most is ended; default none

	// Query plans and starts a statement; default Engine.QueryWithBindings.
	Query func(ctx *sql.Context, query string, stmt sqlparser.Statement, binds map[string]sqlparser.Expr, flags *sql.QueryFlags) (sql.Schema, sql.RowIter, *sql.QueryFlags, error)
	// Short looks for the short way of a statement; nil, and an answer of nil: there is none.
	Short func(ctx *sql.Context, text string, prepared bool, params map[string]*querypb.BindVariable) *sqlplan.Short
	// Retryable tells the errors after which an autocommit statement is run again.
	Retryable func(error) bool
	// Replans tells the errors after which a statement is planned and run again since a definition changed under its plan: an autocommit
	// one (own), or one that has written nothing, in its transaction.
	Replans func(err error, own bool) bool
	// MapError turns errors of the layers below into *mysql.SQLError; others it returns as they are.
	MapError func(error) error
	// WrapListener stands between the sockets and the protocol, for packets that the front end cannot take.
	WrapListener func(net.Listener) net.Listener
	// Accounts keeps users and grants over restarts. Nil: they live as long as the server.
	Accounts Accounts

	Logger *slog.Logger // nil discards
}

// Accounts stores the accounts of CREATE USER and GRANT as one opaque value.
type Accounts interface {
	Load(ctx context.Context) ([]byte, error) // nil: nothing stored yet
	Save(ctx context.Context, b []byte) error
}

// Metrics counts what the server did since its start.
type Metrics struct {
	ConnectionsTotal  atomic.Int64
	ConnectionsOpen   atomic.Int64
	StatementsTotal   atomic.Int64
	StatementsRunning atomic.Int64
	ErrorsTotal       atomic.Int64
	RerunsTotal       atomic.Int64 // statements run again after a conflict, or since a definition changed under their plan
	PanicsTotal       atomic.Int64
	RowsSentTotal     atomic.Int64
	LoadRowsTotal     atomic.Int64 // rows read by LOAD DATA
	HeapBytes         atomic.Int64 // on the heap, when it was looked at last; 0 without a limit
	MemoryEndedTotal  atomic.Int64 // statements that were ended for want of memory
	DirectTotal       atomic.Int64 // LOAD DATA and INSERT … VALUES whose values went around the front end's rows
}

// Server answers MySQL clients.
type Server struct {
	Metrics Metrics

	o   Options
	log *slog.Logger
	l   *listener
	srv *server.Server
	sm  *server.SessionManager

	engine   *sqlplan.Engine // nil: Options.Engine is the caller's
	mu       sync.Mutex
	conns    map[uint32]*mysql.Conn // guarded by mu
	running  map[uint64]*run        // the running statements, guarded by mu
	nextRun  uint64                 // guarded by mu
	idle     *sync.Cond             // on mu: running became empty
	stopping bool                   // guarded by mu
	stopped  chan struct{}
	guards   sync.WaitGroup // goroutines that end when stopped is closed
}

// New opens the sockets of o. The server answers after Serve is called.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.User == "" {
		o.User = "root"
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if err := checkAddress(&o); err != nil {
		return nil, err
	}
	var engine *sqlplan.Engine
	if o.Catalog != nil {
		var err error
		if o, engine, err = openEngine(ctx, o); err != nil {
			return nil, fmt.Errorf("opening the SQL engine: %w", err)
		}
	}
	s, err := newServer(ctx, o)
	if err != nil {
		if engine != nil {
			err = errors.Join(err, engine.Close())
		}
		return nil, err
	}
	if s.engine = engine; engine != nil {
		engine.AddStatus(s.Status)
	}
	return s, nil
}

// checkAddress refuses an address that anybody could reach without a password.
func checkAddress(o *Options) error {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:3306"
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("--listen %q is not HOST:PORT: %w", o.Listen, err)
	}
	if o.Password == "" && !loopback(host) {
		return fmt.Errorf("--listen %s can be reached from other hosts: set --password", o.Listen)
	}
	return nil
}

func newServer(ctx context.Context, o Options) (*Server, error) {
	if o.Engine == nil || o.NewSession == nil {
		return nil, errors.New("wire: a catalog, or an engine and a session builder, are needed")
	}
	o = withDefaults(o)
	s := &Server{o: o, log: o.Logger, conns: map[uint32]*mysql.Conn{}, running: map[uint64]*run{}, stopped: make(chan struct{})}
	s.idle = sync.NewCond(&s.mu)
	quietFrontEnd(s.log)
	if err := setVariables(o); err != nil {
		return nil, fmt.Errorf("setting system variables: %w", err)
	}
	if err := s.openAccounts(ctx); err != nil {
		return nil, fmt.Errorf("opening accounts: %w", err)
	}
	installLoadData(o.Engine, &s.Metrics)
	var err error
	s.l, err = listen(ctx, o.Listen, o.Socket)
	if err != nil {
		return nil, err
	}
	var nl net.Listener = s.l
	if o.WrapListener != nil {
		nl = o.WrapListener(nl)
	}
	cfg := server.Config{
		Listener: watchedListener{nl, s.full},
		Address:  s.l.Addr().String(),
		Version:  o.version(),
		// The watcher of the front end reads the socket of an open cursor together
		// with the command loop and both hang; statement.go has its own.
		DisableConnectionWatcher: true,
		Options: []server.Option{func(e *sqle.Engine, sm *server.SessionManager, h mysql.Handler) (*sqle.Engine, *server.SessionManager, mysql.Handler) {
			s.sm = sm
			return e, sm, &handler{Handler: h, s: s, e: e, sm: sm}
		}},
	}
	s.srv, err = server.NewServer(cfg, o.Engine, o.NewContext, o.NewSession, nil)
	if err != nil {
		s.l.Close()
		return nil, fmt.Errorf("starting the protocol: %w", err)
	}
	if o.MemoryLimit > 0 {
		s.guards.Add(1)
		go func() {
			defer s.guards.Done()
			s.guardMemory(s.stopped)
		}()
	}
	return s, nil
}

func withDefaults(o Options) Options {
	if o.NewContext == nil {
		o.NewContext = sql.NewContext
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 500
	}
	if o.Reruns == 0 {
		o.Reruns = 200
	}
	if o.DrainTime == 0 {
		o.DrainTime = 5 * time.Second
	}
	if o.Retryable == nil {
		o.Retryable = func(error) bool { return false }
	}
	if o.Query == nil {
		o.Query = o.Engine.QueryWithBindings
	}
	if o.Replans == nil {
		o.Replans = func(error, bool) bool { return false }
	}
	if o.MapError == nil {
		o.MapError = func(err error) error { return err }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) version() string { return ServerVersion(o.Version) }

// ServerVersion is what VERSION() and the handshake say for lakesql's version v.
func ServerVersion(v string) string { return protocolVersion + "-lakesql-" + v }

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Addr is the TCP address that clients connect to.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Serve answers clients until Shutdown is called.
func (s *Server) Serve() error {
	s.log.Info("ready", "listen", s.Addr().String(), "socket", s.o.Socket, "version", s.o.version())
	s.srv.Listener.Accept()
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	if !stopping {
		return errors.New("wire: the listener ended by itself")
	}
	<-s.stopped
	return nil
}

// errShutdown is the cause of statements that a stopping server cancels.
var errShutdown = mysql.NewSQLError(mysql.ERServerShutdown, "08S01", "Server shutdown in progress")

// Shutdown takes no new connection, lets running statements end for
// Options.DrainTime (or until ctx ends), then cancels them, and closes every
// connection. It reports an error when a statement did not stop.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		<-s.stopped
		return nil
	}
	s.stopping = true
	s.mu.Unlock()
	defer s.guards.Wait()
	defer close(s.stopped)
	s.srv.Close()
	s.l.Close()

	drained := make(chan struct{})
	go func() {
		s.mu.Lock()
		for len(s.running) > 0 {
			s.idle.Wait()
		}
		s.mu.Unlock()
		close(drained)
	}()
	drain := time.NewTimer(s.o.DrainTime)
	defer drain.Stop()
	select {
	case <-drained:
	case <-drain.C:
		s.cancelRunning()
	case <-ctx.Done():
		s.cancelRunning()
	}
	var err error
	cancelled := time.NewTimer(s.o.DrainTime)
	defer cancelled.Stop()
	select {
	case <-drained:
	case <-cancelled.C:
		s.mu.Lock()
		err = fmt.Errorf("stopping the server: %d statements did not end", len(s.running))
		s.mu.Unlock()
	}
	s.mu.Lock()
	conns := make([]*mysql.Conn, 0, len(s.conns))
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	closed := make(chan struct{})
	go func() {
		s.sm.WaitForClosedConnections()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(s.o.DrainTime):
		err = errors.Join(err, errors.New("stopping the server: connections did not close"))
	}
	if s.engine != nil {
		err = errors.Join(err, s.engine.Close())
	}
	return err
}

func (s *Server) cancelRunning() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		r.cancel(errShutdown)
	}
}

// full tells whether there are as many connections as max_connections allows.
func (s *Server) full() bool {
	limit := int64(s.o.MaxConnections)
	if _, v, ok := sql.SystemVariables.GetGlobal("max_connections"); ok {
		if n, ok := v.(int64); ok {
			limit = n
		}
	}
	return s.Metrics.ConnectionsOpen.Load() >= limit
}

// enter counts a running statement; it fails when the server stops.
func (s *Server) enter(text string, cancel func(error)) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errShutdown
	}
	s.nextRun++
	id := s.nextRun
	s.running[id] = &run{cancel: cancel, began: time.Now(), heap: s.Metrics.HeapBytes.Load(), load: isLoad(text)}
	s.Metrics.StatementsTotal.Add(1)
	s.Metrics.StatementsRunning.Add(1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
		s.Metrics.StatementsRunning.Add(-1)
		if len(s.running) == 0 {
			s.idle.Broadcast()
		}
	}, nil
}

// openAccounts loads the stored users and makes sure that the configured one exists with the configured password.
func (s *Server) openAccounts(ctx context.Context) error {
	db := s.o.Engine.Analyzer.Catalog.MySQLDb
	if s.o.Accounts == nil && db.Enabled() {
		return nil // the engine keeps its own
	}
	sqlCtx := sql.NewEmptyContext()
	if s.o.Accounts != nil {
		b, err := s.o.Accounts.Load(ctx)
		if err != nil {
			return err
		}
		if len(b) > 0 {
			if err := db.LoadData(sqlCtx, b); err != nil {
				return err
			}
		}
		db.SetPersister(accountsPersister{s.o.Accounts})
	} else {
		db.SetPersister(&mysql_db.NoopPersister{})
	}
	db.SetEnabled(true)
	ed := db.Editor()
	defer ed.Close()
	db.AddEphemeralSuperUser(ed, s.o.User, "%", s.o.Password)
	return nil
}

type accountsPersister struct{ a Accounts }

func (p accountsPersister) Persist(ctx *sql.Context, b []byte) error { return p.a.Save(ctx, b) }

// filesDir is where server-side LOAD DATA and INTO OUTFILE may read and write.
func (o Options) filesDir() string {
	if o.DataDir == "" {
		return ""
	}
	abs, err := filepath.Abs(o.DataDir)
	if err != nil {
		abs = o.DataDir
	}
	return filepath.Join(abs, "files")
}
