package timeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lakesql/lakesql/storage"
)

// InstantInfo names an instant within rollback files.
type InstantInfo struct {
	Time   string `avro:"commitTime"`
	Action string `avro:"action"`
}

// RollbackRequest is what a rollback does in one partition path. Files are full paths.
type RollbackRequest struct {
	Partition  string            `avro:"partitionPath"`
	FileID     *string           `avro:"fileId"`
	LatestBase *string           `avro:"latestBaseInstant"`
	Files      []string          `avro:"filesToBeDeleted"`
	LogBlocks  *map[string]int64 `avro:"logBlocksToBeDeleted"`
}

// RollbackPlan is the content of a requested rollback.
type RollbackPlan struct {
	Target   *InstantInfo       `avro:"instantToRollback"`
	Requests *[]RollbackRequest `avro:"RollbackRequests"`
	Version  *int32             `avro:"version"`
}

// Encode gives the file that requests the rollback.
func (p *RollbackPlan) Encode() ([]byte, error) { return rollbackPlanFile.encode(p) }

// RollbackPartition is what a rollback did in one partition path.
type RollbackPartition struct {
	Partition      string            `avro:"partitionPath"`
	Deleted        []string          `avro:"successDeleteFiles"`
	Failed         []string          `avro:"failedDeleteFiles"`
	RollbackLogs   *map[string]int64 `avro:"rollbackLogFiles"`
	FailedLogFiles *map[string]int64 `avro:"logFilesFromFailedCommit"`
}

// RollbackMeta is the content of a completed rollback.
type RollbackMeta struct {
	Start        string                       `avro:"startRollbackTime"`
	Millis       int64                        `avro:"timeTakenInMillis"`
	FilesDeleted int32                        `avro:"totalFilesDeleted"`
	Commits      []string                     `avro:"commitsRollback"`
	Partitions   map[string]RollbackPartition `avro:"partitionMetadata"`
	Version      *int32                       `avro:"version"`
	Instants     []InstantInfo                `avro:"instantsRollback"`
}

// Encode gives the completed file of the rollback.
func (m *RollbackMeta) Encode() ([]byte, error) { return rollbackMetaFile.encode(m) }

// ReadRollbackPlan reads the plan of a requested rollback.
func ReadRollbackPlan(ctx context.Context, s storage.Store, dir string, in Instant) (*RollbackPlan, error) {
	var p RollbackPlan
	if err := rollbackPlanFile.read(ctx, s, in.object(dir, Requested), &p); err != nil {
		return nil, fmt.Errorf("reading rollback plan %s: %w", in.Time, err)
	}
	return &p, nil
}

// ReadRollback reads what a completed rollback did.
func ReadRollback(ctx context.Context, s storage.Store, dir string, in Instant) (*RollbackMeta, error) {
	var m RollbackMeta
	if err := rollbackMetaFile.read(ctx, s, in.object(dir, Completed), &m); err != nil {
		return nil, fmt.Errorf("reading rollback %s: %w", in.Time, err)
	}
	return &m, nil
}

// rollbackTargets gives the commits and delta commits that a rollback undoes. A compaction or a clustering is left out: its plan
// may run again under the same instant, complete and be archived while the rollback is still on the timeline.
func rollbackTargets(ctx context.Context, s storage.Store, dir string, in Instant) ([]storage.InstantTime, error) {
	for _, state := range []State{Requested, Completed} {
		name := in.object(dir, state)
		b, err := readObject(ctx, s, name)
		if errors.Is(err, storage.ErrNotExist) || err == nil && len(b) == 0 {
			continue // the file of a crashed writer, or archived since the listing
		}
		if err != nil {
			return nil, err
		}
		var infos []InstantInfo
		if state == Requested {
			var p RollbackPlan
			if err := rollbackPlanFile.decode(name, b, &p); err != nil {
				return nil, err
			}
			if p.Target != nil {
				infos = []InstantInfo{*p.Target}
			}
		} else {
			var m RollbackMeta
			if err := rollbackMetaFile.decode(name, b, &m); err != nil {
				return nil, err
			}
			infos = m.Instants
		}
		var out []storage.InstantTime
		for _, i := range infos {
			if a := Action(i.Action); a == Commit || a == DeltaCommit {
				out = append(out, storage.InstantTime(i.Time))
			}
		}
		return out, nil
	}
	return nil, nil
}

// locator is a Store whose objects have a path outside of it, under which Hudi finds them.
type locator interface {
	// Location gives the absolute path or URI of an object.
	Location(name string) string
}

// location gives the path under which other engines know an object. Without a locator it is the object's own name, from
// which only the last part matters when lakesql resumes the rollback itself.
func location(s storage.Store, name string) string {
	if l, ok := s.(locator); ok {
		return l.Location(name)
	}
	return name
}

// RollBack undoes a pending instant: it deletes the files that the instant wrote, by partition path, then its markers and its pending
// files, and leaves a completed rollback at the instant time at. Each step may be run again after a crash, by RollBack
// with the same arguments or by ResumeRollback. A pending compaction keeps its requested file: later log files may
// belong to the slice that it opened. The log files among files have to hold blocks of this instant alone.
func RollBack(ctx context.Context, s storage.Store, dir string, in Instant, at storage.InstantTime, files map[string][]string) error {
	if in.State == Completed {
		return fmt.Errorf("rolling back %s: the instant is completed: %w", in, ErrConflict)
	}
	one := int32(1)
	requests := []RollbackRequest{}
	for _, partition := range slices.Sorted(maps.Keys(files)) {
		for _, name := range files[partition] {
			if err := ownFile(in, name); err != nil {
				return fmt.Errorf("rolling back %s: %w", in, err)
			}
			// One request a file, with ids that are empty and not null, is how Hudi plans the deletion of files.
			requests = append(requests, RollbackRequest{
				Partition: partition, FileID: new(string), LatestBase: new(string),
				Files: []string{location(s, join(dir, partition, name))}, LogBlocks: &map[string]int64{},
			})
		}
	}
	plan := RollbackPlan{Target: &InstantInfo{Time: string(in.Time), Action: string(in.Action)}, Requests: &requests, Version: &one}
	b, err := plan.Encode()
	if err != nil {
		return fmt.Errorf("rolling back %s: %w", in, err)
	}
	rb := Instant{Time: at, Action: Rollback}
	err = s.PutNew(ctx, rb.object(dir, Requested), b)
	if errors.Is(err, storage.ErrExist) {
		// The plan of an earlier attempt holds; one for another instant is somebody else's.
		var old *RollbackPlan
		if old, err = ReadRollbackPlan(ctx, s, dir, rb); err == nil && (old.Target == nil || *old.Target != *plan.Target) {
			err = fmt.Errorf("%s is another rollback: %w", at, ErrConflict)
		}
	}
	if err != nil {
		return fmt.Errorf("rolling back %s: %w", in, err)
	}
	return ResumeRollback(ctx, s, dir, at)
}

// ownFile refuses a data file that the instant cannot have written.
func ownFile(in Instant, name string) error {
	f, ok := storage.ParseFileName(name)
	if !ok {
		return fmt.Errorf("%q is neither a base file nor a log file: %w", name, storage.ErrUnsupported)
	}
	if f.Version == 0 && f.Instant != in.Time {
		return fmt.Errorf("base file %s is of instant %s: %w", name, f.Instant, ErrConflict)
	}
	return nil
}

// ResumeRollback carries out the rollback that was requested at the instant time at; one that is completed is left as it is.
func ResumeRollback(ctx context.Context, s storage.Store, dir string, at storage.InstantTime) error {
	if err := resumeRollback(ctx, s, dir, at); err != nil {
		return fmt.Errorf("resuming rollback %s: %w", at, err)
	}
	return nil
}

func resumeRollback(ctx context.Context, s storage.Store, dir string, at storage.InstantTime) error {
	rb := Instant{Time: at, Action: Rollback}
	done, err := exists(ctx, s, rb.object(dir, Completed))
	if err != nil || done {
		return err
	}
	plan, err := ReadRollbackPlan(ctx, s, dir, rb)
	if err != nil {
		return err
	}
	if plan.Target == nil {
		return &storage.CorruptError{Name: rb.object(dir, Requested), Offset: -1, Err: errors.New("plan names no instant")}
	}
	target := Instant{Time: storage.InstantTime(plan.Target.Time), Action: Action(plan.Target.Action)}
	if done, err = exists(ctx, s, target.object(dir, Completed)); err != nil {
		return err
	} else if done {
		return fmt.Errorf("%s completed meanwhile: %w", target, ErrConflict)
	}
	if err := s.PutNew(ctx, rb.object(dir, Inflight), nil); err != nil && !errors.Is(err, storage.ErrExist) {
		return err
	}
	began := now()
	meta := RollbackMeta{
		Start: string(at), Commits: []string{plan.Target.Time}, Partitions: map[string]RollbackPartition{},
		Version: new(int32), Instants: []InstantInfo{*plan.Target},
	}
	*meta.Version = 1
	var requests []RollbackRequest
	if plan.Requests != nil {
		requests = *plan.Requests
	}
	var names []string
	for _, r := range requests {
		if r.LogBlocks != nil && len(*r.LogBlocks) > 0 {
			return fmt.Errorf("rollback of blocks inside shared log files, partition %q: %w", r.Partition, storage.ErrUnsupported)
		}
		p, ok := meta.Partitions[r.Partition]
		if !ok {
			p = RollbackPartition{Partition: r.Partition, Deleted: []string{}, Failed: []string{}, RollbackLogs: &map[string]int64{}, FailedLogFiles: &map[string]int64{}}
		}
		for _, path := range r.Files {
			name := lastPart(path)
			if err := ownFile(target, name); err != nil {
				return err
			}
			names = append(names, join(dir, r.Partition, name))
			p.Deleted = append(p.Deleted, path)
			meta.FilesDeleted++
		}
		meta.Partitions[r.Partition] = p
	}
	if err := s.Remove(ctx, names...); err != nil {
		return err
	}
	if err := s.Remove(ctx, markerFolder(dir, target.Time)+"/"); err != nil {
		return err
	}
	if err := removePending(ctx, s, dir, target); err != nil {
		return err
	}
	meta.Millis = now().Sub(began).Milliseconds()
	b, err := meta.Encode()
	if err != nil {
		return err
	}
	if err := tellMetadata(ctx, s, dir, rb, b); err != nil {
		return err
	}
	if err := s.PutNew(ctx, rb.object(dir, Completed), b); err != nil && !errors.Is(err, storage.ErrExist) {
		return err
	}
	return nil
}

// removePending deletes the pending files of an instant: inflight, then requested, each durably, so that no crash leaves an
// inflight file without its requested one. The requested file of a compaction stays.
func removePending(ctx context.Context, s storage.Store, dir string, in Instant) error {
	if err := s.Remove(ctx, in.object(dir, Inflight)); err != nil {
		return err
	}
	if in.Action == Compaction || in.Action == LogCompaction {
		return nil
	}
	return s.Remove(ctx, in.object(dir, Requested))
}

func exists(ctx context.Context, s storage.Store, name string) (bool, error) {
	o, err := s.Open(ctx, name)
	if errors.Is(err, storage.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, o.Close()
}
