package catalog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// hotTable is a table that lakesql and Spark change in turns, with what has to stand in it.
type hotTable struct {
	t      *testing.T
	e      *engines
	root   string
	c      *Catalog
	tab    *Table
	r      *rand.Rand
	event  bool
	mor    bool
	rows   map[int32]storage.Row
	hot    map[int32]bool // keys that wait in the hot tier
	clock  int64
	killed bool
}

const hotKeys = 12

func hotPart(id int32) string { return fmt.Sprint("p", id%3) }

func (h *hotTable) row(id int32) storage.Row {
	h.clock++
	return storage.Row{id, hotPart(id), h.clock}
}

// write changes n random rows in one transaction.
func (h *hotTable) write(n int) {
	ctx := context.Background()
	inTx(h.t, h.c, func(tx *Tx) {
		for range n {
			id := int32(h.r.IntN(hotKeys))
			old, ok := h.rows[id]
			row := h.row(id)
			switch {
			case !ok:
				require.NoError(h.t, tx.Insert(ctx, h.tab, row))
				h.rows[id] = row
			case h.r.IntN(3) == 0:
				require.NoError(h.t, tx.Delete(ctx, h.tab, old))
				delete(h.rows, id)
			default:
				require.NoError(h.t, tx.Update(ctx, h.tab, old, row))
				h.rows[id] = row
			}
			h.hot[id] = true
		}
	})
}

func (h *hotTable) flush() {
	flushAll(h.t, h.c)
	clear(h.hot)
}

// kill ends the catalog as a crash does: nothing is flushed.
func (h *hotTable) kill() {
	h.c.reader.Close()
	h.c.clock.end()
	require.NoError(h.t, h.c.db.Close())
	h.killed = true
}

func (h *hotTable) open() {
	var err error
	h.c, err = Open(context.Background(), h.root, Options{})
	require.NoError(h.t, err)
	h.killed = false
	if t, ok := h.c.Table("d", "t"); ok {
		h.tab = t
	}
}

// put is what a row of Spark's means: a commit that waits counts as later, but in an event-time table the larger ordering value wins.
func (h *hotTable) put(row storage.Row) {
	id := row[0].(int32)
	old, ok := h.rows[id]
	switch {
	case h.hot[id] && (!h.event || !ok):
	case h.event && ok && (row[2].(int64) < old[2].(int64) || h.hot[id] && row[2] == old[2]):
	default:
		h.rows[id] = row
	}
}

func (h *hotTable) remove(id int32) {
	if !h.hot[id] {
		delete(h.rows, id)
	}
}

func (h *hotTable) spark(op string, rows []storage.Row, options map[string]any) {
	h.t.Helper()
	var list []map[string]any
	for _, r := range rows {
		list = append(list, map[string]any{"id": r[0], "name": r[1], "v": r[2]})
	}
	h.e.ask(h.t, map[string]any{"op": "write", "table": h.tab.Location(), "operation": op, "rows": list, "options": options})
}

func (h *hotTable) sql(q ...string) []map[string]any {
	h.t.Helper()
	return h.e.ask(h.t, map[string]any{"op": "sql", "table": h.tab.Location(), "statements": q})
}

// some gives rows for random keys, most of them such as wait in the hot tier.
func (h *hotTable) some() (rows []storage.Row) {
	for _, i := range h.r.Perm(hotKeys) {
		id := int32(i)
		if len(rows) == 4 || !h.hot[id] && h.r.IntN(2) == 0 {
			continue
		}
		row := h.row(id)
		if old, ok := h.rows[id]; ok && h.event && h.r.IntN(3) == 0 {
			row[2] = old[2].(int64) - int64(h.r.IntN(2))*10 // late, or as late
		}
		rows = append(rows, row)
	}
	return rows
}

func (h *hotTable) newest() string {
	tl, err := timeline.Load(context.Background(), h.c.store, h.tab.def.Load().dir)
	require.NoError(h.t, err)
	in, _ := tl.Last()
	return string(in.Time)
}

// foreign are the forms in which another engine changes the table.
var foreign = []struct {
	name string
	do   func(h *hotTable)
}{
	{"upsert", func(h *hotTable) {
		rows := h.some()
		h.spark("upsert", rows, nil)
		for _, row := range rows {
			h.put(row)
		}
	}},
	{"delete", func(h *hotTable) {
		rows := h.some()
		for i, row := range rows {
			rows[i] = h.row(row[0].(int32)) // not late
		}
		h.spark("delete", rows, nil)
		for _, row := range rows {
			h.remove(row[0].(int32))
		}
	}},
	{"compaction", func(h *hotTable) {
		if h.mor {
			h.sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}', options => 'hoodie.compact.inline.max.delta.commits=1')")
		}
	}},
	{"clustering", func(h *hotTable) { h.sql("call run_clustering(op => 'scheduleAndExecute', table => '{t}')") }},
	{"cleaning", func(h *hotTable) {
		h.sql("call run_clean(table => '{t}', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)")
	}},
	{"drop partition", func(h *hotTable) {
		h.sql("alter table {t} drop partition (name = 'p1')")
		for id := range maps.Clone(h.rows) {
			if hotPart(id) == "p1" {
				h.remove(id)
			}
		}
	}},
	{"insert overwrite", func(h *hotTable) {
		row := h.row(2)
		h.spark("insert_overwrite", []storage.Row{row}, nil)
		for id := range maps.Clone(h.rows) {
			if hotPart(id) == "p2" && id != 2 {
				h.remove(id)
			}
		}
		if h.event && !h.hot[2] {
			delete(h.rows, 2) // what was there is gone, whatever its ordering value
		}
		h.put(row)
	}},
	{"rollback", func(h *hotTable) {
		h.spark("upsert", h.some(), map[string]any{"hoodie.compact.inline": "false"}) // or the newest instant may be a compaction's
		at := h.newest()
		list, _ := metas(h.t, h.c, h.tab)
		require.Equal(h.t, timeline.OpUpsert, list[len(list)-1].Operation)
		if h.r.IntN(2) == 0 && !h.killed {
			scanAll(h.t, h.c, h.tab) // adopted before it is undone
		}
		require.Equal(h.t, true, h.sql("rollback " + at)[0]["rolled_back"])
	}},
	{"restore", func(h *hotTable) {
		at := h.newest()
		h.sql("call create_savepoint(table => '{t}', commit_time => '" + at + "')")
		for range 2 {
			h.spark("upsert", h.some(), nil)
			if h.r.IntN(2) == 0 && !h.killed {
				scanAll(h.t, h.c, h.tab)
			}
		}
		h.sql("call rollback_to_savepoint(table => '{t}', instant_time => '"+at+"')", "call delete_savepoint(table => '{t}', instant_time => '"+at+"')")
	}},
}

func (h *hotTable) check(what string) {
	h.t.Helper()
	ctx := context.Background()
	var want []string
	for _, row := range h.rows {
		want = append(want, fmt.Sprint(row))
	}
	sort.Strings(want)
	got := strings.ReplaceAll(scanAll(h.t, h.c, h.tab), "] [", "]\n[")
	require.Equal(h.t, strings.Join(want, "\n"), got, "%s; hot %v", what, sortedInts(h.hot))
	tx, err := h.c.Begin(ctx)
	require.NoError(h.t, err)
	defer tx.Rollback()
	for id := range int32(hotKeys) {
		row, ok, err := tx.Get(ctx, h.tab, storage.Row{id})
		require.NoError(h.t, err)
		want, exists := h.rows[id]
		require.Equal(h.t, exists, ok, "%s: key %d", what, id)
		if ok {
			require.Equal(h.t, want, row, what)
		}
	}
}

func sortedInts(m map[int32]bool) (out []int) {
	for k := range m {
		out = append(out, int(k))
	}
	sort.Ints(out)
	return out
}

// D8, D12, D18: another engine changes, removes and moves the very keys that wait in the hot tier, in every way it can, while lakesql runs
// and while it is down after a crash: what waits counts as later, in event-time tables the larger ordering value wins, and no row is
// lost or there twice.
func TestInteropHot(t *testing.T) {
	e := startEngines(t)
	rounds := envInt("ROUNDS", len(foreign))
	for n := range 4 {
		mor, event := n&1 > 0, n&2 > 0
		t.Run(fmt.Sprint("mor=", mor, " event=", event), func(t *testing.T) {
			h := &hotTable{
				t: t, e: e, root: filepath.Join(t.TempDir(), "data"), mor: mor, event: event, r: rand.New(rand.NewPCG(uint64(n), uint64(envInt("SEED", 4)))),
				rows: map[int32]storage.Row{}, hot: map[int32]bool{}, clock: 1000,
			}
			h.open()
			defer func() {
				if !h.killed {
					require.NoError(t, h.c.Close(context.Background()))
				}
			}()
			h.tab = newTable(t, h.c, "t", func(s *TableSpec) {
				s.MergeOnRead, s.Partition = mor, []string{"name"}
				if event {
					s.Ordering, s.OrderingField = storage.EventTime, "v"
				}
			})
			h.write(10)
			h.flush()
			for round := range rounds {
				form := foreign[(round+n)%len(foreign)]
				what := fmt.Sprint("round ", round, " ", form.name)
				h.write(3)
				if h.r.IntN(2) == 0 {
					h.flush()
				}
				h.write(3)
				h.check(what + " before")
				if down := h.r.IntN(4) == 0; down {
					h.kill()
					what += " while down"
				}
				form.do(h)
				if h.killed {
					h.open()
				}
				h.check(what)
				if h.r.IntN(2) == 0 {
					h.write(2)
					h.check(what + " and written")
				}
				h.flush()
				h.check(what + " and flushed")
				sameAsEngines(t, e, h.c, h.tab, 0, what)
			}
		})
	}
}
