package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopGrace is how long running statements may go on after a stop was asked for; then they are cancelled.
const stopGrace = 10 * time.Second

// service is what the server command drives: a warehouse and the wire server on it.
type service interface {
	Serve() error                       // accepts connections until Shutdown
	Addr() net.Addr                     // where it listens
	Shutdown(ctx context.Context) error // no new statements; running ones end, or are cancelled when ctx is
	Close(ctx context.Context) error    // flushes every table and marks the warehouse as cleanly stopped
}

func runServer(ctx context.Context, args []string, s streams) int {
	cfg, err := loadServerConfig(args, os.Getenv, s.out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(s.err, "lakesql server: %v\n", err)
		return 2
	}
	if err := serve(ctx, cfg, s, openService); err != nil {
		fmt.Fprintf(s.err, "lakesql server: %v\n", err)
		return 1
	}
	return 0
}

// serve runs one server from start to stop. It returns nil only after a clean stop: everything flushed.
func serve(ctx context.Context, cfg serverConfig, s streams, open func(context.Context, serverConfig, *slog.Logger) (service, error)) error {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: cfg.LogLevel}))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	lock, err := lockFolder(cfg.Data, cfg.Listen)
	if err != nil {
		return err
	}
	defer lock.release()
	svc, err := open(ctx, cfg, log)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is taken by another program; choose another address with --listen HOST:PORT (%w)", cfg.Listen, err)
		}
		return err
	}
	addr := svc.Addr()
	if err := lock.write(fmt.Sprintf("%d\n%s\n", os.Getpid(), addr)); err != nil {
		log.Warn("lock file not written", "err", err) // the lock itself holds
	}
	served := make(chan error, 1)
	go func() { served <- svc.Serve() }()
	fmt.Fprintf(s.out, "lakesql %s is ready: %s\n", versionText(), connectHint(addr, cfg))

	var ended error // why Serve ended, if nobody asked for it
	asked := false
	select {
	case sig := <-signals:
		asked = true
		log.Info("stopping", "signal", sig.String())
	case <-ctx.Done():
		asked = true
		log.Info("stopping", "cause", context.Cause(ctx))
	case ended = <-served:
	}
	// What was acknowledged has to reach the tables: no cancellation of the caller's reaches the stop.
	ctx = context.WithoutCancel(ctx)
	grace, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	go func() { // a second signal cancels the running statements at once; it never skips the flush
		select {
		case <-signals:
			log.Info("cancelling running statements")
			cancel()
		case <-grace.Done():
		}
	}()
	if err := svc.Shutdown(grace); err != nil {
		log.Warn("running statements were cancelled", "err", err)
	}
	if asked {
		if err := <-served; err != nil {
			log.Debug("listener closed", "err", err)
		}
	}
	if err := svc.Close(ctx); err != nil {
		return fmt.Errorf("not everything was flushed to the tables; what is missing waits in %s/state, keep it and start again: %w", cfg.Data, err)
	}
	log.Info("stopped", "data", cfg.Data)
	if ended != nil {
		return fmt.Errorf("serving %s: %w", addr, ended)
	}
	return nil
}

// connectHint is a command line that reaches the server with the stock client.
func connectHint(addr net.Addr, cfg serverConfig) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		host, port = addr.String(), ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	hint := fmt.Sprintf("mariadb -h %s -P %s -u %s", host, port, cfg.User)
	if cfg.Password != "" {
		hint += " -p"
	}
	return hint
}
