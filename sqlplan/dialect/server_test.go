package dialect

import (
	"context"
	gosql "database/sql"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/go-sql-driver/mysql"
)

// recorder is the engine's memory database that records what CREATE and ALTER TABLE hand it.
type recorder struct {
	*memory.Database
	creates []Carrier
	asOf    []any
}

func (r *recorder) CreateTable(ctx *sql.Context, name string, sch sql.PrimaryKeySchema, coll sql.CollationID, comment string) error {
	c, clean, ok, err := TakeCarrier(sch)
	if err != nil {
		return err
	}
	if ok {
		r.creates = append(r.creates, c)
	}
	if c.Attach {
		clean = sql.NewPrimaryKeySchema(sql.Schema{{Name: "attached", Type: types.Int64, Source: name, Nullable: true}})
	}
	return r.Database.CreateTable(ctx, name, clean, coll, comment)
}

func (r *recorder) CreateIndexedTable(ctx *sql.Context, name string, sch sql.PrimaryKeySchema, _ sql.IndexDef, coll sql.CollationID, comment string) error {
	return r.CreateTable(ctx, name, sch, coll, comment)
}

func (r *recorder) GetTableInsensitiveAsOf(ctx *sql.Context, name string, asOf any) (sql.Table, bool, error) {
	r.asOf = append(r.asOf, asOf)
	return r.Database.GetTableInsensitive(ctx, name)
}

func (r *recorder) GetTableNamesAsOf(ctx *sql.Context, asOf any) ([]string, error) {
	return r.Database.GetTableNames(ctx)
}

type provider struct {
	*memory.DbProvider
	r *recorder
}

func (p *provider) Database(ctx *sql.Context, name string) (sql.Database, error) {
	if name == "d" {
		return p.r, nil
	}
	return p.DbProvider.Database(ctx, name)
}

func (p *provider) ExternalStoredProcedure(ctx *sql.Context, name string, n int) (*sql.ExternalStoredProcedureDetails, error) {
	if name == "run_compaction" || name == "lakesql_check_table" {
		return &sql.ExternalStoredProcedureDetails{
			Name: name, Schema: sql.Schema{{Name: "args", Type: types.LongText, Nullable: true}},
			Function: func(ctx *sql.Context, args ...string) (sql.RowIter, error) {
				got, err := Arguments(name, []Parameter{{Name: "op"}, {Name: "table"}, {Name: "options"}}, args)
				return sql.RowsToRowIter(sql.Row{fmt.Sprint(got)}), err
			},
		}, nil
	}
	return nil, nil
}

func (p *provider) ExternalStoredProcedures(*sql.Context, string) ([]sql.ExternalStoredProcedureDetails, error) {
	return nil, nil
}

func (p *provider) WithTableFunctions(...sql.TableFunction) (sql.TableFunctionProvider, error) {
	return p, nil
}

func startServer(t testing.TB) (*recorder, string) {
	t.Helper()
	db := memory.NewDatabase("d")
	r := &recorder{Database: db}
	p := &provider{DbProvider: memory.NewDBProvider(db), r: r}
	parser := &Parser{TableColumns: func(context.Context, string, string) ([]string, bool) { return []string{"a", "b"}, true }}
	a := analyzer.NewBuilder(p).AddOverrides(sql.EngineOverrides{Builder: sql.BuilderOverrides{Parser: parser}}).Build()
	e := sqle.New(a, &sqle.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(server.Config{Protocol: "tcp", Listener: Listener(l), DisableConnectionWatcher: true}, e, sql.NewContext,
		memory.NewSessionBuilder(p.DbProvider), nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Start() }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return r, l.Addr().String()
}

func open(t testing.TB, addr, params string) *gosql.DB {
	t.Helper()
	db, err := gosql.Open("mysql", "root@tcp("+addr+")/d?"+params)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		t.Fatal(err)
	}
	return db
}

func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}
