package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// ErrConflict says that an instant exists already that was to be made.
var ErrConflict = errors.New("timeline: conflicting instant")

// ErrRolledBack says that the pending files of an instant are gone: somebody rolled it back.
var ErrRolledBack = errors.New("timeline: instant was rolled back")

// Timeline is the active timeline of a table at one moment. It never changes.
type Timeline struct {
	Instants []Instant // the most advanced state of each, by time, then action

	layout     Layout
	properties Properties                                    // as they stood at the time
	stamp      propertiesStamp                               // of the file that they were read from
	lastEnd    time.Time                                     // when the last of the instants completed that write
	start      storage.InstantTime                           // first write instant that is not kept by a savepoint; "" if there is none
	completed  map[storage.InstantTime]storage.InstantTime   // completed commits, delta commits and replace commits, and when they completed
	pending    map[storage.InstantTime]bool                  // the others
	rolledBack map[storage.InstantTime]bool                  // instants that a rollback on the timeline names
	rollbacks  map[storage.InstantTime][]storage.InstantTime // what each completed rollback names, so that Refresh need not read it again
}

// propertiesStamp tells one hoodie.properties from the next.
type propertiesStamp struct {
	size int64
	mod  time.Time
}

// Load reads the active timeline of the table in folder dir with one listing of each folder that it stands in. A completed commit
// without content is a *storage.CorruptError; an empty clean or rollback, which a crashed writer leaves, is taken as it is. The error
// wraps storage.ErrUnsupported for a table whose timeline has an unknown layout.
func Load(ctx context.Context, s storage.Store, dir string) (*Timeline, error) {
	return (&Timeline{}).Refresh(ctx, s, dir)
}

// Refresh is Load with what t knows already of instants that do not change any more.
func (t *Timeline) Refresh(ctx context.Context, s storage.Store, dir string) (*Timeline, error) {
	var fresh *Timeline
	err := settle(ctx, func() (err error) {
		fresh, err = t.refresh(ctx, s, dir)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("loading timeline: %w", err)
	}
	return fresh, nil
}

type instantKey struct {
	time   storage.InstantTime
	action Action
}

func (t *Timeline) refresh(ctx context.Context, s storage.Store, dir string) (*Timeline, error) {
	fresh := &Timeline{}
	var files []storage.Info
	found, moved := false, false
	for info, err := range s.List(ctx, join(dir, metaFolder)) {
		if err != nil {
			return nil, err
		}
		if info.Name == propertiesFile {
			fresh.stamp, found = propertiesStamp{info.Size, info.ModTime}, true
		}
		moved = moved || info.Dir && info.Name == timelineFolder
		files = append(files, info)
	}
	fresh.layout, fresh.properties = t.layout, t.properties
	if !found || fresh.stamp != t.stamp || t.properties == nil {
		p, err := ReadProperties(ctx, s, dir)
		if err != nil && !errors.Is(err, storage.ErrNotExist) {
			return nil, err
		}
		fresh.properties = p
		if fresh.layout, err = p.Layout(); err != nil {
			return nil, err
		}
	}
	if fresh.layout == Layout1 && moved {
		// An engine of release 1.x that upgrades a table moves the instants before it says so; the table would look empty without them.
		return nil, fmt.Errorf("timeline of layout 2 under properties of layout 1, as while a table is upgraded: %w", storage.ErrUnsupported)
	}
	if fresh.layout == Layout2 {
		files = files[:0]
		for info, err := range s.List(ctx, fresh.layout.Folder(dir)) {
			if err != nil {
				return nil, err
			}
			files = append(files, info)
		}
	}
	best := map[instantKey]Instant{}
	for _, info := range files {
		in, ok := parseInstant(info.Name, fresh.layout)
		if !ok || info.Dir {
			continue
		}
		if in.State == Completed {
			if info.Size == 0 && in.Action.writes() {
				return nil, &storage.CorruptError{Name: join(fresh.layout.Folder(dir), info.Name), Offset: -1, Err: errors.New("completed commit is empty")}
			}
			if in.Completed == "" {
				zone := time.UTC
				if fresh.layout == Layout2 {
					zone = fresh.properties.Timezone()
				}
				in.Completed = FormatTime(info.ModTime.In(zone))
			}
			if in.Action.writes() && info.ModTime.After(fresh.lastEnd) {
				fresh.lastEnd = info.ModTime
			}
		}
		key := instantKey{in.Time, in.Action.completed()}
		if old, ok := best[key]; !ok || old.State < in.State {
			best[key] = in
		}
	}
	fresh.Instants = make([]Instant, 0, len(best))
	for _, in := range best {
		fresh.Instants = append(fresh.Instants, in)
	}
	slices.SortFunc(fresh.Instants, func(a, b Instant) int {
		return cmp.Or(strings.Compare(string(a.Time), string(b.Time)), strings.Compare(string(a.Action), string(b.Action)))
	})
	if err := fresh.index(ctx, s, dir, t.rollbacks); err != nil {
		return nil, err
	}
	return fresh, nil
}

// index builds what Counts looks up.
func (t *Timeline) index(ctx context.Context, s storage.Store, dir string, known map[storage.InstantTime][]storage.InstantTime) error {
	t.completed, t.pending = map[storage.InstantTime]storage.InstantTime{}, map[storage.InstantTime]bool{}
	t.rolledBack, t.rollbacks = map[storage.InstantTime]bool{}, map[storage.InstantTime][]storage.InstantTime{}
	saved := map[storage.InstantTime]bool{}
	for _, in := range t.Instants {
		if in.Action == Savepoint {
			saved[in.Time] = true
		}
	}
	for _, in := range t.Instants {
		switch {
		case in.Action.writes():
			if in.State == Completed {
				t.completed[in.Time] = in.Completed
			} else {
				t.pending[in.Time] = true
			}
			// Archival stops before a pending instant, and leaves holes only around commits that a savepoint keeps.
			if t.start == "" && !saved[in.Time] {
				t.start = in.Time
			}
		case in.Action == Rollback:
			targets, ok := known[in.Time]
			if !ok || in.State != Completed {
				var err error
				if targets, err = rollbackTargets(ctx, s, dir, in); err != nil {
					return err
				}
			}
			if in.State == Completed {
				t.rollbacks[in.Time] = targets
			}
			for _, target := range targets {
				t.rolledBack[target] = true
			}
		}
	}
	return nil
}

// Completed gives the completed commits, delta commits and replace commits, oldest first. A finished compaction is among them as a commit.
func (t *Timeline) Completed() []Instant {
	var out []Instant
	for _, in := range t.Instants {
		if in.State == Completed && in.Action.writes() {
			out = append(out, in)
		}
	}
	return out
}

// Pending gives the instants of every action that are not completed, oldest first.
func (t *Timeline) Pending() []Instant {
	var out []Instant
	for _, in := range t.Instants {
		if in.State != Completed {
			out = append(out, in)
		}
	}
	return out
}

// Last gives the newest completed commit, delta commit or replace commit; false if there is none.
func (t *Timeline) Last() (Instant, bool) {
	for _, in := range slices.Backward(t.Instants) {
		if in.State == Completed && in.Action.writes() {
			return in, true
		}
	}
	return Instant{}, false
}

// Newest gives the largest time of any instant on the timeline, "" if there is none: a new one has to be larger.
func (t *Timeline) Newest() storage.InstantTime {
	if len(t.Instants) == 0 {
		return ""
	}
	return t.Instants[len(t.Instants)-1].Time
}

// LastEnd gives the time at which the last of the completed commits, delta commits and replace commits completed, by its file's time.
// A new instant has to be later: Hudi 1.1 takes a log file for one over the newest base file whose instant time is not after the
// completion of the instant that the log file names as its base.
func (t *Timeline) LastEnd() time.Time { return t.lastEnd }

// Get gives the instant of a time that writes data, in its most advanced state.
func (t *Timeline) Get(it storage.InstantTime) (Instant, bool) {
	i, _ := slices.BinarySearchFunc(t.Instants, it, func(in Instant, it storage.InstantTime) int {
		return strings.Compare(string(in.Time), string(it))
	})
	for ; i < len(t.Instants) && t.Instants[i].Time == it; i++ {
		if t.Instants[i].Action.writes() {
			return t.Instants[i], true
		}
	}
	return Instant{}, false
}

// Counts says whether what an instant wrote is part of the table: it completed, or it lies before the start of the active
// timeline, so it was archived after it completed. Pending instants and those that were rolled back do not count.
func (t *Timeline) Counts(it storage.InstantTime) bool {
	if _, ok := t.completed[it]; ok {
		return true
	}
	return it < t.start && !t.pending[it] && !t.rolledBack[it]
}

// Layout gives the arrangement of the timeline's files.
func (t *Timeline) Layout() Layout { return t.layout }

// Properties gives the table's properties as they stood when the timeline was read; nil if there were none. They are not to be changed.
func (t *Timeline) Properties() Properties { return t.properties }

// IsPending tells whether an instant that writes data was begun and neither completed nor undone.
func (t *Timeline) IsPending(it storage.InstantTime) bool { return t.pending[it] }

// Start gives the first instant of the active timeline that writes data and that no savepoint keeps; "" if there is none.
func (t *Timeline) Start() storage.InstantTime { return t.start }

// Incomplete gives the first commit, delta commit or compaction that is pending; "" if there is none. Hudi refuses to travel to it and
// to what follows; a pending clustering does not matter.
func (t *Timeline) Incomplete() storage.InstantTime {
	for _, in := range t.Instants {
		if in.State != Completed && in.Action.writes() && in.Action.completed() != ReplaceCommit {
			return in.Time
		}
	}
	return ""
}
