package wire

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	gms "github.com/dolthub/go-mysql-server/sql"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
)

// catalogServer serves a warehouse in memory with the databases a and b.
func catalogServer(t testing.TB) *Server {
	t.Helper()
	c, err := catalog.Open(context.Background(), "data", catalog.Options{FS: vfs.NewMem(), SortKey: sqlplan.SortKey})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	admin := openDatabase(t, s, "")
	exec(t, admin, "CREATE DATABASE a")
	exec(t, admin, "CREATE DATABASE b")
	return s
}

// loadTypes are column types with texts for them: values, and what is none or not quite.
var loadTypes = []struct {
	typ   string
	texts []string
}{
	{"TINYINT", []string{"0", "5", "-128", "127", "128", "-129", "1.5", " 7", "7 ", "abc", "", "1e1", "+4", "007", "0x10"}},
	{"TINYINT UNSIGNED", []string{"0", "255", "256", "-1", "x9"}},
	{"SMALLINT", []string{"32767", "-32768", "99999", "12"}},
	{"SMALLINT UNSIGNED", []string{"65535", "65536", "0"}},
	{"MEDIUMINT", []string{"8388607", "8388608", "-8388608", "1"}},
	{"MEDIUMINT UNSIGNED", []string{"16777215", "16777216", "3"}},
	{"INT", []string{"2147483647", "2147483648", "-5", "12.5", "1,000", "--1", "-"}},
	{"INT UNSIGNED", []string{"4294967295", "4294967296", "-1", "9"}},
	{"BIGINT", []string{"9223372036854775807", "-9223372036854775808", "9223372036854775808", "123456789012345678", "1"}},
	{"BIGINT UNSIGNED", []string{"18446744073709551615", "18446744073709551616", "9223372036854775808", "5", "-1"}},
	{"FLOAT", []string{"1.5", "-0.1", "3.4e38", "1e39", "abc", "1e", "", "16777217", "0.1"}},
	{"DOUBLE", []string{"1.5", "-2", "1e308", "1e309", "12abc", "1_0", "0x1p4", "inf", "nan", ".5", "5."}},
	{"DECIMAL(10,2)", []string{"1.10", "-0.005", "0.005", "99999999.99", "100000000", "1e3", "", "-", ".", ".5", "5.", "00012.3", "-0.00", "1.2.3"}},
	{"DECIMAL(30,10)", []string{"12345678901234567890.1234567890", "1", "0.00000000001", "-1.5"}},
	{"DATE", []string{"2024-02-29", "2023-02-29", "0000-00-00", "0001-01-01", "9999-12-31", "2024-1-2", "20240102", "2024-01-02 03:04:05", "nodate", "", "2024-00-10", "24-01-02"}},
	{"DATETIME", []string{"2024-02-29 23:59:59", "2024-02-29T12:00:00", "2024-02-29", "2024-02-29 23:59:59.5", "2024-02-30 00:00:00", "0000-00-00 00:00:00", "x", "2024-02-29 24:00:00"}},
	{"DATETIME(6)", []string{"2024-02-29 23:59:59.123456", "2024-02-29 23:59:59.1", "2024-02-29 23:59:59.1234567", "2024-02-29 23:59:59."}},
	{"TIMESTAMP", []string{"2024-02-29 23:59:59", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2038-01-20 00:00:00", "1969-12-31 00:00:00", "x", "2024-03-31 02:30:00"}},
	{"TIME", []string{"12:34:56", "-01:02:03", "838:59:59", "839:00:00", "12:34", "x", "123456"}},
	{"YEAR", []string{"1999", "2155", "2156", "1900", "70", "0", "0000", "x"}},
	{"CHAR(3)", []string{"a", "abc", "abcd", "é€x", "a  ", "", "\xff", "a\xffb"}},
	{"VARCHAR(5)", []string{"hello", "hello!", "ééééé", "éééééé", "a ", "", "\xf0\x9f\x98\x80", "ok\xc3", "a\tb"}},
	{"VARCHAR(5) CHARACTER SET latin1", []string{"h", "é", "toolong"}},
	{"TEXT", []string{"some text", "", "line\nbreak", "back\\slash", "\xfe"}},
	{"TINYTEXT", []string{"é", strings.Repeat("x", 255), strings.Repeat("x", 256)}},
	{"BINARY(3)", []string{"ab", "abc", "abcd"}},
	{"VARBINARY(4)", []string{"ab", "\xff\x00", "abcde"}},
	{"BLOB", []string{"\x00\x01", "text"}},
	{"ENUM('a','b','Ö')", []string{"a", "A", "b", "ö", "c", "1", "0", "9", "", "a "}},
	{"SET('x','y','z')", []string{"x", "x,y", "z,x", "w", "", "X", "1"}},
	{"BIT(5)", []string{"a", "\x05", "abc"}},
	{"JSON", []string{`{"a":1}`, "[1, 2]", "bad", `"s"`, "1"}},
}

// A statement does the same by column and by rows: same rows, errors, warnings and counts.
func TestLoadTypedAgrees(t *testing.T) {
	s := catalogServer(t)
	dir := t.TempDir()
	_, old, _ := gms.SystemVariables.GetGlobal("secure_file_priv")
	require.NoError(t, gms.SystemVariables.AssignValues(map[string]any{"secure_file_priv": dir}))
	t.Cleanup(func() { require.NoError(t, gms.SystemVariables.AssignValues(map[string]any{"secure_file_priv": old})) })
	dbs := map[string]*sql.DB{}
	for _, name := range []string{"a", "b"} {
		db := openDatabase(t, s, name+"?allowAllFiles=true")
		db.SetMaxOpenConns(1)
		dbs[name] = db
	}
	exec(t, dbs["b"], "SET lakesql_direct_write = 0")
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range rounds {
		c := newLoadCase(rng)
		var file strings.Builder
		c.write(rng, &file, 1+rng.IntN(40))
		path := filepath.Join(dir, "f")
		require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))
		driver.RegisterReaderHandler("f", func() io.Reader { return strings.NewReader(file.String()) })
		mode := []string{"", "", "NO_AUTO_VALUE_ON_ZERO"}[rng.IntN(3)]
		zone := []string{"SYSTEM", "+02:00", "Europe/Berlin"}[rng.IntN(3)]
		query := c.statement(path)
		var got, rows, warnings [2]string
		for i, name := range []string{"a", "b"} {
			db := dbs[name]
			exec(t, db, "SET sql_mode = '"+mode+"', time_zone = '"+zone+"'")
			exec(t, db, "DROP TABLE IF EXISTS t")
			exec(t, db, c.create)
			if c.before != "" {
				exec(t, db, c.before)
			}
			r, err := db.Exec(query)
			if err != nil {
				got[i] = err.Error()
			} else {
				n, _ := r.RowsAffected()
				got[i] = fmt.Sprintf("%d rows", n)
				list := strings.Split(table(t, db, "SHOW WARNINGS"), "\n")
				slices.Sort(list)
				warnings[i] = strings.Join(list, "\n")
			}
			list := strings.Split(table(t, db, "SELECT * FROM t"), "\n")
			slices.Sort(list)
			rows[i] = strings.Join(list, "\n")
		}
		what := fmt.Sprintf("round %d: sql_mode '%s', time_zone %s\n%s\n%s\n%q", round, mode, zone, c.create, query, file.String())
		require.Equal(t, rows[1], rows[0], got[0]+what)
		if strings.HasPrefix(got[1], "Error") && (c.list != nil || c.rich) {
			require.Contains(t, got[0], "Error", what) // the columns come in another order
			continue
		}
		require.Equal(t, got[1], got[0], what)
		if !c.rich {
			require.Equal(t, warnings[1], warnings[0], what)
		}
	}
}

// loadCase is a table and a file for it.
type loadCase struct {
	create, before string
	columns        []int // types by loadTypes, after the key
	list           []string
	texts          [][]string // by field; nil: the key
	fields, lines  string
	enclosed       bool
	escaped        bool
	local          bool
	ignore         string
	skip           int
	// rich: the table has what the rows of the front end's general insert serve, whose conversions and warnings are others.
	// The values are then such as need neither.
	rich bool
}

func newLoadCase(rng *rand.Rand) *loadCase {
	c := &loadCase{
		fields: []string{",", "\t", "||"}[rng.IntN(3)], lines: []string{"\n", "\r\n"}[rng.IntN(2)],
		enclosed: rng.IntN(2) == 0, escaped: rng.IntN(4) > 0, local: rng.IntN(3) > 0, skip: rng.IntN(3),
	}
	if rng.IntN(3) == 0 {
		c.ignore = "IGNORE"
	}
	c.rich = rng.IntN(3) == 0
	def := []string{"id INT"}
	if c.rich && rng.IntN(2) == 0 {
		def[0] = "id INT AUTO_INCREMENT"
	}
	c.list = []string{"id"}
	c.texts = [][]string{nil}
	for i := range 1 + rng.IntN(6) {
		n := rng.IntN(len(loadTypes))
		c.columns = append(c.columns, n)
		col := fmt.Sprintf("c%d %s", i, loadTypes[n].typ)
		if rng.IntN(4) == 0 && !c.rich {
			col += " NOT NULL"
		}
		def = append(def, col)
		c.list = append(c.list, fmt.Sprintf("c%d", i))
		c.texts = append(c.texts, loadTypes[n].texts)
		if c.rich {
			c.texts[i+1] = loadTypes[n].texts[:1]
		}
	}
	keys := rng.IntN(4)
	if c.rich {
		for _, more := range []string{
			"d1 INT DEFAULT 7", "d2 VARCHAR(20) NOT NULL DEFAULT 'x'", "d3 DATETIME DEFAULT '2024-01-01'", "d4 INT DEFAULT (id + 1)",
			"g1 INT AS (id * 2) STORED", "g2 VARCHAR(40) AS (CONCAT(d2, '-', g1)) STORED", "CHECK (id <> 3)", "CONSTRAINT odd CHECK (id < 1000 OR id IS NULL)",
		} {
			if rng.IntN(2) == 0 && (!strings.HasPrefix(more, "g2") || strings.Contains(strings.Join(def, ","), "g1") && strings.Contains(strings.Join(def, ","), "d2")) {
				def = append(def, more)
			}
		}
		if strings.Contains(def[0], "AUTO") {
			keys = 2
		}
		if rng.IntN(3) == 0 {
			c.ignore = "REPLACE"
		}
		c.before = "INSERT INTO t (id) VALUES (1), (2), (5)"
	}
	switch keys {
	case 0:
		def = append(def, "UNIQUE KEY u (id)")
	case 1:
	default:
		def = append(def, "PRIMARY KEY (id)")
	}
	c.create = "CREATE TABLE t (" + strings.Join(def, ", ") + ")"
	switch rng.IntN(4) {
	case 0: // another order, and a variable between
		rng.Shuffle(len(c.list), func(i, j int) {
			c.list[i], c.list[j] = c.list[j], c.list[i]
			c.texts[i], c.texts[j] = c.texts[j], c.texts[i]
		})
		at := rng.IntN(len(c.list) + 1)
		c.list = slices.Insert(c.list, at, "@v")
		c.texts = slices.Insert(c.texts, at, []string{"v", ""})
	default:
		if !c.rich {
			c.list = nil
		}
	}
	return c
}

func (c *loadCase) write(rng *rand.Rand, w *strings.Builder, lines int) {
	for range c.skip {
		w.WriteString("skipped" + c.lines)
	}
	for range lines {
		n := len(c.texts)
		switch rng.IntN(20) {
		case 0:
			if !c.rich { // expressions would see NULL in the key where it becomes 0
				n = rng.IntN(n)
			}
		case 1:
			n++
		}
		for i := range n {
			if i > 0 {
				w.WriteString(c.fields)
			}
			v := "more"
			switch {
			case i >= len(c.texts):
			case rng.IntN(12) == 0 && (!c.rich || c.escaped && (c.texts[i] != nil || strings.Contains(c.create, "AUTO"))):
				w.WriteString(`\N`)
				continue
			case c.texts[i] == nil:
				v = fmt.Sprint(rng.IntN(3 * lines))
			default:
				v = c.texts[i][rng.IntN(len(c.texts[i]))]
			}
			if c.escaped {
				v = strings.ReplaceAll(v, `\`, `\\`)
				v = strings.ReplaceAll(v, "\n", `\n`)
				v = strings.ReplaceAll(v, "\t", `\t`)
				v = strings.ReplaceAll(v, "\x00", `\0`)
			}
			if c.enclosed && rng.IntN(2) == 0 {
				v = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
			}
			w.WriteString(v)
		}
		w.WriteString(c.lines)
	}
}

func (c *loadCase) statement(path string) string {
	var b strings.Builder
	b.WriteString("LOAD DATA ")
	if c.local {
		path = "Reader::f"
		b.WriteString("LOCAL ")
	}
	fmt.Fprintf(&b, "INFILE '%s' %s INTO TABLE t FIELDS TERMINATED BY '%s'", path, c.ignore, c.fields)
	if c.enclosed {
		b.WriteString(" OPTIONALLY ENCLOSED BY '\"'")
	}
	if !c.escaped {
		b.WriteString(" ESCAPED BY ''")
	}
	fmt.Fprintf(&b, " LINES TERMINATED BY '%s'", strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(c.lines))
	if c.skip > 0 {
		fmt.Fprintf(&b, " IGNORE %d LINES", c.skip)
	}
	if c.list != nil {
		b.WriteString(" (" + strings.Join(c.list, ", ") + ")")
	}
	return b.String()
}
