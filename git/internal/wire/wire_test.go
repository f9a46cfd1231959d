package wire_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// The repositories that newRepo copies, by object format: git takes its time.
var seeds = map[string]func(testing.TB) repo{"sha1": seed("sha1"), "sha256": seed("sha256")}

func newRepo(t testing.TB, format ...string) repo {
	t.Helper()
	r := seeds[append(format, "sha1")[0]](t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	r.dir = dir
	return r
}

func seed(format string) func(testing.TB) repo {
	var r repo
	var once sync.Once
	return func(t testing.TB) repo {
		once.Do(func() { r = build(t, format) })
		return r
	}
}

func build(t testing.TB, format string) repo {
	t.Helper()
	r := repo{dir: filepath.Join(scratch, format)}
	work := filepath.Join(r.dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, work, "init", "-q", "-b", "main", "--object-format="+format)
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

var scratch string // a folder for the whole run

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "wire"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
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

var execPath = sync.OnceValue(func() string {
	out, _ := exec.Command("git", "--exec-path").Output()
	return strings.TrimSpace(string(out))
})

// backend serves the repositories of dir by git http-backend.
func backend(t testing.TB, dir string, env ...string) http.Handler {
	t.Helper()
	return &cgi.Handler{
		Path:   filepath.Join(execPath(), "git-http-backend"),
		Stderr: io.Discard,
		Logger: log.New(io.Discard, "", 0),
		Env:    append(append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"), env...),
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

// dial greets the repository that tr leads to.
func dial(ctx context.Context, tr wire.Transport) (*wire.Remote, error) {
	r := wire.New(tr, "")
	if err := r.Greet(ctx, false); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func open(t testing.TB, tr wire.Transport) *wire.Remote {
	t.Helper()
	r, err := dial(context.Background(), tr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// objects lists the ids and types in a pack that needs no other objects.
func objects(t testing.TB, r repo, pack []byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	format := map[int]string{20: "sha1", 32: "sha256"}[len(r.tag.Bytes())]
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

func ids(refs ...object.Ref) (list []object.ID) {
	for _, r := range refs {
		list = append(list, r.ID)
	}
	return list
}

type fetched struct {
	*wire.FetchResponse
	pack []byte
}

func fetch(t *testing.T, r *wire.Remote, q wire.FetchRequest) fetched {
	t.Helper()
	f, err := r.Fetch(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	pack, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return fetched{f, pack}
}
