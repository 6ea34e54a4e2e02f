// Package wire serves an engine over the MySQL protocol and mends what the SQL
// front end does to data on its way in and out.
//
// It owns listeners, connections, the path of one statement from its text to
// its packets (statement.go, result.go), MySQL's error numbers (errors.go),
// LOAD DATA (loaddata.go), replacements of front-end functions (functions.go)
// and the server's system variables (vars.go). It knows an engine and a way to
// make sessions, and no tables: package sqlplan hands it both.
//
// Invariants:
//   - A statement that fails has left no transaction open that it began itself.
//   - A statement is run again only while no byte of its answer has been sent.
//   - Rows of a result are held one batch at a time.
//   - No error reaches a client without a number, and none with a stack trace.
package wire
