package sqlplan

import (
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// Foreign keys are declared in the definition of the child table. The front end checks them and runs their actions through
// ordinary editors; whom a table is the parent of is collected here.

var _ sql.ForeignKeyTable = (*ownTable)(nil)

// references are all foreign keys of the warehouse by their parent. It is built anew after a change of definitions.
type references struct {
	byParent map[string][]sql.ForeignKeyConstraint
}

func parentKey(db, table string) string { return strings.ToLower(db) + "\x00" + strings.ToLower(table) }

// forgetReferences makes the next statement that asks collect the foreign keys again.
func (e *Engine) forgetReferences() {
	e.mu.Lock()
	e.references = nil
	e.mu.Unlock()
}

// referencesOf gives the foreign keys that name a table as their parent.
func (e *Engine) referencesOf(ctx *sql.Context, db, table string) ([]sql.ForeignKeyConstraint, error) {
	e.mu.Lock()
	refs := e.references
	e.mu.Unlock()
	pending := sessionOf(ctx).stmt.change != nil
	if refs == nil || pending {
		refs = &references{byParent: map[string][]sql.ForeignKeyConstraint{}}
		err := e.eachDefinition(ctx, func(db string, def *definition) {
			for _, f := range def.table.ForeignKeys {
				c := f.sql()
				c.Database, c.Table = db, def.name
				k := parentKey(f.ParentDatabase, f.ParentTable)
				refs.byParent[k] = append(refs.byParent[k], c)
			}
		})
		if err != nil {
			return nil, err
		}
		if !pending {
			e.mu.Lock()
			e.references = refs
			e.mu.Unlock()
		}
	}
	list := slices.Clone(refs.byParent[parentKey(db, table)])
	for i := range list { // the front end renames columns in place
		list[i].Columns, list[i].ParentColumns = slices.Clone(list[i].Columns), slices.Clone(list[i].ParentColumns)
	}
	return list, nil
}

// eachDefinition calls f for each table of the warehouse as the session's statement sees it.
func (e *Engine) eachDefinition(ctx *sql.Context, f func(db string, def *definition)) error {
	pending := sessionOf(ctx).stmt.change
	see := func(db string, t *catalog.Table) error {
		def, err := e.definitionOf(ctx, t)
		if err == nil {
			f(db, def)
		}
		return err
	}
	for _, db := range e.catalog.Databases() {
		for _, name := range e.catalog.TableNames(db) {
			t, ok := e.catalog.Table(db, name)
			if !ok || pending.of(t) != nil {
				continue
			}
			if err := see(t.Database(), t); err != nil {
				return err
			}
		}
	}
	if pending == nil {
		return nil
	}
	for _, p := range pending.tables {
		if p.catalog != e.catalog || p.drop {
			continue
		}
		if err := see(p.db, p.t); err != nil {
			return err
		}
	}
	return nil
}

func (t *ownTable) GetDeclaredForeignKeys(ctx *sql.Context) ([]sql.ForeignKeyConstraint, error) {
	out := make([]sql.ForeignKeyConstraint, len(t.def.table.ForeignKeys))
	for i, f := range t.def.table.ForeignKeys {
		out[i] = f.sql()
		out[i].Database, out[i].Table = t.db.name, t.Name()
	}
	slices.SortFunc(out, func(a, b sql.ForeignKeyConstraint) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (t *ownTable) GetReferencedForeignKeys(ctx *sql.Context) ([]sql.ForeignKeyConstraint, error) {
	if t.temporary {
		return nil, nil
	}
	return t.db.engine.referencesOf(ctx, t.db.name, t.Name())
}

// CreateIndexForForeignKey adds the index that a foreign key needs.
func (t *ownTable) CreateIndexForForeignKey(ctx *sql.Context, x sql.IndexDef) error {
	return t.CreateIndex(ctx, x)
}

// foreignKeyNamed says whether a table of the database declares a foreign key of that name.
func (t *ownTable) foreignKeyNamed(ctx *sql.Context, name string) (bool, error) {
	found := false
	err := t.db.engine.eachDefinition(ctx, func(db string, def *definition) {
		found = found || strings.EqualFold(db, t.db.name) &&
			slices.ContainsFunc(def.table.ForeignKeys, func(f foreignKeyDefinition) bool { return strings.EqualFold(f.Name, name) })
	})
	return found, err
}

func (t *ownTable) AddForeignKey(ctx *sql.Context, f sql.ForeignKeyConstraint) error {
	if t.temporary {
		return sql.ErrTemporaryTablesForeignKeySupport.New()
	}
	if f.OnUpdate == sql.ForeignKeyReferentialAction_SetDefault || f.OnDelete == sql.ForeignKeyReferentialAction_SetDefault {
		return sql.ErrForeignKeySetDefault.New()
	}
	taken, err := t.foreignKeyNamed(ctx, f.Name)
	if err != nil {
		return err
	}
	if taken {
		return sql.ErrForeignKeyDuplicateName.New(f.Name)
	}
	def := t.def.table.clone()
	def.ForeignKeys = append(def.ForeignKeys, newForeignKeyDefinition(f))
	return t.setDefinition(ctx, def)
}

func (t *ownTable) DropForeignKey(ctx *sql.Context, name, table, schema string) error {
	def := t.def.table.clone()
	n := slices.IndexFunc(def.ForeignKeys, func(f foreignKeyDefinition) bool { return strings.EqualFold(f.Name, name) })
	if n < 0 {
		return sql.ErrForeignKeyNotFound.New(name, t.Name())
	}
	def.ForeignKeys = slices.Delete(def.ForeignKeys, n, n+1)
	return t.setDefinition(ctx, def)
}

// UpdateForeignKey replaces a foreign key: a table or a column that it names was renamed, or it was resolved.
func (t *ownTable) UpdateForeignKey(ctx *sql.Context, name string, f sql.ForeignKeyConstraint) error {
	// A renamed table is asked under its old name's object; its definition is the catalog's newest.
	if err := t.reload(ctx); err != nil {
		return err
	}
	def := t.def.table.clone()
	n := slices.IndexFunc(def.ForeignKeys, func(x foreignKeyDefinition) bool { return strings.EqualFold(x.Name, name) })
	if n < 0 {
		return sql.ErrForeignKeyNotFound.New(name, t.Name())
	}
	def.ForeignKeys[n] = newForeignKeyDefinition(f)
	return t.setDefinition(ctx, def)
}
