package wire

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
)

// Upserts of 1,000 rows a statement, nine of ten keys there already, into a table whose rows stand in files.
func BenchmarkUpserts(b *testing.B) {
	for _, direct := range []int{0, 1} {
		b.Run(fmt.Sprintf("direct=%d", direct), func(b *testing.B) { benchmarkUpserts(b, direct) })
	}
}

func benchmarkUpserts(b *testing.B, direct int) {
	c, err := catalog.Open(context.Background(), b.TempDir(), catalog.Options{SortKey: sqlplan.SortKey})
	require.NoError(b, err)
	b.Cleanup(func() { c.Close(context.Background()) })
	s := testServer(b, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
	exec(b, openDatabase(b, s, ""), "CREATE DATABASE d")
	db := open(b, s, "")
	db.SetMaxOpenConns(1)
	exec(b, db, "CREATE TABLE kv (k BIGINT, grp INT, v BIGINT, d DECIMAL(12,2), s VARCHAR(40), ts DATETIME(6), PRIMARY KEY (k))")
	exec(b, db, fmt.Sprintf("SET lakesql_direct_write = %d", direct))
	const rows = 100000
	rng := rand.New(rand.NewPCG(1, 1))
	statement := func(key func(i int) int) string {
		var t strings.Builder
		t.WriteString("INSERT INTO kv (k,grp,v,d,s,ts) VALUES ")
		for i := range 1000 {
			if i > 0 {
				t.WriteByte(',')
			}
			k := key(i)
			fmt.Fprintf(&t, "(%d,%d,%d,%d.%02d,'name-%d-%d','2026-01-02 03:04:05.%06d')", k, k%100, rng.IntN(1e9), rng.IntN(1e6), rng.IntN(100), k, rng.IntN(1000), rng.IntN(1e6))
		}
		t.WriteString(" ON DUPLICATE KEY UPDATE grp=VALUES(grp), v=VALUES(v), d=VALUES(d), s=VALUES(s), ts=VALUES(ts)")
		return t.String()
	}
	for n := range rows / 1000 {
		exec(b, db, statement(func(i int) int { return n*1000 + i }))
	}
	exec(b, db, "FLUSH TABLES")
	next := rows
	var texts []string
	for range 100 {
		seen := map[int]bool{}
		texts = append(texts, statement(func(i int) int {
			if i%10 == 0 {
				next++
				return next
			}
			for {
				if k := rng.IntN(rows); !seen[k] {
					seen[k] = true
					return k
				}
			}
		}))
	}
	b.ResetTimer()
	n := 0
	for b.Loop() {
		exec(b, db, texts[n%len(texts)])
		n++
	}
	b.ReportMetric(float64(n*1000)/b.Elapsed().Seconds(), "rows/s")
}
