package oci_test

import (
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

func FuzzChallenges(f *testing.F) {
	f.Add("r.example", `Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull"`)
	f.Add("r.example:5000", `Basic realm="x", Bearer realm="http:\/\/r.example/token?a=b#c", a=b`)
	f.Add("[::1]:5000", `Negotiate abc==, Bearer realm=https://[::1]/`)
	f.Fuzz(func(t *testing.T, host, line string) {
		for _, u := range oci.ReadChallenges(&url.URL{Scheme: "https", Host: host}, line) {
			if u.Scheme != "https" || u.User != nil || u.Hostname() == "" || u.Fragment != "" {
				t.Errorf("%q", u)
			}
		}
	})
}
