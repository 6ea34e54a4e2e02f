package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dolthub/vitess/go/mysql"
)

// listener accepts from a TCP socket and, beside it, from a unix socket.
type listener struct {
	tcp    net.Listener
	unix   net.Listener // nil: none
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

func listen(ctx context.Context, address, socket string) (*listener, error) {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("address %s is taken by another program: choose another with --listen: %w", address, err)
		}
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	l := &listener{tcp: tcp, conns: make(chan net.Conn), closed: make(chan struct{})}
	if socket != "" {
		l.unix, err = listenUnix(ctx, socket)
		if err != nil {
			tcp.Close()
			return nil, fmt.Errorf("--socket %s: %w", socket, err)
		}
	}
	for _, nl := range []net.Listener{l.tcp, l.unix} {
		if nl != nil {
			l.wg.Add(1)
			go l.accept(nl)
		}
	}
	return l, nil
}

// listenUnix takes over a socket file that a dead server left behind, never one that answers.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	nl, err := lc.Listen(ctx, "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nl, err
	}
	c, dialErr := net.DialTimeout("unix", path, time.Second)
	if dialErr == nil {
		c.Close()
		return nil, errors.New("another server answers on it")
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return lc.Listen(ctx, "unix", path)
}

func (l *listener) accept(nl net.Listener) {
	defer l.wg.Done()
	for {
		c, err := nl.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, mostly: others may be freed
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-l.closed:
				return
			}
		}
		select {
		case l.conns <- c:
		case <-l.closed:
			c.Close()
			return
		}
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		err = l.tcp.Close()
		if l.unix != nil {
			err = errors.Join(err, l.unix.Close())
		}
		l.wg.Wait()
	})
	return err
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// watchedListener hands out connections as *conn, as many as there may be.
type watchedListener struct {
	net.Listener
	full func() bool
}

func (l watchedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.full() {
			return &conn{Conn: c}, nil
		}
		// Without an answer the client would report a broken connection.
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(errorPacket(0, mysql.NewSQLError(1040, "08004", "Too many connections")))
		c.Close()
	}
}

// conn follows the packets of one connection and mends answers that the
// protocol layer above cannot: an error after rows have been sent, errors that
// it words itself before any handler is asked, and the status flags after
// COM_RESET_CONNECTION.
type conn struct {
	net.Conn

	w, r    packets
	held    []byte                         // a header whose packet is still to come
	lastSeq atomic.Uint32                  // sequence number of the last packet written
	swallow atomic.Bool                    // an error packet has ended the answer: drop what the layer above still writes
	reset   atomic.Bool                    // the next OK packet answers COM_RESET_CONNECTION
	ended   atomic.Bool                    // the client sends no more
	info    atomic.Bool                    // the next OK packet has an info text
	failed  atomic.Pointer[mysql.SQLError] // why the statement of a cursor failed

	greeted      bool          // the client's first packet is read
	capabilities atomic.Uint32 // what that packet says the client can do

	mu     sync.Mutex
	cursor map[uint32]bool // by statement: was the last execution asked to open a cursor? guarded by mu
	closed []uint32        // prepared statements that the client closed and forget has not seen, guarded by mu

	short shortAnswers // the command loop's
	watch clientWatch

	texts map[uint32]string // of the prepared statements; the command loop's
	uses  map[string]int    // how many prepared statements have that text; the command loop's
}

// remember counts a prepared statement.
func (c *conn) remember(stmt uint32, text string) {
	if c.texts == nil {
		c.texts, c.uses = map[uint32]string{}, map[string]int{}
	}
	c.texts[stmt] = text
	c.uses[text]++
}

// forget calls drop for each text whose last prepared statement the client has closed.
func (c *conn) forget(drop func(text string)) {
	c.mu.Lock()
	closed := c.closed
	c.closed = nil
	c.mu.Unlock()
	for _, stmt := range closed {
		text, ok := c.texts[stmt]
		if !ok {
			continue
		}
		delete(c.texts, stmt)
		if c.uses[text]--; c.uses[text] == 0 {
			delete(c.uses, text)
			drop(text)
		}
	}
}

const (
	comStmtExecute     = 0x17
	comStmtClose       = 0x19
	comResetConnection = 0x1f
)

func (c *conn) Write(b []byte) (int, error) {
	n := len(b)
	if c.swallow.Load() {
		return n, nil
	}
	// Outside of results a packet comes in two writes, header and body.
	if len(c.held) == 0 && n == 4 && b[0]|b[1]|b[2] != 0 && c.w.n == 0 {
		c.held = append(c.held, b...)
		return n, nil
	}
	if len(c.held) > 0 {
		b = append(c.held, b...)
		c.held = nil
	}
	if c.w.n == 0 && len(b) > 4 {
		b = c.mend(b)
	}
	c.w.feed(b, func(seq byte, _ []byte) { c.lastSeq.Store(uint32(seq)) })
	if _, err := c.Conn.Write(b); err != nil {
		return 0, err
	}
	return n, nil
}

// mend changes the packet at the start of b where it is one of those that the layer above gets wrong.
func (c *conn) mend(b []byte) []byte {
	size := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	if len(b) != 4+size {
		return b
	}
	switch {
	case b[4] == mysql.OKPacket && c.reset.Load() && size >= 7:
		c.reset.Store(false)
		b = bytes.Clone(b)
		// header 4, OK 1, affected rows 1, insert id 1, then the flags
		binary.LittleEndian.PutUint16(b[7:], uint16(mysql.ServerStatusAutocommit))
	case b[4] == mysql.OKPacket && c.info.Load():
		c.info.Store(false)
		b = bytes.Clone(b)
		fixInfo(b[4:])
	case b[4] == mysql.ErrPacket && size > 9:
		c.reset.Store(false)
		text, own := strings.CutPrefix(string(b[13:]), "unknown error: ")
		if !own {
			return b
		}
		e := MySQLError(errors.New(text))
		if failed := c.failed.Swap(nil); failed != nil && text == "missing result set" {
			e = failed
		}
		return errorPacket(b[3], e)
	}
	return b
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // a deadline only wakes the reader
		c.ended.Store(true)
	}
	if n > 0 {
		c.swallow.Store(false)
		c.r.feed(b[:n], c.command)
	}
	return n, err
}

func (c *conn) command(seq byte, head []byte) {
	if !c.greeted {
		c.greeted = true
		if len(head) >= 4 {
			c.capabilities.Store(binary.LittleEndian.Uint32(head))
		}
		return
	}
	if seq != 0 || len(head) == 0 {
		return
	}
	switch {
	case head[0] == comResetConnection && len(head) == 1:
		c.reset.Store(true)
	case head[0] == comStmtExecute && len(head) >= 6:
		c.mu.Lock()
		if c.cursor == nil {
			c.cursor = map[uint32]bool{}
		}
		c.cursor[binary.LittleEndian.Uint32(head[1:])] = head[5] != 0
		c.mu.Unlock()
	case head[0] == comStmtClose && len(head) >= 5:
		c.mu.Lock()
		stmt := binary.LittleEndian.Uint32(head[1:])
		delete(c.cursor, stmt)
		c.closed = append(c.closed, stmt)
		c.mu.Unlock()
	}
}

func (c *conn) opensCursor(stmt uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor[stmt]
}

// packets cuts a stream of bytes into the protocol's packets.
type packets struct {
	head [4 + 6]byte // header and the first bytes of the payload
	n    int         // bytes of head that are there
	want int         // bytes of head to wait for
	rest int         // bytes of the packet behind head
}

func (p *packets) feed(b []byte, packet func(seq byte, head []byte)) {
	for len(b) > 0 {
		if p.n < 4 || p.n < p.want {
			if p.n < 4 {
				p.want = 4
			}
			k := copy(p.head[p.n:p.want], b)
			p.n += k
			b = b[k:]
			if p.n == 4 && p.want == 4 {
				size := int(p.head[0]) | int(p.head[1])<<8 | int(p.head[2])<<16
				p.want = 4 + min(size, len(p.head)-4)
				p.rest = size - (p.want - 4)
			}
			if p.n < p.want {
				continue
			}
			packet(p.head[3], p.head[4:p.want])
		}
		k := min(p.rest, len(b))
		p.rest -= k
		b = b[k:]
		if p.rest == 0 {
			p.n = 0
		}
	}
}

// sendError ends an answer that has begun with an error packet. It reports
// whether that was possible; if not, only closing the connection is left.
func sendError(c *mysql.Conn, e *mysql.SQLError) bool {
	w, ok := c.Conn.(*conn)
	if !ok || c.FlushBuffer() != nil {
		return false
	}
	b := errorPacket(byte(w.lastSeq.Load()+1), e)
	if _, err := w.Write(b); err != nil {
		return false
	}
	w.swallow.Store(true)
	return true
}

func errorPacket(seq byte, e *mysql.SQLError) []byte {
	msg := clip(e.Message, 512)
	size := 1 + 2 + 1 + 5 + len(msg)
	b := make([]byte, 0, 4+size)
	b = append(b, byte(size), byte(size>>8), byte(size>>16), seq, mysql.ErrPacket)
	b = binary.LittleEndian.AppendUint16(b, uint16(e.Num))
	b = append(b, '#')
	b = append(b, (e.State + "00000")[:5]...)
	return append(b, msg...)
}

// fixInfo puts the length of an OK packet's info text where the protocol layer
// writes '#': strict clients call that packet malformed.
func fixInfo(p []byte) {
	at := 1
	for range 2 { // affected rows, insert id
		if at >= len(p) {
			return
		}
		switch p[at] {
		case 0xfc:
			at += 3
		case 0xfd:
			at += 4
		case 0xfe:
			at += 9
		default:
			at++
		}
	}
	at += 4 // status, warnings
	if n := len(p) - at - 1; n > 0 && n < 251 && p[at] == '#' {
		p[at] = byte(n)
	}
}

// sendInfo sends an OK whose packet has an info text, alone in its write.
func sendInfo(c *mysql.Conn, send func() error) error {
	w, ok := c.Conn.(*conn)
	if !ok {
		return send()
	}
	if err := c.FlushBuffer(); err != nil {
		return err
	}
	w.info.Store(true)
	defer w.info.Store(false)
	if err := send(); err != nil {
		return err
	}
	return c.FlushBuffer()
}
