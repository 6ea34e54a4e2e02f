package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// Pending is an instant that was begun and is neither completed nor rolled back.
type Pending struct {
	Instant
	Zone   *time.Location // of the table's timeline; nil: UTC
	store  storage.Store
	dir    string
	marked map[string]bool // data files that Mark announced: object names
}

// Begin makes an instant: its requested file, then its inflight file. The plan of a clean, a compaction, a rollback or a
// replacecommit stands in the requested file; a nil one is left empty, but for a replacecommit, where Hudi wants a record of
// nulls. A savepoint has no requested state. The error wraps ErrConflict if there is such an instant already.
func Begin(ctx context.Context, s storage.Store, dir string, a Action, t storage.InstantTime, plan []byte) (*Pending, error) {
	p := &Pending{Instant: Instant{Time: t, Action: a, State: Inflight}, store: s, dir: dir, marked: map[string]bool{}}
	if a == ReplaceCommit && plan == nil {
		b, err := (&RequestedReplace{}).Encode()
		if err != nil {
			return nil, fmt.Errorf("beginning %s %s: %w", a, t, err)
		}
		plan = b
	}
	var inflight []byte
	if a == Clean {
		inflight = plan // releases before 1.1 read the plan of a running clean from here
	}
	put := func(state State, b []byte) error {
		err := s.PutNew(ctx, p.object(dir, state), b)
		if errors.Is(err, storage.ErrExist) {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		if err != nil {
			return fmt.Errorf("beginning %s %s: %w", a, t, err)
		}
		return nil
	}
	if a != Savepoint {
		if err := put(Requested, plan); err != nil {
			return nil, err
		}
	}
	if err := put(Inflight, inflight); err != nil {
		return nil, err
	}
	return p, nil
}

// Start moves a requested instant, such as a compaction planned before, to inflight; one that is inflight already is taken up again.
func Start(ctx context.Context, s storage.Store, dir string, in Instant) (*Pending, error) {
	if in.State == Completed {
		return nil, fmt.Errorf("starting %s: %w", in, ErrConflict)
	}
	if in.State == Requested {
		var b []byte
		if in.Action == Clean {
			var err error
			if b, err = readObject(ctx, s, in.object(dir, Requested)); err != nil {
				return nil, fmt.Errorf("starting %s: %w", in, err)
			}
		}
		if err := s.PutNew(ctx, in.object(dir, Inflight), b); err != nil && !errors.Is(err, storage.ErrExist) {
			return nil, fmt.Errorf("starting %s: %w", in, err)
		}
		in.State = Inflight
	}
	return &Pending{Instant: in, store: s, dir: dir, marked: map[string]bool{}}, nil
}

// Request plans an action without starting it: the requested file alone. The error wraps ErrConflict if it is there already.
func Request(ctx context.Context, s storage.Store, dir string, a Action, t storage.InstantTime, plan []byte) (Instant, error) {
	in := Instant{Time: t, Action: a, State: Requested}
	err := s.PutNew(ctx, in.object(dir, Requested), plan)
	if errors.Is(err, storage.ErrExist) {
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return in, fmt.Errorf("requesting %s %s: %w", a, t, err)
	}
	return in, nil
}

// Complete publishes the instant with its metadata. The error is ErrRolledBack if the pending files are gone, and wraps
// ErrConflict if the instant is completed already. After any other error it is not known whether the instant completed.
func (p *Pending) Complete(ctx context.Context, meta *CommitMeta) error {
	return p.CompleteBytes(ctx, meta.Encode())
}

// CompleteBytes is Complete for actions whose metadata is no commit metadata: clean, savepoint.
func (p *Pending) CompleteBytes(ctx context.Context, b []byte) error {
	states := []State{Requested, Inflight}
	if p.Action == Savepoint {
		states = states[1:]
	}
	for _, state := range states {
		ok, err := exists(ctx, p.store, p.object(p.dir, state))
		if err != nil {
			return fmt.Errorf("completing %s: %w", p.Instant, err)
		}
		if !ok {
			return fmt.Errorf("completing %s: no %s file: %w", p.Instant, state, ErrRolledBack)
		}
	}
	if err := tellMetadata(ctx, p.store, p.dir, p.Instant, b); err != nil {
		return fmt.Errorf("completing %s: %w", p.Instant, err)
	}
	return p.publish(ctx, b)
}

// publish writes the completed file.
func (p *Pending) publish(ctx context.Context, b []byte) error {
	// In version 6 the modification time of this file is the instant's completion time, and Hudi 1.1 finds by it which logs belong to
	// a base file of the instant: were it before the instant time, those logs would be lost to its readers.
	var at time.Time
	if t, err := ParseTime(p.Time, cmp.Or(p.Zone, time.UTC)); err == nil {
		at = t
	}
	if err := p.store.PutNewAt(ctx, p.object(p.dir, Completed), b, at); err != nil {
		if errors.Is(err, storage.ErrExist) {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return fmt.Errorf("completing %s: %w", p.Instant, err)
	}
	p.State = Completed
	// The instant is committed whatever happens here, and nobody reads the markers of a completed one.
	_ = p.store.Remove(context.WithoutCancel(ctx), markerFolder(p.dir, p.Time)+"/")
	return nil
}

// Abort undoes an instant that this process began: the data files that Mark announced, the markers, then the pending files. It leaves no
// rollback on the timeline, as nobody has seen the instant complete. The requested file of a compaction stays.
func (p *Pending) Abort(ctx context.Context) error {
	done, err := exists(ctx, p.store, p.object(p.dir, Completed))
	if err == nil && done {
		err = ErrConflict
	}
	names := make([]string, 0, len(p.marked))
	for name := range p.marked {
		names = append(names, name)
	}
	if err == nil {
		err = forgetMetadata(ctx, p.store, p.dir, p.Instant)
	}
	if err == nil {
		err = p.store.Remove(ctx, names...)
	}
	if err == nil {
		err = p.store.Remove(ctx, markerFolder(p.dir, p.Time)+"/")
	}
	if err == nil {
		err = removePending(ctx, p.store, p.dir, p.Instant)
	}
	if err != nil {
		return fmt.Errorf("aborting %s: %w", p.Instant, err)
	}
	return nil
}

const partitionFile = ".hoodie_partition_metadata"

// EnsurePartition makes a partition path known to engines that list folders: its metadata file is written unless it is there.
// It has to stand before the commit of the first data file in the partition completes.
func EnsurePartition(ctx context.Context, s storage.Store, dir, partition string, t storage.InstantTime) error {
	depth := 0
	if partition != "" {
		depth = strings.Count(partition, "/") + 1
	}
	text := fmt.Sprintf("#partition metadata\n#%s\ncommitTime=%s\npartitionDepth=%d\n", zoneDate(now()), t, depth)
	err := s.PutNew(ctx, join(dir, partition, partitionFile), []byte(text))
	if err != nil && !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("writing metadata of partition %q: %w", partition, err)
	}
	return nil
}
