package sqlplan

import (
	"errors"
	"math"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// insertForm is what the shape of INSERT or REPLACE … VALUES says besides the table.
type insertForm struct {
	columns []string // in lower case; nil: all
	rows    [][]int  // literals of the values; shortDefault: DEFAULT
	replace bool
	update  ast.AssignmentExprs
}

// shortDefault stands for the column's default.
const shortDefault = -2

// insertOf reads INSERT [INTO] t [(columns)] VALUES (…), … [ON DUPLICATE KEY UPDATE …], and REPLACE.
func insertOf(in *ast.Insert) (*point, *insertForm) {
	if len(in.Comments) > 0 || in.Ignore != "" || in.With != nil || len(in.Partitions) > 0 || len(in.Returning) > 0 || !in.Table.SchemaQualifier.IsEmpty() {
		return nil, nil
	}
	values, ok := in.Rows.(*ast.AliasedValues)
	if !ok || !values.As.IsEmpty() || len(values.Columns) > 0 || len(values.Values) == 0 {
		return nil, nil
	}
	f := &insertForm{replace: in.Action == ast.ReplaceStr, update: ast.AssignmentExprs(in.OnDup)}
	for _, c := range in.Columns {
		f.columns = append(f.columns, c.Lowered())
	}
	for _, row := range values.Values {
		if len(row) == 0 {
			return nil, nil
		}
		slots := make([]int, len(row))
		for i, e := range row {
			switch e := e.(type) {
			case *ast.SQLVal:
				if slots[i] = slotOf(e); slots[i] < 0 {
					return nil, nil
				}
			case *ast.Default:
				if e.ColName != "" {
					return nil, nil
				}
				slots[i] = shortDefault
			default:
				return nil, nil
			}
		}
		f.rows = append(f.rows, slots)
	}
	return &point{db: in.Table.DbQualifier.String(), table: in.Table.Name.String()}, f
}

// shortInsert is how rows are made.
type shortInsert struct {
	rows     [][]int          // by the columns of the table: a literal, or shortDefault
	defaults []any            // by columns: values of the table schema
	nows     []sql.Expression // by columns: CURRENT_TIMESTAMP; nil: defaults has the value
	nullable []bool
	fields   []int // of the columns in the table schema
	auto     int   // AUTO_INCREMENT column, -1
	replace  bool
}

func (p *shortPlan) planInsert(ctx *sql.Context, f *form) bool {
	d := p.table.def
	sch := d.pk.Schema
	subject := sql.PrivilegeCheckSubject{Database: p.table.db.name, Table: d.name}
	p.need, p.counter = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Insert), "Com_insert"
	switch {
	case f.insert.replace:
		if d.auto >= 0 {
			return false
		}
		p.read = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Delete)
	case len(f.insert.update) > 0:
		p.read = sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Update)
		if d.auto >= 0 || !p.planSet(ctx, &point{table: f.point.table}, f.insert.update, true) {
			return false
		}
	default:
		p.read = p.need
	}
	in := &shortInsert{
		auto: d.auto, replace: f.insert.replace, defaults: make([]any, len(sch)), nows: make([]sql.Expression, len(sch)), nullable: make([]bool, len(sch)), fields: make([]int, len(sch)),
	}
	for _, c := range d.codec.cols {
		in.fields[c.column] = c.field
	}
	places := make([]int, len(sch))
	for i := range places {
		places[i] = i
	}
	if f.insert.columns != nil {
		places = places[:0]
		for _, name := range f.insert.columns {
			i := d.column(name)
			if i < 0 {
				return false
			}
			places = append(places, i)
		}
	}
	base := make([]int, len(sch))
	for i := range base {
		base[i] = shortDefault
	}
	for _, slots := range f.insert.rows {
		if len(slots) != len(places) {
			return false
		}
		row := append([]int(nil), base...)
		seen := make([]bool, len(sch))
		for k, i := range places {
			if seen[i] {
				return false
			}
			seen[i], row[i] = true, slots[k]
		}
		in.rows = append(in.rows, row)
	}
	for i, col := range sch {
		in.nullable[i] = col.Nullable
		used := false
		for _, row := range in.rows {
			used = used || row[i] == shortDefault
		}
		switch {
		case !used || i == d.auto:
		case col.Default == nil:
			if !col.Nullable {
				return false // an error, or an implicit default
			}
		case currentTimestamp(d.table.Columns[i].Default):
			if in.nows[i] = resolveNow(ctx, p.table.table, i, false); in.nows[i] == nil {
				return false
			}
		case !col.Default.Literal || isTimestamp(col.Type):
			return false
		default:
			v, err := col.Default.Eval(ctx, nil)
			if err != nil {
				return false
			}
			if v != nil {
				var in sql.ConvertInRange
				if v, in, err = col.Type.Convert(ctx, v); err != nil || in != sql.InRange {
					return false
				}
			} else if !col.Nullable {
				return false
			}
			if in.defaults[i], err = d.codec.byName[col.Name].toStorage(v); err != nil {
				return false
			}
		}
	}
	p.insert = in
	return true
}

// shortSet is column = expression.
type shortSet struct {
	column int
	field  int
	codec  *columnCodec
	null   bool // takes NULL
	slot   int  // of a literal, alone or to be added; -1: none
	from   int  // field of the row that is there to which slot, or the new row's value, is added; -1: none
	limit  bool // the sum must not be negative: from is unsigned
	minus  bool
	values int // field of the new row; -1: none
}

// currentTimestamp tells a default, or a value of ON UPDATE, that is the statement's time.
func currentTimestamp(e *expressionText) bool {
	if e == nil {
		return false
	}
	rest, ok := strings.CutPrefix(strings.ToUpper(e.Text), "CURRENT_TIMESTAMP")
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, "("), ")")
	return ok && (rest == "" || len(rest) == 1 && rest[0] >= '0' && rest[0] <= '6')
}

// resolveNow makes the expression of such a default of a column; nil: the front end knows none.
func resolveNow(ctx *sql.Context, t *table, column int, onUpdate bool) (out sql.Expression) {
	defer func() { // the front end's builder reports errors by panics
		if recover() != nil {
			out = nil
		}
	}()
	c := *t.def.pk.Schema[column]
	c.Generated = nil
	b := planbuilder.NewBuilderForColumnDefaultResolution(ctx, sql.EngineOverrides{})
	r := b.ResolveSchemaDefaults(t.db.name, t.def.name, sql.Schema{&c})[0]
	e := r.Default
	if onUpdate {
		e = r.OnUpdate
	}
	if e == nil || !e.Resolved() {
		return nil
	}
	return e
}

// shortNow is a column that gets the statement's time when its row changes.
type shortNow struct {
	column int
	field  int
	expr   sql.Expression
}

// now gives the statement's time as a value of a column.
func (w *shortWrite) now(ctx *sql.Context, column int, e sql.Expression) (any, bool) {
	col := w.p.table.def.pk.Schema[column]
	v, err := e.Eval(ctx, nil)
	if err != nil || v == nil {
		return nil, false
	}
	v, in, err := col.Type.Convert(ctx, v)
	if err != nil || in != sql.InRange {
		return nil, false
	}
	x, err := w.r.codec.byName[col.Name].toStorage(v)
	return x, err == nil
}

// planSet reads column = literal, column = column ± literal and, in ON DUPLICATE KEY UPDATE, column = VALUES(column) and sums with
// it, of columns outside of the primary key.
func (p *shortPlan) planSet(ctx *sql.Context, at *point, set ast.AssignmentExprs, duplicate bool) bool {
	d := p.table.def
	fields := make([]int, len(d.pk.Schema))
	for _, c := range d.codec.cols {
		fields[c.column] = c.field
	}
	column := func(e ast.Expr) int {
		if name := at.column(e); name != "" {
			return d.column(name)
		}
		return -1
	}
	values := func(e ast.Expr) int {
		if v, ok := e.(*ast.ValuesFuncExpr); ok && duplicate {
			return column(v.Name)
		}
		return -1
	}
	seen := map[int]bool{}
	for _, a := range set {
		n := column(a.Name)
		if n < 0 || seen[n] || d.pk.Schema[n].PrimaryKey || d.pk.Schema[n].AutoIncrement {
			return false
		}
		seen[n] = true
		col := d.pk.Schema[n]
		s := shortSet{column: n, field: fields[n], codec: d.codec.byName[col.Name], null: col.Nullable, slot: -1, from: -1, values: -1}
		switch e := a.Expr.(type) {
		case *ast.SQLVal:
			if s.slot = slotOf(e); s.slot < 0 {
				return false
			}
		case *ast.ValuesFuncExpr:
			i := values(e)
			if i < 0 {
				return false
			}
			if from := d.pk.Schema[i]; i != n && (!from.Type.Equals(col.Type) || from.Nullable && !col.Nullable) {
				return false
			}
			s.values = fields[i]
		case *ast.BinaryExpr:
			i := column(e.Left)
			if i < 0 || !types.IsInteger(d.pk.Schema[i].Type) || !types.IsInteger(col.Type) || e.Operator != ast.PlusStr && e.Operator != ast.MinusStr {
				return false
			}
			s.from, s.minus, s.limit = fields[i], e.Operator == ast.MinusStr, types.IsUnsigned(d.pk.Schema[i].Type)
			if s.slot = slotOf(e.Right); s.slot < 0 {
				v := values(e.Right)
				if v < 0 || !types.IsInteger(d.pk.Schema[v].Type) {
					return false
				}
				s.values = fields[v]
				s.limit = s.limit || types.IsUnsigned(d.pk.Schema[v].Type)
			}
		default:
			return false
		}
		p.set = append(p.set, s)
	}
	for i, c := range d.pk.Schema {
		if c.OnUpdate == nil || seen[i] {
			continue
		}
		e := resolveNow(ctx, p.table.table, i, true)
		if !currentTimestamp(d.table.Columns[i].OnUpdate) || e == nil {
			return false
		}
		p.nows = append(p.nows, shortNow{i, fields[i], e})
	}
	return true
}

// shortWrite is one execution of a statement that writes.
type shortWrite struct {
	s      *Session
	p      *shortPlan
	r      *shortRow
	values []literalValue
	key    storage.Row

	set     []shortValue // by shortPlan.set
	nows    []any        // by shortPlan.nows
	rows    []storage.Row
	numbers []bool // by rows: it gets the next AUTO_INCREMENT value

	matched int64
}

// shortValue is the literal of a shortSet.
type shortValue struct {
	value any   // of the table schema
	n     int64 // that is added
}

// prepare makes values of the literals; false: the planner has to.
func (w *shortWrite) prepare(ctx *sql.Context) bool {
	p := w.p
	if len(p.set) > 0 {
		w.set = make([]shortValue, len(p.set))
	}
	for i := range p.set {
		s := &p.set[i]
		if s.slot < 0 {
			continue
		}
		v := w.values[s.slot]
		switch {
		case s.from >= 0:
			n, ok := exactInt(bytesView(v.text), math.MinInt64, math.MaxInt64)
			if v.kind != literalNumber || !ok {
				return false
			}
			w.set[i].n = n
		case v.kind == literalNull:
			if !s.null {
				return false
			}
		default:
			x, ok := w.r.value(s.column, v)
			if !ok {
				return false
			}
			w.set[i].value = x
		}
	}
	for _, n := range p.nows {
		x, ok := w.now(ctx, n.column, n.expr)
		if !ok {
			return false
		}
		w.nows = append(w.nows, x)
	}
	in := p.insert
	if in == nil {
		return true
	}
	for _, slots := range in.rows {
		row := w.r.row
		if len(in.rows) > 1 {
			row = make(storage.Row, len(w.r.row))
		}
		number := false
		for i, slot := range slots {
			at := in.fields[i]
			if slot == shortDefault {
				row[at] = in.defaults[i]
				if e := in.nows[i]; e != nil {
					x, ok := w.now(ctx, i, e)
					if !ok {
						return false
					}
					row[at] = x
				}
				number = number || i == in.auto
				continue
			}
			v := w.values[slot]
			if i == in.auto {
				if v.kind == literalNull || w.s.settings.autoOnZero && v.kind == literalNumber && v.text == "0" {
					row[at], number = nil, true
					continue
				}
				if v.kind != literalNumber || v.text == "" || v.text[0] < '1' || v.text[0] > '9' {
					return false
				}
			}
			if v.kind == literalNull {
				if !in.nullable[i] {
					return false
				}
				row[at] = nil
				continue
			}
			x, ok := w.r.value(i, v)
			if !ok {
				return false
			}
			row[at] = x
		}
		w.rows = append(w.rows, row)
		w.numbers = append(w.numbers, number)
	}
	return true
}

// run executes the statement. It answers false without an error if it has written nothing and the planner has to.
func (w *shortWrite) run(ctx *sql.Context, tx *catalog.Tx, ok *types.OkResult) (bool, error) {
	if w.p.insert != nil {
		return w.insert(ctx, tx, ok)
	}
	t := w.p.table.t
	ed := w.editor(tx)
	row, found, err := tx.GetLock(ctx, t, w.key, catalog.ScanOptions{Lock: catalog.LockExclusive})
	if err != nil {
		return true, ed.changed(ctx, err)
	}
	if found {
		if found, err = w.same(ctx, row); err != nil {
			return false, nil
		}
	}
	if w.p.set == nil {
		if found {
			if err := tx.Delete(ctx, t, row); err != nil {
				return true, ed.changed(ctx, err)
			}
			ok.RowsAffected = 1
		}
		return true, nil
	}
	changed := 0
	if found {
		w.matched = 1
		to, fits := w.update(row, nil)
		if !fits {
			return false, nil
		}
		if !sameRow(row, to) {
			if err := tx.Update(ctx, t, row, to); err != nil {
				return true, ed.changed(ctx, err)
			}
			changed = 1
		}
	}
	ok.RowsAffected = uint64(changed)
	if ctx.Client().Capabilities&mysql.CapabilityClientFoundRows != 0 {
		ok.RowsAffected = uint64(w.matched)
	}
	ok.Info = plan.UpdateInfo{Matched: int(w.matched), Updated: changed}
	return true, nil
}

// same compares the text columns of the key as their collations do.
func (w *shortWrite) same(ctx *sql.Context, row storage.Row) (bool, error) {
	d := w.p.table.def
	for i, typ := range w.p.keyTypes {
		if typ == nil {
			continue
		}
		if cmp, err := typ.Compare(ctx, row[w.p.fieldOf(d.pk.PkOrdinals[i])], w.key[i]); err != nil || cmp != 0 {
			return false, err
		}
	}
	return true, nil
}

func (p *shortPlan) fieldOf(column int) int {
	for _, c := range p.table.def.codec.cols {
		if c.column == column {
			return c.field
		}
	}
	return -1
}

// editor translates errors.
func (w *shortWrite) editor(tx *catalog.Tx) *editor {
	return &editor{table: w.p.table, session: w.s, tx: tx, codec: w.r.codec}
}

// update gives a row with the new values of its columns; false: one of them does not fit.
func (w *shortWrite) update(row, added storage.Row) (storage.Row, bool) {
	to := append(storage.Row(nil), row...)
	for i := range w.p.set {
		s := &w.p.set[i]
		switch {
		case s.from < 0 && s.values >= 0:
			to[s.field] = added[s.values]
		case s.from < 0:
			to[s.field] = w.set[i].value
		default:
			a, b := to[s.from], any(w.set[i].n)
			if s.values >= 0 {
				b = added[s.values]
			}
			if a == nil || b == nil {
				if !s.null {
					return nil, false
				}
				to[s.field] = nil
				continue
			}
			x, ok1 := integerOf(a)
			y, ok2 := integerOf(b)
			if !ok1 || !ok2 {
				return nil, false
			}
			if s.minus {
				if y == math.MinInt64 {
					return nil, false
				}
				y = -y
			}
			sum := x + y
			if (sum > x) != (y > 0) && y != 0 || s.limit && sum < 0 {
				return nil, false
			}
			var ok bool
			if to[s.field], ok = integerFor(s.codec, sum); !ok {
				return nil, false
			}
		}
	}
	if len(w.nows) > 0 && !sameRow(row, to) {
		for i, n := range w.p.nows {
			to[n.field] = w.nows[i]
		}
	}
	return to, true
}

// integerOf gives the number of a value of an integer column.
func integerOf(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case decimal128.Num:
		return int64(v.LowBits()), v.HighBits() == 0 && v.LowBits() <= math.MaxInt64
	}
	return 0, false
}

// integerFor gives the value of an integer column for a number.
func integerFor(c *columnCodec, n int64) (any, bool) {
	t, ok := c.typ.(types.NumberTypeImpl_)
	if !ok {
		return nil, false
	}
	switch t.Type() {
	case sqltypes.Int64:
	case sqltypes.Uint64:
		if n < 0 {
			return nil, false
		}
	default:
		if low, high := intLimits(t); n < low || n > high {
			return nil, false
		}
	}
	switch c.field.Kind {
	case storage.Int32:
		return int32(n), true
	case storage.Int64:
		return n, true
	case storage.Decimal:
		return decimal128.FromI64(n), true
	}
	return nil, false
}

// insert adds the rows. After an error none of them is left.
func (w *shortWrite) insert(ctx *sql.Context, tx *catalog.Tx, ok *types.OkResult) (bool, error) {
	in := w.p.insert
	ed := w.editor(tx)
	ed.inserting = true
	mark := tx.Mark()
	var first uint64 // value that was generated
	for i, row := range w.rows {
		if i%loaderAhead == 0 {
			if err := w.expect(ctx, tx, i); err != nil {
				return true, w.back(tx, mark, ed.session.failed(err))
			}
		}
		if w.numbers[i] {
			n, err := w.p.table.GetNextAutoIncrementValue(ctx, nil)
			if err != nil {
				return true, w.back(tx, mark, err)
			}
			if first == 0 {
				first = n
			}
			if row[in.fields[in.auto]], err = w.r.codec.byName[w.p.table.def.pk.Schema[in.auto].Name].toStorage(n); err != nil {
				return true, w.back(tx, mark, mysqlError(err))
			}
		}
		affected, fits, err := w.insertRow(ctx, tx, ed, row)
		if err != nil {
			return true, w.back(tx, mark, err)
		}
		if !fits { // the planner's way begins anew
			if err := tx.RollbackTo(mark); err != nil {
				return true, mysqlError(err)
			}
			return false, nil
		}
		ok.RowsAffected += affected
		if in.auto >= 0 {
			if err := w.note(ctx, ed, row[in.fields[in.auto]]); err != nil {
				return true, w.back(tx, mark, err)
			}
		}
	}
	if first != 0 {
		ctx.GetLastQueryInfo().LastInsertId.Store(int64(first))
		ok.InsertID = first
	} else if in.auto >= 0 {
		if n, is := integerOf(w.rows[0][in.fields[in.auto]]); is {
			ok.InsertID = uint64(n)
		}
	}
	return true, nil
}

// expect looks many rows up together.
func (w *shortWrite) expect(ctx *sql.Context, tx *catalog.Tx, from int) error {
	n := min(len(w.rows)-from, loaderAhead)
	if n < loaderAheadMin {
		return nil
	}
	b := storage.NewBuilder(w.p.table.def.spec.Schema)
	for _, row := range w.rows[from : from+n] {
		if err := b.Append(row); err != nil {
			return err
		}
	}
	return tx.Expect(ctx, w.p.table.t, b.Batch(), 0, n, w.p.insert.replace || w.p.set != nil)
}

// back undoes the statement.
func (w *shortWrite) back(tx *catalog.Tx, mark catalog.Mark, cause error) error {
	if w.s.tx != nil && tx.Mark() > mark { // else the whole transaction is lost
		if err := tx.RollbackTo(mark); err != nil {
			return mysqlError(err)
		}
	}
	return cause
}

// insertRow adds a row, or does with it what the statement says if its key is taken.
func (w *shortWrite) insertRow(ctx *sql.Context, tx *catalog.Tx, ed *editor, row storage.Row) (affected uint64, fits bool, err error) {
	t := w.p.table.t
	for {
		err := tx.Insert(ctx, t, row)
		if err == nil {
			return affected + 1, true, nil
		}
		var dup *catalog.DuplicateKeyError
		if !w.p.insert.replace && w.p.set == nil || !errors.As(err, &dup) {
			return 0, true, ed.changed(ctx, err)
		}
		if w.p.insert.replace {
			if err := tx.Delete(ctx, t, dup.Existing); err != nil {
				return 0, true, ed.changed(ctx, err)
			}
			affected++
			continue
		}
		to, fits := w.update(dup.Existing, row)
		if !fits {
			return 0, false, nil
		}
		if sameRow(dup.Existing, to) {
			if ctx.Client().Capabilities&mysql.CapabilityClientFoundRows != 0 {
				return 1, true, nil
			}
			return 0, true, nil
		}
		if err := tx.Update(ctx, t, dup.Existing, to); err != nil {
			return 0, true, ed.changed(ctx, err)
		}
		return 2, true, nil
	}
}

// note raises the AUTO_INCREMENT counter above a value that the table took.
func (w *shortWrite) note(ctx *sql.Context, ed *editor, x any) error {
	d := w.p.table.def
	v, err := w.r.codec.byName[d.pk.Schema[d.auto].Name].fromValue(x)
	if err != nil {
		return mysqlError(err)
	}
	row := make(sql.Row, d.auto+1)
	row[d.auto] = v
	return ed.noteNumber(ctx, row)
}

func textView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func bytesView(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
