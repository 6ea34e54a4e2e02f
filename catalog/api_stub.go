package catalog

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lakesql/lakesql/storage"
)

type Options struct {
	FS              vfs.FS
	Logger          *slog.Logger
	Now             func() time.Time
	SortKey         func(collation, s string) []byte
	AcceptLostState bool
}

type Catalog struct{}
type Table struct{}
type Tx struct {
	Instant bool
}
type Mark int
type Snapshot struct{}
type Clock struct{}

func Open(ctx context.Context, dir string, o Options) (*Catalog, error)               { panic("stub") }
func (c *Catalog) Close(ctx context.Context) error                                    { panic("stub") }
func (c *Catalog) Clock() *Clock                                                      { panic("stub") }
func (k *Clock) Now() time.Time                                                       { panic("stub") }
func (c *Catalog) Databases() []string                                                { panic("stub") }
func (c *Catalog) Database(name string) (spelled string, body []byte, ok bool)        { panic("stub") }
func (c *Catalog) CreateDatabase(ctx context.Context, name string, body []byte) error { panic("stub") }
func (c *Catalog) SetDatabase(ctx context.Context, name string, body []byte) error    { panic("stub") }
func (c *Catalog) DropDatabase(ctx context.Context, name string) error                { panic("stub") }
func (c *Catalog) Objects(kind, db string) []Object                                   { panic("stub") }
func (c *Catalog) PutObject(ctx context.Context, kind, db, name string, body []byte) error {
	panic("stub")
}
func (c *Catalog) DropObject(ctx context.Context, kind, db, name string) (bool, error) { panic("stub") }
func (c *Catalog) Table(db, name string) (*Table, bool)                                { panic("stub") }
func (c *Catalog) TableNames(db string) []string                                       { panic("stub") }
func (c *Catalog) CreateTable(ctx context.Context, db, name string, spec TableSpec) (*Table, error) {
	panic("stub")
}
func (c *Catalog) AttachTable(ctx context.Context, db, name, location string) (*Table, error) {
	panic("stub")
}
func (c *Catalog) DropTable(ctx context.Context, db, name string) error             { panic("stub") }
func (c *Catalog) RenameTable(ctx context.Context, db, name, toDB, to string) error { panic("stub") }

// TruncateTable removes all rows by one replacecommit and restarts AUTO_INCREMENT; rows is how many there were.
func (c *Catalog) TruncateTable(ctx context.Context, t *Table) (rows int64, err error) { panic("stub") }

// AlterTable gives a table another specification. columns[i] is the old position of new column i, or -1 for a new one;
// convert turns an old row (old schema order) into a new one and is nil when it is enough to move columns (new ones NULL).
// It is a change of metadata alone where Hudi's readers follow it (columns added with NULL, dropped, promoted, reordered;
// Definition, Options, Indexes untouched), else all rows are rewritten by one replacecommit.
func (c *Catalog) AlterTable(ctx context.Context, t *Table, spec TableSpec, columns []int, convert func(old storage.Row) (storage.Row, error)) error {
	panic("stub")
}

// SetIndexes replaces the secondary indexes; new ones are built from the data (DuplicateKeyError for a UNIQUE one that cannot be).
func (c *Catalog) SetIndexes(ctx context.Context, t *Table, indexes []IndexSpec, definition []byte) error {
	panic("stub")
}

// SetDefinition replaces the opaque SQL definition alone.
func (c *Catalog) SetDefinition(ctx context.Context, t *Table, definition []byte) error {
	panic("stub")
}

// Flush writes the buffered rows of the tables (none named: of all) as Hudi instants; reason is shown to operators.
func (c *Catalog) Flush(ctx context.Context, reason string, tables ...*Table) error { panic("stub") }

func (t *Table) ID() uint64         { panic("stub") }
func (t *Table) Database() string   { panic("stub") }
func (t *Table) Name() string       { panic("stub") }
func (t *Table) Location() string   { panic("stub") } // folder of the Hudi table
func (t *Table) Spec() *TableSpec   { panic("stub") }
func (t *Table) Version() uint64    { panic("stub") } // rises with every change of the definition
func (t *Table) RowCount() int64    { panic("stub") } // estimate
func (t *Table) DataBytes() int64   { panic("stub") } // bytes of base and log files and of buffered rows
func (t *Table) Created() time.Time { panic("stub") }
func (t *Table) Updated() time.Time { panic("stub") }

// NextAutoIncrement hands out n values in a row and gives the first. Values are durable with the commit that uses them.
func (t *Table) NextAutoIncrement(ctx context.Context, n uint64) (uint64, error) { panic("stub") }
func (t *Table) PeekAutoIncrement(ctx context.Context) (uint64, error)           { panic("stub") }
func (t *Table) SetAutoIncrement(ctx context.Context, next uint64) error         { panic("stub") }

// NoteAutoIncrement raises the counter above a value that a row brought itself.
func (t *Table) NoteAutoIncrement(v uint64) { panic("stub") }

// Begin starts a transaction: its snapshot is the newest durable commit.
func (c *Catalog) Begin(ctx context.Context) (*Tx, error) { panic("stub") }

// Scan gives all rows of the table as the transaction sees it.
func (tx *Tx) Scan(ctx context.Context, t *Table, o ScanOptions) iter.Seq2[storage.Batch, error] {
	panic("stub")
}

// Get finds a row by the values of the key columns: a full row of the table's columns.
func (tx *Tx) Get(ctx context.Context, t *Table, key storage.Row) (storage.Row, bool, error) {
	panic("stub")
}

// Lookup gives the rows whose key (index "") or secondary index lies in one of the ranges, and maybe others: the caller filters.
func (tx *Tx) Lookup(ctx context.Context, t *Table, index string, ranges []KeyRange, o ScanOptions) iter.Seq2[storage.Batch, error] {
	panic("stub")
}

// Insert adds a row; *DuplicateKeyError if its key or a UNIQUE value is taken.
func (tx *Tx) Insert(ctx context.Context, t *Table, row storage.Row) error { panic("stub") }

// Update replaces old by row, whose key may differ; *DuplicateKeyError, *LateError (event time). Tables without a key find old by value.
func (tx *Tx) Update(ctx context.Context, t *Table, old, row storage.Row) error { panic("stub") }

// Delete removes a row, found by its key, in a table without a key by value.
func (tx *Tx) Delete(ctx context.Context, t *Table, old storage.Row) error { panic("stub") }

// Mark names the present state of the transaction's writes; RollbackTo goes back to it.
func (tx *Tx) Mark() Mark                       { panic("stub") }
func (tx *Tx) RollbackTo(m Mark) error          { panic("stub") }
func (tx *Tx) Writes() bool                     { panic("stub") } // has it written anything
func (tx *Tx) Commit(ctx context.Context) error { panic("stub") }
func (tx *Tx) Rollback()                        { panic("stub") }

// AsOf is a time to read at: a point in time, or an instant of the table's timeline as text (14 or 17 digits).
type AsOf struct {
	Time    time.Time
	Instant string
}

// AsOf resolves a time once for all tables of a statement; Close releases it.
func (c *Catalog) AsOf(ctx context.Context, at AsOf) (*Snapshot, error) { panic("stub") }
func (s *Snapshot) Scan(ctx context.Context, t *Table, o ScanOptions) iter.Seq2[storage.Batch, error] {
	panic("stub")
}

// Check answers whether the table can be read at the snapshot's time: nil or *TooEarlyError.
func (s *Snapshot) Check(ctx context.Context, t *Table) error { panic("stub") }
func (s *Snapshot) Close()                                    { panic("stub") }
