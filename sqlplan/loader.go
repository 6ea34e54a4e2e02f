package sqlplan

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// Duplicates says what becomes of a row whose key or UNIQUE value is taken.
type Duplicates uint8

const (
	DuplicatesFail    Duplicates = iota // error 1062
	DuplicatesIgnore                    // the row is left out
	DuplicatesReplace                   // the row that is there goes
	DuplicatesUpdate                    // the row that is there changes, see Loader.Updates
)

// Loader adds the rows of one statement to a table by column: values go from text into the columns of a storage.Batch, with
// no row of the front end in between. It looks at nothing but types and keys: triggers, constraints, defaults and generated
// columns are its user's matter. A row is added by one value for each LoaderColumn and EndRow.
// A Loader belongs to the goroutine of its statement. Once there are many rows, another one puts them into the transaction.
type Loader struct {
	// Updates are the columns that DuplicatesUpdate sets, by their places in the table.
	Updates []LoaderUpdate
	// Hold adds nothing before Finish, and hands out no AUTO_INCREMENT value: the statement may still be given up without a trace.
	Hold bool
	// OnDuplicate is told of each row that was left out, by the front end's error for it; nil: nobody asks.
	OnDuplicate func(err error)

	ed      *editor
	mode    Duplicates
	b       *storage.Builder
	columns []*LoaderColumn // by the columns of the table; nil: VIRTUAL
	width   int
	bytes   int64 // of text in b
	row     storage.Row
	changed storage.Row
	counts  LoadCounts
	closed  bool
	told    bool // process lists show how many rows there are
	beside  bool // the catalog's load may go on in another goroutine: the statement reads nothing

	pending      []storage.Batch // the first rows
	pendingRows  int
	pendingBytes int64
	pipe         *bulkPipe // nil: there are few rows yet

	auto      *LoaderColumn // AUTO_INCREMENT; nil: none
	generates bool          // zero stands for the next value
	generated bool          // the row that is being added got the next one
	given     any           // largest value that rows brought since the counter was raised
	firstID   uint64        // first value that was generated, 0: none
	insertID  any           // of the first row; nil: there is no column or no row
}

// LoadCounts are the rows that a Loader was given.
type LoadCounts struct {
	Added    int64 // rows that the table took
	Ignored  int64 // rows that were left out
	Replaced int64 // rows that went for others
	Updated  int64 // rows that changed for others
	Same     int64 // rows that would have changed for others, but to what they are
}

// LoaderUpdate sets column To of a row that is there to the new row's value of column From.
type LoaderUpdate struct{ To, From int }

// LoaderColumn takes the values of one column.
type LoaderColumn struct {
	l     *Loader
	dst   storage.Column
	field int // in the table schema
	codec *columnCodec
	exact func([]byte) bool
	auto  bool
}

const (
	loaderBatchBytes = 8 << 20 // of text: a batch that has them is handed on though it has few rows
	// Fewer rows than these go into the transaction one by one.
	loaderBulkRows  = 2 * storage.BatchRows
	loaderBulkBytes = 2 * loaderBatchBytes

	loaderAhead    = 2048 // rows whose keys are looked up together
	loaderAheadMin = 8    // fewer are not worth it
)

func (d Duplicates) catalog() catalog.DuplicateMode {
	switch d {
	case DuplicatesIgnore:
		return catalog.DuplicateIgnore
	case DuplicatesReplace:
		return catalog.DuplicateReplace
	}
	return catalog.DuplicateFail
}

// DirectWrites tells whether the session's writes may go around the front end's rows.
func DirectWrites(ctx *sql.Context) bool {
	v, err := ctx.GetSessionVariable(ctx, directWriteVariable)
	if err != nil {
		return false // the engine is not ours
	}
	on, err := sql.ConvertToBool(ctx, v)
	return err == nil && on
}

// NewLoader begins to load the table into which an INSERT goes. It gives nil if that is no table of ours, or one whose rows
// have to come one at a time: it has VIRTUAL columns or event times, or the statement names meta columns.
func NewLoader(ctx *sql.Context, destination sql.Node, mode Duplicates) (*Loader, error) {
	t, err := plan.GetInsertable(destination)
	if err != nil {
		return nil, nil // the front end says so itself
	}
	own, ok := sql.GetUnderlyingTable(t).(*ownTable)
	if !ok || len(own.schema) != own.def.codec.width || own.def.ordering >= 0 || own.projection != nil || own.def.pk.Schema.HasVirtualColumns() {
		return nil, nil
	}
	e := own.editor(ctx)
	e.inserting, e.replacing = true, mode == DuplicatesReplace
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	if !e.loadable() {
		return nil, e.Close(ctx)
	}
	l := newLoader(ctx, e, mode)
	l.beside = true
	return l, nil
}

// loadable tells whether each field of the table has its column: another engine may have added some.
func (e *editor) loadable() bool { return len(e.codec.cols) == len(e.table.def.spec.Schema.Fields) }

func newLoader(ctx *sql.Context, e *editor, mode Duplicates) *Loader {
	own := e.table
	l := &Loader{ed: e, mode: mode, b: storage.NewBuilder(own.def.spec.Schema), width: len(own.schema)}
	l.generates = !sql.LoadSqlMode(ctx).ModeEnabled(sql.NoAutoValueOnZero)
	l.columns = make([]*LoaderColumn, l.width)
	for i := range e.codec.cols {
		c := &e.codec.cols[i]
		lc := &LoaderColumn{l: l, dst: l.b.Column(c.field), field: c.field, codec: c.codec, auto: c.column == own.def.auto}
		lc.exact = exactWriter(c.codec, lc.dst)
		l.columns[c.column] = lc
		if lc.auto {
			l.auto = lc
		}
	}
	return l
}

// Column gives the column at a place in the table.
func (l *Loader) Column(i int) *LoaderColumn { return l.columns[i] }

// Text adds a value given as text. It answers false, and has added nothing, if the text is not exactly a value of the
// column: then the front end's conversion makes one for Value.
func (c *LoaderColumn) Text(b []byte) bool {
	if c.exact == nil || c.auto && (len(b) == 0 || b[0] < '1' || b[0] > '9') {
		return false
	}
	c.l.bytes += int64(len(b))
	return c.exact(b)
}

// Null adds NULL. The caller has seen to it that the column takes it, or that it is AUTO_INCREMENT, whose next value is added.
func (c *LoaderColumn) Null(ctx *sql.Context) error {
	if c.auto && !c.l.Hold {
		return c.generate(ctx)
	}
	c.dst.Null()
	return nil
}

// Value adds a value of the column's MySQL type; in an AUTO_INCREMENT column the next one for zero.
func (c *LoaderColumn) Value(ctx *sql.Context, v any) error {
	if v == nil {
		return c.Null(ctx)
	}
	if c.auto && c.l.generates {
		if cmp, err := c.codec.typ.Compare(ctx, v, c.codec.typ.Zero()); err == nil && cmp == 0 {
			return c.Null(ctx)
		}
	}
	x, err := c.codec.toStorage(v)
	if err == nil {
		err = c.add(x)
	}
	return mysqlError(err)
}

// add adds a value of the table schema.
func (c *LoaderColumn) add(x any) error {
	switch x := x.(type) {
	case string:
		c.l.bytes += int64(len(x))
	case []byte:
		c.l.bytes += int64(len(x))
	}
	return c.dst.Value(x)
}

// generate adds the next AUTO_INCREMENT value.
func (c *LoaderColumn) generate(ctx *sql.Context) error {
	x, err := c.next(ctx)
	if err != nil {
		return err
	}
	c.l.generated = true
	return mysqlError(c.dst.Value(x))
}

// next gives the next AUTO_INCREMENT value.
func (c *LoaderColumn) next(ctx *sql.Context) (any, error) {
	t := c.l.ed.table
	if c.l.given != nil {
		// Rows before, which the table has not taken yet, bring numbers of their own.
		if err := c.l.noteValue(ctx, c.l.given); err != nil {
			return nil, err
		}
		c.l.given = nil
	}
	n, err := t.GetNextAutoIncrementValue(ctx, nil)
	if err != nil {
		return nil, err
	}
	if c.l.firstID == 0 {
		c.l.firstID = n
	}
	x, err := c.codec.toStorage(n)
	return x, mysqlError(err)
}

// Filled tells whether the row that is being added has its value of the column.
func (c *LoaderColumn) Filled() bool { return c.dst.Len() > c.l.b.Len() }

// Last is the front end's value of what was added last.
func (c *LoaderColumn) Last() (any, error) {
	v, err := c.codec.fromValue(c.dst.Last())
	return v, mysqlError(err)
}

// EndRow adds the row whose columns have their values.
func (l *Loader) EndRow(ctx *sql.Context) error {
	if l.auto != nil && !l.Hold {
		if l.generated {
			l.generated = false
		} else if v := l.auto.dst.Last(); l.given == nil || moreThan(v, l.given) {
			l.given = v
		}
	}
	l.b.EndRow()
	if l.b.Len() < storage.BatchRows && l.bytes < loaderBatchBytes {
		return nil
	}
	return l.flush(ctx)
}

// add adds a row of the table's MySQL schema, whose AUTO_INCREMENT value is settled.
func (l *Loader) add(ctx *sql.Context, row sql.Row) error {
	for i, c := range l.columns {
		if c == nil {
			continue
		}
		v, err := c.codec.toStorage(row[i])
		if err == nil {
			err = c.add(v)
		}
		if err != nil {
			l.UndoRow()
			return err
		}
	}
	l.b.EndRow()
	if l.b.Len() < storage.BatchRows && l.bytes < loaderBatchBytes {
		return nil
	}
	return l.flush(ctx)
}

// UndoRow drops the values that were added since the last row.
func (l *Loader) UndoRow() {
	l.b.UndoRow()
	l.generated = false
}

// flush hands on the rows collected. The first ones wait until there are enough of them for a load of the catalog's.
func (l *Loader) flush(ctx *sql.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	batch := l.b.Batch()
	if pid := ctx.Pid(); pid != 0 && l.beside {
		if !l.told {
			l.told = true
			ctx.ProcessList.AddTableProgress(pid, l.ed.table.Name(), -1)
		}
		ctx.ProcessList.UpdateTableProgress(pid, l.ed.table.Name(), int64(batch.Rows))
	}
	l.pendingBytes += l.bytes
	l.bytes = 0
	if l.pipe == nil {
		l.pending = append(l.pending, batch)
		l.pendingRows += batch.Rows
		if l.Hold || l.pendingRows < loaderBulkRows && l.pendingBytes < loaderBulkBytes {
			return nil
		}
		return l.addPending(ctx)
	}
	if err := l.pipe.add(batch); err != nil {
		return l.ed.changed(ctx, err)
	}
	return nil
}

// addPending gives the rows that wait to a load of the catalog's.
func (l *Loader) addPending(ctx *sql.Context) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	for i, b := range l.pending {
		if err := l.pipe.add(b); err != nil {
			return l.ed.changed(ctx, err)
		}
		l.pending[i] = storage.Batch{}
	}
	l.pending = nil
	return nil
}

// begin opens the catalog's load.
func (l *Loader) begin(ctx *sql.Context) error {
	bulk, err := l.ed.tx.BulkInsert(ctx, l.ed.table.t, l.mode.catalog())
	if err != nil {
		return l.ed.session.failed(err)
	}
	l.pipe = newBulkPipe(bulk, l.beside)
	return nil
}

// abort takes the catalog's load back.
func (l *Loader) abort() {
	if l.pipe != nil {
		l.pipe.abort()
		l.pipe = nil
	}
}

// insert adds the rows of a batch to the transaction one by one.
func (l *Loader) insert(ctx *sql.Context, batch storage.Batch) error {
	for i := range batch.Rows {
		if i%loaderAhead == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if n := min(batch.Rows-i, loaderAhead); n >= loaderAheadMin {
				if err := l.ed.tx.Expect(ctx, l.ed.table.t, batch, i, i+n, l.mode != DuplicatesFail); err != nil {
					return l.ed.session.failed(err)
				}
			}
		}
		l.row = batch.Row(i, l.row)
		if l.Hold && l.auto != nil && l.row[l.auto.field] == nil {
			x, err := l.auto.next(ctx)
			if err != nil {
				return err
			}
			l.row[l.auto.field] = x
		}
		if err := l.insertRow(ctx, l.row); err != nil {
			return err
		}
		if l.auto != nil && l.insertID == nil {
			l.insertID = l.row[l.auto.field]
		}
	}
	return nil
}

// insertRow adds a row, or does with it what mode says if its key is taken.
func (l *Loader) insertRow(ctx *sql.Context, row storage.Row) error {
	e := l.ed
	t := e.table.t
	for {
		err := e.tx.Insert(ctx, t, row)
		if err == nil {
			l.counts.Added++
			return l.note(ctx, row)
		}
		var dup *catalog.DuplicateKeyError
		if l.mode == DuplicatesFail || !errors.As(err, &dup) {
			return e.changed(ctx, err)
		}
		switch l.mode {
		case DuplicatesIgnore:
			l.counts.Ignored++
			if l.OnDuplicate != nil {
				l.OnDuplicate(e.changed(ctx, err))
			}
			return nil
		case DuplicatesUpdate:
			return l.updateRow(ctx, dup.Existing, row)
		}
		if err := e.tx.Delete(ctx, t, dup.Existing); err != nil {
			return e.session.failed(err)
		}
		l.counts.Replaced++
	}
}

// updateRow changes the row that has the key of a new one.
func (l *Loader) updateRow(ctx *sql.Context, old, row storage.Row) error {
	l.changed = append(l.changed[:0], old...)
	for _, u := range l.Updates {
		l.changed[l.columns[u.To].field] = row[l.columns[u.From].field]
	}
	if sameRow(old, l.changed) {
		l.counts.Same++
		return nil
	}
	if err := l.ed.tx.Update(ctx, l.ed.table.t, old, l.changed); err != nil {
		return l.ed.changed(ctx, err)
	}
	l.counts.Updated++
	return nil
}

// note raises the AUTO_INCREMENT counter above the value of a row that the table took.
func (l *Loader) note(ctx *sql.Context, row storage.Row) error {
	if l.auto == nil {
		return nil
	}
	return l.noteValue(ctx, row[l.auto.field])
}

func (l *Loader) noteValue(ctx *sql.Context, x any) error {
	v, err := l.auto.codec.fromValue(x)
	if err != nil {
		return mysqlError(err)
	}
	row := make(sql.Row, l.ed.table.def.auto+1)
	row[l.ed.table.def.auto] = v
	return l.ed.noteNumber(ctx, row)
}

// moreThan compares values of an AUTO_INCREMENT column.
func moreThan(a, b any) bool {
	switch a := a.(type) {
	case int32:
		return a > b.(int32)
	case int64:
		return a > b.(int64)
	case float32:
		return a > b.(float32)
	case float64:
		return a > b.(float64)
	case decimal128.Num:
		return a.Greater(b.(decimal128.Num))
	}
	return false
}

// Finish adds what waits and ends the load.
func (l *Loader) Finish(ctx *sql.Context) (LoadCounts, error) {
	err := l.finish(ctx)
	if err == nil {
		err = l.ed.StatementComplete(ctx)
	}
	if err != nil {
		return l.counts, err
	}
	if l.firstID != 0 {
		ctx.GetLastQueryInfo().LastInsertId.Store(int64(l.firstID))
	}
	return l.counts, l.close(ctx)
}

func (l *Loader) finish(ctx *sql.Context) error {
	if l.b.Len() > 0 {
		if err := l.flush(ctx); err != nil {
			return err
		}
	}
	if l.pipe == nil && l.Hold && l.pendingRows >= loaderBulkRows && l.auto == nil && l.mode != DuplicatesUpdate {
		if err := l.addPending(ctx); err != nil {
			return err
		}
	}
	if l.pipe == nil {
		for i, b := range l.pending {
			if err := l.insert(ctx, b); err != nil {
				return err
			}
			l.pending[i] = storage.Batch{}
		}
		return nil
	}
	res, err := l.pipe.finish()
	if err != nil {
		return l.ed.changed(ctx, err)
	}
	l.counts = LoadCounts{Added: res.Rows, Ignored: res.Ignored, Replaced: res.Replaced}
	for _, dup := range l.pipe.ignored {
		if l.OnDuplicate != nil {
			l.OnDuplicate(l.ed.changed(ctx, dup))
		}
	}
	if l.given != nil {
		return l.noteValue(ctx, l.given)
	}
	return nil
}

// First gives the error that a statement ends with whose present row has failed: that of a row before, which waited to be
// added, if there is one, else cause.
func (l *Loader) First(ctx *sql.Context, cause error) error {
	if l.mode != DuplicatesFail || ctx.Err() != nil {
		return cause
	}
	l.UndoRow()
	if err := l.finish(ctx); err != nil {
		return err
	}
	return cause
}

// FirstID is the first AUTO_INCREMENT value that was generated, 0 if none was.
func (l *Loader) FirstID() uint64 { return l.firstID }

// InsertID is the AUTO_INCREMENT value of the first row, 0 if that is none that a client could be told.
func (l *Loader) InsertID(ctx *sql.Context) uint64 {
	if l.firstID != 0 || l.insertID == nil {
		return l.firstID
	}
	v, err := l.auto.codec.fromValue(l.insertID)
	if err != nil {
		return 0
	}
	n, _, err := types.Int64.Convert(ctx, v)
	if err != nil {
		return 0
	}
	return uint64(n.(int64))
}

// Generates tells whether a column gets the next AUTO_INCREMENT value for a text: zero does so, unless sql_mode forbids it.
func (c *LoaderColumn) Generates(text string) bool { return c.auto && c.l.generates && text == "0" }

// Abort takes back what was added, because of an error. After Finish without an error it does nothing.
func (l *Loader) Abort(ctx *sql.Context, cause error) error {
	if l.closed {
		return nil
	}
	l.abort()
	err := l.ed.DiscardChanges(ctx, cause)
	if cerr := l.close(ctx); err == nil {
		err = cerr
	}
	return err
}

func (l *Loader) close(ctx *sql.Context) error {
	if l.closed {
		return nil
	}
	l.closed = true
	if l.told {
		ctx.ProcessList.RemoveTableProgress(ctx.Pid(), l.ed.table.Name())
	}
	return l.ed.Close(ctx)
}
