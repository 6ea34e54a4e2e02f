package catalog

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// watchesMax bounds the folders that are watched; tables beyond it are looked at in turn.
const watchesMax = 4096

// watcher tells by inotify that something changed in the timeline folder of a table.
type watcher struct {
	fd   int
	file *os.File // of fd: its Close ends a Read
	done chan struct{}

	mu     sync.Mutex
	tables map[uint32]*Table // by watch; guarded by mu
}

const watched = syscall.IN_CREATE | syscall.IN_CLOSE_WRITE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM | syscall.IN_DELETE | syscall.IN_ONLYDIR

// newWatcher gives nil where the kernel has none left: folders are looked at in turn then.
func newWatcher(stirred func(*Table)) (*watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch timeline folders: %w", err)
	}
	w := &watcher{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}), tables: map[uint32]*Table{}}
	go w.run(stirred)
	return w, nil
}

func (w *watcher) run(stirred func(*Table)) {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		for at := 0; at+syscall.SizeofInotifyEvent <= n; {
			wd := binary.NativeEndian.Uint32(buf[at:])
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			at += syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
			switch {
			case mask&syscall.IN_Q_OVERFLOW != 0: // some events are lost: any table may have changed
				for _, t := range w.tables {
					stirred(t)
				}
			case mask&syscall.IN_IGNORED != 0: // the folder is gone
				if t := w.tables[wd]; t != nil {
					t.watched.Store(false)
				}
				delete(w.tables, wd)
			default:
				if t := w.tables[wd]; t != nil {
					stirred(t)
				}
			}
		}
		w.mu.Unlock()
	}
}

// add watches the folder at path for a table. The folder stays watched when it is moved.
func (w *watcher) add(t *Table, path string) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tables) >= watchesMax {
		return nil
	}
	wd, err := syscall.InotifyAddWatch(w.fd, path, watched)
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	w.tables[uint32(wd)] = t
	t.watched.Store(true)
	return nil
}

func (w *watcher) close() {
	if w == nil {
		return
	}
	w.file.Close()
	<-w.done
}
