package sqlplan

import (
	"strings"
	"testing"
)

// Changes of columns that readers follow by themselves leave the rows where they are, those in files and those that wait; others rewrite
// them by one replacecommit. AS OF shows what was, with the types of its time.
func TestModifyRewrites(t *testing.T) {
	for _, c := range []struct {
		clause   string
		rewrites bool
	}{
		{"MODIFY v VARCHAR(200)", false},
		{"MODIFY v TEXT", false},
		{"MODIFY v VARCHAR(10) COLLATE utf8mb4_bin", false},
		{"MODIFY n BIGINT", false},
		{"MODIFY n BIGINT, ADD KEY (n), ADD COLUMN z INT, DROP COLUMN w", false},
		{"MODIFY f DOUBLE", false},
		{"MODIFY e ENUM('a','b','c')", false},
		{"MODIFY e ENUM('b','a')", false},
		{"MODIFY s SET('x','y','z')", false},
		{"MODIFY w VARCHAR(10) NULL COMMENT 'none'", false},
		{"ALTER COLUMN n SET DEFAULT 5", false},
		{"MODIFY v VARCHAR(5)", true},
		{"MODIFY n BIGINT NOT NULL", true},
		{"MODIFY n VARCHAR(20)", true},
		{"MODIFY s SET('z','x','y')", true},
		{"MODIFY d DECIMAL(12,2)", true}, // Spark cannot read the old files as that
		{"CHANGE n n2 BIGINT", true},
		{"ADD COLUMN z INT NOT NULL DEFAULT 4", true},
	} {
		t.Run(c.clause, func(t *testing.T) {
			e := newTestEngine(t)
			s := e.session()
			s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10), n INT, f FLOAT, e ENUM('a','b'), s SET('x','y'), d DECIMAL(6,2), w VARCHAR(10) NOT NULL DEFAULT 'w')",
				"INSERT INTO t (id, v, n, f, e, s, d) VALUES (1, 'one', 1, 1.5, 'a', 'x,y', 1.25)", "FLUSH TABLES",
				"INSERT INTO t (id, v, n, f, e, s, d) VALUES (2, 'two', 2, 2.5, 'b', 'y', 2.5)", "SET @before = NOW(6)")
			s.exec("ALTER TABLE t " + c.clause)
			tab, _ := e.catalog.Table("d", "t")
			names, err := e.fs.List(tab.Location() + "/.hoodie")
			if err != nil {
				t.Fatal(err)
			}
			rewrites := 0
			for _, name := range names {
				if strings.HasSuffix(name, ".replacecommit") {
					rewrites++
				}
			}
			if (rewrites > 0) != c.rewrites {
				t.Fatalf("%d rewrites", rewrites)
			}
			want := []string{"1|one|1.5|a|x,y|1.25", "2|two|2.5|b|y|2.50"}
			s.want("SELECT id, v, f, e, s, d FROM t ORDER BY id", want...)
			s.want("SELECT id, v, f, e, s, d FROM t AS OF @before ORDER BY id", want...)
			s.exec("FLUSH TABLES")
			s.want("SELECT id, v, f, e, s, d FROM t ORDER BY id", want...)
			s.want("SELECT id, v, n, f, e, s, d, w FROM t AS OF @before ORDER BY id", "1|one|1|1.5|a|x,y|1.25|w", "2|two|2|2.5|b|y|2.50|w")
		})
	}
}
