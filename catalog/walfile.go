package catalog

import (
	"path"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walStep is by how much a file of the journal grows at once.
const walStep = 1 << 20

// walFS has the files of the journal grow in steps, ahead of what is written. A sync behind a write that makes a file longer has
// to commit the file's length too, which costs a third more than one that finds the length as it was. The rest of a file is zeros,
// which pebble takes for its end, as it does in files that it uses again.
type walFS struct{ vfs.FS }

// Unwrap gives the file system below.
func (f walFS) Unwrap() vfs.FS { return f.FS }

func (f walFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	return growing(name, file, err)
}

func (f walFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, category)
	return growing(name, file, err)
}

func growing(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || path.Ext(name) != ".log" || file.Fd() == vfs.InvalidFd {
		return file, err
	}
	st, err := file.Stat()
	if err != nil {
		return file, nil // it is written as it would be
	}
	return &walFile{File: file, size: st.Size()}, nil
}

// walFile is written by one goroutine, from its beginning.
type walFile struct {
	vfs.File
	at   int64 // where the next write begins
	size int64 // length of the file; -1: it grows by writes
}

func (f *walFile) Write(p []byte) (int, error) {
	if end := f.at + int64(len(p)); f.size >= 0 && end > f.size {
		grown := (end + walStep - 1) / walStep * walStep
		if extend(f.Fd(), f.size, grown-f.size) != nil { // not there, or no room: the write itself says so
			grown = -1
		}
		f.size = grown
	}
	n, err := f.File.Write(p)
	f.at += int64(n)
	return n, err
}

// Preallocate is what Write does, unless that does not work.
func (f *walFile) Preallocate(offset, length int64) error {
	if f.size >= 0 {
		return nil
	}
	return f.File.Preallocate(offset, length)
}
