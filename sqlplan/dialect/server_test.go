package dialect

import (
	"context"
	gosql "database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
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

func TestPrepared(t *testing.T) {
	r, addr := startServer(t)
	for _, params := range []string{"", "multiStatements=true"} {
		db := open(t, addr, params)
		exec := func(q string, args ...any) {
			t.Helper()
			st, err := db.Prepare(q)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			defer func() { _ = st.Close() }()
			if _, err := st.Exec(args...); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		query := func(q string, args ...any) string {
			t.Helper()
			st, err := db.Prepare(q)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			defer func() { _ = st.Close() }()
			rows, err := st.Query(args...)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			return all(t, rows)
		}
		exec("DROP TABLE IF EXISTS t, h, p")
		exec("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT)")
		exec("INSERT INTO t VALUES (?, ?)", 1, 2)

		// Time travel with parameters, through a client's own PREPARE
		for _, q := range []string{
			"SELECT a, b FROM t TIMESTAMP AS OF ? WHERE a = ?", "SELECT a, b FROM t VERSION AS OF ? x WHERE x.a = ?",
			"SELECT a, b FROM t FOR SYSTEM_TIME AS OF ? WHERE a = ?", "SELECT a, b FROM t AS OF ? WHERE a = ?",
		} {
			r.asOf = nil
			if got := query(q, "2026-11-30 09:00:00", 1); got != "1,2" {
				t.Errorf("%s: %s", q, got)
			}
			if got, want := fmt.Sprint(r.asOf), "["+AsOfUnbound+" 2026-11-30 09:00:00]"; got != want {
				t.Errorf("%s: times %s, want %s", q, got, want)
			}
		}
		r.asOf = nil
		if got := query("SELECT x.a, y.b FROM t TIMESTAMP AS OF ? x JOIN t TIMESTAMP AS OF ? y ON x.a = y.a", "2026-11-29", int64(20261130090000000)); got != "1,2" {
			t.Errorf("two times: %s", got)
		}
		if got, want := fmt.Sprint(r.asOf[2:]), "[2026-11-29 20261130090000000]"; got != want {
			t.Errorf("two times: %s, want %s", got, want)
		}

		r.creates = nil
		exec("CREATE TABLE h (id INT, s STRING) USING hudi TBLPROPERTIES (primaryKey = 'id')")
		if len(r.creates) != 1 || r.creates[0].Options.Marshal() != `{"key":["id"]}` {
			t.Errorf("USING hudi: %+v", r.creates)
		}
		exec("CREATE TABLE p AS (WITH c AS (SELECT a FROM t WHERE a = ?) SELECT * FROM c)", 1)
		if got := query("SELECT * FROM p"); got != "1" {
			t.Errorf("CREATE TABLE AS: %s", got)
		}
		if got := query("CALL run_compaction(op => ?, table => CONCAT(?, 'x'))", "run", "t"); got != "map[op:run table:tx]" {
			t.Errorf("CALL: %s", got)
		}
		if got := query("SELECT a, SUM(b) AS s FROM t WHERE b >= ? GROUP BY a WITH ROLLUP", 0); got != "1,2;NULL,2" {
			t.Errorf("ROLLUP: %s", got)
		}
		// a text that begins with :v is no parameter
		if got := query("SELECT ':v1', a FROM t WHERE a = ?", 1); got != ":v1,1" {
			t.Errorf("text :v1: %s", got)
		}
		exec("DROP VIEW IF EXISTS w")
		exec("CREATE VIEW w AS ((SELECT a FROM t TIMESTAMP AS OF '2026-11-30'))")
		if got := query("SELECT * FROM w WHERE a = ?", 1); got != "1" {
			t.Errorf("view: %s", got)
		}
		for q, want := range map[string]uint16{
			"SELEC ?":                               1064,
			"CREATE TABLE x (a INT) USING delta":    1235,
			"ALTER TABLE t PARTITION BY HASH (a)":   1235,
			"ALTER TABLE t ENGINE_ATTRIBUTE='{]'":   3980,
			"SELECT * FROM t TIMESTAMP AS OF ? ? ?": 1064,
		} {
			if _, err := db.Prepare(q); code(err) != want {
				t.Errorf("%s: %v", q, err)
			}
		}
		if got := query("SELECT b FROM t WHERE a = ?", 1); got != "2" {
			t.Errorf("the connection is of no use behind an error: %s", got)
		}
	}
}

// all writes a result as text: rows with semicolons, columns with commas between.
func all(t testing.TB, rows *gosql.Rows) string {
	t.Helper()
	defer func() { _ = rows.Close() }()
	cols, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rows.Next() {
		vals, refs := make([]gosql.NullString, len(cols)), make([]any, len(cols))
		for i := range vals {
			refs[i] = &vals[i]
		}
		if err := rows.Scan(refs...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(cols))
		for i, v := range vals {
			if texts[i] = v.String; !v.Valid {
				texts[i] = "NULL"
			}
		}
		out = append(out, strings.Join(texts, ","))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, ";")
}

// Results of the mended statements, as MySQL and MariaDB give them.
func TestResults(t *testing.T) {
	_, addr := startServer(t)
	db := open(t, addr, "multiStatements=true")
	for _, c := range []struct{ query, want string }{
		{"CREATE TABLE t (a INT PRIMARY KEY, b INT, c VARCHAR(5)); INSERT INTO t VALUES (1,1,'x'),(2,1,'y'),(3,2,'x'),(4,NULL,'x')", ""},
		{
			"SELECT b, c, SUM(a), COUNT(*) FROM t GROUP BY b, c WITH ROLLUP",
			"NULL,x,4,1;NULL,NULL,4,1;1,x,1,1;1,y,2,1;1,NULL,3,2;2,x,3,1;2,NULL,3,1;NULL,NULL,10,4",
		},
		{"SELECT c, SUM(a) s, GROUPING(c) g FROM t GROUP BY c WITH ROLLUP ORDER BY s", "y,2,0;x,8,0;NULL,10,1"},
		{"SELECT IFNULL(c, 'all') n, SUM(a) FROM t GROUP BY c WITH ROLLUP HAVING SUM(a) > 5", "x,8;all,10"},
		{"SELECT c, MAX(c) FROM t GROUP BY c WITH ROLLUP LIMIT 2", "x,x;y,y"},
		{"SELECT c FROM t WHERE a > 100 GROUP BY c WITH ROLLUP", ""},
		{"SELECT c FROM t GROUP BY 1 WITH ROLLUP", "x;y;NULL"},
		{"SELECT 5--1, 7 /*! - 2 */, 1 /*!80045 + 1 */, /*M! 9, */ 3", "6,5,1,3"},
		{"SELECT '/*! x */', '--', '# no', \"it's /*M! */\"", "/*! x */,--,# no,it's /*M! */"},
		{"DO 1, SLEEP(0)", ""},
		{"SHOW COUNT(*) ERRORS", "0"},
		{"SHOW MASTER LOGS", ""},
		{"CREATE TABLE s (x INT, y INT); INSERT INTO s VALUES (1, 50), (9, 90)", ""},
		{"CREATE TABLE u (a INT PRIMARY KEY, b INT); INSERT INTO u VALUES (1, 5)", ""},
		{"INSERT INTO u (b, a) SELECT y, x FROM s ON DUPLICATE KEY UPDATE b = b + VALUES(b)", ""},
		{"SELECT * FROM u ORDER BY a", "1,55;9,90"},
		{"INSERT INTO u SELECT x, y FROM s WHERE x = 1 ON DUPLICATE KEY UPDATE b = VALUES(b)", ""},
		{"SELECT * FROM u ORDER BY a", "1,50;9,90"},
		{"INSERT INTO u (a, b) SELECT x, SUM(y) FROM s GROUP BY x UNION ALL SELECT 3, 4 ON DUPLICATE KEY UPDATE b = VALUES(b) + 1", ""},
		{"SELECT * FROM u ORDER BY a", "1,51;3,4;9,91"},
		{"SELECT 1; CALL run_compaction(op => 'a;b')", "1"},
		{"CREATE TABLE k (größe INT); INSERT INTO k VALUES (7)", ""},
		{"SELECT größe FROM k", "7"},
		{"CREATE TABLE d.shared (exclusive INT); INSERT INTO d.shared VALUES (8)", ""},
		{"ALTER TABLE d.shared ADD w INT, LOCK = SHARED; SELECT exclusive FROM d.shared", "8"},
		{"SET sql_mode = 'ANSI_QUOTES,NO_AUTO_CREATE_USER,ORACLE'", ""},
		{"SELECT \"a\" FROM t TIMESTAMP AS OF '2026-01-01' WHERE \"a\" = 1", "1"},
	} {
		rows, err := db.Query(c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got := all(t, rows); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.query, got, c.want)
		}
	}
}
