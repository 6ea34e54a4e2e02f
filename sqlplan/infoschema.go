package sqlplan

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/information_schema"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// mendInformationSchema makes EXPLAIN name its column and the tables of information_schema say what lakesql knows and the front end makes up: sizes,
// times, counters and options of tables, and the character set of views. The front end has one set of them in a process.
func mendInformationSchema() {
	plan.DescribePlanSchema = sql.Schema{{Name: "EXPLAIN", Type: types.LongText}} // FORMAT=TREE and JSON
	for _, c := range plan.DescribeSchema {
		c.Nullable = true
	}
	tables := information_schema.NewTablesTable
	information_schema.NewTablesTable = func() *information_schema.InformationSchemaTable {
		return mended(tables(), mendTablesRow)
	}
	columns := information_schema.NewColumnsTable
	information_schema.NewColumnsTable = func() *information_schema.ColumnsTable {
		t := columns()
		read := t.RowIter
		t.RowIter = func(ctx *sql.Context, cat sql.Catalog, sch sql.Schema) (sql.RowIter, error) {
			iter, err := read(ctx, cat, sch)
			return mendRows(ctx, iter, err, mendColumnsRow)
		}
		return t
	}
	views := information_schema.NewViewsTable
	information_schema.NewViewsTable = func() *information_schema.InformationSchemaTable {
		return mended(views(), mendViewsRow)
	}
}

func mendColumnsRow(ctx *sql.Context, s *Session, row sql.Row) error {
	const schema, table, name, extra, generation = 1, 2, 3, 17, 20
	db, _ := row[schema].(string)
	tn, _ := row[table].(string)
	t, ok := s.engine.catalog.Table(db, tn)
	if !ok {
		return nil
	}
	def, err := s.engine.definitionOf(ctx, t)
	if err != nil {
		return err
	}
	cn, _ := row[name].(string)
	i := def.table.columnNumber(cn)
	if i < 0 {
		return nil
	}
	c := def.table.Columns[i]
	switch {
	case c.Generated != nil:
		row[extra], row[generation] = "STORED GENERATED", withoutParentheses(c.Generated.Text)
		if c.Virtual {
			row[extra] = "VIRTUAL GENERATED"
		}
	case c.OnUpdate != nil:
		text, _ := row[extra].(string)
		row[extra] = strings.TrimSpace(text + " on update " + c.OnUpdate.Text)
	}
	return nil
}

// withoutParentheses takes the outermost parentheses of an expression that is written with two pairs.
func withoutParentheses(text string) string {
	if strings.HasPrefix(text, "((") && strings.HasSuffix(text, "))") {
		return text[1 : len(text)-1]
	}
	return text
}

// mended is a table of information_schema whose rows pass through a function.
func mended(t *information_schema.InformationSchemaTable, mend func(*sql.Context, *Session, sql.Row) error) *information_schema.InformationSchemaTable {
	read := t.Reader
	t.Reader = func(ctx *sql.Context, cat sql.Catalog) (sql.RowIter, error) {
		iter, err := read(ctx, cat)
		return mendRows(ctx, iter, err, mend)
	}
	return t
}

func mendRows(ctx *sql.Context, iter sql.RowIter, err error, mend func(*sql.Context, *Session, sql.Row) error) (sql.RowIter, error) {
	s, ok := ctx.Session.(*Session)
	if err != nil || !ok || s.engine.plainText {
		return iter, err
	}
	defer iter.Close(ctx)
	var rows []sql.Row
	for {
		row, err := iter.Next(ctx)
		if errors.Is(err, io.EOF) {
			return sql.RowsToRowIter(rows...), nil
		}
		if err != nil {
			return nil, err
		}
		if err := mend(ctx, s, row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// Columns of information_schema.TABLES.
const (
	tablesSchemaName = 1 + iota
	tablesName
	tablesType
	tablesEngine
	tablesVersion
	tablesRowFormat
	tablesRows
	tablesRowLength
	tablesDataLength
	tablesMaxLength
	tablesIndexLength
	tablesFree
	tablesAuto
	tablesCreated
	tablesUpdated
	tablesChecked
	tablesCollation
	tablesChecksum
	tablesOptions
	tablesComment
)

func mendTablesRow(ctx *sql.Context, s *Session, row sql.Row) error {
	db, _ := row[tablesSchemaName].(string)
	name, _ := row[tablesName].(string)
	t, ok := s.engine.catalog.Table(db, name)
	if !ok || row[tablesEngine] == nil {
		// A view, or a table of the server's own: the front end repeats values of the table before it.
		row[tablesAuto], row[tablesUpdated] = nil, nil
		return nil
	}
	st, err := statusOf(ctx, s.engine, db, t.Name())
	if err != nil || st == nil {
		return err
	}
	row[tablesRowFormat] = "Dynamic"
	row[tablesRows], row[tablesRowLength], row[tablesDataLength] = st.rows, st.rowLength(), st.bytes
	row[tablesAuto], row[tablesCreated], row[tablesUpdated] = st.auto, st.created, st.updated
	row[tablesOptions], row[tablesComment] = st.options, st.comment
	return nil
}

func mendViewsRow(ctx *sql.Context, s *Session, row sql.Row) error {
	const definer, charset, collation = 6, 8, 9
	row[charset], row[collation] = objectCharset, objectCollation
	if row[definer] == "" {
		row[definer] = defaultDefiner
	}
	return nil
}

// tableStatus is what SHOW TABLE STATUS and information_schema.TABLES say of a table.
type tableStatus struct {
	name, collation, options, comment string
	rows, bytes                       uint64
	auto                              any // next AUTO_INCREMENT value; nil without such a column
	created, updated                  any // in the session's time zone
}

func (s *tableStatus) rowLength() uint64 {
	if s.rows == 0 {
		return 0
	}
	return s.bytes / s.rows
}

// statusOf describes a table of the warehouse, nil if there is none.
func statusOf(ctx *sql.Context, e *Engine, db, name string) (*tableStatus, error) {
	ct, ok := e.catalog.Table(db, name)
	if !ok {
		return nil, nil
	}
	def, err := e.definitionOf(ctx, ct)
	if err != nil {
		return nil, err
	}
	zone, err := sessionOf(ctx).zone(ctx)
	if err != nil {
		return nil, err
	}
	clock := func(t time.Time) time.Time { return clockOf(t.Truncate(time.Second), zone) }
	s := &tableStatus{
		name: def.name, collation: def.collation.Name(), comment: def.table.Comment,
		rows: uint64(ct.RowCount()), bytes: uint64(ct.DataBytes()), created: clock(ct.Created()),
	}
	if u := ct.Updated(); u.After(ct.Created()) {
		s.updated = clock(u)
	}
	t := &table{t: ct, def: def}
	if def.spec.AutoIncrement != "" {
		v, err := t.PeekNextAutoIncrementValue(ctx)
		if err != nil {
			return nil, err
		}
		s.auto = v
	}
	if o := t.optionsJSON(); o != "" {
		s.options = "ENGINE_ATTRIBUTE=" + quoteText(o)
	}
	return s, nil
}

// showTableStatus runs SHOW TABLE STATUS. Views are in it, with little more than their names, as in MySQL.
func showTableStatus(ctx *sql.Context, n *plan.ShowTableStatus) (sql.RowIter, error) {
	s, ok := ctx.Session.(*Session)
	if !ok {
		return nil, nil
	}
	db := n.Database()
	if _, _, ok := s.engine.catalog.Database(db.Name()); !ok {
		return nil, nil
	}
	names, err := db.GetTableNames(ctx)
	if err != nil {
		return nil, err
	}
	var rows []sql.Row
	for _, name := range names {
		st, err := statusOf(ctx, s.engine, db.Name(), name)
		if err != nil {
			return nil, err
		}
		if st == nil {
			continue // dropped meanwhile
		}
		rows = append(rows, sql.NewRow(st.name, "InnoDB", "10", "Dynamic", st.rows, st.rowLength(), st.bytes, uint64(0), int64(0), int64(0),
			st.auto, st.created, st.updated, nil, st.collation, nil, st.options, st.comment))
	}
	if views, ok := db.(sql.ViewDatabase); ok {
		list, err := views.AllViews(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range list {
			row := make(sql.Row, len(n.Schema(ctx)))
			row[0], row[len(row)-1] = v.Name, "VIEW"
			rows = append(rows, row)
		}
	}
	sortRows(rows)
	return sql.RowsToRowIter(rows...), nil
}

// sortRows orders rows by the name in their first column.
func sortRows(rows []sql.Row) {
	byName := func(a, b sql.Row) int {
		return strings.Compare(strings.ToLower(a[0].(string)), strings.ToLower(b[0].(string)))
	}
	slices.SortFunc(rows, byName)
}
