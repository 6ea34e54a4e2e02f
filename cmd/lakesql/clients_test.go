package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// clientAddr starts a server for clients. LAKESQL_REFERENCE=HOST:PORT runs the same checks against another server
// (MariaDB, say), to show that they ask for nothing special; AS OF is left out there.
func clientAddr(t *testing.T) *process {
	if addr := os.Getenv("LAKESQL_REFERENCE"); addr != "" {
		return &process{addr: addr}
	}
	p := startProcess(t, t.TempDir(), "")
	t.Cleanup(func() { p.stop(t) })
	return p
}

// clientsCache is where scripts/setup-clients.sh puts what the client checks need. They run by `make suites`, which
// installs that and sets LAKESQL_CLIENTS.
func clientsCache(t *testing.T) string {
	if os.Getenv("LAKESQL_CLIENTS") == "" {
		t.Skip("needs other clients: run `make suites`")
	}
	cache := os.Getenv("LAKESQL_CLIENTS_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		cache = filepath.Join(home, ".cache", "lakesql-clients")
	}
	_, err := os.Stat(filepath.Join(cache, "jars", "mysql-connector-j.jar"))
	need(t, err == nil, "scripts/setup-clients.sh has not installed the clients")
	return cache
}

// TestClientPrograms runs a program of each kind against one server: tour, transactions, prepared statements.
func TestClientPrograms(t *testing.T) {
	p := clientAddr(t)
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	t.Run("go-sql-driver", func(t *testing.T) { goClient(t, p) })
	t.Run("mariadb", func(t *testing.T) {
		_, err := exec.LookPath("mariadb")
		need(t, err == nil, "the mariadb client is not installed (Debian: mariadb-client)")
		mariadbClient(t, host, port)
	})
	t.Run("PyMySQL", func(t *testing.T) {
		python := filepath.Join(clientsCache(t), "venv", "bin", "python")
		require.Equal(t, "ok\n", runProgram(t, "", python, "../../scripts/clients/pymysql_check.py", host, port, "root", ""))
	})
	t.Run("JDBC", func(t *testing.T) {
		jar := filepath.Join(clientsCache(t), "jars", "mysql-connector-j.jar")
		_, err := exec.LookPath("java")
		need(t, err == nil, "java is not installed")
		require.Equal(t, "ok\n", runProgram(t, "", "java", "-cp", jar, "../../scripts/clients/JdbcCheck.java", host, port, "root", ""))
	})
}

func mariadbClient(t *testing.T, host, port string) {
	run := func(sql string, args ...string) string {
		args = append([]string{"--no-defaults", "-h", host, "-P", port, "-u", "root", "--local-infile=1", "--default-character-set=utf8mb4"}, args...)
		return runProgram(t, sql, "mariadb", args...)
	}
	file := filepath.Join(t.TempDir(), "rows.tsv")
	require.NoError(t, os.WriteFile(file, []byte("3\tcarol\\tt\t1.5\n4\t\\N\t\\N\n"), 0o644))
	require.Equal(t, "id\tname\tv\n1\tann\t1.00\n2\tbob\t2.50\n3\tcarol\\tt\t1.50\n4\tNULL\tNULL\n", run(fmt.Sprintf(`
		DROP DATABASE IF EXISTS c_cli;
		CREATE DATABASE c_cli;
		USE c_cli;
		CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), v DECIMAL(6,2)); -- a comment; with a semicolon
		INSERT INTO t VALUES (1, 'ann', 1), (2, 'bob', 2);
		UPDATE t SET v = v + 0.5 WHERE id = 2;
		BEGIN;
		DELETE FROM t;
		ROLLBACK;
		LOAD DATA LOCAL INFILE '%s' INTO TABLE t;
		SELECT * FROM t ORDER BY id;`, file)))
	require.Equal(t, "ann\n", run("", "c_cli", "-N", "-e", "PREPARE p FROM 'SELECT name FROM t WHERE id = ?'; SET @i = 1; EXECUTE p USING @i;"))
	require.Contains(t, run("SHOW TABLES; DESCRIBE t; SHOW CREATE TABLE t\\G", "c_cli"), "PRIMARY KEY (`id`)")
	require.Equal(t, "7\n", run("DELIMITER //\nCREATE PROCEDURE three(a INT) BEGIN SELECT a + 3; END//\nDELIMITER ;\nCALL three(4);", "c_cli", "-N"))

	// 8 clients add to one row: nothing is lost.
	run("CREATE TABLE counter (id INT PRIMARY KEY, f INT); INSERT INTO counter VALUES (1, 0), (2, 0);", "c_cli")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			run(strings.Repeat(`UPDATE counter SET f = f + 1 WHERE id = 1;
				BEGIN;
				SELECT f INTO @f FROM counter WHERE id = 2 FOR UPDATE;
				UPDATE counter SET f = @f + 1 WHERE id = 2;
				COMMIT;
				`, 10), "c_cli")
		})
	}
	wg.Wait()
	require.Equal(t, "80\n80\n", run("SELECT f FROM counter ORDER BY id;", "c_cli", "-N"))
	require.Equal(t, "done\n", run("DROP DATABASE c_cli; SELECT 'done';", "-N"))
}

func goClient(t *testing.T, p *process) {
	ctx := context.Background()
	// Parameters bound by the server, and put in by the driver.
	for _, options := range []string{"parseTime=true", "parseTime=true&interpolateParams=true"} {
		db := p.open(t, options)
		var version string
		require.NoError(t, db.QueryRow("SELECT VERSION()").Scan(&version))
		exec := func(q string, args ...any) sql.Result {
			t.Helper()
			r, err := db.ExecContext(ctx, q, args...)
			require.NoError(t, err, q)
			return r
		}
		exec("DROP DATABASE IF EXISTS c_go")
		exec("CREATE DATABASE c_go")
		exec("CREATE TABLE c_go.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(50), u BIGINT UNSIGNED, at DATETIME(6), b VARBINARY(20), f DOUBLE)")
		at := time.Date(2024, 2, 29, 1, 2, 3, 456789000, time.UTC)
		r := exec("INSERT INTO c_go.t (s, u, at, b, f) VALUES (?, ?, ?, ?, ?), (?, ?, ?, ?, ?)",
			"żółw 🐢", uint64(1<<64-1), at, []byte{0, 1, 255}, 0.1, nil, nil, nil, nil, nil)
		id, err := r.LastInsertId()
		require.NoError(t, err)
		require.Equal(t, int64(1), id)

		row := func(from string, args ...any) (s sql.NullString, u *uint64, when sql.NullTime, b []byte, f sql.NullFloat64) {
			t.Helper()
			stmt, err := db.PrepareContext(ctx, "SELECT s, u, at, b, f FROM "+from+" WHERE id = ?")
			require.NoError(t, err)
			defer stmt.Close()
			for range 2 { // a statement is used again
				require.NoError(t, stmt.QueryRowContext(ctx, args...).Scan(&s, &u, &when, &b, &f))
			}
			return
		}
		s, u, when, b, f := row("c_go.t", 1)
		require.Equal(t, "żółw 🐢", s.String)
		require.Equal(t, uint64(1<<64-1), *u)
		require.True(t, at.Equal(when.Time), "%v", when)
		require.Equal(t, []byte{0, 1, 255}, b)
		require.Equal(t, 0.1, f.Float64)
		s, u, when, b, f = row("c_go.t", 2)
		require.False(t, s.Valid || u != nil || when.Valid || b != nil || f.Valid)

		var before string
		require.NoError(t, db.QueryRow("SELECT CAST(NOW(6) AS CHAR)").Scan(&before))
		time.Sleep(20 * time.Millisecond)
		n, err := exec("UPDATE c_go.t SET s = ? WHERE id = ?", "changed", 1).RowsAffected()
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		if os.Getenv("LAKESQL_REFERENCE") == "" {
			for _, clause := range []string{"AS OF ?", "TIMESTAMP AS OF ?", "FOR SYSTEM_TIME AS OF ?"} {
				s, _, _, _, _ := row("c_go.t "+clause, before, 1)
				require.Equal(t, "żółw 🐢", s.String, clause)
			}
		}

		_, err = db.Exec("INSERT INTO c_go.t (id) VALUES (?)", 1)
		require.Equal(t, uint16(1062), errorNumber(err), "%v", err)
		require.Equal(t, "23000", string(err.(*mysql.MySQLError).SQLState[:]))
		_, err = db.Exec("INSERT INTO c_go.missing VALUES (1)")
		require.Equal(t, uint16(1146), errorNumber(err), "%v", err)

		count := func(q interface {
			QueryRow(string, ...any) *sql.Row
		},
		) (n int) {
			t.Helper()
			require.NoError(t, q.QueryRow("SELECT COUNT(*) FROM c_go.t").Scan(&n))
			return n
		}
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.Exec("DELETE FROM c_go.t WHERE id = ?", 1)
		require.NoError(t, err)
		require.Equal(t, 1, count(tx))
		require.Equal(t, 2, count(db))
		require.NoError(t, tx.Rollback())
		require.Equal(t, 2, count(db))
		tx, err = db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.Exec("DELETE FROM c_go.t WHERE id = ?", 1)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, count(db))

		// A cancelled statement ends soon, and the pool goes on.
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		start := time.Now()
		_, err = db.ExecContext(short, "SELECT SLEEP(20)")
		cancel()
		require.Error(t, err)
		require.Less(t, time.Since(start), 10*time.Second)

		// 8 connections add to one row: nothing is lost.
		exec("CREATE TABLE c_go.counter (id INT PRIMARY KEY, f INT)")
		exec("INSERT INTO c_go.counter VALUES (1, 0), (2, 0)")
		errs := make(chan error, 8)
		for range 8 {
			go func() { errs <- addTen(ctx, db) }()
		}
		for range 8 {
			require.NoError(t, <-errs)
		}
		var first, second int
		require.NoError(t, db.QueryRow("SELECT MIN(f), MAX(f) FROM c_go.counter").Scan(&first, &second))
		require.Equal(t, []int{80, 80}, []int{first, second})
		exec("DROP DATABASE c_go")
	}
}

// addTen adds 10 times 1 to two rows, to one by a statement alone, to the other by one that it read with FOR UPDATE.
func addTen(ctx context.Context, db *sql.DB) error {
	for range 10 {
		if _, err := db.ExecContext(ctx, "UPDATE c_go.counter SET f = f + 1 WHERE id = ?", 1); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		var f int
		if err := tx.QueryRow("SELECT f FROM c_go.counter WHERE id = ? FOR UPDATE", 2).Scan(&f); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE c_go.counter SET f = ? WHERE id = 2", f+1); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
