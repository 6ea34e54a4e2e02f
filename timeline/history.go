package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

// This file reads the archived timeline of layout 2, a log-structured tree: parquet files of instants, each named for the first and the
// last requested time in it and its level, and manifests that say which files make up the tree.

const (
	historyVersionFile = "_version_"
	historyManifest    = "manifest_"
)

// historyManifestFile is the content of a manifest.
type historyManifestFile struct {
	Files []struct {
		Name string `json:"fileName"`
		Size int64  `json:"fileLen"`
	} `json:"files"`
}

// historyFile is a file of the tree.
type historyFile struct {
	name     string // object
	min, max storage.InstantTime
}

// historyFiles gives the files of the newest manifest, by name; none if nothing was archived.
func historyFiles(ctx context.Context, s storage.Store, dir string) ([]historyFile, error) {
	folder := join(Layout2.Folder(dir), historyFolder)
	newest := -1
	b, err := readObject(ctx, s, join(folder, historyVersionFile))
	switch {
	case err == nil:
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			newest = n
		}
	case !errors.Is(err, storage.ErrNotExist):
		return nil, err
	}
	if newest < 0 { // while the version is replaced, the newest manifest counts
		for info, err := range s.List(ctx, folder) {
			if err != nil {
				return nil, err
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(info.Name, historyManifest)); err == nil && strings.HasPrefix(info.Name, historyManifest) {
				newest = max(newest, n)
			}
		}
	}
	if newest < 0 {
		return nil, nil
	}
	name := join(folder, historyManifest+strconv.Itoa(newest))
	if b, err = readObject(ctx, s, name); err != nil {
		return nil, err
	}
	return parseManifest(name, folder, b)
}

func parseManifest(name, folder string, b []byte) ([]historyFile, error) {
	damaged := func(err error) error { return &storage.CorruptError{Name: name, Offset: -1, Err: err} }
	var m historyManifestFile
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, damaged(err)
	}
	var out []historyFile
	for _, f := range m.Files {
		stem, ok := strings.CutSuffix(f.Name, ".parquet")
		parts := strings.Split(stem, "_")
		if !ok || len(parts) != 3 || !isNumber(parts[0]) || !isNumber(parts[1]) || !isNumber(parts[2]) {
			return nil, damaged(fmt.Errorf("file name %q", f.Name))
		}
		out = append(out, historyFile{join(folder, f.Name), storage.InstantTime(parts[0]), storage.InstantTime(parts[1])})
	}
	slices.SortFunc(out, func(a, b historyFile) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// Columns of the files of the tree.
const (
	historyTime   = "instantTime"
	historyEnd    = "completionTime"
	historyAction = "action"
	historyMeta   = "metadata"
	historyPlan   = "plan"
)

// readHistory gives the instants of a file of the tree, oldest first, with the contents of their files if asked for.
func readHistory(ctx context.Context, s storage.Store, name string, contents bool) iter.Seq2[ArchivedInstant, error] {
	return func(yield func(ArchivedInstant, error) bool) {
		fail := func(err error) { yield(ArchivedInstant{}, err) }
		f, err := storage.OpenBase(ctx, s, name)
		if err != nil {
			fail(err)
			return
		}
		defer f.Close()
		text, binary := storage.Type{Kind: storage.String}, storage.Type{Kind: storage.Bytes}
		want := &storage.Schema{Fields: []storage.Field{
			{Name: historyTime, Type: text, Nullable: true}, {Name: historyEnd, Type: text, Nullable: true}, {Name: historyAction, Type: text, Nullable: true},
		}}
		if contents {
			want.Fields = append(want.Fields, storage.Field{Name: historyMeta, Type: binary, Nullable: true}, storage.Field{Name: historyPlan, Type: binary, Nullable: true})
		}
		for b, err := range f.Scan(ctx, want) {
			if err != nil {
				fail(err)
				return
			}
			for i := range b.Rows {
				row := b.Row(i, nil)
				at, _ := row[0].(string)
				end, _ := row[1].(string)
				action, _ := row[2].(string)
				if at == "" || action == "" {
					fail(&storage.CorruptError{Name: name, Offset: -1, Err: errors.New("an archived instant without time or action")})
					return
				}
				in := ArchivedInstant{Time: storage.InstantTime(at), Action: Action(action), State: Completed, Transition: storage.InstantTime(end)}
				if contents {
					in.Meta, _ = row[3].([]byte)
					in.Plan, _ = row[4].([]byte)
				}
				if !yield(in, nil) {
					return
				}
			}
		}
	}
}

// history gives the archived instants with times in [from, to], the newest files first; "" leaves a side open.
func history(ctx context.Context, s storage.Store, dir string, from, to storage.InstantTime, contents bool) iter.Seq2[ArchivedInstant, error] {
	return func(yield func(ArchivedInstant, error) bool) {
		files, err := historyFiles(ctx, s, dir)
		if err != nil {
			yield(ArchivedInstant{}, err)
			return
		}
		for _, f := range slices.Backward(files) {
			if f.max < from || to != "" && f.min > to {
				continue
			}
			for in, err := range readHistory(ctx, s, f.name, contents) {
				if err == nil && (in.Time < from || to != "" && in.Time > to) {
					continue
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
		}
	}
}

// archivedEnds fills in when archived instants completed, as far as the history knows them.
func archivedEnds(ctx context.Context, s storage.Store, dir string, ends map[storage.InstantTime]storage.InstantTime) error {
	if len(ends) == 0 {
		return nil
	}
	var from, to storage.InstantTime
	for it := range ends {
		if from == "" || it < from {
			from = it
		}
		to = max(to, it)
	}
	for in, err := range history(ctx, s, dir, from, to, false) {
		if err != nil {
			return fmt.Errorf("reading archived timeline: %w", err)
		}
		if _, ok := ends[in.Time]; ok && in.Action.writes() && in.Transition != "" {
			ends[in.Time] = in.Transition
		}
	}
	return nil
}
