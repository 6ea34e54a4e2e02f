package dialect

import (
	"context"
	"encoding/base64"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// The wire layer parses the text of a COM_STMT_PREPARE itself, with the engine's grammar, before
// any hook. A statement that needs this package gets through inside one that the grammar knows:
//
//	SELECT __lakesql_stmt('<base64>', ?, ?)
//
// with as many parameters as the statement has. The parser takes the statement out again.
const (
	escapeHead = "SELECT __lakesql_stmt('"
	escapeTail = "')"
)

// maxParams is how many parameters a prepared statement can have on the wire.
const maxParams = 65535

// escape wraps a statement.
func escape(query string, params int) string {
	var b strings.Builder
	b.Grow(len(escapeHead) + base64.StdEncoding.EncodedLen(len(query)) + len(escapeTail) + 3*params)
	b.WriteString(escapeHead)
	b.WriteString(base64.StdEncoding.EncodeToString([]byte(query)))
	b.WriteByte('\'')
	for range params {
		b.WriteString(", ?")
	}
	b.WriteByte(')')
	return b.String()
}

// Unescape gives the statement inside an escape. ok is false for any other text. Process lists and
// logs show what it gives.
func Unescape(query string) (inner string, ok bool) {
	rest, ok := strings.CutPrefix(query, escapeHead)
	if !ok {
		return "", false
	}
	end := strings.IndexByte(rest, '\'')
	if end < 0 {
		return "", false
	}
	for _, c := range strings.TrimSuffix(rest[end+1:], ")") {
		if c != ',' && c != ' ' && c != '?' {
			return "", false
		}
	}
	b, err := base64.StdEncoding.DecodeString(rest[:end])
	if err != nil || strings.HasPrefix(string(b), escapeHead) {
		return "", false
	}
	return string(b), true
}

// EscapePrepare gives the text to prepare in place of query, so that the wire layer's own parse
// succeeds and counts the parameters right. ok is false when the text can stay as it is. Statements
// that nobody can parse are escaped too: then the parser words the error.
func EscapePrepare(query string) (text string, ok bool) {
	s := scan(query, false)
	if !blank(s.text[s.next:]) || s.params > maxParams {
		return "", false // several statements: the wire layer refuses them by name
	}
	stmt, err := ast.ParseWithOptions(context.Background(), s.text, ast.ParserOptions{})
	switch {
	case err == nil && wireParams(stmt) == s.params:
		return s.text, s.text != query
	case err == ast.ErrEmpty:
		return "", false
	}
	return escape(query, s.params), true
}

// wireParams counts parameters as the wire layer does: it also takes texts that begin with ":v",
// and does not see those in every kind of statement.
func wireParams(stmt ast.Statement) int {
	n := 0
	_ = ast.Walk(func(x ast.SQLNode) (bool, error) { // the visitor returns no error
		if v, ok := x.(*ast.SQLVal); ok && v != nil && strings.HasPrefix(string(v.Val), ":v") {
			n++
		}
		return true, nil
	}, stmt)
	return n
}
