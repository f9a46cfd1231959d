package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// An attempt is a fetch of a bucket that holds files.
type attempt struct {
	name   string
	source bucketSource
	failed string // regular expression of FetchFailed; "" when the fetch succeeds
}

// run fetches, and looks for credentials in what is said.
func (a attempt) run(t *testing.T) outcome {
	t.Helper()
	store := t.TempDir()
	got := fetchBucket(t, store, a.source)
	if text := got.said(); strings.Contains(text, "canary") {
		t.Errorf("a credential is shown: %s", text)
	}
	if a.failed == "" {
		if got.code != 0 {
			t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
		}
		wantFiles(t, tree(t, store), files)
		return got
	}
	failed := got.status.condition("FetchFailed")
	if got.code != 1 || !regexp.MustCompile(a.failed).MatchString(failed) {
		t.Errorf("exit code %d, FetchFailed %q, want %q", got.code, failed, a.failed)
	}
	if found := archives(t, store); len(found) > 0 {
		t.Errorf("stored %v", found)
	}
	return got
}

// said returns all that a run of the command told.
func (o outcome) said() string { return fmt.Sprintf("%s %+v", o.stderr, o.status) }

// trusting reaches servers with a certificate of ca.
func trusting(ca *testenv.CA) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
}

// TestBucketAccess lets MinIO want each kind of credentials.
func TestBucketAccess(t *testing.T) {
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	plain, secure := minioServer{}.serve(t), minioServer{ca: ca}.serve(t)
	for _, s := range []*objectStore{plain, secure} {
		s.bucket("app", files)
	}
	plain.bucket("public", files)
	plain.publish("public")
	elsewhere := minioServer{region: "eu-central-7"}.serve(t)
	elsewhere.bucket("app", files)
	mutual := serveMutual(t, ca, secure.addr)
	gate := serveHTTPProxy(t)
	trust := keys{"ca.crt": string(ca.PEM())}
	cert, key := ca.Client("alice")
	identity := keys{"ca.crt": string(ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	wrong := keys{"accesskey": root["accesskey"], "secretkey": "canary-wrong-secret"}
	stranger := keys{"accesskey": "nobody", "secretkey": "canary-wrong-secret"}
	pat := keys{"address": gate.url, "username": "pat", "password": "pr0xy"}
	open, closed := bucketAt(plain.addr, "public"), bucketAt(plain.addr, "app").secret("secretRef", root)
	tlsApp := closed.secure(secure.addr, trust)
	for _, c := range []attempt{
		{"keys", closed, ""},
		{"wrong secret key", closed.secret("secretRef", wrong), "AuthenticationFailed|403"},
		{"unknown access key", closed.secret("secretRef", stranger), "AuthenticationFailed|403"},
		{"half a pair of keys", closed.secret("secretRef", keys{"accesskey": "headgate-root"}), "secretkey"},
		{"no such Secret", closed.secret("secretRef", nil), "secretref"},
		{"anonymous", open, ""},
		{"anonymous, private bucket", bucketAt(plain.addr, "app"), "403|denied"},
		{"public bucket with keys", open.secret("secretRef", root), ""},
		{"no such bucket", bucketAt(plain.addr, "absent").secret("secretRef", root), "404|NoSuchBucket"},
		{"nobody listens", closed.with("endpoint", "127.0.0.1:1"), "refused"},
		{"plain HTTP unasked", closed.with("insecure", false), "HTTP"},
		{"TLS", tlsApp, ""},
		{"TLS of an unknown CA", bucketAt(secure.addr, "app").with("insecure", false).secret("secretRef", root), "certificate"},
		{"TLS of another CA", tlsApp.secure(secure.addr, keys{"ca.crt": string(unknown.PEM())}), "certificate"},
		{"mTLS", tlsApp.secure(mutual, identity), ""},
		{"mTLS without", tlsApp.secure(mutual, trust), "400|certificate"},
		{"region", closed.with("endpoint", elsewhere.addr).with("region", "eu-central-7"), ""},
		{"another region, which the store corrects", closed.with("endpoint", elsewhere.addr).with("region", "eu-central-8"), ""},
		{"proxy", closed.secret("proxySecretRef", pat), ""},
		{"proxy TLS", tlsApp.secret("proxySecretRef", pat), ""},
		{"proxy wrong", closed.secret("proxySecretRef", keys{"address": gate.url, "username": "pat", "password": "canary-proxy"}), "401|403|407"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := gate.log()
			c.run(t)
			if c.source.secrets["proxySecretRef"] == nil || c.failed != "" {
				return
			}
			_, port, _ := strings.Cut(c.source.spec["endpoint"].(string), ":")
			if said := strings.TrimPrefix(gate.log(), before); !strings.Contains(said, port) {
				t.Errorf("the proxy did not see port %s:\n%s", port, said)
			}
		})
	}
}

const mutualConf = `
daemon off; worker_processes 1; pid @DIR@/nginx.pid; error_log stderr warn;
events { worker_connections 512; }
http {
  access_log off; client_max_body_size 0;
  client_body_temp_path @DIR@/tmp; proxy_temp_path @DIR@/tmp; fastcgi_temp_path @DIR@/tmp; uwsgi_temp_path @DIR@/tmp; scgi_temp_path @DIR@/tmp;
  ssl_certificate @DIR@/tls.crt; ssl_certificate_key @DIR@/tls.key; ssl_client_certificate @DIR@/ca.crt;
  server { listen @LISTEN@ ssl; ssl_verify_client on; location / { proxy_pass https://@BEHIND@; proxy_set_header Host $http_host; } }
}
`

// serveMutual starts nginx before a store that has no way to want client
// certificates, and returns its address.
func serveMutual(t *testing.T, ca *testenv.CA, behind string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	cert, key := ca.Server()
	write(t, filepath.Join(dir, "tls.crt"), string(cert))
	write(t, filepath.Join(dir, "tls.key"), string(key))
	write(t, filepath.Join(dir, "ca.crt"), string(ca.PEM()))
	check(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o777))
	l := listen(t)
	addr = l.Addr().String()
	conf := strings.NewReplacer("@DIR@", dir, "@LISTEN@", addr, "@BEHIND@", behind).Replace(mutualConf)
	startNginx(t, dir, write(t, filepath.Join(dir, "nginx.conf"), conf), l)
	return addr
}
