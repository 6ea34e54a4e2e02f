package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Histories of concurrent transactions, checked afterwards for what the isolation level forbids. The list-append check follows
// Adya's phenomena: each transaction appends unique values to lists and reads lists; the final lists give the order of all
// versions, from which the dependencies between transactions follow.

// historyClients is the number of connections of a history check.
const historyClients = 8

// listOp is a read of a list, or an append to it.
type listOp struct {
	key    int
	append int   // the value appended; 0: a read
	read   []int // what the read gave
}

// listTx is one transaction of a history.
type listTx struct {
	ops        []listOp
	began, end time.Time // before the first statement was sent, after the COMMIT was answered
	committed  bool
	writes     bool
}

// listMode is how the transactions of a history run.
type listMode struct {
	name, level string
	locking     string // behind each SELECT
	serial      bool   // no cycle of any dependencies may appear
	snapshot    bool   // what a transaction that only reads has read is one state
	rowsOnly    bool   // rows that are not there are not locked
}

var listModes = []listMode{
	{name: "read committed", level: "READ COMMITTED"},
	{name: "repeatable read", level: "REPEATABLE READ", snapshot: true},
	{name: "repeatable read, locking", level: "REPEATABLE READ", locking: " FOR UPDATE", serial: true},
	{name: "read committed, locking", level: "READ COMMITTED", locking: " FOR UPDATE", serial: true, rowsOnly: true},
	{name: "serializable", level: "SERIALIZABLE", serial: true},
}

// TestHistoryLists has 8 connections append to and read from lists for HISTORY seconds in each mode.
func TestHistoryLists(t *testing.T) {
	seconds := sizeOf(t, "HISTORY", 1)
	p := startProcess(t, t.TempDir(), "")
	db := p.open(t, "interpolateParams=true")
	mustExec(t, db, "CREATE DATABASE h")
	for n, m := range listModes {
		for _, absent := range []bool{false, true} {
			if absent && m.rowsOnly {
				continue
			}
			name := m.name
			if absent {
				name += ", new rows"
			}
			t.Run(name, func(t *testing.T) {
				table := fmt.Sprintf("h.list%d%t", n, absent)
				mustExec(t, db, "CREATE TABLE "+table+` (k INT PRIMARY KEY, v LONGTEXT NOT NULL) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
				if !absent {
					for k := range 4096 {
						if k%512 == 0 {
							rows := make([]string, 512)
							for i := range rows {
								rows[i] = fmt.Sprintf("(%d, '')", k+i)
							}
							mustExec(t, db, "INSERT INTO "+table+" VALUES "+strings.Join(rows, ","))
						}
					}
				}
				txs := runLists(t, p, table, m, absent, time.Duration(seconds)*time.Second)
				checkLists(t, db, table, m, txs)
			})
		}
	}
	p.stop(t)
}

func runLists(t *testing.T, p *process, table string, m listMode, absent bool, d time.Duration) []*listTx {
	db := p.open(t, "interpolateParams=true")
	defer db.Close()
	db.SetMaxIdleConns(historyClients)
	var value, appends atomic.Int64
	var wg sync.WaitGroup
	all := make([][]*listTx, historyClients)
	errs := make([]error, historyClients)
	until := time.Now().Add(d)
	for w := range historyClients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), uint64(d)))
			ctx := context.Background()
			for time.Now().Before(until) && errs[w] == nil {
				x := &listTx{began: time.Now()}
				readOnly := rnd.IntN(3) == 0
				errs[w] = func() error {
					c, err := db.Conn(ctx)
					if err != nil {
						return err
					}
					defer c.Close()
					if _, err := c.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL "+m.level); err != nil {
						return err
					}
					if _, err := c.ExecContext(ctx, "START TRANSACTION"); err != nil {
						return err
					}
					for range 1 + rnd.IntN(4) {
						key := int(appends.Load()/200)%4000 + rnd.IntN(4)
						if readOnly || rnd.IntN(2) == 0 {
							var text string
							err = c.QueryRowContext(ctx, fmt.Sprintf("SELECT v FROM %s WHERE k = %d%s", table, key, m.locking)).Scan(&text)
							if err == sql.ErrNoRows {
								err = nil
							}
							x.ops = append(x.ops, listOp{key: key, read: parseList(text)})
						} else {
							v := int(value.Add(1))
							q := fmt.Sprintf("UPDATE %s SET v = CONCAT(v, ',%d') WHERE k = %d", table, v, key)
							if absent {
								q = fmt.Sprintf("INSERT INTO %s VALUES (%d, ',%d') ON DUPLICATE KEY UPDATE v = CONCAT(v, ',%d')", table, key, v, v)
							}
							_, err = c.ExecContext(ctx, q)
							x.ops, x.writes = append(x.ops, listOp{key: key, append: v}), true
							appends.Add(1)
						}
						if err != nil {
							break
						}
					}
					if err == nil && rnd.IntN(10) > 0 {
						_, err = c.ExecContext(ctx, "COMMIT")
						x.committed = err == nil
					}
					x.end = time.Now()
					if !x.committed {
						if _, err := c.ExecContext(ctx, "ROLLBACK"); err != nil {
							return err
						}
					}
					if retry(err) {
						err = nil
					}
					return err
				}()
				all[w] = append(all[w], x)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return slices.Concat(all...)
}

func parseList(text string) []int {
	var out []int
	for _, f := range strings.Split(text, ",")[1:] {
		n, err := strconv.Atoi(f)
		if err != nil {
			panic("list is torn: " + text)
		}
		out = append(out, n)
	}
	return out
}

// checkLists demands of a history what its mode promises.
func checkLists(t *testing.T, db *sql.DB, table string, m listMode, txs []*listTx) {
	final := map[int][]int{}
	rows, err := db.Query("SELECT k, v FROM " + table)
	require.NoError(t, err)
	for rows.Next() {
		var k int
		var v string
		require.NoError(t, rows.Scan(&k, &v))
		final[k] = parseList(v)
	}
	require.NoError(t, rows.Err())
	writer := map[int]*listTx{}
	committed := 0
	for _, x := range txs {
		if x.committed {
			committed++
		}
		for _, op := range x.ops {
			if op.append > 0 {
				writer[op.append] = x
			}
		}
	}
	at := map[int]int{} // value → its place in its list
	for k, list := range final {
		for i, v := range list {
			require.NotNil(t, writer[v], "value %d of list %d was never written", v, k)
			require.True(t, writer[v].committed, "aborted write: value %d stands in list %d", v, k)
			_, twice := at[v]
			require.False(t, twice, "value %d stands twice in list %d: %v", v, k, list)
			at[v] = i
		}
	}
	g := graph{}
	for _, x := range txs {
		if !x.committed {
			continue
		}
		for n, op := range x.ops {
			if op.append > 0 {
				_, there := at[op.append]
				require.True(t, there, "lost update: value %d of list %d was acknowledged and is gone: %v", op.append, op.key, final[op.key])
				continue
			}
			list := final[op.key]
			require.True(t, len(op.read) <= len(list) && slices.Equal(op.read, list[:len(op.read)]), "list %d was read as %v, and is %v: a value was read that was rolled back or came from nowhere", op.key, op.read, list)
			for i := n - 1; i >= 0; i-- { // the transaction's last statement on this list
				o := x.ops[i]
				if o.key != op.key {
					continue
				}
				if o.append > 0 {
					require.Contains(t, op.read, o.append, "list %d: a transaction does not see its own value", op.key)
				} else if m.level != "READ COMMITTED" || m.serial {
					require.Equal(t, o.read, op.read, "list %d: a second read differs", op.key)
				}
				break
			}
			if k := len(op.read); k > 0 && k < len(list) && writer[list[k-1]] != x {
				require.NotSame(t, writer[list[k-1]], writer[list[k]], "list %d: a state in the middle of a transaction was read: %v of %v", op.key, op.read, list)
			}
			if k := len(op.read); k > 0 {
				g.add(writer[list[k-1]], x, "wr")
			}
			if k := len(op.read); k < len(list) && (m.serial || m.snapshot && !x.writes) {
				g.add(x, writer[list[k]], "rw")
			}
		}
	}
	for _, list := range final {
		for i := 1; i < len(list); i++ {
			g.add(writer[list[i-1]], writer[list[i]], "ww")
		}
	}
	if m.serial || m.snapshot {
		g.addTime(txs, m)
	}
	if cycle := g.cycle(); cycle != nil {
		var b strings.Builder
		for _, n := range cycle {
			if x, ok := n.(*listTx); ok {
				fmt.Fprintf(&b, "%p began %s, ended %s: %+v\n", x, x.began.Format("05.000000"), x.end.Format("05.000000"), x.ops)
			} else {
				fmt.Fprintf(&b, "time passes\n")
			}
		}
		t.Fatalf("the dependencies of %d transactions form a cycle:\n%s", len(cycle), b.String())
	}
	require.Greater(t, committed, 10)
	t.Logf("%d transactions, %d committed, %d lists", len(txs), committed, len(final))
}

// graph has transactions, and moments in time between them, as nodes.
type graph map[any][]any

func (g graph) add(from, to any, _ string) {
	if from != to {
		g[from] = append(g[from], to)
	}
}

// addTime adds that a transaction which began after another one's commit was answered comes after it. Of transactions that
// write under a snapshot level only their own ends are bound to time: what they read may be older than what they write over.
func (g graph) addTime(txs []*listTx, m listMode) {
	type event struct {
		at    time.Time
		begin bool
		x     *listTx
	}
	var events []event
	for _, x := range txs {
		if x.committed {
			events = append(events, event{x.began, true, x}, event{x.end, false, x})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	var last *event // the moment after the newest end
	for i := range events {
		e := &events[i]
		if e.begin {
			if last != nil {
				g.add(last, e.x, "time")
			}
			continue
		}
		g.add(e.x, e, "time")
		if last != nil {
			g.add(last, e, "time")
		}
		last = e
	}
}

// cycle gives the nodes of a cycle, nil if there is none.
func (g graph) cycle() []any {
	const open, done = 1, 2
	state := map[any]int{}
	type frame struct {
		node any
		next int
	}
	for start := range g {
		if state[start] != 0 {
			continue
		}
		stack := []frame{{node: start}}
		state[start] = open
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.next == len(g[f.node]) {
				state[f.node] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := g[f.node][f.next]
			f.next++
			switch state[to] {
			case 0:
				state[to] = open
				stack = append(stack, frame{node: to})
			case open:
				var out []any
				for i := len(stack) - 1; ; i-- {
					out = append(out, stack[i].node)
					if stack[i].node == to {
						slices.Reverse(out)
						return out
					}
				}
			}
		}
	}
	return nil
}

// The graph finds each of the forbidden forms: a check of histories that could not fail would show nothing.
func TestHistoryGraph(t *testing.T) {
	a, b, c := &listTx{}, &listTx{}, &listTx{}
	g := graph{}
	g.add(a, b, "ww")
	g.add(b, c, "wr")
	require.Nil(t, g.cycle())
	g.add(c, a, "rw")
	require.Len(t, g.cycle(), 3)
	now := time.Now()
	a.began, a.end, a.committed = now, now.Add(1), true
	b.began, b.end, b.committed = now.Add(2), now.Add(3), true
	g = graph{}
	g.addTime([]*listTx{a, b}, listMode{serial: true})
	require.Nil(t, g.cycle())
	g.add(b, a, "rw")
	require.Len(t, g.cycle(), 3)
}

// worker runs a function on each of 8 connections until the time is over; retryable errors are counted.
func historyWork(t *testing.T, p *process, d time.Duration, f func(ctx context.Context, c *sql.Conn, w int, rnd *rand.Rand) error) (done, retried int64) {
	db := p.open(t, "interpolateParams=true")
	defer db.Close()
	var wg sync.WaitGroup
	var ok, again atomic.Int64
	errs := make([]error, historyClients)
	until := time.Now().Add(d)
	for w := range historyClients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 5))
			ctx := context.Background()
			c, err := db.Conn(ctx)
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			for time.Now().Before(until) {
				err := f(ctx, c, w, rnd)
				if err == nil {
					ok.Add(1)
					continue
				}
				_, _ = c.ExecContext(ctx, "ROLLBACK")
				if !retry(err) {
					errs[w] = err
					return
				}
				again.Add(1)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Logf("%d done, %d to be run again", ok.Load(), again.Load())
	return ok.Load(), again.Load()
}

func execAll(ctx context.Context, c *sql.Conn, queries ...string) error {
	for _, q := range queries {
		if _, err := c.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// TestHistoryBank moves money between accounts: no reader ever sees another sum, no account falls below zero.
func TestHistoryBank(t *testing.T) {
	d := time.Duration(sizeOf(t, "HISTORY", 1)) * time.Second
	const accounts, each = 10, 100
	p := startProcess(t, t.TempDir(), "")
	db := p.open(t, "")
	mustExec(t, db, "CREATE DATABASE h")
	for n, m := range []struct{ name, level, locking string }{
		{"repeatable read", "REPEATABLE READ", " FOR UPDATE"},
		{"read committed", "READ COMMITTED", " FOR UPDATE"},
		{"serializable", "SERIALIZABLE", ""},
	} {
		t.Run(m.name, func(t *testing.T) {
			table := fmt.Sprint("h.bank", n)
			mustExec(t, db, "CREATE TABLE "+table+` (id INT PRIMARY KEY, balance INT NOT NULL CHECK (balance >= 0)) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
			for i := range accounts {
				mustExec(t, db, fmt.Sprintf("INSERT INTO %s VALUES (%d, %d)", table, i, each))
			}
			done, _ := historyWork(t, p, d, func(ctx context.Context, c *sql.Conn, w int, rnd *rand.Rand) error {
				if err := execAll(ctx, c, "SET TRANSACTION ISOLATION LEVEL "+m.level, "START TRANSACTION"); err != nil {
					return err
				}
				if w%2 == 0 {
					sum := 0
					if m.level == "READ COMMITTED" || rnd.IntN(2) == 0 {
						if err := c.QueryRowContext(ctx, "SELECT SUM(balance) FROM "+table).Scan(&sum); err != nil {
							return err
						}
					} else {
						for i := range accounts {
							var v int
							if err := c.QueryRowContext(ctx, fmt.Sprintf("SELECT balance FROM %s WHERE id = %d", table, i)).Scan(&v); err != nil {
								return err
							}
							sum += v
						}
					}
					if sum != accounts*each {
						return fmt.Errorf("the accounts hold %d, not %d", sum, accounts*each)
					}
					return execAll(ctx, c, "COMMIT")
				}
				from, to := rnd.IntN(accounts), rnd.IntN(accounts)
				var have int
				if err := c.QueryRowContext(ctx, fmt.Sprintf("SELECT balance FROM %s WHERE id = %d%s", table, from, m.locking)).Scan(&have); err != nil {
					return err
				}
				amount := rnd.IntN(30)
				if from == to || amount > have {
					return execAll(ctx, c, "ROLLBACK")
				}
				return execAll(ctx, c,
					fmt.Sprintf("UPDATE %s SET balance = %d WHERE id = %d", table, have-amount, from),
					fmt.Sprintf("UPDATE %s SET balance = balance + %d WHERE id = %d", table, amount, to),
					"COMMIT")
			})
			require.Positive(t, done)
			var sum, rows int
			require.NoError(t, db.QueryRow("SELECT SUM(balance), COUNT(*) FROM "+table).Scan(&sum, &rows))
			require.Equal(t, []int{accounts * each, accounts}, []int{sum, rows})
		})
	}
	p.stop(t)
}

// TestHistoryKeys races for UNIQUE values and for parents of a foreign key: no value has two owners, no child is without a parent.
func TestHistoryKeys(t *testing.T) {
	d := time.Duration(sizeOf(t, "HISTORY", 1)) * time.Second
	p := startProcess(t, t.TempDir(), "")
	db := p.open(t, "")
	mustExec(t, db, "CREATE DATABASE h")
	t.Run("unique", func(t *testing.T) {
		mustExec(t, db, `CREATE TABLE h.u (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20) NOT NULL, UNIQUE KEY (name)) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
		var taken, refused atomic.Int64
		historyWork(t, p, d, func(ctx context.Context, c *sql.Conn, w int, rnd *rand.Rand) error {
			name := fmt.Sprint("n", rnd.IntN(30))
			var err error
			switch rnd.IntN(4) {
			case 0:
				err = execAll(ctx, c, "DELETE FROM h.u WHERE name = '"+name+"'")
			case 1:
				err = execAll(ctx, c, "START TRANSACTION", "UPDATE h.u SET name = '"+name+"' WHERE name = '"+fmt.Sprint("n", rnd.IntN(30))+"'", "COMMIT")
			default:
				err = execAll(ctx, c, "INSERT INTO h.u (name) VALUES ('"+name+"')")
				if err == nil {
					taken.Add(1)
				}
			}
			if errorNumber(err) == 1062 {
				refused.Add(1)
				return execAll(ctx, c, "ROLLBACK")
			}
			return err
		})
		require.Positive(t, taken.Load())
		require.Positive(t, refused.Load())
		var rows, names int
		require.NoError(t, db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT name) FROM h.u").Scan(&rows, &names))
		require.Equal(t, rows, names, "a UNIQUE value has two owners")
		for i := range 30 { // by the index
			var n, m int
			name := fmt.Sprint("n", i)
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM h.u WHERE name = ?", name).Scan(&n))
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM h.u WHERE CONCAT(name, '') = ?", name).Scan(&m))
			require.Equal(t, m, n, name)
		}
	})
	t.Run("foreign key", func(t *testing.T) {
		mustExec(t, db, `CREATE TABLE h.parent (id INT PRIMARY KEY) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
		mustExec(t, db, `CREATE TABLE h.child (id INT PRIMARY KEY AUTO_INCREMENT, parent INT NOT NULL, KEY (parent), FOREIGN KEY (parent) REFERENCES h.parent (id)) ENGINE_ATTRIBUTE='{"bin.max_age":"200ms"}'`)
		var refused atomic.Int64
		historyWork(t, p, d, func(ctx context.Context, c *sql.Conn, w int, rnd *rand.Rand) error {
			id := rnd.IntN(8)
			var err error
			switch rnd.IntN(5) {
			case 0:
				err = execAll(ctx, c, fmt.Sprintf("INSERT IGNORE INTO h.parent VALUES (%d)", id))
			case 1:
				err = execAll(ctx, c, fmt.Sprintf("DELETE FROM h.parent WHERE id = %d", id))
			case 2:
				err = execAll(ctx, c, fmt.Sprintf("DELETE FROM h.child WHERE parent = %d", id))
			default:
				err = execAll(ctx, c, "START TRANSACTION", fmt.Sprintf("INSERT INTO h.child (parent) VALUES (%d)", id), "COMMIT")
			}
			if n := errorNumber(err); n == 1451 || n == 1452 {
				refused.Add(1)
				return execAll(ctx, c, "ROLLBACK")
			}
			return err
		})
		require.Positive(t, refused.Load())
		var orphans int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM h.child LEFT JOIN h.parent ON parent.id = child.parent WHERE parent.id IS NULL").Scan(&orphans))
		require.Zero(t, orphans, "children without a parent")
	})
	p.stop(t)
}
