package wire

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
)

// Statements on one row by its key, over one connection, in a table whose rows stand in files.
func BenchmarkPoints(b *testing.B) {
	c, err := catalog.Open(context.Background(), b.TempDir(), catalog.Options{SortKey: sqlplan.SortKey})
	require.NoError(b, err)
	b.Cleanup(func() { c.Close(context.Background()) })
	s := testServer(b, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	exec(b, openDatabase(b, s, ""), "CREATE DATABASE d")
	db := open(b, s, "")
	db.SetMaxOpenConns(1)
	exec(b, db, "CREATE TABLE kv (k BIGINT, grp INT, v BIGINT, s VARCHAR(40), PRIMARY KEY (k))")
	const rows = 10000
	for n := 0; n < rows; n += 1000 {
		text := "INSERT INTO kv VALUES "
		for k := n; k < n+1000; k++ {
			text += fmt.Sprintf("(%d,%d,%d,'name-%d'),", k, k%100, k, k)
		}
		exec(b, db, text[:len(text)-1])
	}
	exec(b, db, "FLUSH TABLES")
	for _, q := range []string{"SELECT v, s FROM kv WHERE k = ?", "UPDATE kv SET v = v + 1 WHERE k = ?", "INSERT INTO kv VALUES (?, 1, 2, 'three')"} {
		next := rows
		key := func(i int) int {
			if q[0] == 'I' {
				next++
				return next
			}
			return i * 7919 % rows
		}
		b.Run("text/"+q[:6], func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				text := fmt.Sprintf(q[:len(q)-len(after(q))-1]+"%d"+after(q), key(i))
				if q[0] != 'S' {
					_, err := db.Exec(text)
					require.NoError(b, err)
					continue
				}
				var v int64
				var name string
				require.NoError(b, db.QueryRow(text).Scan(&v, &name))
			}
		})
		b.Run("prepared/"+q[:6], func(b *testing.B) {
			st, err := db.Prepare(q)
			require.NoError(b, err)
			defer st.Close()
			if q[0] == 'I' {
				next += 1 << 20
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if q[0] != 'S' {
					_, err := st.Exec(key(i))
					require.NoError(b, err)
					continue
				}
				var v int64
				var name string
				require.NoError(b, st.QueryRow(key(i)).Scan(&v, &name))
			}
		})
	}
}

// The same over eight connections at once. CPU seconds of client and server are the figure to trust on a busy machine.
func BenchmarkPointsParallel(b *testing.B) {
	s := shortServer(b)
	exec(b, openDatabase(b, s, ""), "CREATE DATABASE d")
	db := open(b, s, "")
	exec(b, db, "CREATE TABLE kv (k BIGINT, grp INT, v BIGINT, s VARCHAR(40), PRIMARY KEY (k))")
	const rows, conns = 10000, 8
	for n := 0; n < rows; n += 1000 {
		text := "INSERT INTO kv VALUES "
		for k := n; k < n+1000; k++ {
			text += fmt.Sprintf("(%d,%d,%d,'name-%d'),", k, k%100, k, k)
		}
		exec(b, db, text[:len(text)-1])
	}
	exec(b, db, "FLUSH TABLES")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	var next atomic.Int64
	next.Store(rows)
	for _, q := range []string{"SELECT v FROM kv WHERE k = %d", "UPDATE kv SET v = v + 1 WHERE k = %d", "INSERT INTO kv VALUES (%d, 1, 2, 'three')"} {
		b.Run(q[:6], func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(conns / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					k := next.Add(1)
					if q[0] == 'S' {
						var v int64
						if err := db.QueryRow(fmt.Sprintf(q, k*7919%rows)).Scan(&v); err != nil {
							b.Error(err)
						}
						continue
					}
					if q[0] == 'U' {
						k = k * 7919 % rows
					}
					if _, err := db.Exec(fmt.Sprintf(q, k)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// after gives what follows a statement's parameter.
func after(q string) string {
	for i := range q {
		if q[i] == '?' {
			return q[i+1:]
		}
	}
	return ""
}
