package oci

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Access says where a repository is and how it is reached.
type Access struct {
	URL            string                 // oci://HOST[:PORT]/PATH
	Provider       string                 // who issues credentials: "" or generic for nobody
	ServiceAccount string                 // whose pull secrets count
	Secret         *source.LocalReference // a Secret of type kubernetes.io/dockerconfigjson
	Cert           *source.LocalReference
	Proxy          *source.LocalReference
	Insecure       bool // plain HTTP
}

// A Repository is one repository of a registry, or an image layout that stands in for it. It is safe for concurrent use.
type Repository struct{}

// Connect returns the repository that a names, with the Secrets of v. It reads
// Secrets and logs in with the provider, and sends nothing else.
func Connect(ctx context.Context, a Access, env source.Env, v *transport.Vault) (*Repository, error) {
	return nil, errors.ErrUnsupported
}

// Name returns HOST[:PORT]/PATH.
func (r *Repository) Name() string { return "" }

// Tags lists the tags, in the order of the registry.
func (r *Repository) Tags(ctx context.Context) iter.Seq2[string, error] { return nil }

// Head returns the descriptor of the manifest or index that reference, a tag
// or a digest, names now.
func (r *Repository) Head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errors.ErrUnsupported
}

// Manifest returns the manifest or index d, at most 4 MiB, checked against its
// digest. Size and media type of d may be missing; those of the result are not.
func (r *Repository) Manifest(ctx context.Context, d ocispec.Descriptor) (ocispec.Descriptor, []byte, error) {
	return ocispec.Descriptor{}, nil, errors.ErrUnsupported
}

// Blob opens the blob d. Reading it fails at its end, or once there is more of
// it than d says, when it has not the size and the digest of d.
func (r *Repository) Blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}

// Referrers lists the manifests that refer to subject, those of artifactType
// alone unless it is "": by the referrers API, and where the registry has none
// by the tag that stands in for it.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	return nil
}

// Push uploads d, a blob or a manifest, unless the repository has it.
func (r *Repository) Push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	return errors.ErrUnsupported
}

// Tag makes tag name the manifest d, which the repository has.
func (r *Repository) Tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	return errors.ErrUnsupported
}

// Web returns a client without credentials that goes where the repository is
// reached through: the proxy of the spec. The CA of the spec is not trusted by it.
func (r *Repository) Web() *http.Client { return nil }

// Close ends idle connections.
func (r *Repository) Close() {}
