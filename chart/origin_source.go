package chart

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// The sources of a chart, as its plan names them.
type sources struct {
	ref        source.Reference              // of the one that holds the chart
	spell      func(source.Reference) string // in the words of the chart's document
	repository *source.PkgRepository         // that one, nil when it is of another kind
	copies     bool                          // that one is an OCIRepository whose artifact is a layer as it is
	timeout    time.Duration                 // of that one
	needs      []source.Reference
	inputs     []artifact.Artifact // of needs; that of a registry is zero
	values     []source.ValuesFile // spec.valuesFiles
}

// sources looks up the sources of the chart.
func (o *Origin) sources(ctx context.Context) (*sources, error) {
	ref, ok := o.chart.Source()
	if !ok {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "UnsupportedSourceKind", Err: invalid(fmt.Errorf(
			"spec.sourceRef.kind %q holds no charts: use PkgRepository, GitRepository, Bucket or OCIRepository", o.chart.Spec.SourceRef.Kind))}
	}
	values, err := o.chart.Values()
	if err != nil {
		return nil, badValues(err)
	}
	if o.chart.Spec.Verify != nil && ref.Kind != "PkgRepository" {
		return nil, transport.Unverified(invalid(fmt.Errorf("spec.verify goes with a PkgRepository only: let %s verify what it holds", o.chart.Head().Spell(ref))))
	}
	s := &sources{ref: ref, spell: o.chart.Head().Spell, needs: o.chart.Plan().Needs, values: values}
	needed, err := source.Needed(ctx, o.chart, o.env.Sources)
	if err != nil {
		return nil, unavailable("SourceUnavailable", err)
	}
	s.describe(needed[0])
	for i, obj := range needed {
		a := obj.Artifact()
		switch {
		case a != nil:
			s.inputs = append(s.inputs, *a)
		case i == 0 && s.repository != nil && inRegistry(s.repository):
			s.inputs = append(s.inputs, artifact.Artifact{})
		default:
			return nil, unavailable("NoSourceArtifact", source.NoArtifact(obj))
		}
	}
	if s.repository != nil && inRegistry(s.repository) {
		s.inputs[0] = artifact.Artifact{} // one of before it was a registry
	}
	return s, nil
}

// describe takes over what counts of the object that holds the chart.
func (s *sources) describe(holder source.Object) {
	switch obj := holder.(type) {
	case *source.PkgRepository:
		s.repository, s.timeout = obj, time.Duration(obj.Spec.Timeout)
	case *source.GitRepository:
		s.timeout = time.Duration(obj.Spec.Timeout)
	case *source.Bucket:
		s.timeout = time.Duration(obj.Spec.Timeout)
	case *source.OCIRepository:
		s.timeout = time.Duration(obj.Spec.Timeout)
		s.copies = obj.Spec.LayerSelector != nil && obj.Spec.LayerSelector.Operation == source.LayerCopy
	}
	s.timeout = cmp.Or(s.timeout, defaultTimeout)
}

// verification is what the source asks for, "" for none: whatever was found there
// before it did, and of whatever type it is.
func (s *sources) verification() string {
	if s.repository == nil || s.repository.Spec.Verify == nil {
		return ""
	}
	return provenanceMode
}

// within does one step within the timeout of the source.
func (s *sources) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, s.timeout, step, do)
}

// input returns the artifact of ref, one of needs.
func (s *sources) input(ref source.Reference) artifact.Artifact {
	return s.inputs[slices.Index(s.needs, ref)]
}

// unreadable says that the artifact of ref cannot be read.
func (s *sources) unreadable(ref source.Reference, err error) error {
	reason := pullFailed
	if errors.Is(err, source.ErrWaiting) {
		reason = "NoSourceArtifact"
	}
	return stepError(source.StepResolve, reason, fmt.Errorf("%s: %w", s.spell(ref), err))
}

func unavailable(reason string, err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
}

// badChart says that spec.chart leads to no chart.
func badChart(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: badReference, Err: invalid(err)}
}

// openTree opens the artifact of ref, an archive of files.
func (o *Origin) openTree(ctx context.Context, s *sources, ref source.Reference) (tree *artifact.Tree, err error) {
	err = s.within(ctx, "read the artifact of "+s.spell(ref), func(ctx context.Context) (err error) {
		tree, err = source.OpenArchive(ctx, o.env.Sources, s.input(ref), o.treeLimits())
		return err
	})
	return tree, err
}

// treeLimits are those of the artifact of a source, which holds more than charts.
func (o *Origin) treeLimits() artifact.Limits {
	l := o.env.Limits
	l.Bytes = cmp.Or(l.Bytes, 16<<30)
	l.FileBytes = cmp.Or(l.FileBytes, 16<<30)
	l.Entries = cmp.Or(l.Entries, 4_000_000)
	return l
}

// A located is a chart that a source has.
type located struct {
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	Identity string `json:"identity,omitempty"` // differs when the same version is another chart
}

func foundIn(o offer) located {
	return located{path.Base(o.name), o.version, o.identity}
}

// findInRepository returns what the repository of s offers. An index that it is
// known of is not read again.
func (o *Origin) findInRepository(ctx context.Context, s *sources, before chartMemory, now *chartMemory) (k kept, err error) {
	up, err := o.upstream(ctx, s)
	if err != nil {
		return k, err
	}
	defer up.close()
	if o.chart.Spec.Verify != nil || s.repository.Spec.Verify != nil {
		if now.Trust, err = up.trusts(ctx, o.chart.Spec.Verify); err != nil {
			return k, err
		}
	}
	o.trusted.Set(now.Trust)
	now.Key = fingerprint(string(source.CanonicalSpec(s.repository)), now.Digest, o.chart.Spec.Chart, o.chart.Spec.Version)
	if now.Digest != "" && now.Key == before.Key {
		k.found = before.Found
		return k, nil
	}
	f, err := o.ask(ctx, up, s)
	k.found, k.offer = foundIn(f), &f
	return k, err
}

// ask returns what up offers. What an index lacks it lacks until it changes; a
// registry is asked again.
func (o *Origin) ask(ctx context.Context, up upstream, s *sources) (offer, error) {
	if err := checkName(o.chart.Spec.Chart); err != nil {
		return offer{}, err
	}
	f, err := up.find(ctx, o.chart.Spec.Chart, o.chart.Spec.Version)
	if step, ok := errors.AsType[*source.StepError](err); ok && step.Reason == badReference && !inRegistry(s.repository) {
		err = badChart(err)
	}
	return f, err
}

// findInTree returns the chart at spec.chart in the artifact of s. An artifact
// that it is known of is not read again.
func (o *Origin) findInTree(ctx context.Context, s *sources, before chartMemory, now *chartMemory) (f located, err error) {
	name, err := o.path()
	if err != nil {
		return f, err
	}
	if now.Key = fingerprint(now.Source, now.Digest, name); now.Key == before.Key {
		return before.Found, nil
	}
	tree, err := o.openTree(ctx, s, s.ref)
	if err != nil {
		return f, o.unpacked(s, err)
	}
	defer tree.Close()
	c, err := openChart(tree, name, o.env.Limits)
	if err != nil {
		return f, o.notChart(s, err)
	}
	defer c.close()
	return located{Name: c.Metadata.Name, Version: c.Metadata.Version, Identity: now.Source + ":" + name}, nil
}

// unpacked gives the failure to open the tree of s its reason.
func (o *Origin) unpacked(s *sources, err error) error {
	if errors.Is(err, artifact.ErrFormat) {
		return badChart(fmt.Errorf("%s: %w: only a source whose artifact is an archive of files can hold charts", s.spell(s.ref), err))
	}
	return s.unreadable(s.ref, err)
}

// notChart gives the failure to open the chart in s its reason: what is no chart
// is none until the source or spec.chart changes.
func (o *Origin) notChart(s *sources, err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, bundle.ErrChart) {
		err = fmt.Errorf("%w: name the directory of a chart, or its archive, from the root of the source", err)
	}
	err = fmt.Errorf("spec.chart in %s at %s: %w", s.spell(s.ref), s.inputs[0].Revision, err)
	if errors.Is(err, bundle.ErrChart) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return badChart(err)
	}
	return stepError(source.StepFetch, pullFailed, err)
}

// path returns spec.chart as a path in the tree of the source. A leading slash
// stands for its root.
func (o *Origin) path() (string, error) {
	name := path.Clean(strings.TrimLeft(o.chart.Spec.Chart, "/"))
	if !fs.ValidPath(name) || strings.Contains(name, `\`) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", badChart(fmt.Errorf("spec.chart %.300q: want a path inside the source, with slashes", o.chart.Spec.Chart))
	}
	return name, nil
}

// fingerprint is one of texts in their order.
func fingerprint(texts ...string) string {
	sum := sha256.New()
	transport.Note(sum, texts...)
	return hex.EncodeToString(sum.Sum(nil))
}

// An openedChart is a chart that was opened in a tree.
type openedChart struct {
	*bundle.Chart
	archive *bundle.Archive // nil for a directory
}

func (c *openedChart) close() error {
	if c.archive == nil {
		return nil
	}
	return c.archive.Close()
}

// openChart opens the chart that is a directory or an archive (.tgz) of tree.
func openChart(tree fs.FS, name string, l artifact.Limits) (*openedChart, error) {
	info, err := fs.Stat(tree, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		c, err := bundle.OpenDir(tree, name)
		return &openedChart{Chart: c}, err
	}
	a, err := bundle.OpenArchive(tree, name, bundle.Limits(l))
	if err != nil {
		return nil, err
	}
	return &openedChart{a.Chart, a}, nil
}
