package wire

import (
	"context"
	"errors"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// openEngine fills in what Options.Catalog stands for: an engine over the
// catalog, its sessions, and what the protocol must know of the layers below.
func openEngine(ctx context.Context, o Options) (Options, *sqlplan.Engine, error) {
	e, err := sqlplan.NewEngine(ctx, o.Catalog, sqlplan.Options{
		User:     o.User,
		Password: o.Password,
		Function: Functions(o.version()).Function,
	})
	if err != nil {
		return o, nil, err
	}
	return o.Over(e), e, nil
}

// Over fills in what the protocol must know of an engine.
func (o Options) Over(e *sqlplan.Engine) Options {
	o.Engine, o.NewSession, o.NewContext, o.Query, o.Short = e.SQL(), e.NewSession, e.NewContext, e.QueryWithBindings, e.Short
	if o.Retryable == nil {
		o.Retryable = func(err error) bool { return errors.Is(err, catalog.ErrConflict) }
	}
	if o.Replans == nil {
		o.Replans = sqlplan.Replans
	}
	if o.MapError == nil {
		o.MapError = dialect.ClientError
	}
	if o.WrapListener == nil {
		o.WrapListener = dialect.Listener
	}
	return o
}
