package oci_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A registry with TLS that wants credentials, what is known of it, and the
// repository that uses that.
type guarded struct {
	*testenv.Registry
	ca     *testenv.CA
	config string // dockerconfigjson
}

const password = "open sesame"

// access returns how the repository team/app of g is reached with the Secret of g.
func (g guarded) access() (oci.Access, source.Env) {
	return oci.Access{URL: g.URL("team/app"), Cert: ref("ca"), Secret: ref("reg")},
		source.Env{Secrets: secrets{"ca": {"ca.crt": string(g.ca.PEM())}, "reg": {".dockerconfigjson": g.config}}}
}

func guard(t *testing.T, ca *testenv.CA, bearer *testenv.Bearer) guarded {
	t.Helper()
	g := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Username: "ann", Password: password, Bearer: bearer})
	return guarded{g, ca, dockerconfig(g.Host, "ann", password)}
}

// bare fails the test when any request came with something to show.
func bare(t *testing.T, requests []testenv.Request) {
	t.Helper()
	for _, q := range requests {
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
			if v := q.Header.Get(name); v != "" {
				t.Errorf("%s %s came with %s: %s", q.Method, q.Path, name, v)
			}
		}
		if q.Certificate != "" || strings.Contains(string(q.Body), password) {
			t.Errorf("%s %s came with %s %s", q.Method, q.Path, q.Certificate, q.Body)
		}
	}
}

func TestRedirectShowsNothing(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, host := range map[string]string{"other host": "localhost", "other port": "127.0.0.1"} {
		for kind, bearer := range map[string]*testenv.Bearer{"basic": nil, "bearer": {}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				g, storage := guard(t, ca, bearer), testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca})
				b := testenv.Blob{Data: []byte("content of a layer")}
				d := storage.PushBlob("team/app", b)
				storage.Reset()
				u, _ := url.Parse(storage.Base)
				to := "https://eve:secret@" + host + ":" + u.Port()
				g.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusTemporaryRedirect,
					Header: http.Header{"Location": {to}, "Set-Cookie": {"session=secret"}}})
				access, env := g.access()
				r, _ := connect(t, access, env)
				content, err := r.Blob(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				defer content.Close()
				if text, err := io.ReadAll(content); err != nil || string(text) != string(b.Data) {
					t.Error(string(text), err)
				}
				if storage.Count() != 1 {
					t.Error(storage.Count(), "requests")
				}
				bare(t, storage.Requests())
			})
		}
	}
}

// A challenge by whom a redirect leads to is not answered.
func TestChallengeBehindRedirect(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := guard(t, ca, nil), guard(t, ca, nil)
	g.Break(&testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusFound, Header: http.Header{"Location": {other.Base}}})
	access, env := g.access()
	r, _ := connect(t, access, env)
	if _, err := r.Head(t.Context(), "v1"); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	bare(t, other.Requests())
}

func TestRedirectDowngrade(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := guard(t, ca, nil), testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {other.Base}}})
	access, env := g.access()
	r, _ := connect(t, access, env)
	_, err := r.Blob(t.Context(), testenv.Blob{Data: []byte("x")}.Descriptor())
	if err == nil || !strings.Contains(err.Error(), "from https to http") || other.Count() > 0 {
		t.Error(err, other.Count())
	}
}

// No credential shows in an error, even when the registry repeats it.
func TestErrorsHideCredentials(t *testing.T) {
	ca := testenv.NewCA(t)
	for kind, bearer := range map[string]*testenv.Bearer{"basic": nil, "password": {}, "refresh": {IdentityToken: "refresh me"}} {
		for _, phase := range []testenv.Phase{testenv.GetManifest, testenv.GetToken} {
			g := guard(t, ca, bearer)
			if kind == "refresh" {
				g.config = `{"auths":{"` + g.Host + `":{"username":"ann","identitytoken":"refresh me"}}}`
			}
			d := g.Push("team/app", "v1", layer("x"))
			g.Break(&testenv.Defect{Phase: phase, Do: testenv.Leak, Status: http.StatusForbidden})
			access, env := g.access()
			r, v := connect(t, access, env)
			_, _, err := r.Manifest(t.Context(), d)
			if phase == testenv.GetToken && bearer == nil {
				continue
			}
			if err == nil {
				t.Fatal(kind, phase, "no error")
			}
			text := redact.String(err.Error(), v.Values()...)
			for _, secret := range append(g.Tokens(), password, "refresh me", "YW5uOm9wZW4gc2VzYW1l") {
				if strings.Contains(text, secret) {
					t.Errorf("%s, %s: %s", kind, phase, text)
				}
			}
		}
	}
}

// A plain server answers in place of one with TLS, and the other way round.
func TestWrongScheme(t *testing.T) {
	ca := testenv.NewCA(t)
	tls, open := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca}), testenv.StartRegistry(t, testenv.RegistryConfig{})
	insecure, _ := connect(t, oci.Access{URL: tls.URL("team/app"), Insecure: true}, source.Env{})
	secure, _ := connect(t, oci.Access{URL: open.URL("team/app")}, source.Env{})
	raw := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Write([]byte("\x15\x03\x01\x00\x02\x02\x46")) // a fatal alert
		conn.Close()
	}))
	t.Cleanup(raw.Close)
	alert, _ := connect(t, oci.Access{URL: "oci://" + strings.TrimPrefix(raw.URL, "http://") + "/team/app", Insecure: true}, source.Env{})
	for r, want := range map[*oci.Repository]string{insecure: "remove spec.insecure", alert: "remove spec.insecure", secure: "set spec.insecure"} {
		if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	unknown, _ := connect(t, oci.Access{URL: tls.URL("team/app")}, source.Env{})
	if _, err := unknown.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// Uploads go to the registry alone.
func TestUploadElsewhere(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := guard(t, ca, nil), guard(t, ca, nil)
	g.Break(&testenv.Defect{Phase: testenv.PutBlob, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Location", other.Base+r.URL.Path+"x")
		w.WriteHeader(http.StatusAccepted)
	}})
	access, env := g.access()
	r, _ := connect(t, access, env)
	b := testenv.Blob{Data: []byte("x")}
	if err := r.Push(context.WithoutCancel(t.Context()), b.Descriptor(), strings.NewReader("x")); err == nil || other.Count() > 0 {
		t.Error(err, other.Count())
	}
}

// A list that the registry has elsewhere goes on there, and nobody there is told who asks.
func TestListElsewhere(t *testing.T) {
	ca := testenv.NewCA(t)
	g, other := guard(t, ca, nil), testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, PageSize: 1})
	for _, tag := range []string{"a", "b", "c"} {
		other.Push("team/app", tag, layer(tag))
	}
	other.Reset()
	access, env := g.access()
	r, _ := connect(t, access, env)
	for range 2 { // the second time the registry's challenge is known
		g.Break(&testenv.Defect{Phase: testenv.ListTags, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, other.Base+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		}})
		if tags := collect(t, r.Tags(t.Context())); strings.Join(tags, " ") != "a b c" {
			t.Error(tags)
		}
	}
	bare(t, other.Requests())
}
