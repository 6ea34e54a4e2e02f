package storage

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// D17: how often a filter of this package's own size says yes wrongly, and that it never says no wrongly.
func TestBloomMissRate(t *testing.T) {
	for _, n := range []int{1, 100, 20000} {
		b := NewBloom(n, bloomMissRate)
		for i := range n {
			b.Add(fmt.Sprintf("ord-%08dé", i))
		}
		back, err := DecodeBloom(b.Encode(), b.TypeCode())
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if !back.Has(fmt.Sprintf("ord-%08dé", i)) {
				t.Fatalf("%d keys: key %d is missing", n, i)
			}
		}
		wrong := 0
		const probes = 200000
		for i := range probes {
			if back.Has(fmt.Sprintf("other-%d", i)) {
				wrong++
			}
		}
		if rate := float64(wrong) / probes; rate > 5*bloomMissRate {
			t.Errorf("%d keys: %g of other keys hit, want about %g", n, rate, bloomMissRate)
		}
	}
}

func TestBloomSize(t *testing.T) {
	b := NewBloom(60000, 1e-9) // Hudi's default
	if b.size != 2587966 || b.hashes != 30 || len(b.Encode()) != 431380-(431380-(13+(2587966+7)/8+2)/3*4) {
		t.Errorf("size %d, hashes %d, %d characters", b.size, b.hashes, len(b.Encode()))
	}
	if b := NewBloom(100_000_000, 1e-4); b.size != bloomBitsMax || b.hashes != 1 {
		t.Errorf("capped: size %d, hashes %d", b.size, b.hashes)
	}
}

func TestBloomDynamicGrows(t *testing.T) {
	one := NewBloom(10, 1e-6)
	b := &Bloom{size: one.size, hashes: one.hashes, rows: one.rows, perRow: 10}
	for i := range 35 {
		b.Add(fmt.Sprint("k", i))
	}
	if len(b.rows) != 4 || b.inLast != 5 {
		t.Fatalf("%d rows, %d keys in the last", len(b.rows), b.inLast)
	}
	back, err := DecodeBloom(b.Encode(), bloomDynamic)
	if err != nil {
		t.Fatal(err)
	}
	if back.Encode() != b.Encode() {
		t.Error("encodes otherwise after decoding")
	}
	for i := range 35 {
		if !back.Has(fmt.Sprint("k", i)) {
			t.Fatalf("key %d is missing", i)
		}
	}
}

func FuzzDecodeBloom(f *testing.F) {
	f.Add(NewBloom(3, 0.1).Encode(), "")
	dyn := NewBloom(3, 0.1)
	dyn.perRow = 2
	f.Add(dyn.Encode(), bloomDynamic)
	f.Fuzz(func(t *testing.T, s, code string) {
		b, err := DecodeBloom(s, code)
		if err != nil {
			return
		}
		b.Has("x")
		b.Add("x")
		if !b.Has("x") {
			t.Error("a key that was added is missing")
		}
	})
}

func TestDecodeBloomRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	whole, _ := base64.StdEncoding.DecodeString(NewBloom(50, 1e-3).Encode())
	for range 200 {
		cut := whole[:r.IntN(len(whole))]
		if _, err := DecodeBloom(base64.StdEncoding.EncodeToString(cut), ""); err == nil {
			t.Fatalf("a filter cut to %d bytes was read", len(cut))
		}
	}
	if _, err := DecodeBloom(strings.Repeat("A", 40), ""); err == nil {
		t.Error("a filter with Jenkins hashes was read")
	}
}
