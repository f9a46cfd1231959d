package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// A shelf is where artifact commands find artifacts.
type shelf struct {
	store    string
	digest   string
	maxBytes int64                    // uncompressed: of an archive, or of the files that headgate packed
	temp     func() (*os.File, error) // as in [artifact.Limits]

	// About the artifact that was opened last:
	stored bool              // it is from the store
	found  artifact.Artifact // as the store has it, the zero value when it is not from there
	object source.Object     // whose artifact it is, if that is known
}

func (s *shelf) register(c *cobra.Command) {
	registerStore(c, &s.store)
	c.Flags().StringVar(&s.digest, "digest", "", "`ALGORITHM:HEX` that the content must have; needed for a URL")
	registerLimit(c, &s.maxBytes)
}

// maxCopied bounds a layer that was copied unless --max-bytes does: as one that is extracted.
const maxCopied = 16 << 30

// limits returns those of the artifact that was opened last. One file may be as
// large as the whole.
func (s *shelf) limits() artifact.Limits {
	l := artifact.Limits{Bytes: s.maxBytes, FileBytes: s.maxBytes, Temp: s.temp}
	switch {
	case !s.stored:
	case s.copied() && s.maxBytes >= 0:
		l.Bytes = cmp.Or(s.maxBytes, maxCopied)
		l.FileBytes = l.Bytes
	default: // it was within the limits of its origin, which do not count headers: see tree
		l.Bytes, l.FileBytes, l.Entries, l.Ratio = -1, cmp.Or(s.maxBytes, -1), -1, -1
	}
	return l
}

// copied reports whether the artifact may be a layer as its registry had it,
// which no limit was applied to when it was stored.
func (s *shelf) copied() bool {
	if repo, ok := s.object.(*source.OCIRepository); ok {
		made := repo.Status.ObservedLayerSelector
		return made != nil && made.Operation == source.LayerCopy
	}
	return strings.HasPrefix(s.found.Path, "ocirepository/")
}

// tree reads the artifact that was opened last.
func (s *shelf) tree(r io.Reader) (*artifact.Tree, error) {
	tree, err := readTree(r, s.found, s.limits())
	if err == nil && s.stored && s.maxBytes > 0 && tree.Report().Bytes > s.maxBytes {
		err = errors.Join(&artifact.LimitError{What: "bytes", Limit: s.maxBytes}, tree.Close())
	}
	if _, ok := errors.AsType[*artifact.LimitError](err); ok && s.stored {
		return nil, fmt.Errorf("%w: --max-bytes sets that of bytes, --max-bytes=-1 lifts all", err)
	}
	return tree, err
}

// open opens the artifact that arg names; its content is checked against the
// digest while it is read, if one is known.
func (s *shelf) open(ctx context.Context, arg string) (io.ReadCloser, error) {
	s.stored, s.found, s.object = false, artifact.Artifact{}, nil
	if strings.Contains(arg, "://") {
		if s.digest == "" {
			return nil, usage("%s: --digest is needed for a URL", arg)
		}
		return (&artifact.Client{}).Open(ctx, artifact.Artifact{URL: arg, Digest: s.digest})
	}
	if f, err := os.Open(arg); err == nil {
		return s.checked(f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	store, err := openExisting(s.store)
	if err != nil {
		return nil, fmt.Errorf("no such file, and %w", err)
	}
	defer store.Close()
	var a artifact.Artifact
	if a, s.object, err = find(s.store, store, arg); err != nil {
		return nil, fmt.Errorf("no such file, nor in the store %s: %w", s.store, err)
	}
	if s.digest != "" && s.digest != a.Digest {
		return nil, fmt.Errorf("%s has digest %s, not %s", arg, a.Digest, s.digest)
	}
	s.stored, s.found = true, a
	return store.Open(a)
}

func (s *shelf) checked(f *os.File) (io.ReadCloser, error) {
	if info, err := f.Stat(); err != nil || info.IsDir() {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is a directory: want a file, an object or a URL", f.Name()))
	}
	if s.digest == "" {
		return f, nil
	}
	r, err := artifact.VerifyReader(f, s.digest)
	if err != nil {
		f.Close()
		return nil, usage("--digest: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{r, f}, nil
}

// openExisting opens a store, and does not make one where there is none.
func openExisting(dir string) (*artifact.Store, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no store: %w", err)
	}
	return artifact.OpenStore(artifact.StoreConfig{Dir: dir})
}

// find returns the artifact of an object, or the one at a path of the store,
// whose object is nil.
func find(dir string, store *artifact.Store, arg string) (a artifact.Artifact, obj source.Object, err error) {
	if n := strings.Count(arg, "/"); n < 3 {
		set, err := ledgerOf(dir).List()
		if err != nil {
			return a, nil, err
		}
		found, err := set.Find(arg)
		switch {
		case err != nil:
			return a, nil, err
		case len(found) > 1:
			return a, nil, usage("%s names %d objects: write KIND/NAMESPACE/NAME", arg, len(found))
		case found[0].Artifact() == nil:
			return a, nil, fmt.Errorf("%s has no artifact", arg)
		}
		return *found[0].Artifact(), found[0], nil
	}
	for a, err := range store.All() {
		if err != nil || a.Path == arg {
			return a, nil, err
		}
	}
	return a, nil, fmt.Errorf("no artifact has that path: %w", fs.ErrNotExist)
}

// read opens an artifact as a tree and hands it to use.
func (s *shelf) read(ctx context.Context, arg string, use func(*artifact.Tree) error) error {
	r, err := s.open(ctx, arg)
	if err != nil {
		return err
	}
	defer r.Close()
	tree, err := s.tree(r)
	if err != nil {
		return fmt.Errorf("%s: %w", redact.String(arg), err)
	}
	defer tree.Close()
	return use(tree)
}
