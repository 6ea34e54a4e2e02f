package sqlplan

import (
	"bufio"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/enginetest"
	"github.com/dolthub/go-mysql-server/enginetest/scriptgen/setup"
	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// harness runs the front end's own test suite over a warehouse in memory. The suite is written for the front end's default
// collation and for its wording of syntax errors.
type harness struct {
	t       *testing.T
	setup   []setup.SetupScript
	engine  *Engine
	session *Session
	skips   map[string]bool // queries and names of scripts
}

var (
	_ enginetest.Harness             = (*harness)(nil)
	_ enginetest.ClientHarness       = (*harness)(nil)
	_ enginetest.SkippingHarness     = (*harness)(nil)
	_ enginetest.IndexHarness        = (*harness)(nil)
	_ enginetest.ForeignKeyHarness   = (*harness)(nil)
	_ enginetest.KeylessTableHarness = (*harness)(nil)
	_ enginetest.TransactionHarness  = (*harness)(nil)
)

const skipsFile = "testdata/enginetest-skips.txt"

func newHarness(t *testing.T) *harness {
	if testing.Short() {
		t.Skip("the front end's suite is long")
	}
	h := &harness{t: t, skips: map[string]bool{}}
	f, err := os.Open(skipsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Fatalf("%s: %q has no reason", skipsFile, line)
		}
		h.skips[strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(name)] = true
	}
	return h
}

func (h *harness) SkipQueryTest(query string) bool { return h.skips[query] }

func (h *harness) SupportsNativeIndexCreation() bool { return true }
func (h *harness) SupportsForeignKeys() bool         { return true }
func (h *harness) SupportsKeylessTables() bool       { return true }

func (h *harness) Setup(scripts ...[]setup.SetupScript) {
	h.setup = nil
	for _, s := range scripts {
		h.setup = append(h.setup, s...)
	}
}

func (h *harness) newSession() *Session {
	return h.engine.newSession(enginetest.NewBaseSession())
}

func (h *harness) NewContext() *sql.Context {
	if h.session == nil {
		h.session = h.newSession()
	}
	// Not the engine's: the suite sets the clock of the front end's contexts.
	return sql.NewContext(context.Background(), sql.WithSession(h.session))
}

func (h *harness) NewSession() *sql.Context {
	h.session = h.newSession()
	return h.NewContext()
}

func (h *harness) NewContextWithClient(client sql.Client) *sql.Context {
	if h.engine == nil { // the suite makes contexts before it makes an engine
		if _, err := h.NewEngine(h.t); err != nil {
			h.t.Fatal(err)
		}
	}
	s := h.engine.newSession(sql.NewBaseSessionWithClientServer("address", client, 1))
	return h.engine.NewContext(context.Background(), sql.WithSession(s))
}

// harnessEngine closes its warehouse with it.
type harnessEngine struct {
	*sqle.Engine
	close func() error
}

func (e *harnessEngine) Close() error { return e.close() }

// Query begins a statement; the suite does not tell sessions where a command begins.
func (e *harnessEngine) Query(ctx *sql.Context, query string) (sql.Schema, sql.RowIter, *sql.QueryFlags, error) {
	sessionOf(ctx).stmt.noted = false
	return e.Engine.Query(ctx, query)
}

// QueryWithBindings is Query with the values of parameters.
func (e *harnessEngine) QueryWithBindings(ctx *sql.Context, query string, parsed ast.Statement, bindings map[string]ast.Expr, flags *sql.QueryFlags) (sql.Schema, sql.RowIter, *sql.QueryFlags, error) {
	sessionOf(ctx).stmt.noted = false
	return e.Engine.QueryWithBindings(ctx, query, parsed, bindings, flags)
}

func (h *harness) NewEngine(t *testing.T) (enginetest.QueryEngine, error) {
	ctx := context.Background()
	c, err := catalog.Open(ctx, "data", catalog.Options{FS: vfs.NewMem(), SortKey: SortKey})
	if err != nil {
		return nil, err
	}
	h.engine, err = NewEngine(ctx, c, Options{Collation: sql.Collation_Default, Parser: &dialect.Parser{EngineErrors: true}})
	if err != nil {
		return nil, err
	}
	e := h.engine
	h.session = nil
	scripts := h.setup
	if len(scripts) == 0 {
		scripts = setup.MydbData
	}
	if _, err := enginetest.RunSetupScripts(enginetest.NewContext(h), e.SQL(), scripts, true); err != nil {
		return nil, err
	}
	h.session = nil
	return &harnessEngine{e.SQL(), func() error {
		err := e.Close()
		// Sessions of a script that failed may have a transaction open, so the warehouse may refuse to close; it is in memory.
		_ = c
		return err
	}}, nil
}

func TestEnginetestQueries(t *testing.T)      { enginetest.TestQueries(t, newHarness(t)) }
func TestEnginetestScripts(t *testing.T)      { enginetest.TestScripts(t, newHarness(t)) }
func TestEnginetestPrepared(t *testing.T)     { enginetest.TestScriptsPrepared(t, newHarness(t)) }
func TestEnginetestInsert(t *testing.T)       { enginetest.TestInsertInto(t, newHarness(t)) }
func TestEnginetestUpdate(t *testing.T)       { enginetest.TestUpdate(t, newHarness(t)) }
func TestEnginetestDelete(t *testing.T)       { enginetest.TestDelete(t, newHarness(t)) }
func TestEnginetestReplace(t *testing.T)      { enginetest.TestReplaceInto(t, newHarness(t)) }
func TestEnginetestErrors(t *testing.T)       { enginetest.TestQueryErrors(t, newHarness(t)) }
func TestEnginetestTransactions(t *testing.T) { enginetest.TestTransactionScripts(t, newHarness(t)) }
func TestEnginetestJSON(t *testing.T)         { enginetest.TestJsonScripts(t, newHarness(t), nil) }
func TestEnginetestInfoSchema(t *testing.T)   { enginetest.TestInfoSchema(t, newHarness(t)) }
