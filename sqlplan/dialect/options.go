package dialect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are a table's options with parsed values. A nil or empty member was not given. In a
// Carrier of ALTER TABLE only the given ones change.
type Options struct {
	Type      string        // "mor" or "cow"
	Key       []string      // record key columns
	Partition []string      // partition columns; in ALTER a given empty list is an error of the table
	HiveStyle *bool         // name=value in partition paths
	Ordering  []string      // ordering columns
	MergeMode string        // "commit_time" or "event_time"
	Global    *bool         // one key in the table, or one key in each partition
	MinBytes  int64         // bin.min_bytes, bytes
	MaxBytes  int64         // bin.max_bytes, bytes
	MaxAge    time.Duration // bin.max_age
	Hoodie    map[string]string
	Reset     []string // options to set back to their default, by our names (UNSET, or null)
}

// Empty says that no option was given.
func (o Options) Empty() bool {
	return o.Type == "" && o.Key == nil && o.Partition == nil && o.HiveStyle == nil && o.Ordering == nil &&
		o.MergeMode == "" && o.Global == nil && o.MinBytes == 0 && o.MaxBytes == 0 && o.MaxAge == 0 &&
		len(o.Hoodie) == 0 && len(o.Reset) == 0
}

// optionNames maps every spelling, in lower case, to our name.
var optionNames = map[string]string{
	"type": "type", "key": "key", "primarykey": "key", "partition": "partition",
	"hive_style": "hive_style", "ordering": "ordering", "precombinefield": "ordering",
	"orderingfields": "ordering", "merge_mode": "merge_mode", "recordmergemode": "merge_mode",
	"global": "global", "bin.min_bytes": "bin.min_bytes", "bin.max_bytes": "bin.max_bytes",
	"bin.max_age": "bin.max_age",
	// Hudi's own keys for what has an option of ours
	"hoodie.table.type":                               "type",
	"hoodie.datasource.write.table.type":              "type",
	"hoodie.table.recordkey.fields":                   "key",
	"hoodie.datasource.write.recordkey.field":         "key",
	"hoodie.table.partition.fields":                   "partition",
	"hoodie.datasource.write.partitionpath.field":     "partition",
	"hoodie.datasource.write.hive_style_partitioning": "hive_style",
	"hoodie.table.precombine.field":                   "ordering",
	"hoodie.table.ordering.fields":                    "ordering",
	"hoodie.datasource.write.precombine.field":        "ordering",
	"hoodie.record.merge.mode":                        "merge_mode",
	"hoodie.write.record.merge.mode":                  "merge_mode",
}

// ParseOptions reads the JSON object of ENGINE_ATTRIBUTE. Spark's spellings are accepted; an
// unknown name is an error that names it. Errors are *mysql.SQLError.
func ParseOptions(text string) (Options, error) {
	var m map[string]json.RawMessage
	if strings.TrimSpace(text) == "" {
		return Options{}, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Options{}, errJSON(err)
	}
	var o Options
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := o.set(k, m[k]); err != nil {
			return Options{}, err
		}
	}
	return o, nil
}

// setText sets an option from Spark's text form.
func (o *Options) setText(key, value string) error {
	b, err := json.Marshal(value)
	if err != nil {
		return errOption(key, value)
	}
	return o.set(key, b)
}

func (o *Options) set(key string, raw json.RawMessage) error {
	own, known := optionNames[strings.ToLower(key)]
	if !known {
		if strings.HasPrefix(key, "hoodie.") {
			own = key
		} else {
			return errUnknownOption(key)
		}
	}
	if string(raw) == "null" {
		o.Reset = append(o.Reset, own)
		return nil
	}
	var err error
	switch own {
	case "type":
		var s string
		if s, err = text(raw); err == nil {
			switch strings.ToLower(s) {
			case "mor", "merge_on_read":
				s = "mor"
			case "cow", "copy_on_write":
				s = "cow"
			default:
				return errOption(key, s)
			}
			if o.Type != "" && o.Type != s {
				return errTwice(key)
			}
			o.Type = s
		}
	case "key":
		err = setList(&o.Key, key, raw)
	case "partition":
		err = setList(&o.Partition, key, raw)
	case "ordering":
		err = setList(&o.Ordering, key, raw)
	case "hive_style":
		o.HiveStyle, err = boolean(raw)
	case "global":
		o.Global, err = boolean(raw)
	case "merge_mode":
		var s string
		if s, err = text(raw); err == nil {
			s = strings.ToLower(s)
			switch s {
			case "commit_time", "event_time":
			case "commit_time_ordering", "event_time_ordering":
				s = strings.TrimSuffix(s, "_ordering")
			default:
				return errOption(key, s)
			}
			if o.MergeMode != "" && o.MergeMode != s {
				return errTwice(key)
			}
			o.MergeMode = s
		}
	case "bin.min_bytes":
		o.MinBytes, err = size(raw)
	case "bin.max_bytes":
		o.MaxBytes, err = size(raw)
	case "bin.max_age":
		o.MaxAge, err = duration(raw)
	default:
		var s string
		if s, err = text(raw); err == nil {
			if o.Hoodie == nil {
				o.Hoodie = map[string]string{}
			}
			o.Hoodie[own] = s
		}
	}
	if _, ok := err.(*optionError); ok {
		return errOption(key, strings.Trim(string(raw), `"`))
	}
	return err
}

// optionError says that a value has not the form of its option.
type optionError struct{}

func (*optionError) Error() string { return "dialect: value of an option" }

// text takes a string, a number or a boolean as text.
func text(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", &optionError{}
	}
	switch v.(type) {
	case float64, bool:
		return string(raw), nil
	}
	return "", &optionError{}
}

// setList takes a JSON array of names, or a text with commas between the names.
func setList(to *[]string, key string, raw json.RawMessage) error {
	list := []string{}
	if json.Unmarshal(raw, &list) != nil {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return &optionError{}
		}
		list = []string{}
		if strings.TrimSpace(s) != "" {
			list = strings.Split(s, ",")
		}
	}
	seen := map[string]bool{}
	for i, n := range list {
		list[i] = strings.TrimSpace(n)
		// Spark's complex key generators write a type behind the name: dt:SIMPLE
		if j := strings.IndexByte(list[i], ':'); j > 0 {
			switch strings.ToUpper(list[i][j+1:]) {
			case "SIMPLE", "TIMESTAMP":
				list[i] = list[i][:j]
			}
		}
		if list[i] == "" || seen[strings.ToLower(list[i])] {
			return &optionError{}
		}
		seen[strings.ToLower(list[i])] = true
	}
	if *to != nil && !sameNames(*to, list) {
		return errTwice(key)
	}
	*to = list
	return nil
}

// sameNames compares lists of columns as SQL does, without regard to case.
func sameNames(a, b []string) bool { return slices.EqualFunc(a, b, strings.EqualFold) }

func boolean(raw json.RawMessage) (*bool, error) {
	s, err := text(raw)
	if err != nil {
		return nil, err
	}
	var b bool
	switch strings.ToLower(s) {
	case "true", "1":
		b = true
	case "false", "0":
	default:
		return nil, &optionError{}
	}
	return &b, nil
}

func size(raw json.RawMessage) (int64, error) {
	s, err := text(raw)
	if err != nil {
		return 0, err
	}
	n, err := ParseSize(s)
	if err != nil {
		return 0, &optionError{}
	}
	return n, nil
}

func duration(raw json.RawMessage) (time.Duration, error) {
	s, err := text(raw)
	if err != nil {
		return 0, err
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, &optionError{}
	}
	return d, nil
}

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1000},
	{"mb", 1000_000},
	{"gb", 1000_000_000},
	{"tb", 1000_000_000_000},
	{"k", 1 << 10},
	{"m", 1 << 20},
	{"g", 1 << 30},
	{"t", 1 << 40},
	{"b", 1},
	{"", 1},
}

// ParseSize reads a size in bytes: "1048576", "64MiB", "1.5 GiB", "10MB". Zero and less are errors.
func ParseSize(s string) (int64, error) {
	low := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(low, u.suffix)
		if !ok {
			continue
		}
		num = strings.TrimSpace(num)
		if n, err := strconv.ParseInt(num, 10, 64); err == nil && n > 0 && n <= (1<<62)/u.bytes {
			return n * u.bytes, nil
		}
		f, err := strconv.ParseFloat(num, 64)
		if err != nil || u.bytes == 1 || !(f > 0) || f*float64(u.bytes) >= 1<<62 || f*float64(u.bytes) < 1 {
			break
		}
		return int64(f * float64(u.bytes)), nil
	}
	return 0, fmt.Errorf("dialect: %q is no size such as 1048576 or \"64MiB\"", s)
}

// ParseDuration reads a duration: "5s", "24h", "1m30s", "7d". A number without a unit is seconds.
// Zero and less are errors.
func ParseDuration(s string) (time.Duration, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(t, "d"); ok {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && n < 1e5 {
			d = time.Duration(n * float64(24*time.Hour))
		}
	} else if n, e := strconv.ParseFloat(t, 64); e == nil {
		if n < 1e9 {
			d = time.Duration(n * float64(time.Second))
		}
	} else {
		d, err = time.ParseDuration(t)
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("dialect: %q is no duration such as \"5s\" or \"24h\"", s)
	}
	return d, nil
}

// Marshal gives the options as JSON in their canonical form: our names in a fixed order, hoodie.*
// keys last in order, sizes as bytes, durations as Go writes them. It is what SHOW CREATE TABLE
// prints; ParseOptions reads it back equal.
func (o Options) Marshal() string {
	var b strings.Builder
	b.WriteByte('{')
	put := func(k string, v any) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		kb, _ := json.Marshal(k) // a string never fails
		vb, _ := json.Marshal(v)
		b.Write(kb)
		b.WriteByte(':')
		b.Write(vb)
	}
	if o.Type != "" {
		put("type", o.Type)
	}
	if o.Key != nil {
		put("key", o.Key)
	}
	if o.Partition != nil {
		put("partition", o.Partition)
	}
	if o.HiveStyle != nil {
		put("hive_style", *o.HiveStyle)
	}
	if o.Ordering != nil {
		put("ordering", o.Ordering)
	}
	if o.MergeMode != "" {
		put("merge_mode", o.MergeMode)
	}
	if o.Global != nil {
		put("global", *o.Global)
	}
	if o.MinBytes != 0 {
		put("bin.min_bytes", o.MinBytes)
	}
	if o.MaxBytes != 0 {
		put("bin.max_bytes", o.MaxBytes)
	}
	if o.MaxAge != 0 {
		put("bin.max_age", o.MaxAge.String())
	}
	for _, k := range slices.Sorted(maps.Keys(o.Hoodie)) {
		put(k, o.Hoodie[k])
	}
	for _, k := range o.Reset {
		put(k, nil)
	}
	b.WriteByte('}')
	return b.String()
}

// Merge lays the given options of n over o.
func (o Options) Merge(n Options) Options {
	for _, k := range n.Reset {
		switch k {
		case "type":
			o.Type = ""
		case "key":
			o.Key = nil
		case "partition":
			o.Partition = nil
		case "hive_style":
			o.HiveStyle = nil
		case "ordering":
			o.Ordering = nil
		case "merge_mode":
			o.MergeMode = ""
		case "global":
			o.Global = nil
		case "bin.min_bytes":
			o.MinBytes = 0
		case "bin.max_bytes":
			o.MaxBytes = 0
		case "bin.max_age":
			o.MaxAge = 0
		default:
			o.Hoodie = maps.Clone(o.Hoodie)
			delete(o.Hoodie, k)
		}
	}
	o.Reset = nil
	if n.Type != "" {
		o.Type = n.Type
	}
	if n.Key != nil {
		o.Key = n.Key
	}
	if n.Partition != nil {
		o.Partition = n.Partition
	}
	if n.HiveStyle != nil {
		o.HiveStyle = n.HiveStyle
	}
	if n.Ordering != nil {
		o.Ordering = n.Ordering
	}
	if n.MergeMode != "" {
		o.MergeMode = n.MergeMode
	}
	if n.Global != nil {
		o.Global = n.Global
	}
	if n.MinBytes != 0 {
		o.MinBytes = n.MinBytes
	}
	if n.MaxBytes != 0 {
		o.MaxBytes = n.MaxBytes
	}
	if n.MaxAge != 0 {
		o.MaxAge = n.MaxAge
	}
	if len(n.Hoodie) > 0 {
		o.Hoodie = maps.Clone(o.Hoodie)
		if o.Hoodie == nil {
			o.Hoodie = map[string]string{}
		}
		maps.Copy(o.Hoodie, n.Hoodie)
	}
	return o
}
