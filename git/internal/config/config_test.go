package config_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/config"
	"github.com/headgate-io/headgate/internal/testenv"
)

// list returns the variables of text as git config --list --null prints them.
func list(text string) (string, error) {
	var b strings.Builder
	for e, err := range config.Parse(text) {
		if err != nil {
			return "", err
		}
		b.WriteString(e.Name())
		if !e.Bare {
			b.WriteString("\n" + e.Value)
		}
		b.WriteByte(0)
	}
	return b.String(), nil
}

// As in git, text that is not well formed is refused with its line.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"x = 1":                 "line 1: a variable outside",
		"[a]\n\n= 1":            "line 3: neither",
		"[a]\nx 1":              "line 2: neither",
		"[a]\nx # c":            "line 2: neither",
		"[a]\n1x = 1":           "line 2: neither",
		"[":                     "line 1: a section",
		"[a":                    "line 1: a section",
		"[]":                    "line 1: a section",
		"[a b]":                 "line 1: a section",
		"[a \"b\" ]":            "line 1: a section",
		"[a \"b]":               "line 1: a quote",
		"[a \"b\n\"]":           "line 1: a quote",
		"[a \"b\\\n\"]":         "line 1: a quote",
		"[a]\nx = \"b\ny = 1":   "line 2: a quote",
		"[a]\nx = \\q":          "line 2: a backslash",
		"[a]\n\nx = b\x00":      "line 3: a NUL byte",
		"[a \"\x00\"]\n":        "line 1: a NUL byte",
		"[a_b]\n":               "line 1: a section",
		"[a]\nx = 1\n[b\nx = 2": "line 3: a section",
	} {
		if got, err := list(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error that says %q", text, got, err, want)
		}
	}
}

// pieces combine to texts that are often well formed.
var pieces = []string{
	"[submodule \"a\"]\n", "[submodule \"b/\\\"c\"] ", "[x]", "[", "]", "\"", "\\", "\n", "\n\t", "\r\n", " ", "=", " = ", "#", "; c\n",
	"path", "url = ../x.git\n", "key", "\\\n", "\\n", "\\\"", "é", "1", "-", ".", "update = !x", "\r",
}

func random(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(20) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// Parse reads random texts as git does.
func TestAgreesWithGit(t *testing.T) {
	env := testenv.GitEnv(t)
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 150 {
		text := "[s]\n" + random(r)
		cmd := exec.Command("git", "config", "--file", "-", "--list", "--null")
		cmd.Env, cmd.Stdin = env, strings.NewReader(text)
		out, refused := cmd.Output()
		got, err := list(text)
		if (refused != nil) != (err != nil) || refused == nil && got != string(out) {
			t.Errorf("%q: %q, %v; git says %q, %v", text, got, err, out, refused)
		}
		if err == nil {
			accepted++
		}
	}
	if accepted < 15 {
		t.Errorf("only %d of the texts are well formed", accepted)
	}
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(random(r))
	}
	f.Add("[.]A")
	if text, err := os.ReadFile("config.go"); err == nil {
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		size := 0
		for e, err := range config.Parse(text) {
			if err != nil {
				return
			}
			if e.Key == "" || e.Line < 1 || e.Bare && e.Value != "" || !strings.HasPrefix(e.Name(), e.Section+".") {
				t.Errorf("%+v", e)
			}
			if e.Line > 1+strings.Count(text, "\n") {
				t.Errorf("line %d of %d", e.Line, strings.Count(text, "\n"))
			}
			size += len(e.Key) + len(e.Value)
		}
		if size > len(text) {
			t.Errorf("%d bytes out of %d", size, len(text))
		}
	})
}
