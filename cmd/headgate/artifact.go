package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

func (p *program) artifact() *cobra.Command {
	c := group("artifact", "Work with stored artifacts", p.inspect(), p.extractStored(), p.verifyStored(), p.artifactServe(), p.gc())
	c.Long = `An ARTIFACT is an object of the store (KIND/NAME or KIND/NAMESPACE/NAME), a path in the store, a file, or a URL, which
needs --digest.`
	return c
}

func (p *program) inspect() *cobra.Command {
	var l artifactLookup
	c := &cobra.Command{
		Use:               "inspect [ARTIFACT]",
		Short:             "List the store, or the entries of one artifact",
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: completeStored(&l.store),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.listStore(l.store)
			}
			return l.read(c.Context(), args[0], p.listTree)
		},
	}
	l.register(c)
	return c
}

func (p *program) listStore(dir string) error {
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	lines := [][]string{{"PATH", "SIZE", "UPDATED"}}
	for a, err := range store.All() {
		if err != nil {
			return err
		}
		lines = append(lines, []string{a.Path, humanSize(a.Size), a.LastUpdateTime.Format(time.RFC3339)})
	}
	return p.table(true).print(lines...)
}

func (p *program) listTree(tree *artifact.Tree) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "%s %10d  %s\n", info.Mode(), info.Size(), redact.String(name))
		}
		return err
	})
}

func (p *program) extractStored() *cobra.Command {
	var l artifactLookup
	var to outFlags
	c := &cobra.Command{
		Use:               "extract ARTIFACT --out DIR",
		Short:             "Extract an artifact; DIR is replaced as a whole",
		Long:              outRule,
		Args:              rangeArgs(1, 1),
		ValidArgsFunction: completeStored(&l.store),
		RunE: func(c *cobra.Command, args []string) error {
			if to.out == "" {
				return usage("--out DIR is needed")
			}
			err := to.check(c.Context(), to.out)
			if err == nil {
				err = l.read(c.Context(), args[0], func(tree *artifact.Tree) error { return to.extract(c.Context(), tree, to.out) })
			}
			return err
		},
	}
	l.register(c)
	to.register(c, "`DIR` to extract to")
	return c
}

func (p *program) verifyStored() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:               "verify [ARTIFACT]...",
		Short:             "Hash stored artifacts again and compare them with their digests",
		ValidArgsFunction: completeStored(&dir),
		RunE:              func(c *cobra.Command, args []string) error { return p.rehash(c.Context(), dir, args) },
	}
	registerStore(c, &dir)
	return c
}

// rehash verifies the artifacts that args name, or all of them, and every
// artifact that a status refers to.
func (p *program) rehash(ctx context.Context, dir string, args []string) error {
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	var errs []error
	seen := map[string]bool{}
	check := func(a artifact.Artifact, err error) {
		seen[a.Path] = true
		if err == nil {
			err = store.Verify(ctx, a)
		}
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "%s ok\n", a.Path)
		}
		errs = append(errs, err)
	}
	for _, arg := range args {
		a, _, err := findStored(dir, store, arg)
		check(a, err)
	}
	if len(args) > 0 {
		return errors.Join(errs...)
	}
	for a, err := range store.All() {
		check(a, err)
	}
	set, err := ledgerOf(dir).List()
	errs = append(errs, err)
	for _, obj := range set.Objects {
		if a := obj.Artifact(); a != nil && !seen[a.Path] {
			errs = append(errs, fmt.Errorf("%s: its artifact %s is missing", obj.Head(), a.Path))
		}
	}
	return errors.Join(errs...)
}

func (p *program) gc() *cobra.Command {
	const storeCache = "in the store" // the value of --cache if it is given without a value
	var dir, cache string
	var dry bool
	c := &cobra.Command{
		Use:   "gc",
		Short: "Remove artifacts that no object refers to, and leftovers of killed processes",
		Args:  rangeArgs(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			err := p.collectGarbage(c.Context(), dir, dry)
			if cache == storeCache {
				cache = filepath.Join(dir, cacheName)
			}
			if cache != "" && exists(cache) {
				err = errors.Join(err, p.clearCache(cache, dry))
			}
			return err
		},
	}
	registerStore(c, &dir)
	c.Flags().StringVar(&cache, "cache", "", "also empty the cache of the store, or with --cache=`DIR` another one; fetches and servers may be using it")
	c.Flags().Lookup("cache").NoOptDefVal = storeCache
	c.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	return c
}

func (p *program) collectGarbage(ctx context.Context, dir string, dry bool) error {
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	set, err := ledgerOf(dir).List()
	if err != nil {
		return fmt.Errorf("nothing was removed: %w", err) // an unreadable status may refer to any artifact
	}
	current := map[string]bool{}
	for _, obj := range set.Objects {
		if a := obj.Artifact(); a != nil {
			current[a.Path] = true
		}
	}
	removed, err := store.GC(ctx, artifact.GCConfig{DryRun: dry, Keep: func(a artifact.Artifact) bool { return current[a.Path] }})
	var size int64
	for _, a := range removed {
		size += a.Size
		fmt.Fprintln(p.stdout, a.Path)
	}
	if err != nil || dry {
		return err
	}
	swept, err := store.Sweep(ctx)
	fmt.Fprintf(p.stderr, "removed %d artifacts and %d temporary files, %s\n", len(removed), swept.Files, humanSize(size+swept.Bytes))
	return err
}

// clearCache empties the cache in a directory.
func (p *program) clearCache(dir string, dry bool) error {
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: dir})
	if err != nil {
		return err
	}
	defer cache.Close()
	if dry {
		size, err := cache.Size()
		fmt.Fprintf(p.stderr, "would empty the cache %s: %s\n", dir, humanSize(size))
		return err
	}
	entries, size, err := cache.Clear()
	fmt.Fprintf(p.stderr, "emptied the cache %s: %d entries, %s\n", dir, entries, humanSize(size))
	return err
}

func (p *program) artifactServe() *cobra.Command {
	var dir string
	at := httpserve.Endpoint{Grace: 10 * time.Second}
	var logs logFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the artifacts of a store over HTTP",
		Long: `Serve answers GET and HEAD requests for artifacts, with ranges and conditions, and nothing else. It needs no token, so it
listens on loopback; other addresses need --insecure-listen. headgate serve has tokens, certificates and TLS.`,
		Args: rangeArgs(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.runArtifactServe(c.Context(), dir, at, &logs) },
	}
	registerStore(c, &dir)
	c.Flags().StringVar(&at.Addr, "addr", "127.0.0.1:9090", "`HOST:PORT` to listen on; port 0 takes a free one")
	c.Flags().BoolVar(&at.Insecure, "insecure-listen", false, "listen where other machines can reach it: any client can read all artifacts")
	logs.register(c)
	return c
}

func (p *program) runArtifactServe(ctx context.Context, dir string, at httpserve.Endpoint, logs *logFlags) error {
	if err := checkHostPort(at.Addr); err != nil {
		return err
	}
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := httpserve.Listen(at, false, "", nil)
	switch {
	case errors.Is(err, httpserve.ErrExposed):
		return usage("--addr: %w: give --insecure-listen, or serve with headgate serve and --tokens", err)
	case err != nil:
		return listenError(err)
	}
	fmt.Fprintf(p.stdout, "serving %s at %s\n", dir, l.URL)
	handler := store.Handler()
	return l.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpserve.HostAllowed(r) {
			handler.ServeHTTP(httpserve.NewWriter(w, r), r)
			return
		}
		http.Error(w, fmt.Sprintf("Forbidden: the request is for the host %q, and this answers those for this machine alone: "+
			"call it by its IP address or as localhost, or serve with --insecure-listen", r.Host), http.StatusForbidden)
	}), logs.logger(p.stderr), func(context.Context) error { return nil })
}

// An artifactLookup finds artifacts by the arguments of commands.
type artifactLookup struct {
	store    string
	digest   string
	maxBytes int64                    // limit of uncompressed bytes: of an archive, or of the files that headgate packed
	temp     func() (*os.File, error) // as in [artifact.Limits]

	// About the artifact that was opened last:
	stored bool              // it came from the store
	found  artifact.Artifact // as the store lists it; zero if it did not come from the store
	object source.Object     // the object of the artifact, if it is known
}

func (l *artifactLookup) register(c *cobra.Command) {
	registerStore(c, &l.store)
	c.Flags().StringVar(&l.digest, "digest", "", "`ALGORITHM:HEX` that the content must have; needed for a URL")
	registerLimit(c, &l.maxBytes)
}

// limits returns the limits of the artifact that was opened last. One file may be
// as large as the whole artifact. A copied layer was stored without a limit on
// its content. Other stored artifacts were within the limits of their origin,
// which do not count tar headers, so tree checks them.
func (l *artifactLookup) limits() artifact.Limits {
	const most = 16 << 30 // bytes of a copied layer; the same as for an extracted layer
	copied := strings.HasPrefix(l.found.Path, "ocirepository/")
	if repo, ok := l.object.(*source.OCIRepository); ok {
		selector := repo.Status.ObservedLayerSelector
		copied = selector != nil && selector.Operation == source.LayerCopy
	}
	limits := artifact.Limits{Bytes: l.maxBytes, FileBytes: l.maxBytes, Temp: l.temp}
	switch {
	case !l.stored:
	case copied && l.maxBytes >= 0:
		limits.Bytes = cmp.Or(l.maxBytes, most)
		limits.FileBytes = limits.Bytes
	default:
		limits.Bytes, limits.FileBytes, limits.Entries, limits.Ratio = -1, cmp.Or(l.maxBytes, -1), -1, -1
	}
	return limits
}

// tree reads the artifact that was opened last.
func (l *artifactLookup) tree(r io.Reader) (*artifact.Tree, error) {
	if isIndex(l.found) { // the index is not an archive: wrap it as the only file of one
		var head bytes.Buffer
		err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "index.yaml", Size: l.found.Size, Mode: 0o644})
		if err != nil {
			return nil, err
		}
		padding := 512 - l.found.Size%512 // pads the file; two empty blocks end the archive
		r = io.MultiReader(&head, r, bytes.NewReader(make([]byte, padding+1024)))
	}
	tree, err := artifact.Read(r, l.limits())
	if err == nil && l.stored && l.maxBytes > 0 && tree.Report().Bytes > l.maxBytes {
		err = errors.Join(&artifact.LimitError{What: "bytes", Limit: l.maxBytes}, tree.Close())
	}
	if _, ok := errors.AsType[*artifact.LimitError](err); ok && l.stored {
		return nil, fmt.Errorf("%w: --max-bytes sets that of bytes, --max-bytes=-1 lifts all", err)
	}
	return tree, err
}

// isIndex reports whether a is the artifact of a PkgRepository.
func isIndex(a artifact.Artifact) bool { return strings.HasPrefix(a.Path, "pkgrepository/") }

// open opens the artifact that arg names: a URL, a file, or an artifact in the
// store. Reading it verifies its digest if that is known.
func (l *artifactLookup) open(ctx context.Context, arg string) (io.ReadCloser, error) {
	l.stored, l.found, l.object = false, artifact.Artifact{}, nil
	if strings.Contains(arg, "://") {
		if l.digest == "" {
			return nil, usage("%s: --digest is needed for a URL", arg)
		}
		return (&artifact.Client{}).Open(ctx, artifact.Artifact{URL: arg, Digest: l.digest})
	}
	f, err := os.Open(arg)
	switch {
	case err == nil && isDir(arg):
		return nil, errors.Join(fmt.Errorf("%s is a directory: want a file, an object or a URL", arg), f.Close())
	case err == nil && l.digest != "":
		r, err := artifact.VerifyReader(f, l.digest)
		if err != nil {
			return nil, errors.Join(usage("--digest: %w", err), f.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{r, f}, nil
	case err == nil || !errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(arg, ".") || filepath.IsAbs(arg):
		return f, err
	}
	store, err := openExisting(l.store)
	if err != nil {
		return nil, fmt.Errorf("no such file, and %w", err)
	}
	defer store.Close()
	if l.found, l.object, err = findStored(l.store, store, arg); err != nil {
		return nil, fmt.Errorf("no such file, nor in the store %s: %w", l.store, err)
	}
	if l.digest != "" && l.digest != l.found.Digest {
		return nil, fmt.Errorf("%s has digest %s, not %s", arg, l.found.Digest, l.digest)
	}
	l.stored = true
	return store.Open(l.found)
}

// openExisting opens a store. Unlike [artifact.OpenStore] it does not create a
// missing one.
func openExisting(dir string) (*artifact.Store, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("no store: %w", err)
	}
	return artifact.OpenStore(artifact.StoreConfig{Dir: dir})
}

// findStored returns the artifact of the object that arg names, or the artifact at the
// path arg of the store. In the second case obj is nil.
func findStored(dir string, store *artifact.Store, arg string) (a artifact.Artifact, obj source.Object, err error) {
	if strings.Count(arg, "/") < 3 {
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

// read opens an artifact as a tree and calls use with it. The tree is closed when
// use returns.
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
