package dialect

import (
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// tableParts are the parts of a CREATE TABLE that the grammar refused. Ranges are of token indexes,
// end excluded; an empty range means that the part is not there.
type tableParts struct {
	head    string // CREATE … name
	columns span   // with its brackets
	like    span   // the source table's name
	query   span   // of … AS SELECT, without AS
	rest    []span // MySQL's table options

	hudi       bool
	partition  []string
	typed      []string // partition columns with types, declared only in PARTITIONED BY
	properties []property
	location   string
	comment    string
	hasComment bool
}

type span struct{ from, to int }

func (s span) empty() bool { return s.from >= s.to }

type property struct{ key, value string }

var queryStart = words("SELECT WITH VALUES TABLE")

// createTable mends CREATE TABLE; i is the token behind TABLE.
func (m *mender) createTable(i int) (ast.Statement, error) {
	if m.is(i, "IF") {
		i += 3
	}
	end := m.qualified(i)
	if end < 0 {
		return nil, nil
	}
	t := tableParts{head: m.span(0, end)}
	i = end
	switch {
	case m.is(i, "LIKE"):
		if end = m.qualified(i + 1); end > 0 {
			t.like = span{i + 1, end}
			i = end
		}
	case m.is(i, "("):
		closing := m.closing(i)
		if closing < 0 {
			return nil, nil
		}
		switch {
		case m.is(i+1, "LIKE") && m.qualified(i+2) == closing:
			t.like = span{i + 2, closing}
			i = closing + 1
		case has(queryStart, m.ts[i+1], m.text), m.is(i+1, "("):
		default:
			t.columns = span{i, closing + 1}
			i = closing + 1
		}
	}
	if ok, err := m.tableOptions(&t, i); !ok || err != nil {
		return nil, err
	}
	if t.hudi {
		return m.createHudi(&t)
	}
	return m.createOther(&t)
}

// tableOptions reads what stands between the columns and the query. ok is false when it makes no
// sense here.
func (m *mender) tableOptions(t *tableParts, i int) (ok bool, err error) {
	for i < m.last() {
		switch {
		case m.is(i, "AS"):
			t.query = span{i + 1, m.last()}
			return !t.query.empty(), nil
		case has(queryStart, m.ts[i], m.text) && !m.is(i+1, "SYSTEM"), m.is(i, "("):
			t.query = span{i, m.last()}
			return true, nil
		case m.is(i, "USING") && m.kind(i+1) == Word:
			if !m.is(i+1, "HUDI") {
				return false, errUnsupported("USING %s", m.ts[i+1].Text(m.text))
			}
			t.hudi = true
			i += 2
		case m.is(i, "PARTITION") && m.is(i+1, "BY"):
			return false, errPartitionBy()
		case m.is(i, "PARTITIONED") && m.is(i+1, "BY") && m.is(i+2, "("):
			closing := m.closing(i + 2)
			if closing < 0 || !m.partitionedBy(t, i+3, closing) {
				return false, nil
			}
			i = closing + 1
		case (m.is(i, "TBLPROPERTIES") || m.is(i, "OPTIONS")) && m.is(i+1, "("):
			var props []property
			if props, i = m.propertyList(i + 1); props == nil {
				return false, nil
			}
			t.properties = append(t.properties, props...)
		case m.is(i, "LOCATION") && m.kind(i+1) == String:
			t.location = unquote(m.ts[i+1].Text(m.text))
			i += 2
		case m.is(i, "COMMENT"):
			j := i + 1
			if m.is(j, "=") {
				j++
			}
			if m.kind(j) != String {
				return false, nil
			}
			t.comment, t.hasComment = unquote(m.ts[j].Text(m.text)), true
			i = j + 1
		case m.is(i, ","):
			i++
		default:
			from := i
			for i++; i < m.last(); i++ {
				if m.is(i, "(") {
					if m.is(i+1, "(") || has(queryStart, m.ts[i+1], m.text) {
						break
					}
					if i = m.closing(i); i < 0 {
						return false, nil
					}
					continue
				}
				if m.optionStarts(i) {
					break
				}
			}
			t.rest = append(t.rest, span{from, i})
		}
	}
	return true, nil
}

var ownOptions = words("AS USING PARTITION PARTITIONED TBLPROPERTIES OPTIONS LOCATION COMMENT")

// optionStarts says whether one of the options that tableOptions reads itself begins at token i.
func (m *mender) optionStarts(i int) bool {
	return has(ownOptions, m.ts[i], m.text) || has(queryStart, m.ts[i], m.text) && !m.is(i+1, "SYSTEM") || m.is(i, ",")
}

// partitionedBy reads the columns of PARTITIONED BY, with or without types.
func (m *mender) partitionedBy(t *tableParts, from, to int) bool {
	for i := from; i < to; {
		if !m.isName(i) {
			return false
		}
		n := name(m.ts[i], m.text)
		j := i + 1
		for depth := 0; j < to && !(depth == 0 && m.is(j, ",")); j++ {
			if m.is(j, "(") {
				depth++
			} else if m.is(j, ")") {
				depth--
			}
		}
		if m.is(i+1, "(") {
			return false // a transform such as bucket(4, id)
		}
		if j > i+1 {
			t.typed = append(t.typed, m.span(i, j))
		}
		t.partition = append(t.partition, n)
		i = j + 1
	}
	return len(t.partition) > 0
}

// propertyList reads (key = value, …) at the bracket i and gives the index behind it; nil if it
// is none.
func (m *mender) propertyList(i int) ([]property, int) {
	closing := m.closing(i)
	if closing < 0 {
		return nil, i
	}
	props := []property{}
	for i++; i < closing; {
		key := ""
		switch m.kind(i) {
		case String, Quoted:
			key = unquote(m.ts[i].Text(m.text))
			i++
		case Word:
			from := i
			for i++; m.is(i, ".") && m.kind(i+1) == Word; i += 2 {
			}
			key = m.span(from, i)
		default:
			return nil, i
		}
		if m.is(i, "=") {
			i++
		}
		p := property{key: key}
		switch m.kind(i) {
		case String:
			p.value = unquote(m.ts[i].Text(m.text))
		case Number, Word:
			p.value = m.ts[i].Text(m.text)
		default:
			return nil, i
		}
		props = append(props, p)
		if i++; m.is(i, ",") {
			i++
		} else if i != closing {
			return nil, i
		}
	}
	return props, closing + 1
}

// restText is the text of MySQL's options, with a quoted engine name as the grammar takes it.
func (m *mender) restText(t *tableParts) string {
	var b strings.Builder
	for _, r := range t.rest {
		for i := r.from; i < r.to; i++ {
			b.WriteByte(' ')
			if m.kind(i) == String && (m.is(i-1, "ENGINE") || m.is(i-1, "=") && m.is(i-2, "ENGINE")) {
				b.WriteString(quoteName(unquote(m.ts[i].Text(m.text))))
				continue
			}
			b.WriteString(m.ts[i].Text(m.text))
		}
	}
	if t.hasComment {
		b.WriteString(" COMMENT=" + quoteString(t.comment))
	}
	return b.String()
}

// queryText is the query of CREATE TABLE … SELECT in a form that the grammar takes there: without
// brackets around it, and with its WITH inside.
func (m *mender) queryText(t *tableParts) string {
	from, to := t.query.from, t.query.to
	for m.is(from, "(") && m.closing(from) == to-1 {
		from, to = from+1, to-1
	}
	q := m.span(from, to)
	if m.is(from, "WITH") || m.is(from, "VALUES") || m.is(from, "TABLE") {
		return "SELECT * FROM (" + q + ") AS __lakesql_query"
	}
	return q
}

// createOther mends a CREATE TABLE of MySQL's: LIKE in brackets, options before a query without
// columns, brackets and WITH around a query.
func (m *mender) createOther(t *tableParts) (ast.Statement, error) {
	if len(t.properties) > 0 || t.location != "" || t.partition != nil {
		return nil, nil
	}
	if !t.like.empty() {
		return m.try(t.head + " LIKE " + m.span(t.like.from, t.like.to))
	}
	return m.assemble(t, m.span(t.columns.from, t.columns.to), nil)
}

// assemble makes the statement of its parts. definitions is the list of columns in brackets, or "";
// key are the columns of a PRIMARY KEY that the list does not hold.
func (m *mender) assemble(t *tableParts, definitions string, key []string) (ast.Statement, error) {
	rest := m.restText(t)
	if definitions == "" && t.query.empty() {
		return nil, nil
	}
	if definitions != "" {
		text := t.head + " " + definitions + rest
		if !t.query.empty() {
			text += " AS " + m.queryText(t)
		}
		return m.parse(text)
	}
	// Without columns the grammar takes no options: they are read apart.
	stmt, err := m.parse(t.head + " AS " + m.queryText(t))
	if err != nil {
		return nil, err
	}
	ddl, ok := stmt.(*ast.DDL)
	if !ok || rest == "" && key == nil {
		return stmt, nil
	}
	primary := ""
	if key != nil {
		primary = ", " + primaryKey(key)
	}
	opts, err := m.parse("CREATE TABLE t (c int" + primary + ")" + rest)
	if err != nil {
		return nil, err
	}
	ddl.TableSpec = &ast.TableSpec{TableOpts: opts.(*ast.DDL).TableSpec.TableOpts, Indexes: opts.(*ast.DDL).TableSpec.Indexes}
	return ddl, nil
}

func primaryKey(columns []string) string {
	q := make([]string, len(columns))
	for i, c := range columns {
		q[i] = quoteName(c)
	}
	return "PRIMARY KEY (" + strings.Join(q, ", ") + ")"
}

// alter mends Spark's ALTER TABLE t SET TBLPROPERTIES (…) and UNSET TBLPROPERTIES [IF EXISTS] (…).
func (m *mender) alter() (ast.Statement, error) {
	if !m.is(1, "TABLE") {
		return nil, nil
	}
	end := m.qualified(2)
	if end < 0 || !m.is(end+1, "TBLPROPERTIES") {
		return m.alterOther()
	}
	var o Options
	switch i := end + 2; {
	case m.is(end, "SET"):
		props, next := m.propertyList(i)
		if props == nil || next != m.last() {
			return nil, nil
		}
		for _, p := range props {
			if strings.EqualFold(p.key, "comment") {
				return nil, errOption("comment", p.value)
			}
			if err := o.setText(p.key, p.value); err != nil {
				return nil, err
			}
		}
	case m.is(end, "UNSET"):
		if m.is(i, "IF") && m.is(i+1, "EXISTS") {
			i += 2
		}
		closing := m.closing(i)
		if !m.is(i, "(") || closing != m.last()-1 {
			return nil, nil
		}
		for i++; i < closing; i++ {
			from := i
			for i < closing && !m.is(i, ",") {
				i++
			}
			key := m.span(from, i)
			if k := m.kind(from); i == from+1 && (k == String || k == Quoted) {
				key = unquote(key)
			}
			if err := o.set(key, []byte("null")); err != nil {
				return nil, err
			}
		}
	default:
		return nil, nil
	}
	return m.parse("ALTER TABLE " + m.span(2, end) + " COMMENT=" + quoteString(Carrier{Options: o}.encode()))
}

// alterOther takes away clauses of ALTER TABLE that change nothing here: ORDER BY at the end, and
// the quotes around an engine's name.
func (m *mender) alterOther() (ast.Statement, error) {
	b := blanks{text: m.text}
	for i := range m.ts {
		if m.kind(i) == String && (m.is(i-1, "ENGINE") || m.is(i-1, "=") && m.is(i-2, "ENGINE")) {
			b.put(m.ts[i].Pos, m.ts[i].End, "`")
			b.buf[m.ts[i].End-1] = '`'
			copy(b.buf[m.ts[i].Pos+1:], m.text[m.ts[i].Pos+1:m.ts[i].End-1])
		}
	}
	if b.buf == nil {
		return nil, nil
	}
	return m.try(b.String())
}
