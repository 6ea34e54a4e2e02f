package wire

import (
	"log/slog"
	"os"

	"github.com/dolthub/go-mysql-server/sql"
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
	return sql.SystemVariables.AssignValues(map[string]any{
		"version":              o.version(),
		"version_comment":      "lakesql",
		"local_infile":         int8(1),
		"secure_file_priv":     files,
		"max_connections":      int64(o.MaxConnections),
		"character_set_server": "utf8mb4",
		"collation_server":     defaultCollation,
		"collation_connection": defaultCollation,
		"collation_database":   defaultCollation,
	})
}

// quietFrontEnd sends what the front end and its protocol layer log on their
// own to l at debug level: they report each statement error, which is the
// client's business.
func quietFrontEnd(l *slog.Logger) {
	logrus.SetOutput(logWriter{l})
	logrus.SetLevel(logrus.ErrorLevel)
	f := func(format string, args ...any) { l.Debug("protocol", "event", sprintf(format, args...)) }
	p := func(args ...any) { l.Debug("protocol", "event", sprint(args...)) }
	log.Infof, log.Warningf, log.Errorf = f, f, f
	log.Info, log.Warning, log.Error = p, p, p
}
