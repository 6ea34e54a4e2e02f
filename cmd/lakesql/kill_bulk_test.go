package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// killWriter is a writer of the kill test with an account of what must be there.
type killWriter interface {
	// create makes its tables.
	create(t *testing.T, db *sql.DB)
	// step makes one change. An error with a MySQL number other than one that asks for another try is a failure.
	step(ctx context.Context, db *sql.DB) error
	// check compares the tables with the account and settles a change whose fate nobody knows.
	check(t *testing.T, db *sql.DB)
}

// bulkRows is the number of rows of a large statement of the kill test: more than the hot tier takes.
const bulkRows = 20000

// bulkLedger loads, changes and deletes batches of 20,000 rows by one statement each.
type bulkLedger struct {
	rnd     *rand.Rand
	next    int
	batches map[int]string // acknowledged batches with their mark
	open    int            // batch whose last change was not answered; 0: none
	mark    string         // what that change would have made of it; "" removes it
}

var bulkReaders atomic.Int64

func (l *bulkLedger) create(t *testing.T, db *sql.DB) {
	mustExec(t, db, `CREATE TABLE k.bulk (batch INT, n INT, mark VARCHAR(10), pad VARCHAR(40), PRIMARY KEY (batch, n)) ENGINE_ATTRIBUTE='{"type":"mor","bin.max_age":"1s"}'`)
}

func (l *bulkLedger) step(ctx context.Context, db *sql.DB) error {
	var known []int
	for b := range l.batches {
		known = append(known, b)
	}
	slices.Sort(known)
	batch, mark, query := 0, "", ""
	switch {
	case len(known) < 3 || l.rnd.IntN(3) == 0:
		l.next++
		batch, mark = l.next, "new"
		var b bytes.Buffer
		for n := range bulkRows {
			fmt.Fprintf(&b, "%d\t%d\tnew\tsomething to pad the row %d\n", batch, n, n%10)
		}
		name := fmt.Sprint("kill", bulkReaders.Add(1))
		mysql.RegisterReaderHandler(name, func() io.Reader { return bytes.NewReader(b.Bytes()) })
		defer mysql.DeregisterReaderHandler(name)
		query = fmt.Sprintf("LOAD DATA LOCAL INFILE 'Reader::%s' INTO TABLE k.bulk", name)
	case l.rnd.IntN(2) == 0:
		batch, mark = known[l.rnd.IntN(len(known))], fmt.Sprint("m", l.rnd.IntN(1000))
		query = fmt.Sprintf("UPDATE k.bulk SET mark = '%s' WHERE batch = %d", mark, batch)
	default:
		batch = known[0]
		query = fmt.Sprintf("DELETE FROM k.bulk WHERE batch = %d", batch)
	}
	l.open, l.mark = batch, mark
	_, err := db.ExecContext(ctx, query)
	if err == nil {
		l.settle(true)
	} else if errorNumber(err) != 0 {
		l.settle(false)
	}
	return err
}

func (l *bulkLedger) settle(done bool) {
	if done && l.mark == "" {
		delete(l.batches, l.open)
	} else if done {
		l.batches[l.open] = l.mark
	}
	l.open = 0
}

func (l *bulkLedger) check(t *testing.T, db *sql.DB) {
	rows, err := db.Query("SELECT batch, mark, COUNT(*), COUNT(DISTINCT n) FROM k.bulk GROUP BY batch, mark ORDER BY batch")
	require.NoError(t, err)
	defer rows.Close()
	got := map[int]string{}
	for rows.Next() {
		var b, n, distinct int
		var mark string
		require.NoError(t, rows.Scan(&b, &mark, &n, &distinct))
		require.NotContains(t, got, b, "batch %d is half changed", b)
		require.Equal(t, []int{bulkRows, bulkRows}, []int{n, distinct}, "batch %d is not whole", b)
		got[b] = mark
	}
	require.NoError(t, rows.Err())
	if l.open != 0 {
		if mark, there := got[l.open]; there && mark == l.mark || !there && l.mark == "" {
			l.settle(true)
		}
		l.open = 0
	}
	require.Equal(t, l.batches, got, "batches with their marks")
}

// ddlLedger changes the definition of a table, and its rows, over and over.
type ddlLedger struct {
	rnd     *rand.Rand
	n       int
	now     ddlState
	pending *ddlState // after a change that was not answered
}

// ddlState is a table of the kill test: its name ("" if there is none), the columns behind the key, and its rows.
type ddlState struct {
	name    string
	columns []string
	rows    int
}

func (s ddlState) String() string { return fmt.Sprintf("%s %v %d", s.name, s.columns, s.rows) }

func (l *ddlLedger) create(*testing.T, *sql.DB) {}

func (l *ddlLedger) step(ctx context.Context, db *sql.DB) error {
	l.n++
	next := ddlState{l.now.name, slices.Clone(l.now.columns), l.now.rows}
	var query string
	switch r := l.rnd.IntN(8); {
	case next.name == "":
		next = ddlState{name: fmt.Sprint("k.d", l.n)}
		query = "CREATE TABLE " + next.name + ` (id INT PRIMARY KEY) ENGINE_ATTRIBUTE='{"bin.max_age":"1s"}'`
	case r == 0:
		next = ddlState{}
		query = "DROP TABLE " + l.now.name
	case r == 1:
		next.name = fmt.Sprint("k.d", l.n)
		query = "RENAME TABLE " + l.now.name + " TO " + next.name
	case r == 2:
		next.rows = 0
		query = "TRUNCATE TABLE " + l.now.name
	case r == 3 && len(next.columns) > 1:
		// Two clauses: both or none.
		next.columns = append(next.columns[1:], fmt.Sprint("c", l.n))
		query = fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s, ADD COLUMN %s INT DEFAULT 5", l.now.name, l.now.columns[0], next.columns[len(next.columns)-1])
	case r == 4 && len(next.columns) > 0:
		next.columns[0] = fmt.Sprint("c", l.n)
		query = fmt.Sprintf("ALTER TABLE %s RENAME COLUMN %s TO %s", l.now.name, l.now.columns[0], next.columns[0])
	case r == 5 && len(next.columns) < 5:
		next.columns = append(next.columns, fmt.Sprint("c", l.n))
		query = fmt.Sprintf("ALTER TABLE %s ADD COLUMN c%d INT DEFAULT 5", l.now.name, l.n)
	default:
		next.rows += 3
		query = fmt.Sprintf("INSERT INTO %s (id) VALUES (%d), (%d), (%d)", next.name, l.n*10, l.n*10+1, l.n*10+2)
	}
	l.pending = &next
	_, err := db.ExecContext(ctx, query)
	if err == nil {
		l.now, l.pending = next, nil
	} else if errorNumber(err) != 0 {
		l.pending = nil
	}
	return err
}

func (l *ddlLedger) check(t *testing.T, db *sql.DB) {
	var names []string
	rows, err := db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'k' AND table_name LIKE 'd%' AND table_name <> 'done'")
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, "k."+name)
	}
	require.NoError(t, rows.Err())
	require.LessOrEqual(t, len(names), 1, "tables: %v", names)
	var got ddlState
	if len(names) == 1 {
		got.name = names[0]
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+got.name).Scan(&got.rows))
		r, err := db.Query("SELECT * FROM " + got.name + " LIMIT 1")
		require.NoError(t, err)
		columns, err := r.Columns()
		require.NoError(t, err)
		got.columns = columns[1:]
		if r.Next() && len(got.columns) > 0 {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(sql.NullInt64)
			}
			require.NoError(t, r.Scan(values...))
			for i, v := range values[1:] {
				require.Equal(t, sql.NullInt64{Int64: 5, Valid: true}, *v.(*sql.NullInt64), "%s.%s", got.name, got.columns[i])
			}
		}
		require.NoError(t, r.Close())
	}
	if l.pending != nil && got.String() == l.pending.String() {
		l.now = *l.pending
	}
	l.pending = nil
	require.Equal(t, l.now.String(), got.String(), "the table whose definition changes")
}

// sparkLedger has Spark write to a table to which lakesql also writes, under Hudi's optimistic concurrency.
type sparkLedger struct {
	o      *oracle
	t      *testing.T
	folder string
	n      int
	spark  map[int]int // ids that Spark acknowledged, with their values
	ours   map[int]int
	open   map[int]int // of our change that was not answered
	stop   chan struct{}
	done   chan struct{}
}

// sparkOptions are what a second writer needs; see the README.
var sparkOptions = map[string]string{
	"hoodie.write.concurrency.mode":                "optimistic_concurrency_control",
	"hoodie.write.lock.provider":                   "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
	"hoodie.cleaner.policy.failed.writes":          "LAZY",
	"hoodie.write.lock.wait_time_ms":               "60000",
	"hoodie.write.lock.num_retries":                "60",
	"hoodie.write.lock.wait_time_ms_between_retry": "500",
	"hoodie.write.lock.client.num_retries":         "60",
	"hoodie.write.lock.filesystem.expire":          "0",
}

func (l *sparkLedger) create(t *testing.T, db *sql.DB) {
	mustExec(t, db, `CREATE TABLE k.shared (id INT PRIMARY KEY, v INT) ENGINE_ATTRIBUTE='{"type":"mor","bin.max_age":"1s"}'`)
	mustExec(t, db, "INSERT INTO k.shared VALUES (1, 0)")
	mustExec(t, db, "FLUSH TABLES")
	l.ours[1] = 0
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	go func() { // Spark knows nothing of the kills
		defer close(l.done)
		for n := 1; ; n++ {
			select {
			case <-l.stop:
				return
			default:
			}
			var rows []map[string]any
			for i := range 5 {
				rows = append(rows, map[string]any{"id": 1_000_000 + (n*5+i)%200, "v": n})
			}
			a := l.o.ask(l.t, writeRequest{Op: "write", Table: l.folder, Operation: "upsert", Rows: rows, Options: sparkOptions})
			if !a.OK {
				if !strings.Contains(a.Error, "Conflict") && !strings.Contains(a.Error, "lock") {
					l.t.Errorf("Spark cannot write: %s", a.Error)
					return
				}
				continue
			}
			for _, r := range rows {
				l.spark[r["id"].(int)] = n
			}
		}
	}()
}

func (l *sparkLedger) step(ctx context.Context, db *sql.DB) error {
	l.n++
	l.open = map[int]int{1 + l.n%50: l.n, 100 + l.n%7: l.n}
	var values []string
	for id, v := range l.open {
		values = append(values, fmt.Sprintf("(%d, %d)", id, v))
	}
	_, err := db.ExecContext(ctx, "REPLACE INTO k.shared VALUES "+strings.Join(values, ","))
	if err == nil || errorNumber(err) != 0 {
		l.settle(err == nil)
	}
	return err
}

func (l *sparkLedger) settle(done bool) {
	if done {
		for id, v := range l.open {
			l.ours[id] = v
		}
	}
	l.open = nil
}

func (l *sparkLedger) check(t *testing.T, db *sql.DB) { // while Spark goes on: its own rows are looked at in the end
	got := readPairs(t, db, "SELECT id, v FROM k.shared WHERE id < 1000000")
	if l.open != nil {
		whole := 0
		for id, v := range l.open {
			if got[id] == v {
				whole++
			}
		}
		require.Contains(t, []int{0, len(l.open)}, whole, "a statement is half there")
		l.settle(whole > 0)
	}
	require.Equal(t, l.ours, got, "rows of a table that Spark writes to as well")
}

// finish ends Spark's part and compares lakesql with the account.
func (l *sparkLedger) finish(t *testing.T, db *sql.DB) {
	close(l.stop)
	<-l.done
	require.NotEmpty(t, l.spark, "Spark never wrote")
	require.Eventually(t, func() bool {
		return len(readPairs(t, db, "SELECT id, v FROM k.shared WHERE id >= 1000000")) == len(l.spark)
	}, 10e9, 1e8)
	require.Equal(t, l.spark, readPairs(t, db, "SELECT id, v FROM k.shared WHERE id >= 1000000"), "rows that Spark wrote")
}

func readPairs(t *testing.T, db *sql.DB, q string) map[int]int {
	t.Helper()
	rows, err := db.Query(q)
	require.NoError(t, err)
	defer rows.Close()
	out := map[int]int{}
	for rows.Next() {
		var id, v int
		require.NoError(t, rows.Scan(&id, &v))
		_, twice := out[id]
		require.False(t, twice, "row %d stands twice", id)
		out[id] = v
	}
	require.NoError(t, rows.Err())
	return out
}
