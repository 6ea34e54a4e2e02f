package dialect

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

func TestEscapePrepare(t *testing.T) {
	for _, c := range []struct {
		query, want string // want "" : untouched; "escaped"
	}{
		{"SELECT a FROM t WHERE a = ?", ""},
		{"SELECT a FROM t WHERE a = ?;", ""},
		{"INSERT INTO t VALUES (?, '?', \"?\", `?`) -- ?", ""},
		{"CREATE TABLE t (a INT) ENGINE_ATTRIBUTE='{\"type\":\"cow\"}'", ""},
		{"SELECT a FROM t AS OF ? WHERE a = ?", ""},
		{"", ""},
		{"-- nothing", ""},
		{"SELECT 1; SELECT 2", ""},
		{"SELECT a FROM t TIMESTAMP AS OF ? WHERE a = ?", "SELECT a FROM t           AS OF ? WHERE a = ?"},
		{"SELECT /*M! ? , */ 1, /*!99999 ?, */ ?", "SELECT             1,          ?,    ?"},
		{"SELECT ':v', ?", "escaped"},
		{"CALL p(op => ?)", "escaped"},
		{"CREATE TABLE t (a INT) USING hudi", "escaped"},
		{"SELEC ?, ?", "escaped"},
	} {
		got, ok := EscapePrepare(c.query)
		inner, escaped := Unescape(got)
		switch {
		case c.want == "" && ok, c.want == "escaped" && (!escaped || inner != c.query), c.want != "" && c.want != "escaped" && got != c.want:
			t.Errorf("%s: %q %v", c.query, got, ok)
		}
		if escaped {
			stmt, err := ast.Parse(got)
			if s := scan(c.query, false); err != nil || wireParams(stmt) != s.params {
				t.Errorf("%s: the escape has %v parameters, not %d: %v", c.query, wireParams(stmt), s.params, err)
			}
		}
	}
	for _, q := range []string{"SELECT __lakesql_stmt('x')", "SELECT __lakesql_stmt('AAAA', a)", "SELECT __lakesql_stmt(", escape(escape("SELECT 1", 0), 0)} {
		if inner, ok := Unescape(q); ok {
			t.Errorf("%s is taken for %q", q, inner)
		}
	}
}

func packet(sequence int, payload string) string {
	n := len(payload)
	return string([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(sequence)}) + payload
}

// through gives what a server reads of what a client writes, with reads of odd lengths.
func through(t *testing.T, sent string) string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(len(sent))))
	c := Conn(&fakeConn{Reader: iotest.DataErrReader(strings.NewReader(sent))})
	var got bytes.Buffer
	buf := make([]byte, 70000)
	for {
		n, err := c.Read(buf[:1+r.IntN(len(buf))])
		got.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return got.String()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

type fakeConn struct {
	net.Conn
	io.Reader
}

func (c *fakeConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func TestListener(t *testing.T) {
	hello := packet(1, "\x05\xa6\x0f\x00"+strings.Repeat("x", 60))
	hudi := "\x16CREATE TABLE t (a INT) USING hudi"
	want := packet(0, "\x16"+escape(hudi[1:], 0))
	file := make([]string, 600)
	for i := range file { // a file of LOAD DATA LOCAL whose packets look like commands, and wrap
		file[i] = packet((2+i)%256, hudi)
	}
	stream := strings.Join(file, "") + packet((2+600)%256, "")
	full := packet(0, "\x03"+strings.Repeat("a", packetMax-1)) // goes on in the next packet
	for _, c := range []struct{ name, sent, want string }{
		{"prepare", hello + packet(0, hudi), hello + want},
		{"other commands", hello + packet(0, "\x03"+hudi[1:]) + packet(0, hudi) + packet(0, "\x19abcd") + packet(0, hudi), hello + packet(0, "\x03"+hudi[1:]) + want + packet(0, "\x19abcd") + want},
		{"nothing to do", hello + packet(0, "\x16SELECT ?"), hello + packet(0, "\x16SELECT ?")},
		{"authentication", hello + packet(3, hudi), hello + packet(3, hudi)},
		{"hello like a command", packet(1, hudi+strings.Repeat(" ", 40)), packet(1, hudi+strings.Repeat(" ", 40))},
		{"load data", hello + packet(0, "\x03LOAD") + stream + packet(0, hudi), hello + packet(0, "\x03LOAD") + stream + want},
		{"TLS", packet(1, "\x05\xae\x0f\x00"+strings.Repeat("\x00", 28)) + packet(0, hudi), packet(1, "\x05\xae\x0f\x00"+strings.Repeat("\x00", 28)) + packet(0, hudi)},
		{"16 MiB", hello + full + packet(1, hudi) + packet(0, hudi), hello + full + packet(1, hudi) + want},
		{"16 MiB prepare", hello + strings.Replace(full, "\x03", "\x16", 1) + packet(1, "x") + packet(0, hudi), hello + strings.Replace(full, "\x03", "\x16", 1) + packet(1, "x") + want},
		{"too long to escape", hello + packet(0, "\x16CALL p(a => '"+strings.Repeat("x", 13<<20)+"')") + packet(0, hudi), hello + packet(0, "\x16CALL p(a => '"+strings.Repeat("x", 13<<20)+"')") + want},
		{"end in a header", hello + "\x01\x00", hello + "\x01\x00"},
		{"end in a packet", hello + packet(0, hudi)[:20], hello + packet(0, hudi)[:20]},
		{"empty", "", ""},
		{"empty command", hello + packet(0, "") + packet(0, hudi), hello + packet(0, "") + want},
	} {
		if got := through(t, c.sent); got != c.want {
			t.Errorf("%s: got %d bytes, want %d: %.200q", c.name, len(got), len(c.want), got[max(0, len(got)-100):])
		}
	}
}

// A deadline inside a packet loses nothing.
func TestListenerDeadline(t *testing.T) {
	client, served := net.Pipe()
	defer func() { _, _ = client.Close(), served.Close() }()
	c := Conn(served)
	hello := packet(1, strings.Repeat("x", 60))
	sent := hello + packet(0, "\x16CREATE TABLE t (a INT) USING hudi")
	go func() {
		for i := range len(sent) {
			if i%17 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
			if _, err := client.Write([]byte{sent[i]}); err != nil {
				return
			}
		}
		_ = client.Close()
	}()
	var got bytes.Buffer
	buf := make([]byte, 100)
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond)) // fails on a pipe whose other end is closed
		n, err := c.Read(buf)
		got.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if want := hello + packet(0, "\x16"+escape("CREATE TABLE t (a INT) USING hudi", 0)); got.String() != want {
		t.Errorf("got %q", got.String())
	}
}
