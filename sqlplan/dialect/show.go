package dialect

import (
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// explainJSON is the engine's format for EXPLAIN FORMAT=JSON, which it does not have: all its flags
// at once, which nobody asks for otherwise.
const explainJSON = "tree_debug_estimates"

// IsExplainJSON says whether a plan.DescribeQuery was written as EXPLAIN FORMAT=JSON. The package
// that runs statements answers it with one row, one column EXPLAIN and a JSON object; left alone
// the engine answers with lines of text.
func IsExplainJSON(o sql.DescribeOptions) bool { return o.Plan && o.Debug && o.Estimates }

// emptyShows are statements about what lakesql has none of: an empty result is the right answer.
var emptyShows = []struct {
	words   string
	columns string
}{
	{"MASTER STATUS", "File,Position:int,Binlog_Do_DB,Binlog_Ignore_DB,Executed_Gtid_Set"},
	{"BINARY LOG STATUS", "File,Position:int,Binlog_Do_DB,Binlog_Ignore_DB,Executed_Gtid_Set"},
	{"MASTER LOGS", "Log_name,File_size:int,Encrypted"},
	{"BINARY LOGS", "Log_name,File_size:int,Encrypted"},
	{"BINLOG EVENTS", "Log_name,Pos:int,Event_type,Server_id:int,End_log_pos:int,Info"},
	{"RELAYLOG EVENTS", "Log_name,Pos:int,Event_type,Server_id:int,End_log_pos:int,Info"},
	{"SLAVE HOSTS", "Server_id:int,Host,Port:int,Master_id:int,Slave_UUID"},
	{"REPLICAS", "Server_Id:int,Host,Port:int,Source_Id:int,Replica_UUID"},
	{"PROFILES", "Query_ID:int,Duration,Query"},
	{"PROFILE", "Status,Duration"},
	{"OPEN TABLES", "Database,Table,In_use:int,Name_locked:int"},
	{"ENGINE", "Type,Name,Status"},
	{"AUTHORS", "Name,Location,Comment"},
	{"CONTRIBUTORS", "Name,Location,Comment"},
	{"PROCEDURE CODE", "Pos:int,Instruction"},
	{"FUNCTION CODE", "Pos:int,Instruction"},
}

// showStarts reports whether the words behind SHOW are these.
func (m *mender) showStarts(at int, list string) bool {
	for i, w := range strings.Fields(list) {
		if !m.is(at+i, w) {
			return false
		}
	}
	return true
}

func (m *mender) show() (ast.Statement, error) {
	switch {
	case m.is(1, "FULL") && m.is(2, "TRIGGERS"), m.is(1, "STORAGE") && m.is(2, "ENGINES"), m.is(1, "FULL") && m.is(2, "EVENTS"),
		m.is(1, "EXTENDED"):
		return m.try("SHOW " + m.from(2))
	case m.is(1, "DROPPED") && m.is(2, "TABLES"):
		return m.showDropped()
	}
	return m.showEmpty(), nil
}

// showCount reads SHOW COUNT(*) WARNINGS and SHOW COUNT(*) ERRORS.
func (m *mender) showCount() ast.Statement {
	if !m.is(3, "*") || !m.is(4, ")") {
		return nil
	}
	switch {
	case m.is(5, "WARNINGS"):
		return showCount("@@session.warning_count", "")
	case m.is(5, "ERRORS"):
		return showCount("@@session.error_count", "Error")
	}
	return nil
}

func (m *mender) showEmpty() ast.Statement {
	for _, e := range emptyShows {
		if m.showStarts(1, e.words) {
			return injected(rowsStatement{what: "SHOW " + e.words, columns: strings.Split(e.columns, ",")})
		}
	}
	return nil
}

// maintained maps a statement about tables to the procedure that runs it.
var maintained = map[string]string{
	"CHECK": "lakesql_check_table", "CHECKSUM": "lakesql_checksum_table",
	"OPTIMIZE": "lakesql_optimize_table", "REPAIR": "lakesql_repair_table",
}

// maintain turns CHECK, CHECKSUM, OPTIMIZE and REPAIR TABLE into calls: each table is an argument,
// written as in the statement (SplitName reads it), the options behind them the argument "options".
func (m *mender) maintain() (ast.Statement, error) {
	i := 1
	if m.is(i, "LOCAL") || m.is(i, "NO_WRITE_TO_BINLOG") {
		i++
	}
	if !m.is(i, "TABLE") && !m.is(i, "TABLES") {
		return nil, nil
	}
	i++
	var args []string
	for {
		end := m.qualified(i)
		if end < 0 {
			return nil, nil
		}
		args = append(args, quoteString(m.span(i, end)))
		i = end
		if !m.is(i, ",") {
			break
		}
		i++
	}
	if rest := strings.ToUpper(strings.Join(strings.Fields(m.span(i, m.last())), " ")); rest != "" {
		for j := i; j < m.last(); j++ {
			if m.kind(j) != Word {
				return nil, nil
			}
		}
		args = append(args, quoteString(argument("options", rest)))
	}
	return m.parse("CALL " + maintained[m.upper(0)] + "(" + strings.Join(args, ", ") + ")")
}
