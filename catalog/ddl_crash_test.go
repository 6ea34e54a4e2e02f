package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/storage"
)

// ddlStep is one statement of a workload of definitions.
type ddlStep struct {
	name string
	do   func(ctx context.Context, c *Catalog) error
}

func ddlTable(c *Catalog, name string) *Table {
	db, name, _ := strings.Cut(name, ".")
	t, _ := c.Table(db, name)
	return t
}

// ddlInsert inserts a row of as many columns as the table has.
func ddlInsert(name string, id int32) ddlStep {
	return ddlStep{fmt.Sprintf("insert %d into %s", id, name), func(ctx context.Context, c *Catalog) error {
		t := ddlTable(c, name)
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		row := make(storage.Row, len(t.Spec().Schema.Fields))
		row[0], row[1], row[2] = id, "x", int64(id)
		if err := tx.Insert(ctx, t, row); err != nil {
			return err
		}
		t.NoteAutoIncrement(uint64(id))
		return tx.Commit(ctx)
	}}
}

func ddlChange(name string, f func(c *Catalog) Change) ddlStep {
	return ddlStep{name, func(ctx context.Context, c *Catalog) error { return c.Change(ctx, f(c)) }}
}

// ddlWiden gives a table's specification with a column more.
func ddlWiden(t *Table, column string) (*TableSpec, []int) {
	spec := *t.Spec()
	s := *spec.Schema
	s.Fields = append(slices.Clone(s.Fields), storage.Field{Name: column, Type: storage.Type{Kind: storage.Int32}, Nullable: true})
	spec.Schema = &s
	return &spec, append(identity(len(s.Fields)-1), -1)
}

// ddlSteps is a workload in which each kind of change meets tables with rows in files and rows that wait.
func ddlSteps() []ddlStep {
	create := func(name string) ddlStep {
		return ddlStep{"create " + name, func(ctx context.Context, c *Catalog) error {
			db, n, _ := strings.Cut(name, ".")
			s := testSpec()
			s.AutoIncrement = "id"
			s.Indexes = []IndexSpec{{Name: "by_v", Columns: []KeyColumn{{Column: "v"}}, Unique: true}}
			_, err := c.CreateTable(ctx, db, n, s)
			return err
		}}
	}
	flush := ddlStep{"flush", func(ctx context.Context, c *Catalog) error { return c.Flush(ctx, "test") }}
	trigger := func(name string, body []byte) ObjectChange {
		return ObjectChange{Kind: "trigger", Database: "d", Name: name, Body: body}
	}
	return []ddlStep{
		{"create database d", func(ctx context.Context, c *Catalog) error { return c.CreateDatabase(ctx, "d", []byte("1")) }},
		{"create database e", func(ctx context.Context, c *Catalog) error { return c.CreateDatabase(ctx, "e", nil) }},
		create("d.t"), ddlInsert("d.t", 1), flush, ddlInsert("d.t", 2),
		create("d.u"), ddlInsert("d.u", 10),
		ddlChange("two triggers", func(c *Catalog) Change {
			return Change{Objects: []ObjectChange{trigger("one", []byte("1")), trigger("two", []byte("2"))}}
		}),
		ddlChange("add a column", func(c *Catalog) Change {
			t := ddlTable(c, "d.t")
			spec, columns := ddlWiden(t, "w")
			return Change{Tables: []TableChange{{Table: t, Spec: spec, Columns: columns}}}
		}),
		ddlInsert("d.t", 3),
		ddlChange("swap", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.t"), Name: "u"}, {Table: ddlTable(c, "d.u"), Name: "t"}}}
		}),
		ddlInsert("d.t", 11), ddlInsert("d.u", 4),
		ddlChange("rewrite, rename, another table and a trigger in one", func(c *Catalog) Change {
			u := ddlTable(c, "d.u")
			spec, columns := ddlWiden(u, "z")
			convert := func(old storage.Row) (storage.Row, error) { return append(slices.Clone(old), int32(7)), nil }
			other := *ddlTable(c, "d.t").Spec()
			other.Definition = []byte("changed")
			return Change{
				Tables: []TableChange{
					{Table: u, Name: "v", Spec: spec, Columns: columns, Convert: convert},
					{Table: ddlTable(c, "d.t"), Spec: &other, Columns: identity(3)},
				},
				Objects: []ObjectChange{trigger("two", nil), trigger("three", []byte("3"))},
			}
		}),
		ddlInsert("d.v", 5),
		ddlChange("move to e", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.v"), Database: "e", Name: "t"}}}
		}),
		flush, ddlInsert("e.t", 6),
		ddlChange("drop two tables and a trigger", func(c *Catalog) Change {
			one := trigger("one", nil)
			one.With = ddlTable(c, "d.t")
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.t"), Drop: true}, {Table: ddlTable(c, "e.t"), Drop: true}}, Objects: []ObjectChange{one}}
		}),
		create("d.t"), ddlInsert("d.t", 20),
		{"undrop as", func(ctx context.Context, c *Catalog) error { _, err := c.Undrop(ctx, "d", "t", "back"); return err }},
		{"undrop", func(ctx context.Context, c *Catalog) error { _, err := c.Undrop(ctx, "e", "t", ""); return err }},
		ddlInsert("d.back", 12),
		ddlChange("drop database", func(c *Catalog) Change { return Change{DropDatabase: "d"} }),
		{"undrop database", func(ctx context.Context, c *Catalog) error { return c.UndropDatabase(ctx, "d") }},
		flush,
		{"truncate", func(ctx context.Context, c *Catalog) error {
			_, err := c.TruncateTable(ctx, ddlTable(c, "e.t"))
			return err
		}},
		ddlInsert("e.t", 1),
		ddlChange("drop for good", func(c *Catalog) Change { return Change{DropDatabase: "e", Retention: -1} }),
		ddlChange("drop for a moment", func(c *Catalog) Change {
			return Change{Tables: []TableChange{{Table: ddlTable(c, "d.back"), Drop: true}}, Retention: time.Nanosecond}
		}),
		{"purge", func(ctx context.Context, c *Catalog) error {
			time.Sleep(time.Millisecond)
			return c.PurgeDropped(ctx)
		}},
	}
}

// ddlState writes down everything that a warehouse holds, and checks that each row is found by key and by index.
func ddlState(c *Catalog) (string, error) {
	ctx := context.Background()
	var out strings.Builder
	for _, db := range c.Databases() {
		_, body, _ := c.Database(db)
		fmt.Fprintf(&out, "%s %s:", db, body)
		for _, o := range c.Objects("trigger", db) {
			fmt.Fprintf(&out, " %s=%s", o.Name, o.Body)
		}
		for _, name := range c.TableNames(db) {
			t, _ := c.Table(db, name)
			tx, err := c.Begin(ctx)
			if err != nil {
				return "", err
			}
			var rows []string
			for b, err := range tx.Scan(ctx, t, ScanOptions{}) {
				if err != nil {
					tx.Rollback()
					return "", fmt.Errorf("%s.%s: %w", db, name, err)
				}
				for i := range b.Rows {
					row := b.Row(i, nil)
					rows = append(rows, fmt.Sprint(row))
					if got, ok, err := tx.Get(ctx, t, row[:1]); err != nil || !ok || fmt.Sprint(got) != fmt.Sprint(row) {
						tx.Rollback()
						return "", fmt.Errorf("%s.%s: key %v gives %v %v %w", db, name, row[0], got, ok, err)
					}
					found := 0
					for lb, err := range tx.Lookup(ctx, t, "by_v", []KeyRange{{Low: row[2:3], High: row[2:3]}}, ScanOptions{}) {
						if err != nil {
							tx.Rollback()
							return "", err
						}
						found += lb.Rows
					}
					if found != 1 {
						tx.Rollback()
						return "", fmt.Errorf("%s.%s: the index has %d rows of %v", db, name, found, row)
					}
				}
			}
			tx.Rollback()
			slices.Sort(rows)
			next, err := t.PeekAutoIncrement(ctx)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, " %s(%s %s) next %d: %s;", name, strings.Join(fieldNames(t.Spec().Schema), " "), t.Spec().Definition, next, strings.Join(rows, " "))
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

// D8, D13: a workload of definitions is cut before each operation on the disk, with everything that is not synced lost or kept: the
// warehouse opens, and shows the state before the statement that was under way or after it; what follows of the workload then works.
func TestDDLCrash(t *testing.T) {
	ctx := context.Background()
	steps := ddlSteps()
	dry := testOpen(t, vfs.NewMem(), Options{})
	states := []string{""}
	for _, s := range steps {
		require.NoError(t, s.do(ctx, dry), s.name)
		state, err := ddlState(dry)
		require.NoError(t, err, s.name)
		states = append(states, state)
	}
	require.NoError(t, dry.Close(ctx))
	require.Contains(t, states[12], "d 1: one=1 two=2 t(id name v ) next 11: [10 x 10]; u(id name v w ) next 4: ")
	require.Equal(t, states[len(states)-1], "d 1: three=3 one=1 t(id name v ) next 21: [20 x 20];\n")

	type cut struct {
		fs   *vfs.MemFS
		done int // steps that were acknowledged
		what string
	}
	stride := envInt("STEP", 9) // every operation with STEP=1
	fs := newCloneFS()
	var mu sync.Mutex
	var cuts []cut
	done, ops := 0, 0
	r := rand.New(rand.NewPCG(1, 2))
	c := testOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpRename, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpCreate, errorfs.OpMkdirAll:
		default:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if ops++; ops%stride != 0 {
			return nil
		}
		for _, rate := range []int{0, 100} {
			cuts = append(cuts, cut{
				fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rate, RNG: r}), done, fmt.Sprintf("operation %d (%v %s), %d%% kept", ops, op.Kind, op.Path, rate),
			})
		}
		return nil
	})), Options{})
	check := func(k cut) {
		what := fmt.Sprintf("%s, after %d", k.what, k.done)
		if k.done < len(steps) {
			what += ", in " + steps[k.done].name
		}
		c, err := Open(ctx, "data", Options{FS: k.fs})
		require.NoError(t, err, what)
		got, err := ddlState(c)
		require.NoError(t, err, what)
		at := k.done
		if got != states[at] {
			at++
			require.Less(t, at, len(states), what)
			require.Equal(t, states[at], got, what)
		}
		// The next statements work, and the next start finds what they leave.
		for range 2 {
			if at < len(steps) {
				require.NoError(t, steps[at].do(ctx, c), "%s: %s", what, steps[at].name)
				at++
			}
		}
		require.NoError(t, c.Close(ctx), what)
		c, err = Open(ctx, "data", Options{FS: k.fs})
		require.NoError(t, err, what)
		got, err = ddlState(c)
		require.NoError(t, err, what)
		require.Equal(t, states[at], got, what)
		require.NoError(t, c.Close(ctx), what)
		require.NoError(t, k.fs.RemoveAll("data/state"))
		// The folders alone tell the same.
		c, err = Open(ctx, "data", Options{FS: k.fs})
		require.NoError(t, err, what)
		got, err = ddlState(c)
		require.NoError(t, err, what)
		require.Equal(t, states[at], got, what)
		// What was dropped can be brought back from them, too.
		if at < len(steps) {
			require.NoError(t, steps[at].do(ctx, c), "%s: from the folders alone: %s", what, steps[at].name)
			got, err = ddlState(c)
			require.NoError(t, err, what)
			require.Equal(t, states[at+1], got, "%s: from the folders alone: %s", what, steps[at].name)
		}
		require.NoError(t, c.Close(ctx), what)
	}
	checked := 0
	for i, s := range steps {
		require.NoError(t, s.do(ctx, c), s.name)
		mu.Lock()
		done = i + 1
		list := cuts
		cuts = nil
		mu.Unlock()
		for _, k := range list {
			check(k)
			checked++
		}
	}
	require.NoError(t, c.Close(ctx))
	t.Logf("%d operations, %d cuts", ops, checked)
}
