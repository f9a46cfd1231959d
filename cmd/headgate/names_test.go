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

// A name that is not UTF-8 is printed with its bytes, whoever prints it.
func TestNamesOfBytes(t *testing.T) {
	const name, shown = "caf\xe9.yaml", `caf\xe9.yaml`
	dir := t.TempDir()
	repo := testenv.NewRepo(t)
	blob := repo.GitInput("x", "hash-object", "-w", "--stdin")
	tree := repo.GitInput("100644 blob "+blob+"\t"+name+"\x00", "mktree", "-z")
	repo.Ref("refs/heads/main", repo.Git("commit-tree", "-m", "one", tree))
	url := testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte("apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata: {name: b}\n"), 0o600); err != nil {
		t.Skipf("this file system has no such names: %v", err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"fetch", url, "--store", filepath.Join(dir, "store")}, `"` + shown + `": invalid argument: no artifact can hold a name that is not UTF-8: rename it or ignore it`},
		{[]string{"validate", "-f", file}, shown + ":1: document 1: Bucket/default/b: spec"},
		{[]string{"validate", "-f", file + ".missing"}, shown + ".missing"},
		{[]string{"artifact", "verify", name, "--store", dir}, shown},
		{[]string{"diff", filepath.Join(dir, name+".tgz"), dir}, shown + ".tgz"},
	} {
		var out, log bytes.Buffer
		code := run(context.Background(), c.args, strings.NewReader(""), &out, &log, func(string) (string, bool) { return "", false })
		if text := out.String() + log.String(); code == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%q: exit code %d, want %q\n%s", c.args, code, c.want, text)
		}
	}
}
