package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// try connects to a registry that requires the password, and looks up a tag.
func try(t *testing.T, g *testenv.Registry, a oci.Access, env source.Env) error {
	t.Helper()
	a.URL, a.Insecure = g.URL("team/app"), true
	r, err := oci.Connect(t.Context(), a, env, &transport.SecretReader{Namespace: "apps", From: env.Secrets})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Head(t.Context(), "v1")
	return err
}

// TestCredentialSources checks that the first source that has credentials is used.
func TestCredentialSources(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password})
	g.Push("team/app", "v1", layer("x"))
	right, other := dockerconfig(g.Host, "ann", password), dockerconfig("other.example", "ann", password)
	all := secrets{
		"right": {".dockerconfigjson": right}, "wrong": {".dockerconfigjson": dockerconfig(g.Host, "ann", "x")}, "other": {".dockerconfigjson": other},
		"old":           {".dockercfg": strings.TrimSuffix(strings.TrimPrefix(right, `{"auths":`), "}")},
		"basic":         {"username": "ann", "password": password},
		"account/right": {".dockerconfigjson": right}, "account/other": {".dockerconfigjson": other},
		"deep": {".dockerconfigjson": dockerconfig(g.Host+"/team", "ann", password)},
	}
	calls := ""
	env := source.Env{Secrets: all,
		Keychain: func(_ context.Context, host string) (source.Credential, error) {
			calls += "keychain " + host
			return source.Credential{Username: "ann", Password: password}, nil
		},
		Login: func(_ context.Context, q source.LoginRequest) (source.Credential, error) {
			calls += fmt.Sprint(q.Provider, " ", q.URL, " ", q.Namespace, " ", q.ServiceAccount, " ", q.Client != nil, " ", q.OwnTrust)
			return source.Credential{Username: "ann", Password: password}, nil
		}}
	login := "aws oci://" + g.Host + "/team/app apps  true false"
	for name, row := range map[string]struct {
		access      oci.Access
		calls, want string
	}{
		"Secret":                        {oci.Access{Secret: ref("right")}, "", ""},
		"old Secret":                    {oci.Access{Secret: ref("old")}, "", ""},
		"Secret, not provider":          {oci.Access{Secret: ref("right"), Provider: "aws"}, "", ""},
		"Secret without entry":          {oci.Access{Secret: ref("other")}, "", "secret apps/other holds no entry for " + g.Host},
		"Secret without entry, account": {oci.Access{Secret: ref("other"), ServiceAccount: "right"}, "", ""},
		"wrong Secret, right account":   {oci.Access{Secret: ref("wrong"), ServiceAccount: "right"}, "", "check the credentials of secret apps/wrong"},
		"account":                       {oci.Access{ServiceAccount: "right", Provider: "generic"}, "", ""},
		"account without entry":         {oci.Access{ServiceAccount: "other"}, "", "service account apps/other holds no entry"},
		"both without entry":            {oci.Access{ServiceAccount: "other", Secret: ref("other")}, "", "secret apps/other and service account apps/other"},
		"provider":                      {oci.Access{Provider: "aws"}, login, ""},
		"provider, not Secret":          {oci.Access{Provider: "aws", Secret: ref("other")}, login, ""},
		"provider, absent account":      {oci.Access{Provider: "aws", ServiceAccount: "none"}, strings.Replace(login, "apps ", "apps none", 1), ""},
		"absent account":                {oci.Access{ServiceAccount: "none"}, "", "apps/none"},
		"absent Secret":                 {oci.Access{Secret: ref("none")}, "", "apps/none"},
		"Secret of another kind":        {oci.Access{Secret: ref("basic")}, "", "kubectl create secret docker-registry"},
		"keychain":                      {oci.Access{}, "keychain " + g.Host, ""},
		"folder":                        {oci.Access{Secret: ref("deep")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			calls = ""
			err := try(t, g, row.access, env)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
			testenv.Equal(t, calls, row.calls, "calls")
		})
	}
}

func TestLoginFails(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	for reason, row := range map[string]struct {
		login   source.LoginFunc
		invalid bool
	}{
		"InvalidProviderConfiguration": {func(context.Context, source.LoginRequest) (source.Credential, error) {
			return source.Credential{}, source.ErrProvider
		}, false},
		"AuthenticationFailed": {func(context.Context, source.LoginRequest) (source.Credential, error) {
			return source.Credential{}, fs.ErrClosed
		}, false},
		"InvalidProviderConfiguration ": {nil, true},
	} {
		err := try(t, g, oci.Access{Provider: "gcp"}, source.Env{Login: row.login})
		e, ok := errors.AsType[*source.StepError](err)
		if !ok || e.Reason != strings.TrimSpace(reason) || errors.Is(err, source.ErrInvalid) != row.invalid || g.Count() > 0 {
			t.Errorf("%s: %v", reason, err)
		}
	}
	failing := func(context.Context, string) (source.Credential, error) { return source.Credential{}, fs.ErrClosed }
	testenv.ErrorIs(t, try(t, g, oci.Access{}, source.Env{Keychain: failing}), fs.ErrClosed)
}

// TestRefusedLogin checks that the issuer of credentials is notified if the registry or its
// token service refuses them, but not if another server does.
func TestRefusedLogin(t *testing.T) {
	for name, row := range map[string]struct {
		config testenv.RegistryConfig
		issued source.Credential
		defect *testenv.Defect
		told   bool
	}{
		"basic":         {testenv.RegistryConfig{Username: "ann", Password: password}, source.Credential{Username: "ann", Password: "wrong"}, nil, true},
		"forbidden":     {testenv.RegistryConfig{Username: "ann", Password: password}, source.Credential{Username: "ann", Password: password}, nil, true},
		"token service": {testenv.RegistryConfig{Username: "ann", Password: password, Bearer: &testenv.Bearer{}}, source.Credential{Username: "ann", Password: "wrong"}, nil, true},
		"refresh token": {testenv.RegistryConfig{Bearer: &testenv.Bearer{IdentityToken: "right one"}}, source.Credential{Refresh: "wrong one"}, nil, true},
		"token":         {testenv.RegistryConfig{Bearer: &testenv.Bearer{}}, source.Credential{Token: "wrong"}, nil, true},
		"storage":       {testenv.RegistryConfig{Username: "ann", Password: password}, source.Credential{Username: "ann", Password: password}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, row.config)
			switch name {
			case "forbidden":
				g.Break(testenv.Status(http.StatusForbidden))
			case "storage":
				other := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: testenv.Status(http.StatusForbidden)})
				g.Break(testenv.Redirect(other.Base))
			}
			notified := false
			row.issued.Refused = func() { notified = true }
			err := try(t, g, oci.Access{Provider: "azure"}, source.Env{Login: func(context.Context, source.LoginRequest) (source.Credential, error) { return row.issued, nil }})
			if !errors.Is(err, fs.ErrPermission) || notified != row.told {
				t.Error(notified, err)
			}
		})
	}
}

// TestProxyIsNoWayIn checks that a registry behind a proxy cannot redirect requests to hosts
// in the proxy's own networks. The proxy also answers for the registry.
func TestProxyIsNoWayIn(t *testing.T) {
	for _, row := range []struct{ target, want string }{
		{"http://169.254.169.254/latest/meta-data", "metadata service"},
		{"http://localhost:2375/info", "may not send us"},
		{"http://[::1]:2375/info", "may not send us"},
		{"http://10.0.0.1/x", "may not send us"},
		{"http://storage.example/x", "404"},
	} {
		var inside atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Host {
			case "registry.example":
				http.Redirect(w, r, row.target, http.StatusTemporaryRedirect)
			case "10.0.0.1", "storage.example":
				w.WriteHeader(http.StatusNotFound)
			default:
				inside.Add(1)
			}
		}))
		t.Cleanup(proxy.Close)
		r, _ := connect(t, oci.Access{URL: "oci://registry.example/app", Insecure: true, Proxy: ref("proxy")},
			source.Env{Secrets: secrets{"proxy": {"address": proxy.URL}}})
		if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), row.want) || inside.Load() > 0 {
			t.Errorf("%s: %v, %d requests", row.target, err, inside.Load())
		}
	}
}

// TestProxy checks that all requests use the proxy of the spec: to the registry, its token
// service and hosts that it redirects to, for the login, and by Web.
func TestProxy(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Bearer: &testenv.Bearer{Anonymous: true}})
	storage := testenv.StartRegistry(t, testenv.RegistryConfig{})
	d := storage.PushBlob("team/app", testenv.Blob{Data: []byte("x")})
	g.Break(&testenv.Defect{Phase: testenv.GetBlob, Status: http.StatusFound, Header: http.Header{"Location": {storage.Base}}})
	proxy := testenv.ServeProxy(t, testenv.ProxyConfig{Username: "bob", Password: "through the proxy"})
	env := source.Env{Secrets: secrets{"proxy": {"address": proxy.URL, "username": "bob", "password": "through the proxy"}},
		Login: func(ctx context.Context, q source.LoginRequest) (source.Credential, error) {
			resp, err := q.Client.Get(storage.Base + "/v2/")
			if err == nil {
				resp.Body.Close()
			}
			return source.Credential{}, err
		}}
	r, v := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true, Proxy: ref("proxy"), Provider: "gcp"}, env)
	content, err := r.Blob(t.Context(), d)
	must(t, err)
	content.Close()
	resp, err := r.Web().Get(storage.Base + "/v2/")
	must(t, err)
	resp.Body.Close()
	if want := g.Count() + storage.Count(); len(proxy.Requests()) != want || want != 6 {
		t.Errorf("%d requests, through the proxy %q", want, proxy.Requests())
	}
	bare(t, storage.Requests())
	testenv.Equal(t, redact.String("through the proxy", v.Values()...), redact.Mask)

	wrongProxy, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true, Proxy: ref("wrong")}, source.Env{Secrets: secrets{"wrong": {"address": proxy.URL}}})
	_, err = wrongProxy.Head(t.Context(), "v1")
	if e, ok := errors.AsType[*transport.ProxyError](err); !ok || e.Status != http.StatusProxyAuthRequired {
		t.Error(err)
	}
}

// TestWeb checks that Web uses neither the credentials nor the CA and certificate of the spec.
func TestWeb(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("ann")
	g := newGuardedRegistry(t, ca, nil)
	access, env := g.access()
	access.Cert = ref("tls")
	env.Secrets.(secrets)["tls"] = map[string]string{"ca.crt": string(ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	r, _ := connect(t, access, env)
	if _, err := r.Head(t.Context(), "v1"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	g.Reset()
	if _, err := r.Web().Get(g.Base); err == nil || g.Count() > 0 {
		t.Error("the CA of the spec is trusted", err)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"oci://r.example/a":                                     "r.example/a",
		"oci://r.example:5000/a/b-c/d__e.f":                     "r.example:5000/a/b-c/d__e.f",
		"oci://[::1]:5000/a":                                    "[::1]:5000/a",
		"oci://127.0.0.1:80/a":                                  "127.0.0.1:80/a",
		"oci://localhost/a":                                     "localhost/a",
		"oci://docker.io/a":                                     "docker.io/library/a",
		"oci://index.docker.io/a/b":                             "docker.io/a/b",
		"oci://registry-1.docker.io/a":                          "docker.io/library/a",
		"oci://r_1.example/a":                                   "r_1.example/a",
		"oci://R.example/a":                                     "write it in lower case",
		"oci://r.example/A":                                     "write it in lower case",
		"oci://r.example/a:v1":                                  "spec.ref",
		"oci://r.example/a@sha256:" + strings.Repeat("a", 64):   "spec.ref",
		"oci://ann:secret@r.example/a":                          "spec.secretRef",
		"https://r.example/a":                                   "oci://HOST/PATH",
		"r.example/a":                                           "oci://HOST/PATH",
		"oci://r.example":                                       "no name of a repository",
		"oci://r.example/":                                      "no name of a repository",
		"oci://r.example/a//b":                                  "no name of a repository",
		"oci://r.example/../b":                                  "no name of a repository",
		"oci://r.example/a/":                                    "no name of a repository",
		"oci://r.example/a?b=c":                                 "no name of a repository",
		"oci://r.example/a#b":                                   "no name of a repository",
		"oci://r.example/a%2fb":                                 "no name of a repository",
		"oci://r.example/a b":                                   "no name of a repository",
		"oci://r.example/a\n":                                   "no name of a repository",
		"oci:///a":                                              "no host",
		"oci://r.example:/a":                                    "port",
		"oci://r.example:0/a":                                   "no host",
		"oci://r.example:65536/a":                               "no host",
		"oci://r.example:x/a":                                   "no host",
		"oci://-r.example/a":                                    "no host",
		"oci://r..example/a":                                    "no host",
		"oci://r.example%0a/a":                                  "no host",
		"oci://[::1/a":                                          "no host",
		"oci://[fe80::1%25eth0]/a":                              "no ",
		"oci://[1.2.3.4]/a":                                     "no ",
		"oci://" + strings.Repeat("a", 300) + "/a":              "no host",
		"oci://r.example/" + strings.Repeat("a", 256):           "at most 255",
		"oci://r.example/" + strings.Repeat("a/", 1500) + "end": "at most 2048",
	} {
		r, err := oci.Connect(t.Context(), oci.Access{URL: text}, source.Env{}, &transport.SecretReader{})
		if err == nil {
			if r.Close(); r.Name() != want {
				t.Errorf("%s: %s", text, r.Name())
			}
			continue
		}
		e, ok := errors.AsType[*source.StepError](err)
		if !ok || e.Reason != "URLInvalid" || !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHub checks that requests for docker.io go to the host of Docker Hub's API.
func TestHub(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "ann", Password: password})
	want := g.Push("library/app", "v1", layer("x"))
	u, _ := url.Parse(g.Base)
	proxy := testenv.ServeProxy(t, testenv.ProxyConfig{Hosts: map[string]string{"registry-1.docker.io": u.Host, "registry-1.docker.io:80": u.Host}})
	env := source.Env{Secrets: secrets{"proxy": {"address": proxy.URL}, "reg": {".dockerconfigjson": dockerconfig("https://index.docker.io/v1/", "ann", password)}}}
	r, _ := connect(t, oci.Access{URL: "oci://docker.io/app", Insecure: true, Proxy: ref("proxy"), Secret: ref("reg")}, env)
	d, err := r.Head(t.Context(), "v1")
	if err != nil || d.Digest != want.Digest {
		t.Error(d, err, proxy.Requests())
	}
}

func TestBadSecrets(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	for name, data := range map[string]map[string]string{"ca": {"ca.crt": "x"}, "proxy": {"address": "ftp://x"}, "reg": {".dockerconfigjson": "SECRET"}} {
		a := map[string]oci.Access{"ca": {Cert: ref(name)}, "proxy": {Proxy: ref(name)}, "reg": {Secret: ref(name)}}[name]
		err := try(t, g, a, source.Env{Secrets: secrets{name: data}})
		e, ok := errors.AsType[*source.StepError](err)
		if s, is := errors.AsType[*transport.SecretError](err); !ok || !is || e.Reason != "AuthenticationFailed" || s.Secret != "apps/"+name || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
		testenv.ErrorIs(t, try(t, g, a, source.Env{}), fs.ErrNotExist, name)
	}
}

func TestRealm(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, row := range map[string]struct {
		realm     string // of the token service, if there is one at localhost; %s is its port
		own       bool   // the Secret has an entry for the token service
		anonymous bool   // the Secret has no entry for the registry
		want      string // part of the error, "" for none
	}{
		"on another host":               {"https://localhost:%s/token", false, false, "credentials for one are not shown to the other"},
		"on another host with an entry": {"https://localhost:%s/token", true, false, ""},
		"on another host for nobody":    {"https://localhost:%s/token", false, true, ""},
		"on another port":               {"https://127.0.0.1:%s/token", false, false, ""},
		"with user information":         {"https://ann:x@127.0.0.1:%s/token", true, false, "user information"},
		"without TLS":                   {"http://127.0.0.1:%s/token", true, false, "leads from https to http"},
		"without TLS for nobody":        {"http://localhost:%s/token", false, true, "leads from https to http"},
		"of another scheme":             {"ftp://127.0.0.1:%s/token", true, false, "its scheme"},
		"without host":                  {"/token", true, false, "no URL"},
		"that is no URL":                {"https://%%zz:%s", true, false, "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := newGuardedRegistry(t, ca, &testenv.Bearer{Anonymous: true})
			u, _ := url.Parse(issuer.Base)
			realm := row.realm
			if strings.Contains(realm, "%s") {
				realm = fmt.Sprintf(realm, u.Port())
			}
			g := newGuardedRegistry(t, ca, &testenv.Bearer{Realm: realm})
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

// TestRealmInsecure checks that the realm of a registry without TLS must be on the registry's
// host, or use TLS.
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
