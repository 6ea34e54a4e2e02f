package timeline

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lakesql/lakesql/storage"
)

func TestPropertiesOfFixtures(t *testing.T) {
	ctx := context.Background()
	for _, name := range fixtures(t) {
		s := unpack(t, name)
		p := must(ReadProperties(ctx, s, name))(t)
		if got := p.Checksum(); got != p[KeyChecksum] {
			t.Errorf("%s: checksum %s, the file says %s", name, got, p[KeyChecksum])
		}
		if n, err := p.TableVersion(); n != 6 || err != nil {
			t.Errorf("%s: version %d, %v", name, n, err)
		}
		if err := p.Supported(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text := content(t, s, name+"/.hoodie/hoodie.properties")
		if err := WriteProperties(ctx, s, name, p); err != nil {
			t.Fatal(err)
		}
		if again := must(ReadProperties(ctx, s, name))(t); !maps.Equal(again, p) {
			t.Errorf("%s: %v came back as %v", name, p, again)
		}
		// The same lines, but for the comments and Java's order.
		lines := func(b []byte) []string {
			l := slices.DeleteFunc(strings.Split(string(b), "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
			slices.Sort(l)
			return l
		}
		want, got := lines(text), lines(content(t, s, name+"/.hoodie/hoodie.properties"))
		if !slices.Equal(want, got) {
			t.Errorf("%s: written as\n%s\nread\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestPropertyMeanings(t *testing.T) {
	ctx := context.Background()
	hive := must(ReadProperties(ctx, unpack(t, "v6_cow_composite_key"), "v6_cow_composite_key"))(t)
	if !slices.Equal(hive.RecordKeyFields(), []string{"id", "name"}) || !slices.Equal(hive.PartitionFields(), []string{"city", "day"}) ||
		!hive.HiveStyle() || hive.URLEncode() || hive.TableType() != CopyOnWrite || !slices.Equal(hive.OrderingFields(), []string{"ts"}) {
		t.Errorf("composite key table: %v", hive)
	}
	for _, c := range []struct {
		p       Properties
		o       storage.Ordering
		payload string
	}{
		{Properties{}, storage.CommitTime, ""},
		{Properties{KeyPrecombineField: "ts"}, storage.EventTime, ""},
		{Properties{KeyPrecombineField: "ts", KeyPayloadClass: PayloadOverwrite}, storage.CommitTime, ""},
		{Properties{KeyPayloadClass: PayloadDefault}, storage.EventTime, ""},
		{Properties{KeyPrecombineField: "ts", KeyMergeMode: "COMMIT_TIME_ORDERING"}, storage.CommitTime, ""},
		{Properties{KeyMergeMode: "EVENT_TIME_ORDERING"}, storage.EventTime, ""},
		{Properties{KeyPayloadClass: "com.example.Mine"}, storage.CommitTime, "com.example.Mine"},
		{Properties{KeyMergeMode: "CUSTOM"}, storage.CommitTime, "CUSTOM"},
	} {
		if o, payload := c.p.Ordering(); o != c.o || payload != c.payload {
			t.Errorf("%v: ordering %d, payload %q", c.p, o, payload)
		}
	}
	event := storage.EventTime
	for _, c := range []struct {
		p    Properties
		want Merging
	}{
		{Properties{KeyVersion: "6", KeyMergeMode: "EVENT_TIME_ORDERING", KeyPayloadClass: PayloadOverwrite, KeyPrecombineField: "ts"}, Merging{}},
		{Properties{KeyVersion: "8", KeyMergeMode: "EVENT_TIME_ORDERING", KeyPayloadClass: PayloadOverwrite, KeyPrecombineField: "ts"}, Merging{Ordering: event}},
		{
			Properties{KeyVersion: "8", KeyMergeMode: "CUSTOM", KeyPayloadClass: payloadNonDefaults, KeyPrecombineField: "ts"},
			Merging{Rules: storage.MergeRules{Combine: storage.KeepDefaults, DeletesByTime: true, OrderingFields: []string{"ts"}}},
		},
		{Properties{KeyVersion: "6", KeyPayloadClass: payloadNonDefaults}, Merging{Rules: storage.MergeRules{Combine: storage.KeepDefaults}}},
		{Properties{KeyVersion: "6", KeyPayloadClass: payloadPartialUpdate, KeyPrecombineField: "ts"}, Merging{Ordering: event, Rules: storage.MergeRules{Combine: storage.KeepDefaults}}},
		{Properties{KeyVersion: "6", KeyPayloadClass: payloadEventTime}, Merging{Ordering: event}},
		{Properties{KeyVersion: "8", KeyMergeMode: "CUSTOM", KeyPayloadClass: payloadDMS}, Merging{Rules: storage.MergeRules{DeleteField: "Op", DeleteMarker: "D"}}},
		{Properties{KeyVersion: "8", KeyMergeMode: "CUSTOM", keyMergeStrategyID: "mine"}, Merging{Payload: "mine"}},
		{Properties{KeyVersion: "9", KeyMergeMode: "COMMIT_TIME_ORDERING", KeyPartialUpdate: "IGNORE_DEFAULTS", KeyOrderingFields: "a,b"}, Merging{Rules: storage.MergeRules{Combine: storage.KeepDefaults}}},
		{Properties{KeyVersion: "9", KeyMergeMode: "EVENT_TIME_ORDERING", KeyOrderingFields: "a,b"}, Merging{Ordering: event, Rules: storage.MergeRules{OrderingFields: []string{"a", "b"}}}},
		{
			Properties{KeyVersion: "9", KeyMergeMode: "EVENT_TIME_ORDERING", KeyOrderingFields: "a", KeyPartialUpdate: "FILL_UNAVAILABLE", KeyUnavailable: "__debezium_unavailable_value", KeyDeleteField: "_change_operation_type", KeyDeleteMarker: "d"},
			Merging{Ordering: event, Rules: storage.MergeRules{Combine: storage.KeepUnavailable, Unavailable: "__debezium_unavailable_value", DeleteField: "_change_operation_type", DeleteMarker: "d"}},
		},
		{Properties{KeyVersion: "9", KeyMergeMode: "COMMIT_TIME_ORDERING", KeyPartialUpdate: "FILL_DEFAULTS"}, Merging{Payload: KeyPartialUpdate + "=FILL_DEFAULTS"}},
		{Properties{KeyVersion: "9", KeyMergeMode: "SOMETHING"}, Merging{Payload: "SOMETHING"}},
	} {
		if got := c.p.Merging(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v, want %+v", c.p, got, c.want)
		}
	}
	for _, c := range []struct{ key, value string }{
		{KeyVersion, "5"},
		{KeyVersion, "7"},
		{KeyVersion, "x"},
		{KeyLayoutVersion, "2"},
		{KeyBaseFileFormat, "ORC"},
		{KeyPopulateMeta, "false"},
		{KeyDropPartition, "true"},
		{KeyBootstrapBase, "/old"},
	} {
		p := Properties{KeyVersion: "6", c.key: c.value}
		if err := p.Supported(); !errors.Is(err, storage.ErrUnsupported) || !strings.Contains(err.Error(), c.value) {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
	for _, version := range []string{"8", "9"} { // read, not written
		p := Properties{KeyVersion: version}
		if err := p.Supported(); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
		if err := p.Writable(); !errors.Is(err, storage.ErrUnsupported) || !strings.Contains(err.Error(), version) {
			t.Errorf("writing version %s: %v", version, err)
		}
		for key, value := range map[string]string{KeyTimelinePath: "elsewhere", KeyHistoryPath: "old", KeyTableFormat: "iceberg", KeyBaseFormats: "true", KeyLayoutVersion: "1"} {
			p := Properties{KeyVersion: version, key: value}
			if err := p.Supported(); !errors.Is(err, storage.ErrUnsupported) || !strings.Contains(err.Error(), value) {
				t.Errorf("%s=%s: %v", key, value, err)
			}
		}
	}
}

func TestPropertiesText(t *testing.T) {
	text := "# comment\n! another\n\n  a = b\nc:d\\\n   e\nf g\nh\n\\ k\\=\\:=\\ v \\u20AC\\uD83D\\uDE00\r\nlast=x\\"
	p := must(ParseProperties([]byte(text)))(t)
	want := Properties{"a": "b", "c": "de", "f": "g", "h": "", " k=:": " v €😀", "last": "x"}
	if !maps.Equal(p, want) {
		t.Errorf("%q, not %q", p, want)
	}
	if again := must(ParseProperties(p.format("comment")))(t); !maps.Equal(again, want) {
		t.Errorf("came back as %q", again)
	}
	if got := (Properties{KeyName: "t"}).Checksum(); got != "498511606" {
		t.Errorf("checksum %s", got)
	}
}

func TestPropertiesBackup(t *testing.T) {
	ctx := context.Background()
	s := memStore()
	if _, err := ReadProperties(ctx, s, "t"); !errors.Is(err, storage.ErrNotExist) {
		t.Fatalf("no table: %v", err)
	}
	if err := Create(ctx, s, "t", Properties{KeyName: "t", "x.unknown": "kept"}); err != nil {
		t.Fatal(err)
	}
	if err := Create(ctx, s, "t", Properties{KeyName: "t"}); !errors.Is(err, storage.ErrExist) {
		t.Fatalf("second table: %v", err)
	}
	whole := content(t, s, "t/.hoodie/hoodie.properties")
	put := func(name string, b []byte) {
		t.Helper()
		if err := s.Replace(ctx, "t/.hoodie/"+name, b); err != nil {
			t.Fatal(err)
		}
	}
	// Hudi deletes the main file while it changes it.
	put("hoodie.properties.backup", whole)
	if err := s.Remove(ctx, "t/.hoodie/hoodie.properties"); err != nil {
		t.Fatal(err)
	}
	p := must(ReadProperties(ctx, s, "t"))(t)
	if p["x.unknown"] != "kept" || p[KeyTimezone] != "UTC" {
		t.Errorf("from the backup: %v", p)
	}
	put("hoodie.properties", []byte("hoodie.table.name=t\nhoodie.table.checksum=1\n"))
	if p := must(ReadProperties(ctx, s, "t"))(t); p["x.unknown"] != "kept" {
		t.Errorf("wrong checksum in the main file: %v", p)
	}
	put(".hoodie.properties.crc", []byte("stale"))
	if err := WriteProperties(ctx, s, "t", p); err != nil {
		t.Fatal(err)
	}
	if names := listing(t, s, "t/.hoodie"); !slices.Equal(names, []string{"hoodie.properties"}) {
		t.Errorf("left beside the properties: %v", names)
	}
	put("hoodie.properties", []byte("hoodie.table.name=t\nhoodie.table.checksum=1\n"))
	var damage *storage.CorruptError
	if _, err := ReadProperties(ctx, s, "t"); !errors.As(err, &damage) {
		t.Errorf("wrong checksum, no backup: %v", err)
	}
}

func FuzzProperties(f *testing.F) {
	for _, name := range fixtures(f) {
		f.Add(content(f, unpack(f, name), name+"/.hoodie/hoodie.properties"))
	}
	f.Add([]byte("a\\u00e9 : \\\n b\r\n\\ =x\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProperties(b)
		if err != nil {
			return
		}
		again, err := ParseProperties(p.format("fuzz"))
		if err != nil || !maps.Equal(p, again) {
			t.Fatalf("%q came back as %q, %v", p, again, err)
		}
	})
}

func TestUnusualKeys(t *testing.T) {
	const class = "org.apache.hudi.keygen."
	for _, c := range []struct {
		p    Properties
		want string
	}{
		{Properties{}, ""},
		{Properties{KeyKeyGenerator: class + "SimpleKeyGenerator"}, ""},
		{Properties{KeyKeyGenerator: class + "ComplexKeyGenerator", KeyRecordKeyFields: "a,b"}, ""},
		{Properties{KeyKeyGenerator: class + "ComplexKeyGenerator", KeyRecordKeyFields: "a"}, "ComplexKeyGenerator with one column"},
		{Properties{KeyKeyGenerator: class + "TimestampBasedKeyGenerator"}, "TimestampBasedKeyGenerator"},
		{Properties{KeyKeyGeneratorType: "non_partition"}, ""},
		{Properties{KeyKeyGeneratorType: "COMPLEX", KeyRecordKeyFields: "a"}, "COMPLEX with one column"},
		{Properties{KeyKeyGeneratorType: "CUSTOM", KeyPartitionFields: "a:SIMPLE"}, "CUSTOM"},
		{Properties{KeyPartitionFields: "a:SIMPLE,b:timestamp"}, "b:timestamp"},
		{Properties{KeyKeyGenerator: "com.example.Mine"}, "Mine"},
	} {
		if got := c.p.UnusualKeys(); got != c.want {
			t.Errorf("%v: %q, want %q", c.p, got, c.want)
		}
	}
}
