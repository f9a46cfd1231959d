package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

type fetchFlags struct {
	storingFlags
	outFlags
	detailed bool
}

func (p *program) fetch() *cobra.Command {
	f := new(fetchFlags)
	c := &cobra.Command{
		Use:   "fetch {-f FILE|DIR|- [KIND/NAME | KIND/NAMESPACE/NAME]... | URL[@REF] | --chart NAME URL}",
		Short: "Bring artifacts up to date with their origins",
		Long: `Fetch reconciles each object once: it asks the origin for its revision, and when something changed
fetches the content, verifies it and stores the artifact. What it did is kept beside the artifacts, so
that the next run does only what changed. A failure leaves the last good artifact in place.

Objects that others are made of, includes and the sources of charts, are fetched before them, also when they
were not named. One that fails counts as it was when it last succeeded. The others are fetched at once.

One that spec.suspend suspends is left as it is: READY is what was saved of it, --out extracts its stored
artifact, and what it is made of is not fetched for it.

With -o wide, json or yaml the output says why an artifact was stored or was not: which revision, field of
the spec or included artifact differs. In documents these are the annotations ` + outcomeAnnotation + ` and
` + whyAnnotation + `.

With a URL instead of objects it fetches a Git repository, where REF is a branch, a tag, a commit, a full
reference name (refs/...) or a range of versions such as ^1.2, by default the repository's own HEAD; or
from a registry what oci://HOST/PATH[:TAG][@DIGEST | @RANGE] names, by default the tag latest; or the
objects of a bucket whose keys begin with PREFIX:

  s3://BUCKET[/PREFIX]             of AWS, or with --endpoint HOST[:PORT] of an S3-compatible server
  gs://BUCKET[/PREFIX]             of Google Cloud
  azblob://HOST/CONTAINER[/PREFIX] of Azure, as https://ACCOUNT.blob.core.windows.net/CONTAINER[/PREFIX]

` + outRule + `

With --chart it fetches that chart from the repository of charts at the URL, which has an index (https, http)
or is a registry (oci://HOST/PATH, without the name of the chart).

The object of a URL is called after it, with a hash of the URL without credentials at its end; --name calls it
otherwise, and headgate delete forgets it. One that an earlier release saved under a shorter name keeps that.

Flags say how it is reached, as the fields of a spec do. Over ssh it needs a Secret named after the repository with
identity and known_hosts: for ssh://HOST/app.git "app", in --secrets or as HEADGATE_SECRET_APP_IDENTITY
and HEADGATE_SECRET_APP_KNOWN_HOSTS.

Exit codes: 0 everything that is not suspended is ready, 1 something failed, or --out found no artifact of what is suspended, 2 usage or an invalid object, 3 a verification failed.`,
		Example: `  headgate fetch -f sources.yaml --store ./store
  headgate fetch -f sources.yaml gitrepository/app --out ./app
  headgate fetch https://example.org/app.git@v1.2.3 --out ./app
  headgate fetch oci://registry.example.org/app:v1.2.3 --out ./app --docker-config
  headgate fetch s3://assets/app/ --endpoint minio.example.org --secret-ref minio --out ./app
  headgate fetch --chart app --version "^1.2" https://charts.example.org --out ./charts
  headgate fetch -f sources.yaml --from https://example.org/app.git=../app`,
		RunE: func(c *cobra.Command, args []string) error { return p.runFetch(c.Context(), f, args) },
	}
	f.sourceFlags.register(c)
	f.chartFlags.register(c)
	f.registerWriting(c)
	f.cacheFlags.register(c)
	f.outFlags.register(c, "`DIR` to extract to: the content of the one source named, or KIND/NAMESPACE/NAME below it of several; replaced as a whole")
	c.Flags().BoolVar(&f.detailed, "detailed-exitcode", false, "exit with 4 instead of 0 when something changed")
	return c
}

func (p *program) runFetch(ctx context.Context, f *fetchFlags, args []string) error {
	s, named, err := p.prepare(ctx, &f.sourceFlags, args)
	if err != nil {
		return err
	}
	return p.bringUp(ctx, s, f, named)
}

// bringUp reconciles the objects named, and those that they are made of.
func (p *program) bringUp(ctx context.Context, s *session, f *fetchFlags, named []source.Object) error {
	cache, err := f.openCache()
	if err != nil {
		return err
	}
	if cache != nil {
		defer cache.Close()
	}
	store, err := f.openStore(f.baseURL, cache)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := errors.Join(f.checkOut(ctx, named), f.checkFrom(s.env.Local, f.out)); err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	if _, err := store.Sweep(ctx); err != nil { // of runs that were killed
		fmt.Fprintf(p.stderr, "warning: %v\n", err)
	}
	meter := newMeter(p.stderr, f.quiet, slices.Concat(s.set.Objects, named))
	s.env.Progress = meter.show
	options := s.options(named)
	options.Origins, options.Store, options.Ledger = p.origins(f.cacheDir()), store, ledgerOf(f.store)
	var rows []*row
	for result, err := range headgate.Fetch(ctx, s.set, options) {
		if result.Object == nil {
			return failed(err)
		}
		r := newRow(result, err)
		if f.out != "" && slices.Contains(named, r.Object) {
			r.extract(ctx, store, f, f.outDir(r.Object, len(named)))
		}
		meter.done(r)
		rows = append(rows, r)
	}
	meter.stop()
	return p.finish(s, rows, f.detailed, p.printObjects)
}

// ledgerOf returns the ledger of a store: private, beside the artifacts.
func ledgerOf(store string) *source.Ledger {
	return &source.Ledger{Dir: filepath.Join(store, ".status")}
}

// A row is one object and what became of it.
type row struct {
	headgate.Result
	err     error
	refused bool // by the server that keeps the object: nothing was done, and it is as it was
}

// newRow returns the row of a result. A suspended object was asked nothing, so
// nothing failed.
func newRow(result headgate.Result, err error) *row {
	r := &row{Result: result, err: err}
	if r.Outcome == source.Suspended && err != nil {
		r.err = nil
		r.note(err.Error())
	}
	return r
}

func (r *row) fail(err error) {
	if err != nil && r.err == nil {
		r.err, r.Outcome = err, source.Failed
	}
}

// extract extracts the artifact to dir, if there is one that is ready; of a
// suspended source the stored one. That of an ExternalArtifact is in somebody
// else's store, and never fetched.
func (r *row) extract(ctx context.Context, store *artifact.Store, f *fetchFlags, dir string) {
	_, external := r.Object.(*source.ExternalArtifact)
	switch a := r.Object.Artifact(); {
	case r.err != nil:
	case r.Outcome == source.Suspended && a == nil:
		r.err = errors.New("not extracted: it is suspended, and has no artifact: set spec.suspend to false to fetch one")
	case r.Outcome == source.Suspended:
		if r.err = extract(ctx, store, r.Object, f, dir); r.err == nil {
			r.note("it is suspended: what is extracted is its stored artifact of revision " + a.Revision)
		}
	case a == nil:
		r.note("not extracted: it has no artifact")
	case external:
		r.note("not extracted: its artifact is at " + a.URL)
	default:
		r.fail(store.WithRoom(func() error { return extract(ctx, store, r.Object, f, dir) }))
	}
}

// extract replaces dir by the content of obj's artifact.
func extract(ctx context.Context, store *artifact.Store, obj source.Object, f *fetchFlags, dir string) error {
	file, err := store.Open(*obj.Artifact())
	if err != nil {
		return err
	}
	defer file.Close()
	l := artifactLookup{maxBytes: f.maxBytes, temp: store.Temp, stored: true, found: *obj.Artifact(), object: obj}
	tree, err := l.tree(file)
	if err != nil {
		return fmt.Errorf("extract %s: %w", obj.Artifact().Path, err)
	}
	defer tree.Close()
	return f.outFlags.extract(ctx, tree, dir)
}

func (r *row) note(text string) { r.Report.Notes = append(r.Report.Notes, text) }
