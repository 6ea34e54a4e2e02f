package catalog

import (
	"github.com/lakesql/lakesql/storage"
)

// KeyColumn is a column of a key or an index.
type KeyColumn struct {
	Column    string `json:"column"`
	Collation string `json:"collation,omitempty"` // passed to Options.SortKey; "": values compare as numbers or bytes
	Prefix    int    `json:"prefix,omitempty"`    // characters (String) or bytes (Bytes) that count; 0: all
}

// IndexSpec is a secondary index.
type IndexSpec struct {
	Name    string      `json:"name"`
	Columns []KeyColumn `json:"columns"`
	Unique  bool        `json:"unique,omitempty"`
}

// TableSpec says what a table is. It is immutable once a Table has it: alterations make a new one.
type TableSpec struct {
	Schema        *storage.Schema // the table's own columns; Name and Namespace may be empty on creation
	Key           []KeyColumn     // record key; empty: a generated key that is no column
	Partition     []string        // partition columns
	HiveStyle     bool            // partition paths as column=value
	PerPartition  bool            // the key is unique in its partition path only (option global = false)
	MergeOnRead   bool
	Ordering      storage.Ordering
	OrderingField string // column; required for storage.EventTime
	Indexes       []IndexSpec
	Options       map[string]string // "bin.max_age", "hoodie.…": as given, validated by the caller
	AutoIncrement string            // column, "" if none
	Definition    []byte            // opaque to this package: the SQL definition
	Attached      bool              // written by another engine first; dropping it leaves its files
}

// Index gives the secondary index of that name.
func (s *TableSpec) Index(name string) (*IndexSpec, bool) {
	for i := range s.Indexes {
		if s.Indexes[i].Name == name {
			return &s.Indexes[i], true
		}
	}
	return nil, false
}

// KeyRange is a range of a key or an index: bounds are values of its first columns. A nil bound is open.
type KeyRange struct {
	Low, High         storage.Row
	LowOpen, HighOpen bool // the bound itself is not in the range
}

// ScanOptions choose what a scan gives.
type ScanOptions struct {
	Columns       []string // table or meta columns, in this order; nil: all columns of the table
	Mark          Mark     // with UseMark: the transaction's own writes at or after the mark are not seen
	UseMark       bool
	ReadOptimized bool // base files only

	// Lock has a transaction lock what it reads: the rows, keys that are absent and, but for ReadCommitted, the ranges in which it looks.
	// It reads the newest durable commit and its own writes then.
	Lock LockMode
	// Current reads the newest durable commit and the transaction's own writes, and locks nothing: what it gives may be locked afterwards, by
	// key, and looked at again.
	Current bool
	Wait    LockWait // with Lock: what a row that another transaction has locked means
}

// Object is a definition that belongs to no table folder: a view, a trigger, a routine. Bodies are opaque here.
type Object struct {
	Name string `json:"name"`
	Body []byte `json:"body"`
}
