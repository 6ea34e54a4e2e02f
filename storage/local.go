package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TempPrefix starts the names of files that are still being written. No name of Hudi's starts so, and List hides them.
const TempPrefix = ".tmp-"

// diskCategory labels this package's writes in the file system's disk statistics.
const diskCategory vfs.DiskWriteCategory = "lakesql-storage"

// Local is a Store over a file system: pebble's vfs.Default on disk, vfs.NewMem and vfs.NewCrashableMem in tests.
// An object is a file below the root. What a method published is durable when it returns: the file is synced, then its
// folder and every folder above it that this Local has not synced yet.
type Local struct {
	fs   vfs.FS
	root string

	mu     sync.Mutex
	synced map[string]bool // folders that exist durably; guarded by mu

	temps atomic.Bool // a temporary file could not be removed
}

var _ Store = (*Local)(nil)

// NewLocal gives the store of the objects below root, a path of fs. The root is created by the first write.
func NewLocal(fs vfs.FS, root string) *Local {
	if root = fs.PathJoin(root); root == "" {
		root = "."
	}
	return &Local{fs: fs, root: root, synced: map[string]bool{}}
}

// Location gives the path of an object as other programs know it.
func (l *Local) Location(name string) string { return l.fs.PathJoin(l.root, name) }

// split checks a name and gives the path of its folder, of itself, and its last part. Parts such as ".." are refused,
// since partition paths are made of data.
func (l *Local) split(name string) (dir, path, last string, err error) {
	parts := strings.Split(name, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.IndexByte(p, 0) >= 0 {
			return "", "", "", fmt.Errorf("storage: invalid object name %q", name)
		}
	}
	last = parts[len(parts)-1]
	dir = l.root
	for _, p := range parts[:len(parts)-1] {
		dir = l.fs.PathJoin(dir, p)
	}
	return dir, l.fs.PathJoin(dir, last), last, nil
}

func (l *Local) dirPath(dir string) (string, error) {
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return l.root, nil
	}
	_, path, _, err := l.split(dir)
	return path, err
}

// notExist tells a missing file, also below what is no folder.
func notExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Open gives the object; ErrNotExist if there is none.
func (l *Local) Open(ctx context.Context, name string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	_, path, _, err := l.split(name)
	if err != nil {
		return nil, err
	}
	f, err := l.fs.Open(path)
	if err != nil {
		if notExist(err) {
			return nil, fmt.Errorf("open %s: %w", name, ErrNotExist)
		}
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = errors.New("is a folder")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &localObject{File: f, size: st.Size()}, nil
}

type localObject struct {
	vfs.File
	size int64
}

func (o *localObject) Size() int64 { return o.size }

// Create starts an object under a temporary name in its folder.
func (l *Local) Create(ctx context.Context, name string) (Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := l.create(name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return w, nil
}

func (l *Local) create(name string) (*localWriter, error) {
	dir, path, last, err := l.split(name)
	if err != nil {
		return nil, err
	}
	var b [8]byte
	rand.Read(b[:])
	w := &localWriter{l: l, name: name, dir: dir, path: path, last: last, temp: l.fs.PathJoin(dir, TempPrefix+hex.EncodeToString(b[:]))}
	for try := 0; ; try++ {
		if err := l.ensureDir(dir); err != nil {
			return nil, err
		}
		w.f, err = l.fs.Create(w.temp, diskCategory)
		if err == nil {
			return w, nil
		}
		// Somebody else may have removed a folder that was synced before.
		l.forget()
		if try > 0 || !notExist(err) {
			return nil, err
		}
	}
}

// ensureDir makes a folder and those above it durable.
func (l *Local) ensureDir(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.synced[dir] {
		return nil
	}
	if err := l.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var made []string
	inside := true
	for at := dir; !l.synced[at]; {
		made = append(made, at)
		inside = inside && at != l.root
		up := l.fs.PathDir(at)
		if up == at {
			break
		}
		// What lies above the root need not be ours to open.
		if err := l.syncDir(up); err != nil && inside {
			return err
		}
		at = up
	}
	for _, at := range made {
		l.synced[at] = true
	}
	return nil
}

// forget drops what is known of folders, one of which is gone.
func (l *Local) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.synced)
}

func (l *Local) syncDir(dir string) error {
	d, err := l.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// dropTemp removes a temporary file; one that stays is hidden by List.
func (l *Local) dropTemp(path string) {
	if err := l.fs.Remove(path); err != nil && !notExist(err) {
		l.temps.Store(true)
	}
}

// TempsLeft tells whether a temporary file could not be removed.
func (l *Local) TempsLeft() bool { return l.temps.Load() }

type localWriter struct {
	l                     *Local
	name, dir, path, last string
	temp                  string
	f                     vfs.File // nil once the writer ended
	err                   error    // first failed write: nothing can be published after it
	notBefore             time.Time
	brief, empty          bool // the name need not be durable; there is no content
}

var errEnded = errors.New("storage: the writer has ended")

func (w *localWriter) Write(b []byte) (int, error) {
	if w.f == nil {
		return 0, errEnded
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.f.Write(b)
	if err != nil {
		w.err = fmt.Errorf("write %s: %w", w.name, err)
	}
	return n, w.err
}

// Commit links the file to its name, which fails if the name is taken.
func (w *localWriter) Commit() error {
	if err := w.seal(); err != nil {
		return err
	}
	if err := w.l.fs.Link(w.temp, w.path); err != nil {
		w.l.dropTemp(w.temp)
		if errors.Is(err, fs.ErrExist) {
			err = ErrExist
		}
		return fmt.Errorf("publish %s: %w", w.name, err)
	}
	// One sync of the folder covers the new name and the end of the temporary one. If the latter stays, List hides it.
	w.l.dropTemp(w.temp)
	if w.brief {
		return nil
	}
	if err := w.l.syncDir(w.dir); err != nil {
		return fmt.Errorf("publish %s: %w", w.name, err)
	}
	return nil
}

// date lifts the modification time of the temporary file to notBefore.
func (w *localWriter) date() error {
	if w.notBefore.IsZero() || vfs.Root(w.l.fs) != vfs.Default {
		return nil
	}
	st, err := w.l.fs.Stat(w.temp)
	if err != nil || !st.ModTime().Before(w.notBefore) {
		return err
	}
	return os.Chtimes(w.temp, time.Time{}, w.notBefore)
}

// replace renames the file over its name.
func (w *localWriter) replace() error {
	if err := w.seal(); err != nil {
		return err
	}
	// Hadoop refuses a file whose side file has the checksum of other content, and does without one that is missing.
	if err := w.l.removeFile(w.l.crcPath(w.dir, w.last)); err != nil {
		w.l.dropTemp(w.temp)
		return fmt.Errorf("replace %s: %w", w.name, err)
	}
	if err := w.l.fs.Rename(w.temp, w.path); err != nil {
		w.l.dropTemp(w.temp)
		return fmt.Errorf("replace %s: %w", w.name, err)
	}
	if err := w.l.syncDir(w.dir); err != nil {
		return fmt.Errorf("replace %s: %w", w.name, err)
	}
	return nil
}

// seal syncs and closes the temporary file, or removes it.
func (w *localWriter) seal() error {
	if w.f == nil {
		return errEnded
	}
	f, err := w.f, w.err
	w.f = nil
	if err == nil {
		if err = w.date(); err != nil {
			err = fmt.Errorf("date %s: %w", w.name, err)
		}
	}
	if err == nil && !(w.brief && w.empty) {
		if err = f.Sync(); err != nil {
			err = fmt.Errorf("sync %s: %w", w.name, err)
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", w.name, cerr)
	}
	if err != nil {
		w.l.dropTemp(w.temp)
	}
	return err
}

func (w *localWriter) Abort() error {
	if w.f == nil {
		return nil
	}
	cerr := w.f.Close()
	w.f = nil
	if err := errors.Join(cerr, w.l.removeFile(w.temp)); err != nil {
		w.l.temps.Store(true)
		return fmt.Errorf("abort %s: %w", w.name, err)
	}
	return nil
}

// PutNew writes a whole object; ErrExist if the name is taken.
func (l *Local) PutNew(ctx context.Context, name string, b []byte) error {
	w, err := l.put(ctx, name, b)
	if err != nil {
		return err
	}
	return w.Commit()
}

// PutNewAt is PutNew of a file that is not older than at. File systems stamp files by a clock that ticks every few milliseconds, so a
// new file may look older than what its name says. Where the file system is not the machine's, files keep the time that they have.
func (l *Local) PutNewAt(ctx context.Context, name string, b []byte, at time.Time) error {
	w, err := l.put(ctx, name, b)
	if err != nil {
		return err
	}
	w.notBefore = at
	return w.Commit()
}

// PutBrief is PutNew that does not sync the name: after a crash it is there with its content, or not at all.
func (l *Local) PutBrief(ctx context.Context, name string, b []byte) error {
	w, err := l.put(ctx, name, b)
	if err != nil {
		return err
	}
	w.brief, w.empty = true, len(b) == 0
	return w.Commit()
}

// RemoveBrief deletes a file, and its Hadoop checksum file, without any sync.
func (l *Local) RemoveBrief(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, path, last, err := l.split(name)
	if err == nil {
		err = errors.Join(l.removeFile(path), l.removeFile(l.crcPath(dir, last)))
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Replace writes a whole object over whatever had the name, and removes the checksum file that Hadoop may have left beside it.
func (l *Local) Replace(ctx context.Context, name string, b []byte) error {
	w, err := l.put(ctx, name, b)
	if err != nil {
		return err
	}
	return w.replace()
}

func (l *Local) put(ctx context.Context, name string, b []byte) (*localWriter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := l.create(name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	// The file system may change what it is given to write (vfs.File), and b is the caller's.
	if _, err := w.Write(slices.Clone(b)); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// List gives the files and folders in a folder in name order, without temporary files.
func (l *Local) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		path, err := l.dirPath(dir)
		if err != nil {
			yield(Info{}, err)
			return
		}
		names, err := l.fs.List(path)
		if err != nil {
			if !notExist(err) {
				yield(Info{}, fmt.Errorf("list %s: %w", dir, err))
			}
			return
		}
		slices.Sort(names)
		for _, n := range names {
			if strings.HasPrefix(n, TempPrefix) {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(Info{}, err)
				return
			}
			st, err := l.fs.Stat(l.fs.PathJoin(path, n))
			if err != nil {
				if notExist(err) { // removed meanwhile
					continue
				}
				yield(Info{}, fmt.Errorf("list %s: %w", dir, err))
				return
			}
			in := Info{Name: n, ModTime: st.ModTime(), Dir: st.IsDir()}
			if !in.Dir {
				in.Size = st.Size()
			}
			if !yield(in, nil) {
				return
			}
		}
	}
}

// Remove deletes objects with their Hadoop checksum files, and whole folders where a name ends in "/", durably.
func (l *Local) Remove(ctx context.Context, names ...string) error {
	touched := map[string]bool{}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		folder := strings.HasSuffix(name, "/")
		dir, path, last, err := l.split(strings.TrimSuffix(name, "/"))
		if err != nil {
			return err
		}
		if folder {
			l.forget()
			err = l.fs.RemoveAll(path)
		} else {
			err = errors.Join(l.removeFile(path), l.removeFile(l.crcPath(dir, last)))
		}
		if err != nil && !notExist(err) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		touched[dir] = true
	}
	for dir := range touched {
		if err := l.syncDir(dir); err != nil && !notExist(err) {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// Rename moves a folder with all that it holds to a name that is free, durably: after a crash it stands under one of both names, or,
// since two folders are synced one after the other, under both. ErrNotExist if there is no such folder.
func (l *Local) Rename(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	oldDir, oldPath, _, err := l.split(from)
	if err != nil {
		return err
	}
	newDir, newPath, _, err := l.split(to)
	if err != nil {
		return err
	}
	if err := l.ensureDir(newDir); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	l.forget()
	if err := l.fs.Rename(oldPath, newPath); err != nil {
		if notExist(err) {
			err = ErrNotExist
		}
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	// The new name first: a crash in between must not lose both.
	err = l.syncDir(newDir)
	if err == nil && oldDir != newDir {
		err = l.syncDir(oldDir)
	}
	if err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}

// HasFolder says whether there is a folder of that name.
func (l *Local) HasFolder(name string) (bool, error) {
	path, err := l.dirPath(name)
	if err != nil {
		return false, err
	}
	st, err := l.fs.Stat(path)
	if notExist(err) {
		return false, nil
	}
	return err == nil && st.IsDir(), err
}

func (l *Local) crcPath(dir, last string) string { return l.fs.PathJoin(dir, "."+last+".crc") }

func (l *Local) removeFile(path string) error {
	if err := l.fs.Remove(path); err != nil && !notExist(err) {
		return err
	}
	return nil
}

// Link gives an object a second name, durably, without copying it. A name that is taken is left as it is.
func (l *Local) Link(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, old, _, err := l.split(from)
	if err != nil {
		return err
	}
	dir, path, _, err := l.split(to)
	if err != nil {
		return err
	}
	if err = l.ensureDir(dir); err == nil {
		if err = l.fs.Link(old, path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = l.syncDir(dir)
	}
	if err != nil {
		l.forget()
		return fmt.Errorf("link %s to %s: %w", from, to, err)
	}
	return nil
}
