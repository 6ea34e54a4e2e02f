package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollationOfConnections(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	for _, tc := range []struct{ set, collation, equal string }{
		{"SET NAMES utf8mb4", "utf8mb4_0900_ai_ci", "1"},
		{"SET CHARACTER SET utf8mb4", "utf8mb4_0900_ai_ci", "1"},
		{"SET NAMES utf8mb4 COLLATE utf8mb4_0900_bin", "utf8mb4_0900_bin", "0"},
		{"SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'", "utf8mb4_general_ci", "1"},
	} {
		exec(t, db, tc.set)
		require.Equal(t, tc.collation+"\t"+tc.equal, table(t, db, "SELECT @@collation_connection, 'a' = 'A'"), tc.set)
	}
	exec(t, db, "SET NAMES utf8mb4")
	exec(t, db, "CREATE DATABASE n")
	exec(t, db, "CREATE TABLE n.t (v VARCHAR(10))")
	require.Contains(t, table(t, db, "SHOW CREATE TABLE n.t"), "COLLATE=utf8mb4_0900_ai_ci")
}

func TestSessionCounts(t *testing.T) {
	s := testServer(t, nil)
	db := open(t, s, "")
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
	exec(t, db, "INSERT INTO t (v) VALUES (1),(2)")
	require.Equal(t, "1", table(t, db, "SELECT @@identity"))
	require.Equal(t, "1", table(t, db, "SELECT @@last_insert_id"))
	exec(t, db, "INSERT IGNORE INTO t VALUES (1,1)")
	require.Equal(t, "1", table(t, db, "SELECT @@warning_count"))
	require.Equal(t, "0", table(t, db, "SELECT @@warning_count"))
	require.Equal(t, "NULL", table(t, db, "SELECT @@secure_file_priv"))
	require.Equal(t, "1", table(t, db, "SELECT @@local_infile"))
	exec(t, db, "SET time_zone = 'Europe/Berlin'")
}
