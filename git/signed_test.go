package git_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// signedDir holds commits and tags that git made, signed by gpg and ssh-keygen;
// e2e/signed_test.go makes them.
const signedDir = "../testdata/signed"

// A signed is a repository of them. Each key has a branch and a tag of its own,
// see also newSigned.
type signed struct {
	*testenv.Repo
	t   *testing.T
	ids map[string]string // signers by the name of their key
}

// fixture returns a file below signedDir.
func (s signed) fixture(name string) []byte {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(signedDir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// objects stores the objects in a folder below signedDir and returns their ids by name.
func (s signed) objects(kind, folder string) map[string]string {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(signedDir, folder, "*"))
	for i := range paths {
		if err == nil {
			paths[i], err = filepath.Abs(paths[i])
		}
	}
	if err != nil || len(paths) == 0 {
		s.t.Fatalf("no %s: %v", folder, err)
	}
	ids := map[string]string{}
	for i, id := range strings.Fields(s.GitInput(strings.Join(paths, "\n")+"\n", "hash-object", "-t", kind, "-w", "--no-filters", "--stdin-paths")) {
		ids[filepath.Base(paths[i])] = id
	}
	return ids
}

// secret returns a Secret with the keys of the given names.
func (s signed) secret(names ...string) source.Secret {
	s.t.Helper()
	data := map[string][]byte{}
	for _, name := range names {
		entry := name + map[string]string{"pgp": ".asc", "ssh": ".sshpub"}[name[:3]]
		data[entry] = s.fixture("keys/" + entry)
	}
	return source.Secret{Data: data}
}

func newSigned(t *testing.T) signed {
	t.Helper()
	s := signed{testenv.NewRepo(t), t, map[string]string{}}
	for line := range strings.Lines(string(s.fixture("ids"))) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.ids[name] = id
	}
	s.Tree(files("app.yaml", "replicas: 3\n"))
	commits, tags, refs := s.objects("commit", "commits"), s.objects("tag", "tags"), map[string]string{}
	ref := func(name, id string) { refs[name] = id }
	for name, id := range commits {
		ref("heads/"+name, id)
	}
	for name, id := range tags {
		ref("tags/"+name, id)
	}

	// What nobody signed, or not so.
	ref("tags/lightweight", commits["pgp-ed25519"])
	ref("tags/v9.0.0", tags["pgp-ed25519"]) // made under another name
	ref("tags/annotated", s.Object("tag", []byte(annotated("annotated", commits["ssh-ed25519"]))))
	ref("tags/plain", s.Object("tag", []byte(annotated("plain", commits["unsigned"]))))
	for _, name := range []string{"pgp-rsa3072", "ssh-rsa"} {
		forge := func(folder string) []byte {
			return bytes.Replace(s.fixture(folder+"/"+name), []byte("signed by"), []byte("signed By"), 1)
		}
		ref("tags/forged-"+name, s.Object("commit", forge("commits")))
		ref("tags/"+name, s.Object("tag", forge("tags")))
	}
	x509 := "-----BEGIN SIGNED MESSAGE-----\nMIIB\n-----END SIGNED MESSAGE-----\n"
	unsigned := s.fixture("commits/unsigned")
	header, message, _ := bytes.Cut(unsigned, []byte("\n\n"))
	commit := s.Object("commit", []byte(string(header)+"\ngpgsig "+strings.ReplaceAll(x509[:len(x509)-1], "\n", "\n ")+"\n\n"+string(message)))
	ref("tags/x509", s.Object("tag", []byte(annotated("x509", commit)+x509)))
	var updates strings.Builder
	for name, id := range refs {
		updates.WriteString("create refs/" + name + " " + id + "\n")
	}
	s.GitInput(updates.String(), "update-ref", "--stdin")
	return s
}

// An sshSigner signs without ssh-keygen, for tests that need new objects.
type sshSigner struct {
	ssh.Signer
	t testing.TB
}

func newSSHSigner(t testing.TB) *sshSigner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &sshSigner{signer, t}
}

// public returns the entry of a Secret.
func (s *sshSigner) public() []byte { return ssh.MarshalAuthorizedKey(s.PublicKey()) }

// sign returns an armored signature for Git.
func (s *sshSigner) sign(payload string) string {
	type signed struct{ Namespace, Reserved, Hash, Digest string }
	digest := sha512.Sum512([]byte(payload))
	sig, err := s.Sign(rand.Reader, append([]byte("SSHSIG"), ssh.Marshal(signed{"git", "", "sha512", string(digest[:])})...))
	if err != nil {
		s.t.Fatal(err)
	}
	type envelope struct {
		Version                         uint32
		Key                             []byte
		Namespace, Reserved, Hash, Blob string
	}
	body := ssh.Marshal(envelope{1, s.PublicKey().Marshal(), "git", "", "sha512", string(ssh.Marshal(sig))})
	return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte("SSHSIG"), body...)}))
}

// resign replaces the commit at main by a signed one, and the tag by a signed one that leads to it.
func (s *sshSigner) resign(repo *testenv.Repo, tag string) {
	raw := repo.Raw("commit", "main")
	header, message, _ := strings.Cut(string(raw), "\n\n")
	key := "gpgsig"
	if len(repo.ID("main")) == 64 {
		key = "gpgsig-sha256"
	}
	signature := strings.ReplaceAll(strings.TrimSpace(s.sign(string(raw))), "\n", "\n ")
	id := repo.Object("commit", []byte(header+"\n"+key+" "+signature+"\n\n"+message))
	repo.Ref("refs/heads/main", id)
	payload := annotated(tag, id)
	repo.Tag(tag, repo.Object("tag", []byte(payload+s.sign(payload))))
}

// annotated returns the content of a tag that nobody signed.
func annotated(name, commit string) string {
	return "object " + commit + "\ntype commit\ntag " + name + "\ntagger tester <tester@example.com> 1704067200 +0000\n\n" + name + "\n"
}
