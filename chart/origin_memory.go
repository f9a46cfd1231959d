package chart

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// A memory is what a PkgChart remembers between runs.
type chartMemory struct {
	ID       string   `json:"id,omitempty"`       // of the last revision
	Source   string   `json:"source,omitempty"`   // that held the chart
	Digest   string   `json:"digest,omitempty"`   // of the artifact of Source
	Revision string   `json:"revision,omitempty"` // of the artifact of Source
	Made     string   `json:"made,omitempty"`     // revision of Source that the artifact was made of
	Key      string   `json:"key,omitempty"`      // of all that Found depends on
	Found    located  `json:"found,omitzero"`
	Files    []string `json:"files,omitempty"` // spec.valuesFiles
	Borrowed borrowed `json:"borrowed,omitzero"`
	Trust    string   `json:"trust,omitempty"` // fingerprint of whom the last run trusted
}

// recall reads a state; one that cannot be read is none.
func recallChart(s source.State) chartMemory {
	var m chartMemory
	if json.Unmarshal(s, &m) != nil {
		return chartMemory{}
	}
	return m
}

func (m chartMemory) state() (source.State, error) { return json.Marshal(m) }

// compare tells what became of the revision that the last run saw: why the same
// version is to be made again, or why it is not although its source moved.
func (o *Origin) compare(s *sources, rev *source.Revision, before chartMemory, now *chartMemory) {
	now.Made = now.Revision
	if before.ID != now.ID {
		if a := o.chart.Artifact(); a != nil && a.Revision == now.ID && o.doubtful(s, *now) {
			rev.Renew = "it is not remembered what the artifact was made of"
		}
		return
	}
	if o.chart.Spec.IgnoreMissingValuesFiles && slices.Equal(before.Files, now.Files) {
		rev.Found = append([]string{}, o.chart.Status.ObservedValuesFiles...)
	}
	if rev.Renew = renewal(before, *now, o.byRevision(s)); rev.Renew != "" || o.chart.Drift(*rev) != "" {
		return
	}
	if now.Made = before.Made; now.Made != now.Revision && s.repository == nil && !o.byRevision(s) {
		rev.Note = fmt.Sprintf("the source is at %s, and the chart's version still %s: reconcileStrategy %s makes a new artifact when the version changes, %s with each revision of the source",
			now.Revision, now.Found.Version, source.StrategyChartVersion, source.StrategyRevision)
	}
}

// renewal says why the version that before and now name is another chart.
func renewal(before, now chartMemory, byRevision bool) string {
	switch was, is := before.place(), now.place(); {
	case before.Found.Identity == now.Found.Identity:
	case was == is && !strings.Contains(now.Found.Identity, ":"):
		return fmt.Sprintf("version %s was published again: its entry in the index differs", now.Found.Version)
	case was == is:
		return fmt.Sprintf("version %s was published again: its digest was %s, is %s", now.Found.Version, before.Found.Identity, now.Found.Identity)
	default:
		return fmt.Sprintf("version %s is another chart: it was that of %s, is that of %s", now.Found.Version, was, is)
	}
	switch {
	case byRevision && before.Digest != now.Digest:
		return fmt.Sprintf("revision %s of %s has other content: its digest was %s, is %s", now.Revision, now.Source, before.Digest, now.Digest)
	}
	return now.Borrowed.differs(before.Borrowed)
}

// place is where the chart was found: a repository, or a path in another source.
func (m chartMemory) place() string {
	if strings.HasPrefix(m.Found.Identity, m.Source+":") {
		return m.Found.Identity
	}
	return m.Source
}

// doubtful reports whether the published artifact, which has the version of now,
// may be another chart, where no state of the last run tells.
func (o *Origin) doubtful(s *sources, now chartMemory) bool {
	if o.chart.Status.ObservedGeneration != o.chart.Metadata.Generation {
		return true
	}
	offered, published := now.Found.Identity, o.chart.Artifact().Digest
	comparable := s.repository != nil && !inRegistry(s.repository) && o.stamp(s) == "" && isSHA256(offered) && isSHA256(published)
	return comparable && offered != published
}

func isSHA256(digest string) bool { return strings.HasPrefix(digest, string(artifact.SHA256)+":") }

// byRevision reports whether each revision of the source makes a new artifact. A
// repository has charts of many versions: there it is the version that does.
func (o *Origin) byRevision(s *sources) bool {
	return s.repository == nil && o.chart.Spec.ReconcileStrategy == source.StrategyRevision
}

// merges reports whether there are values files that replace what the chart has.
// values.yaml alone is what it has (reference A4).
func (s *sources) merges() bool {
	return len(s.values) > 1 || len(s.values) == 1 && path.Clean(s.values[0].Text) != "values.yaml"
}

// stamp returns the build metadata of the version of the artifact, "" when it
// is that of the chart (reference A4).
func (o *Origin) stamp(s *sources) string {
	var parts []string
	if o.byRevision(s) {
		parts = append(parts, short(s.inputs[0].Revision))
	}
	if s.merges() {
		parts = append(parts, strconv.FormatInt(o.chart.Metadata.Generation, 10))
	}
	return strings.Join(parts, ".")
}

// short returns the first 12 digits of the hash in a revision: the whole of it
// would be too long for a label.
func short(revision string) string {
	hash := revision[strings.LastIndexAny(revision, ":@/")+1:]
	return hash[:min(12, len(hash))]
}

// version returns the version of the artifact of a chart (reference A4).
func (o *Origin) version(s *sources, version string) (string, error) {
	stamp := o.stamp(s)
	if stamp == "" {
		return version, nil
	}
	stamped, err := bundle.Stamp(version, stamp)
	if err != nil {
		return "", &source.StepError{Step: source.StepBuild, Reason: "MetadataPatchError", Err: invalid(err)}
	}
	return stamped, nil
}
