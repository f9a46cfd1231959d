package wire_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// git runs git in dir without any configuration of the machine.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = gitEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
}

// A repo is a bare repository with three commits on main and an annotated tag
// on the second.
type repo struct {
	dir     string // the folder that holds repo.git
	commits []object.ID
	tag     object.ID
}

func newRepo(t testing.TB, initArgs ...string) repo {
	t.Helper()
	r := repo{dir: t.TempDir()}
	work := filepath.Join(r.dir, "work")
	git(t, r.dir, append([]string{"init", "-q", "-b", "main", "work"}, initArgs...)...)
	for _, text := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(work, "file"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git(t, work, "add", "file")
		git(t, work, "commit", "-q", "-m", text)
		r.commits = append(r.commits, id(t, git(t, work, "rev-parse", "HEAD")))
	}
	git(t, work, "tag", "-a", "-m", "tag", "v1", "HEAD~1")
	r.tag = id(t, git(t, work, "rev-parse", "v1"))
	git(t, r.dir, "clone", "-q", "--bare", "work", "repo.git")
	git(t, r.bare(), "config", "uploadpack.allowFilter", "true")
	return r
}

func (r repo) bare() string { return filepath.Join(r.dir, "repo.git") }

func id(t testing.TB, hex string) object.ID {
	t.Helper()
	id, err := object.ParseID(hex)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// backend serves the repositories of dir by git http-backend.
func backend(t testing.TB, dir string, env ...string) http.Handler {
	t.Helper()
	return &cgi.Handler{
		Path: filepath.Join(git(t, dir, "--exec-path"), "git-http-backend"),
		Env:  append(append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"), env...),
	}
}

// serve starts a server that ends with the test.
func serve(t testing.TB, h http.Handler) (*http.Client, *url.URL) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Client(), parse(t, s.URL+"/repo.git")
}

func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func open(t testing.TB, tr wire.Transport) *wire.Remote {
	t.Helper()
	r, err := wire.Open(context.Background(), tr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// objects lists the ids and types in a pack that needs no other objects.
func objects(t testing.TB, r repo, pack []byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	format := git(t, r.bare(), "rev-parse", "--show-object-format")
	git(t, dir, "init", "-q", "--bare", "--object-format="+format)
	cmd := exec.Command("git", "index-pack", "--stdin", "--fix-thin")
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnv(), bytes.NewReader(pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("index-pack of %d bytes: %v: %s", len(pack), err, out)
	}
	found := map[string]string{}
	list := git(t, dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
	for _, line := range strings.Split(list, "\n") {
		name, typ, _ := strings.Cut(line, " ")
		found[name] = typ
	}
	return found
}

func ids(refs ...wire.Ref) (list []object.ID) {
	for _, r := range refs {
		list = append(list, r.ID)
	}
	return list
}
