package lfs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

const canary = "cAnArY-t0ken"

// A stage is an LFS server and a client of it with credentials.
type stage struct {
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

func newStage(t *testing.T, objects *testenv.LFS) *stage {
	t.Helper()
	s := &stage{t: t, objects: objects, clock: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
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
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *stage) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *stage) wait(_ context.Context, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, d)
	s.clock = s.clock.Add(d)
	return nil
}

// fill returns the files with what they stand for.
func (s *stage) fill(ctx context.Context) (map[string]string, error) {
	s.t.Helper()
	attributes, err := lfs.ReadAttributes(s.files)
	if err != nil {
		s.t.Fatal(err)
	}
	view := lfs.New(s.files, attributes, func(context.Context) (lfs.Source, error) { return s.client, nil })
	held, _, err := lfs.Fill(ctx, view, s.options)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	return read(s.t, view), nil
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
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (s *stage) good(got map[string]string, err error) {
	s.t.Helper()
	if err != nil || got["a.bin"] != "content of a" || got["b.bin"] != "content of b" {
		s.t.Errorf("%v, %q", err, got)
	}
}

func (s *stage) count(phase testenv.Phase) (n int) {
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

// What servers get wrong, and what they say.
func TestDefects(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		edit   func(*testenv.LFSAnswer)
		extra  string
		is     error
		say    string
	}{
		"batch unauthorised":    {defect: answer(testenv.LFSBatch, 401, `{"message":"Credentials needed"}`), is: lfs.ErrAuth, say: "Credentials needed"},
		"batch forbidden":       {defect: answer(testenv.LFSBatch, 403, ``), is: fs.ErrPermission, say: "status 403"},
		"batch not found":       {defect: answer(testenv.LFSBatch, 404, `Not here`, "Content-Type", "text/plain"), is: fs.ErrNotExist, say: "Not here"},
		"batch with page":       {defect: answer(testenv.LFSBatch, 404, `<html>`, "Content-Type", "text/html"), is: lfs.ErrNotFound, say: "status 404: "},
		"batch refused":         {defect: answer(testenv.LFSBatch, 422, `{"message":"bad\u001b[31m objects"}`), say: "status 422 (bad objects)"},
		"quota":                 {defect: answer(testenv.LFSBatch, 509, ``), say: "bandwidth quota"},
		"malformed":             {defect: answer(testenv.LFSBatch, 200, `{"objects":[`), is: lfs.ErrProtocol, say: "not what it should be"},
		"wrong types":           {defect: answer(testenv.LFSBatch, 200, `{"objects":{"oid":1}}`), is: lfs.ErrProtocol, say: "not what it should be"},
		"web page":              {defect: answer(testenv.LFSBatch, 200, ` <!doctype html>`), is: lfs.ErrProtocol, say: "web page"},
		"deep":                  {defect: answer(testenv.LFSBatch, 200, strings.Repeat("[", 1<<20)), is: lfs.ErrProtocol},
		"huge":                  {defect: answer(testenv.LFSBatch, 200, `{"objects":[]`+strings.Repeat(" ", 10<<20)+`}`), is: lfs.ErrProtocol, say: "more than 10485760 bytes"},
		"no objects":            {defect: answer(testenv.LFSBatch, 200, `{}`), is: lfs.ErrProtocol, say: "does not mention it"},
		"other objects":         {edit: func(o *testenv.LFSAnswer) { o.OID = some }, is: lfs.ErrProtocol, say: "does not mention it"},
		"other transfer":        {defect: answer(testenv.LFSBatch, 200, `{"transfer":"tus"}`), is: lfs.ErrProtocol, say: `"tus"`},
		"other hash":            {defect: answer(testenv.LFSBatch, 200, `{"hash_algo":"sha512"}`), is: lfs.ErrProtocol, say: `"sha512"`},
		"no link":               {edit: func(o *testenv.LFSAnswer) { o.Actions = nil }, is: lfs.ErrProtocol, say: "no way to download"},
		"object absent":         {edit: fault(404, "Object does not exist"), is: fs.ErrNotExist, say: "of a.bin: not found: status 404 (Object does not exist)"},
		"object gone":           {edit: fault(410, ""), is: lfs.ErrNotFound, say: "removed"},
		"object invalid":        {edit: fault(422, "no"), say: "does not accept the pointer"},
		"object forbidden":      {edit: fault(403, ""), is: lfs.ErrAuth},
		"object code unknown":   {edit: fault(-7, "odd"), say: "status -7 (odd)"},
		"link to a file":        {edit: hrefTo("file:///etc/passwd"), is: lfs.ErrRefused, say: "no HTTP address"},
		"link to nowhere":       {edit: hrefTo("http://"), is: lfs.ErrRefused},
		"link malformed":        {edit: hrefTo("http://[::1"), is: lfs.ErrProtocol, say: "malformed"},
		"link empty":            {edit: hrefTo(""), is: lfs.ErrProtocol, say: "malformed"},
		"link with a huge head": {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X": strings.Repeat("x", 65<<10)} }), is: lfs.ErrProtocol, say: "more than 65536"},
		"header injected":       {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X": "a\r\nY: b"} }), is: lfs.ErrProtocol, say: "invalid header field"},
		"header name malformed": {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X Y": "a"} }), is: lfs.ErrProtocol, say: "invalid header field"},
		"download forbidden":    {defect: answer(testenv.LFSObject, 403, ``), say: "status 403"},
		"download absent":       {defect: answer(testenv.LFSObject, 404, ``), is: fs.ErrNotExist, say: "status 404"},
		"download partial":      {defect: answer(testenv.LFSObject, 206, `cont`), say: "status 206"},
		"wrong content":         {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Flip, After: 3}, say: "its SHA-256 is"},
		"truncated":             {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.End, After: 3}, say: "ends after 3 of 12 bytes"},
		"cut":                   {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Cut, After: 3}},
		"too long":              {extra: "!", say: "its pointer tells 12"},
		"much too long":         {extra: strings.Repeat("!", 1<<20), say: "12"},
		"no content":            {defect: answer(testenv.LFSObject, 200, ``), say: "ends after 0 of 12 bytes"},
		"address too long":      {edit: hrefTo("http://" + strings.Repeat("x", 9000)), is: lfs.ErrProtocol, say: "more than 8192 bytes"},
		"batch that echoes":     {defect: answer(testenv.LFSBatch, 403, `{"message":"no `+canary+` here"}`), say: "(no *** here)"},
		"object that echoes":    {edit: fault(403, "no "+canary+" here"), say: "(no *** here)"},
		"header echoed": {
			edit:   edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X-Key": "of-a-link"} }),
			defect: answer(testenv.LFSObject, 403, `{"message":"no of-a-link here"}`), say: "(no *** here)",
		},
		"query echoed": {
			edit:   edit(func(a *testenv.LFSAction) { a.Href += "?sig=of-a-link" }),
			defect: answer(testenv.LFSObject, 403, `{"message":"no of-a-link here"}`), say: "(no *** here)",
		},
		"message cut":        {edit: fault(403, strings.Repeat("m ", 147)+"part-of-a-secret"), say: "m m…)"},
		"redirects for ever": {defect: answer(testenv.LFSBatch, 307, ``, "Location", ""), say: "redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, &testenv.LFS{Edit: row.edit, Extra: row.extra})
			s.server.Break(row.defect)
			got, err := s.fill(t.Context())
			if err == nil || row.is != nil && !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.say) {
				t.Fatalf("%v, %q; want %v, %s", err, got, row.is, row.say)
			}
			if !strings.Contains(err.Error(), "git lfs: ") || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func fault(code int, message string) func(*testenv.LFSAnswer) {
	return func(o *testenv.LFSAnswer) { o.Actions, o.Error = nil, &testenv.LFSError{Code: code, Message: message} }
}

// Failures that may pass are met with patience, and with no more than that.
func TestPatience(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		times  int
		waits  []time.Duration
		say    string // of the error; "" when all ends well
	}{
		"batch limited":           {answer(testenv.LFSBatch, 429, ``, "Retry-After", "7"), 1, []time.Duration{7 * time.Second}, ""},
		"batch limited by date":   {answer(testenv.LFSBatch, 503, ``, "Retry-After", "Tue, 01 Jan 2030 00:00:09 GMT"), 1, []time.Duration{9 * time.Second}, ""},
		"batch limited at once":   {answer(testenv.LFSBatch, 429, ``, "Retry-After", "0"), 2, []time.Duration{0, 0}, ""},
		"batch down":              {answer(testenv.LFSBatch, 502, ``), 3, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, ""},
		"batch down for ever":     {answer(testenv.LFSBatch, 500, ``), 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, "status 500"},
		"batch asks for too long": {answer(testenv.LFSBatch, 429, ``, "Retry-After", "3600"), 0, nil, "asks to wait 1h0m0s"},
		"batch cut":               {&testenv.Defect{Phase: testenv.LFSBatch, Do: testenv.Cut, After: 10}, 1, []time.Duration{time.Second}, ""},
		"object limited":          {answer(testenv.LFSObject, 429, ``, "Retry-After", "5"), 1, []time.Duration{5 * time.Second}, ""},
		"object cut":              {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Cut, After: 5}, 1, []time.Duration{time.Second}, ""},
		"object short":            {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.End, After: 5}, 1, []time.Duration{time.Second}, ""},
		"object wrong":            {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Flip, After: 5}, 1, nil, "SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, new(testenv.LFS))
			delete(s.files, "b.bin")
			row.defect.Times = row.times
			s.server.Break(row.defect)
			got, err := s.fill(t.Context())
			if row.say == "" && (err != nil || got["a.bin"] != "content of a") || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) {
				t.Errorf("%v, %q; want %q", err, got, row.say)
			}
			if fmt.Sprint(s.waits) != fmt.Sprint(row.waits) {
				t.Errorf("waited %v, want %v", s.waits, row.waits)
			}
		})
	}
}

// Nobody waits for what comes after the end.
func TestNoTimeLeft(t *testing.T) {
	s := newStage(t, new(testenv.LFS))
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "30"))
	s.client.Now = nil
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.fill(ctx); err == nil || !strings.Contains(err.Error(), "spec.timeout") || len(s.waits) > 0 {
		t.Errorf("%v after %v", err, s.waits)
	}
	// While somebody waits, the end comes all the same.
	s.client.Wait = nil
	ctx, later := context.WithTimeout(t.Context(), time.Hour)
	defer later()
	ctx, stop := context.WithCancelCause(ctx)
	enough := errors.New("enough")
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "10"))
	asked := 0
	s.client.Now = func() time.Time {
		if asked++; asked == 3 { // for the endpoint, for the answer, and before the wait
			stop(enough)
		}
		return time.Now()
	}
	if _, err := s.fill(ctx); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	s.client.Now = nil
	defect := answer(testenv.LFSBatch, 429, ``, "Retry-After", "0")
	defect.Times = 1
	s.server.Break(defect)
	s.good(s.fill(t.Context()))
}

// A failure that lasts is not met with patience.
func TestLastingFailures(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	untrusted := testenv.ServeAll(t, testenv.HTTP{LFS: new(testenv.LFS), CA: testenv.NewCA(t)}, nil)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer refusing.Close()
	behind := func(*http.Request) (*url.URL, error) { return url.Parse(refusing.URL) }
	for _, row := range []struct {
		url   string
		proxy func(*http.Request) (*url.URL, error)
		say   string
	}{
		{closed.URL, nil, closed.URL + "/repo.git/info/lfs/objects/batch"},
		{untrusted.URL, nil, "certificate"},
		{"http://git.example", behind, "407"},
	} {
		s := newStage(t, new(testenv.LFS))
		s.at(t, row.url+"/repo.git")
		if row.proxy != nil {
			s.client.HTTP = transport.Client(transport.Config{Proxy: row.proxy})
		}
		if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), row.say) || len(s.waits) != 0 {
			t.Errorf("%s: %v after %v", row.url, err, s.waits)
		}
	}
	cutting := newStage(t, new(testenv.LFS))
	cutting.server.Break(&testenv.Defect{Phase: testenv.LFSBatch, Do: testenv.Cut, After: -1, Times: 1})
	cutting.good(cutting.fill(t.Context()))
	if len(cutting.waits) != 1 {
		t.Errorf("waited %v for a connection that broke", cutting.waits)
	}
}

// An error tells of a few objects, and how many more there are.
func TestManyFaults(t *testing.T) {
	s := newStage(t, &testenv.LFS{Edit: fault(404, strings.Repeat("long ", 1000))})
	for i := range 6 {
		s.files[fmt.Sprint(i, ".bin")] = &fstest.MapFile{Data: []byte(s.objects.Add(fmt.Sprint(i)))}
	}
	if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), "and 3 more") || strings.Count(err.Error(), "object ") != 5 || len(err.Error()) > 4000 {
		t.Errorf("%v", err)
	}
}

// Links that have expired are asked for again, up to a point.
func TestExpiry(t *testing.T) {
	for name, row := range map[string]struct {
		edit    func(*testenv.LFSAction)
		times   int // how many links are edited
		batches int
		say     string
	}{
		"expired":          {func(a *testenv.LFSAction) { a.ExpiresIn = -1 }, 2, 2, ""},
		"expired by date":  {func(a *testenv.LFSAction) { a.ExpiresAt = "2029-12-31T23:59:59Z" }, 2, 2, ""},
		"seconds decide":   {func(a *testenv.LFSAction) { a.ExpiresAt, a.ExpiresIn = "2000-01-01T00:00:00Z", 600 }, 2, 1, ""},
		"not yet":          {func(a *testenv.LFSAction) { a.ExpiresAt = "2030-01-01T01:00:00+00:00" }, 2, 1, ""},
		"no date":          {func(a *testenv.LFSAction) { a.ExpiresAt = "0001-01-01T00:00:00Z" }, 2, 1, ""},
		"some date":        {func(a *testenv.LFSAction) { a.ExpiresAt = "tomorrow" }, 2, 1, ""},
		"one of them":      {func(a *testenv.LFSAction) { a.ExpiresIn = -5 }, 1, 2, ""},
		"always expired":   {func(a *testenv.LFSAction) { a.ExpiresIn = -1 << 40 }, 1 << 30, 3, "expired 3 times"},
		"expires too soon": {func(a *testenv.LFSAction) { a.ExpiresIn = 1 }, 1 << 30, 3, "clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			s := newStage(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) {
				if n++; n <= row.times {
					row.edit(a)
				}
			})})
			got, err := s.fill(t.Context())
			if row.say == "" {
				s.good(got, err)
			} else if err == nil || !strings.Contains(err.Error(), row.say) {
				t.Errorf("%v, want %s", err, row.say)
			}
			if n := s.count(testenv.LFSBatch); n != row.batches {
				t.Errorf("%d batches, want %d", n, row.batches)
			}
		})
	}
}

// A link may expire on its way: who is refused looks at the clock again.
func TestExpiryOnTheWay(t *testing.T) {
	s := newStage(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) { a.ExpiresIn = 60 })})
	delete(s.files, "b.bin")
	refused := answer(testenv.LFSObject, 403, ``)
	refused.Times = 1
	s.server.Break(refused)
	s.client.Now = func() time.Time {
		if s.count(testenv.LFSObject) > 0 {
			return s.clock.Add(time.Hour)
		}
		return s.clock
	}
	if got, err := s.fill(t.Context()); err != nil || got["a.bin"] != "content of a" || s.count(testenv.LFSBatch) != 2 {
		t.Errorf("%v, %q", err, got)
	}
}

// The endpoint is looked for again once what it granted has expired.
func TestEndpointExpiry(t *testing.T) {
	for in, want := range map[time.Duration]int{time.Hour: 1, time.Second: 2} {
		s := newStage(t, new(testenv.LFS))
		for i := range 150 {
			s.files[fmt.Sprint(i, ".bin")] = &fstest.MapFile{Data: []byte(s.objects.Add(fmt.Sprint(i)))}
		}
		found, n := s.client.Endpoint, 0
		s.client.Endpoint = func(ctx context.Context) (lfs.Endpoint, error) {
			n++
			at, err := found(ctx)
			at.Expires = s.now().Add(in)
			return at, err
		}
		s.good(s.fill(t.Context()))
		if n != want {
			t.Errorf("expires in %v: asked %d times for the endpoint, want %d", in, n, want)
		}
	}
	s := newStage(t, new(testenv.LFS))
	lost := errors.New("lost")
	s.client.Endpoint = func(context.Context) (lfs.Endpoint, error) { return lfs.Endpoint{}, lost }
	if _, err := s.fill(t.Context()); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
}

// A stall ends with the context, and everything is closed.
func TestStalls(t *testing.T) {
	for _, d := range []testenv.Defect{
		{Phase: testenv.LFSBatch, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSBatch, Do: testenv.Stall, After: 10},
		{Phase: testenv.LFSObject, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSObject, Do: testenv.Stall, After: 4},
	} {
		s := newStage(t, new(testenv.LFS))
		dir := t.TempDir()
		var spool *os.File
		s.options.Temp = func() (f *os.File, err error) { spool, err = os.CreateTemp(dir, "spool"); return spool, err }
		began := s.server.Break(&d)
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		go func() { <-began; cancel(enough) }()
		if _, err := s.fill(ctx); !errors.Is(err, enough) {
			t.Errorf("%+v: %v", d, err)
		}
		if spool.Close() == nil {
			t.Errorf("%+v: the spool is open", d)
		}
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	err = cache.Put("lfs/sha256/"+p.OID+" two", func(w io.Writer) error {
		_, err := io.WriteString(w, "forged......")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server.Reset()
	s.good(s.fill(t.Context()))
	if n := s.count(testenv.LFSObject); n != 1 {
		t.Errorf("%d downloads instead of a forged entry", n)
	}
}
