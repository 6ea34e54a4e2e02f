package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// memoryGoal is the memory in bytes above which a server without --memory-limit spends more time on collecting garbage, unless
// GOMEMLIMIT says otherwise. It is no limit: what is in use stays.
const memoryGoal = 768 << 20

// memoryLeast is the smallest limit: below it caches and journal have no room to work.
const memoryLeast = 256 << 20

// memoryPlan says how memory is shared out, in bytes.
type memoryPlan struct {
	goal  int64 // garbage is collected harder above it
	guard int64 // the heap at which a statement is ended; 0: never
	cache int64 // decoded logs and blocks
	tx    int64 // rows that transactions have changed and not committed; a commit takes about five times that for a moment
	hot   int64 // rows that wait for a flush; they lie on the disk, and cost memory where they are read
}

// planMemory shares out a limit, 0 if none is set, on a machine with so much memory, 0 if that is unknown.
func planMemory(limit, machine int64) memoryPlan {
	if limit == 0 {
		return memoryPlan{goal: memoryGoal, guard: machine / 5 * 4} // the other defaults are the catalog's
	}
	return memoryPlan{goal: limit / 4 * 3, guard: limit / 10 * 9, cache: limit / 6, tx: limit / 8, hot: min(1<<30, limit)}
}

// machineMemory gives the memory that the process may use: of its control group, else of the machine; 0 if that cannot be told.
func machineMemory() int64 {
	n := int64(math.MaxInt64)
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(name); err == nil {
			if v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && v > 0 {
				n = min(n, v)
			}
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
				if f := strings.Fields(rest); len(f) > 0 {
					if v, err := strconv.ParseInt(f[0], 10, 64); err == nil {
						n = min(n, v<<10)
					}
				}
			}
		}
	}
	if n == math.MaxInt64 {
		return 0
	}
	return n
}

// parseSize reads a number of bytes with or without a unit: 800MiB, 2g, 1073741824.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "kmgtibKMGTIB")
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	shift, ok := map[string]uint{"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30, "t": 40, "tib": 40}[strings.ToLower(text[len(digits):])]
	if err != nil || !ok || n <= 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size such as 800MiB or 2GiB", text)
	}
	if n <<= shift; n < memoryLeast {
		return 0, fmt.Errorf("%s is too little memory: at least %d MiB are needed", text, memoryLeast>>20)
	}
	return n, nil
}
