package sqlplan

import (
	"errors"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/mysql_db"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// createTable runs CREATE TABLE whole: the front end makes the table first, then its indexes, foreign keys and checks, and
// would leave it behind when one of them fails.
func (b execBuilder) createTable(ctx *sql.Context, n *plan.CreateTable, row sql.Row) (sql.RowIter, error) {
	var kept sql.IndexDefs
	for _, x := range n.Indexes() {
		if kind := unkeptKind(x.Constraint); kind != "" {
			warnUnkept(ctx, kind, x.Name)
			continue
		}
		kept = append(kept, x)
	}
	if len(kept) < len(n.Indexes()) {
		var err error
		if n, err = n.WithIndexDefs(kept); err != nil {
			return nil, err
		}
	}
	front := *b.front
	front.PriorityBuilder = nil
	d := databaseOf(n.Db)
	if d == nil || d.exists(ctx, n.Name(), n.Temporary()) {
		return front.Build(ctx, n, row)
	}
	s := sessionOf(ctx)
	if n.Temporary() {
		iter, err := front.Build(ctx, n, row)
		if err != nil && d.exists(ctx, n.Name(), true) {
			if derr := d.DropTable(ctx, n.Name()); derr != nil {
				return nil, errors.Join(err, derr)
			}
		}
		return iter, err
	}
	var iter sql.RowIter
	err := s.changing(ctx, func(*change) (err error) {
		iter, err = front.Build(ctx, n, row)
		return err
	})
	return iter, err
}

// dropTables runs DROP TABLE whole, with the triggers of the tables. The front end would first take away the foreign keys that they
// declare, one by one; here they go, and come back, with their tables.
func (b execBuilder) dropTables(ctx *sql.Context, n *plan.DropTable) (sql.RowIter, error) {
	checks, err := ctx.GetSessionVariable(ctx, "foreign_key_checks")
	if err != nil {
		return nil, err
	}
	var list []*ownTable
	for _, node := range n.Tables {
		r, ok := node.(*plan.ResolvedTable)
		if !ok {
			return nil, sql.ErrTableNotFound.New(node.String())
		}
		t, ok := sql.GetUnderlyingTable(r.Table).(*ownTable)
		if !ok {
			return nil, sql.ErrDropTableNotSupported.New(r.SqlDatabase.Name())
		}
		list = append(list, t)
	}
	goes := func(f sql.ForeignKeyConstraint) bool {
		return slices.ContainsFunc(list, func(t *ownTable) bool {
			return strings.EqualFold(t.db.name, f.Database) && strings.EqualFold(t.Name(), f.Table)
		})
	}
	err = sessionOf(ctx).changing(ctx, func(*change) error {
		for _, t := range list {
			if n, _ := checks.(int8); n == 1 {
				parents, err := t.GetReferencedForeignKeys(ctx)
				if err != nil {
					return err
				}
				for _, f := range parents {
					if !goes(f) {
						return sql.ErrForeignKeyDropTable.New(t.Name(), f.Name)
					}
				}
			}
		}
		for _, t := range list {
			if err := t.db.DropTable(ctx, t.Name()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return okRows(0), nil
}

// alters tells whether a block is an ALTER TABLE of several clauses.
func alters(n *plan.Block) bool {
	if n.Pref != nil || len(n.Children()) == 0 {
		return false
	}
	for _, c := range n.Children() {
		switch c.(type) {
		case *plan.AddColumn, *plan.ModifyColumn, *plan.RenameColumn, *plan.DropColumn, *plan.AlterPK, *plan.AlterIndex, *plan.AlterDefaultSet,
			*plan.AlterDefaultDrop, *plan.AlterTableCollation, *plan.AlterTableComment, *plan.AlterAutoIncrement, *plan.CreateCheck, *plan.DropCheck,
			*plan.CreateForeignKey, *plan.DropForeignKey, *plan.RenameForeignKey, *plan.DropConstraint, *plan.RenameTable:
		default:
			return false
		}
	}
	return true
}

// databaseOf gives the database below the front end's wrappers, nil if it is another's.
func databaseOf(db sql.Database) *database {
	if p, ok := db.(mysql_db.PrivilegedDatabase); ok {
		db = p.Unwrap()
	}
	d, _ := db.(*database)
	return d
}

// exists says whether a table stands in the database or, temporary, in the session.
func (d *database) exists(ctx *sql.Context, name string, temporary bool) bool {
	if !temporary {
		_, ok := d.engine.catalog.Table(d.name, name)
		return ok
	}
	s := sessionOf(ctx)
	if s.temps == nil {
		return false
	}
	_, ok := s.temps.table(d.name, name)
	return ok
}

// alterIndex leaves out indexes of kinds that tables do not have; nil: the front end goes on.
func (b execBuilder) alterIndex(ctx *sql.Context, n *plan.AlterIndex) (sql.RowIter, error) {
	kind := unkeptKind(n.Constraint)
	if kind == "" || n.Action != plan.IndexAction_Create {
		return nil, nil
	}
	warnUnkept(ctx, kind, n.IndexName)
	return sql.RowsToRowIter(sql.NewRow(types.NewOkResult(0))), nil
}

// unkeptKind names the kinds of indexes that dumps may ask for and that queries do without: MATCH … AGAINST, which needs a
// FULLTEXT index, is an error.
func unkeptKind(c sql.IndexConstraint) string {
	switch c {
	case sql.IndexConstraint_Fulltext:
		return "FULLTEXT"
	case sql.IndexConstraint_Spatial:
		return "SPATIAL"
	case sql.IndexConstraint_Vector:
		return "VECTOR"
	}
	return ""
}

func warnUnkept(ctx *sql.Context, kind, name string) {
	if name == "" {
		ctx.Warn(erNotSupportedYet, "lakesql has no %s indexes: this one was left out", kind)
		return
	}
	ctx.Warn(erNotSupportedYet, "lakesql has no %s indexes: '%s' was left out", kind, name)
}
