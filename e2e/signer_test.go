package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A signer signs commits and tags with a key of its own, by the real gpg or
// ssh-keygen, which git runs.
type signer struct {
	Entry  string // name of the entry for a Secret: NAME.asc or NAME.sshpub
	ID     string // key ID of the OpenPGP primary key, or SHA256 fingerprint of the SSH key
	t      testing.TB
	home   string // of gpg, or the folder of the SSH key
	config []string
	public func() []byte
	time   time.Time
}

// Public returns the public key as it is now.
func (s *signer) Public() []byte { s.t.Helper(); return s.public() }

// newSSHSigner makes an SSH key of a kind and size for ssh-keygen: ed25519, ecdsa-256, rsa-3072.
func newSSHSigner(t testing.TB, name, kind string) *signer {
	t.Helper()
	s := &signer{Entry: name + ".sshpub", t: t, home: t.TempDir(), time: testenv.Epoch}
	file := filepath.Join(s.home, "key")
	kind, bits, sized := strings.Cut(kind, "-")
	args := []string{"-q", "-t", kind, "-N", "", "-C", name, "-f", file}
	if sized {
		args = append(args, "-b", bits)
	}
	s.run(nil, "ssh-keygen", args...)
	s.config = []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + file}
	s.ID = strings.Fields(s.run(nil, "ssh-keygen", "-l", "-E", "sha256", "-f", file+".pub"))[1]
	s.public = func() []byte {
		b, err := os.ReadFile(file + ".pub")
		s.check(err)
		return b
	}
	return s
}

// SignSSH signs data in a namespace by ssh-keygen itself.
func (s *signer) SignSSH(namespace string, data []byte) []byte {
	s.t.Helper()
	return []byte(s.run(data, "ssh-keygen", "-q", "-Y", "sign", "-f", filepath.Join(s.home, "key"), "-n", namespace) + "\n")
}

// newPGPSigner makes an OpenPGP key of an algorithm, usage and time of expiry for
// gpg --quick-generate-key: ed25519, sign, never. It is made at the time [testenv.Epoch]
// and signs an hour later, see [signer.Clock].
func newPGPSigner(t testing.TB, name, algorithm, usage, expire string) *signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // a socket's name is at most 107 bytes long
	s := &signer{Entry: name + ".asc", t: t, home: home}
	s.check(err)
	t.Cleanup(func() {
		s.run(nil, "gpgconf", "--kill", "all")
		os.RemoveAll(home)
	})
	s.Clock(testenv.Epoch)
	s.GPG("", "--quick-generate-key", name+" <"+name+"@example.com>", algorithm, usage, expire)
	list := s.GPG("", "--with-colons", "--list-keys")
	_, fpr, _ := strings.Cut(list, "\nfpr:::::::::")
	fpr, _, _ = strings.Cut(fpr, ":")
	s.ID = fpr[len(fpr)-16:]
	s.config = []string{"-c", "gpg.format=openpgp", "-c", "user.signingkey=" + fpr}
	s.public = func() []byte { return []byte(s.GPG("", "--armor", "--export", fpr) + "\n") }
	s.Clock(testenv.Epoch.Add(time.Hour)) // gpg's clock runs on while it works
	return s
}

// Clock sets the time at which the key signs and is changed from now on, and
// options of gpg.
func (s *signer) Clock(at time.Time, options ...string) {
	s.t.Helper()
	s.time = at
	conf := append([]string{"faked-system-time " + at.UTC().Format("20060102T150405"), "batch", "no-tty", "pinentry-mode loopback", "passphrase \"\""}, options...)
	s.check(os.WriteFile(filepath.Join(s.home, "gpg.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600))
}

// GPG runs gpg for the key; input are the answers to its questions.
func (s *signer) GPG(input string, args ...string) string {
	s.t.Helper()
	if input != "" {
		args = append([]string{"--command-fd", "0", "--yes"}, args...)
	}
	return s.run([]byte(input), "gpg", args...)
}

// Fingerprint returns the fingerprint of the OpenPGP primary key.
func (s *signer) Fingerprint() string {
	return strings.TrimPrefix(s.config[len(s.config)-1], "user.signingkey=")
}

// RevokePGP revokes the key by the certificate that gpg keeps for it.
func (s *signer) RevokePGP() {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.home, "openpgp-revocs.d", s.Fingerprint()+".rev"))
	s.check(err)
	_, certificate, _ := bytes.Cut(b, []byte("\n:"))
	file := filepath.Join(s.home, "revocation")
	s.check(os.WriteFile(file, certificate, 0o600))
	s.GPG("", "--import", file)
}

func (s *signer) env() []string { return append(testenv.GitEnv(s.t), "GNUPGHOME="+s.home) }

func (s *signer) run(in []byte, name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = s.env()
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// commit makes a signed commit of a tree, and returns its id.
func (s *signer) commit(repo *testenv.Repo, tree, message string) string {
	s.t.Helper()
	return s.git(repo, "commit-tree", "-S", tree, "-m", message)
}

// tag makes a signed tag, and returns the id of the tag object.
func (s *signer) tag(repo *testenv.Repo, name, id, message string) string {
	s.t.Helper()
	s.git(repo, "tag", "-s", "-m", message, name, id)
	return repo.ID("refs/tags/" + name)
}

// git runs git in a repository, at the time at which the key signs.
func (s *signer) git(repo *testenv.Repo, args ...string) string {
	s.t.Helper()
	date := fmt.Sprintf("%d +0000", s.time.Unix())
	cmd := exec.Command("git", append(slices.Clone(s.config), args...)...)
	cmd.Dir, cmd.Env = repo.Dir, append(s.env(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
	out, err := cmd.Output()
	s.check(err)
	return strings.TrimSuffix(string(out), "\n")
}

func (s *signer) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
