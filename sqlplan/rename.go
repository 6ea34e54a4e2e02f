package sqlplan

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// The front end looks for the tables of RENAME TABLE, of ALTER TABLE … RENAME, and for the database of CREATE VIEW, in the
// session's current database, whatever the statement names.

// at has the front end bind the statement in the database that it names: that is the session's current one until the statement ends.
func (s *Session) at(ctx *sql.Context, db string) {
	if current := ctx.GetCurrentDatabase(); !strings.EqualFold(current, db) {
		s.stmt.away, s.stmt.home = true, current
		ctx.SetCurrentDatabase(db)
	}
}

// goHome ends at.
func (s *Session) goHome() {
	if s.stmt.away {
		s.SetCurrentDatabase(s.stmt.home)
		s.stmt.away = false
	}
}

// renaming is one table of RENAME TABLE: database and name, before and after.
type renaming struct{ fromDB, from, toDB, to string }

// renamesOf prepares a statement for the database that it names; what the front end cannot do becomes a statement of ours,
// which is nil for all others.
func (p *parser) renamesOf(ctx *sql.Context, stmt ast.Statement) (ast.Statement, error) {
	s := sessionOf(ctx)
	current := ctx.GetCurrentDatabase()
	var list []renaming
	var auth ast.AuthInformation
	add := func(d *ast.DDL) {
		auth = d.Auth
		for i := range min(len(d.FromTables), len(d.ToTables)) {
			r := renaming{d.FromTables[i].DbQualifier.String(), d.FromTables[i].Name.String(), d.ToTables[i].DbQualifier.String(), d.ToTables[i].Name.String()}
			if r.fromDB == "" {
				r.fromDB = current
			}
			if r.toDB == "" {
				r.toDB = current
			}
			list = append(list, r)
		}
	}
	others := 0
	switch n := stmt.(type) {
	case *ast.DDL:
		if n.Action == ast.CreateStr && n.ViewSpec != nil && current == "" {
			if db := n.ViewSpec.ViewName.DbQualifier.String(); db != "" {
				s.at(ctx, db)
			}
			return nil, nil
		}
		if n.Action != ast.RenameStr {
			return nil, nil
		}
		add(n)
	case *ast.AlterTable:
		db := n.Table.DbQualifier.String()
		for _, d := range n.Statements {
			if d.Action != ast.RenameStr || len(d.FromTables) == 0 {
				others++
				continue
			}
			before := len(list)
			add(d)
			for i := before; i < len(list); i++ {
				if db != "" {
					list[i].fromDB = db
				}
			}
		}
	default:
		return nil, nil
	}
	if len(list) == 0 {
		return nil, nil
	}
	plain := true // in the current database
	for _, r := range list {
		if r.fromDB == "" || r.toDB == "" {
			return nil, nil // the front end's error
		}
		plain = plain && strings.EqualFold(r.fromDB, current) && strings.EqualFold(r.toDB, current)
	}
	switch {
	case plain && others == 0:
		return nil, nil
	case others > 0:
		n := *stmt.(*ast.AlterTable)
		n.Statements = slices.DeleteFunc(slices.Clone(n.Statements), func(d *ast.DDL) bool { return d.Action == ast.RenameStr && len(d.FromTables) > 0 })
		a := &alterClauses{statementNode: "ALTER TABLE", engine: p.engine, stmt: &n, moves: list}
		return ast.InjectedStatement{Statement: a, Auth: auth}, nil
	}
	return ast.InjectedStatement{Statement: &renameTables{p.engine, list}, Auth: auth}, nil
}

const erTriggerInWrongSchema = 1435

// renameTables is RENAME TABLE in another database than the current one, or over several.
type renameTables struct {
	engine *Engine
	list   []renaming
}

// WithResolvedChildren implements ast.Injectable.
func (r *renameTables) WithResolvedChildren(context.Context, []any) (any, error) { return r, nil }

var _ sql.ExecSourceRel = (*renameTables)(nil)

func (r *renameTables) Resolved() bool                 { return true }
func (r *renameTables) IsReadOnly() bool               { return false }
func (r *renameTables) String() string                 { return "RENAME TABLE" }
func (r *renameTables) Schema(*sql.Context) sql.Schema { return types.OkResultSchema }
func (r *renameTables) Children() []sql.Node           { return nil }

func (r *renameTables) WithChildren(_ *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(r, len(children), 0)
	}
	return r, nil
}

// RowIter implements sql.ExecSourceRel.
func (r *renameTables) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	err := sessionOf(ctx).changing(ctx, func(c *change) error {
		if err := c.begin(ctx); err != nil {
			return err
		}
		for _, n := range r.list {
			if err := r.one(ctx, c, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sql.RowsToRowIter(sql.NewRow(types.NewOkResult(0))), nil
}

func (r *renameTables) one(ctx *sql.Context, c *change, n renaming) error {
	p := provider{engine: r.engine}
	found, err := p.Database(ctx, n.fromDB)
	if err != nil {
		return err
	}
	from, ok := found.(*database)
	if !ok {
		return sql.ErrTableNotFound.New(n.fromDB + "." + n.from)
	}
	if taken, err := r.engine.tableOf(ctx, n.toDB, n.to); err != nil {
		return err
	} else if taken != nil && !(strings.EqualFold(n.fromDB, n.toDB) && strings.EqualFold(n.from, n.to)) {
		return sql.ErrTableAlreadyExists.New(n.to)
	}
	t, err := from.table(ctx, n.from)
	if err != nil {
		return err
	}
	if strings.EqualFold(n.fromDB, n.toDB) {
		node := plan.NewRenameTable(from, nil, nil, false)
		if t != nil {
			return node.RenameTable(ctx, from, &ownTable{t}, n.from, n.to)
		}
		done, err := node.RenameView(ctx, from, ctx.GetViewRegistry(), n.from, n.to)
		if err == nil && !done {
			err = sql.ErrTableNotFound.New(n.fromDB + "." + n.from)
		}
		return err
	}
	if t == nil || t.temporary {
		return sql.ErrTableNotFound.New(n.fromDB + "." + n.from)
	}
	triggers, err := from.triggersOf(ctx, n.from)
	if err != nil {
		return err
	}
	if len(triggers) > 0 {
		return mysql.NewSQLError(erTriggerInWrongSchema, "HY000", "Trigger in wrong schema")
	}
	refs, err := r.engine.referencesOf(ctx, n.fromDB, n.from)
	if err != nil {
		return err
	}
	if len(refs)+len(t.def.table.ForeignKeys) > 0 {
		return sql.ErrUnsupportedFeature.New("moving a table with foreign keys to another database")
	}
	spelled, _, ok := r.engine.catalog.Database(n.toDB)
	if !ok {
		return sql.ErrDatabaseNotFound.New(n.toDB)
	}
	pending, err := c.table(ctx, t)
	if err == nil {
		c.rename(pending, spelled, n.to)
	}
	return err
}

// triggersOf gives the triggers of a table.
func (d *database) triggersOf(ctx *sql.Context, table string) ([]sql.TriggerDefinition, error) {
	list, err := d.GetTriggers(ctx)
	if err != nil {
		return nil, err
	}
	var out []sql.TriggerDefinition
	for _, tr := range list {
		if m := triggerTable.FindStringSubmatch(tr.CreateStatement); m != nil && strings.EqualFold(unquoteName(m[3]), table) {
			out = append(out, tr)
		}
	}
	return out, nil
}

// triggerTable finds the table in CREATE TRIGGER: before it, its database, the name, what follows.
var triggerTable = regexp.MustCompile("(?is)^(.*?\\bON\\s+)((?:`(?:[^`]|``)+`|[\\w$]+)\\s*\\.\\s*)?(`(?:[^`]|``)+`|[\\w$]+)(\\s+FOR\\s+EACH\\s+ROW\\b.*)$")

func unquoteName(s string) string {
	if strings.HasPrefix(s, "`") {
		return strings.ReplaceAll(s[1:len(s)-1], "``", "`")
	}
	return s
}

// renameTriggers has the triggers of a table go with it to its new name, as in MySQL. Their bodies stay as they are.
func (d *database) renameTriggers(ctx *sql.Context, triggers []sql.TriggerDefinition, to string) error {
	for _, tr := range triggers {
		m := triggerTable.FindStringSubmatch(tr.CreateStatement)
		tr.CreateStatement = m[1] + m[2] + "`" + strings.ReplaceAll(to, "`", "``") + "`" + m[4]
		if err := putObject(ctx, d.engine, kindTrigger, d.name, strings.ToLower(tr.Name), tr); err != nil {
			return err
		}
	}
	return nil
}
