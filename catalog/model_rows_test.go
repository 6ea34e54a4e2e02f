package catalog

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/lakesql/lakesql/storage"
)

// foldKey orders texts without regard to case.
func foldKey(_, s string) []byte { return []byte(strings.ToLower(s)) }

func modelSpecs(r *rand.Rand) []TableSpec {
	kinds := func() []storage.Field {
		return []storage.Field{
			{Name: "id", Type: storage.Type{Kind: storage.Int32}, Nullable: true},
			{Name: "code", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "part", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "ord", Type: storage.Type{Kind: storage.Int64}, Nullable: true},
			{Name: "flag", Type: storage.Type{Kind: storage.Bool}, Nullable: true},
			{Name: "n", Type: storage.Type{Kind: storage.Int64}, Nullable: true},
			{Name: "f", Type: storage.Type{Kind: storage.Float32}, Nullable: true},
			{Name: "g", Type: storage.Type{Kind: storage.Float64}, Nullable: true},
			{Name: "s", Type: storage.Type{Kind: storage.String}, Nullable: true},
			{Name: "raw", Type: storage.Type{Kind: storage.Bytes}, Nullable: true},
			{Name: "day", Type: storage.Type{Kind: storage.Date}, Nullable: true},
			{Name: "at", Type: storage.Type{Kind: storage.Timestamp}, Nullable: true},
			{Name: "amount", Type: storage.Type{Kind: storage.Decimal, Precision: 20, Scale: 3}, Nullable: true},
		}
	}
	var out []TableSpec
	for i := range 6 {
		s := TableSpec{Schema: &storage.Schema{Fields: kinds()}, MergeOnRead: i%2 == 0}
		switch r.IntN(4) {
		case 0:
			s.Key = []KeyColumn{{Column: "id"}}
		case 1:
			s.Key = []KeyColumn{{Column: "code", Collation: "ci"}}
		case 2:
			s.Key = []KeyColumn{{Column: "code", Collation: "ci"}, {Column: "id"}}
		case 3:
			if i%3 != 2 {
				s.Key = []KeyColumn{{Column: "id"}, {Column: "day"}}
			}
		}
		switch r.IntN(3) {
		case 1:
			s.Partition, s.HiveStyle = []string{"part"}, r.IntN(2) == 0
		case 2:
			s.Partition, s.HiveStyle = []string{"part", "flag"}, r.IntN(2) == 0
		}
		if len(s.Partition) > 0 && r.IntN(3) == 0 {
			s.PerPartition = true
		}
		if r.IntN(2) == 0 && len(s.Key) > 0 {
			s.Ordering, s.OrderingField = storage.EventTime, "ord"
		}
		if r.IntN(2) == 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "by_n", Columns: []KeyColumn{{Column: "n"}}})
		}
		if r.IntN(2) == 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "by_s", Columns: []KeyColumn{{Column: "s", Collation: "ci"}, {Column: "f"}}})
		}
		if r.IntN(2) == 0 && len(s.Key) > 0 {
			s.Indexes = append(s.Indexes, IndexSpec{Name: "u_at", Columns: []KeyColumn{{Column: "at"}}, Unique: true})
		}
		out = append(out, s)
	}
	return out
}

// value makes a value of a column; texts and numbers are few, so that keys meet.
func (w *world) value(f storage.Field) any {
	r := w.r
	switch f.Name {
	case "id":
		if n := r.IntN(30) - 5; f.Type.Kind == storage.Int32 {
			return int32(n)
		} else {
			return int64(n)
		}
	case "code":
		return []string{"a", "A", "b", "B", "ä", "", "long text, with: a comma", "__null__", "ccc", "CCC", "d/e", "x%2C"}[r.IntN(12)]
	case "part":
		return []any{nil, "x", "X", "y z", "p/q", "a=b", "ü"}[r.IntN(7)]
	case "ord":
		return int64(r.IntN(1000))
	case "at":
		if f.Nullable && r.IntN(3) == 0 {
			return nil
		}
		return int64(r.IntN(200)) * 1_000_003
	}
	keyed := f.Name == "day"
	if !keyed && f.Nullable && r.IntN(6) == 0 {
		return nil
	}
	switch f.Type.Kind {
	case storage.Bool:
		return r.IntN(2) == 0
	case storage.Int32:
		return []int32{0, 1, -1, math.MaxInt32, math.MinInt32}[r.IntN(5)]
	case storage.Int64:
		return int64(r.IntN(20)) * []int64{1, -1, math.MaxInt64 / 40}[r.IntN(3)]
	case storage.Float32:
		return []float32{0, 1.5, -2.25, math.MaxFloat32, 1e-30}[r.IntN(5)]
	case storage.Float64:
		return []float64{0, 1.5, -2.25, math.MaxFloat64, 1e-300, r.Float64()}[r.IntN(6)]
	case storage.String:
		return []string{"", "Alpha", "alpha", "beta", "\x00zero", "日本", strings.Repeat("x", 300)}[r.IntN(7)]
	case storage.Bytes:
		return [][]byte{{}, {0}, {1, 2, 255}}[r.IntN(3)]
	case storage.Date:
		return int32(r.IntN(5) - 2)
	case storage.Decimal:
		return decimal128.FromI64(r.Int64N(1_000_000) - 500_000)
	}
	return nil
}

func (w *world) row(m *modelTable) storage.Row {
	s := m.tab.Spec().Schema
	row := make(storage.Row, len(s.Fields))
	for i, f := range s.Fields {
		row[i] = w.value(f)
	}
	return row
}

// key is the model's key of a row; rows without a key get a new one.
func (m *modelTable) key(row storage.Row) string {
	s := m.tab.Spec()
	if len(s.Key) == 0 {
		m.keyless++
		return fmt.Sprint("#", m.keyless)
	}
	return modelKey(s, row)
}

// modelKey is key of a table with a key, under a specification.
func modelKey(s *TableSpec, row storage.Row) string {
	var b strings.Builder
	if s.PerPartition {
		for _, p := range s.Partition {
			v := row[s.Schema.Index(p)]
			if v == nil {
				v = nullPartition
			}
			fmt.Fprintf(&b, "%v|", v)
		}
	}
	for _, k := range s.Key {
		v := row[s.Schema.Index(k.Column)]
		if t, ok := v.(string); ok && k.Collation != "" {
			v = strings.ToLower(t)
		}
		fmt.Fprintf(&b, "%v|", v)
	}
	return b.String()
}

func text(row storage.Row) string {
	var b strings.Builder
	for _, v := range row {
		if d, ok := v.(decimal128.Num); ok {
			v = d.ToString(0)
		}
		fmt.Fprintf(&b, "%T %v;", v, v)
	}
	return b.String()
}

func texts(rows map[string]storage.Row) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, text(r))
	}
	sort.Strings(out)
	return out
}

// uniqueTaken finds another row with the same value of the unique index.
func uniqueTaken(m *modelTable, rows map[string]storage.Row, row storage.Row, except ...string) bool {
	return uniqueTakenOf(m.tab.Spec(), rows, row, except...)
}

// uniqueTakenOf is uniqueTaken under a specification; unique indexes have one column.
func uniqueTakenOf(spec *TableSpec, rows map[string]storage.Row, row storage.Row, except ...string) bool {
	for _, x := range spec.Indexes {
		if !x.Unique {
			continue
		}
		i := spec.Schema.Index(x.Columns[0].Column)
		if row[i] == nil {
			continue
		}
		for k, r := range rows {
			if r[i] == row[i] && !slices.Contains(except, k) {
				return true
			}
		}
	}
	return false
}

func pick(r *rand.Rand, rows map[string]storage.Row) (string, storage.Row, bool) {
	if len(rows) == 0 {
		return "", nil, false
	}
	keys := slices.Sorted(maps.Keys(rows))
	k := keys[r.IntN(len(keys))]
	return k, rows[k], true
}
