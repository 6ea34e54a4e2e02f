package storage

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

func TestBuilder(t *testing.T) {
	rows := append(baseExtremes(t), randomRows(100, 5)...)
	b := NewBuilder(allKinds)
	for round := range 2 {
		for i, r := range rows {
			if err := b.Append(r); err != nil {
				t.Fatal(err)
			}
			if b.Len() != i+1 {
				t.Fatalf("%d rows", b.Len())
			}
			// A row that does not fit leaves the builder as it was.
			bad := slices.Clone(r)
			bad[len(bad)-2] = 5
			if b.Append(bad) == nil || b.Append(r[1:]) == nil || b.Len() != i+1 {
				t.Fatal("a bad row was added")
			}
		}
		batch := b.Batch()
		if batch.Rows != len(rows) || b.Len() != 0 {
			t.Fatalf("round %d: %d rows, %d left", round, batch.Rows, b.Len())
		}
		for i, r := range rows {
			if got := batch.Row(i, nil); !sameRow(got, r) {
				t.Errorf("row %d is\n%v, want\n%v", i, got, r)
			}
		}
		if batch.Columns[1].NullN() == 0 || batch.Columns[0].NullN() != 0 {
			t.Errorf("NULLs: %d, %d", batch.Columns[1].NullN(), batch.Columns[0].NullN())
		}
		at := []int32{3, 3, 0, 100, 2}
		taken := batch.Take(at)
		for i := range at {
			if got := taken.Row(i, nil); !sameRow(got, rows[at[i]]) {
				t.Errorf("taken row %d is\n%v, want\n%v", at[i], got, rows[at[i]])
			}
		}
		if none := batch.Take(nil); none.Rows != 0 || none.Columns[0].Len() != 0 {
			t.Error("rows out of nothing")
		}
		again := NewBuilder(allKinds)
		for i := range rows {
			if err := again.AppendFrom(batch, i); err != nil {
				t.Fatal(err)
			}
		}
		copied := again.Batch()
		for i, r := range rows {
			if got := copied.Row(i, make(Row, 0, 50)); !sameRow(got, r) {
				t.Errorf("copied row %d is\n%v, want\n%v", i, got, r)
			}
		}
		if err := NewBuilder(&Schema{Fields: []Field{{Name: "x", Type: Type{Kind: Int32}}}}).AppendFrom(batch, 0); err == nil {
			t.Error("a batch of other columns was taken")
		}
	}
}

// The builder copies bytes, and batches have Arrow's types.
func TestBuilderOwnsBytes(t *testing.T) {
	s := &Schema{Fields: []Field{{Name: "x", Type: Type{Kind: Bytes}}, {Name: "n", Type: Type{Kind: Nested}}, {Name: "t", Type: Type{Kind: Timestamp}}}}
	b := NewBuilder(s)
	x := []byte("abc")
	if err := b.Append(Row{x, "[1]", int64(5)}); err != nil {
		t.Fatal(err)
	}
	x[0] = 'z'
	batch := b.Batch()
	if got := batch.Value(0, 0).([]byte); !bytes.Equal(got, []byte("abc")) {
		t.Errorf("%q", got)
	}
	if _, ok := batch.Columns[1].(*array.String); !ok {
		t.Errorf("%T", batch.Columns[1])
	}
	if got := batch.Columns[2].DataType().String(); got != "timestamp[us, tz=UTC]" {
		t.Error(got)
	}
}

func TestKeyText(t *testing.T) {
	k := func(k Kind) Type { return Type{Kind: k} }
	d := func(s int) Type { return Type{Kind: Decimal, Precision: 38, Scale: s} }
	for i, c := range []struct {
		t    Type
		v    any
		want string
	}{
		{k(Bool), true, "true"},
		{k(Int32), int32(-5), "-5"},
		{k(Int64), int64(math.MinInt64), "-9223372036854775808"},
		{k(Float64), 1.0, "1.0"},
		{k(Float64), 1e10, "1.0E10"},
		{k(Float64), 1234567.0, "1234567.0"},
		{k(Float64), 12345678.5, "1.23456785E7"},
		{k(Float64), 0.001, "0.001"},
		{k(Float64), 0.00012, "1.2E-4"},
		{k(Float64), math.NaN(), "NaN"},
		{k(Float64), math.Inf(-1), "-Infinity"},
		{k(Float64), math.Copysign(0, -1), "-0.0"},
		{k(Float32), float32(1.1), "1.1"},
		{k(Float32), float32(3.4028235e38), "3.4028235E38"},
		{k(Date), int32(0), "1970-01-01"},
		{k(Date), int32(-719162), "0001-01-01"},
		{k(Date), int32(-719163 - 365), "0000-01-01"},
		{k(Date), int32(2932897), "+10000-01-01"},
		{k(Date), int32(19782), "2024-02-29"},
		{k(Timestamp), int64(1500000), "1500000"},
		{Type{Kind: Timestamp, Avro: `{"type":"long","logicalType":"timestamp-millis"}`}, int64(-1), "-1"},
		{k(String), "a:b", "a:b"},
		{k(Bytes), []byte{1, 0xab}, "01ab"},
		{k(String), nil, "null"},
		{d(2), decimal128.FromI64(1234), "12.34"},
		{d(2), decimal128.FromI64(-5), "-0.05"},
		{d(0), decimal128.FromI64(7), "7"},
		{d(10), decimal128.FromI64(0), "0E-10"},
		{d(6), decimal128.FromI64(0), "0.000000"},
		{d(10), decimal128.FromI64(12345), "0.0000012345"},
		{d(10), decimal128.FromI64(123), "1.23E-8"},
		{d(10), baseNum(t, "-9999999999999999999999999999.9999999999", 10), "-9999999999999999999999999999.9999999999"},
		{d(0), decimal128.New(math.MinInt64, 0), "-170141183460469231731687303715884105728"},
		{d(0), decimal128.New(1, 0), "18446744073709551616"},
		{d(0), decimal128.New(0, math.MaxUint64), "18446744073709551615"},
	} {
		if got := KeyText(c.t, c.v); got != c.want {
			t.Errorf("%d: %v is %q, want %q", i, c.v, got, c.want)
		}
	}
}

func TestDecimalDigits(t *testing.T) {
	for i := range 127 {
		x := decimal128.New(0, 1)
		for range i {
			x = x.Add(x)
		}
		for _, v := range []decimal128.Num{x, x.Negate(), x.Sub(decimal128.FromI64(1))} {
			if got, want := string(appendPlainDecimal(nil, v, 0)), v.BigInt().String(); got != want {
				t.Errorf("2^%d: %s, want %s", i, got, want)
			}
		}
	}
}

// Java orders strings by UTF-16 units.
func TestCompareJava(t *testing.T) {
	ascending := []string{"", "A", "AB", "B", "a", "é", "☃", "\U0001f600", "\U0001f601", "\ue000", "\uffee"}
	for i, a := range ascending {
		for j, b := range ascending {
			got := compareJava("x"+a, "x"+b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q with %q is %d", a, b, got)
			}
		}
	}
}

func BenchmarkBuilder(b *testing.B) {
	rows := benchRows(BatchRows)
	bl := NewBuilder(benchSchema)
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range rows {
			if err := bl.Append(r); err != nil {
				b.Fatal(err)
			}
		}
		bl.Batch()
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func ExampleBaseFileName() {
	fmt.Println(BaseFileName("2f198199-a186-4e85-a5e5-8889919d2e4e-0", "0-4-5", "20261130101052709"))
	// Output: 2f198199-a186-4e85-a5e5-8889919d2e4e-0_0-4-5_20261130101052709.parquet
}
