package main

import (
	"archive/tar"
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

// An artifactLookup finds the artifacts that arguments of commands name.
type artifactLookup struct {
	store    string
	digest   string
	maxBytes int64                    // uncompressed: of an archive, or of the files that headgate packed
	temp     func() (*os.File, error) // as in [artifact.Limits]

	// About the artifact that was opened last:
	stored bool              // it is from the store
	found  artifact.Artifact // as the store has it, the zero value when it is not from there
	object source.Object     // whose artifact it is, if that is known
}

func (l *artifactLookup) register(c *cobra.Command) {
	registerStore(c, &l.store)
	c.Flags().StringVar(&l.digest, "digest", "", "`ALGORITHM:HEX` that the content must have; needed for a URL")
	registerLimit(c, &l.maxBytes)
}

// maxCopied bounds a layer that was copied unless --max-bytes does: as one that is extracted.
const maxCopied = 16 << 30

// limits returns those of the artifact that was opened last. One file may be as
// large as the whole.
func (l *artifactLookup) limits() artifact.Limits {
	limits := artifact.Limits{Bytes: l.maxBytes, FileBytes: l.maxBytes, Temp: l.temp}
	switch {
	case !l.stored:
	case l.copied() && l.maxBytes >= 0:
		limits.Bytes = cmp.Or(l.maxBytes, maxCopied)
		limits.FileBytes = limits.Bytes
	default: // it was within the limits of its origin, which do not count headers: see tree
		limits.Bytes, limits.FileBytes, limits.Entries, limits.Ratio = -1, cmp.Or(l.maxBytes, -1), -1, -1
	}
	return limits
}

// copied reports whether the artifact may be a layer as its registry had it,
// which no limit was applied to when it was stored.
func (l *artifactLookup) copied() bool {
	if repo, ok := l.object.(*source.OCIRepository); ok {
		made := repo.Status.ObservedLayerSelector
		return made != nil && made.Operation == source.LayerCopy
	}
	return strings.HasPrefix(l.found.Path, "ocirepository/")
}

// tree reads the artifact that was opened last.
func (l *artifactLookup) tree(r io.Reader) (*artifact.Tree, error) {
	tree, err := readTree(r, l.found, l.limits())
	if err == nil && l.stored && l.maxBytes > 0 && tree.Report().Bytes > l.maxBytes {
		err = errors.Join(&artifact.LimitError{What: "bytes", Limit: l.maxBytes}, tree.Close())
	}
	if _, ok := errors.AsType[*artifact.LimitError](err); ok && l.stored {
		return nil, fmt.Errorf("%w: --max-bytes sets that of bytes, --max-bytes=-1 lifts all", err)
	}
	return tree, err
}

// open opens the artifact that arg names; its content is checked against the
// digest while it is read, if one is known.
func (l *artifactLookup) open(ctx context.Context, arg string) (io.ReadCloser, error) {
	l.stored, l.found, l.object = false, artifact.Artifact{}, nil
	if strings.Contains(arg, "://") {
		if l.digest == "" {
			return nil, usage("%s: --digest is needed for a URL", arg)
		}
		return (&artifact.Client{}).Open(ctx, artifact.Artifact{URL: arg, Digest: l.digest})
	}
	if f, err := os.Open(arg); err == nil {
		return l.checked(f)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	store, err := openExisting(l.store)
	if err != nil {
		return nil, fmt.Errorf("no such file, and %w", err)
	}
	defer store.Close()
	var a artifact.Artifact
	if a, l.object, err = find(l.store, store, arg); err != nil {
		return nil, fmt.Errorf("no such file, nor in the store %s: %w", l.store, err)
	}
	if l.digest != "" && l.digest != a.Digest {
		return nil, fmt.Errorf("%s has digest %s, not %s", arg, a.Digest, l.digest)
	}
	l.stored, l.found = true, a
	return store.Open(a)
}

func (l *artifactLookup) checked(f *os.File) (io.ReadCloser, error) {
	if info, err := f.Stat(); err != nil || info.IsDir() {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is a directory: want a file, an object or a URL", f.Name()))
	}
	if l.digest == "" {
		return f, nil
	}
	r, err := artifact.VerifyReader(f, l.digest)
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
func (l *artifactLookup) read(ctx context.Context, arg string, use func(*artifact.Tree) error) error {
	r, err := l.open(ctx, arg)
	if err != nil {
		return err
	}
	defer r.Close()
	tree, err := l.tree(r)
	if err != nil {
		return fmt.Errorf("%s: %w", redact.String(arg), err)
	}
	defer tree.Close()
	return use(tree)
}

// readTree reads the stored artifact a as a tree. An index of charts is no
// archive: it is the file index.yaml of one.
func readTree(r io.Reader, a artifact.Artifact, l artifact.Limits) (*artifact.Tree, error) {
	if !isIndex(a) {
		return artifact.Read(r, l)
	}
	archive, w := io.Pipe()
	defer archive.Close()
	go func() {
		t := tar.NewWriter(w)
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "index.yaml", Size: a.Size, Mode: 0o644})
		if err == nil {
			_, err = io.Copy(t, r)
		}
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return artifact.Read(archive, l)
}

// isIndex reports whether a is the artifact of a PkgRepository.
func isIndex(a artifact.Artifact) bool { return strings.HasPrefix(a.Path, "pkgrepository/") }
