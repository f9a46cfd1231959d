package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// chartOf returns a chart of a Bucket, with values files.
func chartOf(values ...string) *source.PkgChart {
	c := &source.PkgChart{Spec: source.PkgChartSpec{Chart: "app", ValuesFiles: values,
		SourceRef: source.LocalChartSourceReference{Kind: "Bucket", Name: "b"}}}
	c.Metadata.Name, c.Metadata.Namespace, c.Metadata.Generation = "app", "apps", 1
	source.Default(c)
	return c
}

// The needs of a chart are the objects that reconcilers update before it.
func TestChartNeeds(t *testing.T) {
	c := chartOf("a.yaml", "source:x/a.yaml", "source:Bucket/b/c.yaml", "source:x/b.yaml", "source:OCIRepository/o/p.yaml", "source:HelmChart/y/z", "./source:n/a")
	var got []string
	for _, ref := range c.Plan().Needs {
		got = append(got, ref.String())
	}
	testenv.Equal(t, strings.Join(got, " "), "Bucket/apps/b GitRepository/apps/x OCIRepository/apps/o", "needs")
	c.Spec.SourceRef.Kind = "HelmRepository"
	testenv.Equal(t, c.Plan().Needs[0].String(), "PkgRepository/apps/b", "what it needs first")
	objects := []source.Object{c, &source.GitRepository{Header: source.Header{Metadata: source.Metadata{Name: "x", Namespace: "apps"}}}}
	source.Default(objects[1])
	if before := source.Order(objects); !slices.Equal(before[0], []int{1}) {
		t.Errorf("order %v", before)
	}
}

func TestChartValues(t *testing.T) {
	c := chartOf("./a/../b.yaml", "./c.yaml", "/d/e.yaml", "./source:n/a", "source:x/./a.yaml", "")
	files, err := c.Values()
	must(t, err)
	var got []string
	for i, v := range files {
		testenv.Equal(t, v.Text, c.Spec.ValuesFiles[i], "text")
		got = append(got, v.Source.Name+" "+v.Path)
	}
	if want := []string{" b.yaml", " c.yaml", " d/e.yaml", " source:n/a", "x a.yaml", " ."}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, text := range []string{"source:x//a", "a\nb", "a\xff"} { // more of them in TestAdmission
		if _, err := chartOf("ok", text).Values(); !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), "spec.valuesFiles[1] ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// The message from when a chart was stored stays, and every run that found the revision of the
// source records it.
func TestChartStatus(t *testing.T) {
	r := newFixture(t)
	const words = "packaged 'app' chart with version '1.0.0'"
	from := func(version, revision string) *scriptedOrigin {
		s := &scriptedOrigin{rev: source.Revision{ID: version, File: "app-" + version + ".tgz", Note: "the version is the same",
			Inputs: []artifact.Artifact{{Revision: revision}}}}
		s.write = func(w io.Writer) (source.Report, error) {
			_, err := io.WriteString(w, version)
			return source.Report{Reason: "ChartPackageSucceeded", Ready: words, Message: words}, err
		}
		return s
	}
	check := func(c *source.PkgChart, ready, reason, observed, events string) {
		t.Helper()
		got := c.Status.Condition("Ready")
		if got.Status != ready || got.Reason != reason || c.Status.ObservedSourceArtifactRevision != observed || r.reasons() != events {
			t.Errorf("Ready %+v, observed %q, events %s", got, c.Status.ObservedSourceArtifactRevision, r.reasons())
		}
	}
	c := chartOf()
	r.run(c, from("1.0.0", "r1"), source.Stored)
	check(c, "True", "ChartPackageSucceeded", "r1", "info/ChartPackageSucceeded")

	c = chartOf()
	r.run(c, from("1.0.0", "r2"), source.Unchanged)
	check(c, "True", "ChartPackageSucceeded", "r2", "trace/ArtifactUpToDate")
	if result, _ := r.Reconcile(t.Context(), chartOf(), from("1.0.0", "r2")); result.Why != "the version is the same" {
		t.Errorf("why not: %q", result.Why)
	}

	broken := from("1.1.0", "r3")
	broken.open = func(context.Context) error { return io.ErrUnexpectedEOF }
	c = chartOf()
	r.run(c, broken, source.Failed)
	check(c, "False", "ChartPullError", "r3", "error/ChartPullError")
	if got := c.Status.Condition("ArtifactOutdated"); got.Reason != "NewChart" || got.Message != "new upstream revision '1.1.0'" {
		t.Errorf("%+v", got)
	}

	c = chartOf()
	r.run(c, from("1.0.0", "r4"), source.Unchanged)
	check(c, "True", "ChartPackageSucceeded", "r4", "info/ChartPackageSucceeded")
	testenv.Equal(t, r.events[0].Message, words, "event")

	unresolved := from("1.0.0", "r5")
	unresolved.resolve = func(context.Context) error { return fmt.Errorf("%w: no such version", source.ErrInvalid) }
	c = chartOf()
	r.run(c, unresolved, source.Stalled)
	check(c, "False", "ChartPullError", "r5", "error/ChartPullError")

	renewed := from("1.0.0", "r6")
	renewed.rev.Renew, renewed.open = "version 1.0.0 was published again", broken.open
	c = chartOf()
	r.run(c, renewed, source.Failed)
	if got := c.Status.Condition("ArtifactOutdated"); got.Reason != "NewChart" || got.Message != renewed.rev.Renew {
		t.Errorf("%+v", got)
	}
}

// A source may require a verification that the chart itself does not. The requirement applies while
// the source has it, and a run that cannot read it does not revoke the condition.
func TestChartVerifiedForItsSource(t *testing.T) {
	r := newFixture(t)
	from := func(verify string) *scriptedOrigin {
		s := originAt("chart:1.0.0")
		s.rev.Verify = verify
		s.verify = func() (source.Verification, error) { return source.Verification{Mode: "provenance"}, nil }
		return s
	}
	const plain = "Ready=True/Succeeded ArtifactInStorage=True/Succeeded"
	const verified = "Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded"
	for i, step := range []struct {
		from    *scriptedOrigin
		outcome source.Outcome
		want    string
	}{
		{from(""), source.Stored, plain},
		{from("provenance"), source.Stored, verified},
		{from("provenance"), source.Unchanged, verified},
		{failingOrigin(io.EOF), source.Failed, "Ready=False/ChartPullError Reconciling=True/ProgressingWithRetry FetchFailed=True/ChartPullError SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded"},
		{from("provenance"), source.Unchanged, verified},
		{from(""), source.Unchanged, plain},
		{from("provenance"), source.Stored, verified},
	} {
		c := chartOf()
		r.run(c, step.from, step.outcome)
		testenv.Equal(t, conditions(c), step.want, "run %d", i)
	}

	refused := from("provenance")
	refused.rev.Reverify = true
	refused.verify = func() (source.Verification, error) {
		return source.Verification{}, &source.StepError{Step: source.StepVerify, Reason: source.RefusedChart, Err: source.ErrVerification}
	}
	c := chartOf()
	r.run(c, refused, source.Failed)
	testenv.Equal(t, conditions(c), "Ready=False/ChartVerificationError Reconciling=True/ProgressingWithRetry BuildFailed=True/ChartVerificationError SourceVerified=False/ChartVerificationError ArtifactInStorage=True/Succeeded", "conditions")
}
