package wire

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestListValues(t *testing.T) {
	for _, tc := range []struct {
		text string
		rows int
		want string // the short form
	}{
		{"INSERT INTO t VALUES (1),(2),(3),(4)", 4, "INSERT INTO t VALUES (1)"},
		{
			"insert t(a,`b c`) values (1,'x''y') , (-2.5e-3,NULL),\n(3,'a\\'b'),( 4 , '' ) ON DUPLICATE KEY UPDATE a = VALUES(a); SELECT 1", 4,
			"insert t(a,`b c`) values (1,'x''y') ON DUPLICATE KEY UPDATE a = VALUES(a); SELECT 1",
		},
		{"REPLACE INTO `d`.`t` VALUE ('),(',1),('',2),('',3),('\\\\',4);", 4, "REPLACE INTO `d`.`t` VALUE ('),(',1);"},
		{"INSERT INTO t VALUES (1),(2),(3)", 0, ""},                                       // few
		{"INSERT INTO t VALUES (1),(2),(3),(now())", 0, ""},                               // no literal
		{"INSERT INTO t VALUES (1),(2),(3),(4+1)", 0, ""},                                 // nor this
		{"INSERT INTO t VALUES (1),(2),(3),(0x1f)", 0, ""},                                // nor this
		{"INSERT INTO t VALUES (1),(2),(3),('a' 'b')", 0, ""},                             // two tokens
		{"INSERT INTO t VALUES (1),(2),(3),(\"a\")", 0, ""},                               // an identifier in ANSI mode
		{"INSERT INTO t VALUES (1),(2),(3),('a\\%')", 0, ""},                              // keeps its backslash
		{"INSERT INTO t VALUES (1),(2),(3),('a)", 0, ""},                                  // unended
		{"INSERT INTO t VALUES (1),(2),(3),(4", 0, ""},                                    // unended
		{"INSERT INTO t VALUES (1),(2),(3),(4),", 0, ""},                                  // unended
		{"INSERT IGNORE INTO t VALUES (1),(2),(3),(4)", 0, ""},                            // warnings
		{"INSERT INTO t SELECT 1", 0, ""},                                                 // no list
		{"INSERT /* c */ INTO t VALUES (1),(2),(3),(4)", 0, ""},                           // a comment
		{"INSERT INTO t VALUES (DEFAULT),(2),(3),(4)", 0, ""},                             // a word
		{"INSERT INTO t VALUES (_utf8mb4'a'),('b'),('c'),('d')", 0, ""},                   // an introducer
		{"INSERT INTO t VALUES (?),(?),(?),(?)", 0, ""},                                   // a parameter
		{"INSERT INTO t (a) VALUES ROW(1),ROW(2),ROW(3),ROW(4)", 0, ""},                   // another form
		{"INSERT INTO t VALUES (nullx),(NULL),(NULL),(NULL)", 0, ""},                      // a name
		{"INSERT INTO t VALUES (),(),(),()", 0, ""},                                       // defaults
		{"INSERT INTO t PARTITION (p) VALUES (1),(2),(3),(4)", 0, ""},                     // a partition
		{"INSERT INTO t VALUES (1,(2)),(2,(3)),(3,(4)),(4,(5))", 0, ""},                   // parentheses
		{"INSERT INTO values VALUES (1),(2),(3),(4)", 4, "INSERT INTO values VALUES (1)"}, // the parser's to judge
	} {
		v := listValues(tc.text)
		if tc.rows == 0 {
			require.Nil(t, v, tc.text)
			continue
		}
		require.NotNil(t, v, tc.text)
		require.Equal(t, tc.rows, v.rows)
		require.Equal(t, tc.want, v.short())
	}
}

func FuzzListValues(f *testing.F) {
	f.Add("INSERT INTO t VALUES (1,'a'),(2,'b\\n'),(3,NULL),(-4.5,'''') ON DUPLICATE KEY UPDATE a = 1")
	f.Fuzz(func(t *testing.T, text string) {
		v := listValues(text)
		if v == nil {
			return
		}
		if v.begin > v.first || v.first > v.end || v.end > len(text) || v.rows < fewRows {
			t.Fatalf("%+v", v)
		}
		s := valueScanner{text: text, pos: v.begin}
		if !s.row() || s.pos != v.first {
			t.Fatalf("first row ends at %d, not at %d", s.pos, v.first)
		}
	})
}

// insertTypes are column types with literals for them: values, what is not quite one, and what the front end has to convert.
var insertTypes = []struct {
	typ   string
	texts []string
}{
	{"TINYINT", []string{"0", "5", "-128", "127", "128", "'7'", "' 7'", "1.5", "TRUE", "'abc'", "NULL"}},
	{"INT UNSIGNED", []string{"4294967295", "12", "4294967296", "-1", "1e1", "0x10", "NULL"}},
	{"BIGINT", []string{"12345", "-3", "9223372036854775807", "-9223372036854775808", "007", "'12'", "NULL"}},
	{"BIGINT UNSIGNED", []string{"7", "5", "18446744073709551615", "'5'", "-1"}},
	{"FLOAT", []string{"1.5", "-0.1", "16777217", "1e39", "'2.5'", "-0", "-0.0"}},
	{"DOUBLE", []string{"0.14285714285714285", "1e308", "1e-5", "-1.5E+3", "123", "'1e5'", "12345678901234567890", ".5", "5.", "-0e0", "NULL"}},
	{"DECIMAL(10,2)", []string{"1.10", "2", "-0.005", "99999999.99", "100000000", "1e3", "'2.50'", ".5", "-0.00", "'x'", "NULL"}},
	{"DATE", []string{"'2024-02-29'", "'0001-01-01'", "'2023-02-29'", "'0000-00-00'", "20240102", "'2024-1-2'", "NULL"}},
	{"DATETIME(6)", []string{"'2024-02-29 23:59:59.123456'", "'1000-01-01 00:00:00'", "'2024-02-29'", "'2024-02-29T01:02:03'", "20240229235959"}},
	{"TIMESTAMP", []string{"'2024-02-29 23:59:59'", "'2000-01-01 12:00:00'", "'2024-03-31 02:30:00'", "'1970-01-01 00:00:00'", "NULL"}},
	{"YEAR", []string{"1999", "'1999'", "99", "0", "2156"}},
	{"CHAR(3)", []string{"'a'", "'abc'", "'abcd'", "'a  '", "'é€x'", "12", "''", "NULL"}},
	{"VARCHAR(8)", []string{"'hello'", `'it''s'`, `'a\nb\\'`, `'a\%b'`, `'tab\t0\0'`, "'ninechars'", "\"dq\"", "'\xff'", "1.0", "'ééééééé'", "NULL"}},
	{"TEXT", []string{"'text'", "''", "UPPER('x')", "NULL"}},
	{"VARBINARY(4)", []string{"'ab'", "'c'", "x'0102'", "'abcde'"}},
	{"ENUM('a','b')", []string{"'a'", "'b'", "'B'", "1", "'c'", "NULL"}},
	{"TIME", []string{"'12:34:56'", "123456", "'x'"}},
	{"SET('x','y')", []string{"'x'", "'x,y'", "3"}},
	{"JSON", []string{`'{"a": 1}'`, "'bad'", "NULL"}},
	{"BIT(5)", []string{"5", "b'101'"}},
}

// A statement does the same from its text and by the front end's rows: same rows, errors and counts.
func TestInsertValuesAgrees(t *testing.T) {
	s := catalogServer(t)
	dbs := map[string]*sql.DB{}
	found := map[string]*sql.DB{}
	for _, name := range []string{"a", "b"} {
		dbs[name] = openDatabase(t, s, name+"?multiStatements=true")
		found[name] = openDatabase(t, s, name+"?clientFoundRows=true")
		for _, db := range []*sql.DB{dbs[name], found[name]} {
			db.SetMaxOpenConns(1)
		}
	}
	exec(t, dbs["b"], "SET lakesql_direct_write = 0")
	exec(t, found["b"], "SET lakesql_direct_write = 0")
	rounds := 250
	if testing.Short() {
		rounds = 50
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	direct := s.Metrics.DirectTotal.Load()
	for round := range rounds {
		create, insert := insertCase(rng)
		use := dbs
		if rng.IntN(4) == 0 {
			use = found
		}
		mode := []string{"", "STRICT_TRANS_TABLES", "NO_AUTO_VALUE_ON_ZERO,STRICT_TRANS_TABLES", "ANSI_QUOTES"}[rng.IntN(4)]
		zone := []string{"SYSTEM", "+02:00", "Europe/Berlin"}[rng.IntN(3)]
		var statements []string
		flushed := rng.IntN(4) == 0 // rows stand in files then
		for range 1 + rng.IntN(3) {
			statements = append(statements, insert())
		}
		var got [2]string
		for i, name := range []string{"a", "b"} {
			db := use[name]
			exec(t, db, "SET sql_mode = '"+mode+"', time_zone = '"+zone+"'")
			exec(t, db, "DROP TABLE IF EXISTS t")
			exec(t, db, create)
			table(t, db, "SELECT LAST_INSERT_ID(0)")
			var b strings.Builder
			for _, q := range statements {
				r, err := db.Exec(q)
				if err != nil {
					fmt.Fprintln(&b, err)
					table(t, db, "SELECT LAST_INSERT_ID(0)") // undefined after an error
					continue                                 // the warnings of the statement before may stand beside its own
				}
				n, _ := r.RowsAffected()
				id, _ := r.LastInsertId()
				if strings.HasPrefix(q, "REPLACE") || strings.Contains(q, "DUPLICATE") {
					id = 0 // the front end's is that of an earlier statement
				}
				fmt.Fprintf(&b, "%d rows, id %d, %s\n", n, id, table(t, db, "SELECT ROW_COUNT(), LAST_INSERT_ID()"))
				list := strings.Split(table(t, db, "SHOW WARNINGS"), "\n")
				slices.Sort(list)
				fmt.Fprintln(&b, strings.Join(list, "\n"))
				if flushed {
					exec(t, db, "FLUSH TABLES")
				}
			}
			// What CURRENT_TIMESTAMP gave is not the same at both runs.
			list := strings.Split(thisYear.ReplaceAllString(table(t, db, "SELECT * FROM t"), "now"), "\n")
			slices.Sort(list)
			got[i] = b.String() + strings.Join(list, "\n")
		}
		require.Equal(t, got[1], got[0], "round %d: sql_mode '%s', time_zone %s\n%s;\n%s", round, mode, zone, create, strings.Join(statements, ";\n"))
	}
	direct = s.Metrics.DirectTotal.Load() - direct
	t.Logf("%d statements from their text", direct)
	require.Greater(t, direct, int64(rounds/4))
}

// thisYear are times around the present: no case has such a literal.
var thisYear = regexp.MustCompile(time.Now().Format("2006") + `-[0-9]{2}-[0-9]{2} [0-9:.]+`)

// insertCase gives a table and a maker of statements for it.
func insertCase(rng *rand.Rand) (create string, insert func() string) {
	auto := rng.IntN(4) == 0
	def := []string{"id INT NOT NULL"}
	if auto {
		def[0] = "id INT NOT NULL AUTO_INCREMENT"
	}
	names := []string{"id"}
	texts := [][]string{nil}
	for i := range 1 + rng.IntN(5) {
		n := rng.IntN(len(insertTypes))
		if rng.IntN(4) > 0 {
			n = rng.IntN(len(insertTypes) - 4) // the last ones always need the front end
		}
		col := fmt.Sprintf("c%d %s", i, insertTypes[n].typ)
		if rng.IntN(4) == 0 {
			col += " NOT NULL"
		}
		def = append(def, col)
		names = append(names, fmt.Sprintf("c%d", i))
		texts = append(texts, insertTypes[n].texts)
	}
	checked := false
	for _, more := range []string{
		"d1 INT DEFAULT 7", "d2 VARCHAR(20) NOT NULL DEFAULT 'x'", "d3 DATETIME DEFAULT '2024-01-01'", "d4 INT DEFAULT (id + 1)", "g1 INT AS (id * 2) STORED",
		"v1 INT AS (id * 3) VIRTUAL", "CHECK (id <> 3)", "u TIMESTAMP DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP", "UNIQUE KEY (c0)", "n1 INT NOT NULL",
	} {
		if rng.IntN(12) == 0 && !(strings.HasPrefix(more, "UNIQUE") && (strings.Contains(def[1], "TEXT") || strings.Contains(def[1], "JSON"))) {
			def = append(def, more)
			checked = true
		}
	}
	if auto || rng.IntN(4) > 0 {
		def = append(def, "PRIMARY KEY (id)")
	}
	create = "CREATE TABLE t (" + strings.Join(def, ", ") + ")"
	return create, func() string {
		var b strings.Builder
		verb := []string{"INSERT INTO", "INSERT INTO", "INSERT INTO", "REPLACE INTO", "insert"}[rng.IntN(5)]
		if verb == "REPLACE INTO" && (auto || strings.Contains(create, "UNIQUE")) {
			// In the front end LAST_INSERT_ID() does not change, and a row that replaces two counts as one that replaces one.
			verb = "INSERT INTO"
		}
		fmt.Fprintf(&b, "%s t ", verb)
		listed := checked || auto || rng.IntN(2) == 0
		order := make([]int, len(names))
		for i := range order {
			order[i] = i
		}
		if listed {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			if auto && rng.IntN(3) == 0 {
				order = slices.DeleteFunc(order, func(i int) bool { return i == 0 })
			}
			var list []string
			for _, i := range order {
				list = append(list, names[i])
			}
			fmt.Fprintf(&b, "(%s) ", strings.Join(list, ", "))
		}
		b.WriteString("VALUES ")
		rows := 1 + rng.IntN(30)
		odd := rng.IntN(3) == 0 // has literals that need the front end
		explicit := rng.IntN(2) == 0
		for r := range rows {
			if r > 0 {
				b.WriteString(", ")
			}
			var row []string
			for _, i := range order {
				switch {
				case i == 0 && auto && !explicit:
					row = append(row, []string{"NULL", "0"}[rng.IntN(2)])
				case i == 0:
					row = append(row, fmt.Sprint(1+rng.IntN(3*rows+20)))
				case odd:
					row = append(row, texts[i][rng.IntN(len(texts[i]))])
				default:
					row = append(row, texts[i][rng.IntN(2)%len(texts[i])])
				}
			}
			if odd && rng.IntN(40) == 0 {
				row = row[1:]
			}
			b.WriteString("(" + strings.Join(row, ",") + ")")
		}
		if !strings.HasPrefix(verb, "REPLACE") && rng.IntN(2) == 0 {
			b.WriteString(" ON DUPLICATE KEY UPDATE ")
			var set []string
			for _, n := range names[1:] {
				if rng.IntN(3) > 0 {
					set = append(set, n+" = VALUES("+n+")")
				}
			}
			switch {
			case len(set) == 0:
				set = append(set, "id = id + 1000")
			case rng.IntN(6) == 0:
				set = append(set, "c0 = c0")
			}
			b.WriteString(strings.Join(set, ", "))
		}
		return b.String()
	}
}

// The rest of a text with several statements is run, a transaction is the front end's, and names and rights are checked.
func TestInsertValuesAround(t *testing.T) {
	s := catalogServer(t)
	db := openDatabase(t, s, "a?multiStatements=true")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
	direct := func(want int64, query string) {
		t.Helper()
		before := s.Metrics.DirectTotal.Load()
		exec(t, db, query)
		require.Equal(t, want, s.Metrics.DirectTotal.Load()-before, query)
	}
	direct(1, "INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d'); INSERT INTO t VALUES (5,'e'); DELETE FROM t WHERE id = 1")
	require.Equal(t, "2\tb\n3\tc\n4\td\n5\te", table(t, db, "SELECT * FROM t ORDER BY id"))
	exec(t, db, "BEGIN")
	direct(1, "REPLACE INTO t VALUES (2,'x'),(3,'x'),(4,'x'),(9,'x')")
	require.Equal(t, "4", table(t, db, "SELECT COUNT(*) FROM t WHERE v = 'x'"))
	_, err := db.Exec("INSERT INTO t VALUES (10,'a'),(11,'b'),(12,'c'),(2,'d')")
	var e *driver.MySQLError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "Duplicate entry '2' for key 't.PRIMARY'", e.Message)
	require.Equal(t, "5", table(t, db, "SELECT COUNT(*) FROM t"))
	exec(t, db, "ROLLBACK")
	require.Equal(t, "2\tb\n3\tc\n4\td\n5\te", table(t, db, "SELECT * FROM t ORDER BY id"))
	for _, q := range []struct {
		text string
		num  uint16
	}{
		{"INSERT INTO missing VALUES (1),(2),(3),(4)", 1146},
		{"INSERT INTO t (id, w) VALUES (1,1),(2,2),(3,3),(4,4)", 1054},
		{"INSERT INTO t VALUES (1),(2),(3),(4)", 1136},
		{"INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d') ON DUPLICATE", 1064},
		{"INSERT INTO t VALUES (21,'a'),(22,'b'),(23,'c'),('x','d')", 1366},
		{"INSERT INTO t VALUES (21,'a'),(22,'b'),(23,'c'),(NULL,'d')", 1048},
	} {
		_, err := db.Exec(q.text)
		require.ErrorAs(t, err, &e, q.text)
		require.Equal(t, q.num, e.Number, "%s: %s", q.text, e.Message)
	}
	require.Equal(t, "2\tb\n3\tc\n4\td\n5\te", table(t, db, "SELECT * FROM t ORDER BY id"))

	// Triggers and foreign keys want every row.
	exec(t, db, "CREATE TABLE log (id INT)")
	exec(t, db, "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES (NEW.id)")
	direct(0, "INSERT INTO t VALUES (31,'a'),(32,'b'),(33,'c'),(34,'d')")
	require.Equal(t, "4\t130", table(t, db, "SELECT COUNT(*), SUM(id) FROM log"))
	exec(t, db, "DROP TRIGGER tr")
	exec(t, db, "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id))")
	direct(0, "INSERT INTO child VALUES (1,31),(2,32),(3,33),(4,34)")
	_, err = db.Exec("INSERT INTO child VALUES (5,31),(6,32),(7,33),(8,99)")
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1452, e.Number)

	exec(t, db, "CREATE USER u")
	exec(t, db, "GRANT SELECT ON a.* TO u")
	cfg := driver.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", s.Addr().String(), "u", "a"
	_, err = openConfig(t, cfg).Exec("INSERT INTO t VALUES (41,'a'),(42,'b'),(43,'c'),(44,'d')")
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1142, e.Number, e.Message)
}
