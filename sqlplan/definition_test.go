package sqlplan

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
)

// definedDB is the front end's memory database whose tables have their schema and checks from a definition that went
// through JSON, as after a restart.
type definedDB struct {
	*memory.Database
	saved map[string][]byte
}

func (d *definedDB) load(name string) (*tableDefinition, error) {
	return decodeTableDefinition(d.saved[strings.ToLower(name)])
}

func (d *definedDB) save(name string, def *tableDefinition) error {
	b, err := def.encode()
	d.saved[strings.ToLower(name)] = b
	return err
}

func (d *definedDB) CreateTable(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, collation sql.CollationID, comment string) error {
	def, err := newTableDefinition(ctx, pk, collation, comment)
	if err != nil {
		return err
	}
	if err := d.save(name, def); err != nil {
		return err
	}
	return d.Database.CreateTable(ctx, name, pk, collation, comment)
}

func (d *definedDB) CreateIndexedTable(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, key sql.IndexDef, collation sql.CollationID, comment string) error {
	if err := d.CreateTable(ctx, name, pk, collation, comment); err != nil {
		return err
	}
	def, err := d.load(name)
	if err != nil {
		return err
	}
	def.setKeyPrefixes(key)
	return d.save(name, def)
}

// setKeyPrefixes takes the prefix lengths of the primary key from its index definition.
func (d *tableDefinition) setKeyPrefixes(def sql.IndexDef) {
	for _, c := range def.Columns {
		if i := slices.IndexFunc(d.PrimaryKey, func(p keyPart) bool { return strings.EqualFold(p.Column, c.Name) }); i >= 0 {
			d.PrimaryKey[i].Prefix = int(c.Length)
		}
	}
}

func (d *definedDB) GetTableInsensitive(ctx *sql.Context, name string) (sql.Table, bool, error) {
	t, ok, err := d.Database.GetTableInsensitive(ctx, name)
	if err != nil || !ok {
		return nil, false, err
	}
	def, err := d.load(name)
	if err != nil {
		return nil, false, err
	}
	pk, err := def.schema(ctx, d.Name(), t.Name())
	if err != nil {
		return nil, false, err
	}
	return &definedTable{Table: t.(*memory.Table), db: d, pk: pk, def: def}, true, nil
}

type definedTable struct {
	*memory.Table
	db  *definedDB
	pk  sql.PrimaryKeySchema
	def *tableDefinition
}

func (t *definedTable) Schema(*sql.Context) sql.Schema                     { return t.pk.Schema }
func (t *definedTable) PrimaryKeySchema(*sql.Context) sql.PrimaryKeySchema { return t.pk }

// createText is that of a lakesql table, with options by its name.
func (t *definedTable) createText(ctx *sql.Context, sch sql.Schema) (string, error) {
	collation, err := t.def.collation()
	if err != nil {
		return "", err
	}
	s := shownTable{db: "d", name: t.Name(), def: t.def, collation: collation, plain: true}
	if t.Name() == "with_options" {
		s.options = `{"type":"cow","note":"it's */ a \\ test"}`
	}
	return s.text(ctx, sch)
}

// WithProjections is declined: the memory table's own would bring back its own schema.
func (t *definedTable) WithProjections(*sql.Context, []string) (sql.Table, error) { return t, nil }
func (t *definedTable) Projections() []string                                     { return nil }

func (t *definedTable) CreateCheck(_ *sql.Context, c *sql.CheckDefinition) error {
	t.def.Checks = append(t.def.Checks, newCheckDefinition(c))
	return t.db.save(t.Name(), t.def)
}

func (t *definedTable) GetChecks(*sql.Context) ([]sql.CheckDefinition, error) {
	var out []sql.CheckDefinition
	for _, c := range t.def.Checks {
		out = append(out, c.sql())
	}
	return out, nil
}

// ownBuilder is asked first for every node, as in the server.
type ownBuilder struct{ base sql.NodeExecBuilder }

func (b ownBuilder) Build(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	if show, ok := n.(*plan.ShowCreateTable); ok {
		return buildShowCreate(ctx, show)
	}
	return buildAssignments(ctx, b.base, n, row)
}

// definedEngine runs SQL over a definedDB.
type definedEngine struct {
	t   *testing.T
	e   *sqle.Engine
	ctx *sql.Context
	db  *definedDB
}

func newDefinedEngine(t *testing.T) *definedEngine {
	db := &definedDB{Database: memory.NewDatabase("d"), saved: map[string][]byte{}}
	pro := memory.NewDBProvider(db)
	a := analyzer.NewDefault(pro)
	a.ExecBuilder.PriorityBuilder = ownBuilder{a.ExecBuilder}
	e := sqle.New(a, nil)
	// The memory session commits only databases of its own type.
	session := memory.NewSession(sql.NewBaseSession(), memory.NewDBProvider(db.Database))
	ctx := sql.NewContext(context.Background(), sql.WithSession(session))
	ctx.SetCurrentDatabase("d")
	return &definedEngine{t: t, e: e, ctx: ctx, db: db}
}

// query gives the rows as text, columns separated by "|".
func (e *definedEngine) query(q string) ([]string, error) {
	sch, iter, _, err := e.e.Query(e.ctx, q)
	if err != nil {
		return nil, err
	}
	var out []string
	for {
		row, err := iter.Next(e.ctx)
		if err == io.EOF {
			return out, iter.Close(e.ctx)
		}
		if err != nil {
			return nil, err
		}
		var cells []string
		for i, v := range row {
			if v == nil {
				cells = append(cells, "NULL")
				continue
			}
			if ok, is := v.(types.OkResult); is {
				cells = append(cells, fmt.Sprint(ok.RowsAffected))
				continue
			}
			s, err := sch[i].Type.SQL(e.ctx, nil, v)
			if err != nil {
				return nil, err
			}
			cells = append(cells, s.ToString())
		}
		out = append(out, strings.Join(cells, "|"))
	}
}

func (e *definedEngine) exec(q string) []string {
	e.t.Helper()
	rows, err := e.query(q)
	if err != nil {
		e.t.Fatalf("%s: %v", q, err)
	}
	return rows
}

func (e *definedEngine) want(q string, want ...string) {
	e.t.Helper()
	if got := e.exec(q); !reflect.DeepEqual(got, want) {
		e.t.Errorf("%s:\n got %q\nwant %q", q, got, want)
	}
}

// A table rebuilt from its definition takes defaults, generated columns and checks as the one that was created.
func TestDefinitionRebuildsTable(t *testing.T) {
	e := newDefinedEngine(t)
	e.exec("CREATE TABLE t (" +
		"id INT NOT NULL AUTO_INCREMENT PRIMARY KEY," +
		"n INT DEFAULT 5," +
		"neg DECIMAL(6,2) DEFAULT -1.50," +
		`s VARCHAR(50) DEFAULT 'it''s a \\ "x"',` +
		"nothing VARCHAR(5) DEFAULT NULL," +
		"blank VARCHAR(5) NOT NULL DEFAULT ''," +
		"en ENUM('a','it''s') NOT NULL DEFAULT 'it''s'," +
		"st SET('p','q','r') DEFAULT 'p,r'," +
		"d DATE DEFAULT '2020-02-29'," +
		"b BIT(4) DEFAULT b'101'," +
		"vb VARBINARY(4) DEFAULT X'00FF'," +
		"y YEAR DEFAULT 1999," +
		"fl DOUBLE DEFAULT 2.5e10," +
		"created DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)," +
		"changed TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP," +
		"ex INT DEFAULT ((2 + 2) / 2 * (1 + n))," +
		"tx VARCHAR(99) DEFAULT (CONCAT('a''b\\\\', UPPER('x'), 0x41))," +
		"js JSON DEFAULT (JSON_OBJECT('k', 1))," +
		"`odd ``name` INT DEFAULT 7," +
		"vir INT GENERATED ALWAYS AS (`odd ``name` * (n - 1)) VIRTUAL," +
		"sto VARCHAR(20) GENERATED ALWAYS AS (CONCAT(s, '-', n)) STORED COMMENT 'a \"c\" ''d'''," +
		"CONSTRAINT small CHECK (n < 100 AND (s <> 'it''s' OR n > 0))," +
		"CONSTRAINT off CHECK (n > 1000) NOT ENFORCED" +
		") COMMENT='the ''table'''")
	e.exec("INSERT INTO t (id) VALUES (1)")
	e.exec("INSERT INTO t (n, s) VALUES (10, 'x')")
	e.want("SELECT id, n, neg, s, nothing, blank, en, st, d, b+0, HEX(vb), y, fl FROM t ORDER BY id",
		`1|5|-1.50|it's a \ "x"|NULL||it's|p,r|2020-02-29|5|00FF|1999|2.5e+10`,
		`2|10|-1.50|x|NULL||it's|p,r|2020-02-29|5|00FF|1999|2.5e+10`)
	e.want("SELECT id, ex, tx, js, `odd ``name`, vir, sto FROM t ORDER BY id",
		`1|12|a'b\XA|{"k": 1}|7|28|it's a \ "x"-5`, `2|22|a'b\XA|{"k": 1}|7|63|x-10`)
	e.want("SELECT COUNT(*) FROM t WHERE created > '2020-01-01' AND changed > '2020-01-01'", "2")
	if _, err := e.query("INSERT INTO t (sto) VALUES ('x')"); err == nil {
		t.Error("a generated column was written")
	}
	e.exec("UPDATE t SET n = DEFAULT, s = DEFAULT WHERE id = 2")
	e.want("SELECT n, s, vir, sto FROM t WHERE id = 2", `5|it's a \ "x"|28|it's a \ "x"-5`)
	e.exec("REPLACE INTO t (id, n, en) VALUES (2, 6, DEFAULT)")
	e.want("SELECT n, en, vir FROM t WHERE id = 2", "6|it's|35")
}

// Checks are kept, and hold in tables with VIRTUAL columns too, for which the front end forgets them.
func TestDefinitionKeepsChecks(t *testing.T) {
	e := newDefinedEngine(t)
	const columns = "id INT PRIMARY KEY, n INT, s VARCHAR(9), CONSTRAINT small CHECK (n < 100 AND (s <> 'it''s' OR n > 0)), CONSTRAINT off CHECK (n > 1000) NOT ENFORCED"
	e.exec("CREATE TABLE c (" + columns + ")")
	e.exec("INSERT INTO c VALUES (1, 99, 'x'), (2, NULL, 'x')")
	for _, q := range []string{"INSERT INTO c VALUES (3, 100, 'x')", "INSERT INTO c VALUES (3, 0, 'it''s')", "UPDATE c SET n = 100 WHERE id = 1"} {
		if _, err := e.query(q); err == nil || !strings.Contains(err.Error(), `"small" violated`) {
			t.Errorf("%s: %v", q, err)
		}
	}
	e.exec("CREATE TABLE v (" + columns + ", v INT AS (n + 1) VIRTUAL, CONSTRAINT low CHECK (v > 0))")
	def, err := e.db.load("v")
	if err != nil {
		t.Fatal(err)
	}
	pk, err := def.schema(e.ctx, "d", "v")
	if err != nil {
		t.Fatal(err)
	}
	checks, err := newRowChecks(e.ctx, "d", "v", pk.Schema, def.Checks)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		row  sql.Row
		fail bool
	}{
		{sql.Row{int32(1), int32(99), "x", int32(100)}, false},
		{sql.Row{int32(1), nil, nil, nil}, false},
		{sql.Row{int32(1), int32(100), "x", int32(101)}, true},
		{sql.Row{int32(1), int32(0), "it's", int32(1)}, true},
		{sql.Row{int32(1), int32(-1), "x", int32(0)}, true},
	} {
		if err := checks.check(e.ctx, c.row); c.fail != sql.ErrCheckConstraintViolated.Is(err) {
			t.Errorf("%v: %v", c.row, err)
		}
	}
	if checks, err := newRowChecks(e.ctx, "d", "v", pk.Schema[:3], def.Checks); checks != nil || err != nil {
		t.Errorf("a table without VIRTUAL columns has checks of its own (%v)", err)
	}
}

// The text of SHOW CREATE TABLE makes the same table, and so does a definition made from a rebuilt schema.
func TestDefinitionIsStable(t *testing.T) {
	e := newDefinedEngine(t)
	for _, create := range []string{
		"CREATE TABLE a (id INT NOT NULL, k VARCHAR(30) COLLATE utf8mb4_0900_ai_ci, PRIMARY KEY (k, id))",
		`CREATE TABLE b (e ENUM('x\\y','a''b') DEFAULT 'a''b', s SET('1','2') DEFAULT '2', d DECIMAL(20,3) DEFAULT 1000.500, f FLOAT DEFAULT 1e20)`,
		"CREATE TABLE c (a INT DEFAULT (1 + 2), b TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), c INT AS (a - (3 - 1)) STORED, d INT AS (a) VIRTUAL COMMENT 'it''s')",
		"CREATE TABLE with_options (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, t TEXT CHARACTER SET latin1, p POINT SRID 4326, i INT DEFAULT (CASE WHEN id > 1 THEN 'a' ELSE 5 END), n DATETIME DEFAULT (NOW() + INTERVAL 1 DAY)) COMMENT='x''y'",
		"CREATE TABLE k (id INT, txt TEXT NOT NULL, PRIMARY KEY (txt(10), id))",
	} {
		e.exec(create)
		name := strings.Fields(create)[2]
		before := string(e.db.saved[name])
		def, err := e.db.load(name)
		if err != nil {
			t.Fatal(err)
		}
		pk, err := def.schema(e.ctx, "d", name)
		if err != nil {
			t.Fatal(err)
		}
		if err := def.setSchema(e.ctx, pk); err != nil {
			t.Fatal(err)
		}
		if after, _ := def.encode(); string(after) != before {
			t.Errorf("the definition changed by being read:\n%s\n%s", before, after)
		}
		shown := strings.SplitN(e.exec("SHOW CREATE TABLE " + name)[0], "|", 2)[1]
		e.exec("DROP TABLE " + name)
		plain, comment, _ := strings.Cut(shown, " /*!99999 ")
		e.exec(plain)
		if after := string(e.db.saved[name]); after != before {
			t.Errorf("%s\nmade another table:\n%s\n%s", shown, before, after)
		}
		if name == "with_options" && comment != `ENGINE_ATTRIBUTE='{"type":"cow","note":"it''s *\\/ a \\\\ test"}' */` {
			t.Errorf("options are shown as %s", comment)
		}
	}
	def, err := e.db.load("k")
	if err != nil {
		t.Fatal(err)
	}
	if want := []keyPart{{Column: "txt", Prefix: 10}, {Column: "id"}}; !reflect.DeepEqual(def.PrimaryKey, want) {
		t.Errorf("primary key is %v", def.PrimaryKey)
	}
}

func TestDefinitionJSON(t *testing.T) {
	fk := sql.ForeignKeyConstraint{
		Name: "f", Database: "d", Table: "t", Columns: []string{"a", "b"}, ParentDatabase: "e", ParentTable: "p", ParentColumns: []string{"x", "y"},
		OnUpdate: sql.ForeignKeyReferentialAction_Cascade, OnDelete: sql.ForeignKeyReferentialAction_SetNull, IsResolved: true, IsNotValid: true,
		MatchType: sql.ForeignKeyMatchType_Full,
	}
	if got := newForeignKeyDefinition(fk).sql(); !reflect.DeepEqual(got, fk) {
		t.Errorf("foreign key came back as %v", got)
	}
	check := sql.CheckDefinition{Name: "c", CheckExpression: "(`a` > 0)", Enforced: true, IsNotValid: true}
	if got := newCheckDefinition(&check).sql(); got != check {
		t.Errorf("check came back as %v", got)
	}
	index, err := newIndexDefinition(sql.IndexDef{Name: "i", Comment: "x", Constraint: sql.IndexConstraint_Unique, Columns: []sql.IndexColumn{{Name: "a", Length: 4}, {Name: "b"}}})
	if want := (indexDefinition{Name: "i", Comment: "x", Unique: true, Columns: []keyPart{{"a", 4}, {"b", 0}}}); err != nil || !reflect.DeepEqual(index, want) {
		t.Errorf("index is %v (%v)", index, err)
	}
	for _, kind := range []sql.IndexConstraint{sql.IndexConstraint_Fulltext, sql.IndexConstraint_Spatial, sql.IndexConstraint_Vector} {
		_, err := newIndexDefinition(sql.IndexDef{Name: "i", Constraint: kind, Columns: []sql.IndexColumn{{Name: "a"}}})
		if e, ok := err.(*mysql.SQLError); !ok || e.Num != mysql.ERNotSupportedYet {
			t.Errorf("index kind %d gives %v", kind, err)
		}
	}
	d := &tableDefinition{
		Version: 1, Collation: "utf8mb4_0900_ai_ci", Comment: "<a & b>", Engine: "MyISAM", AutoIncrement: 1 << 63,
		Columns: []columnDefinition{{Name: "Ä", Type: "int", Nullable: true}}, Indexes: []indexDefinition{index},
		Checks: []checkDefinition{newCheckDefinition(&check)}, ForeignKeys: []foreignKeyDefinition{newForeignKeyDefinition(fk)},
	}
	b, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeTableDefinition(b)
	if err != nil || !reflect.DeepEqual(d, back) {
		t.Errorf("came back as %v (%v)", back, err)
	}
	if !strings.Contains(string(b), "<a & b>") {
		t.Errorf("written as %s", b)
	}
	for _, bad := range []string{"", "{", "{}", `{"version":2}`} {
		if _, err := decodeTableDefinition([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if d.columnNumber("ä") != 0 || d.columnNumber("b") != -1 || d.indexNumber("I") != 0 {
		t.Error("names are not found as MySQL compares them")
	}
}

// The front end's JSON functions take documents that come from a table.
func TestJSONDocumentsInQueries(t *testing.T) {
	e := newDefinedEngine(t)
	e.exec("CREATE TABLE j (id INT PRIMARY KEY, j JSON)")
	table, _, err := e.db.Database.GetTableInsensitive(e.ctx, "j")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{`{"a": [1, 2.5, 9007199254740993], "b": {"c": "x"}}`, `{"a": [1], "b": 1}`, `5`, `{"a": [1], "b": 1}`} {
		if err := table.(*memory.Table).Insert(e.ctx, sql.Row{int32(i + 1), jsonValue(text)}); err != nil {
			t.Fatal(err)
		}
	}
	e.exec("COMMIT")
	e.want("SELECT j FROM j WHERE id = 1", `{"a": [1, 2.5, 9007199254740993], "b": {"c": "x"}}`)
	e.want("SELECT j->'$.a[2]', j->>'$.b.c', JSON_TYPE(j), JSON_LENGTH(j->'$.a'), JSON_VALID(j) FROM j WHERE id = 1", `9007199254740993|x|OBJECT|3|1`)
	e.want("SELECT JSON_SET(j, '$.a[0]', 7) FROM j WHERE id = 1", `{"a": [7, 2.5, 9007199254740993], "b": {"c": "x"}}`)
	e.want("SELECT JSON_REMOVE(j, '$.b') FROM j WHERE id = 1", `{"a": [1, 2.5, 9007199254740993]}`)
	e.want("SELECT CAST(j AS CHAR), CONCAT(j, '') FROM j WHERE id = 3", `5|5`)
	e.want("SELECT id FROM j WHERE j = CAST('{\"a\": [1], \"b\": 1}' AS JSON) ORDER BY id", "2", "4")
	e.want("SELECT COUNT(DISTINCT j) FROM j", "3")
	e.want("SELECT COUNT(*) FROM j GROUP BY j ORDER BY 1", "1", "1", "2")
	e.want("SELECT JSON_CONTAINS(j, '1', '$.a') FROM j WHERE id < 3 ORDER BY id", "1", "1")
	e.want("SELECT JSON_ARRAYAGG(j) FROM j WHERE id > 2", `[5, {"a": [1], "b": 1}]`)
	e.want("SELECT j + 1 FROM j WHERE id = 3", "6")
	e.want("SELECT id FROM j ORDER BY j DESC, id LIMIT 1", "1")
}

func TestJSONTextsAreReadExactly(t *testing.T) {
	e := newDefinedEngine(t)
	e.exec("CREATE TABLE j (id INT PRIMARY KEY, j JSON, k JSON DEFAULT (JSON_ARRAY(1)))")
	e.exec(`INSERT INTO j (j, id) VALUES ('{"n": 9007199254740993}', 1), ('18446744073709551615', 2), (NULL, 3), (5, 4)`)
	e.want("SELECT j, k FROM j ORDER BY id", `{"n": 9007199254740993}|[1]`, "18446744073709551615|[1]", "NULL|[1]", "5|[1]")
	e.exec(`UPDATE j SET j = '[-9007199254740993, 1.50]' WHERE id = 1`)
	e.want("SELECT j FROM j WHERE id = 1", "[-9007199254740993, 1.5]")
	e.exec(`INSERT INTO j (id, j) VALUES (1, 'null') ON DUPLICATE KEY UPDATE j = '[9007199254740995]', k = NULL`)
	e.want("SELECT j, k FROM j WHERE id = 1", "[9007199254740995]|NULL")
	e.exec("REPLACE INTO j SELECT 7, CONCAT('[', 9007199254740997, ']'), j FROM j WHERE id = 1")
	e.want("SELECT j, k FROM j WHERE id = 7", "[9007199254740997]|[9007199254740995]")
	e.exec("CREATE TRIGGER tr BEFORE INSERT ON j FOR EACH ROW SET NEW.id = NEW.id + 10")
	e.exec("INSERT INTO j (id, j) VALUES (1, '9007199254740999')")
	e.want("SELECT j FROM j WHERE id = 11", "9007199254740999")
	for _, q := range []string{"INSERT INTO j (id, j) VALUES (9, '{')", "UPDATE j SET j = '{' WHERE id = 1"} {
		if _, err := e.query(q); err == nil {
			t.Errorf("%s was taken", q)
		}
	}
}
