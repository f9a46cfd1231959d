package chart_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// serving answers with a handler instead of the server.
func serving(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) *testenv.Defect {
	return &testenv.Defect{Do: testenv.Serve, Handler: h}
}

func TestRepositoryHostileIndexes(t *testing.T) {
	entry := "- {name: a, version: 1.0.0, urls: [a.tgz]}"
	for name, text := range map[string]string{
		"empty":          "",
		"NUL":            "apiVersion: v1\nentries:\n  a:\n  " + entry + "\x00\n",
		"NULs alone":     strings.Repeat("\x00", 1<<20),
		"escape":         "apiVersion: v1\nentries:\n  \"a\x1b]0;pwned\x07\": x\n",
		"no UTF-8":       "apiVersion: v1\nentries: {\xff: []}\n",
		"deep":           "apiVersion: v1\nentries: " + strings.Repeat("[", 1<<20),
		"deep JSON":      `{"apiVersion": "v1", "entries": ` + strings.Repeat(`{"a":`, 1<<18),
		"a list":         "- a\n- b\n",
		"a word":         "charts",
		"no apiVersion":  "entries:\n  a:\n  " + entry + "\n",
		"no entries end": "apiVersion: v1\nentries:\n  a: [",
		"archive":        string(testenv.ChartArchive(t, map[string]string{"a": "b"})),
		"long key":       "apiVersion: v1\n" + strings.Repeat("k", 4<<20) + ": x\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{})
			r.s.SetIndex([]byte(text))
			obj := r.object(nil)
			r.refused(obj, "IndexationFailed", r.s.URL()+"/index.yaml")
			r.s.SetIndex(nil)
			r.run(obj, source.Stored)
			r.s.SetIndex([]byte(text))
			r.refused(obj, "IndexationFailed")
		})
	}
}

func TestRepositoryLimitHoldsWhileReading(t *testing.T) {
	const limit = 1 << 20
	squeezed := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		forever(gzip.NewWriter(w), "apiVersion: v1\nentries: {}\n# ", "x")
	}
	for name, d := range map[string]*testenv.Defect{
		"versions without end": {Do: testenv.Endless},
		"compressed bomb":      serving(squeezed),
		"one name without end": {Do: testenv.Swell, After: 64 << 20},
		"blank lines after all": serving(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			forever(w, "apiVersion: v1\nentries: {}\n", "\n")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{})
			obj := r.object(nil)
			r.run(obj, source.Stored)
			r.limits.Bytes = limit
			r.s.Reset()
			r.s.Break(d)
			r.refused(obj, "Failed", "larger than 1048576 bytes")
			if got := r.s.ContentBytes(); got > limit+8<<20 {
				t.Errorf("the server sent %d bytes", got)
			}
		})
	}
}

// forever writes a text, and then another one until nobody listens.
func forever(w io.Writer, first, more string) {
	_, err := io.WriteString(w, first)
	for block := strings.Repeat(more, 64<<10); err == nil; {
		_, err = io.WriteString(w, block)
	}
}

func TestRepositoryCodingThatWasNotAskedFor(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	coding := ""
	r.s.Break(serving(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", coding)
		next.ServeHTTP(w, r)
	}))
	for _, coding = range []string{"br", "BR", "zstd", "x-gzip", "aws-chunked, deflate"} {
		r.refused(r.object(nil), "Failed", "which was not asked for")
	}
}

// What servers store as a coding without being one changes no byte.
func TestRepositoryCodingThatIsNone(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	coding := ""
	r.s.Break(serving(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", coding)
		next.ServeHTTP(w, r)
	}))
	obj := r.object(nil)
	for _, coding = range []string{"utf-8", "aws-chunked", "identity", "none"} {
		r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0", Entry: map[string]any{"description": coding}})
		r.run(obj, source.Stored)
	}
}

// A lie about what changed is the server's to answer for; what is stored is
// always what its revision says.
func TestRepositoryETagThatLies(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	n := 0
	r.s.Break(serving(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		n++
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
		w.Write(r.s.Index())
	}))
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	r.asked(200, 200, 200)
	r.bytes(obj.Artifact())
	r.s.Break(serving(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("ETag", strings.Repeat("e", 64<<10)) // not remembered
		w.Write(r.s.Index())
	}))
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	if got := r.s.Requests()[1].Header.Get("If-None-Match"); got != "" {
		t.Errorf("an ETag of %d bytes came back", len(got))
	}
}

// Whoever the index is fetched from by a redirect gets neither password nor certificate.
func TestRepositoryRedirectToAnotherHost(t *testing.T) {
	for _, pass := range []bool{false, true} {
		t.Run(fmt.Sprintf("passCredentials %t", pass), func(t *testing.T) {
			ca := testenv.NewCA(t)
			other := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca})
			other.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
			r := newRepositorySetup(t, testenv.ChartsConfig{CA: ca, Mutual: true, Username: "user", Password: repoCanary, Defect: testenv.Redirect(other.Base)})
			obj := r.object(func(s *source.PkgRepositorySpec) {
				s.SecretRef, s.CertSecretRef, s.PassCredentials = &source.LocalReference{Name: "login"}, &source.LocalReference{Name: "tls"}, pass
			})
			r.run(obj, source.Stored)
			if q := r.s.Requests()[0]; q.Authorization == "" || q.Certificate != "user" {
				t.Errorf("the repository was shown %q and the certificate %q", q.Authorization, q.Certificate)
			}
			if q := other.Requests(); len(q) != 1 || q[0].Authorization != "" || q[0].Certificate != "" {
				t.Errorf("the other host was asked %+v", q)
			}
			r.run(obj, source.Unchanged)
			if q := other.Requests(); len(q) != 2 || q[1].Status != http.StatusNotModified {
				t.Errorf("the other host was asked %+v", q)
			}
		})
	}
}

func TestRepositoryRedirectIntoTheClear(t *testing.T) {
	ca := testenv.NewCA(t)
	other := testenv.StartCharts(t, testenv.ChartsConfig{})
	r := newRepositorySetup(t, testenv.ChartsConfig{CA: ca, Defect: testenv.Redirect(other.Base)})
	obj := r.object(func(s *source.PkgRepositorySpec) { s.CertSecretRef = &source.LocalReference{Name: "tls"} })
	r.refused(obj, "Failed", "redirect from https to http refused")
	if other.Count() != 0 {
		t.Error("the other host was asked")
	}
}

func TestRepositoryTLSSettings(t *testing.T) {
	ca, stranger := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := stranger.Client("stranger")
	for _, c := range []struct {
		name         string
		login, certs source.Secret
		says         string // of the failure, "" for none
		note         string
	}{
		{"certSecretRef", source.Secret{}, tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), "", ""},
		{"certSecretRef, deprecated spelling", source.Secret{}, tlsSecret(ca, "caFile", "certFile", "keyFile"), "", ""},
		{"secretRef, deprecated", tlsSecret(ca, "caFile", "certFile", "keyFile"), source.Secret{}, "", "caFile, certFile, keyFile of spec.secretRef are deprecated"},
		{"certSecretRef wins", sourcetest.Secret("caFile", string(stranger.PEM()), "certFile", string(cert), "keyFile", string(key)), tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), "", ""},
		{"certSecretRef wins as a whole", tlsSecret(ca, "caFile", "certFile", "keyFile"), sourcetest.Secret("ca.crt", string(stranger.PEM())), "certificate", ""},
		{"newer keys in secretRef", tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), source.Secret{}, "certificate", ""},
		{"nothing", source.Secret{}, source.Secret{}, "ca.crt of a server that the system does not know", ""},
		{"certificate without key", source.Secret{}, sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert)), "key tls.key is missing", ""},
		{"key that is none", sourcetest.Secret("caFile", string(ca.PEM()), "certFile", string(cert), "keyFile", repoCanary), source.Secret{}, "key keyFile is not PEM", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{CA: ca, Mutual: true})
			obj := r.object(nil)
			if c.login.Data != nil {
				r.secrets["default/login"], obj.Spec.SecretRef = c.login, &source.LocalReference{Name: "login"}
			}
			if c.certs.Data != nil {
				r.secrets["default/tls"], obj.Spec.CertSecretRef = c.certs, &source.LocalReference{Name: "tls"}
			}
			if c.says != "" {
				r.refused(obj, "AuthenticationFailed", c.says)
				return
			}
			result := r.run(obj, source.Stored)
			if notes := strings.Join(result.Report.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			if q := r.s.Requests()[0]; q.Certificate != "user" {
				t.Errorf("certificate %q", q.Certificate)
			}
		})
	}
}

// tlsSecret returns a CA, a client certificate and its key under the given keys.
func tlsSecret(ca *testenv.CA, caKey, certKey, keyKey string) source.Secret {
	cert, key := ca.Client("user")
	return sourcetest.Secret(caKey, string(ca.PEM()), certKey, string(cert), keyKey, string(key))
}

func TestRepositoryCredentials(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{Username: "user", Password: repoCanary})
	r.s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	named := func(name string) func(*source.PkgRepositorySpec) {
		return func(s *source.PkgRepositorySpec) { s.SecretRef = &source.LocalReference{Name: name} }
	}
	r.refused(r.object(nil), "AuthenticationFailed", "401 Unauthorized")
	r.refused(r.object(named("wrong")), "AuthenticationFailed", "401 Unauthorized")
	inURL := func(user *url.Userinfo, more func(*source.PkgRepositorySpec)) func(*source.PkgRepositorySpec) {
		return func(s *source.PkgRepositorySpec) {
			u, _ := url.Parse(s.URL)
			u.User = user
			if s.URL = u.String(); more != nil {
				more(s)
			}
		}
	}
	r.refused(r.object(inURL(url.UserPassword("user", repoCanary), named("wrong"))), "AuthenticationFailed", "401") // the Secret counts
	r.run(r.object(inURL(url.UserPassword("user", repoCanary), nil)), source.Stored)
	r.s.Reset()
	r.run(r.object(named("login")), source.Unchanged)
	r.run(r.object(named("login")), source.Unchanged)
	r.asked(200, 304) // who asks is not who the ETag was told

	r.secrets["default/login"] = sourcetest.Secret("username", "user", "password", repoCanary, "other", "value")
	r.run(r.object(named("login")), source.Unchanged)
	r.asked(200)
}

func TestRepositoryLimitOfTheHeader(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.limits = artifact.Limits{Temp: r.limits.Temp}
	r.s.Break(serving(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for i := range 100 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 8<<10))
		}
	}))
	r.refused(r.object(nil), "Failed", "response headers exceed")
}
