package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// Tests that need a real process (to kill it, or to reach it by other programs) run the built binary.

var built struct {
	sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// binary builds the command once a test run.
func binary(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "lakesql-bin-"); built.err != nil {
			return
		}
		built.path = filepath.Join(dir, "lakesql")
		build := exec.Command("go", "build", "-o", built.path, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// process is a running `lakesql server`.
type process struct {
	dir, addr string
	cmd       *exec.Cmd
	log       *output
}

// startProcess starts the server on a folder and waits for its ready line; addr "" takes a free port.
func startProcess(t testing.TB, dir, addr string, flags ...string) *process {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	p := &process{dir: dir, log: &output{}}
	p.cmd = exec.Command(binary(t), append([]string{"server", "--data", dir, "--listen", addr}, flags...)...)
	p.cmd.Env = append(os.Environ(), "LAKESQL_CONFIG=", "LAKESQL_PASSWORD=")
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", tail(p.log.String(), 4000))
		}
	})
	ready := make(chan string, 1)
	go func() {
		var line []byte
		for b := make([]byte, 1); ; {
			n, err := stdout.Read(b)
			line = append(line, b[:n]...)
			if err != nil || b[0] == '\n' {
				ready <- string(line)
				io.Copy(io.Discard, stdout)
				return
			}
		}
	}()
	select {
	case line := <-ready:
		m := regexp.MustCompile(`is ready: mariadb -h (\S+) -P (\d+) -u root\n`).FindStringSubmatch(line)
		if m == nil {
			p.cmd.Wait()
			t.Fatalf("the server did not start: %q\n%s", line, p.log)
		}
		p.addr = net.JoinHostPort(m[1], m[2])
	case <-time.After(60 * time.Second):
		t.Fatalf("the server was not ready after 60 s:\n%s", p.log)
	}
	return p
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// kill ends the process as a crash does.
func (p *process) kill(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
}

// stop asks the process to end and demands a clean exit.
func (p *process) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait(), "%s", p.log)
}

// open connects by go-sql-driver; options are DSN parameters ("parseTime=true").
func (p *process) open(t testing.TB, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/?%s", p.addr, options))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func (p *process) port(t testing.TB) string {
	_, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	return port
}

// need skips a test for which something is not installed. In CI nothing may be skipped.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") == "true":
		t.Fatalf("NOT RUN: %s", what)
	default:
		t.Skipf("NOT RUN: %s", what)
	}
}

// sizeOf is the size of a long test: an environment variable, or a small default.
func sizeOf(t testing.TB, name string, small int) int {
	text := os.Getenv(name)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

func mustExec(t testing.TB, db *sql.DB, q string, args ...any) {
	t.Helper()
	_, err := db.Exec(q, args...)
	require.NoError(t, err, q)
}

func errorNumber(err error) uint16 {
	if e := (*mysql.MySQLError)(nil); errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// runProgram runs a command and fails with what it printed.
func runProgram(t testing.TB, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v\n%s%s", name, args, out.String(), errs.String())
	return out.String()
}

// TestProcess starts, uses and stops a server, and finds the rows again.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	db := p.open(t, "multiStatements=true")
	_, err := db.Exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(10)); INSERT INTO d.t VALUES (1, 'a'), (2, NULL)")
	require.NoError(t, err)

	second := exec.Command(binary(t), "server", "--data", dir, "--listen", "127.0.0.1:0")
	out, err := second.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), fmt.Sprintf("process %d, serving at %s,", p.cmd.Process.Pid, p.addr))

	taken := exec.Command(binary(t), "server", "--data", t.TempDir(), "--listen", p.addr)
	out, err = taken.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--listen")

	port := p.port(t)
	require.Equal(t, "{\"id\":1,\"v\":\"a\"}\n{\"id\":2,\"v\":null}\n", runProgram(t, "", binary(t), "sql", "--port", port, "--database", "d", "--json", "-e", "SELECT * FROM t ORDER BY id"))
	require.Equal(t, "id\tv\n1\ta\n2\tNULL\n", runProgram(t, "SELECT *\nFROM t ORDER BY id;", binary(t), "sql", "--port", port, "--database", "d"))
	missing := exec.Command(binary(t), "sql", "--port", port, "-e", "SELECT * FROM d.missing")
	out, err = missing.CombinedOutput()
	require.Equal(t, 1, missing.ProcessState.ExitCode(), "%v", err)
	require.True(t, strings.HasPrefix(string(out), "ERROR 1146 (42S02): "), "%s", out)

	p.stop(t)
	require.Equal(t, "n\n2\n", runProgram(t, "", binary(t), "sql", "--data", dir, "--tsv", "-e", "SELECT COUNT(*) AS n FROM d.t"))
	p = startProcess(t, dir, "")
	var n int
	require.NoError(t, p.open(t, "").QueryRow("SELECT COUNT(*) FROM d.t").Scan(&n))
	require.Equal(t, 2, n)
	p.stop(t)
}
