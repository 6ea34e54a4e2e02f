package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// sameByMetadata compares a table with what Spark reads of it through the metadata table, which has to be complete.
func sameByMetadata(t *testing.T, e *engines, c *Catalog, tab *Table, what string) {
	t.Helper()
	ctx := context.Background()
	dir := tab.def.Load().dir
	p, err := timeline.ReadProperties(ctx, c.store, dir)
	require.NoError(t, err)
	require.True(t, p.MetadataInUse(), what)
	tl, err := timeline.Load(ctx, c.store, dir)
	require.NoError(t, err)
	m, err := timeline.OpenMetadata(ctx, c.store, dir, p, tl)
	require.NoError(t, err, what)
	require.Empty(t, m.Stale(), what)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	ours, err := scanJSON(tx.Scan(ctx, tab, ScanOptions{}))
	require.NoError(t, err)
	same(t, ours, e.read(t, "spark", tab, map[string]any{"use_metadata": true}), "%s: %s by Spark with the metadata table", what, tab)
	same(t, ours, e.read(t, "spark", tab, nil), "%s: %s by Spark without the metadata table", what, tab)
}

// D8, D12: with hoodie.metadata.enable, Spark finds by the metadata table what lakesql wrote, goes on with it, and lakesql after it.
func TestInteropMetadata(t *testing.T) {
	e := startEngines(t)
	for n := range 4 {
		mor, part := n&1 > 0, n&2 > 0
		t.Run(fmt.Sprint("mor=", mor, " partition=", part), func(t *testing.T) {
			ctx := context.Background()
			c, err := Open(ctx, filepath.Join(t.TempDir(), "data"), Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(ctx)) }()
			tab := newTable(t, c, "t", func(s *TableSpec) {
				s.MergeOnRead = mor
				s.Options = map[string]string{timeline.KeyMetadataEnable: "true"}
				if part {
					s.Partition = []string{"name"}
				}
			})
			r := rand.New(rand.NewPCG(uint64(n), 9))
			clock := int64(0)
			have := map[int32]storage.Row{}
			write := func(flushes int) {
				for range flushes {
					inTx(t, c, func(tx *Tx) {
						for range 4 {
							id := int32(r.IntN(40))
							clock++
							row := storage.Row{id, fmt.Sprint("p", id%3), clock}
							switch old, ok := have[id]; {
							case !ok:
								require.NoError(t, tx.Insert(ctx, tab, row))
								have[id] = row
							case r.IntN(3) == 0:
								require.NoError(t, tx.Delete(ctx, tab, old))
								delete(have, id)
							default:
								require.NoError(t, tx.Update(ctx, tab, old, row))
								have[id] = row
							}
						}
					})
					flushAll(t, c)
				}
			}
			spark := func(options map[string]any) {
				var rows []map[string]any
				for range 4 {
					id := int32(r.IntN(40))
					clock++
					have[id] = storage.Row{id, fmt.Sprint("p", id%3), clock}
					rows = append(rows, map[string]any{"id": id, "name": have[id][1], "v": clock})
				}
				options["hoodie.metadata.enable"] = "true"
				if strings.HasPrefix(os.Getenv("HUDI_VERSION"), "0.") {
					options["hoodie.datasource.write.precombine.field"] = "v" // it does not write without one
				}
				e.ask(t, map[string]any{"op": "write", "table": tab.Location(), "operation": "upsert", "rows": rows, "options": options})
			}
			write(1)
			sameByMetadata(t, e, c, tab, "first")
			write(4)
			sameByMetadata(t, e, c, tab, "logs")
			write(2 * 10)
			sameByMetadata(t, e, c, tab, "compacted")
			for round := range envInt("ROUNDS", 1) {
				for _, options := range []map[string]any{
					{"hoodie.metadata.index.column.stats.enable": "false", "hoodie.metadata.index.partition.stats.enable": "false"},
					{"hoodie.metadata.index.column.stats.enable": "true", "hoodie.metadata.record.index.enable": "true"},
				} {
					spark(options)
					sameByMetadata(t, e, c, tab, fmt.Sprint("round ", round, ": Spark wrote"))
					write(3)
					sameByMetadata(t, e, c, tab, fmt.Sprint("round ", round, ": lakesql wrote over it"))
				}
			}
		})
	}
}
