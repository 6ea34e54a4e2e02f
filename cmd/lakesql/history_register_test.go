package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Registers: rows that statements outside of a transaction read, write and exchange. Whatever the isolation level, there has to be one
// order of them that each agrees with, and in which a statement that was sent after another one's answer comes later.

// registerOp is a statement on a register. Every value is written once; 0 is there from the beginning.
type registerOp struct {
	value      int // that was read or written
	from       int // of an exchange: the value that it replaced
	write      bool
	began, end time.Time
}

// checkRegister finds a value of a register that breaks the order, "" if there is none: for each value there is a time at which it
// stood there for sure, or one at which its statements have to have happened, and these may not lie in each other's way.
func checkRegister(ops []registerOp) string {
	type zone struct {
		value           int
		written         *registerOp
		firstEnd, begun time.Time // the earliest end of its statements, and the latest begin
	}
	zones := map[int]*zone{0: {}} // written before all others
	replaced := map[int]int{}
	see := func(op *registerOp, value int) *zone {
		z := zones[value]
		if z == nil {
			z = &zone{value: value, firstEnd: op.end, begun: op.began}
			zones[value] = z
		}
		if op.end.Before(z.firstEnd) {
			z.firstEnd = op.end
		}
		if op.began.After(z.begun) {
			z.begun = op.began
		}
		return z
	}
	for i := range ops {
		op := &ops[i]
		if z := see(op, op.value); op.write {
			z.written = op
		}
		if op.from >= 0 && op.write {
			if other, twice := replaced[op.from]; twice {
				return fmt.Sprintf("lost update: %d was exchanged for %d and for %d", op.from, other, op.value)
			}
			replaced[op.from] = op.value
		}
	}
	// An exchange sees the value that it replaces, and no other statement may come between.
	for i := range ops {
		if op := &ops[i]; op.write && op.from >= 0 {
			see(op, op.from)
		}
	}
	var sure, short []*zone
	for _, z := range zones {
		if z.written == nil && z.value != 0 {
			return fmt.Sprintf("%d was read, and nobody wrote it", z.value)
		}
		if z.written != nil && z.firstEnd.Before(z.written.began) {
			return fmt.Sprintf("%d was read before it was written", z.value)
		}
		if z.firstEnd.Before(z.begun) {
			sure = append(sure, z)
		} else {
			short = append(short, z)
		}
	}
	slices.SortFunc(sure, func(a, b *zone) int { return a.firstEnd.Compare(b.firstEnd) })
	for i := 1; i < len(sure); i++ {
		if sure[i].firstEnd.Before(sure[i-1].begun) {
			return fmt.Sprintf("%d and %d were both there from %s to %s", sure[i-1].value, sure[i].value, sure[i].firstEnd.Format("05.000000"), sure[i-1].begun.Format("05.000000"))
		}
	}
	for _, z := range short {
		n, _ := slices.BinarySearchFunc(sure, z.begun, func(s *zone, at time.Time) int { return s.firstEnd.Compare(at) })
		if n > 0 && z.firstEnd.Before(sure[n-1].begun) {
			return fmt.Sprintf("%d was there while %d was", z.value, sure[n-1].value)
		}
	}
	return ""
}

// The check finds each kind of disorder.
func TestHistoryRegisterCheck(t *testing.T) {
	at := time.Unix(0, 0)
	op := func(write bool, value, from, began, end int) registerOp {
		return registerOp{value: value, from: from, write: write, began: at.Add(time.Duration(began)), end: at.Add(time.Duration(end))}
	}
	const none = -1
	for what, c := range map[string]struct {
		ops []registerOp
		ok  bool
	}{
		"in turn":               {[]registerOp{op(true, 1, none, 1, 2), op(false, 1, none, 3, 4), op(true, 2, none, 5, 6), op(false, 2, none, 7, 8)}, true},
		"at once":               {[]registerOp{op(true, 1, none, 1, 9), op(true, 2, none, 1, 9), op(false, 2, none, 2, 3), op(false, 1, none, 4, 5)}, true},
		"stale":                 {[]registerOp{op(true, 1, none, 1, 2), op(false, 0, none, 3, 4)}, false},
		"stale, with a read":    {[]registerOp{op(false, 0, none, 0, 1), op(true, 1, none, 1, 2), op(false, 0, none, 3, 4)}, false},
		"back again":            {[]registerOp{op(true, 1, none, 1, 9), op(true, 2, none, 1, 9), op(false, 1, none, 2, 3), op(false, 2, none, 4, 5), op(false, 1, none, 6, 7)}, false},
		"from the future":       {[]registerOp{op(false, 1, none, 1, 2), op(true, 1, none, 3, 4)}, false},
		"from nowhere":          {[]registerOp{op(false, 3, none, 1, 2)}, false},
		"exchanged twice":       {[]registerOp{op(true, 1, 0, 1, 9), op(true, 2, 0, 1, 9)}, false},
		"exchanged":             {[]registerOp{op(true, 1, 0, 1, 9), op(true, 2, 1, 1, 9), op(false, 2, none, 5, 6)}, true},
		"exchanged when gone":   {[]registerOp{op(true, 1, 0, 1, 2), op(true, 2, none, 3, 4), op(false, 2, none, 5, 6), op(true, 3, 1, 7, 8)}, false},
		"a write got lost":      {[]registerOp{op(true, 1, none, 1, 2), op(true, 2, none, 3, 4), op(false, 1, none, 5, 6)}, false},
		"a short one is inside": {[]registerOp{op(true, 1, none, 1, 2), op(false, 1, none, 9, 10), op(true, 2, none, 4, 6), op(false, 2, none, 4, 7)}, false},
	} {
		text := checkRegister(c.ops)
		require.Equal(t, c.ok, text == "", "%s: %s", what, text)
	}
}

// TestHistoryRegisters has 8 connections read, write and exchange registers for HISTORY seconds a level.
func TestHistoryRegisters(t *testing.T) {
	d := time.Duration(sizeOf(t, "HISTORY", 1)) * time.Second
	const registers, each = 4, 400 // a register is left for the next after that many values
	p := startProcess(t, t.TempDir(), "")
	db := p.open(t, "")
	mustExec(t, db, "CREATE DATABASE h")
	for n, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			table := fmt.Sprint("h.reg", n)
			mustExec(t, db, "CREATE TABLE "+table+` (id INT PRIMARY KEY, v INT NOT NULL, KEY (v)) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
			var mu sync.Mutex
			history := map[int][]registerOp{}
			var value, exchanged atomic.Int64
			known := make([]int, historyClients) // the value that a client has read last, to exchange it
			last := make([]int, historyClients)  // of which register
			leveled := make([]bool, historyClients)
			done, _ := historyWork(t, p, d, func(ctx context.Context, c *sql.Conn, w int, rnd *rand.Rand) error {
				if !leveled[w] {
					if err := execAll(ctx, c, "SET SESSION TRANSACTION ISOLATION LEVEL "+level); err != nil {
						return err
					}
					leveled[w] = true
				}
				id := registers*int(value.Load()/(registers*each)) + rnd.IntN(registers)
				op := registerOp{from: -1, began: time.Now()}
				switch rnd.IntN(4) {
				case 0:
					op.value, op.write = int(value.Add(1)), true
					if err := execAll(ctx, c, fmt.Sprintf("INSERT INTO %s VALUES (%d, %d) ON DUPLICATE KEY UPDATE v = %[3]d", table, id, op.value)); err != nil {
						return err
					}
				case 1:
					if id = last[w]; known[w] == 0 {
						return nil
					}
					op.value, op.from, op.write = int(value.Add(1)), known[w], true
					r, err := c.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET v = %d WHERE id = %d AND v = %d", table, op.value, id, op.from))
					if err != nil {
						return err
					}
					if n, err := r.RowsAffected(); err != nil || n == 0 {
						return err
					}
					exchanged.Add(1)
				default:
					where := fmt.Sprint("id = ", id)
					if known[w] > 0 && last[w] == id && rnd.IntN(4) == 0 {
						where = fmt.Sprintf("v = %d", known[w]) // by the index; it may be gone
					}
					err := c.QueryRowContext(ctx, "SELECT v FROM "+table+" WHERE "+where).Scan(&op.value)
					if err == sql.ErrNoRows && where[0] == 'v' {
						return nil
					}
					if err != nil && err != sql.ErrNoRows {
						return err
					}
					known[w], last[w] = op.value, id
				}
				op.end = time.Now()
				mu.Lock()
				defer mu.Unlock()
				history[id] = append(history[id], op)
				return nil
			})
			require.Greater(t, done, int64(10))
			require.Positive(t, exchanged.Load())
			for id, ops := range history {
				require.Empty(t, checkRegister(ops), "register %d: %+v", id, ops)
			}
			t.Logf("%d statements on %d registers, %d exchanges", done, len(history), exchanged.Load())
		})
	}
	p.stop(t)
}
