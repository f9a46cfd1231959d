package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

var updateSigned = flag.String("update-signed", "", "write what the unit tests verify, made anew, to this `folder`: ../testdata/signed")

// A signing is one key with a commit and a tag that it signed.
type signing struct {
	*signer
	name string
	why  string // regular expression of the refusal, "" for a signature that holds
}

var (
	epoch = testenv.Epoch
	later = epoch.AddDate(0, 6, 0)
)

// signings makes the keys, has each sign by what is done before, and then does
// what comes after: the public keys are taken in the end.
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

// signedTree is the tree that the commits have.
var signedTree = fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}

// TestUpdateSigned makes the objects that the unit tests verify.
func TestUpdateSigned(t *testing.T) {
	if *updateSigned == "" {
		t.SkipNow() // nothing is tested
	}
	repo := testenv.NewRepo(t)
	tree := repo.Tree(signedTree)
	write := func(folder, name string, data []byte) {
		file := filepath.Join(*updateSigned, folder, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, data, 0o644))
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
	// A signature by ssh-keygen that was made for another purpose.
	ssh := newSSHSigner(t, "ssh-namespace", "ed25519")
	payload := repo.Raw("commit", repo.Commit(testenv.Commit{Tree: tree, Message: "signed by ssh-namespace\n", Time: epoch, Parents: []string{}}))
	head, message, _ := bytes.Cut(payload, []byte("\n\n"))
	signature := bytes.ReplaceAll(bytes.TrimSpace(ssh.SignSSH("file", payload)), []byte("\n"), []byte("\n "))
	write("commits", "ssh-namespace", bytes.Join([][]byte{head, []byte("\ngpgsig "), signature, []byte("\n\n"), message}, nil))
	write("keys", ssh.Entry, ssh.Public())
	fmt.Fprintln(&ids, "ssh-namespace", ssh.ID)
	write(".", "ids", ids.Bytes())
}

// TestSigned has git sign with fresh keys, by gpg and ssh-keygen, and the
// command verify what it signed.
func TestSigned(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := repo.Tree(signedTree)
	all := signings(t, func(s signing) {
		commit := s.commit(repo, tree, "signed by "+s.name)
		repo.Ref("refs/heads/"+s.name, commit)
		s.tag(repo, s.name, commit, "signed by "+s.name)
	})
	url := serveGit(t, repo).plain + "/public/repo.git"
	team := keys{}
	for _, s := range all {
		if s.name != "pgp-stranger" && s.name != "ssh-stranger" {
			team[s.Entry] = string(s.Public())
		}
	}
	for _, s := range all {
		for mode, reason := range map[string]string{"HEAD": "InvalidCommitSignature", "Tag": "InvalidTagSignature", "TagAndHEAD": "InvalidTagSignature"} {
			t.Run(s.name+"/"+mode, func(t *testing.T) {
				store := t.TempDir()
				why := s.why
				if _, trusted := team[s.Entry]; !trusted {
					why = regexp.QuoteMeta(s.ID) + ".* none of the trusted keys"
				}
				got := fetchGit(t, store, gitSource{url: url, ref: keys{"tag": s.name}, trust: team, mode: mode})
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
