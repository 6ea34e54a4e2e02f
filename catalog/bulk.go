package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/lakesql/lakesql/index"
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

// Bulk loads many rows into a table, in batches and in bounded memory: they go into files that nobody sees before the commit. Exactly
// one of Finish and Abort ends it; after an error of Append only Abort is left. Until then nothing else of the transaction may write.
type Bulk struct {
	// OnIgnored is told of rows that DuplicateIgnore leaves out, by the goroutine that calls Append or Finish; nil: nobody asks.
	OnIgnored func(*DuplicateKeyError)

	tx     *Tx
	ctx    context.Context
	t      *Table
	tt     *txTable
	mode   DuplicateMode
	mark   Mark
	run    *stagedRun
	snap   *snapshot
	prober *index.Prober // of snap; nil if the table had no row
	old    *index.Prober // of the transaction's plain reads, which may see rows that are gone since; nil if none can be
	res    BulkResult
	row    storage.Row
	ikey   []byte
	values []byte
	done   bool
}

// BulkResult counts the rows of a bulk load.
type BulkResult struct {
	Rows     int64 // rows that the load added, those that it replaced later among them
	Ignored  int64 // rows that were left out
	Replaced int64 // rows that were removed for new ones
}

// BulkInsert begins a load of many rows.
func (tx *Tx) BulkInsert(ctx context.Context, t *Table, mode DuplicateMode) (*Bulk, error) {
	tt, err := tx.writable(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	if t.doubled.Load() {
		return nil, fmt.Errorf("%w: %s: some of its rows have equal keys; large statements need unique ones", ErrReadOnly, tt.def)
	}
	b := &Bulk{tx: tx, ctx: ctx, t: t, tt: tt, mode: mode, mark: tx.Mark()}
	if b.snap, err = tx.c.newSnapshot(); err != nil {
		return nil, err
	}
	if b.run, err = tx.stageRun(tt, b.snap.seq, mode == DuplicateReplace); err != nil {
		b.end()
		return nil, err
	}
	if t.lastSeq.Load() > 0 || len(tx.c.cold(t.id).newest()) > 0 {
		if b.prober, err = tx.c.index.Probe(b.snap.p, t.id); err != nil {
			b.Abort()
			return nil, fmt.Errorf("load into %s: %w", tt.def, err)
		}
	}
	if index.Seq(t.lastSeq.Load()) > tx.snap.seq {
		if b.old, err = tx.c.index.Probe(tx.snap.p, t.id); err != nil {
			b.Abort()
			return nil, fmt.Errorf("load into %s: %w", tt.def, err)
		}
	}
	return b, nil
}

// stageRun begins a run of rows whose keys are new at a sequence.
func (tx *Tx) stageRun(tt *txTable, seq index.Seq, keep bool) (*stagedRun, error) {
	s, err := tx.stage(tt)
	if err != nil {
		return nil, fmt.Errorf("stage rows of %s: %w", tt.def, err)
	}
	tt.byValue = nil
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if len(s.runs) == 0 || seq < s.seq {
		s.seq = seq
	}
	r := s.begin(int32(tx.ops), keep)
	s.runs = append(s.runs, r)
	tx.ops++
	return r, nil
}

// Append adds rows: the columns of the batch are those of the table's schema, in order, without meta columns. The batch is the
// caller's again when Append returns.
func (b *Bulk) Append(batch storage.Batch) error {
	if b.done {
		return fmt.Errorf("%w: the load is over", ErrClosed)
	}
	d := b.tt.def
	if len(batch.Columns) != len(d.spec.Schema.Fields) {
		return fmt.Errorf("%w: a batch of %d columns for the %d of %s", ErrInvalid, len(batch.Columns), len(d.spec.Schema.Fields), d)
	}
	if err := b.tx.c.diskRoom(0); err != nil {
		return err
	}
	for i := range batch.Rows {
		if i%1024 == 0 && b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		b.row = batch.Row(i, b.row)
		if err := b.add(b.row); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what becomes of a row of a load.
type verdict uint8

const (
	rowNew   verdict = iota // its key and its UNIQUE values are new: it is staged
	rowOut                  // it is left out
	rowSmall                // it meets something outside of its run: the way of small statements knows what to do
)

func (b *Bulk) add(row storage.Row) error {
	d := b.tt.def
	if d.merge == storage.EventTime && d.ordering >= 0 && row[d.ordering] == nil {
		return fmt.Errorf("%w: ordering column %s of %s is NULL", ErrInvalid, d.spec.OrderingField, d)
	}
	if err := d.checkPath(row); err != nil {
		return err
	}
	part := d.partitionPath(row)
	var key string
	var err error
	if d.hidden() {
		key = b.tx.c.generateKey()
		b.ikey = d.textKey(key, part)
	} else {
		if index.HasNull(d.keyCols, row) {
			return fmt.Errorf("%w: a key column of %s is NULL", ErrInvalid, d)
		}
		key = d.recordKey(row)
		b.ikey = b.ikey[:0]
		if d.spec.PerPartition {
			b.ikey = appendText(b.ikey, part)
		}
		if b.ikey, err = index.AppendKey(b.ikey, d.keyCols, row); err != nil {
			return err
		}
	}
	v, err := b.judge(row, key, part)
	switch {
	case err != nil:
		return err
	case v == rowOut:
		b.res.Ignored++
		return nil
	case v == rowSmall:
		return b.addSmall(row)
	}
	if err := b.run.put(b.ctx, row, key, part, b.ikey); err != nil {
		return err
	}
	b.res.Rows++
	return nil
}

// judge looks for rows that have the key or a UNIQUE value of a row.
func (b *Bulk) judge(row storage.Row, key, part string) (verdict, error) {
	d, tt := b.tt.def, b.tt
	older := tt.staged.runs[:len(tt.staged.runs)-1]
	if !d.hidden() {
		if own, err := tt.ownWrite(textView(b.ikey)); err != nil || own != nil {
			return rowSmall, err
		}
		for _, r := range older {
			if _, ok, err := r.find(b.ikey); err != nil || ok {
				return rowSmall, err
			}
		}
		p, ok, err := b.run.find(b.ikey)
		if err != nil {
			return 0, err
		}
		if ok {
			switch b.mode {
			case DuplicateFail:
				return 0, &DuplicateKeyError{Table: d.String(), Key: project(row, d.keyCols)}
			case DuplicateIgnore:
				return b.ignore("", project(row, d.keyCols))
			}
			if err := b.run.kill(b.ikey, p); err != nil {
				return 0, err
			}
			b.res.Replaced++
		}
		if b.old != nil {
			if ok, err := b.old.Traced(b.ikey); err != nil || ok {
				return rowSmall, err
			}
		}
		if b.prober != nil {
			if ok, err := b.prober.Traced(b.ikey); err != nil || ok {
				return rowSmall, err
			}
			if d.spec.MergeOnRead {
				if ok, err := b.prober.Dead(part, key); err != nil || ok {
					return rowSmall, err
				}
			}
		}
	}
	for i := range d.indexes {
		x := &d.indexes[i]
		if !x.spec.Unique || index.HasNull(x.cols, row) {
			continue
		}
		var err error
		if b.values, err = index.AppendKey(b.values[:0], x.cols, row); err != nil {
			return 0, err
		}
		if len(tt.unique) > 0 && len(tt.unique[uniqueID(x.no, b.values)]) > 0 {
			return rowSmall, nil
		}
		has := false
		err = tt.spilledOwners(x.no, b.values, func([]byte) error {
			has = true
			return nil
		})
		if err != nil || has {
			return rowSmall, err
		}
		for _, r := range older {
			if _, ok, err := r.owner(i, b.values); err != nil || ok {
				return rowSmall, err
			}
		}
		if b.prober != nil {
			if ok, err := b.prober.Hinted(x.no, b.values); err != nil || ok {
				return rowSmall, err
			}
		}
		holder, ok, err := b.run.owner(i, b.values)
		if err != nil || !ok {
			if err != nil {
				return 0, err
			}
			continue
		}
		switch b.mode {
		case DuplicateFail:
			return 0, &DuplicateKeyError{Table: d.String(), Index: x.spec.Name, Key: project(row, x.cols)}
		case DuplicateIgnore:
			return b.ignore(x.spec.Name, project(row, x.cols))
		}
		p, ok, err := b.run.find(holder)
		if err != nil || !ok {
			return 0, firstError(err, fmt.Errorf("table %s: a staged UNIQUE value has no row", d))
		}
		if err := b.run.kill(append([]byte(nil), holder...), p); err != nil {
			return 0, err
		}
		b.res.Replaced++
	}
	return rowNew, nil
}

// ignore leaves out a row that an earlier one of the load keeps out.
func (b *Bulk) ignore(name string, key storage.Row) (verdict, error) {
	if b.OnIgnored != nil {
		b.OnIgnored(&DuplicateKeyError{Table: b.tt.def.String(), Index: name, Key: key})
	}
	return rowOut, nil
}

// addSmall adds a row as a small statement does.
func (b *Bulk) addSmall(row storage.Row) error {
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

// Finish ends the load: its rows belong to the transaction. After an error the transaction has none of them.
func (b *Bulk) Finish() (BulkResult, error) {
	if b.done {
		return BulkResult{}, fmt.Errorf("%w: the load is over", ErrClosed)
	}
	if err := b.run.finish(b.ctx); err != nil {
		b.Abort()
		return BulkResult{}, fmt.Errorf("load into %s: %w", b.tt.def, err)
	}
	b.end()
	return b.res, nil
}

func (b *Bulk) end() {
	b.done = true
	if b.prober != nil {
		_ = b.prober.Close() // its errors were answered where it was asked
		b.prober = nil
	}
	if b.old != nil {
		_ = b.old.Close()
		b.old = nil
	}
	if b.snap != nil {
		b.snap.close()
	}
}

// Abort ends the load without a trace.
func (b *Bulk) Abort() {
	if b.done {
		return
	}
	b.end()
	_ = b.tx.RollbackTo(b.mark) // reports nothing: what cannot be removed now goes with the staged folder
}
