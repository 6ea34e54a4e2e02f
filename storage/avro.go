package storage

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// This file reads Avro schemas into a small tree and steps over Avro binary. Log blocks name their schema only at run
// time, so there are no Go types to decode into: rowcodec.go compiles a tree and a wanted schema into a flat program.

type avroKind uint8

const (
	avroNull avroKind = iota + 1
	avroBool
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroString
	avroBytes
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroRecord
	avroUnion
)

var avroKindNames = [...]string{
	avroNull: "null", avroBool: "boolean", avroInt: "int", avroLong: "long", avroFloat: "float", avroDouble: "double",
	avroString: "string", avroBytes: "bytes", avroFixed: "fixed", avroEnum: "enum", avroArray: "array", avroMap: "map",
	avroRecord: "record", avroUnion: "union",
}

func (k avroKind) String() string { return avroKindNames[k] }

var avroKinds = func() map[string]avroKind {
	m := map[string]avroKind{}
	for k := avroNull; k <= avroUnion; k++ {
		m[k.String()] = k
	}
	return m
}()

// avroType is a node of a schema. A named type that occurs twice is one node.
type avroType struct {
	kind             avroKind
	logical          string
	precision, scale int         // logical type decimal
	size             int         // fixed: bytes
	symbols          []string    // enum
	items            *avroType   // array: items, map: values
	fields           []avroField // record
	branches         []*avroType // union
}

type avroField struct {
	name string
	typ  *avroType
}

// parseAvroType reads the JSON of an Avro schema.
func parseAvroType(text string) (*avroType, error) {
	n, err := parseSchemaNode(text)
	if err != nil {
		return nil, fmt.Errorf("parsing Avro schema: %w", err)
	}
	return newAvroType(n, map[*schemaNode]*avroType{}), nil
}

// newAvroType turns a parsed schema into the form that decoding uses; done keeps a type that contains itself one node.
func newAvroType(n *schemaNode, done map[*schemaNode]*avroType) *avroType {
	if t := done[n]; t != nil {
		return t
	}
	t := &avroType{
		kind: avroKinds[n.kind], logical: n.logical, precision: n.precision, scale: n.scale, size: n.size, symbols: n.symbols,
	}
	done[n] = t
	if n.items != nil {
		t.items = newAvroType(n.items, done)
	}
	for _, f := range n.fields {
		t.fields = append(t.fields, avroField{f.name, newAvroType(f.node, done)})
	}
	for _, b := range n.branches {
		t.branches = append(t.branches, newAvroType(b, done))
	}
	return t
}

// avroDepthMax bounds how deep values nest; a recursive schema over hostile bytes would not end otherwise.
const avroDepthMax = 64

// optional gives the type beside null in a union of one type and null, and the branch of null (0 or 1);
// a type that is no such union has branch -1.
func (t *avroType) optional() (*avroType, int) {
	if t.kind == avroUnion && len(t.branches) == 2 {
		for i, b := range t.branches {
			if b.kind == avroNull && t.branches[1-i].kind != avroNull {
				return t.branches[1-i], i
			}
		}
	}
	return t, -1
}

var (
	errAvroShort = errors.New("avro value ends early")
	errAvroDepth = errors.New("avro values nest too deep")
	errAvroCount = errors.New("avro collection has an impossible size")
)

// avroVar reads a zigzag number of b at i and gives the offset after it, -1 if there is none.
func avroVar(b []byte, i int) (int64, int) {
	var x uint64
	for s := uint(0); s < 64; s += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, -1
		}
		c := b[i]
		i++
		x |= uint64(c&0x7f) << s
		if c < 0x80 {
			return int64(x>>1) ^ -int64(x&1), i
		}
	}
	return 0, -1
}

// avroSpan reads a length and gives the bytes that follow it as b[from:to]; to is -1 if there are fewer.
func avroSpan(b []byte, i int) (from, to int) {
	n, i := avroVar(b, i)
	if i < 0 || n < 0 || n > int64(len(b)-i) {
		return 0, -1
	}
	return i, i + int(n)
}

// avroCount reads the item count of one block of an array or a map; 0 ends the collection. It refuses a count that
// the bytes left cannot hold.
func avroCount(b []byte, i int) (n, next int, err error) {
	c, i := avroVar(b, i)
	if i < 0 {
		return 0, 0, errAvroShort
	}
	if c < 0 {
		if c == math.MinInt64 {
			return 0, 0, errAvroCount
		}
		c = -c
		if _, i = avroVar(b, i); i < 0 { // bytes of the block
			return 0, 0, errAvroShort
		}
	}
	if c > int64(len(b)-i) {
		return 0, 0, errAvroCount
	}
	return int(c), i, nil
}

// skip gives the offset after the value of type t at b[i].
func (t *avroType) skip(b []byte, i, depth int) (int, error) {
	if depth > avroDepthMax {
		return 0, errAvroDepth
	}
	switch t.kind {
	case avroNull:
	case avroBool:
		i++
	case avroInt, avroLong, avroEnum:
		_, i = avroVar(b, i)
	case avroFloat:
		i += 4
	case avroDouble:
		i += 8
	case avroString, avroBytes:
		_, i = avroSpan(b, i)
	case avroFixed:
		i += t.size
	case avroRecord:
		for _, f := range t.fields {
			var err error
			if i, err = f.typ.skip(b, i, depth+1); err != nil {
				return 0, err
			}
		}
	case avroUnion:
		br, next := avroVar(b, i)
		if next < 0 {
			return 0, errAvroShort
		}
		if br < 0 || br >= int64(len(t.branches)) {
			return 0, fmt.Errorf("avro union has no branch %d", br)
		}
		return t.branches[br].skip(b, next, depth+1)
	case avroArray, avroMap:
		for {
			n, next, err := avroCount(b, i)
			if err != nil || n == 0 {
				return next, err
			}
			i = next
			for range n {
				if t.kind == avroMap {
					if _, i = avroSpan(b, i); i < 0 {
						return 0, errAvroShort
					}
				}
				if i, err = t.items.skip(b, i, depth+1); err != nil {
					return 0, err
				}
			}
		}
	}
	if i < 0 || i > len(b) {
		return 0, errAvroShort
	}
	return i, nil
}

// textOf shows bytes that nobody changes any more as a string without a copy.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
