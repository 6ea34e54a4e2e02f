package wire

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// D8: statements that change one table at the same time follow one another: each one's column is there, and no value moved.
func TestAlterTogether(t *testing.T) {
	ctx := context.Background()
	_, srv := lockServer(t)
	db := openDatabase(t, srv, "")
	exec := func(q string) {
		_, err := db.ExecContext(ctx, q)
		require.NoError(t, err, q)
	}
	exec("CREATE DATABASE alters")
	exec("CREATE TABLE alters.t (id INT PRIMARY KEY, v INT)")
	exec("INSERT INTO alters.t VALUES (1, 10), (2, 20)")
	tx, err := db.BeginTx(ctx, nil) // all wait for it, and plan before it ends
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "UPDATE alters.t SET v = v + 1")
	require.NoError(t, err)
	const n = 6
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			q := fmt.Sprintf("ALTER TABLE alters.t ADD COLUMN c%d INT", i)
			if i%2 == 1 { // rewrites the table
				q += fmt.Sprintf(" NOT NULL DEFAULT %d FIRST", i)
			}
			_, errs[i] = db.ExecContext(ctx, q)
		})
	}
	waiting := 0
	require.Eventually(t, func() bool {
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE alters.t%' AND state LIKE 'Waiting%'").Scan(&waiting)
		return err == nil && waiting == n
	}, 20*time.Second, 5*time.Millisecond, "%d wait", waiting)
	require.NoError(t, tx.Commit())
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	rows, err := db.QueryContext(ctx, "SELECT id, v, c0, c1, c2, c3, c4, c5 FROM alters.t ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	id := 0
	for rows.Next() {
		var v [8]*int
		require.NoError(t, rows.Scan(&v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]))
		id++
		require.Equal(t, id, *v[0])
		require.Equal(t, 10*id+1, *v[1])
		for i, c := range v[2:] {
			if i%2 == 1 {
				require.Equal(t, i, *c)
			} else {
				require.Nil(t, c)
			}
		}
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 2, id)
	var found string
	require.NoError(t, db.QueryRowContext(ctx, "CHECK TABLE alters.t EXTENDED").Scan(new(string), new(string), new(string), &found))
	require.Equal(t, "OK", found)
}
