// Package dialect is the layer of SQL text in front of the SQL engine's grammar. It owns what
// lakesql's SQL has and that grammar has not: time travel in all its spellings, Spark SQL's CREATE
// TABLE … USING hudi, table options, named arguments of CALL, executable comments as MySQL reads
// them, and the smaller statements that MySQL's clients send.
//
// Invariants:
//   - text that the layer does not know goes to the engine's grammar untouched;
//   - wherever it can, a change replaces bytes by blanks, so that the positions which the grammar
//     reports, and the substrings which views and triggers keep of their statement, stay right;
//   - parameters keep their number and their order;
//   - the package knows text and syntax trees. It asks no table and no catalog; what a table has to
//     do travels in a [Carrier] to the package that implements tables.
package dialect
