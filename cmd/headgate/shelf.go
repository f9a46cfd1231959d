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
	maxBytes int64 // of an archive, uncompressed

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

// ofStore returns the limits of what is in a store: it was within those of its
// origin when it was put there.
func ofStore() artifact.Limits {
	return artifact.Limits{Bytes: -1, FileBytes: -1, Entries: -1, Ratio: -1}
}

// limits returns those of the artifact that was opened last. One file may be as
// large as the whole.
func (s *shelf) limits() artifact.Limits {
	l := artifact.Limits{FileBytes: s.maxBytes}
	if s.stored {
		l = ofStore()
	}
	l.Bytes = cmp.Or(s.maxBytes, l.Bytes)
	return l
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
	tree, err := readTree(r, s.found, s.limits())
	if err != nil {
		return fmt.Errorf("%s: %w", redact.String(arg), err)
	}
	defer tree.Close()
	return use(tree)
}
