package wire

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
)

// The server over a real warehouse: a table, a transaction, a load.
func TestServesCatalog(t *testing.T) {
	c, err := catalog.Open(context.Background(), "data", catalog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	admin := openDatabase(t, s, "")
	exec(t, admin, "CREATE DATABASE d")
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20), d DECIMAL(10,2))")
	exec(t, db, "INSERT INTO t VALUES (1,'a',1.10),(2,'b',2.20)")
	require.Equal(t, "3.30\t1.650000", table(t, db, "SELECT SUM(d), AVG(d) FROM t"))
	exec(t, db, "BEGIN")
	exec(t, db, "UPDATE t SET v = 'x' WHERE id = 1")
	exec(t, db, "ROLLBACK")
	require.Equal(t, "1\ta\n2\tb", table(t, db, "SELECT id, v FROM t WHERE id > ? ORDER BY id", 0))
	exec(t, db, "FLUSH PRIVILEGES")
}

// Statements in conflict are run again by the server: no increment is lost, and no client sees 1213.
func TestNoLostUpdates(t *testing.T) {
	c, err := catalog.Open(context.Background(), "data", catalog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	exec(t, openDatabase(t, s, ""), "CREATE DATABASE d")
	db := open(t, s, "")
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY, f INT)")
	exec(t, db, "INSERT INTO t VALUES (1, 0)")
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range 10 {
				var err error
				if i%2 == 0 {
					_, err = db.Exec("UPDATE t SET f = f + 1")
				} else {
					_, err = db.Exec("UPDATE t SET f = f + 1 WHERE id = ?", 1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, "640", table(t, db, "SELECT f FROM t"))
	t.Logf("%d statements were run again", s.Metrics.RerunsTotal.Load())
}

func BenchmarkLoadIntoCatalog(b *testing.B) {
	c, err := catalog.Open(context.Background(), b.TempDir(), catalog.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { c.Close(context.Background()) })
	s := testServer(b, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	exec(b, openDatabase(b, s, ""), "CREATE DATABASE d")
	db := open(b, s, "allowAllFiles=true")
	data := lineitem(200000)
	driver.RegisterReaderHandler("li", func() io.Reader { return bytes.NewReader(data) })
	rows := 0
	for b.Loop() {
		exec(b, db, "DROP TABLE IF EXISTS li")
		exec(b, db, lineitemTable)
		exec(b, db, "LOAD DATA LOCAL INFILE 'Reader::li' INTO TABLE li FIELDS TERMINATED BY '|'")
		rows += 200000
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
