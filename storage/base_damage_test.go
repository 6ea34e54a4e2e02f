package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func wholeBase(t testing.TB) []byte {
	fs := vfs.NewMem()
	s := NewLocal(fs, "")
	writeBase(t, s, "x_1-1-1_1.parquet", allKinds, randomRows(300, 1), BaseOptions{RowGroupRows: 200})
	o, err := s.Open(bg, "x_1-1-1_1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, o.Size())
	if _, err := o.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// readDamaged reads all of a file's bytes; every error must be a *CorruptError or name what is not supported.
func readDamaged(t testing.TB, b []byte) {
	s := NewLocal(vfs.NewMem(), "")
	if err := s.PutNew(bg, "x.parquet", b); err != nil {
		t.Fatal(err)
	}
	known := func(err error) {
		var c *CorruptError
		if err != nil && (!errors.As(err, &c) || c.Name != "x.parquet") && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%T: %v", err, err)
		}
	}
	f, err := OpenBase(bg, s, "x.parquet")
	known(err)
	if err != nil {
		return
	}
	defer f.Close()
	if f.Rows() > 1<<20 {
		return // a damaged count; reading it ends at the first page that is missing
	}
	f.UsePages(nil)
	want := withMeta(f.Schema())
	for _, err := range f.Scan(bg, want) {
		known(err)
	}
	if n := f.Rows(); n > 0 {
		_, err := f.ReadRows(bg, want, []int64{0, n / 2, n - 1})
		known(err)
	}
	_, err = f.FindKey(bg, "key-0000100")
	known(err)
}

func TestDamagedBase(t *testing.T) {
	whole := wholeBase(t)
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		readDamaged(t, whole[:r.IntN(len(whole))])
	}
	for range 1500 {
		b := slices.Clone(whole)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(b))
			if r.IntN(2) == 0 {
				at = len(b) - 1 - r.IntN(min(len(b), 6000))
			}
			b[at] ^= byte(1 + r.IntN(255))
		}
		readDamaged(t, b)
	}
}

func FuzzOpenBase(f *testing.F) {
	s := NewLocal(vfs.NewMem(), "")
	small := &Schema{Name: "r", Fields: []Field{{Name: "a", Type: Type{Kind: Int64}}, {Name: "b", Type: Type{Kind: String}}}}
	writeBase(f, s, "x_1-1-1_1.parquet", small, []Row{{int64(1), "x"}, {nil, nil}}, BaseOptions{Compression: Uncompressed})
	whole := []byte(readObject(f, s, "x_1-1-1_1.parquet"))
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("PAR1PAR1PAR1"))
	f.Fuzz(readDamagedFuzz)
}

func readDamagedFuzz(t *testing.T, b []byte) { readDamaged(t, b) }

// A store that fails is no damage.
func TestBaseStoreError(t *testing.T) {
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, randomRows(300, 1), BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	broken := errors.New("disk on fire")
	f.source.obj = failingObject{f.source.obj, broken}
	_, err := f.ReadRows(bg, allKinds, []int64{1})
	var c *CorruptError
	if !errors.Is(err, broken) || errors.As(err, &c) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	for _, err := range f.Scan(ctx, allKinds) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

type failingObject struct {
	Object
	err error
}

func (o failingObject) ReadAt([]byte, int64) (int, error) { return 0, o.err }
