package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killWriters is the number of connections that write while the server is killed.
const killWriters = 8

// ledger is what one connection did. Its transaction n writes
//   - line: 1 + n%5 rows (writer, n, part), and deletes those of transaction n-10,
//   - done: one row (writer, n, parts, hot),
//   - total: sets last = n in the row of the writer,
//   - hot: in every fourth transaction, adds 1 to a row that all writers share,
//
// and every seventh transaction is rolled back at its end.
type ledger struct {
	writer int
	next   int // number of the transaction that is tried next
	acked  map[int]bool
	open   int // the transaction whose fate nobody knows: killed before its COMMIT was answered; 0: none
}

// kept is how many transactions keep their lines.
const kept = 10

func (l *ledger) transaction(ctx context.Context, db *sql.DB) error {
	n := l.next
	undo := n%7 == 0
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	exec := func(q string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, q, args...)
		}
	}
	hot := 0
	if n%4 == 0 {
		hot = 1
		exec("UPDATE k.hot SET v = v + 1 WHERE id = 1")
	}
	for part := range 1 + n%5 {
		exec("INSERT INTO k.line (writer, n, part, pad) VALUES (?, ?, ?, REPEAT('x', 200))", l.writer, n, part)
	}
	exec("DELETE FROM k.line WHERE writer = ? AND n = ?", l.writer, n-kept)
	exec("INSERT INTO k.done VALUES (?, ?, ?, ?)", l.writer, n, 1+n%5, hot)
	exec("UPDATE k.total SET last = ? WHERE writer = ?", n, l.writer)
	if err != nil {
		return err
	}
	if undo {
		l.next++
		return tx.Rollback()
	}
	l.open = n
	if err := tx.Commit(); err != nil {
		if retry(err) {
			l.open = 0 // the server said that nothing happened
		}
		return err
	}
	l.open = 0
	l.acked[n] = true
	l.next++
	return nil
}

// retry says whether the server undid the transaction and asks for it again.
func retry(err error) bool { n := errorNumber(err); return n == 1213 || n == 1205 }

// work writes until the server is gone.
func (l *ledger) work(ctx context.Context, db *sql.DB) {
	for ctx.Err() == nil {
		if err := l.transaction(ctx, db); err != nil && !retry(err) {
			if errorNumber(err) != 0 {
				panic(fmt.Sprintf("writer %d, transaction %d: %v", l.writer, l.next, err))
			}
			return
		}
	}
}

// checkLedgers compares the tables with the ledgers and settles the open transactions: each is there or not, as a whole.
func checkLedgers(t *testing.T, db *sql.DB, ledgers []*ledger) {
	t.Helper()
	type key struct{ writer, n int }
	done, lines, last := map[key]int{}, map[key]int{}, map[int]int{}
	hots, each := 0, func(q string, f func(*sql.Rows) error) {
		rows, err := db.Query(q)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			require.NoError(t, f(rows))
		}
		require.NoError(t, rows.Err())
	}
	each("SELECT writer, n, parts, hot FROM k.done", func(r *sql.Rows) error {
		var k key
		var parts, hot int
		err := r.Scan(&k.writer, &k.n, &parts, &hot)
		require.NotContains(t, done, k, "a row twice")
		done[k] = parts
		hots += hot
		return err
	})
	each("SELECT writer, n, COUNT(*), COUNT(DISTINCT part) FROM k.line GROUP BY writer, n", func(r *sql.Rows) error {
		var k key
		var n, distinct int
		err := r.Scan(&k.writer, &k.n, &n, &distinct)
		require.Equal(t, n, distinct, "a row twice in %v", k)
		lines[k] = n
		return err
	})
	each("SELECT writer, last FROM k.total", func(r *sql.Rows) error {
		var w, n int
		err := r.Scan(&w, &n)
		last[w] = n
		return err
	})
	for _, l := range ledgers {
		if l.open != 0 {
			if _, there := done[key{l.writer, l.open}]; there {
				l.acked[l.open] = true
				l.next = l.open + 1
			}
			l.open = 0
		}
		newest := 0
		for n := range l.acked {
			require.Contains(t, done, key{l.writer, n}, "writer %d: acknowledged transaction %d is gone", l.writer, n)
			newest = max(newest, n)
		}
		for k, parts := range done {
			if k.writer != l.writer {
				continue
			}
			require.True(t, l.acked[k.n], "writer %d: transaction %d was never committed", l.writer, k.n)
			want := parts
			if l.acked[k.n+kept] {
				want = 0
			}
			require.Equal(t, want, lines[k], "writer %d: rows of transaction %d", l.writer, k.n)
			delete(lines, k)
		}
		require.Equal(t, newest, last[l.writer], "writer %d: its last transaction", l.writer)
	}
	require.Empty(t, lines, "rows of transactions that were never committed")
	var hot int
	require.NoError(t, db.QueryRow("SELECT v FROM k.hot WHERE id = 1").Scan(&hot))
	require.Equal(t, hots, hot, "updates of the shared row")
}

// TestCrashKill kills the server KILLS times at random moments, also while it recovers, under 8 connections that write
// transactions over four tables, one that loads and changes 20,000 rows by one statement, and one that changes definitions:
// what was acknowledged is there, what was not is there as a whole or not at all.
// D8, D14
func TestCrashKill(t *testing.T) {
	runKills(t, sizeOf(t, "KILLS", 2), nil)
}

// TestInteropKill is TestCrashKill with Spark as a second writer; in the end all engines read the same.
// D8, D27
func TestInteropKill(t *testing.T) {
	runKills(t, sizeOf(t, "KILLS", 2), startOracle(t))
}

func runKills(t *testing.T, kills int, o *oracle) {
	seed := uint64(sizeOf(t, "SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("SEED=%d KILLS=%d", seed, kills)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	db := p.open(t, "")
	for _, q := range []string{
		"CREATE DATABASE k",
		`CREATE TABLE k.line (writer INT, n INT, part INT, pad VARCHAR(300), PRIMARY KEY (writer, n, part)) ENGINE_ATTRIBUTE='{"type":"mor","partition":["writer"],"bin.max_age":"300ms"}'`,
		`CREATE TABLE k.done (writer INT, n INT, parts INT, hot INT, PRIMARY KEY (writer, n)) ENGINE_ATTRIBUTE='{"type":"mor","bin.max_age":"500ms"}'`,
		`CREATE TABLE k.total (writer INT PRIMARY KEY, last INT) ENGINE_ATTRIBUTE='{"type":"cow","bin.max_age":"700ms"}'`,
		`CREATE TABLE k.hot (id INT PRIMARY KEY, v BIGINT)`,
		"INSERT INTO k.hot VALUES (1, 0)",
	} {
		mustExec(t, db, q)
	}
	var ledgers []*ledger
	for w := 1; w <= killWriters; w++ {
		mustExec(t, db, "INSERT INTO k.total VALUES (?, 0)", w)
		ledgers = append(ledgers, &ledger{writer: w, next: 1, acked: map[int]bool{}})
	}
	writers := []killWriter{
		&bulkLedger{rnd: rand.New(rand.NewPCG(seed, 2)), batches: map[int]string{}},
		&ddlLedger{rnd: rand.New(rand.NewPCG(seed, 3))},
	}
	var spark *sparkLedger
	if o != nil {
		spark = &sparkLedger{o: o, t: t, folder: filepath.Join(dir, "warehouse", "k", "shared"), spark: map[int]int{}, ours: map[int]int{}}
		writers = append(writers, spark)
	}
	for _, w := range writers {
		w.create(t, db)
	}
	for kill := 1; kill <= kills; kill++ {
		ctx, cancel := context.WithCancel(context.Background())
		db := p.open(t, "interpolateParams=true")
		var wg sync.WaitGroup
		var failed atomic.Pointer[string]
		guarded := func(f func()) {
			wg.Go(func() {
				defer func() {
					if e := recover(); e != nil {
						text := fmt.Sprint(e)
						failed.Store(&text)
					}
				}()
				f()
			})
		}
		for _, l := range ledgers {
			guarded(func() { l.work(ctx, db) })
		}
		for _, w := range writers {
			guarded(func() {
				for ctx.Err() == nil {
					if err := w.step(ctx, db); err != nil && !retry(err) {
						if errorNumber(err) != 0 {
							panic(fmt.Sprintf("%T: %v", w, err))
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(50+rnd.IntN(2500)) * time.Millisecond)
		p.kill(t)
		wg.Wait()
		cancel()
		db.Close()
		if e := failed.Load(); e != nil {
			t.Fatal(*e)
		}
		if kill%4 == 0 { // die again in the middle of the recovery
			p = startProcess(t, dir, "")
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			p.kill(t)
		}
		p = startProcess(t, dir, "")
		db = p.open(t, "")
		checkLedgers(t, db, ledgers)
		for _, w := range writers {
			w.check(t, db)
		}
	}
	n := 0
	for _, l := range ledgers {
		n += len(l.acked)
	}
	t.Logf("%d kills, %d acknowledged transactions", kills, n)
	require.Greater(t, n, kills)
	if o == nil {
		p.stop(t)
		return
	}
	spark.finish(t, p.open(t, ""))
	same := map[string][]map[string]any{}
	db = p.open(t, "")
	for _, table := range []string{"line", "done", "total", "hot", "shared"} {
		same[table] = readRows(t, db, "SELECT * FROM k."+table)
	}
	var bulk int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM k.bulk").Scan(&bulk))
	p.stop(t)
	for table, ours := range same {
		for _, engine := range []string{"hudi-rs", "spark"} {
			theirs := o.read(t, readRequest{Engine: engine, Table: filepath.Join(dir, "warehouse", "k", table)})
			require.Equal(t, len(ours), len(theirs), "%s by %s", table, engine)
			require.ElementsMatch(t, ours, theirs, "%s by %s", table, engine)
		}
	}
	for _, engine := range []string{"hudi-rs", "spark"} {
		rows, _ := o.checksums(t, engine, filepath.Join(dir, "warehouse", "k", "bulk"))
		require.Equal(t, int64(bulk), rows, "bulk by %s", engine)
	}
}

// readRows gives rows in the form in which the oracle gives them.
func readRows(t *testing.T, db *sql.DB, q string) []map[string]any {
	t.Helper()
	rows, err := db.Query(q)
	require.NoError(t, err)
	defer rows.Close()
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	var out []map[string]any
	for rows.Next() {
		values := make([]sql.NullString, len(types))
		to := make([]any, len(types))
		for i := range values {
			to[i] = &values[i]
		}
		require.NoError(t, rows.Scan(to...))
		m := map[string]any{}
		for i, v := range values {
			switch {
			case !v.Valid:
				m[types[i].Name()] = nil
			case strings.Contains(types[i].DatabaseTypeName(), "INT"):
				m[types[i].Name()] = json.Number(v.String)
			default:
				m[types[i].Name()] = v.String
			}
		}
		out = append(out, m)
	}
	require.NoError(t, rows.Err())
	return out
}
