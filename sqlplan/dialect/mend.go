package dialect

import (
	"context"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// mender works on one statement that the engine's grammar refused.
type mender struct {
	p       *Parser
	ctx     context.Context
	text    string
	ts      []Token
	ansi    bool
	options ast.ParserOptions
	params  int
}

// is compares a token with a keyword or operator in upper case; beyond the end it is false.
func (m *mender) is(i int, word string) bool {
	return i >= 0 && i < len(m.ts) && m.ts[i].Is(m.text, word)
}

func (m *mender) isName(i int) bool {
	return i >= 0 && i < len(m.ts) && (m.ts[i].Kind == Word || m.ts[i].Kind == Quoted)
}

func (m *mender) kind(i int) Kind {
	if i < 0 || i >= len(m.ts) {
		return EOF
	}
	return m.ts[i].Kind
}

func (m *mender) upper(i int) string {
	if m.kind(i) != Word {
		return ""
	}
	return strings.ToUpper(m.ts[i].Text(m.text))
}

// last is the index of the end token.
func (m *mender) last() int { return len(m.ts) - 1 }

// from gives the text from token i on.
func (m *mender) from(i int) string { return m.text[m.ts[i].Pos:] }

// span gives the text of the tokens from i up to, not including, j.
func (m *mender) span(i, j int) string {
	if i >= j {
		return ""
	}
	return m.text[m.ts[i].Pos:m.ts[j-1].End]
}

// closing gives the index of the bracket that closes the one at i, or -1.
func (m *mender) closing(i int) int {
	depth := 0
	for ; i < len(m.ts); i++ {
		switch {
		case m.is(i, "("):
			depth++
		case m.is(i, ")"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// qualified gives the index behind the name, with its database, that starts at i, or -1.
func (m *mender) qualified(i int) int {
	if !m.isName(i) {
		return -1
	}
	if m.is(i+1, ".") && m.isName(i+2) {
		return i + 3
	}
	return i + 1
}

// parse gives a text to the engine's grammar. Its errors are in terms of that text.
func (m *mender) parse(text string) (ast.Statement, error) {
	stmt, err := ast.ParseWithOptions(m.ctx, text, m.options)
	if err != nil && !m.p.EngineErrors {
		err = grammarError(err, text, m.ansi)
	}
	return stmt, err
}

// try is parse for a text of which it is not sure that it is any better: nil, nil if it is not.
func (m *mender) try(text string) (ast.Statement, error) {
	stmt, err := ast.ParseWithOptions(m.ctx, text, m.options)
	if err != nil {
		return nil, nil
	}
	return stmt, nil
}

// numbered replaces ? by the parameters' numbers, so that parts can be moved or repeated.
func (m *mender) numbered() {
	if m.params == 0 {
		return
	}
	m.text = numberParams(m.text, m.ansi)
	m.ts = tokens(m.text, m.ansi)
}

// mend gives the statement, or nil, nil when it knows nothing better.
func (m *mender) mend() (ast.Statement, error) {
	if m.kind(m.last()) == Incomplete {
		return nil, nil
	}
	if stmt := m.quoteNames(); stmt != nil {
		return stmt, nil
	}
	if stmt := m.plainYears(); stmt != nil {
		return stmt, nil
	}
	switch m.upper(0) {
	case "CREATE":
		return m.create()
	case "ALTER":
		return m.alter()
	case "CALL":
		return m.call()
	case "EXPLAIN", "DESCRIBE", "DESC":
		return m.explain()
	case "DO":
		return m.do()
	case "SHOW":
		return m.show()
	case "UNDROP":
		return m.undrop()
	case "CHECK", "CHECKSUM", "OPTIMIZE", "REPAIR":
		return m.maintain()
	case "ANALYZE":
		if m.is(1, "LOCAL") || m.is(1, "NO_WRITE_TO_BINLOG") {
			return m.try(m.span(0, 1) + " " + m.from(2))
		}
	case "LOCK":
		return m.lockTables()
	case "UNLOCK":
		if m.is(1, "TABLE") {
			return m.try("UNLOCK TABLES")
		}
	case "FLUSH":
		return m.flush()
	case "DROP":
		if m.is(1, "TABLES") {
			return m.try("DROP TABLE " + m.from(2))
		}
		return m.try(m.withoutAlgorithm())
	case "START":
		if m.is(1, "TRANSACTION") {
			return m.try(m.withoutSnapshot())
		}
	case "XA":
		return nil, errUnsupported("XA")
	case "HANDLER", "HELP", "PURGE", "INSTALL", "UNINSTALL", "RESTART", "SHUTDOWN", "CLONE", "BINLOG", "IMPORT", "CACHE":
		return nil, errUnsupported("%s", m.upper(0))
	case "CHANGE", "RESET", "STOP":
		return nil, errUnsupported("%s", strings.TrimSpace(m.upper(0)+" "+m.upper(1)))
	case "LOAD":
		if m.is(1, "XML") || m.is(1, "INDEX") {
			return nil, errUnsupported("LOAD %s", m.upper(1))
		}
		return m.query()
	case "SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "":
		return m.query()
	}
	return nil, nil
}

// plainWords are names to MySQL and reserved in the engine's grammar, where they say how ALTER TABLE locks.
var plainWords = words("SHARED EXCLUSIVE")

// quoteNames puts names with letters beyond ASCII, or with a dollar sign, and those that only the engine's grammar reserves in back
// quotes: MySQL takes them without. It gives the statement if that was all.
func (m *mender) quoteNames() ast.Statement {
	var b strings.Builder
	done := 0
	for i, t := range m.ts {
		plain := has(plainWords, t, m.text) && !m.is(i-1, "LOCK") && !(m.is(i-1, "=") && m.is(i-2, "LOCK"))
		if plain || t.Kind == Word && strings.ContainsFunc(t.Text(m.text), func(r rune) bool { return r >= 0x80 || r == '$' }) {
			b.WriteString(m.text[done:t.Pos] + quoteName(t.Text(m.text)))
			done = t.End
		}
	}
	if done == 0 {
		return nil
	}
	b.WriteString(m.text[done:])
	m.text = b.String()
	m.ts = tokens(m.text, m.ansi)
	stmt, err := ast.ParseWithOptions(m.ctx, m.text, m.options)
	if err != nil {
		return nil
	}
	return stmt
}

// plainYears takes the width from YEAR(4), as MariaDB's dumps write the type. It gives the statement if that was all.
func (m *mender) plainYears() ast.Statement {
	if !m.is(0, "CREATE") && !m.is(0, "ALTER") {
		return nil
	}
	b := blanks{text: m.text}
	for i := range m.ts {
		if m.is(i, "YEAR") && m.is(i+1, "(") && m.kind(i+2) == Number && m.ts[i+2].Text(m.text) == "4" && m.is(i+3, ")") {
			b.blank(m.ts[i+1].Pos, m.ts[i+3].End)
		}
	}
	if b.buf == nil {
		return nil
	}
	m.text = b.String()
	m.ts = tokens(m.text, m.ansi)
	stmt, err := ast.ParseWithOptions(m.ctx, m.text, m.options)
	if err != nil {
		return nil
	}
	return stmt
}

// modifiers are words about how urgent or large a statement is. They change no result.
var modifiers = words("HIGH_PRIORITY LOW_PRIORITY DELAYED QUICK CONCURRENT SQL_SMALL_RESULT SQL_BIG_RESULT SQL_BUFFER_RESULT SQL_CACHE")

// query mends SELECT and the statements that change rows.
func (m *mender) query() (ast.Statement, error) {
	b := blanks{text: m.text}
	for i := 1; i < 6 && i < len(m.ts); i++ {
		if has(modifiers, m.ts[i], m.text) {
			b.blank(m.ts[i].Pos, m.ts[i].End)
		}
	}
	if m.is(0, "(") && m.closing(0) == m.last()-1 {
		b.blank(m.ts[0].Pos, m.ts[0].End)
		b.blank(m.ts[m.last()-1].Pos, m.ts[m.last()-1].End)
	}
	if b.buf != nil {
		if stmt, err := m.try(b.String()); stmt != nil || err != nil {
			return stmt, err
		}
		m.text = b.String()
		m.ts = tokens(m.text, m.ansi)
	}
	if text, ok := m.lockingClauses(); ok {
		if stmt, err := m.try(text); stmt != nil || err != nil {
			return stmt, err
		}
	}
	return m.rollup()
}

func (m *mender) create() (ast.Statement, error) {
	i := 1
	if m.is(i, "TEMPORARY") {
		i++
	}
	if m.is(i, "TABLE") {
		return m.createTable(i + 1)
	}
	for j := 1; j < 12 && j < len(m.ts); j++ {
		switch {
		case m.is(j, "INDEX"):
			return m.try(m.withoutAlgorithm())
		case m.is(j, "VIEW"):
			return m.createView(j + 1)
		}
	}
	if m.is(1, "SERVER") || m.is(1, "TABLESPACE") || m.is(1, "LOGFILE") || m.is(1, "RESOURCE") {
		return nil, errUnsupported("CREATE %s", m.upper(1))
	}
	return nil, nil
}

// createView takes away brackets around the whole query but the ones the grammar takes.
func (m *mender) createView(i int) (ast.Statement, error) {
	for ; i < len(m.ts) && !m.is(i, "AS"); i++ {
	}
	b := blanks{text: m.text}
	for j := i + 1; m.is(j, "("); j++ {
		end := m.closing(j)
		if end < 0 {
			return nil, nil
		}
		if rest := m.ts[end+1:]; len(rest) > 0 && rest[0].Kind != EOF && rest[0].Kind != Semicolon && !(m.is(end+1, ")") || m.is(end+1, "WITH")) {
			break
		}
		b.blank(m.ts[j].Pos, m.ts[j].End)
		b.blank(m.ts[end].Pos, m.ts[end].End)
	}
	return m.try(b.String())
}

// withoutAlgorithm takes ALGORITHM= and LOCK= from the end of CREATE or DROP INDEX.
func (m *mender) withoutAlgorithm() string {
	b := blanks{text: m.text}
	depth := 0
	for i := range m.ts {
		switch {
		case m.is(i, "("):
			depth++
		case m.is(i, ")"):
			depth--
		case depth == 0 && i > 3 && (m.is(i, "ALGORITHM") || m.is(i, "LOCK")):
			j := i + 1
			if m.is(j, "=") {
				j++
			}
			if m.kind(j) == Word {
				b.blank(m.ts[i].Pos, m.ts[j].End)
			}
		}
	}
	return b.String()
}

// withoutSnapshot takes WITH CONSISTENT SNAPSHOT from a list of characteristics: every transaction
// reads one snapshot.
func (m *mender) withoutSnapshot() string {
	b := blanks{text: m.text}
	for i := range m.ts {
		if m.is(i, "WITH") && m.is(i+1, "CONSISTENT") && m.is(i+2, "SNAPSHOT") {
			end := i + 2
			if m.is(i+3, ",") {
				end++
			} else if m.is(i-1, ",") {
				i--
			}
			b.blank(m.ts[i].Pos, m.ts[end].End)
			break
		}
	}
	return b.String()
}

func (m *mender) flush() (ast.Statement, error) {
	i := 1
	if m.is(i, "LOCAL") || m.is(i, "NO_WRITE_TO_BINLOG") {
		i++
	}
	if m.is(i, "TABLE") || m.is(i, "TABLES") {
		end := m.last()
		for j := i + 1; j < m.last(); j++ {
			if m.is(j, "FOR") && m.is(j+1, "EXPORT") {
				end = j
				break
			}
		}
		return m.try("FLUSH TABLES " + m.span(i+1, end))
	}
	return nil, nil
}

// explain mends EXPLAIN and what stands in it.
func (m *mender) explain() (ast.Statement, error) {
	i, analyze, format := 1, false, ""
	for {
		switch {
		case m.is(i, "EXTENDED"), m.is(i, "PARTITIONS"):
			i++
			continue
		case m.is(i, "ANALYZE"):
			analyze = true
			i++
			continue
		case m.is(i, "FORMAT") && m.is(i+1, "="):
			format = strings.ToLower(strings.Trim(m.ts[min(i+2, m.last())].Text(m.text), `'"`))
			i += 3
			continue
		case m.is(i, "FOR") && m.is(i+1, "CONNECTION"):
			return nil, errUnsupported("EXPLAIN FOR CONNECTION")
		}
		break
	}
	if i >= m.last() || i == 1 && !explainable[m.upper(i)] {
		return nil, nil
	}
	stmt, err := m.p.whole(m.ctx, m.from(i), m.options)
	if err != nil {
		return nil, err
	}
	switch stmt.(type) {
	case ast.SelectStatement, *ast.Insert, *ast.Update, *ast.Delete:
	default:
		return nil, nil
	}
	e := &ast.Explain{Statement: stmt, Analyze: analyze}
	switch format {
	case "json":
		e.ExplainFormat = explainJSON
	case "tree":
		e.ExplainFormat = ast.TreeStr
	case "", "traditional":
	default:
		return nil, errUnsupported("EXPLAIN FORMAT=%s", format)
	}
	if analyze && e.ExplainFormat == "" {
		e.ExplainFormat = ast.TreeStr
	}
	return e, nil
}

var explainable = map[string]bool{"SELECT": true, "INSERT": true, "REPLACE": true, "UPDATE": true, "DELETE": true, "WITH": true, "TABLE": true, "": true}

// do runs expressions for their effects: an assignment answers OK, as DO does.
func (m *mender) do() (ast.Statement, error) {
	var b strings.Builder
	b.WriteString("SET ")
	start, depth := 1, 0
	for i := 1; i < len(m.ts); i++ {
		end := m.kind(i) == EOF || m.kind(i) == Semicolon
		switch {
		case m.is(i, "("):
			depth++
		case m.is(i, ")"):
			depth--
		}
		if end || depth == 0 && m.is(i, ",") {
			if start == i {
				return nil, nil
			}
			if start > 1 {
				b.WriteString(", ")
			}
			b.WriteString("@__lakesql_do = (")
			b.WriteString(m.span(start, i))
			b.WriteByte(')')
			start = i + 1
		}
		if end {
			break
		}
	}
	return m.try(b.String())
}
