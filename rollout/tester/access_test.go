package tester

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

const validToken = "0123456789abcdef-secret"

// write writes a file of callers and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestFile(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                     {"", "it names no callers"},
		"empty lists":                 {"tokens: []\ncertificates: []\n", "it names no callers"},
		"a list":                      {"- name: a\n", "must be a mapping, not a list"},
		"two documents":               {"tokens: [{name: a, token: " + validToken + "}]\n---\ntokens: []\n", "a second document"},
		"not YAML":                    {"tokens: [", "not YAML"},
		"an unknown key":              {"tokens:\n- name: a\n  token: " + validToken + "\n  namespace: [x]\n", ":4: document 1: tokens[0].namespace: unknown field"},
		"a key in another case":       {"tokens:\n- name: a\n  token: " + validToken + "\n  readonly: true\n", "did you mean readOnly?"},
		"a key that is there twice":   {"tokens:\n- name: a\n  token: " + validToken + "\n  name: b\n", "is given twice"},
		"no name":                     {"tokens:\n- token: " + validToken + "\n", "tokens[0].name: is required"},
		"an empty name":               {"tokens:\n- {name: '', token: " + validToken + "}\n", "tokens[0].name: must be a text"},
		"a name with a line break":    {"tokens:\n- {name: \"a\\nb\", token: " + validToken + "}\n", "without control characters"},
		"a name that is taken":        {"tokens:\n- {name: a, token: " + validToken + "}\ncertificates:\n- {name: a, dns: b}\n", "certificates[0].name: is the name of tokens[0], too"},
		"no token":                    {"tokens:\n- {name: a}\n", "tokens[0]: wants either token or sha256"},
		"token and digest":            {"tokens:\n- {name: a, token: " + validToken + ", sha256: " + strings.Repeat("a", 64) + "}\n", "wants either token or sha256"},
		"a short token":               {"tokens:\n- name: a\n  token: 0123456789abcde\n", ":3: document 1: tokens[0].token: is shorter than 16 bytes"},
		"a long token":                {"tokens:\n- {name: a, token: " + strings.Repeat("x", 4097) + "}\n", "longer than 4096 bytes"},
		"a token with a space":        {"tokens:\n- {name: a, token: '" + validToken + " '}\n", "do not fit into a header"},
		"a token that is a number":    {"tokens:\n- {name: a, token: 12345678901234567890}\n", "must be a string, not a number"},
		"a token that is taken":       {"tokens:\n- {name: a, token: " + validToken + "}\n- {name: b, token: " + validToken + "}\n", "tokens[1]: has the token of tokens[0]"},
		"a digest that is taken":      {fmt.Sprintf("tokens:\n- {name: a, token: %s}\n- {name: b, sha256: %x}\n", validToken, sha256.Sum256([]byte(validToken))), "tokens[1]: has the token of tokens[0]"},
		"a digest that is none":       {"tokens:\n- {name: a, sha256: abc}\n", "must be 64 hexadecimal digits"},
		"the digest of no token":      {fmt.Sprintf("tokens:\n- {name: a, sha256: %X}\n", sha256.Sum256(nil)), "tokens[0].sha256: is that of an empty text"},
		"an expiry without a zone":    {"tokens:\n- {name: a, token: " + validToken + ", expires: '2026-01-01'}\n", "is no time"},
		"a scope without a value":     {"tokens:\n- name: a\n  token: " + validToken + "\n  namespaces:\n", ":4: document 1: tokens[0].namespaces: has no value: leave it out for all, write [] for none"},
		"a scope that is a text":      {"tokens:\n- {name: a, token: " + validToken + ", namespaces: shop}\n", "must be a list, not a string"},
		"a namespace that is none":    {"tokens:\n- {name: a, token: " + validToken + ", namespaces: [shop, 'team-.*']}\n", `tokens[0].namespaces[1]: "team-.*" is no namespace`},
		"an anchor":                   {"tokens:\n- {name: a, token: " + validToken + ", namespaces: ['^shop$']}\n", "is no namespace"},
		"an empty namespace":          {"tokens:\n- {name: a, token: " + validToken + ", namespaces: ['']}\n", "is no namespace"},
		"an unknown type":             {"tokens:\n- {name: a, token: " + validToken + ", types: [shell]}\n", `"shell" is no type of tasks: want one of cmd, bash`},
		"an unknown kind":             {"tokens:\n- {name: a, token: " + validToken + ", kinds: ['*']}\n", "want gate or rollback"},
		"an empty gate":               {"tokens:\n- {name: a, token: " + validToken + ", gates: ['']}\n", "must be a name, or a pattern"},
		"a certificate of nobody":     {"certificates:\n- {name: a}\n", "wants one of commonName, dns and uri"},
		"a certificate of two":        {"certificates:\n- {name: a, dns: b, uri: c}\n", "wants one of commonName, dns and uri"},
		"a certificate that is taken": {"certificates:\n- {name: a, dns: x}\n- {name: b, dns: x}\n", "certificates[1]: has the subject of certificates[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, tt.text)
			_, err := OpenGuard(file, false, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
				t.Fatalf("Open: %v\nwant %q and the name of the file", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "0123456789abcde") {
				t.Errorf("the error repeats a token: %v", err)
			}
		})
	}
	if _, err := OpenGuard(filepath.Join(t.TempDir(), "none"), false, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	large := write(t, "# "+strings.Repeat("x", 3<<20))
	if _, err := OpenGuard(large, false, nil); err == nil || !strings.Contains(err.Error(), "larger than 3 MiB") {
		t.Errorf("a large file: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	file := write(t, `
tokens:
- {name: ci, token: 0123456789abcdef, namespaces: []}
- {name: old, token: 0123456789abcdef-old, expires: 2001-01-01T00:00:00Z}
`)
	must(t, os.Chmod(file, 0o644))
	var warnings []string
	warn := func(err error) { warnings = append(warnings, err.Error()) }
	if _, err := OpenGuard(file, false, warn); err != nil {
		t.Fatal(err)
	}
	want := []string{`:3: document 1: tokens[0].namespaces: is empty: "ci" is allowed none`, `tokens[1].expires: "old" has expired`, "every user of this machine"}
	if runtime.GOOS == "windows" {
		want = want[:2]
	}
	if len(warnings) != len(want) {
		t.Fatalf("warnings: %q", warnings)
	}
	for i := range want {
		if !strings.Contains(warnings[i], want[i]) {
			t.Errorf("warning %q, want %q", warnings[i], want[i])
		}
	}
	link := filepath.Join(t.TempDir(), "mounted")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	warnings = nil
	if _, err := OpenGuard(link, false, warn); err != nil || len(warnings) != 2 {
		t.Errorf("a file that is mounted from a Secret: %v, %q", err, warnings)
	}
}

var must = testenv.Must
