package hfile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hudiFile is an HFile that Hudi wrote: a base file, or a data block of a log file of a metadata table.
type hudiFile struct {
	name string
	data []byte
}

// hudiFiles gives every HFile of the tables that Hudi wrote.
func hudiFiles(t testing.TB) []hudiFile {
	t.Helper()
	tables, err := filepath.Glob("../../testdata/hudi/*_metadata.tar.gz")
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	var out []hudiFile
	for _, table := range tables {
		f, err := os.Open(table)
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			if !strings.Contains(h.Name, "/.hoodie/metadata/") {
				continue
			}
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			switch {
			case path.Ext(h.Name) == ".hfile":
				out = append(out, hudiFile{h.Name, b})
			case strings.Contains(path.Base(h.Name), ".log."):
				for _, content := range hfileBlocks(t, b) {
					out = append(out, hudiFile{h.Name, content})
				}
			}
		}
		require.NoError(t, f.Close())
	}
	return out
}

// hfileBlocks gives the contents of the HFile blocks of a log file that is known to be whole.
func hfileBlocks(t testing.TB, b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		require.Equal(t, "#HUDI#", string(b[:6]))
		size := binary.BigEndian.Uint64(b[6:])
		blk := b[14 : 14+size]
		b = b[14+size:]
		kind := binary.BigEndian.Uint32(blk[4:])
		p := blk[12:]
		for range binary.BigEndian.Uint32(blk[8:]) {
			p = p[8+binary.BigEndian.Uint32(p[4:]):]
		}
		if kind == 4 {
			out = append(out, p[8:8+binary.BigEndian.Uint64(p)])
		}
	}
	return out
}

func openBytes(f hudiFile) (*Reader, error) {
	return Open(f.name, bytes.NewReader(f.data), int64(len(f.data)))
}

// Every HFile of the metadata tables that Hudi 0.15.0, 1.0.2 and 1.1.1 wrote is read whole.
func TestFilesOfHudi(t *testing.T) {
	files := hudiFiles(t)
	require.GreaterOrEqual(t, len(files), 56)
	for _, f := range files {
		r, err := openBytes(f)
		require.NoError(t, err, f.name)
		require.NoError(t, r.Check(), f.name)
		schema, ok := r.Info("schema")
		if strings.HasSuffix(f.name, ".hfile") {
			require.True(t, ok, f.name)
			require.Contains(t, string(schema), "HoodieMetadataRecord")
			bloom, ok, err := r.Meta("bloomFilter")
			require.NoError(t, err)
			require.True(t, ok, f.name)
			require.NotEmpty(t, bloom)
		}
		n := int64(0)
		for e, err := range r.All() {
			require.NoError(t, err)
			n++
			value, ok, err := r.Get(e.Key)
			require.NoError(t, err)
			require.True(t, ok, "%s: %s", f.name, e.Key)
			require.Equal(t, e.Value, value)
			_, ok, err = r.Get(append(bytes.Clone(e.Key), 0))
			require.NoError(t, err)
			require.False(t, ok)
			found := 0
			for p, err := range r.Prefix(e.Key) {
				require.NoError(t, err)
				require.True(t, bytes.HasPrefix(p.Key, e.Key))
				found++
			}
			require.Positive(t, found)
		}
		require.Equal(t, r.Len(), n, f.name)
	}
}
