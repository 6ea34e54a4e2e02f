package wire

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func readAll(r io.Reader, f format, columns int) (out [][]string) {
	fr := newFieldReader(r, f)
	for {
		more, _ := fr.nextLine()
		if !more {
			return out
		}
		var row []string
		for range columns {
			b, null, ok := fr.field()
			switch {
			case !ok:
				row = append(row, "<missing>")
			case null:
				row = append(row, "<null>")
			default:
				row = append(row, string(b))
			}
		}
		out = append(out, row)
	}
}

func TestFieldReader(t *testing.T) {
	csv := format{fieldEnd: ",", lineEnd: "\n", enclosed: '"', hasEnclosed: true, escape: '\\', hasEscape: true}
	quoteOnly := format{fieldEnd: ",", lineEnd: "\n", enclosed: '"', hasEnclosed: true}
	doubled := format{fieldEnd: ",", lineEnd: "\n", enclosed: '"', hasEnclosed: true, escape: '"', hasEscape: true}
	tsv := format{fieldEnd: "\t", lineEnd: "\n", escape: '\\', hasEscape: true}
	long := format{fieldEnd: "||", lineEnd: "\r\n", escape: '\\', hasEscape: true}
	for _, tc := range []struct {
		name string
		f    format
		in   string
		want [][]string
	}{
		{"plain", tsv, "a\tb\nc\td\n", [][]string{{"a", "b"}, {"c", "d"}}},
		{"no newline at the end", tsv, "a\tb\nc\td", [][]string{{"a", "b"}, {"c", "d"}}},
		{"empty fields", tsv, "\t\nx\t\n", [][]string{{"", ""}, {"x", ""}}},
		{"missing", tsv, "a\n\nb\tc\n", [][]string{{"a", "<missing>"}, {"", "<missing>"}, {"b", "c"}}},
		{"too many", tsv, "a\tb\tc\nd\te\n", [][]string{{"a", "b"}, {"d", "e"}}},
		{"null", tsv, "\\N\tN\nNULL\t\\\\N\n", [][]string{{"<null>", "N"}, {"NULL", `\N`}}},
		{"escapes", tsv, "a\\tb\tc\\nd\nx\\\ty\t\\0\\Z\n", [][]string{{"a\tb", "c\nd"}, {"x\ty", "\x00\x1a"}}},
		{"doubled quote", csv, `"a""b","c"` + "\n", [][]string{{`a"b`, "c"}}},
		{"terminators inside", csv, "\"a,b\nc\",d\n", [][]string{{"a,b\nc", "d"}}},
		{"quote inside", csv, `"a"b",c` + "\n", [][]string{{`a"b`, "c"}}},
		{"quote in plain", csv, `a"b,c` + "\n", [][]string{{`a"b`, "c"}}},
		{"escaped quote", csv, `"a\"b",c` + "\n", [][]string{{`a"b`, "c"}}},
		{"null word", csv, `NULL,"NULL"` + "\n" + `\N,"\N"` + "\n", [][]string{{"<null>", "NULL"}, {"<null>", "<null>"}}},
		{"empty enclosed", csv, `"",""` + "\n", [][]string{{"", ""}}},
		{"no escape", quoteOnly, `"a\",b""c"` + "\n", [][]string{{`a\`, `b""c"`}}},
		{"escape is the quote", doubled, `"a""b","c\n"` + "\n", [][]string{{`a"b`, `c\n`}}},
		{"open quote at the end", csv, `"abc`, [][]string{{`"abc`, "<missing>"}}},
		{"long terminators", long, "a|b||c\rd\r\ne||f\r\n", [][]string{{"a|b", "c\rd"}, {"e", "f"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, readAll(strings.NewReader(tc.in), tc.f, 2))
			require.Equal(t, tc.want, readAll(iotest.OneByteReader(strings.NewReader(tc.in)), tc.f, 2))
		})
	}
	start := tsv
	start.lineStart = "xxx"
	require.Equal(t, [][]string{{"a", "1"}, {"b", "2"}}, readAll(strings.NewReader("xxxa\t1\nskipped xxxb\t2\nnothing\n"), start, 2))
}

// A file written by MySQL's rules reads back to the same fields, at every block border.
func TestFieldReaderRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "bc", `"`, `\`, ",", "\n", "\t", "N", "NULL", "é", "\x00", strings.Repeat("z", 5000)}
	for round := range 300 {
		f := format{fieldEnd: []string{",", "\t", ";;"}[rng.IntN(3)], lineEnd: []string{"\n", "\r\n"}[rng.IntN(2)], escape: '\\', hasEscape: true}
		f.hasEnclosed = rng.IntN(2) == 0
		f.enclosed = '"'
		var want [][]string
		var file bytes.Buffer
		for range 1 + rng.IntN(60) {
			var row []string
			for c := range 3 {
				if c > 0 {
					file.WriteString(f.fieldEnd)
				}
				if rng.IntN(10) == 0 {
					row = append(row, "<null>")
					file.WriteString(`\N`)
					continue
				}
				var v string
				for range rng.IntN(5) {
					v += alphabet[rng.IntN(len(alphabet))]
				}
				if v == "NULL" || v == "N" {
					v = "x" + v
				}
				row = append(row, v)
				text := strings.ReplaceAll(v, `\`, `\\`)
				if f.hasEnclosed {
					file.WriteString(`"` + strings.ReplaceAll(text, `"`, []string{`""`, `\"`}[rng.IntN(2)]) + `"`)
					continue
				}
				for _, b := range []byte(text) {
					if b == f.fieldEnd[0] || b == f.lineEnd[0] || b == '\n' {
						if b == '\n' {
							file.WriteString(`\n`)
							continue
						}
						file.WriteByte('\\')
						if b == '\t' {
							b = 't'
						}
					}
					file.WriteByte(b)
				}
			}
			want = append(want, row)
			file.WriteString(f.lineEnd)
		}
		require.Equal(t, want, readAll(bytes.NewReader(file.Bytes()), f, 3), "round %d", round)
		require.Equal(t, want, readAll(iotest.HalfReader(bytes.NewReader(file.Bytes())), f, 3), "round %d", round)
	}
}

func TestLoadDataLocal(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "allowAllFiles=true")
	db.SetMaxOpenConns(1)
	load := func(text string) {
		driver.RegisterReaderHandler("f", func() io.Reader { return strings.NewReader(text) })
	}
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50), n DECIMAL(8,2), d DATE, dt DATETIME(6), f DOUBLE)")
	load("id,v\n1,\"a \"\"quoted\"\" b\",1.5,2024-02-29,2024-01-02 03:04:05.000006,1e3\n2,NULL,NULL,\\N,NULL,-0.25\n")
	r := exec(t, db, `LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY ',' ENCLOSED BY '"' LINES TERMINATED BY '\n' IGNORE 1 LINES`)
	n, _ := r.RowsAffected()
	require.EqualValues(t, 2, n)
	require.Equal(t, "1\ta \"quoted\" b\t1.50\t2024-02-29\t2024-01-02 03:04:05.000006\t1000\n2\t\\N\t\\N\t\\N\t\\N\t-0.25", table(t, db, "SELECT * FROM t ORDER BY id"))

	// variables, SET, columns in another order
	exec(t, db, "TRUNCATE TABLE t")
	load("x|7|2024-01-05\ny|8|\n")
	exec(t, db, `LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY '|' (@v, id, @d) SET v = CONCAT('<', @v, '>'), d = NULLIF(@d, '')`)
	require.Equal(t, "7\t<x>\t2024-01-05\n8\t<y>\t\\N", table(t, db, "SELECT id, v, d FROM t ORDER BY id"))
	load("9,z\n")
	exec(t, db, `LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY ',' (id, v) SET v = UPPER(v), n = id + 1`)
	require.Equal(t, "9\tZ\t10.00", table(t, db, "SELECT id, v, n FROM t WHERE id = 9"))

	// REPLACE, IGNORE on duplicates, another character set
	load("9,\xe9t\xe9\n")
	exec(t, db, `LOAD DATA LOCAL INFILE 'Reader::f' REPLACE INTO TABLE t CHARACTER SET latin1 FIELDS TERMINATED BY ',' (id, v)`)
	require.Equal(t, "été", table(t, db, "SELECT v FROM t WHERE id = 9"))
	load("9,again\n10,ten\n")
	r = exec(t, db, `LOAD DATA LOCAL INFILE 'Reader::f' IGNORE INTO TABLE t FIELDS TERMINATED BY ',' (id, v)`)
	n, _ = r.RowsAffected()
	require.EqualValues(t, 1, n)
	require.Equal(t, "été", table(t, db, "SELECT v FROM t WHERE id = 9"))

	// an error in the middle leaves the connection usable
	load("11,ok\n12,bad\n" + strings.Repeat("13,tail\n", 100000))
	_, err := db.Exec(`LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY ',' (id, v) SET n = (SELECT 1 UNION SELECT 2)`)
	require.Error(t, err)
	require.Equal(t, "1", table(t, db, "SELECT 1"))
	_, err = db.Exec(`LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE missing`)
	var e *driver.MySQLError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1146, e.Number)
	_, err = db.Exec(`LOAD DATA INFILE '/etc/passwd' INTO TABLE t`)
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1290, e.Number)
}

func lineitem(rows int) []byte {
	var b bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&b, "%d|%d|%d|%d|%d|%d.%02d|0.0%d|0.0%d|N|O|1996-%02d-%02d|1996-02-12|1996-03-22|DELIVER IN PERSON|TRUCK|egular courts above the %d\n",
			i/7+1, 155190+i, 7706, i%7+1, i%50+1, 21168+i%100000, i%100, i%10, i%9, i%12+1, i%28+1, i)
	}
	return b.Bytes()
}

func BenchmarkFieldReader(b *testing.B) {
	data := lineitem(100000)
	b.SetBytes(int64(len(data)))
	rows := 0
	for b.Loop() {
		fr := newFieldReader(bytes.NewReader(data), format{fieldEnd: "|", lineEnd: "\n", escape: '\\', hasEscape: true})
		for {
			more, _ := fr.nextLine()
			if !more {
				break
			}
			for range 16 {
				fr.field()
			}
			rows++
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

const lineitemTable = `CREATE TABLE li (l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2),
	l_returnflag CHAR(1), l_linestatus CHAR(1), l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct CHAR(25), l_shipmode CHAR(10), l_comment VARCHAR(44), PRIMARY KEY (l_orderkey, l_linenumber))`

// LOCAL is IGNORE: a bad value becomes the closest good one with a warning, a duplicate is skipped.
func TestLoadDataWarnings(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "allowAllFiles=true")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3) NOT NULL, n TINYINT, d DATE, x DECIMAL(4,1))")
	driver.RegisterReaderHandler("f", func() io.Reader {
		return strings.NewReader("1|été|300|2024-01-01|1.25\n2|longer|abc|nodate|12345\n2|dup|1|2024-01-01|1\n3|\\N||\\N|\n4\n5|a|1|2024-01-01|1|more\n")
	})
	r := exec(t, db, "LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY '|'")
	n, _ := r.RowsAffected()
	require.EqualValues(t, 5, n)
	require.Equal(t, "5", table(t, db, "SELECT ROW_COUNT()"))
	require.Equal(t, "1\tété\t127\t2024-01-01\t1.3\n2\tlon\t0\t0000-00-00\t999.9\n3\t\t0\t\\N\t0.0\n4\t\t\\N\t\\N\t\\N\n5\ta\t1\t2024-01-01\t1.0", table(t, db, "SELECT * FROM t ORDER BY id"))
	driver.RegisterReaderHandler("f", func() io.Reader { return strings.NewReader("6|longer\n1|x\n") })
	exec(t, db, "LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY '|' (id, v)")
	require.Equal(t, "Warning\t1062\tDuplicate entry '1' for key 'PRIMARY'\nWarning\t1265\tData truncated for column 'v' at row 1", table(t, db, "SHOW WARNINGS"))
}
