package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// schemaNode is one type of an Avro schema. A named type that occurs again is the same node, so a node may contain itself.
type schemaNode struct {
	kind             string // Avro's type name, or "union"
	name             string // full name of a record, enum or fixed
	fields           []nodeField
	items            *schemaNode // of an array; the values of a map
	branches         []*schemaNode
	symbols          []string
	size             int // bytes of a fixed
	logical          string
	precision, scale int
}

type nodeField struct {
	name string
	def  json.RawMessage // default, nil if there is none
	node *schemaNode
}

// nodeDepthMax bounds nesting, so that a hostile schema cannot exhaust the stack.
const nodeDepthMax = 200

func parseSchemaNode(text string) (*schemaNode, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one value")
	}
	p := nodeParser{named: map[string]*schemaNode{}}
	return p.parse(raw, "", 0)
}

type nodeParser struct{ named map[string]*schemaNode }

func (p *nodeParser) parse(raw json.RawMessage, namespace string, depth int) (*schemaNode, error) {
	if depth > nodeDepthMax {
		return nil, errors.New("nested too deeply")
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, errors.New("type is missing")
	}
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return p.reference(s, namespace)
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		u := &schemaNode{kind: "union"}
		for _, r := range list {
			b, err := p.parse(r, namespace, depth+1)
			if err != nil {
				return nil, err
			}
			if b.kind == "union" {
				return nil, errors.New("union within a union")
			}
			u.branches = append(u.branches, b)
		}
		return u, nil
	case '{':
		return p.object(raw, namespace, depth)
	}
	return nil, fmt.Errorf("%.40s is no type", raw)
}

func (p *nodeParser) reference(s, namespace string) (*schemaNode, error) {
	switch s {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return &schemaNode{kind: s}, nil
	}
	if !strings.Contains(s, ".") {
		if n := p.named[joinName(namespace, s)]; n != nil {
			return n, nil
		}
	}
	if n := p.named[s]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("unknown type %q", s)
}

func (p *nodeParser) object(raw json.RawMessage, namespace string, depth int) (*schemaNode, error) {
	var o struct {
		Type        json.RawMessage   `json:"type"`
		Name        string            `json:"name"`
		Namespace   *string           `json:"namespace"`
		Fields      []json.RawMessage `json:"fields"`
		Items       json.RawMessage   `json:"items"`
		Values      json.RawMessage   `json:"values"`
		Symbols     []string          `json:"symbols"`
		Size        int               `json:"size"`
		LogicalType any               `json:"logicalType"`
		Precision   json.Number       `json:"precision"`
		Scale       json.Number       `json:"scale"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	var kind string
	if len(o.Type) == 0 || o.Type[0] != '"' || json.Unmarshal(o.Type, &kind) != nil {
		// {"type": {…}} and {"type": […]} mean the inner type.
		return p.parse(o.Type, namespace, depth+1)
	}
	logical, _ := o.LogicalType.(string)
	n := &schemaNode{kind: kind, logical: logical}
	if logical == "decimal" {
		n.precision, _ = strconv.Atoi(o.Precision.String())
		n.scale, _ = strconv.Atoi(o.Scale.String())
	}
	switch kind {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return n, nil
	case "array", "map":
		inner := o.Items
		if kind == "map" {
			inner = o.Values
		}
		var err error
		n.items, err = p.parse(inner, namespace, depth+1)
		return n, err
	case "record", "error", "enum", "fixed":
		if o.Name == "" {
			return nil, fmt.Errorf("%s without a name", kind)
		}
		switch {
		case strings.Contains(o.Name, "."):
			n.name = o.Name
		case o.Namespace != nil:
			n.name = joinName(*o.Namespace, o.Name)
		default:
			n.name = joinName(namespace, o.Name)
		}
		if p.named[n.name] != nil {
			return nil, fmt.Errorf("type %s is defined twice", n.name)
		}
		p.named[n.name] = n
	default:
		return p.reference(kind, namespace)
	}
	switch kind {
	case "enum":
		n.symbols = o.Symbols
		return n, nil
	case "fixed":
		if o.Size < 0 {
			return nil, fmt.Errorf("fixed %s of %d bytes", n.name, o.Size)
		}
		n.size = o.Size
		return n, nil
	}
	n.kind = "record"
	inner, _ := cutName(n.name)
	seen := map[string]bool{}
	for _, r := range o.Fields {
		var f struct {
			Name    string          `json:"name"`
			Type    json.RawMessage `json:"type"`
			Default json.RawMessage `json:"default"`
		}
		if err := json.Unmarshal(r, &f); err != nil {
			return nil, err
		}
		if f.Name == "" || seen[f.Name] {
			return nil, fmt.Errorf("record %s: field %q without a name or twice", n.name, f.Name)
		}
		seen[f.Name] = true
		t, err := p.parse(f.Type, inner, depth+1)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		n.fields = append(n.fields, nodeField{name: f.Name, def: f.Default, node: t})
	}
	return n, nil
}

// String gives the type as JSON that stands by itself: each named type is written out where it occurs first.
func (n *schemaNode) String() string {
	p := nodePrinter{defined: map[string]bool{}}
	p.node(n)
	return string(p.buf)
}

type nodePrinter struct {
	buf     []byte
	defined map[string]bool
}

func (p *nodePrinter) text(s string) {
	b, _ := json.Marshal(s) // a string always marshals
	p.buf = append(p.buf, b...)
}

func (p *nodePrinter) node(n *schemaNode) {
	switch n.kind {
	case "union":
		for i, b := range n.branches {
			p.buf = append(p.buf, "[,"[min(i, 1)])
			p.node(b)
		}
		if len(n.branches) == 0 {
			p.buf = append(p.buf, '[')
		}
		p.buf = append(p.buf, ']')
		return
	case "array", "map":
		p.buf = append(p.buf, `{"type":"`+n.kind+`","`+map[string]string{"array": "items", "map": "values"}[n.kind]+`":`...)
		p.node(n.items)
		p.buf = append(p.buf, '}')
		return
	case "record", "enum", "fixed":
		if p.defined[n.name] {
			p.text(n.name)
			return
		}
		p.defined[n.name] = true
		namespace, name := cutName(n.name)
		p.buf = append(p.buf, `{"type":"`+n.kind+`","name":`...)
		p.text(name)
		if namespace != "" {
			p.buf = append(p.buf, `,"namespace":`...)
			p.text(namespace)
		}
	default:
		if n.logical == "" {
			p.text(n.kind)
			return
		}
		p.buf = append(p.buf, `{"type":`...)
		p.text(n.kind)
	}
	switch n.kind {
	case "record":
		p.buf = append(p.buf, `,"fields":[`...)
		for i, f := range n.fields {
			if i > 0 {
				p.buf = append(p.buf, ',')
			}
			p.buf = append(p.buf, `{"name":`...)
			p.text(f.name)
			p.buf = append(p.buf, `,"type":`...)
			p.node(f.node)
			if f.def != nil {
				p.buf = append(p.buf, `,"default":`...)
				p.buf = append(p.buf, f.def...)
			}
			p.buf = append(p.buf, '}')
		}
		p.buf = append(p.buf, ']')
	case "enum":
		b, _ := json.Marshal(n.symbols)
		p.buf = append(append(p.buf, `,"symbols":`...), b...)
	case "fixed":
		p.buf = append(p.buf, `,"size":`+strconv.Itoa(n.size)...)
	}
	if n.logical != "" {
		p.buf = append(p.buf, `,"logicalType":`...)
		p.text(n.logical)
		if n.logical == "decimal" {
			p.buf = append(p.buf, `,"precision":`+strconv.Itoa(n.precision)+`,"scale":`+strconv.Itoa(n.scale)...)
		}
	}
	p.buf = append(p.buf, '}')
}
