package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/index"
)

// keyTable keeps the keys of a staged run with what belongs to them, in bounded memory: what comes is gathered and sorted, and goes
// to a database of its own below the staged folder when it is too much. Keys that come in ascending order cost no sorting and no map.
type keyTable struct {
	c   *Catalog
	dir string // path of the database; it is made when it is needed

	list      []keyEntry       // in the order of arrival
	at        map[string]int32 // position in list; nil while the keys ascend
	mem       arena
	bytes     int
	db        *pebble.DB
	dbLast    string // largest key in db
	spills    int
	ascending bool
}

type keyEntry struct {
	key, value string
	gone       bool
}

// keyTableBytes is how much of a keyTable waits in memory. Tests lower it.
var keyTableBytes = 12 << 20

func newKeyTable(c *Catalog, dir string) *keyTable { return &keyTable{c: c, dir: dir, ascending: true} }

// find gives the position of a key in the list.
func (k *keyTable) find(key string) (int, bool) {
	if !k.ascending {
		n, ok := k.at[key]
		return int(n), ok
	}
	if n := len(k.list); n == 0 || key > k.list[n-1].key {
		return n, false
	}
	return slices.BinarySearchFunc(k.list, key, func(e keyEntry, key string) int { return strings.Compare(e.key, key) })
}

// get gives what was set for a key; the value does not change.
func (k *keyTable) get(key []byte) (string, bool, error) {
	if n, ok := k.find(textView(key)); ok {
		return k.list[n].value, !k.list[n].gone, nil
	}
	if k.db == nil || textView(key) > k.dbLast {
		return "", false, nil
	}
	v, closer, err := k.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look up a staged key: %w", err)
	}
	defer closer.Close()
	return string(v), true, nil
}

func (k *keyTable) set(key, value []byte) error {
	return k.put(key, keyEntry{value: textView(k.mem.keep(value))})
}

func (k *keyTable) remove(key []byte) error { return k.put(key, keyEntry{gone: true}) }

func (k *keyTable) put(key []byte, e keyEntry) error {
	n, ok := k.find(textView(key))
	if ok {
		e.key = k.list[n].key
		k.list[n] = e
		k.bytes += len(e.value)
		return nil
	}
	if k.ascending && n < len(k.list) {
		k.ascending, k.at = false, make(map[string]int32, 2*len(k.list))
		for i := range k.list {
			k.at[k.list[i].key] = int32(i)
		}
	}
	e.key = textView(k.mem.keep(key))
	if !k.ascending {
		k.at[e.key] = int32(len(k.list))
	}
	k.list = append(k.list, e)
	k.bytes += len(key) + len(e.value) + 40
	if k.bytes >= keyTableBytes {
		return k.spill()
	}
	return nil
}

func (k *keyTable) sort() {
	if k.ascending {
		return
	}
	slices.SortFunc(k.list, func(a, b keyEntry) int { return strings.Compare(a.key, b.key) })
	k.ascending, k.at = true, nil
}

// spill moves the list into the database.
func (k *keyTable) spill() (err error) {
	if len(k.list) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("spill staged keys: %w", err)
		}
	}()
	if k.db == nil {
		if err := k.open(); err != nil {
			return err
		}
	}
	k.sort()
	path := k.c.fs.PathJoin(k.dir, fmt.Sprintf("spill-%d", k.spills))
	k.spills++
	w, err := k.c.newTable(path)
	if err != nil {
		return err
	}
	for i := range k.list {
		e := &k.list[i]
		if e.gone {
			err = w.Delete(bytesView(e.key))
		} else {
			err = w.Set(bytesView(e.key), bytesView(e.value))
		}
		if err != nil {
			return firstError(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := k.db.Ingest(ctxBackground, []string{path}); err != nil {
		return err
	}
	k.dbLast = max(k.dbLast, strings.Clone(k.list[len(k.list)-1].key))
	k.list, k.at, k.mem, k.bytes, k.ascending = k.list[:0], nil, arena{}, 0, true
	clear(k.list[:cap(k.list)])
	return nil
}

func (k *keyTable) open() (err error) {
	k.db, err = openSpill(k.c, k.dir, 4<<20)
	return err
}

// openSpill makes a database for what a transaction cannot keep in memory; it takes sorted tables in.
func openSpill(c *Catalog, dir string, cacheBytes int64) (*pebble.DB, error) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		FS: c.fs, Cache: cache, Logger: pebbleLog{c.log}, DisableWAL: true, MemTableSize: 256 << 10, FormatMajorVersion: pebble.FormatNewest,
	}
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10)
	o.EnsureDefaults()
	if err := c.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return pebble.Open(dir, o)
}

// newTable begins a sorted table that a database can ingest.
func (c *Catalog) newTable(path string) (*sstable.Writer, error) {
	f, err := c.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	// Not the options of the last level, whose writer marks deletions as ones that readers need not look at.
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), c.pebble.MakeWriterOptions(0, c.db.TableFormat())), nil
}

// within calls f for the keys at or above low and below high (nil is open), ascending, until it answers false. The bytes are valid during the call.
func (k *keyTable) within(b index.Bounds, f func(key, value []byte) bool) error {
	if k.db == nil {
		k.sort()
		n := 0
		if b.Low != nil {
			n, _ = k.find(string(b.Low))
		}
		for ; n < len(k.list); n++ {
			e := &k.list[n]
			if b.High != nil && e.key >= textView(b.High) {
				break
			}
			if !e.gone && !f(bytesView(e.key), bytesView(e.value)) {
				break
			}
		}
		return nil
	}
	if err := k.spill(); err != nil {
		return err
	}
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: b.Low, UpperBound: b.High})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if !f(it.Key(), v) {
			break
		}
	}
	return it.Error()
}

// close gives up memory and database; its folder is removed with the staged one.
func (k *keyTable) close() error {
	k.list, k.at, k.mem = nil, nil, arena{}
	if k.db == nil {
		return nil
	}
	db := k.db
	k.db = nil
	return db.Close()
}
