package catalog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Options of a warehouse; the zero value works.
type Options struct {
	FS     vfs.FS           // default: the machine's file system
	Logger *slog.Logger     // nil discards
	Now    func() time.Time // wall clock; default time.Now

	// SortKey gives the weight string of a text under a collation that KeyColumn names: bytes.Compare of two weight strings orders
	// the texts, equal ones are equal keys. Nil: texts compare as bytes.
	SortKey func(collation, s string) []byte

	// AcceptLostState opens tables whose state folder is missing or older, although what it held may be lost.
	AcceptLostState bool

	// SharedWait is how long the flushes of a table wait for another engine that is writing to it. Default 10 min
	SharedWait time.Duration

	HotBytesMax   int64         // buffered rows of all tables, in bytes; writes fail above it. Default 1 GiB
	TxBytesMax    int64         // changed rows that wait in memory for the commits of their transactions, in bytes; writes fail above it. Default 512 MiB
	StageRows     int           // rows of one statement from which it writes its files before the commit. Default 16,384
	JournalWindow time.Duration // commits this young stay in the journal after their flush. Default 24 h
	JournalBytes  int64         // bytes of flushed commits of one table that the journal keeps at most. Default 1 GiB
	KeptBytes     int64         // bytes of replaced slices that are kept for the journal's window at most. Default 10 GiB
	CacheBytes    int64         // decoded logs and pebble blocks. Default 128 MiB
	BallastBytes  int64         // of the disk, kept free for the moment when the rest is used up. Default none
	DropRetention time.Duration // dropped tables can be brought back for this long; negative: they cannot. Default 24 h
	SnapshotMax   time.Duration // a snapshot older than this cannot be read any more. Default 1 h
}

// Metrics count since Open.
type Metrics struct {
	CommitsTotal   atomic.Int64 // transactions that changed something
	ConflictsTotal atomic.Int64 // transactions that were refused since another one was first
	FlushesTotal   atomic.Int64 // instants written, one a table
	AdoptionsTotal atomic.Int64 // looks at a timeline that found instants of other engines
	OvertakenTotal atomic.Int64 // flushes that were planned anew since another engine completed an instant meanwhile
	LocksLostTotal atomic.Int64 // table locks that another engine removed while they were held
	KeptBytes      atomic.Int64 // bytes of replaced slices that are kept for reads of the past, now
	LargeTotal     atomic.Int64 // transactions that wrote files before their commit
	StagedTotal    atomic.Int64 // rows that they wrote into files
	SpilledTotal   atomic.Int64 // changed rows that were too many to wait in memory for their commits
	RedrawnTotal   atomic.Int64 // rows that were written again, since another instant was completed meanwhile
	LateRowsTotal  atomic.Int64 // buffered rows that lost against a newer row of another engine
	FullTotal      atomic.Int64 // writes that were refused for want of room
	DiskFullTotal  atomic.Int64 // times that the disk was met full

	LockWaitsTotal       atomic.Int64 // locks that were not free at once
	LockWaitNanos        atomic.Int64 // time spent waiting for them, in ns
	LockTimeoutsTotal    atomic.Int64 // waits that were given up after the lock timeout
	DeadlocksTotal       atomic.Int64 // transactions that were rolled back to end a circle of waits
	TableWaitsTotal      atomic.Int64 // waits of transactions for changes of definitions and the other way round
	TableTimeoutsTotal   atomic.Int64 // of these, given up after their limit
	LockEscalationsTotal atomic.Int64 // transactions' row locks that one lock of their whole table, or index, took the place of
	LocksHeld            atomic.Int64 // locks held at present
	LocksRefusedTotal    atomic.Int64 // requests that were refused because there were too many locks
}

// Folder names below the data folder.
const (
	warehouseFolder = "warehouse"
	stateFolder     = "state"
	objectsFolder   = ".lakesql" // below the warehouse: what belongs to no table
)

// Catalog is an open warehouse.
type Catalog struct {
	o       Options
	dir     string
	fs      vfs.FS
	memory  bool // the file system keeps no folder times
	log     *slog.Logger
	store   *storage.Local // rooted at the file system's root, since attached tables lie anywhere
	root    string         // object name of the warehouse folder
	reader  *storage.Reader
	db      *pebble.DB
	pebble  *pebble.Options // of db, filled
	index   *index.RecordIndex
	clock   *Clock
	id      string    // warehouse id
	stopped index.Seq // clock of the clean stop that is under way

	// mu guards the maps of databases, tables and objects.
	mu        sync.RWMutex
	databases map[string]*database           // by lower-case name
	objects   map[string]map[string][]Object // by kind, then lower-case database
	byID      map[index.TableID]*Table
	nextID    index.TableID
	ddl       sync.Mutex // one change of databases, tables or objects at a time
	stepsLeft bool       // guarded by ddl: what follows from a change is to be repeated
	unmoved   atomic.Pointer[unmoved]
	unsettled *Table // guarded by ddl: a rewrite of it that belongs to a change did not end well
	lastSteps uint64 // guarded by ddl: number of the last note of steps

	rebuilding bool // the start is taking in the tables of a state folder that is gone

	pins  pins
	moved movedFolders

	// viewMu makes the hot tier and the known instants change together for snapshots.
	viewMu sync.RWMutex
	colds  atomic.Pointer[map[index.TableID]*coldState]
	closed bool // guarded by viewMu
	open   sync.WaitGroup

	rowLocks   *lockManager
	keyChanges changeFilter

	// commitMu is the critical section of commits; it also guards the tables' bins.
	commitMu sync.Mutex
	failed   error        // guarded by commitMu: why no more can be written
	hotBytes atomic.Int64 // bytes of buffered rows
	txBytes  atomic.Int64 // see Options.TxBytesMax
	runBytes atomic.Int64 // bytes that the tables' runs hold
	durable  atomic.Uint64
	lastSnap atomic.Uint64 // largest sequence of a snapshot
	kept     keptFiles
	disk     diskState

	keys    atomic.Uint64 // generated record keys of this run
	session string        // part of generated keys that no other run has

	locks sharedLocks

	watcher *watcher     // nil: folders are looked at in turn
	stirred atomic.Bool  // a table is
	looked  atomic.Int64 // when all of them were looked at last (ns)

	wakeMu    sync.Mutex
	listeners []func()

	metrics Metrics
}

// database is a namespace of tables.
type database struct {
	Name   string
	Body   []byte
	tables map[string]*Table // by lower-case name
}

// Open opens the warehouse in the data folder dir, making it if there is none, and ends what an earlier run left unfinished.
func Open(ctx context.Context, dir string, o Options) (_ *Catalog, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SharedWait == 0 {
		o.SharedWait = 10 * time.Minute
	}
	if o.HotBytesMax == 0 {
		o.HotBytesMax = 1 << 30
	}
	if o.TxBytesMax == 0 {
		o.TxBytesMax = 512 << 20
	}
	if o.JournalWindow == 0 {
		o.JournalWindow = 24 * time.Hour
	}
	if o.JournalBytes == 0 {
		o.JournalBytes = 1 << 30
	}
	if o.StageRows == 0 {
		o.StageRows = 16 << 10
	}
	if o.KeptBytes == 0 {
		o.KeptBytes = 10 << 30
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.DropRetention == 0 {
		o.DropRetention = 24 * time.Hour
	}
	if o.SnapshotMax == 0 {
		o.SnapshotMax = time.Hour
	}
	if o.FS == vfs.Default {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("open warehouse: %w", err)
		}
	}
	c := &Catalog{
		o: o, dir: dir, fs: o.FS, log: o.Logger, clock: &Clock{wall: o.Now},
		databases: map[string]*database{}, byID: map[index.TableID]*Table{}, session: newID()[:12], locks: sharedLocks{held: map[string]*sharedLock{}},
	}
	c.memory = o.FS != vfs.Default
	c.disk.raw = o.FS
	c.fs = vfs.OnDiskFull(o.FS, c.onDiskFull)
	c.rowLocks = newLockManager(&c.metrics)
	c.disk.free.Store(math.MaxInt64)
	c.colds.Store(&map[index.TableID]*coldState{})
	root := c.fs.PathJoin(dir, warehouseFolder)
	for _, p := range []string{root, c.fs.PathJoin(root, objectsFolder)} {
		if err := c.fs.MkdirAll(p, 0o755); err != nil {
			return nil, fmt.Errorf("open warehouse: %w", err)
		}
	}
	c.root = strings.Trim(filepath.ToSlash(root), "/")
	c.store = storage.NewLocal(c.fs, "/")
	file, err := c.readWarehouse(ctx)
	if err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", dir, err)
	}
	fresh, err := c.openState(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			_ = c.db.Close() // the first error tells more
			if fresh {
				c.removeState()
			}
		}
	}()
	if !c.memory {
		if c.watcher, err = newWatcher(func(t *Table) {
			t.stirred.Store(true)
			c.stirred.Store(true)
		}); err != nil {
			c.log.Warn("timeline folders are looked at in turn", "err", err)
		}
	}
	defer func() {
		if err != nil {
			c.watcher.close()
		}
	}()
	c.reader = storage.NewReader(pastStore{movedStore{c.store, &c.moved}, &c.kept}, storage.ReaderOptions{CacheBytes: o.CacheBytes})
	if err = c.load(ctx, file, fresh); err != nil {
		return nil, fmt.Errorf("open warehouse %s: %w", dir, err)
	}
	c.clock.reserve = func(up index.Seq) error { return c.putEntry(metaKey(metaCeiling), appendUint(nil, uint64(up))) }
	c.layBallast()
	return c, nil
}

// pebbleLog hands pebble's messages on; what it says of its own work is noise at the levels that people read.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(f string, a ...any)  { l.log.Debug("state: " + fmt.Sprintf(f, a...)) }
func (l pebbleLog) Errorf(f string, a ...any) { l.log.Error("state: " + fmt.Sprintf(f, a...)) }
func (l pebbleLog) Fatalf(f string, a ...any) { panic("state: " + fmt.Sprintf(f, a...)) }

// warehouseFile is the state of the warehouse that belongs to no table and survives the loss of the state folder (JSON in
// .lakesql/warehouse.json, one object with the CRC-32C of its body).
type warehouseFile struct {
	Version   int             `json:"version"`
	ID        string          `json:"id"`
	NextTable index.TableID   `json:"next_table"`
	Databases []savedDatabase `json:"databases"`
	Attached  []savedAttached `json:"attached,omitempty"`
	// What can be brought back.
	Dropped          []droppedTable    `json:"dropped,omitempty"`
	DroppedDatabases []droppedDatabase `json:"dropped_databases,omitempty"`

	Clean bool      `json:"clean"`           // stopped with everything flushed
	Temps bool      `json:"temps,omitempty"` // when clean: an unfinished file could not be removed
	Clock index.Seq `json:"clock,omitempty"` // largest time shown, when clean
}

type savedDatabase struct {
	Name    string              `json:"name"`
	Body    []byte              `json:"body,omitempty"`
	Objects map[string][]Object `json:"objects,omitempty"` // by kind
}

type savedAttached struct {
	Database string `json:"database"`
	Name     string `json:"name"`
	Location string `json:"location"`
}

func newID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // never fails on the systems that Go supports
	}
	return hex.EncodeToString(b[:])
}

// Close flushes every table, marks the warehouse as cleanly stopped and closes it. An error says what was not flushed: it is still in the state folder.
func (c *Catalog) Close(ctx context.Context) error {
	c.viewMu.RLock()
	closed := c.closed
	c.viewMu.RUnlock()
	if closed {
		return nil
	}
	flushed := firstError(c.FinishMoves(WithWait(ctx, time.Second, nil)), c.flush(ctx, flushOrder{reason: "stop"}, nil), c.flushDropped(ctx))
	c.viewMu.Lock()
	if c.closed {
		c.viewMu.Unlock()
		return nil
	}
	c.closed = true
	c.viewMu.Unlock()
	c.commitMu.Lock()
	if c.failed == nil {
		c.failed = ErrClosed
	}
	c.commitMu.Unlock()
	done := make(chan struct{})
	go func() { c.open.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		return firstError(flushed, errors.New("close warehouse: transactions are still open"))
	}
	// What is left to do for changes of definitions stands in the state folder alone.
	c.ddl.Lock()
	flushed = firstError(flushed, c.finishChanges(ctx), c.removeDropped(ctx))
	c.ddl.Unlock()
	clean := flushed == nil
	for _, t := range c.tablesByID() {
		clean = clean && !t.isBuffered()
	}
	if clean {
		// The mark comes first: without the file's it says nothing.
		c.clock.end()
		c.stopped = c.clock.read()
		if err := c.putStopped(); err != nil {
			flushed, clean = firstError(flushed, err), false
		}
	}
	c.clock.end()
	err := c.saveWarehouse(ctx, clean)
	c.watcher.close()
	c.reader.Close()
	return firstError(flushed, err, c.db.Close())
}

// Clock is the warehouse's hybrid clock.
func (c *Catalog) Clock() *Clock { return c.clock }

// DropRetention is how long dropped tables can be brought back; negative: they cannot.
func (c *Catalog) DropRetention() time.Duration { return c.o.DropRetention }

// Metrics counts what happened since Open.
func (c *Catalog) Metrics() *Metrics { return &c.metrics }

// object gives the object name of a table folder: relative to the warehouse, or absolute for an attached table elsewhere.
func (c *Catalog) object(dir string) string {
	if strings.HasPrefix(dir, "/") {
		return strings.Trim(dir, "/")
	}
	return join(c.root, dir)
}

// path gives the file path of an object name.
func (c *Catalog) path(name string) string { return c.fs.PathJoin("/", name) }

func (c *Catalog) tablesByID() []*Table {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*Table
	for _, t := range c.byID {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Table) int { return int(a.id) - int(b.id) })
	return out
}

func (c *Catalog) cold(id index.TableID) *coldState { return (*c.colds.Load())[id] }

// setCold swaps the cold state of a table; called with viewMu held, or before the catalog is shared. Nil takes it away.
func (c *Catalog) setCold(id index.TableID, s *coldState) {
	old := *c.colds.Load()
	m := make(map[index.TableID]*coldState, len(old)+1)
	for k, v := range old {
		m[k] = v
	}
	if s == nil {
		delete(m, id)
	} else {
		m[id] = s
	}
	c.colds.Store(&m)
}

// advance moves the durable mark: everything up to seq is synced, since batches are synced in order.
func (c *Catalog) advance(seq index.Seq) {
	defer c.clock.synced(seq)
	for {
		old := c.durable.Load()
		if old >= uint64(seq) || c.durable.CompareAndSwap(old, uint64(seq)) {
			return
		}
	}
}

// fail makes every further write fail: what is on disk is no longer known.
func (c *Catalog) fail(err error) {
	c.commitMu.Lock()
	if c.failed == nil {
		c.failed = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	c.commitMu.Unlock()
}

const (
	memTableBytes = 16 << 20
	// Writes wait while this many memory tables wait for the disk: the commit of a large load is as large as many of them.
	memTablesMax = 16
)

// generateKey makes a record key for a row of a table without a key: no other run and no other row has it.
func (c *Catalog) generateKey() string {
	return fmt.Sprintf("%s_%d", c.session, c.keys.Add(1))
}

// OnCommit registers a function that is called after each commit; it must not block.
func (c *Catalog) OnCommit(f func()) {
	c.wakeMu.Lock()
	c.listeners = append(c.listeners, f)
	c.wakeMu.Unlock()
}

func (c *Catalog) wake() {
	c.wakeMu.Lock()
	l := c.listeners
	c.wakeMu.Unlock()
	for _, f := range l {
		f()
	}
}

// Waiting describes the rows of a table that wait for a flush.
type Waiting struct {
	Table  *Table
	Rows   int64
	Bytes  int64     // as they stand in the journal
	Oldest time.Time // commit time of the first
	Cause  error     // why the last flush failed, nil if it did not
	Since  time.Time // when it began to fail
	Tried  time.Time // when it failed last
}

// Waiting lists the tables that have buffered rows.
func (c *Catalog) Waiting() []Waiting {
	tables := c.tablesByID()
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	var out []Waiting
	for _, t := range tables {
		if t.buf.rows > 0 || t.unfinished {
			out = append(out, Waiting{t, t.buf.rows, t.buf.bytes, t.buf.oldest, t.buf.cause, t.buf.since, t.buf.tried})
		}
	}
	return out
}

// lookEvery is how often also the tables are looked at whose folders are watched: a file system of several machines tells nothing of
// what others did.
const lookEvery = 10 * time.Second

// Adopt looks for instants of other engines in all tables where there may be some: those that were seen to change, those that cannot be
// watched and, now and then, all.
func (c *Catalog) Adopt(ctx context.Context) error {
	c.stirred.Store(false)
	now := time.Now().UnixNano()
	all := now-c.looked.Load() > int64(lookEvery)
	if all {
		c.looked.Store(now)
	}
	var first error
	for _, t := range c.tablesByID() {
		if stirred := t.stirred.Swap(false); stirred || all || !t.watched.Load() {
			first = firstError(first, t.refresh(ctx))
		}
	}
	return first
}

// Stirred tells whether the timeline folder of a table was seen to change since the last Adopt.
func (c *Catalog) Stirred() bool { return c.stirred.Load() }

// watch has the table's timeline folder watched.
func (c *Catalog) watch(t *Table) {
	for _, path := range c.timelineFolder(t.def.Load()).paths {
		if err := c.watcher.add(t, path); err != nil {
			c.log.Debug("the folder is looked at in turn", "err", err)
		}
	}
}

func (t *Table) isBuffered() bool {
	t.c.commitMu.Lock()
	defer t.c.commitMu.Unlock()
	return t.buf.rows > 0 || t.unfinished
}

// noteBuffered adds a commit to the table's bin; called with commitMu held, or before the catalog is shared.
func (t *Table) noteBuffered(rows, bytes int64, at time.Time) {
	if t.buf.rows == 0 {
		t.buf.oldest = at
	}
	t.buf.rows += rows
	t.buf.bytes += bytes
	t.c.hotBytes.Add(bytes)
}

func (t *Table) link(id index.TableID) { t.buf.link(id) }

func (b *buffered) link(id index.TableID) {
	if b.linked == nil {
		b.linked = map[index.TableID]bool{}
	}
	b.linked[id] = true
}

func join(parts ...string) string { return path.Join(parts...) }

func appendUint(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

func fieldNames(s *storage.Schema) []string {
	out := make([]string, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].Name
	}
	return out
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}
