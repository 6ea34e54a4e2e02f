// Package catalog owns databases and tables, the hot tier (journal, buffered rows, counters in pebble), snapshots of
// any commit, conflict rules, adoption of instants that other engines wrote, and transactions over one or many tables.
// It speaks Hudi: columns of storage kinds, record keys, instants. SQL types are unknown here; when services run, too.
//
// A commit is one synced pebble batch (see Tx.Commit): that is the decision, and what was acknowledged never leaves the table.
// A flush turns buffered rows into one instant of the table's Hudi timeline (see Catalog.Flush).
//
// Invariants:
//   - A sequence is the commit's time in microseconds: strictly rising, never below any instant or sequence seen.
//   - A snapshot, a flush and an answer to a client never contain a sequence above the durable mark.
//   - Every instant of ours is a prefix of its table's commits: it holds all rows with a sequence at or below its cut,
//     and every later commit has a time above the instant's.
//   - A row is found in exactly one tier of a snapshot: buffered (recent index entry) or cold (location), since a
//     flush settles both in the batch that makes its instant known.
package catalog
