// Package sqlplan adapts the SQL engine to the catalog: databases, tables and indexes as the front end sees them, row
// iterators and editors, sessions with their transactions, AS OF, table options, and the MySQL error of everything that can
// go wrong below.
//
// Its main types are Engine (one a warehouse), Session (one a client), database and table. They hold no rows: what a
// transaction reads and writes is the catalog's.
//
// Invariants:
//   - Every error that leaves a method which the front end calls went through mysqlError, bare.
//   - A statement reads the table that it changes as it was when the statement began; duplicate and foreign key checks see
//     the changes.
//   - A definition (tableDefinition) never changes once a table shows it; alterations make a new one.
package sqlplan
