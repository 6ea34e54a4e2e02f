//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockName is the file in a data folder that its owner keeps locked. It holds two lines while it is locked:
// the owner's process id, and the address at which it serves.
const lockName = "lakesql.lock"

// folderLock is held by the one process that has a data folder open. The kernel drops it when the process
// ends, however it ends, so a leftover file never keeps anybody out.
type folderLock struct{ f *os.File }

// folderInUseError says who holds a data folder.
type folderInUseError struct {
	Dir, PID, Addr string // PID and Addr may be empty: the owner has just started or is about to end
}

func (e *folderInUseError) Error() string {
	who := "another process"
	if e.PID != "" {
		who = "process " + e.PID
	}
	if e.Addr != "" {
		who += ", serving at " + e.Addr + ","
	}
	return fmt.Sprintf("data folder %s: %s has it open; a folder can be open in one process at a time", e.Dir, who)
}

// lockFolder creates dir if need be and locks it; addr is what a second process is told.
// It returns *folderInUseError when another process holds the lock.
func lockFolder(dir, addr string) (*folderLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			pid, at := readLock(dir)
			return nil, &folderInUseError{dir, pid, at}
		}
		return nil, fmt.Errorf("data folder %s: locking: %w", dir, err)
	}
	l := &folderLock{f}
	if err := l.write(fmt.Sprintf("%d\n%s\n", os.Getpid(), addr)); err != nil {
		f.Close()
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	return l, nil
}

func readLock(dir string) (pid, addr string) {
	b, _ := os.ReadFile(filepath.Join(dir, lockName)) // it only words an error: unreadable is as good as empty
	pid, rest, _ := strings.Cut(string(b), "\n")
	addr, _, _ = strings.Cut(rest, "\n")
	return pid, addr
}

func (l *folderLock) write(text string) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(text), 0)
	return err
}

// release empties the file and gives up the lock. The file stays: removing it would let a process that has
// just opened it lock a file that nobody else can see.
func (l *folderLock) release() {
	l.f.Truncate(0)
	l.f.Close()
}
