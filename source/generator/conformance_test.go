package generator_test

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/generator"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// An upstream is a source of which an artifact is a copy.
type upstream struct {
	*fixture
	defect sourcetest.Defect
	last   string // archive
}

func TestConforms(t *testing.T) {
	sourcetest.Run(t, sourcetest.Kind{
		Name: "generator",
		Open: func(tb sourcetest.TB) sourcetest.Upstream {
			return &upstream{fixture: newFixture(t, map[string]string{"repo": ""}, "  - {name: out, revision: \"@repo\", copy: [{from: \"@repo/\", to: \"@artifact/\"}]}\n")}
		},
		Suspend: func(obj source.Object) { obj.(*source.ExternalArtifact).Composed.Suspend = true },
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Waiting, Condition: source.FetchFailedCondition, Reason: "SourceFetchFailed", Message: "no such object"},
			{Defect: sourcetest.Waits, Outcome: source.Waiting, Condition: source.FetchFailedCondition, Reason: "SourceFetchFailed", Message: "has no artifact yet"},
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: source.FetchFailedCondition, Reason: "ValidationFailed", Message: "made of itself"},
			{Defect: sourcetest.Truncated, Outcome: source.Failed, Condition: source.BuildFailedCondition, Reason: "BuildFailed", Message: "copy[0].from: Bucket/apps/repo: "},
		},
		ReadsContent: true,
	})
}

func (u *upstream) Publish(tree fstest.MapFS) error {
	var out bytes.Buffer
	_, err := artifact.Pack(u.Context(), &out, tree)
	if err == nil {
		u.last = out.String()
		u.publish("repo", u.last)
	}
	return err
}

func (u *upstream) Break(defect sourcetest.Defect) <-chan struct{} {
	u.defect = defect
	return nil
}

func (u *upstream) Object() source.Object {
	return u.object("ArtifactGenerator", "app").(*source.ArtifactGenerator).Outputs()[0]
}

func (u *upstream) Origin(obj source.Object) source.Origin {
	e, bucket := obj.(*source.ExternalArtifact), *u.object("Bucket", "repo").(*source.Bucket)
	objects := []source.Object{obj, &bucket}
	switch u.defect {
	case sourcetest.Gone:
		objects = objects[:1]
	case sourcetest.Waits:
		bucket.Status.Artifact = nil
	case sourcetest.Invalid:
		e.Composed.Sources[0] = source.GeneratorSource{Alias: "repo", Kind: "ExternalArtifact", Name: "out", Namespace: "apps"}
	case sourcetest.Truncated:
		bucket.Status.Artifact = u.put("repo", u.last[:100])
	}
	return generator.New(e, source.Env{Sources: &source.Inventory{Objects: objects, Store: u.store}})
}

func (u *upstream) Traffic() sourcetest.Traffic { return sourcetest.Traffic{} }
func (u *upstream) Secrets() []string           { return nil }
