package main

import (
	"slices"
	"strings"
)

// statement is one statement as the user wrote it, without its delimiter.
type statement struct {
	text     string
	line     int  // where it begins, from 1
	vertical bool // ended by \G: print a column a line
	quit     bool // the client's own command to end
}

// splitter cuts text that comes line by line into statements. It knows strings, quoted names and comments, so
// that a delimiter inside them does not end a statement, and the client commands DELIMITER, QUIT and EXIT.
type splitter struct {
	delimiter string // "" means ";"
	buf       strings.Builder
	started   int  // line where the pending statement begins; 0: only blanks so far
	line      int  // lines fed so far
	inside    byte // open quote: ', " or `; '*' in a comment /* */; 0 outside
}

// pending says whether a statement has begun that is not complete yet.
func (sp *splitter) pending() bool { return sp.started > 0 || sp.inside != 0 }

// quoted is what is open at the end of the last line: a quote character, '*' for a comment, or 0.
func (sp *splitter) quoted() byte { return sp.inside }

func (sp *splitter) reset() {
	sp.buf.Reset()
	sp.started, sp.inside = 0, 0
}

// feed takes one line, with its line feed if it had one, and returns the statements that it completes.
func (sp *splitter) feed(line string) []statement {
	sp.line++
	if !sp.pending() {
		words := strings.Fields(line)
		if len(words) == 2 && strings.EqualFold(words[0], "delimiter") {
			sp.delimiter = words[1]
			return nil
		}
		if len(words) == 1 {
			switch w := strings.ToLower(strings.TrimSuffix(words[0], sp.delim())); w {
			case "quit", "exit", `\q`:
				return []statement{{quit: true, line: sp.line}}
			}
		}
	}
	var done []statement
	cut := func(vertical bool) {
		if sp.started > 0 {
			done = append(done, statement{text: strings.TrimSpace(sp.buf.String()), line: sp.started, vertical: vertical})
		}
		sp.reset()
	}
	delim := sp.delim()
	for i := 0; i < len(line); {
		c := line[i]
		switch {
		case sp.inside == '*':
			if strings.HasPrefix(line[i:], "*/") {
				sp.buf.WriteString("*/")
				sp.inside = 0
				i += 2
				continue
			}
		case sp.inside != 0:
			if c == '\\' && sp.inside != '`' && i+1 < len(line) {
				sp.buf.WriteString(line[i : i+2])
				i += 2
				continue
			}
			if c == sp.inside { // a doubled quote closes and opens again: the same result
				sp.inside = 0
			}
		case strings.HasPrefix(line[i:], delim):
			cut(false)
			i += len(delim)
			continue
		case strings.HasPrefix(line[i:], `\G`), strings.HasPrefix(line[i:], `\g`):
			cut(line[i+1] == 'G')
			i += 2
			continue
		case c == '#', strings.HasPrefix(line[i:], "--") && (i+2 == len(line) || strings.IndexByte(" \t\r\n", line[i+2]) >= 0):
			if sp.started > 0 && strings.HasSuffix(line, "\n") {
				sp.buf.WriteByte('\n')
			}
			return done
		case strings.HasPrefix(line[i:], "/*"):
			sp.inside = '*'
			if sp.started == 0 && strings.HasPrefix(line[i:], "/*!") {
				sp.started = sp.line // its text is executed
			}
			sp.buf.WriteString("/*")
			i += 2
			continue
		case c == '\'' || c == '"' || c == '`':
			sp.inside = c
		}
		if sp.started == 0 && sp.inside != '*' && strings.IndexByte(" \t\r\n", c) < 0 {
			sp.started = sp.line
		}
		sp.buf.WriteByte(c)
		i++
	}
	return done
}

// finish returns the last statement if the text ended without a delimiter.
func (sp *splitter) finish() []statement {
	defer sp.reset()
	if sp.started == 0 {
		return nil
	}
	return []statement{{text: strings.TrimSpace(sp.buf.String()), line: sp.started}}
}

func (sp *splitter) delim() string {
	if sp.delimiter == "" {
		return ";"
	}
	return sp.delimiter
}

// rowWords begin statements that may give rows; all others are executed for their count of affected rows.
var rowWords = []string{
	"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "CALL", "EXECUTE", "FETCH",
	"CHECK", "CHECKSUM", "ANALYZE", "OPTIMIZE", "REPAIR", "HELP",
}

func givesRows(text string) bool {
	words := leadingWords(text, 1)
	if len(words) == 0 {
		return strings.HasPrefix(skipBlank(text), "(") // a parenthesised SELECT
	}
	if slices.Contains(rowWords, words[0]) {
		return true
	}
	switch words[0] {
	case "INSERT", "REPLACE", "UPDATE", "DELETE":
		return hasWord(text, "RETURNING")
	}
	return false
}

// localInfile returns the file that a LOAD DATA LOCAL INFILE statement names.
func localInfile(text string) (path string, ok bool) {
	words := leadingWords(text, 5)
	i := slices.Index(words, "INFILE")
	if i < 0 || words[0] != "LOAD" || !slices.Contains(words[:i], "LOCAL") {
		return "", false
	}
	rest := text[strings.Index(strings.ToUpper(text), "INFILE")+len("INFILE"):]
	rest = skipBlank(rest)
	if rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return "", false
	}
	var b strings.Builder
	for j := 1; j < len(rest); j++ {
		switch {
		case rest[j] == '\\' && j+1 < len(rest):
			j++
			b.WriteByte(rest[j])
		case rest[j] == rest[0] && j+1 < len(rest) && rest[j+1] == rest[0]:
			j++
			b.WriteByte(rest[j])
		case rest[j] == rest[0]:
			return b.String(), true
		default:
			b.WriteByte(rest[j])
		}
	}
	return "", false
}

// leadingWords returns up to n words, in upper case, from the front of a statement; comments are skipped.
func leadingWords(text string, n int) []string {
	var words []string
	for len(words) < n {
		text = skipBlank(text)
		i := 0
		for i < len(text) && isWordByte(text[i]) {
			i++
		}
		if i == 0 {
			break
		}
		words = append(words, strings.ToUpper(text[:i]))
		text = text[i:]
	}
	return words
}

func isWordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// skipBlank drops leading blanks and comments; of an executable comment only its opening is dropped.
func skipBlank(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		switch {
		case strings.HasPrefix(text, "/*!"):
			text = strings.TrimLeft(text[3:], "0123456789")
		case strings.HasPrefix(text, "/*"):
			i := strings.Index(text, "*/")
			if i < 0 {
				return ""
			}
			text = text[i+2:]
		default:
			return text
		}
	}
}

// hasWord says whether the word stands in the statement outside of quotes and comments.
func hasWord(text, word string) bool {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`':
			i++
			for i < len(text) && text[i] != c {
				if text[i] == '\\' && c != '`' {
					i++
				}
				i++
			}
			i++
		case strings.HasPrefix(text[i:], "/*"):
			j := strings.Index(text[i:], "*/")
			if j < 0 {
				return false
			}
			i += j + 2
		case isWordByte(c):
			j := i
			for j < len(text) && isWordByte(text[j]) {
				j++
			}
			if strings.EqualFold(text[i:j], word) {
				return true
			}
			i = j
		default:
			i++
		}
	}
	return false
}
