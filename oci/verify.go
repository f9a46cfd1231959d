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
	// Verify checks that a trusted signer signed subject. Errors
	// wrap [source.ErrVerification] when a signature was refused or there is none.
	Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error)
}

// A Technology makes the verifier of what r holds, for one value of
// spec.verify.provider. It sends nothing. Errors say what is wrong with t,
// and wrap [source.ErrInvalid] when that is the spec.
type Technology func(r *Repository, t Trust) (Verifier, error)

// A Trust has the signers that spec.verify trusts.
type Trust struct {
	Keys       Secret                     // spec.verify.secretRef; its Name is "" when there is none
	Root       Secret                     // spec.verify.trustedRootSecretRef
	Identities []source.OIDCIdentityMatch // spec.verify.matchOIDCIdentity
}

// A Check verifies what the spec of one object asks for.
type Check struct {
	Spec         *source.OCIRepositoryVerification // spec.verify
	Technologies map[string]Technology             // by spec.verify.provider
	Vault        *Vault
}

// Trust reads the signers that the spec trusts, and returns their fingerprint: other keys,
// identities or roots have another. Errors are *[source.StepError].
func (c Check) Trust(ctx context.Context) (t Trust, print string, err error) {
	if _, err := c.technology(); err != nil {
		return t, "", err
	}
	t.Identities = c.Spec.MatchOIDCIdentity
	if t.Keys, err = c.Vault.Read(ctx, c.Spec.SecretRef, "spec.verify.secretRef"); err == nil {
		t.Root, err = c.Vault.Read(ctx, c.Spec.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	}
	if err != nil {
		return Trust{}, "", transport.Unverified(err)
	}
	return t, t.fingerprint(c.provider()), nil
}

// Verify checks that a signer in t signed subject, which r has.
func (c Check) Verify(ctx context.Context, r *Repository, subject ocispec.Descriptor, t Trust) (source.Verification, error) {
	technology, err := c.technology()
	if err != nil {
		return source.Verification{}, err
	}
	verifier, err := technology(r, t)
	if err != nil {
		return source.Verification{}, err
	}
	return verifier.Verify(ctx, subject)
}

// provider is what signatures are verified with.
func (c Check) provider() string { return cmp.Or(c.Spec.Provider, "cosign") }

// technology returns what the signatures are to be verified with.
func (c Check) technology() (Technology, error) {
	if make := c.Technologies[c.provider()]; make != nil {
		return make, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(c.Technologies)), " or ")
	return nil, transport.Unverified(invalid(fmt.Errorf("spec.verify.provider %q: this program verifies with %s", c.provider(), cmp.Or(known, "none"))))
}

// signatures are those that spec.verify asks for.
func (o *Origin) signatures() Check {
	return Check{Spec: o.repo.Spec.Verify, Technologies: o.technologies, Vault: &o.vault}
}

// trust reads the signers that spec.verify trusts, and returns their fingerprint, "" without spec.verify.
func (o *Origin) trust(ctx context.Context) (print string, err error) {
	if o.repo.Spec.Verify == nil {
		return "", nil
	}
	var t Trust
	err = o.within(ctx, "read the Secrets of spec.verify", func(ctx context.Context) (err error) {
		t, print, err = o.signatures().Trust(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trusted = &t
	return print, nil
}

// fingerprint hashes a provider and the signers in t.
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
	c.origin.mu.Lock()
	trusted := c.origin.trusted
	c.origin.mu.Unlock()
	err = c.origin.within(ctx, "verify", func(ctx context.Context) (err error) {
		check := c.origin.signatures()
		if trusted == nil {
			var t Trust
			if t, _, err = check.Trust(ctx); err != nil {
				return err
			}
			trusted = &t
		}
		v, err = check.Verify(ctx, c.repo, c.subject, *trusted)
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
