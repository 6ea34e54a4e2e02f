package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// InstantTime is the time of an instant as it stands in file names: 17 digits, yyyyMMddHHmmssSSS (older tables: 14).
// The values of one table compare as strings.
type InstantTime string

// FileID names a file group within its partition path.
type FileID string

// Errors that callers decide on.
var (
	ErrNotExist = errors.New("storage: no such object")
	ErrExist    = errors.New("storage: object exists already")
	// ErrUnsupported wraps the name of a feature of the format that is not read or written yet.
	ErrUnsupported = errors.New("storage: not supported")
)

// CorruptError says that the bytes of an object are not what its format demands.
type CorruptError struct {
	Name   string // object
	Offset int64  // byte offset of the damage, -1 if unknown
	Err    error  // cause
}

func (e *CorruptError) Error() string {
	if e.Offset >= 0 {
		return fmt.Sprintf("%s is corrupt at byte %d: %v", e.Name, e.Offset, e.Err)
	}
	return fmt.Sprintf("%s is corrupt: %v", e.Name, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Store keeps immutable objects under slash-separated names.
type Store interface {
	// Open gives the object; ErrNotExist if there is none.
	Open(ctx context.Context, name string) (Object, error)
	// Create starts an object that nobody sees until Commit and that is durable after it.
	Create(ctx context.Context, name string) (Writer, error)
	// PutNew writes a whole object, durable on return, only if the name is free, else ErrExist.
	PutNew(ctx context.Context, name string, b []byte) error
	// PutNewAt is PutNew of an object whose modification time is at or after `at`, from the moment on that it is visible.
	PutNewAt(ctx context.Context, name string, b []byte, at time.Time) error
	// PutBrief is PutNew of an object that need not survive a crash: a lock, a heartbeat.
	PutBrief(ctx context.Context, name string, b []byte) error
	// Replace writes a whole object over whatever had the name, atomically and durably.
	Replace(ctx context.Context, name string, b []byte) error
	// List gives the direct children of a folder in name order; a folder that is missing has none.
	List(ctx context.Context, dir string) iter.Seq2[Info, error]
	// Remove deletes objects; one that is missing counts as removed. A name that ends in "/" removes the folder with all in it.
	Remove(ctx context.Context, names ...string) error
	// RemoveBrief deletes an object of PutBrief; one that is missing counts as removed.
	RemoveBrief(ctx context.Context, name string) error
}

// Info describes a child of a folder.
type Info struct {
	Name    string // last part of the name
	Size    int64  // bytes; 0 for a folder
	ModTime time.Time
	Dir     bool
}

// Object is an opened object.
type Object interface {
	io.ReaderAt
	Size() int64
	io.Closer
}

// Writer writes a new object in order. Exactly one of Commit and Abort ends it.
type Writer interface {
	io.Writer
	Commit() error // publishes durably; ErrExist if the name was taken meanwhile
	Abort() error  // leaves nothing behind
}

// Kind is the physical kind of a column. The Go value of each kind, as it stands in a Row, is in brackets; nil is NULL.
type Kind uint8

const (
	Bool      Kind = iota + 1 // [bool]
	Int32                     // [int32]
	Int64                     // [int64]
	Float32                   // [float32]
	Float64                   // [float64]
	String                    // [string] UTF-8
	Bytes                     // [[]byte]
	Date                      // [int32] days since 1970-01-01
	Timestamp                 // [int64] microseconds since 1970-01-01 UTC
	Decimal                   // [decimal128.Num] unscaled value
	Nested                    // [string] JSON text of a list, map or record; read only
)

// Type is the type of a column.
type Type struct {
	Kind      Kind
	Precision int    // Decimal: digits, 1 to 38
	Scale     int    // Decimal: digits after the point
	Avro      string // Avro schema (JSON, without the union with null) where the kind alone does not tell it; kept for writing
}

// Field is one column.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
}

// Schema is a table schema, or the columns of a Batch. The five meta columns are fields of kind String where they occur.
type Schema struct {
	Name      string // Avro record name, "<table>_record"
	Namespace string // Avro namespace, "hoodie.<table>"
	Fields    []Field
}

// Index gives the position of a column, -1 if there is none. Names compare exactly.
func (s *Schema) Index(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Meta columns, in the order in which Hudi writes them in front of the table's own columns.
const (
	ColCommitTime    = "_hoodie_commit_time"
	ColCommitSeqno   = "_hoodie_commit_seqno"
	ColRecordKey     = "_hoodie_record_key"
	ColPartitionPath = "_hoodie_partition_path"
	ColFileName      = "_hoodie_file_name"
)

// MetaColumns lists the meta columns in file order.
var MetaColumns = []string{ColCommitTime, ColCommitSeqno, ColRecordKey, ColPartitionPath, ColFileName}

// Row is one row: a value for each field of its schema, in the Go types that Kind names.
type Row []any

// Batch holds rows column by column in Arrow's memory layout. Columns[i] belongs to Schema.Fields[i]:
// Bool *array.Boolean, Int32 *array.Int32, Int64 *array.Int64, Float32/64, String and Nested *array.String, Bytes *array.Binary,
// Date *array.Date32, Timestamp *array.Timestamp (us, UTC), Decimal *array.Decimal128. Memory is Go's: nothing has to be released.
type Batch struct {
	Schema  *Schema
	Columns []arrow.Array
	Rows    int
}

// FileName names a base file or a log file of a table.
type FileName struct {
	Name    string      // last part of the object's name
	ID      FileID      // file group
	Instant InstantTime // base file: the instant that wrote it; log file (version 6): the base instant of its slice
	Version int         // log file: its number; 0: a base file
	Token   string      // write token "a-b-c"
	CDC     bool        // a change log (".cdc"), which is no part of a slice
	Size    int64       // bytes, 0 if unknown
}

// FileSlice is one version of a file group: a base file and the logs over it, oldest first.
type FileSlice struct {
	Partition string // partition path, "" if none
	ID        FileID
	Begin     InstantTime // base instant
	Base      *FileName   // nil: logs alone
	Logs      []FileName
}

// Ordering says how versions of one record merge.
type Ordering uint8

const (
	CommitTime Ordering = iota // the last write wins
	EventTime                  // the larger ordering value wins, the later write on equal values
)
