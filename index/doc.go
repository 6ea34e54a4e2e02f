// Package index finds where a record key lives: RecordIndex keeps, in the warehouse's pebble database, the recent
// changes of a key (rows still in the hot tier) and its location (its place in the table's files), and secondary keys.
// It knows neither rows nor timelines.
//
// Keyspaces (table ids are 4 bytes, big-endian; sequences 8 bytes, big-endian, in recent keys inverted so that the newest comes first):
//
//	'r' table key ^sequence  → put or delete, place of the row in the journal      (written by commits only)
//	'l' table key            → sequence, file group, base instant, row number, record key (written by flush and adoption only)
//	's' table index values key → length of values                                  (hints: checked against their row before use)
//	'd' table partition key  → file group, base instant of a deleted record that its base file still has
//	'g' table number         → partition path, file id                            (file groups, so that locations stay small)
//	'q' table number         → sequence, instant                                  (decided large statements, which their locations name)
//
// Invariants:
//   - The last change of a key is its newest recent entry, else its location's sequence.
//   - A location names only files of instants that are flushed or adopted.
//   - Keys are encoded to sort as their columns do and so that no key is a prefix of another.
package index
