package main

import (
	_ "github.com/apache/arrow-go/v18/arrow"
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/cockroachdb/pebble/v2"
	_ "github.com/cockroachdb/pebble/v2/vfs/errorfs"
	_ "github.com/dolthub/go-mysql-server"
	_ "github.com/dolthub/go-mysql-server/enginetest"
	_ "github.com/dolthub/go-mysql-server/memory"
	_ "github.com/dolthub/go-mysql-server/server"
	_ "github.com/dolthub/vitess/go/mysql"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/parquet-go/parquet-go"
	_ "github.com/stretchr/testify/require"
	_ "github.com/twmb/avro"
	_ "golang.org/x/term"
)
