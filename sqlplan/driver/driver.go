// Package driver is the database/sql driver "lakesql": it opens a warehouse in this process, without a server.
//
//	db, err := sql.Open("lakesql", "./lakesql-data?database=shop")
//
// It owns the warehouses that are open in the process: every sql.DB on one data folder shares one, and the last Close ends
// it. Parameters after a question mark: database (the current database of new connections), loc (time zone of time.Time
// values and of the session, default UTC), commit_mode (buffered or instant), accept_lost_state (true). Any other is an
// error.
//
// Invariants:
//   - a warehouse is open exactly as long as a sql.DB that used it is;
//   - a single statement outside of a transaction that conflicts with another runs again by itself, so callers meet error
//     1213 in transactions only;
//   - errors are *mysql.SQLError with MySQL's numbers, or the error of the caller's own context.
package driver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/catalog/ingest"
	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// Name is the name under which the driver is registered.
const Name = "lakesql"

func init() { sql.Register(Name, &Driver{}) }

// Driver opens warehouses. Its zero value is ready.
type Driver struct{}

var _ driver.DriverContext = (*Driver)(nil)

// Open opens one connection. database/sql uses OpenConnector instead.
func (d *Driver) Open(name string) (driver.Conn, error) {
	c, err := d.OpenConnector(name)
	if err != nil {
		return nil, err
	}
	conn, err := c.Connect(context.Background())
	if err != nil {
		return nil, errors.Join(err, c.(io.Closer).Close())
	}
	conn.(*connection).owner = c.(io.Closer)
	return conn, nil
}

// OpenConnector reads a data source name. The warehouse is opened by the first connection.
func (d *Driver) OpenConnector(name string) (driver.Connector, error) {
	c, err := parseName(name)
	if err != nil {
		return nil, err
	}
	c.driver = d
	return c, nil
}

// connector makes the connections of one sql.DB.
type connector struct {
	driver     *Driver
	dir        string
	database   string
	loc        *time.Location
	commitMode string
	acceptLost bool

	mu     sync.Mutex
	shared *warehouse // nil before the first connection; guarded by mu
	closed bool       // guarded by mu
}

var (
	_ driver.Connector = (*connector)(nil)
	_ io.Closer        = (*connector)(nil)
)

func parseName(name string) (*connector, error) {
	dir, params, _ := strings.Cut(name, "?")
	if dir == "" {
		return nil, errors.New("lakesql: the data source name is DIR or DIR?option=value&…: it names no folder")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("lakesql: data folder %s: %w", dir, err)
	}
	// Two names of one folder must share its warehouse.
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	values, err := url.ParseQuery(params)
	if err != nil {
		return nil, fmt.Errorf("lakesql: options %q: %w", params, err)
	}
	c := &connector{dir: abs, loc: time.UTC}
	for key := range values {
		v := values.Get(key)
		switch key {
		case "database":
			c.database = v
		case "loc":
			if c.loc, err = time.LoadLocation(v); err != nil {
				return nil, fmt.Errorf("lakesql: option loc: %w", err)
			}
		case "commit_mode":
			if v != "buffered" && v != "instant" {
				return nil, fmt.Errorf("lakesql: option commit_mode is buffered or instant, not %q", v)
			}
			c.commitMode = v
		case "accept_lost_state":
			c.acceptLost = v == "true" || v == "1"
		default:
			return nil, fmt.Errorf("lakesql: unknown option %q", key)
		}
	}
	return c, nil
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	w, err := c.warehouse(ctx)
	if err != nil {
		return nil, err
	}
	return newConnection(ctx, c, w)
}

// warehouse gives the warehouse of the folder and holds it until Close.
func (c *connector) warehouse(ctx context.Context) (*warehouse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, driver.ErrBadConn
	}
	if c.shared == nil {
		w, err := acquire(ctx, c.dir, c.acceptLost)
		if err != nil {
			return nil, err
		}
		c.shared = w
	}
	return c.shared, nil
}

// Close is called by sql.DB.Close, after the connections were closed.
func (c *connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.shared == nil {
		return nil
	}
	w := c.shared
	c.shared = nil
	return w.release()
}

// warehouse is one data folder that is open in this process.
type warehouse struct {
	dir     string
	engine  *sqlplan.Engine
	catalog *catalog.Catalog
	bins    *ingest.Runner
	users   int // guarded by open.mu
}

// open has the warehouses of the process by folder. The lock is held while one is opened or closed, so that nobody opens a
// folder that another sql.DB is just leaving.
var open = struct {
	mu         sync.Mutex
	warehouses map[string]*warehouse
}{warehouses: map[string]*warehouse{}}

func acquire(ctx context.Context, dir string, acceptLost bool) (_ *warehouse, err error) {
	open.mu.Lock()
	defer open.mu.Unlock()
	if w := open.warehouses[dir]; w != nil {
		w.users++
		return w, nil
	}
	// The warehouse outlives the context of the connection that opens it.
	ctx = context.WithoutCancel(ctx)
	log := slog.New(slog.DiscardHandler)
	c, err := catalog.Open(ctx, dir, catalog.Options{SortKey: sqlplan.SortKey, AcceptLostState: acceptLost, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("lakesql: opening %s: %w", dir, err)
	}
	e, err := sqlplan.NewEngine(ctx, c, sqlplan.Options{Function: wire.Functions(wire.ServerVersion("embedded")).Function})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lakesql: opening %s: %w", dir, err), c.Close(ctx))
	}
	w := &warehouse{dir: dir, engine: e, catalog: c, bins: ingest.Start(c, ingest.Options{Logger: log}), users: 1}
	open.warehouses[dir] = w
	return w, nil
}

// release ends the use of a warehouse; the last one flushes and closes it.
func (w *warehouse) release() error {
	open.mu.Lock()
	defer open.mu.Unlock()
	if w.users--; w.users > 0 {
		return nil
	}
	delete(open.warehouses, w.dir)
	w.bins.Stop()
	if err := errors.Join(w.engine.Close(), w.catalog.Close(context.Background())); err != nil {
		return fmt.Errorf("lakesql: closing %s: %w", w.dir, err)
	}
	return nil
}
