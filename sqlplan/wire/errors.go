package wire

import (
	"fmt"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
)

func mysqlError(first func(error) error, err error) *mysql.SQLError {
	return sql.CastSQLError(first(err))
}

func syntaxError(err error) error {
	return mysql.NewSQLError(mysql.ERParseError, "42000", "%s", err.Error())
}

func panicError(r any) error {
	return mysql.NewSQLError(mysql.ERUnknownError, "HY000", "internal error: %s", clip(fmt.Sprint(r), 200))
}
