package catalog

import (
	"context"
	"fmt"
	"time"
)

// unmoved is a decided change of definitions whose folders could not be moved. Until they are, its tables cannot be used where it puts
// them, and nothing is written: FinishMoves, which the ingest runner calls, the next change or the next start moves them.
type unmoved struct {
	steps  *folderSteps
	tables []*Table
	then   func(context.Context) error // what follows the moves
}

// moveWait is how long a move of folders that failed waits before it is tried again, twice as long each time.
const moveWait = 10 * time.Millisecond

// moveThen makes the moves of a decision and then what follows from them; called with ddl held.
func (c *Catalog) moveThen(ctx context.Context, u *unmoved) error {
	err := c.moveFolders(ctx, u.steps)
	for wait := moveWait; err != nil && wait < 8*moveWait; wait *= 2 {
		c.log.Warn("move table folders; it is tried again", "err", err)
		time.Sleep(wait)
		err = c.moveFolders(ctx, u.steps)
	}
	if err != nil {
		return c.putOff(u, err)
	}
	return u.then(ctx)
}

// putOff stops writes until the folders are moved.
func (c *Catalog) putOff(u *unmoved, err error) error {
	err = fmt.Errorf("move table folders: %w", err)
	c.stepsLeft = true
	c.unmoved.Store(u)
	c.fail(err)
	c.commitMu.Lock()
	u.steps.failure = c.failed
	c.commitMu.Unlock()
	return err
}

// FinishMoves moves folders that could not be moved when their change was decided, if there are any. Writes go on then.
func (c *Catalog) FinishMoves(ctx context.Context) error {
	u := c.unmoved.Load()
	if u == nil {
		return nil
	}
	release, err := lockDefinitions(ctx, u.tables)
	if err != nil {
		return err
	}
	defer release()
	c.ddl.Lock()
	defer c.ddl.Unlock()
	if c.unmoved.Load() != u {
		return nil
	}
	c.commitMu.Lock()
	if c.failed == u.steps.failure {
		c.failed = nil // the tables are locked: nobody writes to them
	}
	stopped := c.failed
	c.commitMu.Unlock()
	if stopped != nil {
		return stopped
	}
	ctx = context.WithoutCancel(ctx)
	if err := c.moveFolders(ctx, u.steps); err != nil {
		return c.putOff(u, err)
	}
	c.unmoved.Store(nil)
	c.log.Info("moved table folders, writes go on")
	return u.then(ctx)
}
