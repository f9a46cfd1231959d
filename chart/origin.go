package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one PkgChart. It is safe for concurrent use.
type Origin struct {
	opener
	chart   *source.PkgChart
	trusted transport.TrustFingerprint // keys and identities at the last Resolve

	mu       sync.Mutex
	id       string // of the revision that the last Resolve returned
	found    foundChart
	selected selectedVersion // zero if the repository was not queried
}

// New returns the origin of c. technologies are the means to verify signatures of charts in
// registries, by spec.verify.provider. New does no I/O; [Origin.Resolve] reports what is
// wrong with c.
func New(c *source.PkgChart, env source.Env, technologies map[string]oci.Technology) *Origin {
	return &Origin{chart: c, opener: opener{env: env, technologies: technologies,
		secretReader: &transport.SecretReader{Namespace: c.Metadata.Namespace, From: env.Secrets}}}
}

// Secrets returns the credentials that the origin has read so far. The [source.Reconciler]
// keeps them out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.secretReader.Values() }

// chartState is the state that a PkgChart keeps between runs.
type chartState struct {
	ID          string      `json:"id,omitempty"`       // of the last revision
	Source      string      `json:"source,omitempty"`   // source that held the chart
	Digest      string      `json:"digest,omitempty"`   // of the artifact of Source
	Revision    string      `json:"revision,omitempty"` // of the artifact of Source
	BuiltFrom   string      `json:"made,omitempty"`     // revision of Source that the artifact was built from
	Key         string      `json:"key,omitempty"`      // fingerprint of all that Found depends on
	Found       foundChart  `json:"found,omitzero"`
	Files       []string    `json:"files,omitempty"` // spec.valuesFiles
	OtherValues otherValues `json:"borrowed,omitzero"`
	Trust       string      `json:"trust,omitempty"` // fingerprint of the keys and identities that the last run trusted
}

// foundChart identifies a chart in a source.
type foundChart struct {
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	Identity string `json:"identity,omitempty"` // differs if the same version is a different chart
}

// Resolve implements [source.Origin]. It returns the version that the source of the chart
// has now, or that spec.version selects in it. A source that did not change is not read; a
// registry is queried each time.
//
// Errors are *[source.StepError] with the reasons of reference A2. They wrap
// [source.ErrInvalid] if the spec or the source must change, and [source.ErrWaiting] if the
// source is not available yet.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	var before chartState
	if json.Unmarshal(last, &before) != nil {
		before = chartState{} // ignore a state that cannot be decoded
	}
	rev, state, err := o.resolve(ctx, before)
	if err != nil {
		return source.Revision{Inputs: rev.Inputs}, nil, stepError(source.StepResolve, pullFailed, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, before chartState) (rev source.Revision, state source.State, err error) {
	in, err := o.inputs(ctx)
	if err != nil {
		return rev, nil, err
	}
	defer in.close()
	rev.Inputs = in.artifacts
	now := chartState{Source: in.ref.String(), Digest: in.artifacts[0].Digest, Revision: in.artifacts[0].Revision, Files: o.chart.Spec.ValuesFiles}
	var s *selectedVersion // nil if the repository was not queried
	if in.repository != nil {
		s, err = in.findInRepository(ctx, before, &now)
	} else {
		err = in.findInTree(ctx, before, &now)
	}
	if err != nil {
		return rev, nil, err
	}
	if now.ID, err = in.version(now.Found.Version); err != nil {
		return rev, nil, err
	}
	if rev.File = now.Found.Name + "-" + now.ID + ".tgz"; rev.File[0] == '.' {
		return rev, nil, badChart(fmt.Errorf("the name %q of the chart begins with a dot: nothing can be stored under it", now.Found.Name))
	}
	if now.OtherValues, err = in.readOthers(ctx, before.OtherValues); err != nil {
		return rev, nil, err
	}
	rev.ID = now.ID
	if in.repository != nil && in.repository.Spec.Verify != nil { // a chart from before spec.verify was set is not verified
		rev.Verify = provenanceMode
	}
	rev.Reverify = now.Trust != before.Trust
	o.compare(in, &rev, before, &now)
	o.mu.Lock()
	if o.id, o.found, o.selected = now.ID, now.Found, (selectedVersion{}); s != nil {
		o.selected = *s
	}
	o.mu.Unlock()
	state, err = json.Marshal(now)
	return rev, state, err
}

// Open implements [source.Origin]. The archive of a chart in a repository is not
// fetched before [source.Content.WriteTo].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (*content, error) {
	in, err := o.inputs(ctx)
	if err != nil {
		return nil, err
	}
	if len(rev.Inputs) != len(in.artifacts) {
		return nil, fmt.Errorf("the revision has %d inputs, the spec names %d: resolve it again", len(rev.Inputs), len(in.artifacts))
	}
	in.artifacts = rev.Inputs
	c := &content{inputs: in, rev: rev}
	if in.repository == nil {
		return c, nil
	}
	if c.upstream, err = in.upstream(ctx); err != nil {
		return nil, err
	}
	if c.selected, err = o.reselect(ctx, c); err != nil {
		c.upstream.close()
		return nil, err
	}
	return c, nil
}

// reselect returns the version that the last Resolve selected. If Resolve did not query the
// repository, reselect (word or name?) does.
func (o *Origin) reselect(ctx context.Context, c *content) (*selectedVersion, error) {
	o.mu.Lock()
	resolved, found, selected := o.id, o.found, o.selected
	o.mu.Unlock()
	if resolved == c.rev.ID && selected.name != "" {
		return &selected, nil
	}
	now, err := c.selectVersion(ctx, c.upstream)
	if err != nil {
		return nil, err
	}
	id, err := c.version(now.version)
	if err == nil && (id != c.rev.ID || id == resolved && foundChartOf(now) != found) {
		err = fmt.Errorf("%w: version %s became %s", source.ErrMoved, c.rev.ID, id)
	}
	return now, err
}

// compare compares the revision with that of the last run. It sets rev.Renew if the same
// version must be built again, and rev.Note if it is not although its source moved.
func (o *Origin) compare(in *inputs, rev *source.Revision, before chartState, now *chartState) {
	now.BuiltFrom = now.Revision
	if before.ID != now.ID {
		if a := o.chart.Artifact(); a != nil && a.Revision == now.ID && o.artifactMayDiffer(in, *now) {
			rev.Renew = "it is not remembered what the artifact was made of"
		}
		return
	}
	if o.chart.Spec.IgnoreMissingValuesFiles && slices.Equal(before.Files, now.Files) {
		rev.Found = append([]string{}, o.chart.Status.ObservedValuesFiles...)
	}
	if rev.Renew = renewReason(before, *now, in.byRevision()); rev.Renew != "" || o.chart.Drift(*rev) != "" {
		return
	}
	if now.BuiltFrom = before.BuiltFrom; now.BuiltFrom != now.Revision && in.repository == nil && !in.byRevision() {
		rev.Note = fmt.Sprintf("the source is at %s, and the chart's version still %s: reconcileStrategy %s makes a new artifact when the version changes, %s with each revision of the source",
			now.Revision, now.Found.Version, source.StrategyChartVersion, source.StrategyRevision)
	}
}

// renewReason returns why the version of before and now is a different chart, or "" if it is
// not.
func renewReason(before, now chartState, byRevision bool) string {
	was, is := before.location(), now.location()
	switch {
	case before.Found.Identity == now.Found.Identity:
	case was != is:
		return fmt.Sprintf("version %s is another chart: it was that of %s, is that of %s", now.Found.Version, was, is)
	case !strings.Contains(now.Found.Identity, ":"):
		return fmt.Sprintf("version %s was published again: its entry in the index differs", now.Found.Version)
	default:
		return fmt.Sprintf("version %s was published again: its digest was %s, is %s", now.Found.Version, before.Found.Identity, now.Found.Identity)
	}
	if byRevision && before.Digest != now.Digest {
		return fmt.Sprintf("revision %s of %s has other content: its digest was %s, is %s", now.Revision, now.Source, before.Digest, now.Digest)
	}
	for text, digest := range now.OtherValues.Digests {
		if had, ok := before.OtherValues.Digests[text]; ok && had != digest {
			return fmt.Sprintf("changed: values file %s", text)
		}
	}
	return ""
}

// location returns where the chart was found: a repository, or a path in another source.
func (s chartState) location() string {
	if strings.HasPrefix(s.Found.Identity, s.Source+":") {
		return s.Found.Identity
	}
	return s.Source
}

// artifactMayDiffer reports whether the published artifact, which has the version of now, may be a
// different chart. It is for runs without the state of an earlier run.
func (o *Origin) artifactMayDiffer(in *inputs, now chartState) bool {
	if o.chart.Status.ObservedGeneration != o.chart.Metadata.Generation {
		return true
	}
	const sha = "sha256:"
	offered, published := now.Found.Identity, o.chart.Artifact().Digest
	comparable := in.repository != nil && !inRegistry(in.repository) && in.stamp() == "" && strings.HasPrefix(offered, sha) && strings.HasPrefix(published, sha)
	return comparable && offered != published
}

// maxName bounds the name of a chart, in bytes.
const maxName = 253

var chartName = regexp.MustCompile(`^[-a-z0-9]+([/.][-a-z0-9]+)*$`)

// checkName accepts the name of a chart in a repository: lower case letters,
// digits and dashes in parts, with one slash or dot between them (reference A13).
// Dependencies may have other names.
func checkName(name string) error {
	if len(name) <= maxName && chartName.MatchString(name) {
		return nil
	}
	return badChart(fmt.Errorf("chart name %.300q: want lower case letters, digits and dashes, with single slashes or dots between them, at most %d bytes", name, maxName))
}

// foundChartOf identifies a selected version, for the state.
func foundChartOf(s *selectedVersion) foundChart {
	return foundChart{path.Base(s.name), s.version, s.identity}
}
