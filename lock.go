package headgate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// checkLock requires a current lock entry for each object that is not suspended.
func (f *fetch) checkLock() error {
	var errs []error
	for _, obj := range f.objects {
		if obj.Plan().Suspend {
			continue
		}
		fail := func(problem, text string) {
			at := f.set.At(obj)
			at.Object, at.Err = obj.Head().String(), errors.New(text)
			errs = append(errs, &source.PinError{Problem: problem, Err: &at})
		}
		entry, locked := f.Lock[source.ReferenceTo(obj)]
		sum, err := lock.SpecDigest(obj)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !locked:
			fail("missing", "is not in the lock: run headgate lock")
		case sum != entry.SpecDigest:
			fail("stale", "its spec has changed since it was locked: run headgate lock")
		case entry.Revision == "" && !specOnly(obj):
			fail("missing", "its entry in the lock has no revision: run headgate lock")
		case f.Offline && entry.OriginOnly() && !specOnly(obj):
			fail("missing", "its entry in the lock has no digest of the content, without which only its origin can bring it")
		}
	}
	return errors.Join(errs...)
}

// specOnly reports whether the lock entry of obj covers only its spec.
func specOnly(obj source.Object) bool {
	switch obj.(type) {
	case *source.PkgRepository, *source.ArtifactGenerator:
		return true
	}
	return false
}

// originOf returns the origin of obj. If a lock is in use, the origin is also returned as a
// lockedOrigin: it fetches what the lock pins, or records the entry to lock.
func (f *fetch) originOf(obj source.Object) (source.Origin, *lockedOrigin, error) {
	env, o := f.Env, &lockedOrigin{fetch: f, obj: obj}
	if entry, known := f.Lock[source.ReferenceTo(obj)]; known && !specOnly(obj) {
		o.want, env.Pin = &entry, &entry.Pin
	}
	var err error
	if o.Origin, err = f.Origins.New(obj, env); err != nil || f.Lock == nil || specOnly(obj) {
		return o.Origin, nil, err
	}
	return o, o, nil
}

// A lockedOrigin is an origin with a lock entry, or one whose entry is being recorded.
type lockedOrigin struct {
	source.Origin
	fetch  *fetch
	obj    source.Object
	want   *lock.Entry        // nil: there is no entry yet
	got    lock.Entry         // of what was written
	stored *artifact.Artifact // in the store; nil if there is none
	rev    source.Revision
	copy   *localCopy // local copy of the content; nil: the origin is contacted
}

// Secrets returns the credentials that must not appear in output.
func (o *lockedOrigin) Secrets() []string {
	if from, ok := o.Origin.(interface{ Secrets() []string }); ok {
		return from.Secrets()
	}
	return nil
}

// Resolve implements [source.Origin]. If the store or the cache has the locked content, and no
// signature has to be verified again, it makes no request.
func (o *lockedOrigin) Resolve(ctx context.Context, last source.State) (rev source.Revision, state source.State, err error) {
	o.stored = o.obj.Artifact()
	if o.fetch.pendingSaves != nil {
		o.fetch.mu.Lock()
		o.fetch.pendingSaves[o.obj] = &pendingSave{previous: o.stored}
		o.fetch.mu.Unlock()
	}
	if signed := o.mustVerify(ctx); o.want != nil && (o.fetch.Offline || !o.want.OriginOnly() && !o.want.Prove && !signed) {
		rev, found, err := o.findLocal(ctx, signed)
		if found || err != nil {
			o.rev = rev
			return rev, last, err
		}
		if o.fetch.Offline {
			return rev, nil, o.absentError()
		}
	}
	if rev, state, err = o.Origin.Resolve(ctx, last); err == nil {
		switch {
		case o.want == nil:
			rev.Renew = cmp.Or(rev.Renew, "its inputs must be recorded")
		case rev.ID != o.want.Revision:
			err = o.differentError(fmt.Errorf("the revision is %s", rev.ID))
		case o.want.OriginOnly():
			rev.Renew = cmp.Or(rev.Renew, "its content must be locked")
		case o.stored != nil && o.stored.Revision == rev.ID && !o.matchesLock(*o.stored):
			rev.Renew = "the stored artifact is not the one that is locked"
		}
	}
	o.rev = rev
	return rev, state, o.asPinError(err)
}

// mustVerify reports whether the object must be verified.
func (o *lockedOrigin) mustVerify(ctx context.Context) bool {
	if c, ok := o.obj.(*source.PkgChart); ok && o.obj.Plan().Verify == "" {
		from, _ := c.Source()
		repo, err := o.fetch.Env.Sources.Source(ctx, from)
		of, index := repo.(*source.PkgRepository)
		return err != nil || index && of.Spec.Verify != nil
	}
	return o.obj.Plan().Verify != ""
}

// inputs returns the artifacts that the object is made from. The artifact of a chart repository is
// empty.
func (o *lockedOrigin) inputs(ctx context.Context) ([]artifact.Artifact, error) {
	needed, err := source.Needed(ctx, o.obj, o.fetch.Env.Sources)
	var all []artifact.Artifact
	for _, obj := range needed {
		a := obj.Artifact()
		if specOnly(obj) {
			a = new(artifact.Artifact)
		}
		if a == nil {
			return nil, source.NoArtifact(obj)
		}
		all = append(all, *a)
	}
	return all, err
}

// matchesLock reports whether an artifact in the store matches the lock.
func (o *lockedOrigin) matchesLock(a artifact.Artifact) bool {
	if o.fetch.Store == nil {
		return false
	}
	file, err := o.fetch.Store.Open(a)
	if err != nil {
		return false
	}
	defer file.Close()
	m := newDigestWriter(io.Discard)
	_, err = io.Copy(m, file)
	content, digest := m.finish()
	return err == nil && (o.want.Content == content || o.want.Content == "") && (o.want.Digest == digest || o.want.Digest == "")
}

// Open implements [source.Origin].
func (o *lockedOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if o.copy != nil {
		return &lockedContent{Content: o.copy, origin: o}, nil
	}
	c, err := o.Origin.Open(ctx, rev)
	if err != nil {
		return nil, o.asPinError(err)
	}
	return &lockedContent{Content: c, origin: o}, nil
}

// A lockedContent is content of a lockedOrigin.
type lockedContent struct {
	source.Content
	origin       *lockedOrigin
	verification source.Verification
}

// Verify implements [source.Content].
func (c *lockedContent) Verify(ctx context.Context) (source.Verification, error) {
	v, err := c.Content.Verify(ctx)
	c.verification = v
	return v, c.origin.asPinError(err)
}

// WriteTo implements [source.Content]: after writing, it fails if the content does not match the
// lock.
func (c *lockedContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	o := c.origin
	k := newCacheWriter(o.fetch.Env.Cache)
	defer k.close()
	m := newDigestWriter(w, k)
	report, err := c.Content.WriteTo(ctx, m)
	content, digest := m.finish()
	if err != nil {
		return report, o.asPinError(err)
	}
	o.got.Pin = source.Pin{Revision: o.rev.ID, Tag: o.rev.Tag, Chart: report.Chart, Dependencies: report.Dependencies}
	if o.got.Content = content; report.Copied {
		o.got.Content, o.got.Digest = "", digest
	}
	if o.want != nil && !o.want.OriginOnly() && (o.want.Content != o.got.Content || o.want.Digest != o.got.Digest) {
		err = o.differentError(fmt.Errorf("the content is %s", cmp.Or(o.got.Content, o.got.Digest)))
	}
	if err == nil && o.copy == nil {
		k.commit(o.cacheKey(o.got), contentRecord{o.rev.File, o.rev.Metadata, report.Found, c.verification})
	}
	return report, err
}

// A digestWriter computes the digests of what is written.
type digestWriter struct {
	io.Writer
	sum     interface{ Sum() string } // of the underlying writer, if it computes a SHA-256 itself
	hash    hash.Hash                 // used if sum is nil
	pipe    *io.PipeWriter
	content chan string
}

func newDigestWriter(w io.Writer, extra ...io.Writer) *digestWriter {
	m := &digestWriter{content: make(chan string, 1)}
	var r *io.PipeReader
	r, m.pipe = io.Pipe()
	go func() {
		content, err := artifact.ContentDigest(r)
		if err != nil {
			content = ""
		}
		io.Copy(io.Discard, r)
		m.content <- content
	}()
	if s, ok := w.(interface{ Sum() string }); ok && strings.HasPrefix(s.Sum(), "sha256:") {
		m.sum, m.Writer = s, io.MultiWriter(append(extra, w, m.pipe)...)
	} else {
		m.hash = sha256.New()
		m.Writer = io.MultiWriter(append(extra, w, m.pipe, m.hash)...)
	}
	return m
}

// Sum returns the SHA-256 of what was written so far.
func (m *digestWriter) Sum() string {
	if m.sum != nil {
		return m.sum.Sum()
	}
	return "sha256:" + hex.EncodeToString(m.hash.Sum(nil))
}

// finish returns the digests of what was written: of its content, "" if it is not an archive, and of
// its bytes.
func (m *digestWriter) finish() (content, digest string) {
	m.pipe.Close()
	return <-m.content, m.Sum()
}

// pinErrorReasons says, by kind, why locked content may be gone or different.
var pinErrorReasons = map[string]struct{ gone, different string }{
	"GitRepository":     {"the history of the repository may have been rewritten, or it was removed", "the server sends something else for it"},
	"OCIRepository":     {"the manifest was deleted, or the repository moved", "the registry sends something else for it"},
	"Bucket":            {"the bucket or an object of it was deleted", "objects were overwritten, added or deleted since it was locked"},
	"PkgChart":          {"the version was deleted from its repository", "the version was published again with other content"},
	"ExternalArtifact":  {"", "it was published again since it was locked"},
	"ArtifactGenerator": {"", "its sources are those that are locked: another version of headgate made it"},
}

// differentError returns the error for a pin that leads to different content.
func (o *lockedOrigin) differentError(err error) error {
	kind := source.ReferenceTo(o.obj).Kind
	if kind == "ExternalArtifact" && !source.External(o.obj) {
		kind = "ArtifactGenerator"
	}
	return o.pinError("different", pinErrorReasons[kind].different, err)
}

func (o *lockedOrigin) pinError(problem, hint string, err error) error {
	words := map[string]string{"gone": "is gone", "different": "is not what it was"}
	if o.want.Prove {
		words["gone"], hint = "is not what spec.ref leads to", "it may be of a fork, or the history was rewritten"
	}
	pin := o.want.Revision
	if c := o.want.Chart; c != nil {
		pin += " at " + c.URL
	}
	name := o.obj.Head()
	return &source.StepError{Step: source.StepFetch, Err: &source.PinError{Problem: problem, Err: fmt.Errorf(
		"locked revision %s %s: %w: %s; headgate update %s/%s locks what there is now", pin, words[problem], err, hint, strings.ToLower(name.Kind), name.Metadata.Name)}}
}

// asPinError turns an error that means that locked content is gone or different into a
// [source.PinError]. It returns other errors unchanged.
func (o *lockedOrigin) asPinError(err error) error {
	for step, ok := errors.AsType[*source.StepError](err); ok; step, ok = errors.AsType[*source.StepError](step.Err) {
		if step.Reason == "AuthenticationFailed" { // also because a Secret is missing
			return err
		}
	}
	_, isPinErr := errors.AsType[*source.PinError](err)
	_, damaged := errors.AsType[*artifact.DigestError](err)
	_, other := errors.AsType[*oci.ContentError](err)
	switch {
	case err == nil, o.want == nil, isPinErr, errors.Is(err, source.ErrVerification), errors.Is(err, source.ErrWaiting):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return o.pinError("gone", pinErrorReasons[source.ReferenceTo(o.obj).Kind].gone, err)
	case damaged || other:
		return o.differentError(err)
	}
	return err
}

// runAllOrNothing fetches all objects. If each of them matches the lock, it saves their statuses;
// otherwise it withdraws everything that was stored.
func (f *fetch) runAllOrNothing(ctx context.Context, yield func(Result, error) bool) {
	var all []objectResult
	failed := false
	f.run(ctx, func(r Result, err error) bool {
		all, failed = append(all, objectResult{r, err}), failed || err != nil
		return true
	})
	ctx = context.WithoutCancel(ctx)
	for _, e := range all {
		save := f.pendingSaves[e.Object]
		switch {
		case failed && e.Outcome == source.Stored:
			e.err = errors.Join(cmp.Or(e.err, errors.New("not stored: another object is not what is locked")), f.withdraw(ctx, e.Object, save))
			e.Result.Result, e.Provenance = source.Result{Outcome: source.Failed, Why: e.Why}, nil
		case !failed && save != nil && f.Ledger != nil:
			if e.err = f.Ledger.Save(ctx, e.Object, save.state); e.err == nil && e.Outcome != source.Suspended {
				e.err = f.removeUnlisted(ctx, &e.Result)
			}
			if e.err != nil {
				e.Outcome, e.Provenance = source.Failed, nil
			}
		}
		if !yield(e.Result, e.err) {
			yield = func(Result, error) bool { return true }
		}
	}
}

// A pendingSave is the status of an object that is saved once all objects are as locked.
type pendingSave struct {
	previous *artifact.Artifact
	state    source.State
}

// deferSave is the Save of the reconciler: it keeps the state until runAllOrNothing saves or drops it.
func (f *fetch) deferSave(_ context.Context, obj source.Object, state source.State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pendingSaves[obj] == nil { // its origin was not contacted
		f.pendingSaves[obj] = new(pendingSave)
	}
	f.pendingSaves[obj].state = state
	return nil
}

// withdraw undoes the storing of an object.
func (f *fetch) withdraw(ctx context.Context, obj source.Object, was *pendingSave) error {
	stored := *obj.Artifact()
	dir, err := source.Address(obj)
	if err != nil {
		return err
	}
	unlock, err := f.Store.Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if before := was.previous; before == nil || before.Path != stored.Path {
		err = f.Store.Withdraw(stored)
		if latest := obj.Plan().Words.Latest; before != nil && latest != "" {
			_, moved := f.Store.Point(dir, latest, *before)
			err = errors.Join(err, moved)
		}
	}
	if f.Ledger != nil {
		_, read := f.Ledger.Load(ctx, obj)
		return errors.Join(err, read)
	}
	status := obj.Common()
	status.Artifact, status.URL, status.Conditions = was.previous, "", nil
	return err
}
