package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	gms "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestErrorNumbers(t *testing.T) {
	for _, tc := range []struct {
		err   error
		num   int
		state string
		text  string
	}{
		{gms.ErrSyntaxError.New("syntax error at position 3"), 1064, "42000", "You have an error in your SQL syntax: syntax error at position 3"},
		{gms.ErrTableNotFound.New("t"), 1146, "42S02", "Table 't' doesn't exist"},
		{fmt.Errorf("reading: %w", gms.ErrTableNotFound.New("t")), 1146, "42S02", ""},
		{gms.ErrTableAlreadyExists.New("t"), 1050, "42S01", "Table 't' already exists"},
		{gms.ErrColumnNotFound.New("x"), 1054, "42S22", "Unknown column 'x' in 'field list'"},
		{gms.ErrDatabaseNotFound.New("x"), 1049, "42000", "Unknown database 'x'"},
		{gms.ErrDatabaseExists.New("x"), 1007, "HY000", "Can't create database 'x'; database exists"},
		{errors.New("can't drop database x; database doesn't exist"), 1008, "HY000", "Can't drop database 'x'; database doesn't exist"},
		{gms.NewUniqueKeyErr("[1,a]", true, nil), 1062, "23000", "Duplicate entry '1-a' for key 'PRIMARY'"},
		{gms.NewUniqueKeyErr("Duplicate entry '7' for key 't.u'", false, nil), 1062, "23000", "Duplicate entry '7' for key 't.u'"},
		{gms.NewWrappedInsertError(nil, gms.NewUniqueKeyErr("[1]", true, nil)), 1062, "23000", ""},
		{gms.ErrInsertIntoNonNullableProvidedNull.New("c"), 1048, "23000", "Column 'c' cannot be null"},
		{gms.ErrInsertIntoNonNullableDefaultNullColumn.New("c"), 1364, "HY000", "Field 'c' doesn't have a default value"},
		{gms.ErrInvalidValue.New("x", "int"), 1366, "HY000", "Incorrect int value: 'x'"},
		{gms.ErrValueOutOfRange.New(300, types.Int8), 1264, "22003", "Out of range value: 300 for type tinyint"},
		{types.ErrLengthBeyondLimit.New("abc", "c"), 1406, "22001", "Data too long for column 'c'"},
		{types.ErrConvertingToTime.New("x"), 1292, "22007", "Incorrect datetime value: 'x'"},
		{gms.ErrTruncatedIncorrect.New("DOUBLE", "x"), 1292, "22007", "Truncated incorrect DOUBLE value: 'x'"},
		{gms.ErrForeignKeyParentViolation.New("fk", "c", "p", "[1]"), 1451, "23000", ""},
		{gms.ErrForeignKeyChildViolation.New("fk", "c", "p", "[1]"), 1452, "23000", "Cannot add or update a child row: a foreign key constraint fails (`c`, CONSTRAINT `fk`, REFERENCES `p`, key: `[1]`)"},
		{gms.ErrLockDeadlock.New("conflict"), 1213, "40001", "Deadlock found when trying to get lock; try restarting transaction"},
		{mysql.NewSQLError(1205, "", "Lock wait timeout exceeded; try restarting transaction"), 1205, "HY000", ""},
		{context.Canceled, 1317, "70100", "Query execution was interrupted"},
		{context.DeadlineExceeded, 3024, "HY000", ""},
		{gms.ErrFunctionNotFound.New("f"), 1305, "42000", "FUNCTION f does not exist"},
		{gms.ErrStoredProcedureDoesNotExist.New("p"), 1305, "42000", "PROCEDURE p does not exist"},
		{gms.ErrCheckConstraintViolated.New("chk"), 3819, "HY000", "Check constraint 'chk' is violated."},
		{gms.ErrReadOnlyTransaction.New(), 1792, "25006", ""},
		{gms.ErrExpectedSingleRow.New(), 1242, "21000", ""},
		{gms.ErrColValCountMismatch.New(1), 1136, "21S01", ""},
		{gms.ErrUnknownSystemVariable.New("x"), 1193, "HY000", ""},
		{gms.ErrCantDropFieldOrKey.New("x"), 1091, "42000", "Can't DROP 'x'; check that column/key exists"},
		{gms.ErrDuplicateKey.New("x"), 1061, "42000", ""},
		{mysql.NewSQLError(1365, "", "Division by 0"), 1365, "22012", ""},
		{errors.New("panic recovered: boom\ngoroutine 7 [running]:\nmain.f()"), 1815, "HY000", "Internal error: panic recovered: boom"},
	} {
		e := MySQLError(tc.err)
		require.Equal(t, tc.num, e.Num, tc.err.Error())
		require.Equal(t, tc.state, e.State, tc.err.Error())
		if tc.text != "" {
			require.Equal(t, tc.text, e.Message)
		}
	}
	require.Nil(t, MySQLError(nil))
}

func TestErrorsOverTheWire(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(3) NOT NULL, n TINYINT, d DATETIME, u INT UNIQUE, x DECIMAL(5,2), e ENUM('a','b'))")
	exec(t, db, "INSERT INTO t (id, v) VALUES (1,'a')")
	for _, tc := range []struct {
		query string
		num   uint16
		state string
	}{
		{"SELEC 1", 1064, "42000"},
		{"SELECT * FROM missing", 1146, "42S02"},
		{"SELECT missing FROM t", 1054, "42S22"},
		{"CREATE TABLE t (a INT)", 1050, "42S01"},
		{"CREATE DATABASE d", 1007, "HY000"},
		{"DROP DATABASE missing", 1008, "HY000"},
		{"USE missing", 1049, "42000"},
		{"INSERT INTO t (id, v) VALUES (1,'b')", 1062, "23000"},
		{"INSERT INTO t (id, v) VALUES (2,NULL)", 1048, "23000"},
		{"INSERT INTO t (id) VALUES (2)", 1364, "HY000"},
		{"INSERT INTO t (id, v) VALUES (2,'toolong')", 1406, "22001"},
		{"INSERT INTO t (id, v, n) VALUES (2,'b',300)", 1264, "22003"},
		{"INSERT INTO t (id, v, n) VALUES (2,'b','x')", 1366, "HY000"},
		{"INSERT INTO t (id, v, d) VALUES (2,'b','nodate')", 1292, "22007"},
		{"INSERT INTO t (id, v, x) VALUES (2,'b',123456)", 1264, "22003"},
		{"INSERT INTO t (id, v, e) VALUES (2,'b','z')", 1265, "01000"},
		{"INSERT INTO t (id, v) VALUES (2)", 1136, "21S01"},
		{"SELECT nofunction(1)", 1305, "42000"},
		{"CALL noprocedure()", 1305, "42000"},
		{"SELECT (SELECT 1 UNION SELECT 2)", 1242, "21000"},
		{"DROP TABLE missing", 1051, "42S02"},
		{"SELECT @@missing", 1193, "HY000"},
		{"ALTER TABLE t DROP COLUMN missing", 1091, "42000"},
		{"SET time_zone = 'Nowhere/City'", 1298, "HY000"},
		{"PREPARE p FROM 'SELEC 1'", 1064, "42000"},
		{"EXECUTE missing", 1243, "HY000"},
		{"KILL 999999", 1094, "HY000"},
	} {
		t.Run(tc.query, func(t *testing.T) {
			_, err := db.Exec(tc.query)
			var e *driver.MySQLError
			require.ErrorAs(t, err, &e)
			t.Log(e)
			require.Equal(t, tc.num, e.Number, e.Message)
			require.Equal(t, tc.state, string(e.SQLState[:]), e.Message)
		})
	}
	_, err := db.Prepare("SELEC ?")
	var e *driver.MySQLError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 1064, e.Number, e.Error())
}

func TestKillAndTimeouts(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	number := func(err error) int {
		var e *driver.MySQLError
		require.ErrorAs(t, err, &e)
		return int(e.Number)
	}

	_, err = conn.ExecContext(context.Background(), "SELECT /*+ MAX_EXECUTION_TIME(50) */ SLEEP(5)")
	require.Equal(t, 3024, number(err))
	exec(t, conn, "SET max_execution_time = 50")
	_, err = conn.ExecContext(context.Background(), "SELECT SLEEP(5)")
	require.Equal(t, 3024, number(err))
	exec(t, conn, "SET max_execution_time = 0")

	id := table(t, conn, "SELECT CONNECTION_ID()")
	go func() {
		time.Sleep(100 * time.Millisecond)
		db.Exec("KILL QUERY " + id)
	}()
	_, err = conn.ExecContext(context.Background(), "SELECT SLEEP(5)")
	require.Equal(t, 1317, number(err))
	require.Equal(t, "1", table(t, conn, "SELECT 1"))
}
