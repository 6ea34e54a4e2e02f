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

	"github.com/lakesql/lakesql/catalog"
)

// unpack puts a table that Hudi wrote below a folder and gives the table's own folder.
func unpack(t *testing.T, name, to string) string {
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// CREATE TABLE … USING hudi LOCATION attaches a table of another engine, and DROP leaves its files.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	location := unpack(t, "v6_cow_plain", filepath.Join(dir, "foreign"))
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
