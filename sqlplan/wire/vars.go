package wire

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/vt/log"
	"github.com/sirupsen/logrus"
)

// defaultCollation is MySQL's; the front end's own compares bytes.
const defaultCollation = "utf8mb4_0900_ai_ci"

// setVariables gives the process's system variables the values of a lakesql server.
func setVariables(o Options) error {
	files := o.filesDir()
	if files == "" {
		files = "NULL" // as in MySQL: no server-side files; the front end reads "" as all of them
	} else if err := os.MkdirAll(files, 0o750); err != nil {
		return err
	}
	addVariables()
	vars := map[string]any{
		"version":          o.version(),
		"version_comment":  "lakesql",
		"local_infile":     int8(1),
		"secure_file_priv": files,
		"max_connections":  int64(o.MaxConnections),
	}
	if _, now, _ := sql.SystemVariables.GetGlobal("collation_server"); now == sql.Collation_Default.Name() {
		for _, name := range []string{"collation_server", "collation_connection", "collation_database"} {
			vars[name] = defaultCollation
		}
	}
	return sql.SystemVariables.AssignValues(vars)
}

// sessionCounts are variables that clients read after a statement. The front
// end does not know them; they are set when a statement names one.
var sessionCounts = []struct {
	name  string
	value func(*sql.Context) int64
}{
	{"warning_count", func(ctx *sql.Context) int64 { return int64(ctx.WarningCount()) }},
	{"error_count", func(ctx *sql.Context) int64 { return countErrors(ctx) }},
	{"identity", func(ctx *sql.Context) int64 { return ctx.GetLastQueryInfo().LastInsertId.Load() }},
	{"last_insert_id", func(ctx *sql.Context) int64 { return ctx.GetLastQueryInfo().LastInsertId.Load() }},
}

func countErrors(ctx *sql.Context) (n int64) {
	for _, w := range ctx.Warnings() {
		if strings.EqualFold(w.Level, "error") {
			n++
		}
	}
	return n
}

func addVariables() {
	var vars []sql.SystemVariable
	for _, c := range sessionCounts {
		if _, _, known := sql.SystemVariables.GetGlobal(c.name); known {
			continue
		}
		vars = append(vars, &sql.MysqlSystemVariable{
			Name:    c.name,
			Scope:   sql.GetMysqlScope(sql.SystemVariableScope_Session),
			Dynamic: true,
			Type:    types.NewSystemIntType(c.name, 0, math.MaxInt64, false),
			Default: int64(0),
		})
	}
	sql.SystemVariables.AddSystemVariables(vars)
}

// showCounts gives the variables that text reads their values.
func showCounts(ctx *sql.Context, text string) error {
	if !strings.Contains(text, "@@") {
		return nil
	}
	lower := strings.ToLower(text)
	for _, c := range sessionCounts {
		if strings.Contains(lower, c.name) {
			if err := ctx.SetSessionVariable(ctx, c.name, c.value(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

var setNames = regexp.MustCompile("(?i)^\\s*set\\s+names\\s+\\S+\\s+collate\\s+['\"`]?(\\w+)['\"`]?\\s*;?\\s*$")

// namesCollation is the COLLATE of SET NAMES, which the front end reads and
// forgets; "" when text has none.
func namesCollation(text string) (string, error) {
	m := setNames.FindStringSubmatch(text)
	if m == nil || strings.EqualFold(m[1], "default") {
		return "", nil
	}
	if _, err := sql.ParseCollation("", m[1], false); err != nil {
		return "", err
	}
	return strings.ToLower(m[1]), nil
}

// quietFrontEnd sends what the front end and its protocol layer log on their
// own to l at debug level: they report each statement error, which is the
// client's business.
func quietFrontEnd(l *slog.Logger) {
	logrus.SetOutput(logWriter{l})
	logrus.SetLevel(logrus.ErrorLevel)
	f := func(format string, args ...any) { l.Debug("protocol", "event", fmt.Sprintf(format, args...)) }
	p := func(args ...any) { l.Debug("protocol", "event", fmt.Sprint(args...)) }
	log.Infof, log.Warningf, log.Errorf = f, f, f
	log.Info, log.Warning, log.Error = p, p, p
}

type logWriter struct{ l *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.l.Debug("front end", "event", strings.TrimSpace(string(b)))
	return len(b), nil
}
