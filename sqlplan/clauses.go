package sqlplan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// The front end binds all clauses of an ALTER TABLE to the table as it was, so that none may name what another one makes. Here each
// clause is bound to the table as the clauses before it leave it, and they are carried out in the order in which MySQL looks at
// them: what is dropped goes first, by the old names; changed columns next, by their old names; then new ones; keys and constraints
// over the columns that result; at last the table's options and its name. All of them are one change (see change).

// alterClauses is an ALTER TABLE of several clauses.
type alterClauses struct {
	statementNode
	engine *Engine
	stmt   *ast.AlterTable
	moves  []renaming // to another database, after all else
}

var _ sql.ExecSourceRel = (*alterClauses)(nil)

// WithResolvedChildren implements ast.Injectable.
func (a *alterClauses) WithResolvedChildren(context.Context, []any) (any, error) { return a, nil }

func (a *alterClauses) IsReadOnly() bool                                         { return false }
func (a *alterClauses) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error) { return a, nil }

// clausesOf gives the statement of ours for an ALTER TABLE of several clauses, nil for all others. Each clause is authorised when it is bound.
func (p *parser) clausesOf(stmt ast.Statement) ast.Statement {
	n, ok := stmt.(*ast.AlterTable)
	if !ok || len(n.PartitionSpecs) > 0 || len(n.Statements) == 0 {
		return nil
	}
	if len(n.Statements) == 1 && !twofold(n.Statements[0]) && !releases(n.Statements[0]) {
		return nil // the front end does that
	}
	a := &alterClauses{statementNode: "ALTER TABLE", engine: p.engine, stmt: n}
	return ast.InjectedStatement{Statement: a, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}
}

// releases tells whether a clause takes away a column, or its name.
func releases(d *ast.DDL) bool {
	switch strings.ToLower(d.ColumnAction) {
	case ast.DropStr, ast.RenameStr:
		return true
	case ast.ChangeStr:
		return d.Column.Lowered() != d.TableSpec.Columns[0].Name.Lowered()
	}
	return false
}

// twofold tells whether a clause adds a column and a constraint of it.
func twofold(d *ast.DDL) bool { return d.ColumnAction != "" && d.ConstraintAction != "" }

// RowIter implements sql.ExecSourceRel.
func (a *alterClauses) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	t, err := a.engine.tableOf(ctx, a.stmt.Table.DbQualifier.String(), a.stmt.Table.Name.String())
	if err != nil {
		return nil, err
	}
	if t == nil {
		// No table of ours: the front end says what it thinks of that.
		return okRows(0), a.run(ctx, a.stmt)
	}
	o := newClauseOrder(a.stmt, t.def.table)
	if err := o.check(t); err != nil {
		return nil, err
	}
	err = sessionOf(ctx).changing(ctx, func(c *change) error {
		c.rekeys = o.rekeys
		for _, group := range o.list() {
			if err := a.run(ctx, group); err != nil {
				return err
			}
		}
		r := renameTables{engine: a.engine}
		for _, n := range a.moves {
			if err := r.one(ctx, c, n); err != nil {
				return err
			}
		}
		return c.checkColumns()
	})
	if err != nil {
		return nil, err
	}
	return okRows(0), nil
}

// run binds clauses to the table as it is by now, and carries them out.
func (a *alterClauses) run(ctx *sql.Context, stmt *ast.AlterTable) error {
	for _, d := range stmt.Statements {
		if !releases(d) {
			continue
		}
		t, err := a.engine.tableOf(ctx, stmt.Table.DbQualifier.String(), stmt.Table.Name.String())
		if err == nil && t != nil && t.def.table.columnNumber(d.Column.String()) >= 0 {
			err = t.def.table.clone().release(d.Column.String(), !strings.EqualFold(d.ColumnAction, ast.DropStr))
		}
		if err != nil {
			return err
		}
	}
	e := a.engine.sql
	b := planbuilder.New(ctx, e.Analyzer.Catalog, e.EventScheduler)
	node, flags, err := b.BindOnly(stmt, "", nil)
	if err == nil {
		node, err = e.Analyzer.Analyze(ctx, node, nil, flags)
	}
	if err != nil {
		return err
	}
	iter, err := e.Analyzer.ExecBuilder.Build(ctx, node, nil)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = iter.Next(ctx)
	}
	if err == io.EOF {
		err = nil
	}
	if cerr := iter.Close(ctx); err == nil {
		err = cerr
	}
	return err
}

// clauseOrder sorts the clauses of an ALTER TABLE.
type clauseOrder struct {
	table   ast.TableName
	def     *tableDefinition
	ranked  map[int][]*ast.DDL
	rekeys  bool              // a key is added
	changed map[string]string // new names of columns by their old ones, in lower case
	moved   map[*ast.DDL]bool // clauses about columns under their new names
}

// The ranks of clauses.
const (
	rankDropConstraint = iota
	rankDropKey
	rankPlain // generated columns that become plain ones, so that what they were made of is free
	rankDropColumn
	rankDefault // and the names of indexes: by old names
	rankAside   // columns whose new name another column still has
	rankChange  // columns that stay where they are
	rankColumn  // new and moved columns, as the statement has them
	rankKey
	rankConstraint
	rankOption
	rankName
	ranks
)

func newClauseOrder(stmt *ast.AlterTable, def *tableDefinition) *clauseOrder {
	o := &clauseOrder{table: stmt.Table, def: def, ranked: map[int][]*ast.DDL{}, changed: map[string]string{}, moved: map[*ast.DDL]bool{}}
	var dropPK, dropIndexes []*ast.DDL
	addsPK, inlinePK, added := false, false, map[string]bool{}
	for _, d := range stmt.Statements {
		if twofold(d) {
			col, con := *d, *d
			spec := *d.TableSpec
			spec.Constraints = nil
			col.TableSpec, col.ConstraintAction = &spec, ""
			con.ColumnAction, con.Column, con.ColumnOrder = "", ast.ColIdent{}, nil
			con.TableSpec = &ast.TableSpec{Constraints: d.TableSpec.Constraints}
			o.column(&col)
			for _, one := range con.TableSpec.Constraints {
				c := con
				c.TableSpec = &ast.TableSpec{Constraints: []*ast.ConstraintDefinition{one}}
				o.add(rankConstraint, &c)
			}
			continue
		}
		switch {
		case d.Action == ast.RenameStr && len(d.FromTables) > 0:
			o.add(rankName, d)
		case d.ColumnAction != "":
			if k := keyOf(d); k != keyNone {
				o.rekeys = true
				inlinePK = inlinePK || k == keyPrimary
			}
			o.column(d)
		case d.ConstraintAction == ast.DropStr:
			o.add(rankDropConstraint, d)
		case d.ConstraintAction != "":
			o.add(rankConstraint, d)
		case d.IndexSpec != nil && strings.EqualFold(d.IndexSpec.Action, ast.DropStr):
			if d.IndexSpec.Type == ast.PrimaryStr || strings.EqualFold(d.IndexSpec.ToName.String(), primaryIndex) {
				dropPK = append(dropPK, d)
			} else {
				dropIndexes = append(dropIndexes, d)
			}
		case d.IndexSpec != nil && strings.EqualFold(d.IndexSpec.Action, ast.CreateStr):
			o.rekeys = true
			addsPK = addsPK || d.IndexSpec.Type == ast.PrimaryStr
			added[d.IndexSpec.ToName.Lowered()] = true
			o.add(rankKey, d)
		case d.IndexSpec != nil, d.DefaultSpec != nil:
			o.add(rankDefault, d)
		default:
			o.add(rankOption, d)
		}
	}
	// A key that another one takes the place of is dropped after that, or just before: AUTO_INCREMENT and foreign keys want one all the time.
	inKey := func(d *ast.DDL) bool {
		return slices.ContainsFunc(def.PrimaryKey, func(p keyPart) bool { return strings.EqualFold(p.Column, d.Column.String()) })
	}
	if addsPK && !inlinePK && !slices.ContainsFunc(o.ranked[rankDropColumn], inKey) {
		o.ranked[rankKey] = append(dropPK, o.ranked[rankKey]...)
	} else {
		o.ranked[rankDropKey] = append(o.ranked[rankDropKey], dropPK...)
	}
	late := len(added) > 0 && len(o.ranked[rankDropColumn]) == 0 && len(o.ranked[rankDefault]) == 0 &&
		!slices.ContainsFunc(dropIndexes, func(d *ast.DDL) bool { return added[d.IndexSpec.ToName.Lowered()] || added[""] })
	if late {
		o.ranked[rankKey] = append(o.ranked[rankKey], dropIndexes...)
	} else {
		o.ranked[rankDropKey] = append(o.ranked[rankDropKey], dropIndexes...)
	}
	return o
}

func (o *clauseOrder) add(rank int, d *ast.DDL) { o.ranked[rank] = append(o.ranked[rank], d) }

// How a column definition declares a key; the grammar does not export its numbers.
const (
	keyNone    = 0
	keyPrimary = 1
)

// keyOf tells what key a clause declares with its column.
func keyOf(d *ast.DDL) int {
	if d.TableSpec == nil || len(d.TableSpec.Columns) == 0 {
		return keyNone
	}
	return int(d.TableSpec.Columns[0].Type.KeyOpt)
}

// clausesMended is the id of a rule; see noImplicitCommit.
const clausesMended = noImplicitCommit + 2

// mendDropCheck is an analyzer rule that lets constraints be dropped of tables with VIRTUAL columns: the front end does not find them
// behind what it wraps such tables in.
func mendDropCheck(ctx *sql.Context, _ *analyzer.Analyzer, n sql.Node, _ *plan.Scope, _ analyzer.RuleSelector, _ *sql.QueryFlags) (sql.Node, transform.TreeIdentity, error) {
	bare := func(n sql.Node) (*plan.ResolvedTable, bool, error) {
		rt, ok := n.(*plan.ResolvedTable)
		if !ok {
			return nil, false, nil
		}
		v, ok := rt.Table.(*plan.VirtualColumnTable)
		if !ok {
			return nil, false, nil
		}
		out, err := rt.ReplaceTable(ctx, v.Underlying())
		if err != nil {
			return nil, false, err
		}
		table, ok := out.(*plan.ResolvedTable)
		return table, ok, nil
	}
	switch n := n.(type) {
	case *plan.DropCheck:
		if rt, ok, err := bare(n.Table); ok || err != nil {
			c := *n
			c.Table = rt
			return &c, transform.NewTree, err
		}
	case *plan.DropConstraint:
		if rt, ok, err := bare(n.Child); ok || err != nil {
			c := *n
			c.Child = rt
			return &c, transform.NewTree, err
		}
	}
	return n, transform.SameTree, nil
}

func (o *clauseOrder) has(column string) bool { return o.def.columnNumber(column) >= 0 }

// column takes in a clause about a column.
func (o *clauseOrder) column(d *ast.DDL) {
	switch strings.ToLower(d.ColumnAction) {
	case ast.DropStr:
		o.add(rankDropColumn, d)
	case ast.RenameStr:
		o.changed[d.Column.Lowered()] = d.ToColumn.String()
		o.add(rankChange, d)
	case ast.ChangeStr, ast.ModifyStr:
		to := d.TableSpec.Columns[0].Name
		if strings.EqualFold(d.ColumnAction, ast.ModifyStr) || d.Column.Lowered() == to.Lowered() {
			switch n := o.def.columnNumber(to.String()); {
			case d.ColumnOrder != nil || autoIncrements(d):
				o.add(rankColumn, d)
			case n >= 0 && o.def.Columns[n].Generated != nil && d.TableSpec.Columns[0].Type.GeneratedExpr == nil:
				o.add(rankPlain, d)
			default:
				o.add(rankChange, d)
			}
			return
		}
		o.changed[d.Column.Lowered()] = to.String()
		if d.ColumnOrder == nil && !autoIncrements(d) {
			o.add(rankChange, d)
			return
		}
		// The name first, since other columns may be placed after it, or take the old one.
		o.add(rankChange, o.renaming(d, d.Column, to))
		moved := *d
		moved.Column = to
		o.moved[&moved] = true
		o.add(rankColumn, &moved)
	default:
		o.add(rankColumn, d)
	}
}

// renaming gives RENAME COLUMN with the rights that another clause needs.
func (o *clauseOrder) renaming(d *ast.DDL, from, to ast.ColIdent) *ast.DDL {
	return &ast.DDL{Action: ast.AlterStr, ColumnAction: ast.RenameStr, Table: d.Table, Column: from, ToColumn: to, Auth: d.Auth}
}

func autoIncrements(d *ast.DDL) bool {
	return d.TableSpec != nil && len(d.TableSpec.Columns) > 0 && bool(d.TableSpec.Columns[0].Type.Autoincrement)
}

// check refuses clauses that name one column twice, or one that the statement makes where MySQL looks for an old one.
func (o *clauseOrder) check(t *table) error {
	seen := map[string]bool{}
	adds := func(d *ast.DDL) bool { return strings.EqualFold(d.ColumnAction, ast.AddStr) }
	for _, rank := range []int{rankPlain, rankDropColumn, rankChange, rankColumn} {
		for _, d := range o.ranked[rank] {
			if adds(d) {
				continue
			}
			name := d.Column.Lowered()
			if o.moved[d] {
				continue // renamed before
			}
			if !o.has(name) || seen[name] {
				if rank == rankDropColumn && !t.db.engine.plainText {
					return sql.ErrCantDropFieldOrKey.New(d.Column.String())
				}
				return sql.ErrTableColumnNotFound.New(t.Name(), d.Column.String())
			}
			seen[name] = true
		}
	}
	if len(o.ranked[rankDropColumn]) == len(o.def.Columns) && !slices.ContainsFunc(o.ranked[rankColumn], adds) {
		return mysql.NewSQLError(mysql.ERCantRemoveAllFields, "42000", "You can't delete all columns with ALTER TABLE; use DROP TABLE instead")
	}
	for _, d := range o.ranked[rankDefault] {
		if d.DefaultSpec != nil && seen[d.DefaultSpec.Column.Lowered()] {
			return sql.ErrTableColumnNotFound.New(t.Name(), d.DefaultSpec.Column.String())
		}
	}
	return nil
}

// list gives the clauses in order, as statements of their own. Clauses that are legal only together are one.
func (o *clauseOrder) list() []*ast.AlterTable {
	o.dependents()
	o.aside()
	keys := o.ranked[rankKey]
	var out []*ast.AlterTable
	one := func(list ...*ast.DDL) {
		out = append(out, &ast.AlterTable{Table: o.table, Statements: list, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}})
	}
	for rank := range ranks {
		if rank == rankKey {
			for _, d := range keys {
				one(d)
			}
			continue
		}
		for _, d := range o.ranked[rank] {
			if rank == rankColumn && autoIncrements(d) && keyOf(d) == keyNone {
				// The key that AUTO_INCREMENT asks for, and the one in whose place it comes.
				col := d.TableSpec.Columns[0].Name.Lowered()
				if n := slices.IndexFunc(keys, func(k *ast.DDL) bool {
					return k.IndexSpec.Action == ast.CreateStr && len(k.IndexSpec.Fields) > 0 && k.IndexSpec.Fields[0].Column.Lowered() == col
				}); n >= 0 {
					group := keys[n : n+1]
					if keys[n].IndexSpec.Type == ast.PrimaryStr {
						group = slices.DeleteFunc(slices.Clone(keys[:n+1]), func(k *ast.DDL) bool {
							return k != keys[n] && !(k.IndexSpec.Action == ast.DropStr && k.IndexSpec.Type == ast.PrimaryStr)
						})
					}
					rest := slices.DeleteFunc(slices.Clone(keys), func(k *ast.DDL) bool { return slices.Contains(group, k) })
					keys = rest
					if strings.EqualFold(d.ColumnAction, ast.AddStr) {
						for _, k := range group[:len(group)-1] {
							one(k)
						}
						one(d, group[len(group)-1])
					} else {
						for _, k := range group {
							one(k)
						}
						one(d)
					}
					continue
				}
			}
			one(d)
		}
	}
	return out
}

// dependents has generated columns dropped before the columns that they are made of.
func (o *clauseOrder) dependents() {
	generated := func(d *ast.DDL) bool {
		n := o.def.columnNumber(d.Column.String())
		return n >= 0 && o.def.Columns[n].Generated != nil
	}
	slices.SortStableFunc(o.ranked[rankDropColumn], func(a, b *ast.DDL) int {
		switch x, y := generated(a), generated(b); {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	})
}

// aside gives columns whose new names others still have a name that nobody has, so that names can change places.
func (o *clauseOrder) aside() {
	taken := map[string]bool{}
	for _, d := range o.ranked[rankChange] {
		if to, ok := o.changed[d.Column.Lowered()]; ok {
			if _, moves := o.changed[strings.ToLower(to)]; moves && !strings.EqualFold(to, d.Column.String()) {
				taken[strings.ToLower(to)] = true
			}
		}
	}
	for i, d := range o.ranked[rankChange] {
		if !taken[d.Column.Lowered()] {
			continue
		}
		tmp := ast.NewColIdent(fmt.Sprintf("%s\x00%d", asideName, i))
		o.add(rankAside, o.renaming(d, d.Column, tmp))
		moved := *d
		moved.Column = tmp
		o.ranked[rankChange][i] = &moved
	}
}

// asideName begins names that no table should have.
const asideName = "__lakesql_aside_"

// checkColumns refuses what the clauses together come to where each alone was legal on its way.
func (c *change) checkColumns() error {
	for _, p := range c.tables {
		if p.def == nil || p.drop {
			continue
		}
		def := p.def.table
		for _, col := range def.Columns {
			if !col.AutoIncrement {
				continue
			}
			first := func(parts []keyPart) bool { return len(parts) > 0 && strings.EqualFold(parts[0].Column, col.Name) }
			if !first(def.PrimaryKey) && !slices.ContainsFunc(def.Indexes, func(x indexDefinition) bool { return first(x.Columns) }) {
				return sql.ErrInvalidAutoIncCols.New()
			}
		}
	}
	return nil
}

// release makes a column free to be dropped or renamed: what else is made of it must not be there, and a CHECK over it alone goes with it.
func (def *tableDefinition) release(column string, renamed bool) error {
	for _, c := range def.Columns {
		if c.Generated != nil && !strings.EqualFold(c.Name, column) && mentions(c.Generated.Text)[strings.ToLower(column)] {
			return mysql.NewSQLError(erGeneratedDependency, stateGeneral, "Column '%s' has a generated column dependency.", column)
		}
	}
	for _, c := range def.Checks {
		if names := mentions(c.Expression); names[strings.ToLower(column)] && (renamed || len(names) > 1) {
			return sql.ErrCheckConstraintInvalidatedByColumnAlter.New(column, c.Name)
		}
	}
	def.Checks = slices.DeleteFunc(def.Checks, func(c checkDefinition) bool { return mentions(c.Expression)[strings.ToLower(column)] })
	return nil
}

const erGeneratedDependency = 3108

// mentions gives the columns that an expression names, in lower case.
func mentions(text string) map[string]bool {
	names := map[string]bool{}
	stmt, err := ast.Parse("SELECT " + text)
	if err != nil {
		return names
	}
	_ = ast.Walk(func(n ast.SQLNode) (bool, error) { // the visitor returns no error
		if c, ok := n.(*ast.ColName); ok {
			names[c.Name.Lowered()] = true
		}
		return true, nil
	}, stmt)
	return names
}
