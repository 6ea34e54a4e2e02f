package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers is the import order: a package imports only packages of ours that stand above it.
var layers = []string{
	"storage/hfile",
	"storage",
	"timeline",
	"index",
	"catalog",
	"catalog/ingest",
	"sqlplan/dialect",
	"sqlplan",
	"sqlplan/wire",
	"sqlplan/driver",
	"cmd/lakesql",
}

const module = "github.com/lakesql/lakesql"

// frontEnd are the modules of the SQL engine and of MySQL's protocol.
var frontEnd = []string{
	"github.com/dolthub/",
	"github.com/go-sql-driver/mysql",
}

// layerErrors returns what is wrong with the imports of one file of package pkg (a path below the module).
func layerErrors(pkg string, imports []string) []string {
	rank := slices.Index(layers, pkg)
	if rank < 0 {
		return []string{"package " + pkg + " is not in the list of layers"}
	}
	var bad []string
	for _, imp := range imports {
		if rest, ours := strings.CutPrefix(imp, module+"/"); ours {
			switch to := slices.Index(layers, rest); {
			case to < 0:
				bad = append(bad, pkg+" imports "+rest+", which is not in the list of layers")
			case to > rank: // a package's own external tests import it: equal is fine
				bad = append(bad, pkg+" imports "+rest+", which stands below it")
			}
		}
		sqlSide := pkg == "sqlplan" || strings.HasPrefix(pkg, "sqlplan/") || pkg == "cmd/lakesql"
		if !sqlSide && slices.ContainsFunc(frontEnd, func(p string) bool { return strings.HasPrefix(imp, p) }) {
			bad = append(bad, pkg+" imports "+imp+": only sqlplan and cmd/lakesql know the SQL engine and MySQL")
		}
	}
	return bad
}

// TestLayers reads the imports of every Go file, tests included, whatever their build tags say.
func TestLayers(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != root && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		var imports []string
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, p)
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, e := range layerErrors(filepath.ToSlash(dir), imports) {
			t.Errorf("%s: %s", name, e)
		}
		return nil
	}))
	require.NotZero(t, files)
}

func TestLayerRules(t *testing.T) {
	require.Empty(t, layerErrors("catalog", []string{"fmt", module + "/storage", module + "/index", "github.com/cockroachdb/pebble/v2"}))
	require.Empty(t, layerErrors("sqlplan/wire", []string{module + "/sqlplan", "github.com/dolthub/vitess/go/mysql"}))
	require.Empty(t, layerErrors("storage", []string{module + "/storage"}))
	require.Contains(t, layerErrors("storage", []string{module + "/timeline"})[0], "stands below it")
	require.Contains(t, layerErrors("catalog", []string{module + "/sqlplan/driver"})[0], "stands below it")
	require.Contains(t, layerErrors("catalog", []string{module + "/util"})[0], "is not in the list")
	require.Contains(t, layerErrors("util", nil)[0], "is not in the list")
	require.Contains(t, layerErrors("catalog", []string{"github.com/dolthub/go-mysql-server/sql"})[0], "only sqlplan and cmd/lakesql")
	require.Contains(t, layerErrors("index", []string{"github.com/go-sql-driver/mysql"})[0], "only sqlplan and cmd/lakesql")
}
