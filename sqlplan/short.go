package sqlplan

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// Statements on single rows by primary key, and INSERT of a few rows, spend most of their time on the way to the row: the parser,
// the planner, iterators. For a statement whose shape is known the short way goes around them. It takes only what it can do exactly
// as they would: all else is theirs, also the wording of errors.

// Short is a statement that the short way may take.
type Short struct {
	engine *Engine
	form   *form
	plan   *shortPlan
	values []literalValue
}

// ShortAnswer is what a statement gives: an OK or at most one row.
type ShortAnswer struct {
	Columns *ShortColumns // nil: an OK
	Row     sql.Row       // nil: no row
	OK      types.OkResult
}

// ShortColumns are the columns of an answer. They are the same object for each execution as long as the table is not changed.
type ShortColumns struct {
	Schema sql.Schema
	Stmt   ast.Statement // the statement's form, for names
}

// shortForms are the forms of statements by their shapes.
type shortForms struct {
	mu    sync.RWMutex
	forms map[string]*form // guarded by mu; one without a point has no short way
	bytes int              // of the shapes' texts; guarded by mu
}

// Bounds of the shapes that are kept; when there are as many, or their texts are as long, some go.
const (
	shortFormsMax     = 4096
	shortFormBytesMax = 16 << 20
)

// form is what a shape says, with the plan for the table that it names.
type form struct {
	point  *point // nil: the shape has no short way
	stmt   ast.Statement
	insert *insertForm
	plan   atomic.Pointer[shortPlan]
}

// settings are what the short way asks of a session's variables; they are read again after a change of one.
type settings struct {
	off        bool // the short way is not for this session
	autocommit bool
	limited    bool // SELECT has a limit of rows or time
	autoOnZero bool // zero stands for the next AUTO_INCREMENT value
}

func (s *Session) readSettings(ctx *sql.Context) *settings {
	if s.settings != nil {
		return s.settings
	}
	o := &settings{off: !DirectWrites(ctx)}
	mode := sql.LoadSqlMode(ctx)
	o.off = o.off || mode.ModeEnabled("NO_BACKSLASH_ESCAPES")
	o.autoOnZero = !mode.ModeEnabled(sql.NoAutoValueOnZero)
	v, err := ctx.GetSessionVariable(ctx, "character_set_client")
	name, _ := v.(string)
	o.off = o.off || err != nil || !strings.HasPrefix(name, "utf8")
	o.autocommit, err = plan.IsSessionAutocommit(ctx)
	o.off = o.off || err != nil
	v, err = ctx.GetSessionVariable(ctx, "max_execution_time")
	ms, _ := v.(int64)
	o.limited = err != nil || ms != 0
	if v, err = ctx.GetSessionVariable(ctx, "sql_select_limit"); err == nil {
		sv, _, ok := sql.SystemVariables.GetGlobal("sql_select_limit")
		o.limited = o.limited || !ok || sv.GetDefault() != v
	}
	s.settings = o
	return o
}

// InitSessionVariable and InitSessionVariableDefault set variables when a session begins.
func (s *Session) InitSessionVariable(ctx *sql.Context, name string, value any) error {
	s.settings = nil
	return s.BaseSession.InitSessionVariable(ctx, name, value)
}

func (s *Session) InitSessionVariableDefault(ctx *sql.Context, name string, value any) error {
	s.settings = nil
	return s.BaseSession.InitSessionVariableDefault(ctx, name, value)
}

// Short looks for the short way of a statement. prepared: params are its parameters, v1, v2, …; else the text has its literals.
// nil: there is none. The statement must not have been parsed before.
func (e *Engine) Short(ctx *sql.Context, text string, prepared bool, params map[string]*querypb.BindVariable) *Short {
	s, ok := ctx.Session.(*Session)
	limit := shapeBytesMax
	if prepared {
		limit = preparedBytesMax
	}
	if !ok || e.planAll || len(text) > limit || !changesOrReads(text) || s.held != nil || e.writeLocks.count.Load() > 0 {
		return nil
	}
	set := s.readSettings(ctx)
	if set.off {
		return nil
	}
	db := s.GetCurrentDatabase()
	if !s.shape.read(db, text) {
		return nil
	}
	values := s.shape.literals
	n := 0
	for i := range values {
		if values[i].kind == literalParam {
			n++
			if !prepared || !readParam(&values[i], params, n) {
				return nil
			}
		}
	}
	if n != len(params) {
		return nil
	}
	e.shorts.mu.RLock()
	f := e.shorts.forms[string(s.shape.key)]
	e.shorts.mu.RUnlock()
	if f == nil {
		f = e.shorts.learn(e, string(s.shape.key), len(db)+1)
	}
	if f.point == nil {
		return nil
	}
	p := e.planOf(ctx, s, f, db)
	if p == nil || p.refused || set.limited && p.columns != nil {
		return nil
	}
	return &Short{engine: e, form: f, plan: p, values: values}
}

// paramNames are the names of parameters.
var paramNames = func() (names [64]string) {
	for i := range names {
		names[i] = paramName(i + 1)
	}
	return names
}()

func paramName(n int) string {
	var b [8]byte
	i := len(b)
	for ; n > 0; n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	i--
	b[i] = 'v'
	return string(b[i:])
}

// readParam takes parameter n.
func readParam(v *literalValue, params map[string]*querypb.BindVariable, n int) bool {
	var name string
	if n <= len(paramNames) {
		name = paramNames[n-1]
	} else {
		name = paramName(n)
	}
	p := params[name]
	if p == nil {
		return false
	}
	v.text = textView(p.Value)
	switch {
	case p.Type == sqltypes.Null:
		v.kind = literalNull
	case sqltypes.IsIntegral(p.Type), p.Type == sqltypes.Decimal:
		v.kind = literalNumber
	case sqltypes.IsFloat(p.Type):
		v.kind = literalFloat
	case p.Type == sqltypes.VarChar, p.Type == sqltypes.Text, p.Type == sqltypes.Char, p.Type == sqltypes.VarBinary, p.Type == sqltypes.Blob,
		p.Type == sqltypes.Datetime, p.Type == sqltypes.Timestamp, p.Type == sqltypes.Date:
		v.kind = literalString
	default:
		v.kind = literalOther
	}
	return true
}

// learn finds out what a shape says. The text begins at from.
func (c *shortForms) learn(e *Engine, key string, from int) *form {
	f := &form{}
	if stmt, err := e.parser.(*parser).Parser.ParseSimple(key[from:]); err == nil {
		f.stmt = stmt
		f.point, f.insert = formOf(stmt)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forms == nil {
		c.forms = map[string]*form{}
	}
	if len(c.forms) >= shortFormsMax || c.bytes+len(key) > shortFormBytesMax {
		n := len(c.forms)/4 + 1
		for k := range c.forms { // in no order
			delete(c.forms, k)
			c.bytes -= len(k)
			if n--; n == 0 {
				break
			}
		}
	}
	if c.forms[key] == nil { // another session may have been faster
		c.bytes += len(key)
	}
	c.forms[key] = f
	return f
}

// formOf tells what a statement whose literals are parameters does.
func formOf(stmt ast.Statement) (*point, *insertForm) {
	if in, ok := stmt.(*ast.Insert); ok {
		return insertOf(in)
	}
	return (&point{slots: map[string]int{}}).read(stmt), nil
}

// slotOf gives the number of the literal that a parameter stands for, -1 for another expression.
func slotOf(e ast.Expr) int {
	v, ok := e.(*ast.SQLVal)
	if !ok || v.Type != ast.ValArg {
		return -1
	}
	return slotNumber(string(v.Val))
}

func slotNumber(name string) int {
	digits, ok := strings.CutPrefix(name, ":v")
	if !ok || digits == "" || len(digits) > 5 {
		return -1
	}
	n := 0
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n - 1
}

// shortPlan is a form over a table's present definition. It does not change, so all sessions share it.
type shortPlan struct {
	table   *ownTable
	refused bool   // the table is not for the short way
	counter string // status variable of the statement's kind

	need sql.PrivilegedOperation
	read sql.PrivilegedOperation

	keySlots []int         // literals of the key's columns
	keyTypes []sql.Type    // of those that the index compares loosely, else nil
	columns  *ShortColumns // of SELECT
	want     *catalog.Columns
	codecs   []*columnCodec // of want
	set      []shortSet     // of UPDATE and ON DUPLICATE KEY UPDATE
	nows     []shortNow
	stamps   bool // values depend on the session's time zone
	insert   *shortInsert

	rows sync.Pool // of *shortRow
}

// planOf gives the plan of a form; nil: the table that it names is none of the warehouse.
func (e *Engine) planOf(ctx *sql.Context, s *Session, f *form, db string) *shortPlan {
	if f.point.db != "" {
		db = f.point.db
	}
	if s.temps != nil {
		if _, ok := s.temps.table(db, f.point.table); ok {
			return nil
		}
	}
	t, ok := e.catalog.Table(db, f.point.table)
	if !ok {
		return nil
	}
	if p := f.plan.Load(); p != nil && p.table.t == t && p.table.def.version == t.Version() && p.table.def.name == t.Name() {
		return p
	}
	own, err := e.tableOf(ctx, db, f.point.table)
	if err != nil || own == nil || own.t != t || own.temporary {
		return nil
	}
	p := newShortPlan(ctx, f, own)
	f.plan.Store(p)
	return p
}

// newShortPlan makes the plan of a form over a table.
func newShortPlan(ctx *sql.Context, f *form, t *table) *shortPlan {
	p := &shortPlan{table: &ownTable{t}, refused: true}
	d := t.def
	if d.name != f.point.table || d.ordering >= 0 || d.spec.PerPartition || len(d.spec.Key) == 0 || len(d.codec.cols) != len(d.spec.Schema.Fields) ||
		len(t.schema) != d.codec.width || len(d.pk.PkOrdinals) == 0 {
		return p
	}
	for _, c := range d.pk.Schema {
		if c.Virtual || c.Generated != nil || c.HiddenSystem {
			return p
		}
	}
	subject := sql.PrivilegeCheckSubject{Database: t.db.name, Table: d.name}
	p.read = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Select)
	ok := false
	switch {
	case f.insert != nil:
		ok = p.planInsert(ctx, f)
	case f.point.columns != nil:
		p.need, p.counter = p.read, "Com_select"
		ok = p.planKey(f) && p.planSelect(ctx, f)
	case f.point.deletes:
		p.need, p.counter = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Delete), "Com_delete"
		ok = p.planKey(f)
	default:
		p.need, p.counter = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Update), "Com_update"
		ok = p.planKey(f) && p.planSet(ctx, f.point, f.point.set, false)
	}
	p.refused = !ok
	return p
}

// planKey finds the literals of the primary key's columns.
func (p *shortPlan) planKey(f *form) bool {
	d := p.table.def
	if len(d.table.PrimaryKey) != len(f.point.slots) {
		return false
	}
	for _, part := range d.table.PrimaryKey {
		slot, ok := f.point.slots[strings.ToLower(part.Column)]
		if !ok || part.Prefix != 0 {
			return false
		}
		typ := d.pk.Schema[d.column(part.Column)].Type
		switch {
		case types.IsInteger(typ):
			p.keyTypes = append(p.keyTypes, nil)
		case types.IsTextOnly(typ):
			p.keyTypes = append(p.keyTypes, typ)
		default:
			return false
		}
		p.keySlots = append(p.keySlots, slot)
	}
	return true
}

// planSelect finds the columns of the answer, as the planner would name them.
func (p *shortPlan) planSelect(ctx *sql.Context, f *form) bool {
	flags := &sql.QueryFlags{}
	own, project := f.point.projected(ctx, p.table.table, flags)
	if own == nil {
		return false
	}
	cols := &ShortColumns{Stmt: f.stmt}
	var names []string
	if project == nil {
		cols.Schema = own.schema
		for _, c := range own.schema {
			names = append(names, c.Name)
		}
	} else {
		cols.Schema = plan.NewProject(ctx, project, plan.NewResolvedTable(own, p.table.db, nil)).Schema(ctx)
		for _, x := range f.point.columns {
			names = append(names, x.(*ast.AliasedExpr).Expr.(*ast.ColName).Name.String())
		}
	}
	d := p.table.def
	var fields []int
	for _, name := range names {
		i := d.column(name)
		if i < 0 {
			return false
		}
		for _, c := range d.codec.cols {
			if c.column == i {
				fields = append(fields, c.field)
				p.codecs = append(p.codecs, c.codec)
				p.stamps = p.stamps || isTimestamp(c.codec.typ)
			}
		}
	}
	if len(fields) != len(cols.Schema) {
		return false
	}
	// Key columns that compare loosely are read to compare them.
	for i, part := range d.table.PrimaryKey {
		if p.keyTypes[i] != nil {
			for _, c := range d.codec.cols {
				if c.column == d.column(part.Column) {
					fields = append(fields, c.field)
					p.codecs = append(p.codecs, c.codec)
				}
			}
		}
	}
	p.columns = cols
	p.want = catalog.NewColumns(d.spec.Schema, fields)
	return true
}

// shortRow takes the literals of one execution as values of the table's columns.
type shortRow struct {
	b     *storage.Builder
	codec *rowCodec
	exact []func([]byte) bool // by the columns of the table
	cols  []storage.Column
	kinds []columnKind
	key   storage.Row
	row   storage.Row
}

// columnKind says which literals a column takes without a conversion.
type columnKind uint8

const (
	takesText   columnKind = iota
	takesNumber            // and text
	takesFloat             // and numbers and text
)

func (p *shortPlan) newRow(ctx *sql.Context) (*shortRow, error) {
	d := p.table.def
	codec, err := d.codec.zoned(ctx)
	if err != nil {
		return nil, err
	}
	if codec == d.codec {
		if r, ok := p.rows.Get().(*shortRow); ok {
			return r, nil
		}
	}
	r := &shortRow{b: storage.NewBuilder(d.spec.Schema), codec: codec, row: make(storage.Row, len(d.spec.Schema.Fields))}
	r.exact = make([]func([]byte) bool, d.codec.width)
	r.cols = make([]storage.Column, d.codec.width)
	r.kinds = make([]columnKind, d.codec.width)
	for i := range codec.cols {
		c := &codec.cols[i]
		r.cols[c.column] = r.b.Column(c.field)
		r.exact[c.column] = exactWriter(c.codec, r.cols[c.column])
		typ := d.pk.Schema[c.column].Type
		switch {
		case types.IsFloat(typ):
			r.kinds[c.column] = takesFloat
		case types.IsNumber(typ) || types.IsDecimal(typ) || typ.Type() == querypb.Type_YEAR:
			r.kinds[c.column] = takesNumber
		}
	}
	return r, nil
}

// done gives the row's memory back.
func (p *shortPlan) done(r *shortRow) {
	if r.codec == p.table.def.codec {
		r.b.UndoRow()
		p.rows.Put(r)
	}
}

// value gives the value that a literal, which is not NULL, is of a column; false: the front end has to convert it.
func (r *shortRow) value(column int, v literalValue) (any, bool) {
	if r.exact[column] == nil {
		return nil, false
	}
	switch v.kind {
	case literalString:
	case literalNumber:
		if r.kinds[column] == takesText {
			return nil, false
		}
	case literalFloat:
		if r.kinds[column] != takesFloat {
			return nil, false
		}
	default:
		return nil, false
	}
	if r.kinds[column] == takesFloat && len(v.text) > 1 && v.text[0] == '-' && strings.Trim(v.text, "-0.eE+") == "" {
		return nil, false // minus zero, of which the front end makes zero in a literal and not in a text
	}
	if !r.exact[column](bytesView(v.text)) {
		return nil, false
	}
	return r.cols[column].Last(), true
}

// readKey reads the key's literals, which must have the kinds of their columns.
func (p *shortPlan) readKey(r *shortRow, values []literalValue) (storage.Row, bool) {
	d := p.table.def
	r.key = r.key[:0]
	for i, slot := range p.keySlots {
		v := values[slot]
		if (v.kind != literalNumber || p.keyTypes[i] != nil) && (v.kind != literalString || p.keyTypes[i] == nil) {
			return nil, false
		}
		x, ok := r.value(d.pk.PkOrdinals[i], v)
		if !ok {
			return nil, false
		}
		r.key = append(r.key, x)
	}
	return r.key, true
}

// Inserts says whether the statement is INSERT or REPLACE.
func (sh *Short) Inserts() bool { return sh.plan.insert != nil }

// Run executes the statement and, where it is a transaction of its own, commits. It answers false without an error if the statement
// is the planner's after all: nothing has been written.
func (sh *Short) Run(ctx *sql.Context) (out ShortAnswer, done bool, err error) {
	e, p := sh.engine, sh.plan
	s := sessionOf(ctx)
	if users := e.sql.Analyzer.Catalog.MySQLDb; users.Enabled() && !users.UserHasPrivileges(ctx, p.need, p.read) {
		return out, false, nil
	}
	writes := p.columns == nil
	if writes {
		if s.startedReadOnly(ctx) {
			return out, false, nil
		}
		if ok, err := e.changesAlone(ctx, p.table.table); err != nil || !ok {
			return out, false, nil
		}
	}
	r, err := p.newRow(ctx)
	if err != nil {
		return out, false, nil
	}
	defer p.done(r)
	var key storage.Row
	if p.insert == nil {
		var ok bool
		if key, ok = p.readKey(r, sh.values); !ok {
			return out, false, nil
		}
	}
	w := &shortWrite{s: s, p: p, r: r, values: sh.values, key: key}
	if writes && !w.prepare(ctx) {
		return out, false, nil
	}
	if ctx.GetTransaction() == nil {
		tx, err := s.StartTransaction(ctx, sql.ReadWrite)
		if err != nil {
			return out, false, err
		}
		ctx.SetTransaction(tx)
	}
	s.statements++
	tx, err := s.use(ctx, p.table.table)
	switch {
	case err == nil && p.insert == nil && p.table.t.KeysRepeat():
	case err == nil && writes:
		done, err = w.run(ctx, tx, &out.OK)
	case err == nil:
		out.Columns = p.columns
		out.Row, done, err = sh.find(ctx, s, tx, r, key)
	default:
		done = !errors.Is(err, ErrReplan)
	}
	if !done {
		s.statements-- // the planner's way counts it again
		return ShortAnswer{}, false, nil
	}
	e.shortsTotal.Add(1)
	sql.IncrementStatusVariable(ctx, "Questions", 1)
	sql.IncrementStatusVariable(ctx, p.counter, 1)
	ctx.ClearWarnings()
	own := s.settings.autocommit && !ctx.GetIgnoreAutoCommit()
	if err != nil {
		if own { // an implicit transaction of a failed statement is not that of the next one
			s.release()
			ctx.SetTransaction(nil)
		}
		return out, true, err
	}
	info := ctx.GetLastQueryInfo()
	if writes {
		info.RowCount.Store(int64(out.OK.RowsAffected))
		if p.insert == nil && p.set != nil {
			info.FoundRows.Store(w.matched)
		}
	} else {
		info.RowCount.Store(-1)
		info.FoundRows.Store(0)
		if out.Row != nil {
			info.FoundRows.Store(1)
		}
	}
	if own {
		if t := ctx.GetTransaction(); t != nil {
			if err := s.CommitTransaction(ctx, t); err != nil {
				return out, true, err
			}
			ctx.SetTransaction(nil)
		}
	}
	return out, true, nil
}

// startedReadOnly says that the session's transaction, or the one that begins now, only reads.
func (s *Session) startedReadOnly(ctx *sql.Context) bool {
	if s.tx != nil && !s.tx.done {
		return s.tx.readOnly
	}
	return s.startsReadOnly(ctx)
}

// find reads the row of SELECT.
func (sh *Short) find(ctx *sql.Context, s *Session, tx *catalog.Tx, r *shortRow, key storage.Row) (sql.Row, bool, error) {
	p := sh.plan
	o := catalog.ScanOptions{}
	o.Lock, o.Wait = p.table.lockFor(ctx, s, tx)
	row, ok, err := tx.GetColumns(ctx, p.table.t, key, p.want, o)
	if err != nil {
		if lostTransaction(err) || ctx.Err() != nil || errors.Is(err, catalog.ErrLockTimeout) {
			return nil, true, s.failed(err)
		}
		return nil, false, nil
	}
	if !ok {
		return nil, true, nil
	}
	codecs := p.codecs
	out := make(sql.Row, len(codecs))
	for i, c := range codecs {
		if p.stamps && isTimestamp(c.typ) {
			c = r.codec.byName[c.name]
		}
		if out[i], err = c.fromValue(row[i]); err != nil {
			return nil, false, nil
		}
	}
	n := len(p.columns.Schema)
	for i, typ := range p.keyTypes {
		if typ == nil {
			continue
		}
		if cmp, err := typ.Compare(ctx, out[n], key[i]); err != nil {
			return nil, false, nil
		} else if cmp != 0 {
			return nil, true, nil
		}
		n++
	}
	return out[:len(p.columns.Schema):len(p.columns.Schema)], true, nil
}
