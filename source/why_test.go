package source_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// Every reason for making an artifact, and for not making one, word for word.
func TestWhy(t *testing.T) {
	r := newFixture(t)
	content := func(revision, digest string) artifact.Artifact {
		return artifact.Artifact{Revision: revision, Digest: digest}
	}
	plain := func(*source.GitRepository) {}
	unopened := originAt(revision2)
	unopened.open = func(context.Context) error { return io.ErrUnexpectedEOF }
	includes := func(g *source.GitRepository) {
		g.Spec.Include = []source.GitRepositoryInclude{
			{Repository: source.IncludeReference{Name: "lib"}},
			{Repository: source.IncludeReference{Kind: "Bucket", Name: "data"}},
		}
	}
	with := func(inputs ...artifact.Artifact) *scriptedOrigin {
		s := originAt(revision2)
		s.rev.Inputs = inputs
		return s
	}
	everything := func(g *source.GitRepository) {
		includes(g)
		g.Spec.Ignore, g.Spec.RecurseSubmodules, g.Spec.LFS = new("*.md"), true, true
		g.Spec.SparseCheckout = []string{"a"}
		g.Spec.Verify = &source.GitRepositoryVerification{Mode: source.VerifyHEAD}
	}
	otherKeys := func(g *source.GitRepository) {
		everything(g)
		g.Spec.Verify.SecretRef.Name = "other"
	}
	signed := func(s *scriptedOrigin, reverify bool) *scriptedOrigin {
		s.rev.Reverify = reverify
		s.verify = func() (source.Verification, error) { return source.Verification{Mode: "HEAD"}, nil }
		return s
	}
	renewed := func(s *scriptedOrigin, reason string) *scriptedOrigin {
		s.rev.Renew = reason
		return s
	}
	two := []artifact.Artifact{content("main@sha1:b", "sha256:2"), content("sha256:c", "sha256:4")}
	const same = "revision, spec and inputs are those of the artifact"
	for _, row := range []struct {
		name    string
		edit    func(*source.GitRepository)
		from    *scriptedOrigin
		outcome source.Outcome
		why     string
	}{
		{"nothing known", plain, failingOrigin(io.EOF), source.Failed, ""},
		{"first", plain, originAt(revision1), source.Stored, "there was no artifact"},
		{"unchanged", plain, originAt(revision1), source.Unchanged, same},
		{"suspended", func(g *source.GitRepository) { g.Spec.Suspend = true }, originAt(revision2), source.Suspended, "spec.suspend is set"},
		{"failed on the way", plain, unopened, source.Failed, "the revision changed from " + revision1 + " to " + revision2},
		{"revision", plain, originAt(revision2), source.Stored, "the revision changed from " + revision1 + " to " + revision2},
		{"include", includes, with(content("main@sha1:a", "sha256:1"), content("sha256:c", "sha256:3")), source.Stored, "changed: spec.include"},
		{"included artifacts", includes, with(two...), source.Stored,
			"changed: spec.include[0] (GitRepository/apps/lib: main@sha1:a → main@sha1:b), spec.include[1] (Bucket/apps/data: sha256:c with digest sha256:3 → sha256:4)"},
		{"the same included artifacts", includes, with(two...), source.Unchanged, same},
		{"spec", everything, signed(with(two...), false), source.Stored,
			"changed: spec.ignore, spec.recurseSubmodules, spec.lfs, spec.sparseCheckout, spec.verify.mode"},
		{"other keys in the spec", otherKeys, signed(with(two...), false), source.Stored, "the artifact was not verified as the spec asks now"},
		{"other keys in the Secret", otherKeys, signed(with(two...), true), source.Stored, "the trusted keys changed"},
		{"renewed", otherKeys, renewed(signed(with(two...), true), "changed: a file that the revision leaves out"), source.Stored, "changed: a file that the revision leaves out"},
		{"no artifact at all", plain, &scriptedOrigin{}, source.Unchanged, "objects of this sort have no artifact"},
	} {
		g := repository()
		row.edit(g)
		r.clock = r.clock.Add(time.Minute)
		result, err := r.Reconcile(t.Context(), g, row.from)
		if result.Outcome != row.outcome || result.Why != row.why {
			t.Errorf("%s: %s because %q, error %v; want %s because %q", row.name, result.Outcome, result.Why, err, row.outcome, row.why)
		}
	}

	g := repository()
	r.run(g, renewed(originAt(revision1), "to be made again"), source.Stored)
	must(t, os.Remove(filepath.Join(r.dir, g.Artifact().Path)))
	result, err := r.Reconcile(t.Context(), repository(), originAt(revision1))
	const want = "the artifact disappeared from storage: check artifact "
	if err != nil || len(result.Why) < len(want) || result.Why[:len(want)] != want {
		t.Errorf("lost: because %q, error %v", result.Why, err)
	}
}
