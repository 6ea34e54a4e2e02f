package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func envOf(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestServerConfigSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lakesql.toml")
	require.NoError(t, os.WriteFile(file, []byte(`# where things are
data = "/srv/lake"          # a comment
listen = '127.0.0.1:4000'
log_level = warn
password = "a \"b\" # c"
`), 0o644))

	c, err := loadServerConfig(nil, envOf(nil), io.Discard)
	require.NoError(t, err)
	require.Equal(t, serverConfig{Data: "./lakesql-data", Listen: "127.0.0.1:3306", User: "root", LogLevel: slog.LevelInfo}, c)

	env := map[string]string{"LAKESQL_CONFIG": file, "LAKESQL_LISTEN": "127.0.0.1:5000", "LAKESQL_ACCEPT_LOST_STATE": "true"}
	c, err = loadServerConfig([]string{"--data", "/tmp/x"}, envOf(env), io.Discard)
	require.NoError(t, err)
	require.Equal(t, serverConfig{
		Data: "/tmp/x", Listen: "127.0.0.1:5000", User: "root", Password: `a "b" # c`,
		LogLevel: slog.LevelWarn, AcceptLostState: true,
	}, c)

	c, err = loadServerConfig([]string{"--accept-lost-state", "--config", file}, envOf(nil), io.Discard)
	require.NoError(t, err)
	require.True(t, c.AcceptLostState)
	require.Equal(t, "/srv/lake", c.Data)
}

func TestServerConfigErrors(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "c.toml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return file
	}
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:3306"}, nil, "set a password"},
		{[]string{"--listen", ":3306"}, nil, "set a password"},
		{nil, map[string]string{"LAKESQL_LISTEN": "[::]:3306"}, "set a password"},
		{[]string{"--listen", "3306"}, nil, "is not HOST:PORT"},
		{[]string{"--log-level", "loud"}, nil, `--log-level: "loud" is not`},
		{nil, map[string]string{"LAKESQL_LOG_LEVEL": "loud"}, `LAKESQL_LOG_LEVEL: "loud" is not`},
		{[]string{"now"}, nil, `unexpected argument "now"`},
		{[]string{"--config", "/does/not/exist"}, nil, "no such file"},
		{[]string{"--config", write("data = x\nprot = 1\n")}, nil, `:2: unknown option "prot"`},
		{[]string{"--config", write("data = x\ndata = y\n")}, nil, ":2: data is set on line 1 already"},
		{[]string{"--config", write("data = \"x\n")}, nil, ":1: data: the quote is not closed"},
		{[]string{"--config", write("data\n")}, nil, ":1: not `name = value`"},
		{[]string{"--config", write("log-level = loud\n")}, nil, `:1: log-level: "loud" is not`},
	} {
		_, err := loadServerConfig(c.args, envOf(c.env), io.Discard)
		require.ErrorContains(t, err, c.want, "%v %v", c.args, c.env)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:3306", "localhost:3306"} {
		_, err := loadServerConfig([]string{"--listen", addr}, envOf(nil), io.Discard)
		require.NoError(t, err, addr)
	}
	_, err := loadServerConfig([]string{"--listen", "0.0.0.0:3306", "--password", "x"}, envOf(nil), io.Discard)
	require.NoError(t, err)
}

func TestServerHelp(t *testing.T) {
	var out bytes.Buffer
	_, err := loadServerConfig([]string{"--help"}, envOf(nil), &out)
	require.True(t, errors.Is(err, flag.ErrHelp))
	for _, s := range serverSettings() {
		require.Contains(t, out.String(), "-"+s.name)
	}
}
