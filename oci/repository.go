package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Repository is one repository of a registry, or an image layout that stands
// in for it. It is safe for concurrent use.
//
// Nothing that a registry says is trusted: manifests and blobs are checked
// against their digests while they are read, lists are bounded, and what exceeds
// a bound is an error that names it. Digests are sha256 or sha512.
//
// Errors satisfy [fs.ErrNotExist] when there is no such thing (status 404) and
// [fs.ErrPermission] when credentials are missing or were refused (401, 403);
// [StatusError] has the status itself. They obey the context in every phase.
type Repository struct {
	address address
	from    holder
	web     *http.Client
}

// A holder has the content of a repository. It is not trusted.
type holder interface {
	// tags and referrers give what they list to each until it fails.
	tags(ctx context.Context, each func(string) error) error
	// head returns the descriptor of a tag or digest, what is not known of it
	// zero; errNoHead when only the manifest itself can tell its digest.
	head(ctx context.Context, reference string) (ocispec.Descriptor, error)
	// manifest opens what a tag or digest names. The media type may be missing.
	manifest(ctx context.Context, reference string) (mediaType string, content io.ReadCloser, err error)
	blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	// referrers lists those that the holder knows of itself; errNoReferrers if the tag may name more.
	referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, each func(ocispec.Descriptor) error) error
	push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error
	tag(ctx context.Context, d ocispec.Descriptor, tag string) error
	close()
}

// errNoHead says that a registry does not tell the digest of a manifest without the manifest.
var errNoHead = errors.New("the registry does not tell the digest")

// Name returns HOST[:PORT]/PATH.
func (r *Repository) Name() string { return r.address.String() }

// Head returns the descriptor of the manifest or index that reference, a tag
// or a digest, names now. It takes one HEAD request, and a GET where the
// registry answers that with no digest. Size and media type are zero where the
// registry does not tell them, see [Repository.Manifest].
func (r *Repository) Head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	want, err := parseReference(reference)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d, err := r.from.head(ctx, reference)
	if errors.Is(err, errNoHead) {
		d, _, err = readManifest(ctx, r.from, reference, ocispec.Descriptor{Digest: want})
	}
	if err == nil && want != "" && d.Digest != want {
		err = fmt.Errorf("the registry says that its digest is %s", d.Digest)
	}
	if err != nil {
		return ocispec.Descriptor{}, r.fail("look up", reference, err)
	}
	return d, nil
}

// Manifest returns the manifest or index d, at most 4 MiB, checked against its
// digest. Size and media type of d may be missing; those of the result are not.
// A document is refused when its field mediaType contradicts what the registry
// or d say, and when it is manifest and index at once.
func (r *Repository) Manifest(ctx context.Context, d ocispec.Descriptor) (ocispec.Descriptor, []byte, error) {
	if _, err := hasher(d.Digest); err != nil {
		return ocispec.Descriptor{}, nil, r.fail("fetch manifest", d.Digest.String(), err)
	}
	d, content, err := readManifest(ctx, r.from, d.Digest.String(), d)
	if err != nil {
		return ocispec.Descriptor{}, nil, r.fail("fetch manifest", d.Digest.String(), err)
	}
	return d, content, nil
}

// Blob opens the blob d. Reading it fails at its end, or once there is more of
// it than d says, when it has not the size and the digest of d; errors of that
// kind are [*ContentError].
func (r *Repository) Blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return r.blob(ctx, d, true)
}

// blob is Blob; unless hashed, it is for the reader to compare the digest.
func (r *Repository) blob(ctx context.Context, d ocispec.Descriptor, hashed bool) (io.ReadCloser, error) {
	hash, err := hasher(d.Digest)
	if err == nil && d.Size < 0 {
		err = fmt.Errorf("its descriptor gives it %d bytes", d.Size)
	}
	if err != nil {
		return nil, r.fail("fetch blob", d.Digest.String(), err)
	}
	body, err := r.from.blob(ctx, d)
	if err != nil {
		return nil, r.fail("fetch blob", d.Digest.String(), err)
	}
	if !hashed {
		hash = nil
	}
	return &verifyReader{from: body, hash: hash, digest: d.Digest, size: d.Size, left: d.Size}, nil
}

// Push uploads d, a blob or a manifest, unless the repository has it. Blobs are
// streamed, and sent again when the registry wants that only if content is an
// [io.SectionReader]; a manifest is at most 4 MiB. Where the registry keeps no list of
// referrers, pushing a manifest with a subject adds it to the tag that stands in for one.
func (r *Repository) Push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	if _, err := hasher(d.Digest); err != nil {
		return r.fail("push", d.Digest.String(), err)
	}
	if err := r.from.push(ctx, d, content); err != nil {
		return r.fail("push", d.Digest.String(), err)
	}
	return nil
}

// Tag makes tag name the manifest d, which the repository has.
func (r *Repository) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	if !isTag(tag) {
		return badReference(tag)
	}
	if err := r.from.tag(ctx, d, tag); err != nil {
		return r.fail("tag", tag, err)
	}
	return nil
}

// Web returns a client without credentials that goes where the repository is
// reached through: the proxy of the spec. The CA of the spec is not trusted by it.
func (r *Repository) Web() *http.Client { return r.web }

// Close ends idle connections.
func (r *Repository) Close() {
	r.from.close()
	r.web.CloseIdleConnections()
}

// fail says what went wrong with which reference.
func (r *Repository) fail(verb, reference string, err error) error {
	separator := ":"
	if _, parse := digest.Parse(reference); parse == nil {
		separator = "@"
	}
	return fmt.Errorf("%s %s%s%s: %w", verb, r.Name(), separator, reference, err)
}

// parseReference accepts a tag or a digest; the digest is "" for a tag.
func parseReference(reference string) (digest.Digest, error) {
	if isTag(reference) {
		return "", nil
	}
	d := digest.Digest(reference)
	if _, err := hasher(d); err != nil {
		return "", badReference(reference)
	}
	return d, nil
}

func badReference(reference string) error {
	return fmt.Errorf("%.140q is neither a tag (letters, digits, . _ -, at most 128) nor a digest sha256:HEX", reference)
}
