package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExactTotals(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	exec(t, db, "CREATE TABLE t (k INT, b BIGINT, d DECIMAL(10,2), f DOUBLE, u BIGINT UNSIGNED, s VARCHAR(10))")
	exec(t, db, `INSERT INTO t VALUES (1,9007199254740993,1.10,0.5,18446744073709551615,'1'),(1,1,2.20,0.25,1,'2x'),(2,-5,NULL,NULL,NULL,NULL),(2,9223372036854775807,0.01,1,2,'3'),(2,9223372036854775807,0.01,1,2,'3')`)
	for _, tc := range []struct{ query, want string }{
		{"SELECT SUM(b) FROM t WHERE k = 1", "9007199254740994"},
		{"SELECT SUM(b) FROM t WHERE k = 2", "18446744073709551609"},
		{"SELECT SUM(u) FROM t", "18446744073709551620"},
		{"SELECT SUM(d), AVG(d) FROM t", "3.32\t0.830000"},
		{"SELECT AVG(k) FROM t", "1.6000"},
		{"SELECT AVG(b) FROM t WHERE k = 1", "4503599627370497.0000"},
		{"SELECT SUM(f), AVG(f) FROM t", "2.75\t0.6875"},
		{"SELECT SUM(s) FROM t", "9"},
		{"SELECT SUM(b), AVG(d), SUM(f) FROM t WHERE k = 9", "\\N\t\\N\t\\N"},
		{"SELECT SUM(DISTINCT d), AVG(DISTINCT d), SUM(DISTINCT k) FROM t", "3.31\t1.103333\t3"},
		{"SELECT k, SUM(k) FROM t GROUP BY k ORDER BY SUM(k)", "1\t2\n2\t6"},
		{"SELECT k FROM t GROUP BY k HAVING SUM(d) > 1", "1"},
		{"SELECT SUM(d * 2), SUM(d) / 2, SUM(k + 1) FROM t", "6.64\t1.660000\t13"},
		{"SELECT k, d, SUM(d) OVER (PARTITION BY k ORDER BY b ROWS UNBOUNDED PRECEDING) FROM t WHERE k = 1 ORDER BY b", "1\t2.20\t2.20\n1\t1.10\t3.30"},
		{"SELECT SUM(b) OVER (PARTITION BY k) FROM t WHERE k = 2", "18446744073709551609\n18446744073709551609\n18446744073709551609"},
		{"SELECT AVG(d) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t WHERE k = 2", "\\N\n0.010000\n0.010000"},
		{"SELECT SUM(x) FROM (SELECT 0.1 AS x UNION ALL SELECT 0.2) q", "0.3"},
		{"SELECT SUM(1), AVG(1)", "1\t1.0000"},
		{"SELECT SUM(k = 1) FROM t", "2"},
	} {
		t.Run(tc.query, func(t *testing.T) {
			require.Equal(t, tc.want, table(t, db, tc.query))
		})
	}
	require.Equal(t, "18446744073709551609", table(t, db, "SELECT SUM(b) FROM t WHERE k = ?", 2))
}

func TestAddedFunctions(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	for _, tc := range []struct{ query, want string }{
		{"SELECT MAKEDATE(2024,60), MAKEDATE(2023,60), MAKEDATE(2024,0), MAKEDATE(69,1), MAKEDATE(NULL,1)", "2024-02-29\t2023-03-01\t\\N\t2069-01-01\t\\N"},
		{"SELECT UTC_DATE() = DATE(UTC_TIMESTAMP())", "1"},
		{"SELECT PERIOD_ADD(200801,2), PERIOD_ADD(9912,1), PERIOD_DIFF(200802,200703), PERIOD_ADD(NULL,1)", "200803\t200001\t11\t\\N"},
		{"SELECT SESSION_USER() = USER(), SYSTEM_USER() = USER()", "1\t1"},
		{"SELECT BENCHMARK(10, 1+1), BENCHMARK(NULL, 1), BENCHMARK(-1, 1)", "0\t\\N\t\\N"},
		{"SELECT STR_TO_DATE(NULL,'%Y'), STR_TO_DATE('2024-01-02','%Y-%m-%d'), STR_TO_DATE('2024-01-02',NULL), STR_TO_DATE(20240102,'%Y%m%d')", "\\N\t2024-01-02\t\\N\t2024-01-02"},
		{"SELECT VERSION()", ServerVersion("dev")},
	} {
		t.Run(tc.query, func(t *testing.T) {
			require.Equal(t, tc.want, table(t, db, tc.query))
		})
	}
	require.Regexp(t, `^\d\d:\d\d:\d\d$`, table(t, db, "SELECT UTC_TIME()"))
}
