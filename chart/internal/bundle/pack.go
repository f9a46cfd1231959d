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

// An Edit is what is to be different in the archive of a chart.
type Edit struct {
	Version string   // in Chart.yaml, "" for what it has
	Values  []byte   // values.yaml, which the chart must have already (reference A14); nil for what it has
	Charts  []*Chart // further ones in charts/
	// Limits of the archive, and of the charts in charts/; zero ones are those of [Limits].
	Limits artifact.Limits
}

// Pack writes the archive of c with e: NAME/…, in the normal form of
// [artifact.Pack]: what [Chart.With] returns. The same files make the same bytes, in
// whatever order e.Charts are.
//
// What is written is read again on its way: what [ReadArchive] with e.Limits would
// refuse is an error here, after a part of it has been written. Errors wrap
// [ErrChart], or are those of w, of the trees, or the cause of ctx.
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
		err = irregular(report.LeftOut[0].Name, report.LeftOut[0].Mode)
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

// With returns the files of c as they are with e.
//
// A further chart appears as directory charts/NAME/, or charts/NAME-VERSION/
// when there are several versions of it. The same version twice is one; it may
// also be in charts/ already, which then stays as it is.
//
// Everything in charts/ must be a chart. Errors wrap [ErrChart], or are those of the
// trees.
func (c *Chart) With(e Edit) (fs.FS, error) {
	tree, err := c.edited(e)
	if err == nil {
		tree, err = c.furnished(tree, e)
	}
	if err != nil {
		return nil, fmt.Errorf("edit chart %q: %w", c.Metadata.Name, err)
	}
	return tree, nil
}

// edited returns the files of c with the Chart.yaml and the values of e.
func (c *Chart) edited(e Edit) (fs.FS, error) {
	over := fstest.MapFS{}
	values, err := c.Values()
	if err != nil {
		return nil, err
	}
	if e.Values != nil {
		if values == nil {
			return nil, fmt.Errorf("%w: it has no %s that other values could replace", ErrChart, valuesFile)
		}
		values, over[valuesFile] = e.Values, &fstest.MapFile{Data: e.Values, Mode: 0o644}
	}
	if len(values) <= textBytes { // what is larger is for the package manager to read
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
		over[chartFile] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	return artifact.Mount(c.Files, ".", over), nil
}

// furnished returns tree, the files of c, with the further charts of e.
func (c *Chart) furnished(tree fs.FS, e Edit) (fs.FS, error) {
	there, err := c.Vendored(e.Limits)
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
	for _, m := range there {
		add(m)
	}
	charts := slices.SortedStableFunc(slices.Values(e.Charts), func(a, b *Chart) int {
		return cmp.Or(cmp.Compare(a.Metadata.Name, b.Metadata.Name), cmp.Compare(a.Metadata.Version, b.Metadata.Version))
	})
	charts = slices.DeleteFunc(charts, func(further *Chart) bool { return !add(further.Metadata) })
	for _, further := range charts {
		m := further.Metadata
		dir := path.Join(chartsDir, m.Name)
		if passedOver(m.Name) || path.Ext(dir) == ".tgz" {
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

// setVersion returns the text of a Chart.yaml with another version. Where the
// text allows it nothing else changes; otherwise what it means is written anew,
// with sorted keys and without comments.
func setVersion(text []byte, version string) ([]byte, error) {
	if _, err := semver.NewVersion(version); err != nil {
		return nil, fmt.Errorf("version %.120q: %w", version, err)
	}
	var before, after map[string]any
	if err := decode(text, &before, digits); err != nil {
		return nil, invalid(chartFile, err)
	}
	edited := versionLine.ReplaceAll(text, []byte("${1}"+version))
	want := map[string]any{"version": version}
	for name, value := range before {
		if !strings.EqualFold(name, "version") {
			want[name] = value
		}
	}
	if decode(edited, &after, digits) != nil || !reflect.DeepEqual(want, after) {
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
