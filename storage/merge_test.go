package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func mergeSchema(order Kind) *Schema {
	return &Schema{Name: "m_record", Namespace: "hoodie.m", Fields: []Field{
		field("id", String), field("v", String), field("ts", order), field(colDeleted, Bool),
	}}
}

// change is a version of a record: a row, or a delete.
type change struct {
	key, v  string
	ts      any
	del     bool // by a delete block
	flag    bool // by _hoodie_is_deleted
	delType Type
}

func put(key, v string, ts any) change  { return change{key: key, v: v, ts: ts} }
func flagged(key string, ts any) change { return change{key: key, ts: ts, flag: true} }
func del(key string, ts any, k Kind) change {
	return change{key: key, ts: ts, del: true, delType: Type{Kind: k}}
}
func (c change) row() Row                   { return Row{c.key, c.v, c.ts, c.flag} }
func (c change) meta(t InstantTime) RowMeta { return RowMeta{t, string(t) + "_0_0", c.key, "p"} }
func (c change) delete() LogDelete          { return LogDelete{c.key, "p", c.ts, c.delType} }
func instant(n int) InstantTime             { return InstantTime(fmt.Sprintf("2026010100000%04d", n)) }

func mergeLog(t testing.TB, s Store, fs *FileSlice, n int, changes ...change) {
	t.Helper()
	var puts []LogRecord
	var dels []LogDelete
	for _, c := range changes {
		if c.del {
			dels = append(dels, c.delete())
		} else {
			puts = append(puts, LogRecord{c.meta(instant(n)), c.row()})
		}
	}
	name := LogFileName(fs.ID, fs.Begin, len(fs.Logs)+1, "0-0-0")
	_, err := WriteLog(context.Background(), s, "p/"+name, instant(n), mergeSchema(kindOf(changes)), fs.ID, puts, dels)
	require.NoError(t, err)
	f, ok := ParseFileName(name)
	require.True(t, ok)
	fs.Logs = append(fs.Logs, f)
}

func kindOf(changes []change) Kind {
	for _, c := range changes {
		if _, ok := c.ts.(int32); ok && !c.del {
			return Int32
		}
	}
	return Int64
}

func rawLog(t testing.TB, s Store, fs *FileSlice, b []byte) {
	t.Helper()
	name := LogFileName(fs.ID, fs.Begin, len(fs.Logs)+1, "0-0-0")
	require.NoError(t, s.PutNew(context.Background(), "p/"+name, b))
	f, _ := ParseFileName(name)
	fs.Logs = append(fs.Logs, f)
}

// mergeSlice starts a slice with a base file, or without if there are no rows.
func mergeSlice(t testing.TB, s Store, rows ...change) *FileSlice {
	t.Helper()
	fs := &FileSlice{Partition: "p", ID: "g-0", Begin: instant(0)}
	if len(rows) == 0 {
		return fs
	}
	ctx := context.Background()
	name := BaseFileName(fs.ID, "0-0-0", fs.Begin)
	w, err := CreateBase(ctx, s, "p/"+name, mergeSchema(Int64), BaseOptions{})
	require.NoError(t, err)
	for _, c := range rows {
		require.NoError(t, w.Append(c.meta(fs.Begin), c.row()))
	}
	_, err = w.Commit(ctx)
	require.NoError(t, err)
	f, ok := ParseFileName(name)
	require.True(t, ok)
	fs.Base = &f
	return fs
}

func mergeScan(o Ordering) Scan {
	table := mergeSchema(Int64)
	want, err := table.Select("id", "v")
	if err != nil {
		panic(err)
	}
	return Scan{Schema: want, Table: table, Ordering: o, OrderingField: "ts"}
}

// readKeys gives "id=v" of every row of a slice, sorted.
func readKeys(t testing.TB, r *Reader, fs *FileSlice, sc Scan) []string {
	t.Helper()
	out := []string{}
	for b, err := range r.ReadSlice(context.Background(), "", *fs, sc) {
		require.NoError(t, err)
		for i := range b.Rows {
			out = append(out, b.Value(0, i).(string)+"="+b.Value(1, i).(string))
		}
	}
	slices.Sort(out)
	return out
}

// D27: which version of a record wins, in the order base file, then one log a change.
func TestMergeRules(t *testing.T) {
	base := put("k", "base", int64(10))
	none := change{}
	for _, c := range []struct {
		what        string
		base        change
		logs        []change
		time, event string // outcome by commit time and by event time; "": no row
	}{
		{"newer update", base, []change{put("k", "a", int64(11))}, "a", "a"},
		{"equal update", base, []change{put("k", "a", int64(10))}, "a", "a"},
		{"late update", base, []change{put("k", "a", int64(9))}, "a", "base"},
		{"late among logs", none, []change{put("k", "a", int64(5)), put("k", "b", int64(4))}, "b", "a"},
		{"equal among logs", none, []change{put("k", "a", int64(5)), put("k", "b", int64(5))}, "b", "b"},
		{"delete without ordering", base, []change{del("k", nil, 0)}, "", ""},
		{"newer delete", base, []change{del("k", int64(11), Int64)}, "", ""},
		{"equal delete", base, []change{del("k", int64(10), Int64)}, "", ""},
		{"late delete", base, []change{del("k", int64(9), Int64)}, "", "base"},
		{"late delete of another class", base, []change{del("k", int32(9), Int32)}, "", ""},
		{"int 0 is no ordering", base, []change{del("k", int32(0), Int32)}, "", ""},
		{"late delete among logs", none, []change{put("k", "a", int64(5)), del("k", int64(4), Int64)}, "", "a"},
		{"put after delete without ordering", base, []change{del("k", nil, 0), put("k", "a", int64(10))}, "a", "a"},
		{"late put after delete without ordering", base, []change{del("k", nil, 0), put("k", "a", int64(1))}, "a", "base"},
		{"late put after ordered delete", base, []change{del("k", int64(20), Int64), put("k", "a", int64(15))}, "a", ""},
		{"put after ordered delete", base, []change{del("k", int64(20), Int64), put("k", "a", int64(20))}, "a", "a"},
		{"ordered delete after one without", base, []change{del("k", nil, 0), del("k", int64(1), Int64)}, "", ""},
		{"delete of nothing", none, []change{del("k", int64(1), Int64)}, "", ""},
		{"flagged row", base, []change{flagged("k", int64(11))}, "", ""},
		{"late flagged row", base, []change{flagged("k", int64(9))}, "", "base"},
		{"flagged row without ordering", base, []change{flagged("k", nil)}, "", ""},
		{"NULL ordering sorts first", base, []change{put("k", "a", nil)}, "a", "base"},
		{"over NULL ordering", put("k", "base", nil), []change{put("k", "a", int64(math.MinInt64))}, "a", "a"},
		{"late delete over a flagged row", base, []change{flagged("k", int64(12)), put("k", "a", int64(11))}, "a", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := memStore(t)
			var fs *FileSlice
			if c.base.key == "" {
				fs = mergeSlice(t, s)
			} else {
				fs = mergeSlice(t, s, c.base, put("other", "o", int64(1)))
			}
			for i, ch := range c.logs {
				mergeLog(t, s, fs, i+1, ch)
			}
			r := NewReader(s, ReaderOptions{})
			for o, want := range []string{c.time, c.event} {
				sc := mergeScan(Ordering(o))
				rows := []string{}
				if want != "" {
					rows = append(rows, "k="+want)
				}
				b, err := r.Lookup(context.Background(), "", *fs, sc, "k", 0)
				require.NoError(t, err)
				require.Equal(t, len(rows), b.Rows, "lookup, ordering %d", o)
				if want != "" {
					require.Equal(t, want, b.Value(1, 0))
				}
				if c.base.key != "" {
					rows = append(rows, "other=o")
				}
				require.Equal(t, rows, readKeys(t, r, fs, sc), "ordering %d", o)
			}
		})
	}
}

// The ordering column grew from int to bigint: values of both kinds compare, deletes of the old class always win.
func TestMergePromotedOrdering(t *testing.T) {
	s := memStore(t)
	fs := mergeSlice(t, s, put("a", "base", int64(1<<40)), put("b", "base", int64(5)))
	mergeLog(t, s, fs, 1, put("a", "late", int32(7)), put("b", "newer", int32(7)))
	r := NewReader(s, ReaderOptions{})
	require.Equal(t, []string{"a=base", "b=newer"}, readKeys(t, r, fs, mergeScan(EventTime)))
	require.Equal(t, []string{"a=late", "b=newer"}, readKeys(t, r, fs, mergeScan(CommitTime)))
}

func TestOrderingTypes(t *testing.T) {
	for _, c := range []struct {
		typ       Type
		low, high any
	}{
		{Type{Kind: Bool}, false, true},
		{Type{Kind: Int32}, int32(-1), int32(1)},
		{Type{Kind: Int64}, int64(math.MinInt64), int64(0)},
		{Type{Kind: Float32}, float32(1), float32(math.NaN())},
		{Type{Kind: Float64}, math.Copysign(0, -1), 0.0},
		{Type{Kind: Float64}, math.Inf(1), math.NaN()},
		{Type{Kind: String}, "a", "b"},
		{Type{Kind: Bytes}, []byte{1}, []byte{1, 0}},
		{Type{Kind: Date}, int32(-5), int32(0)},
		{Type{Kind: Timestamp}, int64(-5), int64(0)},
		{Type{Kind: Decimal, Precision: 9, Scale: 2}, num("-1.01", 9, 2), num("-1.00", 9, 2)},
	} {
		low, high, null := orderOf(c.low), orderOf(c.high), orderOf(nil)
		require.Negative(t, low.compare(&high), "%v", c)
		require.Positive(t, high.compare(&low), "%v", c)
		require.Zero(t, low.compare(&low), "%v", c)
		require.Negative(t, null.compare(&low), "%v", c)

		// A delete in a log keeps the value, whatever wrapper it stands in.
		b, err := appendDelete(nil, &LogDelete{Key: "k", Ordering: c.low, OrderingType: c.typ})
		require.NoError(t, err)
		d, _, err := parseDelete(b, 0)
		require.NoError(t, err)
		got := orderOfDelete(&d, []Field{{Name: "ts", Type: c.typ}})
		require.Equal(t, low, got, "%v", c)

		v := vector{kind: c.typ.Kind}
		require.NoError(t, v.appendValue(c.low))
		v.appendNull()
		a := v.array(c.typ)
		require.Equal(t, low, orderAt(a, 0))
		require.Equal(t, null, orderAt(a, 1))
	}
}

// Blocks of instants that do not count are skipped, and a rollback block takes back what its target wrote before it.
func TestCountsAndRollback(t *testing.T) {
	s := memStore(t)
	fs := mergeSlice(t, s, put("a", "base", int64(1)), put("b", "base", int64(1)))
	mergeLog(t, s, fs, 1, put("a", "1", int64(1)))
	mergeLog(t, s, fs, 2, put("a", "2", int64(1)), del("b", nil, 0))
	r := NewReader(s, ReaderOptions{})
	sc := mergeScan(CommitTime)
	read := func() []string { return readKeys(t, r, fs, sc) }
	require.Equal(t, []string{"a=2"}, read())
	sc.Counts = func(at InstantTime) bool { return at <= instant(1) }
	require.Equal(t, []string{"a=1", "b=base"}, read())
	sc.Counts = func(at InstantTime) bool { return at <= instant(0) }
	require.Equal(t, []string{"a=base", "b=base"}, read())
	sc.Counts = func(at InstantTime) bool { return at > instant(0) } // the base file is not to be seen
	require.Equal(t, []string{"a=2"}, read())

	command := map[uint32]string{headerInstant: string(instant(9)), headerTarget: string(instant(2)), headerCommand: commandRollback}
	rawLog(t, s, fs, rawBlock(BlockCommand, command, nil))
	sc.Counts = nil
	require.Equal(t, []string{"a=1", "b=base"}, read())
	mergeLog(t, s, fs, 2, put("b", "again", int64(1)))
	require.Equal(t, []string{"a=1", "b=again"}, read(), "a block behind the rollback stays")
	sc.ReadOptimized = true
	require.Equal(t, []string{"a=base", "b=base"}, read())
	fs.Base = nil
	require.Empty(t, read())
}

// D18: a torn block is skipped and counted, and so is a damaged one with whole blocks behind it.
func TestDamageIsCounted(t *testing.T) {
	s := memStore(t)
	fs := mergeSlice(t, s, put("a", "base", int64(1)))
	mergeLog(t, s, fs, 1, put("a", "1", int64(1)))
	whole := objectBytes(t, s, "p/"+fs.Logs[0].Name)
	rawLog(t, s, fs, whole[:len(whole)-1])
	r := NewReader(s, ReaderOptions{})
	require.Equal(t, []string{"a=1"}, readKeys(t, r, fs, mergeScan(CommitTime)))
	require.Equal(t, int64(1), r.Metrics.CorruptTails.Load())
	require.Zero(t, r.Metrics.CorruptMids.Load())
	rawLog(t, s, fs, append(append([]byte(nil), whole[:len(whole)-1]...), whole...))
	require.Equal(t, []string{"a=1"}, readKeys(t, r, fs, mergeScan(CommitTime)))
	require.Equal(t, int64(2), r.Metrics.CorruptTails.Load())
	require.Equal(t, int64(1), r.Metrics.CorruptMids.Load())

	rawLog(t, s, fs, []byte("junk that is no log"))
	for range 2 { // an error is not cached as anything else
		var err error
		for _, err = range r.ReadSlice(context.Background(), "", *fs, mergeScan(CommitTime)) {
		}
		var c *CorruptError
		require.ErrorAs(t, err, &c)
		require.Equal(t, "p/"+fs.Logs[3].Name, c.Name)
	}
}

// Whatever is written, reading gives what a map of the same changes gives.
func TestMergeModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	type state struct {
		v    string
		ts   int64
		dead bool
		none bool
	}
	for range 40 {
		s := memStore(t)
		var rows []change
		keys := 1 + rnd.IntN(40)
		for k := range keys {
			if rnd.IntN(2) == 0 {
				rows = append(rows, put(strconv.Itoa(k), "base", rnd.Int64N(5)))
			}
		}
		fs := mergeSlice(t, s, rows...)
		counted := map[InstantTime]bool{instant(0): true}
		var logs [][]change
		for n := 1; n <= 1+rnd.IntN(6); n++ {
			counted[instant(n)] = rnd.IntN(4) > 0
			var puts, dels []change
			for _, k := range rnd.Perm(keys)[:rnd.IntN(keys)] {
				key, ts := strconv.Itoa(k), rnd.Int64N(5)
				switch rnd.IntN(6) {
				case 0:
					dels = append(dels, del(key, nil, 0))
				case 1:
					dels = append(dels, del(key, ts, Int64))
				case 2:
					puts = append(puts, flagged(key, ts))
				default:
					puts = append(puts, put(key, fmt.Sprint("log", n), ts))
				}
			}
			mergeLog(t, s, fs, n, append(puts, dels...)...)
			logs = append(logs, append(puts, dels...))
		}
		r := NewReader(s, ReaderOptions{})
		for _, o := range []Ordering{CommitTime, EventTime} {
			won := map[string]state{}
			for n, changes := range logs {
				if !counted[instant(n+1)] {
					continue
				}
				for _, c := range changes {
					n := state{v: c.v, dead: c.del || c.flag, none: c.ts == nil}
					n.ts, _ = c.ts.(int64)
					if old, ok := won[c.key]; ok && o == EventTime {
						if old.dead && old.none && c.del || !(old.dead && old.none) && !n.none && old.ts > n.ts {
							continue
						}
					}
					won[c.key] = n
				}
			}
			want := []string{}
			for _, c := range rows {
				w, ok := won[c.key]
				if ok && (o == CommitTime || w.none || c.ts.(int64) <= w.ts) {
					continue
				}
				delete(won, c.key)
				want = append(want, c.key+"="+c.v)
			}
			for key, w := range won {
				if !w.dead {
					want = append(want, key+"="+w.v)
				}
			}
			slices.Sort(want)
			sc := mergeScan(o)
			sc.Counts = func(at InstantTime) bool { return counted[at] }
			require.Equal(t, want, readKeys(t, r, fs, sc), "ordering %d", o)
			all := make([]string, keys)
			for k := range all {
				all[k] = strconv.Itoa(k)
			}
			b, err := r.LookupMany(context.Background(), "", *fs, sc, all, nil)
			require.NoError(t, err)
			got := []string{}
			for i := range b.Rows {
				got = append(got, b.Value(0, i).(string)+"="+b.Value(1, i).(string))
			}
			slices.Sort(got)
			require.Equal(t, want, got, "lookup, ordering %d", o)
		}
	}
}

// Readers of one slice at the same time decode its logs once.
func TestReaderCache(t *testing.T) {
	ctx, s := context.Background(), memStore(t)
	var rows []change
	for i := range 1000 {
		rows = append(rows, put(strconv.Itoa(i), "base", int64(1)))
	}
	fs := mergeSlice(t, s, rows...)
	for n := 1; n < 5; n++ {
		for i := range rows {
			rows[i].v = fmt.Sprint("log", n)
		}
		mergeLog(t, s, fs, n, rows[:n*100]...)
	}
	r := NewReader(s, ReaderOptions{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if got := readKeys(t, r, fs, mergeScan(CommitTime)); len(got) != 1000 {
					t.Errorf("%d rows", len(got))
				}
				b, err := r.Lookup(ctx, "", *fs, mergeScan(CommitTime), "350", 3)
				if err != nil || b.Rows != 1 || b.Value(1, 0) != "log4" {
					t.Errorf("lookup: %v %v", b, err)
				}
			}
		})
	}
	wg.Wait()
	m := &r.Metrics
	require.Equal(t, int64(1), m.Merges.Load())
	require.Equal(t, int64(4), m.LogFiles.Load())
	require.Equal(t, int64(1), m.BaseOpens.Load())
	require.Positive(t, m.CacheBytes.Load())

	r.Forget("p/")
	require.Zero(t, m.CacheBytes.Load())
	require.Len(t, readKeys(t, r, fs, mergeScan(CommitTime)), 1000)
	require.Equal(t, int64(2), m.Merges.Load())
	require.NoError(t, r.Close())
	_, err := r.Lookup(ctx, "", *fs, mergeScan(CommitTime), "1", -1)
	require.ErrorIs(t, err, errReaderClosed)

	r = NewReader(s, ReaderOptions{CacheBytes: 1})
	require.Len(t, readKeys(t, r, fs, mergeScan(CommitTime)), 1000)
	require.Positive(t, r.Metrics.Evictions.Load())
	require.Zero(t, r.Metrics.CacheBytes.Load())

	stopped, cancel := context.WithCancel(ctx)
	cancel()
	_, err = NewReader(s, ReaderOptions{}).Lookup(stopped, "", *fs, mergeScan(CommitTime), "1", -1)
	require.ErrorIs(t, err, context.Canceled)
}

// The number of open base files is bounded, one that is in use stays readable when it leaves the cache, and each is closed in the end.
func TestReaderOpenFiles(t *testing.T) {
	ctx, s := context.Background(), memStore(t)
	schema := mergeSchema(Int64)
	r := NewReader(s, ReaderOptions{MaxOpen: 3})
	var used *openBase
	var files []*BaseFile
	for i := range 10 {
		name := BaseFileName(FileID(fmt.Sprintf("g%d-0", i)), "0-0-0", instant(i))
		w, err := CreateBase(ctx, s, name, schema, BaseOptions{})
		require.NoError(t, err)
		require.NoError(t, w.Append(put("k", "v", int64(1)).meta(instant(i)), put("k", "v", int64(1)).row()))
		_, err = w.Commit(ctx)
		require.NoError(t, err)
		e, err := r.base(ctx, name)
		require.NoError(t, err)
		files = append(files, e.file)
		n, err := r.BaseRows(ctx, name)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		if i == 0 {
			used = e
		} else {
			r.release(e)
		}
		require.LessOrEqual(t, len(r.bases), 4)
	}
	require.Equal(t, int64(10), r.Metrics.BaseOpens.Load())
	r.Forget("")
	b, err := used.file.ReadRows(ctx, schema, []int64{0})
	require.NoError(t, err)
	require.Equal(t, 1, b.Rows)
	r.release(used)
	_, err = r.BaseRows(ctx, "absent.parquet")
	require.ErrorIs(t, err, ErrNotExist)
	require.NoError(t, r.Close())
	require.Empty(t, r.bases)
	for _, f := range files {
		require.True(t, f.closed.Load())
	}
}

func BenchmarkReadSlice(b *testing.B) {
	const rows = 200_000
	s := memStore(b)
	var all []change
	for i := range rows {
		all = append(all, put(fmt.Sprintf("key-%08d", i), "base", int64(i)))
	}
	fs := mergeSlice(b, s, all...)
	var ups []change
	for i := 0; i < rows; i += 10 {
		ups = append(ups, put(all[i].key, "log", int64(i+1)))
	}
	mergeLog(b, s, fs, 1, ups...)
	for o, name := range []string{"commit", "event"} {
		for _, cached := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/cached=%v", name, cached), func(b *testing.B) {
				r := NewReader(s, ReaderOptions{})
				n := 0
				for b.Loop() {
					if !cached {
						r.Forget("")
					}
					for bt, err := range r.ReadSlice(context.Background(), "", *fs, mergeScan(Ordering(o))) {
						if err != nil {
							b.Fatal(err)
						}
						n += bt.Rows
					}
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrow/s")
			})
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	s := memStore(b)
	var all []change
	for i := range 100_000 {
		all = append(all, put(fmt.Sprintf("key-%08d", i), "base", int64(i)))
	}
	fs := mergeSlice(b, s, all...)
	mergeLog(b, s, fs, 1, all[:10_000]...)
	r := NewReader(s, ReaderOptions{})
	ctx, sc := context.Background(), mergeScan(CommitTime)
	for _, c := range []struct {
		name string
		at   int
		hint int64
	}{{"log", 500, -1}, {"base/hint", 50_000, 50_000}, {"base/search", 50_000, -1}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, err := r.Lookup(ctx, "", *fs, sc, all[c.at].key, c.hint); err != nil || got.Rows != 1 {
					b.Fatal(got, err)
				}
			}
		})
	}
}

func BenchmarkWriteLog(b *testing.B) {
	schema, rows := tenColumns()
	schema.Name = "t_record"
	puts := make([]LogRecord, len(rows))
	for i := range puts {
		puts[i] = LogRecord{RowMeta{instant(1), string(instant(1)) + "_0_" + strconv.Itoa(i), strconv.Itoa(i), ""}, rows[i]}
	}
	n := 0
	for b.Loop() {
		if _, _, err := encodeLog(instant(1), schema, "g-0", puts, nil); err != nil {
			b.Fatal(err)
		}
		n += len(puts)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrow/s")
}
