package oci_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

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
