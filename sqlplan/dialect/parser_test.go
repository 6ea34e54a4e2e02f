package dialect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/enginetest/queries"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

var parser = &Parser{}

// described writes a statement as the grammar does, carriers and errors as they are.
func described(query string) string {
	stmt, _, err := parser.ParseOneWithOptions(context.Background(), query, ast.ParserOptions{})
	if err != nil {
		return "error: " + err.Error()
	}
	if j, ok := stmt.(ast.InjectedStatement); ok {
		if r, ok := j.Statement.(rowsStatement); ok {
			return "rows: " + r.what + " " + strings.Join(r.columns, ",")
		}
	}
	text := ast.String(stmt)
	var notes []string
	if d, ok := stmt.(*ast.DDL); ok && d.TableSpec != nil {
		for i, c := range d.TableSpec.Columns {
			if c.Name.String() == carrierName {
				notes = append(notes, strings.TrimPrefix(string(c.Type.Comment.Val), carrierMark))
				d.TableSpec.Columns = append(d.TableSpec.Columns[:i:i], d.TableSpec.Columns[i+1:]...)
				break
			}
		}
		text = ast.String(d)
	}
	if a, ok := stmt.(*ast.AlterTable); ok {
		for _, d := range a.Statements {
			if d.AlterCommentSpec != nil {
				notes = append(notes, strings.TrimPrefix(d.AlterCommentSpec.Comment, carrierMark))
			}
		}
		text = "alter table " + ast.String(a.Table)
	}
	return strings.Join(append([]string{strings.Join(strings.Fields(strings.ReplaceAll(text, "\x01", "~")), " ")}, notes...), " | ")
}

func TestParser(t *testing.T) {
	b, err := os.ReadFile("testdata/parser.txt")
	if err != nil {
		t.Fatal(err)
	}
	record := os.Getenv("RECORD") != ""
	var out strings.Builder
	for _, part := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
		query, want, _ := strings.Cut(part, "\n---- ")
		got := described(query)
		fmt.Fprintf(&out, "%s\n---- %s\n\n", query, got)
		if !record && got != want {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
	}
	if record {
		if err := os.WriteFile("testdata/parser.txt", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCorpus(t *testing.T) {
	for _, q := range corpus {
		if _, err := parser.ParseSimple(q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// formatted writes a statement; a few kinds make the grammar's own writer panic.
func formatted(stmt ast.Statement) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	return ast.String(stmt)
}

// same says whether both parsers take a text for the same statement.
func same(t *testing.T, query string) {
	t.Helper()
	want, wantNext, err := ast.ParseOneWithOptions(context.Background(), query, ast.ParserOptions{})
	if err != nil {
		return
	}
	if strings.Contains(strings.ToUpper(query), "ENGINE_ATTRIBUTE") || strings.Contains(query, "/*!") || strings.Contains(query, "/*M!") {
		return
	}
	wantText := formatted(want)
	got, next, err := parser.ParseOneWithOptions(context.Background(), query, ast.ParserOptions{})
	var refused *mysql.SQLError
	if errors.As(err, &refused) && refused.Num == codeUnsupported {
		return
	}
	if err != nil {
		t.Errorf("%s\nis refused: %v", query, err)
		return
	}
	if next != wantNext {
		t.Errorf("%s\nends at %d, not at %d", query, next, wantNext)
	}
	switch got.(type) {
	case ast.InjectedStatement, *ast.DDL:
		return
	}
	if gotText := formatted(got); gotText != wantText && !strings.Contains(gotText, "InjectedExpr") && !strings.Contains(gotText, insertAlias) {
		t.Errorf("%s\n is read as %s\nand not as %s", query, gotText, wantText)
	}
}

// Whatever the engine's grammar takes, the parser takes for the same.
func TestEngineQueries(t *testing.T) {
	n := 0
	check := func(q string) { n++; same(t, q) }
	for _, q := range queries.QueryTests {
		check(q.Query)
	}
	for _, list := range [][]queries.WriteQueryTest{
		queries.InsertQueries, queries.UpdateWriteQueryTests, queries.DeleteTests, queries.DeleteJoinTests,
		queries.ReplaceQueries, queries.CreateTableQueries, queries.SpatialInsertQueries, queries.OrdinalDDLWriteQueries,
	} {
		for _, q := range list {
			check(q.WriteQuery)
			check(q.SelectQuery)
		}
	}
	for _, list := range [][]queries.ScriptTest{
		queries.ScriptTests, queries.InsertScripts, queries.TriggerTests, queries.ProcedureLogicTests,
		queries.JsonScripts, queries.ForeignKeyTests, queries.ViewScripts, queries.PreparedScriptTests, queries.InfoSchemaScripts,
		queries.AlterTableScripts, queries.CreateTableScriptTests, queries.CharsetCollationEngineTests, queries.ColumnAliasQueries,
		queries.EventTests, queries.GeneratedColumnTests, queries.IndexQueries, queries.IndexPrefixQueries, queries.FulltextTests,
		queries.JoinScriptTests, queries.JSONTableScriptTests, queries.LateralJoinScriptTests, queries.LoadDataScripts,
		queries.NamedWindowsScriptTests, queries.OrderByGroupByScriptTests, queries.ProcedureCallTests, queries.ProcedureDropTests,
		queries.RegexScriptTests, queries.SQLLogicJoinTests, queries.SQLLogicSubqueryTests, queries.SpatialScriptTests,
		queries.StatisticsQueries, queries.TimeQueryTests, queries.UpdateScriptTests, queries.VariableQueries, queries.VersionedScripts,
		queries.WindowFunctionsScriptTests, queries.ColumnDefaultTests, queries.CreateCheckConstraintsScripts, queries.CallAsofScripts,
	} {
		for _, s := range list {
			for _, q := range s.SetUpScript {
				check(q)
			}
			check(s.Query)
			for _, a := range s.Assertions {
				check(a.Query)
			}
		}
	}
	t.Logf("%d statements", n)
}

// LAKESQL_SUITES names a folder of cases (*.test, *.case, *.sql); every line and every paragraph of them
// that the engine's grammar takes is taken for the same.
func TestSuites(t *testing.T) {
	dir := os.Getenv("LAKESQL_SUITES")
	if dir == "" {
		t.Skip("LAKESQL_SUITES is not set")
	}
	n := 0
	paragraph := regexp.MustCompile(`\n[ \t]*\n`)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := readSuite(path)
		if err != nil || text == "" {
			return err
		}
		if strings.HasSuffix(path, ".sql") {
			for rest := text; rest != ""; {
				s := scan(rest, false)
				same(t, rest[:s.next])
				n++
				rest = rest[s.next:]
			}
			return nil
		}
		for _, p := range paragraph.Split(text, -1) {
			if _, body, ok := strings.Cut(p, "\n"); ok {
				body, _, _ = strings.Cut(body, "\n----")
				same(t, body)
				n++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d statements", n)
}

func TestClientError(t *testing.T) {
	own := mysql.NewSQLError(1064, "42000", "near 'x'")
	for _, err := range []error{own, mysql.NewSQLError(mysql.ERUnknownError, "HY000", "%s", own.Error())} {
		var got *mysql.SQLError
		if !errors.As(ClientError(err), &got) || got.Num != 1064 || got.State != "42000" || got.Message != "near 'x'" {
			t.Errorf("%v became %v", err, got)
		}
	}
	other := errors.New("x")
	if ClientError(other) != other || ClientError(nil) != nil {
		t.Error("another error was changed")
	}
}

func TestArguments(t *testing.T) {
	params := []Parameter{{Name: "table", Required: true}, {Name: "op", Default: "run"}, {Name: "limit"}}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"t"}, "map[op:run table:t]"},
		{[]string{"t", argument("LIMIT", "5")}, "map[limit:5 op:run table:t]"},
		{[]string{argument("op", ""), argument("table", "a=>b")}, "map[op: table:a=>b]"},
		{[]string{"a=>b"}, "map[op:run table:a=>b]"},
	} {
		got, err := Arguments("p", params, c.args)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v", c.args, got, err)
		}
	}
	for _, args := range [][]string{{}, {"t", "o", "1", "2"}, {argument("nope", "1")}, {"t", argument("table", "u")}, {argument("op", "x"), "t"}} {
		if got, err := Arguments("p", params, args); err == nil {
			t.Errorf("%q: %v", args, got)
		}
	}
	for text, want := range map[string]string{"t": "/t", "d.t": "d/t", "`a.b`.`c``d`": "a.b/c`d"} {
		if d, n, ok := SplitName(text); !ok || d+"/"+n != want {
			t.Errorf("%s: %q %q %v", text, d, n, ok)
		}
	}
	for _, text := range []string{"", "a.b.c", "a b", "'t'"} {
		if _, _, ok := SplitName(text); ok {
			t.Errorf("%q is taken for a name", text)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, q := range map[string]string{
		"point":  "SELECT a, b, c FROM t WHERE id = 12345",
		"insert": "INSERT INTO t VALUES " + strings.Repeat("(12345, 'some text of a row', 3.25, NULL),", 10000) + "(1, 'x', 1, 1)",
	} {
		b.Run(name+"/grammar", func(b *testing.B) {
			for b.Loop() {
				if _, err := ast.Parse(q); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/dialect", func(b *testing.B) {
			for b.Loop() {
				if _, err := parser.ParseSimple(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
