package notify_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/internal/testenv"
)

const (
	pathKey = "T0123456789-B0123456789-SECRETKEY"
	userKey = "user-name-that-is-a-key"
	token   = "xoxb-canary-TOKEN-value"
)

// A recorder is a receiver that records requests.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // such as "POST /path Bearer x body"
}

func newRecorder(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.requests = append(r.requests, strings.Join([]string{req.Method, req.URL.RequestURI(), req.Header.Get("Authorization"), req.Header.Get("Content-Type"), string(body)}, " "))
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	t.Cleanup(r.Server.Close)
	return r
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

// webhook returns the webhook of a document whose fields are below spec, with the Secrets test/hook and test/tls.
func webhook(address string, hook, certs map[string]string) *notify.Webhook {
	w := &notify.Webhook{URL: address, Prefix: "spec.", URLField: "address", Credentials: bearer, Pool: &notify.Pool{ConnectTimeout: time.Second}}
	secrets := map[string]map[string]string{"hook": hook, "tls": certs}
	w.Secrets = func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if secrets[name] == nil || namespace != "test" {
			return nil, fs.ErrNotExist
		}
		data := make(map[string][]byte)
		for key, value := range secrets[name] {
			data[key] = []byte(value)
		}
		return data, nil
	}
	if hook != nil {
		w.Secret = notify.Ref{Namespace: "test", Name: "hook"}
	}
	if certs != nil {
		w.Certs = notify.Ref{Namespace: "test", Name: "tls"}
	}
	return w
}

func bearer(r secret.Reader, header http.Header) error {
	token, err := r.Text([]string{"token"})
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return err
}

func post(ctx context.Context, w *notify.Webhook) error {
	t, err := w.Target(ctx)
	if err == nil {
		_, err = t.Post(ctx, []byte("{}"))
	}
	return err
}

// TestAddress checks that the address of the Secret takes precedence over that of the document, and that over TokenURL.
func TestAddress(t *testing.T) {
	server := newRecorder(t, nil)
	for _, test := range []struct {
		address, tokenURL string
		secret            map[string]string
		want              string
	}{
		{"/doc?a=b", "", nil, "/doc?a=b "},
		{"/doc", "/token", map[string]string{"token": "t"}, "/doc Bearer t"},
		{"/doc", "/token", map[string]string{"token": "t", "address": server.URL + "/own"}, "/own Bearer t"},
		{"", "/token", map[string]string{"token": "t"}, "/token Bearer t"},
	} {
		w := webhook(server.URL+test.address, test.secret, nil)
		if test.address == "" {
			w.URL = ""
		}
		w.TokenURL = server.URL + test.tokenURL
		must(t, post(t.Context(), w))
		w.Pool.Close()
		all := server.all()
		if got := all[len(all)-1]; got != "POST "+test.want+" application/json {}" {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// TestCheck checks that errors name the invalid field of a document, and contain no value that may be a secret.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*notify.Webhook){
		"":                         func(*notify.Webhook) {},
		"spec.address: is missing": func(w *notify.Webhook) { w.URL = "" },
		"spec.address: must begin with http:// or https://":  func(w *notify.Webhook) { w.URL = "hunter2" },
		"spec.address: must begin with http:// or https:":    func(w *notify.Webhook) { w.URL = "ftp://hunter2/" },
		"spec.address: has no host":                          func(w *notify.Webhook) { w.URL = "https:///hunter2" },
		"spec.address: is no URL":                            func(w *notify.Webhook) { w.URL = "https://u:hunter2@h\n" },
		"spec.proxy: must begin with http:// or https:// or": func(w *notify.Webhook) { w.Proxy = "hunter2" },
		`spec.secretRef.name: "../x" is no name`:             func(w *notify.Webhook) { w.Secret = notify.Ref{Namespace: "a", Name: "../x"} },
		"spec.secretRef.name: is required":                   func(w *notify.Webhook) { w.Secret = notify.Ref{Namespace: "a"} },
		`spec.certSecretRef.namespace: "A" is no namespace`:  func(w *notify.Webhook) { w.Certs = notify.Ref{Namespace: "A", Name: "a"} },
	} {
		w := webhook("https://h/x", nil, nil)
		change(w)
		var found document.Findings
		w.Check(&found)
		got := fmt.Sprint(errors.Join(found.ErrorsFor("")...))
		if want == "" && got != "<nil>" || !strings.HasPrefix(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSettings checks that errors name the Secret, the key and the field that a post lacks, and that only a Secret that
// cannot be read is retried.
func TestSettings(t *testing.T) {
	for want, w := range map[string]*notify.Webhook{
		"spec.secretRef: secret test/chat: file does not exist":                             {Secret: notify.Ref{Namespace: "test", Name: "chat"}},
		"secret test/hook: key address is missing, and so is spec.address: set one of them": webhook("", map[string]string{"token": token}, nil),
		"spec.secretRef: secret test/hook: key address must begin with":                     webhook("", map[string]string{"address": "hunter2"}, nil),
		"secret test/hook: key address ends in a line break: remove it":                     webhook("", map[string]string{"address": "http://h/hunter2\n"}, nil),
		"secret test/hook: key token has a control character at byte 7":                     webhook("http://h/", map[string]string{"token": "hunter2\rX: y"}, nil),
		"spec.certSecretRef: secret test/tls: key ca.crt is not PEM":                        webhook("https://h/", nil, map[string]string{"ca.crt": "hunter2"}),
		"secret test/tls: key ca.crt is missing, and so are tls.crt and tls.key":            webhook("https://h/", nil, map[string]string{"token": "x"}),
	} {
		transient := w.Secrets == nil
		if transient {
			w.Pool = new(notify.Pool)
			w.Prefix, w.Secrets = "spec.", webhook("", nil, nil).Secrets
		}
		_, err := w.Target(t.Context())
		refusal := new(notify.Refusal)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || errors.As(err, &refusal) == transient {
			t.Errorf("%v, want %s", err, want)
		}
	}
	w := webhook("http://h/", map[string]string{}, nil)
	w.Secrets = nil
	if err := post(t.Context(), w); err == nil || err.Error() != "spec.secretRef: secret test/hook: there are no Secrets here" {
		t.Error(err)
	}
}

// TestAnswers checks which answers are accepted, which redirects are followed with the credentials, and the errors of other
// answers.
func TestAnswers(t *testing.T) {
	other := newRecorder(t, nil)
	for _, test := range []struct {
		status int
		to     string // target of a redirect from /
		posts  int
		want   string // "" for success
	}{
		{200, "", 1, ""}, {202, "", 1, ""}, {299, "", 1, ""},
		{307, "/next", 2, ""}, {308, "/next", 2, ""},
		{301, "/next", 1, "status 301 Moved Permanently, which leads to SERVER: give the receiver that URL"},
		{303, "/next", 1, "status 303"}, {302, "/next", 1, "status 302"}, {300, "", 1, "status 300"}, {304, "", 1, "status 304"},
		{307, other.URL + "/s3cret-path-of-another", 1, "status 307 Temporary Redirect, which leads to " + other.URL + ": give the receiver that URL: no; way"},
		{308, other.URL + "/next", 1, "status 308"},
		{307, "/", 11, "status 307"}, {307, "", 1, "status 307"},
		{400, "", 1, "status 400 Bad Request: no; way"}, {429, "", 1, "status 429"}, {503, "", 1, "status 503"},
	} {
		server := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/next" {
				w.Header()["Location"] = []string{test.to}
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(test.status)
				if test.status >= 307 {
					io.WriteString(w, "no\n\x1b[31mway")
				}
			}
		})
		w := webhook(server.URL+"/", map[string]string{"token": token}, nil)
		err := post(t.Context(), w)
		w.Pool.Close()
		want := strings.Replace(test.want, "SERVER", server.URL, 1)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "post to "+server.URL+": "+want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%d to %s: %v, want %s", test.status, test.to, err, want)
		}
		if refusal := new(notify.Refusal); test.want != "" && (!errors.As(err, &refusal) || refusal.Code != test.status || refusal.After != 7*time.Second) {
			t.Errorf("%d: %#v", test.status, refusal)
		}
		all := server.all()
		for _, got := range all {
			if !strings.HasPrefix(got, "POST /") || !strings.HasSuffix(got, " Bearer "+token+" application/json {}") {
				t.Errorf("%d to %s: %q", test.status, test.to, got)
			}
		}
		testenv.Equal(t, len(all), test.posts, "%d to %s: posts", test.status, test.to)
	}
	testenv.Equal(t, len(other.all()), 0, "another origin was told")
}

// TestErrorsHideSecrets makes posts fail in many ways, and checks that no error contains the path of the URL or a credential.
func TestErrorsHideSecrets(t *testing.T) {
	echo := func(status int, header ...string) string {
		return newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			user, password, _ := r.BasicAuth()
			segment, _ := url.PathUnescape(path.Base(r.URL.EscapedPath()))
			fmt.Fprintln(w, "no", r.URL.RequestURI(), segment, r.FormValue("sig"), user+password, r.Header, strings.ToUpper(pathKey))
		}).URL
	}
	garbage := "http://" + testenv.Listen(t, func(c net.Conn) {
		c.Read(make([]byte, 1<<10))
		io.WriteString(c, "nonsense "+pathKey+"\r\n\r\n")
	})
	for name, address := range map[string]string{
		"404":            echo(404),
		"500":            echo(500),
		"redirect":       echo(302, "Location", "https://other.example/"+pathKey+"?k="+token),
		"no server":      "http://127.0.0.1:1",
		"no HTTP":        garbage,
		"no TLS":         strings.Replace(echo(200), "http:", "https:", 1),
		"no such host":   "http://headgate.invalid",
		"bad escape":     "http://127.0.0.1/%zz",
		"bad port":       "http://127.0.0.1:99999",
		"scheme":         "gopher://127.0.0.1",
		"no scheme":      "127.0.0.1",
		"space in host":  "http://127.0.0.1 x",
		"control":        "http://127.0.0.1/\x7f",
		"user is a key":  strings.Replace(echo(403), "://", "://"+userKey+"@", 1),
		"user and query": "http://user:" + pathKey + "@127.0.0.1:1",
		"password":       strings.Replace(echo(403), "://", "://user:"+pathKey+"@", 1),
	} {
		for _, from := range []string{"secret", "document"} {
			full := address + "/services/" + pathKey + "/key%2Fin%2Fone%2Fpart?key=" + pathKey + "&sig=key%2Fin%2Fa%2Fquery"
			w := webhook(full, map[string]string{"token": token}, nil)
			if strings.Contains(name, "user") || name == "password" { // a token would take precedence over them
				w.Credentials = nil
			}
			if from == "secret" {
				w = webhook("", map[string]string{"token": token, "address": full}, nil)
			}
			err := post(t.Context(), w)
			w.Pool.Close()
			if err == nil {
				t.Errorf("%s, %s: no error", name, from)
				continue
			}
			for _, secret := range []string{pathKey, token, userKey, "in/a/query", "in/one", "/services/"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %s: %q shows %s", name, from, err, secret)
				}
			}
		}
	}
}

// TestProxy checks that the proxy of the document takes precedence over that of the program, and that a changed proxy
// takes effect at once.
func TestProxy(t *testing.T) {
	specific, general, third := newRecorder(t, nil), newRecorder(t, nil), newRecorder(t, nil)
	at, _ := url.Parse(general.URL)
	w := webhook("http://chat.invalid/hook", nil, nil)
	w.Proxies = http.ProxyURL(at)
	defer w.Pool.Close()
	for _, test := range []struct {
		proxy string
		want  *recorder
	}{{specific.URL, specific}, {"", general}, {third.URL, third}} {
		w.Proxy = test.proxy
		testenv.Equal(t, post(t.Context(), w), nil)
		if got := test.want.all(); len(got) != 1 || !strings.HasPrefix(got[0], "POST /hook ") {
			t.Errorf("%q", got)
		}
	}
	w.Proxy, w.Proxies = "", func(*http.Request) (*url.URL, error) { return nil, errors.New("no way out") }
	if _, err := w.Target(t.Context()); err == nil || err.Error() != "proxy: no way out" {
		t.Error(err)
	}
}

// TestHostileAnswers checks that a post is accepted even if the body of the answer breaks off, and that no answer
// makes an error long.
func TestHostileAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "ok")
		},
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"long":      func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for {
				if _, err := w.Write([]byte(strings.Repeat("x", 1<<16))); err != nil {
					return
				}
			}
		},
	} {
		w := webhook(newRecorder(t, answer).URL, nil, nil)
		if err := post(t.Context(), w); (err == nil) != (name == "") || err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: %.100v", name, err)
		}
		w.Pool.Close()
	}
}

// TestPoolClosesOldConnections checks that a pool closes the connections of settings that were used long ago.
func TestPoolClosesOldConnections(t *testing.T) {
	var open sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	server.StartTLS()
	defer server.Close()
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	pool := new(notify.Pool)
	target := func(n int) *notify.Target {
		w := webhook(server.URL, nil, map[string]string{"ca.crt": certificate + fmt.Sprint("# ", n)})
		w.Pool = pool
		at, err := w.Target(t.Context())
		must(t, err)
		return at
	}
	for n := range 20 {
		if _, err := target(n+1).Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 16 {
		target(n + 100)
	}
	open.Wait() // the test hangs if a connection stays open
}

// TestSilentServer checks that no connection is left to a server or proxy that accepts connections but never answers.
func TestSilentServer(t *testing.T) {
	for _, test := range []struct{ address, proxy string }{{"https://SILENT", ""}, {"http://chat.invalid", "https://SILENT"}} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		silent := testenv.Listen(t, func(c net.Conn) {
			cancel()
			io.Copy(io.Discard, c)
			close(ended)
		})
		w := webhook(strings.Replace(test.address, "SILENT", silent, 1), nil, nil)
		w.Proxy = strings.Replace(test.proxy, "SILENT", silent, 1)
		if err := post(ctx, w); err == nil {
			t.Errorf("%+v: no error", test)
		}
		<-ended // the test hangs if the connection stays open
		w.Pool.Close()
	}
}

var must = testenv.Must
