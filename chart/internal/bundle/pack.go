package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing/fstest" // its MapFS

	"github.com/Masterminds/semver/v3"
	yaml2 "go.yaml.in/yaml/v2"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

// An Edit describes the changes to make in the archive of a chart.
type Edit struct {
	Version string   // for Chart.yaml, "" to keep its version
	Values  []byte   // for values.yaml, which the chart must have (reference A14); nil to keep its values
	Charts  []*Chart // to add to charts/
	// Limits of the archive, and of the charts in charts/. Zero limits are those of
	// [Limits].
	Limits artifact.Limits
}

// Pack writes the archive of c with the changes of e: the files that [Chart.With] returns,
// below NAME/, in the normal form of [artifact.Pack]. The same files give the same bytes,
// whatever the order of e.Charts.
//
// The output is read again while it is written: anything that [ReadArchive] with e.Limits
// would reject is an error, after a part of it has been written. Errors wrap [ErrChart], or
// are those of w, of the trees, or the cause of ctx.
func (c *Chart) Pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	tree, err := c.With(e)
	if err != nil {
		return artifact.Report{}, err
	}
	r, pipe := io.Pipe()
	read := make(chan error, 1)
	go func() {
		again, err := readArchive(r, Limits(e.Limits))
		if err == nil {
			err = again.Close()
		}
		r.CloseWithError(err)
		read <- err
	}()
	report, err := artifact.Pack(ctx, io.MultiWriter(w, pipe), artifact.Mount(fstest.MapFS{}, c.Metadata.Name, tree))
	if err == nil && len(report.LeftOut) > 0 {
		err = irregularError(report.LeftOut[0].Name, report.LeftOut[0].Mode)
	}
	pipe.CloseWithError(err)
	if refused := <-read; refused != nil && !errors.Is(err, refused) {
		err = refused
	}
	if err != nil {
		err = fmt.Errorf("pack chart %q: %w", c.Metadata.Name, err)
	}
	return report, err
}

// With returns the files of c with the changes of e.
//
// An added chart appears as directory charts/NAME/, or charts/NAME-VERSION/ if there are
// several versions of it. A version that is given twice is added once. If charts/ already
// has the version, it stays unchanged.
//
// Everything in charts/ must be a chart. Errors wrap [ErrChart], or are those of the trees.
func (c *Chart) With(e Edit) (fs.FS, error) {
	tree, err := c.withReplacedFiles(e)
	if err == nil {
		tree, err = c.withCharts(tree, e)
	}
	if err != nil {
		return nil, fmt.Errorf("edit chart %q: %w", c.Metadata.Name, err)
	}
	return tree, nil
}

// withReplacedFiles returns the files of c with the Chart.yaml and the values of e.
func (c *Chart) withReplacedFiles(e Edit) (fs.FS, error) {
	replacements := fstest.MapFS{}
	values, err := c.Values()
	if err != nil {
		return nil, err
	}
	if e.Values != nil {
		if values == nil {
			return nil, fmt.Errorf("%w: it has no %s that other values could replace", ErrChart, valuesFile)
		}
		values, replacements[valuesFile] = e.Values, &fstest.MapFile{Data: e.Values, Mode: 0o644}
	}
	if len(values) <= textBytes { // larger values are left to the package manager
		if _, err := parseValues(values); err != nil {
			return nil, invalid(valuesFile, err)
		}
	}
	if e.Version != "" {
		text, err := readFile(c.Files, chartFile, textBytes)
		if err != nil {
			return nil, err
		}
		if text, err = setVersion(text, e.Version); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrVersion, err)
		}
		replacements[chartFile] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	return artifact.Mount(c.Files, ".", replacements), nil
}

// withCharts returns tree, the files of c, with the further charts of e.
func (c *Chart) withCharts(tree fs.FS, e Edit) (fs.FS, error) {
	vendored, err := c.Vendored(e.Limits)
	if err != nil {
		return nil, err
	}
	present, versions := map[[2]string]bool{}, map[string]int{}
	add := func(m *chart.Metadata) (first bool) {
		key := [2]string{m.Name, m.Version}
		if first = !present[key]; first {
			present[key] = true
			versions[m.Name]++
		}
		return first
	}
	for _, m := range vendored {
		add(m)
	}
	charts := slices.SortedStableFunc(slices.Values(e.Charts), func(a, b *Chart) int {
		return cmp.Or(cmp.Compare(a.Metadata.Name, b.Metadata.Name), cmp.Compare(a.Metadata.Version, b.Metadata.Version))
	})
	charts = slices.DeleteFunc(charts, func(further *Chart) bool { return !add(further.Metadata) })
	for _, further := range charts {
		m := further.Metadata
		dir := path.Join(chartsDir, m.Name)
		if isSkippedName(m.Name) || path.Ext(dir) == ".tgz" {
			return nil, fmt.Errorf("%w: the package manager finds no chart named %q in %s/", ErrChart, m.Name, chartsDir)
		}
		if versions[m.Name] > 1 {
			dir += "-" + m.Version
		}
		if _, err := fs.Stat(tree, dir); !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, fmt.Errorf("%w: %s is not %s %s: rename it", ErrChart, dir, m.Name, m.Version))
		}
		tree = artifact.Mount(tree, dir, further.Files)
	}
	return tree, nil
}

// Stamp returns version with its build metadata replaced, as semver spells it:
// three numbers and no leading v (reference A4).
func Stamp(version, metadata string) (string, error) {
	v, err := semver.NewVersion(version)
	if err != nil {
		return "", fmt.Errorf("stamp version %.120q: %w", version, err)
	}
	stamped, err := v.SetMetadata(metadata)
	if err != nil {
		return "", fmt.Errorf("stamp version %.120q with %.120q: %w", version, metadata, err)
	}
	return stamped.String(), nil
}

// versionLine matches the version of a Chart.yaml in block style.
var versionLine = regexp.MustCompile(`(?m)^(\x{feff}?"?version"?[ \t]*:[ \t]+["']?)[0-9A-Za-z.+-]+`)

// setVersion returns the text of a Chart.yaml with another version. If possible, nothing
// else changes; otherwise the content is encoded anew, with sorted keys and without
// comments.
func setVersion(text []byte, version string) ([]byte, error) {
	if _, err := semver.NewVersion(version); err != nil {
		return nil, fmt.Errorf("version %.120q: %w", version, err)
	}
	var before, after map[string]any
	if err := decode(text, &before, keepDigits); err != nil {
		return nil, invalid(chartFile, err)
	}
	edited := versionLine.ReplaceAll(text, []byte("${1}"+version))
	want := map[string]any{"version": version}
	for name, value := range before {
		if !strings.EqualFold(name, "version") {
			want[name] = value
		}
	}
	if decode(edited, &after, keepDigits) != nil || !reflect.DeepEqual(want, after) {
		var err error
		if edited, err = yaml2.Marshal(want); err != nil {
			return nil, invalid(chartFile, err)
		}
	}
	m, err := parseMetadata(edited)
	if err == nil && m.Version != version {
		err = invalid(chartFile, errors.New("its version cannot be replaced: write it as plain text on a line of its own"))
	}
	return edited, err
}
