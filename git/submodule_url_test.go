package git

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// initializedURLs returns the URLs that git submodule init writes in a repository cloned
// from base.
func initializedURLs(t *testing.T, base string, urls []string) []string {
	t.Helper()
	dir, env := t.TempDir(), testenv.GitEnv(t)
	run := func(stdin string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env, cmd.Stdin = dir, env, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	var modules, index strings.Builder
	for i, u := range urls {
		fmt.Fprintf(&modules, "[submodule \"%d\"]\npath = s%d\nurl = %q\n", i, i, u)
		fmt.Fprintf(&index, "160000 %s\ts%d\n", strings.Repeat("1", 40), i)
	}
	run("", "init", "-q")
	must(t, os.WriteFile(filepath.Join(dir, ".gitmodules"), []byte(modules.String()), 0o644))
	run(index.String(), "update-index", "--index-info")
	run("", "config", "remote.origin.url", base)
	run("", "submodule", "-q", "init")
	all := make([]string, len(urls))
	for entry := range strings.SplitSeq(run("", "config", "-z", "--get-regexp", `^submodule\..*\.url$`), "\x00") {
		var i int
		if name, value, ok := strings.Cut(entry, "\n"); ok {
			_, err := fmt.Sscanf(name, "submodule.%d.url", &i)
			must(t, err)
			all[i] = value
		}
	}
	return all
}

// Relative URLs are resolved as git resolves them.
func TestRelativeURLs(t *testing.T) {
	t.Parallel()
	urls := []string{"../lib.git", "./lib", "../lib/", "../lib//", "./../lib", ".././lib", "././lib", "../a/b", "../a//b", "../", "./", ".//lib", "../a%20b", "../~x", "../a:b", "../@x", "../-x", "../...", "../lib.git.git"}
	deeper := []string{"../../lib.git", "./../.././lib", "../../a/b/c"}
	for base, urls := range map[string][]string{
		"https://example.com/org/app.git":      slices.Concat(urls, deeper),
		"http://example.com/app":               urls,
		"ssh://git@example.com/org/app.git":    slices.Concat(urls, deeper, []string{"../a/../b", "../a/./b"}),
		"ssh://example.com:2222/~me/app%20x/y": slices.Concat(urls, deeper),
	} {
		for i, want := range initializedURLs(t, base, urls) {
			got, err := moduleURL(testenv.URL(t, base), urls[i])
			if strings.Trim(testenv.URL(t, want).Path, "/") == "" {
				if err == nil {
					t.Errorf("%s, %s: %s, which is no repository", base, urls[i], got)
				}
				continue
			}
			if err != nil || got.String() != testenv.URL(t, want).String() {
				t.Errorf("%s, %s: %v, %v; git says %s", base, urls[i], got, err, want)
			}
		}
	}
}

func TestModuleURL(t *testing.T) {
	for _, row := range []struct{ base, text, want string }{
		{"https://h/a/b", "https://other/x.git", "https://other/x.git"},
		{"https://h/a/b", "HTTPS://Other/x", "https://Other/x"},
		{"https://h/a/b", "https://org@dev.example.com/x", "https://dev.example.com/x"},
		{"https://user:secret@h/a/b", "../c", "https://h/a/c"},
		{"https://h/a/b", "https://h/a/../c/./d", "https://h/c/d"},
		{"https://h/a/b", "../x/../../c", "https://h/c"},
		{"https://h/a/b", "ssh://me@h:22/x", "ssh://me@h:22/x"},
		{"https://h/a/b", "git@github.com:org/x.git", "ssh://git@github.com/org/x.git"},
		{"https://h/a/b", "git@github.com:/org/x.git", "ssh://git@github.com/org/x.git"},
		{"https://h/a/b", "github.com:2222/x", "ssh://github.com/2222/x"},
		{"https://h/a/b", "host:~me/x?y#z", "ssh://host/~me/x%3Fy%23z"},
		{"ssh://git:secret@h/a/b", "../c", "ssh://git@h/a/c"},
		{"ssh://git@h/a/b", "./c/../d", "ssh://git@h/a/b/c/../d"},
		{"ssh://h/a", "../../evil/x", ""},
		{"https://h/a", "../../../evil/x", ""},
		{"https://h/a", "[::1]:x", ""},
		{"https://h/a", "git@[::1]:x", ""},
		{"https://h/a", "git@host:", ""},
		{"https://h/a", "@host:x", ""},
		{"https://h/a", "a b@host:x y", "ssh://a%20b@host/x%20y"},
	} {
		u, err := moduleURL(testenv.URL(t, row.base), row.text)
		if row.want == "" && err == nil || row.want != "" && (err != nil || u.String() != row.want) {
			t.Errorf("%s, %s: %v, %v; want %s", row.base, row.text, u, err, row.want)
		}
	}
}

var must = testenv.Must
