package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var benchSchema = func() *Schema {
	s := &Schema{Name: "b_record", Namespace: "hoodie.b"}
	for i := range 15 {
		k := []Kind{Int64, String, Float64, Int32, Timestamp}[i%5]
		s.Fields = append(s.Fields, Field{Name: fmt.Sprint("c", i), Type: Type{Kind: k}, Nullable: true})
	}
	return s
}()

func benchRows(n int) []Row {
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([]Row, n)
	for i := range rows {
		row := make(Row, len(benchSchema.Fields))
		for c := range row {
			switch benchSchema.Fields[c].Type.Kind {
			case Int64:
				row[c] = r.Int64N(1 << (8 * (1 + c/5)))
			case String:
				row[c] = fmt.Sprint("text ", r.IntN(100*(1+c*c)))
			case Float64:
				row[c] = float64(r.IntN(100000)) / 100
			case Int32:
				row[c] = int32(r.IntN(1000))
			case Timestamp:
				row[c] = int64(1_700_000_000_000_000) + r.Int64N(1e12)
			}
		}
		rows[i] = row
	}
	return rows
}

func BenchmarkBaseWrite(b *testing.B) {
	rows := benchRows(100000)
	s := NewLocal(vfs.NewMem(), "")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		writeBase(b, s, fmt.Sprintf("b/f-0_0-0-%d_1.parquet", i), benchSchema, rows, BaseOptions{})
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkBaseScan(b *testing.B) {
	rows := benchRows(100000)
	s := NewLocal(vfs.NewMem(), "")
	writeBase(b, s, "b/f-0_0-0-1_1.parquet", benchSchema, rows, BaseOptions{})
	f := mustOpenBase(b, s, "b/f-0_0-0-1_1.parquet")
	b.Logf("%d bytes a row", f.source.obj.Size()/int64(len(rows)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range f.Scan(bg, benchSchema) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkBaseReadRow(b *testing.B) {
	rows := benchRows(100000)
	s := NewLocal(vfs.NewMem(), "")
	writeBase(b, s, "b/f-0_0-0-1_1.parquet", benchSchema, rows, BaseOptions{})
	all := withMeta(benchSchema)
	for _, cached := range []bool{true, false} {
		b.Run(fmt.Sprintf("cached=%v", cached), func(b *testing.B) {
			f := mustOpenBase(b, s, "b/f-0_0-0-1_1.parquet")
			if !cached {
				f.UsePages(nil)
			}
			r := rand.New(rand.NewPCG(1, 1))
			at := make([]int64, 1)
			b.ReportAllocs()
			for b.Loop() {
				at[0] = r.Int64N(int64(len(rows)))
				if _, err := f.ReadRows(bg, all, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBaseOpen(b *testing.B) {
	s := NewLocal(vfs.NewMem(), "")
	writeBase(b, s, "b/f-0_0-0-1_1.parquet", benchSchema, benchRows(100000), BaseOptions{})
	for b.Loop() {
		mustOpenBase(b, s, "b/f-0_0-0-1_1.parquet").Close()
	}
}
