package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// combineTable is a table with two ordering fields and columns to combine.
var combineTable = &Schema{Name: "c_record", Namespace: "hoodie.c", Fields: []Field{
	field("id", String), field("a", String), field("b", Int64), field("ts", Int64), field("seq", Int32), field("Op", String),
}}

// combineLog adds a log of one block whose records have the named columns, NULL for a value "-".
func combineLog(t *testing.T, s Store, fs *FileSlice, n int, header map[uint32]string, columns string, rows ...Row) {
	t.Helper()
	schema, err := combineTable.Select(strings.Fields(columns)...)
	require.NoError(t, err)
	schema.Name, schema.Namespace = combineTable.Name, combineTable.Namespace
	text := schema.Avro(true)
	enc, err := newRecordEncoder(text, schema)
	require.NoError(t, err)
	w := &blockWriter{}
	w.u32(dataVersion)
	w.u32(uint32(len(rows)))
	for _, row := range rows {
		meta := RowMeta{instant(n), string(instant(n)) + "_0_0", row[0].(string), "p"}
		rec, err := enc.record(nil, &LogRecord{meta, row}, string(fs.ID))
		require.NoError(t, err)
		w.u32(uint32(len(rec)))
		w.b = append(w.b, rec...)
	}
	all := map[uint32]string{headerInstant: string(instant(n)), headerSchema: text}
	for k, v := range header {
		all[k] = v
	}
	rawLog(t, s, fs, rawBlock(BlockAvro, all, w.b))
}

func combineDelete(t *testing.T, s Store, fs *FileSlice, n int, d LogDelete) {
	t.Helper()
	file, _, err := encodeLog(instant(n), combineTable, fs.ID, nil, []LogDelete{d})
	require.NoError(t, err)
	rawLog(t, s, fs, file)
}

func combineBase(t *testing.T, s Store, rows ...Row) *FileSlice {
	t.Helper()
	fs := &FileSlice{Partition: "p", ID: "g-0", Begin: instant(0)}
	if len(rows) == 0 {
		return fs
	}
	ctx := context.Background()
	name := BaseFileName(fs.ID, "0-0-0", fs.Begin)
	w, err := CreateBase(ctx, s, "p/"+name, combineTable, BaseOptions{})
	require.NoError(t, err)
	for _, row := range rows {
		require.NoError(t, w.Append(RowMeta{fs.Begin, string(fs.Begin) + "_0_0", row[0].(string), "p"}, row))
	}
	_, err = w.Commit(ctx)
	require.NoError(t, err)
	f, _ := ParseFileName(name)
	fs.Base = &f
	return fs
}

// combined gives the rows of a slice as text, after a comparison of scans, look-ups and places.
func combined(t *testing.T, r *Reader, fs *FileSlice, sc Scan) []string {
	t.Helper()
	ctx := context.Background()
	sc.Table = combineTable
	var err error
	sc.Schema, err = combineTable.Select("id", "a", "b", "ts", ColCommitTime)
	require.NoError(t, err)
	show := func(row Row) string {
		at, _ := row[4].(string)
		return fmt.Sprintf("%v %v %v %v @%s", row[0], row[1], row[2], row[3], strings.TrimLeft(strings.TrimPrefix(at, "2026010100000"), "0"))
	}
	out := []string{}
	for b, err := range r.ReadSlice(ctx, "", *fs, sc) {
		require.NoError(t, err)
		for i := range b.Rows {
			row := b.Row(i, nil)
			out = append(out, show(row))
			one, err := r.Lookup(ctx, "", *fs, sc, row[0].(string), -1)
			require.NoError(t, err)
			require.Equal(t, 1, one.Rows)
			require.Equal(t, show(row), show(one.Row(0, nil)))
		}
	}
	slices.Sort(out)
	var keys []string
	for k, err := range r.Keys(ctx, "", *fs, sc) {
		require.NoError(t, err)
		for i := range k.Keys.Len() {
			keys = append(keys, k.Keys.Value(i))
		}
	}
	require.Len(t, keys, len(out))
	many, err := r.LookupMany(ctx, "", *fs, sc, []string{"nobody", "1", "2", "3"}, nil)
	require.NoError(t, err)
	var again []string
	for i := range many.Rows {
		again = append(again, show(many.Row(i, nil)))
	}
	slices.Sort(again)
	require.ElementsMatch(t, slices.DeleteFunc(slices.Clone(out), func(s string) bool { return s[0] > '3' }), again)
	sc.Drop = func(key string) bool { return key == "1" }
	left := 0
	for b, err := range r.ReadSlice(ctx, "", *fs, sc) {
		require.NoError(t, err)
		left += b.Rows
	}
	require.Equal(t, len(slices.DeleteFunc(slices.Clone(out), func(s string) bool { return s[0] == '1' })), left)
	return out
}

var partial = map[uint32]string{headerPartial: "true"}

// Log blocks of partial updates hold the changed columns; the others come from the version before, be it in the base file or in a log.
func TestPartialUpdates(t *testing.T) {
	base := []Row{{"1", "one", int64(1), int64(100), int32(0), nil}, {"2", "two", int64(2), int64(100), int32(0), nil}, {"4", "four", int64(4), int64(100), int32(0), nil}}
	s := memStore(t)
	fs := combineBase(t, s, base...)
	combineLog(t, s, fs, 1, partial, "id b ts", Row{"1", int64(11), int64(200)}, Row{"2", int64(22), int64(50)}, Row{"3", int64(33), int64(1)})
	combineLog(t, s, fs, 2, partial, "id a ts", Row{"1", "uno", int64(150)}, Row{"3", "three", int64(1)})
	r := NewReader(s, ReaderOptions{})
	// By event time, the later values of 1 are late against its b, and all of 2 is late against the base row.
	require.Equal(t, []string{"1 uno 11 200 @1", "2 two 2 100 @", "3 three 33 1 @2", "4 four 4 100 @"}, combined(t, r, fs, Scan{Ordering: EventTime, OrderingField: "ts"}))
	require.Equal(t, []string{"1 uno 11 150 @2", "2 two 22 50 @1", "3 three 33 1 @2", "4 four 4 100 @"}, combined(t, r, fs, Scan{}))
	// NULL is a value of a partial update.
	combineLog(t, s, fs, 3, partial, "id a ts", Row{"1", nil, int64(300)})
	require.Equal(t, "1 <nil> 11 300 @3", combined(t, r, fs, Scan{Ordering: EventTime, OrderingField: "ts"})[0])
	// A whole row ends what was before; deletes always win, and what follows them begins anew.
	combineLog(t, s, fs, 4, nil, "id a b ts seq Op", Row{"1", "whole", nil, int64(400), nil, nil})
	combineDelete(t, s, fs, 5, LogDelete{Key: "2", Partition: "p", Ordering: int64(1), OrderingType: Type{Kind: Int64}})
	combineDelete(t, s, fs, 5, LogDelete{Key: "4", Partition: "p", Ordering: int64(1), OrderingType: Type{Kind: Int64}})
	combineLog(t, s, fs, 6, partial, "id b ts", Row{"4", int64(44), int64(5)})
	require.Equal(t, []string{"1 whole <nil> 400 @4", "3 three 33 1 @2"}, combined(t, r, fs, Scan{Ordering: EventTime, OrderingField: "ts"})[:2])
	require.Equal(t, []string{"1 whole <nil> 400 @4", "3 three 33 1 @2", "4 <nil> 44 5 @6"}, combined(t, r, fs, Scan{}))
}

// Tables that keep a stored value where an update has the default, or the value that says "as before".
func TestKeptColumns(t *testing.T) {
	base := []Row{{"1", "one", int64(1), int64(100), int32(0), nil}, {"2", "two", nil, int64(100), int32(0), nil}}
	s := memStore(t)
	fs := combineBase(t, s, base...)
	all := "id a b ts seq Op"
	combineLog(t, s, fs, 1, nil, all, Row{"1", nil, int64(11), int64(200), nil, nil}, Row{"2", "late", int64(22), int64(50), nil, nil}, Row{"3", nil, int64(3), int64(9), nil, nil})
	combineLog(t, s, fs, 2, nil, all, Row{"1", "old", nil, int64(150), nil, nil}, Row{"3", "tre", nil, int64(8), nil, nil})
	r := NewReader(s, ReaderOptions{})
	keep := MergeRules{Combine: KeepDefaults}
	require.Equal(t, []string{"1 old 11 150 @2", "2 late 22 50 @1", "3 tre 3 8 @2"}, combined(t, r, fs, Scan{Rules: keep}))
	// By event time the version with the larger value wins, and what it lacks comes from the other.
	require.Equal(t, []string{"1 old 11 200 @1", "2 two 22 100 @", "3 tre 3 9 @1"}, combined(t, r, fs, Scan{Rules: keep, Ordering: EventTime, OrderingField: "ts"}))
	require.Equal(t, []string{"1 old <nil> 150 @2", "2 late 22 50 @1", "3 tre <nil> 8 @2"}, combined(t, r, fs, Scan{}))

	// Rows go by the order of the logs, deletes by time.
	combineDelete(t, s, fs, 3, LogDelete{Key: "1", Partition: "p", Ordering: int64(140), OrderingType: Type{Kind: Int64}})
	combineDelete(t, s, fs, 3, LogDelete{Key: "3", Partition: "p", Ordering: int64(8), OrderingType: Type{Kind: Int64}})
	byTime := MergeRules{Combine: KeepDefaults, DeletesByTime: true, OrderingFields: []string{"ts"}}
	require.Equal(t, []string{"1 old 11 150 @2", "2 late 22 50 @1"}, combined(t, r, fs, Scan{Rules: byTime}))

	s = memStore(t)
	fs = combineBase(t, s, base...)
	combineLog(t, s, fs, 1, nil, all, Row{"1", "<same>", nil, int64(200), nil, nil}, Row{"3", "<same>", nil, int64(200), nil, nil})
	r = NewReader(s, ReaderOptions{})
	same := MergeRules{Combine: KeepUnavailable, Unavailable: "<same>"}
	require.Equal(t, []string{"1 one <nil> 200 @1", "2 two <nil> 100 @", "3 <same> <nil> 200 @1"}, combined(t, r, fs, Scan{Rules: same}))

	// Defaults other than NULL are refused.
	require.ErrorIs(t, plainDefaults(`{"type":"record","name":"r","fields":[{"name":"n","type":"int","default":0}]}`), ErrUnsupported)
	require.NoError(t, plainDefaults(`{"type":"record","name":"r","fields":[{"name":"n","type":["null","int"],"default":null},{"name":"m","type":"int"}]}`))
}

// Several ordering fields compare one after the other, in rows as in deletes.
func TestSeveralOrderingFields(t *testing.T) {
	s := memStore(t)
	fs := combineBase(t, s, Row{"1", "one", nil, int64(5), int32(5), nil}, Row{"2", "two", nil, int64(5), int32(5), nil}, Row{"4", "four", nil, int64(5), int32(5), nil}, Row{"5", "five", nil, int64(5), int32(5), nil})
	all := "id a b ts seq Op"
	combineLog(t, s, fs, 1, nil, all, Row{"1", "late", nil, int64(5), int32(4), nil}, Row{"2", "new", nil, int64(5), int32(6), nil}, Row{"3", "x", nil, int64(1), int32(2), nil})
	combineLog(t, s, fs, 2, nil, all, Row{"3", "late", nil, int64(1), int32(1), nil}, Row{"2", "late", nil, int64(4), int32(9), nil})
	values := func(ts int64, seq any) []OrderingValue {
		v := []OrderingValue{{ts, Type{Kind: Int64}}, {seq, Type{Kind: Int32}}}
		if seq == nil {
			v[1].Type = Type{}
		}
		return v
	}
	combineDelete(t, s, fs, 3, LogDelete{Key: "4", Partition: "p", Ordering: values(5, int32(4))})
	combineDelete(t, s, fs, 3, LogDelete{Key: "5", Partition: "p", Ordering: values(5, int32(5))})
	r := NewReader(s, ReaderOptions{})
	sc := Scan{Ordering: EventTime, OrderingField: "ts", Rules: MergeRules{OrderingFields: []string{"ts", "seq"}}}
	require.Equal(t, []string{"1 one <nil> 5 @", "2 new <nil> 5 @1", "3 x <nil> 1 @1", "4 four <nil> 5 @"}, combined(t, r, fs, sc))
	// A delete of one value, or of another type, compares with nothing and wins.
	combineDelete(t, s, fs, 4, LogDelete{Key: "1", Partition: "p", Ordering: int64(1), OrderingType: Type{Kind: Int64}})
	combineDelete(t, s, fs, 4, LogDelete{Key: "2", Partition: "p", Ordering: []OrderingValue{{int64(1), Type{Kind: Int64}}, {"1", Type{Kind: String}}}})
	require.Equal(t, []string{"3 x <nil> 1 @1", "4 four <nil> 5 @"}, combined(t, r, fs, sc))
}

// A field with a marker makes deletes of rows.
func TestDeleteMarker(t *testing.T) {
	s := memStore(t)
	fs := combineBase(t, s, Row{"1", "one", nil, int64(5), nil, nil}, Row{"2", "two", nil, int64(5), nil, nil})
	combineLog(t, s, fs, 1, nil, "id a b ts seq Op", Row{"1", "one", nil, int64(6), nil, "D"}, Row{"2", "due", nil, int64(6), nil, "U"}, Row{"3", "x", nil, int64(6), nil, "D"})
	r := NewReader(s, ReaderOptions{})
	require.Equal(t, []string{"2 due <nil> 6 @1"}, combined(t, r, fs, Scan{Rules: MergeRules{DeleteField: "Op", DeleteMarker: "D"}}))
	require.Len(t, combined(t, r, fs, Scan{}), 3)
	for _, err := range r.ReadSlice(context.Background(), "", *fs, Scan{Schema: combineTable, Table: combineTable, Rules: MergeRules{DeleteField: "ts", DeleteMarker: "5"}}) {
		require.ErrorIs(t, err, ErrUnsupported)
	}
}

// A log compaction stands for the blocks of the instants that it names, in the place of the oldest of them, also over several steps.
func TestLogCompaction(t *testing.T) {
	s := memStore(t)
	fs := combineBase(t, s, Row{"1", "one", nil, int64(5), nil, nil})
	all := "id a b ts seq Op"
	row := func(a string) Row { return Row{"1", a, nil, int64(5), nil, nil} }
	combineLog(t, s, fs, 1, nil, all, row("first"), Row{"2", "two", nil, nil, nil, nil})
	combineLog(t, s, fs, 2, nil, all, row("second"))
	combineLog(t, s, fs, 4, nil, all, row("fourth"))
	compactedTimes := func(times ...int) map[uint32]string {
		var list []string
		for _, n := range times {
			list = append(list, string(instant(n)))
		}
		return map[uint32]string{headerCompactedTime: strings.Join(list, ",")}
	}
	combineLog(t, s, fs, 5, compactedTimes(1, 2), all, row("of 1 and 2"), Row{"2", "two", nil, nil, nil, nil})
	r := NewReader(s, ReaderOptions{})
	require.Equal(t, []string{"1 fourth <nil> 5 @4", "2 two <nil> <nil> @5"}, combined(t, r, fs, Scan{}))
	combineLog(t, s, fs, 6, nil, all, row("sixth"))
	combineLog(t, s, fs, 7, compactedTimes(5, 4), all, row("of 1, 2 and 4"), Row{"2", "still", nil, nil, nil, nil})
	require.Equal(t, []string{"1 sixth <nil> 5 @6", "2 still <nil> <nil> @7"}, combined(t, r, fs, Scan{}))
	// One that did not complete stands for nothing.
	sc := Scan{Counts: func(t InstantTime) bool { return t < instant(7) }}
	require.Equal(t, []string{"1 sixth <nil> 5 @6", "2 two <nil> <nil> @5"}, combined(t, r, fs, sc))
}
