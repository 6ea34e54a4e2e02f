package sqlplan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// editor changes a table for one part of a statement. The rows go straight into the session's transaction; what the
// statement reads of the table is held at the mark of its first editor (see edit).
type editor struct {
	table     *ownTable
	session   *Session
	tx        *catalog.Tx
	inserting bool // adds rows: INSERT and REPLACE
	replacing bool
	reading   reading // of an editor by which foreign keys look rows up

	began bool
	mark  catalog.Mark // the statement's beginning, or the row's in a statement with IGNORE
	err   error        // of StatementBegin, which cannot give one

	// REPLACE over event times: the row that goes when the next one comes.
	replaced sql.Row
	checks   *rowChecks // of a table with VIRTUAL columns
	codec    *rowCodec

	// bulk: nothing reads or refuses single rows of the statement, so many of them may go to the catalog by batches.
	bulk   bool
	rows   int     // that the table took one by one
	loader *Loader // takes the others; nil: there are none yet
}

var (
	_ sql.RowReplacer      = (*editor)(nil)
	_ sql.RowUpdater       = (*editor)(nil)
	_ sql.ForeignKeyEditor = (*editor)(nil)
)

var (
	_ sql.InsertableTable  = (*ownTable)(nil)
	_ sql.UpdatableTable   = (*ownTable)(nil)
	_ sql.DeletableTable   = (*ownTable)(nil)
	_ sql.ReplaceableTable = (*ownTable)(nil)
)

func (t *ownTable) editor(ctx *sql.Context) *editor {
	return &editor{table: t, session: sessionOf(ctx)}
}

func (t *ownTable) Inserter(ctx *sql.Context) sql.RowInserter {
	e := t.editor(ctx)
	e.inserting = true
	e.bulk = e.session.stmt.bulk == t.t && t.def.ordering < 0
	return e
}

func (t *ownTable) Replacer(ctx *sql.Context) sql.RowReplacer {
	e := t.editor(ctx)
	e.inserting, e.replacing = true, true
	return e
}

func (t *ownTable) Updater(ctx *sql.Context) sql.RowUpdater {
	if t.filled {
		return noUpdates{}
	}
	return t.editor(ctx)
}

// noUpdates takes the updates by which the front end would fill a new column: the rows have their values.
type noUpdates struct{}

func (noUpdates) StatementBegin(*sql.Context)                 {}
func (noUpdates) DiscardChanges(*sql.Context, error) error    { return nil }
func (noUpdates) StatementComplete(*sql.Context) error        { return nil }
func (noUpdates) Update(*sql.Context, sql.Row, sql.Row) error { return nil }
func (noUpdates) Close(*sql.Context) error                    { return nil }

func (t *ownTable) Deleter(ctx *sql.Context) sql.RowDeleter { return t.editor(ctx) }

// begin opens the edit if StatementBegin did not: the front end leaves it out for INSERT … RETURNING and for foreign keys.
func (e *editor) begin(ctx *sql.Context) error {
	if e.began || e.err != nil {
		return e.err
	}
	s := e.session
	t := e.table
	tx, err := s.use(ctx, t.table)
	if err != nil {
		e.err = err
		return err
	}
	if e.checks, e.err = newRowChecks(ctx, t.db.name, t.Name(), t.def.pk.Schema, t.def.table.Checks); e.err != nil {
		e.err = mysqlError(e.err)
		return e.err
	}
	if e.codec, e.err = t.def.codec.zoned(ctx); e.err != nil {
		return e.err
	}
	e.began, e.tx, e.mark = true, tx, tx.Mark()
	ed := s.stmt.edits[e.table.t]
	if ed == nil {
		ed = &edit{mark: e.mark}
		if s.stmt.edits == nil {
			s.stmt.edits = map[*catalog.Table]*edit{}
		}
		s.stmt.edits[e.table.t] = ed
	}
	ed.open++
	if e.inserting {
		ed.inserting++
	}
	return nil
}

// StatementBegin marks the state to which an error goes back. In a statement with IGNORE it is called for each row.
func (e *editor) StatementBegin(ctx *sql.Context) {
	if e.began {
		e.mark = e.tx.Mark()
		return
	}
	e.begin(ctx) // its error is kept for the first row
}

// StatementComplete ends a statement or, with IGNORE, a row.
func (e *editor) StatementComplete(ctx *sql.Context) error {
	if e.loader != nil {
		if err := e.loader.finish(ctx); err != nil {
			if derr := e.DiscardChanges(ctx, err); derr != nil {
				return derr
			}
			return err
		}
		e.loader = nil
	}
	return e.session.failed(e.flushReplaced(ctx))
}

// DiscardChanges goes back to the beginning of the statement or of the row.
func (e *editor) DiscardChanges(ctx *sql.Context, cause error) error {
	e.replaced = nil
	if e.loader != nil {
		e.loader.abort()
		e.loader = nil
	}
	if !e.began || e.tx.Mark() <= e.mark {
		return nil
	}
	return mysqlError(e.tx.RollbackTo(e.mark))
}

func (e *editor) Close(ctx *sql.Context) error {
	err := e.flushReplaced(ctx)
	if e.loader != nil { // the front end gave up between two rows
		e.loader.abort()
		e.loader = nil
	}
	if e.began {
		e.began = false
		if ed := e.session.stmt.edits[e.table.t]; ed != nil {
			ed.open--
			if e.inserting {
				ed.inserting--
			}
			if ed.open == 0 {
				delete(e.session.stmt.edits, e.table.t)
			}
		}
	}
	return e.session.failed(err)
}

// encode makes the row of the table schema.
func (e *editor) encode(row sql.Row) (storage.Row, error) {
	def := e.table.def
	// Meta columns, if the statement names some, stand behind the table's own.
	if len(row) > def.codec.width {
		row = row[:def.codec.width]
	}
	if len(row) < def.codec.width {
		return nil, sql.ErrUnexpectedRowLength.New(def.codec.width, len(row))
	}
	if def.ordering >= 0 && row[def.ordering] == nil {
		return nil, sql.ErrInsertIntoNonNullableProvidedNull.New(def.pk.Schema[def.ordering].Name)
	}
	dst := make(storage.Row, len(def.spec.Schema.Fields))
	if err := e.codec.encode(row, dst); err != nil {
		return nil, err
	}
	return dst, nil
}

// Insert adds a row. A key that is taken is the front end's own error, which ON DUPLICATE KEY and IGNORE look for.
func (e *editor) Insert(ctx *sql.Context, row sql.Row) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := e.checks.check(ctx, row); err != nil {
		return mysqlError(err)
	}
	if e.bulk && e.rows >= loaderBulkRows && len(row) == e.table.def.codec.width {
		return e.insertMany(ctx, row)
	}
	dst, err := e.encode(row)
	if err != nil {
		return mysqlError(err)
	}
	if e.replaced != nil {
		old := e.replaced
		e.replaced = nil
		return e.replaceVersion(ctx, old, row, dst)
	}
	if err := e.tx.Insert(ctx, e.table.t, dst); err != nil {
		return e.changed(ctx, err)
	}
	e.rows++
	return e.noteNumber(ctx, row)
}

// insertMany adds a row of a statement that has very many.
func (e *editor) insertMany(ctx *sql.Context, row sql.Row) error {
	if e.loader == nil {
		if e.bulk = e.loadable(); !e.bulk {
			return e.Insert(ctx, row)
		}
		e.loader = newLoader(ctx, e, DuplicatesFail)
		if err := e.loader.begin(ctx); err != nil {
			return err
		}
	}
	if err := e.loader.add(ctx, row); err != nil {
		return mysqlError(err)
	}
	return e.noteNumber(ctx, row)
}

// noteNumber raises the AUTO_INCREMENT counter above the value of a row that the table took. One that it refused leaves the
// counter where it is, as in MySQL.
func (e *editor) noteNumber(ctx *sql.Context, row sql.Row) error {
	t := e.table
	i := t.def.auto
	if i < 0 || i >= len(row) || row[i] == nil {
		return nil
	}
	n, ok := row[i].(uint64)
	if !ok {
		v, _, err := types.Int64.Convert(ctx, row[i])
		signed, isInt := v.(int64)
		if err != nil || !isInt || signed <= 0 {
			return nil // the counter never reaches it
		}
		n = uint64(signed)
	}
	// The counter has to be known to be raised.
	if _, err := t.t.PeekAutoIncrement(ctx); err != nil {
		return mysqlError(err)
	}
	t.t.NoteAutoIncrement(n)
	return nil
}

// replaceVersion puts a row of REPLACE in the place of the one with its key. In an event-time table one that comes late is
// ignored, as Hudi's writers do.
func (e *editor) replaceVersion(ctx *sql.Context, old, row sql.Row, dst storage.Row) error {
	from, err := e.encode(old)
	if err != nil {
		return mysqlError(err)
	}
	err = e.tx.Update(ctx, e.table.t, from, dst)
	var late *catalog.LateError
	if errors.As(err, &late) {
		e.session.stmt.late++
		return nil
	}
	return e.changed(ctx, err)
}

// Update replaces a row. One that does not change is left as it is: it gets no new version.
func (e *editor) Update(ctx *sql.Context, old, row sql.Row) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	from, err := e.encode(old)
	if err != nil {
		return mysqlError(err)
	}
	// The front end looks for NULL after UPDATE, and not after ON DUPLICATE KEY UPDATE.
	for i, col := range e.table.def.pk.Schema {
		if i < min(len(row), len(old)) && row[i] == nil && old[i] != nil && !col.Nullable {
			return mysqlError(sql.ErrInsertIntoNonNullableProvidedNull.New(col.Name))
		}
	}
	to, err := e.encode(row)
	if err != nil {
		return mysqlError(err)
	}
	if sameRow(from, to) {
		return nil
	}
	if err := e.checks.check(ctx, row); err != nil {
		return mysqlError(err)
	}
	err = e.tx.Update(ctx, e.table.t, from, to)
	if i := e.table.def.auto; err == nil && i >= 0 && i < len(row) && old[i] != row[i] {
		return e.noteNumber(ctx, row)
	}
	var late *catalog.LateError
	if errors.As(err, &late) && e.upserting() {
		e.session.stmt.late++
		copy(row, old) // the front end counts affected rows by comparing the two
		return nil
	}
	return e.changed(ctx, err)
}

// upserting says that an update comes from ON DUPLICATE KEY.
func (e *editor) upserting() bool {
	ed := e.session.editOf(e.table.t)
	return ed != nil && ed.inserting > 0
}

// Delete removes a row.
func (e *editor) Delete(ctx *sql.Context, row sql.Row) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if e.replacing && e.table.def.ordering >= 0 && e.replaced == nil {
		e.replaced = row
		return nil
	}
	from, err := e.encode(row)
	if err != nil {
		return mysqlError(err)
	}
	return e.changed(ctx, e.tx.Delete(ctx, e.table.t, from))
}

// flushReplaced removes a row whose replacement never came.
func (e *editor) flushReplaced(ctx *sql.Context) error {
	if e.replaced == nil {
		return nil
	}
	from, err := e.encode(e.replaced)
	e.replaced = nil
	if err != nil {
		return err
	}
	return e.tx.Delete(ctx, e.table.t, from)
}

// changed translates the error of a write.
func (e *editor) changed(ctx *sql.Context, err error) error {
	var dup *catalog.DuplicateKeyError
	if !errors.As(err, &dup) {
		return e.session.failed(err)
	}
	existing := make(sql.Row, e.codec.width)
	cols := e.table.def.keyParts(dup.Index)
	if dup.Existing != nil {
		var err error
		if existing, err = e.codec.decodeRow(dup.Existing); err != nil {
			return mysqlError(err)
		}
	} else { // a load knows the row's key alone, and nothing asks it for more
		for i, c := range cols {
			v, err := e.codec.byName[e.table.def.pk.Schema[e.table.def.column(c.Column)].Name].fromValue(dup.Key[i])
			if err != nil {
				return mysqlError(err)
			}
			existing[e.table.def.column(c.Column)] = v
		}
	}
	if ed := e.session.editOf(e.table.t); e.replacing || e.inserting && ed != nil && ed.open > ed.inserting {
		// REPLACE and ON DUPLICATE KEY UPDATE: the front end goes on with the row that is there and shows the text to nobody.
		return sql.NewUniqueKeyErr("Duplicate entry", dup.Index == "", existing)
	}
	return duplicateKey(ctx, e.table.def, e.table.Name(), dup.Index, existing)
}

// keyParts are the columns of the primary key (name "") or of an index.
func (d *definition) keyParts(name string) []keyPart {
	if name == "" {
		return d.table.PrimaryKey
	}
	if i := d.table.indexNumber(name); i >= 0 {
		return d.table.Indexes[i].Columns
	}
	return nil
}

// duplicateKey is the front end's error for a key that is taken, with MySQL's text.
func duplicateKey(ctx *sql.Context, d *definition, table, name string, existing sql.Row) error {
	cols := d.keyParts(name)
	values := make([]string, len(cols))
	for i, c := range cols {
		n := d.column(c.Column)
		v := existing[n]
		text := fmt.Sprint(v)
		if v != nil {
			if b, ok := v.([]byte); ok {
				text = string(b)
			} else if sv, err := d.pk.Schema[n].Type.SQL(ctx, nil, v); err == nil {
				text = sv.ToString()
			}
		}
		values[i] = text
	}
	return sql.NewUniqueKeyErr(fmt.Sprintf("Duplicate entry '%s' for key '%s.%s'", strings.Join(values, "-"), table, indexName(name)),
		name == "", existing)
}

// The editor of a foreign key check reads the table with the statement's changes.

func (e *editor) PreciseMatch() bool { return true }

func (e *editor) GetIndexes(ctx *sql.Context) ([]sql.Index, error) { return e.table.GetIndexes(ctx) }

func (e *editor) IndexedAccess(ctx *sql.Context, l sql.IndexLookup) sql.IndexedTable {
	t := *e.table.table
	t.editing, t.reading = true, e.reading
	return &indexedTable{ownTable: &ownTable{&t}}
}

func (t *ownTable) GetForeignKeyEditor(ctx *sql.Context) sql.ForeignKeyEditor { return t.editor(ctx) }

// sameRow compares rows of the table schema.
func sameRow(a, b storage.Row) bool {
	for i := range a {
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}
