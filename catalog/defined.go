package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// definedMax is how many definitions of a table are kept; the oldest go first.
const definedMax = 256

// defined is a definition that a table had from a sequence on, until the next one.
type defined struct {
	from    index.Seq
	version uint64
	def     definition
	once    *compiledOnce
}

type compiledOnce struct {
	mu  sync.Mutex
	now *tableDef // of which d is the past
	d   *tableDef
}

// definedLog has the definitions of a table, oldest first.
type definedLog struct {
	mu   sync.Mutex
	list []defined
}

func (l *definedLog) last() (defined, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		return defined{}, false
	}
	return l.list[len(l.list)-1], true
}

// first gives the sequence from which on definitions are known; the largest one if none is.
func (l *definedLog) first() index.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		return ^index.Seq(0)
	}
	return l.list[0].from
}

// noteDefinition writes the table's definition to the log if it is another one than before; called with commitMu held.
func (t *Table) noteDefinition(b *pebble.Batch) error {
	r := &t.record
	def := r.Def
	def.AutoNext = 0
	if last, ok := t.defs.last(); ok {
		if last.version == r.Version {
			return nil
		}
		before, err := json.Marshal(last.def)
		if err != nil {
			return err
		}
		after, err := json.Marshal(def)
		if err != nil {
			return err
		}
		if string(before) == string(after) {
			return nil
		}
	}
	e := defined{from: t.c.clock.next(), version: r.Version, def: def, once: &compiledOnce{}}
	if e.def.Schemas = slices.Clone(def.Schemas); r.Version == 1 && r.Created > 0 && !def.Attached {
		e.from = r.Created
	}
	v, err := json.Marshal(savedDefined{r.Version, e.def})
	if err != nil {
		return err
	}
	t.defs.mu.Lock()
	defer t.defs.mu.Unlock()
	t.defs.list = append(t.defs.list, e)
	if n := len(t.defs.list) - definedMax; n > 0 {
		for _, old := range t.defs.list[:n] {
			if err := b.Delete(definedKey(t.id, old.from), nil); err != nil {
				return err
			}
		}
		t.defs.list = slices.Clone(t.defs.list[n:])
	}
	return b.Set(definedKey(t.id, e.from), v, nil)
}

// defineAt moves the newest definition, if it is newer than a version, to a sequence: that of the instant that made the rows fit it.
func (t *Table) defineAt(b *pebble.Batch, newer uint64, seq index.Seq) error {
	t.defs.mu.Lock()
	defer t.defs.mu.Unlock()
	n := len(t.defs.list) - 1
	if n < 0 || t.defs.list[n].version <= newer {
		return nil
	}
	e := t.defs.list[n]
	if err := b.Delete(definedKey(t.id, e.from), nil); err != nil {
		return err
	}
	e.from = seq
	t.defs.list = append(slices.Clone(t.defs.list[:n]), e)
	v, err := json.Marshal(savedDefined{e.version, e.def})
	if err != nil {
		return err
	}
	return b.Set(definedKey(t.id, e.from), v, nil)
}

// savedDefined is a definition as the hot tier keeps it (JSON).
type savedDefined struct {
	Version uint64     `json:"version"`
	Def     definition `json:"def"`
}

func definedKey(t index.TableID, from index.Seq) []byte {
	return binary.BigEndian.AppendUint64(idKey(prefixDefined, t), uint64(from))
}

func (t *Table) loadDefinitions() error {
	it, err := t.c.db.NewIter(&pebble.IterOptions{LowerBound: idKey(prefixDefined, t.id), UpperBound: idKey(prefixDefined, t.id+1)})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		var s savedDefined
		if err := json.Unmarshal(v, &s); err != nil {
			return err
		}
		t.defs.list = append(t.defs.list, defined{index.Seq(binary.BigEndian.Uint64(it.Key()[5:])), s.Version, s.Def, &compiledOnce{}})
	}
	return it.Error()
}

// definitionAt gives the table's definition at a sequence. Of what lies before the first that is known, the first is given.
func (t *Table) definitionAt(seq index.Seq) (*tableDef, error) {
	now := t.def.Load()
	t.defs.mu.Lock()
	list := t.defs.list
	t.defs.mu.Unlock()
	n := sort.Search(len(list), func(i int) bool { return list[i].from > seq })
	n = max(n, 1)
	if n >= len(list) {
		return now, nil // the newest, or one that is being made
	}
	e := list[n-1]
	e.once.mu.Lock()
	defer e.once.mu.Unlock()
	if e.once.now == now {
		return e.once.d, nil
	}
	d, err := t.compilePast(now, &e.def)
	if err != nil {
		return nil, err
	}
	for _, later := range list[n:] {
		spec, _, err := later.def.spec()
		if err != nil {
			return nil, err
		}
		if !d.heldBy(spec.Schema) {
			d.until = later.from
			break
		}
	}
	e.once.now, e.once.d = now, d
	return d, nil
}

// compilePast makes a definition that the table had; it lies where the table lies now.
func (t *Table) compilePast(now *tableDef, def *definition) (*tableDef, error) {
	d, err := t.c.compile(&tableRecord{ID: t.id, Database: now.database, Name: now.name, Version: now.version, Created: now.created, Def: *def}, nil)
	if err != nil {
		return nil, err
	}
	d.dir, d.urlCode, d.payload, d.zone, d.past = now.dir, now.urlCode, now.payload, now.zone, now.past
	if d.spec.Attached {
		d.merge, d.rules, d.layout, d.properties, d.history = now.merge, now.rules, now.layout, now.properties, now.history
	}
	// Rows from before a later commit may be written in a later schema.
	for i := len(d.schemas); i < len(now.schemas); i++ {
		s := now.schemas[i]
		var dec *storage.RowDecoder
		if s != nil && d.heldBy(s) {
			if dec, err = storage.NewRowDecoder(s, d.spec.Schema); err != nil {
				dec = nil
			}
		}
		d.laterSchemas = append(d.laterSchemas, dec)
	}
	return d, nil
}

// heldBy tells whether rows of a later schema have all that the table's had.
func (d *tableDef) heldBy(later *storage.Schema) bool {
	for _, f := range d.spec.Schema.Fields {
		if i := later.Index(f.Name); i < 0 || later.Fields[i].Type != f.Type {
			return false
		}
	}
	return true
}

// keyedSince gives the sequence from which on the table has the primary key that it has now, as far as definitions are known.
func (t *Table) keyedSince() index.Seq {
	t.defs.mu.Lock()
	list := t.defs.list
	t.defs.mu.Unlock()
	n := len(list) - 1
	if n < 0 {
		return 0
	}
	now := &list[n].def
	for ; n > 0; n-- {
		if was := &list[n-1].def; !slices.Equal(was.Key, now.Key) || was.PerPartition != now.PerPartition || !slices.Equal(was.Partition, now.Partition) {
			return list[n].from
		}
	}
	return 0
}

// lostAt gives the last change of the definition after which rows do not have all that they had before; 0: there was none.
func (t *Table) lostAt() index.Seq {
	t.defs.mu.Lock()
	list := t.defs.list
	t.defs.mu.Unlock()
	if len(list) < 2 {
		return 0
	}
	now, _, err := list[len(list)-1].def.spec()
	if err != nil {
		return 0
	}
	for n := len(list) - 1; n > 0; n-- {
		spec, _, err := list[n-1].def.spec()
		if err != nil {
			return list[n].from
		}
		if d := (&tableDef{spec: spec}); !d.heldBy(now.Schema) {
			return list[n].from
		}
	}
	return 0
}

// definitionOf gives the definition as of an instant that lies before what the log tells: the present one with the columns that the timeline names.
func (t *Table) definitionOf(ctx context.Context, tl *timeline.Timeline, at storage.InstantTime) (*tableDef, error) {
	now := t.def.Load()
	avro, of, err := timeline.TableSchemaAt(ctx, t.c.store, now.dir, tl, at)
	if err != nil || avro == "" {
		return now, err
	}
	version := now.schemaVersion
	if now.history != nil {
		version = now.history.VersionAt(of)
	}
	s, err := storage.ParseAvro(avro)
	if err != nil || slices.Equal(s.Fields, now.spec.Schema.Fields) && version == now.schemaVersion {
		return now, err
	}
	t.c.commitMu.Lock()
	def := t.record.Def
	t.c.commitMu.Unlock()
	def.Schemas, def.SchemaVersion = []string{s.Avro(false)}, version
	def.Indexes = nil
	def.setSQL(nil)
	d, err := t.compilePast(now, &def)
	if err != nil {
		return now, nil // its key has other columns now
	}
	return d, nil
}
