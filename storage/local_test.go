package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// testStores runs a test on each kind of store.
func testStores(t *testing.T, run func(t *testing.T, s Store)) {
	t.Run("mem", func(t *testing.T) { run(t, NewLocal(vfs.NewMem(), "warehouse")) })
	t.Run("crashable", func(t *testing.T) { run(t, NewLocal(vfs.NewCrashableMem(), "/a/b")) })
	t.Run("disk", func(t *testing.T) { run(t, NewLocal(vfs.Default, filepath.Join(t.TempDir(), "deep", "er"))) })
}

func readObject(t testing.TB, s Store, name string) string {
	t.Helper()
	o, err := s.Open(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b := make([]byte, o.Size())
	if n, err := o.ReadAt(b, 0); n != len(b) {
		t.Fatal(err)
	}
	return string(b)
}

func names(t testing.TB, s Store, dir string) (out []string) {
	t.Helper()
	for in, err := range s.List(bg, dir) {
		if err != nil {
			t.Fatal(err)
		}
		n := in.Name
		if in.Dir {
			n += "/"
		} else {
			n += fmt.Sprint(":", in.Size)
		}
		out = append(out, n)
	}
	return out
}

func TestStore(t *testing.T) {
	testStores(t, func(t *testing.T, s Store) {
		if _, err := s.Open(bg, "t/x"); !errors.Is(err, ErrNotExist) {
			t.Errorf("open of nothing: %v", err)
		}
		if got := names(t, s, "t"); got != nil {
			t.Errorf("list of nothing: %v", got)
		}
		w, err := s.Create(bg, "t/p=1/x")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "hello ")
		fmt.Fprint(w, "world")
		if _, err := s.Open(bg, "t/p=1/x"); !errors.Is(err, ErrNotExist) {
			t.Errorf("open before Commit: %v", err)
		}
		if got := names(t, s, "t/p=1"); got != nil {
			t.Errorf("listed before Commit: %v", got)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := readObject(t, s, "t/p=1/x"); got != "hello world" {
			t.Errorf("read %q", got)
		}
		if err := w.Commit(); err == nil {
			t.Error("a second Commit")
		}
		// A name that is taken is refused, whichever way.
		if err := s.PutNew(bg, "t/p=1/x", []byte("other")); !errors.Is(err, ErrExist) {
			t.Errorf("PutNew of a taken name: %v", err)
		}
		w, err = s.Create(bg, "t/p=1/x")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); !errors.Is(err, ErrExist) {
			t.Errorf("Commit of a taken name: %v", err)
		}
		if got := readObject(t, s, "t/p=1/x"); got != "hello world" {
			t.Errorf("read %q", got)
		}
		w, err = s.Create(bg, "t/p=1/y")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Abort(), w.Abort()); err != nil {
			t.Fatal(err)
		}
		if err := s.PutNew(bg, "t/p=1/.x.crc", []byte("sum")); err != nil {
			t.Fatal(err)
		}
		if err := s.PutNew(bg, "t/a", nil); err != nil {
			t.Fatal(err)
		}
		if got := names(t, s, "t"); !slices.Equal(got, []string{"a:0", "p=1/"}) {
			t.Errorf("listed %v", got)
		}
		// Replace drops the checksum of the content it replaces.
		if err := s.Replace(bg, "t/p=1/x", []byte("new")); err != nil {
			t.Fatal(err)
		}
		if got := names(t, s, "t/p=1/"); !slices.Equal(got, []string{"x:3"}) {
			t.Errorf("listed %v", got)
		}
		if err := s.Remove(bg, "t/p=1/x", "t/p=1/nothing", "u/nothing", "u/"); err != nil {
			t.Fatal(err)
		}
		if got := names(t, s, "t/p=1"); got != nil {
			t.Errorf("listed %v", got)
		}
		if err := s.PutNew(bg, "t/p=1/q/z", []byte("z")); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(bg, "t/p=1/"); err != nil {
			t.Fatal(err)
		}
		if got := names(t, s, "t"); !slices.Equal(got, []string{"a:0"}) {
			t.Errorf("listed %v", got)
		}
		// The folder that was removed can be written again.
		if err := s.PutNew(bg, "t/p=1/q/z", []byte("again")); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "/x", "a//b", "a/../b", "..", "a/.", "x\x00"} {
			if err := s.PutNew(bg, bad, nil); err == nil {
				t.Errorf("name %q was taken", bad)
			}
		}
	})
}

// After a crash an object that was published is whole, and no other is there in part.
func TestStoreCrash(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		s := NewLocal(fs, "w")
		done := map[string]string{}
		replaced := map[string][]string{}
		steps := r.IntN(12)
		for i := range steps {
			name, body := fmt.Sprintf("t%d/p%d/f%d", r.IntN(2), r.IntN(3), i), strings.Repeat(fmt.Sprint(i), 1+r.IntN(3000))
			switch r.IntN(4) {
			case 0:
				w, err := s.Create(bg, name)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(w, body) // never ended
			case 1:
				if err := s.Replace(bg, "t0/props", []byte(body)); err != nil {
					t.Fatal(err)
				}
				done["t0/props"] = body
				replaced["t0/props"] = append(replaced["t0/props"], body)
			case 2:
				w, err := s.Create(bg, name)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(w, body)
				if err := w.Commit(); err != nil {
					t.Fatal(err)
				}
				done[name] = body
			default:
				if err := s.PutNew(bg, name, []byte(body)); err != nil {
					t.Fatal(err)
				}
				done[name] = body
			}
		}
		after := NewLocal(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r}), "w")
		found := 0
		for _, dir := range []string{"t0", "t1"} {
			for _, sub := range append(names(t, after, dir), "") {
				p := dir
				if strings.HasSuffix(sub, "/") {
					p += "/" + strings.TrimSuffix(sub, "/")
				} else if sub != "" {
					continue
				}
				for in, err := range after.List(bg, p) {
					if err != nil {
						t.Fatal(err)
					}
					if in.Dir {
						continue
					}
					found++
					name := p + "/" + in.Name
					if got := readObject(t, after, name); got != done[name] {
						t.Errorf("seed %d: %s has %d bytes, want %d", seed, name, len(got), len(done[name]))
					}
				}
			}
		}
		if found != len(done) {
			t.Errorf("seed %d: %d objects after the crash, want %d", seed, found, len(done))
		}
	}
}

// A base file is there after Commit, and after a crash before it nothing is.
func TestBaseCrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := NewLocal(fs, "")
	rows := randomRows(500, 9)
	w, err := CreateBase(bg, s, baseName, allKinds, BaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if err := w.Append(rowMeta(i), row); err != nil {
			t.Fatal(err)
		}
	}
	crash := func() Store {
		return NewLocal(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 1))}), "")
	}
	if _, err := OpenBase(bg, crash(), baseName); !errors.Is(err, ErrNotExist) {
		t.Errorf("before Commit: %v", err)
	}
	if _, err := w.Commit(bg); err != nil {
		t.Fatal(err)
	}
	if got := scanRows(t, mustOpenBase(t, crash(), baseName), allKinds); len(got) != len(rows) {
		t.Errorf("%d rows after the crash", len(got))
	}
}

// The clock of the file system may lie behind the time that a file stands for.
func TestPutNewAt(t *testing.T) {
	s := NewLocal(vfs.Default, t.TempDir())
	ahead := time.Now().Add(time.Minute).Truncate(time.Millisecond)
	for _, at := range []time.Time{{}, ahead.Add(-time.Hour), ahead} {
		name := fmt.Sprint("x", at.UnixMilli())
		if err := s.PutNewAt(bg, name, []byte("content"), at); err != nil {
			t.Fatal(err)
		}
		for in, err := range s.List(bg, "") {
			if err != nil {
				t.Fatal(err)
			}
			if in.Name == name && (in.ModTime.Before(at) || at.Before(ahead) && in.ModTime.After(ahead)) {
				t.Errorf("put at %s: the file is of %s", at, in.ModTime)
			}
		}
	}
	if err := s.PutNewAt(bg, fmt.Sprint("x", ahead.UnixMilli()), nil, ahead); !errors.Is(err, ErrExist) {
		t.Errorf("a taken name: %v", err)
	}
}

// PutNew hands the bytes to a file system that may change them.
func TestPutNewKeepsBytes(t *testing.T) {
	s := NewLocal(scribblingFS{vfs.NewMem()}, "")
	b := []byte("content")
	if err := s.PutNew(bg, "x", b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, []byte("content")) {
		t.Errorf("the caller's bytes are %q", b)
	}
}

type scribblingFS struct{ vfs.FS }

func (f scribblingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return scribblingFile{file}, err
}

type scribblingFile struct{ vfs.File }

func (f scribblingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	clear(b)
	return n, err
}
