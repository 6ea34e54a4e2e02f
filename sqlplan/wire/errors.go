package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer/analyzererrors"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/vt/sqlparser"
	goerrors "gopkg.in/src-d/go-errors.v1"
)

// code is a MySQL error number with its SQLSTATE and, when the engine's words
// differ from MySQL's, a text. In it $1, $2… stand for the values of the engine's message.
type code struct {
	num   int
	state string
	text  string
}

// kind maps one of the engine's kinds of errors.
type kind struct {
	*goerrors.Kind
	code
	args *regexp.Regexp // takes the values out of a message of the kind; nil without text
}

var kinds = compileKinds([]kind{
	// syntax and names
	{Kind: sql.ErrSyntaxError, code: code{1064, "42000", "You have an error in your SQL syntax: $1"}},
	{Kind: sql.ErrInvalidSyntax, code: code{1064, "42000", ""}},
	{Kind: sql.ErrUnsupportedSyntax, code: code{1235, "42000", "This version of lakesql doesn't yet support '$1'"}},
	{Kind: sql.ErrUnsupportedFeature, code: code{1235, "42000", "This version of lakesql doesn't yet support '$1'"}},
	{Kind: sql.ErrIndexIDAlreadyRegistered, code: code{1061, "42000", "Duplicate key name '$1'"}},
	{Kind: sql.ErrTableNotFound, code: code{1146, "42S02", "Table '$1' doesn't exist"}},
	{Kind: sql.ErrUnresolvedTableLock, code: code{3568, "HY000", "Unresolved table name `$1` in locking clause."}},
	{Kind: sql.ErrUnknownTable, code: code{1051, "42S02", "Unknown table '$1'"}},
	{Kind: sql.ErrTableAlreadyExists, code: code{1050, "42S01", "Table '$1' already exists"}},
	{Kind: sql.ErrColumnNotFound, code: code{1054, "42S22", "Unknown column '$1' in 'field list'"}},
	{Kind: sql.ErrTableColumnNotFound, code: code{1054, "42S22", "Unknown column '$1.$2' in 'field list'"}},
	{Kind: sql.ErrUnknownColumn, code: code{1054, "42S22", ""}},
	{Kind: sql.ErrUnknownIndexColumn, code: code{1072, "42000", "Key column '$1' doesn't exist in table"}},
	{Kind: sql.ErrMisusedAlias, code: code{1054, "42S22", ""}},
	{Kind: sql.ErrAmbiguousColumnName, code: code{1052, "23000", "Column '$1' in field list is ambiguous"}},
	{Kind: sql.ErrAmbiguousColumnOrAliasName, code: code{1052, "23000", "Column '$1' in field list is ambiguous"}},
	{Kind: sql.ErrAmbiguousColumnInOrderBy, code: code{1052, "23000", "Column '$1' in order clause is ambiguous"}},
	{Kind: sql.ErrColumnExists, code: code{1060, "42S21", "Duplicate column name '$1'"}},
	{Kind: sql.ErrDuplicateColumn, code: code{1060, "42S21", "Duplicate column name '$1'"}},
	{Kind: sql.ErrColumnSpecifiedTwice, code: code{1110, "42000", "Column '$1' specified twice"}},
	{Kind: sql.ErrDuplicateAliasOrTable, code: code{1066, "42000", "Not unique table/alias: '$1'"}},
	{Kind: sql.ErrDatabaseNotFound, code: code{1049, "42000", "Unknown database '$1'"}},
	{Kind: sql.ErrDatabaseSchemaNotFound, code: code{1049, "42000", "Unknown database '$1'"}},
	{Kind: sql.ErrDatabaseExists, code: code{1007, "HY000", "Can't create database '$1'; database exists"}},
	{Kind: sql.ErrInvalidDatabaseName, code: code{1102, "42000", "Incorrect database name '$1'"}},
	{Kind: sql.ErrNoDatabaseSelected, code: code{1046, "3D000", "No database selected"}},
	{Kind: sql.ErrDatabaseNoDatabaseSchemaSelectedCreate, code: code{1046, "3D000", "No database selected"}},
	{Kind: sql.ErrIdentifierIsTooLong, code: code{1059, "42000", ""}},
	{Kind: sql.ErrInvalidIdentifier, code: code{1103, "42000", "Incorrect table name '$1'"}},
	{Kind: sql.ErrFunctionNotFound, code: code{1305, "42000", "FUNCTION $1 does not exist"}},
	{Kind: sql.ErrTableFunctionNotFound, code: code{1305, "42000", "FUNCTION $1 does not exist"}},
	{Kind: sql.ErrStoredProcedureDoesNotExist, code: code{1305, "42000", "PROCEDURE $1 does not exist"}},
	{Kind: sql.ErrStoredProcedureAlreadyExists, code: code{1304, "42000", "PROCEDURE $1 already exists"}},
	{Kind: sql.ErrCallIncorrectParameterCount, code: code{1318, "42000", "Incorrect number of arguments for PROCEDURE $1; expected $2, got $3"}},
	{Kind: sql.ErrInvalidArgumentNumber, code: code{1582, "42000", "Incorrect parameter count in the call to native function '$1'"}},
	{Kind: sql.ErrInvalidArgument, code: code{1210, "HY000", "Incorrect arguments to $1"}},
	{Kind: sql.ErrInvalidArgumentDetails, code: code{1210, "HY000", "Incorrect arguments to $1: $2"}},
	{Kind: sql.ErrSavepointDoesNotExist, code: code{1305, "42000", ""}},
	{Kind: sql.ErrTriggerDoesNotExist, code: code{1360, "HY000", "Trigger does not exist"}},
	{Kind: sql.ErrViewDoesNotExist, code: code{1146, "42S02", "Table '$1.$2' doesn't exist"}},
	{Kind: sql.ErrExistingView, code: code{1050, "42S01", "Table '$2' already exists"}},
	{Kind: sql.ErrExpectedTableFoundView, code: code{1347, "HY000", "'$1' is not BASE TABLE"}},
	{Kind: sql.ErrInvalidRefInView, code: code{1356, "HY000", ""}},
	{Kind: sql.ErrEventAlreadyExists, code: code{1537, "HY000", ""}},
	{Kind: sql.ErrEventDoesNotExist, code: code{1539, "HY000", "Unknown event '$1'"}},
	{Kind: sql.ErrUnknownEvent, code: code{1539, "HY000", ""}},
	{Kind: sql.ErrUnknownSystemVariable, code: code{1193, "HY000", ""}},
	{Kind: sql.ErrSystemVariableReadOnly, code: code{1238, "HY000", ""}},
	{Kind: sql.ErrSystemVariableSessionOnly, code: code{1228, "HY000", ""}},
	{Kind: sql.ErrSystemVariableGlobalOnly, code: code{1229, "HY000", ""}},
	{Kind: sql.ErrInvalidSystemVariableValue, code: code{1231, "42000", ""}},
	{Kind: sql.ErrInvalidTimeZone, code: code{1298, "HY000", "Unknown or incorrect time zone: '$1'"}},
	{Kind: sql.ErrUnknownPreparedStatement, code: code{1243, "HY000", ""}},
	{Kind: sql.ErrUnsupportedPreparedStatement, code: code{1295, "HY000", ""}},
	{Kind: sql.ErrUnboundPreparedStatementVariable, code: code{1210, "HY000", "Incorrect arguments to EXECUTE"}},
	{Kind: sql.ErrUndeclaredVariable, code: code{1327, "42000", "Undeclared variable: $1"}},
	{Kind: sql.ErrCharSetUnknown, code: code{1115, "42000", "Unknown character set: '$1'"}},
	{Kind: sql.ErrCollationUnknown, code: code{1273, "HY000", "Unknown collation: '$1'"}},
	{Kind: sql.ErrCollationInvalidForCharSet, code: code{1253, "42000", ""}},
	{Kind: sql.ErrCollationIllegalMix, code: code{1267, "HY000", ""}},

	// keys and constraints
	{Kind: sql.ErrPrimaryKeyViolation, code: code{1062, "23000", ""}},
	{Kind: sql.ErrUniqueKeyViolation, code: code{1062, "23000", ""}},
	{Kind: sql.ErrDuplicateEntry, code: code{1062, "23000", ""}},
	{Kind: sql.ErrDuplicateKey, code: code{1061, "42000", ""}},
	{Kind: sql.ErrMultiplePrimaryKeysDefined, code: code{1068, "42000", "Multiple primary key defined"}},
	{Kind: sql.ErrWrongAutoKey, code: code{1075, "42000", "Incorrect table definition; there can be only one auto column and it must be defined as a key"}},
	{Kind: sql.ErrInvalidAutoIncCols, code: code{1075, "42000", "Incorrect table definition; there can be only one auto column and it must be defined as a key"}},
	{Kind: sql.ErrKeyColumnDoesNotExist, code: code{1072, "42000", "Key column '$1' doesn't exist in table"}},
	{Kind: sql.ErrCantDropFieldOrKey, code: code{1091, "42000", "Can't DROP '$1'; check that column/key exists"}},
	{Kind: plan.ErrIndexNotFound, code: code{1091, "42000", "Can't DROP '$1'; check that column/key exists"}},
	{Kind: sql.ErrCantDropIndex, code: code{1553, "HY000", "Cannot drop index '$1': needed in a foreign key constraint"}},
	{Kind: planbuilder.ErrPrimaryKeyOnNullField, code: code{1171, "42000", ""}},
	{Kind: sql.ErrForeignKeyChildViolation, code: code{1452, "23000", "Cannot add or update a child row: a foreign key constraint fails (`$2`, CONSTRAINT `$1`, REFERENCES `$3`, key: `$4`)"}},
	{Kind: sql.ErrForeignKeyNotResolved, code: code{1452, "23000", ""}},
	{Kind: sql.ErrForeignKeyParentViolation, code: code{1451, "23000", "Cannot delete or update a parent row: a foreign key constraint fails (`$2`, CONSTRAINT `$1`, REFERENCES `$3`, key: `$4`)"}},
	{Kind: sql.ErrForeignKeyDropTable, code: code{3730, "HY000", "Cannot drop table '$1' referenced by a foreign key constraint '$2'"}},
	{Kind: sql.ErrForeignKeyDropColumn, code: code{1828, "HY000", "Cannot drop column '$1': needed in a foreign key constraint '$2'"}},
	{Kind: sql.ErrForeignKeyDropIndex, code: code{1553, "HY000", "Cannot drop index '$1': needed in a foreign key constraint"}},
	{Kind: sql.ErrForeignKeyDuplicateName, code: code{1826, "HY000", "Duplicate foreign key constraint name '$1'"}},
	{Kind: sql.ErrForeignKeyNotFound, code: code{1091, "42000", "Can't DROP '$1'; check that column/key exists"}},
	{Kind: sql.ErrForeignKeyMissingReferenceIndex, code: code{1822, "HY000", "Failed to add the foreign key constraint. Missing index for constraint '$1' in the referenced table '$2'"}},
	{Kind: sql.ErrForeignKeyColumnTypeMismatch, code: code{3780, "HY000", "Referencing column '$1' and referenced column '$2' in foreign key constraint are incompatible."}},
	{Kind: sql.ErrForeignKeyTypeChange, code: code{1832, "HY000", "Cannot change column '$1': used in a foreign key constraint"}},
	{Kind: sql.ErrForeignKeyDepthLimit, code: code{3008, "HY000", ""}},
	{Kind: sql.ErrTruncateReferencedFromForeignKey, code: code{1701, "42000", "Cannot truncate a table referenced in a foreign key constraint"}},
	{Kind: sql.ErrCheckConstraintViolated, code: code{3819, "HY000", "Check constraint '$1' is violated."}},
	{Kind: sql.ErrCheckConstraintInvalidatedByColumnAlter, code: code{3959, "HY000", "Check constraint '$2' uses column '$1', hence column cannot be dropped or renamed."}},
	{Kind: sql.ErrDuplicateCheckName, code: code{3822, "HY000", "Duplicate check constraint name '$1'."}},
	{Kind: sql.ErrUnknownConstraint, code: code{3940, "HY000", "Constraint '$1' does not exist."}},
	{Kind: sql.ErrInvalidConstraintFunctionNotSupported, code: code{3814, "HY000", ""}},
	{Kind: sql.ErrInvalidConstraintSubqueryNotSupported, code: code{3815, "HY000", ""}},

	// values
	{Kind: sql.ErrInsertIntoNonNullableProvidedNull, code: code{1048, "23000", "Column '$1' cannot be null"}},
	{Kind: sql.ErrColumnDefaultReturnedNull, code: code{1048, "23000", "Column cannot be null"}},
	{Kind: sql.ErrInsertIntoNonNullableDefaultNullColumn, code: code{1364, "HY000", "Field '$1' doesn't have a default value"}},
	{Kind: sql.ErrInsertIntoMismatchValueCount, code: code{1136, "21S01", "Column count doesn't match value count at row 1"}},
	{Kind: sql.ErrColValCountMismatch, code: code{1136, "21S01", ""}},
	{Kind: sql.ErrUnexpectedRowLength, code: code{1136, "21S01", "Column count doesn't match value count at row 1"}},
	{Kind: sql.ErrGeneratedColumnValue, code: code{3105, "HY000", "The value specified for generated column '$1' in table '$2' is not allowed."}},
	{Kind: sql.ErrInvalidValue, code: code{1366, "HY000", "Incorrect $2 value: '$1'"}},
	{Kind: sql.ErrInvalidValueType, code: code{1366, "HY000", "Incorrect $2 value"}},
	{Kind: sql.ErrTruncatedIncorrect, code: code{1292, "22007", "Truncated incorrect $1 value: '$2'"}},
	{Kind: sql.ErrValueOutOfRange, code: code{1264, "22003", "Out of range value: $1 for type $2"}},
	{Kind: types.ErrLengthBeyondLimit, code: code{1406, "22001", "Data too long for column '$2'"}},
	{Kind: types.ErrLengthTooLarge, code: code{1074, "42000", "Column length too big (max = $2); use BLOB or TEXT instead"}},
	{Kind: types.ErrBadCharsetString, code: code{1366, "HY000", "Incorrect string value: '$1' for column '$2' at row $3"}},
	{Kind: sql.ErrCharSetInvalidString, code: code{1366, "HY000", "Incorrect string value: '$2' for character set $1"}},
	{Kind: types.ErrConvertingToTime, code: code{1292, "22007", "Incorrect datetime value: '$1'"}},
	{Kind: types.ErrConvertingToTimeOutOfRange, code: code{1292, "22007", "Incorrect datetime value: '$1'"}},
	{Kind: types.ErrConvertingToTimeType, code: code{1292, "22007", "Incorrect time value: '$1'"}},
	{Kind: types.ErrConvertingToYear, code: code{1264, "22003", "Out of range value for a year: '$1'"}},
	{Kind: types.ErrConvertingToDecimal, code: code{1366, "HY000", "Incorrect decimal value: '$1'"}},
	{Kind: types.ErrConvertToDecimalLimit, code: code{1264, "22003", "Out of range value for a DECIMAL column"}},
	{Kind: types.ErrConvertingToEnum, code: code{1265, "01000", "Data truncated for an ENUM column: '$1'"}},
	{Kind: types.ErrDataTruncatedForColumn, code: code{1265, "01000", ""}},
	{Kind: types.ErrDataTruncatedForColumnAtRow, code: code{1265, "01000", ""}},
	{Kind: sql.ErrConvertingToSet, code: code{1265, "01000", "Data truncated for a SET column: '$1'"}},
	{Kind: sql.ErrInvalidSetValue, code: code{1265, "01000", "Data truncated for a SET column: '$1'"}},
	{Kind: sql.ErrTooLargeForSet, code: code{1265, "01000", "Data truncated for a SET column: '$1'"}},
	{Kind: sql.ErrDuplicateEntrySet, code: code{1291, "HY000", "Column has duplicated value '$1' in SET"}},
	{Kind: sql.ErrEnumTypeTruncated, code: code{1265, "01000", "Data truncated for an ENUM column"}},
	{Kind: sql.ErrInvalidJson, code: code{3140, "22032", "Invalid JSON text: $1"}},
	{Kind: sql.ErrInvalidJSONText, code: code{3141, "22032", ""}},
	{Kind: sql.ErrInvalidJSONArgument, code: code{3146, "22032", "Invalid data type for JSON data in argument $1 to function $2; a JSON string or JSON type is required."}},
	{Kind: sql.ErrJSONObjectAggNullKey, code: code{3158, "22032", "JSON documents may not contain NULL member names."}},
	{Kind: expression.ErrIntDivDataOutOfRange, code: code{1690, "22003", "BIGINT value is out of range in '($1 DIV $2)'"}},
	{Kind: expression.ErrIndexOutOfBounds, code: code{1815, "HY000", "Internal error: the plan of this statement reads a column that its rows do not have"}},
	{Kind: expression.ErrInvalidRegexp, code: code{3696, "HY000", "The regular expression is not valid: $1"}},
	{Kind: sql.ErrUuidUnableToParse, code: code{1411, "HY000", "Incorrect string value: '$1' for function uuid_to_bin"}},
	{Kind: sql.ErrIncompatibleDefaultType, code: code{1067, "42000", "Invalid default value"}},
	{Kind: sql.ErrInvalidColumnDefaultValue, code: code{1067, "42000", ""}},
	{Kind: sql.ErrColumnDefaultDatetimeOnlyFunc, code: code{1067, "42000", "Invalid default value: only DATETIME and TIMESTAMP may default to NOW()"}},
	{Kind: sql.ErrInvalidOnUpdate, code: code{1294, "HY000", "Invalid ON UPDATE clause for '$1' column"}},
	{Kind: sql.ErrInvalidColTypeDefinition, code: code{1063, "42000", "Incorrect column specifier for column '$1': $2"}},
	{Kind: sql.ErrInvalidColumnSpecifier, code: code{1063, "42000", ""}},

	// queries
	{Kind: sql.ErrExpectedSingleRow, code: code{1242, "21000", "Subquery returns more than 1 row"}},
	{Kind: sql.ErrMoreThanOneRow, code: code{1172, "42000", "Result consisted of more than one row"}},
	{Kind: sql.ErrInvalidOperandColumns, code: code{1241, "21000", "Operand should contain $1 column(s)"}},
	{Kind: sql.ErrColumnCountMismatch, code: code{1353, "HY000", ""}},
	{Kind: sql.ErrColumnNumberDoesNotMatch, code: code{1222, "21000", ""}},
	{Kind: planbuilder.ErrSelectsDifferentLength, code: code{1222, "21000", "The used SELECT statements have a different number of columns"}},
	{Kind: sql.ErrNonAggregatedColumnWithoutGroupBy, code: code{1140, "42000", ""}},
	{Kind: analyzererrors.ErrValidationGroupBy, code: code{1055, "42000", ""}},
	{Kind: analyzererrors.ErrValidationGroupByOrderBy, code: code{1055, "42000", ""}},
	{Kind: analyzererrors.ErrReadOnlyDatabase, code: code{1290, "HY000", ""}},
	{Kind: sql.ErrCteRecursionLimitExceeded, code: code{3636, "HY000", ""}},
	{Kind: sql.ErrRecursiveCTEMissingUnion, code: code{3573, "HY000", ""}},
	{Kind: sql.ErrUnknownWindowName, code: code{3579, "HY000", ""}},
	{Kind: sql.ErrNoTablesUsed, code: code{1096, "HY000", ""}},
	{Kind: sql.ErrInvalidTypeForLimit, code: code{1210, "HY000", "Incorrect arguments to LIMIT"}},
	{Kind: sql.ErrTriggerTableInUse, code: code{1442, "HY000", "Can't update table '$1' in stored function/trigger because it is already used by statement which invoked this stored function/trigger."}},

	// transactions and rights
	{Kind: sql.ErrLockDeadlock, code: code{1213, "40001", "Deadlock found when trying to get lock; try restarting transaction"}},
	{Kind: sql.ErrReadOnlyTransaction, code: code{1792, "25006", "Cannot execute statement in a READ ONLY transaction."}},
	{Kind: sql.ErrReadOnly, code: code{1290, "HY000", "The server is running with the --read-only option so it cannot execute this statement"}},
	{Kind: sql.ErrPrivilegeCheckFailed, code: code{1142, "42000", ""}},
	{Kind: sql.ErrDatabaseAccessDeniedForUser, code: code{1044, "42000", ""}},
	{Kind: sql.ErrTableAccessDeniedForUser, code: code{1142, "42000", ""}},
	{Kind: sql.ErrUserCreationFailure, code: code{1396, "HY000", ""}},
	{Kind: sql.ErrUserDeletionFailure, code: code{1396, "HY000", ""}},
	{Kind: sql.ErrUserAlterFailure, code: code{1396, "HY000", ""}},
	{Kind: sql.ErrRoleCreationFailure, code: code{1396, "HY000", ""}},
	{Kind: sql.ErrRoleDeletionFailure, code: code{1396, "HY000", ""}},
	{Kind: sql.ErrGrantUserDoesNotExist, code: code{1410, "42000", ""}},
	{Kind: sql.ErrShowGrantsUserDoesNotExist, code: code{1141, "42000", ""}},
	{Kind: sql.ErrSecureFilePriv, code: code{1290, "HY000", ""}},
	{Kind: sql.ErrFileExists, code: code{1086, "HY000", ""}},
	{Kind: sql.ErrLoadDataCannotOpen, code: code{29, "HY000", ""}},

	// what an engine without the feature says
	{Kind: sql.ErrTemporaryTableNotSupported, code: code{1235, "42000", ""}},
	{Kind: sql.ErrFullTextNotSupported, code: code{1214, "HY000", "The table does not support FULLTEXT indexes"}},
	{Kind: sql.ErrUnsupportedIndexPrefix, code: code{1089, "HY000", ""}},
	{Kind: sql.ErrNoForeignKeySupport, code: code{1235, "42000", ""}},
	{Kind: sql.ErrAlterTableNotSupported, code: code{1235, "42000", ""}},
	{Kind: plan.ErrInsertIntoNotSupported, code: code{1036, "HY000", "Table is read only"}},
	{Kind: plan.ErrUpdateNotSupported, code: code{1036, "HY000", "Table is read only"}},
	{Kind: plan.ErrDeleteFromNotSupported, code: code{1036, "HY000", "Table is read only"}},
	{Kind: plan.ErrReplaceIntoNotSupported, code: code{1036, "HY000", "Table is read only"}},
	{Kind: plan.ErrTruncateNotSupported, code: code{1036, "HY000", "Table is read only"}},
	{Kind: plan.ErrUpdateForTableNotSupported, code: code{1288, "HY000", ""}},
	{Kind: sql.ErrAsOfNotSupported, code: code{1235, "42000", ""}},
})

// texts maps errors that the engine makes without a kind, by their words.
var texts = []struct {
	like *regexp.Regexp
	code
}{
	{regexp.MustCompile(`^syntax error at position|^unexpected .* at position`), code{1064, "42000", "You have an error in your SQL syntax: $0"}},
	{regexp.MustCompile(`(?s)^can't create database ([^;]+); database exists`), code{1007, "HY000", "Can't create database '$1'; database exists"}},
	{regexp.MustCompile(`^can't drop database ([^;]+); database doesn't exist`), code{1008, "HY000", "Can't drop database '$1'; database doesn't exist"}},
	{regexp.MustCompile(`^invalid arguments\. expected:`), code{1210, "HY000", "Incorrect arguments to EXECUTE"}},
	{regexp.MustCompile(`^(?:BIGINT|DOUBLE|DECIMAL)(?: UNSIGNED)? (?:value )?out of range`), code{1690, "22003", ""}},
	{regexp.MustCompile(`out of range`), code{1264, "22003", ""}},
	{regexp.MustCompile(`^no matching Full-Text index found`), code{1191, "HY000", "Can't find FULLTEXT index matching the column list"}},
	{regexp.MustCompile(`^local_infile needs to be set`), code{3948, "42000", "Loading local data is disabled; this must be enabled on both the client and server sides"}},
	{regexp.MustCompile(`^cannot prepare multiple statements`), code{1064, "42000", "You have an error in your SQL syntax: only one statement can be prepared"}},
	{regexp.MustCompile(`^Truncated incorrect`), code{1292, "22007", ""}},
	{regexp.MustCompile(`^Unknown or incorrect time zone`), code{1298, "HY000", ""}},
}

func compileKinds(ks []kind) []kind {
	verb := regexp.MustCompile(`%[svdqT]`)
	for i := range ks {
		if !strings.Contains(ks[i].text, "$") {
			continue
		}
		var b strings.Builder
		b.WriteString("(?s)")
		rest := ks[i].Message
		for {
			at := verb.FindStringIndex(rest)
			if at == nil {
				break
			}
			b.WriteString(regexp.QuoteMeta(rest[:at[0]]))
			if rest[at[0]:at[1]] == "%q" {
				b.WriteString(`"((?:[^"\\]|\\.)*)"`)
			} else if verb.MatchString(rest[at[1]:]) {
				b.WriteString("(.*?)")
			} else {
				b.WriteString("(.*)")
			}
			rest = rest[at[1]:]
		}
		b.WriteString(regexp.QuoteMeta(rest))
		ks[i].args = regexp.MustCompile(b.String())
	}
	return ks
}

// stateOf completes errors that were given a number without SQLSTATE.
var stateOf = func() map[int]string {
	m := map[int]string{mysql.ERAccessDeniedError: "28000", 1205: "HY000", 1317: "70100", 3024: "HY000", 1213: "40001", 1114: "HY000", 1021: "HY000", 1365: "22012"}
	for _, k := range kinds {
		m[k.num] = k.state
	}
	return m
}()

// MySQLError gives err the number, SQLSTATE and text with which MySQL reports
// it. It returns nil for nil. Errors of the layers below are the caller's to
// translate first (Options.MapError); an unknown error becomes 1105.
func MySQLError(err error) *mysql.SQLError {
	if err == nil {
		return nil
	}
	err = sql.UnwrapError(err)
	var known *mysql.SQLError
	if errors.As(err, &known) {
		if known.State == "" || (known.State == mysql.SSUnknownSQLState && stateOf[known.Num] != "") {
			fixed := *known
			fixed.State = stateOf[known.Num]
			if fixed.State == "" {
				fixed.State = "HY000"
			}
			known = &fixed
		}
		return known
	}
	msg := cleanText(err)
	if e := duplicateKey(err); e != nil {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errTimeout
	case errors.Is(err, context.Canceled):
		return errKilled
	case errors.Is(err, io.ErrUnexpectedEOF):
		return mysql.NewSQLError(mysql.ERUnknownError, "HY000", "%s", msg)
	}
	for _, k := range kinds {
		if !isKind(k.Kind, err) {
			continue
		}
		text := msg
		switch {
		case k.args != nil:
			if at := k.args.FindStringSubmatchIndex(msg); at != nil {
				text = string(k.args.ExpandString(nil, k.text, msg, at))
			}
		case k.text != "":
			text = k.text
		}
		return mysql.NewSQLError(k.num, k.state, "%s", text)
	}
	for _, t := range texts {
		if at := t.like.FindStringSubmatchIndex(msg); at != nil {
			text := msg
			if t.text != "" {
				text = string(t.like.ExpandString(nil, t.text, msg, at))
			}
			return mysql.NewSQLError(t.num, t.state, "%s", text)
		}
	}
	e := sql.CastSQLError(err)
	if e.Num == mysql.ERUnknownError {
		// Nothing that MySQL has a number for: a fault of the server, or a limit that it meets unprepared.
		return mysql.NewSQLError(mysql.ERInternalError, "HY000", "Internal error: %s", strings.TrimPrefix(cleanText(errors.New(e.Message)), "Internal error: "))
	}
	return mysql.NewSQLError(e.Num, e.State, "%s", cleanText(errors.New(e.Message)))
}

// inContext gives an error the number that MySQL has for it in this statement.
func inContext(ctx *sql.Context, ast sqlparser.Statement, err error) error {
	err = withDatabase(ctx, ast, err)
	switch ast := ast.(type) {
	case *sqlparser.DBDDL:
		if ast.Action == sqlparser.DropStr && isKind(sql.ErrDatabaseNotFound, err) {
			return mysql.NewSQLError(1008, "HY000", "Can't drop database '%s'; database doesn't exist", ast.DBName)
		}
	case *sqlparser.DDL:
		if ast.Action == sqlparser.DropStr && isKind(sql.ErrTableNotFound, err) {
			return mysql.NewSQLError(1051, "42S02", "%s", strings.Replace(strings.TrimSuffix(MySQLError(err).Message, " doesn't exist"), "Table", "Unknown table", 1))
		}
	case *sqlparser.AlterTable:
		if len(ast.Statements) == 0 || !(isKind(sql.ErrTableColumnNotFound, err) || isKind(sql.ErrColumnNotFound, err)) {
			break
		}
		if d := ast.Statements[0]; d.ColumnAction == sqlparser.DropStr {
			return mysql.NewSQLError(1091, "42000", "Can't DROP '%s'; check that column/key exists", d.Column.String())
		}
	}
	return err
}

// withDatabase names a missing table as MySQL does, with its database, which the engine leaves out.
func withDatabase(ctx *sql.Context, ast sqlparser.Statement, err error) error {
	if !isKind(sql.ErrTableNotFound, err) {
		return err
	}
	name, ok := strings.CutPrefix(cleanText(err), "table not found: ")
	if !ok || strings.Contains(name, ".") {
		return err
	}
	db := ctx.GetCurrentDatabase()
	if ast != nil {
		_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) { // the visitor returns no error
			if t, ok := n.(sqlparser.TableName); ok && strings.EqualFold(t.Name.String(), name) && !t.DbQualifier.IsEmpty() {
				db = t.DbQualifier.String()
			}
			return true, nil
		}, ast)
	}
	if db == "" {
		return err
	}
	return sql.ErrTableNotFound.New(db + "." + name)
}

// isKind looks for a kind also behind %w, where the engine's own test does not look.
func isKind(k *goerrors.Kind, err error) bool {
	for err != nil {
		if k.Is(err) {
			return true
		}
		err = errors.Unwrap(err)
	}
	return false
}

// duplicateKey words 1062. The engine's error carries the key's text alone; a
// table that knows more sets the whole sentence ("Duplicate entry … for key …") as that text.
func duplicateKey(err error) *mysql.SQLError {
	pk, unique := isKind(sql.ErrPrimaryKeyViolation, err), isKind(sql.ErrUniqueKeyViolation, err)
	if !pk && !unique {
		return nil
	}
	key := ""
	var ue sql.UniqueKeyError
	if errors.As(err, &ue) {
		key = ue.Error()
	} else if e, ok := err.(*goerrors.Error); ok && e.Cause() != nil {
		key = e.Cause().Error()
	}
	if strings.HasPrefix(key, "Duplicate entry") {
		return mysql.NewSQLError(1062, "23000", "%s", key)
	}
	key = strings.ReplaceAll(strings.Trim(key, "[]"), ",", "-")
	name := "PRIMARY"
	if !pk {
		name = "UNIQUE"
	}
	return mysql.NewSQLError(1062, "23000", "Duplicate entry '%s' for key '%s'", key, name)
}

var goroutineTrace = regexp.MustCompile(`(?s)\s*(?:goroutine \d+ \[|\n?runtime/debug\.Stack).*`)

// otherTracker is the front end's advice about where to report a fault of its own.
var otherTracker = regexp.MustCompile(`(?is)\s*(?:this is a bug|please file an issue|https://github\.com/dolthub).*`)

// cleanText is the error's message without the stack trace that a panic caught by the engine brings along, and
// without the engine's address for reports.
func cleanText(err error) string {
	msg := err.Error()
	for _, foreign := range []*regexp.Regexp{goroutineTrace, otherTracker} {
		if at := foreign.FindStringIndex(msg); at != nil {
			msg = strings.TrimRight(msg[:at[0]], " \n:")
		}
	}
	// The parser's errors, printed by the protocol layer, begin with a code of their own.
	if rest, ok := strings.CutPrefix(msg, "Code: "); ok {
		if _, text, ok := strings.Cut(rest, "\n"); ok {
			msg = strings.TrimSpace(text)
		}
	}
	return clip(msg, 2000)
}

func mysqlError(first func(error) error, err error) *mysql.SQLError {
	return MySQLError(first(sql.UnwrapError(err)))
}

func syntaxError(err error) error {
	var known *mysql.SQLError
	if errors.As(err, &known) {
		return known
	}
	return mysql.NewSQLError(mysql.ERParseError, "42000", "You have an error in your SQL syntax: %s", cleanText(err))
}

func panicError(r any) error {
	if e, ok := r.(runtime.Error); ok {
		r = e.Error()
	}
	return mysql.NewSQLError(mysql.ERInternalError, "HY000", "Internal error: %s", cleanText(errors.New(fmt.Sprint(r))))
}
