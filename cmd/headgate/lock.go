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
	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// lockFlags say where the lock is.
type lockFlags struct{ lockFile string }

func (f *lockFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.lockFile, "lock-file", "", "lock `FILE` of all objects; default "+lock.File+" in each directory of -f, or beside the file")
}

// relockFlags are those of commands that write locks.
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
	c.Flags().IntVar(&f.parallel, "parallel", 4, "number of objects processed at the same time")
	registerSecrets(c, &f.secrets)
	f.registerLogin(c)
	registerLimit(c, &f.maxBytes)
	f.registerCache(c)
	f.digest = string(artifact.SHA256)
	f.outputFlags.register(c, "table", "wide", "json", "yaml", "name")
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
		Args: func(c *cobra.Command, args []string) error { return f.noArguments(c, args) },
		RunE: func(c *cobra.Command, _ []string) error { return asFailure(p.runLock(c.Context(), f, nil, false)) },
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
			return asFailure(p.runLock(c.Context(), f, args, true))
		},
		ValidArgsFunction: f.completeObjects,
	}
	f.documentFlags.register(c)
	f.register(c)
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would move, and write nothing")
	return c
}

// isPin reports whether err is about what a lock has.
func isPin(err error) bool {
	_, pin := errors.AsType[*source.PinError](err)
	return pin
}

// lockFiles are the lock files of a session, and what they have.
type lockFiles struct {
	of      map[source.Reference]string // the file of each object
	files   map[string]lock.Entries     // by file
	entries lock.Entries                // of all files
}

// locks reads the lock files: the one that is given, or that of each -f.
func (s *session) locks(file string) (*lockFiles, error) {
	l := &lockFiles{of: map[source.Reference]string{}, files: map[string]lock.Entries{}, entries: lock.Entries{}}
	if s.typed {
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
			if samePath(known, at) { // two spellings of one file are not read and written twice
				at = known
			}
		}
		if l.files[at] == nil {
			entries, err := readLock(at)
			if err != nil {
				return nil, &exitError{exitUsage, fmt.Errorf("%s: %w", at, err)}
			}
			l.files[at] = entries
			maps.Copy(l.entries, entries)
		}
		for _, obj := range s.set.Objects[begin:s.flags.counts[i]] {
			l.of[source.ReferenceTo(obj)] = at
		}
		begin = s.flags.counts[i]
	}
	return l, nil
}

// samePath reports whether two names lead to one file, whether it is there or not.
func samePath(a, b string) bool {
	one, err1 := os.Stat(filepath.Dir(a))
	other, err2 := os.Stat(filepath.Dir(b))
	return err1 == nil && err2 == nil && os.SameFile(one, other) && filepath.Base(a) == filepath.Base(b)
}

// readLock reads a lock file; one that does not exist is empty.
func readLock(name string) (lock.Entries, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return lock.Entries{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return lock.Read(file)
}

// A lockChange is what becomes of one entry.
type lockChange struct {
	Object string `json:"object"` // KIND/NAMESPACE/NAME
	Change string `json:"change"` // added, moved, changed, which is about the content or the spec alone, or removed
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`

	ref  source.Reference
	file string // of the lock that it is removed from
}

func (p *program) runLock(ctx context.Context, f *relockFlags, args []string, update bool) error {
	if f.online && !f.check {
		return usage("--online goes with --check")
	}
	s, named, err := p.prepare(ctx, &f.sourceFlags, args)
	if err != nil {
		return err
	}
	if s.bad != nil { // a lock of the others would lose entries
		return &exitError{exitUsage, s.bad}
	}
	locks, err := s.locks(f.lockFile)
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
	anew, fixed, err := s.outdated(locks, named)
	if err != nil {
		return err
	}
	if f.check {
		return s.checkLocks(ctx, f, locks, anew)
	}
	rows, found, err := s.relock(ctx, f, anew, fixed)
	if err != nil {
		return err
	}
	changes := locks.apply(s.set.Objects, found)
	changes = append(changes, locks.tidy(update)...)
	slices.SortStableFunc(changes, func(a, b lockChange) int { return strings.Compare(a.Object, b.Object) })
	failed := slices.ContainsFunc(rows, func(r *row) bool { return r.err != nil })
	if !failed && !f.dryRun {
		if err := locks.write(); err != nil {
			return err
		}
	}
	return s.printChanges(rows, changes)
}

// outdated returns the objects that have to be locked anew: those that have no entry
// for their spec, those that are to move, and those that are made of such. The
// entries of the others are fixed; the pins of some are, whose content may change.
func (s *session) outdated(l *lockFiles, move []source.Object) (anew []source.Object, fixed lock.Entries, err error) {
	fixed = lock.Entries{}
	moves := map[source.Reference]bool{} // what is not pinned
	for _, obj := range s.set.Objects {
		ref := source.ReferenceTo(obj)
		sum, err := lock.SpecDigest(obj)
		if err != nil {
			return nil, nil, err
		}
		entry, known := l.entries[ref]
		moves[ref] = !obj.Plan().Suspend && (!known || entry.SpecDigest != sum || slices.Contains(move, obj))
		if known && !moves[ref] {
			fixed[ref] = entry
		}
	}
	affected := maps.Clone(moves)
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
	for _, obj := range s.set.Objects {
		if affected[source.ReferenceTo(obj)] {
			anew = append(anew, obj)
		}
	}
	return anew, fixed, nil
}

// relock fetches objects into a store that is thrown away, and returns the entries of
// those that succeeded.
func (s *session) relock(ctx context.Context, f *relockFlags, anew []source.Object, fixed lock.Entries) ([]*row, lock.Entries, error) {
	found := lock.Entries{}
	if len(anew) == 0 {
		return nil, found, nil
	}
	for _, obj := range s.set.Objects { // what is suspended and locked is fetched for others, as it is locked
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
	store, end, err := scratch.openStore(artifact.StoreConfig{})
	if err != nil {
		return nil, nil, err
	}
	defer end()
	meter := newMeter(s.stderr, f.quiet, anew)
	s.env.Progress = meter.show
	s.origins = s.program.origins(f.cacheDir())
	rows, err := s.run(ctx, headgate.Options{Objects: anew, Store: store, Lock: fixed}, meter, func(r *row) {
		if r.err == nil && r.Outcome != source.Suspended && slices.Contains(anew, r.Object) {
			found[source.ReferenceTo(r.Object)] = r.Entry
		}
	})
	return rows, found, err
}

// apply puts entries into the files, and returns what changed.
func (l *lockFiles) apply(objects []source.Object, found lock.Entries) (changes []lockChange) {
	for _, obj := range objects {
		ref := source.ReferenceTo(obj)
		before, known := l.entries[ref]
		now, anew := found[ref]
		if !anew {
			now = before
		}
		c := lockChange{Object: obj.Head().String(), From: before.Revision, To: now.Revision, ref: ref}
		switch {
		case !known && !anew:
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
		l.files[l.of[ref]][ref] = now // which may be another file than before
	}
	return changes
}

// tidy removes entries of objects that are in another file now, and of those that are
// gone, unless keep says that other documents may have them; it returns the latter.
func (l *lockFiles) tidy(keep bool) (gone []lockChange) {
	for file, entries := range l.files {
		for ref, entry := range entries {
			switch {
			case l.of[ref] == file || l.of[ref] == "" && keep:
				continue
			case l.of[ref] == "":
				gone = append(gone, lockChange{Object: ref.String(), Change: "removed", From: entry.Revision, ref: ref, file: file})
			}
			delete(entries, ref)
		}
	}
	slices.SortFunc(gone, func(a, b lockChange) int { return strings.Compare(a.Object, b.Object) })
	return gone
}

// write writes the files that change. One that has nothing to say and is not there
// is not made.
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
		if err := errors.Join(durable.Replace(file, text), os.Chmod(file, 0o644)); err != nil { // others read it too
			return err
		}
	}
	return nil
}

// printChanges prints what became of entries, and returns the error with the exit code.
func (s *session) printChanges(rows []*row, changes []lockChange) error {
	if len(changes) == 0 {
		changes = []lockChange{} // of JSON
		if !s.flags.quiet && !slices.ContainsFunc(rows, func(r *row) bool { return r.err != nil }) {
			fmt.Fprintln(s.stderr, "the lock is current")
		}
	}
	var names []string
	lines := [][]string{{"OBJECT", "CHANGE", "FROM", "TO"}}
	for _, c := range changes {
		wide := s.flags.output == "wide"
		names = append(names, sourceName(c.ref))
		lines = append(lines, []string{c.Object, c.Change, shortRevision(c.From, wide), shortRevision(c.To, wide)})
	}
	if err := s.rowsEnd(rows, "the lock was not written"); err != nil {
		return err
	}
	if len(changes) == 0 && !s.flags.documents() {
		return nil
	}
	return s.result(&s.flags.outputFlags, changes, names, lines)
}

// rowsEnd prints what went wrong with objects, and returns the error that says what
// that means.
func (s *session) rowsEnd(rows []*row, means string) error {
	code := exitReady
	for _, r := range rows {
		s.remarks(r)
		code = worse(code, codeOf(r.err))
	}
	if code == exitReady {
		return nil
	}
	return &exitError{code, errors.New(means)}
}

// checkLocks says whether the lock files are current.
func (s *session) checkLocks(ctx context.Context, f *relockFlags, l *lockFiles, anew []source.Object) error {
	var errs []error
	fail := func(at source.DocumentError, object, text string) {
		at.Object, at.Err = object, errors.New(text)
		errs = append(errs, &source.PinError{Problem: "stale", Err: &at})
	}
	for _, obj := range anew {
		if _, known := l.entries[source.ReferenceTo(obj)]; known {
			fail(s.set.At(obj), obj.Head().String(), "its spec, or that of a source that it is made of, has changed since it was locked")
		} else {
			fail(s.set.At(obj), obj.Head().String(), "is not in the lock")
		}
	}
	for _, c := range l.tidy(false) {
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

// prove asks the Git repositories whether their refs lead to what is locked.
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
	rows, err := s.run(ctx, o, newMeter(s.stderr, true, nil), func(*row) {})
	if err != nil {
		return err
	}
	return s.rowsEnd(rows, "the lock is not current")
}
