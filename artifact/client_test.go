package artifact_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

func TestClientFetches(t *testing.T) {
	for _, algorithm := range []artifact.Algorithm{artifact.SHA256, artifact.SHA384, artifact.SHA512, artifact.BLAKE3} {
		s, _, _ := serve(t, artifact.StoreConfig{Algorithm: algorithm})
		a := put(t, s, object, "a.tar.gz", content)
		var c artifact.Client
		r, err := c.Open(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != content {
			t.Errorf("%s: %q, %v", algorithm, b, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestClientTriesAgain(t *testing.T) {
	tests := map[string]struct {
		answers []http.HandlerFunc
		ranges  []string // of the requests
	}{
		"unavailable":            {[]http.HandlerFunc{status(503), status(500), whole("", content)}, []string{"", "", ""}},
		"too many requests":      {[]http.HandlerFunc{status(429, "Retry-After", "3600"), whole("", content)}, []string{"", ""}},
		"busy until a date":      {[]http.HandlerFunc{status(503, "Retry-After", "Fri, 01 Jan 2999 00:00:00 GMT"), whole("", content)}, []string{"", ""}},
		"nonsense to wait for":   {[]http.HandlerFunc{status(503, "Retry-After", "-5"), whole("", content)}, []string{"", ""}},
		"timeout of the request": {[]http.HandlerFunc{status(408), whole("", content)}, []string{"", ""}},
		"connection refused at once": {[]http.HandlerFunc{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			whole("", content)}, []string{"", ""}},
		"break in the middle":    {[]http.HandlerFunc{broken(`"e"`, content, 10), whole(`"e"`, content)}, []string{"", "bytes=10-"}},
		"breaks again and again": {[]http.HandlerFunc{broken(`"e"`, content, 10), part(10, content[10:20]), whole(`"e"`, content)}, []string{"", "bytes=10-", "bytes=20-"}},
		"changed meanwhile":      {[]http.HandlerFunc{broken(`"old"`, "something else that is long enough..", 10), whole(`"e"`, content)}, []string{"", "bytes=10-"}},
		"no validator":           {[]http.HandlerFunc{broken(``, content, 10), whole("", content)}, []string{"", ""}},
		"weak validator":         {[]http.HandlerFunc{broken(`W/"e"`, content, 10), whole("", content)}, []string{"", ""}},
		"pieces of two files":    {[]http.HandlerFunc{broken(`"e"`, "something else that is long enough..", 10), part(10, content[10:]), whole(`"e"`, content)}, []string{"", "bytes=10-", ""}},
		"another place":          {[]http.HandlerFunc{broken(`"e"`, content, 10), part(5, content[5:]), whole(`"e"`, content)}, []string{"", "bytes=10-", ""}},
		"cannot continue":        {[]http.HandlerFunc{broken(`"e"`, content, 10), status(416), whole(`"e"`, content)}, []string{"", "bytes=10-", ""}},
		"silent end": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"e"`)
			io.WriteString(w, content[:10])
		}, whole(`"e"`, content)}, []string{"", "bytes=10-"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, test.answers...)
			c := &artifact.Client{Pause: -1}
			got, err := fetch(t, c, artifact.Artifact{URL: server.URL + "/a.tar.gz", Digest: digestOf(content), Size: int64(len(content))})
			if err != nil || got != content {
				t.Errorf("%q, %v", got, err)
			}
			var ranges []string
			for _, r := range server.seen() {
				ranges = append(ranges, r.Header.Get("Range"))
				if (r.Header.Get("Range") == "") != (r.Header.Get("If-Range") == "") {
					t.Errorf("Range %q with If-Range %q", r.Header.Get("Range"), r.Header.Get("If-Range"))
				}
			}
			if !slices.Equal(ranges, test.ranges) {
				t.Errorf("requests for ranges %q, want %q", ranges, test.ranges)
			}
		})
	}
}

func TestClientGivesUp(t *testing.T) {
	corrupt := func(err error) bool { var d *artifact.DigestError; return errors.As(err, &d) }
	limited := func(err error) bool { var l *artifact.LimitError; return errors.As(err, &l) }
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	says := func(text string) func(error) bool {
		return func(err error) bool { return strings.Contains(err.Error(), text) }
	}
	tests := map[string]struct {
		answer   http.HandlerFunc
		client   artifact.Client
		size     int64
		want     func(error) bool
		requests int
	}{
		"not found":            {answer: status(404), want: is(fs.ErrNotExist), requests: 1},
		"gone":                 {answer: status(410), want: is(fs.ErrNotExist), requests: 1},
		"unauthorised":         {answer: status(401), want: is(fs.ErrPermission), requests: 1},
		"forbidden":            {answer: status(403), want: is(fs.ErrPermission), requests: 1},
		"other refusal":        {answer: status(418), want: says("418"), requests: 1},
		"partial unasked":      {answer: part(0, content), want: says("206"), requests: 1},
		"always unavailable":   {answer: status(503), want: says("after 5 attempts: the server answers 503"), requests: 5},
		"fewer attempts":       {answer: status(503), client: artifact.Client{Attempts: 2}, want: says("503"), requests: 2},
		"one attempt":          {answer: status(503), client: artifact.Client{Attempts: 1}, want: says("503"), requests: 1},
		"always broken":        {answer: broken(`"e"`, content, 10), want: is(io.ErrUnexpectedEOF), requests: 5},
		"other content":        {answer: whole("", content+"x"), want: corrupt, requests: 1},
		"empty":                {answer: whole("", ""), want: corrupt, requests: 1},
		"announced too large":  {answer: whole("", content), client: artifact.Client{MaxBytes: 35}, want: limited, requests: 1},
		"endless":              {answer: endless, client: artifact.Client{MaxBytes: 1 << 20}, want: limited, requests: 1},
		"endless, known size":  {answer: endless, size: 1 << 17, want: says("more than the 131072 bytes"), requests: 1},
		"larger than it says":  {answer: whole("", content), size: 35, want: says("more than the 35 bytes"), requests: 1},
		"redirect loop":        {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, want: says("redirect refused: more than five"), requests: 6},
		"redirect to a file":   {answer: status(302, "Location", "file:///etc/passwd"), want: says("redirect refused"), requests: 1},
		"redirect to ftp":      {answer: status(302, "Location", "ftp://127.0.0.1/a"), want: says("redirect refused"), requests: 1},
		"redirect to nowhere":  {answer: status(302), want: says("302"), requests: -1},
		"huge header":          {answer: status(200, "X-Huge", strings.Repeat("x", 1<<20)), want: says("header"), requests: -1},
		"secret in a redirect": {answer: status(302, "Location", "ftp://u:canary@h/?sig=canary"), want: says("redirect refused"), requests: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, test.answer)
			c := &test.client
			c.Pause = -1
			_, err := fetch(t, c, artifact.Artifact{URL: server.URL + "/a.tar.gz?sig=canary", Digest: digestOf(content), Size: test.size})
			if err == nil || !test.want(err) {
				t.Errorf("got %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), server.URL)) {
				t.Errorf("the error leaks, or names no URL: %v", err)
			}
			if got := len(server.seen()); test.requests >= 0 && got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

func TestClientMeetsStalls(t *testing.T) {
	for name, test := range map[string]struct {
		answers []http.HandlerFunc
		ranges  []string
		took    time.Duration
		want    error
	}{
		"before headers": {[]http.HandlerFunc{stalled(content, 0), whole(`"e"`, content)}, []string{"", ""}, 30 * time.Second, nil},
		"in the middle":  {[]http.HandlerFunc{stalled(content, 10), whole(`"e"`, content)}, []string{"", "bytes=10-"}, 30 * time.Second, nil},
		"always":         {[]http.HandlerFunc{stalled(content, 0)}, []string{"", ""}, time.Minute, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, server := make(pipes), &script{answers: test.answers}
				s := &http.Server{Handler: server}
				go s.Serve(network)
				defer s.Close()
				transport := &http.Transport{DialContext: network.dial}
				defer transport.CloseIdleConnections()
				c := &artifact.Client{HTTP: &http.Client{Transport: transport}, Attempts: 2, Pause: -1}
				begun := time.Now()
				got, err := fetch(t, c, artifact.Artifact{URL: "http://store.example/a.tar.gz", Digest: digestOf(content)})
				if took := time.Since(begun); !errors.Is(err, test.want) || err == nil && got != content || took != test.took {
					t.Errorf("%q after %v, %v", got, took, err)
				}
				var ranges []string
				for _, r := range server.seen() {
					ranges = append(ranges, r.Header.Get("Range"))
				}
				if !slices.Equal(ranges, test.ranges) {
					t.Errorf("requests for ranges %q, want %q", ranges, test.ranges)
				}
			})
		})
	}
}

func TestClientRefuses(t *testing.T) {
	server := newScript(t, whole("", content))
	withUser := strings.Replace(server.URL, "http://", "http://user:canary@", 1)
	for name, a := range map[string]artifact.Artifact{
		"no digest":         {URL: server.URL},
		"unknown algorithm": {URL: server.URL, Digest: "md5:" + strings.Repeat("0", 32)},
		"short digest":      {URL: server.URL, Digest: "sha256:00"},
		"no URL":            {Digest: digestOf(content)},
		"no host":           {URL: "http:///a", Digest: digestOf(content)},
		"relative":          {URL: "/etc/passwd", Digest: digestOf(content)},
		"ftp":               {URL: "ftp://127.0.0.1/a", Digest: digestOf(content)},
		"file":              {URL: "file:///etc/passwd", Digest: digestOf(content)},
		"credentials":       {URL: withUser, Digest: digestOf(content)},
		"malformed":         {URL: "http://user:canary@[::1", Digest: digestOf(content)},
	} {
		if _, err := fetch(t, &artifact.Client{}, a); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(server.seen()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestClientObeysContext(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"stall": stalled(content, 10),
		"pause": status(503, "Retry-After", "30"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := newScript(t, func(w http.ResponseWriter, r *http.Request) {
				time.AfterFunc(20*time.Millisecond, cancel)
				answer(w, r)
			})
			spool := &spools{t: t}
			c := &artifact.Client{Temp: spool.create}
			if _, err := c.Open(ctx, artifact.Artifact{URL: server.URL, Digest: digestOf(content)}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			spool.checkClosed()
			if n := len(server.seen()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestClientFollowsRedirect(t *testing.T) {
	target := newScript(t, whole("", content))
	withUser := strings.Replace(target.URL, "http://", "http://user:password@", 1)
	server := newScript(t, status(307, "Location", withUser+"/b", "Set-Cookie", "a=b"))
	got, err := fetch(t, &artifact.Client{}, artifact.Artifact{URL: server.URL + "/a?sig=canary", Digest: digestOf(content)})
	if err != nil || got != content {
		t.Fatalf("%q, %v", got, err)
	}
	for _, r := range append(server.seen(), target.seen()...) {
		for _, name := range []string{"Authorization", "Cookie", "Referer"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s carries %s %q", r.URL.Path, name, value)
			}
		}
	}
}

func TestClientTLS(t *testing.T) {
	n := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; r.URL.Path == "/down" {
			http.Redirect(w, r, "http://"+r.Host+"/a", http.StatusFound)
			return
		}
		whole("", content)(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	a := artifact.Artifact{URL: server.URL + "/a", Digest: digestOf(content)}
	if _, err := fetch(t, &artifact.Client{}, a); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "attempts") {
		t.Errorf("unknown authority: %v", err)
	}
	if got, err := fetch(t, &artifact.Client{HTTP: server.Client()}, a); err != nil || got != content {
		t.Errorf("%q, %v", got, err)
	}
	a.URL = server.URL + "/down"
	if _, err := fetch(t, &artifact.Client{HTTP: server.Client()}, a); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("downgrade: %v", err)
	}
	if n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A server that compresses what it sends would change the bytes.
func TestClientAsksForTheBytesAsTheyAre(t *testing.T) {
	server := newScript(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			whole("", content)(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zw := gzip.NewWriter(w)
		io.WriteString(zw, content)
		zw.Close()
	})
	if got, err := fetch(t, &artifact.Client{}, artifact.Artifact{URL: server.URL, Digest: digestOf(content)}); err != nil || got != content {
		t.Errorf("%q, %v", got, err)
	}
}

func TestClientSpoolFails(t *testing.T) {
	server := newScript(t, whole("", content))
	a := artifact.Artifact{URL: server.URL, Digest: digestOf(content)}
	c := &artifact.Client{Temp: func() (*os.File, error) { return nil, fs.ErrPermission }}
	if _, err := c.Open(t.Context(), a); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no spool: %v", err)
	}
	c.Temp = func() (*os.File, error) {
		name := filepath.Join(t.TempDir(), "spool")
		return os.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o600)
	}
	if _, err := c.Open(t.Context(), a); err == nil {
		t.Error("a spool that cannot be written: no error")
	}
	if n := len(server.seen()); n != 1 {
		t.Errorf("%d requests: an error of the disk is not the server's", n)
	}
}
