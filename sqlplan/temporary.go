package sqlplan

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// temporaries are the temporary tables of one session. They live in a catalog in memory that all sessions of the engine
// share, under a database for each session and database, so they have everything that tables have.
type temporaries struct {
	catalog *catalog.Catalog
	session uint32
	dbs     map[string]bool // databases that were made, by lower-case name
}

// temporaryCatalog gives the catalog in memory and opens it at first.
func (e *Engine) temporaryCatalog(ctx context.Context) (*catalog.Catalog, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.temps == nil {
		c, err := catalog.Open(ctx, "temporary", catalog.Options{FS: vfs.NewMem(), SortKey: SortKey, DropRetention: -1})
		if err != nil {
			return nil, fmt.Errorf("opening the catalog of temporary tables: %w", err)
		}
		e.temps = c
	}
	return e.temps, nil
}

// database gives the name under which the session's tables of a database stand.
func (t *temporaries) database(db string) string {
	return fmt.Sprintf("s%d_%s", t.session, strings.ToLower(db))
}

func (t *temporaries) table(db, name string) (*catalog.Table, bool) {
	if !t.dbs[strings.ToLower(db)] {
		return nil, false
	}
	return t.catalog.Table(t.database(db), name)
}

func (t *temporaries) names(db string) []string {
	if !t.dbs[strings.ToLower(db)] {
		return nil
	}
	return t.catalog.TableNames(t.database(db))
}

func (t *temporaries) drop(ctx context.Context, db, name string) error {
	return t.catalog.DropTable(ctx, t.database(db), name)
}

func (t *temporaries) rename(ctx context.Context, db, from, to string) error {
	return t.catalog.RenameTable(ctx, t.database(db), from, t.database(db), to)
}

func (t *temporaries) dropDatabase(ctx context.Context, db string) error {
	if !t.dbs[strings.ToLower(db)] {
		return nil
	}
	delete(t.dbs, strings.ToLower(db))
	return t.catalog.DropDatabase(ctx, t.database(db))
}

// close drops all of the session's tables.
func (t *temporaries) close() {
	for db := range t.dbs {
		// Nobody sees the tables any more, and the memory goes with the engine at the latest.
		_ = t.catalog.DropDatabase(context.Background(), t.database(db))
	}
	t.dbs = nil
}

// createTemporary makes a temporary table.
func (d *database) createTemporary(ctx *sql.Context, name string, spec catalog.TableSpec) error {
	s := sessionOf(ctx)
	if s.temps == nil {
		c, err := d.engine.temporaryCatalog(ctx)
		if err != nil {
			return mysqlError(err)
		}
		s.temps = &temporaries{catalog: c, session: s.ID(), dbs: map[string]bool{}}
	}
	if key := strings.ToLower(d.name); !s.temps.dbs[key] {
		err := s.temps.catalog.CreateDatabase(ctx, s.temps.database(d.name), nil)
		if err != nil && !errors.Is(err, catalog.ErrExists) {
			return mysqlError(err)
		}
		s.temps.dbs[key] = true
	}
	_, err := s.temps.catalog.CreateTable(ctx, s.temps.database(d.name), name, spec)
	if errors.Is(err, catalog.ErrExists) {
		return sql.ErrTableAlreadyExists.New(name)
	}
	return mysqlError(err)
}

// closeTemporary ends the session's transaction over temporary tables before one of them changes its shape: its changes
// are kept, since MySQL does not roll back what a statement such as DROP TEMPORARY TABLE has passed.
func (s *Session) closeTemporary(t *catalog.Table) {
	if s.tx == nil || s.temps == nil {
		return
	}
	if tx := s.tx.txs[s.temps.catalog]; tx != nil {
		delete(s.tx.txs, s.temps.catalog)
		if tx.Writes() {
			_ = tx.Commit(context.Background()) // nobody else writes these tables, so there is no conflict
		} else {
			tx.Rollback()
		}
	}
}
