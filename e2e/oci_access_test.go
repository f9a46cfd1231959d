package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

const (
	fluxConfig  = "application/vnd.cncf.flux.config.v1+json"
	fluxContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// files is the tree that artifacts here hold, by path.
var files = keys{"README.md": "# sample\n", "deploy/app.yaml": strings.Repeat("replicas: 3\n", 5000), "docs/naïve name": "ü\n"}

// archive returns files as tar+gzip.
func archive(t *testing.T, files keys) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		check(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := w.Write([]byte(files[name]))
		check(t, err)
	}
	check(t, w.Close())
	check(t, z.Close())
	return out.String()
}

// publish pushes an artifact with files to team/app:TAG by oras, and returns its digest.
func publish(t *testing.T, addr, tag string, files keys) string {
	t.Helper()
	h := newHome(t)
	write(t, filepath.Join(string(h), "content.tgz"), archive(t, files))
	write(t, filepath.Join(string(h), "config.json"), "{}")
	return strings.TrimSpace(h.run(t, "oras", "push", "--plain-http", "--config", "config.json:"+fluxConfig,
		"--annotation", "org.opencontainers.image.revision=main@sha1:abc", "--annotation", "org.opencontainers.image.source=https://example.com/app.git",
		"--format", "go-template={{.digest}}", addr+"/team/app:"+tag, "content.tgz:"+fluxContent))
}

// TestOCIAccess lets the distribution registry want each kind of credentials.
func TestOCIAccess(t *testing.T) {
	root := t.TempDir()
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	clerk, gate := newIssuer(t), serveHTTPProxy(t)
	plain := distribution{root: root}.serve(t)
	digest := publish(t, plain, "1.0.0", files)
	secure, mutual := distribution{root: root, ca: ca}.serve(t), distribution{root: root, ca: ca, mutual: true}.serve(t)
	basic, both := distribution{root: root, basic: true}.serve(t), distribution{root: root, ca: ca, basic: true}.serve(t)
	token := distribution{root: root, issuer: clerk}.serve(t)
	at := func(addr string) string { return "oci://" + addr + "/team/app" }
	trust := keys{"ca.crt": string(ca.PEM())}
	cert, key := ca.Client("alice")
	identity := keys{"ca.crt": string(ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	alice := func(addr string) *login { return &login{addr, "alice", "s3cret"} }
	mallory := func(addr string) *login { return &login{addr, "mallory", "canary-password"} }
	pat := keys{"address": gate.url, "username": "pat", "password": "pr0xy"}
	for _, c := range []struct {
		name   string
		source ociSource
		failed string // regular expression of FetchFailed; "" when the fetch succeeds
	}{
		{"anonymous", ociSource{url: at(plain), insecure: true}, ""},
		{"plain HTTP unasked", ociSource{url: at(plain)}, "HTTP"},
		{"basic", ociSource{url: at(basic), insecure: true, login: alice(basic)}, ""},
		{"basic without", ociSource{url: at(basic), insecure: true}, "401"},
		{"basic wrong", ociSource{url: at(basic), insecure: true, login: mallory(basic)}, "401"},
		{"basic for another", ociSource{url: at(basic), insecure: true, login: alice("registry.example")}, "401"},
		{"TLS", ociSource{url: at(secure), cert: trust}, ""},
		{"TLS of an unknown CA", ociSource{url: at(secure)}, "certificate"},
		{"TLS of another CA", ociSource{url: at(secure), cert: keys{"ca.crt": string(unknown.PEM())}}, "certificate"},
		{"TLS basic", ociSource{url: at(both), cert: trust, login: alice(both)}, ""},
		{"TLS basic wrong", ociSource{url: at(both), cert: trust, login: mallory(both)}, "401"},
		{"mTLS", ociSource{url: at(mutual), cert: identity}, ""},
		{"mTLS without", ociSource{url: at(mutual), cert: trust}, "certificate|conn could not be established"}, // the latter when the refusal is there before the request
		{"token", ociSource{url: at(token), insecure: true, login: alice(token)}, ""},
		{"token without", ociSource{url: at(token), insecure: true}, "401"},
		{"token wrong", ociSource{url: at(token), insecure: true, login: mallory(token)}, "401"},
		{"proxy", ociSource{url: at(plain), insecure: true, proxy: pat}, ""},
		{"proxy TLS", ociSource{url: at(both), cert: trust, login: alice(both), proxy: pat}, ""},
		{"proxy wrong", ociSource{url: at(plain), insecure: true, proxy: keys{"address": gate.url, "username": "pat", "password": "canary-proxy"}}, "401"}, // tinyproxy says 407 to nobody but who has none
		{"not there", ociSource{url: at(plain) + "/other", insecure: true}, "404|not exist|not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := t.TempDir()
			clerk.took()
			got := fetchOCI(t, store, c.source)
			if text := got.stderr + got.status.condition("Ready"); strings.Contains(text, "canary") {
				t.Errorf("a credential is shown: %s", text)
			}
			if c.failed != "" {
				failed := got.status.condition("FetchFailed")
				if got.code != 1 || !regexp.MustCompile(c.failed).MatchString(failed) {
					t.Errorf("exit code %d, FetchFailed %q, want %q", got.code, failed, c.failed)
				}
				if found := archives(t, store); len(found) > 0 {
					t.Errorf("stored %v", found)
				}
				return
			}
			if got.code != 0 || got.status.Artifact == nil || got.status.Artifact.Revision != "1.0.0@"+digest {
				t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
			}
			if c.name == "token" {
				for _, said := range clerk.took() {
					if said != "alice repository:team/app:pull OK" {
						t.Errorf("the issuer was asked %q", said)
					}
				}
			}
			if c.source.proxy != nil {
				u, err := url.Parse(c.source.url)
				check(t, err)
				if !strings.Contains(gate.log(), u.Port()) {
					t.Errorf("the proxy did not see %s:\n%s", u.Host, gate.log())
				}
			}
		})
	}
}
