package testenv

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
)

// A Signer signs commits and tags with a key of its own, by the real gpg or
// ssh-keygen, which git runs.
type Signer struct {
	Entry  string // name of the entry for a Secret: NAME.asc or NAME.sshpub
	ID     string // key ID of the OpenPGP primary key, or SHA256 fingerprint of the SSH key
	t      testing.TB
	home   string // of gpg, or the folder of the SSH key
	config []string
	public func() []byte
	time   time.Time
}

// Public returns the public key as it is now.
func (s *Signer) Public() []byte { s.t.Helper(); return s.public() }

// NewSSH makes an SSH key of a kind and size for ssh-keygen: ed25519, ecdsa-256, rsa-3072.
func NewSSH(t testing.TB, name, kind string) *Signer {
	t.Helper()
	s := &Signer{Entry: name + ".sshpub", t: t, home: t.TempDir(), time: Epoch}
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
		check(t, err)
		return b
	}
	return s
}

// SignSSH signs data in a namespace by ssh-keygen itself.
func (s *Signer) SignSSH(namespace string, data []byte) []byte {
	s.t.Helper()
	return []byte(s.run(data, "ssh-keygen", "-q", "-Y", "sign", "-f", filepath.Join(s.home, "key"), "-n", namespace) + "\n")
}

// NewPGP makes an OpenPGP key of an algorithm, usage and time of expiry for
// gpg --quick-generate-key: ed25519, sign, never. It is made at the time [Epoch]
// and signs an hour later, see [Signer.Clock].
func NewPGP(t testing.TB, name, algorithm, usage, expire string) *Signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // a socket's name is at most 107 bytes long
	check(t, err)
	s := &Signer{Entry: name + ".asc", t: t, home: home}
	t.Cleanup(func() {
		s.run(nil, "gpgconf", "--kill", "all")
		os.RemoveAll(home)
	})
	s.Clock(Epoch)
	s.GPG("", "--quick-generate-key", name+" <"+name+"@example.com>", algorithm, usage, expire)
	list := s.GPG("", "--with-colons", "--list-keys")
	_, fpr, _ := strings.Cut(list, "\nfpr:::::::::")
	fpr, _, _ = strings.Cut(fpr, ":")
	s.ID = fpr[len(fpr)-16:]
	s.config = []string{"-c", "gpg.format=openpgp", "-c", "user.signingkey=" + fpr}
	s.public = func() []byte { return []byte(s.GPG("", "--armor", "--export", fpr) + "\n") }
	s.Clock(Epoch.Add(time.Hour)) // gpg's clock runs on while it works
	return s
}

// Clock sets the time at which the key signs and is changed from now on, and
// options of gpg.
func (s *Signer) Clock(at time.Time, options ...string) {
	s.t.Helper()
	s.time = at
	conf := append([]string{"faked-system-time " + at.UTC().Format("20060102T150405"), "batch", "no-tty", "pinentry-mode loopback", "passphrase \"\""}, options...)
	check(s.t, os.WriteFile(filepath.Join(s.home, "gpg.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600))
}

// GPG runs gpg for the key; input are the answers to its questions.
func (s *Signer) GPG(input string, args ...string) string {
	s.t.Helper()
	if input != "" {
		args = append([]string{"--command-fd", "0", "--yes"}, args...)
	}
	return s.run([]byte(input), "gpg", args...)
}

// Fingerprint returns the fingerprint of the OpenPGP primary key.
func (s *Signer) Fingerprint() string {
	return strings.TrimPrefix(s.config[len(s.config)-1], "user.signingkey=")
}

// RevokePGP revokes the key by the certificate that gpg keeps for it.
func (s *Signer) RevokePGP() {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.home, "openpgp-revocs.d", s.Fingerprint()+".rev"))
	check(s.t, err)
	_, certificate, _ := bytes.Cut(b, []byte("\n:"))
	file := filepath.Join(s.home, "revocation")
	check(s.t, os.WriteFile(file, certificate, 0o600))
	s.GPG("", "--import", file)
}

func (s *Signer) env() []string { return append(GitEnv(s.t), "GNUPGHOME="+s.home) }

func (s *Signer) run(in []byte, name string, args ...string) string {
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

// SignedCommit makes a commit of a tree that s signs, and returns its id.
func (r *Repo) SignedCommit(s *Signer, tree, message string, parents ...string) string {
	r.t.Helper()
	args := append(slices.Clone(s.config), "commit-tree", "-S", tree, "-m", message)
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return r.run(nil, s.dated(), args...)
}

// SignedTag makes a tag that s signs, and returns the id of the tag object.
func (r *Repo) SignedTag(s *Signer, name, id, message string) string {
	r.t.Helper()
	r.run(nil, s.dated(), append(slices.Clone(s.config), "tag", "-s", "-m", message, name, id)...)
	return r.ID("refs/tags/" + name)
}

func (s *Signer) dated() []string {
	date := fmt.Sprintf("%d +0000", s.time.Unix())
	return []string{"GNUPGHOME=" + s.home, "GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
}

// Raw returns the content of an object.
func (r *Repo) Raw(kind, id string) []byte {
	r.t.Helper()
	return []byte(r.run(nil, nil, "cat-file", kind, id) + "\n")
}
