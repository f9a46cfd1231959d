package git_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// signedDir holds commits and tags made by git and signed by gpg and ssh-keygen;
// e2e/git_signed_test.go generates them.
const signedDir = "../testdata/signed"

// A signed is a repository with the objects of signedDir. Each key has a branch and a
// tag of its own, see also newSigned.
type signed struct {
	*testenv.Repo
	t   *testing.T
	ids map[string]string // commits by the name of the key that signed them
}

// fixture returns a file below signedDir.
func (s signed) fixture(name string) []byte {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(signedDir, name))
	must(s.t, err)
	return b
}

// storeObjects stores the objects in a folder below signedDir, each with a ref, and returns their ids by name.
func (s signed) storeObjects(kind, folder, refs string) map[string]string {
	s.t.Helper()
	found, err := os.ReadDir(filepath.Join(signedDir, folder))
	must(s.t, err)
	ids := map[string]string{}
	for _, f := range found {
		id := s.Object(kind, s.fixture(folder+"/"+f.Name()))
		s.Ref(refs+f.Name(), id)
		ids[f.Name()] = id
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
	commits, tags := s.storeObjects("commit", "commits", "refs/heads/"), s.storeObjects("tag", "tags", "refs/tags/")

	// Objects without a signature, and objects whose signature must not be accepted.
	s.Tag("lightweight", commits["pgp-ed25519"])
	s.Tag("v9.0.0", tags["pgp-ed25519"]) // the tag object has another name
	s.Tag("annotated", s.Object("tag", []byte(annotated("annotated", commits["ssh-ed25519"]))))
	s.Tag("plain", s.Object("tag", []byte(annotated("plain", commits["unsigned"]))))
	for _, name := range []string{"pgp-rsa3072", "ssh-rsa"} {
		forge := func(folder string) []byte {
			return bytes.Replace(s.fixture(folder+"/"+name), []byte("signed by"), []byte("signed By"), 1)
		}
		s.Tag("forged-"+name, s.Object("commit", forge("commits")))
		s.Tag(name, s.Object("tag", forge("tags")))
	}
	x509 := "-----BEGIN SIGNED MESSAGE-----\nMIIB\n-----END SIGNED MESSAGE-----\n"
	unsigned := s.fixture("commits/unsigned")
	header, message, _ := bytes.Cut(unsigned, []byte("\n\n"))
	commit := s.Object("commit", []byte(string(header)+"\ngpgsig "+strings.ReplaceAll(x509[:len(x509)-1], "\n", "\n ")+"\n\n"+string(message)))
	s.Tag("x509", s.Object("tag", []byte(annotated("x509", commit)+x509)))
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
	must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return &sshSigner{signer, t}
}

// public returns the public key as an entry of a Secret.
func (s *sshSigner) public() []byte { return ssh.MarshalAuthorizedKey(s.PublicKey()) }

// sign returns an armored signature for Git.
func (s *sshSigner) sign(payload string) string {
	type signed struct{ Namespace, Reserved, Hash, Digest string }
	digest := sha512.Sum512([]byte(payload))
	sig, err := s.Sign(rand.Reader, append([]byte("SSHSIG"), ssh.Marshal(signed{"git", "", "sha512", string(digest[:])})...))
	must(s.t, err)
	type envelope struct {
		Version                         uint32
		Key                             []byte
		Namespace, Reserved, Hash, Blob string
	}
	body := ssh.Marshal(envelope{1, s.PublicKey().Marshal(), "git", "", "sha512", string(ssh.Marshal(sig))})
	return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte("SSHSIG"), body...)}))
}

// signMainAndTag replaces the commit at main by a signed one, and sets the tag to a signed
// tag object that leads to it.
func (s *sshSigner) signMainAndTag(repo *testenv.Repo, tag string) {
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

// annotated returns the content of a tag without a signature.
func annotated(name, commit string) string {
	return "object " + commit + "\ntype commit\ntag " + name + "\ntagger tester <tester@example.com> 1704067200 +0000\n\n" + name + "\n"
}

// The reasons of SourceVerified=False.
const (
	badCommit = "InvalidCommitSignature"
	badTag    = "InvalidTagSignature"
	badObject = "InvalidGitObject"
)

// matrix lists the results of verifying what one tag selects with one set of trusted
// keys. head, tag1 and all are the reasons for the modes HEAD, Tag and TagAndHEAD, ""
// for success.
var matrix = []struct {
	name            string
	tag             string
	keys            string // names, separated by spaces
	head, tag1, all string
	message         string // regular expression that the refusals match
}{
	{"PGP good", "pgp-ed25519", "pgp-ed25519", "", "", "", ""},
	{"PGP good, one of many keys", "pgp-nistp256", "pgp-ed25519 pgp-rsa1024 ssh-rsa pgp-nistp256 pgp-expired", "", "", "", ""},
	{"PGP good, subkey", "pgp-subkey", "pgp-subkey", "", "", "", ""},
	{"PGP good, renewed key", "pgp-renewed", "pgp-renewed", "", "", "", ""},
	{"PGP expired key", "pgp-expired", "pgp-expired", badCommit, badTag, badTag, `OpenPGP key $ID: the key $ID is expired`},
	{"PGP expired subkey", "pgp-expired-subkey", "pgp-expired-subkey", badCommit, badTag, badTag, `the subkey [0-9A-F]{16} is expired`},
	{"PGP expired signature", "pgp-expired-signature", "pgp-expired-signature", badCommit, badTag, badTag, `OpenPGP key $ID: it expired at 2024-07-02 00:00:00 UTC`},
	{"PGP signature of the future", "pgp-future", "pgp-future", badCommit, badTag, badTag, `in the future, at 2099-01-01 00:00:00 UTC`},
	{"PGP signature older than its key", "pgp-older-than-key", "pgp-older-than-key", badCommit, badTag, badTag, `made at 2023-01-01 00:00:00 UTC, before its key`},
	{"PGP revoked key", "pgp-revoked", "pgp-revoked", badCommit, badTag, badTag, `OpenPGP key $ID: the key $ID is revoked`},
	{"PGP revoked subkey", "pgp-revoked-subkey", "pgp-revoked-subkey", badCommit, badTag, badTag, `the subkey [0-9A-F]{16} is revoked`},
	{"PGP wrong usage", "pgp-usage", "pgp-usage", badCommit, badTag, badTag, `OpenPGP key $ID: the key is not meant for signing data \(wrong usage\)`},
	{"PGP weak key, RSA", "pgp-rsa1024", "pgp-rsa1024", badCommit, badTag, badTag, `too weak: RSA of 1024 bits, less than 2048`},
	{"PGP weak key, DSA", "pgp-dsa", "pgp-dsa", badCommit, badTag, badTag, `too weak: DSA`},
	{"PGP weak hash", "pgp-sha1", "pgp-sha1", badCommit, badTag, badTag, `too weak: its hash function is SHA-1`},
	{"PGP wrong key", "pgp-stranger", "pgp-ed25519 ssh-ed25519", badCommit, badTag, badTag, `signed by the OpenPGP key $ID, which is none of the trusted keys`},
	{"PGP only SSH keys trusted", "pgp-ed25519", "ssh-ed25519", badCommit, badTag, badTag, `signed by the OpenPGP key $ID, which is none`},
	{"PGP tampered commit", "forged-pgp-rsa3072", "pgp-rsa3072", badCommit, badObject, badObject, `[0-9A-F]{16}: it does not belong to this content|not annotated`},
	{"PGP tampered tag", "pgp-rsa3072", "pgp-rsa3072", "", badTag, badTag, `$ID: it does not belong to this content: the content or the signature was changed`},
	{"PGP tag over an unsigned commit", "pgp-ed25519-over-unsigned", "pgp-ed25519", badCommit, "", badCommit, `commit [0-9a-f]{40}: it carries no signature`},
	{"PGP tag over a tag", "pgp-ed25519-over-tag", "pgp-ed25519", "", "", "", ""},
	{"PGP tag renamed", "v9.0.0", "pgp-ed25519", "", badObject, badObject, `tag "v9.0.0" holds a tag object that was made under the name "pgp-ed25519"`},
	{"PGP tag moved", "moving-pgp-ed25519", "pgp-ed25519", "", badObject, badObject, `has moved: it leads to [0-9a-f]{40} now, not to the commit [0-9a-f]{40}`},

	{"SSH good", "ssh-ed25519", "ssh-ed25519", "", "", "", ""},
	{"SSH good, ECDSA among others", "ssh-ecdsa", "ssh-ed25519 pgp-ed25519 ssh-ecdsa ssh-rsa", "", "", "", ""},
	{"SSH weak key, RSA", "ssh-rsa1024", "ssh-rsa1024", badCommit, badTag, badTag, `SSH key $ID: the key is too weak: RSA of 1024 bits`},
	{"SSH wrong key", "ssh-stranger", "pgp-ed25519 ssh-ed25519", badCommit, badTag, badTag, `SSH key $ID: it is none of the trusted keys`},
	{"SSH only PGP keys trusted", "ssh-ed25519", "pgp-ed25519", badCommit, badTag, badTag, `SSH key $ID: it is none of the trusted keys`},
	{"SSH tampered commit", "forged-ssh-rsa", "ssh-rsa", badCommit, badObject, badObject, `it does not belong to this content|not annotated`},
	{"SSH tampered tag", "ssh-rsa", "ssh-rsa", "", badTag, badTag, `SSH key $ID: it does not belong to this content`},
	{"SSH tag over an unsigned commit", "ssh-ed25519-over-unsigned", "ssh-ed25519", badCommit, "", badCommit, `it carries no signature`},
	{"SSH tag over a tag", "ssh-ed25519-over-tag", "ssh-ed25519", "", "", "", ""},
	{"SSH tag moved", "moving-ssh-ed25519", "ssh-ed25519", "", badObject, badObject, `has moved`},

	{"unsigned", "plain", "pgp-ed25519 ssh-ed25519", badCommit, badObject, badObject, `(commit [0-9a-f]{40}|tag "plain"): it carries no signature`},
	{"unsigned tag", "annotated", "ssh-ed25519", "", badObject, badObject, `tag "annotated": it carries no signature`},
	{"lightweight tag", "lightweight", "pgp-ed25519", "", badObject, badObject, `tag "lightweight" is not annotated, so it carries no signature`},
	{"X.509", "x509", "pgp-ed25519 ssh-ed25519", badCommit, badTag, badTag, `X.509 signatures \(S/MIME\) are not supported`},
}

func TestVerificationMatrix(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	for _, name := range []string{"pgp-ed25519", "ssh-ed25519"} {
		repo.Ref("refs/tags/moving-"+name, repo.ID("refs/tags/"+name))
	}
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo.Repo)
	ways := map[string]source.Env{"http": {}, "local": {Local: map[string]string{server.Repo(): repo.Dir}}}
	for _, row := range matrix {
		for mode, reason := range map[string]string{source.VerifyHEAD: row.head, source.VerifyTag: row.tag1, source.VerifyTagAndHEAD: row.all} {
			for protocol, env := range ways {
				refused := row.head == badCommit && row.all == badTag // the key is refused, for the commit as for the tag
				if mode != source.VerifyTagAndHEAD && refused && !strings.HasSuffix(row.name, "wrong key") {
					continue // whether a key is accepted does not depend on the object
				}
				if protocol == "http" && (mode != source.VerifyTagAndHEAD || !slices.Contains([]string{"PGP good", "PGP tag over a tag", "PGP tag renamed", "PGP tag moved", "lightweight tag"}, row.name)) {
					continue // whether a signature is accepted does not depend on the transport
				}
				t.Run(row.name+"/"+mode+"/"+protocol, func(t *testing.T) {
					env.Secrets = sourcetest.Secrets{"default/keys": repo.secret(strings.Fields(row.keys)...)}
					g := object(server.Repo(), source.GitRepositoryRef{Tag: row.tag})
					g.Spec.Verify = &source.GitRepositoryVerification{Mode: mode, SecretRef: source.LocalReference{Name: "keys"}}
					var from source.Origin = git.New(g, env)
					if name, moves := strings.CutPrefix(row.tag, "moving-"); moves {
						g.Spec.Ref.Tag = row.tag
						ref := "refs/tags/" + row.tag
						tagID := repo.ID("refs/tags/" + name)
						repo.Ref(ref, tagID)
						from = movingOrigin{from, func() { repo.Ref(ref, repo.ID("refs/tags/pgp-subkey")) }}
					}
					message := strings.ReplaceAll(row.message, "$ID", regexp.QuoteMeta(repo.ids[row.tag]))
					checkVerification(t, g, from, mode, reason, message)
				})
			}
		}
	}
}

// checkVerification reconciles g and checks the result of its verification: success if reason
// is "".
func checkVerification(t *testing.T, g *source.GitRepository, from source.Origin, mode, reason, message string) {
	t.Helper()
	store := openStore(t)
	result, err := (&source.Reconciler{Store: store}).Reconcile(t.Context(), g, from)
	verified := g.Common().Condition(source.SourceVerifiedCondition)
	if reason == "" {
		if err != nil || result.Outcome != source.Stored || verified.Status != "True" || verified.Reason != "Succeeded" {
			t.Fatalf("outcome %q, error %v, SourceVerified %+v", result.Outcome, err, verified)
		}
		if g.Status.SourceVerificationMode != mode || result.Verification.Mode != mode {
			t.Errorf("mode %q in the status, %+v", g.Status.SourceVerificationMode, result.Verification)
		}
		return
	}
	if result.Outcome != source.Failed || !errors.Is(err, source.ErrVerification) || verified.Status != "False" || verified.Reason != reason {
		t.Fatalf("outcome %q, error %v, SourceVerified %+v, want reason %s", result.Outcome, err, verified, reason)
	}
	if !regexp.MustCompile(message).MatchString(verified.Message) {
		t.Errorf("message %q, want %q", verified.Message, message)
	}
	if ready := g.Common().Condition(source.ReadyCondition); ready.Status != "False" || ready.Reason != reason {
		t.Errorf("Ready %+v", ready)
	}
	if g.Artifact() != nil || g.Status.SourceVerificationMode != "" {
		t.Errorf("stored %+v, mode %q", g.Artifact(), g.Status.SourceVerificationMode)
	}
}

func openStore(t *testing.T) *artifact.Store {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// signedObject returns an object that selects the tag, verified by the Secret keys in a mode.
func signedObject(url, tag, mode string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Tag: tag})
	g.Spec.Verify = &source.GitRepositoryVerification{Mode: mode, SecretRef: source.LocalReference{Name: "keys"}}
	return g
}

// TestSignedSelections verifies the tag that each field of the spec selects, over
// every sort of server.
func TestSignedSelections(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		repo, signer := testenv.NewRepoIn(t, format), newSSHSigner(t)
		repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
		repo.Tag("v1.2.9", repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")}))
		signer.signMainAndTag(repo, "v1.3.0")
		fingerprint := ssh.FingerprintSHA256(signer.PublicKey())
		env := source.Env{Secrets: sourcetest.Secrets{"default/keys": {Data: map[string][]byte{"me.sshpub": signer.public()}}}}
		for server, config := range map[string]testenv.GitConfig{
			"all": {}, "no filter": {NoFilter: true}, "version 0": {V0: true}, "version 0, tips only": {V0: true, NoAnyWant: true},
		} {
			if format == "sha256" && server != "all" {
				continue
			}
			served := testenv.ServeGit(t, config, repo)
			for name, ref := range map[string]source.GitRepositoryRef{
				"tag": {Tag: "v1.3.0"}, "semver": {SemVer: "1.x"}, "name": {Name: "refs/tags/v1.3.0"}, "peeled name": {Name: "refs/tags/v1.3.0^{}"},
			} {
				if server != "all" && name != "tag" && name != "peeled name" {
					continue // the selected tag does not depend on the server
				}
				g := signedObject(served.Repo(), "", source.VerifyTagAndHEAD)
				g.Spec.Ref = &ref
				served.Reset()
				c, err := resolveAndOpen(t.Context(), git.New(g, env))
				if err != nil {
					t.Errorf("%s, %s, %s: %v", format, server, name, err)
					continue
				}
				v, err := c.Verify(t.Context())
				want := source.Verification{Mode: source.VerifyTagAndHEAD, Signer: fingerprint,
					Message: "verified signature of tag 'v1.3.0' with key '" + fingerprint + "' and of commit '" + repo.ID("main") + "' with key '" + fingerprint + "'"}
				if err != nil || v != want {
					t.Errorf("%s, %s, %s: %+v, %v", format, server, name, v, err)
				}
				c.Close()
				testenv.Equal(t, served.Count(testenv.Pack), 1, "%s, %s, %s: packs: the tag comes with its commit", format, server, name)
			}
		}
	}
}

func resolveAndOpen(ctx context.Context, o *git.Origin) (source.Content, error) {
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return nil, err
	}
	return o.Open(ctx, rev)
}

// TestVerificationCannotWork uses specs and Secrets with which nothing can be
// verified.
func TestVerificationCannotWork(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	tag := source.GitRepositoryRef{Tag: "pgp-ed25519"}
	good := sourcetest.Secrets{"default/keys": repo.secret("pgp-ed25519")}
	data := func(entry, text string) sourcetest.Secrets {
		return sourcetest.Secrets{"default/keys": {Data: map[string][]byte{entry: []byte(text)}}}
	}
	for name, c := range map[string]struct {
		ref             source.GitRepositoryRef
		mode            string
		secrets         source.Secrets
		outcome         source.Outcome
		reason, message string
	}{
		"Tag, branch":          {source.GitRepositoryRef{Branch: "pgp-ed25519"}, "Tag", good, source.Stalled, "InvalidVerificationMode", "mode Tag needs a tag, but spec.ref.branch selects none"},
		"Tag, default branch":  {source.GitRepositoryRef{}, "Tag", good, source.Stalled, "InvalidVerificationMode", "spec.ref.branch selects none"},
		"TagAndHEAD, commit":   {source.GitRepositoryRef{Commit: strings.Repeat("a", 40), Tag: "pgp-ed25519"}, "TagAndHEAD", good, source.Stalled, "InvalidVerificationMode", "spec.ref.commit selects none"},
		"TagAndHEAD, name":     {source.GitRepositoryRef{Name: "refs/heads/pgp-ed25519"}, "TagAndHEAD", good, source.Stalled, "InvalidVerificationMode", "spec.ref.name selects none"},
		"unknown mode":         {tag, "tag", good, source.Stalled, "InvalidVerificationMode", `spec.verify.mode "tag": want HEAD, Tag or TagAndHEAD`},
		"no such Secret":       {tag, "HEAD", sourcetest.Secrets{}, source.Failed, "VerificationError", "spec.verify.secretRef: secret default/keys"},
		"no Secrets":           {tag, "HEAD", nil, source.Failed, "VerificationError", "secret default/keys: no Secrets were given"},
		"empty Secret":         {tag, "HEAD", sourcetest.Secrets{"default/keys": {}}, source.Failed, "VerificationError", "secret default/keys: no entry"},
		"entry that is no key": {tag, "HEAD", data("password", password), source.Failed, "VerificationError", `secret default/keys: entry "password" is not an OpenPGP public key`},
	} {
		g := signedObject("https://example.com/x", "", c.mode)
		g.Spec.Ref = &c.ref
		env := source.Env{Local: map[string]string{"https://example.com/x": repo.Dir}, Secrets: c.secrets}
		result, err := (&source.Reconciler{Store: openStore(t)}).Reconcile(t.Context(), g, git.New(g, env))
		verified := g.Common().Condition(source.SourceVerifiedCondition)
		if result.Outcome != c.outcome || verified.Status != "False" || verified.Reason != c.reason || !strings.Contains(verified.Message, c.message) {
			t.Errorf("%s: outcome %q, SourceVerified %+v", name, result.Outcome, verified)
		}
		if ready := g.Common().Condition(source.ReadyCondition); ready.Status != "False" || ready.Reason != c.reason || g.Artifact() != nil {
			t.Errorf("%s: Ready %+v, artifact %+v", name, ready, g.Artifact())
		}
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestHostileTags uses malformed tags, tags with false claims, and a repository that
// lies about the commit of a tag.
func TestHostileTags(t *testing.T) {
	t.Parallel()
	repo, signer := testenv.NewRepo(t), newSSHSigner(t)
	commit := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	sign := func(payload string) string { return repo.Object("tag", []byte(payload+signer.sign(payload))) }
	tag := func(name, kind, id string) string {
		return strings.Replace(annotated(name, id), "type commit", "type "+kind, 1)
	}
	inner := sign(tag("inner", "commit", commit))
	long := inner
	for range 20 {
		long = sign(tag("long", "tag", long))
	}
	tree := repo.ID(commit + "^{tree}")
	other := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")})
	lie := sign(tag("lie", "commit", commit))
	repo.Git("pack-refs", "--all")
	packed, err := os.OpenFile(filepath.Join(repo.Dir, "packed-refs"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = packed.WriteString(lie + " refs/tags/lie\n^" + other + "\n")
		err = errors.Join(err, packed.Close())
	}
	must(t, err)
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	for name, c := range map[string]struct{ id, want string }{
		"tree":         {sign(tag("tree", "tree", tree)), "commit|tree"},
		"wrong-type":   {sign(tag("wrong-type", "tag", commit)), "commit|corrupt"},
		"long":         {long, "more than (10|16) tags"},
		"two-headers":  {repo.Object("tag", []byte("object "+commit+"\ntype commit\ntag two-headers\ntag two\n\nm\n")), "two-headers|carries no signature"},
		"long-name":    {sign(tag(strings.Repeat("n", 100_000), "commit", commit)), `made under the name "n{80}"$`},
		"signed-twice": {repo.Object("tag", []byte(tag("signed-twice", "commit", commit)+signer.sign("a")+signer.sign(tag("signed-twice", "commit", commit)))), "does not belong to this content"},
		"lie":          {"", "whatever the repository says of it|does not hold|not found|absent|not in"},
	} {
		if c.id != "" {
			repo.Ref("refs/tags/"+name, c.id)
		}
		g := signedObject("https://example.com/x", name, "Tag")
		for _, url := range []string{"https://example.com/x", server.Repo()} {
			g.Spec.URL = url
			env := source.Env{
				Local:   map[string]string{"https://example.com/x": repo.Dir},
				Secrets: sourcetest.Secrets{"default/keys": {Data: map[string][]byte{"a.sshpub": signer.public()}}},
			}
			result, err := (&source.Reconciler{Store: openStore(t)}).Reconcile(t.Context(), g, git.New(g, env))
			if result.Outcome != source.Failed || err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) || g.Artifact() != nil {
				t.Errorf("%s at %s: outcome %q, error %v, want %q", name, url, result.Outcome, err, c.want)
			}
		}
	}
}

// A movingOrigin has an upstream that changes between Resolve and Open.
type movingOrigin struct {
	source.Origin
	move func()
}

func (m movingOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	m.move()
	return m.Origin.Open(ctx, rev)
}

// TestTrustChanges changes the trusted keys after an artifact was published.
func TestTrustChanges(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo.Repo)
	secrets := sourcetest.Secrets{}
	ledger := &source.Ledger{Dir: t.TempDir()}
	r := &source.Reconciler{Store: openStore(t), Load: ledger.Load, Save: ledger.Save}
	var published artifact.Artifact
	for _, step := range []struct {
		name, keys, mode, tag string
		outcome               source.Outcome
		status, why           string
	}{
		{"verified", "pgp-ed25519", "HEAD", "pgp-ed25519", source.Stored, "True", "there was no artifact"},
		{"the same keys", "pgp-ed25519", "HEAD", "pgp-ed25519", source.Unchanged, "True", ""},
		{"a key more", "pgp-ed25519 ssh-rsa", "HEAD", "pgp-ed25519", source.Stored, "True", "the trusted keys changed"},
		{"unchanged again", "pgp-ed25519 ssh-rsa", "HEAD", "pgp-ed25519", source.Unchanged, "True", ""},
		{"the key is gone", "ssh-rsa", "HEAD", "pgp-ed25519", source.Failed, "False", ""},
		{"it is still gone", "ssh-rsa", "HEAD", "pgp-ed25519", source.Failed, "False", ""},
		{"the Secret is gone", "", "HEAD", "pgp-ed25519", source.Failed, "False", ""},
		{"the key is back", "pgp-ed25519", "HEAD", "pgp-ed25519", source.Stored, "True", ""},
		{"another mode", "pgp-ed25519", "TagAndHEAD", "pgp-ed25519", source.Stored, "True", "spec.verify.mode"},
		{"a weaker mode", "pgp-ed25519", "Tag", "pgp-ed25519", source.Stored, "True", ""},
		{"unchanged in that mode", "pgp-ed25519", "Tag", "pgp-ed25519", source.Unchanged, "True", ""},
		{"another revision, unsigned", "pgp-ed25519", "Tag", "annotated", source.Failed, "False", ""},
	} {
		delete(secrets, "default/keys")
		if step.keys != "" {
			secrets["default/keys"] = repo.secret(strings.Fields(step.keys)...)
		}
		g := signedObject(server.Repo(), step.tag, step.mode)
		g.Metadata.Generation = 0
		result, err := r.Reconcile(t.Context(), g, git.New(g, source.Env{Secrets: secrets}))
		verified, ready := g.Common().Condition(source.SourceVerifiedCondition), g.Common().Condition(source.ReadyCondition)
		if result.Outcome != step.outcome || verified.Status != step.status || ready.Status != step.status {
			t.Fatalf("%s: outcome %q (%s), error %v, SourceVerified %+v, Ready %+v", step.name, result.Outcome, result.Why, err, verified, ready)
		}
		if step.why != "" && !strings.Contains(result.Why, step.why) {
			t.Errorf("%s: because %q, want %q", step.name, result.Why, step.why)
		}
		a := g.Artifact()
		if published.Digest == "" && a != nil {
			published = *a
		}
		if a == nil || a.Digest != published.Digest || a.Revision != published.Revision {
			t.Errorf("%s: artifact %+v, want %+v still", step.name, a, published)
		}
	}
}

// TestTrustChangesMeanwhile adds a trusted key between Resolve and Verify. The
// fingerprint that Resolve recorded lacks that key, so verification fails.
func TestTrustChangesMeanwhile(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	secrets := sourcetest.Secrets{"default/keys": repo.secret("ssh-rsa")}
	g := signedObject("https://example.com/x", "pgp-ed25519", source.VerifyHEAD)
	var from source.Origin = git.New(g, source.Env{Local: map[string]string{g.Spec.URL: repo.Dir}, Secrets: secrets})
	r := &source.Reconciler{Store: openStore(t)}
	trust := func() { secrets["default/keys"] = repo.secret("ssh-rsa", "pgp-ed25519") }
	result, err := r.Reconcile(t.Context(), g, movingOrigin{from, trust})
	if result.Outcome != source.Failed || err == nil || !strings.Contains(err.Error(), "the keys changed") || g.Artifact() != nil {
		t.Errorf("outcome %q, error %v, artifact %v", result.Outcome, err, g.Artifact())
	}
	if result, err := r.Reconcile(t.Context(), g, from); result.Outcome != source.Stored {
		t.Errorf("the next time: outcome %q, error %v", result.Outcome, err)
	}
}

// TestVerificationFromCache verifies a tag whose commit an earlier fetch, without the
// tag, left in the cache.
func TestVerificationFromCache(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	cache := newCache(t, t.TempDir())
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo.Repo)
	for _, c := range []struct{ tag, keys, mode, reason string }{
		{"lightweight", "pgp-ed25519", "HEAD", ""},
		{"pgp-ed25519", "pgp-ed25519", "Tag", ""},
		{"pgp-ed25519-over-tag", "pgp-ed25519", "TagAndHEAD", ""},
		{"pgp-ed25519", "pgp-stranger", "HEAD", badCommit},
		{"pgp-ed25519", "pgp-stranger", "Tag", badTag},
		{"v9.0.0", "pgp-ed25519", "Tag", badObject},
		{"pgp-ed25519", "pgp-ed25519", "Tag", ""},
		{"lightweight", "pgp-ed25519", "Tag", badObject},
	} {
		g := signedObject(server.Repo(), c.tag, c.mode)
		env := source.Env{Cache: cache, Secrets: sourcetest.Secrets{"default/keys": repo.secret(c.keys)}}
		checkVerification(t, g, git.New(g, env), c.mode, c.reason, "")
	}
}
