package dialect

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
)

// readSuite gives the text of a file of cases, "" for any other file.
func readSuite(path string) (string, error) {
	name := strings.TrimSuffix(path, ".gz")
	if !strings.HasSuffix(name, ".test") && !strings.HasSuffix(name, ".case") && !strings.HasSuffix(name, ".sql") {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	var r io.Reader = f
	if name != path {
		if r, err = gzip.NewReader(f); err != nil {
			return "", err
		}
	}
	b, err := io.ReadAll(r)
	return string(b), err
}
