//go:build unix

package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
)

// TestNamedPipes replaces files by named pipes without a writer.
func TestNamedPipes(t *testing.T) {
	for _, name := range []string{"HEAD", "config", "packed-refs", "refs/heads/main", "objects/info/alternates", "objects/ID", "PACK", "INDEX"} {
		dir := repository(t)
		commit := strings.TrimSpace(git(t, dir, "rev-parse", "main"))
		if name == "PACK" || name == "INDEX" {
			git(t, dir, "repack", "-adq")
		}
		file := filepath.Join(dir, ".git", filepath.FromSlash(strings.Replace(name, "ID", commit[:2]+"/"+commit[2:], 1)))
		for pattern, which := range map[string]string{"*.pack": "PACK", "*.idx": "INDEX"} {
			if found, _ := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", pattern)); which == name && len(found) == 1 {
				file = found[0]
			}
		}
		os.Remove(file)
		must(t, syscall.Mkfifo(file, 0o600))
		if err := readCommit(dir, commit); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// readCommit reads everything that is needed to reach a commit.
func readCommit(dir, commit string) error {
	r, err := local.Open(dir, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	_, refs := r.Refs(true, "HEAD", "refs/heads/main")
	id, err := object.ParseID(commit)
	if err == nil {
		_, err = object.Read(r, id, object.Commit, 1<<20)
	}
	return errors.Join(refs, err)
}
