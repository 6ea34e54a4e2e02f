package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

const adviceMetadata = "take hoodie.table.metadata.partitions out of hoodie.properties and remove .hoodie/metadata: engines that use it make it anew"

// checkMetadata compares the metadata table with the folders, if the table has one in use. lakesql takes no row from it, but other
// engines find files by it alone.
func (k *checker) checkMetadata(ctx context.Context) error {
	defer k.step(1)
	const name = ".hoodie/metadata"
	p, err := timeline.ReadProperties(ctx, k.c.store, k.d.dir)
	if err != nil || !p.MetadataInUse() || k.tl == nil {
		return nil // checkProperties and checkTimeline have told of it
	}
	say := func(sev Severity, text string) error {
		return k.say("metadata table", Problem{Severity: sev, Object: name, Offset: -1, Text: text, Advice: adviceMetadata})
	}
	// An instant completes in the metadata table first: what the timeline read before had, this one has.
	m, err := timeline.OpenMetadata(ctx, k.c.store, k.d.dir, p, k.tl)
	if errors.Is(err, storage.ErrNotExist) {
		return say(Warning, "the properties name a metadata table that is not there: readers list the folders instead")
	}
	if err != nil {
		return k.file(join(k.d.dir, name), err)
	}
	if why := m.Stale(); why != "" {
		return say(Damage, "stale metadata table: "+why+"; engines that use it may miss files or look for files that are gone")
	}
	files, err := m.Files(ctx)
	if err != nil {
		return k.file(join(k.d.dir, name), err)
	}
	known := map[string]int64{}
	for part, sizes := range files {
		for file, size := range sizes {
			known[k.d.object(part, file)] = size
		}
	}
	need := func(part string, f *storage.FileName) error {
		full := k.d.object(part, f.Name)
		size, ok := known[full]
		if ok && size >= f.Size || k.bad[full] {
			return nil
		}
		if there, err := k.exists(ctx, full); err != nil || !there {
			return err // cleaned meanwhile
		}
		if !ok {
			return say(Damage, fmt.Sprintf("the metadata table does not list %s: engines that use it miss its rows", k.short(full)))
		}
		return say(Damage, fmt.Sprintf("the metadata table says that %s has %d bytes, it has %d", k.short(full), size, f.Size))
	}
	for _, fs := range k.tt.cold.newest() {
		if fs.Base != nil {
			if err := need(fs.Partition, fs.Base); err != nil {
				return err
			}
		}
		for i := range fs.Logs {
			if err := need(fs.Partition, &fs.Logs[i]); err != nil {
				return err
			}
		}
	}
	for _, in := range k.tl.Pending() {
		if in.Action == timeline.Clean || in.Action == timeline.Rollback || in.Action == timeline.Restore {
			return nil // it removes files, and tells the metadata table afterwards
		}
	}
	for part := range files {
		for info, err := range k.c.store.List(ctx, join(k.d.dir, part)) {
			if err != nil {
				return err
			}
			delete(known, k.d.object(part, info.Name))
		}
	}
	for _, full := range slices.Sorted(maps.Keys(known)) {
		if !k.bad[full] {
			if err := say(Warning, fmt.Sprintf("the metadata table lists %s, which is not there", k.short(full))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *checker) exists(ctx context.Context, name string) (bool, error) {
	o, err := k.c.store.Open(ctx, name)
	if errors.Is(err, storage.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, o.Close()
}
