package wire

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lakesql/lakesql/catalog"
)

// lockServer serves a warehouse in memory.
func lockServer(t *testing.T) (*catalog.Catalog, *Server) {
	c, err := catalog.Open(context.Background(), "data", catalog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c, testServer(t, func(o *Options) {
		*o = Options{Catalog: c, Listen: o.Listen, DrainTime: o.DrainTime}
	})
}

// COM_CHANGE_USER of the account that is logged in gives a fresh session in the database that it names; its locks and its
// transaction are gone.
func TestChangeUser(t *testing.T) {
	_, s := lockServer(t)
	setup := openDatabase(t, s, "")
	exec(t, setup, "CREATE DATABASE d")
	exec(t, setup, "CREATE DATABASE other")
	exec(t, setup, "CREATE TABLE d.t (id INT PRIMARY KEY)")
	c := dialRaw(t, s)
	for _, q := range []string{"SET @x = 1", "DO GET_LOCK('a', 0)", "BEGIN", "INSERT INTO t VALUES (1)"} {
		r := c.query(q)
		require.Zero(t, r.errno, r.message)
	}
	r := c.command([]byte("\x11root\x00\x00other\x00\xff\x00mysql_native_password\x00"))
	require.Zero(t, r.errno, r.message)
	require.Equal(t, uint16(2), r.status)
	require.Equal(t, "other\t1\t1", c.text("SELECT DATABASE(), @x IS NULL, IS_FREE_LOCK('a')"))
	require.Equal(t, "0", table(t, setup, "SELECT COUNT(*) FROM d.t"))

	// Another account, or another answer to the challenge, is refused, and the session goes on.
	for _, p := range []string{"\x11nobody\x00\x00other\x00", "\x11root\x00\x03abcd\x00", "\x11root"} {
		require.Equal(t, uint16(1235), c.command([]byte(p)).errno)
		require.Equal(t, "other", c.text("SELECT DATABASE()"))
	}
	r = c.command([]byte("\x11root\x00\x00\x00"))
	require.Zero(t, r.errno, r.message)
	require.Equal(t, "1", c.text("SELECT DATABASE() IS NULL"))
	r = c.command([]byte("\x11root\x00\x00nope\x00"))
	require.Equal(t, uint16(1049), r.errno, r.message)
}
