package sqlplan

import (
	"context"
	"io"
	"iter"
	"slices"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// partition is what a scan reads: the whole table, or what an index finds. The front end reads partitions one after another,
// so one is all there is.
type partition struct {
	lookup *lookup // nil: the whole table
}

func (p *partition) Key() []byte { return []byte{0} }

func onePartition(p *partition) sql.PartitionIter { return sql.PartitionsToPartitionIter(p) }

func (t *table) Partitions(ctx *sql.Context) (sql.PartitionIter, error) {
	return onePartition(&partition{}), nil
}

// PartitionRows starts a scan. It sees the transaction's writes up to now, except those of the running statement.
func (t *table) PartitionRows(ctx *sql.Context, p sql.Partition) (sql.RowIter, error) {
	part, _ := p.(*partition)
	if part == nil {
		part = &partition{}
	}
	return t.scan(ctx, part.lookup)
}

func (t *table) scan(ctx *sql.Context, l *lookup) (sql.RowIter, error) {
	// An ALTER TABLE of several parts reads the table under its newest definition (to check a new constraint, for one)
	// through the object that was there before its first part.
	if s := sessionOf(ctx); s.stmt.altered && t.old == nil && t.projection == nil && t.def.version != t.t.Version() {
		n, err := newTable(ctx, t.db, t.catalog, t.t, t.temporary)
		if err != nil {
			return nil, err
		}
		t = n
	}
	if p := sessionOf(ctx).stmt.change.of(t.t); p != nil && t.old == nil {
		if t.filled {
			return sql.RowsToRowIter(), nil
		}
		n := t
		if def, err := t.db.engine.definitionOf(ctx, t.t); err != nil {
			return nil, err
		} else if def != t.def && t.projection == nil {
			if n, err = newTable(ctx, t.db, t.catalog, t.t, t.temporary); err != nil {
				return nil, err
			}
		}
		return p.scan(ctx, n, l)
	}
	var tx *catalog.Tx
	o := catalog.ScanOptions{ReadOptimized: t.optimized}
	s := sessionOf(ctx)
	if t.old == nil {
		var err error
		if tx, err = s.use(ctx, t); err != nil {
			return nil, err
		}
		o.Current = t.current
		if o.Lock, o.Wait = t.lockFor(ctx, s, tx); o.Lock == catalog.LockNone && !t.temporary {
			if err := s.engine.writeLocks.wait(ctx, s, t.t); err != nil {
				return nil, err
			}
		}
		if !t.editing {
			o.UseMark = true
			if ed := s.editOf(t.t); ed != nil {
				o.Mark = ed.mark
			} else {
				o.Mark = tx.Mark()
			}
		}
	}
	var keep *keeper
	if l == nil && !t.editing && !s.stmt.altered && t.changes == nil {
		again := s.rescan(t, tx, o.Mark)
		if again.whole {
			return again.replay(ctx)
		}
		if again.scans > 1 {
			keep = &keeper{to: again}
		}
	}
	// Key columns that the lookup compares are read even if nobody asked for them.
	schema, columns := t.schema, t.columns
	if l != nil {
		schema, columns = l.extend(t)
	}
	names := make([]string, 0, len(columns))
	inFile := schema // with the names that columns have in the files
	for i, name := range columns {
		if name == "" {
			continue
		}
		names = append(names, name)
		if schema[i].Name != name || schema[i].Virtual {
			if &inFile[0] == &schema[0] {
				inFile = slices.Clone(schema)
			}
			c := *schema[i]
			c.Name, c.Virtual = name, false
			inFile[i] = &c
		}
	}
	if len(names) == 0 {
		names = []string{t.anyColumn()}
	}
	o.Columns = names
	var seq iter.Seq2[storage.Batch, error]
	switch {
	case t.old != nil:
		seq = t.old.Scan(ctx, t.t, o)
	case t.changes != nil:
		seq = tx.Changed(ctx, t.t, *t.changes, names)
	case l != nil:
		seq = tx.Lookup(ctx, t.t, l.index, l.ranges, o)
	default:
		seq = tx.Scan(ctx, t.t, o)
	}
	st, err := t.def.spec.Schema.Select(names...)
	if err != nil {
		return nil, mysqlError(err)
	}
	codec, err := t.def.codec.over(inFile, st)
	if err == nil {
		codec, err = codec.zoned(ctx)
	}
	if err != nil {
		return nil, mysqlError(err)
	}
	r := &rows{session: s, codec: codec, width: len(schema), out: len(t.schema), keep: keep}
	if l != nil {
		r.filter = l.filter
	}
	r.next, r.stop = iter.Pull2(seq)
	return r, nil
}

// anyColumn is a column for scans that only count.
func (t *table) anyColumn() string {
	if len(t.def.spec.Key) > 0 {
		return t.def.spec.Key[0].Column
	}
	return t.def.spec.Schema.Fields[0].Name
}

// pull gives the rows of a scan of a whole table, in the schema of its files, one by one.
type pull struct {
	next  func() (storage.Batch, error, bool)
	stop  func()
	batch storage.Batch
	at    int
}

func newPull(seq iter.Seq2[storage.Batch, error]) *pull {
	p := &pull{}
	p.next, p.stop = iter.Pull2(seq)
	return p
}

// row gives the next row, io.EOF behind the last one.
func (p *pull) row() (storage.Row, error) {
	for p.at >= p.batch.Rows {
		b, err, ok := p.next()
		if !ok {
			return nil, io.EOF
		}
		if err != nil {
			return nil, err
		}
		p.batch, p.at = b, 0
	}
	p.at++
	return p.batch.Row(p.at-1, nil), nil
}

// rows turns batches into the front end's rows.
type rows struct {
	session *Session
	codec   *rowCodec
	width   int // columns that are read
	out     int // columns that are given: the first ones
	filter  *rangeFilter
	keep    *keeper // nil: the statement does not read the table again

	next  func() (storage.Batch, error, bool)
	stop  func()
	batch storage.Batch
	at    int
	slab  []any // memory of the rows of the batch
}

func (r *rows) Next(ctx *sql.Context) (sql.Row, error) {
	for {
		for r.at >= r.batch.Rows {
			if err := ctx.Err(); err != nil {
				return nil, mysqlError(context.Cause(ctx))
			}
			b, err, ok := r.next()
			if !ok {
				if r.keep != nil {
					r.keep.done()
				}
				return nil, io.EOF
			}
			if err != nil {
				return nil, r.session.failed(err)
			}
			r.batch, r.at = b, 0
			r.slab = make([]any, b.Rows*r.width)
		}
		row := sql.Row(r.slab[:r.width:r.width])
		r.slab = r.slab[r.width:]
		if err := r.codec.decodeInto(r.batch, r.at, row); err != nil {
			return nil, mysqlError(err)
		}
		r.at++
		if r.filter != nil {
			ok, err := r.filter.holds(ctx, row)
			if err != nil {
				return nil, mysqlError(err)
			}
			if !ok {
				continue
			}
		}
		row = row[:r.out:r.out]
		if r.keep != nil && !r.keep.add(row) {
			r.keep = nil
		}
		return row, nil
	}
}

func (r *rows) Close(*sql.Context) error {
	r.stop()
	return nil
}

// extend gives the table's columns with those behind them that the lookup's filter compares.
func (l *lookup) extend(t *table) (sql.Schema, []string) {
	if len(l.extra) == 0 {
		return t.schema, t.columns
	}
	sch := slices.Concat(t.schema, l.extra)
	return sch, t.fileColumns(sch)
}
