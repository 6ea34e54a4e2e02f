package sqlplan

import (
	"sync"
	"unicode/utf8"

	"github.com/dolthub/go-mysql-server/sql"
)

// SortKey gives the key of a text under a collation: bytes.Compare of two keys is the comparison of the texts, and equal
// texts have equal keys. Keys of different collations do not compare. An unknown name or "" compares bytes.
//
// Collations with PAD SPACE compare as MySQL does: the shorter text counts as filled up with spaces, so trailing spaces do
// not tell texts apart. (The front end's own comparison does not pad; it sees a difference there.)
func SortKey(collation, s string) []byte {
	k, ok := sortersByName()[collation]
	if !ok {
		return []byte(s)
	}
	return k.appendKey(make([]byte, 0, len(s)*2+2), s)
}

// AppendSortKey is SortKey onto dst.
func AppendSortKey(dst []byte, collation, s string) []byte {
	k, ok := sortersByName()[collation]
	if !ok {
		return append(dst, s...)
	}
	return k.appendKey(dst, s)
}

// sorter makes the keys of one collation.
type sorter struct {
	bytes  bool // the text is its own key
	pad    bool
	weight sql.CollationSorter
	space  int32 // weight of ' '

	once  sync.Once
	ascii [utf8.RuneSelf][]byte // encoded weights
	blank [utf8.RuneSelf]bool   // weighs as much as a space
}

var sortersByName = sync.OnceValue(func() map[string]*sorter {
	m := map[string]*sorter{}
	for it := sql.NewCollationsIterator(); ; {
		c, ok := it.Next()
		if !ok {
			return m
		}
		if c.Sorter == nil {
			continue
		}
		// Bytes of UTF-8 are in the order of the code points, which are the weights of utf8mb4_0900_bin.
		m[c.Name] = &sorter{
			bytes:  c.ID == sql.Collation_binary || c.ID == sql.Collation_utf8mb4_0900_bin,
			pad:    c.PadAttribute == "PAD SPACE",
			weight: c.Sorter,
		}
	}
})

func (k *sorter) appendKey(dst []byte, s string) []byte {
	if k.bytes {
		return append(dst, s...)
	}
	k.once.Do(k.fill)
	if k.pad {
		return k.appendPadded(dst, s)
	}
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, k.ascii[c]...)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = appendWeight(dst, k.weight(r))
		i += n
	}
	return dst
}

// fill computes the weights of ASCII on the first use of a collation: the front end loads its weight tables then.
func (k *sorter) fill() {
	k.space = k.weight(' ')
	for c := range k.ascii {
		w := k.weight(rune(c))
		k.ascii[c] = appendWeight(nil, w)
		k.blank[c] = w == k.space
	}
}

// appendWeight writes a weight in one to five bytes whose order is the weights' order. No code is the start of another.
func appendWeight(dst []byte, w int32) []byte {
	u := uint32(w)
	switch {
	case u < 0x80:
		return append(dst, byte(u))
	case u < 0x80+0x4000:
		u -= 0x80
		return append(dst, 0x80|byte(u>>8), byte(u))
	case u < 0x200000:
		return append(dst, 0xC0|byte(u>>16), byte(u>>8), byte(u))
	}
	return append(dst, 0xE0, byte(u>>24), byte(u>>16), byte(u>>8), byte(u))
}

// What follows a weight of space in a padded key. A run of n spaces before a smaller weight comes before the end of the text
// (which stands for spaces without end), a longer run nearer to it; before a greater weight the same the other way round.
const (
	runBeforeSmaller = iota
	runAtEnd
	runBeforeGreater
)

// appendPadded writes the weights with each run of spaces as one code, and the end of the text as a run that never ends.
func (k *sorter) appendPadded(dst []byte, s string) []byte {
	run := uint32(0)
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf && run == 0 && !k.blank[c] {
			dst = append(dst, k.ascii[c]...)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		w := k.weight(r)
		if w == k.space {
			run++
			continue
		}
		if run > 0 {
			dst = appendWeight(dst, k.space)
			if w < k.space {
				dst = append(dst, runBeforeSmaller, byte(run>>24), byte(run>>16), byte(run>>8), byte(run))
			} else {
				dst = append(dst, runBeforeGreater, ^byte(run>>24), ^byte(run>>16), ^byte(run>>8), ^byte(run))
			}
			run = 0
		}
		dst = appendWeight(dst, w)
	}
	return append(appendWeight(dst, k.space), runAtEnd)
}
