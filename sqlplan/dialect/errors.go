package dialect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
	"github.com/dolthub/vitess/go/vt/vterrors"
)

// Codes that the wire package has no names for.
const (
	codeSyntax       = 1064
	codeUnsupported  = 1235
	codeWrongOption  = 1210
	codeUnknown      = 1911 // MariaDB's ER_UNKNOWN_OPTION; MySQL has no table options by name
	codeInvalidJSON  = 3980
	codeBadArguments = 1318
)

func errJSON(err error) error {
	return mysql.NewSQLError(codeInvalidJSON, "HY000", "Invalid JSON in ENGINE_ATTRIBUTE: %s", strings.TrimPrefix(err.Error(), "json: "))
}

func errUnknownOption(name string) error {
	return mysql.NewSQLError(codeUnknown, "HY000", "Unknown option '%s'", name)
}

func errOption(name, value string) error {
	return mysql.NewSQLError(codeWrongOption, "HY000", "Incorrect value '%s' for table option '%s'", value, name)
}

func errTwice(name string) error {
	return mysql.NewSQLError(codeWrongOption, "HY000", "Table option '%s' is given twice with different values", name)
}

func errKey(option, primary []string) error {
	return mysql.NewSQLError(codeWrongOption, "HY000", "Table option 'key' (%s) contradicts the PRIMARY KEY (%s)",
		strings.Join(option, ", "), strings.Join(primary, ", "))
}

func errUnsupported(format string, args ...any) error {
	return mysql.NewSQLError(codeUnsupported, "42000", "This version of lakesql doesn't yet support '%s'", fmt.Sprintf(format, args...))
}

func errNoColumns() error {
	return mysql.NewSQLError(1113, "42000", "A table must have at least 1 column, or the LOCATION of a table to attach")
}

func errPartitionBy() error {
	return mysql.NewSQLError(codeUnsupported, "42000", "This version of lakesql doesn't yet support 'PARTITION BY'; "+
		`partition columns are a table option: ENGINE_ATTRIBUTE='{"partition":["column"]}'`)
}

// nearMax is how many bytes of the text MySQL quotes in a syntax error.
const nearMax = 80

func errSyntax(text string, pos int) error {
	pos = min(max(pos, 0), len(text))
	near := text[pos:]
	if len(near) > nearMax {
		cut := nearMax
		for cut > 0 && near[cut]&0xC0 == 0x80 { // not inside a character
			cut--
		}
		near = near[:cut]
	}
	line := 1 + strings.Count(text[:pos], "\n")
	return mysql.NewSQLError(codeSyntax, "42000", "You have an error in your SQL syntax; check the manual that corresponds to "+
		"your lakesql server version for the right syntax to use near '%s' at line %d", near, line)
}

var grammarPosition = regexp.MustCompile(`at position (\d+)`)

// grammarError makes MySQL's error of one of the engine's grammar; text is what the grammar read.
func grammarError(err error, text string, ansi bool) error {
	var at int
	var se vterrors.SyntaxError
	if errors.As(err, &se) {
		at = se.Position
	} else if m := grammarPosition.FindStringSubmatch(err.Error()); m != nil {
		at, _ = strconv.Atoi(m[1]) // digits only
	} else {
		return mysql.NewSQLError(codeSyntax, "42000", "%s", err)
	}
	// The position is one past the character behind the token. At the end of the text that may be
	// the last token or the end: text behind it moves the position of the end alone.
	end, pos := at-1, len(text)
	if ts := tokens(text, ansi); ts[len(ts)-1].Kind == Incomplete {
		return errSyntax(text, ts[len(ts)-1].Pos)
	}
	if _, again := ast.ParseWithOptions(context.Background(), text+" \x01", ast.ParserOptions{AnsiQuotes: ansi}); again != nil {
		if m := grammarPosition.FindStringSubmatch(again.Error()); m != nil && m[1] != strconv.Itoa(at) {
			return errSyntax(text, len(text))
		}
	}
	l := NewLexer(text, ansi)
	for {
		t := l.Next()
		if t.Kind == EOF {
			break
		}
		if t.Kind == Incomplete || t.Kind != Comment && t.End >= end {
			pos = t.Pos
			break
		}
	}
	return errSyntax(text, pos)
}

var embedded = regexp.MustCompile(`(?s)^(.*) \(errno (\d+)\) \(sqlstate (\w{5})\)`)

// ClientError gives back the error that the parser meant. The engine keeps only the text of a
// parser's error and sends it as 1105: this reads code and SQLSTATE out of the text again. Other
// errors come back as they are.
func ClientError(err error) error {
	if err == nil {
		return nil
	}
	msg := ""
	var se *mysql.SQLError
	switch {
	case errors.As(err, &se):
		if se.Num != mysql.ERUnknownError {
			return err
		}
		msg = se.Message
	case sql.ErrSyntaxError.Is(err):
		msg = err.Error()
	default:
		return err
	}
	if m := embedded.FindStringSubmatch(msg); m != nil {
		n, _ := strconv.Atoi(m[2]) // digits only
		return mysql.NewSQLError(n, m[3], "%s", m[1])
	}
	if sql.ErrSyntaxError.Is(err) {
		return mysql.NewSQLError(codeSyntax, "42000", "You have an error in your SQL syntax; %s", msg)
	}
	return err
}
