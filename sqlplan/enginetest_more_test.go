package sqlplan

import (
	"testing"

	"github.com/dolthub/go-mysql-server/enginetest"
)

// enginetestMore are further parts of the front end's suite: definitions, constraints, routines, prepared statements.
var enginetestMore = []struct {
	name string
	run  func(*testing.T, enginetest.Harness)
}{
	{"AddColumn", enginetest.TestAddColumn},
	{"AddDropPks", enginetest.TestAddDropPks},
	{"AlterTable", enginetest.TestAlterTable},
	{"ChecksOnInsert", enginetest.TestChecksOnInsert},
	{"ChecksOnUpdate", enginetest.TestChecksOnUpdate},
	{"ColumnDefaults", enginetest.TestColumnDefaults},
	{"CreateCheckConstraints", enginetest.TestCreateCheckConstraints},
	{"CreateDatabase", enginetest.TestCreateDatabase},
	{"CreateForeignKeys", enginetest.TestCreateForeignKeys},
	{"CreateTable", enginetest.TestCreateTable},
	{"DeleteErrors", enginetest.TestDeleteErrors},
	{"DropCheckConstraints", enginetest.TestDropCheckConstraints},
	{"DropColumn", enginetest.TestDropColumn},
	{"DropColumnKeylessTables", enginetest.TestDropColumnKeylessTables},
	{"DropDatabase", enginetest.TestDropDatabase},
	{"DropForeignKeys", enginetest.TestDropForeignKeys},
	{"DropTable", enginetest.TestDropTable},
	{"ForeignKeys", enginetest.TestForeignKeys},
	{"GeneratedColumns", enginetest.TestGeneratedColumns},
	{"IgnoreIntoWithDuplicateUniqueKeyKeyless", enginetest.TestIgnoreIntoWithDuplicateUniqueKeyKeyless},
	{"IndexPrefix", enginetest.TestIndexPrefix},
	{"Indexes", enginetest.TestIndexes},
	{"InsertDuplicateKeyKeyless", enginetest.TestInsertDuplicateKeyKeyless},
	{"InsertIgnoreInto", enginetest.TestInsertIgnoreInto},
	{"InsertIntoErrors", enginetest.TestInsertIntoErrors},
	{"ModifyColumn", enginetest.TestModifyColumn},
	{"MySqlDb", enginetest.TestMySqlDb},
	{"NullRanges", enginetest.TestNullRanges},
	{"OnUpdateExprScripts", enginetest.TestOnUpdateExprScripts},
	{"PkOrdinalsDDL", enginetest.TestPkOrdinalsDDL},
	{"PkOrdinalsDML", enginetest.TestPkOrdinalsDML},
	{"PreparedInsert", enginetest.TestPreparedInsert},
	{"PreparedStatements", enginetest.TestPreparedStatements},
	{"QueriesPrepared", enginetest.TestQueriesPrepared},
	{"RenameColumn", enginetest.TestRenameColumn},
	{"RenameTable", enginetest.TestRenameTable},
	{"ReplaceIntoErrors", enginetest.TestReplaceIntoErrors},
	{"RollbackTriggers", enginetest.TestRollbackTriggers},
	{"StoredProcedures", enginetest.TestStoredProcedures},
	{"TimeQueries", enginetest.TestTimeQueries},
	{"Triggers", enginetest.TestTriggers},
	{"TriggerErrors", enginetest.TestTriggerErrors},
	{"Truncate", enginetest.TestTruncate},
	{"UpdateErrors", enginetest.TestUpdateErrors},
	{"UpdateIgnore", enginetest.TestUpdateIgnore},
	{"Views", enginetest.TestViews},
	{"WindowFunctions", enginetest.TestWindowFunctions},
	{"TupleQueries", enginetest.TestTupleQueries},
	{"CharsetCollationEngine", enginetest.TestCharsetCollationEngine},
	{"Blobs", enginetest.TestBlobs},
}

func TestEnginetestMore(t *testing.T) {
	for _, part := range enginetestMore {
		t.Run(part.name, func(t *testing.T) { part.run(t, newHarness(t)) })
	}
}
