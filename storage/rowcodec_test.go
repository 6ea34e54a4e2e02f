package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
)

func field(name string, k Kind) Field { return Field{Name: name, Type: Type{Kind: k}, Nullable: true} }

func decimalField(name string, p, s int) Field {
	return Field{Name: name, Type: Type{Kind: Decimal, Precision: p, Scale: s}, Nullable: true}
}

// allTypes has a column of each kind that can be written.
func allTypes() *Schema {
	return &Schema{Name: "t_record", Namespace: "hoodie.t", Fields: []Field{
		field("b", Bool), field("i", Int32), field("l", Int64), field("f", Float32), field("d", Float64),
		field("s", String), field("x", Bytes), field("day", Date), field("at", Timestamp),
		decimalField("d9", 9, 2), decimalField("d18", 18, 4), decimalField("d38", 38, 10),
	}}
}

func num(text string, p, s int32) decimal128.Num {
	n, err := decimal128.FromString(text, p, s)
	if err != nil {
		panic(err)
	}
	return n
}

// extremes are rows of allTypes at the ends of what the types hold.
func extremes() []Row {
	return []Row{
		{nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
		{
			true, int32(math.MaxInt32), int64(math.MaxInt64), float32(math.MaxFloat32), math.MaxFloat64, "é☃𝄞",
			[]byte{0, 255},
			int32(2932896), int64(253402300799999999), num("9999999.99", 9, 2), num("99999999999999.9999", 18, 4),
			num("9999999999999999999999999999.9999999999", 38, 10),
		},
		{
			false, int32(math.MinInt32), int64(math.MinInt64), float32(math.Inf(-1)), math.Inf(1), "",
			[]byte{},
			int32(-719162), int64(-62135596800000000), num("-9999999.99", 9, 2), num("-99999999999999.9999", 18, 4),
			num("-9999999999999999999999999999.9999999999", 38, 10),
		},
		{
			true, int32(0), int64(-1), float32(0), math.Copysign(0, -1), strings.Repeat("x", 300), []byte("y"),
			int32(0), int64(0), num("0", 9, 2), num("-0.0001", 18, 4), num("-1", 38, 10),
		},
	}
}

func TestRowRoundTrip(t *testing.T) {
	s := allTypes()
	d, err := NewRowDecoder(s, s)
	require.NoError(t, err)
	var bins [][]byte
	var reused Row
	for _, row := range extremes() {
		b, err := EncodeRow(s, row, nil)
		require.NoError(t, err)
		bins = append(bins, b)
		got, err := d.Decode(b, nil)
		require.NoError(t, err)
		require.Equal(t, row, got)
		reused, err = d.Decode(b, reused)
		require.NoError(t, err)
		require.Equal(t, row, reused)
		for cut := range b {
			_, err := d.Decode(b[:cut], nil)
			require.Error(t, err, "cut to %d bytes", cut)
		}
		_, err = d.Decode(append(b, 0), nil)
		require.ErrorIs(t, err, errAvroTail)
	}
	batch, err := d.DecodeBatch(bins)
	require.NoError(t, err)
	for i, row := range extremes() {
		require.Equal(t, row, batch.Row(i, nil))
	}
}

// The bytes are those of an Avro library for the schema that goes into log blocks.
func TestRowMatchesOracle(t *testing.T) {
	s := allTypes()
	oracle, err := avro.Parse(s.Avro(false))
	require.NoError(t, err)
	for _, row := range extremes() {
		b, err := EncodeRow(s, row, nil)
		require.NoError(t, err)
		var v any
		rest, err := oracle.Decode(b, &v)
		require.NoError(t, err)
		require.Empty(t, rest)
		again, err := oracle.Encode(v)
		require.NoError(t, err)
		require.Equal(t, b, again)
		m := v.(map[string]any)
		for i, f := range s.Fields {
			if row[i] == nil {
				require.Nil(t, m[f.Name], f.Name)
			}
		}
	}
}

func TestRowEncodeErrors(t *testing.T) {
	s := allTypes()
	for i := range s.Fields {
		row := make(Row, len(s.Fields))
		row[i] = struct{}{}
		dst := []byte("kept")
		got, err := EncodeRow(s, row, dst)
		require.ErrorContains(t, err, "column "+s.Fields[i].Name)
		require.Equal(t, "kept", string(got))
	}
	row := make(Row, len(s.Fields))
	row[9] = num("99999999999.99", 38, 2)
	_, err := EncodeRow(s, row, nil)
	require.ErrorContains(t, err, "column d9")
	_, err = EncodeRow(s, row[:2], nil)
	require.ErrorContains(t, err, "2 values for 12 columns")
}

func TestRowResolution(t *testing.T) {
	one := func(f Field) *Schema { return &Schema{Name: "r", Fields: []Field{f}} }
	for _, c := range []struct {
		from, to Field
		in, out  any
	}{
		{field("a", Int32), field("a", Int64), int32(-5), int64(-5)},
		{field("a", Int32), field("a", Float32), int32(-5), float32(-5)},
		{field("a", Int32), field("a", Float64), int32(-5), float64(-5)},
		{field("a", Int64), field("a", Float32), int64(1 << 40), float32(1 << 40)},
		{field("a", Int64), field("a", Float64), int64(1 << 40), float64(1 << 40)},
		{field("a", Float32), field("a", Float64), float32(1.5), float64(1.5)},
		{field("a", String), field("a", Bytes), "é", []byte("é")},
		{field("a", Bytes), field("a", String), []byte("é"), "é"},
		{decimalField("a", 5, 2), decimalField("a", 38, 2), num("-123.45", 5, 2), num("-123.45", 38, 2)},
		{decimalField("a", 5, 2), decimalField("a", 20, 4), num("-123.45", 5, 2), num("-123.45", 20, 4)},
		{field("a", Int32), field("a", String), int32(12), "12"},
		{field("a", Date), field("a", String), int32(19782), "2024-02-29"},
		{field("a", Int32), decimalField("a", 20, 2), int32(12), num("12.00", 20, 2)},
		{field("a", Nested), field("a", Nested), `{"k": 1}`, `{"k": 1}`},
		{field("gone", Int32), field("new", Int32), int32(1), nil},
	} {
		name := fmt.Sprintf("%s %s → %s", c.from.Name, c.from.Type, c.to.Type)
		b, err := EncodeRow(one(c.from), Row{c.in}, nil)
		require.NoError(t, err, name)
		d, err := NewRowDecoder(one(c.from), one(c.to))
		require.NoError(t, err, name)
		got, err := d.Decode(b, nil)
		require.NoError(t, err, name)
		require.Equal(t, Row{c.out}, got, name)
		batch, err := d.DecodeBatch([][]byte{b})
		require.NoError(t, err, name)
		require.Equal(t, Row{c.out}, batch.Row(0, nil), name)
	}
	for _, c := range [][2]Field{
		{field("a", Int64), field("a", Int32)},
		{field("a", Float64), field("a", Float32)},
		{field("a", String), field("a", Int32)},
		{field("a", Bool), field("a", Int32)},
	} {
		_, err := NewRowDecoder(one(c[0]), one(c[1]))
		require.ErrorIs(t, err, ErrUnsupported, "%s → %s", c[0].Type, c[1].Type)
	}
}

// Columns are found by name: their order, and what only the writer has, do not matter.
func TestRowReorderAndDrop(t *testing.T) {
	w := allTypes()
	r := &Schema{Name: w.Name, Fields: []Field{w.Fields[5], field("new", String), w.Fields[0], w.Fields[11]}}
	d, err := NewRowDecoder(w, r)
	require.NoError(t, err)
	for _, row := range extremes() {
		b, err := EncodeRow(w, row, nil)
		require.NoError(t, err)
		got, err := d.Decode(b, nil)
		require.NoError(t, err)
		require.Equal(t, Row{row[5], nil, row[0], row[11]}, got)
	}
}

// A decoded row does not change when the bytes it came from do.
func TestRowOwnsItsMemory(t *testing.T) {
	s := &Schema{Fields: []Field{field("s", String), field("x", Bytes)}}
	b, err := EncodeRow(s, Row{"text", []byte("bytes")}, nil)
	require.NoError(t, err)
	d, err := NewRowDecoder(s, s)
	require.NoError(t, err)
	row, err := d.Decode(b, nil)
	require.NoError(t, err)
	clear(b)
	require.Equal(t, Row{"text", []byte("bytes")}, row)
}

// Foreign schemas: null last, no union, bytes decimals, other units of time, enums, nested types.
func TestForeignRecords(t *testing.T) {
	const text = `{"type":"record","name":"r","fields":[
		{"name":"last","type":["string","null"]},
		{"name":"plain","type":"long"},
		{"name":"dec","type":["null",{"type":"bytes","logicalType":"decimal","precision":20,"scale":3}]},
		{"name":"ms","type":{"type":"long","logicalType":"timestamp-millis"}},
		{"name":"e","type":{"type":"enum","name":"e","symbols":["A","B"]}},
		{"name":"fx","type":{"type":"fixed","name":"fx","size":3}},
		{"name":"arr","type":{"type":"array","items":["null","int"]}},
		{"name":"m","type":{"type":"map","values":{"type":"array","items":"string"}}},
		{"name":"rec","type":["null",{"type":"record","name":"in","fields":[
			{"name":"d","type":{"type":"int","logicalType":"date"}},
			{"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
			{"name":"n","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
			{"name":"x","type":"bytes"},{"name":"f","type":"float"},{"name":"g","type":"double"},
			{"name":"again","type":["null","in"]}]}]}]}`
	s, err := ParseAvro(text)
	require.NoError(t, err)
	enc, err := newRecordEncoder(s.Avro(true), s)
	require.NoError(t, err)
	row := Row{
		"t", int64(7), num("-12345678901234567.890", 20, 3), int64(1709210096123000), "B", []byte("abc"), "[1, null, -3]",
		`{"k": ["a\"\n", "☃"], "z": []}`,
		`{"d": "2024-02-29", "t": "2024-02-29T12:34:56.123456Z", "n": "-0.05", "x": "AAH/", "f": 1.5, "g": "NaN", "again": ` +
			`{"d": "1969-12-31", "t": "1969-12-31T23:59:59.999999Z", "n": "12.00", "x": "", "f": -0.0, "g": 1e+30, "again": null}}`,
	}
	b, err := enc.record(nil, &LogRecord{RowMeta: RowMeta{Key: "k"}, Row: row}, "file")
	require.NoError(t, err)
	w, err := parseAvroType(s.Avro(true))
	require.NoError(t, err)
	p, err := compileProgram(w, s)
	require.NoError(t, err)
	got, err := p.row(b, nil)
	require.NoError(t, err)
	require.Equal(t, row, got)

	// The same from the schema as it was written, where nothing but the types themselves is stored.
	w, err = parseAvroType(text)
	require.NoError(t, err)
	p, err = compileProgram(w, s)
	require.NoError(t, err)
	oracle, err := avro.Parse(text)
	require.NoError(t, err)
	var v any
	full, err := avro.Parse(s.Avro(true))
	require.NoError(t, err)
	_, err = full.Decode(b, &v)
	require.NoError(t, err)
	b, err = oracle.Encode(v)
	require.NoError(t, err)
	got, err = p.row(b, nil)
	require.NoError(t, err)
	for i := range row {
		if s.Fields[i].Name == "m" { // the oracle writes maps in any order
			var x, y any
			require.NoError(t, json.Unmarshal([]byte(row[i].(string)), &x))
			require.NoError(t, json.Unmarshal([]byte(got[i].(string)), &y))
			require.Equal(t, x, y)
			continue
		}
		require.Equal(t, row[i], got[i], s.Fields[i].Name)
	}
	for cut := range b {
		_, err := p.row(b[:cut], nil)
		require.Error(t, err)
	}
}

// Counts and depths that bytes can claim but not hold end in an error, not in memory or a full stack.
func TestHostileNesting(t *testing.T) {
	loop, err := parseAvroType(`{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}`)
	require.NoError(t, err)
	_, err = loop.skip(nil, 0, 0)
	require.ErrorIs(t, err, errAvroDepth)
	_, _, err = loop.appendText(nil, nil, 0, 0)
	require.ErrorIs(t, err, errAvroDepth)
	nulls, err := parseAvroType(`{"type":"array","items":"null"}`)
	require.NoError(t, err)
	_, err = nulls.skip(appendVar(nil, 1<<60), 0, 0)
	require.ErrorIs(t, err, errAvroCount)
	_, err = nulls.skip(appendVar(nil, math.MinInt64), 0, 0)
	require.ErrorIs(t, err, errAvroCount)
}

func TestDecimalBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := decimal128.New(int64(r.Uint64())>>r.IntN(64), r.Uint64())
		b, ok := appendDecimal(nil, n, numWidth(n))
		require.True(t, ok)
		got, ok := readDecimal(b)
		require.True(t, ok)
		require.Equal(t, n, got)
		if len(b) > 1 {
			_, ok = appendDecimal(nil, n, len(b)-1)
			require.False(t, ok)
		}
		wide, ok := appendDecimal(nil, n, 20)
		require.True(t, ok)
		got, ok = readDecimal(wide)
		require.True(t, ok)
		require.Equal(t, n, got)
	}
	_, ok := readDecimal(bytes.Repeat([]byte{1}, 17))
	require.False(t, ok)
}

func FuzzRowDecoder(f *testing.F) {
	s := allTypes()
	for _, row := range extremes() {
		b, err := EncodeRow(s, row, nil)
		require.NoError(f, err)
		f.Add(b)
	}
	d, err := NewRowDecoder(s, s)
	require.NoError(f, err)
	narrow, err := NewRowDecoder(s, &Schema{Fields: []Field{s.Fields[5], field("new", Int32)}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		narrow.Decode(b, nil)
		row, err := d.Decode(b, nil)
		batch, berr := d.DecodeBatch([][]byte{b})
		if (err == nil) != (berr == nil) {
			t.Fatalf("row: %v, batch: %v", err, berr)
		}
		if err != nil {
			return
		}
		again, err := EncodeRow(s, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := d.Decode(again, nil)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(back) != fmt.Sprint(row) || fmt.Sprint(batch.Row(0, nil)) != fmt.Sprint(row) {
			t.Fatalf("%v became %v", row, back)
		}
	})
}

// tenColumns is the benchmarks' table: ten scalar columns.
func tenColumns() (*Schema, []Row) {
	s := &Schema{Name: "t", Fields: []Field{
		field("id", Int64), field("a", Int32), field("b", Int64), field("c", Float64), field("name", String),
		field("at", Timestamp), field("day", Date), field("ok", Bool), field("f", Float32), field("city", String),
	}}
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([]Row, 1024)
	for i := range rows {
		rows[i] = Row{
			int64(i) + 1_000_000, r.Int32(), r.Int64(), r.Float64(), fmt.Sprintf("name-%06d", r.IntN(1e6)),
			int64(1.7e15) + r.Int64N(1e12), int32(19000 + r.IntN(1000)), i%2 == 0, r.Float32(), []string{"paris", "lima", "oslo"}[i%3],
		}
	}
	return s, rows
}

func BenchmarkRowEncode(b *testing.B) {
	s, rows := tenColumns()
	b.ReportAllocs()
	var buf []byte
	n := 0
	for b.Loop() {
		buf, _ = EncodeRow(s, rows[n&1023], buf[:0])
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrow/s")
}

func BenchmarkRowDecode(b *testing.B) {
	s, rows := tenColumns()
	bins := make([][]byte, len(rows))
	for i := range rows {
		bins[i], _ = EncodeRow(s, rows[i], nil)
	}
	d, err := NewRowDecoder(s, s)
	require.NoError(b, err)
	b.Run("row", func(b *testing.B) {
		b.ReportAllocs()
		var row Row
		n := 0
		for b.Loop() {
			row, _ = d.Decode(bins[n&1023], row)
			n++
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrow/s")
	})
	b.Run("batch", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if _, err := d.DecodeBatch(bins); err != nil {
				b.Fatal(err)
			}
			n += len(bins)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrow/s")
	})
}
