package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

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
// [artifact.Pack]. The same files make the same bytes, in whatever order e.Charts
// are.
//
// A further chart appears as directory charts/NAME/, or charts/NAME-VERSION/
// when there are several versions of it. The same version twice is one; it may
// also be in charts/ already, which then stays as it is. Another version there is
// an error.
//
// What is written is read again on its way: what [ReadArchive] with e.Limits would
// refuse is an error here, after a part of it has been written. Errors wrap
// [ErrChart], or are those of w, of the trees, or the cause of ctx.
func (c *Chart) Pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	report, err := c.pack(ctx, w, e)
	if err != nil {
		return report, fmt.Errorf("pack chart %q: %w", c.Metadata.Name, err)
	}
	return report, nil
}

func (c *Chart) pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	tree, err := c.edited(e)
	if err != nil {
		return artifact.Report{}, err
	}
	if tree, err = c.furnished(tree, e); err != nil {
		return artifact.Report{}, err
	}
	return checked(w, e.Limits, func(w io.Writer) (artifact.Report, error) {
		return artifact.Pack(ctx, w, artifact.Mount(memory(nil), c.Metadata.Name, tree))
	})
}

// edited returns the files of c with the Chart.yaml and the values of e.
func (c *Chart) edited(e Edit) (fs.FS, error) {
	over := memory{}
	if e.Version != "" {
		text, err := readVerbatim(c.Files, chartFile, textBytes)
		if err != nil {
			return nil, err
		}
		if over[chartFile], err = setVersion(text, e.Version); err != nil {
			return nil, err
		}
	}
	if e.Values != nil {
		there, err := has(c.Files, valuesFile)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, fmt.Errorf("%w: it has no %s that other values could replace", ErrChart, valuesFile)
		}
		over[valuesFile] = e.Values
	}
	if len(over) == 0 {
		return c.Files, nil
	}
	return artifact.Mount(c.Files, ".", over), nil
}

// furnished returns tree, the files of c, with the further charts of e.
func (c *Chart) furnished(tree fs.FS, e Edit) (fs.FS, error) {
	there := map[string]string{} // versions by name
	if err := c.vendored(e.Limits, func(_ string, m *chart.Metadata) { there[m.Name] = m.Version }); err != nil {
		return nil, fmt.Errorf("read the charts in %s/: %w", chartsDir, err)
	}
	dirs, err := places(e.Charts, there)
	if err != nil {
		return nil, err
	}
	for dir, further := range dirs {
		dir = path.Join(chartsDir, dir)
		taken, err := has(tree, dir)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, fmt.Errorf("%w: %s is not %s %s: rename it", ErrChart, dir, further.Metadata.Name, further.Metadata.Version)
		}
		tree = artifact.Mount(tree, dir, further.Files)
	}
	return tree, nil
}

// places returns charts by their directories in charts/, except those that are
// there already.
func places(charts []*Chart, there map[string]string) (map[string]*Chart, error) {
	versions := map[string]map[string]*Chart{} // by name and version
	for _, c := range charts {
		name, version := c.Metadata.Name, c.Metadata.Version
		if strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") || path.Ext(name) == ".tgz" {
			return nil, fmt.Errorf("%w: the package manager finds no chart named %q in %s/", ErrChart, name, chartsDir)
		}
		if has, ok := there[name]; ok && has != version {
			return nil, fmt.Errorf("%w: %s/ has version %s of %s, and %s is to be added", ErrChart, chartsDir, has, name, version)
		} else if ok {
			continue
		}
		if versions[name] == nil {
			versions[name] = map[string]*Chart{}
		}
		if versions[name][version] == nil {
			versions[name][version] = c
		}
	}
	dirs := map[string]*Chart{}
	for name, all := range versions {
		for version, c := range all {
			dir := name
			if len(all) > 1 {
				dir += "-" + version
			}
			if other := dirs[dir]; other != nil {
				return nil, fmt.Errorf("%w: %s/%s would be two charts, %s and %s", ErrChart, chartsDir, dir, other.Metadata.Name, name)
			}
			dirs[dir] = c
		}
	}
	return dirs, nil
}

// checked lets pack write to w, unless what it writes is an archive that
// [ReadArchive] refuses.
func checked(w io.Writer, l artifact.Limits, pack func(io.Writer) (artifact.Report, error)) (artifact.Report, error) {
	r, pipe := io.Pipe()
	read := make(chan error, 1)
	go func() {
		a, err := readArchive(r, Limits(l))
		if err == nil {
			err = a.Close()
		}
		r.CloseWithError(err)
		read <- err
	}()
	report, err := pack(io.MultiWriter(w, pipe))
	if err == nil && len(report.LeftOut) > 0 {
		err = irregular(report.LeftOut[0].Name, report.LeftOut[0].Mode)
	}
	pipe.CloseWithError(err)
	if refused := <-read; refused != nil && !errors.Is(err, refused) {
		err = refused
	}
	return report, err
}
