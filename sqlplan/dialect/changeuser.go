package dialect

import (
	"bytes"
	"encoding/binary"
)

// The wire layer knows no COM_CHANGE_USER, by which pools of connections give the next user a fresh session. Most often that is
// the same account. Its answer to the server's challenge is then, byte by byte, the one that the server has accepted at the
// login, since clients use the challenge of the login again. So the listener keeps that answer, and makes COM_RESET_CONNECTION
// of the command if name and answer are the same. Any other account is refused.
const (
	commandChangeUser = 0x11
	commandReset      = 0x1f

	clientConnectWithDB  = 1 << 3
	clientSecure         = 1 << 15
	clientLengthEncoded  = 1 << 21
	handshakeUser        = 4 + 4 + 1 + 23 // capabilities, packet size, character set, filler
	sequenceOfAuthAnswer = 3
)

// login is what the client said when it logged in.
type login struct {
	user   []byte
	answer []byte // to the server's challenge
	known  bool   // false: it cannot be compared
}

// first reads the client's first packet.
func (l *login) first(p []byte) {
	if len(p) < handshakeUser {
		return
	}
	capabilities := binary.LittleEndian.Uint32(p)
	user, rest, ok := bytes.Cut(p[handshakeUser:], []byte{0})
	if !ok || len(rest) == 0 || capabilities&(clientSecure|clientLengthEncoded) == 0 {
		return
	}
	n := int(rest[0]) // longer answers have a longer length, and are none of these
	if n > 250 || len(rest) < 1+n {
		return
	}
	l.user, l.answer, l.known = bytes.Clone(user), bytes.Clone(rest[1:1+n]), true
}

// more reads what the client sends further to log in: the answer to another challenge, or something that is none.
func (l *login) more(sequence int, p []byte) {
	l.answer, l.known = bytes.Clone(p), l.known && sequence == sequenceOfAuthAnswer
}

// same reads a COM_CHANGE_USER, and says whether it is of the account that logged in. It gives the database that the client
// wants; "" is none.
func (l *login) same(p []byte) (database string, ok bool) {
	user, rest, ok := bytes.Cut(p[1:], []byte{0})
	if !ok || !l.known || !bytes.Equal(user, l.user) || len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return "", false
	}
	n := int(rest[0])
	db, _, _ := bytes.Cut(rest[1+n:], []byte{0})
	return string(db), bytes.Equal(rest[1:1+n], l.answer)
}

// errChangeUser is the packet that refuses COM_CHANGE_USER.
func errChangeUser() []byte {
	const text = "#42000This version of lakesql doesn't yet support 'changing to another account'"
	b := []byte{byte(3 + len(text)), byte((3 + len(text)) >> 8), 0, 1, 0xff}
	b = binary.LittleEndian.AppendUint16(b, codeUnsupported)
	return append(b, text...)
}

// ChangedDatabase gives the database that a client wants after a COM_CHANGE_USER that was read as COM_RESET_CONNECTION, once.
// changed is false after a COM_RESET_CONNECTION of the client, which keeps its database.
func (c *conn) ChangedDatabase() (database string, changed bool) {
	if d := c.database.Swap(nil); d != nil {
		return *d, true
	}
	return "", false
}
