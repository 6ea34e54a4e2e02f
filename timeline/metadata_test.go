package timeline

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"

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

// Records that are written decode to what they say, in each version; newer ones over older ones give what Hudi gives.
func TestMetadataRecords(t *testing.T) {
	for _, version := range []string{"6", "8", "9"} {
		for _, file := range []string{"", "files-0000-0_0-1-2_00000000000000010.hfile"} {
			files := map[string]MetadataFile{"a": {Size: 1 << 40}, "ü.parquet": {Deleted: true}}
			var d metadataDecoder
			r, err := d.decode(metadataSchema(version, true), encodeFiles(version, MetadataFiles, file, files))
			require.NoError(t, err, version)
			require.Equal(t, &MetadataRecord{Type: MetadataFiles, Files: &files}, r)
		}
		require.NotContains(t, metadataSchema(version, false), "_hoodie")
		_, err := avro.Parse(metadataSchema(version, false))
		require.NoError(t, err)
	}
	list := func(files map[string]MetadataFile) *MetadataRecord {
		return &MetadataRecord{Key: "k", Type: MetadataFiles, Files: &files}
	}
	old := list(map[string]MetadataFile{"kept": {Size: 1}, "grown": {Size: 5}, "gone": {Size: 3}, "back": {Deleted: true}})
	r := list(map[string]MetadataFile{"grown": {Size: 4}, "gone": {Deleted: true}, "back": {Size: 2}, "tomb": {Deleted: true}}).over(old)
	require.Equal(t, map[string]MetadataFile{"kept": {Size: 1}, "grown": {Size: 5}, "back": {Size: 2}, "tomb": {Deleted: true}}, *r.Files)
	require.Same(t, r, r.over(nil))
	other := &MetadataRecord{Key: "k", Type: MetadataColumnStats, Stats: &MetadataStats{Deleted: true}}
	require.Same(t, other, other.over(&MetadataRecord{Key: "k", Type: MetadataColumnStats}))
	require.True(t, other.gone())
}

func FuzzMetadataRecord(f *testing.F) {
	f.Add("9", encodeFiles("9", MetadataFiles, "", map[string]MetadataFile{"a": {Size: 1}}))
	f.Add("6", encodeFiles("6", MetadataPartitions, "x.hfile", nil))
	f.Fuzz(func(t *testing.T, version string, b []byte) {
		var d metadataDecoder
		r, err := d.decode(metadataSchema(version, true), b)
		if err != nil || r.Files == nil {
			return
		}
		again, err := d.decode(metadataSchema(version, true), encodeFiles(version, r.Type, "", *r.Files))
		if version != "6" && version != "8" && version != "9" {
			return
		}
		require.NoError(t, err)
		require.Equal(t, *r.Files, *again.Files)
	})
}
