package wire

import (
	"errors"
	"io"
	"strings"
	"unsafe"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"

	"github.com/lakesql/lakesql/sqlplan"
)

// errNotPlain ends the attempt at a statement whose rows the front end has to read. Nothing was written.
var errNotPlain = errors.New("wire: the statement is not plain")

// valuesInsert writes the rows of a valuesList. The front end has planned the statement for its first row.
type valuesInsert struct {
	dst    *sqlplan.Loader
	list   *valuesList
	update bool
	done   bool
	failed error
}

// valuesOf gives the rows of a statement that may be read from its text; nil: it is the front end's.
func valuesOf(ctx *sql.Context, text string) *valuesList {
	if len(text) < 32 || !sqlplan.DirectWrites(ctx) || sql.LoadSqlMode(ctx).ModeEnabled("NO_BACKSLASH_ESCAPES") {
		return nil
	}
	v, err := ctx.GetSessionVariable(ctx, "character_set_client")
	if name, _ := v.(string); err != nil || !strings.HasPrefix(name, "utf8") {
		return nil
	}
	return listValues(text)
}

// newValuesInsert reads the rows; nil: one of them, or the table, needs the front end.
func newValuesInsert(ctx *sql.Context, ii *plan.InsertInto, list *valuesList) (*valuesInsert, error) {
	if ii.Ignore || ii.HasAfterTrigger || len(ii.Returning) > 0 || ii.OnDupExprs.HasDerivedUpdates() || !oneRow(ii.Source) {
		return nil, nil
	}
	dest, ok := ii.Destination.(*plan.InsertDestination)
	if !ok {
		return nil, nil
	}
	if _, ok := dest.Child.(*plan.ResolvedTable); !ok { // foreign keys wrap the table
		return nil, nil
	}
	schema := dest.Sch
	places, ok := placesOf(ii, schema)
	if !ok {
		return nil, nil
	}
	it := &valuesInsert{list: list, update: ii.OnDupExprs.HasUpdates()}
	mode := sqlplan.DuplicatesFail
	var updates []sqlplan.LoaderUpdate
	switch {
	case ii.IsReplace:
		mode = sqlplan.DuplicatesReplace
	case it.update:
		mode = sqlplan.DuplicatesUpdate
		if updates, ok = updatesOf(ii, schema); !ok {
			return nil, nil
		}
	}
	dst, err := sqlplan.NewLoader(ctx, dest, mode)
	if err != nil || dst == nil {
		return nil, err
	}
	dst.Hold, dst.Updates = true, updates
	it.dst = dst
	row := tableRow{dst: dst, conv: newValueConverter(schema, false)}
	if !row.readAll(ctx, list, places, ii.Checks(), it.update) {
		return nil, dst.Abort(ctx, nil)
	}
	list.read = true
	return it, nil
}

// oneRow tells the source of the shortened statement.
func oneRow(n sql.Node) bool {
	for {
		switch x := n.(type) {
		case *plan.Project:
			n = x.Child
		case *plan.SubqueryAlias: // the row's name in ON DUPLICATE KEY UPDATE
			n = x.Child
		case *plan.Values:
			return len(x.ExpressionTuples) == 1
		case *plan.ValueDerivedTable:
			return len(x.ExpressionTuples) == 1
		default:
			return false
		}
	}
}

// placesOf gives the places in the table of the columns that the statement lists.
func placesOf(ii *plan.InsertInto, schema sql.Schema) ([]int, bool) {
	var places []int
	if len(ii.ColumnNames) == 0 {
		for i := range schema {
			places = append(places, i)
		}
	}
	for _, name := range ii.ColumnNames {
		i := schema.IndexOfColName(name)
		if i < 0 {
			return nil, false
		}
		places = append(places, i)
	}
	seen := make([]bool, len(schema))
	for _, i := range places {
		if seen[i] || schema[i].Generated != nil {
			return nil, false
		}
		seen[i] = true
	}
	return places, true
}

// updatesOf reads ON DUPLICATE KEY UPDATE column = VALUES(column), … over columns outside of the primary key.
func updatesOf(ii *plan.InsertInto, schema sql.Schema) ([]sqlplan.LoaderUpdate, bool) {
	if len(ii.Checks()) > 0 || schema.HasAutoIncrement() {
		return nil, false
	}
	var out []sqlplan.LoaderUpdate
	for _, e := range ii.OnDupExprs.ExplicitUpdateExprs() {
		set, ok := e.(*expression.SetField)
		if !ok {
			return nil, false
		}
		to, ok := set.LeftChild.(*expression.GetField)
		if !ok {
			return nil, false
		}
		from, ok := set.RightChild.(*expression.GetField)
		if !ok || to.Index() >= len(schema) || from.Index() < len(schema) || from.Index() >= 2*len(schema) {
			return nil, false
		}
		u := sqlplan.LoaderUpdate{To: to.Index(), From: from.Index() - len(schema)}
		a, b := schema[u.To], schema[u.From]
		if a.PrimaryKey || a.Generated != nil || !strings.EqualFold(a.Name, to.Name()) || !strings.EqualFold(b.Name, from.Name()) {
			return nil, false
		}
		if u.To != u.From && (!a.Type.Equals(b.Type) || b.Nullable && !a.Nullable) {
			return nil, false
		}
		out = append(out, u)
	}
	return out, true
}

// readAll adds the rows of the list. It answers false if the front end has to read them.
func (r *tableRow) readAll(ctx *sql.Context, list *valuesList, places []int, checks sql.CheckConstraints, update bool) bool {
	schema := r.conv.schema
	set := make([]bool, len(schema))
	fields := make([]valueField, len(places))
	for k, i := range places {
		set[i] = true
		col := schema[i]
		fields[k] = valueField{
			column: r.dst.Column(i), null: col.Nullable || col.AutoIncrement,
			number: types.IsNumber(col.Type) || types.IsDecimal(col.Type) || col.Type.Type() == querypb.Type_YEAR,
			float:  types.IsFloat(col.Type),
		}
	}
	if !r.complete(ctx, set, map[int]bool{}, checks) {
		return false
	}
	for i := range r.rest {
		if r.rest[i].none {
			return false
		}
	}
	for _, i := range r.used {
		if schema[i].AutoIncrement { // it has no value yet
			return false
		}
	}
	s := valueScanner{text: list.text, pos: list.begin}
	for n := range list.rows {
		if n > 0 {
			s.space()
			s.take(',')
			s.space()
		}
		s.take('(')
		for k := range fields {
			if k > 0 && !s.take(',') {
				return false
			}
			if !s.literal() || !fields[k].add(ctx, &s) {
				return false
			}
		}
		if !s.take(')') {
			return false
		}
		if ok, err := r.end(ctx); err != nil || !ok {
			return false
		}
		if err := r.dst.EndRow(ctx); err != nil {
			return false
		}
	}
	return s.pos == list.end
}

// valueField is a column that the rows give.
type valueField struct {
	column *sqlplan.LoaderColumn
	null   bool // takes NULL
	number bool // takes numbers
	float  bool
}

// add adds the scanner's literal, if it is exactly a value of the column.
func (f *valueField) add(ctx *sql.Context, s *valueScanner) bool {
	switch {
	case s.kind == literalNull:
		return f.null && f.column.Null(ctx) == nil
	case s.kind == literalNumber && !f.number:
		return false
	case f.float && len(s.value) > 1 && s.value[0] == '-' && strings.Trim(s.value, "-0.eE+") == "":
		return false // minus zero, of which the front end makes zero in a literal and not in a text
	case f.column.Generates(s.value):
		return f.column.Null(ctx) == nil
	}
	return f.column.Text(unsafe.Slice(unsafe.StringData(s.value), len(s.value)))
}

// Next writes the rows and answers the one row of a write.
func (it *valuesInsert) Next(ctx *sql.Context) (sql.Row, error) {
	if it.done {
		return nil, io.EOF
	}
	it.list.final = true
	counts, err := it.dst.Finish(ctx)
	if err == nil {
		err = it.Close(ctx)
	}
	if err != nil {
		it.failed = err
		return nil, err
	}
	affected := counts.Added + counts.Replaced + 2*counts.Updated
	if ctx.Client().Capabilities&mysql.CapabilityClientFoundRows != 0 {
		affected += counts.Same
	}
	ctx.GetLastQueryInfo().RowCount.Store(affected)
	return sql.NewRow(types.OkResult{RowsAffected: uint64(affected), InsertID: it.dst.InsertID(ctx)}), nil
}

func (it *valuesInsert) Close(ctx *sql.Context) error {
	if it.done {
		return nil
	}
	it.done = true
	return it.dst.Abort(ctx, it.failed) // nothing after Finish
}
