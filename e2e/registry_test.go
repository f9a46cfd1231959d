package e2e

import (
	"cmp"
	"encoding/json"
	"io"
	stdlog "log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/pkg/oci"
	"github.com/fluxcd/pkg/tar"
	"github.com/google/go-containerregistry/pkg/crane"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A distribution configures the distribution registry. It has no referrers API, so clients use the
// referrers tag.
type distribution struct {
	root     string      // storage directory; several registries may share it
	ca       *testenv.CA // nil: plain HTTP
	mutual   bool        // requires client certificates of ca
	basic    bool        // requires user alice with password s3cret
	password string      // requires user alice with this password
	issuer   *issuer     // requires tokens of this issuer
	notify   string      // URL that is notified of pushes
	token    string      // Authorization header of notifications
}

// serve starts the registry and returns its address.
func (d distribution) serve(t *testing.T) (addr string) {
	t.Helper()
	addr, _ = freeAddr(t)
	dir := t.TempDir()
	type section = map[string]any
	server := section{"addr": addr}
	if d.ca != nil {
		cert, key := d.ca.Server()
		tls := section{"certificate": write(t, filepath.Join(dir, "tls.crt"), string(cert)), "key": write(t, filepath.Join(dir, "tls.key"), string(key))}
		if d.mutual {
			tls["clientcas"] = []string{write(t, filepath.Join(dir, "ca.crt"), string(d.ca.PEM()))}
		}
		server["tls"] = tls
	}
	conf := section{
		"version": "0.1", "log": section{"level": "error", "accesslog": section{"disabled": true}}, "http": server,
		"storage": section{"filesystem": section{"rootdirectory": d.root}, "delete": section{"enabled": true}},
	}
	if d.notify != "" {
		conf["notifications"] = section{"endpoints": []section{{"name": "headgate", "url": d.notify, "headers": section{"Authorization": []string{d.token}},
			"timeout": "5s", "threshold": 5, "backoff": "100ms"}}}
	}
	if d.basic || d.password != "" {
		users := run(t, "htpasswd", "-Bbn", "alice", cmp.Or(d.password, "s3cret"))
		conf["auth"] = section{"htpasswd": section{"realm": "test", "path": write(t, filepath.Join(dir, "htpasswd"), users)}}
	}
	if d.issuer != nil {
		conf["auth"] = section{"token": section{"realm": d.issuer.URL + "/token", "service": service, "issuer": "test",
			"jwks": write(t, filepath.Join(dir, "jwks.json"), d.issuer.keySet(t)), "signingalgorithms": []string{"RS256"}}}
	}
	text, err := json.Marshal(conf) // JSON is YAML, too
	must(t, err)
	cmd := exec.Command(tool(t, "registry"), "serve", write(t, filepath.Join(dir, "config.yml"), string(text)))
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	start(t, cmd)
	await(t, addr)
	return addr
}

// serveOlareg starts the registry olareg and returns its address. It has a referrers API and stores
// everything in memory.
func serveOlareg(t *testing.T, more ...string) (addr string) {
	t.Helper()
	addr, port := freeAddr(t)
	start(t, exec.Command(tool(t, "olareg"), append([]string{"serve", "--addr", "127.0.0.1", "--port", port, "--store-type", "mem", "--api-delete", "--gc-frequency", "-1s"}, more...)...))
	await(t, addr)
	return addr
}

// A recordingProxy is a reverse proxy that records the requests to a server.
type recordingProxy struct {
	addr     string
	mu       sync.Mutex
	requests []string // METHOD PATH STATUS
}

// newRecordingProxy returns a proxy that records the paths of requests.
func newRecordingProxy(t *testing.T, addr string) *recordingProxy {
	t.Helper()
	return newNamingProxy(t, addr, func(r *http.Request) string { return r.URL.Path })
}

// newNamingProxy returns a proxy that records names of requests instead of paths.
func newNamingProxy(t *testing.T, addr string, name func(*http.Request) string) *recordingProxy {
	t.Helper()
	f := new(recordingProxy)
	s := startReverseProxy(t, "http://"+addr, func(proxy *httputil.ReverseProxy) http.Handler {
		proxy.ModifyResponse = func(r *http.Response) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.requests = append(f.requests, r.Request.Method+" "+name(r.Request)+" "+r.Status[:3])
			return nil
		}
		return proxy
	})
	f.addr = s.Listener.Addr().String()
	return f
}

// startReverseProxy starts a server that runs until the test ends. Its handler is wrap applied to a reverse
// proxy to server.
func startReverseProxy(t *testing.T, server string, wrap func(*httputil.ReverseProxy) http.Handler) *httptest.Server {
	t.Helper()
	target, err := url.Parse(server)
	must(t, err)
	s := httptest.NewServer(wrap(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorLog:      stdlog.New(io.Discard, "", 0), // clients disconnect
	}))
	t.Cleanup(s.Close)
	return s
}

// takeRequests returns the requests since the last call.
func (f *recordingProxy) takeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.requests
	f.requests = nil
	return seen
}

// count returns the number of requests with a method or a status.
func count(seen []string, part string) (n int) {
	for _, s := range seen {
		if strings.HasPrefix(s, part+" ") || strings.HasSuffix(s, " "+part) {
			n++
		}
	}
	return n
}

// An ociSource is an OCIRepository and the Secrets it names.
type ociSource struct {
	url      string
	insecure bool
	ref      stringMap
	login    *login    // nil: no secretRef
	cert     stringMap // nil: no certSecretRef
	proxy    stringMap // nil: no proxySecretRef
	provider string    // of verify; "" for none
	trust    stringMap // the Secret of verify
}

// A login is for a registry.
type login struct{ host, username, password string }

func (s ociSource) manifest(t *testing.T) string {
	t.Helper()
	spec := map[string]any{"url": s.url, "insecure": s.insecure, "ref": stringMap{"tag": "1.0.0"}}
	if s.ref != nil {
		spec["ref"] = s.ref
	}
	if s.provider != "" {
		spec["verify"] = map[string]any{"provider": s.provider}
	}
	var docker stringMap
	if s.login != nil {
		docker = s.login.docker()
	}
	return manifest(t, "OCIRepository", spec, map[string]stringMap{"secretRef": docker, "certSecretRef": s.cert, "proxySecretRef": s.proxy, "verify.secretRef": s.trust})
}

// docker returns the content of a Secret of type kubernetes.io/dockerconfigjson.
func (l login) docker() stringMap {
	return stringMap{".dockerconfigjson": toJSON(map[string]any{"auths": map[string]any{l.host: stringMap{"username": l.username, "password": l.password}}})}
}

// A clientHome is the home directory of registry clients, without any settings of the machine.
type clientHome string

func newClientHome(t *testing.T) clientHome { return clientHome(t.TempDir()) }

// command returns a command that runs a client.
func (h clientHome) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + string(h), "COSIGN_PASSWORD="}
	cmd.Dir = string(h) // oras only accepts paths below it
	return cmd
}

// run runs a client and returns its standard output.
func (h clientHome) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := h.command(t, name, args...).Output()
	if err != nil {
		said := []byte(nil)
		if exit, ok := err.(*exec.ExitError); ok {
			said = exit.Stderr
		}
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, said)
	}
	return string(out)
}

// A pushResult is the output of headgate push.
type pushResult struct {
	URL, Digest string
	Tags        []string
}

// push runs headgate push on a directory or an object of a store.
func push(t *testing.T, env []string, args ...string) pushResult {
	t.Helper()
	cmd := headgate(t.Context(), t, append([]string{"push", "--insecure", "-o", "json"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	said := new(log)
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("headgate push %q: %v\n%s", args, err, said)
	}
	var p pushResult
	must(t, json.Unmarshal(out, &p))
	return p
}

// writeFiles writes files to a directory and returns it.
func writeFiles(t *testing.T, files stringMap) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, text)
	}
	return dir
}

var publishedFiles = stringMap{"app.yaml": strings.Repeat("replicas: 3\n", 5000), "base/naïve name": "ü\n", "empty": ""}

// TestPush pushes to registries with headgate, and pulls with the libraries that Flux uses for
// artifacts: crane and its own archive reader.
func TestPush(t *testing.T) {
	t.Parallel()
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			f := newRecordingProxy(t, serve(t))
			dir := writeFiles(t, publishedFiles)
			must(t, os.Symlink("app.yaml", filepath.Join(dir, "link")))
			p := push(t, nil, dir, "oci://"+f.addr+"/team/app:1.0.0", "--tag", "stable", "--revision", "main@sha1:abc")
			for _, tag := range []string{"1.0.0", "stable"} {
				img, err := crane.Pull(f.addr+"/team/app:"+tag, crane.Insecure)
				must(t, err)
				digest, err := img.Digest()
				must(t, err)
				manifest, err := img.Manifest()
				must(t, err)
				if digest.String() != p.Digest || manifest.Annotations["org.opencontainers.image.revision"] != "main@sha1:abc" {
					t.Errorf("pulled %s, %v", digest, manifest.Annotations)
				}
				layers, err := img.Layers()
				must(t, err)
				blob, err := layers[0].Compressed()
				must(t, err)
				out := t.TempDir()
				must(t, tar.Untar(blob, out))
				must(t, blob.Close())
				wantFiles(t, filesOf(t, os.DirFS(out)), publishedFiles)
			}
			store := t.TempDir()
			got := fetchSource(t, store, ociSource{url: "oci://" + f.addr + "/team/app", insecure: true})
			if got.code != 0 || got.status.Artifact.Revision != "1.0.0@"+p.Digest {
				t.Fatalf("fetch: %+v", got)
			}
			wantFiles(t, tree(t, store), publishedFiles)

			f.takeRequests()
			cmd := push(t, []string{"TZ=Asia/Tokyo"}, writeFiles(t, publishedFiles), "oci://"+f.addr+"/team/app:1.0.0", "--revision", "main@sha1:abc")
			if seen := f.takeRequests(); cmd.Digest != p.Digest || count(seen, "PUT")+count(seen, "POST") > 0 {
				t.Errorf("pushed %s again, as %s, by %q", p.Digest, cmd.Digest, seen)
			}
		})
	}
}

// TestPushAccess pushes with Docker logins to registries that require authentication.
func TestPushAccess(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t)
	for name, d := range map[string]distribution{"basic": {basic: true}, "tokens": {issuer: issuer}} {
		t.Run(name, func(t *testing.T) {
			d.root = t.TempDir()
			addr := d.serve(t)
			config := write(t, filepath.Join(t.TempDir(), "config.json"), toJSON(map[string]any{"auths": map[string]any{addr: stringMap{"auth": "YWxpY2U6czNjcmV0"}}}))
			dir := writeFiles(t, publishedFiles)
			p := push(t, []string{"DOCKER_CONFIG=" + filepath.Dir(config)}, dir, "oci://"+addr+"/team/app:1.0.0", "--docker-config")
			cmd := headgate(t.Context(), t, "diff", dir, "oci://"+addr+"/team/app@"+p.Digest, "--insecure", "--docker-config="+config)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("diff: %v\n%s", err, out)
			}
			changed := maps.Clone(publishedFiles)
			changed["app.yaml"] = "replicas: 5\n"
			cmd = headgate(t.Context(), t, "diff", "oci://"+addr+"/team/app:1.0.0", writeFiles(t, changed), "--insecure", "--docker-config="+config, "-o", "name")
			if out, _ := cmd.Output(); string(out) != "app.yaml\n" || cmd.ProcessState.ExitCode() != 4 {
				t.Errorf("diff: %s, exit code %d", out, cmd.ProcessState.ExitCode())
			}
			refused := headgate(t.Context(), t, "push", dir, "oci://"+addr+"/team/app:2.0.0", "--insecure")
			if out, err := refused.CombinedOutput(); err == nil || refused.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "401") {
				t.Errorf("without credentials: %s", out)
			}
		})
	}
}

// TestFluxRegistryClient pulls with the client of flux what headgate pushed, and fetches with
// headgate what that client pushed.
func TestFluxRegistryClient(t *testing.T) {
	t.Parallel()
	for name, serve := range registries {
		t.Run(name, func(t *testing.T) {
			addr, client := serve(t), oci.NewClient(oci.DefaultOptions())
			dir := writeFiles(t, publishedFiles)
			ours := push(t, nil, dir, "oci://"+addr+"/team/ours:1.0.0", "--revision", "main@sha1:abc", "--source", "https://example.com/app.git")

			out := t.TempDir()
			meta, err := client.Pull(t.Context(), addr+"/team/ours:1.0.0", out)
			must(t, err)
			wantFiles(t, filesOf(t, os.DirFS(out)), publishedFiles)
			if meta.Revision != "main@sha1:abc" || meta.Source != "https://example.com/app.git" || meta.Digest != addr+"/team/ours@"+ours.Digest {
				t.Errorf("pulled %+v", meta)
			}

			_, err = client.Push(t.Context(), addr+"/team/theirs:1.0.0", dir, oci.WithPushMetadata(oci.Metadata{
				Created: "2026-01-02T03:04:05Z", Revision: "main@sha1:def", Source: "https://example.com/app.git"}))
			must(t, err)
			digests := map[string]bool{}
			for _, repository := range []string{"ours", "theirs"} {
				store := t.TempDir()
				got := fetchSource(t, store, ociSource{url: "oci://" + addr + "/team/" + repository, insecure: true})
				if got.code != 0 || got.status.Artifact == nil {
					t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
				}
				wantFiles(t, tree(t, store), publishedFiles)
				digests[got.status.Artifact.Digest] = true
			}
			testenv.Equal(t, len(digests), 1, "one tree, pushed by two, has the digests %v", digests)
		})
	}
}

// TestLayout copies an artifact and its signature with oras to an image layout, which --from uses
// instead of the registry.
func TestLayout(t *testing.T) {
	t.Parallel()
	addr := serveOlareg(t)
	s := newNotationJWS(t)
	of := newSubject(t, addr, "1.0.0")
	s.sign(t, of.reference())
	h := newClientHome(t)
	layout := filepath.Join(string(h), "layout")
	h.run(t, "oras", "copy", "--from-plain-http", "--to-oci-layout", "--recursive", of.addr+"/team/app:1.0.0", "layout:1.0.0")
	for _, c := range []struct {
		name  string
		trust stringMap
		code  int
	}{{"verified", s.trust, 0}, {"refused", s.otherSigner, 3}} {
		store := t.TempDir()
		got := fetchSource(t, store, ociSource{url: "oci://registry.example/team/app", provider: s.provider, trust: c.trust}, "--from", "oci://registry.example/team/app="+layout)
		if got.code != c.code {
			t.Fatalf("%s: exit code %d, %+v\n%s", c.name, got.code, got.status, got.stderr)
		}
		if c.code == 0 {
			wantFiles(t, tree(t, store), stringMap{"tag": "1.0.0"})
		}
	}
}
