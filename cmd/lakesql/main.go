// Command lakesql serves Apache Hudi tables over the MySQL protocol, and is a client for them.
//
// This package owns what a process has once: flags, environment and configuration file, the lock on the data
// folder, signals, and the wiring of catalog and wire server. Each subcommand has its own file. It holds no
// SQL and no storage logic.
//
// Invariants:
//   - A data folder is open in one process at a time (lock.go); a second one is told who the first is.
//   - The exit code is 0 only if everything acknowledged stands in the tables, or in state/ that still can be read.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

const usage = `lakesql: a MySQL server whose tables are Apache Hudi tables

Usage:
  lakesql server  [flags]   start the server
  lakesql sql     [flags]   run statements, in process or against a server
  lakesql version           print the version

'lakesql COMMAND --help' lists the flags of a command.
`

// streams are the process's standard streams, passed so that tests can hold the other end.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// run executes one command line and returns the exit code: 0 done, 1 failed, 2 wrong usage.
// A cancelled ctx stops a server as SIGTERM does.
func run(ctx context.Context, args []string, s streams) int {
	if len(args) == 0 {
		io.WriteString(s.err, usage)
		return 2
	}
	switch args[0] {
	case "server":
		return runServer(ctx, args[1:], s)
	case "sql":
		return runSQL(ctx, args[1:], s)
	case "version", "--version", "-version":
		return runVersion(s)
	case "help", "--help", "-help", "-h":
		io.WriteString(s.out, usage)
		return 0
	}
	fmt.Fprintf(s.err, "lakesql: unknown command %q\n\n%s", args[0], usage)
	return 2
}
