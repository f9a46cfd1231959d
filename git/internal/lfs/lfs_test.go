package lfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const canary = "cAnArY-t0ken"

// An lfsServer is an LFS server and a client of it with credentials.
type lfsServer struct {
	t       *testing.T
	objects *testenv.LFS
	server  *testenv.GitServer
	client  *lfs.Client
	options lfs.Options
	files   fstest.MapFS

	mu    sync.Mutex
	waits []time.Duration
	clock time.Time
}

func newLFSServer(t *testing.T, objects *testenv.LFS) *lfsServer {
	t.Helper()
	s := &lfsServer{t: t, objects: objects, clock: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.server = testenv.ServeRepos(t, testenv.GitConfig{LFS: objects, Bearer: canary}, nil)
	s.files = tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", objects.Add("content of a"), "b.bin", objects.Add("content of b"))
	repo := testenv.URL(t, s.server.Repo())
	config := transport.Config{Origin: repo, Auth: transport.Auth{Bearer: canary}}
	s.client = &lfs.Client{
		HTTP: transport.Client(config), Bare: transport.Client(transport.Config{Origin: repo}),
		Endpoint: func(context.Context) (lfs.Endpoint, error) { return lfs.Discover(repo, "") },
		Now:      s.now, Wait: s.wait,
	}
	return s
}

func (s *lfsServer) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *lfsServer) wait(_ context.Context, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, d)
	s.clock = s.clock.Add(d)
	return nil
}

// fill returns the files with their pointers replaced.
func (s *lfsServer) fill(ctx context.Context) (map[string]string, error) {
	s.t.Helper()
	view := objects(s.t, s.files)
	s.options.Fetch = func(ctx context.Context, _ *object.FS, objects []lfs.Object, spool *lfs.Spool) error {
		return s.client.Fetch(ctx, objects, spool)
	}
	held, _, err := lfs.Fill(ctx, view, s.options)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	return testenv.Contents(s.t, view), nil
}

// objects returns a tree of Git objects with the given files.
func objects(t testing.TB, files fstest.MapFS) *object.FS {
	d := objecttest.Database{}
	var dir func(at string) object.ID
	dir = func(at string) object.ID {
		entries, err := fs.ReadDir(files, at)
		must(t, err)
		key := func(e fs.DirEntry) string {
			if e.IsDir() {
				return e.Name() + "/"
			}
			return e.Name()
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
		var data []byte
		for _, e := range entries {
			name := path.Join(at, e.Name())
			mode, id := "40000", object.ID{}
			if e.IsDir() {
				id = dir(name)
			} else {
				mode, id = "100644", d.Add(object.SHA1, object.Blob, string(files[name].Data))
			}
			data = append(append(data, mode+" "+e.Name()+"\x00"...), id.Bytes()...)
		}
		return d.Add(object.SHA1, object.Tree, string(data))
	}
	return object.TreeFS(d, dir("."))
}

func (s *lfsServer) checkFilled(got map[string]string, err error) {
	s.t.Helper()
	if err != nil || got["a.bin"] != "content of a" || got["b.bin"] != "content of b" {
		s.t.Errorf("%v, %q", err, got)
	}
}

func (s *lfsServer) count(phase testenv.Phase) int { return s.server.Count(phase) }

func answer(phase testenv.Phase, status int, body string, header ...string) *testenv.Defect {
	h := http.Header{"Content-Type": {"application/vnd.git-lfs+json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &testenv.Defect{Phase: phase, Do: testenv.Answer, Status: status, Body: body, Header: h}
}

// edit returns an edit of the download link of each object.
func edit(change func(*testenv.LFSAction)) func(*testenv.LFSAnswer) {
	return func(o *testenv.LFSAnswer) {
		if a, ok := o.Actions["download"]; ok {
			change(&a)
			o.Actions["download"] = a
		}
	}
}

func hrefTo(href string) func(*testenv.LFSAnswer) {
	return edit(func(a *testenv.LFSAction) { a.Href = href })
}

// Objects are requested 100 at a time, once each, and their bytes are counted.
func TestMany(t *testing.T) {
	s := newLFSServer(t, new(testenv.LFS))
	want := map[string]string{}
	for i := range 250 {
		content := strings.Repeat(fmt.Sprint(i%230, " "), i)
		want[fmt.Sprintf("many/%d.bin", i)] = content
		s.files[fmt.Sprintf("many/%d.bin", i)] = &fstest.MapFile{Data: []byte(s.objects.Add(content))}
	}
	var done, total int64
	s.options.Progress = func(d, all int64) {
		if d < done || d > all {
			t.Errorf("%d of %d after %d", d, all, done)
		}
		done, total = d, all
	}
	got, err := s.fill(t.Context())
	maps.DeleteFunc(got, func(name, _ string) bool { return !strings.HasPrefix(name, "many/") })
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v", err)
	}
	if done != total || total == 0 {
		t.Errorf("progress %d of %d", done, total)
	}
	testenv.Equal(t, s.count(testenv.LFSBatch), 3, "batches")
	testenv.Equal(t, s.count(testenv.LFSObject), 2+249, "downloads")
}

func TestLimits(t *testing.T) {
	for name, row := range map[string]struct {
		options lfs.Options
		files   fstest.MapFS
		say     string
	}{
		"one":       {lfs.Options{FileBytes: 11}, nil, "a.bin: the LFS object has 12 bytes: more than the limit of 11"},
		"all":       {lfs.Options{Bytes: 23}, nil, "b.bin: with the LFS object, which has 12 bytes, all files have more than the limit of 23 bytes"},
		"others":    {lfs.Options{Bytes: 100, Used: 77}, nil, "b.bin: with the LFS object"},
		"overflow":  {lfs.Options{}, tree("c.bin", testenv.LFSPointer(some, 1<<63-1), "d.bin", testenv.LFSPointer(some, 1<<63-1)), "c.bin: with the LFS object"},
		"extension": {lfs.Options{}, tree("c.bin", v1+"ext-0-x sha256:"+some+"\noid sha256:"+some+"\nsize 5\n"), "c.bin: the pointer uses Git LFS extensions"},
		"two sizes": {lfs.Options{}, tree("c.bin", testenv.LFSPointer(some, 5), "d.bin", testenv.LFSPointer(some, 6)), "c.bin and d.bin are pointers to one object with two sizes"},
	} {
		s := newLFSServer(t, new(testenv.LFS))
		s.options = row.options
		maps.Copy(s.files, row.files)
		if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), row.say) {
			t.Errorf("%s: %v, want %s", name, err, row.say)
		}
		testenv.Equal(t, len(s.server.Requests()), 0, "%s: requests", name)
	}
}

func TestCache(t *testing.T) {
	s := newLFSServer(t, new(testenv.LFS))
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	must(t, err)
	defer cache.Close()
	s.client.Cache, s.client.Scope = cache, "one"
	s.checkFilled(s.fill(t.Context()))
	s.server.Reset()
	s.checkFilled(s.fill(t.Context()))
	testenv.Equal(t, len(s.server.Requests()), 0, "requests for what is cached")
	s.client.Scope = "two"
	s.checkFilled(s.fill(t.Context()))
	testenv.Equal(t, s.count(testenv.LFSObject), 2, "downloads in another scope")
	// An entry with other content under the same key is not used.
	p, err := lfs.ParsePointer(s.files["a.bin"].Data)
	must(t, err)
	err = cache.Put("lfs/sha256/"+p.OID+" two", func(w io.Writer) error {
		_, err := io.WriteString(w, "forged......")
		return err
	})
	must(t, err)
	s.server.Reset()
	s.checkFilled(s.fill(t.Context()))
	testenv.Equal(t, s.count(testenv.LFSObject), 1, "downloads instead of a forged entry")
}

var must = testenv.Must

// A completeSource is a source that has every object and records requests.
type completeSource struct {
	content map[string]string // by OID
	asked   []string
	err     error
}

func (s *completeSource) fetch(ctx context.Context, _ *object.FS, objects []lfs.Object, spool *lfs.Spool) error {
	for _, o := range objects {
		s.asked = append(s.asked, o.Path)
		if err := spool.Receive(ctx, o, strings.NewReader(s.content[o.OID])); err != nil {
			return err
		}
	}
	return s.err
}

func (s *completeSource) add(content string) string {
	p := new(testenv.LFS).Add(content)
	parsed, _ := lfs.ParsePointer([]byte(p))
	s.content[parsed.OID] = content
	return p
}

// Trees may be mounted and filtered: only the objects of pointers that the resulting
// view shows are fetched.
func TestViews(t *testing.T) {
	s := &completeSource{content: map[string]string{}}
	rootTree := objects(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a"), "shadowed.bin", s.add("shadowed"), "ignored.bin", s.add("ignored"),
		"deep/b.bin", s.add(strings.Repeat("b", 300<<10)), "deep/copy.bin", s.add("a"), "empty.bin", s.add(""), "text", "text"))
	module := objects(t, tree(".gitattributes", "*.dat filter=lfs\n", "m.dat", s.add("m"), "m.bin", s.add("not tracked")))
	included := tree("shadowed.bin", s.add("the include's"), "i.bin", s.add("i"))
	mounted := artifact.Mount(artifact.Mount(rootTree, "module", module), ".", included)
	rules, err := artifact.Ignore{Extra: "ignored.*\n"}.Compile(t.Context(), nil)
	must(t, err)
	view := rules.View(t.Context(), mounted)
	held, nonPointers, err := lfs.Fill(t.Context(), view, lfs.Options{Fetch: s.fetch})
	if err != nil || len(nonPointers) != 0 {
		t.Fatal(err, nonPointers)
	}
	want := map[string]string{
		".gitattributes": "*.bin filter=lfs\n", "a.bin": "a", "shadowed.bin": s.add("the include's"), "i.bin": s.add("i"),
		"deep/b.bin": strings.Repeat("b", 300<<10), "deep/copy.bin": "a", "empty.bin": "", "text": "text",
		"module/.gitattributes": "*.dat filter=lfs\n", "module/m.dat": "m", "module/m.bin": s.add("not tracked"),
	}
	testenv.Equal(t, testenv.Contents(t, view), want, "view")
	testenv.Equal(t, len(s.asked), 3, "asked for %q", s.asked)
	if err := fstest.TestFS(rootTree, "a.bin", "deep/b.bin", "text", "ignored.bin"); err != nil {
		t.Error(err)
	}
	var archive bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &archive, view); err != nil {
		t.Fatal(err)
	}
	packed, err := artifact.Read(&archive, artifact.Limits{})
	must(t, err)
	defer packed.Close()
	testenv.Equal(t, testenv.Contents(t, packed), want, "archive")
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(rootTree, "a.bin"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// After a failure no spool is left, and the error names its subject.
func TestFailures(t *testing.T) {
	s := &completeSource{content: map[string]string{}}
	o := lfs.Options{Fetch: s.fetch, Temp: testenv.NewTempFiles(t).Create}
	wrapped := objects(t, tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", s.add("a")))
	broken := errors.New("broken")
	s.err = broken
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) {
		t.Error(err)
	}
	o.Temp = func() (*os.File, error) { return nil, broken }
	if _, _, err := lfs.Fill(t.Context(), wrapped, o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "create spool") {
		t.Errorf("%v", err)
	}
	full, err := os.Open(os.DevNull) // opened for reading only: writes fail
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
		at, err := lfs.Discover(testenv.URL(t, repo), "")
		if err != nil || at.URL.String() != want || at.Auth == strings.HasPrefix(repo, "ssh:") {
			t.Errorf("%s: %v, %v, want %s", repo, at, err, want)
		}
	}
}

type respondFunc func(*http.Request) string

func (a respondFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a(r))), Request: r, ContentLength: -1}, nil
}

// FuzzServer lets a server send any answer of the batch API, of git-lfs-authenticate,
// and any .lfsconfig.
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
		client := &http.Client{Transport: respondFunc(func(r *http.Request) string {
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
