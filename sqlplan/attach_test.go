package sqlplan

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// unpack puts a table that Hudi wrote below a folder and gives the table's own folder.
func unpack(t *testing.T, fs vfs.FS, name, to string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("../testdata/hudi", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	root := ""
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, filepath.FromSlash(h.Name))
		if i := strings.Index(path, "/.hoodie"); i >= 0 && root == "" {
			root = path[:i]
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := fs.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, r); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// CREATE TABLE … USING hudi LOCATION attaches a table of another engine, and DROP leaves its files.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	location := unpack(t, vfs.Default, "v6_cow_plain", filepath.Join(dir, "foreign"))
	ctx := context.Background()
	c, err := catalog.Open(ctx, filepath.Join(dir, "data"), catalog.Options{SortKey: SortKey})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(ctx, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	s := (&testEngine{Engine: e, t: t}).session()
	s.exec("CREATE TABLE f USING hudi LOCATION '" + location + "'")
	if got := s.table("SELECT COUNT(*) FROM f"); got == "0\n" {
		t.Error("no rows")
	}
	if got := s.table("SHOW CREATE TABLE f"); !strings.Contains(got, "PRIMARY KEY") {
		t.Error(got)
	}
	s.want("SELECT COUNT(*) - COUNT(DISTINCT _hoodie_record_key) FROM f", "0")
	s.fails("CREATE TABLE g USING hudi LOCATION '"+filepath.Join(dir, "nowhere")+"'", "")
	s.exec("DROP TABLE f")
	s.fails("SELECT * FROM f", "1146")
	if _, err := os.Stat(filepath.Join(location, ".hoodie")); err != nil {
		t.Error(err)
	}
}

// Tables of versions 8 and 9 are read, and a statement that would change them is refused.
func TestAttachLaterVersions(t *testing.T) {
	e := newTestEngine(t)
	s := e.session()
	for name, c := range map[string]struct{ version, rows, row string }{
		"v8_mor_logs": {"8", "31", "12|name12|paris"}, "v9_cow_plain": {"9", "47", "12|name12_u|paris"},
	} {
		s.exec("CREATE TABLE f USING hudi LOCATION '" + unpack(t, e.fs, name, "/hudi") + "'")
		s.want("SELECT COUNT(*) FROM f", c.rows)
		s.want("SELECT COUNT(DISTINCT _hoodie_record_key) FROM f", c.rows)
		s.want("SELECT id, name, city FROM f WHERE id = 12", c.row)
		for _, q := range []string{"INSERT INTO f SELECT * FROM f", "UPDATE f SET name = 'x' WHERE id = 12", "DELETE FROM f WHERE id = 12"} {
			s.fails(q, "table version "+c.version)
		}
		s.want("SELECT COUNT(*) FROM f", c.rows)
		if got := s.table("CHECK TABLE f EXTENDED"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "OK") {
			t.Error(got)
		}
		s.exec("DROP TABLE f")
	}
}

// D12: rows that came past the constraints, as those of another engine do, are served, named by CHECK TABLE … EXTENDED, and fail only the statements
// that touch them. The rows are written below the SQL layer, which alone knows CHECK and foreign keys.
func TestRowsPastConstraints(t *testing.T) {
	e := newTestEngine(t)
	s := e.session()
	s.exec("CREATE TABLE p (id INT PRIMARY KEY)",
		"CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, CONSTRAINT v_positive CHECK (v > 0), CONSTRAINT to_p FOREIGN KEY (p) REFERENCES p (id))",
		"INSERT INTO p VALUES (1)", "INSERT INTO c VALUES (1, 1, 1)", "FLUSH TABLES")
	ctx := context.Background()
	tab, ok := e.Catalog().Table("d", "c")
	if !ok {
		t.Fatal("no table")
	}
	tx, err := e.Catalog().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, row := range []storage.Row{{int32(5), int32(9), int32(1)}, {int32(6), int32(1), int32(-1)}} {
		if err := tx.Insert(ctx, tab, row); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	s.want("SELECT * FROM c ORDER BY id", "1|1|1", "5|9|1", "6|1|-1")
	got := s.table("CHECK TABLE c EXTENDED")
	for _, text := range []string{"constraint v_positive, key", "foreign key to_p, key"} {
		if strings.Count(got, text) != 1 {
			t.Errorf("%q is not named once in:\n%s", text, got)
		}
	}
	s.exec("INSERT INTO c VALUES (10, 1, 3)", "UPDATE c SET v = 2 WHERE id = 1", "DELETE FROM c WHERE id = 1")
	s.fails("UPDATE c SET v = -2 WHERE id = 6", "v_positive")
	s.fails("UPDATE c SET p = 8 WHERE id = 5", "1452")
	s.exec("UPDATE c SET v = 4 WHERE id = 6", "UPDATE c SET p = 1 WHERE id = 5")
	s.want("SELECT * FROM c ORDER BY id", "5|1|1", "6|1|4", "10|1|3")
	if got := s.table("CHECK TABLE c EXTENDED"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "OK") {
		t.Error(got)
	}
}
