package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate-io/headgate/artifact"
)

// An Archive is a chart in a file as it came (.tgz).
type Archive struct {
	*Chart
	Size   int64
	Digest string // sha256:HEX of the file

	file *os.File // the bytes as they came
	tree *artifact.Tree
}

// ReadArchive reads a .tgz, whole: r is read to its end. Zero limits are those
// of [Limits]; l.Temp makes the two spools, one for the file as it came and one
// for what it holds. Close the archive to remove them.
//
// Errors wrap [ErrChart], with an [*artifact.LimitError] where a limit is the
// cause, or are those of r or of a spool.
func ReadArchive(r io.Reader, l artifact.Limits) (*Archive, error) {
	a, err := readArchive(r, Limits(l))
	if err != nil {
		return nil, fmt.Errorf("read chart: %w", err)
	}
	return a, nil
}

func readArchive(r io.Reader, l artifact.Limits) (_ *Archive, err error) {
	a := &Archive{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.file, err = l.Spool(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	in := &copied{r: r, to: io.MultiWriter(a.file, sum)}
	if a.tree, err = artifact.Read(in, l); err != nil {
		return nil, in.blame(err)
	}
	if !in.gzip() {
		return nil, fmt.Errorf("%w: the archive is not compressed by gzip", ErrChart)
	}
	files, err := inside(a.tree)
	if err != nil {
		return nil, err
	}
	if a.Chart, err = load(files); err != nil {
		return nil, err
	}
	a.Size, a.Digest = in.n, "sha256:"+hex.EncodeToString(sum.Sum(nil))
	return a, nil
}

// WriteTo writes the file as it came.
func (a *Archive) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.NewSectionReader(a.file, 0, a.Size))
}

// Close releases the file. Nothing of the chart can be read any more, except its
// metadata.
func (a *Archive) Close() error {
	var errs []error
	if a.tree != nil {
		errs = append(errs, a.tree.Close())
	}
	if a.file != nil {
		errs = append(errs, a.file.Close())
	}
	return errors.Join(errs...)
}

// inside returns what the one directory at the top of an archive holds.
func inside(tree *artifact.Tree) (fs.FS, error) {
	report := tree.Report()
	if len(report.LeftOut) > 0 {
		return nil, irregular(report.LeftOut[0].Name, report.LeftOut[0].Mode)
	}
	if len(report.Replaced) > 0 {
		return nil, fmt.Errorf("%w: the archive has %q more than once", ErrChart, report.Replaced[0])
	}
	if len(report.Respelled) > 0 {
		return nil, fmt.Errorf("%w: the archive spells %q with empty parts or dots: package it with the package manager", ErrChart, report.Respelled[0])
	}
	top, err := tree.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if len(top) != 1 || !top[0].IsDir() {
		return nil, fmt.Errorf("%w: the archive must have one directory at the top and nothing beside it", ErrChart)
	}
	if top[0].Name() == chartFile {
		return nil, fmt.Errorf("%w: the directory at the top must not be named %s", ErrChart, chartFile)
	}
	files, err := fs.Sub(tree, top[0].Name())
	if err != nil {
		return nil, err
	}
	return files, checkRoot(files)
}

// irregular is the error about an entry that charts do not hold.
func irregular(name string, mode fs.FileMode) error {
	what := "a device or pipe"
	if mode&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
		what = "a link"
	}
	return fmt.Errorf("%w: %q is %s: charts hold none", ErrChart, name, what)
}

// A copied is a reader of r that writes what it reads to another place.
type copied struct {
	r    io.Reader
	to   io.Writer
	head [3]byte
	n    int64
	err  error // of r or of to
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n < int64(len(c.head)) {
		copy(c.head[c.n:], p[:n])
	}
	c.n += int64(n)
	if _, failed := c.to.Write(p[:n]); failed != nil {
		err = fmt.Errorf("write spool: %w", failed)
	}
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// gzip reports whether what was read begins as gzip does.
func (c *copied) gzip() bool { return c.head == [3]byte{0x1f, 0x8b, 8} }

// blame returns err, of who read from c: as it is when c failed or a spool did,
// otherwise the chart is to blame.
func (c *copied) blame(err error) error {
	var limit *artifact.LimitError
	if c.err != nil {
		return c.err
	}
	if errors.As(err, &limit) || errors.Is(err, artifact.ErrFormat) {
		return fmt.Errorf("%w: %w", ErrChart, err)
	}
	return err
}
