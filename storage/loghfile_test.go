package storage

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage/hfile"
)

// hfileBlock makes a block whose content is an HFile of entries in order.
func hfileBlock(t testing.TB, schema string, entries ...hfile.Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := hfile.NewWriter(&out, hfile.Options{})
	for _, e := range entries {
		require.NoError(t, w.Put(e.Key, e.Value))
	}
	require.NoError(t, w.Close())
	return rawBlock(BlockHFile, map[uint32]string{0: "5", 2: schema}, out.Bytes())
}

// Records of an HFile data block get the key that Hudi takes out of them, and decode as those of an avro block do.
func TestHFileBlock(t *testing.T) {
	for what, schema := range map[string]string{
		"required": `{"type":"record","name":"r","fields":[{"name":"n","type":["null","int"]},{"name":"key","type":"string"},{"name":"m","type":["null","int"]}]}`,
		"optional": `{"type":"record","name":"r","fields":[{"name":"n","type":["null","int"]},{"name":"key","type":["null","string"]},{"name":"m","type":["null","int"]}]}`,
	} {
		t.Run(what, func(t *testing.T) {
			value := func(n byte, key string) []byte {
				b := []byte{2, 2 * n}
				if what == "optional" {
					b = append(b, 2)
				}
				return append(append(append(b, byte(2*len(key))), key...), 0)
			}
			b := hfileBlock(
				t, schema,
				hfile.Entry{Key: []byte("a"), Value: value(1, "")},
				hfile.Entry{Key: []byte("b"), Value: value(2, "other")},
			)
			blocks, err := readBytes(b)
			require.NoError(t, err)
			want := &Schema{Fields: []Field{field("key", String), field("n", Int32), field("m", Int32)}}
			var got []Row
			for row, err := range blocks[0].Rows(want) {
				require.NoError(t, err)
				got = append(got, row)
			}
			require.Equal(t, []Row{{"a", int32(1), nil}, {"other", int32(2), nil}}, got)
		})
	}
}

// A damaged HFile data block is an error that names the log file and the block.
func TestDamagedHFileBlock(t *testing.T) {
	const schema = `{"type":"record","name":"r","fields":[{"name":"key","type":"string"}]}`
	b := hfileBlock(t, schema, hfile.Entry{Key: []byte("a"), Value: []byte{0}})
	at := bytes.Index(b, []byte("DATABLK*"))
	b[at+40] ^= 1
	blocks, err := readBytes(b)
	require.NoError(t, err)
	var corrupt *CorruptError
	for _, err = range blocks[0].Records() {
	}
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, "log", corrupt.Name)
	require.ErrorContains(t, err, "hfile data block")

	short := hfileBlock(t, schema, hfile.Entry{Key: []byte("a"), Value: nil})
	blocks, err = readBytes(short)
	require.NoError(t, err)
	for _, err = range blocks[0].Records() {
	}
	require.ErrorAs(t, err, &corrupt)
}

// Every log block and every base file of the metadata tables that Hudi wrote is read.
func TestHFilesOfMetadataTables(t *testing.T) {
	ctx := context.Background()
	for _, name := range fixtureNames(t, "*_metadata") {
		f := openHudiTable(t, name)
		logs, bases := 0, 0
		for _, object := range f.files {
			if !strings.HasPrefix(object, name+"/.hoodie/metadata/") {
				continue
			}
			switch last := path.Base(object); {
			case strings.HasSuffix(last, ".hfile"):
				bases++
				h, err := OpenHFile(ctx, f.store, object)
				require.NoError(t, err)
				for e, err := range h.All() {
					require.NoError(t, err)
					require.Equal(t, "__all_partitions__", string(e.Key))
				}
				require.NoError(t, h.Check())
				require.NoError(t, h.Close())
			case strings.Contains(last, logInfix):
				logs++
				for b, err := range ReadLog(ctx, f.store, object) {
					require.NoError(t, err)
					if b.Type != BlockHFile {
						continue
					}
					want := &Schema{Fields: []Field{field("key", String), field("type", Int32)}}
					n := 0
					for row, err := range b.Rows(want) {
						require.NoError(t, err)
						require.NotEmpty(t, row[0])
						require.Contains(t, []int32{1, 2, 3, 5, 6}, row[1], fmt.Sprint(row...))
						n++
					}
					require.Positive(t, n, object)
				}
			}
		}
		require.Positive(t, bases)
		require.Positive(t, logs)
	}
}
