package sqlplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// provider gives the front end the databases of the catalog, and the functions and procedures that are lakesql's own.
type provider struct {
	engine     *Engine
	function   func(name string) (sql.Function, bool)
	tableFuncs map[string]sql.TableFunction // by lower-case name
	procedures sql.ExternalStoredProcedureRegistry
}

var (
	_ sql.CollatedDatabaseProvider        = (*provider)(nil)
	_ sql.FunctionProvider                = (*provider)(nil)
	_ sql.TableFunctionProvider           = (*provider)(nil)
	_ sql.ExternalStoredProcedureProvider = (*provider)(nil)
)

func newProvider(e *Engine, function func(string) (sql.Function, bool)) *provider {
	p := &provider{engine: e, function: function, tableFuncs: map[string]sql.TableFunction{}, procedures: sql.NewExternalStoredProcedureRegistry()}
	for _, f := range tableFunctions(e) {
		p.tableFuncs[f.Name()] = f
	}
	return p
}

func (p *provider) Database(ctx *sql.Context, name string) (sql.Database, error) {
	spelled, body, ok := p.engine.catalog.Database(name)
	if !ok {
		if d := p.engine.virtualDatabaseOf(name); d != nil {
			return d, nil
		}
		return nil, sql.ErrDatabaseNotFound.New(name)
	}
	return p.database(spelled, body)
}

func (p *provider) database(name string, body []byte) (*database, error) {
	d := &database{engine: p.engine, name: name, collation: p.engine.collation}
	if len(body) > 0 {
		if last := p.engine.lastDatabase.Load(); last != nil && last.body == string(body) {
			d.collation = last.collation
			return d, nil
		}
		var def databaseDefinition
		if err := json.Unmarshal(body, &def); err != nil {
			return nil, mysqlError(fmt.Errorf("reading the definition of database %s: %w", name, err))
		}
		if c, err := sql.ParseCollation("", def.Collation, false); err == nil && c != sql.Collation_Unspecified {
			d.collation = c
		}
		p.engine.lastDatabase.Store(&readDatabase{string(body), d.collation})
	}
	return d, nil
}

// readDatabase is what a database's definition says. Each statement asks for its database, mostly for the same one.
type readDatabase struct {
	body      string
	collation sql.CollationID
}

func (p *provider) HasDatabase(ctx *sql.Context, name string) bool {
	_, _, ok := p.engine.catalog.Database(name)
	return ok || p.engine.virtualDatabaseOf(name) != nil
}

func (p *provider) AllDatabases(ctx *sql.Context) []sql.Database {
	var out []sql.Database
	for _, name := range p.engine.catalog.Databases() {
		if db, err := p.Database(ctx, name); err == nil { // else it was dropped meanwhile
			out = append(out, db)
		}
	}
	for _, d := range virtualDatabases {
		if _, _, own := p.engine.catalog.Database(d.name); !own && !p.engine.plainText {
			out = append(out, d)
		}
	}
	return out
}

// databaseDefinition is what the catalog keeps of a database (JSON).
type databaseDefinition struct {
	Collation string `json:"collation"`
}

func (p *provider) CreateDatabase(ctx *sql.Context, name string) error {
	return p.CreateCollatedDatabase(ctx, name, p.engine.collation)
}

func (p *provider) CreateCollatedDatabase(ctx *sql.Context, name string, collation sql.CollationID) error {
	if collation == sql.Collation_Unspecified {
		collation = p.engine.collation
	}
	if p.engine.virtualDatabaseOf(name) != nil {
		return sql.ErrDatabaseExists.New(name)
	}
	if err := sessionOf(ctx).commitBeforeDDL(ctx); err != nil {
		return err
	}
	body, err := json.Marshal(databaseDefinition{Collation: collation.Name()})
	if err != nil {
		return mysqlError(err)
	}
	err = p.engine.catalog.CreateDatabase(ctx, name, body)
	if errors.Is(err, catalog.ErrExists) {
		return sql.ErrDatabaseExists.New(name)
	}
	return mysqlError(err)
}

func (p *provider) DropDatabase(ctx *sql.Context, name string) error {
	s := sessionOf(ctx)
	if err := s.commitBeforeDDL(ctx); err != nil {
		return err
	}
	err := p.engine.catalog.Change(s.changeWait(ctx), catalog.Change{DropDatabase: name, Retention: s.dropRetention(ctx, p.engine.catalog)})
	if errors.Is(err, catalog.ErrNotFound) {
		return sql.ErrDatabaseNotFound.New(name)
	}
	if err == nil && s.temps != nil {
		err = s.temps.dropDatabase(ctx, name)
	}
	p.engine.forgetReferences()
	return mysqlError(err)
}

// Function gives the functions that replace or add to the front end's.
func (p *provider) Function(ctx *sql.Context, schema, name string) (sql.Function, bool) {
	name = strings.ToLower(name)
	if p.function != nil {
		if f, ok := p.function(name); ok {
			return f, true
		}
	}
	if f, ok := p.engine.userLocks.function(name); ok {
		return f, true
	}
	return textFunction(name)
}

func (p *provider) TableFunction(ctx *sql.Context, name string) (sql.TableFunction, bool) {
	f, ok := p.tableFuncs[strings.ToLower(name)]
	return f, ok
}

// WithTableFunctions gives a provider with these table functions only.
func (p *provider) WithTableFunctions(fns ...sql.TableFunction) (sql.TableFunctionProvider, error) {
	q := *p
	q.tableFuncs = map[string]sql.TableFunction{}
	for _, f := range fns {
		q.tableFuncs[strings.ToLower(f.Name())] = f
	}
	return &q, nil
}

func (p *provider) ExternalStoredProcedure(ctx *sql.Context, name string, params int) (*sql.ExternalStoredProcedureDetails, error) {
	return p.procedures.LookupByNameAndParamCount(name, params)
}

func (p *provider) ExternalStoredProcedures(ctx *sql.Context, name string) ([]sql.ExternalStoredProcedureDetails, error) {
	return p.procedures.LookupByName(name)
}

// objects reads the definitions of one kind that a database holds, in name order.
func objects[T any](ctx *sql.Context, e *Engine, kind, db string) ([]T, error) {
	list := sessionOf(ctx).stmt.change.overlay(kind, db, e.catalog.Objects(kind, db))
	slices.SortFunc(list, func(a, b catalog.Object) int { return strings.Compare(a.Name, b.Name) })
	out := make([]T, 0, len(list))
	for _, o := range list {
		var v T
		if err := json.Unmarshal(o.Body, &v); err != nil {
			return nil, mysqlError(fmt.Errorf("reading %s %s.%s: %w", kind, db, o.Name, err))
		}
		out = append(out, v)
	}
	return out, nil
}

// putObject writes a definition.
func putObject(ctx *sql.Context, e *Engine, kind, db, name string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return mysqlError(err)
	}
	return sessionOf(ctx).changing(ctx, func(c *change) error {
		c.object(catalog.ObjectChange{Kind: kind, Database: db, Name: name, Body: body})
		return nil
	})
}

// dropObject drops a definition and tells whether there was one.
func dropObject(ctx *sql.Context, e *Engine, kind, db, name string) (bool, error) {
	s := sessionOf(ctx)
	list := s.stmt.change.overlay(kind, db, e.catalog.Objects(kind, db))
	if !slices.ContainsFunc(list, func(o catalog.Object) bool { return strings.EqualFold(o.Name, name) }) {
		return false, nil
	}
	return true, s.changing(ctx, func(c *change) error {
		c.object(catalog.ObjectChange{Kind: kind, Database: db, Name: name})
		return nil
	})
}
