package catalog

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func (w *world) reopen() {
	w.note("reopen")
	w.count("reopen")
	w.forward()
	require.NoError(w.t, w.c.Close(context.Background()))
	w.c = testOpen(w.t, w.fs, w.o)
	w.find()
}

// crash ends the warehouse without a stop: what was not synced is lost.
func (w *world) crash() {
	w.note("crash")
	w.count("crash")
	clone := w.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	w.forward()
	_ = w.c.Close(context.Background())
	w.fs = clone
	w.c = testOpen(w.t, w.fs, w.o)
	w.find()
}

// find takes the tables of an opened warehouse.
func (w *world) find() {
	for _, m := range w.tables {
		tab, ok := w.c.Table("d", m.name)
		require.True(w.t, ok, m.name)
		m.tab = tab
	}
}

// behind tells whether the wall clock is behind commits, so that nothing is written to the tables' files.
func (w *world) behind() bool { return w.c.Clock().Now().Sub(w.o.Now()) > maxAhead }

// forward has the wall clock catch up with the commits.
func (w *world) forward() {
	if w.behind() {
		w.skew += w.c.Clock().Now().Sub(w.o.Now()) + time.Millisecond
	}
}

// jump moves the wall clock by hours. While it is behind, commits go on and reads see them; flushes are refused.
func (w *world) jump() {
	w.count("clock")
	w.skew = time.Duration(w.r.IntN(10*3600)-5*3600) * time.Second
	w.note("the clock is set by %s", w.skew)
	if !w.behind() {
		return
	}
	for range 1 + w.r.IntN(4) {
		x := w.begin()
		x.small = true // larger ones go into files, which is refused
		w.step(x)
		w.commit(x)
		w.remember()
	}
	m := w.any()
	if m.tab.isBuffered() {
		require.ErrorIs(w.t, w.c.Flush(context.Background(), "test", m.tab), ErrReadOnly)
	}
	tx, err := w.c.Begin(context.Background())
	require.NoError(w.t, err)
	w.compareScan(m, m.rows, tx.Scan(context.Background(), m.tab, ScanOptions{}), "while the clock is behind")
	tx.Rollback()
	if w.r.IntN(3) == 0 {
		w.crash()
	}
	w.forward()
}
