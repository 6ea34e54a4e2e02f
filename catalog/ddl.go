package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Keys of hoodie.properties by which the tables' definitions outlive the state folder. Hudi's writers keep them.
const (
	propTable = "lakesql.table"
)

// Table finds a table; names compare without regard to case.
func (c *Catalog) Table(db, name string) (*Table, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if d := c.databases[strings.ToLower(db)]; d != nil {
		if t := d.tables[strings.ToLower(name)]; t != nil {
			return t, true
		}
	}
	return nil, false
}

// TableNames lists the tables of a database by name.
func (c *Catalog) TableNames(db string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	if d := c.databases[strings.ToLower(db)]; d != nil {
		for _, t := range d.tables {
			out = append(out, t.Name())
		}
	}
	slices.Sort(out)
	return out
}

// reserve checks the name of a new table and gives it an id.
func (c *Catalog) reserve(db, name string) (spelled string, id index.TableID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.databases[strings.ToLower(db)]
	if d == nil {
		return "", 0, fmt.Errorf("%w: database %s", ErrNotFound, db)
	}
	if d.tables[strings.ToLower(name)] != nil {
		return "", 0, fmt.Errorf("%w: table %s.%s", ErrExists, db, name)
	}
	for _, t := range c.byID {
		if o := t.def.Load(); t.draft && strings.EqualFold(o.database, db) && strings.EqualFold(o.name, name) {
			return "", 0, errDraft(db, name)
		}
	}
	if len(name) == 0 || len(escapeName(name)) > 200 {
		return "", 0, fmt.Errorf("%w: table name %q", ErrInvalid, name)
	}
	c.nextID++
	return d.Name, c.nextID - 1, nil
}

// CreateTable makes an empty table: a folder with hoodie.properties, which another engine can open at once.
func (c *Catalog) CreateTable(ctx context.Context, db, name string, spec TableSpec) (*Table, error) {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return nil, err
	}
	t, err := c.makeTable(ctx, db, name, spec)
	if err != nil {
		return nil, err
	}
	return t, c.register(ctx, t, &coldState{tl: &timeline.Timeline{}, view: &timeline.View{}, since: t.record.Created})
}

// makeTable makes a table's folder; called with ddl held.
func (c *Catalog) makeTable(ctx context.Context, db, name string, spec TableSpec) (*Table, error) {
	spelled, id, err := c.reserve(db, name)
	if err != nil {
		return nil, err
	}
	s := *spec.Schema
	if s.Name == "" {
		word := avroName(name)
		s.Name, s.Namespace = word+"_record", "hoodie."+word
	}
	for _, f := range s.Fields {
		if strings.HasPrefix(f.Name, "_hoodie_") {
			return nil, fmt.Errorf("%w: column name %s is Hudi's own", ErrInvalid, f.Name)
		}
	}
	spec.Schema = &s
	created := c.clock.stamp()
	r := &tableRecord{
		ID: id, Database: spelled, Name: name, Dir: join(escapeName(spelled), escapeName(name)), Version: 1, Created: created,
		Def: *spec.define(nil, created),
	}
	p, err := c.properties(r, &spec)
	if err != nil {
		return nil, err
	}
	d, err := c.compile(r, p)
	if err != nil {
		return nil, err
	}
	if err := c.vacate(ctx, d.dir); err != nil {
		return nil, fmt.Errorf("create table %s: %w", d, err)
	}
	if err := timeline.Create(ctx, c.store, d.dir, p); err != nil {
		return nil, fmt.Errorf("create table %s: %w", d, err)
	}
	t := &Table{c: c, id: id, record: *r}
	t.def.Store(d)
	return t, nil
}

// register makes a table known.
func (c *Catalog) register(ctx context.Context, t *Table, cold *coldState) error {
	b := c.db.NewBatch()
	defer b.Close()
	c.commitMu.Lock()
	err := t.saveRecord(b, cold)
	c.commitMu.Unlock()
	if err = firstError(err, c.saveNext(b)); err != nil {
		return err
	}
	if err := c.commitBatch(b); err != nil {
		return err
	}
	c.viewMu.Lock()
	c.setCold(t.id, cold)
	c.viewMu.Unlock()
	d := t.def.Load()
	c.mu.Lock()
	c.byID[t.id] = t
	c.watch(t)
	if c.databases[strings.ToLower(d.database)] == nil {
		c.databases[strings.ToLower(d.database)] = &database{Name: d.database, tables: map[string]*Table{}}
	}
	c.databases[strings.ToLower(d.database)].tables[strings.ToLower(d.name)] = t
	c.mu.Unlock()
	if d.spec.Attached && !c.rebuilding { // a start that is cut short needs the file as it was
		return c.saveWarehouse(ctx, false)
	}
	return nil
}

// saveNext notes the next table id: ids are never used again, also when nothing of a table is left.
func (c *Catalog) saveNext(b *pebble.Batch) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return b.Set(metaKey(metaNext), appendUint(nil, uint64(c.nextID)), nil)
}

// avroName makes a name that Avro allows.
func avroName(name string) string {
	b := []byte(strings.ToLower(name))
	for i, ch := range b {
		if !(ch >= 'a' && ch <= 'z' || ch == '_' || ch >= '0' && ch <= '9' && i > 0) {
			b[i] = '_'
		}
	}
	return string(b)
}

// properties makes hoodie.properties of a table of ours, version 6.
func (c *Catalog) properties(r *tableRecord, spec *TableSpec) (timeline.Properties, error) {
	def, err := json.Marshal(r.Def)
	if err != nil {
		return nil, err
	}
	var key []string
	for _, k := range spec.Key {
		key = append(key, k.Column)
	}
	p := timeline.Properties{
		timeline.KeyName: r.Name, timeline.KeyDatabase: "", timeline.KeyVersion: "6", timeline.KeyLayoutVersion: "1",
		timeline.KeyType: timeline.CopyOnWrite, timeline.KeyTimezone: "UTC", timeline.KeyURLEncode: "true",
		timeline.KeyHiveStyle: fmt.Sprint(spec.HiveStyle), timeline.KeyCreateSchema: spec.Schema.Avro(false),
		timeline.KeyPayloadClass: timeline.PayloadOverwrite, timeline.KeyMergeStrategy: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
		propTable: string(def),
	}
	if len(key) > 0 {
		p[timeline.KeyRecordKeyFields] = strings.Join(key, ",")
	}
	p[timeline.KeyPartitionFields] = strings.Join(spec.Partition, ",")
	switch {
	case len(spec.Partition) == 0:
		p[timeline.KeyKeyGenerator] = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
	case len(key) == 1 && len(spec.Partition) == 1:
		p[timeline.KeyKeyGenerator] = "org.apache.hudi.keygen.SimpleKeyGenerator"
	default:
		p[timeline.KeyKeyGenerator] = "org.apache.hudi.keygen.ComplexKeyGenerator"
	}
	if spec.MergeOnRead {
		p[timeline.KeyType] = timeline.MergeOnRead
	}
	if spec.Ordering == storage.EventTime {
		p[timeline.KeyPrecombineField] = spec.OrderingField
		p[timeline.KeyPayloadClass] = timeline.PayloadDefault
		p[timeline.KeyMergeStrategy] = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
	}
	for k, v := range spec.Options {
		if strings.HasPrefix(k, "hoodie.") {
			if old, ok := p[k]; ok && old != v {
				return nil, fmt.Errorf("%w: option %s is %q for this table and cannot be %q", ErrInvalid, k, old, v)
			}
			p[k] = v
		}
	}
	return p, nil
}

// saveRecord writes the table's record with the instants that a cold state knows; called with commitMu held.
func (t *Table) saveRecord(b *pebble.Batch, cold *coldState) error {
	return t.saveRecordWith(b, cold, 0)
}

// saveRecordWith is saveRecord with what the same batch changes in the number of rows.
func (t *Table) saveRecordWith(b *pebble.Batch, cold *coldState, grown int64) error {
	r := &t.record
	r.Rows, r.Flushed, r.Trimmed, r.Since, r.Dropped = max(0, t.rows.Load()+grown), cold.flushed, cold.trimmed, cold.since, index.Seq(t.forgotten.Load())
	r.Last = index.Seq(t.lastSeq.Load())
	r.Low, r.Known = knownInstants(cold.tl)
	if r.Waits != nil && cold.flushed >= r.Waits.Last {
		r.Waits = nil
	}
	if t.gone != nil {
		return t.saveGone(b)
	}
	if err := t.noteDefinition(b); err != nil {
		return err
	}
	v, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.Set(idKey(prefixTable, t.id), v, nil)
}

// AttachTable takes in a table that another engine wrote, with its own schema. A location that is no absolute path is
// taken from the data folder. ErrExists: there is such a table; ErrInvalid: the folder is that of another one.
func (c *Catalog) AttachTable(ctx context.Context, db, name, location string) (*Table, error) {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return nil, err
	}
	spelled, id, err := c.reserve(db, name)
	if err != nil {
		return nil, err
	}
	location = strings.TrimPrefix(location, "file://")
	if !strings.HasPrefix(location, "/") {
		location = c.fs.PathJoin("/", c.dir, location)
	}
	dir := "/" + join(location)[1:]
	if t := c.standsIn(dir); t != nil {
		return nil, fmt.Errorf("%w: %s is the folder of table %s", ErrInvalid, dir, t)
	}
	if strings.HasPrefix(c.object(dir), c.object(droppedFolder)+"/") {
		return nil, fmt.Errorf("%w: %s is the folder of a dropped table", ErrInvalid, dir)
	}
	return c.attach(ctx, spelled, name, dir, id)
}

// standsIn gives the table whose folder this is, by whatever path; nil: none. Two tables over one folder would each take the instants of the
// other for their own.
func (c *Catalog) standsIn(dir string) *Table {
	here := realPath(dir)
	for _, t := range c.tablesByID() {
		if there := t.Location(); there == dir || realPath(there) == here {
			return t
		}
	}
	return nil
}

// realPath follows symbolic links, if there is such a path.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func (c *Catalog) attach(ctx context.Context, db, name, dir string, id index.TableID) (*Table, error) {
	object := c.object(dir)
	p, err := timeline.ReadProperties(ctx, c.store, object)
	if errors.Is(err, storage.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s holds no Hudi table", ErrNotFound, c.path(object))
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s.%s: %w", db, name, err)
	}
	if err := p.Supported(); err != nil {
		return nil, fmt.Errorf("attach %s.%s: %w", db, name, err)
	}
	tl, err := timeline.Load(ctx, c.store, object)
	if err != nil {
		return nil, fmt.Errorf("attach %s.%s: %w", db, name, err)
	}
	h, err := timeline.SchemaHistory(ctx, c.store, object)
	if err != nil {
		return nil, fmt.Errorf("attach %s.%s: %w", db, name, err)
	}
	spec, created, of, err := c.foreignSpec(ctx, object, p, tl)
	if err != nil {
		return nil, fmt.Errorf("attach %s.%s: %w", db, name, err)
	}
	r := &tableRecord{ID: id, Database: db, Name: name, Dir: dir, Version: 1, Created: created, Def: *spec.define(nil, created)}
	if h != nil {
		r.Def.SchemaVersion = h.VersionAt(of)
	}
	d, err := c.compile(r, p)
	if err != nil {
		return nil, err
	}
	d.setHistory(h)
	t := &Table{c: c, id: id, record: *r}
	t.def.Store(d)
	c.viewMu.Lock()
	c.setCold(id, &coldState{tl: &timeline.Timeline{}, view: &timeline.View{}})
	c.viewMu.Unlock()
	t.slices.Lock()
	err = t.adoptLocked(ctx)
	t.slices.Unlock()
	if err == nil {
		err = c.register(ctx, t, c.cold(id))
	}
	if err != nil {
		c.viewMu.Lock()
		c.setCold(id, nil)
		c.viewMu.Unlock()
		return nil, firstError(err, c.dropState(id))
	}
	return t, nil
}

// foreignSpec derives the specification of a table from its properties and its newest schema, which is that of the instant of.
func (c *Catalog) foreignSpec(ctx context.Context, dir string, p timeline.Properties, tl *timeline.Timeline) (_ TableSpec, _ index.Seq, of storage.InstantTime, _ error) {
	avro, of, err := timeline.TableSchemaAt(ctx, c.store, dir, tl, "")
	if err != nil {
		return TableSpec{}, 0, "", err
	}
	if avro == "" {
		return TableSpec{}, 0, "", fmt.Errorf("%w: the table has no commit with a schema yet", ErrInvalid)
	}
	schema, err := storage.ParseAvro(avro)
	if err != nil {
		return TableSpec{}, 0, "", fmt.Errorf("schema in %s: %w", schemaFile(tl, of), err)
	}
	s := TableSpec{
		Schema: schema, Partition: p.PartitionFields(), HiveStyle: p.HiveStyle(), MergeOnRead: p.TableType() == timeline.MergeOnRead,
		PerPartition: len(p.PartitionFields()) > 0, Attached: true,
	}
	for _, f := range p.RecordKeyFields() {
		s.Key = append(s.Key, KeyColumn{Column: f})
	}
	mode, _ := p.Ordering()
	if fields := p.OrderingFields(); mode == storage.EventTime && len(fields) > 0 {
		s.Ordering, s.OrderingField = mode, fields[0]
	}
	created := index.Seq(0)
	if first := tl.Start(); first != "" {
		if at, err := timeline.ParseTime(first, p.Timezone()); err == nil {
			created = index.Seq(at.UnixMicro())
		}
	}
	return s, created, of, nil
}

// schemaFile names the file below a table's folder that holds the schema which an instant gave it; "": the schema that it was created with.
func schemaFile(tl *timeline.Timeline, of storage.InstantTime) string {
	if in, ok := tl.Get(of); ok {
		return join(".hoodie", in.FileName(timeline.Completed))
	}
	return ".hoodie/hoodie.properties"
}

// recoverTables takes in the tables of a warehouse whose state folder is gone, after a clean stop or because the loss was accepted.
func (c *Catalog) recoverTables(ctx context.Context, folders []tableFolder, file *warehouseFile) error {
	for _, f := range folders {
		id := c.nextID
		c.nextID++
		p, err := timeline.ReadProperties(ctx, c.store, c.object(f.dir))
		if err != nil {
			return fmt.Errorf("table %s.%s: %w", f.database, f.name, err)
		}
		if p[propTable] == "" { // copied in by hand
			if _, err := c.attach(ctx, f.database, f.name, f.dir, id); err != nil {
				return err
			}
			continue
		}
		r := &tableRecord{ID: id, Database: f.database, Name: f.name, Dir: f.dir, Version: 1}
		if err := json.Unmarshal([]byte(p[propTable]), &r.Def); err != nil {
			return fmt.Errorf("definition of %s.%s: %w", f.database, f.name, err)
		}
		r.Created = r.Def.Created
		d, err := c.compile(r, p)
		if err != nil {
			return err
		}
		t := &Table{c: c, id: id, record: *r}
		t.def.Store(d)
		t.auto.saved = r.Def.AutoNext
		if err := c.restoreTable(ctx, t); err != nil {
			return fmt.Errorf("table %s: %w", d, err)
		}
	}
	if file != nil {
		for _, a := range file.Attached {
			if _, ok := c.Table(a.Database, a.Name); ok {
				continue
			}
			id := c.nextID
			c.nextID++
			_, err := c.attach(ctx, a.Database, a.Name, a.Location, id)
			var damaged *storage.CorruptError
			switch useless := errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) || errors.Is(err, storage.ErrUnsupported) || errors.As(err, &damaged); {
			case err == nil:
			case useless && c.o.AcceptLostState:
				c.log.Error("attached table cannot be used and is dropped", "table", a.Database+"."+a.Name, "location", a.Location, "err", err)
			case useless:
				return fmt.Errorf("%w; put its folder back, or start with --accept-lost-state to drop the table", err)
			default:
				return err
			}
		}
	}
	return nil
}

// restoreTable reads a table of ours whose state is gone, and makes it known.
func (c *Catalog) restoreTable(ctx context.Context, t *Table) error {
	if err := c.restoreIndex(ctx, t); err != nil {
		return err
	}
	return c.register(ctx, t, c.cold(t.id))
}

// restoreIndex finds the rows of a table of ours whose state is gone: instants that are pending are dead, since no other process writes for
// this warehouse.
func (c *Catalog) restoreIndex(ctx context.Context, t *Table) error {
	d := t.def.Load()
	tl, err := timeline.Load(ctx, c.store, d.dir)
	if err != nil {
		return err
	}
	cold := &coldState{tl: &timeline.Timeline{}, view: &timeline.View{}}
	if at, err := timeline.ParseTime(tl.Newest(), d.zone); err == nil {
		c.clock.raise(index.Seq(at.UnixMicro()))
	}
	for _, in := range tl.Completed() {
		at, err := timeline.ParseTime(in.Time, d.zone)
		if err != nil {
			return err
		}
		cold.own = append(cold.own, ownInstant{time: in.Time, cut: index.Seq(at.UnixMicro())})
	}
	c.setCold(t.id, cold)
	a, err := t.reindex(ctx, tl)
	if err != nil {
		return err
	}
	return t.swap(cold.with(tl, a.view), a, nil)
}

// dropState removes everything that the hot tier has of a table that is not known any more.
func (c *Catalog) dropState(id index.TableID) error {
	b := c.db.NewBatch()
	defer b.Close()
	return firstError(c.deleteState(b, id), c.commitBatch(b))
}

// changeDefinition changes what does not concern the rows.
func (c *Catalog) changeDefinition(ctx context.Context, t *Table, spec TableSpec, next uint64) error {
	return c.Change(ctx, Change{Tables: []TableChange{{Table: t, Spec: &spec, Columns: identity(len(spec.Schema.Fields)), AutoNext: next}}})
}

func identity(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// SetDefinition replaces the opaque SQL definition alone.
func (c *Catalog) SetDefinition(ctx context.Context, t *Table, sql []byte) error {
	spec := *t.Spec()
	spec.Definition = sql
	return c.changeDefinition(ctx, t, spec, 0)
}
