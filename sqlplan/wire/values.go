package wire

import (
	"strings"
)

// valuesList is the list of rows of an INSERT or REPLACE … VALUES whose values are nothing but plain literals. The front end
// gets the statement with its first row alone, for names, rights and the plan; the rows themselves are read from the text.
type valuesList struct {
	text  string // of the whole statement and what follows it
	begin int    // of the first row in text
	end   int    // behind the last row
	first int    // behind the first row
	rows  int

	read  bool // they have been, and wait to be written
	final bool // what comes of the statement is not for the front end to do again: rows were written, or the transaction is lost
}

// fewRows is the number of rows below which a statement is not worth the second look.
const fewRows = 4

// listValues finds the rows of a statement; nil: it has another form, few rows, or values that are no plain literals.
func listValues(text string) *valuesList {
	s := valueScanner{text: text}
	if !s.head() {
		return nil
	}
	v := &valuesList{text: text, begin: s.pos}
	for {
		if !s.row() {
			return nil
		}
		v.rows++
		v.end = s.pos
		if v.rows == 1 {
			v.first = s.pos
		}
		s.space()
		if !s.take(',') {
			break
		}
		s.space()
	}
	if v.rows < fewRows {
		return nil
	}
	return v
}

// short is the text with the first row alone.
func (v *valuesList) short() string { return v.text[:v.first] + v.text[v.end:] }

// valueScanner reads the head and the rows of INSERT … VALUES.
type valueScanner struct {
	text    string
	pos     int
	scratch []byte
	value   string // of the last literal
	kind    literalKind
}

type literalKind uint8

const (
	literalNull literalKind = iota
	literalNumber
	literalText
)

func (s *valueScanner) space() {
	for s.pos < len(s.text) && (s.text[s.pos] == ' ' || s.text[s.pos] == '\n' || s.text[s.pos] == '\t' || s.text[s.pos] == '\r') {
		s.pos++
	}
}

func (s *valueScanner) take(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// word takes a keyword, in any case, that ends where another token begins.
func (s *valueScanner) word(w string) bool {
	end := s.pos + len(w)
	if end > len(s.text) || !strings.EqualFold(s.text[s.pos:end], w) || end < len(s.text) && inWord(s.text[end]) {
		return false
	}
	s.pos = end
	return true
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// name takes an identifier.
func (s *valueScanner) name() bool {
	if s.take('`') {
		i := strings.IndexByte(s.text[s.pos:], '`')
		if i <= 0 {
			return false
		}
		s.pos += i + 1
		return s.pos >= len(s.text) || s.text[s.pos] != '`' // a doubled one is part of the name
	}
	from := s.pos
	for s.pos < len(s.text) && inWord(s.text[s.pos]) {
		s.pos++
	}
	return s.pos > from
}

// head takes INSERT [INTO] table [(columns)] VALUES and what is written so for REPLACE.
func (s *valueScanner) head() bool {
	s.space()
	if !s.word("insert") && !s.word("replace") {
		return false
	}
	s.space()
	if s.word("into") {
		s.space()
	}
	if !s.name() {
		return false
	}
	s.space()
	if s.take('.') {
		s.space()
		if !s.name() {
			return false
		}
		s.space()
	}
	if s.take('(') {
		for {
			s.space()
			if !s.name() {
				return false
			}
			s.space()
			if !s.take(',') {
				break
			}
		}
		if !s.take(')') {
			return false
		}
		s.space()
	}
	if !s.word("values") && !s.word("value") {
		return false
	}
	s.space()
	return true
}

// row takes a row.
func (s *valueScanner) row() bool {
	if !s.take('(') {
		return false
	}
	for {
		if !s.literal() {
			return false
		}
		if s.take(',') {
			continue
		}
		return s.take(')')
	}
}

// literal takes a literal and the blanks around it.
func (s *valueScanner) literal() bool {
	s.space()
	if s.pos >= len(s.text) {
		return false
	}
	ok := false
	switch c := s.text[s.pos]; {
	case c == '\'':
		s.kind = literalText
		ok = s.quoted()
	case c >= '0' && c <= '9' || c == '-' || c == '.':
		s.kind = literalNumber
		ok = s.number()
	default:
		s.kind, s.value = literalNull, ""
		ok = s.word("null")
	}
	s.space()
	return ok
}

// number takes a decimal number. What is no number in the end, the columns refuse.
func (s *valueScanner) number() bool {
	from := s.pos
	s.take('-')
	digits, exponent := 0, false
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c >= '0' && c <= '9':
			digits++
			continue
		case c == '.':
			continue
		case (c == 'e' || c == 'E') && digits > 0 && !exponent:
			exponent = true
			continue
		case (c == '-' || c == '+') && (s.text[s.pos-1] == 'e' || s.text[s.pos-1] == 'E'):
			continue
		case inWord(c):
			return false // 0x1f, 1abc
		}
		break
	}
	s.value = s.text[from:s.pos]
	return digits > 0
}

// quoted takes a text between single quotes.
func (s *valueScanner) quoted() bool {
	rest := s.text[s.pos+1:]
	i := strings.IndexByte(rest, '\'')
	if i < 0 {
		return false
	}
	if strings.IndexByte(rest[:i], '\\') < 0 && (i+1 >= len(rest) || rest[i+1] != '\'') {
		s.value = rest[:i]
		s.pos += i + 2
		return true
	}
	s.scratch = s.scratch[:0]
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == '\'':
			if i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				break
			}
			s.value = string(s.scratch)
			s.pos += i + 2
			return true
		case c == '\\':
			if i++; i >= len(rest) {
				return false
			}
			switch c = rest[i]; c {
			case '\'', '"', '\\':
			case '0', 'b', 'n', 'r', 't', 'Z':
				c = unescape(c)
			default:
				return false // \% and \_ are two characters, and others one
			}
		}
		s.scratch = append(s.scratch, c)
	}
	return false
}
