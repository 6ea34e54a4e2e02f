package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// interactive reads statements from the keyboard, with line editing and the lines of this session as history.
// An error is printed and the next statement is asked for; the end of input, QUIT or EXIT ends the client.
func (c *client) interactive(ctx context.Context) int {
	keyboard := int(c.s.in.(*os.File).Fd())
	keys := &keyReader{in: c.s.in}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, c.s.out}, "")
	fmt.Fprintf(c.s.out, "lakesql %s. Statements end with ; or \\G. QUIT or Ctrl-D ends.\n\n", versionText())
	var sp splitter
	for {
		prompt := "lakesql> "
		switch {
		case sp.quoted() == '*':
			prompt = "     /*> "
		case sp.quoted() != 0:
			prompt = fmt.Sprintf("      %c> ", sp.quoted())
		case sp.pending():
			prompt = "      -> "
		}
		line, err := readLine(t, keyboard, prompt)
		if keys.interrupted {
			keys.interrupted = false
			sp.reset()
			continue
		}
		if errors.Is(err, term.ErrPasteIndicator) {
			err = nil
		}
		if err != nil {
			fmt.Fprintln(c.s.out)
			if errors.Is(err, io.EOF) {
				return 0
			}
			fmt.Fprintf(c.s.err, "lakesql sql: reading the keyboard: %v\n", err)
			return 1
		}
		for _, st := range sp.feed(line + "\n") {
			if st.quit {
				return 0
			}
			err := c.run(ctx, st)
			if err == nil {
				continue
			}
			fmt.Fprintln(c.s.err, errorText(err, 0)+"\n")
			if lostConnection(err) {
				if err := c.connect(ctx); err != nil {
					fmt.Fprintln(c.s.err, errorText(err, 0)+"\n")
				} else {
					fmt.Fprintln(c.s.err, "Connected again, as a new session.")
				}
			}
		}
	}
}

// readLine edits one line in raw mode; while a statement runs the terminal is as it was, so that Ctrl-C works.
func readLine(t *term.Terminal, keyboard int, prompt string) (string, error) {
	before, err := term.MakeRaw(keyboard)
	if err != nil {
		return "", err
	}
	defer term.Restore(keyboard, before)
	if w, h, err := term.GetSize(keyboard); err == nil && w > 0 {
		t.SetSize(w, h)
	}
	t.SetPrompt(prompt)
	t.SetBracketedPasteMode(true)
	defer t.SetBracketedPasteMode(false)
	return t.ReadLine()
}

// keyReader turns Ctrl-C, for which the line editor would report the end of input, into "empty this line and
// hand it over" (end of line, delete to its start, return) and remembers that it was pressed.
type keyReader struct {
	in          io.Reader
	pending     []byte
	interrupted bool
}

func (k *keyReader) Read(p []byte) (int, error) {
	if len(k.pending) > 0 {
		n := copy(p, k.pending)
		k.pending = k.pending[n:]
		return n, nil
	}
	n, err := k.in.Read(p)
	for i, b := range p[:n] {
		if b == 3 {
			k.interrupted = true
			k.pending = append([]byte("\x05\x15\r"), p[i+1:n]...)
			if i == 0 {
				m := copy(p, k.pending)
				k.pending = k.pending[m:]
				return m, nil
			}
			return i, err
		}
	}
	return n, err
}
