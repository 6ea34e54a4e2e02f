package storage

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// nestedNode is one level of a column that is a list, a map or a record. Lists come in two layouts: of two levels, whose
// repeated field is the element, and of three, whose repeated group holds it.
type nestedNode struct {
	name     string
	form     nestedForm
	def      int // definition level from which the value is not NULL
	repDef   int // list, map: definition level from which there is an element
	rep      int // list, map: repetition level of further elements
	children []*nestedNode
	first    int // first leaf below, among the column's leaves
	last     int // the one after the last

	col *fileColumn // of a leaf: how its values are read
	id  int         // of a leaf: index among the file's leaves
}

type nestedForm uint8

const (
	leafForm   nestedForm = iota
	recordForm            // children: the fields
	listForm              // children: the element
	mapForm               // children: key and value
)

// newNestedNode describes c, whose parent has these levels; next is the number of the next leaf within the column.
func newNestedNode(c *parquet.Column, def, rep, next int) (*nestedNode, error) {
	if c.Repeated() {
		// A repeated field by itself is a list that cannot be NULL.
		element, err := newElementNode(c, def+1, rep+1, next)
		if err != nil {
			return nil, err
		}
		return &nestedNode{
			name: c.Name(), form: listForm, def: def, repDef: def + 1, rep: rep + 1,
			children: []*nestedNode{element}, first: next, last: element.last,
		}, nil
	}
	if c.Optional() {
		def++
	}
	return newElementNode(c, def, rep, next)
}

// newElementNode is newNestedNode for a column whose own repetition is already in the levels.
func newElementNode(c *parquet.Column, def, rep, next int) (*nestedNode, error) {
	n := &nestedNode{name: c.Name(), def: def, first: next}
	if def > nodeDepthMax {
		return nil, errors.New("nested too deeply")
	}
	if c.Leaf() {
		t, l, err := typeOfLeaf(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		n.col = &fileColumn{name: c.Name(), typ: t, leafType: l}
		n.id, n.last = c.Index(), next+1
		return n, nil
	}
	kids := c.Columns()
	if len(kids) == 0 {
		return nil, fmt.Errorf("%w: %s is an empty group", ErrUnsupported, c.Name())
	}
	var logical any
	if lt := c.Type().LogicalType(); lt != nil {
		logical = lt.Value
	}
	_, isMap := logical.(*format.MapType)
	_, isList := logical.(*format.ListType)
	if len(kids) == 1 && kids[0].Repeated() && (isList || isMap) {
		r := kids[0]
		n.repDef, n.rep = def+1, rep+1
		entry := r.Columns()
		switch {
		case isMap && len(entry) == 2:
			n.form = mapForm
			return n, n.add(entry, n.repDef, n.rep, next)
		case isList && len(entry) == 1 && r.Name() != "array" && r.Name() != c.Name()+"_tuple":
			n.form = listForm
			return n, n.add(entry, n.repDef, n.rep, next)
		case isList:
			n.form = listForm
			element, err := newElementNode(r, n.repDef, n.rep, next)
			if err != nil {
				return nil, err
			}
			n.children, n.last = []*nestedNode{element}, element.last
			return n, nil
		}
	}
	n.form = recordForm
	return n, n.add(kids, def, rep, next)
}

func (n *nestedNode) add(kids []*parquet.Column, def, rep, next int) error {
	for _, k := range kids {
		child, err := newNestedNode(k, def, rep, next)
		if err != nil {
			return err
		}
		n.children = append(n.children, child)
		next = child.last
	}
	n.last = next
	return nil
}

// leaves lists the leaves below in order.
func (n *nestedNode) leaves(dst []*nestedNode) []*nestedNode {
	if n.form == leafForm {
		return append(dst, n)
	}
	for _, c := range n.children {
		dst = c.leaves(dst)
	}
	return dst
}

// avro is the Avro type of the node, without the union with null; path names the records in it.
func (n *nestedNode) avro(path string) *schemaNode {
	orNull := func(c *nestedNode) *schemaNode {
		return &schemaNode{kind: "union", branches: []*schemaNode{{kind: "null"}, c.avro(joinName(path, c.name))}}
	}
	switch n.form {
	case listForm:
		return &schemaNode{kind: "array", items: orNull(n.children[0])}
	case mapForm:
		return &schemaNode{kind: "map", items: orNull(n.children[1])}
	case recordForm:
		r := &schemaNode{kind: "record", name: path}
		for _, c := range n.children {
			r.fields = append(r.fields, nodeField{name: c.name, def: []byte("null"), node: orNull(c)})
		}
		return r
	}
	namespace, name := cutName(path)
	return (&Schema{Namespace: namespace}).avroNode(name, n.col.typ)
}

// nestedReader renders a nested column of one row group as JSON text, row by row.
type nestedReader struct {
	root    *nestedNode
	cursors []leafCursor
	text    []byte
}

// leafCursor walks over the values of one leaf with their levels.
type leafCursor struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    []parquet.Value
	ready  []parquet.Value // rest of buf
	ended  bool
}

func newNestedReader(c *fileColumn, chunks []parquet.ColumnChunk) *nestedReader {
	r := &nestedReader{root: c.node}
	for _, l := range c.node.leaves(nil) {
		r.cursors = append(r.cursors, leafCursor{pages: chunks[l.id].Pages(), buf: make([]parquet.Value, 64)})
	}
	return r
}

func (r *nestedReader) close() {
	for i := range r.cursors {
		c := &r.cursors[i]
		parquet.Release(c.page)
		c.page = nil
		c.pages.Close()
	}
}

func (r *nestedReader) seek(row int64) error {
	for i := range r.cursors {
		c := &r.cursors[i]
		parquet.Release(c.page)
		c.page, c.values, c.ready, c.ended = nil, nil, nil, false
		if err := c.pages.SeekToRow(row); err != nil {
			return err
		}
	}
	return nil
}

// peek gives the next value, nil at the end of the row group.
func (c *leafCursor) peek() (*parquet.Value, error) {
	for len(c.ready) == 0 {
		if c.ended {
			return nil, nil
		}
		if c.values == nil {
			p, err := c.pages.ReadPage()
			if err == io.EOF {
				c.ended = true
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			parquet.Release(c.page)
			c.page, c.values = p, p.Values()
		}
		n, err := c.values.ReadValues(c.buf)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if n == 0 || err == io.EOF {
			c.values = nil
		}
		c.ready = c.buf[:n]
	}
	return &c.ready[0], nil
}

var errNestedLevels = errors.New("the levels of nested values do not fit together")

// head is peek where there must be a value.
func (r *nestedReader) head(leaf int) (*parquet.Value, error) {
	v, err := r.cursors[leaf].peek()
	if v == nil && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return v, err
}

func (r *nestedReader) read(v *vector, n int) error {
	for range n {
		head, err := r.head(r.root.first)
		if err != nil {
			return err
		}
		if head.RepetitionLevel() != 0 {
			return errNestedLevels
		}
		null := head.DefinitionLevel() < r.root.def
		if r.text, err = r.render(r.text[:0], r.root); err != nil {
			return err
		}
		if null {
			v.appendNull()
		} else if err := v.appendText(r.text); err != nil {
			return err
		}
	}
	return nil
}

// skip passes over one value of each leaf of a node that has nothing below it.
func (r *nestedReader) skip(n *nestedNode) error {
	for i := n.first; i < n.last; i++ {
		if _, err := r.head(i); err != nil {
			return err
		}
		r.cursors[i].ready = r.cursors[i].ready[1:]
	}
	return nil
}

func (r *nestedReader) render(dst []byte, n *nestedNode) ([]byte, error) {
	head, err := r.head(n.first)
	if err != nil {
		return dst, err
	}
	if head.DefinitionLevel() < n.def {
		return append(dst, "null"...), r.skip(n)
	}
	switch n.form {
	case leafForm:
		if head.IsNull() {
			return dst, errNestedLevels
		}
		dst, err = n.col.appendJSON(dst, head)
		r.cursors[n.first].ready = r.cursors[n.first].ready[1:]
		return dst, err
	case recordForm:
		dst = append(dst, '{')
		for i, c := range n.children {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendJSONString(dst, c.name), ": "...)
			if dst, err = r.render(dst, c); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	open, shut := byte('['), byte(']')
	if n.form == mapForm {
		open, shut = '{', '}'
	}
	dst = append(dst, open)
	if head.DefinitionLevel() < n.repDef {
		return append(dst, shut), r.skip(n)
	}
	for more := true; more; {
		if n.form == mapForm {
			from := len(dst)
			if dst, err = r.render(dst, n.children[0]); err != nil {
				return dst, err
			}
			if dst[from] != '"' {
				dst = appendJSONString(dst[:from], string(dst[from:]))
			}
			dst = append(dst, ": "...)
		}
		if dst, err = r.render(dst, n.children[len(n.children)-1]); err != nil {
			return dst, err
		}
		next, err := r.cursors[n.first].peek()
		if err != nil {
			return dst, err
		}
		if more = next != nil && next.RepetitionLevel() == n.rep; more {
			dst = append(dst, ", "...)
		}
	}
	return append(dst, shut), nil
}

// appendJSON writes one value of a leaf.
func (l *fileColumn) appendJSON(dst []byte, v *parquet.Value) ([]byte, error) {
	var raw []byte
	if l.kind == parquet.ByteArray || l.kind == parquet.FixedLenByteArray {
		raw = v.ByteArray()
	}
	if l.conv == toDecimal || l.conv == fromUint64 {
		var d decimal128.Num
		switch {
		case l.conv == fromUint64:
			d = decimal128.New(0, v.Uint64())
		case l.kind == parquet.Int32:
			d = decimal128.FromI64(int64(v.Int32()))
		case l.kind == parquet.Int64:
			d = decimal128.FromI64(v.Int64())
		default:
			var ok bool
			if d, ok = readDecimal(raw); !ok {
				return dst, errWideDecimal
			}
		}
		return append(appendPlainDecimal(append(dst, '"'), d, l.typ.Scale), '"'), nil
	}
	switch l.typ.Kind {
	case Bool:
		if v.Boolean() {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case Int32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case Date:
		return appendJSONDate(dst, int64(v.Int32())), nil
	case Int64:
		if l.conv == fromUint32 {
			return strconv.AppendInt(dst, int64(v.Uint32()), 10), nil
		}
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case Timestamp:
		var x int64
		switch {
		case l.kind == parquet.Int96:
			x = int96Micros(v.Bytes())
		case l.conv == fromMillis:
			x = millis.toMicros(v.Int64())
		case l.conv == fromNanos:
			x = nanos.toMicros(v.Int64())
		default:
			x = v.Int64()
		}
		return appendJSONTimestamp(dst, time.UnixMicro(x)), nil
	case Float32:
		if l.conv == fromFloat16 {
			return appendJSONFloat(dst, float64(float16(uint16(raw[0])|uint16(raw[1])<<8)), 32), nil
		}
		return appendJSONFloat(dst, float64(v.Float()), 32), nil
	case Float64:
		return appendJSONFloat(dst, v.Double(), 64), nil
	case String:
		if l.conv == fromUUID {
			return appendJSONString(dst, uuidText(raw)), nil
		}
		return appendJSONString(dst, textOf(raw)), nil
	}
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), '"'), nil
}
