package timeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lakesql/lakesql/storage"
)

const (
	schemaFolder = ".schema"
	schemaSuffix = ".schemacommit"
)

// SchemaHistory reads the newest schema-on-read history of the table in folder dir; nil if it has none.
func SchemaHistory(ctx context.Context, s storage.Store, dir string) (*storage.SchemaHistory, error) {
	var newest string // object
	var at storage.InstantTime
	folder := join(dir, metaFolder, schemaFolder)
	for info, err := range s.List(ctx, folder) {
		if err != nil {
			return nil, fmt.Errorf("reading schema history: %w", err)
		}
		times, ok := strings.CutSuffix(info.Name, schemaSuffix)
		requested, completed, named := strings.Cut(times, "_")
		if !ok || info.Dir || info.Size == 0 || !isNumber(requested) || named && !isNumber(completed) {
			continue
		}
		if it := storage.InstantTime(requested); it > at {
			newest, at = join(folder, info.Name), it
		}
	}
	if newest == "" {
		return nil, nil
	}
	var h *storage.SchemaHistory
	err := settle(ctx, func() error {
		b, err := readObject(ctx, s, newest)
		if err != nil {
			return err
		}
		h, err = storage.ParseSchemaHistory(b)
		if err != nil && !errors.Is(err, storage.ErrUnsupported) {
			err = &storage.CorruptError{Name: newest, Offset: -1, Err: err}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading schema history: %w", err)
	}
	return h, nil
}

// ExtraLatestSchema is the member of CommitMeta.Extra that holds the table's schema with ids, where the table has a schema-on-read history.
const ExtraLatestSchema = "latest_schema"
