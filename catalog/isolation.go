package catalog

import (
	"context"
	"fmt"
	"time"
)

// Isolation says which commits the reads of a transaction see. Writes and locking reads see the newest durable commit in each.
type Isolation uint8

const (
	// RepeatableRead: all plain reads see one snapshot, taken by the first.
	RepeatableRead Isolation = iota
	// ReadCommitted: the plain reads of a statement see the newest commit at its start; locking reads lock the rows that they give, and no ranges.
	ReadCommitted
	// Serializable: as RepeatableRead; the caller asks for shared locks in reads that shall be repeatable against writes.
	Serializable
)

func (i Isolation) String() string {
	return [...]string{"REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"}[i]
}

// LockMode says what others may do with what is locked.
type LockMode uint8

const (
	LockNone      LockMode = iota
	LockShared             // others may lock it shared, too
	LockExclusive          // others may not lock it
)

func (m LockMode) String() string { return [...]string{"", "S", "X"}[m] }

func (m LockMode) intent() lockMask {
	if m == LockExclusive {
		return lockIX
	}
	return lockIS
}

// LockWait says what a lock that is not free means.
type LockWait uint8

const (
	LockWaits  LockWait = iota // waits for it, at most TxOptions.LockTimeout: ErrLockTimeout
	LockNoWait                 // ErrLocked at once
	LockSkip                   // a scan or lookup leaves the row out; elsewhere as LockNoWait
)

// TxOptions of a transaction; the zero value works.
type TxOptions struct {
	Isolation   Isolation
	LockTimeout time.Duration // of each wait for a lock; default 50 s
	Connection  uint32        // whose it is, for LockInfo and TxInfo
	// Holder is another transaction of the same session, nil: none. Its locks of tables do not stand in this one's way:
	// what LOCK TABLES locked stays locked over the transactions of a session.
	Holder *Tx
}

// LockTimeoutDefault is the longest wait for a lock when TxOptions do not say.
const LockTimeoutDefault = 50 * time.Second

// LockInfo is a lock that is held or waited for.
type LockInfo struct {
	Database, Table string
	Index           string // "" for record keys and the table, else the index whose values are locked
	Kind            string // "RECORD", "RANGE" or "TABLE"
	Key             string // key or values, of a range both ends; "" for a table
	Mode            string // "S", "X"; of a table also "IS", "IX"
	Granted         bool   // false: waited for
	Tx              uint64 // see TxInfo.ID
	Connection      uint32
	Since           time.Time // when it was granted or the wait began
}

// TxInfo is a transaction under way.
type TxInfo struct {
	ID         uint64 // counts transactions of this run
	Connection uint32
	Isolation  Isolation
	Started    time.Time
	Writes     int       // rows written so far
	Locks      int       // locks held
	Waiting    time.Time // since when it waits for a lock; zero: it does not
}

// Begin starts a transaction; see BeginTx.
func (c *Catalog) Begin(ctx context.Context) (*Tx, error) { return c.BeginTx(ctx, TxOptions{}) }

// BeginTx starts a transaction. Its plain reads see no commit that is not durable by the first of them, see KeepSnapshot.
func (c *Catalog) BeginTx(ctx context.Context, o TxOptions) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Isolation > Serializable {
		return nil, fmt.Errorf("%w: isolation level %d", ErrInvalid, o.Isolation)
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = LockTimeoutDefault
	}
	s, err := c.newSnapshot()
	if err != nil {
		return nil, err
	}
	return newTx(c, s, o), nil
}

// SetLockTimeout changes how long later statements wait for a lock.
func (tx *Tx) SetLockTimeout(d time.Duration) { tx.o.LockTimeout = d }

// Isolation tells the transaction's isolation level.
func (tx *Tx) Isolation() Isolation { return tx.o.Isolation }
