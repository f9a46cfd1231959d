package headgate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// Absent is the Problem of a [source.PinError] if the locked content is not available without
// contacting the origin.
const Absent = "absent"

// A contentRecord is what the cache stores about locked content beside its bytes.
type contentRecord struct {
	File         string              `json:"file"` // of the artifact
	Metadata     map[string]string   `json:"metadata,omitempty"`
	Found        []string            `json:"found,omitempty"`
	Verification source.Verification `json:"verification,omitzero"`
}

// A localCopy is locked content that the store, a bundle or the cache has.
type localCopy struct {
	contentRecord
	open       func() (io.ReadCloser, error)
	exactBytes bool // the lock has the digest of the bytes
}

// Verify implements [source.Content]: it returns the result of the verification when the content
// was fetched.
func (c *localCopy) Verify(context.Context) (source.Verification, error) { return c.Verification, nil }

// WriteTo implements [source.Content].
func (c *localCopy) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	r, err := c.open()
	if err != nil {
		return source.Report{}, err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return source.Report{Message: "stored artifact as it is locked, without asking its origin", Found: c.Found, Copied: c.exactBytes}, err
}

// Close implements [source.Content].
func (c *localCopy) Close() error { return nil }

// findLocal looks for the locked content in the store, the bundle and the cache.
func (o *lockedOrigin) findLocal(ctx context.Context, signed bool) (rev source.Revision, found bool, err error) {
	o.copy = nil
	if a := o.stored; a != nil && a.Revision == o.want.Revision && o.matchesLock(*a) {
		o.copy = &localCopy{contentRecord: recordOf(o.obj, *a), open: func() (io.ReadCloser, error) { return o.fetch.Store.Open(*a) }}
	}
	if o.copy == nil || signed && o.copy.Verification == (source.Verification{}) { // content that was verified is preferred
		other, err := o.fromBundle(ctx)
		if other == nil && err == nil {
			other = o.fromCache()
		}
		if o.copy == nil && err != nil {
			return rev, false, err
		}
		if other != nil {
			o.copy = other
		}
	}
	if o.copy == nil {
		return rev, false, nil
	}
	o.copy.exactBytes = o.want.Digest != ""
	rev = source.Revision{ID: o.want.Revision, File: o.copy.File, Metadata: o.copy.Metadata, Found: o.copy.Found, Tag: o.want.Tag}
	if signed {
		rev.Verify = cmp.Or(o.copy.Verification.Mode, "signature")
	}
	rev.Inputs, err = o.inputs(ctx)
	return rev, true, err
}

// recordAnnotation is the annotation of a bundle that has the contentRecord, as JSON.
const recordAnnotation = "dev.headgate.about"

// fromBundle returns the content of the object in the bundle, or nil if the bundle has none.
func (o *lockedOrigin) fromBundle(ctx context.Context) (*localCopy, error) {
	if o.fetch.Bundle == nil {
		return nil, nil
	}
	annotations, open, err := o.fetch.Bundle.Find(ctx, bundleName(o.obj))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &localCopy{open: open}
	if err == nil {
		err = json.Unmarshal([]byte(annotations[recordAnnotation]), &c.contentRecord)
	}
	if is := annotations[ocispec.AnnotationRevision]; err == nil && is != o.want.Revision {
		err = o.differentError(fmt.Errorf("the bundle has another revision, %s", is))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// recordOf returns what the status of obj says about its artifact in the store.
func recordOf(obj source.Object, a artifact.Artifact) contentRecord {
	k := contentRecord{File: path.Base(a.Path), Metadata: a.Metadata}
	if c, ok := obj.(*source.PkgChart); ok {
		k.Found = c.Status.ObservedValuesFiles
	}
	if c := obj.Common().Condition(source.SourceVerifiedCondition); c.Status == "True" {
		k.Verification = source.Verification{Mode: cmp.Or(obj.Plan().Verify, "signature"), Message: c.Message}
	}
	return k
}

// bundleName is the name of the artifact of obj in a bundle: KIND.NAMESPACE.NAME.
func bundleName(obj source.Object) string {
	return strings.ReplaceAll(source.ReferenceTo(obj).String(), "/", ".")
}

// Bundled returns the artifact of obj in store for [oci.WriteBundle]. A fetch with that bundle
// reads the artifact from it. The bundle records that the signature was verified, but does not
// contain the signature. The object must have an artifact.
func Bundled(obj source.Object, store *artifact.Store) (oci.Bundled, error) {
	a := *obj.Artifact()
	about := recordOf(obj, a)
	if v := &about.Verification; v.Message != "" {
		v.Message = "when it was exported: " + v.Message
	}
	text, err := json.Marshal(about)
	return oci.Bundled{Name: bundleName(obj), Size: a.Size, Open: func() (io.ReadCloser, error) { return store.Open(a) }, Publication: oci.Publication{
		Revision: a.Revision, Source: source.OriginOf(obj), Annotations: map[string]string{recordAnnotation: string(text)}}}, err
}

// fromCache returns the locked content of the object from the cache, or nil if the cache has none.
func (o *lockedOrigin) fromCache() *localCopy {
	cache, key := o.fetch.Env.Cache, o.cacheKey(*o.want)
	if cache == nil {
		return nil
	}
	text, err := cache.Open(key + contentRecord{}.suffix())
	if err != nil {
		return nil
	}
	defer text.Close()
	c := &localCopy{open: func() (io.ReadCloser, error) { return cache.Open(key) }}
	entry, err := cache.Open(key)
	if err != nil || json.NewDecoder(text).Decode(&c.contentRecord) != nil {
		return nil
	}
	entry.Close()
	return c
}

// suffix is appended to the key of content for the key of its contentRecord.
func (contentRecord) suffix() string { return "\x00about" }

// cacheKey returns the key of locked content in the cache. It includes the spec, and with it the names
// of the Secrets that the content was fetched with.
func (o *lockedOrigin) cacheKey(e lock.Entry) string {
	return "locked 1\x00" + source.ReferenceTo(o.obj).String() + "\x00" + string(source.CanonicalSpec(o.obj)) + "\x00" + e.Revision + "\x00" + e.Content + e.Digest
}

// A cacheWriter also writes fetched content to the cache. It ignores failures to do so.
type cacheWriter struct {
	cache *artifact.Cache
	draft *artifact.Draft
	err   error
}

func newCacheWriter(cache *artifact.Cache) *cacheWriter {
	k := &cacheWriter{cache: cache, err: errors.ErrUnsupported}
	if cache != nil {
		k.draft, k.err = cache.Create()
	}
	return k
}

func (k *cacheWriter) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.draft.File().Write(p)
	}
	return len(p), nil
}

// commit stores the written content and its contentRecord under key.
func (k *cacheWriter) commit(key string, a contentRecord) {
	if k.err == nil {
		k.err = k.draft.Commit(key)
	}
	text, err := json.Marshal(a)
	if k.err == nil && err == nil {
		_ = k.cache.Put(key+a.suffix(), func(w io.Writer) error { _, err := w.Write(text); return err })
	}
}

func (k *cacheWriter) close() {
	if k.draft != nil {
		k.draft.Discard()
		k.draft.File().Close()
	}
}

// absentError returns the error for locked content that is not available locally.
func (o *lockedOrigin) absentError() error {
	return &source.PinError{Problem: Absent, Err: fmt.Errorf("the locked revision %s is not at hand", o.want.Revision)}
}
