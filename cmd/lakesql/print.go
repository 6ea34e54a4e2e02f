package main

import (
	"bufio"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// format is a way to print a result.
type format int

const (
	formatAuto     format = iota // table on a terminal, tabs elsewhere
	formatTable                  // boxes, numbers to the right
	formatTabs                   // header line, tab-separated, \t \n \0 \\ escaped, NULL as the word
	formatCSV                    // header line, comma-separated, NULL empty, empty text ""
	formatJSON                   // one object a line
	formatVertical               // one column a line (\G)
)

// widthRows is how many rows a table looks at for its column widths; later rows are printed as they come, so
// that a large result needs no memory.
const widthRows = 1000

// cell is one value as text; null has no text.
type cell struct {
	text string
	null bool
}

type kind int

const (
	kindText kind = iota
	kindNumber
	kindBinary
	kindJSON
)

func columnKind(t *sql.ColumnType) kind {
	name := strings.TrimPrefix(strings.ToUpper(t.DatabaseTypeName()), "UNSIGNED ")
	switch name {
	case "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE", "YEAR":
		return kindNumber
	case "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BIT", "GEOMETRY":
		return kindBinary
	case "JSON":
		return kindJSON
	}
	return kindText
}

// printRows prints one result set and returns the number of its rows.
func printRows(w *bufio.Writer, rows *sql.Rows, f format, noNames, hexBinary bool) (int64, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return 0, err
	}
	names, kinds := make([]string, len(types)), make([]kind, len(types))
	for i, t := range types {
		names[i], kinds[i] = t.Name(), columnKind(t)
	}
	var p rowPrinter
	switch f {
	case formatTable:
		p = &tablePrinter{w: w, names: names, kinds: kinds}
	case formatCSV:
		p = &csvPrinter{w: w}
	case formatJSON:
		p = &jsonPrinter{w: w, names: names, kinds: kinds}
	case formatVertical:
		p = &verticalPrinter{w: w, names: names}
	default:
		p = &tabPrinter{w: w}
	}
	if !noNames {
		if h, ok := p.(interface{ header([]string) }); ok {
			h.header(names)
		}
	}
	values, ptrs := make([]any, len(types)), make([]any, len(types))
	for i := range values {
		ptrs[i] = &values[i]
	}
	var n int64
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return n, err
		}
		row := make([]cell, len(values))
		for i, v := range values {
			row[i] = valueText(v, types[i].DatabaseTypeName())
			if kinds[i] == kindBinary && !row[i].null && (f != formatTabs || hexBinary) {
				row[i].text = "0x" + strings.ToUpper(hex.EncodeToString([]byte(row[i].text)))
			}
		}
		p.row(row)
		n++
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	p.end()
	return n, nil
}

// valueText is a value in MySQL's own words. Over the wire values are text already; in process they are typed.
func valueText(v any, typeName string) cell {
	switch v := v.(type) {
	case nil:
		return cell{null: true}
	case []byte:
		return cell{text: string(v)}
	case string:
		return cell{text: v}
	case int64:
		return cell{text: strconv.FormatInt(v, 10)}
	case uint64:
		return cell{text: strconv.FormatUint(v, 10)}
	case bool:
		if v {
			return cell{text: "1"}
		}
		return cell{text: "0"}
	case float32:
		return cell{text: floatText(float64(v), 32)}
	case float64:
		return cell{text: floatText(v, 64)}
	case time.Time:
		layout := "2006-01-02 15:04:05"
		switch {
		case strings.EqualFold(typeName, "DATE"):
			layout = "2006-01-02"
		case v.Nanosecond() != 0:
			layout = "2006-01-02 15:04:05.000000"
		}
		return cell{text: v.Format(layout)}
	}
	return cell{text: fmt.Sprint(v)}
}

// floatText prints the shortest digits that read back as the same number, with an exponent where MySQL has one.
func floatText(f float64, bits int) string {
	if a := math.Abs(f); a != 0 && (a < 1e-15 || a >= 1e15) {
		s := strconv.FormatFloat(f, 'e', -1, bits)
		m, e, _ := strings.Cut(s, "e")
		n, _ := strconv.Atoi(e)
		return m + "e" + strconv.Itoa(n)
	}
	return strconv.FormatFloat(f, 'f', -1, bits)
}

type rowPrinter interface {
	row([]cell)
	end()
}

type tabPrinter struct{ w *bufio.Writer }

var tabEscapes = strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`, "\x00", `\0`)

func (p *tabPrinter) header(names []string) {
	p.w.WriteString(strings.Join(names, "\t"))
	p.w.WriteByte('\n')
}

func (p *tabPrinter) row(r []cell) {
	for i, c := range r {
		if i > 0 {
			p.w.WriteByte('\t')
		}
		if c.null {
			p.w.WriteString("NULL")
		} else {
			tabEscapes.WriteString(p.w, c.text)
		}
	}
	p.w.WriteByte('\n')
}

func (p *tabPrinter) end() {}

type csvPrinter struct{ w *bufio.Writer }

func (p *csvPrinter) header(names []string) {
	r := make([]cell, len(names))
	for i, n := range names {
		r[i].text = n
	}
	p.row(r)
}

func (p *csvPrinter) row(r []cell) {
	for i, c := range r {
		if i > 0 {
			p.w.WriteByte(',')
		}
		switch {
		case c.null:
		case c.text == "" || strings.ContainsAny(c.text, ",\"\r\n") || c.text[0] == ' ' || c.text[len(c.text)-1] == ' ':
			p.w.WriteByte('"')
			p.w.WriteString(strings.ReplaceAll(c.text, `"`, `""`))
			p.w.WriteByte('"')
		default:
			p.w.WriteString(c.text)
		}
	}
	p.w.WriteByte('\n')
}

func (p *csvPrinter) end() {}

type jsonPrinter struct {
	w     *bufio.Writer
	names []string
	kinds []kind
}

func (p *jsonPrinter) row(r []cell) {
	p.w.WriteByte('{')
	for i, c := range r {
		if i > 0 {
			p.w.WriteByte(',')
		}
		p.w.Write(jsonText(p.names[i]))
		p.w.WriteByte(':')
		switch {
		case c.null:
			p.w.WriteString("null")
		case (p.kinds[i] == kindNumber || p.kinds[i] == kindJSON) && json.Valid([]byte(c.text)):
			p.w.WriteString(c.text) // all digits stand; documents stay documents
		default:
			p.w.Write(jsonText(c.text))
		}
	}
	p.w.WriteString("}\n")
}

func (p *jsonPrinter) end() {}

func jsonText(s string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always encodes
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

type verticalPrinter struct {
	w     *bufio.Writer
	names []string
	n     int
}

func (p *verticalPrinter) row(r []cell) {
	p.n++
	fmt.Fprintf(p.w, "*************************** %d. row ***************************\n", p.n)
	width := 0
	for _, n := range p.names {
		width = max(width, utf8.RuneCountInString(n))
	}
	for i, c := range r {
		if c.null {
			c.text = "NULL"
		}
		fmt.Fprintf(p.w, "%*s: %s\n", width, p.names[i], c.text)
	}
}

func (p *verticalPrinter) end() {}

type tablePrinter struct {
	w      *bufio.Writer
	names  []string
	kinds  []kind
	held   [][]cell // rows that wait for the widths
	widths []int    // nil while rows are held
}

func (p *tablePrinter) row(r []cell) {
	for i := range r {
		if r[i].null {
			r[i].text = "NULL"
		}
	}
	if p.widths != nil {
		p.line(r, false)
		return
	}
	p.held = append(p.held, r)
	if len(p.held) == widthRows {
		p.open()
	}
}

func (p *tablePrinter) end() {
	if p.widths == nil && len(p.held) > 0 {
		p.open()
	}
	if p.widths != nil {
		p.rule()
	}
}

func (p *tablePrinter) open() {
	p.widths = make([]int, len(p.names))
	head := make([]cell, len(p.names))
	for i, n := range p.names {
		p.widths[i] = utf8.RuneCountInString(n)
		head[i].text = n
	}
	for _, r := range p.held {
		for i, c := range r {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	p.rule()
	p.line(head, true)
	p.rule()
	for _, r := range p.held {
		p.line(r, false)
	}
	p.held = nil
}

func (p *tablePrinter) rule() {
	for _, n := range p.widths {
		p.w.WriteByte('+')
		for range n + 2 {
			p.w.WriteByte('-')
		}
	}
	p.w.WriteString("+\n")
}

func (p *tablePrinter) line(r []cell, head bool) {
	for i, c := range r {
		pad := strings.Repeat(" ", max(0, p.widths[i]-utf8.RuneCountInString(c.text)))
		p.w.WriteString("| ")
		if p.kinds[i] == kindNumber && !head {
			p.w.WriteString(pad + c.text)
		} else {
			p.w.WriteString(c.text + pad)
		}
		p.w.WriteByte(' ')
	}
	p.w.WriteString("|\n")
}
