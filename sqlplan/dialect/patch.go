package dialect

import (
	"context"
	"slices"
	"strings"

	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// patch changes the tree of a statement that the grammar accepted, where the engine would drop or
// bend what it says.
func (p *Parser) patch(ctx context.Context, s *scanned, stmt ast.Statement, options ast.ParserOptions) (ast.Statement, error) {
	if s.asOf {
		bindTimes(stmt)
	}
	if s.locking {
		patchLocks(stmt)
	}
	if s.body && s.attribute {
		return nil, errUnsupported("ENGINE_ATTRIBUTE inside a stored program") // it would be dropped without a word
	}
	if d, ok := stmt.(*ast.DDL); !ok || d.TriggerSpec != nil { // procedures know their variables themselves
		EachStatement(stmt, func(stmt ast.Statement) {
			if n, ok := stmt.(*ast.Set); ok {
				patchVariables(n)
			}
		})
	}
	switch n := stmt.(type) {
	case *ast.DDL:
		return n, patchCreate(n)
	case *ast.AlterTable:
		return n, p.patchAlter(s, n, options)
	case *ast.Set:
		patchModes(n)
		patchIsolation(s, n)
	case *ast.Commit, *ast.Rollback:
		return patchEnd(s, stmt)
	case *ast.Begin:
		if s.consistent {
			n.TransactionCharacteristic = consistentSnapshot(n.TransactionCharacteristic)
		}
	case *ast.Insert:
		if s.onDuplicate {
			p.patchUpsert(ctx, n)
		}
	case *ast.Explain:
		if ins, ok := n.Statement.(*ast.Insert); ok && s.onDuplicate {
			p.patchUpsert(ctx, ins)
		}
	case *ast.Show:
		return patchShow(s, n), nil
	}
	return stmt, nil
}

// bindTimes wraps the times of AS OF: a parameter has no value while a statement is prepared, and
// the engine takes few forms of expressions.
func bindTimes(stmt ast.Statement) {
	switch n := stmt.(type) {
	case *ast.Explain:
		stmt = n.Statement
	case *ast.DDL:
		if n.OptSelect != nil {
			stmt = n.OptSelect.Select
		}
	}
	walkAll(stmt, func(n ast.SQLNode) bool {
		switch n := n.(type) {
		case *ast.AliasedTableExpr:
			if n == nil {
				return false
			}
			if n.AsOf != nil && n.AsOf.Time != nil {
				n.AsOf.Time = bindTime(n.AsOf.Time)
			}
		case *ast.AsOf:
			return false
		}
		return true
	})
}

func bindTime(e ast.Expr) ast.Expr {
	switch v := e.(type) {
	case *ast.SQLVal:
		if v.Type != ast.ValArg {
			return e
		}
	case *ast.ColName:
		if !strings.HasPrefix(v.Name.String(), "@") {
			return e // a name, or a variable of a stored program
		}
	case ast.InjectedExpr:
		return e
	}
	return ast.InjectedExpr{Expression: asOfExpr{}, Children: ast.Exprs{e}, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}
}

// optionName compares an option's name as the grammar gives it.
func optionName(o *ast.TableOption, name string) bool { return strings.EqualFold(o.Name, name) }

// patchCreate puts what CREATE TABLE says about its table where the engine hands it on.
func patchCreate(d *ast.DDL) error {
	if d.Action != ast.CreateStr || d.ViewSpec != nil || d.TriggerSpec != nil || d.ProcedureSpec != nil || d.EventSpec != nil {
		return nil
	}
	if d.OptLike != nil {
		if d.Temporary || hasCarrier(d.TableSpec) || len(d.OptLike.LikeTables) != 1 {
			return nil
		}
		return carry(d, Carrier{})
	}
	if d.TableSpec == nil {
		return nil
	}
	if d.TableSpec.PartitionOpt != nil {
		return errPartitionBy()
	}
	if hasCarrier(d.TableSpec) {
		return nil
	}
	var c Carrier
	given := false
	for _, o := range d.TableSpec.TableOpts {
		if optionName(o, "ENGINE_ATTRIBUTE") {
			opts, err := ParseOptions(o.Value)
			if err != nil {
				return err
			}
			c.Options, given = opts, true
		}
	}
	if !given && d.OptSelect == nil {
		return nil
	}
	return carry(d, c)
}

func hasCarrier(t *ast.TableSpec) bool {
	return t != nil && slices.ContainsFunc(t.Columns, func(c *ast.ColumnDefinition) bool { return c.Name.String() == carrierName })
}

// carried is carry for a statement that was just parsed.
func carried(stmt ast.Statement, err error, c Carrier) (ast.Statement, error) {
	d, ok := stmt.(*ast.DDL)
	if err != nil || !ok {
		return nil, err
	}
	return d, carry(d, c)
}

// carry adds to CREATE TABLE the column that holds c, together with the comment and the source of
// LIKE, and makes the options' key its PRIMARY KEY.
func carry(d *ast.DDL, c Carrier) error {
	if d.TableSpec == nil {
		d.TableSpec = &ast.TableSpec{}
	}
	t := d.TableSpec
	if d.OptLike != nil {
		if d.Temporary {
			return errUnsupported("CREATE TEMPORARY TABLE LIKE with table options")
		}
		src := d.OptLike.LikeTables[0]
		c.LikeDatabase, c.LikeTable = src.DbQualifier.String(), src.Name.String()
	}
	for _, o := range t.TableOpts {
		if optionName(o, "COMMENT") {
			c.Comment, c.HasComment = o.Value, true
		}
	}
	if c.empty() && !(c.HasComment && d.OptSelect != nil) {
		return nil
	}
	if err := checkOptions(d, &c); err != nil {
		return err
	}
	t.Columns = append(t.Columns, carrierColumn(c))
	return nil
}

// checkOptions compares the options with the columns and the key of the statement.
func checkOptions(d *ast.DDL, c *Carrier) error {
	t := d.TableSpec
	primary := primaryOf(t)
	switch {
	case c.Options.Key == nil:
	case primary == nil:
		idx := &ast.IndexDefinition{Info: &ast.IndexInfo{Type: "primary key", Name: ast.NewColIdent("PRIMARY"), Primary: true}}
		for _, k := range c.Options.Key {
			idx.Fields = append(idx.Fields, &ast.IndexField{Column: ast.NewColIdent(k)})
		}
		if !c.Attach && d.OptLike == nil {
			t.Indexes = append(t.Indexes, idx)
		}
	case !sameNames(primary, c.Options.Key):
		return errKey(c.Options.Key, primary)
	}
	if d.OptSelect != nil || d.OptLike != nil || c.Attach {
		return nil // the columns are not all here
	}
	for _, k := range slices.Concat(c.Options.Key, c.Options.Partition, c.Options.Ordering) {
		if !slices.ContainsFunc(t.Columns, func(col *ast.ColumnDefinition) bool { return strings.EqualFold(col.Name.String(), k) }) {
			return errKeyColumn(k)
		}
	}
	return nil
}

func errKeyColumn(column string) error {
	return mysql.NewSQLError(mysql.ERKeyColumnDoesNotExist, "42000", "Key column '%s' doesn't exist in table", column)
}

// primaryOf gives the columns of a definition's PRIMARY KEY, nil without one.
func primaryOf(t *ast.TableSpec) []string {
	for _, x := range t.Indexes {
		if x.Info != nil && x.Info.Primary {
			var cols []string
			for _, f := range x.Fields {
				cols = append(cols, f.Column.String())
			}
			return cols
		}
	}
	for _, c := range t.Columns {
		if c.Type.KeyOpt == keyPrimary {
			return []string{c.Name.String()}
		}
	}
	return nil
}

// keyPrimary is the grammar's mark of an inline PRIMARY KEY, taken from the grammar itself because
// it does not export it.
var keyPrimary = func() ast.ColumnKeyOption {
	stmt, err := ast.Parse("create table t (c int primary key)")
	if err != nil {
		panic(err) // the text is fixed
	}
	return stmt.(*ast.DDL).TableSpec.Columns[0].Type.KeyOpt
}()

// patchAlter refuses MySQL's partitions and carries the options, which the grammar reads and drops.
func (p *Parser) patchAlter(s *scanned, n *ast.AlterTable, options ast.ParserOptions) error {
	if len(n.PartitionSpecs) > 0 {
		return errPartitionBy()
	}
	ts := tokens(s.statement(), s.ansi)
	m := mender{p: p, text: s.statement(), ts: ts, ansi: s.ansi, options: options}
	depth := 0
	for i := range ts {
		switch {
		case m.is(i, "("):
			depth++
		case m.is(i, ")"):
			depth--
		case depth > 0:
		case m.is(i, "PARTITION") && m.is(i+1, "BY") && i > 2:
			return errPartitionBy()
		case m.is(i, "ENGINE_ATTRIBUTE") && i > 2:
			j := i + 1
			if m.is(j, "=") {
				j++
			}
			// A column's own attribute follows its type, a table's stands first in its clause.
			if m.kind(j) != String || !m.clauseStart(i) {
				continue
			}
			o, err := ParseOptions(unquote(ts[j].Text(m.text)))
			if err != nil {
				return err
			}
			n.Statements = append(n.Statements, &ast.DDL{
				Action: ast.AlterStr, Table: n.Table,
				AlterCommentSpec: &ast.AlterCommentSpec{Comment: Carrier{Options: o}.encode()},
				Auth: ast.AuthInformation{
					AuthType: ast.AuthType_ALTER, TargetType: ast.AuthTargetType_SingleTableIdentifier,
					TargetNames: []string{n.Table.DbQualifier.String(), n.Table.Name.String()},
				},
			})
		}
	}
	return nil
}

var columnClause = words("ADD MODIFY CHANGE ALTER")

// clauseStart says whether the clause that token i belongs to is not about a column.
func (m *mender) clauseStart(i int) bool {
	depth := 0
	for i--; i > 2; i-- {
		switch {
		case m.is(i, ")"):
			depth++
		case m.is(i, "("):
			depth--
		case depth == 0 && m.is(i, ","):
			return true
		case depth == 0 && has(columnClause, m.ts[i], m.text):
			return false
		}
	}
	return true
}

// oldModes are SQL modes of older servers in the files of mysqldump and mariadb-dump. They say
// nothing that this server could do, so they are left out, as MySQL did for years.
var oldModes = words(`NO_FIELD_OPTIONS NO_KEY_OPTIONS NO_TABLE_OPTIONS NO_AUTO_CREATE_USER DB2 MAXDB MSSQL MYSQL323 MYSQL40
	ORACLE POSTGRESQL IGNORE_BAD_TABLE_OPTIONS EMPTY_STRING_IS_NULL SIMULTANEOUS_ASSIGNMENT TIME_ROUND_FRACTIONAL`)

func patchModes(n *ast.Set) {
	for _, e := range n.Exprs {
		if e.Name == nil || !strings.HasSuffix(strings.ToLower(e.Name.Name.String()), "sql_mode") || strings.HasPrefix(e.Name.Name.String(), "@") && !strings.HasPrefix(e.Name.Name.String(), "@@") {
			continue
		}
		v, ok := e.Expr.(*ast.SQLVal)
		if !ok || v.Type != ast.StrVal {
			continue
		}
		modes := strings.Split(string(v.Val), ",")
		kept := slices.DeleteFunc(slices.Clone(modes), func(mode string) bool { return oldModes[strings.ToUpper(strings.TrimSpace(mode))] })
		if len(kept) < len(modes) {
			e.Expr = ast.NewStrVal([]byte(strings.Join(kept, ",")))
		}
	}
}

// insertAlias is the name under which the engine looks for VALUES(column).
const insertAlias = "__new_ins"

// patchUpsert makes VALUES(c) of INSERT … SELECT … ON DUPLICATE KEY UPDATE findable: the engine
// looks for c among the names of the query, MySQL among the columns of the table. The query becomes
// a derived table with the table's columns.
func (p *Parser) patchUpsert(ctx context.Context, n *ast.Insert) {
	sel, ok := n.Rows.(ast.SelectStatement)
	if !ok || len(n.OnDup) == 0 {
		return
	}
	uses, foreign := false, false
	target := strings.ToLower(n.Table.Name.String())
	_ = ast.Walk(func(x ast.SQLNode) (bool, error) { // the visitor returns no error
		switch x := x.(type) {
		case *ast.ValuesFuncExpr:
			uses = true
			return false, nil
		case *ast.ColName:
			if q := strings.ToLower(x.Qualifier.Name.String()); q != "" && q != target {
				foreign = true // a column of the query's own tables: they must stay in sight
			}
		}
		return true, nil
	}, n.OnDup)
	if !uses || foreign {
		return
	}
	columns := n.Columns
	if len(columns) == 0 {
		if p.TableColumns == nil {
			return
		}
		names, ok := p.TableColumns(ctx, n.Table.DbQualifier.String(), n.Table.Name.String())
		if !ok {
			return
		}
		for _, c := range names {
			columns = append(columns, ast.NewColIdent(c))
		}
	}
	n.Rows = &ast.Select{
		SelectExprs: ast.SelectExprs{&ast.StarExpr{}},
		From: ast.TableExprs{&ast.AliasedTableExpr{
			Expr: &ast.Subquery{Select: sel, Columns: columns},
			As:   ast.NewTableIdent(insertAlias),
			Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE},
		}},
	}
}

// patchShow answers the statements that the grammar knows and the engine does not.
func patchShow(s *scanned, n *ast.Show) ast.Statement {
	m := mender{text: s.statement(), ts: tokens(s.statement(), s.ansi), ansi: s.ansi}
	var own ast.Statement
	switch {
	case m.is(1, "COUNT"):
		own = m.showCount()
	case m.is(1, "ERRORS"):
		own = showErrors()
	case m.is(1, "REPLICAS"):
		own = m.showEmpty()
	}
	if own != nil {
		return own
	}
	return n
}
