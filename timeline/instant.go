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

// Instant is one action on the timeline in its most advanced state. A finished compaction is a commit.
type Instant struct {
	Time   storage.InstantTime // when it was requested
	Action Action
	State  State
	// Completed is empty until State is Completed. In version 6 it is the modification time of the completed file, in UTC.
	Completed storage.InstantTime
}

func (in Instant) String() string {
	return fmt.Sprintf("%s %s (%s)", in.Action, in.Time, in.State)
}

// FileName gives the name below .hoodie of the file of a state of the instant. The inflight file of a commit does not name its action.
func (in Instant) FileName(state State) string {
	switch {
	case state == Completed:
		return string(in.Time) + "." + string(in.Action.completed())
	case state == Inflight && in.Action == Commit:
		return string(in.Time) + ".inflight"
	}
	return string(in.Time) + "." + string(in.Action) + "." + state.String()
}

func (in Instant) object(dir string, state State) string {
	return join(dir, metaFolder, in.FileName(state))
}

// parseInstant reads the name of a timeline file; false for whatever else lies in .hoodie.
func parseInstant(name string) (Instant, bool) {
	digits := 0
	for digits < len(name) && name[digits] >= '0' && name[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits == len(name) || name[digits] != '.' {
		return Instant{}, false
	}
	in := Instant{Time: storage.InstantTime(name[:digits]), State: Completed}
	action, state, pending := strings.Cut(name[digits+1:], ".")
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
	return in, true
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
