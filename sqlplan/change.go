package sqlplan

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// The front end carries out ALTER TABLE clause after clause, RENAME TABLE and DROP TABLE table after table, each with calls of its
// own for foreign keys and triggers. They are collected here: the statement itself sees each of them at once, everybody else all of
// them together when the catalog has decided them, or none if one of them fails.

// change is what the running statement changes of definitions.
type change struct {
	tables    []*pendingTable
	names     map[string]*pendingTable // by lower-case database and name; nil: no table has the name any more
	objects   []catalog.ObjectChange
	committed bool // what was open before the statement is committed
	rekeys    bool // the statement adds a key, maybe in the place of one that it drops
	scans     []*pull
}

// pendingTable is a table that the running statement changes.
type pendingTable struct {
	catalog  *catalog.Catalog
	t        *catalog.Table
	db, name string // as they are to be
	drop     bool
	draft    bool        // it does not exist yet
	def      *definition // nil: the catalog's
	stages   []stage
	auto     uint64 // next AUTO_INCREMENT value; 0: as it is
	base     uint64 // version of the definition that is changed
}

// stage is one step from the rows that a table has to those that it is to have.
type stage struct {
	old     *definition
	virtual map[int]sql.Expression // VIRTUAL columns of the old rows
	from    []int                  // old position of each column, -1 for a new one
	values  map[int]newValue       // columns that do not just move
	fields  []int                  // old position of each field of the files
	free    []int                  // columns of values that readers of the files make themselves
}

func tableKey(db, name string) string { return strings.ToLower(db) + "\x00" + strings.ToLower(name) }

// changing runs f with the statement's change of definitions. If the statement has none under way, the change is decided when f ends.
func (s *Session) changing(ctx *sql.Context, f func(*change) error) error {
	if s.stmt.change != nil {
		return f(s.stmt.change)
	}
	c := &change{names: map[string]*pendingTable{}}
	s.stmt.change = c
	err := f(c)
	for _, p := range c.scans {
		p.stop() // the front end leaves them open after an error
	}
	if err == nil {
		err = c.decide(ctx, s)
	} else {
		c.giveUp(ctx)
	}
	s.stmt.change = nil
	return err
}

// begin ends what the session has open, before the first change to the warehouse.
func (c *change) begin(ctx *sql.Context) error {
	if c.committed {
		return nil
	}
	c.committed = true
	return sessionOf(ctx).commitBeforeDDL(ctx)
}

// table gives the change's note of a table.
func (c *change) table(ctx *sql.Context, t *table) (*pendingTable, error) {
	if !t.temporary {
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
	}
	if p := c.of(t.t); p != nil {
		return p, nil
	}
	p := &pendingTable{catalog: t.catalog, t: t.t, db: t.t.Database(), name: t.t.Name(), base: t.def.version}
	c.tables = append(c.tables, p)
	return p, nil
}

// of gives the change's note of a table, nil if it does not change it.
func (c *change) of(t *catalog.Table) *pendingTable {
	if c == nil {
		return nil
	}
	for _, p := range c.tables {
		if p.t == t {
			return p
		}
	}
	return nil
}

// lookup finds a table by a name that the change gives or takes away; ok false: it does neither.
func (c *change) lookup(db, name string) (p *pendingTable, ok bool) {
	if c == nil {
		return nil, false
	}
	p, ok = c.names[tableKey(db, name)]
	return p, ok
}

// rename gives a table another name.
func (c *change) rename(p *pendingTable, db, name string) {
	c.names[tableKey(p.db, p.name)] = nil
	c.names[tableKey(db, name)] = p
	p.db, p.name = db, name
}

// object notes a change of an object.
func (c *change) object(o catalog.ObjectChange) {
	i := slices.IndexFunc(c.objects, func(x catalog.ObjectChange) bool {
		return x.Kind == o.Kind && strings.EqualFold(x.Database, o.Database) && strings.EqualFold(x.Name, o.Name)
	})
	if i >= 0 {
		c.objects[i] = o
		return
	}
	c.objects = append(c.objects, o)
}

// overlay gives a list of objects as the change leaves it.
func (c *change) overlay(kind, db string, list []catalog.Object) []catalog.Object {
	if c == nil {
		return list
	}
	for _, o := range c.objects {
		if o.Kind != kind || !strings.EqualFold(o.Database, db) {
			continue
		}
		list = slices.DeleteFunc(list, func(x catalog.Object) bool { return strings.EqualFold(x.Name, o.Name) })
		if o.Body != nil {
			list = append(list, catalog.Object{Name: o.Name, Body: o.Body})
		}
	}
	return list
}

// decide has the catalogs decide the change.
func (c *change) decide(ctx *sql.Context, s *Session) error {
	perCatalog := map[*catalog.Catalog]*catalog.Change{}
	of := func(k *catalog.Catalog) *catalog.Change {
		if perCatalog[k] == nil {
			perCatalog[k] = &catalog.Change{}
		}
		return perCatalog[k]
	}
	for _, p := range c.tables {
		if p.catalog != s.engine.catalog {
			s.closeTemporary(p.t)
		}
		x, err := p.change(ctx)
		if err != nil {
			return mysqlError(err)
		}
		k := of(p.catalog)
		k.Tables = append(k.Tables, x)
	}
	if len(c.objects) > 0 {
		k := of(s.engine.catalog)
		k.Objects = slices.DeleteFunc(slices.Clone(c.objects), func(o catalog.ObjectChange) bool {
			return o.Body == nil && !slices.ContainsFunc(s.engine.catalog.Objects(o.Kind, o.Database), func(x catalog.Object) bool { return strings.EqualFold(x.Name, o.Name) })
		})
	}
	if c.committed { // what it read to check the change
		if err := s.commitBeforeDDL(ctx); err != nil {
			return err
		}
	}
	for k, x := range perCatalog {
		x.Retention = s.dropRetention(ctx, k)
		if err := k.Change(s.changeWait(ctx), *x); err != nil {
			c.giveUp(ctx)
			if errors.Is(err, catalog.ErrChanged) {
				return ErrReplan // another statement changed the table while this one waited for it
			}
			return c.translate(ctx, err)
		}
	}
	s.stmt.altered = true
	for _, p := range c.tables {
		if p.drop {
			s.engine.forgetTable(p.t)
		}
	}
	s.engine.forgetReferences()
	return nil
}

// changeWait has changes of definitions wait for lock_wait_timeout seconds, and SHOW PROCESSLIST say so.
func (s *Session) changeWait(ctx *sql.Context) context.Context {
	return catalog.WithWait(ctx, s.seconds(ctx, tableWaitVariable), func(waits bool) {
		if waits {
			s.engine.waiting.Store(s.ID(), stateTableLock)
		} else {
			s.engine.waiting.Delete(s.ID())
		}
	})
}

// giveUp removes the tables that the statement was to make.
func (c *change) giveUp(ctx *sql.Context) {
	for _, p := range c.tables {
		if p.draft {
			p.catalog.DropDraft(ctx, p.t)
			sessionOf(ctx).engine.forgetTable(p.t)
		}
	}
}

// translate gives the error of a change in the front end's terms: two rows that get one key are its duplicate.
func (c *change) translate(ctx *sql.Context, err error) error {
	var dup *catalog.DuplicateKeyError
	isDup := errors.As(err, &dup)
	for _, p := range c.tables {
		switch {
		case isDup && p.def != nil && strings.EqualFold(dup.Table, p.db+"."+p.name):
			codec, err := p.def.codec.zoned(ctx)
			if err != nil {
				return err
			}
			existing, err := codec.decodeRow(dup.Existing)
			if err != nil {
				return mysqlError(err)
			}
			return duplicateKey(ctx, p.def, p.name, dup.Index, existing)
		case errors.Is(err, catalog.ErrExists) && (p.draft || p.name != p.t.Name() || p.db != p.t.Database()):
			return sql.ErrTableAlreadyExists.New(p.name)
		case errors.Is(err, catalog.ErrNotFound) && p.drop:
			return sql.ErrTableNotFound.New(p.name)
		}
	}
	return mysqlError(err)
}

// change gives the table's part of a change of its catalog.
func (p *pendingTable) change(ctx *sql.Context) (catalog.TableChange, error) {
	x := catalog.TableChange{Table: p.t, Drop: p.drop, AutoNext: p.auto}
	if p.drop {
		return x, nil
	}
	if p.db != p.t.Database() {
		x.Database = p.db
	}
	if p.name != p.t.Name() {
		x.Name = p.name
	}
	if p.def == nil {
		return x, nil
	}
	x.Spec, x.Base = p.def.spec, p.base
	x.Columns = identity(len(p.t.Spec().Schema.Fields))
	converts := false
	for _, st := range p.stages {
		columns := make([]int, len(st.fields))
		for i, n := range st.fields {
			columns[i] = -1
			if n >= 0 {
				columns[i] = x.Columns[n]
			}
		}
		x.Columns = columns
		converts = converts || len(st.values) > len(st.free)
	}
	if !converts {
		return x, nil
	}
	codec, err := newRowCodec(kept(p.def.table, p.def.pk.Schema), p.def.spec.Schema)
	if err == nil {
		codec, err = codec.zoned(ctx)
	}
	if err != nil {
		return x, err
	}
	next, err := p.rows(ctx)
	if err != nil {
		return x, err
	}
	x.Convert = func(was storage.Row) (storage.Row, error) {
		row, err := next(was)
		if err != nil {
			return nil, err
		}
		dst := make(storage.Row, len(p.def.spec.Schema.Fields))
		return dst, codec.encode(row, dst)
	}
	return x, nil
}

// rows gives the function that makes rows of the table as it is into rows as they are to be. TIMESTAMP columns show the session's
// time zone on the way, so that what is converted to or from them is converted as a query would.
func (p *pendingTable) rows(ctx *sql.Context) (func(storage.Row) (sql.Row, error), error) {
	base := p.def
	if len(p.stages) > 0 {
		base = p.stages[0].old
	}
	codec, err := base.codec.zoned(ctx)
	if err != nil {
		return nil, err
	}
	return func(was storage.Row) (sql.Row, error) {
		row, err := codec.decodeRow(was)
		for i := 0; i < len(p.stages) && err == nil; i++ {
			row, err = p.stages[i].row(ctx, row)
		}
		return row, err
	}, nil
}

// row takes a row through the stage.
func (st *stage) row(ctx *sql.Context, row sql.Row) (sql.Row, error) {
	var err error
	for i, v := range st.virtual {
		if row[i], err = v.Eval(ctx, row); err != nil {
			return nil, err
		}
	}
	out := make(sql.Row, len(st.from))
	for i, n := range st.from {
		switch v := st.values[i]; {
		case v != nil:
			if out[i], err = v(ctx, row); err != nil {
				return nil, err
			}
		case n >= 0:
			out[i] = row[n]
		}
	}
	return out, nil
}

// scan reads a table that the statement changes, as it is to be.
func (p *pendingTable) scan(ctx *sql.Context, t *table, l *lookup) (sql.RowIter, error) {
	if p.draft {
		return sql.RowsToRowIter(), nil
	}
	tx, err := sessionOf(ctx).txOf(ctx, p.catalog)
	if err != nil {
		return nil, err
	}
	next, err := p.rows(ctx)
	if err != nil {
		return nil, mysqlError(err)
	}
	virtual, err := t.own().(*ownTable).virtualValues(ctx)
	if err != nil {
		return nil, mysqlError(err)
	}
	schema, _ := t.schema, t.columns
	var filter *rangeFilter
	if l != nil {
		if filter = l.filter; filter == nil {
			return nil, errOption("One statement cannot change table '%s' and look up so many of its rows", t.Name())
		}
		schema, _ = l.extend(t)
	}
	places := make([]int, len(schema))
	for i, c := range schema {
		if places[i] = t.def.column(c.Name); places[i] < 0 {
			return nil, sql.ErrTableColumnNotFound.New(t.Name(), c.Name)
		}
	}
	batches := newPull(tx.Scan(ctx, p.t, catalog.ScanOptions{}))
	if c := sessionOf(ctx).stmt.change; len(c.scans) < scansMax {
		c.scans = append(c.scans, batches)
	}
	return &pendingRows{next: next, virtual: virtual, places: places, width: len(t.schema), filter: filter, batches: batches}, nil
}

// scansMax bounds the scans that a change ends: a constraint is checked with one, or with one for each row, which are read to their ends.
const scansMax = 64

// pendingRows gives the rows of a table that the statement changes.
type pendingRows struct {
	batches *pull
	next    func(storage.Row) (sql.Row, error)
	virtual map[int]sql.Expression
	places  []int
	width   int
	filter  *rangeFilter
}

func (r *pendingRows) Next(ctx *sql.Context) (sql.Row, error) {
	for {
		was, err := r.batches.row()
		if err != nil {
			if err != io.EOF {
				err = mysqlError(err)
			}
			return nil, err
		}
		row, err := r.next(was)
		for i, v := range r.virtual {
			if err == nil {
				row[i], err = v.Eval(ctx, row)
			}
		}
		if err != nil {
			return nil, mysqlError(err)
		}
		out := make(sql.Row, len(r.places))
		for i, n := range r.places {
			out[i] = row[n]
		}
		if r.filter != nil {
			if ok, err := r.filter.holds(ctx, out); err != nil {
				return nil, mysqlError(err)
			} else if !ok {
				continue
			}
		}
		return out[:r.width:r.width], nil
	}
}

func (r *pendingRows) Close(*sql.Context) error {
	r.batches.stop()
	return nil
}

// wholeStatement carries out a statement that changes definitions, and decides it at its end.
func (b execBuilder) wholeStatement(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	if s.stmt.change != nil {
		return nil, nil // a part of one
	}
	if block, ok := n.(*plan.Block); ok {
		// The other clauses look for the table under its old name.
		list := slices.Clone(block.Children())
		slices.SortStableFunc(list, func(a, b sql.Node) int {
			rank := func(n sql.Node) int {
				if _, ok := n.(*plan.RenameTable); ok {
					return 1
				}
				return 0
			}
			return rank(a) - rank(b)
		})
		n = plan.NewBlock(list)
	}
	var out []sql.Row
	_, fills := n.(*plan.TableCopier) // CREATE TABLE … SELECT gives the rows that it inserts
	inserted := 0
	err := s.changing(ctx, func(c *change) error {
		iter, err := b.front.Build(ctx, n, row)
		if err != nil {
			return err
		}
		for {
			r, err := iter.Next(ctx)
			if err == io.EOF {
				if err = iter.Close(ctx); err == nil {
					err = c.commitRows(ctx)
				}
				return err
			}
			if err != nil {
				_ = iter.Close(ctx) // the first error tells more
				return err
			}
			if fills {
				inserted++
				continue
			}
			out = append(out, r)
		}
	})
	if err != nil {
		return nil, err
	}
	if fills {
		out = []sql.Row{sql.NewRow(types.NewOkResult(inserted))}
	}
	return sql.RowsToRowIter(out...), nil
}

// commitRows commits what the statement wrote into the table that it makes: CREATE TABLE … SELECT.
func (c *change) commitRows(ctx *sql.Context) error {
	for _, p := range c.tables {
		if !p.draft {
			continue
		}
		s := sessionOf(ctx)
		if s.tx == nil || s.tx.txs[p.catalog] == nil || !s.tx.txs[p.catalog].Writes() {
			return nil
		}
		if err := p.catalog.KeepDraft(p.t); err != nil {
			return mysqlError(err)
		}
		return s.commitBeforeDDL(ctx)
	}
	return nil
}
