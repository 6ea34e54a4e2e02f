package timeline

import (
	"fmt"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// Action is what an instant does to the table.
type Action string

// The actions of a timeline.
const (
	Commit        Action = "commit"
	DeltaCommit   Action = "deltacommit"
	ReplaceCommit Action = "replacecommit"
	Clean         Action = "clean"
	Rollback      Action = "rollback"
	Savepoint     Action = "savepoint"
	Compaction    Action = "compaction"
	Clustering    Action = "clustering" // pending, in layout 2; in layout 1 a clustering is a pending replacecommit
	LogCompaction Action = "logcompaction"
	Restore       Action = "restore"
	Indexing      Action = "indexing"
)

// completed gives the action under which an action completes.
func (a Action) completed() Action {
	switch a {
	case Compaction:
		return Commit
	case LogCompaction:
		return DeltaCommit
	case Clustering:
		return ReplaceCommit
	}
	return a
}

// writes says whether the action adds or replaces data files.
func (a Action) writes() bool {
	switch a.completed() {
	case Commit, DeltaCommit, ReplaceCommit:
		return true
	}
	return false
}

func (a Action) known() bool {
	switch a {
	case Clean, Rollback, Savepoint, Restore, Indexing:
		return true
	}
	return a.writes()
}

// State is how far an action came.
type State uint8

// States in order.
const (
	Requested State = iota
	Inflight
	Completed
)

func (s State) String() string {
	switch s {
	case Requested:
		return "requested"
	case Inflight:
		return "inflight"
	}
	return "completed"
}

// Layout is the arrangement of a timeline (hoodie.timeline.layout.version).
type Layout uint8

// The layouts. The zero value is that of version 6.
const (
	Layout1 Layout = iota // table version 6: files in .hoodie, commit metadata in JSON
	Layout2               // table versions 8 and 9: files in .hoodie/timeline, completion times in their names, commit metadata in Avro
)

// timelineFolder is where instants of layout 2 stand below .hoodie.
const timelineFolder = "timeline"

// folder gives the folder of the active timeline below .hoodie.
func (l Layout) folder() string {
	if l == Layout2 {
		return timelineFolder
	}
	return ""
}

// Folder gives the folder of the active timeline of a table in folder dir.
func (l Layout) Folder(dir string) string { return join(dir, metaFolder, l.folder()) }

// Instant is one action on the timeline in its most advanced state. A finished compaction is a commit.
type Instant struct {
	Time   storage.InstantTime // when it was requested
	Action Action
	State  State
	// Completed is empty until State is Completed. In layout 2 the name of the file has it, drawn as instant times are; in layout 1 it is
	// the modification time of the completed file, in UTC.
	Completed storage.InstantTime
	Layout    Layout
	// Unnamed is an instant of layout 2 whose completed file does not name its completion time: an upgrade brought it. Its modification
	// time stands for it.
	Unnamed bool
}

func (in Instant) String() string {
	return fmt.Sprintf("%s %s (%s)", in.Action, in.Time, in.State)
}

// FileName gives the name below .hoodie of the file of a state of the instant. The inflight file of a commit does not name its action.
func (in Instant) FileName(state State) string {
	name := string(in.Time)
	switch {
	case state == Completed:
		if in.Layout == Layout2 && !in.Unnamed {
			name += "_" + string(in.Completed)
		}
		name += "." + string(in.Action.completed())
	case state == Inflight && in.Action == Commit:
		name += ".inflight"
	default:
		name += "." + string(in.Action) + "." + state.String()
	}
	return join(in.Layout.folder(), name)
}

// End gives the time at which a completed instant of a table with instant times in zone completed.
func (in Instant) End(zone *time.Location) (time.Time, error) {
	if in.Layout == Layout1 {
		zone = time.UTC
	}
	return ParseTime(in.Completed, zone)
}

func (in Instant) object(dir string, state State) string {
	return join(dir, metaFolder, in.FileName(state))
}

// parseInstant reads the name of a timeline file; false for whatever else lies in its folder.
func parseInstant(name string, layout Layout) (Instant, bool) {
	times, action, ok := strings.Cut(name, ".")
	requested, completed, named := strings.Cut(times, "_")
	if !ok || !isNumber(requested) || named && (layout == Layout1 || !isNumber(completed)) {
		return Instant{}, false
	}
	in := Instant{Time: storage.InstantTime(requested), State: Completed, Layout: layout}
	action, state, pending := strings.Cut(action, ".")
	if action == "inflight" && !pending {
		action, state, pending = string(Commit), "inflight", true
	}
	if in.Action = Action(action); !in.Action.known() {
		return Instant{}, false
	}
	if pending {
		switch state {
		case "requested":
			in.State = Requested
		case "inflight":
			in.State = Inflight
		default:
			return Instant{}, false
		}
	}
	if named == pending && named { // only completed files name a completion time
		return Instant{}, false
	}
	in.Completed = storage.InstantTime(completed)
	in.Unnamed = layout == Layout2 && !pending && !named
	return in, true
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const (
	instantDigits = 17 // yyyyMMddHHmmssSSS
	legacyDigits  = 14 // yyyyMMddHHmmss
	secondsLayout = "20060102150405"
)

// FormatTime gives the instant time of t in t's zone, cut to milliseconds.
func FormatTime(t time.Time) storage.InstantTime {
	return storage.InstantTime(fmt.Sprintf("%s%03d", t.Format(secondsLayout), t.Nanosecond()/int(time.Millisecond)))
}

// ParseTime gives the time of an instant time drawn in the zone loc. One of 14 digits stands for the last millisecond of its
// second; what a longer one has after 17 digits is left out.
func ParseTime(it storage.InstantTime, loc *time.Location) (time.Time, error) {
	text := string(it)
	switch {
	case len(text) == legacyDigits:
		text += "999"
	case len(text) > instantDigits:
		text = text[:instantDigits]
	}
	if len(text) != instantDigits {
		return time.Time{}, fmt.Errorf("instant time %q has neither 17 nor 14 digits", it)
	}
	millis := 0
	for _, c := range text[legacyDigits:] {
		if c < '0' || c > '9' {
			return time.Time{}, fmt.Errorf("instant time %q is no number", it)
		}
		millis = millis*10 + int(c-'0')
	}
	t, err := time.ParseInLocation(secondsLayout, text[:legacyDigits], loc)
	if err != nil {
		return time.Time{}, fmt.Errorf("instant time %q: %w", it, err)
	}
	return t.Add(time.Duration(millis) * time.Millisecond), nil
}
