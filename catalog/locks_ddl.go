package catalog

import (
	"context"
	"math"
	"slices"
	"time"
)

// lockContext is what WithLocks puts into a context.
type lockContext struct {
	beside  *Tx
	timeout time.Duration
}

type lockContextKey struct{}

// WithLocks tells the changes of definitions made with a context whose locks are not in their way (the transaction that holds the
// tables of a session, nil: none) and how long they wait for those of others; 0: LockTimeoutDefault.
func WithLocks(ctx context.Context, beside *Tx, timeout time.Duration) context.Context {
	return context.WithValue(ctx, lockContextKey{}, lockContext{beside, timeout})
}

// lockForDDL locks tables exclusively for a change of definitions: it waits for the transactions that have locked rows of them, and
// keeps others out until unlock. It is called before any other lock of the change is taken (Catalog.ddl, Table.ddl, Table.slices),
// since those whom it waits for need these to commit. ErrLockTimeout: nothing is locked.
func (c *Catalog) lockForDDL(ctx context.Context, tables ...*Table) (unlock func(), err error) {
	o, _ := ctx.Value(lockContextKey{}).(lockContext)
	if o.timeout == 0 {
		o.timeout = LockTimeoutDefault
	}
	l := &txLocks{}
	l.weight.Store(math.MaxInt64) // of a circle of waits somebody else goes
	c.rowLocks.begin(l, TxOptions{LockTimeout: o.timeout, Holder: o.beside})
	tables = slices.Clone(tables)
	slices.SortFunc(tables, func(a, b *Table) int { return int(a.id) - int(b.id) })
	for _, t := range tables {
		if _, err := c.rowLocks.lockPoint(ctx, l, t, spaceTable, nil, lockX, LockWaits); err != nil {
			c.rowLocks.end(l)
			return nil, err
		}
	}
	return func() { c.rowLocks.end(l) }, nil
}
