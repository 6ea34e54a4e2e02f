package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/catalog/ingest"
	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// warehouse is a catalog with the runner that flushes its bins, the SQL engine and the wire server on it.
type warehouse struct {
	*wire.Server
	catalog *catalog.Catalog
	bins    *ingest.Runner
	engine  *sqlplan.Engine
}

// Close flushes every table and marks the warehouse as cleanly stopped.
func (w warehouse) Close(ctx context.Context) error {
	w.bins.Stop()
	return errors.Join(w.engine.Close(), w.catalog.Close(ctx))
}

// ballastBytes of the disk are given back when everything else is used up, so that the journal can still be written.
const ballastBytes = 64 << 20

// openService opens the warehouse of a data folder, which finishes what a crash left behind, and listens.
func openService(ctx context.Context, cfg serverConfig, log *slog.Logger) (_ service, err error) {
	m := planMemory(cfg.MemoryLimit, machineMemory())
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.goal)
	}
	c, err := catalog.Open(ctx, cfg.Data, catalog.Options{
		Logger: log, AcceptLostState: cfg.AcceptLostState, SortKey: sqlplan.SortKey, CacheBytes: m.cache, TxBytesMax: m.tx, HotBytesMax: m.hot, BallastBytes: ballastBytes,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(ctx))
		}
	}()
	e, err := sqlplan.NewEngine(ctx, c, sqlplan.Options{
		User: cfg.User, Password: cfg.Password, Version: versionText(),
		Function: wire.Functions(wire.ServerVersion(versionText())).Function,
	})
	if err != nil {
		return nil, err
	}
	s, err := wire.New(ctx, wire.Options{
		Listen: cfg.Listen, Socket: cfg.Socket, User: cfg.User, Password: cfg.Password, DataDir: cfg.Data, Logger: log, Version: versionText(),
		DrainTime: stopGrace, MemoryLimit: m.guard,
	}.Over(e))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.AddStatus(s.Status)
	return warehouse{s, c, ingest.Start(c, ingest.Options{Logger: log}), e}, nil
}
