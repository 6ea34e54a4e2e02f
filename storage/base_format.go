package storage

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
)

// leafFormat is how a column stands in a base file.
type leafFormat struct {
	unit  timeUnit // of a timestamp
	width int      // bytes of a fixed column, 0: another one
	plain bool     // text written as it is
}

// messageType builds the file's schema in column order.
func (w *BaseWriter) messageType() (parquet.Node, error) {
	fields := make([]parquet.Field, len(w.columns))
	seen := map[string]bool{}
	for i := range w.columns {
		c := &w.columns[i]
		name := c.field.Name
		if seen[name] {
			return nil, fmt.Errorf("column %s occurs twice", name)
		}
		seen[name] = true
		node, leaf, err := w.schema.leafNode(c.field)
		if err != nil {
			return nil, err
		}
		c.leaf = leaf
		switch {
		case c.field.Type.Kind == Bool, name == ColCommitSeqno, name == ColRecordKey:
			// A dictionary of keys, which never occur twice, would be built for nothing.
			node = parquet.Encoded(node, &parquet.Plain)
		default:
			node = parquet.Encoded(node, &parquet.RLEDictionary)
		}
		fields[i] = orderedField{Node: parquet.Optional(node), name: name}
	}
	return orderedGroup{Group: parquet.Group{}, fields: fields}, nil
}

// leafNode gives the parquet type in which Hudi's Avro writer puts a column.
func (s *Schema) leafNode(f Field) (parquet.Node, leafFormat, error) {
	t := f.Type
	var avro schemaNode
	if t.Avro != "" {
		n, err := parseSchemaNode(t.Avro)
		if err != nil {
			return nil, leafFormat{}, fmt.Errorf("column %s: %w", f.Name, err)
		}
		avro = *n
	}
	switch t.Kind {
	case Bool:
		return parquet.Leaf(parquet.BooleanType), leafFormat{}, nil
	case Int32:
		if avro.logical == "time-millis" {
			return parquet.Time(parquet.Millisecond), leafFormat{}, nil
		}
		return parquet.Leaf(parquet.Int32Type), leafFormat{}, nil
	case Int64:
		if avro.logical == "time-micros" {
			return parquet.Time(parquet.Microsecond), leafFormat{}, nil
		}
		return parquet.Leaf(parquet.Int64Type), leafFormat{}, nil
	case Float32:
		return parquet.Leaf(parquet.FloatType), leafFormat{}, nil
	case Float64:
		return parquet.Leaf(parquet.DoubleType), leafFormat{}, nil
	case String:
		if avro.kind == "enum" {
			return parquet.Enum(), leafFormat{plain: true}, nil
		}
		return parquet.String(), leafFormat{plain: true}, nil
	case Bytes:
		if avro.kind == "fixed" {
			return parquet.Leaf(parquet.FixedLenByteArrayType(avro.size)), leafFormat{width: avro.size}, nil
		}
		return parquet.Leaf(parquet.ByteArrayType), leafFormat{}, nil
	case Date:
		return parquet.Date(), leafFormat{}, nil
	case Timestamp:
		unit, adjusted := timestampUnit(t), !strings.HasPrefix(avro.logical, "local-")
		of := map[timeUnit]parquet.TimeUnit{micros: parquet.Microsecond, millis: parquet.Millisecond, nanos: parquet.Nanosecond}[unit]
		return parquet.TimestampAdjusted(of, adjusted), leafFormat{unit: unit}, nil
	case Decimal:
		if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
			return nil, leafFormat{}, fmt.Errorf("column %s: %w: %s", f.Name, ErrUnsupported, t)
		}
		if avro.kind == "bytes" {
			return parquet.Decimal(t.Scale, t.Precision, parquet.ByteArrayType), leafFormat{}, nil
		}
		width := decimalWidth(t.Precision)
		if avro.kind == "fixed" {
			if avro.size < width {
				return nil, leafFormat{}, fmt.Errorf("column %s: %s in %d bytes", f.Name, t, avro.size)
			}
			width = avro.size
		}
		return parquet.Decimal(t.Scale, t.Precision, parquet.FixedLenByteArrayType(width)), leafFormat{width: width}, nil
	}
	return nil, leafFormat{}, fmt.Errorf("column %s: %w: writing %s", f.Name, ErrUnsupported, t)
}

// orderedGroup is a parquet.Group whose fields keep their order, where Group sorts them by name.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

func (g orderedGroup) Fields() []parquet.Field { return g.fields }
func (g orderedGroup) String() string          { return "group" }
func (g orderedGroup) GoType() reflect.Type    { return reflect.TypeFor[struct{}]() }

type orderedField struct {
	parquet.Node
	name string
}

func (f orderedField) Name() string                      { return f.name }
func (f orderedField) Value(reflect.Value) reflect.Value { return reflect.Value{} }

// bytesOf gives the bytes of a text without copying them; they must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
