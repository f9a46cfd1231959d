package lfs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

// receivedCredentials returns the credentials that a server received, as PHASE AUTHORIZATION X-KEY,
// sorted, each once.
func receivedCredentials(s *testenv.GitServer) []string {
	all := map[string]bool{}
	for _, q := range s.Requests() {
		all[strings.TrimSpace(fmt.Sprint(q.Phase, " ", q.Authorization, " ", q.Header.Get("X-Key")))] = true
		for _, h := range []string{"Referer", "Cookie", "Range"} {
			if v := q.Header.Get(h); v != "" {
				all[h+" "+v] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The credentials of the repository are sent to its origin only, those of a link to
// the origin of the link only.
func TestCredentials(t *testing.T) {
	const own = "Bearer " + canary
	link := map[string]string{"Authorization": "RemoteAuth link", "X-Key": "k", "Cookie": "c", "Range": "bytes=1-", "Host": "evil.example"}
	for name, row := range map[string]struct {
		edit       func(a *testenv.LFSAction, origin, other string)
		trusted    bool // the links say that they need no credentials
		here       func(other string) *testenv.Defect
		there      func(origin string) *testenv.Defect
		seen, also []string // received by origin and other
	}{
		"own link": {seen: []string{"lfs batch " + own, "lfs object " + own}},
		"own link with a header": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"},
		},
		"own link that brings credentials": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = link },
			seen: []string{"lfs batch " + own, "lfs object RemoteAuth link k"},
		},
		"own link that needs none": {trusted: true, seen: []string{"lfs batch " + own, "lfs object"}},
		"link elsewhere": {
			edit: func(a *testenv.LFSAction, origin, other string) { a.Href = strings.Replace(a.Href, origin, other, 1) },
			seen: []string{"lfs batch " + own}, also: []string{"lfs object"},
		},
		"link elsewhere that brings credentials": {
			edit: func(a *testenv.LFSAction, origin, other string) {
				a.Href, a.Header = strings.Replace(a.Href, origin, other, 1), link
			},
			seen: []string{"lfs batch " + own}, also: []string{"lfs object RemoteAuth link k"},
		},
		"link with user information": {
			edit: func(a *testenv.LFSAction, origin, other string) {
				a.Href = strings.Replace(a.Href, origin, strings.Replace(other, "://", "://u:p@", 1), 1)
			},
			seen: []string{"lfs batch " + own}, also: []string{"lfs object"},
		},
		"batch redirected": {
			here: testenv.Redirect, // the redirected request is still a POST
			seen: []string{"lfs batch " + own}, also: []string{"lfs batch", "lfs object"},
		},
		"batch redirected, links lead back": {
			here: func(other string) *testenv.Defect { d := testenv.Redirect(other); d.Phase = testenv.LFSBatch; return d },
			edit: func(a *testenv.LFSAction, origin, other string) { a.Href = strings.Replace(a.Href, other, origin, 1) },
			seen: []string{"lfs batch " + own, "lfs object"}, also: []string{"lfs batch"},
		},
		"download redirected": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(other string) *testenv.Defect {
				d := testenv.Redirect(other)
				d.Phase = testenv.LFSObject
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"}, also: []string{"lfs object"},
		},
		"download with credentials redirected": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = link },
			here: func(other string) *testenv.Defect {
				d := testenv.Redirect(other)
				d.Phase = testenv.LFSObject
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object RemoteAuth link k"}, also: []string{"lfs object"},
		},
		"download redirected here": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(string) *testenv.Defect {
				d := testenv.Redirect("")
				d.Phase, d.Times, d.Header = testenv.LFSObject, 2, http.Header{"Location": {"?"}}
				return d
			},
			seen: []string{"lfs batch " + own, "lfs object " + own + " k"},
		},
		"download redirected there and back": {
			edit: func(a *testenv.LFSAction, _, _ string) { a.Header = map[string]string{"X-Key": "k"} },
			here: func(other string) *testenv.Defect {
				d := testenv.Redirect(other)
				d.Phase, d.Times = testenv.LFSObject, 2
				return d
			},
			there: testenv.Redirect,
			seen:  []string{"lfs batch " + own, "lfs object", "lfs object " + own + " k"}, also: []string{"lfs object"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := new(testenv.LFS)
			all := func(*http.Request) bool { return true }
			origin := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects, Allow: all}, nil)
			other := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects, Allow: all}, nil)
			objects.Edit = func(o *testenv.LFSAnswer) {
				o.Authenticated = row.trusted
				if row.edit != nil {
					edit(func(a *testenv.LFSAction) { row.edit(a, origin.URL, other.URL) })(o)
				}
			}
			s := newLFSServer(t, objects)
			s.objects.Edit, s.server = objects.Edit, origin
			s.moveRepository(t, origin.Repo())
			if row.here != nil {
				origin.Break(row.here(other.URL))
			}
			if row.there != nil {
				other.Break(row.there(origin.URL))
			}
			s.checkFilled(s.fill(t.Context()))
			testenv.Equal(t, receivedCredentials(origin), row.seen, "what the repository's origin saw")
			testenv.Equal(t, receivedCredentials(other), row.also, "the other origin saw")
		})
	}
}

// moveRepository moves the repository of the client to another URL.
func (s *lfsServer) moveRepository(t *testing.T, url string) {
	repo := testenv.URL(t, url)
	config := transport.Config{Origin: repo, Auth: transport.Auth{Bearer: canary}}
	s.client.HTTP, s.client.Bare = transport.Client(config), transport.Client(transport.Config{Origin: repo})
	s.client.Endpoint = func(context.Context) (lfs.Endpoint, error) { return lfs.Discover(repo, "") }
}

// A server may lead to http and https only, never from https to http, and never from
// another host to a loopback or link-local address.
func TestRefusedAddresses(t *testing.T) {
	objects := new(testenv.LFS)
	ca := testenv.NewCA(t)
	plain := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects}, nil)
	secure := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects, CA: ca}, nil)
	testenv.Resolve(t, "git.example", "203.0.113.7")
	at := "http://git.example" + plain.URL[strings.LastIndex(plain.URL, ":"):] + "/repo.git"
	everywhere := func(repo string) *http.Client {
		u := testenv.URL(t, repo)
		return transport.Client(transport.Config{Origin: u, TLS: &tls.Config{RootCAs: ca.Pool()}})
	}
	for name, row := range map[string]struct {
		repo, href, location string
		server               *testenv.GitServer
		say                  string
	}{
		"link leads from https to http":     {secure.Repo(), plain.URL + "/x", "", secure, "leads from https to http"},
		"redirect leads from https to http": {secure.Repo(), "", plain.URL, secure, "redirect: address refused"},
		"link to loopback":                  {at, "http://127.0.0.1/x", "", plain, "this machine or link"},
		"link to metadata service":          {at, "http://169.254.169.254/latest", "", plain, "metadata service"},
		"redirect to another scheme":        {at, "", "ftp://git.example", plain, "no HTTP address"},
	} {
		t.Run(name, func(t *testing.T) {
			objects.Edit = nil
			if row.href != "" {
				objects.Edit = hrefTo(row.href)
			}
			s := newLFSServer(t, objects)
			s.moveRepository(t, row.repo)
			s.client.HTTP, s.client.Bare = everywhere(row.repo), everywhere(row.repo)
			row.server.Break(nil)
			if row.location != "" {
				row.server.Break(testenv.Redirect(row.location))
			}
			_, err := s.fill(t.Context())
			if narrower := errors.As(err, new(*transport.ZoneError)); narrower == errors.Is(err, lfs.ErrRefused) || !strings.Contains(err.Error(), row.say) {
				t.Errorf("%v, want %s", err, row.say)
			}
		})
	}
}

func TestRedirectsWithoutEnd(t *testing.T) {
	s := newLFSServer(t, new(testenv.LFS))
	s.server.Break(testenv.Redirect("")) // a redirect without an address
	if _, err := s.fill(t.Context()); !errors.Is(err, lfs.ErrProtocol) {
		t.Errorf("%v", err)
	}
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }))
	defer loop.Close()
	s.server.Break(testenv.Redirect(loop.URL))
	if _, err := s.fill(t.Context()); !errors.Is(err, lfs.ErrRefused) || !strings.Contains(err.Error(), "more than 5 redirects") {
		t.Errorf("%v", err)
	}
}

// Links that have expired are requested again, up to a limit.
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
			s := newLFSServer(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) {
				if n++; n <= row.times {
					row.edit(a)
				}
			})})
			got, err := s.fill(t.Context())
			if row.say == "" {
				s.checkFilled(got, err)
			} else if err == nil || !strings.Contains(err.Error(), row.say) {
				t.Errorf("%v, want %s", err, row.say)
			}
			testenv.Equal(t, s.count(testenv.LFSBatch), row.batches, "batches")
		})
	}
}

// A link may expire during its request: if the server refuses it, the client checks
// the expiry again.
func TestExpiryOnTheWay(t *testing.T) {
	s := newLFSServer(t, &testenv.LFS{Edit: edit(func(a *testenv.LFSAction) { a.ExpiresIn = 60 })})
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

// The endpoint is discovered again once it has expired.
func TestEndpointExpiry(t *testing.T) {
	for in, want := range map[time.Duration]int{time.Hour: 1, time.Second: 2} {
		s := newLFSServer(t, new(testenv.LFS))
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
		s.checkFilled(s.fill(t.Context()))
		if n != want {
			t.Errorf("expires in %v: asked %d times for the endpoint, want %d", in, n, want)
		}
	}
	s := newLFSServer(t, new(testenv.LFS))
	lost := errors.New("lost")
	s.client.Endpoint = func(context.Context) (lfs.Endpoint, error) { return lfs.Endpoint{}, lost }
	if _, err := s.fill(t.Context()); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
}

// These defects of servers give errors that say what is wrong.
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
		"malformed":             {defect: answer(testenv.LFSBatch, 200, `{"objects":[`), is: lfs.ErrProtocol, say: "the answer is invalid"},
		"wrong types":           {defect: answer(testenv.LFSBatch, 200, `{"objects":{"oid":1}}`), is: lfs.ErrProtocol, say: "the answer is invalid"},
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
			s := newLFSServer(t, &testenv.LFS{Edit: row.edit, Extra: row.extra})
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

// Transient failures are retried, up to a limit.
func TestRetries(t *testing.T) {
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
			s := newLFSServer(t, new(testenv.LFS))
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

// The client does not wait if the next attempt would start after the deadline.
func TestNoTimeLeft(t *testing.T) {
	s := newLFSServer(t, new(testenv.LFS))
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "30"))
	s.client.Now = nil
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.fill(ctx); err == nil || !strings.Contains(err.Error(), "spec.timeout") || len(s.waits) > 0 {
		t.Errorf("%v after %v", err, s.waits)
	}
	// The end of the context ends a wait too.
	s.client.Wait = nil
	ctx, cancelLong := context.WithTimeout(t.Context(), time.Hour)
	defer cancelLong()
	ctx, stop := context.WithCancelCause(ctx)
	enough := errors.New("enough")
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "10"))
	calls := 0
	s.client.Now = func() time.Time {
		if calls++; calls == 3 { // for the endpoint, for the answer, and before the wait
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
	s.checkFilled(s.fill(t.Context()))
}

// Permanent failures are not retried.
func TestLastingFailures(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	untrusted := testenv.ServeRepos(t, testenv.GitConfig{LFS: new(testenv.LFS), CA: testenv.NewCA(t)}, nil)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer refusing.Close()
	behind := func(*http.Request) (*url.URL, error) { return url.Parse(refusing.URL) }
	for _, row := range []struct {
		url   string
		proxy func(*http.Request) (*url.URL, error)
		say   string
	}{
		{nobody, nil, nobody + "/repo.git/info/lfs/objects/batch"},
		{untrusted.URL, nil, "certificate"},
		{"http://git.example", behind, "407"},
	} {
		s := newLFSServer(t, new(testenv.LFS))
		s.moveRepository(t, row.url+"/repo.git")
		if row.proxy != nil {
			s.client.HTTP = transport.Client(transport.Config{Proxy: row.proxy})
		}
		if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), row.say) || len(s.waits) != 0 {
			t.Errorf("%s: %v after %v", row.url, err, s.waits)
		}
	}
	cutting := newLFSServer(t, new(testenv.LFS))
	cutting.server.Break(&testenv.Defect{Phase: testenv.LFSBatch, Do: testenv.Cut, After: -1, Times: 1})
	cutting.checkFilled(cutting.fill(t.Context()))
	testenv.Equal(t, len(cutting.waits), 1, "waited %v for a connection that broke", cutting.waits)
}

// An error names a few objects, and the number of the others.
func TestManyFaults(t *testing.T) {
	s := newLFSServer(t, &testenv.LFS{Edit: fault(404, strings.Repeat("long ", 1000))})
	for i := range 6 {
		s.files[fmt.Sprint(i, ".bin")] = &fstest.MapFile{Data: []byte(s.objects.Add(fmt.Sprint(i)))}
	}
	if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), "and 3 more") || strings.Count(err.Error(), "object ") != 5 || len(err.Error()) > 4000 {
		t.Errorf("%v", err)
	}
}

// If a server stalls, the fetch ends with the context, and everything is closed.
func TestStalls(t *testing.T) {
	for _, d := range []testenv.Defect{
		{Phase: testenv.LFSBatch, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSBatch, Do: testenv.Stall, After: 10},
		{Phase: testenv.LFSObject, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSObject, Do: testenv.Stall, After: 4},
	} {
		s := newLFSServer(t, new(testenv.LFS))
		s.options.Temp = testenv.NewTempFiles(t).Create
		began := s.server.Break(&d)
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		go func() { <-began; cancel(enough) }()
		if _, err := s.fill(ctx); !errors.Is(err, enough) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
