package git_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A mover is an origin whose upstream changes between Resolve and Open.
type mover struct {
	source.Origin
	move func()
}

func (m mover) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	m.move()
	return m.Origin.Open(ctx, rev)
}

// TestTrustChanges has the trusted keys change under a published artifact.
func TestTrustChanges(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo.Repo)
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

// TestTrustChangesMeanwhile has keys that are trusted while the commit is
// verified, but not when it was looked up, which is what is remembered.
func TestTrustChangesMeanwhile(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	secrets := sourcetest.Secrets{"default/keys": repo.secret("ssh-rsa")}
	g := signedObject("https://example.com/x", "pgp-ed25519", source.VerifyHEAD)
	var from source.Origin = git.New(g, source.Env{Local: map[string]string{g.Spec.URL: repo.Dir}, Secrets: secrets})
	r := &source.Reconciler{Store: openStore(t)}
	trust := func() { secrets["default/keys"] = repo.secret("ssh-rsa", "pgp-ed25519") }
	result, err := r.Reconcile(t.Context(), g, mover{from, trust})
	if result.Outcome != source.Failed || err == nil || !strings.Contains(err.Error(), "the keys changed") || g.Artifact() != nil {
		t.Errorf("outcome %q, error %v, artifact %v", result.Outcome, err, g.Artifact())
	}
	if result, err := r.Reconcile(t.Context(), g, from); result.Outcome != source.Stored {
		t.Errorf("the next time: outcome %q, error %v", result.Outcome, err)
	}
}

// TestVerificationFromCache verifies what an earlier fetch, without the tag, left in a cache.
func TestVerificationFromCache(t *testing.T) {
	t.Parallel()
	repo := newSigned(t)
	cache := newCache(t, t.TempDir())
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo.Repo)
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
		verdict(t, g, git.New(g, env), c.mode, c.reason, "")
	}
}
