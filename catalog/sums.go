package catalog

import (
	"strconv"
	"strings"

	"github.com/lakesql/lakesql/timeline"
)

// Neither Hudi's log format nor the footer of a parquet file has a checksum. An instant of ours therefore carries the CRC-32C of each
// file that it wrote, in its extra metadata: "<file>=<8 hexadecimal digits>", separated by blanks.
const extraSums = "lakesql.crc32c"

// noteSum adds the checksum of a file to an instant's metadata.
func noteSum(m *timeline.CommitMeta, file string, sum uint32) {
	text := strconv.FormatUint(1<<32|uint64(sum), 16)[1:]
	if old := m.Extra[extraSums]; old != "" {
		file = old + " " + file
	}
	m.Extra[extraSums] = file + "=" + text
}

// sumsOf gives the checksums that an instant's metadata has, by file.
func sumsOf(m *timeline.CommitMeta) map[string]uint32 {
	out := map[string]uint32{}
	for _, entry := range strings.Fields(m.Extra[extraSums]) {
		if i := strings.LastIndexByte(entry, '='); i > 0 {
			if n, err := strconv.ParseUint(entry[i+1:], 16, 32); err == nil {
				out[entry[:i]] = uint32(n)
			}
		}
	}
	return out
}
