package timeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// MarkerKind says what a marker announces.
type MarkerKind string

// The kinds of markers in version 6.
const (
	MarkCreate MarkerKind = "CREATE" // base file of a new file group
	MarkMerge  MarkerKind = "MERGE"  // new base file of a file group
	MarkAppend MarkerKind = "APPEND" // log file
)

const (
	markerInfix      = ".marker."
	markerTypeFile   = "MARKERS.type"
	markerListPrefix = "MARKERS"
)

// Marker names a data file that an instant was about to write.
type Marker struct {
	Partition string
	File      string
	Kind      MarkerKind
}

func markerFolder(dir string, t storage.InstantTime) string {
	return join(dir, metaFolder, ".temp", string(t))
}

// Mark announces a data file before it is written: a rollback by Hudi deletes what markers name and looks at nothing else.
func (p *Pending) Mark(ctx context.Context, partition, file string, kind MarkerKind) error {
	name := join(markerFolder(p.dir, p.Time), partition, file+markerInfix+string(kind))
	if err := p.store.PutNew(ctx, name, nil); err != nil && !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("marking %s for %s: %w", file, p.Instant, err)
	}
	p.marked[join(p.dir, partition, file)] = true
	return nil
}

// Markers gives the markers of an instant, both those that are files of their own and those that Hudi's timeline server keeps in lists.
func Markers(ctx context.Context, s storage.Store, dir string, t storage.InstantTime) ([]Marker, error) {
	var out []Marker
	root := markerFolder(dir, t)
	var walk func(partition string) error
	walk = func(partition string) error {
		for info, err := range s.List(ctx, join(root, partition)) {
			if err != nil {
				return err
			}
			name := info.Name
			switch {
			case info.Dir:
				if err := walk(join(partition, name)); err != nil {
					return err
				}
			case partition == "" && strings.HasPrefix(name, markerListPrefix) && name != markerTypeFile:
				b, err := readObject(ctx, s, join(root, name))
				if err != nil {
					return err
				}
				for line := range strings.SplitSeq(string(b), "\n") {
					at := strings.LastIndexByte(line, '/')
					if m, ok := parseMarker(line[:max(at, 0)], line[at+1:]); ok {
						out = append(out, m)
					}
				}
			default:
				if m, ok := parseMarker(partition, name); ok {
					out = append(out, m)
				}
			}
		}
		return nil
	}
	if err := walk(""); err != nil {
		return nil, fmt.Errorf("listing markers of %s: %w", t, err)
	}
	return out, nil
}

func parseMarker(partition, name string) (Marker, bool) {
	name = strings.TrimSuffix(name, "\r")
	at := strings.LastIndex(name, markerInfix)
	if at < 0 {
		return Marker{}, false
	}
	return Marker{Partition: partition, File: name[:at], Kind: MarkerKind(name[at+len(markerInfix):])}, true
}

// MarkedFiles gives the data files that a pending instant announced, by partition path, for RollBack. The error wraps
// storage.ErrUnsupported for a marker of an old writer that does not name the log file it appended to.
func MarkedFiles(ctx context.Context, s storage.Store, dir string, t storage.InstantTime) (map[string][]string, error) {
	markers, err := Markers(ctx, s, dir, t)
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for _, m := range markers {
		f, ok := storage.ParseFileName(m.File)
		if !ok || m.Kind == MarkAppend && f.Version == 0 {
			return nil, fmt.Errorf("marker %s%s%s of %s: %w", m.File, markerInfix, m.Kind, t, storage.ErrUnsupported)
		}
		files[m.Partition] = append(files[m.Partition], m.File)
	}
	return files, nil
}
