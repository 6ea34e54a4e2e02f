package sqlplan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
)

// buildShow runs SHOW statements whose answers by the front end are not MySQL's; nil is another statement.
func buildShow(ctx *sql.Context, n sql.Node) (sql.RowIter, error) {
	switch n := n.(type) {
	case *plan.ShowCreateTrigger:
		return showCreateTrigger(ctx, n)
	case *plan.ShowCreateProcedure:
		return showCreateProcedure(ctx, n)
	case *plan.ShowTriggers:
		return showTriggers(ctx, n)
	case *plan.ShowColumns:
		return showColumns(ctx, n)
	case *plan.ShowIndexes:
		return showIndexes(ctx, n)
	case *plan.DescribeQuery:
		return buildExplain(ctx, n)
	case *plan.ShowCreateDatabase:
		return showCreateDatabase(ctx, n)
	case *plan.ShowProcessList:
		return sql.RowsToRowIter(processRows(ctx)...), nil
	case *plan.ShowStatus:
		return showStatus(ctx, n)
	case *plan.ShowTableStatus:
		return showTableStatus(ctx, n)
	}
	return nil, nil
}

// Stored objects are kept in utf8mb4, without the character set and collation of the session that made them. Dump programs
// set these before they make an object again; MariaDB knows them too.
const (
	objectCharset   = "utf8mb4"
	objectCollation = "utf8mb4_general_ci"
)

// databaseCollation is the name of a database's collation. Dump programs change it back and forth if a stored object has
// another.
func databaseCollation(ctx *sql.Context, db sql.Database) string {
	if d, ok := db.(sql.CollatedDatabase); ok {
		return d.GetCollation(ctx).Name()
	}
	return DefaultCollation.Name()
}

func showCreateDatabase(ctx *sql.Context, n *plan.ShowCreateDatabase) (sql.RowIter, error) {
	db := n.Database()
	name := databaseCollation(ctx, db)
	c, err := sql.ParseCollation("", name, false)
	if err != nil {
		return nil, err
	}
	text := "CREATE DATABASE "
	if n.IfNotExists {
		text += "/*!32312 IF NOT EXISTS*/ "
	}
	text += "`" + strings.ReplaceAll(db.Name(), "`", "``") + "` /*!40100 DEFAULT CHARACTER SET " + c.CharacterSet().Name()
	if elsewhere(name, name, c) == name {
		text += " COLLATE " + name + " */"
	} else {
		text += " */ /*!80000 COLLATE " + name + " */"
	}
	return sql.RowsToRowIter(sql.NewRow(db.Name(), text)), nil
}

func showCreateTrigger(ctx *sql.Context, n *plan.ShowCreateTrigger) (sql.RowIter, error) {
	db, ok := n.Database().(sql.TriggerDatabase)
	if !ok {
		return nil, nil
	}
	list, err := db.GetTriggers(ctx)
	if err != nil {
		return nil, err
	}
	collation := databaseCollation(ctx, n.Database())
	for _, t := range list {
		if strings.EqualFold(t.Name, n.TriggerName) {
			return sql.RowsToRowIter(sql.NewRow(t.Name, t.SqlMode, withDefiner(t.CreateStatement), objectCharset, objectCollation, collation, t.CreatedAt)), nil
		}
	}
	return nil, sql.ErrTriggerDoesNotExist.New(n.TriggerName)
}

func showTriggers(ctx *sql.Context, n *plan.ShowTriggers) (sql.RowIter, error) {
	collation := databaseCollation(ctx, n.Database())
	modes := map[string]string{}
	if db, ok := n.Database().(sql.TriggerDatabase); ok {
		list, err := db.GetTriggers(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			modes[strings.ToLower(t.Name)] = t.SqlMode
		}
	}
	var rows []sql.Row
	for _, t := range n.Triggers {
		definer := strings.ReplaceAll(t.Definer, "`", "")
		if definer == "" {
			definer = defaultDefiner
		}
		rows = append(rows, sql.NewRow(t.TriggerName, strings.ToUpper(t.TriggerEvent), t.Table.(sql.Nameable).Name(), t.BodyString,
			strings.ToUpper(t.TriggerTime), t.CreatedAt, modes[strings.ToLower(t.TriggerName)], definer, objectCharset, objectCollation, collation))
	}
	slices.SortFunc(rows, func(a, b sql.Row) int { return strings.Compare(a[0].(string), b[0].(string)) })
	return sql.RowsToRowIter(rows...), nil
}

func showCreateProcedure(ctx *sql.Context, n *plan.ShowCreateProcedure) (sql.RowIter, error) {
	db, ok := n.Database().(sql.StoredProcedureDatabase)
	if !ok || n.ExternalStoredProcedure != nil {
		return nil, nil
	}
	p, ok, err := db.GetStoredProcedure(ctx, n.ProcedureName)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, sql.ErrStoredProcedureDoesNotExist.New(n.ProcedureName)
	}
	collation := databaseCollation(ctx, n.Database())
	return sql.RowsToRowIter(sql.NewRow(p.Name, p.SqlMode, withDefiner(p.CreateStatement), objectCharset, objectCollation, collation)), nil
}

// defaultDefiner stands for the account that made an object without naming one.
const defaultDefiner = "root@localhost"

var createHead = regexp.MustCompile(`(?is)^\s*CREATE\s+(?:DEFINER\s*=\s*(\S+)\s+)?`)

// withDefiner names a definer in the statement of a stored object, as MySQL always does: dump programs look for it.
func withDefiner(create string) string {
	m := createHead.FindStringSubmatchIndex(create)
	if m == nil {
		return create
	}
	definer := "`root`@`localhost`"
	if m[2] >= 0 {
		definer = create[m[2]:m[3]]
	}
	return "CREATE DEFINER=" + definer + " " + create[m[1]:]
}
