package source_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestStatusOfKinds stores an artifact of each kind: status.url, the observed fields and the
// message of Ready are as in the specification and in reference A2 and A4.
func TestStatusOfKinds(t *testing.T) {
	const hex = "0123456789abcdef0123456789abcdef01234567"
	git := `spec: {url: "https://h/x", interval: 1m, ignore: "*.md", recurseSubmodules: true, include: [{repository: {name: base}, toPath: base}]`
	included := `"includedArtifacts":[{"path":"","url":"","revision":"main@sha1:1","digest":"sha256:1","lastUpdateTime":"0001-01-01T00:00:00Z"}],` +
		`"observedIgnore":"*.md","observedRecurseSubmodules":true,"observedInclude":[{"repository":{"name":"base"},"toPath":"base"}]`
	tests := []struct {
		kind, document, revision, file string
		latest                         string // file that status.url names, "" for no URL
		observed                       string // fields that only this kind has
		message                        string
	}{
		{"v1 GitRepository", git + `, sparseCheckout: [./a]}`, "main@sha1:" + hex, hex + ".tar.gz",
			"", included + `,"observedSparseCheckout":["a"]`, "stored artifact for revision 'main@sha1:" + hex + "'"},
		{"v1beta2 GitRepository", git + `}`, "main@sha1:" + hex, hex + ".tar.gz",
			"latest.tar.gz", included, "stored artifact for revision 'main@sha1:" + hex + "'"},
		{"v1 Bucket", `spec: {bucketName: b, endpoint: h, interval: 1m, ignore: ""}`, "sha256:" + hex, hex + ".tar.gz",
			"latest.tar.gz", `"observedIgnore":""`, "stored artifact: revision 'sha256:" + hex + "'"},
		{"v1 OCIRepository", `spec: {url: "oci://h/x", interval: 1m, ignore: a, layerSelector: {mediaType: m, operation: copy}}`,
			"latest@sha256:" + hex, hex + ".tar.gz", "latest.tar.gz",
			`"observedIgnore":"a","observedLayerSelector":{"mediaType":"m","operation":"copy"}`, "stored artifact for digest 'latest@sha256:" + hex + "'"},
		{"v1 PkgRepository", `spec: {url: "https://h/x"}`, "sha256:" + hex, "index-" + hex + ".yaml",
			"index.yaml", "", "stored artifact: revision 'sha256:" + hex + "'"},
		{"v1 PkgChart", `spec: {chart: app, interval: 1m, sourceRef: {kind: Bucket, name: b}, valuesFiles: [a, b]}`, "1.2.3+1", "app-1.2.3+1.tgz",
			"latest.tar.gz", `"observedSourceArtifactRevision":"main@sha1:1","observedChartName":"app","observedValuesFiles":["a","b"]`,
			"pulled chart with version '1.2.3+1'"},
	}
	for _, test := range tests {
		t.Run(test.kind, func(t *testing.T) {
			r := newFixture(t)
			version, kind, _ := strings.Cut(test.kind, " ")
			obj := decodeOne(t, fmt.Sprintf("apiVersion: source.headgate.dev/%s\nkind: %s\nmetadata: {name: x}\n%s", version, kind, test.document))
			inputs := []artifact.Artifact{{Revision: "main@sha1:1", Digest: "sha256:1"}}
			from := &scriptedOrigin{rev: source.Revision{ID: test.revision, File: test.file, Inputs: inputs}}
			r.run(obj, from, source.Stored)
			url := ""
			if test.latest != "" {
				url = "http://store.example/" + strings.ToLower(kind) + "/default/x/" + test.latest
			}
			testenv.Equal(t, obj.Common().URL, url, "status.url")
			testenv.Equal(t, obj.Common().Condition("Ready").Message, test.message, "message")
			r.run(obj, from, source.Unchanged)
			testenv.Equal(t, ownStatusFields(t, obj), test.observed, "status")
		})
	}
}

// ownStatusFields returns the fields of the status of obj that only its kind has, as the inside of a JSON
// object.
func ownStatusFields(t *testing.T, obj source.Object) string {
	t.Helper()
	*obj.Common() = source.Status{}
	text, err := json.Marshal(obj)
	var document struct{ Status json.RawMessage }
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	must(t, err)
	return strings.TrimSuffix(strings.TrimPrefix(string(document.Status), "{"), "}")
}

// TestOldStatus reconciles objects with a status from an old implementation: the revisions are the
// same, only their format differs (reference A4).
func TestOldStatus(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	for old, now := range map[string]string{
		"main/" + id:           "main@sha1:" + id,
		"feature/x/" + id:      "feature/x@sha1:" + id,
		"v1.2.3/" + id:         "v1.2.3@sha1:" + id,
		"HEAD/" + id:           "sha1:" + id,
		id:                     "sha1:" + id,
		"main/" + id + id[:24]: "main@sha256:" + id + id[:24],
		"main@sha1:" + id:      "main@sha1:" + id,
	} {
		r := newFixture(t)
		r.Load, r.Save = nil, nil
		g, from := repository(), originAt(now)
		from.rev.Inputs = []artifact.Artifact{{Revision: now, Digest: "sha256:1"}}
		r.run(g, from, source.Stored)
		g.Status.Artifact.Revision, g.Status.IncludedArtifacts[0].Revision = old, old
		r.run(g, from, source.Unchanged)
		if got := g.Status.Artifact.Revision; got != now || g.Status.IncludedArtifacts[0].Revision != now {
			t.Errorf("%s became %s, want %s", old, got, now)
		}
	}
}

// TestObservedGeneration follows the field through the life of an object: -1 until a run has
// processed it, as in an API server.
func TestObservedGeneration(t *testing.T) {
	r := newFixture(t)
	waiting := failingOrigin(fmt.Errorf("soon: %w", source.ErrWaiting))
	invalid := failingOrigin(fmt.Errorf("never: %w", source.ErrInvalid))
	for i, run := range []struct {
		from     *scriptedOrigin
		interval time.Duration
		outcome  source.Outcome
		want     int64
		message  string // of Reconciling
	}{
		{failingOrigin(io.EOF), time.Hour, source.Failed, -1, "building artifact"},
		{waiting, time.Hour, source.Waiting, -1, "building artifact"},
		{originAt(revision1), time.Hour, source.Stored, 1, ""},
		{failingOrigin(io.EOF), 2 * time.Hour, source.Failed, 1, "processing object: new generation 1 -> 2"},
		{invalid, 3 * time.Hour, source.Stalled, 3, ""},
		{originAt(revision1), 3 * time.Hour, source.Unchanged, 3, ""},
	} {
		g := repository()
		g.Spec.Interval = source.Duration(run.interval)
		r.run(g, run.from, run.outcome)
		testenv.Equal(t, g.Status.ObservedGeneration, run.want, "run %d: observedGeneration", i)
		testenv.Equal(t, g.Status.Condition("Reconciling").Message, run.message, "run %d: message of Reconciling", i)
	}
}
