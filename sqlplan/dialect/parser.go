package dialect

import (
	"context"
	"errors"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// Parser is lakesql's SQL parser: this package in front of the engine's grammar. Its zero value is
// ready; it holds no state and may be used by many goroutines.
type Parser struct {
	// TableColumns names the columns of a table in their order, or says that it does not know it.
	// Only INSERT … SELECT … ON DUPLICATE KEY UPDATE … VALUES() without a list of columns asks.
	// Database "" is the session's. nil: that statement stays as it is.
	TableColumns func(ctx context.Context, database, table string) ([]string, bool)

	// EngineErrors leaves syntax errors as the engine's grammar words them; else they are MySQL's
	// 1064 with the text near the error. The engine's own test suite compares its own wording.
	EngineErrors bool
}

var _ sql.Parser = (*Parser)(nil)

// ParseSimple implements sql.Parser.
func (p *Parser) ParseSimple(query string) (ast.Statement, error) {
	return p.whole(context.Background(), sql.RemoveSpaceAndDelimiter(query, ';'), ast.ParserOptions{})
}

// Parse implements sql.Parser.
func (p *Parser) Parse(ctx *sql.Context, query string, multi bool) (ast.Statement, string, string, error) {
	return p.ParseWithOptions(ctx, query, ';', multi, sql.LoadSqlMode(ctx).ParserOptions())
}

// ParseWithOptions implements sql.Parser. The parsed text it returns is the statement with its
// executable comments opened, so that views and triggers keep text without comment marks.
//
// An error of this package comes as a statement that fails with it: the engine would keep only the
// text of an error of the parser and send it as 1105.
func (p *Parser) ParseWithOptions(ctx context.Context, query string, delimiter rune, multi bool, options ast.ParserOptions) (ast.Statement, string, string, error) {
	q := sql.RemoveSpaceAndDelimiter(query, delimiter)
	s := scan(q, options.AnsiQuotes)
	// Views and triggers cut their text out of the one returned, which has no blanks in front.
	front := len(s.text) - len(strings.TrimLeft(s.text, " \n"))
	if front > 0 {
		s = scan(s.text[front:], options.AnsiQuotes)
	}
	stmt, err := p.parse(ctx, &s, multi, options)
	var own *mysql.SQLError
	switch {
	case errors.As(err, &own):
		return ast.InjectedStatement{Statement: failing{own}, Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}, s.text, "", nil
	case !multi, s.next == 0, s.next >= len(s.text):
		return stmt, bounded(stmt, sql.RemoveSpaceAndDelimiter(s.text, delimiter)), "", err
	}
	return stmt, bounded(stmt, sql.RemoveSpaceAndDelimiter(s.text[:s.next], delimiter)), q[front+s.next-s.grown:], err
}

// bounded ends the part of a text that a view or a stored program is cut out of where the text ends: it may have reached
// into the blanks that a closed executable comment leaves.
func bounded(stmt ast.Statement, text string) string {
	if d, ok := stmt.(*ast.DDL); ok {
		d.SubStatementPositionEnd = min(d.SubStatementPositionEnd, len(text))
	}
	return text
}

// failing is a statement that cannot be bound.
type failing struct{ err error }

// WithResolvedChildren implements ast.Injectable.
func (f failing) WithResolvedChildren(context.Context, []any) (any, error) { return nil, f.err }

// ParseOneWithOptions implements sql.Parser.
func (p *Parser) ParseOneWithOptions(ctx context.Context, query string, options ast.ParserOptions) (ast.Statement, int, error) {
	s := scan(query, options.AnsiQuotes)
	stmt, err := p.parse(ctx, &s, true, options)
	return stmt, max(0, s.next-s.grown), err
}

// whole parses a text of one statement.
func (p *Parser) whole(ctx context.Context, query string, options ast.ParserOptions) (ast.Statement, error) {
	s := scan(query, options.AnsiQuotes)
	return p.parse(ctx, &s, false, options)
}

// parse parses the statement of s; with first false the rest of its text must be empty. It sets
// next to where the following statement starts, 0 after an error.
func (p *Parser) parse(ctx context.Context, s *scanned, first bool, options ast.ParserOptions) (stmt ast.Statement, err error) {
	if inner, ok := Unescape(s.text); ok {
		i := scan(inner, options.AnsiQuotes)
		if stmt, err = p.parse(ctx, &i, false, options); err == nil {
			err = keepText(stmt, i.text)
		}
		s.next = len(s.text)
		return stmt, err
	}
	stmt, at, err := grammar(ctx, s.text, first, options)
	if err != nil && s.body && s.locking {
		if grown := s.shareMode(); grown > 0 {
			s.grown = grown
			stmt, at, err = grammar(ctx, s.text, first, options)
		}
	}
	if errors.Is(err, ast.ErrEmpty) {
		s.next = at
		return nil, err
	}
	if err != nil {
		stmt, err = p.mend(ctx, s, first, options, err)
	} else if first {
		s.next = at
	}
	if err == nil {
		stmt, err = p.patch(ctx, s, stmt, options)
	}
	if err != nil {
		s.next = 0
		return nil, err
	}
	return stmt, nil
}

// grammar parses with the engine's grammar, with first the first statement of a text alone; end is where that one ends.
func grammar(ctx context.Context, text string, first bool, options ast.ParserOptions) (stmt ast.Statement, end int, err error) {
	if first {
		return ast.ParseOneWithOptions(ctx, text, options)
	}
	stmt, err = ast.ParseWithOptions(ctx, text, options)
	return stmt, len(text), err
}

// mend tries what this package knows on a statement that the grammar refused.
func (p *Parser) mend(ctx context.Context, s *scanned, first bool, options ast.ParserOptions, cause error) (ast.Statement, error) {
	refuse := func() error {
		if p.EngineErrors {
			return cause
		}
		return grammarError(cause, s.text, s.ansi)
	}
	if !s.body && (first || blank(s.text[s.next:])) {
		m := mender{p: p, ctx: ctx, text: s.statement(), ansi: s.ansi, options: options, params: s.params}
		m.ts = tokens(m.text, m.ansi)
		stmt, err := m.mend()
		if err != nil || stmt != nil {
			return stmt, err
		}
	}
	return nil, refuse()
}

// blank says whether a text holds no statement.
func blank(text string) bool {
	l := NewLexer(text, false)
	for {
		switch l.Next().Kind {
		case Comment, Semicolon:
		case EOF:
			return true
		default:
			return false
		}
	}
}

// keepText gives a view its text, because the engine would cut it from the statement the client's
// packet holds, which is the escape around it. Stored programs have no such place.
func keepText(stmt ast.Statement, text string) error {
	d, ok := stmt.(*ast.DDL)
	if !ok {
		return nil
	}
	if d.TriggerSpec != nil || d.ProcedureSpec != nil || d.EventSpec != nil {
		return errUnsupported("preparing CREATE TRIGGER, PROCEDURE or EVENT")
	}
	if d.ViewSpec != nil && d.SubStatementStr == "" {
		d.SubStatementStr = text[d.SubStatementPositionStart:d.SubStatementPositionEnd]
	}
	return nil
}
