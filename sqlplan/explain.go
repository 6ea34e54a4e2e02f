package sqlplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// buildExplain runs EXPLAIN in MySQL's tabular form and FORMAT=JSON, from the plan that would run. FORMAT=TREE is the front
// end's text of the plan, with what each table of ours has to read.
func buildExplain(ctx *sql.Context, n *plan.DescribeQuery) (sql.RowIter, error) {
	asJSON := dialect.IsExplainJSON(n.Format)
	if n.Format.Analyze || n.Format.Debug && !asJSON {
		return nil, nil
	}
	if n.Format.Plan && !asJSON {
		var rows []sql.Row
		for _, line := range append(strings.Split(sql.Describe(ctx, n.Query(), n.Format), "\n"), filesOf(n.Query())...) {
			if strings.TrimSpace(line) != "" {
				rows = append(rows, sql.NewRow(strings.TrimRight(line, "\r")))
			}
		}
		return sql.RowsToRowIter(rows...), nil
	}
	x := explainer{ctx: ctx}
	top := x.block(n.Query(), "")
	if asJSON {
		text, err := top.json()
		if err != nil {
			return nil, err
		}
		return sql.RowsToRowIter(sql.NewRow(text)), nil
	}
	return sql.RowsToRowIter(top.rows(nil)...), nil
}

// filesOf says what the tables of a plan have to read.
func filesOf(query sql.Node) []string {
	var lines []string
	seen := map[string]bool{}
	transform.Inspect(query, func(n sql.Node) bool {
		if tn, ok := n.(sql.TableNode); ok {
			if t := ownOf(tn.UnderlyingTable()); t != nil && !seen[t.db.name+"."+t.Name()] {
				seen[t.db.name+"."+t.Name()] = true
				f := t.t.Files()
				lines = append(lines, fmt.Sprintf("Files(%s): %d file slices with %d base files and %d log files, %d buffered rows",
					t.Name(), f.Slices, f.Base, f.Logs, f.BufferedRows))
			}
		}
		return true
	})
	slices.Sort(lines)
	return lines
}

// ownOf gives the table of ours inside of what the front end puts around tables, nil if there is none.
func ownOf(t sql.Table) *table {
	if own, ok := inside[*ownTable](t); ok {
		return own.table
	}
	own, _ := inside[*table](t)
	return own
}

// queryBlock is a SELECT of a plan, by MySQL's account.
type queryBlock struct {
	id         int
	selectType string
	tables     []*tableAccess
	subqueries []*queryBlock // in expressions
	filesort   bool
	temporary  bool
	message    string        // instead of tables
	union      []*queryBlock // its parts; the block itself is the result of them
	distinct   bool          // of a union: its result is gathered in a temporary table
}

// tableAccess is how a plan reads one table.
type tableAccess struct {
	name     string
	access   string // MySQL's column "type"
	possible []string
	key      string
	parts    []string // columns of the key that are used
	ref      []string
	rows     uint64
	unknown  bool // rows are not known
	where    bool
	hash     bool // joined by a hash table of its rows
	extra    []string
	derived  *queryBlock
	target   bool // of INSERT
}

type explainer struct {
	ctx *sql.Context
	ids int
}

// scope is what is known above a node.
type scope struct {
	alias string
	where map[string][]string // columns in conditions, by table in lower case
	hash  bool
}

func (x *explainer) block(n sql.Node, selectType string) *queryBlock {
	x.ids++
	b := &queryBlock{id: x.ids, selectType: selectType}
	x.walk(n, b, scope{where: map[string][]string{}})
	if b.selectType == "" {
		b.selectType = "SIMPLE"
		if len(b.subqueries) > 0 || len(b.union) > 0 || slices.ContainsFunc(b.tables, func(t *tableAccess) bool { return t.derived != nil }) {
			b.selectType = "PRIMARY"
		}
	}
	if len(b.tables) == 0 && len(b.union) == 0 && b.message == "" {
		b.message = "No tables used"
	}
	return b
}

func (x *explainer) walk(n sql.Node, b *queryBlock, s scope) {
	if e, ok := n.(sql.Expressioner); ok {
		x.subqueries(e, b)
	}
	switch n := n.(type) {
	case nil:
	case *plan.Filter:
		s.where = x.conditions(s.where, n.Expression)
		x.walk(n.Child, b, s)
	case *plan.Having:
		x.walk(n.Child, b, s)
	case *plan.Sort:
		b.filesort = true
		x.walk(n.Child, b, s)
	case *plan.TopN:
		b.filesort = true
		x.walk(n.Child, b, s)
	case *plan.GroupBy:
		b.temporary = b.temporary || len(n.GroupByExprs) > 0
		x.walk(n.Child, b, s)
	case *plan.Distinct:
		b.temporary = true
		x.walk(n.Child, b, s)
	case *plan.Window:
		b.temporary = true
		x.walk(n.Child, b, s)
	case *plan.TableAlias:
		s.alias = n.Name()
		x.walk(n.Child, b, s)
	case *plan.SubqueryAlias:
		t := &tableAccess{access: "ALL", unknown: true, derived: x.block(n.Child, "DERIVED"), hash: s.hash}
		t.name = "<derived" + strconv.Itoa(t.derived.id) + ">"
		t.where = len(s.where[strings.ToLower(n.Name())]) > 0
		b.tables = append(b.tables, t)
	case *plan.JoinNode:
		if n.Filter != nil {
			s.where = x.conditions(s.where, n.Filter)
		}
		left, right := s, s
		left.alias, right.alias = "", ""
		right.hash = n.Op.IsHash()
		x.walk(n.Left(), b, left)
		x.walk(n.Right(), b, right)
	case *plan.SetOp:
		x.union(n, b)
	case *plan.IndexedTableAccess:
		x.lookup(n, b, s)
	case *plan.ResolvedTable:
		x.scan(n, b, s)
	case *plan.TableCountLookup:
		b.message = "Select tables optimized away"
	case *plan.EmptyTable:
		b.message = "Impossible WHERE"
	case *plan.InsertInto:
		t := &tableAccess{access: "ALL", unknown: true, target: true}
		if d, ok := n.Destination.(sql.Nameable); ok {
			t.name = d.Name()
		}
		b.tables = append(b.tables, t)
		x.walk(n.Source, b, s)
	case *plan.Update:
		b.selectType = "UPDATE"
		x.walk(n.Child, b, s)
	case *plan.DeleteFrom:
		b.selectType = "DELETE"
		x.walk(n.Child, b, s)
	case *plan.RecursiveCte:
		x.walk(n.Left(), b, s)
		x.walk(n.Right(), b, s)
	case *plan.Values, *plan.ValueDerivedTable:
	default:
		if t, ok := n.(sql.TableFunction); ok {
			b.tables = append(b.tables, &tableAccess{name: t.Name(), access: "ALL", unknown: true, hash: s.hash, extra: []string{"Table function: " + t.Name()}})
			return
		}
		for _, c := range n.Children() {
			x.walk(c, b, s)
		}
	}
}

// subqueries adds the SELECTs in the expressions of a node.
func (x *explainer) subqueries(e sql.Expressioner, b *queryBlock) {
	for _, expr := range e.Expressions() {
		if expr == nil {
			continue
		}
		sql.Inspect(x.ctx, expr, func(_ *sql.Context, e sql.Expression) bool {
			q, ok := e.(*plan.Subquery)
			if !ok {
				return true
			}
			kind := "SUBQUERY"
			if !q.Correlated().Empty() {
				kind = "DEPENDENT SUBQUERY"
			}
			b.subqueries = append(b.subqueries, x.block(q.Query, kind))
			return false
		})
	}
}

// union adds the parts of a UNION, from left to right.
func (x *explainer) union(n *plan.SetOp, b *queryBlock) {
	b.distinct = b.distinct || n.Distinct || len(n.SortConditions) > 0
	b.filesort = b.filesort || len(n.SortConditions) > 0
	part := func(n sql.Node) {
		inner := n
		for {
			if s, ok := inner.(*plan.SetOp); ok {
				x.union(s, b)
				return
			}
			c := inner.Children()
			if _, project := inner.(*plan.Project); !project || len(c) != 1 {
				break
			}
			if _, nested := c[0].(*plan.SetOp); !nested {
				break
			}
			inner = c[0]
		}
		if len(b.union) == 0 { // the block's own number is its first part's
			x.ids--
			b.union = append(b.union, x.block(n, "PRIMARY"))
			return
		}
		b.union = append(b.union, x.block(n, "UNION"))
	}
	part(n.Left())
	part(n.Right())
}

// conditions adds the columns of a condition.
func (x *explainer) conditions(have map[string][]string, e sql.Expression) map[string][]string {
	out := map[string][]string{}
	for t, cols := range have {
		out[t] = cols
	}
	sql.Inspect(x.ctx, e, func(_ *sql.Context, e sql.Expression) bool {
		if f, ok := e.(*expression.GetField); ok {
			t := strings.ToLower(f.Table())
			out[t] = append(slices.Clone(out[t]), strings.ToLower(f.Name()))
		}
		return true
	})
	return out
}

// access begins the row of a table.
func (x *explainer) access(name string, t sql.Table, s scope) *tableAccess {
	a := &tableAccess{name: name, access: "ALL", hash: s.hash, unknown: true}
	if s.alias != "" {
		a.name = s.alias
	}
	columns := s.where[strings.ToLower(a.name)]
	a.where = len(columns) > 0
	if st, ok := inside[sql.StatisticsTable](t); ok {
		if n, _, err := st.RowCount(x.ctx); err == nil {
			a.rows, a.unknown = n, false
		}
	}
	if own := ownOf(t); own != nil {
		first := func(name string, parts []keyPart) {
			if len(parts) > 0 && slices.Contains(columns, strings.ToLower(parts[0].Column)) {
				a.possible = append(a.possible, name)
			}
		}
		first(primaryIndex, own.def.table.PrimaryKey)
		for _, ix := range own.def.table.Indexes {
			first(ix.Name, ix.Columns)
		}
	}
	return a
}

func (x *explainer) scan(n *plan.ResolvedTable, b *queryBlock, s scope) {
	if plan.IsDualTable(n.Table) {
		return
	}
	b.tables = append(b.tables, x.access(n.Name(), n.Table, s))
}

// guessedShare is the part of a table that a lookup of several rows is taken to find: nothing counts values yet.
const guessedShare = 10

func (x *explainer) lookup(n *plan.IndexedTableAccess, b *queryBlock, s scope) {
	a := x.access(n.Name(), n.UnderlyingTable(), s)
	ix := n.Index()
	a.key = ix.ID()
	columns := ix.Expressions()
	whole := a.rows
	few := max(1, whole/guessedShare)
	one := func(used int) bool { return ix.IsUnique() && used == len(columns) }
	if keys := n.Expressions(); len(keys) > 0 {
		a.access, a.rows = "ref", few
		if one(len(keys)) {
			a.access, a.rows = "eq_ref", 1
		}
		for _, k := range keys {
			a.ref = append(a.ref, refText(k))
		}
		a.parts = columnNames(columns[:min(len(keys), len(columns))])
	} else if l, ok, err := n.GetLookup(x.ctx, nil); err == nil && ok {
		a.access, a.rows = "range", few
		ranges, _ := l.Ranges.(sql.MySQLRangeCollection)
		equal, any := 0, true
		for _, r := range ranges {
			for i, c := range r {
				if c.Type() == sql.RangeType_All {
					break
				}
				any = false
				if len(ranges) == 1 && i == equal && x.isPoint(c) {
					equal++
				}
			}
		}
		used := 0
		if len(ranges) > 0 {
			for _, c := range ranges[0] {
				if c.Type() == sql.RangeType_All {
					break
				}
				used++
			}
		}
		switch {
		case any:
			a.access, a.rows = "index", whole
			used = len(columns)
		case len(ranges) == 1 && one(equal):
			a.access, a.rows = "const", 1
		case len(ranges) == 1 && equal == used:
			a.access = "ref"
		}
		if a.access == "const" || a.access == "ref" {
			for range equal {
				a.ref = append(a.ref, "const")
			}
		}
		a.parts = columnNames(columns[:min(used, len(columns))])
		// The lookup is what the condition said, if it names all of it.
		if a.access == "const" {
			a.where = false
		}
	}
	if !slices.Contains(a.possible, a.key) {
		a.possible = append(a.possible, a.key)
	}
	b.tables = append(b.tables, a)
}

// isPoint says whether a range holds one value.
func (x *explainer) isPoint(c sql.MySQLRangeColumnExpr) bool {
	switch c.Type() {
	case sql.RangeType_EqualNull:
		return true
	case sql.RangeType_ClosedClosed:
		low, high := sql.GetMySQLRangeCutKey(c.LowerBound), sql.GetMySQLRangeCutKey(c.UpperBound)
		cmp, err := c.Typ.Compare(x.ctx, low, high)
		return err == nil && cmp == 0
	}
	return false
}

// refText writes what a key is compared with.
func refText(e sql.Expression) string {
	switch e := e.(type) {
	case *expression.GetField:
		return e.Table() + "." + e.Name()
	case *expression.Literal, *expression.BindVar, *expression.UserVar:
		return "const"
	}
	return "func"
}

// columnNames takes the table from the front end's names of index columns.
func columnNames(list []string) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e[strings.LastIndexByte(e, '.')+1:]
	}
	return out
}

// rows writes the block and those in it.
func (b *queryBlock) rows(out []sql.Row) []sql.Row {
	if len(b.union) > 0 {
		names := make([]string, len(b.union))
		for i, p := range b.union {
			out = p.rows(out)
			names[i] = strconv.Itoa(p.id)
		}
		if b.distinct {
			extra := "Using temporary"
			if b.filesort {
				extra += "; Using filesort"
			}
			out = append(out, sql.NewRow(nil, "UNION RESULT", "<union"+strings.Join(names, ",")+">", nil, "ALL", nil, nil, nil, nil, nil, nil, extra))
		}
		for _, q := range b.subqueries {
			out = q.rows(out)
		}
		return out
	}
	id := uint64(b.id)
	if len(b.tables) == 0 {
		out = append(out, sql.NewRow(id, b.selectType, nil, nil, nil, nil, nil, nil, nil, nil, nil, b.message))
	}
	for i, t := range b.tables {
		extra := slices.Clone(t.extra)
		if t.where {
			extra = append(extra, "Using where")
		}
		if i == 0 && b.temporary {
			extra = append(extra, "Using temporary")
		}
		if i == 0 && b.filesort {
			extra = append(extra, "Using filesort")
		}
		if t.hash {
			extra = append(extra, "Using join buffer (hash join)")
		}
		var rows, filtered any
		if !t.unknown {
			rows, filtered = t.rows, 100.0
		}
		kind := b.selectType
		if t.target {
			kind = "INSERT"
		}
		out = append(out, sql.NewRow(id, kind, t.name, nil, t.access, listOrNull(t.possible), textOrNull(t.key), nil,
			listOrNull(t.ref), rows, filtered, textOrNull(strings.Join(extra, "; "))))
	}
	for _, t := range b.tables {
		if t.derived != nil {
			out = t.derived.rows(out)
		}
	}
	for _, q := range b.subqueries {
		out = q.rows(out)
	}
	return out
}

func listOrNull(list []string) any { return textOrNull(strings.Join(list, ",")) }

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// json writes MySQL's object of EXPLAIN FORMAT=JSON, without costs.
func (b *queryBlock) json() (string, error) {
	return types.JsonToMySqlString(sql.NewEmptyContext(), types.JSONDocument{Val: map[string]any{"query_block": b.object()}})
}

func (b *queryBlock) object() map[string]any {
	out := map[string]any{"select_id": float64(b.id)}
	inner := out
	wrap := func(name string, with map[string]any) {
		inner[name] = with
		inner = with
	}
	if len(b.union) > 0 {
		var parts []any
		var names []string
		for _, p := range b.union {
			parts = append(parts, map[string]any{"dependent": false, "cacheable": true, "query_block": p.object()})
			names = append(names, strconv.Itoa(p.id))
		}
		result := map[string]any{"using_temporary_table": b.distinct, "query_specifications": parts}
		if b.distinct {
			result["table_name"], result["access_type"] = "<union"+strings.Join(names, ",")+">", "ALL"
		}
		return map[string]any{"union_result": result}
	}
	if b.message != "" {
		out["message"] = b.message
	}
	if b.filesort {
		wrap("ordering_operation", map[string]any{"using_filesort": true})
	}
	if b.temporary {
		wrap("grouping_operation", map[string]any{"using_temporary_table": true})
	}
	switch len(b.tables) {
	case 0:
	case 1:
		inner["table"] = b.tables[0].object()
	default:
		var list []any
		for _, t := range b.tables {
			list = append(list, map[string]any{"table": t.object()})
		}
		inner["nested_loop"] = list
	}
	if len(b.subqueries) > 0 {
		var list []any
		for _, q := range b.subqueries {
			dependent := q.selectType == "DEPENDENT SUBQUERY"
			list = append(list, map[string]any{"dependent": dependent, "cacheable": !dependent, "query_block": q.object()})
		}
		out["attached_subqueries"] = list
	}
	return out
}

func (t *tableAccess) object() map[string]any {
	out := map[string]any{"table_name": t.name, "access_type": t.access}
	texts := func(name string, list []string) {
		if len(list) > 0 {
			var l []any
			for _, s := range list {
				l = append(l, s)
			}
			out[name] = l
		}
	}
	texts("possible_keys", t.possible)
	texts("used_key_parts", t.parts)
	texts("ref", t.ref)
	if t.key != "" {
		out["key"] = t.key
	}
	if !t.unknown {
		out["rows_examined_per_scan"], out["filtered"] = float64(t.rows), "100.00"
	}
	if t.where {
		out["using_where"] = true
	}
	if t.hash {
		out["using_join_buffer"] = "hash join"
	}
	if t.derived != nil {
		out["materialized_from_subquery"] = map[string]any{"using_temporary_table": true, "query_block": t.derived.object()}
	}
	return out
}
