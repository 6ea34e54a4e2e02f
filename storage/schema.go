package storage

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// ParseAvro reads a record schema in Avro's JSON. The meta columns are left out: commits carry the schema with and
// without them. A type that is no single column type becomes Nested and keeps its Avro schema.
func ParseAvro(json string) (*Schema, error) {
	n, err := parseSchemaNode(json)
	if err != nil {
		return nil, fmt.Errorf("parsing Avro schema: %w", err)
	}
	if n.kind != "record" {
		return nil, fmt.Errorf("parsing Avro schema: %s at the top, not a record", n.kind)
	}
	s := &Schema{}
	s.Namespace, s.Name = cutName(n.name)
	for _, f := range n.fields {
		if isHidden(f.name) {
			continue
		}
		t, nullable, err := s.columnType(f.name, f.node)
		if err != nil {
			return nil, fmt.Errorf("parsing Avro schema: column %s: %w", f.name, err)
		}
		s.Fields = append(s.Fields, Field{Name: f.name, Type: t, Nullable: nullable})
	}
	return s, nil
}

// isHidden tells whether a column is Hudi's and none of the table's. The flag _hoodie_is_deleted is the table's own.
func isHidden(name string) bool { return isMetaColumn(name) || name == "_hoodie_operation" }

// columnType maps an Avro type to a column's. Type.Avro stays empty where Schema.Avro would write the same type again.
func (s *Schema) columnType(column string, n *schemaNode) (t Type, nullable bool, err error) {
	if n.kind == "union" {
		var rest []*schemaNode
		for _, b := range n.branches {
			if b.kind == "null" {
				nullable = true
			} else {
				rest = append(rest, b)
			}
		}
		switch len(rest) {
		case 0:
			return Type{Kind: String, Avro: `"null"`}, true, nil
		case 1:
			n = rest[0]
		default:
			return Type{Kind: Nested, Avro: n.String()}, nullable, nil
		}
	}
	plain := n.logical == ""
	switch n.kind {
	case "null":
		return Type{Kind: String, Avro: `"null"`}, true, nil
	case "boolean":
		t.Kind = Bool
	case "int":
		t.Kind = Int32
		if n.logical == "date" {
			t.Kind, plain = Date, true
		}
	case "long":
		t.Kind = Int64
		switch n.logical {
		case "timestamp-micros":
			t.Kind, plain = Timestamp, true
		case "timestamp-millis", "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos":
			t.Kind = Timestamp
		}
	case "float":
		t.Kind = Float32
	case "double":
		t.Kind = Float64
	case "string":
		t.Kind = String
	case "enum":
		t.Kind, plain = String, false
	case "bytes", "fixed":
		t.Kind, plain = Bytes, plain && n.kind == "bytes"
		if n.logical == "decimal" {
			if n.precision < 1 || n.precision > 38 || n.scale < 0 || n.scale > n.precision {
				return t, nullable, fmt.Errorf("%w: decimal(%d,%d)", ErrUnsupported, n.precision, n.scale)
			}
			t = Type{Kind: Decimal, Precision: n.precision, Scale: n.scale}
			plain = n.kind == "fixed" && n.size == decimalWidth(n.precision) && n.name == s.decimalName(column)
		}
	case "record", "array", "map":
		t.Kind, plain = Nested, false
	default:
		return t, nullable, fmt.Errorf("%w: Avro type %s", ErrUnsupported, n.kind)
	}
	if !plain {
		t.Avro = n.String()
	}
	return t, nullable, nil
}

// decimalName is the full name that Hudi gives to the fixed type of a decimal column.
func (s *Schema) decimalName(column string) string { return joinName(s.fullName(), column) + ".fixed" }

func (s *Schema) fullName() string { return joinName(s.Namespace, s.Name) }

func joinName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "." + name
}

func cutName(full string) (namespace, name string) {
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		return full[:i], full[i+1:]
	}
	return "", full
}

// decimalWidths[p] is the least number of bytes that holds p digits in two's complement.
var decimalWidths = func() (w [39]int) {
	limit := big.NewInt(1)
	for p := 1; p < len(w); p++ {
		limit.Mul(limit, big.NewInt(10))
		w[p] = new(big.Int).Sub(limit, big.NewInt(1)).BitLen()/8 + 1
	}
	return w
}()

func decimalWidth(precision int) int { return decimalWidths[precision] }

// Avro gives the schema as Avro JSON. Every column is a union of null and its type, null first and as the default, as
// Hudi writes them; with meta the five meta columns stand in front.
func (s *Schema) Avro(meta bool) string {
	p := nodePrinter{defined: map[string]bool{s.fullName(): true}}
	p.buf = append(p.buf, `{"type":"record","name":`...)
	p.text(s.Name)
	if s.Namespace != "" {
		p.buf = append(p.buf, `,"namespace":`...)
		p.text(s.Namespace)
	}
	p.buf = append(p.buf, `,"fields":[`...)
	sep := ""
	field := func(name, doc string, t Type) {
		p.buf = append(p.buf, sep+`{"name":`...)
		sep = ","
		p.text(name)
		n := s.avroNode(name, t)
		if n.kind == "union" || n.kind == "null" {
			p.buf = append(p.buf, `,"type":`...)
			p.node(nullFirst(n))
		} else {
			p.buf = append(p.buf, `,"type":["null",`...)
			p.node(n)
			p.buf = append(p.buf, ']')
		}
		p.buf = append(p.buf, doc+`,"default":null}`...)
	}
	if meta {
		for _, name := range MetaColumns {
			field(name, `,"doc":""`, Type{Kind: String})
		}
	}
	for _, f := range s.Fields {
		if meta && isHidden(f.Name) {
			continue
		}
		field(f.Name, "", f.Type)
	}
	p.buf = append(p.buf, `]}`...)
	return string(p.buf)
}

// nullFirst turns a union, or null alone, into a union that begins with null.
func nullFirst(n *schemaNode) *schemaNode {
	u := &schemaNode{kind: "union", branches: []*schemaNode{{kind: "null"}}}
	for _, b := range n.branches {
		if b.kind != "null" {
			u.branches = append(u.branches, b)
		}
	}
	return u
}

// avroNode is the Avro type of a column without the union with null.
func (s *Schema) avroNode(column string, t Type) *schemaNode {
	if t.Avro != "" {
		// It was printed by ParseAvro, or is refused by who reads the schema back.
		if n, err := parseSchemaNode(t.Avro); err == nil {
			return n
		}
	}
	switch t.Kind {
	case Bool:
		return &schemaNode{kind: "boolean"}
	case Int32:
		return &schemaNode{kind: "int"}
	case Int64:
		return &schemaNode{kind: "long"}
	case Float32:
		return &schemaNode{kind: "float"}
	case Float64:
		return &schemaNode{kind: "double"}
	case Bytes:
		return &schemaNode{kind: "bytes"}
	case Date:
		return &schemaNode{kind: "int", logical: "date"}
	case Timestamp:
		return &schemaNode{kind: "long", logical: "timestamp-micros"}
	case Decimal:
		return &schemaNode{
			kind: "fixed", name: s.decimalName(column), size: decimalWidth(t.Precision),
			logical: "decimal", precision: t.Precision, scale: t.Scale,
		}
	default:
		return &schemaNode{kind: "string"}
	}
}

// Select gives the schema of the named columns in the order of the names. Meta columns may be named whether the schema
// has them or not; another name that the schema lacks is an error.
func (s *Schema) Select(names ...string) (*Schema, error) {
	out := &Schema{Name: s.Name, Namespace: s.Namespace, Fields: make([]Field, len(names))}
	for i, name := range names {
		switch at := s.Index(name); {
		case at >= 0:
			out.Fields[i] = s.Fields[at]
		case isMetaColumn(name):
			out.Fields[i] = Field{Name: name, Type: Type{Kind: String}, Nullable: true}
		default:
			return nil, fmt.Errorf("select columns of %s: no column %s", s.Name, name)
		}
	}
	return out, nil
}

func isMetaColumn(name string) bool {
	for _, m := range MetaColumns {
		if m == name {
			return true
		}
	}
	return false
}

// Promotable tells whether a column may change from one type to another with the data files left as they are: readers
// convert old values (ConvertValue). These are Hudi's own rules, without text to number.
func Promotable(from, to Type) bool {
	if from.Kind == to.Kind {
		switch from.Kind {
		case Decimal:
			return to.Scale >= from.Scale && to.Precision-to.Scale >= from.Precision-from.Scale
		case Nested:
			return from.Avro == to.Avro
		}
		return true
	}
	switch to.Kind {
	case Int64:
		return from.Kind == Int32
	case Float32:
		return from.Kind == Int32 || from.Kind == Int64
	case Float64:
		return from.Kind == Int32 || from.Kind == Int64 || from.Kind == Float32
	case Decimal:
		return from.Kind == Int32 && to.Precision-to.Scale >= 10 || from.Kind == Int64 && to.Precision-to.Scale >= 19
	case String:
		switch from.Kind {
		case Int32, Int64, Float32, Float64, Decimal, Date:
			return true
		}
	}
	return false
}

// String names the type as messages show it.
func (t Type) String() string {
	switch t.Kind {
	case Bool:
		return "boolean"
	case Int32:
		return "int"
	case Int64:
		return "long"
	case Float32:
		return "float"
	case Float64:
		return "double"
	case String:
		return "string"
	case Bytes:
		return "bytes"
	case Date:
		return "date"
	case Timestamp:
		return "timestamp"
	case Decimal:
		return "decimal(" + strconv.Itoa(t.Precision) + "," + strconv.Itoa(t.Scale) + ")"
	case Nested:
		return "nested " + t.Avro
	}
	return "kind " + strconv.Itoa(int(t.Kind))
}
