package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
)

func (p *program) artifact() *cobra.Command {
	c := &cobra.Command{
		Use:   "artifact",
		Short: "Work with stored artifacts",
		Long: `An ARTIFACT is an object (KIND/NAME or KIND/NAMESPACE/NAME) of the store, a path in the store, a file, or
a URL; a URL needs --digest.`,
		Args: noCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.inspect(), p.extractStored(), p.verifyStored(), p.artifactServe(), p.gc())
	return c
}

func (p *program) inspect() *cobra.Command {
	var l artifactLookup
	c := &cobra.Command{
		Use:               "inspect [ARTIFACT]",
		Short:             "List the store, or the entries of one artifact",
		Args:              arguments(0, 1),
		ValidArgsFunction: completeStored(&l.store),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return asFailure(p.listStore(l.store))
			}
			return asFailure(l.read(c.Context(), args[0], p.listTree))
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
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tSIZE\tUPDATED")
	for a, err := range store.All() {
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", a.Path, humanSize(a.Size), a.LastUpdateTime.Format(time.RFC3339))
	}
	return t.Flush()
}

func (p *program) listTree(tree *artifact.Tree) error {
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t, "%s\t%d\t %s\n", info.Mode(), info.Size(), redact.String(name))
		return err
	})
	return errors.Join(err, t.Flush())
}

func (p *program) extractStored() *cobra.Command {
	var l artifactLookup
	var to outFlags
	c := &cobra.Command{
		Use:               "extract ARTIFACT --out DIR",
		Short:             "Extract an artifact; DIR is replaced as a whole",
		Long:              outRule,
		Args:              arguments(1, 1),
		ValidArgsFunction: completeStored(&l.store),
		RunE: func(c *cobra.Command, args []string) error {
			if to.out == "" {
				return usage("--out DIR is needed")
			}
			if err := to.check(c.Context(), to.out); err != nil {
				return asFailure(err)
			}
			return asFailure(l.read(c.Context(), args[0], func(tree *artifact.Tree) error {
				return to.extract(c.Context(), tree, to.out)
			}))
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
		RunE: func(c *cobra.Command, args []string) error {
			store, err := openExisting(dir)
			if err != nil {
				return failed(err)
			}
			defer store.Close()
			return p.rehash(c.Context(), dir, store, args)
		},
	}
	registerStore(c, &dir)
	return c
}

// rehash verifies the artifacts that args name, or all, and every artifact
// that a status claims.
func (p *program) rehash(ctx context.Context, dir string, store *artifact.Store, args []string) error {
	var bad []error
	check := func(a artifact.Artifact) {
		if err := store.Verify(ctx, a); err != nil {
			bad = append(bad, err)
			return
		}
		fmt.Fprintf(p.stdout, "%s ok\n", a.Path)
	}
	for _, arg := range args {
		a, _, err := find(dir, store, arg)
		if err != nil {
			return asFailure(err)
		}
		check(a)
	}
	if len(args) > 0 {
		return asFailure(errors.Join(bad...))
	}
	seen := map[string]bool{}
	for a, err := range store.All() {
		if err != nil {
			bad = append(bad, err)
			continue
		}
		seen[a.Path] = true
		check(a)
	}
	set, err := ledgerOf(dir).List()
	bad = append(bad, err)
	for _, obj := range set.Objects {
		if a := obj.Artifact(); a != nil && !seen[a.Path] {
			bad = append(bad, fmt.Errorf("%s: its artifact %s is missing", obj.Head(), a.Path))
		}
	}
	return asFailure(errors.Join(bad...))
}

func (p *program) gc() *cobra.Command {
	var dir, cache string
	var dry bool
	c := &cobra.Command{
		Use:   "gc",
		Short: "Remove artifacts that no object refers to, and what killed processes left",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			err := p.collect(c.Context(), dir, dry)
			switch cache {
			case "":
			case storeCache:
				err = errors.Join(err, p.clearCache(filepath.Join(dir, cacheName), dry))
			default:
				err = errors.Join(err, p.clearCache(cache, dry))
			}
			return asFailure(err)
		},
	}
	registerStore(c, &dir)
	c.Flags().StringVar(&cache, "cache", "", "empty the cache too: that of the store, or with --cache=`DIR` that one; fetches and servers may be using it")
	c.Flags().Lookup("cache").NoOptDefVal = storeCache
	c.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	return c
}

func (p *program) collect(ctx context.Context, dir string, dry bool) error {
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	set, err := ledgerOf(dir).List()
	if err != nil {
		return fmt.Errorf("nothing was removed: %w", err) // what cannot be read may refer to anything
	}
	current := map[string]bool{}
	for _, obj := range set.Objects {
		if a := obj.Artifact(); a != nil {
			current[a.Path] = true
		}
	}
	gone, err := store.GC(ctx, artifact.GCConfig{DryRun: dry, Keep: func(a artifact.Artifact) bool { return current[a.Path] }})
	var size int64
	for _, a := range gone {
		size += a.Size
		fmt.Fprintln(p.stdout, a.Path)
	}
	if err != nil || dry {
		return err
	}
	swept, err := store.Sweep(ctx)
	fmt.Fprintf(p.stderr, "removed %d artifacts and %d temporary files, %s\n", len(gone), swept.Files, humanSize(size+swept.Bytes))
	return err
}

// storeCache is the value of gc --cache for the cache in the store.
const storeCache = "in the store"

// clearCache empties the cache in a directory, if there is one.
func (p *program) clearCache(dir string, dry bool) error {
	if _, err := os.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
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

// asFailure gives an error that has no exit code that of a failure.
func asFailure(err error) error {
	var coded *exitError
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return failed(err)
}
