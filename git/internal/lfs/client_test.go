package lfs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
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
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

const canary = "cAnArY-t0ken"

// An lfsServer is an LFS server and a client of it with credentials.
type lfsServer struct {
	t       *testing.T
	objects *testenv.LFS
	server  *testenv.Server
	client  *lfs.Client
	options lfs.Options
	files   fstest.MapFS

	mu    sync.Mutex
	waits []time.Duration
	clock time.Time
}

func newStage(t *testing.T, objects *testenv.LFS) *lfsServer {
	t.Helper()
	s := &lfsServer{t: t, objects: objects, clock: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.server = testenv.ServeAll(t, testenv.HTTP{LFS: objects, Bearer: canary}, nil)
	s.files = tree(".gitattributes", "*.bin filter=lfs\n", "a.bin", objects.Add("content of a"), "b.bin", objects.Add("content of b"))
	repo := parse(t, s.server.Repo())
	config := transport.Config{Origin: repo, Auth: transport.Auth{Bearer: canary}}
	s.client = &lfs.Client{
		HTTP: transport.Client(config), Bare: transport.Client(transport.Config{Origin: repo}),
		Endpoint: func(context.Context) (lfs.Endpoint, error) { return lfs.Discover(repo, "") },
		Now:      s.now, Wait: s.wait,
	}
	return s
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
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

// fill returns the files with what they stand for.
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
	return read(s.t, view), nil
}

// A database is an object.Database in memory.
type database map[object.ID][]byte

func (d database) Stat(id object.ID) (object.Type, int64, error) {
	b, ok := d[id]
	if !ok {
		return 0, 0, fs.ErrNotExist
	}
	return object.Type(b[0]), int64(len(b)) - 1, nil
}

func (d database) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, size, err := d.Stat(id)
	if err != nil {
		return 0, 0, nil, err
	}
	return t, size, io.NopCloser(bytes.NewReader(d[id][1:])), nil
}

func (d database) add(t object.Type, data []byte) object.ID {
	h := object.NewHasher(object.SHA1)
	h.Begin(t, int64(len(data)))
	h.Write(data)
	id, _ := h.ID()
	d[id] = append([]byte{byte(t)}, data...)
	return id
}

// objects makes a tree of Git objects from files.
func objects(t testing.TB, files fstest.MapFS) *object.FS {
	d := database{}
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
				mode, id = "100644", d.add(object.Blob, files[name].Data)
			}
			data = append(append(data, mode+" "+e.Name()+"\x00"...), id.Bytes()...)
		}
		return d.add(object.Tree, data)
	}
	return object.TreeFS(d, dir("."))
}

// read returns the files of a tree.
func read(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() != int64(len(b)) {
			t.Errorf("%s: size %d, has %d bytes", name, info.Size(), len(b))
		}
		found[name] = string(b)
		return err
	})
	must(t, err)
	return found
}

func (s *lfsServer) good(got map[string]string, err error) {
	s.t.Helper()
	if err != nil || got["a.bin"] != "content of a" || got["b.bin"] != "content of b" {
		s.t.Errorf("%v, %q", err, got)
	}
}

func (s *lfsServer) count(phase testenv.Phase) (n int) {
	for _, q := range s.server.Requests() {
		if q.Phase == phase {
			n++
		}
	}
	return n
}

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

// Objects are asked for 100 at a time, once each, and counted by their bytes.
func TestMany(t *testing.T) {
	s := newStage(t, new(testenv.LFS))
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
	if n := s.count(testenv.LFSBatch); n != 3 {
		t.Errorf("%d batches", n)
	}
	if n := s.count(testenv.LFSObject); n != 2+249 {
		t.Errorf("%d downloads", n)
	}
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
		s := newStage(t, new(testenv.LFS))
		s.options = row.options
		maps.Copy(s.files, row.files)
		if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), row.say) {
			t.Errorf("%s: %v, want %s", name, err, row.say)
		}
		if n := len(s.server.Requests()); n != 0 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

func TestCache(t *testing.T) {
	s := newStage(t, new(testenv.LFS))
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	must(t, err)
	defer cache.Close()
	s.client.Cache, s.client.Scope = cache, "one"
	s.good(s.fill(t.Context()))
	s.server.Reset()
	s.good(s.fill(t.Context()))
	if n := len(s.server.Requests()); n != 0 {
		t.Errorf("%d requests for what is cached", n)
	}
	s.client.Scope = "two"
	s.good(s.fill(t.Context()))
	if n := s.count(testenv.LFSObject); n != 2 {
		t.Errorf("%d downloads in another scope", n)
	}
	// What somebody else put there under the key is not taken.
	p, err := lfs.ParsePointer(s.files["a.bin"].Data)
	must(t, err)
	err = cache.Put("lfs/sha256/"+p.OID+" two", func(w io.Writer) error {
		_, err := io.WriteString(w, "forged......")
		return err
	})
	must(t, err)
	s.server.Reset()
	s.good(s.fill(t.Context()))
	if n := s.count(testenv.LFSObject); n != 1 {
		t.Errorf("%d downloads instead of a forged entry", n)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
