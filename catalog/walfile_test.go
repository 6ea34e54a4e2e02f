package catalog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// The files of the journal are longer than what is written, and a crash loses nothing that stands before their zeros: the folder
// is opened as a kill left it, and once more after that.
func TestJournalGrowsAhead(t *testing.T) {
	dir := t.TempDir()
	probe, err := os.CreateTemp(dir, "probe")
	if err != nil {
		t.Fatal(err)
	}
	err = extend(probe.Fd(), 0, walStep)
	probe.Close()
	os.Remove(probe.Name())
	if err != nil {
		t.Skip("files grow by writes here: ", err)
	}
	ctx := context.Background()
	c, err := Open(ctx, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(ctx) })
	want := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		if err := c.putEntry(metaKey(name), []byte(name)); err != nil {
			t.Fatal(err)
		}
		want[name] = name
		logs, err := filepath.Glob(filepath.Join(dir, stateFolder, "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("files of the journal: %v, %v", logs, err)
		}
		st, err := os.Stat(logs[len(logs)-1])
		if err != nil || st.Size()%walStep != 0 || st.Size() == 0 {
			t.Fatalf("%s has %d bytes (%v), not steps of %d", logs[len(logs)-1], st.Size(), err, walStep)
		}
		killed := copyOpen(t, dir)
		for range 2 {
			k, err := Open(ctx, killed, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for name := range want {
				if got, err := k.meta(name); err != nil || got != name {
					t.Fatalf("%s is %q after the crash (%v)", name, got, err)
				}
			}
			killed = copyOpen(t, killed)
			if err := k.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// copyOpen copies the folder of a warehouse that is open, which removes files that it needs no more meanwhile.
func copyOpen(t *testing.T, dir string) string {
	for {
		to := t.TempDir()
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			return to
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
