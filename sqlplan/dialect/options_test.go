package dialect

import (
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, `{}`},
		{`{}`, `{}`},
		{`{"type":"MOR","partition":["dt"],"ordering":["ts"]}`, `{"type":"mor","partition":["dt"],"ordering":["ts"]}`},
		{`{"type":"COPY_ON_WRITE","primaryKey":"a, b","preCombineField":"ts"}`, `{"type":"cow","key":["a","b"],"ordering":["ts"]}`},
		{`{"orderingFields":"ts","recordMergeMode":"EVENT_TIME_ORDERING"}`, `{"ordering":["ts"],"merge_mode":"event_time"}`},
		{`{"global":false,"hive_style":"true"}`, `{"hive_style":true,"global":false}`},
		{`{"bin.min_bytes":"64MiB","bin.max_bytes":1048576,"bin.max_age":"24h"}`, `{"bin.min_bytes":67108864,"bin.max_bytes":1048576,"bin.max_age":"24h0m0s"}`},
		{`{"hoodie.z":"1","hoodie.a":true,"hoodie.m":2}`, `{"hoodie.a":"true","hoodie.m":"2","hoodie.z":"1"}`},
		{`{"hoodie.datasource.write.precombine.field":"ts","hoodie.table.recordkey.fields":"id"}`, `{"key":["id"],"ordering":["ts"]}`},
		{`{"partition":"dt:SIMPLE,h:TIMESTAMP"}`, `{"partition":["dt","h"]}`},
		{`{"bin.max_age":null}`, `{"bin.max_age":null}`},
		{`{"partition":[]}`, `{"partition":[]}`},
	} {
		o, err := ParseOptions(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		got := o.Marshal()
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		again, err := ParseOptions(got)
		if err != nil || again.Marshal() != got {
			t.Errorf("%s does not come back: %s, %v", got, again.Marshal(), err)
		}
	}
	// An unknown option is an error that names it.
	for _, c := range []struct{ in, want string }{
		{`{"typo":"mor"}`, "Unknown option 'typo' (errno 1911)"},
		{`{"bin.min":1}`, "Unknown option 'bin.min' (errno 1911)"},
		{`{"type":"row"}`, "value 'row' for table option 'type'"},
		{`{"type":1}`, "value '1' for table option 'type'"},
		{`{"key":[1]}`, "table option 'key'"},
		{`{"key":["a","A"]}`, "table option 'key'"},
		{`{"global":"maybe"}`, "value 'maybe' for table option 'global'"},
		{`{"bin.max_age":"soon"}`, "value 'soon' for table option 'bin.max_age'"},
		{`{"bin.min_bytes":"64 elephants"}`, "value '64 elephants'"},
		{`{"bin.min_bytes":0}`, "value '0'"},
		{`{"merge_mode":"random"}`, "value 'random'"},
		{`{"key":["a"],"primaryKey":"b"}`, "given twice"},
		{`{"type":"mor"`, "(errno 3980)"},
		{`["mor"]`, "(errno 3980)"},
	} {
		if _, err := ParseOptions(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.in, err, c.want)
		}
	}
}

func TestMergeOptions(t *testing.T) {
	base, _ := ParseOptions(`{"type":"mor","bin.max_age":"5s","hoodie.a":"1","hoodie.b":"2"}`)
	change, _ := ParseOptions(`{"bin.max_age":null,"hoodie.a":null,"hoodie.c":"3","global":false}`)
	if got, want := base.Merge(change).Marshal(), `{"type":"mor","global":false,"hoodie.b":"2","hoodie.c":"3"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := base.Marshal(), `{"type":"mor","bin.max_age":"5s","hoodie.a":"1","hoodie.b":"2"}`; got != want {
		t.Errorf("the base changed: %s", got)
	}
}

func TestSizesAndDurations(t *testing.T) {
	for in, want := range map[string]int64{"1": 1, "512": 512, "64MiB": 64 << 20, "1.5 GiB": 3 << 29, "10MB": 10_000_000, "2k": 2048, "7b": 7} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "0", "1.5", "1e30GiB", "9999999999TiB", "NaN", "Inf MB", "12 34"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q is taken for %d", in, got)
		}
	}
	for in, want := range map[string]time.Duration{"5s": 5 * time.Second, "24h": 24 * time.Hour, "1m30s": 90 * time.Second, "7d": 7 * 24 * time.Hour, "60": time.Minute, "250ms": 250 * time.Millisecond} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-5s", "0", "0s", "NaN", "1e300", "1e300d"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q is taken for %v", in, got)
		}
	}
}
