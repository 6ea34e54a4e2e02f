package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// removeTemps removes the unfinished files that a run which died left below the tables' folders. In a folder outside of the warehouse another
// server may be writing: there only old ones go.
func (c *Catalog) removeTemps(ctx context.Context) error {
	if err := c.removeTempsIn(ctx, c.root, time.Time{}); err != nil {
		return err
	}
	for _, t := range c.tablesByID() {
		if d := t.def.Load(); !strings.HasPrefix(d.dir, c.root+"/") {
			if err := c.removeTempsIn(ctx, d.dir, time.Now().Add(-pendingAge)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeTempsIn removes the unfinished files in a folder and those below it, if they were changed last before a time (zero: all).
func (c *Catalog) removeTempsIn(ctx context.Context, dir string, before time.Time) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	names, err := c.fs.List(c.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, n := range names {
		temp := strings.HasPrefix(n, storage.TempPrefix)
		if _, data := storage.ParseFileName(n); data && !temp {
			continue // most of what there is
		}
		full := join(dir, n)
		st, err := c.fs.Stat(c.path(full))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			return fmt.Errorf("look at %s: %w", full, err)
		case st.IsDir():
			if err := c.removeTempsIn(ctx, full, before); err != nil {
				return err
			}
		case temp && (before.IsZero() || st.ModTime().Before(before)):
			c.log.Warn("removed an unfinished file", "file", c.path(full))
			if err := c.store.Remove(ctx, full); err != nil {
				return err
			}
		}
	}
	return nil
}
