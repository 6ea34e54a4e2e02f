package sqlplan

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/sqltypes"
)

// collationsTested are one of each kind: weights by language, accents and case, code points, one-byte sets, bytes.
var collationsTested = []string{
	"utf8mb4_0900_ai_ci", "utf8mb4_0900_as_ci", "utf8mb4_0900_as_cs", "utf8mb4_0900_bin", "utf8mb4_bin", "utf8mb4_general_ci",
	"utf8mb4_unicode_ci", "utf8mb4_unicode_520_ci", "utf8mb4_de_pb_0900_ai_ci", "utf8mb3_general_ci", "latin1_swedish_ci",
	"latin1_general_cs", "latin1_bin", "latin7_estonian_cs", "ascii_general_ci", "ascii_bin", "utf8mb4_persian_ci", "binary",
}

// alphabets mix what collides under some collation.
var alphabets = [][]rune{
	[]rune("abcABC 012-_"),
	[]rune("aAäÄàeEéÉoOöÖsSßẞœŒ "),
	[]rune("  \t\x00\x01\x1fa!"),
	[]rune("日本語にほんご한국Ωωςσа́А"),
	[]rune("😀😃𝒜\u00a0\u200b\u0301\uFFFD"),
}

func randomText(r *rand.Rand) string {
	a := alphabets[r.IntN(len(alphabets))]
	var b strings.Builder
	for range r.IntN(7) {
		if r.IntN(20) == 0 {
			b.WriteRune(rune(r.IntN(0xD7FF)))
			continue
		}
		b.WriteRune(a[r.IntN(len(a))])
	}
	return b.String()
}

// Keys compare as the column's collation does.
func TestSortKeyComparesAsCollation(t *testing.T) {
	for _, name := range collationsTested {
		t.Run(name, func(t *testing.T) {
			id, err := sql.ParseCollation("", name, false)
			if err != nil {
				t.Fatal(err)
			}
			typ, err := types.CreateString(sqltypes.VarChar, 100, id)
			if err != nil {
				t.Fatal(err)
			}
			pad := id.PadAttribute() == "PAD SPACE"
			r := rand.New(rand.NewPCG(1, 2))
			for range 20000 {
				a, b := randomText(r), randomText(r)
				if r.IntN(3) == 0 {
					b = a + strings.Repeat(" ", r.IntN(3)) + randomText(r)
				}
				x, y := a, b
				if pad {
					// The rule of PAD SPACE, said with the front end's comparison.
					n := max(len(a), len(b))
					x += strings.Repeat(" ", n-len([]rune(a)))
					y += strings.Repeat(" ", n-len([]rune(b)))
				}
				want, err := typ.Compare(context.Background(), x, y)
				if err != nil {
					t.Fatalf("%q %q: %v", x, y, err)
				}
				if got := bytes.Compare(SortKey(name, a), SortKey(name, b)); got != want {
					t.Fatalf("%q against %q: keys compare %d, texts %d (%x, %x)", a, b, got, want, SortKey(name, a), SortKey(name, b))
				}
			}
		})
	}
}

func TestSortKeyPads(t *testing.T) {
	for _, c := range []struct {
		collation, a, b string
		want            int
	}{
		{"utf8mb4_0900_ai_ci", "a", "a ", -1},
		{"utf8mb4_0900_ai_ci", "ÀB", "ab", 0},
		{"utf8mb4_0900_as_cs", "Ab", "ab", 1},
		{"utf8mb4_general_ci", "a", "A  ", 0},
		{"utf8mb4_general_ci", "a", "a\t", 1},
		{"utf8mb4_general_ci", "a", "a  \t", 1},
		{"utf8mb4_general_ci", "a \t", "a  \t", -1},
		{"utf8mb4_general_ci", "a x", "a  x", 1},
		{"utf8mb4_bin", "a", "A", 1},
		{"latin1_swedish_ci", "É ", "e", 0},
		{"binary", "a", "a ", -1},
		{"", "b", "a", 1},
	} {
		if got := bytes.Compare(SortKey(c.collation, c.a), SortKey(c.collation, c.b)); got != c.want {
			t.Errorf("%s: %q against %q: %d, want %d", c.collation, c.a, c.b, got, c.want)
		}
	}
	if got := AppendSortKey([]byte("x"), "utf8mb4_0900_ai_ci", "Ab"); !bytes.Equal(got, append([]byte("x"), SortKey("utf8mb4_0900_ai_ci", "aB")...)) {
		t.Errorf("AppendSortKey gives %x", got)
	}
}

func TestAppendWeightKeepsOrder(t *testing.T) {
	weights := []int32{0, 1, 0x7F, 0x80, 0x81, 0x407F, 0x4080, 0x1FFFFF, 0x200000, 0x7FFFFFFF}
	keys := make([][]byte, len(weights))
	for i, w := range weights {
		keys[i] = appendWeight(nil, w)
		if i > 0 && bytes.HasPrefix(keys[i], keys[i-1]) {
			t.Errorf("the code of %d starts with the code of %d", w, weights[i-1])
		}
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Errorf("codes are not in order: %x", keys)
	}
}

func BenchmarkSortKey(b *testing.B) {
	for _, c := range []struct{ name, collation, text string }{
		{"ai_ci/ascii", "utf8mb4_0900_ai_ci", "customer#000000042"},
		{"ai_ci/unicode", "utf8mb4_0900_ai_ci", "Müller Straße 日本"},
		{"general_ci/ascii", "utf8mb4_general_ci", "customer#000000042"},
		{"bin/ascii", "utf8mb4_0900_bin", "customer#000000042"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = AppendSortKey(buf[:0], c.collation, c.text)
			}
		})
	}
}
