package testenv_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/headgate-io/headgate/internal/testenv"
)

func sample(t *testing.T) (*testenv.Repo, string) {
	r := testenv.NewRepo(t)
	id := r.Commit(testenv.Commit{Branch: "main", Message: "first\n", Files: fstest.MapFS{
		"a.txt":   {Data: []byte("hello\n")},
		"bin/run": {Data: []byte("#!\n"), Mode: 0o755},
		"link":    {Data: []byte("a.txt"), Mode: os.ModeSymlink},
		"sub":     testenv.Gitlink("1111111111111111111111111111111111111111"),
	}})
	return r, id
}

// git runs the real client and returns its output and whether it was content.
func git(t *testing.T, env []string, args ...string) (string, bool) {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Env = append(testenv.GitEnv(t), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err == nil
}

func TestRepoIsDeterministic(t *testing.T) {
	r, first := sample(t)
	r.Tag("light", first)
	tag := r.AnnotatedTag("v1.0.0", first, "release")
	r.Ref("refs/pull/1/head", first)
	second := r.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"b": {}}})
	dangling := r.Commit(testenv.Commit{Tree: r.ID(first + "^{tree}"), Parents: []string{first}})
	for _, c := range []struct{ what, got, want string }{
		{"first commit", first, "4a674eb490e4be280c3022adecda12ab5eed2eb6"},
		{"annotated tag", tag, "2b0b7eef8bc223a6f567b155d3f6a6c87362841d"},
		{"second commit", second, "7d6a3163a43f8f019dd00262d0f0a96c9909d521"},
		{"dangling commit", dangling, "d7293eaa9f369ad1b40516995725474bacdcf32f"},
		{"tree", r.Git("ls-tree", "-r", "--format=%(objectmode) %(path)", first), "100644 a.txt\n100755 bin/run\n120000 link\n160000 sub"},
		{"parent", r.ID(second + "^"), first},
		{"refs", r.Git("for-each-ref", "--format=%(refname)"), "refs/heads/main\nrefs/pull/1/head\nrefs/tags/light\nrefs/tags/v1.0.0"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestObjectTakesAnything(t *testing.T) {
	r, _ := sample(t)
	blob := r.Object("blob", []byte("x"))
	tree := r.Object("tree", []byte("100644 ..\x00"+strings.Repeat("\x11", 20)))
	if r.Git("cat-file", "blob", blob) != "x" || r.Git("cat-file", "-t", tree) != "tree" {
		t.Errorf("stored blob %s, tree %s", blob, tree)
	}
}

func TestHTTPServesGit(t *testing.T) {
	repo, id := sample(t)
	ca := testenv.NewCA(t)
	caFile, certFile, keyFile := pemFiles(t, ca)
	for _, c := range []struct {
		name   string
		config testenv.HTTP
		env    []string
		user   *url.Userinfo
		ok     bool
	}{
		{"public", testenv.HTTP{}, nil, nil, true},
		{"version 0", testenv.HTTP{V0: true, NoFilter: true, NoAnyWant: true}, nil, nil, true},
		{"basic", testenv.HTTP{Username: "alice", Password: "s3cret"}, nil, url.UserPassword("alice", "s3cret"), true},
		{"basic wrong", testenv.HTTP{Username: "alice", Password: "s3cret"}, nil, url.UserPassword("alice", "other"), false},
		{"basic missing", testenv.HTTP{Username: "alice", Password: "s3cret"}, nil, nil, false},
		{"bearer missing", testenv.HTTP{Bearer: "token"}, nil, nil, false},
		{"bearer", testenv.HTTP{Bearer: "token"}, config("http.extraHeader", "Authorization: Bearer token"), nil, true},
		{"tls", testenv.HTTP{CA: ca}, config("http.sslCAInfo", caFile), nil, true},
		{"tls unknown", testenv.HTTP{CA: ca}, nil, nil, false},
		{"mutual", testenv.HTTP{CA: ca, Mutual: true}, config("http.sslCAInfo", caFile, "http.sslCert", certFile, "http.sslKey", keyFile), nil, true},
		{"mutual missing", testenv.HTTP{CA: ca, Mutual: true}, config("http.sslCAInfo", caFile), nil, false},
		{"not found", testenv.HTTP{Defect: testenv.Status(http.StatusNotFound)}, nil, nil, false},
		{"cut", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Cut, After: 100}}, nil, nil, false},
		{"cut before header", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.LsRefs, Do: testenv.Cut, After: -1}}, nil, nil, false},
		{"ended", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.End, After: 100}}, nil, nil, false},
		{"flipped", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Flip, After: 100}}, nil, nil, false},
		{"slow", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Slow, Every: 1}}, nil, nil, true},
		{"once", testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Status: 500, Times: 1}}, nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := testenv.ServeHTTP(t, c.config, repo)
			u, _ := url.Parse(s.Repo())
			u.User = c.user
			dir := filepath.Join(t.TempDir(), "clone")
			out, ok := git(t, c.env, "clone", "-q", "--bare", "--depth=1", u.String(), dir)
			if ok != c.ok {
				t.Fatalf("clone succeeds: %v, want %v\n%s", ok, c.ok, out)
			}
			if got, _ := git(t, nil, "-C", dir, "rev-parse", "HEAD"); ok && got != id {
				t.Errorf("cloned %s, want %s", got, id)
			}
		})
	}
}

func TestHTTPRecords(t *testing.T) {
	repo, _ := sample(t)
	ca := testenv.NewCA(t)
	caFile, certFile, keyFile := pemFiles(t, ca)
	s := testenv.ServeHTTP(t, testenv.HTTP{CA: ca, Mutual: true}, repo)
	git(t, config("http.sslCAInfo", caFile, "http.sslCert", certFile, "http.sslKey", keyFile), "clone", "-q", "--bare", s.Repo(), t.TempDir())
	var phases []testenv.Phase
	for _, r := range s.Requests() {
		phases = append(phases, r.Phase)
		if r.Certificate != "alice" || r.Protocol != "version=2" {
			t.Errorf("%s %s: certificate %q, protocol %q", r.Method, r.Path, r.Certificate, r.Protocol)
		}
	}
	if len(phases) != 3 || phases[0] != testenv.Advertisement || phases[1] != testenv.LsRefs || phases[2] != testenv.Pack {
		t.Errorf("phases %v", phases)
	}
	if in, out := s.Bytes(); in == 0 || out == 0 {
		t.Errorf("%d bytes in, %d out", in, out)
	}
	s.Reset()
	if in, out := s.Bytes(); in != 0 || out != 0 || len(s.Requests()) != 0 {
		t.Error("not reset")
	}
}

func TestRedirectKeepsThePath(t *testing.T) {
	repo, id := sample(t)
	other := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	s := testenv.ServeHTTP(t, testenv.HTTP{Defect: testenv.Redirect(other.URL)}, repo)
	if out, ok := git(t, config("http.followRedirects", "true"), "ls-remote", s.Repo(), "HEAD"); !ok || !strings.Contains(out, id) {
		t.Errorf("ls-remote: %s", out)
	}
}

func TestStallEndsWithTheTest(t *testing.T) {
	repo, _ := sample(t)
	for _, phase := range []testenv.Phase{testenv.Advertisement, testenv.LsRefs, testenv.Pack} {
		for _, after := range []int64{-1, 10} {
			s := testenv.ServeHTTP(t, testenv.HTTP{Defect: &testenv.Defect{Phase: phase, Do: testenv.Stall, After: after}}, repo)
			cmd := exec.CommandContext(t.Context(), "git", "clone", "-q", "--bare", s.Repo(), t.TempDir())
			cmd.Env = testenv.GitEnv(t)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-s.Stalled()
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
}

func TestSSHServesGit(t *testing.T) {
	repo, id := sample(t)
	identity, public := testenv.UserKey(t, "open sesame")
	for _, c := range []struct {
		name   string
		config testenv.SSH
		want   string
		proto  string
	}{
		{"version 2", testenv.SSH{}, "version 2", "version=2"},
		{"version 0", testenv.SSH{NoEnv: true, HostKeys: []string{"rsa"}}, id + " HEAD", ""},
		{"cut", testenv.SSH{Defect: &testenv.Defect{Do: testenv.Cut, After: 6}}, "000ev", "version=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.config.Users = []ssh.PublicKey{public}
			s := testenv.ServeSSH(t, c.config, repo)
			out := advertise(t, s, identity)
			if !strings.Contains(out, c.want) {
				t.Errorf("server says %q", out)
			}
			got := s.Sessions()
			if len(got) != 1 || got[0].User != "git" || got[0].Protocol != c.proto {
				t.Errorf("sessions %v", got)
			}
		})
	}
}

// advertise returns what the server says first.
func advertise(t *testing.T, s *testenv.SSHServer, identity []byte) string {
	key, err := ssh.ParsePrivateKeyWithPassphrase(identity, []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, s.KnownHosts(true), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, err := knownhosts.New(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", s.Addr, &ssh.ClientConfig{User: "git", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: hosts})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	session.Setenv("GIT_PROTOCOL", "version=2")
	in, _ := session.StdinPipe()
	out, _ := session.StdoutPipe()
	if err := session.Start("git-upload-pack '/repo.git'"); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "0000")
	in.Close()
	b, _ := io.ReadAll(out)
	return string(b)
}

func TestSSHRefuses(t *testing.T) {
	repo, _ := sample(t)
	identity, _ := testenv.UserKey(t, "")
	_, other := testenv.UserKey(t, "")
	s := testenv.ServeSSH(t, testenv.SSH{Users: []ssh.PublicKey{other}}, repo)
	key, err := ssh.ParsePrivateKey(identity)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ssh.Dial("tcp", s.Addr, &ssh.ClientConfig{User: "git", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(s.HostKeys[0].PublicKey()), HostKeyAlgorithms: []string{"ssh-ed25519"}})
	if err == nil {
		t.Error("a key that is not authorised gets in")
	}
	if c, err := net.Dial("tcp", s.Addr); err == nil { // a client that says nothing must not hold up the end of the test
		defer c.Close()
	}
}

func pemFiles(t *testing.T, ca *testenv.CA) (caFile, certFile, keyFile string) {
	dir := t.TempDir()
	cert, key := ca.Client("alice")
	for name, data := range map[string][]byte{"ca": ca.PEM(), "cert": cert, "key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
}

// config returns git settings as environment.
func config(kv ...string) []string {
	env := []string{"GIT_CONFIG_COUNT=" + string(rune('0'+len(kv)/2))}
	for i := 0; i < len(kv); i += 2 {
		n := string(rune('0' + i/2))
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+kv[i], "GIT_CONFIG_VALUE_"+n+"="+kv[i+1])
	}
	return env
}
