package dialect

import (
	"strings"
	"testing"
)

// lexed writes tokens as "kind:text".
func lexed(text string, ansi bool) string {
	kinds := map[Kind]string{
		Word: "w", Quoted: "q", String: "s", Number: "n", Literal: "l", Param: "p", Bound: "b", Variable: "v",
		Op: "o", Semicolon: ";", Comment: "c", Incomplete: "!",
	}
	l := NewLexer(text, ansi)
	var out []string
	for {
		t := l.Next()
		if t.Kind == EOF {
			return strings.Join(out, " ")
		}
		out = append(out, kinds[t.Kind]+":"+t.Text(text))
	}
}

func TestLexer(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"SELECT a.b,`c``d` FROM t", "w:SELECT w:a o:. w:b o:, q:`c``d` w:FROM w:t"},
		{`'it''s' "a""b" 'a\'b' "c\"d"`, `s:'it''s' s:"a""b" s:'a\'b' s:"c\"d"`},
		{"1 1.5 .5 1e3 1.e-2 0x1F x'1f' b'01' 1st t.1a", "n:1 n:1.5 n:.5 n:1e3 n:1.e-2 n:0x1F l:x'1f' l:b'01' w:1st w:t o:. w:1a"},
		{"? :v12 :=1 a=>b c->>'$.x' <=> >= *", "p:? b::v12 o::= n:1 w:a o:=> w:b w:c o:->> s:'$.x' o:<=> o:>= o:*"},
		{"@a @@global.x @`b c` @'d'", "v:@a v:@@global.x v:@`b c` v:@'d'"},
		{"a -- b'\nc # d\n/* ; ' */ e // f", "w:a c:-- b'\n w:c c:# d\n c:/* ; ' */ w:e c:// f"},
		{"/*!40101 SET x=1 */; /*+ hint */", "c:/*!40101 SET x=1 */ ;:; c:/*+ hint */"},
		{"'open", "!:'open"},
		{"`open", "!:`open"},
		{"/* open", "!:/* open"},
		{"größe $x ¤", "w:größe w:$x w:¤"},
		{`'a\\' b`, `s:'a\\' w:b`},
	} {
		if got := lexed(c.text, false); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	if got, want := lexed(`"a\" 'b"`, true), `q:"a\" !:'b"`; got != want {
		t.Errorf("ANSI quotes: got %s, want %s", got, want)
	}
}

func TestQuotes(t *testing.T) {
	for _, s := range []string{"", "a", "it's", `back\slash`, "nul\x00nul", "line\nline", `"`, "`"} {
		if got := unquote(quoteString(s)); got != s {
			t.Errorf("string %q came back as %q", s, got)
		}
		if got := unquote(quoteName(s)); got != s {
			t.Errorf("name %q came back as %q", s, got)
		}
	}
	if got := unquote(`'a''b\'c\n\t\0\Z\%'`); got != "a'b'c\n\t\x00\x1a%" {
		t.Errorf("escapes: %q", got)
	}
}

// The text keeps its length and its lines; what is not touched keeps its place.
func FuzzLexer(f *testing.F) {
	for _, s := range append(corpus, "/*!50001 a /* b */ c */", "/*!", "/*M!", "'\\", "`", "@", "@`", ":v", "0x", "1e", ".", "/*!99999 x", "\x00", "a\xffb", "select 5--1;") {
		f.Add(s, false)
		f.Add(s, true)
	}
	p := &Parser{}
	f.Fuzz(func(t *testing.T, text string, ansi bool) {
		l := NewLexer(text, ansi)
		end := 0
		for {
			tok := l.Next()
			if tok.Kind == EOF {
				if tok.Pos != len(text) {
					t.Fatalf("end at %d of %d", tok.Pos, len(text))
				}
				break
			}
			if tok.Pos < end || tok.End <= tok.Pos || tok.End > len(text) {
				t.Fatalf("token %v behind %d in %q", tok, end, text)
			}
			if strings.Trim(text[end:tok.Pos], " \t\r\n\f\v\x00") != "" {
				t.Fatalf("%q lost between tokens of %q", text[end:tok.Pos], text)
			}
			end = tok.End
		}
		s := scan(text, ansi)
		if len(s.text) != len(text) || s.end > s.next || s.next > len(text) {
			t.Fatalf("scan of %q: %+v", text, s)
		}
		if strings.Count(s.text, "\n") != strings.Count(text, "\n") {
			t.Fatalf("scan of %q lost lines: %q", text, s.text)
		}
		if got := unquote(quoteString(text)); got != text {
			t.Fatalf("string %q came back as %q", text, got)
		}
		_, _ = p.ParseSimple(text) // must not panic
		if e, ok := EscapePrepare(text); ok {
			if inner, ok := Unescape(e); ok && inner != text {
				t.Fatalf("escape of %q came back as %q", text, inner)
			}
		}
	})
}
