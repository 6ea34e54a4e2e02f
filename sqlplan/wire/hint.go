package wire

import (
	"regexp"
	"strconv"
)

var timeHint = regexp.MustCompile(`(?i)^\s*(?:/\*[^+!][^*]*\*/\s*)*\(*\s*select\s*/\*\+[^*]*\bmax_execution_time\s*\(\s*([0-9]+)\s*\)`)

// executionTimeHint reads SELECT /*+ MAX_EXECUTION_TIME(ms) */, which the front end's parser drops.
func executionTimeHint(text string) (ms int64, ok bool) {
	m := timeHint.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	return ms, err == nil
}
