package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one OCIRepository. It is safe for concurrent use.
type Origin struct {
	repo         *source.OCIRepository
	env          source.Env
	technologies map[string]Technology
	secretReader transport.SecretReader

	mu      sync.Mutex
	kept    *resolvedRevision // fetched by the last Resolve and not yet opened; may be nil
	trusted *Trust            // read by the last Resolve; may be nil
}

// New returns the origin of r. technologies verify signatures, by
// spec.verify.provider. New does no I/O; [Origin.Resolve] reports defects of r.
func New(r *source.OCIRepository, env source.Env, technologies map[string]Technology) *Origin {
	return &Origin{repo: r, env: env, technologies: technologies,
		secretReader: transport.SecretReader{Namespace: r.Metadata.Namespace, From: env.Secrets, Accounts: env.Accounts}}
}

// Resolve implements [source.Origin]: it returns the revision that spec.ref selects now. A
// pinned digest that was resolved before costs no request, a tag costs one, a range
// costs the list of tags and one. A new revision also costs the manifest.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] when the spec
// cannot work, and fs.ErrNotExist when the tag, digest or repository is absent.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, stepError(source.StepResolve, pullFailed, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if dir, err := o.directory(); err != nil {
		return source.Revision{}, nil, err
	} else if dir != nil {
		return dir.Resolve(ctx, nil)
	}
	sel, err := o.selection()
	if err != nil {
		return source.Revision{}, nil, stepError(source.StepResolve, listFailed, invalid(err))
	}
	before := decodeState(last)
	trust, err := o.trust(ctx)
	if err != nil {
		return source.Revision{}, nil, err
	}
	tag, now, err := o.locate(ctx, sel, before)
	if err != nil {
		return source.Revision{}, nil, err
	}
	now.Trust = trust
	rev := now.revision(tag)
	rev.Reverify = now.Trust != before.Trust
	encoded, err := json.Marshal(now)
	return rev, encoded, err
}

// locate returns the state of the revision that sel selects now, and its tag, "" for a digest.
func (o *Origin) locate(ctx context.Context, sel selection, before state) (tag string, now state, err error) {
	o.keep(nil) // an earlier Resolve may have used other Secrets
	url := o.repo.Spec.URL
	if sel.digest != "" && before.knows(url, sel.digest) {
		return sel.tag, before, nil
	}
	repo, err := o.connect(ctx)
	if err != nil {
		return "", now, err
	}
	d := ocispec.Descriptor{Digest: sel.digest}
	if tag = sel.tag; sel.digest == "" {
		tag, d, err = o.lookUp(ctx, repo, sel)
	}
	if err != nil || before.knows(url, d.Digest) {
		repo.Close()
		return tag, before, err
	}
	r, err := o.fetch(ctx, repo, d)
	if err != nil {
		return tag, now, err
	}
	o.keep(r)
	now = state{URL: url, Digest: r.subject.Digest}
	now.Metadata, _ = metadata(r.manifest.Annotations)
	return tag, now, nil
}

// Tags yields the tags of the repository, in the order of the registry. An error ends the
// sequence.
func (o *Origin) Tags(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		repo, err := o.connect(ctx)
		if err != nil {
			yield("", err)
			return
		}
		defer repo.Close()
		for tag, err := range repo.Tags(ctx) {
			if !yield(tag, err) {
				return
			}
		}
	}
}

// lookUp returns the tag that sel selects, and the descriptor that it names now.
func (o *Origin) lookUp(ctx context.Context, repo *Repository, sel selection) (tag string, d ocispec.Descriptor, err error) {
	if tag = sel.tag; sel.semver != nil {
		err = o.within(ctx, "list tags", func(ctx context.Context) (err error) {
			tag, err = sel.highest(ctx, repo)
			return err
		})
		if err != nil {
			return "", d, stepError(source.StepResolve, listFailed, err)
		}
	}
	err = o.within(ctx, "look up tag "+tag, func(ctx context.Context) (err error) {
		d, err = repo.Head(ctx, tag)
		return err
	})
	return tag, d, err
}

// fetch fetches the manifest that d names or leads to. It closes repo if that fails.
func (o *Origin) fetch(ctx context.Context, repo *Repository, d ocispec.Descriptor) (r *resolvedRevision, err error) {
	err = o.within(ctx, "fetch manifest", func(ctx context.Context) (err error) {
		r, err = follow(ctx, repo, d)
		return err
	})
	if err != nil {
		repo.Close()
	}
	return r, err
}

// Open implements [source.Origin]: it fetches the manifest of rev, unless the last
// Resolve did, and selects its layer. Blobs are not requested before
// [source.Content.WriteTo].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, pullFailed, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if dir, err := o.directory(); err != nil {
		return nil, err
	} else if dir != nil {
		return dir.Open(ctx, rev)
	}
	d, err := digestOf(rev)
	if err != nil {
		return nil, err
	}
	r := o.take(d)
	if r == nil {
		repo, err := o.connect(ctx)
		if err != nil {
			return nil, err
		}
		if r, err = o.fetch(ctx, repo, ocispec.Descriptor{Digest: d}); err != nil {
			return nil, err
		}
	}
	return newContent(o, r, rev)
}

// connect returns the repository of spec.url.
func (o *Origin) connect(ctx context.Context) (repo *Repository, err error) {
	spec := &o.repo.Spec
	a := Access{URL: spec.URL, Provider: spec.Provider, ServiceAccount: spec.ServiceAccountName, Secret: spec.SecretRef,
		Cert: spec.CertSecretRef, Proxy: spec.ProxySecretRef, Insecure: spec.Insecure}
	err = o.within(ctx, "log in", func(ctx context.Context) (err error) {
		repo, err = Connect(ctx, a, o.env, &o.secretReader)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) { // only issuers of credentials are called in this step
		err = stepError(source.StepResolve, "AuthenticationFailed", err)
	}
	return repo, err
}

// within runs do, one step of a fetch, with the timeout spec.timeout.
func (o *Origin) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, time.Duration(o.repo.Spec.Timeout), step, do)
}

// Secrets returns the secret values that the origin has seen so far. The
// [source.Reconciler] redacts them in conditions, events and errors.
func (o *Origin) Secrets() []string { return o.secretReader.Values() }

// keep stores a new revision for Open, and closes the stored one. r may be nil.
func (o *Origin) keep(r *resolvedRevision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept != nil {
		o.kept.repo.Close()
	}
	o.kept = r
}

// take removes and returns the stored revision if its digest is d; otherwise it returns nil.
func (o *Origin) take(d digest.Digest) *resolvedRevision {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.kept
	if r == nil || r.subject.Digest != d {
		return nil
	}
	o.kept = nil
	return r
}

// digestOf returns the digest in the revision TAG@DIGEST or DIGEST.
func digestOf(rev source.Revision) (digest.Digest, error) {
	d := digest.Digest(rev.ID[strings.LastIndexByte(rev.ID, '@')+1:])
	if err := d.Validate(); err != nil {
		return "", fmt.Errorf("revision %q: want TAG@DIGEST or DIGEST: %w", rev.ID, err)
	}
	return d, nil
}

// A state is the [source.State] of an OCIRepository.
type state struct {
	URL      string            `json:"url,omitempty"`
	Digest   digest.Digest     `json:"digest,omitempty"`   // of the last revision
	Metadata map[string]string `json:"metadata,omitempty"` // of its manifest
	Trust    string            `json:"trust,omitempty"`    // fingerprint of the keys, identities and roots of the last run
}

// decodeState decodes a state. It returns the zero state if text is invalid.
func decodeState(text source.State) (s state) {
	if json.Unmarshal(text, &s) != nil {
		return state{}
	}
	return s
}

// knows reports whether s is the state for digest d at url.
func (s state) knows(url string, d digest.Digest) bool { return s.URL == url && s.Digest == d }

// revision returns the revision of s with tag, which may be "" (reference A4).
func (s state) revision(tag string) source.Revision {
	if s.Digest == "" {
		return source.Revision{}
	}
	id := s.Digest.String()
	if tag != "" {
		id = tag + "@" + id
	}
	return source.Revision{ID: id, File: s.Digest.Encoded() + ".tar.gz", Metadata: s.Metadata}
}

// content is an open revision. It closes its repository.
type content struct {
	*resolvedRevision
	origin *Origin
	rev    source.Revision
	layer  ocispec.Descriptor // the selected layer of the manifest
	notes  []string           // for the report
	passed bool               // Verify has accepted the revision

	tree  *artifact.Tree // the layer's files, nil until open
	rules *artifact.Rules
}

var _ source.Explainer = (*content)(nil)

// newContent selects the layer. It closes the repository if that fails.
func newContent(o *Origin, r *resolvedRevision, rev source.Revision) (*content, error) {
	layer, err := layerOf(r.manifest, o.repo.Spec.LayerSelector)
	if err != nil {
		r.repo.Close()
		err = fmt.Errorf("manifest of %s: %w", rev.ID, err)
		return nil, &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: err}
	}
	c := &content{resolvedRevision: r, origin: o, rev: rev, layer: layer}
	if _, left := metadata(r.manifest.Annotations); left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d of %d annotations are not in the metadata: at most %d KiB together are taken over",
			left, len(r.manifest.Annotations), maxAnnotations>>10))
	}
	return c, nil
}

// layerOf returns the layer of m that s selects: the first of its media type,
// or the first of all.
func layerOf(m ocispec.Manifest, s *source.OCILayerSelector) (ocispec.Descriptor, error) {
	for _, l := range m.Layers {
		if s == nil || s.MediaType == "" || s.MediaType == l.MediaType {
			return l, checkDescriptor(l)
		}
	}
	if len(m.Layers) == 0 {
		return ocispec.Descriptor{}, errors.New("it has no layers")
	}
	var types []string
	for _, l := range m.Layers {
		types = append(types, l.MediaType)
	}
	return ocispec.Descriptor{}, fmt.Errorf("no layer has the media type %q of spec.layerSelector, only %s", s.MediaType, quoteList(types))
}

// maxAnnotations is the maximum size in bytes of the annotations, names and values
// together, that become metadata of an artifact.
const maxAnnotations = 64 << 10

// metadata returns annotations of at most maxAnnotations bytes, and the number of omitted
// ones. Annotations of the OCI come first, then the others, each in the order of names.
func metadata(annotations map[string]string) (kept map[string]string, left int) {
	names := slices.SortedFunc(maps.Keys(annotations), func(a, b string) int {
		switch standard := strings.HasPrefix(a, "org.opencontainers.image."); {
		case standard == strings.HasPrefix(b, "org.opencontainers.image."):
			return strings.Compare(a, b)
		case standard:
			return -1
		}
		return 1
	})
	room := maxAnnotations
	for _, name := range names {
		size := len(name) + len(annotations[name])
		if size > room {
			left++
			continue
		}
		if kept == nil {
			kept = make(map[string]string)
		}
		kept[name] = annotations[name]
		room -= size
	}
	return kept, left
}
