package wire

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	gms "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// withFunctions is a provider that asks this package's functions first.
type withFunctions struct {
	*memory.DbProvider
	set FunctionSet
}

func (p withFunctions) Function(ctx *gms.Context, schema, name string) (gms.Function, bool) {
	return p.set.Function(name)
}

// testServer serves the front end's memory tables, database "d".
func testServer(t testing.TB, change func(*Options)) *Server {
	t.Helper()
	pro := memory.NewDBProvider(memory.NewDatabase("d"))
	e := sqle.New(analyzer.NewBuilder(withFunctions{pro, withTestFunctions(Functions(ServerVersion("dev")))}).Build(), nil)
	o := Options{
		Engine:     e,
		Listen:     "127.0.0.1:0",
		NewSession: memory.NewSessionBuilder(pro),
		DrainTime:  2 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	s, err := New(context.Background(), o)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	return s
}

// open connects to s; params are the driver's.
func open(t testing.TB, s *Server, params string) *sql.DB {
	t.Helper()
	return openDatabase(t, s, "d?"+params)
}

func openDatabase(t testing.TB, s *Server, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/%s", s.Addr(), name))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func openConfig(t testing.TB, cfg *driver.Config) *sql.DB {
	c, err := driver.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any,
) sql.Result {
	t.Helper()
	r, err := db.ExecContext(context.Background(), query, args...)
	require.NoError(t, err, query)
	return r
}

// table answers a query as text: rows by line, columns by tab, NULL as \N.
func table(t testing.TB, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, query string, args ...any,
) string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), query, args...)
	require.NoError(t, err, query)
	defer rows.Close()
	cols, err := rows.Columns()
	require.NoError(t, err)
	var lines []string
	for rows.Next() {
		cells := make([]any, len(cols))
		for i := range cells {
			cells[i] = new(sql.RawBytes)
		}
		require.NoError(t, rows.Scan(cells...))
		var line []string
		for _, c := range cells {
			b := *c.(*sql.RawBytes)
			if b == nil {
				line = append(line, `\N`)
			} else {
				line = append(line, string(b))
			}
		}
		lines = append(lines, strings.Join(line, "\t"))
	}
	require.NoError(t, rows.Err(), query)
	return strings.Join(lines, "\n")
}

func TestServerAnswers(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	exec(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20))")
	exec(t, db, "INSERT INTO t VALUES (1,'a'),(2,NULL)")
	require.Equal(t, "1\ta\n2\t\\N", table(t, db, "SELECT * FROM t ORDER BY id"))
	require.Equal(t, "2\t\\N", table(t, db, "SELECT * FROM t WHERE id = ?", 2))
	require.Equal(t, ServerVersion("dev")+"\tlakesql", table(t, db, "SELECT @@version, @@version_comment"))
	exec(t, db, "FLUSH PRIVILEGES")
	require.Equal(t, "1", table(t, db, "SELECT 1"))
	require.Equal(t, "utf8mb4_0900_ai_ci\tutf8mb4_0900_ai_ci", table(t, db, "SELECT @@collation_connection, @@collation_server"))
	require.Equal(t, "1", table(t, db, "SELECT 'a' = 'A'"))
}
