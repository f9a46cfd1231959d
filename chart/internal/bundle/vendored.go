package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

// Vendored returns the charts in directory charts/, archives and directories
// alike, in the order of the names that they have there. As the package manager
// has it, names that begin with _ or . are passed over, as are provenance files and
// directories without files, and everything else must be a chart; what is
// deeper is not looked at.
//
// Limits are those of each archive, and l.Bytes of all together. Errors wrap
// [ErrChart] and name the entry.
func (c *Chart) Vendored(l artifact.Limits) ([]*chart.Metadata, error) {
	list, err := c.vendored(Limits(l), NewBudget(l))
	if err != nil {
		return nil, fmt.Errorf("read the charts in %s/: %w", chartsDir, err)
	}
	return list, nil
}

func (c *Chart) vendored(l artifact.Limits, b *Budget) ([]*chart.Metadata, error) {
	info, err := fs.Stat(c.Files, chartsDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(c.Files, chartsDir)
	if err != nil {
		return nil, err
	}
	var list []*chart.Metadata
	for _, e := range entries {
		if passedOver(e.Name()) {
			continue
		}
		m, err := c.vendoredOne(e, l, b)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", e.Name(), err)
		}
		if m != nil {
			list = append(list, m)
		}
	}
	return list, nil
}

// passedOver reports whether an entry of charts/ has a name that counts for nothing.
func passedOver(name string) bool {
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".")
}

// vendoredOne returns the metadata of an entry of charts/, nil when it is passed
// over.
func (c *Chart) vendoredOne(e fs.DirEntry, l artifact.Limits, b *Budget) (*chart.Metadata, error) {
	name, archive := path.Join(chartsDir, e.Name()), path.Ext(e.Name()) == ".tgz"
	switch {
	case e.IsDir() != archive && e.IsDir():
		files, err := fs.Sub(c.Files, name)
		if err != nil {
			return nil, err
		}
		if empty, err := noFiles(files); empty || err != nil {
			return nil, err
		}
		return readMetadata(files)
	case !e.IsDir() && archive:
		return c.vendoredArchive(name, l, b)
	case !e.IsDir() && path.Ext(e.Name()) == ".prov":
		return nil, nil
	}
	return nil, fmt.Errorf("%w: it must be a directory or a file .tgz, or have a name that begins with _", ErrChart)
}

func (c *Chart) vendoredArchive(name string, l artifact.Limits, b *Budget) (*chart.Metadata, error) {
	f, err := c.Files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := readArchive(f, l)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.Spend(a), a.Close()); err != nil {
		return nil, err
	}
	return a.Metadata, nil
}

// noFiles reports whether files has none but provenance files.
func noFiles(files fs.FS) (bool, error) {
	found := errors.New("found")
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) != ".prov" {
			return found
		}
		return err
	})
	if errors.Is(err, found) {
		return false, nil
	}
	return err == nil, err
}
