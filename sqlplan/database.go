package sqlplan

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
)

// Kinds of objects that a database holds beside its tables.
const (
	kindView    = "view"
	kindTrigger = "trigger"
	kindRoutine = "routine"
	kindEvent   = "event"
)

// database is a database of the catalog as a session sees it. With accounts the front end wraps every database in one that
// claims all of these interfaces, so all of them are here.
type database struct {
	engine    *Engine
	name      string
	collation sql.CollationID
}

var (
	_ sql.TableCreator            = (*database)(nil)
	_ sql.IndexedTableCreator     = (*database)(nil)
	_ sql.TableDropper            = (*database)(nil)
	_ sql.SchemaValidator         = (*database)(nil)
	_ sql.TableRenamer            = (*database)(nil)
	_ sql.TemporaryTableCreator   = (*database)(nil)
	_ sql.TemporaryTableDatabase  = (*database)(nil)
	_ sql.VersionedDatabase       = (*database)(nil)
	_ sql.CollatedDatabase        = (*database)(nil)
	_ sql.ViewDatabase            = (*database)(nil)
	_ sql.TriggerDatabase         = (*database)(nil)
	_ sql.StoredProcedureDatabase = (*database)(nil)
	_ sql.EventDatabase           = (*database)(nil)
)

func (d *database) Name() string { return d.name }

// GetTableInsensitive finds a table; the session's temporary tables hide those of the warehouse.
func (d *database) GetTableInsensitive(ctx *sql.Context, name string) (sql.Table, bool, error) {
	t, err := d.table(ctx, name)
	if err != nil || t == nil {
		return nil, false, err
	}
	return t.own(), true, nil
}

// table finds a table, nil if there is none.
func (d *database) table(ctx *sql.Context, name string) (*table, error) {
	s := sessionOf(ctx)
	if s.temps != nil {
		if t, ok := s.temps.table(d.name, name); ok {
			return newTable(ctx, d, s.temps.catalog, t, true)
		}
	}
	t, ok := d.engine.catalog.Table(d.name, name)
	if p, changed := s.stmt.change.lookup(d.name, name); changed {
		if p == nil {
			return nil, nil
		}
		t, ok = p.t, true
	}
	if !ok {
		return nil, nil
	}
	out, err := newTable(ctx, d, d.engine.catalog, t, false)
	if err == nil {
		out.lock = s.takeLock(name)
	}
	return out, err
}

func (d *database) GetTableNames(ctx *sql.Context) ([]string, error) {
	names := d.engine.catalog.TableNames(d.name)
	slices.Sort(names)
	return names, nil
}

func (d *database) GetTableNamesAsOf(ctx *sql.Context, asOf any) ([]string, error) {
	return d.GetTableNames(ctx)
}

// GetTableInsensitiveAsOf gives a table as it was at a time; see resolveAsOf for the forms of times.
func (d *database) GetTableInsensitiveAsOf(ctx *sql.Context, name string, asOf any) (sql.Table, bool, error) {
	t, err := d.table(ctx, name)
	if err != nil || t == nil {
		return nil, false, err
	}
	if t.temporary {
		return t.own(), true, nil
	}
	old, err := t.asOfTime(ctx, asOf)
	if err != nil {
		return nil, false, err
	}
	return old, true, nil
}

// GetAllTemporaryTables gives the temporary tables that the session made in this database.
func (d *database) GetAllTemporaryTables(ctx *sql.Context) ([]sql.Table, error) {
	s := sessionOf(ctx)
	if s.temps == nil {
		return nil, nil
	}
	var out []sql.Table
	for _, name := range s.temps.names(d.name) {
		t, err := d.table(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, t.own())
	}
	return out, nil
}

func (d *database) GetCollation(ctx *sql.Context) sql.CollationID { return d.collation }

func (d *database) SetCollation(ctx *sql.Context, collation sql.CollationID) error {
	body, err := json.Marshal(databaseDefinition{Collation: collation.Name()})
	if err == nil {
		err = d.engine.catalog.SetDatabase(ctx, d.name, body)
	}
	return mysqlError(err)
}

// DropTable removes a table; the files of an attached one stay.
func (d *database) DropTable(ctx *sql.Context, name string) error {
	t, err := d.table(ctx, name)
	if err != nil {
		return err
	}
	if t == nil {
		return sql.ErrTableNotFound.New(name)
	}
	s := sessionOf(ctx)
	if t.temporary {
		s.closeTemporary(t.t)
		return mysqlError(s.temps.drop(ctx, d.name, name))
	}
	return s.changing(ctx, func(c *change) error {
		p, err := c.table(ctx, t)
		if err != nil {
			return err
		}
		triggers, err := d.triggersOf(ctx, name)
		if err != nil {
			return err
		}
		for _, tr := range triggers {
			c.object(catalog.ObjectChange{Kind: kindTrigger, Database: d.name, Name: strings.ToLower(tr.Name), With: t.t})
		}
		p.drop, p.def, p.stages = true, nil, nil
		c.names[tableKey(d.name, name)] = nil
		return nil
	})
}

// RenameTable renames a table. Foreign keys that name it follow by the front end's own calls.
func (d *database) RenameTable(ctx *sql.Context, from, to string) error {
	t, err := d.table(ctx, from)
	if err != nil {
		return err
	}
	if t == nil {
		return sql.ErrTableNotFound.New(from)
	}
	s := sessionOf(ctx)
	if t.temporary {
		return mysqlError(s.temps.rename(ctx, d.name, from, to))
	}
	return s.changing(ctx, func(c *change) error {
		p, err := c.table(ctx, t)
		if err != nil {
			return err
		}
		if o, err := d.table(ctx, to); err != nil {
			return err
		} else if o != nil && o.t != t.t && !o.temporary {
			return sql.ErrTableAlreadyExists.New(to)
		}
		triggers, err := d.triggersOf(ctx, from)
		if err != nil {
			return err
		}
		c.rename(p, d.name, to)
		return d.renameTriggers(ctx, triggers, to)
	})
}

// Views.

func (d *database) CreateView(ctx *sql.Context, name, selectStatement, createStatement string) error {
	if _, ok, err := d.GetViewDefinition(ctx, name); err != nil || ok {
		if ok {
			err = sql.ErrExistingView.New(d.name, name)
		}
		return err
	}
	return putObject(ctx, d.engine, kindView, d.name, strings.ToLower(name), sql.ViewDefinition{
		Name: name, TextDefinition: selectStatement, CreateViewStatement: createStatement, SqlMode: sql.LoadSqlMode(ctx).String(),
	})
}

func (d *database) DropView(ctx *sql.Context, name string) error {
	ok, err := dropObject(ctx, d.engine, kindView, d.name, strings.ToLower(name))
	if err == nil && !ok {
		return sql.ErrViewDoesNotExist.New(d.name, name)
	}
	return mysqlError(err)
}

func (d *database) AllViews(ctx *sql.Context) ([]sql.ViewDefinition, error) {
	return objects[sql.ViewDefinition](ctx, d.engine, kindView, d.name)
}

func (d *database) GetViewDefinition(ctx *sql.Context, name string) (sql.ViewDefinition, bool, error) {
	views, err := d.AllViews(ctx)
	if err != nil {
		return sql.ViewDefinition{}, false, err
	}
	for _, v := range views {
		if strings.EqualFold(v.Name, name) {
			return v, true, nil
		}
	}
	return sql.ViewDefinition{}, false, nil
}

// Triggers run in the order in which they were created.

func (d *database) GetTriggers(ctx *sql.Context) ([]sql.TriggerDefinition, error) {
	list, err := objects[sql.TriggerDefinition](ctx, d.engine, kindTrigger, d.name)
	slices.SortStableFunc(list, func(a, b sql.TriggerDefinition) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, err
}

func (d *database) CreateTrigger(ctx *sql.Context, def sql.TriggerDefinition) error {
	// Times of creation order the triggers of a table, so no two are equal.
	list, err := d.GetTriggers(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(t sql.TriggerDefinition) bool { return strings.EqualFold(t.Name, def.Name) }) {
		return mysql.NewSQLError(erTriggerExists, stateGeneral, "Trigger already exists")
	}
	if n := len(list); n > 0 && !def.CreatedAt.After(list[n-1].CreatedAt) {
		def.CreatedAt = list[n-1].CreatedAt.Add(time.Microsecond)
	}
	return putObject(ctx, d.engine, kindTrigger, d.name, strings.ToLower(def.Name), def)
}

func (d *database) DropTrigger(ctx *sql.Context, name string) error {
	ok, err := dropObject(ctx, d.engine, kindTrigger, d.name, strings.ToLower(name))
	if err == nil && !ok {
		return sql.ErrTriggerDoesNotExist.New(name)
	}
	return mysqlError(err)
}

// Stored procedures.

func (d *database) GetStoredProcedure(ctx *sql.Context, name string) (sql.StoredProcedureDetails, bool, error) {
	list, err := d.GetStoredProcedures(ctx)
	if err != nil {
		return sql.StoredProcedureDetails{}, false, err
	}
	for _, p := range list {
		if strings.EqualFold(p.Name, name) {
			return p, true, nil
		}
	}
	return sql.StoredProcedureDetails{}, false, nil
}

func (d *database) GetStoredProcedures(ctx *sql.Context) ([]sql.StoredProcedureDetails, error) {
	return objects[sql.StoredProcedureDetails](ctx, d.engine, kindRoutine, d.name)
}

func (d *database) SaveStoredProcedure(ctx *sql.Context, p sql.StoredProcedureDetails) error {
	if _, ok, err := d.GetStoredProcedure(ctx, p.Name); err != nil || ok {
		if ok {
			err = sql.ErrStoredProcedureAlreadyExists.New(p.Name)
		}
		return err
	}
	return putObject(ctx, d.engine, kindRoutine, d.name, strings.ToLower(p.Name), p)
}

func (d *database) DropStoredProcedure(ctx *sql.Context, name string) error {
	ok, err := dropObject(ctx, d.engine, kindRoutine, d.name, strings.ToLower(name))
	if err == nil && !ok {
		return sql.ErrStoredProcedureDoesNotExist.New(name)
	}
	return mysqlError(err)
}

// Events are kept and listed; nothing runs them.

func (d *database) GetEvent(ctx *sql.Context, name string) (sql.EventDefinition, bool, error) {
	list, _, err := d.GetEvents(ctx)
	if err != nil {
		return sql.EventDefinition{}, false, err
	}
	for _, ev := range list {
		if strings.EqualFold(ev.Name, name) {
			return ev, true, nil
		}
	}
	return sql.EventDefinition{}, false, nil
}

func (d *database) GetEvents(ctx *sql.Context) ([]sql.EventDefinition, any, error) {
	list, err := objects[sql.EventDefinition](ctx, d.engine, kindEvent, d.name)
	return list, nil, err
}

func (d *database) SaveEvent(ctx *sql.Context, ev sql.EventDefinition) (bool, error) {
	if _, ok, err := d.GetEvent(ctx, ev.Name); err != nil || ok {
		if ok {
			err = sql.ErrEventAlreadyExists.New(ev.Name)
		}
		return false, err
	}
	return ev.Status == sql.EventStatus_Enable.String(), putObject(ctx, d.engine, kindEvent, d.name, strings.ToLower(ev.Name), ev)
}

func (d *database) DropEvent(ctx *sql.Context, name string) error {
	ok, err := dropObject(ctx, d.engine, kindEvent, d.name, strings.ToLower(name))
	if err == nil && !ok {
		return sql.ErrEventDoesNotExist.New(name)
	}
	return mysqlError(err)
}

func (d *database) UpdateEvent(ctx *sql.Context, name string, ev sql.EventDefinition) (bool, error) {
	if !strings.EqualFold(name, ev.Name) {
		if _, ok, err := d.GetEvent(ctx, ev.Name); err != nil || ok {
			if ok {
				err = sql.ErrEventAlreadyExists.New(ev.Name)
			}
			return false, err
		}
	}
	if err := d.DropEvent(ctx, name); err != nil {
		return false, err
	}
	return ev.Status == sql.EventStatus_Enable.String(), putObject(ctx, d.engine, kindEvent, d.name, strings.ToLower(ev.Name), ev)
}

func (d *database) UpdateLastExecuted(ctx *sql.Context, name string, at time.Time) error {
	ev, ok, err := d.GetEvent(ctx, name)
	if err != nil {
		return err
	}
	if !ok {
		return sql.ErrEventDoesNotExist.New(name)
	}
	ev.LastExecuted = at
	return putObject(ctx, d.engine, kindEvent, d.name, strings.ToLower(name), ev)
}

func (d *database) NeedsToReloadEvents(ctx *sql.Context, token any) (bool, error) { return false, nil }
