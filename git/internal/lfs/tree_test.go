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
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/testenv"
)

// stocked is a source that has everything, and counts.
type stocked struct {
	content map[string]string // by OID
	asked   []string
	err     error
}

func (s *stocked) fetch(ctx context.Context, _ *object.FS, objects []lfs.Object, spool *lfs.Spool) error {
	for _, o := range objects {
		s.asked = append(s.asked, o.Path)
		if err := spool.Receive(ctx, o, strings.NewReader(s.content[o.OID])); err != nil {
			return err
		}
	}
	return s.err
}

func (s *stocked) add(content string) string {
	p := new(testenv.LFS).Add(content)
	parsed, _ := lfs.ParsePointer([]byte(p))
	s.content[parsed.OID] = content
	return p
}

// Trees are mounted and filtered after they were wrapped: what is shown of them
// is fetched, and nothing else.
func TestViews(t *testing.T) {
	s := &stocked{content: map[string]string{}}
	own := objects(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a"), "shadowed.bin", s.add("shadowed"), "ignored.bin", s.add("ignored"),
		"deep/b.bin", s.add(strings.Repeat("b", 300<<10)), "deep/copy.bin", s.add("a"), "empty.bin", s.add(""), "text", "text"))
	module := objects(t, tree(".gitattributes", "*.dat filter=lfs\n", "m.dat", s.add("m"), "m.bin", s.add("not tracked")))
	included := tree("shadowed.bin", s.add("the include's"), "i.bin", s.add("i"))
	whole := artifact.Mount(artifact.Mount(own, "module", module), ".", included)
	rules, err := artifact.Ignore{Extra: "ignored.*\n"}.Compile(t.Context(), nil)
	must(t, err)
	view := rules.View(t.Context(), whole)
	held, plain, err := lfs.Fill(t.Context(), view, lfs.Options{Fetch: s.fetch})
	if err != nil || len(plain) != 0 {
		t.Fatal(err, plain)
	}
	want := map[string]string{
		".gitattributes": "*.bin filter=lfs\n", "a.bin": "a", "shadowed.bin": s.add("the include's"), "i.bin": s.add("i"),
		"deep/b.bin": strings.Repeat("b", 300<<10), "deep/copy.bin": "a", "empty.bin": "", "text": "text",
		"module/.gitattributes": "*.dat filter=lfs\n", "module/m.dat": "m", "module/m.bin": s.add("not tracked"),
	}
	if got := read(t, view); !maps.Equal(got, want) {
		t.Errorf("view %q", got)
	}
	if len(s.asked) != 3 {
		t.Errorf("asked for %q", s.asked)
	}
	if err := fstest.TestFS(own, "a.bin", "deep/b.bin", "text", "ignored.bin"); err != nil {
		t.Error(err)
	}
	var archive bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &archive, view); err != nil {
		t.Fatal(err)
	}
	packed, err := artifact.Read(&archive, artifact.Limits{})
	must(t, err)
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

// Failures leave no spool behind and say what they are about.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	var spool *os.File
	s := &stocked{content: map[string]string{}}
	o := lfs.Options{Fetch: s.fetch, Temp: func() (f *os.File, err error) { spool, err = os.CreateTemp(dir, "spool"); return spool, err }}
	wrapped := objects(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a")))
	broken := errors.New("broken")
	s.err = broken
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) || spool.Close() == nil {
		t.Error(err)
	}
	o.Temp = func() (*os.File, error) { return nil, broken }
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "create spool") {
		t.Errorf("%v", err)
	}
	full, err := os.Open(os.DevNull) // cannot be written to
	must(t, err)
	s.err, o.Temp = nil, func() (*os.File, error) { return full, nil }
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); err == nil || full.Close() == nil {
		t.Errorf("a spool that takes nothing: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, _, err := lfs.Fill(ctx, wrapped, o); !errors.Is(err, broken) {
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

type answering func(*http.Request) string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a(r))), Request: r, ContentLength: -1}, nil
}

// FuzzServer has a server tell the client what to do: by the answer of its batch
// API, by git-lfs-authenticate, and by .lfsconfig.
func FuzzServer(f *testing.F) {
	for _, body := range []string{
		`{"transfer":"basic","objects":[{"oid":"` + some + `","size":5,"authenticated":true,"actions":{"download":{"href":"/x","header":{"A":"b"},"expires_in":60}}}]}`,
		`{"objects":[{"oid":"` + some + `","error":{"code":404,"message":"gone"}}]}`,
		`{"objects":[{"oid":"` + some + `","actions":{"download":{"href":"https://a.example/b?c","expires_at":"2016-11-10T15:29:07Z"}}}]}`,
		`{"objects":[null,{"oid":""}],"hash_algo":"sha256"}`, `{"message":"no"}`, `<html>`, ``, `[]`,
		`{"href":"https://lfs.example/x","header":{"Authorization":"a"},"expires_in":60}`,
	} {
		f.Add(body, "ssh://git@git.example/x", "[lfs]\nurl = https://lfs.example\n")
	}
	f.Fuzz(func(t *testing.T, body, repo, config string) {
		client := &http.Client{Transport: answering(func(r *http.Request) string {
			if r.URL.Scheme != "https" || r.URL.User != nil {
				t.Errorf("asked %s", r.URL.Redacted())
			}
			if r.Method == http.MethodPost {
				return body
			}
			return "hello"
		})}
		c := &lfs.Client{
			HTTP: client, Bare: client,
			Endpoint: func(context.Context) (lfs.Endpoint, error) {
				return lfs.Discover(&url.URL{Scheme: "https", Host: "git.example", Path: "/repo"}, "")
			},
			Wait: func(context.Context, time.Duration) error { return nil },
		}
		view := objects(t, tree("a", testenv.LFSPointer(some, 5), ".gitattributes", "* filter=lfs"))
		held, _, err := lfs.Fill(t.Context(), view, lfs.Options{Fetch: func(ctx context.Context, _ *object.FS, objects []lfs.Object, spool *lfs.Spool) error {
			return c.Fetch(ctx, objects, spool)
		}})
		if err == nil {
			held.Close()
		}
		u, err := url.Parse(repo)
		if err != nil || u.Hostname() == "" || u.Scheme != "ssh" && u.Scheme != "https" {
			return
		}
		configured, err := lfs.ConfiguredURL(tree(".lfsconfig", config))
		if err != nil {
			configured = config
		}
		granted, err := lfs.Granted(u, []byte(body), time.Unix(0, 0))
		discovered, discoverErr := lfs.Discover(u, configured)
		for at, err := range map[*lfs.Endpoint]error{&granted: err, &discovered: discoverErr} {
			if err == nil && (at.URL.Scheme != "https" && at.URL.Scheme != "http" || at.URL.User != nil || u.Scheme == "https" && at.URL.Scheme == "http") {
				t.Errorf("endpoint %s for %s", at.URL, repo)
			}
		}
	})
}
