package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
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

// Access.MayDial is asked about whom the registry sends us to as well.
func TestMayDialBehindRedirect(t *testing.T) {
	g, other := testenv.StartRegistry(t, testenv.RegistryConfig{}), testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(testenv.Redirect(strings.Replace(other.Base, "127.0.0.1", "localhost", 1)))
	r, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true, MayDial: func(host string, _ netip.Addr) error {
		if host == "localhost" {
			return errors.New("not there")
		}
		return nil
	}}, source.Env{})
	if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "not there") || other.Count() > 0 {
		t.Error(err, other.Count())
	}
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

func TestRealm(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, row := range map[string]struct {
		realm     string // of the token service at localhost, where it is at all; %s is its port
		own       bool   // the Secret has an entry for that
		anonymous bool   // the Secret has no entry for the registry
		want      string // part of the error, "" for none
	}{
		"on another host":               {"https://localhost:%s/token", false, false, "credentials for one are not shown to the other"},
		"on another host with an entry": {"https://localhost:%s/token", true, false, ""},
		"on another host for nobody":    {"https://localhost:%s/token", false, true, ""},
		"on another port":               {"https://127.0.0.1:%s/token", false, false, ""},
		"with user information":         {"https://ann:x@127.0.0.1:%s/token", true, false, "user information"},
		"without TLS":                   {"http://127.0.0.1:%s/token", true, false, "gives up TLS"},
		"without TLS for nobody":        {"http://localhost:%s/token", false, true, "gives up TLS"},
		"of another scheme":             {"ftp://127.0.0.1:%s/token", true, false, "its scheme"},
		"without host":                  {"/token", true, false, "no URL"},
		"that is no URL":                {"https://%%zz:%s", true, false, "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := guard(t, ca, &testenv.Bearer{Anonymous: true})
			u, _ := url.Parse(issuer.Base)
			realm := row.realm
			if strings.Contains(realm, "%s") {
				realm = fmt.Sprintf(realm, u.Port())
			}
			g := guard(t, ca, &testenv.Bearer{Realm: realm})
			want := g.Push("team/app", "v1", layer("x"))
			host := g.Host
			if row.anonymous {
				host = "elsewhere.example"
			}
			g.config = dockerconfig(host, "ann", password)
			if row.own {
				g.config = strings.Replace(g.config, `"auths":{`, `"auths":{"localhost:`+u.Port()+`":{"username":"a","password":"b"},`, 1)
			}
			access, env := g.access()
			r, _ := connect(t, access, env)
			d, err := r.Head(t.Context(), "v1")
			if row.want == "" {
				if err != nil || d.Digest != want.Digest || issuer.Count() != 1 {
					t.Error(d, err, issuer.Count())
				}
				if row.anonymous {
					bare(t, issuer.Requests())
				}
				return
			}
			e, ok := errors.AsType[*oci.RealmError](err)
			if !ok || !strings.Contains(err.Error(), row.want) || e.Registry != g.Host || !errors.Is(err, fs.ErrPermission) {
				t.Error(err)
			}
			if issuer.Count() > 0 {
				t.Error(issuer.Requests())
			}
			if strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("%q", err)
			}
		})
	}
}

// Without TLS the realm is on the registry's host, or has TLS.
func TestRealmInsecure(t *testing.T) {
	for _, row := range []struct {
		host  string
		allow bool
	}{{"127.0.0.1", true}, {"localhost", false}} {
		issuer := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password, Bearer: &testenv.Bearer{}})
		u, _ := url.Parse(issuer.Base)
		g := testenv.StartRegistry(t, testenv.RegistryConfig{Bearer: &testenv.Bearer{Realm: "http://" + row.host + ":" + u.Port() + "/token"}})
		g.Push("team/app", "v1", layer("x"))
		env := source.Env{Secrets: secrets{"reg": {".dockerconfigjson": dockerconfig(g.Host, "ann", password)}}}
		r, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true, Secret: ref("reg")}, env)
		_, err := r.Head(t.Context(), "v1")
		if refused := errors.As(err, new(*oci.RealmError)); refused == row.allow || row.allow && err != nil || !row.allow && issuer.Count() > 0 {
			t.Error(row.host, err)
		}
	}
}

// What a token service answers is as hostile as all else.
// A registry wants another token for every page of an endless list, and no token is small.
func TestTokensWithoutEnd(t *testing.T) {
	var mu sync.Mutex
	var used string
	issued := 0
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve("", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		shown := r.Header.Get("Authorization")
		switch {
		case r.URL.Path == "/token":
			issued++
			fmt.Fprintf(w, `{"token":"%060000d"}`, issued)
		case shown == "" || shown == used:
			w.Header().Set("Www-Authenticate", `Bearer realm="`+g.Base+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			used = shown
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, issued))
			io.WriteString(w, `{"tags":["a"]}`)
		}
	}))
	if err := tagsOf(plain(t, g)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes of tokens") || issued > 20 {
		t.Error(err, issued)
	}
}

func TestTokenAnswers(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"of 1 MB":             {`{"token":"` + strings.Repeat("t", 1<<20) + `"}`, "more than"},
		"of 100 KB":           {`{"token":"` + strings.Repeat("t", 100<<10) + `"}`, "the token has 102400 bytes"},
		"with a line break":   {`{"token":"a\r\nX-Evil: 1"}`, "characters"},
		"empty":               {`{"token":""}`, "no token"},
		"missing":             {`{}`, "no token"},
		"no JSON":             {`<html>secret</html>`, "no JSON"},
		"no object":           {`["token"]`, "no JSON"},
		"called access_token": {`{"access_token":"x"}`, "401"},
		"wrong":               {`{"token":"x","access_token":"x"}`, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, testenv.NewCA(t), &testenv.Bearer{})
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: http.StatusOK, Body: row.body})
			access, env := g.access()
			r, _ := connect(t, access, env)
			_, err := r.Head(t.Context(), "v1")
			if err == nil || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 500 || strings.Contains(err.Error(), "secret<") {
				t.Error(err)
			}
		})
	}
}

// Whoever gets the request for a token gets the password, so it is not passed on.
func TestTokenRedirect(t *testing.T) {
	ca := testenv.NewCA(t)
	for kind, config := range map[string]string{
		"password":      `{"username":"ann","password":"` + password + `"}`,
		"refresh token": `{"username":"ann","identitytoken":"` + password + `"}`,
	} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			g, other := guard(t, ca, &testenv.Bearer{IdentityToken: password}), guard(t, ca, &testenv.Bearer{})
			g.config = `{"auths":{"` + g.Host + `":` + config + `}}`
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: status, Header: http.Header{"Location": {other.Base}}})
			access, env := g.access()
			r, _ := connect(t, access, env)
			if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "redirects to") || other.Count() > 0 {
				t.Error(kind, status, err, other.Requests())
			}
		}
	}
}

func TestTokens(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, row := range map[string]struct {
		bearer   testenv.Bearer
		login    string
		requests int // for tokens
	}{
		"password":        {testenv.Bearer{}, `"username":"ann","password":"` + password + `"`, 1},
		"identity token":  {testenv.Bearer{IdentityToken: "refresh me"}, `"identitytoken":"refresh me"`, 1},
		"used up":         {testenv.Bearer{Uses: 1}, `"username":"ann","password":"` + password + `"`, 3},
		"identity, again": {testenv.Bearer{IdentityToken: "refresh me", Uses: 1}, `"auth":"MDAwMDo=","identitytoken":"refresh me"`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, ca, &row.bearer)
			g.config = `{"auths":{"` + g.Host + `":{` + row.login + `}}}`
			d := g.Push("team/app", "v1", layer("x"))
			access, env := g.access()
			r, v := connect(t, access, env)
			for range 3 {
				if _, _, err := r.Manifest(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if n := g.Count(testenv.GetToken); n != row.requests {
				t.Errorf("%d tokens were asked for, want %d", n, row.requests)
			}
			for _, token := range g.Tokens() {
				if got := redact.String("x "+token+" y", v.Values()...); strings.Contains(got, token) {
					t.Error("a token is not kept out of texts")
				}
			}
		})
	}
}

// A registry token is shown to the registry, and no token is asked for.
func TestRegistryToken(t *testing.T) {
	ca := testenv.NewCA(t)
	g := guarded{testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Bearer: &testenv.Bearer{Realm: "https://tokens.example/"},
		Allow: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer given" }}), ca, ""}
	g.config = `{"auths":{"` + g.Host + `":{"registrytoken":"given"}}}`
	g.Push("team/app", "v1", layer("x"))
	access, env := g.access()
	r, _ := connect(t, access, env)
	if _, err := r.Head(t.Context(), "v1"); err != nil {
		t.Error(err)
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
