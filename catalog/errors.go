package catalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// Errors that callers decide on.
var (
	// ErrConflict: a row that the transaction changed was changed by a later commit. The transaction is over and may be run again.
	ErrConflict = errors.New("catalog: a row was changed by another transaction since this one began")
	// ErrDeadlock: the transaction was chosen to end a circle of waits for locks; it is rolled back as a whole and may be run again.
	ErrDeadlock = fmt.Errorf("%w: deadlock found when trying to get a lock", ErrConflict)
	// ErrLockTimeout: a lock was not free in time. The statement has failed, the transaction goes on.
	ErrLockTimeout = errors.New("catalog: the wait for a lock took too long")
	// ErrLocked: a lock is not free and the caller did not want to wait.
	ErrLocked   = errors.New("catalog: locked by another transaction")
	ErrExists   = errors.New("catalog: exists already")
	ErrNotFound = errors.New("catalog: does not exist")
	// ErrLostState: the state folder is missing or older than the tables, and they are not marked as cleanly stopped.
	ErrLostState = errors.New("catalog: the state folder is missing or older than the tables")
	// ErrFull: the hot tier is at its limit and cannot be flushed, or the disk is.
	ErrFull = errors.New("catalog: there is no room for more rows")
	// ErrDiskFull: the same, since the disk is nearly full. It is an ErrFull, too.
	ErrDiskFull = fmt.Errorf("%w on the disk", ErrFull)
	// ErrTooManyLocks: the locks of all transactions take too much memory. The statement has failed, the transaction goes on.
	ErrTooManyLocks = errors.New("catalog: too many locks are held")
	// ErrTooMany: changed rows of open transactions take too much memory. The statement has failed, the transaction goes on.
	ErrTooMany = errors.New("catalog: too many changed rows wait for the commits of their transactions")
	// ErrStopped: the state folder could not be written. What is durable is known only after the next start; reads go on.
	ErrStopped = errors.New("catalog: nothing can be written until the server is started again")
	// ErrReadOnly: the table can be read but not written here; the text says why.
	ErrReadOnly = errors.New("catalog: table cannot be written")
	// ErrInvalid: a definition or a value that no table can hold; the text names it.
	ErrInvalid = errors.New("catalog: invalid")
	ErrClosed  = errors.New("catalog: closed")
	// ErrExpired: what was dropped is not kept any more, or never was there.
	ErrExpired = errors.New("catalog: not kept")
	// ErrChanged: a table was rewritten, truncated, or got an index after the transaction's snapshot was taken. Plain reads of that
	// snapshot cannot be had; a new transaction can read the table.
	ErrChanged = errors.New("catalog: the definition has changed")
	// ErrSnapshot: a snapshot cannot be read any more: it is older than Options.SnapshotMax, or a file that it needs is gone. The
	// transaction may be run again.
	ErrSnapshot = errors.New("catalog: the snapshot cannot be read any more")
)

// DuplicateKeyError says that a row has the key of another one.
type DuplicateKeyError struct {
	Table    string
	Index    string      // "" for the primary key, else the unique index
	Key      storage.Row // values of the index's columns
	Existing storage.Row // the row that has the key
}

func (e *DuplicateKeyError) Error() string {
	return fmt.Sprintf("catalog: duplicate key %v for index %q of %s", []any(e.Key), e.Index, e.Table)
}

// LateError says that an event-time table holds a newer version of a row: the write's ordering value is smaller.
type LateError struct {
	Table         string
	Field         string // ordering column
	Stored, Given any
}

func (e *LateError) Error() string {
	return fmt.Sprintf("catalog: %s %v of %s lies before the stored %v", e.Field, e.Given, e.Table, e.Stored)
}

// TooEarlyError says that a table cannot be read as of a time.
type TooEarlyError struct {
	Table    string
	At       time.Time
	Earliest time.Time // the earliest time that can be read
}

func (e *TooEarlyError) Error() string {
	return fmt.Sprintf("catalog: %s cannot be read as of %s: the earliest time is %s", e.Table,
		e.At.UTC().Format("2006-01-02 15:04:05.000000"), e.Earliest.UTC().Format("2006-01-02 15:04:05.000000"))
}
