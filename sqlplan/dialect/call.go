package dialect

import (
	"strings"

	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// namedMark begins an argument that carries its name; no text of a client begins so by accident.
const namedMark = "\x01"

// argument encodes a named argument of CALL as one text.
func argument(name, value string) string { return namedMark + name + "=>" + value }

// Argument gives an argument of CALL as its procedure gets it: name "" for a positional one.
func Argument(arg string) (name, value string) {
	if rest, ok := strings.CutPrefix(arg, namedMark); ok {
		if name, value, ok = strings.Cut(rest, "=>"); ok {
			return name, value
		}
	}
	return "", arg
}

// Parameter is one that a procedure takes. Names compare without regard to case.
type Parameter struct {
	Name     string
	Required bool
	Default  string
}

// Arguments gives the values of a procedure's parameters: positional arguments first and in their
// order, then named ones. A parameter that is not given, or is NULL, is absent unless it has a
// default. Keys are the parameters' names as declared. The error is a *mysql.SQLError.
func Arguments(procedure string, parameters []Parameter, args []string) (map[string]string, error) {
	got := make(map[string]string, len(parameters))
	named := false
	for i, a := range args {
		n, v := Argument(a)
		switch {
		case n == "" && named:
			return nil, errArgument("positional argument behind a named one in the call of %s", procedure)
		case n == "":
			if i >= len(parameters) {
				return nil, errArgument("Incorrect number of arguments for PROCEDURE %s; expected at most %d, got %d", procedure, len(parameters), len(args))
			}
			got[parameters[i].Name] = v
			continue
		}
		named = true
		known := ""
		for _, p := range parameters {
			if strings.EqualFold(p.Name, n) {
				known = p.Name
			}
		}
		if known == "" {
			return nil, errArgument("PROCEDURE %s has no parameter '%s'", procedure, n)
		}
		if _, twice := got[known]; twice {
			return nil, errArgument("Parameter '%s' of PROCEDURE %s is given twice", known, procedure)
		}
		got[known] = v
	}
	for _, p := range parameters {
		if _, ok := got[p.Name]; ok {
			continue
		}
		if p.Default != "" {
			got[p.Name] = p.Default
		} else if p.Required {
			return nil, errArgument("Parameter '%s' of PROCEDURE %s is missing", p.Name, procedure)
		}
	}
	return got, nil
}

func errArgument(format string, args ...any) error {
	return mysql.NewSQLError(codeBadArguments, "42000", format, args...)
}

// SplitName reads a table's name as it is written in SQL: t, d.t, `d`.`t`. Database "" is the
// session's. ok is false for anything else.
func SplitName(text string) (database, table string, ok bool) {
	m := mender{text: text}
	m.ts = tokens(text, false)
	end := m.qualified(0)
	if end != m.last() || m.kind(end) != EOF {
		return "", "", false
	}
	table = name(m.ts[end-1], text)
	if end == 3 {
		database = name(m.ts[0], text)
	}
	return database, table, true
}

// call rewrites CALL p(name => value, …): each named argument becomes one text. Spark's catalogue
// "system" before the name is left out.
func (m *mender) call() (ast.Statement, error) {
	i := 1
	head := "CALL "
	if m.is(i, "SYSTEM") && m.is(i+1, ".") {
		i += 2
	}
	end := m.qualified(i)
	if end < 0 {
		return nil, nil
	}
	head += m.span(i, end)
	if !m.is(end, "(") {
		return m.try(head + " " + m.span(end, m.last()))
	}
	closing := m.closing(end)
	if closing < 0 {
		return nil, nil
	}
	m.numbered()
	var args []string
	start, depth := end+1, 0
	for j := end + 1; j <= closing; j++ {
		switch {
		case m.is(j, "("):
			depth++
			continue
		case m.is(j, ")") && j < closing:
			depth--
			continue
		case j < closing && !(depth == 0 && m.is(j, ",")):
			continue
		}
		if start == j {
			if j == closing && len(args) == 0 {
				break
			}
			return nil, nil
		}
		if !m.isName(start) || !m.is(start+1, "=>") {
			args = append(args, m.span(start, j))
		} else if a, ok := m.namedArgument(start, j); ok {
			args = append(args, a)
		}
		start = j + 1
	}
	return m.parse(head + "(" + strings.Join(args, ", ") + ")" + strings.TrimSuffix(m.text[m.ts[closing].End:], ";"))
}

// namedArgument makes name => value one expression. ok is false for NULL: the parameter is not given.
func (m *mender) namedArgument(start, end int) (string, bool) {
	n := name(m.ts[start], m.text)
	value := m.span(start+2, end)
	if end-start == 3 {
		v := m.ts[start+2]
		switch {
		case v.Is(m.text, "NULL"):
			return "", false
		case v.Is(m.text, "TRUE"), v.Is(m.text, "FALSE"):
			return quoteString(argument(n, strings.ToLower(value))), true
		case v.Kind == String:
			return quoteString(argument(n, unquote(value))), true
		case v.Kind == Number:
			return quoteString(argument(n, value)), true
		}
	}
	return "CONCAT(" + quoteString(argument(n, "")) + ", " + value + ")", true
}
