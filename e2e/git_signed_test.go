package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

var updateSigned = flag.String("update-signed", "", "write what the unit tests verify, made anew, to this `folder`: ../testdata/signed")

// A signing is a key with a commit and a tag that it signed.
type signing struct {
	*signer
	name    string
	refusal string // regular expression of the refusal; "" for a valid signature
}

var (
	epoch = testenv.Epoch
	later = epoch.AddDate(0, 6, 0)
)

// signings creates the keys. It calls sign with each of them, and only then applies later changes
// such as a revocation. The returned signers have the public keys after these changes.
func signings(t *testing.T, sign func(s signing)) []signing {
	t.Helper()
	var all []signing
	add := func(name, why string, s *signer, after func()) {
		made := signing{s, name, why}
		sign(made)
		if after != nil {
			after()
		}
		all = append(all, made)
	}
	pgp := func(name, algorithm, usage, expire string) *signer {
		return newPGPSigner(t, name, algorithm, usage, expire)
	}
	at := func(s *signer, when time.Time, options ...string) *signer {
		s.Clock(when, options...)
		return s
	}

	add("pgp-ed25519", "", pgp("pgp-ed25519", "ed25519", "sign", "never"), nil)
	add("pgp-rsa3072", "", pgp("pgp-rsa3072", "rsa3072", "sign", "never"), nil)
	add("pgp-nistp256", "", pgp("pgp-nistp256", "nistp256", "sign", "never"), nil)

	s := pgp("pgp-subkey", "ed25519", "cert", "never")
	s.GPG("", "--quick-add-key", s.Fingerprint(), "ed25519", "sign", "never")
	add("pgp-subkey", "", at(s, later), nil)

	s = pgp("pgp-renewed", "ed25519", "sign", "1y")
	add("pgp-renewed", "", at(s, later), func() {
		at(s, later.AddDate(0, 1, 0)).GPG("", "--quick-set-expire", s.Fingerprint(), "0")
	})

	s = pgp("pgp-stranger", "ed25519", "sign", "never")
	add("pgp-stranger", "", s, nil)

	add("pgp-expired", "is expired", at(pgp("pgp-expired", "ed25519", "sign", "1y"), later), nil)

	s = pgp("pgp-expired-subkey", "ed25519", "cert", "never")
	s.GPG("", "--quick-add-key", s.Fingerprint(), "ed25519", "sign", "1y")
	add("pgp-expired-subkey", "the subkey [0-9A-F]{16} is expired", at(s, later), nil)

	add("pgp-expired-signature", "it expired at", at(pgp("pgp-expired-signature", "ed25519", "sign", "never"), later, "default-sig-expire 1d"), nil)
	add("pgp-future", "in the future", at(pgp("pgp-future", "ed25519", "sign", "never"), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)), nil)
	add("pgp-older-than-key", "before its key", at(pgp("pgp-older-than-key", "ed25519", "sign", "never"), epoch.AddDate(-1, 0, 0), "ignore-time-conflict", "ignore-valid-from"), nil)

	s = pgp("pgp-revoked", "ed25519", "sign", "never")
	add("pgp-revoked", "is revoked", s, s.RevokePGP)

	s = pgp("pgp-revoked-subkey", "ed25519", "cert", "never")
	s.GPG("", "--quick-add-key", s.Fingerprint(), "ed25519", "sign", "never")
	add("pgp-revoked-subkey", "the subkey [0-9A-F]{16} is revoked", at(s, later), func() {
		s.GPG("key 1\nrevkey\ny\n3\n\ny\nsave\n", "--edit-key", s.Fingerprint()) // 3: no longer used
	})

	s = pgp("pgp-usage", "ed25519", "sign", "never")
	add("pgp-usage", "wrong usage", s, func() {
		s.GPG("change-usage\nS\nQ\nsave\n", "--edit-key", s.Fingerprint())
	})

	add("pgp-rsa1024", "too weak: RSA of 1024 bits", pgp("pgp-rsa1024", "rsa1024", "sign", "never"), nil)
	add("pgp-dsa", "too weak: DSA", pgp("pgp-dsa", "dsa2048", "sign", "never"), nil)
	add("pgp-sha1", "too weak: its hash function is SHA-1", at(pgp("pgp-sha1", "rsa3072", "sign", "never"), later, "digest-algo SHA1"), nil)

	add("ssh-ed25519", "", newSSHSigner(t, "ssh-ed25519", "ed25519"), nil)
	add("ssh-ecdsa", "", newSSHSigner(t, "ssh-ecdsa", "ecdsa-384"), nil)
	add("ssh-rsa", "", newSSHSigner(t, "ssh-rsa", "rsa-3072"), nil)
	add("ssh-stranger", "", newSSHSigner(t, "ssh-stranger", "ed25519"), nil)
	add("ssh-rsa1024", "too weak: RSA of 1024 bits", newSSHSigner(t, "ssh-rsa1024", "rsa-1024"), nil)
	return all
}

// signedTree is the tree of the commits.
var signedTree = fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}

// TestUpdateSigned creates the signed objects that the unit tests verify.
func TestUpdateSigned(t *testing.T) {
	if *updateSigned == "" {
		t.SkipNow() // this is not a test
	}
	repo := testenv.NewRepo(t)
	tree := repo.Tree(signedTree)
	write := func(folder, name string, data []byte) {
		file := filepath.Join(*updateSigned, folder, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, data, 0o644))
	}
	unsigned := repo.Commit(testenv.Commit{Tree: tree, Message: "unsigned\n", Time: epoch, Parents: []string{}})
	write("commits", "unsigned", repo.Raw("commit", unsigned))
	tag := func(s signing, name, id string) {
		write("tags", name, repo.Raw("tag", s.tag(repo, name, id, "signed by "+s.name)))
	}
	all := signings(t, func(s signing) {
		commit := s.commit(repo, tree, "signed by "+s.name)
		write("commits", s.name, repo.Raw("commit", commit))
		tag(s, s.name, commit)
		if s.name == "pgp-ed25519" || s.name == "ssh-ed25519" {
			tag(s, s.name+"-over-unsigned", unsigned)
			tag(s, s.name+"-over-tag", s.name)
		}
	})
	var ids bytes.Buffer
	for _, s := range all {
		write("keys", s.Entry, s.Public())
		fmt.Fprintln(&ids, s.name, s.ID)
	}
	// A signature that ssh-keygen made for another namespace.
	ssh := newSSHSigner(t, "ssh-namespace", "ed25519")
	payload := repo.Raw("commit", repo.Commit(testenv.Commit{Tree: tree, Message: "signed by ssh-namespace\n", Time: epoch, Parents: []string{}}))
	head, message, _ := bytes.Cut(payload, []byte("\n\n"))
	signature := bytes.ReplaceAll(bytes.TrimSpace(ssh.SignSSH("file", payload)), []byte("\n"), []byte("\n "))
	write("commits", "ssh-namespace", bytes.Join([][]byte{head, []byte("\ngpgsig "), signature, []byte("\n\n"), message}, nil))
	write("keys", ssh.Entry, ssh.Public())
	fmt.Fprintln(&ids, "ssh-namespace", ssh.ID)
	write(".", "ids", ids.Bytes())
}

// TestSigned verifies commits and tags that git signed with fresh keys of gpg and ssh-keygen.
func TestSigned(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	tree := repo.Tree(signedTree)
	all := signings(t, func(s signing) {
		commit := s.commit(repo, tree, "signed by "+s.name)
		repo.Ref("refs/heads/"+s.name, commit)
		s.tag(repo, s.name, commit, "signed by "+s.name)
	})
	url := serveGit(t, repo).plain + "/public/repo.git"
	team := stringMap{}
	for _, s := range all {
		if s.name != "pgp-stranger" && s.name != "ssh-stranger" {
			team[s.Entry] = string(s.Public())
		}
	}
	for _, s := range all {
		for mode, reason := range map[string]string{"HEAD": "InvalidCommitSignature", "Tag": "InvalidTagSignature", "TagAndHEAD": "InvalidTagSignature"} {
			t.Run(s.name+"/"+mode, func(t *testing.T) {
				store := t.TempDir()
				why := s.refusal
				if _, trusted := team[s.Entry]; !trusted {
					why = regexp.QuoteMeta(s.ID) + ".* none of the trusted keys"
				}
				got := fetchSource(t, store, gitSource{url: url, ref: stringMap{"tag": s.name}, trust: team, mode: mode})
				verified := got.status.condition("SourceVerified")
				if why == "" {
					want := "True Succeeded: verified signature of .*" + regexp.QuoteMeta(s.ID)
					if got.code != 0 || !regexp.MustCompile(want).MatchString(verified) || len(archives(t, store)) != 1 {
						t.Errorf("%d, SourceVerified %q, want %q\n%s", got.code, verified, want, got.stderr)
					}
					return
				}
				want := "^False " + reason + ": .*" + why
				if got.code != 3 || !regexp.MustCompile(want).MatchString(verified) || len(archives(t, store)) != 0 {
					t.Errorf("%d, SourceVerified %q, want %q\n%s", got.code, verified, want, got.stderr)
				}
			})
		}
	}
}

// A signer signs commits and tags with its own key. git runs the real gpg or ssh-keygen.
type signer struct {
	Entry  string // name of the key in a Secret: NAME.asc or NAME.sshpub
	ID     string // key ID of the OpenPGP primary key, or SHA256 fingerprint of the SSH key
	t      testing.TB
	home   string // home of gpg, or directory of the SSH key
	config []string
	public func() []byte
	time   time.Time
}

// Public returns the current public key.
func (s *signer) Public() []byte { s.t.Helper(); return s.public() }

// newSSHSigner creates an SSH key with ssh-keygen. The kind is ed25519, or an algorithm with a
// size, as in ecdsa-256 or rsa-3072.
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

// SignSSH signs data in a namespace with ssh-keygen.
func (s *signer) SignSSH(namespace string, data []byte) []byte {
	s.t.Helper()
	return []byte(s.run(data, "ssh-keygen", "-q", "-Y", "sign", "-f", filepath.Join(s.home, "key"), "-n", namespace) + "\n")
}

// newPGPSigner creates an OpenPGP key. The algorithm, usage and expiry are those of gpg
// --quick-generate-key, for example ed25519, sign and never. The key is created at [testenv.Epoch]
// and signs one hour later; see [signer.Clock].
func newPGPSigner(t testing.TB, name, algorithm, usage, expire string) *signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // the path of a socket has at most 107 bytes
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
	s.Clock(testenv.Epoch.Add(time.Hour)) // the clock of gpg advances while it runs
	return s
}

// Clock sets the time for later signatures and changes of the key, and options of gpg.
func (s *signer) Clock(at time.Time, options ...string) {
	s.t.Helper()
	s.time = at
	conf := append([]string{"faked-system-time " + at.UTC().Format("20060102T150405"), "batch", "no-tty", "pinentry-mode loopback", "passphrase \"\""}, options...)
	s.check(os.WriteFile(filepath.Join(s.home, "gpg.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600))
}

// GPG runs gpg for the key. The input answers its prompts.
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

// RevokePGP revokes the key with the revocation certificate that gpg stored.
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

// commit creates a signed commit of a tree and returns its id.
func (s *signer) commit(repo *testenv.Repo, tree, message string) string {
	s.t.Helper()
	return s.git(repo, "commit-tree", "-S", tree, "-m", message)
}

// tag creates a signed tag and returns the id of the tag object.
func (s *signer) tag(repo *testenv.Repo, name, id, message string) string {
	s.t.Helper()
	s.git(repo, "tag", "-s", "-m", message, name, id)
	return repo.ID("refs/tags/" + name)
}

// git runs git in a repository at the signing time.
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
