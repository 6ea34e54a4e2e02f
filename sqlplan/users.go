package sqlplan

import (
	"context"
	"fmt"

	"github.com/dolthub/go-mysql-server/sql"

	"github.com/lakesql/lakesql/catalog"
)

// Accounts and privileges are the front end's; the warehouse keeps them as one object.
const (
	kindGrant  = "grant"
	usersEntry = "users"
)

// userStore writes the accounts after each change.
type userStore struct{ c *catalog.Catalog }

func (u userStore) Persist(ctx *sql.Context, data []byte) error {
	return mysqlError(u.c.PutObject(ctx, kindGrant, "", usersEntry, data))
}

// loadUsers reads the accounts and sees to the one with all privileges. Its password is the one given at this start.
func (e *Engine) loadUsers(ctx context.Context, password string) error {
	db := e.sql.Analyzer.Catalog.MySQLDb
	db.SetPersister(userStore{e.catalog})
	for _, o := range e.catalog.Objects(kindGrant, "") {
		if o.Name != usersEntry {
			continue
		}
		if err := db.LoadData(e.NewContext(ctx), o.Body); err != nil {
			return fmt.Errorf("reading the accounts: %w", err)
		}
	}
	ed := db.Editor()
	defer ed.Close()
	for _, host := range []string{"localhost", "%"} {
		db.AddSuperUser(ed, e.user, host, password)
	}
	return nil
}
