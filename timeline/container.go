package timeline

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/lakesql/lakesql/storage"
)

// The schemas are those that Hudi 0.15 puts into its own files: field order, union order and names are part of the format.
//
//go:embed avsc/*.avsc
var schemaFiles embed.FS

// container is one kind of timeline file: an Avro object container file that holds one record.
type container struct {
	record string // name of the record below org.apache.hudi.avro.model
	once   sync.Once
	text   string
	schema *avro.Schema
}

var (
	compactionPlanFile   = &container{record: "HoodieCompactionPlan"}
	cleanPlanFile        = &container{record: "HoodieCleanerPlan"}
	cleanMetaFile        = &container{record: "HoodieCleanMetadata"}
	rollbackPlanFile     = &container{record: "HoodieRollbackPlan"}
	rollbackMetaFile     = &container{record: "HoodieRollbackMetadata"}
	savepointMetaFile    = &container{record: "HoodieSavepointMetadata"}
	requestedReplaceFile = &container{record: "HoodieRequestedReplaceMetadata"}
)

func (c *container) load() {
	c.once.Do(func() {
		b, err := schemaFiles.ReadFile("avsc/" + c.record + ".avsc")
		if err != nil {
			panic(err) // the schema is part of the program
		}
		c.text = string(b)
		c.schema = avro.MustParse(c.text)
	})
}

const containerMagic = "Obj\x01"

// encode writes the one-record file as Java does: no codec entry, which means uncompressed.
func (c *container) encode(v any) ([]byte, error) {
	c.load()
	body, err := c.schema.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", c.record, err)
	}
	var sync [16]byte
	rand.Read(sync[:])
	return c.wrap(body, sync), nil
}

// wrap puts the header in front of the bytes of a record, and the sync marker around them.
func (c *container) wrap(body []byte, sync [16]byte) []byte {
	c.load()
	const key = "avro.schema"
	b := []byte(containerMagic)
	b = binary.AppendVarint(b, 1)
	b = append(binary.AppendVarint(b, int64(len(key))), key...)
	b = append(binary.AppendVarint(b, int64(len(c.text))), c.text...)
	b = append(b, 0)
	b = append(b, sync[:]...)
	b = binary.AppendVarint(b, 1)
	b = append(binary.AppendVarint(b, int64(len(body))), body...)
	return append(b, sync[:]...)
}

// decode reads the record of a file of any writer: fields are found by name, those that the writer left out get their defaults, and
// those that this schema has not are skipped.
func (c *container) decode(name string, b []byte, v any) error {
	c.load()
	damaged := func(err error) error {
		return &storage.CorruptError{Name: name, Offset: -1, Err: fmt.Errorf("avro container: %w", err)}
	}
	r, err := ocf.NewReader(bytes.NewReader(b), ocf.WithReaderSchemaFunc(func(r *ocf.Reader) (*avro.Schema, error) {
		if string(r.Metadata()["avro.schema"]) == c.text {
			return nil, nil // the usual case needs no resolving
		}
		return c.schema, nil
	}))
	if err != nil {
		return damaged(err)
	}
	defer r.Close()
	if err := r.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("holds no record")
		}
		return damaged(err)
	}
	return nil
}

// recordName gives the name of the record that a file holds, without its namespace.
func recordName(b []byte) (string, error) {
	r, err := ocf.NewReader(bytes.NewReader(b))
	if err != nil {
		return "", fmt.Errorf("avro container: %w", err)
	}
	defer r.Close()
	name := r.Schema().Root().Name
	return name[strings.LastIndexByte(name, '.')+1:], nil
}

// read reads a file of the timeline; one being written by another engine is read again.
func (c *container) read(ctx context.Context, s storage.Store, name string, v any) error {
	return settle(ctx, func() error {
		b, err := readObject(ctx, s, name)
		if err != nil {
			return err
		}
		return c.decode(name, b, v)
	})
}
