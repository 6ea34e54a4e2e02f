//go:build lakesql_service

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lakesql/lakesql/catalog"
	_ "github.com/lakesql/lakesql/sqlplan/driver" // registers the database/sql driver "lakesql"
	"github.com/lakesql/lakesql/sqlplan/wire"
)

// warehouse is a catalog and the wire server on it.
type warehouse struct {
	*wire.Server
	catalog *catalog.Catalog
}

func (w warehouse) Close(ctx context.Context) error { return w.catalog.Close(ctx) }

// openService opens the warehouse of a data folder, which finishes what a crash left behind, and listens.
func openService(ctx context.Context, cfg serverConfig, log *slog.Logger) (service, error) {
	c, err := catalog.Open(ctx, cfg.Data, catalog.Options{Logger: log, AcceptLostState: cfg.AcceptLostState})
	if err != nil {
		return nil, err
	}
	s, err := wire.New(ctx, wire.Options{
		Catalog:  c,
		Listen:   cfg.Listen,
		Socket:   cfg.Socket,
		User:     cfg.User,
		Password: cfg.Password,
		DataDir:  cfg.Data,
		Logger:   log,
		Version:  versionText(),
	})
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return warehouse{s, c}, nil
}
