package sqlplan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/storage"
)

func mustType(t *testing.T, text string) sql.Type {
	t.Helper()
	typ, err := parseType(sql.NewEmptyContext(), text)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

func day(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }

// valueCases are MySQL types with inputs as the front end converts them, and where given what stands in the table.
var valueCases = []struct {
	typ    string
	kind   storage.Kind
	inputs []any
	stored []any // nil: not looked at
}{
	{"tinyint(1)", storage.Int32, []any{0, 1, -128, 127}, []any{int32(0), int32(1), int32(-128), int32(127)}},
	{"tinyint", storage.Int32, []any{-128, 127}, nil},
	{"tinyint unsigned", storage.Int32, []any{0, 255}, []any{int32(0), int32(255)}},
	{"smallint", storage.Int32, []any{-32768, 32767}, nil},
	{"smallint unsigned", storage.Int32, []any{0, 65535}, nil},
	{"mediumint", storage.Int32, []any{-8388608, 8388607}, nil},
	{"mediumint unsigned", storage.Int32, []any{0, 16777215}, nil},
	{"int", storage.Int32, []any{math.MinInt32, math.MaxInt32}, nil},
	{"int unsigned", storage.Int64, []any{0, int64(math.MaxUint32)}, []any{int64(0), int64(math.MaxUint32)}},
	{"bigint", storage.Int64, []any{int64(math.MinInt64), int64(math.MaxInt64)}, nil},
	{
		"bigint unsigned", storage.Decimal,
		[]any{uint64(0), uint64(math.MaxInt64), uint64(math.MaxUint64)},
		[]any{decimal128.FromU64(0), decimal128.FromU64(math.MaxInt64), decimal128.FromU64(math.MaxUint64)},
	},
	{"float", storage.Float32, []any{float32(0), float32(1.1), float32(-math.MaxFloat32), float32(math.SmallestNonzeroFloat32)}, nil},
	{"double", storage.Float64, []any{0.0, 0.1, -math.MaxFloat64, math.SmallestNonzeroFloat64}, nil},
	{"decimal(10,2)", storage.Decimal, []any{"0", "1.5", "-0.01", "99999999.99", "-99999999.99"}, []any{decimal128.FromI64(0), decimal128.FromI64(150), nil, nil, nil}},
	{"decimal(38,0)", storage.Decimal, []any{strings.Repeat("9", 38), "-" + strings.Repeat("9", 38)}, nil},
	{"decimal(38,30)", storage.Decimal, []any{"12345678." + strings.Repeat("9", 30), "-0." + strings.Repeat("0", 29) + "1"}, nil},
	{"decimal(39,2)", storage.String, []any{"1.5", "-" + strings.Repeat("9", 37) + ".99"}, []any{"1.50", nil}},
	{"decimal(65,30)", storage.String, []any{strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), "0"}, []any{nil, "0." + strings.Repeat("0", 30)}},
	{"bit(1)", storage.Int64, []any{0, 1}, nil},
	{"bit(63)", storage.Int64, []any{uint64(math.MaxInt64)}, []any{int64(math.MaxInt64)}},
	{"bit(64)", storage.Bytes, []any{uint64(1), uint64(math.MaxUint64)}, []any{[]byte{0, 0, 0, 0, 0, 0, 0, 1}, nil}},
	{"date", storage.Date, []any{"1970-01-01", "1000-01-01", "9999-12-31", "0001-01-01", "1582-10-10"}, []any{int32(0), int32(-354285), int32(2932896), int32(-719162), nil}},
	{"datetime(6)", storage.Timestamp, []any{"1970-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999", "1000-01-01 00:00:00", "1969-12-31 23:59:59.999999"}, []any{int64(1), nil, nil, int64(-1)}},
	{"datetime", storage.Timestamp, []any{"2026-11-30 12:34:56.5"}, []any{int64(1796042097000000)}},
	{"timestamp(6)", storage.Timestamp, []any{"1970-01-01 00:00:01", "2038-01-19 03:14:07.999999"}, []any{int64(1000000), nil}},
	{"time(6)", storage.Int64, []any{"00:00:00", "838:59:59", "-838:59:59", "-00:00:00.000001", "12:34:56.789012"}, []any{int64(0), int64(3020399000000), int64(-3020399000000), int64(-1), nil}},
	{"year", storage.Int32, []any{0, 1901, 2155}, []any{int32(0), int32(1901), int32(2155)}},
	{"char(10)", storage.String, []any{"", "äöü", "a  "}, []any{"", "äöü", "a  "}},
	{"varchar(100)", storage.String, []any{"", "日本語", "null"}, nil},
	{"varchar(100) character set latin1", storage.String, []any{"\xe4\xf6", "abc"}, []any{"äö", "abc"}},
	{"longtext", storage.String, []any{strings.Repeat("x", 100000)}, nil},
	{"binary(4)", storage.Bytes, []any{[]byte{1, 2}}, []any{[]byte{1, 2, 0, 0}}},
	{"varbinary(10)", storage.Bytes, []any{[]byte{}, []byte{0, 255, 128}}, []any{[]byte{}, []byte{0, 255, 128}}},
	{"longblob", storage.Bytes, []any{[]byte("\x00\xff")}, nil},
	{"enum('x-small','it''s','a\\\\b','2')", storage.String, []any{"x-small", "it's", `a\b`, "2", uint16(0)}, []any{"x-small", "it's", `a\b`, "2", ""}},
	{"enum('','a')", storage.String, []any{uint16(1), uint16(2)}, []any{"", "a"}},
	{"set('a','b','c d')", storage.String, []any{"", "a", "b,a", "c d,b,a"}, []any{"", "a", "a,b", "a,b,c d"}},
	{"set('','a')", storage.String, []any{uint64(0), uint64(1), uint64(2), uint64(3)}, []any{"", ",", "a", ",a"}},
	{"set(" + manyMembers() + ")", storage.String, []any{uint64(math.MaxUint64), uint64(1) << 63}, nil},
	{"vector(2)", storage.Bytes, []any{[]any{1.5, -2.0}}, nil},
	{"point", storage.Bytes, []any{types.Point{SRID: 4326, X: 1, Y: -2.5}}, nil},
	{"geometry", storage.Bytes, []any{
		types.Point{X: math.MaxFloat64, Y: 0},
		types.LineString{SRID: 4326, Points: []types.Point{{SRID: 4326, X: 1, Y: 2}, {SRID: 4326, X: 3, Y: 4}}},
		types.GeomColl{Geoms: []types.GeometryValue{types.MultiPoint{Points: []types.Point{{X: 1, Y: 2}}}}},
	}, nil},
}

func manyMembers() string {
	var m []string
	for i := range 64 {
		m = append(m, fmt.Sprintf("'m%d'", i))
	}
	return strings.Join(m, ",")
}

func sameValue(a, b any) bool {
	x, ok := a.(*apd.Decimal)
	if !ok {
		return reflect.DeepEqual(a, b)
	}
	y, ok := b.(*apd.Decimal)
	return ok && x.Cmp(y) == 0 && x.Exponent == y.Exponent && x.Negative == y.Negative
}

// Every value of every type comes back as the same Go value, by way of a row and of a batch.
func TestValuesRoundTrip(t *testing.T) {
	ctx := sql.NewEmptyContext()
	for _, c := range valueCases {
		t.Run(c.typ, func(t *testing.T) {
			typ := mustType(t, c.typ)
			st, err := storageType(typ)
			if err != nil {
				t.Fatal(err)
			}
			if st.Kind != c.kind {
				t.Fatalf("kind is %d, want %d", st.Kind, c.kind)
			}
			schema := &storage.Schema{Name: "t_record", Namespace: "hoodie.t", Fields: []storage.Field{{Name: "c", Type: st, Nullable: true}}}
			codec, err := newRowCodec(sql.Schema{{Name: "c", Type: typ, Nullable: true}}, schema)
			if err != nil {
				t.Fatal(err)
			}
			b := storage.NewBuilder(schema)
			var want []any
			for i, in := range c.inputs {
				v, ok, err := typ.Convert(ctx, in)
				if err != nil || ok != sql.InRange {
					t.Fatalf("converting %v: %v %v", in, ok, err)
				}
				dst := make(storage.Row, 1)
				if err := codec.encode(sql.NewRow(v), dst); err != nil {
					t.Fatalf("%v: %v", v, err)
				}
				if c.stored != nil && c.stored[i] != nil && !reflect.DeepEqual(dst[0], c.stored[i]) {
					t.Errorf("%v stands as %v, want %v", v, dst[0], c.stored[i])
				}
				back, err := codec.decodeRow(dst)
				if err != nil {
					t.Fatalf("%v: %v", dst[0], err)
				}
				if !sameValue(v, back[0]) {
					t.Errorf("%#v came back from a row as %#v", v, back[0])
				}
				if err := b.Append(dst); err != nil {
					t.Fatal(err)
				}
				want = append(want, v)
			}
			if err := b.Append(storage.Row{nil}); err != nil {
				t.Fatal(err)
			}
			want = append(want, nil)
			batch := b.Batch()
			for i, v := range want {
				back, err := codec.decode(batch, i)
				if err != nil {
					t.Fatalf("%v: %v", v, err)
				}
				if !sameValue(v, back[0]) {
					t.Errorf("%#v came back from a batch as %#v", v, back[0])
				}
			}
		})
	}
}

func TestTypeTextRoundTrip(t *testing.T) {
	texts := []string{
		"varchar(5) collate utf8mb4_general_ci", "char(3) character set ascii", "linestring", "polygon srid 0", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "tinytext", "text character set latin1 collate latin1_german1_ci",
		"mediumtext", "tinyblob", "blob", "mediumblob", "json", "point srid 4326", "enum('a''b','c\\\\d','e\\nf','g\"h') collate utf8mb4_unicode_ci",
		"set('a','b') character set latin1", "datetime", "datetime(3)", "timestamp", "timestamp(1)", "float(10)", "double", "bit(7)", "vector(3)",
	}
	for _, c := range valueCases {
		texts = append(texts, c.typ)
	}
	for _, text := range texts {
		typ := mustType(t, text)
		again := mustType(t, typeText(typ))
		if !typ.Equals(again) || typeText(typ) != typeText(again) {
			t.Errorf("%s: written as %s, read as %s", text, typeText(typ), typeText(again))
		}
	}
}

// The zero date is no date of any calendar; the front end's value for it has a place of its own and comes back.
func TestZeroDates(t *testing.T) {
	ctx := sql.NewEmptyContext()
	for _, text := range []string{"date", "datetime(6)", "timestamp"} {
		typ := mustType(t, text)
		st, _ := storageType(typ)
		codec, err := newColumnCodec(&sql.Column{Name: "c", Type: typ}, storage.Field{Type: st})
		if err != nil {
			t.Fatal(err)
		}
		zero, _, err := typ.Convert(ctx, "0000-00-00")
		if err != nil {
			t.Fatal(err)
		}
		v, err := codec.toStorage(zero)
		if err != nil {
			t.Fatal(err)
		}
		back, err := codec.fromValue(v)
		if err != nil || !sameValue(zero, back) {
			t.Errorf("%s: %v came back as %v (%v)", text, zero, back, err)
		}
		shown, err := typ.SQL(ctx, nil, back)
		if err != nil || !strings.HasPrefix(shown.ToString(), "0000-00-00") {
			t.Errorf("%s: shown as %s (%v)", text, shown.ToString(), err)
		}
	}
}

func TestJSONValues(t *testing.T) {
	ctx := sql.NewEmptyContext()
	codec, err := newColumnCodec(&sql.Column{Name: "j", Type: types.JSON}, storage.Field{Type: storage.Type{Kind: storage.String}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   any
		text string
	}{
		{types.MustJSON(`{"bb":1,"a":[1.5,null,true,"x\"\\\n/é"]}`), `{"a": [1.5, null, true, "x\"\\\n/é"], "bb": 1}`},
		{types.JSONDocument{Val: int64(9007199254740993)}, `9007199254740993`},
		{types.JSONDocument{Val: uint64(math.MaxUint64)}, `18446744073709551615`},
		{types.JSONDocument{Val: map[string]any{"n": int64(-9007199254740993)}}, `{"n": -9007199254740993}`},
		{types.JSONDocument{Val: nil}, `null`},
		{types.NewLazyJSONDocument([]byte(`{"b":1, "a":9007199254740993}`)), `{"a": 9007199254740993, "b": 1}`},
		{"[1, 2]", `[1, 2]`},
	} {
		v, err := codec.toStorage(c.in)
		if err != nil {
			t.Fatalf("%v: %v", c.in, err)
		}
		if v != c.text {
			t.Errorf("%v stands as %v, want %s", c.in, v, c.text)
		}
		back, err := codec.fromValue(v)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := types.JSON.SQL(ctx, nil, back)
		if err != nil || shown.ToString() != c.text {
			t.Errorf("%s is shown as %s (%v)", c.text, shown.ToString(), err)
		}
		in, _, err := types.JSON.Convert(ctx, c.in)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := types.JSON.Compare(ctx, in, back); err != nil || n != 0 {
			t.Errorf("%v compares %d with what came back (%v)", c.in, n, err)
		}
		again, err := codec.toStorage(back)
		if err != nil || again != c.text {
			t.Errorf("%s written again is %v (%v)", c.text, again, err)
		}
		clone := back.(sql.JSONWrapper).Clone(ctx)
		if text, err := types.JsonToMySqlString(ctx, clone); err != nil || text != c.text {
			t.Errorf("%s parsed is %s (%v)", c.text, text, err)
		}
	}
	if _, err := jsonValue(`{"a"`).ToInterface(ctx); !sql.ErrInvalidJson.Is(err) {
		t.Errorf("broken text gives %v", err)
	}
	if _, err := jsonValue(`1 2`).ToInterface(ctx); !sql.ErrInvalidJson.Is(err) {
		t.Errorf("two values give %v", err)
	}
}

// What another writer left must not be read as something else.
func TestForeignValuesAreErrors(t *testing.T) {
	for _, c := range []struct {
		typ  string
		kind storage.Type
		v    any
	}{
		{"tinyint", storage.Type{Kind: storage.Int32}, int32(128)},
		{"smallint unsigned", storage.Type{Kind: storage.Int32}, int32(-1)},
		{"int", storage.Type{Kind: storage.Int64}, int64(math.MaxInt32 + 1)},
		{"int unsigned", storage.Type{Kind: storage.Int64}, int64(-1)},
		{"bigint unsigned", storage.Type{Kind: storage.Decimal, Precision: 20}, decimal128.FromI64(-1)},
		{"year", storage.Type{Kind: storage.Int32}, int32(1900)},
		{"time", storage.Type{Kind: storage.Int64}, int64(3020399000001)},
		{"bit(3)", storage.Type{Kind: storage.Int64}, int64(8)},
		{"bit(64)", storage.Type{Kind: storage.Bytes}, []byte{1}},
		{"enum('a','b')", storage.Type{Kind: storage.String}, "A"},
		{"set('a','b')", storage.Type{Kind: storage.String}, "a,c"},
		{"decimal(50,2)", storage.Type{Kind: storage.String}, "abc"},
		{"decimal(4,1)", storage.Type{Kind: storage.Decimal, Precision: 10, Scale: 1}, decimal128.FromI64(10000)},
		{"point", storage.Type{Kind: storage.Bytes}, []byte{1, 2, 3}},
	} {
		codec, err := newColumnCodec(&sql.Column{Name: "c", Type: mustType(t, c.typ)}, storage.Field{Type: c.kind})
		if err != nil {
			t.Errorf("%s: %v", c.typ, err)
			continue
		}
		if v, err := codec.fromValue(c.v); err == nil {
			t.Errorf("%v was read as %s %v", c.v, c.typ, v)
		}
	}
	if _, err := newColumnCodec(&sql.Column{Name: "c", Type: types.Int32}, storage.Field{Type: storage.Type{Kind: storage.String}}); err == nil {
		t.Error("an INT column over strings was accepted")
	}
}

// Values of another Go type than the column's are taken when they are equal, and refused otherwise.
func TestConvertsExactly(t *testing.T) {
	enc := func(typ string, v any) (any, error) {
		st, err := storageType(mustType(t, typ))
		if err != nil {
			t.Fatal(err)
		}
		codec, err := newColumnCodec(&sql.Column{Name: "c", Type: mustType(t, typ)}, storage.Field{Type: st})
		if err != nil {
			t.Fatal(err)
		}
		return codec.toStorage(v)
	}
	for _, c := range []struct {
		typ  string
		in   any
		want any
	}{
		{"int", int64(5), int32(5)},
		{"bigint", int8(-5), int64(-5)},
		{"bigint unsigned", int64(7), decimal128.FromU64(7)},
		{"decimal(10,2)", apd.New(15, -1), decimal128.FromI64(150)},
		{"decimal(10,2)", int64(3), decimal128.FromI64(300)},
		{"decimal(40,1)", int64(3), "3.0"},
		{"varchar(3)", []byte("abc"), "abc"},
		{"varbinary(3)", "abc", []byte("abc")},
		{"date", "2026-11-30", int32(20787)},
		{"date", day(2026, 11, 30), int32(20787)},
		{"enum('a','b')", "b", "b"},
		{"time", "00:00:01", int64(1000000)},
		{"varchar(3)", nil, nil},
	} {
		got, err := enc(c.typ, c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s of %#v: %#v (%v), want %#v", c.typ, c.in, got, err, c.want)
		}
	}
	for _, c := range []struct {
		typ string
		in  any
	}{
		{"tinyint", int64(128)},
		{"int unsigned", int64(-1)},
		{"bigint unsigned", int64(-1)},
		{"decimal(3,1)", "1000"},
		{"enum('a')", "x"},
		{"enum('','a')", uint16(0)},
		{"date", "no date"},
	} {
		if got, err := enc(c.typ, c.in); err == nil {
			t.Errorf("%s took %#v as %#v", c.typ, c.in, got)
		}
	}
}

func TestAttachedTypes(t *testing.T) {
	for _, c := range []struct {
		kind storage.Type
		want string
	}{
		{storage.Type{Kind: storage.Bool}, "tinyint(1)"},
		{storage.Type{Kind: storage.Int32}, "int"},
		{storage.Type{Kind: storage.Int64}, "bigint"},
		{storage.Type{Kind: storage.Float32}, "float"},
		{storage.Type{Kind: storage.Float64}, "double"},
		{storage.Type{Kind: storage.String}, "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"},
		{storage.Type{Kind: storage.Bytes}, "longblob"},
		{storage.Type{Kind: storage.Date}, "date"},
		{storage.Type{Kind: storage.Timestamp}, "datetime(6)"},
		{storage.Type{Kind: storage.Decimal, Precision: 38, Scale: 10}, "decimal(38,10)"},
		{storage.Type{Kind: storage.Decimal, Precision: 38, Scale: 38}, "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"},
		{storage.Type{Kind: storage.Nested}, "json"},
	} {
		f := storage.Field{Name: "c", Type: c.kind}
		typ := sqlType(f)
		if typeText(typ) != c.want {
			t.Errorf("%s is seen as %s, want %s", kindName(c.kind), typeText(typ), c.want)
		}
		if _, err := newColumnCodec(&sql.Column{Name: "c", Type: typ}, f); err != nil {
			t.Error(err)
		}
	}
	if typ := sqlKeyType(storage.Field{Type: storage.Type{Kind: storage.String}}); typeText(typ) != "varchar(16383) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin" {
		t.Errorf("a string key is seen as %s", typeText(typ))
	}
	bools, err := newColumnCodec(&sql.Column{Name: "b", Type: types.Boolean}, storage.Field{Type: storage.Type{Kind: storage.Bool}})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := bools.toStorage(int8(1)); v != true || err != nil {
		t.Errorf("1 stands as %v (%v)", v, err)
	}
	if v, err := bools.fromValue(false); v != int8(0) || err != nil {
		t.Errorf("false is read as %v (%v)", v, err)
	}
	if _, err := bools.toStorage(int8(2)); err == nil {
		t.Error("a boolean took 2")
	}
	fine, err := newColumnCodec(&sql.Column{Name: "d", Type: attachedText}, storage.Field{Type: storage.Type{Kind: storage.Decimal, Precision: 38, Scale: 38}})
	if err != nil {
		t.Fatal(err)
	}
	const digits = "0.12345678901234567890123456789012345678"
	if v, err := fine.toStorage(digits); err != nil {
		t.Error(err)
	} else if s, err := fine.fromValue(v); s != digits || err != nil {
		t.Errorf("%s came back as %v (%v)", digits, s, err)
	}
}

func TestRowCodecMatchesByName(t *testing.T) {
	sch := sql.Schema{
		{Name: "a", Type: types.Int32},
		{Name: "v", Type: types.Int32, Virtual: true},
		{Name: "B", Type: types.LongText},
		{Name: storage.ColRecordKey, Type: types.LongText, Hidden: true},
	}
	table := &storage.Schema{Fields: []storage.Field{
		{Name: "b", Type: storage.Type{Kind: storage.String}},
		{Name: "other", Type: storage.Type{Kind: storage.String}},
		{Name: "a", Type: storage.Type{Kind: storage.Int32}},
	}}
	c, err := newRowCodec(sch, table)
	if err != nil {
		t.Fatal(err)
	}
	dst := storage.Row{nil, "kept", nil}
	if err := c.encode(sql.Row{int32(1), int32(9), "x", "key"}, dst); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(dst, storage.Row{"x", "kept", int32(1)}) {
		t.Errorf("encoded %v", dst)
	}
	row, err := c.decodeRow(dst)
	if err != nil || !reflect.DeepEqual(row, sql.Row{int32(1), nil, "x", nil}) {
		t.Errorf("decoded %v (%v)", row, err)
	}
	part, err := c.over(sql.Schema{sch[2]}, &storage.Schema{Fields: table.Fields[:1]})
	if err != nil || part.cols[0].codec != c.cols[1].codec {
		t.Errorf("a part of the columns has codecs of its own (%v)", err)
	}
	if row, err := part.decodeRow(storage.Row{"x"}); err != nil || !reflect.DeepEqual(row, sql.Row{"x"}) {
		t.Errorf("decoded %v (%v)", row, err)
	}
	if _, err := newRowCodec(sql.Schema{{Name: "missing", Type: types.Int32}}, table); err == nil {
		t.Error("a column without a field was accepted")
	}
}

func BenchmarkDecode(b *testing.B) {
	sch := sql.Schema{
		{Name: "id", Type: types.Int64},
		{Name: "q", Type: types.MustCreateColumnDecimalType(15, 2)},
		{Name: "s", Type: types.LongText},
		{Name: "d", Type: types.Date},
		{Name: "f", Type: types.Float64},
	}
	st := &storage.Schema{}
	for _, c := range sch {
		k, err := storageType(c.Type)
		if err != nil {
			b.Fatal(err)
		}
		st.Fields = append(st.Fields, storage.Field{Name: c.Name, Type: k, Nullable: true})
	}
	codec, err := newRowCodec(sch, st)
	if err != nil {
		b.Fatal(err)
	}
	build := storage.NewBuilder(st)
	row := sql.Row{int64(1), apd.New(12345, -2), "some text", day(1995, 1, 1), 1.5}
	dst := make(storage.Row, len(sch))
	for range 1000 {
		if err := codec.encode(row, dst); err != nil {
			b.Fatal(err)
		}
		if err := build.Append(dst); err != nil {
			b.Fatal(err)
		}
	}
	batch := build.Batch()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := codec.decode(batch, i%1000); err != nil {
			b.Fatal(err)
		}
	}
}

// Random values of every kind come back, and what a key shows keeps their order where keyCollation says so.
func TestRandomValuesRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ctx := sql.NewEmptyContext()
	for range 300 {
		p := 1 + r.IntN(65)
		s := r.IntN(min(p, types.DecimalTypeMaxScale) + 1)
		typ := types.MustCreateColumnDecimalType(uint8(p), uint8(s))
		st, err := storageType(typ)
		if err != nil {
			t.Fatal(err)
		}
		codec, err := newColumnCodec(&sql.Column{Name: "c", Type: typ}, storage.Field{Type: st})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			var digits strings.Builder
			for range 1 + r.IntN(p) {
				digits.WriteByte(byte('0' + r.IntN(10)))
			}
			d, _, err := apd.NewFromString(digits.String())
			if err != nil {
				t.Fatal(err)
			}
			d.Exponent = int32(-s)
			d.Negative = r.IntN(2) == 0 && !d.IsZero()
			v, in, err := typ.Convert(ctx, d)
			if err != nil || in != sql.InRange {
				t.Fatalf("%s as %s: %v %v", d.Text('f'), typ, in, err)
			}
			kept, err := codec.toStorage(v)
			if err != nil {
				t.Fatalf("%s as %s: %v", d.Text('f'), typ, err)
			}
			back, err := codec.fromValue(kept)
			if err != nil || !sameValue(v, back) {
				t.Fatalf("%s as %s came back as %v (%v)", d.Text('f'), typ, back, err)
			}
		}
	}
	for range 5000 {
		at := time.UnixMicro(r.Int64N(2*253402300799999999) - 253402300799999999/2).UTC()
		for _, typ := range []sql.Type{types.DatetimeMaxPrecision, types.Date} {
			st, _ := storageType(typ)
			codec, err := newColumnCodec(&sql.Column{Name: "c", Type: typ}, storage.Field{Type: st})
			if err != nil {
				t.Fatal(err)
			}
			v := at
			if types.IsDateType(typ) {
				v = at.Truncate(24 * time.Hour)
			}
			kept, err := codec.toStorage(v)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := codec.fromValue(kept); err != nil || back != any(v) {
				t.Fatalf("%v came back as %v (%v)", v, back, err)
			}
		}
	}
}

func TestKeyCollation(t *testing.T) {
	for _, c := range []struct {
		typ         string
		collation   string
		ordered, ok bool
	}{
		{"int", "", true, true},
		{"bigint unsigned", "", true, true},
		{"bit(64)", "", true, true},
		{"varchar(5) collate utf8mb4_0900_ai_ci", "utf8mb4_0900_ai_ci", true, true},
		{"varbinary(5)", "", true, true},
		{"enum('b','a')", "", false, true},
		{"set('b','a')", "", false, true},
		{"decimal(38,2)", "", true, true},
		{"decimal(39,2)", "", false, true},
		{"json", "", false, false},
		{"point", "", false, false},
		{"vector(2)", "", false, false},
	} {
		collation, ordered, ok := keyCollation(mustType(t, c.typ))
		if collation != c.collation || ordered != c.ordered || ok != c.ok {
			t.Errorf("%s: %q %v %v", c.typ, collation, ordered, ok)
		}
	}
}
