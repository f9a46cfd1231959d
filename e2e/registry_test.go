package e2e

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A distribution is how the distribution registry is served: it has no list of
// referrers, so a tag stands in for it.
type distribution struct {
	root   string      // its storage; several may share one
	ca     *testenv.CA // nil: plain HTTP
	mutual bool        // wants client certificates of ca
	basic  bool        // wants alice and s3cret
	word   string      // or alice and this
	issuer *issuer     // wants its tokens
	notify string      // URL that is told of pushes
	token  string      // as this in the header Authorization
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
	if d.basic || d.word != "" {
		users := run(t, "htpasswd", "-Bbn", "alice", cmp.Or(d.word, "s3cret"))
		conf["auth"] = section{"htpasswd": section{"realm": "test", "path": write(t, filepath.Join(dir, "htpasswd"), users)}}
	}
	if d.issuer != nil {
		conf["auth"] = section{"token": section{"realm": d.issuer.URL + "/token", "service": service, "issuer": "test",
			"jwks": write(t, filepath.Join(dir, "jwks.json"), d.issuer.keySet(t)), "signingalgorithms": []string{"RS256"}}}
	}
	text, err := json.Marshal(conf) // which is YAML too
	check(t, err)
	cmd := exec.Command(tool(t, "registry"), "serve", write(t, filepath.Join(dir, "config.yml"), string(text)))
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	start(t, cmd)
	await(t, addr)
	return addr
}

// serveOlareg starts the registry olareg, which has a list of referrers and
// keeps all in memory, and returns its address.
func serveOlareg(t *testing.T, more ...string) (addr string) {
	t.Helper()
	addr, port := freeAddr(t)
	start(t, exec.Command(tool(t, "olareg"), append([]string{"serve", "--addr", "127.0.0.1", "--port", port, "--store-type", "mem", "--api-delete", "--gc-frequency", "-1s"}, more...)...))
	await(t, addr)
	return addr
}

// A front stands before a server and notes what is asked of it.
type front struct {
	addr string
	mu   sync.Mutex
	seen []string // METHOD PATH STATUS
}

func newFront(t *testing.T, addr string) *front {
	t.Helper()
	return newNamingFront(t, addr, func(r *http.Request) string { return r.URL.Path })
}

// newNamingFront is newFront with another name for what is asked than its path.
func newNamingFront(t *testing.T, addr string, name func(*http.Request) string) *front {
	t.Helper()
	f := new(front)
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	behind.ModifyResponse = func(r *http.Response) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen = append(f.seen, r.Request.Method+" "+name(r.Request)+" "+r.Status[:3])
		return nil
	}
	s := httptest.NewServer(behind)
	t.Cleanup(s.Close)
	f.addr = s.Listener.Addr().String()
	return f
}

// took returns what was asked since the last time.
func (f *front) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}

// count returns how many requests begin with a method or end with a status.
func count(seen []string, part string) (n int) {
	for _, s := range seen {
		if strings.HasPrefix(s, part+" ") || strings.HasSuffix(s, " "+part) {
			n++
		}
	}
	return n
}
