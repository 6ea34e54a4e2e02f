package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/avro"

	"github.com/lakesql/lakesql/storage"
)

// ArchivedInstant is an instant that was moved out of the active timeline: in layout 1 one of its state files, of which it has up to
// three, in layout 2 the completed one.
type ArchivedInstant struct {
	Time   storage.InstantTime
	Action Action
	State  State
	// Transition is the modification time of the state file as Hudi recorded it, in the zone of the archiving process; "" if unknown. In
	// layout 2 it is the completion time.
	Transition storage.InstantTime
	// Meta and Plan are what the completed and the requested file held, in layout 2.
	Meta, Plan []byte
}

// archivedSchema names the members of HoodieArchivedMetaEntry that are read; the metadata in the others is skipped.
var archivedSchema = sync.OnceValue(func() *avro.Schema {
	return avro.MustParse(`{"type":"record","name":"HoodieArchivedMetaEntry","namespace":"org.apache.hudi.avro.model","fields":[
		{"name":"commitTime","type":["null","string"],"default":null},
		{"name":"actionType","type":["null","string"],"default":null},
		{"name":"actionState","type":["null","string"],"default":null},
		{"name":"stateTransitionTime","type":["null","string"],"default":null}]}`)
})

type archivedEntry struct {
	Time       *string `avro:"commitTime"`
	Action     *string `avro:"actionType"`
	State      *string `avro:"actionState"`
	Transition *string `avro:"stateTransitionTime"`
}

// historyFolder is where the archived timeline of layout 2 stands below the active one.
const historyFolder = "history"

const archivePrefix = ".commits_.archive."

// Archived gives the archived timeline of the table in folder dir, the newest file first, within a file in the order in which it
// was written. A table without one has no entries.
func Archived(ctx context.Context, s storage.Store, dir string) iter.Seq2[ArchivedInstant, error] {
	return func(yield func(ArchivedInstant, error) bool) {
		p, err := ReadProperties(ctx, s, dir)
		var layout Layout
		if err == nil {
			layout, err = p.Layout()
		}
		if err == nil && layout == Layout2 {
			for in, err := range history(ctx, s, dir, "", "", true) {
				if err != nil {
					err = fmt.Errorf("reading archived timeline: %w", err)
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
			return
		}
		var names []string
		if err == nil {
			names, err = archiveFiles(ctx, s, dir, p)
		}
		if err != nil {
			yield(ArchivedInstant{}, fmt.Errorf("reading archived timeline: %w", err))
			return
		}
		for _, name := range names {
			for in, err := range archiveFile(ctx, s, name) {
				if err != nil {
					yield(ArchivedInstant{}, fmt.Errorf("reading archived timeline: %w", err))
					return
				}
				if !yield(in, nil) {
					return
				}
			}
		}
	}
}

func archiveFiles(ctx context.Context, s storage.Store, dir string, p Properties) ([]string, error) {
	type file struct {
		name   string
		number int
	}
	var files []file
	folder := join(dir, metaFolder, p.ArchiveFolder())
	for info, err := range s.List(ctx, folder) {
		if err != nil {
			return nil, err
		}
		rest, ok := strings.CutPrefix(info.Name, archivePrefix)
		if !ok || info.Dir {
			continue
		}
		number, _, _ := strings.Cut(rest, "_")
		if n, err := strconv.Atoi(number); err == nil {
			files = append(files, file{join(folder, info.Name), n})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(b.number, a.number) })
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	return names, nil
}

// archiveFile reads a file of the archive, which is a log file of data blocks.
func archiveFile(ctx context.Context, s storage.Store, name string) iter.Seq2[ArchivedInstant, error] {
	return func(yield func(ArchivedInstant, error) bool) {
		damaged := func(b storage.LogBlock, err error) error {
			return &storage.CorruptError{Name: name, Offset: b.Offset, Err: err}
		}
		var text string
		var schema *avro.Schema
		for block, err := range storage.ReadLog(ctx, s, name) {
			if err != nil {
				yield(ArchivedInstant{}, err)
				return
			}
			if block.Type == storage.BlockCorrupt { // the tail of a crashed archival
				continue
			}
			if schema == nil || text != block.Schema {
				text = block.Schema
				if schema, err = avro.Parse(text); err == nil {
					schema, err = avro.Resolve(schema, archivedSchema())
				}
				if err != nil {
					yield(ArchivedInstant{}, damaged(block, err))
					return
				}
			}
			for record, err := range block.Records() {
				var in ArchivedInstant
				if err == nil {
					if in, err = parseArchived(schema, record); err != nil {
						err = damaged(block, err)
					}
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
		}
	}
}

func parseArchived(schema *avro.Schema, record []byte) (ArchivedInstant, error) {
	var e archivedEntry
	if _, err := schema.Decode(record, &e); err != nil {
		return ArchivedInstant{}, err
	}
	if e.Time == nil || e.Action == nil || e.State == nil {
		return ArchivedInstant{}, errors.New("entry without time, action or state")
	}
	in := ArchivedInstant{Time: storage.InstantTime(*e.Time), Action: Action(*e.Action)}
	switch *e.State {
	case "REQUESTED":
		in.State = Requested
	case "INFLIGHT":
		in.State = Inflight
	case "COMPLETED":
		in.State = Completed
	default:
		return ArchivedInstant{}, fmt.Errorf("state %q", *e.State)
	}
	if e.Transition != nil {
		in.Transition = storage.InstantTime(*e.Transition)
	}
	return in, nil
}
