package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestNonUTF8Names checks that an artifact can contain a file whose name is not
// UTF-8, and that every command prints such a name with its bytes escaped.
func TestNonUTF8Names(t *testing.T) {
	const name, shown = "caf\xe9.yaml", `caf\xe9.yaml`
	dir := t.TempDir()
	repo := testenv.NewRepo(t)
	blob := repo.GitInput("x", "hash-object", "-w", "--stdin")
	top := repo.GitInput("100644 blob "+blob+"\t"+name+"\x00", "mktree", "-z")
	repo.Ref("refs/heads/main", repo.Git("commit-tree", "-m", "one", top))
	url := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
	file := filepath.Join(dir, name)
	must(t, os.WriteFile(file, []byte("apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata: {name: b}\n"), 0o600))
	command := func(args []string) (code int, text string) {
		var out bytes.Buffer
		code = run(context.Background(), args, strings.NewReader(""), &out, &out, emptyEnv)
		return code, out.String()
	}
	tree := filepath.Join(dir, "tree")
	if code, text := command([]string{"fetch", url, "--store", filepath.Join(dir, "store"), "--out", tree}); code != 0 {
		t.Errorf("exit code %d\n%s", code, text)
	}
	if got, err := os.ReadFile(filepath.Join(tree, name)); string(got) != "x" {
		t.Errorf("extracted %q, %v", got, err)
	}
	empty := filepath.Join(dir, "empty")
	must(t, os.Mkdir(empty, 0o700))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"diff", url, empty}, shown + "  removed"},
		{[]string{"validate", "-f", file}, shown + ":1: document 1: Bucket/default/b: spec"},
		{[]string{"validate", "-f", file + ".missing"}, shown + ".missing"},
		{[]string{"artifact", "verify", name, "--store", dir}, shown},
		{[]string{"diff", filepath.Join(dir, name+".tgz"), dir}, shown + ".tgz"},
	} {
		if code, text := command(c.args); code == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%q: exit code %d, want %q\n%s", c.args, code, c.want, text)
		}
	}
}
