package git_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// The reasons of SourceVerified=False.
const (
	badCommit = "InvalidCommitSignature"
	badTag    = "InvalidTagSignature"
	badObject = "InvalidGitObject"
)

// matrix is the verification of what one tag selects with one set of trusted
// keys. The reasons are those that the modes HEAD, Tag and TagAndHEAD end
// with, "" for success.
var matrix = []struct {
	name            string
	tag             string
	keys            string // names, by spaces
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
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo.Repo)
	ways := map[string]source.Env{"http": {}, "local": {Local: map[string]string{server.Repo(): repo.Dir}}}
	for _, row := range matrix {
		for mode, reason := range map[string]string{source.VerifyHEAD: row.head, source.VerifyTag: row.tag1, source.VerifyTagAndHEAD: row.all} {
			for way, env := range ways {
				if way == "http" && mode != source.VerifyTagAndHEAD {
					continue
				}
				t.Run(row.name+"/"+mode+"/"+way, func(t *testing.T) {
					env.Secrets = sourcetest.Secrets{"default/keys": repo.secret(strings.Fields(row.keys)...)}
					g := object(server.Repo(), source.GitRepositoryRef{Tag: row.tag})
					g.Spec.Verify = &source.GitRepositoryVerification{Mode: mode, SecretRef: source.LocalReference{Name: "keys"}}
					var from source.Origin = git.New(g, env)
					if name, moves := strings.CutPrefix(row.tag, "moving-"); moves {
						g.Spec.Ref.Tag = row.tag
						ref := "refs/tags/" + row.tag
						home := repo.ID("refs/tags/" + name)
						repo.Ref(ref, home)
						from = mover{from, func() { repo.Ref(ref, repo.ID("refs/tags/pgp-subkey")) }}
					}
					message := strings.ReplaceAll(row.message, "$ID", regexp.QuoteMeta(repo.ids[row.tag]))
					verdict(t, g, from, mode, reason, message)
				})
			}
		}
	}
}

// verdict reconciles g and checks how its verification ended: well when reason is "".
func verdict(t *testing.T, g *source.GitRepository, from source.Origin, mode, reason, message string) {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// signedObject returns an object that selects the tag, verified by the Secret keys in a mode.
func signedObject(url, tag, mode string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Tag: tag})
	g.Spec.Verify = &source.GitRepositoryVerification{Mode: mode, SecretRef: source.LocalReference{Name: "keys"}}
	return g
}

// TestSignedSelections verifies what every field that selects a tag finds, through every sort of server.
func TestSignedSelections(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		repo, signer := testenv.NewRepoIn(t, format), newSSHSigner(t)
		repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
		repo.Tag("v1.2.9", repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")}))
		signer.resign(repo, "v1.3.0")
		fingerprint := ssh.FingerprintSHA256(signer.PublicKey())
		env := source.Env{Secrets: sourcetest.Secrets{"default/keys": {Data: map[string][]byte{"me.sshpub": signer.public()}}}}
		for server, config := range map[string]testenv.HTTP{
			"all": {}, "no filter": {NoFilter: true}, "version 0": {V0: true}, "version 0, tips only": {V0: true, NoAnyWant: true},
		} {
			served := testenv.ServeHTTP(t, config, repo)
			for name, ref := range map[string]source.GitRepositoryRef{
				"tag": {Tag: "v1.3.0"}, "semver": {SemVer: "1.x"}, "name": {Name: "refs/tags/v1.3.0"}, "peeled name": {Name: "refs/tags/v1.3.0^{}"},
			} {
				g := signedObject(served.Repo(), "", source.VerifyTagAndHEAD)
				g.Spec.Ref = &ref
				served.Reset()
				c, err := open(t.Context(), git.New(g, env))
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
				packs := 0
				for _, q := range served.Requests() {
					if q.Phase == testenv.Pack {
						packs++
					}
				}
				if packs != 1 {
					t.Errorf("%s, %s, %s: %d packs were asked for: the tag comes with its commit", format, server, name, packs)
				}
			}
		}
	}
}

func open(ctx context.Context, o *git.Origin) (source.Content, error) {
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return nil, err
	}
	return o.Open(ctx, rev)
}

// TestVerificationMessages checks what success says, whose signature it was, and that HEAD is the default.
func TestVerificationMessages(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	local := map[string]string{"https://example.com/x": repo.Dir}
	commit := func(name string) string { return repo.ID("refs/heads/" + name) }
	key := func(name string) string { return "' with key '" + repo.ids[name] + "'" }
	for _, c := range []struct{ tag, mode, wantMode, signer, message string }{
		{"pgp-subkey", "", "HEAD", repo.ids["pgp-subkey"], "verified signature of commit '" + commit("pgp-subkey") + key("pgp-subkey")},
		{"ssh-rsa1024", "head", "HEAD", "", ""},
		{"pgp-ed25519", "head", "HEAD", repo.ids["pgp-ed25519"], "verified signature of commit '" + commit("pgp-ed25519") + key("pgp-ed25519")},
		{"pgp-ed25519-over-unsigned", "Tag", "Tag", repo.ids["pgp-ed25519"], "verified signature of tag 'pgp-ed25519-over-unsigned" + key("pgp-ed25519")},
		{"pgp-ed25519-over-tag", "TagAndHEAD", "TagAndHEAD", repo.ids["pgp-ed25519"], "verified signature of tag 'pgp-ed25519-over-tag" + key("pgp-ed25519") + " and of commit '" + commit("pgp-ed25519") + key("pgp-ed25519")},
	} {
		g := signedObject("https://example.com/x", c.tag, c.mode)
		env := source.Env{Local: local, Secrets: sourcetest.Secrets{"default/keys": repo.secret("pgp-ed25519", "pgp-subkey", "ssh-rsa1024")}}
		result, err := (&source.Reconciler{Store: openStore(t)}).Reconcile(t.Context(), g, git.New(g, env))
		if c.message == "" {
			if err == nil {
				t.Errorf("%s, mode %q: no error", c.tag, c.mode)
			}
			continue
		}
		if got := g.Common().Condition(source.SourceVerifiedCondition).Message; got != c.message || result.Verification != (source.Verification{Mode: c.wantMode, Signer: c.signer, Message: c.message}) {
			t.Errorf("%s, mode %q: %v, %+v, message %q, want %q", c.tag, c.mode, err, result.Verification, got, c.message)
		}
		if g.Status.SourceVerificationMode != c.wantMode {
			t.Errorf("%s, mode %q: status says %q", c.tag, c.mode, g.Status.SourceVerificationMode)
		}
	}
}

// TestVerificationCannotWork has specs and Secrets that do not allow to verify anything.
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
		"Tag, branch":               {source.GitRepositoryRef{Branch: "pgp-ed25519"}, "Tag", good, source.Stalled, "InvalidVerificationMode", "mode Tag needs a tag, but spec.ref.branch selects none"},
		"Tag, default branch":       {source.GitRepositoryRef{}, "Tag", good, source.Stalled, "InvalidVerificationMode", "spec.ref.branch selects none"},
		"TagAndHEAD, commit":        {source.GitRepositoryRef{Commit: strings.Repeat("a", 40), Tag: "pgp-ed25519"}, "TagAndHEAD", good, source.Stalled, "InvalidVerificationMode", "spec.ref.commit selects none"},
		"TagAndHEAD, name":          {source.GitRepositoryRef{Name: "refs/heads/pgp-ed25519"}, "TagAndHEAD", good, source.Stalled, "InvalidVerificationMode", "spec.ref.name selects none"},
		"unknown mode":              {tag, "tag", good, source.Stalled, "InvalidVerificationMode", `spec.verify.mode "tag": want HEAD, Tag or TagAndHEAD`},
		"no such Secret":            {tag, "HEAD", sourcetest.Secrets{}, source.Failed, "VerificationError", "spec.verify.secretRef: secret default/keys"},
		"no Secrets":                {tag, "HEAD", nil, source.Failed, "VerificationError", "secret default/keys: no Secrets were given"},
		"empty Secret":              {tag, "HEAD", sourcetest.Secrets{"default/keys": {}}, source.Failed, "VerificationError", "secret default/keys: no entry"},
		"entry that is no key":      {tag, "HEAD", data("password", password), source.Failed, "VerificationError", `secret default/keys: entry "password" is not an OpenPGP public key`},
		"entry with a private key":  {tag, "HEAD", data("id", "-----BEGIN OPENSSH PRIVATE KEY-----\n"+password+"\n"), source.Failed, "VerificationError", `secret default/keys: entry "id" holds a private key`},
		"entry with a broken line":  {tag, "HEAD", data("a.sshpub", "ssh-rsa "+password), source.Failed, "VerificationError", `entry "a.sshpub" line 1 is not an OpenSSH public key`},
		"entry with a broken block": {tag, "HEAD", data("a.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"+password), source.Failed, "VerificationError", `entry "a.asc" is not an OpenPGP public key: block 1 does not end`},
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
