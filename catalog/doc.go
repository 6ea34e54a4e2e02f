// Package catalog owns databases and tables, the hot tier (journal, buffered rows, counters in pebble), snapshots of
// any commit, conflict rules, adoption of instants that other engines wrote, and transactions over one or many tables.
// It speaks Hudi: columns of storage kinds, record keys, instants. SQL types are unknown here; when services run, too.
//
// A commit is one synced pebble batch (see Tx.Commit): that is the decision, and what was acknowledged never leaves the table.
// A flush turns buffered rows into one instant of the table's Hudi timeline (see Catalog.Flush).
//
// Locks. Writes lock what they change (record keys, there or not; UNIQUE values; a mark on other index values) before they look at the
// newest commit, reads with ScanOptions.Lock the ranges in which they look, or, row by row, what they give. Plain reads see a
// snapshot, lock nothing and never wait. A lock ends at Rollback, or when the commit is durable. Circles of waits are found when they
// close (ErrDeadlock: the transaction is rolled back). The check of conflicts at the commit is left for what takes no locks: other
// engines, whose instants are adopted. A change of definitions first calls lockDefinitions for its tables, before it takes Catalog.ddl or
// any mutex of a table: so it waits for the transactions that have used them, and these can commit.
//
// Order of locks: those of transactions (lockManager.mu is never held while another mutex is waited for), Catalog.ddl, Table.ddl,
// Table.slices, viewMu, commitMu.
//
// Invariants:
//   - A sequence is the commit's time in microseconds: strictly rising, never below any instant or sequence seen.
//   - A snapshot, a flush and an answer to a client never contain a sequence above the durable mark.
//   - Every instant of ours is a prefix of its table's commits: it holds all rows with a sequence at or below its cut,
//     and every later commit has a time above the instant's.
//   - Who has a key locked and takes a snapshot afterwards sees the key's last commit: the commit was durable before its lock ended.
//   - A row is found in exactly one tier of a snapshot: buffered (recent index entry) or cold (location), since a
//     flush settles both in the batch that makes its instant known.
package catalog
