package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A gitServer is nginx, in front of git http-backend or files. Below each URL, /public
// is open to all, /basic wants alice and s3cret, /bearer the token "token".
type gitServer struct {
	plain  string // http
	secure string // https with a certificate of ca
	mutual string // https, and wants a client certificate of ca
	ca     *testenv.CA
	users  string // the file of alice's password
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

const nginxPlaces = `
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
	return serveNginx(t, filepath.Dir(repo.Dir), strings.ReplaceAll(nginxPlaces, "@BACKEND@", backend))
}

// serveNginx lets nginx serve places, in which @ROOT@ is the directory root,
// and @DIR@ one with files of its own.
func serveNginx(t *testing.T, root, places string) *gitServer {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	ca := testenv.NewCA(t)
	cert, key := ca.Server()
	write(t, filepath.Join(dir, "tls.crt"), string(cert))
	write(t, filepath.Join(dir, "tls.key"), string(key))
	write(t, filepath.Join(dir, "ca.crt"), string(ca.PEM()))
	run(t, "htpasswd", "-bc", filepath.Join(dir, "htpasswd"), "alice", "s3cret")
	plain, secure, mutual := listen(t), listen(t), listen(t)
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // the worker must open what this user made
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
	check(t, err)
	t.Cleanup(func() { l.Close() })
	cmd := exec.Command(tool(t, "fcgiwrap"), "-c", "2")
	cmd.Env = testenv.GitEnv(t)
	stdin := file(t, l)
	cmd.Stdin = stdin
	start(t, cmd)
	check(t, stdin.Close())
}

// startNginx starts nginx on sockets that it inherits, as it does when its binary is replaced.
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
		check(t, err)
		check(t, raw.Control(func(fd uintptr) { syscall.SetNonblock(int(fd), true) })) // handing them on made them block
		check(t, cmd.ExtraFiles[i].Close())
		check(t, l.Close()) // they are the server's alone: clients see when it ends
	}
}
