package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

func (p *program) bundle() *cobra.Command {
	return group("bundle", "Carry locked sources to where there is no network", p.bundleExport(), p.bundleImport())
}

func (p *program) bundleExport() *cobra.Command {
	f := new(fetchFlags)
	c := &cobra.Command{
		Use:   "export FILE.tar -f FILE|DIR|- [KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Write locked sources and their lock to one file",
		Long: `Export fetches what is locked, as fetch --locked does, and writes it as an OCI image layout in a tar archive: a manifest
for each artifact, named KIND.NAMESPACE.NAME, with the media types of Flux, and the index bundle that lists all of them and
the lock. Tools such as oras and crane read it; what they push, headgate and flux pull. Equal input gives equal bytes.

Signatures are verified before, and are not carried along.`,
		Example: `  headgate bundle export sources.tar -f sources.yaml
  headgate fetch -f sources.yaml --bundle sources.tar --locked --out ./sources`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			f.export, f.locked = args[0], true
			return asFailure(p.runFetch(c.Context(), f, args[1:]))
		},
	}
	f.registerLocked(c)
	f.registerFrom(c)
	c.Flags().BoolVar(&f.offline, "offline", false, "use the store and the cache alone; exit with 5 if something is not there")
	return c
}

func (p *program) bundleImport() *cobra.Command {
	f := new(fetchFlags)
	c := &cobra.Command{
		Use:   "import FILE.tar -f FILE|DIR|- [KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Store the sources in a bundle",
		Long: `Import stores the artifacts of the objects in -f from a bundle, without a request. It trusts the lock in the bundle; with
--locked that beside the documents.`,
		Example: `  headgate bundle import sources.tar -f sources.yaml --locked`,
		Args:    arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			f.bundle = args[0]
			return asFailure(p.runFetch(c.Context(), f, args[1:]))
		},
	}
	f.registerLocked(c)
	c.Flags().BoolVar(&f.locked, "locked", false, "trust the lock file beside the documents, not the lock in the bundle")
	return c
}

// registerLocked adds the flags of commands that bring sources to what is locked.
func (f *fetchFlags) registerLocked(c *cobra.Command) {
	f.documentFlags.register(c)
	c.Flags().IntVar(&f.parallel, "parallel", 4, "number of objects processed at the same time")
	registerSecrets(c, &f.secrets)
	f.registerLogin(c)
	f.storingFlags.register(c)
	f.lockFlags.register(c)
	f.outputFlags.register(c, "table", "wide", "json", "yaml", "name")
	c.ValidArgsFunction = f.completeObjects
}

// bundleOptions takes what is locked from a bundle, and the lock as well unless that
// beside the documents counts.
func (f *fetchFlags) bundleOptions(ctx context.Context, o *headgate.Options) (end func() error, err error) {
	switch {
	case f.bundle == "":
		return func() error { return nil }, nil
	case len(f.files) == 0:
		return nil, usage("a bundle is about objects: give them with -f")
	}
	b, err := oci.OpenBundle(f.bundle)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	o.Bundle, o.Offline = b, true
	if !o.Locked {
		var text []byte
		if text, err = b.Lock(ctx); err == nil {
			o.Lock, err = lock.Read(bytes.NewReader(text))
		}
		o.Locked = true
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.bundle, err), b.Close())
	}
	return b.Close, nil
}

// export writes what was fetched by a lock to a bundle.
func (s *session) export(file string, rows []*row, locked lock.Entries, store *artifact.Store) error {
	var archives []oci.Bundled
	entries := lock.Entries{}
	for _, r := range rows {
		ref := source.ReferenceTo(r.Object)
		if entry, known := locked[ref]; known {
			entries[ref] = entry
		}
		if source.External(r.Object) || r.Object.Artifact() == nil {
			continue
		}
		packed, err := headgate.Bundled(r.Object, store)
		if err != nil {
			return err
		}
		archives = append(archives, packed)
	}
	slices.SortFunc(archives, func(a, b oci.Bundled) int { return strings.Compare(a.Name, b.Name) })
	text, err := entries.Encode()
	if err != nil {
		return err
	}
	return writeBeside(file, func(w *os.File) error { return oci.WriteBundle(w, archives, text) })
}

// writeBeside writes a file beside its name, and renames it when all of it is written.
func writeBeside(name string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
