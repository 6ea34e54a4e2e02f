package catalog

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Texts that Hudi's key generators put for missing values (format: record keys of the complex key generator).
const (
	nullKey       = "__null__"
	emptyKey      = "__empty__"
	nullPartition = "__HIVE_DEFAULT_PARTITION__"
)

// recordKey gives the record key text of a row, as Hudi's key generators do: the value of a single field, else f1:v1,f2:v2.
// Hudi escapes nothing. A value that could be read as another key is escaped here, so that two keys never share a text.
func (d *tableDef) recordKey(row storage.Row) string {
	if len(d.keyCols) == 1 {
		i := d.keyCols[0].Field
		return d.keyValue(i, row[i])
	}
	var b strings.Builder
	for n, k := range d.keyCols {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(d.spec.Schema.Fields[k.Field].Name)
		b.WriteByte(':')
		v := d.keyValue(k.Field, row[k.Field])
		if n < len(d.keyCols)-1 {
			next := "," + d.spec.Schema.Fields[d.keyCols[n+1].Field].Name + ":"
			if strings.Contains(v, next) || strings.Contains(v, "%2C"+next[1:]) {
				v = strings.ReplaceAll(strings.ReplaceAll(v, "%", "%25"), ",", "%2C")
			}
		}
		b.WriteString(v)
	}
	return b.String()
}

func (d *tableDef) keyValue(field int, v any) string {
	if v == nil {
		return nullKey
	}
	s := storage.KeyText(d.spec.Schema.Fields[field].Type, v)
	switch s {
	case "":
		return emptyKey
	case nullKey, emptyKey:
		return "%5F" + s[1:]
	}
	return s
}

// partitionPath gives the partition path of a row, relative to the table's folder.
func (d *tableDef) partitionPath(row storage.Row) string {
	if len(d.part) == 0 {
		return ""
	}
	var b strings.Builder
	for n, i := range d.part {
		if n > 0 {
			b.WriteByte('/')
		}
		f := d.spec.Schema.Fields[i]
		if d.spec.HiveStyle {
			b.WriteString(f.Name)
			b.WriteByte('=')
		}
		v := nullPartition
		if row[i] != nil {
			if s := storage.KeyText(f.Type, row[i]); s != "" {
				v = s
				if d.urlCode {
					v = escapePath(s)
				}
			}
		}
		b.WriteString(v)
	}
	return b.String()
}

// maxPathPart is the longest part of a partition path, in bytes: file systems allow 255, and engines put suffixes to names.
const maxPathPart = 200

// checkPath refuses a row whose partition path no folder can have.
func (d *tableDef) checkPath(row storage.Row) error {
	if len(d.part) == 0 {
		return nil
	}
	path := d.partitionPath(row)
	for p := range strings.SplitSeq(path, "/") {
		// Without URL encoding, values stand in paths as they are.
		if p == "" || p[0] == '.' || len(p) > maxPathPart || strings.IndexByte(p, 0) >= 0 {
			return fmt.Errorf("%w: partition path %q of a row of %s", ErrInvalid, path, d)
		}
	}
	return nil
}

// escapePath encodes the characters that Hudi's URL encoding of partition paths does, upper-case hexadecimal.
func escapePath(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < 0x20 || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{[]^", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if t := b.String(); t[0] == '.' { // would leave the folder, or be a hidden one
		return "%2E" + t[1:]
	}
	return b.String()
}

// indexKey gives the index key of a row: its key columns, after the partition path where keys are unique in their partition only.
func (d *tableDef) indexKey(row storage.Row, partition string) ([]byte, error) {
	var dst []byte
	if d.spec.PerPartition {
		dst = appendText(dst, partition)
	}
	return index.AppendKey(dst, d.keyCols, row)
}

// KeyOf gives bytes that stand for values of the first columns of an index ("": the primary key), as it compares them.
func (t *Table) KeyOf(name string, values storage.Row) ([]byte, error) {
	d := t.def.Load()
	cols := d.keyCols
	if name != "" {
		cols = nil
		for i := range d.indexes {
			if d.indexes[i].spec.Name == name {
				cols = d.indexes[i].cols
			}
		}
	}
	if len(values) > len(cols) {
		return nil, fmt.Errorf("%w: index %s of %s has %d columns", ErrInvalid, name, d, len(cols))
	}
	var dst []byte
	var err error
	for i, v := range values {
		if dst, err = cols[i].Append(dst, v); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// textKey is the index key of a record whose key is no column.
func (d *tableDef) textKey(key, partition string) []byte {
	var dst []byte
	if d.spec.PerPartition {
		dst = appendText(dst, partition)
	}
	return appendText(dst, key)
}

func appendText(dst []byte, s string) []byte {
	dst, _ = (&index.Column{Kind: storage.String}).Append(dst, s) // a string always has a key
	return dst
}

// compareOrdering compares two values of the ordering column; nil sorts first.
func compareOrdering(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	switch x := a.(type) {
	case bool:
		y := b.(bool)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	case int32:
		return cmp(x, b.(int32))
	case int64:
		return cmp(x, b.(int64))
	case float32:
		return cmp(x, b.(float32))
	case float64:
		return cmp(x, b.(float64))
	case string:
		return strings.Compare(x, b.(string))
	case []byte:
		return strings.Compare(string(x), string(b.([]byte)))
	case decimal128.Num:
		return x.Cmp(b.(decimal128.Num))
	}
	return 0
}

func cmp[T int32 | int64 | float32 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// positive gives the value of an integer column if it is above zero.
func positive(v any) (uint64, bool) {
	switch x := v.(type) {
	case int32:
		return uint64(x), x > 0
	case int64:
		return uint64(x), x > 0
	case float32:
		return uint64(x), x > 0
	case float64:
		return uint64(x), x > 0
	case decimal128.Num:
		b := x.BigInt()
		return b.Uint64(), b.Sign() > 0 && b.Cmp(new(big.Int).SetUint64(^uint64(0))) <= 0
	}
	return 0, false
}
