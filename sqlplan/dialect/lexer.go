package dialect

import (
	"strconv"
	"strings"
)

// Kind is the class of a token.
type Kind uint8

// The classes of tokens.
const (
	EOF        Kind = iota
	Word            // an identifier or keyword without quotes
	Quoted          // an identifier in back quotes (or in double quotes under ANSI_QUOTES)
	String          // '…' or "…"
	Number          // 1, 1.5, .5, 1e3, 0x1F
	Literal         // x'1F', b'01'
	Param           // ?
	Bound           // :v1, a parameter by its number
	Variable        // @name, @'name', @@global.name
	Op              // an operator or punctuation mark
	Semicolon       // ;
	Comment         // any comment, whole
	Incomplete      // a string, quoted identifier or comment without an end
)

// Token is a part of a text: text[Pos:End].
type Token struct {
	Kind     Kind
	Pos, End int
}

// Text gives the token's bytes in the text it was read from.
func (t Token) Text(text string) string { return text[t.Pos:t.End] }

// Is says whether the token is that keyword or operator; word is in upper case.
func (t Token) Is(text, word string) bool {
	return t.End-t.Pos == len(word) && (t.Kind == Word || t.Kind == Op) && strings.EqualFold(text[t.Pos:t.End], word)
}

// Lexer cuts a text into tokens. It allocates nothing and accepts any bytes.
type Lexer struct {
	text string
	pos  int
	ansi bool // double quotes enclose identifiers
}

// NewLexer reads text from its start. ansi is the mode ANSI_QUOTES.
func NewLexer(text string, ansi bool) Lexer { return Lexer{text: text, ansi: ansi} }

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isWord(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || isDigit(c) || c == '_' || c == '$' || c >= 0x80
}

// Next gives the next token, comments included; at the end EOF, for ever.
func (l *Lexer) Next() Token {
	s := l.text
	for l.pos < len(s) && isSpace(s[l.pos]) {
		l.pos++
	}
	p := l.pos
	if p >= len(s) {
		return Token{EOF, len(s), len(s)}
	}
	kind, end := Op, p+1
	switch c := s[p]; {
	case c == '\'':
		kind, end = l.quoted(p, '\'', String)
	case c == '"' && l.ansi:
		kind, end = l.quoted(p, '"', Quoted)
	case c == '"':
		kind, end = l.quoted(p, '"', String)
	case c == '`':
		kind, end = l.quoted(p, '`', Quoted)
	case c == '?':
		kind = Param
	case c == ':' && p+2 < len(s) && s[p+1] == 'v' && isDigit(s[p+2]):
		for kind, end = Bound, p+3; end < len(s) && isDigit(s[end]); {
			end++
		}
	case c == ';':
		kind = Semicolon
	case c == '@':
		kind, end = l.variable(p)
	case isDigit(c), c == '.' && p+1 < len(s) && isDigit(s[p+1]) && !l.afterName(p):
		kind, end = l.number(p)
	case isWord(c):
		if (c|0x20 == 'x' || c|0x20 == 'b') && p+1 < len(s) && s[p+1] == '\'' {
			if kind, end = l.quoted(p+1, '\'', Literal); kind == Incomplete {
				break
			}
			break
		}
		for end < len(s) && isWord(s[end]) {
			end++
		}
		kind = Word
	case c == '#', c == '-' && strings.HasPrefix(s[p:], "--"), c == '/' && strings.HasPrefix(s[p:], "//"):
		// The engine's grammar takes every "--" and also "//" for a comment; see minusMinus for
		// the one case in which that would change a result.
		kind = Comment
		if i := strings.IndexByte(s[p:], '\n'); i >= 0 {
			end = p + i + 1
		} else {
			end = len(s)
		}
	case c == '/' && strings.HasPrefix(s[p:], "/*"):
		kind = Comment
		if i := strings.Index(s[p+2:], "*/"); i >= 0 {
			end = p + 2 + i + 2
		} else {
			kind, end = Incomplete, len(s)
		}
	default:
		end = p + operator(s[p:])
	}
	l.pos = end
	return Token{kind, p, end}
}

// afterName says whether the dot at p follows a name, so that the digit behind it begins a column.
func (l *Lexer) afterName(p int) bool {
	return p > 0 && (isWord(l.text[p-1]) || l.text[p-1] == '`' || l.ansi && l.text[p-1] == '"')
}

func (l *Lexer) quoted(p int, q byte, kind Kind) (Kind, int) {
	s := l.text
	for i := p + 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if kind == String || kind == Literal {
				i++
			}
		case q:
			if i+1 < len(s) && s[i+1] == q {
				i++
				continue
			}
			return kind, i + 1
		}
	}
	return Incomplete, len(s)
}

func (l *Lexer) variable(p int) (Kind, int) {
	s, i := l.text, p+1
	if i < len(s) && s[i] == '@' {
		i++
	}
	if i < len(s) && (s[i] == '\'' || s[i] == '"' || s[i] == '`') {
		kind := String
		if s[i] == '`' {
			kind = Quoted
		}
		k, end := l.quoted(i, s[i], kind)
		if k == Incomplete {
			return k, end
		}
		return Variable, end
	}
	for i < len(s) && (isWord(s[i]) || s[i] == '.') {
		i++
	}
	return Variable, i
}

func (l *Lexer) number(p int) (Kind, int) {
	s, i := l.text, p
	if s[p] == '0' && p+2 < len(s) && s[p+1]|0x20 == 'x' && isHex(s[p+2]) {
		for i = p + 2; i < len(s) && isHex(s[i]); {
			i++
		}
	} else {
		for i < len(s) && isDigit(s[i]) {
			i++
		}
		dot := false
		if i < len(s) && s[i] == '.' {
			dot = true
			for i++; i < len(s) && isDigit(s[i]); {
				i++
			}
		}
		if i < len(s) && s[i]|0x20 == 'e' {
			j := i + 1
			if j < len(s) && (s[j] == '+' || s[j] == '-') {
				j++
			}
			if j < len(s) && isDigit(s[j]) {
				for j < len(s) && isDigit(s[j]) {
					j++
				}
				i = j
			}
		}
		if dot {
			return Number, i
		}
	}
	if i < len(s) && isWord(s[i]) { // 1st_column
		for i < len(s) && isWord(s[i]) {
			i++
		}
		return Word, i
	}
	return Number, i
}

var operators = []string{"->>", "<=>", "=>", ":=", "->", "<=", ">=", "<>", "!=", "<<", ">>", "||", "&&"}

func operator(s string) int {
	for _, o := range operators {
		if strings.HasPrefix(s, o) {
			return len(o)
		}
	}
	return 1
}

// tokens reads the first statement of text, without comments, up to and including its semicolon or
// the end (EOF). Statements with a body of statements go on over their semicolons.
func tokens(text string, ansi bool) []Token {
	l := NewLexer(text, ansi)
	var ts []Token
	for {
		t := l.Next()
		if t.Kind == Comment {
			continue
		}
		ts = append(ts, t)
		if t.Kind == EOF || t.Kind == Semicolon || t.Kind == Incomplete {
			return ts
		}
	}
}

// unquote gives the value of a String or Quoted token.
func unquote(s string) string {
	if len(s) < 2 {
		return s
	}
	q := s[0]
	body := s[1 : len(s)-1]
	if strings.IndexByte(body, q) < 0 && (q == '`' || strings.IndexByte(body, '\\') < 0) {
		return body
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		c := body[i]
		switch {
		case c == q:
			i++ // a doubled quote
		case c == '\\' && q != '`' && i+1 < len(body):
			i++
			switch c = body[i]; c {
			case '0':
				c = 0
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'Z':
				c = 26
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

var stringEscaper = strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`)

// quoteString writes a value as a string literal.
func quoteString(s string) string { return "'" + stringEscaper.Replace(s) + "'" }

// quoteName writes an identifier in back quotes.
func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// name gives an identifier's value, quoted or not.
func name(t Token, text string) string {
	if t.Kind == Quoted {
		return unquote(t.Text(text))
	}
	return t.Text(text)
}

// numberParams replaces each ? by its number, :v1, :v2 and so on.
func numberParams(text string, ansi bool) string {
	var b strings.Builder
	l := NewLexer(text, ansi)
	done, n := 0, 0
	for {
		t := l.Next()
		if t.Kind == EOF {
			b.WriteString(text[done:])
			return b.String()
		}
		if t.Kind == Param {
			n++
			b.WriteString(text[done:t.Pos])
			b.WriteString(":v")
			b.WriteString(strconv.Itoa(n))
			done = t.End
		}
	}
}
