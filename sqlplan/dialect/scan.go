package dialect

import "strings"

// version is what executable comments are compared with: /*!80044 … */ is read, /*!80045 … */ is
// not. 99999 is read as well: MySQL and MariaDB skip it, so lesser servers load a dump of ours.
const (
	version      = 80044
	versionOurs  = 99999
	versionShort = 5 // fewest digits of a version; fewer make a plain comment
)

// scanned is the first statement of a text, opened: executable comments are resolved and time
// travel is in the one form that the engine's grammar knows. text has the length of the original.
type scanned struct {
	text string
	end  int // end of the statement, without its semicolon
	next int // start of the next statement
	ansi bool

	first, second Token // the first two tokens
	body          bool  // a statement with statements inside: end and next are the text's
	asOf          bool  // AS OF stands in it
	named         bool  // => stands in it
	onDuplicate   bool  // ON DUPLICATE
	locking       bool  // FOR UPDATE, FOR SHARE or LOCK IN SHARE MODE, or something that looks like one
	consistent    bool  // CONSISTENT SNAPSHOT
	attribute     bool  // ENGINE_ATTRIBUTE
	rollup        int   // position of WITH ROLLUP, -1 without
	params        int   // number of ?
	grown         int   // by how many bytes text is longer than the original: see shareMode
}

// statement is the statement's own text.
func (s *scanned) statement() string { return s.text[:s.end] }

// blanks overwrites parts of a text, copying it at the first change.
type blanks struct {
	text string
	buf  []byte
}

func (b *blanks) put(pos, end int, with string) {
	if b.buf == nil {
		b.buf = []byte(b.text)
	}
	n := copy(b.buf[pos:end], with)
	for i := pos + n; i < end; i++ {
		if b.buf[i] != '\n' {
			b.buf[i] = ' '
		}
	}
}

func (b *blanks) blank(pos, end int) { b.put(pos, end, "") }

func (b *blanks) String() string {
	if b.buf == nil {
		return b.text
	}
	return string(b.buf)
}

// notATable are words before which TIMESTAMP is a name of its own and not part of time travel.
var notATable = words("SELECT DISTINCT ALL FROM JOIN UPDATE INTO TABLE BY WHERE AND OR NOT ON SET WHEN THEN ELSE CASE HAVING IN LIKE AS STRAIGHT_JOIN USING")

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// has looks a word token up in a list of upper-case words.
func has(m map[string]bool, t Token, text string) bool {
	return t.Kind == Word && m[strings.ToUpper(t.Text(text))]
}

var bodyStart = words("IF CASE WHILE LOOP REPEAT DECLARE")

// scan reads the first statement of text.
func scan(text string, ansi bool) scanned {
	s := scanned{end: len(text), next: len(text), ansi: ansi, rollup: -1}
	b := blanks{text: text}
	l := NewLexer(text, ansi)
	var p1, p2, p3 Token // the tokens before, newest first
	seen := 0
	inside := false // an executable comment
	head := false   // CREATE, what it creates not yet seen
	afterOf := false
loop:
	for {
		t := l.Next()
		if inside && t.Kind == Op && strings.HasPrefix(text[t.Pos:], "*/") {
			b.blank(t.Pos, t.Pos+2)
			l.pos, inside = t.Pos+2, false
			continue
		}
		switch t.Kind {
		case EOF, Incomplete:
			break loop
		case Comment:
			inside = comment(&b, &l, t, p1, inside)
			continue
		case Semicolon:
			if !s.body {
				s.end, s.next = t.Pos, t.End
				break loop
			}
		case Param:
			s.params++
		case Op:
			if t.End-t.Pos == 2 && t.Is(text, "=>") {
				s.named = true
			}
		case String:
			if afterOf && p1.Is(text, "TIMESTAMP") {
				b.blank(p1.Pos, p1.End) // the text alone, so that it is read in the session's time zone
			}
		case Word:
			switch t.End - t.Pos {
			case 2:
				if t.Is(text, "OF") && p1.Is(text, "AS") {
					s.asOf = true
					travel(&b, text, p2, p3)
				}
			case 4:
				if t.Is(text, "MODE") && p1.Is(text, "SHARE") {
					s.locking = true
				}
			case 5:
				if t.Is(text, "SHARE") && p1.Is(text, "FOR") {
					s.locking = true
				}
			case 6:
				if t.Is(text, "ROLLUP") && p1.Is(text, "WITH") {
					s.rollup = p1.Pos
				} else if t.Is(text, "UPDATE") && p1.Is(text, "FOR") {
					s.locking = true
				}
			case 8:
				if t.Is(text, "SNAPSHOT") && p1.Is(text, "CONSISTENT") {
					s.consistent = true
				}
			case 9:
				if t.Is(text, "DUPLICATE") && p1.Is(text, "ON") {
					s.onDuplicate = true
				}
			case 16:
				if t.Is(text, "ENGINE_ATTRIBUTE") {
					s.attribute = true
				}
			}
		}
		afterOf = t.Kind == Word && t.Is(text, "TIMESTAMP") && p1.Is(text, "OF") && p2.Is(text, "AS")
		switch seen {
		case 0:
			s.first = t
			head = t.Is(text, "CREATE")
			s.body = has(bodyStart, t, text)
		case 1:
			s.second = t
			if s.first.Is(text, "BEGIN") && !t.Is(text, "WORK") {
				s.body = true
			}
		}
		if head && t.Kind == Word {
			switch strings.ToUpper(t.Text(text)) {
			case "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT":
				s.body, head = true, false
			case "TABLE", "VIEW", "INDEX", "DATABASE", "SCHEMA", "USER", "ROLE":
				head = false
			}
		}
		seen++
		p1, p2, p3 = t, p1, p2
	}
	if inside { // no end: the grammar says so better
		s.text = text
		return s
	}
	s.text = b.String()
	return s
}

// comment resolves a comment and says whether the lexer is now inside an executable one.
func comment(b *blanks, l *Lexer, t, before Token, inside bool) bool {
	c := t.Text(b.text)
	switch {
	case strings.HasPrefix(c, "/*M!"):
		b.blank(t.Pos, t.End)
	case strings.HasPrefix(c, "/*!") && !inside:
		digits, n := 0, 0
		for i := 3; i < len(c) && isDigit(c[i]) && digits < versionShort+1; i++ {
			n = n*10 + int(c[i]-'0')
			digits++
		}
		switch {
		case digits > 0 && digits < versionShort:
			return false
		case n <= version, n == versionOurs && digits == versionShort:
			b.blank(t.Pos, t.Pos+3+digits)
			l.pos = t.Pos + 3 + digits
			return true
		}
		b.blank(t.Pos, t.End)
	case strings.HasPrefix(c, "--") && len(c) > 2 && operand(before, b.text, t.Pos) && (isDigit(c[2]) || c[2] == '(' || c[2] == '.' || c[2] == '@'):
		// 5--1 is 6: without a blank behind it, MySQL takes no comment here, the grammar does.
		b.put(t.Pos, t.Pos+2, " +")
		l.pos = t.Pos + 2
	}
	return inside
}

// operand says whether a token can end the left side of a subtraction whose sign stands at pos.
func operand(t Token, text string, pos int) bool {
	switch t.Kind {
	case Word:
		return t.End == pos // a keyword has a blank behind it
	case Number, Quoted, Variable, Param:
		return t.End > t.Pos
	case Op:
		return t.Is(text, ")")
	}
	return false
}

// travel blanks the word before AS OF that the grammar does not know.
func travel(b *blanks, text string, unit, before Token) {
	switch {
	case unit.Is(text, "TIMESTAMP"), unit.Is(text, "SYSTEM_VERSION"):
		if before.Is(text, "FOR") {
			b.blank(before.Pos, before.End)
			b.blank(unit.Pos, unit.End)
			return
		}
	case unit.Is(text, "VERSION"), unit.Is(text, "SYSTEM_TIME"):
		if before.Is(text, "FOR") {
			return
		}
	default:
		return
	}
	if before.Kind == Quoted || before.Kind == Word && !has(notATable, before, text) {
		b.blank(unit.Pos, unit.End)
	}
}
