package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A gitServer is nginx in front of git http-backend or files. Below each URL, /public is open to
// all clients, /basic requires user alice with password s3cret, and /bearer requires the token
// "token".
type gitServer struct {
	plain  string // http
	secure string // https with a certificate of ca
	mutual string // https that requires a client certificate of ca
	ca     *testenv.CA
	users  string // password file with alice
}

const nginxConf = `
daemon off; worker_processes 1; pid @DIR@/nginx.pid; error_log stderr warn; @USER@
events { worker_connections 128; }
http {
  access_log off; client_max_body_size 0;
  client_body_temp_path @DIR@/tmp; proxy_temp_path @DIR@/tmp; fastcgi_temp_path @DIR@/tmp; uwsgi_temp_path @DIR@/tmp; scgi_temp_path @DIR@/tmp;
  ssl_certificate @DIR@/tls.crt; ssl_certificate_key @DIR@/tls.key; ssl_client_certificate @DIR@/ca.crt;
  server { listen @PLAIN@; include @DIR@/places; }
  server { listen @SECURE@ ssl; include @DIR@/places; }
  server { listen @MUTUAL@ ssl; ssl_verify_client on; include @DIR@/places; }
}
`

const nginxLocations = `
location ~ ^/public(/.*)$ { @BACKEND@ fastcgi_param PATH_INFO $1; }
location ~ ^/basic(/.*)$  { auth_basic git; auth_basic_user_file @DIR@/htpasswd; @BACKEND@ fastcgi_param PATH_INFO $1; }
location ~ ^/bearer(/.*)$ { if ($http_authorization != "Bearer token") { return 401; } @BACKEND@ fastcgi_param PATH_INFO $1; }
`

const nginxBackend = `
fastcgi_pass unix:@SOCKET@;
fastcgi_param REQUEST_METHOD $request_method;  fastcgi_param QUERY_STRING $query_string;
fastcgi_param CONTENT_TYPE $content_type;      fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param SCRIPT_FILENAME @EXEC@/git-http-backend;
fastcgi_param GIT_PROJECT_ROOT @ROOT@;           fastcgi_param GIT_HTTP_EXPORT_ALL "";
fastcgi_param GIT_PROTOCOL $http_git_protocol; fastcgi_param REMOTE_USER $remote_user;
`

// serveGit serves a repository as repo.git.
func serveGit(t *testing.T, repo *testenv.Repo) *gitServer {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "fcgi.sock")
	startFastCGI(t, socket)
	backend := strings.NewReplacer("@SOCKET@", socket, "@EXEC@", strings.TrimSpace(run(t, "git", "--exec-path"))).Replace(nginxBackend)
	return serveNginx(t, filepath.Dir(repo.Dir), strings.ReplaceAll(nginxLocations, "@BACKEND@", backend))
}

// serveNginx starts nginx with the given location blocks. In these, @ROOT@ is the directory root
// and @DIR@ the directory of the server's own files.
func serveNginx(t *testing.T, root, places string) *gitServer {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	ca := testenv.NewCA(t)
	cert, key := ca.Server()
	write(t, filepath.Join(dir, "tls.crt"), string(cert))
	write(t, filepath.Join(dir, "tls.key"), string(key))
	write(t, filepath.Join(dir, "ca.crt"), string(ca.PEM()))
	run(t, "htpasswd", "-bc", filepath.Join(dir, "htpasswd"), "alice", "s3cret")
	plain, secure, mutual := listen(t), listen(t), listen(t)
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // the worker reads files of this user
	}
	text := strings.NewReplacer("@DIR@", dir, "@USER@", user, "@ROOT@", root,
		"@PLAIN@", plain.Addr().String(), "@SECURE@", secure.Addr().String(), "@MUTUAL@", mutual.Addr().String())
	conf := write(t, filepath.Join(dir, "nginx.conf"), text.Replace(nginxConf))
	write(t, filepath.Join(dir, "places"), text.Replace(places))
	startNginx(t, dir, conf, plain, secure, mutual)
	return &gitServer{"http://" + plain.Addr().String(), "https://" + secure.Addr().String(), "https://" + mutual.Addr().String(), ca, filepath.Join(dir, "htpasswd")}
}

// startFastCGI starts fcgiwrap on a socket that it inherits as standard input.
func startFastCGI(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	cmd := exec.Command(tool(t, "fcgiwrap"), "-c", "2")
	cmd.Env = testenv.GitEnv(t)
	stdin := file(t, l)
	cmd.Stdin = stdin
	start(t, cmd)
	must(t, stdin.Close())
}

// startNginx starts nginx with inherited sockets, the way nginx replaces its binary.
func startNginx(t *testing.T, dir, conf string, sockets ...*net.TCPListener) {
	t.Helper()
	cmd := exec.Command(tool(t, "nginx"), "-p", dir, "-c", conf, "-e", "stderr")
	inherited := "NGINX="
	for i, l := range sockets {
		cmd.ExtraFiles = append(cmd.ExtraFiles, file(t, l))
		inherited += fmt.Sprintf("%d;", 3+i)
	}
	cmd.Env = append(os.Environ(), inherited)
	start(t, cmd)
	for i, l := range sockets {
		raw, err := l.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { syscall.SetNonblock(int(fd), true) })) // File has made the shared socket blocking
		must(t, cmd.ExtraFiles[i].Close())
		must(t, l.Close()) // only nginx holds the sockets, so clients notice its end
	}
}

// A sshServer is OpenSSH's sshd. Users can only fetch.
type sshServer struct {
	url  string // of the repository
	addr string
	keys map[string]string // public host keys by type
	log  *log
}

const sshdConf = `
AuthorizedKeysFile DIR/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv GIT_PROTOCOL
AllowTcpForwarding no
ForceCommand git-shell -c "$SSH_ORIGINAL_COMMAND"
`

// serveSSH serves a repository to the owners of public keys. It starts one sshd per connection, as
// inetd does.
func serveSSH(t *testing.T, repo *testenv.Repo, public ...string) *sshServer {
	t.Helper()
	dir := t.TempDir()
	l := listen(t)
	me, err := user.Current()
	must(t, err)
	s := &sshServer{addr: l.Addr().String(), keys: map[string]string{}, log: new(log)}
	s.url = "ssh://" + me.Username + "@" + s.addr + repo.Dir
	conf := strings.ReplaceAll(sshdConf, "DIR", dir)
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		key := filepath.Join(dir, "host_"+kind)
		run(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key)
		s.keys[kind] = read(t, key+".pub")
		conf += "HostKey " + key + "\n"
	}
	write(t, filepath.Join(dir, "authorized_keys"), strings.Join(public, ""))
	path := write(t, filepath.Join(dir, "sshd_config"), conf)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.answer(tool(t, "sshd"), path, conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		if t.Failed() {
			t.Logf("sshd said:\n%s", s.log)
		}
	})
	return s
}

func (s *sshServer) answer(sshd, conf string, conn *net.TCPConn) {
	f, err := conn.File()
	conn.Close()
	if err != nil {
		return
	}
	defer f.Close()
	cmd := exec.Command(sshd, "-i", "-e", "-f", conf)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f, f, s.log
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1")
	cmd.Run() // returns when the connection ends
}

// knownHosts returns known_hosts lines for host keys of these types, as ssh-keygen writes them.
func (s *sshServer) knownHosts(t *testing.T, hashed bool, kinds ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	must(t, err)
	path := filepath.Join(t.TempDir(), "known_hosts")
	text := ""
	for _, kind := range kinds {
		text += "[" + host + "]:" + port + " " + s.keys[kind]
	}
	write(t, path, text)
	if hashed {
		run(t, "ssh-keygen", "-H", "-f", path)
	}
	return read(t, path)
}

// userKey creates a key pair with ssh-keygen.
func userKey(t *testing.T, kind, passphrase string) (identity, public string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "id")
	run(t, "ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "tester", "-f", path)
	return read(t, path), read(t, path+".pub")
}

// A proxy is a real proxy that requires user pat with password pr0xy.
type proxy struct {
	url string
	log func() string // returns a log that names the targets
}

// serveHTTPProxy starts tinyproxy.
func serveHTTPProxy(t *testing.T) proxy {
	t.Helper()
	addr, port := freeAddr(t)
	conf := write(t, filepath.Join(t.TempDir(), "tinyproxy.conf"),
		"Port "+port+"\nListen 127.0.0.1\nTimeout 60\nLogLevel Connect\nMaxClients 16\nBasicAuth pat pr0xy\n")
	out := start(t, exec.Command(tool(t, "tinyproxy"), "-d", "-c", conf))
	await(t, addr)
	return proxy{"http://" + addr, out.String}
}

// serveSOCKS starts microsocks.
func serveSOCKS(t *testing.T) proxy {
	t.Helper()
	addr, port := freeAddr(t)
	out := start(t, exec.Command(tool(t, "microsocks"), "-i", "127.0.0.1", "-p", port, "-u", "pat", "-P", "pr0xy"))
	await(t, addr)
	return proxy{"socks5://" + addr, out.String}
}

// serveHTTPSProxy starts our own proxy behind TLS, because Debian has no small one.
func serveHTTPSProxy(t *testing.T, ca *testenv.CA) proxy {
	t.Helper()
	s := testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: "https", CA: ca, Username: "pat", Password: "pr0xy"})
	return proxy{s.URL, func() string {
		all := ""
		for _, seen := range s.Requests() {
			all += seen + "\n"
		}
		return all
	}}
}

// service is the name of the registries in token requests.
const service = "registry.test"

// An issuer issues bearer tokens to user alice with password s3cret (distribution's "Token
// Authentication Specification"). They are JSON web tokens signed with RS256.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu       sync.Mutex
	requests []string // USER SCOPE STATUS
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	i := &issuer{key: key}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

// keySet returns the public key as a JSON web key set (RFC 7517).
func (i *issuer) keySet(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": []stringMap{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key",
		"n": encode(i.key.N.Bytes()), "e": encode(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
	must(t, err)
	return string(text)
}

// ServeHTTP implements [http.Handler].
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	query := r.URL.Query()
	status := http.StatusOK
	switch {
	case r.URL.Path != "/token" || query.Get("service") != service:
		status = http.StatusNotFound
	case user != "alice" || password != "s3cret":
		status = http.StatusUnauthorized
	}
	i.mu.Lock()
	i.requests = append(i.requests, user+" "+strings.Join(query["scope"], " ")+" "+http.StatusText(status))
	i.mu.Unlock()
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	access := []map[string]any{}
	for _, scope := range query["scope"] {
		if part := strings.SplitN(scope, ":", 3); len(part) == 3 {
			access = append(access, map[string]any{"type": part[0], "name": part[1], "actions": strings.Split(part[2], ",")})
		}
	}
	now := time.Now()
	token, err := i.sign(map[string]any{"iss": "test", "sub": user, "aud": service, "jti": rand.Text(), "access": access,
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(5 * time.Minute).Unix()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 300})
}

// sign returns claims as a JSON web token.
func (i *issuer) sign(claims map[string]any) (string, error) {
	head, err := json.Marshal(stringMap{"typ": "JWT", "alg": "RS256", "kid": "key"})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode(head) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	return text + "." + encode(signature), err
}

// takeRequests returns the token requests since the last call.
func (i *issuer) takeRequests() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := i.requests
	i.requests = nil
	return seen
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
