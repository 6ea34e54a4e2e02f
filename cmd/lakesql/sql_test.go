package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	vitess "github.com/dolthub/vitess/go/mysql"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func split(text string) []string {
	var sp splitter
	var got []string
	in := bufio.NewReader(strings.NewReader(text))
	for {
		line, err := in.ReadString('\n')
		for _, s := range sp.feed(line) {
			got = append(got, s.text)
		}
		if err != nil {
			for _, s := range sp.finish() {
				got = append(got, s.text)
			}
			return got
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{" ;; \n", nil},
		{"SELECT 1", []string{"SELECT 1"}},
		{"SELECT 1; SELECT 2;\n", []string{"SELECT 1", "SELECT 2"}},
		{"SELECT\n 1;", []string{"SELECT\n 1"}},
		{`SELECT 'a;b', "c;d", ` + "`e;f`;SELECT 2", []string{`SELECT 'a;b', "c;d", ` + "`e;f`", "SELECT 2"}},
		{`SELECT 'it''s; \'; x';SELECT 2`, []string{`SELECT 'it''s; \'; x'`, "SELECT 2"}},
		{"SELECT `a\\`;SELECT 2", []string{"SELECT `a\\`", "SELECT 2"}},
		{"SELECT 'two\nlines;';", []string{"SELECT 'two\nlines;'"}},
		{"-- first; second\nSELECT 1; # rest; of it\nSELECT 2;", []string{"SELECT 1", "SELECT 2"}},
		{"SELECT 1--1;", []string{"SELECT 1--1"}},
		{"SELECT 1 -- a;\n+ 1;", []string{"SELECT 1 \n+ 1"}},
		{"/* a; b */ SELECT /* c;\nd */ 1;", []string{"/* a; b */ SELECT /* c;\nd */ 1"}},
		{"/* only a comment */", nil},
		{"/*!40101 SET x = 1 */;", []string{"/*!40101 SET x = 1 */"}},
		{"DELIMITER //\nCREATE PROCEDURE p() BEGIN SELECT 1; END//\nDELIMITER ;\nSELECT 2;", []string{"CREATE PROCEDURE p() BEGIN SELECT 1; END", "SELECT 2"}},
	} {
		require.Equal(t, c.want, split(c.text), "%q", c.text)
	}
}

func TestSplitLinesAndCommands(t *testing.T) {
	var sp splitter
	require.Empty(t, sp.feed("\n"))
	require.Empty(t, sp.feed("SELECT 'a\n"))
	require.True(t, sp.pending())
	require.Equal(t, byte('\''), sp.quoted())
	require.Empty(t, sp.feed("quit\n"), "inside a string it is text")
	require.Equal(t, []statement{{text: "SELECT 'a\nquit\n'", line: 2, vertical: true}}, sp.feed("'\\G\n"))
	require.False(t, sp.pending())
	require.Equal(t, []statement{{quit: true, line: 5}}, sp.feed("exit;\n"))
}

func TestStatementKinds(t *testing.T) {
	for _, s := range []string{"select 1", "(SELECT 1)", "/* c */ WITH x AS (SELECT 1) SELECT * FROM x", "show tables", "CALL p()", "INSERT INTO t VALUES (1) RETURNING id", "/*!50000 SELECT 1 */"} {
		require.True(t, givesRows(s), s)
	}
	for _, s := range []string{"INSERT INTO t VALUES ('RETURNING')", "INSERT INTO t VALUES (1) /* RETURNING */", "CREATE TABLE t AS SELECT 1", "SET @a = 1", "BEGIN", ""} {
		require.False(t, givesRows(s), s)
	}
	for s, want := range map[string]string{
		"LOAD DATA LOCAL INFILE '/tmp/a''b' INTO TABLE t":                 "/tmp/a'b",
		"load data concurrent local infile \"x y\" into table t":          "x y",
		"LOAD DATA INFILE '/etc/passwd' INTO TABLE t":                     "",
		"INSERT INTO t VALUES ('LOAD DATA LOCAL INFILE ''/etc/passwd''')": "",
	} {
		got, _ := localInfile(s)
		require.Equal(t, want, got, s)
	}
}

func TestPrintFormats(t *testing.T) {
	names := []string{"id", "text", "doc"}
	kinds := []kind{kindNumber, kindText, kindJSON}
	rows := [][]cell{
		{{text: "1"}, {text: "a,\"b\""}, {text: `{"x": 1}`}},
		{{text: "12345678901234567890.50"}, {null: true}, {null: true}},
		{{text: "3"}, {text: ""}, {text: "tab\tand\nline <é>"}},
	}
	print := func(make func(*bufio.Writer) rowPrinter) string {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		p := make(w)
		if h, ok := p.(interface{ header([]string) }); ok {
			h.header(names)
		}
		for _, r := range rows {
			p.row(append([]cell(nil), r...))
		}
		p.end()
		w.Flush()
		return b.String()
	}
	require.Equal(t, "id\ttext\tdoc\n1\ta,\"b\"\t{\"x\": 1}\n12345678901234567890.50\tNULL\tNULL\n3\t\ttab\\tand\\nline <é>\n",
		print(func(w *bufio.Writer) rowPrinter { return &tabPrinter{w} }))
	require.Equal(t, "id,text,doc\n1,\"a,\"\"b\"\"\",\"{\"\"x\"\": 1}\"\n12345678901234567890.50,,\n3,\"\",\"tab\tand\nline <é>\"\n",
		print(func(w *bufio.Writer) rowPrinter { return &csvPrinter{w} }))
	require.Equal(t, `{"id":1,"text":"a,\"b\"","doc":{"x": 1}}
{"id":12345678901234567890.50,"text":null,"doc":null}
{"id":3,"text":"","doc":"tab\tand\nline <é>"}
`, print(func(w *bufio.Writer) rowPrinter { return &jsonPrinter{w, names, kinds} }))
	rows[2][2] = cell{text: "é"}
	require.Equal(t, `+-------------------------+-------+----------+
| id                      | text  | doc      |
+-------------------------+-------+----------+
|                       1 | a,"b" | {"x": 1} |
| 12345678901234567890.50 | NULL  | NULL     |
|                       3 |       | é        |
+-------------------------+-------+----------+
`, print(func(w *bufio.Writer) rowPrinter { return &tablePrinter{w: w, names: names, kinds: kinds} }))
	require.Contains(t, print(func(w *bufio.Writer) rowPrinter { return &verticalPrinter{w: w, names: names} }),
		"*************************** 2. row ***************************\n  id: 12345678901234567890.50\ntext: NULL\n")
}

func TestValueText(t *testing.T) {
	at := time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)
	for _, c := range []struct {
		v    any
		typ  string
		want string
	}{
		{int64(-5), "BIGINT", "-5"},
		{uint64(18446744073709551615), "UNSIGNED BIGINT", "18446744073709551615"},
		{[]byte("x"), "VARCHAR", "x"},
		{true, "", "1"},
		{0.1, "DOUBLE", "0.1"},
		{1e300, "DOUBLE", "1e300"},
		{float32(0.1), "FLOAT", "0.1"},
		{at, "DATE", "2024-02-29"},
		{at, "DATETIME", "2024-02-29 01:02:03.000004"},
		{at.Truncate(time.Second), "DATETIME", "2024-02-29 01:02:03"},
	} {
		require.Equal(t, cell{text: c.want}, valueText(c.v, c.typ))
	}
	require.True(t, valueText(nil, "INT").null)
}

func TestErrorText(t *testing.T) {
	require.Equal(t, "ERROR 1146 (42S02): Table 'a.b' doesn't exist",
		errorText(&mysql.MySQLError{Number: 1146, SQLState: [5]byte{'4', '2', 'S', '0', '2'}, Message: "Table 'a.b' doesn't exist"}, 0))
	require.Equal(t, "ERROR 1062 (23000) at line 3: dup", errorText(vitess.NewSQLError(1062, "23000", "dup"), 3))
	require.Equal(t, "ERROR 1105 (HY000): odd", errorText(errors.New("odd"), 0))
	require.Equal(t, "ERROR 1317 (70100): Query execution was interrupted", errorText(context.Canceled, 0))
}

func TestKeyReader(t *testing.T) {
	k := &keyReader{in: strings.NewReader("ab\x03cd")}
	b, err := io.ReadAll(k)
	require.NoError(t, err)
	require.Equal(t, "ab\x05\x15\rcd", string(b))
	require.True(t, k.interrupted)
}
