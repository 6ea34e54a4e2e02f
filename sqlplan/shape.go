package sqlplan

import (
	"strings"
	"unsafe"
)

// Statements of programs differ in their literals only. The shape of a statement is its text with a question mark for each of them,
// as a program would have prepared it; what a statement of that shape needs is found out once (see short.go).

// Lengths of texts that are looked at: longer ones are lists of rows, for which there are other ways. Those of prepared statements have
// none but the front end's.
const (
	shapeBytesMax    = 4 << 10
	preparedBytesMax = 64 << 10
)

// literalKind is what a literal, or a parameter, is.
type literalKind uint8

const (
	literalNull   literalKind = iota
	literalNumber             // decimal digits, perhaps with a sign and a point
	literalFloat              // with an exponent, or a parameter of such a type
	literalString             // between single quotes
	literalOther              // a parameter of another type
	literalParam              // a question mark, whose parameter comes with the execution
)

type literalValue struct {
	kind literalKind
	text string // without quotes and escapes; shares the statement's memory
}

// shape cuts the literals out of statements. It keeps its memory from one to the next.
type shape struct {
	key      []byte         // database, zero byte, text with question marks
	literals []literalValue // in order
}

// read takes a statement. It answers false for one that is no SELECT, INSERT, REPLACE, UPDATE or DELETE, or that has a comment, a
// variable, a literal of another kind, or a second statement behind it: those are not for short ways.
func (s *shape) read(db, text string) bool {
	s.key = append(append(s.key[:0], db...), 0)
	s.literals = s.literals[:0]
	var last byte // the last one that is no blank
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case wordByte(c) && (c < '0' || c > '9'):
			j := i + 1
			for j < len(text) && wordByte(text[j]) {
				j++
			}
			if j < len(text) && (text[j] == '\'' || text[j] == '"') {
				return false // x'00', n'text', _utf8'text'
			}
			if j-i == 4 && strings.EqualFold(text[i:j], "null") {
				s.add(literalNull, "")
			} else {
				s.key = append(s.key, text[i:j]...)
			}
			last, i = 'a', j
		case c >= '0' && c <= '9' || c == '.' && last != 'a' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9',
			c == '-' && (last == '(' || last == ',' || last == '=') && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9':
			j, kind := numberEnd(text, i)
			if j < 0 {
				return false
			}
			s.add(kind, text[i:j])
			last, i = '?', j
		case c == '\'':
			j := strings.IndexByte(text[i+1:], '\'')
			if j < 0 {
				return false
			}
			value := text[i+1 : i+1+j]
			j += i + 2
			if strings.IndexByte(value, '\\') >= 0 || j < len(text) && text[j] == '\'' {
				var ok bool
				if value, j, ok = unquote(text, i); !ok {
					return false
				}
			}
			s.add(literalString, value)
			last, i = '?', j
		case c == '`':
			j := strings.IndexByte(text[i+1:], '`')
			if j < 0 {
				return false
			}
			j += i + 2
			s.key = append(s.key, text[i:j]...)
			last, i = 'a', j
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			if n := len(s.key); s.key[n-1] != ' ' {
				s.key = append(s.key, ' ')
			}
			i++
		case c == ';':
			if strings.TrimLeft(text[i+1:], " \n\t\r") != "" {
				return false
			}
			i = len(text)
		case c == '?':
			s.add(literalParam, "")
			last = c
			i++
		case c == '(' || c == ')' || c == ',' || c == '=' || c == '.' || c == '*' || c == '+',
			c == '-' && i+1 < len(text) && text[i+1] != '-':
			s.key = append(s.key, c)
			last = c
			i++
		default:
			return false
		}
	}
	for n := len(s.key); s.key[n-1] == ' '; n-- {
		s.key = s.key[:n-1]
	}
	return true
}

func (s *shape) add(kind literalKind, text string) {
	s.key = append(s.key, '?')
	s.literals = append(s.literals, literalValue{kind, text})
}

// changesOrReads tells by its first letters whether a statement may be one of those with shapes.
func changesOrReads(text string) bool {
	if len(text) < 8 {
		return false
	}
	word := text[:6]
	return strings.EqualFold(word, "select") || strings.EqualFold(word, "insert") || strings.EqualFold(word, "update") ||
		strings.EqualFold(word, "delete") || strings.EqualFold(text[:7], "replace")
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// numberEnd gives the end of a decimal number; -1: it is none.
func numberEnd(text string, i int) (int, literalKind) {
	kind := literalNumber
	if text[i] == '-' {
		i++
	}
	point := false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
		case c == '.' && !point && kind == literalNumber:
			point = true
		case (c == 'e' || c == 'E') && kind == literalNumber && i+1 < len(text):
			kind = literalFloat
			if n := text[i+1]; n == '-' || n == '+' {
				i++
			}
			if i+1 >= len(text) || text[i+1] < '0' || text[i+1] > '9' {
				return -1, kind
			}
		case wordByte(c) || c == '.' || c == '\'' || c == '"':
			return -1, kind // 0x1f, 1abc
		default:
			return i, kind
		}
	}
	return i, kind
}

// unquote reads a text between single quotes that has escapes, from its first quote on.
func unquote(text string, i int) (value string, end int, ok bool) {
	var b []byte
	for i++; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\'':
			if i+1 >= len(text) || text[i+1] != '\'' {
				return unsafe.String(unsafe.SliceData(b), len(b)), i + 1, true
			}
			i++
		case c == '\\':
			if i++; i >= len(text) {
				return "", 0, false
			}
			switch c = text[i]; c {
			case '\'', '"', '\\':
			case '0':
				c = 0
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'Z':
				c = 26
			default:
				return "", 0, false // \% and \_ are two characters, and others one
			}
		}
		b = append(b, c)
	}
	return "", 0, false
}
