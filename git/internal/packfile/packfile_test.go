package packfile_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// git runs git in dir, apart from the configuration of the machine.
func git(t testing.TB, dir, stdin string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "HOME="+t.TempDir(),
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0100",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0100")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// repository makes a repository of a few versions of similar files, so that its packs have deltas.
func repository(t testing.TB, format string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "-b", "main", "--object-format="+format)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 200)
	for i, last := range []string{"one", "two", "three", "four"} {
		for j, name := range []string{"a", "b/c", "b/d/e", "empty"} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			content := strings.Repeat("x", 1000*j) + text[:len(text)-100*i] + last + name
			if name == "empty" {
				content = ""
			}
			if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "", "add", "-A")
		git(t, dir, "", "commit", "-q", "-m", last)
	}
	git(t, dir, "", "tag", "-a", "-m", "tagged", "v1")
	return dir
}

func head(t testing.TB, dir, rev string) object.ID {
	t.Helper()
	id, err := object.ParseID(strings.TrimSpace(string(git(t, dir, "", "rev-parse", rev))))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestReadAgreesWithGit compares every object of packs of all shapes with what git says.
func TestReadAgreesWithGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir := repository(t, format)
		for name, args := range map[string][]string{
			"offset deltas": {"--delta-base-offset", "--all"},
			"id deltas":     {"--all"},
			"no deltas":     {"--all", "--window=0"},
			"one commit":    {"--delta-base-offset"},
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				stdin := ""
				if name == "one commit" {
					stdin = "HEAD\n"
				}
				data := git(t, dir, stdin, append([]string{"pack-objects", "--revs", "--stdout", "-q"}, args...)...)
				f := object.SHA1
				if format == "sha256" {
					f = object.SHA256
				}
				p, err := packfile.Read(context.Background(), bytes.NewReader(data), packfile.Options{Temp: t.TempDir(), Format: f})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				compare(t, dir, data, p)
			})
		}
	}
}

// compare checks that p holds exactly the objects that git finds in data.
func compare(t *testing.T, dir string, data []byte, p *packfile.Pack) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.pack")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "", "index-pack", file)
	n := 0
	for line := range strings.Lines(string(git(t, dir, "", "verify-pack", "-v", file))) {
		fields := strings.Fields(line)
		id, err := object.ParseID(fields[0])
		if err != nil {
			continue
		}
		n++
		typ, size, content, err := p.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(content)
		if err != nil || int64(len(got)) != size || typ.String() != fields[1] {
			t.Fatalf("%v: %v, %d bytes of %d: %v", id, typ, len(got), size, err)
		}
		if want := git(t, dir, "", "cat-file", fields[1], fields[0]); !bytes.Equal(got, want) {
			t.Fatalf("%v: got %q, want %q", id, got, want)
		}
	}
	if n != p.Len() || p.Size() != int64(len(data)) {
		t.Errorf("%d objects in %d bytes, want %d in %d", p.Len(), p.Size(), n, len(data))
	}
}
