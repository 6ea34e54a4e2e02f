package catalog

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS is the file system of the state's database. The name of a marker says which manifest is in force: it is made, and the one before
// it removed, after the manifest was made, and one sync of the folder at the end makes the three names durable. File systems with a journal
// keep to the order in which names came and went, others need not, and a power failure could leave a marker without its manifest, or none.
// Here each is durable before the next.
type orderedFS struct{ vfs.FS }

// markerPrefix begins the names of markers.
const markerPrefix = "marker."

func (f orderedFS) sync(name string) error {
	if !strings.HasPrefix(f.PathBase(name), markerPrefix) {
		return nil
	}
	dir, err := f.OpenDir(f.PathDir(name))
	if err != nil {
		return err
	}
	return firstError(dir.Sync(), dir.Close())
}

// Create is vfs.FS's.
func (f orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.sync(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, category)
}

// Remove is vfs.FS's.
func (f orderedFS) Remove(name string) error {
	if err := f.sync(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Unwrap is vfs.FS's.
func (f orderedFS) Unwrap() vfs.FS { return f.FS }
