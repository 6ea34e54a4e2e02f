package timeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lakesql/lakesql/storage"
)

const heartbeatFolder = ".heartbeat"

// A writer of Hudi touches its heartbeat every minute and counts as dead after two minutes without.
const (
	HeartbeatEvery   = 20 * time.Second // how often a writer of ours touches its own
	heartbeatExpires = 2 * time.Minute
)

// Beat says that the writer of an instant is alive: writers that clean up lazily (hoodie.cleaner.policy.failed.writes=LAZY) leave its files
// alone for two minutes. The first one comes before the instant is requested.
func Beat(ctx context.Context, s storage.Store, dir string, t storage.InstantTime) error {
	name := join(dir, metaFolder, heartbeatFolder, string(t))
	err := s.PutBrief(ctx, name, nil)
	if errors.Is(err, storage.ErrExist) {
		err = s.Replace(ctx, name, nil)
	}
	if err != nil {
		return fmt.Errorf("heartbeat of %s: %w", t, err)
	}
	return nil
}

// EndBeat removes the heartbeat of an instant that is completed or undone.
func EndBeat(ctx context.Context, s storage.Store, dir string, t storage.InstantTime) error {
	if err := s.RemoveBrief(ctx, join(dir, metaFolder, heartbeatFolder, string(t))); err != nil {
		return fmt.Errorf("ending the heartbeat of %s: %w", t, err)
	}
	return nil
}

// RemoveBeat is EndBeat that lasts.
func RemoveBeat(ctx context.Context, s storage.Store, dir string, t storage.InstantTime) error {
	if err := s.Remove(ctx, join(dir, metaFolder, heartbeatFolder, string(t))); err != nil {
		return fmt.Errorf("ending the heartbeat of %s: %w", t, err)
	}
	return nil
}

// ClearEnded removes heartbeats and markers of instants that have ended, for good: their writer may have died before it did, and EndBeat
// leaves it to the file system when its removal lasts.
func ClearEnded(ctx context.Context, s storage.Store, dir string, ended func(storage.InstantTime) bool) error {
	var names []string
	for _, folder := range []string{heartbeatFolder, ".temp"} {
		for info, err := range s.List(ctx, join(dir, metaFolder, folder)) {
			if err != nil {
				return fmt.Errorf("listing heartbeats and markers: %w", err)
			}
			if !ended(storage.InstantTime(info.Name)) {
				continue
			}
			name := join(dir, metaFolder, folder, info.Name)
			if info.Dir {
				name += "/"
			}
			names = append(names, name)
		}
	}
	if err := s.Remove(ctx, names...); err != nil {
		return fmt.Errorf("ending heartbeats and markers: %w", err)
	}
	return nil
}

// Beating gives the instants whose heartbeat was touched within two minutes before now.
func Beating(ctx context.Context, s storage.Store, dir string, now time.Time) (map[storage.InstantTime]bool, error) {
	out := map[storage.InstantTime]bool{}
	for info, err := range s.List(ctx, join(dir, metaFolder, heartbeatFolder)) {
		if err != nil {
			return nil, fmt.Errorf("listing heartbeats: %w", err)
		}
		if !info.Dir && now.Sub(info.ModTime) <= heartbeatExpires {
			out[storage.InstantTime(info.Name)] = true
		}
	}
	return out, nil
}
