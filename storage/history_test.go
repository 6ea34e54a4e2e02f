package storage

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const historyText = `{"schemas":[
	{"max_column_id":9,"version_id":20260101000000003,"type":"record","fields":[
		{"id":5,"name":"id","optional":true,"type":"string"},{"id":7,"name":"a","optional":true,"type":"long"},{"id":8,"name":"z","optional":true,"type":"string"}]},
	{"max_column_id":6,"version_id":20260101000000002,"type":"record","fields":[
		{"id":5,"name":"id","optional":true,"type":"string"},{"id":6,"name":"z","optional":true,"type":"string"}]},
	{"max_column_id":6,"version_id":0,"type":"record","fields":[
		{"id":5,"name":"id","optional":true,"type":"string"},{"id":6,"name":"a","optional":true,"type":"string"}]}]}`

// Columns go by their ids: a renamed one is found under its old name, and one that has the name of a dropped one has nothing of it.
func TestSchemaHistory(t *testing.T) {
	ctx := context.Background()
	h, err := ParseSchemaHistory([]byte(historyText))
	require.NoError(t, err)
	require.Equal(t, int64(20260101000000003), h.Newest())
	for at, want := range map[InstantTime]int64{"20250101000000000": 0, "20260101000000002": 20260101000000002, "20260101000000009": 20260101000000003, "x": 0} {
		require.Equal(t, want, h.VersionAt(at))
	}
	first := &Schema{Name: "h", Namespace: "n", Fields: []Field{field("id", String), field("a", String)}}
	second := &Schema{Name: "h", Namespace: "n", Fields: []Field{field("id", String), field("z", String)}}
	third := &Schema{Name: "h", Namespace: "n", Fields: []Field{field("id", String), field("a", Int64), field("z", String)}}

	s := memStore(t)
	at := func(n int) InstantTime { return InstantTime("2026010100000000" + string(rune('0'+n))) }
	name := BaseFileName("g-0", "0-0-0", at(1))
	w, err := CreateBase(ctx, s, "p/"+name, first, BaseOptions{})
	require.NoError(t, err)
	for _, key := range []string{"1", "2", "3"} {
		require.NoError(t, w.Append(RowMeta{at(1), "s", key, "p"}, Row{key, "first" + key}))
	}
	_, err = w.Commit(ctx)
	require.NoError(t, err)
	base, _ := ParseFileName(name)
	fs := FileSlice{Partition: "p", ID: "g-0", Begin: at(1), Base: &base}
	for n, l := range []struct {
		at     InstantTime
		schema *Schema
		row    Row
	}{{at(2), second, Row{"1", "second1"}}, {at(4), third, Row{"2", int64(2), "third2"}}} {
		name := LogFileName("g-0", at(1), n+1, "0-0-0")
		_, err := WriteLog(ctx, s, "p/"+name, l.at, l.schema, "g-0", []LogRecord{{RowMeta{l.at, "s", l.row[0].(string), "p"}, l.row}}, nil)
		require.NoError(t, err)
		f, _ := ParseFileName(name)
		fs.Logs = append(fs.Logs, f)
	}
	r := NewReader(s, ReaderOptions{})
	for _, c := range []struct {
		table   *Schema
		version int64
		want    []Row
	}{
		{third, 20260101000000003, []Row{{"1", nil, nil}, {"2", int64(2), "third2"}, {"3", nil, nil}}},
		{second, 20260101000000002, []Row{{"1", "second1"}, {"2", nil}, {"3", "first3"}}},
		{first, 0, []Row{{"1", "second1"}, {"2", nil}, {"3", "first3"}}},
	} {
		for _, rules := range []MergeRules{{}, {Combine: KeepDefaults}} {
			sc := Scan{Schema: c.table, Table: c.table, History: h, Version: c.version, Rules: rules}
			want := slices.Clone(c.want)
			if rules.Combine == KeepDefaults && c.version != 20260101000000003 { // NULL keeps what was there
				want[1] = Row{"2", "first2"}
			}
			var got []Row
			for b, err := range r.ReadSlice(ctx, "", fs, sc) {
				require.NoError(t, err)
				for i := range b.Rows {
					got = append(got, slices.Clone(b.Row(i, nil)))
				}
			}
			slices.SortFunc(got, func(a, b Row) int { return int(a[0].(string)[0]) - int(b[0].(string)[0]) })
			require.Equal(t, want, got, "version %d", c.version)
			many, err := r.LookupMany(ctx, "", fs, sc, []string{"1", "2", "3"}, []int64{-1, 1, 2})
			require.NoError(t, err)
			for i, row := range want {
				require.Equal(t, row, many.Row(i, nil), "version %d", c.version)
			}
		}
	}
}

// What happened inside of nested columns is read by names, so fields may come, and nothing else may happen.
func TestNestedSchemaHistory(t *testing.T) {
	history := func(newer, older string) error {
		_, err := ParseSchemaHistory([]byte(`{"schemas":[{"version_id":1,"type":"record","fields":[{"id":3,"name":"n","type":` + newer +
			`}]},{"version_id":0,"type":"record","fields":[{"id":3,"name":"n","type":` + older + `}]}]}`))
		return err
	}
	record := func(fields string) string { return `{"type":"record","fields":[` + fields + `]}` }
	const x, y = `{"id":4,"name":"x","type":"int"}`, `{"id":5,"name":"y","type":"int"}`
	require.NoError(t, history(record(x+","+y), record(x)))
	require.NoError(t, history(record(`{"id":4,"name":"x","type":"long"}`), record(x)))
	require.NoError(t, history(`{"type":"array","element_id":4,"element":`+record(x+","+y)+`,"element_optional":true}`, `{"type":"array","element_id":4,"element":`+record(x)+`}`))
	for what, types := range map[string][2]string{
		"renamed":            {record(`{"id":4,"name":"z","type":"int"}`), record(x)},
		"dropped":            {record(x), record(x + "," + y)},
		"dropped, new again": {record(`{"id":6,"name":"x","type":"int"}`), record(x)},
		"inside a map": {
			`{"type":"map","key_id":4,"key":"string","value_id":5,"value":` + record(`{"id":7,"name":"z","type":"int"}`) + `}`,
			`{"type":"map","key_id":4,"key":"string","value_id":5,"value":` + record(`{"id":7,"name":"x","type":"int"}`) + `}`,
		},
	} {
		err := history(types[0], types[1])
		require.ErrorIs(t, err, ErrUnsupported, what)
		require.ErrorContains(t, err, "column n", what)
	}
	for _, text := range []string{"", "{}", `{"schemas":[{"fields":[{"id":1,"name":"a","type":"int"},{"id":2,"name":"a","type":"int"}]}]}`, `{"schemas":[{"fields":[{"id":1,"name":"","type":"int"}]}]}`} {
		_, err := ParseSchemaHistory([]byte(text))
		require.Error(t, err, text)
		require.NotErrorIs(t, err, ErrUnsupported, text)
	}
}

func FuzzSchemaHistory(f *testing.F) {
	f.Add([]byte(historyText))
	f.Add([]byte(`{"schemas":[{"version_id":1,"fields":[{"id":3,"name":"n","type":{"type":"array","element_id":4,"element":{"type":"record","fields":[]}}}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseSchemaHistory(b)
		if err != nil {
			return
		}
		sc := Scan{History: h, Version: h.Newest()}
		want := &Schema{}
		for name := range h.version(h.Newest()).ids {
			want.Fields = append(want.Fields, field(name, String))
		}
		seen := map[string]bool{}
		for _, f := range sc.fileColumns(want, "20260101000000000").Fields {
			if seen[f.Name] {
				t.Fatalf("column %q is asked for twice", f.Name)
			}
			seen[f.Name] = true
		}
		h.VersionAt("1")
	})
}
