package e2e

import (
	"strings"
	"testing"
)

func TestGitThroughProxies(t *testing.T) {
	repo, _ := sample(t)
	s := serveGit(t, repo)
	identity, public := userKey(t, "ed25519", "")
	shell := serveSSH(t, repo, public)
	direct := gitSource{url: s.plain + "/public/repo.git"}
	want := fetchGit(t, t.TempDir(), direct).status.Artifact
	if want == nil {
		t.Fatal("no artifact without a proxy")
	}
	sources := map[string]gitSource{
		"http":  direct,
		"https": {url: s.secure + "/basic/repo.git", secret: keys{"ca.crt": string(s.ca.PEM()), "username": "alice", "password": "s3cret"}},
		"ssh":   {url: shell.url, secret: keys{"identity": identity, "known_hosts": shell.knownHosts(t, true, "ed25519")}},
	}
	for _, p := range []struct {
		name  string
		proxy proxy
		kinds []string
	}{
		{"tinyproxy", serveHTTPProxy(t), []string{"http", "https", "ssh"}},
		{"microsocks", serveSOCKS(t), []string{"http", "https", "ssh"}},
		{"proxy behind TLS", serveHTTPSProxy(t, s.ca), []string{"https"}}, // trusted by the ca.crt of the source's Secret
	} {
		for _, kind := range p.kinds {
			good, bad := sources[kind], sources[kind]
			good.proxy = keys{"address": p.proxy.url, "username": "pat", "password": "pr0xy"}
			bad.proxy = keys{"address": p.proxy.url, "username": "pat", "password": "canary"}
			for _, r := range []row{
				{kind + " through " + p.name, good, 0, ""},
				{kind + " through " + p.name + ", wrong password", bad, 1, "^True (AuthenticationFailed|GitOperationFailed): .*(407|401|authentication failed)"},
			} {
				t.Run(r.name, func(t *testing.T) { r.attempt(t, want.Digest, direct) })
			}
			if port := good.url[strings.LastIndex(good.url[:strings.Index(good.url[8:], "/")+8], ":")+1:][:4]; !strings.Contains(p.proxy.log(), port) {
				t.Errorf("%s did not pass through %s:\n%s", kind, p.name, p.proxy.log())
			}
		}
	}
}

// TestProxySecret leaves out what proxySecretRef has to name.
func TestProxySecret(t *testing.T) {
	repo, _ := sample(t)
	direct := gitSource{url: serveGit(t, repo).plain + "/public/repo.git"}
	proxy := serveHTTPProxy(t)
	want := fetchGit(t, t.TempDir(), direct).status.Artifact
	if want == nil {
		t.Fatal("no artifact without a proxy")
	}
	for _, r := range []row{
		{"no such Secret", gitSource{url: direct.url, absent: true, proxy: keys{}}, 1, "^True AuthenticationFailed: .*default/proxysecretref"},
		{"no address", gitSource{url: direct.url, proxy: keys{"username": "pat", "password": "canary"}}, 1, "^True AuthenticationFailed: .*address"},
		{"no password", gitSource{url: direct.url, proxy: keys{"address": proxy.url, "username": "pat"}}, 1, "^True "},
		{"no credentials", gitSource{url: direct.url, proxy: keys{"address": proxy.url}}, 1, "^True GitOperationFailed: .*407"},
	} {
		t.Run(r.name, func(t *testing.T) { r.attempt(t, want.Digest, direct) })
	}
	if log := proxy.log(); strings.Contains(log, "Established connection") {
		t.Errorf("something passed through the proxy:\n%s", log)
	}
}
