package oci

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A Verifier checks the signatures of what a repository holds.
type Verifier interface {
	// Verify checks that subject is signed by whom the verifier trusts. Errors
	// wrap [source.ErrVerification] when a signature was refused or there is none.
	Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error)
}

// A Technology makes the verifier of what r holds, for one value of
// spec.verify.provider. It sends nothing. Errors say what is wrong with t,
// and wrap [source.ErrInvalid] when that is the spec.
type Technology func(r *Repository, t Trust) (Verifier, error)

// A Trust says whom spec.verify trusts.
type Trust struct {
	Keys       transport.Secret           // spec.verify.secretRef; its Name is "" when there is none
	Root       transport.Secret           // spec.verify.trustedRootSecretRef
	Identities []source.OIDCIdentityMatch // spec.verify.matchOIDCIdentity
}
