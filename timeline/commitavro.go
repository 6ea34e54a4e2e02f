package timeline

import (
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// This file reads the commit metadata of layout 2: an Avro container with the members that the JSON of layout 1 has.

var (
	commitMetaFile        = &container{record: "HoodieCommitMetadata"}
	replaceCommitMetaFile = &container{record: "HoodieReplaceCommitMetadata"}
)

type avroRuntime struct {
	Scan   *int64 `avro:"totalScanTime"`
	Create *int64 `avro:"totalCreateTime"`
	Upsert *int64 `avro:"totalUpsertTime"`
}

type avroStat struct {
	FileID            *string           `avro:"fileId"`
	Path              *string           `avro:"path"`
	PrevCommit        *string           `avro:"prevCommit"`
	NumWrites         *int64            `avro:"numWrites"`
	NumDeletes        *int64            `avro:"numDeletes"`
	NumUpdates        *int64            `avro:"numUpdateWrites"`
	WriteBytes        *int64            `avro:"totalWriteBytes"`
	WriteErrors       *int64            `avro:"totalWriteErrors"`
	Partition         *string           `avro:"partitionPath"`
	LogRecords        *int64            `avro:"totalLogRecords"`
	LogFilesTotal     *int64            `avro:"totalLogFiles"`
	LogRecordsUpdated *int64            `avro:"totalUpdatedRecordsCompacted"`
	NumInserts        *int64            `avro:"numInserts"`
	LogBlocks         *int64            `avro:"totalLogBlocks"`
	CorruptLogBlocks  *int64            `avro:"totalCorruptLogBlock"`
	RollbackBlocks    *int64            `avro:"totalRollbackBlocks"`
	FileSize          *int64            `avro:"fileSizeInBytes"`
	LogVersion        *int32            `avro:"logVersion"`
	LogOffset         *int64            `avro:"logOffset"`
	BaseFile          *string           `avro:"baseFile"`
	LogFiles          *[]string         `avro:"logFiles"`
	CDC               *map[string]int64 `avro:"cdcStats"`
	PrevBaseFile      *string           `avro:"prevBaseFile"`
	MinEventTime      *int64            `avro:"minEventTime"`
	MaxEventTime      *int64            `avro:"maxEventTime"`
	Runtime           *avroRuntime      `avro:"runtimeStats"`
	LogFilesCompacted *int64            `avro:"totalLogFilesCompacted"`
	LogReadMillis     *int64            `avro:"totalLogReadTimeMs"`
	LogSizeCompacted  *int64            `avro:"totalLogSizeCompacted"`
	TempPath          *string           `avro:"tempPath"`
	Updates           *int64            `avro:"numUpdates"`
}

type avroCommit struct {
	Stats     *map[string][]avroStat `avro:"partitionToWriteStats"`
	Compacted *bool                  `avro:"compacted"`
	Extra     *map[string]string     `avro:"extraMetadata"`
	Version   *int32                 `avro:"version"`
	Operation *string                `avro:"operationType"`
	Replaced  *map[string][]string   `avro:"partitionToReplaceFileIds"`
}

// decodeCommit reads the container of a commit, a delta commit or a replacecommit, whose record says which it is.
func decodeCommit(name string, b []byte) (*CommitMeta, error) {
	record, err := recordName(b)
	if err != nil {
		return nil, &storage.CorruptError{Name: name, Offset: -1, Err: err}
	}
	c, file := avroCommit{}, commitMetaFile
	if record == replaceCommitMetaFile.record {
		file = replaceCommitMetaFile
	}
	if err := file.decode(name, b, &c); err != nil {
		return nil, err
	}
	m := &CommitMeta{Stats: map[string][]WriteStat{}, Compacted: value(c.Compacted), Extra: value(c.Extra), Operation: value(c.Operation)}
	for partition, list := range value(c.Stats) {
		stats := make([]WriteStat, len(list))
		for i := range list {
			list[i].fill(&stats[i])
		}
		m.Stats[partition] = stats
	}
	if c.Replaced != nil {
		m.Replaced = make(map[string][]storage.FileID, len(*c.Replaced))
		for partition, ids := range *c.Replaced {
			list := make([]storage.FileID, len(ids))
			for i, id := range ids {
				list[i] = storage.FileID(id)
			}
			m.Replaced[partition] = list
		}
	}
	return m, nil
}

func (a *avroStat) fill(w *WriteStat) {
	*w = WriteStat{
		FileID: storage.FileID(value(a.FileID)), Path: value(a.Path), CDC: value(a.CDC), NumWrites: value(a.NumWrites), NumDeletes: value(a.NumDeletes),
		NumUpdates: value(a.NumUpdates), NumInserts: value(a.NumInserts), WriteBytes: value(a.WriteBytes), WriteErrors: value(a.WriteErrors),
		TempPath: value(a.TempPath), Partition: value(a.Partition), LogRecords: value(a.LogRecords), LogFilesCompacted: value(a.LogFilesCompacted),
		LogSizeCompacted: value(a.LogSizeCompacted), LogRecordsUpdated: value(a.LogRecordsUpdated), LogBlocks: value(a.LogBlocks),
		CorruptLogBlocks: value(a.CorruptLogBlocks), RollbackBlocks: value(a.RollbackBlocks), FileSize: value(a.FileSize),
		MinEventTime: a.MinEventTime, MaxEventTime: a.MaxEventTime,
	}
	if prev := value(a.PrevCommit); prev != noCommit {
		w.PrevCommit = storage.InstantTime(prev)
	}
	if r := a.Runtime; r != nil {
		w.Runtime = &RuntimeStats{Scan: value(r.Scan), Upsert: value(r.Upsert), Create: value(r.Create)}
	}
	if a.LogVersion != nil && strings.HasPrefix(w.FileName(), ".") {
		w.Log = &LogStat{Version: int(*a.LogVersion), Offset: value(a.LogOffset), BaseFile: value(a.BaseFile), Files: value(a.LogFiles)}
	}
}

// value gives what a member holds, the zero value for null.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
