package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

func keyUint(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

func uvarintOf(s string) (uint64, int) { return binary.Uvarint([]byte(s)) }

// checkContents reads every file of the newest slices whole.
func (k *checker) checkContents(ctx context.Context) error {
	for _, fs := range k.tt.cold.newest() {
		if fs.Base != nil {
			if err := k.checkBase(ctx, k.d.object(fs.Partition, fs.Base.Name)); err != nil {
				return err
			}
		}
		for _, l := range fs.Logs {
			if err := k.checkLog(ctx, fs.Partition, l); err != nil {
				return err
			}
		}
		k.step(1)
	}
	return nil
}

// checkSum compares a file with the checksum that its instant has of it. False: it differs, which was reported.
func (k *checker) checkSum(ctx context.Context, name string) (bool, error) {
	e, ok := k.expected[name]
	if !ok || !e.sums {
		return true, nil
	}
	sum, _, err := storage.Sum(ctx, k.c.store, name)
	if err != nil {
		return false, k.file(name, err)
	}
	if sum == e.sum {
		return true, nil
	}
	k.bad[name] = true
	return false, k.say("damaged file", Problem{Object: k.short(name), Offset: -1, Text: fmt.Sprintf("its CRC-32C is %08x, instant %s wrote %08x", sum, e.by, e.sum), Advice: adviceFile})
}

// checkBase decodes every page of a base file, past all caches. The keys have to pass its own filter: other engines find them by that.
func (k *checker) checkBase(ctx context.Context, name string) error {
	if k.bad[name] {
		return nil
	}
	whole, err := k.checkSum(ctx, name)
	if err != nil {
		return err
	}
	f, err := storage.OpenBase(ctx, k.c.store, name)
	if err != nil {
		return k.file(name, err)
	}
	defer f.Close()
	k.bad[name] = k.bad[name] && whole // where the damage is, is worth a finding of its own
	want := &storage.Schema{}
	if f.Schema() != nil {
		var err error
		if want, err = f.Schema().Select(append([]string{storage.ColRecordKey}, fieldNames(f.Schema())...)...); err != nil {
			return err
		}
	}
	for b, err := range f.Scan(ctx, want) {
		if err != nil {
			return k.file(name, err)
		}
		for i := range b.Rows {
			key, ok := b.Value(0, i).(string)
			if ok && !f.MayHaveKey(key) {
				if err := k.say("filter", Problem{Object: k.short(name), Offset: -1, Key: key, Text: "the file's own filter of keys does not have it: other engines do not find the row", Advice: adviceFile}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkLog decodes every block of a log file, past all caches.
func (k *checker) checkLog(ctx context.Context, partition string, l storage.FileName) error {
	name := k.d.object(partition, l.Name)
	if k.bad[name] || l.CDC {
		return nil
	}
	if whole, err := k.checkSum(ctx, name); err != nil || !whole {
		return err
	}
	for b, err := range storage.ReadLog(ctx, k.c.store, name) {
		if err == nil && b.Type == storage.BlockCorrupt {
			if e, ok := k.expected[name]; ok && e.size > b.Offset {
				err = &storage.CorruptError{Name: name, Offset: b.Offset, Err: fmt.Errorf("no whole block, where instant %s wrote %d bytes", e.by, e.size)}
			} else {
				err = k.d.torn(ctx, partition, l.Name, b.Offset)
			}
		}
		switch {
		case err != nil:
		case b.Type == storage.BlockDelete:
			_, err = b.Deletes()
		case b.Type == storage.BlockAvro:
			err = k.checkBlock(&b)
		case b.Type == storage.BlockParquet:
			_, err = b.Content()
		}
		if err != nil {
			return k.file(name, err)
		}
	}
	return nil
}

// checkBlock decodes the records of a data block.
func (k *checker) checkBlock(b *storage.LogBlock) error {
	schema, err := storage.ParseAvro(b.Schema)
	if err != nil {
		return &storage.CorruptError{Name: "", Offset: b.Offset, Err: fmt.Errorf("schema of the block: %w", err)}
	}
	for _, err := range b.Rows(schema) {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLeftovers looks for what nobody removed: files of writers that failed, temporary files, markers of ended instants.
func (k *checker) checkLeftovers(ctx context.Context) error {
	defer k.step(1)
	if k.tl == nil {
		return nil
	}
	pending := map[storage.InstantTime]bool{}
	for _, in := range k.tl.Pending() {
		pending[in.Time] = true
	}
	newest := k.tl.Newest()
	for part, f := range k.tt.cold.view.Files() {
		if f.Version != 0 || f.CDC || k.tl.Counts(f.Instant) || pending[f.Instant] || f.Instant > newest {
			continue
		}
		if err := k.say("left file", Problem{Severity: Warning, Object: join(part, f.Name), Offset: -1, Text: fmt.Sprintf("the file belongs to instant %s, which is not on the timeline: a writer that failed left it. Readers pass it over", f.Instant), Advice: "it may be removed"}); err != nil {
			return err
		}
	}
	list := func(folder string) ([]string, error) {
		names, err := k.c.fs.List(k.c.path(join(k.d.dir, folder)))
		if err != nil {
			return nil, nil // there is no such folder
		}
		return names, nil
	}
	left := func(name, text string) error {
		st, err := k.c.fs.Stat(k.c.path(join(k.d.dir, name)))
		if err != nil || time.Since(st.ModTime()) < pendingAge {
			return nil // in use, perhaps
		}
		return k.say("leftover", Problem{Severity: Note, Object: name, Offset: -1, Text: text, Advice: "it may be removed"})
	}
	folders := []string{".hoodie"}
	if k.d.layout != timeline.Layout1 {
		folders = append(folders, k.d.layout.Folder(""))
	}
	folders = append(folders, k.tt.cold.view.Partitions()...)
	for _, folder := range folders {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		names, err := list(folder)
		if err != nil {
			return err
		}
		for _, n := range names {
			if strings.HasPrefix(n, storage.TempPrefix) {
				if err := left(join(folder, n), "a temporary file that nobody writes"); err != nil {
					return err
				}
			}
		}
	}
	if err := k.checkKept(ctx); err != nil {
		return err
	}
	names, err := list(".hoodie/lakesql")
	if err != nil {
		return err
	}
	for _, n := range names {
		if name := join(".hoodie/lakesql", n); name != keptFolder {
			if err := left(name, "files of a large statement that nobody ended"); err != nil {
				return err
			}
		}
	}
	names, err = list(".hoodie/.temp")
	if err != nil {
		return err
	}
	for _, n := range names {
		if in, err := timeline.ParseTime(storage.InstantTime(n), time.UTC); err == nil && !in.IsZero() && !pending[storage.InstantTime(n)] && storage.InstantTime(n) <= newest {
			if err := left(join(".hoodie/.temp", n), "markers of an instant that is over"); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkKept looks at the replaced files that are kept for reads of the past.
func (k *checker) checkKept(ctx context.Context) error {
	k.c.kept.mu.RLock()
	var names []string
	var sizes []int64
	for _, s := range k.c.kept.sets {
		if s.t != k.t {
			continue
		}
		for part, files := range s.files {
			for name, size := range files {
				names, sizes = append(names, join(s.folder(), part, name)), append(sizes, size)
			}
		}
	}
	k.c.kept.mu.RUnlock()
	for i, name := range names {
		o, err := k.c.store.Open(ctx, join(k.d.dir, name))
		what := "missing"
		switch {
		case err == nil:
			size := o.Size()
			o.Close()
			if sizes[i] == 0 || size == sizes[i] {
				continue
			}
			what = fmt.Sprintf("of %d bytes, it had %d", size, sizes[i])
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, storage.ErrNotExist):
			return err
		case !k.keeps(name):
			continue // given up meanwhile
		}
		if err := k.say("kept file", Problem{Severity: Warning, Object: name, Offset: -1, Text: "the file, which is kept for reads of the past, is " + what, Advice: "reads AS OF its time fail"}); err != nil {
			return err
		}
	}
	return nil
}

// keeps tells whether a file below the table's folder is still to be kept.
func (k *checker) keeps(name string) bool {
	k.c.kept.mu.RLock()
	defer k.c.kept.mu.RUnlock()
	f, ok := k.c.kept.files[name[strings.LastIndexByte(name, '/')+1:]]
	return ok && f.name == name
}
