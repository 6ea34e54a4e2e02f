//go:build !lakesql_service

package main

import (
	"context"
	"errors"
	"log/slog"
)

func openService(context.Context, serverConfig, *slog.Logger) (service, error) {
	return nil, errors.New("this binary was built without the engine")
}
