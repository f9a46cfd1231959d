package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// A candidate is what may turn out to be a signature once it is read.
type candidate struct {
	name string // where it is, for messages
	open func(context.Context) (*signature, error)
}

// A signature is one that was read, of either format.
type signature struct {
	payload []byte                            // what the signer says
	message []byte                            // what was signed: payload, or an encoding of it
	made    []byte                            // the signature proper
	keyless bool                              // it came with a certificate
	claim   func([]byte, digest.Digest) error // whether a payload says that a digest is signed; errors are refusals

	// What keyless verification wants: the whole with what else it came with,
	// and what it must be about. Errors are what is wrong with it.
	entity func() (verify.SignedEntity, error)
	policy func() verify.ArtifactPolicyOption
}

// errOther is what refers to a subject and is no signature.
var errOther = errors.New("no signature")

// candidates lists what may be signatures of subject, newer format first.
func (v *verifier) candidates(ctx context.Context, subject ocispec.Descriptor) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		for c, err := range v.bundles(ctx, subject) {
			if !yield(c, err) {
				return
			}
		}
		for c, err := range v.layers(ctx, subject) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// manifest returns the image manifest d.
func (v *verifier) manifest(ctx context.Context, d ocispec.Descriptor) (*ocispec.Manifest, error) {
	_, data, err := v.repo.Manifest(ctx, d)
	if err != nil {
		return nil, attempt.Unreadable(err)
	}
	m := new(ocispec.Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, attempt.Refuse("its manifest: %w", err)
	}
	return m, nil
}
