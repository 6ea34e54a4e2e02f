package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawClient speaks the protocol byte by byte, for what drivers hide.
type rawClient struct {
	t               testing.TB
	c               net.Conn
	r               *bufio.Reader
	handshakeStatus uint16
}

type rawResult struct {
	status   uint16
	warnings uint16
	errno    uint16
	message  string
	rows     [][]byte
	columns  int
}

func dialRaw(t testing.TB, s *Server) *rawClient {
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := &rawClient{t: t, c: conn, r: bufio.NewReader(conn)}
	hello := c.packet()
	rest := hello[1+strings.IndexByte(string(hello[1:]), 0)+1:]
	// connection id 4, salt 8, filler 1, capabilities 2, charset 1, status 2
	c.handshakeStatus = binary.LittleEndian.Uint16(rest[16:])
	const caps = 0x1 | 0x8 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0x80000 // long password, with database, local files, 4.1, transactions, secure, plugin
	p := binary.LittleEndian.AppendUint32(nil, caps)
	p = binary.LittleEndian.AppendUint32(p, 1<<24)
	p = append(p, 255)
	p = append(p, make([]byte, 23)...)
	p = append(p, "root\x00\x00d\x00mysql_native_password\x00"...)
	c.send(1, p)
	if ok := c.packet(); ok[0] != 0 {
		t.Fatalf("login: %q", ok)
	}
	return c
}

func (c *rawClient) send(seq byte, p []byte) {
	b := []byte{byte(len(p)), byte(len(p) >> 8), byte(len(p) >> 16), seq}
	_, err := c.c.Write(append(b, p...))
	require.NoError(c.t, err)
}

func (c *rawClient) packet() []byte {
	var h [4]byte
	_, err := io.ReadFull(c.r, h[:])
	require.NoError(c.t, err)
	p := make([]byte, int(h[0])|int(h[1])<<8|int(h[2])<<16)
	_, err = io.ReadFull(c.r, p)
	require.NoError(c.t, err)
	return p
}

func (c *rawClient) query(q string) rawResult { return c.command(append([]byte{3}, q...)) }

func (c *rawClient) command(p []byte) rawResult {
	c.send(0, p)
	return c.result()
}

func isEOF(p []byte) bool { return len(p) == 5 && p[0] == 0xfe }

func failure(p []byte) (r rawResult) {
	r.errno = binary.LittleEndian.Uint16(p[1:])
	r.message = string(p[9:])
	return r
}

func (c *rawClient) result() (r rawResult) {
	p := c.packet()
	switch p[0] {
	case 0xff:
		return failure(p)
	case 0:
		r.status, r.warnings = binary.LittleEndian.Uint16(p[3:]), binary.LittleEndian.Uint16(p[5:])
		if len(p) > 7 {
			r.message = string(p[8 : 8+p[7]])
		}
		return r
	}
	r.columns = int(p[0])
	for p = c.packet(); !isEOF(p); p = c.packet() {
	}
	r.status = binary.LittleEndian.Uint16(p[3:])
	if r.status&64 != 0 { // a cursor is open: no rows yet
		return r
	}
	for {
		p = c.packet()
		if p[0] == 0xff {
			e := failure(p)
			e.rows = r.rows
			return e
		}
		if isEOF(p) {
			r.warnings, r.status = binary.LittleEndian.Uint16(p[1:]), binary.LittleEndian.Uint16(p[3:])
			return r
		}
		r.rows = append(r.rows, p)
	}
}

// text answers a query of one row as text, columns by tab.
func (c *rawClient) text(q string) string {
	r := c.query(q)
	require.Zero(c.t, r.errno, r.message)
	require.Len(c.t, r.rows, 1)
	var cells []string
	for p := r.rows[0]; len(p) > 0; {
		cells = append(cells, string(p[1:1+p[0]]))
		p = p[1+p[0]:]
	}
	return strings.Join(cells, "\t")
}

func (c *rawClient) prepare(q string, params int) uint32 {
	c.send(0, append([]byte{0x16}, q...))
	p := c.packet()
	require.Zero(c.t, p[0], "%q", p)
	id := binary.LittleEndian.Uint32(p[1:])
	columns := int(binary.LittleEndian.Uint16(p[5:]))
	require.EqualValues(c.t, params, binary.LittleEndian.Uint16(p[7:]))
	for _, n := range []int{params, columns} {
		if n > 0 {
			for p = c.packet(); !isEOF(p); p = c.packet() {
			}
		}
	}
	return id
}

func (c *rawClient) execute(q string, args []byte, params int) rawResult {
	return c.executeFlags(q, args, params, 0)
}

func (c *rawClient) executeFlags(q string, args []byte, params int, flags byte) rawResult {
	id := c.prepare(q, params)
	return c.run(id, args, params, flags)
}

func (c *rawClient) run(id uint32, args []byte, params int, flags byte) rawResult {
	p := binary.LittleEndian.AppendUint32([]byte{comStmtExecute}, id)
	p = append(p, flags, 1, 0, 0, 0)
	if params > 0 {
		p = append(p, make([]byte, (params+7)/8)...)
		p = append(p, 1)
	}
	return c.command(append(p, args...))
}

// fetchAll reads a result through a cursor and counts its rows.
func (c *rawClient) fetchAll(q string, size uint32) (rows int) {
	id := c.prepare(q, 0)
	r := c.run(id, nil, 0, 1)
	require.Zero(c.t, r.errno, r.message)
	require.NotZero(c.t, r.status&64, fmt.Sprintf("no cursor: %x", r.status))
	for {
		p := binary.LittleEndian.AppendUint32([]byte{0x1c}, id)
		c.send(0, binary.LittleEndian.AppendUint32(p, size))
		for {
			p := c.packet()
			require.NotEqual(c.t, byte(0xff), p[0], "%q", p)
			if isEOF(p) {
				if binary.LittleEndian.Uint16(p[3:])&128 != 0 {
					c.send(0, binary.LittleEndian.AppendUint32([]byte{comStmtClose}, id))
					return rows
				}
				break
			}
			rows++
		}
	}
}
