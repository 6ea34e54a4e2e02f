package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of the README: the commands of a step, or what they print.
type block struct{ language, text string }

// tourBlocks returns the fenced blocks between "<!-- tour -->" and "<!-- end of tour -->".
func tourBlocks(t *testing.T) []block {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "<!-- tour -->")
	require.True(t, ok)
	tour, _, ok := strings.Cut(rest, "<!-- end of tour -->")
	require.True(t, ok)
	var blocks []block
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(tour, -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return blocks
}

// TestTour pastes the README's tour into a shell and compares what it prints. A block of sh is run, the block of text
// after it is what it prints; `make run` starts the server, in the folder of its data. Times differ and are not compared.
func TestTour(t *testing.T) {
	_, err := exec.LookPath("mariadb")
	need(t, err == nil, "the mariadb client is not installed (Debian: mariadb-client)")
	dir := t.TempDir()
	data := dir + "/lakesql-data"
	var p *process
	addr, port := "", ""
	blocks := tourBlocks(t)
	ran := 0
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		if strings.TrimSpace(b.text) == "make run" {
			if p != nil { // it was killed by the block before
				p.cmd.Wait()
			}
			p = startProcess(t, data, addr)
			addr, port = p.addr, p.port(t) // it comes back where it was
			continue
		}
		require.NotNil(t, p, "the tour begins with make run")
		text := strings.ReplaceAll(b.text, "-P 3306", "-P "+port)
		text = strings.ReplaceAll(text, "bin/lakesql", binary(t))
		shell := exec.Command("bash", "-euo", "pipefail", "-c", text)
		shell.Dir = dir
		out, err := shell.CombinedOutput()
		require.NoError(t, err, "%s\n%s", text, out)
		ran++
		if i+1 < len(blocks) && blocks[i+1].language == "text" {
			require.Equal(t, blocks[i+1].text, string(out), text)
		}
	}
	require.Greater(t, ran, 3)
	p.stop(t)
}
