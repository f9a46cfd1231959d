package e2e

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A sshServer is OpenSSH's sshd; who logs in can only fetch.
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

// serveSSH serves a repository to the owners of public keys. Each connection
// gets an sshd of its own, as from inetd.
func serveSSH(t *testing.T, repo *testenv.Repo, public ...string) *sshServer {
	t.Helper()
	dir := t.TempDir()
	l := listen(t)
	me, err := user.Current()
	check(t, err)
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
	cmd.Run() // ends with the connection
}

// knownHosts returns lines for host keys of some types, as ssh-keygen writes them.
func (s *sshServer) knownHosts(t *testing.T, hashed bool, kinds ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	check(t, err)
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

// userKey makes a key pair as users do.
func userKey(t *testing.T, kind, passphrase string) (identity, public string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "id")
	run(t, "ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "tester", "-f", path)
	return read(t, path), read(t, path+".pub")
}
