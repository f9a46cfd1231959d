package oci_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/oci"
)

func FuzzKeys(f *testing.F) {
	f.Add(entries("https://index.docker.io/v1/", "*.example.org:5000/a/b", "[::1]:1"), "docker.io/a")
	f.Add(`{"auths":{"r":{"auth":"YW5uOm9wZW4="},"[":{"identitytoken":"x"}}}`, "r.example/a/b")
	f.Fuzz(func(t *testing.T, config, at string) {
		c, found, err := oci.Find("oci://"+at, config)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
		if found && strings.ContainsAny(c.Username+c.Password+c.Refresh+c.Token, "\r\n\x00") {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull"`)
	f.Add(`Basic realm="x", Bearer realm="https:\/\/x", a=b`)
	f.Add(`Negotiate abc==, Basic`)
	f.Fuzz(func(t *testing.T, line string) { oci.ParseChallenges(line) })
}

func FuzzRealm(f *testing.F) {
	f.Add("r.example", "https://auth.example/token")
	f.Add("r.example:5000", "http://r.example/token?a=b#c")
	f.Add("[::1]:5000", "https://[::1]/")
	f.Fuzz(func(t *testing.T, host, realm string) {
		from := &url.URL{Scheme: "https", Host: host}
		u, err := oci.ParseRealm(from, realm)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x1b\n\r") && !strings.ContainsAny(host, "\x1b\n\r") {
				t.Errorf("%q", err)
			}
			return
		}
		if u.Scheme != "https" || u.User != nil || u.Hostname() == "" || u.Fragment != "" {
			t.Errorf("%q", u)
		}
		oci.Trusts(host, realm, "")
	})
}

func FuzzLink(f *testing.F) {
	f.Add(`</v2/a/tags/list?last=x&n=5>; rel="next"`)
	f.Add(`<https://x>; rel=prev, <y>; REL=Next`)
	f.Fuzz(func(t *testing.T, line string) {
		at := &url.URL{Scheme: "https", Host: "r.example", Path: "/v2/a/tags/list"}
		next, err := oci.NextPage(at, http.Header{"Link": {line}})
		if err == nil && next != nil && (next.Scheme != "https" || !strings.EqualFold(next.Hostname(), "r.example") || next.User != nil) {
			t.Errorf("%q", next)
		}
	})
}

func FuzzLayout(f *testing.F) {
	f.Add([]byte(`{"imageLayoutVersion":"1.0.0"}`), []byte(`{"manifests":[{"digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":0,"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}`))
	f.Add([]byte(`{}`), []byte(`{"manifests":null}`))
	f.Fuzz(func(t *testing.T, marker, index []byte) {
		if n, err := oci.ReadLayout(marker, index); err == nil && n > 10_000 {
			t.Error(n)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`), "application/json", "")
	f.Add([]byte(`{"layers":[]}`), "", "application/vnd.oci.image.manifest.v1+json")
	f.Fuzz(func(t *testing.T, content []byte, header, descriptor string) {
		if mediaType, err := oci.TypeOf(content, header, descriptor); err == nil && mediaType == "" {
			t.Error("no type")
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, u := range []string{"oci://docker.io/a", "oci://[::1]:5000/a/b", "oci://r.example:5000/a-b/c__d"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := oci.ParseAddress(text)
		if err != nil {
			return
		}
		again, err := oci.ParseAddress("oci://" + at.String())
		if err != nil || again != at {
			t.Errorf("%q: %q, %v", text, at, err)
		}
	})
}
