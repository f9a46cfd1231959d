package cosign

import (
	"context"
	"errors"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// A Config says where the trusted root of keyless signatures comes from. The zero value is Sigstore's public good instance.
type Config struct {
	Mirror string           // URL of a TUF repository with a target trusted_root.json, "" for that of the public good instance
	Anchor []byte           // the root.json that Mirror is trusted by, nil for that of the public good instance
	Cache  string           // a directory that keeps for a day what Mirror said; "" keeps it in memory and writes nothing
	Now    func() time.Time // nil for time.Now
}

// New returns the technology cosign. What the TUF repository says is shared by
// all its verifiers. It is asked for at the first keyless verification, when a
// day has passed, and when no signature holds, for that not twice in a minute.
func New(c Config) oci.Technology {
	shared := newRoots(c)
	return func(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
		judge, err := authority(t, shared, r)
		if err != nil {
			return nil, err
		}
		return &verifier{r, judge}, nil
	}
}

// A judge knows whose signatures count. It is used for one verification.
type judge interface {
	// signer names the signer of s for messages. Errors are refusals when s does not count.
	signer(ctx context.Context, s *signature, subject ocispec.Descriptor) (string, error)
	// renew reports whether signatures of others count now than did.
	renew(ctx context.Context) bool
}

// authority returns what makes the judges of t.
func authority(t oci.Trust, shared *roots, r *oci.Repository) (func() judge, error) {
	if t.Keys.Name == "" {
		return identitiesOf(t, shared, r)
	}
	ks, err := keysOf(t.Keys)
	return func() judge { return ks }, err
}

// A verifier implements [oci.Verifier]. It is safe for concurrent use.
type verifier struct {
	repo  *oci.Repository
	judge func() judge
}

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] when
// there is no signature or none that holds; those of the registry and of the
// TUF repository do not.
func (v *verifier) Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error) {
	if err := subject.Digest.Validate(); err != nil {
		return source.Verification{}, fmt.Errorf("verify %.100q: %w", subject.Digest, err)
	}
	j := v.judge()
	signer, err := v.attempt(ctx, j, subject)
	if errors.Is(err, source.ErrVerification) && j.renew(ctx) {
		signer, err = v.attempt(ctx, j, subject)
	}
	if err != nil {
		return source.Verification{}, err
	}
	return source.Verification{
		Mode:    "cosign",
		Signer:  signer,
		Message: fmt.Sprintf("verified signature of '%s' by '%s'", subject.Digest, signer),
	}, nil
}

// attempt returns the signer of the first signature of subject that holds.
func (v *verifier) attempt(ctx context.Context, j judge, subject ocispec.Descriptor) (string, error) {
	t := attempt.Tally{Subject: v.repo.Name() + "@" + subject.Digest.String(), Unsigned: "is not signed: sign it with cosign sign"}
	others := 0 // manifests that refer to the subject and are no signatures
	for c, err := range v.candidates(ctx, subject) {
		var signer string
		if err == nil {
			signer, err = try(ctx, j, c, subject)
		}
		if err == nil {
			return signer, nil
		}
		if ctx.Err() != nil {
			return "", err
		}
		if !errors.Is(err, errOther) {
			t.Add(c.name, err)
			continue
		}
		others++
		t.Unsigned = fmt.Sprintf("is not signed: what refers to it are %d attestations or the like: sign it with cosign sign", others)
	}
	return "", t.Err()
}

// try returns the signer of c, a signature of subject.
func try(ctx context.Context, j judge, c candidate, subject ocispec.Descriptor) (string, error) {
	s, err := c.open(ctx)
	if err != nil {
		return "", err
	}
	signer, err := j.signer(ctx, s, subject)
	if err != nil {
		return "", err
	}
	return signer, s.claim(s.payload, subject.Digest)
}
