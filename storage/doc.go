// Package storage owns the bytes of a table: the Store that keeps them, base files (parquet), log files
// (avro data blocks and delete blocks), their names, the table schema and the Batch in which rows travel.
// It does not know which instants completed: a caller says which ones count.
//
// Invariants:
//   - A file that a Store shows is whole: Create publishes at Commit, PutNew and Replace publish at once or not at all.
//   - A base file never changes once it is published, so opened base files and decoded logs may be cached by name.
//   - Corrupt or unknown bytes are an error that names the object and the offset; they are never skipped in silence,
//     except a torn log block, which the log format itself allows (see ReadLog).
package storage
