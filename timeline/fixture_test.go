package timeline

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/storage"
)

const fixtureFolder = "../testdata/hudi"

// fixtures gives the names of the version 6 tables that Hudi wrote.
func fixtures(t testing.TB) []string { return fixturesLike(t, "v6_*") }

// laterFixtures gives the names of the tables of versions 8 and 9.
func laterFixtures(t testing.TB) []string { return fixturesLike(t, "v[89]_*") }

func fixturesLike(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixtureFolder, pattern+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no tables in %s", fixtureFolder)
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(p), ".tar.gz")
	}
	return names
}

// unpack gives a store with the table in a folder of its name.
func unpack(t testing.TB, name string) storage.Store {
	t.Helper()
	fs, root := vfs.NewMem(), "hudi"
	f, err := os.Open(filepath.Join(fixtureFolder, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = fs.MkdirAll(path, 0o755)
		} else {
			b := make([]byte, h.Size)
			if _, err = io.ReadFull(r, b); err == nil {
				if err = fs.MkdirAll(filepath.Dir(path), 0o755); err == nil {
					err = writeFile(fs, path, b)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return storage.NewLocal(fs, root)
}

func writeFile(fs vfs.FS, path string, b []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func memStore() storage.Store { return storage.NewLocal(vfs.NewMem(), "warehouse") }

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func content(t testing.TB, s storage.Store, name string) []byte {
	t.Helper()
	return must(readObject(context.Background(), s, name))(t)
}

func listing(t testing.TB, s storage.Store, dir string) []string {
	t.Helper()
	var out []string
	for info, err := range s.List(context.Background(), dir) {
		if err != nil {
			t.Fatal(err)
		}
		if !info.Dir {
			out = append(out, info.Name)
		}
	}
	return out
}
