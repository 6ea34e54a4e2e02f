package sqlplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Every error of the packages below gets a number of MySQL, wrapped as it may be. D17
func TestErrorNumbers(t *testing.T) {
	for _, c := range []struct {
		err   error
		num   int
		state string
	}{
		{catalog.ErrConflict, 1213, "40001"},
		{catalog.ErrBusy, 1205, "HY000"},
		{catalog.ErrExists, 1050, "42S01"},
		{catalog.ErrNotFound, 1146, "42S02"},
		{catalog.ErrLostState, 1030, "HY000"},
		{catalog.ErrTooMany, 1041, "HY000"},
		{catalog.ErrTooManyLocks, 1206, "HY000"},
		{catalog.ErrFull, 1114, "HY000"},
		{catalog.ErrDiskFull, 1021, "HY000"},
		{catalog.ErrStopped, 1836, "HY000"},
		{catalog.ErrReadOnly, 1036, "HY000"},
		{catalog.ErrInvalid, 1210, "HY000"},
		{catalog.ErrClosed, 1053, "08S01"},
		{&catalog.DuplicateKeyError{Table: "t", Key: storage.Row{int32(1), "a"}}, 1062, "23000"},
		{&catalog.LateError{Table: "t", Field: "ts", Stored: 2, Given: 1}, 3819, "HY000"},
		{&catalog.TooEarlyError{Table: "t", At: time.Now(), Earliest: time.Now()}, 1690, "22003"},
		{&catalog.CleanedError{Table: "t", What: "file x is gone"}, 1690, "22003"},
		{&storage.CorruptError{Name: "x.parquet", Offset: 5, Err: io.ErrUnexpectedEOF}, 1194, "HY000"},
		{storage.ErrUnsupported, 1235, "42000"},
		{storage.ErrNotExist, 1017, "HY000"},
		{storage.ErrExist, 1086, "HY000"},
		{timeline.ErrConflict, 1030, "HY000"},
		{syscall.ENOSPC, 1021, "HY000"},
		{context.Canceled, 1317, "70100"},
		{context.DeadlineExceeded, 3024, "HY000"},
		{errors.New("anything else"), 1030, "HY000"},
		{sql.ErrTableNotFound.New("t"), 1146, ""},
		{mysql.NewSQLError(3981, "HY000", "x"), 3981, "HY000"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("doing it: %w", c.err), errors.Join(errors.New("first"), fmt.Errorf("a: %w", fmt.Errorf("b: %w", c.err)))} {
			got := sql.CastSQLError(mysqlError(err))
			if got.Num != c.num || c.state != "" && got.State != c.state {
				t.Errorf("%v: %d %s, want %d %s", err, got.Num, got.State, c.num, c.state)
			}
			if got.Num == mysql.ERUnknownError {
				t.Errorf("%v has no number", err)
			}
		}
	}
	if err := mysqlError(nil); err != nil {
		t.Error(err)
	}
	if err := mysqlError(io.EOF); err != io.EOF {
		t.Error(err)
	}
	if got := mysqlError(&catalog.DuplicateKeyError{Table: "t", Index: "u", Key: storage.Row{int32(1), nil, []byte("x")}}).Error(); got != "Duplicate entry '1-NULL-x' for key 't.u' (errno 1062) (sqlstate 23000)" {
		t.Error(got)
	}
}
