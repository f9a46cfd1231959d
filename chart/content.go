package chart

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// inputs holds the sources of a chart, in the order of its plan, and their open trees.
type inputs struct {
	*Origin
	ref         source.Reference      // source that holds the chart
	repository  *source.PkgRepository // that source if it is a PkgRepository, else nil
	copiedLayer bool                  // that source is an OCIRepository whose artifact is an unchanged layer
	timeout     time.Duration         // of that source
	needs       []source.Reference
	artifacts   []artifact.Artifact       // one for each of needs; zero for a registry
	values      []source.ValuesFile       // spec.valuesFiles
	trees       map[string]*artifact.Tree // by digest, each opened once
}

// inputs looks up the sources of the chart.
func (o *Origin) inputs(ctx context.Context) (*inputs, error) {
	unavailable := func(reason string, err error) error {
		return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
	}
	ref, ok := o.chart.Source()
	if !ok {
		return nil, unavailable("UnsupportedSourceKind", invalid(fmt.Errorf(
			"spec.sourceRef.kind %q holds no charts: use PkgRepository, GitRepository, Bucket or OCIRepository", o.chart.Spec.SourceRef.Kind)))
	}
	values, err := o.chart.Values()
	if err != nil {
		return nil, badValues(err)
	}
	if o.chart.Spec.Verify != nil && ref.Kind != "PkgRepository" {
		return nil, transport.VerificationError(invalid(fmt.Errorf("spec.verify applies only to charts of a PkgRepository: let %s verify what it holds", o.chart.Head().Spell(ref))))
	}
	in := &inputs{Origin: o, ref: ref, needs: o.chart.Plan().Needs, values: values, trees: map[string]*artifact.Tree{}}
	needed, err := source.Needed(ctx, o.chart, o.env.Sources)
	if err != nil {
		return nil, unavailable("SourceUnavailable", err)
	}
	var limit source.Duration
	switch obj := needed[0].(type) {
	case *source.PkgRepository:
		in.repository, limit = obj, obj.Spec.Timeout
	case *source.GitRepository:
		limit = obj.Spec.Timeout
	case *source.Bucket:
		limit = obj.Spec.Timeout
	case *source.OCIRepository:
		limit = obj.Spec.Timeout
		in.copiedLayer = obj.Spec.LayerSelector != nil && obj.Spec.LayerSelector.Operation == source.LayerCopy
	}
	in.timeout = cmp.Or(time.Duration(limit), defaultTimeout)
	for i, obj := range needed {
		a := obj.Artifact()
		switch {
		case i == 0 && in.repository != nil && (inRegistry(in.repository) || o.env.Pin != nil):
			a = &artifact.Artifact{} // ignore an artifact from before it was a registry, or that no lock pins
		case a == nil:
			return nil, unavailable("NoSourceArtifact", source.NoArtifact(obj))
		}
		in.artifacts = append(in.artifacts, *a)
	}
	return in, nil
}

// close closes the trees.
func (in *inputs) close() (err error) {
	for _, tree := range in.trees {
		err = errors.Join(err, tree.Close())
	}
	clear(in.trees)
	return err
}

// spell names a source in the spelling of the chart's document.
func (in *inputs) spell(ref source.Reference) string { return in.chart.Head().Spell(ref) }

// artifact returns the artifact of ref, one of needs.
func (in *inputs) artifact(ref source.Reference) artifact.Artifact {
	return in.artifacts[slices.Index(in.needs, ref)]
}

// readError wraps an error of reading the artifact of ref.
func (in *inputs) readError(ref source.Reference, err error) error {
	reason := pullFailed
	if errors.Is(err, source.ErrWaiting) {
		reason = "NoSourceArtifact"
	}
	return stepError(source.StepResolve, reason, fmt.Errorf("%s: %w", in.spell(ref), err))
}

// tree opens the artifact of ref, an archive of files. Its default limits are higher than
// those of charts, since it may hold other files too.
func (in *inputs) tree(ctx context.Context, ref source.Reference) (tree *artifact.Tree, err error) {
	a := in.artifact(ref)
	if tree = in.trees[a.Digest]; tree != nil {
		return tree, nil
	}
	l := in.env.Limits
	l.Bytes, l.FileBytes, l.Entries = cmp.Or(l.Bytes, 16<<30), cmp.Or(l.FileBytes, 16<<30), cmp.Or(l.Entries, 4_000_000)
	err = source.Within(ctx, in.timeout, "read the artifact of "+in.spell(ref), func(ctx context.Context) (err error) {
		tree, err = source.OpenArchive(ctx, in.env.Sources, a, l)
		return err
	})
	if err == nil {
		in.trees[a.Digest] = tree
	}
	return tree, err
}

// upstream opens the repository.
func (in *inputs) upstream(ctx context.Context) (upstream, error) {
	return in.opener.open(ctx, in.repository, func(ctx context.Context) (io.ReadCloser, error) {
		index, err := source.OpenArtifact(ctx, in.env.Sources, in.artifacts[0])
		if err != nil {
			return nil, in.readError(in.ref, err)
		}
		return index, nil
	})
}

// findInRepository selects the version in the repository. It returns nil, without reading
// the index, if index and spec are those of the last run.
func (in *inputs) findInRepository(ctx context.Context, before chartState, now *chartState) (s *selectedVersion, err error) {
	up, err := in.upstream(ctx)
	if err != nil {
		return nil, err
	}
	defer up.close()
	if now.Trust, err = up.trustFingerprint(ctx, in.chart.Spec.Verify); err != nil {
		return nil, err
	}
	in.trusted.Set(now.Trust)
	now.Key = fingerprint(string(source.CanonicalSpec(in.repository)), now.Digest, in.chart.Spec.Chart, in.chart.Spec.Version)
	if now.Digest != "" && now.Key == before.Key {
		now.Found = before.Found
		return nil, nil
	}
	if s, err = in.selectVersion(ctx, up); err == nil {
		now.Found = foundChartOf(s)
	}
	return s, err
}

// selectVersion selects the version. If an index lacks it, the chart stalls until the index changes;
// a registry is asked again.
func (in *inputs) selectVersion(ctx context.Context, up upstream) (*selectedVersion, error) {
	if err := checkName(in.chart.Spec.Chart); err != nil {
		return nil, err
	}
	if pin := in.env.Pin; pin != nil {
		if pin.Chart == nil {
			return nil, &source.PinError{Problem: "missing", Err: errors.New("the lock does not say which version of the chart it was made of")}
		}
		return pinnedVersion(in.chart.Spec.Chart, *pin.Chart), nil
	}
	s, err := up.find(ctx, in.chart.Spec.Chart, in.chart.Spec.Version)
	if step, ok := errors.AsType[*source.StepError](err); ok && step.Reason == badReference && !inRegistry(in.repository) {
		err = badChart(err)
	}
	return s, err
}

// findInTree finds the chart at spec.chart in the artifact of its source. It reads nothing
// if both are those of the last run.
func (in *inputs) findInTree(ctx context.Context, before chartState, now *chartState) error {
	name, err := in.path()
	if err != nil {
		return err
	}
	if now.Key = fingerprint(now.Source, now.Digest, name); now.Key == before.Key {
		now.Found = before.Found
		return nil
	}
	tree, err := in.tree(ctx, in.ref)
	if err != nil {
		return in.openTreeError(err)
	}
	c, err := bundle.Open(tree, name, in.env.Limits)
	if err != nil {
		return in.openChartError(err)
	}
	now.Found = foundChart{Name: c.Metadata.Name, Version: c.Metadata.Version, Identity: now.Source + ":" + name}
	return c.Close()
}

// path returns spec.chart as a path in the tree of the source. A leading slash
// stands for its root.
func (in *inputs) path() (string, error) {
	name := path.Clean(strings.TrimLeft(in.chart.Spec.Chart, "/"))
	if !fs.ValidPath(name) || strings.Contains(name, `\`) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", badChart(fmt.Errorf("spec.chart %.300q: want a path inside the source, with slashes", in.chart.Spec.Chart))
	}
	return name, nil
}

// openTreeError adds the reason to an error of opening the tree of the source.
func (in *inputs) openTreeError(err error) error {
	if errors.Is(err, artifact.ErrFormat) {
		return badChart(fmt.Errorf("%s: %w: only a source whose artifact is an archive of files can hold charts", in.spell(in.ref), err))
	}
	return in.readError(in.ref, err)
}

// openChartError adds the reason to an error of opening the chart in the source. Content that is
// not a chart stalls the object until the source or spec.chart changes.
func (in *inputs) openChartError(err error) error {
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !errors.Is(err, bundle.ErrChart) {
		err = fmt.Errorf("%w: name the directory of a chart, or its archive, from the root of the source", err)
	}
	err = fmt.Errorf("spec.chart in %s at %s: %w", in.spell(in.ref), in.artifacts[0].Revision, err)
	if missing || errors.Is(err, bundle.ErrChart) {
		return badChart(err)
	}
	return stepError(source.StepFetch, pullFailed, err)
}

// fingerprint returns a hash of texts, in their order.
func fingerprint(texts ...string) string {
	sum := sha256.New()
	transport.HashInto(sum, texts...)
	return hex.EncodeToString(sum.Sum(nil))
}

// byRevision reports whether each revision of the source makes a new artifact. A repository
// has charts of many versions; there, each version does.
func (in *inputs) byRevision() bool {
	return in.repository == nil && in.chart.Spec.ReconcileStrategy == source.StrategyRevision
}

// replacesValues reports whether values files replace values.yaml of the chart. A list of
// values.yaml alone replaces nothing (reference A4).
func (in *inputs) replacesValues() bool {
	return len(in.values) > 1 || len(in.values) == 1 && path.Clean(in.values[0].Text) != "values.yaml"
}

// stamp returns the build metadata for the version of the artifact, or "" to keep the
// version of the chart (reference A4).
func (in *inputs) stamp() string {
	var parts []string
	if in.byRevision() {
		revision := in.artifacts[0].Revision
		hash := revision[strings.LastIndexAny(revision, ":@/")+1:]
		parts = append(parts, hash[:min(12, len(hash))]) // the whole hash would be too long for a label
	}
	if in.replacesValues() {
		generation := strconv.FormatInt(in.chart.Metadata.Generation, 10)
		if pin := in.env.Pin; pin != nil { // the generation in the store may differ
			generation = pin.Revision[strings.LastIndexAny(pin.Revision, ".+")+1:]
		}
		parts = append(parts, generation)
	}
	return strings.Join(parts, ".")
}

// version returns the version of the artifact of a chart (reference A4).
func (in *inputs) version(version string) (string, error) {
	stamp := in.stamp()
	if stamp == "" {
		return version, nil
	}
	stamped, err := bundle.Stamp(version, stamp)
	if err != nil {
		return "", badVersion(err)
	}
	return stamped, nil
}

// Limits of values files, in bytes: of one file, and of all together.
const (
	maxValues    = 1 << 20
	maxAllValues = 16 << 20
)

// readValues reads a values file from the source that it names, or from valuesTree if it names
// none. The error wraps fs.ErrNotExist if the file does not exist.
func (in *inputs) readValues(ctx context.Context, valuesTree fs.FS, v source.ValuesFile) (text []byte, err error) {
	if v.Source != (source.Reference{}) {
		tree, err := in.tree(ctx, v.Source)
		if errors.Is(err, artifact.ErrFormat) {
			return nil, badValues(fmt.Errorf("values file %q: %s: %w: values come from an archive of files", v.Text, v.Source, err))
		}
		if err != nil {
			return nil, in.readError(v.Source, err)
		}
		valuesTree = tree
	}
	info, err := fs.Stat(valuesTree, v.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: name one that exists, or set spec.ignoreMissingValuesFiles", fs.ErrNotExist)
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is no file")
	case info.Size() > maxValues:
		err = fmt.Errorf("it has more than %d bytes", maxValues)
	default:
		text, err = fs.ReadFile(valuesTree, v.Path)
	}
	if err != nil {
		return nil, badValues(fmt.Errorf("values file %q: %w", v.Text, err))
	}
	return text, nil
}

// otherValues is the state of the values files from other sources.
type otherValues struct {
	Key     string            `json:"key,omitempty"`     // fingerprint of the files and their artifacts
	Digests map[string]string `json:"digests,omitempty"` // by element of spec.valuesFiles, "" if the file is missing
}

// readOthers returns the state of the values files from other sources. It returns before,
// without reading them, if their artifacts have not changed.
func (in *inputs) readOthers(ctx context.Context, before otherValues) (now otherValues, err error) {
	var parts []string
	var files []source.ValuesFile
	for _, v := range in.values {
		if v.Source != (source.Reference{}) {
			files, parts = append(files, v), append(parts, v.Text, in.artifact(v.Source).Digest)
		}
	}
	if len(files) == 0 {
		return now, nil
	}
	if now.Key = fingerprint(parts...); now.Key == before.Key {
		return before, nil
	}
	now.Digests = map[string]string{}
	for _, v := range files {
		text, err := in.readValues(ctx, nil, v)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return otherValues{}, err
		}
		sum := sha256.Sum256(text)
		if now.Digests[v.Text] = hex.EncodeToString(sum[:]); err != nil {
			now.Digests[v.Text] = ""
		}
	}
	return now, nil
}

// mergeValues returns the merged values, nil if values.yaml is not replaced, and the values
// files that it used. Files that name no other source are read from valuesTree (reference A14).
func (in *inputs) mergeValues(ctx context.Context, valuesTree fs.FS) (values []byte, used []string, err error) {
	if !in.replacesValues() {
		return nil, in.chart.Spec.ValuesFiles, nil
	}
	var texts [][]byte
	size := 0
	for _, v := range in.values {
		text, err := in.readValues(ctx, valuesTree, v)
		if errors.Is(err, fs.ErrNotExist) && in.chart.Spec.IgnoreMissingValuesFiles {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if size += len(text); size > maxAllValues {
			return nil, nil, badValues(fmt.Errorf("values file %q: there are more than %d bytes of values up to here", v.Text, maxAllValues))
		}
		if _, err := bundle.Merge(text); err != nil {
			return nil, nil, badValues(fmt.Errorf("values file %q: %w", v.Text, err))
		}
		texts, used = append(texts, text), append(used, v.Text)
	}
	if len(texts) == 0 {
		return nil, used, nil
	}
	if values, err = bundle.Merge(texts...); err != nil {
		return nil, nil, badValues(err)
	}
	return values, used, nil
}

// content is one version of a chart: nothing of it is opened before WriteTo.
type content struct {
	*inputs
	rev      source.Revision
	upstream upstream // nil when the chart lies in the tree of another source
	selected *selectedVersion
}

// Verify implements [source.Content]. WriteTo fetches exactly what was verified.
func (c *content) Verify(ctx context.Context) (v source.Verification, err error) {
	trust := c.chart.Spec.Verify
	if c.upstream == nil || trust == nil && c.repository.Spec.Verify == nil {
		return v, nil
	}
	print, err := c.upstream.trustFingerprint(ctx, trust)
	if err == nil {
		err = c.trusted.Check(print)
	}
	if err == nil {
		v, err = c.upstream.verify(ctx, c.selected, trust)
	}
	switch {
	case errors.Is(err, source.ErrVerification):
		return v, &source.StepError{Step: source.StepVerify, Reason: source.RefusedChart, Err: err}
	case err != nil && !is[*source.StepError](err):
		return v, transport.VerificationError(err)
	}
	return v, err
}

// Close implements [source.Content].
func (c *content) Close() error {
	if c.upstream != nil {
		c.selected.release()
		c.upstream.close()
	}
	return c.inputs.close()
}

// WriteTo implements [source.Content]. It writes the archive unchanged, or builds a new
// one.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	to := &errorRecorder{w: w}
	report, err := c.write(ctx, to)
	switch {
	case to.err != nil:
		return source.Report{}, to.err // writing to the store failed
	case err != nil:
		return source.Report{}, stepError(source.StepFetch, pullFailed, err)
	}
	return report, nil
}

// errorRecorder is a writer that records its error.
type errorRecorder struct {
	w   io.Writer
	err error
}

func (s *errorRecorder) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

func (c *content) write(ctx context.Context, w io.Writer) (report source.Report, err error) {
	b, valuesTree, err := c.load(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	values, used, err := c.mergeValues(ctx, valuesTree)
	if err != nil {
		return report, err
	}
	if b.Archived() && c.stamp() == "" && values == nil {
		report.Files = 1
		report.Copied = true
		report.Bytes, err = b.WriteTo(w)
		report.Reason, report.Ready = "ChartPullSucceeded", "pulled"
	} else {
		report.Report, report.Dependencies, err = c.build(ctx, w, b, valuesTree, values)
		report.Reason, report.Ready = "ChartPackageSucceeded", "packaged"
	}
	report.Ready += fmt.Sprintf(" '%s' chart with version '%s'", b.Metadata.Name, c.rev.ID)
	if values != nil {
		report.Ready += fmt.Sprintf(" and merged values files %v", used)
	}
	report.Message, report.Found = report.Ready, append([]string{}, used...)
	if c.upstream != nil {
		report.Chart = &c.selected.pin
	}
	return report, err
}

// load opens the chart. valuesTree is the tree in which its values files are looked up.
func (c *content) load(ctx context.Context) (b *bundle.Chart, valuesTree fs.FS, err error) {
	if c.upstream != nil {
		if b, err = c.upstream.fetch(ctx, c.selected); err != nil {
			return nil, nil, err
		}
		return b, b.Files, nil
	}
	dir, err := c.path()
	if err != nil {
		return nil, nil, err
	}
	tree, err := c.tree(ctx, c.ref)
	if err != nil {
		return nil, nil, c.openTreeError(err)
	}
	top, err := tree.ReadDir(".")
	if c.copiedLayer && err == nil && len(top) == 1 && top[0].IsDir() && top[0].Name() == dir {
		b, err = c.readArchive(ctx)
	} else {
		b, err = bundle.Open(tree, dir, c.env.Limits)
	}
	if err != nil {
		return nil, nil, c.openChartError(err)
	}
	return b, tree, nil
}

// readArchive reads the artifact of the source itself, which is the archive of a chart.
func (c *content) readArchive(ctx context.Context) (b *bundle.Chart, err error) {
	err = source.Within(ctx, c.timeout, "read the artifact of "+c.spell(c.ref), func(ctx context.Context) error {
		r, err := source.OpenArtifact(ctx, c.env.Sources, c.artifacts[0])
		if err != nil {
			return err
		}
		defer r.Close()
		b, err = bundle.ReadArchive(r, c.env.Limits)
		return err
	})
	return b, err
}

// build writes the archive of a chart with the version and the values of the artifact. A
// chart directory, which is in tree, also gets the charts that it depends on.
func (c *content) build(ctx context.Context, w io.Writer, b *bundle.Chart, tree fs.FS, values []byte) (report artifact.Report, added []source.ChartPin, err error) {
	edit := bundle.Edit{Values: values, Limits: bundle.Limits(c.env.Limits)}
	if c.stamp() != "" {
		edit.Version = c.rev.ID
	}
	if values != nil { // the chart must have values to replace (reference A14)
		chartValues, err := b.Values()
		if err == nil && chartValues == nil {
			err = errors.New("the chart has no values.yaml that spec.valuesFiles could replace: add an empty one to it")
		}
		if err != nil {
			return report, nil, badValues(err)
		}
	}
	if !b.Archived() {
		dir, err := c.path()
		if err != nil {
			return report, nil, err
		}
		charts, end, err := c.complete(ctx, tree, dir, b, &added)
		if err != nil {
			return report, nil, err
		}
		defer end()
		edit.Charts = charts
	}
	err = source.Within(ctx, c.timeout, "package the chart", func(ctx context.Context) (err error) {
		report, err = b.Pack(ctx, w, edit)
		return err
	})
	switch {
	case errors.Is(err, bundle.ErrVersion):
		return report, nil, badVersion(err)
	case err != nil:
		return report, nil, &source.StepError{Step: source.StepBuild, Reason: "ChartPackageError", Err: err}
	}
	return report, added, nil
}
