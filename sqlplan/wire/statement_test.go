package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	gms "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

var errConflict = errors.New("conflict")

// withTestFunctions adds FLAKY(n), which fails with a conflict n times, and BOOM(), which panics.
func withTestFunctions(set FunctionSet) FunctionSet {
	var failed atomic.Int64
	set["flaky"] = gms.FunctionN{Name: "flaky", Fn: scalarOf("flaky", 1, 1, types.Int64, func(ctx *gms.Context, args []any) (any, error) {
		n, err := integers(ctx, args)
		if err != nil {
			return nil, err
		}
		if failed.Add(1) <= n[0] {
			return nil, errConflict
		}
		return failed.Swap(0), nil
	})}
	set["boom"] = gms.FunctionN{Name: "boom", Fn: scalarOf("boom", 0, 1, types.Int64, func(*gms.Context, []any) (any, error) {
		panic("assignment to entry in nil map")
	})}
	set["boom_plan"] = gms.FunctionN{Name: "boom_plan", Fn: func(*gms.Context, ...gms.Expression) (gms.Expression, error) {
		panic("while planning")
	}}
	return set
}

func TestReruns(t *testing.T) {
	s := testServer(t, func(o *Options) {
		o.Retryable = func(err error) bool { return errors.Is(err, errConflict) }
		o.MapError = func(err error) error {
			if errors.Is(err, errConflict) {
				return gms.ErrLockDeadlock.New(err.Error())
			}
			return err
		}
	})
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
	exec(t, db, "INSERT INTO t SELECT FLAKY(3)")
	require.Equal(t, "4", table(t, db, "SELECT * FROM t"))
	require.EqualValues(t, 3, s.Metrics.RerunsTotal.Load())
	exec(t, db, "UPDATE t SET id = FLAKY(?) + 10", 2)
	require.Equal(t, "13", table(t, db, "SELECT * FROM t"))

	// inside a transaction of the client's own the error is his
	exec(t, db, "BEGIN")
	_, err := db.Exec("INSERT INTO t SELECT FLAKY(1)")
	var e *driver.MySQLError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1213, e.Number)
	require.Equal(t, "40001", string(e.SQLState[:]))
	table(t, db, "SELECT FLAKY(0)")

	// and after too many attempts
	_, err = db.Exec("INSERT INTO t SELECT FLAKY(1000)")
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1213, e.Number)
}

func TestPanics(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY)")
	exec(t, db, "INSERT INTO t VALUES (1)")
	for _, query := range []string{"SELECT BOOM()", "SELECT BOOM(id) FROM t", "INSERT INTO t SELECT BOOM(id) FROM t", "SELECT BOOM_PLAN()"} {
		_, err := db.Exec(query)
		var e *driver.MySQLError
		require.ErrorAs(t, err, &e, query)
		require.NotContains(t, e.Message, "goroutine")
		require.NotContains(t, e.Message, ".go:")
		_, err = db.Prepare(query)
		if err == nil {
			_, err = db.Query(query+" LIMIT ?", 1)
		}
		require.ErrorAs(t, err, &e, query)
	}
	require.EqualValues(t, 1, s.Metrics.ConnectionsTotal.Load(), "a connection was lost")
}

func TestClientGoesAway(t *testing.T) {
	s := testServer(t, nil)
	open(t, s, "")
	c := dialRaw(t, s)
	c.send(0, append([]byte{3}, "SELECT SLEEP(30)"...))
	require.Eventually(t, func() bool { return s.Metrics.StatementsRunning.Load() == 1 }, time.Second, time.Millisecond)
	c.c.Close()
	require.Eventually(t, func() bool { return s.Metrics.StatementsRunning.Load() == 0 }, 3*time.Second, time.Millisecond)
}

func TestShutdown(t *testing.T) {
	s := testServer(t, func(o *Options) { o.DrainTime = 100 * time.Millisecond })
	db := open(t, s, "")
	failed := make(chan error, 1)
	go func() {
		_, err := db.Exec("SELECT SLEEP(30)")
		failed <- err
	}()
	require.Eventually(t, func() bool { return s.Metrics.StatementsRunning.Load() == 1 }, time.Second, time.Millisecond)
	require.NoError(t, s.Shutdown(context.Background()))
	require.Error(t, <-failed)
	_, err := net.Dial("tcp", s.Addr().String())
	require.Error(t, err)
}

func TestListenRules(t *testing.T) {
	s := testServer(t, nil)
	o := s.o
	o.Listen = s.Addr().String()
	_, err := New(context.Background(), o)
	require.ErrorContains(t, err, "--listen")
	o.Listen = "0.0.0.0:0"
	_, err = New(context.Background(), o)
	require.ErrorContains(t, err, "--password")
}

func TestSocketAndPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	s := testServer(t, func(o *Options) {
		o.Socket, o.Password, o.DataDir = path, "secret", t.TempDir()
	})
	cfg := driver.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = "root", "secret", "unix", path, "d"
	good := openConfig(t, cfg)
	require.Equal(t, "1", table(t, good, "SELECT 1"))
	exec(t, good, "CREATE USER reader IDENTIFIED BY 'r'")
	exec(t, good, "GRANT SELECT ON d.* TO reader")
	exec(t, good, "CREATE TABLE t (id INT PRIMARY KEY)")

	tcp := cfg.Clone()
	tcp.Net, tcp.Addr, tcp.Passwd = "tcp", s.Addr().String(), "wrong"
	var e *driver.MySQLError
	require.ErrorAs(t, openConfig(t, tcp).Ping(), &e)
	require.EqualValues(t, 1045, e.Number)
	require.Equal(t, "28000", string(e.SQLState[:]))

	tcp.User, tcp.Passwd = "reader", "r"
	reader := openConfig(t, tcp)
	require.Equal(t, "", table(t, reader, "SELECT * FROM t"))
	_, err := reader.Exec("INSERT INTO t VALUES (1)")
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1142, e.Number)
}

func TestTooManyConnections(t *testing.T) {
	s := testServer(t, func(o *Options) { o.MaxConnections = 2 })
	dialRaw(t, s)
	db := open(t, s, "")
	require.NoError(t, db.Ping())
	var e *driver.MySQLError
	require.ErrorAs(t, open(t, s, "").Ping(), &e)
	require.EqualValues(t, 1040, e.Number)
	exec(t, db, "SET GLOBAL max_connections = 100")
	require.NoError(t, open(t, s, "").Ping())
}

func TestErrorsAreWarnings(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	_, err := db.Exec("SELECT * FROM missing")
	require.Error(t, err)
	require.Equal(t, "1", table(t, db, "SELECT @@error_count"))
	_, err = db.Exec("SELECT * FROM missing")
	require.Error(t, err)
	require.Equal(t, "Error\t1146\tTable 'd.missing' doesn't exist", table(t, db, "SHOW WARNINGS"))
	require.Equal(t, "1", table(t, db, "SELECT 1"))
	require.Equal(t, "", table(t, db, "SHOW WARNINGS"))
}

// A connection that prepares ever new texts does not keep them all.
func TestPreparedStatementsAreForgotten(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	kept, err := db.Prepare("SELECT 1 + ?")
	require.NoError(t, err)
	for i := range 50 {
		require.Equal(t, fmt.Sprint(i), table(t, db, fmt.Sprintf("SELECT %d + ?;", i), 0))
		require.Equal(t, "2", table(t, db, "SELECT 1 + ?", 1))
	}
	var sum int
	require.NoError(t, kept.QueryRow(2).Scan(&sum))
	require.Equal(t, 3, sum)
	require.NoError(t, s.sm.Iter(func(sess gms.Session) (bool, error) {
		known := 0
		for i := range 50 {
			if _, ok := sess.GetPreparedQuery(fmt.Sprintf("SELECT %d + ?", i)); ok {
				known++
			}
		}
		require.LessOrEqual(t, known, 2)
		return false, nil
	}))
}
