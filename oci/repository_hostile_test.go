package oci_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
