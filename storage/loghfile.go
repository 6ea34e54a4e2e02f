package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/lakesql/lakesql/storage/hfile"
)

// HFile is an open HFile of a store.
type HFile struct {
	*hfile.Reader
	o Object
}

// OpenHFile opens an object that is an HFile: a base file of a metadata table.
func OpenHFile(ctx context.Context, s Store, name string) (*HFile, error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("opening HFile %s: %w", name, err)
	}
	r, err := hfile.Open(name, o, o.Size())
	if err != nil {
		return nil, errors.Join(hfileError(err), o.Close())
	}
	return &HFile{Reader: r, o: o}, nil
}

// Close closes the object; the Reader is of no use after it.
func (f *HFile) Close() error { return f.o.Close() }

// All gives every entry in key order.
func (f *HFile) All() iter.Seq2[hfile.Entry, error] {
	return func(yield func(hfile.Entry, error) bool) {
		for e, err := range f.Reader.All() {
			if !yield(e, hfileError(err)) {
				return
			}
		}
	}
}

// hfileError gives an error about an HFile in the words of this package.
func hfileError(err error) error {
	var bad *hfile.CorruptError
	switch {
	case errors.As(err, &bad):
		return &CorruptError{Name: bad.Name, Offset: bad.Offset, Err: bad.Err}
	case errors.Is(err, hfile.ErrUnsupported):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// HFile opens the content of an HFile data block.
func (b *LogBlock) HFile() (*hfile.Reader, error) {
	c, err := b.Content()
	if err != nil {
		return nil, err
	}
	r, err := hfile.Open(b.name, bytes.NewReader(c), int64(len(c)))
	return r, b.hfileError(err)
}

// hfileError places an error of an HFile data block: the offset of the damage within the block follows that of the block.
func (b *LogBlock) hfileError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, hfile.ErrUnsupported) {
		return fmt.Errorf("%w: hfile data block: %w", ErrUnsupported, err)
	}
	return b.corrupt(fmt.Errorf("hfile data block: %w", err))
}

// hfileKeyColumn is the column whose text Hudi leaves out of the records of an HFile, since it is the key beside them.
const hfileKeyColumn = "key"

// hfileRecords gives the Avro binary of each record of an HFile data block.
func (b *LogBlock) hfileRecords() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		t, err := parseAvroType(b.Schema)
		if err != nil {
			yield(nil, b.corrupt(err))
			return
		}
		r, err := b.HFile()
		if err != nil {
			yield(nil, err)
			return
		}
		for e, err := range r.All() {
			var rec []byte
			if err == nil {
				rec, err = withKey(t, e)
			}
			if err != nil {
				yield(nil, b.hfileError(err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// withKey gives the record of an entry, with the key in the column that Hudi emptied for it.
func withKey(t *avroType, e hfile.Entry) ([]byte, error) {
	rec, i := e.Value, 0
	for _, f := range t.fields {
		if f.name != hfileKeyColumn {
			var err error
			if i, err = f.typ.skip(rec, i, 0); err != nil {
				return nil, err
			}
			continue
		}
		inner, null := f.typ.optional()
		if inner.kind != avroString {
			return rec, nil
		}
		if null >= 0 {
			branch, next := avroVar(rec, i)
			if next < 0 {
				return nil, errAvroShort
			}
			if branch == int64(null) {
				return rec, nil
			}
			i = next
		}
		from, to := avroSpan(rec, i)
		if to < 0 {
			return nil, errAvroShort
		}
		if from < to {
			return rec, nil
		}
		out := make([]byte, 0, len(rec)+len(e.Key)+4)
		out = appendVar(append(out, rec[:i]...), int64(len(e.Key)))
		return append(append(out, e.Key...), rec[to:]...), nil
	}
	return rec, nil
}

// fromHFile turns an HFile data block into an avro data block, so that merging sees one kind.
func (b *loadedBlock) fromHFile() ([]byte, error) {
	out := binary.BigEndian.AppendUint32(nil, dataVersion)
	out = binary.BigEndian.AppendUint32(out, 0)
	n := uint32(0)
	for rec, err := range b.Records() {
		if err != nil {
			return nil, err
		}
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(rec))), rec...)
		n++
	}
	binary.BigEndian.PutUint32(out[4:], n)
	b.Type = BlockAvro
	return out, nil
}

// HFileEntry is one entry of an HFile.
type HFileEntry = hfile.Entry

// WriteHFileLog writes a log file of one HFile data block, as logs of metadata tables are. The entries come in the order of their keys;
// schema is the Avro schema of their values. It gives the size of the file in bytes. The file is durable on return.
func WriteHFileLog(ctx context.Context, s Store, name string, instant InstantTime, schema string, entries []HFileEntry) (int64, error) {
	image, err := hfileImage(schema, nil, entries)
	if err != nil {
		return 0, fmt.Errorf("writing log %s: %w", name, err)
	}
	w := beginBlock(nil, BlockHFile, instant, schema)
	w.b = append(w.b, image...)
	b := w.end()
	if err := writeObject(ctx, s, name, b); err != nil {
		return 0, fmt.Errorf("writing log %s: %w", name, err)
	}
	return int64(len(b)), nil
}

// WriteHFile writes a base file of a metadata table, with a bloom filter and the range of its keys as Hudi's have them.
func WriteHFile(ctx context.Context, s Store, name, schema string, entries []HFileEntry) (int64, error) {
	bloom := NewBloom(max(len(entries), 1), hfileBloomRate)
	for _, e := range entries {
		bloom.Add(string(e.Key))
	}
	b, err := hfileImage(schema, bloom, entries)
	if err == nil {
		err = writeObject(ctx, s, name, b)
	}
	if err != nil {
		return 0, fmt.Errorf("writing HFile %s: %w", name, err)
	}
	return int64(len(b)), nil
}

// hfileBloomRate is the share of keys for which the filter of a base file says yes wrongly.
const hfileBloomRate = 0.0001

// hfileImage gives the bytes of an HFile as Hudi writes them: its file info has the schema and, of a base file, the range of the keys.
func hfileImage(schema string, bloom *Bloom, entries []HFileEntry) ([]byte, error) {
	var out bytes.Buffer
	w := hfile.NewWriter(&out, hfile.Options{})
	for _, e := range entries {
		if err := w.Put(e.Key, e.Value); err != nil {
			return nil, err
		}
	}
	w.Info("schema", []byte(schema))
	if bloom != nil && len(entries) > 0 {
		w.Meta("bloomFilter", []byte(bloom.Encode()))
		w.Info("bloomFilterTypeCode", []byte(bloomSimple))
		w.Info("minRecordKey", entries[0].Key)
		w.Info("maxRecordKey", entries[len(entries)-1].Key)
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// writeObject writes an object in one piece, durably.
func writeObject(ctx context.Context, s Store, name string, b []byte) error {
	w, err := s.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Commit()
}
