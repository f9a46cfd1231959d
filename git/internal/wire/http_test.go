package wire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestHungUp checks that a request is sent again, but not forever, if a server or a
// proxy ends the connection without an answer.
func TestHungUp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hangUps  int64 // before every answer
		requests int64
		ok       bool
	}{
		{"now and then", 2, 6, true},
		{"always", 1 << 30, 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all, left atomic.Int64
			left.Store(tt.hangUps)
			answering := &scriptedServer{greeting: greeting2, refs: mainOnly}
			client, u := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				all.Add(1)
				if left.Add(-1) >= 0 {
					panic(http.ErrAbortHandler)
				}
				left.Store(tt.hangUps)
				answering.ServeHTTP(w, req)
			}))
			remote, err := dial(t.Context(), wire.HTTP(client, u))
			if err == nil {
				defer remote.Close()
				_, err = remote.Refs(t.Context(), true, "refs/heads/main")
			}
			if (err == nil) != tt.ok || all.Load() != tt.requests {
				t.Errorf("%d requests, error %v", all.Load(), err)
			}
		})
	}
}

func TestHTTPErrors(t *testing.T) {
	page := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		name string
		h    http.Handler
		kind error
		want string
	}{
		{"log-in page", page(401, "text/html", greeting2), wire.ErrAuth, "check the credentials"},
		{"401 that looks right", page(401, "application/x-git-upload-pack-advertisement", greeting2), wire.ErrAuth, "check the credentials"},
		{"forbidden", page(403, "text/plain; charset=utf-8", "Write access\r\n\x1bto repository not granted."), wire.ErrAuth, "(Write access to repository not granted.)"},
		{"not found", page(404, "text/plain", strings.Repeat("long ", 10_000)), wire.ErrNotFound, "check the URL"},
		{"gone", page(410, "", ""), wire.ErrNotFound, "removed"},
		{"proxy", page(407, "", ""), wire.ErrAuth, "proxy"},
		{"busy", page(429, "", ""), wire.ErrBusy, "try again later"},
		{"down", page(503, "text/html", "x"), wire.ErrRemote, "HTTP status 503: try again later"},
		{"teapot", page(418, "", ""), wire.ErrRemote, "HTTP status 418"},
		{"no content", page(204, "", ""), wire.ErrRemote, "HTTP status 204"},
		{"web page", page(200, "text/html; charset=utf-8", "<html>"), wire.ErrProtocol, "web page"},
		{"other type", page(200, "application/json", "{}"), wire.ErrProtocol, "application/json"},
		{"result in place of a greeting", page(200, "application/x-git-upload-pack-result", greeting2), wire.ErrProtocol, "content type"},
		{"dumb server", page(200, "text/plain", ones+"\trefs/heads/main\n"), wire.ErrUnsupported, "dumb HTTP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, u := serve(t, tt.h)
			_, err := dial(context.Background(), wire.HTTP(client, u))
			if e, ok := errors.AsType[*wire.Error](err); !ok || !errors.Is(err, tt.kind) || e.Phase != wire.Advertisement || errors.Is(err, fs.ErrNotExist) != (tt.kind == wire.ErrNotFound) ||
				!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %v", err, tt.want)
			}
			// The same answers to a POST request.
			client, u = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					tt.h.ServeHTTP(w, r)
					return
				}
				(&scriptedServer{greeting: greeting2}).ServeHTTP(w, r)
			}))
			_, err = open(t, wire.HTTP(client, u)).Refs(context.Background(), false)
			if e, ok := errors.AsType[*wire.Error](err); !strings.HasPrefix(tt.name, "result") && (!ok || !errors.Is(err, tt.kind) || e.Phase != wire.LsRefs) {
				t.Errorf("POST: %v", err)
			}
		})
	}
}

// Credentials in the URL are used and never printed.
func TestHTTPCredentialsInURL(t *testing.T) {
	client, u := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		(&scriptedServer{greeting: greeting2}).ServeHTTP(w, r)
	}))
	open(t, wire.HTTP(client, testenv.URL(t, strings.Replace(u.String(), "http://", "http://me:s3cret@", 1))))
	for _, bad := range []string{"http://me:s3cret2@" + u.Host + "/repo.git", "http://me:s3cret2@127.0.0.1:1/repo.git", "http://me:s3cret@h/p?token=s3cret",
		"ftp://me:s3cret@h/p", "http:///p"} {
		if _, err := dial(context.Background(), wire.HTTP(client, testenv.URL(t, bad))); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestTLSErrors(t *testing.T) {
	secure := func(config *tls.Config) *httptest.Server {
		s := httptest.NewUnstartedServer(&scriptedServer{greeting: greeting2})
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = config
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	s := secure(nil)
	plain, plainURL := serve(t, &scriptedServer{greeting: greeting2})
	wants := secure(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: tls.VersionTLS12}) // in TLS 1.3 the alert races with the request
	client := func(of *httptest.Server, change func(*tls.Config)) *http.Client {
		config := of.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		change(config)
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	}
	foreign := client(wants, func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.TLS.Certificates[0], nil }
	})
	late := client(s, func(c *tls.Config) { c.Time = func() time.Time { return time.Now().AddDate(200, 0, 0) } })
	for _, tt := range []struct {
		name   string
		client *http.Client
		url    string
		phase  wire.Phase
		want   string
	}{
		{"unknown authority", plain, s.URL, wire.Handshake, "ca.crt"},
		{"other host", s.Client(), strings.Replace(s.URL, "127.0.0.1", "localhost", 1), wire.Handshake, "host name"},
		{"expired", late, s.URL, wire.Handshake, "out of date"},
		{"wrong client certificate", foreign, wants.URL, wire.Handshake, "tls.crt"},
		{"no TLS", s.Client(), "https://" + plainURL.Host, wire.Handshake, "server gave HTTP response to HTTPS client"},
		{"nobody listens", plain, "http://127.0.0.1:1", wire.Dial, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := dial(context.Background(), wire.HTTP(tt.client, testenv.URL(t, tt.url+"/repo.git")))
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Phase != tt.phase || !strings.Contains(err.Error(), tt.want) || tt.client == foreign && !errors.Is(err, wire.ErrAuth) {
				t.Errorf("%v, want %s in phase %s", err, tt.want, tt.phase)
			}
		})
	}
	open(t, wire.HTTP(s.Client(), testenv.URL(t, s.URL+"/repo.git")))
}

// An authTransport adds credentials to every request, whatever its host.
type authTransport struct{ http.RoundTripper }

func (a authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer s3cret")
	return a.RoundTripper.RoundTrip(r)
}

func TestRedirects(t *testing.T) {
	git := &scriptedServer{greeting: greeting2, refs: mainOnly}
	var leaked bool
	_, other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked = leaked || r.Header.Get("Authorization") != ""
		git.ServeHTTP(w, r)
	}))
	secure := httptest.NewTLSServer(git)
	t.Cleanup(secure.Close)
	const query = "/info/refs?service=git-upload-pack"
	mux := http.NewServeMux()
	for from, to := range map[string]string{
		"/same.git":   "/repo.git" + query,
		"/twice.git":  "/same.git" + query,
		"/loop.git":   "/loop.git" + query,
		"/other.git":  other.String() + query,
		"/user.git":   strings.Replace(other.String(), "http://", "http://evil:pw@", 1) + query,
		"/secure.git": secure.URL + "/repo.git" + query,
		"/login.git":  "/users/sign_in",
		"/query.git":  "/repo.git" + query + "&x=y",
		"/file.git":   "file:///etc/info/refs?service=git-upload-pack",
		"/none.git":   "",
		"/bad.git":    "http://%zz/",
	} {
		mux.HandleFunc("GET "+from+"/info/refs", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusMovedPermanently)
		})
	}
	mux.HandleFunc("GET /post.git/info/refs", (&scriptedServer{greeting: greeting2}).ServeHTTP)
	mux.HandleFunc("POST /post.git/git-upload-pack", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.String()+"/git-upload-pack", http.StatusTemporaryRedirect)
	})
	mux.Handle("/repo.git/", git)
	anonymous, base := serve(t, mux)
	authorized := &http.Client{Transport: authTransport{anonymous.Transport}}
	try := func(client *http.Client, path string) error {
		r, err := dial(context.Background(), wire.HTTP(client, base.JoinPath("..", path)))
		if err == nil {
			defer r.Close()
			_, err = r.Refs(context.Background(), false)
		}
		return err
	}
	for _, tt := range []struct {
		client *http.Client
		path   string
		want   string
	}{
		{anonymous, "same.git", ""},
		{authorized, "same.git", ""},
		{anonymous, "twice.git", ""},
		{anonymous, "other.git", ""},
		{anonymous, "user.git", ""},
		{authorized, "other.git", "credentials are not taken to another origin"},
		{authorized, "secure.git", "credentials are not taken to another origin"},
		{anonymous, "loop.git", "more than 5"},
		{anonymous, "login.git", "is a log-in needed?"},
		{anonymous, "query.git", "is not the address of a Git repository"},
		{anonymous, "file.git", "no HTTP address"},
		{anonymous, "none.git", "no valid address"},
		{anonymous, "bad.git", "no valid address"},
		{anonymous, "post.git", "POST"},
	} {
		err := try(tt.client, tt.path)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, wire.ErrRedirect) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.path, err, tt.want)
		}
	}
	if leaked {
		t.Error("credentials went to another origin")
	}
	var down http.Handler = http.RedirectHandler(other.String()+query, http.StatusFound)
	tlsServer := httptest.NewTLSServer(down)
	t.Cleanup(tlsServer.Close)
	if _, err := dial(context.Background(), wire.HTTP(tlsServer.Client(), testenv.URL(t, tlsServer.URL+"/repo.git"))); !errors.Is(err, wire.ErrRedirect) || !strings.Contains(err.Error(), "leads from https to http") {
		t.Errorf("from https to http: %v", err)
	}
}

// A server may lack every optional capability of version 0.
func TestFetchUnsupported(t *testing.T) {
	for caps, q := range map[string]wire.FetchRequest{"": {Depth: 1}, "shallow": {Depth: 1, Filter: "tree:0"}} {
		client, u := serve(t, &scriptedServer{greeting: pkt(ones+" HEAD\x00"+caps+"\n") + flush})
		q.Wants = []object.ID{id(t, ones)}
		if _, err := open(t, wire.HTTP(client, u)).Fetch(context.Background(), q); !errors.Is(err, wire.ErrUnsupported) {
			t.Errorf("capabilities %q: %v", caps, err)
		}
	}
}

// Version 0 refuses a commit that is not a tip, version 2 sends it. Several requests
// over ssh share one connection, in both versions.
func TestVersions(t *testing.T) {
	repo := testenv.NewRepo(t)
	old := repo.Commit(testenv.Commit{Branch: "main"})
	tip := repo.Commit(testenv.Commit{Branch: "main"})
	for _, version0 := range []bool{false, true} {
		s := serveSSH(t, testenv.SSHConfig{NoEnv: version0, NoAnyWant: true}, repo)
		s.config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			s.dials++
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		r := open(t, s.to(t, "/repo.git"))
		refs := func() {
			if refs, err := r.Refs(t.Context(), false); err != nil || len(refs) != 2 {
				t.Errorf("version 0 %v: %v, %v", version0, refs, err)
			}
		}
		refs()
		for range 2 {
			if err := fetch(t.Context(), r, id(t, tip)); err != nil || r.WantsAny() == version0 {
				t.Errorf("version 0 %v: %v", version0, err)
			}
		}
		if !version0 && len(s.Sessions()) != 1 {
			t.Errorf("%d sessions", len(s.Sessions()))
		}
		refs()
		testenv.Equal(t, s.dials, 1, "version 0 %v: connections", version0)
		for commit, given := range map[string]bool{old: !version0, ones: false} {
			err := fetch(t.Context(), open(t, s.to(t, "/repo.git")), id(t, commit))
			if given && err != nil || !given && !errors.Is(err, wire.ErrUnreachable) {
				t.Errorf("version 0 %v, %s: %v", version0, commit, err)
			}
		}
	}
}

func fetch(ctx context.Context, r *wire.Remote, want object.ID) error {
	f, err := r.Fetch(ctx, wire.FetchRequest{Wants: []object.ID{want}, Depth: 1})
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}
