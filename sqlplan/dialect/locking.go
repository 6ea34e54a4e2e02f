package dialect

import (
	"slices"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
)

// RowLock is what the locking clause of a query block asks for of one of its tables. The engine reads such clauses and drops
// them; so each table that a clause names has it in its AuthInformation.Extra, which the engine hands to the authorization
// handler right before it looks the table up.
type RowLock struct {
	Table string // as the statement names it, without its database
	Mode  catalog.LockMode
	Wait  catalog.LockWait
}

// clauseMark begins a table's name in a clause FOR UPDATE OF that stands for several clauses, or for one that the grammar
// does not know: the name says which kind of clause the names up to the next mark belong to. No client writes it by accident.
const clauseMark = "\x01"

// lockClause is one locking clause.
type lockClause struct {
	mode   catalog.LockMode
	wait   catalog.LockWait
	tables []string // in lower case; empty: all tables of the block
}

func (c lockClause) encode() string {
	return clauseMark + string(rune('0'+c.mode)) + string(rune('0'+c.wait))
}

func (c lockClause) String() string {
	text := " for update"
	if c.mode == catalog.LockShared {
		text = " for share"
	}
	if len(c.tables) > 0 {
		text += " of " + strings.Join(c.tables, ", ")
	}
	return text + [...]string{"", " nowait", " skip locked"}[c.wait]
}

// clauses gives the clauses of a query block. Marks are replaced by what they stand for: the engine looks for the tables that
// are named. So a tree that was patched before gives none where there were marks.
func clauses(l *ast.Lock) []lockClause {
	if l == nil || l.Type == "" {
		return nil
	}
	text := strings.ToLower(l.Type)
	if strings.HasPrefix(text, " for share") || strings.LastIndex(text, " for ") > 0 {
		return nil
	}
	if len(l.Tables) > 0 && strings.HasPrefix(l.Tables[0].Name.String(), clauseMark) {
		var out []lockClause
		names := make(ast.TableNames, 0, len(l.Tables))
		for _, t := range l.Tables {
			if rest, ok := strings.CutPrefix(t.Name.String(), clauseMark); ok && len(rest) == 2 {
				out = append(out, lockClause{mode: catalog.LockMode(rest[0] - '0'), wait: catalog.LockWait(rest[1] - '0')})
				continue
			}
			names = append(names, t)
			c := &out[len(out)-1]
			c.tables = append(c.tables, strings.ToLower(t.Name.String()))
		}
		l.Tables, l.Type = names, ""
		for _, c := range out {
			l.Type += c.String()
		}
		return out
	}
	c := lockClause{mode: catalog.LockExclusive}
	switch {
	case text == ast.ShareModeStr:
		c.mode = catalog.LockShared
	case strings.HasSuffix(text, " skip locked"):
		c.wait = catalog.LockSkip
	case strings.HasSuffix(text, " nowait"):
		c.wait = catalog.LockNoWait
	}
	for _, t := range l.Tables {
		c.tables = append(c.tables, strings.ToLower(t.Name.String()))
	}
	return []lockClause{c}
}

// patchLocks gives the tables of a statement their locks.
func patchLocks(stmt ast.Statement) {
	EachStatement(stmt, func(stmt ast.Statement) {
		if d, ok := stmt.(*ast.DDL); ok {
			if d.OptSelect == nil { // a view locks what the statement that reads it asks for
				return
			}
			stmt = d.OptSelect.Select
		}
		lockBlocks(stmt)
	})
}

// lockBlocks gives the tables of all query blocks in a tree their locks.
func lockBlocks(n ast.SQLNode) {
	walkAll(n, func(n ast.SQLNode) bool {
		switch n := n.(type) {
		case *ast.Select:
			lockTables(n.From, clauses(n.Lock))
		case *ast.SetOp:
			LockQuery(n, nil)
		}
		return true
	})
}

// walkAll calls f for a tree's nodes, the common table expressions among them, which not every statement shows to a walk. f
// tells whether to go on below a node.
func walkAll(n ast.SQLNode, f func(ast.SQLNode) bool) {
	var visit ast.Visit
	visit = func(n ast.SQLNode) (bool, error) { // returns no error
		var with *ast.With
		switch n := n.(type) {
		case *ast.Select:
			with = n.With
		case *ast.SetOp:
			with = n.With
		case *ast.Update:
			with = n.With
		case *ast.Delete:
			with = n.With
		case *ast.Insert:
			with = n.With
		}
		if with != nil {
			_ = ast.Walk(visit, with)
		}
		return f(n), nil
	}
	_ = ast.Walk(visit, n)
}

// LockQuery gives the tables of a query's own blocks a lock; nil: the one that the query names itself. The engine binds a
// view by its text, so a view's tables get the lock of the reference to the view this way.
func LockQuery(q ast.SelectStatement, l *RowLock) {
	var list []lockClause
	if l != nil {
		list = []lockClause{{mode: l.Mode, wait: l.Wait}}
	}
	lockArms(q, list)
}

func lockArms(q ast.SelectStatement, list []lockClause) {
	switch n := q.(type) {
	case *ast.Select:
		lockTables(n.From, list)
	case *ast.ParenSelect:
		lockArms(n.Select, list)
	case *ast.SetOp:
		if list == nil {
			list = clauses(n.Lock)
		}
		if list != nil {
			lockArms(n.Left, list)
			lockArms(n.Right, list)
		}
	}
}

// lockTables gives the tables of a block's FROM their locks. Those of derived tables are blocks of their own.
func lockTables(from ast.TableExprs, list []lockClause) {
	if len(list) == 0 {
		return
	}
	for _, t := range from {
		switch t := t.(type) {
		case *ast.AliasedTableExpr:
			lockTable(t, list)
		case *ast.JoinTableExpr:
			lockTables(ast.TableExprs{t.LeftExpr, t.RightExpr}, list)
		case *ast.ParenTableExpr:
			lockTables(t.Exprs, list)
		}
	}
}

func lockTable(t *ast.AliasedTableExpr, list []lockClause) {
	name, ok := t.Expr.(ast.TableName)
	if !ok || t.AsOf != nil { // the past does not change
		return
	}
	as := strings.ToLower(t.As.String())
	if as == "" {
		as = strings.ToLower(name.Name.String())
	}
	for _, c := range list {
		if len(c.tables) == 0 || slices.Contains(c.tables, as) {
			t.Auth.Extra = &RowLock{Table: name.Name.String(), Mode: c.mode, Wait: c.wait}
			return
		}
	}
}

// shareMode writes FOR SHARE in the body of a stored program in its older form, which the grammar knows and which the program's
// text keeps. It gives by how much the text grew; 0 if there is nothing to write so, or a clause that has no older form.
func (s *scanned) shareMode() (grown int) {
	m := mender{text: s.text, ts: tokens(s.text, s.ansi), ansi: s.ansi}
	var b strings.Builder
	done := 0
	for i := range m.ts {
		if !m.is(i, "FOR") || !m.is(i+1, "SHARE") {
			continue
		}
		if m.is(i+2, "OF") || m.is(i+2, "NOWAIT") || m.is(i+2, "SKIP") {
			return 0
		}
		b.WriteString(m.text[done:m.ts[i].Pos] + "LOCK IN SHARE MODE")
		done = m.ts[i+1].End
	}
	if done == 0 {
		return 0
	}
	b.WriteString(m.text[done:])
	grown = b.Len() - len(s.text)
	s.text = b.String()
	s.end, s.next = len(s.text), len(s.text) // a body ends with its text
	return grown
}

// lockingClauses writes the locking clauses of a statement in the form that the grammar knows; ok is false if there is none
// that it does not know.
func (m *mender) lockingClauses() (text string, ok bool) {
	var b strings.Builder
	done := 0
	for i := 0; i < len(m.ts); {
		list, end := m.clausesAt(i)
		if end == i {
			i++
			continue
		}
		b.WriteString(m.text[done:m.ts[i].Pos])
		done = m.ts[end-1].End
		var names []string
		for _, c := range list {
			names = append(names, quoteName(c.encode()))
			for _, t := range c.tables {
				names = append(names, quoteName(t))
			}
		}
		b.WriteString("FOR UPDATE OF " + strings.Join(names, ", "))
		i, ok = end, true
	}
	b.WriteString(m.text[done:])
	return b.String(), ok
}

// lockTables writes LOCK TABLE t x READ, t y READ LOCAL with the words that the grammar wants.
func (m *mender) lockTables() (ast.Statement, error) {
	if !m.is(1, "TABLE") && !m.is(1, "TABLES") {
		return nil, nil
	}
	text := "LOCK TABLES "
	for i := 2; ; i++ {
		end := m.qualified(i)
		if end < 0 {
			return nil, nil
		}
		text += m.span(i, end)
		i = end
		if m.is(i, "AS") {
			i++
		}
		if m.isName(i) && !m.is(i, "READ") && !m.is(i, "WRITE") && !m.is(i, "LOW_PRIORITY") {
			text += " AS " + m.span(i, i+1)
			i++
		}
		for ; i < m.last() && !m.is(i, ","); i++ {
			text += " " + m.span(i, i+1)
		}
		if !m.is(i, ",") {
			return m.try(text)
		}
		text += ", "
	}
}

// clausesAt reads the locking clauses that begin at token i, up to the token end; end is i if there are none.
func (m *mender) clausesAt(i int) (list []lockClause, end int) {
	for end = i; ; {
		c := lockClause{mode: catalog.LockExclusive}
		j := end
		switch {
		case m.is(j, "FOR") && m.is(j+1, "UPDATE"):
			j += 2
		case m.is(j, "FOR") && m.is(j+1, "SHARE"):
			c.mode = catalog.LockShared
			j += 2
		case m.is(j, "LOCK") && m.is(j+1, "IN") && m.is(j+2, "SHARE") && m.is(j+3, "MODE"):
			list = append(list, lockClause{mode: catalog.LockShared})
			end = j + 4
			continue
		default:
			return list, end
		}
		if m.is(j, "OF") {
			for sep := true; sep; sep = m.is(j, ",") {
				next := m.qualified(j + 1)
				if next < 0 {
					return list, end
				}
				c.tables = append(c.tables, name(m.ts[next-1], m.text))
				j = next
			}
		}
		switch {
		case m.is(j, "NOWAIT"):
			c.wait = catalog.LockNoWait
			j++
		case m.is(j, "SKIP") && m.is(j+1, "LOCKED"):
			c.wait = catalog.LockSkip
			j += 2
		}
		list, end = append(list, c), j
	}
}
