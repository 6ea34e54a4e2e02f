package timeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/avro"

	"github.com/lakesql/lakesql/storage"
)

// MetadataType is the kind of a record of the metadata table, in the format's numbers.
type MetadataType int32

// The kinds of records.
const (
	MetadataPartitions     MetadataType = 1 // the one list of all partition paths
	MetadataFiles          MetadataType = 2 // the files of a partition path
	MetadataColumnStats    MetadataType = 3
	MetadataBloomFilters   MetadataType = 4
	MetadataRecordIndex    MetadataType = 5
	MetadataPartitionStats MetadataType = 6
	MetadataSecondaryIndex MetadataType = 7
)

// Keys of the records of partition "files" that are no partition path.
const (
	metadataAllPartitions = "__all_partitions__"
	metadataNoPartition   = "." // the partition path of a table without partitions
)

// MetadataRecord is a record of the metadata table. Which of the pointers is set follows from Type.
type MetadataRecord struct {
	Key       string                   `avro:"key"`
	Type      MetadataType             `avro:"type"`
	Files     *map[string]MetadataFile `avro:"filesystemMetadata"` // by file name, or by partition path; "." is a table without partitions
	Bloom     *MetadataBloom           `avro:"BloomFilterMetadata"`
	Stats     *MetadataStats           `avro:"ColumnStatsMetadata"` // of a column in a file, or in a partition path
	Location  *MetadataLocation        `avro:"recordIndexMetadata"`
	Secondary *MetadataSecondary       `avro:"SecondaryIndexMetadata"`
}

// MetadataFile is what the metadata table says of a file, or of a partition path.
type MetadataFile struct {
	Size    int64 `avro:"size"` // bytes; 0 for a partition path
	Deleted bool  `avro:"isDeleted"`
}

// MetadataBloom is the bloom filter of a base file.
type MetadataBloom struct {
	Type    string              `avro:"type"`
	Instant storage.InstantTime `avro:"timestamp"`
	Filter  []byte              `avro:"bloomFilter"`
	Deleted bool                `avro:"isDeleted"`
}

// MetadataStats are the statistics of a column. A bound is nil or a map of one member, whose name says the type ("IntWrapper",
// "DateWrapper", …) and whose value is a map with the member "value".
type MetadataStats struct {
	File         *string    `avro:"fileName"` // file, or partition path
	Column       *string    `avro:"columnName"`
	Min          any        `avro:"minValue"`
	Max          any        `avro:"maxValue"`
	Values       *int64     `avro:"valueCount"`
	Nulls        *int64     `avro:"nullCount"`
	Size         *int64     `avro:"totalSize"` // bytes
	Uncompressed *int64     `avro:"totalUncompressedSize"`
	Deleted      bool       `avro:"isDeleted"`
	Tight        bool       `avro:"isTightBound"`
	ValueType    *ValueType `avro:"valueType"`
}

// ValueType is the type of the column whose bounds MetadataStats hold, in Hudi's numbers.
type ValueType struct {
	Ordinal int32   `avro:"typeOrdinal"`
	Info    *string `avro:"additionalInfo"`
}

// MetadataLocation says in which file group a record key lives.
type MetadataLocation struct {
	Partition *string `avro:"partitionName"`
	High      *int64  `avro:"fileIdHighBits"` // the UUID of the file id, if Encoding is 0
	Low       *int64  `avro:"fileIdLowBits"`
	Index     *int32  `avro:"fileIndex"` // what follows the UUID and a hyphen, -1: nothing
	ID        *string `avro:"fileId"`    // the file id, if Encoding is 1
	Instant   *int64  `avro:"instantTime"`
	Encoding  int32   `avro:"fileIdEncoding"`
	Position  *int64  `avro:"position"`
}

// FileID gives the file group's id; "" if the record has none.
func (l *MetadataLocation) FileID() storage.FileID {
	switch {
	case l.Encoding == 1 && l.ID != nil:
		return storage.FileID(*l.ID)
	case l.Encoding == 0 && l.High != nil && l.Low != nil:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], uint64(*l.High))
		binary.BigEndian.PutUint64(b[8:], uint64(*l.Low))
		id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		if l.Index != nil && *l.Index >= 0 {
			id += fmt.Sprintf("-%d", *l.Index)
		}
		return storage.FileID(id)
	}
	return ""
}

// MetadataSecondary is an entry of a secondary index; its key holds both keys.
type MetadataSecondary struct {
	Deleted bool `avro:"isDeleted"`
}

// metadataSchema gives the schema of the records in tables of a version, with or without the meta columns. Files are written with the
// meta columns, which stay null.
func metadataSchema(version string, meta bool) string {
	switch version {
	case "6", "8":
	default:
		version = "9"
	}
	b, err := schemaFiles.ReadFile("avsc/HoodieMetadataRecord." + version + ".avsc")
	if err != nil {
		panic(err) // the schema is part of the program
	}
	text := string(b)
	if !meta {
		from := strings.Index(text, `{"name":"_hoodie_commit_time"`)
		text = text[:from] + text[strings.Index(text, `{"name":"key"`):]
	}
	return text
}

// metadataReader is the newest schema, which every older one is read as.
var metadataReader = sync.OnceValue(func() *avro.Schema { return avro.MustParse(metadataSchema("9", false)) })

// metadataDecoder decodes records of one writer's schema.
type metadataDecoder struct {
	text   string
	schema *avro.Schema
}

// decode reads the record of an entry. The decoder of the schema before is kept for the next call.
func (d *metadataDecoder) decode(schema string, b []byte) (*MetadataRecord, error) {
	if d.schema == nil || d.text != schema {
		w, err := avro.Parse(schema)
		if err != nil {
			return nil, fmt.Errorf("schema of the metadata table: %w", err)
		}
		s, err := avro.Resolve(w, metadataReader())
		if err != nil {
			return nil, fmt.Errorf("%w: schema of the metadata table: %w", storage.ErrUnsupported, err)
		}
		d.text, d.schema = schema, s
	}
	var r MetadataRecord
	rest, err := d.schema.Decode(b, &r, avro.TaggedUnions())
	if err != nil {
		return nil, fmt.Errorf("record of the metadata table: %w", err)
	}
	if len(rest) > 0 {
		return nil, errors.New("record of the metadata table: bytes are left behind it")
	}
	return &r, nil
}

// over lays a newer record over an older one of its key; nil: nothing is left.
func (r *MetadataRecord) over(old *MetadataRecord) *MetadataRecord {
	if old == nil || r.Type != old.Type || r.Type != MetadataPartitions && r.Type != MetadataFiles {
		return r
	}
	files := map[string]MetadataFile{}
	if old.Files != nil {
		maps.Copy(files, *old.Files)
	}
	if r.Files != nil {
		for name, f := range *r.Files {
			before, ok := files[name]
			switch {
			case ok && f.Deleted && !before.Deleted:
				delete(files, name)
				continue
			case ok && !f.Deleted:
				f.Size = max(f.Size, before.Size) // the log of an earlier release grows
			}
			files[name] = f
		}
	}
	return &MetadataRecord{Key: r.Key, Type: r.Type, Files: &files}
}

// gone tells whether the record says that what its key stands for is no more.
func (r *MetadataRecord) gone() bool {
	switch {
	case r.Bloom != nil:
		return r.Bloom.Deleted
	case r.Stats != nil:
		return r.Stats.Deleted
	case r.Secondary != nil:
		return r.Secondary.Deleted
	}
	return false
}

// encodeFiles gives the Avro binary of a record of partition "files", without its key: an HFile has that beside it.
func encodeFiles(version string, typ MetadataType, file string, files map[string]MetadataFile) []byte {
	b := []byte{0, 0, 0, 0} // meta columns
	if file == "" {
		b = append(b, 0)
	} else {
		b = appendAvroText(append(b, 2), file)
	}
	b = append(b, 0) // key
	b = binary.AppendVarint(b, int64(typ))
	b = append(b, 2)
	if len(files) > 0 {
		b = binary.AppendVarint(b, int64(len(files)))
		for _, name := range slices.Sorted(maps.Keys(files)) {
			b = binary.AppendVarint(appendAvroText(b, name), files[name].Size)
			deleted := byte(0)
			if files[name].Deleted {
				deleted = 1
			}
			b = append(b, deleted)
		}
	}
	b = append(b, 0)
	rest := 4 // bloom filter, statistics, record index, secondary index
	if version == "6" {
		rest = 3
	}
	return append(b, make([]byte, rest)...)
}

func appendAvroText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}
