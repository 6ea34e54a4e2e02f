package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/parquet-go/parquet-go"
)

var bg = context.Background()

func baseNum(t testing.TB, text string, scale int) decimal128.Num {
	t.Helper()
	x, ok := new(big.Int).SetString(strings.Replace(text, ".", "", 1), 10)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return decimal128.FromBigInt(x)
}

var allKinds = &Schema{Name: "t_record", Namespace: "hoodie.t", Fields: []Field{
	{Name: "id", Type: Type{Kind: Int64}},
	{Name: "b", Type: Type{Kind: Bool}, Nullable: true},
	{Name: "i", Type: Type{Kind: Int32}, Nullable: true},
	{Name: "l", Type: Type{Kind: Int64}, Nullable: true},
	{Name: "f", Type: Type{Kind: Float32}, Nullable: true},
	{Name: "d", Type: Type{Kind: Float64}, Nullable: true},
	{Name: "s", Type: Type{Kind: String}, Nullable: true},
	{Name: "x", Type: Type{Kind: Bytes}, Nullable: true},
	{Name: "dt", Type: Type{Kind: Date}, Nullable: true},
	{Name: "ts", Type: Type{Kind: Timestamp}, Nullable: true},
	{Name: "d9", Type: Type{Kind: Decimal, Precision: 9, Scale: 2}, Nullable: true},
	{Name: "d18", Type: Type{Kind: Decimal, Precision: 18, Scale: 4}, Nullable: true},
	{Name: "d38", Type: Type{Kind: Decimal, Precision: 38, Scale: 10}, Nullable: true},
	{Name: "ms", Type: Type{Kind: Timestamp, Avro: `{"type":"long","logicalType":"timestamp-millis"}`}, Nullable: true},
	{Name: "dbytes", Type: Type{Kind: Decimal, Precision: 12, Scale: 3, Avro: `{"type":"bytes","logicalType":"decimal","precision":12,"scale":3}`}, Nullable: true},
	{Name: "fix", Type: Type{Kind: Bytes, Avro: `{"type":"fixed","name":"four","size":4}`}, Nullable: true},
	{Name: "en", Type: Type{Kind: String, Avro: `{"type":"enum","name":"e","symbols":["A","B"]}`}, Nullable: true},
}}

// baseExtremes are rows of allKinds with the ends of every type, and rows of NULLs.
func baseExtremes(t testing.TB) []Row {
	n9, n18, n38 := baseNum(t, "9999999.99", 2), baseNum(t, "99999999999999.9999", 4), baseNum(t, "9999999999999999999999999999.9999999999", 10)
	n12 := baseNum(t, "999999999.999", 3)
	nulls := make(Row, len(allKinds.Fields))
	nulls[0] = int64(3)
	return []Row{
		{int64(1), true, int32(math.MaxInt32), int64(math.MaxInt64), float32(math.MaxFloat32), math.MaxFloat64, "héllo ☃ 𝄞", []byte{0, 255}, int32(2932896), int64(253402300799999999), n9, n18, n38, int64(1500000), n12, []byte("abcd"), "A"},
		{int64(2), false, int32(math.MinInt32), int64(math.MinInt64), float32(math.SmallestNonzeroFloat32), math.Inf(-1), "", []byte{}, int32(-719162), int64(-11676096000000001 + 1), n9.Negate(), n18.Negate(), n38.Negate(), int64(-1000), n12.Negate(), []byte{0, 0, 0, 0}, "B"},
		nulls,
		{int64(4), true, int32(0), int64(0), float32(math.Inf(1)), math.Copysign(0, -1), strings.Repeat("long ", 100), []byte("x"), int32(0), int64(0), decimal128.Num{}, decimal128.FromI64(-1), decimal128.FromI64(1), int64(0), decimal128.Num{}, []byte("zzzz"), "A"},
	}
}

func rowMeta(i int) RowMeta {
	return RowMeta{CommitTime: "20261130101208826", SeqNo: fmt.Sprintf("20261130101208826_0_%d", i), Key: fmt.Sprintf("key-%07d", i), Partition: "p=1"}
}

const baseName = "t/p=1/f1-0_0-1-2_20261130101208826.parquet"

func writeBase(t testing.TB, s Store, name string, schema *Schema, rows []Row, o BaseOptions) {
	t.Helper()
	w, err := CreateBase(bg, s, name, schema, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if err := w.Append(rowMeta(i), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(bg); err != nil {
		t.Fatal(err)
	}
}

func mustOpenBase(t testing.TB, s Store, name string) *BaseFile {
	t.Helper()
	f, err := OpenBase(bg, s, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func withMeta(s *Schema) *Schema {
	names := slices.Clone(MetaColumns)
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	out, err := s.Select(names...)
	if err != nil {
		panic(err)
	}
	return out
}

func scanRows(t testing.TB, f *BaseFile, want *Schema) []Row {
	t.Helper()
	var out []Row
	for b, err := range f.Scan(bg, want) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			out = append(out, b.Row(i, nil))
		}
	}
	return out
}

// sameRow compares values; NaN equals NaN.
func sameRow(a, b Row) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if x, ok := a[i].(float64); ok {
			if y, ok := b[i].(float64); ok && math.Float64bits(x) == math.Float64bits(y) {
				continue
			}
		}
		if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

// D16, D17: names carry file id and instant; every kind comes back; the footer has filter and key range.
func TestBaseRoundTrip(t *testing.T) {
	for _, c := range []Compression{Zstd, Gzip, Snappy, Uncompressed} {
		s := NewLocal(vfs.NewMem(), "")
		rows := baseExtremes(t)
		writeBase(t, s, baseName, allKinds, rows, BaseOptions{Compression: c})
		f := mustOpenBase(t, s, baseName)
		got := scanRows(t, f, withMeta(allKinds))
		if len(got) != len(rows) || f.Rows() != int64(len(rows)) {
			t.Fatalf("%d rows, want %d", len(got), len(rows))
		}
		for i, r := range got {
			m := rowMeta(i)
			want := append(Row{string(m.CommitTime), m.SeqNo, m.Key, m.Partition, filepath.Base(baseName)}, rows[i]...)
			if !sameRow(r, want) {
				t.Errorf("row %d is\n%v, want\n%v", i, r, want)
			}
		}
		low, high, ok := f.KeyRange()
		if !ok || low != "key-0000000" || high != "key-0000003" {
			t.Errorf("key range %q to %q, %v", low, high, ok)
		}
		for i := range rows {
			if !f.MayHaveKey(rowMeta(i).Key) {
				t.Errorf("key %d is not in the filter", i)
			}
		}
		if f.MayHaveKey("key-9") {
			t.Error("a key beyond the range may be there")
		}
		for i, fd := range f.Schema().Fields {
			w := allKinds.Fields[i]
			if fd.Name != w.Name || fd.Type.Kind != w.Type.Kind || fd.Type.Precision != w.Type.Precision || fd.Type.Scale != w.Type.Scale {
				t.Errorf("column %d is %v, want %v", i, fd, w)
			}
		}
		if f.Schema().Avro(true) == "" || f.Schema().Name != "t_record" {
			t.Errorf("schema name %q", f.Schema().Name)
		}
	}
}

// The types are those of the table that was observed in files of Hudi.
func TestBaseParquetTypes(t *testing.T) {
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, baseExtremes(t), BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	if got := f.pq.Root().Name(); got != "hoodie.t.t_record" {
		t.Errorf("message %s", got)
	}
	var got []string
	for _, c := range f.pq.Root().Columns() {
		if !c.Optional() {
			t.Errorf("%s is not optional", c.Name())
		}
		got = append(got, c.Name()+" "+c.Type().Kind().String()+" "+c.Type().String())
	}
	want := []string{
		"_hoodie_commit_time BYTE_ARRAY STRING", "_hoodie_commit_seqno BYTE_ARRAY STRING", "_hoodie_record_key BYTE_ARRAY STRING",
		"_hoodie_partition_path BYTE_ARRAY STRING", "_hoodie_file_name BYTE_ARRAY STRING",
		"id INT64 INT64", "b BOOLEAN BOOLEAN", "i INT32 INT32", "l INT64 INT64", "f FLOAT FLOAT", "d DOUBLE DOUBLE", "s BYTE_ARRAY STRING",
		"x BYTE_ARRAY BYTE_ARRAY", "dt INT32 DATE", "ts INT64 TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)",
		"d9 FIXED_LEN_BYTE_ARRAY DECIMAL(9,2)", "d18 FIXED_LEN_BYTE_ARRAY DECIMAL(18,4)", "d38 FIXED_LEN_BYTE_ARRAY DECIMAL(38,10)",
		"ms INT64 TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS)", "dbytes BYTE_ARRAY DECIMAL(12,3)",
		"fix FIXED_LEN_BYTE_ARRAY FIXED_LEN_BYTE_ARRAY(4)", "en BYTE_ARRAY ENUM",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("columns are\n%s", strings.Join(got, "\n"))
	}
	for _, w := range []struct {
		name string
		n    int
	}{{"d9", 4}, {"d18", 8}, {"d38", 16}} {
		if n := f.pq.Root().Column(w.name).Type().Length(); n != w.n {
			t.Errorf("%s has %d bytes, want %d", w.name, n, w.n)
		}
	}
}

// The bounds of decimals are in the order of numbers, and long texts stay out of the footer.
func TestBaseStatistics(t *testing.T) {
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, baseExtremes(t), BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	for i, c := range f.pq.Root().Columns() {
		chunk := &f.pq.Metadata().RowGroups[0].Columns[i]
		st := chunk.MetaData.Statistics
		switch c.Name() {
		case "d9":
			if fmt.Sprintf("%x %x", st.MinValue, st.MaxValue) != "c4653601 3b9ac9ff" || st.NullCount != 1 || chunk.ColumnIndexOffset != 0 {
				t.Errorf("d9: %x to %x, %d NULLs, column index at %d", st.MinValue, st.MaxValue, st.NullCount, chunk.ColumnIndexOffset)
			}
		case "s":
			if st.MaxValue != nil {
				t.Errorf("s: bound of %d bytes", len(st.MaxValue))
			}
		case ColRecordKey:
			if string(st.MinValue) != "key-0000000" || string(st.MaxValue) != "key-0000003" || chunk.ColumnIndexOffset == 0 || chunk.OffsetIndexOffset == 0 {
				t.Errorf("key: %q to %q", st.MinValue, st.MaxValue)
			}
		}
	}
}

// randomRows has runs of NULLs, repeated and distinct values, so that pages with and without dictionaries occur.
func randomRows(n int, seed uint64) []Row {
	r := rand.New(rand.NewPCG(seed, 0))
	rows := make([]Row, n)
	for i := range rows {
		row := make(Row, len(allKinds.Fields))
		row[0] = int64(i)
		for c := 1; c < len(row); c++ {
			if r.IntN(5) == 0 || i/1000%7 == c%7 {
				continue
			}
			x := r.Int64N(50)
			if c%2 == 0 && i > n/3 {
				x = r.Int64()
			}
			switch allKinds.Fields[c].Type.Kind {
			case Bool:
				row[c] = x%2 == 0
			case Int32, Date:
				row[c] = int32(x)
			case Int64:
				row[c] = x
			case Timestamp:
				row[c] = x / 1000000 * 1000
			case Float32:
				row[c] = float32(x)
			case Float64:
				row[c] = float64(x)
			case String:
				row[c] = fmt.Sprint("s", x)
				if allKinds.Fields[c].Type.Avro != "" {
					row[c] = "A"
				}
			case Bytes:
				row[c] = fmt.Append(nil, "bytes", x)
				if allKinds.Fields[c].Type.Avro != "" {
					row[c] = []byte{byte(x), 1, 2, 3}
				}
			case Decimal:
				row[c] = decimal128.FromI64(x % 999999999)
			}
		}
		rows[i] = row
	}
	return rows
}

func TestBaseManyRows(t *testing.T) {
	const seed = 7
	rows := randomRows(30000, seed)
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, rows, BaseOptions{RowGroupRows: 11000})
	f := mustOpenBase(t, s, baseName)
	if n := len(f.pq.RowGroups()); n != 3 {
		t.Errorf("%d row groups", n)
	}
	got := scanRows(t, f, allKinds)
	if len(got) != len(rows) {
		t.Fatalf("%d rows, want %d", len(got), len(rows))
	}
	for i := range got {
		if !sameRow(got[i], rows[i]) {
			t.Fatalf("seed %d: row %d is\n%v, want\n%v", seed, i, got[i], rows[i])
		}
	}
	// Rows by number give what the scan gives, from any pages and twice.
	r := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		var at []int64
		for range r.IntN(40) {
			at = append(at, r.Int64N(int64(len(rows))))
		}
		slices.Sort(at)
		b, err := f.ReadRows(bg, allKinds, at)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range at {
			if !sameRow(b.Row(i, nil), rows[n]) {
				t.Fatalf("seed %d: row %d is\n%v, want\n%v", seed, n, b.Row(i, nil), rows[n])
			}
		}
	}
	for _, i := range []int{0, 10999, 11000, 29999} {
		if row, err := f.FindKey(bg, rowMeta(i).Key); err != nil || row != int64(i) {
			t.Errorf("key of row %d found at %d: %v", i, row, err)
		}
	}
	if row, err := f.FindKey(bg, "key-0000000x"); err != nil || row != -1 {
		t.Errorf("a key that is not there was found at %d: %v", row, err)
	}
	if _, err := f.ReadRows(bg, allKinds, []int64{30000}); err == nil {
		t.Error("a row beyond the end was read")
	}
}

// Copied rows keep their meta columns but for the file's name.
func TestAppendMerged(t *testing.T) {
	rows := randomRows(3000, 3)
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, rows, BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	all := withMeta(allKinds)
	w, err := CreateBase(bg, s, "t/p=1/f1-0_0-1-3_20261130101208999.parquet", allKinds, BaseOptions{ExpectedRows: 3000})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range f.Scan(bg, all) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			if err := w.AppendMerged(b, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if w.Rows() != 3000 || w.Bytes() == 0 {
		t.Errorf("%d rows, %d bytes", w.Rows(), w.Bytes())
	}
	size, err := w.Commit(bg)
	if err != nil {
		t.Fatal(err)
	}
	g := mustOpenBase(t, s, "t/p=1/f1-0_0-1-3_20261130101208999.parquet")
	if g.source.obj.Size() != size {
		t.Errorf("size %d, want %d", size, g.source.obj.Size())
	}
	want := scanRows(t, f, all)
	for i, r := range scanRows(t, g, all) {
		want[i][4] = "f1-0_0-1-3_20261130101208999.parquet"
		if !sameRow(r, want[i]) {
			t.Fatalf("row %d is\n%v, want\n%v", i, r, want[i])
		}
	}
	for i := range rows {
		if !g.MayHaveKey(rowMeta(i).Key) {
			t.Fatalf("key %d is not in the filter", i)
		}
	}
}

func TestBaseAbort(t *testing.T) {
	fs := vfs.NewMem()
	s := NewLocal(fs, "")
	w, err := CreateBase(bg, s, baseName, allKinds, BaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(rowMeta(0), baseExtremes(t)[0]); err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(baseExtremes(t)[0])
	bad[2] = "text"
	if err := w.Append(rowMeta(1), bad); err == nil {
		t.Error("a text was taken for an int")
	}
	// Half a row stands in the columns: nothing can be committed any more, and Commit gives the file up.
	if err := w.Append(rowMeta(2), baseExtremes(t)[0]); err == nil {
		t.Error("a row was taken after the failure")
	}
	if _, err := w.Commit(bg); err == nil {
		t.Error("Commit after the failure")
	}
	if names, _ := fs.List("t/p=1"); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if w, err = CreateBase(bg, s, baseName, allKinds, BaseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if names, _ := fs.List("t/p=1"); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if _, err := w.Commit(bg); err == nil {
		t.Error("Commit after Abort")
	}
	if _, err := CreateBase(bg, s, baseName, &Schema{Fields: []Field{{Name: "n", Type: Type{Kind: Nested}}}}, BaseOptions{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("nested column: %v", err)
	}
}

func TestBaseEmpty(t *testing.T) {
	s := NewLocal(vfs.NewMem(), "")
	writeBase(t, s, baseName, allKinds, nil, BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	if got := scanRows(t, f, allKinds); len(got) != 0 || f.Rows() != 0 {
		t.Errorf("%d rows", len(got))
	}
	if b, err := f.ReadRows(bg, allKinds, nil); err != nil || b.Rows != 0 {
		t.Errorf("%d rows: %v", b.Rows, err)
	}
}

// Missing columns are NULL, promoted ones converted, and the order is the caller's.
func TestBaseEvolution(t *testing.T) {
	s := NewLocal(vfs.NewMem(), "")
	rows := baseExtremes(t)
	writeBase(t, s, baseName, allKinds, rows, BaseOptions{})
	f := mustOpenBase(t, s, baseName)
	want := &Schema{Fields: []Field{
		{Name: "new", Type: Type{Kind: Decimal, Precision: 5, Scale: 1}},
		{Name: "i", Type: Type{Kind: Int64}},
		{Name: "f", Type: Type{Kind: Float64}},
		{Name: "d9", Type: Type{Kind: Decimal, Precision: 20, Scale: 5}},
		{Name: "dt", Type: Type{Kind: String}},
		{Name: ColRecordKey, Type: Type{Kind: String}},
	}}
	wanted := []Row{
		{nil, int64(math.MaxInt32), float64(math.MaxFloat32), baseNum(t, "9999999.99000", 5), "9999-12-31", "key-0000000"},
		{nil, int64(math.MinInt32), float64(float32(math.SmallestNonzeroFloat32)), baseNum(t, "-9999999.99000", 5), "0001-01-01", "key-0000001"},
		{nil, nil, nil, nil, nil, "key-0000002"},
		{nil, int64(0), math.Inf(1), decimal128.Num{}, "1970-01-01", "key-0000003"},
	}
	for i, r := range scanRows(t, f, want) {
		if !sameRow(r, wanted[i]) {
			t.Errorf("row %d is %v, want %v", i, r, wanted[i])
		}
	}
	b, err := f.ReadRows(bg, want, []int64{0, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{0, 2, 3} {
		if !sameRow(b.Row(i, nil), wanted[n]) {
			t.Errorf("row %d is %v, want %v", n, b.Row(i, nil), wanted[n])
		}
	}
	for _, err := range f.Scan(bg, &Schema{Fields: []Field{{Name: "l", Type: Type{Kind: Int32}}}}) {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("long read as int: %v", err)
		}
	}
}

// Files of other writers have types that Hudi does not write.
func TestForeignTypes(t *testing.T) {
	type inner struct {
		A []int32          `parquet:"a,list"`
		M map[string]int64 `parquet:"m"`
	}
	type row struct {
		U8  uint8     `parquet:"u8"`
		U32 uint32    `parquet:"u32"`
		U64 uint64    `parquet:"u64,optional"`
		I8  int8      `parquet:"i8"`
		MS  time.Time `parquet:"ms,timestamp(millisecond)"`
		NS  time.Time `parquet:"ns,timestamp(nanosecond),dict"`
		D4  int32     `parquet:"d4,decimal(2:9)"`
		D8  int64     `parquet:"d8,decimal(3:18)"`
		ID  [16]byte  `parquet:"id,uuid"`
		J   string    `parquet:"j,json"`
		DL  int64     `parquet:"dl,delta"`
		DS  string    `parquet:"ds,delta"`
		SP  float64   `parquet:"sp,split"`
		R   []int64   `parquet:"r"`
		N   *inner    `parquet:"n,optional"`
		LL  []inner   `parquet:"ll,list"`
	}
	at := time.Date(1969, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
	in := []row{
		{200, math.MaxUint32, math.MaxUint64, -5, at, at.Add(1), -123, 4567, [16]byte{1, 2}, `{"a":1}`, -9, "aa", 1.5, []int64{1, 2}, &inner{[]int32{1}, map[string]int64{"k": 1}}, []inner{{A: []int32{}}, {A: []int32{4, 5}}}},
		{0, 0, 0, 5, at, at, 0, 0, [16]byte{}, `2`, 9, "ab", -1.5, nil, nil, nil},
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := parquet.WriteFile(path, in); err != nil {
		t.Fatal(err)
	}
	f := mustOpenBase(t, NewLocal(vfs.Default, filepath.Dir(path)), "x.parquet")
	wanted := []string{
		"[200 4294967295 18446744073709551615 -5 -1000 -1000 -123 4567 01020000-0000-0000-0000-000000000000 {\"a\":1} -9 aa 1.5 [1, 2] {\"a\": [1], \"m\": {\"k\": 1}} [{\"a\": [], \"m\": {}}, {\"a\": [4, 5], \"m\": {}}]]",
		"[0 0 <nil> 5 -1000 -1000 0 0 00000000-0000-0000-0000-000000000000 2 9 ab -1.5 [] <nil> []]",
	}
	check := func(i int, r Row) {
		t.Helper()
		for c, v := range r {
			if d, ok := v.(decimal128.Num); ok {
				r[c] = string(appendPlainDecimal(nil, d, 0))
			}
		}
		if got := fmt.Sprint([]any(r)); got != wanted[i] {
			t.Errorf("row %d is\n%s, want\n%s", i, got, wanted[i])
		}
	}
	for i, r := range scanRows(t, f, f.Schema()) {
		check(i, r)
	}
	b, err := f.ReadRows(bg, f.Schema(), []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	check(1, b.Row(0, nil))
	if _, err := ParseAvro(f.Schema().Avro(true)); err != nil {
		t.Errorf("schema from parquet types: %v", err)
	}
}

func TestInt96(t *testing.T) {
	b := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x8c, 0x3d, 0x25, 0} // Julian day 2440588
	if got := int96Micros(b); got != 0 {
		t.Errorf("1970-01-01 is %d", got)
	}
	b[0], b[1], b[8] = 0xe8, 0x03, 0x8b
	if got := int96Micros(b); got != -86400e6+1 {
		t.Errorf("1 µs into 1969-12-31 is %d", got)
	}
	for h, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 0x1p-24, 0x8000: float32(math.Copysign(0, -1))} {
		if got := float16(h); math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("half %#x is %g, want %g", h, got, want)
		}
	}
}
