package dialect

import (
	"slices"
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// keyType is the MySQL type of a Spark string that is part of a key: keys need a length.
const keyType = "varchar(512)"

// sparkTypes maps Spark's types to MySQL's. Those that are the same in both are not here.
var sparkTypes = map[string]string{
	"STRING": "longtext", "LONG": "bigint", "SHORT": "smallint", "BYTE": "tinyint", "BINARY": "longblob",
	"BOOLEAN": "boolean", "TIMESTAMP": "timestamp(6)", "TIMESTAMP_LTZ": "timestamp(6)", "TIMESTAMP_NTZ": "datetime(6)",
	"FLOAT": "float", "REAL": "float", "DEC": "decimal", "VOID": "",
}

var nested = words("ARRAY MAP STRUCT")

// constraintStart are the words that begin an entry of a table's definition that is no column.
var constraintStart = words("PRIMARY KEY INDEX UNIQUE CONSTRAINT FOREIGN CHECK FULLTEXT SPATIAL LIKE")

// createHudi makes CREATE TABLE … USING hudi one of MySQL's.
func (m *mender) createHudi(t *tableParts) (ast.Statement, error) {
	var o Options
	for _, p := range t.properties {
		if strings.EqualFold(p.key, "comment") {
			if !t.hasComment {
				t.comment, t.hasComment = p.value, true
			}
			continue
		}
		if err := o.setText(p.key, p.value); err != nil {
			return nil, err
		}
	}
	if t.partition != nil {
		if o.Partition != nil && !sameNames(o.Partition, t.partition) {
			return nil, errTwice("partition")
		}
		o.Partition = t.partition
	}
	c := Carrier{Options: o, Location: t.location}
	if !t.like.empty() {
		stmt, err := m.parse(t.head + " LIKE " + m.span(t.like.from, t.like.to))
		return carried(stmt, err, c)
	}
	if t.columns.empty() && t.query.empty() {
		if t.location == "" {
			return nil, errNoColumns()
		}
		// Attached: the columns are the table's own. The one here goes away with the carrier.
		c.Attach = true
		stmt, err := m.parse(t.head + " (c int)" + m.restText(t))
		if ddl, ok := stmt.(*ast.DDL); ok && err == nil {
			ddl.TableSpec.Columns = nil
		}
		return carried(stmt, err, c)
	}
	if t.columns.empty() {
		if t.typed != nil {
			return nil, nil // the query says the types
		}
		stmt, err := m.assemble(t, "", o.Key)
		return carried(stmt, err, c)
	}
	definitions, err := m.sparkColumns(t, &o)
	if err != nil || definitions == "" {
		return nil, err
	}
	c.Options = o
	stmt, err := m.assemble(t, definitions, nil)
	return carried(stmt, err, c)
}

// entries cuts a list in brackets at its outer commas.
func (m *mender) entries(list span) []span {
	var es []span
	from, depth := list.from+1, 0
	for i := from; i < list.to; i++ {
		switch {
		case m.is(i, "("), m.is(i, "<"):
			depth++
		case m.is(i, ">"):
			depth--
		case m.is(i, ">>"):
			depth -= 2
		case m.is(i, ")") && i < list.to-1:
			depth--
		case i == list.to-1 || depth == 0 && m.is(i, ","):
			es = append(es, span{from, i})
			from = i + 1
		}
	}
	return es
}

// sparkColumns writes the columns with MySQL's types, the typed ones of PARTITIONED BY behind them
// and the PRIMARY KEY of the options. "" says that the list makes no sense.
func (m *mender) sparkColumns(t *tableParts, o *Options) (string, error) {
	es := m.entries(t.columns)
	primary := m.primaryColumns(es)
	if primary != nil && o.Key != nil && !sameNames(primary, o.Key) {
		return "", errKey(o.Key, primary)
	}
	short := slices.Concat(primary, o.Key, o.Partition)
	inKey := func(column string) bool {
		return slices.ContainsFunc(short, func(k string) bool { return strings.EqualFold(k, column) })
	}
	var out, names []string
	for _, e := range es {
		if e.empty() {
			return "", nil
		}
		if has(constraintStart, m.ts[e.from], m.text) {
			out = append(out, m.span(e.from, e.to))
			continue
		}
		n := name(m.ts[e.from], m.text)
		names = append(names, n)
		d, err := m.sparkColumn(e, n, inKey(n))
		if err != nil || d == "" {
			return "", err
		}
		out = append(out, d)
	}
	for _, d := range t.typed {
		sub := mender{text: d}
		sub.ts = tokens(d, m.ansi)
		n := name(sub.ts[0], d)
		col, err := sub.sparkColumn(span{0, sub.last()}, n, true)
		if err != nil || col == "" {
			return "", err
		}
		names = append(names, n)
		out = append(out, col)
	}
	for _, k := range slices.Concat(o.Key, o.Partition, o.Ordering) {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, k) }) {
			return "", errKeyColumn(k)
		}
	}
	if primary == nil && o.Key != nil {
		out = append(out, primaryKey(o.Key))
	}
	return "(" + strings.Join(out, ", ") + ")", nil
}

// primaryColumns gives the columns of a PRIMARY KEY in a list of definitions, nil without one.
func (m *mender) primaryColumns(es []span) []string {
	for _, e := range es {
		for i := e.from; i < e.to; i++ {
			if !m.is(i, "PRIMARY") || !m.is(i+1, "KEY") {
				continue
			}
			if i > e.from && !m.is(e.from, "CONSTRAINT") {
				return []string{name(m.ts[e.from], m.text)}
			}
			for i += 2; i < e.to && !m.is(i, "("); i++ {
			}
			var cols []string
			for i++; i < e.to && !m.is(i, ")"); i++ {
				if m.isName(i) && (m.is(i-1, "(") || m.is(i-1, ",")) {
					cols = append(cols, name(m.ts[i], m.text))
				}
			}
			return cols
		}
	}
	return nil
}

// sparkColumn writes one column with MySQL's type.
func (m *mender) sparkColumn(e span, column string, key bool) (string, error) {
	if e.to-e.from < 2 || m.kind(e.from+1) != Word || !m.isName(e.from) {
		return "", nil
	}
	t := m.upper(e.from + 1)
	if nested[t] {
		return "", errUnsupported("column %s of type %s", column, strings.ToLower(t))
	}
	mysql, known := sparkTypes[t]
	if known && mysql == "" {
		return "", errUnsupported("column %s of type %s", column, strings.ToLower(t))
	}
	rest := e.from + 2
	if known && m.is(rest, "(") && t != "DEC" {
		mysql = t // a length: MySQL's own type of that name
	}
	switch {
	case !known:
		mysql = m.ts[e.from+1].Text(m.text)
	case t == "STRING" && key:
		mysql = keyType
	}
	d := quoteName(column) + " " + mysql
	if m.is(rest, "(") {
		d += m.span(rest, rest+1) // no blank between a type and its length
		rest++
	}
	if rest < e.to {
		d += " " + m.span(rest, e.to)
	}
	return d, nil
}
