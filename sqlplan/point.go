package sqlplan

import (
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/rowexec"
	"github.com/dolthub/go-mysql-server/sql/types"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// A SELECT, UPDATE or DELETE of the row with one primary key spends most of its time in the planner, which has nothing to
// decide. QueryWithBindings makes the planner's plan for these statements by itself; what runs is the same, and everything that
// is not plainly of that form goes to the planner.

// QueryWithBindings is the front end's method of that name with a short way for statements by primary key.
func (e *Engine) QueryWithBindings(ctx *sql.Context, query string, stmt ast.Statement, binds map[string]ast.Expr, flags *sql.QueryFlags) (sql.Schema, sql.RowIter, *sql.QueryFlags, error) {
	p := pointOf(stmt, binds)
	if p == nil || e.planAll {
		return e.sql.QueryWithBindings(ctx, query, stmt, binds, flags)
	}
	sch, iter, out, err := e.runPoint(ctx, p, flags)
	if err != nil {
		// As the front end: an implicit transaction of a failed statement is not that of the next one.
		if auto, aerr := plan.IsSessionAutocommit(ctx); aerr == nil && auto && !ctx.GetIgnoreAutoCommit() {
			ctx.SetTransaction(nil)
		}
		return nil, nil, nil, err
	}
	if iter == nil {
		return e.sql.QueryWithBindings(ctx, query, stmt, binds, flags)
	}
	return sch, iter, out, nil
}

// runPoint plans and starts a statement; without an error and an iterator it is the planner's.
func (e *Engine) runPoint(ctx *sql.Context, p *point, flags *sql.QueryFlags) (sql.Schema, sql.RowIter, *sql.QueryFlags, error) {
	began := ctx.GetTransaction() == nil
	if began {
		tx, err := ctx.Session.(sql.TransactionSession).StartTransaction(ctx, sql.ReadWrite)
		if err != nil {
			return nil, nil, nil, err
		}
		ctx.SetTransaction(tx)
	}
	if flags == nil {
		flags = &sql.QueryFlags{}
	}
	node, err := e.planPoint(ctx, p, flags)
	if err != nil || node == nil {
		return nil, nil, nil, err
	}
	e.pointsTotal.Add(1)
	sql.IncrementStatusVariable(ctx, "Questions", 1)
	switch node.(type) {
	case *plan.Update:
		sql.IncrementStatusVariable(ctx, "Com_update", 1)
	case *plan.DeleteFrom:
		sql.IncrementStatusVariable(ctx, "Com_delete", 1)
	default:
		sql.IncrementStatusVariable(ctx, "Com_select", 1)
	}
	if err := ctx.Session.ValidateSession(ctx); err != nil {
		return nil, nil, nil, err
	}
	ctx.ClearWarnings()
	iter, err := e.sql.Analyzer.ExecBuilder.Build(ctx, node, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	iter, sch, err := rowexec.FinalizeIters(ctx, node, flags, iter)
	if err != nil {
		return nil, nil, nil, err
	}
	if sch == nil {
		sch = node.Schema(ctx)
	}
	return sch, iter, flags, nil
}

// point is a statement on the row of one primary key, as it is written.
type point struct {
	db, table string
	columns   ast.SelectExprs // of SELECT
	set       ast.AssignmentExprs
	deletes   bool
	key       map[string]*ast.SQLVal // by column in lower case
	binds     map[string]ast.Expr
	slots     map[string]int // of a shape: the literals of the key's columns, by column; see short.go
}

// pointOf tells whether a statement has the form of one by key; nil: no.
func pointOf(stmt ast.Statement, binds map[string]ast.Expr) *point {
	return (&point{binds: binds}).read(stmt)
}

func (p *point) read(stmt ast.Statement) *point {
	var from ast.TableExprs
	var where *ast.Where
	switch s := stmt.(type) {
	case *ast.Select:
		if s.Into != nil || s.With != nil || s.Limit != nil || s.Having != nil || s.Lock != nil && s.Lock.Type != "" || len(s.GroupBy) > 0 || len(s.Comments) > 0 ||
			len(s.Window) > 0 || len(s.OrderBy) > 0 || !plainOptions(s.QueryOpts) {
			return nil
		}
		p.columns, from, where = s.SelectExprs, s.From, s.Where
	case *ast.Update:
		if len(s.Comments) > 0 || s.Ignore != "" || s.With != nil || len(s.OrderBy) > 0 || s.Limit != nil || len(s.Returning) > 0 || len(s.Exprs) == 0 {
			return nil
		}
		p.set, from, where = s.Exprs, s.TableExprs, s.Where
	case *ast.Delete:
		if len(s.Comments) > 0 || len(s.Targets) > 0 || s.With != nil || len(s.Partitions) > 0 || len(s.OrderBy) > 0 || s.Limit != nil || len(s.Returning) > 0 {
			return nil
		}
		p.deletes, from, where = true, s.TableExprs, s.Where
	default:
		return nil
	}
	if len(from) != 1 || where == nil {
		return nil
	}
	t, ok := from[0].(*ast.AliasedTableExpr)
	if !ok || t.Hints != nil || t.AsOf != nil || len(t.Partitions) > 0 || t.Lateral || !t.As.IsEmpty() || t.Auth.Extra != nil {
		return nil
	}
	name, ok := t.Expr.(ast.TableName)
	if !ok || !name.SchemaQualifier.IsEmpty() {
		return nil
	}
	p.db, p.table = name.DbQualifier.String(), name.Name.String()
	p.key = map[string]*ast.SQLVal{}
	if !p.addKeys(where.Expr) {
		return nil
	}
	return p
}

func plainOptions(o ast.QueryOpts) bool {
	return !o.Distinct && len(o.DistinctOn) == 0 && !o.StraightJoinHint && !o.SQLCalcFoundRows && !o.SQLCache && !o.SQLNoCache
}

// addKeys reads column = literal AND ….
func (p *point) addKeys(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.AndExpr:
		return p.addKeys(e.Left) && p.addKeys(e.Right)
	case *ast.ParenExpr:
		return p.addKeys(e.Expr)
	case *ast.ComparisonExpr:
		if e.Operator != ast.EqualStr || e.Escape != nil {
			return false
		}
		col, value := p.column(e.Left), p.literal(e.Right)
		if col == "" || value == nil {
			col, value = p.column(e.Right), p.literal(e.Left)
		}
		if col == "" || value == nil || p.key[col] != nil {
			return false
		}
		p.key[col] = value
		if p.slots != nil {
			p.slots[col] = slotOf(value)
		}
		return true
	}
	return false
}

// column gives the lower-case name of a column of the table, "" for anything else.
func (p *point) column(e ast.Expr) string {
	c, ok := e.(*ast.ColName)
	if !ok || c.StoredProcVal != nil {
		return ""
	}
	q := c.Qualifier
	if !q.IsEmpty() && (!strings.EqualFold(q.Name.String(), p.table) || !q.DbQualifier.IsEmpty() || !q.SchemaQualifier.IsEmpty()) {
		return ""
	}
	return c.Name.Lowered()
}

// literal gives a number or a text, also one that a parameter stands for; nil for anything else.
func (p *point) literal(e ast.Expr) *ast.SQLVal {
	v, ok := e.(*ast.SQLVal)
	if ok && p.slots != nil {
		if v.Type != ast.ValArg {
			return nil
		}
		return v
	}
	if ok && v.Type == ast.ValArg {
		v, ok = p.binds[strings.TrimPrefix(string(v.Val), ":")].(*ast.SQLVal)
	}
	if !ok || v.Type != ast.IntVal && v.Type != ast.StrVal {
		return nil
	}
	return v
}

// planPoint makes the plan of the front end's planner; nil: the statement is the planner's.
func (e *Engine) planPoint(ctx *sql.Context, p *point, flags *sql.QueryFlags) (sql.Node, error) {
	s := sessionOf(ctx)
	if s.stmt.meta || s.nested || ctx.IsInterpreted() || (s.tx != nil && s.tx.readOnly && p.columns == nil) || s.held != nil || e.writeLocks.count.Load() > 0 {
		return nil, nil
	}
	t, err := e.tableOf(ctx, p.db, p.table)
	if err != nil || t == nil || t.temporary || t.def.name != p.table || len(t.def.pk.PkOrdinals) != len(p.key) {
		return nil, nil // errors are the planner's to word
	}
	need := sql.PrivilegeType_Select
	switch {
	case p.set != nil:
		need = sql.PrivilegeType_Update
	case p.deletes:
		need = sql.PrivilegeType_Delete
	}
	if p.columns == nil {
		if ok, err := e.changesAlone(ctx, t); err != nil || !ok {
			return nil, err
		}
	}
	if users := e.sql.Analyzer.Catalog.MySQLDb; users.Enabled() {
		subject := sql.PrivilegeCheckSubject{Database: t.db.name, Table: t.def.name}
		ops := []sql.PrivilegedOperation{sql.NewPrivilegedOperation(subject, need), sql.NewPrivilegedOperation(subject, sql.PrivilegeType_Select)}
		if !users.UserHasPrivileges(ctx, ops...) {
			return nil, nil
		}
	}
	for _, c := range t.def.pk.Schema {
		if c.Virtual || c.Generated != nil || c.HiddenSystem {
			return nil, nil
		}
	}
	own := &ownTable{t}
	var project []sql.Expression
	if p.columns != nil {
		if own, project = p.projected(ctx, t, flags); own == nil {
			return nil, nil
		}
	} else {
		own.reading = asTarget
	}
	x := t.newIndex(indexDefinition{Name: primaryIndex, Columns: t.def.table.PrimaryKey, Unique: true})
	if x.prefix != nil {
		return nil, nil
	}
	ranges := make(sql.MySQLRange, len(x.columns))
	for i, c := range x.columns {
		key, ok := exactKey(ctx, c.Type, p.key[strings.ToLower(c.Name)])
		if !ok {
			return nil, nil
		}
		ranges[i] = sql.ClosedRangeColumnExpr(key, key, c.Type)
	}
	rt := plan.NewResolvedTable(own, t.db, nil)
	read, err := plan.NewStaticIndexedAccessForTableNode(ctx, rt, sql.IndexLookup{
		Index: x, Ranges: sql.MySQLRangeCollection{ranges}, IsPointLookup: true,
	})
	if err != nil {
		return nil, err
	}
	flags.Set(sql.QFlagMax1Row)
	switch {
	case p.deletes:
		flags.Set(sql.QFlagDelete)
		return plan.NewDeleteFrom(read, []sql.Node{read}, false), nil
	case p.set != nil:
		set, ok := p.assignments(ctx, t)
		if !ok {
			return nil, nil
		}
		flags.Set(sql.QFlagUpdate)
		u := plan.NewUpdate(ctx, read, false, plan.NewUpdateExprs(set, len(set)))
		u.HasSingleRel = true
		return u, nil
	case project != nil:
		return plan.NewProject(ctx, project, read), nil
	}
	return read, nil
}

// changesAlone says whether a change of the table's rows has no effect beyond them and is bound by no rule that the planner adds.
func (e *Engine) changesAlone(ctx *sql.Context, t *table) (bool, error) {
	if len(t.def.table.Checks)+len(t.def.table.ForeignKeys) > 0 || e.catalog.HasObjects(kindTrigger, t.db.name) {
		return false, nil
	}
	refs, err := e.referencesOf(ctx, t.db.name, t.def.name)
	return len(refs) == 0, err
}

// projected gives the table with the columns of a SELECT, and what its result is made of: nil if that is the table's columns as
// they stand. Without a table the statement is the planner's.
func (p *point) projected(ctx *sql.Context, t *table, flags *sql.QueryFlags) (*ownTable, []sql.Expression) {
	if len(p.columns) == 1 {
		if star, ok := p.columns[0].(*ast.StarExpr); ok {
			for _, c := range t.def.pk.Schema {
				if c.Hidden {
					return nil, nil
				}
			}
			if !star.TableName.IsEmpty() {
				return nil, nil
			}
			flags.Set(sql.QFlagStar)
			return &ownTable{t}, nil
		}
	}
	var names []string
	var out []sql.Expression
	at := map[string]int{}
	for _, e := range p.columns {
		a, ok := e.(*ast.AliasedExpr)
		if !ok {
			return nil, nil
		}
		col := p.column(a.Expr)
		n := t.def.column(col)
		if col == "" || n < 0 {
			return nil, nil
		}
		c := t.def.pk.Schema[n]
		written := a.Expr.(*ast.ColName)
		if written.Name.String() != c.Name || c.Hidden || (a.As.IsEmpty() && !written.Qualifier.IsEmpty()) {
			return nil, nil
		}
		if _, known := at[c.Name]; !known {
			at[c.Name] = len(names)
			names = append(names, c.Name)
		}
		var x sql.Expression = expression.NewGetFieldWithTable(at[c.Name], 0, c.Type, t.db.name, t.def.name, c.Name, c.Nullable)
		if !a.As.IsEmpty() {
			x = expression.NewAlias(ctx, a.As.String(), x)
		}
		out = append(out, x)
	}
	projection, err := t.project(names)
	if err != nil {
		return nil, nil
	}
	if p.asTheyStand(t, names, len(out)) {
		out = nil
	}
	return &ownTable{projection}, out
}

// asTheyStand says whether the result is what the table gives: the key, which the planner reads in any case, and other columns, all
// in table order, under their own names and without a default (the planner compares those as objects).
func (p *point) asTheyStand(t *table, names []string, n int) bool {
	if len(names) != n {
		return false
	}
	last := -1
	for i, name := range names {
		at := t.def.column(name)
		if at <= last || t.def.pk.Schema[at].Default != nil || !p.columns[i].(*ast.AliasedExpr).As.IsEmpty() {
			return false
		}
		last = at
	}
	return !slices.ContainsFunc(t.def.table.PrimaryKey, func(k keyPart) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, k.Column) })
	})
}

// exactKey gives the key value that a literal stands for, if that needs no conversion.
func exactKey(ctx *sql.Context, typ sql.Type, v *ast.SQLVal) (any, bool) {
	if v == nil {
		return nil, false
	}
	switch {
	case types.IsInteger(typ) && v.Type == ast.IntVal, types.IsTextOnly(typ) && v.Type == ast.StrVal:
		key, in, err := typ.Convert(ctx, string(v.Val))
		return key, err == nil && in == sql.InRange
	}
	return nil, false
}

// assignments reads column = literal and column = column ± literal of columns outside of the primary key.
func (p *point) assignments(ctx *sql.Context, t *table) ([]sql.Expression, bool) {
	for _, c := range t.def.pk.Schema {
		if c.OnUpdate != nil {
			return nil, false
		}
	}
	var out []sql.Expression
	seen := map[int]bool{}
	field := func(e ast.Expr) (int, sql.Expression) {
		n := -1
		if col := p.column(e); col != "" {
			n = t.def.column(col)
		}
		if n < 0 {
			return n, nil
		}
		c := t.def.pk.Schema[n]
		return n, expression.NewGetFieldWithTable(n, 0, c.Type, t.db.name, t.def.name, c.Name, c.Nullable)
	}
	for _, a := range p.set {
		n, to := field(a.Name)
		if to == nil || seen[n] || t.def.pk.Schema[n].PrimaryKey || t.def.pk.Schema[n].AutoIncrement {
			return nil, false
		}
		seen[n] = true
		switch v := a.Expr.(type) {
		case *ast.NullVal:
			out = append(out, expression.NewSetField(to, expression.NewLiteral(nil, types.Null)))
		case *ast.SQLVal:
			value := p.literal(v)
			if value == nil {
				return nil, false
			}
			out = append(out, expression.NewSetField(to, literalOf(ctx, value)))
		case *ast.BinaryExpr:
			_, from := field(v.Left)
			value := p.literal(v.Right)
			if from == nil || value == nil || value.Type != ast.IntVal || !types.IsInteger(from.Type(ctx)) {
				return nil, false
			}
			switch v.Operator {
			case ast.PlusStr:
				out = append(out, expression.NewSetField(to, expression.NewPlus(from, literalOf(ctx, value))))
			case ast.MinusStr:
				out = append(out, expression.NewSetField(to, expression.NewMinus(from, literalOf(ctx, value))))
			default:
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return out, true
}

// integers makes literals of numbers: for those it needs no context.
var integers = planbuilder.New(sql.NewEmptyContext(), nil, nil)

// literalOf gives the planner's literal for a number or a text.
func literalOf(ctx *sql.Context, v *ast.SQLVal) sql.Expression {
	if v.Type == ast.StrVal {
		return expression.NewLiteral(string(v.Val), types.CreateLongText(ctx.GetCollation()))
	}
	return integers.ConvertVal(v)
}
