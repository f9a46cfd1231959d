package e2e

import (
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

const (
	fluxConfig  = "application/vnd.cncf.flux.config.v1+json"
	fluxContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// files is the content of the test artifacts by path.
var files = stringMap{"README.md": "# sample\n", "deploy/app.yaml": strings.Repeat("replicas: 3\n", 5000), "docs/naïve name": "ü\n"}

// archive returns files as tar+gzip.
func archive(t *testing.T, files stringMap) string {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return string(testenv.TarGzip(t, tree).Data)
}

// publish pushes an artifact with files to team/app:TAG with oras and returns its digest.
func publish(t *testing.T, addr, tag string, files stringMap) string {
	t.Helper()
	h := newClientHome(t)
	write(t, filepath.Join(string(h), "content.tgz"), archive(t, files))
	write(t, filepath.Join(string(h), "config.json"), "{}")
	return strings.TrimSpace(h.run(t, "oras", "push", "--plain-http", "--config", "config.json:"+fluxConfig,
		"--annotation", "org.opencontainers.image.revision=main@sha1:abc", "--annotation", "org.opencontainers.image.source=https://example.com/app.git",
		"--format", "go-template={{.digest}}", addr+"/team/app:"+tag, "content.tgz:"+fluxContent))
}

// TestOCIAccess fetches from the distribution registry with each kind of credentials.
func TestOCIAccess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	clerk, gate := newIssuer(t), serveHTTPProxy(t)
	plain := distribution{root: root}.serve(t)
	digest := publish(t, plain, "1.0.0", files)
	secure, mutual := distribution{root: root, ca: ca}.serve(t), distribution{root: root, ca: ca, mutual: true}.serve(t)
	basic, both := distribution{root: root, basic: true}.serve(t), distribution{root: root, ca: ca, basic: true}.serve(t)
	token := distribution{root: root, issuer: clerk}.serve(t)
	at := func(addr string) string { return "oci://" + addr + "/team/app" }
	trust := stringMap{"ca.crt": string(ca.PEM())}
	cert, key := ca.Client("alice")
	identity := stringMap{"ca.crt": string(ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	alice := func(addr string) *login { return &login{addr, "alice", "s3cret"} }
	mallory := func(addr string) *login { return &login{addr, "mallory", "canary-password"} }
	pat := stringMap{"address": gate.url, "username": "pat", "password": "pr0xy"}
	for _, c := range []attempt{
		{"anonymous", ociSource{url: at(plain), insecure: true}, ""},
		{"plain HTTP unasked", ociSource{url: at(plain)}, "HTTP"},
		{"basic", ociSource{url: at(basic), insecure: true, login: alice(basic)}, ""},
		{"basic without", ociSource{url: at(basic), insecure: true}, "401"},
		{"basic wrong", ociSource{url: at(basic), insecure: true, login: mallory(basic)}, "401"},
		{"basic for another", ociSource{url: at(basic), insecure: true, login: alice("registry.example")}, "401"},
		{"TLS", ociSource{url: at(secure), cert: trust}, ""},
		{"TLS of an unknown CA", ociSource{url: at(secure)}, "certificate"},
		{"TLS of another CA", ociSource{url: at(secure), cert: stringMap{"ca.crt": string(unknown.PEM())}}, "certificate"},
		{"TLS basic", ociSource{url: at(both), cert: trust, login: alice(both)}, ""},
		{"TLS basic wrong", ociSource{url: at(both), cert: trust, login: mallory(both)}, "401"},
		{"mTLS", ociSource{url: at(mutual), cert: identity}, ""},
		{"mTLS without", ociSource{url: at(mutual), cert: trust}, "asks for a client certificate"},
		{"token", ociSource{url: at(token), insecure: true, login: alice(token)}, ""},
		{"token without", ociSource{url: at(token), insecure: true}, "401"},
		{"token wrong", ociSource{url: at(token), insecure: true, login: mallory(token)}, "401"},
		{"proxy", ociSource{url: at(plain), insecure: true, proxy: pat}, ""},
		{"proxy TLS", ociSource{url: at(both), cert: trust, login: alice(both), proxy: pat}, ""},
		{"proxy wrong", ociSource{url: at(plain), insecure: true, proxy: stringMap{"address": gate.url, "username": "pat", "password": "canary-proxy"}}, "401"}, // tinyproxy answers 407 only without credentials
		{"not there", ociSource{url: at(plain) + "/other", insecure: true}, "404|not exist|not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clerk.takeRequests()
			got := c.run(t)
			if c.failed != "" {
				return
			}
			testenv.Equal(t, got.status.Artifact.Revision, "1.0.0@"+digest, "revision")
			if c.name == "token" {
				for _, said := range clerk.takeRequests() {
					testenv.Equal(t, said, "alice repository:team/app:pull OK", "the issuer was asked")
				}
			}
			if s := c.source.(ociSource); s.proxy != nil {
				u, err := url.Parse(s.url)
				must(t, err)
				if !strings.Contains(gate.log(), u.Port()) {
					t.Errorf("the proxy did not see %s:\n%s", u.Host, gate.log())
				}
			}
		})
	}
}

// registries are the registries that the tests use, by name.
var registries = map[string]func(*testing.T) string{
	"distribution": func(t *testing.T) string { return distribution{root: t.TempDir()}.serve(t) },
	"olareg":       func(t *testing.T) string { return serveOlareg(t) },
}

// tree returns the files of the only archive in a store.
func tree(t *testing.T, store string) stringMap {
	t.Helper()
	found := archives(t, store)
	if len(found) != 1 {
		t.Fatalf("stored %v", found)
	}
	return archiveFiles(t, read(t, found[0]))
}

// archiveFiles returns the files of an archive.
func archiveFiles(t *testing.T, text string) stringMap {
	t.Helper()
	all, err := artifact.Read(strings.NewReader(text), artifact.Limits{})
	must(t, err)
	defer all.Close()
	return filesOf(t, all)
}

func wantFiles(t *testing.T, got, want stringMap) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.300v, want %.300v", got, want)
	}
}

// pushImage pushes an image with files for a platform with crane and returns its digest.
func pushImage(t *testing.T, addr, tag, platform string, files stringMap) string {
	t.Helper()
	h := newClientHome(t)
	layer := write(t, filepath.Join(string(h), "layer.tgz"), archive(t, files))
	h.run(t, "crane", "append", "--insecure", "--oci-empty-base", "-f", layer, "-t", addr+"/team/app:"+tag)
	h.run(t, "crane", "mutate", "--insecure", "--set-platform", platform, "-t", addr+"/team/app:"+tag, addr+"/team/app:"+tag)
	return strings.TrimSpace(h.run(t, "crane", "digest", "--insecure", addr+"/team/app:"+tag))
}

// TestOCISelection fetches what oras and crane pushed with each kind of reference.
func TestOCISelection(t *testing.T) {
	t.Parallel()
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			addr := serve(t)
			digests := map[string]string{}
			for _, tag := range []string{"latest", "1.0.0", "1.2.0", "v1.1.0", "1.3.0-rc.1", "2.0.0-arm", "unrelated"} {
				digests[tag] = publish(t, addr, tag, stringMap{"tag": tag})
			}
			digests["linux"] = pushImage(t, addr, "linux", "linux/amd64", stringMap{"system": "linux"})
			digests["other"] = pushImage(t, addr, "other", "linux/arm64", stringMap{"system": "other"})
			h := newClientHome(t)
			h.run(t, "crane", "index", "append", "--insecure", "-m", addr+"/team/app:other", "-m", addr+"/team/app:linux", "-t", addr+"/team/app:index")
			digests["index"] = strings.TrimSpace(h.run(t, "crane", "digest", "--insecure", addr+"/team/app:index"))
			for _, c := range []struct {
				name     string
				ref      stringMap
				revision string
				files    stringMap
			}{
				{"latest", stringMap{}, "latest@" + digests["latest"], stringMap{"tag": "latest"}},
				{"tag", stringMap{"tag": "unrelated"}, "unrelated@" + digests["unrelated"], stringMap{"tag": "unrelated"}},
				{"semver", stringMap{"semver": "1.x"}, "1.2.0@" + digests["1.2.0"], stringMap{"tag": "1.2.0"}},
				{"semver with v", stringMap{"semver": "~1.1"}, "v1.1.0@" + digests["v1.1.0"], stringMap{"tag": "v1.1.0"}},
				{"semver of candidates", stringMap{"semver": ">=1.0.0-0 <2.0.0-0"}, "1.3.0-rc.1@" + digests["1.3.0-rc.1"], stringMap{"tag": "1.3.0-rc.1"}},
				{"semver filter", stringMap{"semver": ">=0.0.0-0", "semverFilter": ".*-arm$"}, "2.0.0-arm@" + digests["2.0.0-arm"], stringMap{"tag": "2.0.0-arm"}},
				{"semver before tag", stringMap{"semver": "1.0.0", "tag": "latest"}, "1.0.0@" + digests["1.0.0"], stringMap{"tag": "1.0.0"}},
				{"digest before all", stringMap{"digest": digests["1.0.0"], "semver": "2.x", "tag": "latest"}, digests["1.0.0"], stringMap{"tag": "1.0.0"}},
				{"image", stringMap{"tag": "linux"}, "linux@" + digests["linux"], stringMap{"system": "linux"}},
				{"index", stringMap{"tag": "index"}, "index@" + digests["index"], stringMap{"system": "linux"}},
				{"digest of an index", stringMap{"digest": digests["index"]}, digests["index"], stringMap{"system": "linux"}},
			} {
				t.Run(c.name, func(t *testing.T) {
					store := t.TempDir()
					got := fetchSource(t, store, ociSource{url: "oci://" + addr + "/team/app", insecure: true, ref: c.ref})
					if got.code != 0 || got.status.Artifact == nil || got.status.Artifact.Revision != c.revision {
						t.Fatalf("exit code %d, %+v, want the revision %s\n%s", got.code, got.status, c.revision, got.stderr)
					}
					wantFiles(t, tree(t, store), c.files)
				})
			}
			got := fetchSource(t, t.TempDir(), ociSource{url: "oci://" + addr + "/team/app", insecure: true, ref: stringMap{"semver": "7.x"}})
			if failed := got.status.condition("FetchFailed"); got.code != 1 || !strings.Contains(failed, "7.x") {
				t.Errorf("a range that nothing is in: %d %s", got.code, failed)
			}
		})
	}
}

// TestOCIRequests counts the requests to a registry.
func TestOCIRequests(t *testing.T) {
	t.Parallel()
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			addr := serve(t)
			digest := publish(t, addr, "1.0.0", files)
			f := newRecordingProxy(t, addr)
			source := ociSource{url: "oci://" + f.addr + "/team/app", insecure: true}
			pinned := source
			pinned.ref = stringMap{"digest": digest}
			store, other := t.TempDir(), t.TempDir()
			for _, c := range []struct {
				name      string
				store     string
				source    ociSource
				head, get int
			}{
				{"first", store, source, 1, 2},
				{"unchanged", store, source, 1, 0},
				{"pinned", other, pinned, 0, 2},
				{"pinned and stored", other, pinned, 0, 0},
			} {
				f.takeRequests()
				got := fetchSource(t, c.store, c.source)
				seen := f.takeRequests()
				if got.code != 0 || count(seen, "HEAD") != c.head || count(seen, "GET") != c.get {
					t.Errorf("%s: exit code %d, asked %q, want %d HEAD and %d GET", c.name, got.code, seen, c.head, c.get)
				}
			}
			if next := publish(t, addr, "1.0.0", stringMap{"new": "content"}); next == digest {
				t.Fatal("nothing changed")
			}
			got := fetchSource(t, store, source)
			if seen := f.takeRequests(); got.code != 0 || count(seen, "HEAD") != 1 || count(seen, "GET") != 2 {
				t.Errorf("changed: exit code %d, asked %q", got.code, seen)
			}
		})
	}
}

// TestOCIRateLimit fetches from a registry that limits the request rate.
func TestOCIRateLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish(t, serveOlareg(t, "--store-type", "dir", "--dir", dir), "1.0.0", files)
	f := newRecordingProxy(t, serveOlareg(t, "--store-type", "dir", "--dir", dir, "--rate-limit", "1"))
	refused := 0
	for try := 0; try < 10 && refused == 0; try++ { // a try sends three requests, which exceed the limit unless this machine is slow
		store := t.TempDir()
		got := fetchSource(t, store, ociSource{url: "oci://" + f.addr + "/team/app", insecure: true})
		if got.code != 0 {
			t.Fatalf("exit code %d\n%s", got.code, got.stderr)
		}
		wantFiles(t, tree(t, store), files)
		refused = count(f.takeRequests(), "429")
	}
	if refused == 0 {
		t.Error("the registry refused nothing")
	}
}

// filesOf returns the regular files of a tree by path.
func filesOf(t *testing.T, root fs.FS) stringMap {
	t.Helper()
	found := stringMap{}
	must(t, fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, path)
		found[path] = string(text)
		return err
	}))
	return found
}
