package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// stagedSources are one of every state.
func stagedSources() []api.Source {
	now := time.Now()
	hash := strings.Repeat("4f1c0a9e", 5)
	ready := func(kind, namespace, name, origin, revision string, minutes int) api.Source {
		digest := "sha256:" + strings.Repeat("b5bb9d80", 8)
		dir := strings.ToLower(kind) + "/" + namespace + "/" + name
		path := dir + "/" + strings.TrimPrefix(digest, "sha256:") + "/" + name + ".tar.gz"
		return api.Source{
			Kind: kind, Namespace: namespace, Name: name, APIVersion: "source.headgate.dev/v1", Origin: origin, Interval: "10m0s",
			Phase: "idle", Ready: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", Revision: revision,
			Since: now.Add(-time.Duration(minutes) * time.Hour), Checked: now.Add(-time.Duration(minutes) * 10 * time.Second), Next: now.Add(time.Duration(minutes) * time.Minute),
			Artifact: &artifact.Artifact{Path: path, URL: "http://127.0.0.1:9090/" + path, Revision: revision, Digest: digest,
				LastUpdateTime: now.Add(-time.Duration(minutes) * time.Hour), Size: 48213},
			URL: "http://127.0.0.1:9090/" + dir + "/latest.tar.gz",
			Last: &api.Run{Number: 41, Trigger: "tick", Started: now.Add(-time.Duration(minutes) * 10 * time.Second), Took: 0.043, Outcome: "unchanged",
				Why: "the origin is at the same revision", Revision: revision},
			Conditions: []source.Condition{
				{Type: "Ready", Status: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", LastTransitionTime: now.Add(-time.Duration(minutes) * time.Hour)},
				{Type: "ArtifactInStorage", Status: "True", Reason: "Succeeded", Message: "stored artifact for revision '" + revision + "'", LastTransitionTime: now.Add(-time.Duration(minutes) * time.Hour)},
			},
			Document: "apiVersion: source.headgate.dev/v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  namespace: " + namespace + "\nspec:\n  interval: 10m0s\n  url: " + origin + "\n",
			Hook:     "/hook/" + kind + "/" + namespace + "/" + name,
		}
	}
	failing := ready("GitRepository", "payments", "checkout", "https://git.example.com/payments/checkout.git", "main@sha1:"+hash, 7)
	failing.Ready, failing.Reason, failing.Failures = "False", "GitOperationFailed", 3
	failing.Message = "resolve refs/heads/main: https://git.example.com/payments/checkout.git: the credentials were refused (401): look at Secret payments/git"
	failing.Last = &api.Run{Number: 44, Trigger: "retry", Started: now.Add(-90 * time.Second), Took: 0.21, Outcome: "failed", Error: failing.Message, Revision: failing.Revision}
	failing.Conditions[0] = source.Condition{Type: "Ready", Status: "False", Reason: "GitOperationFailed", Message: failing.Message, LastTransitionTime: now.Add(-4 * time.Minute)}
	failing.Conditions = append(failing.Conditions, source.Condition{Type: "FetchFailed", Status: "True", Reason: "GitOperationFailed", Message: failing.Message, LastTransitionTime: now.Add(-4 * time.Minute)})
	stalled := ready("Bucket", "catalog", "images", "https://s3.example.com", "sha256:"+strings.Repeat("9a0b", 16), 90)
	stalled.Phase, stalled.Ready, stalled.Reason, stalled.Next = "stalled", "False", "InvalidSpec", time.Time{}
	stalled.Message = "spec.bucketName: \"Images\" is no name of a bucket: use 3 to 63 lower-case letters, digits, dots and hyphens"
	suspended := ready("OCIRepository", "shop", "frontend", "oci://registry.example.com/shop/frontend", "1.14.2@sha256:"+strings.Repeat("7c31", 16), 30)
	suspended.Phase, suspended.Suspended, suspended.Next = "suspended", true, time.Time{}
	suspended.Suspension = &source.Suspension{By: "ada", Reason: "not before the sale ends", Since: now.Add(-3 * time.Hour)}
	fresh := ready("PkgChart", "shop", "frontend", "https://charts.example.com", "", 1)
	fresh.Phase, fresh.Ready, fresh.Artifact, fresh.Message, fresh.URL, fresh.Next, fresh.Last = "blocked", "Unknown", nil, "", "", time.Time{}, nil
	fresh.Blockers, fresh.Conditions, fresh.Checked = []string{"PkgRepository/shop/charts"}, nil, time.Time{}
	return []api.Source{
		failing, stalled, suspended, fresh,
		ready("GitRepository", "catalog", "search", "https://git.example.com/catalog/search.git", "main@sha1:"+strings.Repeat("d0e1f2a3", 5), 3),
		ready("GitRepository", "shop", "cart", "https://git.example.com/shop/cart.git", "v2.3.1@sha1:"+strings.Repeat("8b7c6d5e", 5), 5),
		ready("PkgRepository", "shop", "charts", "https://charts.example.com", "sha256:"+strings.Repeat("1e2d", 16), 9),
	}
}

// keepStaged is a server where something of everything is to be seen.
func keepStaged(t *testing.T) *keeper {
	t.Helper()
	s := keep(t, stagedSources()...)
	failing := s.sources[checkout]
	now := time.Now()
	s.runs[checkout] = []api.Run{*failing.Last,
		{Number: 43, Trigger: "retry", Started: now.Add(-3 * time.Minute), Took: 0.2, Outcome: "failed", Error: failing.Message, Revision: failing.Revision},
		{Number: 42, Trigger: "tick", Started: now.Add(-14 * time.Minute), Took: 0.04, Outcome: "unchanged", Why: "main is at the same commit", Revision: failing.Revision},
		{Number: 41, Trigger: "hook", Started: now.Add(-7 * time.Hour), Took: 1.3, Outcome: "stored", Why: "main has moved", Revision: failing.Revision},
	}
	event := func(id int64, severity, reason, message string, ago time.Duration) api.Event {
		return api.Event{ID: id, Event: source.Event{InvolvedObject: source.ObjectReference{Kind: "GitRepository", Namespace: "payments", Name: "checkout"},
			Severity: severity, Timestamp: now.Add(-ago), Reason: reason, Message: message}}
	}
	s.events = []api.Event{
		event(1, "info", "NewArtifact", "stored artifact for commit 'pay with one click'", 7*time.Hour),
		event(2, "error", "GitOperationFailed", failing.Message, 4*time.Minute),
		event(3, "trace", "Progressing", "retry in 30 s", 2*time.Minute),
	}
	s.files = []api.File{{Path: "deploy", Dir: true}, {Path: "deploy/app.yaml", Size: 1204}, {Path: "test.sh", Size: 310, Executable: true}}
	s.defects = []string{"sources/shop.yaml: document 3: yaml: line 12: mapping values are not allowed here"}
	s.edit("GitRepository/shop/cart", func(one *api.Source) { one.Phase = "running" })
	return s
}
