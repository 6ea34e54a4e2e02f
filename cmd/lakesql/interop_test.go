package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// oracle is a running `oracle.py serve`: Spark with Hudi, and hudi-rs, behind JSON lines. Starting Spark takes
// longer than most reads, so a test run shares one process (see startOracle).
type oracle struct {
	mu  sync.Mutex // one request at a time
	in  io.WriteCloser
	out *bufio.Reader
	log *output
}

// readRequest asks an engine for a table's rows, without meta columns unless Meta is set.
type readRequest struct {
	Op            string            `json:"op"`
	Engine        string            `json:"engine"` // "spark" or "hudi-rs"
	Table         string            `json:"table"`  // the table's folder
	AsOf          string            `json:"as_of,omitempty"`
	ReadOptimized bool              `json:"read_optimized,omitempty"`
	Incremental   []string          `json:"incremental,omitempty"` // from, to: instants, the first excluded
	Meta          bool              `json:"meta,omitempty"`
	UseMetadata   bool              `json:"use_metadata,omitempty"` // let Spark use the metadata table
	Options       map[string]string `json:"options,omitempty"`
}

// writeRequest has Spark write rows. Schema and the fields after it are for a new table only.
type writeRequest struct {
	Op           string            `json:"op"`
	Table        string            `json:"table"`
	Operation    string            `json:"operation,omitempty"` // upsert (default), insert, bulk_insert, delete, …
	Rows         []map[string]any  `json:"rows"`
	Options      map[string]string `json:"options,omitempty"`
	Schema       string            `json:"schema,omitempty"` // Spark's DDL: "id int, name string"
	Key          string            `json:"key,omitempty"`
	Partition    string            `json:"partition,omitempty"`
	Ordering     string            `json:"ordering,omitempty"`
	Type         string            `json:"type,omitempty"` // cow (default) or mor
	TableVersion int               `json:"table_version,omitempty"`
	HiveStyle    bool              `json:"hive_style,omitempty"`
}

// columnSum is what the checksum operation says about a column: how many values it has, and the sum of their CRC-32s.
type columnSum [2]json.Number

type oracleAnswer struct {
	OK      bool                 `json:"ok"`
	Error   string               `json:"error"`
	Rows    []map[string]any     `json:"rows"`
	Count   int64                `json:"count"`
	Columns map[string]columnSum `json:"columns"`
}

var shared struct {
	sync.Mutex
	*oracle
}

// startOracle returns the oracle of this test run. Tests that use it run by `make interop`, which installs the
// engines and sets LAKESQL_INTEROP.
func startOracle(t testing.TB) *oracle {
	t.Helper()
	if os.Getenv("LAKESQL_INTEROP") == "" {
		t.Skip("needs other engines: run `make interop`")
	}
	cache := os.Getenv("LAKESQL_ORACLE_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		cache = filepath.Join(home, ".cache", "lakesql-oracle")
	}
	python := filepath.Join(cache, "venv", "bin", "python")
	_, err := os.Stat(python)
	need(t, err == nil, "testdata/oracle/setup.sh has not installed the engines")
	shared.Lock()
	defer shared.Unlock()
	if shared.oracle != nil {
		return shared.oracle
	}
	script, err := filepath.Abs("../../testdata/oracle/oracle.py")
	require.NoError(t, err)
	o := &oracle{log: &output{}}
	cmd := exec.Command(python, script, "serve") // ends with this process: its standard input closes then
	cmd.Stderr = o.log
	o.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	o.out = bufio.NewReaderSize(stdout, 1<<20)
	require.NoError(t, cmd.Start())
	shared.oracle = o
	return o
}

// ask sends one request and returns the answer; numbers stay json.Number, so that no digit is lost.
func (o *oracle) ask(t testing.TB, request any) oracleAnswer {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := json.Marshal(request)
	require.NoError(t, err)
	_, err = o.in.Write(append(b, '\n'))
	require.NoError(t, err, "%s", tail(o.log.String(), 4000))
	line, err := o.out.ReadBytes('\n')
	require.NoError(t, err, "%s", tail(o.log.String(), 4000))
	var a oracleAnswer
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	require.NoError(t, d.Decode(&a))
	return a
}

// read returns a table's rows, in a fixed order, as the engine sees them.
func (o *oracle) read(t testing.TB, r readRequest) []map[string]any {
	t.Helper()
	r.Op = "read"
	a := o.ask(t, r)
	require.True(t, a.OK, "%s reads %s: %s", r.Engine, r.Table, a.Error)
	return a.Rows
}

// write has Spark write to a table, which it creates if the request has a schema.
func (o *oracle) write(t testing.TB, w writeRequest) {
	t.Helper()
	w.Op = "write"
	a := o.ask(t, w)
	require.True(t, a.OK, "Spark writes %s: %s", w.Table, a.Error)
}

// checksums returns row count and column sums, for tables that are too large to send.
func (o *oracle) checksums(t testing.TB, engine, table string) (int64, map[string]columnSum) {
	t.Helper()
	a := o.ask(t, map[string]string{"op": "checksum", "engine": engine, "table": table})
	require.True(t, a.OK, "%s reads %s: %s", engine, table, a.Error)
	return a.Count, a.Columns
}

// TestInteropOracle shows that both engines of the oracle work and agree, without lakesql.
func TestInteropOracle(t *testing.T) {
	o := startOracle(t)
	table := filepath.Join(t.TempDir(), "t")
	o.write(t, writeRequest{
		Table: table, Schema: "id int, name string, amount decimal(10,2), ts bigint", Key: "id", Type: "mor", TableVersion: 6, Ordering: "ts",
		Rows: []map[string]any{{"id": 1, "name": "é", "amount": "1.50", "ts": 1}, {"id": 2, "name": nil, "amount": "2.00", "ts": 1}},
	})
	o.write(t, writeRequest{Table: table, Rows: []map[string]any{{"id": 2, "name": "b", "amount": "3.00", "ts": 2}}})
	want := []map[string]any{
		{"id": json.Number("1"), "name": "é", "amount": "1.50", "ts": json.Number("1")},
		{"id": json.Number("2"), "name": "b", "amount": "3.00", "ts": json.Number("2")},
	}
	for _, engine := range []string{"spark", "hudi-rs"} {
		require.ElementsMatch(t, want, o.read(t, readRequest{Engine: engine, Table: table}), engine)
		n, columns := o.checksums(t, engine, table)
		require.Equal(t, int64(2), n)
		require.Equal(t, json.Number("2"), columns["name"][0])
	}
}
