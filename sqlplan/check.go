package sqlplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// CHECK TABLE. The catalog looks at files, journal and index; what only the MySQL definition demands of the rows (NOT NULL, values of
// the columns' types, CHECK, foreign keys) is looked at here. Other engines may have written rows that break it.

// checkLevel reads the options of CHECK TABLE: the highest one counts. Without any it is MEDIUM.
func checkLevel(options string) catalog.CheckLevel {
	level := catalog.CheckMedium
	for i, o := range strings.Fields(options) {
		l := catalog.CheckMedium
		switch o {
		case "QUICK", "FAST", "CHANGED":
			l = catalog.CheckQuick
		case "EXTENDED":
			l = catalog.CheckExtended
		}
		if i == 0 || l > level {
			level = l
		}
	}
	return level
}

// pulledRows gives rows one by one as a walk finds them; the walk goes on no further than it is asked to.
type pulledRows struct {
	next func() (sql.Row, error, bool)
	stop func()
}

func pullRows(seq iter.Seq2[sql.Row, error]) sql.RowIter {
	next, stop := iter.Pull2(seq)
	return &pulledRows{next, stop}
}

func (p *pulledRows) Next(*sql.Context) (sql.Row, error) {
	row, err, ok := p.next()
	if !ok {
		return nil, io.EOF
	}
	return row, err
}

func (p *pulledRows) Close(*sql.Context) error {
	p.stop()
	return nil
}

// checks runs CHECK TABLE over the statement's tables.
func (m *maintenance) checks(ctx *sql.Context) iter.Seq2[sql.Row, error] {
	return func(yield func(sql.Row, error) bool) {
		for _, name := range m.tables {
			if !m.checkTable(ctx, name, yield) {
				return
			}
		}
	}
}

// checkTable checks one table, and answers false when nobody wants more rows.
func (m *maintenance) checkTable(ctx *sql.Context, name [2]string, yield func(sql.Row, error) bool) bool {
	full := name[0] + "." + name[1]
	say := func(kind, text string) bool { return yield(sql.NewRow(full, m.what, kind, text), nil) }
	t, err := m.engine.tableOf(ctx, name[0], name[1])
	if err != nil && !sql.ErrDatabaseNotFound.Is(err) {
		yield(nil, err)
		return false
	}
	if t == nil {
		isView, err := m.engine.isView(ctx, name[0], name[1])
		if err != nil {
			yield(nil, err)
			return false
		}
		if isView {
			return say("status", "OK")
		}
		return say("Error", "Table '"+full+"' doesn't exist") && say("status", "Operation failed")
	}
	k := &tableCheck{engine: m.engine, ctx: ctx, t: t, say: say}
	err = k.run(m.level)
	switch {
	case errors.Is(err, errNoMoreRows):
		return false
	case err != nil:
		yield(nil, mysqlError(err))
		return false
	case k.damaged:
		return say("error", "Corrupt")
	}
	return say("status", "OK")
}

var errNoMoreRows = errors.New("nobody wants more rows")

// tableCheck is the check of one table.
type tableCheck struct {
	engine  *Engine
	ctx     *sql.Context
	t       *table
	say     func(kind, text string) bool
	damaged bool
}

func (k *tableCheck) report(p catalog.Problem) error {
	kind := "note"
	switch p.Severity {
	case catalog.Damage:
		kind, k.damaged = "error", true
	case catalog.Warning:
		kind = "warning"
	}
	if !k.say(kind, p.String()) {
		return errNoMoreRows
	}
	return nil
}

func (k *tableCheck) run(level catalog.CheckLevel) error {
	ctx := k.ctx
	name := k.t.Name()
	if pid := ctx.Pid(); pid != 0 {
		defer ctx.ProcessList.RemoveTableProgress(pid, name)
	}
	var told, all int64
	progress := func(done, total int64) {
		if all != total {
			ctx.ProcessList.AddTableProgress(ctx.Pid(), name, total)
			all, told = total, 0
		}
		ctx.ProcessList.UpdateTableProgress(ctx.Pid(), name, done-told)
		told = done
	}
	for p, err := range k.t.catalog.Check(ctx, k.t.t, level, progress) {
		if err != nil {
			return err
		}
		if err := k.report(p); err != nil {
			return err
		}
	}
	if level < catalog.CheckExtended || k.damaged {
		return nil // rows that cannot be read are told already
	}
	tx, err := k.t.catalog.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := k.rows(tx); err != nil {
		return err
	}
	if k.t.temporary {
		return nil // no other session sees it, and it has no foreign keys
	}
	for _, c := range k.t.def.table.Checks {
		if c.Enforced {
			if err := k.constraint(c); err != nil {
				return err
			}
		}
	}
	return k.foreignKeys(tx)
}

// rowsMax is how many rows that break a rule are listed.
const rowsMax = 20

// rows decodes every value as its column's type, and looks for NULL where there may be none.
func (k *tableCheck) rows(tx *catalog.Tx) error {
	def := k.t.def
	names := []string{storage.ColRecordKey}
	names = append(names, fieldNamesOf(def.spec.Schema)...)
	st, err := def.spec.Schema.Select(names...)
	if err != nil {
		return err
	}
	codec, err := def.codec.over(def.pk.Schema, st)
	if err != nil {
		return err
	}
	row := make(sql.Row, codec.width)
	bad := 0
	for b, err := range tx.Scan(k.ctx, k.t.t, catalog.ScanOptions{Columns: names}) {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			text := ""
			if err := codec.decodeInto(b, i, row); err != nil {
				text = err.Error()
			} else {
				for _, c := range codec.cols {
					if col := def.pk.Schema[c.column]; row[c.column] == nil && !col.Nullable {
						text = fmt.Sprintf("column %s is NULL, which its definition does not allow", col.Name)
						break
					}
				}
			}
			if text == "" {
				continue
			}
			if bad++; bad > rowsMax {
				continue
			}
			key, _ := b.Value(0, i).(string)
			if err := k.report(catalog.Problem{Object: def.name, Offset: -1, Key: key, Text: text, Advice: "update or delete the row"}); err != nil {
				return err
			}
		}
	}
	return k.more(bad, "rows that do not fit the table's definition")
}

// more tells how many findings of a kind were not listed.
func (k *tableCheck) more(n int, what string) error {
	if n <= rowsMax {
		return nil
	}
	return k.report(catalog.Problem{Severity: catalog.Note, Object: k.t.def.name, Offset: -1, Text: fmt.Sprintf("%d more %s", n-rowsMax, what)})
}

func fieldNamesOf(s *storage.Schema) []string {
	out := make([]string, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].Name
	}
	return out
}

// constraint looks for rows for which a CHECK constraint is false, by a query in a session of its own.
func (k *tableCheck) constraint(c checkDefinition) (err error) {
	s, err := k.engine.NewSession(k.ctx, nil, "check")
	if err != nil {
		return err
	}
	if err := sql.SessionCommandBegin(s); err != nil {
		return err
	}
	defer func() {
		sql.SessionCommandEnd(s)
		sql.SessionEnd(s)
	}()
	def := k.t.def
	var key []string
	for _, p := range def.table.PrimaryKey {
		key = append(key, quoteName(p.Column))
	}
	if len(key) == 0 {
		key = []string{"'a row without a key'"}
	}
	text := fmt.Sprintf("SELECT CONCAT_WS(', ', %s) FROM %s.%s WHERE NOT (%s)", strings.Join(key, ", "), quoteName(k.t.db.name), quoteName(def.name), c.Expression)
	q := k.engine.NewContext(k.ctx, sql.WithSession(s), sql.WithQuery(text))
	_, it, _, err := k.engine.sql.Query(q, text)
	if err != nil {
		return k.report(catalog.Problem{Severity: catalog.Warning, Object: "constraint " + c.Name, Offset: -1, Text: "it cannot be evaluated: " + err.Error()})
	}
	defer func() { err = errors.Join(err, it.Close(q)) }()
	bad := 0
	for {
		row, err := it.Next(q)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if bad++; bad > rowsMax {
			continue
		}
		if err := k.report(catalog.Problem{Object: "constraint " + c.Name, Offset: -1, Key: fmt.Sprint(row[0]), Text: "the row violates the constraint", Advice: "update or delete the row"}); err != nil {
			return err
		}
	}
	return k.more(bad, "rows that violate constraint "+c.Name)
}

func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// foreignKeys checks the table's rows against their parents, and the rows of other tables that name it as theirs.
func (k *tableCheck) foreignKeys(tx *catalog.Tx) error {
	for _, f := range k.t.def.table.ForeignKeys {
		if err := k.foreignKey(tx, k.t, f); err != nil {
			return err
		}
	}
	refs, err := k.engine.referencesOf(k.ctx, k.t.db.name, k.t.Name())
	if err != nil {
		return err
	}
	for _, r := range refs {
		if strings.EqualFold(r.Database, k.t.db.name) && strings.EqualFold(r.Table, k.t.Name()) {
			continue // its own, checked already
		}
		child, err := k.engine.tableOf(k.ctx, r.Database, r.Table)
		if err != nil {
			return err
		}
		if child == nil {
			continue
		}
		if err := k.foreignKey(tx, child, newForeignKeyDefinition(r)); err != nil {
			return err
		}
	}
	return nil
}

// parentsAtOnce is how many different parents are looked up together.
const parentsAtOnce = 1000

// foreignKey checks that each row of the child without a NULL in the key has a parent.
func (k *tableCheck) foreignKey(tx *catalog.Tx, child *table, f foreignKeyDefinition) error {
	object := "foreign key " + f.Name
	if child != k.t {
		object += " of " + child.db.name + "." + child.Name()
	}
	parent, err := k.engine.tableOf(k.ctx, f.ParentDatabase, f.ParentTable)
	if err != nil && !sql.ErrDatabaseNotFound.Is(err) {
		return err
	}
	if parent == nil {
		return k.report(catalog.Problem{Severity: catalog.Warning, Object: object, Offset: -1, Text: fmt.Sprintf("its parent table %s.%s does not exist", f.ParentDatabase, f.ParentTable)})
	}
	look, ok := newParents(parent, f.ParentColumns)
	if !ok {
		return k.report(catalog.Problem{Severity: catalog.Warning, Object: object, Offset: -1, Text: fmt.Sprintf("no index of %s.%s begins with its columns", f.ParentDatabase, f.ParentTable)})
	}
	names := []string{storage.ColRecordKey}
	for i := range look.order {
		// The child's columns in the order of the parent's index.
		n := slices.Index(look.order, i)
		at := fieldIndex(child.def.spec.Schema, f.Columns[n])
		pf := fieldIndex(parent.def.spec.Schema, f.ParentColumns[n])
		if at < 0 || pf < 0 || child.def.spec.Schema.Fields[at].Type.Kind != parent.def.spec.Schema.Fields[pf].Type.Kind {
			return k.report(catalog.Problem{Severity: catalog.Warning, Object: object, Offset: -1, Text: "the types of its columns cannot be compared"})
		}
		names = append(names, child.def.spec.Schema.Fields[at].Name)
	}
	bad := 0
	type waiting struct {
		key    string
		values storage.Row
	}
	wait := map[string]waiting{} // by index key: the first row that asks for the parent
	flush := func() error {
		found, err := look.find(k.ctx, tx, mapValues(wait, func(w waiting) storage.Row { return w.values }))
		if err != nil {
			return err
		}
		for _, ikey := range sortedNames(wait) {
			if found[ikey] {
				continue
			}
			if bad++; bad > rowsMax {
				continue
			}
			w := wait[ikey]
			err := k.report(catalog.Problem{Object: object, Offset: -1, Key: w.key, Text: fmt.Sprintf("%s.%s has no row (%s)", f.ParentDatabase, f.ParentTable, textOf(w.values)), Advice: "add the parent, or update or delete the row"})
			if err != nil {
				return err
			}
		}
		clear(wait)
		return nil
	}
	for b, err := range tx.Scan(k.ctx, child.t, catalog.ScanOptions{Columns: names}) {
		if err != nil {
			return err
		}
	rows:
		for i := range b.Rows {
			values := make(storage.Row, len(names)-1)
			for n := range values {
				if values[n] = b.Value(n+1, i); values[n] == nil {
					continue rows
				}
			}
			ikey, err := parent.t.KeyOf(look.index, values)
			if err != nil {
				return err
			}
			if _, ok := wait[string(ikey)]; !ok {
				key, _ := b.Value(0, i).(string)
				wait[string(ikey)] = waiting{key, values}
			}
			if len(wait) >= parentsAtOnce {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return k.more(bad, "values of "+object+" without a parent")
}

// parents finds rows of a foreign key's parent table.
type parents struct {
	t     *table
	index string   // that begins with the columns, "" for the primary key
	order []int    // place in the index of each of the foreign key's columns
	names []string // the columns in the order of the index
}

func newParents(t *table, columns []string) (*parents, bool) {
	try := func(name string, key []catalog.KeyColumn) (*parents, bool) {
		if len(key) < len(columns) {
			return nil, false
		}
		p := &parents{t: t, index: name, order: make([]int, len(columns)), names: make([]string, len(columns))}
		for n, c := range columns {
			at := slices.IndexFunc(key[:len(columns)], func(k catalog.KeyColumn) bool { return strings.EqualFold(k.Column, c) && k.Prefix == 0 })
			if at < 0 || p.names[at] != "" {
				return nil, false
			}
			p.order[n], p.names[at] = at, key[at].Column
		}
		return p, true
	}
	if p, ok := try("", t.def.spec.Key); ok && !t.def.spec.PerPartition {
		return p, true
	}
	for _, x := range t.def.spec.Indexes {
		if p, ok := try(x.Name, x.Columns); ok {
			return p, true
		}
	}
	return nil, false
}

// find tells which of the values, given by their index keys, have a row.
func (p *parents) find(ctx context.Context, tx *catalog.Tx, values map[string]storage.Row) (map[string]bool, error) {
	found := map[string]bool{}
	if len(values) == 0 {
		return found, nil
	}
	ranges := make([]catalog.KeyRange, 0, len(values))
	for _, ikey := range sortedNames(values) {
		ranges = append(ranges, catalog.KeyRange{Low: values[ikey], High: values[ikey]})
	}
	for b, err := range tx.Lookup(ctx, p.t.t, p.index, ranges, catalog.ScanOptions{Columns: p.names}) {
		if err != nil {
			return nil, err
		}
		for i := range b.Rows {
			ikey, err := p.t.t.KeyOf(p.index, b.Row(i, nil))
			if err != nil {
				return nil, err
			}
			found[string(ikey)] = true
		}
	}
	return found, nil
}

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func mapValues[V, W any](m map[string]V, f func(V) W) map[string]W {
	out := make(map[string]W, len(m))
	for k, v := range m {
		out[k] = f(v)
	}
	return out
}

func textOf(row storage.Row) string {
	out := make([]string, len(row))
	for i, v := range row {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, ", ")
}

// isView tells whether a name is a view's.
func (e *Engine) isView(ctx *sql.Context, db, name string) (bool, error) {
	p := provider{engine: e}
	d, err := p.Database(ctx, db)
	if err != nil {
		if sql.ErrDatabaseNotFound.Is(err) {
			return false, nil
		}
		return false, err
	}
	v, ok := d.(sql.ViewDatabase)
	if !ok {
		return false, nil
	}
	_, ok, err = v.GetViewDefinition(ctx, name)
	return ok, err
}
