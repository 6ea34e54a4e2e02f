package dialect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
)

// The wire protocol as far as the listener reads it: packets of a 3-byte length, a sequence number
// and the payload. A command starts at sequence number 0, its first byte says which.
const (
	packetHeader   = 4
	packetMax      = 1<<24 - 1 // a longer payload goes on in the next packet
	commandPrepare = 0x16
	clientSSL      = 1 << 11 // capability in the client's first packet: TLS starts behind it
	sslRequest     = 32      // that packet's length
)

// Listener passes connections through, escapes the statements that clients prepare (see
// EscapePrepare) and reads COM_CHANGE_USER as COM_RESET_CONNECTION. Everything else goes through as it came: other commands, the files of LOAD DATA
// LOCAL, packets of 16 MiB and more. Behind a TLS upgrade it sees nothing and changes nothing; a
// server that offers TLS ends it in a listener below this one.
func Listener(l net.Listener) net.Listener { return &listener{l} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Conn(c), nil
}

// Conn wraps the server's side of one connection; see Listener.
func Conn(c net.Conn) net.Conn {
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 8<<10)}
}

// conn is read by one goroutine at a time, as the wire layer does.
type conn struct {
	net.Conn
	in   *bufio.Reader
	left int    // bytes of the current packet that go through unseen
	out  []byte // bytes that are to be read next, before those of in

	packet []byte // a packet that is being read as a whole, with its header
	filled int    // bytes of it that are there

	greeted  bool                   // the client's first packet went through
	commands bool                   // the client has logged in
	login    login                  // what it said then
	database atomic.Pointer[string] // see ChangedDatabase
	blind    bool                   // everything goes through
	more     bool                   // the packet before was full: the next one belongs to the same payload
	sequence,
	length int // of the packet before
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case len(c.out) > 0:
			n := copy(p, c.out)
			if c.out = c.out[n:]; len(c.out) == 0 {
				c.out = nil
			}
			return n, nil
		case c.blind:
			return c.in.Read(p)
		case c.left > 0:
			n, err := c.in.Read(p[:min(len(p), c.left)])
			c.left -= n
			return n, err
		}
		step := c.next
		if c.packet != nil {
			step = c.fill
		}
		if err := step(); err != nil {
			return 0, err
		}
	}
}

// peek looks at the next n bytes. An end of the stream inside them makes the rest go through.
func (c *conn) peek(n int) ([]byte, error) {
	b, err := c.in.Peek(n)
	if err != nil && errors.Is(err, io.EOF) && len(b) > 0 {
		c.blind = true
		return nil, nil
	}
	return b, err
}

// next looks at the header of the next packet and decides what becomes of the packet.
func (c *conn) next() error {
	h, err := c.peek(packetHeader)
	if err != nil || c.blind {
		return err
	}
	length, sequence := int(h[0])|int(h[1])<<8|int(h[2])<<16, int(h[3])
	command := c.greeted && sequence == 0 && !c.more && !(c.sequence == 255 && c.length > 0)
	switch {
	case !c.greeted && length >= packetHeader:
		b, err := c.peek(packetHeader + packetHeader)
		if err != nil || c.blind {
			return err
		}
		if length == sslRequest && binary.LittleEndian.Uint32(b[packetHeader:])&clientSSL != 0 {
			c.blind = true
			break
		}
		c.whole(sequence, length)
		return nil
	case !c.commands && sequence > 1 && length < packetMax:
		c.whole(sequence, length)
		return nil
	case command && length > 0:
		c.commands = true
		b, err := c.peek(packetHeader + 1)
		if err != nil || c.blind {
			return err
		}
		if (b[packetHeader] == commandPrepare || b[packetHeader] == commandChangeUser) && length < packetMax {
			c.whole(0, length)
			return nil
		}
	}
	c.greeted = true
	c.sequence, c.length, c.more = sequence, length, length == packetMax
	c.left = packetHeader + length
	return nil
}

// whole has the next packet read as a whole.
func (c *conn) whole(sequence, length int) {
	c.packet, c.filled = make([]byte, packetHeader+length), 0
	c.sequence, c.length, c.more = sequence, length, false
}

// fill reads the rest of a packet. It hands on what EscapePrepare makes of a COM_STMT_PREPARE. After an
// error, such as a deadline, it goes on where it was. What does not fit into one packet stays as
// it was: a second packet would move the answer's sequence number.
func (c *conn) fill() error {
	for c.filled < len(c.packet) {
		n, err := c.in.Read(c.packet[c.filled:])
		c.filled += n
		if err != nil {
			if errors.Is(err, io.EOF) && c.filled > 0 {
				c.out, c.packet, c.blind = c.packet[:c.filled], nil, true
				return nil
			}
			return err
		}
	}
	c.out, c.packet = c.packet, nil
	switch payload := c.out[packetHeader:]; {
	case !c.greeted:
		c.greeted = true
		c.login.first(payload)
		return nil
	case !c.commands:
		c.login.more(c.sequence, payload)
		return nil
	case payload[0] == commandChangeUser:
		db, ok := c.login.same(payload)
		if !ok {
			c.out = nil
			_, err := c.Write(errChangeUser())
			return err
		}
		c.database.Store(&db)
		c.out = []byte{1, 0, 0, 0, commandReset}
		return nil
	}
	text, ok := EscapePrepare(string(c.out[packetHeader+1:]))
	if !ok || len(text)+1 >= packetMax {
		return nil
	}
	length := len(text) + 1
	out := make([]byte, 0, packetHeader+length)
	out = append(out, byte(length), byte(length>>8), byte(length>>16), 0, commandPrepare)
	c.out = append(out, text...)
	return nil
}

// SyscallConn implements syscall.Conn where the connection below does.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
