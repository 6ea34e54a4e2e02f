package timeline

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// listed gives the data files of a table by partition path, as its folders have them.
func listed(t testing.TB, s storage.Store, dir string) map[string]map[string]int64 {
	t.Helper()
	out := map[string]map[string]int64{}
	var walk func(path string)
	walk = func(path string) {
		for info, err := range s.List(context.Background(), join(dir, path)) {
			require.NoError(t, err)
			switch {
			case info.Dir && !strings.HasPrefix(info.Name, "."):
				walk(join(path, info.Name))
			case info.Name == partitionFile && out[path] == nil:
				out[path] = map[string]int64{}
			}
			if f, ok := storage.ParseFileName(info.Name); ok && !info.Dir {
				if out[path] == nil {
					out[path] = map[string]int64{}
				}
				out[path][f.Name] = info.Size
			}
		}
	}
	walk("")
	return out
}

// openMetadata opens the metadata table of a table that Hudi wrote.
func openMetadata(t testing.TB, s storage.Store, dir string) *Metadata {
	t.Helper()
	ctx := context.Background()
	p, err := ReadProperties(ctx, s, dir)
	require.NoError(t, err)
	tl, err := Load(ctx, s, dir)
	require.NoError(t, err)
	m, err := OpenMetadata(ctx, s, dir, p, tl)
	require.NoError(t, err)
	return m
}

// The metadata tables that Hudi wrote are complete, and list what the folders have.
func TestMetadataTablesOfHudi(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"v6_cow_metadata", "v6_mor_metadata", "v8_cow_metadata", "v8_mor_metadata", "v9_cow_metadata", "v9_mor_metadata"} {
		t.Run(name, func(t *testing.T) {
			s := unpack(t, name)
			m := openMetadata(t, s, name)
			require.Empty(t, m.Stale())
			got, err := m.Files(ctx)
			require.NoError(t, err)
			require.Equal(t, listed(t, s, name), got)
			kinds := map[MetadataType]int{}
			for _, part := range m.Partitions() {
				for r, err := range m.Records(ctx, part) {
					require.NoError(t, err)
					kinds[r.Type]++
					switch r.Type {
					case MetadataColumnStats, MetadataPartitionStats:
						require.NotNil(t, r.Stats)
						require.NotEmpty(t, *r.Stats.Column)
					case MetadataRecordIndex:
						require.NotNil(t, r.Location)
						file := string(r.Location.FileID())
						require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(got[*r.Location.Partition])), func(name string) bool {
							return strings.HasPrefix(name, file)
						}), "%s in %s", file, *r.Location.Partition)
					}
				}
			}
			t.Log(kinds)
			require.Equal(t, 1, kinds[MetadataPartitions])
			require.Len(t, got, kinds[MetadataFiles])
		})
	}
}
