package sqlplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
	goerrors "gopkg.in/src-d/go-errors.v1"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
)

// Error numbers of MySQL that the wire library has no name for.
const (
	erStorageEngine   = 1030 // an error below that has no number of its own
	erNoSuchFile      = 1017
	erFileExists      = 1086
	erLockWait        = 1205
	erLockTableFull   = 1206
	erDiskFull        = 1021
	erOutOfResources  = 1041
	erTableFull       = 1114
	erReadOnlyTable   = 1036
	erReadOnlyMode    = 1836
	erCrashed         = 1194
	erWrongArguments  = 1210
	erNotSupportedYet = 1235
	erShutdown        = 1053
	erInterrupted     = 1317
	erTimeout         = 3024
	erOutOfRange      = 1690
	erCheckViolated   = 3819
	erDupEntry        = 1062
	erTriggerExists   = 1359
	erBadNull         = 1048
	erNoSuchTable     = 1146
	erBadOption       = 3981
)

// stateGeneral is the SQLSTATE of errors that have none of their own.
const stateGeneral = "HY000"

// Errors of locks, with MySQL's texts.
var (
	errDeadlock = mysql.NewSQLError(mysql.ERLockDeadlock, "40001", "Deadlock found when trying to get lock; try restarting transaction")
	// A snapshot that is too old, or whose files another engine removed, is to the client what a changed table is.
	errTableChanged = mysql.NewSQLError(1412, stateGeneral, "Table definition has changed, please retry transaction")
	// ErrReplan: the definition of a table changed after the statement was planned. The servers plan and run it again, also within the
	// transaction, if the client has got nothing of it yet and it has written nothing; else this is the client's error.
	ErrReplan = mysql.NewSQLError(1412, stateGeneral, "Table definition has changed, please retry transaction")
	// errReshaped is of a table that was rewritten after the snapshot of the transaction.
	errReshaped = mysql.NewSQLError(1412, stateGeneral, "Table definition has changed, please retry transaction")
	errLockWait = mysql.NewSQLError(erLockWait, stateGeneral, "Lock wait timeout exceeded; try restarting transaction")
	errNoWait   = mysql.NewSQLError(3572, stateGeneral, "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.")
)

// mysqlError gives an error of the packages below as one whose number the front end finds. It finds numbers on bare errors
// only, so every method that the front end calls returns through here, and nothing wraps the result.
func mysqlError(err error) error {
	switch err {
	case nil, io.EOF:
		return err
	}
	switch err.(type) {
	case *mysql.SQLError, *goerrors.Error, sql.WrappedInsertError, sql.WrappedTypeConversionError, sql.IgnorableError:
		return err
	}
	var (
		known *mysql.SQLError
		kind  *goerrors.Error
		dup   *catalog.DuplicateKeyError
		late  *catalog.LateError
		early *catalog.TooEarlyError
		gone  *catalog.CleanedError
		bad   *storage.CorruptError
	)
	text := plainText(err)
	at := func(code int, state string) error { return mysql.NewSQLError(code, state, "%s", text) }
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &kind):
		return kind
	case errors.As(err, &dup):
		return mysql.NewSQLError(erDupEntry, "23000", "Duplicate entry '%s' for key '%s.%s'", keyText(dup.Key), bareName(dup.Table), indexName(dup.Index))
	case errors.As(err, &late):
		return mysql.NewSQLError(erCheckViolated, stateGeneral, "Column '%s' orders the versions of a row of table '%s': %v lies before the stored %v",
			late.Field, late.Table, late.Given, late.Stored)
	case errors.As(err, &early):
		return mysql.NewSQLError(erOutOfRange, "22003", "Table '%s' cannot be read as of %s: the earliest time is %s", early.Table,
			early.At.UTC().Format(asOfLayout), early.Earliest.UTC().Format(asOfLayout))
	case errors.As(err, &gone):
		return mysql.NewSQLError(erOutOfRange, "22003", "Changes of table '%s' cannot be read: %s", gone.Table, gone.What)
	case errors.As(err, &bad):
		return at(erCrashed, stateGeneral)
	case errors.Is(err, catalog.ErrConflict):
		return errDeadlock
	case errors.Is(err, catalog.ErrChanged):
		return errReshaped
	case errors.Is(err, catalog.ErrSnapshot):
		return errTableChanged
	case errors.Is(err, catalog.ErrLockTimeout):
		return errLockWait
	case errors.Is(err, catalog.ErrLocked):
		return errNoWait
	case errors.Is(err, catalog.ErrBusy):
		return at(erLockWait, stateGeneral) // the text names who writes
	case errors.Is(err, catalog.ErrDiskFull), errors.Is(err, catalog.ErrFull) && errors.Is(err, syscall.ENOSPC):
		return at(erDiskFull, stateGeneral)
	case errors.Is(err, catalog.ErrTooManyLocks):
		return at(erLockTableFull, stateGeneral)
	case errors.Is(err, catalog.ErrTooMany):
		return at(erOutOfResources, stateGeneral)
	case errors.Is(err, catalog.ErrStopped):
		return at(erReadOnlyMode, stateGeneral)
	case errors.Is(err, catalog.ErrFull):
		return at(erTableFull, stateGeneral)
	case errors.Is(err, catalog.ErrReadOnly):
		return at(erReadOnlyTable, stateGeneral)
	case errors.Is(err, catalog.ErrInvalid):
		return at(erWrongArguments, stateGeneral)
	case errors.Is(err, catalog.ErrClosed):
		return at(erShutdown, "08S01")
	case errors.Is(err, catalog.ErrExists):
		return at(mysql.ERTableExists, "42S01")
	case errors.Is(err, catalog.ErrNotFound):
		return at(erNoSuchTable, "42S02")
	case errors.Is(err, storage.ErrUnsupported):
		return at(erNotSupportedYet, "42000")
	case errors.Is(err, storage.ErrNotExist):
		return at(erNoSuchFile, stateGeneral)
	case errors.Is(err, storage.ErrExist):
		return at(erFileExists, stateGeneral)
	case errors.Is(err, syscall.ENOSPC):
		return at(erDiskFull, stateGeneral)
	case errors.Is(err, context.Canceled):
		return mysql.NewSQLError(erInterrupted, "70100", "Query execution was interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return mysql.NewSQLError(erTimeout, stateGeneral, "Query execution was interrupted, maximum statement execution time exceeded")
	}
	return at(erStorageEngine, stateGeneral)
}

// Replans tells whether an error says that the statement is to be planned and run again: in the transaction that it belongs to, or, if
// that is its own, in a new one.
func Replans(err error, own bool) bool {
	var e *mysql.SQLError
	return errors.As(sql.UnwrapError(err), &e) && (e == ErrReplan || own && e == errReshaped)
}

// plainText is the text of an error without the names of packages, which mean nothing to a client.
func plainText(err error) string {
	text := err.Error()
	for _, p := range []string{"catalog: ", "storage: ", "timeline: ", "index: "} {
		text = strings.ReplaceAll(text, p, "")
	}
	return text
}

// bareName gives the name of a table without its database.
func bareName(table string) string {
	if _, name, ok := strings.Cut(table, "."); ok {
		return name
	}
	return table
}

// keyText writes the values of a key as MySQL does in error 1062.
func keyText(key []any) string {
	parts := make([]string, len(key))
	for i, v := range key {
		switch v := v.(type) {
		case nil:
			parts[i] = "NULL"
		case []byte:
			parts[i] = string(v)
		default:
			parts[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(parts, "-")
}

// indexName is the name by which MySQL knows an index of the catalog.
func indexName(name string) string {
	if name == "" {
		return primaryIndex
	}
	return name
}
