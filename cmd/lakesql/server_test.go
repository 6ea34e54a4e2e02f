package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeService stands for catalog and wire server, so that start and stop are tested alone.
type fakeService struct {
	net.Listener
	done       chan struct{}
	once       sync.Once
	closeErr   error
	closed     bool
	shutdownOf func(context.Context) error
}

func (f *fakeService) Serve() error { <-f.done; return nil }

func (f *fakeService) Shutdown(ctx context.Context) error {
	f.once.Do(func() { close(f.done) })
	if f.shutdownOf != nil {
		return f.shutdownOf(ctx)
	}
	return nil
}

func (f *fakeService) Close(context.Context) error {
	f.closed = true
	f.Listener.Close()
	return f.closeErr
}

func openFake(f *fakeService) func(context.Context, serverConfig, *slog.Logger) (service, error) {
	return func(_ context.Context, cfg serverConfig, _ *slog.Logger) (service, error) {
		var err error
		if f.Listener, err = net.Listen("tcp", cfg.Listen); err != nil {
			return nil, err
		}
		f.done = make(chan struct{})
		return f, nil
	}
}

// output is a buffer that one goroutine writes and another reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func TestServeStartAndStop(t *testing.T) {
	dir := t.TempDir()
	cfg := serverConfig{Data: dir, Listen: "127.0.0.1:0", User: "root"}
	var out, log output
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &fakeService{}
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, streams{nil, &out, &log}, openFake(f)) }()
	waitFor(t, "the ready line", func() bool { return strings.Contains(out.String(), "\n") })
	addr := f.Addr().(*net.TCPAddr)
	require.Contains(t, out.String(), fmt.Sprintf("is ready: mariadb -h 127.0.0.1 -P %d -u root\n", addr.Port))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))

	// A second process (a second descriptor is as good) is told who has the folder.
	err := serve(ctx, cfg, streams{nil, &out, &log}, openFake(&fakeService{}))
	var used *folderInUseError
	require.ErrorAs(t, err, &used)
	require.Equal(t, &folderInUseError{dir, fmt.Sprint(os.Getpid()), addr.String()}, used)

	cancel()
	require.NoError(t, <-ended)
	require.True(t, f.closed)
	pid, at := readLock(dir)
	require.Empty(t, pid+at)

	lock, err := lockFolder(dir, "x")
	require.NoError(t, err)
	lock.release()
}

func TestServeTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := serverConfig{Data: t.TempDir(), Listen: l.Addr().String(), User: "root"}
	err = serve(context.Background(), cfg, streams{nil, &output{}, &output{}}, openFake(&fakeService{}))
	require.ErrorContains(t, err, "--listen")
	require.ErrorContains(t, err, l.Addr().String())
}

func TestServeFailedFlush(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cfg := serverConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", User: "root"}
	f := &fakeService{closeErr: errors.New("no space left on device")}
	err := serve(ctx, cfg, streams{nil, &output{}, &output{}}, openFake(f))
	require.ErrorContains(t, err, "not everything was flushed")
	require.ErrorContains(t, err, "no space left on device")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{nil, 2, "", "Usage:"},
		{[]string{"help"}, 0, "Usage:", ""},
		{[]string{"version"}, 0, "lakesql ", ""},
		{[]string{"serve"}, 2, "", `unknown command "serve"`},
		{[]string{"server", "--help"}, 0, "LAKESQL_<FLAG>", ""},
		{[]string{"server", "--port", "1"}, 2, "", "flag provided but not defined"},
		{[]string{"sql", "--help"}, 0, "-execute", ""},
		{[]string{"sql", "--data", "x", "--host", "y"}, 2, "", "give one of them"},
		{[]string{"sql", "--json", "--csv"}, 2, "", "give one of"},
		{[]string{"sql", "--port", "1", "-e", "SELECT 1"}, 1, "", "ERROR 2003 (HY000): cannot connect to the server at 127.0.0.1:1"},
	} {
		var out, err output
		require.Equal(t, c.code, run(context.Background(), c.args, streams{strings.NewReader(""), &out, &err}), "%v: %s", c.args, err.String())
		require.Contains(t, out.String(), c.out)
		require.Contains(t, err.String(), c.err)
		if c.err == "" {
			require.Empty(t, err.String())
		}
	}
}
