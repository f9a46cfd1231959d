package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/ignore"

	"github.com/headgate-io/headgate/artifact"
)

// Open opens the chart at a path of tree: a directory, or an archive, which it reads like
// [ReadArchive]. A directory is not copied: the chart is usable only as long as tree is.
//
// Errors wrap [ErrChart] if the content is not a chart, fs.ErrNotExist if nothing is there,
// and fs.ErrInvalid if name is not a valid path of io/fs.
func Open(tree fs.FS, name string, l artifact.Limits) (*Chart, error) {
	c, err := open(tree, name, l)
	if err != nil {
		return nil, fmt.Errorf("open chart %q: %w", name, err)
	}
	return c, nil
}

func open(tree fs.FS, name string, l artifact.Limits) (*Chart, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	info, err := fs.Stat(tree, name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		files, err := fs.Sub(tree, name)
		if err == nil {
			files, err = withoutIgnored(files)
		}
		if err != nil {
			return nil, err
		}
		return load(files)
	case !info.Mode().IsRegular():
		return nil, irregularError(name, info.Mode())
	}
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readArchive(f, Limits(l))
}

// ReadArchive reads a whole .tgz: r is read to its end. Zero limits are those of [Limits];
// l.Temp creates the two spools, one for the archive and one for its content.
//
// Errors wrap [ErrChart], with an [*artifact.LimitError] if a limit was exceeded, or are
// those of r or of a spool.
func ReadArchive(r io.Reader, l artifact.Limits) (*Chart, error) {
	c, err := readArchive(r, Limits(l))
	if err != nil {
		return nil, fmt.Errorf("read chart: %w", err)
	}
	return c, nil
}

func readArchive(r io.Reader, l artifact.Limits) (_ *Chart, err error) {
	file, err := l.Spool()
	if err != nil {
		return nil, err
	}
	held := &Chart{archive: file}
	defer func() {
		if err != nil {
			err = errors.Join(err, held.Close())
		}
	}()
	sum := sha256.New()
	in := &spoolReader{r: r, to: io.MultiWriter(file, sum)}
	var limit *artifact.LimitError
	held.tree, err = artifact.Read(in, l)
	switch {
	case in.err != nil:
		return nil, in.err
	case errors.As(err, &limit), errors.Is(err, artifact.ErrFormat):
		return nil, fmt.Errorf("%w: %w", ErrChart, err)
	case err != nil:
		return nil, err
	}
	head := make([]byte, 3)
	if _, err := file.ReadAt(head, 0); err != nil || !bytes.Equal(head, []byte{0x1f, 0x8b, 8}) {
		return nil, fmt.Errorf("%w: the archive is not compressed by gzip", ErrChart)
	}
	files, err := topDirectory(held.tree)
	if err != nil {
		return nil, err
	}
	c, err := load(files)
	if err != nil {
		return nil, err
	}
	c.archive, c.tree, c.Size, c.Digest = file, held.tree, in.n, "sha256:"+hex.EncodeToString(sum.Sum(nil))
	return c, nil
}

// A spoolReader reads from r and copies everything that it reads to a spool.
type spoolReader struct {
	r   io.Reader
	to  io.Writer
	n   int64
	err error // of r or of to
}

func (s *spoolReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if _, failed := s.to.Write(p[:n]); failed != nil {
		err = fmt.Errorf("write spool: %w", failed)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// topDirectory returns the content of the single directory at the top of an archive.
func topDirectory(tree *artifact.Tree) (fs.FS, error) {
	report := tree.Report()
	top, err := tree.ReadDir(".")
	switch {
	case err != nil:
		return nil, err
	case len(report.LeftOut) > 0:
		return nil, irregularError(report.LeftOut[0].Name, report.LeftOut[0].Mode)
	case len(report.Replaced) > 0:
		return nil, fmt.Errorf("%w: the archive has %q more than once", ErrChart, report.Replaced[0])
	case len(report.Respelled) > 0:
		return nil, fmt.Errorf("%w: the archive spells %q with empty parts or dots: package it with the package manager", ErrChart, report.Respelled[0])
	case len(top) != 1 || !top[0].IsDir():
		return nil, fmt.Errorf("%w: the archive must have one directory at the top and nothing beside it", ErrChart)
	case top[0].Name() == chartFile:
		return nil, fmt.Errorf("%w: the directory at the top must not be named %s", ErrChart, chartFile)
	}
	return fs.Sub(tree, top[0].Name())
}

// irregularError returns the error about an entry that charts must not contain.
func irregularError(name string, mode fs.FileMode) error {
	what := "a device or pipe"
	if mode&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
		what = "a link"
	}
	return fmt.Errorf("%w: %q is %s: charts hold none", ErrChart, name, what)
}

// Archived reports whether the chart came in an archive.
func (c *Chart) Archived() bool { return c.archive != nil }

// WriteTo writes the archive unchanged. The chart must be archived.
func (c *Chart) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.NewSectionReader(c.archive, 0, c.Size))
}

// Close releases the archive. After that, only the metadata of the chart can be used.
func (c *Chart) Close() error {
	var errs []error
	if c.tree != nil {
		errs = append(errs, c.tree.Close())
	}
	if c.archive != nil {
		errs = append(errs, c.archive.Close())
	}
	return errors.Join(errs...)
}

// A Budget limits the size of several archives together, in bytes before compression. It is
// safe for concurrent use.
type Budget struct {
	limit int64 // negative for none
	spent atomic.Int64
}

// NewBudget returns a budget of l.Bytes, or of the default for charts.
func NewBudget(l artifact.Limits) *Budget { return &Budget{limit: Limits(l).Bytes} }

// Spend takes the size of c from the budget, if c came in an archive. If too little is
// left, the error wraps [ErrChart] and an [*artifact.LimitError].
func (b *Budget) Spend(c *Chart) error {
	if c.tree == nil {
		return nil
	}
	r := c.tree.Report()
	if spent := b.spent.Add(r.Bytes + 512*int64(r.Files+r.Dirs)); b.limit >= 0 && spent > b.limit { // includes the headers
		return fmt.Errorf("%w: %w", ErrChart, &artifact.LimitError{What: "bytes in all archives together", Limit: b.limit})
	}
	return nil
}

// Vendored returns the metadata of the charts in directory charts/, archives and
// directories alike, sorted by file name. Like the package manager, it skips names that
// begin with _ or ., provenance files, and directories without files. Everything else must
// be a chart; charts inside them are not read.
//
// The limits apply to each archive, and l.Bytes also to all together. Errors wrap
// [ErrChart] and name the entry.
func (c *Chart) Vendored(l artifact.Limits) ([]*chart.Metadata, error) {
	if info, err := fs.Stat(c.Files, chartsDir); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	entries, err := fs.ReadDir(c.Files, chartsDir)
	budget := NewBudget(l)
	var list []*chart.Metadata
	for _, e := range entries {
		if isSkippedName(e.Name()) || !e.IsDir() && path.Ext(e.Name()) == ".prov" {
			continue
		}
		var m *chart.Metadata
		if m, err = c.entryMetadata(e, Limits(l), budget); err != nil {
			err = fmt.Errorf("%q: %w", e.Name(), err)
			break
		}
		if m != nil {
			list = append(list, m)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the charts in %s/: %w", chartsDir, err)
	}
	return list, nil
}

// isSkippedName reports whether the package manager skips entries of charts/ with this name.
func isSkippedName(name string) bool { return name[0] == '_' || name[0] == '.' }

// entryMetadata returns the metadata of an entry of charts/, nil for a directory without files.
func (c *Chart) entryMetadata(e fs.DirEntry, l artifact.Limits, b *Budget) (*chart.Metadata, error) {
	name := path.Join(chartsDir, e.Name())
	if archive := path.Ext(name) == ".tgz"; e.IsDir() == archive {
		return nil, fmt.Errorf("%w: it must be a directory or a file .tgz, or have a name that begins with _", ErrChart)
	}
	if !e.IsDir() {
		a, err := open(c.Files, name, l)
		if err != nil {
			return nil, err
		}
		return a.Metadata, errors.Join(b.Spend(a), a.Close())
	}
	files, err := fs.Sub(c.Files, name)
	if err != nil {
		return nil, err
	}
	found := errors.New("found")
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) != ".prov" {
			return found
		}
		return err
	})
	if err != found {
		return nil, err
	}
	return readMetadata(files)
}

// Limits of an ignore file.
const (
	ignoreBytes = 64 << 10
	ignoreLines = 1000
)

// withoutIgnored returns the files of a directory without those that .helmignore excludes,
// as the package manager reads it. It returns an error if the rest contains anything but
// directories and regular files.
func withoutIgnored(files fs.FS) (fs.FS, error) {
	text, err := readFile(files, ignoreFile, ignoreBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line := strings.TrimSpace(string(line)) // helm validates a pattern only in part, and logs later errors
		if _, err := path.Match(line, ""); err != nil && line[0] != '#' || n > ignoreLines {
			return nil, invalid(ignoreFile, fmt.Errorf("line %d: it is no pattern, or more than %d lines", n, ignoreLines))
		}
	}
	rules, err := ignore.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, invalid(ignoreFile, err)
	}
	rules.AddDefaults()
	v := filteredFS{files, map[string]bool{}}
	return v, fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case rules.Ignore(name, info) && d.IsDir():
			return fs.SkipDir
		case rules.Ignore(name, info):
			return nil
		case !d.IsDir() && !d.Type().IsRegular():
			return irregularError(name, d.Type())
		}
		v.has[name] = true
		return nil
	})
}

// A filteredFS is a tree that shows only some names. It implements [fs.ReadDirFS]; a directory
// that was opened with Open is that of the tree.
type filteredFS struct {
	tree fs.FS
	has  map[string]bool
}

func (v filteredFS) Open(name string) (fs.File, error) {
	if !v.has[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return v.tree.Open(name)
}

func (v filteredFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !v.has[name] {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	all, err := fs.ReadDir(v.tree, name)
	return slices.DeleteFunc(slices.Clone(all), func(e fs.DirEntry) bool { return !v.has[path.Join(name, e.Name())] }), err
}
