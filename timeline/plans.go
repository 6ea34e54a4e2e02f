package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lakesql/lakesql/storage"
)

// CompactionOperation is the part of a compaction plan that concerns one file group. Names are bare file names inside the partition path.
type CompactionOperation struct {
	BaseInstant *string             `avro:"baseInstantTime"`
	DeltaFiles  *[]string           `avro:"deltaFilePaths"`
	DataFile    *string             `avro:"dataFilePath"`
	FileID      *string             `avro:"fileId"`
	Partition   *string             `avro:"partitionPath"`
	Metrics     *map[string]float64 `avro:"metrics"`
	Bootstrap   *string             `avro:"bootstrapFilePath"`
}

// Strategy names the class that made or runs a plan.
type Strategy struct {
	Class   *string            `avro:"compactorClassName"`
	Params  *map[string]string `avro:"strategyParams"`
	Version *int32             `avro:"version"`
}

// CompactionPlan is the content of a requested compaction.
type CompactionPlan struct {
	Operations   *[]CompactionOperation `avro:"operations"`
	Extra        *map[string]string     `avro:"extraMetadata"`
	Version      *int32                 `avro:"version"`
	Strategy     *Strategy              `avro:"strategy"`
	PreserveMeta *bool                  `avro:"preserveHoodieMetadata"`
}

// Encode gives the file that requests the compaction.
func (p *CompactionPlan) Encode() ([]byte, error) { return compactionPlanFile.encode(p) }

// ReadCompactionPlan reads the plan of a requested compaction.
func ReadCompactionPlan(ctx context.Context, s storage.Store, dir string, in Instant) (*CompactionPlan, error) {
	var p CompactionPlan
	if err := compactionPlanFile.read(ctx, s, in.object(dir, Requested), &p); err != nil {
		return nil, fmt.Errorf("reading compaction plan %s: %w", in.Time, err)
	}
	return &p, nil
}

// ActionInstant names an instant within a clean plan.
type ActionInstant struct {
	Time   string `avro:"timestamp"`
	Action string `avro:"action"`
	State  string `avro:"state"`
}

// CleanFile is a file that a clean plan deletes. Path is the full path, as the storage of the planner prints it.
type CleanFile struct {
	Path      *string `avro:"filePath"`
	Bootstrap *bool   `avro:"isBootstrapBaseFile"`
}

// CleanPlan is the content of a requested clean.
type CleanPlan struct {
	EarliestToRetain *ActionInstant          `avro:"earliestInstantToRetain"`
	LastCompleted    string                  `avro:"lastCompletedCommitTimestamp"`
	Policy           string                  `avro:"policy"`
	Files            *map[string][]string    `avro:"filesToBeDeletedPerPartition"`
	Version          *int32                  `avro:"version"`
	FilePaths        *map[string][]CleanFile `avro:"filePathsToBeDeletedPerPartition"`
	Partitions       *[]string               `avro:"partitionsToBeDeleted"`
	Extra            *map[string]string      `avro:"extraMetadata"`
}

// Encode gives the file that requests the clean; the inflight file has the same content.
func (p *CleanPlan) Encode() ([]byte, error) { return cleanPlanFile.encode(p) }

// ReadCleanPlan reads the plan of a requested clean.
func ReadCleanPlan(ctx context.Context, s storage.Store, dir string, in Instant) (*CleanPlan, error) {
	var p CleanPlan
	if err := cleanPlanFile.read(ctx, s, in.object(dir, Requested), &p); err != nil {
		return nil, fmt.Errorf("reading clean plan %s: %w", in.Time, err)
	}
	return &p, nil
}

// CleanPartition is what a clean did in one partition path. Names are bare.
type CleanPartition struct {
	Partition string   `avro:"partitionPath"`
	Policy    string   `avro:"policy"`
	Patterns  []string `avro:"deletePathPatterns"`
	Deleted   []string `avro:"successDeleteFiles"`
	Failed    []string `avro:"failedDeleteFiles"`
	Whole     *bool    `avro:"isPartitionDeleted"`
}

// CleanMeta is the content of a completed clean.
type CleanMeta struct {
	Start            string                     `avro:"startCleanTime"`
	Millis           int64                      `avro:"timeTakenInMillis"`
	FilesDeleted     int32                      `avro:"totalFilesDeleted"`
	EarliestToRetain string                     `avro:"earliestCommitToRetain"`
	LastCompleted    string                     `avro:"lastCompletedCommitTimestamp"`
	Partitions       map[string]CleanPartition  `avro:"partitionMetadata"`
	Version          *int32                     `avro:"version"`
	Bootstrap        *map[string]CleanPartition `avro:"bootstrapPartitionMetadata"`
	Extra            *map[string]string         `avro:"extraMetadata"`
}

// Encode gives the completed file of the clean.
func (m *CleanMeta) Encode() ([]byte, error) { return cleanMetaFile.encode(m) }

// ReadClean reads what a completed clean did.
func ReadClean(ctx context.Context, s storage.Store, dir string, in Instant) (*CleanMeta, error) {
	var m CleanMeta
	if err := cleanMetaFile.read(ctx, s, in.object(dir, Completed), &m); err != nil {
		return nil, fmt.Errorf("reading clean %s: %w", in.Time, err)
	}
	return &m, nil
}

// EarliestRetained gives the first instant whose slices the cleaner left whole; time travel to before it is refused. "" if
// nothing was cleaned.
func EarliestRetained(ctx context.Context, s storage.Store, dir string, tl *Timeline) (storage.InstantTime, error) {
	for _, in := range slices.Backward(tl.Instants) {
		if in.Action != Clean || in.State != Completed {
			continue
		}
		name := in.object(dir, Completed)
		b, err := readObject(ctx, s, name)
		if err != nil && !errors.Is(err, storage.ErrNotExist) {
			return "", fmt.Errorf("reading clean %s: %w", in.Time, err)
		}
		if len(b) == 0 { // a crashed cleaner left it, or archival took it meanwhile
			continue
		}
		m, err := ReadClean(ctx, s, dir, in)
		if err != nil {
			return "", err
		}
		if m.EarliestToRetain != "" {
			return storage.InstantTime(m.EarliestToRetain), nil
		}
		// A policy that counts versions names no commit.
		if done := tl.Completed(); len(done) > 0 {
			return done[0].Time, nil
		}
		return "", nil
	}
	return "", nil
}

// SavepointPartition names the base and log files of one partition path that a savepoint keeps.
type SavepointPartition struct {
	Partition string   `avro:"partitionPath"`
	Files     []string `avro:"savepointDataFile"`
}

// SavepointMeta is the content of a completed savepoint.
type SavepointMeta struct {
	By         string                        `avro:"savepointedBy"`
	At         int64                         `avro:"savepointedAt"` // milliseconds since 1970
	Comments   string                        `avro:"comments"`
	Partitions map[string]SavepointPartition `avro:"partitionMetadata"`
	Version    *int32                        `avro:"version"`
}

// Encode gives the completed file of the savepoint.
func (m *SavepointMeta) Encode() ([]byte, error) { return savepointMetaFile.encode(m) }

// ReadSavepoint reads a completed savepoint.
func ReadSavepoint(ctx context.Context, s storage.Store, dir string, in Instant) (*SavepointMeta, error) {
	var m SavepointMeta
	if err := savepointMetaFile.read(ctx, s, in.object(dir, Completed), &m); err != nil {
		return nil, fmt.Errorf("reading savepoint %s: %w", in.Time, err)
	}
	return &m, nil
}

// SliceInfo names a file slice that a clustering reads. Paths are full paths, DataFile is "" for a slice of logs alone.
type SliceInfo struct {
	DataFile   *string   `avro:"dataFilePath"`
	DeltaFiles *[]string `avro:"deltaFilePaths"`
	FileID     *string   `avro:"fileId"`
	Partition  *string   `avro:"partitionPath"`
	Bootstrap  *string   `avro:"bootstrapFilePath"`
	Version    *int32    `avro:"version"`
}

// ClusteringGroup is a set of slices that become new file groups together.
type ClusteringGroup struct {
	Slices  *[]SliceInfo        `avro:"slices"`
	Metrics *map[string]float64 `avro:"metrics"`
	Outputs *int32              `avro:"numOutputFileGroups"`
	Extra   *map[string]string  `avro:"extraMetadata"`
	Version *int32              `avro:"version"`
}

// ClusteringStrategy names the class that runs a clustering.
type ClusteringStrategy struct {
	Class   *string            `avro:"strategyClassName"`
	Params  *map[string]string `avro:"strategyParams"`
	Version *int32             `avro:"version"`
}

// ClusteringPlan says which slices a clustering replaces.
type ClusteringPlan struct {
	Groups       *[]ClusteringGroup  `avro:"inputGroups"`
	Strategy     *ClusteringStrategy `avro:"strategy"`
	Extra        *map[string]string  `avro:"extraMetadata"`
	Version      *int32              `avro:"version"`
	PreserveMeta *bool               `avro:"preserveHoodieMetadata"`
}

// RequestedReplace is the content of a requested replacecommit. All of it is null but for a clustering.
type RequestedReplace struct {
	Operation *string            `avro:"operationType"`
	Plan      *ClusteringPlan    `avro:"clusteringPlan"`
	Extra     *map[string]string `avro:"extraMetadata"`
	Version   *int32             `avro:"version"`
}

// Encode gives the file that requests the replacecommit.
func (r *RequestedReplace) Encode() ([]byte, error) { return requestedReplaceFile.encode(r) }

// Inputs gives the partition path and file id of the file groups that a clustering is to replace; none for other replacecommits.
func (r *RequestedReplace) Inputs() []storage.FileSlice {
	var out []storage.FileSlice
	if r.Plan == nil || r.Plan.Groups == nil {
		return nil
	}
	for _, g := range *r.Plan.Groups {
		if g.Slices == nil {
			continue
		}
		for _, s := range *g.Slices {
			fs := storage.FileSlice{}
			if s.Partition != nil {
				fs.Partition = *s.Partition
			}
			if s.FileID != nil {
				fs.ID = storage.FileID(*s.FileID)
			}
			out = append(out, fs)
		}
	}
	return out
}

// ReadRequestedReplace reads what a replacecommit or a clustering was requested for; one with an empty file comes out empty.
func ReadRequestedReplace(ctx context.Context, s storage.Store, dir string, in Instant) (*RequestedReplace, error) {
	name := in.object(dir, Requested)
	b, err := readObject(ctx, s, name)
	if err != nil {
		return nil, fmt.Errorf("reading requested %s %s: %w", in.Action, in.Time, err)
	}
	var r RequestedReplace
	if len(b) == 0 {
		return &r, nil
	}
	if err := requestedReplaceFile.read(ctx, s, name, &r); err != nil {
		return nil, fmt.Errorf("reading requested %s %s: %w", in.Action, in.Time, err)
	}
	return &r, nil
}
