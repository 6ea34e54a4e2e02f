package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/lakesql/lakesql/storage"
)

// DuplicateMode says what a bulk load does with a row whose key or UNIQUE value is taken: by a row of the table, by one that the
// transaction wrote before, or by an earlier one of the load.
type DuplicateMode uint8

const (
	DuplicateFail    DuplicateMode = iota // *DuplicateKeyError
	DuplicateIgnore                       // the new row is left out
	DuplicateReplace                      // the rows that have the key or a UNIQUE value are removed
)

// Bulk loads many rows into a table, in batches. Exactly one of Finish and Abort ends it; after an error of Append only Abort is
// left. Between BulkInsert and its end nothing else of the transaction may write.
type Bulk struct {
	// OnIgnored is told of rows that DuplicateIgnore leaves out, by the goroutine that calls Append or Finish; nil: nobody asks.
	OnIgnored func(*DuplicateKeyError)

	tx   *Tx
	ctx  context.Context
	t    *Table
	mode DuplicateMode
	mark Mark
	res  BulkResult
	row  storage.Row
	done bool
}

// BulkResult counts the rows of a bulk load.
type BulkResult struct {
	Rows     int64 // rows that the load added, those that replaced others among them
	Ignored  int64 // rows that were left out
	Replaced int64 // rows that were removed for new ones
}

// BulkInsert begins a load of many rows.
func (tx *Tx) BulkInsert(ctx context.Context, t *Table, mode DuplicateMode) (*Bulk, error) {
	if _, err := tx.writable(ctx, t, nil); err != nil {
		return nil, err
	}
	return &Bulk{tx: tx, ctx: ctx, t: t, mode: mode, mark: tx.Mark()}, nil
}

// Append adds rows: the columns of the batch are those of the table's schema, in order, without meta columns. The batch is the
// caller's again when Append returns.
func (b *Bulk) Append(batch storage.Batch) error {
	for i := range batch.Rows {
		b.row = batch.Row(i, b.row)
		if err := b.add(b.row); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bulk) add(row storage.Row) error {
	for {
		err := b.tx.Insert(b.ctx, b.t, row)
		var dup *DuplicateKeyError
		if err == nil {
			b.res.Rows++
			return nil
		}
		if b.mode == DuplicateFail || !errors.As(err, &dup) {
			return err
		}
		if b.mode == DuplicateIgnore {
			b.res.Ignored++
			if b.OnIgnored != nil {
				b.OnIgnored(dup)
			}
			return nil
		}
		if err := b.tx.Delete(b.ctx, b.t, dup.Existing); err != nil {
			return err
		}
		b.res.Replaced++
	}
}

// Finish ends the load: its rows belong to the transaction.
func (b *Bulk) Finish() (BulkResult, error) {
	if b.done {
		return BulkResult{}, fmt.Errorf("%w: the load is over", ErrClosed)
	}
	b.done = true
	return b.res, nil
}

// Abort ends the load without a trace.
func (b *Bulk) Abort() {
	if b.done {
		return
	}
	b.done = true
	_ = b.tx.RollbackTo(b.mark) // nothing of it reaches a disk
}
