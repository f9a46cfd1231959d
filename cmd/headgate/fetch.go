package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// storingFlags are the flags of commands that store artifacts.
type storingFlags struct {
	sourceFlags
	storeConfig artifact.StoreConfig
	cache       string
	cacheSize   int64
}

func (f *storingFlags) register(c *cobra.Command) {
	registerLimit(c, &f.maxBytes)
	f.registerCache(c)
	c.Flags().StringVar((*string)(&f.storeConfig.Algorithm), "digest", string(artifact.SHA256), "`ALGORITHM` of artifact digests: sha256, sha384, sha512 or blake3")
	completeFlag(c, "digest", "sha256", "sha384", "sha512", "blake3")
}

// registerCache adds the flags of the store and of its cache.
func (f *storingFlags) registerCache(c *cobra.Command) {
	registerStore(c, &f.store)
	c.Flags().StringVar(&f.cache, "cache", "", "`DIR` of the cache, with which later fetches transfer and compress only what is new; default .cache in the store")
	bytesVar(c, &f.cacheSize, "cache-size", unsetBytes, -1, "maximum `BYTES` of the cache, which drops what was used longest ago; 0 disables it, -1 is no limit; default the smaller of 1Gi and a tenth of the volume")
}

// cacheName is the directory of the cache in a store.
const cacheName = ".cache"

// cacheDir returns the directory of the cache, or "" if the cache is disabled.
func (f *storingFlags) cacheDir() string {
	if f.cacheSize == 0 {
		return ""
	}
	return cmp.Or(f.cache, filepath.Join(f.store, cacheName))
}

// openStore opens the store, and the cache if it is enabled. It creates missing directories. The
// caller must call end, which closes both.
func (f *storingFlags) openStore() (store *artifact.Store, end func() error, err error) {
	defer func() {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			err = fmt.Errorf("%w: --store and --cache name other directories", err)
		}
	}()
	if _, err := f.storeConfig.Algorithm.New(); err != nil {
		return nil, nil, usage("--digest: %w", err)
	}
	closeCache := func() error { return nil }
	if dir := f.cacheDir(); dir != "" {
		limit := f.cacheSize
		if limit == unsetBytes {
			limit = 0
		}
		if f.storeConfig.Cache, err = artifact.OpenCache(artifact.CacheConfig{Dir: dir, MaxBytes: limit}); err != nil {
			return nil, nil, err
		}
		closeCache = f.storeConfig.Cache.Close
	}
	f.storeConfig.Dir = f.store
	if store, err = artifact.OpenStore(f.storeConfig); errors.Is(err, fs.ErrInvalid) {
		err = &exitError{exitUsage, err}
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeCache())
	}
	return store, func() error { return errors.Join(store.Close(), closeCache()) }, nil
}

// ledgerOf returns the ledger of a store. Its files are private and lie beside the artifacts.
func ledgerOf(store string) *source.Ledger {
	return &source.Ledger{Dir: filepath.Join(store, ".status")}
}

type fetchFlags struct {
	storingFlags
	outFlags
	lockFlags
	headgate.Options
	detailed   bool
	bundle     string // the bundle that is read
	export     string // the bundle that is written
	provenance string // file or directory for the statements
}

func (p *program) fetch() *cobra.Command {
	f := new(fetchFlags)
	c := &cobra.Command{
		Use:   "fetch {-f FILE|DIR|- [KIND/NAME | KIND/NAMESPACE/NAME]... | URL[@REF]... | --chart NAME URL}",
		Short: "Fetch sources and store them as artifacts",
		Long: `Fetch asks the origin of each object for its revision. If something changed, it fetches the content, verifies it and stores
the artifact; the next run fetches only what changed since. If an object fails, its last good artifact stays. Included
sources and the sources of charts and generators are fetched first, even if they were not named. Objects with spec.suspend
are skipped.
With -o wide, json or yaml the output says why an artifact was stored or not.

Instead of objects, fetch takes URLs:

  https://, ssh://, USER@HOST:PATH or a directory   a Git repository at HEAD, or after @ a branch, tag, commit, full name
                                                    (refs/...) or range of versions
  oci://HOST/PATH[:TAG][@DIGEST | @RANGE]           an artifact in a registry; the default tag is latest
  s3://BUCKET[/PREFIX]                              a bucket of AWS, or with --endpoint of an S3-compatible server
  gs://BUCKET[/PREFIX]                              a bucket of Google Cloud
  azblob://HOST/CONTAINER[/PREFIX]                  a container of Azure
  https://HOST/PATH/NAME-VERSION.tgz                a chart; or give the URL of its repository and --chart

The object of a URL is named after the URL and a hash of it, unless --name is given. A URL with ssh needs a Secret that
is named after the repository and has the keys identity and known_hosts: for ssh://HOST/app.git the Secret app, in --secrets
or in the variables HEADGATE_SECRET_APP_IDENTITY and HEADGATE_SECRET_APP_KNOWN_HOSTS.

` + outRule + `

With --locked each source is brought to what the lock file has, see headgate lock: commits are asked for by id, manifests
by digest, charts by URL. If something is missing in the lock, gone or different, the exit code is 5 and nothing is stored.
With --offline it comes from the store or the cache, without a request; with --bundle from a file of headgate bundle export
too, by the lock in it unless --locked is given.

With --provenance an in-toto statement says how each artifact was made: from which commit, manifest, chart or bucket, by
whose signature, for which spec. Unless --locked is given, everything is fetched anew for it. If anything fails, none is
written. Sign it with cosign attest-blob --statement, publish it with headgate push, compare with headgate verify.

Exit codes: 0 all objects are ready or suspended, 1 something failed, 2 usage or an invalid object, 3 a verification failed,
5 an object cannot be had as it is locked.`,
		Example: `  headgate fetch -f sources.yaml gitrepository/app --out ./app
  headgate fetch -f sources.yaml --locked --out ./sources
  headgate fetch -f sources.yaml gitrepository/app --provenance app.json --builder-id https://ci.example.org/release
  headgate fetch https://example.org/app.git@v1.2.3 --out ./app
  headgate fetch oci://registry.example.org/app:v1.2.3 --out ./app --docker-config
  headgate fetch s3://assets/app/ --endpoint minio.example.org --secret-ref minio --out ./app
  headgate fetch --chart app --version "^1.2" https://charts.example.org --out ./charts
  headgate fetch -f sources.yaml --from https://example.org/app.git=../app`,
		RunE: func(c *cobra.Command, args []string) error { return p.runFetch(c.Context(), f, args) },
	}
	f.sourceFlags.register(c)
	f.storingFlags.register(c)
	p.registerAnnotations(c)
	f.outFlags.register(c, "`DIR` to extract the source to; several sources go to KIND/NAMESPACE/NAME in it; each directory is replaced as a whole")
	c.Flags().StringVar(&f.storeConfig.BaseURL, "base-url", "", "`URL` at which the store is served, used in statuses; default its file URL")
	f.lockFlags.register(c)
	c.Flags().StringVar(&f.provenance, "provenance", "", "write an in-toto statement with SLSA provenance of the artifact to `FILE`; of several objects, or to a directory, as KIND.NAMESPACE.NAME.json in it")
	c.Flags().StringVar(&f.Builder.ID, "builder-id", "", "`URI` of who fetches, such as that of a pipeline; needed for --provenance")
	c.Flags().BoolVar(&f.Locked, "locked", false, "fetch exactly what the lock file has, or exit with 5 and store nothing")
	c.Flags().BoolVar(&f.Offline, "offline", false, "as --locked, from the store and the cache alone; exit with 5 if something is not there")
	c.Flags().StringVar(&f.bundle, "bundle", "", "as --offline, from a bundle `FILE` too; by the lock in it, or with --locked by that beside the documents")
	c.Flags().BoolVar(&f.detailed, "detailed-exitcode", false, "exit with 4 instead of 0 when something changed")
	return c
}

func (p *program) runFetch(ctx context.Context, f *fetchFlags, args []string) error {
	s, named, err := p.prepare(ctx, &f.sourceFlags, args)
	if err != nil {
		return err
	}
	defer s.close()
	f.Objects, f.Ledger, f.Locked = named, ledgerOf(f.store), f.Locked || f.Offline
	if f.Locked {
		locks, err := s.readLocks(f.lockFile)
		if err != nil {
			return err
		}
		f.Lock = locks.entries
	} else if f.lockFile != "" {
		return usage("--lock-file requires --locked")
	}
	if err := cmp.Or(f.checkProvenance(len(named), s.env.Local), checkParent(f.export, f.export)); err != nil {
		return err
	}
	f.Builder.Version = map[string]string{"headgate": thisBuild().Version}
	if f.bundle != "" {
		if err := s.openBundle(ctx, f); err != nil {
			return err
		}
	}
	store, end, err := f.openStore()
	if err != nil {
		return err
	}
	defer end()
	extracted := withoutGenerators(named)
	if err := errors.Join(f.checkOut(ctx, extracted), f.checkFrom(s.env.Local, "--out", f.out)); err != nil {
		return &exitError{exitUsage, err}
	}
	if _, err := store.Sweep(ctx); err != nil { // left by killed runs
		p.warn(err)
	}
	meter := newMeter(p.stderr, f.quiet, slices.Concat(s.set.Objects, named))
	s.env.Progress = meter.show
	s.origins = p.origins(f.cacheDir())
	f.Store = store
	rows, err := s.run(ctx, f.Options, meter, func(r *objectResult) {
		if f.out != "" && slices.Contains(extracted, r.Object) {
			r.extract(ctx, store, f, f.outDir(r.Object, len(extracted)))
		}
	})
	if err != nil {
		return err
	}
	if err := s.absentError(rows); err != nil {
		return err
	}
	all := s.decodeErr == nil && !slices.ContainsFunc(rows, func(r *objectResult) bool { return r.err != nil })
	if f.export != "" && all {
		err = s.writeBundle(f.export, rows, f.Lock, store)
	} else if f.provenance != "" && all {
		err = f.writeProvenance(rows[:len(named)])
	}
	if err != nil {
		return err
	}
	return s.printObjects(rows, f.detailed)
}

// absentError returns one error that names all locked objects that are not available offline, or nil.
// Before that it prints the errors of the other objects.
func (s *session) absentError(rows []*objectResult) error {
	var names []string
	var others []*objectResult
	for _, r := range rows {
		if pin, ok := errors.AsType[*source.PinError](r.err); ok && pin.Problem == headgate.Absent {
			names = append(names, r.Object.Head().String())
			s.annotateResult(r, r.err.Error())
		} else if r.err != nil {
			others = append(others, r)
		}
	}
	if names == nil {
		return nil
	}
	return &exitError{worseCode(exitLocked, s.printRemarks(others)), fmt.Errorf("neither the store, the cache nor a bundle has what is locked of %s: fetch it with --locked where there is a network", strings.Join(names, ", "))}
}

// run processes the objects and returns their results in the order of the objects. It calls each
// with every object as soon as that is done.
func (s *session) run(ctx context.Context, o headgate.Options, m *meter, each func(*objectResult)) ([]*objectResult, error) {
	defer m.stop()
	o.Origins, o.Env, o.Parallel = s.origins, s.env, s.flags.parallel
	var rows []*objectResult
	for result, err := range headgate.Fetch(ctx, s.set, o) {
		if result.Object == nil {
			return nil, &exitError{codeOf(err), err}
		}
		r := &objectResult{Result: result, err: err}
		if r.Outcome == source.Suspended && err != nil { // no request was made, so nothing failed
			r.err = nil
			r.note(err.Error())
		}
		each(r)
		if r.err != nil && ctx.Err() != nil { // the timeout or the user ended it
			doing := m.phaseOf(addressOf(r.Object))
			if origin := source.OriginOf(r.Object); !strings.Contains(doing, origin) {
				doing += " of " + origin
			}
			if cause := context.Cause(ctx); errors.Is(r.err, cause) {
				r.err = cause
			}
			r.err = fmt.Errorf("%s: %w", doing, r.err)
		}
		if o, ok := r.Object.(*source.OCIRepository); ok && s.fromURLs && errors.Is(r.err, fs.ErrNotExist) && *o.Spec.Ref == (source.OCIRepositoryRef{}) {
			r.err = s.missingTagError(ctx, o, r.err)
		}
		m.done(addressOf(r.Object), r.Object.Head().String(), string(r.Outcome))
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *objectResult) int { return cmp.Compare(a.Index, b.Index) })
	return rows, nil
}

// missingTagError extends the error for a URL without a tag: it says that latest was assumed, and lists
// the newest tags.
func (s *session) missingTagError(ctx context.Context, o *source.OCIRepository, missing error) error {
	var newest []string
	for tag, err := range oci.New(o, s.env, nil).Tags(ctx) {
		if err != nil {
			break
		}
		newest = append(newest, tag)
	}
	if newest = newest[max(0, len(newest)-5):]; len(newest) == 0 {
		return missing
	}
	slices.Reverse(newest)
	return fmt.Errorf("%w: the URL has no tag, so latest was assumed; there are %s", missing, strings.Join(newest, ", "))
}

// An objectResult is the result of one object.
type objectResult struct {
	headgate.Result
	err     error
	refused bool // the server refused the request; the object is unchanged
}

func (r *objectResult) note(text string) { r.Report.Notes = append(r.Report.Notes, text) }

// extract extracts the artifact to dir if the object is ready. For a suspended source it extracts
// the stored artifact. It does not extract an ExternalArtifact, whose artifact is in another store
// and is never fetched.
func (r *objectResult) extract(ctx context.Context, store *artifact.Store, f *fetchFlags, dir string) {
	_, indexed := r.Object.(*source.PkgRepository) // the lock pins its charts instead of its index
	suspended := r.Outcome == source.Suspended
	a := r.Object.Artifact()
	switch {
	case r.err != nil || a == nil && indexed && !suspended && f.Locked:
		return
	case a == nil && suspended:
		r.err = errors.New("not extracted: it is suspended, and has no artifact: set spec.suspend to false to fetch one")
		return
	case a == nil:
		r.note("not extracted: it has no artifact")
		return
	case source.External(r.Object):
		r.note("not extracted: its artifact is at " + a.URL)
		return
	case suspended:
		r.note("it is suspended: what is extracted is its stored artifact of revision " + a.Revision)
	}
	r.err = store.WithRoom(func() error {
		file, err := store.Open(*a)
		if err != nil {
			return err
		}
		defer file.Close()
		l := artifactLookup{maxBytes: f.maxBytes, temp: store.Temp, stored: true, found: *a, object: r.Object}
		tree, err := l.tree(file)
		if err != nil {
			return fmt.Errorf("extract %s: %w", a.Path, err)
		}
		defer tree.Close()
		return f.outFlags.extract(ctx, tree, dir)
	})
	if r.err != nil && !suspended {
		r.Outcome = source.Failed
	}
}

// finish prints the results of the objects. It returns an error with the exit code, or nil if that
// is 0.
func (s *session) finish(rows []*objectResult, detailed bool, value any, lines [][]string) error {
	code, failed := s.printRemarks(rows), 0
	var names []string
	for _, r := range rows {
		if s.flags.output == "name" {
			names = append(names, argumentOf(r.Object))
		}
		if r.err != nil {
			failed++
		} else if detailed && r.Changed {
			code = worseCode(code, exitChanged)
		}
	}
	if err := s.printResult(&s.flags.outputFlags, value, names, lines); err != nil {
		return err
	}
	if failed > 0 && len(rows) > 1 && !s.flags.quiet {
		fmt.Fprintf(s.stderr, "%d of %d failed\n", failed, len(rows))
	}
	switch {
	case s.decodeErr != nil:
		return &exitError{worseCode(exitUsage, code), s.decodeErr}
	case code != exitReady:
		return &exitError{code, nil}
	}
	return nil
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	coded, ok := errors.AsType[*exitError](err)
	_, isPin := errors.AsType[*source.PinError](err)
	switch {
	case err == nil:
		return exitReady
	case ok:
		return coded.code
	case errors.Is(err, source.ErrVerification):
		return exitVerify
	case isPin:
		return exitLocked
	case errors.Is(err, source.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// worseCode returns the more important exit code: a failed verification, then a violated pin, an
// invalid object, a failure, a change.
func worseCode(a, b int) int {
	rank := []int{exitReady, exitChanged, exitFailed, exitUsage, exitLocked, exitVerify}
	return rank[max(slices.Index(rank, a), slices.Index(rank, b))]
}

// printRemarks prints the errors of objects and, unless -q is set, their notes. It returns the exit code
// for the errors.
func (s *session) printRemarks(rows []*objectResult) (code int) {
	for _, r := range rows {
		name := r.Object.Head().String()
		if code = worseCode(code, codeOf(r.err)); r.err != nil {
			text := strings.TrimPrefix(redact.String(r.err.Error()), addressOf(r.Object)+": ")
			if s.fromURLs {
				text = fieldsToFlags(text)
			}
			text += unreachableHint(r.err)
			fmt.Fprintf(s.stderr, "%s: %s\n", name, text)
			s.annotateResult(r, text)
		}
		if s.flags.quiet {
			continue
		}
		for _, note := range r.Report.Notes {
			fmt.Fprintf(s.stderr, "%s: note: %s\n", name, redact.String(note))
		}
		s.printLeftOut(name, r.Report.Report)
	}
	return code
}

// annotateResult records an error of an object as an annotation of its document.
func (s *session) annotateResult(r *objectResult, text string) {
	at := s.set.At(r.Object)
	at.Object, at.Err = r.Object.Head().String(), errors.New(text)
	s.addAnnotation("error", &at)
}

// printLeftOut prints the files that were left out of the archive of name.
func (p *program) printLeftOut(name string, r artifact.Report) {
	const most = 10
	for _, l := range r.LeftOut[:min(most, len(r.LeftOut))] {
		fmt.Fprintf(p.stderr, "%s: note: left out %s: %s\n", name, redact.String(l.Name), kindOfFile(l.Mode))
	}
	if more := len(r.LeftOut) - most; more > 0 {
		fmt.Fprintf(p.stderr, "%s: note: and %d more left out\n", name, more)
	}
}

// These annotations of printed documents say what this run did, and why. They are not saved.
const (
	outcomeAnnotation = source.Group + "/outcome"
	whyAnnotation     = source.Group + "/why"
)

// printObjects prints the objects with their status and their result.
func (s *session) printObjects(rows []*objectResult, detailed bool) error {
	wide := s.flags.output == "wide"
	lines := [][]string{{"OBJECT", "READY", "OUTCOME", "REVISION", "SIZE", "DIGEST"}}
	if wide {
		lines[0] = append(lines[0], "WHY")
	}
	var objects []source.Object
	for _, r := range rows {
		revision, size, digest := r.Revision.ID, "", ""
		if a := r.Object.Artifact(); a != nil {
			revision, size, digest = cmp.Or(revision, a.Revision), humanSize(a.Size), shortDigest(a.Digest)
		}
		line := []string{r.Object.Head().String(), r.readyStatus(), string(r.Outcome), shortRevision(revision, wide), size, digest}
		if wide {
			line = append(line, r.Why)
		}
		lines = append(lines, line)
		if !s.flags.machineReadable() {
			continue
		}
		obj := source.Masked(r.Object)
		annotations := map[string]string{}
		maps.Copy(annotations, obj.Head().Metadata.Annotations)
		annotations[outcomeAnnotation], annotations[whyAnnotation] = string(r.Outcome), redact.String(r.Why)
		maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
		obj.Head().Metadata.Annotations = annotations
		objects = append(objects, obj)
	}
	return s.finish(rows, detailed, objects, lines)
}

// readyStatus returns True if the object was processed, else False. If the object is suspended or the
// server refused the request, it returns the status of the Ready condition.
func (r *objectResult) readyStatus() string {
	switch {
	case r.refused || r.Outcome == source.Suspended:
		return cmp.Or(r.Object.Common().Condition(source.ReadyCondition).Status, "Unknown")
	case r.err != nil:
		return "False"
	}
	return "True"
}

func (p *program) resolve() *cobra.Command {
	c, _ := p.stepCommand(source.StepResolve, &cobra.Command{
		Use:   "resolve {-f FILE|DIR|- [KIND/NAME]... | URL[@REF]... | --chart NAME URL}",
		Short: "Print the current revision of sources, without storing anything",
		Long: `Resolve asks each origin for its revision and prints it; it stores nothing. The revision of a chart is the version that
would be chosen. To find it, resolve reads the index of the chart's repository, or fetches the source that contains the
chart, unless that source is suspended.`,
	}, "OBJECT", "REVISION")
	return c
}

func (p *program) verify() *cobra.Command {
	c, f := p.stepCommand(source.StepVerify, &cobra.Command{
		Use:   "verify {-f FILE|DIR|- [KIND/NAME]... | --provenance FILE [KIND/NAME | ARCHIVE | oci://HOST/PATH[:TAG]]}",
		Short: "Check the signatures of sources, without storing anything",
		Long: `Verify checks the signature of each source as its spec.verify says. It stores nothing. A source without spec.verify
counts as not verified: the exit code is 3. A chart is verified by its own spec.verify, or by that of its PkgRepository.

With --provenance, verify checks that an artifact is what a statement of headgate fetch --provenance says: that of the
object in the store, an archive, or one in a registry that headgate push --provenance published; with -f also that the spec
is the one that it was made for. It does not check a signature of the statement: cosign verify-blob-attestation does.`,
	}, "OBJECT", "REVISION", "MODE", "SIGNER")
	registerLimit(c, &f.maxBytes)
	var file, store string
	c.Flags().StringVar(&file, "provenance", "", "compare an artifact with the statement in `FILE`")
	registerStore(c, &store)
	runStep := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if file == "" {
			return runStep(c, args)
		}
		return p.verifyProvenance(c.Context(), f, file, store, args)
	}
	return c
}

// A finding is the output of resolve or verify for one object.
type finding struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"` // the object was examined and is not suspended
	Suspended bool   `json:"suspended,omitempty"`
	Revision  string `json:"revision,omitempty"`
	Mode      string `json:"verificationMode,omitempty"`
	Signer    string `json:"signer,omitempty"`
	Level     string `json:"level,omitempty"`
	Error     string `json:"error,omitempty"`
}

// stepCommand completes a command that processes objects up to the step until, and stores nothing.
func (p *program) stepCommand(until source.Step, c *cobra.Command, titles ...string) (*cobra.Command, *sourceFlags) {
	f := new(sourceFlags)
	f.register(c)
	f.noTruncate = true
	c.RunE = func(c *cobra.Command, args []string) error {
		s, named, err := p.prepare(c.Context(), f, args)
		if err != nil {
			return err
		}
		rows, err := s.run(c.Context(), headgate.Options{Objects: named, Until: until}, newMeter(p.stderr, true, nil), func(*objectResult) {})
		if err != nil {
			return err
		}
		lines, findings := [][]string{titles}, []finding{}
		for _, r := range rows {
			o, v, suspended := source.Involved(r.Object), r.Verification, r.Object.Plan().Suspend
			found := finding{o.Kind, o.Namespace, o.Name, r.err == nil && !suspended, suspended, r.Revision.ID, v.Mode, v.Signer, v.Level, ""}
			if r.err != nil {
				found.Error = redact.Error(r.err).Error()
			}
			findings = append(findings, found)
			revision := shortRevision(r.Revision.ID, until == source.StepResolve || f.output == "wide")
			lines = append(lines, []string{r.Object.Head().String(), revision, v.Mode, v.Signer}[:len(titles)])
		}
		return s.finish(rows, false, findings, lines)
	}
	return c, f
}
