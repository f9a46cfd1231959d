package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// lockFlags name the lock file.
type lockFlags struct{ lockFile string }

func (f *lockFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.lockFile, "lock-file", "", "lock `FILE` of all objects; default "+lock.File+" in each directory of -f, or beside the file")
}

// relockFlags are the flags of commands that write lock files.
type relockFlags struct {
	storingFlags
	lockFlags
	check  bool
	online bool
	dryRun bool
}

func (f *relockFlags) register(c *cobra.Command) {
	f.lockFlags.register(c)
	f.registerFrom(c)
	f.registerWork(c)
	registerLimit(c, &f.maxBytes)
	f.registerCache(c)
	f.storeConfig.Algorithm = artifact.SHA256
}

func (p *program) lock() *cobra.Command {
	f := new(relockFlags)
	c := &cobra.Command{
		Use:   "lock -f FILE|DIR|-",
		Short: "Write down what sources are at now, so that fetch --locked brings exactly that",
		Long: `Lock writes the file ` + lock.File + ` beside the documents, with an entry for each object: the commit of a Git repository,
the digest of a manifest, the version, URL and digest of a chart and of what it depends on, the revision of a bucket, and a
digest of the content. Entries of objects whose spec is as it was stay; headgate update moves them. Entries of objects that
are gone are removed. Suspended objects keep theirs.

To find out the digests, lock fetches the content, and verifies it; it stores nothing but in the cache. Sources that an
object is made of are locked before it.

With --check nothing is asked and nothing is written: lock says whether the file is current with the documents. --online
also asks each Git repository whether its spec.ref leads to the locked commit, which may be one of a fork if the lock was
edited by hand.

Exit codes: 0 the lock is current, 1 something failed, 2 usage or an invalid object, 3 a verification failed, 5 the lock is
not current.`,
		Example: `  headgate lock -f sources.yaml
  headgate lock -f sources.yaml --check --online
  headgate fetch -f sources.yaml --locked --out ./sources`,
		Args: f.noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return p.runLock(c.Context(), f, nil, false) },
	}
	f.registerFiles(c)
	f.register(c)
	p.registerAnnotations(c)
	c.Flags().BoolVar(&f.check, "check", false, "write nothing, and exit with 5 if the lock is not current with the documents")
	c.Flags().BoolVar(&f.online, "online", false, "with --check, ask Git repositories whether spec.ref leads to the locked commit")
	return c
}

func (p *program) update() *cobra.Command {
	f := new(relockFlags)
	c := &cobra.Command{
		Use:   "update -f FILE|DIR|- [KIND/NAME | KIND/NAMESPACE/NAME]...",
		Short: "Move the entries of a lock to what sources are at now",
		Long: `Update locks the named objects anew, or all of them, and prints from where to where they moved. Objects that are made of
them are locked anew too, at the revisions that they have. Suspended objects stay as they are, and so do entries of
objects that are not in the documents given: headgate lock removes those.

Exit codes: 0 the lock is current, 1 something failed, 2 usage or an invalid object, 3 a verification failed.`,
		Example: `  headgate update -f sources.yaml
  headgate update -f sources.yaml gitrepository/app --dry-run`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(f.files) == 0 {
				return usage("give objects with -f FILE or -f DIR")
			}
			return p.runLock(c.Context(), f, args, true)
		},
		ValidArgsFunction: f.completeObjects,
	}
	f.documentFlags.register(c)
	f.register(c)
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would move, and write nothing")
	return c
}

// lockFiles holds the lock files of a session.
type lockFiles struct {
	fileOf  map[source.Reference]string // lock file of each object
	files   map[string]lock.Entries     // by file
	entries lock.Entries                // of all files
}

// readLocks reads the lock files: file if it is set, or else one for each -f.
func (s *session) readLocks(file string) (*lockFiles, error) {
	l := &lockFiles{fileOf: map[source.Reference]string{}, files: map[string]lock.Entries{}, entries: lock.Entries{}}
	if s.fromURLs {
		return nil, usage("a lock is about objects: give them with -f")
	}
	begin := 0
	for i, root := range s.flags.files {
		at := file
		switch {
		case at != "":
		case root == "-":
			return nil, usage("objects on standard input have no place of their own: give --lock-file")
		case isDir(root):
			at = filepath.Join(root, lock.File)
		default:
			at = filepath.Join(filepath.Dir(root), lock.File)
		}
		for known := range l.files {
			if realPath(known) == realPath(at) { // file is read and written once, even if it is spelled in two ways
				at = known
			}
		}
		if l.files[at] == nil {
			entries := lock.Entries{}
			text, err := os.ReadFile(at)
			if err == nil {
				entries, err = lock.Read(bytes.NewReader(text))
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, &exitError{exitUsage, fmt.Errorf("%s: %w", at, err)}
			}
			l.files[at] = entries
			maps.Copy(l.entries, entries)
		}
		for _, obj := range s.set.Objects[begin:s.flags.counts[i]] {
			l.fileOf[source.ReferenceTo(obj)] = at
		}
		begin = s.flags.counts[i]
	}
	return l, nil
}

// A lockChange describes the change of one entry.
type lockChange struct {
	Object string `json:"object"` // KIND/NAMESPACE/NAME
	Change string `json:"change"` // added, moved, changed (content or spec only) or removed
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`

	ref  source.Reference
	file string // lock file of a removed entry
}

func (p *program) runLock(ctx context.Context, f *relockFlags, args []string, update bool) error {
	if f.online && !f.check {
		return usage("--online requires --check")
	}
	s, named, err := p.prepare(ctx, &f.sourceFlags, args)
	if err != nil {
		return err
	}
	if s.decodeErr != nil { // a partial set would drop entries
		return &exitError{exitUsage, s.decodeErr}
	}
	locks, err := s.readLocks(f.lockFile)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(locks.files)) {
		if err := f.checkFrom(s.env.Local, "--lock-file", file); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if !update {
		named = nil
	}
	stale, fixed, err := s.staleObjects(locks, named)
	if err != nil {
		return err
	}
	if f.check {
		return s.checkLocks(ctx, f, locks, stale)
	}
	rows, found, err := s.relock(ctx, f, stale, fixed)
	if err != nil {
		return err
	}
	changes := append(locks.apply(s.set.Objects, found), locks.prune(update)...)
	slices.SortStableFunc(changes, func(a, b lockChange) int { return strings.Compare(a.Object, b.Object) })
	if err := s.checkResults(rows, "the lock was not written"); err != nil {
		return err
	}
	if !f.dryRun {
		if err := locks.write(); err != nil {
			return err
		}
	}
	if len(changes) == 0 {
		if !f.quiet {
			fmt.Fprintln(p.stderr, "the lock is current")
		}
		if !f.machineReadable() {
			return nil
		}
	}
	names := mapSlice(changes, func(c lockChange) string { return sourceName(c.ref) })
	wide, lines := f.output == "wide", [][]string{{"OBJECT", "CHANGE", "FROM", "TO"}}
	for _, c := range changes {
		lines = append(lines, []string{c.Object, c.Change, shortRevision(c.From, wide), shortRevision(c.To, wide)})
	}
	return p.printResult(&f.outputFlags, changes, names, lines)
}

// staleObjects returns the objects that must be locked anew: those without an entry
// for their spec, those in move, and those that depend on them. fixed has the
// entries of the other objects. For some dependent objects it also has the pin,
// if only their content can change.
func (s *session) staleObjects(l *lockFiles, move []source.Object) (stale []source.Object, fixed lock.Entries, err error) {
	fixed = lock.Entries{}
	affected := map[source.Reference]bool{}
	for _, obj := range s.set.Objects {
		ref := source.ReferenceTo(obj)
		sum, err := lock.SpecDigest(obj)
		if err != nil {
			return nil, nil, err
		}
		entry, known := l.entries[ref]
		affected[ref] = !obj.Plan().Suspend && (!known || entry.SpecDigest != sum || slices.Contains(move, obj))
		if known && !affected[ref] {
			fixed[ref] = entry
		}
	}
	for again := true; again; {
		again = false
		for _, obj := range s.set.Objects {
			ref, needs := source.ReferenceTo(obj), obj.Plan().Needs
			if affected[ref] || obj.Plan().Suspend || !slices.ContainsFunc(needs, func(need source.Reference) bool { return affected[need] }) {
				continue
			}
			again, affected[ref] = true, true
			entry := fixed[ref]
			if _, git := obj.(*source.GitRepository); git || entry.Chart != nil && !affected[needs[0]] {
				fixed[ref] = lock.Entry{SpecDigest: entry.SpecDigest, Pin: entry.Pin}
			} else {
				delete(fixed, ref)
			}
		}
	}
	stale = slices.DeleteFunc(slices.Clone(s.set.Objects), func(obj source.Object) bool { return !affected[source.ReferenceTo(obj)] })
	return stale, fixed, nil
}

// relock fetches objects into a temporary store and returns the entries of the
// objects that succeeded.
func (s *session) relock(ctx context.Context, f *relockFlags, stale []source.Object, fixed lock.Entries) ([]*objectResult, lock.Entries, error) {
	found := lock.Entries{}
	if len(stale) == 0 {
		return nil, found, nil
	}
	for _, obj := range s.set.Objects { // objects that are suspended and locked are fetched as locked, for their dependents
		if _, locked := fixed[source.ReferenceTo(obj)]; locked {
			source.Unsuspend(obj)
		}
	}
	dir, err := os.MkdirTemp("", "headgate-*")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	scratch := f.storingFlags
	scratch.cache, scratch.store = f.cacheDir(), dir
	store, end, err := scratch.openStore()
	if err != nil {
		return nil, nil, err
	}
	defer end()
	meter := newMeter(s.stderr, f.quiet, stale)
	s.env.Progress = meter.show
	s.origins = s.program.origins(f.cacheDir())
	rows, err := s.run(ctx, headgate.Options{Objects: stale, Store: store, Lock: fixed}, meter, func(r *objectResult) {
		if r.err == nil && r.Outcome != source.Suspended && slices.Contains(stale, r.Object) {
			found[source.ReferenceTo(r.Object)] = r.Entry
		}
	})
	return rows, found, err
}

// apply adds the found entries to the lock files and returns the changes.
func (l *lockFiles) apply(objects []source.Object, found lock.Entries) []lockChange {
	changes := []lockChange{}
	for _, obj := range objects {
		ref := source.ReferenceTo(obj)
		before, known := l.entries[ref]
		now, isNew := found[ref]
		if !isNew {
			now = before
		}
		c := lockChange{Object: obj.Head().String(), From: before.Revision, To: now.Revision, ref: ref}
		switch {
		case !known && !isNew:
			continue
		case !known:
			c.Change = "added"
		case before.Revision != now.Revision:
			c.Change = "moved"
		case !now.Equal(before):
			c.Change = "changed"
		}
		if c.Change != "" {
			changes = append(changes, c)
		}
		l.files[l.fileOf[ref]][ref] = now // possibly in another file than before
	}
	return changes
}

// prune removes entries of objects that are now in another file, and of removed
// objects unless keep is set, because other documents may have them. It returns
// the changes of the removed objects.
func (l *lockFiles) prune(keep bool) (removed []lockChange) {
	for file, entries := range l.files {
		for ref, entry := range entries {
			switch {
			case l.fileOf[ref] == file || l.fileOf[ref] == "" && keep:
				continue
			case l.fileOf[ref] == "":
				removed = append(removed, lockChange{Object: ref.String(), Change: "removed", From: entry.Revision, ref: ref, file: file})
			}
			delete(entries, ref)
		}
	}
	slices.SortFunc(removed, func(a, b lockChange) int { return strings.Compare(a.Object, b.Object) })
	return removed
}

// write writes the lock files that have changed. It does not create empty ones.
func (l *lockFiles) write() error {
	for file, entries := range l.files {
		text, err := entries.Encode()
		if err != nil {
			return err
		}
		before, err := os.ReadFile(file)
		if bytes.Equal(before, text) || errors.Is(err, fs.ErrNotExist) && len(entries) == 0 {
			continue
		}
		if err := writePublic(file, text); err != nil {
			return err
		}
	}
	return nil
}

// checkResults prints the errors of objects. If there are any, it returns an error
// with the text means.
func (s *session) checkResults(rows []*objectResult, means string) error {
	if code := s.printRemarks(rows); code != exitReady {
		return &exitError{code, errors.New(means)}
	}
	return nil
}

// checkLocks returns an error if the lock files are not current.
func (s *session) checkLocks(ctx context.Context, f *relockFlags, l *lockFiles, stale []source.Object) error {
	var errs []error
	fail := func(at source.DocumentError, object, text string) {
		at.Object, at.Err = object, errors.New(text)
		errs = append(errs, &source.PinError{Problem: "stale", Err: &at})
	}
	for _, obj := range stale {
		text := "is not in the lock"
		if _, known := l.entries[source.ReferenceTo(obj)]; known {
			text = "its spec, or that of a source that it is made of, has changed since it was locked"
		}
		fail(s.set.At(obj), obj.Head().String(), text)
	}
	for _, c := range l.prune(false) {
		fail(source.DocumentError{File: c.file}, c.Object, "is in the lock, but not in the documents")
	}
	if len(errs) > 0 {
		return &exitError{exitLocked, errors.Join(append(errs, errors.New("the lock is not current: run headgate lock"))...)}
	}
	if f.online {
		if err := s.prove(ctx, l); err != nil {
			return err
		}
	}
	if !f.quiet {
		fmt.Fprintln(s.stderr, "the lock is current")
	}
	return nil
}

// prove checks with the Git servers that the refs of the repositories lead to the
// locked commits.
func (s *session) prove(ctx context.Context, l *lockFiles) error {
	o := headgate.Options{Until: source.StepResolve, Lock: lock.Entries{}, Locked: true}
	for _, obj := range s.set.Objects {
		ref := source.ReferenceTo(obj)
		entry, known := l.entries[ref]
		if _, git := obj.(*source.GitRepository); git && known && !obj.Plan().Suspend {
			entry.Prove = true
			o.Lock[ref] = entry
			o.Objects = append(o.Objects, obj)
		}
	}
	if len(o.Objects) == 0 {
		return nil
	}
	rows, err := s.run(ctx, o, newMeter(s.stderr, true, nil), func(*objectResult) {})
	if err != nil {
		return err
	}
	return s.checkResults(rows, "the lock is not current")
}

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
		Args: rangeArgs(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			f.export, f.Locked = args[0], true
			return p.runFetch(c.Context(), f, args[1:])
		},
	}
	f.registerLocked(c)
	f.registerFrom(c)
	c.Flags().BoolVar(&f.Offline, "offline", false, "use the store and the cache alone; exit with 5 if something is not there")
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
		Args:    rangeArgs(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			f.bundle = args[0]
			return p.runFetch(c.Context(), f, args[1:])
		},
	}
	f.registerLocked(c)
	c.Flags().BoolVar(&f.Locked, "locked", false, "trust the lock file beside the documents, not the lock in the bundle")
	return c
}

// registerLocked adds the flags of commands that process sources as they are
// locked.
func (f *fetchFlags) registerLocked(c *cobra.Command) {
	f.documentFlags.register(c)
	f.registerWork(c)
	f.storingFlags.register(c)
	f.lockFlags.register(c)
	c.ValidArgsFunction = f.completeObjects
}

// openBundle opens the bundle from which locked content is read. It also reads
// the lock from the bundle, unless --locked selects the lock file.
func (s *session) openBundle(ctx context.Context, f *fetchFlags) (err error) {
	if s.fromURLs {
		return usage("a bundle is about objects: give them with -f")
	}
	if f.Bundle, err = oci.OpenBundle(f.bundle); err != nil {
		return &exitError{exitUsage, err}
	}
	s.opened, f.Offline = append(s.opened, f.Bundle), true
	if f.Locked {
		return nil
	}
	f.Locked = true
	text, err := f.Bundle.Lock(ctx)
	if err == nil {
		f.Lock, err = lock.Read(bytes.NewReader(text))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.bundle, err)
	}
	return nil
}

// writeBundle writes the artifacts that were fetched by a lock, and their lock, to a
// bundle.
func (s *session) writeBundle(file string, rows []*objectResult, locked lock.Entries, store *artifact.Store) error {
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

// writeBeside writes a temporary file in the same directory and renames it to
// name when it is complete.
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
