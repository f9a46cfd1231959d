package lfs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
)

// stocked is a source that has everything, and counts.
type stocked struct {
	content map[string]string // by OID
	asked   []string
	closed  int
	err     error
}

func (s *stocked) Fetch(ctx context.Context, objects []lfs.Object, spool *lfs.Spool) error {
	for _, o := range objects {
		s.asked = append(s.asked, o.Path)
		if err := spool.Receive(ctx, o, strings.NewReader(s.content[o.OID])); err != nil {
			return err
		}
	}
	return s.err
}

func (s *stocked) Close() error { s.closed++; return nil }

func (s *stocked) add(content string) string {
	p := new(testenv.LFS).Add(content)
	parsed, _ := lfs.ParsePointer([]byte(p))
	s.content[parsed.OID] = content
	return p
}

// wrap makes tree one whose pointers can be replaced.
func (s *stocked) wrap(t *testing.T, tree fs.FS) fs.FS {
	a, err := lfs.ReadAttributes(tree)
	if err != nil {
		t.Fatal(err)
	}
	return lfs.New(tree, a, func(context.Context) (lfs.Source, error) { return s, nil })
}

// Trees are mounted and filtered after they were wrapped: what is shown of them
// is fetched, and nothing else.
func TestViews(t *testing.T) {
	s := &stocked{content: map[string]string{}}
	own := s.wrap(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a"), "shadowed.bin", s.add("shadowed"), "ignored.bin", s.add("ignored"),
		"deep/b.bin", s.add(strings.Repeat("b", 3<<20)), "deep/copy.bin", s.add("a"), "empty.bin", s.add(""), "text", "text"))
	module := s.wrap(t, tree(".gitattributes", "*.dat filter=lfs\n", "m.dat", s.add("m"), "m.bin", s.add("not tracked")))
	included := tree("shadowed.bin", s.add("the include's"), "i.bin", s.add("i"))
	whole := artifact.Mount(artifact.Mount(own, "module", module), ".", included)
	rules, err := artifact.Ignore{Extra: "ignored.*\n"}.Compile(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	view := rules.View(t.Context(), whole)
	held, plain, err := lfs.Fill(t.Context(), view, lfs.Options{})
	if err != nil || len(plain) != 0 {
		t.Fatal(err, plain)
	}
	want := map[string]string{
		".gitattributes": "*.bin filter=lfs\n", "a.bin": "a", "shadowed.bin": s.add("the include's"), "i.bin": s.add("i"),
		"deep/b.bin": strings.Repeat("b", 3<<20), "deep/copy.bin": "a", "empty.bin": "", "text": "text",
		"module/.gitattributes": "*.dat filter=lfs\n", "module/m.dat": "m", "module/m.bin": s.add("not tracked"),
	}
	if got := read(t, view); !maps.Equal(got, want) {
		t.Errorf("view %q", got)
	}
	if len(s.asked) != 3 || s.closed != 2 {
		t.Errorf("asked for %q, closed %d", s.asked, s.closed)
	}
	if err := fstest.TestFS(own, "a.bin", "deep/b.bin", "text", "ignored.bin"); err != nil {
		t.Error(err)
	}
	f, err := own.Open("deep/b.bin")
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := f.(io.ReaderAt); !ok {
		t.Error("no io.ReaderAt")
	} else if n, err := at.ReadAt(make([]byte, 8), 3<<20-4); n != 4 || err != io.EOF {
		t.Errorf("ReadAt: %d, %v", n, err)
	}
	var archive bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &archive, view); err != nil {
		t.Fatal(err)
	}
	packed, err := artifact.Read(&archive, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if got := read(t, packed); !maps.Equal(got, want) {
		t.Errorf("archive %q", got)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(own, "a.bin"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A directory that a view shows for what is below it only is left out of archives.
func TestOmits(t *testing.T) {
	rules, err := artifact.Ignore{Extra: "/*\n!/a\n/a/*\n!/a/b\n"}.Compile(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	below := rules.View(t.Context(), tree("a/b/c.bin", "x", "a/d", "x", ".gitattributes", "*.bin filter=lfs\n"))
	s := &stocked{}
	type omitter interface{ Omits(string) bool }
	for _, dir := range []string{".", "a", "a/b", "d"} {
		if got, want := s.wrap(t, below).(omitter).Omits(dir), below.(omitter).Omits(dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
	if s.wrap(t, tree("a/b", "")).(omitter).Omits("a") {
		t.Error("omits a directory of a tree that omits none")
	}
}

// Failures leave no spool behind and say what they are about.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	var spool *os.File
	o := lfs.Options{Temp: func() (f *os.File, err error) { spool, err = os.CreateTemp(dir, "spool"); return spool, err }}
	s := &stocked{content: map[string]string{}}
	wrapped := s.wrap(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a")))
	broken := errors.New("broken")
	s.err = broken
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) || s.closed != 1 || spool.Close() == nil {
		t.Errorf("%v, closed %d", err, s.closed)
	}
	o.Temp = func() (*os.File, error) { return nil, broken }
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "create spool") {
		t.Errorf("%v", err)
	}
	full, err := os.Open(os.DevNull) // cannot be written to
	if err != nil {
		t.Fatal(err)
	}
	s.err, o.Temp = nil, func() (*os.File, error) { return full, nil }
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); err == nil || full.Close() == nil {
		t.Errorf("a spool that takes nothing: %v", err)
	}
	a, err := lfs.ReadAttributes(tree(".gitattributes", "* filter=lfs"))
	if err != nil {
		t.Fatal(err)
	}
	refusing := lfs.New(tree("a", s.add("a")), a, func(context.Context) (lfs.Source, error) { return nil, broken })
	if _, _, err := lfs.Fill(t.Context(), refusing, lfs.Options{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, _, err := lfs.Fill(ctx, wrapped, lfs.Options{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if _, err := lfs.Count(ctx, wrapped); !errors.Is(err, broken) {
		t.Errorf("count: %v", err)
	}
	if n, err := lfs.Count(t.Context(), tree("a", s.add("a"), "b", s.add("b"), "c", strings.Repeat("c", 130), "d", "d")); n != 2 || err != nil {
		t.Errorf("count: %d, %v", n, err)
	}
}

func TestDiscover(t *testing.T) {
	for repo, want := range map[string]string{
		"https://git.example/foo/bar":         "https://git.example/foo/bar.git/info/lfs",
		"https://git.example/foo/bar.git":     "https://git.example/foo/bar.git/info/lfs",
		"https://git.example:8443/bar.git/":   "https://git.example:8443/bar.git/info/lfs",
		"https://u:p@git.example/a%2Fb?q#f":   "https://git.example/a%2Fb.git/info/lfs",
		"http://git.example/bar":              "http://git.example/bar.git/info/lfs",
		"ssh://git@git.example/foo/bar.git":   "https://git.example/foo/bar.git/info/lfs",
		"ssh://git@git.example:2222/~me/repo": "https://git.example/~me/repo.git/info/lfs",
		"ssh://git@[::1]:2222/repo":           "https://[::1]/repo.git/info/lfs",
	} {
		at, err := lfs.Discover(parse(t, repo), "")
		if err != nil || at.URL.String() != want || at.Auth == strings.HasPrefix(repo, "ssh:") {
			t.Errorf("%s: %v, %v, want %s", repo, at, err, want)
		}
	}
}

// An answer is where a server tells the client what to do.
func FuzzBatch(f *testing.F) {
	for _, body := range []string{
		`{"transfer":"basic","objects":[{"oid":"` + some + `","size":5,"authenticated":true,"actions":{"download":{"href":"/x","header":{"A":"b"},"expires_in":60}}}]}`,
		`{"objects":[{"oid":"` + some + `","error":{"code":404,"message":"gone"}}]}`,
		`{"objects":[{"oid":"` + some + `","actions":{"download":{"href":"https://a.example/b?c","expires_at":"2016-11-10T15:29:07Z"}}}]}`,
		`{"objects":[null,{"oid":""}],"hash_algo":"sha256"}`, `{"message":"no"}`, `<html>`, ``, `[]`,
	} {
		f.Add(body)
	}
	attributes, err := lfs.ReadAttributes(tree(".gitattributes", "* filter=lfs"))
	if err != nil {
		f.Fatal(err)
	}
	repo := &url.URL{Scheme: "https", Host: "git.example", Path: "/repo"}
	f.Fuzz(func(t *testing.T, body string) {
		client := &http.Client{Transport: answering(func(r *http.Request) string { return reply(t, r, body) })}
		c := &lfs.Client{
			HTTP: client, Bare: client,
			Endpoint: func(context.Context) (lfs.Endpoint, error) { return lfs.Discover(repo, "") },
			Wait:     func(context.Context, time.Duration) error { return nil },
		}
		view := lfs.New(tree("a", testenv.LFSPointer(some, 5)), attributes, func(context.Context) (lfs.Source, error) { return c, nil })
		held, _, err := lfs.Fill(t.Context(), view, lfs.Options{})
		if err != nil {
			return
		}
		defer held.Close()
		if got := read(t, view)["a"]; got != "hello" {
			t.Errorf("content %q", got)
		}
	})
}

type answering func(*http.Request) string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a(r))), Request: r, ContentLength: -1}, nil
}

// reply answers a batch request with body, and everything else with an object.
func reply(t *testing.T, r *http.Request, body string) string {
	if r.URL.Scheme != "https" || r.URL.User != nil {
		t.Errorf("asked %s", r.URL.Redacted())
	}
	if r.Method == http.MethodPost {
		return body
	}
	return "hello"
}

func FuzzGrant(f *testing.F) {
	f.Add("ssh://git@git.example/x", `{"href":"https://lfs.example/x","header":{"Authorization":"a"},"expires_in":60}`, "")
	f.Add("https://git.example/x", `{"expires_at":"2016-11-10T15:29:07Z"}`, "[lfs]\nurl = https://lfs.example\n")
	f.Fuzz(func(t *testing.T, repo, answer, config string) {
		u, err := url.Parse(repo)
		if err != nil || u.Hostname() == "" || u.Scheme != "ssh" && u.Scheme != "https" {
			return
		}
		configured, err := lfs.ConfiguredURL(tree(".lfsconfig", config))
		if err != nil {
			configured = config
		}
		for _, find := range []func() (lfs.Endpoint, error){
			func() (lfs.Endpoint, error) { return lfs.Granted(u, []byte(answer), time.Unix(0, 0)) },
			func() (lfs.Endpoint, error) { return lfs.Discover(u, configured) },
		} {
			at, err := find()
			if err == nil && (at.URL.Scheme != "https" && at.URL.Scheme != "http" || at.URL.User != nil || u.Scheme == "https" && at.URL.Scheme == "http") {
				t.Errorf("endpoint %s for %s", at.URL, repo)
			}
		}
	})
}
