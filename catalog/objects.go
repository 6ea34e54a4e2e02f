package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checked is a JSON file with the checksum of its body.
type checked struct {
	CRC32C uint32          `json:"crc32c"`
	Body   json.RawMessage `json:"body"`
}

const warehouseVersion = 1

func (c *Catalog) warehouseName() string { return join(c.root, objectsFolder, "warehouse.json") }

// readWarehouse reads the warehouse file; nil if there is none yet.
func (c *Catalog) readWarehouse(ctx context.Context) (*warehouseFile, error) {
	b, err := c.readObject(ctx, c.warehouseName())
	if errors.Is(err, storage.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f checked
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, &storage.CorruptError{Name: c.warehouseName(), Offset: -1, Err: err}
	}
	if crc32.Checksum(f.Body, castagnoli) != f.CRC32C {
		return nil, &storage.CorruptError{Name: c.warehouseName(), Offset: -1, Err: errors.New("checksum differs")}
	}
	w := &warehouseFile{}
	if err := json.Unmarshal(f.Body, w); err != nil {
		return nil, &storage.CorruptError{Name: c.warehouseName(), Offset: -1, Err: err}
	}
	if w.Version != warehouseVersion {
		return nil, fmt.Errorf("%w: %s of version %d, this program knows %d", storage.ErrUnsupported, c.warehouseName(), w.Version, warehouseVersion)
	}
	return w, nil
}

func (c *Catalog) readObject(ctx context.Context, name string) ([]byte, error) {
	f, err := c.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, f.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// saveWarehouse writes the warehouse file; clean says that nothing waits for a flush any more.
func (c *Catalog) saveWarehouse(ctx context.Context, clean bool) error {
	dropped, err := c.droppedTables()
	if err != nil {
		return fmt.Errorf("save warehouse: %w", err)
	}
	for i := range dropped {
		dropped[i] = dropped[i].outlive()
	}
	databases, err := c.droppedDatabases()
	if err != nil {
		return fmt.Errorf("save warehouse: %w", err)
	}
	c.mu.RLock()
	w := warehouseFile{Version: warehouseVersion, ID: c.id, NextTable: c.nextID, Clean: clean, Dropped: dropped, DroppedDatabases: databases}
	if clean {
		w.Clock, w.Temps = c.stopped, c.store.TempsLeft()
	}
	w.Databases = c.listDatabases()
	for _, k := range sortedKeys(c.databases) {
		d := c.databases[k]
		for _, n := range sortedKeys(d.tables) {
			if t := d.tables[n]; t.Spec().Attached {
				w.Attached = append(w.Attached, savedAttached{d.Name, t.Name(), t.record.Dir})
			}
		}
	}
	c.mu.RUnlock()
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	b, err := json.Marshal(checked{crc32.Checksum(body, castagnoli), body})
	if err != nil {
		return err
	}
	if err := c.store.Replace(ctx, c.warehouseName(), b); err != nil {
		return fmt.Errorf("save warehouse: %w", err)
	}
	return nil
}

// Databases lists the databases by name.
func (c *Catalog) Databases() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	for _, d := range c.databases {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out
}

// Database finds a database; names compare without regard to case.
func (c *Catalog) Database(name string) (spelled string, body []byte, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.databases[strings.ToLower(name)]
	if d == nil {
		return "", nil, false
	}
	return d.Name, d.Body, true
}

// CreateDatabase makes a database; body is kept for the caller.
func (c *Catalog) CreateDatabase(ctx context.Context, name string, body []byte) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return err
	}
	if _, _, ok := c.Database(name); ok {
		return fmt.Errorf("%w: database %s", ErrExists, name)
	}
	return c.decide(ctx, &decision{Databases: append(c.savedDatabases(), savedDatabase{Name: name, Body: body})})
}

// SetDatabase replaces what is kept for the caller.
func (c *Catalog) SetDatabase(ctx context.Context, name string, body []byte) error {
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if err := c.finishChanges(ctx); err != nil {
		return err
	}
	list := c.savedDatabases()
	for i := range list {
		if strings.EqualFold(list[i].Name, name) {
			list[i].Body = body
			return c.decide(ctx, &decision{Databases: list})
		}
	}
	return fmt.Errorf("%w: database %s", ErrNotFound, name)
}

// Objects lists the objects of a kind in a database, in the order in which they were made.
func (c *Catalog) Objects(kind, db string) []Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.objects[kind][strings.ToLower(db)])
}

// HasObjects says whether a database has any object of a kind.
func (c *Catalog) HasObjects(kind, db string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.objects[kind][strings.ToLower(db)]) > 0
}

func (c *Catalog) setObjects(kind, db string, list []Object) {
	if c.objects[kind] == nil {
		c.objects[kind] = map[string][]Object{}
	}
	c.objects[kind][strings.ToLower(db)] = list
}

// escapeName makes a folder name of a database's or table's name: what a file system or another engine could misread is encoded.
func escapeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		ch := name[i]
		switch {
		case ch < 0x20 || ch == 0x7f || strings.IndexByte(`/\%:*?"<>|#`, ch) >= 0 || ch == '.' && i == 0:
			fmt.Fprintf(&b, "%%%02X", ch)
		default:
			b.WriteByte(ch)
		}
	}
	return b.String()
}

func unescapeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		var n int
		if name[i] == '%' && i+2 < len(name) {
			if _, err := fmt.Sscanf(name[i+1:i+3], "%02X", &n); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
