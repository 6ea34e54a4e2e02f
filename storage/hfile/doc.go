// Package hfile reads and writes HFiles (HBase's sorted key-value file, version 3): the base files and the data blocks of
// log files of Hudi's metadata table. It knows bytes and keys, not what a value holds.
//
// Reader holds the trailer, the root of the block index and the file info of one file, and reads a block when it is asked
// for; it keeps no block and may be used by several goroutines. Writer makes a file of keys that come in order.
//
// A key here is the row of HBase's cell key. Hudi uses nothing else of it: no column family, no qualifier, one time for
// all cells, and no two cells of one row.
//
// Invariants:
//   - Bytes that contradict the format or a checksum are a *CorruptError that names file and offset; features that Hudi
//     does not use (encryption, encoded blocks, cell tags, codecs other than none and GZ) are ErrUnsupported.
//   - A length in the file is compared with the bytes that are there before memory is taken for it. Memory for a compressed
//     block grows with the bytes that come out of it, up to the length it claims.
package hfile
