package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Table is a table of the warehouse. Its definition and its cold state are immutable values that are swapped.
type Table struct {
	c  *Catalog
	id index.TableID

	// ddl is held shared by commits on the table and exclusively while its definition changes.
	ddl sync.RWMutex
	// meta is held shared by transactions that use the table, exclusively while its definition changes; it is taken before c.ddl.
	meta metaLock
	// slices is the table-level slice lock: one flush, adoption or rewrite at a time.
	slices sync.Mutex

	def     atomic.Pointer[tableDef]
	dropped atomic.Bool
	draft   bool // guarded by c.ddl: no change made it known yet
	// broken says why the table cannot be used: its files were damaged or changed beyond support when the warehouse was opened. The
	// other tables go on; this one can be dropped, or mended by hand before the next start.
	broken  error
	foreign atomic.Pointer[storage.Schema] // schema of the newest instant if another engine wrote it

	folder     atomic.Pointer[timelineFolder]
	filesSeq   atomic.Uint64 // sequence of the last adoption that changed rows: the journal does not have them, and no lock was taken for them
	largeSeq   atomic.Uint64 // sequence of the last large statement, whose rows the journal does not have either
	undoneSeq  atomic.Uint64 // sequence of the last adoption that found instants undone: older transactions may have read them
	lastSeq    atomic.Uint64 // sequence of the last commit or adoption that changed rows
	forgotten  atomic.Uint64 // largest sequence of a delete of which the index keeps no trace
	rows       atomic.Int64  // estimate of the number of rows
	overlay    atomic.Pointer[overlay]
	runs       hotCache
	watched    atomic.Bool  // its timeline folder is watched
	doubled    atomic.Bool  // record.Doubled
	stirred    atomic.Bool  // something happened there since it was last looked at
	folderTime atomic.Int64 // modification time (ns) of the timeline folder when it was last read

	auto struct {
		sync.Mutex
		next  uint64 // next value; 0: not known yet
		saved uint64 // value in the hot tier
	}

	buf      buffered  // guarded by c.commitMu
	flushing time.Time // guarded by c.commitMu: commit time of the first row that a flush took out of buf; zero: none
	drawn    index.Seq // guarded by c.commitMu: cut of the last flush, also of one that failed

	unfinished bool // guarded by c.commitMu: a large statement was decided and its instant is not complete

	hist history    // what instants did to the file groups
	defs definedLog // what the table was defined as

	intent *intent        // guarded by slices: a flush that was begun and not settled, or a large statement
	lock   *timeline.Lock // guarded by slices: the lock against other engines, while it is held
	waits  time.Time      // guarded by slices: since when flushes wait for another engine
	record tableRecord    // guarded by c.commitMu: what the hot tier has of the table
	gone   *droppedTable  // it is dropped, and open to have its rows written; guarded by c.commitMu
}

// buffered describes the rows of a table that wait for a flush.
type buffered struct {
	rows   int64
	bytes  int64
	oldest time.Time              // commit time of the first of them
	linked map[index.TableID]bool // tables that were written by the same transactions
	cause  error                  // of the last flush that failed
	since  time.Time              // when it failed first
	tried  time.Time              // when it failed last
}

// tableDef is everything that follows from a table's definition.
type tableDef struct {
	database, name string
	dir            string // object name of the folder
	spec           *TableSpec
	version        uint64
	created        index.Seq
	past           index.Seq // nothing before it can be read with these columns

	schemas  []*storage.Schema // by schema version; the last is the current one
	decoders []*storage.RowDecoder
	keyCols  []index.Column
	part     []int // positions of the partition columns
	ordering int   // position of the ordering column, -1
	indexes  []tableIndex
	torn     func(ctx context.Context, partition, file string, offset int64) error
	payload  string // payload class that is none of the built-in ones
	urlCode  bool
	zone     *time.Location

	laterSchemas []*storage.RowDecoder // of a past definition: for the schema versions after its own
	until        index.Seq             // of a past definition: rows do not have all its columns from then on; 0: they still do

	// lockFolder has the lock file that other engines take, too; "": the table names a lock provider that is not spoken here.
	lockFolder string
	readOnly   string // why it cannot be written, "" if it can
	layout     timeline.Layout
	properties timeline.Properties // of an attached table, as the definition was made of them
	behind     string              // what another engine's schema has that it does not: see Table.setDef
	merge      storage.Ordering
	rules      storage.MergeRules

	history       *storage.SchemaHistory // of an attached table, nil if its columns go by their names
	schemaVersion int64                  // of the history, which has the names of spec
}

// tableIndex is a secondary index with its number in the index keyspace.
type tableIndex struct {
	no   uint32
	spec IndexSpec
	cols []index.Column
}

// tableRecord is what the hot tier keeps of a table (JSON under 't').
type tableRecord struct {
	ID       index.TableID         `json:"id"`
	Database string                `json:"database"`
	Name     string                `json:"name"`
	Dir      string                `json:"dir"`
	Version  uint64                `json:"version"`
	Created  index.Seq             `json:"created"`
	Rows     int64                 `json:"rows"`
	Low      storage.InstantTime   `json:"low"`             // every completed instant at or below is known
	Known    []storage.InstantTime `json:"known,omitempty"` // and these above
	Flushed  index.Seq             `json:"flushed"`         // rows at or below stand in the table's files
	Trimmed  index.Seq             `json:"trimmed,omitempty"`
	Since    index.Seq             `json:"since,omitempty"` // what every later instant did is known
	Dropped  index.Seq             `json:"dropped,omitempty"`
	Last     index.Seq             `json:"last,omitempty"`    // last commit or adoption when the record was written
	Doubled  bool                  `json:"doubled,omitempty"` // some rows may have equal keys: the index names one of them
	Draft    bool                  `json:"draft,omitempty"`   // it has rows, but the change that makes it known is not decided
	// Waits are rows that waited when the table was dropped and it was brought back: the journal may be trimmed up to later commits.
	Waits *savedBuffer `json:"waits,omitempty"`
	// Unindexed: the hot tier has nothing of its rows, which all stand in its files.
	Unindexed bool       `json:"unindexed,omitempty"`
	Def       definition `json:"def"`
}

// definition is the part of a table's definition that also stands in its hoodie.properties (key lakesql.table).
type definition struct {
	Schemas       []string          `json:"schemas"` // Avro, by schema version; "": one that nothing readable has any more
	Key           []KeyColumn       `json:"key,omitempty"`
	Partition     []string          `json:"partition,omitempty"`
	HiveStyle     bool              `json:"hive_style"`
	PerPartition  bool              `json:"per_partition,omitempty"`
	MergeOnRead   bool              `json:"mor"`
	EventTime     bool              `json:"event_time,omitempty"`
	OrderingField string            `json:"ordering,omitempty"`
	Indexes       []savedIndex      `json:"indexes,omitempty"`
	NextIndex     uint32            `json:"next_index"`
	Options       map[string]string `json:"options,omitempty"`
	AutoIncrement string            `json:"auto_increment,omitempty"`
	AutoNext      uint64            `json:"auto_next,omitempty"`
	Attached      bool              `json:"attached,omitempty"`
	Created       index.Seq         `json:"created"`
	SchemaVersion int64             `json:"schema_version,omitempty"` // of the schema-on-read history
	Past          index.Seq         `json:"past,omitempty"`           // what was before cannot be read with the present columns
	SQL           json.RawMessage   `json:"sql,omitempty"`            // opaque: the SQL definition, when it is JSON
	SQLBytes      []byte            `json:"sql_bytes,omitempty"`
}

type savedIndex struct {
	No uint32 `json:"no"`
	IndexSpec
}

func (d *definition) setSQL(b []byte) {
	d.SQL, d.SQLBytes = nil, nil
	if json.Valid(b) {
		d.SQL = b
	} else if len(b) > 0 {
		d.SQLBytes = b
	}
}

func (d *definition) sql() []byte {
	if len(d.SQL) > 0 {
		return d.SQL
	}
	return d.SQLBytes
}

// spec rebuilds the specification.
func (d *definition) spec() (*TableSpec, []*storage.Schema, error) {
	if len(d.Schemas) == 0 {
		return nil, nil, fmt.Errorf("%w: a table definition without schema", ErrInvalid)
	}
	var all []*storage.Schema
	for _, a := range d.Schemas {
		if a == "" {
			all = append(all, nil)
			continue
		}
		s, err := storage.ParseAvro(a)
		if err != nil {
			return nil, nil, fmt.Errorf("read table schema: %w", err)
		}
		all = append(all, s)
	}
	s := &TableSpec{
		Schema: all[len(all)-1], Key: d.Key, Partition: d.Partition, HiveStyle: d.HiveStyle, PerPartition: d.PerPartition,
		MergeOnRead: d.MergeOnRead, OrderingField: d.OrderingField, Options: d.Options, AutoIncrement: d.AutoIncrement,
		Definition: d.sql(), Attached: d.Attached,
	}
	if d.EventTime {
		s.Ordering = storage.EventTime
	}
	for _, x := range d.Indexes {
		s.Indexes = append(s.Indexes, x.IndexSpec)
	}
	return s, all, nil
}

// define turns a specification into a definition, keeping the schema versions and index numbers of an earlier one.
func (s *TableSpec) define(old *definition, created index.Seq) *definition {
	d := &definition{
		Key: s.Key, Partition: s.Partition, HiveStyle: s.HiveStyle, PerPartition: s.PerPartition, MergeOnRead: s.MergeOnRead,
		EventTime: s.Ordering == storage.EventTime, OrderingField: s.OrderingField, Options: s.Options,
		AutoIncrement: s.AutoIncrement, Attached: s.Attached, Created: created,
	}
	d.setSQL(s.Definition)
	avro := s.Schema.Avro(false)
	if old != nil {
		d.Schemas = slices.Clone(old.Schemas)
		d.NextIndex = old.NextIndex
		d.AutoNext = old.AutoNext
		d.Past = old.Past
	}
	if n := len(d.Schemas); n == 0 || d.Schemas[n-1] != avro {
		d.Schemas = append(d.Schemas, avro)
	}
	for _, x := range s.Indexes {
		no, found := uint32(0), false
		if old != nil {
			for _, o := range old.Indexes {
				if o.Name == x.Name && slices.Equal(o.Columns, x.Columns) && o.Unique == x.Unique {
					no, found = o.No, true
				}
			}
		}
		if !found {
			no = d.NextIndex
			d.NextIndex++
		}
		d.Indexes = append(d.Indexes, savedIndex{no, x})
	}
	return d
}

// compile makes a tableDef of a record.
func (c *Catalog) compile(r *tableRecord, p timeline.Properties) (*tableDef, error) {
	spec, schemas, err := r.Def.spec()
	if err != nil {
		return nil, err
	}
	d := &tableDef{
		database: r.Database, name: r.Name, dir: c.object(r.Dir), spec: spec, version: r.Version, created: r.Created,
		schemas: schemas, ordering: -1, zone: time.UTC, merge: spec.Ordering, past: r.Def.Past, schemaVersion: r.Def.SchemaVersion,
	}
	cur := spec.Schema
	for i, s := range schemas {
		var dec *storage.RowDecoder
		if s != nil {
			if dec, err = storage.NewRowDecoder(s, cur); err != nil {
				if i == len(schemas)-1 {
					return nil, fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
				}
				dec = nil // AlterTable sees to it that no row of that version is read
			}
		}
		d.decoders = append(d.decoders, dec)
	}
	d.torn = func(ctx context.Context, partition, file string, offset int64) error {
		return c.checkTorn(ctx, d.dir, partition, file, offset)
	}
	if d.keyCols, err = c.keyColumns(cur, spec.Key); err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
	}
	for _, name := range spec.Partition {
		i := cur.Index(name)
		if i < 0 {
			return nil, fmt.Errorf("%w: partition column %s of %s.%s does not exist", ErrInvalid, name, r.Database, r.Name)
		}
		d.part = append(d.part, i)
	}
	if spec.OrderingField != "" {
		if d.ordering = cur.Index(spec.OrderingField); d.ordering < 0 {
			return nil, fmt.Errorf("%w: ordering column %s of %s.%s does not exist", ErrInvalid, spec.OrderingField, r.Database, r.Name)
		}
	}
	for _, x := range r.Def.Indexes {
		cols, err := c.keyColumns(cur, x.Columns)
		if err != nil {
			return nil, fmt.Errorf("index %s of %s.%s: %w", x.Name, r.Database, r.Name, err)
		}
		d.indexes = append(d.indexes, tableIndex{x.No, x.IndexSpec, cols})
	}
	d.lockFolder = timeline.Properties(spec.Options).LockFolder(d.dir)
	if p != nil {
		d.lockFolder = p.LockFolder(d.dir)
		d.urlCode = p.URLEncode()
		m := p.Merging()
		d.payload = m.Payload
		if spec.Attached {
			d.merge, d.rules, d.zone, d.properties = m.Ordering, m.Rules, p.Timezone(), p
			if d.layout, err = p.Layout(); err != nil {
				return nil, fmt.Errorf("table %s.%s: %w", r.Database, r.Name, err)
			}
		}
	}
	if spec.Attached {
		for _, f := range cur.Fields {
			if f.Type.Kind == storage.Nested {
				d.readOnly = fmt.Sprintf("column %s is nested", f.Name)
			}
		}
		if keys := p.UnusualKeys(); keys != "" {
			d.readOnly = "key generator " + keys
		}
		if d.layout != timeline.Layout1 {
			d.readOnly = "table version " + p[timeline.KeyVersion]
		}
		switch {
		case d.payload != "":
			d.readOnly = "payload class " + d.payload
		case !reflect.DeepEqual(d.rules, storage.MergeRules{}):
			d.readOnly = "rows merge by other rules than commit time or one ordering field"
		}
	}
	return d, nil
}

func (c *Catalog) keyColumns(s *storage.Schema, key []KeyColumn) ([]index.Column, error) {
	var cols []index.Column
	for _, k := range key {
		i := s.Index(k.Column)
		if i < 0 {
			return nil, fmt.Errorf("%w: key column %s does not exist", ErrInvalid, k.Column)
		}
		col := index.Column{Field: i, Kind: s.Fields[i].Type.Kind, Prefix: k.Prefix}
		if k.Collation != "" && col.Kind == storage.String && c.o.SortKey != nil {
			collation, sort := k.Collation, c.o.SortKey
			col.Sort = func(s string) []byte { return sort(collation, s) }
		}
		cols = append(cols, col)
	}
	return cols, nil
}

func (d *tableDef) String() string { return d.database + "." + d.name }

// setHistory has columns go by the ids of a schema-on-read history. Rows that are written by names alone would not fit it.
func (d *tableDef) setHistory(h *storage.SchemaHistory) {
	if d.history = h; h != nil && d.readOnly == "" {
		d.readOnly = "it has a schema-on-read history (.hoodie/.schema)"
	}
}

// mayRead refuses a timeline that another engine brought into a form in which a table of ours cannot be written any more.
func (d *tableDef) mayRead(tl *timeline.Timeline) error {
	p := tl.Properties()
	switch {
	case p == nil:
		return nil
	case d.spec.Attached:
		return p.Supported()
	}
	return p.Writable()
}

// hidden tells whether the key is generated and no column.
func (d *tableDef) hidden() bool { return len(d.keyCols) == 0 }

// ID is never used again, also not after the table was dropped.
func (t *Table) ID() uint64         { return uint64(t.id) }
func (t *Table) Database() string   { return t.def.Load().database }
func (t *Table) Name() string       { return t.def.Load().name }
func (t *Table) Spec() *TableSpec   { return t.def.Load().spec }
func (t *Table) String() string     { return t.def.Load().String() }
func (t *Table) Created() time.Time { return seqTime(t.def.Load().created) }

// Location is the folder of the Hudi table.
func (t *Table) Location() string { return t.c.path(t.def.Load().dir) }

// Version rises with every change of the definition.
func (t *Table) Version() uint64 { return t.def.Load().version }

// RowCount is an estimate of the number of rows.
func (t *Table) RowCount() int64 { return max(0, t.rows.Load()) }

// Updated is the time of the last change of a row, or of the creation.
func (t *Table) Updated() time.Time {
	return seqTime(max(index.Seq(t.lastSeq.Load()), t.def.Load().created))
}

// DataBytes is the size of the newest base and log files and of the buffered rows.
func (t *Table) DataBytes() int64 {
	var n int64
	if cold := t.c.cold(t.id); cold != nil {
		for _, fs := range cold.newest() {
			if fs.Base != nil {
				n += fs.Base.Size
			}
			for _, l := range fs.Logs {
				n += l.Size
			}
		}
	}
	t.c.commitMu.Lock()
	defer t.c.commitMu.Unlock()
	return n + t.buf.bytes
}

// NextAutoIncrement hands out n values in a row and gives the first. They are durable with the commit that uses them.
func (t *Table) NextAutoIncrement(ctx context.Context, n uint64) (uint64, error) {
	t.auto.Lock()
	defer t.auto.Unlock()
	if err := t.loadAuto(ctx); err != nil {
		return 0, err
	}
	first := t.auto.next
	t.auto.next += n
	return first, nil
}

// PeekAutoIncrement gives the next value without taking it.
func (t *Table) PeekAutoIncrement(ctx context.Context) (uint64, error) {
	t.auto.Lock()
	defer t.auto.Unlock()
	err := t.loadAuto(ctx)
	return t.auto.next, err
}

// SetAutoIncrement sets the next value, as ALTER TABLE … AUTO_INCREMENT does.
func (t *Table) SetAutoIncrement(ctx context.Context, next uint64) error {
	return t.c.Change(ctx, Change{Tables: []TableChange{{Table: t, AutoNext: max(next, 1)}}})
}

// NoteAutoIncrement raises the counter above a value that a row brought itself.
func (t *Table) NoteAutoIncrement(v uint64) {
	t.auto.Lock()
	defer t.auto.Unlock()
	if t.auto.next != 0 && v >= t.auto.next && v+1 > v {
		t.auto.next = v + 1
	}
}

// loadAuto finds the next value: the saved counter, and above the largest value in the table (rows of other engines count).
func (t *Table) loadAuto(ctx context.Context) error {
	if t.auto.next != 0 {
		return nil
	}
	d := t.def.Load()
	next := max(t.auto.saved, 1)
	if col := d.spec.AutoIncrement; col != "" {
		tx, err := t.c.beginInternal(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for b, err := range tx.Scan(ctx, t, ScanOptions{Columns: []string{col}}) {
			if err != nil {
				return err
			}
			for i := range b.Rows {
				if v, ok := positive(b.Value(0, i)); ok && v >= next {
					next = v + 1
				}
			}
		}
	}
	t.auto.next = next
	return nil
}

func (d *tableDef) object(partition, name string) string { return path.Join(d.dir, partition, name) }
