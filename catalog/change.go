package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Change is a change of definitions that is decided at once: whatever happens, all of it is there or nothing.
//
// The decision is one synced batch of the hot tier, or, when the rows of a table are rewritten, the completion of that instant, whose
// intent holds the rest. Folders, hoodie.properties and the warehouse file follow; what of that is missing after a crash is repeated
// from a note that the same batch wrote.
type Change struct {
	Tables       []TableChange
	Objects      []ObjectChange
	DropDatabase string // with its tables and objects; "": none
	// Retention is how long what is dropped can be brought back: 0 is Options.DropRetention, negative not at all.
	Retention time.Duration
}

// TableChange is what a change does to one table.
type TableChange struct {
	Table *Table
	Drop  bool // the files of an attached one stay

	Database, Name string // the new names; "": as they are

	// Spec is the new specification; nil: as it is. Columns and Convert as in AlterTable.
	Spec    *TableSpec
	Columns []int
	Convert func(old storage.Row) (storage.Row, error)

	AutoNext uint64 // next AUTO_INCREMENT value; 0: as it is

	// Base is the version of the definition from which Spec and Columns were made: ErrChanged if the table has another one by now. 0: any.
	Base uint64
}

// ObjectChange makes, replaces or drops an object.
type ObjectChange struct {
	Kind, Database, Name string
	Body                 []byte // nil: it is dropped
	With                 *Table // it is dropped with this table, and comes back with it
}

// decision is what a Change comes to. It stands as JSON in the intent of a rewrite that it belongs to.
type decision struct {
	Records   []tableRecord    `json:"records,omitempty"` // of tables that stay
	Dropped   []droppedTable   `json:"dropped,omitempty"`
	Gone      []index.TableID  `json:"gone,omitempty"` // dropped tables that cannot come back
	Database  *droppedDatabase `json:"database,omitempty"`
	Databases []savedDatabase  `json:"databases,omitempty"` // all of them, if databases or objects change
	Attached  bool             `json:"attached,omitempty"`  // the list of attached tables changes
	Steps     folderSteps      `json:"steps"`

	Auto map[index.TableID]uint64 `json:"auto,omitempty"` // next AUTO_INCREMENT values

	defs map[index.TableID]*tableDef // of Records, as far as they are known
}

// record gives the record of a table that stays.
func (d *decision) record(id index.TableID) *tableRecord {
	for i := range d.Records {
		if d.Records[i].ID == id {
			return &d.Records[i]
		}
	}
	return nil
}

// Change makes a change, or nothing of it. It waits for the transactions that use its tables, see WithWait.
func (c *Catalog) Change(ctx context.Context, ch Change) error {
	for {
		if err := c.FinishMoves(ctx); err != nil {
			return err
		}
		tables := c.changed(&ch)
		release, err := lockDefinitions(ctx, tables)
		if err != nil {
			return err
		}
		c.ddl.Lock()
		same := len(c.changed(&ch)) == len(tables)
		if same {
			if err = c.finishChanges(ctx); err == nil {
				c.flushDetached(ctx, &ch)
				err = c.change(ctx, &ch)
			}
		}
		c.ddl.Unlock()
		release()
		if same {
			return err
		}
		// The database that is dropped has got or lost a table meanwhile.
	}
}

// flushDetached writes what waits of attached tables that are dropped: their files stay, and other engines go on with them. A table that cannot
// be written, be its folder gone or another engine's for good, is dropped all the same.
func (c *Catalog) flushDetached(ctx context.Context, ch *Change) {
	var tables []*Table
	for i := range ch.Tables {
		if ch.Tables[i].Drop {
			tables = append(tables, ch.Tables[i].Table)
		}
	}
	if ch.DropDatabase != "" {
		tables = c.changed(&Change{DropDatabase: ch.DropDatabase})
	}
	for _, t := range tables {
		if !t.def.Load().spec.Attached || t.dropped.Load() || !t.isBuffered() {
			continue
		}
		if err := c.flush(ctx, flushOrder{reason: "the table is dropped"}, []*Table{t}); err != nil {
			c.log.Warn("rows that could not be flushed are dropped with an attached table", "table", t.String(), "err", err)
		}
	}
}

// changed gives the tables that a change is about.
func (c *Catalog) changed(ch *Change) (out []*Table) {
	for i := range ch.Tables {
		out = append(out, ch.Tables[i].Table)
	}
	if ch.DropDatabase != "" {
		c.mu.RLock()
		defer c.mu.RUnlock()
		if d := c.databases[strings.ToLower(ch.DropDatabase)]; d != nil {
			for _, t := range d.tables {
				out = append(out, t)
			}
		}
	}
	return out
}

// finishChanges ends what earlier changes left undone, since their files could not be written; called with c.ddl held.
func (c *Catalog) finishChanges(ctx context.Context) error {
	if t := c.unsettled; t != nil {
		t.slices.Lock()
		err := t.resolveIntent(ctx)
		t.slices.Unlock()
		if err != nil {
			return fmt.Errorf("end an earlier change of %s: %w", t, err)
		}
		c.unsettled = nil
	}
	if u := c.unmoved.Load(); u != nil {
		return u.steps.failure // FinishMoves is where its tables are locked
	}
	if c.stepsLeft {
		return c.repeatSteps(ctx)
	}
	return nil
}

// tablePlan is a TableChange on its way.
type tablePlan struct {
	*TableChange
	t       *Table
	old, d  *tableDef
	r       tableRecord
	hints   []secondaryHint
	rewrite bool
}

func (c *Catalog) change(ctx context.Context, ch *Change) error {
	if ch.DropDatabase != "" {
		c.mu.RLock()
		d := c.databases[strings.ToLower(ch.DropDatabase)]
		if d == nil {
			c.mu.RUnlock()
			return fmt.Errorf("%w: database %s", ErrNotFound, ch.DropDatabase)
		}
		for _, name := range sortedKeys(d.tables) {
			ch.Tables = append(ch.Tables, TableChange{Table: d.tables[name], Drop: true})
		}
		c.mu.RUnlock()
	}
	plans := make([]*tablePlan, len(ch.Tables))
	for i := range ch.Tables {
		plans[i] = &tablePlan{TableChange: &ch.Tables[i], t: ch.Tables[i].Table}
	}
	slices.SortFunc(plans, func(a, b *tablePlan) int { return int(a.t.id) - int(b.t.id) })
	for _, p := range plans {
		p.t.ddl.Lock()
		defer p.t.ddl.Unlock()
	}
	for _, p := range plans {
		if p.Drop || p.moves() {
			p.t.slices.Lock()
			defer p.t.slices.Unlock()
		}
	}
	for _, p := range plans {
		if err := c.plan(ctx, p); err != nil {
			return err
		}
	}
	dec := &decision{defs: map[index.TableID]*tableDef{}, Auto: map[index.TableID]uint64{}}
	if err := c.planNames(ctx, plans, dec); err != nil {
		return err
	}
	if err := c.planObjects(ch, plans, dec); err != nil {
		return err
	}
	var rewritten *tablePlan
	for _, p := range plans {
		switch {
		case p.Drop:
			if err := c.planDrop(p, ch, dec); err != nil {
				return err
			}
			continue
		case p.rewrite:
			if rewritten != nil {
				return fmt.Errorf("%w: one change rewrites %s and %s", ErrInvalid, rewritten.t, p.t)
			}
			rewritten = p
		}
		dec.Records = append(dec.Records, p.r)
		dec.defs[p.t.id] = p.d
		if !p.d.spec.Attached && (p.Spec != nil || p.AutoNext > 0 || p.Name != "" || p.Database != "") {
			dec.Steps.Properties = append(dec.Steps.Properties, p.t.id)
		}
		if p.AutoNext > 0 {
			dec.Auto[p.t.id] = p.AutoNext
		}
	}
	for _, p := range plans {
		if err := c.putHints(p.t, p.hints); err != nil {
			return err
		}
	}
	if rewritten != nil {
		if !rewritten.moves() {
			rewritten.t.slices.Lock()
			defer rewritten.t.slices.Unlock()
		}
		done, err := rewritten.t.rewrite(ctx, rewritten.d, dec, rewritten.rows(ctx))
		if done || err != nil {
			return err
		}
	}
	return c.decide(ctx, dec)
}

// moves tells whether the table's folder moves.
func (p *tablePlan) moves() bool {
	return !p.t.def.Load().spec.Attached && (p.Name != "" || p.Database != "")
}

// plan works out a table's new record and definition.
func (c *Catalog) plan(ctx context.Context, p *tablePlan) error {
	t := p.t
	p.old = t.def.Load()
	if t.dropped.Load() {
		return fmt.Errorf("%w: table %s", ErrNotFound, p.old)
	}
	if p.Drop {
		return nil
	}
	if p.Spec != nil && p.Base != 0 && p.Base != p.old.version {
		return fmt.Errorf("%w: %s", ErrChanged, p.old)
	}
	if t.broken != nil {
		return t.broken
	}
	if p.moves() {
		if err := t.resolveIntent(ctx); err != nil {
			return err
		}
	}
	c.commitMu.Lock()
	p.r = t.record
	c.commitMu.Unlock()
	p.r.Version++
	if p.Name != "" {
		p.r.Name = p.Name
	}
	if p.Database != "" {
		spelled, _, ok := c.Database(p.Database)
		if !ok {
			return fmt.Errorf("%w: database %s", ErrNotFound, p.Database)
		}
		p.r.Database = spelled
	}
	if p.moves() {
		p.r.Dir = join(escapeName(p.r.Database), escapeName(p.r.Name))
	}
	if p.AutoNext > 0 {
		p.r.Def.AutoNext = p.AutoNext
	}
	if p.Spec == nil {
		return p.same(ctx)
	}
	return p.alter(ctx)
}

// same compiles the definition of a table whose specification stays.
func (p *tablePlan) same(ctx context.Context) error {
	c := p.t.c
	props, err := timeline.ReadProperties(ctx, c.store, p.old.dir)
	if err != nil {
		return err
	}
	p.d, err = c.compile(&p.r, props)
	return err
}

// planNames checks the names that the tables are to have, and plans the moves of their folders.
func (c *Catalog) planNames(ctx context.Context, plans []*tablePlan, dec *decision) error {
	leaves := map[*Table]bool{} // its present name becomes free
	var folders []string        // that become free
	for _, p := range plans {
		if p.Drop || p.Name != "" || p.Database != "" {
			leaves[p.t] = true
			folders = append(folders, p.old.dir)
		}
	}
	taken := map[string]bool{}
	for _, p := range plans {
		if p.Drop || p.Name == "" && p.Database == "" && !p.t.draft {
			continue
		}
		o, ok := c.Table(p.r.Database, p.r.Name)
		key := strings.ToLower(p.r.Database) + "\x00" + strings.ToLower(p.r.Name)
		if ok && !leaves[o] || taken[key] {
			return fmt.Errorf("%w: table %s.%s", ErrExists, p.r.Database, p.r.Name)
		}
		taken[key] = true
		if p.t.draft {
			continue
		}
		if len(escapeName(p.r.Name)) > 200 {
			return fmt.Errorf("%w: table name %q", ErrInvalid, p.r.Name)
		}
		if !p.moves() {
			dec.Attached = true
			continue
		}
		to := c.object(p.r.Dir)
		if to == p.old.dir {
			continue
		}
		if slices.Contains(folders, to) {
			dec.Steps.Park = true
		} else if err := c.vacate(ctx, to); err != nil {
			return err
		}
		dec.Steps.Moves = append(dec.Steps.Moves, folderMove{p.t.id, p.old.dir, to})
	}
	return nil
}

// planObjects works out the databases and objects that a change leaves.
func (c *Catalog) planObjects(ch *Change, plans []*tablePlan, dec *decision) error {
	if ch.DropDatabase == "" && len(ch.Objects) == 0 {
		return nil
	}
	list := c.savedDatabases()
	find := func(name string) *savedDatabase {
		for i := range list {
			if strings.EqualFold(list[i].Name, name) {
				return &list[i]
			}
		}
		return nil
	}
	for _, o := range ch.Objects {
		d := find(o.Database)
		if d == nil {
			if o.Database != "" {
				return fmt.Errorf("%w: database %s", ErrNotFound, o.Database)
			}
			list = append([]savedDatabase{{Objects: map[string][]Object{}}}, list...) // what belongs to the whole warehouse
			d = &list[0]
		}
		kept := slices.Clone(d.Objects[o.Kind])
		i := slices.IndexFunc(kept, func(k Object) bool { return strings.EqualFold(k.Name, o.Name) })
		switch {
		case i < 0 && o.Body == nil:
			if o.With == nil {
				return fmt.Errorf("%w: %s %s.%s", ErrNotFound, o.Kind, o.Database, o.Name)
			}
		case i < 0:
			kept = append(kept, Object{o.Name, o.Body})
		case o.Body == nil:
			for _, p := range plans {
				if p.t == o.With {
					p.t.c.keepObject(dec, p.t, o.Kind, kept[i])
				}
			}
			kept = slices.Delete(kept, i, i+1)
		default:
			kept[i] = Object{o.Name, o.Body}
		}
		d.Objects[o.Kind] = kept
	}
	if ch.DropDatabase != "" {
		gone := *find(ch.DropDatabase)
		dec.Database = &droppedDatabase{Database: gone}
		list = slices.DeleteFunc(list, func(s savedDatabase) bool { return s.Name == gone.Name })
		dec.Steps.Folders = append(dec.Steps.Folders, join(c.root, escapeName(gone.Name)))
	}
	if list == nil {
		list = []savedDatabase{}
	}
	dec.Databases = list
	return nil
}

// keepObject has an object come back with a table that is dropped.
func (c *Catalog) keepObject(dec *decision, t *Table, kind string, o Object) {
	i := slices.IndexFunc(dec.Dropped, func(d droppedTable) bool { return d.Record.ID == t.id })
	if i < 0 {
		i = len(dec.Dropped)
		dec.Dropped = append(dec.Dropped, droppedTable{Record: tableRecord{ID: t.id}})
	}
	d := &dec.Dropped[i]
	if d.Objects == nil {
		d.Objects = map[string][]Object{}
	}
	d.Objects[kind] = append(d.Objects[kind], o)
}

// decide makes a decision durable, then the warehouse as it says.
func (c *Catalog) decide(ctx context.Context, dec *decision) error {
	b := c.db.NewBatch()
	defer b.Close()
	undo, err := c.put(b, dec)
	if err == nil {
		err = c.commitBatch(b)
	}
	if err != nil {
		undo()
		return fmt.Errorf("decide a change of definitions: %w", err)
	}
	return c.enforce(context.WithoutCancel(ctx), dec)
}

// put writes a decision to a batch; undo takes back what it set in memory.
func (c *Catalog) put(b *pebble.Batch, dec *decision) (undo func(), err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	before := map[*Table]tableRecord{}
	undo = func() {
		c.commitMu.Lock()
		defer c.commitMu.Unlock()
		for t, r := range before {
			t.record = r
		}
	}
	for _, r := range dec.Records {
		t := c.byID[r.ID]
		if t == nil {
			continue
		}
		before[t] = t.record
		r.Draft = false
		t.record = r
		if err := t.saveRecord(b, c.cold(t.id)); err != nil {
			return undo, err
		}
	}
	for id, next := range dec.Auto {
		err = firstError(err, b.Set(idKey(prefixAuto, id), appendUint(nil, next), nil))
	}
	for i := range dec.Dropped {
		d := &dec.Dropped[i]
		if t := c.byID[d.Record.ID]; t != nil {
			if err := t.saveRecord(b, c.cold(t.id)); err != nil { // brings the record up to date
				return undo, err
			}
			d.Record, d.Buffered = t.record, savedBuffer{Rows: t.buf.rows, Bytes: t.buf.bytes, Oldest: t.buf.oldest}
		}
		v, jerr := json.Marshal(d)
		err = firstError(err, jerr, b.Delete(idKey(prefixTable, d.Record.ID), nil), b.Set(idKey(prefixDropped, d.Record.ID), v, nil))
	}
	for _, id := range dec.Gone {
		err = firstError(err, c.deleteState(b, id))
	}
	if dec.Database != nil && !dec.Database.Until.IsZero() {
		v, jerr := json.Marshal(dec.Database)
		err = firstError(err, jerr, b.Set(dec.Database.key(), v, nil))
	}
	err = firstError(err, b.Set(metaKey(metaNext), appendUint(nil, uint64(c.nextID)), nil))
	if dec.Databases != nil {
		v, jerr := json.Marshal(dec.Databases)
		err = firstError(err, jerr, b.Set(metaKey(metaDatabases), v, nil))
	}
	dec.Steps.Warehouse = dec.Databases != nil || dec.Attached || len(dec.Dropped) > 0
	if err == nil {
		err = c.noteSteps(b, &dec.Steps)
	}
	return undo, err
}

// enforce makes the warehouse what a durable decision says.
func (c *Catalog) enforce(ctx context.Context, dec *decision) error {
	gone := c.goneTables(dec)
	for _, t := range gone {
		t.close()
	}
	u := &unmoved{steps: &dec.Steps, then: func(ctx context.Context) error { return c.enforced(ctx, dec) }}
	u.tables = append(u.tables, gone...)
	for i := range dec.Records {
		if t := c.byID[dec.Records[i].ID]; t != nil {
			u.tables = append(u.tables, t)
		}
	}
	return c.moveThen(ctx, u)
}

// goneTables gives the tables that a decision drops.
func (c *Catalog) goneTables(dec *decision) (gone []*Table) {
	for _, d := range dec.Dropped {
		gone = append(gone, c.byID[d.Record.ID])
	}
	for _, id := range dec.Gone {
		gone = append(gone, c.byID[id])
	}
	return slices.DeleteFunc(gone, func(t *Table) bool { return t == nil })
}

// enforced makes what is in memory, and what other engines read, what a decision says whose folders are moved.
func (c *Catalog) enforced(ctx context.Context, dec *decision) error {
	gone := c.goneTables(dec)
	renamed := map[*Table]*tableDef{} // by their old definitions; nil: it is new
	for i := range dec.Records {
		r := &dec.Records[i]
		t := c.byID[r.ID]
		if t == nil {
			continue
		}
		d := dec.defs[r.ID]
		if d == nil {
			p, err := timeline.ReadProperties(ctx, c.store, c.object(r.Dir))
			if err != nil {
				return err
			}
			if d, err = c.compile(r, p); err != nil {
				return err
			}
		}
		c.viewMu.Lock()
		if cold := c.cold(t.id); cold != nil && d.hasNewIndex(t.def.Load()) {
			cold = cold.with(cold.tl, cold.view)
			cold.shape++
			c.setCold(t.id, cold)
		}
		c.viewMu.Unlock()
		if t.draft {
			t.draft = false
			renamed[t] = nil
		} else if old := t.def.Load(); old.database != d.database || old.name != d.name {
			renamed[t] = old
			if old.dir != d.dir {
				c.reader.Forget(old.dir + "/")
				t.folderTime.Store(0)
			}
		}
		t.setDef(d)
		if next := dec.Auto[r.ID]; next > 0 {
			t.auto.Lock()
			t.auto.next, t.auto.saved = next, next
			t.auto.Unlock()
		}
	}
	c.mu.Lock()
	for _, old := range renamed {
		if old != nil {
			delete(c.databases[strings.ToLower(old.database)].tables, strings.ToLower(old.name))
		}
	}
	for t := range renamed {
		d := t.def.Load()
		c.databases[strings.ToLower(d.database)].tables[strings.ToLower(d.name)] = t
	}
	for _, t := range gone {
		delete(c.byID, t.id)
		d := t.def.Load()
		if dd := c.databases[strings.ToLower(d.database)]; dd != nil && dd.tables[strings.ToLower(d.name)] == t {
			delete(dd.tables, strings.ToLower(d.name))
		}
	}
	if dec.Databases != nil {
		c.setDatabases(dec.Databases)
	}
	c.mu.Unlock()
	c.viewMu.Lock()
	for _, t := range gone {
		c.setCold(t.id, nil)
	}
	c.viewMu.Unlock()
	if err := c.takeSteps(ctx, &dec.Steps); err != nil {
		// The change stands. What other engines read of it is written before the next change or at the next start.
		c.stepsLeft = true
		c.log.Error("write what follows from a change of definitions; it is repeated", "err", err)
	}
	return nil
}

// hasNewIndex tells whether a definition has an index that an earlier one has not.
func (d *tableDef) hasNewIndex(old *tableDef) bool {
	return slices.ContainsFunc(d.indexes, func(x tableIndex) bool {
		return !slices.ContainsFunc(old.indexes, func(o tableIndex) bool { return o.no == x.no })
	})
}

// close ends the use of a dropped table.
func (t *Table) close() {
	c := t.c
	t.dropped.Store(true)
	t.runs.clear(&c.runBytes)
	c.commitMu.Lock()
	c.hotBytes.Add(-t.buf.bytes)
	t.buf = buffered{}
	c.commitMu.Unlock()
	c.reader.Forget(t.def.Load().dir + "/")
}

// savedDatabases describes the databases and their objects as they are.
func (c *Catalog) savedDatabases() (out []savedDatabase) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.listDatabases()
}

// listDatabases is savedDatabases with mu held.
func (c *Catalog) listDatabases() (out []savedDatabase) {
	for _, k := range sortedKeys(c.databases) {
		d := c.databases[k]
		s := savedDatabase{Name: d.Name, Body: d.Body, Objects: map[string][]Object{}}
		for kind, dbs := range c.objects {
			if len(dbs[k]) > 0 {
				s.Objects[kind] = dbs[k]
			}
		}
		out = append(out, s)
	}
	return out
}

// setDatabases makes databases and objects those of a list; tables stay where they are. Called with mu held.
func (c *Catalog) setDatabases(list []savedDatabase) {
	old := maps.Clone(c.databases)
	clear(c.databases)
	c.objects = map[string]map[string][]Object{}
	for _, s := range list {
		k := strings.ToLower(s.Name)
		d := &database{Name: s.Name, Body: s.Body, tables: map[string]*Table{}}
		if o := old[k]; o != nil {
			d.tables = o.tables
		}
		c.databases[k] = d
		for kind, objects := range s.Objects {
			c.setObjects(kind, s.Name, objects)
		}
	}
}
