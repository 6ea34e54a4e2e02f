package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// Properties by which a table says how its writers lock it.
const (
	KeyLockProvider = "hoodie.write.lock.provider"
	KeyLockPath     = "hoodie.write.lock.filesystem.path"
)

const lockFile = "lock"

// LockHolder is what a lock file says of who took it (JSON). Hudi's FileSystemBasedLockProvider writes the first three members and reads
// none: that the file is there is the lock.
type LockHolder struct {
	Since       string `json:"lockCreateTime"`
	Thread      string `json:"lockThreadName"`
	Stacks      string `json:"lockStacksInfo"`
	Warehouse   string `json:"lakesqlWarehouse,omitempty"`
	Incarnation string `json:"lakesqlIncarnation,omitempty"` // one run of a server
	Claim       string `json:"lakesqlClaim,omitempty"`       // one taking of the lock
}

// LockedError says that another writer holds the lock of a table.
type LockedError struct {
	Name   string // object name of the lock file
	Holder LockHolder
	Text   string // content of the lock file if it is none that a known writer makes
}

func (e *LockedError) Error() string {
	who := e.Text
	switch h := e.Holder; {
	case h.Warehouse != "":
		who = fmt.Sprintf("lakesql warehouse %s (run %s) since %s", h.Warehouse, h.Incarnation, h.Since)
	case h.Thread != "" || h.Since != "":
		who = fmt.Sprintf("thread %q of another engine since %s", h.Thread, h.Since)
	case who == "":
		who = "a writer that does not say who it is"
	}
	return fmt.Sprintf("timeline: the table's lock /%s is held by %s", e.Name, who)
}

// LockFolder gives the folder of the lock file of the table in dir: Hudi's default, or what the table's properties say. It is "" if they
// name a lock provider other than the file-system based one, which this package does not speak.
func (p Properties) LockFolder(dir string) string {
	provider := p[KeyLockProvider]
	if provider != "" && provider[strings.LastIndexByte(provider, '.')+1:] != "FileSystemBasedLockProvider" {
		return ""
	}
	at := p[KeyLockPath]
	if at == "" {
		return join(dir, metaFolder)
	}
	at = strings.TrimPrefix(at, "file:")
	return strings.Trim(path.Clean("/"+strings.TrimLeft(at, "/")), "/")
}

// Lock is the lock of a table, held since TryLock.
type Lock struct {
	store storage.Store
	name  string
	text  []byte
}

// TryLock takes the lock whose file lies in folder, without waiting. The error is a *LockedError if somebody else has it.
func TryLock(ctx context.Context, s storage.Store, folder string, h LockHolder) (*Lock, error) {
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return nil, err
	}
	l := &Lock{store: s, name: join(folder, lockFile), text: text}
	if err := l.take(ctx); err != nil {
		return nil, fmt.Errorf("locking the table: %w", err)
	}
	return l, nil
}

func (l *Lock) take(ctx context.Context) error {
	err := l.store.PutBrief(ctx, l.name, l.text)
	if !errors.Is(err, storage.ErrExist) {
		return err
	}
	b, err := readObject(ctx, l.store, l.name)
	if err != nil && !errors.Is(err, storage.ErrNotExist) {
		return err
	}
	if bytes.Equal(b, l.text) {
		return nil
	}
	e := &LockedError{Name: l.name}
	if json.Unmarshal(b, &e.Holder) != nil {
		e.Text = string(b[:min(len(b), 200)])
	}
	return e
}

// Keep makes sure that the lock is still held, and takes it again if it is gone: Hudi's writers remove the file once more right after they
// released it, whoever holds it by then. lost says that it was gone, so that others may have written since. The error is a
// *LockedError if somebody else has it by now.
func (l *Lock) Keep(ctx context.Context) (lost bool, err error) {
	b, err := readObject(ctx, l.store, l.name)
	switch {
	case err == nil && bytes.Equal(b, l.text):
		return false, nil
	case err == nil || errors.Is(err, storage.ErrNotExist):
		err = l.take(ctx)
	}
	if err != nil {
		return true, fmt.Errorf("keeping the table's lock: %w", err)
	}
	return true, nil
}

// Release gives the lock up, if it is still held.
func (l *Lock) Release(ctx context.Context) error {
	b, err := readObject(ctx, l.store, l.name)
	if errors.Is(err, storage.ErrNotExist) || err == nil && !bytes.Equal(b, l.text) {
		return nil
	}
	if err == nil {
		err = l.store.RemoveBrief(ctx, l.name)
	}
	if err != nil {
		return fmt.Errorf("releasing the table's lock: %w", err)
	}
	return nil
}

// ClearLock removes a lock that an earlier run of this warehouse left behind; one of anybody else stays. It tells whether there was one.
func ClearLock(ctx context.Context, s storage.Store, folder string, h LockHolder) (bool, error) {
	name := join(folder, lockFile)
	b, err := readObject(ctx, s, name)
	if errors.Is(err, storage.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for a stale lock: %w", err)
	}
	var old LockHolder
	if json.Unmarshal(b, &old) != nil || h.Warehouse == "" || old.Warehouse != h.Warehouse || old.Incarnation == h.Incarnation {
		return false, nil
	}
	if err := s.RemoveBrief(ctx, name); err != nil {
		return false, fmt.Errorf("clearing a stale lock: %w", err)
	}
	return true, nil
}
