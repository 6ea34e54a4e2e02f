package wire

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	gms "github.com/dolthub/go-mysql-server/sql"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
)

func loadServer(t *testing.T) *Server {
	c, err := catalog.Open(context.Background(), "data", catalog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	exec(t, openDatabase(t, s, ""), "CREATE DATABASE d")
	return s
}

// A client that goes away in the middle of its file has loaded nothing: the end of the connection is not that of the file.
func TestLoadLostClient(t *testing.T) {
	s := loadServer(t)
	db := open(t, s, "")
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
	exec(t, db, "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
	for _, q := range []string{"LOAD DATA LOCAL INFILE 'f' INTO TABLE t", "LOAD DATA LOCAL INFILE 'f' INTO TABLE u (id, @v) SET v = @v + 1"} {
		for _, rows := range []int{3, 30000} {
			c := dialRaw(t, s)
			c.send(0, append([]byte{3}, q...))
			require.Equal(t, byte(0xfb), c.packet()[0])
			var b strings.Builder
			for i := range rows {
				fmt.Fprintf(&b, "%d\t%d\n", i, i)
			}
			c.send(2, []byte(b.String()[:b.Len()/2]))
			c.send(3, []byte(b.String()[b.Len()/2:]))
			time.Sleep(20 * time.Millisecond)
			require.EqualValues(t, 1, s.Metrics.StatementsRunning.Load())
			c.c.Close()
			require.Eventually(t, func() bool { return s.Metrics.StatementsRunning.Load() == 0 }, 5*time.Second, time.Millisecond)
		}
	}
	require.Equal(t, "0\t0", table(t, db, "SELECT (SELECT COUNT(*) FROM t), (SELECT COUNT(*) FROM u)"))
	require.NotZero(t, s.Metrics.DirectTotal.Load())
}

// KILL ends a load at once, though the client sends nothing.
func TestLoadKilled(t *testing.T) {
	s := loadServer(t)
	db := open(t, s, "")
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
	c := dialRaw(t, s)
	c.send(0, append([]byte{3}, "LOAD DATA LOCAL INFILE 'f' INTO TABLE t"...))
	require.Equal(t, byte(0xfb), c.packet()[0])
	var first strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&first, "%d\t1\n", i+100)
	}
	c.send(2, []byte(first.String()+"1\t1\n2\t2\n3"))
	var id string
	require.Eventually(t, func() bool {
		id = table(t, db, "SELECT id FROM information_schema.processlist WHERE info LIKE 'LOAD%'")
		return id != ""
	}, 5*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		return table(t, db, "SELECT state FROM information_schema.processlist WHERE id = "+id) == "executing; t: 8192 rows so far"
	}, 5*time.Second, 5*time.Millisecond)
	exec(t, db, "KILL QUERY "+id)
	time.Sleep(10 * time.Millisecond)
	c.send(3, []byte("\t3\n4\t4\n"))
	c.send(4, nil)
	r := c.result()
	require.EqualValues(t, 1317, r.errno, r.message)
	require.Equal(t, "0", table(t, db, "SELECT COUNT(*) FROM t"))
	require.EqualValues(t, 0, c.query("SELECT 1").errno)
}

// A field is not held beyond max_allowed_packet, however it is written; a line may be longer, and so may text that is skipped.
func TestLoadLongFields(t *testing.T) {
	s := loadServer(t)
	db := open(t, s, "allowAllFiles=true&maxAllowedPacket=4194304")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT, b LONGTEXT)")
	_, old, _ := gms.SystemVariables.GetGlobal("max_allowed_packet")
	exec(t, db, "SET GLOBAL max_allowed_packet = 1048576")
	t.Cleanup(func() {
		require.NoError(t, gms.SystemVariables.AssignValues(map[string]any{"max_allowed_packet": old}))
	})
	db = open(t, s, "allowAllFiles=true&maxAllowedPacket=4194304")
	long := strings.Repeat("x", 3<<20)
	for _, line := range []string{"1\t" + long, "1\t\\n" + long, "1\t\"" + long + "\"\n"} {
		driver.RegisterReaderHandler("f", func() io.Reader { return strings.NewReader(line) })
		_, err := db.Exec("LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t FIELDS TERMINATED BY '\t' OPTIONALLY ENCLOSED BY '\"'")
		var e *driver.MySQLError
		require.ErrorAs(t, err, &e)
		require.EqualValues(t, 1153, e.Number, e.Message)
	}
	require.Equal(t, "0", table(t, db, "SELECT COUNT(*) FROM t"))
	half := long[:700<<10]
	driver.RegisterReaderHandler("f", func() io.Reader {
		return strings.NewReader(long + "\n1\t" + half + "\t" + half + "\t" + long + "\n2\ta\tb\n")
	})
	exec(t, db, "LOAD DATA LOCAL INFILE 'Reader::f' INTO TABLE t IGNORE 1 LINES")
	require.Equal(t, "1\t716800\t716800\n2\t1\t1", table(t, db, "SELECT id, LENGTH(a), LENGTH(b) FROM t ORDER BY id"))
}
