package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
)

func memStore(t testing.TB) *Local {
	t.Helper()
	return NewLocal(vfs.NewMem(), "t")
}

func objectBytes(t testing.TB, s Store, name string) []byte {
	t.Helper()
	o, err := s.Open(context.Background(), name)
	require.NoError(t, err)
	defer o.Close()
	b := make([]byte, o.Size())
	_, err = o.ReadAt(b, 0)
	require.NoError(t, err)
	return b
}

func logBlocks(s Store, name string) ([]LogBlock, error) {
	var out []LogBlock
	for b, err := range ReadLog(context.Background(), s, name) {
		if err != nil {
			return out, err
		}
		c, err := b.Content()
		if err != nil {
			return out, err
		}
		b.content = func() ([]byte, error) { return c, nil }
		out = append(out, b)
	}
	return out, nil
}

const deleteSchema = `{"type":"record","name":"HoodieDeleteRecordList","namespace":"org.apache.hudi.avro.model","fields":[
	{"name":"deleteRecordList","type":{"type":"array","items":{"type":"record","name":"HoodieDeleteRecord","fields":[
		{"name":"recordKey","type":["null","string"]},{"name":"partitionPath","type":["null","string"]},
		{"name":"orderingVal","type":["null",
			{"type":"record","name":"BooleanWrapper","fields":[{"name":"value","type":"boolean"}]},
			{"type":"record","name":"IntWrapper","fields":[{"name":"value","type":"int"}]},
			{"type":"record","name":"LongWrapper","fields":[{"name":"value","type":"long"}]},
			{"type":"record","name":"FloatWrapper","fields":[{"name":"value","type":"float"}]},
			{"type":"record","name":"DoubleWrapper","fields":[{"name":"value","type":"double"}]},
			{"type":"record","name":"BytesWrapper","fields":[{"name":"value","type":"bytes"}]},
			{"type":"record","name":"StringWrapper","fields":[{"name":"value","type":"string"}]},
			{"type":"record","name":"DateWrapper","fields":[{"name":"value","type":"int"}]},
			{"type":"record","name":"DecimalWrapper","fields":[{"name":"value","type":{"type":"bytes","logicalType":"decimal","precision":30,"scale":15}}]},
			{"type":"record","name":"TimeMicrosWrapper","fields":[{"name":"value","type":{"type":"long","logicalType":"time-micros"}}]},
			{"type":"record","name":"TimestampMicrosWrapper","fields":[{"name":"value","type":"long"}]}]}]}}}]}`

// D18: the file is taken apart by hand, byte for byte as the format describes it.
func TestWriteLogLayout(t *testing.T) {
	ctx, s := context.Background(), memStore(t)
	schema := allTypes()
	var puts []LogRecord
	for i, row := range extremes() {
		puts = append(puts, LogRecord{RowMeta{"20260101000000001", fmt.Sprintf("20260101000000001_0_%d", i), fmt.Sprint("k", i), "p"}, row})
	}
	dels := []LogDelete{
		{Key: "none", Partition: "p"},
		{Key: "long", Partition: "", Ordering: int64(-3), OrderingType: Type{Kind: Int64}},
	}
	stats, err := WriteLog(ctx, s, "p/log", "20260101000000001", schema, "group-0", puts, dels)
	require.NoError(t, err)
	b := objectBytes(t, s, "p/log")
	require.Equal(t, LogStats{Bytes: int64(len(b)), Blocks: 2, Sum: crc32.Checksum(b, castagnoli)}, stats)
	oracle, err := avro.Parse(schema.Avro(true))
	require.NoError(t, err)

	take := func(n int) []byte {
		require.GreaterOrEqual(t, len(b), n)
		x := b[:n]
		b = b[n:]
		return x
	}
	u32 := func() int { return int(binary.BigEndian.Uint32(take(4))) }
	u64 := func() int { return int(binary.BigEndian.Uint64(take(8))) }
	block := func(kind BlockType) (content []byte) {
		before := len(b)
		require.Equal(t, []byte{0x23, 0x48, 0x55, 0x44, 0x49, 0x23}, take(6))
		size := u64()
		afterSize := len(b)
		require.Equal(t, 1, u32(), "log format version")
		require.Equal(t, int(kind), u32())
		require.Equal(t, 2, u32(), "header entries")
		require.Equal(t, 0, u32())
		require.Equal(t, "20260101000000001", string(take(u32())))
		require.Equal(t, 2, u32())
		require.Equal(t, schema.Avro(true), string(take(u32())))
		content = take(u64())
		require.Equal(t, 0, u32(), "footer entries")
		beforeTrailer := before - len(b)
		trailer := u64()
		require.Equal(t, beforeTrailer, trailer)
		require.Equal(t, size+6, trailer)
		require.Equal(t, size, afterSize-len(b))
		return content
	}

	content := block(BlockAvro)
	rest := b
	b = content
	require.Equal(t, 3, u32(), "data block version")
	require.Equal(t, len(puts), u32())
	for i := range puts {
		var v any
		tail, err := oracle.Decode(take(u32()), &v)
		require.NoError(t, err)
		require.Empty(t, tail)
		m := v.(map[string]any)
		require.Equal(t, "20260101000000001", m[ColCommitTime])
		require.Equal(t, fmt.Sprintf("20260101000000001_0_%d", i), m[ColCommitSeqno])
		require.Equal(t, fmt.Sprint("k", i), m[ColRecordKey])
		require.Equal(t, "p", m[ColPartitionPath])
		require.Equal(t, "group-0", m[ColFileName], "log records carry the file id alone")
		require.Equal(t, puts[i].Row[2], m["l"])
	}
	require.Empty(t, b)

	b = rest
	content = block(BlockDelete)
	require.Empty(t, b)
	b = content
	require.Equal(t, 3, u32(), "delete block version")
	require.Equal(t, len(b)-4, u32())
	require.Equal(t, "\x04"+"\x02\x08none\x02\x02p\x04\x00"+"\x02\x08long\x02\x00\x06\x05"+"\x00", string(b))

	_, err = WriteLog(ctx, s, "p/log", "20260101000000001", schema, "group-0", puts, nil)
	require.ErrorIs(t, err, ErrExist)
	stats, err = WriteLog(ctx, s, "p/empty", "20260101000000001", schema, "group-0", nil, nil)
	require.NoError(t, err)
	require.Equal(t, LogStats{}, stats)
	blocks, err := logBlocks(s, "p/empty")
	require.NoError(t, err)
	require.Empty(t, blocks)
}

func TestLogRoundTrip(t *testing.T) {
	ctx, s := context.Background(), memStore(t)
	schema := allTypes()
	var puts []LogRecord
	for i, row := range extremes() {
		puts = append(puts, LogRecord{RowMeta{"1", "1_0_0", fmt.Sprint(i), ""}, row})
	}
	dels := []LogDelete{
		{Key: "a", Partition: "p"},
		{"b", "p", true, Type{Kind: Bool}},
		{"c", "p", int32(5), Type{Kind: Int32}},
		{"d", "p", int64(math.MinInt64), Type{Kind: Int64}},
		{"e", "p", float32(1.5), Type{Kind: Float32}},
		{"f", "p", -0.25, Type{Kind: Float64}},
		{"g", "p", []byte{1}, Type{Kind: Bytes}},
		{"h", "p", "text", Type{Kind: String}},
		{"i", "p", int32(-1), Type{Kind: Date}},
	}
	dec := LogDelete{"j", "p", num("-12.34", 9, 2), Type{Kind: Decimal, Precision: 9, Scale: 2}}
	at := LogDelete{"k", "p", int64(7), Type{Kind: Timestamp}}
	_, err := WriteLog(ctx, s, "log", "1", schema, "g-0", puts, append(dels[:len(dels):len(dels)], dec, at))
	require.NoError(t, err)
	blocks, err := logBlocks(s, "log")
	require.NoError(t, err)
	require.Len(t, blocks, 2)
	want, err := schema.Select(append([]string{ColFileName, ColRecordKey}, "s", "d38", "l")...)
	require.NoError(t, err)
	i := 0
	for row, err := range blocks[0].Rows(want) {
		require.NoError(t, err)
		require.Equal(t, Row{"g-0", puts[i].Key, puts[i].Row[5], puts[i].Row[11], puts[i].Row[2]}, row)
		i++
	}
	require.Equal(t, len(puts), i)
	got, err := blocks[1].Deletes()
	require.NoError(t, err)
	require.Equal(t, dels, got[:len(dels)])
	// A decimal comes back with the wrapper's scale, a timestamp as the long that Avro has for it.
	require.Equal(t, LogDelete{"j", "p", num("-12.34", 30, 15), Type{Kind: Decimal, Precision: 30, Scale: 15}}, got[len(dels)])
	require.Equal(t, LogDelete{"k", "p", int64(7), Type{Kind: Int64}}, got[len(dels)+1])

	oracle, err := avro.Parse(deleteSchema)
	require.NoError(t, err)
	c, err := blocks[1].Content()
	require.NoError(t, err)
	var v any
	rest, err := oracle.Decode(c[8:], &v)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Len(t, v.(map[string]any)["deleteRecordList"], len(got))
}

// twoBlocks is a log file of two blocks and where the second begins.
func twoBlocks(t testing.TB) (file []byte, second int) {
	schema := allTypes()
	one, _, err := encodeLog("1", schema, "g-0", []LogRecord{{RowMeta{"1", "1_0_0", "a", ""}, extremes()[1]}}, nil)
	require.NoError(t, err)
	both, blocks, err := encodeLog("1", schema, "g-0", []LogRecord{{RowMeta{"1", "1_0_0", "a", ""}, extremes()[1]}}, []LogDelete{{Key: "b"}})
	require.NoError(t, err)
	require.Equal(t, 2, blocks)
	require.Equal(t, one, both[:len(one)])
	return both, len(one)
}

func readBytes(b []byte) ([]LogBlock, error) { return logBlocks(bytesStore{b: b}, "log") }

func kinds(blocks []LogBlock) (k []BlockType) {
	for _, b := range blocks {
		k = append(k, b.Type)
	}
	return k
}

// D18: a file cut anywhere inside its last block gives the blocks before it, and what a later writer appends behind the
// torn bytes is found.
func TestTornTail(t *testing.T) {
	file, second := twoBlocks(t)
	for cut := second; cut < len(file); cut++ {
		blocks, err := readBytes(file[:cut])
		require.NoError(t, err, "cut at %d", cut)
		require.Equal(t, BlockAvro, blocks[0].Type)
		if cut == second {
			require.Len(t, blocks, 1)
			continue
		}
		require.Equal(t, []BlockType{BlockAvro, BlockCorrupt}, kinds(blocks), "cut at %d", cut)
		require.Equal(t, int64(cut-second), blocks[1].Size)

		if cut < second+len(logMagic) {
			continue // the rest of a magic hides what follows it at once; a writer rolls to a new file
		}
		blocks, err = readBytes(append(file[:cut:cut], file...))
		require.NoError(t, err)
		require.Equal(t, []BlockType{BlockAvro, BlockCorrupt, BlockAvro, BlockDelete}, kinds(blocks), "cut at %d", cut)
	}
	for cut := range second {
		blocks, err := readBytes(file[:cut])
		require.NoError(t, err, "cut at %d", cut)
		if cut == 0 {
			require.Empty(t, blocks)
		} else {
			require.Equal(t, []BlockType{BlockCorrupt}, kinds(blocks), "cut at %d", cut)
		}
	}
}

// D18: no single flipped bit makes the reader panic or hang, and those in lengths and magics of a block lose that
// block or end in an error that names the object.
func TestBitFlips(t *testing.T) {
	file, _ := twoBlocks(t)
	for i := range file {
		for bit := range 8 {
			bad := bytes.Clone(file)
			bad[i] ^= 1 << bit
			blocks, err := readBytes(bad)
			if err != nil {
				var c *CorruptError
				require.True(t, errors.As(err, &c) || errors.Is(err, ErrUnsupported), "%v", err)
				require.ErrorContains(t, err, "log")
				continue
			}
			for _, b := range blocks {
				switch b.Type {
				case BlockAvro:
					for range b.Rows(allTypes()) {
					}
				case BlockDelete:
					b.Deletes()
				}
			}
		}
	}
}

func TestNoMagicIsAnError(t *testing.T) {
	file, second := twoBlocks(t)
	for _, b := range [][]byte{{0}, []byte("HUDI"), []byte("#HUDX#"), append([]byte("x"), file...)} {
		_, err := readBytes(b)
		var c *CorruptError
		require.ErrorAs(t, err, &c)
		require.Equal(t, int64(0), c.Offset)
		require.Equal(t, "log", c.Name)
	}
	// Bytes between two blocks make the one before them corrupt, as the format says.
	bad := append(append(bytes.Clone(file[:second]), "junk and more"...), file[second:]...)
	blocks, err := readBytes(bad)
	require.NoError(t, err)
	require.Equal(t, []BlockType{BlockCorrupt, BlockDelete}, kinds(blocks))
}

// A magic is found when it lies across two windows of the search, and large files are read piece by piece.
func TestLargeLog(t *testing.T) {
	file, second := twoBlocks(t)
	for _, gap := range []int{1<<20 - 9, 1<<20 - 8, 1<<20 - 3, 1 << 20, 9 << 20} {
		bad := append([]byte(logMagic), bytes.Repeat([]byte{1}, gap)...)
		bad = append(bad, file...)
		blocks, err := readBytes(bad)
		require.NoError(t, err)
		require.Equal(t, []BlockType{BlockCorrupt, BlockAvro, BlockDelete}, kinds(blocks), "gap %d", gap)
		require.Equal(t, int64(second), blocks[1].Size)
	}
	big := allTypes()
	rows := []LogRecord{{RowMeta{"1", "1_0_0", "a", ""}, extremes()[3]}}
	rows[0].Row[6] = bytes.Repeat([]byte{7}, 9<<20)
	b, _, err := encodeLog("1", big, "g-0", rows, []LogDelete{{Key: "b"}})
	require.NoError(t, err)
	blocks, err := readBytes(b)
	require.NoError(t, err)
	require.Equal(t, []BlockType{BlockAvro, BlockDelete}, kinds(blocks))
	for row, err := range blocks[0].Rows(big) {
		require.NoError(t, err)
		require.Equal(t, rows[0].Row, row)
	}
}

// rawBlock writes a block with any header.
func rawBlock(kind BlockType, header map[uint32]string, content []byte) []byte {
	w := &blockWriter{b: []byte(logMagic)}
	w.u64(0)
	w.u32(logFormatVersion)
	w.u32(uint32(kind))
	w.u32(uint32(len(header)))
	for k, v := range header {
		w.entry(k, v)
	}
	w.u64(0)
	w.content = len(w.b)
	w.b = append(w.b, content...)
	return w.end()
}

func TestBlockKinds(t *testing.T) {
	command := rawBlock(BlockCommand, map[uint32]string{0: "5", 1: "4", 3: "0", 99: "unknown keys are skipped"}, nil)
	blocks, err := readBytes(command)
	require.NoError(t, err)
	require.Equal(t, InstantTime("5"), blocks[0].Instant)
	require.Equal(t, InstantTime("4"), blocks[0].Target)

	_, err = readBytes(rawBlock(BlockCommand, map[uint32]string{0: "5", 3: "1"}, nil))
	require.ErrorContains(t, err, `command "1"`)

	const schema = `{"type":"record","name":"CDC","fields":[{"name":"op","type":["null","string"]},{"name":"ts_ms","type":["null","string"]},
		{"name":"before","type":["null",{"type":"record","name":"row","fields":[{"name":"id","type":["null","int"]}]}]},
		{"name":"after","type":["null","row"]}]}`
	content := []byte{0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 10, 2, 2, 'u', 2, 2, '9', 0, 2, 2, 2}
	blocks, err = readBytes(rawBlock(BlockCDC, map[uint32]string{0: "5", 2: schema}, content))
	require.NoError(t, err)
	want := &Schema{Fields: []Field{field("op", String), field("ts_ms", String), field("before", Nested), field("after", Nested)}}
	for row, err := range blocks[0].Rows(want) {
		require.NoError(t, err)
		require.Equal(t, Row{"u", "9", nil, `{"id": 1}`}, row)
	}

	several := LogDelete{"k", "p", []OrderingValue{{int64(5), Type{Kind: Int64}}, {}, {"x", Type{Kind: String}}}, Type{}}
	b, err := appendDelete(nil, &several)
	require.NoError(t, err)
	read, end, err := parseDelete(b, 0)
	require.NoError(t, err)
	require.Equal(t, len(b), end)
	require.Equal(t, several, read)

	for what, b := range map[string][]byte{
		"log block type 9":          rawBlock(9, map[uint32]string{0: "5", 2: schema}, content),
		"data block of version 0":   rawBlock(BlockAvro, map[uint32]string{0: "5", 2: schema}, make([]byte, 8)),
		"delete block of version 2": rawBlock(BlockDelete, map[uint32]string{0: "5"}, []byte{0, 0, 0, 2, 0, 0, 0, 0}),
		"log format version 0":      append([]byte(logMagic), 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18),
	} {
		blocks, err := readBytes(b)
		if err == nil {
			if err = blocks[0].supported(); err == nil {
				if blocks[0].Type == BlockDelete {
					_, err = blocks[0].Deletes()
				} else {
					for _, err = range blocks[0].Records() {
					}
				}
			}
		}
		require.ErrorIs(t, err, ErrUnsupported, what)
		require.ErrorContains(t, err, what)
	}
}

func FuzzLogBlock(f *testing.F) {
	file, second := twoBlocks(f)
	f.Add(file)
	f.Add(file[:second+20])
	f.Add(file[second:])
	f.Add(rawBlock(BlockCommand, map[uint32]string{0: "5", 1: "4", 3: "0"}, nil))
	f.Add(append([]byte(logMagic), file...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var end int64
		for blk, err := range ReadLog(context.Background(), bytesStore{b: b}, "log") {
			if err != nil {
				return
			}
			if blk.Offset != end || blk.Size <= 0 {
				t.Fatalf("block at %d of %d bytes follows one that ends at %d", blk.Offset, blk.Size, end)
			}
			end += blk.Size
			switch blk.Type {
			case BlockAvro, BlockCDC:
				if s, err := ParseAvro(blk.Schema); err == nil {
					for _, err := range blk.Rows(s) {
						_ = err
					}
				}
			case BlockDelete:
				dels, err := blk.Deletes()
				if err != nil {
					continue
				}
				for i := range dels {
					if _, err := appendDelete(nil, &dels[i]); err != nil {
						t.Fatalf("%+v was read and cannot be written: %v", dels[i], err)
					}
				}
			}
		}
		if end != int64(len(b)) {
			t.Fatalf("blocks end at %d of %d", end, len(b))
		}
	})
}
