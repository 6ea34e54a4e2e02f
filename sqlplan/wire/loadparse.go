package wire

import (
	"bytes"
	"io"

	"github.com/dolthub/vitess/go/mysql"
)

// format is how LOAD DATA finds rows and fields in a file.
type format struct {
	fieldEnd  string // FIELDS TERMINATED BY
	enclosed  byte   // FIELDS ENCLOSED BY; valid if hasEnclosed
	escape    byte   // FIELDS ESCAPED BY; valid if hasEscape
	lineStart string // LINES STARTING BY
	lineEnd   string // LINES TERMINATED BY

	hasEnclosed, hasEscape bool

	fieldMax int // bytes of a field, 0: no limit. A longer one ends the reading: it would have to be held whole
}

var errFieldTooLong = mysql.NewSQLError(1153, "08S01", "Got a packet bigger than 'max_allowed_packet' bytes")

// fieldReader reads rows of text fields by MySQL's rules: a doubled enclosing
// character stands for one, terminators inside an enclosed field are data, the
// escape character makes the next one literal or names a control character.
// It holds one field and one block of the file in memory.
type fieldReader struct {
	r   io.Reader
	f   format
	buf []byte // buf[pos:] is unread
	pos int
	eof bool
	err error // of r, io.EOF left out

	special [256]bool // ends the plain run of an unenclosed field
	scratch []byte    // a field that is not a plain piece of buf

	lineDone bool // the last field ended its line
	finished bool // no further line
}

const readBlock = 256 << 10

func newFieldReader(r io.Reader, f format) *fieldReader {
	fr := &fieldReader{r: r, f: f, lineDone: true}
	if f.fieldEnd != "" {
		fr.special[f.fieldEnd[0]] = true
	}
	if f.lineEnd != "" {
		fr.special[f.lineEnd[0]] = true
	}
	if f.hasEscape {
		fr.special[f.escape] = true
	}
	return fr
}

// fill makes at least n bytes unread, if the file has as many. keep bytes
// before pos stay where pos can reach them. It reports whether n are there.
func (fr *fieldReader) fill(n, keep int) bool {
	for len(fr.buf)-fr.pos < n && !fr.eof {
		if from := fr.pos - keep; from > 0 && (cap(fr.buf)-len(fr.buf) < readBlock/2) {
			m := copy(fr.buf, fr.buf[from:])
			fr.buf = fr.buf[:m]
			fr.pos = keep
		}
		if cap(fr.buf)-len(fr.buf) < readBlock/2 {
			grown := make([]byte, len(fr.buf), max(2*cap(fr.buf), readBlock))
			copy(grown, fr.buf)
			fr.buf = grown
		}
		k, err := fr.r.Read(fr.buf[len(fr.buf):cap(fr.buf)])
		fr.buf = fr.buf[:len(fr.buf)+k]
		if err != nil {
			fr.eof = true
			if err != io.EOF {
				fr.err = err
			}
		}
	}
	return len(fr.buf)-fr.pos >= n
}

// next takes one byte; ok is false at the end of the file.
func (fr *fieldReader) next() (b byte, ok bool) {
	if fr.pos == len(fr.buf) && !fr.fill(1, 0) {
		return 0, false
	}
	b = fr.buf[fr.pos]
	fr.pos++
	return b, true
}

// at tells whether the text term begins one byte before pos, and skips it then.
func (fr *fieldReader) at(term string) bool {
	if len(term) == 1 {
		return true // the caller has seen its first byte
	}
	rest := term[1:]
	if !fr.fill(len(rest), 1) || string(fr.buf[fr.pos:fr.pos+len(rest)]) != rest {
		return false
	}
	fr.pos += len(rest)
	return true
}

// nextLine goes to the next line. It reports false at the end of the file, and
// whether fields of the old line were left over.
func (fr *fieldReader) nextLine() (more, truncated bool) {
	if !fr.lineDone {
		truncated = fr.skipLine()
	}
	fr.lineDone = false
	if fr.finished || !fr.fill(1, 0) {
		fr.finished = true
		return false, truncated
	}
	if fr.f.lineStart != "" && !fr.skipToStart() {
		fr.finished = true
		return false, truncated
	}
	return true, truncated
}

// skipLine drops what is left of the line; any says whether that was something.
func (fr *fieldReader) skipLine() (any bool) {
	if fr.f.lineEnd == "" {
		fr.finished = true
		return false
	}
	for {
		b, ok := fr.next()
		if !ok {
			fr.finished = true
			return any
		}
		if fr.f.hasEscape && b == fr.f.escape {
			any = true
			fr.next()
			continue
		}
		if b == fr.f.lineEnd[0] && fr.at(fr.f.lineEnd) {
			return any
		}
		any = true
	}
}

// skipToStart drops everything up to and with LINES STARTING BY.
func (fr *fieldReader) skipToStart() bool {
	start := []byte(fr.f.lineStart)
	for {
		if i := bytes.Index(fr.buf[fr.pos:], start); i >= 0 {
			fr.pos += i + len(start)
			return true
		}
		// The text may begin in this block and end in the next.
		fr.pos = max(fr.pos, len(fr.buf)-len(start)+1)
		if !fr.fill(len(fr.buf)-fr.pos+1, 0) {
			return false
		}
	}
}

// field reads the next field of the line; ok is false when the line has no
// more. The bytes are valid until the next call. null: it is \N, or the bare word NULL.
func (fr *fieldReader) field() (b []byte, null, ok bool) {
	if fr.lineDone {
		return nil, false, false
	}
	if fr.pos == len(fr.buf) && !fr.fill(1, 0) {
		fr.lineDone, fr.finished = true, true
		return nil, false, false
	}
	if fr.f.hasEnclosed && fr.buf[fr.pos] == fr.f.enclosed {
		return fr.enclosedField()
	}
	start := fr.pos
	for {
		for i, c := range fr.buf[fr.pos:] {
			if fr.special[c] {
				fr.pos += i
				goto found
			}
		}
		{
			length := len(fr.buf) - start
			if fr.tooLong(length) {
				return nil, false, false
			}
			fr.pos = len(fr.buf)
			if !fr.fill(1, length) { // the file ends with this field
				fr.lineDone, fr.finished = true, true
				b = fr.buf[fr.pos-length : fr.pos]
				return b, fr.isNullWord(b), true
			}
			start = fr.pos - length
			continue
		}
	found:
		c := fr.buf[fr.pos]
		length := fr.pos - start
		if fr.tooLong(length) {
			return nil, false, false
		}
		fr.pos++
		if fr.f.hasEscape && c == fr.f.escape {
			fr.scratch = append(fr.scratch[:0], fr.buf[start:start+length]...)
			fr.pos--
			return fr.slowField(false)
		}
		// A terminator of several bytes may need the next block, which moves buf.
		if fr.f.lineEnd != "" && c == fr.f.lineEnd[0] {
			if fr.fill(len(fr.f.lineEnd)-1, length+1) || len(fr.f.lineEnd) == 1 {
				start = fr.pos - 1 - length
				if fr.at(fr.f.lineEnd) {
					fr.lineDone = true
					b = fr.buf[start : start+length]
					return b, fr.isNullWord(b), true
				}
			}
			start = fr.pos - 1 - length
		}
		if fr.f.fieldEnd != "" && c == fr.f.fieldEnd[0] {
			if fr.fill(len(fr.f.fieldEnd)-1, length+1) || len(fr.f.fieldEnd) == 1 {
				start = fr.pos - 1 - length
				if fr.at(fr.f.fieldEnd) {
					b = fr.buf[start : start+length]
					return b, fr.isNullWord(b), true
				}
			}
			start = fr.pos - 1 - length
		}
	}
}

// tooLong ends the reading if a field has grown beyond its limit.
func (fr *fieldReader) tooLong(n int) bool {
	if fr.f.fieldMax == 0 || n <= fr.f.fieldMax {
		return false
	}
	fr.err, fr.lineDone, fr.finished = errFieldTooLong, true, true
	return true
}

func (fr *fieldReader) isNullWord(b []byte) bool {
	return fr.f.hasEnclosed && string(b) == "NULL"
}

func (fr *fieldReader) enclosedField() (b []byte, null, ok bool) {
	fr.scratch = append(fr.scratch[:0], fr.f.enclosed) // kept when the field turns out not to be enclosed
	fr.pos++
	return fr.slowField(true)
}

// slowField reads a field byte by byte into scratch, which holds its beginning.
func (fr *fieldReader) slowField(enclosed bool) (b []byte, null, ok bool) {
	escapedN := false // the field's last byte came from \N
	for {
		if fr.tooLong(len(fr.scratch)) {
			return nil, false, false
		}
		c, more := fr.next()
		if !more {
			fr.lineDone, fr.finished = true, true
			return fr.scratch, escapedN && len(fr.scratch) == 1, true
		}
		if fr.f.hasEscape && c == fr.f.escape {
			d, more := fr.next()
			if !more {
				fr.lineDone, fr.finished = true, true
				return append(fr.scratch, c), false, true
			}
			// With one character for both, doubling it is the only escape.
			if !fr.f.hasEnclosed || fr.f.escape != fr.f.enclosed || d == fr.f.escape {
				escapedN = d == 'N'
				fr.scratch = append(fr.scratch, unescape(d))
				continue
			}
			fr.pos--
		}
		if !enclosed && fr.f.lineEnd != "" && c == fr.f.lineEnd[0] && fr.at(fr.f.lineEnd) {
			fr.lineDone = true
			return fr.scratch, escapedN && len(fr.scratch) == 1, true
		}
		if enclosed && c == fr.f.enclosed {
			d, more := fr.next()
			switch {
			case more && d == fr.f.enclosed:
				fr.scratch = append(fr.scratch, d)
				escapedN = false
				continue
			case !more || fr.f.lineEnd != "" && d == fr.f.lineEnd[0] && fr.at(fr.f.lineEnd):
				fr.lineDone = true
				fr.finished = fr.finished || !more
				return fr.scratch[1:], escapedN && len(fr.scratch) == 2, true
			case fr.f.fieldEnd != "" && d == fr.f.fieldEnd[0] && fr.at(fr.f.fieldEnd):
				return fr.scratch[1:], escapedN && len(fr.scratch) == 2, true
			}
			fr.pos-- // data: the field is not over
		} else if !enclosed && fr.f.fieldEnd != "" && c == fr.f.fieldEnd[0] && fr.at(fr.f.fieldEnd) {
			return fr.scratch, escapedN && len(fr.scratch) == 1, true
		}
		fr.scratch = append(fr.scratch, c)
		escapedN = false
	}
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case '0':
		return 0
	case 'Z':
		return 26
	}
	return c
}
