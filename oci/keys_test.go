package oci_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
)

// entries returns a dockerconfigjson in which the user of each entry is its name.
func entries(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q:{\"username\":%q,\"password\":\"pass\"}", name, name))
	}
	return `{"auths":{` + strings.Join(all, ",") + `}}`
}

func TestKeys(t *testing.T) {
	for _, row := range []struct {
		url, want string
		configs   []string
	}{
		{"oci://r.example/a/b", "r.example", []string{entries("other.example", "r.example")}},
		{"oci://r.example/a/b", "https://r.example", []string{entries("https://r.example")}},
		{"oci://r.example/a/b", "http://r.example/v2/", []string{entries("http://r.example/v2/")}},
		{"oci://r.example/a/b", "r.example/v1", []string{entries("r.example/v1")}},
		{"oci://r.example:5000/a/b", "r.example:5000", []string{entries("r.example:5000", "r.example")}},
		{"oci://r.example:5000/a/b", "", []string{entries("r.example", "r.example:500")}},
		{"oci://r.example/a/b", "", []string{entries("r.example:443", "evil-r.example", "example", "r.example.org")}},
		{"oci://[::1]:5000/a/b", "[::1]:5000", []string{entries("[::1]:5000", "[::2]:5000")}},
		// Docker Hub has several names.
		{"oci://docker.io/a", "https://index.docker.io/v1/", []string{entries("https://index.docker.io/v1/")}},
		{"oci://index.docker.io/library/a", "docker.io", []string{entries("docker.io")}},
		{"oci://registry-1.docker.io/a/b", "https://registry-1.docker.io/v2/", []string{entries("https://registry-1.docker.io/v2/")}},
		{"oci://docker.io/a", "docker.io/library", []string{entries("docker.io", "docker.io/library")}},
		// Paths are folders; the longest counts.
		{"oci://r.example/a/b", "r.example/a/b", []string{entries("r.example", "r.example/a", "r.example/a/b", "r.example/a/b/c")}},
		{"oci://r.example/a/b", "https://r.example/a/", []string{entries("r.example", "https://r.example/a/", "r.example/ab")}},
		{"oci://r.example/ab/c", "r.example", []string{entries("r.example", "r.example/a")}},
		{"oci://r.example/v2/x", "r.example/v2/v2", []string{entries("r.example", "r.example/v2/v2")}},
		// Patterns are for labels.
		{"oci://r.example.org/a", "*.example.org", []string{entries("*.example.org", "*.org")}},
		{"oci://r1.example.org/a", "r?.example.org", []string{entries("*.example.org", "r?.example.org")}},
		{"oci://r.example.org/a", "r.example.org", []string{entries("*.example.org", "r.example.org")}},
		{"oci://r.example.org/a", "*.example.org/a", []string{entries("*.example.org/a", "r.example.org")}},
		{"oci://r.example.org:5000/a", "*.example.org:5000", []string{entries("*.example.org", "*.example.org:5000")}},
		{"oci://a.r.example.org/a", "", []string{entries("*.example.org", "*", "*.r.*", "[")}},
		// Of equals the first Secret counts.
		{"oci://r.example/a", "https://r.example", []string{entries("https://r.example"), entries("r.example")}},
		{"oci://r.example/a", "r.example/a", []string{entries("https://r.example"), entries("r.example/a")}},
		{"oci://r.example/a", "", []string{`{"auths":{"r.example":{},"x.example":{"email":"a@b"}},"credsStore":"evil"}`}},
		{"oci://r.example/a", "", []string{`{}`, `{"auths":null}`, `{"auths":{}}`}},
	} {
		got, found, err := oci.Find(row.url, row.configs...)
		if err != nil || got.Username != row.want || found != (row.want != "") {
			t.Errorf("%s: %q, %v, want %q of %s", row.url, got.Username, err, row.want, row.configs)
		}
	}
}

func TestLogins(t *testing.T) {
	for _, row := range []struct{ login, user, password, refresh, token, wrong string }{
		{`"auth":"YW5uOm9wZW46c2VzYW1l"`, "ann", "open:sesame", "", "", ""},
		{`"auth":"YW5uOm9wZW4"`, "ann", "open", "", "", ""},         // no padding
		{`"auth":"YW5uOm9wZW4AAA=="`, "ann", "open", "", "", ""},    // as old docker wrote it
		{`"auth":"YW5uOg==","password":"x"`, "ann", "", "", "", ""}, // auth goes first
		{`"username":"bob","password":"secret"`, "bob", "secret", "", "", ""},
		{`"auth":"MDAwMDo=","identitytoken":"r"`, "0000", "", "r", "", ""},
		{`"registrytoken":"t"`, "", "", "", "t", ""},
		{`"auth":"!!!SECRET"`, "", "", "", "", "base64"},
		{`"auth":"U0VDUkVU"`, "", "", "", "", "base64"},
		{`"username":"a","password":"SECRET\n"`, "", "", "", "", "control character"},
		{`"identitytoken":"SECRET\u0000"`, "", "", "", "", "control character"},
		{`"username":"a","password":["SECRET"]`, "", "", "", "", "no JSON"},
		{`"auth":"SECRET"`, "", "", "", "", "base64"},
	} {
		c, _, err := oci.Find("oci://r.example/a", `{"auths":{"r.example":{`+row.login+`}}}`)
		if row.wrong != "" {
			e, ok := errors.AsType[*transport.SecretError](err)
			if !ok || e.Secret != "apps/s0" || e.Key != ".dockerconfigjson" || !strings.Contains(err.Error(), row.wrong) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: %v", row.login, err)
			}
			continue
		}
		if err != nil || c.Username != row.user || c.Password != row.password || c.Refresh != row.refresh || c.Token != row.token {
			t.Errorf("%s: %+v, %v", row.login, c, err)
		}
	}
}

func TestHostileKeys(t *testing.T) {
	for name, row := range map[string]struct{ config, want string }{
		"no JSON":       {"SECRET", "no JSON"},
		"cut off":       {`{"auths":{"r":{"auth":"SECRET`, "no JSON"},
		"nested":        {strings.Repeat(`{"auths":`, 100_000), "no JSON"},
		"of wrong type": {`{"auths":["SECRET"]}`, "no JSON"},
		"absent":        {"", "is missing"},
	} {
		_, _, err := oci.Find("oci://r.example/a", row.config)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrusts(t *testing.T) {
	for _, row := range []struct {
		registry, realm, config string
		want                    bool
	}{
		{"r.example.org", "https://r.example.org/token", "", true},
		{"r.example.org:5050", "https://r.example.org/jwt/auth", "", true},
		{"r.example.org", "https://R.EXAMPLE.ORG:8443/token", "", true},
		{"registry.example.org", "https://auth.example.org/token", "", true},
		{"registry.example.org", "https://example.org/token", "", true},
		{"registry-1.docker.io", "https://auth.docker.io/token", "", true},
		{"registry.gitlab.com", "https://gitlab.com/jwt/auth", "", true},
		{"registry.corp.internal", "https://sso.corp.internal/token", "", true},
		{"registry.example.org", "https://auth.example.com/token", "", false},
		{"registry.example.org", "https://example.org.evil.com/token", "", false},
		{"registry.example.org", "https://evilexample.org/token", "", false},
		{"a.co.uk", "https://b.co.uk/token", "", false},
		{"a.github.io", "https://b.github.io/token", "", false}, // of two owners
		{"10.0.0.1", "https://10.0.0.2/token", "", false},
		{"registry", "https://auth/token", "", false},
		{"registry.evil.org", "https://auth.docker.io/token", "", false},
		{"registry.example.org", "https://auth.example.com/token", entries("auth.example.com"), true},
		{"registry.example.org", "https://auth.example.com:8443/token", entries("auth.example.com"), false},
		{"registry.example.org", "https://auth.example.com:8443/token", entries("https://auth.example.com:8443/x"), true},
		{"registry.example.org", "https://auth.example.com/token", entries("*.example.com"), false},
		{"registry.example.org", "http://registry.example.org/token", "", false},
		{"registry.example.org", "https://a:b@registry.example.org/token", "", false},
	} {
		if got := oci.Trusts(row.registry, row.realm, row.config); got != row.want {
			t.Errorf("%s at %s: %v", row.realm, row.registry, got)
		}
	}
}
