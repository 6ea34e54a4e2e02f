package dialect

import (
	"strings"

	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// Procedures that the statements about dropped tables and databases are written as, all with texts as arguments.
const (
	UndropTable    = "lakesql_undrop_table"    // database ("": the session's), table, new name ("": as it was)
	UndropDatabase = "lakesql_undrop_database" // database
	ShowDropped    = "lakesql_show_dropped"    // database ("": all)
)

func (m *mender) callText(procedure string, args ...string) (ast.Statement, error) {
	for i := range args {
		args[i] = quoteString(args[i])
	}
	return m.parse("CALL " + procedure + "(" + strings.Join(args, ", ") + ")")
}

// undrop reads UNDROP TABLE [db.]t [AS new] and UNDROP DATABASE d.
func (m *mender) undrop() (ast.Statement, error) {
	switch {
	case (m.is(1, "DATABASE") || m.is(1, "SCHEMA")) && m.isName(2) && m.kind(3) == EOF:
		return m.callText(UndropDatabase, name(m.ts[2], m.text))
	case m.is(1, "TABLE"):
		end := m.qualified(2)
		if end < 0 {
			return nil, nil
		}
		db, as := "", ""
		if end == 5 {
			db = name(m.ts[2], m.text)
		}
		table := name(m.ts[end-1], m.text)
		if m.is(end, "AS") && m.isName(end+1) {
			as, end = name(m.ts[end+1], m.text), end+2
		}
		if m.kind(end) == EOF {
			return m.callText(UndropTable, db, table, as)
		}
	}
	return nil, nil
}

// showDropped reads SHOW DROPPED TABLES [{FROM | IN} db].
func (m *mender) showDropped() (ast.Statement, error) {
	switch {
	case m.kind(3) == EOF:
		return m.callText(ShowDropped, "")
	case (m.is(3, "FROM") || m.is(3, "IN")) && m.isName(4) && m.kind(5) == EOF:
		return m.callText(ShowDropped, name(m.ts[4], m.text))
	}
	return nil, nil
}
