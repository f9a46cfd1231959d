package chart

import (
	"context"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provenanceMode is the verification that a PkgRepository over HTTP asks for.
const provenanceMode = "provenance"

func (u *site) trusts(ctx context.Context, trust *source.OCIRepositoryVerification) (string, error) {
	return "", errTODO
}

func (u *site) verify(ctx context.Context, o offer, trust *source.OCIRepositoryVerification) (source.Verification, error) {
	if trust == nil && u.repo.Spec.Verify == nil {
		return source.Verification{}, nil
	}
	return source.Verification{}, transport.Unverified(errTODO)
}
