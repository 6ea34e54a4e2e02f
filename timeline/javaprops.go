package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// javaDate is how Java prints a date on top of a properties file.
const javaDate = "Mon Jan 02 15:04:05 MST 2006"

// format writes the properties as Java does: ISO-8859-1, two comment lines, keys in order.
func (p Properties) format(comment string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "#%s\n#%s\n", comment, zoneDate(now()))
	keys := make([]string, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		escapeProperty(&b, k, true)
		b.WriteByte('=')
		escapeProperty(&b, p[k], false)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// escapeProperty writes a key or a value. Every blank of a key is escaped, of a value only the first character.
func escapeProperty(b *strings.Builder, s string, key bool) {
	for i, r := range s {
		switch {
		case r == ' ':
			if key || i == 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(' ')
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\f':
			b.WriteString(`\f`)
		case strings.ContainsRune(`\:=#!`, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r > 0x7e:
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(b, `\u%04X`, u)
			}
		default:
			b.WriteRune(r)
		}
	}
}

// ParseProperties reads the text of a Java properties file.
func ParseProperties(text []byte) (Properties, error) {
	p := Properties{}
	for at := 0; at < len(text); {
		var line []byte
		line, at = logicalLine(text, at)
		if len(line) == 0 {
			continue
		}
		// The key ends at the first separator that no backslash stands before.
		end := 0
		for end < len(line) && !isSeparator(line[end]) {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(line))
		value := trimBlanks(line[end:])
		if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
			value = trimBlanks(value[1:])
		}
		k, err := unescapeProperty(line[:end])
		if err != nil {
			return nil, err
		}
		v, err := unescapeProperty(value)
		if err != nil {
			return nil, fmt.Errorf("value of %q: %w", k, err)
		}
		p[k] = v
	}
	return p, nil
}

// logicalLine gives the line at an offset without the blanks in front of it, joined with the lines that continue it, and
// the offset of the next one. Comments and empty lines come out empty.
func logicalLine(text []byte, at int) (line []byte, next int) {
	for first := true; at < len(text); first = false {
		end := at
		for end < len(text) && text[end] != '\n' && text[end] != '\r' {
			end++
		}
		part := trimBlanks(text[at:end])
		if end+1 < len(text) && text[end] == '\r' && text[end+1] == '\n' {
			end++
		}
		at = min(end+1, len(text))
		if first && (len(part) == 0 || part[0] == '#' || part[0] == '!') {
			return nil, at
		}
		slashes := 0
		for slashes < len(part) && part[len(part)-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return append(line, part...), at
		}
		line = append(line, part[:len(part)-1]...)
	}
	return line, at
}

func isBlank(c byte) bool     { return c == ' ' || c == '\t' || c == '\f' }
func isSeparator(c byte) bool { return isBlank(c) || c == '=' || c == ':' }

func trimBlanks(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

func unescapeProperty(b []byte) (string, error) {
	units := make([]uint16, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' {
			units = append(units, uint16(c)) // ISO-8859-1 is the first 256 code points
			continue
		}
		if i++; i == len(b) {
			break // Java drops a lone backslash at the end
		}
		switch c = b[i]; c {
		case 't':
			units = append(units, '\t')
		case 'n':
			units = append(units, '\n')
		case 'r':
			units = append(units, '\r')
		case 'f':
			units = append(units, '\f')
		case 'u':
			if i+4 >= len(b) {
				return "", fmt.Errorf("escape %q is cut short", b[i-1:])
			}
			var u uint16
			for _, h := range b[i+1 : i+5] {
				d := hexDigit(h)
				if d < 0 {
					return "", fmt.Errorf("escape %q has no four hex digits", b[i-1:i+5])
				}
				u = u<<4 | uint16(d)
			}
			units = append(units, u)
			i += 4
		default:
			units = append(units, uint16(c))
		}
	}
	out := make([]byte, 0, len(units))
	for _, r := range utf16.Decode(units) {
		out = utf8.AppendRune(out, r)
	}
	return string(out), nil
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// zoneDate prints a date as Java does in comments.
func zoneDate(t time.Time) string { return t.UTC().Format(javaDate) }
