package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// The settled object in reference A20.
func TestSettledStatus(t *testing.T) {
	r := newFixture(t)
	g := repository()
	g.Metadata.Generation = 3
	g.Metadata.Annotations = map[string]string{"reconcile.fluxcd.io/requestedAt": "2026-07-22T10:00:00Z"}
	g.Spec.Ignore = new("/docs\n")
	r.run(g, originAt(revision1), source.Stored)
	got, err := json.MarshalIndent(g.Status, "", " ")
	must(t, err)
	a := g.Artifact()
	want := fmt.Sprintf(`{
 "observedGeneration": 3,
 "conditions": [
  {
   "type": "Ready",
   "status": "True",
   "observedGeneration": 3,
   "lastTransitionTime": "2026-07-22T10:01:00Z",
   "reason": "Succeeded",
   "message": "stored artifact for revision '%[1]s'"
  },
  {
   "type": "ArtifactInStorage",
   "status": "True",
   "observedGeneration": 3,
   "lastTransitionTime": "2026-07-22T10:01:00Z",
   "reason": "Succeeded",
   "message": "stored artifact for revision '%[1]s'"
  }
 ],
 "artifact": {
  "path": "%[2]s",
  "url": "http://store.example/%[2]s",
  "revision": "%[1]s",
  "digest": "%[3]s",
  "lastUpdateTime": "2026-07-22T10:01:00Z",
  "size": 61
 },
 "lastHandledReconcileAt": "2026-07-22T10:00:00Z",
 "observedIgnore": "/docs\n"
}`, revision1, a.Path, a.Digest)
	testenv.Equal(t, string(got), want, "status")
}

// TestConditions takes an object through its states, one run per row. Each row starts from the
// status that the previous row saved.
func TestConditions(t *testing.T) {
	plain := func(*source.GitRepository) {}
	verified := func(g *source.GitRepository) {
		g.Spec.Verify = &source.GitRepositoryVerification{Mode: "HEAD"}
	}
	ignoring := func(g *source.GitRepository) { g.Spec.Ignore = new("*.md") }
	inputs := func(s *scriptedOrigin, digest string) *scriptedOrigin {
		s.rev.Inputs = []artifact.Artifact{{Revision: "r", Digest: digest}}
		return s
	}
	good := func(s *scriptedOrigin) *scriptedOrigin {
		s.verify = func() (source.Verification, error) {
			return source.Verification{Mode: "HEAD", Message: "verified signature of commit"}, nil
		}
		return s
	}
	refused := func(s *scriptedOrigin) *scriptedOrigin {
		s.verify = func() (source.Verification, error) {
			return source.Verification{}, &source.StepError{Reason: "InvalidCommitSignature", Err: source.ErrVerification}
		}
		return s
	}
	audited := func(s *scriptedOrigin) *scriptedOrigin {
		s.verify = func() (source.Verification, error) {
			return source.Verification{Level: "audit", Ignored: true}, nil
		}
		return s
	}
	retrusted := func(s *scriptedOrigin) *scriptedOrigin {
		s.rev.Reverify = true
		return s
	}
	unopened := func(s *scriptedOrigin) *scriptedOrigin {
		s.open = func(context.Context) error { return io.ErrUnexpectedEOF }
		return s
	}
	rows := []struct {
		name    string
		edit    func(*source.GitRepository)
		from    *scriptedOrigin
		outcome source.Outcome
		want    string // conditions
		message string // of Reconciling, if present
		events  string
	}{
		{"first failure", plain, failingOrigin(fs.ErrNotExist), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed",
			"building artifact", "error/GitOperationFailed"},
		{"stalled", plain, failingOrigin(fmt.Errorf("bad: %w", source.ErrInvalid)), source.Stalled,
			"Ready=False/GitOperationFailed Stalled=True/GitOperationFailed FetchFailed=True/GitOperationFailed", "", "error/GitOperationFailed"},
		{"waiting", plain, failingOrigin(&source.StepError{Step: source.StepInclude, Reason: "NoArtifact", Err: source.ErrWaiting}), source.Waiting,
			"Ready=False/NoArtifact Reconciling=True/ProgressingWithRetry IncludeUnavailable=True/NoArtifact",
			"building artifact", "info/NoArtifact"},
		{"stored", plain, originAt(revision1), source.Stored, ready, "", "info/NewArtifact"},
		{"unchanged", plain, originAt(revision1), source.Unchanged, ready, "", "trace/ArtifactUpToDate"},
		{"resolve fails", plain, failingOrigin(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"recovered", plain, originAt(revision1), source.Unchanged, ready, "", "info/Succeeded"},
		{"new revision cannot be fetched", plain, unopened(originAt(revision2)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/GitOperationFailed"},
		{"still outdated", plain, failingOrigin(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"upstream is back where it was", plain, originAt(revision1), source.Unchanged, ready, "", "info/Succeeded"},
		{"new spec cannot be fetched", ignoring, unopened(originAt(revision1)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewConfiguration ArtifactInStorage=True/Succeeded",
			"building artifact: the spec differs from that of the artifact in storage", "error/GitOperationFailed"},
		{"new spec", ignoring, originAt(revision1), source.Stored, ready, "", "info/Succeeded"},
		{"new include", ignoring, unopened(inputs(originAt(revision1), "sha256:1")), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/IncludeChange ArtifactInStorage=True/Succeeded",
			"building artifact: included artifacts differ from those of the artifact in storage", "error/GitOperationFailed"},
		{"changed spec, but no answer", verified, failingOrigin(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/IncludeChange ArtifactInStorage=True/Succeeded",
			"processing object: new generation 2 -> 3", "error/GitOperationFailed"},
		{"verified", verified, good(originAt(revision1)), source.Stored,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "info/Succeeded"},
		{"not verified again", verified, refused(originAt(revision1)), source.Unchanged,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "trace/ArtifactUpToDate"},
		{"fetch fails", verified, unopened(originAt(revision2)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed SourceVerified=True/Succeeded ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/GitOperationFailed"},
		{"refused", verified, refused(originAt(revision2)), source.Failed,
			"Ready=False/InvalidCommitSignature Reconciling=True/ProgressingWithRetry SourceVerified=False/InvalidCommitSignature ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/InvalidCommitSignature"},
		{"old revision is verified anew", verified, refused(originAt(revision1)), source.Failed,
			"Ready=False/InvalidCommitSignature Reconciling=True/ProgressingWithRetry SourceVerified=False/InvalidCommitSignature ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/InvalidCommitSignature"},
		{"nothing checked", verified, originAt(revision2), source.Failed,
			"Ready=False/VerificationError Reconciling=True/ProgressingWithRetry SourceVerified=False/VerificationError ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/VerificationError"},
		{"no longer asked for", plain, originAt(revision2), source.Stored, ready, "", "info/NewArtifact"},
		{"let pass", verified, audited(originAt(revision1)), source.Stored,
			"Ready=True/Succeeded SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded", "", "info/NewArtifact"},
		{"not let pass again", verified, refused(originAt(revision1)), source.Unchanged,
			"Ready=True/Succeeded SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded", "", "trace/ArtifactUpToDate"},
		{"let pass, then no answer", verified, failingOrigin(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"other keys", verified, good(retrusted(originAt(revision1))), source.Stored,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "info/Succeeded"},
	}
	r := newFixture(t)
	for _, row := range rows {
		g := repository()
		row.edit(g)
		r.run(g, row.from, row.outcome)
		if c := g.Common().Condition(source.SourceVerifiedCondition); c.Status == "Unknown" && !strings.Contains(c.Message, "level 'audit'") {
			t.Errorf("%s: message of SourceVerified %q", row.name, c.Message)
		}
		testenv.Equal(t, conditions(g), row.want, "%s: conditions", row.name)
		testenv.Equal(t, g.Common().Condition(source.ReconcilingCondition).Message, row.message, "%s: message of Reconciling", row.name)
		testenv.Equal(t, r.reasons(), row.events, "%s: events", row.name)
		testenv.Equal(t, row.from.closed != 0, row.from.open == nil && row.from.resolve == nil && row.outcome != source.Unchanged, "%s: content was closed", row.name)
	}
}

func TestTransitionTimes(t *testing.T) {
	r := newFixture(t)
	g := repository()
	foreign := source.Condition{Type: "Blessed", Status: "True", LastTransitionTime: r.clock, Reason: "Ritual", Message: "by hand"}
	times := func() map[string]time.Time {
		m := make(map[string]time.Time)
		for _, c := range g.Common().Conditions {
			m[c.Type] = c.LastTransitionTime
		}
		return m
	}
	r.Load, r.Save = nil, nil
	g.Status.Conditions = []source.Condition{foreign}
	r.run(g, originAt(revision1), source.Stored)
	stored := r.clock.Truncate(time.Second)
	r.run(g, failingOrigin(io.EOF), source.Failed)
	failed := r.clock.Truncate(time.Second)
	r.run(g, failingOrigin(io.ErrUnexpectedEOF), source.Failed)
	got := times()
	for kind, want := range map[string]time.Time{"Ready": failed, "FetchFailed": failed, "Reconciling": failed, "ArtifactInStorage": stored} {
		if !got[kind].Equal(want) {
			t.Errorf("%s turned at %v, want %v", kind, got[kind], want)
		}
	}
	testenv.Equal(t, g.Common().Condition("FetchFailed").Message, "unexpected EOF", "message")
	r.run(g, originAt(revision1), source.Unchanged)
	if got := times()["Ready"]; !got.Equal(r.clock.Truncate(time.Second)) {
		t.Errorf("Ready turned at %v", got)
	}
	testenv.Equal(t, g.Common().Conditions[len(g.Common().Conditions)-1], foreign, "foreign condition")
}
