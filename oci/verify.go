package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	Keys       Secret                     // spec.verify.secretRef; its Name is "" when there is none
	Root       Secret                     // spec.verify.trustedRootSecretRef
	Identities []source.OIDCIdentityMatch // spec.verify.matchOIDCIdentity
}

// trust returns a fingerprint of what spec.verify asks for and of whom it
// trusts, "" when the spec asks for no verification.
func (o *Origin) trust(ctx context.Context) (string, error) {
	if o.repo.Spec.Verify == nil {
		return "", nil
	}
	if _, err := o.technology(); err != nil {
		return "", err
	}
	var t Trust
	err := o.within(ctx, "read the Secrets of spec.verify", func(ctx context.Context) (err error) {
		t, err = o.readTrust(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	print := t.fingerprint(o.repo.Plan().Verify)
	o.trusted.Set(print)
	return print, nil
}

// technology returns what the signatures are to be verified with.
func (o *Origin) technology() (Technology, error) {
	provider := o.repo.Plan().Verify
	if make := o.technologies[provider]; make != nil {
		return make, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(o.technologies)), " or ")
	return nil, transport.Unverified(invalid(fmt.Errorf("spec.verify.provider %q: this program verifies with %s", provider, cmp.Or(known, "none"))))
}

// readTrust reads the Secrets of spec.verify.
func (o *Origin) readTrust(ctx context.Context) (t Trust, err error) {
	v := o.repo.Spec.Verify
	t.Identities = v.MatchOIDCIdentity
	if t.Keys, err = o.vault.Read(ctx, v.SecretRef, "spec.verify.secretRef"); err == nil {
		t.Root, err = o.vault.Read(ctx, v.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	}
	if err != nil {
		return Trust{}, transport.Unverified(err)
	}
	return t, nil
}

// fingerprint is one of a provider and of whom t trusts.
func (t Trust) fingerprint(provider string) string {
	sum := sha256.New()
	transport.Note(sum, provider, t.Keys.Name, t.Root.Name)
	t.Keys.Note(sum)
	t.Root.Note(sum)
	for _, m := range t.Identities {
		transport.Note(sum, m.Issuer, m.Subject)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Verify implements [source.Content]: of the digest in the revision, and so of
// all that it leads to.
func (c *content) Verify(ctx context.Context) (v source.Verification, err error) {
	if c.origin.repo.Spec.Verify == nil {
		return v, nil
	}
	err = c.origin.within(ctx, "verify", func(ctx context.Context) (err error) {
		v, err = c.check(ctx)
		return err
	})
	if err != nil {
		return source.Verification{}, transport.Unverified(fmt.Errorf("%s: %w", c.rev.ID, err))
	}
	c.passed = true
	if v != (source.Verification{}) {
		v.Message = cmp.Or(v.Message, fmt.Sprintf("verified signature of revision %s", c.rev.ID))
	}
	return v, nil
}

func (c *content) check(ctx context.Context) (v source.Verification, err error) {
	technology, err := c.origin.technology()
	if err != nil {
		return v, err
	}
	trust, err := c.origin.readTrust(ctx)
	if err == nil {
		err = c.origin.trusted.Check(trust.fingerprint(c.origin.repo.Plan().Verify))
	}
	if err != nil {
		return v, err
	}
	verifier, err := technology(c.repo, trust)
	if err != nil {
		return v, err
	}
	return verifier.Verify(ctx, c.subject)
}
