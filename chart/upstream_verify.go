package chart

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

func (r *registry) trusts(ctx context.Context, trust *source.OCIRepositoryVerification) (print string, err error) {
	if trust == nil {
		return "", nil
	}
	err = source.Within(ctx, timeout(r.repo), "read the Secrets of spec.verify", func(ctx context.Context) (err error) {
		_, print, err = r.supply.check(trust).Trust(ctx)
		return err
	})
	if err != nil {
		return "", transport.Unverified(err)
	}
	return print, nil
}

// check verifies what spec.verify asks for.
func (s *supply) check(trust *source.OCIRepositoryVerification) oci.Check {
	return oci.Check{Spec: trust, Technologies: s.technologies, Vault: s.vault}
}

// verify implements upstream: of the digest in the offer, and so of all that it
// leads to.
func (r *registry) verify(ctx context.Context, o offer, trust *source.OCIRepositoryVerification) (v source.Verification, err error) {
	if trust == nil {
		return v, nil
	}
	from, m, err := r.offered(ctx, o)
	if err == nil {
		err = source.Within(ctx, timeout(r.repo), "verify", func(ctx context.Context) error {
			check := r.supply.check(trust)
			t, _, err := check.Trust(ctx)
			if err == nil {
				v, err = check.Verify(ctx, from, m.subject, t)
			}
			return err
		})
	}
	if err != nil {
		return source.Verification{}, stepError(source.StepVerify, verifyFailed, fmt.Errorf("chart %s %s: %w", o.name, o.version, err))
	}
	if v != (source.Verification{}) {
		v.Message = cmp.Or(v.Message, fmt.Sprintf("verified signature of chart %s in version %s, %s", o.name, o.version, m.subject.Digest))
	}
	return v, nil
}
