package sqlplan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

var (
	_ sql.AlterableTable           = (*ownTable)(nil)
	_ sql.IndexAlterableTable      = (*ownTable)(nil)
	_ sql.PrimaryKeyAlterableTable = (*ownTable)(nil)
	_ sql.CheckAlterableTable      = (*ownTable)(nil)
	_ sql.CollationAlterableTable  = (*ownTable)(nil)
	_ sql.CommentAlterableTable    = (*ownTable)(nil)
	_ sql.AutoIncrementTable       = (*ownTable)(nil)
	_ sql.TruncateableTable        = (*ownTable)(nil)
)

// reload makes the table show its newest definition: the front end goes on with the same object after an alteration.
func (t *ownTable) reload(ctx *sql.Context) error {
	n, err := newTable(ctx, t.db, t.catalog, t.t, t.temporary)
	if err != nil {
		return err
	}
	*t.table = *n
	sessionOf(ctx).stmt.altered = true
	return nil
}

// prepare ends what the session has open.
func (t *ownTable) prepare(ctx *sql.Context) error {
	if t.temporary {
		return nil
	}
	return sessionOf(ctx).commitBeforeDDL(ctx)
}

// alterSpec gives the table a new specification; st says how its rows follow, nil: they stay as they are.
func (t *ownTable) alterSpec(ctx *sql.Context, spec catalog.TableSpec, st *stage) error {
	return sessionOf(ctx).changing(ctx, func(c *change) error {
		p, err := c.table(ctx, t.table)
		if err != nil {
			return err
		}
		if p.t.Spec().Attached {
			return mysqlError(fmt.Errorf("%w: the definition of %s belongs to the engine that wrote it", catalog.ErrReadOnly, p.t))
		}
		def, err := newDefinition(ctx, p.db, p.name, p.t.Version(), &spec)
		if err != nil {
			return mysqlError(err)
		}
		if st != nil {
			if st.virtual, err = t.virtualValues(ctx); err != nil {
				return mysqlError(err)
			}
			st.old = t.def
			p.stages = append(p.stages, *st)
		}
		p.def = def
		return t.reload(ctx)
	})
}

// newValue computes a column of a row from the row's old values.
type newValue func(ctx *sql.Context, old sql.Row) (any, error)

// alterColumns gives the table the columns of a definition. from[i] is the old position of column i, -1 for a new one;
// values computes columns that do not just move; those of free ones are the same in the files.
func (t *ownTable) alterColumns(ctx *sql.Context, def *tableDefinition, from []int, values map[int]newValue, free ...int) error {
	pk, err := def.schema(ctx, t.db.name, t.Name())
	if err != nil {
		return mysqlError(err)
	}
	old := t.def
	spec := *old.spec
	files, oldFiles := kept(def, pk.Schema), kept(old.table, old.pk.Schema) // which VIRTUAL columns have a field
	spec.Schema, err = tableSchema(files)
	if err != nil {
		return err
	}
	// A column that keeps its MySQL type keeps the type of its files: attached tables have types that MySQL has no name for.
	renamed := map[string]string{}
	for i, n := range from {
		if n < 0 || files[i].Virtual || oldFiles[n].Virtual {
			continue
		}
		was := old.spec.Schema.Fields[fieldIndex(old.spec.Schema, old.pk.Schema[n].Name)]
		f := &spec.Schema.Fields[spec.Schema.Index(pk.Schema[i].Name)]
		if def.Columns[i].Type == old.table.Columns[n].Type {
			f.Type = was.Type
		}
		renamed[was.Name] = f.Name
	}
	if err := fillSpec(&spec, def, pk); err != nil {
		return mysqlError(err)
	}
	spec.Partition = slices.Clone(spec.Partition)
	for i, name := range spec.Partition {
		if spec.Partition[i] = renamed[name]; spec.Partition[i] == "" {
			return errOption("Column '%s' is a partition column and cannot be dropped", name)
		}
	}
	if spec.OrderingField != "" {
		name := spec.OrderingField
		if spec.OrderingField = renamed[name]; spec.OrderingField == "" {
			return errOption("Column '%s' is the ordering column and cannot be dropped", name)
		}
	}

	columns := make([]int, len(spec.Schema.Fields))
	for i := range columns {
		columns[i] = -1
		n := pk.Schema.IndexOfColName(spec.Schema.Fields[i].Name)
		if n >= 0 && from[n] >= 0 && !oldFiles[from[n]].Virtual {
			columns[i] = fieldIndex(old.spec.Schema, old.pk.Schema[from[n]].Name)
		}
	}
	// A VIRTUAL column that an index begins to need gets its values in the files.
	for i, n := range from {
		if n >= 0 && pk.Schema[i].Virtual && !files[i].Virtual && oldFiles[n].Virtual && values[i] == nil {
			if values == nil {
				values = map[int]newValue{}
			}
			values[i] = func(_ *sql.Context, row sql.Row) (any, error) { return row[n], nil }
		}
	}
	return t.alterSpec(ctx, spec, &stage{from: from, values: values, fields: columns, free: free})
}

// virtualValues gives the expressions of the table's VIRTUAL columns over its rows.
func (t *ownTable) virtualValues(ctx *sql.Context) (map[int]sql.Expression, error) {
	if !t.def.pk.Schema.HasVirtualColumns() {
		return nil, nil
	}
	out := map[int]sql.Expression{}
	sch, err := resolvedSchema(ctx, t.db.name, t.Name(), t.def.pk.Schema)
	if err != nil {
		return nil, err
	}
	for i, c := range sch {
		if c.Virtual && c.Generated != nil {
			if out[i], err = overOldRow(ctx, c.Generated, t.def.pk.Schema); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// overOldRow gives an expression with its columns at their positions in a schema.
func overOldRow(ctx *sql.Context, e sql.Expression, sch sql.Schema) (sql.Expression, error) {
	out, _, err := transform.Expr(ctx, e, func(ctx *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
		f, ok := e.(*expression.GetField)
		if !ok {
			return e, transform.SameTree, nil
		}
		n := sch.IndexOfColName(f.Name())
		if n < 0 {
			return nil, transform.SameTree, sql.ErrColumnNotFound.New(f.Name())
		}
		return f.WithIndex(n), transform.NewTree, nil
	})
	return out, err
}

// AddColumn adds a column; the rows get its default, its generated value, or its next number.
func (t *ownTable) AddColumn(ctx *sql.Context, column *sql.Column, order *sql.ColumnOrder) error {
	def := t.def.table.clone()
	c, err := newColumnDefinition(ctx, column)
	if err != nil {
		return mysqlError(err)
	}
	at := place(def, order, len(def.Columns))
	if at < 0 {
		return sql.ErrTableColumnNotFound.New(t.Name(), order.AfterColumn)
	}
	def.Columns = slices.Insert(def.Columns, at, c)
	if column.PrimaryKey {
		if len(def.PrimaryKey) > 0 {
			return sql.ErrMultiplePrimaryKeysDefined.New()
		}
		def.PrimaryKey = []keyPart{{Column: c.Name}}
	}
	from := slices.Insert(identity(len(def.Columns)-1), at, -1)
	values := map[int]newValue{}
	if !column.Virtual {
		v, err := t.fill(ctx, column)
		if err != nil {
			return mysqlError(err)
		}
		if v != nil {
			values[at] = v
		}
	}
	if err := t.alterColumns(ctx, def, from, values); err != nil {
		return err
	}
	t.filled = true
	return nil
}

// fill says what existing rows get in a new column, nil for NULL.
func (t *ownTable) fill(ctx *sql.Context, column *sql.Column) (newValue, error) {
	expr := column.Default
	if expr == nil {
		expr = column.Generated
	}
	switch {
	case column.AutoIncrement:
		var last uint64
		return func(ctx *sql.Context, _ sql.Row) (any, error) {
			last++
			v, _, err := column.Type.Convert(ctx, last)
			return v, err
		}, nil
	case expr != nil:
		e, err := overOldRow(ctx, expr, t.def.pk.Schema)
		if err != nil {
			return nil, err
		}
		return func(ctx *sql.Context, old sql.Row) (any, error) {
			v, err := e.Eval(ctx, old)
			if err != nil || v == nil {
				if v == nil && err == nil && !column.Nullable {
					err = sql.ErrInsertIntoNonNullableProvidedNull.New(column.Name)
				}
				return nil, err
			}
			v, in, err := column.Type.Convert(ctx, v)
			if err == nil && in != sql.InRange {
				err = sql.ErrValueOutOfRange.New(v, column.Type)
			}
			return v, err
		}, nil
	case !column.Nullable:
		zero, _, err := column.Type.Convert(ctx, column.Type.Zero())
		return func(*sql.Context, sql.Row) (any, error) { return zero, nil }, err
	}
	return nil, nil
}

// place gives the position that FIRST or AFTER asks for, otherwise at; -1 if there is no such column.
func place(def *tableDefinition, order *sql.ColumnOrder, at int) int {
	switch {
	case order == nil:
		return at
	case order.First:
		return 0
	}
	n := def.columnNumber(order.AfterColumn)
	if n < 0 {
		return -1
	}
	return n + 1
}

// DropColumn drops a column, and takes it out of the secondary indexes.
func (t *ownTable) DropColumn(ctx *sql.Context, name string) error {
	def := t.def.table.clone()
	n := def.columnNumber(name)
	if n < 0 {
		return sql.ErrTableColumnNotFound.New(t.Name(), name)
	}
	if err := def.release(name, false); err != nil {
		return err
	}
	def.Columns = slices.Delete(def.Columns, n, n+1)
	from := slices.Delete(identity(len(def.Columns)+1), n, n+1)
	is := func(p keyPart) bool { return strings.EqualFold(p.Column, name) }
	def.PrimaryKey = slices.DeleteFunc(def.PrimaryKey, is)
	def.Indexes = slices.DeleteFunc(def.Indexes, func(x indexDefinition) bool {
		return !slices.ContainsFunc(x.Columns, func(p keyPart) bool { return !is(p) })
	})
	for i := range def.Indexes {
		def.Indexes[i].Columns = slices.DeleteFunc(slices.Clone(def.Indexes[i].Columns), is)
	}
	return t.alterColumns(ctx, def, from, nil)
}

// CreatePrimaryKey makes columns the primary key; a table without one had a generated key.
func (t *ownTable) CreatePrimaryKey(ctx *sql.Context, columns []sql.IndexColumn) error {
	def := t.def.table.clone()
	if len(def.PrimaryKey) > 0 {
		return sql.ErrMultiplePrimaryKeysDefined.New()
	}
	values := map[int]newValue{}
	for _, c := range columns {
		n := def.columnNumber(c.Name)
		if n < 0 {
			return sql.ErrKeyColumnDoesNotExist.New(c.Name)
		}
		if c.Length > 0 && types.IsText(t.def.pk.Schema[n].Type) {
			return sql.ErrUnsupportedIndexPrefix.New(c.Name)
		}
		def.PrimaryKey = append(def.PrimaryKey, keyPart{Column: def.Columns[n].Name})
		if def.Columns[n].Nullable {
			def.Columns[n].Nullable = false
			values[n] = func(_ *sql.Context, old sql.Row) (any, error) {
				if old[n] == nil {
					return nil, sql.ErrInsertIntoNonNullableProvidedNull.New(c.Name)
				}
				return old[n], nil
			}
		}
	}
	return t.alterColumns(ctx, def, identity(len(def.Columns)), values)
}

// DropPrimaryKey leaves the table with a generated key.
func (t *ownTable) DropPrimaryKey(ctx *sql.Context) error {
	if len(t.def.table.PrimaryKey) == 0 {
		return sql.ErrCantDropFieldOrKey.New(primaryIndex)
	}
	if c := sessionOf(ctx).stmt.change; c == nil || !c.rekeys {
		if err := sql.ValidatePrimaryKeyDrop(ctx, t, t.def.pk); err != nil {
			return err
		}
	}
	def := t.def.table.clone()
	def.PrimaryKey = nil
	return t.alterColumns(ctx, def, identity(len(def.Columns)), nil)
}

// CreateIndex adds a secondary index and builds it from the rows.
func (t *ownTable) CreateIndex(ctx *sql.Context, x sql.IndexDef) error {
	add, err := newIndexDefinition(x)
	if err != nil {
		return err
	}
	if add.Name == "" {
		if add.Name, err = sql.GenerateMySqlIndexName(ctx, x, t); err != nil {
			return mysqlError(err)
		}
	}
	def := t.def.table.clone()
	if def.indexNumber(add.Name) >= 0 {
		return sql.ErrDuplicateKey.New(add.Name)
	}
	def.Indexes = append(def.Indexes, add)
	return t.setIndexes(ctx, def)
}

func (t *ownTable) setIndexes(ctx *sql.Context, def *tableDefinition) error {
	had, has := kept(t.def.table, t.def.pk.Schema), kept(def, t.def.pk.Schema)
	for i := range has {
		if has[i].Virtual != had[i].Virtual {
			return t.alterColumns(ctx, def, identity(len(def.Columns)), nil)
		}
	}
	specs, err := indexSpecs(t.def.pk.Schema, def.Indexes)
	if err != nil {
		return err
	}
	spec := *t.def.spec
	spec.Indexes = specs
	if spec.Definition, err = def.encode(); err != nil {
		return mysqlError(err)
	}
	return t.alterSpec(ctx, spec, nil)
}

// DropIndex drops a secondary index, or the primary key under its name.
func (t *ownTable) DropIndex(ctx *sql.Context, name string) error {
	if strings.EqualFold(name, primaryIndex) {
		return t.DropPrimaryKey(ctx)
	}
	def := t.def.table.clone()
	n := def.indexNumber(name)
	if n < 0 {
		return sql.ErrIndexNotFound.New(name)
	}
	def.Indexes = slices.Delete(def.Indexes, n, n+1)
	return t.setIndexes(ctx, def)
}

func (t *ownTable) RenameIndex(ctx *sql.Context, from, to string) error {
	def := t.def.table.clone()
	n := def.indexNumber(from)
	if n < 0 {
		return sql.ErrIndexNotFound.New(from)
	}
	if k := def.indexNumber(to); k >= 0 && k != n {
		return sql.ErrDuplicateKey.New(to)
	}
	def.Indexes[n].Name = to
	return t.setIndexes(ctx, def)
}

// setDefinition changes what only MySQL knows of the table.
func (t *ownTable) setDefinition(ctx *sql.Context, def *tableDefinition) error {
	spec := *t.def.spec
	var err error
	if spec.Definition, err = def.encode(); err != nil {
		return mysqlError(err)
	}
	return t.alterSpec(ctx, spec, nil)
}

// ModifyComment changes the comment; table options of ALTER TABLE come the same way (see dialect.Carrier).
func (t *ownTable) ModifyComment(ctx *sql.Context, comment string) error {
	c, ok, err := dialect.DecodeComment(comment)
	if err != nil {
		return mysqlError(err)
	}
	if ok {
		return t.setOptions(ctx, c.Options)
	}
	def := t.def.table.clone()
	def.Comment = comment
	return t.setDefinition(ctx, def)
}

// ModifyDefaultCollation changes the collation that new columns get.
func (t *ownTable) ModifyDefaultCollation(ctx *sql.Context, collation sql.CollationID) error {
	def := t.def.table.clone()
	def.Collation = collation.Name()
	return t.setDefinition(ctx, def)
}

// ModifyStoredCollation changes the collation of the table and of its text columns. Texts are kept as UTF-8 whatever their
// character set, so rows change only where keys compare otherwise.
func (t *ownTable) ModifyStoredCollation(ctx *sql.Context, collation sql.CollationID) error {
	def := t.def.table.clone()
	def.Collation = collation.Name()
	for i, c := range t.def.pk.Schema {
		ct, ok := c.Type.(sql.TypeWithCollation)
		if !ok || types.IsBinaryType(c.Type) {
			continue
		}
		n, err := ct.WithNewCollation(collation)
		if err != nil {
			return mysqlError(err)
		}
		def.Columns[i].Type = typeText(n)
	}
	values := map[int]newValue{}
	for _, p := range def.PrimaryKey {
		n := def.columnNumber(p.Column)
		values[n] = func(_ *sql.Context, old sql.Row) (any, error) { return old[n], nil }
	}
	return t.alterColumns(ctx, def, identity(len(def.Columns)), values)
}

// CHECK constraints.

func (def *tableDefinition) hasCheck(name string) bool {
	return slices.ContainsFunc(def.Checks, func(c checkDefinition) bool { return strings.EqualFold(c.Name, name) })
}

// freeCheckName gives a constraint without a name the name that MySQL gives it.
func (def *tableDefinition) freeCheckName(table string) string {
	for n := 1; ; n++ {
		if name := checkName(table, n); !def.hasCheck(name) {
			return name
		}
	}
}

// nameCheck names a constraint before the rows are checked, so that the error names it.
func nameCheck(ctx *sql.Context, n *plan.CreateCheck) error {
	if n.Check.Name != "" {
		return nil
	}
	d := databaseOf(n.Database())
	if d == nil {
		return nil
	}
	t, err := d.table(ctx, n.Table.Name())
	if err == nil && t != nil {
		n.Check.Name = t.def.table.freeCheckName(t.Name())
	}
	return err
}

func (t *ownTable) CreateCheck(ctx *sql.Context, check *sql.CheckDefinition) error {
	def := t.def.table.clone()
	add := newCheckDefinition(check)
	if add.Name == "" {
		add.Name = def.freeCheckName(t.Name())
	} else if def.hasCheck(add.Name) {
		return sql.ErrDuplicateCheckName.New(add.Name)
	}
	def.Checks = append(def.Checks, add)
	return t.setDefinition(ctx, def)
}

func (t *ownTable) DropCheck(ctx *sql.Context, name string) error {
	def := t.def.table.clone()
	n := slices.IndexFunc(def.Checks, func(c checkDefinition) bool { return strings.EqualFold(c.Name, name) })
	if n < 0 {
		return sql.ErrUnknownConstraint.New(name)
	}
	def.Checks = slices.Delete(def.Checks, n, n+1)
	return t.setDefinition(ctx, def)
}

// AUTO_INCREMENT.

// GetNextAutoIncrementValue gives the next value. One that a row brings is noted when the row is taken, see noteNumber.
func (t *ownTable) GetNextAutoIncrementValue(ctx *sql.Context, given any) (uint64, error) {
	if given != nil {
		v, _, err := types.Uint64.Convert(ctx, given)
		if err != nil {
			return 0, mysqlError(err)
		}
		if n := v.(uint64); n > 0 {
			return n, nil
		}
	}
	v, err := t.t.NextAutoIncrement(ctx, 1)
	return t.lastNumber(ctx, v), mysqlError(err)
}

func (t *ownTable) AutoIncrementSetter(ctx *sql.Context) sql.AutoIncrementSetter {
	return &autoSetter{t}
}

type autoSetter struct{ t *ownTable }

func (a *autoSetter) SetAutoIncrementValue(ctx *sql.Context, next uint64) error {
	return sessionOf(ctx).changing(ctx, func(c *change) error {
		p, err := c.table(ctx, a.t.table)
		if err == nil {
			p.auto = max(next, 1)
		}
		return err
	})
}

// AcquireAutoIncrementLock needs no lock: the catalog hands out each value once.
func (a *autoSetter) AcquireAutoIncrementLock(*sql.Context) (func(), error) { return func() {}, nil }
func (a *autoSetter) Close(*sql.Context) error                              { return nil }

// Truncate removes all rows. TRUNCATE TABLE does so at once, outside of any transaction. The front end also makes one of a
// DELETE without WHERE, which has to stay a part of its transaction.
func (t *ownTable) Truncate(ctx *sql.Context) (int, error) {
	if !sessionOf(ctx).stmt.truncates[strings.ToLower(t.Name())] {
		return t.deleteAll(ctx)
	}
	if err := t.prepare(ctx); err != nil {
		return 0, err
	}
	if t.temporary {
		sessionOf(ctx).closeTemporary(t.t)
	}
	n, err := t.catalog.TruncateTable(sessionOf(ctx).changeWait(ctx), t.t)
	if !t.db.engine.plainText {
		n = 0 // as MySQL
	}
	return int(n), mysqlError(err)
}

// deleteAll deletes every row as DELETE does.
func (t *ownTable) deleteAll(ctx *sql.Context) (n int, err error) {
	e := t.editor(ctx)
	e.StatementBegin(ctx)
	whole, err := t.project(nil)
	if err != nil {
		return 0, err
	}
	iter, err := whole.scan(ctx, nil)
	for err == nil {
		var row sql.Row
		if row, err = iter.Next(ctx); err == nil {
			err = e.Delete(ctx, row)
			n++
		}
	}
	if iter != nil {
		iter.Close(ctx)
	}
	if err == io.EOF {
		err = e.StatementComplete(ctx)
	} else {
		n = 0
		if derr := e.DiscardChanges(ctx, err); derr != nil {
			err = derr
		}
	}
	if cerr := e.Close(ctx); err == nil {
		err = cerr
	}
	return n, err
}

// resolvedSchema gives a schema with its defaults and generated columns resolved.
func resolvedSchema(ctx *sql.Context, db, table string, sch sql.Schema) (out sql.Schema, err error) {
	// The front end's builder reports errors by panics.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("table %s.%s: reading the generated columns: %v", db, table, r)
		}
	}()
	return planbuilder.NewBuilderForColumnDefaultResolution(ctx, sql.EngineOverrides{}).ResolveSchemaDefaults(db, table, sch), nil
}

func checkName(table string, n int) string { return fmt.Sprintf("%s_chk_%d", table, n) }
