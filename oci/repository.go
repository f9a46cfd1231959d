package oci

import (
	"context"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
)

// A Repository is one repository of a registry, or an image layout that is used
// instead. It is safe for concurrent use.
//
// Registries are not trusted: manifests and blobs are checked against their digests
// while they are read, and lists are limited; an error about a limit
// names it. Digests are sha256 or sha512.
//
// Errors satisfy [fs.ErrNotExist] if the content does not exist (status 404) and
// [fs.ErrPermission] if credentials are missing or were refused (401, 403);
// [StatusError] has the status itself. All methods end with their context.
type Repository struct {
	address registry.Reference
	backend backend
	upload  *server // nil for a layout, which is only read
	web     *http.Client
}

// A backend gives access to the content of a repository. Its results are not trusted.
type backend interface {
	tags(ctx context.Context) ([]string, error)
	// head returns the descriptor of a tag or digest; unknown fields are zero. The error is
	// errNoHead if the digest must be computed from the manifest.
	head(ctx context.Context, reference string) (ocispec.Descriptor, error)
	// manifest returns the manifest or index of a tag or digest, at most maxManifest bytes.
	// mediaType may be "".
	manifest(ctx context.Context, reference string) (mediaType string, content []byte, err error)
	blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
	// referrers returns the referrers that the backend (also in the next line) lists, also with an error. The error is
	// errNoReferrers if the index of the referrers tag may list more.
	referrers(ctx context.Context, subject digest.Digest, artifactType string) (descriptors, error)
	close()
}

var (
	errNoHead      = errors.New("the registry does not tell the digest") // without the manifest
	errNoReferrers = errors.New("no list of referrers is kept")
	errReadOnly    = fmt.Errorf("an image layout is only read: %w", errors.ErrUnsupported)
)

// Name returns HOST[:PORT]/PATH.
func (r *Repository) Name() string { return r.address.String() }

// Head returns the descriptor of the manifest or index that reference, a tag
// or a digest, names now. It costs one HEAD request, and a GET if the
// response has no digest. Size and media type are zero if the
// registry does not send them, see [Repository.Manifest].
func (r *Repository) Head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	want, err := parseReference(reference)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d, err := r.backend.head(ctx, reference)
	if errors.Is(err, errNoHead) {
		d, _, err = readManifest(ctx, r.backend, reference, ocispec.Descriptor{Digest: want})
	}
	if err == nil && want != "" && d.Digest != want {
		err = fmt.Errorf("the registry says that its digest is %s", d.Digest)
	}
	return d, r.failed("look up", reference, err)
}

// Manifest returns the manifest or index d, at most 4 MiB, checked against its
// digest. Size and media type of d may be zero; got has both.
// It is an error if the media types in the document, in the registry's response and in d
// differ, or if the document is both a manifest and an index.
func (r *Repository) Manifest(ctx context.Context, d ocispec.Descriptor) (got ocispec.Descriptor, content []byte, err error) {
	if err = checkDigest(d.Digest); err == nil {
		got, content, err = readManifest(ctx, r.backend, d.Digest.String(), d)
	}
	return got, content, r.failed("fetch manifest", d.Digest.String(), err)
}

// Blob opens the blob d. The caller closes it. Reading fails with a [*ContentError] if the
// content does not have the size and the digest of d: at its end, or as soon as
// it is too long.
func (r *Repository) Blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return r.blob(ctx, d, true)
}

// blob implements Blob. If hashed is false, the caller must verify the digest.
func (r *Repository) blob(ctx context.Context, d ocispec.Descriptor, hashed bool) (io.ReadCloser, error) {
	err := checkDescriptor(d)
	if err == nil {
		var body io.ReadCloser
		if body, err = r.backend.blob(ctx, d); err == nil {
			return newVerifyReader(body, d, hashed), nil
		}
	}
	return nil, r.failed("fetch blob", d.Digest.String(), err)
}

// Tags lists the tags, in the order of the registry. Invalid names
// (specification: letters, digits, . _ -, at most 128) are left out.
//
// A list of more than 100,000 names, 64 MiB or 2000 pages of at most 4 MiB is
// an error, and so are a repeated page and a page of another origin
// than the page before.
func (r *Repository) Tags(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all, err := r.backend.tags(ctx)
		for _, name := range all {
			if err == nil && isTag(name) && !yield(name, nil) {
				return
			}
		}
		if err != nil {
			yield("", fmt.Errorf("list tags of %s: %w", r.Name(), err))
		}
	}
}

// Referrers lists the manifests that refer to subject, each once, and only those of
// artifactType unless that is "". It uses the referrers API or, if the registry does not
// support that, the referrers tag (distribution specification 1.1, "Listing
// Referrers"). The list is empty if neither exists.
//
// More than 10,000 referrers are an error, and so is a descriptor without a
// digest or with a size outside 0 to 4 MiB; pages have the same limits as for tags.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	return func(yield func(ocispec.Descriptor, error) bool) {
		all, err := r.referrers(ctx, subject.Digest, artifactType)
		listed := map[digest.Digest]bool{}
		for _, d := range all {
			problem := checkDescriptor(d)
			if problem == nil && d.Size > maxManifest {
				problem = fmt.Errorf("%s has the size %d, a manifest has at most %d bytes", d.Digest, d.Size, maxManifest)
			}
			if problem != nil {
				err = problem
				break
			}
			if !listed[d.Digest] && (artifactType == "" || d.ArtifactType == artifactType) && !yield(d, nil) {
				return
			}
			listed[d.Digest] = true
		}
		if err != nil {
			yield(ocispec.Descriptor{}, r.failed("list referrers of", subject.Digest.String(), err))
		}
	}
}

// referrers returns the referrers that the backend (also in the next line) lists. If the holder has no complete
// list, the result includes the entries of the index with the referrers tag, which is derived
// from the subject's digest (distribution specification 1.1, "Referrers Tag Schema").
func (r *Repository) referrers(ctx context.Context, subject digest.Digest, artifactType string) (descriptors, error) {
	if err := checkDigest(subject); err != nil {
		return nil, err
	}
	all, err := r.backend.referrers(ctx, subject, artifactType)
	if !errors.Is(err, errNoReferrers) {
		return all, err
	}
	tag := fmt.Sprintf("%.32s-%.64s", subject.Algorithm(), subject.Encoded())
	d, content, err := readManifest(ctx, r.backend, tag, ocispec.Descriptor{})
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	var index struct{ Manifests descriptors }
	if err == nil && d.MediaType == ocispec.MediaTypeImageIndex && d.Digest != subject {
		err = json.Unmarshal(content, &index)
	}
	if err != nil {
		return all, fmt.Errorf("tag %s: %w", tag, err)
	}
	return append(all, index.Manifests...), nil
}

// Push uploads d, a blob or a manifest, unless the repository has it. Blobs are
// streamed; an upload that the registry asks to retry is retried only if content is an
// [io.SectionReader]. A manifest has at most 4 MiB. If the registry keeps no list of
// referrers, pushing a manifest with a subject adds it to the index of the referrers tag.
func (r *Repository) Push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	err := checkDigest(d.Digest)
	switch {
	case err != nil:
	case r.upload == nil:
		err = errReadOnly
	default:
		err = r.upload.push(ctx, d, content)
	}
	return r.failed("push", d.Digest.String(), err)
}

// Tag sets tag to the manifest d, which must be in the repository.
func (r *Repository) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	switch {
	case !isTag(tag):
		return badReference(tag)
	case r.upload == nil:
		return r.failed("tag", tag, errReadOnly)
	}
	return r.failed("tag", tag, r.upload.tag(ctx, d, tag))
}

// Web returns a client without credentials that uses the proxy of the spec. It does not
// trust the CA of the spec.
func (r *Repository) Web() *http.Client { return r.web }

// Close ends idle connections.
func (r *Repository) Close() {
	r.backend.close()
	r.web.CloseIdleConnections()
}

// failed wraps err with the action and the reference. It returns nil for nil.
func (r *Repository) failed(verb, reference string, err error) error {
	if err == nil {
		return nil
	}
	separator := ":"
	if _, parse := digest.Parse(reference); parse == nil {
		separator = "@"
	}
	return fmt.Errorf("%s %s%s%s: %w", verb, r.Name(), separator, reference, err)
}

// parseReference parses a tag or a digest; the result is "" for a tag.
func parseReference(reference string) (digest.Digest, error) {
	if isTag(reference) {
		return "", nil
	}
	d := digest.Digest(reference)
	if checkDigest(d) != nil {
		return "", badReference(reference)
	}
	return d, nil
}

func badReference(reference string) error {
	return fmt.Errorf("%.140q is neither a tag (letters, digits, . _ -, at most 128) nor a digest sha256:HEX", reference)
}

// checkDigest returns an error unless d is a valid sha256 or sha512 digest (image
// specification 1.1, "Digests").
func checkDigest(d digest.Digest) error {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 && d.Algorithm() != digest.SHA512 {
		return fmt.Errorf("%.140q is no digest: want sha256:HEX or sha512:HEX", string(d))
	}
	return nil
}

// checkDescriptor checks digest and size of a descriptor before its content is fetched.
func checkDescriptor(d ocispec.Descriptor) error {
	if err := checkDigest(d.Digest); err != nil {
		return err
	}
	if d.Size < 0 {
		return fmt.Errorf("%s has the size %d", d.Digest, d.Size)
	}
	return nil
}

// A ContentError says that content does not match its descriptor.
type ContentError struct{ Problem string }

func (e *ContentError) Error() string { return "content " + e.Problem }

func wrongDigest(d, got digest.Digest) error {
	return &ContentError{fmt.Sprintf("has the digest %s instead of %s", got, d)}
}

func wrongSize(d ocispec.Descriptor, got int64) error {
	if got > d.Size {
		return &ContentError{fmt.Sprintf("of %s goes on behind its %d bytes", d.Digest, d.Size)}
	}
	return &ContentError{fmt.Sprintf("of %s ends after %d of %d bytes", d.Digest, got, d.Size)}
}

// A verifyReader reads content and compares it with its descriptor.
type verifyReader struct {
	io.ReadCloser
	hash hash.Hash // nil if the caller verifies the digest
	want ocispec.Descriptor
	read int64
	err  error // the error that ended reading
}

func newVerifyReader(from io.ReadCloser, d ocispec.Descriptor, hashed bool) *verifyReader {
	r := &verifyReader{ReadCloser: from, want: d}
	if hashed {
		r.hash = d.Digest.Algorithm().Hash()
	}
	return r
}

// Read implements [io.Reader].
func (r *verifyReader) Read(p []byte) (n int, err error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if left := r.want.Size - r.read; left > 0 {
		n, err = r.ReadCloser.Read(p[:min(int64(len(p)), left)])
		if r.hash != nil {
			r.hash.Write(p[:n])
		}
		if r.read += int64(n); r.read < r.want.Size {
			if r.err = err; err == io.EOF {
				r.err = wrongSize(r.want, r.read)
			}
			return n, r.err
		}
	}
	r.err = r.end()
	return n, r.err
}

// end is called when the expected size has been read. It checks that there is no more
// content and that the digest is correct, and returns io.EOF if so.
func (r *verifyReader) end() error {
	var more [1]byte
	if n, err := io.ReadFull(r.ReadCloser, more[:]); n > 0 {
		return wrongSize(r.want, r.read+1)
	} else if err != io.EOF || r.hash == nil {
		return err
	}
	if got := digest.NewDigest(r.want.Digest.Algorithm(), r.hash); got != r.want.Digest {
		return wrongDigest(r.want.Digest, got)
	}
	return io.EOF
}
